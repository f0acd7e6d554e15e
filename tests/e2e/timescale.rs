//! TimescaleDb on tables like those of TimescaleDB's own: its catalog and its chunks are made by hand, as far as they are read.

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Record, Walferry, wait_for};

use crate::outbox::Outbox;
use crate::world;

/// What the transform reads of TimescaleDB's catalog, with the columns and keys that it has there.
const CATALOG: &str = "
    create schema _timescaledb_catalog; create schema _timescaledb_internal;
    create table _timescaledb_catalog.hypertable (id int primary key, schema_name name not null, table_name name not null);
    create table _timescaledb_catalog.chunk (
      id int primary key, hypertable_id int not null references _timescaledb_catalog.hypertable,
      schema_name name not null, table_name name not null);
    create table _timescaledb_catalog.continuous_agg (
      mat_hypertable_id int primary key, user_view_schema name not null, user_view_name name not null);
    insert into _timescaledb_catalog.hypertable values (1, 'public', 'conditions'),
      (2, '_timescaledb_internal', '_materialized_hypertable_2');
    insert into _timescaledb_catalog.continuous_agg values (2, 'public', 'conditions_by_day');";

/// A new chunk with a row in it, in one transaction, as TimescaleDB makes it.
fn new_chunk(id: u32, hypertable: u32, row: u32) -> String {
    let name = format!("_hyper_{hypertable}_{id}_chunk");
    format!(
        "begin; create table _timescaledb_internal.{name} (id int primary key);
         insert into _timescaledb_catalog.chunk values ({id}, {hypertable}, '_timescaledb_internal', '{name}');
         insert into _timescaledb_internal.{name} values ({row}); commit"
    )
}

fn config(outbox: &Outbox) -> Map<String, Value> {
    let mut config = outbox.config_with([
        ("table.include.list", "_timescaledb_internal.*"),
        ("publication.autocreate.mode", "all_tables"),
        ("snapshot.mode", "initial"),
        ("key.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("key.converter.schemas.enable", "false"),
        ("value.converter.schemas.enable", "false"),
        ("extended.headers.enabled", "false"),
    ]);
    config.retain(|name, _| !name.starts_with("transforms"));
    let prefix = outbox.topic("ts");
    let class = "io.debezium.connector.postgresql.transforms.timescaledb.TimescaleDb";
    config.extend([
        ("transforms".into(), json!("timescale")),
        ("transforms.timescale.type".into(), json!(class)),
        ("transforms.timescale.target.topic.prefix".into(), json!(prefix)),
        ("transforms.timescale.database.hostname".into(), json!("127.0.0.1")),
        ("transforms.timescale.database.password".into(), json!("unused")),
    ]);
    config
}

/// Key, schema and table in the source block, and the headers.
fn told(record: &Record) -> String {
    let value: Value = serde_json::from_slice(record.value.as_deref().expect("it is no tombstone")).expect("JSON");
    let source = &value["source"];
    let id = &value["after"]["id"];
    let mut told = format!("{id} {} {}", source["schema"], source["table"]).replace('"', "");
    for (name, value) in &record.headers {
        let name = name.strip_prefix("__debezium_timescaledb_").unwrap_or(name);
        let value = String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned();
        told.push_str(&format!(" {name}={value}"));
    }
    told
}

#[test]
fn changes_of_chunks_go_to_the_topic_of_their_hypertable() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "timescale");
    let sql = outbox.database.sql();
    sql.run(CATALOG);
    sql.run(&new_chunk(1, 1, 1));
    sql.run("create table _timescaledb_internal.bgw_job (id int primary key); insert into _timescaledb_internal.bgw_job values (10)");
    let mut walferry = outbox.start_with(config(&outbox));
    let rows = outbox.topic("ts.public.conditions");
    // From a snapshot.
    world.kafka.wait_for_records(&rows, 1);
    sql.run("insert into _timescaledb_internal._hyper_1_1_chunk values (2)");
    // Not known before.
    sql.run(&new_chunk(2, 1, 3));
    sql.run(&new_chunk(3, 2, 4));
    sql.run("insert into _timescaledb_internal.bgw_job values (11)");
    let records = world.kafka.wait_for_records(&rows, 3);
    let expected = [(1, 1), (2, 1), (3, 2)].map(|(id, chunk)| {
        format!("{id} public conditions chunk_table=_hyper_1_{chunk}_chunk chunk_schema=_timescaledb_internal")
    });
    assert_eq!(records.iter().map(told).collect::<Vec<_>>(), expected);
    let records = world
        .kafka
        .wait_for_records(&outbox.topic("ts.public.conditions_by_day"), 1);
    assert_eq!(
        records.iter().map(told).collect::<Vec<_>>(),
        [
            "4 public conditions_by_day chunk_table=_hyper_2_3_chunk chunk_schema=_timescaledb_internal \
          hypertable_table=_materialized_hypertable_2 hypertable_schema=_timescaledb_internal"
        ]
    );
    let records = world
        .kafka
        .wait_for_records(&outbox.topic("_timescaledb_internal.bgw_job"), 2);
    assert_eq!(told(&records[1]), "11 _timescaledb_internal bgw_job");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert!(
        walferry.output().contains("does not contain this chunk"),
        "{}",
        walferry.output()
    );

    // A new process knows no chunk: the delete waits, and its tombstone with it. As in Debezium, a tombstone says nothing of its
    // table and stays where it is. It has the headers that were added to the delete.
    walferry.start_again();
    sql.run("delete from _timescaledb_internal._hyper_1_1_chunk where id = 1");
    let tombstones = world
        .kafka
        .wait_for_records(&outbox.topic("_timescaledb_internal._hyper_1_1_chunk"), 1);
    assert_eq!(tombstones[0].value, None);
    assert_eq!(
        tombstones[0].header_text("__debezium_timescaledb_chunk_table"),
        Some("_hyper_1_1_chunk")
    );
    let records = world.kafka.wait_for_records(&rows, 4);
    assert_eq!(
        records[3].header_text("__debezium_timescaledb_chunk_table"),
        Some("_hyper_1_1_chunk")
    );
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn a_new_chunk_waits_while_the_catalog_cannot_be_read_and_nothing_is_lost() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "timescale_away");
    let sql = outbox.database.sql();
    sql.run(CATALOG);
    sql.run(&new_chunk(1, 1, 1));
    sql.run("create table _timescaledb_internal.bgw_job (id int primary key)");
    let mut walferry = outbox.start_with(config(&outbox));
    let rows = outbox.topic("ts.public.conditions");
    world.kafka.wait_for_records(&rows, 1);

    sql.run(&new_chunk(2, 1, 2).replace(
        "commit",
        "insert into _timescaledb_internal._hyper_1_1_chunk values (3);
         alter table _timescaledb_catalog.hypertable rename to hypertable_away; commit",
    ));
    wait_for("the wait to be told", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let ready = walferry.get("/ready")?;
        let told = ready.body.contains("_timescaledb_catalog.chunk") && ready.body.contains("hypertable");
        (told && ready.status != 200).then_some(())
    });
    assert_eq!(
        world.kafka.read(&[rows.clone()]).len(),
        1,
        "nothing behind the record that waits is sent"
    );
    // A crash meanwhile: the slot has not moved past the record that waits.
    walferry.kill();
    sql.run("alter table _timescaledb_catalog.hypertable_away rename to hypertable");
    walferry.start_again();
    let records = world.kafka.wait_for_records(&rows, 3);
    let ids: Vec<String> = records.iter().map(|record| told(record)[..1].to_owned()).collect();
    assert_eq!(ids, ["1", "2", "3"]);

    // The same without a crash.
    sql.run(&new_chunk(4, 1, 4).replace(
        "commit",
        "insert into _timescaledb_internal._hyper_1_1_chunk values (5);
         alter table _timescaledb_catalog.hypertable rename to hypertable_away; commit",
    ));
    wait_for("it not to be ready any more", || {
        (walferry.get("/ready")?.status != 200).then_some(())
    });
    sql.run("alter table _timescaledb_catalog.hypertable_away rename to hypertable");
    let records = world.kafka.wait_for_records(&rows, 5);
    let ids: Vec<String> = records.iter().map(|record| told(record)[..1].to_owned()).collect();
    assert_eq!(ids, ["1", "2", "3", "4", "5"]);
    walferry.wait_until_ready();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn without_timescaledbs_catalog_the_start_is_refused() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "timescale_none");
    outbox
        .database
        .sql()
        .run("create schema _timescaledb_internal; create table _timescaledb_internal.t (id int primary key)");
    let mut walferry = Walferry::start(outbox.options(config(&outbox)));
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let output = walferry.output();
    for part in [
        "TimescaleDB's catalog",
        "does not exist",
        "CREATE EXTENSION timescaledb",
    ] {
        assert!(output.contains(part), "{part:?} is missing in:\n{output}");
    }
    let slots = outbox
        .database
        .sql()
        .value("select count(*) from pg_replication_slots where database = current_database()");
    assert_eq!(slots.as_deref(), Some("0"), "it has left a slot");
}
