//! The login of a connection beside the stream.

use std::{
    thread,
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tracing::{debug, info};
use walferry_config::connector::PostgresSection;
use walferry_engine::{Failure, Kind};

/// How often the config providers are asked while a password is refused. A heartbeat may be due every few milliseconds.
const PAUSE: Duration = Duration::from_secs(5);

/// A configuration that its providers can be asked for again.
pub(crate) trait Renewable: Clone + Send + 'static {
    /// With what the config providers return now.
    fn again(&self) -> Result<Self, Failure>;

    /// Where to connect, and as whom.
    fn postgres(&self) -> &PostgresSection;
}

/// How a connection beside the stream logs in. If the server refuses its password, the config providers are asked for the one that counts
/// now: the stream's own session goes on with the old one for as long as it lasts, which may be months.
#[derive(Clone)]
pub(crate) struct Login<L> {
    loaded: L,
    asked: Option<Instant>,
}

impl<L: Renewable> Login<L> {
    pub(crate) fn new(loaded: L) -> Self {
        Self { loaded, asked: None }
    }

    /// The configuration with which to connect.
    pub(crate) fn loaded(&self) -> &L {
        &self.loaded
    }

    /// Where to connect, and as whom.
    pub(crate) fn postgres(&self) -> &PostgresSection {
        self.loaded.postgres()
    }

    /// To be called after a failure. Asks the config providers if the password was refused. Returns whether there is something else to try
    /// now.
    pub(crate) async fn renew(&mut self, failure: &Failure) -> bool {
        if !is_login_refused(failure) || !self.is_due(Instant::now()) {
            return false;
        }
        let Some(loaded) = asked(self.loaded.clone()).await else {
            return false;
        };
        let is_other = loaded.postgres() != self.loaded.postgres();
        if is_other {
            info!(
                "the server refused the login of a connection beside the stream; the config providers have another one"
            );
        }
        self.loaded = loaded;
        is_other
    }

    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.asked.is_none_or(|asked| now >= asked + PAUSE);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }
}

/// Whether the server knows neither user nor password. A user may be replaced with its password.
pub(crate) fn is_login_refused(failure: &Failure) -> bool {
    match failure.kind {
        Kind::Authentication => true,
        // The server's settings name this file in every language.
        Kind::AccessRefused => failure.causes.iter().all(|cause| !cause.text.contains("pg_hba.conf")),
        _ => false,
    }
}

/// Asks on a thread of its own, because a config provider may hang. If the caller ends meanwhile, the thread is left alone.
async fn asked<L: Renewable>(loaded: L) -> Option<L> {
    let (sender, answer) = oneshot::channel();
    let span = tracing::Span::current();
    let asking = thread::Builder::new().name("config providers".into()).spawn(move || {
        let _span = span.entered();
        drop(sender.send(loaded.again()));
    });
    match asking {
        Ok(_) => answer
            .await
            .ok()?
            .inspect_err(|failure| debug!(error = %failure, "the config providers have no login"))
            .ok(),
        Err(error) => {
            debug!(%error, "the thread that asks the config providers could not be started");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refused_user_or_password_asks_the_providers() {
        let failure = |kind, text: &str| Failure::retry(kind, text.to_owned());
        assert!(is_login_refused(&failure(
            Kind::Authentication,
            "password authentication failed"
        )));
        assert!(is_login_refused(&failure(
            Kind::AccessRefused,
            "role \"lease_7\" is not permitted to log in"
        )));
        assert!(!is_login_refused(&failure(
            Kind::AccessRefused,
            "no pg_hba.conf entry for host"
        )));
        assert!(!is_login_refused(&failure(
            Kind::TooManyConnections,
            "too many clients"
        )));
    }
}
