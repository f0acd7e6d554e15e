//! Row changes become the records that Debezium sends.

mod support;

use std::sync::Arc;

use support::{Col, Table, col, context, settings, stored, table};
use walferry_event::catalog::TypeKind;
use walferry_event::{ChangeOutcome, Error, EventSettings, LeftOutReason, Reason, Skipped, TablePlan};
use walferry_pgoutput::{Change, Column, OldTuple, Operation, ReplicaIdentity, TupleBuf};
use walferry_record::{Record, Value};

const INT4: u32 = 23;
const TEXT: u32 = 25;
const FLOAT8: u32 = 701;
const NUMERIC: u32 = 1700;

fn tuple(values: &[Column<'_>]) -> TupleBuf {
    TupleBuf::new(values.iter().copied()).unwrap()
}

fn text(value: &str) -> Column<'_> {
    Column::Text(value.as_bytes())
}

fn keyed() -> Table {
    table(&[col("id", INT4), col("v", TEXT)], &["id"])
}

/// Key, operation, before and after of each record, with the names of the headers that are not the context's.
fn shorten(outcome: ChangeOutcome<'_>) -> Vec<String> {
    outcome
        .records
        .into_iter()
        .map(|record| shorten_record(&record))
        .collect()
}

fn shorten_record(record: &Record<'_>) -> String {
    let key = value(&record.key.value);
    let headers = record
        .headers
        .iter()
        .map(|header| &*header.name)
        .filter(|name| !name.contains("context"));
    let headers: Vec<&str> = headers.collect();
    match &record.value.value {
        Value::Struct(envelope) => {
            let field = |name| value(stored(envelope, name).unwrap());
            format!(
                "{key} {} {} -> {} {headers:?}",
                field("op"),
                field("before"),
                field("after")
            )
        }
        _ => format!("{key} tombstone {headers:?}"),
    }
}

fn value(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Int32(n) => n.to_string(),
        Value::String(text) => text.to_string(),
        Value::Struct(row) => {
            let fields = row.schema().fields().iter().zip(row.values());
            let fields: Vec<String> = fields
                .map(|(field, v)| format!("{}={}", field.name, self::value(v)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        other => format!("{other:?}"),
    }
}

fn records(plan: &TablePlan, operation: Operation<'_>) -> Vec<String> {
    let change = Change {
        relation: keyed().relation.oid,
        operation,
    };
    shorten(plan.records(&change, &context(), None).unwrap())
}

#[test]
fn each_kind_of_change_has_its_records() {
    let plan = keyed().plan(&settings(&[]));
    let two = tuple(&[text("2"), text("two")]);
    let big = tuple(&[text("2"), text("TWO")]);
    let moved = tuple(&[text("3"), text("TWO")]);
    let key = tuple(&[text("2"), Column::Null]);
    let key = OldTuple::Key(key.as_tuple());
    let cases = [
        (
            Operation::Insert { new: two.as_tuple() },
            vec!["{id=2} c null -> {id=2,v=two} []"],
        ),
        (
            Operation::Update {
                old: None,
                new: big.as_tuple(),
            },
            vec!["{id=2} u null -> {id=2,v=TWO} []"],
        ),
        (
            Operation::Update {
                old: Some(key),
                new: moved.as_tuple(),
            },
            vec![
                r#"{id=2} d {id=2,v=null} -> null ["__debezium.newkey"]"#,
                r#"{id=2} tombstone ["__debezium.newkey"]"#,
                r#"{id=3} c null -> {id=3,v=TWO} ["__debezium.oldkey"]"#,
            ],
        ),
        (
            Operation::Update {
                old: Some(OldTuple::Full(two.as_tuple())),
                new: big.as_tuple(),
            },
            vec!["{id=2} u {id=2,v=two} -> {id=2,v=TWO} []"],
        ),
        (
            Operation::Delete { old: key },
            vec!["{id=2} d {id=2,v=null} -> null []", "{id=2} tombstone []"],
        ),
    ];
    for (operation, expected) in cases {
        assert_eq!(records(&plan, operation), expected, "{operation:?}");
    }
}

#[test]
fn an_update_moves_the_key_if_it_has_records_for_two_keys() {
    let plan = keyed().plan(&settings(&[]));
    let whole = tuple(&[text("2"), text("two")]);
    let key = tuple(&[text("2"), Column::Null]);
    for old in [OldTuple::Full(whole.as_tuple()), OldTuple::Key(key.as_tuple())] {
        for (new, moves) in [
            (tuple(&[text("3"), text("two")]), true),
            (tuple(&[text("2"), text("TWO")]), false),
            (tuple(&[Column::Unchanged, text("TWO")]), false),
        ] {
            let new = new.as_tuple();
            assert_eq!(plan.moves_key(old, new), moves, "{old:?} {new:?}");
            let update = Operation::Update { old: Some(old), new };
            assert_eq!(
                records(&plan, update).len(),
                if moves { 3 } else { 1 },
                "{old:?} {new:?}"
            );
        }
    }
}

#[test]
fn unchanged_toast_is_taken_from_the_old_row_where_that_has_it() {
    let plan = keyed().plan(&settings(&[]));
    let new = tuple(&[text("2"), Column::Unchanged]);
    let old = tuple(&[text("2"), text("large")]);
    let empty = tuple(&[text("2"), Column::Null]);
    let cases = [
        (None, "{id=2} u null -> {id=2,v=__debezium_unavailable_value} []"),
        (
            Some(OldTuple::Full(old.as_tuple())),
            "{id=2} u {id=2,v=large} -> {id=2,v=large} []",
        ),
        (
            Some(OldTuple::Key(empty.as_tuple())),
            "{id=2} u {id=2,v=null} -> {id=2,v=__debezium_unavailable_value} []",
        ),
    ];
    for (old, expected) in cases {
        assert_eq!(
            records(
                &plan,
                Operation::Update {
                    old,
                    new: new.as_tuple()
                }
            ),
            [expected]
        );
    }
}

#[test]
fn a_change_without_records_says_why() {
    let row = tuple(&[text("2"), text("two")]);
    let (row, old) = (row.as_tuple(), OldTuple::Full(row.as_tuple()));
    let insert = Operation::Insert { new: row };
    let update = Operation::Update {
        old: Some(old),
        new: row,
    };
    let delete = Operation::Delete { old };
    type Properties = &'static [(&'static str, &'static str)];
    let cases: [(Properties, Operation<'_>, Option<Skipped>); 7] = [
        (&[], insert, None),
        (&[("table.include.list", "public.other")], insert, Some(Skipped::Table)),
        (&[("schema.exclude.list", "PUB.*")], delete, Some(Skipped::Table)),
        (&[("skipped.operations", "c")], insert, Some(Skipped::Operation)),
        (&[("skipped.operations", "c,d")], delete, Some(Skipped::Operation)),
        (&[("skipped.operations", "c,d")], update, None),
        (
            &[("skip.messages.without.change", "true")],
            update,
            Some(Skipped::Unchanged),
        ),
    ];
    for (properties, operation, skipped) in cases {
        let plan = keyed().plan(&settings(properties));
        let change = Change {
            relation: keyed().relation.oid,
            operation,
        };
        let context = context();
        let outcome = plan.records(&change, &context, None).unwrap();
        assert_eq!(outcome.skipped, skipped, "{properties:?}");
        assert_eq!(
            outcome.records.into_iter().next().is_none(),
            skipped.is_some(),
            "{properties:?}"
        );
    }
}

/// `Double.equals`, by which Debezium compares keys and rows, has NaN equal to itself and zero different from its negative.
#[test]
fn keys_and_rows_are_compared_as_java_does() {
    let table = table(&[col("id", FLOAT8), col("v", TEXT)], &["id"]);
    let cases = [
        ("NaN", "NaN", 1, Some(Skipped::Unchanged)),
        ("0", "-0", 3, None),
        ("1.5", "1.5", 1, Some(Skipped::Unchanged)),
    ];
    for (old, new, records, skipped) in cases {
        let (old, new) = (tuple(&[text(old), text("a")]), tuple(&[text(new), text("a")]));
        let change = Change {
            relation: table.relation.oid,
            operation: Operation::Update {
                old: Some(OldTuple::Full(old.as_tuple())),
                new: new.as_tuple(),
            },
        };
        let plan = table.plan(&settings(&[]));
        let context = context();
        let outcome = plan.records(&change, &context, None).unwrap();
        assert_eq!(outcome.records.into_iter().count(), records, "{change:?}");
        let plan = table.plan(&settings(&[("skip.messages.without.change", "true")]));
        let outcome = plan.records(&change, &context, None).unwrap();
        assert_eq!(outcome.skipped, skipped, "{change:?}");
    }
}

#[test]
fn truncate_is_skipped_unless_told_otherwise() {
    let context = context();
    let plan = keyed().plan(&settings(&[]));
    assert_eq!(plan.truncate(&context, None).skipped, Some(Skipped::Operation));
    let plan = keyed().plan(&settings(&[("skipped.operations", "none")]));
    assert_eq!(shorten(plan.truncate(&context, None)), ["null t null -> null []"]);
}

#[test]
fn a_key_is_what_the_stream_says_where_the_catalog_has_moved_on() {
    let columns = [col("a", INT4), col("b", INT4), col("c", INT4)];
    let key = |table: &Table, settings: &Arc<EventSettings>| {
        let plan = table.plan(settings);
        let fields = plan.key_schema().map_or(&[][..], |schema| schema.fields());
        fields.iter().map(|field| field.name.to_string()).collect::<Vec<_>>()
    };
    let plain = settings(&[]);
    let mut moved_on = table(&columns, &["b", "a"]);
    assert_eq!(key(&moved_on, &plain), ["b", "a"], "the order is the index's");
    moved_on.catalog.table.as_mut().unwrap().primary_key = vec!["c".to_owned()];
    assert_eq!(key(&moved_on, &plain), ["a", "b"]);
    moved_on.relation.replica_identity = ReplicaIdentity::Full;
    assert_eq!(key(&moved_on, &plain), ["c"], "all columns are marked under FULL");
    let mut unique = table(&columns, &[]);
    unique.catalog.table.as_mut().unwrap().unique_indexes =
        vec![vec!["c".to_owned(), "a".to_owned()], vec!["b".to_owned()]];
    assert_eq!(key(&unique, &plain), ["c", "a"]);
    assert_eq!(
        key(&unique, &settings(&[("message.key.columns", "(.*).T:b,a;public.x:c")])),
        ["b", "a"]
    );
    assert_eq!(
        key(&unique, &settings(&[("message.key.columns", "(.*).T:b;(.*).T:a,b")])),
        ["b", "a"],
        "Debezium stops at a column that is named twice"
    );
    assert_eq!(key(&table(&columns, &[]), &plain), Vec::<String>::new());
    let dropped = Table {
        catalog: Default::default(),
        ..table(&columns, &["b"])
    };
    assert_eq!(key(&dropped, &plain), ["b"]);
}

#[test]
fn a_key_column_of_an_unknown_type_is_left_out_of_the_key() {
    let columns = [col("pair", 70_000), col("id", INT4), col("v", TEXT)];
    let keyed_by = |key| table(&columns, key).with_type(70_000, "pair", TypeKind::Composite);
    let row = tuple(&[text("(1,2)"), text("7"), text("x")]);
    let cases: [(&[&str], _); 2] = [
        (&["pair", "id"], "{id=7} c null -> {id=7,v=x} []"),
        (&["pair"], "{} c null -> {id=7,v=x} []"),
    ];
    for (key, expected) in cases {
        let plan = keyed_by(key).plan(&settings(&[]));
        assert_eq!(records(&plan, Operation::Insert { new: row.as_tuple() }), [expected]);
    }
    let plan = keyed_by(&["pair", "id"]).plan(&settings(&[]));
    let left_out: Vec<_> = plan
        .left_out()
        .iter()
        .map(|column| (&*column.column, column.why))
        .collect();
    assert_eq!(left_out, [("pair", LeftOutReason::UnknownType)]);
}

/// Debezium stops where the column is `NOT NULL`.
#[test]
fn a_key_column_whose_value_cannot_be_told_is_null() {
    let labels = vec!["ok".to_owned()];
    let of_key = |column: Col, value: Column<'static>| {
        let array = TypeKind::Array {
            element: 70_000.into(),
            delimiter: ',',
        };
        let table = table(&[column, col("v", TEXT)], &[])
            .with_type(70_000, "mood", TypeKind::Enum { labels: labels.clone() })
            .with_type(70_001, "_mood", array);
        let plan = table.plan(&settings(&[("message.key.columns", "(.*).T:x,v")]));
        let new = tuple(&[value, Column::Unchanged]);
        let change = Change {
            relation: table.relation.oid,
            operation: Operation::Update {
                old: None,
                new: new.as_tuple(),
            },
        };
        let outcome = plan.records(&change, &context(), None);
        outcome.map(shorten).map_err(|error| error.to_string())
    };
    let row = "{x=null,v=__debezium_unavailable_value}";
    let cases = [
        ("no placeholder", col("x", NUMERIC), Column::Unchanged),
        ("an element is null", col("x", 70_001), text("{ok,NULL}")),
    ];
    for (why, column, value) in cases {
        assert_eq!(
            of_key(column.clone(), value).unwrap(),
            [format!("{row} u null -> {row} []")]
        );
        assert!(of_key(column.not_null(), value).unwrap_err().contains(why));
    }
}

#[test]
fn facts_of_a_newer_catalog_are_not_used() {
    let stream = [
        col("id", INT4).not_null(),
        col("n", NUMERIC).modifier(655_366).not_null().default("1.5"),
    ];
    let agree = table(&stream, &["id"]).plan(&settings(&[]));
    let field = |plan: &TablePlan| plan.row_schema().field("n").unwrap().schema.clone();
    assert!(!field(&agree).optional && field(&agree).default.is_some());
    type Alter = fn(&mut Col);
    let newer: [(&str, Alter); 3] = [
        ("renamed", |column| column.name = "m".to_owned()),
        ("retyped", |column| column.type_oid = TEXT),
        ("widened", |column| column.modifier = 786_438),
    ];
    for (what, change) in newer {
        let mut now = stream.clone();
        change(&mut now[1]);
        let mixed = Table {
            relation: table(&stream, &["id"]).relation,
            ..table(&now, &["id"])
        };
        let schema = field(&mixed.plan(&settings(&[])));
        assert!(schema.optional && schema.default.is_none(), "{what}");
        assert_eq!(schema.name, field(&agree).name, "{what}");
    }
}

/// Debezium does not start on a database that has one.
#[test]
fn a_domain_over_an_enum_is_an_enum() {
    let labels = vec!["sad".to_owned(), "ok".to_owned()];
    let domain = TypeKind::Domain {
        base: 70_000.into(),
        modifier: -1,
        not_null: false,
    };
    let table = table(&[col("mood", 70_001)], &[])
        .with_type(70_000, "mood", TypeKind::Enum { labels })
        .with_type(70_001, "moods", domain);
    let plan = table.plan(&settings(&[]));
    let schema = plan.row_schema().field("mood").unwrap().schema.clone();
    assert!(schema.is_named("io.debezium.data.Enum"));
    assert_eq!(schema.parameters, [("allowed".into(), "sad,ok".into())]);
    let row = tuple(&[text("ok")]);
    assert_eq!(
        records(&plan, Operation::Insert { new: row.as_tuple() }),
        ["null c null -> {mood=ok} []"]
    );
}

#[test]
fn a_row_of_another_version_is_refused() {
    let plan = keyed().plan(&settings(&[]));
    let long = tuple(&[text("1"), text("x"), text("y")]);
    let change = Change {
        relation: keyed().relation.oid,
        operation: Operation::Insert { new: long.as_tuple() },
    };
    let error = plan.records(&change, &context(), None).unwrap_err();
    assert_eq!(
        error,
        Error::ColumnCount {
            table: "public.t".to_owned(),
            have: 3,
            need: 2
        }
    );
}

#[test]
fn what_cannot_be_converted_is_left_empty_or_refused_as_told() {
    let table = |key: &[&str]| table(&[col("id", INT4), col("n", NUMERIC)], key);
    let row = tuple(&[text("1"), text("NaN")]);
    let change = Change {
        relation: keyed().relation.oid,
        operation: Operation::Insert { new: row.as_tuple() },
    };
    let context = context();
    for (mode, warn) in [("warn", true), ("skip", false)] {
        let plan = table(&["id"]).plan(&settings(&[("event.converting.failure.handling.mode", mode)]));
        let outcome = plan.records(&change, &context, None).unwrap();
        let failures: Vec<_> = outcome
            .failures
            .iter()
            .map(|f| (&*f.column, f.reason, f.warn))
            .collect();
        assert_eq!(failures, [("n", Reason::SpecialDecimal, warn)]);
        assert_eq!(shorten(outcome), ["{id=1} c null -> {id=1,n=null} []"]);
    }
    let refused = |key: &[&str], mode| {
        let plan = table(key).plan(&settings(&[("event.converting.failure.handling.mode", mode)]));
        plan.records(&change, &context, None).unwrap_err().to_string()
    };
    let expected =
        "column n of table public.t (type numeric): NaN and infinity require `decimal.handling.mode` string or double";
    assert_eq!(refused(&["id"], "fail"), expected);
    assert_eq!(refused(&["n"], "warn"), expected, "a key is never left empty");
}

#[test]
fn two_columns_of_one_field_are_refused() {
    let table = table(&[col("a-b", INT4), col("a_b", INT4)], &[]);
    let settings = settings(&[("field.name.adjustment.mode", "avro")]);
    let error = TablePlan::new(&settings, &table.relation, Some(&table.catalog)).unwrap_err();
    assert_eq!(
        error,
        Error::DuplicateField {
            table: "public.t".to_owned(),
            field: "a_b".to_owned()
        }
    );
    assert!(error.hint().is_some());
}

#[test]
fn a_table_that_is_not_captured_is_not_looked_at() {
    let table = table(&[col("a-b", INT4), col("a_b", INT4)], &["a-b"]);
    let settings = settings(&[
        ("field.name.adjustment.mode", "avro"),
        ("table.exclude.list", "public.t"),
    ]);
    let plan = table.plan(&settings);
    assert!(!plan.is_captured() && plan.left_out().is_empty());
}

#[test]
fn headers_name_connector_task_and_run() {
    let row = tuple(&[text("1"), text("x")]);
    let change = Change {
        relation: keyed().relation.oid,
        operation: Operation::Insert { new: row.as_tuple() },
    };
    let context = context();
    let headers = |settings: &Arc<EventSettings>| {
        let plan = keyed().plan(settings);
        let outcome = plan.records(&change, &context, None).unwrap();
        let record = outcome.records.into_iter().next().unwrap();
        let text = |header: &walferry_record::Header<'_>| format!("{}={}", header.name, value(&header.value.value));
        record.headers.iter().map(text).collect::<Vec<_>>()
    };
    let expected = [
        "__debezium.context.connectorLogicalName=lab",
        "__debezium.context.taskId=0",
        "__debezium.context.connectorName=postgresql",
        "__debezium.context.runId=run-1",
    ];
    assert_eq!(headers(&settings(&[])), expected);
    assert_eq!(
        headers(&settings(&[("extended.headers.enabled", "false")])),
        Vec::<String>::new()
    );
}
