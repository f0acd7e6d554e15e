//! What becomes of a record.

use std::fmt;

use walferry_diagnosis::Kind;
use walferry_record::{Record, Wait};

/// The result of a transform.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome<'a> {
    /// Goes on down the chain.
    Record(Record<'a>),
    /// Ends here, on purpose; to be counted.
    Dropped(DropReason),
    /// Must not be sent to its topic. The whole record goes to the dead-letter topic.
    SetAside(Box<SetAside<'a>>),
    /// Needs something that is not available yet. The record is unchanged.
    Waits(WaitingRecord<'a>),
}

/// A record for the dead-letter topic, and why. Its own topic is still the one before the transform.
#[derive(Debug, Clone, PartialEq)]
pub struct SetAside<'a> {
    /// The record, complete but for its topic.
    pub record: Record<'a>,
    /// Why it cannot go on.
    pub why: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The kind of the diagnosis.
    pub kind: Kind,
    /// Whether this is a failure of the transform, because its options do not set such records aside. Then the dead-letter topic gets
    /// the record only where errors are tolerated.
    pub is_failure: bool,
    /// Name of the transform. The chain sets it.
    pub transform: String,
}

/// Events of one type that did not match their schema, or had none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatched {
    /// The type, cut if it is long; or [`Self::NULL`] or [`Self::OTHER`].
    pub event_type: String,
    /// How many.
    pub events: u64,
    /// Whether they were sent nevertheless. Otherwise the connector has stopped, or the dead-letter topic has them.
    pub is_sent: bool,
    /// What was wrong with the first of them. No values of its payload.
    pub why: String,
}

impl Mismatched {
    /// In place of a type that is NULL.
    pub const NULL: &str = "(NULL)";
    /// In place of types beyond those that are counted apart.
    pub const OTHER: &str = "(other)";
}

/// A record that a transform cannot handle yet.
#[derive(Debug, Clone, PartialEq)]
pub struct WaitingRecord<'a> {
    /// The record, as the transform has got it.
    pub record: Record<'a>,
    /// What it waits for.
    pub wait: Wait,
    /// Index of the transform in the chain, where the chain continues later. The chain sets it.
    pub step: usize,
}

impl<'a> WaitingRecord<'a> {
    /// A record that waits.
    pub const fn new(record: Record<'a>, wait: Wait) -> Self {
        Self { record, wait, step: 0 }
    }
}

/// Why a record was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DropReason {
    /// A tombstone that a transform does not let pass.
    Tombstone,
    /// A row was deleted from the outbox table.
    Delete,
    /// The outbox table was truncated.
    Truncate,
    /// A row of the outbox table was updated, and `table.op.invalid.behavior` lets that pass.
    InvalidOperation,
    /// A `Filter` of Kafka, Debezium or Confluent.
    Filtered,
}

impl DropReason {
    /// Every reason, for metrics that start at zero.
    pub const ALL: [Self; 5] = [
        Self::Tombstone,
        Self::Delete,
        Self::Truncate,
        Self::InvalidOperation,
        Self::Filtered,
    ];

    /// The word that metrics and logs use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tombstone => "tombstone",
            Self::Delete => "delete",
            Self::Truncate => "truncate",
            Self::InvalidOperation => "invalid_operation",
            Self::Filtered => "filtered",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
