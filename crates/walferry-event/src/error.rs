use walferry_diagnosis::{Diagnosis, Kind};

use crate::types::Reason;

/// A change that cannot become records. It never holds a row's value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two columns whose fields have one name.
    #[error("table {table} has two columns that would become the same field {field}")]
    DuplicateField {
        /// `schema.table`.
        table: String,
        /// Name of the field.
        field: String,
    },
    /// A row that is not of the relation's version.
    #[error("a row of table {table} has {have} columns, but its relation has {need}")]
    ColumnCount {
        /// `schema.table`.
        table: String,
        /// Columns of the row.
        have: usize,
        /// Columns of the relation.
        need: usize,
    },
    /// A value that cannot be converted, in a key or with `event.converting.failure.handling.mode=fail`.
    #[error("column {column} of table {table} (type {type_name}): {reason}")]
    Conversion {
        /// `schema.table`.
        table: String,
        /// Name of the column.
        column: String,
        /// Name of its type.
        type_name: String,
        /// What is wrong with the value.
        reason: Reason,
    },
    /// A regular expression that backtracks too much on the name of a table, a column or a message.
    #[error(transparent)]
    Expression(#[from] walferry_config::RegexLimit),
}

impl Error {
    /// The error as a diagnosis: code, text and hint.
    pub fn diagnosis(&self) -> Diagnosis {
        let kind = match self {
            Self::DuplicateField { .. } => Kind::SchemaRefused,
            Self::Expression(_) => Kind::RegexLimit,
            Self::ColumnCount { .. } | Self::Conversion { .. } => Kind::ChangeNotConverted,
        };
        Diagnosis::of(kind, self).with_any_hint(self.hint())
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::DuplicateField { .. } => Some(
                "rename one of the columns, or set `field.name.adjustment.mode` to avro_unicode or none".to_owned(),
            ),
            Self::ColumnCount { .. } => None,
            Self::Expression(limit) => Some(limit.hint()),
            Self::Conversion {
                reason: Reason::SpecialDecimal,
                ..
            } => Some("set `decimal.handling.mode` to string or double".to_owned()),
            Self::Conversion {
                reason: Reason::OutOfRange(_),
                ..
            } => Some("set `time.precision.mode` to microseconds or isostring".to_owned()),
            Self::Conversion {
                reason: Reason::WithoutUtf8(_),
                ..
            } => Some(
                "correct the value in the table; for a change of the stream, which stays as it was written, \
                 `event.converting.failure.handling.mode=warn` leaves such fields of values empty"
                    .to_owned(),
            ),
            Self::Conversion { .. } => {
                Some("`event.converting.failure.handling.mode=warn` leaves such fields of values empty".to_owned())
            }
        }
    }
}
