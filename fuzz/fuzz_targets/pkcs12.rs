//! Any bytes as a keystore or truststore: PEM, PKCS#12 or JKS.
#![no_main]

use libfuzzer_sys::fuzz_target;
use walferry_keystore::{identity_in, private_key, trusted_in};

fuzz_target!(|bytes: &[u8]| {
    for password in [None, Some("changeit")] {
        match trusted_in(bytes, password) {
            Ok(pem) => assert!(pem.starts_with("-----BEGIN CERTIFICATE")),
            Err(error) => assert!(!error.to_string().contains("changeit")),
        }
        match identity_in(bytes, password, Some("other")) {
            Ok(identity) => assert!(identity.key.starts_with("-----BEGIN ")),
            Err(error) => assert!(!error.to_string().contains("changeit")),
        }
    }
    let _ = private_key(bytes, "changeit");
});
