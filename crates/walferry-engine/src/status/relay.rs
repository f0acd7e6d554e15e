//! What an operator can see of a connector in relay mode.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use serde::Serialize;

use super::{Latency, lock};

/// Figures of a connector in relay mode. The rounds write the counters, and a task beside them the counts of the table.
#[derive(Debug, Default)]
pub struct RelayFigures {
    /// Looks that have found rows.
    pub looks: AtomicU64,
    /// Looks that have found nothing to send.
    pub empty_looks: AtomicU64,
    /// Statements that the server has run for looks and marks.
    pub statements: AtomicU64,
    /// Rows that were sent and marked.
    pub sent_rows: AtomicU64,
    /// Attempts to send a row that have failed.
    pub failed_attempts: AtomicU64,
    /// Rows that were sent after one of their key with a higher number.
    pub late_rows: AtomicU64,
    /// How long the transactions of looks with rows have lasted.
    pub transactions: Latency,
    /// The number of lanes.
    pub lanes: AtomicU64,
    /// Lanes that the last look has taken.
    pub own_lanes: AtomicU64,
    rows: Mutex<Option<RelayRows>>,
    owners: Mutex<Vec<LaneOwner>>,
}

/// Rows of the table, as they were counted.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct RelayRows {
    /// Schema and name.
    pub table: String,
    /// When they were counted, microseconds since 1970.
    pub at_us: i64,
    /// Rows that are to be sent, now or later. No more than [`RelayRows::MOST`] are counted. `None` if they could not be counted.
    pub waiting: Option<u64>,
    /// How old the first of them is. `None` if the table has no column that tells, or if it could not be asked for.
    pub oldest_seconds: Option<f64>,
    /// Rows that have failed for good. No more than [`RelayRows::MOST`] are counted. `None` if the table does not tell.
    pub failed: Option<u64>,
    /// Why something is not known.
    pub problem: Option<String>,
}

/// Another process that has lanes of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LaneOwner {
    /// Process id of its connection on the server.
    pub pid: u32,
    /// The number of lanes that it counts with.
    pub counts_with: u64,
    /// How many lanes it has.
    pub lanes: u64,
    /// Name and address of its connection, as far as the role may see them.
    pub who: String,
}

impl RelayRows {
    /// How many rows are counted at most.
    pub const MOST: u64 = 10_000;
}

impl RelayFigures {
    /// Rows of the table when they were last counted. `None` before.
    pub fn rows(&self) -> Option<RelayRows> {
        lock(&self.rows).clone()
    }

    /// Sets the rows of the table.
    pub fn set_rows(&self, rows: RelayRows) {
        *lock(&self.rows) = Some(rows);
    }

    /// Other processes that had lanes when they were last looked for, during a look with rows.
    pub fn owners(&self) -> Vec<LaneOwner> {
        lock(&self.owners).clone()
    }

    /// Sets the other processes that have lanes.
    pub fn set_owners(&self, owners: Vec<LaneOwner>) {
        *lock(&self.owners) = owners;
    }

    /// Notes how many lanes a look has taken.
    pub fn note_lanes(&self, own: u32, all: u32) {
        self.own_lanes.store(own.into(), Relaxed);
        self.lanes.store(all.into(), Relaxed);
    }
}
