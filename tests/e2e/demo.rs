//! `walferry demo`, from which nothing may be left.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use crate::world;
use walferry_testkit::servers::{folder, postgres_folder, wait_for, walferry_program};

fn demo(temporary: &Path) -> Command {
    let mut command = Command::new(walferry_program());
    command
        .args(["demo", "--rate", "100", "--admin", "127.0.0.1:0"])
        .env("WALFERRY_DEMO_POSTGRES", postgres_folder())
        .env("TMPDIR", temporary);
    command
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).expect("the folder is there").next().is_none()
}

#[test]
fn every_row_is_shown_as_a_record_and_nothing_is_left() {
    let temporary = folder("demo");
    let output = demo(&temporary).args(["--rows", "7"]).output().expect("it can be run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches("\n  key       ").count(), 7, "{said}");
    assert!(said.contains("\n7 rows written, 7 records received"), "{said}");
    assert!(is_empty(&temporary));
}

/// Twice, because the second time the topics have records already.
#[test]
fn the_demo_sends_to_a_real_kafka_and_shows_its_own_records_only() {
    // Alone, as another test's records would count.
    let world = world::alone();
    let records = || -> i64 {
        let mut topics = world.kafka.topics();
        topics.retain(|topic| topic.starts_with("outbox.event."));
        world.kafka.ends(&topics).values().sum()
    };
    let before = records();
    for _ in 0..2 {
        let temporary = folder("demo-kafka");
        let mut command = demo(&temporary);
        command.args(["--rows", "7", "--bootstrap-servers", &world.kafka.bootstrap()]);
        let output = command.output().expect("it can be run");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(said.matches("\n  key       ").count(), 7, "{said}");
        assert!(said.contains("7 rows written, 7 records received"), "{said}");
        assert!(
            said.contains("the topics outbox.event.order and outbox.event.customer stay"),
            "{said}"
        );
    }
    assert_eq!(records() - before, 2 * 7);
}

#[test]
fn a_demo_that_nobody_reads_any_more_ends_quietly() {
    let temporary = folder("demo-unread");
    let mut demo = demo(&temporary)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let mut lines = BufReader::new(demo.stdout.take().expect("it is piped")).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.starts_with("  key "))));
    drop(lines);
    let output = demo.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(is_empty(&temporary));
}

#[test]
fn a_killed_demo_leaves_nothing_either() {
    let temporary = folder("demo-killed");
    let mut demo = demo(&temporary).stdout(Stdio::piped()).spawn().expect("it can be run");
    let lines = BufReader::new(demo.stdout.take().expect("it is piped")).lines();
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.any(|line| line.starts_with("  key ")), "it shows a record");
    let server = fs::read_dir(&temporary).expect("the folder is there").flatten().next();
    let pid_file = server
        .expect("it has a folder of its own")
        .path()
        .join("data/postmaster.pid");
    let pid = fs::read_to_string(pid_file).expect("its server runs");
    let server = Path::new("/proc").join(pid.lines().next().expect("the id is first"));
    assert!(server.exists());
    demo.kill().expect("it runs");
    demo.wait().expect("it was killed");
    wait_for("its folder to go", || is_empty(&temporary).then_some(()));
    wait_for("its server to go", || (!server.exists()).then_some(()));
}
