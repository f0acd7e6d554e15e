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

/// The name of the span of a connector's run.
pub const RUN: &str = "run";
/// The name of the span of what is done beside a connector's run.
pub const BESIDE: &str = "beside";

/// All spans. Both have the field `connector`.
pub const SPANS: &[Span] = &[
    Span {
        name: RUN,
        text: "what a connector does while it runs; `connector` is its name",
    },
    Span {
        name: BESIDE,
        text: "what is done for a connector whether or not it runs, such as watching its slot; `connector` is its name",
    },
];

/// The fields that are logged in several places. They never contain row values, credentials or whole configurations.
pub const FIELDS: &[Field] = &[
    field(
        "code",
        "the code of the error or warning, such as WF0301; `walferry explain CODE` prints its page",
    ),
    field("error", "the error message"),
    field("error.kind", "the same word as `kind` of `walferry_errors_total`"),
    field("hint", "what to do about it"),
    field("pause_ms", "the pause before the next retry, in milliseconds"),
    field("lsn.stored", "the position whose offset is durable"),
    field("lsn.confirmed", "the position that was confirmed to the server"),
    field("lsn.consistent", "the position at which a new slot starts"),
    field("slot", "the name of the replication slot"),
    field("table", "`schema.table`"),
    field("tables", "the number of tables"),
    field("topic", "the Kafka topic"),
];

const fn field(name: &'static str, text: &'static str) -> Field {
    Field { name, text }
}
