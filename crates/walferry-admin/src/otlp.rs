//! Metrics and spans in OTLP's JSON, for an OpenTelemetry collector.
//!
//! The crates for OTLP bring a second registry of metrics and a Protobuf compiler along. The metrics are kept elsewhere, so only the form is
//! needed here: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>.

use std::{fmt::Write as _, time::SystemTime};

use serde_json::{Map, Value as Json, json};
use walferry_telemetry::{Metric, MetricType, otlp::DeliverySpan};

/// Values count from the start of the process: `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;
/// `SPAN_KIND_PRODUCER`
const PRODUCER: u8 = 4;

/// Metrics in OTLP's form.
#[derive(Debug)]
pub(crate) struct Points {
    /// Nanoseconds since 1970, as text: JSON's numbers are too short.
    start: String,
    now: String,
    metrics: Vec<Json>,
}

impl Points {
    /// * `start` - when the process began
    pub(crate) fn new(start: SystemTime, now: SystemTime) -> Self {
        Self {
            start: nanos(start),
            now: nanos(now),
            metrics: Vec::new(),
        }
    }

    pub(crate) fn number(&mut self, metric: &Metric, values: &[&str], value: f64) {
        let kind = match metric.kind {
            MetricType::Counter => "sum",
            MetricType::Gauge | MetricType::Untyped | MetricType::Histogram => "gauge",
        };
        let point = json!({ "asDouble": value });
        self.point(metric, kind, values, point);
    }

    pub(crate) fn histogram(&mut self, metric: &Metric, values: &[&str], bounds: &[f64], counts: &[u64], sum: f64) {
        let texts: Vec<String> = counts.iter().map(u64::to_string).collect();
        let point = json!({
            "count": counts.iter().sum::<u64>().to_string(),
            "sum": sum,
            "bucketCounts": texts,
            "explicitBounds": bounds,
        });
        self.point(metric, "histogram", values, point);
    }

    fn point(&mut self, metric: &Metric, kind: &str, values: &[&str], mut point: Json) {
        let labels = metric.labels.iter().copied().zip(values.iter().copied());
        point["attributes"] = attributes(labels);
        point["startTimeUnixNano"] = self.start.as_str().into();
        point["timeUnixNano"] = self.now.as_str().into();
        if let Some(last) = self.metrics.last_mut().filter(|last| last["name"] == metric.name)
            && let Some(points) = last[kind]["dataPoints"].as_array_mut()
        {
            points.push(point);
            return;
        }
        let mut data = json!({ "dataPoints": [point] });
        if kind != "gauge" {
            data["aggregationTemporality"] = CUMULATIVE.into();
        }
        if kind == "sum" {
            data["isMonotonic"] = true.into();
        }
        let mut new = json!({ "name": metric.name, "description": metric.text, "unit": unit(metric.name) });
        new[kind] = data;
        self.metrics.push(new);
    }

    /// The body of a request to `/v1/metrics`.
    pub(crate) fn request(self, resource: &Json, version: &str) -> Json {
        json!({ "resourceMetrics": [{
            "resource": resource,
            "scopeMetrics": [{ "scope": scope(version), "metrics": self.metrics }],
        }] })
    }
}

/// The unit in UCUM, as the names of metrics end with it.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("milliseconds") => "ms",
        Some("bytes") => "By",
        _ => "",
    }
}

fn scope(version: &str) -> Json {
    json!({ "name": "walferry", "version": version })
}

/// The process, as the collector knows it.
pub fn resource<'a>(described_by: impl IntoIterator<Item = (&'a str, &'a str)>) -> Json {
    json!({ "attributes": attributes(described_by) })
}

fn attributes<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Json {
    let pairs = pairs.into_iter();
    let attribute = |(name, value): (&str, &str)| json!({ "key": name, "value": { "stringValue": value } });
    pairs.map(attribute).collect()
}

/// The body of a request to `/v1/traces`.
pub fn spans(spans: &[DeliverySpan], resource: &Json, version: &str) -> Json {
    let spans: Vec<Json> = spans.iter().map(span).collect();
    json!({ "resourceSpans": [{
        "resource": resource,
        "scopeSpans": [{ "scope": scope(version), "spans": spans }],
    }] })
}

/// The attributes are those of OpenTelemetry's conventions for messaging.
fn span(span: &DeliverySpan) -> Json {
    let partition = span.partition.to_string();
    let mut known = vec![
        ("messaging.system", "kafka"),
        ("messaging.operation.type", "send"),
        ("messaging.operation.name", "send"),
        ("messaging.destination.name", span.topic.as_str()),
        ("messaging.destination.partition.id", partition.as_str()),
    ];
    known.extend(span.message.as_deref().map(|id| ("messaging.message.id", id)));
    let mut attributes = attributes(known);
    if let (Some(offset), Some(list)) = (span.offset, attributes.as_array_mut()) {
        list.push(json!({ "key": "messaging.kafka.offset", "value": { "intValue": offset.to_string() } }));
    }
    let mut out = Map::new();
    for (name, value) in [
        ("traceId", Json::from(hex(&span.parent.trace))),
        ("spanId", hex(&span.id).into()),
        ("parentSpanId", hex(&span.parent.span).into()),
        ("name", format!("send {}", span.topic).into()),
        ("kind", PRODUCER.into()),
        ("startTimeUnixNano", span.begun_ns.to_string().into()),
        ("endTimeUnixNano", span.ended_ns.to_string().into()),
        ("attributes", attributes),
    ] {
        out.insert(name.to_owned(), value);
    }
    Json::Object(out)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn nanos(time: SystemTime) -> String {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since_1970.as_nanos().to_string()
}
