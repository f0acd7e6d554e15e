//! Events that are checked against JSON Schemas before they are sent.

use std::fs;

use tempfile::TempDir;
use walferry_testkit::servers::{Sql, Walferry, wait_for};

use crate::outbox::Outbox;
use crate::world;

const PAGE: &str = include_str!("../../docs/how-to/outbox-schemas.md");

/// The first listing of the page in this language that has the text.
#[track_caller]
fn listing(language: &str, text: &str) -> &'static str {
    let fence = format!("```{language}\n");
    let mut listings = PAGE.split(&fence).skip(1).filter_map(|rest| rest.split("\n```").next());
    listings
        .find(|listing| listing.contains(text))
        .expect("the page has the listing")
}

/// A folder with schemas.
fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    folder
}

/// The folder of the page.
fn of_the_page() -> TempDir {
    folder(&[
        ("OrderPlaced.json", listing("json", "\"order\"")),
        ("defs/line.json", listing("json", "\"sku\"")),
    ])
}

fn insert(sql: &Sql, id: u32, event_type: &str, payload: &str) {
    let payload = match payload {
        "" => "null".to_owned(),
        payload => format!("'{payload}'"),
    };
    sql.run(&format!(
        "insert into outbox values ({id}, 'order', 'o-{id}', '{event_type}', {payload})"
    ));
}

const GOOD: &str = r#"{"order": 42, "lines": [{"sku": "lamp", "quantity": 1}]}"#;
const BAD: &str = r#"{"order": 42, "lines": [{"sku": "lamp", "quantity": 1}, {"sku": "hunter2", "quantity": 0}]}"#;

fn counted(walferry: &Walferry, connector: &str, event_type: &str) -> Option<u64> {
    let metrics = walferry.get("/metrics")?.body;
    let line = format!("walferry_outbox_events_mismatched_total{{connector=\"{connector}\",type=\"{event_type}\"}} ");
    metrics.lines().find_map(|text| text.strip_prefix(&line)?.parse().ok())
}

#[test]
fn an_event_that_does_not_match_its_schema_stops_until_the_schema_is_corrected() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "schema_fail");
    let schemas = of_the_page();
    let dir = schemas.path().display().to_string();
    let mut walferry = outbox.start_with(outbox.config_with([("transforms.outbox.walferry.schemas.dir", &dir)]));
    let sql = outbox.database.sql();
    insert(sql, 1, "OrderPlaced", GOOD);
    // A tombstone is not checked, and a type without a schema is allowed.
    insert(sql, 2, "OrderPlaced", "");
    insert(sql, 3, "OrderPaid", "no JSON");
    let ids = |count| -> Vec<String> {
        let records = world.kafka.wait_for_records(&outbox.topic("order"), count);
        let ids = records
            .iter()
            .map(|record| record.header_text("id").expect("an id").to_owned());
        ids.collect()
    };
    assert_eq!(ids(3), ["1", "2", "3"]);
    outbox.wait_until_confirmed();
    insert(sql, 4, "OrderPlaced", BAD);
    insert(sql, 5, "OrderPlaced", GOOD);
    assert_eq!(walferry.wait(), Some(3), "{}", walferry.output());
    let output = walferry.output();
    let shown = listing("console", "error: connector");
    let cause = shown
        .lines()
        .find_map(|line| line.split_once("the event "))
        .expect("the cause")
        .1;
    let hint = shown
        .lines()
        .find_map(|line| line.split_once("hint:  "))
        .expect("the hint")
        .1;
    for part in ["a row of public.outbox", cause, hint, "code:  WF0781"] {
        assert!(output.contains(part), "{part} is missing in:\n{output}");
    }
    assert!(!output.contains("hunter2"), "{output}");

    // A start reads the folder again, and goes on with the event.
    let line = schemas.path().join("defs/line.json");
    let corrected = fs::read_to_string(&line)
        .expect("a file")
        .replace("\"minimum\": 1", "\"minimum\": 0");
    fs::write(&line, corrected).expect("a file");
    walferry.start_again();
    assert_eq!(ids(5), ["1", "2", "3", "4", "5"]);
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 5);
    assert_eq!(records[3].value_text(), Some(BAD), "the payload is sent as it is");
}

#[test]
fn each_outbox_table_has_schemas_and_events_are_set_aside_or_sent_with_a_warning() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "schema_tables");
    let sql = outbox.database.sql();
    sql.run("create table billing (like outbox including all)");
    let (orders, billing) = (
        of_the_page(),
        folder(&[("OrderPlaced.json", r#"{"required": ["invoice"]}"#)]),
    );
    let dead = outbox.topic("dead");
    let dirs = [&orders, &billing].map(|folder| folder.path().display().to_string());
    let routed = outbox.config();
    let mut config = outbox.config_with([
        ("table.include.list", "public.outbox,public.billing"),
        ("transforms", "outbox,billing"),
        ("transforms.outbox.walferry.tables", "public.outbox"),
        ("transforms.outbox.walferry.schemas.dir", &dirs[0]),
        ("transforms.outbox.walferry.schemas.mismatch", "dead-letter"),
        ("transforms.outbox.walferry.schemas.missing", "dead-letter"),
        ("errors.deadletterqueue.topic.name", &dead),
        ("errors.deadletterqueue.topic.replication.factor", "1"),
        ("transforms.billing.walferry.tables", "public.billing"),
        ("transforms.billing.walferry.schemas.dir", &dirs[1]),
        ("transforms.billing.walferry.schemas.mismatch", "warn"),
    ]);
    for option in ["type", "route.topic.replacement"] {
        let value = routed[&format!("transforms.outbox.{option}")].clone();
        config.insert(format!("transforms.billing.{option}"), value);
    }
    let walferry = outbox.start_with(config);
    insert(sql, 1, "OrderPlaced", BAD);
    insert(sql, 2, "OrderPlaced", GOOD);
    insert(sql, 3, "Unheard", GOOD);
    insert(sql, 4, "OrderPlaced", "not JSON");
    sql.run("insert into billing values (10, 'bill', 'b', 'OrderPlaced', '{\"invoice\": 1}')");
    sql.run("insert into billing select n, 'bill', 'b', 'OrderPlaced', '{}' from generate_series(11, 15) n");
    let sent = world.kafka.wait_for_records(&outbox.topic("order"), 1);
    assert_eq!(sent[0].header_text("id"), Some("2"));
    let bills = world.kafka.wait_for_records(&outbox.topic("bill"), 6);
    assert_eq!(bills.len(), 6);
    let aside = world.kafka.wait_for_records(&dead, 3);
    assert_eq!(aside.len(), 3);
    let first = &aside[0];
    assert_eq!((first.key_text(), first.value_text()), (Some("o-1"), Some(BAD)));
    assert_eq!(
        (first.header_text("id"), first.header_text("eventType")),
        (Some("1"), Some("OrderPlaced"))
    );
    let why = |place: usize| {
        aside[place]
            .header_text("__connect.errors.exception.message")
            .unwrap_or_default()
    };
    for part in ["\"OrderPlaced\"", "at /lines/1/quantity", "\"minimum\": 1"] {
        assert!(why(0).contains(part), "{part}: {}", why(0));
    }
    assert!(!why(0).contains("hunter2"), "{}", why(0));
    assert!(why(1).contains("has no schema"), "{}", why(1));
    assert!(why(2).contains("is not JSON"), "{}", why(2));
    // Five of the warned, two of those that were set aside.
    wait_for("the events to be counted", || {
        let all = (
            counted(&walferry, "schema_tables", "OrderPlaced")?,
            counted(&walferry, "schema_tables", "Unheard")?,
        );
        (all == (7, 1)).then_some(())
    });
    let told = walferry
        .output()
        .matches("events are sent although they do not match")
        .count();
    assert!(told >= 1, "{}", walferry.output());
    assert!(told < 3, "the warnings are limited: {}", walferry.output());
}

#[test]
fn a_kill_among_events_that_are_checked_loses_none() {
    const ROWS: u32 = 3_000;
    let world = world::shared();
    let outbox = Outbox::new(&world, "schema_kill");
    let schemas = folder(&[("Created.json", r#"{"type": "integer", "not": {"multipleOf": 3}}"#)]);
    let dir = schemas.path().display().to_string();
    let dead = outbox.topic("dead");
    let mut walferry = outbox.start_with(outbox.config_with([
        ("transforms.outbox.walferry.schemas.dir", &dir),
        ("transforms.outbox.walferry.schemas.mismatch", "dead-letter"),
        ("errors.deadletterqueue.topic.name", &dead),
        ("errors.deadletterqueue.topic.replication.factor", "1"),
    ]));
    for round in 0..6 {
        let first = i64::from(round * ROWS / 6);
        outbox.insert("k", first + 1, first + i64::from(ROWS / 6));
        world.kafka.wait_for_records(&dead, 1);
        walferry.kill();
        walferry.start_again();
    }
    outbox.wait_until_streaming(&mut walferry);
    outbox.wait_until_confirmed();
    let numbers = |topic: String| -> std::collections::BTreeSet<u32> {
        let records = world.kafka.read(&[topic]);
        let numbers = records.iter().filter_map(|record| record.value_text()?.parse().ok());
        numbers.collect()
    };
    let (sent, aside) = (numbers(outbox.topic("order")), numbers(dead));
    assert!(sent.iter().all(|number| number % 3 != 0));
    assert_eq!(aside, (1..=ROWS).filter(|number| number % 3 == 0).collect());
    assert_eq!(sent.len() + aside.len(), ROWS as usize);
}

#[test]
fn check_lists_the_schemas_and_tells_what_is_wrong_with_them() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "schema_check");
    let schemas = of_the_page();
    let dir = schemas.path().display().to_string();
    let walferry = outbox.start_with(outbox.config_with([("transforms.outbox.walferry.schemas.dir", &dir)]));
    let check = || {
        let output = walferry.command([
            "check",
            "--config",
            &walferry.config_file().to_string_lossy(),
            "--bootstrap-servers",
            &world.kafka.bootstrap(),
            "--admin",
            "127.0.0.1:0",
        ]);
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let told = check();
    let line = "transform outbox checks events of these types against their schemas: OrderPlaced (OrderPlaced.json)";
    assert!(told.contains(line), "{told}");
    fs::write(
        schemas.path().join("OrderPaid.json"),
        r#"{"$ref": "https://example.com/paid.json"}"#,
    )
    .expect("a file");
    let told = check();
    for part in [
        "transforms.outbox.walferry.schemas.dir",
        "has the file OrderPaid.json, which refers to https://example.com/paid.json",
        "reads no schemas from the network",
        "WF0782",
    ] {
        assert!(told.contains(part), "{part} is missing in:\n{told}");
    }
}
