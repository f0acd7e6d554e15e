//! How far an incremental snapshot is, and how much is left: what people see of it.

use std::collections::BTreeMap;

use crate::incremental::machine::{Incremental, SnapshotNotice};
use tracing::info;

use crate::status::{IncrementalProgress, Status};

/// How often the log says how far the snapshot is.
const LOGGED_EVERY_NS: i64 = 30_000_000_000;

/// How many tables' rows are estimated at once, and shown.
const MOST_TABLES: usize = 1000;

/// What is known about the number of rows.
#[derive(Debug, Default)]
pub(crate) struct Estimates {
    /// The table that is being read, and how many rows it will have given in the end.
    current: Option<(String, u64)>,
    /// Rows of tables that are read later. `None`: there are no statistics.
    later: BTreeMap<String, Option<u64>>,
    /// The tables of which the number of rows was asked for last.
    asked: Vec<String>,
    /// When the log had it last.
    logged_ns: i64,
    /// The table that was reported last, and its rows that this process has read.
    reported: Option<(String, u64)>,
    /// Rows that this process has read of the tables before it.
    rows_before: u64,
    /// Whether the last thing that happened to the snapshot was that a signal stopped a table.
    was_stopped: bool,
    /// Whether a table could not be read.
    has_failed: bool,
}

impl Estimates {
    /// The tables of the queue of which the number of rows was never asked for. Asked with the first chunk of a table.
    pub(crate) fn unknown(&mut self, snapshot: &Incremental) -> Vec<String> {
        let mut tables = snapshot.tables();
        if tables.next().is_none_or(|table| self.of_current(table).is_some()) {
            return Vec::new();
        }
        let unknown = tables.filter(|table| !self.later.contains_key(*table));
        self.asked = unknown.take(MOST_TABLES).map(str::to_owned).collect();
        self.asked.clone()
    }

    /// A chunk says how many rows there were before it was read. `rows` have been read of the table before this chunk.
    pub(crate) fn learn(&mut self, table: &str, rows: u64, left: Option<u64>, others: Vec<(String, u64)>) {
        if let Some(left) = left {
            self.later.extend(self.asked.drain(..).map(|table| (table, None)));
            self.later
                .extend(others.into_iter().map(|(table, rows)| (table, Some(rows))));
            info!(
                table,
                rows_left = left,
                "an incremental snapshot reads the table; the number of rows is Postgres's estimate"
            );
            self.current = Some((table.to_owned(), rows + left));
        }
    }

    /// Logs the progress at intervals.
    pub(crate) fn log_progress(&mut self, snapshot: &Incremental, now_ns: i64) {
        let Some(table) = snapshot.tables().next() else { return };
        if self.logged_ns == 0 {
            self.logged_ns = now_ns;
        }
        if now_ns - self.logged_ns < LOGGED_EVERY_NS {
            return;
        }
        self.logged_ns = now_ns;
        info!(
            table,
            rows = snapshot.rows(),
            rows_estimate = self.of_current(table),
            tables_left = snapshot.tables().count(),
            "an incremental snapshot is running"
        );
    }

    /// How the snapshot ends is in its last notification.
    pub(crate) fn notified(&mut self, notice: &SnapshotNotice) {
        if notice.is_incremental() {
            self.was_stopped = notice.kind == "ABORTED";
        }
    }

    /// A table could not be read.
    pub(crate) const fn table_failed(&mut self) {
        self.has_failed = true;
    }

    fn of_current(&self, table: &str) -> Option<u64> {
        let (known, rows) = self.current.as_ref()?;
        (known == table).then_some(*rows)
    }

    /// Shows the progress in the status.
    pub(crate) fn report(&mut self, snapshot: &Incremental, status: &Status) {
        let Some(table) = snapshot.tables().next() else {
            let is_complete = !self.was_stopped && !self.has_failed;
            *self = Self::default();
            status.end_incremental(is_complete);
            return;
        };
        let (rows, tables_left) = (snapshot.rows(), snapshot.tables().count());
        let rows_of_process = snapshot.rows_of_process();
        match &self.reported {
            Some((before, rows)) if before != table => self.rows_before += rows,
            _ => {}
        }
        self.reported = Some((table.to_owned(), rows_of_process));
        let estimate = self.of_current(table);
        let current = estimate.map(|estimate| (table.to_owned(), estimate.saturating_sub(rows)));
        // The queue may be very long, and this is done for each chunk.
        let later = snapshot.tables().skip(1).take(MOST_TABLES);
        let later = later.filter_map(|table| Some((table.to_owned(), (*self.later.get(table)?)?)));
        status.set_incremental(IncrementalProgress {
            table: table.to_owned(),
            rows,
            rows_estimate: estimate,
            rows_of_process: self.rows_before + rows_of_process,
            rows_left: current.into_iter().chain(later).collect(),
            tables: snapshot.tables_done().saturating_add(tables_left),
            tables_left,
            is_paused: snapshot.is_paused(),
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::incremental::machine::{ChunkAnswer, Key, Signal};

    use super::*;

    fn key(text: &str) -> Key {
        Key::new([(Some(text.to_owned()), walferry_pgoutput::Oid(23))])
    }

    fn rows(rows: u64, last: &str) -> ChunkAnswer {
        ChunkAnswer::Rows {
            rows,
            last: Some(key(last)),
            maximum: key("90"),
            stale: false,
        }
    }

    #[test]
    fn the_progress_follows_the_tables_of_the_snapshot() {
        let (mut snapshot, mut estimates) = (Incremental::default(), Estimates::default());
        let status = Status::new("c", "s");
        let mut number = 0;
        let mut id = move || {
            number += 1;
            format!("chunk-{number}")
        };
        let signal = |id: &str, kind: &str, data: &str| Signal {
            id: id.to_owned(),
            kind: kind.to_owned(),
            data: data.to_owned(),
        };
        let names = ["p.a", "p.b", "p.c"].map(str::to_owned);
        let data = r#"{"data-collections": ["p.a", "p.b", "p.c"]}"#;
        snapshot.signal(signal("s", "execute-snapshot", data), &mut id);
        snapshot.answer(
            ChunkAnswer::Tables(names.iter().map(|name| vec![name.clone()]).collect()),
            &mut id,
        );
        assert_eq!(estimates.unknown(&snapshot), names[1..]);
        snapshot.answer(ChunkAnswer::Key(None), &mut id);
        estimates.learn("p.a", snapshot.rows(), Some(30), vec![("p.b".to_owned(), 70)]);
        snapshot.answer(rows(10, "10"), &mut id);
        assert_eq!(estimates.unknown(&snapshot), [""; 0], "p.c has no statistics");
        estimates.report(&snapshot, &status);
        let progress_of = |status: &Status| status.incremental().map(|(progress, _)| progress).expect("it runs");
        let progress = progress_of(&status);
        assert_eq!(
            (progress.rows, progress.rows_estimate, progress.rows_of_process),
            (10, Some(30), 10)
        );
        assert_eq!(progress.rows_left, [("p.a".to_owned(), 20), ("p.b".to_owned(), 70)]);
        assert_eq!((progress.tables, progress.tables_left), (3, 3));

        // The table ends with an empty chunk.
        for kind in ["snapshot-window-open", "snapshot-window-close"] {
            snapshot.signal(signal("chunk-1", kind, ""), &mut id);
        }
        snapshot.answer(ChunkAnswer::Key(None), &mut id);
        snapshot.answer(
            ChunkAnswer::Rows {
                rows: 0,
                last: None,
                maximum: key("90"),
                stale: false,
            },
            &mut id,
        );
        snapshot.answer(ChunkAnswer::Key(None), &mut id);
        assert_eq!(estimates.unknown(&snapshot), [""; 0], "all were asked for");
        estimates.learn("p.b", snapshot.rows(), Some(50), Vec::new());
        snapshot.answer(rows(5, "5"), &mut id);
        estimates.report(&snapshot, &status);
        let progress = progress_of(&status);
        assert_eq!(
            (progress.rows, progress.rows_estimate, progress.rows_of_process),
            (5, Some(50), 15)
        );
        assert_eq!(progress.rows_left, [("p.b".to_owned(), 45)]);
        assert_eq!((progress.tables, progress.tables_left), (3, 2));

        estimates.report(&Incremental::default(), &status);
        assert_eq!(status.incremental(), None);
        assert!(status.last_incremental().is_some_and(|last| last.is_complete));
    }

    #[test]
    fn a_very_long_queue_is_shown_in_part() {
        let (mut snapshot, mut estimates) = (Incremental::default(), Estimates::default());
        let status = Status::new("c", "s");
        let mut id = || "chunk".to_owned();
        let names: Vec<_> = (0..3 * MOST_TABLES).map(|number| format!("p.t{number}")).collect();
        let signal = Signal {
            id: "s".to_owned(),
            kind: "execute-snapshot".to_owned(),
            data: r#"{"data-collections": ["p.*"]}"#.to_owned(),
        };
        snapshot.signal(signal, &mut id);
        snapshot.answer(ChunkAnswer::Tables(vec![names.clone()]), &mut id);
        let others = names.iter().skip(1).map(|name| (name.clone(), 10)).collect();
        estimates.learn("p.t0", snapshot.rows(), Some(30), others);
        estimates.report(&snapshot, &status);
        let (progress, _) = status.incremental().expect("it runs");
        assert_eq!(progress.tables_left, names.len());
        assert_eq!(progress.rows_left.len(), 1 + MOST_TABLES);
        assert_eq!(progress.rows_left.first(), Some(&("p.t0".to_owned(), 30)));
    }
}
