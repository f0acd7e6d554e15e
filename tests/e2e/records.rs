//! The kinds of records that no recording of Debezium under `tests/golden` has, for `docs/reference/records.md`.

use std::{fs, path::PathBuf};

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Record, Walferry, WalferryOptions};

use crate::{signals::config, world};

/// Run with this variable to write the recording anew. Then run `cargo xtask docs`.
const WRITE: &str = "WALFERRY_TEST_RECORD";

/// Texts that are others in each run.
const VARYING: [&str; 6] = [
    "id",
    "sequence",
    "version",
    "walferry.lsn",
    "__connect.errors.exception.message",
    "__debezium.context.runId",
];

fn recording() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("e2e/recorded.json")
}

/// JSON, or text that is none.
fn read(bytes: Option<&[u8]>) -> Value {
    let Some(bytes) = bytes else { return Value::Null };
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}

fn shown(kind: &str, record: &Record) -> Value {
    let headers: Map<String, Value> = record
        .headers
        .iter()
        .map(|(name, value)| (name.clone(), read(value.as_deref())))
        .collect();
    json!({
        "kind": kind,
        "topic": record.topic,
        "key": read(record.key.as_deref()),
        "value": read(record.value.as_deref()),
        "headers": headers,
    })
}

/// A record without what differs between two runs.
fn masked(value: &Value) -> Value {
    match value {
        Value::Number(_) => "a number".into(),
        Value::Array(items) => items.iter().map(masked).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| {
                let varies = VARYING.contains(&name.as_str()) && value.is_string();
                (name.clone(), if varies { "a text".into() } else { masked(value) })
            });
            Value::Object(members.collect())
        }
        other => other.clone(),
    }
}

#[test]
fn the_recorded_kinds_of_records_are_sent_as_the_page_shows_them() {
    let world = world::shared();
    let database = world.postgres.database("told");
    let sql = database.sql();
    sql.run(
        "create table signals (id varchar(64) primary key, type varchar(32) not null, data varchar(2048));
         create table items (id int primary key, name text);
         create table items_by_code (id text primary key);
         insert into items values (1, 'a lamp')",
    );
    let properties = [
        ("heartbeat.interval.ms", "500"),
        ("notification.enabled.channels", "sink"),
        ("notification.sink.topic.name", "told.notifications"),
        ("errors.tolerance", "all"),
        ("errors.deadletterqueue.topic.name", "told.dead-letters"),
        ("transforms", "number"),
        ("transforms.number.type", "org.apache.kafka.connect.transforms.Cast$Key"),
        ("transforms.number.spec", "id:int32"),
        ("transforms.number.predicate", "coded"),
        ("predicates", "coded"),
        (
            "predicates.coded.type",
            "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        ),
        ("predicates.coded.pattern", "told\\.public\\.items_by_code"),
    ];
    let mut walferry = Walferry::start(WalferryOptions {
        name: "told".into(),
        config: config("told", &database, &properties),
        worker: Vec::new(),
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    });
    walferry.wait_until_ready();
    sql.run("insert into items_by_code values ('twelve')");
    sql.run("insert into signals values ('ask-1', 'execute-snapshot', '{\"data-collections\": [\"public.items\"]}')");

    let first = |topic: &str| world.kafka.wait_for_records(topic, 1).remove(0);
    // The first one says that no initial snapshot is taken.
    let notifications = world.kafka.wait_for_records("told.notifications", 2);
    let started = notifications
        .iter()
        .find(|record| read(record.value.as_deref())["type"] == "STARTED")
        .expect("the snapshot is told of");
    let recorded = json!([
        shown("heartbeat", &first("__debezium-heartbeat.told")),
        shown("incremental", &first("told.public.items")),
        shown("notification", started),
        shown("dead letter", &first("told.dead-letters")),
    ]);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    if std::env::var_os(WRITE).is_some() {
        let text = serde_json::to_string_pretty(&recorded).expect("it is JSON") + "\n";
        fs::write(recording(), text).expect("the recording can be written");
    }
    let expected = fs::read_to_string(recording()).expect("the recording is there");
    let expected: Value = serde_json::from_str(&expected).expect("it is JSON");
    assert_eq!(
        masked(&recorded),
        masked(&expected),
        "if this is meant: run the test with {WRITE}=1, then `cargo xtask docs`"
    );
    sql.drop_slot("told");
}
