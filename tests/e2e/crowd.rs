//! Many connectors in one process: one that fails, one with many rows behind, one whose topic is missing and one whose registry does not
//! answer hold up none of the others.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{
    Kafka, Postgres, PostgresOptions, Surroundings, Walferry, WalferryOptions, free_port, wait_for,
};

use crate::outbox::Outbox;

/// Rows that one of them has behind. `WALFERRY_TEST_FLOOD=1000000` measures with more of them.
fn flood() -> i64 {
    let text = std::env::var("WALFERRY_TEST_FLOOD").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(100_000)
}

/// How many connectors there are. `WALFERRY_TEST_CROWD=200` measures more of them.
fn count() -> usize {
    std::env::var("WALFERRY_TEST_CROWD")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20)
}

/// How long the processor time at rest is measured, where somebody asks for a measurement.
const REST: Duration = Duration::from_secs(30);

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
        // So that records tell when they came to the broker.
        let kafka = Kafka::start_with(&["log.message.timestamp.type=LogAppendTime"]);
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

    /// Writes rows to some connectors' outboxes, one after another, and tells how long they took from there to the broker: in
    /// milliseconds, from the quickest to the slowest.
    fn latencies(&self, connectors: std::ops::Range<usize>, round: i64) -> Vec<i64> {
        const ROWS: i64 = 10;
        for row in 1..=ROWS {
            for outbox in &self.outboxes[connectors.clone()] {
                outbox.database.sql().run(&format!(
                    "insert into outbox select {}, 'time', 't', 'Created', (extract(epoch from clock_timestamp()) * 1000)::int8",
                    round * ROWS + row
                ));
            }
        }
        let mut latencies: Vec<i64> = Vec::new();
        for outbox in &self.outboxes[connectors] {
            let so_far = usize::try_from(round * ROWS).expect("a small number");
            let records = self
                .kafka
                .wait_for_records(&outbox.topic("time"), so_far + ROWS as usize);
            latencies.extend(records.iter().skip(so_far).filter_map(|record| {
                let written: i64 = record.value_text()?.parse().ok()?;
                Some(record.timestamp_ms? - written)
            }));
        }
        latencies.sort_unstable();
        latencies
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

fn shown(latencies: &[i64]) -> String {
    let at = |share: usize| latencies[(latencies.len() * share / 100).min(latencies.len() - 1)];
    format!(
        "{} rows: p50 {} ms, p99 {} ms, at most {} ms",
        latencies.len(),
        at(50),
        at(99),
        at(100)
    )
}

#[test]
fn connectors_go_on_beside_one_that_fails_one_far_behind_and_one_without_its_topic() {
    let begun = Instant::now();
    let count = count();
    assert!(
        count > 4,
        "WALFERRY_TEST_CROWD={count}: the first four are the odd ones, and there must be others beside them"
    );
    let mut crowd = Crowd::start(count);
    let flood = flood();
    // The first four are the odd ones.
    let (locked_out, flooded, without_topic, without_registry) = (0, 1, 2, 3);
    crowd.postgres.sql().run("create role locked_out login superuser");
    let config = crowd.outboxes[locked_out].config_with([("database.user", "locked_out")]);
    crowd.create(locked_out, config, "STOPPED");
    crowd.postgres.sql().run("alter role locked_out nologin");
    crowd.create(flooded, crowd.outboxes[flooded].config(), "RUNNING");
    crowd.outboxes[flooded].wait_until_streaming(&mut crowd.walferry);
    crowd.steer(flooded, "stop");
    crowd.outboxes[flooded].insert("k", 1, flood);
    let missing = [("producer.override.allow.auto.create.topics", "false")];
    let config = crowd.outboxes[without_topic].config_with(missing);
    crowd.create(without_topic, config, "RUNNING");
    // Nobody listens there.
    let registry = format!("http://127.0.0.1:{}", free_port());
    let avro = [
        ("value.converter", "io.confluent.connect.avro.AvroConverter"),
        ("value.converter.schema.registry.url", registry.as_str()),
    ];
    let config = crowd.outboxes[without_registry].config_with(avro);
    crowd.create(without_registry, config, "RUNNING");
    let created = Instant::now();
    for i in 4..count {
        crowd.create(i, crowd.outboxes[i].config(), "RUNNING");
    }
    for i in 2..count {
        crowd.outboxes[i].wait_until_streaming(&mut crowd.walferry);
    }
    println!(
        "{} connectors stream {:?} after the first of them was created",
        count - 4,
        created.elapsed()
    );
    if std::env::var_os("WALFERRY_TEST_CROWD").is_some() {
        let before = crowd.walferry.processor_ms().expect("it runs");
        std::thread::sleep(REST);
        let used = crowd.walferry.processor_ms().expect("it runs") - before;
        let threads = crowd.walferry.threads().expect("it runs");
        println!("at rest, {used} ms of a processor in {REST:?}, with {threads} threads");
    }
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

    // The first rows make their topics.
    crowd.latencies(4..count, 0);
    println!("alone, {}", shown(&crowd.latencies(4..count, 1)));
    crowd.steer(locked_out, "resume");
    crowd.steer(flooded, "resume");
    crowd.outboxes[without_topic].insert("k", 1, 3);
    crowd.outboxes[without_registry].insert("k", 1, 3);
    println!("beside the odd ones, {}", shown(&crowd.latencies(4..count, 2)));
    wait_for("the one without a log-in to fail", || {
        (crowd.task(locked_out)["state"] == "FAILED").then_some(())
    });
    let trace = crowd.task(locked_out)["trace"].clone();
    let trace = trace.as_str().expect("it says why");
    assert!(
        trace.starts_with("org.apache.kafka.connect.errors.ConnectException: "),
        "{trace}"
    );
    for waits in [without_topic, without_registry] {
        assert_eq!(crowd.task(waits)["state"], "RUNNING", "it waits");
    }
    let records = crowd
        .kafka
        .wait_for_records(&crowd.outboxes[flooded].topic("order"), flood as usize);
    crate::outbox::assert_runs(&records, &["k"], flood);

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
    // The memory in flight is divided again when connectors go.
    let limit = |crowd: &Crowd| {
        let metrics = crowd.walferry.get("/metrics").expect("an answer").body;
        let line = metrics
            .lines()
            .find(|line| line.starts_with("walferry_in_flight_limit_bytes{") && line.contains("\"crowd4\""))
            .expect("the metric is there");
        let value = line.rsplit(' ').next().expect("it has a value");
        value.parse::<f64>().expect("it is a number") as usize
    };
    let all = 12 * 1024 * 1024;
    assert!(limit(&crowd).abs_diff(all / count) < count, "{}", limit(&crowd));
    for gone in [without_registry, without_topic, flooded] {
        let answer = crowd.walferry.ask("DELETE", &format!("/connectors/crowd{gone}"));
        assert_eq!(answer.expect("an answer").status, 204);
    }
    wait_for("the memory to be divided again", || {
        (limit(&crowd).abs_diff(all / (count - 3)) < count).then_some(())
    });
    let (now, most) = crowd.walferry.resident_kib().expect("it runs");
    println!(
        "{now} KiB are resident at the end, {most} at most; {:?} in all",
        begun.elapsed()
    );
    assert_eq!(crowd.walferry.terminate(), Some(0), "{}", crowd.walferry.output());
}

/// Two connectors with one slot, by mistake: the one that waits names the one that reads.
#[test]
fn a_connector_whose_slot_another_one_of_the_process_reads_names_that_one() {
    let crowd = Crowd::start(2);
    let first = &crowd.outboxes[0];
    crowd.create(0, first.config(), "RUNNING");
    wait_for("the first connector to stream", || {
        (first.database.streams() == 1).then_some(())
    });
    let mut config = first.config();
    config.insert("topic.prefix".into(), "crowd1".into());
    crowd.create(1, config, "RUNNING");
    wait_for("the second connector to name the first", || {
        let answer = crowd.walferry.get("/ready")?;
        let told = "is read by connector \\\"crowd0\\\" of this process";
        (answer.body.contains(told) && answer.body.contains("`slot.name` of one of the two")).then_some(())
    });
    wait_for("the list of slots to name it, too", || {
        let slots: Value = serde_json::from_str(&crowd.walferry.get("/slots")?.body).ok()?;
        let of_second = slots["connectors"]
            .as_array()?
            .iter()
            .find(|one| one["connector"] == "crowd1")?;
        let slot = of_second["slots"]
            .as_array()?
            .iter()
            .find(|slot| slot["ours"] == true)?;
        (slot["connector"] == "crowd0").then_some(())
    });
}
