//! `docs/reference/records.md`: what each kind of record looks like, taken from the recordings in `tests/golden`.

use std::fmt::Write;
use std::fs;

use serde_json::Value;

use crate::{Page, root};

/// One record of the page.
struct Sample {
    title: &'static str,
    text: &'static str,
    /// A folder of `tests/golden`.
    case: &'static str,
    topic: &'static str,
    /// What the key and the value have to contain; the first record that does is shown.
    has: &'static [&'static str],
    /// Whether the value is null.
    null: bool,
}

const fn sample(
    title: &'static str,
    text: &'static str,
    case: &'static str,
    topic: &'static str,
    has: &'static [&'static str],
) -> Sample {
    Sample {
        title,
        text,
        case,
        topic,
        has,
        null: false,
    }
}

const INTRODUCTION: &str = "\
# What a record looks like

<!-- Written by `cargo xtask docs` from the recordings in `tests/golden`; a test fails when it is stale. -->

Each record on this page was recorded from Debezium 3.6.3.Final, except for [the last ones](#a-heartbeat), which were recorded from Walferry. The test `golden` holds that Walferry makes the same bytes from the same WAL.
The recordings have a fixed clock and a fixed version, so `ts_ms` outside of `source` is always the same, and `version` is `0.0.0`; your records have your clock, and
`version` is Walferry's. JSON is shown with line breaks. The schema, which JsonConverter adds by default, is left out: with `value.converter.schemas.enable=false`
the value is what you see here, otherwise it is the `payload` of an object with `schema` and `payload`.

**Headers.** By default, the record of a change has the headers `__debezium.context.connectorLogicalName`, `__debezium.context.taskId`, `__debezium.context.connectorName` and `__debezium.context.runId`. To save
space, this page leaves them out, and shows only the other headers. With `extended.headers.enabled=false` they are not sent.

To see the records of your own tables, run [`walferry check --show-records`](../how-to/see-the-records.md).

| you see | it is |
| --- | --- |
| `op` is `r` | an [existing row](#an-existing-row), from a snapshot |
| `op` is `c` | an [insert](#an-insert) |
| `op` is `u` | an [update](#an-update) |
| `op` is `d`, then a record without a value | a [delete](#a-delete) and its [tombstone](#a-tombstone) |
| the header `__debezium.newkey` or `__debezium.oldkey` | an [update of the key](#an-update-of-the-key) |
| `__debezium_unavailable_value` | a [large value that did not change](#a-large-value-that-did-not-change) |
| `op` is `t` | a [truncate](#a-truncate) |
| `op` is `m` | a [logical message](#a-logical-message) |
| `status` is `BEGIN` or `END` | the [bounds of a transaction](#the-bounds-of-a-transaction) |
| `snapshot` is `incremental` in `source` | a [row of an incremental snapshot](#a-row-of-an-incremental-snapshot) |
| a topic that begins with `__debezium-heartbeat` | a [heartbeat](#a-heartbeat) |
| headers that begin with `__connect.errors` | a [record that was set aside](#a-record-that-was-set-aside) |
";

const END: &str = "
Rows with another transform or converter: [transforms and converters](transforms/README.md) have an example each.
";

/// What a test has recorded from Walferry, because the recordings of Debezium under `tests/golden` have no such record.
const RECORDED: &str = "tests/e2e/recorded.json";

/// Title, text, and the kind in the recording.
const OWN: [(&str, &str, &str); 4] = [
    (
        "A heartbeat",
        "With `heartbeat.interval.ms`. The key is the `topic.prefix`.",
        "heartbeat",
    ),
    (
        "A row of an incremental snapshot",
        "After a [signal](../how-to/read-tables-again.md). It is like [an existing row](#an-existing-row), on the same topic, with `incremental` in `source`.",
        "incremental",
    ),
    (
        "A notification",
        "With `sink` in `notification.enabled.channels`, on the topic `notification.sink.topic.name`. This one says that an incremental snapshot has begun.",
        "notification",
    ),
    (
        "A record that was set aside",
        "With `errors.tolerance=all`, on the topic `errors.deadletterqueue.topic.name` ([set records aside](../how-to/dead-letters.md)). Here, a transform could not convert the key, so the record was never written: key and value are null, and the headers say which row it was.",
        "dead letter",
    ),
];

const SAMPLES: &[Sample] = &[
    sample(
        "An existing row",
        "A snapshot sends each row as a read. `before` is null. `snapshot` in `source` says whether this is the `first` or the `last` row.",
        "identities",
        "parity.public.by_key",
        &["\"op\":\"r\""],
    ),
    sample(
        "An insert",
        "`after` is the row.",
        "identities",
        "parity.public.by_key",
        &["\"op\":\"c\""],
    ),
    sample(
        "An update",
        "`after` is the whole new row. `before` is null, because with the usual replica identity (`DEFAULT`) Postgres does not log the old row.",
        "identities",
        "parity.public.by_key",
        &["\"op\":\"u\""],
    ),
    sample(
        "An update with the old row",
        "With `ALTER TABLE … REPLICA IDENTITY FULL`, `before` is the whole old row.",
        "identities",
        "parity.public.by_all",
        &["\"op\":\"u\""],
    ),
    sample(
        "A delete",
        "`after` is null. With the usual replica identity, `before` has only the key, and the other columns are null (or empty, if they are `NOT NULL`).",
        "identities",
        "parity.public.by_key",
        &["\"op\":\"d\"", "\"id\":1,"],
    ),
    Sample {
        null: true,
        ..sample(
            "A tombstone",
            "After each delete comes a record with the same key and without a value. Kafka removes the key when it compacts the topic. `tombstones.on.delete=false` leaves tombstones out.",
            "identities",
            "parity.public.by_key",
            &["{\"id\":1}"],
        )
    },
    sample(
        "An update of the key",
        "An update that changes the primary key becomes three records: a delete of the old key, a tombstone, and an insert of the new key. The delete and its tombstone name the new key in a header.",
        "identities",
        "parity.public.by_all",
        &["\"op\":\"d\"", "__debezium.newkey"],
    ),
    sample(
        "The insert of the new key",
        "The insert names the old key in a header.",
        "identities",
        "parity.public.by_all",
        &["\"op\":\"c\"", "__debezium.oldkey"],
    ),
    sample(
        "A large value that did not change",
        "Postgres does not log a large (TOASTed) value that an update has not changed. `unavailable.value.placeholder` sets the text that stands for it. In this recording it is `not sent`; the default is \
         `__debezium_unavailable_value`. Remedies: [large values and the replica identity](../how-to/toast-and-replica-identity.md).",
        "toast_kept",
        "parity.public.required",
        &["\"op\":\"u\"", "not sent"],
    ),
    sample(
        "A truncate",
        "Sent only if `skipped.operations` does not contain `t`; by default it does. A truncate has no key.",
        "truncates",
        "parity.public.parent",
        &["\"op\":\"t\""],
    ),
    sample(
        "A logical message",
        "From `pg_logical_emit_message(…)`. `content` is in base64.",
        "messages",
        "parity.message",
        &["aW5zaWRlLCBiZWZvcmU="],
    ),
    sample(
        "The bounds of a transaction",
        "With `provide.transaction.metadata=true`, each transaction has a record at its begin and one at its end, in the topic `<topic.prefix>.transaction`. This is the one at the end.",
        "transactions_told",
        "parity.transaction",
        &["\"END\""],
    ),
    sample(
        "A change in a transaction",
        "With the same property, each change says where in its transaction it stands.",
        "transactions_told",
        "parity.public.a",
        &["\"op\":\"c\"", "\"total_order\":1,"],
    ),
    sample(
        "A row without its envelope",
        "With the transform ExtractNewRecordState (here with `add.fields=op,table,before.name` and `delete.tombstone.handling.mode=rewrite-with-tombstone`).",
        "unwrapped",
        "parity.public.items",
        &["\"__op\":\"u\""],
    ),
    sample(
        "A deleted row without its envelope",
        "With `rewrite` or `rewrite-with-tombstone`, a delete is the last known row with `__deleted`.",
        "unwrapped",
        "parity.public.items",
        &["\"__op\":\"d\"", "\"id\":1,"],
    ),
    sample(
        "An event of an outbox",
        "With the transform EventRouter, the key and the value are columns of the outbox, as text. There is no envelope. The header `id` is the event's id.",
        "outbox_chain",
        "shop-order",
        &[],
    ),
    sample(
        "A CloudEvent",
        "With CloudEventsConverter as `value.converter`.",
        "cloud_events_without_schemas",
        "parity.public.goods",
        &[],
    ),
];

pub(super) fn page() -> Result<Page, String> {
    let mut text = INTRODUCTION.to_owned();
    for sample in SAMPLES {
        let record = find(sample)?;
        let _ = write!(text, "\n## {}\n\n{}\n\n", sample.title, sample.text);
        let _ = writeln!(text, "```json");
        let _ = writeln!(text, "{}", record_text(&record)?);
        let _ = writeln!(text, "```");
    }
    let recorded = fs::read_to_string(root().join(RECORDED)).map_err(|e| format!("{RECORDED}: {e}"))?;
    let recorded: Vec<Value> = serde_json::from_str(&recorded).map_err(|e| format!("{RECORDED}: {e}"))?;
    for (title, about, kind) in OWN {
        let record = recorded.iter().find(|record| record["kind"] == kind);
        let record = record.ok_or_else(|| format!("{RECORDED} has no {kind}"))?;
        let _ = write!(
            text,
            "\n## {title}\n\n{about}\n\n```json\n{}\n```\n",
            shown_own(record)?
        );
    }
    text.push_str(END);
    Ok(Page {
        path: "docs/reference/records.md".into(),
        text,
    })
}

fn find(sample: &Sample) -> Result<Value, String> {
    let path = format!("tests/golden/{}/records.jsonl", sample.case);
    let text = fs::read_to_string(root().join(&path)).map_err(|e| format!("{path}: {e}"))?;
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).map_err(|e| format!("{path}: {e}"))?;
        let key = record["key"].as_str().unwrap_or_default();
        let value = record["value"].as_str().unwrap_or_default();
        let headers = record["headers"].to_string();
        let has = |part: &&str| [key, value, &headers].iter().any(|text| text.contains(part));
        if record["topic"] == sample.topic && record["value"].is_null() == sample.null && sample.has.iter().all(has) {
            return Ok(record);
        }
    }
    Err(format!("{path} has no record for \u{201c}{}\u{201d}", sample.title))
}

/// Topic, key, value and the headers that the context does not add to each record.
fn record_text(record: &Value) -> Result<String, String> {
    let mut out = serde_json::Map::new();
    out.insert("topic".into(), record["topic"].clone());
    for part in ["key", "value"] {
        out.insert(part.into(), payload(&record[part]));
    }
    let headers = record["headers"].as_array().cloned().unwrap_or_default();
    let own: serde_json::Map<String, Value> = headers
        .iter()
        .filter_map(|header| Some((header[0].as_str()?.to_owned(), header[1].clone())))
        .filter(|(name, _)| !name.starts_with("__debezium.context."))
        .collect();
    if !own.is_empty() {
        out.insert("headers".into(), Value::Object(own));
    }
    serde_json::to_string_pretty(&Value::Object(out)).map_err(|e| e.to_string())
}

/// A record of [`RECORDED`], without the headers that the context adds to each record.
fn shown_own(record: &Value) -> Result<String, String> {
    let mut out = serde_json::Map::new();
    for part in ["topic", "key", "value"] {
        out.insert(part.into(), record[part].clone());
    }
    let headers = record["headers"].as_object().cloned().unwrap_or_default();
    let own: serde_json::Map<String, Value> = headers
        .into_iter()
        .filter(|(name, _)| !name.starts_with("__debezium.context."))
        .collect();
    if !own.is_empty() {
        out.insert("headers".into(), Value::Object(own));
    }
    serde_json::to_string_pretty(&Value::Object(out)).map_err(|e| e.to_string())
}

/// Text that is JSON as JSON, without the schema beside it.
fn payload(text: &Value) -> Value {
    let Some(text) = text.as_str() else {
        return Value::Null;
    };
    match serde_json::from_str(text) {
        Ok(Value::Object(mut object)) if object.contains_key("schema") && object.contains_key("payload") => {
            object.remove("payload").unwrap_or_default()
        }
        Ok(value) => value,
        Err(_) => Value::String(text.to_owned()),
    }
}
