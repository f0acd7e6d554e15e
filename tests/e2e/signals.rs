//! Signals, incremental and blocking snapshots.

use crate::takeover;
use crate::world::{self, World};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};
use walferry_testkit::servers::{Connect, Database, Kafka, Record, Walferry, WalferryOptions, wait_for};

pub(crate) fn config(name: &str, database: &Database, properties: &[(&str, &str)]) -> Map<String, Value> {
    let config = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": database.port().to_string(),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": database.name(),
        "topic.prefix": name,
        "table.include.list": "public.items.*",
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.autocreate.mode": "filtered",
        "snapshot.mode": "no_data",
        "signal.data.collection": "public.signals",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    });
    let Value::Object(mut config) = config else {
        unreachable!("the literal is an object")
    };
    for (property, value) in properties {
        config.insert((*property).to_owned(), (*value).into());
    }
    config
}

fn start(world: &World, name: &str, database: &Database, properties: &[(&str, &str)]) -> Walferry {
    let mut walferry = Walferry::start(WalferryOptions {
        name: name.to_owned(),
        config: config(name, database, properties),
        worker: vec!["offset.flush.interval.ms=20".into()],
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    });
    walferry.wait_until_ready();
    walferry
}

const SIGNALS: &str =
    "create table signals (id varchar(64) primary key, type varchar(32) not null, data varchar(2048))";

fn execute(tables: &str) -> String {
    format!(
        "insert into signals values ('s-' || clock_timestamp(), 'execute-snapshot', '{{\"data-collections\": [\"{tables}\"]}}')"
    )
}

/// Waits until the log has said something so often.
pub(crate) fn wait_for_log(walferry: &mut Walferry, text: &str, times: usize) {
    wait_for(text, || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (walferry.output().matches(text).count() >= times).then_some(())
    });
}

/// The rows that a consumer has after reading a topic from its beginning: the column `v` by the text of the key.
pub(crate) fn rebuilt(records: &[Record]) -> BTreeMap<String, String> {
    let mut rows = BTreeMap::new();
    for record in records {
        let key: Value = serde_json::from_slice(record.key.as_deref().expect("rows have keys")).expect("JSON");
        let value = record
            .value
            .as_deref()
            .map(|value| serde_json::from_slice::<Value>(value).expect("JSON"));
        match value.map(|value| value["after"]["v"].clone()) {
            Some(Value::String(v)) => drop(rows.insert(key.to_string(), v)),
            _ => drop(rows.remove(&key.to_string())),
        }
    }
    rows
}

/// Killed at any point, an incremental snapshot goes on with the chunk that it was at, while the table changes.
#[test]
fn a_killed_incremental_snapshot_goes_on_and_the_topic_rebuilds_the_table() {
    const KILLS: usize = 4;
    let world = world::shared();
    let name = "signals_killed";
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (a text collate \"C\", b timestamptz, v text, primary key (a, b));
         insert into items select 'k' || i % 97, '2026-01-01'::timestamptz + i * interval '1 minute', 'v' || i
             from generate_series(1, 6000) i"
    ));
    let mut walferry = start(
        world_of(&world),
        name,
        &database,
        &[("incremental.snapshot.chunk.size", "150")],
    );
    sql.run(&execute("public.items"));
    for kill in 1..=KILLS {
        let windows = kill * 3;
        wait_for("some chunks to be read", || {
            let written = sql.value("select count(*) from signals where type = 'snapshot-window-close'");
            written
                .is_some_and(|count| count.parse().is_ok_and(|count: usize| count >= windows))
                .then_some(())
        });
        walferry.kill();
        sql.run(&format!(
            "update items set v = 'u{kill}-' || v where a in ('k{kill}', 'k5{kill}', 'k9{kill}');
             delete from items where a = 'k6{kill}' and b < '2026-01-03';
             insert into items select 'n{kill}', '2026-02-01'::timestamptz + i * interval '1 hour', 'new' || i
                 from generate_series(1, 20) i;
             update items set a = 'm' || a where a = 'k8{kill}'"
        ));
        walferry.start_again();
    }
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let records = world.kafka.read(&[format!("{name}.public.items")]);
    let expected = sql.rows(
        "select json_build_object('a', a, 'b', to_char(b at time zone 'utc', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"'))::text, v
         from items order by 1",
    );
    let rows = rebuilt(&records);
    assert_eq!(
        rows.len(),
        expected.len(),
        "rows of the topic and of the table:\n{}",
        walferry.output()
    );
    let mut values: Vec<&str> = rows.values().map(String::as_str).collect();
    let mut wanted: Vec<&str> = expected.iter().filter_map(|row| row[1].as_deref()).collect();
    values.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(values, wanted);
    let output = walferry.output();
    let offset = walferry.stored_offset().expect("an offset is stored");
    assert!(
        offset["value"].get("incremental_snapshot_collections").is_none(),
        "nothing of the snapshot is left: {offset}\n{output}"
    );
    drop(records);
    sql.run(&format!("select pg_drop_replication_slot('{name}')"));
}

fn world_of(world: &impl std::ops::Deref<Target = World>) -> &World {
    world
}

/// Changes between the rows that open and close a window take the place of what was read.
#[test]
fn windows_that_are_closed_by_a_deletion_leave_no_row_in_the_signal_table() {
    let world = world::shared();
    let name = "signals_deleted";
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS}; create table items (id int primary key, v text); insert into items select i, 'v' || i from generate_series(1, 500) i"
    ));
    let properties = [
        ("incremental.snapshot.chunk.size", "40"),
        ("incremental.snapshot.watermarking.strategy", "insert_delete"),
    ];
    let mut walferry = start(world_of(&world), name, &database, &properties);
    sql.run(&execute("public.items"));
    for i in 1..=30 {
        sql.run(&format!("update items set v = 'u{i}' where id % 7 = {i} % 7"));
    }
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    wait_for("the last window to be closed", || {
        (sql.value("select count(*) from signals") == Some("1".into())).then_some(())
    });
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let rows = rebuilt(&world.kafka.read(&[format!("{name}.public.items")]));
    let expected = sql.rows("select id::text, v from items");
    assert_eq!(rows.len(), expected.len());
    for row in expected {
        let (id, v) = (row[0].as_deref().unwrap_or_default(), row[1].as_deref());
        assert_eq!(rows.get(&format!("{{\"id\":{id}}}")).map(String::as_str), v, "row {id}");
    }
    sql.run(&format!("select pg_drop_replication_slot('{name}')"));
}

/// Each channel brings signals, and what is none is told.
#[test]
fn signals_come_from_the_table_a_file_a_topic_and_the_endpoint() {
    let world = world::shared();
    let name = "signals_channels";
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS}; create table items (id int primary key, v text); insert into items values (1, 'a')"
    ));
    let folder = std::env::temp_dir().join(format!("walferry-signals-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder can be made");
    let file = folder.join("signals.txt");
    let properties = [
        ("signal.enabled.channels", "source,file,kafka,jmx"),
        ("signal.file", file.to_str().expect("the path is text")),
        ("signal.poll.interval.ms", "100"),
        ("signal.kafka.topic", "signals_channels_signals"),
        ("notification.enabled.channels", "jmx,log,sink"),
        ("notification.sink.topic.name", "signals_channels_told"),
    ];
    world.kafka.create_topic("signals_channels_signals", 1);
    world.kafka.produce(
        "signals_channels_signals",
        &[
            (
                "another",
                r#"{"id": "k0", "type": "log", "data": {"message": "by nobody"}}"#,
            ),
            (
                name,
                r#"{"id": "k1", "type": "log", "data": {"message": "by the topic"}}"#,
            ),
            (name, "no signal"),
        ],
    );
    let mut walferry = start(world_of(&world), name, &database, &properties);
    sql.run("insert into signals values ('t1', 'log', '{\"message\": \"by the table\"}'), ('t2', 'reboot', '{}')");
    fs::write(
        &file,
        "{\"id\": \"f1\", \"type\": \"log\", \"data\": {\"message\": \"by the file\"}}\n\nno signal\n",
    )
    .expect("the file can be written");
    for said in [
        "by the table",
        "by the file",
        "by the topic",
        "\"reboot\"",
        "a line is not a signal",
        "a record is not a signal",
    ] {
        wait_for_log(&mut walferry, said, 1);
    }
    assert!(
        !walferry.output().contains("by nobody"),
        "its key is another connector's"
    );
    assert_eq!(
        fs::read_to_string(&file).expect("the file is there"),
        "",
        "it was emptied"
    );

    let admin = walferry.admin();
    let given = walferry.command_at(["snapshot", name, "--table", "public.items", "--admin", &admin]);
    let said = String::from_utf8_lossy(&given.stdout).into_owned();
    assert!(
        given.status.success() && said.contains("was asked for a snapshot of public.items"),
        "{given:?}"
    );
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    let refused = walferry.command_at(["signal", name, "reboot", "--admin", &admin]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("not one of execute-snapshot"),
        "{said}"
    );

    let told: Vec<Value> = wait_for("the notifications", || {
        let answer = walferry.get(&format!("/connectors/{name}/notifications"))?;
        let told: Vec<Value> = serde_json::from_str(&answer.body).ok()?;
        told.iter().any(|told| told["type"] == "COMPLETED").then_some(told)
    });
    let kinds: Vec<&str> = told.iter().filter_map(|told| told["type"].as_str()).collect();
    let expected = ["SKIPPED", "STARTED", "IN_PROGRESS", "TABLE_SCAN_COMPLETED", "COMPLETED"];
    assert_eq!(kinds, expected);
    assert_eq!(
        told[2]["additionalData"]["current_collection_in_progress"],
        "public.items"
    );
    let records = world.kafka.wait_for_records("signals_channels_told", expected.len());
    let value: Value = serde_json::from_slice(records[3].value.as_deref().expect("a value")).expect("JSON");
    assert_eq!(value["additional_data"]["status"], "SUCCEEDED");
    walferry.terminate();
    sql.run(&format!("select pg_drop_replication_slot('{name}')"));
    let _ = fs::remove_dir_all(&folder);
}

/// A blocking snapshot needs neither a key nor a signal table. The stream goes on where it stood, and one that was killed begins again.
#[test]
fn a_blocking_snapshot_reads_tables_without_keys_and_begins_again_after_a_kill() {
    let world = world::shared();
    let name = "signals_blocking";
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int, v text);
         insert into items select i, repeat('x', 500) from generate_series(1, 60000) i;
         create table items_more (id int primary key, v text)"
    ));
    let mut walferry = start(
        world_of(&world),
        name,
        &database,
        &[("walferry.in.flight.max.bytes", "262144")],
    );
    sql.run("insert into items_more values (1, 'before')");
    world.kafka.wait_for_records(&format!("{name}.public.items_more"), 1);
    sql.run(
        "insert into signals values ('b', 'execute-snapshot',
           '{\"type\": \"blocking\", \"data-collections\": [\"public.items\", \"public.none\"]}')",
    );
    world.kafka.wait_for_records(&format!("{name}.public.items"), 500);
    walferry.kill();
    sql.run("insert into items_more values (2, 'meanwhile')");
    walferry.start_again();
    wait_for_log(&mut walferry, "all existing rows are read", 1);
    sql.run("insert into items_more values (3, 'after')");
    let records = world.kafka.wait_for_records(&format!("{name}.public.items_more"), 3);
    assert_eq!(rebuilt(&records).len(), 3, "the stream has gone on where it stood");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let mut ids: Vec<i64> = Vec::new();
    let (mut first, mut last) = (0, 0);
    for record in world.kafka.read(&[format!("{name}.public.items")]) {
        let value: Value = serde_json::from_slice(record.value.as_deref().expect("a value")).expect("JSON");
        assert_eq!(value["op"], "r");
        first += usize::from(value["source"]["snapshot"] == "first");
        last += usize::from(value["source"]["snapshot"] == "last");
        ids.extend(value["after"]["id"].as_i64());
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(
        (ids.len(), first, last),
        (60_000, 2, 1),
        "it began twice and ended once"
    );
    let offset = walferry.stored_offset().expect("an offset is stored");
    assert!(offset["value"].get("walferry_blocking_snapshots").is_none(), "{offset}");
    sql.run(&format!("select pg_drop_replication_slot('{name}')"));
}

/// `read.only` writes nothing, and a quiet stream ends the windows as well as a busy one.
#[test]
fn an_incremental_snapshot_that_is_read_only_writes_nothing_and_rebuilds_the_table() {
    let world = world::shared();
    let name = "signals_read_only";
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run("create table items (id uuid primary key, v text); insert into items select gen_random_uuid(), 'v' || i from generate_series(1, 2000) i");
    let properties = [
        ("signal.data.collection", ""),
        ("read.only", "true"),
        ("signal.enabled.channels", "jmx"),
        ("incremental.snapshot.chunk.size", "100"),
    ];
    let mut config = config(name, &database, &properties);
    config.remove("signal.data.collection");
    let mut walferry = Walferry::start(WalferryOptions {
        name: name.to_owned(),
        config,
        worker: vec!["offset.flush.interval.ms=20".into()],
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    });
    walferry.wait_until_ready();
    let admin = walferry.admin();
    let given = walferry.command_at(["snapshot", name, "--table", "public.items", "--admin", &admin]);
    assert!(given.status.success(), "{given:?}");
    for i in 1..=20 {
        sql.run(&format!(
            "update items set v = 'u{i}' where v like '%{i}'; delete from items where v like 'v1{i}%'"
        ));
    }
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    // Nothing happens in the database now.
    let given = walferry.command_at(["snapshot", name, "--table", "public.items", "--admin", &admin]);
    assert!(given.status.success(), "{given:?}");
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 2);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let rows = rebuilt(&world.kafka.read(&[format!("{name}.public.items")]));
    let expected = sql.rows("select id::text, v from items");
    assert_eq!(rows.len(), expected.len());
    for row in expected {
        let (id, v) = (row[0].as_deref().unwrap_or_default(), row[1].as_deref());
        assert_eq!(
            rows.get(&format!("{{\"id\":\"{id}\"}}")).map(String::as_str),
            v,
            "row {id}"
        );
    }
    sql.run(&format!("select pg_drop_replication_slot('{name}')"));
}

/// An update does not bring a long value that has not changed. The snapshot has to bring it, also where the update comes within the
/// window of the row's chunk.
#[test]
fn long_values_reach_the_topic_though_their_rows_change_while_they_are_read() {
    let world = world::shared();
    let name = "signals_toast";
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int primary key, n int, v text);
         alter table items alter column v set storage external;
         insert into items select i, 0, repeat('v' || i || ' ', 1000) from generate_series(1, 300) i"
    ));
    let properties = [("incremental.snapshot.chunk.size", "15")];
    let mut walferry = start(world_of(&world), name, &database, &properties);
    sql.run(&execute("public.items"));
    for _ in 0..150 {
        // Not so often that the stream cannot keep up.
        sql.run("update items set n = n + 1; select pg_sleep(0.02)");
        if walferry.output().contains("the incremental snapshot is complete") {
            break;
        }
    }
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let mut rows: BTreeMap<i64, (i64, String)> = BTreeMap::new();
    for record in world.kafka.read(&[format!("{name}.public.items")]) {
        let value: Value = serde_json::from_slice(record.value.as_deref().expect("a value")).expect("JSON");
        let after = &value["after"];
        let row = rows.entry(after["id"].as_i64().expect("an id")).or_default();
        row.0 = after["n"].as_i64().expect("a number");
        match after["v"].as_str().expect("a text") {
            "__debezium_unavailable_value" => {}
            v => row.1 = v.to_owned(),
        }
    }
    let expected = sql.rows("select id::text, n::text, v from items");
    assert_eq!(rows.len(), expected.len());
    for row in expected {
        let row: Vec<String> = row.into_iter().flatten().collect();
        let (n, v) = &rows[&row[0].parse().expect("an id")];
        assert_eq!((n.to_string(), v), (row[1].clone(), &row[2]), "row {}", row[0]);
    }
    sql.run(&format!("select pg_drop_replication_slot('{name}')"));
}

/// While the signal table cannot be written, a snapshot waits; a signal that stops it counts at once.
#[test]
fn a_snapshot_that_waits_can_be_stopped_and_the_next_one_works() {
    let world = world::shared();
    let name = "signals_waits";
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         alter table signals add constraint no_windows check (type not like '%window%');
         create table items (id int primary key, v text); insert into items values (1, 'a')"
    ));
    let mut walferry = start(world_of(&world), name, &database, &[]);
    sql.run(&execute("public.items"));
    wait_for_log(&mut walferry, "the incremental snapshot waits", 1);
    sql.run("insert into signals values ('stop', 'stop-snapshot', '{}')");
    wait_for_log(&mut walferry, "stopped the incremental snapshot of public.items", 1);
    sql.run("alter table signals drop constraint no_windows");
    sql.run(&execute("public.items"));
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let rows = rebuilt(&world.kafka.read(&[format!("{name}.public.items")]));
    assert_eq!(rows.len(), 1);
    sql.run(&format!("select pg_drop_replication_slot('{name}')"));
}

/// A table without a key has records without keys. Rows that are inserted meanwhile do not hold its snapshot up, and updates and
/// deletions are not followed by older rows.
#[test]
fn a_table_without_a_key_is_read_by_a_column_while_it_changes() {
    let world = world::shared();
    let name = "signals_keyless";
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (n int, v text);
         alter table items replica identity full;
         insert into items select i / 2, 'v' || i from generate_series(1, 600) i"
    ));
    let properties = [("incremental.snapshot.chunk.size", "30")];
    let mut walferry = start(world_of(&world), name, &database, &properties);
    sql.run(
        "insert into signals values ('s', 'execute-snapshot', '{\"data-collections\": [\"public.items\"], \"surrogate-key\": \"n\"}')",
    );
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut round = 0;
    while !walferry.output().contains("the incremental snapshot is complete") {
        assert!(Instant::now() < deadline, "it does not end:\n{}", walferry.output());
        round += 1;
        sql.run(&format!(
            "insert into items values ({round}, 'new{round}');
             delete from items where v = 'v{round}'"
        ));
    }
    // The snapshot may end while the last round's changes are still on their way.
    sql.run("insert into items values (0, 'the last')");
    wait_for("the last row", || {
        let records = world.kafka.read(&[format!("{name}.public.items")]);
        let is_last = |value: &[u8]| String::from_utf8_lossy(value).contains("the last");
        records
            .iter()
            .rev()
            .any(|record| record.value.as_deref().is_some_and(is_last))
            .then_some(())
    });
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let mut rows: BTreeMap<String, bool> = BTreeMap::new();
    for record in world.kafka.read(&[format!("{name}.public.items")]) {
        let Some(value) = record.value.as_deref() else { continue };
        let value: Value = serde_json::from_slice(value).expect("JSON");
        let is_deleted = value["op"] == "d";
        let row = &value[if is_deleted { "before" } else { "after" }];
        rows.insert(row["v"].as_str().expect("a text").to_owned(), !is_deleted);
    }
    rows.retain(|_, is_there| *is_there);
    let expected: Vec<String> = sql
        .rows("select v from items order by v collate \"C\"")
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    assert_eq!(rows.into_keys().collect::<Vec<_>>(), expected);
    sql.run(&format!("select pg_drop_replication_slot('{name}')"));
}

/// Whenever a connector is paused and resumed, a snapshot that only reads goes on, and never with an old view of the table.
#[test]
fn a_snapshot_that_is_read_only_survives_pauses_of_the_connector() {
    let world = world::shared();
    let name = "signals_paused";
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run("create table items (id int primary key, v text); insert into items select i, 'v' || i from generate_series(1, 3000) i");
    let mut config = config(
        name,
        &database,
        &[("read.only", "true"), ("incremental.snapshot.chunk.size", "100")],
    );
    config.remove("signal.data.collection");
    let mut walferry = Walferry::start(WalferryOptions {
        name: name.to_owned(),
        config,
        worker: vec!["offset.flush.interval.ms=20".into()],
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    });
    walferry.wait_until_ready();
    let admin = walferry.admin();
    let given = walferry.command_at(["snapshot", name, "--table", "public.items", "--admin", &admin]);
    assert!(given.status.success(), "{given:?}");
    for round in 1..=6 {
        sql.run(&format!(
            "update items set v = 'u{round}-' || id where id % 6 = {round} % 6"
        ));
        walferry.ask("PUT", &format!("/connectors/{name}/pause"));
        sql.run(&format!(
            "update items set v = 'w{round}-' || id where id % 7 = {round}; delete from items where id % 97 = {round}"
        ));
        walferry.ask("PUT", &format!("/connectors/{name}/resume"));
    }
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let rows = rebuilt(&world.kafka.read(&[format!("{name}.public.items")]));
    let expected: BTreeMap<String, String> = sql
        .rows("select id::text, v from items")
        .into_iter()
        .map(|row| {
            (
                format!("{{\"id\":{}}}", row[0].as_deref().unwrap_or_default()),
                row[1].clone().unwrap_or_default(),
            )
        })
        .collect();
    assert_eq!(rows, expected, "{}", walferry.output());
    sql.run(&format!("select pg_drop_replication_slot('{name}')"));
}

/// A snapshot that Debezium has begun ends under Walferry, and the other way round, without reading the table from its beginning.
#[test]
fn an_incremental_snapshot_goes_from_connect_to_walferry_and_back() {
    const ROWS: usize = 9000;
    let world = world::shared();
    let kafka = Kafka::start();
    let name = "signals_handover";
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (a int, b bigint, c text collate \"C\", d uuid, e numeric, v text, primary key (a, b, c, d, e));
         insert into items select i % 3, i % 5 - 2, 'k' || i % 7, lpad(to_hex(i), 32, '0')::uuid, i / 7.0, 'v' || i
             from generate_series(1, {ROWS}) i"
    ));
    // Debezium ignores the limit. With chunks of one row it is slow enough.
    let properties = [
        ("incremental.snapshot.chunk.size", "1"),
        ("walferry.snapshot.max.rows.per.second", "400"),
    ];
    let config = config(name, &database, &properties);
    let topic = format!("{name}.public.items");
    // Reading the topic would go on for as long as rows arrive.
    let count = || match kafka.topics().contains(&topic) {
        true => kafka.ends(&[topic.clone()]).values().sum::<i64>(),
        false => 0,
    };
    let wait_for_rows = |wanted: i64| wait_for("rows to arrive", || (count() >= wanted).then_some(()));
    let mut connect = Connect::start(&kafka);
    connect.create(name, &config);
    sql.run("insert into items values (9, 9, 'live', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', 9, 'live')");
    wait_for_rows(1);
    sql.run(&execute("public.items"));
    let mut so_far = 300;
    let mut moves = Vec::new();
    loop {
        wait_for_rows(so_far);
        connect.end(false);
        sql.run("update items set v = 'u' || v where a = 1 and b = 0; delete from items where c = 'k3' and b = 1");
        moves.push(count());
        let mut walferry = takeover::start(&kafka, &format!("{name}{so_far}"));
        takeover::wait_for_turn(&mut walferry);
        wait_for_log(
            &mut walferry,
            "a running incremental snapshot continues with public.items",
            1,
        );
        so_far = count() + 400;
        if moves.len() == 3 {
            // The rest of it.
            wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
            assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
            break;
        }
        wait_for_rows(so_far);
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        moves.push(count());
        connect = Connect::start(&kafka);
        wait_for("the connector to run", || {
            (takeover::state(connect.port(), name)? == "RUNNING").then_some(())
        });
        so_far = count() + 200;
    }
    let records = kafka.read(&[topic.clone()]);
    let read = |record: &&Record| {
        let value: Value = serde_json::from_slice(record.value.as_deref()?).ok()?;
        (value["op"] == "r").then(|| record.key.clone())
    };
    let read: Vec<_> = records.iter().filter_map(|record| read(&record)).collect();
    println!(
        "{} rows were read, {} records at the moves: {moves:?}",
        read.len(),
        records.len()
    );
    assert!(
        read.len() < ROWS + 200,
        "{} rows are read of {ROWS}: it has begun again",
        read.len()
    );
    let rows = rebuilt(&records);
    let mut values: Vec<&str> = rows.values().map(String::as_str).collect();
    let expected = sql.rows("select v from items");
    let mut wanted: Vec<&str> = expected.iter().filter_map(|row| row[0].as_deref()).collect();
    values.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(values, wanted);
    sql.run(&format!("select pg_drop_replication_slot('{name}')"));
}
