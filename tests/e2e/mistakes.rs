//! Mistakes that only real servers bring to light.

use serde_json::Value;
use walferry_testkit::servers::{Checked, Walferry, wait_for};

use crate::outbox::Outbox;
use crate::world::{self, World};

/// `check` on a connector's files, as its user calls it; the text on both outputs.
fn check(world: &World, walferry: &Walferry) -> (Option<i32>, String) {
    let file = walferry.config_file();
    let bootstrap = world.kafka.bootstrap();
    let output = walferry.command([
        "check",
        "--config",
        &file.to_string_lossy(),
        "--bootstrap-servers",
        &bootstrap,
        "--admin",
        "127.0.0.1:0",
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), text)
}

#[test]
fn a_run_says_at_its_start_which_tables_are_captured() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "captured");
    outbox
        .database
        .sql()
        .run("create table public.another (id int primary key)");
    // A misspelt filter captures everything.
    let mut config = outbox.config_with([("table.inculde.list", "public.outbox")]);
    config.remove("table.include.list");
    let walferry = outbox.start_with(config);
    wait_for("the tables to be told", || {
        let output = walferry.output();
        output
            .contains("no filter is set: 2 tables are captured: public.another, public.outbox")
            .then_some(())
    });
    drop(walferry);
    let walferry = outbox.start();
    wait_for("the table to be told", || {
        walferry
            .output()
            .contains("1 table is captured: public.outbox")
            .then_some(())
    });
    drop(walferry);
    let config = outbox.config_with([
        ("table.include.list", "public.outboks"),
        ("publication.autocreate.mode", "all_tables"),
    ]);
    let walferry = Walferry::start(outbox.options(config));
    wait_for("the lack to be told", || {
        walferry
            .output()
            .contains("no table in the database matches the filters, so no row changes are captured until one does")
            .then_some(())
    });
}

#[test]
fn check_finds_the_column_that_an_event_router_lacks() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "lacking");
    outbox
        .database
        .sql()
        .run("alter table outbox rename column aggregateid to entity");
    let mut config = outbox.config();
    config.insert("transforms.outbox.route.by.field".into(), Value::from("kind"));
    let mut walferry = Walferry::start(outbox.options(config));
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let (code, checked) = check(&world, &walferry);
    assert_eq!(code, Some(2), "{checked}");
    // Both columns in one report, of `check` as of `run`.
    for text in [checked, walferry.output()] {
        for part in [
            "transforms.outbox.table.field.event.key names the column \"aggregateid\"",
            "\"kind\"",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }
}

#[test]
fn check_tells_of_expressions_that_match_no_column() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "no_columns");
    let config = outbox.config_with([
        ("table.include.list", "public.outbox,public.orders;public.items"),
        ("column.exclude.list", "public.outbox.nope,public.outbox.payload_old.*"),
        ("column.mask.with.4.chars", "outbox.payload"),
        ("column.truncate.to.20000.chars", "public.outbox.payload"),
        ("column.mask.hash.SHA-256.with.salt.hunter2", "public.other.payload"),
        ("message.key.columns", "public.outbox:aggregateid;public.outbox:nokey"),
    ]);
    let walferry = outbox.start_with(config);
    let (_, text) = check(&world, &walferry);
    for part in [
        "caution  `table.include.list`: expression 2, \"public.orders;public.items\", matches no captured table",
        "caution  `column.exclude.list`: expression 1, \"public.outbox.nope\", matches no column of the captured tables",
        "caution  `column.exclude.list`: expression 2,",
        "caution  `column.mask.with.4.chars`: expression 1, \"outbox.payload\", matches no column",
        "write public.outbox.payload: an expression must match the whole of SCHEMA.TABLE.COLUMN",
        "caution  `column.mask.hash.<algorithm>.with.salt.<salt>`: expression 1, \"public.other.payload\", matches no column",
        "caution  `message.key.columns`: expression 2,",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
    assert_eq!(text.matches("matches no column").count(), 5, "{text}");
}

#[test]
fn check_advises_no_filter_where_only_messages_are_sent() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "messages");
    let mut config = outbox.config_with([
        ("table.exclude.list", ".*"),
        ("publication.autocreate.mode", "no_tables"),
    ]);
    config.remove("table.include.list");
    config.retain(|name, _| !name.starts_with("transforms"));
    let walferry = outbox.start_with(config.clone());
    let (code, text) = check(&world, &walferry);
    assert!(
        text.contains(
            "`table.exclude.list` excludes every table, so only messages of pg_logical_emit_message are sent"
        ),
        "{text}"
    );
    assert!(!text.contains("compare") && code == Some(0), "{text}");
    wait_for("the lack of tables to be told", || {
        walferry
            .output()
            .contains("excludes every table, so only messages")
            .then_some(())
    });
    assert!(
        !walferry.output().contains("matches the filters"),
        "{}",
        walferry.output()
    );
    drop(walferry);

    // A list that nothing passes is told with its name.
    config.remove("table.exclude.list");
    config.insert("table.include.list".into(), Value::from("outboks"));
    config.insert("publication.autocreate.mode".into(), Value::from("all_tables"));
    let walferry = outbox.start_with(config);
    let (_, text) = check(&world, &walferry);
    for part in [
        "caution  `table.include.list` matches no table in the database, so no rows are captured",
        "did you mean public.outbox?",
    ] {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    // It streams, and that is not all that is said of it.
    wait_for("the lack of tables to be in the connector's sentence", || {
        let ready = walferry.get("/ready")?.json();
        let connector = &ready["connectors"][0];
        let is_told = connector["reason"]
            .as_str()?
            .contains("No table in the database matches the filters");
        (is_told && connector["level"] == "note").then_some(())
    });
}

#[test]
fn what_check_prints_for_a_table_without_a_key_lets_the_application_go_on() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "keyless");
    let sql = outbox.database.sql();
    sql.run("create table keyless (line text); insert into keyless values ('x')");
    let mut config = outbox.config_with([
        ("table.include.list", "public.keyless"),
        ("publication.autocreate.mode", "filtered"),
    ]);
    config.remove("transforms");
    let checked = Checked::of(&outbox.options(config), &[]);
    let hint = "→ ALTER TABLE \"public\".\"keyless\" REPLICA IDENTITY FULL; CREATE PUBLICATION ";
    let line = checked
        .stdout
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("→ ALTER TABLE"));
    let line = line.unwrap_or_else(|| panic!("{hint:?} is missing in:\n{}", checked.stdout));
    assert!(checked.stdout.contains(hint), "{}", checked.stdout);
    sql.run(&format!("ALTER TABLE{line}"));
    sql.run("update keyless set line = 'y'");
}

#[test]
fn topics_that_differ_only_in_dots_and_underscores_are_told_with_both_names() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "twins");
    let sql = outbox.database.sql();
    sql.run("create table \"t.w\" (id int primary key); create table t_w (id int primary key)");
    let mut config = outbox.config_with([
        ("table.include.list", "public.t.w"),
        ("value.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("key.converter", "org.apache.kafka.connect.json.JsonConverter"),
        ("topic.creation.default.partitions", "1"),
        ("topic.creation.default.replication.factor", "1"),
    ]);
    config.retain(|name, _| !name.starts_with("transforms"));
    let mut walferry = outbox.start_with(config);
    let (code, text) = check(&world, &walferry);
    assert_eq!(code, Some(2), "{text}");
    let told = "the names twins.public.t.w and twins.public.t_w differ only in \".\" and \"_\"";
    assert!(text.contains(told), "{text}");

    sql.run("insert into \"t.w\" values (1)");
    world.kafka.wait_for_records("twins.public.t.w", 1);
    sql.run("insert into t_w values (1)");
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let told = "topic twins.public.t_w could not be created, because its name collides with that of topic twins.public.t.w: they differ only in";
    assert!(walferry.output().contains(told), "{}", walferry.output());
}
