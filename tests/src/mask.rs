//! Takes out of a record what two honest runs differ in, and nothing else.
//!
//! That is: times of processing, where they lie within the run; the engine's version; the run's id; the
//! time of a notification, and its id where no signal has given it one; for a snapshot's records its LSN, transaction and time. Each is replaced by a constant, so that masked
//! records can be kept in files and made again with a fixed clock.

use crate::plain::{Bytes, PlainRecord};
use regex::{Captures, Regex};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// The time of processing in masked records, milliseconds since 1970.
pub const NOW_MS: i64 = 1_767_225_600_000;
/// `source.version` in masked records.
pub const VERSION: &str = "0.0.0";
/// The run's id in masked records.
pub const RUN_ID: &str = "00000000-0000-0000-0000-000000000000";

const RUN_ID_HEADER: &str = "__debezium.context.runId";

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is valid")
}

// Each in JSON, and as StringConverter writes structs: `Struct{source=Struct{version=…,connector=postgresql,…},ts_ms=…}`.
static SOURCE: LazyLock<Regex> = LazyLock::new(|| regex(r#""source":\{[^{}]*\}|\bsource=Struct\{[^{}]*\}"#));
static SOURCE_VERSION: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"("version":"|\bversion=)[^",]*("?,"?connector"?[:=]"?postgresql)"#));
static EVENT_VERSION: LazyLock<Regex> = LazyLock::new(|| regex(r#"("iodebeziumversion":")[^"]*""#));
static TIME: LazyLock<Regex> = LazyLock::new(|| regex(r#"("?\b(?:\w*_)?ts_([mun])s"?[:=])(\d+)"#));
static NUMBERS_OF_SNAPSHOT: LazyLock<Regex> = LazyLock::new(|| regex(r#"("?\b(?:lsn|txId|xmin)"?[:=])\d+"#));
static MADE_UP_ID: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"^(\{"id":")[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}""#));
static ADDITIONAL_DATA: LazyLock<Regex> = LazyLock::new(|| regex(r#""additional_data":(\{[^{}]*\})"#));
static TIMESTAMP: LazyLock<Regex> = LazyLock::new(|| regex(r#"("timestamp":)\d+"#));
static SEQUENCE: LazyLock<Regex> = LazyLock::new(|| regex(r#""sequence":"(?:[^"\\]|\\.)*"|\bsequence=\[[^\]]*\]"#));

/// Masks one record of a run that took place within `run`, milliseconds since 1970.
pub fn mask(mut record: PlainRecord, run: &RangeInclusive<i64>) -> PlainRecord {
    if run.contains(&record.timestamp_ms) {
        record.timestamp_ms = NOW_MS;
    }
    let is_notification = matches!(&record.value, Some(Bytes::Text(text)) if text.contains(r#""aggregate_type":"#));
    for part in [&mut record.key, &mut record.value].into_iter().flatten() {
        if let Bytes::Text(text) = part {
            *text = mask_text(text, run);
            if is_notification {
                *text = mask_notification(text);
            }
        }
    }
    for (name, value) in &mut record.headers {
        if name == RUN_ID_HEADER {
            *value = Some(Bytes::Text(RUN_ID.into()));
        } else if let ("source", Some(Bytes::Text(text))) = (name.as_str(), value) {
            *text = mask_text(&format!("\"source\":{text}"), run).split_off("\"source\":".len());
        }
    }
    record
}

fn mask_text(text: &str, run: &RangeInclusive<i64>) -> String {
    let text = SOURCE_VERSION.replace(text, format!("${{1}}{VERSION}$2"));
    let text = EVENT_VERSION.replace(&text, format!("${{1}}{VERSION}\""));
    let Some(source) = SOURCE.find(&text) else {
        return mask_times(&text, run);
    };
    let (before, after) = (
        mask_times(&text[..source.start()], run),
        mask_times(&text[source.end()..], run),
    );
    // Times in the source block are the database's, equal for all who read the stream.
    let has = |text| source.as_str().contains(text);
    let of_snapshot =
        has(r#""snapshot":""#) && !has(r#""snapshot":"false""#) || has(",snapshot=") && !has(",snapshot=false");
    let source = if of_snapshot {
        mask_snapshot(source.as_str(), run)
    } else {
        source.as_str().into()
    };
    format!("{before}{source}{after}")
}

fn mask_times(text: &str, run: &RangeInclusive<i64>) -> String {
    let masked = TIME.replace_all(text, |found: &Captures<'_>| {
        let (unit, now): (i64, i64) = match &found[2] {
            "m" => (1, NOW_MS),
            "u" => (1_000, NOW_MS * 1_000),
            _ => (1_000_000, NOW_MS * 1_000_000),
        };
        let time: i64 = found[3].parse().unwrap_or_default();
        let shown = if run.contains(&(time / unit)) { now } else { time };
        format!("{}{shown}", &found[1])
    });
    masked.into_owned()
}

/// A notification that no signal has asked for has an id of its own.
fn mask_notification(text: &str) -> String {
    let text = MADE_UP_ID.replace(text, format!("${{1}}{RUN_ID}\""));
    let text = TIMESTAMP.replace(&text, format!("${{1}}{NOW_MS}"));
    ADDITIONAL_DATA
        .replace(&text, |found: &Captures<'_>| {
            // Java's `Map.of` has another order in each process.
            let details: BTreeMap<String, String> = serde_json::from_str(&found[1]).unwrap_or_default();
            format!(
                "\"additional_data\":{}",
                serde_json::to_string(&details).unwrap_or_default()
            )
        })
        .into_owned()
}

fn mask_snapshot(source: &str, run: &RangeInclusive<i64>) -> String {
    let source = mask_times(source, run);
    let source = NUMBERS_OF_SNAPSHOT.replace_all(&source, "${1}0");
    let sequence = SEQUENCE.replace(&source, |found: &Captures<'_>| {
        let zero = |c: char| if c.is_ascii_digit() { '0' } else { c };
        let mut masked: String = found[0].chars().map(zero).collect();
        while masked.contains("00") {
            masked = masked.replace("00", "0");
        }
        masked
    });
    sequence.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_runs_differ_in_is_masked() {
        let run = 1_000..=2_000;
        let cases = [
            // Times of processing within the run, with any prefix of the field's name.
            (
                r#"{"ts_ms":1500,"ts_us":1500000,"ts_ns":1500000000}"#,
                r#"{"ts_ms":1767225600000,"ts_us":1767225600000000,"ts_ns":1767225600000000000}"#,
            ),
            (r#"{"__ts_ms":1500}"#, r#"{"__ts_ms":1767225600000}"#),
            // A time outside the run is content.
            (r#"{"ts_ms":2500,"my_count":1500}"#, r#"{"ts_ms":2500,"my_count":1500}"#),
            // A streamed source block keeps everything but the version.
            (
                r#"{"source":{"version":"3.6.3.Final","connector":"postgresql","ts_ms":1500,"snapshot":"false","lsn":7},"ts_ms":1500}"#,
                r#"{"source":{"version":"0.0.0","connector":"postgresql","ts_ms":1500,"snapshot":"false","lsn":7},"ts_ms":1767225600000}"#,
            ),
            (
                r#"{"source":{"ts_ms":1500,"snapshot":"first","sequence":"[null,\"123\"]","txId":5,"lsn":7}}"#,
                r#"{"source":{"ts_ms":1767225600000,"snapshot":"first","sequence":"[null,\"0\"]","txId":0,"lsn":0}}"#,
            ),
            // The same as text.
            (
                "Struct{after=Struct{id=1,ts_ms=1500},source=Struct{version=3.6.3.Final,connector=postgresql,ts_ms=1500,lsn=7},op=u,ts_ms=1500}",
                "Struct{after=Struct{id=1,ts_ms=1767225600000},source=Struct{version=0.0.0,connector=postgresql,ts_ms=1500,lsn=7},op=u,ts_ms=1767225600000}",
            ),
            (
                r#"Struct{source=Struct{ts_ms=1500,snapshot=last,sequence=[null,"123"],txId=5,lsn=7}}"#,
                r#"Struct{source=Struct{ts_ms=1767225600000,snapshot=last,sequence=[null,"0"],txId=0,lsn=0}}"#,
            ),
            // A CloudEvent has the source block's version as an attribute.
            (
                r#"{"iodebeziumversion":"3.6.3.Final","version":"1"}"#,
                r#"{"iodebeziumversion":"0.0.0","version":"1"}"#,
            ),
            // A version elsewhere is content.
            (r#"{"version":"1","other":"x"}"#, r#"{"version":"1","other":"x"}"#),
        ];
        for (text, masked) in cases {
            assert_eq!(mask_text(text, &run), masked);
        }
    }

    #[test]
    fn a_source_block_in_a_header_is_masked_as_in_a_value() {
        let record = |source: &str| PlainRecord {
            topic: "t".into(),
            partition: 0,
            timestamp_ms: 500,
            key: None,
            value: None,
            headers: vec![("source".into(), Some(Bytes::Text(source.into())))],
        };
        let masked = mask(
            record(r#"{"version":"3.6.3.Final","connector":"postgresql","ts_ms":1500}"#),
            &(1_000..=2_000),
        );
        let expected = r#"{"version":"0.0.0","connector":"postgresql","ts_ms":1500}"#;
        assert_eq!(masked, record(expected));
    }

    #[test]
    fn timestamp_and_run_id_are_masked() {
        let record = |timestamp_ms, run_id: &str| PlainRecord {
            topic: "t".into(),
            partition: 0,
            timestamp_ms,
            key: None,
            value: None,
            headers: vec![
                (RUN_ID_HEADER.into(), Some(Bytes::Text(run_id.into()))),
                ("id".into(), None),
            ],
        };
        assert_eq!(mask(record(1_500, "x"), &(1_000..=2_000)), record(NOW_MS, RUN_ID));
        assert_eq!(mask(record(500, "x"), &(1_000..=2_000)), record(500, RUN_ID));
    }
}
