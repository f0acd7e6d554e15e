//! Any text as the value of `sasl.jaas.config`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/walferry-kafka/src/client/jaas.rs"]
mod jaas;

fuzz_target!(|text: &str| {
    match jaas::Jaas::parse(text) {
        Ok(login) => drop(login.required("username")),
        Err(error) => drop(error.to_string()),
    }
});
