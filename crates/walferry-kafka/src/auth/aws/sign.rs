//! Signature Version 4: the token for MSK, and requests to STS.

use std::fmt::Write as _;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use jiff::{Timestamp, tz::TimeZone};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest as _, Sha256};

use super::keys::Credentials;

pub(super) const SERVICE: &str = "kafka-cluster";
pub(super) const USER_AGENT: &str = concat!("walferry/", env!("CARGO_PKG_VERSION"));
/// How long a broker accepts a token.
pub(super) const LIFETIME_SECONDS: i64 = 900;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What a signature is made for.
struct Scope {
    /// Such as `20260101T000000Z`.
    at: String,
    region: String,
    service: &'static str,
}

impl Scope {
    fn new(at: Timestamp, region: &str, service: &'static str) -> Self {
        let at = at.to_zoned(TimeZone::UTC).strftime("%Y%m%dT%H%M%SZ").to_string();
        Self {
            at,
            region: region.to_owned(),
            service,
        }
    }

    fn text(&self) -> String {
        format!("{}/{}/{}/aws4_request", &self.at[..8], self.region, self.service)
    }

    fn sign(&self, credentials: &Credentials, canonical_request: &str) -> String {
        let to_sign = format!(
            "{ALGORITHM}\n{}\n{}\n{}",
            self.at,
            self.text(),
            sha256(canonical_request.as_bytes())
        );
        let secret = format!("AWS4{}", credentials.secret_key.expose());
        let key = [self.region.as_str(), self.service, "aws4_request"]
            .into_iter()
            .fold(hmac(secret.as_bytes(), &self.at[..8]), |key, part| hmac(&key, part));
        hex(&hmac(&key, &to_sign))
    }
}

/// The token: a URL that is signed in advance. The order of its parameters is that of Amazon's signer for Python.
pub(super) fn token(credentials: &Credentials, region: &str, at: Timestamp, user_agent: &str) -> String {
    let scope = Scope::new(at, region, SERVICE);
    let host = format!("kafka.{region}.amazonaws.com");
    let mut parameters = vec![
        ("Action", "kafka-cluster:Connect".to_owned()),
        ("X-Amz-Algorithm", ALGORITHM.to_owned()),
        (
            "X-Amz-Credential",
            format!("{}/{}", credentials.access_key, scope.text()),
        ),
        ("X-Amz-Date", scope.at.clone()),
        ("X-Amz-Expires", LIFETIME_SECONDS.to_string()),
        ("X-Amz-SignedHeaders", "host".to_owned()),
    ];
    if let Some(session) = &credentials.session_token {
        parameters.push(("X-Amz-Security-Token", session.expose().to_owned()));
    }
    let query = |parameters: &[(&str, String)]| {
        let pairs = parameters
            .iter()
            .map(|(name, value)| format!("{name}={}", escape(value)));
        pairs.collect::<Vec<_>>().join("&")
    };
    let mut sorted = parameters.clone();
    sorted.sort();
    let canonical = format!("GET\n/\n{}\nhost:{host}\n\nhost\n{}", query(&sorted), sha256(b""));
    parameters.push(("X-Amz-Signature", scope.sign(credentials, &canonical)));
    parameters.push(("User-Agent", user_agent.to_owned()));
    BASE64_URL_SAFE_NO_PAD.encode(format!("https://{host}/?{}", query(&parameters)))
}

/// The headers that sign a form which is posted to a service.
pub(super) fn headers(
    credentials: &Credentials,
    region: &str,
    service: &'static str,
    at: Timestamp,
    host: &str,
    form: &str,
) -> Vec<(&'static str, String)> {
    let scope = Scope::new(at, region, service);
    let mut headers = vec![
        ("content-type", FORM.to_owned()),
        ("host", host.to_owned()),
        ("x-amz-date", scope.at.clone()),
    ];
    if let Some(session) = &credentials.session_token {
        headers.push(("x-amz-security-token", session.expose().to_owned()));
    }
    let names = headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let lines: String = headers
        .iter()
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    let canonical = format!("POST\n/\n\n{lines}\n{names}\n{}", sha256(form.as_bytes()));
    let signature = scope.sign(credentials, &canonical);
    let authorization = format!(
        "{ALGORITHM} Credential={}/{}, SignedHeaders={names}, Signature={signature}",
        credentials.access_key,
        scope.text()
    );
    // The HTTP client writes the host itself.
    headers.retain(|(name, _)| *name != "host");
    headers.push(("authorization", authorization));
    headers
}

pub(super) const FORM: &str = "application/x-www-form-urlencoded";

fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
