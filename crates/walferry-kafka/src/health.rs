//! How the connection to Kafka is, for `/ready` and the page.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use walferry_diagnosis::Kind;
use walferry_engine::{Failure, status::OngoingFailure};

/// The last trouble with Kafka while it lasts. Cheap to clone; one for all producers of a connector.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<State>);

#[derive(Debug, Default)]
struct State {
    trouble: Mutex<Option<OngoingFailure>>,
    /// Whether there is one: read for every batch that is acknowledged.
    troubled: AtomicBool,
    /// Whether a broker has ever answered.
    connected: AtomicBool,
}

fn is_of_connection(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::KafkaUnreachable | Kind::KafkaAuthentication | Kind::KafkaTls | Kind::AwsCredentials
    )
}

impl Health {
    /// The present trouble; `None` when all is well.
    pub fn trouble(&self) -> Option<OngoingFailure> {
        self.lock().clone()
    }

    /// Notes a trouble; the same kind again keeps the time when it began. Returns whether it is news.
    ///
    /// That no broker answers is no news while it is known why.
    pub(crate) fn report(&self, failure: Failure, now: SystemTime) -> bool {
        let mut trouble = self.lock();
        let kind = failure.kind;
        let known = trouble.as_ref().map(|known| known.failure.kind);
        if kind == Kind::KafkaUnreachable && known.is_some_and(|known| is_of_connection(known) && known != kind) {
            return false;
        }
        let before = trouble.take().filter(|before| before.failure.kind == kind);
        let news = before.is_none();
        let now_us = || {
            now.duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_micros() as i64)
        };
        *trouble = Some(OngoingFailure {
            failure,
            since_us: before.map_or_else(now_us, |before| before.since_us),
        });
        self.0.troubled.store(true, Relaxed);
        news
    }

    /// A broker has answered. Returns the trouble that this ends.
    pub(crate) fn connected(&self) -> Option<OngoingFailure> {
        self.0.connected.store(true, Relaxed);
        self.over(is_of_connection)
    }

    /// The topic that was waited for is there. Returns the trouble that this ends.
    pub(crate) fn topic_found(&self) -> Option<OngoingFailure> {
        self.over(|kind| kind == Kind::TopicMissing)
    }

    fn over(&self, is: impl Fn(Kind) -> bool) -> Option<OngoingFailure> {
        if !self.is_troubled() {
            return None;
        }
        let mut trouble = self.lock();
        let over = trouble.take_if(|trouble| is(trouble.failure.kind));
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

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<OngoingFailure>> {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(health: &Health, kind: Kind, second: u64) -> bool {
        let failure = Failure::retry(kind, format!("at {second}"));
        health.report(failure, UNIX_EPOCH + Duration::from_secs(second))
    }

    #[test]
    fn a_trouble_lasts_from_its_first_report_until_kafka_answers() {
        let health = Health::default();
        assert!(report(&health, Kind::KafkaUnreachable, 1));
        assert!(!report(&health, Kind::KafkaUnreachable, 2));
        let trouble = health.trouble().unwrap();
        assert_eq!(
            (trouble.failure.to_string(), trouble.since_us),
            ("at 2".to_owned(), 1_000_000)
        );
        assert!(!health.was_connected());

        assert_eq!(health.connected().unwrap().failure.kind, Kind::KafkaUnreachable);
        assert_eq!((health.trouble(), health.connected()), (None, None));
        assert!(health.was_connected());
    }

    #[test]
    fn a_reason_is_not_hidden_by_its_consequence() {
        let health = Health::default();
        assert!(report(&health, Kind::KafkaAuthentication, 1));
        assert!(!report(&health, Kind::KafkaUnreachable, 2));
        assert_eq!(health.trouble().unwrap().failure.kind, Kind::KafkaAuthentication);
    }

    #[test]
    fn each_trouble_is_ended_by_what_it_is_about() {
        let health = Health::default();
        report(&health, Kind::TopicMissing, 1);
        assert_eq!(health.connected(), None);
        assert_eq!(health.topic_found().unwrap().failure.kind, Kind::TopicMissing);
        report(&health, Kind::KafkaTls, 1);
        assert_eq!(health.topic_found(), None);
        assert_eq!(health.connected().unwrap().failure.kind, Kind::KafkaTls);
    }
}
