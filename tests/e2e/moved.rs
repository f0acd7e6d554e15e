//! Rows that change place while a snapshot is interrupted, from a part of the table that is not read yet to one that is done.
//! Whatever the stream sends of that, all rows that exist arrive.

use crate::world::{self, World};
use serde_json::{Map, Value, json};
use std::collections::HashSet;
use walferry_testkit::servers::{Database, Record, Walferry, WalferryOptions, wait_for};

/// Rows of the table, each of which fills a block: three chunks of 4,096 blocks.
const ROWS: u32 = 12_000;
/// Rows that are moved.
const MOVED: u32 = 500;

/// What is done with the rows, and how little of that is sent.
struct Case {
    name: &'static str,
    /// What is made beside the table, before the start.
    before: &'static str,
    properties: &'static [(&'static str, &'static str)],
    /// How rows are moved.
    change: &'static str,
    /// What the log says when the table begins again.
    told: Option<&'static str>,
}

const KEYED: &str = "alter table items add primary key (id)";
/// With it, the few records that may be under way wait for each other.
const BRAKE: (&str, &str) = ("producer.override.linger.ms", "100");
/// The publication is there already.
const OF_ITSELF: (&str, &str) = ("publication.autocreate.mode", "disabled");

/// Runs a case: the blocks of the first chunk have room, a snapshot is killed once that chunk is done, rows that have not
/// arrived are changed and so move to the free blocks, and the snapshot goes on.
fn run(world: &World, case: &Case) {
    let name = format!("moved_{}", case.name);
    let database = world.postgres.database(&name);
    let sql = database.sql();
    sql.run(&format!(
        "create table items (id bigint not null, n int not null, kind text not null default 'items', pad text not null);
         alter table items alter pad set storage plain;
         alter table items set (autovacuum_enabled = false, fillfactor = 10);
         {};
         insert into items select i, 0, 'items', repeat('p', case when i <= 4000 then 700 else 4100 end)
             from generate_series(1, {ROWS}) i;
         alter table items set (fillfactor = 100)",
        case.before
    ));
    // Tells the server where there is room.
    sql.run("vacuum items");
    let mut walferry = start(world, &name, &database, case.properties);
    // From the next start on, it is as fast as it can be.
    walferry.options().config.remove(BRAKE.0);
    wait_for("a chunk to be delivered", || {
        assert!(walferry.runs(), "{name}: walferry ended:\n{}", walferry.output());
        has_begun(&walferry).then_some(())
    });
    walferry.kill();
    let topic = format!("{name}.public.items");
    let furthest = ids(&world.kafka.read(&[topic.clone()]))
        .into_iter()
        .max()
        .unwrap_or_default();
    assert!(furthest + i64::from(MOVED) < i64::from(ROWS), "{name}: it was too fast");
    let first = ROWS - MOVED;
    sql.run(&case.change.replace("WHERE", &format!("where id > {first}")));
    let moved = sql.value(&format!(
        "select count(*) from items where (id > {first} or id < 0) and (ctid::text::point)[0] < 4096"
    ));
    assert!(moved != Some("0".into()), "{name}: no row has moved");
    // What both processes print is in one log.
    let ends = |walferry: &Walferry| walferry.output().matches("all existing rows are read").count();
    let before = ends(&walferry);
    walferry.start_again();
    wait_for("the end of the snapshot", || {
        assert!(walferry.runs(), "{name}: walferry ended:\n{}", walferry.output());
        (ends(&walferry) > before).then_some(())
    });
    // An orderly end waits for what is under way.
    assert_eq!(walferry.terminate(), Some(0), "{name}:\n{}", walferry.output());
    let output = walferry.output();
    if let Some(told) = case.told {
        assert!(output.contains(told), "{name}: {told} is not in:\n{output}");
    }
    let arrived: HashSet<i64> = ids(&world.kafka.read(&[topic])).into_iter().collect();
    let rows = sql
        .value("select string_agg(id::text, ' ') from items")
        .unwrap_or_default();
    let missing: Vec<&str> = rows
        .split(' ')
        .filter(|id| id.parse().is_ok_and(|id| !arrived.contains(&id)))
        .collect();
    assert!(
        missing.is_empty(),
        "{name}: {} rows never arrived, {:?} among them:\n{output}",
        missing.len(),
        &missing[..missing.len().min(5)]
    );
    sql.drop_slot(&name);
}

fn start(world: &World, name: &str, database: &Database, properties: &[(&str, &str)]) -> Walferry {
    let config = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": database.port().to_string(),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": database.name(),
        "topic.prefix": name,
        "table.include.list": "public.items.*",
        "column.exclude.list": "public.items.*.pad",
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": "items",
        "publication.autocreate.mode": "filtered",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "message.key.columns": "public.items.*:id",
        // So that it does not read far ahead of what Kafka has.
        "walferry.in.flight.max.bytes": "131072",
    });
    let Value::Object(mut config) = config else {
        unreachable!("the literal is an object")
    };
    for (property, value) in properties.iter().chain([&BRAKE]) {
        config.insert((*property).to_owned(), value.replace("NAME", name).into());
    }
    Walferry::start(WalferryOptions {
        name: name.to_owned(),
        config,
        worker: vec!["offset.flush.interval.ms=20".into()],
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    })
}

/// Whether a chunk is done by the stored offset.
fn has_begun(walferry: &Walferry) -> bool {
    let is_done = |tables: &Map<String, Value>| tables.values().any(|done| !done["blocks"].is_null());
    walferry
        .stored_offset()
        .is_some_and(|offset| offset["snapshot"].as_object().is_some_and(is_done))
}

/// The ids of records that hold a row: the key of an envelope is an object, that of an outbox event a number.
fn ids(records: &[Record]) -> Vec<i64> {
    let id = |record: &Record| {
        let value: Value = serde_json::from_slice(record.value.as_deref()?).ok()?;
        let is_gone = value.get("op").is_some_and(|op| op == "d");
        let key: Value = serde_json::from_slice(record.key.as_deref()?).ok()?;
        let id = key.get("id").unwrap_or(&key).as_i64();
        id.filter(|_| !is_gone)
    };
    records.iter().filter_map(id).collect()
}

#[test]
fn rows_that_move_while_their_updates_are_dropped_by_the_connector_arrive() {
    let world = world::shared();
    let cases = [
        Case {
            name: "outbox",
            before: KEYED,
            properties: &[
                ("transforms", "outbox"),
                ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
                ("transforms.outbox.table.field.event.key", "id"),
                ("transforms.outbox.table.field.event.payload", "kind"),
                ("transforms.outbox.route.by.field", "kind"),
                (
                    "transforms.outbox.route.topic.replacement",
                    "NAME.public.${routedByValue}",
                ),
            ],
            change: "update items set n = n + 1 WHERE",
            told: None,
        },
        Case {
            name: "operations",
            before: "alter table items add primary key (id); create publication items for table items",
            properties: &[("skipped.operations", "c,u"), OF_ITSELF],
            change:
                "with gone as (delete from items WHERE and id % 2 = 0 returning *) insert into items select * from gone;
                     update items set n = n + 1 WHERE and id % 2 = 1",
            told: None,
        },
        Case {
            name: "keyless",
            before: "alter table items replica identity full; create publication items for table items",
            properties: &[("skipped.operations", "u"), OF_ITSELF],
            change: "update items set n = n + 1 WHERE",
            told: Some("the snapshot reads the whole table again"),
        },
        Case {
            name: "filter",
            before: KEYED,
            properties: &[
                ("transforms", "new"),
                ("transforms.new.type", "org.apache.kafka.connect.transforms.Filter"),
                ("transforms.new.predicate", "moved"),
                ("predicates", "moved"),
                (
                    "predicates.moved.type",
                    "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
                ),
                ("predicates.moved.name", "__debezium.oldkey"),
            ],
            change: "update items set id = -id WHERE",
            told: None,
        },
        Case {
            name: "unchanged",
            before: "alter table items add primary key (id), replica identity full",
            properties: &[
                ("skip.messages.without.change", "true"),
                ("column.exclude.list", "public.items.(n|pad)"),
            ],
            change: "update items set n = n + 1 WHERE",
            told: None,
        },
    ];
    cases.iter().for_each(|case| run(&world, case));
}

#[test]
fn rows_that_move_while_their_updates_are_not_published_arrive() {
    let world = world::shared();
    let mut cases = vec![
        Case {
            name: "inserts",
            before: "alter table items add primary key (id); create publication items for table items with (publish = 'insert')",
            properties: &[OF_ITSELF],
            change: "update items set n = n + 1 WHERE",
            told: Some("the publication does not publish updates"),
        },
        Case {
            name: "unlogged",
            before: "alter table items add primary key (id); alter table items set unlogged; create publication items for all tables",
            properties: &[OF_ITSELF],
            change: "update items set n = n + 1 WHERE",
            told: Some("the table is not logged"),
        },
    ];
    if world.postgres.major_version() >= 15 {
        cases.push(Case {
            name: "row_filter",
            before: "alter table items add primary key (id); create publication items for table items where (id < 0)",
            properties: &[OF_ITSELF],
            change: "update items set n = n + 1 WHERE",
            told: Some("the publication has a row filter"),
        });
    }
    if world.postgres.major_version() >= 16 {
        cases.push(Case {
            name: "origins",
            before: KEYED,
            properties: &[("slot.stream.params", "origin=none")],
            change: "select pg_replication_origin_create('moved'); select pg_replication_origin_session_setup('moved');
                     update items set n = n + 1 WHERE;
                     select pg_replication_origin_session_reset(); select pg_replication_origin_drop('moved')",
            told: Some("leaves out changes of other origins"),
        });
    }
    cases.iter().for_each(|case| run(&world, case));
}
