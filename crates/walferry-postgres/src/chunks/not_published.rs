//! Why the stream does not bring the rows of the signal table.

/// A signal has so many columns: an id, a type and data.
pub(super) const COLUMNS: i32 = 3;

/// Why the stream does not bring all rows of the signal table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotPublished {
    /// There is no such table.
    NoTable,
    /// The publication does not contain it.
    NotIn,
    /// The publication leaves out this operation. With it, the setting would be the last word.
    Operation(&'static str, String),
    /// The publication has this row filter on it.
    RowFilter(String),
    /// The publication sends so many of its columns.
    Columns(i32),
}

impl NotPublished {
    /// The text of the error. The names are quoted.
    pub(crate) fn text(&self, table: &str, publication: &str) -> String {
        match self {
            Self::NoTable => format!("the signal table {table} does not exist"),
            Self::NotIn => format!(
                "publication {publication} does not publish the signal table {table}, so the stream does not bring its rows"
            ),
            Self::Operation(operation, _) => format!(
                "publication {publication} does not publish {operation}s, so the stream does not bring those of the signal table {table}"
            ),
            Self::RowFilter(filter) => format!(
                "publication {publication} sends only rows of the signal table {table} that match {filter}; all others are not seen"
            ),
            Self::Columns(count) => format!(
                "publication {publication} sends {count} columns of the signal table {table}, but a signal has {COLUMNS}: an id, a type and data"
            ),
        }
    }

    pub(crate) fn hint(&self, table: &str, publication: &str) -> String {
        match self {
            Self::NoTable => format!(
                "correct `signal.data.collection`, or run: CREATE TABLE {table} (id varchar(64) PRIMARY KEY, type varchar(32) NOT NULL, data \
                 varchar(2048))"
            ),
            // Without an identity, Postgres would refuse to delete signals from then on.
            Self::NotIn => format!(
                "ALTER PUBLICATION {publication} ADD TABLE {table}; if the table has no primary key and signals are deleted from it, before that: \
                 ALTER TABLE {table} REPLICA IDENTITY FULL"
            ),
            Self::Operation(_, publish) => format!(
                "ALTER PUBLICATION {publication} SET (publish = '{publish}'); if consumers are not to get them from other tables, set \
                 `skipped.operations`"
            ),
            // To take the table out of the publication and add it again would count as a gap.
            Self::RowFilter(_) | Self::Columns(_) => format!(
                "create another table with three columns, run ALTER PUBLICATION {publication} ADD TABLE for it, and name it in \
                 `signal.data.collection` in place of {table}"
            ),
        }
    }
}
