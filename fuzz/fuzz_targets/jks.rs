//! Any bytes as a keystore of Java.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/walferry-keystore/src/jks.rs"]
mod jks;

fuzz_target!(|bytes: &[u8]| {
    let _ = jks::kind(bytes);
    // Without a password the digest is not asked for, so that what lies behind it is reached.
    for password in [None, Some("changeit")] {
        if let Ok(certificates) = jks::certificates(bytes, password) {
            let size: usize = certificates.iter().map(Vec::len).sum();
            assert!(size <= bytes.len(), "certificates are parts of the file");
        }
        let _ = jks::private_key(bytes, password, Some("changeit"));
    }
});
