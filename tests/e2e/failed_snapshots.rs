//! Snapshots that were asked for and could not read a table: a failure that everybody sees, until the table is read.

use serde_json::Value;
use walferry_testkit::servers::{Walferry, wait_for};

use crate::signals::{SIGNALS, begin, config, execute, start_as, wait_for_log, wait_until_delivered};

/// Exit code, standard output and standard error of `walferry snapshot`.
fn snapshot(walferry: &Walferry, name: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let admin = walferry.admin();
    let mut args = vec!["snapshot", name, "--admin", &admin];
    args.extend(more);
    let output = walferry.command_with(&args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn json(walferry: &Walferry, path: &str) -> (u16, Value) {
    let answer = walferry.get(path).expect("the endpoint answers");
    (answer.status, serde_json::from_str(&answer.body).unwrap_or_default())
}

/// `/ready`: its code, and level, reason and hints of the connector.
fn ready(walferry: &Walferry) -> (u16, String, String, String) {
    let (code, body) = json(walferry, "/ready");
    let connector = &body["connectors"][0];
    let text = |member: &str| connector[member].as_str().unwrap_or_default().to_owned();
    (code, text("level"), text("reason"), connector["hints"].to_string())
}

fn unread(walferry: &Walferry, name: &str) -> String {
    let metrics = walferry.get("/metrics").expect("the endpoint answers").body;
    let of = format!("walferry_snapshot_tables_unread{{connector=\"{name}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&of));
    line.expect("the metric is there").to_owned()
}

#[test]
fn a_table_that_may_not_be_read_is_a_failure_until_a_snapshot_reads_it() {
    let name = "unread";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create role unread_cdc login replication; grant all on signals to unread_cdc;
         create table items (id int primary key, v text); create table items_open (id int primary key, v text);
         insert into items values (1, 'a'), (2, 'b'); insert into items_open values (1, 'c');
         grant select on items_open to unread_cdc;
         create publication {name} for table items, items_open, signals"
    ));
    let properties = [
        ("database.user", "unread_cdc"),
        ("publication.name", name),
        ("publication.autocreate.mode", "disabled"),
        ("notification.enabled.channels", "jmx"),
    ];
    let mut walferry = start_as(world, name, config(name, &database, &properties));
    // By the channel in which nobody can answer. The other table is read.
    sql.run(&execute("public.items\", \"public.items_open"));
    wait_for_log(
        &mut walferry,
        "the incremental snapshot has ended without public.items,",
        1,
    );
    wait_until_delivered(sql, name);
    assert_eq!(
        world
            .kafka
            .wait_for_records(&format!("{name}.public.items_open"), 1)
            .len(),
        1
    );
    let log = walferry.output();
    let grant = "GRANT SELECT ON \\\"public\\\".\\\"items\\\" TO \\\"unread_cdc\\\"";
    for part in [
        "WF0418",
        "the incremental snapshot of public.items failed, because the table cannot be read: reading a chunk failed: permission denied for table items",
    ] {
        assert!(log.contains(part), "{part} is missing in:\n{log}");
    }
    assert!(log.contains(&grant.replace('\\', "")) || log.contains(grant), "{log}");
    assert!(!log.contains("the incremental snapshot is complete"), "{log}");
    // It streams, so a restart of the process would not help; but somebody has to look.
    let seen = wait_for("the failure to be shown", || {
        Some(ready(&walferry)).filter(|(_, level, ..)| level == "bad")
    });
    assert_eq!(seen.0, 200);
    assert!(seen.2.contains("permission denied for table items"), "{seen:?}");
    assert!(
        seen.3.contains(grant) && seen.3.contains("walferry snapshot unread --table public.items --wait"),
        "{seen:?}"
    );
    assert_eq!(unread(&walferry, name), "1");
    let (_, page) = json(&walferry, "/ui/data");
    let connector = &page["connectors"][0];
    assert_eq!(connector["level"], "bad");
    assert_eq!(connector["incidents"][0]["code"], "WF0418");
    let (_, shown) = json(&walferry, &format!("/connectors/{name}/snapshots"));
    assert_eq!(shown["unread"][0]["table"], "public.items");
    assert_eq!(shown["requests"][0]["state"], "failed", "{shown}");
    assert_eq!(shown["requests"][0]["tables"][1]["state"], "done", "{shown}");
    // As Debezium notifies it.
    let (_, told) = json(&walferry, &format!("/connectors/{name}/notifications"));
    let scans: Vec<_> = told
        .as_array()
        .into_iter()
        .flatten()
        .filter(|told| told["type"] == "TABLE_SCAN_COMPLETED")
        .collect();
    let status = |told: &Value| told["additionalData"]["status"].as_str().unwrap_or_default().to_owned();
    assert_eq!(
        scans.iter().map(|told| status(told)).collect::<Vec<_>>(),
        ["SQL_EXCEPTION", "SUCCEEDED"],
        "{told}"
    );

    // Asked again before it is mended, it is refused with the same remedy, and nothing is asked.
    let (code, _, said) = snapshot(&walferry, name, &["--table", "public.items", "--wait"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("it would fail") && said.contains("GRANT SELECT ON \"public\".\"items\" TO \"unread_cdc\""),
        "{said}"
    );
    let (_, shown) = json(&walferry, &format!("/connectors/{name}/snapshots"));
    assert_eq!(shown["requests"].as_array().map(Vec::len), Some(1), "{shown}");

    sql.run("grant select on public.items to unread_cdc");
    let (code, said, errors) = snapshot(&walferry, name, &["--table", "public.items", "--wait"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    assert!(
        said.contains("public.items: 2 rows\nthe snapshot is complete\n"),
        "{said}"
    );
    assert_eq!(
        world.kafka.wait_for_records(&format!("{name}.public.items"), 2).len(),
        2
    );
    assert_eq!(unread(&walferry, name), "0");
    let (code, level, reason, _) = ready(&walferry);
    assert_eq!((code, level.as_str()), (200, "good"), "{reason}");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    sql.drop_slot(name);
}

#[test]
fn what_is_known_to_fail_is_refused_and_what_fails_later_is_told_with_an_exit_code() {
    let name = "asked_for";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int primary key, v text); create table items_keyless (v text);
         create table others (id int primary key); create table \"items_Odd\" (id int primary key);
         insert into items values (1, 'a'), (2, 'b'), (0, 'z'); insert into items_keyless values ('k')"
    ));
    let mut walferry = start_as(world, name, config(name, &database, &[]));
    let refused: [(&[&str], &[&str]); 10] = [
        (
            &["--table", "public.nosuch"],
            &["\"public.nosuch\"", "captured are public.items"],
        ),
        (&["--table", "items"], &["did you mean public.items?"]),
        (&["--table", "public.items_odd"], &["did you mean public.items_Odd?"]),
        (
            &["--table", "public.others"],
            &["public.others", "does not capture it", "table.include.list"],
        ),
        (&["--table", "public.items", "--where", "id >"], &["syntax error"]),
        (
            &["--table", "public.items", "--where", "nosuch = 1"],
            &["column \"nosuch\" does not exist"],
        ),
        (
            &["--table", "public.items", "--where", "id = 1) or (true"],
            &["cannot stand alone", "closes a bracket"],
        ),
        (
            &["--table", "public.items", "--where", "id = 1)) or ((true"],
            &["cannot stand alone"],
        ),
        (
            &["--table", "public.items", "--surrogate-key", "nosuch"],
            &["no column nosuch"],
        ),
        // One table that can be read does not carry one that cannot.
        (
            &["--blocking", "--table", "public.items", "--table", "public.nosuch"],
            &["\"public.nosuch\""],
        ),
    ];
    for (args, parts) in refused {
        let (code, out, said) = snapshot(&walferry, name, args);
        assert_eq!(code, Some(2), "{args:?}: {out}{said}");
        for part in parts {
            assert!(said.contains(part), "{args:?}: {part:?} is missing in:\n{said}");
        }
    }
    let (_, shown) = json(&walferry, &format!("/connectors/{name}/snapshots"));
    assert_eq!(shown["requests"], serde_json::json!([]), "nothing was asked");

    // Nobody can know this before the rows are read.
    let args = ["--wait", "--table", "public.items", "--where", "1 / id > 0"];
    let (code, out, said) = snapshot(&walferry, name, &args);
    assert_eq!(code, Some(2), "{out}{said}");
    assert!(said.contains("division by zero") && said.contains("WF0418"), "{said}");
    assert_eq!(unread(&walferry, name), "1");

    let (code, out, said) = snapshot(
        &walferry,
        name,
        &["--wait", "--table", "public.items.*", "--where", "v <> 'z'"],
    );
    assert_eq!(code, Some(2), "one of these tables has no column v: {out}{said}");
    let (code, out, said) = snapshot(
        &walferry,
        name,
        &["--wait", "--table", "public.items", "--table", "public.items_keyless"],
    );
    assert_eq!(code, Some(0), "{out}{said}");
    for part in [
        "public.items: 3 rows\n",
        "public.items_keyless: 1 rows\n",
        "the snapshot is complete\n",
    ] {
        assert!(out.contains(part), "{part:?} is missing in:\n{out}");
    }
    let (code, out, said) = snapshot(&walferry, name, &["--wait", "--blocking", "--table", "public.items"]);
    assert_eq!(code, Some(0), "{out}{said}");
    assert!(out.ends_with("the snapshot is complete\n"), "{out}");
    assert_eq!(unread(&walferry, name), "0");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    sql.drop_slot(name);
}

#[test]
fn check_names_tables_that_a_later_snapshot_could_not_read() {
    let name = "later_select";
    let (world, database) = begin(name);
    database.sql().run(&format!(
        "create role later_cdc login replication;
         create table items (id int primary key);
         create publication {name} for table items"
    ));
    let properties = [
        ("database.user", "later_cdc"),
        ("publication.name", name),
        ("publication.autocreate.mode", "disabled"),
        ("signal.enabled.channels", "kafka"),
    ];
    let mut properties = config(name, &database, &properties);
    properties.remove("signal.data.collection");
    properties.remove("signal.enabled.channels");
    let options = walferry_testkit::servers::WalferryOptions {
        name: name.to_owned(),
        config: properties,
        worker: Vec::new(),
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    };
    let checked = walferry_testkit::servers::Checked::of(&options, &["--fix"]);
    for part in [
        "a snapshot that is asked for later would fail",
        "  GRANT SELECT ON \"public\".\"items\" TO \"later_cdc\";",
    ] {
        assert!(
            checked.stdout.contains(part),
            "{part:?} is missing in:\n{}",
            checked.stdout
        );
    }
    assert_eq!(checked.code, Some(0), "it prevents no start: {}", checked.stdout);
}
