//! `walferry check --worker` on a real Kafka Connect that runs: what each of its connectors would meet here.

use std::{fs, process::Command};

use serde_json::json;
use walferry_testkit::servers::{Connect, Kafka, Task, folder, walferry_program};

use crate::{outbox::Outbox, takeover, world};

/// Exit code and output of `walferry check` with only the cluster's worker file.
pub(crate) fn check(kafka: &Kafka, name: &str) -> (Option<i32>, String, String) {
    let folder = folder(name);
    let worker = folder.join("connect-distributed.properties");
    let lines = [format!("bootstrap.servers={}", kafka.bootstrap())];
    let lines: Vec<String> = takeover::WORKER.iter().map(ToString::to_string).chain(lines).collect();
    fs::write(&worker, lines.join("\n")).expect("the folder can be written");
    let mut command = Command::new(walferry_program());
    command
        .args(["check", "--admin", "127.0.0.1:1", "--worker"])
        .arg(&worker);
    // The default data directory.
    command
        .env("XDG_STATE_HOME", &folder)
        .env("WALFERRY_ATTACK", "TOPIC-SECRET-4711");
    let output = command.output().expect("the program can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn each_connector_of_a_cluster_that_runs_is_checked_and_what_stays_behind_is_named() {
    let world = world::shared();
    let kafka = Kafka::start();
    let [good, moved, odd] = ["sound", "moved_on", "odd"].map(|name| Outbox::on(&world.postgres, &kafka, name));
    let connect = Connect::start(&kafka);
    assert_eq!(connect.create("good", &good.config()), Task::Running);
    assert_eq!(connect.create("moved", &moved.config()), Task::Running);
    good.insert("k", 1, 3);
    moved.insert("k", 1, 3);
    kafka.wait_for_records(&good.topic("order"), 3);
    kafka.wait_for_records(&moved.topic("order"), 3);
    // Somebody moved the slot while the connector was stopped.
    connect.stop("moved");
    moved.insert("k", 4, 6);
    let advance = format!(
        "select pg_replication_slot_advance('{}', pg_current_wal_lsn())",
        moved.slot()
    );
    moved.database.sql().run(&advance);
    // Debezium takes it, and Walferry has no such class.
    let unsupported = odd.config_with([
        ("transforms", "outbox,mine"),
        ("transforms.mine.type", "org.apache.kafka.connect.transforms.Filter"),
        ("snapshot.mode", "custom"),
        ("snapshot.mode.custom.name", "mine"),
    ]);
    connect.create("odd", &unsupported);
    let file = json!({ "connector.class": "FileStreamSource", "file": "/dev/null", "topic": "elsewhere" });
    connect.create("file", file.as_object().expect("an object"));

    let (code, said, errors) = check(&kafka, "cluster-check");
    assert_eq!(code, Some(2), "{said}{errors}");
    let place = |name: &str| {
        said.find(&format!("connector {name:?}"))
            .unwrap_or_else(|| panic!("{name}: {said}"))
    };
    let section = |name: &str| {
        let rest = &said[place(name) + 1..];
        &rest[..rest
            .find("\nconnector \"")
            .or_else(|| rest.find("\ncluster"))
            .unwrap_or(rest.len())]
    };
    let good_section = section("good");
    for part in ["a start continues from the stored offset", "connected to Postgres"] {
        assert!(good_section.contains(part), "{part}: {good_section}");
    }
    assert!(!good_section.contains("obstacle"), "{good_section}");
    assert!(section("moved").contains("[WF0315]"), "{said}");
    assert!(section("odd").contains("snapshot.mode"), "{said}");
    for part in [
        "Kafka Connect is still using the topics of group \"walferry-test\", with 1 worker(s)",
        "connector \"file\" has the class \"FileStreamSource\", which Walferry does not run",
        "summary of group \"walferry-test\"",
        "  good   running  can be moved\n",
        "  moved  stopped  cannot be moved: one problem, see above\n",
        "  file   -        stays behind: Walferry does not have its class",
    ] {
        assert!(said.contains(part), "{part:?} is missing in:\n{said}");
    }
    assert!(said.contains("  odd    running  cannot be moved"), "{said}");
    // It has changed nothing: the cluster runs on.
    good.insert("k", 4, 5);
    assert_eq!(kafka.wait_for_records(&good.topic("order"), 5).len(), 5);
    for name in ["odd", "moved"] {
        connect.remove(name);
    }
    let (code, said, errors) = check(&kafka, "cluster-check");
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(said.contains("nothing prevents a start"), "{said}");
    connect.discard();
}
