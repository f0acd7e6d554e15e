//! How far the connector is: received → delivered → stored → confirmed.
//!
//! The ledger has every record and every commit in stream order. Kafka acknowledges in any order. Only the head of the
//! ledger, up to the first record that is still under way, counts as delivered. [`Progress`] shares the ledger between
//! threads and wakes those that wait for room or for news. Only this module can make [`Delivered`] and [`Stored`], so
//! nothing can store what Kafka has not acknowledged, or confirm what is not stored.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use walferry_pgoutput::Lsn;

pub(crate) use crate::account::Unstored;
pub use crate::account::{StreamStep, Transaction};
use crate::{
    account::{Change, Offset},
    delivery::{
        in_flight::InFlightLimit,
        ledger::Ledger,
        store::{OffsetStore, StoredOffset},
    },
    failure::Failure,
    position::Position,
    published::Published,
    status::{Latency, now_us},
};

/// Kafka has acknowledged every record up to here. Only [`Progress`] makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivered {
    offset: StoredOffset,
    processed: Lsn,
    signals: u64,
}

/// The offset of this position is durable. Only [`Delivered::save`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    processed: Lsn,
    start: Lsn,
}

impl Delivered {
    /// Writes the offset. It is durable when this returns.
    ///
    /// # Errors
    /// The offset could not be stored.
    pub async fn save(self, store: &mut impl OffsetStore) -> Result<Stored, Failure> {
        store.write(&self.offset).await?;
        Ok(Stored {
            processed: self.processed,
            start: self.offset.stream_start().unwrap_or_default(),
        })
    }

    /// Notes the furthest position that the server has reported.
    pub(crate) fn heard(mut self, server_end: Lsn) -> Self {
        if let Some(history) = &mut self.offset.history {
            history.furthest = history.furthest.max(server_end);
        }
        self
    }

    /// The ticket of the last signal whose effect is in this offset.
    pub(crate) const fn signals(&self) -> u64 {
        self.signals
    }

    /// The offset to be stored.
    pub const fn offset(&self) -> &StoredOffset {
        &self.offset
    }
}

impl Stored {
    /// The position that may be confirmed. The server need not keep anything before it.
    pub const fn confirmable(&self) -> Lsn {
        self.processed
    }

    /// The same, but confirms nothing beyond `shown`, the position that this server has reached itself.
    pub(crate) fn on_server(self, shown: Lsn) -> Self {
        Self {
            processed: self.processed.min(shown),
            ..self
        }
    }

    /// Where a stream has to start so that the last processed commit comes again.
    pub(crate) const fn stream_start(&self) -> Lsn {
        self.start
    }
}

/// How long records have waited for Kafka. Times are microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Time of the last acknowledgement, or, if it is later, when the first record came under way.
    pub unacknowledged_since_us: i64,
    /// Commit time of the oldest transaction with a record under way; 0 for snapshot rows.
    pub oldest_commit_us: i64,
}

/// The queue of records under way. The pipeline adds records, the producer settles them, and the keeper stores what is
/// delivered.
#[derive(Debug)]
pub struct Progress {
    state: Mutex<State>,
    /// Signalled when there is room again, or when waiting is over.
    room: Condvar,
    /// Signalled when there is something new to store, or when something has failed.
    pub(crate) changed: Notify,
    /// Signalled when nothing is under way any more, or when waiting is over. Only one task waits for it: the end of a
    /// session.
    pub(crate) emptied: Notify,
    /// The number of [`StreamStep::ChunkRequested`] that was reached last.
    chunk: watch::Sender<u64>,
    /// Latency from commit in Postgres to acknowledgement by Kafka.
    latency: Arc<Latency>,
}

#[derive(Debug)]
struct State {
    ledger: Ledger<Offset>,
    /// How many bytes may be under way.
    window: InFlightLimit,
    /// When Kafka last acknowledged a record, or when the first record came under way. Microseconds since 1970.
    acknowledged_us: i64,
    failure: Option<Failure>,
    stopping: bool,
}

impl Progress {
    /// Continues from an offset. At most `limit` bytes of records are under way at a time, but always at least one
    /// record.
    pub fn new(start: StoredOffset, limit: usize) -> Self {
        Self {
            state: Mutex::new(State {
                ledger: Ledger::new(Offset::after(start)),
                window: InFlightLimit::new(limit),
                acknowledged_us: 0,
                failure: None,
                stopping: false,
            }),
            room: Condvar::new(),
            changed: Notify::new(),
            emptied: Notify::new(),
            chunk: watch::Sender::new(0),
            latency: Arc::default(),
        }
    }

    /// Counts latencies in `latency`, which may outlive this queue.
    pub(crate) fn with_latency(self, latency: Arc<Latency>) -> Self {
        Self { latency, ..self }
    }

    /// Sets a new limit for the bytes of records under way.
    pub(crate) fn limit(&self, bytes: usize) {
        self.lock().window.limit(bytes);
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panics with the lock ends the connector. The queue itself is consistent after each statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds steps in stream order. Returns the sequence of the first record among them; the other records get the
    /// sequences after it. Steps that are not records need no acknowledgement.
    pub fn push(&self, steps: impl IntoIterator<Item = StreamStep>) -> u64 {
        let mut state = self.lock();
        let first = state.ledger.next();
        let was_empty = state.ledger.in_flight() == 0;
        for step in steps {
            state.push(step);
        }
        if was_empty && state.ledger.in_flight() > 0 {
            state.acknowledged_us = now_us();
        }
        let next = state.ledger.next();
        if next > first {
            state.window.sent(next, now_us);
        }
        self.advance(&mut state);
        first
    }

    /// Waits until the session stops or fails.
    pub(crate) fn wait_until_over(&self) {
        let mut state = self.lock();
        while !state.is_over() {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether there is room for more records. A caller that already `waits` continues only when enough room is free.
    pub(crate) fn has_room(&self, waits: bool) -> bool {
        let state = self.lock();
        let most = match waits {
            true => state.window.enough(),
            false => state.window.bytes(),
        };
        state.ledger.in_flight_bytes() <= most || state.is_over()
    }

    /// Waits until there is room for more records. Returns whether the pipeline continues.
    pub fn wait_for_room(&self) -> bool {
        let mut state = self.lock();
        if state.ledger.in_flight_bytes() > state.window.bytes() {
            state.window.waited();
            while state.ledger.in_flight_bytes() > state.window.enough() && !state.is_over() {
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        !state.is_over()
    }

    /// Notes that Kafka has acknowledged the record with this sequence, or that it was set aside. A second call changes
    /// nothing.
    pub fn settle(&self, sequence: u64) {
        self.settle_all(&[sequence]);
    }

    /// Settles several records at once.
    pub fn settle_all(&self, sequences: &[u64]) {
        let mut state = self.lock();
        let settled = sequences
            .iter()
            .filter(|&&sequence| state.ledger.settle(sequence))
            .count();
        if settled == 0 {
            return;
        }
        state.acknowledged_us = now_us();
        self.advance(&mut state);
        let (head, now_us) = (state.ledger.head(), state.acknowledged_us);
        state.window.acknowledged(head, now_us);
        if state.ledger.in_flight_bytes() <= state.window.enough() {
            self.room.notify_one();
        }
        self.tell_emptied(&state);
    }

    fn tell_emptied(&self, state: &State) {
        if state.ledger.in_flight() == 0 {
            self.emptied.notify_one();
        }
    }

    /// Position of the change that an unsettled record comes from.
    pub fn position(&self, sequence: u64) -> Option<Position> {
        self.lock().ledger.under_way(sequence).map(|change| change.position)
    }

    /// Removes the record with this sequence and everything behind it: they were not given to the producer, so nobody
    /// will settle them. Records before it may still arrive.
    pub fn withdraw(&self, sequence: u64) {
        let mut state = self.lock();
        state.ledger.withdraw(sequence);
        state.window.withdrawn(sequence);
        self.tell_emptied(&state);
    }

    /// A record will not be delivered. This producer will not deliver the records behind it either.
    pub fn fail(&self, failure: Failure) {
        let mut state = self.lock();
        // The first failure is the cause. Later ones are its consequences.
        state.failure.get_or_insert(failure);
        self.room.notify_one();
        self.changed.notify_one();
        self.emptied.notify_one();
    }

    /// Ends all waiting, without a failure.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.room.notify_one();
        self.changed.notify_one();
        self.emptied.notify_one();
    }

    /// Whether the queue has stopped or failed.
    pub fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// Why a record was not delivered.
    pub fn failure(&self) -> Option<Failure> {
        self.lock().failure.clone()
    }

    /// Number of records under way, and the bytes that everything in the queue counts for.
    pub fn in_flight(&self) -> (usize, usize) {
        let state = self.lock();
        (state.ledger.in_flight(), state.ledger.in_flight_bytes())
    }

    /// How long Kafka has let records wait. `None` while nothing is under way.
    pub fn waiting(&self) -> Option<Waiting> {
        let state = self.lock();
        (state.ledger.in_flight() > 0).then(|| Waiting {
            unacknowledged_since_us: state.acknowledged_us,
            // The head of the queue is a record: its Begin has been reached, its Commit has not.
            oldest_commit_us: state.ledger.behind().transaction.time_us,
        })
    }

    /// Notes the publication as it was when last looked at. It is stored with the next offset.
    pub(crate) fn publication(&self, published: Option<Arc<Published>>) {
        self.lock().ledger.behind_mut().delivered.publication = published;
    }

    /// The delivered offset, if there is something to store since the last call.
    pub fn delivered(&self) -> Option<Delivered> {
        let mut state = self.lock();
        let account = state.ledger.behind_mut();
        let unstored = std::mem::replace(&mut account.unstored, Unstored::Nothing);
        (unstored > Unstored::Nothing).then(|| Delivered {
            offset: account.stored_form(),
            processed: account.processed(),
            signals: account.signals,
        })
    }

    /// The offset that covers all records pushed so far, whether Kafka has acknowledged them or not. It may be
    /// committed only together with all of them.
    pub fn ahead(&self) -> StoredOffset {
        self.lock().ledger.ahead().stored_form()
    }

    /// The position that the server has reached on the present connection, with everything before it delivered, and the
    /// number of that connection.
    pub(crate) fn shown(&self) -> (Lsn, u64) {
        let state = self.lock();
        let behind = state.ledger.behind();
        (behind.shown, behind.connections)
    }

    /// The number of chunks of incremental snapshots that may be read, since everything before them has been delivered.
    pub(crate) fn chunks_due(&self) -> watch::Receiver<u64> {
        self.chunk.subscribe()
    }

    /// Number of snapshot chunks delivered since the last call.
    pub(crate) fn chunks(&self) -> u64 {
        std::mem::take(&mut self.lock().ledger.behind_mut().chunks)
    }

    /// The offset that [`Progress::delivered`] returned could not be stored.
    pub(crate) fn not_stored(&self) {
        self.lock().ledger.behind_mut().unstored = Unstored::Delivered;
    }

    /// Whether there is something to store.
    pub(crate) fn unstored(&self) -> Unstored {
        self.lock().ledger.behind().unstored
    }

    /// Counts everything that has no unsettled record before it.
    fn advance(&self, state: &mut State) {
        let unstored = state.ledger.behind().unstored;
        let mut now = None;
        state.ledger.advance(|step| match step {
            StreamStep::Commit {
                time_us, sent: true, ..
            } => {
                let now = *now.get_or_insert_with(now_us);
                self.latency.observe(now - time_us);
            }
            StreamStep::ChunkRequested(number) => drop(self.chunk.send_replace(*number)),
            _ => {}
        });
        if state.ledger.behind().unstored > unstored {
            self.changed.notify_one();
        }
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.stopping || self.failure.is_some()
    }

    fn push(&mut self, step: StreamStep) {
        match step {
            StreamStep::Record {
                position,
                message,
                last,
                bytes,
            } => {
                let change = Change {
                    position,
                    message,
                    last,
                };
                self.ledger.push_record(change, bytes);
            }
            StreamStep::Counted { xid, table } => self.ledger.push_tally((xid, table)),
            mark => self.ledger.push_mark(mark),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message_type::MessageType;

    #[test]
    fn acknowledged_records_behind_one_that_is_stuck_take_room() {
        const LIMIT: usize = 100_000;
        let progress = Progress::new(StoredOffset::default(), LIMIT);
        let record = StreamStep::Record {
            position: Position::default(),
            message: MessageType::Insert,
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

    const RECORD: StreamStep = StreamStep::Record {
        position: Position {
            unit: Lsn(0),
            lsn: Lsn(0),
            ordinal: 0,
        },
        message: MessageType::Insert,
        last: true,
        bytes: 300,
    };

    /// The steps of a transaction whose records a transform drops, under `provide.transaction.metadata`.
    fn dropped(xid: u32, tables: &[Arc<str>]) -> Vec<StreamStep> {
        let counted = tables.iter().map(|table| StreamStep::Counted {
            xid,
            table: Some((table.clone(), i64::from(xid))),
        });
        let mut steps = vec![StreamStep::Counted { xid, table: None }];
        steps.extend(counted);
        steps.push(StreamStep::Commit {
            end: Lsn(u64::from(xid)),
            time_us: 0,
            sent: false,
            seen: None,
        });
        steps
    }

    fn kept(progress: &Progress) -> usize {
        let state = progress.lock();
        let (marks, counters) = state.ledger.kept();
        marks + counters.map(|counted| counted.tables().max(1)).sum::<usize>()
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
            // One record of the transaction is sent; the others are dropped.
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

    /// Transaction `xid` with this number of records. It commits at `100 * xid`.
    fn transaction(xid: u32, records: u32) -> Vec<StreamStep> {
        let end = Lsn(100 * u64::from(xid));
        let mut steps = vec![StreamStep::Begin(Transaction {
            xid,
            time_us: i64::from(xid),
        })];
        steps.extend((0..records).map(|record| StreamStep::Record {
            position: Position {
                unit: end,
                lsn: Lsn(end.0 - 50 + u64::from(record)),
                ordinal: 0,
            },
            message: MessageType::Insert,
            last: true,
            bytes: 300,
        }));
        steps.push(StreamStep::Commit {
            end,
            time_us: i64::from(xid),
            sent: records > 0,
            seen: None,
        });
        steps
    }

    /// Parts of a blocking snapshot count once their rows are delivered, and no more once the snapshot has ended.
    #[test]
    fn the_offset_tells_which_parts_of_a_blocking_snapshot_are_delivered_until_it_ends() {
        use walferry_pgoutput::Oid;
        use walferry_snapshot::{self as snapshot, Blocks, Done};

        let progress = Progress::new(StoredOffset::default(), 100_000);
        let blocking = || progress.delivered().and_then(|delivered| delivered.offset.blocking);
        let part = |table| {
            StreamStep::Snapshot(snapshot::SnapshotStep::Chunk {
                table: Oid(table),
                storage: 3,
                blocks: Blocks::ALL,
            })
        };
        // Without a snapshot, there is nothing to tell of.
        progress.push([part(6)]);
        assert_eq!(blocking(), None);
        progress.push([StreamStep::BlockingBegin]);
        assert_eq!(blocking(), Some(Done::default()));
        let first = progress.push([RECORD, part(7), RECORD, part(8)]);
        progress.settle(first);
        let done = blocking().expect("it has not ended");
        assert!(done.is_complete(Oid(7)) && !done.has_begun(Oid(8)));
        // One that was interrupted begins again with what is left.
        progress.push([StreamStep::BlockingBegin]);
        progress.settle(first + 1);
        let done = blocking().expect("it has not ended");
        assert!(done.is_complete(Oid(7)) && done.is_complete(Oid(8)));
        progress.push([StreamStep::Incremental {
            kept: Arc::default(),
            at: None,
            ends_blocking: true,
        }]);
        assert_eq!(blocking(), None);
    }

    /// A sink that commits records and their offset in one Kafka transaction, before anything is acknowledged: wherever it ends a
    /// transaction, the offset is the one that would be stored once exactly these records are delivered.
    #[test]
    fn an_offset_that_is_committed_with_its_records_is_the_one_that_is_stored_behind_them() {
        let steps: Vec<StreamStep> = [(1, 2), (2, 0), (3, 5), (4, 1)]
            .into_iter()
            .flat_map(|(xid, records)| transaction(xid, records))
            .chain([StreamStep::Idle(Lsn(900))])
            .collect();
        for size in 1..=steps.len() {
            let (before, behind) = (
                Progress::new(StoredOffset::default(), 100_000),
                Progress::new(StoredOffset::default(), 100_000),
            );
            let mut stored = StoredOffset::default();
            let mut furthest = None;
            for kafka_transaction in steps.chunks(size) {
                before.push(kafka_transaction.iter().cloned());
                let committed = before.ahead();

                let first = behind.push(kafka_transaction.iter().cloned());
                let is_record = |step: &&StreamStep| matches!(step, StreamStep::Record { .. });
                let records = kafka_transaction.iter().filter(is_record).count() as u64;
                (first..first + records).for_each(|sequence| behind.settle(sequence));
                stored = behind.delivered().map_or(stored, |delivered| delivered.offset);
                assert_eq!(committed, stored, "{size} steps a transaction");

                assert!(committed.connect.lsn >= furthest, "it never goes back");
                furthest = committed.connect.lsn;
            }
            let delivered = before.delivered().and_then(|delivered| delivered.offset.connect.lsn);
            assert_eq!(delivered, None, "Kafka has acknowledged nothing");
            assert_eq!(before.ahead().connect.lsn_proc, Some(900));
        }
    }

    /// This copy of the server is behind the stored offset. What it commits before that offset's position is still to
    /// be delivered.
    #[test]
    fn no_more_is_shown_than_the_present_connection_has_brought() {
        let mut offset = StoredOffset::default();
        offset.connect.lsn_proc = Some(100);
        let progress = Progress::new(offset, 100_000);
        assert_eq!(progress.shown(), (Lsn(100), 0));
        let record = StreamStep::Record {
            position: Position::default(),
            message: MessageType::Insert,
            last: true,
            bytes: 300,
        };
        // Steps of the previous connection, reached after the next one has begun.
        let old = progress.push([record.clone(), StreamStep::Idle(Lsn(120))]);
        progress.push([StreamStep::Connected(Lsn(50))]);
        assert_eq!(progress.shown(), (Lsn(50), 1));
        progress.settle(old);
        assert_eq!(progress.shown().0, Lsn(50), "that was another connection");
        let new = progress.push([record, StreamStep::Idle(Lsn(70))]);
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
