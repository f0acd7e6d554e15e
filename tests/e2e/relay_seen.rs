//! What an operator sees of relay mode, and what looks cost the server.

use std::process::Command;

use serde_json::{Map, Value};
use walferry_testkit::servers::{
    Answer, Checked, Database, Walferry, WalferryOptions, folder, postgres_folder, wait_for, walferry_program,
};

use crate::outbox::Outbox;
use crate::relay::{POLLER, Relayed};
use crate::world::{self, World};

const COLUMNS: &str = "id bigint generated always as identity primary key, aggregatetype text not null default 'order', aggregateid text not null,
     type text not null default 'Created', payload text not null, created_at timestamptz not null default now(),
     status text not null default 'PENDING', attempts int not null default 0, available_at timestamptz not null default now(), last_error text";

/// An outbox that is polled.
struct Polled<'a> {
    outbox: Outbox,
    world: &'a World,
    /// As SQL writes it.
    table: &'a str,
}

impl<'a> Polled<'a> {
    fn new(world: &'a World, name: &str, table: &'a str) -> Self {
        let outbox = Outbox::new(world, name);
        outbox
            .database
            .sql()
            .run(&format!("drop table outbox; create table {table} ({COLUMNS})"));
        world.kafka.create_topic(&outbox.topic("order"), 1);
        Self { outbox, world, table }
    }

    fn config(&self, changes: &[(&str, &str)]) -> Map<String, Value> {
        let mut config = self.outbox.config();
        config.retain(|name, _| !name.starts_with("slot.") && !name.starts_with("publication."));
        for name in ["snapshot.mode", "plugin.name"] {
            config.remove(name);
        }
        config.insert("connector.class".into(), "walferry.OutboxRelay".into());
        config.insert("table.include.list".into(), "public\\..*".into());
        config.extend(changes.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        config
    }

    fn options(&self, changes: &[(&str, &str)]) -> WalferryOptions {
        self.outbox.options(self.config(changes))
    }

    fn start(&self, changes: &[(&str, &str)]) -> Walferry {
        let mut walferry = Walferry::start(self.options(changes));
        walferry.wait_until_ready();
        walferry
    }

    fn database(&self) -> &Database {
        &self.outbox.database
    }

    fn run(&self, sql: &str) {
        self.database().sql().run(&sql.replace("TABLE", self.table));
    }

    #[track_caller]
    fn wait_until_none(&self, condition: &str) {
        wait_for(&format!("no row with {condition}"), || {
            let query = format!("select count(*) from {} where {condition}", self.table);
            (self.database().sql().value(&query).as_deref() == Some("0")).then_some(())
        });
    }
}

/// The value of a metric, by its name and the labels after that of the connector.
fn metric(walferry: &Walferry, name: &str) -> Option<f64> {
    let metrics = walferry.get("/metrics")?.body;
    let mut lines = metrics.lines();
    let line = lines.find(|line| line.strip_prefix(name).is_some_and(|after| after.starts_with('{')))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[track_caller]
fn wait_for_metric(walferry: &Walferry, name: &str, is_it: impl Fn(f64) -> bool) -> f64 {
    wait_for(&format!("the metric {name}"), || {
        metric(walferry, name).filter(|value| is_it(*value))
    })
}

fn said(walferry: &Walferry, args: &[&str]) -> String {
    let url = format!("http://127.0.0.1:{}", walferry.port());
    let mut command = Command::new(walferry_program());
    let output = command
        .args(args)
        .args(["--url", &url])
        .output()
        .expect("it can be run");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn what_waits_and_what_has_failed_is_seen_under_any_name_of_the_table() {
    let world = world::shared();
    let polled = Polled::new(&world, "relay_seen", "\"Out \"\"box\\ {é} %s\"");
    // Its topic has no valid name, so it fails, and keeps back the other rows of its key.
    polled.run("insert into TABLE (aggregatetype, aggregateid, payload) values ('no topic', 'a', '0')");
    polled.run("insert into TABLE (aggregateid, payload, created_at) select 'a', n, now() - interval '1 hour' from generate_series(1, 7) n");
    polled.run("insert into TABLE (aggregateid, payload) select 'b', n from generate_series(1, 5) n");
    // Whoever polled the table before has given this one up, and counted no attempts.
    polled.run("insert into TABLE (aggregateid, payload, status) values ('c', '0', 'FAILED')");
    let walferry = polled.start(&[("relay.max.attempts", "2"), ("relay.backoff.ms", "20")]);
    wait_for_metric(&walferry, "walferry_relay_failed_rows", |rows| rows == 2.0);
    wait_for_metric(&walferry, "walferry_relay_waiting_rows", |rows| rows == 7.0);
    let metrics = walferry.get("/metrics").expect("it answers").body;
    let labelled = "walferry_relay_waiting_rows{connector=\"relay_seen\",table=\"public.Out \\\"box\\\\ {é} %s\"} 7";
    assert!(metrics.lines().any(|line| line == labelled), "{metrics}");
    let oldest = wait_for_metric(&walferry, "walferry_relay_oldest_row_seconds", |age| age > 0.0);
    assert!((3600.0..7200.0).contains(&oldest), "{oldest}");
    for (name, value) in [
        ("walferry_relay_rows_sent_total", 5.0),
        ("walferry_relay_attempts_failed_total", 2.0),
        ("walferry_relay_rows_uncounted", 0.0),
        ("walferry_relay_lanes", 8.0),
        ("walferry_relay_lanes_taken", 8.0),
        ("walferry_relay_transaction_seconds_count", 3.0),
    ] {
        let is_it = |found: f64| (found - value).abs() < 0.5 || name.ends_with("count") && found > 0.0;
        wait_for_metric(&walferry, name, is_it);
    }
    for nowhere in ["walferry_slots_age_seconds", "walferry_position_lsn", "walferry_slot_"] {
        assert!(!metrics.contains(&format!("{nowhere}{{")), "{nowhere}");
    }
    let status = said(&walferry, &["status"]);
    assert!(
        status.contains("Relaying. 7 rows wait, the first for 1 h") && status.contains("2 rows have failed for good."),
        "{status}"
    );
    let described = said(&walferry, &["describe", "relay_seen"]);
    assert!(described.contains("walferry outbox retry"), "{described}");
    let top = said(&walferry, &["top", "--once"]);
    assert!(top.contains("relaying") && top.contains("7 rows"), "{top}");
    let data: Value = serde_json::from_str(&walferry.get("/ui/data").expect("it answers").body).expect("it is JSON");
    let relay = &data["connectors"][0]["relay"];
    assert_eq!(
        (&relay["waiting"], &relay["failed"], &relay["table"]),
        (&7.into(), &2.into(), &"public.Out \"box\\ {é} %s".into())
    );
}

#[test]
fn a_row_that_is_committed_late_is_counted() {
    let world = world::shared();
    let polled = Polled::new(&world, "relay_late", "events");
    let walferry = polled.start(&[]);
    let late = world.postgres.in_database(polled.database().name());
    late.run("begin; insert into events (aggregateid, payload) values ('a', 'late')");
    polled.run("insert into TABLE (aggregateid, payload) values ('a', 'early')");
    polled.wait_until_none("status = 'PENDING'");
    late.run("commit");
    polled.wait_until_none("status = 'PENDING'");
    wait_for_metric(&walferry, "walferry_relay_rows_late_total", |rows| rows == 1.0);
    let records = world.kafka.wait_for_records(&polled.outbox.topic("order"), 2);
    assert_eq!(records[1].value_text(), Some("late"));
}

/// Counting waits for no lock, and says so where rows are shown.
#[test]
fn a_table_that_is_locked_is_not_counted_and_counted_again_afterwards() {
    let world = world::shared();
    let polled = Polled::new(&world, "relay_locked", "events");
    let locker = world.postgres.in_database(polled.database().name());
    locker.run("begin; lock table events in access exclusive mode");
    let walferry = Walferry::start(polled.options(&[]));
    wait_for_metric(&walferry, "walferry_relay_rows_uncounted", |is_it| is_it == 1.0);
    assert_eq!(metric(&walferry, "walferry_relay_waiting_rows"), None);
    assert!(walferry.output().contains("are not counted"), "{}", walferry.output());
    locker.run("commit");
    wait_for_metric(&walferry, "walferry_relay_rows_uncounted", |is_it| is_it == 0.0);
    assert_eq!(metric(&walferry, "walferry_relay_waiting_rows"), Some(0.0));
}

/// The server would otherwise be asked again and again with seven statements and two round trips.
#[test]
fn an_idle_look_is_two_statements() {
    let world = world::shared();
    let polled = Polled::new(&world, "relay_idle", "events");
    polled.run("insert into TABLE (aggregateid, payload) values ('a', '1')");
    let walferry = polled.start(&[("relay.poll.interval.ms", "20")]);
    polled.wait_until_none("status = 'PENDING'");
    let idle = || {
        let metrics = walferry.get("/metrics").expect("it answers").body;
        let nothing = metrics
            .lines()
            .find_map(|line| {
                line.strip_prefix("walferry_relay_looks_total{connector=\"relay_idle\",found=\"nothing\"} ")
            })
            .expect("there is such a metric");
        let looks: f64 = nothing.parse().expect("it is a number");
        let statements = metric(&walferry, "walferry_relay_statements_total").expect("there is such a metric");
        (looks, statements)
    };
    wait_for("an idle look", || (idle().0 >= 2.0).then_some(()));
    let before = idle();
    let after = wait_for("many idle looks", || {
        Some(idle()).filter(|now| now.0 >= before.0 + 50.0)
    });
    let per_look = (after.1 - before.1) / (after.0 - before.0);
    assert!((1.5..3.0).contains(&per_look), "{per_look} statements for each look");
    polled.run("insert into TABLE (aggregateid, payload) values ('a', '2')");
    polled.wait_until_none("status = 'PENDING'");
}

/// With a key in different lanes, both could send its rows at the same time.
#[test]
fn of_two_processes_with_different_numbers_of_lanes_only_one_sends() {
    let world = world::shared();
    let polled = Polled::new(&world, "relay_lanes", "events");
    // Marks take a moment, so that looks of both processes meet.
    polled.run(
        "create function pause() returns trigger language plpgsql as $$ begin perform pg_sleep(0.005); return new; end $$;
         create trigger pause before update on TABLE for each row execute function pause(); create sequence numbers",
    );
    let insert = || {
        let waiting = polled
            .database()
            .sql()
            .value("select count(*) from events where status = 'PENDING'");
        let waiting: usize = waiting.and_then(|rows| rows.parse().ok()).expect("it is a number");
        if waiting < 100 {
            polled.run(
                "insert into TABLE (aggregateid, payload) select 'k' || n % 40, nextval('numbers') from generate_series(1, 80) n",
            );
        }
    };
    insert();
    let common = ("relay.batch.size", "20");
    let few = polled.start(&[common, ("relay.lanes", "4")]);
    let many = Walferry::start(polled.options(&[common, ("relay.lanes", "16")]));
    wait_for("the process with more lanes to yield", || {
        insert();
        many.output().contains("WF0797").then_some(())
    });
    let said = many.output();
    assert!(
        said.contains("relay.lanes is 16 here and 4 in another process"),
        "{said}"
    );
    assert!(said.contains("Walferry Outbox Relay"), "it says who: {said}");
    drop(few);
    polled.wait_until_none("status = 'PENDING'");
    drop(many);
    let mut seen = std::collections::HashMap::<String, (i64, u32)>::new();
    for record in polled.world.kafka.read(&[polled.outbox.topic("order")]) {
        let key = record.key_text().expect("it has a key").to_owned();
        let number: i64 = record
            .value_text()
            .and_then(|value| value.parse().ok())
            .expect("it is a number");
        let (before, steps_back) = seen.entry(key.clone()).or_default();
        // What was sent and not marked when the first process ended comes again, from its first row on.
        *steps_back += u32::from(number <= *before);
        assert!(
            *steps_back <= 1,
            "{number} of {key} comes after {before}, for the second time"
        );
        *before = number;
    }
}

/// Its SQL, run by psql as an administrator, gives the role just what relay mode needs.
#[track_caller]
fn created_and_relayed(name: &str, relay: &str) {
    let world = world::shared();
    let polled = Polled::new(&world, name, "unused");
    let (role, writer) = (format!("{name} \"relay'; --"), format!("{name} app"));
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    polled.run(&format!(
        "drop table unused; create schema \"Shop's\"; create role {} login; create role {}",
        quoted(&role),
        quoted(&writer)
    ));
    let table = "\"Shop's\".\"Out;box $1\"";
    let printed = Command::new(walferry_program())
        .args([
            "outbox", "create", relay, "--table", table, "--reader", &role, "--writer", &writer,
        ])
        .output()
        .expect("it can be run");
    assert!(printed.status.success(), "{printed:?}");
    let script = String::from_utf8_lossy(&printed.stdout).into_owned();
    let file = folder("relay_table").join("outbox.sql");
    std::fs::write(&file, &script).expect("it can be written");
    let port = world.postgres.port().to_string();
    let psql = Command::new(postgres_folder().join("psql"))
        .args([
            "-X",
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "postgres",
            "-v",
            "ON_ERROR_STOP=1",
        ])
        .args(["-d", polled.database().name(), "-f"])
        .arg(&file)
        .output()
        .expect("psql is installed");
    assert!(
        psql.status.success(),
        "{}{script}",
        String::from_utf8_lossy(&psql.stderr)
    );

    let mut config = polled.config(&[("database.user", &role)]);
    let json: String = script
        .lines()
        .filter_map(|line| line.strip_prefix("-- "))
        .skip_while(|line| *line != "{")
        .collect();
    let properties: Map<String, Value> =
        serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {script}"));
    config.remove("transforms.outbox.table.fields.additional.placement");
    config.extend(properties);
    let options = polled.outbox.options(config);
    let checked = Checked::of(&options, &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    for lacking in ["has no index", "lacks the privilege", "has no columns"] {
        assert!(!checked.stdout.contains(lacking), "{}", checked.stdout);
    }
    let mut walferry = Walferry::start(options);
    walferry.wait_until_ready();
    let insert = |aggregate_type: &str, number: u32| {
        polled.run(&format!(
            "set role {}; insert into {table} (aggregatetype, aggregateid, type, payload, headers)
             values ('{aggregate_type}', 'o-1', 'OrderPlaced', '{number}', '{{\"traceparent\": \"00-ab\"}}'); reset role",
            quoted(&writer)
        ));
    };
    insert("order", 1);
    let records = world.kafka.wait_for_records(&polled.outbox.topic("order"), 1);
    assert_eq!(
        (records[0].key_text(), records[0].value_text()),
        (Some("o-1"), Some("1"))
    );
    assert_eq!(records[0].header_text("traceparent"), Some("00-ab"));
    let count = |condition: &str| {
        let query = format!("select count(*) from {table} where {condition}");
        polled.database().sql().value(&query)
    };
    let left = match relay {
        "--relay=delete" => "true",
        _ => "status <> 'SENT' or published_at is null",
    };
    wait_for("the row to be dealt with", || {
        (count(left).as_deref() == Some("0")).then_some(())
    });
    // A row that cannot be sent is noted with the same privileges.
    insert("no topic", 2);
    wait_for("the failure to be noted", || {
        (count("last_error is not null and attempts > 0").as_deref() == Some("1")).then_some(())
    });
    let denied = format!("set role {}; update {table} set payload = '3'", quoted(&role));
    let denied = polled.database().sql().try_run(&denied);
    assert!(denied.is_err(), "the role may change what the application has written");
    // Both kinds of rows are found by the indexes of the script.
    let plan = polled.database().sql().rows(&format!(
        "set enable_seqscan = off; explain select 1 from {table} t where t.status = 'PENDING' order by t.seq, t.id limit 1"
    ));
    let plan: String = plan.into_iter().flatten().flatten().collect();
    assert!(plan.contains("Out;box $1_waiting_idx"), "{plan}");
}

#[test]
fn a_table_for_relay_mode_is_created_and_its_rows_are_marked() {
    created_and_relayed("relay_table_mark", "--relay");
}

#[test]
fn a_table_for_relay_mode_is_created_and_its_rows_are_deleted() {
    created_and_relayed("relay_table_delete", "--relay=delete");
}

#[test]
fn what_the_table_and_the_role_lack_is_mended_by_check() {
    let world = world::shared();
    let polled = Polled::new(&world, "relay_fix", "events");
    polled.run(
        "alter table TABLE drop column last_error; create role relay_fixed login; grant select, update (status) on TABLE to relay_fixed",
    );
    let options = polled.options(&[("database.user", "relay_fixed")]);
    let checked = Checked::of(&options, &[]);
    assert_eq!(checked.code, Some(2), "{}", checked.stdout);
    assert!(
        checked
            .stdout
            .contains("lacks the privilege UPDATE on table \"public\".\"events\""),
        "{}",
        checked.stdout
    );
    for _ in 0..2 {
        // Privileges on a new column are seen to be missing only afterwards.
        Checked::of(&options, &["--fix", "--fix-as", "postgres", "--yes"]);
    }
    let checked = Checked::of(&options, &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    for lacking in ["has no index", "lacks the privilege", "has no columns"] {
        assert!(!checked.stdout.contains(lacking), "{}", checked.stdout);
    }
}

/// Connect's clients manage it like any other connector, and what only the stream has is refused in its own words.
#[test]
fn a_connector_in_relay_mode_is_managed_over_rest_and_refuses_what_it_has_not() {
    let world = world::shared();
    let relayed = Relayed::new(world, "relay_managed", POLLER);
    let mut walferry = relayed.start(&[]);
    let (plugins, name) = (
        walferry.get("/connector-plugins").expect("it answers"),
        "relay_managed_rest",
    );
    assert!(plugins.body.contains("walferry.OutboxRelay"), "{}", plugins.body);
    let mut config = relayed.config(&[]);
    config.insert("name".into(), name.into());
    let config = Value::Object(config);
    let validated = walferry.send(
        "PUT",
        "/connector-plugins/walferry.OutboxRelay/config/validate",
        &config,
    );
    let validated = validated.expect("it answers").json();
    assert_eq!(validated["error_count"], 0, "{validated}");
    let created = walferry
        .send("PUT", &format!("/connectors/{name}/config"), &config)
        .expect("it answers");
    assert_eq!(created.status, 201, "{}", created.body);
    wait_for("the connector to run", || {
        let status = walferry.get(&format!("/connectors/{name}/status"))?.json();
        (status["connector"]["state"] == "RUNNING").then_some(())
    });
    relayed.insert("a", 1, 20);
    relayed.wait_until_none("status <> 'SENT'");

    let refused = |answer: Option<Answer>| {
        let answer = answer.expect("it answers");
        assert!(
            answer.status == 400 && answer.body.contains("is in relay mode"),
            "{}",
            answer.body
        );
    };
    let signal = serde_json::json!({"type": "execute-snapshot", "data": {"data-collections": ["public.events"]}});
    refused(walferry.send("POST", &format!("/connectors/{name}/signals"), &signal));
    walferry.ask("PUT", &format!("/connectors/{name}/stop"));
    let offsets = serde_json::json!({"offsets": [{"partition": {"server": name}, "offset": {"lsn": 1}}]});
    refused(walferry.send("PATCH", &format!("/connectors/{name}/offsets"), &offsets));
    refused(walferry.ask("DELETE", &format!("/connectors/{name}/offsets")));
    let removed = walferry
        .ask("DELETE", &format!("/connectors/{name}"))
        .expect("it answers");
    assert_eq!(removed.status, 204, "{}", removed.body);

    let file = walferry.config_file().display().to_string();
    for command in [&["offsets", "show"][..], &["offsets", "reset"], &["tail"]] {
        let ran = walferry.command_with(&[command, &["--config", &file]].concat());
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(
            !ran.status.success() && said.contains("relay mode"),
            "{command:?}: {said}"
        );
    }
    let checked = Checked::of(&relayed.options(&[]), &["--show-records"]);
    assert!(checked.stdout.contains("relay_managed.order"), "{}", checked.stdout);
    for part in ["update", "pg_logical_emit_message"] {
        assert!(!checked.stdout.contains(part), "{part}: {}", checked.stdout);
    }
    relayed.insert("a", 21, 21);
    relayed.wait_until_none("status <> 'SENT'");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
