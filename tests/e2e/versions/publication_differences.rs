//! The table of `docs/how-to/publication-gaps.md`: which differences between two looks at the publication are a gap, which cannot be
//! decided, and which are harmless. Each row is a change that is made while the connector is stopped.

use crate::world::{self, World};
use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Database, Walferry, WalferryOptions, wait_for};

/// Tables of a test's own, whose publication is made by hand.
struct Shop<'a> {
    world: &'a World,
    name: &'static str,
    database: Database,
    sent: u32,
}

/// What a look finds, with words of the message.
enum Finds {
    Gap(&'static str),
    Uncertain(&'static str),
    Nothing,
}

use Finds::{Gap, Nothing, Uncertain};

/// The first version of Postgres that has this, the change, and what the next look finds.
type Row = (u32, &'static str, Finds);

impl<'a> Shop<'a> {
    fn new(world: &'a World, name: &'static str, publication: &str) -> Self {
        let database = world.postgres.database(name);
        database.sql().run(&format!(
            "create table a (id int primary key, v text, w text); create table b (id int primary key);
             create table r (id int primary key, v text) partition by range (id);
             create table r1 partition of r for values from (0) to (1000);
             create schema s; create table s.t (id int primary key, v text);
             insert into a values (0, 'old'); insert into r values (0, 'old'); insert into s.t values (0, 'old');
             create publication {name} {publication}"
        ));
        Self {
            world,
            name,
            database,
            sent: 0,
        }
    }

    fn start(&self, properties: &[(&str, &str)]) -> Walferry {
        let config = json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": self.database.port().to_string(),
            "database.user": "postgres",
            "database.password": "unused",
            "database.dbname": self.database.name(),
            "topic.prefix": self.name,
            "table.include.list": "public.a,public.r,public.r1,s.t,put.t",
            "plugin.name": "pgoutput",
            "slot.name": self.name,
            "publication.name": self.name,
            "publication.autocreate.mode": "disabled",
            "snapshot.mode": "no_data",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": "false",
        });
        let Value::Object(mut config): Value = config else {
            unreachable!("the literal is an object")
        };
        let properties: Map<String, Value> = properties
            .iter()
            .map(|&(name, value)| (name.into(), value.into()))
            .collect();
        config.extend(properties);
        let mut walferry = Walferry::start(WalferryOptions {
            name: self.name.into(),
            config,
            worker: vec!["offset.flush.interval.ms=200".into()],
            bootstrap: self.world.kafka.bootstrap(),
            env: Vec::new(),
        });
        wait_for("the slot to be streamed", || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            (self.database.streams_since(walferry.begun()) > 0).then_some(())
        });
        walferry
    }

    fn run(&self, sql: &str) {
        self.database.sql().run(&sql.replace('$', self.name));
    }

    /// A new row arrives, and the slot is confirmed up to now.
    fn sends(&mut self, walferry: &mut Walferry, why: &str) {
        self.sent += 1;
        let id = self.sent;
        self.run(&format!("insert into a values ({id}, 'new')"));
        let topic = format!("{}.public.a", self.name);
        wait_for(&format!("row {id}: {why}"), || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            let records = self.world.kafka.read(std::slice::from_ref(&topic));
            let key = format!("Struct{{id={id}}}");
            records
                .iter()
                .any(|record| record.key_text() == Some(&key))
                .then_some(())
        });
        let end = self
            .database
            .sql()
            .value("select pg_current_wal_insert_lsn()")
            .expect("it is not NULL");
        let query = format!(
            "select confirmed_flush_lsn >= '{end}' from pg_replication_slots where slot_name = '{}'",
            self.name
        );
        wait_for("the slot to be confirmed", || {
            (self.database.sql().value(&query).as_deref() == Some("t")).then_some(())
        });
    }

    /// Waits for a gap with these words, and skips it.
    fn skips(&self, walferry: &mut Walferry, words: &str) {
        wait_for(&format!("a gap with {words:?}"), || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            let answer = walferry.get("/ready")?;
            (answer.status == 503 && answer.body.contains("at a gap") && answer.body.contains(words)).then_some(())
        });
        wait_for(&format!("the gap with {words:?} to be skipped"), || {
            let output = walferry.command(["offsets", "skip-gap", self.name]);
            output.status.success().then_some(())
        });
    }

    /// Makes each change while the connector is stopped.
    fn looks(&mut self, walferry: &mut Walferry, rows: &[Row]) {
        let version = self.world.postgres.major_version();
        self.sends(walferry, "before all");
        for (since, change, finds) in rows {
            if version < *since {
                continue;
            }
            assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
            self.run(change);
            let told = walferry.output().len();
            walferry.start_again();
            if let Gap(words) = finds {
                self.skips(walferry, words);
            }
            self.sends(walferry, change);
            let output = walferry.output().split_off(told);
            let is_uncertain = output.contains("WF0322");
            match finds {
                Gap(_) => {}
                Uncertain(words) => assert!(is_uncertain && output.contains(words), "{change}:\n{output}"),
                Nothing => assert!(!is_uncertain, "{change}:\n{output}"),
            }
            if !matches!(finds, Gap(_)) {
                assert!(!output.contains("may be missing"), "{change}:\n{output}");
            }
        }
    }
}

#[test]
fn what_a_publication_left_out_while_nobody_looked_is_a_gap() {
    let mut shop = Shop::new(world::shared(), "diff_gaps", "for table a, b, r");
    let mut walferry = shop.start(&[]);
    let rows: [Row; 8] = [
        (
            0,
            "alter publication $ set (publish = 'insert'); update a set v = 'lost' where id = 0;
             alter publication $ set (publish = 'insert, update, delete, truncate')",
            Gap("is now as it was before"),
        ),
        (
            13,
            "alter publication $ set (publish_via_partition_root = true); insert into r values (1, 'as r');
             alter publication $ set (publish_via_partition_root = false)",
            Gap("is now as it was before"),
        ),
        (
            0,
            "alter publication $ rename to other; alter publication other set (publish = 'insert'); delete from a where id = 0;
             alter publication other set (publish = 'insert, update, delete, truncate'); alter publication other rename to $",
            Gap("is now as it was before"),
        ),
        (
            0,
            "alter publication $ drop table a; insert into a values (1001, 'lost'); alter publication $ add table a",
            Gap("public.a left publication"),
        ),
        (
            0,
            "alter publication $ drop table a; insert into a values (1002, 'lost'); alter publication $ set table a, b, r",
            Gap("public.a left publication"),
        ),
        (
            15,
            "alter table r detach partition r1; insert into r1 values (2, 'lost');
             alter table r attach partition r1 for values from (0) to (1000)",
            Gap("public.r1 was detached and attached again"),
        ),
        (
            0,
            "drop publication $; create publication $ for table a, b, r",
            Gap("dropped and created again"),
        ),
        (
            0,
            "begin; drop publication $; create publication $; commit; insert into a values (1003, 'lost');
             alter publication $ add table a, b, r",
            Gap("dropped and created again"),
        ),
    ];
    shop.looks(&mut walferry, &rows);
}

#[test]
fn what_a_publication_does_not_publish_any_more_is_a_gap() {
    let mut shop = Shop::new(world::shared(), "diff_less", "for table a, b, r");
    let mut walferry = shop.start(&[]);
    let rows: [(&str, &str, &str); 2] = [
        (
            "alter publication $ set (publish = 'insert')",
            "no longer publishes updates, deletes",
            "alter publication $ set (publish = 'insert, update, delete, truncate')",
        ),
        (
            "alter publication $ drop table a",
            "public.a left publication",
            "alter publication $ add table a",
        ),
    ];
    for (change, words, mend) in rows {
        shop.sends(&mut walferry, change);
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        shop.run(change);
        walferry.start_again();
        wait_for(&format!("a gap with {words:?}"), || {
            let answer = walferry.get("/ready")?;
            (answer.status == 503 && answer.body.contains(words)).then_some(())
        });
        shop.run(mend);
        shop.skips(&mut walferry, "");
    }
    shop.sends(&mut walferry, "after the last gap");
}

#[test]
fn a_partition_that_was_seen_detached_and_comes_back_is_a_gap() {
    if world::shared().postgres.major_version() < 15 {
        return;
    }
    let mut shop = Shop::new(world::shared(), "diff_detached", "for table a, b, r");
    let mut walferry = shop.start(&[]);
    let rows: [Row; 2] = [
        (
            0,
            "alter table r detach partition r1; insert into r1 values (2, 'lost')",
            Nothing,
        ),
        (
            0,
            "alter table r attach partition r1 for values from (0) to (1000)",
            Gap("public.r1 was detached and attached again"),
        ),
    ];
    shop.looks(&mut walferry, &rows);
}

#[test]
fn a_change_of_the_publication_that_need_not_have_left_out_anything_is_only_told() {
    let mut shop = Shop::new(world::shared(), "diff_told", "for table a, b, r");
    shop.run("create role diff_owner superuser");
    let mut walferry = shop.start(&[]);
    let rows: [Row; 10] = [
        (
            15,
            "alter publication $ set table a (id, v), b, r",
            Uncertain("public.a (all of it before, (id, v) now)"),
        ),
        (
            15,
            "begin; alter table a add x int; alter publication $ set table a (id, v, x), b, r; commit",
            Uncertain("public.a ((id, v) before, (id, v, x) now)"),
        ),
        (
            15,
            "alter publication $ set table a where (id > 0), b, r",
            Uncertain("public.a ((id, v, x) before, WHERE (id > 0) now)"),
        ),
        (
            15,
            "alter publication $ set table a where (id >= 0), b where (id > 0), r",
            Uncertain("public.a (WHERE (id > 0) before, WHERE (id >= 0) now)"),
        ),
        (
            0,
            "begin; alter publication $ drop table a; alter publication $ add table a; commit",
            Uncertain("in another way"),
        ),
        (
            0,
            "begin; drop publication $; create publication $ for table a, b, r; commit",
            Uncertain("perhaps in one transaction"),
        ),
        (
            13,
            "alter publication $ set (publish_via_partition_root = true)",
            Uncertain("publish_via_partition_root = true"),
        ),
        (
            0,
            "alter publication $ set (publish = 'insert, update, delete')",
            Uncertain("publish = 'insert, update, delete',"),
        ),
        (
            0,
            "alter publication $ owner to diff_owner",
            Uncertain("owner \"diff_owner\""),
        ),
        (
            15,
            "begin; alter table r detach partition r1; alter table r attach partition r1 for values from (0) to (1000); commit",
            Uncertain("public.r1 was detached and attached again"),
        ),
    ];
    shop.looks(&mut walferry, &rows);
}

#[test]
fn a_change_of_the_publication_that_cannot_leave_out_anything_is_not_told() {
    let mut shop = Shop::new(world::shared(), "diff_harmless", "for table a, b, r");
    let mut walferry = shop.start(&[]);
    let rows: [Row; 8] = [
        (
            0,
            "create table c (id int primary key); alter publication $ add table c",
            Nothing,
        ),
        (0, "alter publication $ set table a, b, c, r", Nothing),
        (0, "alter publication $ set table a, r", Nothing),
        (0, "drop table b, c", Nothing),
        (
            15,
            "create table r2 partition of r for values from (1000) to (2000)",
            Nothing,
        ),
        (15, "alter table r detach partition r2", Nothing),
        (
            0,
            "alter table a alter w type varchar(7); vacuum full a; truncate r; vacuum full pg_publication, pg_publication_rel",
            Nothing,
        ),
        (0, "comment on publication $ is 'nothing of it'", Nothing),
    ];
    shop.looks(&mut walferry, &rows);
}

#[test]
fn a_table_that_left_a_published_schema_for_a_while_is_a_gap() {
    if world::shared().postgres.major_version() < 15 {
        return;
    }
    let mut shop = Shop::new(world::shared(), "diff_schema", "for table a, tables in schema s");
    shop.run("create schema put");
    let mut walferry = shop.start(&[]);
    let rows: [Row; 5] = [
        (
            0,
            "alter table s.t set schema put; insert into put.t values (1, 'lost'); alter table put.t set schema s",
            Gap("s.t was moved to another schema and back"),
        ),
        (
            0,
            "begin; alter table s.t set schema put; alter table put.t set schema s; commit",
            Uncertain("s.t was moved to another schema and back"),
        ),
        (
            0,
            "alter publication $ drop tables in schema s; insert into s.t values (2, 'lost'); alter publication $ add tables in schema s",
            Gap("s.t left publication"),
        ),
        (0, "alter publication $ set table a, s.t", Gap("s.t left publication")),
        (
            0,
            "alter publication $ add tables in schema s; alter publication $ drop table s.t",
            Gap("s.t left publication"),
        ),
    ];
    shop.looks(&mut walferry, &rows);
}

#[test]
fn a_table_that_is_unlogged_is_a_gap_and_one_that_may_have_been_is_told() {
    let mut shop = Shop::new(world::shared(), "diff_unlogged", "for all tables");
    let mut walferry = shop.start(&[]);
    let rows: [Row; 5] = [
        (
            0,
            "alter table s.t set unlogged; insert into s.t values (1, 'lost'); alter table s.t set logged",
            Uncertain("s.t was rewritten"),
        ),
        (
            0,
            "vacuum full s.t; truncate s.t; alter table s.t add x int; cluster s.t using t_pkey",
            Nothing,
        ),
        (
            0,
            "alter table b set unlogged; alter table b set logged; create unlogged table u (id int)",
            Nothing,
        ),
        (0, "alter table s.t set unlogged", Gap("s.t became UNLOGGED")),
        (0, "alter table s.t set logged", Nothing),
    ];
    shop.looks(&mut walferry, &rows);
}

#[test]
fn what_cannot_be_decided_is_a_gap_where_the_property_asks_for_it() {
    let mut shop = Shop::new(world::shared(), "diff_strict", "for table a, b, r");
    let mut walferry = shop.start(&[("walferry.publication.uncertain", "gap")]);
    let rows: [Row; 2] = [
        (
            0,
            "begin; alter publication $ drop table a; alter publication $ add table a; commit",
            Gap("in another way"),
        ),
        (0, "alter publication $ add table s.t", Nothing),
    ];
    shop.looks(&mut walferry, &rows);
}

#[test]
fn set_table_with_another_column_list_does_not_stop_a_stream() {
    if world::shared().postgres.major_version() < 15 {
        return;
    }
    let mut shop = Shop::new(world::shared(), "diff_streaming", "for table a (id, v), b");
    let mut walferry = shop.start(&[]);
    shop.sends(&mut walferry, "before");
    shop.run("alter table a add x int; alter publication $ set table a (id, v, x), b");
    shop.sends(&mut walferry, "after");
    wait_for("the look", || walferry.output().contains("WF0322").then_some(()));
    shop.sends(&mut walferry, "after the look");
    assert_eq!(walferry.get("/ready").map(|answer| answer.status), Some(200));
    // What is left out while the connector streams is a gap as well.
    shop.run("alter publication $ set (publish = 'insert'); alter publication $ set (publish = 'insert, update, delete, truncate')");
    shop.skips(&mut walferry, "is now as it was before");
    shop.sends(&mut walferry, "after the gap");
}
