//! Postgres in trouble, and the slot: it moves whenever it may.

use crate::outbox::{Outbox, assert_runs};
use crate::world;
use walferry_testkit::servers::{Checked, Postgres, PostgresOptions, Walferry, wait_for};

#[test]
fn it_goes_on_after_a_crash_of_postgres() {
    let mut world = world::alone();
    let outbox = Outbox::new(&world, "pg_crash");
    let mut walferry = outbox.start();
    for round in 0..3 {
        outbox.insert("k", round * 500 + 1, round * 500 + 500);
        world.postgres.stop(round % 2 == 0);
        world.postgres.start_again();
    }
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_until_confirmed();
    assert_runs(&world.kafka.read(&[outbox.topic("order")]), &["k"], 1_500);
}

#[test]
fn it_goes_on_when_its_connections_are_ended() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "pg_ended");
    let mut walferry = outbox.start();
    for round in 0..3 {
        outbox.insert("k", round * 100 + 1, round * 100 + 100);
        outbox.database.sql().run(
            "select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid()",
        );
        outbox.wait_until_streaming(&mut walferry);
    }
    outbox.wait_until_confirmed();
    assert_runs(&world.kafka.read(&[outbox.topic("order")]), &["k"], 300);
}

#[test]
fn an_idle_stream_moves_the_slot() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "idle");
    let _walferry = outbox.start();
    // Another database's WAL is none of ours, and yet held back by our slot until it moves.
    let busy = world.postgres.database("idle_busy");
    busy.sql().run("create table t as select generate_series(1, 1000) n");
    outbox.wait_until_confirmed();
}

#[test]
fn a_busy_table_that_is_filtered_moves_the_slot() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "filtered");
    outbox.database.sql().run("create table busy (n int)");
    // With a publication for all tables the changes are sent to us and dropped by us.
    for (mode, rows) in [("filtered", 1_000), ("all_tables", 2_000)] {
        let slot = format!("filtered_{mode}");
        let config = outbox.config_with([("publication.autocreate.mode", mode), ("publication.name", &slot)]);
        let mut walferry = outbox.start_with(config);
        outbox
            .database
            .sql()
            .run(&format!("insert into busy select generate_series(1, {rows})"));
        outbox.wait_until_confirmed();
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
}

#[test]
fn a_slot_in_use_is_waited_for() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "in_use");
    let mut first = outbox.start();
    let pid_query = format!(
        "select active_pid from pg_replication_slots where slot_name = '{}'",
        outbox.slot()
    );
    let pid = outbox.database.sql().value(&pid_query).expect("the slot is read");
    let mut second = Walferry::start(outbox.options(outbox.config()));
    wait_for("the second to name who holds the slot", || {
        second.output().contains(&pid).then_some(())
    });
    assert_ne!(second.get("/ready").map(|answer| answer.status), Some(200));
    outbox.insert("k", 1, 5);
    world.kafka.wait_for_records(&outbox.topic("order"), 5);
    // The first moves the slot after the second has seen where it stood.
    outbox.wait_until_confirmed();
    first.kill();
    wait_for("the second to read the slot", || {
        assert!(second.runs(), "{}", second.output());
        outbox.database.sql().value(&pid_query).filter(|now| *now != pid)
    });
    outbox.insert("k", 6, 10);
    // The second has no offset and starts where the slot stands: it may repeat, and must not skip.
    wait_for("the rest to arrive", || {
        let records = world.kafka.read(&[outbox.topic("order")]);
        records
            .iter()
            .any(|record| record.value_text() == Some("10"))
            .then_some(())
    });
    assert_runs(&world.kafka.read(&[outbox.topic("order")]), &["k"], 10);
}

#[test]
fn it_waits_for_a_host_that_does_not_answer() {
    let mut world = world::alone();
    let outbox = Outbox::new(&world, "pg_late");
    world.postgres.stop(false);
    let mut walferry = Walferry::start(outbox.options(outbox.config()));
    wait_for("the admin endpoint", || walferry.get("/health"));
    assert_ne!(walferry.get("/ready").map(|answer| answer.status), Some(200));
    world.postgres.start_again();
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 1, 3);
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 3), &["k"], 3);
}

/// As scripts make slots that set all options. Such a slot would work until somebody prepares a transaction, perhaps after months.
#[test]
fn a_slot_with_two_phase_is_refused_where_transactions_can_be_prepared() {
    let world = world::shared();
    let postgres = Postgres::start_with(&PostgresOptions {
        settings: vec!["max_prepared_transactions = 3".into()],
        ..PostgresOptions::default()
    });
    let make =
        |name: &str| format!("select pg_create_logical_replication_slot('{name}_slot', 'pgoutput', false, true)");
    let outbox = Outbox::on(&postgres, &world.kafka, "two_phase");
    outbox.database.sql().run(&make("two_phase"));
    let checked = Checked::of(&outbox.options(outbox.config()), &[]);
    assert_eq!(checked.code, Some(2), "{}{}", checked.stdout, checked.stderr);
    let mut walferry = Walferry::start(outbox.options(outbox.config()));
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    for output in [checked.stdout, walferry.output()] {
        assert!(output.contains("was created with two_phase"), "{output}");
    }

    // On the shared server nothing can be prepared.
    let outbox = Outbox::new(&world, "two_phase_off");
    outbox.database.sql().run(&make("two_phase_off"));
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 1);
    outbox.wait_for_event(&world.kafka, 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
