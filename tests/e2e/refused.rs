//! Records that the broker refuses, among others that it would take: only those at fault are set aside or stop the connector.

use std::collections::HashMap;

use crate::{
    outbox::Outbox,
    world::{self, World},
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use walferry_testkit::servers::{Kafka, Record, Walferry, wait_for};

/// Why the broker refuses a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Its timestamp is further ahead than the topic allows.
    Timestamp,
    /// It has no key, and the topic is compacted.
    NullKey,
    /// It is larger than the topic allows, and not too large for the producer.
    Size,
}

use Fault::{NullKey, Size, Timestamp};

impl Fault {
    /// What makes the topic refuse such records.
    const fn settings(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Timestamp => &[("message.timestamp.after.max.ms", "3600000")],
            NullKey => &[("cleanup.policy", "compact")],
            Size => &[("max.message.bytes", "5000")],
        }
    }

    /// What the connector says of such a record.
    const fn told(self) -> &'static str {
        match self {
            Timestamp => "has a timestamp that the broker rejects",
            NullKey => "was rejected by the broker as invalid",
            Size => "is larger than Kafka accepts",
        }
    }
}

/// Which of the events 1 to 12 are at fault.
const CULPRITS: [(&str, &[i64]); 5] = [
    ("first", &[1]),
    ("middle", &[6]),
    ("last", &[12]),
    ("several", &[2, 3, 7, 12]),
    ("all", &[]),
];
const EVENTS: i64 = 12;

fn culprits(which: &[i64]) -> Vec<i64> {
    match which {
        [] => (1..=EVENTS).collect(),
        some => some.to_vec(),
    }
}

/// An outbox whose events may have no key, and have a time of their own.
fn outbox(world: &World, name: &str) -> Outbox {
    let outbox = Outbox::new(world, name);
    outbox.database.sql().run(
        "alter table outbox alter aggregateid drop not null;
         alter table outbox add column at bigint not null default extract(epoch from now()) * 1000",
    );
    outbox
}

const TIMES: (&str, &str) = ("transforms.outbox.table.field.event.timestamp", "at");

/// Inserts events 1 to 12 of five keys in one transaction, for the topic of a type. Those at fault are so in the given way.
fn insert(outbox: &Outbox, kind: &str, fault: Fault, culprits: &[i64]) {
    let culprits: Vec<_> = culprits.iter().map(ToString::to_string).collect();
    let is_culprit = format!("n in ({})", culprits.join(", "));
    let (key, value, time) = match fault {
        Timestamp => ("false".into(), "false".into(), is_culprit),
        NullKey => (is_culprit, "false".into(), "false".into()),
        Size => ("false".into(), is_culprit, "false".into()),
    };
    outbox.database.sql().run(&format!(
        "insert into outbox
         select ('x' || substr(md5('{kind}' || n), 1, 15))::bit(60)::bigint, '{kind}', case when {key} then null else 'k' || n % 5 end, 'Created',
           case when {value} then n || repeat('x', 20000) else n::text end,
           extract(epoch from now()) * 1000 + case when {time} then 86400000 else 0 end
         from generate_series(1, {EVENTS}) n"
    ));
}

fn number(record: &Record) -> i64 {
    let text = record.value_text().expect("it has a value");
    text.trim_end_matches('x').parse().expect("it is a number")
}

/// The good events are there, each once, and those of a key in order.
fn assert_all_but(records: &[Record], culprits: &[i64], told: &str) {
    let mut last = HashMap::new();
    for record in records {
        let number = number(record);
        let before = last.insert(record.key_text().map(str::to_owned), number);
        assert!(before < Some(number), "{told}: {number} comes after {before:?}");
    }
    let mut numbers: Vec<_> = records.iter().map(number).collect();
    numbers.sort_unstable();
    let expected: Vec<_> = (1..=EVENTS).filter(|n| !culprits.contains(n)).collect();
    assert_eq!(numbers, expected, "{told}");
}

fn metric(walferry: &Walferry, start: &str) -> Option<f64> {
    let metrics = walferry.get("/metrics")?.body;
    let line = metrics.lines().find(|line| line.starts_with(start))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Lets the broker refuse each choice of events for each reason, and returns what is told of them: by topic, what must be missing.
fn refuse_each(world: &World, outbox: &Outbox, partitions: i32) -> Vec<(String, Vec<i64>)> {
    let mut cases = Vec::new();
    for fault in [Timestamp, NullKey, Size] {
        for (name, which) in CULPRITS {
            let (kind, culprits) = (format!("{fault:?}-{name}"), culprits(which));
            world
                .kafka
                .create_topic_with(&outbox.topic(&kind), partitions, fault.settings());
            insert(outbox, &kind, fault, &culprits);
            cases.push((outbox.topic(&kind), culprits));
        }
        outbox.wait_until_confirmed();
    }
    cases
}

#[test]
fn of_a_refused_batch_only_the_records_at_fault_are_dead_letters() {
    let world = world::shared();
    for partitions in [1, 3] {
        let name = format!("refused_dead{partitions}");
        let (outbox, dead) = (outbox(world, &name), format!("{name}.dead"));
        let walferry = outbox.start_with(outbox.config_with([
            TIMES,
            ("errors.tolerance", "all"),
            ("errors.deadletterqueue.topic.name", &dead),
            ("errors.deadletterqueue.topic.replication.factor", "1"),
        ]));
        let cases = refuse_each(world, &outbox, partitions);
        let letters = world.kafka.read(std::slice::from_ref(&dead));
        for (topic, culprits) in &cases {
            assert_all_but(&world.kafka.read(std::slice::from_ref(topic)), culprits, topic);
            let of_topic = letters
                .iter()
                .filter(|letter| letter.header_text("__connect.errors.topic") == Some(topic));
            let is_large = topic.contains("Size");
            let count = of_topic.clone().count();
            assert_eq!(count, culprits.len(), "{topic}: dead letters");
            if !is_large {
                let mut numbers: Vec<_> = of_topic.map(number).collect();
                numbers.sort_unstable();
                assert_eq!(&numbers, culprits, "{topic}: dead letters");
            }
        }
        let expected: usize = cases.iter().map(|(_, culprits)| culprits.len()).sum();
        wait_for("the records to be counted", || {
            (metric(&walferry, "walferry_records_set_aside_total{")? == expected as f64).then_some(())
        });
    }
}

#[test]
fn of_a_refused_batch_only_the_records_at_fault_are_dropped() {
    let world = world::shared();
    let outbox = outbox(world, "refused_dropped");
    let walferry = outbox.start_with(outbox.config_with([TIMES, ("errors.tolerance", "all")]));
    let cases = refuse_each(world, &outbox, 1);
    for (topic, culprits) in &cases {
        let there = match culprits.len() as i64 == EVENTS {
            true => Vec::new(),
            false => world.kafka.read(std::slice::from_ref(topic)),
        };
        assert_all_but(&there, culprits, topic);
    }
    let expected: usize = cases.iter().map(|(_, culprits)| culprits.len()).sum();
    assert_eq!(
        metric(&walferry, "walferry_records_set_aside_total{"),
        Some(expected as f64)
    );
}

#[test]
fn a_refused_record_stops_the_connector_by_its_name_and_those_before_it_arrive() {
    let world = world::shared();
    for fault in [Timestamp, NullKey, Size] {
        let name = format!("refused_stops_{}", format!("{fault:?}").to_lowercase());
        let outbox = outbox(world, &name);
        let topic = outbox.topic("order");
        world.kafka.create_topic_with(&topic, 1, fault.settings());
        let mut walferry = outbox.start_with(outbox.config_with([TIMES]));
        insert(&outbox, "order", fault, &[6, 9]);
        assert_eq!(walferry.wait(), Some(3), "{fault:?}: {}", walferry.output());
        let output = walferry.output();
        let line = output.lines().find(|line| line.contains(fault.told()));
        let line = line.unwrap_or_else(|| panic!("{fault:?} is not told of:\n{output}"));
        let key = match fault {
            NullKey => "without a key",
            _ => "the record's key is k1",
        };
        for part in ["from table public.outbox", "LSN ", &topic, key] {
            assert!(line.contains(part), "{fault:?}: {part} is missing in {line}");
        }
        let numbers: Vec<_> = world
            .kafka
            .read(std::slice::from_ref(&topic))
            .iter()
            .map(number)
            .collect();
        assert_eq!(numbers, (1..6).collect::<Vec<_>>(), "{fault:?}");
    }
}

/// No broker is asked for a topic that cannot be: the row whose column makes its name is at fault, and no other.
#[test]
fn a_row_whose_topic_has_an_impossible_name_is_set_aside_or_stops_by_its_name() {
    let world = world::shared();
    let insert = |outbox: &Outbox| {
        outbox.database.sql().run(
            "insert into outbox (id, aggregatetype, aggregateid, type, payload)
             select n, case when n % 4 = 0 then 'no topic ' || n else 'order' end, 'k' || n % 3, 'Created', n from generate_series(1, 12) n",
        );
    };
    for transactions in [false, true] {
        let name = format!("refused_topic_{transactions}");
        let outbox = Outbox::new(world, &name);
        let dead = outbox.topic("dead");
        let mut changes = vec![
            ("errors.tolerance", "all"),
            ("errors.deadletterqueue.topic.name", &*dead),
            ("errors.deadletterqueue.topic.replication.factor", "1"),
        ];
        if transactions {
            changes.push(("exactly.once.support", "required"));
        }
        let mut config = outbox.config();
        config.extend(changes.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let mut walferry = outbox.start_with(config);
        insert(&outbox);
        let arrived = world.kafka.wait_for_records(&outbox.topic("order"), 9);
        assert_eq!(
            arrived.iter().map(number).collect::<Vec<_>>(),
            [1, 2, 3, 5, 6, 7, 9, 10, 11]
        );
        let letters = world.kafka.wait_for_records(&dead, 3);
        assert_eq!(letters.iter().map(number).collect::<Vec<_>>(), [4, 8, 12]);
        outbox.wait_until_confirmed();
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
    let outbox = Outbox::new(world, "refused_topic_stops");
    let mut walferry = outbox.start();
    insert(&outbox);
    assert_eq!(walferry.wait(), Some(3), "{}", walferry.output());
    let output = walferry.output();
    let line = output
        .lines()
        .find(|line| line.contains("has a topic name that Kafka rejects"));
    let line = line.unwrap_or_else(|| panic!("it is not told of:\n{output}"));
    for part in [
        "from table public.outbox",
        "LSN ",
        "no topic 4",
        "the record's key is k1",
    ] {
        assert!(line.contains(part), "{part} is missing in {line}");
    }
    assert_eq!(world.kafka.read(&[outbox.topic("order")]).len(), 3);
}

#[test]
fn with_transactions_a_refused_record_stops_the_connector_whatever_the_reason() {
    let world = world::shared();
    for (tolerance, which) in [("none", [6].as_slice()), ("all", &[1]), ("none", &[2, 12])] {
        for fault in [Timestamp, NullKey, Size] {
            let name = format!(
                "refused_once_{tolerance}{}_{}",
                which[0],
                format!("{fault:?}").to_lowercase()
            );
            let outbox = outbox(world, &name);
            let topic = outbox.topic("order");
            world.kafka.create_topic_with(&topic, 1, fault.settings());
            let mut walferry = outbox.start_with(outbox.config_with([
                TIMES,
                ("exactly.once.support", "required"),
                ("errors.tolerance", tolerance),
            ]));
            insert(&outbox, "order", fault, which);
            assert_eq!(walferry.wait(), Some(3), "{name}: {}", walferry.output());
            let output = walferry.output();
            let line = output.lines().find(|line| line.contains(fault.told()));
            let line = line.unwrap_or_else(|| panic!("{fault:?} is not told of:\n{output}"));
            let key = match fault {
                NullKey => "without a key".to_owned(),
                _ => format!("the record's key is k{}", which[0] % 5),
            };
            for part in ["from table public.outbox", "LSN ", &key] {
                assert!(line.contains(part), "{name}: {part} is missing in {line}");
            }
            let there = world.kafka.read(std::slice::from_ref(&topic));
            let numbers: Vec<_> = there.iter().map(number).collect();
            assert!(numbers.iter().all(|n| *n < which[0]), "{name}: {numbers:?}");
        }
    }
}

#[test]
fn too_large_batches_cost_no_record_and_no_order_where_errors_are_tolerated() {
    const ROWS: i64 = 600;
    let world = world::shared();
    let outbox = outbox(world, "refused_batches");
    let topic = outbox.topic("order");
    world
        .kafka
        .create_topic_with(&topic, 1, &[("max.message.bytes", "20000")]);
    let walferry = outbox.start_with(outbox.config_with([("errors.tolerance", "all")]));
    // Each record is small enough. Some batches are too large, and some that are sent right behind them are not.
    outbox.database.sql().run(&format!(
        "insert into outbox select n, 'order', 'k' || n % 3, 'Created', n || repeat('x', case when n % 7 = 0 then 15000 else 0 end)
         from generate_series(1, {ROWS}) n"
    ));
    outbox.wait_until_confirmed();
    let numbers: Vec<_> = world.kafka.read(&[topic]).iter().map(number).collect();
    assert_eq!(numbers, (1..=ROWS).collect::<Vec<_>>());
    assert_eq!(metric(&walferry, "walferry_records_set_aside_total{"), Some(0.0));
}

/// A new client for each record would take a fifth of a second.
#[test]
fn records_refused_one_after_another_are_set_aside_with_few_clients_and_in_order() {
    const ROWS: i64 = 4000;
    let is_bad = |n: i64| n <= 400 || n <= 1000 && n % 3 == 0 || n > 3900;
    let world = world::shared();
    for partitions in [1, 3] {
        let name = format!("refused_thick{partitions}");
        let (outbox, dead) = (outbox(world, &name), format!("{name}.dead"));
        let topic = outbox.topic("order");
        world.kafka.create_topic_with(&topic, partitions, Timestamp.settings());
        let mut walferry = outbox.start_with(outbox.config_with([
            TIMES,
            ("errors.tolerance", "all"),
            ("errors.deadletterqueue.topic.name", &dead),
            ("errors.deadletterqueue.topic.replication.factor", "1"),
        ]));
        outbox.database.sql().run(&format!(
            "insert into outbox
             select n, 'order', 'k' || n % 5, 'Created', n::text, extract(epoch from now()) * 1000
               + case when n <= 400 or n <= 1000 and n % 3 = 0 or n > 3900 then 86400000 else 0 end
             from generate_series(1, {ROWS}) n"
        ));
        outbox.wait_until_confirmed();
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        let mut last = HashMap::new();
        let records = world.kafka.read(&[topic]);
        for record in &records {
            let before = last.insert(record.key_text().map(str::to_owned), number(record));
            assert!(
                before < Some(number(record)),
                "{} comes after {before:?}",
                number(record)
            );
        }
        let numbers = |records: &[Record]| {
            let mut numbers: Vec<_> = records.iter().map(number).collect();
            numbers.sort_unstable();
            numbers
        };
        let (bad, good): (Vec<i64>, Vec<i64>) = (1..=ROWS).partition(|&n| is_bad(n));
        assert_eq!(numbers(&records), good);
        assert_eq!(numbers(&world.kafka.read(&[dead])), bad);
        let output = walferry.output();
        let clients = output
            .split("clients=")
            .skip(1)
            .filter_map(|rest| rest.split_whitespace().next()?.parse::<u32>().ok());
        let clients: u32 = clients.sum();
        assert!(
            (1..=20).contains(&clients),
            "{clients} clients for {} records",
            bad.len()
        );
    }
}

/// How often a broker was made to look old.
static MADE_OLD: AtomicUsize = AtomicUsize::new(0);

/// Makes a broker say that it knows requests to produce only up to version 7. Up to there, its answers do not name the records at fault.
fn make_old(answer: &mut [u8]) {
    // An answer about versions: size, number of the request, no error, length of a list, and its entries of key, lowest and highest version.
    const BEGIN: usize = 11;
    const ENTRY: usize = 7;
    if answer.len() < BEGIN + 20 * ENTRY || answer[8..10] != [0, 0] {
        return;
    }
    let entries = &mut answer[BEGIN..BEGIN + 20 * ENTRY];
    let is_entry = |entry: &[u8]| {
        entry[0] == 0 && entry[1] < 100 && entry[2] == 0 && entry[3] <= entry[5] && entry[4] == 0 && entry[6] == 0
    };
    if entries.chunks_exact(ENTRY).all(is_entry)
        && let Some(produce) = entries.chunks_exact_mut(ENTRY).find(|entry| entry[1] == 0)
    {
        produce[5] = 7;
        MADE_OLD.fetch_add(1, Relaxed);
    }
}

#[test]
fn a_record_that_an_older_broker_does_not_name_is_found() {
    let world = world::shared();
    let (kafka, network) = Kafka::start_with_network();
    network.alter_answers(make_old);
    let of_old_broker = |name: &str, changes: &[(&str, &str)]| {
        let outbox = Outbox::on(&world.postgres, &kafka, name);
        outbox.database.sql().run(
            "alter table outbox alter aggregateid drop not null;
             alter table outbox add column at bigint not null default extract(epoch from now()) * 1000",
        );
        let mut config = outbox.config_with([TIMES]);
        config.extend(changes.iter().map(|&(name, value)| (name.to_owned(), value.into())));
        let mut options = outbox.options(config);
        options.bootstrap = format!("127.0.0.1:{}", network.port());
        let mut walferry = Walferry::start(options);
        outbox.wait_until_streaming(&mut walferry);
        (outbox, walferry)
    };
    let tolerant = [
        ("errors.tolerance", "all"),
        ("errors.deadletterqueue.topic.name", "old.dead"),
        ("errors.deadletterqueue.topic.replication.factor", "1"),
    ];
    let (outbox, _walferry) = of_old_broker("refused_old", &tolerant);
    for fault in [Timestamp, NullKey] {
        for (name, which) in CULPRITS {
            let (kind, culprits) = (format!("{fault:?}-{name}"), culprits(which));
            let topic = outbox.topic(&kind);
            kafka.create_topic_with(&topic, 1, fault.settings());
            insert(&outbox, &kind, fault, &culprits);
            outbox.wait_until_confirmed();
            assert_all_but(&kafka.read(std::slice::from_ref(&topic)), &culprits, &topic);
            let letters = kafka.read(&["old.dead".to_owned()]);
            let of_topic = letters
                .iter()
                .filter(|letter| letter.header_text("__connect.errors.topic") == Some(&topic));
            let numbers: Vec<_> = of_topic.map(number).collect();
            assert_eq!(numbers, culprits, "{topic}: dead letters");
        }
    }
    for (name, support) in [("refused_old_stops", "requested"), ("refused_old_once", "required")] {
        let (outbox, mut walferry) = of_old_broker(name, &[("exactly.once.support", support)]);
        let topic = outbox.topic("order");
        kafka.create_topic_with(&topic, 1, Timestamp.settings());
        insert(&outbox, "order", Timestamp, &[6, 9]);
        assert_eq!(walferry.wait(), Some(3), "{name}: {}", walferry.output());
        let output = walferry.output();
        let cause = output.lines().find(|line| line.contains("cause: ")).unwrap_or_default();
        assert!(cause.contains(Timestamp.told()), "{name}: {output}");
        assert!(cause.contains("the record's key is k1"), "{name}: {cause}");
    }
    assert!(
        MADE_OLD.load(Relaxed) > 0,
        "the broker said what it knows in another form"
    );
}
