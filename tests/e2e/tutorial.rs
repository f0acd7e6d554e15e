//! The tutorial's listings, run as they stand there, and compared with what it shows.

use std::{env, fs, path::Path, process::Command};

use serde_json::Value;
use walferry_testkit::servers::{
    Postgres, Record, Surroundings, Walferry, WalferryOptions, folder, free_port, wait_for, walferry_program,
};

use crate::world;

struct Tutorial(String);

/// A listing of commands and what they print.
struct Session {
    commands: Vec<String>,
    prints: Vec<String>,
}

impl Tutorial {
    fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("tests/ is a folder of the checkout");
        Self(fs::read_to_string(root.join("docs/tutorial.md")).expect("the tutorial is text"))
    }

    fn step(&self, number: u32) -> &str {
        let (_, step) = self.0.split_once(&format!("\n## {number}. ")).expect("it has the step");
        step.split("\n## ").next().unwrap_or_default()
    }

    /// The first listing of a step in this language.
    fn listing(&self, step: u32, language: &str) -> &str {
        let (_, listing) = self
            .step(step)
            .split_once(&format!("```{language}\n"))
            .expect("the step has such a listing");
        listing.split("```").next().unwrap_or_default()
    }

    fn session(&self, step: u32) -> Session {
        let listing = self.listing(step, "console").replace("\\\n", " ");
        let (commands, prints): (Vec<&str>, Vec<&str>) = listing.lines().partition(|line| line.starts_with("$ "));
        Session {
            commands: commands.iter().map(|line| line[2..].to_owned()).collect(),
            prints: prints.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// The text with a zero in place of each number, which differ from machine to machine.
fn without_numbers(text: &str) -> String {
    let mut out = String::new();
    for letter in text.replace("127.0.0.1", "localhost").chars() {
        match letter.is_ascii_digit() {
            true if out.ends_with('0') => {}
            true => out.push('0'),
            false => out.push(letter),
        }
    }
    out
}

/// Runs a line in a folder, with `walferry` in `PATH`, and returns what it prints.
fn shell(line: &str, folder: &Path) -> String {
    let program = walferry_program();
    let programs = program.parent().expect("it lies in a folder");
    let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.args(["-c", line]).current_dir(folder).env("PATH", path);
    let output = command.output().expect("there is a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn is_as_shown(record: &Record, shown: &str) -> bool {
    let [headers, key, value] = shown.split('\t').collect::<Vec<_>>()[..] else {
        panic!("{shown:?} is no record");
    };
    let text = |bytes: &Option<Vec<u8>>| {
        bytes
            .as_deref()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    };
    // Ids are made at random, and an ellipsis stands for the others.
    let has = |name: &str, value: &str| {
        let of_name = record.headers.iter().find(|(header, _)| header == name);
        of_name.is_some_and(|(_, header)| name == "id" || text(header).as_deref() == Some(value))
    };
    text(&record.key).as_deref() == Some(key)
        && text(&record.value).as_deref() == Some(value)
        && headers
            .split(',')
            .filter_map(|header| header.split_once(':'))
            .all(|(name, value)| has(name, value))
}

#[test]
fn the_tutorial_leads_to_an_event_in_kafka() {
    let tutorial = Tutorial::read();
    // The role and the slot have plain names, and belong to the whole server.
    let (world, postgres) = (world::shared(), Postgres::start());
    let database = postgres.database("orders");
    database.sql().run(tutorial.listing(1, "sql"));
    database.sql().run(tutorial.listing(2, "sql"));
    let folder = folder("tutorial");
    let connector = tutorial
        .listing(3, "json")
        .replace("\"5432\"", &format!("\"{}\"", database.port()));
    fs::write(folder.join("orders.json"), &connector).expect("the folder can be written");
    let here = |line: &str| line.replace("localhost:9092", &world.kafka.bootstrap());

    let check = tutorial.session(4);
    // Another process may listen on the port of the tutorial.
    let free_port = format!(" --admin 127.0.0.1:{}", free_port());
    let printed = shell(&(here(&check.commands.join("\n")) + &free_port), &folder);
    assert_eq!(
        without_numbers(printed.trim_end()),
        without_numbers(&check.prints.join("\n"))
    );

    let run = tutorial.session(5);
    let [line] = &run.commands[..] else {
        panic!("one command runs it: {:?}", run.commands);
    };
    let file = folder.join("orders.json").display().to_string();
    let line = here(line).replace("orders.json", &file);
    let admin = ["--admin", "127.0.0.1:@PORT@"];
    let words = line.split_whitespace().skip(1).chain(admin).map(str::to_owned);
    let mut walferry = Walferry::start_in(
        WalferryOptions {
            name: "orders".into(),
            config: serde_json::Map::new(),
            worker: Vec::new(),
            bootstrap: world.kafka.bootstrap(),
            env: vec![("PGPASSWORD".into(), "secret".into())],
        },
        Surroundings {
            command_line: Some(words.collect()),
            ..Surroundings::default()
        },
    );
    walferry.wait_until_ready();
    let log = without_numbers(&walferry.output());
    for shown in run.prints {
        let before_lsn = shown.split(" lsn.").next().unwrap_or_default();
        assert!(log.contains(&without_numbers(before_lsn)), "{shown:?} is not in {log}");
    }

    database.sql().run(tutorial.listing(6, "sql"));
    let shown = tutorial.session(6).prints.remove(0);
    let topic = ["outbox.event.order".to_owned()];
    let record = wait_for("the event", || {
        let mut found = None;
        world.kafka.each(&topic, |record| {
            if is_as_shown(&record, &shown) {
                found = Some(record);
            }
        });
        found
    });
    let of_debezium = |(name, _): &&(String, _)| name.starts_with("__debezium.context.");
    assert_eq!(record.headers.iter().filter(of_debezium).count(), 4);

    let watch = tutorial.session(7);
    let [reason, slot] = &watch.prints[..] else {
        panic!("two answers are shown: {:?}", watch.prints);
    };
    wait_for("the reason that is shown", || {
        let ready = walferry.get("/ready")?.json();
        (ready["connectors"][0]["reason"] == **reason).then_some(())
    });
    let shown: Value = serde_json::from_str(slot).expect("it is JSON");
    wait_for("the slot that is shown", || {
        let slots = walferry.get("/slots")?.json();
        let slot = &slots["connectors"][0]["slots"][0];
        let is_same = |(name, shown): (&String, &Value)| match shown {
            Value::Number(_) => slot[name].is_number(),
            _ if name == "confirmed_flush_lsn" => slot[name].is_string(),
            _ => slot[name] == *shown,
        };
        shown.as_object()?.iter().all(is_same).then_some(())
    });
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    // The server notices a little later that its reader has ended.
    database.sql().wait_for_free_slot("orders");

    let clean = tutorial.step(8).split('`').find(|part| part.starts_with("SELECT"));
    database.sql().run(clean.expect("it drops the slot"));
}
