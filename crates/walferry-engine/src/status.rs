//! What the operator may look at while the connector runs: counters and the last news, read by the admin endpoint.
//!
//! Writers never wait for readers: counters are atomic, the rest changes seldom and stands behind short locks.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use serde::Serialize;

use crate::failure::Failure;

/// Everything that is known of one connector.
#[derive(Debug, Default)]
pub struct Status {
    /// Name of the connector.
    pub name: String,
    /// `topic.prefix`.
    pub server: String,
    /// Counters and gauges.
    pub counters: Counters,
    state: Mutex<Phase>,
    slots: Mutex<Option<Slots>>,
    topics: Mutex<BTreeMap<String, TopicCount>>,
    skipped: Mutex<BTreeMap<&'static str, u64>>,
    errors: Mutex<BTreeMap<&'static str, u64>>,
    warnings: Mutex<Vec<String>>,
}

/// Numbers that change with every batch.
#[derive(Debug, Default)]
pub struct Counters {
    /// Changes (rows) read from the stream.
    pub changes: AtomicU64,
    /// Of these, inserts, updates, deletes and truncates.
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
    /// Times the stream was connected.
    pub connects: AtomicU64,
    /// Times the connector began anew after a failure.
    pub restarts: AtomicU64,
    /// Whether the stream is connected now: 0 or 1.
    pub connected: AtomicU64,
    /// LSN of the last change read.
    pub received_lsn: AtomicU64,
    /// LSN up to which Kafka has everything.
    pub delivered_lsn: AtomicU64,
    /// LSN of the offset that is durable.
    pub stored_lsn: AtomicU64,
    /// LSN that the server was told.
    pub confirmed_lsn: AtomicU64,
    /// Server's WAL position as last heard in the stream.
    pub server_lsn: AtomicU64,
    /// Commit time of the last transaction read, microseconds since 1970; 0 before the first.
    pub last_commit_us: AtomicI64,
    /// Commit time of the last transaction that was delivered, microseconds since 1970.
    pub delivered_commit_us: AtomicI64,
    /// When the last change was read, microseconds since 1970; 0 before the first.
    pub last_change_us: AtomicI64,
    /// Records under way to Kafka.
    pub in_flight_records: AtomicU64,
    /// Bytes that they count for.
    pub in_flight_bytes: AtomicU64,
    /// Rows read by the snapshot.
    pub snapshot_rows: AtomicU64,
    /// Tables that the snapshot reads in all, and those still to come.
    pub snapshot_tables: AtomicU64,
    /// Tables still to come.
    pub snapshot_tables_left: AtomicU64,
}

/// What the connector is doing.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Phase {
    /// Connecting, checking, creating.
    #[default]
    Starting,
    /// Reading existing rows.
    Snapshot,
    /// Reading the stream.
    Streaming,
    /// Waiting before it tries again.
    Waiting(Failure),
    /// Stopped for good.
    Failed(Failure),
    /// Stopped because it was asked to.
    Stopped,
}

/// Records and bytes sent to one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TopicCount {
    /// Records.
    pub records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

/// The server's replication slots at one time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Slots {
    /// When the server was asked, microseconds since 1970.
    pub at_us: i64,
    /// The server's WAL position then.
    pub wal_end: u64,
    /// Ours first, then every other.
    pub slots: Vec<Slot>,
}

/// A replication slot of the server.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Slot {
    /// Name.
    pub name: String,
    /// Whether it is this connector's.
    pub ours: bool,
    /// `logical` or `physical`.
    pub kind: String,
    /// Output plugin of a logical slot.
    pub plugin: Option<String>,
    /// Database of a logical slot.
    pub database: Option<String>,
    /// Whether a process reads it.
    pub active: bool,
    /// That process.
    pub active_pid: Option<i32>,
    /// `confirmed_flush_lsn` as text.
    pub confirmed_flush_lsn: Option<String>,
    /// `restart_lsn` as text.
    pub restart_lsn: Option<String>,
    /// Bytes of WAL between the confirmed position and the server's.
    pub lag_bytes: Option<u64>,
    /// Bytes of WAL that the server keeps for it.
    pub retained_wal_bytes: Option<u64>,
    /// `reserved`, `extended`, `unreserved` or `lost`.
    pub wal_status: Option<String>,
    /// Bytes that may still be written before it is in danger; `None` without `max_slot_wal_keep_size`.
    pub safe_wal_size: Option<i64>,
    /// Seconds since it was last in use (Postgres 17 and later).
    pub inactive_seconds: Option<f64>,
}

impl Status {
    /// Of a connector that has not started yet.
    pub fn new(name: impl Into<String>, server: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            server: server.into(),
            ..Self::default()
        }
    }

    /// What it is doing.
    pub fn phase(&self) -> Phase {
        lock(&self.state).clone()
    }
    /// Says what it is doing.
    pub fn set_phase(&self, phase: Phase) {
        if let Phase::Waiting(failure) | Phase::Failed(failure) = &phase {
            *lock(&self.errors).entry(failure.kind).or_default() += 1;
        }
        *lock(&self.state) = phase;
    }

    /// The server's slots when they were last asked for.
    pub fn slots(&self) -> Option<Slots> {
        lock(&self.slots).clone()
    }
    /// Keeps the server's slots.
    pub fn set_slots(&self, slots: Slots) {
        *lock(&self.slots) = Some(slots);
    }

    /// Records and bytes by topic.
    pub fn topics(&self) -> BTreeMap<String, TopicCount> {
        lock(&self.topics).clone()
    }
    /// Adds to a topic's count.
    pub fn count_topic(&self, topic: &str, records: u64, bytes: u64) {
        let mut topics = lock(&self.topics);
        let count = match topics.get_mut(topic) {
            Some(count) => count,
            None => topics.entry(topic.to_owned()).or_default(),
        };
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

    /// Failures by kind.
    pub fn errors(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.errors).clone()
    }
    /// Counts a failure that did not end anything.
    pub fn count_error(&self, kind: &'static str) {
        *lock(&self.errors).entry(kind).or_default() += 1;
    }

    /// Settings that weaken a guarantee, to be shown as long as they are in force.
    pub fn warnings(&self) -> Vec<String> {
        lock(&self.warnings).clone()
    }
    /// Adds such a warning.
    pub fn warn(&self, text: String) {
        lock(&self.warnings).push(text);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Upper bounds of the latency histogram's buckets in microseconds; one more bucket takes the rest.
pub const LATENCY_BOUNDS_US: [i64; 14] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    5_000_000,
    30_000_000,
    300_000_000,
    3_600_000_000,
];

/// A histogram of the time from a transaction's commit in Postgres to its last record's acknowledgement by Kafka.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latency {
    /// Counts one transaction. Clocks of two machines may differ: less than nothing counts as nothing.
    pub fn observe(&self, us: i64) {
        let bucket = LATENCY_BOUNDS_US.partition_point(|&bound| bound < us);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us.max(0) as u64, Relaxed);
    }

    /// Count in each bucket (not cumulated), and the sum in microseconds.
    pub fn snapshot(&self) -> ([u64; LATENCY_BOUNDS_US.len() + 1], u64) {
        (
            std::array::from_fn(|i| self.buckets[i].load(Relaxed)),
            self.sum_us.load(Relaxed),
        )
    }
}
