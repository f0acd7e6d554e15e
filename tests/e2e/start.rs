//! Starts that fail: the cause, the remedy, exit code 2.

use crate::outbox::Outbox;
use crate::world;
use serde_json::{Map, Value, json};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use walferry_testkit::servers::{
    Checked, Postgres, PostgresOptions, Walferry, folder, free_port, wait_for, walferry_program,
};

/// Runs a connector that must not start; its output must name every part. `check` must say the same before, with the same codes.
#[track_caller]
pub(crate) fn refused(outbox: &Outbox, config: Map<String, Value>, parts: &[&str]) {
    let foreseen = Checked::of(&outbox.options(config.clone()), &[]);
    let mut walferry = Walferry::start(outbox.options(config));
    let code = walferry.wait();
    let output = walferry.output();
    assert_eq!(code, Some(2), "{output}");
    let said = [foreseen.stdout, foreseen.stderr].concat();
    assert_eq!(foreseen.code, Some(2), "{said}");
    agree(&said, &output, parts);
}

/// What `check` has said is held against what `run` says: it has each of its codes. Both name every part.
#[track_caller]
fn agree(said: &str, output: &str, parts: &[&str]) {
    for part in [&["hint"], parts].concat() {
        assert!(output.contains(part), "{part:?} is missing in:\n{output}");
    }
    let codes: Vec<&str> = output.split("WF0").skip(1).filter_map(|rest| rest.get(..3)).collect();
    assert!(!codes.is_empty(), "{output}");
    // Of several problems, `run` prints each with its code, or one code for all of them.
    for code in codes {
        assert!(
            said.contains(&format!("WF0{code}")),
            "check does not say WF0{code}:\n{said}\nrun says:\n{output}"
        );
    }
    for part in parts {
        assert!(said.contains(part), "check does not say {part:?}:\n{said}");
    }
}

/// Exit code and whole output.
fn ended(output: &Output) -> (Option<i32>, String) {
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn a_data_directory_in_use_or_of_another_prefix_is_foreseen() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "held");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 1);
    outbox.wait_until_confirmed();
    let bootstrap = world.kafka.bootstrap();
    let command = |walferry: &Walferry, command: &str, file: &Path| {
        let file = file.to_string_lossy();
        let arguments = [
            command,
            "--config",
            &file,
            "--bootstrap-servers",
            &bootstrap,
            "--admin",
            "127.0.0.1:0",
        ];
        ended(&walferry.command(arguments))
    };
    let file = walferry.config_file();
    let (code, said) = command(&walferry, "check", &file);
    // It may be the very connector that is looked at, so this is no obstacle.
    assert_eq!(code, Some(0), "{said}");
    // But it says what a second start would find.
    for text in [
        "a second start is refused until that process has ended",
        "nothing else prevents a start, once the process has ended that has the data directory",
    ] {
        assert!(said.contains(text), "{text:?} is missing in:\n{said}");
    }
    let (code, output) = command(&walferry, "run", &file);
    assert_eq!(code, Some(4), "{output}");
    agree(&said, &output, &["--data-dir"]);

    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let other = file.with_file_name("other.json");
    let config = json!({ "name": "held", "config": outbox.config_with([("topic.prefix", "other")]) });
    fs::write(&other, config.to_string()).expect("the scratch folder can be written");
    let (code, said) = command(&walferry, "check", &other);
    assert_eq!(code, Some(2), "{said}");
    let (code, output) = command(&walferry, "run", &other);
    assert_eq!(code, Some(4), "{output}");
    agree(&said, &output, &["held", "other"]);
}

/// `run` asks the registry when it has a row, and waits.
#[test]
fn a_schema_registry_that_does_not_answer_or_lets_nobody_in_is_foreseen() {
    let world = world::shared();
    let closed = format!("http://127.0.0.1:{}", free_port());
    let unauthorised = answering("401 Unauthorized");
    for (name, url, why) in [
        ("registry_away", &closed, "does not answer"),
        ("registry_shut", &unauthorised, "answers 401"),
    ] {
        let outbox = Outbox::new(&world, name);
        outbox.database.sql().run("create table t (id int primary key)");
        let mut config = outbox.config_with([
            ("table.include.list", "public.t"),
            ("value.converter", "io.confluent.connect.avro.AvroConverter"),
            ("value.converter.schema.registry.url", url),
        ]);
        config.remove("transforms");
        let checked = Checked::of(&outbox.options(config.clone()), &[]);
        let said = [checked.stdout, checked.stderr].concat();
        assert_eq!(checked.code, Some(2), "{said}");
        assert!(said.contains("; a start would wait for it [WF0409]"), "{said}");
        let mut walferry = Walferry::start(outbox.options(config));
        outbox.wait_until_streaming(&mut walferry);
        outbox.database.sql().run("insert into t values (1)");
        wait_for("the registry's answer to be logged", || {
            walferry.output().contains("WF0409").then_some(())
        });
        agree(&said, &walferry.output(), &[url, why]);
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
}

/// The URL of a server that answers every request like this.
fn answering(status: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 8192];
            let _ = stream.read(&mut head);
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
        }
    });
    format!("http://127.0.0.1:{port}")
}

#[test]
fn a_worker_whose_topics_are_unfit_is_foreseen() {
    let world = world::shared();
    let kafka = &world.kafka;
    let names = |prefix: &str| ["config", "offset", "status"].map(|role| format!("{prefix}-{role}"));
    let [config, ..] = names("unfit_parts");
    kafka.create_topic_with(&config, 3, &[("cleanup.policy", "compact")]);
    let [config, offset, _] = names("unfit_policy");
    kafka.create_topic_with(&config, 1, &[("cleanup.policy", "compact")]);
    kafka.create_topic_with(&offset, 2, &[("cleanup.policy", "delete")]);
    for (prefix, parts) in [
        ("unfit_parts", ["unfit_parts-config", "3 partitions"]),
        ("unfit_policy", ["unfit_policy-offset", "cleanup.policy=delete"]),
    ] {
        let folder = folder(prefix);
        let mut lines = vec![
            format!("bootstrap.servers={}", kafka.bootstrap()),
            format!("group.id={prefix}"),
        ];
        for (role, name) in ["config", "offset", "status"].iter().zip(names(prefix)) {
            lines.push(format!("{role}.storage.topic={name}"));
            lines.push(format!("{role}.storage.replication.factor=1"));
        }
        let worker = folder.join("worker.properties");
        fs::write(&worker, lines.join("\n")).expect("the scratch folder can be written");
        let command = |command: &str| {
            let mut process = Command::new(walferry_program());
            process
                .args([command, "--admin", "127.0.0.1:0", "--worker"])
                .arg(&worker);
            ended(
                &process
                    .env("XDG_STATE_HOME", &folder)
                    .output()
                    .expect("the program can be run"),
            )
        };
        let (code, said) = command("check");
        assert_eq!(code, Some(2), "{said}");
        let (code, output) = command("run");
        assert_eq!(code, Some(2), "{output}");
        agree(&said, &output, &parts);
    }
}

#[test]
fn a_role_without_replication_is_told_the_grant() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "no_replication");
    outbox
        .database
        .sql()
        .run("create role no_replication login; grant select on outbox to no_replication");
    let config = outbox.config_with([("database.user", "no_replication")]);
    refused(&outbox, config, &["ALTER ROLE", "REPLICATION"]);
    outbox
        .database
        .sql()
        .run("drop owned by no_replication; drop role no_replication");
}

#[test]
fn a_table_without_privileges_is_told_the_grant() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "no_select");
    outbox.insert("k", 1, 1);
    let sql = outbox.database.sql();
    sql.run("create role no_select login replication; create publication no_select_slot for table outbox");
    let config = outbox.config_with([
        ("database.user", "no_select"),
        ("publication.autocreate.mode", "disabled"),
        ("snapshot.mode", "initial"),
    ]);
    refused(&outbox, config, &["GRANT SELECT", "outbox"]);
    sql.run("drop role no_select");
}

#[test]
fn a_publication_that_is_missing_is_told_with_its_sql() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "no_publication");
    let config = outbox.config_with([("publication.autocreate.mode", "disabled")]);
    refused(&outbox, config, &["CREATE PUBLICATION", "no_publication_slot"]);
}

#[test]
fn a_slot_of_another_plugin_or_database_is_named() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "other_plugin");
    let slot = outbox.slot();
    outbox.database.sql().run(&format!(
        "select pg_create_logical_replication_slot('{slot}', 'test_decoding')"
    ));
    refused(&outbox, outbox.config(), &["test_decoding", &slot]);
}

#[test]
fn a_wrong_wal_level_is_told_with_the_setting() {
    let world = world::shared();
    let settings = vec!["wal_level = replica".into()];
    let postgres = Postgres::start_with(&PostgresOptions {
        settings,
        ..PostgresOptions::default()
    });
    let outbox = Outbox::on(&postgres, &world.kafka, "wal_level");
    refused(&outbox, outbox.config(), &["wal_level", "logical"]);
}

#[test]
fn a_slot_whose_wal_is_gone_is_not_passed_over() {
    let world = world::shared();
    let settings = vec!["max_slot_wal_keep_size = 1MB".into(), "max_wal_size = 32MB".into()];
    let postgres = Postgres::start_with(&PostgresOptions {
        settings,
        ..PostgresOptions::default()
    });
    let outbox = Outbox::on(&postgres, &world.kafka, "lost");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 5);
    outbox.wait_until_confirmed();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let sql = outbox.database.sql();
    for _ in 0..6 {
        sql.run("insert into outbox select -n, 'x', 'k', 'T', repeat('x', 500) from generate_series(1, 20000) n; delete from outbox where id < 0");
        sql.run("select pg_switch_wal(); checkpoint");
    }
    let status = sql
        .value("select wal_status from pg_replication_slots")
        .expect("the slot is there");
    assert_eq!(status, "lost");
    walferry.start_again();
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let output = walferry.output();
    for part in ["hint:", "lost_slot", "snapshot.mode"] {
        assert!(output.contains(part), "{part:?} is missing in:\n{output}");
    }
}

#[test]
fn columns_that_the_router_needs_and_the_table_lacks_are_named_with_the_nearest() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "columns");
    let config = outbox.config_with([
        ("transforms.outbox.table.field.event.key", "aggregate_id"),
        (
            "transforms.outbox.table.fields.additional.placement",
            "typ:header,tenant:header",
        ),
    ]);
    refused(&outbox, config, &["aggregate_id", "aggregateid", "typ", "tenant"]);
}

#[test]
fn all_problems_of_a_file_are_told_at_once() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "problems");
    let config = outbox.config_with([
        ("plugin.name", "wal2json"),
        ("snapshot.mode", "initialy"),
        ("tombstones.on.delete", "maybe"),
        (
            "transforms.outbox.table.fields.additional.placement",
            "headers:aggregate_type:aggregate_type",
        ),
    ]);
    refused(
        &outbox,
        config,
        &[
            "wal2json",
            "pgoutput",
            "snapshot.mode",
            "initialy",
            "tombstones.on.delete is \"maybe\", which is not true or false",
            "aggregate_type",
        ],
    );
}

#[test]
fn a_misspelt_property_is_a_warning_with_the_nearest_name() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "misspelt");
    let walferry = outbox.start_with(outbox.config_with([("slot.drop.on.stopp", "false")]));
    let output = walferry.output();
    assert!(output.contains("did you mean slot.drop.on.stop?"), "{output}");
}

#[test]
fn check_says_in_sentences_what_would_be_created_and_what_is_missing() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "checked");
    let walferry = outbox.start();
    let file = walferry.config_file();
    let bootstrap = world.kafka.bootstrap();
    let output = walferry.command([
        "check",
        "--config",
        &file.to_string_lossy(),
        "--bootstrap-servers",
        &bootstrap,
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("checked_slot"), "{text}");
}

/// As after the loss of the only standby: no transaction of any session is acknowledged, so the publication is not either.
#[test]
fn a_publication_that_waits_for_a_synchronous_standby_or_a_lock_is_told() {
    let world = world::shared();
    let postgres = Postgres::start_with(&PostgresOptions {
        // Only a session that sets synchronous_commit=on waits.
        settings: vec![
            "synchronous_standby_names = 'gone'".into(),
            "synchronous_commit = local".into(),
        ],
        ..PostgresOptions::default()
    });
    let outbox = Outbox::on(&postgres, &world.kafka, "sync_publication");
    let sql = outbox.database.sql();
    sql.run(
        "create role sync_publication login superuser replication;
         alter role sync_publication set synchronous_commit = 'on'",
    );
    let config = outbox.config_with([("database.user", "sync_publication")]);
    let mut walferry = Walferry::start(outbox.options(config));
    let told = |walferry: &mut Walferry, part: &str| {
        wait_for(part, || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            walferry.output().contains(part).then_some(())
        });
    };
    told(
        &mut walferry,
        "Postgres has not answered yet: it waits for a synchronous standby, which `synchronous_standby_names` (\"gone\") asks for",
    );
    assert!(
        walferry.output().contains("pg_stat_replication"),
        "{}",
        walferry.output()
    );
    sql.run("alter system set synchronous_standby_names = ''");
    sql.run("select pg_reload_conf()");
    outbox.wait_until_streaming(&mut walferry);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    // Another session has locked the table.
    let outbox = Outbox::on(&postgres, &world.kafka, "locked_publication");
    let locking = outbox.database.sql();
    locking.run("begin; lock table outbox");
    let config = outbox.config_with([("snapshot.mode", "no_data")]);
    let mut walferry = Walferry::start(outbox.options(config));
    told(&mut walferry, "it waits for a lock that others hold: process ");
    locking.run("commit");
    outbox.wait_until_streaming(&mut walferry);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
