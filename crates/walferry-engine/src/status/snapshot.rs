//! The progress of a snapshot. These methods are all that writes its counters, except those of rows, which the pipeline
//! counts.

use std::sync::atomic::Ordering::Relaxed;

use super::{Counters, now_us};

impl Counters {
    /// A snapshot is to go on, and its progress is not known before it does.
    pub(crate) fn snapshot_unknown(&self) {
        self.snapshot_tables.store(0, Relaxed);
        self.snapshot_tables_left.store(0, Relaxed);
    }

    /// A snapshot begins to read `left` of its tables.
    pub(crate) fn snapshot_begins(&self, tables: u64, left: u64) {
        self.snapshot_tables.store(tables, Relaxed);
        self.snapshot_tables_left.store(left, Relaxed);
        let rows = self.snapshot_rows.load(Relaxed);
        self.snapshot_rows_before.store(rows, Relaxed);
        self.snapshot_begun_us.store(now_us(), Relaxed);
    }

    /// So many more tables are complete.
    pub(crate) fn snapshot_tables_read(&self, tables: u64) {
        // If a complete partition is read again, it is none of the tables left.
        let _ = self
            .snapshot_tables_left
            .fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(tables)));
    }

    /// The snapshot has read everything.
    pub(crate) fn snapshot_ends(&self) {
        self.snapshot_ended_us.store(now_us(), Relaxed);
    }
}
