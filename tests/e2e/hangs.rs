//! Peers that say nothing, servers that shut down while something waits, and what is told of it.

use crate::outbox::{Outbox, assert_runs};
use crate::world::{self, World};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;
use walferry_testkit::servers::{Postgres, SmallDisk, Walferry, wait_for};

#[test]
fn it_starts_where_the_server_sends_notices() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "notices");
    let sql = outbox.database.sql();
    sql.run("create role noticing superuser login; alter role noticing set client_min_messages = debug1");
    let config = outbox.config_with([("database.user", "noticing")]);
    let mut walferry = outbox.start_with(config);
    outbox.insert("k", 1, 3);
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 3), &["k"], 3);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    sql.run("drop owned by noticing; drop role noticing");
}

#[test]
fn a_walsender_that_hangs_is_told_of_and_given_up() {
    let world = world::shared();
    // A process that hangs may hold locks of its server.
    let postgres = Postgres::start();
    let outbox = Outbox::on(&postgres, &world.kafka, "hanging");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 5);
    outbox.wait_until_confirmed();
    let pid = walsender(&outbox);
    let stopped = postgres.hang(pid);
    outbox.insert("k", 6, 10);
    wait_for("a connector that is not ready", || {
        let answer = walferry.get("/ready")?;
        (answer.status != 200 && answer.body.contains("does not answer")).then_some(())
    });
    wait_for("the connection to be given up", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        walferry.output().contains("Postgres sent nothing for").then_some(())
    });
    // The process that hangs holds the slot.
    wait_for("who holds the slot to be named", || {
        let answer = walferry.get("/ready")?;
        (answer.status != 200 && answer.body.contains(&pid.to_string())).then_some(())
    });
    drop(stopped);
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 10);
    assert_runs(&records, &["k"], 10);
    walferry.wait_until_ready();
}

fn walsender(outbox: &Outbox) -> i32 {
    let query = format!(
        "select active_pid from pg_replication_slots where slot_name = '{}'",
        outbox.slot()
    );
    let pid = outbox.database.sql().value(&query).and_then(|pid| pid.parse().ok());
    pid.expect("the slot is streamed")
}

/// A walsender of a server that shuts down waits until its client has flushed what it was sent; the test's patience is the limit.
pub(crate) fn shut_down_while_kafka_is_down(world: &mut World) {
    let outbox = Outbox::new(world, "shutdown");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 5);
    outbox.wait_until_confirmed();
    world.kafka.stop(true);
    outbox.insert("k", 6, 10);
    let committed = outbox.wal_end();
    world.postgres.stop(false);
    world.postgres.start_again();
    let confirmed = outbox.confirmed();
    assert!(
        confirmed < committed,
        "{confirmed} is confirmed, the commit at {committed} is not delivered"
    );
    world.kafka.start_again();
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_until_confirmed();
    assert_runs(&world.kafka.read(&[outbox.topic("order")]), &["k"], 10);
}

/// As long as nothing is read, the walsender cannot even send that it waits.
pub(crate) fn shut_down_while_nothing_is_read(world: &mut World) {
    let outbox = Outbox::new(world, "shutdown_full");
    let config = outbox.config_with([("walferry.in.flight.max.bytes", "1048576")]);
    let mut walferry = outbox.start_with(config);
    outbox.insert("k", 1, 5);
    outbox.wait_until_confirmed();
    world.kafka.stop(true);
    outbox.database.sql().run(
        "insert into outbox select 1000 + n, 'order', 'full', 'T', repeat('x', 3000) || n from generate_series(1, 15000) n",
    );
    let committed = outbox.wal_end();
    outbox.insert("k", 6, 10);
    wait_for("a walsender that can send no more", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let waits = format!(
            "select wait_event = 'WalSenderWriteData' from pg_stat_activity where pid = {}",
            walsender(&outbox)
        );
        (outbox.database.sql().value(&waits).as_deref() == Some("t")).then_some(())
    });
    world.postgres.stop(false);
    world.postgres.start_again();
    let confirmed = outbox.confirmed();
    assert!(
        confirmed < committed,
        "{confirmed} is confirmed, the commit at {committed} is not delivered"
    );
    world.kafka.start_again();
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_until_confirmed();
    let records = world.kafka.read(&[outbox.topic("order")]);
    let (full, rest): (Vec<_>, Vec<_>) = records
        .into_iter()
        .partition(|record| record.key_text() == Some("full"));
    assert!(full.len() >= 15_000, "{} of 15,000 events arrived", full.len());
    assert_runs(&rest, &["k"], 10);
}

/// A paused connector reads nothing, for as long as somebody likes.
pub(crate) fn shut_down_while_paused(world: &mut World) {
    let outbox = Outbox::new(world, "shutdown_paused");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 5);
    outbox.wait_until_confirmed();
    let ask = |walferry: &Walferry, what: &str| {
        let answer = walferry.ask("PUT", &format!("/connectors/shutdown_paused/{what}"));
        assert_eq!(answer.map(|answer| answer.status), Some(202), "{what}");
    };
    ask(&walferry, "pause");
    wait_for("the connector to be paused", || {
        let status = walferry.get("/connectors/shutdown_paused/status")?.json();
        (status["connector"]["state"] == "PAUSED").then_some(())
    });
    outbox.insert("k", 6, 10);
    world.postgres.stop(false);
    world.postgres.start_again();
    outbox.insert("k", 11, 15);
    ask(&walferry, "resume");
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_until_confirmed();
    assert_runs(&world.kafka.read(&[outbox.topic("order")]), &["k"], 15);
}

#[test]
fn transactions_that_hold_up_a_new_slot_are_named() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "held_up");
    let sql = outbox.database.sql();
    sql.run("begin; create table older (n int)");
    let pid = sql.value("select pg_backend_pid()").expect("it is a number");
    let mut walferry = Walferry::start(outbox.options(outbox.config()));
    wait_for("the transaction to be named", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let answer = walferry.get("/ready")?;
        (answer.status != 200 && answer.body.contains(&format!("pg_terminate_backend({pid})"))).then_some(())
    });
    let output = walferry.output();
    assert!(output.contains(&format!("process {pid}")), "{output}");
    sql.run("commit");
    outbox.wait_until_streaming(&mut walferry);
    walferry.wait_until_ready();
    outbox.insert("k", 1, 3);
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 3), &["k"], 3);
}

/// Inserts 6 to 10 while the offset cannot be stored: they arrive, nothing is confirmed, and `/ready` says why. Then `mend` gives room.
fn delivers_while_no_offset_is_stored(
    world: &World,
    outbox: &Outbox,
    walferry: &mut Walferry,
    why: &str,
    mend: impl FnOnce(&Walferry),
) {
    let stored = outbox.wal_end();
    outbox.insert("k", 6, 10);
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 10), &["k"], 10);
    wait_for("a connector that is not ready, and why", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let answer = walferry.get("/ready")?;
        let is_told = answer.body.contains("cannot be stored") && answer.body.contains(why);
        (answer.status != 200 && is_told).then_some(())
    });
    let confirmed = outbox.confirmed();
    assert!(confirmed <= stored, "{confirmed} is confirmed, {stored} stored");
    wait_for("the same in the log", || {
        let output = walferry.output();
        (output.contains("the offset could not be stored") && output.contains(why)).then_some(())
    });
    mend(walferry);
    outbox.wait_until_confirmed();
    walferry.wait_until_ready();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    // Once only: nothing was started again.
    assert_eq!(world.kafka.read(&[outbox.topic("order")]).len(), 10);
}

/// Adds to a file as much as there is room for.
#[track_caller]
fn fill_disk(filler: &Path) {
    let file = File::options().create(true).append(true).open(filler);
    let mut file = file.expect("the file can be opened");
    let full = loop {
        if let Err(full) = file.write_all(&[0; 4096]) {
            break full;
        }
    };
    assert_eq!(full.kind(), ErrorKind::StorageFull);
}

#[test]
fn rows_are_delivered_while_the_disk_is_full() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "disk_full");
    let mut walferry = Walferry::start_on_small_disk(outbox.options(outbox.config()), 64);
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 1, 5);
    outbox.wait_until_confirmed();
    let (filler, offset) = (
        walferry.inner_data_dir().join("filler"),
        walferry.inner_data_dir().join("disk_full/offset.json"),
    );
    fill_disk(&filler);
    // The offset needs no more room than it has, until its file has to be made anew.
    outbox.database.sql().run("create table unrelated (n int)");
    outbox.wait_until_confirmed();
    wait_for("an offset that finds no room", || {
        if walferry.output().contains("the offset could not be stored") {
            return Some(());
        }
        // Before the disk is full again, the program may have made the file anew: then the next round removes it.
        if let Err(error) = fs::remove_file(&offset) {
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
        fill_disk(&filler);
        outbox.database.sql().run("insert into unrelated values (1)");
        None
    });
    delivers_while_no_offset_is_stored(&world, &outbox, &mut walferry, "No space left on device", |_| {
        fs::remove_file(&filler).expect("it is ours");
    });
}

#[test]
fn a_start_on_a_full_disk_is_foreseen_and_measured() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "full_start");
    let disk = SmallDisk::new(256);
    disk.fill(0);
    let mut walferry = Walferry::start_on_disk(outbox.options(outbox.config()), &disk);
    let trouble = |walferry: &Walferry, value: u8| {
        let told = format!("walferry_offset_trouble{{connector=\"full_start\"}} {value}");
        wait_for(&told, || walferry.get("/metrics")?.body.contains(&told).then_some(()));
    };
    trouble(&walferry, 1);
    let ready = walferry.get("/ready").expect("an answer");
    assert!(ready.body.contains("No space left on device"), "{}", ready.body);
    disk.free();
    walferry.wait_until_ready();
    trouble(&walferry, 0);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    disk.fill(0);
    let (config, bootstrap) = (walferry.config_file().display().to_string(), world.kafka.bootstrap());
    let check = || {
        let output = walferry.command([
            "check",
            "--config",
            &config,
            "--bootstrap-servers",
            &bootstrap,
            "--admin",
            "127.0.0.1:0",
        ]);
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let (code, said) = check();
    assert_eq!(code, Some(2), "{said}");
    let obstacle = said
        .lines()
        .find(|line| line.contains("obstacle") && line.ends_with("[WF0604]"));
    assert!(
        obstacle.is_some_and(|line| line.contains("No space left on device")),
        "{said}"
    );
    disk.free();
    let (code, said) = check();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn rows_are_delivered_while_no_file_can_be_opened() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "no_files");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 5);
    outbox.wait_until_confirmed();
    // Those that are open stay so.
    walferry.limit_descriptors(Some(3));
    let stored = outbox.wal_end();
    outbox.insert("k", 6, 10);
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 10), &["k"], 10);
    wait_for("the reason in the log", || {
        let output = walferry.output();
        assert!(walferry.runs(), "walferry ended:\n{output}");
        (output.contains("the offset could not be stored") && output.contains("Too many open files")).then_some(())
    });
    let confirmed = outbox.confirmed();
    assert!(confirmed <= stored, "{confirmed} is confirmed, {stored} stored");
    walferry.limit_descriptors(None);
    outbox.wait_until_confirmed();
    walferry.wait_until_ready();
}

fn slots(outbox: &Outbox) -> Vec<String> {
    let rows = outbox
        .database
        .sql()
        .rows("select slot_name from pg_replication_slots where database = current_database()");
    rows.into_iter().flatten().flatten().collect()
}

#[test]
fn a_first_start_that_fails_for_good_leaves_no_slot() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "first_fails");
    outbox.insert("k", 1, 5);
    let select = "snapshot.select.statement.overrides.public.outbox";
    let with_select = |sql| {
        outbox.config_with([
            ("snapshot.mode", "initial"),
            ("snapshot.select.statement.overrides", "public.outbox"),
            (select, sql),
        ])
    };
    // One that the server understands, and that fails at the first row.
    let mut walferry = Walferry::start(outbox.options(with_select("select * from outbox where 1 / (id - id) = 1")));
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    assert_eq!(slots(&outbox), [""; 0], "{}", walferry.output());
    assert!(walferry.output().contains("division by zero"), "{}", walferry.output());
    // Mended, it is a first start again.
    let mended = "select * from outbox where id <> 0; -- all; of it";
    walferry.options().config = with_select(mended);
    walferry.start_again();
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_until_confirmed();
    outbox.insert("k", 6, 8);
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 8);
    assert_eq!(records.len(), 8);
    assert_eq!(slots(&outbox), [outbox.slot()]);
}

/// The rows were committed after the slot had been created, and a new slot would be behind them.
#[test]
fn a_first_start_that_fails_for_good_after_changes_have_come_keeps_them() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "first_changes");
    let replicas = |count| {
        outbox.config_with([
            ("topic.creation.default.partitions", "1"),
            ("topic.creation.default.replication.factor", count),
        ])
    };
    // There is one broker, so the topic cannot be created when the first record needs it.
    let mut walferry = outbox.start_with(replicas("3"));
    outbox.insert("k", 1, 5);
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    assert!(
        walferry.output().contains("could not be created"),
        "{}",
        walferry.output()
    );
    assert_eq!(slots(&outbox), [outbox.slot()], "{}", walferry.output());
    outbox.insert("k", 6, 8);
    walferry.options().config = replicas("1");
    walferry.start_again();
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 8), &["k"], 8);
    outbox.wait_until_confirmed();
}

#[test]
fn a_failed_first_start_leaves_the_slot_to_a_process_that_has_adopted_it() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "adopted");
    outbox.insert("k", 1, 5);
    let sql = outbox.database.sql();
    sql.run("select pg_advisory_lock(1); select pg_advisory_lock(2)");
    let waiting = |lock: i32| {
        let query =
            format!("select count(*) from pg_locks where locktype = 'advisory' and objid = {lock} and not granted");
        wait_for("rows to be read", || {
            (sql.value(&query).as_deref() == Some("1")).then_some(())
        });
    };
    // Each reads the rows only after its lock is free.
    let reads = |lock: i32, condition: &str| {
        let select = format!(
            "select * from outbox where case when pg_advisory_lock_shared({lock}) is null then false else {condition} end"
        );
        outbox.config_with([
            ("snapshot.mode", "initial"),
            ("snapshot.select.statement.overrides", "public.outbox"),
            ("snapshot.select.statement.overrides.public.outbox", select.as_str()),
        ])
    };
    let mut failing = Walferry::start(outbox.options(reads(1, "1 / (id - id) = 1")));
    waiting(1);
    assert_eq!(slots(&outbox), [outbox.slot()]);
    let mut adopting = Walferry::start(outbox.options(reads(2, "id <> 0")));
    waiting(2);
    sql.run("select pg_advisory_unlock(1)");
    assert_eq!(failing.wait(), Some(2), "{}", failing.output());
    let output = failing.output();
    assert!(
        output.contains("division by zero") && output.contains("another process uses it"),
        "{output}"
    );
    assert!(slots(&outbox).contains(&outbox.slot()), "{output}");
    sql.run("select pg_advisory_unlock(2)");
    outbox.wait_until_streaming(&mut adopting);
    outbox.insert("k", 6, 8);
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 8), &["k"], 8);
    outbox.wait_until_confirmed();
}
