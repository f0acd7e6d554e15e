//! The producer against librdkafka's mock cluster.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use walferry_diagnosis::Kind;

use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use walferry_engine::{
    Disposition, Exit, Failure, Position,
    progress::{Progress, StreamChange, StreamEntry},
    sink::{Acks, Outgoing, RecordOrigin, Sink, Sinks},
    store::StoredOffset,
};
use walferry_pgoutput::Lsn;

use crate::{
    client::settings::{ClientSettings, SetAside},
    demo::{DemoCluster, Follower, Received},
    producer::{PARTITION_KIB, Producer, Producers, TOPIC_KIB},
};

/// Longer than anything here takes on the slowest machine; only a failing test waits so long.
const LONG: Duration = Duration::from_secs(60);

struct World {
    cluster: DemoCluster,
    producers: Producers,
    producer: Option<Producer>,
    progress: Arc<Progress>,
}

impl World {
    fn new(change: impl FnOnce(&mut ClientSettings)) -> Self {
        let cluster = DemoCluster::start(1).unwrap();
        let mut settings = ClientSettings::new("c", &cluster.bootstrap_servers());
        change(&mut settings);
        let mut world = Self {
            cluster,
            producers: Producers::new(settings),
            producer: None,
            progress: Arc::new(Progress::new(StoredOffset::default(), usize::MAX)),
        };
        world.open();
        world
    }

    /// A new producer with a new queue, as the engine makes it after a failure.
    fn open(&mut self) {
        self.producer = None;
        self.progress = Arc::new(Progress::new(StoredOffset::default(), usize::MAX));
        self.producer = Some(self.producers.open(Acks::new(Arc::clone(&self.progress))).unwrap());
    }

    fn send(&mut self, record: &Outgoing<'_>) -> Result<(), Failure> {
        let position = Position {
            lsn: record.origin.position.to_string().parse().unwrap(),
            ..Position::default()
        };
        let sequence = self.progress.push([StreamEntry::Record {
            change: StreamChange {
                position,
                message: walferry_engine::message_type::MessageType::Insert,
            },
            last: true,
            bytes: 0,
        }]);
        self.producer.as_mut().unwrap().send(record, sequence)
    }

    /// Waits until nothing is under way any more, or something has failed.
    fn settled(&self) -> Result<(), Failure> {
        wait_for("records to settle", || {
            self.progress.in_flight().0 == 0 || self.progress.failure().is_some()
        });
        self.progress.failure().map_or(Ok(()), Err)
    }

    fn received(&self, count: usize) -> Vec<Received> {
        let mut follower = Follower::new(&self.cluster.bootstrap_servers()).unwrap();
        let mut records = Vec::new();
        wait_for("records to arrive", || {
            records.extend(follower.next(Duration::from_millis(100)).unwrap());
            records.len() >= count
        });
        // Nothing may come after them.
        records.extend(follower.next(Duration::from_millis(300)).unwrap());
        records
    }
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LONG, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

fn record<'a>(topic: &'a str, key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> Outgoing<'a> {
    Outgoing {
        topic,
        partition: None,
        timestamp_ms: None,
        key,
        value,
        headers: &[],
        origin: RecordOrigin {
            table: "public.orders",
            position: &Lsn(0x1_0000_0001),
        },
    }
}

#[test]
fn a_record_arrives_as_it_was_sent() {
    let mut world = World::new(|_| ());
    world.cluster.create_topic("t", 3).unwrap();
    let headers: &[(&str, Option<&[u8]>)] = &[("a", Some(b"1")), ("b", None), ("a", Some(b""))];
    let full = Outgoing {
        partition: Some(2),
        timestamp_ms: Some(1_234),
        headers,
        ..record("t", Some(b"k"), Some(b"v"))
    };
    world.send(&full).unwrap();
    world
        .send(&Outgoing {
            partition: Some(2),
            ..record("t", Some(b""), Some(b""))
        })
        .unwrap();
    world
        .send(&Outgoing {
            partition: Some(2),
            ..record("t", None, None)
        })
        .unwrap();
    world.settled().unwrap();

    let records = world.received(3);
    let first = &records[0];
    assert_eq!((first.partition, first.timestamp_ms), (2, Some(1_234)));
    assert_eq!(
        (first.key.as_deref(), first.value.as_deref()),
        (Some(&b"k"[..]), Some(&b"v"[..]))
    );
    let found: Vec<_> = first
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_deref()))
        .collect();
    assert_eq!(found, headers);
    assert_eq!(
        (records[1].key.as_deref(), records[1].value.as_deref()),
        (Some(&b""[..]), Some(&b""[..]))
    );
    assert_eq!((&records[2].key, &records[2].value), (&None, &None));
    assert!(world.producers.health().was_connected());
}

/// A name counts only as a whole, and the first header of a name counts.
#[test]
fn the_delivery_of_a_record_of_a_sampled_trace_becomes_a_span() {
    let export = walferry_telemetry::otlp::enable();
    let mut world = World::new(|_| ());
    world.cluster.create_topic("t", 1).unwrap();
    let sampled: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let unsampled: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
    let lists: [walferry_engine::sink::Headers<'_>; 5] = [
        &[
            ("id_", Some(b"no")),
            ("id", Some(b"\"7\"")),
            ("traceparent", Some(sampled)),
            ("traceparent", Some(unsampled)),
        ],
        &[("traceparent", Some(unsampled)), ("traceparent", Some(sampled))],
        &[("traceparent", None)],
        &[("traceparents", Some(sampled))],
        &[],
    ];
    for headers in lists {
        let outgoing = Outgoing {
            headers,
            ..record("t", Some(b"k"), Some(b"v"))
        };
        world.send(&outgoing).unwrap();
    }
    world.settled().unwrap();
    let spans = export.take();
    assert_eq!(spans.len(), 1, "{spans:?}");
    let span = &spans[0];
    assert_eq!((span.topic.as_str(), span.partition, span.offset), ("t", 0, Some(0)));
    assert_eq!((span.parent.span[7], span.message.as_deref()), (0x31, Some("7")));
}

#[test]
fn keys_go_where_javas_partitioner_sends_them() {
    let mut world = World::new(|_| ());
    world.cluster.create_topic("t", 12).unwrap();
    // As a broker of Apache Kafka told of Java's producer.
    let expected = [(10, 4), (11, 4), (12, 11), (13, 0), (14, 6)];
    for (id, _) in expected {
        let key = format!("{{\"id\":{id}}}");
        world
            .send(&record("t", Some(key.as_bytes()), Some(key.as_bytes())))
            .unwrap();
    }
    world.settled().unwrap();
    let mut found: Vec<_> = world
        .received(5)
        .into_iter()
        .map(|r| (String::from_utf8(r.key.unwrap()).unwrap(), r.partition))
        .collect();
    found.sort();
    assert_eq!(
        found,
        expected.map(|(id, partition)| (format!("{{\"id\":{id}}}"), partition))
    );
}

#[test]
fn a_client_that_has_met_very_many_topics_is_replaced_and_loses_no_order() {
    let mut world = World::new(|_| ());
    // Three topics of two partitions each fit.
    world.producers.most_topics_kib = 3 * (TOPIC_KIB + 2 * PARTITION_KIB);
    world.open();
    let topics: Vec<_> = (0..8).map(|number| format!("t{number}")).collect();
    for topic in &topics {
        world.cluster.create_topic(topic, 2).unwrap();
    }
    const ROUNDS: usize = 5;
    for round in 0..ROUNDS {
        for topic in &topics {
            let value = round.to_string();
            world.send(&record(topic, Some(b"k"), Some(value.as_bytes()))).unwrap();
            let topic_count = world.producer.as_ref().unwrap().topics_met();
            assert!(topic_count <= 3, "{topic_count} topics are kept");
        }
    }
    world.settled().unwrap();
    let records = world.received(ROUNDS * topics.len());
    for topic in &topics {
        let of_topic = records.iter().filter(|record| record.topic == *topic);
        let values: Vec<_> = of_topic
            .map(|record| record.value.as_deref().unwrap()[0] - b'0')
            .collect();
        assert_eq!(values, [0, 1, 2, 3, 4], "{topic}");
    }
}

#[test]
fn records_wait_in_order_while_no_broker_answers() {
    let mut world = World::new(|settings| settings.set("topic.metadata.refresh.interval.ms", "100"));
    world.send(&record("t", Some(b"k"), Some(b"0"))).unwrap();
    world.settled().unwrap();
    world.cluster.mock().broker_down(1).unwrap();
    let health = world.producers.health();
    for n in 1..100 {
        world
            .send(&record("t", Some(b"k"), Some(n.to_string().as_bytes())))
            .unwrap();
    }
    wait_for("the trouble to be told", || health.trouble().is_some());
    assert_eq!(health.trouble().unwrap().failure.kind, Kind::KafkaUnreachable);
    assert_eq!(world.progress.failure(), None);

    world.cluster.mock().broker_up(1).unwrap();
    world.settled().unwrap();
    wait_for("the trouble to be over", || health.trouble().is_none());
    let values = world
        .received(100)
        .into_iter()
        .map(|r| String::from_utf8(r.value.unwrap()).unwrap());
    assert_eq!(
        values.collect::<Vec<_>>(),
        (0..100).map(|n| n.to_string()).collect::<Vec<_>>()
    );
}

/// A broker that has never seen a producer on a partition accepts any batch of it. librdkafka then takes what it rejected before for
/// delivered.
#[test]
fn a_rejected_record_does_not_count_as_delivered_when_a_later_one_is_accepted() {
    let mut world = World::new(|_| ());
    world.cluster.create_topic("t", 1).unwrap();
    // The producer has its number, and knows the leader.
    world.send(&record("t", Some(b"k"), Some(b"0"))).unwrap();
    world.settled().unwrap();
    let mock = world.cluster.mock();
    // Long enough for a second request to be under way before the first is answered.
    mock.broker_round_trip_time(1, Duration::from_millis(600)).unwrap();
    let errors = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION];
    mock.request_errors(RDKafkaApiKey::Produce, &errors);
    world.send(&record("t", Some(b"k"), Some(b"1"))).unwrap();
    thread::sleep(Duration::from_millis(100));
    world.send(&record("t", Some(b"k"), Some(b"2"))).unwrap();
    let settled = world.settled();
    world.cluster.mock().broker_round_trip_time(1, Duration::ZERO).unwrap();
    match settled {
        // On a very slow machine both are in one request, which is sent again.
        Ok(()) => assert_eq!(world.received(3).len(), 3),
        Err(failure) => {
            assert_eq!(
                (failure.kind, failure.disposition),
                (Kind::KafkaDelivery, Disposition::Replay)
            );
            let text = failure.to_string();
            let expected = "for topic t, partition 0, from table public.orders, LSN 1/1 may be missing";
            assert!(text.contains(expected), "{text}");
            assert!(world.progress.position(1).is_some(), "it counts as delivered");
        }
    }
}

#[test]
fn a_record_above_the_clients_limit_stops_with_table_key_lsn_and_size() {
    let mut world = World::new(|settings| settings.set("message.max.bytes", "1000"));
    let failure = world.send(&record("t", Some(b"k1"), Some(&[b'v'; 1_500]))).unwrap_err();
    assert_eq!(
        (failure.kind, failure.disposition),
        (Kind::RecordTooLarge, Disposition::Stop(Exit::Record))
    );
    assert_eq!(
        failure.for_log(),
        "the record of 1502 bytes for topic t, from table public.orders, LSN 1/1 is larger than Kafka accepts; the record's key is k1"
    );
}

#[test]
fn a_refused_record_goes_to_the_dead_letter_topic_where_one_is_named() {
    let mut world = World::new(|settings| {
        settings.set("message.max.bytes", "1000");
        settings.set_aside = SetAside::Topic {
            name: "dead".into(),
            replication_factor: None,
        };
    });
    // The mock cluster cannot create topics on request.
    world.cluster.create_topic("dead", 1).unwrap();
    world.send(&record("t", Some(b"k1"), Some(&[b'v'; 1_500]))).unwrap();
    world.send(&record("t", Some(b"k2"), Some(b"v"))).unwrap();
    world.settled().unwrap();
    assert_eq!(world.producers.set_aside().get(), 1);
    let records = world.received(2);
    let dead = records.iter().find(|record| record.topic == "dead").unwrap();
    assert_eq!((dead.key.as_deref(), &dead.value), (Some(&b"k1"[..]), &None));
    let header = |name: &str| {
        let (_, value) = dead.headers.iter().find(|(known, _)| known == name).unwrap();
        value.as_ref().map(|value| String::from_utf8(value.clone()).unwrap())
    };
    assert_eq!(header("__connect.errors.topic").as_deref(), Some("t"));
    assert_eq!(header("__connect.errors.partition"), None);
    assert_eq!(header("walferry.table").as_deref(), Some("public.orders"));
    assert_eq!(header("walferry.lsn").as_deref(), Some("1/1"));
    assert_eq!(header("walferry.size").as_deref(), Some("1502"));
    assert!(
        header("__connect.errors.exception.message")
            .unwrap()
            .contains("larger than Kafka accepts")
    );
}

#[test]
fn a_refused_record_is_dropped_where_no_topic_is_named() {
    let mut world = World::new(|settings| {
        settings.set("message.max.bytes", "1000");
        settings.set_aside = SetAside::Drop;
    });
    world.send(&record("t", Some(b"k1"), Some(&[b'v'; 1_500]))).unwrap();
    world.settled().unwrap();
    assert_eq!(world.producers.set_aside().get(), 1);
}

/// Tells the mock broker how to answer the next requests with records.
fn answer<const N: usize>(world: &World, errors: [RDKafkaRespErr; N]) {
    world.cluster.mock().request_errors(RDKafkaApiKey::Produce, &errors);
}

const ACCEPT: RDKafkaRespErr = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
const TOO_LARGE: RDKafkaRespErr = RDKafkaRespErr::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
const BAD_TIME: RDKafkaRespErr = RDKafkaRespErr::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP;

/// A producer that waits for batches to fill, and that has sent a first record. All go to one topic with one partition.
fn with_batches(change: impl FnOnce(&mut ClientSettings)) -> World {
    let mut world = World::new(|settings| {
        settings.set("linger.ms", "200");
        change(settings);
    });
    world.cluster.create_topic("t", 1).unwrap();
    world.cluster.create_topic("dead", 1).unwrap();
    world.send(&record("t", Some(b"k0"), Some(b"first"))).unwrap();
    world.settled().unwrap();
    world
}

/// Sends a batch of records with the keys `k1` to `k9`.
fn send_batch(world: &mut World) {
    for n in 1..10 {
        let key = format!("k{n}");
        // The producer may have to stop before it has all.
        if world.send(&record("t", Some(key.as_bytes()), Some(b"v"))).is_err() {
            return;
        }
    }
}

fn keys_of(records: &[Received], topic: &str) -> Vec<String> {
    let of_topic = records.iter().filter(|record| record.topic == topic);
    of_topic
        .map(|record| String::from_utf8(record.key.clone().unwrap()).unwrap())
        .collect()
}

fn to_dead_letters(settings: &mut ClientSettings) {
    settings.set_aside = SetAside::Topic {
        name: "dead".into(),
        replication_factor: None,
    };
}

#[test]
fn a_batch_that_is_too_large_is_sent_again_in_smaller_ones() {
    let mut world = with_batches(|_| ());
    answer(&world, [TOO_LARGE]);
    send_batch(&mut world);
    world.settled().unwrap();
    let expected: Vec<_> = (0..10).map(|n| format!("k{n}")).collect();
    assert_eq!(keys_of(&world.received(10), "t"), expected);
}

#[test]
fn a_record_that_is_too_large_alone_stops_with_its_own_name() {
    let mut world = with_batches(|_| ());
    // The batch, and of its records, which are alone then, the third.
    answer(&world, [TOO_LARGE, ACCEPT, ACCEPT, TOO_LARGE]);
    send_batch(&mut world);
    let failure = world.settled().unwrap_err();
    assert_eq!(
        (failure.kind, failure.disposition),
        (Kind::RecordTooLarge, Disposition::Stop(Exit::Record))
    );
    let text = failure.for_log();
    assert!(text.contains("from table public.orders, LSN 1/1 is larger"), "{text}");
    assert!(text.ends_with("the record's key is k3"), "{text}");
    // Of what was under way behind it, a real broker takes nothing, because a sequence number is missing. The mock does not look at those.
    let keys = keys_of(&world.received(3), "t");
    assert!(keys.starts_with(&["k0", "k1", "k2"].map(String::from)), "{keys:?}");
    assert!(!keys.contains(&"k3".into()), "{keys:?}");
}

#[test]
fn the_record_at_fault_is_found_where_the_broker_does_not_name_it() {
    // At the same time: each waits most of the time.
    thread::scope(|scope| {
        for (name, culprits) in [
            ("the first", &[1][..]),
            ("one in the middle", &[5]),
            ("the last", &[9]),
            ("several", &[2, 3, 9]),
            ("all", &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ] {
            scope.spawn(move || find_without_names(name, culprits));
        }
    });
}

/// `culprits` are refused, of ten records in one batch.
#[track_caller]
fn find_without_names(name: &str, culprits: &[usize]) {
    let mut answers = [ACCEPT; 10];
    answers[0] = BAD_TIME;
    for &culprit in culprits {
        answers[culprit] = BAD_TIME;
    }
    let good: Vec<_> = (0..10)
        .filter(|n| !culprits.contains(n))
        .map(|n| format!("k{n}"))
        .collect();
    let bad: Vec<_> = culprits.iter().map(|n| format!("k{n}")).collect();

    let mut world = with_batches(to_dead_letters);
    answer(&world, answers);
    send_batch(&mut world);
    world.settled().unwrap();
    let records = world.received(10);
    assert_eq!(keys_of(&records, "t"), good, "{name}");
    assert_eq!(keys_of(&records, "dead"), bad, "{name}");
    assert_eq!(world.producers.set_aside().get(), culprits.len() as u64, "{name}");

    let mut world = with_batches(|settings| settings.set_aside = SetAside::Drop);
    answer(&world, answers);
    send_batch(&mut world);
    world.settled().unwrap();
    assert_eq!(keys_of(&world.received(good.len()), "t"), good, "{name}");

    // Without tolerance, the first of them stops the connector, and those before it arrive.
    let mut world = with_batches(|_| ());
    answer(&world, answers);
    send_batch(&mut world);
    let failure = world.settled().unwrap_err();
    assert_eq!(failure.kind, Kind::RecordRefused, "{name}");
    let text = failure.for_log();
    assert!(
        text.ends_with(&format!("the record's key is k{}", culprits[0])),
        "{name}: {text}"
    );
    let before = &good[..culprits[0]];
    // What was under way behind it is taken by the mock only, which does not look at sequence numbers.
    let arrived = keys_of(&world.received(before.len()), "t");
    assert!(arrived.starts_with(before), "{name}: {arrived:?}");
    assert!(!arrived.contains(&bad[0]), "{name}: {arrived:?}");
}

#[test]
fn records_of_other_partitions_that_arrived_are_not_sent_again() {
    let mut world = with_batches(to_dead_letters);
    world.cluster.create_topic("u", 1).unwrap();
    world.send(&record("u", Some(b"k0"), Some(b"first"))).unwrap();
    world.settled().unwrap();
    answer(&world, [BAD_TIME, ACCEPT, ACCEPT, ACCEPT, BAD_TIME]);
    for n in 1..10 {
        for topic in ["t", "u"] {
            let key = format!("k{n}");
            world.send(&record(topic, Some(key.as_bytes()), Some(b"v"))).unwrap();
        }
    }
    world.settled().unwrap();
    let records = world.received(20);
    assert_eq!(records.len(), 20, "each record comes once, here or there");
    let mut keys = [keys_of(&records, "t"), keys_of(&records, "u")];
    // The dead letter is from the topic that lacks a record.
    let short = usize::from(keys[1].len() < keys[0].len());
    keys[short].extend(keys_of(&records, "dead"));
    keys[short].sort();
    let expected: Vec<_> = (0..10).map(|n| format!("k{n}")).collect();
    assert_eq!(keys, [expected.clone(), expected]);
}

#[test]
fn a_dead_letter_whose_timestamp_is_refused_as_well_goes_without() {
    let mut world = with_batches(to_dead_letters);
    let timed = Outgoing {
        timestamp_ms: Some(4_102_444_800_000),
        ..record("t", Some(b"k1"), Some(b"v"))
    };
    answer(&world, [BAD_TIME]);
    world.send(&timed).unwrap();
    world.settled().unwrap();
    let records = world.received(2);
    let dead = records.iter().find(|record| record.topic == "dead").unwrap();
    assert_ne!(dead.timestamp_ms, timed.timestamp_ms);
    let header = dead
        .headers
        .iter()
        .find(|(name, _)| name == "walferry.timestamp")
        .unwrap();
    assert_eq!(header.1.as_deref(), Some(&b"4102444800000"[..]));
    assert_eq!(dead.value.as_deref(), Some(&b"v"[..]));
}

#[test]
fn a_dead_letter_that_its_topic_refuses_goes_without_what_is_too_large() {
    let mut world = with_batches(to_dead_letters);
    // The record for its timestamp, and its dead letter for its size.
    answer(&world, [BAD_TIME, TOO_LARGE]);
    world.send(&record("t", Some(b"k1"), Some(b"v"))).unwrap();
    world.settled().unwrap();
    let records = world.received(2);
    let dead = records.iter().find(|record| record.topic == "dead").unwrap();
    assert_eq!((dead.key.as_deref(), dead.value.as_deref()), (Some(&b"k1"[..]), None));
    assert_eq!(world.producers.set_aside().get(), 1);
}

#[test]
fn a_fatal_error_of_the_client_ends_the_session_whatever_is_under_way() {
    use RDKafkaRespErr::{
        RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED as DENIED, RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID as LOST,
    };
    for (code, kind, disposition) in [
        (LOST, Kind::KafkaProducer, Disposition::Replay),
        (DENIED, Kind::KafkaDenied, Disposition::Stop(Exit::Setup)),
    ] {
        let mut world = with_batches(|_| ());
        // All that may be under way is, and no more comes: only the fatal error itself tells.
        world.cluster.mock().broker_down(1).unwrap();
        send_batch(&mut world);
        world.producer.as_ref().unwrap().raise_fatal(code, c"for a test");
        let failure = world.settled().unwrap_err();
        assert_eq!((failure.kind, failure.disposition), (kind, disposition), "{failure}");
    }
}

#[test]
fn lost_permission_to_write_stops_and_says_so() {
    let mut world = with_batches(|_| ());
    answer(&world, [RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED]);
    send_batch(&mut world);
    let failure = world.settled().unwrap_err();
    assert_eq!(
        (failure.kind, failure.disposition),
        (Kind::KafkaDenied, Disposition::Stop(Exit::Setup)),
        "{failure}"
    );
}

#[test]
fn a_partition_that_the_topic_does_not_have_is_the_records_fault() {
    let mut world = World::new(|_| ());
    world.cluster.create_topic("t", 2).unwrap();
    let failure = world
        .send(&Outgoing {
            partition: Some(2),
            ..record("t", None, Some(b"v"))
        })
        .unwrap_err();
    assert_eq!(
        (failure.kind, failure.disposition),
        (Kind::PartitionMissing, Disposition::Stop(Exit::Record))
    );
}

#[test]
fn records_that_are_queued_when_the_turn_is_in_doubt_are_never_sent() {
    let mut world = World::new(|settings| settings.set("topic.metadata.refresh.interval.ms", "100"));
    let lease = crate::connect::Lease::default();
    world.producers = world.producers.clone().within(lease.clone());
    world.open();
    world.send(&record("t", Some(b"k"), Some(b"0"))).unwrap();
    world.settled().unwrap();
    // What is queued now would be sent as soon as the broker is there again.
    world.cluster.mock().broker_down(1).unwrap();
    for _ in 0..10 {
        world.send(&record("t", Some(b"k"), Some(b"given up"))).unwrap();
    }
    lease.give_up();
    let failure = world.progress.failure().expect("the session ends");
    assert_eq!(
        (failure.kind, failure.disposition),
        (Kind::TurnLost, Disposition::Replay)
    );
    world.cluster.mock().broker_up(1).unwrap();
    // The old producer still lives while the next one sends.
    let _old = world.producer.take();
    world.open();
    world.send(&record("t", Some(b"k"), Some(b"1"))).unwrap();
    world.settled().unwrap();
    let values: Vec<_> = world
        .received(2)
        .into_iter()
        .map(|record| record.value.unwrap())
        .collect();
    assert_eq!(values, [b"0", b"1"]);
}

#[test]
fn waiting_ends_when_the_producer_is_to_stop() {
    let mut world = World::new(|settings| settings.set("bootstrap.servers", "127.0.0.1:1"));
    let progress = Arc::clone(&world.progress);
    let stop = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        progress.stop();
    });
    world.send(&record("t", None, Some(b"v"))).unwrap();
    stop.join().unwrap();
    assert_eq!(world.progress.in_flight().0, 1);
}
