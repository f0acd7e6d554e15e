//! Counts of the pipeline since the last report.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::Relaxed,
};

use tracing::{info, warn};
use walferry_event::{Notification, UnconvertedField as Unconverted};
use walferry_pgoutput::Lsn;

use crate::message_type::MessageType;
use crate::status::{Status, TableChange};

/// Plain numbers. Once per chunk they are added to the shared counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) heartbeats: u64,
    /// Notifications that the admin endpoint shows.
    pub(crate) notifications: Vec<Notification>,
    /// Rows of the snapshot by table. Usually there is only one table.
    snapshot_rows: Vec<(String, u64)>,
    snapshot_tables: u64,
    /// Rows that a snapshot will read, as the server estimates it; set when a snapshot begins.
    snapshot_rows_left: Option<u64>,
    changes: [u64; 4],
    transactions: u64,
    unconverted: u64,
    /// Events that were sent although their columns could not be read again.
    not_reselected: u64,
    /// Records that were given to the batch.
    pub(crate) records: u64,
    /// Records that were set aside.
    pub(crate) set_aside: u64,
    /// Rows that yielded no record, by reason.
    skipped: BTreeMap<&'static str, u64>,
    last_lsn: Lsn,
    last_change_us: i64,
    last_commit_us: i64,
    begun_commit_us: i64,
    /// Captured tables whose columns have changed.
    table_changes: Vec<TableChange>,
    /// Columns whose values could not be converted. Each is logged once.
    warned: BTreeSet<(String, String)>,
    /// Tables whose rows could not be read again, and why. Each is logged once.
    warned_rows: BTreeSet<(String, String)>,
    /// Tables whose rows have nulls where there should be none. Each is logged once.
    warned_made_up: BTreeSet<String>,
}

impl Counts {
    pub(crate) fn change(&mut self, message: MessageType, lsn: Lsn, now_ns: i64) {
        let index = match message {
            MessageType::Insert => 0,
            MessageType::Update => 1,
            MessageType::Delete => 2,
            _ => 3,
        };
        self.changes[index] += 1;
        self.last_lsn = lsn;
        self.last_change_us = now_ns / 1000;
    }

    pub(crate) fn snapshot_row(&mut self, table: &str) {
        match self.snapshot_rows.iter_mut().rev().find(|(name, _)| name == table) {
            Some((_, rows)) => *rows += 1,
            None => self.snapshot_rows.push((table.to_owned(), 1)),
        }
    }

    pub(crate) const fn snapshot_begin(&mut self, rows_left: u64) {
        self.snapshot_rows_left = Some(rows_left);
    }

    pub(crate) const fn snapshot_table(&mut self) {
        self.snapshot_tables += 1;
    }

    pub(crate) const fn begin(&mut self, commit_us: i64) {
        self.begun_commit_us = commit_us;
    }

    pub(crate) fn commit(&mut self, time_us: i64) {
        self.transactions += 1;
        self.last_commit_us = time_us;
    }

    /// Counts a row that yields no record, by reason.
    pub(crate) fn skip(&mut self, reason: &'static str) {
        *self.skipped.entry(reason).or_default() += 1;
    }

    /// Counts fields that are empty because their values could not be converted.
    pub(crate) fn unconverted(&mut self, table: &str, failures: &[Unconverted]) {
        for failure in failures {
            self.unconverted += 1;
            let column = (table.to_owned(), failure.column.clone());
            if failure.warn && self.warned.insert(column) {
                warn!(
                    table,
                    column = failure.column,
                    column.r#type = failure.type_name,
                    reason = %failure.reason,
                    code = walferry_diagnosis::Kind::UnconvertedValue.code(),
                    "a value could not be converted and is sent empty: as null, or as an empty value if the column is NOT NULL; further values of this \
                     column are only counted"
                );
            }
        }
    }

    /// Tells, once for each table, that fields have a value that nobody has written.
    pub(crate) fn made_up(&mut self, table: &str, columns: &[String]) {
        let Some(column) = columns.first() else { return };
        if self.warned_made_up.insert(table.to_owned()) {
            warn!(
                table,
                column,
                hint = "the column was nullable when the row was written, or its constraint is NOT VALID: set the rows that are null to a value, \
                        then ALTER TABLE … VALIDATE CONSTRAINT",
                "a null in a column that is NOT NULL by now is sent as an empty value (0, \"\", false), as by Debezium; further ones of this \
                 table are not told"
            );
        }
    }

    /// Counts an event whose columns could not be read again.
    pub(crate) fn not_reselected(&mut self, table: &str, why: &str) {
        self.not_reselected += 1;
        if self.warned_rows.insert((table.to_owned(), why.to_owned())) {
            warn!(
                table,
                reason = why,
                "an event is sent unchanged, because its columns could not be read again; further events are only counted"
            );
        }
    }

    /// The stream describes a captured table with other columns than before.
    pub(crate) fn table_changed(&mut self, change: TableChange) {
        info!(
            table = change.table,
            columns = change.columns,
            "the columns of a captured table have changed; further records have the new schema"
        );
        self.table_changes.push(change);
    }

    pub(crate) fn report(&mut self, status: &Status) {
        let counters = &status.counters;
        let add = |counter: &std::sync::atomic::AtomicU64, n: &mut u64| {
            if *n > 0 {
                counter.fetch_add(std::mem::take(n), Relaxed);
            }
        };
        let [inserts, updates, deletes, truncates] = &mut self.changes;
        let mut all = *inserts + *updates + *deletes + *truncates;
        add(&counters.changes, &mut all);
        add(&counters.inserts, inserts);
        add(&counters.updates, updates);
        add(&counters.deletes, deletes);
        add(&counters.truncates, truncates);
        add(&counters.transactions, &mut self.transactions);
        if let Some(left) = self.snapshot_rows_left.take() {
            let all = counters.snapshot_rows.load(Relaxed) + left;
            counters.snapshot_rows_estimate.store(all, Relaxed);
        }
        for (table, mut rows) in self.snapshot_rows.drain(..) {
            status.count_snapshot_rows(&table, rows);
            add(&counters.snapshot_rows, &mut rows);
        }
        for change in self.table_changes.drain(..) {
            status.table_changed(change);
        }
        for notification in self.notifications.drain(..) {
            status.notify(notification);
        }
        if std::mem::take(&mut self.heartbeats) > 0 {
            status.heartbeat_sent.notify_one();
        }
        add(&counters.records, &mut self.records);
        add(&counters.set_aside, &mut self.set_aside);
        while let Some((reason, rows)) = self.skipped.pop_first() {
            status.count_skipped(reason, rows);
        }
        for _ in 0..std::mem::take(&mut self.unconverted) {
            status.count_error(walferry_diagnosis::Kind::UnconvertedValue);
        }
        for _ in 0..std::mem::take(&mut self.not_reselected) {
            status.count_error(walferry_diagnosis::Kind::RowNotReselected);
        }
        if self.snapshot_tables > 0 {
            counters.snapshot_tables_read(std::mem::take(&mut self.snapshot_tables));
        }
        if self.last_change_us > 0 {
            counters.received_lsn.store(self.last_lsn.0, Relaxed);
            counters.last_change_us.store(self.last_change_us, Relaxed);
        }
        if self.last_commit_us > 0 {
            counters.last_commit_us.store(self.last_commit_us, Relaxed);
        }
        if self.begun_commit_us > 0 {
            counters.begun_commit_us.store(self.begun_commit_us, Relaxed);
        }
    }
}
