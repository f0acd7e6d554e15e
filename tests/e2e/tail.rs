//! `walferry tail` on a real Postgres: what it shows, and that it leaves nothing behind.

use std::{
    fs,
    io::{BufRead, BufReader, Read as _},
    path::PathBuf,
    process::{Child, ChildStderr, Command, Stdio},
};

use serde_json::json;
use walferry_testkit::servers::{Database, folder, wait_for, walferry_program};

use crate::{show::config, world};

/// The file of a connector for all tables of a database.
fn file(database: &Database, name: &str) -> PathBuf {
    let file = folder("tail").join("connector.json");
    let properties = [("snapshot.mode", "initial"), ("heartbeat.interval.ms", "50")];
    let connector = json!({ "name": name, "config": config(database, name, &properties) });
    fs::write(&file, connector.to_string()).expect("the folder can be written");
    file
}

/// Starts `walferry tail`, and waits until it follows.
#[track_caller]
fn tail(file: &PathBuf, arguments: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut command = Command::new(walferry_program());
    command.arg("tail").arg("--config").arg(file).args(arguments);
    let mut tail = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let mut stderr = BufReader::new(tail.stderr.take().expect("it is piped"));
    let mut before = String::new();
    while !before.contains("Waiting for changes of ") {
        assert_ne!(stderr.read_line(&mut before).expect("it is text"), 0, "{before}");
    }
    (tail, stderr)
}

/// Slots of a database, and whether they are temporary.
fn slots(database: &Database) -> Vec<Vec<Option<String>>> {
    let query = "select temporary from pg_replication_slots where database = current_database()";
    database.sql().rows(query)
}

#[track_caller]
fn wait_for_no_slot(database: &Database) {
    wait_for("the slot to go", || slots(database).is_empty().then_some(()));
}

#[test]
fn records_of_a_table_are_shown_as_they_would_be_sent_and_nothing_is_left() {
    let world = world::shared();
    let database = world.postgres.database("tailed");
    database.sql().run(
        "create table orders (id int primary key, total text); create table other (id int primary key);
         insert into orders values (7, 'is there already');
         create publication tailed for table orders, other",
    );
    let file = file(&database, "tailed");
    let (tail, _stderr) = tail(&file, &["--table", "public.orders", "--limit", "3"]);
    assert_eq!(slots(&database), [[Some("t".to_owned())]]);
    database
        .sql()
        .run("insert into other values (1); insert into orders values (1, 'a lamp'); delete from orders where id = 1");
    let output = tail.wait_with_output().expect("it ends after three records");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    for part in [
        "  topic      tailed.public.orders\n",
        "  key        {\"id\":1}\n",
        r#""total":"a lamp""#,
        r#""op":"c""#,
        r#""op":"d""#,
        "  value      (null)\n",
    ] {
        assert!(shown.contains(part), "{part:?} is missing in:\n{shown}");
    }
    let with_position = shown.lines().filter(|line| {
        let position = line
            .split_once("public.orders  ")
            .and_then(|(_, rest)| rest.split_whitespace().next());
        let halves = position.and_then(|position| position.split_once('/'));
        halves.is_some_and(|(high, low)| [high, low].iter().all(|half| u32::from_str_radix(half, 16).is_ok()))
    });
    assert_eq!(with_position.count(), 3, "{shown}");
    assert!(
        !shown.contains("public.other") && !shown.contains("is there already"),
        "{shown}"
    );
    wait_for_no_slot(&database);
    assert_eq!(
        fs::read_dir(file.parent().expect("a folder"))
            .expect("it is there")
            .count(),
        1
    );
}

#[test]
fn a_killed_tail_leaves_no_slot_and_one_without_a_publication_says_the_sql() {
    let world = world::shared();
    let database = world.postgres.database("tail_killed");
    database.sql().run("create table orders (id int primary key)");
    let file = file(&database, "tail_killed");

    let refused = Command::new(walferry_program())
        .args(["tail", "--config"])
        .arg(&file)
        .output()
        .expect("it can be run");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    let sql = said
        .split_once("would: ")
        .and_then(|(_, rest)| rest.split_once(';'))
        .unwrap_or_else(|| panic!("no SQL in: {said}"))
        .0;
    // What it says works.
    database.sql().run(sql);

    let (mut tail, _stderr) = tail(&file, &[]);
    assert_eq!(slots(&database).len(), 1);
    tail.kill().expect("it runs");
    tail.wait().expect("it was killed");
    wait_for_no_slot(&database);
}

/// Reads one record: its lines, up to the blank line that ends it.
#[track_caller]
fn next_record(shown: &mut impl BufRead) -> String {
    let mut record = String::new();
    while !record.ends_with("\n\n") {
        assert_ne!(shown.read_line(&mut record).expect("it is text"), 0, "{record}");
    }
    record
}

#[test]
fn a_tail_begins_with_the_next_commit_and_ctrl_c_ends_it_in_order() {
    let world = world::shared();
    let database = world.postgres.database("tail_ends");
    database.sql().run(
        "create table orders (id int primary key); create publication tail_ends for table orders;
         insert into orders values (1)",
    );
    let file = file(&database, "tail_ends");
    let (mut tail, mut stderr) = tail(&file, &[]);
    let mut shown = BufReader::new(tail.stdout.take().expect("it is piped"));
    for id in [2, 3] {
        database.sql().run(&format!("insert into orders values ({id})"));
        let record = next_record(&mut shown);
        assert!(record.contains(&format!("  key        {{\"id\":{id}}}\n")), "{record}");
    }
    let interrupted = Command::new("kill").args(["-INT", &tail.id().to_string()]).status();
    assert!(interrupted.expect("`kill` can be run").success());
    let ended = wait_for("the end", || tail.try_wait().expect("it is a child"));
    let (mut last, mut said) = (String::new(), String::new());
    shown.read_to_string(&mut last).expect("it is text");
    stderr.read_to_string(&mut said).expect("it is text");
    assert_eq!((ended.code(), &*last), (Some(0), ""), "{said}");
    assert!(said.ends_with("2 records shown.\n"), "{said}");
    wait_for_no_slot(&database);
}

#[test]
fn a_tail_says_why_it_ends_when_what_it_reads_is_gone() {
    let world = world::shared();
    let database = world.postgres.database("tail_cut");
    database
        .sql()
        .run("create table orders (id int primary key); create publication tail_cut for table orders");
    let file = file(&database, "tail_cut");
    let end_of_walsender = "select pg_terminate_backend(active_pid) from pg_replication_slots
         where database = current_database()";
    for (sql, parts) in [
        (
            end_of_walsender,
            ["terminating connection", "start `walferry tail` again"],
        ),
        (
            "drop publication tail_cut; insert into orders values (1)",
            [
                "publication \"tail_cut\" does not exist",
                "`walferry check --fix` prints the SQL",
            ],
        ),
    ] {
        let (mut tail, mut stderr) = tail(&file, &[]);
        database.sql().run(sql);
        let ended = wait_for("the end", || tail.try_wait().expect("it is a child"));
        let mut said = String::new();
        stderr.read_to_string(&mut said).expect("it is text");
        assert_eq!(ended.code(), Some(1), "{said}");
        for part in parts {
            assert!(said.contains(part), "{part:?} is missing in:\n{said}");
        }
        wait_for_no_slot(&database);
    }
}
