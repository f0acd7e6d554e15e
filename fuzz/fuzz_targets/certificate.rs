//! Any bytes as an X.509 certificate.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/walferry-postgres/src/connection/channel_binding.rs"]
mod channel_binding;

fuzz_target!(|bytes: &[u8]| {
    if let Some(hash) = channel_binding::tls_server_end_point(bytes) {
        assert!((32..=64).contains(&hash.len()));
    }
});
