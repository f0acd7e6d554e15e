//! The admin endpoint: health, readiness, slots, metrics.

use std::io::Write;

use crate::outbox::{Outbox, assert_runs};
use crate::world;
use walferry_testkit::servers::{Surroundings, Walferry, wait_for};

#[test]
fn the_endpoint_tells_health_readiness_slots_and_metrics() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "admin");
    let mut walferry = outbox.start();
    walferry.wait_until_ready();
    assert_eq!(walferry.get("/health").map(|answer| answer.status), Some(200));
    outbox.insert("k", 1, 7);
    world.kafka.wait_for_records(&outbox.topic("order"), 7);

    let slots = wait_for("the slot to be listed", || {
        let slots = walferry.get("/slots").filter(|answer| answer.status == 200)?;
        slots.body.contains("admin_slot").then_some(slots)
    });
    slots.json();
    wait_for("the records to be counted, and all of the slot's metrics", || {
        let metrics = walferry.get("/metrics")?.body;
        let counted = metrics.lines().any(|line| {
            line.starts_with("walferry_topic_records_total{")
                && line.contains("\"admin.order\"")
                && line.ends_with(" 7")
        });
        // A slot that is being created has no lag yet.
        let names = [
            "walferry_slot_lag_bytes{",
            "walferry_slot_retained_wal_bytes{",
            "walferry_commit_to_ack_seconds_bucket{",
        ];
        (counted && names.iter().all(|name| metrics.contains(name))).then_some(())
    });
    let page = walferry.get("/ui").expect("the page is served");
    assert!(page.status == 200 && page.body.contains("<html"), "{page:?}");
}

#[test]
fn secrets_appear_in_no_answer_and_no_line_of_the_log() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "secret");
    let mut options = outbox.options(outbox.config_with([("database.password", "${env:E2E_SECRET}")]));
    options.env = vec![
        ("E2E_SECRET".into(), "hunter2-e2e".into()),
        ("RUST_LOG".into(), "trace".into()),
    ];
    let mut walferry = walferry_testkit::servers::Walferry::start(options);
    outbox.wait_until_streaming(&mut walferry);
    for path in [
        "/",
        "/connectors",
        "/connectors/secret/status",
        "/metrics",
        "/slots",
        "/ui/data",
        "/ready",
    ] {
        if let Some(answer) = walferry.get(path) {
            assert!(!answer.body.contains("hunter2"), "{path}: {}", answer.body);
        }
    }
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert!(!walferry.output().contains("hunter2"));
}

/// Each of them would hold a descriptor for as long as it likes, and there would soon be none left for Kafka and Postgres.
#[test]
fn rows_are_delivered_while_clients_of_the_endpoint_hold_all_descriptors() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "few_descriptors");
    let mut walferry = Walferry::start_in(
        outbox.options(outbox.config()),
        Surroundings {
            descriptors: Some(64),
            ..Surroundings::default()
        },
    );
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 1, 5);
    world.kafka.wait_for_records(&outbox.topic("order"), 5);
    // Half of them say nothing; the others begin a request and do not go on.
    let clients: Vec<_> = (0..300)
        .filter_map(|number| {
            let mut client = walferry.connect().ok()?;
            if number % 2 == 0 {
                client.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127").ok()?;
            }
            Some(client)
        })
        .collect();
    assert!(clients.len() >= 64, "{} clients hold on", clients.len());
    outbox.insert("k", 6, 50);
    // Also a new connection to Postgres is to be had.
    let ended =
        "select pg_terminate_backend(active_pid) from pg_replication_slots where slot_name = 'few_descriptors_slot'";
    outbox.database.sql().run(ended);
    outbox.insert("k", 51, 60);
    outbox.wait_until_confirmed();
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 60);
    assert_runs(&records, &["k"], 60);
    assert!(walferry.runs());
    // And somebody who asks is answered, while the others still hold on.
    wait_for("an answer", || {
        walferry.get("/health").filter(|answer| answer.status == 200)
    });
    assert!(
        !walferry.output().contains("Too many open files"),
        "{}",
        walferry.output()
    );
    drop(clients);
}

/// A person who looks into the log needs the key to find the row; page, `/ready` and REST are for more eyes.
#[test]
fn the_key_of_a_refused_record_is_in_the_log_and_elsewhere_only_on_demand() {
    let world = world::shared();
    for (name, asked) in [("keys_hidden", "false"), ("keys_shown", "true")] {
        let outbox = Outbox::new(&world, name);
        let other = Outbox::new(&world, &format!("{name}_beside"));
        // With two connectors the process outlasts one that fails.
        let mut walferry = Walferry::start_in(
            outbox.options(outbox.config_with([("errors.log.include.messages", asked)])),
            Surroundings {
                beside: Some((format!("{name}_beside"), other.config())),
                ..Surroundings::default()
            },
        );
        outbox.wait_until_streaming(&mut walferry);
        other.wait_until_streaming(&mut walferry);
        outbox
            .database
            .sql()
            .run("insert into outbox values (99, 'order', 'customer-4711', 'T', repeat('x', 2000000))");
        let status = format!("/connectors/{name}/status");
        wait_for("the connector to fail", || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            let told = walferry.get(&status)?.body;
            told.contains("FAILED").then_some(())
        });
        // The status may be ahead of the log.
        wait_for("the key in the log", || {
            walferry.output().contains("customer-4711").then_some(())
        });
        for path in [status.as_str(), "/ready", "/ui/data"] {
            let answer = walferry.get(path).expect("the endpoint answers").body;
            // The failure itself is told there, with or without the key.
            assert!(answer.contains("public.outbox"), "{path}: {answer}");
            assert_eq!(answer.contains("customer-4711"), asked == "true", "{path}: {answer}");
        }
        for path in ["/metrics", "/connectors?expand=status&expand=info", "/ui", "/slots"] {
            let answer = walferry.get(path).expect("the endpoint answers").body;
            let may = asked == "true" && path.starts_with("/connectors");
            assert!(may || !answer.contains("customer-4711"), "{path}: {answer}");
        }
    }
}
