//! How far the connector is: received → delivered → stored → confirmed.
//!
//! The ledger has every record and every commit in stream order. Kafka acknowledges in any order. Only the head of the
//! ledger, up to the first record that is still under way, counts as delivered. [`Progress`] shares the ledger between
//! threads and wakes those that wait for room or for news. Only this module can make [`Delivered`] and [`Stored`], so
//! nothing can store what Kafka has not acknowledged, or confirm what is not stored.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};

use crate::{
    delivery::{
        contract::{Mark as _, OffsetAccount, Unstored},
        in_flight::InFlightLimit,
        ledger::{EntryOf, Ledger},
        report_target::ReportTarget,
        store::Store,
    },
    failure::{Disposition, Failure},
    status::{Latency, now_us},
};

/// Kafka has acknowledged every record up to here. Only [`Progress`] makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Delivered<A: OffsetAccount> {
    offset: A::Offset,
    confirmable: A::Position,
    signals: u64,
}

/// The offset of a position `P` of the source is durable. Only [`Delivered::save`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored<P> {
    confirmable: P,
    start: P,
}

impl<A: OffsetAccount> Delivered<A> {
    /// Writes the offset. It is durable when this returns.
    ///
    /// # Errors
    /// The offset could not be stored.
    pub async fn save(self, store: &mut impl Store<A::Offset>) -> Result<Stored<A::Position>, Failure> {
        store.write(&self.offset).await?;
        Ok(Stored {
            confirmable: self.confirmable,
            start: A::stream_start(&self.offset),
        })
    }

    /// Adds to the offset what is known beside the stream. This must not move it.
    pub(crate) fn complete(&mut self, add: impl FnOnce(&mut A::Offset)) {
        add(&mut self.offset);
    }

    /// The ticket of the last signal whose effect is in this offset.
    pub(crate) const fn signals(&self) -> u64 {
        self.signals
    }

    /// The offset to be stored.
    pub const fn offset(&self) -> &A::Offset {
        &self.offset
    }
}

impl<P: Copy + Ord> Stored<P> {
    /// The position that may be confirmed. The source need not keep anything before it.
    pub const fn confirmable(&self) -> P {
        self.confirmable
    }

    /// The same, but confirms nothing beyond `server_position`, the position that this server has reached itself.
    pub(crate) fn on_server(self, server_position: P) -> Self {
        Self {
            confirmable: self.confirmable.min(server_position),
            ..self
        }
    }

    /// Where a stream has to start so that the last processed commit comes again.
    pub(crate) const fn stream_start(&self) -> P {
        self.start
    }
}

/// How long records have waited for Kafka. Times are microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnacknowledgedSince {
    /// Time of the last acknowledgement, or, if it is later, when the first record came under way.
    pub unacknowledged_since_us: i64,
    /// Commit time of the oldest transaction with a record under way; 0 for snapshot rows.
    pub oldest_commit_us: i64,
}

/// The queue of records under way. The pipeline adds records, the producer settles them, and the offset writer stores what is
/// delivered.
#[derive(Debug)]
pub struct Progress<A: OffsetAccount> {
    state: Mutex<State<A>>,
    /// Signalled when there is room again, when nothing is under way any more, or when waiting is over. Only one thread
    /// waits for it.
    room: Condvar,
    /// Signalled when there is something new to store, or when something has failed.
    pub(crate) changed: Notify,
    /// Signalled when nothing is under way any more, or when waiting is over. Only one task waits for it: the end of a
    /// session.
    pub(crate) emptied: Notify,
    /// Signalled when a transaction gets large. Only one task waits for it: the one that reminds the pipeline to commit.
    pub(crate) loaded: Notify,
    /// Number of the last request whose mark was reached (`Mark::delivery_awaited`).
    awaited: watch::Sender<u64>,
    /// Latency from commit in Postgres to acknowledgement by Kafka.
    latency: Arc<Latency>,
}

#[derive(Debug)]
struct State<A: OffsetAccount> {
    ledger: Ledger<A>,
    /// How many bytes may be under way.
    in_flight_limit: InFlightLimit,
    /// When Kafka last acknowledged a record, or when the first record came under way. Microseconds since 1970.
    acknowledged_us: i64,
    failure: Option<Failure>,
    stopping: bool,
    /// Whether the producer may be closed: nothing more is stored in this session.
    may_close: bool,
    /// `None` if offsets may be stored at any time.
    transaction: Option<Transaction>,
}

/// A Kafka transaction, which takes the offset in that covers exactly its records. So the offset may only be stored at a commit
/// point: all its records are acknowledged, and no other record has been given to the producer. Records that are pushed while the
/// transaction ends belong to the next one. They are in the ledger, so that their order and their memory are known, but the pipeline
/// keeps them back until [`Progress::committed`]. Therefore none of them can be acknowledged, and the ledger's head stands at the commit point.
#[derive(Debug, Default)]
struct Transaction {
    phase: Phase,
    /// How many of its records were pushed.
    records: u64,
    /// How many records of the next transaction were pushed while this one ends.
    next_records: u64,
    /// The pipeline is to end the transaction as soon as it can.
    is_due: bool,
    /// The pipeline ends no transaction any more.
    is_last: bool,
    /// How long it usually takes from the end of a transaction until it is committed.
    commit_takes: Duration,
}

/// Where a transaction is. From each phase it goes to the next, and from `CommitPoint` to `Filling` of the next transaction, or to `Lost`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// The pipeline sends records.
    #[default]
    Filling,
    /// Its last record is the one before the sequence `end`. Kafka has not acknowledged all of them.
    Draining { end: u64, since: Instant },
    /// Kafka has acknowledged all of them, after `drained`. The offset writer commits the transaction.
    CommitPoint { since: Instant, drained: Duration },
    /// It could not be committed. Only another producer can go on.
    Lost,
}

impl Transaction {
    const fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. } | Phase::CommitPoint { .. })
    }

    const fn is_at_commit_point(&self) -> bool {
        matches!(self.phase, Phase::CommitPoint { .. })
    }
}

/// A transaction that was committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CommittedTransaction {
    pub(crate) records: u64,
    /// From its end until Kafka had acknowledged all its records.
    pub(crate) drained: Duration,
    /// From its end until it was committed.
    pub(crate) took: Duration,
    /// How many records the pipeline kept back meanwhile.
    pub(crate) next_records: u64,
}

/// Why a wait for room has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoomWait {
    /// There is room.
    Room,
    /// Records that were kept back may be sent now.
    MaySend,
    /// Waiting is over for another reason.
    Over,
}

/// A transaction with so many records shows that the connector is under load.
const LARGE: u64 = 2_000;

/// What was pushed since the last commit of a transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Uncommitted {
    /// What a commit would store.
    pub(crate) kind: Unstored,
    /// How many records the transaction has.
    pub(crate) records: u64,
    /// Whether the pipeline is to commit as soon as it can.
    pub(crate) is_due: bool,
    /// How long a commit usually takes.
    pub(crate) commit_takes: Duration,
}

impl Uncommitted {
    /// Whether the connector is under load.
    pub(crate) const fn is_large(&self) -> bool {
        self.records >= LARGE
    }
}

/// What was pushed last before a commit point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushedLast {
    /// All records of a change, or something that belongs to no change.
    WholeChange,
    /// Perhaps some records of a change only. An offset cannot name a place inside a change.
    Anything,
}

impl<A: OffsetAccount> Progress<A> {
    /// Continues from an offset. At most `limit` bytes of records are under way at a time, but always at least one
    /// record.
    pub fn new(start: A::Offset, limit: usize) -> Self {
        Self {
            state: Mutex::new(State {
                ledger: Ledger::new(A::after(start)),
                in_flight_limit: InFlightLimit::new(limit),
                acknowledged_us: 0,
                failure: None,
                stopping: false,
                may_close: false,
                transaction: None,
            }),
            room: Condvar::new(),
            changed: Notify::new(),
            emptied: Notify::new(),
            loaded: Notify::new(),
            awaited: watch::Sender::new(0),
            latency: Arc::default(),
        }
    }

    /// Counts latencies in `latency`, which may outlive this queue.
    pub(crate) fn with_latency(self, latency: Arc<Latency>) -> Self {
        Self { latency, ..self }
    }

    /// Lets offsets be stored only at commit points, together with the records that they cover.
    pub(crate) fn in_transactions(self) -> Self {
        self.lock().transaction = Some(Transaction::default());
        self
    }

    /// Sets a new limit for the bytes of records under way.
    pub(crate) fn limit(&self, bytes: usize) {
        self.lock().in_flight_limit.limit(bytes);
        self.room.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<A>> {
        // A thread that panics with the lock ends the connector. The queue itself is consistent after each statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds entries in stream order. Returns the sequence of the first record among them; the other records get the
    /// sequences after it. Entries that are not records need no acknowledgement.
    pub fn push(&self, entries: impl IntoIterator<Item = EntryOf<A>>) -> u64 {
        let mut state = self.lock();
        let first = state.ledger.next();
        let was_empty = state.ledger.in_flight() == 0;
        for entry in entries {
            state.ledger.push(entry);
        }
        if was_empty && state.ledger.in_flight() > 0 {
            state.acknowledged_us = now_us();
        }
        let next = state.ledger.next();
        if next > first {
            let state = &mut *state;
            match &mut state.transaction {
                // They are sent later, see `sent_kept`.
                Some(transaction) if transaction.is_ending() => transaction.next_records += next - first,
                Some(transaction) => {
                    let was_large = transaction.records >= LARGE;
                    transaction.records += next - first;
                    if transaction.records >= LARGE && !was_large {
                        self.loaded.notify_one();
                    }
                    state.in_flight_limit.sent(next, now_us);
                }
                None => state.in_flight_limit.sent(next, now_us),
            }
        }
        self.advance(&mut state);
        first
    }

    /// Waits until the producer may be closed.
    pub(crate) fn wait_until_closable(&self) {
        let mut state = self.lock();
        while !state.may_close {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the producer may be closed.
    pub(crate) fn may_close(&self) -> bool {
        self.lock().may_close
    }

    /// Ends all waiting, and lets the producer be closed. Call this when nothing more is stored in this session: in transactions, the last offset
    /// is stored by the producer. Without it, an offset would be stored although its records are taken back.
    pub(crate) fn close(&self) {
        self.lock().may_close = true;
        self.stop();
    }

    /// Whether a wait for room is over. A caller that already `waits` continues only when enough room is free, and one that has kept records
    /// back also when these may be sent.
    pub(crate) fn has_room(&self, waits: bool, has_kept: bool) -> bool {
        let state = self.lock();
        state.has_room(waits) || has_kept && !state.is_ending() || state.is_over()
    }

    /// Waits until there is room for more records. Returns whether the pipeline continues.
    pub fn wait_for_room(&self) -> bool {
        self.wait_for_room_or_commit(false) == RoomWait::Room
    }

    /// Waits until there is room for more records, or until the caller, which `has_kept` records back, may send these.
    pub(crate) fn wait_for_room_or_commit(&self, has_kept: bool) -> RoomWait {
        let mut state = self.lock();
        let mut waits = false;
        loop {
            if state.is_over() {
                return RoomWait::Over;
            }
            if has_kept && !state.is_ending() {
                return RoomWait::MaySend;
            }
            if state.has_room(waits) {
                return RoomWait::Room;
            }
            if !waits && !state.is_ending() {
                state.in_flight_limit.waited();
            }
            waits = true;
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until Kafka has acknowledged every record. Returns whether it has: `false` if waiting is over for another
    /// reason.
    pub fn wait_until_empty(&self) -> bool {
        let mut state = self.lock();
        while state.ledger.in_flight() > 0 && !state.is_over() {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.ledger.in_flight() == 0
    }

    /// The transaction ends with the record that was pushed last. Once Kafka has acknowledged all of it, the offset writer commits it with its
    /// offset. Until then, records may be pushed, but not sent. Returns whether it ends: not where `after` says that a change may have been pushed in
    /// part, and not while another one ends.
    pub(crate) fn end_transaction(&self, after: PushedLast) -> bool {
        let mut state = self.lock();
        let is_whole = match after {
            PushedLast::WholeChange => true,
            PushedLast::Anything => state.ledger.ends_with_a_change(),
        };
        let (may_end, end) = (is_whole && !state.is_over(), state.ledger.next());
        match &mut state.transaction {
            Some(transaction) if may_end && transaction.phase == Phase::Filling => {
                let since = Instant::now();
                transaction.phase = Phase::Draining { end, since };
            }
            _ => return false,
        }
        self.reach_commit_point(&mut state);
        true
    }

    /// A transaction that ends is at its commit point when all its records are acknowledged.
    fn reach_commit_point(&self, state: &mut State<A>) {
        let head = state.ledger.head();
        if let Some(transaction) = &mut state.transaction
            && let Phase::Draining { end, since } = transaction.phase
            && head >= end
        {
            let drained = since.elapsed();
            transaction.phase = Phase::CommitPoint { since, drained };
            self.changed.notify_one();
        }
    }

    /// Whether a transaction ends. Until it is committed, nothing may be sent.
    pub(crate) fn is_ending(&self) -> bool {
        self.lock().is_ending()
    }

    /// Waits until the transaction that ends is committed. Returns whether it is; `false` if waiting is over for another reason. Then nothing
    /// more may be sent: the last write of the session may still commit it.
    pub(crate) fn wait_for_commit(&self) -> bool {
        let mut state = self.lock();
        while state.is_ending() && !state.is_over() {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        !state.is_over()
    }

    /// The records that were kept back while a transaction was ending have been sent.
    pub(crate) fn sent_kept(&self) {
        let mut state = self.lock();
        let next = state.ledger.next();
        state.in_flight_limit.sent(next, now_us);
    }

    /// The transaction was committed with the offset that [`Progress::delivered`] returned. Wake the pipeline afterwards. Returns `None` if no
    /// transaction was at its commit point.
    pub(crate) fn committed(&self) -> Option<CommittedTransaction> {
        let mut state = self.lock();
        let transaction = state.transaction.as_mut()?;
        let Phase::CommitPoint { since, drained } = transaction.phase else {
            return None;
        };
        let took = since.elapsed();
        let committed = CommittedTransaction {
            records: transaction.records,
            drained,
            took,
            next_records: transaction.next_records,
        };
        *transaction = Transaction {
            is_last: transaction.is_last,
            // A mean of the last few. One slow commit must not keep records from consumers for long.
            commit_takes: (transaction.commit_takes * 3 + took) / 4,
            records: transaction.next_records,
            ..Transaction::default()
        };
        if transaction.records >= LARGE {
            self.loaded.notify_one();
        }
        self.room.notify_one();
        self.emptied.notify_one();
        Some(committed)
    }

    /// Whether the offset writer is to commit.
    pub(crate) fn is_at_commit_point(&self) -> bool {
        self.lock().is_at_commit_point()
    }

    /// What the pipeline is to commit.
    pub(crate) fn uncommitted(&self) -> Uncommitted {
        let state = self.lock();
        let Some(transaction) = &state.transaction else {
            return Uncommitted::default();
        };
        Uncommitted {
            kind: match transaction.records {
                // It is being committed.
                _ if transaction.is_ending() => Unstored::Nothing,
                0 => state.ledger.behind().unstored(),
                _ => Unstored::Delivered,
            },
            records: transaction.records,
            is_due: transaction.is_due,
            commit_takes: transaction.commit_takes,
        }
    }

    /// The transaction could not be committed. Only another producer can go on.
    pub(crate) fn commit_failed(&self, failure: Failure) {
        let mut state = self.lock();
        let Some(transaction) = &mut state.transaction else {
            return;
        };
        (transaction.phase, transaction.is_last) = (Phase::Lost, true);
        drop(state);
        self.fail(failure);
    }

    /// The pipeline ends no transaction any more.
    pub(crate) fn pipeline_ended(&self) {
        if let Some(transaction) = &mut self.lock().transaction {
            transaction.is_last = true;
            self.emptied.notify_one();
        }
    }

    /// Whether there is something that the pipeline and the offset writer are still going to commit.
    pub(crate) fn awaits_commit(&self) -> bool {
        let state = self.lock();
        state.transaction.as_ref().is_some_and(|transaction| {
            let is_open = transaction.records > 0 || state.ledger.behind().unstored() > Unstored::Nothing;
            transaction.is_ending() || is_open && !transaction.is_last
        })
    }

    /// Tells the pipeline to commit as soon as it can. It has to be woken if it waits.
    pub(crate) fn demand_commit(&self) {
        if let Some(transaction) = &mut self.lock().transaction {
            transaction.is_due = true;
        }
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
        state.in_flight_limit.acknowledged(head, now_us);
        if state.has_room(true) {
            self.room.notify_one();
        }
        self.tell_emptied(&state);
    }

    fn tell_emptied(&self, state: &State<A>) {
        if state.ledger.in_flight() == 0 {
            self.emptied.notify_one();
        }
    }

    /// Position of the change that an unsettled record comes from.
    pub fn position(&self, sequence: u64) -> Option<A::Position> {
        self.lock().ledger.under_way(sequence).map(A::place)
    }

    /// What names the change of this record, until the record is settled.
    pub fn change_name(&self, sequence: u64) -> Option<String> {
        self.lock().ledger.under_way(sequence).and_then(A::name)
    }

    /// Removes the record with this sequence and everything behind it: they were not given to the producer, so nobody
    /// will settle them. Records before it may still arrive.
    pub fn withdraw(&self, sequence: u64) {
        let mut state = self.lock();
        state.ledger.withdraw(sequence);
        state.in_flight_limit.withdrawn(sequence);
        self.room.notify_one();
        self.tell_emptied(&state);
    }

    /// A record will not be delivered. This producer will not deliver the records behind it either.
    pub fn fail(&self, failure: Failure) {
        let mut state = self.lock();
        // The first failure is the cause. Later ones are its consequences. But a transaction may be lost before it is known of which record, and
        // trying again does not help where only a person can.
        let is_stop = |failure: &Failure| matches!(failure.disposition, Disposition::Stop(_));
        match &mut state.failure {
            Some(known) if is_stop(&failure) && !is_stop(known) => *known = failure,
            known => {
                known.get_or_insert(failure);
            }
        }
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
    pub fn waiting(&self) -> Option<UnacknowledgedSince> {
        let state = self.lock();
        (state.ledger.in_flight() > 0).then(|| UnacknowledgedSince {
            unacknowledged_since_us: state.acknowledged_us,
            // The head of the queue is a record: its Begin has been reached, its Commit has not.
            oldest_commit_us: state.ledger.behind().commit_us(),
        })
    }

    /// The delivered offset, if there is something to store since the last call. In transactions, there is one only at a commit point.
    pub fn delivered(&self) -> Option<Delivered<A>> {
        let mut state = self.lock();
        let unstored = state.unstored();
        if state.transaction.is_some() && !state.is_at_commit_point() {
            return None;
        }
        let account = state.ledger.behind_mut();
        account.set_unstored(Unstored::Nothing);
        (unstored > Unstored::Nothing).then(|| Delivered {
            offset: account.offset(),
            confirmable: account.confirmable(),
            signals: account.signals(),
        })
    }

    /// The offset that covers all records pushed so far, whether Kafka has acknowledged them or not. It may be
    /// committed only together with all of them.
    #[cfg(test)]
    pub(crate) fn ahead(&self) -> A::Offset {
        self.lock().ledger.ahead().offset()
    }

    /// How far the source has got on the present connection, with everything before it delivered, and the number of
    /// that connection.
    pub(crate) fn server_position(&self) -> (A::Position, u64) {
        self.lock().ledger.behind().server_position()
    }

    /// The number of the last request that waited for delivery, and need not wait any more.
    pub(crate) fn deliveries(&self) -> watch::Receiver<u64> {
        self.awaited.subscribe()
    }

    /// Number of snapshot chunks delivered since the last call.
    pub(crate) fn chunks(&self) -> u64 {
        self.lock().ledger.behind_mut().take_chunks()
    }

    /// The offset that [`Progress::delivered`] returned could not be stored.
    pub(crate) fn not_stored(&self) {
        self.lock().ledger.behind_mut().set_unstored(Unstored::Delivered);
    }

    /// Whether there is something to store. In transactions, there is something only at a commit point.
    pub(crate) fn unstored(&self) -> Unstored {
        self.lock().unstored()
    }

    /// The number of marks that are kept, and what `count` makes of the tallies.
    #[cfg(test)]
    pub(crate) fn retained(&self, count: impl FnOnce(&mut dyn Iterator<Item = &A::Tally>) -> usize) -> usize {
        let state = self.lock();
        let (marks, mut tallies) = state.ledger.retained();
        marks + count(&mut tallies)
    }

    /// Counts everything that has no unsettled record before it.
    fn advance(&self, state: &mut State<A>) {
        let unstored = state.ledger.behind().unstored();
        let mut now = None;
        state.ledger.advance(|mark| {
            if let Some(committed_us) = mark.committed_us() {
                let now = *now.get_or_insert_with(now_us);
                self.latency.observe(now - committed_us);
            }
            if let Some(number) = mark.delivery_awaited() {
                self.awaited.send_replace(number);
            }
        });
        if state.ledger.behind().unstored() > unstored {
            self.changed.notify_one();
        }
        self.reach_commit_point(state);
    }
}

impl<A: OffsetAccount> ReportTarget for Progress<A> {
    fn settle_all(&self, sequences: &[u64]) {
        self.settle_all(sequences);
    }

    fn place(&self, sequence: u64) -> Option<String> {
        self.position(sequence).map(|position| position.to_string())
    }

    fn change_name(&self, sequence: u64) -> Option<String> {
        self.change_name(sequence)
    }

    fn fail(&self, failure: Failure) {
        self.fail(failure);
    }

    fn is_over(&self) -> bool {
        self.is_over()
    }
}

impl<A: OffsetAccount> State<A> {
    fn unstored(&self) -> Unstored {
        match &self.transaction {
            None => self.ledger.behind().unstored(),
            Some(transaction) if transaction.is_at_commit_point() => Unstored::Delivered,
            Some(_) => Unstored::Nothing,
        }
    }

    /// Whether there is room for more records; for a caller that already `waits`, only if enough is free. Records that are kept back take as much
    /// room as those under way: they all are on their way once the transaction before them is committed.
    fn has_room(&self, waits: bool) -> bool {
        let most = match waits {
            true => self.in_flight_limit.enough(),
            false => self.in_flight_limit.bytes(),
        };
        self.ledger.in_flight_bytes() <= most
    }

    fn is_ending(&self) -> bool {
        self.transaction.as_ref().is_some_and(Transaction::is_ending)
    }

    fn is_at_commit_point(&self) -> bool {
        self.transaction.as_ref().is_some_and(Transaction::is_at_commit_point)
    }

    fn is_over(&self) -> bool {
        self.stopping || self.failure.is_some()
    }
}

#[cfg(test)]
mod tests {
    use walferry_diagnosis::Kind;

    use super::*;
    use crate::delivery::{
        ledger::LedgerEntry,
        numbers::{Numbers, record},
    };

    #[test]
    fn acknowledged_records_behind_one_that_is_stuck_take_room() {
        const LIMIT: usize = 100_000;
        let progress = Progress::<Numbers>::new(0, LIMIT);
        let stuck = progress.push([record(1, 300)]);
        let mut acknowledged = 0;
        while progress.in_flight().1 <= LIMIT {
            progress.settle(progress.push([record(1, 300)]));
            acknowledged += 1;
            assert!(acknowledged < LIMIT, "the queue grows without end");
        }
        assert_eq!(progress.in_flight().0, 1);
        progress.settle(stuck);
        assert_eq!(progress.in_flight(), (0, 0));
        assert!(progress.wait_for_room());
    }

    #[test]
    fn a_wait_for_the_last_acknowledgement_ends_with_it_or_with_a_failure() {
        let progress = Progress::<Numbers>::new(0, 100_000);
        assert!(progress.wait_until_empty(), "nothing is under way");
        let first = progress.push([record(1, 300), record(2, 300)]);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| progress.wait_until_empty());
            progress.settle(first + 1);
            progress.settle(first);
            assert!(waiting.join().unwrap());
        });
        progress.push([record(3, 300)]);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| progress.wait_until_empty());
            progress.stop();
            assert!(!waiting.join().unwrap());
        });
    }

    #[test]
    fn in_transactions_there_is_an_offset_only_at_a_commit_point() {
        let progress = Progress::<Numbers>::new(0, 100_000).in_transactions();
        let uncommitted = || (progress.uncommitted().kind, progress.uncommitted().is_due);
        assert_eq!(uncommitted(), (Unstored::Nothing, false));
        progress.settle(progress.push([record(1, 300)]));
        assert!(progress.delivered().is_none());
        assert_eq!(progress.unstored(), Unstored::Nothing);
        progress.demand_commit();
        assert_eq!(uncommitted(), (Unstored::Delivered, true));

        assert!(progress.end_transaction(PushedLast::WholeChange));
        assert_eq!(progress.unstored(), Unstored::Delivered);
        assert_eq!(progress.delivered().map(|delivered| *delivered.offset()), Some(1));
        // The write may have failed: the same is to be stored again.
        progress.not_stored();
        assert_eq!(progress.delivered().map(|delivered| *delivered.offset()), Some(1));
        progress.committed();
        assert_eq!(uncommitted(), (Unstored::Nothing, false));
        assert!(progress.delivered().is_none());
    }

    /// The pipeline keeps back what it pushes while a transaction ends. The offset of that transaction must not cover it.
    #[test]
    fn what_is_pushed_while_a_transaction_ends_belongs_to_the_next() {
        let progress = Progress::<Numbers>::new(0, 3_000).in_transactions();
        let first = progress.push([record(1, 300), record(2, 300)]);
        progress.settle(first);
        assert!(progress.end_transaction(PushedLast::WholeChange));
        assert!(progress.is_ending() && !progress.is_at_commit_point());
        assert!(!progress.end_transaction(PushedLast::WholeChange), "it ends once");
        let third = progress.push([record(3, 300)]);
        assert_eq!(progress.uncommitted().kind, Unstored::Nothing);
        progress.settle(first + 1);
        assert!(progress.is_at_commit_point());
        assert_eq!(progress.delivered().map(|delivered| *delivered.offset()), Some(2));
        assert!(progress.awaits_commit());
        // What is kept back takes room. A wait for room also ends with the commit.
        progress.push([record(4, 2_000)]);
        assert!(!progress.has_room(false, true));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| progress.wait_for_room_or_commit(true));
            assert_eq!(
                progress
                    .committed()
                    .map(|committed| (committed.records, committed.next_records)),
                Some((2, 2))
            );
            assert_eq!(waiting.join().unwrap(), RoomWait::MaySend);
        });
        progress.sent_kept();
        progress.settle_all(&[third, third + 1]);
        assert_eq!((progress.uncommitted().records, progress.is_ending()), (2, false));
        assert!(progress.end_transaction(PushedLast::WholeChange));
        assert_eq!(progress.delivered().map(|delivered| *delivered.offset()), Some(4));
    }

    #[test]
    fn there_is_no_commit_point_inside_a_change() {
        let progress = Progress::<Numbers>::new(0, 100_000).in_transactions();
        let part = LedgerEntry::Record {
            change: 1,
            last: false,
            bytes: 300,
        };
        progress.settle(progress.push([part]));
        assert!(!progress.end_transaction(PushedLast::Anything));
        let sequence = progress.push([record(1, 300)]);
        progress.settle(sequence);
        assert!(progress.end_transaction(PushedLast::Anything));
        progress.committed();
        // What is withdrawn was never there.
        progress.withdraw(progress.push([LedgerEntry::Record {
            change: 2,
            last: false,
            bytes: 300,
        }]));
        assert!(progress.end_transaction(PushedLast::Anything));
    }

    #[test]
    fn records_that_belong_to_no_change_do_not_keep_a_transaction_open() {
        for order in [[5, 0], [0, 0]] {
            let progress = Progress::<Numbers>::new(0, 100_000).in_transactions();
            for change in order {
                let last = change > 0;
                let entry = LedgerEntry::Record {
                    change,
                    last,
                    bytes: 300,
                };
                progress.settle(progress.push([entry]));
            }
            assert!(progress.end_transaction(PushedLast::Anything));
        }
    }

    #[test]
    fn what_only_a_person_can_correct_is_not_tried_again_whatever_was_reported_first() {
        let replay = || Failure::new(Disposition::Replay, Kind::KafkaProducer, "lost", None);
        let stop = |what: &str| Failure::stop(Kind::RecordTooLarge, what, "raise the limit");
        let progress = Progress::<Numbers>::new(0, 100_000);
        for (reported, known) in [
            (replay(), replay()),
            (stop("first"), stop("first")),
            (stop("second"), stop("first")),
            (replay(), stop("first")),
        ] {
            progress.fail(reported);
            assert_eq!(progress.failure(), Some(known));
        }
    }

    #[test]
    fn a_wait_for_the_commit_ends_with_it_or_with_the_session() {
        for commits in [true, false] {
            let progress = Progress::<Numbers>::new(0, 100_000).in_transactions();
            progress.settle(progress.push([record(1, 300)]));
            assert!(progress.end_transaction(PushedLast::WholeChange));
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| progress.wait_for_commit());
                match commits {
                    true => assert!(progress.committed().is_some()),
                    false => progress.stop(),
                }
                assert_eq!(waiting.join().unwrap(), commits);
            });
            // The last write of the session may still commit it.
            assert_eq!(progress.is_at_commit_point(), !commits);
        }
    }

    #[test]
    fn no_more_is_confirmed_than_the_server_has_shown() {
        let stored = Stored {
            confirmable: 120,
            start: 50,
        };
        assert_eq!(stored.on_server(70).confirmable(), 70);
        assert_eq!(stored.on_server(130).confirmable(), 120);
    }
}
