//! `walferry init` on a real Postgres: its SQL runs, and its connector starts.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use walferry_testkit::servers::{Checked, Database, WalferryOptions, folder, walferry_program};

use crate::world;

fn init(database: &Database, out: &Path, arguments: &[&str]) -> Output {
    let url = format!(
        "postgres://postgres:hidden-password@127.0.0.1:{}/{}",
        database.port(),
        database.name()
    );
    let mut command = Command::new(walferry_program());
    command
        .args(["init", &url, "--role", "init_cdc", "--out"])
        .arg(out)
        .args(arguments);
    command.output().expect("it can be run")
}

#[track_caller]
fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(!said.contains("hidden-password"), "{said}");
    said
}

/// Runs the SQL as psql would, and checks the connector.
#[track_caller]
fn run_and_check(database: &Database, bootstrap: &str, out: &Path, name: &str) -> Checked {
    let read = |ending: &str| fs::read_to_string(out.join(format!("{name}.{ending}"))).expect("it was written");
    let (sql, connector) = (read("sql"), read("json"));
    assert!(!format!("{sql}{connector}").contains("hidden-password"));
    database.sql().run(&sql.replace(":'password'", "'secret'"));
    let connector: Value = serde_json::from_str(&connector).expect("it is JSON");
    assert_eq!(connector["name"], name);
    let options = WalferryOptions {
        name: name.into(),
        config: connector["config"].as_object().expect("it has properties").clone(),
        worker: Vec::new(),
        bootstrap: bootstrap.into(),
        env: vec![("CDC_PASSWORD".into(), "secret".into())],
    };
    let checked = Checked::of(&options, &["--show-records"]);
    assert_eq!(checked.code, Some(0), "{sql}\n{}{}", checked.stdout, checked.stderr);
    checked
}

#[test]
fn sql_and_connector_for_a_database_work_as_they_were_written() {
    let world = world::shared();
    let database = world.postgres.database("init_shop");
    database.sql().run(
        "create schema \"My shop\";
         create table \"My shop\".\"orders,new\" (id int primary key); create table log (line text);
         create table parts (id int primary key) partition by range (id);
         create table parts_1 partition of parts for values from (0) to (10);
         create table bare (id int) partition by range (id);
         create table bare_1 partition of bare for values from (0) to (10)",
    );
    // The folder is made.
    let out = folder("init").join("new").join("one");
    let first = init(&database, &out, &[]);
    let told = said(&first);
    assert!(first.status.success(), "{told}");
    assert!(told.contains("left out public.log: it has no primary key"), "{told}");
    let checked = run_and_check(&database, &world.kafka.bootstrap(), &out, "init_shop");
    let captured = "captured: My shop.orders,new, public.parts";
    assert!(checked.stdout.contains(captured), "{}", checked.stdout);

    // Neither files nor a publication are overwritten.
    for (out, why) in [
        (&out, "exists already, and is not overwritten"),
        (&folder("init"), "a publication \"init_shop\" exists"),
    ] {
        let again = init(&database, out, &[]);
        assert_eq!(again.status.code(), Some(2));
        assert!(said(&again).contains(why), "{}", said(&again));
    }

    let outbox = init(&database, &out, &["--name", "init_events", "--outbox"]);
    assert!(outbox.status.success(), "{}", said(&outbox));
    let checked = run_and_check(&database, &world.kafka.bootstrap(), &out, "init_events");
    assert!(
        checked.stdout.contains("topic        outbox.event."),
        "{}",
        checked.stdout
    );

    // It is the table that the other command makes, and its options are the same if it is there already.
    let made = |table: &str| {
        database.sql().value(&format!(
            "select string_agg(format('%s %s %s %s', attname, format_type(atttypid, atttypmod), attnotnull,
               (select pg_get_expr(adbin, adrelid) from pg_attrdef where adrelid = attrelid and adnum = attnum)), ', ' order by attnum)
             || (select string_agg(replace(indexdef, 'other', 'outbox'), ', ' order by indexname)
                 from pg_indexes where schemaname || '.' || tablename = '{table}')
             || (select string_agg(privilege_type, ', ' order by privilege_type) from information_schema.table_privileges
                 where grantee = 'init_cdc' and table_schema || '.' || table_name = '{table}')
             from pg_attribute where attrelid = '{table}'::regclass and attnum > 0"
        ))
    };
    let create = Command::new(walferry_program())
        .args(["outbox", "create", "--table", "public.other", "--reader", "init_cdc"])
        .output()
        .expect("it can be run");
    database.sql().run(&String::from_utf8_lossy(&create.stdout));
    assert!(made("public.outbox").is_some());
    assert_eq!(made("public.outbox"), made("public.other"));
    let existing = init(&database, &out, &["--name", "init_other", "--outbox=public.other"]);
    assert!(existing.status.success(), "{}", said(&existing));
    let config = |name: &str| {
        let file = fs::read(out.join(format!("{name}.json"))).expect("it was written");
        let file: Value = serde_json::from_slice(&file).expect("it is JSON");
        let config = file["config"].as_object().expect("it has properties").clone();
        config
            .into_iter()
            .filter(|(name, _)| name.starts_with("transforms"))
            .collect::<Vec<_>>()
    };
    assert!(!config("init_events").is_empty());
    assert_eq!(config("init_events"), config("init_other"));

    let with_table = init(
        &database,
        &out,
        &["--name", "init_log", "--table", "public.log", "--table", "public.bare"],
    );
    assert!(with_table.status.success(), "{}", said(&with_table));
    run_and_check(&database, &world.kafka.bootstrap(), &out, "init_log");
    let identity = database
        .sql()
        .value("select string_agg(relreplident, '') from pg_class where relname in ('log', 'bare', 'bare_1')");
    assert_eq!(identity.as_deref(), Some("fff"));
    database.sql().run("drop owned by init_cdc; drop role init_cdc");
}
