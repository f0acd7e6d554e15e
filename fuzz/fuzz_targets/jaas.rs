//! Any text as the value of `sasl.jaas.config`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walferry_config::Jaas;

fuzz_target!(|text: &str| {
    match Jaas::parse(text) {
        Ok(login) => drop(login.required("username")),
        Err(error) => drop(error.to_string()),
    }
});
