//! Cases that a seed decides: change events of made-up tables, and chains of Debezium's transforms.

use serde_json::{Map, Value as Json, json};

use crate::random::{self, Random, headers, struct_value, structure};

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
    // A `java.util.Date` that has no schema is not there in Walferry.
    transforms.retain(|step| step["options"].get("target.type").is_none());
    json!({"transforms": transforms, "records": events(random)})
}

fn string(optional: bool) -> Json {
    json!({"type": "string", "optional": optional})
}

fn field(name: &str, schema: &Json) -> Json {
    json!({"name": name, "schema": schema})
}

/// Some of the events of one table, in any order.
fn events(random: &mut Random) -> Vec<Json> {
    let mut row = structure(random, 1);
    row["optional"] = json!(true);
    row["name"] = json!("srv.public.t_1.Value");
    let number = |optional: bool| json!({"type": "int64", "optional": optional});
    let source = json!({"type": "struct", "optional": false, "name": "io.debezium.connector.postgresql.Source", "version": 1, "fields": [
        field("connector", &string(false)), field("name", &string(false)), field("ts_ms", &number(false)),
        field("table", &string(false)), field("lsn", &number(true)),
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
    (0..5)
        .map(|_| {
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
            let transaction = match random.percent(50) {
                true => json!({"struct": [{"string": "7:8"}, {"int64": "1"}, {"int64": "2"}]}),
                false => Json::Null,
            };
            let value = match random.below(12) {
                0 => json!({"schema": null, "value": null}),
                1 => json!({"schema": heartbeat, "value": {"struct": [{"int64": "1700000000000"}]}}),
                _ => json!({"schema": envelope, "value": {"struct": [
                    before, after,
                    {"struct": [{"string": "postgresql"}, {"string": "srv"}, {"int64": "1700000000000"}, {"string": "t_1"}, {"int64": "42"}]},
                    transaction, {"string": op}, {"int64": "1700000000001"},
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
            })
        })
        .collect()
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

fn step(random: &mut Random) -> Json {
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
