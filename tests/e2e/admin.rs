//! The admin endpoint: health, readiness, slots, metrics.

use crate::outbox::Outbox;
use crate::world;
use walferry_testkit::servers::wait_for;

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
    let metrics = wait_for("the records to be counted", || {
        let metrics = walferry.get("/metrics")?.body;
        let counted = metrics.lines().any(|line| {
            line.starts_with("walferry_topic_records_total{")
                && line.contains("\"admin.order\"")
                && line.ends_with(" 7")
        });
        counted.then_some(metrics)
    });
    for name in [
        "walferry_slot_lag_bytes{",
        "walferry_slot_retained_wal_bytes{",
        "walferry_commit_to_ack_seconds_bucket{",
    ] {
        assert!(metrics.contains(name), "{name} is missing in\n{metrics}");
    }
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
