//! Whether the brokers still know a member, also while its Kafka client does not watch for it.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rdkafka::statistics::Statistics;

use super::clock::Clock;

/// A member that has not been seen for this long gives up what it has. It is shorter than the session, after which the brokers give it away.
pub(super) const UNSEEN: Duration = Duration::from_secs(5);
/// How often the client tells its state.
pub(super) const STATISTICS_MS: &str = "500";
/// Join state of a client that sends heartbeats, and neither joins nor waits for an answer to a revocation.
const STEADY: &str = "steady";

/// When a member was last known to be in its group.
///
/// librdkafka counts the time without an answered heartbeat only while nothing moves, in its join state "steady". While a revocation waits for
/// an answer, it does not, and it ignores refused heartbeats. While it waits in JoinGroup for other members, it sends no heartbeats. In both
/// cases, the brokers may have removed the member and reassigned its partitions without the client noticing. So a membership needs a proof that is
/// not older than [`UNSEEN`]: the client is steady, or the brokers list its id among the members of the group.
pub(super) struct Contact {
    clock: Clock,
    /// Before the client was made.
    begun: Duration,
    /// How old a proof may be.
    unseen: Duration,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The id that the brokers have given to the member.
    id: String,
    /// The last proof.
    seen: Duration,
    /// When the brokers were last asked for the members and listed this one.
    listed: Duration,
}

impl fmt::Debug for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contact").field("seen", &self.lock().seen).finish()
    }
}

impl Contact {
    pub(super) fn new(clock: Clock, unseen: Duration) -> Self {
        let begun = clock();
        let known = Known {
            seen: begun,
            ..Known::default()
        };
        Self {
            clock,
            begun,
            unseen,
            known: Mutex::new(known),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A broker has just answered this member, or will have done so before the client is steady.
    pub(super) fn see_now(&self) {
        let now = (self.clock)();
        self.see(now);
    }

    /// The member was known at this time.
    pub(super) fn see(&self, at: Duration) {
        let mut known = self.lock();
        known.seen = known.seen.max(at);
    }

    /// What the client says of itself. It may have said so a while ago.
    pub(super) fn see_steady(&self, statistics: &Statistics) {
        let is_steady = statistics.cgrp.as_ref().is_some_and(|group| group.join_state == STEADY);
        if is_steady && let Ok(age) = u64::try_from(statistics.age) {
            self.see(self.begun + Duration::from_micros(age));
        }
    }

    /// The client's id now.
    pub(super) fn set_id(&self, id: String) {
        self.lock().id = id;
    }

    /// What is needed to understand an answer of the brokers. To be called before they are asked.
    pub(super) fn ask(&self) -> Question {
        Question {
            id: self.lock().id.clone(),
            at: (self.clock)(),
        }
    }

    /// The brokers have listed these members.
    pub(super) fn see_among(&self, question: &Question, ids: &BTreeSet<String>) {
        if ids.contains(&question.id) {
            self.see(question.at);
            let mut known = self.lock();
            known.listed = known.listed.max(question.at);
        }
    }

    /// When the brokers were last asked and listed the member, if that was at this time or later.
    pub(super) fn listed_since(&self, at: Duration) -> Option<Duration> {
        let listed = self.lock().listed;
        (listed >= at).then_some(listed)
    }

    /// Whether something has lasted longer than a member may go without a proof.
    pub(super) fn is_too_long(&self, since: Duration) -> bool {
        (self.clock)().saturating_sub(since) > self.unseen
    }

    /// Whether the member has to take it that the brokers have forgotten it.
    pub(super) fn is_lost(&self) -> bool {
        let known = self.lock();
        // A client that has no id any more has been refused by the brokers.
        known.id.is_empty() || (self.clock)().saturating_sub(known.seen) > self.unseen
    }
}

/// A question to the brokers for the members of the group.
#[derive(Debug)]
pub struct Question {
    id: String,
    at: Duration,
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    };

    use rdkafka::statistics::ConsumerGroup;

    use super::*;

    fn statistics(join_state: &str, age_s: i64) -> Statistics {
        Statistics {
            age: age_s * 1_000_000,
            cgrp: Some(ConsumerGroup {
                join_state: join_state.into(),
                ..ConsumerGroup::default()
            }),
            ..Statistics::default()
        }
    }

    #[test]
    fn a_member_is_lost_unless_it_is_steady_or_the_brokers_list_it() {
        let now = Arc::new(AtomicU64::new(100));
        let clock = {
            let now = now.clone();
            Arc::new(move || Duration::from_secs(now.load(Relaxed)))
        };
        let contact = Contact::new(clock, UNSEEN);
        assert!(contact.is_lost(), "it has no id");
        contact.set_id("a-1".into());
        assert!(!contact.is_lost());
        let at = |seconds| now.store(seconds, Relaxed);
        at(106);
        assert!(contact.is_lost());
        contact.see_steady(&statistics("wait-unassign-call", 6));
        assert!(contact.is_lost());
        contact.see_steady(&statistics("steady", 6));
        assert!(!contact.is_lost());
        at(112);
        contact.see_steady(&statistics("steady", 6));
        assert!(contact.is_lost(), "the client said so long ago");

        // The answer counts from the time of the question.
        let question = contact.ask();
        at(117);
        contact.see_among(&question, &BTreeSet::from(["b-1".into()]));
        assert!(contact.is_lost(), "another one is listed");
        let listed_since = |contact: &Contact, second| contact.listed_since(Duration::from_secs(second));
        assert_eq!(listed_since(&contact, 112), None);
        contact.see_among(&question, &BTreeSet::from(["a-1".into(), "b-1".into()]));
        assert!(!contact.is_lost());
        assert_eq!(listed_since(&contact, 111), Some(Duration::from_secs(112)));
        assert_eq!(listed_since(&contact, 113), None);
        at(118);
        assert!(contact.is_lost());
        contact.see_now();
        assert!(!contact.is_lost());
        contact.set_id(String::new());
        assert!(contact.is_lost());
    }
}
