//! Exactly-once delivery where a configuration changes, where something is missing, or where a second process is about.

use serde_json::{Map, Value, json};
use walferry_config::{Options, Worker};
use walferry_engine::{Disposition, Failure, Kind};
use walferry_kafka::connect::{ConnectTopics, OffsetLog, OffsetRecord};
use walferry_testkit::servers::{Answer, Surroundings, Walferry, wait_for};

use crate::{
    outbox::Outbox,
    world::{self, World},
};

const REQUIRED: (&str, &str) = ("exactly.once.support", "required");

/// The usual connector as a plain one: it sends the rows of the table, and reads existing ones if it has no offset.
fn plain<const N: usize>(outbox: &Outbox, changes: [(&str, &str); N]) -> Map<String, Value> {
    let mut config = outbox.config_with([
        ("snapshot.mode", "initial"),
        ("key.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter"),
    ]);
    config.retain(|name, _| !name.starts_with("transforms"));
    config.extend(changes.map(|(name, value)| (name.into(), value.into())));
    config
}

/// How many records there are of the rows of a plain connector.
fn rows_sent(world: &World, outbox: &Outbox) -> usize {
    let topic = outbox.topic("public.outbox");
    match world.kafka.topics().contains(&topic) {
        true => world.kafka.read(&[topic]).len(),
        false => 0,
    }
}

#[track_caller]
fn wait_for_rows(world: &World, outbox: &Outbox, count: usize) {
    wait_for(&format!("{count} records"), || {
        (rows_sent(world, outbox) >= count).then_some(())
    });
}

/// A worker that keeps its state in files.
fn start_worker(outbox: &Outbox) -> Walferry {
    let surroundings = Surroundings {
        is_worker: true,
        ..Surroundings::default()
    };
    let mut walferry = Walferry::start_in(outbox.options(Map::new()), surroundings);
    walferry.wait_until_ready();
    walferry
}

#[track_caller]
fn send(walferry: &Walferry, method: &str, path: &str, body: &Value) -> Answer {
    let answer = walferry.send(method, path, body).expect("it answers");
    assert!(
        answer.status < 300,
        "{method} {path}: {} {}",
        answer.status,
        answer.body
    );
    answer
}

/// An offset that was removed while the connector was stopped does not come back, even if the connector's place for it has changed since
/// it ran.
#[test]
fn an_offset_that_was_removed_stays_removed_when_its_place_changes() {
    let world = world::shared();
    for (name, before, after) in [
        ("once_removed", "requested", "required"),
        ("once_removed_back", "required", "requested"),
    ] {
        let outbox = Outbox::new(&world, name);
        let walferry = &mut start_worker(&outbox);
        let path = |rest: &str| format!("/connectors/{name}{rest}");
        let config = |support| Value::Object(plain(&outbox, [("exactly.once.support", support)]));
        send(walferry, "PUT", &path("/config"), &config(before));
        outbox.wait_until_streaming(walferry);
        outbox.insert("k", 1, 10);
        wait_for_rows(&world, &outbox, 10);
        outbox.wait_until_confirmed();

        send(walferry, "PUT", &path("/stop"), &Value::Null);
        send(walferry, "PUT", &path("/config"), &config(after));
        wait_for("the connector to stop", || {
            let removed = walferry.ask("DELETE", &path("/offsets"))?;
            (removed.status == 200).then_some(())
        });
        // On a busy machine, the topic may not be read in the time that a request has. That is an answer, too, but not the one in question.
        let shown = wait_for("the offsets to be read", || {
            walferry.get(&path("/offsets")).filter(|answer| answer.status == 200)
        });
        assert_eq!(shown.json(), json!({ "offsets": [] }), "{name}");
        send(walferry, "PUT", &path("/resume"), &Value::Null);
        // Without an offset, all rows are read again.
        outbox.insert("k", 11, 11);
        wait_for_rows(&world, &outbox, 11);
        wait_for_rows(&world, &outbox, 21);
    }
}

/// Without its offset, the connector would read all rows again, and leave out what was deleted meanwhile.
#[test]
fn an_offset_whose_topic_was_deleted_is_not_taken_for_a_first_start() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_lost");
    let topic = "once_lost-offsets";
    let mut walferry = outbox.start_with(plain(&outbox, [REQUIRED, ("offsets.storage.topic", topic)]));
    outbox.insert("k", 1, 10);
    wait_for_rows(&world, &outbox, 10);
    outbox.wait_until_confirmed();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    outbox.insert("k", 11, 11);
    let confirmed = outbox.confirmed();
    world.kafka.delete_topic(topic);
    for offsets in [topic, "once_lost-others"] {
        // Neither in the same topic, which is made again, nor in another one to which it should move.
        walferry.options().config = plain(&outbox, [REQUIRED, ("offsets.storage.topic", offsets)]);
        walferry.start_again();
        assert_eq!(walferry.wait(), Some(4), "{}", walferry.output());
        let output = walferry.output();
        assert!(output.contains(&format!("was stored in topic {topic}")), "{output}");
    }
    // Nor in a file.
    walferry.options().config = plain(&outbox, []);
    walferry.start_again();
    assert_eq!(walferry.wait(), Some(4), "{}", walferry.output());
    assert_eq!(rows_sent(&world, &outbox), 10, "rows were sent again");
    assert_eq!(outbox.confirmed(), confirmed);
    // Somebody decides to begin as new: the hint names the file.
    let output = walferry.output();
    let (_, hint) = output.rsplit_once("to begin as new, remove ").expect("it says how");
    let note = hint.split_whitespace().next().expect("it names the file");
    std::fs::remove_file(note).unwrap_or_else(|error| panic!("{note}: {error}"));
    walferry.start_again();
    outbox.wait_until_streaming(&mut walferry);
    wait_for_rows(&world, &outbox, 21);
}

/// Somebody deletes the topic of offsets while the connector runs, and a broker makes it again with its own settings, or an operator with the
/// right ones. The next offset that is written notices it: the connector does not go on as if nothing had happened.
#[test]
fn a_topic_of_offsets_that_is_made_again_meanwhile_is_noticed_by_the_next_offset() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_again");
    let topic = "once_again-offsets";
    let mut walferry = outbox.start_with(plain(&outbox, [REQUIRED, ("offsets.storage.topic", topic)]));
    outbox.insert("k", 1, 10);
    wait_for_rows(&world, &outbox, 10);
    outbox.wait_until_confirmed();
    let make_again = |policy| {
        world.kafka.delete_topic(topic);
        wait_for("the topic to be gone", || {
            (!world.kafka.topics().contains(&topic.to_owned())).then_some(())
        });
        world.kafka.create_topic_with(topic, 1, &[("cleanup.policy", policy)]);
    };
    make_again("compact");
    outbox.insert("k", 11, 11);
    wait_for("the deletion to be told", || {
        let is_told = walferry
            .output()
            .contains(&format!("topic {topic} was deleted and created again"));
        is_told.then_some(())
    });
    // The offset is in the new topic, together with its records.
    outbox.insert("k", 12, 12);
    wait_for_rows(&world, &outbox, 12);
    outbox.wait_until_confirmed();

    make_again("delete");
    outbox.insert("k", 13, 13);
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    assert!(
        walferry.output().contains("cleanup.policy=compact"),
        "{}",
        walferry.output()
    );
    world.kafka.configure_topic(topic, &[("cleanup.policy", "compact")]);
    outbox.insert("k", 14, 14);
    walferry.start_again();
    wait_for_rows(&world, &outbox, 14);
    outbox.wait_until_confirmed();
    assert_eq!(rows_sent(&world, &outbox), 14, "rows were sent again");
}

/// Another thread, the Kafka client's, completes the future.
fn wait_until_written(written: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let mut written = std::pin::pin!(written);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    wait_for("the offset to be written", || {
        match written.as_mut().poll(&mut context) {
            std::task::Poll::Ready(written) => Some(written),
            std::task::Poll::Pending => None,
        }
    })
}

/// With Connect's topics, a process that has stored an offset knows that it is gone, and does not begin as new.
#[test]
fn an_offset_is_missed_in_a_topic_that_was_made_again() {
    let world = world::shared();
    let topic = "missed-offsets";
    let named = |prefix: &str, topic: &str| {
        let entries = [("topic", topic), ("replication.factor", "1"), ("partitions", "1")];
        Options::new(
            prefix,
            entries.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
        )
    };
    let worker = Worker {
        group_id: Some("missed".into()),
        config_storage: named("config.storage.", "missed-configs"),
        offset_storage: named("offset.storage.", topic),
        status_storage: named("status.storage.", "missed-states"),
        ..Worker::default()
    };
    let topics = ConnectTopics::of(&worker, &world.kafka.bootstrap()).expect("they are right");
    let topics = topics.expect("they are named");
    topics.ensure().expect("they can be created");
    let log = OffsetLog::open(&topics).expect("the clients can be made");
    let record = |value: &str| {
        Some(OffsetRecord {
            value: value.to_owned(),
            additions: None,
        })
    };
    // Partitions that are new may have no leader yet.
    let read = |key: &str| {
        wait_for("the topic to be read", || match log.read(key) {
            Err(failure) if failure.disposition == Disposition::Retry => None,
            read => Some(read),
        })
    };
    let write = |key: &str, value| log.write_all_blocking([(key.to_owned(), record(value))]);
    let make_again = || {
        world.kafka.delete_topic(topic);
        wait_for("the topic to be gone", || {
            (!world.kafka.topics().contains(&topic.to_owned())).then_some(())
        });
        world
            .kafka
            .create_topic_with(topic, 1, &[("cleanup.policy", "compact")]);
    };
    for key in ["stays", "gone"] {
        write(key, "1").expect("it can be written");
        assert_eq!(read(key).expect("it is there"), record("1"));
    }
    make_again();
    for _ in 0..2 {
        let failure = read("gone").expect_err("it is not there any more");
        assert_eq!(failure.kind, Kind::OffsetDamaged, "{failure}");
        assert!(failure.to_string().contains("deleted and created again"), "{failure}");
    }
    assert_eq!(read("new").expect("there was none"), None);
    // The next offset that a connector stores is told to be in another topic, and is there afterwards.
    write("stays", "2").expect("it can be written");
    assert_eq!(read("stays").expect("it is there"), record("2"));
    make_again();
    let failure = wait_until_written(log.write("stays", record("3"))).expect_err("the topic is another one");
    assert!(failure.to_string().contains("deleted and created again"), "{failure}");
    assert_eq!(read("stays").expect("it is there"), record("3"));
    wait_until_written(log.write("stays", record("4"))).expect("it can be written");
    // A broker makes it again with fewer partitions than the worker did.
    world.kafka.grow_topic(topic, 25);
    wait_for("the offset to be stored in more partitions", || {
        let written = wait_until_written(log.write("stays", record("5")));
        let told = written.as_ref().err().map_or_else(String::new, Failure::to_string);
        assert!(!told.contains("deleted"), "{told}");
        written.ok()
    });
    assert_eq!(read("stays").expect("it is there"), record("5"));
    make_again();
    let failure = wait_until_written(log.write("stays", record("6"))).expect_err("the topic is another one");
    assert!(failure.to_string().contains("deleted and created again"), "{failure}");
    assert_eq!(read("stays").expect("it is there"), record("6"));
    // A person decides.
    read("gone").expect_err("it is still missed");
    log.write_all_blocking([("gone".to_owned(), None)])
        .expect("it can be removed");
    assert_eq!(read("gone").expect("it was removed"), None);
}

/// The offset goes along when the connector's topic for it changes.
#[test]
fn an_offset_goes_on_in_another_topic() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_topics");
    let own = |topic| plain(&outbox, [REQUIRED, ("offsets.storage.topic", topic)]);
    let mut walferry = outbox.start_with(own("once_topics-1"));
    outbox.insert("k", 1, 10);
    wait_for_rows(&world, &outbox, 10);
    outbox.wait_until_confirmed();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    walferry.options().config = own("once_topics-2");
    walferry.start_again();
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 11, 11);
    wait_for_rows(&world, &outbox, 11);
    outbox.wait_until_confirmed();
    assert_eq!(rows_sent(&world, &outbox), 11, "rows were sent again");
}

/// A transaction is committed before Kafka aborts it, however long the interval is.
#[test]
fn an_interval_that_is_longer_than_transactions_may_last_holds_up_nothing_for_ever() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_too_long");
    let _walferry = outbox.start_with(plain(
        &outbox,
        [
            REQUIRED,
            ("transaction.boundary", "interval"),
            ("transaction.boundary.interval.ms", "20000"),
            ("producer.override.transaction.timeout.ms", "5000"),
        ],
    ));
    outbox.insert("k", 1, 10);
    wait_for_rows(&world, &outbox, 10);
}

/// Java's client takes these two together.
#[test]
fn requests_may_be_given_more_time_than_transactions() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_patient");
    let _walferry = outbox.start_with(plain(
        &outbox,
        [REQUIRED, ("producer.override.request.timeout.ms", "120000")],
    ));
    outbox.insert("k", 1, 10);
    wait_for_rows(&world, &outbox, 10);
}

/// During a rolling restart, or where somebody starts the connector twice, the second process waits for the slot. The first one goes on.
#[test]
fn a_second_process_that_waits_for_the_slot_does_not_disturb_the_first() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_twice");
    let mut first = outbox.start_with(plain(&outbox, [REQUIRED]));
    outbox.insert("k", 1, 1);
    wait_for_rows(&world, &outbox, 1);
    let mut second = Walferry::start(outbox.options(plain(&outbox, [REQUIRED])));
    let mut event: i64 = 1;
    wait_for("the second process to have tried again", || {
        event += 1;
        outbox.insert("k", event, event);
        let metrics = second.get("/metrics")?.body;
        let is_tried = |line: &&str| line.starts_with("walferry_errors_total{") && line.contains("slot_in_use");
        let line = metrics.lines().find(is_tried)?;
        (line.rsplit(' ').next()?.parse::<f64>().ok()? >= 2.0).then_some(())
    });
    wait_for_rows(&world, &outbox, event as usize);
    assert!(second.runs(), "{}", second.output());
    let restarts = |walferry: &Walferry| {
        let metrics = walferry.get("/metrics").expect("it answers").body;
        let line = metrics.lines().find(|line| line.starts_with("walferry_restarts_total"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    assert_eq!(restarts(&first), Some(0.0), "{}", first.output());
    // It takes over at once.
    first.kill();
    outbox.insert("k", event + 1, event + 10);
    outbox.wait_until_confirmed();
    assert_eq!(rows_sent(&world, &outbox), event as usize + 10, "rows were sent again");
}

#[test]
fn commands_for_a_file_refuse_an_offset_that_is_in_a_topic() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "once_commands");
    let mut walferry = outbox.start_with(plain(&outbox, [REQUIRED]));
    outbox.insert("k", 1, 1);
    wait_for_rows(&world, &outbox, 1);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let config = walferry.config_file().display().to_string();
    for command in ["show", "export", "reset", "accept-history"] {
        let refused = walferry.command(["offsets", command, "--config", &config]);
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{command}: {told}");
        assert!(told.contains("/connectors/once_commands/offsets"), "{command}: {told}");
    }
    walferry.start_again();
    outbox.wait_until_streaming(&mut walferry);
    outbox.insert("k", 2, 2);
    wait_for_rows(&world, &outbox, 2);
    outbox.wait_until_confirmed();
    assert_eq!(rows_sent(&world, &outbox), 2, "rows were sent again");
}
