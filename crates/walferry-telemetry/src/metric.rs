//! The declaration of a metric.

/// How Prometheus reads a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only rises, from nothing at every start of the process.
    Counter,
    /// Counts in buckets; the name stands for `_bucket`, `_sum` and `_count`.
    Histogram,
    /// What the JMX exporter says of Debezium's metrics.
    Untyped,
}

impl Kind {
    /// The word after `# TYPE`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
            Self::Untyped => "untyped",
        }
    }
}

/// One metric of the admin endpoint: the only place where its name and text stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Name, with its unit at the end.
    pub name: &'static str,
    /// How Prometheus reads it.
    pub kind: Kind,
    /// Names of its labels, in the order in which they are written.
    pub labels: &'static [&'static str],
    /// What it says, for `# HELP` and the reference page: plain sentences on one line.
    pub text: &'static str,
    /// The metric of Debezium or Kafka Connect that was read for this until now.
    pub replaces: Option<&'static str>,
}

impl Metric {
    /// A metric without labels.
    pub const fn new(kind: Kind, name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            kind,
            labels: &[],
            text,
            replaces: None,
        }
    }
    /// With labels.
    pub const fn labels(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }
    /// In the place of another program's metric.
    pub const fn replaces(self, other: &'static str) -> Self {
        Self {
            replaces: Some(other),
            ..self
        }
    }
}
