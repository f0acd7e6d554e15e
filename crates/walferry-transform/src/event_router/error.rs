//! Why a change of an outbox table could not become an event.

use walferry_config::RegexLimit;
use walferry_diagnosis::Kind;

use crate::error::TransformFault;

/// A change event that the EventRouter cannot handle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// `table.op.invalid.behavior=fatal`.
    #[error("a row of the outbox table was updated, and table.op.invalid.behavior is fatal")]
    UnexpectedUpdate,
    /// A change event without one of the fields that every envelope has, or with another type in it.
    #[error("the change event has no usable field {0}")]
    Envelope(&'static str),
    /// An outbox table that has id, payload and route columns, but not another configured one.
    #[error("outbox table {table} has no column {column}, which {option} names")]
    MissingColumn {
        /// The name of the row schema.
        table: String,
        /// The column.
        column: String,
        /// The option that names it.
        option: &'static str,
    },
    /// What was an outbox table until now has lost its id, payload or route column.
    #[error("outbox table {table} no longer has {}", described_columns(.missing))]
    NoLongerOutbox {
        /// The name of the row schema.
        table: String,
        /// The columns that it lacks, each with the option that names it.
        missing: Vec<(String, &'static str)>,
    },
    /// A column whose type does not serve its purpose.
    #[error("column {column}, which {option} names, is of type {found}, not {expected}")]
    ColumnType {
        /// The column.
        column: String,
        /// The option that names it.
        option: &'static str,
        /// Connect's type and, in parentheses, its semantic name.
        found: String,
        /// What would do.
        expected: &'static str,
    },
    /// NULL in `route.by.field`: there is no topic to send the row to.
    #[error("column {column}, which route.by.field names, is NULL")]
    NullRoute {
        /// The column.
        column: String,
    },
    /// `walferry.topics.unknown=fail`, or `dead-letter`: the map of topics does not have the type.
    #[error("{}, so walferry.topics has no topic for it", described(.event_type))]
    UnknownType {
        /// The type, cut where it is long; `None` for NULL.
        event_type: Option<String>,
        /// The column of the type.
        column: String,
    },
    /// `walferry.headers.from` names a column that holds something else.
    #[error("column {column}, which walferry.headers.from names, does not contain a JSON object")]
    NotAnObject {
        /// The column.
        column: String,
    },
    /// `walferry.schemas.mismatch` or `walferry.schemas.missing`: the event does not match its schema, or has none.
    #[error("{text}")]
    Schema {
        /// The event, the place in it, and what the schema says. No values of the payload.
        text: String,
        /// What to do.
        hint: &'static str,
        kind: Kind,
    },
    /// An expression for tables or for event types takes too long.
    #[error(transparent)]
    Limit(#[from] RegexLimit),
    /// A column that is to be the partition holds something that is none.
    #[error("column {column} should be the partition, but contains {value}")]
    Partition {
        /// The column.
        column: String,
        /// Its value.
        value: i64,
    },
    /// A column that is to be the timestamp holds something that Kafka cannot take.
    #[error(
        "column {column} should be the timestamp, but contains one that Kafka does not accept (before 1970, or invalid)"
    )]
    Timestamp {
        /// The column.
        column: String,
    },
}

fn described_columns(missing: &[(String, &'static str)]) -> String {
    let columns = missing
        .iter()
        .map(|(column, option)| format!("column {column}, which {option} names"));
    columns.collect::<Vec<_>>().join("; and no ")
}

fn described(event_type: &Option<String>) -> String {
    match event_type {
        Some(event_type) => format!("the event type {event_type:?} is unknown"),
        None => "the event type is NULL".to_owned(),
    }
}

impl Error {
    /// An event whose type the map of topics does not have.
    pub(super) fn unknown_type(event_type: Option<&str>, column: &str) -> Self {
        const LONGEST: usize = 100;
        let name = |event_type: &str| {
            let cut: String = event_type.chars().take(LONGEST).collect();
            if cut.len() < event_type.len() {
                format!("{cut}…")
            } else {
                cut
            }
        };
        Self::UnknownType {
            event_type: event_type.map(name),
            column: column.to_owned(),
        }
    }
}

impl TransformFault for Error {
    fn kind(&self) -> Kind {
        match self {
            Self::Schema { kind, .. } => *kind,
            _ => Kind::TransformFailed,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::UnexpectedUpdate => Some(
                "insert and delete outbox rows, but do not update them; table.op.invalid.behavior=warn drops updates"
                    .into(),
            ),
            Self::MissingColumn { option, .. } if *option == "table.fields.additional.placement" => {
                Some("correct the name, add the column, or set table.field.additional.missing=ignore".into())
            }
            Self::MissingColumn { option, .. } => Some(format!("correct {option}, or add the column")),
            Self::NoLongerOutbox { missing, .. } => {
                let options: Vec<_> = missing.iter().map(|(_, option)| *option).collect();
                let options = options.join(" and ");
                Some(format!(
                    "if the column was renamed, set {options} to its new name (the transform's prefix comes before it); if it was dropped, add \
                     it again, or remove the table from table.include.list"
                ))
            }
            Self::NullRoute { column } => Some(format!(
                "declare {column} NOT NULL, so that no further row comes without it; a predicate of the transform can leave out such rows"
            )),
            Self::Envelope(_) => Some(
                "put the EventRouter before transforms that change the envelope, such as Flatten, or exclude such records with a predicate"
                    .into(),
            ),
            Self::UnknownType {
                event_type: None,
                column,
            } => Some(format!(
                "declare {column} NOT NULL, or choose another value for walferry.topics.unknown: dead-letter, default or route"
            )),
            Self::UnknownType { .. } => Some(
                "add the type to walferry.topics, or choose another value for walferry.topics.unknown: dead-letter, default or route".into(),
            ),
            Self::NotAnObject { .. } => Some(
                "write a JSON object such as {\"traceparent\": \"00-…\"} or NULL to this column, or remove it from walferry.headers.from".into(),
            ),
            Self::Schema { hint, .. } => Some((*hint).to_owned()),
            Self::Limit(limit) => Some(RegexLimit::hint(limit)),
            Self::ColumnType { .. } | Self::Partition { .. } | Self::Timestamp { .. } => None,
        }
    }
}
