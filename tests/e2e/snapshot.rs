//! Existing rows: read once, whatever ends the program in between, and as the connector's properties ask.

use crate::world::{self, World};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use walferry_testkit::servers::{Database, Kafka, Network, Rebuilt, Walferry, WalferryOptions, wait_for};

/// Rows that fill six chunks of 32 MiB.
const MANY: u32 = 25_000;

/// So many bytes of them have more than one chunk, and not all.
const SOME: usize = 60 << 20;

/// A table of a test's own. Its topics begin with the test's name, so tests can share a broker.
struct Items {
    name: String,
    bootstrap: String,
    database: Database,
    /// What Walferry's connections to the server go through.
    network: Network,
}

impl Items {
    /// With so many rows, each of which fills a block; every fifth has a value that lies outside of it.
    fn new(world: &World, name: &str, rows: u32) -> Self {
        let database = world.postgres.database(name);
        database.sql().run(&format!(
            "create table items (id bigint primary key, n int not null, pad text not null, big text);
             alter table items alter pad set storage plain;
             alter table items alter big set storage external;
             insert into items select i, 0, repeat('p', 4100), case when i % 5 = 0 then repeat(md5(i::text), 130) end
                 from generate_series(1, {rows}) i;
             analyze items"
        ));
        Self {
            name: name.into(),
            bootstrap: world.kafka.bootstrap(),
            network: Network::to(database.port()),
            database,
        }
    }

    fn start<const N: usize>(&self, properties: [(&str, &str); N]) -> Walferry {
        self.start_with(&properties)
    }

    fn start_with(&self, properties: &[(&str, &str)]) -> Walferry {
        let config = json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": self.network.port().to_string(),
            "database.user": "postgres",
            "database.password": "unused",
            "database.dbname": self.database.name(),
            // On a machine that is busy with other tests, the server may need long for an answer.
            "database.connectTimeout": "60",
            "topic.prefix": self.name,
            "table.include.list": "public.items",
            "plugin.name": "pgoutput",
            "slot.name": self.name,
            "publication.name": self.name,
            "publication.autocreate.mode": "filtered",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        });
        let Value::Object(mut config) = config else {
            unreachable!("the literal is an object")
        };
        config.extend(properties.iter().map(|&(name, value)| (name.into(), value.into())));
        Walferry::start(WalferryOptions {
            name: self.name.clone(),
            config,
            worker: vec!["offset.flush.interval.ms=50".into()],
            bootstrap: self.bootstrap.clone(),
            env: Vec::new(),
        })
    }

    fn topic(&self) -> String {
        format!("{}.public.items", self.name)
    }

    fn rebuilt(&self, kafka: &Kafka) -> Rebuilt {
        let mut rebuilt = Rebuilt::new(&["n", "pad", "big"]);
        kafka.each(&[self.topic()], |record| rebuilt.apply(&record));
        rebuilt
    }

    /// Waits until the slot is confirmed up to where the server is now.
    #[track_caller]
    fn wait_until_confirmed(&self, walferry: &mut Walferry) {
        let sql = self.database.sql();
        let end = sql.value("select pg_current_wal_insert_lsn()").expect("it is not NULL");
        let query = format!(
            "select confirmed_flush_lsn >= '{end}' from pg_replication_slots where slot_name = '{}'",
            self.name
        );
        wait_for("the slot to be confirmed", || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            (sql.value(&query).as_deref() == Some("t")).then_some(())
        });
    }

    /// Waits until all rows are read and delivered, and the stream goes on.
    #[track_caller]
    fn wait_until_read(&self, walferry: &mut Walferry) {
        wait_for("the end of the snapshot", || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            walferry.output().contains("all existing rows are read").then_some(())
        });
        self.database
            .sql()
            .run("insert into items values (0, 0, 'streamed', null)");
        self.wait_until_confirmed(walferry);
    }

    /// The ids of rows that were in some blocks before, by the table `first_blocks`, and that [`CHANGES`] leaves as they are.
    #[track_caller]
    fn unchanged_rows(&self, kept: &[Value]) -> Vec<String> {
        let ranges = kept.iter().flat_map(|blocks| {
            let blocks: Vec<(u64, u64)> = serde_json::from_value(blocks.clone()).expect("they are pairs");
            blocks
        });
        let ids = ranges.flat_map(|(first, end)| {
            self.database.sql().rows(&format!(
                "select id::text from first_blocks where block >= {first} and block < {end}
                   and id % 7 <> 0 and id % 35 <> 5 and id % 50 <> 10 and id % 45 <> 0 and id % 11 <> 0"
            ))
        });
        ids.flatten().flatten().collect()
    }

    /// Starts with some of the rows, and waits until a part of the table is known to be in Kafka. The rest comes when the network's
    /// answers are no longer limited.
    #[track_caller]
    fn start_with_some<const N: usize>(&self, properties: [(&str, &str); N]) -> Walferry {
        self.network.limit_answers(Some(SOME));
        let mut walferry = self.start(properties);
        wait_for("a chunk to be delivered", || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            (!done(&walferry).is_empty()).then_some(())
        });
        walferry
    }
}

/// What of the table's blocks is delivered, as the offset has it.
fn done(walferry: &Walferry) -> Vec<Value> {
    let tables = walferry
        .stored_offset()
        .and_then(|offset| offset["snapshot"].as_object().cloned());
    tables
        .into_iter()
        .flat_map(|tables: Map<String, Value>| tables.into_iter().map(|(_, done)| done["blocks"].clone()))
        .filter(|blocks| blocks.as_array().is_some_and(|blocks| !blocks.is_empty()))
        .collect()
}

fn metric(walferry: &Walferry, name: &str) -> Option<f64> {
    let metrics = walferry.get("/metrics")?.body;
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{")))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// What happens to rows that have been read and to rows that have not, without their TOASTed values.
const CHANGES: &str = "
    update items set n = n + 1 where id % 7 = 0;
    update items set id = id + 1000000 where id % 35 = 5;
    update items set id = -id where id % 50 = 10;
    update items set id = -id, n = n + 1 where id < 0;
    update items set big = 'short' where id % 45 = 0;
    delete from items where id % 11 = 0;
    insert into items select id * 11, 1, 'new', repeat(md5(id::text), 140) from generate_series(1, 50) id";

#[test]
fn a_killed_snapshot_goes_on_and_nothing_is_missing() {
    let world = world::shared();
    for threads in ["1", "3"] {
        let items = Items::new(&world, &format!("snapshot_killed_{threads}"), MANY);
        let sql = items.database.sql();
        sql.run("create table first_blocks as select id, (ctid::text::point)[0]::int8 as block from items");
        let mut walferry = items.start_with_some([("snapshot.max.threads", threads)]);
        walferry.kill();
        items.network.limit_answers(Some(SOME / 2));
        let kept = done(&walferry);
        sql.run(CHANGES);
        // A process that stores that rows have to be read again, and then dies, has the table begin again. This one stores nothing.
        let flushes = std::mem::replace(
            &mut walferry.options().worker,
            vec!["offset.flush.interval.ms=600000".into()],
        );
        walferry.start_again();
        wait_for("the snapshot to go on", || {
            walferry.output().contains("a snapshot was interrupted").then_some(())
        });
        walferry.kill();
        items.network.limit_answers(None);
        walferry.options().worker = flushes;
        walferry.start_again();
        items.wait_until_read(&mut walferry);
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        let mut times_read = BTreeMap::<String, u32>::new();
        let mut rebuilt = Rebuilt::new(&["n", "pad", "big"]);
        world.kafka.each(&[items.topic()], |record| {
            rebuilt.apply(&record);
            if record.value_text().is_some_and(|text| text.contains(r#""op":"r""#)) {
                let key = record.key_text().expect("rows have keys").to_owned();
                *times_read.entry(key).or_default() += 1;
            }
        });
        let (differences, count) = rebuilt.differences(sql, "items");
        assert_eq!(
            count,
            0,
            "{threads} threads, kept {kept:?}: {differences:?}\n{}",
            walferry.output()
        );
        // Blocks that were done were not read again, but for rows that have changed.
        let rows = items.unchanged_rows(&kept);
        assert!(rows.len() > 1_000, "{} rows; kept {kept:?}", rows.len());
        for id in rows {
            let times = times_read.get(&format!("{{\"id\":{id}}}"));
            assert_eq!(times, Some(&1), "{threads} threads, row {id}; kept {kept:?}");
        }
        assert!(done(&walferry).is_empty(), "an end is told as such");
    }
}

#[test]
fn a_table_rewritten_meanwhile_is_read_from_its_beginning() {
    let world = world::shared();
    let items = Items::new(&world, "snapshot_rewritten", MANY);
    let mut walferry = items.start_with_some([]);
    walferry.kill();
    items.network.limit_answers(None);
    items
        .database
        .sql()
        .run("delete from items where id % 3 = 0; vacuum full items");
    walferry.start_again();
    items.wait_until_read(&mut walferry);
    let output = walferry.output();
    assert!(
        output.contains("the table was rewritten after the snapshot was interrupted"),
        "{output}"
    );
    let (differences, count) = items.rebuilt(&world.kafka).differences(items.database.sql(), "items");
    assert_eq!(count, 0, "{differences:?}");
}

#[test]
fn a_table_rewritten_before_its_turn_is_not_taken_for_empty() {
    let world = world::shared();
    let items = Items::new(&world, "snapshot_before_turn", MANY);
    let sql = items.database.sql();
    sql.run("create table later (id bigint primary key, v int); insert into later select i, i from generate_series(1, 100) i");
    let both = "public.items,public.later";
    let mut walferry = items.start_with_some([("table.include.list", both)]);
    sql.run("alter table later alter v type bigint");
    items.network.limit_answers(None);
    items.wait_until_read(&mut walferry);
    let later = world.kafka.read(&["snapshot_before_turn.public.later".into()]);
    assert_eq!(later.len(), 100, "{}", walferry.output());
}

#[test]
fn existing_rows_alone_need_neither_slot_nor_publication() {
    let world = world::shared();
    let items = Items::new(&world, "snapshot_alone", 100);
    let sql = items.database.sql();
    // A role that may read, and not replicate.
    sql.run("create role snapshot_reader login; grant select on items to snapshot_reader");
    let mut walferry = items.start([("snapshot.mode", "initial_only"), ("database.user", "snapshot_reader")]);
    world.kafka.wait_for_records(&items.topic(), 100);
    wait_for("the end of the snapshot", || {
        walferry.output().contains("all existing rows are read").then_some(())
    });
    let there = sql.value(
        "select (select count(*) from pg_publication)
           + (select count(*) from pg_replication_slots where slot_name = 'snapshot_alone')",
    );
    assert_eq!(there.as_deref(), Some("0"));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    // The next start finds that all is done.
    sql.run("insert into items values (101, 1, 'late', null)");
    walferry.start_again();
    wait_for("word of that", || {
        walferry.output().contains("there is nothing to do").then_some(())
    });
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert_eq!(items.rebuilt(&world.kafka).len(), 100);
}

#[test]
fn rows_that_policies_hide_are_not_left_out_in_silence() {
    let world = world::shared();
    let items = Items::new(&world, "snapshot_policies", 10);
    let sql = items.database.sql();
    sql.run(
        "create role policed login replication; grant select on items to policed;
         create table log (id int primary key); grant select on log to policed;
         alter table items enable row level security; create policy first_three on items using (id <= 3);
         create publication snapshot_policies for table items",
    );
    let select = "snapshot.select.statement.overrides.public";
    let plain: &[(&str, &str)] = &[];
    let threads: &[(&str, &str)] = &[("snapshot.max.threads", "3")];
    let own = format!("{select}.items");
    let own: &[(&str, &str)] = &[
        ("snapshot.select.statement.overrides", "public.items"),
        (&own, "select * from items where n = 0"),
    ];
    let other = format!("{select}.log");
    let other: &[(&str, &str)] = &[
        ("table.include.list", "public.log"),
        ("snapshot.select.statement.overrides", "public.log"),
        (&other, "select l.* from log l join items on items.id = l.id"),
    ];
    for properties in [plain, threads, own, other] {
        let mut config = vec![
            ("database.user", "policed"),
            ("publication.autocreate.mode", "disabled"),
        ];
        config.extend(properties);
        let mut walferry = items.start_with(&config);
        assert_eq!(walferry.wait(), Some(2), "{properties:?}:\n{}", walferry.output());
        let config = walferry.config_file();
        let check = walferry.command([
            "check",
            "--config",
            &config.to_string_lossy(),
            "--bootstrap-servers",
            &items.bootstrap,
        ]);
        for output in [walferry.output(), String::from_utf8_lossy(&check.stdout).into_owned()] {
            assert!(
                output.contains("row-level security") && output.contains("BYPASSRLS"),
                "{properties:?}:\n{output}"
            );
        }
        assert_eq!(check.status.code(), Some(2), "{properties:?}");
        sql.run(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = 'snapshot_policies'",
        );
    }
    assert_eq!(items.rebuilt(&world.kafka).len(), 0, "nothing is sent of a part");

    // The owner is shown all, unless the policies are forced on it.
    sql.run("alter table items owner to policed; alter table items force row level security");
    let config = [
        ("database.user", "policed"),
        ("publication.autocreate.mode", "disabled"),
    ];
    let mut walferry = items.start_with(&config);
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    assert!(
        walferry
            .output()
            .contains("ALTER TABLE \"public\".\"items\" NO FORCE ROW LEVEL SECURITY;"),
        "{}",
        walferry.output()
    );
    sql.run("alter role policed bypassrls");
    walferry.start_again();
    items.wait_until_read(&mut walferry);
    assert_eq!(items.rebuilt(&world.kafka).len(), 11, "{}", walferry.output());
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn a_select_of_the_user_says_which_rows_exist() {
    let world = world::shared();
    let items = Items::new(&world, "snapshot_select", 50);
    let overrides = |select| {
        [
            ("snapshot.select.statement.overrides", "public.items"),
            ("snapshot.select.statement.overrides.public.items", select),
        ]
    };
    let mut walferry = items.start(overrides("select * from items where id <= 7; "));
    items.wait_until_read(&mut walferry);
    let rebuilt = items.rebuilt(&world.kafka);
    assert_eq!((rebuilt.operations["r"], rebuilt.operations["c"]), (7, 1));

    let other = Items::new(&world, "snapshot_bad_select", 1);
    let mut walferry = other.start(overrides("select * from itmes"));
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let output = walferry.output();
    for part in [
        "public.items",
        "relation \"itmes\" does not exist",
        "snapshot.select.statement.overrides.public.items",
    ] {
        assert!(output.contains(part), "{part} is not in:\n{output}");
    }
    let slots = other
        .database
        .sql()
        .value("select count(*) from pg_replication_slots where slot_name = 'snapshot_bad_select'");
    assert_eq!(
        slots.as_deref(),
        Some("0"),
        "nothing is made for a snapshot that cannot be read"
    );
}

#[test]
fn how_far_a_snapshot_is_can_be_watched() {
    let world = world::shared();
    let items = Items::new(&world, "snapshot_watched", 2_000);
    let mut walferry = items.start([]);
    items.wait_until_read(&mut walferry);
    let figures = [
        ("walferry_snapshot_rows_total", 2_000.0),
        ("walferry_snapshot_rows_estimate", 2_000.0),
        ("walferry_snapshot_tables", 1.0),
        ("walferry_snapshot_tables_left", 0.0),
        ("debezium_metrics_RowsScanned", 2_000.0),
        ("debezium_metrics_SnapshotCompleted", 1.0),
    ];
    for (name, value) in figures {
        assert_eq!(metric(&walferry, name), Some(value), "{name}");
    }
}
