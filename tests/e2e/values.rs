//! Values whose text depends on settings of the database or of the session.

use serde_json::Value;
use walferry_testkit::servers::{Database, Postgres, PostgresOptions, Sql, Walferry, WalferryOptions};

use crate::signals::{self, SIGNALS, execute, wait_for_log};
use crate::world;

const READER: &str = "create role reader login replication in role pg_read_all_data";

/// Starts a connector of the role `reader` for the table `items`, with a publication that exists.
fn start_with(name: &str, database: &Database, properties: &[(&str, &str)]) -> Walferry {
    Walferry::start(WalferryOptions {
        name: name.to_owned(),
        config: signals::config(name, database, properties),
        worker: vec!["offset.flush.interval.ms=20".into()],
        bootstrap: world::shared().kafka.bootstrap(),
        env: Vec::new(),
    })
}

fn start(database: &Database, name: &str, properties: &[(&str, &str)]) -> Walferry {
    let mut all = vec![
        ("database.user", "reader"),
        ("publication.autocreate.mode", "disabled"),
        ("publication.name", "all_items"),
        ("snapshot.mode", "initial"),
        ("decimal.handling.mode", "string"),
    ];
    all.extend(properties);
    start_with(name, database, &all)
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

/// A database, and one of this encoding beside it, with rows of which one has bytes that UTF-8 may not know.
fn in_encoding(name: &str, encoding: &str, odd: &str) -> (Database, Sql) {
    let world = world::shared();
    let database = world.postgres.database(name);
    let own = format!("{name}_own");
    database.sql().run(&format!(
        "create database {own} encoding '{encoding}' template template0 lc_collate 'C' lc_ctype 'C'"
    ));
    let sql = world.postgres.in_database(&own);
    sql.run(&format!(
        "{SIGNALS}; create table items (id int primary key, v text, \"größe\" text default 'ä', n text not null);
         create publication \"veröffentlicht\" for table items, signals;
         insert into items (id, v, n) values (1, 'plain', 'n'), (2, {odd}, 'n'), (3, 'café', 'n')"
    ));
    (database, sql)
}

fn start_in_encoding(name: &str, database: &Database, properties: &[(&str, &str)]) -> Walferry {
    let own = format!("{name}_own");
    let mut all = vec![
        ("database.dbname", &*own),
        ("publication.autocreate.mode", "disabled"),
        ("publication.name", "veröffentlicht"),
        ("snapshot.mode", "initial"),
    ];
    all.extend(properties);
    start_with(name, database, &all)
}

/// Bytes as a text of this encoding, and what its events have.
const ODD: [(&str, &str, &str, Option<&str>); 4] = [
    ("ascii", "SQL_ASCII", "e9", None),
    ("win1252", "WIN1252", "81", None),
    // A pair to which the standard gives no character. Each letter with a mark has three bytes there.
    ("euc_jp", "EUC_JP", "a9a1", None),
    // In LATIN1, each byte is a character.
    ("latin1", "LATIN1", "81", Some("\u{81}")),
];

#[test]
fn texts_without_a_form_in_utf8_are_left_empty_in_stream_snapshot_and_chunks() {
    for (name, encoding, bytes, expected) in ODD {
        let name = format!("odd_{name}");
        let odd = format!("convert_from('\\x{bytes}', '{encoding}')");
        let (database, sql) = in_encoding(&name, encoding, &odd);
        let mut walferry = start_in_encoding(&name, &database, &[]);
        walferry.wait_until_ready();
        wait_for_log(&mut walferry, "all existing rows are read", 1);
        sql.run(&format!(
            "insert into items (id, v, n) values (4, {odd}, {odd}); insert into items (id, v, n) values (5, 'café', 'n')"
        ));
        let rows = |count| -> Vec<(i64, Option<String>, String, String)> {
            let records = world::shared()
                .kafka
                .wait_for_records(&format!("{name}.public.items"), count);
            let text = |value: &Value| value.as_str().map(str::to_owned);
            let row = |after: &Value| {
                let (v, name, n) = (text(&after["v"]), text(&after["größe"]), text(&after["n"]));
                (after["id"].as_i64().unwrap(), v, name.unwrap(), n.unwrap())
            };
            records
                .iter()
                .map(|record| row(&signals::value(record)["after"]))
                .collect()
        };
        // A column that is NOT NULL has an empty text.
        let required = expected.unwrap_or_default();
        let all = [
            (1, Some("plain"), "n"),
            (2, expected, "n"),
            (3, Some("café"), "n"),
            (4, expected, required),
            (5, Some("café"), "n"),
        ]
        .map(|(id, v, n)| (id, v.map(str::to_owned), "ä".to_owned(), n.to_owned()));
        assert_eq!(rows(5), all, "{encoding}: snapshot and stream");
        sql.run(&execute("public.items"));
        assert_eq!(rows(10)[5..], all, "{encoding}: chunk");
        let output = walferry.output();
        let warned = output.contains("have no form in UTF-8: 0x");
        assert_eq!(warned, expected.is_none(), "{output}");
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
}

#[test]
fn a_text_without_a_form_in_utf8_stops_with_its_table_column_position_and_bytes() {
    let fail = [("event.converting.failure.handling.mode", "fail")];
    for (name, encoding, bytes, _) in ODD.iter().filter(|(.., expected)| expected.is_none()) {
        let odd = format!("convert_from('\\x{bytes}', '{encoding}')");
        for (place, snapshot_mode) in [("stream", "no_data"), ("snapshot", "initial")] {
            let name = format!("odd_{name}_{place}");
            let (database, sql) = in_encoding(&name, encoding, &odd);
            let mode = ("snapshot.mode", snapshot_mode);
            let mut walferry = start_in_encoding(&name, &database, &[fail[0], mode]);
            if place == "stream" {
                walferry.wait_until_ready();
                sql.run(&format!("insert into items (id, v, n) values (4, {odd}, 'n')"));
            }
            assert_eq!(walferry.wait(), Some(3), "{}", walferry.output());
            let output = walferry.output();
            let shown = match bytes.split_at_checked(2) {
                Some((first, second)) if !second.is_empty() => format!("0x{first} 0x{second}"),
                _ => format!("0x{bytes}"),
            };
            let told = format!(
                "column v of table public.items (type text): the text has bytes that have no form in UTF-8: {shown}"
            );
            assert!(output.contains(&told) && output.contains("LSN "), "{output}");
        }
    }
}

/// The rows of a chunk are asked for by the key of the last one.
#[test]
fn a_key_without_a_form_in_utf8_ends_the_incremental_snapshot_of_its_table() {
    let name = "odd_key";
    let (database, sql) = in_encoding(name, "SQL_ASCII", "'x'");
    sql.run(
        r"create table items_k (k text primary key); alter publication veröffentlicht add table items_k;
          insert into items_k values ('a'), (convert_from('\xe9', 'SQL_ASCII'))",
    );
    let mut walferry = start_in_encoding(name, &database, &[("snapshot.mode", "no_data")]);
    walferry.wait_until_ready();
    sql.run(&execute("public.items_k"));
    wait_for_log(&mut walferry, "has a value with bytes without a form in UTF-8: 0xe9", 1);
    sql.run(&execute("public.items"));
    world::shared()
        .kafka
        .wait_for_records(&format!("{name}.public.items"), 3);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

/// The characters that Walferry knows are those that the server knows.
#[test]
fn encodings_are_those_of_the_server() {
    let database = world::shared().postgres.database("odd_tables");
    let sql = database.sql();
    sql.try_run(
        "create function known(byte int, encoding text) returns text language plpgsql as $$
         begin return to_hex(ascii(convert_from(set_byte('\\x00', 0, byte), encoding)));
         exception when others then return '-'; end $$",
    )
    .unwrap();
    for line in include_str!("../../crates/walferry-postgres/src/encodings.txt").lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(encoding) = words.next().filter(|name| *name != "#") else {
            continue;
        };
        let query = format!(
            "select string_agg(known(byte, '{encoding}'), ' ' order by byte) from generate_series(128, 255) byte"
        );
        assert_eq!(
            sql.value(&query).unwrap(),
            words.collect::<Vec<_>>().join(" "),
            "{encoding}"
        );
    }
    sql.try_run(
        "create function known_as(bytes bytea, encoding text) returns text language plpgsql as $$
         begin return (select string_agg(to_hex(ascii(c)), '+' order by n)
                       from regexp_split_to_table(convert_from(bytes, encoding), '') with ordinality x(c, n));
         exception when others then return '-'; end $$",
    )
    .unwrap();
    // All first bytes that a character may have, with all last ones.
    let query = "
        with leads as (
          select e, set_byte('\\x00', 0, i) lead
          from unnest(array['EUC_JP', 'EUC_JIS_2004', 'EUC_CN', 'EUC_KR', 'EUC_TW']) e, generate_series(161, 254) i
          union all select e, '\\x8e' from unnest(array['EUC_JP', 'EUC_JIS_2004']) e
          union all select e, set_byte('\\x8f00', 1, i) from unnest(array['EUC_JP', 'EUC_JIS_2004']) e, generate_series(161, 254) i
          union all select 'EUC_TW', set_byte(set_byte('\\x8e0000', 1, p), 2, i) from generate_series(161, 176) p, generate_series(161, 254) i
        ), lines as (
          select e || ' ' || encode(lead, 'hex') line, array_agg(known_as(lead || set_byte('\\x00', 0, b), e) order by b) codes
          from leads, generate_series(161, 254) b group by e, lead
        )
        select string_agg(line || ' ' || array_to_string(codes, ' '), ';') from lines where not codes <@ array['-']";
    let found = sql.value(query).unwrap();
    let mut of_server: Vec<&str> = found.split(';').collect();
    let known = include_str!("../../crates/walferry-postgres/src/encoding/euc.txt").lines();
    let mut known: Vec<&str> = known.filter(|line| !line.starts_with('#')).collect();
    of_server.sort_unstable();
    known.sort_unstable();
    assert_eq!(of_server.len(), known.len());
    for (of_server, known) in of_server.iter().zip(known) {
        assert_eq!(*of_server, known);
    }
}
