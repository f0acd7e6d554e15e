//! Prometheus' text format, version 0.0.4.
//!
//! There is no metrics library here, because it would keep everything twice: the values are kept elsewhere, and names, types and texts
//! come from the table in `walferry-telemetry`.

use std::fmt::{self, Display, Write as _};

use walferry_diagnosis::printed;
use walferry_telemetry::Metric;

use crate::otlp::Points;

/// `Content-Type` of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics while they are written.
#[derive(Debug)]
pub(crate) enum Exposition {
    /// For Prometheus.
    Text(String),
    /// For an OpenTelemetry collector.
    Points(Points),
}

/// Collects the samples of one metric. A metric without samples is not written.
pub(crate) struct Samples<'a> {
    out: &'a mut Exposition,
    metric: &'a Metric,
    written: bool,
}

impl Default for Exposition {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl Exposition {
    /// Writes one metric with all its samples.
    pub(crate) fn metric(&mut self, metric: &Metric, write: impl FnOnce(&mut Samples<'_>)) {
        write(&mut Samples {
            out: self,
            metric,
            written: false,
        });
    }

    /// The text. Empty if it is not text that was written.
    pub(crate) fn finish(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Points(_) => String::new(),
        }
    }
}

impl Samples<'_> {
    /// A sample; `values` are those of the metric's labels, in their order.
    pub(crate) fn add(&mut self, values: &[&str], value: impl Display) {
        if let Exposition::Points(points) = self.out {
            // Every value is a number.
            if let Ok(value) = value.to_string().parse() {
                points.number(self.metric, values, value);
            }
            return;
        }
        self.line("", values, None, value);
    }

    /// A histogram: the count in each bucket, of which the last has no bound.
    pub(crate) fn add_histogram(&mut self, values: &[&str], bounds: &[f64], counts: &[u64], sum: f64) {
        if let Exposition::Points(points) = self.out {
            points.histogram(self.metric, values, bounds, counts, sum);
            return;
        }
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let mut cumulated = 0;
        for (bound, count) in bounds.zip(counts) {
            cumulated += count;
            let bound = if bound.is_finite() {
                bound.to_string()
            } else {
                "+Inf".into()
            };
            self.line("_bucket", values, Some(("le", &bound)), cumulated);
        }
        self.line("_sum", values, None, sum);
        self.line("_count", values, None, cumulated);
    }

    fn line(&mut self, suffix: &str, values: &[&str], more: Option<(&str, &str)>, value: impl Display) {
        debug_assert_eq!(values.len(), self.metric.labels.len(), "{}", self.metric.name);
        let Metric {
            name, kind, text: help, ..
        } = self.metric;
        let Exposition::Text(text) = &mut *self.out else { return };
        if !self.written {
            self.written = true;
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {}", kind.word());
        }
        let _ = write!(text, "{name}{suffix}");
        let labels = self
            .metric
            .labels
            .iter()
            .copied()
            .zip(values.iter().copied())
            .chain(more);
        let mut before = '{';
        for (label, value) in labels {
            let _ = write!(text, "{before}{label}=\"{}\"", Escaped(value));
            before = ',';
        }
        let end = if before == '{' { "" } else { "}" };
        let _ = writeln!(text, "{end} {value}");
    }
}

/// A label's value, escaped as the format requires. The format has no escape for what controls a terminal, or ends a line for a reader that knows
/// Unicode, so that is written as in the log. Others choose names, and people look at metrics in a terminal.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in printed::lines(self.0).chars() {
            match c {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use walferry_telemetry::MetricType;

    use super::*;

    const LABELLED: Metric = Metric::new(MetricType::Gauge, "m", "Says `a`.").labels(&["a", "b"]);

    #[test]
    fn samples_follow_help_and_type() {
        let mut out = Exposition::default();
        out.metric(&LABELLED, |samples| {
            samples.add(&["x", "y"], 1);
            samples.add(&["quote\" back\\slash\nline", "ü}"], 0.5);
            samples.add(&["\u{1b}]0;x\u{7}\r\u{9b}", "\u{2028}\u{202e}"], 2);
        });
        out.metric(&Metric::new(MetricType::Counter, "none_total", "Nothing."), |_| {});
        out.metric(&Metric::new(MetricType::Counter, "n_total", "All."), |samples| {
            samples.add(&[], u64::MAX)
        });
        let expected = r#"# HELP m Says `a`.
# TYPE m gauge
m{a="x",b="y"} 1
m{a="quote\" back\\slash\nline",b="ü}"} 0.5
m{a="\\u001b]0;x\\u0007\\r\\u009b",b="\\u2028\\u202e"} 2
# HELP n_total All.
# TYPE n_total counter
n_total 18446744073709551615
"#;
        assert_eq!(out.finish(), expected);
    }

    #[test]
    fn buckets_are_cumulated() {
        let mut out = Exposition::default();
        let metric = Metric::new(MetricType::Histogram, "h_seconds", "Time.").labels(&["c"]);
        out.metric(&metric, |samples| {
            samples.add_histogram(&["x"], &[0.001, 1.0], &[2, 0, 3], 7.5)
        });
        let expected = r#"# HELP h_seconds Time.
# TYPE h_seconds histogram
h_seconds_bucket{c="x",le="0.001"} 2
h_seconds_bucket{c="x",le="1"} 2
h_seconds_bucket{c="x",le="+Inf"} 5
h_seconds_sum{c="x"} 7.5
h_seconds_count{c="x"} 5
"#;
        assert_eq!(out.finish(), expected);
    }
}
