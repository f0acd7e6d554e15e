//! What becomes of the program when nobody reads what it prints: it works, it ends when it is told to, and it says what is missing.

use std::{
    fs::File,
    io::{BufRead, BufReader, PipeReader, Read, pipe},
    os::fd::OwnedFd,
    process::{Command, Output, Stdio},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::json;
use walferry_testkit::servers::{Surroundings, Walferry, folder, full_pipe, wait_for, walferry_program};

use crate::{outbox::Outbox, show::config, world};

/// What happens to the log, beside a reader that reads it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    ClosedBeforeTheStart,
    /// After the first line.
    ClosedDuringTheStart,
    ClosedLater,
    NobodyReads,
    DiskFull,
}

const FATES: [Fate; 5] = [
    Fate::ClosedBeforeTheStart,
    Fate::ClosedDuringTheStart,
    Fate::ClosedLater,
    Fate::NobodyReads,
    Fate::DiskFull,
];

fn logging_to(stderr: OwnedFd, arguments: &[&str]) -> Surroundings {
    Surroundings {
        stderr: Some(Arc::new(stderr)),
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        ..Surroundings::default()
    }
}

/// Starts a connector whose log has met its fate when this returns, or will when the reader is dropped.
#[track_caller]
fn start(outbox: &Outbox, fate: Fate, arguments: &[&str]) -> (Walferry, Option<PipeReader>) {
    let (reader, stderr): (Option<PipeReader>, OwnedFd) = match fate {
        Fate::DiskFull => {
            let full = File::options().write(true).open("/dev/full");
            (None, full.expect("Linux has it").into())
        }
        Fate::NobodyReads => {
            let (reader, writer) = full_pipe();
            (Some(reader), writer.into())
        }
        _ => {
            let (reader, writer) = pipe().expect("a pipe can be made");
            (
                Some(reader).filter(|_| fate != Fate::ClosedBeforeTheStart),
                writer.into(),
            )
        }
    };
    let mut walferry = Walferry::start_in(outbox.options(outbox.config()), logging_to(stderr, arguments));
    let reader = match (fate, reader) {
        (Fate::ClosedDuringTheStart, Some(reader)) => {
            let mut line = String::new();
            BufReader::new(reader).read_line(&mut line).expect("it logs a line");
            None
        }
        (_, reader) => reader,
    };
    outbox.wait_until_streaming(&mut walferry);
    (walferry, reader)
}

/// Each fate, and then rows and a signal.
fn ends_in_order_whatever_happens_to_its_log(name: &str, arguments: &[&str]) {
    let world = world::shared();
    let outbox = Outbox::new(world, name);
    let mut rows = 0;
    for fate in FATES {
        let (mut walferry, reader) = start(&outbox, fate, arguments);
        rows += 1;
        outbox.insert("k", rows, rows);
        world.kafka.wait_for_records(&outbox.topic("order"), rows as usize);
        let reader = reader.filter(|_| fate != Fate::ClosedLater);
        // It logs when it is paused, and when it goes on.
        for what in ["pause", "resume"] {
            let answer = walferry.ask("PUT", &format!("/connectors/{name}/{what}"));
            assert_eq!(answer.map(|answer| answer.status), Some(202), "{fate:?}");
        }
        rows += 1;
        outbox.insert("k", rows, rows);
        world.kafka.wait_for_records(&outbox.topic("order"), rows as usize);
        let code = if rows % 4 == 0 {
            walferry.interrupt()
        } else {
            walferry.terminate()
        };
        assert_eq!(code, Some(0), "{fate:?}");
        assert_eq!(outbox.unconfirmed_rows(), 0, "{fate:?}: the end was not an orderly one");
        drop(reader);
    }
}

#[test]
fn signals_end_it_in_order_whatever_happens_to_its_log() {
    ends_in_order_whatever_happens_to_its_log("log_text", &[]);
}

#[test]
fn signals_end_it_in_order_whatever_happens_to_its_log_of_json() {
    ends_in_order_whatever_happens_to_its_log("log_json", &["--log-json"]);
}

/// Has the process log a line of some thousand bytes.
#[track_caller]
fn log_a_long_line(walferry: &Walferry, number: usize) {
    let name = format!("no.{number}.{}", "x".repeat(3000));
    let answer = walferry.send("PUT", &format!("/admin/loggers/{name}"), &json!({ "level": "INFO" }));
    assert_eq!(answer.map(|answer| answer.status), Some(200));
}

#[test]
fn a_log_that_is_read_again_says_how_many_lines_are_missing() {
    let world = world::shared();
    let outbox = Outbox::new(world, "log_late");
    for (arguments, level) in [(&[][..], "WARN"), (&["--log-json"][..], "\"level\":\"WARN\"")] {
        let (mut walferry, reader) = start(&outbox, Fate::NobodyReads, arguments);
        // Much more than waits for a reader.
        (0..300).for_each(|number| log_a_long_line(&walferry, number));
        let (log, read) = (Arc::new(Mutex::new(Vec::new())), reader.expect("it is kept"));
        let seen = log.clone();
        let reading = thread::spawn(move || {
            for line in BufReader::new(read).lines() {
                seen.lock()
                    .expect("nobody has panicked")
                    .push(line.expect("it is text"));
            }
        });
        let mut number = 300;
        // What is missing is told before the next line for which there is room again.
        let told = wait_for("what is missing to be told", || {
            number += 1;
            log_a_long_line(&walferry, number);
            let log = log.lock().expect("nobody has panicked");
            let mut lines = log.iter();
            lines
                .find(|line| line.contains(" lines of the log are missing before this one"))
                .cloned()
        });
        assert!(told.contains(level), "{told}");
        assert_eq!(walferry.terminate(), Some(0));
        drop(walferry);
        reading.join().expect("it reads to the end");
        let log = log.lock().expect("nobody has panicked").join("\n");
        for kept in [
            "no.0.xxx",
            &format!("no.{number}.xxx"),
            "everything delivered is stored and confirmed",
        ] {
            assert!(log.contains(kept), "{kept} is missing in {} bytes", log.len());
        }
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let world = world::alone();
    let outbox = Outbox::new(&world, "signal_twice");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 5);
    outbox.wait_until_confirmed();
    let paused = world.kafka.pause();
    outbox.insert("k", 6, 105);
    wait_until_in_flight(&walferry, 100.0);
    walferry.ask_to_end();
    wait_for("the first signal to be heard", || {
        walferry.output().contains("stopping: delivering").then_some(())
    });
    // The first one alone would wait for Kafka, and then end with 0.
    assert_eq!(walferry.terminate(), Some(128 + 15), "{}", walferry.output());
    drop(paused);
}

#[test]
fn an_end_that_kafka_holds_up_says_how_to_end_at_once_and_what_is_left() {
    let world = world::alone();
    let outbox = Outbox::new(&world, "end_held_up");
    let mut walferry = outbox.start();
    outbox.insert("k", 1, 5);
    outbox.wait_until_confirmed();
    let paused = world.kafka.pause();
    outbox.insert("k", 6, 105);
    wait_until_in_flight(&walferry, 100.0);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    let output = walferry.output();
    assert!(output.contains("a second signal ends at once"), "{output}");
    let left = output
        .lines()
        .find(|line| line.contains("Kafka did not acknowledge these records within 10 s"));
    let left = left.unwrap_or_else(|| panic!("{output}"));
    assert!(left.contains("records=100") && left.contains("end_held_up"), "{left}");
    drop(paused);
}

/// Waits until so many records are under way. More than were there before the broker hung, because the gauge may still count those.
fn wait_until_in_flight(walferry: &Walferry, least: f64) {
    wait_for("records to be under way", || {
        let metrics = walferry.get("/metrics")?.body;
        let line = metrics
            .lines()
            .find(|line| line.starts_with("walferry_in_flight_records{"))?;
        (line.rsplit(' ').next()?.parse::<f64>().ok()? >= least).then_some(())
    });
}

/// Runs a command whose standard output nobody reads.
fn run_unread(arguments: &[&str]) -> Output {
    let (reader, writer) = pipe().expect("a pipe can be made");
    drop(reader);
    let mut command = Command::new(walferry_program());
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(writer)
        .stderr(Stdio::piped());
    let child = command.spawn().expect("it can be run");
    // The command holds the only other end.
    drop(command);
    child.wait_with_output().expect("it ends")
}

/// As a shell shows a program that ended by SIGPIPE, which is how most end in `… | head`.
const NOBODY_READS: Option<i32> = Some(128 + 13);

#[test]
fn commands_end_quietly_when_nobody_reads_what_they_show() {
    let world = world::shared();
    let database = world.postgres.database("unread");
    database.sql().run(
        "create table orders (id int primary key, total text); insert into orders values (1, 'a');
         create publication unread for table orders",
    );
    let file = folder("unread").join("connector.json");
    let connector = json!({ "name": "unread", "config": config(&database, "unread", &[]) });
    std::fs::write(&file, connector.to_string()).expect("the folder can be written");
    let file = file.to_str().expect("it is text");
    let bootstrap = world.kafka.bootstrap();
    let check = [
        "check",
        "--config",
        file,
        "--bootstrap-servers",
        &bootstrap,
        "--log",
        "error",
    ];
    let show = [&check[..], &["--show-records"]].concat();
    for arguments in [&check[..], &show, &["explain"], &["completions", "bash"]] {
        let ended = run_unread(arguments);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &*said), (NOBODY_READS, ""), "{arguments:?}");
    }
}

/// Starts `walferry tail` with an output, and waits until it follows.
#[track_caller]
fn tail(
    file: &std::path::Path,
    stdout: impl Into<Stdio>,
) -> (std::process::Child, BufReader<std::process::ChildStderr>) {
    let mut command = Command::new(walferry_program());
    command.args(["tail", "--config"]).arg(file);
    let mut tail = command
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let mut told = BufReader::new(tail.stderr.take().expect("it is piped"));
    let mut before = String::new();
    while !before.contains("Waiting for changes of ") {
        assert_ne!(told.read_line(&mut before).expect("it is text"), 0, "{before}");
    }
    (tail, told)
}

#[test]
fn a_tail_ends_when_its_reader_has_seen_enough_and_by_a_signal_when_nobody_reads() {
    let world = world::shared();
    let database = world.postgres.database("tail_unread");
    database
        .sql()
        .run("create table orders (id int primary key); create publication tail_unread for table orders");
    let file = folder("tail").join("connector.json");
    let connector = json!({ "name": "tail_unread", "config": config(&database, "tail_unread", &[]) });
    std::fs::write(&file, connector.to_string()).expect("the folder can be written");

    // As `| head -1` does.
    let (reader, writer) = pipe().expect("a pipe can be made");
    let (mut seen, mut told) = tail(&file, writer);
    database.sql().run("insert into orders values (1)");
    let mut line = String::new();
    BufReader::new(reader).read_line(&mut line).expect("it is text");
    assert!(line.starts_with("public.orders "), "{line}");
    let mut rows = 1;
    wait_for("the end", || {
        rows += 1;
        database.sql().run(&format!("insert into orders values ({rows})"));
        seen.try_wait().expect("it is a child")
    });
    assert_eq!(seen.wait().expect("it has ended").code(), NOBODY_READS);
    let mut said = String::new();
    told.read_to_string(&mut said).expect("it is text");
    assert!(!said.contains("panicked"), "{said}");

    let (reader, writer) = full_pipe();
    let (mut stuck, _told) = tail(&file, writer);
    database.sql().run("insert into orders values (0)");
    // The thread that writes is there when there is something to write.
    wait_for("a record that nobody reads", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", stuck.id())).ok()?;
        let mut names = threads
            .flatten()
            .map(|thread| std::fs::read_to_string(thread.path().join("comm")));
        names
            .any(|name| name.is_ok_and(|name| name.trim() == "stdout"))
            .then_some(())
    });
    let terminated = Command::new("kill").arg(stuck.id().to_string()).status();
    assert!(terminated.expect("`kill` can be run").success());
    let ended = wait_for("the end", || stuck.try_wait().expect("it is a child"));
    assert_eq!(ended.code(), Some(0));
    drop(reader);
}
