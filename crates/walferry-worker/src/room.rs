//! The room that a worker has for what its connectors have in flight.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::watch;
use walferry_engine::{Disposition, Failure, Kind};

/// The bytes that all connectors together may have in flight (`walferry.worker.in.flight.max.bytes`). Each run takes a place before it begins, and
/// gives it up when it ends. Clones share the room.
#[derive(Debug, Clone, Default)]
pub struct Room(Option<Arc<Bounded>>);

#[derive(Debug)]
struct Bounded {
    most: u64,
    /// What each connector has taken.
    taken: watch::Sender<BTreeMap<String, u64>>,
}

/// What a run has taken. It gives it up when this is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Place {
    room: Room,
    connector: String,
}

impl Room {
    /// `None`: there is no limit for all together.
    pub fn of(most: Option<u64>) -> Self {
        let taken = watch::Sender::new(BTreeMap::new());
        Self(most.map(|most| Arc::new(Bounded { most, taken })))
    }

    /// Whether connectors have what they take for themselves, instead of a share.
    pub(crate) const fn is_bounded(&self) -> bool {
        self.0.is_some()
    }

    /// Takes room for a connector, which has one run at a time.
    pub(crate) fn take(&self, connector: &str, bytes: u64) -> Result<Place, Failure> {
        let place = || Place {
            room: self.clone(),
            connector: connector.to_owned(),
        };
        let Some(bounded) = &self.0 else { return Ok(place()) };
        let mut refused = None;
        bounded.taken.send_if_modified(|taken| {
            let others: u64 = taken.values().sum();
            let sum = others.saturating_add(bytes);
            if sum > bounded.most {
                refused = Some(full(bounded.most, taken.len(), others, bytes, sum));
                return false;
            }
            taken.insert(connector.to_owned(), bytes);
            true
        });
        refused.map_or_else(|| Ok(place()), Err)
    }

    /// Waits until connectors have taken or given up something since the last look.
    pub(crate) fn changes(&self) -> Option<watch::Receiver<BTreeMap<String, u64>>> {
        self.0.as_ref().map(|bounded| bounded.taken.subscribe())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(bounded) = &self.room.0 {
            bounded
                .taken
                .send_if_modified(|taken| taken.remove(&self.connector).is_some());
        }
    }
}

fn full(most: u64, count: usize, others: u64, bytes: u64, sum: u64) -> Failure {
    let what = format!(
        "this worker has no room for the connector: those that run here ({count}) may have {others} bytes in flight; with this one, it would \
         be {sum} ({others} + {bytes}), and walferry.worker.in.flight.max.bytes is {most}"
    );
    let hint = "the connector starts as soon as there is room: start one more worker, set `walferry.worker.in.flight.max.bytes` of the worker file to \
                more, or `walferry.in.flight.max.bytes` of connectors to less";
    Failure::new(Disposition::Retry, Kind::WorkerFull, what, Some(hint.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connectors_that_do_not_fit_are_refused_with_the_sum_until_another_one_ends() {
        let room = Room::of(Some(100));
        let mut changes = room.changes().expect("it is bounded");
        let first = room.take("a", 60).expect("there is room");
        let refused = room.take("b", 50).expect_err("there is none").to_string();
        for part in ["is 100", "60 + 50", "be 110"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        let _small = room.take("c", 40).expect("it fits beside the first");
        changes.mark_unchanged();
        drop(first);
        assert!(
            changes.has_changed().expect("the room is there"),
            "whoever waits for room looks again"
        );
        let _second = room.take("b", 50).expect("there is room again");
    }

    #[test]
    fn without_a_limit_everything_fits() {
        let room = Room::of(None);
        assert!(!room.is_bounded() && room.changes().is_none());
        let _all = ["a", "b"].map(|name| room.take(name, u64::MAX).expect("there is room"));
    }
}
