//! Exactly-once delivery: a consumer of committed records sees each change once, whatever ends.

use std::{collections::HashMap, sync::mpsc, thread, time::Duration};

use serde_json::{Value, json};
use walferry_testkit::servers::{Kafka, Record, Surroundings, Walferry, WalferryOptions, wait_for};

use crate::{
    outbox::{Outbox, insert_sql},
    takeover,
    world::{self, World},
};

/// Asks for exactly-once delivery.
const REQUIRED: (&str, &str) = ("exactly.once.support", "required");
/// The topic of offsets if nothing names one.
const OFFSETS: &str = "walferry-offsets";

/// Starts a connector that delivers exactly once, with its other state in files.
fn start(outbox: &Outbox) -> Walferry {
    outbox.start_with(outbox.config_with([REQUIRED]))
}

/// Waits until so many events are committed, and returns all that are.
#[track_caller]
fn wait_for_committed(kafka: &Kafka, topic: &str, count: usize) -> Vec<Record> {
    kafka.wait_for_records(topic, 1);
    wait_for(&format!("{count} committed records on topic {topic}"), || {
        let records = kafka.read(&[topic.to_owned()]);
        (records.len() >= count).then_some(records)
    })
}

/// The events of each key are there once, in order, from 1 to `count`.
#[track_caller]
fn assert_once(records: &[Record], keys: &[&str], count: i64) {
    let mut last: HashMap<&str, i64> = keys.iter().map(|key| (*key, 0)).collect();
    for record in records {
        let key = record.key_text().expect("every event has a key");
        let number = record.value_text().and_then(|text| text.parse().ok());
        let last = last.get_mut(key).unwrap_or_else(|| panic!("unknown key {key}"));
        assert_eq!(number, Some(*last + 1), "{key}: the event after {last}");
        *last += 1;
    }
    for (key, last) in last {
        assert_eq!(last, count, "events of {key}");
    }
}

/// Writes single rows and large transactions, and kills the process again and again meanwhile. Returns how many events each key has.
fn kill_under_load(outbox: &Outbox, walferry: &mut Walferry, keys: &[&str]) -> i64 {
    const ROUNDS: i64 = 8;
    const ROWS: i64 = 1_500;
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..ROUNDS {
                let (first, last) = (round * ROWS + 1, (round + 1) * ROWS);
                let of_all = |from, to| {
                    let inserts: Vec<_> = keys.iter().map(|key| insert_sql(key, from, to)).collect();
                    inserts.join("; ")
                };
                let sql = outbox.database.sql();
                sql.run(&format!("begin; {}; commit", of_all(first, last - 30)));
                (last - 29..=last).for_each(|row| sql.run(&of_all(row, row)));
            }
        });
        let mut pause_ms = 150;
        while !writer.is_finished() {
            thread::sleep(Duration::from_millis(pause_ms));
            walferry.kill();
            walferry.start_again();
            // Long enough to connect, at most times long enough to commit something.
            pause_ms = (pause_ms * 31 + 11) % 900;
        }
        writer.join().expect("the writer writes");
    });
    ROUNDS * ROWS
}

#[test]
fn kill_9_at_any_moment_neither_loses_nor_repeats_a_change() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_killed");
    let topic = outbox.topic("order");
    world.kafka.create_topic(&topic, 3);
    let mut walferry = start(&outbox);
    let keys = ["a", "b", "c", "d"];
    let count = kill_under_load(&outbox, &mut walferry, &keys);
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_until_confirmed();
    assert_once(&world.kafka.read(&[topic]), &keys, count);
    assert!(walferry.stored_offset().is_none(), "the offset is in no file");
}

#[test]
fn an_orderly_end_commits_everything_and_the_next_start_repeats_nothing() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_restarted");
    // The second one commits only every hour, and at its end.
    let seldom = [
        REQUIRED,
        ("transaction.boundary", "interval"),
        ("transaction.boundary.interval.ms", "3600000"),
    ];
    let mut before = 0;
    for config in [outbox.config_with([REQUIRED]), outbox.config_with(seldom)] {
        let mut walferry = outbox.start_with(config);
        for _ in 0..2 {
            outbox.insert("k", before + 1, before + 700);
            before += 700;
            wait_for("the rows to be sent", || {
                let metrics = walferry.get("/metrics")?.body;
                let sent = metrics
                    .lines()
                    .find(|line| line.starts_with("walferry_records_total{"))?;
                sent.ends_with(" 700").then_some(())
            });
            assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
            assert_eq!(outbox.unconfirmed_rows(), 0, "rows that the slot would send again");
            let records = world.kafka.read(&[outbox.topic("order")]);
            assert_once(&records, &["k"], before);
            walferry.start_again();
            outbox.wait_until_streaming(&mut walferry);
        }
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
}

#[test]
fn changes_are_committed_soon_after_they_are_sent_or_after_the_interval() {
    let world = world::shared();
    for (name, boundary) in [("once_soon", "poll"), ("once_later", "interval")] {
        let outbox = Outbox::new(&world, name);
        let _walferry = outbox.start_with(outbox.config_with([
            REQUIRED,
            ("transaction.boundary", boundary),
            ("transaction.boundary.interval.ms", "300"),
        ]));
        for event in 1..=20 {
            outbox.insert("k", event, event);
            // Nothing follows that could push it out.
            let records = wait_for_committed(&world.kafka, &outbox.topic("order"), event as usize);
            assert_once(&records, &["k"], event);
        }
    }
}

#[test]
fn an_offset_in_a_file_goes_on_in_the_topic_and_comes_back() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_moved");
    let topic = outbox.topic("order");
    let mut walferry = outbox.start();
    let mut count = 0;
    for requires in [false, true, false, true] {
        let config = match requires {
            true => outbox.config_with([REQUIRED]),
            false => outbox.config(),
        };
        walferry.options().config = config;
        walferry.terminate();
        // While it is away, so that the start has to know where it ended.
        outbox.insert("k", count + 1, count + 100);
        walferry.start_again();
        outbox.wait_until_streaming(&mut walferry);
        outbox.insert("k", count + 101, count + 200);
        count += 200;
        let records = wait_for_committed(&world.kafka, &topic, count as usize);
        assert_once(&records, &["k"], count);
        outbox.wait_until_confirmed();
        assert_eq!(walferry.stored_offset().is_some(), !requires, "an offset in the file");
        let config = walferry.config_file().display().to_string();
        let shown = walferry.command(["offsets", "show", "--config", &config]);
        let told = String::from_utf8_lossy(&shown.stderr).into_owned();
        assert_eq!(shown.status.success(), !requires, "{told}");
        if requires {
            assert!(told.contains(OFFSETS), "{told}");
        }
    }
}

#[test]
fn records_wait_for_kafka_and_come_once() {
    const TIMEOUT: Duration = Duration::from_secs(6);
    let mut world = world::alone();
    let outbox = Outbox::new(&world, "once_away");
    let topic = outbox.topic("order");
    let mut walferry = outbox.start_with(outbox.config_with([
        REQUIRED,
        // Transactions end while Kafka is away.
        (
            "producer.override.transaction.timeout.ms",
            &TIMEOUT.as_millis().to_string(),
        ),
    ]));
    outbox.insert("k", 1, 500);
    wait_for_committed(&world.kafka, &topic, 500);
    for round in 0..3 {
        let is_crash = round != 1;
        if round == 2 {
            // No transaction is open or being committed, and the next one cannot come to its end.
            outbox.wait_until_confirmed();
            world.kafka.hang();
        }
        thread::scope(|scope| {
            let (written, half) = mpsc::channel();
            let outbox = &outbox;
            let writer = scope.spawn(move || {
                for event in 1..=60 {
                    let first = 500 + round * 3_000 + (event - 1) * 50 + 1;
                    outbox.insert("k", first, first + 49);
                    if event == 20 {
                        written.send(()).expect("somebody waits");
                    }
                }
            });
            half.recv().expect("the writer writes");
            if round == 2 {
                wait_for("records to be under way", || {
                    let metrics = walferry.get("/metrics")?.body;
                    let line = metrics
                        .lines()
                        .find(|line| line.starts_with("walferry_in_flight_records{"))?;
                    (line.rsplit(' ').next()?.parse::<f64>().ok()? > 0.0).then_some(())
                });
            }
            world.kafka.stop(is_crash);
            // A transaction outlasts its timeout: its records time out as well. The client says so of the record or of the transaction,
            // whichever it comes to first.
            if round == 2 {
                wait_for("the records of the open transaction to time out", || {
                    let output = walferry.output();
                    let has_timed_out = output.contains("Message timed out") || output.contains("message(s) timed out");
                    has_timed_out.then_some(())
                });
            }
            world.kafka.start_again();
            writer.join().expect("the writer writes");
        });
        assert!(walferry.runs(), "{}", walferry.output());
    }
    outbox.wait_until_confirmed();
    assert_once(&world.kafka.read(&[topic]), &["k"], 9_500);
}

#[test]
fn another_producer_with_the_same_id_is_fenced_or_fences_and_nothing_is_repeated() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_fenced");
    let topic = outbox.topic("order");
    let mut walferry = start(&outbox);
    for round in 0..4 {
        outbox.insert("k", round * 100 + 1, round * 100 + 100);
        // As an old process that has only hung would.
        world.kafka.fence("walferry-once_fenced-0");
    }
    let records = wait_for_committed(&world.kafka, &topic, 400);
    assert_once(&records, &["k"], 400);
    outbox.wait_until_confirmed();
    assert_once(&world.kafka.read(&[topic]), &["k"], 400);
    assert!(walferry.runs(), "{}", walferry.output());
}

/// Connectors share a partition of the topic of offsets. What is committed behind an open transaction is not shown to readers.
#[test]
fn a_transaction_that_somebody_else_leaves_open_hides_no_offset() {
    let world = world::alone();
    let outbox = Outbox::new(&world, "once_hidden");
    let topic = outbox.topic("order");
    let mut walferry = start(&outbox);
    outbox.insert("k", 1, 100);
    wait_for_committed(&world.kafka, &topic, 100);
    let open = world.kafka.leave_open(OFFSETS, "[\"other\",{\"server\":\"other\"}]");
    outbox.insert("k", 101, 200);
    wait_for_committed(&world.kafka, &topic, 200);
    walferry.kill();
    outbox.insert("k", 201, 300);
    walferry.start_again();
    // It waits: what it could read is not what was committed last.
    wait_for("word of the open transaction", || {
        let told = walferry.output().contains("another producer has a transaction open");
        told.then_some(())
    });
    assert_eq!(outbox.database.streams(), 0);
    open.abort();
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_until_confirmed();
    assert_once(&world.kafka.read(&[topic]), &["k"], 300);
}

#[test]
fn rows_before_one_that_cannot_be_sent_are_committed() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_refused");
    let mut walferry = start(&outbox);
    outbox.insert("k", 1, 50);
    // No partition takes more than a MiB.
    outbox.database.sql().run(
        "begin;
         insert into outbox values (1, 'order', 'k', 'Created', '51');
         insert into outbox select 2, 'order', 'k', 'Created', repeat('x', 3000000);
         commit",
    );
    assert_ne!(walferry.wait(), Some(0), "{}", walferry.output());
    let records = wait_for_committed(&world.kafka, &outbox.topic("order"), 51);
    assert_once(&records, &["k"], 51);
}

#[test]
fn offsets_over_rest_are_those_of_the_topic() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_rest");
    let mut walferry = Walferry::start_in(
        outbox.options(serde_json::Map::new()),
        Surroundings {
            is_worker: true,
            ..Surroundings::default()
        },
    );
    walferry.wait_until_ready();
    let path = |rest: &str| format!("/connectors/once_rest{rest}");
    let config = Value::Object(outbox.config_with([REQUIRED]));
    let made = walferry.send("PUT", &path("/config"), &config).expect("it answers");
    assert_eq!(made.status, 201, "{}", made.body);
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 1, 10);
    wait_for_committed(&world.kafka, &outbox.topic("order"), 10);
    let offsets = || walferry.get(&path("/offsets")).expect("it answers").json();
    let stored = wait_for("an offset", || {
        let stored = offsets();
        (!stored["offsets"].as_array()?.is_empty()).then_some(stored)
    });
    assert_eq!(stored["offsets"][0]["partition"], json!({ "server": "once_rest" }));

    walferry.ask("PUT", &path("/stop"));
    wait_for("the connector to stop", || {
        let patched = walferry.send("PATCH", &path("/offsets"), &stored)?;
        (patched.status == 200).then_some(())
    });
    assert_eq!(offsets(), stored);
    let removed = walferry.ask("DELETE", &path("/offsets")).expect("it answers");
    assert_eq!((removed.status, offsets()), (200, json!({ "offsets": [] })));
}

#[test]
fn a_worker_with_connects_topics_delivers_exactly_once_too() {
    let world = world::alone();
    let outbox = Outbox::new(&world, "once_worker");
    let topic = outbox.topic("order");
    world.kafka.create_topic(&topic, 3);
    let mut walferry = start_worker(&world);
    let config = Value::Object(outbox.config());
    let made = walferry.send("PUT", "/connectors/once_worker/config", &config);
    assert_eq!(made.expect("it answers").status, 201);
    outbox.wait_until_streaming(&mut walferry);
    let keys = ["a", "b", "c"];
    let count = kill_under_load(&outbox, &mut walferry, &keys);
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_until_confirmed();
    assert_once(&world.kafka.read(&[topic]), &keys, count);
}

fn start_worker(world: &World) -> Walferry {
    let mut worker: Vec<_> = takeover::WORKER.iter().map(ToString::to_string).collect();
    worker.push("exactly.once.source.support=ENABLED".into());
    let options = WalferryOptions {
        name: "once".into(),
        config: serde_json::Map::new(),
        worker,
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    };
    let surroundings = Surroundings {
        is_worker: true,
        without_data_dir: true,
        ..Surroundings::default()
    };
    let mut walferry = Walferry::start_in(options, surroundings);
    takeover::wait_for_turn(&mut walferry);
    walferry
}

#[test]
fn transactions_of_the_connectors_own_are_refused() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_own");
    let mut walferry =
        Walferry::start(outbox.options(outbox.config_with([REQUIRED, ("transaction.boundary", "connector")])));
    assert_ne!(walferry.wait(), Some(0));
    let told = walferry.output();
    assert!(told.contains("transaction.boundary"), "{told}");
}
