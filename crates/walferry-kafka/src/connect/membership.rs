//! Membership in a group of workers that share connectors.
//!
//! Members of the consumer group `walferry-<group.id>` share two topics: the configuration topic, whose only partition makes its owner the
//! *leader*, which alone writes configurations; and the *work topic* `walferry-<group.id>-work`, which stays empty. A connector belongs
//! to the member that has the partition of the hash of its name. The assignment is Kafka's `cooperative-sticky`: a member keeps what it has,
//! and gives up only what moves.
//!
//! If one member does not share, because it is of an earlier version or has connectors of its own, only the leader works
//! ([`GroupView::all_share`]).
//!
//! A partition is given up in three steps, so that no two members work for a connector: the brokers ask for it (`Share::leaving`), the worker
//! stops the connectors of it and calls [`Membership::release`], and only then is the group told. If the brokers have given it away
//! without asking, because they heard nothing from this process, everything is lost at once ([`Standing::Lost`]). The client does not notice
//! this while partitions move, so [`Contact`] does.
//!
//! The protocol is the classic one, not that of KIP-848: a member of an earlier version, which knows only the classic protocol, is in the
//! same group during a rolling upgrade, and `DescribeGroups` tells all members who has what with every broker since Kafka 2.4.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rdkafka::{
    ClientContext, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    statistics::Statistics,
    types::RDKafkaRespErr,
};
use tokio::sync::watch;
use tracing::{debug, warn};
use walferry_engine::{Failure, Kind};

use super::{
    ConnectTopics, Lease, Topic,
    client_id::client_id,
    contact::{Contact, STATISTICS_MS, UNSEEN},
    group::{Clock, GroupErrors, StallWatch, since_boot},
    members::{GroupReader, GroupView, work_topic},
    partition::partition_of,
    places::Places,
};
use crate::{auth::tokens::LoggedIn, failure, native};

/// The number of partitions of the work topic: the most workers that can have a connector.
pub const WORK_PARTITIONS: i32 = 64;

const POLL: Duration = Duration::from_millis(50);
/// After this time without a heartbeat, the brokers give away what a member has. It is the shortest that brokers allow by default, so that a
/// killed worker's connectors go on within 10 s.
const SESSION_MS: &str = "6000";
/// A member learns with its next heartbeat that the group changes.
const HEARTBEAT_MS: &str = "300";
/// Connectors that take longer to stop are abandoned, and with them all that this process has.
const RELEASE: Duration = Duration::from_secs(45);
/// How often the members are looked at while nothing changes.
const LOOK: Duration = Duration::from_secs(2);
/// How soon they are looked at again while something moves.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The partition of the work topic to which a connector belongs.
pub fn work_partition(connector: &str) -> i32 {
    partition_of(connector.as_bytes(), WORK_PARTITIONS)
}

/// How a process stands in its group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Standing {
    /// The brokers have not taken it in yet.
    #[default]
    Joining,
    /// It is a member.
    Member,
    /// It was one, and others may have what it had. Whoever wants to go on joins again.
    Lost,
}

/// What a process has of the work of its group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Share {
    /// Whether it is in the group.
    pub standing: Standing,
    /// What it has and keeps.
    pub held: Places,
    /// What it still has, and gives up as soon as [`Membership::release`] is called.
    pub leaving: Places,
}

/// A member of the group. It leaves when this is dropped.
#[derive(Debug)]
pub struct Membership {
    share: watch::Receiver<Share>,
    view: watch::Receiver<Option<GroupView>>,
    denied: watch::Receiver<Option<Failure>>,
    lease: Lease,
    released: Arc<Mutex<Option<Places>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    address: String,
    looks_closely: Arc<AtomicBool>,
}

struct Context {
    config_topic: String,
    share: watch::Sender<Share>,
    lease: Lease,
    contact: Arc<Contact>,
    denied: watch::Sender<Option<Failure>>,
    /// What is to be given up, and since when.
    asked_back: Mutex<Option<(TopicPartitionList, Instant)>>,
    is_leaving: Arc<AtomicBool>,
}

impl ClientContext for Context {
    fn stats(&self, statistics: Statistics) {
        self.contact.see_steady(&statistics);
    }
}

impl Context {
    /// Others may have what this member had. Its client must not join again by itself: it would be given connectors that nobody runs.
    fn lose(&self, consumer: &BaseConsumer<Self>) {
        self.lease.end();
        consumer.unsubscribe();
        self.share.send_modify(|share| {
            *share = Share {
                standing: Standing::Lost,
                ..Share::default()
            };
        });
    }
}

impl ConsumerContext for Context {
    /// Unlike the default, this does not answer a revocation. [`MemberLoop::give_up`] does, after the connectors have stopped; until then, the thread
    /// continues to poll.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let places = Places::of(list, &self.config_topic);
        if what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            if let Err(error) = consumer.incremental_assign(list) {
                warn!(%error, "the Kafka client does not take what the brokers have given to this worker");
                return;
            }
            // Nobody reads the records here.
            let _ = consumer.pause(list);
            self.denied.send_if_modified(|denied| denied.take().is_some());
            self.contact.see_now();
            self.share.send_if_modified(|share| {
                // What was given up stays so, whatever the client does next.
                if share.standing == Standing::Lost {
                    return false;
                }
                share.standing = Standing::Member;
                share.held.add(&places);
                true
            });
            return;
        }
        if consumer.assignment_lost() || self.is_leaving.load(Relaxed) {
            self.lose(consumer);
            let _ = consumer.incremental_unassign(list);
            return;
        }
        let mut asked_back = self.asked_back.lock().unwrap_or_else(PoisonError::into_inner);
        *asked_back = Some((list.clone(), Instant::now()));
        self.share.send_modify(|share| {
            share.held.remove(&places);
            share.leaving.add(&places);
        });
    }
}

impl ConnectTopics {
    /// The name of the work topic.
    pub fn work_topic(&self) -> String {
        work_topic(&self.group)
    }

    pub(super) fn work(&self) -> Topic {
        Topic {
            property: "config.storage",
            purpose: "the assignment of connectors to workers (it stays empty)",
            has_records: false,
            name: self.work_topic(),
            partitions: WORK_PARTITIONS,
            replication: self.config.replication,
            settings: Vec::new(),
        }
    }

    /// Creates the work topic if it is missing, with as many replicas as the configuration topic is created with. Blocks.
    ///
    /// # Errors
    /// Kafka cannot be reached, the topic cannot be created, or it has another number of partitions.
    pub fn ensure_work(&self) -> Result<(), Failure> {
        let topic = self.work();
        topic.ensure(&self.client)?;
        let reader = GroupReader::open(self)?;
        let partitions = reader.partitions_of(&topic.name)?;
        if partitions == WORK_PARTITIONS as usize {
            return Ok(());
        }
        Err(Failure::stop(
            Kind::ConnectTopic,
            format!(
                "topic {} has {partitions} partitions instead of {WORK_PARTITIONS}: workers could not agree on who runs which connector",
                topic.name
            ),
            "stop all workers of this group, and delete the topic: nothing is stored in it, and the next worker creates it again",
        ))
    }

    /// The topics for the time of a membership. After it, no record can be written to them.
    #[must_use]
    pub fn within(&self, membership: &Membership) -> Self {
        Self {
            lease: membership.lease.clone(),
            ..self.clone()
        }
    }
}

impl Membership {
    /// Joins the group of workers. `address` is the URL at which others reach the REST API of this one. If it does not share its connectors (`shares`), one
    /// member at a time works. The work topic must be there.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn join(topics: &ConnectTopics, address: &str, shares: bool) -> Result<Self, Failure> {
        Self::join_by(topics, address, shares, Arc::new(since_boot), UNSEEN)
    }

    /// The same by another clock, and with another limit for the age of what proves the membership.
    pub(super) fn join_by(
        topics: &ConnectTopics,
        address: &str,
        shares: bool,
        clock: Clock,
        unseen: Duration,
    ) -> Result<Self, Failure> {
        let mut config = topics.client.config();
        let (group, work) = (format!("walferry-{}", topics.group), topics.work_topic());
        let client_id = client_id(
            topics.client.values.get("client.id").map(String::as_str),
            address,
            shares,
        );
        for (name, value) in [
            ("client.id", client_id.as_str()),
            ("group.id", group.as_str()),
            ("enable.auto.commit", "false"),
            ("auto.offset.reset", "latest"),
            ("session.timeout.ms", SESSION_MS),
            ("heartbeat.interval.ms", HEARTBEAT_MS),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("queued.max.messages.kbytes", "256"),
            ("statistics.interval.ms", STATISTICS_MS),
        ] {
            config.set(name, value);
        }
        let lease = Lease::by(clock.clone());
        lease.see(clock());
        let (share, denied) = (watch::Sender::new(Share::default()), watch::Sender::new(None));
        let (stop, released) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let contact = Arc::new(Contact::new(clock.clone(), unseen));
        let context = Context {
            config_topic: topics.config.name.clone(),
            share: share.clone(),
            lease: lease.clone(),
            contact: contact.clone(),
            denied: denied.clone(),
            asked_back: Mutex::default(),
            is_leaving: stop.clone(),
        };
        let consumer: BaseConsumer<Context> = config
            .create_with_context(context)
            .map_err(|error| failure::of_settings(&error))?;
        let consumer = LoggedIn::new(consumer, &topics.client);
        // A member that does not share takes part in nothing but the choice of the leader, as one of an earlier version does. So the brokers do
        // not take the lead from it when one that shares joins.
        let both = [topics.config.name.as_str(), work.as_str()];
        consumer
            .subscribe(if shares { &both } else { &both[..1] })
            .map_err(|error| failure::of_settings(&error))?;
        let member = MemberLoop {
            stop: stop.clone(),
            released: released.clone(),
            stalls: StallWatch::new(clock, lease.clone(), topics.config.name.clone()),
            errors: GroupErrors::new(group, topics.config.name.clone(), denied.clone()),
        };
        let no_thread = |error: std::io::Error| Failure::retry(Kind::NoThread, error.to_string());
        let view = watch::Sender::new(None);
        let looks_closely = Arc::new(AtomicBool::new(false));
        let closely = looks_closely.clone();
        let (seen, changes, stopping, of_group) = (view.subscribe(), share.subscribe(), stop.clone(), topics.clone());
        thread::Builder::new()
            .name("members".into())
            .spawn(move || follow(&of_group, &contact, &view, changes, &stopping, &closely))
            .map_err(no_thread)?;
        let thread = thread::Builder::new().name("membership".into()).spawn(move || {
            member.run(&consumer);
            // If this process leaves at once, the others can go on at once.
            drop(consumer);
        });
        Ok(Self {
            share: share.subscribe(),
            view: seen,
            denied: denied.subscribe(),
            lease,
            released,
            stop,
            thread: Some(thread.map_err(no_thread)?),
            address: address.to_owned(),
            looks_closely,
        })
    }

    /// The URL at which others reach the REST API of this process.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether to look at the members as often as while something moves, because one of them seems to be gone.
    pub fn look_closely(&self, closely: bool) {
        self.looks_closely.store(closely, Relaxed);
    }

    /// What this process has. Reports each change.
    pub fn share(&self) -> watch::Receiver<Share> {
        self.share.clone()
    }

    /// The members of the group, as they were seen last; `None` until then. Reports each change.
    pub fn view(&self) -> watch::Receiver<Option<GroupView>> {
        self.view.clone()
    }

    /// The permission that this process lacks, if any. Reports each change.
    pub fn denied(&self) -> watch::Receiver<Option<Failure>> {
        self.denied.clone()
    }

    /// Nothing works for these places any more, so that others may have them.
    pub fn release(&self, places: Places) {
        *self.released.lock().unwrap_or_else(PoisonError::into_inner) = Some(places);
    }

    /// Whether the member has considered the last release.
    #[cfg(test)]
    pub(super) fn has_considered_release(&self) -> bool {
        self.released.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

/// The thread that is the member.
struct MemberLoop {
    stop: Arc<AtomicBool>,
    released: Arc<Mutex<Option<Places>>>,
    stalls: StallWatch,
    errors: GroupErrors,
}

impl MemberLoop {
    fn run(mut self, consumer: &BaseConsumer<Context>) {
        while !self.stop.load(Relaxed) {
            if let Some(Err(error)) = consumer.poll(POLL) {
                self.errors.tell(&error);
            }
            let was_doubtful = self.stalls.is_doubtful;
            self.stalls.look(consumer);
            self.look_for_contact(consumer, was_doubtful);
            self.give_up(consumer);
        }
    }

    /// Gives up everything if the brokers may have forgotten this member.
    fn look_for_contact(&self, consumer: &BaseConsumer<Context>, was_doubtful: bool) {
        let context = consumer.context();
        context.contact.set_id(native::member_id(consumer));
        match (was_doubtful, self.stalls.is_doubtful) {
            // The lease does not hold until the brokers have answered.
            (_, true) => return,
            (true, false) => context.contact.see_now(),
            (false, false) => {}
        }
        if context.share.borrow().standing == Standing::Member && context.contact.is_lost() {
            warn!(
                "the brokers do not confirm that this process is still one of the workers of its group, while connectors move: it gives \
                 up all it has, and joins again"
            );
            context.lose(consumer);
        }
    }

    /// Gives up what was asked back, once nothing works for it any more.
    fn give_up(&self, consumer: &BaseConsumer<Context>) {
        let context = consumer.context();
        let mut asked_back = context.asked_back.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((list, since)) = &*asked_back else { return };
        let places = Places::of(list, &context.config_topic);
        let released = self.released.lock().unwrap_or_else(PoisonError::into_inner).take();
        let is_late = since.elapsed() > RELEASE;
        let is_lost = context.share.borrow().standing == Standing::Lost;
        if consumer.assignment_lost() || is_late || is_lost {
            if is_late && !is_lost {
                warn!(
                    seconds = RELEASE.as_secs(),
                    "connectors that are to move to another worker have not stopped in time: this worker gives up all it has, and joins again"
                );
            }
            context.lose(consumer);
        } else if released.as_ref() != Some(&places) {
            return;
        }
        if let Err(error) = consumer.incremental_unassign(list) {
            debug!(%error, "the Kafka client has given up the partitions already");
        }
        *asked_back = None;
        drop(asked_back);
        context.share.send_modify(|share| share.leaving.remove(&places));
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.lease.end();
        self.stop.store(true, Relaxed);
        if self.share.borrow().standing == Standing::Lost {
            // A client that waits for the brokers needs a while to leave, and nobody waits for it.
            return;
        }
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            warn!("the thread that is a member of the group of workers has panicked");
        }
    }
}

/// Looks at the members: after each change of what this process has, and now and then, because the others change, too.
fn follow(
    topics: &ConnectTopics,
    contact: &Contact,
    view: &watch::Sender<Option<GroupView>>,
    mut changes: watch::Receiver<Share>,
    stop: &AtomicBool,
    looks_closely: &AtomicBool,
) {
    let (mut reader, mut last): (Option<GroupReader>, Option<Instant>) = (None, None);
    let mut is_moving = true;
    while !stop.load(Relaxed) {
        // No sender: the member has left.
        let Ok(has_changed) = changes.has_changed() else { return };
        let pause = if is_moving || looks_closely.load(Relaxed) {
            LOOK_AGAIN
        } else {
            LOOK
        };
        if !has_changed && last.is_some_and(|last| last.elapsed() < pause) {
            thread::sleep(POLL);
            continue;
        }
        let share = changes.borrow_and_update().clone();
        last = Some(Instant::now());
        if share.standing != Standing::Member {
            continue;
        }
        let question = contact.ask();
        let looked = match &reader {
            Some(reader) => reader.look(),
            None => GroupReader::open(topics).and_then(|opened| reader.insert(opened).look()),
        };
        match looked {
            Ok(found) => {
                contact.see_among(&question, &found.ids());
                is_moving = !found.is_settled || !share.leaving.is_empty();
                view.send_if_modified(|view| {
                    let is_new = view.as_ref() != Some(&found);
                    if is_new {
                        *view = Some(found);
                    }
                    is_new
                });
            }
            Err(error) => {
                is_moving = true;
                debug!(%error, "the members of the group cannot be seen");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn connectors_are_spread_over_all_partitions() {
        let used: BTreeSet<i32> = (0..1_000)
            .map(|number| work_partition(&format!("shop-{number}")))
            .collect();
        assert_eq!(used, (0..WORK_PARTITIONS).collect());
        // Workers of all versions must agree: these do not change.
        let known = ["shop", "orders", "a"].map(work_partition);
        assert_eq!(
            known,
            ["shop", "orders", "a"].map(|name| partition_of(name.as_bytes(), 64))
        );
    }
}
