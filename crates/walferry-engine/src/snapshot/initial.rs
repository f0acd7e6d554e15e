//! Notifications of a snapshot before the stream, or in its place.

use crate::incremental::machine::SnapshotNotice;
use walferry_pgoutput::Oid;
use walferry_record::java::hash;

/// An event of the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SnapshotEvent {
    /// These tables will be read.
    Begin(Vec<(Oid, String)>),
    /// Rows of this table follow.
    Table(Oid),
    /// A part of this table is complete, and perhaps the whole table.
    Part(Oid, bool),
    /// All tables have been read.
    End,
    /// The snapshot was given up.
    GivenUp,
    /// The stream begins.
    Stream,
}

/// The notified state of the snapshot.
#[derive(Debug, Default)]
pub(crate) struct InitialNotices {
    /// `schema.table` of the signal table. It is one of the captured tables, but is never read.
    signals: Option<String>,
    tables: Vec<(Oid, String)>,
    /// The tables for which a notification says that they are being read.
    begun: Vec<Oid>,
    /// Number of rows of the present table.
    rows: u64,
    /// Whether there has been a snapshot.
    has_read: bool,
    /// Whether the stream has begun. If so, a snapshot is a blocking one.
    has_begun: bool,
}

impl InitialNotices {
    pub(crate) fn new(signals: Option<String>) -> Self {
        Self {
            signals,
            ..Self::default()
        }
    }

    /// A row of the present table.
    pub(crate) const fn row(&mut self) {
        self.rows += 1;
    }

    /// What to notify.
    pub(crate) fn notices(&mut self, event: SnapshotEvent) -> Vec<SnapshotNotice> {
        let mut out = Vec::new();
        match event {
            SnapshotEvent::Begin(tables) => {
                (self.tables, self.has_read, self.rows) = (tables, true, 0);
                self.begun.clear();
                out.push(SnapshotNotice::initial("STARTED", Vec::new()));
            }
            SnapshotEvent::Table(oid) => self.begin(oid, &mut out),
            SnapshotEvent::Part(oid, completes) => {
                self.begin(oid, &mut out);
                if let Some(table) = self.name(oid).filter(|_| completes) {
                    let mut all: Vec<&str> = self.tables.iter().map(|(_, name)| &**name).collect();
                    let signals = self.signals.as_deref().filter(|_| !self.has_begun);
                    all.extend(signals.filter(|signals| !all.contains(signals)));
                    let data = vec![
                        ("scanned_collection", table),
                        ("data_collections", all.join(",")),
                        ("total_rows_scanned", self.rows.to_string()),
                        ("status", "SUCCEEDED".to_owned()),
                    ];
                    out.push(SnapshotNotice::initial("TABLE_SCAN_COMPLETED", data));
                    self.rows = 0;
                }
            }
            SnapshotEvent::End => out.push(SnapshotNotice::initial("COMPLETED", Vec::new())),
            SnapshotEvent::GivenUp => out.push(SnapshotNotice::initial("ABORTED", Vec::new())),
            SnapshotEvent::Stream => {
                self.has_begun = true;
                if !self.has_read {
                    out.push(SnapshotNotice::initial("SKIPPED", Vec::new()));
                }
            }
        }
        out
    }

    fn name(&self, oid: Oid) -> Option<String> {
        self.tables
            .iter()
            .find(|(table, _)| *table == oid)
            .map(|(_, name)| name.clone())
    }

    fn begin(&mut self, oid: Oid, out: &mut Vec<SnapshotNotice>) {
        if self.begun.contains(&oid) {
            return;
        }
        self.begun.push(oid);
        let Some(table) = self.name(oid) else { return };
        let mut all: Vec<&str> = self.tables.iter().map(|(_, name)| &**name).collect();
        hash::sort(&mut all, hash::CAPACITY, |name| hash::of_text(name));
        let data = vec![
            ("current_collection_in_progress", table),
            ("data_collections", all.join(",")),
        ];
        out.push(SnapshotNotice::initial("IN_PROGRESS", data));
    }
}
