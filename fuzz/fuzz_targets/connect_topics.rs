//! Any bytes as records of Connect's configuration and status topics: key and value in turn, divided by a NUL. An empty value is a tombstone.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value as Json;

#[allow(dead_code)]
#[path = "../../crates/walferry-kafka/src/connect/content.rs"]
mod content;
#[allow(dead_code)]
#[path = "../../crates/walferry-kafka/src/connect/status_key.rs"]
mod status_key;

use content::ConfigContent;
use status_key::StatusKey;

fuzz_target!(|bytes: &[u8]| {
    let mut known = ConfigContent::default();
    let mut parts = bytes.split(|byte| *byte == 0);
    while let Some(key) = parts.next() {
        let key = String::from_utf8_lossy(key);
        let value: Option<Json> = parts.next().and_then(|value| serde_json::from_slice(value).ok());
        known.learn(&key, value.as_ref());
        if let Some(subject) = StatusKey::parse(&key) {
            assert!(subject.connector().len() <= key.len());
            assert_eq!(StatusKey::parse(&subject.key()), Some(subject));
        }
    }
    for configuration in known.configurations.values() {
        let written = content::properties(configuration, true);
        let json: Json = serde_json::from_str(&written).expect("what is written is JSON");
        assert!(json["properties"].is_object());
    }
});
