//! Which columns of a changed row are read again, and what comes of them.

mod support;

use support::{col, context, settings, stored, table};
use walferry_event::reselect::RowLookup;
use walferry_event::{ChangeOutcome, TablePlan};
use walferry_pgoutput::{Change, Column, OldTuple, Operation, TupleBuf};
use walferry_record::Value;

const INT4: u32 = 23;
const TEXT: u32 = 25;
const INT4_ARRAY: u32 = 1007;

fn plan(options: &[(&str, &str)]) -> TablePlan {
    let mut properties = vec![
        ("post.processors", "p"),
        (
            "post.processors.p.type",
            "io.debezium.processors.reselect.ReselectColumnsPostProcessor",
        ),
    ];
    properties.extend(options);
    let columns = [
        col("id", INT4),
        col("body", TEXT),
        col("n", INT4_ARRAY),
        col("d", TEXT).default("'x'::text"),
    ];
    table(&columns, &["id"]).plan(&settings(&properties))
}

fn text(value: &str) -> Column<'_> {
    Column::Text(value.as_bytes())
}

fn tuple(values: [Column<'_>; 4]) -> TupleBuf {
    TupleBuf::new(values).unwrap()
}

fn outcome<'a>(plan: &'a TablePlan, operation: Operation<'a>) -> ChangeOutcome<'a> {
    let relation = table(&[], &[]).relation.oid;
    plan.records(&Change { relation, operation }, &context(), None).unwrap()
}

/// The columns that are wanted, and the key that they are wanted of.
fn wanted(lookups: &[RowLookup]) -> Vec<String> {
    let answers = lookups.iter().map(|lookup| {
        let key = lookup
            .query
            .key
            .iter()
            .map(|(name, value)| format!("{name}={}", value.as_deref().unwrap_or("?")));
        format!(
            "{} of {}",
            lookup.query.columns.join(","),
            key.collect::<Vec<_>>().join(",")
        )
    });
    answers.collect()
}

#[test]
fn placeholders_and_nulls_are_read_again_where_the_options_say() {
    let left_out = tuple([text("1"), Column::Unchanged, Column::Unchanged, text("d")]);
    let null = tuple([text("1"), text("b"), Column::Null, Column::Null]);
    let itself = tuple([text("1"), text("__debezium_unavailable_value"), text("{1}"), text("d")]);
    let off = "post.processors.p.reselect.null.values";
    let (no_nulls, no_placeholders) = (
        (off, "false"),
        ("post.processors.p.reselect.unavailable.values", "false"),
    );
    let only = ("post.processors.p.reselect.columns.include.list", "public.t:BODY");
    let but = ("post.processors.p.reselect.columns.exclude.list", "public.t:(body|d)");
    type Options<'a> = &'a [(&'a str, &'a str)];
    let cases: &[(Options<'_>, &TupleBuf, &[&str])] = &[
        (&[], &left_out, &["body,n of id=1"]),
        (&[only], &left_out, &["body of id=1"]),
        (&[but], &left_out, &["n of id=1"]),
        (&[no_placeholders], &left_out, &[]),
        // A null that a default stands in for is none to Debezium.
        (&[], &null, &["n of id=1"]),
        (&[no_nulls], &null, &[]),
        (&[], &itself, &["body of id=1"]),
    ];
    for (options, row, expected) in cases {
        let plan = plan(options);
        for operation in [
            Operation::Insert { new: row.as_tuple() },
            Operation::Update {
                old: None,
                new: row.as_tuple(),
            },
        ] {
            assert_eq!(wanted(&outcome(&plan, operation).lookups), *expected, "{options:?}");
        }
    }
    let plan = plan(&[]);
    let old = OldTuple::Key(null.as_tuple());
    assert!(
        outcome(&plan, Operation::Delete { old }).lookups.is_empty(),
        "a deleted row is not read again"
    );
}

#[test]
fn the_signal_table_is_not_read_again() {
    let null = tuple([text("1"), Column::Null, Column::Null, text("d")]);
    let insert = Operation::Insert { new: null.as_tuple() };
    for (signals, expected) in [("public.t", &[] as &[&str]), ("public.T", &["body,n of id=1"])] {
        let plan = plan(&[("signal.data.collection", signals)]);
        assert_eq!(
            wanted(&outcome(&plan, insert).lookups),
            expected,
            "signals are in {signals}"
        );
    }
}

#[test]
fn a_changed_key_is_looked_for_under_its_new_value() {
    let plan = plan(&[]);
    let old = tuple([text("1"), Column::Null, Column::Null, Column::Null]);
    let new = tuple([text("2"), Column::Unchanged, text("{}"), text("d")]);
    let outcome = outcome(
        &plan,
        Operation::Update {
            old: Some(OldTuple::Key(old.as_tuple())),
            new: new.as_tuple(),
        },
    );
    assert_eq!(wanted(&outcome.lookups), ["body of id=2"]);
}

#[test]
fn what_was_read_stands_in_the_event_with_masks_applied() {
    let plan = plan(&[("column.truncate.to.30.chars", "public.t.body")]);
    let row = tuple([text("1"), Column::Unchanged, Column::Null, text("d")]);
    let outcome = outcome(&plan, Operation::Insert { new: row.as_tuple() });
    let lookup = &outcome.lookups[0];
    assert_eq!(wanted(&outcome.lookups), ["body,n of id=1"]);
    let mut record = outcome.records.into_iter().next().unwrap().into_owned();
    let failures = lookup
        .fill(&mut record, &[Some("a".repeat(50)), Some("{1,2}".to_owned())])
        .unwrap();
    assert!(failures.is_empty());
    let Value::Struct(event) = &record.value.value else {
        panic!("it is an event")
    };
    let after = stored(event, "after").and_then(Value::as_struct).unwrap();
    assert_eq!(stored(after, "body"), Some(&Value::string("a".repeat(30))));
    assert_eq!(
        stored(after, "n"),
        Some(&Value::Array(vec![Value::Int32(1), Value::Int32(2)]))
    );
    assert_eq!(stored(after, "d"), Some(&Value::str("d")));
}
