//! The README's commands for one's own Postgres, run as they stand there.

use std::{fs, path::Path};

use serde_json::{Map, Value};
use walferry_testkit::servers::{Checked, Walferry, WalferryOptions};

use crate::world;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ is a folder of the checkout");
    fs::read_to_string(root.join(path)).unwrap_or_else(|problem| panic!("{path}: {problem}"))
}

#[test]
fn the_lines_of_the_readme_send_the_rows_of_two_tables() {
    let world = world::shared();
    let database = world.postgres.database("readme");
    database.sql().run(
        "create table customers (id int primary key, name text, password_hash text, tax_id text);
         create table orders (id int primary key, total numeric(10,2));
         insert into customers values (1, 'Ada', 'not for others', '12345678')",
    );
    let readme = read("README.md");
    let psql = readme
        .lines()
        .find(|line| line.starts_with("psql -c "))
        .expect("README shows the SQL");
    for statement in psql.split('"').skip(1).step_by(2) {
        database.sql().run(statement);
    }

    // What README says to edit, and nothing else.
    let file: Value = serde_json::from_str(&read("config/table-changes.json")).expect("the file is JSON");
    let mut config: Map<String, Value> = file["config"].as_object().expect("it has properties").clone();
    for (property, value) in [
        ("database.hostname", "127.0.0.1".to_owned()),
        ("database.port", database.port().to_string()),
        ("database.user", "cdc".to_owned()),
        ("database.password", "secret".to_owned()),
        ("database.dbname", database.name().to_owned()),
    ] {
        assert!(
            config.insert(property.into(), value.into()).is_some(),
            "the file has {property}"
        );
    }
    let options = WalferryOptions {
        name: "inventory".into(),
        config,
        worker: Vec::new(),
        bootstrap: world.kafka.bootstrap(),
        env: Vec::new(),
    };

    let checked = Checked::of(&options, &["--show-records"]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    assert!(
        checked.stdout.contains("nothing prevents a start"),
        "{}",
        checked.stdout
    );

    let mut walferry = Walferry::start(options);
    let customers = world.kafka.wait_for_records("inventory.public.customers", 1);
    let customer = String::from_utf8_lossy(customers[0].value.as_deref().expect("a row has a value")).into_owned();
    assert!(
        customer.contains("Ada") && !customer.contains("not for others"),
        "{customer}"
    );
    // The existing rows are read; what follows comes through the publication.
    walferry.wait_until_ready();
    database.sql().run("insert into orders values (1, 9.90)");
    world.kafka.wait_for_records("inventory.public.orders", 1);
    walferry.terminate();
    database
        .sql()
        .run("select pg_drop_replication_slot('inventory'); drop owned by cdc; drop role cdc");
}
