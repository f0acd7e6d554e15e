//! Any text as the payload of an outbox row that is to be expanded.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/walferry-transform/src/event_router/json.rs"]
mod json;

fuzz_target!(|text: &str| {
    let read = json::read(text);
    // Jackson, as the reader here, takes text behind the value. What serde_json takes as a whole is JSON in any case.
    if let Ok(serde_json::Value::Object(_)) = serde_json::from_str(text) {
        assert!(read.is_ok(), "an object is not read");
    }
});
