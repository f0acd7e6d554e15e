//! Whether this process may write to Connect's topics.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use tokio::sync::watch;
use tracing::{debug, warn};
use walferry_engine::{Disposition, Failure, Kind};

use super::{
    agreement::Agreement,
    clock::{Clock, since_boot},
};

pub(super) const REQUEST: Duration = Duration::from_secs(10);

/// If the group's thread shows no sign of life for this long, this process or its machine stood still. Meanwhile, the brokers may have given
/// its turn to another process.
pub(super) const STILL: Duration = Duration::from_secs(5);

/// Whether this process may write to Connect's topics. Clones share it.
#[derive(Clone)]
pub struct Lease(Arc<Mutex<HeldLease>>);

/// A client with records that are queued for Kafka.
pub trait Queue: Send + Sync {
    /// Gives up all of them, because another process may be about to send the same records.
    fn give_up(&self);
}

struct HeldLease {
    over: bool,
    /// When the process was last known to be in its group. `None` if nobody checks.
    seen: Option<Duration>,
    clock: Clock,
    /// How often the brokers were asked whether it is.
    asked: u32,
    queues: Vec<Weak<dyn Queue>>,
}

impl Default for Lease {
    /// A lease that never ends.
    fn default() -> Self {
        Self::by(Arc::new(since_boot))
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("over", &self.with(|held| held.over))
            .field("asked", &self.asked())
            .finish()
    }
}

impl Lease {
    fn with<T>(&self, look: impl FnOnce(&mut HeldLease) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The brokers are asked whether the process is in its group.
    pub(super) fn ask(&self) {
        self.with(|held| held.asked += 1);
    }

    /// How often they were asked.
    pub(super) fn asked(&self) -> u32 {
        self.with(|held| held.asked)
    }

    pub(super) fn by(clock: Clock) -> Self {
        Self(Arc::new(Mutex::new(HeldLease {
            over: false,
            seen: None,
            clock,
            asked: 0,
            queues: Vec::new(),
        })))
    }

    /// The process is in its group.
    pub(super) fn see(&self, now: Duration) {
        self.with(|held| held.seen = Some(now));
    }

    /// Another process may work on the topics from now on.
    pub(super) fn end(&self) {
        self.with(|held| held.over = true);
        self.give_up();
    }

    /// Gives up all records that are queued for Kafka, because another process may work on the topics now or soon.
    pub(crate) fn give_up(&self) {
        let queues = self.with(|held| held.queues.clone());
        // Not under the lock: a client may be slow, and others check meanwhile whether they may write.
        for queue in queues.iter().filter_map(Weak::upgrade) {
            queue.give_up();
        }
    }

    /// Registers a client: it gives up its queued records when the lease is over or in doubt.
    pub fn include(&self, queue: Weak<dyn Queue>) {
        let is_over = self.with(|held| {
            held.queues.retain(|queue| queue.strong_count() > 0);
            held.queues.push(queue.clone());
            held.over
        });
        if is_over && let Some(queue) = queue.upgrade() {
            queue.give_up();
        }
    }

    /// Whether a record may be written now.
    pub fn holds(&self) -> bool {
        self.with(|held| !held.over && held.seen.is_none_or(|seen| (held.clock)().saturating_sub(seen) < STILL))
    }
}

/// Notices that this process or its machine stood still, because the brokers may have given away meanwhile what it has. From then on the
/// lease is in doubt, so that nothing is written, until the brokers have confirmed the membership. Its `look` is called in each round of
/// the thread that polls.
pub(super) struct StallWatch {
    clock: Clock,
    lease: Lease,
    /// The beginning of the last round.
    last: Duration,
    /// Since when the membership has to be confirmed.
    pub(super) doubtful_since: Option<Duration>,
}

impl StallWatch {
    pub(super) fn new(clock: Clock, lease: Lease) -> Self {
        Self {
            last: clock(),
            clock,
            lease,
            doubtful_since: None,
        }
    }

    /// `confirm` gets the time now, and the time since when the process is in doubt. If the brokers have confirmed the membership since then, it
    /// returns when they were asked. It must not block. What ends a doubt is returned.
    ///
    /// Who has not joined yet has nothing to be confirmed: the doubt lasts until it has, and begins then.
    pub(super) fn look(
        &mut self,
        has_joined: bool,
        confirm: impl FnOnce(Duration, Duration) -> Option<Duration>,
    ) -> Option<Duration> {
        let now = (self.clock)();
        if now.saturating_sub(self.last) > STILL {
            warn!(
                seconds = (now - self.last).as_secs(),
                "this process has stood still: nothing is written to Connect's topics until the brokers have confirmed that it is still \
                 its turn"
            );
            // Queued records would be sent at once, but another process may be further by now.
            self.lease.give_up();
            self.doubtful_since = Some(now);
        }
        // A pause from here on is noticed in the next round.
        self.last = now;
        let Some(since) = self.doubtful_since else {
            self.lease.see(now);
            return None;
        };
        if !has_joined {
            self.doubtful_since = Some(now);
            return None;
        }
        let proof = confirm(now, since)?;
        self.doubtful_since = None;
        self.lease.see(proof);
        Some(proof)
    }
}

/// Why the brokers refuse this process as a member of its group.
pub(super) struct GroupErrors {
    group: String,
    topic: String,
    denied: watch::Sender<Option<Failure>>,
    agreement: Arc<Agreement>,
    /// Errors that were logged before. The client repeats them.
    logged: BTreeSet<String>,
}

impl GroupErrors {
    pub(super) fn new(
        group: String,
        topic: String,
        denied: watch::Sender<Option<Failure>>,
        agreement: Arc<Agreement>,
    ) -> Self {
        Self {
            group,
            topic,
            denied,
            agreement,
            logged: BTreeSet::new(),
        }
    }

    pub(super) fn tell(&mut self, error: &KafkaError) {
        let (group, topic) = (&self.group, &self.topic);
        let denied = |what: String, hint: String| Failure::new(Disposition::Retry, Kind::KafkaDenied, what, Some(hint));
        let failure = match error.rdkafka_error_code() {
            Some(Code::GroupAuthorizationFailed) => denied(
                format!(
                    "the Kafka user is not allowed to join consumer group {group}, in which Walferry processes agree whose turn it is"
                ),
                format!("grant the user Read on the group (`kafka-acls --add --operation Read --group {group} …`)"),
            ),
            Some(Code::TopicAuthorizationFailed) => denied(
                format!("the Kafka user is not allowed to read topic {topic}"),
                format!(
                    "grant the user Read, Write and Describe on the topic (`kafka-acls --add --operation Read --operation Write --operation \
                     Describe --topic {topic} …`)"
                ),
            ),
            // Brokers have no other word for a fault of their own.
            Some(Code::Unknown) => {
                debug!(%error, group, "the broker that coordinates the group fails");
                self.agreement.refuse();
                return;
            }
            _ => {
                // The client restores a broken connection by itself. This line gives the reason for a long wait.
                match self.logged.insert(error.to_string()) {
                    true => {
                        warn!(%error, group, "the Kafka client that waits for its turn on Connect's topics reports an error")
                    }
                    false => debug!(%error, group, "the same error again"),
                }
                return;
            }
        };
        if self.denied.borrow().as_ref() != Some(&failure) {
            warn!(
                code = failure.code(),
                hint = failure.hint(),
                "{failure}: this process waits for its turn until it has the permission"
            );
            self.denied.send_replace(Some(failure));
        }
    }
}
