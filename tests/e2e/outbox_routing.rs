//! Topics by event type, key columns and headers that a user's own options ask for.

use crate::outbox::Outbox;
use crate::world;
use walferry_testkit::servers::wait_for;

#[test]
fn events_go_to_the_topics_of_their_types_and_unknown_ones_are_set_aside_whole() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "event_types");
    let sql = outbox.database.sql();
    sql.run("alter table outbox add tenant text, add metadata jsonb");
    let topics = format!(
        "OrderPlaced:{0},Order(.*):{1}.$1",
        outbox.topic("placed"),
        outbox.topic("order")
    );
    let dead = outbox.topic("dead");
    let walferry = outbox.start_with(outbox.config_with([
        ("transforms.outbox.walferry.tables", "public.outbox"),
        ("transforms.outbox.walferry.topics", &topics),
        ("transforms.outbox.walferry.topics.unknown", "dead-letter"),
        ("transforms.outbox.walferry.key.columns", "tenant,aggregateid"),
        ("transforms.outbox.walferry.headers.from", "metadata"),
        (
            "transforms.outbox.walferry.headers",
            "position,commit_time,transaction_id",
        ),
        ("errors.deadletterqueue.topic.name", &dead),
        ("errors.deadletterqueue.topic.replication.factor", "1"),
        // What says why a record is set aside is text all the same.
        ("header.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("header.converter.schemas.enable", "false"),
    ]));
    let columns = "(id, aggregatetype, aggregateid, type, payload, tenant, metadata)";
    // One transaction, also to Postgres, which tells of it.
    let transaction = sql
        .value(&format!(
            "with placed as (insert into outbox {columns} values
               (1, 'order', 'o-1', 'OrderPlaced', '{{}}', null, '{{\"traceparent\": \"00-ab-cd-01\", \"attempt\": 1.50}}'),
               (2, 'order', 'o-1', 'Refunded', 'money', 'acme', '{{\"traceparent\": \"00-ab-cd-02\"}}'),
               (3, 'order', 'o-1', 'OrderShipped', '{{}}', 'acme', null) returning 1)
             select txid_current() from placed limit 1"
        ))
        .expect("the transaction's id");
    let placed = world.kafka.wait_for_records(&outbox.topic("placed"), 1);
    let shipped = world.kafka.wait_for_records(&outbox.topic("order.Shipped"), 1);
    let aside = world.kafka.wait_for_records(&dead, 1);
    let (placed, shipped, aside) = (&placed[0], &shipped[0], &aside[0]);
    let keys = [placed, aside, shipped].map(|record| record.key_text());
    assert_eq!(keys, [Some("o-1"), Some("acme"), Some("acme")]);
    assert_eq!(placed.header_text("traceparent"), Some("\"00-ab-cd-01\""));
    assert_eq!(placed.header_text("attempt"), Some("\"1.50\""));
    assert_eq!(shipped.header_text("traceparent"), None);

    // What is set aside is complete, and says why.
    assert_eq!(
        (aside.value_text(), aside.header_text("id")),
        (Some("money"), Some("2"))
    );
    assert_eq!(aside.header_text("traceparent"), Some("\"00-ab-cd-02\""));
    assert_eq!(aside.header_text("walferry.table"), Some("public.outbox"));
    let why = aside
        .header_text("__connect.errors.exception.message")
        .unwrap_or_default();
    assert!(why.contains("\"Refunded\""), "{why}");
    wait_for("the record to be counted", || {
        let metrics = walferry.get("/metrics")?.body;
        let counted = "walferry_records_set_aside_total{connector=\"event_types\"} 1";
        metrics.contains(counted).then_some(())
    });

    // All three tell of one transaction, in its order.
    let positions = [placed, aside, shipped].map(|record| {
        record
            .header_text("walferry.position")
            .expect("a position")
            .trim_matches('"')
    });
    let parts = positions.map(|position| position.split_once('-').expect("LSN and number"));
    assert_eq!(
        parts.map(|(_, number)| number),
        ["0000000000", "0000000001", "0000000002"]
    );
    assert!(parts.iter().all(|(lsn, _)| *lsn == parts[0].0), "{positions:?}");
    let is_before = format!("select '{}'::pg_lsn <= pg_current_wal_insert_lsn()", parts[0].0);
    assert_eq!(sql.value(&is_before).as_deref(), Some("t"), "{positions:?}");
    assert_eq!(
        shipped.header_text("walferry.transaction_id"),
        Some(transaction.as_str())
    );
    let committed_ms: i64 = shipped.header_text("walferry.commit_ts_ms").unwrap().parse().unwrap();
    let is_recent = format!("select abs(extract(epoch from now()) * 1000 - {committed_ms}) < 3600000");
    assert_eq!(sql.value(&is_recent).as_deref(), Some("t"));
}
