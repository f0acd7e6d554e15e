//! What a record comes from.

use walferry_pgoutput::Operation;

/// What a record comes from. The names are those of Debezium's `messageType` in the source offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageType {
    /// A row was inserted.
    Insert,
    /// A row was updated.
    Update,
    /// A row was deleted.
    Delete,
    /// A table was truncated.
    Truncate,
    /// A logical message, by `pg_logical_emit_message`.
    Message,
    /// A row that was read from a table.
    Read,
    /// The begin or the end of a transaction. Never in an offset.
    Transaction,
    /// Never in an offset.
    Heartbeat,
    /// Never in an offset.
    Notification,
}

impl MessageType {
    /// The name in the source offset.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Truncate => "TRUNCATE",
            Self::Message => "MESSAGE",
            Self::Read => "READ",
            Self::Transaction => "TRANSACTION",
            Self::Heartbeat => "HEARTBEAT",
            Self::Notification => "NOTIFICATION",
        }
    }

    /// Whether it is a message of the stream, and so has a place in a transaction.
    pub(crate) const fn is_of_stream(self) -> bool {
        matches!(
            self,
            Self::Insert | Self::Update | Self::Delete | Self::Truncate | Self::Message
        )
    }
}

impl From<&Operation<'_>> for MessageType {
    fn from(operation: &Operation<'_>) -> Self {
        match operation {
            Operation::Insert { .. } => Self::Insert,
            Operation::Update { .. } => Self::Update,
            Operation::Delete { .. } => Self::Delete,
        }
    }
}
