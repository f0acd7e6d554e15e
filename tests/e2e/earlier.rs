//! State that an earlier version has stored is continued: nothing is repeated, left out, or read again.
//!
//! The files under `earlier/` are what the version of November 2026 stored, with names of facts in the place of what a server says of
//! itself: `{/value/lsn}` is what stands at `/value/lsn` of the state that today's version stores for the same rows.

use std::{env, fs, path::PathBuf};

use serde_json::{Value, json};
use walferry_testkit::servers::{Kafka, Record, Walferry};

use crate::{
    outbox::{Outbox, assert_runs},
    takeover,
    world::{self, World},
};

/// Run with this variable to write the files anew, when there is a new version to remember.
const WRITE: &str = "WALFERRY_TEST_RECORD";
/// The header of a stored offset in Kafka.
const ADDITIONS: &str = "walferry.offset";

/// What the earlier version stored: `live` has the facts of this server.
fn earlier(name: &str, live: &Value) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("e2e/earlier/{name}.json"));
    if env::var_os(WRITE).is_some() {
        let text = serde_json::to_string_pretty(&without_facts(live, "")).expect("it is JSON");
        fs::write(&path, text + "\n").expect("the folder of the tests can be written");
    }
    let text = fs::read_to_string(&path).expect("the file is part of the sources");
    with_facts(&serde_json::from_str(&text).expect("it is JSON"), live)
}

/// Numbers and texts with digits belong to this server, all else to the format.
fn without_facts(value: &Value, at: &str) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), without_facts(value, &format!("{at}/{name}"))))
            .collect(),
        Value::Array(items) => (items.iter().enumerate())
            .map(|(index, value)| without_facts(value, &format!("{at}/{index}")))
            .collect(),
        Value::Number(_) if !at.ends_with("/format") => json!(format!("{{{at}}}")),
        Value::String(text) if text.contains(|c: char| c.is_ascii_digit()) || text.contains("earlier") => {
            json!(format!("{{{at}}}"))
        }
        other => other.clone(),
    }
}

fn with_facts(value: &Value, live: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), with_facts(value, live)))
            .collect(),
        Value::Array(items) => items.iter().map(|value| with_facts(value, live)).collect(),
        Value::String(text) => match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(at) => (live.pointer(at))
                .unwrap_or_else(|| panic!("the state of today's version has no {at}: say where the fact is now"))
                .clone(),
            None => value.clone(),
        },
        other => other.clone(),
    }
}

/// The checksum of a stored half: CRC-32 as in zlib.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

/// An offset file of format 2 after its first write.
fn file(content: &Value) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let block = |text: &str, end: &str| format!("{text:<width$}{end}", width = BLOCK - end.len());
    let content = serde_json::to_string_pretty(content).expect("it is JSON");
    let crc = crc32(format!("1 {content}").as_bytes());
    let one = format!("\"one\": {{\"write\": 1, \"crc32\": \"{crc:08x}\", \"content\": {content}}}");
    let head = format!("{{\n\"format\": 2,\n\"half_bytes\": {BLOCK},");
    let blocks = [block(&head, "\n"), block(&one, ",\n"), block("\"two\": null", "\n")];
    (blocks.concat() + "}\n").into_bytes()
}

/// Rows from 6 to 9 come once, from where the stored state ends.
fn assert_goes_on(outbox: &Outbox, kafka: &Kafka, walferry: &mut Walferry) {
    outbox.insert("k", 6, 9);
    walferry.start_again();
    outbox.wait_until_streaming(walferry);
    let records = outbox.wait_for_event(kafka, 9);
    assert_runs(&records, &["k"], 9);
    assert_eq!(records.len(), 9, "nothing comes again\n{}", walferry.output());
    let output = walferry.output();
    assert!(output.contains("continuing from the stored offset"), "{output}");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn an_offset_file_of_an_earlier_version_is_continued() {
    let world = world::shared();
    let outbox = Outbox::new(world, "earlier_file");
    let mut walferry = outbox.start();
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 1, 5);
    world.kafka.wait_for_records(&outbox.topic("order"), 5);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let live = walferry.stored_offset().expect("an offset is stored");
    fs::write(walferry.offset_file(), file(&earlier("offset-file", &live))).expect("it can be written");
    assert_goes_on(&outbox, &world.kafka, &mut walferry);
}

/// The last offset of a connector in a topic, as JSON: `value` and `additions`.
fn last_offset(kafka: &Kafka, topic: &str, outbox: &Outbox) -> (Record, Value) {
    let server = outbox.config()["topic.prefix"].as_str().expect("a text").to_owned();
    let records = kafka.read(&[topic.to_owned()]);
    let ours = |record: &&Record| {
        record
            .key_text()
            .is_some_and(|key| key.contains(&format!("\"{server}\"")))
            && record.value.is_some()
    };
    let last = records
        .into_iter()
        .rev()
        .find(|record| ours(&record))
        .expect("an offset is stored");
    let read = |text: Option<&str>| serde_json::from_str::<Value>(text.expect("it is there")).expect("it is JSON");
    let state = json!({ "value": read(last.value_text()), "additions": read(last.header_text(ADDITIONS)) });
    (last, state)
}

/// Stores what the earlier version would have, behind what today's version has.
fn put_back(kafka: &Kafka, topic: &str, outbox: &Outbox, name: &str) {
    let (last, live) = last_offset(kafka, topic, outbox);
    let earlier = earlier(name, &live);
    kafka.produce_with_header(
        topic,
        last.key_text().expect("a key"),
        &earlier["value"].to_string(),
        (ADDITIONS, &earlier["additions"].to_string()),
    );
}

#[test]
fn an_offset_of_an_earlier_version_in_connects_topic_is_continued() {
    let world: &World = world::shared();
    let kafka = Kafka::start();
    let outbox = Outbox::on(&world.postgres, &kafka, "earlier_topic");
    let mut walferry = takeover::start(&kafka, "earlier_topic");
    takeover::wait_for_turn(&mut walferry);
    let config = Value::Object(outbox.config());
    let made = walferry.send("PUT", "/connectors/earlier_topic/config", &config);
    assert_eq!(made.expect("it answers").status, 201);
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 1, 5);
    kafka.wait_for_records(&outbox.topic("order"), 5);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    put_back(&kafka, "connect-offsets", &outbox, "connect-topic");
    assert_goes_on(&outbox, &kafka, &mut walferry);
}

#[test]
fn an_offset_of_an_earlier_version_that_was_stored_exactly_once_is_continued() {
    let world = world::shared();
    let outbox = Outbox::new(world, "earlier_once");
    let mut walferry = outbox.start_with(outbox.config_with([("exactly.once.support", "required")]));
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 1, 5);
    world.kafka.wait_for_records(&outbox.topic("order"), 5);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    put_back(&world.kafka, "walferry-offsets", &outbox, "exactly-once-topic");
    assert_goes_on(&outbox, &world.kafka, &mut walferry);
}
