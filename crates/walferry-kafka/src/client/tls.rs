//! TLS: trust, the client's own certificate, the check of the host's name.

use std::path::Path;

use openssl::ssl::cipher_name;
use walferry_config::{ValueError, quoted};
use walferry_keystore::{self as keystore, StoreError, regular};

use super::Translation;

/// How brokers are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Plain,
    Tls,
    SaslPlain,
    SaslTls,
}

impl Protocol {
    pub(super) const fn has_login(self) -> bool {
        matches!(self, Self::SaslPlain | Self::SaslTls)
    }

    const fn has_tls(self) -> bool {
        matches!(self, Self::Tls | Self::SaslTls)
    }
}

/// What somebody sets who expects TLS.
const OF_TLS: [&str; 5] = [
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.location",
    "ssl.keystore.key",
    // librdkafka's.
    "ssl.crl.location",
];

pub(super) fn translate(t: &mut Translation) -> Protocol {
    let text = t.get("security.protocol").unwrap_or("PLAINTEXT").to_ascii_uppercase();
    let protocol = match text.as_str() {
        "PLAINTEXT" => Protocol::Plain,
        "SSL" => Protocol::Tls,
        "SASL_PLAINTEXT" => Protocol::SaslPlain,
        "SASL_SSL" => Protocol::SaslTls,
        _ => {
            let error = ValueError::not_one_of(&text, &["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]);
            t.wrong_value("security.protocol", error);
            return Protocol::Plain;
        }
    };
    if t.get("security.protocol").is_some() {
        t.set("security.protocol", text.to_ascii_lowercase());
    }
    if protocol.has_tls() {
        trust(t);
        revoked(t);
        identity(t);
        host_name(t);
        ciphers(t);
    } else {
        let without_effect = OF_TLS.into_iter().filter(|name| t.get_filled(name).is_some());
        for name in without_effect.collect::<Vec<_>>() {
            let name = t.written_as(name);
            t.findings
                .warning(name, format!("has no effect while security.protocol is {text}"))
                .hint("set security.protocol=SSL or SASL_SSL");
        }
    }
    protocol
}

fn trust(t: &mut Translation) {
    let (inline, file) = ("ssl.truststore.certificates", "ssl.truststore.location");
    let (name, trusted) = if let Some(text) = t.get_filled(inline) {
        (inline, keystore::trusted_pem(text.as_bytes()))
    } else if let Some(path) = t.get_filled(file) {
        (file, keystore::trusted(path, t.get_filled("ssl.truststore.password")))
    } else {
        // A compiled-in OpenSSL looks for authorities where it was built, not where this system keeps them.
        if cfg!(feature = "vendored") {
            t.set("ssl.ca.location", "probe");
        }
        return;
    };
    match trusted {
        Ok(pem) => t.set("ssl.ca.pem", pem),
        Err(error) => unusable(t, name, &error),
    }
}

/// librdkafka reads the lists itself. In front of a pipe, it would wait without an end, and with it whoever wants to stop the connector.
fn revoked(t: &mut Translation) {
    let name = "ssl.crl.location";
    let Some(path) = t.get_filled(name).map(str::to_owned) else {
        return;
    };
    if let Err(error) = regular::open(Path::new(&path)) {
        t.problem(
            name,
            format!("names the file {}, which cannot be read: {error}", quoted(&path)),
        )
        .hint("name a regular file with lists of revoked certificates (PEM) that the user may read who runs Walferry");
    }
}

fn identity(t: &mut Translation) {
    let (inline, file) = ("ssl.keystore.key", "ssl.keystore.location");
    let key_password = t.get_filled("ssl.key.password");
    let (name, identity) = if let Some(key) = t.get_filled(inline) {
        let chain = t.get("ssl.keystore.certificate.chain").unwrap_or_default();
        (
            inline,
            keystore::identity_pem(chain.as_bytes(), key.as_bytes(), key_password),
        )
    } else if let Some(path) = t.get_filled(file) {
        (
            file,
            keystore::identity(path, t.get_filled("ssl.keystore.password"), key_password),
        )
    } else {
        return;
    };
    match identity {
        Ok(identity) => {
            t.set("ssl.certificate.pem", identity.chain);
            t.set("ssl.key.pem", identity.key);
        }
        Err(error) => unusable(t, name, &error),
    }
}

fn unusable(t: &mut Translation, name: &str, error: &StoreError) {
    // The text of an inline store is no path, and a key's must not be shown.
    if name.ends_with(".location") {
        let path = match t.given.0.get(name) {
            Some(entry) if entry.secret => entry.display_text.clone(),
            _ => t.get(name).unwrap_or_default().to_owned(),
        };
        t.problem(name, format!("is {path}, which {error}"))
            .hint(error.hint(&path));
    } else {
        t.problem(name, error.to_string()).hint(
            "write it as PEM, with its line breaks (\\n in JSON and .properties), or set a file with ssl.keystore.location or \
             ssl.truststore.location",
        );
    }
}

fn host_name(t: &mut Translation) {
    const NAME: &str = "ssl.endpoint.identification.algorithm";
    match t.get(NAME) {
        None => {}
        Some("") => {
            t.weakens(
                NAME,
                "is empty: any server with a trusted certificate is accepted as a broker",
            );
            t.set(NAME, "none");
        }
        Some(text) if text.eq_ignore_ascii_case("https") => t.set(NAME, "https"),
        Some(_) => t.wrong_value(NAME, ValueError::new("https or empty")),
    }
}

fn ciphers(t: &mut Translation) {
    const NAME: &str = "ssl.cipher.suites";
    let Some(text) = t.get_filled(NAME).map(str::to_owned) else {
        return;
    };
    let mut names = Vec::new();
    for suite in text.split(',').map(str::trim).filter(|suite| !suite.is_empty()) {
        // Those of TLS 1.3 are no part of OpenSSL's list: they are always there.
        if matches!(
            suite,
            "TLS_AES_128_GCM_SHA256" | "TLS_AES_256_GCM_SHA384" | "TLS_CHACHA20_POLY1305_SHA256"
        ) {
            continue;
        }
        match cipher_name(suite) {
            "(NONE)" => t
                .problem(NAME, format!("contains {suite}, which OpenSSL does not support"))
                .hint("remove it"),
            name => names.push(name),
        }
    }
    if !names.is_empty() {
        t.set(NAME, names.join(":"));
    }
}
