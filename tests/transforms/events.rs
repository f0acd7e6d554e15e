//! Cases that a seed decides: change events of made-up tables, and chains of Debezium's transforms.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};

use crate::random::{self, Random, field_schema, header_to_value, headers, struct_value, structure};

/// A case: a chain of one to three transforms, at least one of Debezium's, and the events of one table.
pub(crate) fn case(random: &mut Random) -> Json {
    let mut transforms: Vec<Json> = vec![step(random)];
    while random.percent(40) && transforms.len() < 3 {
        let next = if random.percent(60) {
            step(random)
        } else {
            random::step(random)
        };
        transforms.push(next);
    }
    // Debezium's HeaderToValue hands records with equal headers one list of headers, and ExtractChangedRecordState adds to that list: its
    // headers then stand on records before and after.
    let adds_headers = |step: &Json| step["class"] == "io.debezium.transforms.ExtractChangedRecordState";
    if transforms.iter().any(adds_headers) {
        for step in &mut transforms {
            if step["options"]
                .get("operation")
                .is_some_and(|operation| operation == "move")
            {
                step["options"]["operation"] = json!("copy");
            }
        }
    }
    // A `java.util.Date` that has no schema is not there in Walferry.
    transforms.retain(|step| step["options"].get("target.type").is_none());
    if random.percent(12) {
        // The estimate of a size needs the source block as it was.
        transforms.insert(0, enforce_record_size(random));
    }
    json!({"transforms": transforms, "records": events(random, true)})
}

/// Configurations of Debezium's transforms, right and wrong, each over the events of a few tables. What they make does not depend on the
/// time of the day.
pub(crate) fn thought_of() -> Vec<Json> {
    let mut random = Random::new(7);
    let mut cases = Vec::new();
    for (class, options) in CONFIGURATIONS {
        let options: Map<String, Json> = options
            .iter()
            .map(|(name, text)| ((*name).to_owned(), json!(text)))
            .collect();
        let step = json!({"class": format!("io.debezium.transforms.{class}"), "options": options});
        cases.push(json!({"transforms": [step], "records": events(&mut random, false)}));
    }
    cases
}

type Options = &'static [(&'static str, &'static str)];

const CONFIGURATIONS: &[(&str, Options)] = &[
    ("HeaderToValue", &[]),
    ("HeaderToValue", &[("headers", "h1"), ("fields", "x")]),
    (
        "HeaderToValue",
        &[("headers", "h1"), ("fields", "x"), ("operation", "take")],
    ),
    (
        "HeaderToValue",
        &[("headers", "h1,h2"), ("fields", "x"), ("operation", "move")],
    ),
    (
        "HeaderToValue",
        &[("headers", "h1,,h2"), ("fields", "x,y,z"), ("operation", "move")],
    ),
    (
        "HeaderToValue",
        &[("headers", "h1,"), ("fields", "x,,"), ("operation", "move")],
    ),
    (
        "HeaderToValue",
        &[("headers", "h 1"), ("fields", "x"), ("operation", "move")],
    ),
    (
        "HeaderToValue",
        &[("headers", "number"), ("fields", "x"), ("operation", " Copy ")],
    ),
    (
        "HeaderToValue",
        &[("headers", "number"), ("fields", "x"), ("operation", "move")],
    ),
    (
        "HeaderToValue",
        &[("headers", "number"), ("fields", "after.x"), ("operation", "move")],
    ),
    (
        "HeaderToValue",
        &[
            ("headers", "number,list"),
            ("fields", "new.x,new.y"),
            ("operation", "move"),
        ],
    ),
    (
        "HeaderToValue",
        &[
            ("headers", "number,list"),
            ("fields", "new.x,new.x"),
            ("operation", "copy"),
        ],
    ),
    (
        "HeaderToValue",
        &[("headers", "number"), ("fields", "op"), ("operation", "copy")],
    ),
    (
        "HeaderToValue",
        &[("headers", "number"), ("fields", "ts_ms.x"), ("operation", "copy")],
    ),
    (
        "HeaderToValue",
        &[("headers", "number"), ("fields", "new.deep.er"), ("operation", "copy")],
    ),
    (
        "HeaderToValue",
        &[("headers", "number"), ("fields", "source.new.x"), ("operation", "copy")],
    ),
    (
        "HeaderToValue",
        &[("headers", "trace"), ("fields", "source.table"), ("operation", "move")],
    ),
    ("TimezoneConverter", &[]),
    ("TimezoneConverter", &[("converted.timezone", "")]),
    ("TimezoneConverter", &[("converted.timezone", "Nowhere/Land")]),
    ("TimezoneConverter", &[("converted.timezone", "europe/berlin")]),
    ("TimezoneConverter", &[("converted.timezone", "+5")]),
    ("TimezoneConverter", &[("converted.timezone", "Europe/Berlin")]),
    ("TimezoneConverter", &[("converted.timezone", "+18:00")]),
    ("TimezoneConverter", &[("converted.timezone", "-00:19:32")]),
    (
        "TimezoneConverter",
        &[
            ("converted.timezone", "Asia/Kolkata"),
            ("include.list", "source:t_1:zoned"),
        ],
    ),
    (
        "TimezoneConverter",
        &[
            ("converted.timezone", "Asia/Kolkata"),
            ("include.list", "source:t_1:before.micros, t_1:after.nanos"),
        ],
    ),
    (
        "TimezoneConverter",
        &[
            ("converted.timezone", "Asia/Kolkata"),
            ("include.list", "t_1:source.ts_ms,t_1:source.ts_us,t_1:source.ts_ns"),
        ],
    ),
    (
        "TimezoneConverter",
        &[
            ("converted.timezone", "Asia/Kolkata"),
            ("exclude.list", "t_1:source.ts_ms"),
        ],
    ),
    (
        "TimezoneConverter",
        &[("converted.timezone", "Asia/Kolkata"), ("exclude.list", "source:t_1")],
    ),
    (
        "TimezoneConverter",
        &[
            ("converted.timezone", "Asia/Kolkata"),
            ("exclude.list", "topic:srv.public.t_1:at"),
        ],
    ),
    (
        "TimezoneConverter",
        &[("converted.timezone", "Asia/Kolkata"), ("include.list", "t_1")],
    ),
    (
        "TimezoneConverter",
        &[("converted.timezone", "Asia/Kolkata"), ("include.list", "")],
    ),
    (
        "TimezoneConverter",
        &[
            ("converted.timezone", "Asia/Kolkata"),
            ("include.list", "source:t_1"),
            ("exclude.list", "source:t_1"),
        ],
    ),
    ("ExtractSchemaToNewRecord", &[]),
    ("ExtractSchemaToNewRecord", &[("schema.name.adjustment.mode", "avro")]),
    ("ExtractSchemaToNewRecord", &[("schema.name.adjustment.mode", "yes")]),
    ("EnforceRecordSize", &[]),
    ("EnforceRecordSize", &[("max.bytes", "0")]),
    ("EnforceRecordSize", &[("max.bytes", "many")]),
    ("EnforceRecordSize", &[("max.bytes", "1"), ("min.field.size", "-1")]),
    ("EnforceRecordSize", &[("max.bytes", "1"), ("compression.ratio", "0")]),
    (
        "EnforceRecordSize",
        &[("max.bytes", "1"), ("compression.ratio", "half")],
    ),
    ("EnforceRecordSize", &[("max.bytes", "1")]),
    ("EnforceRecordSize", &[("max.bytes", "1"), ("min.field.size", "0")]),
    ("EnforceRecordSize", &[("max.bytes", "2500"), ("min.field.size", "2")]),
    (
        "EnforceRecordSize",
        &[
            ("max.bytes", "2500"),
            ("min.field.size", "2"),
            ("compression.ratio", "1.2"),
        ],
    ),
];

/// A case: logical decoding messages, decoded.
pub(crate) fn messages(random: &mut Random) -> Json {
    let mut transforms = vec![json!({
        "class": "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
        "options": if random.percent(50) { json!({"fields.null.include": random.one(&["true", "false"])}) } else { json!({}) },
    })];
    if random.percent(50) {
        let expand = random.one(&["true", "false"]);
        transforms.push(json!({"class": "io.debezium.transforms.outbox.EventRouter", "options": {
            "table.expand.json.payload": expand, "table.fields.additional.placement": random.one(&["type:header", "type:header:kind", "type:envelope", "n:header"]),
        }}));
    }
    if random.percent(30) {
        transforms.push(random::step(random));
    }
    let schemas = message_schemas(random);
    let records = (0..6).map(|_| message(random, &schemas)).collect::<Vec<_>>();
    json!({"transforms": transforms, "records": records})
}

/// The schemas of a message's key and value, and of a tombstone.
fn message_schemas(random: &mut Random) -> (Json, Json) {
    let key = json!({"type": "struct", "optional": false, "name": "io.debezium.connector.postgresql.MessageKey", "version": 1, "fields": [
        field("prefix", &string(true)),
    ]});
    let content = if random.percent(97) { "bytes" } else { "string" };
    let block = json!({"type": "struct", "optional": false, "name": "io.debezium.connector.postgresql.Message", "version": 1, "fields": [
        field("prefix", &string(true)), field("content", &json!({"type": content, "optional": true})),
    ]});
    let number = json!({"type": "int64", "optional": true});
    let source = json!({"type": "struct", "optional": false, "name": "io.debezium.connector.postgresql.Source", "fields": [
        field("table", &string(false)), field("lsn", &number),
    ]});
    let mut fields = vec![
        field("op", &string(false)),
        field("ts_ms", &number),
        field("source", &source),
    ];
    let at = if random.percent(90) { 3 } else { random.below(4) };
    fields.insert(at, field("message", &block));
    let value = json!({"type": "struct", "optional": false, "name": "io.debezium.connector.postgresql.MessageValue", "version": 1,
        "fields": fields});
    (key, value)
}

/// The order of fields that several objects of an array have between them follows identity hashes of the JVM, so all objects are of one
/// shape here.
fn message(random: &mut Random, (key, schema): &(Json, Json)) -> Json {
    const CONTENTS: [&str; 22] = [
        r#"{"id":"1","aggregatetype":"Order","aggregateid":"7","type":"Created","payload":"{\"a\": 1}"}"#,
        r#"{"id":"2","aggregatetype":"Order","aggregateid":"8","type":"Created","payload":"{\"a\": 2, \"b\": []}"}"#,
        r#"{"id":"3","aggregatetype":"User","aggregateid":"9","type":"Gone","payload":null,"n":5}"#,
        r#"{"id":"4","aggregatetype":"User","aggregateid":9,"type":"Gone","payload":"x","n":5000000000}"#,
        r#"{"a":1,"b":null}"#,
        r#"{"a":{"b":{"c":[1,2,3]},"d":[{"x":1},{"x":2}]}}"#,
        r#"{"a":[{"x":null},{"x":null}]}"#,
        r#"{"a":[null,"b"]}"#,
        r#"{"a":[]}"#,
        r#"{"a":[null]}"#,
        r#"{"a":1.5,"b":true,"c":1e400}"#,
        r#"{"a":123456789012345678901234567890}"#,
        r#"{"a":[1,"x"]}"#,
        r#"{"a":[[1],[2]]}"#,
        r#"{"":1}"#,
        r#"{"é ":"😀"}"#,
        "{}",
        "[]",
        r#"[{"a":1}]"#,
        "text",
        " {}",
        "{",
    ];
    let content = match random.below(30) {
        0 => Json::Null,
        1 => json!({"bytes": "e/8="}),
        // Mostly rows of an outbox.
        2..18 => json!({"bytes": STANDARD.encode(random.one(&[CONTENTS[0], CONTENTS[1], CONTENTS[2], CONTENTS[3]]))}),
        _ => json!({"bytes": STANDARD.encode(random.one(&CONTENTS))}),
    };
    let text = schema["fields"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|field| field["name"] == "message");
    let is_text = text.is_some_and(|field| field["schema"]["fields"][1]["schema"]["type"] == "string");
    let content = if is_text { json!({"string": "eA=="}) } else { content };
    let fields = schema["fields"].as_array().into_iter().flatten();
    let values = fields.map(|field| match field["name"].as_str() {
        Some("op") => json!({"string": "m"}),
        Some("ts_ms") => json!({"int64": "1700000000000"}),
        Some("source") => json!({"struct": [{"string": ""}, {"int64": "42"}]}),
        _ => json!({"struct": [{"string": "outbox"}, content]}),
    });
    let value = match random.below(15) {
        0 => json!({"schema": null, "value": null}),
        1 => json!({"schema": {"type": "string", "optional": true}, "value": {"string": "other"}}),
        _ => json!({"schema": schema, "value": {"struct": values.collect::<Vec<_>>()}}),
    };
    json!({
        "topic": "srv.message", "partition": Json::Null, "timestamp": Json::Null,
        "key": {"schema": key, "value": {"struct": [{"string": "outbox"}]}},
        "value": value, "headers": headers(random),
    })
}

pub(crate) fn string(optional: bool) -> Json {
    json!({"type": "string", "optional": optional})
}

pub(crate) fn field(name: &str, schema: &Json) -> Json {
    json!({"name": name, "schema": schema})
}

/// Some of the events of one table, in any order. Times without a date depend on the present offset of a time zone, so the events
/// are of the present where there are such times.
pub(crate) fn events(random: &mut Random, with_times: bool) -> Vec<Json> {
    let now = if with_times { now() } else { "1700000000001".to_owned() };
    let mut row = structure(random, 1);
    row["optional"] = json!(true);
    row["name"] = json!("srv.public.t_1.Value");
    for name in ["zoned", "zoned_time", "nanos", "millis"] {
        if random.percent(40) && (with_times || name != "zoned_time") {
            let schema = field_schema(random, name, 0);
            row["fields"].as_array_mut().expect("fields").push(field(name, &schema));
        }
    }
    if random.percent(60) {
        for field in row["fields"].as_array_mut().into_iter().flatten() {
            propagate(random, field);
        }
    }
    let number = |optional: bool| json!({"type": "int64", "optional": optional});
    let source = json!({"type": "struct", "optional": false, "name": "io.debezium.connector.postgresql.Source", "version": 1, "fields": [
        field("connector", &string(false)), field("name", &string(false)), field("ts_ms", &number(false)),
        field("table", &string(false)), field("lsn", &number(true)), field("ts_us", &number(true)), field("ts_ns", &number(true)),
    ]});
    let transaction = json!({"type": "struct", "optional": true, "name": "event.block", "version": 1, "fields": [
        field("id", &string(false)), field("total_order", &number(false)), field("data_collection_order", &number(false)),
    ]});
    let envelope = json!({"type": "struct", "optional": false, "name": "srv.public.t_1.Envelope", "version": 2, "fields": [
        field("before", &row), field("after", &row), field("source", &source), field("transaction", &transaction),
        field("op", &string(false)), field("ts_ms", &number(true)),
    ]});
    let key = json!({"type": "struct", "optional": false, "name": "srv.public.t_1.Key", "fields": [
        field("id", &json!({"type": "int32", "optional": false})),
    ]});
    let heartbeat = json!({"type": "struct", "optional": false, "name": "io.debezium.connector.common.Heartbeat", "fields": [
        field("ts_ms", &number(false)),
    ]});
    // A schema belongs to one topic: Debezium remembers what it made of it for the first.
    let topic = random.one(&["srv.public.t_1", "srv.public.t_22", "heartbeat"]);
    let events = (0..5).map(|_| {
            let op = random.one(&["c", "u", "u", "d", "r", "t"]);
            let row_value = |random: &mut Random, there: bool| match there {
                true => struct_value(random, &row),
                false => Json::Null,
            };
            let has_before = matches!(op, "d" | "u") && random.percent(90);
            let before = row_value(random, has_before);
            let after = match op {
                // Often most fields stay as they were.
                "u" if !before.is_null() && random.percent(60) => mixed(random, &before, &row),
                "c" | "u" | "r" => row_value(random, true),
                _ => Json::Null,
            };
            let with_transaction = random.percent(50);
            let transaction = match with_transaction {
                true => json!({"struct": [{"string": "7:8"}, {"int64": "1"}, {"int64": "2"}]}),
                false => Json::Null,
            };
            let value = match random.below(12) {
                0 => json!({"schema": null, "value": null}),
                1 => json!({"schema": heartbeat, "value": {"struct": [{"int64": "1700000000000"}]}}),
                _ => json!({"schema": envelope, "value": {"struct": [
                    before, after,
                    {"struct": [{"string": "postgresql"}, {"string": "srv"}, {"int64": "1700000000000"}, {"string": "t_1"}, {"int64": "42"},
                        {"int64": "1700000000000001"}, {"int64": "1700000000000000001"}]},
                    transaction, {"string": op}, {"int64": now},
                ]}}),
            };
            let key = match random.below(10) {
                0 => json!({"schema": null, "value": null}),
                _ => json!({"schema": key, "value": {"struct": [{"int32": random.below(9).to_string()}]}}),
            };
            json!({
                "topic": topic,
                "partition": if random.percent(10) { json!(random.below(8)) } else { Json::Null },
                "timestamp": Json::Null,
                "key": key,
                "value": value,
                "headers": headers(random),
                // ts_ms, lsn, lsn_proc, lsn_commit, messageType; with a transaction its id and a counter
                "offset": if with_transaction { 7 } else { 5 },
            })
        });
    let mut events: Vec<Json> = events.collect();
    random::share_headers(&mut events);
    events
}

/// Now, which decides on the offset of a time without a date.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    now.as_millis().to_string()
}

/// Adds what `column.propagate.source.type` adds to the schema of a column.
fn propagate(random: &mut Random, field: &mut Json) {
    let mut parameters = field["schema"]["parameters"].as_array().cloned().unwrap_or_default();
    parameters.retain(|pair| pair[0] != "__debezium.source.column.type");
    let mut add = |name: &str, text: &str| parameters.push(json!([format!("__debezium.source.column.{name}"), text]));
    add("type", random.one(&["INT4", "VARCHAR"]));
    for (name, texts) in [
        ("length", ["10", "2147483647"]),
        ("scale", ["0", "-3"]),
        ("comment", ["", "a column"]),
    ] {
        if random.percent(40) {
            add(name, random.one(&[texts[0], texts[1]]));
        }
    }
    if random.percent(1) {
        add("length", "many");
    } else {
        add("name", field["name"].as_str().unwrap_or_default());
    }
    field["schema"]["parameters"] = json!(parameters);
}

fn enforce_record_size(random: &mut Random) -> Json {
    let mut options = Map::new();
    let mut set = |name: &str, text: &str| drop(options.insert(name.into(), json!(text)));
    set(
        "max.bytes",
        random.one(&["1", "1500", "2000", "2400", "2600", "2800", "3200", "0", " 2500 "]),
    );
    if random.percent(80) {
        set("min.field.size", random.one(&["0", "1", "3", "10", "-1"]));
    }
    if random.percent(30) {
        set(
            "compression.ratio",
            random.one(&["0.5", "1.1", "1.0", "NaN", "1e3", "-1", "0", "x", "0.9f"]),
        );
    }
    json!({"class": "io.debezium.transforms.EnforceRecordSize", "options": options})
}

fn timezone_converter(random: &mut Random) -> Json {
    let mut options = Map::new();
    let mut set = |name: &str, text: &str| drop(options.insert(name.into(), json!(text)));
    let zones = [
        "Europe/Berlin",
        "America/New_York",
        "Asia/Kolkata",
        "+05:30",
        "-08:00",
        "+01:02:03",
        "Australia/Lord_Howe",
        "UTC",
        "America/Sao_Paulo",
        "Etc/GMT+8",
        "America/St_Johns",
        "GMT",
        "Europe/berlin",
        "EST5",
        "+5:30",
        "ROC",
    ];
    set("converted.timezone", random.one(&zones));
    let lists = [
        "source:t_1",
        "topic:srv.public.t_22",
        "topic:srv.public.t_1:zoned",
        "source:t_1:micros, t_1:zoned",
        "t_1:millis,t_1:after.nanos",
        "srv.public.t_1:before.zoned",
        "source:t_1:source.ts_ms",
        "t_1:source.ts_us,t_1:source.ts_ns,t_1:source.name",
        "source:other",
        "Source:t_1",
        "t_1",
        "source:t_1:micros,source:t_1:zoned",
        "source:t_1:micros:x",
        "t_1:at,,t_1:zoned",
        "source:t_1,",
        "",
        "t-1:at",
        "topic:t_1,srv.public.t_1:at",
        "SOURCE:t_1:at",
        "source : t_1",
        "t_1:micros,source:t_1",
    ];
    match random.below(8) {
        0..3 => {}
        3..6 => set("include.list", random.one(&lists)),
        6 => set("exclude.list", random.one(&lists)),
        _ => {
            set("exclude.list", random.one(&lists));
            if random.percent(30) {
                set("include.list", random.one(&lists));
            }
        }
    }
    json!({"class": "io.debezium.transforms.TimezoneConverter", "options": options})
}

/// Another version of a row, some of whose fields are as they were.
fn mixed(random: &mut Random, before: &Json, row: &Json) -> Json {
    let other = struct_value(random, row);
    let values = before["struct"].as_array().into_iter().flatten();
    let others = other["struct"].as_array().into_iter().flatten();
    let mixed: Vec<&Json> = values
        .zip(others)
        .map(|(one, other)| if random.percent(60) { one } else { other })
        .collect();
    json!({"struct": mixed})
}

pub(crate) fn step(random: &mut Random) -> Json {
    match random.below(9) {
        0 => return header_to_value(random),
        1 | 2 => return timezone_converter(random),
        3 => {
            let mode = random.one(&["none", "avro", "avro_unicode", "no"]);
            let options = if random.percent(20) {
                json!({"schema.name.adjustment.mode": mode})
            } else {
                json!({})
            };
            return json!({"class": "io.debezium.transforms.ExtractSchemaToNewRecord", "options": options});
        }
        _ => {}
    }
    let mut options = Map::new();
    let mut set = |name: &str, text: &str| drop(options.insert(name.into(), json!(text)));
    let class = match random.below(4) {
        0 => {
            set("topic.regex", random.one(&["(.*)_\\d+", "(.*)_(.)", "x(.*)", "(.*)"]));
            set("topic.replacement", random.one(&["$1", "all-tables", "$1.x", ""]));
            if random.percent(30) {
                set("key.enforce.uniqueness", random.one(&["true", "false"]));
            }
            if random.percent(30) {
                set("key.field.name", random.one(&["table", "id"]));
            }
            if random.percent(30) {
                set("key.field.regex", random.one(&["(.*)\\.(.*)", "()(no)"]));
                set("key.field.replacement", random.one(&["$2", "shard", ""]));
            }
            if random.percent(30) {
                set(
                    "schema.name.adjustment.mode",
                    random.one(&["none", "avro", "avro_unicode"]),
                );
            }
            "ByLogicalTableRouter"
        }
        1 => {
            if random.percent(80) {
                set("header.changed.name", random.one(&["changed", " ", "h1"]));
            }
            if random.percent(60) {
                set("header.unchanged.name", "unchanged");
            }
            "ExtractChangedRecordState"
        }
        2 => {
            set(
                "schema.change.event.exclude.list",
                random.one(&["ALTER", "CREATE, DROP", "alter", "X"]),
            );
            "SchemaChangeEventFilter"
        }
        _ => {
            const PATHS: [&str; 30] = [
                "change.id",
                "change.name",
                "change.amount",
                "change.ts",
                "change.micros",
                "change.at",
                "change.day",
                "change.time",
                "change.blob",
                "change.flag",
                "change.ratio",
                "change.single",
                "change.tiny",
                "change.small",
                "change.tags",
                "change.attrs",
                "change.when",
                "change.digits",
                "change.lots",
                "after.code",
                "before.id",
                "source.table",
                "op",
                "source.lsn",
                "ts_ms",
                "transaction.id",
                "missing",
                "after.missing",
                "op.x",
                " change . id ",
            ];
            set("partition.payload.fields", &random.some(&PATHS, 6).join(","));
            set("partition.topic.num", random.one(&["1", "7", "16", "1000003", "0"]));
            if random.percent(60) {
                set(
                    "partition.hash.function",
                    random.one(&["java", "murmur", "MURMUR", "other"]),
                );
            }
            "partitions.PartitionRouting"
        }
    };
    json!({"class": format!("io.debezium.transforms.{class}"), "options": options})
}
