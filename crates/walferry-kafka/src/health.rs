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

/// No broker answers.
pub(crate) const UNREACHABLE: &str = "kafka_unreachable";
/// The brokers refuse the log-in.
pub(crate) const AUTHENTICATION: &str = "kafka_authentication";
/// No TLS connection comes about.
pub(crate) const TLS: &str = "kafka_tls";
/// A topic is waited for.
pub(crate) const TOPIC_MISSING: &str = "topic_missing";

fn is_of_connection(kind: &str) -> bool {
    matches!(kind, UNREACHABLE | AUTHENTICATION | TLS)
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
    ///
    /// That no broker answers is no news while it is known why.
    pub(crate) fn report(&self, kind: &'static str, what: String, hint: Option<String>, now: SystemTime) -> bool {
        let mut trouble = self.lock();
        if kind == UNREACHABLE
            && trouble
                .as_ref()
                .is_some_and(|known| is_of_connection(known.kind) && known.kind != kind)
        {
            return false;
        }
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

    /// A broker has answered. Returns the trouble that this ends.
    pub(crate) fn connected(&self) -> Option<Trouble> {
        self.0.connected.store(true, Relaxed);
        self.over(is_of_connection)
    }

    /// The topic that was waited for is there. Returns the trouble that this ends.
    pub(crate) fn topic_found(&self) -> Option<Trouble> {
        self.over(|kind| kind == TOPIC_MISSING)
    }

    fn over(&self, is: impl Fn(&str) -> bool) -> Option<Trouble> {
        if !self.is_troubled() {
            return None;
        }
        let mut trouble = self.lock();
        let over = trouble.take_if(|trouble| is(trouble.kind));
        self.0.troubled.store(trouble.is_some(), Relaxed);
        over
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

    fn report(health: &Health, kind: &'static str, second: u64) -> bool {
        health.report(
            kind,
            format!("at {second}"),
            None,
            UNIX_EPOCH + Duration::from_secs(second),
        )
    }

    #[test]
    fn a_trouble_lasts_from_its_first_report_until_kafka_answers() {
        let health = Health::default();
        assert!(report(&health, UNREACHABLE, 1));
        assert!(!report(&health, UNREACHABLE, 2));
        let trouble = health.trouble().unwrap();
        assert_eq!(
            (trouble.what.as_str(), trouble.since),
            ("at 2", UNIX_EPOCH + Duration::from_secs(1))
        );
        assert!(!health.was_connected());

        assert_eq!(health.connected().unwrap().kind, UNREACHABLE);
        assert_eq!((health.trouble(), health.connected()), (None, None));
        assert!(health.was_connected());
    }

    #[test]
    fn a_reason_is_not_hidden_by_its_consequence() {
        let health = Health::default();
        assert!(report(&health, AUTHENTICATION, 1));
        assert!(!report(&health, UNREACHABLE, 2));
        assert_eq!(health.trouble().unwrap().kind, AUTHENTICATION);
    }

    #[test]
    fn each_trouble_is_ended_by_what_it_is_about() {
        let health = Health::default();
        report(&health, TOPIC_MISSING, 1);
        assert_eq!(health.connected(), None);
        assert_eq!(health.topic_found().unwrap().kind, TOPIC_MISSING);
        report(&health, TLS, 1);
        assert_eq!(health.topic_found(), None);
        assert_eq!(health.connected().unwrap().kind, TLS);
    }
}
