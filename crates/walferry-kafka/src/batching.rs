//! How many bytes one request carries.
//!
//! A topic's `max.message.bytes` bounds a batch, not a record. Java's producer splits a batch that a broker refuses for its
//! size; librdkafka gives all its records up. So they are sent again in smaller batches, and the record that is refused
//! alone is the one that is too large.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering::Relaxed},
};

use walferry_engine::{Disposition, Failure};

use crate::client::Properties;

/// The size of batches, for all producers of a connector. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Batching(Arc<AtomicU8>);

/// As configured, then Java's default, then each record alone.
const STEPS: [Option<(&str, &str)>; 3] = [None, Some(("batch.size", "16384")), Some(("batch.num.messages", "1"))];

impl Batching {
    /// Sets what the next producer takes.
    pub(crate) fn apply(&self, properties: &mut Properties) {
        if let Some((name, value)) = STEPS[usize::from(self.0.load(Relaxed))] {
            properties.values.insert(name.into(), value.into());
        }
    }

    /// A batch of several records was refused for its size. `None` when there was no smaller step to take.
    pub(crate) fn refused(&self, topic: &str, records: usize) -> Option<Failure> {
        let step = self.0.load(Relaxed);
        if records < 2 || usize::from(step) + 1 == STEPS.len() {
            return None;
        }
        self.0.store(step + 1, Relaxed);
        Some(Failure::new(
            Disposition::Replay,
            "batch_too_large",
            format!(
                "a batch of {records} records is larger than topic {topic} takes; smaller ones are sent from now on"
            ),
            Some("set `producer.override.batch.size` below the smallest `max.message.bytes` of the topics".into()),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_shrink_until_a_record_is_alone() {
        let batching = Batching::default();
        let next = || {
            let mut properties = Properties::default();
            batching.apply(&mut properties);
            properties.values.into_iter().next().map(|(name, _)| name)
        };
        assert_eq!(next(), None);
        assert_eq!(batching.refused("t", 1), None);
        assert!(batching.refused("t", 9).is_some());
        assert_eq!(next().as_deref(), Some("batch.size"));
        assert!(batching.refused("t", 9).is_some());
        assert_eq!(next().as_deref(), Some("batch.num.messages"));
        assert_eq!(batching.refused("t", 9), None);
    }
}
