//! One outage of a server is one line of the log, however many connectors of the process wait for it.
//!
//! A connector holds a [`Wait`] as long as it waits for the server. The connector that begins first logs the outage. The one that reaches the
//! server first logs that it is over, and how many connectors have waited. The lines of all others have the target [`REPEATED`]: they appear in
//! the log of their connector only.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::Kind;

/// The target of lines that another connector has logged already.
pub const REPEATED: &str = "walferry::repeated";

/// What is waited for: the server's address, and what is the matter with it.
type Cause = (String, &'static str);

#[derive(Default)]
struct Outage {
    /// Waits that have not ended.
    waiting: usize,
    /// Waits that began since the outage was logged.
    joined: usize,
    /// A server that somebody has heard from is out again when the next one waits for it.
    is_over: bool,
}

static OUTAGES: Mutex<BTreeMap<Cause, Outage>> = Mutex::new(BTreeMap::new());

fn outages() -> MutexGuard<'static, BTreeMap<Cause, Outage>> {
    OUTAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connector waits for a server.
#[derive(Debug)]
pub struct Wait {
    cause: Cause,
    /// Whether the outage was not logged yet.
    pub is_first: bool,
}

impl Wait {
    /// The wait begins.
    pub fn begin(server: &str, kind: Kind) -> Self {
        let cause = (server.to_owned(), kind.as_str());
        let mut outages = outages();
        let outage = outages.entry(cause.clone()).or_default();
        let is_first = outage.waiting == 0 || outage.is_over;
        if is_first {
            (outage.joined, outage.is_over) = (0, false);
        }
        outage.waiting += 1;
        outage.joined += 1;
        Self { cause, is_first }
    }

    /// The server has answered. Returns how many have waited, for the first one that says so.
    pub fn end(self) -> Option<usize> {
        let mut outages = outages();
        let outage = outages.get_mut(&self.cause)?;
        let was_over = std::mem::replace(&mut outage.is_over, true);
        (!was_over).then_some(outage.joined)
    }
}

/// A connector that ends waits no more.
impl Drop for Wait {
    fn drop(&mut self) {
        let mut outages = outages();
        if let Some(outage) = outages.get_mut(&self.cause) {
            outage.waiting -= 1;
            if outage.waiting == 0 {
                outages.remove(&self.cause);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_many_logs_an_outage_and_the_first_answered_how_many_waited() {
        let begin = |server| Wait::begin(server, Kind::KafkaUnreachable);
        let (a, b, c) = (begin("k:1"), begin("k:1"), begin("k:1"));
        assert_eq!([a.is_first, b.is_first, c.is_first], [true, false, false]);
        assert!(begin("k:2").is_first, "it is another server");
        assert!(Wait::begin("k:1", Kind::KafkaTls).is_first, "it is another trouble");
        assert_eq!(b.end(), Some(3));
        assert_eq!(a.end(), None);
        // It is out again, before the third has heard that it was not.
        let d = begin("k:1");
        assert!(d.is_first);
        assert_eq!(c.end(), Some(1));
        drop(d);
        let e = begin("k:1");
        assert!(e.is_first, "whoever waited is gone");
        drop(e);
        assert!(outages().keys().all(|(server, _)| server != "k:1"));
    }
}
