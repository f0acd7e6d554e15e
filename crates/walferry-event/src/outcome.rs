//! What a change became.

use walferry_record::Record;

use crate::reselect::RowLookup;
use crate::types::Reason;

/// What a change became.
#[derive(Debug, Default)]
pub struct ChangeOutcome<'a> {
    /// The records, in order. There are several if a delete sends a tombstone, or if the key has changed.
    pub records: Records<'a>,
    /// Why there is no record.
    pub skipped: Option<Skipped>,
    /// Whether `skipped.operations` has dropped one of the records. There may be others: a changed key causes a delete
    /// and a create.
    pub left_out: bool,
    /// Fields that are empty because their values could not be converted.
    pub failures: Vec<UnconvertedField>,
    /// Columns that are null in the row, although they are NOT NULL by now. Their fields have a value that stands for null.
    pub made_up: Vec<String>,
    /// What must be read from the database before the last record goes on.
    pub lookups: Vec<RowLookup>,
}

impl ChangeOutcome<'_> {
    pub(crate) fn skipped(why: Skipped) -> Self {
        Self {
            skipped: Some(why),
            ..Self::default()
        }
    }
}

/// Up to three records. Nearly always there is one, which needs no allocation.
#[derive(Debug, Default)]
pub struct Records<'a> {
    first: Option<Record<'a>>,
    more: Vec<Record<'a>>,
}

impl<'a> Records<'a> {
    pub(crate) fn push(&mut self, record: Record<'a>) {
        match &self.first {
            None => self.first = Some(record),
            Some(_) => self.more.push(record),
        }
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

impl<'a> IntoIterator for Records<'a> {
    type Item = Record<'a>;
    type IntoIter = std::iter::Chain<std::option::IntoIter<Record<'a>>, std::vec::IntoIter<Record<'a>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.more)
    }
}

/// Why a change has no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Skipped {
    /// The lists of schemas and tables exclude the table.
    Table,
    /// `skipped.operations`.
    Operation,
    /// `skip.messages.without.change`: no column of the record has changed.
    Unchanged,
}

impl Skipped {
    /// The word for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table_filter",
            Self::Operation => "skipped_operation",
            Self::Unchanged => "unchanged",
        }
    }
}

/// A field that is empty because its value could not be converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnconvertedField {
    /// Name of the column.
    pub column: String,
    /// Name of its type.
    pub type_name: String,
    /// What is wrong with the value.
    pub reason: Reason,
    /// Whether `event.converting.failure.handling.mode` asks for a warning.
    pub warn: bool,
}
