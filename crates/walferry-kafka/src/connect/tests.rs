//! Connect's topics on librdkafka's mock cluster.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use serde_json::json;
use walferry_config::{Options, Worker};
use walferry_engine::{
    Disposition, Kind,
    progress::Progress,
    sink::{Acks, Sinks as _},
    store::StoredOffset,
};

use super::{
    ConnectTopics, Membership, OffsetLog, OffsetRecord, Places, Share, Standing, StateLog, StatusKey, TopicWatch,
    WORK_PARTITIONS, clock::since_boot, state_record, topic_record,
};
use crate::{Producers, Transactions, client::settings::ClientSettings, demo::DemoCluster};

/// Longer than anything here takes on the slowest machine. Only a failing test waits so long.
const LONG: Duration = Duration::from_secs(60);

pub(super) fn topics(cluster: &DemoCluster) -> ConnectTopics {
    let named = |prefix: &str, topic: &str| {
        cluster.create_topic(topic, 1).unwrap();
        let entries = BTreeMap::from([("topic".to_owned(), topic.to_owned())]);
        Options::new(prefix, entries)
    };
    let worker = Worker {
        group_id: Some("connect".into()),
        config_storage: named("config.storage.", "configs"),
        offset_storage: named("offset.storage.", "offsets"),
        status_storage: named("status.storage.", "states"),
        ..Worker::default()
    };
    let topics = ConnectTopics::of(&worker, &cluster.bootstrap_servers()).unwrap();
    topics.expect("the worker names them")
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_offset_is_read_after_kafka_was_away_between_two_readings() {
    let cluster = DemoCluster::start(1).unwrap();
    let log = OffsetLog::open(&topics(&cluster)).unwrap();
    let record = |value: &str| OffsetRecord {
        value: value.into(),
        additions: None,
    };
    wait_for("the offset to be written", || {
        log.write_all_blocking([("key".to_owned(), Some(record("1")))]).is_ok()
    });
    assert_eq!(log.read("key").unwrap(), Some(record("1")));
    // The client that reads is not asked anything now, and notes what happens to its connections.
    for _ in 0..3 {
        cluster.mock().broker_down(1).unwrap();
        thread::sleep(Duration::from_millis(500));
        cluster.mock().broker_up(1).unwrap();
        thread::sleep(Duration::from_millis(500));
    }
    wait_for("Kafka to be there again", || {
        log.write_all_blocking([("key".to_owned(), Some(record("2")))]).is_ok()
    });
    assert_eq!(log.read("key").unwrap(), Some(record("2")));
}

#[test]
fn states_are_read_as_the_last_process_has_left_them() {
    let cluster = DemoCluster::start(1).unwrap();
    let topics = topics(&cluster);
    let log = StateLog::open(&topics).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let write = |subject: &StatusKey, record: Option<&serde_json::Value>| {
        let sent = log.send(subject, record);
        sent.and_then(|sent| runtime.block_on(sent.settled())).is_ok()
    };
    let task = StatusKey::Task("shop".into(), 0);
    let topic = StatusKey::Topic("shop".into(), "shop.orders".into());
    let gone = StatusKey::Topic("shop".into(), "shop.gone".into());
    let state = state_record(&json!({ "state": "RUNNING", "worker_id": "h:8083", "version": "1" }));
    let used = topic_record("shop", "shop.orders", 7);
    wait_for("the first record to be written", || write(&task, Some(&state)));
    assert!(write(&topic, Some(&used)) && write(&gone, Some(&used)) && write(&gone, None));
    let read = StateLog::open(&topics).unwrap().read().unwrap();
    assert_eq!(read, BTreeMap::from([(task, state), (topic, used)]));
}

#[test]
fn a_process_that_may_not_join_its_group_says_which_permission_it_lacks() {
    let cluster = DemoCluster::start(1).unwrap();
    let topics = topics(&cluster);
    let denied_codes = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 3];
    cluster.mock().request_errors(RDKafkaApiKey::JoinGroup, &denied_codes);
    cluster.create_topic(&topics.work_topic(), WORK_PARTITIONS).unwrap();
    let member = Membership::join(&topics, "http://a:8083", true).unwrap();
    let (denied, share) = (member.denied(), member.share());
    wait_for("the refusal to be reported", || denied.borrow().is_some());
    let failure = denied.borrow().clone().expect("it was reported");
    assert_eq!(failure.kind, Kind::KafkaDenied);
    let hint = failure.hint().unwrap_or_default();
    assert!(failure.to_string().contains("walferry-connect"), "{failure}");
    assert!(hint.contains("--operation Read --group walferry-connect"), "{hint}");
    wait_for("its share", || share.borrow().held == everything());
    assert_eq!(*denied.borrow(), None);
}

#[test]
fn after_a_suspension_nothing_is_written_until_brokers_confirm_the_membership() {
    let cluster = DemoCluster::start(1).unwrap();
    let topics = topics(&cluster);
    let (begun, suspended_s) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let clock = {
        let suspended_s = suspended_s.clone();
        move || begun.elapsed() + Duration::from_secs(suspended_s.load(SeqCst))
    };
    cluster.create_topic(&topics.work_topic(), WORK_PARTITIONS).unwrap();
    let member = Membership::join_by(&topics, "http://a:8083", true, Arc::new(clock), LONG).unwrap();
    let share = member.share();
    wait_for("its share", || share.borrow().held == everything());
    let topics = topics.within(&member);
    assert!(topics.lease.holds());
    let log = OffsetLog::open(&topics).unwrap();
    let write = || log.write_all_blocking([("key".to_owned(), None)]);
    wait_for("the first record", || write().is_ok());

    // Nobody tells the writer: the client's heartbeats go on as before.
    let refusals = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION; 2];
    cluster.mock().request_errors(RDKafkaApiKey::OffsetCommit, &refusals);
    suspended_s.store(3600, SeqCst);
    assert!(!topics.lease.holds());
    assert_eq!(write().unwrap_err().kind, Kind::TurnLost);
    wait_for("the brokers to be asked, and the membership to be decided", || {
        topics.lease.holds() || share.borrow().standing == Standing::Lost
    });
    // The two refusals were used up before: a third answer is the first that can confirm it.
    assert!(
        topics.lease.asked() >= 3 || share.borrow().standing == Standing::Lost,
        "{:?}",
        topics.lease
    );
}

/// Everything that a group has.
fn everything() -> Places {
    Places {
        leads: true,
        partitions: (0..WORK_PARTITIONS).collect(),
    }
}

fn has(membership: &Membership) -> Share {
    membership.share().borrow().clone()
}

/// Joins. The mock broker has a member wait for 5 s when it joins, and cannot be asked who is a member, so a proof may be older here.
fn join(topics: &ConnectTopics, address: &str) -> Membership {
    Membership::join_by(topics, address, true, Arc::new(since_boot), Duration::from_secs(15)).unwrap()
}

fn is_lost(membership: &Membership) -> bool {
    has(membership).standing == Standing::Lost
}

/// The mock broker does not count the heartbeats that it gets while a member joins. On a slow machine, it forgets a member that is alive, and
/// gives everything to the other one, so that nothing can be said of what is asked back. `once` returns false then, and is tried again.
fn until_nobody_is_forgotten(once: impl Fn() -> bool) {
    let start = Instant::now();
    while !once() {
        assert!(start.elapsed() < 4 * LONG, "the mock broker forgets a member each time");
    }
}

/// A member that had everything and is asked for a part of it, because a second one has joined; or one of both was forgotten.
fn asked_back() -> (DemoCluster, ConnectTopics, Membership, Membership) {
    let cluster = DemoCluster::start(1).unwrap();
    let topics = topics(&cluster);
    cluster.create_topic(&topics.work_topic(), WORK_PARTITIONS).unwrap();
    let first = join(&topics, "http://a:8083");
    wait_for("the first one to have everything", || has(&first).held == everything());
    let second = join(&topics, "http://b:8083");
    wait_for("the first one to be asked", || {
        !has(&first).leaving.is_empty() || is_lost(&first) || is_lost(&second)
    });
    (cluster, topics, first, second)
}

#[test]
fn a_worker_keeps_what_others_want_until_it_has_released_it() {
    until_nobody_is_forgotten(|| {
        let (_cluster, topics, first, second) = asked_back();
        let is_forgotten = || is_lost(&first) || is_lost(&second);
        // The brokers wait for the first one: nobody works for what it has not released.
        let asked = has(&first);
        wait_for("the second one to be a member", || {
            has(&second).standing == Standing::Member || is_forgotten()
        });
        // A release of something else does not count.
        first.release(Places::default());
        wait_for("the release to be considered", || {
            first.has_considered_release() || is_forgotten()
        });
        if !has(&second).held.is_empty() {
            wait_for("the first one to notice that it was forgotten", || is_lost(&first));
        }
        if is_forgotten() {
            return false;
        }
        assert_eq!(has(&first), asked);
        first.release(asked.leaving.clone());
        wait_for("the second one to have its share", || {
            has(&second).held == asked.leaving || is_forgotten()
        });
        if is_forgotten() {
            return false;
        }
        assert!(has(&first).leaving.is_empty());
        let (one, two) = (has(&first).held, has(&second).held);
        assert_eq!(one.partitions.len() + two.partitions.len(), 64, "{one:?} {two:?}");
        assert!(one.partitions.is_disjoint(&two.partitions) && one.leads != two.leads);
        assert!((28..=36).contains(&one.partitions.len()), "{one:?}");

        // What it had is free at once when it leaves in order.
        let lease = topics.within(&first).lease;
        assert!(lease.holds());
        drop(first);
        assert!(!lease.holds());
        wait_for("the second one to have everything", || {
            has(&second).held == everything() || is_lost(&second)
        });
        assert!(has(&second).leaving.is_empty());
        !is_lost(&second)
    });
}

#[test]
fn a_worker_that_is_forgotten_while_it_stops_connectors_is_lost() {
    // Shorter than the time after which it gives everything up because nothing was released.
    let soon = Duration::from_secs(35);
    for are_gone in [false, true] {
        until_nobody_is_forgotten(|| {
            let (cluster, topics, first, second) = asked_back();
            if is_lost(&first) || is_lost(&second) {
                return false;
            }
            let (lease, begun) = (topics.within(&first).lease, Instant::now());
            if are_gone {
                cluster.mock().broker_down(1).unwrap();
            } else {
                let unknown = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID; 1_000];
                cluster.mock().request_errors(RDKafkaApiKey::Heartbeat, &unknown);
            }
            wait_for("the loss to be told", || is_lost(&first) || begun.elapsed() > soon);
            assert!(is_lost(&first), "it keeps what others may have by now");
            assert!(!lease.holds() && has(&first).leaving.is_empty());
            true
        });
    }
}

#[test]
fn a_worker_whose_membership_has_ended_has_nothing_more() {
    let cluster = DemoCluster::start(1).unwrap();
    let topics = topics(&cluster);
    cluster.create_topic(&topics.work_topic(), WORK_PARTITIONS).unwrap();
    let member = Membership::join(&topics, "http://a:8083", true).unwrap();
    let share = member.share();
    wait_for("it to have everything", || share.borrow().held == everything());
    let log = OffsetLog::open(&topics.within(&member)).unwrap();
    let write = || log.write_all_blocking([("key".to_owned(), None)]);
    wait_for("the first record", || write().is_ok());
    // The brokers do not know it any more.
    let unknown = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID; 50];
    cluster.mock().request_errors(RDKafkaApiKey::Heartbeat, &unknown);
    let lost = Share {
        standing: Standing::Lost,
        ..Share::default()
    };
    wait_for("the loss to be told", || *share.borrow() == lost);
    assert_eq!(write().unwrap_err().kind, Kind::TurnLost);
}

#[test]
fn records_of_others_are_noticed_and_nothing_is_when_nobody_writes() {
    let cluster = DemoCluster::start(1).unwrap();
    let topics = topics(&cluster);
    let watch = TopicWatch::open(&topics).unwrap();
    assert_eq!(watch.wait(Duration::from_millis(50)), Default::default());
    let log = StateLog::open(&topics).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let state = state_record(&json!({ "state": "RUNNING", "worker_id": "h:8083", "version": "1" }));
    let write = || {
        let sent = log.send(&StatusKey::Task("shop".into(), 0), Some(&state));
        sent.and_then(|sent| runtime.block_on(sent.settled())).is_ok()
    };
    wait_for("the record to be noticed", || {
        write();
        let news = watch.wait(Duration::from_secs(1));
        assert!(!news.configurations);
        news.states
    });
}

/// When a session is given up, the thread that is to commit may not have come to it yet. The records of that session are aborted.
#[test]
fn an_offset_is_not_stored_when_its_session_has_ended_and_its_records_are_aborted() {
    let cluster = DemoCluster::start(1).unwrap();
    let log = OffsetLog::open(&topics(&cluster)).unwrap();
    let settings = ClientSettings::new("c", &cluster.bootstrap_servers());
    let transactions = Transactions::new(settings.clone(), log.clone(), "key".into(), "connect", "shop");
    let record = |value: &str| OffsetRecord {
        value: value.into(),
        additions: None,
    };
    let beginning = transactions.session();
    wait_for("the offset of the beginning to be stored", || {
        transactions.commit(record("1"), beginning).is_ok()
    });
    let mut producers = Producers::new(settings).in_transactions(transactions.clone());
    let progress = Arc::new(Progress::new(StoredOffset::default(), usize::MAX));
    let producer = producers.open(Acks::new(progress)).unwrap();
    let session = transactions.session();
    assert_eq!(session, beginning, "the producer belongs to it");
    drop(producer);
    let failure = transactions.commit(record("2"), session).unwrap_err();
    assert_eq!(failure.disposition, Disposition::Replay, "{failure}");
    assert_eq!(log.read("key").unwrap(), Some(record("1")));
    transactions.commit(record("3"), transactions.session()).unwrap();
    assert_eq!(log.read("key").unwrap(), Some(record("3")), "the next session");
}
