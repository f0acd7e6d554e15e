//! Cases that a seed decides: any transforms in one chain, Kafka's and Debezium's, over all that a connector sends: rows of an outbox
//! among change events, messages, heartbeats, and headers of every type.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};

use crate::events::{self, field, string};
use crate::random::{self, Random};
use crate::shapes;

/// A case: a chain of two to five transforms, and records of one kind with some of another among them.
pub(crate) fn case(random: &mut Random) -> Json {
    let of_outbox = random.percent(40);
    let mut records = match of_outbox {
        true => outbox_rows(random),
        false => events::events(random, false),
    };
    for record in &mut records {
        let headers = record["headers"].as_array_mut().expect("headers");
        headers.extend((0..random.below(3)).map(|_| header(random)));
    }
    // Rows of other tables pass Walferry's EventRouter, and stop Debezium's.
    let mut transforms: Vec<Json> = (0..2 + random.below(4))
        .map(|_| match of_outbox && random.percent(5) {
            true => event_router(random),
            false => step(random),
        })
        .collect();
    match of_outbox {
        true if random.percent(80) => {
            let place = random.below(2);
            transforms[place] = event_router(random);
        }
        false if random.percent(50) => {
            let place = random.below(2);
            transforms[place] = random::extract_new_record_state(random);
        }
        _ => {}
    }
    for step in &mut transforms {
        if step.get("predicate").is_none() && random.percent(25) {
            step["predicate"] = random::predicate(random);
        }
    }
    random::share_headers(&mut records);
    let adds = |step: &Json, class: &str| step["class"].as_str().is_some_and(|name| name.ends_with(class));
    // Debezium's HeaderToValue hands records with equal headers one list of headers, and these two add to that list.
    let shares = ["ExtractChangedRecordState", "ExtractNewRecordState"];
    if shares
        .iter()
        .any(|class| transforms.iter().any(|step| adds(step, class)))
    {
        transforms
            .retain(|step| step["options"].get("operation") != Some(&json!("move")) || !adds(step, "HeaderToValue"));
    }
    json!({"transforms": transforms, "records": records})
}

fn step(random: &mut Random) -> Json {
    match random.below(20) {
        0..13 => random::step(random),
        13..17 => events::step(random),
        17 => shapes::step(random),
        _ => random::extract_new_record_state(random),
    }
}

/// A header of any type.
fn header(random: &mut Random) -> Json {
    let typed = |schema: Json, value: Json| json!({"schema": schema, "value": value});
    let plain = |kind: &str, optional: bool| json!({"type": kind, "optional": optional});
    let kind = random.one(&[
        "int8", "int16", "int32", "int64", "boolean", "float32", "float64", "bytes", "string",
    ]);
    let value = match random.below(14) {
        0 => {
            let name = random.one(&["day", "time", "at", "amount", "micros", "tags", "attrs"]);
            let schema = random::field_schema(random, name, 0);
            let value = random::value(random, name, &schema);
            typed(schema, value)
        }
        1 => {
            // Without defaults: transforms of geometries write them into a struct, wherever else that stands.
            let mut schema = random::structure(random, 0);
            for field in schema["fields"].as_array_mut().into_iter().flatten() {
                field["schema"].as_object_mut().expect("a schema").remove("default");
            }
            let value = random::struct_value(random, &schema);
            typed(schema, value)
        }
        2 => typed(plain(kind, true), Json::Null),
        3 => typed(Json::Null, json!({"string": "bare"})),
        4 => typed(Json::Null, json!({"int64": "5"})),
        5 => typed(Json::Null, json!({"boolean": true})),
        6 => typed(Json::Null, json!({"map": [[{"string": "a"}, {"int32": "1"}]]})),
        _ => {
            let value = match kind {
                "boolean" => json!({"boolean": random.percent(50)}),
                "bytes" => json!({"bytes": "AAH/"}),
                "string" => json!({"string": random.one(&["", "v", "Zoë 😀", "7"])}),
                "float32" => json!({"float32": (1.5_f32.to_bits() as i32).to_string()}),
                "float64" => json!({"float64": (0.1_f64.to_bits() as i64).to_string()}),
                kind => json!({kind: random.below(100).to_string()}),
            };
            typed(plain(kind, random.percent(30)), value)
        }
    };
    json!({"name": random.one(&["h1", "h2", "trace", "number", "list", "dropped"]), "value": value})
}

/// EventRouter, with options that Debezium takes: what Walferry refuses at the start and Debezium at the first row is left out.
fn event_router(random: &mut Random) -> Json {
    let mut options = Map::new();
    let mut set = |name: &str, text: &str| drop(options.insert(name.into(), json!(text)));
    let expands = random.percent(35);
    if expands || random.percent(20) {
        set("table.expand.json.payload", &expands.to_string());
        if random.percent(40) {
            set(
                "table.json.payload.null.behavior",
                random.one(&["ignore", "optional_bytes"]),
            );
        }
    }
    if random.percent(60) {
        let placements = [
            "type:header",
            "type:header:kind",
            "type:envelope",
            "tenant:header",
            "tenant:envelope:who",
            "at:header",
            "n:envelope",
            "n:partition",
            "aggregatetype:envelope: what ",
            "payload:header",
            "id:header:again",
            "version:envelope",
        ];
        set(
            "table.fields.additional.placement",
            &random.some(&placements, 15).join(","),
        );
    }
    for (option, column, chances) in [
        ("table.field.event.timestamp", "at", 30),
        ("table.field.event.schema.version", "version", 25),
        ("table.field.event.key", "n", 15),
        ("table.field.event.key", "tenant", 15),
        ("table.field.event.id", "tenant", 8),
        ("table.field.event.payload", "tenant", 8),
        ("route.by.field", "type", 20),
    ] {
        // Debezium makes one schema for each version, whatever the payloads are.
        let clashes = expands && option.ends_with("version");
        if !clashes && random.percent(chances) {
            set(option, column);
        }
    }
    if random.percent(30) {
        set(
            "route.topic.regex",
            random.one(&["(.)(.*)", "(?<routedByValue>.*)", "(Ord)er"]),
        );
        set("route.topic.replacement", random.one(&["$1-x", "all", "events.$0"]));
    }
    if random.percent(40) {
        set("route.tombstone.on.empty.payload", random.one(&["true", "false"]));
    }
    if random.percent(30) {
        set("table.op.invalid.behavior", random.one(&["warn", "error", "fatal"]));
    }
    if random.percent(15) {
        set(
            "field.name.adjustment.mode",
            random.one(&["none", "avro", "avro_unicode"]),
        );
    }
    json!({"class": "io.debezium.transforms.outbox.EventRouter", "options": options})
}

/// Change events of an outbox table that has all columns which a router may name.
fn outbox_rows(random: &mut Random) -> Vec<Json> {
    // Not among them is what is sent as text here and stops Debezium: see `misfit` in the list of differences.
    const PAYLOADS: [&str; 11] = [
        r#"{"id":1,"name":"x","nothing":null}"#,
        r#"{"a":{"b":{"c":[1,2,3]}},"d":[{"x":1},{"x":2}]}"#,
        r#"{"a":[],"b":[null],"c":[null,"x"]}"#,
        r#"{"a":1.0,"b":3000000000,"c":true,"d":""}"#,
        r#"{"a-b":1,"1c":2,"é":3}"#,
        r#"{"a":1,"a":2}"#,
        "{}",
        "plain",
        "",
        "  ",
        "{",
    ];
    let named = |schema: Json, name: &str| {
        let mut schema = schema;
        schema["name"] = json!(name);
        schema["version"] = json!(1);
        schema
    };
    let number = |kind: &str, optional: bool| json!({"type": kind, "optional": optional});
    let payload = match random.below(5) {
        0 => json!({"type": "bytes", "optional": true}),
        1 => string(true),
        2 => {
            let mut schema = string(true);
            schema["default"] = json!({"string": "{\"dflt\":1}"});
            schema
        }
        _ => named(string(true), "io.debezium.data.Json"),
    };
    let time = random.one(&["Timestamp", "MicroTimestamp", "NanoTimestamp"]);
    let row = json!({"type": "struct", "optional": true, "name": "srv.public.outbox.Value", "fields": [
        field("id", &named(string(false), "io.debezium.data.Uuid")),
        field("aggregatetype", &string(false)),
        field("aggregateid", &string(random.percent(50))),
        field("type", &string(false)),
        field("payload", &payload),
        field("tenant", &string(true)),
        field("n", &number("int32", true)),
        field("at", &named(number("int64", true), &format!("io.debezium.time.{time}"))),
        field("version", &number("int32", random.percent(50))),
    ]});
    let source = json!({"type": "struct", "optional": false, "name": "io.debezium.connector.postgresql.Source", "fields": [
        field("table", &string(false)), field("lsn", &number("int64", true)),
    ]});
    let envelope = json!({"type": "struct", "optional": false, "name": "srv.public.outbox.Envelope", "version": 2, "fields": [
        field("before", &row), field("after", &row), field("source", &source), field("op", &string(false)),
        field("ts_ms", &number("int64", true)),
    ]});
    let key = json!({"type": "struct", "optional": false, "name": "srv.public.outbox.Key", "fields": [
        field("id", &named(string(false), "io.debezium.data.Uuid")),
    ]});
    let values = |random: &mut Random| {
        let or_null = |random: &mut Random, value: Json| if random.percent(15) { Json::Null } else { value };
        let text = random.one(&PAYLOADS);
        let content = match payload["type"] == "bytes" {
            true => json!({"bytes": STANDARD.encode(text)}),
            false => json!({"string": text}),
        };
        let moment = random.below(2_000_000_000_000_000_000);
        let optional_id = row["fields"][2]["schema"]["optional"] == json!(true);
        let aggregate = json!({"string": random.one(&["1", "ü"])});
        let aggregate = if optional_id {
            or_null(random, aggregate)
        } else {
            aggregate
        };
        let version = json!({"int32": random.below(3).to_string()});
        let kind = json!({"string": random.one(&["Created", "Gone"])});
        let tenant = json!({"string": random.one(&["t1", "", "{\"t\":1}"])});
        let n = json!({"int32": random.below(5).to_string()});
        json!({"struct": [
            {"string": format!("00000000-0000-0000-0000-00000000000{}", random.below(10))},
            {"string": random.one(&["Order", "User"])},
            aggregate,
            kind,
            or_null(random, content),
            or_null(random, tenant),
            or_null(random, n),
            or_null(random, json!({"int64": moment.to_string()})),
            version,
        ]})
    };
    let rows = (0..5).flat_map(|_| {
        let op = random.one(&["c", "c", "c", "r", "u", "d"]);
        let before = if matches!(op, "u" | "d") { values(random) } else { Json::Null };
        let after = if op == "d" { Json::Null } else { values(random) };
        let value = match random.below(12) {
            0 => json!({"schema": {"type": "struct", "optional": false, "name": "io.debezium.connector.common.Heartbeat",
                "fields": [field("ts_ms", &number("int64", false))]}, "value": {"struct": [{"int64": "1700000000000"}]}}),
            _ => json!({"schema": envelope, "value": {"struct": [
                before, after, {"struct": [{"string": "outbox"}, {"int64": "42"}]}, {"string": op}, {"int64": "1700000000123"},
            ]}}),
        };
        let is_delete = op == "d" && value["schema"] == envelope;
        let is_heartbeat = value["schema"] != envelope;
        let topic = if is_heartbeat { "__debezium-heartbeat.srv" } else { "srv.public.outbox" };
        let record = json!({
            "topic": topic, "partition": null, "timestamp": null,
            "key": {"schema": key, "value": {"struct": [{"string": "00000000-0000-0000-0000-000000000001"}]}},
            "value": value, "headers": random::headers(random),
        });
        let mut tombstone = record.clone();
        tombstone["value"] = json!({"schema": null, "value": null});
        let with_tombstone = is_delete && random.percent(80);
        [Some(record), with_tombstone.then_some(tombstone)].into_iter().flatten()
    });
    rows.collect()
}
