//! How far the connector is: received → delivered → stored → confirmed.
//!
//! Every record and every commit takes a place in a queue in stream order. Kafka acknowledges in any order; what counts as
//! delivered is the head of the queue, up to the first record that is still under way. [`Delivered`] and [`Stored`] can be made
//! here only, so that nothing can confirm what is not stored, or store what Kafka has not acknowledged.

use std::{
    collections::VecDeque,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use walferry_pgoutput::Lsn;
use walferry_snapshot as snapshot;

use crate::{
    delivery::{
        store::{OffsetStore, StoredOffset},
        transaction_counts::{Counted, TransactionCounts},
        window::Window,
    },
    failure::Failure,
    history,
    position::Position,
    published::Published,
    status::{Latency, now_us},
};

/// Bytes that a record counts for beside its own: what the producer and this queue keep of it while it is under way.
pub const RECORD_OVERHEAD_BYTES: usize = 512;
/// Bytes that an acknowledged record counts for as long as one before it is not: its place in this queue, and the marks of
/// its transaction. While one partition has no leader the others go on, and the queue must not grow without end.
const SETTLED_BYTES: usize = 192;
/// Bytes that a mark counts for where no record pays for it: the counter of one table, or a chunk of a snapshot without rows.
/// A transform that drops every record leaves such marks behind a record that is stuck.
const MARK_BYTES: usize = 128;
const _: () = assert!(SETTLED_BYTES <= RECORD_OVERHEAD_BYTES);

/// One step of the stream, in the order in which the pipeline met it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The transaction that the following records belong to.
    Begin(Transaction),
    /// With `provide.transaction.metadata`: the transaction has begun, or has so many records of a table.
    Counted {
        /// Transaction id.
        xid: u32,
        /// The table, as `schema.table`, and the number of its records.
        table: Option<(Arc<str>, i64)>,
    },
    /// A record for Kafka.
    Record {
        /// Place of the change that it comes from.
        position: Position,
        /// What the change was, as Debezium names it in `messageType`.
        message: &'static str,
        /// Whether it is the last record of the change.
        last: bool,
        /// Size of key, value and headers.
        bytes: usize,
    },
    /// The transaction is complete.
    Commit {
        /// LSN behind the commit record.
        end: Lsn,
        /// When it was committed, microseconds since 1970.
        time_us: i64,
        /// Whether it sent any record.
        sent: bool,
        /// How it can be recognised when it comes again; `None` for a message outside transactions.
        seen: Option<history::Commit>,
    },
    /// A connection has begun, and the server sends what it has from here on.
    Connected(Lsn),
    /// Everything committed before this has been sent by the server.
    Idle(Lsn),
    /// A part of the initial snapshot is complete, or is not what it was.
    Snapshot(snapshot::Step),
    /// The initial snapshot is complete: its last row was read at this position.
    SnapshotEnd {
        /// Where the stream goes on.
        lsn: Lsn,
        /// The transaction that read it.
        transaction: Transaction,
    },
}

/// A transaction as the offset tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transaction {
    /// Transaction id.
    pub xid: u32,
    /// Commit time, microseconds since 1970.
    pub time_us: i64,
}

/// Kafka has acknowledged every record up to here. Only [`Progress`] makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivered {
    offset: StoredOffset,
    processed: Lsn,
}

/// The offset of this position is durable. Only [`Delivered::save`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    processed: Lsn,
    start: Lsn,
}

impl Delivered {
    /// Makes it durable.
    pub async fn save(self, store: &mut impl OffsetStore) -> Result<Stored, Failure> {
        store.write(&self.offset).await?;
        Ok(Stored {
            processed: self.processed,
            start: self.offset.stream_start().unwrap_or_default(),
        })
    }

    /// The stream has told this position of the server.
    pub(crate) fn heard(mut self, server_end: Lsn) -> Self {
        if let Some(history) = &mut self.offset.history {
            history.furthest = history.furthest.max(server_end);
        }
        self
    }

    /// The offset that would be stored.
    pub const fn offset(&self) -> &StoredOffset {
        &self.offset
    }
}

impl Stored {
    /// What may be confirmed to the server: it need not keep anything before this.
    pub const fn confirmable(&self) -> Lsn {
        self.processed
    }

    /// The same for a server that has itself got no further than this.
    pub(crate) fn on_server(self, shown: Lsn) -> Self {
        Self {
            processed: self.processed.min(shown),
            ..self
        }
    }

    /// Where a stream has to start, so that the last commit that was dealt with comes again.
    pub(crate) const fn stream_start(&self) -> Lsn {
        self.start
    }
}

/// How long Kafka has let records wait. Microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Since when it has acknowledged nothing.
    pub unacknowledged_since_us: i64,
    /// Commit time of the oldest transaction with a record under way; 0 for rows of a snapshot.
    pub oldest_commit_us: i64,
}

/// The queue of what is under way, shared by the pipeline (which adds), the producer (which settles) and the keeper (which
/// stores what is delivered).
#[derive(Debug)]
pub struct Progress {
    state: Mutex<State>,
    /// Signalled when room is made or waiting is over.
    room: Condvar,
    /// Signalled when there is something to store that was not there before, or when something has failed.
    pub(crate) changed: Notify,
    /// Commit in Postgres to acknowledgement by Kafka.
    latency: Arc<Latency>,
}

#[derive(Debug)]
struct State {
    /// Records under way and those that wait for one before them, in stream order.
    records: VecDeque<Pending>,
    /// Sequence of the first of them.
    head: u64,
    /// Steps between records: each counts once all records before its sequence have settled.
    marks: VecDeque<(u64, Step)>,
    /// The same of `Step::Counted`, at most one for each sequence.
    counted: VecDeque<(u64, Counted)>,
    in_flight: usize,
    in_flight_bytes: usize,
    /// How many of them there may be.
    window: Window,
    /// When Kafka last acknowledged something or the first record came under way, microseconds since 1970.
    acknowledged_us: i64,
    delivered: StoredOffset,
    /// How far the server has got on the present connection. The offset may say more, of another copy of the server: what this one
    /// has committed up to there is still to be delivered, and must not be confirmed before.
    shown: Lsn,
    /// How many connections have begun.
    connections: u64,
    /// Connections that have begun and whose beginning has not been reached yet: steps before it are of an earlier connection.
    beginning: u32,
    /// What the last change was that was delivered; becomes text only where the offset is asked for.
    message: Option<&'static str>,
    transaction_counts: TransactionCounts,
    /// The transaction of the last record that was delivered.
    transaction: Transaction,
    /// Chunks of a snapshot.
    chunks: u64,
    unstored: Unstored,
    failure: Option<Failure>,
    stopping: bool,
}

/// What there is to store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Unstored {
    Nothing,
    /// The stream has moved and has sent nothing: a crash repeats nothing.
    Passed,
    /// Records that a crash repeats.
    Delivered,
}

#[derive(Debug)]
struct Pending {
    position: Position,
    message: &'static str,
    last: bool,
    settled: bool,
    bytes: usize,
}

impl Progress {
    /// Goes on from an offset. At most `limit` bytes of records are under way at a time (and always one record).
    pub fn new(mut start: StoredOffset, limit: usize) -> Self {
        let transaction_counts = TransactionCounts::take_from(&mut start.connect);
        Self {
            state: Mutex::new(State {
                records: VecDeque::new(),
                head: 0,
                marks: VecDeque::new(),
                counted: VecDeque::new(),
                in_flight: 0,
                in_flight_bytes: 0,
                window: Window::new(limit),
                acknowledged_us: 0,
                // What a stopped process had stored may not have been confirmed yet.
                unstored: if start.connect.lsn.is_some() {
                    Unstored::Delivered
                } else {
                    Unstored::Nothing
                },
                shown: start.stream_start().unwrap_or_default(),
                connections: 0,
                beginning: 0,
                delivered: start,
                message: None,
                transaction_counts,
                transaction: Transaction::default(),
                chunks: 0,
                failure: None,
                stopping: false,
            }),
            room: Condvar::new(),
            changed: Notify::new(),
            latency: Arc::default(),
        }
    }

    /// Counts latencies there, where they outlive this queue.
    pub fn with_latency(self, latency: Arc<Latency>) -> Self {
        Self { latency, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere while the lock was held ends the connector; the queue itself is consistent between its lines.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds steps in stream order. Returns the sequence of the first record among them; the other records follow it one by
    /// one. What sends nothing needs no acknowledgement.
    pub fn push(&self, steps: impl IntoIterator<Item = Step>) -> u64 {
        let mut state = self.lock();
        let first = state.next();
        let was_empty = state.in_flight == 0;
        for step in steps {
            state.push(step);
        }
        if was_empty && state.in_flight > 0 {
            state.acknowledged_us = now_us();
        }
        let next = state.next();
        if next > first {
            state.window.sent(next, now_us);
        }
        self.advance(&mut state);
        first
    }

    /// Waits until all waiting is over.
    pub(crate) fn wait_until_over(&self) {
        let mut state = self.lock();
        while !state.is_over() {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the records under way leave room for more. Who `waits` already goes on when there is enough to fill.
    pub(crate) fn has_room(&self, waits: bool) -> bool {
        let state = self.lock();
        let most = match waits {
            true => state.window.enough(),
            false => state.window.bytes(),
        };
        state.in_flight_bytes <= most || state.is_over()
    }

    /// Waits until the records under way leave room for more. Returns whether the pipeline shall go on.
    pub fn wait_for_room(&self) -> bool {
        let mut state = self.lock();
        if state.in_flight_bytes > state.window.bytes() {
            state.window.waited();
            while state.in_flight_bytes > state.window.enough() && !state.is_over() {
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        !state.is_over()
    }

    /// Kafka has acknowledged the record with this sequence, or it was set aside. A second time changes nothing.
    pub fn settle(&self, sequence: u64) {
        self.settle_all(&[sequence]);
    }

    /// The same for several records at once.
    pub fn settle_all(&self, sequences: &[u64]) {
        let mut state = self.lock();
        let settled = sequences.iter().filter(|&&sequence| state.settle(sequence)).count();
        if settled == 0 {
            return;
        }
        state.acknowledged_us = now_us();
        self.advance(&mut state);
        let (head, now_us) = (state.head, state.acknowledged_us);
        state.window.acknowledged(head, now_us);
        if state.in_flight_bytes <= state.window.enough() {
            self.room.notify_one();
        }
    }

    /// Place of the change that an unsettled record comes from.
    pub fn position(&self, sequence: u64) -> Option<Position> {
        let state = self.lock();
        let index = usize::try_from(sequence.checked_sub(state.head)?).ok()?;
        let record = state.records.get(index)?;
        (!record.settled).then_some(record.position)
    }

    /// The record with this sequence and those behind it were not given to the producer: nobody will settle them. What is
    /// ahead of them may still arrive.
    pub fn withdraw(&self, sequence: u64) {
        let mut state = self.lock();
        while state.next() > sequence
            && let Some(record) = state.records.pop_back()
        {
            state.in_flight -= 1;
            state.in_flight_bytes -= record.bytes;
        }
        state.withdraw_marks(sequence);
        state.window.withdrawn(sequence);
    }

    /// A record will not be delivered; neither will what is behind it, by this producer.
    pub fn fail(&self, failure: Failure) {
        let mut state = self.lock();
        // The first failure is the reason; what follows are its consequences.
        state.failure.get_or_insert(failure);
        self.room.notify_one();
        self.changed.notify_one();
    }

    /// Ends all waiting.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.room.notify_one();
        self.changed.notify_one();
    }

    /// Whether waiting is over.
    pub fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// Why a record was not delivered.
    pub fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    /// Records under way, and the bytes that they and those behind them count for.
    pub fn in_flight(&self) -> (usize, usize) {
        let state = self.lock();
        (state.in_flight, state.in_flight_bytes)
    }

    /// What waits for Kafka; `None` while nothing is under way.
    pub fn waiting(&self) -> Option<Waiting> {
        let state = self.lock();
        (state.in_flight > 0).then(|| Waiting {
            unacknowledged_since_us: state.acknowledged_us,
            // Its Begin has been reached, its Commit has not: a record is the head of the queue.
            oldest_commit_us: state.transaction.time_us,
        })
    }

    /// What the publication held at the last look: it is stored with what is delivered next.
    pub(crate) fn publication(&self, published: Option<Arc<Published>>) {
        self.lock().delivered.publication = published;
    }

    /// What has been delivered, when that has changed since it was asked for last.
    pub fn delivered(&self) -> Option<Delivered> {
        let mut state = self.lock();
        let unstored = std::mem::replace(&mut state.unstored, Unstored::Nothing);
        (unstored > Unstored::Nothing).then(|| {
            if let Some(message) = state.message.take() {
                state.delivered.connect.message_type = Some(message.to_owned());
            }
            let mut offset = state.delivered.clone();
            state.transaction_counts.add_to(&mut offset.connect);
            Delivered {
                offset,
                processed: state
                    .shown
                    .min(state.delivered.connect.lsn_proc.unwrap_or_default().into()),
            }
        })
    }

    /// How far the server has got on the present connection, with everything before it delivered, and which connection that is.
    pub(crate) fn shown(&self) -> (Lsn, u64) {
        let state = self.lock();
        (state.shown, state.connections)
    }

    /// How many chunks of a snapshot have been delivered since this was asked for last.
    pub(crate) fn chunks(&self) -> u64 {
        std::mem::take(&mut self.lock().chunks)
    }

    /// What was handed out by [`Progress::delivered`] could not be stored.
    pub(crate) fn not_stored(&self) {
        self.lock().unstored = Unstored::Delivered;
    }

    /// What there is to store.
    pub(crate) fn unstored(&self) -> Unstored {
        self.lock().unstored
    }

    /// Lets everything count that has nothing unsettled before it.
    fn advance(&self, state: &mut State) {
        let unstored = state.unstored;
        self.advance_to_first_under_way(state);
        if state.unstored > unstored {
            self.changed.notify_one();
        }
    }

    fn advance_to_first_under_way(&self, state: &mut State) {
        let mut now = None;
        loop {
            while state.marks.front().is_some_and(|(at, _)| *at == state.head)
                && let Some((_, step)) = state.marks.pop_front()
            {
                if let Step::Commit {
                    time_us, sent: true, ..
                } = step
                {
                    let now = *now.get_or_insert_with(now_us);
                    self.latency.observe(now - time_us);
                }
                state.in_flight_bytes -= step.mark_bytes();
                state.reach(step);
            }
            // What the offset keeps of counters depends on nothing else that is reached at this place.
            while state.counted.front().is_some_and(|(at, _)| *at == state.head)
                && let Some((_, counted)) = state.counted.pop_front()
            {
                state.in_flight_bytes -= counted.bytes();
                state.transaction_counts.count(counted);
            }
            match state.records.front() {
                Some(record) if record.settled => {
                    let record_bytes = record.bytes;
                    if record.last {
                        let (position, message) = (record.position, record.message);
                        state.reach_change(position, message);
                    }
                    state.in_flight_bytes -= record_bytes;
                    state.records.pop_front();
                    state.head += 1;
                }
                _ => return,
            }
        }
    }
}

impl State {
    fn next(&self) -> u64 {
        self.head + self.records.len() as u64
    }

    fn is_over(&self) -> bool {
        self.stopping || self.failure.is_some()
    }

    fn push(&mut self, step: Step) {
        if let Step::Record {
            position,
            message,
            last,
            bytes,
        } = step
        {
            let bytes = bytes + RECORD_OVERHEAD_BYTES;
            self.in_flight += 1;
            self.in_flight_bytes += bytes;
            self.records.push_back(Pending {
                position,
                message,
                last,
                settled: false,
                bytes,
            });
            return;
        }
        if let Step::Connected(from) = step {
            self.shown = self.shown.min(from);
            self.connections += 1;
            self.beginning += 1;
        }
        // A stream that sends nothing must not fill the memory while a record before it is stuck: a later commit or
        // keepalive says all that an earlier one without records did, and a later counter all that an earlier one did.
        let next = self.next();
        if let Step::Counted { xid, table } = step {
            self.push_counted(next, xid, table);
            return;
        }
        while let Some((at, last)) = self.marks.back()
            && *at == next
            && step.replaces(last)
        {
            self.marks.pop_back();
        }
        self.in_flight_bytes += step.mark_bytes();
        self.marks.push_back((next, step));
    }

    fn push_counted(&mut self, next: u64, xid: u32, table: Option<(Arc<str>, i64)>) {
        match self.counted.back_mut() {
            Some((at, counted)) if *at == next => {
                self.in_flight_bytes -= counted.bytes();
                counted.add(xid, table);
            }
            _ => self.counted.push_back((next, Counted::new(xid, table))),
        }
        self.in_flight_bytes += self.counted.back().map_or(0, |(_, counted)| counted.bytes());
    }

    /// Takes back the marks behind this sequence.
    fn withdraw_marks(&mut self, sequence: u64) {
        while let Some((at, _)) = self.marks.back()
            && *at > sequence
            && let Some((_, step)) = self.marks.pop_back()
        {
            self.in_flight_bytes -= step.mark_bytes();
        }
        while let Some((at, _)) = self.counted.back()
            && *at > sequence
            && let Some((_, counted)) = self.counted.pop_back()
        {
            self.in_flight_bytes -= counted.bytes();
        }
    }

    fn settle(&mut self, sequence: u64) -> bool {
        let index = sequence.checked_sub(self.head).and_then(|i| usize::try_from(i).ok());
        let Some(record) = index
            .and_then(|i| self.records.get_mut(i))
            .filter(|record| !record.settled)
        else {
            return false;
        };
        record.settled = true;
        let freed = record.bytes - SETTLED_BYTES;
        record.bytes = SETTLED_BYTES;
        self.in_flight -= 1;
        self.in_flight_bytes -= freed;
        true
    }

    fn reach_change(&mut self, position: Position, message: &'static str) {
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
        let is_further = self.beginning == 0 && lsn > self.shown;
        if is_further {
            self.shown = lsn;
        }
        is_further
    }

    fn reach(&mut self, step: Step) {
        let unstored = match step {
            Step::Snapshot(_) | Step::SnapshotEnd { .. } => Unstored::Delivered,
            _ => Unstored::Passed,
        };
        let is_further = match step {
            Step::Commit { end: lsn, .. } | Step::Idle(lsn) => self.show(lsn),
            _ => false,
        };
        let offset = &mut self.delivered.connect;
        match step {
            Step::Begin(transaction) => {
                self.transaction = transaction;
                self.transaction_counts.enter(transaction.xid);
                return;
            }
            Step::Commit { end, seen, .. } => {
                let history = self.delivered.history.get_or_insert_default();
                match seen {
                    Some(commit) => history.settle_commit(commit),
                    None => history.settle(end),
                }
                // The transaction tells that the snapshot is behind, unless one that was interrupted is still to go on.
                if self.delivered.snapshot.is_none() {
                    (offset.snapshot, offset.snapshot_completed, offset.last_snapshot_record) = (None, None, None);
                }
                offset.lsn_commit = Some(end.into());
                offset.lsn_proc = offset.lsn_proc.max(Some(end.into()));
            }
            Step::Connected(_) => {
                self.beginning -= 1;
                return;
            }
            Step::Idle(lsn) => {
                let is_known = offset.lsn_proc >= Some(lsn.into());
                offset.lsn_proc = offset.lsn_proc.max(Some(lsn.into()));
                if is_known && !is_further {
                    return;
                }
            }
            Step::Snapshot(step) => {
                if let Some(done) = &mut self.delivered.snapshot {
                    done.step(step);
                }
                self.chunks += u64::from(matches!(step, snapshot::Step::Chunk { .. }));
            }
            Step::SnapshotEnd { lsn, transaction } => {
                self.delivered.snapshot = None;
                let history = self.delivered.history.get_or_insert_default();
                history.settle(lsn);
                history.rows_read = history.rows_read.max(lsn);
                self.transaction = transaction;
                offset.lsn = Some(lsn.into());
                // Rows that were read once more say more than the stream that they were read beside.
                offset.lsn_proc = offset.lsn_proc.map(|processed| processed.max(lsn.into()));
                self.shown = self.shown.max(lsn);
                offset.tx_id = Some(transaction.xid);
                offset.ts_usec = Some(transaction.time_us);
                offset.snapshot = Some("INITIAL".into());
                (offset.snapshot_completed, offset.last_snapshot_record) = (Some(true), Some(true));
            }
            Step::Record { .. } | Step::Counted { .. } => unreachable!("these have queues of their own"),
        }
        if offset.lsn.is_none() {
            // Debezium expects the member in every offset.
            offset.lsn = offset.lsn_proc;
        }
        self.unstored = self.unstored.max(unstored);
    }
}

impl Counted {
    /// Bytes that it counts for beside the record that it comes with, which pays for one counter.
    fn bytes(&self) -> usize {
        self.tables().saturating_sub(1) * MARK_BYTES
    }
}

impl Step {
    /// Bytes that it counts for as a mark. Those of a transaction with a record are paid for by that record, and commits and
    /// keepalives without one replace each other.
    const fn mark_bytes(&self) -> usize {
        match self {
            Self::Snapshot(_) => MARK_BYTES,
            _ => 0,
        }
    }

    /// Whether this says all that `earlier` said, when no record lies between them.
    fn replaces(&self, earlier: &Self) -> bool {
        match self {
            Self::Commit { .. } => matches!(earlier, Self::Idle(_) | Self::Commit { sent: false, .. }),
            Self::Idle(_) => matches!(earlier, Self::Idle(_)),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_records_behind_one_that_is_stuck_take_room() {
        const LIMIT: usize = 100_000;
        let progress = Progress::new(StoredOffset::default(), LIMIT);
        let record = Step::Record {
            position: Position::default(),
            message: "INSERT",
            last: true,
            bytes: 300,
        };
        let stuck = progress.push([record.clone()]);
        let mut acknowledged = 0;
        while progress.in_flight().1 <= LIMIT {
            progress.settle(progress.push([record.clone()]));
            acknowledged += 1;
            assert!(acknowledged < LIMIT, "the queue grows without end");
        }
        assert_eq!(progress.in_flight().0, 1);
        progress.settle(stuck);
        assert_eq!(progress.in_flight(), (0, 0));
        assert!(progress.wait_for_room());
    }

    const RECORD: Step = Step::Record {
        position: Position {
            unit: Lsn(0),
            lsn: Lsn(0),
            ordinal: 0,
        },
        message: "INSERT",
        last: true,
        bytes: 300,
    };

    /// What remains of a transaction whose records a transform drops, under `provide.transaction.metadata`.
    fn dropped(xid: u32, tables: &[Arc<str>]) -> Vec<Step> {
        let counted = tables.iter().map(|table| Step::Counted {
            xid,
            table: Some((table.clone(), i64::from(xid))),
        });
        let mut steps = vec![Step::Counted { xid, table: None }];
        steps.extend(counted);
        steps.push(Step::Commit {
            end: Lsn(u64::from(xid)),
            time_us: 0,
            sent: false,
            seen: None,
        });
        steps
    }

    fn kept(progress: &Progress) -> usize {
        let state = progress.lock();
        let counters: usize = state.counted.iter().map(|(_, counted)| counted.tables().max(1)).sum();
        state.marks.len() + counters
    }

    #[test]
    fn transactions_whose_records_are_dropped_keep_no_marks_behind_a_record_that_is_stuck() {
        let progress = Progress::new(StoredOffset::default(), 100_000);
        let stuck = progress.push([RECORD]);
        let tables: Vec<Arc<str>> = ["public.a", "public.b", "public.c"].map(Arc::from).to_vec();
        for xid in 1..=10_000 {
            progress.push(dropped(xid, &tables));
        }
        assert!(kept(&progress) <= 4, "{} marks are kept", kept(&progress));
        progress.settle(stuck);
        let offset = progress.delivered().unwrap().offset;
        assert_eq!(offset.connect.lsn_commit, Some(10_000));
        let expected = serde_json::json!({
            "transaction_id": "10000",
            "transaction_data_collection_order_public.a": 10_000,
            "transaction_data_collection_order_public.b": 10_000,
            "transaction_data_collection_order_public.c": 10_000,
        });
        assert_eq!(serde_json::Value::from(offset.connect.other.clone()), expected);
        assert_eq!(progress.in_flight(), (0, 0));
    }

    #[test]
    fn counters_of_many_tables_take_room() {
        const LIMIT: usize = 100_000;
        let progress = Progress::new(StoredOffset::default(), LIMIT);
        let tables: Vec<Arc<str>> = (0..50).map(|table| format!("public.t{table}").into()).collect();
        let stuck = progress.push([RECORD]);
        let mut xid = 0;
        while progress.in_flight().1 <= LIMIT {
            // One record is sent, all others of the transaction are dropped.
            xid += 1;
            progress.settle(progress.push([RECORD]));
            progress.push(dropped(xid, &tables));
            assert!(kept(&progress) < LIMIT / 64, "the queue grows without end");
        }
        let withdrawn = progress.push([RECORD]);
        progress.push(dropped(xid + 1, &tables));
        progress.withdraw(withdrawn);
        progress.settle(stuck);
        assert_eq!(progress.in_flight(), (0, 0));
        assert!(progress.wait_for_room());
    }

    /// A copy of the server was behind: what it commits before the position that the offset tells of is still to be delivered.
    #[test]
    fn no_more_is_shown_than_the_present_connection_has_brought() {
        let mut offset = StoredOffset::default();
        offset.connect.lsn_proc = Some(100);
        let progress = Progress::new(offset, 100_000);
        assert_eq!(progress.shown(), (Lsn(100), 0));
        let record = Step::Record {
            position: Position::default(),
            message: "INSERT",
            last: true,
            bytes: 300,
        };
        // Left over from the connection before, and reached when the next has begun.
        let old = progress.push([record.clone(), Step::Idle(Lsn(120))]);
        progress.push([Step::Connected(Lsn(50))]);
        assert_eq!(progress.shown(), (Lsn(50), 1));
        progress.settle(old);
        assert_eq!(progress.shown().0, Lsn(50), "that was another connection");
        let new = progress.push([record, Step::Idle(Lsn(70))]);
        assert_eq!(progress.shown().0, Lsn(50), "a record before it is under way");
        progress.settle(new);
        assert_eq!(progress.shown().0, Lsn(70));
        let delivered = progress.delivered().expect("something is new");
        assert_eq!(delivered.offset().connect.lsn_proc, Some(120));
        let stored = Stored {
            processed: Lsn(120),
            start: Lsn(50),
        };
        assert_eq!(stored.on_server(progress.shown().0).confirmable(), Lsn(70));
    }
}
