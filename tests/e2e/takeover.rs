//! Kafka Connect's topics: Walferry takes over from Connect and hands back, and one Walferry from another.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use walferry_testkit::servers::{Connect, Kafka, Record, Surroundings, Walferry, WalferryOptions, request, wait_for};

use crate::{
    outbox::{Outbox, assert_runs},
    world::{self, World},
};

/// The worker file that `Connect` of the test kit has, as far as Walferry needs it.
const WORKER: [&str; 11] = [
    "group.id=walferry-test",
    "key.converter=org.apache.kafka.connect.json.JsonConverter",
    "value.converter=org.apache.kafka.connect.json.JsonConverter",
    "offset.storage.topic=connect-offsets",
    "offset.storage.replication.factor=1",
    "offset.storage.partitions=1",
    "config.storage.topic=connect-configs",
    "config.storage.replication.factor=1",
    "status.storage.topic=connect-status",
    "status.storage.replication.factor=1",
    "status.storage.partitions=1",
];

pub(super) fn start(kafka: &Kafka, name: &str) -> Walferry {
    start_with(
        kafka,
        name,
        Surroundings {
            is_worker: true,
            without_data_dir: true,
            ..Surroundings::default()
        },
    )
}

fn start_with(kafka: &Kafka, name: &str, surroundings: Surroundings) -> Walferry {
    let options = WalferryOptions {
        name: name.into(),
        config: serde_json::Map::new(),
        worker: WORKER.iter().map(ToString::to_string).collect(),
        bootstrap: kafka.bootstrap(),
        env: Vec::new(),
    };
    Walferry::start_in(options, surroundings)
}

/// Waits until the REST API answers for connectors.
pub(super) fn wait_for_turn(walferry: &mut Walferry) {
    wait_for("the worker to begin", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        walferry.get("/connectors").filter(|answer| answer.status == 200)
    });
}

pub(super) fn state(port: u16, name: &str) -> Option<Value> {
    let status = request(port, "GET", &format!("/connectors/{name}/status"), None)?;
    (status.status == 200).then(|| status.json()["connector"]["state"].clone())
}

/// The last value of each key of a topic.
fn latest(kafka: &Kafka, topic: &str) -> Vec<Record> {
    let mut latest: Vec<Record> = Vec::new();
    for record in kafka.read(&[topic.to_owned()]) {
        latest.retain(|known| known.key != record.key);
        latest.push(record);
    }
    latest
}

/// One event after another, each in a transaction of its own, until it is dropped.
struct Writes {
    written: Arc<AtomicI64>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Writes {
    fn start(world: &World, outbox: &Outbox) -> Self {
        let (written, stop) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counts, stopping) = (written.clone(), stop.clone());
        let sql = world.postgres.in_database(outbox.database.name());
        let thread = thread::spawn(move || {
            while !stopping.load(SeqCst) {
                let next = counts.load(SeqCst) + 1;
                sql.run(&crate::outbox::insert_sql("k", next, next));
                counts.store(next, SeqCst);
                thread::sleep(Duration::from_millis(5));
            }
        });
        Self {
            written,
            stop,
            thread: Some(thread),
        }
    }

    fn end(mut self) -> i64 {
        self.stop.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("rows can be written");
        }
        self.written.load(SeqCst)
    }
}

#[test]
fn a_connector_goes_from_connect_to_walferry_and_back_three_times_while_rows_are_written() {
    let world = world::shared();
    let kafka = Kafka::start();
    let (one, two) = (
        Outbox::on(&world.postgres, &kafka, "takeover"),
        Outbox::on(&world.postgres, &kafka, "takeover_two"),
    );
    let mut connect = Connect::start(&kafka);
    connect.create("one", &one.config());
    connect.create("two", &two.config());
    connect.stop("two");
    let file = json!({ "connector.class": "FileStreamSource", "file": "/dev/null", "topic": "elsewhere" });
    connect.create("file", file.as_object().expect("an object"));
    let writes = Writes::start(&world, &one);
    let moved = |beyond: i64| {
        let topic = one.topic("order");
        wait_for("records to arrive", || {
            let there = kafka.topics().contains(&topic);
            (there && kafka.read(&[topic.clone()]).len() as i64 > beyond).then_some(())
        });
    };
    moved(20);
    // `WALFERRY_TEST_MOVES=5` moves it so often in each direction.
    let rounds = std::env::var("WALFERRY_TEST_MOVES").ok();
    let rounds = rounds.and_then(|text| text.parse().ok()).unwrap_or(3);
    // What was on the topic at each move, and how the one before was ended.
    let mut moves: Vec<(usize, &str, bool)> = Vec::new();
    for round in 0..rounds {
        let hard = round % 2 == 1;
        connect.end(hard);
        moves.push((kafka.read(&[one.topic("order")]).len(), "Connect", hard));
        let mut walferry = start(&kafka, &format!("takeover{round}"));
        wait_for_turn(&mut walferry);
        let names = walferry.get("/connectors").expect("an answer").body;
        assert_eq!(names, r#"["one","two"]"#, "those of other classes are left alone");
        assert!(walferry.output().contains("FileStreamSource"), "and named");
        // As with Connect, a connector has no state for a moment.
        let first_state = wait_for("a state of the connector", || state(walferry.port(), "two"));
        assert_eq!(first_state, "STOPPED");
        wait_for("the connector to run", || {
            (state(walferry.port(), "one")? == "RUNNING").then_some(())
        });
        let so_far = kafka.read(&[one.topic("order")]).len() as i64;
        moved(so_far + 50);
        let output = walferry.output();
        assert!(output.contains("continuing from the stored offset"), "{output}");
        assert!(!output.contains("reading existing rows"), "{output}");
        if hard {
            walferry.kill();
        } else {
            assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        }
        moves.push((kafka.read(&[one.topic("order")]).len(), "Walferry", hard));
        connect = Connect::start(&kafka);
        wait_for("the connector to run", || {
            (state(connect.port(), "one")? == "RUNNING").then_some(())
        });
        assert_eq!(state(connect.port(), "two"), Some("STOPPED".into()));
        let so_far = kafka.read(&[one.topic("order")]).len() as i64;
        moved(so_far + 50);
    }
    let written = writes.end();
    let values = || -> Vec<i64> {
        let records = kafka.read(&[one.topic("order")]);
        records
            .iter()
            .filter_map(|record| record.value_text()?.parse().ok())
            .collect()
    };
    wait_for("the last row", || values().contains(&written).then_some(()));
    connect.end(false);
    assert_runs(&kafka.read(&[one.topic("order")]), &["k"], written);
    let values = values();
    for (number, (at, who, hard)) in moves.iter().enumerate() {
        let end = moves.get(number + 1).map_or(values.len(), |(at, ..)| *at);
        let furthest = values[..*at].iter().max().copied().unwrap_or_default();
        let again = values[*at..end].iter().filter(|value| **value <= furthest).count();
        let how = if *hard { "is killed" } else { "ends in order" };
        println!("{who} {how} after {at} records: {again} are sent again");
    }
    let repeated = values.len() as i64 - written;
    println!("{written} rows in {} moves, {repeated} sent again", moves.len());
}

#[test]
fn single_connectors_are_taken_from_a_cluster_that_runs_on_while_rows_are_written() {
    let world = world::shared();
    let kafka = Kafka::start();
    let (one, two) = (
        Outbox::on(&world.postgres, &kafka, "taken"),
        Outbox::on(&world.postgres, &kafka, "stays"),
    );
    let connect = Connect::start(&kafka);
    connect.create("one", &one.config());
    connect.create("two", &two.config());
    let file = json!({ "connector.class": "FileStreamSource", "file": "/dev/null", "topic": "elsewhere" });
    connect.create("file", file.as_object().expect("an object"));
    let writes = Writes::start(&world, &one);
    kafka.wait_for_records(&one.topic("order"), 50);
    let taking = |arguments: &[&str]| Surroundings {
        is_worker: true,
        arguments: arguments.iter().map(ToString::to_string).collect(),
        ..Surroundings::default()
    };

    // What cannot be taken stays as it is.
    for (name, reasons) in [
        ("on", ["\"one\"", "\"two\""]),
        ("file", ["FileStreamSource", "leave it"]),
    ] {
        let mut refused = start_with(&kafka, name, taking(&["--take", name]));
        assert_eq!(refused.wait(), Some(2), "{}", refused.output());
        let output = refused.output();
        for text in ["WF0550", reasons[0], reasons[1]] {
            assert!(output.contains(text), "{text}: {output}");
        }
    }
    assert_eq!(state(connect.port(), "file"), Some("RUNNING".into()));

    let mut walferry = start_with(&kafka, "taking", taking(&["--take", "one"]));
    wait_for_turn(&mut walferry);
    one.wait_until_streaming(&mut walferry);
    assert_eq!(walferry.get("/connectors").expect("an answer").body, r#"["one"]"#);
    assert_eq!(state(connect.port(), "one"), Some("STOPPED".into()));
    assert_eq!(
        state(connect.port(), "two"),
        Some("RUNNING".into()),
        "the cluster runs on"
    );
    let config = |port| request(port, "GET", "/connectors/one/config", None).map(|answer| answer.json());
    assert_eq!(config(walferry.port()), config(connect.port()));
    let so_far = kafka.read(&[one.topic("order")]).len();
    kafka.wait_for_records(&one.topic("order"), so_far + 50);

    // The same command after a crash: it was taken before.
    walferry.kill();
    walferry.start_again();
    wait_for_turn(&mut walferry);
    one.wait_until_streaming(&mut walferry);
    let output = walferry.output();
    assert!(output.contains("was taken over before"), "{output}");
    assert_eq!(
        output.matches("continuing from the stored offset").count(),
        2,
        "{output}"
    );
    assert!(!output.contains("reading existing rows"), "{output}");
    let written = writes.end();
    wait_for("the last row", || {
        let records = kafka.read(&[one.topic("order")]);
        let last = written.to_string();
        records
            .iter()
            .any(|record| record.value_text() == Some(&last))
            .then_some(())
    });
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let records = kafka.read(&[one.topic("order")]);
    assert_runs(&records, &["k"], written);
    println!(
        "{written} rows, {} sent again by a move and a kill",
        records.len() as i64 - written
    );
    two.insert("k", 1, 3);
    kafka.wait_for_records(&two.topic("order"), 3);
    connect.end(false);
}

#[test]
fn a_connector_that_cannot_be_taken_after_it_was_stopped_goes_on_where_it_was() {
    let world = world::shared();
    let kafka = Kafka::start();
    let one = Outbox::on(&world.postgres, &kafka, "handed_back");
    let connect = Connect::start(&kafka);
    connect.create("one", &one.config());
    one.insert("k", 1, 3);
    kafka.wait_for_records(&one.topic("order"), 3);
    // A file of an earlier time has an offset that the cluster has not come to: whoever goes on from the cluster's would send again
    // what this one says was delivered.
    let surroundings = Surroundings {
        is_worker: true,
        arguments: vec!["--take".into(), "one".into()],
        ..Surroundings::default()
    };
    let options = WalferryOptions {
        name: "one".into(),
        ..one.options(one.config())
    };
    let offsets = json!({ "offsets": [{ "partition": { "server": "handed_back" }, "offset": {
        "lsn": 1_000_000_000_000_u64, "lsn_proc": 1_000_000_000_000_u64, "lsn_commit": 1_000_000_000_000_u64,
    } }] });
    let mut walferry = Walferry::start_in(
        WalferryOptions {
            worker: WORKER.iter().map(ToString::to_string).collect(),
            ..options
        },
        Surroundings {
            arguments: vec!["--take".into(), "nobody".into()],
            ..surroundings.clone()
        },
    );
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    // A name that the cluster does not have leaves no offset behind.
    let exported = walferry.command_at(["offsets", "export", "--config", "connector.json", "--data-dir", "data"]);
    assert!(exported.status.success(), "{exported:?}");
    assert_eq!(String::from_utf8_lossy(&exported.stdout).trim(), r#"{"offsets":[]}"#);
    let body = walferry.config_file().with_file_name("offsets.json");
    std::fs::write(&body, offsets.to_string()).expect("the scratch folder can be written");
    let imported = walferry.command_at([
        "offsets",
        "import",
        "--config",
        "connector.json",
        "--data-dir",
        "data",
        "offsets.json",
    ]);
    assert!(imported.status.success(), "{imported:?}");
    walferry.take_arguments(surroundings.arguments);
    walferry.start_again();
    assert_eq!(walferry.wait(), Some(4), "{}", walferry.output());
    let output = walferry.output();
    for text in ["WF0610", "E8/D4A51000", "offset.json", "goes on with the connector"] {
        assert!(output.contains(text), "{text}: {output}");
    }
    wait_for("the cluster to go on", || {
        (state(connect.port(), "one")? == "RUNNING").then_some(())
    });
    one.insert("k", 4, 6);
    assert_runs(&kafka.wait_for_records(&one.topic("order"), 6), &["k"], 6);
    connect.end(false);
}

#[test]
fn an_offset_in_a_file_that_is_ahead_of_the_one_in_the_topic_is_not_passed_over() {
    let world = world::shared();
    let kafka = Kafka::start();
    let one = Outbox::on(&world.postgres, &kafka, "two_offsets");
    let mut walferry = start(&kafka, "two_offsets");
    wait_for_turn(&mut walferry);
    let answer = walferry.send("PUT", "/connectors/one/config", &Value::Object(one.config()));
    assert_eq!(answer.expect("an answer").status, 201);
    one.wait_until_streaming(&mut walferry);
    one.insert("k", 1, 5);
    kafka.wait_for_records(&one.topic("order"), 5);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let in_topic = latest(&kafka, "connect-offsets");
    let value: Value = serde_json::from_str(in_topic[0].value_text().expect("a value")).expect("it is JSON");

    // With files, the same connector goes on a while; then somebody leaves `--data-dir` out again.
    let default_dir = walferry.data_dir().with_file_name("state").join("walferry");
    let worker = json!({ "name": "one", "config": one.config() });
    let config = walferry.config_file();
    std::fs::write(&config, worker.to_string()).expect("the scratch folder can be written");
    let offsets = config.with_file_name("offsets.json");
    let ahead = value["lsn_proc"].as_u64().expect("a position") + 4096;
    let offset = json!({ "lsn": ahead, "lsn_proc": ahead, "lsn_commit": ahead });
    std::fs::write(&offsets, offset.to_string()).expect("the scratch folder can be written");
    let imported = walferry.command_at([
        "offsets",
        "import",
        "--config",
        "connector.json",
        "--data-dir",
        "state/walferry",
        "offsets.json",
    ]);
    assert!(imported.status.success(), "{imported:?}");
    walferry.start_again();
    wait_for_turn(&mut walferry);
    let trace = wait_for("the connector to fail", || {
        let status = walferry.get("/connectors/one/status")?.json();
        let task = status["tasks"][0].clone();
        (task["state"] == "FAILED").then(|| task["trace"].as_str().unwrap_or_default().to_owned())
    });
    let lsn = |at: u64| format!("{:X}/{:X}", at >> 32, at & 0xFFFF_FFFF);
    let in_topic = lsn(value["lsn_proc"].as_u64().expect("a position"));
    for text in [lsn(ahead), in_topic, "offset.json".into()] {
        assert!(trace.contains(&text), "{text}: {trace}");
    }
    assert!(walferry.output().contains("WF0610"), "{}", walferry.output());
    // As the hint says: the file is moved away.
    std::fs::remove_file(default_dir.join("one").join("offset.json")).expect("it is there");
    let answer = walferry.ask("POST", "/connectors/one/restart?includeTasks=true&onlyFailed=true");
    assert_eq!(answer.expect("an answer").status, 202);
    one.wait_until_streaming(&mut walferry);
    one.insert("k", 6, 9);
    assert_runs(&kafka.wait_for_records(&one.topic("order"), 9), &["k"], 9);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn a_second_walferry_on_the_same_topics_waits_and_takes_over_when_the_first_is_gone() {
    let world = world::shared();
    let kafka = Kafka::start();
    let one = Outbox::on(&world.postgres, &kafka, "standby");
    let mut first = start(&kafka, "first");
    wait_for_turn(&mut first);
    let answer = first
        .send("PUT", "/connectors/one/config", &Value::Object(one.config()))
        .expect("an answer");
    assert_eq!(answer.status, 201, "{}", answer.body);
    one.wait_until_streaming(&mut first);
    one.insert("k", 1, 5);
    kafka.wait_for_records(&one.topic("order"), 5);
    let mut second = start(&kafka, "second");
    wait_for("the second one to listen", || {
        second.get("/health").filter(|answer| answer.status == 200)
    });
    for path in ["/ready", "/connectors"] {
        let answer = second.get(path).expect("an answer");
        assert_eq!(answer.status, 503, "{path}: {}", answer.body);
        assert!(answer.body.contains("This process is waiting"), "{}", answer.body);
    }
    // In Connect's form: keys, states, the offset behind the acknowledgements.
    one.wait_until_confirmed();
    let offsets = latest(&kafka, "connect-offsets");
    let offset = offsets
        .iter()
        .find(|record| record.key_text() == Some(r#"["one",{"server":"standby"}]"#));
    let offset = offset.expect("the key is Connect's");
    let value: Value = serde_json::from_str(offset.value_text().expect("it has a value")).expect("it is JSON");
    assert!(value["lsn"].is_u64() && value["lsn_commit"].is_u64(), "{value}");
    assert!(
        offset
            .header_text("walferry.offset")
            .is_some_and(|text| text.contains("position")),
        "{offset:?}"
    );
    let configs = latest(&kafka, "connect-configs");
    let config = configs
        .iter()
        .find(|record| record.key_text() == Some("connector-one"))
        .expect("it is there");
    assert!(
        config
            .value_text()
            .is_some_and(|text| text.starts_with(r#"{"properties":{"#)),
        "{config:?}"
    );
    wait_for("the states to be told", || {
        let states = latest(&kafka, "connect-status");
        let find = |key: &str| {
            states
                .iter()
                .find(|record| record.key_text() == Some(key))?
                .value_text()
        };
        let task = find("status-task-one-0")?;
        (find("status-connector-one")?.contains("RUNNING") && task.contains("RUNNING")).then_some(())
    });
    first.kill();
    one.insert("k", 6, 9);
    wait_for_turn(&mut second);
    one.wait_until_streaming(&mut second);
    let records = kafka.wait_for_records(&one.topic("order"), 9);
    assert_runs(&records, &["k"], 9);

    // Offsets over REST are those of the topic.
    assert_eq!(
        second.ask("PUT", "/connectors/one/stop").expect("an answer").status,
        204
    );
    wait_for("the slot to be free", || (one.database.streams() == 0).then_some(()));
    let offsets = second.get("/connectors/one/offsets").expect("an answer").json();
    assert_eq!(
        second
            .send("PATCH", "/connectors/one/offsets", &offsets)
            .expect("an answer")
            .status,
        200
    );
    assert_eq!(
        second.get("/connectors/one/offsets").expect("an answer").json(),
        offsets
    );
    assert_eq!(second.terminate(), Some(0), "{}", second.output());
    second.start_again();
    wait_for_turn(&mut second);
    // As with Connect, a connector has no state for a moment.
    let first_state = wait_for("a state of the connector", || state(second.port(), "one"));
    assert_eq!(first_state, "STOPPED", "it stays as it was wanted");
    assert_eq!(second.terminate(), Some(0), "{}", second.output());
}

#[test]
fn a_walferry_that_stood_still_or_lost_kafka_writes_nothing_more_and_waits_for_its_turn_again() {
    let world = world::shared();
    let mut kafka = Kafka::start();
    let one = Outbox::on(&world.postgres, &kafka, "lost_turn");
    let mut first = start(&kafka, "first");
    wait_for_turn(&mut first);
    let answer = first.send("PUT", "/connectors/one/config", &Value::Object(one.config()));
    assert_eq!(answer.expect("an answer").status, 201);
    one.wait_until_streaming(&mut first);
    one.insert("k", 1, 50);
    kafka.wait_for_records(&one.topic("order"), 50);
    one.wait_until_confirmed();
    let mut second = start(&kafka, "second");
    wait_for("the second one to wait", || {
        second.get("/connectors").filter(|answer| answer.status == 503)
    });
    // The first one stands still, and so do its sockets. The server gives up its walsender after a while: here at once.
    first.hang();
    one.insert("k", 51, 100);
    wait_for_turn(&mut second);
    let walsender = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name";
    one.database.sql().run(&format!("{walsender} = '{}'", one.slot()));
    kafka.wait_for_records(&one.topic("order"), 100);
    one.wait_until_confirmed();
    let records = kafka.read(&[one.topic("order")]).len();
    first.resume();
    wait_for("the first one to wait again", || {
        assert!(first.runs(), "walferry ended:\n{}", first.output());
        first.get("/connectors").filter(|answer| answer.status == 503)
    });
    let output = first.output();
    assert!(output.contains("WF0712"), "{output}");
    assert_eq!(
        kafka.read(&[one.topic("order")]).len(),
        records,
        "the first one sent no more"
    );
    // Nor did it store what it had read before: the second one is further.
    let offsets = kafka.read(&["connect-offsets".into()]);
    let positions: Vec<u64> = offsets
        .iter()
        .filter_map(|record| serde_json::from_str::<Value>(record.value_text()?).ok()?["lsn_proc"].as_u64())
        .collect();
    assert!(positions.is_sorted(), "{positions:?}");

    // Whoever is gone, the other one goes on.
    second.kill();
    one.insert("k", 101, 150);
    wait_for_turn(&mut first);
    one.wait_until_streaming(&mut first);
    kafka.wait_for_records(&one.topic("order"), 150);
    // Kafka may be away for longer than a turn lasts. The process waits.
    kafka.stop(true);
    one.insert("k", 151, 200);
    wait_for("the turn to be lost", || {
        assert!(first.runs(), "walferry ended:\n{}", first.output());
        (first.output().matches("WF0712").count() > output.matches("WF0712").count()).then_some(())
    });
    kafka.start_again();
    let records = kafka.wait_for_records(&one.topic("order"), 200);
    assert_runs(&records, &["k"], 200);
    assert!(!first.output().contains("WF0315"), "{}", first.output());
    assert_eq!(first.terminate(), Some(0), "{}", first.output());
}

#[test]
fn topics_that_would_lose_state_and_workers_that_still_run_are_refused_by_name() {
    let kafka = Kafka::start();
    kafka.create_topic("connect-offsets", 1);
    let mut walferry = start(&kafka, "refused");
    assert_eq!(walferry.wait(), Some(2));
    let output = walferry.output();
    for text in [
        "connect-offsets",
        "offset.storage.topic",
        "cleanup.policy=compact",
        "kafka-configs",
    ] {
        assert!(output.contains(text), "{text}: {output}");
    }
}

#[test]
fn nobody_takes_the_topics_of_a_connect_that_still_runs() {
    let kafka = Kafka::start();
    let connect = Connect::start(&kafka);
    let mut walferry = start(&kafka, "beside");
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let output = walferry.output();
    for text in ["WF0520", "walferry-test", "with 1 worker(s)", "waiting until"] {
        assert!(output.contains(text), "{text}: {output}");
    }
    connect.end(false);
}

#[test]
fn topics_that_connect_has_written_in_transactions_are_read_to_their_end_without_what_was_taken_back() {
    const COMPACTED: [(&str, &str); 1] = [("cleanup.policy", "compact")];
    let world = world::shared();
    let kafka = Kafka::start();
    let one = Outbox::on(&world.postgres, &kafka, "transacted");
    for (topic, partitions) in [("connect-configs", 1), ("connect-offsets", 25), ("connect-status", 5)] {
        kafka.create_topic_with(topic, partitions, &COMPACTED);
    }
    let sql = one.database.sql();
    let slot = one.slot();
    sql.run(&format!("create publication {slot} for table outbox"));
    sql.run(&format!(
        "select pg_create_logical_replication_slot('{slot}', 'pgoutput')"
    ));
    let configuration = |config: serde_json::Map<String, Value>| json!({ "properties": config }).to_string();
    let named = |name: &str| {
        let mut config = one.config();
        config.insert("name".into(), name.into());
        configuration(config)
    };
    let offset = |lsn: u64| {
        json!({ "lsn_proc": lsn, "messageType": "INSERT", "lsn_commit": lsn, "lsn": lsn, "txId": 700, "ts_usec": 1 })
            .to_string()
    };
    let key = r#"["one",{"server":"transacted"}]"#;
    let (config, committed) = (named("one"), offset(one.confirmed()));
    one.insert("k", 1, 5);
    let (ghost, taken_back) = (named("ghost"), offset(one.wal_end()));
    // Each ends with the mark of a transaction, which no consumer is given.
    kafka.transact(
        &[
            ("connect-configs", "connector-one", &config),
            ("connect-offsets", key, &committed),
        ],
        true,
    );
    kafka.transact(
        &[
            ("connect-configs", "connector-ghost", &ghost),
            ("connect-offsets", key, &taken_back),
        ],
        false,
    );
    let mut walferry = start(&kafka, "transacted");
    wait_for_turn(&mut walferry);
    assert_eq!(walferry.get("/connectors").expect("an answer").body, r#"["one"]"#);
    one.wait_until_streaming(&mut walferry);
    assert_runs(&kafka.wait_for_records(&one.topic("order"), 5), &["k"], 5);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
