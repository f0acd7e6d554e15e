//! `walferry inbox create` on a real server.

use std::process::Command;

use walferry_testkit::servers::{Database, walferry_program};

use crate::world;

#[track_caller]
fn command(args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(walferry_program())
        .args(["inbox", "create"])
        .args(args)
        .output();
    let output = output.expect("the program can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn url(database: &Database) -> String {
    format!(
        "postgres://postgres:unused@127.0.0.1:{}/{}",
        database.port(),
        database.name()
    )
}

#[test]
fn an_inbox_takes_each_event_of_a_consumer_once_and_forgets_it_in_time() {
    let world = world::shared();
    let database = world.postgres.database("inbox");
    let sql = database.sql();
    sql.run("create schema \"Shop\"; create role \"inbox consumer\"; revoke all on schema public from public");
    let table = [
        "--table",
        "\"Shop\".\"In\"",
        "--consumer",
        "inbox consumer",
        "--keep",
        "2 hours",
    ];
    let (code, output, error) = command(&[&table[..], &["--url", &url(&database), "--run"]].concat());
    assert_eq!(code, Some(0), "{output}{error}");
    assert!(
        output.contains("create the table \"Shop\".\"In\"") && output.contains("\ndone\n"),
        "{output}"
    );

    // What it prints at the end is what a consumer does.
    let insert = output
        .lines()
        .find(|line| line.contains("INSERT INTO"))
        .expect("it says how");
    let insert = |id: &str, consumer: &str| {
        let insert = insert
            .replace("$1", &format!("'{id}'"))
            .replace("name of the consumer", consumer);
        let counted = format!(
            "set role \"inbox consumer\"; with noted as ({} returning 1) select count(*) from noted",
            insert.trim().trim_end_matches(';')
        );
        let rows = sql.rows(&counted);
        sql.run("reset role");
        rows.last().and_then(|row| row[0].clone()).expect("a number")
    };
    assert_eq!(insert("e1", "billing"), "1");
    assert_eq!(insert("e1", "billing"), "0");
    assert_eq!(insert("e1", "shipping"), "1");

    sql.run(
        "insert into \"Shop\".\"In\" select n, 'billing', now() - interval '3 hours' from generate_series(1, 30) n",
    );
    let cleanup = |arguments: &str| sql.value(&format!("select \"Shop\".\"In_cleanup\"({arguments})"));
    assert_eq!(cleanup("most => 20").as_deref(), Some("20"));
    assert_eq!(cleanup("").as_deref(), Some("10"));
    assert_eq!(cleanup("").as_deref(), Some("0"));
    assert_eq!(sql.value("select count(*) from \"Shop\".\"In\"").as_deref(), Some("2"));

    let (code, _, error) = command(&[&table[..], &["--url", &url(&database), "--run"]].concat());
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("the inbox was not created; nothing was changed"),
        "{error}"
    );
    let (code, _, error) = command(&["--keep", "a while"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("WF0789") && error.contains("such as '7 days'"),
        "{error}"
    );
}

#[test]
fn what_is_printed_runs_as_it_stands() {
    let world = world::shared();
    let database = world.postgres.database("inbox_printed");
    let (code, script, error) = command(&["--id-type", "uuid"]);
    assert_eq!(code, Some(0), "{error}");
    let sql = database.sql();
    sql.run(&script);
    sql.run("insert into inbox (message_id, consumer) values (gen_random_uuid(), 'c')");
    assert_eq!(sql.value("select inbox_cleanup()").as_deref(), Some("0"));
}
