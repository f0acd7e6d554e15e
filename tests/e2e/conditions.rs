//! Conditions of signals and configured SELECTs stay what they are: they never become another statement.

use serde_json::json;
use walferry_testkit::servers::{Checked, WalferryOptions, folder};

use crate::signals::{SIGNALS, begin, config, drop_slot, start, wait_for_log};

/// What tries to leave its place in the statement. `FILE` would be written.
const LEAVING: [&str; 8] = [
    "true)) TO PROGRAM 'touch FILE' --",
    "true) TO PROGRAM 'touch FILE' --",
    "true)) TO '/tmp/FILE' --",
    "true) UNION ALL SELECT id, secret FROM secrets WHERE (true",
    "false)) OR ((true",
    "true; COPY (SELECT 1) TO PROGRAM 'touch FILE'",
    "v = E'x'\n'\\'' )) OR (( v = ''",
    "…$x$ ) UNION ALL SELECT id, secret FROM secrets WHERE ( $x$ IS NULL",
];

/// SELECTs that try the same.
const SELECTS: [&str; 4] = [
    "SELECT id, v FROM items) AS a, (SELECT secret FROM secrets",
    "SELECT id, v FROM items) AS a) TO PROGRAM 'touch FILE' --",
    "SELECT id, v FROM items; COPY (SELECT 1) TO PROGRAM 'touch FILE'",
    "DELETE FROM items",
];

/// The signal that asks for a table with a condition.
fn asking(id: &str, kind: &str, condition: &str) -> String {
    let data = json!({
        "data-collections": ["public.items"], "type": kind,
        "additional-conditions": [{ "data-collection": "public.items", "filter": condition }],
    });
    format!("insert into signals values ('{id}', 'execute-snapshot', $data${data}$data$)")
}

#[test]
fn a_condition_that_leaves_its_place_is_refused_and_nothing_of_it_runs() {
    let name = "conditions";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int primary key, v text); insert into items select n, 'v' || n from generate_series(1, 9) n;
         create table items_keyless (id int, v text); insert into items_keyless select * from items;
         create table secrets (id int primary key, secret text); insert into secrets values (1, 'hunter2');
         create schema app; create function app.is_small(int) returns boolean language sql as 'select $1 < 4';
         alter role postgres in database {name} set search_path = app, public"
    ));
    let place = folder("conditions");
    let file = place.join("owned");
    let mut walferry = start(world, name, &database, &[]);
    let mut refused = 0;
    for (number, condition) in LEAVING.iter().enumerate() {
        let condition = condition.replace("FILE", &file.display().to_string());
        sql.run(&asking(&format!("incremental-{number}"), "incremental", &condition));
        refused += 1;
        wait_for_log(&mut walferry, "because the table cannot be read: ", refused);
        assert!(!file.exists(), "{condition} ran");
    }
    // What the server does not take as an expression, or does not do in a transaction that only reads, is refused, and not tried again.
    let others = [
        "id >",
        "id = 'x'",
        "no_such_column",
        "exists (SELECT FROM public.items FOR UPDATE)",
        "lastval() > 0",
    ];
    for (number, condition) in others.iter().enumerate() {
        sql.run(&asking(&format!("syntax-{number}"), "incremental", condition));
        refused += 1;
        wait_for_log(&mut walferry, "because the table cannot be read: ", refused);
    }
    // A table without a key is read as a whole, and SELECTs of a blocking snapshot are whole statements.
    for (number, condition) in LEAVING.iter().enumerate() {
        let condition = condition.replace("FILE", &file.display().to_string());
        let keyless = asking(&format!("whole-{number}"), "incremental", &condition)
            .replace("public.items", "public.items_keyless");
        sql.run(&keyless);
        refused += 1;
        wait_for_log(&mut walferry, "because the table cannot be read: ", refused);
    }
    for (number, select) in SELECTS.iter().enumerate() {
        let select = select.replace("FILE", &file.display().to_string());
        sql.run(&asking(&format!("blocking-{number}"), "blocking", &select));
        wait_for_log(&mut walferry, "the blocking snapshot was cancelled", number + 1);
        assert!(!file.exists(), "{select} ran");
    }
    let topic = format!("{name}.public.items");
    assert_eq!(world.kafka.read(&[topic.clone()]).len(), 0, "{}", walferry.output());
    assert_eq!(
        world.kafka.read(&[format!("{topic}_keyless")]).len(),
        0,
        "{}",
        walferry.output()
    );
    // A condition as people write them, with a function on the role's own path, a comment and brackets in a text.
    sql.run(&asking(
        "right",
        "incremental",
        "is_small(id) AND v <> ')' -- (small ones",
    ));
    assert_eq!(world.kafka.wait_for_records(&topic, 3).len(), 3);
    // The SELECT of a blocking snapshot.
    sql.run(&asking(
        "select",
        "blocking",
        "SELECT * FROM items WHERE is_small(id); -- all",
    ));
    assert_eq!(world.kafka.wait_for_records(&topic, 6).len(), 6);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    assert!(!walferry.output().contains("hunter2") && !file.exists());
    drop_slot(sql, name);

    for (number, select) in SELECTS.iter().enumerate() {
        let select = select.replace("FILE", &file.display().to_string());
        let properties = [
            ("snapshot.mode", "initial"),
            ("snapshot.select.statement.overrides", "public.items"),
            ("snapshot.select.statement.overrides.public.items", select.as_str()),
        ];
        let checked = Checked::of(
            &WalferryOptions {
                name: format!("{name}_{number}"),
                config: config(name, &database, &properties),
                worker: Vec::new(),
                bootstrap: world.kafka.bootstrap(),
                env: Vec::new(),
            },
            &["--show-records"],
        );
        assert_eq!(checked.code, Some(2), "{select}: {}", checked.stdout);
        assert!(
            checked.stdout.contains("the SELECT statement for table"),
            "{select}: {}",
            checked.stdout
        );
        assert!(!file.exists(), "{select} ran");
    }
}

/// What a function in a condition sets in the session decides how the server divides the text that follows: whether a backslash is an escape, and
/// which bytes are one character.
#[test]
fn a_condition_that_changes_how_the_server_reads_sql_frees_no_other_one() {
    let name = "conditions_session";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create table items (id int primary key, v text); insert into items select n, 'v' || n from generate_series(1, 9) n;
         create table items_b (id int primary key, v text); insert into items_b select * from items;
         create table secrets (id int primary key, v text); insert into secrets values (77, 'hunter2')"
    ));
    let mut walferry = start(world, name, &database, &[]);
    let settings = [
        // One text without escapes, and more than one with them.
        ("standard_conforming_strings", "off", "'\\''", "'"),
        // One text in UTF-8. In Shift JIS, the second byte of the letter and the backslash are one character.
        ("client_encoding", "SJIS", "E'\u{c1}\\'", "'"),
    ];
    for (number, (setting, value, text, end)) in settings.into_iter().enumerate() {
        let sets = format!("pg_catalog.set_config('{setting}', '{value}', false) IS NOT NULL");
        // A chunk has the condition in several statements, and the next one in further ones.
        for (part, leaves) in [
            format!("{sets} AND v <> {text} ) UNION ALL SELECT id, v FROM secrets WHERE (true --{end}"),
            format!("v <> {text} ) UNION ALL SELECT id, v FROM secrets WHERE (true --{end}"),
        ]
        .iter()
        .enumerate()
        {
            sql.run(&asking(&format!("incremental-{number}-{part}"), "incremental", leaves));
            sql.run(&format!(
                "insert into signals values ('end-{number}-{part}', 'log', '{{\"message\": \"end {number} {part}\"}}')"
            ));
            wait_for_log(&mut walferry, &format!("end {number} {part}"), 1);
        }
        // The statements for one table are read after those for another one have run.
        let leaves = format!(
            "SELECT id, v FROM items_b WHERE v <> {text} ) AS a; COMMIT; CREATE TABLE public.owned_{number} (); SELECT * FROM (SELECT 1 --{end}"
        );
        let data = json!({
            "data-collections": ["public.items", "public.items_b"], "type": "blocking",
            "additional-conditions": [
                { "data-collection": "public.items", "filter": format!("SELECT * FROM items WHERE {sets}") },
                { "data-collection": "public.items_b", "filter": leaves },
            ],
        });
        sql.run(&format!(
            "insert into signals values ('blocking-{number}', 'execute-snapshot', $data${data}$data$)"
        ));
        sql.run(&format!(
            "insert into signals values ('last-{number}', 'log', '{{\"message\": \"last {number}\"}}')"
        ));
        wait_for_log(&mut walferry, &format!("last {number}"), 1);
    }
    let log = walferry.output();
    // The server would say so of a condition that has left its brackets.
    assert!(!log.contains("each UNION query"), "{log}");
    let owned = sql.value("select string_agg(relname, ', ') from pg_class where relname like 'owned%'");
    assert_eq!(owned, None, "{log}");
    let topic = format!("{name}.public.items");
    for record in world.kafka.read(&[topic, format!("{name}.public.items_b")]) {
        let value = record.value_text().unwrap_or_default().to_owned();
        assert!(!value.contains("hunter2"), "{value}\n{}", walferry.output());
    }
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    drop_slot(sql, name);
}
