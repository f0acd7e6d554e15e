//! A publication that is gone, or was: an error of the stream up to Postgres 17, a mere warning since 18. Both are a gap, behind
//! which nothing is delivered or confirmed until a person has decided.

use crate::outbox::Outbox;
use crate::world;
use serde_json::{Map, Value};
use walferry_testkit::servers::{Walferry, wait_for};

/// An outbox whose publication is made by hand.
fn outbox(world: &world::World, name: &str) -> (Outbox, Map<String, Value>) {
    let outbox = Outbox::new(world, name);
    create(&outbox);
    let config = outbox.config_with([("publication.autocreate.mode", "disabled")]);
    (outbox, config)
}

fn create(outbox: &Outbox) {
    run(
        outbox,
        &format!("create publication {} for table outbox", outbox.slot()),
    );
}

fn run(outbox: &Outbox, sql: &str) {
    outbox.database.sql().run(sql);
}

/// What `/ready` says while it says no because of a gap.
#[track_caller]
fn wait_for_gap(walferry: &mut Walferry, words: &str) -> String {
    wait_for(&format!("a gap with {words:?}"), || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let answer = walferry.get("/ready")?;
        (answer.status == 503 && answer.body.contains("at a gap") && answer.body.contains(words)).then_some(answer.body)
    })
}

/// Waits until it is known where the server sends changes again.
#[track_caller]
fn wait_for_end(walferry: &Walferry, name: &str) -> String {
    wait_for("the end of the gap to be known", || {
        let output = walferry.command(["offsets", "skip-gap", name, "--show"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success() && !text.contains("does not send the changes yet")).then_some(text)
    })
}

#[track_caller]
fn skip(walferry: &Walferry, name: &str) {
    let output = walferry.command(["offsets", "skip-gap", name]);
    assert!(output.status.success(), "{output:?}\n{}", walferry.output());
}

/// Skips a gap that has become another one since it was shown: the choice is refused until the gap is shown as it is now.
#[track_caller]
fn skip_once_shown(walferry: &Walferry, name: &str) {
    wait_for("the choice to be taken", || {
        let output = walferry.command(["offsets", "skip-gap", name]);
        let told = String::from_utf8_lossy(&output.stderr);
        let is_refused = told.contains("choose again");
        assert!(
            output.status.success() || is_refused,
            "{output:?}\n{}",
            walferry.output()
        );
        output.status.success().then_some(())
    });
}

fn values(world: &world::World, outbox: &Outbox) -> Vec<String> {
    let records = world.kafka.read(&[outbox.topic("order")]);
    records
        .iter()
        .filter_map(|record| Some(record.value_text()?.to_owned()))
        .collect()
}

#[test]
fn nothing_is_confirmed_behind_a_publication_that_was_dropped_while_streaming() {
    let world = world::shared();
    let (outbox, config) = outbox(&world, "pub_dropped");
    // What hides warnings from a role's sessions must not hide this one.
    run(
        &outbox,
        &format!(
            "alter database {} set client_min_messages = error",
            outbox.database.name()
        ),
    );
    let mut walferry = outbox.start_with(config);
    outbox.insert("k", 1, 5);
    world.kafka.wait_for_records(&outbox.topic("order"), 5);
    let before = outbox.wal_end();
    run(&outbox, &format!("drop publication {}", outbox.slot()));
    outbox.insert("k", 6, 8);
    let behind = outbox.wal_end();
    let told = wait_for_gap(&mut walferry, "CREATE PUBLICATION");
    assert!(told.contains("skip-gap pub_dropped --data-dir /"), "{told}");
    // Nothing more can be decided before it is there again.
    let early = walferry.command(["offsets", "skip-gap", "pub_dropped"]);
    assert_eq!(early.status.code(), Some(2), "{early:?}");
    assert!(
        String::from_utf8_lossy(&early.stderr).contains("CREATE PUBLICATION"),
        "{early:?}"
    );

    create(&outbox);
    outbox.insert("k", 9, 10);
    let shown = wait_for_end(&walferry, "pub_dropped");
    assert!(shown.contains("--snapshot"), "{shown}");
    assert_eq!(
        values(&world, &outbox).len(),
        5,
        "nothing comes before somebody has decided"
    );
    assert!(
        outbox.confirmed() < behind,
        "confirmed {} past {behind}",
        outbox.confirmed()
    );
    let metrics = walferry.get("/metrics").expect("it answers").body;
    assert!(
        metrics.contains("walferry_gap{connector=\"pub_dropped\"} 1"),
        "{metrics}"
    );
    // A crash changes nothing about it.
    walferry.kill();
    walferry.start_again();
    wait_for_gap(&mut walferry, "may be missing");
    assert!(outbox.confirmed() < behind && before < behind);

    wait_for_end(&walferry, "pub_dropped");
    skip(&walferry, "pub_dropped");
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 7);
    let texts: Vec<_> = records.iter().filter_map(|record| record.value_text()).collect();
    assert_eq!(texts, ["1", "2", "3", "4", "5", "9", "10"]);
    walferry.wait_until_ready();
    outbox.wait_until_confirmed();
}

#[test]
fn what_was_written_after_a_publication_came_back_arrives_although_nobody_looked() {
    let world = world::shared();
    let (outbox, config) = outbox(&world, "pub_stopped");
    let mut walferry = outbox.start_with(config);
    outbox.insert("k", 1, 3);
    world.kafka.wait_for_records(&outbox.topic("order"), 3);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    // Dropped within a transaction whose first row can still be sent.
    run(
        &outbox,
        &format!(
            "begin; {}; drop publication {}; {}; commit",
            crate::outbox::insert_sql("k", 4, 4),
            outbox.slot(),
            crate::outbox::insert_sql("k", 5, 5)
        ),
    );
    outbox.insert("k", 6, 7);
    create(&outbox);
    outbox.insert("k", 8, 9);
    walferry.start_again();
    wait_for_gap(&mut walferry, "dropped and created again");
    wait_for_end(&walferry, "pub_stopped");
    skip(&walferry, "pub_stopped");
    wait_for("what comes behind the gap", || {
        (values(&world, &outbox).last().map(String::as_str) == Some("9")).then_some(())
    });
    let mut got = values(&world, &outbox);
    got.retain(|text| text != "4");
    assert_eq!(got, ["1", "2", "3", "8", "9"], "{}", walferry.output());
    walferry.wait_until_ready();
}

#[test]
fn a_renamed_publication_is_a_gap_only_where_something_was_written() {
    let world = world::shared();
    let (outbox, config) = outbox(&world, "pub_renamed");
    let mut walferry = outbox.start_with(config);
    outbox.insert("k", 1, 2);
    world.kafka.wait_for_records(&outbox.topic("order"), 2);
    let slot = outbox.slot();
    run(&outbox, &format!("alter publication {slot} rename to elsewhere"));
    // Also where no row comes, which the stream would warn of.
    let told = wait_for_gap(&mut walferry, "renamed to");
    assert!(told.contains("ALTER PUBLICATION"), "{told}");
    run(&outbox, &format!("alter publication elsewhere rename to {slot}"));
    walferry.wait_until_ready();
    outbox.insert("k", 3, 4);
    world.kafka.wait_for_records(&outbox.topic("order"), 4);
    assert_eq!(
        walferry.command(["offsets", "skip-gap", "pub_renamed"]).status.code(),
        Some(2)
    );

    run(&outbox, &format!("alter publication {slot} rename to elsewhere"));
    outbox.insert("k", 5, 5);
    run(&outbox, &format!("alter publication elsewhere rename to {slot}"));
    outbox.insert("k", 6, 6);
    wait_for_gap(&mut walferry, "may be missing");
    wait_for_end(&walferry, "pub_renamed");
    skip(&walferry, "pub_renamed");
    world.kafka.wait_for_records(&outbox.topic("order"), 5);
    assert_eq!(values(&world, &outbox), ["1", "2", "3", "4", "6"]);
}

#[test]
fn a_table_that_was_out_of_the_publication_for_a_moment_is_a_gap() {
    let world = world::shared();
    let (outbox, mut config) = outbox(&world, "pub_table");
    run(&outbox, "create table other (id int primary key)");
    config.insert("snapshot.mode".into(), "initial".into());
    let mut walferry = outbox.start_with(config);
    outbox.insert("k", 1, 2);
    world.kafka.wait_for_records(&outbox.topic("order"), 2);
    let slot = outbox.slot();
    run(&outbox, &format!("alter publication {slot} add table other"));
    outbox.wait_until_confirmed();
    // By the time of the next look it is there again; the stream never says a word.
    run(&outbox, &format!("alter publication {slot} drop table outbox"));
    outbox.insert("k", 3, 3);
    run(&outbox, &format!("alter publication {slot} add table outbox"));
    outbox.insert("k", 4, 4);
    wait_for_gap(&mut walferry, "public.outbox left publication");
    let output = walferry.command(["offsets", "skip-gap", "pub_table", "--snapshot"]);
    assert!(output.status.success(), "{output:?}\n{}", walferry.output());
    wait_for("the row that was not published", || {
        values(&world, &outbox).contains(&"3".to_owned()).then_some(())
    });
    walferry.wait_until_ready();
    outbox.insert("k", 5, 5);
    wait_for("the stream to go on", || {
        values(&world, &outbox).contains(&"5".to_owned()).then_some(())
    });
}

#[test]
fn ordinary_changes_of_tables_and_publication_are_no_gap() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "pub_ddl");
    // Made and kept up to date by Walferry itself.
    run(&outbox, "create table gone (id int primary key)");
    let config = outbox.config_with([("table.include.list", "public.outbox,public.gone,public.more")]);
    let mut walferry = outbox.start_with(config);
    outbox.insert("k", 1, 2);
    world.kafka.wait_for_records(&outbox.topic("order"), 2);
    outbox.wait_until_confirmed();
    let slot = outbox.slot();
    let change = |walferry: &mut Walferry, sql: &str| {
        run(&outbox, sql);
        // Each start compares with the look before.
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        walferry.start_again();
        walferry.wait_until_ready();
    };
    change(&mut walferry, "drop table gone; create table more (id int primary key)");
    change(
        &mut walferry,
        "alter table outbox add column extra text; alter table outbox rename to old; alter table old rename to outbox",
    );
    if world.postgres.major_version() >= 13 {
        change(
            &mut walferry,
            &format!("alter publication {slot} set (publish_via_partition_root = true)"),
        );
    }
    change(&mut walferry, "create table uncaptured (id int primary key)");
    walferry
        .options()
        .config
        .insert("table.include.list".into(), "public.outbox".into());
    change(&mut walferry, "select 1");
    outbox.insert("k", 3, 4);
    world.kafka.wait_for_records(&outbox.topic("order"), 4);
    assert_eq!(walferry.get("/ready").map(|answer| answer.status), Some(200));
    assert!(!walferry.output().contains("may be missing"), "{}", walferry.output());
}

#[test]
fn a_slot_that_is_older_than_the_publication_is_a_gap_at_its_beginning() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "pub_younger");
    run(
        &outbox,
        &format!(
            "select pg_create_logical_replication_slot('{}', 'pgoutput')",
            outbox.slot()
        ),
    );
    outbox.insert("k", 1, 2);
    // It makes the publication; what was written before that cannot be sent.
    let mut walferry = Walferry::start(outbox.options(outbox.config()));
    wait_for_gap(&mut walferry, "may be missing");
    outbox.insert("k", 3, 4);
    wait_for_end(&walferry, "pub_younger");
    let confirmed = outbox.confirmed();
    assert!(walferry.runs());
    assert_eq!(values(&world, &outbox), [""; 0]);
    skip(&walferry, "pub_younger");
    world.kafka.wait_for_records(&outbox.topic("order"), 2);
    assert_eq!(values(&world, &outbox), ["3", "4"]);
    outbox.wait_until_confirmed();
    assert!(confirmed < outbox.confirmed());
}

#[test]
fn two_gaps_in_a_row_are_told_one_by_one_and_what_lies_between_them_arrives() {
    let world = world::shared();
    let (outbox, config) = outbox(&world, "pub_twice");
    let mut walferry = outbox.start_with(config);
    outbox.insert("k", 1, 1);
    world.kafka.wait_for_records(&outbox.topic("order"), 1);
    for first in [2, 4] {
        run(&outbox, &format!("drop publication {}", outbox.slot()));
        outbox.insert("k", first, first);
        if first == 2 {
            wait_for_gap(&mut walferry, "CREATE PUBLICATION");
        }
        create(&outbox);
        outbox.insert("k", first + 1, first + 1);
        if first == 2 {
            wait_for_end(&walferry, "pub_twice");
        }
    }
    // The publication was made again behind the end of the gap that was shown.
    skip_once_shown(&walferry, "pub_twice");
    world.kafka.wait_for_records(&outbox.topic("order"), 2);
    wait_for_gap(&mut walferry, "may be missing");
    wait_for_end(&walferry, "pub_twice");
    skip(&walferry, "pub_twice");
    world.kafka.wait_for_records(&outbox.topic("order"), 3);
    assert_eq!(values(&world, &outbox), ["1", "3", "5"]);
    walferry.wait_until_ready();
}

#[test]
fn a_table_that_moves_out_of_a_published_schema_is_a_gap() {
    let world = world::shared();
    if world.postgres.major_version() < 15 {
        // A publication cannot have schemas.
        return;
    }
    let outbox = Outbox::new(&world, "pub_schema");
    run(
        &outbox,
        &format!(
            "create schema sold; alter table outbox set schema sold; create schema put; create table put.spare (id int);
             create table sold.parted (id int) partition by list (id); create table sold.part partition of sold.parted default;
             create publication {} for tables in schema sold",
            outbox.slot()
        ),
    );
    let config = outbox.config_with([
        ("table.include.list", r".*\.outbox,sold.parted,sold.part"),
        ("publication.autocreate.mode", "all_tables"),
    ]);
    let mut walferry = outbox.start_with(config);
    let insert = |schema: &str, n: i64| {
        let sql = crate::outbox::insert_sql("k", n, n).replace("into outbox", &format!("into {schema}.outbox"));
        run(&outbox, &sql);
    };
    insert("sold", 1);
    world.kafka.wait_for_records(&outbox.topic("order"), 1);
    outbox.wait_until_confirmed();
    // Ordinary: a partition leaves, another table is made, and a restart compares.
    run(
        &outbox,
        "alter table sold.parted detach partition sold.part; drop table sold.part; create table sold.new (id int)",
    );
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    walferry.start_again();
    walferry.wait_until_ready();
    run(&outbox, "alter table sold.outbox set schema put");
    insert("put", 2);
    wait_for_gap(&mut walferry, "put.outbox left publication");
    // It is a gap as well when all is as before.
    run(&outbox, "alter table put.outbox set schema sold");
    insert("sold", 3);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    walferry.start_again();
    wait_for_gap(&mut walferry, "put.outbox left publication");
    wait_for_end(&walferry, "pub_schema");
    assert_eq!(values(&world, &outbox), ["1"]);
    skip(&walferry, "pub_schema");
    wait_for("what comes behind the gap", || {
        values(&world, &outbox).contains(&"3".to_owned()).then_some(())
    });
    walferry.wait_until_ready();

    // The connector may make its publication itself; at a gap it waits until it is asked to.
    run(&outbox, &format!("drop publication {}", outbox.slot()));
    insert("sold", 4);
    wait_for_gap(&mut walferry, "CREATE PUBLICATION");
    skip(&walferry, "pub_schema");
    insert("sold", 5);
    wait_for("what comes behind the second gap", || {
        values(&world, &outbox).contains(&"5".to_owned()).then_some(())
    });
    assert!(!values(&world, &outbox).contains(&"4".to_owned()));
}
