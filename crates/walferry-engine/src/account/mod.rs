//! Postgres' side of the room `delivery`: what lies between the records of its stream, and how delivered changes are
//! summed up into the offset.

mod store;
#[cfg(test)]
mod tests;
mod transaction_counts;

use std::{mem, sync::Arc};

use serde_json::{Map, Value as Json};
use walferry_event::reselect::{RowLookup, RowReading};
use walferry_pgoutput::Lsn;

use crate::{
    delivery::{
        self,
        contract::{Account, Mark, OffsetAccount, Tally, Unstored},
        ledger::EntryOf,
    },
    history,
    incremental::machine::MEMBERS,
    message_type::MessageType,
    position::Position,
    snapshot,
};

pub use self::store::{OffsetStore, StoredOffset};
use self::transaction_counts::{Counted, TransactionCounts};

/// A batch of records of a Postgres stream.
pub type Batch = delivery::batch::Batch<StreamAccount>;
/// Records that are sent when the transaction before them is committed.
pub(crate) type KeptRecords = delivery::batch::KeptRecords<StreamAccount>;
/// The queue of records of a Postgres stream.
pub type Progress = delivery::progress::Progress<StreamAccount>;
/// Kafka has acknowledged every record up to here.
pub type Delivered = delivery::progress::Delivered<StreamAccount>;
/// The offset of a position of a Postgres stream is durable.
pub type Stored = delivery::progress::Stored<Lsn>;
/// A record, or something between records.
pub type StreamEntry = EntryOf<StreamAccount>;
/// A record of a Postgres stream that waits for something.
pub(crate) type HeldRecord = delivery::batch::HeldRecord<StreamAccount>;

/// Bytes that a mark counts for if no record pays for it: the counter of one table, or a snapshot chunk without rows.
/// If a transform drops every record, such marks pile up behind a stuck record.
const MARK_BYTES: usize = 128;
/// Bytes that the state of an incremental snapshot counts for.
const KEPT_BYTES: usize = 2048;

/// What a record comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamChange {
    /// Position of the change.
    pub position: Position,
    /// Kind of the change.
    pub message: MessageType,
}

/// Columns of a row that are being read.
#[derive(Debug)]
pub struct PendingRow {
    pub(crate) lookup: RowLookup,
    pub(crate) reading: Arc<RowReading>,
}

/// A step of the stream between its records, in the order in which the pipeline saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamStep {
    /// The transaction that the following records belong to.
    Begin(Transaction),
    /// The transaction is complete.
    Commit {
        /// LSN behind the commit record.
        end: Lsn,
        /// Commit time, microseconds since 1970.
        time_us: i64,
        /// Whether the transaction sent any record.
        sent: bool,
        /// Identifies the commit when it comes again. `None` for a message outside transactions.
        seen: Option<history::SeenCommit>,
    },
    /// A person has asked to pass over this change, and it gives no record. This step moves the offset past it. Otherwise the session might
    /// end at a later record that cannot be sent while the offset still stands before this change, and the next session would meet it again.
    PassedOver {
        /// The change, which is dealt with.
        change: StreamChange,
        /// The transaction that it belongs to.
        transaction: Transaction,
    },
    /// A connection has begun. The server sends what it has from here on.
    Connected(Lsn),
    /// The server has sent everything committed before this.
    Idle(Lsn),
    /// The offset's state of an incremental snapshot has changed.
    Incremental {
        /// The members of the offset that describe it. Empty if there is no such snapshot any more.
        members: Arc<Map<String, Json>>,
        /// The change that has brought this about, which is dealt with, and its kind.
        at: Option<(Position, MessageType)>,
        /// Whether a blocking snapshot has ended with it: what was delivered of that one counts for no other.
        ends_blocking: bool,
    },
    /// A blocking snapshot begins, or goes on.
    BlockingBegin,
    /// The pipeline's request of this number waits for delivery. Once the mark is reached, Kafka has everything before
    /// the request: a chunk may be read, or its next slice may leave.
    AwaitsDelivery(u64),
    /// The signals up to this ticket have been followed, or are in the offset's state of an incremental snapshot.
    SignalTaken(u64),
    /// A snapshot has read these tables.
    TablesRead(Arc<[String]>),
    /// A part of the snapshot that is being read is complete, or no longer counts.
    Snapshot(snapshot::SnapshotStep),
    /// The initial snapshot is complete: its last row was read at this position.
    SnapshotEnd {
        /// Where the stream continues.
        lsn: Lsn,
        /// The transaction that read it.
        transaction: Transaction,
    },
}

/// A transaction as the offset describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transaction {
    /// Transaction id.
    pub xid: u32,
    /// Commit time, microseconds since 1970.
    pub time_us: i64,
}

/// The account: the offset of delivered records, with the state needed to build it.
#[derive(Debug, Clone)]
pub struct StreamAccount {
    delivered: StoredOffset,
    /// How far the server has got on the present connection. The offset may be further, from another copy of the
    /// server. What this server has committed up to the offset is still to be delivered, and must not be confirmed
    /// before.
    server_position: Lsn,
    /// Number of connections that have begun.
    connections: u64,
    /// Connections that have begun but whose beginning has not been reached. Steps before it belong to an earlier
    /// connection.
    beginning: u32,
    /// Kind of the last delivered change. It becomes a string only when the offset is asked for.
    message: Option<MessageType>,
    transaction_counts: TransactionCounts,
    /// The transaction of the last delivered record.
    transaction: Transaction,
    /// Number of delivered snapshot chunks.
    chunks: u64,
    /// The ticket of the last signal that counts.
    signals: u64,
    unstored: Unstored,
}

impl StreamAccount {
    fn move_to(&mut self, StreamChange { position, message }: StreamChange) {
        let offset = &mut self.delivered.connect;
        offset.lsn = Some(position.lsn.into());
        self.message = Some(message);
        offset.tx_id = Some(self.transaction.xid);
        offset.ts_usec = Some(self.transaction.time_us);
        self.delivered.position = Some(position);
        self.unstored = Unstored::Delivered;
    }

    /// The server has got to this position. Returns whether that is further than before.
    fn show(&mut self, lsn: Lsn) -> bool {
        let is_further = self.beginning == 0 && lsn > self.server_position;
        if is_further {
            self.server_position = lsn;
        }
        is_further
    }

    fn reach(&mut self, step: StreamStep) {
        match step {
            StreamStep::Begin(transaction) => {
                self.transaction = transaction;
                self.transaction_counts.enter(transaction.xid);
            }
            StreamStep::PassedOver { change, transaction } => {
                self.transaction = transaction;
                self.transaction_counts.enter(transaction.xid);
                self.move_to(change);
            }
            StreamStep::Connected(_) => self.beginning -= 1,
            StreamStep::AwaitsDelivery(_) => {}
            StreamStep::SignalTaken(ticket) => {
                self.signals = ticket;
                // A signal that has changed nothing is done once an offset has been stored after it.
                if self.delivered.connect.lsn.is_some() {
                    self.unstored = self.unstored.max(Unstored::Passed);
                }
            }
            StreamStep::Commit { end, seen, .. } => self.reach_commit(end, seen),
            StreamStep::Idle(lsn) => self.reach_idle(lsn),
            StreamStep::Incremental {
                members,
                at,
                ends_blocking,
            } => self.reach_incremental(&members, at, ends_blocking),
            StreamStep::TablesRead(tables) => {
                self.delivered.read_tables(&tables);
                self.unstored = Unstored::Delivered;
            }
            StreamStep::BlockingBegin => {
                self.delivered.blocking.get_or_insert_default();
                self.has_moved(Unstored::Delivered);
            }
            StreamStep::Snapshot(step) => self.reach_part(step),
            StreamStep::SnapshotEnd { lsn, transaction } => self.reach_snapshot_end(lsn, transaction),
        }
    }

    fn reach_commit(&mut self, end: Lsn, seen: Option<history::SeenCommit>) {
        self.show(end);
        let history = self.delivered.history.get_or_insert_default();
        match seen {
            Some(commit) => history.settle_commit(commit),
            None => history.settle(end),
        }
        let offset = &mut self.delivered.connect;
        // A commit means that the snapshot is over, unless an interrupted one has yet to continue.
        if self.delivered.snapshot.is_none() {
            (offset.snapshot, offset.snapshot_completed, offset.last_snapshot_record) = (None, None, None);
        }
        offset.lsn_commit = Some(end.into());
        offset.lsn_proc = offset.lsn_proc.max(Some(end.into()));
        self.has_moved(Unstored::Passed);
    }

    fn reach_idle(&mut self, lsn: Lsn) {
        let is_further = self.show(lsn);
        let offset = &mut self.delivered.connect;
        let is_known = offset.lsn_proc >= Some(lsn.into());
        offset.lsn_proc = offset.lsn_proc.max(Some(lsn.into()));
        if is_further || !is_known {
            self.has_moved(Unstored::Passed);
        }
    }

    fn reach_incremental(
        &mut self,
        members: &Map<String, Json>,
        at: Option<(Position, MessageType)>,
        ends_blocking: bool,
    ) {
        if ends_blocking {
            self.delivered.blocking = None;
        }
        let other = &mut self.delivered.connect.other;
        for member in MEMBERS {
            other.remove(member);
        }
        other.extend(members.iter().map(|(name, value)| (name.clone(), value.clone())));
        self.unstored = Unstored::Delivered;
        if let Some((position, message)) = at {
            self.move_to(StreamChange { position, message });
        }
    }

    fn reach_part(&mut self, step: snapshot::SnapshotStep) {
        let is_chunk = matches!(step, snapshot::SnapshotStep::Chunk { .. });
        let initial = self.delivered.snapshot.as_mut();
        if let Some(done) = initial.or(self.delivered.blocking.as_mut()) {
            done.step(step);
        }
        self.chunks += u64::from(is_chunk);
        self.has_moved(Unstored::Delivered);
    }

    fn reach_snapshot_end(&mut self, lsn: Lsn, transaction: Transaction) {
        self.delivered.snapshot = None;
        let history = self.delivered.history.get_or_insert_default();
        history.settle(lsn);
        history.rows_read = history.rows_read.max(lsn);
        self.transaction = transaction;
        self.server_position = self.server_position.max(lsn);
        let offset = &mut self.delivered.connect;
        offset.lsn = Some(lsn.into());
        // The snapshot's position counts if it is further than that of the stream beside it.
        offset.lsn_proc = offset.lsn_proc.map(|processed| processed.max(lsn.into()));
        offset.tx_id = Some(transaction.xid);
        offset.ts_usec = Some(transaction.time_us);
        offset.snapshot = Some("INITIAL".into());
        (offset.snapshot_completed, offset.last_snapshot_record) = (Some(true), Some(true));
        self.has_moved(Unstored::Delivered);
    }

    /// The offset is another one, and so there is something to store.
    fn has_moved(&mut self, unstored: Unstored) {
        let offset = &mut self.delivered.connect;
        if offset.lsn.is_none() {
            // Debezium expects `lsn` in every offset.
            offset.lsn = offset.lsn_proc;
        }
        self.unstored = self.unstored.max(unstored);
    }
}

impl Account for StreamAccount {
    type Change = StreamChange;
    type Mark = StreamStep;
    type Tally = Counted;

    fn is_of_change(change: &StreamChange) -> bool {
        !matches!(
            change.message,
            MessageType::Transaction | MessageType::Heartbeat | MessageType::Notification
        )
    }

    fn pushed(&mut self, step: &StreamStep) {
        if let StreamStep::Connected(from) = step {
            self.server_position = self.server_position.min(*from);
            self.connections += 1;
            self.beginning += 1;
        }
    }

    fn reach_change(&mut self, change: &StreamChange) {
        self.move_to(*change);
    }

    fn reach_mark(&mut self, step: StreamStep) {
        self.reach(step);
    }

    fn reach_tally(&mut self, counted: Counted) {
        self.transaction_counts.count(counted);
    }
}

impl OffsetAccount for StreamAccount {
    type Position = Lsn;
    type Offset = StoredOffset;
    type PendingRow = PendingRow;

    fn after(mut start: StoredOffset) -> Self {
        let transaction_counts = TransactionCounts::take_from(&mut start.connect);
        Self {
            // A process that stopped may have stored an offset without confirming it.
            unstored: if start.connect.lsn.is_some() {
                Unstored::Delivered
            } else {
                Unstored::Nothing
            },
            server_position: start.stream_start().unwrap_or_default(),
            connections: 0,
            beginning: 0,
            delivered: start,
            message: None,
            transaction_counts,
            transaction: Transaction::default(),
            chunks: 0,
            signals: 0,
        }
    }

    fn offset(&mut self) -> StoredOffset {
        if let Some(message) = self.message.take() {
            self.delivered.connect.message_type = Some(message.as_str().to_owned());
        }
        let mut offset = self.delivered.clone();
        self.transaction_counts.add_to(&mut offset.connect);
        offset
    }

    fn unstored(&self) -> Unstored {
        self.unstored
    }

    fn set_unstored(&mut self, unstored: Unstored) {
        self.unstored = unstored;
    }

    fn confirmable(&self) -> Lsn {
        self.server_position
            .min(self.delivered.connect.lsn_proc.unwrap_or_default().into())
    }

    fn server_position(&self) -> (Lsn, u64) {
        (self.server_position, self.connections)
    }

    fn signals(&self) -> u64 {
        self.signals
    }

    fn take_chunks(&mut self) -> u64 {
        mem::take(&mut self.chunks)
    }

    fn commit_us(&self) -> i64 {
        self.transaction.time_us
    }

    fn place(change: &StreamChange) -> Lsn {
        change.position.lsn
    }

    fn name(change: &StreamChange) -> Option<String> {
        let is_of_stream = change.message.is_of_stream() && change.position.lsn != Lsn(0);
        is_of_stream.then(|| change.position.to_string())
    }

    fn stream_start(offset: &StoredOffset) -> Lsn {
        offset.stream_start().unwrap_or_default()
    }

    fn is_beginning(offset: &StoredOffset) -> bool {
        offset.is_beginning()
    }
}

impl Tally for Counted {
    type Part = (u32, Option<(Arc<str>, i64)>);

    fn of((xid, table): Self::Part) -> Self {
        Self::new(xid, table)
    }

    fn add(&mut self, (xid, table): Self::Part) {
        self.count(xid, table);
    }

    fn bytes(&self) -> usize {
        self.tables().saturating_sub(1) * MARK_BYTES
    }
}

impl Mark for StreamStep {
    /// Bytes that the step counts for as a mark. A record of the same transaction pays for the transaction's marks.
    /// Commits and keepalives without a record replace each other.
    fn bytes(&self) -> usize {
        match self {
            Self::Snapshot(_) => MARK_BYTES,
            Self::Incremental { .. } => KEPT_BYTES,
            Self::TablesRead(tables) => MARK_BYTES * tables.len(),
            _ => 0,
        }
    }

    /// Whether this step makes `earlier` redundant, when no record lies between them.
    fn replaces(&self, earlier: &Self) -> bool {
        match self {
            Self::Commit { .. } => matches!(earlier, Self::Idle(_) | Self::Commit { sent: false, .. }),
            Self::Idle(_) => matches!(earlier, Self::Idle(_)),
            _ => false,
        }
    }

    fn committed_us(&self) -> Option<i64> {
        match self {
            Self::Commit {
                time_us, sent: true, ..
            } => Some(*time_us),
            _ => None,
        }
    }

    fn delivery_awaited(&self) -> Option<u64> {
        match self {
            Self::AwaitsDelivery(number) => Some(*number),
            _ => None,
        }
    }
}
