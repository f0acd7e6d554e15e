//! `walferry check --fix` on a real Postgres: what it prints, what it runs, and what it leaves to a person.

use std::fs;

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Checked, Database, WalferryOptions, folder};

use crate::{show::config, world};

/// What the connector's role and its publication lack.
fn lacking(database: &Database) -> Vec<Vec<Option<String>>> {
    database.sql().rows(
        "select has_table_privilege('fix_cdc', 'orders', 'select'), exists (select from pg_publication where pubname = 'fixed'),
           (select relreplident from pg_class where relname = 'log'),
           (select rolreplication from pg_roles where rolname = 'fix_cdc'), current_setting('max_slot_wal_keep_size')",
    )
}

fn row(values: [&str; 5]) -> Vec<Vec<Option<String>>> {
    vec![values.map(|value| Some(value.to_owned())).to_vec()]
}

#[test]
fn sql_that_needs_no_superuser_runs_after_a_yes_and_the_rest_is_only_printed() {
    let world = world::shared();
    let database = world.postgres.database("fixed");
    database.sql().run(
        "create role fix_app login; create role fix_cdc login;
         grant create on database fixed to fix_app; grant create on schema public to fix_app;
         set role fix_app;
         create table orders (id int primary key); create table log (line text);
         create table parts (id int) partition by range (id);
         create table parts_1 partition of parts for values from (0) to (10);
         insert into log values ('x'); insert into parts values (1);
         reset role",
    );
    let mut properties: Map<String, Value> = config(
        &database,
        "fixed",
        &[
            ("database.user", "fix_cdc"),
            ("publication.autocreate.mode", "disabled"),
            ("table.include.list", "public.log,public.orders,public.parts"),
        ],
    );
    properties.remove("database.password");
    let options = WalferryOptions {
        name: "fixed".into(),
        config: properties,
        worker: Vec::new(),
        bootstrap: world.kafka.bootstrap(),
        // What it says on a terminal is compared as text.
        env: vec![("NO_COLOR".into(), "1".into())],
    };
    let nothing = row(["f", "f", "d", "f", "-1"]);

    // Nobody can say yes here.
    let checked = Checked::of(&options, &["--fix", "--fix-as", "fix_app"]);
    let said = &checked.stdout;
    assert_eq!(checked.code, Some(2), "{said}{}", checked.stderr);
    for statement in [
        "  GRANT SELECT ON \"public\".\"log\", \"public\".\"orders\", \"public\".\"parts\" TO \"fix_cdc\";",
        // Before they are published: the application goes on all the time.
        "  ALTER TABLE \"public\".\"log\" REPLICA IDENTITY FULL;\n  ALTER TABLE \"public\".\"parts\" REPLICA IDENTITY FULL;\n  \
         ALTER TABLE \"public\".\"parts_1\" REPLICA IDENTITY FULL;\n  \
         CREATE PUBLICATION \"fixed\" FOR TABLE \"public\".\"log\", \"public\".\"orders\", \"public\".\"parts\";",
        "  -- this needs a superuser\n  ALTER ROLE \"fix_cdc\" REPLICATION;",
        "nothing was run: standard input is no terminal",
    ] {
        assert!(said.contains(statement), "{statement:?} is missing in:\n{said}");
    }
    assert_eq!(lacking(&database), nothing);

    // The role that may not: nothing is done halfway in silence.
    let checked = Checked::of(&options, &["--fix", "--yes"]);
    assert_eq!(checked.code, Some(2), "{}", checked.stdout);
    assert!(
        checked.stderr.contains("role \"fix_cdc\" could not run"),
        "{}",
        checked.stderr
    );
    assert_eq!(lacking(&database), nothing);

    // A person says yes to what the owner may do, and no to what needs a superuser. A second connector has the same publication.
    let mut second = options.config.clone();
    second.insert("slot.name".into(), "fixed_2".into());
    second.insert("topic.prefix".into(), "fixed_2".into());
    let file = folder("fix").join("second.json");
    let connector = json!({ "name": "fixed_2", "config": second });
    fs::write(&file, connector.to_string()).expect("the folder can be written");
    let file = file.to_str().expect("it is text");
    let arguments = ["--config", file, "--fix", "--fix-as", "fix_app"];
    let checked = Checked::at_a_terminal(&options, &arguments, &format!("y\n{}", "n\n".repeat(8)));
    database.sql().run("update log set line = 'y'; delete from parts");
    let said = &checked.stdout;
    for asked in [
        "above that need no superuser, as role \"fix_app\"? [y/N] ",
        "Run as role \"fix_app\": ALTER ROLE \"fix_cdc\" REPLICATION; [y/N] ",
    ] {
        assert!(said.contains(asked), "{asked:?} is missing in:\n{said}");
    }
    assert!(said.contains("checking again"), "{said}{}", checked.stderr);
    assert_eq!(lacking(&database), row(["t", "t", "f", "f", "-1"]), "{said}");
    assert_eq!(checked.code, Some(2), "{said}");
    let again = said.split_once("checking again").expect("found above").1;
    assert!(
        again.contains("obstacle role \"fix_cdc\" is not allowed to use replication"),
        "{again}"
    );
    assert_eq!(again.matches("  obstacle ").count(), 2, "{again}");

    // What needs a superuser is left to one, though it is asked for with a yes.
    let checked = Checked::of(&options, &["--fix", "--yes", "--fix-as", "fix_app"]);
    assert_eq!(checked.code, Some(2), "{}", checked.stdout);
    assert_eq!(
        lacking(&database),
        row(["t", "t", "f", "f", "-1"]),
        "{}",
        checked.stdout
    );

    database.sql().run("alter role fix_cdc replication");
    let checked = Checked::of(&options, &["--fix", "--yes"]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    database
        .sql()
        .run("drop owned by fix_app, fix_cdc; drop role fix_app, fix_cdc");
}
