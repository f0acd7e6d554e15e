//! What differs between versions of Postgres: each test says what holds on the version it runs on.

mod publication;
mod publication_differences;
mod relay;

use crate::outbox::Outbox;
use crate::signals::{self, SIGNALS, execute, wait_for_log};
use crate::{hangs, world};
use serde_json::{Map, Value};
use walferry_testkit::certificates::{Certificate, Wish};
use walferry_testkit::servers::{Postgres, PostgresOptions, Walferry, wait_for};

/// What `walferry check` prints for a connector, and its exit code.
fn check(outbox: &Outbox, bootstrap: &str, config: Map<String, Value>) -> (String, Option<i32>) {
    // The program is started for the sake of its file; whether it runs is another question.
    let walferry = Walferry::start(outbox.options(config));
    let file = walferry.config_file();
    let output = walferry.command([
        "check",
        "--config",
        &file.to_string_lossy(),
        "--bootstrap-servers",
        bootstrap,
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code())
}

#[test]
fn a_failover_slot_is_made_where_the_server_has_them_and_missed_aloud_elsewhere() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "failover");
    let config = outbox.config_with([("slot.failover", "true")]);
    let _walferry = outbox.start_with(config.clone());
    let failover = outbox
        .database
        .sql()
        .value("select to_jsonb(s) ->> 'failover' from pg_replication_slots s where database = current_database()");
    let (text, code) = check(&outbox, &world.kafka.bootstrap(), config);
    assert_eq!(code, Some(0), "{text}");
    if world.postgres.major_version() >= 17 {
        assert_eq!(failover.as_deref(), Some("true"));
        assert!(!text.contains("slot.failover"), "{text}");
    } else {
        assert_eq!(failover, None);
        assert!(text.contains("`slot.failover` has no effect on Postgres"), "{text}");
    }
}

/// Since Postgres 17, TLS may begin at once, which saves a round trip and hides the protocol from what stands between.
#[test]
fn tls_begins_at_once_where_the_server_can_do_that_and_the_others_are_told() {
    let world = world::shared();
    let own = Certificate::make(&Wish::server(&["127.0.0.1"]), None);
    let postgres = Postgres::start_with(&PostgresOptions {
        settings: vec!["ssl = on".into()],
        files: vec![("server.crt".into(), own.pem()), ("server.key".into(), own.key_pem())],
        ..PostgresOptions::default()
    });
    let outbox = Outbox::on(&postgres, &world.kafka, "direct_tls");
    let root = walferry_testkit::servers::folder("direct_tls").join("root.crt");
    std::fs::write(&root, own.pem()).expect("the scratch folder can be written");
    let config = outbox.config_with([
        ("database.sslmode", "verify-full"),
        ("database.sslrootcert", &*root.to_string_lossy()),
        ("database.sslNegotiation", "direct"),
    ]);
    if postgres.major_version() >= 17 {
        let mut walferry = outbox.start_with(config);
        outbox.insert("k", 1, 1);
        outbox.wait_for_event(&world.kafka, 1);
        let tls = "select bool_and(ssl) from pg_stat_ssl join pg_stat_replication using (pid)";
        assert_eq!(outbox.database.sql().value(tls).as_deref(), Some("t"));
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    } else {
        let mut walferry = Walferry::start(outbox.options(config));
        assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
        assert!(
            walferry.output().contains("database.sslNegotiation"),
            "{}",
            walferry.output()
        );
    }
}

#[test]
fn an_ordinary_slot_is_told_of_where_failover_is_asked_for() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "no_failover");
    let walferry = outbox.start();
    let config = outbox.config_with([("slot.failover", "true")]);
    let (text, _) = check(&outbox, &world.kafka.bootstrap(), config);
    let remedy = "ALTER_REPLICATION_SLOT no_failover_slot (FAILOVER true)";
    assert_eq!(text.contains(remedy), world.postgres.major_version() >= 17, "{text}");
    drop(walferry);
}

#[test]
fn origin_none_leaves_out_what_was_replicated_or_stops_where_it_is_not_known() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "origin");
    let config = outbox.config_with([("slot.stream.params", "origin=none")]);
    if world.postgres.major_version() < 16 {
        let mut walferry = Walferry::start(outbox.options(config.clone()));
        assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
        assert!(
            walferry.output().contains("slot.stream.params"),
            "{}",
            walferry.output()
        );
        let (text, code) = check(&outbox, &world.kafka.bootstrap(), config);
        assert!(text.contains("does not support") && code == Some(2), "{text}");
        return;
    }
    let _walferry = outbox.start_with(config);
    outbox.database.sql().run(
        "select pg_replication_origin_create('e2e'); select pg_replication_origin_session_setup('e2e');
         insert into outbox values (1, 'order', 'k', 'T', '1');
         select pg_replication_origin_session_reset(); select pg_replication_origin_drop('e2e')",
    );
    outbox
        .database
        .sql()
        .run("insert into outbox values (2, 'order', 'k', 'T', '2')");
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 1);
    assert_eq!(records[0].value_text(), Some("2"));
}

#[test]
fn a_slot_that_the_server_has_given_up_is_told_of_with_the_reason() {
    let world = world::shared();
    if world.postgres.major_version() < 13 {
        // The server gives up no slot, so nobody is told to set a limit that it does not know.
        let outbox = Outbox::new(&world, "given_up");
        let (text, code) = check(&outbox, &world.kafka.bootstrap(), outbox.config());
        assert_eq!(code, Some(0), "{text}");
        assert!(!text.contains("max_slot_wal_keep_size"), "{text}");
        return;
    }
    let mut settings = vec!["max_slot_wal_keep_size = 1MB".into(), "max_wal_size = 32MB".into()];
    let idle = world.postgres.major_version() >= 18;
    if idle {
        settings = vec!["idle_replication_slot_timeout = 1s".into()];
    }
    let postgres = Postgres::start_with(&PostgresOptions {
        settings,
        ..PostgresOptions::default()
    });
    let outbox = Outbox::on(&postgres, &world.kafka, "given_up");
    let sql = outbox.database.sql();
    sql.run("select pg_create_logical_replication_slot('abandoned', 'pgoutput')");
    wait_for("the slot to be given up", || {
        if !idle {
            sql.run("create table fill as select repeat('x', 500) from generate_series(1, 20000); drop table fill; select pg_switch_wal()");
        }
        sql.run("checkpoint");
        let status = sql.value("select wal_status from pg_replication_slots where slot_name = 'abandoned'");
        (status.as_deref() == Some("lost")).then_some(())
    });
    // Only now: its own slot would be given up too.
    let walferry = outbox.start();
    let slots = wait_for("the slots to show it", || {
        let slots = walferry.get("/slots")?.json();
        let all = slots["connectors"][0]["slots"].as_array()?.clone();
        all.into_iter()
            .find(|slot| slot["name"] == "abandoned" && slot["wal_status"] == "lost")
    });
    let reason = match world.postgres.major_version() {
        18.. => "idle_timeout",
        17 => "wal_removed",
        _ => "",
    };
    assert_eq!(
        slots["invalidation_reason"].as_str().unwrap_or_default(),
        reason,
        "{slots}"
    );
    // `inactive_since` is there from 17 on.
    let tells_since = world.postgres.major_version() >= 17;
    assert_eq!(slots["inactive_seconds"].is_number(), tells_since, "{slots}");
    let remark = if idle {
        "idle_replication_slot_timeout"
    } else {
        "removed WAL"
    };
    assert!(
        slots["remark"].as_str().is_some_and(|text| text.contains(remark)),
        "{slots}"
    );
    assert_eq!(slots["drop_sql"], "SELECT pg_drop_replication_slot('abandoned');");

    // The same of the connector's own slot, which it must have a name for.
    let config = outbox.config_with([("slot.name", "abandoned")]);
    let (text, code) = check(&outbox, &world.kafka.bootstrap(), config);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("is lost") && text.contains(remark), "{text}");
    assert_eq!(
        text.contains("invalidates slots that have not been read for 1 s"),
        idle,
        "{text}"
    );
}

#[test]
fn check_warns_of_generated_columns_in_a_replica_identity_that_fail_updates() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "generated");
    outbox.database.sql().run(
        "create table doubled (id int primary key, n int, twice int generated always as (n * 2) stored);
         alter table doubled replica identity full;
         create publication generated_slot for table outbox, doubled; insert into doubled values (1, 2)",
    );
    let config = outbox.config_with([("table.include.list", "public.outbox,public.doubled")]);
    let (text, code) = check(&outbox, &world.kafka.bootstrap(), config);
    assert_eq!(code, Some(0), "{text}");
    let fails = outbox.database.sql().try_run("update doubled set n = 3").is_err();
    assert_eq!(fails, world.postgres.major_version() >= 18);
    assert_eq!(text.contains("publish_generated_columns = stored"), fails, "{text}");
}

#[test]
fn chunks_have_those_generated_columns_that_the_stream_has() {
    let world = world::shared();
    let version = world.postgres.major_version();
    // Only Postgres 18 knows virtual ones, and publishes others.
    let (virtual_column, all) = match version {
        18.. => (", thrice int generated always as (n * 3) virtual", 4),
        15.. => ("", 2),
        _ => ("", 1),
    };
    let cases = [
        ("whole", "for table items, signals", vec!["id", "n"]),
        ("listed", "for table items (n, id), signals", vec!["id", "n"]),
        (
            "stored",
            "for table items, signals with (publish_generated_columns = stored)",
            vec!["id", "n", "twice"],
        ),
        (
            "listed_stored",
            "for table items (twice, id), signals",
            vec!["id", "twice"],
        ),
    ];
    for (name, publication, expected) in &cases[..all] {
        let name = format!("generated_{name}");
        let database = world.postgres.database(&name);
        let sql = database.sql();
        sql.run(&format!(
            "{SIGNALS}; create table items (id int primary key, n int, twice int generated always as (n * 2) stored{virtual_column});
             create publication {name} {publication}; insert into items values (1, 1), (2, 2)"
        ));
        let properties = [
            ("publication.name", &*name),
            ("publication.autocreate.mode", "disabled"),
        ];
        let mut walferry = signals::start(world, &name, &database, &properties);
        // The first one comes before the stream has described the table.
        for round in 1..=2 {
            sql.run(&execute("public.items"));
            wait_for_log(&mut walferry, "the incremental snapshot is complete", round);
            sql.run(&format!("insert into items values ({}, 1)", 10 + round));
        }
        let records = world.kafka.wait_for_records(&format!("{name}.public.items"), 7);
        for record in &records {
            let after = signals::value(record)["after"].clone();
            let found: Vec<&str> = after.as_object().expect("a row").keys().map(String::as_str).collect();
            assert_eq!(found, *expected, "{name}: {after}");
        }
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
}

#[test]
fn a_fast_shutdown_while_kafka_is_down_ends() {
    hangs::shut_down_while_kafka_is_down(&mut world::alone());
}

#[test]
fn a_fast_shutdown_while_nothing_is_read_ends() {
    hangs::shut_down_while_nothing_is_read(&mut world::alone());
}

#[test]
fn a_fast_shutdown_while_the_connector_is_paused_ends() {
    hangs::shut_down_while_paused(&mut world::alone());
}
