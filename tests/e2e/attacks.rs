//! Scripted attempts to get in, each with what must come of it.

use serde_json::json;
use walferry_testkit::servers::{Database, Kafka, Walferry, WalferryOptions, wait_for};

use crate::{
    cluster_check,
    hostile_names::assert_is_printable,
    signals::{SIGNALS, begin, config, drop_slot, start_as, wait_for_log},
    takeover,
    world::World,
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
    // `check --worker` reads the same topics, with the operator's rights.
    let (code, said, errors) = cluster_check::check(&kafka, "hostile_cluster");
    assert_eq!(code, Some(2), "{said}{errors}");
    for text in [&said, &errors] {
        assert_is_printable("check --worker", text);
        assert!(!text.contains(SECRET) && !text.contains("root:x"), "{text}");
    }
    assert!(
        said.contains("config.providers of the worker does not list env"),
        "{said}"
    );
    for wrong in ["text", "null", "list", "deep", "deeper", "nobody"] {
        assert!(
            !said.lines().any(|line| line.split_whitespace().next() == Some(wrong)),
            "{wrong}: {said}"
        );
    }
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
pub(crate) const TRIES: [(&str, &str); 16] = [
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
    let mut walferry = start_removing(world, name, &database, "attack_cdc", &["outbox"]);
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

/// Starts a connector that removes delivered rows of these tables, and waits until it removes what is written from now on. Connector and
/// publication have the same name.
#[track_caller]
fn start_removing(world: &World, name: &str, database: &Database, role: &str, tables: &[&str]) -> Walferry {
    let list = tables
        .iter()
        .map(|table| format!("public.{table}"))
        .collect::<Vec<_>>()
        .join(",");
    let properties = [
        ("database.user", role),
        ("table.include.list", &list),
        ("publication.name", name),
        ("publication.autocreate.mode", "disabled"),
        ("transforms", "outbox"),
        ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
        ("transforms.outbox.table.field.event.timestamp", "created_at"),
        ("transforms.outbox.walferry.retention.ms", "500"),
    ];
    let mut config = config(name, database, &properties);
    config.remove("signal.data.collection");
    config.remove("signal.enabled.channels");
    let mut walferry = start_as(world, name, config);
    let message = "rows that are written from now on are removed";
    wait_for_log(&mut walferry, message, tables.len());
    database.sql().run("select pg_sleep(1.1)");
    walferry
}

/// Triggers run in the session in which rows of all outboxes are removed. What one sets there does not last, whether it lifts the time limit or sets
/// it to a millisecond.
#[test]
fn what_a_trigger_sets_in_the_session_holds_up_no_other_outbox() {
    let name = "attack_session";
    let (world, database) = begin(name);
    let sql = database.sql();
    let columns = "id bigserial primary key, aggregatetype text not null default 'attack', aggregateid text not null default 'k', type text not null \
                   default 'Created', payload text not null default '{}', created_at timestamptz not null default clock_timestamp()";
    sql.run(&format!(
        "create role attack_session_owner; create role attack_session_cdc login replication;
         create table outbox ({columns}); create table other ({columns});
         create index on outbox (created_at); create index on other (created_at);
         create publication attack_session for table outbox, other;
         create function sets() returns trigger language plpgsql as $$ begin
           perform set_config('search_path', 'public', false); perform set_config('statement_timeout', (old.id % 2)::text, false);
           perform set_config('lock_timeout', '0', false); perform set_config('default_transaction_read_only', 'on', false);
           return old; end $$;
         create trigger sets before delete on outbox for each row execute function sets();
         alter function sets() owner to attack_session_owner; alter table outbox owner to attack_session_owner;
         grant select, delete on outbox, other to attack_session_cdc"
    ));
    let mut walferry = start_removing(world, name, &database, "attack_session_cdc", &["outbox", "other"]);
    for _ in 0..2 {
        sql.run("insert into outbox default values; insert into other default values");
        wait_for("the rows to be removed", || {
            assert!(walferry.runs(), "{}", walferry.output());
            let left = sql.value("select (select count(*) from outbox) + (select count(*) from other)");
            (left.as_deref() == Some("0")).then_some(())
        });
    }
    assert_eq!(walferry.terminate(), Some(0));
    let log = walferry.output();
    let told = log.matches("changes settings of the session").count();
    assert_eq!(told, 1, "{log}");
    drop_slot(sql, name);
}

/// What a role may, whoever chooses SQL may: in a signal, and in a configuration. It is the role's own path that such SQL has.
#[test]
fn sql_of_signals_and_configurations_runs_as_the_role_and_with_its_path() {
    let name = "attack_sql";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create role attack_sql_cdc login replication; create schema theirs;
         alter role attack_sql_cdc in database {name} set search_path = theirs, public;
         create table items (id int primary key, v text); insert into items select n, 'v' || n from generate_series(1, 9) n;
         create table readable (secret text); insert into readable values ('hunter2');
         create table hidden (secret text); insert into hidden values ('hunter3');
         create table said (what text, who text); create table theirs.said (what text, who text);
         create function theirs.is_small(int) returns boolean language sql as 'select $1 < 4';
         create function public.is_small(int) returns boolean language sql as 'select false';
         grant usage on schema theirs to attack_sql_cdc; grant select on items, readable, signals to attack_sql_cdc;
         grant insert, delete on signals to attack_sql_cdc; grant insert on said, theirs.said to attack_sql_cdc;
         create publication {name} for table items, signals"
    ));
    let properties = [
        ("database.user", "attack_sql_cdc"),
        ("table.include.list", "public.items,public.signals"),
        ("publication.name", name),
        ("publication.autocreate.mode", "disabled"),
        ("snapshot.mode", "initial"),
        ("snapshot.include.collection.list", "public.items"),
        ("snapshot.select.statement.overrides", "public.items"),
        (
            "snapshot.select.statement.overrides.public.items",
            "SELECT * FROM items WHERE is_small(id)",
        ),
        ("heartbeat.interval.ms", "200"),
        (
            "heartbeat.action.query",
            "insert into said values ('heartbeat', current_user)",
        ),
        (
            "database.initial.statements",
            "insert into said values ('initial', current_user)",
        ),
    ];
    let mut walferry = start_as(world, name, config(name, &database, &properties));
    let topic = format!("{name}.public.items");
    assert_eq!(
        world.kafka.wait_for_records(&topic, 3).len(),
        3,
        "the function that comes first in the path"
    );
    wait_for("both statements to have run as the role", || {
        assert!(walferry.runs(), "{}", walferry.output());
        let said = sql.value(
            "select string_agg(distinct what || ' ' || who, ', ' order by what || ' ' || who) from theirs.said",
        )?;
        (said == "heartbeat attack_sql_cdc, initial attack_sql_cdc").then_some(())
    });
    assert_eq!(sql.value("select count(*) from public.said").as_deref(), Some("0"));
    let ask = |id: &str, kind: &str, condition: &str| {
        let data = json!({ "data-collections": ["public.items"], "type": kind,
            "additional-conditions": [{ "data-collection": "public.items", "filter": condition }] });
        sql.run(&format!(
            "insert into signals values ('{id}', 'execute-snapshot', $data${data}$data$)"
        ));
    };
    // A question whose answer is whether rows come.
    ask(
        "yes",
        "incremental",
        "is_small(id) AND current_user = 'attack_sql_cdc' AND exists (SELECT FROM readable WHERE secret LIKE 'hunter2')",
    );
    assert_eq!(world.kafka.wait_for_records(&topic, 6).len(), 6);
    ask(
        "select",
        "blocking",
        "SELECT i.id, r.secret AS v FROM items i, readable r WHERE i.id = 1",
    );
    let records = world.kafka.wait_for_records(&topic, 7);
    let last = records
        .last()
        .and_then(|record| record.value_text())
        .unwrap_or_default()
        .to_owned();
    assert!(last.contains("hunter2"), "{last}");
    // What the role may not read, nobody reads through it.
    ask(
        "no",
        "incremental",
        "exists (SELECT FROM hidden WHERE secret LIKE 'h%')",
    );
    wait_for_log(&mut walferry, "permission denied for table hidden", 1);
    ask(
        "select-no",
        "blocking",
        "SELECT i.id, h.secret AS v FROM items i, hidden h",
    );
    wait_for_log(&mut walferry, "permission denied for table hidden", 2);
    assert_eq!(world.kafka.read(&[topic]).len(), 7, "{}", walferry.output());
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert!(!walferry.output().contains("hunter"), "{}", walferry.output());
    drop_slot(sql, name);
}

/// Postgres evaluates what is constant in an index when it plans any statement that reads the table.
#[test]
fn functions_of_an_index_run_as_the_role_that_reads_the_table() {
    let name = "attack_index";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(
        "create role attack_index_owner; create role attack_index_cdc login replication;
         create table items (id int primary key, v text); insert into items values (1, 'a');
         create function planned(text) returns text immutable language plpgsql as $$ begin
           if current_user = 'attack_index_cdc' then raise exception 'planned as %, superuser %', current_user, current_setting('is_superuser'); end if;
           return $1; end $$;
         alter function planned(text) owner to attack_index_owner;
         create index on items ((v || planned('x')));
         alter table items owner to attack_index_owner;
         create publication attack_index for table items; grant select on items to attack_index_cdc",
    );
    let properties = [
        ("database.user", "attack_index_cdc"),
        ("table.include.list", "public.items"),
        ("publication.name", name),
        ("publication.autocreate.mode", "disabled"),
        ("snapshot.mode", "initial"),
    ];
    let mut config = config(name, &database, &properties);
    config.remove("signal.data.collection");
    let mut walferry = Walferry::start(WalferryOptions {
        name: name.to_owned(),
        config,
        worker: Vec::new(),
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    });
    wait_for("the function to have run", || {
        let output = walferry.output();
        output
            .contains("planned as attack_index_cdc, superuser off")
            .then_some(())
    });
    walferry.ask_to_end();
    walferry.wait();
    // The owner mends it, and the table is read.
    sql.run("create or replace function planned(text) returns text immutable language sql as 'select $1'");
    walferry.start_again();
    assert_eq!(world.kafka.wait_for_records("attack_index.public.items", 1).len(), 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    drop_slot(sql, name);
}
