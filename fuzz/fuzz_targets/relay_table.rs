//! A table with any columns as an outbox in relay mode. First line: bytes that choose types and settings. Second and third: schema and table.
//! Fourth: the default of each column. Fifth: message keys. Then the names of the columns.
#![no_main]

use std::{sync::LazyLock, time::Duration};

use libfuzzer_sys::fuzz_target;
use walferry_config::{
    Connector, Findings, Nowhere, Submitted, Worker,
    connector::{RelayDone, RelaySection},
};
use walferry_diagnosis::{Diagnosis, printed::is_control};
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts, TypeFacts, TypeKind};
use walferry_pgoutput::Oid;

#[allow(dead_code)]
#[path = "../../crates/walferry-relay/src/statements.rs"]
mod statements;
#[allow(dead_code)]
#[path = "../../crates/walferry-relay/src/table.rs"]
mod table;

use statements::{FailedAttempt, InLook, LookOptions, RowAddress, ServerTimeouts};
use table::{RelayTable, quoted};

static SECTION: LazyLock<RelaySection> = LazyLock::new(|| {
    let properties = [
        ("connector.class", "walferry.OutboxRelay"),
        ("database.hostname", "db"),
        ("database.user", "u"),
        ("database.dbname", "d"),
        ("topic.prefix", "t"),
    ];
    let submitted = Submitted {
        name: Some("c".into()),
        properties: properties.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
    };
    let (connector, _) = Connector::read(&submitted, None, &Worker::default(), &Nowhere, &|_| Findings::default());
    let section = connector.and_then(|connector| connector.relay);
    section.expect("the configuration is one of relay mode")
});

/// What is left of a statement without names and texts in quotes. `None` if a quote does not end.
fn outside(statement: &str) -> Option<String> {
    let mut left = String::new();
    let mut symbols = statement.chars().peekable();
    let mut before = ' ';
    while let Some(symbol) = symbols.next() {
        if symbol == '"' || symbol == '\'' {
            let has_escapes = symbol == '\'' && before == 'E';
            loop {
                match symbols.next()? {
                    '\\' if has_escapes => drop(symbols.next()?),
                    inner if inner == symbol => match symbols.peek() {
                        Some(next) if *next == symbol => drop(symbols.next()),
                        _ => break,
                    },
                    _ => {}
                }
            }
        } else {
            left.push(symbol);
        }
        before = symbol;
    }
    Some(left)
}

fn assert_harmless(statement: &str) {
    assert!(!statement.chars().any(|symbol| symbol != '\n' && is_control(symbol)), "{statement:?}");
    let left = outside(statement).unwrap_or_else(|| panic!("a quote does not end: {statement:?}"));
    assert!(left.is_ascii() && !left.contains("--") && !left.contains("/*") && !left.contains('\\'), "{left:?} of {statement:?}");
    assert!(!left.to_ascii_lowercase().contains("owned"), "{left:?} of {statement:?}");
}

fn assert_readable(problem: &Diagnosis) {
    for text in [Some(problem.sentence().into_owned()), problem.hint.clone()].into_iter().flatten() {
        assert!(!walferry_diagnosis::printed::one_line(&text).chars().any(is_control));
    }
}

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input).replace('\0', "");
    let mut lines = text.split('\u{1}');
    let mut next = || lines.next().unwrap_or_default();
    let (choices, schema, name, default, keys) = (next().as_bytes(), next(), next(), next(), next());
    let choice = |place: usize| choices.get(place).copied().unwrap_or_default();
    let words = quoted(default);
    assert!(words.iter().map(String::len).sum::<usize>() <= default.len());
    let mut columns = Vec::new();
    for (number, name) in lines.take(12).enumerate() {
        let types = [16, 20, 21, 23, 25, 1043, 1114, 1184, 2950, 90_000];
        columns.push(ColumnFacts {
            name: name.to_owned(),
            number: number as i16 + 1,
            type_oid: Oid(types[usize::from(choice(number + 1)) % types.len()]),
            type_modifier: i32::from(choice(number + 2)) - 1,
            not_null: false,
            default: Some(default.to_owned()),
            generated: choice(number) & 0x40 != 0,
            identity: false,
            comment: None,
        });
    }
    let named: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
    let facts = TableFacts {
        oid: Oid(u32::from(choice(3)) << 24),
        schema: schema.to_owned(),
        name: name.to_owned(),
        primary_key: named.iter().take(usize::from(choice(0) & 3)).cloned().collect(),
        columns,
        unique_indexes: Vec::new(),
        comment: None,
        partition: false,
    };
    let types = vec![TypeFacts {
        oid: Oid(90_000),
        schema: "public".to_owned(),
        name: name.to_owned(),
        on_path: true,
        kind: TypeKind::Enum { labels: words.clone() },
    }];
    let mut section = SECTION.clone();
    if choice(0) & 4 != 0 {
        section.done = Some(RelayDone::Delete);
    }
    if choice(0) & 8 != 0 {
        (section.pending, section.sent, section.failed) = (Some(keys.to_owned()), Some(default.to_owned()), Some(name.to_owned()));
    }
    if choice(0) & 16 != 0 {
        section.columns.attempts = named.last().cloned();
        section.order_by = named.iter().rev().take(2).cloned().collect();
    }
    let key: Vec<String> = named.iter().skip(1).take(usize::from(choice(0) >> 5 & 1)).cloned().collect();
    let of_column: Vec<(String, Vec<String>)> = named.iter().map(|name| (name.clone(), words.clone())).collect();
    let catalog = Catalog { table: Some(facts), types };
    let table = match RelayTable::recognise(catalog, &section, &key, &of_column) {
        Ok(table) => table,
        Err(problems) => {
            assert!(!problems.is_empty());
            problems.iter().for_each(assert_readable);
            return;
        }
    };
    [table.missing(), table.random_order()].iter().flatten().for_each(assert_readable);
    let keys: Vec<String> = keys.split(',').map(ToOwned::to_owned).collect();
    let options = LookOptions {
        token: "t",
        first_lane: 1,
        lanes: 8,
        rows: 10,
        without_keys: &keys,
        server: ServerTimeouts {
            transaction: choice(1) & 1 != 0,
            tcp_user: choice(1) & 2 != 0,
        },
    };
    let look = InLook {
        token: "t",
        own_path: "public",
    };
    let row = RowAddress {
        table_oid: 1,
        ctid: "(0,1)".to_owned(),
    };
    let attempt = FailedAttempt {
        attempts: 1,
        error: default,
        pause: Duration::from_secs(1),
        is_last: choice(1) & 2 != 0,
    };
    let mut all = vec![
        statements::look(&table, options),
        statements::owners_of_lanes(&table),
        statements::is_open(&table),
        statements::privileges(&table),
        statements::peek(&table),
    ];
    all.extend(statements::done(&table, std::slice::from_ref(&row), look));
    all.extend(statements::failed(&table, &row, &attempt, look));
    all.extend(statements::count_failed(&table, &keys));
    all.extend(statements::retry(&table, &keys, 10, "public"));
    all.extend(statements::indexes(&table).into_iter().map(|index| index.statement()));
    all.iter().for_each(|statement| assert_harmless(statement));
    assert_harmless(&table.sentence());
});
