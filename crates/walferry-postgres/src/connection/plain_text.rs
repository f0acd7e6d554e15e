//! Whether a connection is in plain text although the server offers TLS: with `sslmode=prefer`, it goes on without.

use std::sync::{Arc, Mutex, PoisonError};

use tracing::warn;
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::Failure;
use walferry_engine::status::Status;

use crate::error::Error;

/// What is known of it. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct PlainText {
    warning: Arc<Mutex<Option<Diagnosis>>>,
    /// Where the page finds it.
    status: Option<Arc<Status>>,
}

impl PlainText {
    pub(super) fn shown_by(self, status: Arc<Status>) -> Self {
        Self {
            status: Some(status),
            ..self
        }
    }

    pub(super) fn warning(&self) -> Option<Diagnosis> {
        self.warning.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A connection was made in plain text, after TLS was refused like this. It is told once: each further connection does the same.
    pub(super) fn is_used(&self, address: &str, refusal: &Error) {
        let text = format!(
            "the connection to {address} is not encrypted, although the server offers TLS: {}",
            Failure::chain(refusal)
        );
        let remedy = "set `database.sslmode` to `require` or stricter, so that nothing is sent in plain text";
        let hint = match refusal.hint() {
            Some(hint) => format!("{remedy}, and correct what is refused: {hint}"),
            None => remedy.to_owned(),
        };
        let warning = Diagnosis::warning(Kind::Tls, text).with_hint(hint);
        let mut known = self.warning.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_some() {
            return;
        }
        *known = Some(warning.clone());
        drop(known);
        // Commands print it themselves, and other connections of a connector do the same as those that show it.
        if let Some(status) = &self.status {
            warn!(
                code = Kind::Tls.code(),
                hint = warning.hint.as_deref(),
                "{}",
                warning.text
            );
            status.warn(warning.text);
        }
    }
}
