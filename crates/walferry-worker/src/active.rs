//! The topics that connectors have sent records to: `GET /connectors/NAME/topics`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::SystemTime,
};

use walferry_engine::status::Status;

/// The topics of each connector since they were last reset. `states` keeps them in Connect's status topic, if the worker has one.
#[derive(Debug, Default)]
pub(crate) struct ActiveTopics(Mutex<BTreeMap<String, OfConnector>>);

#[derive(Debug, Default)]
struct OfConnector {
    /// Topics, and when each was first seen, milliseconds since 1970.
    topics: BTreeMap<String, u64>,
    /// The status from which `before_reset` was counted. A new configuration of a connector comes with a new status, which counts anew.
    counted: Weak<Status>,
    /// The number of records that each topic had when the topics were reset.
    before_reset: BTreeMap<String, u64>,
}

impl OfConnector {
    fn look(&mut self, status: &Arc<Status>, now_ms: u64) {
        let Self {
            topics,
            counted,
            before_reset,
        } = self;
        if !std::ptr::eq(counted.as_ptr(), Arc::as_ptr(status)) {
            before_reset.clear();
            *counted = Arc::downgrade(status);
        }
        status.visit_topics(|topic, records| {
            let is_new = before_reset.get(topic).is_none_or(|before| records > *before);
            if is_new && !topics.contains_key(topic) {
                topics.insert(topic.to_owned(), now_ms);
            }
        });
    }
}

impl ActiveTopics {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, OfConnector>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a topic that is known from an earlier process.
    pub(crate) fn remember(&self, name: &str, topic: &str, first_seen_ms: u64) {
        let mut all = self.lock();
        let of_connector = all.entry(name.to_owned()).or_default();
        of_connector.topics.insert(topic.to_owned(), first_seen_ms);
    }

    /// Adds the topics that a connector has sent records to by now.
    pub(crate) fn look(&self, status: &Arc<Status>) {
        let mut all = self.lock();
        all.entry(status.name.clone()).or_default().look(status, now_ms());
    }

    /// The topics of a connector, and when each was first seen.
    pub(crate) fn of(&self, name: &str) -> BTreeMap<String, u64> {
        let all = self.lock();
        all.get(name)
            .map(|of_connector| of_connector.topics.clone())
            .unwrap_or_default()
    }

    /// Forgets the topics of a connector. Each one is added again with its next record. `status` is the connector's, if it has one.
    pub(crate) fn reset(&self, name: &str, status: Option<&Arc<Status>>) {
        let mut all = self.lock();
        let of_connector = match status {
            // Nobody may have asked for its topics before.
            Some(_) => all.entry(name.to_owned()).or_default(),
            None => match all.get_mut(name) {
                Some(known) => known,
                None => return,
            },
        };
        of_connector.topics.clear();
        if let Some(status) = status {
            of_connector.counted = Arc::downgrade(status);
            of_connector.before_reset.clear();
            let before = &mut of_connector.before_reset;
            status.visit_topics(|topic, records| {
                before.insert(topic.to_owned(), records);
            });
        }
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(active: &ActiveTopics) -> Vec<String> {
        active.of("a").into_keys().collect()
    }

    #[test]
    fn an_active_topic_stays_until_it_is_reset_and_comes_back_with_its_next_record() {
        let active = ActiveTopics::default();
        active.remember("a", "of an earlier process", 5);
        let first = Arc::new(Status::new("a", "s"));
        first.count_topic("one", 3, 30);
        active.look(&first);
        assert_eq!(names(&active), ["of an earlier process", "one"]);
        assert_eq!(active.of("a")["of an earlier process"], 5);

        // The configuration is changed, so the records are counted anew.
        let second = Arc::new(Status::new("a", "s"));
        active.look(&second);
        assert_eq!(names(&active), ["of an earlier process", "one"]);

        second.count_topic("one", 2, 20);
        second.count_topic("two", 1, 10);
        active.look(&second);
        active.reset("a", Some(&second));
        active.look(&second);
        assert!(names(&active).is_empty());
        second.count_topic("two", 1, 10);
        active.look(&second);
        assert_eq!(names(&active), ["two"]);

        // After a reset, the first record under another configuration counts, too.
        active.reset("a", Some(&second));
        let third = Arc::new(Status::new("a", "s"));
        third.count_topic("one", 1, 10);
        active.look(&third);
        assert_eq!(names(&active), ["one"]);
        active.reset("a", None);
        assert!(names(&active).is_empty());
    }

    #[test]
    fn what_counts_for_many_topics_together_is_no_topic() {
        let active = ActiveTopics::default();
        let status = Arc::new(Status::new("a", "s"));
        for number in 0..3_000 {
            status.count_topic(&format!("t{number}"), 1, 1);
        }
        active.look(&status);
        let names = names(&active);
        assert!(
            names.len() > 1_000 && names.iter().all(|name| name.starts_with('t')),
            "{}",
            names.len()
        );
    }
}
