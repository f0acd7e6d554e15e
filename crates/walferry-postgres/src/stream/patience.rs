//! How long a server may be silent before its connection counts as dead.

use std::time::Duration;
use walferry_diagnosis::Kind;

use tokio::time::Instant;
use walferry_engine::Failure;
use walferry_engine::status::{Status, WaitFor};
use walferry_pgoutput::Lsn;

use super::Identity;
use crate::error::Error;

/// The limit grows with each silent connection in a row. Kept over all connections of a source.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// How many connections in a row have fallen silent.
    in_a_row: u32,
    /// The furthest position that the server has reported.
    furthest: Lsn,
    /// System identifier and timeline of the server that has reported it.
    server: (u64, u32),
}

/// A server is also silent while it decodes a large transaction of which nothing is published.
const LEAST: Duration = Duration::from_secs(60);
/// The limit is doubled at most this often: up to some 17 hours.
const MOST_DOUBLINGS: u32 = 10;

impl Patience {
    /// How long this server may be silent. `wal_sender_timeout` is how long it waits for us; zero is for ever.
    pub(crate) fn limit(&self, wal_sender_timeout: Duration) -> Duration {
        wal_sender_timeout.max(LEAST) * (1 << self.in_a_row.min(MOST_DOUBLINGS))
    }

    /// A connection to this server begins. Positions of another history say nothing about its progress.
    pub(crate) fn begin(
        &mut self,
        Identity {
            system_id, timeline, ..
        }: &Identity,
    ) {
        if self.server != (*system_id, *timeline) {
            self.server = (*system_id, *timeline);
            self.furthest = Lsn::INVALID;
        }
    }

    /// The server has reported a position. Only one beyond all earlier ones is progress: after each new connection, the
    /// server sends again what came before the silence.
    pub(crate) fn heard(&mut self, position: Lsn) {
        if position > self.furthest {
            self.furthest = position;
            self.in_a_row = 0;
        }
    }

    /// The connection was given up because the server was silent for too long.
    pub(crate) fn ran_out(&mut self) {
        self.in_a_row = self.in_a_row.saturating_add(1);
    }
}

/// Watches the silence of one connection.
#[derive(Debug)]
pub(super) struct Silence<'a> {
    patience: &'a mut Patience,
    wal_sender_timeout: Duration,
    /// Where to report a server that does not answer.
    status: &'a Status,
    /// What we wait for. `None` while the server waits for us.
    awaited: Option<Awaited>,
}

/// Something that must come from the server.
#[derive(Debug)]
struct Awaited {
    since: Instant,
    /// What the server does not do, for the status.
    missing: &'static str,
    /// Whether the wait ends with an error if it is too long.
    limited: bool,
    /// Whether the wait has been reported.
    is_logged: bool,
}

impl<'a> Silence<'a> {
    pub(super) fn new(patience: &'a mut Patience, wal_sender_timeout: Duration, status: &'a Status) -> Self {
        Self {
            patience,
            wal_sender_timeout,
            status,
            awaited: None,
        }
    }

    pub(super) fn limit(&self) -> Duration {
        self.patience.limit(self.wal_sender_timeout)
    }

    pub(super) fn heard(&mut self, position: Lsn) {
        self.patience.heard(position);
    }

    /// From here on, we wait for the server.
    pub(super) fn begin(&mut self, missing: &'static str, limited: bool) {
        self.awaited = Some(Awaited {
            since: Instant::now(),
            missing,
            limited,
            is_logged: false,
        });
    }

    /// The server has answered, or we no longer wait.
    pub(super) fn end(&mut self) {
        if self.awaited.take().is_some_and(|awaited| awaited.is_logged) {
            self.status.set_wait(WaitFor::Answer, None);
        }
    }

    /// Returns an error once the server has been silent for too long.
    pub(super) fn judge(&mut self) -> Result<(), Error> {
        match &self.awaited {
            Some(Awaited {
                since, limited: true, ..
            }) if since.elapsed() >= self.limit() => {
                let waited = since.elapsed();
                Err(self.ran_out("streaming", waited))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn ran_out(&mut self, doing: &'static str, waited: Duration) -> Error {
        self.patience.ran_out();
        Error::Silent {
            doing,
            seconds: waited.as_secs(),
        }
    }

    /// The server has just been asked for an answer. Reports the wait until the answer comes.
    pub(super) fn tell(&mut self) {
        if let Some(awaited) = self.awaited.as_mut().filter(|awaited| !awaited.is_logged) {
            awaited.is_logged = true;
            let what = format!("Postgres does not answer: {}", awaited.missing);
            self.status
                .set_wait(WaitFor::Answer, Some(Failure::retry(Kind::Silent, what)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_doubles_with_each_silence_in_a_row_and_progress_resets_it() {
        let mut patience = Patience::default();
        let limit = |patience: &Patience, timeout_s| patience.limit(Duration::from_secs(timeout_s)).as_secs();
        assert_eq!(
            [0, 5, 60, 300].map(|timeout_s| limit(&patience, timeout_s)),
            [60, 60, 60, 300]
        );
        patience.heard(Lsn(7));
        patience.ran_out();
        patience.ran_out();
        assert_eq!([0, 300].map(|timeout_s| limit(&patience, timeout_s)), [240, 1200]);
        // A position that was reported before is not progress.
        patience.heard(Lsn(7));
        assert_eq!(limit(&patience, 0), 240);
        patience.heard(Lsn(8));
        assert_eq!(limit(&patience, 0), 60);
        // The server was replaced by one that is behind it.
        let on = |timeline| Identity {
            system_id: 5,
            timeline,
            wal_end: Lsn::INVALID,
        };
        patience.begin(&on(1));
        patience.heard(Lsn(9));
        patience.ran_out();
        patience.begin(&on(1));
        patience.heard(Lsn(4));
        assert_eq!(limit(&patience, 0), 120);
        patience.begin(&on(2));
        patience.heard(Lsn(4));
        assert_eq!(limit(&patience, 0), 60);
        (0..100).for_each(|_| patience.ran_out());
        assert_eq!(limit(&patience, 0), 60 << 10);
    }
}
