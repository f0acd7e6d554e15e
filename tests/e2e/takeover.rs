//! Kafka Connect's topics: Walferry takes over from Connect and hands back, and one Walferry from another.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use walferry_kafka::connect::{GroupReader, work_partition};
use walferry_testkit::servers::{Connect, Kafka, Record, Surroundings, Walferry, WalferryOptions, request, wait_for};

use crate::{
    outbox::{Outbox, assert_runs},
    workers::topics,
    world::{self, World},
};

/// The worker file that `Connect` of the test kit has, as far as Walferry needs it.
pub(crate) const WORKER: [&str; 11] = [
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

/// The same with further lines in the worker file, and variables of the environment.
pub(super) fn start_with_lines(kafka: &Kafka, name: &str, lines: Vec<String>, env: Vec<(String, String)>) -> Walferry {
    let mut options = WalferryOptions {
        env,
        ..options(kafka, name)
    };
    options.worker.extend(lines);
    Walferry::start_in(
        options,
        Surroundings {
            is_worker: true,
            without_data_dir: true,
            ..Surroundings::default()
        },
    )
}

/// The same with a variable of the environment.
pub(super) fn start_with_variable(kafka: &Kafka, name: &str, (variable, value): (&str, &str)) -> Walferry {
    let options = WalferryOptions {
        env: vec![(variable.into(), value.into())],
        ..options(kafka, name)
    };
    Walferry::start_in(
        options,
        Surroundings {
            is_worker: true,
            without_data_dir: true,
            ..Surroundings::default()
        },
    )
}

fn start_with(kafka: &Kafka, name: &str, surroundings: Surroundings) -> Walferry {
    Walferry::start_in(options(kafka, name), surroundings)
}

fn options(kafka: &Kafka, name: &str) -> WalferryOptions {
    WalferryOptions {
        name: name.into(),
        config: serde_json::Map::new(),
        worker: WORKER.iter().map(ToString::to_string).collect(),
        bootstrap: kafka.bootstrap(),
        env: Vec::new(),
    }
}

/// Waits until this process is one of the workers. One that stands by beside an earlier version answers nothing about itself.
pub(super) fn wait_for_turn(walferry: &mut Walferry) {
    wait_for("the worker to begin", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        walferry.get("/slots").filter(|answer| answer.status == 200)
    });
}

pub(super) fn state(port: u16, name: &str) -> Option<Value> {
    let status = request(port, "GET", &format!("/connectors/{name}/status"), None)?;
    (status.status == 200).then(|| status.json()["connector"]["state"].clone())
}

/// The first state that a worker gives to a connector. As with Connect, the connector has none for a moment, or the one that the last worker has left.
#[track_caller]
fn state_after_start(walferry: &Walferry, connector: &str) -> Value {
    wait_for("a state of the connector", || {
        state(walferry.port(), connector).filter(|state| state != "UNASSIGNED")
    })
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

/// The last record of the status topic about something; `None` if there is none, or a tombstone.
fn state_record(kafka: &Kafka, key: &str) -> Option<Value> {
    let records = latest(kafka, "connect-status");
    let record = records.iter().find(|record| record.key_text() == Some(key))?;
    serde_json::from_str(record.value_text()?).ok()
}

#[track_caller]
fn wait_for_state(kafka: &Kafka, key: &str, state: &str) {
    wait_for(&format!("{key} to be {state}"), || {
        (state_record(kafka, key)?["state"] == state).then_some(())
    });
}

/// One event after another, each in a transaction of its own, until it is dropped.
struct Writes {
    written: Arc<AtomicI64>,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<Positions>>,
}

/// Positions of the server right after the commits of events, by the number of the event.
type Positions = HashMap<i64, u64>;

impl Writes {
    /// `before` events are there already. With more than one `at_once`, they come by COPY.
    fn start(world: &World, outbox: &Outbox, before: i64, at_once: i64) -> Self {
        let (written, stop) = (Arc::new(AtomicI64::new(before)), Arc::new(AtomicBool::new(false)));
        let (counts, stopping) = (written.clone(), stop.clone());
        let sql = world.postgres.in_database(outbox.database.name());
        let thread = thread::spawn(move || {
            let mut positions = Positions::new();
            while !stopping.load(SeqCst) {
                let next = counts.load(SeqCst) + 1;
                let last = next + at_once - 1;
                let insert = match at_once {
                    1 => crate::outbox::insert_sql("k", next, next),
                    // Rows of one COPY share a position in the log.
                    _ => format!(
                        "copy outbox from program 'for i in $(seq {next} {last}); do printf \"$i\\torder\\tk\\tCreated\\t$i\\n\"; done'"
                    ),
                };
                let position = sql.value(&format!("{insert}; select pg_current_wal_insert_lsn() - '0/0'"));
                let position: Option<u64> = position.and_then(|position| position.parse().ok());
                let position = position.expect("the position is a number");
                positions.extend((next..=last).map(|row| (row, position)));
                counts.store(last, SeqCst);
                thread::sleep(Duration::from_millis(5));
            }
            positions
        });
        Self {
            written,
            stop,
            thread: Some(thread),
        }
    }

    /// The number of the last event, and where each of them was committed.
    fn end(mut self) -> (i64, Positions) {
        self.stop.store(true, SeqCst);
        let thread = self.thread.take().expect("it ends once");
        let positions = thread.join().expect("rows can be written");
        (self.written.load(SeqCst), positions)
    }
}

/// Rows that were there before the connector. Its snapshot reads them.
const EXISTING: i64 = 10;

/// A moment at which one program has ended, and the other is about to begin.
struct Move {
    /// How many records are on the topic.
    at: usize,
    /// Who has ended.
    who: &'static str,
    /// Whether it was killed.
    hard: bool,
    /// See [`stored`].
    stored: u64,
}

/// Every commit before this position is delivered, by the offset in Connect's topic.
#[track_caller]
fn stored(kafka: &Kafka) -> u64 {
    let offsets = latest(kafka, "connect-offsets");
    let key = r#"["one",{"server":"takeover"}]"#;
    let offset = offsets.iter().find(|record| record.key_text() == Some(key));
    let offset: Option<Value> =
        offset.and_then(|record| serde_json::from_str(record.value_text().unwrap_or_default()).ok());
    let stored = offset.as_ref().and_then(|offset| offset["lsn_commit"].as_u64());
    stored.unwrap_or_else(|| panic!("{offset:?} has no commit"))
}

impl Move {
    #[track_caller]
    fn now(kafka: &Kafka, outbox: &Outbox, who: &'static str, hard: bool) -> Self {
        Self {
            at: kafka.read(&[outbox.topic("order")]).len(),
            who,
            hard,
            stored: stored(kafka),
        }
    }
}

/// After an orderly end, the status topic says that nobody runs connectors `one` and `two`. The second one was stopped, so it has no task.
#[track_caller]
fn assert_nobody_runs(kafka: &Kafka, who: &str) {
    let states = [
        "status-connector-one",
        "status-task-one-0",
        "status-connector-two",
        "status-task-two-0",
    ];
    let states = states.map(|key| state_record(kafka, key).map(|record| record["state"].clone()));
    let unassigned = Some(Value::from("UNASSIGNED"));
    assert_eq!(
        states,
        [unassigned.clone(), unassigned.clone(), unassigned, None],
        "{who}"
    );
}

/// The offsets of connector `one`, oldest first: the partition, and whether Walferry has written it.
fn offsets_of_one(kafka: &Kafka, server: &str) -> Vec<(i32, bool)> {
    let key = format!(r#"["one",{{"server":"{server}"}}]"#);
    let records = kafka.read(&["connect-offsets".into()]);
    let of_one = records.iter().filter(|record| record.key_text() == Some(&key));
    of_one
        .map(|record| (record.partition, record.header_text("walferry.offset").is_some()))
        .collect()
}

#[test]
fn a_worker_on_topics_names_its_folder_and_makes_none_for_a_connector() {
    let (world, kafka) = (world::shared(), Kafka::start());
    let outbox = Outbox::on(&world.postgres, &kafka, "no_folder");
    let mut walferry = start(&kafka, "no_folder");
    wait_for_turn(&mut walferry);
    let body = json!({ "name": "no_folder", "config": outbox.config() });
    let answer = walferry.send("POST", "/connectors", &body).expect("an answer");
    assert_eq!(answer.status, 201, "{}", answer.body);
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 1, 3);
    kafka.wait_for_records(&outbox.topic("order"), 3);
    outbox.wait_until_confirmed();
    let folder = walferry.config_file().with_file_name("state").join("walferry");
    assert!(!folder.join("no_folder").exists());
    let output = walferry.output();
    assert!(
        output.contains("are kept in a folder, which need not outlive this process"),
        "{output}"
    );
    assert!(output.contains(&folder.display().to_string()), "{output}");
}

#[test]
fn a_connector_goes_from_connect_to_walferry_and_back_while_rows_are_written() {
    let world = world::shared();
    let kafka = Kafka::start();
    let (one, two) = (
        Outbox::on(&world.postgres, &kafka, "takeover"),
        Outbox::on(&world.postgres, &kafka, "takeover_two"),
    );
    // Connect creates the topic of offsets. Where the key of a connector is in it depends on the number of partitions that are there.
    // A task that takes too long for its orderly end is abandoned, and its last offset is not stored.
    let lines = ["offset.storage.partitions=5", "task.shutdown.graceful.timeout.ms=60000"];
    let start_connect = || Connect::start_with(&kafka, &lines);
    let mut connect = start_connect();
    one.insert("k", 1, EXISTING);
    connect.create("one", &one.config_with([("snapshot.mode", "initial")]));
    connect.create("two", &two.config());
    connect.stop("two");
    let file = json!({ "connector.class": "FileStreamSource", "file": "/dev/null", "topic": "elsewhere" });
    connect.create("file", file.as_object().expect("an object"));
    // For a soak: `WALFERRY_TEST_MOVES=5` moves it so often in each direction, `WALFERRY_TEST_ORDERLY=1` kills nobody, and
    // `WALFERRY_TEST_AT_ONCE=10` writes ten rows with each COPY.
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<i64>().ok());
    let (rounds, at_once) = (
        number("WALFERRY_TEST_MOVES").unwrap_or(3),
        number("WALFERRY_TEST_AT_ONCE").unwrap_or(1),
    );
    let kills = number("WALFERRY_TEST_ORDERLY").is_none();
    let writes = Writes::start(&world, &one, EXISTING, at_once);
    let moved = |beyond: i64| {
        let topic = one.topic("order");
        wait_for("records to arrive", || {
            let there = kafka.topics().contains(&topic);
            (there && kafka.read(&[topic.clone()]).len() as i64 > beyond).then_some(())
        });
    };
    moved(20);
    let mut moves: Vec<Move> = Vec::new();
    for round in 0..rounds {
        let hard = kills && round % 2 == 1;
        let in_order = connect.end(hard);
        if in_order {
            assert_nobody_runs(&kafka, "Connect");
        }
        moves.push(Move::now(&kafka, &one, "Connect", !in_order));
        let mut walferry = start(&kafka, &format!("takeover{round}"));
        wait_for_turn(&mut walferry);
        let names = walferry.get("/connectors").expect("an answer").body;
        assert_eq!(names, r#"["one","two"]"#, "those of other classes are left alone");
        assert!(walferry.output().contains("FileStreamSource"), "and named");
        assert_eq!(state_after_start(&walferry, "two"), "STOPPED");
        wait_for("the connector to run", || {
            (state(walferry.port(), "one")? == "RUNNING").then_some(())
        });
        let so_far = kafka.read(&[one.topic("order")]).len() as i64;
        moved(so_far + 50);
        // It stores offsets while rows flow, so a crash repeats only what came after the last one.
        let by_connect = moves.last().map_or(0, |ended| ended.stored);
        wait_for("Walferry to store an offset", || {
            (stored(&kafka) > by_connect).then_some(())
        });
        let output = walferry.output();
        assert!(output.contains("continuing from the stored offset"), "{output}");
        assert!(!output.contains("reading existing rows"), "{output}");
        if hard {
            walferry.kill();
        } else {
            assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
            assert_nobody_runs(&kafka, "Walferry");
        }
        moves.push(Move::now(&kafka, &one, "Walferry", hard));
        connect = start_connect();
        wait_for("the connector to run", || {
            (state(connect.port(), "one")? == "RUNNING").then_some(())
        });
        wait_for("the other connector to be stopped", || {
            (state(connect.port(), "two")? == "STOPPED").then_some(())
        });
        let so_far = kafka.read(&[one.topic("order")]).len() as i64;
        moved(so_far + 50);
    }
    let (written, positions) = writes.end();
    let values = || -> Vec<i64> {
        let records = kafka.read(&[one.topic("order")]);
        records
            .iter()
            .filter_map(|record| record.value_text()?.parse().ok())
            .collect()
    };
    wait_for("the last row", || values().contains(&written).then_some(()));
    connect.discard();
    let records = kafka.read(&[one.topic("order")]);
    assert_runs(&records, &["k"], written);
    let values = values();
    for row in 1..=EXISTING {
        let times = values.iter().filter(|value| **value == row).count();
        assert_eq!(times, 1, "row {row} was read again by another snapshot");
    }
    for (number, &Move { at, who, hard, stored }) in moves.iter().enumerate() {
        let end = moves.get(number + 1).map_or(values.len(), |next| next.at);
        let furthest = values[..at].iter().max().copied().unwrap_or_default();
        let again: Vec<i64> = values[at..end]
            .iter()
            .copied()
            .filter(|value| *value <= furthest)
            .collect();
        let how = if hard { "is killed" } else { "ends in order" };
        println!("{who} {how} after {at} records: {} are sent again", again.len());
        // Each row is a transaction with one change, so what Connect's offset names was delivered.
        if who == "Connect" && !hard && at_once == 1 {
            assert!(again.is_empty(), "{again:?} are sent again after an orderly end");
        }
        // At an orderly end, Walferry stores what was delivered. Connect may start at the transaction that was the last.
        if who == "Walferry" && !hard {
            assert!(
                again.len() as i64 <= at_once,
                "{again:?} are sent again after an orderly end"
            );
        }
        // Whoever it was, the other one goes on from the stored offset.
        for value in &again {
            let committed = positions[value];
            assert!(
                committed >= stored,
                "{who} {how}: event {value} is sent again, which was committed by {committed}; {stored} was stored"
            );
        }
    }
    let repeated = values.len() as i64 - written;
    println!("{written} rows in {} moves, {repeated} sent again", moves.len());
    // Both have found the same partition for the key.
    assert_eq!(kafka.ends(&["connect-offsets".into()]).len(), 5);
    let offsets = offsets_of_one(&kafka, "takeover");
    for by_walferry in [false, true] {
        assert!(offsets.iter().any(|(_, by)| *by == by_walferry), "{offsets:?}");
    }
    assert!(
        offsets.iter().all(|(partition, _)| *partition == offsets[0].0),
        "{offsets:?}"
    );
}

/// Rows of one COPY share a position in the log, and Debezium goes on behind the position that is stored.
#[test]
fn the_rest_of_a_copy_arrives_when_connect_goes_on_within_it() {
    let (world, kafka) = (world::shared(), Kafka::start());
    let one = Outbox::on(&world.postgres, &kafka, "takeover_copy");
    let mut config = one.config_with([
        ("transforms", "outbox,number"),
        (
            "transforms.number.type",
            "org.apache.kafka.connect.transforms.Cast$Value",
        ),
        ("transforms.number.spec", "int64"),
    ]);
    let mut walferry = start(&kafka, "takeover_copy");
    wait_for_turn(&mut walferry);
    let answer = walferry.send("PUT", "/connectors/one/config", &Value::Object(config.clone()));
    assert_eq!(answer.expect("an answer").status, 201);
    one.wait_until_streaming(&mut walferry);
    // It stops at the sixth row.
    one.database.sql().run(
        "copy outbox from program 'for i in 1 2 3 4 5 no 7 8 9; do printf \"${i#no}0\\torder\\tk\\tCreated\\t$i\\n\"; done'",
    );
    kafka.wait_for_records(&one.topic("order"), 5);
    wait_for("the connector to fail", || {
        let status = walferry.get("/connectors/one/status")?.json();
        (status["tasks"][0]["state"] == "FAILED").then_some(())
    });
    let stopped = request(walferry.port(), "PUT", "/connectors/one/stop", None);
    assert_eq!(stopped.expect("an answer").status, 204);
    wait_for_state(&kafka, "status-connector-one", "STOPPED");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    let connect = Connect::start_with(&kafka, &[]);
    config.insert("errors.tolerance".into(), "all".into());
    let body = Value::Object(config);
    let answer = request(connect.port(), "PUT", "/connectors/one/config", Some(&body));
    assert_eq!(answer.expect("an answer").status, 200);
    connect.resume("one");
    one.insert("k", 10, 10);
    let values = || -> BTreeSet<String> {
        let records = kafka.read(&[one.topic("order")]);
        records
            .iter()
            .filter_map(|record| record.value_text().map(ToOwned::to_owned))
            .collect()
    };
    wait_for("the last row", || values().contains("10").then_some(()));
    connect.discard();
    let expected = ["1", "2", "3", "4", "5", "7", "8", "9", "10"];
    assert_eq!(values(), expected.map(ToOwned::to_owned).into());
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
    let writes = Writes::start(&world, &one, 0, 1);
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
    // A connection that is lost and made again says so, too.
    assert!(
        output.matches("continuing from the stored offset").count() >= 2,
        "{output}"
    );
    assert!(!output.contains("reading existing rows"), "{output}");
    let (written, _) = writes.end();
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

    // It goes back as the documents say. A start of the old command, forgotten somewhere, leaves it there.
    let back = json!({ "name": "one", "config": one.config() }).to_string();
    std::fs::write(walferry.config_file().with_file_name("back.json"), back)
        .expect("the scratch folder can be written");
    let exported = walferry.command_at(["offsets", "export", "--config", "back.json", "--data-dir", "data"]);
    assert!(exported.status.success(), "{exported:?}");
    let offsets = serde_json::from_slice(&exported.stdout).expect("the offset as JSON");
    let patched = request(connect.port(), "PATCH", "/connectors/one/offsets", Some(&offsets)).expect("an answer");
    assert_eq!(patched.status, 200, "{}", patched.body);
    connect.resume("one");
    one.insert("k", written + 1, written + 3);
    let expected = records.len() + 3;
    kafka.wait_for_records(&one.topic("order"), expected);
    walferry.start_again();
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let output = walferry.output();
    let last = &output[output.rfind("is not started here").expect("it is refused")..];
    for text in [
        "WF0550",
        "has gone back",
        "RUNNING",
        "--take one",
        "connectors.json",
        "/connectors/one/stop",
    ] {
        assert!(last.contains(text), "{text}: {last}");
    }
    assert_eq!(state(connect.port(), "one"), Some("RUNNING".into()));

    // Once it is stopped there, the same command takes it over again, from the offset that it has there.
    connect.stop("one");
    one.insert("k", written + 4, written + 6);
    walferry.start_again();
    wait_for_turn(&mut walferry);
    one.wait_until_streaming(&mut walferry);
    assert!(
        walferry.output().contains("it is taken over again"),
        "{}",
        walferry.output()
    );
    kafka.wait_for_records(&one.topic("order"), expected + 3);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert_runs(&kafka.read(&[one.topic("order")]), &["k"], written + 6);

    // Without a worker that answers, the configuration topic says where it belongs.
    connect.resume("one");
    connect.end(true);
    walferry.start_again();
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let output = walferry.output();
    let last = &output[output.rfind("is not started here").expect("it is refused")..];
    assert!(last.contains("connect-configs") && last.contains("STARTED"), "{last}");
    let connect = Connect::start(&kafka);
    two.insert("k", 1, 3);
    kafka.wait_for_records(&two.topic("order"), 3);
    connect.discard();
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
    connect.discard();
}

#[test]
fn an_offset_in_a_file_that_is_ahead_of_the_one_in_the_topic_is_not_passed_over() {
    let world = world::shared();
    let kafka = Kafka::start();
    let one = Outbox::on(&world.postgres, &kafka, "two_offsets");
    let mut walferry = start(&kafka, "two_offsets");
    create_and_stream(&one, &mut walferry);
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
    // The status topic says so in Connect's form, also after the end of the process and after its restart.
    wait_for_state(&kafka, "status-task-one-0", "FAILED");
    let task = state_record(&kafka, "status-task-one-0").expect("it is there");
    let names: Vec<&str> = task
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(names, ["state", "trace", "worker_id", "generation", "version"]);
    assert_eq!(task["worker_id"], walferry.admin());
    assert_eq!(task["trace"], trace, "the trace of the REST API");
    assert!(
        trace.starts_with("org.apache.kafka.connect.errors.ConnectException: "),
        "{trace}"
    );
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert_eq!(
        state_record(&kafka, "status-task-one-0").expect("it is there")["state"],
        "FAILED"
    );
    assert_eq!(
        state_record(&kafka, "status-connector-one").expect("it is there")["state"],
        "UNASSIGNED"
    );
    walferry.start_again();
    wait_for_turn(&mut walferry);
    wait_for_state(&kafka, "status-connector-one", "RUNNING");
    wait_for_state(&kafka, "status-task-one-0", "FAILED");
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
fn a_second_walferry_takes_over_when_the_first_and_kafka_are_gone() {
    let world = world::shared();
    let mut kafka = Kafka::start();
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
    wait_for_turn(&mut second);
    wait_for("the second one to be ready", || {
        second.get("/ready").filter(|answer| answer.status == 200)
    });
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
    // Kafka is away, too, when it becomes the turn of the second one.
    kafka.stop(true);
    first.kill();
    one.insert("k", 6, 9);
    kafka.start_again();
    wait_for_turn(&mut second);
    one.wait_until_streaming(&mut second);
    assert_runs(&one.wait_for_event(&kafka, 9), &["k"], 9);

    // Offsets over REST are those of the topic.
    wait_for("the second one to lead", || {
        (second.ask("PUT", "/connectors/one/stop")?.status == 204).then_some(())
    });
    wait_for("the slot to be free", || (one.database.streams() == 0).then_some(()));
    let offsets = second.get("/connectors/one/offsets").expect("an answer").json();
    wait_for("the connector to have ended", || {
        (second.send("PATCH", "/connectors/one/offsets", &offsets)?.status == 200).then_some(())
    });
    assert_eq!(
        second.get("/connectors/one/offsets").expect("an answer").json(),
        offsets
    );
    assert_eq!(second.terminate(), Some(0), "{}", second.output());
    second.start_again();
    wait_for_turn(&mut second);
    assert_eq!(
        state_after_start(&second, "one"),
        "STOPPED",
        "it stays as it was wanted"
    );
    assert_eq!(second.terminate(), Some(0), "{}", second.output());
}

#[test]
fn a_process_that_stood_still_or_lost_kafka_writes_nothing_and_waits_for_its_turn() {
    let world = world::shared();
    let mut kafka = Kafka::start();
    let one = Outbox::on(&world.postgres, &kafka, "lost_turn");
    let mut first = start(&kafka, "first");
    create_and_stream(&one, &mut first);
    one.insert("k", 1, 50);
    kafka.wait_for_records(&one.topic("order"), 50);
    one.wait_until_confirmed();
    let mut second = start(&kafka, "second");
    wait_for_turn(&mut second);
    let everywhere = [first.admin(), second.admin()];
    wait_for("both to have their parts", || {
        let id = second.get("/connectors/one/status")?.json()["connector"]["worker_id"].clone();
        let view = GroupReader::open(&topics(&kafka, "walferry-test")).ok()?.look().ok()?;
        let are_members = everywhere.iter().all(|admin| view.has(&format!("http://{admin}")));
        let owner = view.owner(work_partition("one"))?.address.clone()?;
        (view.is_settled && are_members && view.members.len() == 2 && id == owner["http://".len()..]).then_some(())
    });
    // The one that runs it is the first here.
    let id = second.get("/connectors/one/status").expect("an answer").json()["connector"]["worker_id"].clone();
    if id == second.admin() {
        std::mem::swap(&mut first, &mut second);
    }
    // The first one stands still, and so do its sockets. The server gives up its walsender after a while: here at once.
    first.hang();
    one.insert("k", 51, 100);
    wait_for("the second one to be alone", || {
        let view = GroupReader::open(&topics(&kafka, "walferry-test")).ok()?.look().ok()?;
        (view.is_settled && view.members.len() == 1).then_some(())
    });
    let walsender = "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name";
    one.database.sql().run(&format!("{walsender} = '{}'", one.slot()));
    kafka.wait_for_records(&one.topic("order"), 100);
    one.wait_until_confirmed();
    let records = kafka.read(&[one.topic("order")]).len();
    first.resume();
    wait_for("the first one to notice that it was left out", || {
        assert!(first.runs(), "walferry ended:\n{}", first.output());
        first.output().contains("WF0712").then_some(())
    });
    wait_for_turn(&mut first);
    let output = first.output();
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
    one.wait_for_event(&kafka, 150);
    // Kafka may be away for longer than a turn lasts. The process waits.
    kafka.stop(true);
    one.insert("k", 151, 200);
    wait_for("the turn to be lost", || {
        assert!(first.runs(), "walferry ended:\n{}", first.output());
        (first.output().matches("WF0712").count() > output.matches("WF0712").count()).then_some(())
    });
    kafka.start_again();
    // Records may have come twice, so their number alone does not tell.
    let records = wait_for("all events", || {
        let records = kafka.read(&[one.topic("order")]);
        let events: std::collections::BTreeSet<_> = records.iter().map(|record| record.value.clone()).collect();
        (events.len() == 200).then_some(records)
    });
    assert_runs(&records, &["k"], 200);
    assert!(!first.output().contains("WF0315"), "{}", first.output());
    assert_eq!(first.terminate(), Some(0), "{}", first.output());
}

/// Creates the connector `one` when the process has its turn, and waits until it streams.
#[track_caller]
fn create_and_stream(one: &Outbox, walferry: &mut Walferry) {
    wait_for_turn(walferry);
    let answer = walferry.send("PUT", "/connectors/one/config", &Value::Object(one.config()));
    assert_eq!(answer.expect("an answer").status, 201);
    one.wait_until_streaming(walferry);
}

/// The last record of the offset topic, which has one partition and one connector.
#[track_caller]
fn last_offset(kafka: &Kafka) -> Record {
    let offsets = kafka.read(&["connect-offsets".into()]);
    let last = offsets.into_iter().rfind(|record| record.value.is_some());
    last.expect("there is an offset")
}

#[track_caller]
fn position(offset: &Record) -> u64 {
    let offset: Value = serde_json::from_str(offset.value_text().unwrap_or_default()).expect("it is JSON");
    offset["lsn_proc"].as_u64().expect("it has a position")
}

/// A machine that was cut off sends what its network had not passed on when the way is free again, though its process is long gone.
#[test]
fn an_offset_that_arrives_after_a_later_one_does_not_stop_the_connector() {
    let world = world::shared();
    let kafka = Kafka::start();
    let one = Outbox::on(&world.postgres, &kafka, "late_offset");
    let mut first = start(&kafka, "first");
    create_and_stream(&one, &mut first);
    one.insert("k", 1, 50);
    kafka.wait_for_records(&one.topic("order"), 50);
    one.wait_until_confirmed();
    let early = last_offset(&kafka);
    one.insert("k", 51, 100);
    kafka.wait_for_records(&one.topic("order"), 100);
    one.wait_until_confirmed();
    let confirmed = position(&last_offset(&kafka));
    first.kill();
    kafka.produce_again(&early);
    assert!(
        position(&last_offset(&kafka)) < confirmed,
        "the earlier one is the last"
    );

    let mut second = start(&kafka, "second");
    one.wait_until_streaming(&mut second);
    one.insert("k", 101, 150);
    let records = kafka.wait_for_records(&one.topic("order"), 150);
    assert_runs(&records, &["k"], 150);
    assert!(second.output().contains("arrived late"), "{}", second.output());
    one.wait_until_confirmed();
    assert!(
        position(&last_offset(&kafka)) > confirmed,
        "the last one is right again"
    );
    assert_eq!(second.terminate(), Some(0), "{}", second.output());
}

#[test]
fn a_stop_while_the_turn_is_lost_says_that_the_offset_was_not_stored() {
    let world = world::shared();
    let kafka = Kafka::start();
    let one = Outbox::on(&world.postgres, &kafka, "lost_turn_stop");
    let mut walferry = start(&kafka, "stopped");
    create_and_stream(&one, &mut walferry);
    one.insert("k", 1, 50);
    kafka.wait_for_records(&one.topic("order"), 50);
    one.wait_until_confirmed();

    // It is told to stop, and the brokers do not answer until its turn is over.
    kafka.hang();
    one.insert("k", 51, 100);
    wait_for("records under way", || {
        let metrics = walferry.get("/metrics")?.body;
        let under_way = metrics
            .lines()
            .find(|line| line.starts_with("walferry_in_flight_records{"))?;
        (!under_way.ends_with(" 0")).then_some(())
    });
    assert_eq!(walferry.terminate(), Some(4), "{}", walferry.output());
    assert!(walferry.output().contains("WF0712"), "{}", walferry.output());
    kafka.resume();
    walferry.start_again();
    wait_for_turn(&mut walferry);
    one.wait_until_streaming(&mut walferry);
    let events = || {
        let records = kafka.read(&[one.topic("order")]);
        let events: std::collections::BTreeSet<_> = records.into_iter().map(|record| record.value).collect();
        events.len()
    };
    wait_for("all events", || (events() == 100).then_some(()));

    // It has lost its turn, has said so, and waits for it: there is nothing that it could store.
    kafka.hang();
    let told = walferry.output().matches("WF0712").count();
    wait_for("the turn to be lost", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (walferry.output().matches("WF0712").count() > told).then_some(())
    });
    wait_for("it to wait for its turn", || {
        walferry.get("/slots").filter(|answer| answer.status == 503)
    });
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// The records of the status topic about a connector `name` that has sent records to one topic.
fn keys_of(name: &str, topic: &str) -> [String; 3] {
    [
        format!("status-connector-{name}"),
        format!("status-task-{name}-0"),
        format!("status-topic-{topic}:connector-{name}"),
    ]
}

#[test]
fn connectors_of_files_run_beside_those_of_topics_and_all_keep_their_state_there() {
    let world = world::shared();
    let kafka = Kafka::start();
    let (one, two) = (
        Outbox::on(&world.postgres, &kafka, "of_file"),
        Outbox::on(&world.postgres, &kafka, "of_topic"),
    );
    let mut worker: Vec<String> = WORKER.iter().map(ToString::to_string).collect();
    worker.push("rest.advertised.host.name=walferry-1".into());
    let options = WalferryOptions {
        name: "one".into(),
        worker,
        ..one.options(one.config())
    };
    let surroundings = Surroundings {
        without_data_dir: true,
        ..Surroundings::default()
    };
    let mut walferry = Walferry::start_in(options, surroundings);
    wait_for_turn(&mut walferry);
    let answer = walferry.send("PUT", "/connectors/two/config", &Value::Object(two.config()));
    assert_eq!(answer.expect("an answer").status, 201);
    for outbox in [&one, &two] {
        outbox.wait_until_streaming(&mut walferry);
        outbox.insert("k", 1, 3);
        kafka.wait_for_records(&outbox.topic("order"), 3);
        outbox.wait_until_confirmed();
    }
    assert_eq!(walferry.get("/connectors").expect("an answer").body, r#"["one","two"]"#);
    let offsets = latest(&kafka, "connect-offsets");
    for key in [r#"["one",{"server":"of_file"}]"#, r#"["two",{"server":"of_topic"}]"#] {
        assert!(
            offsets.iter().any(|record| record.key_text() == Some(key)),
            "{key}: {offsets:?}"
        );
    }
    let has_config = |name: &str| {
        let configs = latest(&kafka, "connect-configs");
        let key = format!("connector-{name}");
        configs
            .iter()
            .any(|record| record.key_text() == Some(&key) && record.value.is_some())
    };
    assert!(
        has_config("two") && !has_config("one"),
        "what is in a file is not copied into the topic"
    );
    let status = walferry.get("/connectors/one/status").expect("an answer").json();
    assert_eq!(
        status["connector"]["worker_id"],
        format!("walferry-1:{}", walferry.port())
    );
    let topics = |walferry: &Walferry, name: &str| {
        let answer = walferry.get(&format!("/connectors/{name}/topics")).expect("an answer");
        answer.json()[name]["topics"].clone()
    };
    assert_eq!(topics(&walferry, "one"), json!(["of_file.order"]));
    let about_one = keys_of("one", "of_file.order");
    let about_two = keys_of("two", "of_topic.order");
    for (keys, name, topic) in [
        (&about_one, "one", "of_file.order"),
        (&about_two, "two", "of_topic.order"),
    ] {
        for key in &keys[..2] {
            wait_for_state(&kafka, key, "RUNNING");
        }
        let record = wait_for("the topic to be told", || state_record(&kafka, &keys[2]));
        let told = &record["topic"];
        assert!(told["discoverTimestamp"].is_u64(), "{record}");
        assert_eq!(
            (&told["name"], &told["connector"], &told["task"]),
            (&topic.into(), &name.into(), &0.into())
        );
    }

    // After an orderly end, nobody runs them.
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    for key in about_one[..2].iter().chain(&about_two[..2]) {
        assert_eq!(
            state_record(&kafka, key).expect("it is there")["state"],
            "UNASSIGNED",
            "{key}"
        );
    }

    let bootstrap = kafka.bootstrap();
    let command = [
        "check",
        "--config",
        "connector.json",
        "--worker",
        "worker.properties",
        "--admin",
        "127.0.0.1:0",
    ];
    let checked = walferry.command_at([
        command[0],
        command[1],
        command[2],
        command[3],
        command[4],
        command[5],
        command[6],
        "--bootstrap-servers",
        &bootstrap,
    ]);
    let checked = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(
        checked.contains("a start continues from the stored offset"),
        "{checked}"
    );

    // The file is another one now, with the name of a connector in the topics: it overwrites this connector's configuration.
    walferry.options().name = "two".into();
    walferry.options().config = two.config_with([("poll.interval.ms", "7")]);
    walferry.start_again();
    wait_for_turn(&mut walferry);
    assert_eq!(walferry.get("/connectors").expect("an answer").body, r#"["two"]"#);
    let output = walferry.output();
    assert!(
        output.contains("connector.json") && output.contains("overwrites"),
        "{output}"
    );
    let config = walferry.get("/connectors/two/config").expect("an answer").json();
    assert_eq!(config["poll.interval.ms"], "7");
    wait_for("the configuration in the topic", || {
        let configs = latest(&kafka, "connect-configs");
        let record = configs
            .iter()
            .find(|record| record.key_text() == Some("connector-two"))?;
        record.value_text()?.contains(r#""poll.interval.ms":"7""#).then_some(())
    });
    let answer = walferry.ask("DELETE", "/connectors/two").expect("an answer");
    assert_eq!(answer.status, 403, "{}", answer.body);
    // Of a connector that is gone, nothing stays but its offset.
    wait_for("the states of the other one to be removed", || {
        about_one
            .iter()
            .all(|key| state_record(&kafka, key).is_none())
            .then_some(())
    });

    // Topics are remembered until they are reset.
    assert_eq!(topics(&walferry, "two"), json!(["of_topic.order"]));
    two.wait_until_streaming(&mut walferry);
    let answer = walferry.ask("PUT", "/connectors/two/topics/reset").expect("an answer");
    assert_eq!(answer.status, 202);
    assert_eq!(topics(&walferry, "two"), json!([]));
    wait_for("the tombstone of the topic", || {
        state_record(&kafka, &about_two[2]).is_none().then_some(())
    });
    two.insert("k", 4, 5);
    assert_runs(&kafka.wait_for_records(&two.topic("order"), 5), &["k"], 5);
    assert_eq!(topics(&walferry, "two"), json!(["of_topic.order"]));
    wait_for("the topic to be told again", || state_record(&kafka, &about_two[2]));
    two.wait_until_confirmed();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    // An earlier time without these topics has left a newer offset in the default data directory: it is not passed over.
    let offset =
        json!({ "lsn": 1_000_000_000_000_u64, "lsn_proc": 1_000_000_000_000_u64, "lsn_commit": 1_000_000_000_000_u64 });
    let offsets = walferry.config_file().with_file_name("offsets.json");
    std::fs::write(&offsets, offset.to_string()).expect("the scratch folder can be written");
    let which = ["--config", "connector.json", "--data-dir", "state/walferry"];
    let imported = walferry.command_at([
        "offsets",
        "import",
        which[0],
        which[1],
        which[2],
        which[3],
        "offsets.json",
    ]);
    assert!(imported.status.success(), "{imported:?}");
    walferry.start_again();
    assert_eq!(walferry.wait(), Some(4), "{}", walferry.output());
    let output = walferry.output();
    for text in ["WF0610", "E8/D4A51000", "state/walferry", "in the offset topic"] {
        assert!(output.contains(text), "{text}: {output}");
    }
    wait_for_state(&kafka, &about_two[1], "FAILED");
    assert_eq!(
        state_record(&kafka, &about_two[0]).expect("it is there")["state"],
        "UNASSIGNED"
    );
}

#[test]
fn the_slot_is_not_confirmed_before_the_offset_topic_has_acknowledged() {
    let world = world::shared();
    let kafka = Kafka::start();
    let one = Outbox::on(&world.postgres, &kafka, "unacknowledged");
    let mut walferry = start(&kafka, "unacknowledged");
    create_and_stream(&one, &mut walferry);
    one.insert("k", 1, 3);
    kafka.wait_for_records(&one.topic("order"), 3);
    one.wait_until_confirmed();
    let compact = ("cleanup.policy", "compact");
    kafka.configure_topic("connect-offsets", &[compact, ("max.message.bytes", "1")]);
    let mut rows = 3;
    // The broker may apply the setting a moment later.
    wait_for("the offset to be refused", || {
        rows += 1;
        one.insert("k", rows, rows);
        walferry.output().contains("did not accept a record").then_some(())
    });
    one.insert("k", rows + 1, rows + 3);
    rows += 3;
    let end = one.wal_end();
    kafka.wait_for_records(&one.topic("order"), rows as usize);
    // Several status updates come after that. Each could have moved the slot.
    let reply = "select reply_time from pg_stat_replication where application_name like 'Walferry%' and pid in
                 (select active_pid from pg_replication_slots where database = current_database())";
    let mut replies = BTreeSet::new();
    wait_for("status updates", || {
        // Each commit asks for one.
        rows += 1;
        one.insert("k", rows, rows);
        replies.extend(one.database.sql().value(reply));
        assert!(
            one.confirmed() < end,
            "the slot has moved, and the offset is not stored"
        );
        (replies.len() > 4).then_some(())
    });
    kafka.configure_topic("connect-offsets", &[compact]);
    one.wait_until_confirmed();
    assert_runs(&kafka.read(&[one.topic("order")]), &["k"], rows);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
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
    connect.discard();
}

/// Each time, the key of the offset belongs to another partition.
#[test]
fn an_offset_whose_topic_is_given_more_partitions_again_and_again_is_the_last_one() {
    const COMPACTED: [(&str, &str); 1] = [("cleanup.policy", "compact")];
    let world = world::shared();
    for support in ["requested", "required"] {
        let kafka = Kafka::start();
        let server = format!("wider_{support}");
        let one = Outbox::on(&world.postgres, &kafka, &server);
        kafka.create_topic_with("connect-offsets", 1, &COMPACTED);
        let mut walferry = start(&kafka, &server);
        wait_for_turn(&mut walferry);
        let config = Value::Object(one.config_with([("exactly.once.support", support)]));
        let answer = walferry.send("PUT", "/connectors/one/config", &config);
        assert_eq!(answer.map(|answer| answer.status), Some(201));
        let mut rows = 0;
        let mut deliver = |walferry: &mut Walferry| {
            one.wait_until_streaming(walferry);
            one.insert("k", rows + 1, rows + 5);
            rows += 5;
            one.wait_until_confirmed();
        };
        deliver(&mut walferry);
        for partitions in [3, 7, 25] {
            assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
            kafka.grow_topic("connect-offsets", partitions);
            walferry.start_again();
            wait_for_turn(&mut walferry);
            deliver(&mut walferry);
        }
        // The offset is removed from all partitions.
        for (method, path, code) in [
            ("PUT", "/connectors/one/stop", 204),
            ("DELETE", "/connectors/one/offsets", 200),
        ] {
            wait_for(&format!("{method} {path}"), || {
                (walferry.ask(method, path)?.status == code).then_some(())
            });
        }
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        assert_runs(&kafka.read(&[one.topic("order")]), &["k"], rows);
        let (key, offsets) = (
            format!(r#"["one",{{"server":"{server}"}}]"#),
            kafka.read(&["connect-offsets".into()]),
        );
        let mut last = HashMap::new();
        for record in offsets.iter().filter(|record| record.key_text() == Some(&key)) {
            last.insert(record.partition, record.value.is_some());
        }
        assert!(
            last.len() > 2,
            "{server} has stayed in the partitions {last:?}: choose another name"
        );
        assert!(last.values().all(|is_there| !is_there), "{last:?}");
    }
}

#[test]
fn topics_written_in_transactions_are_read_to_their_end_without_aborted_records() {
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
