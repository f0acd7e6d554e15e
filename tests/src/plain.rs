//! Records as text: how they are kept in files, and how differences are shown.

use serde_json::{Value, json};
use std::fmt::Write;
use walferry_testkit::servers::Record;

/// A record without its offset, which follows from its place in a list; bytes as text where they are text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainRecord {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Create time, milliseconds since 1970; -1 where there is none.
    pub timestamp_ms: i64,
    /// Key.
    pub key: Option<Bytes>,
    /// Value; `None` is a tombstone.
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// Bytes that a person can read where they are UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bytes {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Raw(Vec<u8>),
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(|e| Self::Raw(e.into_bytes()), Self::Text)
    }
}

impl From<Record> for PlainRecord {
    fn from(record: Record) -> Self {
        Self {
            topic: record.topic,
            partition: record.partition,
            timestamp_ms: record.timestamp_ms.unwrap_or(-1),
            key: record.key.map(Bytes::from),
            value: record.value.map(Bytes::from),
            headers: record
                .headers
                .into_iter()
                .map(|(name, value)| (name, value.map(Bytes::from)))
                .collect(),
        }
    }
}

impl PlainRecord {
    /// One line of a file of records.
    pub fn to_json(&self) -> Value {
        let bytes = |bytes: &Option<Bytes>| match bytes {
            None => Value::Null,
            Some(Bytes::Text(text)) => text.as_str().into(),
            Some(Bytes::Raw(bytes)) => json!({ "hex": hex(bytes) }),
        };
        let headers: Vec<Value> = self
            .headers
            .iter()
            .map(|(name, value)| json!([name, bytes(value)]))
            .collect();
        json!({
            "topic": self.topic, "partition": self.partition, "timestamp": self.timestamp_ms,
            "key": bytes(&self.key), "value": bytes(&self.value), "headers": headers,
        })
    }

    /// Reads what `to_json` wrote; `None` where it did not.
    pub fn from_json(line: &Value) -> Option<Self> {
        let bytes = |value: &Value| match value {
            Value::Null => Some(None),
            Value::String(text) => Some(Some(Bytes::Text(text.clone()))),
            other => Some(Some(Bytes::Raw(unhex(other["hex"].as_str()?)?))),
        };
        let header = |header: &Value| Some((header[0].as_str()?.to_owned(), bytes(&header[1])?));
        Some(Self {
            topic: line["topic"].as_str()?.into(),
            partition: line["partition"].as_i64()?.try_into().ok()?,
            timestamp_ms: line["timestamp"].as_i64()?,
            key: bytes(&line["key"])?,
            value: bytes(&line["value"])?,
            headers: line["headers"].as_array()?.iter().map(header).collect::<Option<_>>()?,
        })
    }
}

/// What differs between two lists of records, topic by topic; empty where nothing does.
pub fn differences(left: (&str, &[PlainRecord]), right: (&str, &[PlainRecord])) -> String {
    let mut topics: Vec<&str> = left
        .1
        .iter()
        .chain(right.1)
        .map(|record| record.topic.as_str())
        .collect();
    topics.sort_unstable();
    topics.dedup();
    let mut shown = String::new();
    for topic in topics {
        let of = |records: &[PlainRecord]| -> Vec<Value> {
            records
                .iter()
                .filter(|record| record.topic == topic)
                .map(PlainRecord::to_json)
                .collect()
        };
        let (ours, theirs) = (of(left.1), of(right.1));
        if ours.len() != theirs.len() {
            let counts = format!("{} from {}, {} from {}", ours.len(), left.0, theirs.len(), right.0);
            writeln!(shown, "{topic}: {counts}").expect("a string can be written");
        }
        for (index, (one, other)) in ours.iter().zip(&theirs).enumerate() {
            for part in ["partition", "timestamp", "key", "value", "headers"] {
                if one[part] != other[part] {
                    let (one, other) = around(&text(&one[part]), &text(&other[part]));
                    write!(
                        shown,
                        "{topic}[{index}].{part}\n  {:>9}: {one}\n  {:>9}: {other}\n",
                        left.0, right.0
                    )
                    .expect("a string can be written");
                }
            }
        }
    }
    shown
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Two texts around the first place where they differ.
fn around(one: &str, other: &str) -> (String, String) {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let from = same.saturating_sub(80);
    let cut = |text: &str| {
        let shown: String = text.chars().skip(from).take(240).collect();
        format!("{}{shown}", if from > 0 { "…" } else { "" })
    };
    (cut(one), cut(other))
}

/// Lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What `hex` wrote; `None` where it did not.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(value: Option<Bytes>) -> PlainRecord {
        PlainRecord {
            topic: "t".into(),
            partition: 1,
            timestamp_ms: 5,
            key: Some(Bytes::from(b"k".to_vec())),
            value,
            headers: vec![("h".into(), None), ("h".into(), Some(Bytes::from(vec![0xFF, 0])))],
        }
    }

    #[test]
    fn records_survive_their_form_in_files() {
        for value in [
            None,
            Some(Bytes::from(b"{}".to_vec())),
            Some(Bytes::from(vec![0xFF, 0x0A])),
        ] {
            let record = record(value);
            assert_eq!(PlainRecord::from_json(&record.to_json()), Some(record));
        }
    }

    #[test]
    fn differences_name_topic_place_and_part() {
        let (one, other) = (
            record(Some(Bytes::Text("same a".into()))),
            record(Some(Bytes::Text("same b".into()))),
        );
        let list = [one.clone(), other];
        assert_eq!(differences(("x", &list), ("y", &list)), "");
        let shown = differences(("x", &list), ("y", &[one.clone(), one]));
        assert_eq!(shown, "t[1].value\n          x: same b\n          y: same a\n");
        assert_eq!(differences(("x", &list), ("y", &[])), "t: 2 from x, 0 from y\n");
    }
}
