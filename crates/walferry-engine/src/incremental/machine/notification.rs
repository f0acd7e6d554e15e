//! Notifications about the progress of a snapshot.

/// A notification, in Debezium's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotNotice {
    /// The id of the signal. `None`: a new id is generated.
    pub id: Option<String>,
    /// `Incremental Snapshot` or `Initial Snapshot`.
    pub aggregate: &'static str,
    /// The kind, such as `STARTED`.
    pub kind: &'static str,
    /// Details, without the connector's name.
    pub data: Vec<(&'static str, String)>,
}

/// The names of the details that are keys of rows.
pub(crate) const KEYS: [&str; 2] = ["maximum_key", "last_processed_key"];

/// Why a table could not be read, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotRead {
    /// The reason, as a clause.
    pub why: String,
    /// What to do.
    pub hint: Option<String>,
}

impl From<String> for NotRead {
    fn from(why: String) -> Self {
        Self { why, hint: None }
    }
}

/// What became of a table of an incremental snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableEnd {
    /// All its rows have been sent.
    Read {
        /// How many were read, as far as this process knows.
        rows: u64,
        /// Whether no condition left rows out.
        is_whole: bool,
    },
    /// It could not be read.
    NotRead(NotRead),
    /// A signal stopped its snapshot.
    Stopped,
}

/// How the scan of a table ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanResult {
    /// The table has no rows.
    Empty,
    /// It cannot be read.
    SqlException,
    /// The whole table was read.
    Succeeded,
    /// The table does not exist.
    UnknownSchema,
}

impl ScanResult {
    const fn status(self) -> &'static str {
        match self {
            Self::Empty => "EMPTY",
            Self::SqlException => "SQL_EXCEPTION",
            Self::Succeeded => "SUCCEEDED",
            Self::UnknownSchema => "UNKNOWN_SCHEMA",
        }
    }
}

const INCREMENTAL: &str = "Incremental Snapshot";

impl SnapshotNotice {
    /// Whether it is about an incremental snapshot.
    pub fn is_incremental(&self) -> bool {
        self.aggregate == INCREMENTAL
    }

    fn incremental(id: Option<String>, kind: &'static str, data: Vec<(&'static str, String)>) -> Self {
        Self {
            id,
            aggregate: INCREMENTAL,
            kind,
            data,
        }
    }

    pub(super) fn started(tables: String, id: Option<String>) -> Self {
        Self::incremental(id, "STARTED", vec![("data_collections", tables)])
    }

    pub(super) fn paused(tables: String, id: Option<String>) -> Self {
        Self::incremental(id, "PAUSED", vec![("data_collections", tables)])
    }

    pub(super) fn resumed(tables: String, id: Option<String>) -> Self {
        Self::incremental(id, "RESUMED", vec![("data_collections", tables)])
    }

    pub(super) fn in_progress(tables: String, id: Option<String>, table: &str, maximum: String, last: String) -> Self {
        let data = vec![
            ("data_collections", tables),
            ("current_collection_in_progress", table.to_owned()),
            (KEYS[0], maximum),
            (KEYS[1], last),
        ];
        Self::incremental(id, "IN_PROGRESS", data)
    }

    pub(super) fn scanned(tables: String, id: Option<String>, table: &str, rows: u64, scan: ScanResult) -> Self {
        let data = vec![
            ("data_collections", tables),
            ("scanned_collection", table.to_owned()),
            ("total_rows_scanned", rows.to_string()),
            ("status", scan.status().to_owned()),
        ];
        Self::incremental(id, "TABLE_SCAN_COMPLETED", data)
    }

    pub(super) fn completed(id: Option<String>) -> Self {
        Self::incremental(id, "COMPLETED", Vec::new())
    }

    pub(super) fn aborted(id: Option<String>, stopped: &[String]) -> Self {
        Self::incremental(id, "ABORTED", vec![("data_collections", stopped.join(","))])
    }

    /// A notification of a snapshot before the stream, or in its place.
    pub fn initial(kind: &'static str, data: Vec<(&'static str, String)>) -> Self {
        Self {
            id: None,
            aggregate: "Initial Snapshot",
            kind,
            data,
        }
    }
}
