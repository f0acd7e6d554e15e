//! Ends of the program, orderly and not: nothing is lost, nothing is confirmed before its time.

use crate::outbox::{Outbox, assert_runs, insert_sql};
use crate::world;
use std::thread;
use std::time::Duration;
use walferry_testkit::servers::wait_for;

#[test]
fn sigterm_ends_with_everything_stored_and_confirmed() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "sigterm");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 1_000);
    world.kafka.wait_for_records(&outbox.topic("order"), 1_000);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert_eq!(outbox.unconfirmed_rows(), 0, "rows that the slot would send again");
}

#[test]
fn a_restart_goes_on_where_it_ended_and_repeats_nothing() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "restart");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 50);
    world.kafka.wait_for_records(&outbox.topic("order"), 50);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    outbox.insert("k", 51, 100);
    walferry.start_again();
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 101, 150);
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 150);
    assert_eq!(records.len(), 150);
    assert_runs(&records, &["k"], 150);
}

#[test]
fn kill_9_at_any_moment_loses_nothing() {
    const ROUNDS: i64 = 12;
    const ROWS: i64 = 2_000;
    let world = world::shared();
    let outbox = Outbox::new(&world, "killed");
    let mut walferry = outbox.start();
    let keys = ["a", "b"];
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..ROUNDS {
                let (first, last) = (round * ROWS + 1, (round + 1) * ROWS);
                // Single rows and large transactions: a kill shall also hit the middle of one.
                let sql = keys.map(|key| insert_sql(key, first, last - 20)).join("; ");
                outbox.database.sql().run(&format!("begin; {sql}; commit"));
                for row in last - 19..=last {
                    outbox
                        .database
                        .sql()
                        .run(&keys.map(|key| insert_sql(key, row, row)).join("; "));
                }
            }
        });
        let mut pause_ms = 7;
        while !writer.is_finished() {
            thread::sleep(Duration::from_millis(pause_ms));
            walferry.kill();
            walferry.start_again();
            // Long enough to connect, at most times long enough to deliver something.
            pause_ms = (pause_ms * 31 + 11) % 400;
        }
        writer.join().expect("the writer writes");
    });
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_until_confirmed();
    let records = world.kafka.read(&[outbox.topic("order")]);
    assert_runs(&records, &keys, ROUNDS * ROWS);
}

#[test]
fn the_slot_is_never_ahead_of_what_kafka_has() {
    let world = world::alone();
    let outbox = Outbox::new(&world, "never_ahead");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 10);
    outbox.wait_until_confirmed();
    let paused = world.kafka.pause();
    outbox.insert("k", 11, 2_000);
    // Reading has gone on while nothing can be acknowledged: the metric says so before the kill.
    wait_for("records to be under way", || {
        let metrics = walferry.get("/metrics")?.body;
        let line = metrics
            .lines()
            .find(|line| line.starts_with("walferry_in_flight_records{"))?;
        (line.rsplit(' ').next()?.parse::<f64>().ok()? > 0.0).then_some(())
    });
    walferry.kill();
    // A position inside the transaction may be confirmed: Postgres sends a transaction whole if its commit lies past the slot's position.
    assert_eq!(outbox.unconfirmed_rows(), 1_990, "rows that Kafka does not have");
    drop(paused);
    walferry.start_again();
    world.kafka.wait_for_records(&outbox.topic("order"), 2_000);
    outbox.wait_until_confirmed();
    // The broker may also have taken requests of the killed process.
    assert_runs(&world.kafka.read(&[outbox.topic("order")]), &["k"], 2_000);
}

#[test]
fn an_outbox_of_messages_alone_loses_nothing_when_killed() {
    const MESSAGES: usize = 3_000;
    let world = world::shared();
    let outbox = Outbox::new(&world, "messages_alone");
    let mut config = outbox.config_with([
        ("table.exclude.list", ".*"),
        ("publication.autocreate.mode", "all_tables"),
        ("transforms", "decode,outbox"),
        (
            "transforms.decode.type",
            "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
        ),
    ]);
    config.remove("table.include.list");
    let mut walferry = outbox.start_with(config);
    let topic = outbox.topic("order");
    // Messages in a transaction of their own, beside rows that are not captured, and outside of transactions.
    let send = |first: usize, last: usize| {
        for id in first..=last {
            let transactional = id % 5 != 0;
            let message = format!(
                "select pg_logical_emit_message({transactional}, 'outbox',
                   '{{\"id\": \"{id}\", \"aggregatetype\": \"order\", \"aggregateid\": \"k\", \"type\": \"made\", \"payload\": \"{id}\"}}')"
            );
            let row = format!("insert into outbox values ({id}, 'order', 'k', 'row', 'not captured')");
            outbox.database.sql().run(&match id % 3 {
                0 => format!("begin; {row}; {message}; commit"),
                1 => format!("{row}; {message}"),
                _ => message,
            });
        }
    };
    thread::scope(|scope| {
        let writer = scope.spawn(|| send(1, MESSAGES - 10));
        let mut pause_ms = 5;
        while !writer.is_finished() {
            thread::sleep(Duration::from_millis(pause_ms));
            walferry.kill();
            walferry.start_again();
            pause_ms = (pause_ms * 31 + 11) % 700;
        }
        writer.join().expect("the writer writes");
    });
    outbox.wait_until_streaming(&mut walferry);
    // An orderly end, and messages while nobody reads.
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    send(MESSAGES - 9, MESSAGES);
    walferry.start_again();
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_until_confirmed();
    let records = world.kafka.read(&[topic]);
    let mut furthest = 0;
    for record in &records {
        let id: usize = record
            .value_text()
            .and_then(|text| text.parse().ok())
            .expect("the payload is the id");
        assert!(
            id <= furthest + 1,
            "{id} comes after {furthest}: something between was skipped"
        );
        assert_eq!(record.header_text("eventType"), Some("made"));
        furthest = furthest.max(id);
    }
    assert_eq!(furthest, MESSAGES, "of {} records", records.len());
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
