//! Servers with another history than the one that was read: promoted standbys, restored backups, copies of data directories.
//!
//! In each test the server that is read in the end lacks rows that were delivered (those of key `old`), and has committed others at
//! their positions (those of key `new`).

use crate::outbox::{Outbox, assert_runs, insert_sql};
use crate::world::{self, World};
use std::collections::BTreeSet;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use walferry_testkit::servers::{Postgres, Walferry, wait_for};

/// A server of the test's own with the connector that reads it.
struct Scene<'w> {
    world: &'w World,
    primary: Postgres,
    outbox: Outbox,
    walferry: Walferry,
}

/// Rows that every server has, rows that are delivered and that the new server lacks, and rows of the new server.
const BOTH: i64 = 50;
const OLD: i64 = 3_000;
const NEW: i64 = 300;

impl<'w> Scene<'w> {
    /// The connector has delivered rows that every copy will have, and the slot is on the disk.
    fn new(world: &'w World, name: &str, properties: &[(&str, &str)]) -> Self {
        let primary = Postgres::start();
        let outbox = Outbox::on(&primary, &world.kafka, name);
        let mut config = outbox.config();
        config.extend(properties.iter().map(|&(name, value)| (name.into(), value.into())));
        let walferry = outbox.start_with(config);
        let scene = Self {
            world,
            primary,
            outbox,
            walferry,
        };
        scene.deliver("both", BOTH);
        scene.primary.sql().run("checkpoint");
        scene
    }

    /// Rows that the connector delivers.
    fn deliver(&self, key: &str, rows: i64) {
        self.outbox.insert(key, 1, rows);
        wait_for("the rows to be delivered", || {
            (self.numbers(key).len() == rows as usize).then_some(())
        });
        self.outbox.wait_until_confirmed();
    }

    fn numbers(&self, key: &str) -> BTreeSet<i64> {
        let topic = self.outbox.topic("order");
        if !self.world.kafka.topics().contains(&topic) {
            return BTreeSet::new();
        }
        let records = self.world.kafka.read(&[topic]);
        let of_key = records.iter().filter(|record| record.key_text() == Some(key));
        of_key
            .map(|record| {
                record
                    .value_text()
                    .and_then(|text| text.parse().ok())
                    .expect("a number")
            })
            .collect()
    }

    /// The new server commits rows one by one at positions that were delivered from the old one, and grows past them.
    fn write_anew(&self, first: i64, old_end: u64) {
        let sql = self.outbox.database.sql();
        for n in first..first + NEW {
            sql.run(&insert_sql("new", n, n));
        }
        sql.run("create table if not exists filler (text text)");
        while self.outbox.wal_end() <= old_end {
            sql.run("insert into filler select repeat('x', 1000) from generate_series(1, 1000)");
        }
    }

    fn wait_for_new(&mut self, rows: i64) {
        wait_for("all rows of the new server", || {
            assert!(self.walferry.runs(), "walferry ended:\n{}", self.walferry.output());
            (self.numbers("new").len() == rows as usize).then_some(())
        });
    }

    /// How many records were sent in all.
    fn sent(&self) -> usize {
        self.world.kafka.read(&[self.outbox.topic("order")]).len()
    }

    /// `/ready` in words.
    fn ready(&self) -> Option<String> {
        let answer = self.walferry.get("/ready")?.json();
        Some(answer["connectors"][0].to_string())
    }

    #[track_caller]
    fn assert_refused(&mut self, parts: &[&str]) {
        let code = self.walferry.wait();
        let output = self.walferry.output();
        assert_eq!(code, Some(2), "{output}");
        for part in parts {
            assert!(output.contains(part), "{part:?} is missing in:\n{output}");
        }
    }

    /// The log, `/ready` and a metric tell what the server lacks.
    #[track_caller]
    fn assert_told(&self) {
        let says = "were delivered, but the server does not have them: its timeline 2 forked at";
        assert!(self.walferry.output().contains(says), "{}", self.walferry.output());
        let ready = wait_for("the news to be told", || {
            self.ready().filter(|text| text.contains(says))
        });
        assert!(ready.contains("\"ready\":true"), "{ready}");
        let metrics = self.walferry.get("/metrics").expect("it runs").body;
        assert!(metrics.contains("walferry_missing_on_server_lsn{"), "{metrics}");
    }
}

#[test]
fn a_promoted_standby_that_was_behind_is_read_from_the_fork() {
    let world = world::shared();
    let mut scene = Scene::new(&world, "promoted_stopped", &[]);
    let slot = scene.primary.copy_slot(&scene.outbox.slot());
    let mut standby = scene.primary.standby(&[]);
    standby.wait_until_it_has_all_of(&scene.primary);
    standby.stop(false);
    standby.take_slot(&slot);
    scene.deliver("old", OLD);
    assert_eq!(scene.walferry.terminate(), Some(0), "{}", scene.walferry.output());
    let old_end = scene.outbox.wal_end();
    scene.primary.stop(true);

    standby.take_port_of(&scene.primary);
    standby.start_again();
    standby.promote();
    scene.write_anew(1, old_end);
    scene.walferry.start_again();
    scene.wait_for_new(NEW);
    scene.assert_told();

    // It is told by the next process too, and nothing is sent twice.
    let sent = scene.sent();
    assert_eq!(scene.walferry.terminate(), Some(0), "{}", scene.walferry.output());
    scene.write_anew(NEW + 1, old_end);
    scene.walferry.start_again();
    scene.wait_for_new(2 * NEW);
    scene.assert_told();
    assert_eq!(scene.sent(), sent + NEW as usize);
}

#[test]
fn a_standby_is_waited_for_and_read_from_the_fork_once_it_is_promoted() {
    let world = world::shared();
    let mut scene = Scene::new(&world, "promoted_connected", &[("snapshot.mode", "when_needed")]);
    let slot = scene.primary.copy_slot(&scene.outbox.slot());
    let mut standby = scene.primary.standby(&[]);
    standby.wait_until_it_has_all_of(&scene.primary);
    standby.stop(false);
    scene.deliver("old", OLD);
    let old_end = scene.outbox.wal_end();
    scene.primary.stop(true);

    // First a standby, then a primary without the slot.
    standby.take_port_of(&scene.primary);
    standby.start_again();
    let reason = wait_for("it to wait for the standby", || {
        scene.ready().filter(|text| text.contains("standby"))
    });
    assert!(scene.walferry.runs(), "{}", scene.walferry.output());
    standby.promote();
    scene.write_anew(1, old_end);
    let slots = "select count(*) from pg_replication_slots";
    let reason = wait_for(&format!("it to wait for the slot ({reason})"), || {
        scene
            .ready()
            .filter(|text| text.contains("the slot does not exist there yet"))
    });
    assert_eq!(
        scene.outbox.database.sql().value(slots).as_deref(),
        Some("0"),
        "{reason}"
    );

    assert!(reason.contains("\"ready\":false"), "{reason}");

    // The slot comes as the former primary had it before.
    standby.stop(false);
    standby.take_slot(&slot);
    standby.start_again();
    scene.wait_for_new(NEW);
    assert!(scene.walferry.runs(), "{}", scene.walferry.output());
    scene.assert_told();
}

#[test]
fn a_promotion_while_connected_loses_nothing_of_the_new_primary() {
    let world = world::shared();
    let mut scene = Scene::new(&world, "promoted_at_once", &[]);
    let slot = scene.primary.copy_slot(&scene.outbox.slot());
    let mut standby = scene.primary.standby(&[]);
    standby.wait_until_it_has_all_of(&scene.primary);
    standby.stop(false);
    standby.take_slot(&slot);
    scene.deliver("old", OLD);
    let old_end = scene.outbox.wal_end();
    scene.primary.stop(true);

    standby.take_port_of(&scene.primary);
    standby.start_again();
    standby.promote();
    scene.write_anew(1, old_end);
    scene.wait_for_new(NEW);
    assert!(scene.walferry.runs(), "{}", scene.walferry.output());
    scene.assert_told();
}

#[test]
fn a_slot_past_the_fork_is_refused_with_all_positions() {
    let world = world::shared();
    let mut scene = Scene::new(&world, "slot_past_fork", &[]);
    let slot = scene.primary.copy_slot(&scene.outbox.slot());
    let mut standby = scene.primary.standby(&[]);
    standby.wait_until_it_has_all_of(&scene.primary);
    standby.stop(false);
    scene.deliver("older", OLD / 2);
    let past = scene
        .outbox
        .database
        .sql()
        .value("select pg_current_wal_lsn()")
        .expect("it has one");
    scene.deliver("old", OLD);
    assert_eq!(scene.walferry.terminate(), Some(0), "{}", scene.walferry.output());
    let old_end = scene.outbox.wal_end();
    scene.primary.stop(true);
    standby.take_port_of(&scene.primary);
    standby.start_again();
    standby.promote();
    scene.write_anew(1, old_end);
    standby.stop(false);
    standby.take_slot(&slot);
    standby.start_again();
    // Somebody moves it.
    let sql = scene.outbox.database.sql();
    let ahead = format!(
        "select end_lsn from pg_replication_slot_advance('{}', '{past}')",
        scene.outbox.slot()
    );
    let confirmed = sql.value(&ahead).expect("it is moved");
    scene.walferry.start_again();
    scene.assert_refused(&["forked at", &confirmed, "walferry offsets accept-history", "hint:"]);
    assert_eq!(scene.numbers("new").len(), 0);
}

#[test]
fn a_restored_backup_on_a_new_timeline_is_read_from_the_fork() {
    let world = world::shared();
    let mut scene = Scene::new(&world, "restored", &[]);
    scene.primary.stop(false);
    let backup = scene.primary.copy();
    backup.recover();
    scene.primary.start_again();
    scene.outbox.wait_until_streaming(&mut scene.walferry);
    scene.deliver("old", OLD);
    assert_eq!(scene.walferry.terminate(), Some(0), "{}", scene.walferry.output());
    let old_end = scene.outbox.wal_end();
    scene.primary.stop(true);

    let restored = backup.start_in_place_of(&scene.primary);
    restored.wait_until_it_is_primary();
    scene.write_anew(1, old_end);
    scene.walferry.start_again();
    scene.wait_for_new(NEW);
    scene.assert_told();
}

/// A copy that is started without recovery keeps its timeline: only the stream can show that it has another history.
fn copied(world: &World, name: &str, stopped: bool) {
    let mut scene = Scene::new(world, name, &[]);
    scene.primary.stop(false);
    let copy = scene.primary.copy();
    scene.primary.start_again();
    scene.outbox.wait_until_streaming(&mut scene.walferry);
    scene.deliver("old", OLD);
    let old_end = scene.outbox.wal_end();
    if stopped {
        assert_eq!(scene.walferry.terminate(), Some(0), "{}", scene.walferry.output());
    }
    scene.primary.stop(true);

    // While it is shorter, that is told by its length; here it has grown.
    let elsewhere = copy.start();
    let filler =
        "create table filler (text text); insert into filler select repeat('x', 1000) from generate_series(1, 200)";
    let in_database = |sql: &str| elsewhere.in_database(scene.outbox.database.name()).run(sql);
    for n in 1..=NEW {
        in_database(&insert_sql("new", n, n));
    }
    in_database(filler);
    let end = || elsewhere.sql().value("select pg_current_wal_insert_lsn() - '0/0'");
    while end().and_then(|end| end.parse::<u64>().ok()) <= Some(old_end) {
        in_database("insert into filler select repeat('x', 1000) from generate_series(1, 1000)");
    }
    let mut copy = elsewhere;
    copy.stop(false);
    copy.take_port_of(&scene.primary);
    copy.start_again();
    if stopped {
        scene.walferry.start_again();
    }
    scene.assert_refused(&[
        "the server's history differs",
        "walferry offsets accept-history",
        "hint:",
    ]);
    assert_eq!(
        scene.numbers("new").len(),
        0,
        "nothing is sent before a person has decided"
    );

    // It stays refused, until a person says otherwise: then all rows come.
    scene.walferry.start_again();
    scene.assert_refused(&[]);
    let file = scene.walferry.config_file();
    let accepted = scene
        .walferry
        .command(["offsets", "accept-history", "--config", &file.to_string_lossy()]);
    assert!(
        accepted.status.success(),
        "{}",
        String::from_utf8_lossy(&accepted.stderr)
    );
    scene.walferry.start_again();
    scene.wait_for_new(NEW);
}

#[test]
fn a_copy_that_keeps_its_timeline_is_refused_at_the_start() {
    copied(&world::shared(), "copied_stopped", true);
}

#[test]
fn a_copy_that_keeps_its_timeline_is_refused_while_connected() {
    copied(&world::shared(), "copied_connected", false);
}

#[test]
fn a_server_that_was_quiet_after_the_copy_is_read_without_a_gap() {
    let world = world::shared();
    let mut scene = Scene::new(&world, "copied_quiet", &[]);
    scene.primary.stop(false);
    let copy = scene.primary.copy();
    scene.primary.start_again();
    scene.outbox.wait_until_streaming(&mut scene.walferry);
    // Another database is busy: the offset moves on, and nothing is delivered.
    let busy = scene.primary.database("copied_quiet_busy");
    busy.sql().run("create table t as select generate_series(1, 100000) n");
    scene.outbox.wait_until_confirmed();
    assert_eq!(scene.walferry.terminate(), Some(0), "{}", scene.walferry.output());
    let old_end = scene.outbox.wal_end();
    scene.primary.stop(true);

    let _copy = copy.start_in_place_of(&scene.primary);
    scene.write_anew(1, old_end);
    scene.walferry.start_again();
    scene.wait_for_new(NEW);
}

#[test]
fn a_synchronised_slot_is_read_from_the_fork() {
    let world = world::shared();
    if world.postgres.major_version() < 17 {
        return;
    }
    let mut scene = Scene::new(&world, "synchronised", &[("slot.failover", "true")]);
    let primary = scene.primary.sql();
    primary.run("select pg_create_physical_replication_slot('standby')");
    let mut standby = scene
        .primary
        .standby(&["hot_standby_feedback = on", "primary_slot_name = 'standby'"]);
    standby.wait_until_it_has_all_of(&scene.primary);
    wait_for("the slot to be synchronised", || {
        // The primary must have got the feedback, and the slot must not be ahead of the standby.
        primary.run("select pg_log_standby_snapshot()");
        scene.outbox.insert("both", 1, 0);
        standby.sql().try_run("select pg_sync_replication_slots()").ok();
        let kept = "select 1 from pg_replication_slots where synced and not temporary";
        standby.sql().value(kept)
    });
    standby.stop(false);
    scene.deliver("old", OLD);
    let old_end = scene.outbox.wal_end();
    scene.primary.stop(true);

    standby.take_port_of(&scene.primary);
    standby.start_again();
    standby.promote();
    scene.write_anew(1, old_end);
    scene.wait_for_new(NEW);
    scene.assert_told();
}

#[test]
fn a_standby_that_is_promoted_while_it_is_read_is_still_the_same_server() {
    let world = world::shared();
    if world.postgres.major_version() < 16 {
        return;
    }
    let primary = Postgres::start();
    let outbox = Outbox::on(&primary, &world.kafka, "read_on_standby");
    let sql = outbox.database.sql();
    let publication = outbox.slot();
    sql.run(&format!(
        "create publication {publication} for table outbox; select pg_create_physical_replication_slot('standby')"
    ));
    let standby = primary.standby(&["hot_standby_feedback = on", "primary_slot_name = 'standby'"]);
    standby.wait_until_it_has_all_of(&primary);
    let config = outbox.config_with([("database.port", &standby.port().to_string())]);
    let mut walferry = Walferry::start(outbox.options(config));
    wait_for("the standby to be read", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        // A slot is made there once the primary has told which transactions run.
        sql.run("select pg_log_standby_snapshot()");
        let streams = "select 1 from pg_stat_replication where state in ('catchup', 'streaming')";
        standby.sql().value(streams)
    });
    let topic = outbox.topic("order");
    outbox.insert("k", 1, 50);
    world.kafka.wait_for_records(&topic, 50);

    standby.promote();
    let promoted = standby.in_database(outbox.database.name());
    promoted.run(&insert_sql("k", 51, 100));
    world.kafka.wait_for_records(&topic, 100);
    let confirmed = || {
        promoted.value("select confirmed_flush_lsn >= pg_current_wal_flush_lsn() from pg_replication_slots where plugin = 'pgoutput'")
    };
    wait_for("the slot to be confirmed", || {
        (confirmed().as_deref() == Some("t")).then_some(())
    });
    // Another connection, and another process.
    promoted.run("select pg_terminate_backend(pid) from pg_stat_replication");
    promoted.run(&insert_sql("k", 101, 150));
    world.kafka.wait_for_records(&topic, 150);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    promoted.run(&insert_sql("k", 151, 200));
    walferry.start_again();
    let records = world.kafka.wait_for_records(&topic, 200);
    crate::outbox::assert_runs(&records, &["k"], 200);
    assert!(
        !walferry.output().contains("does not have them"),
        "{}",
        walferry.output()
    );
}

/// A proxy that gives its connections to several servers in turn.
struct Balancer {
    port: u16,
    targets: Arc<Mutex<Vec<u16>>>,
}

impl Balancer {
    fn over(targets: &[u16]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let targets = Arc::new(Mutex::new(targets.to_vec()));
        let turns = targets.clone();
        thread::spawn(move || {
            for (turn, client) in listener.incoming().enumerate() {
                let Ok(client) = client else { return };
                let targets = turns.lock().expect("nobody panics with it").clone();
                if let Ok(server) = TcpStream::connect(("127.0.0.1", targets[turn % targets.len()])) {
                    pass_on(client.try_clone(), server.try_clone());
                    pass_on(Ok(server), Ok(client));
                }
            }
        });
        Self { port, targets }
    }

    fn lead_to(&self, port: u16) {
        *self.targets.lock().expect("nobody panics with it") = vec![port];
    }
}

fn pass_on(from: io::Result<TcpStream>, to: io::Result<TcpStream>) {
    let (Ok(mut from), Ok(mut to)) = (from, to) else { return };
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}

#[test]
fn answers_of_two_servers_behind_one_address_are_not_put_together() {
    let world = world::shared();
    let servers = [Postgres::start(), Postgres::start()];
    let [outbox, other] = [0, 1].map(|n| Outbox::on(&servers[n], &world.kafka, "balanced"));
    other.insert("other", 1, 3);
    let balancer = Balancer::over(&[servers[0].port(), servers[1].port()]);
    let port = balancer.port.to_string();
    let config = outbox.config_with([("database.port", port.as_str()), ("snapshot.mode", "initial")]);
    let mut walferry = Walferry::start(outbox.options(config));
    wait_for("it to notice", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        walferry.output().contains("have reached two servers").then_some(())
    });
    assert_ne!(walferry.get("/ready").map(|answer| answer.status), Some(200));
    for server in &servers {
        assert_eq!(
            server.sql().rows("select slot_name from pg_replication_slots"),
            [[None::<String>; 0]; 0]
        );
    }
    balancer.lead_to(servers[0].port());
    outbox.insert("k", 1, 3);
    walferry.wait_until_ready();
    outbox.insert("k", 4, 5);
    let records = outbox.wait_for_event(&world.kafka, 5);
    assert_runs(&records, &["k"], 5);
}
