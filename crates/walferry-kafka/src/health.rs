//! How the connection to Kafka is, for `/ready` and the page.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::SystemTime,
};

/// The last trouble with Kafka while it lasts. Cheap to clone; one for all producers of a connector.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<State>);

#[derive(Debug, Default)]
struct State {
    trouble: Mutex<Option<Trouble>>,
    /// Whether there is one: read for every batch that is acknowledged.
    troubled: AtomicBool,
    /// Whether a broker has ever answered.
    connected: AtomicBool,
}

/// Something that keeps records from being delivered, and that may pass without anybody's help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// A short constant word for metrics, such as `kafka_unreachable`.
    pub kind: &'static str,
    /// What is the matter, in one sentence without a full stop.
    pub what: String,
    /// What to do about it if it does not pass.
    pub hint: Option<String>,
    /// When it began.
    pub since: SystemTime,
}

impl Health {
    /// The present trouble; `None` when all is well.
    pub fn trouble(&self) -> Option<Trouble> {
        self.lock().clone()
    }

    /// Notes a trouble; the same kind again keeps the time when it began. Returns whether it is news.
    pub(crate) fn report(&self, kind: &'static str, what: String, hint: Option<String>, now: SystemTime) -> bool {
        let mut trouble = self.lock();
        let before = trouble.take().filter(|before| before.kind == kind);
        let news = before.is_none();
        *trouble = Some(Trouble {
            kind,
            what,
            hint,
            since: before.map_or(now, |before| before.since),
        });
        self.0.troubled.store(true, Relaxed);
        news
    }

    /// Kafka has answered as it should. Returns the trouble that this ends.
    pub(crate) fn well(&self) -> Option<Trouble> {
        self.0.connected.store(true, Relaxed);
        if !self.0.troubled.swap(false, Relaxed) {
            return None;
        }
        self.lock().take()
    }

    pub(crate) fn is_troubled(&self) -> bool {
        self.0.troubled.load(Relaxed)
    }

    /// Whether a broker has ever taken a record, or told of a topic, since the process began.
    pub(crate) fn was_connected(&self) -> bool {
        self.0.connected.load(Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Trouble>> {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_trouble_lasts_from_its_first_report_until_kafka_answers() {
        let health = Health::default();
        let at = |s| UNIX_EPOCH + Duration::from_secs(s);
        assert!(health.report("a", "one".into(), None, at(1)));
        assert!(!health.report("a", "two".into(), None, at(2)));
        let trouble = health.trouble().unwrap();
        assert_eq!((trouble.what.as_str(), trouble.since), ("two", at(1)));
        assert!(health.report("b", "three".into(), None, at(3)));
        assert_eq!(health.trouble().unwrap().since, at(3));
        assert!(!health.was_connected());

        assert_eq!(health.well().unwrap().kind, "b");
        assert_eq!((health.trouble(), health.well()), (None, None));
        assert!(health.was_connected());
    }
}
