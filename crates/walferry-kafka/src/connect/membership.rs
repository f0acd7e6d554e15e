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
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdkafka::{
    ClientContext, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _, ConsumerContext},
    error::KafkaResult,
    statistics::Statistics,
    types::RDKafkaRespErr,
};
use tokio::sync::watch;
use tracing::{debug, warn};
use walferry_engine::{Failure, Kind};

use super::{
    ConnectTopics, Lease, Topic,
    agreement::{Agreement, Disagreement},
    client_id::client_id,
    clock::{Clock, since_boot},
    confirmation::{self, Confirmation},
    contact::{Contact, STATISTICS_MS, UNSEEN},
    driver::{GroupClient, LookCounts, MemberLooks, MembershipDriver},
    group::GroupErrors,
    group_view::GroupView,
    members::{GroupReader, work_topic},
    partition::partition_of,
    places::{Places, Share, Standing},
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
/// How long the brokers may take to confirm that a member leaves. Its client waits for 5 s.
const LEAVES: Duration = Duration::from_secs(10);

/// The partition of the work topic to which a connector belongs.
pub fn work_partition(connector: &str) -> i32 {
    partition_of(connector.as_bytes(), WORK_PARTITIONS)
}

/// A member of the group. It leaves when this is dropped.
#[derive(Debug)]
pub struct Membership {
    share: watch::Receiver<Share>,
    view: watch::Receiver<Option<GroupView>>,
    denied: watch::Receiver<Option<Failure>>,
    agreement: Arc<Agreement>,
    lease: Lease,
    released: Arc<Mutex<Option<Places>>>,
    stop: Arc<AtomicBool>,
    thread: Option<MemberThread>,
    address: String,
    looks_closely: Arc<AtomicBool>,
    look_counts: LookCounts,
}

/// The thread that is the member.
#[derive(Debug)]
struct MemberThread {
    handle: JoinHandle<()>,
    /// Closed when it has left the group.
    left: Mutex<mpsc::Receiver<()>>,
}

/// Forwards librdkafka's events to the driver.
struct Context {
    driver: Arc<MembershipDriver>,
    confirmation: Confirmation,
    config_topic: String,
    work_topic: String,
}

impl ClientContext for Context {
    fn stats(&self, statistics: Statistics) {
        self.driver.contact().see_steady(&statistics);
    }
}

impl ConsumerContext for Context {
    fn commit_callback(&self, result: KafkaResult<()>, _: &TopicPartitionList) {
        if let Err(error) = &result {
            debug!(%error, "the brokers do not confirm that this process is in its group");
        }
        self.confirmation.answer(result.is_ok());
    }

    /// Unlike the default, this does not answer a revocation. [`MembershipDriver::round`] does, after the connectors have stopped; until then, the
    /// thread continues to poll.
    fn rebalance(&self, consumer: &BaseConsumer<Self>, what: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let places = Places::of(list, &self.config_topic);
        match what {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => self.driver.assigned(consumer, &places),
            _ => self.driver.revoked(consumer, places),
        }
    }
}

impl Context {
    fn list_of(&self, places: &Places) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        if places.leads {
            list.add_partition(&self.config_topic, 0);
        }
        for partition in &places.partitions {
            list.add_partition(&self.work_topic, *partition);
        }
        list
    }
}

impl GroupClient for BaseConsumer<Context> {
    fn member_id(&self) -> String {
        native::member_id(self)
    }

    fn assignment_lost(&self) -> bool {
        rdkafka::consumer::Consumer::assignment_lost(self)
    }

    fn assign(&self, places: &Places) -> bool {
        let list = self.context().list_of(places);
        if let Err(error) = self.incremental_assign(&list) {
            warn!(%error, "the Kafka client does not take what the brokers have given to this worker");
            return false;
        }
        // Nobody reads the records here.
        let _ = self.pause(&list);
        true
    }

    fn unassign(&self, places: &Places) {
        if let Err(error) = self.incremental_unassign(&self.context().list_of(places)) {
            debug!(%error, "the Kafka client has given up the partitions already");
        }
    }

    fn leave(&self) {
        self.unsubscribe();
    }

    fn confirmed(&self, now: Duration, since: Duration) -> Option<Duration> {
        let context = self.context();
        let proof = context.confirmation.proof(now, since, || {
            context.driver.lease().ask();
            confirmation::ask(self, &context.config_topic)
        })?;
        // If the client lost its membership before and has forgotten its member id, it has queued that event.
        let _ = self.poll(Duration::ZERO);
        Some(proof)
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
        let mut reader = GroupReader::open(self)?;
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

/// A membership that is driven by its owner.
#[derive(Debug)]
pub struct DrivenMembership {
    /// What the worker has.
    pub membership: Membership,
    /// Is told what the Kafka client tells, and is to make its rounds.
    pub driver: Arc<MembershipDriver>,
    /// Says when the brokers are to be asked for the members, and takes the answers.
    pub looks: MemberLooks,
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
        let DrivenMembership {
            mut membership,
            driver,
            mut looks,
        } = Self::driven_by(&group, address, clock, unseen);
        let context = Context {
            driver: driver.clone(),
            confirmation: Confirmation::default(),
            config_topic: topics.config.name.clone(),
            work_topic: work.clone(),
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
        let mut errors = GroupErrors::new(
            group,
            topics.config.name.clone(),
            driver.denied().clone(),
            membership.agreement.clone(),
        );
        let no_thread = |error: std::io::Error| Failure::retry(Kind::NoThread, error.to_string());
        let (stopping, of_group) = (membership.stop.clone(), topics.clone());
        thread::Builder::new()
            .name("members".into())
            .spawn(move || look_again_and_again(&of_group, &mut looks, &stopping))
            .map_err(no_thread)?;
        let stop = membership.stop.clone();
        let (leaves, left) = mpsc::channel();
        let thread = thread::Builder::new().name("membership".into()).spawn(move || {
            while !stop.load(Relaxed) {
                if let Some(Err(error)) = consumer.poll(POLL) {
                    errors.tell(&error);
                }
                driver.round(&*consumer);
            }
            // If this process leaves at once, the others can go on at once.
            drop(consumer);
            drop(leaves);
        });
        membership.thread = Some(MemberThread {
            handle: thread.map_err(no_thread)?,
            left: Mutex::new(left),
        });
        Ok(membership)
    }

    /// A membership that its caller drives, with a Kafka client, brokers and a clock of its own: a simulation.
    pub fn driven(address: &str, clock: Clock) -> DrivenMembership {
        Self::driven_by("walferry-driven", address, clock, UNSEEN)
    }

    fn driven_by(group: &str, address: &str, clock: Clock, unseen: Duration) -> DrivenMembership {
        let lease = Lease::by(clock.clone());
        lease.see(clock());
        let (share, denied, view) = (
            watch::Sender::new(Share::default()),
            watch::Sender::new(None),
            watch::Sender::new(None),
        );
        let contact = Arc::new(Contact::new(clock.clone(), unseen));
        let membership = Self {
            share: share.subscribe(),
            view: view.subscribe(),
            denied: denied.subscribe(),
            agreement: Arc::new(Agreement::new(group.to_owned(), clock.clone())),
            lease: lease.clone(),
            released: Arc::default(),
            stop: Arc::default(),
            thread: None,
            address: address.to_owned(),
            looks_closely: Arc::default(),
            look_counts: LookCounts::default(),
        };
        let (changes, looks_closely) = (share.subscribe(), membership.looks_closely.clone());
        let looks = MemberLooks::new(
            clock.clone(),
            contact.clone(),
            membership.agreement.clone(),
            view,
            changes,
            looks_closely,
            membership.look_counts.clone(),
        );
        let (released, is_leaving) = (membership.released.clone(), membership.stop.clone());
        let driver = MembershipDriver::new(clock, lease, contact, share, denied, released, is_leaving);
        DrivenMembership {
            membership,
            driver: Arc::new(driver),
            looks,
        }
    }

    /// Whether this process may write to Connect's topics.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// The URL at which others reach the REST API of this process.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Whether to look at the members as often as while something moves, because one of them seems to be gone.
    pub fn look_closely(&self, closely: bool) {
        self.looks_closely.store(closely, Relaxed);
    }

    /// How often the brokers were asked for the members.
    pub const fn look_counts(&self) -> &LookCounts {
        &self.look_counts
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

    /// What keeps the members of the group from agreeing who has what, if anything. Reports each change.
    pub fn disagreement(&self) -> watch::Receiver<Option<Disagreement>> {
        self.agreement.news()
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

impl Drop for Membership {
    fn drop(&mut self) {
        self.lease.end();
        self.stop.store(true, Relaxed);
        if self.share.borrow().standing == Standing::Lost {
            // A client that waits for the brokers needs a while to leave, and nobody waits for it.
            return;
        }
        let Some(MemberThread { handle, left }) = self.thread.take() else {
            return;
        };
        let left = left.into_inner().unwrap_or_else(PoisonError::into_inner);
        if left.recv_timeout(LEAVES) == Err(RecvTimeoutError::Timeout) {
            warn!(
                seconds = LEAVES.as_secs(),
                "the brokers did not confirm in time that this process left its group: other workers get its connectors after its session expires"
            );
            return;
        }
        if handle.join().is_err() {
            warn!("the thread that is a member of the group of workers has panicked");
        }
    }
}

/// Looks at the members whenever it is time.
fn look_again_and_again(topics: &ConnectTopics, looks: &mut MemberLooks, stop: &AtomicBool) {
    let mut reader: Option<GroupReader> = None;
    while !stop.load(Relaxed) && !looks.is_over() {
        let Some(question) = looks.begin() else {
            thread::sleep(POLL);
            continue;
        };
        let looked = match &mut reader {
            Some(reader) => reader.look(),
            None => GroupReader::open(topics).and_then(|opened| reader.insert(opened).look()),
        };
        looks.end(&question, looked);
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
