//! Connect's topics on librdkafka's mock cluster.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use walferry_config::{Options, Worker};
use walferry_engine::Kind;

use super::{ConnectTopics, Leadership, OffsetLog, OffsetRecord, Turn};
use crate::demo::DemoCluster;

/// Longer than anything here takes on the slowest machine. Only a failing test waits so long.
const LONG: Duration = Duration::from_secs(60);

fn topics(cluster: &DemoCluster) -> ConnectTopics {
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
        log.write_blocking("key", Some(record("1"))).is_ok()
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
        log.write_blocking("key", Some(record("2"))).is_ok()
    });
    assert_eq!(log.read("key").unwrap(), Some(record("2")));
}

#[test]
fn a_process_that_may_not_join_its_group_says_which_permission_it_lacks_until_it_has_it() {
    let cluster = DemoCluster::start(1).unwrap();
    let topics = topics(&cluster);
    let denied = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED; 3];
    cluster.mock().request_errors(RDKafkaApiKey::JoinGroup, &denied);
    let leadership = Leadership::seek(&topics).unwrap();
    let (told, turn) = (leadership.denied(), leadership.turn());
    wait_for("the refusal to be told", || told.borrow().is_some());
    let failure = told.borrow().clone().expect("it was told");
    assert_eq!(failure.kind, Kind::KafkaDenied);
    let hint = failure.hint().unwrap_or_default();
    assert!(failure.to_string().contains("walferry-connect"), "{failure}");
    assert!(hint.contains("--operation Read --group walferry-connect"), "{hint}");
    wait_for("its turn", || *turn.borrow() == Turn::Ours);
    assert_eq!(*told.borrow(), None);
}
