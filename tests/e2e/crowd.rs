//! Many connectors in one process: one that fails, one with many rows behind and one whose topic is missing hold up none of the others.

use std::time::Instant;

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Kafka, Postgres, PostgresOptions, Surroundings, Walferry, WalferryOptions, wait_for};

use crate::outbox::Outbox;

/// Rows that one of them has behind.
const FLOOD: i64 = 100_000;

/// How many connectors there are. `WALFERRY_TEST_CROWD=200` measures more of them.
fn count() -> usize {
    std::env::var("WALFERRY_TEST_CROWD")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20)
}

struct Crowd {
    kafka: Kafka,
    outboxes: Vec<Outbox>,
    walferry: Walferry,
    // Last, so that its databases are dropped first.
    postgres: Postgres,
}

impl Crowd {
    fn start(count: usize) -> Self {
        let settings = ["max_replication_slots", "max_wal_senders"].map(|name| format!("{name} = {}", count + 10));
        let mut settings = settings.to_vec();
        settings.push(format!("max_connections = {}", 5 * count + 50));
        let postgres = Postgres::start_with(&PostgresOptions {
            settings,
            ..PostgresOptions::default()
        });
        let kafka = Kafka::start();
        let outboxes = (0..count)
            .map(|i| Outbox::on(&postgres, &kafka, &format!("crowd{i}")))
            .collect();
        let options = WalferryOptions {
            name: "crowd".into(),
            config: Map::new(),
            worker: vec!["offset.flush.interval.ms=200".into()],
            bootstrap: kafka.bootstrap(),
            env: Vec::new(),
        };
        let surroundings = Surroundings {
            is_worker: true,
            ..Surroundings::default()
        };
        let walferry = Walferry::start_in(options, surroundings);
        wait_for("the REST API to answer", || walferry.get("/connectors"));
        Self {
            kafka,
            outboxes,
            walferry,
            postgres,
        }
    }

    fn create(&self, i: usize, config: Map<String, Value>, state: &str) {
        let body = json!({ "name": format!("crowd{i}"), "config": config, "initial_state": state });
        let answer = self.walferry.send("POST", "/connectors", &body).expect("an answer");
        assert_eq!(answer.status, 201, "{}", answer.body);
    }

    fn steer(&self, i: usize, what: &str) {
        let answer = self
            .walferry
            .ask("PUT", &format!("/connectors/crowd{i}/{what}"))
            .expect("an answer");
        assert!(answer.status < 300, "{}", answer.body);
    }

    fn task(&self, i: usize) -> Value {
        let status = self
            .walferry
            .get(&format!("/connectors/crowd{i}/status"))
            .expect("an answer")
            .json();
        status["tasks"][0].clone()
    }
}

#[test]
fn connectors_go_on_beside_one_that_fails_one_with_many_rows_behind_and_one_whose_topic_is_missing() {
    let begun = Instant::now();
    let mut crowd = Crowd::start(count());
    let count = crowd.outboxes.len();
    // The first three are the odd ones.
    let (locked_out, flooded, without_topic) = (0, 1, 2);
    crowd.postgres.sql().run("create role locked_out login superuser");
    let config = crowd.outboxes[locked_out].config_with([("database.user", "locked_out")]);
    crowd.create(locked_out, config, "STOPPED");
    crowd.postgres.sql().run("alter role locked_out nologin");
    crowd.create(flooded, crowd.outboxes[flooded].config(), "RUNNING");
    crowd.outboxes[flooded].wait_until_streaming(&mut crowd.walferry);
    crowd.steer(flooded, "stop");
    crowd.outboxes[flooded].insert("k", 1, FLOOD);
    let missing = [("producer.override.allow.auto.create.topics", "false")];
    let config = crowd.outboxes[without_topic].config_with(missing);
    crowd.create(without_topic, config, "RUNNING");
    let created = Instant::now();
    for i in 3..count {
        crowd.create(i, crowd.outboxes[i].config(), "RUNNING");
    }
    for i in 2..count {
        crowd.outboxes[i].wait_until_streaming(&mut crowd.walferry);
    }
    println!(
        "{} connectors stream {:?} after the first of them was created",
        count - 2,
        created.elapsed()
    );
    let (at_rest, _) = crowd.walferry.resident_kib().expect("it runs");
    let asked = Instant::now();
    let all = crowd
        .walferry
        .get("/connectors?expand=status")
        .expect("an answer")
        .json();
    println!(
        "expand=status of {count} takes {:?}; {at_rest} KiB are resident",
        asked.elapsed()
    );
    assert_eq!(all.as_object().map(Map::len), Some(count));

    crowd.steer(locked_out, "resume");
    crowd.steer(flooded, "resume");
    crowd.outboxes[without_topic].insert("k", 1, 3);
    let mut slowest = std::time::Duration::ZERO;
    for i in 3..count {
        let outbox = &crowd.outboxes[i];
        let written = Instant::now();
        outbox.insert("k", 1, 2);
        crowd.kafka.wait_for_records(&outbox.topic("order"), 2);
        slowest = slowest.max(written.elapsed());
    }
    println!("the slowest of {} pairs of rows arrives within {slowest:?}", count - 3);
    wait_for("the one without a log-in to fail", || {
        (crowd.task(locked_out)["state"] == "FAILED").then_some(())
    });
    let trace = crowd.task(locked_out)["trace"].clone();
    let trace = trace.as_str().expect("it says why");
    assert!(
        trace.starts_with("org.apache.kafka.connect.errors.ConnectException: "),
        "{trace}"
    );
    assert_eq!(crowd.task(without_topic)["state"], "RUNNING", "it waits");
    let records = crowd
        .kafka
        .wait_for_records(&crowd.outboxes[flooded].topic("order"), FLOOD as usize);
    crate::outbox::assert_runs(&records, &["k"], FLOOD);

    // What is in the way goes away.
    crowd
        .kafka
        .create_topic(&crowd.outboxes[without_topic].topic("order"), 1);
    crowd
        .kafka
        .wait_for_records(&crowd.outboxes[without_topic].topic("order"), 3);
    crowd.postgres.sql().run("alter role locked_out login");
    let answer = crowd
        .walferry
        .ask("POST", "/connectors/crowd0/restart?includeTasks=true&onlyFailed=true")
        .expect("an answer");
    assert_eq!(answer.status, 202);
    crowd.outboxes[locked_out].wait_until_streaming(&mut crowd.walferry);
    let (now, most) = crowd.walferry.resident_kib().expect("it runs");
    println!(
        "{now} KiB are resident at the end, {most} at most; {:?} in all",
        begun.elapsed()
    );
    assert_eq!(crowd.walferry.terminate(), Some(0), "{}", crowd.walferry.output());
}
