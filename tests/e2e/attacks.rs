//! Scripted attempts to get in, each with what must come of it.

use serde_json::json;
use walferry_testkit::servers::{Kafka, wait_for};

use crate::{
    hostile_names::assert_is_printable,
    signals::{SIGNALS, begin, config, drop_slot, start_as, wait_for_log},
    takeover,
};

const CLASS: &str = "io.debezium.connector.postgresql.PostgresConnector";
const SECRET: &str = "TOPIC-SECRET-4711";

/// Whoever may write to Connect's topics is a writer of the API and nothing more, and what is no record of Connect's does nothing.
#[test]
fn records_that_connect_did_not_write_are_passed_over() {
    let kafka = Kafka::start();
    let compacted = [("cleanup.policy", "compact"), ("max.message.bytes", "2000000")];
    for topic in ["connect-configs", "connect-status", "connect-offsets"] {
        kafka.create_topic_with(topic, 1, &compacted);
    }
    let deep = "[".repeat(100_000);
    let deep_properties = format!("{{\"properties\":{}}}", "{\"a\":".repeat(50_000));
    let wide = json!({ "properties": (0..20_000).map(|n| (format!("p{n}"), "x")).collect::<std::collections::BTreeMap<_, _>>() }).to_string();
    let reading = |reference: &str| {
        json!({ "properties": { "connector.class": CLASS, "database.hostname": "127.0.0.1", "database.port": "1", "database.user": "u",
            "database.dbname": reference, "topic.prefix": "p", "tasks.max": "1" } })
        .to_string()
    };
    let (variable, file) = (reading("${env:WALFERRY_ATTACK}"), reading("${file:/etc/passwd:root}"));
    let signal_file = json!({ "properties": { "connector.class": CLASS, "database.hostname": "127.0.0.1", "database.port": "1", "database.user": "u",
        "database.dbname": "d", "topic.prefix": "p", "signal.enabled.channels": "file", "signal.file": "/etc/hostname" } })
    .to_string();
    let plain = reading("d");
    kafka.produce(
        "connect-configs",
        &[
            ("connector-text", "not JSON"),
            ("connector-", &plain),
            ("connector-number", r#"{"properties":{"connector.class":5}}"#),
            ("connector-null", r#"{"properties":null}"#),
            ("connector-list", r#"[1,2,3]"#),
            ("connector-deep", &deep),
            ("connector-deeper", &deep_properties),
            ("connector-wide", &wide),
            ("connector-../../pwn", &plain),
            ("connector-%worker", &plain),
            ("connector-.", &plain),
            ("connector-a\nb INFO forged line", &plain),
            ("connector-\u{1b}]0;owned\u{7}\u{9b}2J", &plain),
            ("connector-variable", &variable),
            ("connector-file", &file),
            ("connector-signals", &signal_file),
            ("target-state-number", r#"{"state":5,"state.v2":{}}"#),
            ("target-state-nobody", r#"{"state":"STOPPED"}"#),
            ("task-x-99999999999999999999", r#"{"properties":{}}"#),
            ("commit-x", r#"{"tasks":-1}"#),
            ("session-key", "\u{0}"),
            ("", "{}"),
        ],
    );
    kafka.produce(
        "connect-status",
        &[
            (
                "status-connector-\u{1b}[2J",
                r#"{"state":"RUNNING","worker_id":"\u001b]0;owned\u0007"}"#,
            ),
            ("status-task-x--1", "{}"),
            ("status-task-x-1e9", "{}"),
            ("status-topic-:connector-", r#"{"topic":{"discoverTimestamp":-1}}"#),
            ("status-connector-deep", &deep),
            ("status-connector-good", r#"{"state":"FAILED","trace":"forged"}"#),
        ],
    );
    kafka.produce(
        "connect-offsets",
        &[
            ("[\"good\",{\"server\":\"other\"}]", "{\"lsn\":"),
            ("not a key", "{}"),
            ("[\"good\"", &deep),
        ],
    );
    let mut walferry = takeover::start_with_variable(&kafka, "hostile_records", ("WALFERRY_ATTACK", SECRET));
    takeover::wait_for_turn(&mut walferry);
    // What is a configuration of ours is a connector, which fails or waits for a server that is not there. Nothing else is.
    let names = walferry.get("/connectors").expect("it answers").json();
    let names: Vec<&str> = names
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|name| name.as_str())
        .collect();
    for wrong in ["text", "number", "null", "list", "deep", "deeper", "wide", "nobody"] {
        assert!(!names.contains(&wrong), "{names:?}");
    }
    for name in ["variable", "file", "signals"] {
        wait_for(&format!("{name} to be told of"), || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            let answer = walferry.get(&format!("/connectors/{name}/status"))?;
            answer.body.contains("FAILED").then_some(())
        });
    }
    // The worker works for others.
    let (_, database) = begin("hostile_records");
    let sql = database.sql();
    sql.run("create table items (id int primary key); insert into items values (1)");
    let mut good = config("hostile_records", &database, &[("snapshot.mode", "initial")]);
    good.remove("signal.data.collection");
    let put = walferry_testkit::servers::request(walferry.port(), "PUT", "/connectors/good/config", Some(&good.into()));
    assert_eq!(put.expect("it answers").status, 201);
    kafka.wait_for_records("hostile_records.public.items", 1);
    for path in [
        "/connectors?expand=status&expand=info",
        "/connectors/variable/status",
        "/connectors/file/status",
        "/metrics",
        "/slots",
    ] {
        let body = walferry.get(path).expect("it answers").body;
        assert!(!body.contains(SECRET) && !body.contains("root:x"), "{path}: {body}");
    }
    walferry.terminate();
    let log = walferry.output();
    assert!(!log.contains(SECRET) && !log.contains("root:x"), "{log}");
    assert_is_printable("the worker", &log);
    drop_slot(sql, "hostile_records");
}

/// Whoever may write to the signal topic asks for what signals can ask for.
#[test]
fn a_hostile_signal_is_told_of_and_does_nothing() {
    let name = "hostile_signals";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS}; create table items (id int primary key, v text); insert into items values (1, 'a');
         create table others (id int primary key, v text); insert into others values (1, 'hidden')"
    ));
    let topic = "hostile_signals_topic";
    world.kafka.create_topic(topic, 1);
    let properties = [
        ("signal.enabled.channels", "source,kafka"),
        ("signal.kafka.topic", topic),
        ("table.include.list", "public.items,public.signals"),
    ];
    let mut walferry = start_as(world, name, config(name, &database, &properties));
    walferry.wait_until_ready();
    let deep = "[".repeat(100_000);
    let long = "x".repeat(300_000);
    let snapshot = |data: serde_json::Value| json!({ "id": "s", "type": "execute-snapshot", "data": data }).to_string();
    let signals = [
        deep.clone(),
        json!({ "id": long, "type": long }).to_string(),
        json!({ "id": 5, "type": ["log"], "data": null }).to_string(),
        json!({ "type": "log", "data": { "message": "\u{1b}]0;owned\u{7}\n2026-01-01T00:00:00Z INFO forged" } })
            .to_string(),
        json!({ "id": "s", "type": "execute-snapshot", "data": deep }).to_string(),
        snapshot(json!({ "data-collections": ["public.others"] })),
        snapshot(json!({ "data-collections": ["(((((a*)*)*)*)*)*b"] })),
        snapshot(json!({ "data-collections": ["("] })),
        snapshot(json!({ "data-collections": ["public.items\"; drop table items; --"] })),
        snapshot(json!({ "data-collections": ["public.items"], "surrogate-key": "id\"; drop table items; --" })),
        snapshot(json!({ "data-collections": ["public.items"], "surrogate-key": "ctid" })),
        snapshot(json!({ "data-collections": ["public.items"],
            "additional-conditions": [{ "data-collection": "public.items", "filter": "true) UNION SELECT * FROM others WHERE (true" }] })),
        snapshot(json!({ "data-collections": ["public.items"], "type": "blocking",
            "additional-conditions": [{ "data-collection": "public.items", "filter": "DELETE FROM items RETURNING *" }] })),
        json!({ "id": "s", "type": "stop-snapshot", "data": { "data-collections": [deep] } }).to_string(),
        json!({ "id": "x-open", "type": "snapshot-window-open" }).to_string(),
        json!({ "id": "x-close", "type": "snapshot-window-close" }).to_string(),
    ];
    let records: Vec<(&str, &str)> = signals.iter().map(|signal| (name, signal.as_str())).collect();
    world.kafka.produce(topic, &records);
    world.kafka.produce(
        topic,
        &[(name, r#"{"id":"last","type":"log","data":{"message":"the last one"}}"#)],
    );
    wait_for_log(&mut walferry, "the last one", 1);
    // A right one still works.
    world.kafka.produce(
        topic,
        &[(name, &snapshot(json!({ "data-collections": ["public.items"] })))],
    );
    let records = world.kafka.wait_for_records(&format!("{name}.public.items"), 1);
    assert!(!records.is_empty());
    assert_eq!(sql.value("select count(*) from items").as_deref(), Some("1"));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let log = walferry.output();
    assert_is_printable("run", &log);
    assert!(
        !world
            .kafka
            .topics()
            .iter()
            .any(|topic| topic == "hostile_signals.public.others"),
        "{log}"
    );
    drop_slot(sql, name);
}

/// What a trigger tries as the connector's role when rows leave the outbox.
const TRIES: [(&str, &str); 16] = [
    ("superuser", "alter role attack_cdc superuser"),
    ("bypass", "alter role attack_cdc bypassrls"),
    ("role", "set role postgres"),
    ("authorization", "set session authorization postgres"),
    ("program", "copy (select 1) to program 'touch FILE'"),
    ("write", "copy (select 1) to 'FILE'"),
    ("read", "select pg_read_file('/etc/passwd')"),
    ("import", "select lo_import('/etc/passwd')"),
    ("passwords", "select rolpassword from pg_authid"),
    ("secrets", "select secret from secrets"),
    ("system", "alter system set log_statement = 'all'"),
    ("library", "load '/tmp/evil.so'"),
    (
        "language",
        "create function evil() returns int language c as 'evil', 'evil'",
    ),
    ("replica", "set session_replication_role = replica"),
    ("slot", "select pg_drop_replication_slot('attack_triggers')"),
    ("publication", "alter publication attack_triggers drop table outbox"),
];

/// The owner of an outbox from which rows are removed runs code as the connector's role, and so gets what that role has: here nothing.
#[test]
fn triggers_of_an_outbox_get_no_further_than_the_connectors_role() {
    let name = "attack_triggers";
    let (world, database) = begin(name);
    let sql = database.sql();
    let file = walferry_testkit::servers::folder(name).join("owned");
    let tries: String = TRIES
        .iter()
        .map(|(what, statement)| {
            let statement = statement
                .replace("FILE", &file.display().to_string())
                .replace('\'', "''");
            format!(
                "begin execute '{statement}'; insert into public.outcomes values ('{what}', 'DONE');
                 exception when others then insert into public.outcomes values ('{what}', sqlstate); end;\n"
            )
        })
        .collect();
    sql.run(&format!(
        "create role attack_owner; create role attack_cdc login replication;
         create table secrets (secret text); insert into secrets values ('hunter2');
         create table outcomes (what text, outcome text); grant insert on outcomes to attack_cdc;
         create table outbox (id bigint primary key, aggregatetype text not null, aggregateid text not null, type text not null, payload text,
           created_at timestamptz not null default clock_timestamp());
         create index on outbox (created_at);
         create publication attack_triggers for table outbox;
         create function tried() returns trigger language plpgsql as $$ begin {tries} return old; end $$;
         create trigger tried before delete on outbox for each row execute function tried();
         alter function tried() owner to attack_owner; alter table outbox owner to attack_owner;
         grant select, delete on outbox to attack_cdc"
    ));
    let properties = [
        ("database.user", "attack_cdc"),
        ("table.include.list", "public.outbox"),
        ("publication.name", "attack_triggers"),
        ("publication.autocreate.mode", "disabled"),
        ("transforms", "outbox"),
        ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.retention.ms", "500"),
    ];
    let mut config = config(name, &database, &properties);
    config.remove("signal.data.collection");
    config.remove("signal.enabled.channels");
    let mut walferry = start_as(world, name, config);
    wait_for_log(&mut walferry, "rows that are written from now on are removed", 1);
    sql.run("select pg_sleep(1.1)");
    sql.run("insert into outbox select n, 'attack', 'k', 'Created', '{}' from generate_series(1, 3) n");
    world.kafka.wait_for_records("outbox.event.attack", 3);
    wait_for("the rows to be removed", || {
        assert!(walferry.runs(), "{}", walferry.output());
        (sql.value("select count(*) from outbox").as_deref() == Some("0")).then_some(())
    });
    let tried = sql.value("select count(distinct what) from outcomes");
    assert_eq!(tried.as_deref(), Some("16"));
    let done = sql.value("select string_agg(distinct what, ', ') from outcomes where outcome = 'DONE'");
    assert_eq!(done, None);
    assert!(!file.exists());
    // The connector goes on.
    sql.run("insert into outbox values (4, 'attack', 'k', 'Created', '{}')");
    world.kafka.wait_for_records("outbox.event.attack", 4);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    drop_slot(sql, name);
}
