//! What an operator can see while the connector runs: counters and the latest news. The admin endpoint reads it.
//!
//! Writers never wait for readers: counters are atomic. Everything else changes seldom and is behind short locks.

mod by_name;
mod inbox;
mod invalidation;
mod latency;
mod mismatches;
mod relay;
mod requests;
mod slot_xmin;
mod snapshot;
mod stream;
mod wal_clock;

use std::{
    collections::{BTreeMap, VecDeque},
    fmt, mem,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::Serialize;
use tokio::sync::{Notify, watch};
use walferry_diagnosis::{Kind, printed::shell_word};

use walferry_event::Notification;
pub use walferry_transform::Mismatched;

use crate::{failure::Failure, gap::Gap, history::MissingPositions, session::TargetState};

use by_name::ByName;
pub use by_name::OTHERS;
pub use inbox::{Action, Execute, Inbox, InboxFull, Signal, SignalOrigin};
pub use invalidation::Invalidation;
pub use latency::{LATENCY_BOUNDS_US, Latency, LatencyCounts};
use mismatches::Mismatches;
pub use relay::{LaneOwner, RelayFigures, RelayRows};
pub(crate) use requests::SnapshotNews;
use requests::SnapshotRequests;
pub use requests::{SnapshotRequest, TableState, UnreadTable};
pub use slot_xmin::SlotXmin;
pub use stream::{StreamConnection, StreamState, StreamWatch};
pub use wal_clock::WalClock;

/// Everything known about one connector.
#[derive(Debug, Default)]
pub struct Status {
    /// Name of the connector.
    pub name: String,
    /// `topic.prefix`.
    pub server: String,
    /// `errors.log.include.messages`: whether failures are shown with the record's key.
    pub shows_keys: bool,
    /// When the connector was created, microseconds since 1970.
    pub created_us: i64,
    /// Counters and gauges.
    pub counters: Counters,
    /// Latency from commit in Postgres to acknowledgement by Kafka, over all sessions.
    pub latency: Arc<Latency>,
    /// Signalled when a heartbeat is sent: `heartbeat.action.query` is due.
    pub heartbeat_sent: Notify,
    /// No table in the database matches the filters, as far as is known.
    pub captures_no_table: AtomicBool,
    /// The state of the stream.
    pub stream: StreamWatch,
    /// The slot's xmin, if `xmin.fetch.interval.ms` is set.
    pub xmin: SlotXmin,
    /// Signals that came from elsewhere than the stream.
    pub signals: Arc<Inbox>,
    /// The command with which a person decides what happens at a gap, for the hints.
    pub gap_command: OnceLock<String>,
    /// Figures of relay mode; `None` for a connector that reads the stream.
    pub relay: Option<Arc<RelayFigures>>,
    course: Mutex<ConnectorCourse>,
    kafka: Mutex<Option<OngoingFailure>>,
    gap: Mutex<Option<Gap>>,
    store: Mutex<Option<OngoingFailure>>,
    awaited: Mutex<Option<OngoingFailure>>,
    heartbeat_query: Mutex<Option<OngoingFailure>>,
    incidents: Mutex<VecDeque<Incident>>,
    slots: watch::Sender<Option<Slots>>,
    delivered_parts: watch::Sender<u64>,
    wal_clock: Mutex<WalClock>,
    topics: Mutex<ByName<TopicCount>>,
    skipped: Mutex<BTreeMap<&'static str, u64>>,
    errors: Mutex<BTreeMap<&'static str, u64>>,
    snapshot_rows: Mutex<ByName<u64>>,
    warnings: Mutex<Vec<String>>,
    missing: Mutex<Option<MissingPositions>>,
    notifications: Mutex<VecDeque<Notification>>,
    incremental: Mutex<Incrementals>,
    snapshots: Mutex<SnapshotRequests>,
    outboxes: Mutex<Vec<OutboxFigures>>,
    mismatched: Mutex<ByName<Mismatches>>,
    table_change: Mutex<Option<(TableChange, i64)>>,
}

/// How the columns of a captured table have changed, as the stream describes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableChange {
    /// Schema and name.
    pub table: String,
    /// Which columns were added or removed, or have another type.
    pub columns: String,
}

impl fmt::Display for TableChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.table, self.columns)
    }
}

/// An outbox table, as it was when last looked at.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct OutboxFigures {
    /// Schema and name.
    pub table: String,
    /// Committed rows that are not confirmed. `None` if they could not be counted, or if it is not known yet how far the slot is.
    pub unconfirmed: Option<Unconfirmed>,
    /// Live rows, by the statistics of Postgres.
    pub live_rows: u64,
    /// Dead rows, by the statistics of Postgres.
    pub dead_rows: u64,
    /// Size on disk, with indexes and TOAST.
    pub bytes: u64,
    /// Partitions with rows; 0 if the table is not partitioned.
    pub partitions: u64,
    /// What to do about many dead rows.
    pub vacuum: Option<String>,
}

/// Committed rows of an outbox that are not confirmed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Unconfirmed {
    /// How many. No more than [`Unconfirmed::MOST`] are counted.
    pub rows: u64,
    /// How old the oldest of them is, by the column with its time.
    pub seconds: f64,
}

impl Unconfirmed {
    /// How many rows are looked through at most.
    pub const MOST: u64 = 100_000;
}

/// Progress of an incremental snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct IncrementalProgress {
    /// The table that is being read.
    pub table: String,
    /// Rows of this table that were read so far, also by earlier processes.
    pub rows: u64,
    /// How many rows these will be in the end, as the server estimates it.
    pub rows_estimate: Option<u64>,
    /// Rows of all its tables that this process has read: what its pace is known by.
    pub rows_of_process: u64,
    /// How many rows each table still has to give, as far as the server can estimate it: first those of this table, then those of the
    /// next 1000 tables.
    pub rows_left: Vec<(String, u64)>,
    /// All tables of this snapshot.
    pub tables: usize,
    /// Tables left to read, including this one.
    pub tables_left: usize,
    /// Whether the snapshot is paused by a signal.
    pub is_paused: bool,
}

/// The incremental snapshot that runs, and the one before it.
#[derive(Debug, Default)]
struct Incrementals {
    running: Option<(IncrementalProgress, i64)>,
    last: Option<IncrementalEnd>,
}

/// An incremental snapshot that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IncrementalEnd {
    /// Whether it has read its tables to the end. A signal may have stopped it.
    pub is_complete: bool,
    /// When it began, microseconds since 1970.
    pub begun_us: i64,
    /// When it ended, microseconds since 1970.
    pub ended_us: i64,
}

/// How many notifications are kept for the admin endpoint.
const NOTIFICATIONS: usize = 1000;

/// Numbers that change with every batch.
#[derive(Debug, Default)]
pub struct Counters {
    /// Changes (rows) read from the stream.
    pub changes: AtomicU64,
    /// Inserts.
    pub inserts: AtomicU64,
    /// Updates.
    pub updates: AtomicU64,
    /// Deletes.
    pub deletes: AtomicU64,
    /// Truncates.
    pub truncates: AtomicU64,
    /// Transactions whose commit was read.
    pub transactions: AtomicU64,
    /// Bytes of frames read.
    pub received_bytes: AtomicU64,
    /// Records given to the producer.
    pub records: AtomicU64,
    /// Records set aside under `errors.tolerance=all`.
    pub set_aside: AtomicU64,
    /// How often the connector started again after a failure.
    pub restarts: AtomicU64,
    /// Gaps found.
    pub gaps: AtomicU64,
    /// Gaps that were skipped by a person's choice.
    pub gaps_skipped: AtomicU64,
    /// LSN of the last change read.
    pub received_lsn: AtomicU64,
    /// LSN up to which everything has been delivered to Kafka.
    pub delivered_lsn: AtomicU64,
    /// LSN of the stored offset.
    pub stored_lsn: AtomicU64,
    /// The server's WAL position as last reported in the stream.
    pub server_lsn: AtomicU64,
    /// Commit time of the last transaction read, microseconds since 1970; 0 before the first.
    pub last_commit_us: AtomicI64,
    /// Commit time of the last transaction whose beginning was read, microseconds since 1970; 0 before the first.
    pub begun_commit_us: AtomicI64,
    /// Commit time of the last delivered transaction, microseconds since 1970.
    pub delivered_commit_us: AtomicI64,
    /// When the last change was read, microseconds since 1970; 0 before the first.
    pub last_change_us: AtomicI64,
    /// Records under way to Kafka.
    pub in_flight_records: AtomicU64,
    /// Bytes that the records under way count for.
    pub in_flight_bytes: AtomicU64,
    /// Bytes that records under way may count for before the pipeline waits; 0 while unknown.
    pub in_flight_limit_bytes: AtomicU64,
    /// Time of the last acknowledgement, or, if later, when the first record came under way; microseconds since 1970, 0
    /// while nothing is under way.
    pub unacknowledged_since_us: AtomicI64,
    /// Commit time of the oldest transaction with a record under way, microseconds since 1970; 0 while none is.
    pub oldest_commit_us: AtomicI64,
    /// Rows read by the snapshot.
    pub snapshot_rows: AtomicU64,
    /// Number of tables that the snapshot reads in all.
    pub snapshot_tables: AtomicU64,
    /// Tables still to come.
    pub snapshot_tables_left: AtomicU64,
    /// Rows that the snapshot will have read in the end, as the server estimates it; 0 if there is no estimate.
    pub snapshot_rows_estimate: AtomicU64,
    /// Rows that earlier snapshots of this process had read when this one began.
    pub snapshot_rows_before: AtomicU64,
    /// When the snapshot began to read, microseconds since 1970; 0 before.
    pub snapshot_begun_us: AtomicI64,
    /// When the snapshot had read everything, microseconds since 1970; 0 before.
    pub snapshot_ended_us: AtomicI64,
    /// How often the columns of captured tables have changed.
    pub table_changes: AtomicU64,
    /// Partitions of outbox tables that were created.
    pub outbox_partitions: AtomicU64,
    /// Partitions of outbox tables that were dropped.
    pub outbox_dropped: AtomicU64,
    /// Delivered rows that were removed from outbox tables.
    pub outbox_removed: AtomicU64,
}

/// What the connector is doing.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Phase {
    /// Connecting, checking, creating slot and publication.
    #[default]
    Starting,
    /// Reading existing rows.
    Snapshot,
    /// Reading the stream.
    Streaming,
    /// Waiting before another try.
    Waiting(Failure),
    /// Stopped for good.
    Failed(Failure),
    /// Reading nothing, as requested, and keeping its slot.
    Paused,
    /// Ending in order, to start again.
    Restarting,
    /// Stopped on request.
    Stopped,
}

/// What the connector is doing, since when, and the problem that it is trying to resolve.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConnectorCourse {
    /// What it is doing.
    pub phase: Phase,
    /// Since when, microseconds since 1970; 0 before a phase was set.
    pub since_us: i64,
    /// Whether it has read rows or the stream since the process started.
    pub has_run: bool,
    /// The failure since which it has not read again, however often it has tried.
    pub trouble: Option<OngoingFailure>,
    /// What it waits for at the moment without having failed.
    pub waits: Waits,
    /// Whether its run is ending because another one follows.
    is_restarting: bool,
}

/// What a connector waits for without having failed. Each fact has one writer, who also takes it back.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waits {
    slot: Option<OngoingFailure>,
    rows: Option<OngoingFailure>,
    answer: Option<OngoingFailure>,
}

/// One of the [`Waits`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitFor {
    /// The server creates a slot only after older transactions have ended. Written by who creates the slot.
    Slot,
    /// The source sends none of the existing rows. Written by who reads the snapshot.
    Rows,
    /// The server does not answer on the stream's connection. Written by who reads the stream.
    Answer,
}

impl Waits {
    /// The wait that has lasted longest.
    pub fn longest(&self) -> Option<&OngoingFailure> {
        let all = [&self.slot, &self.rows, &self.answer];
        all.into_iter().flatten().min_by_key(|wait| wait.since_us)
    }

    /// Sets one of them; `None` when what is waited for has come. If both failures have the same kind, the wait goes on.
    pub fn set(&mut self, what: WaitFor, failure: Option<Failure>, at_us: i64) {
        let wait = match what {
            WaitFor::Slot => &mut self.slot,
            WaitFor::Rows => &mut self.rows,
            WaitFor::Answer => &mut self.answer,
        };
        OngoingFailure::replace(wait, failure, at_us);
    }
}

/// A problem that may resolve itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OngoingFailure {
    /// The problem.
    pub failure: Failure,
    /// When it began, microseconds since 1970.
    pub since_us: i64,
}

impl OngoingFailure {
    /// Sets the present problem, and returns the old one. If both have the same kind, the old one's start time is kept.
    fn replace(trouble: &mut Option<Self>, failure: Option<Failure>, at_us: i64) -> Option<Failure> {
        let old = trouble.take();
        *trouble = failure.map(|failure| Self {
            since_us: match &old {
                Some(old) if old.failure.kind == failure.kind => old.since_us,
                _ => at_us,
            },
            failure,
        });
        old.map(|old| old.failure)
    }
}

/// A past failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// What happened.
    pub failure: Failure,
    /// When it first happened, microseconds since 1970.
    pub first_us: i64,
    /// When it last happened, with no other failure since `first_us`.
    pub last_us: i64,
    /// How often it happened.
    pub times: u64,
}

/// How many incidents are kept.
const INCIDENTS: usize = 20;

/// Records and bytes sent to one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TopicCount {
    /// Records.
    pub records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// The server's replication slots at one point in time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slots {
    /// When the server was asked, microseconds since 1970.
    pub at_us: i64,
    /// The server's WAL position then.
    pub wal_end: u64,
    /// Our slot first, then all others.
    pub slots: Vec<Slot>,
    /// How far the standby that has replayed least is behind the server, in bytes; `None` where there is no standby, or where it cannot
    /// be seen.
    pub standby_lag_bytes: Option<u64>,
    /// Whether there are standbys that the role cannot see.
    pub standbys_are_hidden: bool,
}

/// A replication slot of the server.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Slot {
    /// Name.
    pub name: String,
    /// Whether it is this connector's slot.
    pub ours: bool,
    /// `logical` or `physical`.
    pub kind: String,
    /// Output plugin of a logical slot.
    pub plugin: Option<String>,
    /// Database of a logical slot.
    pub database: Option<String>,
    /// Whether a process reads it.
    pub active: bool,
    /// The process that reads it.
    pub active_pid: Option<i32>,
    /// `confirmed_flush_lsn` as text.
    pub confirmed_flush_lsn: Option<String>,
    /// `restart_lsn` as text.
    pub restart_lsn: Option<String>,
    /// Bytes of WAL between the confirmed position and the server's.
    pub lag_bytes: Option<u64>,
    /// Bytes of WAL that the server keeps for the slot.
    pub retained_wal_bytes: Option<u64>,
    /// `reserved`, `extended`, `unreserved` or `lost`.
    pub wal_status: Option<String>,
    /// Bytes that may still be written before the slot is in danger of losing WAL. `None` without
    /// `max_slot_wal_keep_size`.
    pub safe_wal_size: Option<i64>,
    /// Seconds since it was last used (Postgres 17 and later).
    pub inactive_seconds: Option<f64>,
    /// Why the server has invalidated it: `wal_removed`, `rows_removed`, `wal_level_insufficient`, `idle_timeout`
    /// (Postgres 17 and later); or `conflict`, for which Postgres 16 gives no reason.
    pub invalidation_reason: Option<String>,
    /// Whether it is to be synchronized to standbys (Postgres 17 and later).
    pub failover: Option<bool>,
    /// Whether it is such a synchronized copy.
    pub synced: Option<bool>,
}

impl Slot {
    /// Whether it can no longer be read.
    pub fn is_lost(&self) -> bool {
        self.wal_status.as_deref() == Some("lost") || self.invalidation_reason.is_some()
    }
}

impl Status {
    /// Adds a notification. If there are too many, the oldest is dropped.
    pub(crate) fn notify(&self, notification: Notification) {
        let mut notifications = self.notifications.lock().unwrap_or_else(PoisonError::into_inner);
        if notifications.len() >= NOTIFICATIONS {
            notifications.pop_front();
        }
        notifications.push_back(notification);
    }

    /// Progress of an incremental snapshot, and when it began in this process, in microseconds since 1970. `None` if there is none.
    pub fn incremental(&self) -> Option<(IncrementalProgress, i64)> {
        lock(&self.incremental).running.clone()
    }

    /// The incremental snapshot that this process has ended last.
    pub fn last_incremental(&self) -> Option<IncrementalEnd> {
        lock(&self.incremental).last
    }

    /// Sets the progress of an incremental snapshot.
    pub fn set_incremental(&self, progress: IncrementalProgress) {
        let mut incremental = lock(&self.incremental);
        let begun_us = incremental
            .running
            .as_ref()
            .map_or_else(now_us, |(_, begun_us)| *begun_us);
        incremental.running = Some((progress, begun_us));
    }

    /// A signal that asks for a snapshot has been accepted; no session has taken it yet.
    pub fn accept_snapshot(&self, id: &str, is_blocking: bool) {
        lock(&self.snapshots).accepted(id, is_blocking, now_us());
    }

    /// News of snapshots that signals have asked for. A failure is counted, and kept as an incident.
    pub(crate) fn tell_snapshot(&self, news: SnapshotNews) {
        let failure = lock(&self.snapshots).learn(news, now_us());
        if let Some(failure) = failure {
            self.tell_incident(&failure);
        }
    }

    /// The last snapshots that signals have asked for, oldest first.
    pub fn snapshot_requests(&self) -> Vec<SnapshotRequest> {
        lock(&self.snapshots).requests()
    }

    /// Tables that a snapshot could not read, and that no later one has read.
    pub fn unread_tables(&self) -> Vec<UnreadTable> {
        lock(&self.snapshots).unread()
    }

    /// No incremental snapshot is running any more.
    pub fn end_incremental(&self, is_complete: bool) {
        let mut incremental = lock(&self.incremental);
        if let Some((_, begun_us)) = incremental.running.take() {
            incremental.last = Some(IncrementalEnd {
                is_complete,
                begun_us,
                ended_us: now_us(),
            });
        }
    }

    /// The outbox tables that are taken care of. Empty if there are none, or if they were not looked at yet.
    pub fn outboxes(&self) -> Vec<OutboxFigures> {
        lock(&self.outboxes).clone()
    }

    /// Sets what was seen of the outbox tables.
    pub fn set_outboxes(&self, outboxes: Vec<OutboxFigures>) {
        *lock(&self.outboxes) = outboxes;
    }

    /// The last change of the columns of a captured table since the process started, and when it was read, in microseconds since 1970.
    pub fn table_change(&self) -> Option<(TableChange, i64)> {
        lock(&self.table_change).clone()
    }

    pub(crate) fn table_changed(&self, change: TableChange) {
        self.counters.table_changes.fetch_add(1, Relaxed);
        *lock(&self.table_change) = Some((change, now_us()));
    }

    /// The last notifications, oldest first.
    pub fn notifications(&self) -> Vec<Notification> {
        let notifications = self.notifications.lock().unwrap_or_else(PoisonError::into_inner);
        notifications.iter().cloned().collect()
    }
}

impl Status {
    /// The status of a connector that has not started yet.
    pub fn new(name: impl Into<String>, server: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            server: server.into(),
            created_us: now_us(),
            ..Self::default()
        }
    }

    /// The command with which a person decides what happens at a gap: with the data directory, where that is known.
    pub fn gap_command(&self) -> String {
        let known = self.gap_command.get().cloned();
        known.unwrap_or_else(|| format!("walferry offsets skip-gap {}", shell_word(&self.name)))
    }

    /// The present phase.
    pub fn phase(&self) -> Phase {
        lock(&self.course).phase.clone()
    }
    /// The phase, since when, and the problem that the connector is trying to resolve.
    pub fn course(&self) -> ConnectorCourse {
        lock(&self.course).clone()
    }
    /// Sets what the run is doing. Only the run calls it. A failure in it is counted and kept as an incident.
    pub fn set_phase(&self, phase: Phase) {
        self.set_phase_at(phase, now_us());
    }

    /// A run begins, or is about to: it begins paused, or starts. Only the worker calls this, [`restarts`](Self::restarts) and
    /// [`has_ended`](Self::has_ended), because only it knows whether another run follows.
    pub fn begins(&self, target: TargetState) {
        lock(&self.course).is_restarting = false;
        self.set_phase(match target {
            TargetState::Paused => Phase::Paused,
            TargetState::Running | TargetState::Stopped | TargetState::Abandoned => Phase::Starting,
        });
    }

    /// The run is told to end, and another one follows. What the run does until then is no longer shown.
    pub fn restarts(&self) {
        self.set_phase(Phase::Restarting);
        lock(&self.course).is_restarting = true;
    }

    /// The run has ended, and no other one follows.
    pub fn has_ended(&self, result: &Result<(), Failure>) {
        lock(&self.course).is_restarting = false;
        self.set_phase(match result {
            Ok(()) => Phase::Stopped,
            Err(failure) => Phase::Failed(failure.clone()),
        });
    }

    fn set_phase_at(&self, mut phase: Phase, at_us: i64) {
        if let Phase::Waiting(failure) | Phase::Failed(failure) = &mut phase {
            self.show(failure);
            *failure = failure.clone().concealed();
        }
        if let Phase::Waiting(failure) | Phase::Failed(failure) = &phase {
            self.count_error(failure.kind);
            self.note(failure, at_us);
        }
        lock(&self.course).enter(phase, at_us);
    }

    /// Sets one of the things that the connector waits for; `None` when it has come. Only the writer that [`WaitFor`] names calls it. If
    /// the wait becomes a failure, the failure begins with the wait.
    pub fn set_wait(&self, what: WaitFor, failure: Option<Failure>) {
        self.set_wait_at(what, failure, now_us());
    }
    fn set_wait_at(&self, what: WaitFor, failure: Option<Failure>, at_us: i64) {
        lock(&self.course)
            .waits
            .set(what, failure.map(Failure::concealed), at_us);
    }

    /// What a record and everything behind it wait for. `None` if nothing waits.
    pub fn awaited(&self) -> Option<OngoingFailure> {
        lock(&self.awaited).clone()
    }
    /// Sets what a record waits for, or that it no longer waits. Returns what it waited for before.
    pub(crate) fn set_awaited(&self, failure: Option<Failure>) -> Option<Failure> {
        OngoingFailure::replace(&mut lock(&self.awaited), failure.map(Failure::concealed), now_us())
    }

    /// Why the offset cannot be stored. `None` while it can.
    pub fn store(&self) -> Option<OngoingFailure> {
        lock(&self.store).clone()
    }
    /// Sets why the offset could not be stored, or that it is stored again. Returns why it could not be stored before.
    pub(crate) fn set_store(&self, failure: Option<Failure>) -> Option<Failure> {
        self.set_store_at(failure, now_us())
    }
    fn set_store_at(&self, failure: Option<Failure>, at_us: i64) -> Option<Failure> {
        let mut store = lock(&self.store);
        let failure = failure.map(Failure::concealed);
        if let Some(failure) = &failure {
            self.count_error(failure.kind);
            self.note(failure, at_us);
        }
        OngoingFailure::replace(&mut store, failure, at_us)
    }

    /// More people see the page, `/ready` and REST than the log, so the key is left out there, unless it is asked for.
    fn show(&self, failure: &mut Failure) {
        if let Some(key) = failure.record_key.take().filter(|_| self.shows_keys)
            && let Some(cause) = failure.causes.first_mut()
        {
            cause.text.push_str(&format!("; the record's key is {key}"));
        }
    }

    /// The last failures, latest first.
    pub fn incidents(&self) -> Vec<Incident> {
        lock(&self.incidents).iter().cloned().collect()
    }
    /// Something failed that is tried again while the connector goes on: counts it and keeps it as an incident.
    pub(crate) fn tell_incident(&self, failure: &Failure) {
        self.count_error(failure.kind);
        self.note(&failure.clone().concealed(), now_us());
    }

    fn note(&self, failure: &Failure, at_us: i64) {
        let mut incidents = lock(&self.incidents);
        if let Some(last) = incidents.front_mut()
            && last.failure == *failure
        {
            last.last_us = at_us;
            last.times += 1;
            return;
        }
        incidents.truncate(INCIDENTS - 1);
        incidents.push_front(Incident {
            failure: failure.clone(),
            first_us: at_us,
            last_us: at_us,
            times: 1,
        });
    }

    /// The problem with Kafka. `None` if there is none.
    pub fn kafka(&self) -> Option<OngoingFailure> {
        lock(&self.kafka).clone()
    }
    /// Sets the problem with Kafka, as its client reports it.
    pub fn set_kafka(&self, trouble: Option<OngoingFailure>) {
        let mut kafka = lock(&self.kafka);
        let trouble = trouble.map(|trouble| OngoingFailure {
            failure: trouble.failure.concealed(),
            ..trouble
        });
        if let Some(new) = &trouble
            && kafka.as_ref().is_none_or(|old| old.failure.kind != new.failure.kind)
        {
            self.count_error(new.failure.kind);
            self.note(&new.failure, new.since_us);
        }
        *kafka = trouble;
    }

    /// Why `heartbeat.action.query` fails at present. `None` if it works, or there is none.
    pub fn heartbeat_query(&self) -> Option<OngoingFailure> {
        lock(&self.heartbeat_query).clone()
    }
    /// Sets whether `heartbeat.action.query` worked the last time. Each failure is counted; the first of several in a row is an incident.
    pub fn set_heartbeat_query(&self, failure: Option<Failure>) {
        let at_us = now_us();
        let failure = failure.map(Failure::concealed);
        if let Some(new) = &failure {
            self.count_error(new.kind);
        }
        let old = OngoingFailure::replace(&mut lock(&self.heartbeat_query), failure.clone(), at_us);
        if let Some(new) = failure.filter(|_| old.is_none()) {
            self.note(&new, at_us);
        }
    }

    /// The gap at which the connector waits. `None` if there is none.
    pub fn gap(&self) -> Option<Gap> {
        lock(&self.gap).clone()
    }
    /// Sets the gap at which the connector waits.
    pub fn set_gap(&self, gap: Option<Gap>) {
        *lock(&self.gap) = gap;
    }

    /// The number of parts of a snapshot that have been delivered, over all sessions: of each, all records and all before them.
    pub fn watch_delivered_parts(&self) -> watch::Receiver<u64> {
        self.delivered_parts.subscribe()
    }

    /// Further parts of a snapshot have been delivered.
    pub(crate) fn parts_delivered(&self, parts: u64) {
        if parts > 0 {
            self.delivered_parts.send_modify(|all| *all += parts);
        }
    }

    /// The server's slots when they were last queried.
    pub fn slots(&self) -> Option<Slots> {
        self.slots.borrow().clone()
    }
    /// The same, for those that act on it.
    pub fn watch_slots(&self) -> watch::Receiver<Option<Slots>> {
        self.slots.subscribe()
    }
    /// When the server's WAL had reached which position, sampled each time the slots were queried.
    pub fn wal_clock(&self) -> WalClock {
        lock(&self.wal_clock).clone()
    }
    /// Sets the server's slots.
    pub fn set_slots(&self, slots: Slots) {
        lock(&self.wal_clock).tick(slots.at_us, slots.wal_end);
        self.slots.send_replace(Some(slots));
    }

    /// Records and bytes by topic. Beyond a limit, further topics count together as [`OTHERS`].
    pub fn topics(&self) -> BTreeMap<String, TopicCount> {
        lock(&self.topics).all()
    }
    /// Looks at each topic and the number of records sent to it, without copying them. Topics that count together as [`OTHERS`] are
    /// left out, because their names are not known.
    pub fn visit_topics(&self, mut look: impl FnMut(&str, u64)) {
        let topics = lock(&self.topics);
        for (topic, count) in topics.iter().filter(|(topic, _)| *topic != OTHERS) {
            look(topic, count.records);
        }
    }
    /// Adds to a topic's count.
    pub fn count_topic(&self, topic: &str, records: u64, bytes: u64) {
        let mut topics = lock(&self.topics);
        let count = topics.of(topic);
        count.records += records;
        count.bytes += bytes;
    }

    /// Rows that yielded no record, by reason.
    pub fn skipped(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.skipped).clone()
    }
    /// Counts rows that yielded no record.
    pub fn count_skipped(&self, reason: &'static str, rows: u64) {
        *lock(&self.skipped).entry(reason).or_default() += rows;
    }

    /// Events that did not match their schemas, or had none, by type. Beyond a limit, further types count together as [`OTHERS`].
    pub fn mismatched(&self) -> BTreeMap<String, u64> {
        let mismatched = lock(&self.mismatched);
        mismatched
            .iter()
            .map(|(event_type, counted)| (event_type.to_owned(), counted.events()))
            .collect()
    }
    /// Counts events of a type that did not match. If they were sent nevertheless, the log says so at most once a minute for each type.
    pub fn count_mismatched(&self, mismatched: &Mismatched) {
        let event_type = match mismatched.event_type.as_str() {
            Mismatched::OTHER => OTHERS,
            event_type => event_type,
        };
        let events = lock(&self.mismatched).of(event_type).count(mismatched, Instant::now());
        if let Some(events) = events {
            tracing::warn!(
                code = Kind::EventMismatch.code(),
                event.r#type = event_type,
                events,
                error = mismatched.why,
                "events are sent although they do not match their schemas, by walferry.schemas.mismatch or walferry.schemas.missing"
            );
        }
    }

    /// Failures by kind.
    pub fn errors(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.errors).clone()
    }
    /// Counts a failure that did not end anything.
    pub fn count_error(&self, kind: Kind) {
        *lock(&self.errors).entry(kind.as_str()).or_default() += 1;
    }

    /// Rows that the snapshot has read, by `schema.table`. Beyond a limit, further tables count together as [`OTHERS`].
    pub fn snapshot_rows(&self) -> BTreeMap<String, u64> {
        lock(&self.snapshot_rows).all()
    }
    /// Counts rows of a table that the snapshot has read.
    pub fn count_snapshot_rows(&self, table: &str, rows: u64) {
        *lock(&self.snapshot_rows).of(table) += rows;
    }

    /// Delivered positions that the server does not have.
    pub fn missing(&self) -> Option<MissingPositions> {
        *lock(&self.missing)
    }
    /// Sets the delivered positions that the server does not have.
    pub fn set_missing(&self, missing: Option<MissingPositions>) {
        *lock(&self.missing) = missing;
    }

    /// Warnings about settings that weaken a guarantee. They are shown as long as the settings are in force.
    pub fn warnings(&self) -> Vec<String> {
        lock(&self.warnings).clone()
    }
    /// Adds such a warning.
    pub fn warn(&self, text: String) {
        let mut warnings = lock(&self.warnings);
        // Each start of the connector adds the same warning.
        if !warnings.contains(&text) {
            warnings.push(text);
        }
    }
}

impl ConnectorCourse {
    fn enter(&mut self, phase: Phase, at_us: i64) {
        if self.is_restarting {
            return;
        }
        // Each phase has waits of its own.
        let waits = mem::take(&mut self.waits);
        match &phase {
            Phase::Snapshot | Phase::Streaming => (self.has_run, self.trouble) = (true, None),
            Phase::Waiting(failure) => {
                let began = self.trouble.as_ref().or(waits.longest());
                let since_us = began.map_or(at_us, |trouble| trouble.since_us);
                self.trouble = Some(OngoingFailure {
                    failure: failure.clone(),
                    since_us,
                });
            }
            Phase::Failed(_) | Phase::Paused | Phase::Stopped => self.trouble = None,
            Phase::Starting | Phase::Restarting => {}
        }
        if self.phase != phase || self.since_us == 0 {
            (self.phase, self.since_us) = (phase, at_us);
        }
    }
}

/// The present time, microseconds since 1970.
pub(crate) fn now_us() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO)
        .as_micros() as i64
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Failure {
        Failure::retry(Kind::Unreachable, "connection refused")
    }

    #[test]
    fn trouble_lasts_over_all_tries_until_the_stream_is_read_again() {
        let status = Status::new("c", "s");
        let since = |status: &Status| status.course().trouble.map(|trouble| trouble.since_us);
        let steps = [
            (Phase::Starting, 1, None, false),
            (Phase::Waiting(refused()), 2, Some(2), false),
            (Phase::Starting, 3, Some(2), false),
            (Phase::Waiting(refused()), 4, Some(2), false),
            (Phase::Streaming, 5, None, true),
            (Phase::Waiting(refused()), 6, Some(6), true),
            (Phase::Failed(refused()), 7, None, true),
        ];
        for (phase, at_us, trouble, has_run) in steps {
            status.set_phase_at(phase.clone(), at_us);
            assert_eq!(
                (since(&status), status.course().has_run),
                (trouble, has_run),
                "{phase:?} at {at_us}"
            );
            assert_eq!(status.course().since_us, at_us);
        }
        assert_eq!(status.errors()["unreachable"], 4);
    }

    #[test]
    fn a_run_that_ends_for_a_restart_shows_nothing_of_its_own_any_more() {
        let status = Status::new("c", "s");
        status.set_phase(Phase::Streaming);
        status.restarts();
        for phase in [
            Phase::Streaming,
            Phase::Waiting(refused()),
            Phase::Starting,
            Phase::Failed(refused()),
        ] {
            status.set_phase(phase);
            assert_eq!(status.phase(), Phase::Restarting);
        }
        assert_eq!(status.errors()["unreachable"], 2, "its failures count");
        status.begins(TargetState::Running);
        assert_eq!(status.phase(), Phase::Starting);
        status.restarts();
        status.has_ended(&Err(refused()));
        assert_eq!(status.phase(), Phase::Failed(refused()));
        status.begins(TargetState::Paused);
        assert_eq!(status.phase(), Phase::Paused);
        status.has_ended(&Ok(()));
        assert_eq!(status.phase(), Phase::Stopped);
    }

    #[test]
    fn a_failure_began_when_it_was_first_waited_for() {
        let status = Status::new("c", "s");
        let trouble = |status: &Status| status.course().trouble.map(|trouble| trouble.since_us);
        let wait = |status: &Status| status.course().waits.longest().map(|wait| wait.since_us);
        status.set_phase_at(Phase::Streaming, 1);
        status.set_wait_at(WaitFor::Answer, Some(refused()), 5);
        status.set_wait_at(WaitFor::Answer, Some(refused()), 6);
        assert_eq!((wait(&status), trouble(&status)), (Some(5), None));
        status.set_wait_at(WaitFor::Answer, None, 7);
        assert_eq!(wait(&status), None);
        status.set_wait_at(WaitFor::Answer, Some(refused()), 8);
        status.set_phase_at(Phase::Waiting(refused()), 70);
        assert_eq!((wait(&status), trouble(&status)), (None, Some(8)));
        status.set_phase_at(Phase::Streaming, 80);
        assert_eq!((wait(&status), trouble(&status)), (None, None));
    }

    #[test]
    fn who_has_waited_longest_is_shown_and_nobody_ends_the_wait_of_another() {
        let status = Status::new("c", "s");
        let wait = |status: &Status| status.course().waits.longest().map(|wait| wait.since_us);
        status.set_phase_at(Phase::Streaming, 1);
        status.set_wait_at(WaitFor::Answer, Some(refused()), 5);
        status.set_wait_at(WaitFor::Slot, Some(refused()), 6);
        assert_eq!(wait(&status), Some(5));
        status.set_wait_at(WaitFor::Rows, None, 7);
        assert_eq!(wait(&status), Some(5));
        status.set_wait_at(WaitFor::Answer, None, 8);
        assert_eq!(wait(&status), Some(6));
        status.set_wait_at(WaitFor::Slot, None, 9);
        assert_eq!(wait(&status), None);
    }

    #[test]
    fn a_records_key_is_shown_only_where_it_is_asked_for() {
        for shows_keys in [false, true] {
            let mut status = Status::new("c", "s");
            status.shows_keys = shows_keys;
            status.set_phase(Phase::Failed(refused().about(b"heavy")));
            let Phase::Failed(failure) = status.phase() else {
                panic!("it has failed");
            };
            assert_eq!(failure.record_key, None);
            for text in [failure.to_string(), status.incidents()[0].failure.to_string()] {
                assert_eq!(text.contains("heavy"), shows_keys, "{text}");
            }
        }
    }

    #[test]
    fn the_same_failure_in_a_row_is_one_incident() {
        let status = Status::new("c", "s");
        let other = Failure::retry(Kind::SlotInUse, "read by process 7");
        for (at_us, failure) in [(1, refused()), (2, refused()), (3, other.clone()), (4, refused())] {
            status.set_phase_at(Phase::Waiting(failure), at_us);
        }
        let notifications: Vec<_> = status
            .incidents()
            .into_iter()
            .map(|i| (i.failure.kind, i.first_us, i.last_us, i.times))
            .collect();
        assert_eq!(
            notifications,
            [
                (Kind::Unreachable, 4, 4, 1),
                (Kind::SlotInUse, 3, 3, 1),
                (Kind::Unreachable, 1, 2, 2)
            ]
        );
        for at_us in 0..100 {
            status.set_phase_at(
                Phase::Waiting(Failure::retry(Kind::Unreachable, at_us.to_string())),
                at_us,
            );
        }
        assert_eq!(status.incidents().len(), INCIDENTS);
    }

    #[test]
    fn a_trouble_with_kafka_counts_once_while_it_lasts() {
        let status = Status::new("c", "s");
        let trouble = OngoingFailure {
            failure: refused(),
            since_us: 5,
        };
        for _ in 0..3 {
            status.set_kafka(Some(trouble.clone()));
        }
        assert_eq!((status.errors()["unreachable"], status.incidents().len()), (1, 1));
        status.set_kafka(None);
        assert_eq!(status.kafka(), None);
    }
}
