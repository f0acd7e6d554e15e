//! How the connection to Kafka is, for `/ready` and the page.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use tracing::info;
use walferry_diagnosis::{
    Kind,
    outages::{REPEATED, Wait},
};
use walferry_engine::{Failure, status::OngoingFailure};

/// The last trouble with Kafka while it lasts. Cheap to clone; one for all producers of a connector.
#[derive(Debug, Clone, Default)]
pub struct Health(Arc<State>);

/// What a report of a trouble is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// The connector is in this trouble already.
    Known,
    /// Another connector of the process is in the same trouble, and has logged it.
    OfOther,
    /// Nobody has told of it.
    New,
}

impl Recovery {
    /// Logs it: once for all connectors of the process, with their number.
    pub(crate) fn log(&self) {
        let kind = self.failure.kind.as_str();
        match self.connectors {
            Some(1) => info!(kind, "kafka answers again"),
            Some(connectors) => info!(kind, connectors, "kafka answers again"),
            None => info!(target: REPEATED, kind, "kafka answers again"),
        }
    }
}

/// A trouble is over.
#[derive(Debug)]
pub(crate) struct Recovery {
    pub(crate) failure: Failure,
    /// How many connectors were in the same trouble. `None`: another one of them has logged the end.
    pub(crate) connectors: Option<usize>,
}

#[derive(Debug, Default)]
struct State {
    trouble: Mutex<Option<OngoingFailure>>,
    /// The wait for brokers that other connectors of the process may wait for, too.
    wait: Mutex<Option<Wait>>,
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

    /// Notes a trouble with these servers; the same kind again keeps the time when it began. Returns whether it is news.
    ///
    /// That no broker answers is no news while it is known why.
    pub(crate) fn report(&self, servers: &str, failure: Failure, now: SystemTime) -> News {
        let mut trouble = self.lock();
        let kind = failure.kind;
        let known = trouble.as_ref().map(|known| known.failure.kind);
        if kind == Kind::KafkaUnreachable && known.is_some_and(|known| is_of_connection(known) && known != kind) {
            return News::Known;
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
        if !news {
            return News::Known;
        }
        let wait = is_of_connection(kind).then(|| Wait::begin(servers, kind));
        let is_first = wait.as_ref().is_none_or(|wait| wait.is_first);
        *self.wait() = wait;
        if is_first { News::New } else { News::OfOther }
    }

    /// A broker has answered. Returns the trouble that this ends.
    pub(crate) fn connected(&self) -> Option<Recovery> {
        self.0.connected.store(true, Relaxed);
        let trouble = self.over(is_of_connection)?;
        let wait = self.wait().take();
        Some(Recovery {
            failure: trouble.failure,
            connectors: wait.and_then(Wait::end),
        })
    }

    fn wait(&self) -> MutexGuard<'_, Option<Wait>> {
        self.0.wait.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn lock(&self) -> MutexGuard<'_, Option<OngoingFailure>> {
        self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn report(health: &Health, kind: Kind, second: u64) -> bool {
        let failure = Failure::retry(kind, format!("at {second}"));
        health.report("k:1", failure, UNIX_EPOCH + Duration::from_secs(second)) != News::Known
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
        assert_eq!(health.trouble(), None);
        assert!(health.connected().is_none());
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
        assert!(health.connected().is_none());
        assert_eq!(health.topic_found().unwrap().failure.kind, Kind::TopicMissing);
        report(&health, Kind::KafkaTls, 1);
        assert_eq!(health.topic_found(), None);
        assert_eq!(health.connected().unwrap().failure.kind, Kind::KafkaTls);
    }
}
