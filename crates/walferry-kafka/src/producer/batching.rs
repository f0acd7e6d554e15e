//! How many bytes one request carries.
//!
//! A topic's `max.message.bytes` bounds a batch, not a record. Java's producer splits a batch that a broker refuses for its
//! size; librdkafka gives all its records up. So they are sent again alone (`mend.rs`; in transactions, by a new producer). A record that is
//! refused alone is too large. If none is, the batch was, and from then on smaller batches are sent.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rdkafka::error::RDKafkaErrorCode as Code;
use walferry_diagnosis::Kind;
use walferry_engine::{Disposition, Failure};

use crate::client::Properties;

/// The size of batches, for all producers of a connector. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batching(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Which of [`STEPS`] the next producer takes.
    step: usize,
    /// When a batch was refused last.
    refused: Option<Instant>,
}

/// The step that a producer was opened with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step(usize);

/// As configured, then Java's default, then each record alone.
const STEPS: [Option<(&str, &str)>; 3] = [None, Some(("batch.size", "16384")), Some(ALONE)];
/// The setting that sends each record alone.
pub(crate) const ALONE: (&str, &str) = ("batch.num.messages", "1");

/// A producer that is opened this long after the last refusal tries the configured size again: the topic may have been
/// altered, or its large records may be over.
const FORGIVEN_AFTER: Duration = Duration::from_secs(3600);

impl Batching {
    /// Sets the size for a producer that is opened now.
    pub(crate) fn apply(&self, properties: &mut Properties, now: Instant) -> Step {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state
            .refused
            .is_some_and(|refused| now.duration_since(refused) >= FORGIVEN_AFTER)
        {
            *state = State::default();
        }
        if let Some((name, value)) = STEPS[state.step] {
            properties.values.insert(name.into(), value.into());
        }
        Step(state.step)
    }

    /// A batch of several records was refused for its size. `None` when there was no smaller step to take.
    ///
    /// Several batches are under way at a time, and more than one may be refused: they shrink the next producer's batches
    /// once.
    pub(crate) fn refused(&self, opened: Step, topic: &str, records: usize, now: Instant) -> Option<Failure> {
        if records < 2 || opened.0 + 1 == STEPS.len() {
            return None;
        }
        self.shrink(opened.0 + 1, now);
        Some(Failure::new(
            Disposition::Replay,
            Kind::BatchTooLarge,
            format!(
                "a batch of {records} records is larger than topic {topic} accepts; from now on smaller batches are sent"
            ),
            Some("set `producer.override.batch.size` below the smallest `max.message.bytes` of the topics".into()),
        ))
    }

    /// A batch of several records was refused because of one of them, and the broker does not say which. The next producer sends each record
    /// alone. `None` when this one has done so.
    pub(crate) fn isolate(
        &self,
        opened: Step,
        topic: &str,
        records: usize,
        code: Code,
        now: Instant,
    ) -> Option<Failure> {
        let alone = STEPS.len() - 1;
        if opened.0 == alone {
            return None;
        }
        self.shrink(alone, now);
        Some(Failure::new(
            Disposition::Replay,
            Kind::KafkaDelivery,
            format!(
                "the broker refuses a batch of {records} records for topic {topic} ({code}) and does not say because of which; each record \
                 is sent alone to find it"
            ),
            None,
        ))
    }

    fn shrink(&self, step: usize, now: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.step = state.step.max(step);
        state.refused = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens a producer and returns its step, and the setting that it was given.
    fn open(batching: &Batching, now: Instant) -> (Step, Option<String>) {
        let mut properties = Properties::default();
        let step = batching.apply(&mut properties, now);
        (step, properties.values.into_keys().next())
    }

    #[test]
    fn batches_shrink_until_a_record_is_alone() {
        let (batching, now) = (Batching::default(), Instant::now());
        let (configured, setting) = open(&batching, now);
        assert_eq!(setting, None);
        assert_eq!(batching.refused(configured, "t", 1, now), None);
        assert!(batching.refused(configured, "t", 9, now).is_some());
        let (smaller, setting) = open(&batching, now);
        assert_eq!(setting.as_deref(), Some("batch.size"));
        assert!(batching.refused(smaller, "t", 9, now).is_some());
        let (alone, setting) = open(&batching, now);
        assert_eq!(setting.as_deref(), Some("batch.num.messages"));
        assert_eq!(batching.refused(alone, "t", 9, now), None);
    }

    #[test]
    fn records_are_sent_alone_to_find_the_one_that_a_broker_does_not_name() {
        let (batching, now) = (Batching::default(), Instant::now());
        let (configured, _) = open(&batching, now);
        assert!(
            batching
                .isolate(configured, "t", 9, Code::InvalidTimestamp, now)
                .is_some()
        );
        let (alone, setting) = open(&batching, now);
        assert_eq!(setting.as_deref(), Some("batch.num.messages"));
        assert_eq!(batching.isolate(alone, "t", 9, Code::InvalidTimestamp, now), None);
    }

    #[test]
    fn several_batches_that_are_refused_at_once_shrink_the_next_ones_once() {
        let (batching, now) = (Batching::default(), Instant::now());
        let (configured, _) = open(&batching, now);
        for _ in 0..5 {
            assert!(batching.refused(configured, "t", 9, now).is_some());
        }
        assert_eq!(open(&batching, now).1.as_deref(), Some("batch.size"));
    }

    #[test]
    fn the_configured_size_is_tried_again_long_after_the_last_refusal() {
        let (batching, now) = (Batching::default(), Instant::now());
        batching.refused(open(&batching, now).0, "t", 9, now);
        let before = now + FORGIVEN_AFTER - Duration::from_secs(1);
        assert_eq!(open(&batching, before).1.as_deref(), Some("batch.size"));
        assert_eq!(open(&batching, now + FORGIVEN_AFTER), (Step(0), None));
    }
}
