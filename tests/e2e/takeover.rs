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
    let options = WalferryOptions {
        name: name.into(),
        config: serde_json::Map::new(),
        worker: WORKER.iter().map(ToString::to_string).collect(),
        bootstrap: kafka.bootstrap(),
        env: Vec::new(),
    };
    let surroundings = Surroundings {
        is_worker: true,
        without_data_dir: true,
        ..Surroundings::default()
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
    let mut moves = Vec::new();
    for round in 0..3 {
        let hard = round == 1;
        connect.end(hard);
        moves.push(kafka.read(&[one.topic("order")]).len());
        let mut walferry = start(&kafka, &format!("takeover{round}"));
        wait_for_turn(&mut walferry);
        let names = walferry.get("/connectors").expect("an answer").body;
        assert_eq!(names, r#"["one","two"]"#, "those of other classes are left alone");
        assert!(walferry.output().contains("FileStreamSource"), "and named");
        assert_eq!(state(walferry.port(), "two"), Some("STOPPED".into()));
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
        moves.push(kafka.read(&[one.topic("order")]).len());
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
    println!("records at the moves: {moves:?}");
    assert_runs(&kafka.read(&[one.topic("order")]), &["k"], written);
    let repeated = values().len() as i64 - written;
    println!("{written} rows in six moves, {repeated} sent again");
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
    assert_eq!(
        state(second.port(), "one"),
        Some("STOPPED".into()),
        "it stays as it was wanted"
    );
    assert_eq!(second.terminate(), Some(0), "{}", second.output());
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
