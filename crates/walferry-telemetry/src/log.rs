//! What log lines contain besides their constant message.

/// A span: a piece of work. Every line that is logged during the span has its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Name.
    pub name: &'static str,
    /// What the span covers.
    pub text: &'static str,
}

/// A field of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// What the field means.
    pub text: &'static str,
}

/// All spans.
pub const SPANS: &[Span] = &[Span {
    name: "connector",
    text: "the life of one connector; `name` is its name",
}];

/// The fields that are logged in several places. They never contain row values, credentials or whole configurations.
pub const FIELDS: &[Field] = &[
    field(
        "code",
        "the code of the kind of error or warning, such as WF0301, which `walferry explain` explains",
    ),
    field("error", "what went wrong, in words"),
    field("error.kind", "the same word as `kind` of `walferry_errors_total`"),
    field("hint", "what to do about it"),
    field("pause_ms", "how long it waits before it tries again, in milliseconds"),
    field("lsn.stored", "position whose offset is durable"),
    field("lsn.confirmed", "position that the server was told"),
    field("lsn.consistent", "position at which a new slot begins"),
    field("slot", "name of the replication slot"),
    field("table", "`schema.table`"),
    field("tables", "number of tables"),
    field("topic", "Kafka topic"),
];

const fn field(name: &'static str, text: &'static str) -> Field {
    Field { name, text }
}
