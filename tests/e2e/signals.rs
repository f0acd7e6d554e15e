//! Signals, incremental and blocking snapshots.

use crate::takeover;
use crate::world::{self, World};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;
use walferry_testkit::servers::{
    Connect, Database, Kafka, PATIENCE, Postgres, Record, Sql, Walferry, WalferryOptions, folder, wait_for,
};

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

/// The servers, and a database of the test's own.
pub(crate) fn begin(name: &str) -> (&'static World, Database) {
    let world = world::shared();
    let database = world.postgres.database(name);
    (world, database)
}

pub(crate) fn drop_slot(sql: &Sql, name: &str) {
    sql.drop_slot(name);
}

pub(crate) fn start(world: &World, name: &str, database: &Database, properties: &[(&str, &str)]) -> Walferry {
    start_as(world, name, config(name, database, properties))
}

/// The same without a signal table.
pub(crate) fn start_read_only(world: &World, name: &str, database: &Database, properties: &[(&str, &str)]) -> Walferry {
    let mut config = config(name, database, properties);
    config.remove("signal.data.collection");
    config.insert("read.only".to_owned(), "true".into());
    start_as(world, name, config)
}

pub(crate) fn start_as(world: &World, name: &str, config: Map<String, Value>) -> Walferry {
    let mut walferry = Walferry::start(WalferryOptions {
        name: name.to_owned(),
        config,
        worker: vec!["offset.flush.interval.ms=20".into()],
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    });
    walferry.wait_until_ready();
    walferry
}

pub(crate) const SIGNALS: &str =
    "create table signals (id varchar(64) primary key, type varchar(32) not null, data varchar(2048))";

pub(crate) fn execute(tables: &str) -> String {
    format!(
        "insert into signals values ('s-' || clock_timestamp(), 'execute-snapshot', '{{\"data-collections\": [\"{tables}\"]}}')"
    )
}

/// Asks for a table on the command line. Returns what the command printed.
pub(crate) fn ask_for(walferry: &Walferry, name: &str, table: &str) -> String {
    let given = walferry.command_at(["snapshot", name, "--table", table, "--admin", &walferry.admin()]);
    assert!(given.status.success(), "{given:?}");
    String::from_utf8_lossy(&given.stdout).into_owned()
}

/// Waits until everything that is committed by now has been delivered, and confirmed to the server.
pub(crate) fn wait_until_delivered(sql: &Sql, name: &str) {
    // A commit of its own is behind everything that was done before it, also by a snapshot.
    sql.run("select txid_current()");
    let now = sql
        .value("select pg_current_wal_lsn()")
        .expect("the server has a position");
    let query = format!("select confirmed_flush_lsn >= '{now}' from pg_replication_slots where slot_name = '{name}'");
    wait_for("the slot to be confirmed", || {
        (sql.value(&query).as_deref() == Some("t")).then_some(())
    });
}

/// The value of a record.
pub(crate) fn value(record: &Record) -> Value {
    serde_json::from_slice(record.value.as_deref().expect("a value")).expect("JSON")
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

/// The rows of a table as [`rebuilt`] gives them. The query selects the key in JSON, and the text.
pub(crate) fn rows_by_key(sql: &Sql, query: &str) -> BTreeMap<String, String> {
    let rows = sql.rows(query).into_iter();
    rows.map(|row| (row[0].clone().unwrap_or_default(), row[1].clone().unwrap_or_default()))
        .collect()
}

/// Killed at any point, an incremental snapshot goes on with the chunk that it was at, while the table changes.
#[test]
fn a_killed_incremental_snapshot_goes_on_and_the_topic_rebuilds_the_table() {
    survives_kills("signals_killed", 4, "insert_insert");
}

/// The same where a window is closed by a deletion. Each kill may leave one row in the signal table, and this row does no harm.
#[test]
fn a_killed_snapshot_whose_windows_close_by_a_deletion_goes_on_too() {
    survives_kills("signals_killed_deleting", 2, "insert_delete");
}

fn survives_kills(name: &str, kills: i64, strategy: &str) {
    const CHUNK: usize = 150;
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (a text collate \"C\", b timestamptz, v text, primary key (a, b));
         insert into items select 'k' || i % 97, '2026-01-01'::timestamptz + i * interval '1 minute', 'v' || i
             from generate_series(1, 20000) i"
    ));
    let chunk = CHUNK.to_string();
    let brake = "walferry.snapshot.max.rows.per.second";
    let properties = [
        ("incremental.snapshot.chunk.size", &*chunk),
        ("incremental.snapshot.watermarking.strategy", strategy),
        (brake, "200"),
    ];
    let mut walferry = start(&world, name, &database, &properties);
    let topic = format!("{name}.public.items");
    world.kafka.create_topic(&topic, 1);
    // Rows that were read; the topic also has the changes.
    let count = || {
        let records = world.kafka.read(std::slice::from_ref(&topic));
        let values = records.iter().filter_map(|record| record.value_text());
        values.filter(|text| text.contains(r#""op":"r""#)).count()
    };
    sql.run(&execute("public.items"));
    for kill in 1..=kills {
        let wanted = count() + 2 * CHUNK;
        wait_for("some chunks to be read", || (count() >= wanted).then_some(()));
        walferry.kill();
        let printed = walferry.output();
        assert!(
            !printed.contains("the incremental snapshot is complete"),
            "the kill came too late to show anything:\n{printed}"
        );
        sql.run(&format!(
            "update items set v = 'u{kill}-' || v where a in ('k{kill}', 'k5{kill}', 'k9{kill}');
             delete from items where a = 'k6{kill}' and b < '2026-01-03';
             insert into items select 'n{kill}', '2026-02-01'::timestamptz + i * interval '1 hour', 'new' || i
                 from generate_series(1, 20) i;
             update items set a = 'm' || a where a = 'k8{kill}'"
        ));
        if kill == kills {
            walferry.options().config.remove(brake);
        }
        walferry.start_again();
    }
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let records = world.kafka.read(&[topic]);
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
    let open = sql.value("select count(*) from signals where type = 'snapshot-window-open'");
    let open: i64 = open.and_then(|open| open.parse().ok()).expect("a number");
    assert!(
        strategy == "insert_insert" || open <= kills,
        "{open} windows are left open"
    );
    drop_slot(sql, name);
}

/// Changes between the rows that open and close a window take the place of what was read.
#[test]
fn windows_that_are_closed_by_a_deletion_leave_no_row_in_the_signal_table() {
    let name = "signals_deleted";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS}; create table items (id int primary key, v text); insert into items select i, 'v' || i from generate_series(1, 500) i"
    ));
    let properties = [
        ("incremental.snapshot.chunk.size", "40"),
        ("incremental.snapshot.watermarking.strategy", "insert_delete"),
    ];
    let mut walferry = start(&world, name, &database, &properties);
    sql.run(&execute("public.items"));
    for i in 1..=30 {
        sql.run(&format!("update items set v = 'u{i}' where id % 7 = {i} % 7"));
    }
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    wait_for("the last window to be closed", || {
        (sql.value("select count(*) from signals") == Some("1".into())).then_some(())
    });
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let rows = rebuilt(&world.kafka.read(&[format!("{name}.public.items")]));
    assert_eq!(rows, rows_by_key(sql, "select '{\"id\":' || id || '}', v from items"));
    drop_slot(sql, name);
}

/// Each channel brings signals, and what is none is told.
#[test]
fn signals_come_from_the_table_a_file_a_topic_and_the_endpoint() {
    let name = "signals_channels";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS}; create table items (id int primary key, v text); insert into items values (1, 'a')"
    ));
    let file = folder("signals").join("signals.txt");
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
    let mut walferry = start(&world, name, &database, &properties);
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
    // What is no signal stays in the file.
    wait_for("the signal to be removed from the file", || {
        (fs::read_to_string(&file).expect("the file is there") == "\nno signal\n").then_some(())
    });

    let admin = walferry.admin();
    let said = ask_for(&walferry, name, "public.items");
    assert!(said.contains("was asked for a snapshot of public.items"), "{said}");
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
    drop_slot(sql, name);
}

/// What the offset tells of a blocking snapshot: of each table, by its number, which blocks were delivered.
fn delivered_blocks(walferry: &Walferry) -> Map<String, Value> {
    let offset = walferry.stored_offset().unwrap_or_default();
    offset["blocking_snapshot"].as_object().cloned().unwrap_or_default()
}

/// A blocking snapshot needs neither a key nor a signal table. One that was killed goes on: what was delivered is not read again, and the
/// stream goes on where it stood.
#[test]
fn a_killed_blocking_snapshot_goes_on_with_what_is_left() {
    const END: u64 = 4_294_967_295;
    let name = "signals_blocking";
    let (world, database) = begin(name);
    let sql = database.sql();
    // Few rows fit into a block, so that the second table has several chunks. The last row that was read is sent only with the next, so
    // another table follows it.
    sql.run(&format!(
        "{SIGNALS};
         create table items_a (id int, v text);
         insert into items_a select i, 'v' || i from generate_series(1, 500) i;
         create table items_b (id int primary key, v text) with (fillfactor = 10);
         insert into items_b select i, repeat('x', 400) from generate_series(1, 18000) i;
         create table items_c (id int primary key);
         insert into items_c values (1), (2);
         create table items_live (id int primary key, v text);
         create table items_z (id int primary key, v text);
         insert into items_z values (1, 'z');
         create table hold (id int); insert into hold values (1);
         create table first_blocks as select id, (ctid::text::point)[0]::int8 as block from items_b"
    ));
    let [a, b] = ["items_a", "items_b"].map(|table| {
        sql.value(&format!("select '{table}'::regclass::oid::text"))
            .expect("there is the table")
    });
    let mut walferry = start(&world, name, &database, &[]);
    sql.run("insert into items_live values (1, 'before')");
    world.kafka.wait_for_records(&format!("{name}.public.items_live"), 1);
    // The last table takes as long as the test likes.
    let select = "select * from items_z where (select pg_sleep(case when exists (select from hold) then 600 else 0 end)) is not null";
    sql.run(&format!(
        "insert into signals values ('b', 'execute-snapshot', '{{\"type\": \"blocking\",
           \"data-collections\": [\"public.items_[abcz]\", \"public.none\"],
           \"additional-conditions\": [{{\"data-collection\": \"public.items_z\", \"filter\": \"{select}\"}}]}}')"
    ));
    let is_complete = |kept: &Map<String, Value>, table: &str| {
        kept.get(table).is_some_and(|kept| kept["blocks"] == json!([[0, END]]))
    };
    wait_for("the first chunk of the second table", || {
        delivered_blocks(&walferry).contains_key(&b).then_some(())
    });
    walferry.kill();
    let kept = delivered_blocks(&walferry);
    assert!(is_complete(&kept, &a), "{kept:?}");
    // A reader that sleeps does not notice that nobody listens any more.
    let end_readers = "select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_sleep%' and pid <> pg_backend_pid()
        and datname = current_database()";
    sql.run(end_readers);
    sql.run(
        "insert into items_live values (2, 'meanwhile');
         update items_b set v = 'changed' where id % 1000 = 0;
         delete from items_b where id % 1000 = 1;
         insert into items_b values (20001, 'new')",
    );
    walferry.start_again();
    wait_for_log(&mut walferry, "a snapshot was interrupted", 1);
    wait_for("the second table", || {
        is_complete(&delivered_blocks(&walferry), &b).then_some(())
    });
    walferry.kill();
    sql.run(end_readers);
    sql.run("delete from hold; insert into items_live values (3, 'meanwhile')");
    walferry.start_again();
    wait_for_log(&mut walferry, "all existing rows are read", 1);
    sql.run("insert into items_live values (4, 'after')");
    wait_until_delivered(sql, name);
    let offset = walferry.stored_offset().expect("an offset is stored");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert!(
        offset.get("blocking_snapshot").is_none() && offset["value"].get("walferry_blocking_snapshots").is_none(),
        "{offset}"
    );

    let read = |table: &str| world.kafka.read(&[format!("{name}.public.{table}")]);
    assert_eq!(
        rebuilt(&read("items_live")).len(),
        4,
        "the stream has gone on where it stood"
    );
    assert_eq!(
        read("items_a").len(),
        500,
        "a table that was delivered is not read again"
    );
    assert_eq!(read("items_z").len(), 1);
    let (mut markers, mut times_read) = (BTreeMap::new(), BTreeMap::<u64, u32>::new());
    let second = read("items_b");
    for record in read("items_a").iter().chain(&second).chain(&read("items_z")) {
        if record.value.is_none() {
            continue;
        }
        let value = value(record);
        if value["op"] == "r" {
            *markers.entry(value["source"]["snapshot"].to_string()).or_insert(0) += 1;
        }
    }
    for record in &second {
        let Some(Ok(value)) = record.value.as_deref().map(serde_json::from_slice::<Value>) else {
            continue;
        };
        if value["op"] == "r" {
            *times_read
                .entry(value["after"]["id"].as_u64().expect("an id"))
                .or_default() += 1;
        }
    }
    let count = |marker: &str| markers.get(marker).copied().unwrap_or(0);
    assert_eq!((count("\"first\""), count("\"last\"")), (1, 1), "{markers:?}");
    // Rows of blocks that were delivered before the first kill.
    let blocks: Vec<(u64, u64)> = serde_json::from_value(kept[&b]["blocks"].clone()).expect("they are pairs");
    for (first, end) in blocks {
        let kept = sql.rows(&format!(
            "select id::text from first_blocks where block >= {first} and block < {end} and id % 1000 not in (0, 1)"
        ));
        assert!(!kept.is_empty(), "{first} to {end}");
        for id in kept.into_iter().flatten().flatten() {
            let id: u64 = id.parse().expect("a number");
            assert_eq!(times_read.get(&id), Some(&1), "row {id} of blocks {first} to {end}");
        }
    }
    let expected = rows_by_key(sql, "select '{\"id\":' || id || '}', v from items_b");
    let rows = rebuilt(&second);
    assert_eq!(rows.len(), expected.len());
    assert!(rows == expected, "the topic has other rows than the table");
    drop_slot(sql, name);
}

/// A filter that is ignored sends rows that were meant to stay out, and `snapshot.include.collection.list` keeps a table out of the
/// initial snapshot, not out of one that a person asks for later. Expected: what Debezium 3.6.3 sends.
#[test]
fn a_blocking_snapshot_takes_quoted_names_and_conditions_and_every_captured_table() {
    let name = "signals_blocking_names";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items_g (id int primary key); insert into items_g values (1), (2);
         create table items_h (id int primary key); insert into items_h values (1), (2), (3);
         create table \"items_B\" (id int primary key); insert into \"items_B\" values (1), (2)"
    ));
    let mut walferry = start(
        world,
        name,
        &database,
        &[("snapshot.include.collection.list", "public.items_g")],
    );
    let ids = |table: &str| -> Vec<i64> {
        let records = world.kafka.read(&[format!("{name}.public.{table}")]);
        records
            .iter()
            .filter_map(|record| value(record)["after"]["id"].as_i64())
            .collect()
    };
    let mut snapshots = 0;
    let mut block = |walferry: &mut Walferry, tables: &[&str], condition: Option<(&str, &str)>| {
        snapshots += 1;
        let mut data = json!({"type": "BLOCKING", "data-collections": tables});
        if let Some((table, filter)) = condition {
            data["additional-conditions"] = json!([{"data-collection": table, "filter": filter}]);
        }
        sql.run(&format!(
            "insert into signals values ('b{snapshots}', 'execute-snapshot', '{}')",
            data.to_string().replace('\'', "''")
        ));
        wait_for_log(walferry, "all existing rows are read", snapshots);
    };
    let quoted = r#""public"."items_h""#;
    block(
        &mut walferry,
        &["public.items_h"],
        Some((quoted, "select * from items_h where id = 1")),
    );
    assert_eq!(
        ids("items_h"),
        [1],
        "the filter holds, though it names the table in quotes"
    );
    // The snapshot shows the transaction of its signal, so that is the last commit of its rows, also before any other change.
    let rows = world.kafka.read(&[format!("{name}.public.items_h")]);
    let source = value(&rows[0])["source"].clone();
    let position = &source["lsn"];
    assert_eq!(
        source["sequence"],
        format!("[\"{position}\",\"{position}\"]"),
        "{source}"
    );
    block(
        &mut walferry,
        &[quoted],
        Some(("public.items_h", "select * from items_h where id = 2")),
    );
    assert_eq!(ids("items_h"), [1, 2], "the table is named in quotes");
    block(&mut walferry, &[r#""public"."items_b""#], None);
    assert_eq!(ids("items_B"), [1, 2], "case is ignored, as in Debezium");
    assert!(!walferry.output().contains("filters nothing"), "{}", walferry.output());
    block(
        &mut walferry,
        &["public.items_g"],
        Some(("public.items_gg", "select * from items_g where id = 2")),
    );
    assert_eq!(ids("items_g"), [1, 2]);
    wait_for_log(
        &mut walferry,
        "filters nothing, because no table of the signal matches it",
        1,
    );
    drop(walferry);
    drop_slot(sql, name);
}

/// A table without a key is read as a whole at one position of the stream. No change is older than what was read before it.
#[test]
fn a_table_without_a_key_is_read_at_one_position_of_the_stream() {
    let name = "signals_whole";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (n int, v text);
         alter table items replica identity full;
         insert into items select i, 'v' || i from generate_series(1, 3000) i;
         create table items_few (n int);
         insert into items_few select i from generate_series(1, 10) i;
         create table items_key (id int primary key, v text);
         insert into items_key values (1, 'a')"
    ));
    let mut walferry = start(&world, name, &database, &[("notification.enabled.channels", "jmx")]);
    sql.run(
        "insert into signals values ('s', 'execute-snapshot', '{\"data-collections\": [\"public.items\", \"public.items_few\", \"public.items_key\"],
           \"additional-conditions\": [{\"data-collection\": \"public.items_few\", \"filter\": \"n > 4\"}]}')",
    );
    let deadline = Instant::now() + PATIENCE;
    let mut round = 0;
    while !walferry.output().contains("the incremental snapshot is complete") {
        assert!(Instant::now() < deadline, "it does not end:\n{}", walferry.output());
        round += 1;
        sql.run(&format!(
            "insert into items values ({round}, 'new{round}');
             delete from items where v = 'v{round}';
             update items set v = 'u{round}' where v = 'v{}'",
            3000 - round
        ));
    }
    wait_until_delivered(sql, name);
    let told = walferry
        .get(&format!("/connectors/{name}/notifications"))
        .expect("it answers");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let scanned: Vec<(Value, Value)> = serde_json::from_str::<Vec<Value>>(&told.body)
        .expect("JSON")
        .iter()
        .filter(|told| told["type"] == "TABLE_SCAN_COMPLETED")
        .map(|told| {
            let data = &told["additionalData"];
            (data["scanned_collection"].clone(), data["status"].clone())
        })
        .collect();
    let succeeded = |table: &str| (Value::from(table), Value::from("SUCCEEDED"));
    assert_eq!(
        scanned,
        ["public.items", "public.items_few", "public.items_key"].map(succeeded)
    );
    // A consumer that has lost all begins with the first row that was read.
    let (mut rows, mut positions) = (Vec::new(), BTreeSet::new());
    let mut has_begun = false;
    for record in world.kafka.read(&[format!("{name}.public.items")]) {
        let Some(Ok(value)) = record.value.as_deref().map(serde_json::from_slice::<Value>) else {
            continue;
        };
        let is_read = value["op"] == "r";
        has_begun |= is_read;
        if !has_begun {
            continue;
        }
        if is_read {
            assert_eq!(value["source"]["snapshot"], "incremental");
            positions.insert(value["source"]["lsn"].as_u64());
        }
        let text = |side: &str| value[side]["v"].as_str().map(str::to_owned);
        if let Some(before) = text("before") {
            let place = rows.iter().position(|row| *row == before);
            let place = place.unwrap_or_else(|| panic!("{before} is changed and was not there: {value}"));
            rows.swap_remove(place);
        }
        rows.extend(text("after"));
    }
    assert_eq!(positions.len(), 1, "all rows are of one position: {positions:?}");
    let mut expected: Vec<String> = sql
        .rows("select v from items")
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    rows.sort_unstable();
    expected.sort_unstable();
    assert_eq!(rows, expected);
    let few = world.kafka.read(&[format!("{name}.public.items_few")]);
    assert_eq!(few.len(), 6, "the condition chooses among the rows");
    assert_eq!(
        rebuilt(&world.kafka.read(&[format!("{name}.public.items_key")])).len(),
        1
    );
    let temporary = sql.value(&format!(
        "select count(*) from pg_replication_slots where slot_name like '{name}\\_%'"
    ));
    assert_eq!(temporary.as_deref(), Some("0"));
    drop_slot(sql, name);
}

/// `walferry check` says which tables no snapshot has read.
#[test]
fn check_says_which_tables_were_never_read() {
    let name = "signals_check";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int primary key, v text); insert into items values (1, 'a');
         create table items_more (id int primary key, v text)"
    ));
    let mut walferry = start(&world, name, &database, &[]);
    sql.run("insert into items_more values (1, 'a')");
    wait_until_delivered(sql, name);
    let (config, servers) = (walferry.config_file(), world.kafka.bootstrap());
    let config = config.to_str().expect("the path is text");
    let check = |walferry: &Walferry| {
        let arguments = [
            "check",
            "--config",
            config,
            "--bootstrap-servers",
            &servers,
            "--admin",
            "127.0.0.1:0",
        ];
        String::from_utf8_lossy(&walferry.command(arguments).stdout).into_owned()
    };
    let said = check(&walferry);
    assert!(
        said.contains("o snapshot has read public.items, public.items_more: "),
        "{said}"
    );
    let command = "walferry snapshot signals_check --table public.items --table public.items_more`";
    assert!(said.contains(command), "{said}");
    // A condition chooses rows.
    sql.run(
        "insert into signals values ('a', 'execute-snapshot', '{\"data-collections\": [\"public.items\"],
         \"additional-conditions\": [{\"data-collection\": \"public.items\", \"filter\": \"id = 1\"}]}'),
         ('p', 'execute-snapshot', '{\"type\": \"blocking\", \"data-collections\": [\"public.items_more\"],
         \"additional-conditions\": [{\"data-collection\": \"public.items_more\", \"filter\": \"select * from items_more where id = 1\"}]}')",
    );
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    wait_for_log(&mut walferry, "all existing rows are read", 1);
    wait_until_delivered(sql, name);
    let said = check(&walferry);
    assert!(
        said.contains("o snapshot has read public.items, public.items_more: "),
        "{said}"
    );
    ask_for(&walferry, name, "public.items");
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 2);
    wait_until_delivered(sql, name);
    let said = check(&walferry);
    assert!(said.contains("o snapshot has read public.items_more: "), "{said}");
    sql.run(
        "insert into signals values ('b', 'execute-snapshot', '{\"type\": \"blocking\", \"data-collections\": [\"public.items_more\"]}')",
    );
    wait_for_log(&mut walferry, "all existing rows are read", 2);
    wait_until_delivered(sql, name);
    let said = check(&walferry);
    assert!(!said.contains("o snapshot has read"), "{said}");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    drop_slot(sql, name);
}

/// Without the snapshot of a new slot, one connection exports its own, and the others import it.
#[test]
fn a_blocking_snapshot_is_read_by_several_connections_whatever_their_isolation() {
    let name = "signals_threads";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS}; create table items (id int primary key, v text); insert into items select i, 'v' || i from generate_series(1, 5000) i"
    ));
    for (number, isolation) in ["serializable", "repeatable_read", "read_committed", "read_uncommitted"]
        .into_iter()
        .enumerate()
    {
        let properties = [("snapshot.max.threads", "3"), ("snapshot.isolation.mode", isolation)];
        let mut walferry = start(world, name, &database, &properties);
        sql.run(&format!(
            "insert into signals values ('b{number}', 'execute-snapshot', '{{\"type\": \"blocking\", \"data-collections\": [\"public.items\"]}}')"
        ));
        wait_for_log(&mut walferry, "all existing rows are read", 1);
        wait_until_delivered(sql, name);
        assert_eq!(walferry.terminate(), Some(0), "{isolation}: {}", walferry.output());
        let records = world.kafka.read(&[format!("{name}.public.items")]);
        assert_eq!(records.len(), 5000 * (number + 1), "{isolation}: {}", walferry.output());
    }
    drop_slot(sql, name);
}

/// Tables may be altered, truncated and dropped in the middle of their snapshot.
#[test]
fn tables_change_their_structure_in_the_middle_of_a_snapshot() {
    let name = "signals_ddl";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(SIGNALS);
    for table in ["items_altered", "items_dropped", "items_truncated"] {
        sql.run(&format!(
            "create table {table} (id int primary key, v text, x int);
             insert into {table} select i, 'v' || i, i from generate_series(1, 100) i"
        ));
    }
    let properties = [("incremental.snapshot.chunk.size", "20")];
    let mut walferry = start(&world, name, &database, &properties);
    let changes = [
        (
            "items_altered",
            "alter table items_altered alter id type bigint, drop column x, add column w int default 7",
        ),
        ("items_dropped", "drop table items_dropped"),
        (
            "items_truncated",
            "truncate items_truncated; insert into items_truncated values (50, 'new', 1), (1000, 'new', 1)",
        ),
    ];
    for (time, (table, change)) in changes.into_iter().enumerate() {
        // The pause counts behind the first chunk.
        sql.run(&format!(
            "insert into signals values
               ('e{time}', 'execute-snapshot', '{{\"data-collections\": [\"public.{table}\"]}}'), ('p{time}', 'pause-snapshot', '')"
        ));
        wait_for_log(&mut walferry, "the incremental snapshot is paused", time + 1);
        sql.run(change);
        sql.run(&format!(
            "insert into signals values ('r{time}', 'resume-snapshot', '')"
        ));
        // That of the second table never is.
        match table {
            "items_dropped" => wait_for_log(
                &mut walferry,
                "the incremental snapshot has ended without public.items_dropped",
                1,
            ),
            _ => wait_for_log(&mut walferry, "the incremental snapshot is complete", time.max(1)),
        }
    }
    wait_for_log(
        &mut walferry,
        "the incremental snapshot of public.items_dropped failed, because the table cannot be read: the table does not exist",
        1,
    );
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let read = |table: &str| world.kafka.read(&[format!("{name}.public.{table}")]);
    let altered = read("items_altered");
    // The key has another type, so the table is read from its beginning.
    assert_eq!(altered.len(), 120);
    for (record, place) in altered.iter().zip((1..=20).chain(101..=200)) {
        let after = value(record)["after"].clone();
        let id = (place - 1) % 100 + 1;
        let expected = match place {
            ..=20 => json!({"id": id, "v": format!("v{id}"), "x": id}),
            _ => json!({"id": id, "v": format!("v{id}"), "w": 7}),
        };
        assert_eq!(after, expected, "row {id}");
    }
    assert_eq!(read("items_dropped").len(), 20);
    // As in Debezium, a truncation is not sent unless `skipped.operations` says so.
    let truncated = rebuilt(&read("items_truncated"));
    let new = |id: i64| truncated.get(&format!("{{\"id\":{id}}}")).map(String::as_str);
    assert_eq!((truncated.len(), new(50), new(1000)), (22, Some("new"), Some("new")));
    drop_slot(sql, name);
}

/// `walferry.snapshot.max.lag.bytes` holds for the slot and for standbys.
#[test]
fn a_snapshot_waits_until_slot_and_standbys_are_close_to_the_server() {
    const WRITE: &str = "insert into other select repeat(md5(i::text), 30) from generate_series(1, 4000) i";
    let world = world::shared();
    let name = "signals_lag";
    let primary = Postgres::start();
    let database = primary.database(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table other (v text);
         create table items (id int primary key, v text); insert into items values (1, 'a')"
    ));
    let standby = primary.standby(&[]);
    standby.wait_until_it_has_all_of(&primary);
    standby.sql().run("select pg_wal_replay_pause()");
    sql.run(WRITE);
    let properties = [("walferry.snapshot.max.lag.bytes", "1000000")];
    let mut walferry = start(&world, name, &database, &properties);
    let lag = |walferry: &Walferry| {
        let slots = walferry.get("/slots")?.json();
        let connectors = slots["connectors"].as_array()?;
        connectors.first()?["slots"].as_array()?.first()?["lag_bytes"].as_u64()
    };
    wait_for("a look at the server", || lag(&walferry));
    ask_for(&walferry, name, "public.items");
    wait_for_log(&mut walferry, "waits until the server's slowest standby is closer", 1);
    standby.sql().run("select pg_wal_replay_resume()");
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);

    let sender = sql.value(&format!(
        "select active_pid from pg_replication_slots where slot_name = '{name}'"
    ));
    let hanging = primary.hang(sender.expect("it is read").parse().expect("a number"));
    sql.run(WRITE);
    wait_for("the slot to lag", || lag(&walferry).filter(|lag| *lag > 2_000_000));
    ask_for(&walferry, name, "public.items");
    wait_for_log(&mut walferry, "waits until the slot is closer", 1);
    drop(hanging);
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 2);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert_eq!(world.kafka.read(&[format!("{name}.public.items")]).len(), 2);
}

/// What a column list hides is in no chunk, whether the stream has described the table or not.
#[test]
fn columns_that_the_publication_hides_are_not_sent_by_an_incremental_snapshot() {
    let world = world::shared();
    if world.postgres.major_version() < 15 {
        return;
    }
    let name = "signals_columns";
    let database = world.postgres.database(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int, v text, secret text, primary key (id)) partition by range (id);
         create table items_1 partition of items for values from (0) to (1000);
         create table items_whole (secret text, n int);
         insert into items select i, 'v' || i, 'secret' from generate_series(1, 50) i;
         insert into items_whole select 'secret', i from generate_series(1, 50) i;
         create publication {name} for table items (v, id), items_whole (n), signals with (publish_via_partition_root = true)"
    ));
    let properties = [
        ("publication.name", name),
        ("publication.autocreate.mode", "disabled"),
        ("table.include.list", "public.items,public.items_whole"),
    ];
    let mut walferry = start(&world, name, &database, &properties);
    sql.run(&execute("public.items.*"));
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    for (table, columns) in [("items", vec!["id", "v"]), ("items_whole", vec!["n"])] {
        let records = world.kafka.read(&[format!("{name}.public.{table}")]);
        assert_eq!(records.len(), 50, "{table}");
        for record in &records {
            let after = value(record)["after"].clone();
            let found: Vec<&str> = after.as_object().expect("a row").keys().map(String::as_str).collect();
            assert_eq!(found, columns, "{table}: {after}");
        }
    }
    assert_eq!(
        walferry
            .output()
            .matches("the publication does not contain these columns")
            .count(),
        2,
        "{}",
        walferry.output()
    );
    drop_slot(sql, name);
}

/// `read.only` writes nothing, and a quiet stream ends the windows as well as a busy one.
#[test]
fn an_incremental_snapshot_that_is_read_only_writes_nothing_and_rebuilds_the_table() {
    let name = "signals_read_only";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run("create table items (id uuid primary key, v text); insert into items select gen_random_uuid(), 'v' || i from generate_series(1, 2000) i");
    let properties = [
        ("signal.enabled.channels", "jmx"),
        ("incremental.snapshot.chunk.size", "100"),
    ];
    let mut walferry = start_read_only(&world, name, &database, &properties);
    ask_for(&walferry, name, "public.items");
    for i in 1..=20 {
        sql.run(&format!(
            "update items set v = 'u{i}' where v like '%{i}'; delete from items where v like 'v1{i}%'"
        ));
    }
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    // Nothing happens in the database now.
    ask_for(&walferry, name, "public.items");
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 2);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let rows = rebuilt(&world.kafka.read(&[format!("{name}.public.items")]));
    assert_eq!(
        rows,
        rows_by_key(sql, "select '{\"id\":\"' || id || '\"}', v from items")
    );
    drop_slot(sql, name);
}

/// An update does not bring a long value that has not changed. The snapshot has to bring it, also where the update comes within the
/// window of the row's chunk.
#[test]
fn long_values_reach_the_topic_though_their_rows_change_while_they_are_read() {
    let name = "signals_toast";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int primary key, n int, v text);
         alter table items alter column v set storage external;
         insert into items select i, 0, repeat('v' || i || ' ', 1000) from generate_series(1, 300) i"
    ));
    let properties = [("incremental.snapshot.chunk.size", "15")];
    let mut walferry = start(&world, name, &database, &properties);
    sql.run(&execute("public.items"));
    for _ in 0..150 {
        // Not so often that the stream cannot keep up.
        sql.run("update items set n = n + 1; select pg_sleep(0.02)");
        if walferry.output().contains("the incremental snapshot is complete") {
            break;
        }
    }
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    wait_until_delivered(sql, name);
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
    drop_slot(sql, name);
}

/// While the signal table cannot be written, a snapshot waits; a signal that stops it counts at once.
#[test]
fn a_snapshot_that_waits_can_be_stopped_and_the_next_one_works() {
    let name = "signals_waits";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         alter table signals add constraint no_windows check (type not like '%window%');
         create table items (id int primary key, v text); insert into items values (1, 'a')"
    ));
    let mut walferry = start(&world, name, &database, &[]);
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
    drop_slot(sql, name);
}

/// A table without a key has records without keys. Rows that are inserted meanwhile do not hold its snapshot up, and updates and
/// deletions are not followed by older rows.
#[test]
fn a_table_without_a_key_is_read_by_a_column_while_it_changes() {
    let name = "signals_keyless";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (n int, v text);
         alter table items replica identity full;
         insert into items select i / 2, 'v' || i from generate_series(1, 600) i"
    ));
    let properties = [("incremental.snapshot.chunk.size", "30")];
    let mut walferry = start(&world, name, &database, &properties);
    sql.run(
        "insert into signals values ('s', 'execute-snapshot', '{\"data-collections\": [\"public.items\"], \"surrogate-key\": \"n\"}')",
    );
    let deadline = Instant::now() + PATIENCE;
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
    drop_slot(sql, name);
}

/// Whenever a connector is paused and resumed, a snapshot that only reads goes on, and never with an old view of the table.
#[test]
fn a_snapshot_that_is_read_only_survives_pauses_of_the_connector() {
    let name = "signals_paused";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run("create table items (id int primary key, v text); insert into items select i, 'v' || i from generate_series(1, 3000) i");
    let properties = [("incremental.snapshot.chunk.size", "100")];
    let mut walferry = start_read_only(&world, name, &database, &properties);
    ask_for(&walferry, name, "public.items");
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
    wait_until_delivered(sql, name);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let rows = rebuilt(&world.kafka.read(&[format!("{name}.public.items")]));
    let expected = rows_by_key(sql, "select '{\"id\":' || id || '}', v from items");
    assert_eq!(rows, expected, "{}", walferry.output());
    drop_slot(sql, name);
}

/// A snapshot that Debezium has begun ends under Walferry, and the other way round, without reading the table from its beginning.
#[test]
fn an_incremental_snapshot_goes_from_connect_to_walferry_and_back() {
    const ROWS: usize = 3000;
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
    let mut so_far = 150;
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
        so_far = count() + 150;
        if moves.len() == 3 {
            // The rest of it: each chunk waits until Kafka has the one before, which takes a busy machine minutes.
            let is_over = |walferry: &Walferry| walferry.output().contains("the incremental snapshot is complete");
            while !is_over(&walferry) {
                let wanted = count() + 100;
                wait_for("the snapshot to go on", || {
                    (count() >= wanted || is_over(&walferry)).then_some(())
                });
            }
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
    let read = |records: &[Record]| -> Vec<Vec<u8>> {
        let is_read = |record: &&Record| {
            let value = record.value.as_deref().map(serde_json::from_slice::<Value>);
            matches!(value, Some(Ok(value)) if value["op"] == "r")
        };
        records
            .iter()
            .filter(is_read)
            .filter_map(|record| record.key.clone())
            .collect()
    };
    // Rows that were read just before a move may come again, but none of the first.
    let first_move = usize::try_from(moves[0]).expect("it is a count");
    let (before, after) = records.split_at(first_move);
    let (before, after) = (read(before), read(after));
    println!(
        "{} rows were read before the first move, {} after it; moves: {moves:?}",
        before.len(),
        after.len()
    );
    for key in before.iter().take(100) {
        assert!(
            !after.contains(key),
            "{} is read again: the snapshot has begun again",
            String::from_utf8_lossy(key)
        );
    }
    let rows = rebuilt(&records);
    let mut values: Vec<&str> = rows.values().map(String::as_str).collect();
    let expected = sql.rows("select v from items");
    let mut wanted: Vec<&str> = expected.iter().filter_map(|row| row[0].as_deref()).collect();
    values.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(values, wanted);
    drop_slot(sql, name);
}
