//! What the connector's role needs, and what it can do without.

use serde_json::Value;
use walferry_testkit::servers::{Checked, Walferry, WalferryOptions};

use crate::signals::{SIGNALS, begin, config, execute, start, value, wait_for_log};
use crate::world::World;

fn options(world: &World, name: &str, config: serde_json::Map<String, Value>) -> WalferryOptions {
    WalferryOptions {
        name: name.to_owned(),
        config,
        worker: Vec::new(),
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    }
}

/// Operation and values of each record of a topic, once there are so many.
#[track_caller]
fn told(world: &World, topic: &str, count: usize) -> Vec<String> {
    let records = world.kafka.wait_for_records(topic, count);
    let with_value = records.iter().filter(|record| record.value.is_some()).map(value);
    with_value
        .map(|value| format!("{} {}", value["op"].as_str().unwrap_or_default(), value["after"]))
        .collect()
}

/// Personal data stays out of reach: the role may read neither the column nor, with that, the table's `ctid`.
#[test]
fn select_on_captured_columns_is_enough_for_snapshots_chunks_and_reselection() {
    let name = "column_grants";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "{SIGNALS};
         create role column_reader login replication; grant all on signals to column_reader;
         create table items (id int primary key, v text, secret text, n int);
         alter table items alter v set storage external;
         insert into items select i, 'v' || i, 'hidden', i from generate_series(1, 3) i;
         grant select (id, v) on items to column_reader;
         create publication {name} for table items (id, v, n), signals"
    ));
    let properties = [
        ("database.user", "column_reader"),
        ("publication.name", name),
        ("publication.autocreate.mode", "disabled"),
        ("column.exclude.list", "public.items.secret"),
        ("snapshot.mode", "initial"),
        ("snapshot.locking.mode", "shared"),
        ("post.processors", "again"),
        (
            "post.processors.again.type",
            "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
        ),
    ];
    // What is missing is named, and it is not the table.
    let mut walferry = Walferry::start(options(world, name, config(name, &database, &properties)));
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let checked = Checked::of(&options(world, name, config(name, &database, &properties)), &[]);
    for output in [walferry.output(), checked.stdout] {
        assert!(
            output.contains("GRANT SELECT (\"id\", \"v\", \"n\") ON \"public\".\"items\" TO \"column_reader\";"),
            "{output}"
        );
    }

    sql.run("grant select (n) on items to column_reader");
    let checked = Checked::of(
        &options(world, name, config(name, &database, &properties)),
        &["--show-records"],
    );
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    assert!(!checked.stdout.contains("hidden"), "{}", checked.stdout);
    let mut walferry = start(world, name, &database, &properties);
    let topic = format!("{name}.public.items");
    let row = |op: &str, id: u32, v: &str| format!("{op} {{\"id\":{id},\"v\":\"{v}\",\"n\":{id}}}");
    let all: Vec<String> = (1..=3).map(|id| row("r", id, &format!("v{id}"))).collect();
    assert_eq!(told(world, &topic, 3), all, "{}", walferry.output());

    sql.run(&execute("public.items"));
    wait_for_log(&mut walferry, "the incremental snapshot is complete", 1);
    assert_eq!(
        told(world, &topic, 6),
        [&all[..], &all].concat(),
        "{}",
        walferry.output()
    );

    sql.run(
        "insert into signals values ('block', 'execute-snapshot', '{\"data-collections\": [\"public.items\"], \"type\": \"blocking\"}')",
    );
    assert_eq!(told(world, &topic, 9)[6..], all, "{}", walferry.output());

    // The value is not in the stream, so it is read again.
    sql.run("update items set v = repeat('x', 5000) where id = 1; update items set secret = 'other' where id = 1");
    let long = row("u", 1, &"x".repeat(5000));
    assert_eq!(
        told(world, &topic, 11)[9..],
        [long.clone(), long],
        "{}",
        walferry.output()
    );
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn a_select_that_reads_a_view_needs_nothing_on_the_table_behind_it() {
    let name = "view_grant";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "create role view_reader login replication;
         create schema inner_part; create table inner_part.items (id int primary key, v text);
         insert into inner_part.items select i, 'v' || i from generate_series(1, 4) i;
         create view shown as select id, v from inner_part.items where id % 2 = 0;
         create publication {name} for table inner_part.items"
    ));
    let properties = [
        ("database.user", "view_reader"),
        ("publication.name", name),
        ("publication.autocreate.mode", "disabled"),
        ("table.include.list", "inner_part.items"),
        ("snapshot.mode", "initial"),
        ("snapshot.select.statement.overrides", "inner_part.items"),
        (
            "snapshot.select.statement.overrides.inner_part.items",
            "select id, v from public.shown",
        ),
    ];
    let mut config = config(name, &database, &properties);
    config.remove("signal.data.collection");

    // Without a privilege on the view, nothing is made.
    let mut walferry = Walferry::start(options(world, name, config.clone()));
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let checked = Checked::of(&options(world, name, config.clone()), &[]);
    assert_eq!(checked.code, Some(2), "{}", checked.stdout);
    for output in [walferry.output(), checked.stdout] {
        assert!(output.contains("permission denied for view shown"), "{output}");
    }
    let slots = sql.value("select count(*) from pg_replication_slots where slot_name = 'view_grant'");
    assert_eq!(slots.as_deref(), Some("0"));

    sql.run("grant select on shown to view_reader");
    let checked = Checked::of(&options(world, name, config.clone()), &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let mut walferry = Walferry::start(options(world, name, config));
    walferry.wait_until_ready();
    sql.run("insert into inner_part.items values (5, 'v5')");
    let topic = format!("{name}.inner_part.items");
    assert_eq!(
        told(world, &topic, 3),
        [
            "r {\"id\":2,\"v\":\"v2\"}",
            "r {\"id\":4,\"v\":\"v4\"}",
            "c {\"id\":5,\"v\":\"v5\"}"
        ]
    );
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// As a secret store leases roles: each login becomes the owner, which may not replicate.
#[test]
fn a_role_that_becomes_another_streams_by_the_privileges_of_its_login() {
    let name = "leased";
    let (world, database) = begin(name);
    let sql = database.sql();
    sql.run(&format!(
        "create role lease_owner; create role lease login in role lease_owner; alter role lease set role to lease_owner;
         create table items (id int primary key, v text); insert into items values (1, 'old');
         alter table items owner to lease_owner; create publication {name} for table items"
    ));
    let properties = [
        ("database.user", "lease"),
        ("publication.name", name),
        ("publication.autocreate.mode", "disabled"),
        ("snapshot.mode", "initial"),
    ];
    let mut config = config(name, &database, &properties);
    config.remove("signal.data.collection");
    let mut walferry = Walferry::start(options(world, name, config.clone()));
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let checked = Checked::of(&options(world, name, config.clone()), &[]);
    for output in [walferry.output(), checked.stdout] {
        assert!(
            output.contains("role \"lease\" is not allowed to use replication"),
            "{output}"
        );
        assert!(output.contains("ALTER ROLE \"lease\" REPLICATION;"), "{output}");
    }

    sql.run("alter role lease replication");
    let checked = Checked::of(&options(world, name, config.clone()), &[]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let mut walferry = Walferry::start(options(world, name, config));
    walferry.wait_until_ready();
    sql.run("update items set v = 'new'");
    assert_eq!(
        told(world, &format!("{name}.public.items"), 2),
        ["r {\"id\":1,\"v\":\"old\"}", "u {\"id\":1,\"v\":\"new\"}"]
    );
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}
