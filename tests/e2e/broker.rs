//! Kafka in trouble, and records that it does not take.

use crate::outbox::{Outbox, assert_runs, insert_sql};
use crate::world;
use std::collections::BTreeSet;
use walferry_testkit::servers::{Record, Surroundings, Walferry, wait_for};

#[test]
fn rows_wait_for_a_broker_that_is_down_and_arrive_in_order() {
    let mut world = world::alone();
    let outbox = Outbox::new(&world, "broker_down");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 100);
    world.kafka.wait_for_records(&outbox.topic("order"), 100);
    world.kafka.stop(true);
    outbox.insert("k", 101, 5_000);
    wait_for("the lag to be seen", || (lag_bytes(&walferry)? > 0.0).then_some(()));
    // Otherwise, with many connectors, one could not tell which of them the line is about.
    wait_for("the outage to be logged with the connector's name", || {
        let output = walferry.output();
        let line = output
            .lines()
            .find(|line| line.contains("no Kafka broker of"))?
            .to_owned();
        assert!(line.contains("connector=\"broker_down\""), "{line}");
        Some(())
    });
    world.kafka.start_again();
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 5_000);
    outbox.wait_until_confirmed();
    assert_runs(&records, &["k"], 5_000);
    assert!(walferry.runs());
}

#[test]
fn an_outage_for_two_connectors_is_one_line_that_both_have_among_their_own() {
    let mut world = world::alone();
    let names = ["outage_one", "outage_two"];
    let [one, two] = names.map(|name| Outbox::new(&world, name));
    let surroundings = Surroundings {
        beside: Some((names[1].into(), two.config())),
        ..Surroundings::default()
    };
    let mut walferry = Walferry::start_in(one.options(one.config()), surroundings);
    for outbox in [&one, &two] {
        outbox.wait_until_streaming(&mut walferry);
        outbox.insert("k", 1, 1);
        outbox.wait_until_confirmed();
    }
    let wait_for_line = |text: &str| {
        for name in names {
            wait_for(text, || {
                let lines = walferry.get(&format!("/connectors/{name}/logs"))?.body;
                lines.contains(text).then_some(())
            });
        }
    };
    world.kafka.stop(true);
    wait_for_line("no Kafka broker of");
    let output = walferry.output();
    assert_eq!(output.matches("no Kafka broker of").count(), 1, "{output}");
    world.kafka.start_again();
    wait_for_line("kafka answers again");
    let output = walferry.output();
    assert!(output.contains("kafka_unreachable\" connectors=2"), "{output}");
}

#[test]
fn a_topic_that_is_deleted_or_given_partitions_meanwhile_loses_no_later_record() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "topic_again");
    let mut walferry = outbox.start();
    let topic = outbox.topic("order");
    outbox.insert("k", 1, 5);
    world.kafka.wait_for_records(&topic, 5);
    outbox.wait_until_confirmed();
    // What is in a topic goes with it. What comes later does not.
    world.kafka.delete_topic(&topic);
    for n in 6..=20 {
        outbox.insert("k", n, n);
    }
    let records = outbox.wait_for_event(&world.kafka, 20);
    let numbers = |records: &[Record]| -> BTreeSet<i64> {
        let values = records.iter().filter_map(|record| record.value_text());
        values.map(|text| text.parse().expect("a number")).collect()
    };
    assert!(
        (6..=20).all(|n| numbers(&records).contains(&n)),
        "{:?}",
        numbers(&records)
    );
    outbox.wait_until_confirmed();
    world.kafka.grow_topic(&topic, 5);
    for n in 21..=40 {
        outbox.insert(&format!("k{n}"), n, n);
    }
    outbox.wait_until_confirmed();
    let records = world.kafka.read(std::slice::from_ref(&topic));
    assert!(
        (6..=40).all(|n| numbers(&records).contains(&n)),
        "{:?}",
        numbers(&records)
    );
    assert!(walferry.runs());
}

#[test]
fn it_starts_before_the_broker_does() {
    let mut world = world::alone();
    let outbox = Outbox::new(&world, "broker_late");
    world.kafka.stop(false);
    let mut walferry = Walferry::start(outbox.options(outbox.config()));
    wait_for("the admin endpoint", || walferry.get("/health"));
    assert_ne!(walferry.get("/ready").map(|answer| answer.status), Some(200));
    world.kafka.start_again();
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 1, 3);
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 3), &["k"], 3);
}

#[test]
fn memory_stays_bounded_while_the_broker_hangs() {
    let world = world::alone();
    let outbox = Outbox::new(&world, "bounded");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 10);
    world.kafka.wait_for_records(&outbox.topic("order"), 10);
    let paused = world.kafka.pause();
    // 150 MB in one transaction, against 16 MiB that may be in flight.
    outbox
        .database
        .sql()
        .run("insert into outbox select n, 'order', 'k', 'T', repeat('x', 1500) from generate_series(1, 100000) n");
    wait_for("all that may be in flight to be", || {
        let (resident, _) = walferry.resident_kib()?;
        let in_flight = metric(&walferry, "walferry_in_flight_bytes{")?;
        let limit = metric(&walferry, "walferry_in_flight_limit_bytes{")?;
        assert!(resident < 200 * 1024, "{resident} KiB are resident");
        assert!(in_flight <= limit, "{in_flight} bytes are in flight");
        // Of a broker that acknowledges nothing no more is asked than a window of 1 MiB.
        (in_flight > 512.0 * 1024.0).then_some(())
    });
    drop(paused);
    world.kafka.wait_for_records(&outbox.topic("order"), 100_010);
    let (_, highest) = walferry.resident_kib().expect("walferry runs");
    // A debug build and its allocator need more than the 64 MiB of a release; the point is that 150 MB do not count.
    assert!(highest < 110 * 1024, "{highest} KiB were resident at most");
    assert!(walferry.runs());
}

#[test]
fn a_record_too_large_for_kafka_stops_with_table_key_and_size() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "too_large");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 1);
    outbox.wait_until_confirmed();
    outbox
        .database
        .sql()
        .run("insert into outbox values (99, 'order', 'heavy', 'T', repeat('x', 2000000))");
    assert_eq!(walferry.wait(), Some(3), "{}", walferry.output());
    let output = walferry.output();
    for part in ["public.outbox", "the record's key is heavy", "max.request.size"] {
        assert!(output.contains(part), "{part} is named in:\n{output}");
    }
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 1), &["k"], 1);
}

#[test]
fn a_record_too_large_goes_to_the_dead_letter_topic_where_errors_are_tolerated() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "set_aside");
    let walferry = outbox.start_with(outbox.config_with([
        ("errors.tolerance", "all"),
        ("errors.deadletterqueue.topic.name", "set_aside.dead"),
        ("errors.deadletterqueue.topic.replication.factor", "1"),
    ]));
    let sql = outbox.database.sql();
    sql.run(&insert_sql("k", 1, 1));
    sql.run("insert into outbox values (99, 'order', 'heavy', 'T', repeat('x', 2000000))");
    sql.run(&insert_sql("k", 2, 2));
    let dead = world.kafka.wait_for_records("set_aside.dead", 1);
    assert_eq!(dead[0].key_text(), Some("heavy"));
    assert_runs(&world.kafka.wait_for_records(&outbox.topic("order"), 2), &["k"], 2);
    outbox.wait_until_confirmed();
    wait_for("the record to be counted", || {
        (metric(&walferry, "walferry_records_set_aside_total{")? == 1.0).then_some(())
    });
}

fn lag_bytes(walferry: &Walferry) -> Option<f64> {
    metric(walferry, "walferry_lag_bytes{")
}

fn metric(walferry: &Walferry, start: &str) -> Option<f64> {
    let metrics = walferry.get("/metrics")?.body;
    metrics
        .lines()
        .find(|line| line.starts_with(start))?
        .rsplit(' ')
        .next()?
        .parse()
        .ok()
}
