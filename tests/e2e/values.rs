//! Values whose text depends on settings of the database or of the session.

use serde_json::Value;
use walferry_testkit::servers::{Database, Postgres, PostgresOptions, Walferry, WalferryOptions};

use crate::signals::{self, SIGNALS, execute, wait_for_log};
use crate::world;

const READER: &str = "create role reader login replication in role pg_read_all_data";

/// Starts a connector of the role `reader` for the table `items`, with a publication that exists.
fn start(database: &Database, name: &str, properties: &[(&str, &str)]) -> Walferry {
    let mut all = vec![
        ("database.user", "reader"),
        ("publication.autocreate.mode", "disabled"),
        ("publication.name", "all_items"),
        ("snapshot.mode", "initial"),
        ("decimal.handling.mode", "string"),
    ];
    all.extend(properties);
    Walferry::start(WalferryOptions {
        name: name.to_owned(),
        config: signals::config(name, database, &all),
        worker: vec!["offset.flush.interval.ms=20".into()],
        bootstrap: world::shared().kafka.bootstrap(),
        env: Vec::new(),
    })
}

fn amounts(name: &str, count: usize) -> Vec<String> {
    let records = world::shared()
        .kafka
        .wait_for_records(&format!("{name}.public.items"), count);
    let amount = |value: Value| value["after"]["m"].as_str().map(str::to_owned);
    records
        .iter()
        .map(|record| amount(signals::value(record)).expect("an amount"))
        .collect()
}

/// The stored number of an amount has no point. The database's `lc_monetary` says where it is: applications write by this setting, and our
/// own session, which writes the text, may have another one.
#[test]
fn money_is_right_in_every_locale_whatever_the_session_has() {
    let postgres = Postgres::start_with(&PostgresOptions {
        locales: ["de_DE", "ja_JP", "ar_KW", "es_CL"].map(String::from).into(),
        settings: vec!["lc_monetary = 'ar_KW.UTF-8'".into()],
        ..PostgresOptions::default()
    });
    postgres.sql().run(&format!(
        "{READER}; create role plain login replication in role pg_read_all_data"
    ));
    // What the role `reader` has must not matter.
    postgres.sql().run("alter role reader set lc_monetary = 'ja_JP.UTF-8'");
    let cases = [
        (
            "german",
            "de_DE.UTF-8",
            "reader",
            ["1234567.89", "-0.05", "92233720368547758.07"],
        ),
        ("yen", "ja_JP.UTF-8", "reader", ["1234568", "-5", "9223372036854775807"]),
        (
            "chilean",
            "es_CL.UTF-8",
            "reader",
            ["1234567.89", "-0.05", "92233720368547758.07"],
        ),
        (
            "dinar",
            "ar_KW.UTF-8",
            "reader",
            ["1234.567", "-0.005", "9223372036854775.807"],
        ),
        ("plain", "C", "reader", ["1234567.89", "-0.05", "92233720368547758.07"]),
        // The setting of the server, which the role does not hide.
        ("of_server", "", "plain", ["1234.567", "-0.005", "9223372036854775.807"]),
    ];
    for (name, locale, role, expected) in cases {
        let name = format!("money_{name}");
        let database = postgres.database(&name);
        let sql = database.sql();
        let own = match locale {
            "" => String::new(),
            _ => format!("alter database {name} set lc_monetary = '{locale}';"),
        };
        sql.run(&format!(
            "{own} {SIGNALS}; grant insert on signals to reader, plain;
             create table items (id int primary key, m money);
             create publication all_items for table items, signals"
        ));
        // Another session, which has the database's setting.
        let application = postgres.in_database(&name);
        let insert = |first: usize| {
            for (at, amount) in expected.iter().enumerate() {
                application.run(&format!(
                    "insert into items values ({}, '{amount}'::numeric::money)",
                    first + at
                ));
            }
        };
        insert(1);
        let mut walferry = start(&database, &name, &[("database.user", role)]);
        walferry.wait_until_ready();
        wait_for_log(&mut walferry, "all existing rows are read", 1);
        insert(11);
        assert_eq!(
            amounts(&name, 6),
            [expected, expected].concat(),
            "{locale}: snapshot and stream"
        );
        sql.run(&execute("public.items"));
        assert_eq!(
            amounts(&name, 12)[6..],
            [expected, expected].concat(),
            "{locale}: chunks"
        );
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }

    // Nobody can say how many decimal places there are: the role's setting hides the server's.
    let name = "money_hidden";
    let database = postgres.database(name);
    database.sql().run(
        "create table items (id int primary key, m money); insert into items values (1, 1);
         create publication all_items for table items",
    );
    let mut walferry = start(&database, name, &[]);
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let output = walferry.output();
    assert!(
        output.contains("decimal places of money")
            && output.contains("ALTER DATABASE \"money_hidden\" SET lc_monetary"),
        "{output}"
    );
}

/// A database in SQL_ASCII takes any bytes. The server refuses to send them, and says which change it is.
#[test]
fn bytes_that_have_no_form_in_utf8_stop_with_the_position_of_their_change() {
    let (name, ascii) = ("values_ascii", "values_sql_ascii");
    let world = world::shared();
    let database = world.postgres.database(name);
    database.sql().run(&format!(
        "create database {ascii} encoding 'SQL_ASCII' template template0"
    ));
    let sql = world.postgres.in_database(ascii);
    sql.run("create table items (id int primary key, v text)");
    let mut config = signals::config(name, &database, &[("database.dbname", ascii)]);
    config.remove("signal.data.collection");
    let mut walferry = signals::start_as(world, name, config);
    sql.run(r"insert into items values (1, convert_from('\xe9', 'SQL_ASCII'))");
    assert_eq!(walferry.wait(), Some(2), "{}", walferry.output());
    let output = walferry.output();
    assert!(
        output.contains("associated LSN") && output.contains("have no form in UTF-8"),
        "{output}"
    );
}
