//! Whether all connections to an address reach one server.
//!
//! Behind an address may be a proxy that moves from one server to another. A connector asks over several connections: for the
//! position of its slot, for the timeline, for rows of a snapshot. Answers of two servers, put together, describe none of them. A copy
//! has the system identifier of its original, and for a time its timeline, so only the time of its start tells a server from its copies.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::Error;

pub(super) const DOING: &str = "asking when the server was started";

/// A walsender understands it, too.
pub(super) const QUERY: &str = "SELECT pg_catalog.to_char(pg_catalog.pg_postmaster_start_time() AT TIME ZONE 'UTC', \
                                'YYYY-MM-DD HH24:MI:SS.US')";

/// When the server was started that the first connection has reached. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct OneServer(Arc<Mutex<Option<String>>>);

impl OneServer {
    fn with<T>(&self, look: impl FnOnce(&mut Option<String>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From the next connection on, it may be another server.
    pub(super) fn forget(&self) {
        self.with(|started| *started = None);
    }

    /// A connection has been opened, to a server that gave this answer.
    pub(super) fn reached(&self, address: &str, answer: Vec<Vec<Option<String>>>) -> Result<(), Error> {
        let Some(started) = answer.into_iter().flatten().flatten().next() else {
            return Err(Error::no_row(DOING));
        };
        self.with(|known| match known {
            Some(first) if *first != started => Err(Error::TwoServers {
                address: address.to_owned(),
                first: first.clone(),
                second: started,
            }),
            _ => {
                *known = Some(started);
                Ok(())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_to_another_server_is_refused_until_the_first_is_forgotten() {
        let started = |at: &str| vec![vec![Some(at.to_owned())]];
        let server = OneServer::default();
        let clone = server.clone();
        server.reached("db:5432", started("2026-01-01")).unwrap();
        clone.reached("db:5432", started("2026-01-01")).unwrap();
        let refused = clone.reached("db:5432", started("2026-02-02")).unwrap_err().to_string();
        assert!(
            refused.contains("db:5432") && refused.contains("2026-01-01") && refused.contains("2026-02-02"),
            "{refused}"
        );
        server.reached("db:5432", started("2026-01-01")).unwrap();
        server.forget();
        clone.reached("db:5432", started("2026-02-02")).unwrap();
        server.reached("db:5432", started("2026-01-01")).unwrap_err();
    }
}
