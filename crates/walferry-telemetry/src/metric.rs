//! The declaration of a metric.

/// The Prometheus type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    /// A value that goes up and down.
    Gauge,
    /// A value that only rises. It starts at zero with the process.
    Counter,
    /// Counts in buckets. The name gets the suffixes `_bucket`, `_sum` and `_count`.
    Histogram,
    /// The type that the JMX exporter gives Debezium's metrics.
    Untyped,
}

impl MetricType {
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

/// One metric of the admin endpoint. Its name and text are declared only here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Name, with its unit at the end.
    pub name: &'static str,
    /// Its Prometheus type.
    pub kind: MetricType,
    /// The names of its labels, in the order of the output.
    pub labels: &'static [&'static str],
    /// What it means: plain sentences on one line, for `# HELP` and the reference page.
    pub text: &'static str,
    /// The metric of Debezium or Kafka Connect that it replaces.
    pub replaces: Option<&'static str>,
}

impl Metric {
    /// A metric without labels.
    pub const fn new(kind: MetricType, name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            kind,
            labels: &[],
            text,
            replaces: None,
        }
    }
    /// Adds labels.
    pub const fn labels(self, labels: &'static [&'static str]) -> Self {
        Self { labels, ..self }
    }
    /// Names the metric of Debezium or Kafka Connect that it replaces.
    pub const fn replaces(self, other: &'static str) -> Self {
        Self {
            replaces: Some(other),
            ..self
        }
    }
}
