//! Rows through Walferry's EventRouter and, beforehand, through Debezium's; see `vectors/README.md`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use walferry_config::Options;
use walferry_config::connector::TransformPlugin;
use walferry_record::{Field, Header, Record, Schema, SchemaAndValue, SchemaRef, Shape, Struct, Value};
use walferry_transform::{Chain, Outcome};

const VECTORS: &str = include_str!("vectors/event_router.jsonl");
const COMPATIBILITY: &str = include_str!("../../../docs/compatibility.md");

#[test]
fn rows_become_the_events_that_debezium_makes() {
    let mut wrong = Vec::new();
    for line in VECTORS.lines() {
        let case: Json = serde_json::from_str(line).expect("a case");
        let ours = run(&case);
        let debeziums = match case.get("start_error") {
            Some(_) => json!(["not started"]),
            None => normalised(&case["expected"]),
        };
        let expected = match case.get("differs").and_then(Json::as_str) {
            None => debeziums,
            Some(word) => {
                assert!(
                    COMPATIBILITY.contains(&format!("| `{word}` |")),
                    "{word} is not in docs/compatibility.md"
                );
                assert_ne!(ours, debeziums, "{}: differs is out of date", case["name"]);
                normalised(&case["walferry"])
            }
        };
        if ours != expected {
            wrong.push(format!(
                "{} {}\n  made     {ours}\n  expected {expected}",
                case["name"], case["options"]
            ));
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn objects_of_several_shapes_have_the_fields_in_debeziums_order() {
    for line in include_str!("vectors/unions.jsonl").lines() {
        let (payload, expected): (String, String) = serde_json::from_str(line).expect("payload and value");
        let columns =
            ["id", "aggregatetype", "aggregateid", "payload"].map(|name| json!({"name": name, "type": "string"}));
        let case = json!({
            "options": {"table.expand.json.payload": "true"},
            "columns": columns,
            "records": [{"op": "c", "row": ["1", "order", "k", payload]}],
        });
        let table = Table::new(&case);
        let mut chain = chain(&case).expect("a chain");
        let Ok(Outcome::Record(record)) = chain.apply(table.record(&case["records"][0])) else {
            panic!("no record for {payload}");
        };
        assert_eq!(plain(&record.value.value).to_string(), expected, "{payload}");
    }
}

/// Flatten leaves the name of an envelope, but not its fields. Debezium looks at the operation before it looks for the row.
#[test]
fn of_flattened_envelopes_deletes_and_updates_are_dropped_and_others_fail() {
    let schema: SchemaRef = Schema::structure(vec![
        Field::new("after.id", Schema::string().build()),
        Field::new("op", Schema::string().build()),
    ])
    .named("srv.public.outbox.Envelope")
    .build();
    let mut chain = chain(&json!({"options": {}})).expect("a chain");
    for (op, is_dropped) in [("c", false), ("u", true), ("d", true), ("r", false)] {
        let event = Struct::new(schema.clone(), vec![Value::str("1"), Value::str(op)]);
        let record = Record {
            topic: "srv.public.outbox".into(),
            partition: None,
            timestamp_ms: None,
            key: SchemaAndValue::NULL,
            value: SchemaAndValue::new(schema.clone(), Value::Struct(event)),
            headers: Vec::new(),
        };
        match chain.apply(record) {
            Ok(Outcome::Dropped(_)) if is_dropped => {}
            Err(error) if !is_dropped => {
                assert!(
                    error.hint().is_some_and(|hint| hint.contains("before")),
                    "{op}: {error:?}"
                );
            }
            other => panic!("{op}: {other:?}"),
        }
    }
}

/// HeaderToValue can write any text over the operation. Debezium asks only whether it is that of a delete or an update.
#[test]
fn an_operation_that_is_none_routes_the_row_if_there_is_one() {
    let columns = ["id", "aggregatetype", "aggregateid", "payload"].map(|name| json!({"name": name, "type": "string"}));
    let row = json!(["1", "order", "k", "p"]);
    let mut records = Vec::new();
    for op in ["c", "v", "", "t"] {
        records.extend([json!({"op": op, "row": row}), json!({"op": op})]);
    }
    let answers = run(&json!({"options": {}, "columns": columns, "records": records}));
    let answers = answers.as_array().expect("an answer for each record");
    for (record, answer) in records.iter().zip(answers) {
        match record.get("row") {
            Some(_) => assert_eq!(answer["topic"], "outbox.event.order", "{record}"),
            // That is a real truncate.
            None if record["op"] == "t" => assert_eq!(*answer, json!({"dropped": true})),
            None => assert_eq!(answer, "error", "{record}"),
        }
    }
}

/// A value as JSON without a schema.
fn plain(value: &Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Boolean(v) => (*v).into(),
        Value::Int32(v) => (*v).into(),
        Value::Int64(v) => (*v).into(),
        Value::Float64(v) => (*v).into(),
        Value::String(v) => v.as_ref().into(),
        Value::Array(elements) => elements.iter().map(plain).collect(),
        Value::Struct(v) => {
            let fields = v.schema().fields().iter().zip(v.values());
            fields
                .map(|(field, value)| (field.name.to_string(), plain(value)))
                .collect()
        }
        other => panic!("{other:?}"),
    }
}

fn chain(case: &Json) -> Option<Chain> {
    let options = case["options"].as_object().expect("options");
    let options: BTreeMap<String, String> = options
        .iter()
        .map(|(name, value)| (name.clone(), text(value)))
        .collect();
    let spec = TransformPlugin {
        name: "outbox".into(),
        class: "io.debezium.transforms.outbox.EventRouter".into(),
        options: Options::new("transforms.outbox.", options),
        predicate: None,
        negate: false,
    };
    Chain::new(&[spec], &[]).0
}

/// What the transform makes of each record of a case.
fn run(case: &Json) -> Json {
    let Some(mut chain) = chain(case) else {
        return json!(["not started"]);
    };
    let table = Table::new(case);
    let records = case["records"].as_array().expect("records").iter();
    records
        .map(|record| match chain.apply(table.record(record)) {
            Ok(Outcome::Dropped(_)) => json!({"dropped": true}),
            Ok(Outcome::Record(result)) => as_json(&result, table.name),
            Ok(Outcome::Waits(_)) => json!("waits"),
            Ok(Outcome::SetAside(_)) => json!("set aside"),
            Err(_) => json!("error"),
        })
        .collect()
}

struct Table<'c> {
    name: &'c str,
    columns: &'c [Json],
    row: SchemaRef,
    envelope: SchemaRef,
    key: SchemaRef,
}

impl<'c> Table<'c> {
    fn new(case: &'c Json) -> Self {
        let name = case
            .get("table")
            .map_or("srv.public.outbox", |name| name.as_str().expect("a name"));
        let columns = case["columns"].as_array().expect("columns");
        let fields = columns
            .iter()
            .map(|c| Field::new(c["name"].as_str().expect("a name"), column(c)));
        let row = Schema::structure(fields.collect())
            .named(format!("{name}.Value"))
            .optional()
            .build();
        let envelope = Schema::structure(vec![
            Field::new("before", row.clone()),
            Field::new("after", row.clone()),
            Field::new("op", Schema::string().build()),
            Field::new("ts_ms", Schema::int64().optional().build()),
        ]);
        Self {
            name,
            columns,
            row,
            envelope: envelope.named(format!("{name}.Envelope")).version(2).build(),
            key: Schema::structure(vec![Field::new("id", Schema::string().build())])
                .named(format!("{name}.Key"))
                .build(),
        }
    }

    fn record(&self, spec: &'c Json) -> Record<'c> {
        let headers = spec.get("headers").and_then(Json::as_array).into_iter().flatten();
        let headers = headers.map(|header| Header {
            name: header[0].as_str().expect("a name").into(),
            value: SchemaAndValue::new(
                Schema::string().build(),
                Value::str(header[1].as_str().expect("a value")),
            ),
        });
        Record {
            topic: self.name.into(),
            partition: None,
            timestamp_ms: None,
            key: SchemaAndValue::new(
                self.key.clone(),
                Value::Struct(Struct::new(self.key.clone(), vec![Value::str("k")])),
            ),
            value: self.value(spec),
            headers: headers.collect(),
        }
    }

    fn value(&self, spec: &'c Json) -> SchemaAndValue<'c> {
        if spec.get("tombstone").is_some() {
            return SchemaAndValue::NULL;
        }
        if let Some(name) = spec.get("plain") {
            let schema = Schema::structure(vec![Field::new("ts_ms", Schema::int64().build())])
                .named(text(name))
                .build();
            return SchemaAndValue::new(
                schema.clone(),
                Value::Struct(Struct::new(schema, vec![Value::Int64(5)])),
            );
        }
        let after = match spec.get("row").and_then(Json::as_array) {
            Some(row) => {
                let values = self
                    .columns
                    .iter()
                    .zip(row)
                    .map(|(column, value)| scalar(value, &column["type"]));
                Value::Struct(Struct::new(self.row.clone(), values.collect()))
            }
            None => Value::Null,
        };
        let op = Value::str(spec["op"].as_str().expect("an operation"));
        let ts_ms = spec
            .get("ts_ms")
            .and_then(Json::as_i64)
            .map_or(Value::Null, Value::Int64);
        let values = vec![Value::Null, after, op, ts_ms];
        SchemaAndValue::new(
            self.envelope.clone(),
            Value::Struct(Struct::new(self.envelope.clone(), values)),
        )
    }
}

fn column(spec: &Json) -> SchemaRef {
    let mut schema = match spec["type"].as_str().expect("a type") {
        "string" => Schema::string(),
        "boolean" => Schema::boolean(),
        "int16" => Schema::int16(),
        "int32" => Schema::int32(),
        "int64" => Schema::int64(),
        "bytes" => Schema::bytes(),
        // Connect's own logical type.
        "date" => Schema::int64()
            .named("org.apache.kafka.connect.data.Timestamp")
            .version(1),
        other => panic!("column type {other}"),
    };
    schema.optional = spec.get("optional").is_some();
    schema.version = spec
        .get("version")
        .and_then(Json::as_i64)
        .map(|v| v as i32)
        .or(schema.version);
    if let Some(name) = spec.get("semantic") {
        schema.name = Some(Arc::from(text(name)));
    }
    if let Some(default) = spec.get("default") {
        schema.default = Some(scalar(default, &spec["type"]).into_owned());
    }
    schema.build()
}

fn scalar<'c>(value: &'c Json, column_type: &Json) -> Value<'c> {
    let integer = || value.as_i64().expect("an integer");
    match column_type.as_str().expect("a type") {
        _ if value.is_null() => Value::Null,
        "string" => Value::str(value.as_str().expect("text")),
        "boolean" => Value::Boolean(value.as_bool().expect("a boolean")),
        "int16" => Value::Int16(integer() as i16),
        "int32" => Value::Int32(integer() as i32),
        "int64" | "date" => Value::Int64(integer()),
        "bytes" => {
            let hex = value.as_str().expect("hex");
            let bytes = (0..hex.len())
                .step_by(2)
                .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex"));
            Value::bytes(bytes.collect())
        }
        other => panic!("column type {other}"),
    }
}

/// A result as the vectors have it.
fn as_json(record: &Record<'_>, table: &str) -> Json {
    let mut out = Map::new();
    let passed = record.topic == table && record.timestamp_ms.is_none();
    if passed {
        out.insert("passed".into(), true.into());
    } else {
        out.insert("key".into(), typed(&record.key));
        out.insert("value".into(), typed(&record.value));
    }
    out.insert("topic".into(), record.topic.as_ref().into());
    if let Some(partition) = record.partition {
        out.insert("partition".into(), partition.into());
    }
    if let Some(timestamp) = record.timestamp_ms {
        out.insert("timestamp".into(), timestamp.into());
    }
    let headers = record.headers.iter().map(|header| {
        let mut with_name = typed(&header.value);
        with_name["name"] = header.name.as_ref().into();
        with_name
    });
    out.insert("headers".into(), headers.collect());
    normalised(&Json::Object(out))
}

fn typed(typed: &SchemaAndValue<'_>) -> Json {
    json!({"schema": typed.schema.as_deref().map(schema), "value": value(&typed.value)})
}

fn schema(schema_: &Schema) -> Json {
    let mut out = json!({"type": schema_.type_name(), "optional": schema_.optional});
    if let Some(name) = &schema_.name {
        out["name"] = name.as_ref().into();
    }
    if let Some(version) = schema_.version {
        out["version"] = version.into();
    }
    if let Some(default) = &schema_.default {
        out["default"] = value(default);
    }
    match &schema_.shape {
        Shape::Float64 => out["type"] = "float64".into(),
        Shape::Array(items) => out["items"] = schema(items),
        Shape::Struct(fields) => {
            out["fields"] = fields
                .iter()
                .map(|field| json!([*field.name, schema(&field.schema)]))
                .collect();
        }
        _ => {}
    }
    out
}

fn value(value_: &Value<'_>) -> Json {
    match value_ {
        Value::Null => Json::Null,
        Value::Boolean(v) => (*v).into(),
        Value::Int16(v) => json!({ "int16": v }),
        Value::Int32(v) => json!({ "int32": v }),
        Value::Int64(v) => json!({ "int64": v }),
        Value::Float64(v) => json!({ "float64": v.to_string() }),
        Value::String(v) => v.as_ref().into(),
        Value::Bytes(v) => json!({"bytes": v.iter().map(|byte| format!("{byte:02x}")).collect::<String>()}),
        Value::Array(elements) => elements.iter().map(value).collect(),
        Value::Struct(v) => json!({"struct": v.values().iter().map(value).collect::<Json>()}),
        other => panic!("{other:?}"),
    }
}

/// Floating-point numbers by their bits, since Java prints them otherwise; errors without their text.
fn normalised(json: &Json) -> Json {
    match json {
        Json::Object(members) if members.contains_key("error") => json!("error"),
        Json::Object(members) => match members.get("float64").and_then(Json::as_str) {
            Some(number) => json!({"float64": number.parse::<f64>().expect("a number").to_bits()}),
            None => members
                .iter()
                .map(|(name, member)| (name.clone(), normalised(member)))
                .collect(),
        },
        Json::Array(elements) => elements.iter().map(normalised).collect(),
        other => other.clone(),
    }
}

fn text(json: &Json) -> String {
    json.as_str().expect("text").to_owned()
}
