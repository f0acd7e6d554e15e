//! An outbox table whose rows are removed.

use std::time::Duration;

use walferry_postgres::quote::{identifier, literal};

pub(super) const DOING: &str = "removing delivered rows of an outbox";
pub(super) const LOOKING: &str = "looking for delivered rows of an outbox";

/// An outbox table whose rows are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CleanedTable {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The column that tells how old a row is.
    pub column: String,
    /// How old a row must be.
    pub keep: Duration,
    /// How many rows one statement removes at most.
    pub batch_rows: u32,
    /// A column and the values of it that rows must have, as text.
    pub status: Option<(String, Vec<String>)>,
    /// Whether partitions are dropped whole where possible.
    pub drops_partitions: bool,
}

impl CleanedTable {
    /// SQL for whether a row has a status with which it may be removed.
    pub(super) fn is_over(&self) -> String {
        let Some((column, values)) = &self.status else {
            return "true".to_owned();
        };
        let values: Vec<_> = values.iter().map(|value| literal(value)).collect();
        format!("{}::text IN ({})", identifier(column), values.join(", "))
    }

    /// For the log.
    pub(super) fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}
