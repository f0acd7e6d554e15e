//! One record that cannot be sent is passed over with the command that the error prints, and nothing else is.

use serde_json::json;
use walferry_testkit::servers::{Kafka, Record, wait_for};

use crate::{
    outbox::Outbox,
    takeover,
    world::{self, World},
};

/// Why the record cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// A transform fails on it.
    Transform,
    /// The broker refuses it: it is larger than the topic allows.
    Size,
}

use Fault::{Size, Transform};

const EXACTLY_ONCE: (&str, &str) = ("exactly.once.support", "required");

fn outbox(world: &World, name: &str, fault: Fault) -> Outbox {
    let outbox = Outbox::new(world, name);
    if fault == Size {
        let settings = [("max.message.bytes", "5000")];
        world.kafka.create_topic_with(&outbox.topic("order"), 1, &settings);
    }
    outbox
}

/// Inserts a row that is at fault among others of its transaction, and a transaction behind it.
fn insert(outbox: &Outbox, fault: Fault, first: i64) {
    let payload = match fault {
        Transform => "'no number'",
        Size => "repeat('7', 20000)",
    };
    let (second, third, bad) = (first + 1, first + 2, first + 50);
    outbox.database.sql().run(&format!(
        "begin;
         insert into outbox values ({first}, 'order', 'k', 'T', '{first}');
         insert into outbox values ({bad}, 'order', 'bad', 'T', {payload});
         insert into outbox values ({second}, 'order', 'k', 'T', '{second}');
         commit;
         insert into outbox values ({third}, 'order', 'k', 'T', '{third}')"
    ));
}

/// The command that the error prints, literally.
#[track_caller]
fn printed_command(output: &str) -> String {
    let start = "`walferry offsets skip-record ";
    let at = output
        .rfind(start)
        .unwrap_or_else(|| panic!("no command in:\n{output}"));
    let rest = &output[at + 1..];
    rest[..rest.find('`').expect("the command ends")].to_owned()
}

/// The payloads of one key, without repeated ones.
fn payloads(records: &[Record]) -> Vec<String> {
    let mut payloads: Vec<String> = records
        .iter()
        .filter_map(|record| Some(record.value_text()?.to_owned()))
        .collect();
    payloads.dedup();
    payloads
}

#[track_caller]
fn pass_over(name: &str, fault: Fault, more: &[(&str, &str)], letters: Option<&str>) {
    let world = world::shared();
    let outbox = outbox(&world, name, fault);
    let mut config = outbox.config();
    config.extend(more.iter().map(|&(name, value)| (name.to_owned(), value.into())));
    if let Some(topic) = letters {
        config.insert("errors.deadletterqueue.topic.name".into(), topic.into());
        config.insert("errors.deadletterqueue.topic.replication.factor".into(), "1".into());
    }
    if fault == Transform {
        config.insert("transforms".into(), "outbox,number".into());
        config.insert(
            "transforms.number.type".into(),
            "org.apache.kafka.connect.transforms.Cast$Value".into(),
        );
        config.insert("transforms.number.spec".into(), "int64".into());
    }
    let mut walferry = outbox.start_with(config);
    insert(&outbox, fault, 1);
    assert_eq!(walferry.wait(), Some(3), "{}", walferry.output());
    let output = walferry.output();
    assert!(output.contains("errors.tolerance=all"), "{output}");
    let command = printed_command(&output);

    // Another request waits beside this one, for a change that does not come.
    let (same, _) = command.rsplit_once(' ').expect("a position");
    let other = walferry.shell(&format!("{same} FFFF/0:FFFF/0:0"));
    assert!(other.status.success(), "{other:?}");
    let told = walferry.shell(&command);
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success() && text.contains("at the next start"), "{told:?}");
    assert!(text.contains("FFFF/0:FFFF/0:0 is kept, too"), "{told:?}");

    // It is killed as soon as the change was passed over. If the offset behind it is not stored by then, the next start does it again.
    walferry.start_again();
    let topic = outbox.topic("order");
    let line = wait_for("the record to be passed over", || {
        let output = walferry.output();
        let line = output.lines().find(|line| line.contains("a record is passed over"))?;
        Some(line.to_owned())
    });
    assert!(line.contains("public.outbox") && line.contains("position="), "{line}");
    if fault == Size {
        assert!(line.contains("key=\"bad\""), "{line}");
    }
    walferry.kill();
    walferry.start_again();
    outbox.wait_until_streaming(&mut walferry);
    let expected = ["1", "2", "3"];
    wait_for("the other rows", || {
        let records = world.kafka.read(&[topic.clone()]);
        (payloads(&records).last().map(String::as_str) == Some("3")).then_some(())
    });
    outbox.wait_until_confirmed();
    let records = world.kafka.read(&[topic.clone()]);
    assert!(
        records.iter().all(|record| record.key_text() == Some("k")),
        "{records:?}"
    );
    match more.contains(&EXACTLY_ONCE) {
        true => {
            let all: Vec<_> = records.iter().filter_map(Record::value_text).collect();
            assert_eq!(all, expected);
        }
        false => {
            let mut all = payloads(&records);
            all.sort();
            all.dedup();
            assert_eq!(all, expected);
        }
    }
    if let Some(letters) = letters {
        let dead = world.kafka.wait_for_records(letters, 1);
        let header = |name: &str| dead[0].header_text(name).map(str::to_owned);
        assert_eq!(header("walferry.table").as_deref(), Some("public.outbox"), "{dead:?}");
        if fault == Size {
            assert_eq!(dead[0].key_text(), Some("bad"));
            assert_eq!(header("__connect.errors.stage").as_deref(), Some("PASSED_OVER"));
        }
    }
    // The request was for that change alone: the next one that cannot be sent stops the connector again. Nor can the request be made twice.
    let again = walferry.shell(&command);
    if !more.contains(&EXACTLY_ONCE) {
        assert!(!again.status.success(), "{again:?}");
        assert!(
            String::from_utf8_lossy(&again.stderr).contains("before the stored offset"),
            "{again:?}"
        );
    }
    insert(&outbox, fault, 101);
    assert_eq!(walferry.wait(), Some(3), "{}", walferry.output());
    assert_ne!(printed_command(&walferry.output()), command);
}

#[test]
fn a_row_that_a_transform_fails_on_is_passed_over_with_the_printed_command() {
    pass_over("skip_cast", Transform, &[], None);
}

#[test]
fn a_record_that_the_broker_refuses_is_passed_over_with_the_printed_command() {
    pass_over("skip_size", Size, &[], None);
}

#[test]
fn a_record_that_is_passed_over_goes_to_the_dead_letter_topic() {
    pass_over("skip_letter", Size, &[], Some("skip_letter.dead"));
    pass_over("skip_cast_letter", Transform, &[], Some("skip_cast_letter.dead"));
}

#[test]
fn a_worker_on_connects_topics_passes_over_a_record_after_a_restart() {
    let (world, kafka) = (world::shared(), Kafka::start());
    let outbox = Outbox::on(&world.postgres, &kafka, "skip_topics");
    kafka.create_topic_with(&outbox.topic("order"), 1, &[("max.message.bytes", "5000")]);
    let mut walferry = takeover::start(&kafka, "skip_topics");
    takeover::wait_for_turn(&mut walferry);
    let body = json!({ "name": "skip_topics", "config": outbox.config() });
    let answer = walferry.send("POST", "/connectors", &body).expect("an answer");
    assert_eq!(answer.status, 201, "{}", answer.body);
    outbox.wait_until_streaming(&mut walferry);
    insert(&outbox, Size, 1);
    let command = wait_for("the connector to fail", || {
        let output = walferry.output();
        output.contains("offsets skip-record").then(|| printed_command(&output))
    });
    let told = walferry.shell(&command);
    assert!(told.status.success(), "{told:?}");
    let restarted = walferry.shell(&format!("walferry restart skip_topics --admin {}", walferry.admin()));
    assert!(restarted.status.success(), "{restarted:?}");
    let topic = outbox.topic("order");
    wait_for("the other rows", || {
        let records = kafka.read(&[topic.clone()]);
        (payloads(&records).last().map(String::as_str) == Some("3")).then_some(())
    });
    outbox.wait_until_confirmed();
    let records = kafka.read(&[topic]);
    assert!(
        records.iter().all(|record| record.key_text() == Some("k")),
        "{records:?}"
    );
    // The request is neither in the folder nor with the offset any more.
    let folder = walferry
        .config_file()
        .with_file_name("state")
        .join("walferry/skip_topics");
    wait_for("the request to be removed", || {
        (!folder.join("skip-record.json").exists()).then_some(())
    });
    let offsets = kafka.read(&["connect-offsets".to_owned()]);
    let last = offsets.last().expect("there is an offset");
    assert!(
        !last
            .header_text("walferry.offset")
            .unwrap_or_default()
            .contains("skip_record"),
        "{last:?}"
    );
}

#[test]
fn who_may_change_connectors_passes_over_a_record_over_rest_and_the_log_says_who() {
    let (world, kafka) = (world::shared(), Kafka::start());
    let outbox = Outbox::on(&world.postgres, &kafka, "skip_rest");
    kafka.create_topic_with(&outbox.topic("order"), 1, &[("max.message.bytes", "5000")]);
    let mut walferry = takeover::start(&kafka, "skip_rest");
    takeover::wait_for_turn(&mut walferry);
    let body = json!({ "name": "skip_rest", "config": outbox.config() });
    let answer = walferry.send("POST", "/connectors", &body).expect("an answer");
    assert_eq!(answer.status, 201, "{}", answer.body);
    outbox.wait_until_streaming(&mut walferry);
    let ask = |body: &serde_json::Value| {
        let path = "/connectors/skip_rest/skip-record";
        walferry.send("POST", path, body).expect("an answer")
    };
    let refusal = |body: &serde_json::Value, status: u16, text: &str| {
        let answer = ask(body);
        assert!(
            answer.status == status && answer.body.contains(text),
            "{}: {}",
            answer.status,
            answer.body
        );
    };
    let elsewhere = json!({ "position": "0/286E1F0:0/286E1A8:0" });
    refusal(&elsewhere, 409, "has not failed at a change");
    insert(&outbox, Size, 1);
    let failed_change = || {
        wait_for("the connector to fail at a change", || {
            let data = walferry.get("/ui/data")?.json();
            Some(data["connectors"][0]["failed_change"].as_str()?.to_owned())
        })
    };
    let position = failed_change();
    for (body, status, text) in [
        (elsewhere, 409, "has failed at another change"),
        (json!({ "position": "yesterday" }), 400, "\\\"yesterday\\\""),
        (json!({}), 400, "position"),
    ] {
        refusal(&body, status, text);
    }

    let answer = ask(&json!({ "position": position }));
    assert_eq!(
        (answer.status, &answer.json()),
        (202, &json!({ "position": position })),
        "{}",
        answer.body
    );
    let topic = outbox.topic("order");
    wait_for("the other rows", || {
        let records = kafka.read(&[topic.clone()]);
        (payloads(&records).last().map(String::as_str) == Some("3")).then_some(())
    });
    let records = kafka.read(&[topic.clone()]);
    assert!(
        records.iter().all(|record| record.key_text() == Some("k")),
        "{records:?}"
    );
    let output = walferry.output();
    let asked = output
        .lines()
        .find(|line| line.contains("somebody has asked over the REST API"));
    let asked = asked.expect("the log says who");
    for text in ["skip_rest", &position, "127.0.0.1"] {
        assert!(asked.contains(text), "{text}: {asked}");
    }

    // It was for that change alone. Nobody passes over the next one with what they have read of the first.
    insert(&outbox, Size, 101);
    let next = failed_change();
    assert_ne!(next, position);
    refusal(&json!({ "position": position }), 409, &next);
    assert_eq!(ask(&json!({ "position": next })).status, 202);
    wait_for("the later rows", || {
        let records = kafka.read(&[topic.clone()]);
        (payloads(&records).last().map(String::as_str) == Some("103")).then_some(())
    });

    // Several that follow each other in one transaction are passed over one after the other, and none of them comes back.
    outbox.database.sql().run(
        "begin;
         insert into outbox select n, 'order', 'bad', 'T', repeat('7', 20000) from generate_series(301, 303) n;
         insert into outbox values (304, 'order', 'k', 'T', '304');
         commit",
    );
    let mut passed = Vec::new();
    for _ in 301..=303 {
        let position = wait_for("the connector to fail at another change", || {
            Some(failed_change()).filter(|position| !passed.contains(position))
        });
        assert_eq!(ask(&json!({ "position": position })).status, 202);
        passed.push(position);
    }
    wait_for("the row behind them", || {
        let records = kafka.read(&[topic.clone()]);
        (payloads(&records).last().map(String::as_str) == Some("304")).then_some(())
    });
}

#[test]
fn with_exactly_once_delivery_a_record_is_passed_over_in_the_transaction() {
    pass_over("skip_once", Size, &[EXACTLY_ONCE], None);
    pass_over(
        "skip_once_letter",
        Transform,
        &[EXACTLY_ONCE],
        Some("skip_once_letter.dead"),
    );
}
