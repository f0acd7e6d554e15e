//! The keys that a request is signed with.

use jiff::Timestamp;
use serde_json::Value as Json;
use walferry_config::Secret;

/// Whose signature it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub(super) access_key: String,
    pub(super) secret_key: Secret,
    pub(super) session_token: Option<Secret>,
    /// Milliseconds since 1970. `None` for those that do not expire.
    pub(super) expires_ms: Option<i64>,
}

impl Credentials {
    pub(super) fn lasting(access_key: String, secret_key: String, session_token: Option<String>) -> Self {
        Self {
            access_key,
            secret_key: Secret::new(secret_key),
            session_token: session_token.map(Secret::new),
            expires_ms: None,
        }
    }

    /// Those that an endpoint or a program answers.
    pub(super) fn from_json(json: &Json, token: &str) -> Option<Self> {
        let text = |name: &str| json[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let expires = match text("Expiration") {
            Some(at) => Some(at.parse::<Timestamp>().ok()?.as_millisecond()),
            None => None,
        };
        Some(Self {
            expires_ms: expires,
            ..Self::lasting(text("AccessKeyId")?, text("SecretAccessKey")?, text(token))
        })
    }
}
