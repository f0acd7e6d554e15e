//! `walferry outbox replay` on real servers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Kafka, Record, Walferry, folder, wait_for, walferry_program};

use crate::outbox::{Outbox, assert_runs};
use crate::world::{self, World};

const HEADER: &str = "walferry.replay";

/// An outbox with a column for the time, its connector that runs, and a file of it for the command.
struct Replayed<'a> {
    /// It ends before its database is dropped.
    walferry: Walferry,
    outbox: Outbox,
    kafka: &'a Kafka,
    folder: PathBuf,
}

impl<'a> Replayed<'a> {
    fn new(world: &'a World, name: &str) -> Self {
        let outbox = Outbox::new(world, name);
        outbox
            .database
            .sql()
            .run("alter table outbox add created_at timestamptz not null default clock_timestamp()");
        world.kafka.create_topic(&outbox.topic("order"), 3);
        let walferry = outbox.start_with(config(&outbox));
        let folder = folder("replay");
        let connector = json!({ "name": name, "config": config(&outbox) });
        fs::write(folder.join("connector.json"), connector.to_string()).expect("the folder can be written");
        Self {
            walferry,
            outbox,
            kafka: &world.kafka,
            folder,
        }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(walferry_program());
        command
            .args(["outbox", "replay", "--config", "connector.json", "--bootstrap-servers"])
            .arg(self.kafka.bootstrap())
            .args(args)
            .current_dir(&self.folder)
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(args).output().expect("it can be run");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (status.code(), text(&stdout), text(&stderr))
    }

    /// Starts a slow replay, and kills it once the state says that something was sent.
    #[track_caller]
    fn run_and_kill(&self, args: &[&str], has_begun: impl Fn(&Value) -> bool) {
        let state = self.folder.join("replay.json");
        let mut replay: Child = self
            .command(args)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it can be run");
        wait_for("the replay to note how far it is", || {
            assert!(replay.try_wait().expect("it is ours").is_none(), "the replay has ended");
            read_state(&state).filter(&has_begun)
        });
        replay.kill().expect("it runs");
        replay.wait().expect("it was killed");
    }

    /// The process that reads the slot.
    fn reader(&self) -> Option<String> {
        let query = format!(
            "select active_pid from pg_replication_slots where slot_name = '{}'",
            self.outbox.slot()
        );
        self.outbox.database.sql().value(&query)
    }
}

fn config(outbox: &Outbox) -> Map<String, Value> {
    outbox.config_with([("transforms.outbox.table.field.event.timestamp", "created_at")])
}

fn read_state(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// The records that were sent first, and those of replays.
fn parted(records: Vec<Record>) -> (Vec<Record>, Vec<Record>) {
    records
        .into_iter()
        .partition(|record| record.header_text(HEADER).is_none())
}

/// A record without its offset, its mark, and the id of the process that has made it.
fn bare(record: &Record) -> Record {
    let mut record = record.clone();
    record.offset = 0;
    record
        .headers
        .retain(|(name, _)| name != HEADER && name != "__debezium.context.runId");
    record
}

fn by_id(records: &[Record]) -> BTreeMap<String, Record> {
    let id = |record: &Record| record.header_text("id").expect("each event has an id").to_owned();
    records.iter().map(|record| (id(record), bare(record))).collect()
}

#[track_caller]
fn the_only_run(records: &[Record]) -> String {
    let runs: BTreeSet<_> = records.iter().filter_map(|record| record.header_text(HEADER)).collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs.into_iter().next().unwrap_or_default().to_owned()
}

#[test]
fn rows_are_sent_again_as_they_were_and_a_kill_in_the_middle_leaves_no_gap() {
    let world = world::shared();
    let mut replayed = Replayed::new(&world, "replay_rows");
    let topic = replayed.outbox.topic("order");
    for key in ["a", "b", "c"] {
        replayed.outbox.insert(key, 1, 200);
    }
    let first = world.kafka.wait_for_records(&topic, 600);
    let (reader, wal) = (replayed.reader(), replayed.outbox.confirmed());

    let selected = ["--key", "a", "--key", "b", "--state", "replay.json", "--yes"];
    replayed.run_and_kill(&[&selected[..], &["--rate", "5"]].concat(), |state| {
        state["source"]["rows"]["place"]["rows"].as_u64() > Some(0)
    });
    // Another replay does not go on with the state of this one.
    let (code, _, error) = replayed.run(&["--all", "--state", "replay.json", "--yes"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("belongs to another replay"), "{error}");

    let (code, output, error) = replayed.run(&selected);
    assert_eq!(code, Some(0), "{output}{error}");
    assert!(output.contains("Going on with replay"), "{output}");
    assert!(output.contains("400 rows were read again."), "{output}");
    assert!(!replayed.folder.join("replay.json").exists());

    let (firsts, again) = parted(world.kafka.wait_for_records(&topic, 1000));
    assert!(firsts == first, "records of the connector have changed");
    assert!(
        (400..800).contains(&again.len()),
        "{} records: it has begun anew",
        again.len()
    );
    let mut expected = by_id(&firsts);
    expected.retain(|_, record| record.key_text() != Some("c"));
    for record in &again {
        assert_eq!(bare(record), expected[record.header_text("id").expect("an id")]);
    }
    assert_eq!(by_id(&again).len(), expected.len());
    assert_runs(&again, &["a", "b"], 200);
    the_only_run(&again);

    // The connector has noticed nothing.
    assert_eq!(replayed.reader(), reader);
    assert!(replayed.outbox.confirmed() >= wal);
    assert!(replayed.walferry.runs());
    let records = firsts.len() + again.len();
    replayed.outbox.insert("a", 201, 201);
    let (firsts, _) = parted(world.kafka.wait_for_records(&topic, records + 1));
    assert_eq!(firsts.len(), 601);
    assert_eq!(replayed.walferry.terminate(), Some(0), "{}", replayed.walferry.output());
}

/// Two that ran at once would send everything twice. What the first has left is for the next one.
#[test]
fn a_second_replay_with_the_same_state_file_is_refused_while_the_first_one_runs() {
    let world = world::shared();
    let replayed = Replayed::new(&world, "replay_twice");
    let topic = replayed.outbox.topic("order");
    replayed.outbox.insert("a", 1, 20);
    let first = world.kafka.wait_for_records(&topic, 20);
    let rows = ["--all", "--state", "replay.json", "--yes"];
    let records = [
        "--from-topic",
        &topic,
        "--from-offset",
        "0",
        "--state",
        "replay.json",
        "--yes",
    ];
    let mut replay = replayed
        .command(&[&rows[..], &["--rate", "1"]].concat())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it can be run");
    wait_for("the replay to note how far it is", || {
        read_state(&replayed.folder.join("replay.json"))
    });
    for second in [&rows[..], &records] {
        let (code, _, error) = replayed.run(second);
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains("uses the state file replay.json"), "{error}");
        assert!(error.contains("--state"), "{error}");
    }
    // Counting sends nothing.
    let (code, output, error) = replayed.run(&["--all", "--state", "replay.json", "--dry-run"]);
    assert_eq!(code, Some(0), "{output}{error}");
    replay.kill().expect("it runs");
    replay.wait().expect("it was killed");
    let (code, output, error) = replayed.run(&rows);
    assert_eq!(code, Some(0), "{output}{error}");
    let all = world.kafka.wait_for_records(&topic, 40);
    let (_, again) = parted(all);
    assert_eq!(by_id(&again), by_id(&first));
    the_only_run(&again);
    let left = fs::read_dir(&replayed.folder).expect("a folder");
    let left: Vec<_> = left.map(|file| file.expect("a file").file_name()).collect();
    assert_eq!(left, ["connector.json"]);
}

#[test]
fn a_replay_is_counted_first_and_can_go_elsewhere() {
    let world = world::shared();
    let replayed = Replayed::new(&world, "replay_counted");
    let topic = replayed.outbox.topic("order");
    replayed.outbox.insert("k", 1, 5);
    let middle = replayed
        .outbox
        .database
        .sql()
        .value("select clock_timestamp()")
        .expect("a time");
    replayed.outbox.insert("k", 6, 8);
    let first = world.kafka.wait_for_records(&topic, 8);

    for (args, told) in [
        (&["--dry-run"][..], "it is not said which rows"),
        (&["--where", "created_at > now()"], "contains now()"),
        (&["--where", "no_such_column = 1", "--yes"], "no_such_column"),
        (
            &["--all", "--table", "public.other", "--yes"],
            "name one of these with --table: public.outbox",
        ),
        (&["--since", "whenever", "--yes"], "whenever"),
        (&["--all"], "add --yes"),
    ] {
        let (code, output, error) = replayed.run(args);
        assert_eq!(code, Some(2), "{args:?}: {output}{error}");
        assert!(error.contains(told) && error.contains("hint:"), "{args:?}: {error}");
    }
    let (code, output, _) = replayed.run(&["--since", &middle, "--dry-run"]);
    assert_eq!(code, Some(0));
    assert!(output.contains("3 rows of public.outbox match"), "{output}");
    let (code, output, _) = replayed.run(&["--until", &middle, "--where", "payload::int > 100 -- none", "--yes"]);
    assert_eq!(code, Some(0));
    assert!(output.contains("there is nothing to send"), "{output}");
    assert_eq!(
        world.kafka.read(std::slice::from_ref(&topic)),
        first,
        "something was sent"
    );

    let id = first[2].header_text("id").expect("an id");
    let elsewhere = format!("{topic}.repair");
    world.kafka.create_topic(&elsewhere, 3);
    let (code, output, error) = replayed.run(&["--id", id, "--to", &elsewhere, "--yes"]);
    assert_eq!(code, Some(0), "{output}{error}");
    assert!(output.contains(&format!("1 record to topic {elsewhere}")), "{output}");
    let sent = world.kafka.wait_for_records(&elsewhere, 1);
    assert!(
        output.contains(&format!("{HEADER} = {}", the_only_run(&sent))),
        "{output}"
    );
    let mut sent = bare(&sent[0]);
    sent.topic.clone_from(&topic);
    assert_eq!(sent, bare(&first[2]));
}

#[test]
fn a_row_that_cannot_be_sent_is_named_and_passed_if_that_is_asked_for() {
    let world = world::shared();
    let replayed = Replayed::new(&world, "replay_failed");
    let topic = replayed.outbox.topic("order");
    replayed.outbox.insert("k", 1, 5);
    let first = world.kafka.wait_for_records(&topic, 5);
    let third = first[2].header_text("id").expect("an id");
    // The connector has sent it, and takes no notice of the update.
    let sql = replayed.outbox.database.sql();
    sql.run(&format!(
        "alter table outbox alter aggregatetype drop not null; update outbox set aggregatetype = null where id = {third}"
    ));
    let all = ["--all", "--state", "replay.json", "--yes"];
    let (code, output, error) = replayed.run(&all);
    assert_eq!(code, Some(3), "{output}{error}");
    let row = format!("the row of public.outbox with id = {third}");
    for part in [&*row, "2 of 5 rows were handed to Kafka before", "--skip-failed"] {
        assert!(error.contains(part), "{part:?} is missing in:\n{error}");
    }
    assert!(!error.contains(" LSN "), "{error}");

    // Counting does not disturb the replay that has not ended.
    let (code, output, error) = replayed.run(&[
        "--all",
        "--where",
        &format!("id <> {third}"),
        "--state",
        "replay.json",
        "--dry-run",
    ]);
    assert_eq!(code, Some(0), "{error}");
    assert!(output.contains("4 rows of public.outbox match"), "{output}");

    let (code, output, error) = replayed.run(&[&all[..], &["--skip-failed"]].concat());
    assert_eq!(code, Some(0), "{output}{error}");
    for part in [
        "Going on with replay",
        "not sent: 1 row, set aside",
        &format!("id = {third}: "),
    ] {
        assert!(output.contains(part), "{part:?} is missing in:\n{output}");
    }
    let (_, again) = parted(world.kafka.read(std::slice::from_ref(&topic)));
    let mut expected = by_id(&first);
    expected.remove(third);
    assert_eq!(by_id(&again), expected);
}

#[test]
fn a_row_that_kafka_refuses_is_named_by_its_id_and_passed_if_that_is_asked_for() {
    let world = world::shared();
    let replayed = Replayed::new(&world, "replay_refused");
    let topic = replayed.outbox.topic("order");
    replayed.outbox.insert("k", 1, 5);
    let first = world.kafka.wait_for_records(&topic, 5);
    let third = first[2].header_text("id").expect("an id");
    let sql = replayed.outbox.database.sql();
    sql.run(&format!(
        "update outbox set payload = repeat('7', 20000) where id = {third}"
    ));
    world.kafka.configure_topic(&topic, &[("max.message.bytes", "5000")]);
    let all = ["--all", "--state", "replay.json", "--yes"];
    let (code, output, error) = replayed.run(&all);
    assert_eq!(code, Some(3), "{output}{error}");
    for part in [
        &*format!("from table public.outbox, id {third} is larger"),
        "or add --skip-failed",
    ] {
        assert!(error.contains(part), "{part:?} is missing in:\n{error}");
    }
    assert!(!error.contains(" LSN "), "{error}");

    let (code, output, error) = replayed.run(&[&all[..], &["--skip-failed"]].concat());
    assert_eq!(code, Some(0), "{output}{error}");
    for part in [
        &*format!("  4 records to topic {topic}\n"),
        "  not sent: 1 row, refused by Kafka\n",
        &*format!("from table public.outbox, id {third} is larger than Kafka accepts\n"),
    ] {
        assert!(output.contains(part), "{part:?} is missing in:\n{output}");
    }
    let (_, again) = parted(world.kafka.read(std::slice::from_ref(&topic)));
    let mut expected = by_id(&first);
    expected.remove(third);
    assert_eq!(by_id(&again), expected);
}

#[test]
fn a_replay_needs_no_privilege_on_columns_that_records_do_not_have() {
    let world = world::shared();
    let replayed = Replayed::new(&world, "replay_columns");
    let topic = replayed.outbox.topic("order");
    replayed.outbox.insert("k", 1, 3);
    let first = world.kafka.wait_for_records(&topic, 3);
    replayed.outbox.database.sql().run(
        "alter table outbox add secret text default 'none'; create role replayer login;
         grant select (id, aggregatetype, aggregateid, type, payload, created_at) on outbox to replayer",
    );
    let mut config = config(&replayed.outbox);
    for (property, value) in [
        ("database.user", "replayer"),
        ("column.exclude.list", "public.outbox.secret"),
    ] {
        config.insert(property.to_owned(), value.into());
    }
    let connector = json!({ "name": "replay_columns", "config": config });
    fs::write(replayed.folder.join("connector.json"), connector.to_string()).expect("the folder can be written");
    let (code, output, error) = replayed.run(&["--all", "--yes"]);
    assert_eq!(code, Some(0), "{output}{error}");
    let (_, again) = parted(world.kafka.wait_for_records(&topic, 6));
    assert_eq!(by_id(&again), by_id(&first));
}

#[test]
fn records_of_a_topic_are_sent_again_as_they_are_and_copies_are_not_copied() {
    let world = world::shared();
    let replayed = Replayed::new(&world, "replay_topic");
    let topic = replayed.outbox.topic("order");
    for key in ["a", "b", "c", "d"] {
        replayed.outbox.insert(key, 1, 100);
    }
    let first = world.kafka.wait_for_records(&topic, 400);

    let selected = [
        "--from-topic",
        &topic,
        "--from-offset",
        "0",
        "--state",
        "replay.json",
        "--yes",
    ];
    replayed.run_and_kill(&[&selected[..], &["--rate", "5"]].concat(), |state| {
        state["source"]["records"]["sent"].as_u64() > Some(0)
    });
    let (code, output, error) = replayed.run(&selected);
    assert_eq!(code, Some(0), "{output}{error}");
    let (firsts, again) = parted(world.kafka.wait_for_records(&topic, 800));
    assert!(firsts == first, "records of the connector have changed");
    assert!((400..800).contains(&again.len()), "{}", again.len());
    let expected = by_id(&firsts);
    for record in &again {
        assert_eq!(bare(record), expected[record.header_text("id").expect("an id")]);
    }
    assert_eq!(by_id(&again).len(), expected.len());
    assert_runs(&again, &["a", "b", "c", "d"], 100);
    the_only_run(&again);

    // Later on, a part of it, elsewhere.
    let elsewhere = format!("{topic}.repair");
    world.kafka.create_topic(&elsewhere, 1);
    let middle = first
        .iter()
        .filter_map(|record| record.timestamp_ms)
        .max()
        .expect("there are records");
    let (code, output, error) = replayed.run(&[
        "--from-topic",
        &topic,
        "--from-timestamp",
        &(middle + 1).to_string(),
        "--to",
        &elsewhere,
        "--yes",
    ]);
    assert_eq!(code, Some(0), "{output}{error}");
    let run = |args: &[&str]| {
        let (code, output, error) = replayed.run(&[&["--from-topic"][..], args].concat());
        assert_eq!(code, Some(0), "{args:?}: {output}{error}");
        output
    };
    // With a key, the records are counted. In the same topic, copies are none of them.
    let of_c = |records: &[Record]| records.iter().filter(|record| record.key_text() == Some("c")).count();
    let counted = run(&[&topic, "--from-offset", "0", "--key", "c", "--dry-run"]);
    let told = |records: usize| format!("{records} records of topic {topic} with the wanted keys and ids:");
    assert!(counted.contains(&told(100)), "{counted}");
    let counted = run(&[
        &topic,
        "--from-offset",
        "0",
        "--key",
        "c",
        "--to",
        &elsewhere,
        "--dry-run",
    ]);
    assert!(counted.contains(&told(of_c(&firsts) + of_c(&again))), "{counted}");
    let one = first[0].header_text("id").expect("an id");
    let output = run(&[&topic, "--from-offset", "0", "--id", one, "--yes"]);
    assert!(output.contains("1 record was sent again."), "{output}");
    assert!(
        output.contains("of an earlier replay; they are sent only to another topic"),
        "{output}"
    );

    // The first fifty, elsewhere.
    let end = first.iter().filter(|record| record.key_text() == Some("c")).nth(50);
    let end = end.expect("there are a hundred");
    let (from, until) = (
        format!("{}:0", end.partition),
        format!("{}:{}", end.partition, end.offset),
    );
    let part = [&*topic, "--from-offset", &from, "--until-offset", &until, "--key", "c"];
    run(&[&part[..], &["--to", &elsewhere, "--yes"]].concat());
    let records = world.kafka.wait_for_records(&elsewhere, 50);
    assert_runs(&records, &["c"], 50);
    assert_eq!(records.len(), 50);
    // A topic that a replay has filled is sent again like any other, with the mark of the last replay alone.
    let third = format!("{topic}.third");
    world.kafka.create_topic(&third, 1);
    run(&[&elsewhere, "--from-offset", "0", "--to", &third, "--yes"]);
    let again = world.kafka.wait_for_records(&third, 50);
    assert_runs(&again, &["c"], 50);
    assert_ne!(the_only_run(&again), the_only_run(&records));
    for record in &again {
        let marks = record.headers.iter().filter(|(name, _)| name == HEADER);
        assert_eq!(marks.count(), 1, "{record:?}");
    }

    let (code, _, error) = replayed.run(&["--from-topic", &format!("{topic}.none"), "--from-offset", "0", "--yes"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("the brokers show no partition of it"), "{error}");
}
