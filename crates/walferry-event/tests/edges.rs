//! Values, defaults and names at the edges of their types, as Debezium sent them when it was asked.

mod support;

use std::sync::Arc;

use support::{Col, Table, col, context, settings, stored, table};
use walferry_event::catalog::TypeKind;
use walferry_event::{EventSettings, TablePlan};
use walferry_pgoutput::{Change, Column, Oid, OldTuple, Operation, TupleBuf};
use walferry_record::{Decimal, Schema, Value};

const BYTEA: u32 = 17;
const TEXT: u32 = 25;
const MONEY: u32 = 790;
const INT4: u32 = 23;
const INT2VECTOR: u32 = 22;
const OIDVECTOR: u32 = 30;
const BIT: u32 = 1560;
const DATE: u32 = 1082;
const TIME: u32 = 1083;
const TIMESTAMP: u32 = 1114;
const TIMESTAMPTZ: u32 = 1184;
const DATE_ARRAY: u32 = 1182;
const VARBIT: u32 = 1562;
const NUMERIC: u32 = 1700;
const NUMERIC_5_2: i32 = ((5 << 16) | 2) + 4;
/// The first id that the types of a user can have.
const OWN: u32 = 16_400;

fn with(column: Col) -> Table {
    table(&[col("id", INT4), column], &["id"])
}

fn snapshot(table: &Table, settings: &Arc<EventSettings>) -> TablePlan {
    TablePlan::snapshot(settings, &table.catalog).unwrap().unwrap()
}

/// The field `v` of a row with that value; what cannot be converted is null.
fn sent(plan: &TablePlan, value: Column<'_>) -> Value<'static> {
    row(plan, value, |new| Operation::Insert { new }, "after")
}

fn row(
    plan: &TablePlan,
    value: Column<'_>,
    operation: for<'t> fn(walferry_pgoutput::Tuple<'t>) -> Operation<'t>,
    image: &str,
) -> Value<'static> {
    let tuple = TupleBuf::new([Column::Text(b"1"), value]).unwrap();
    let change = Change {
        relation: Oid(16_384),
        operation: operation(tuple.as_tuple()),
    };
    let outcome = plan.records(&change, &context(), None).unwrap();
    let record = outcome.records.into_iter().next().unwrap();
    let envelope = record.value.value.as_struct().unwrap();
    let row = stored(envelope, image).unwrap().as_struct().unwrap();
    stored(row, "v").unwrap().clone().into_owned()
}

fn schema(plan: &TablePlan) -> &Schema {
    let fields = plan.row_schema().fields();
    &fields.iter().find(|field| &*field.name == "v").unwrap().schema
}

#[test]
fn timestamps_beyond_64_bits_of_microseconds() {
    let last = "294276-12-31 23:59:59.999999";
    let whole = "294277-01-01 00:00:00";
    let cases = [
        ("adaptive", 3, whole, Value::Int64(9_224_318_016_000_000)),
        ("adaptive", -1, whole, Value::Int64(i64::MAX)),
        ("microseconds", -1, last, Value::Int64(i64::MAX.wrapping_add(999_999))),
        ("connect", -1, last, Value::Int64(9_224_318_015_999_999)),
        ("isostring", -1, last, Value::str("+294276-12-31T23:59:59.999999Z")),
        ("nanoseconds", -1, last, Value::Null),
    ];
    for (mode, modifier, text, expected) in cases {
        let settings = settings(&[("time.precision.mode", mode)]);
        let plan = with(col("v", TIMESTAMP).modifier(modifier)).plan(&settings);
        assert_eq!(sent(&plan, Column::Text(text.as_bytes())), expected, "{mode} {text}");
    }
    let plan = with(col("v", TIMESTAMPTZ).modifier(1)).plan(&settings(&[]));
    let expected = Value::str("+294277-01-01T00:00:00.0Z");
    assert_eq!(sent(&plan, Column::Text(b"294277-01-01 00:00:00+00")), expected);
}

/// `java.sql.Date`, by which dates of a snapshot come, has neither the days between the calendars nor an era.
#[test]
fn dates_of_a_snapshot_follow_javas_calendar() {
    let settings = settings(&[("time.precision.mode", "isostring")]);
    let table = with(col("v", DATE));
    let cases = [
        ("1582-10-10", "1582-10-10Z", "1582-10-20Z"),
        ("1582-10-15", "1582-10-15Z", "1582-10-15Z"),
        ("1582-10-04", "1582-10-04Z", "1582-10-04Z"),
        ("0044-03-15 BC", "-0043-03-15Z", "0044-03-15Z"),
    ];
    for (text, in_stream, in_snapshot) in cases {
        let value = Column::Text(text.as_bytes());
        assert_eq!(sent(&table.plan(&settings), value), Value::str(in_stream), "{text}");
        assert_eq!(
            sent(&snapshot(&table, &settings), value),
            Value::str(in_snapshot),
            "{text}"
        );
    }
}

#[test]
fn defaults_do_not_depend_on_where_rows_come_from() {
    let time = "'24:00:00'::time without time zone";
    let cases = [
        (DATE, "isostring", "'0044-03-15 BC'::date", Value::str("-0043-03-15Z")),
        (DATE, "adaptive", "'1582-10-10'::date", Value::Int32(-141_432)),
        (TIME, "adaptive", time, Value::Int64(86_399_999_999)),
        (TIME, "connect", time, Value::Int32(86_399_999)),
        (TIME, "nanoseconds", time, Value::Int64(86_399_999_999_999)),
        (TIME, "isostring", time, Value::str("23:59:59.999999999Z")),
        (
            TIME,
            "isostring",
            "'23:59:00'::time without time zone",
            Value::str("23:59:00Z"),
        ),
    ];
    for (type_oid, mode, expression, expected) in cases {
        let settings = settings(&[("time.precision.mode", mode)]);
        let table = with(col("v", type_oid).default(expression));
        for plan in [table.plan(&settings), snapshot(&table, &settings)] {
            assert_eq!(
                schema(&plan).default.as_ref(),
                Some(&expected),
                "{expression} with {mode}"
            );
        }
    }
}

/// Postgres keeps the type of a literal that it makes a default of.
#[test]
fn a_default_may_be_a_literal_of_another_type() {
    let micros = |days: i64| Some(Value::Int64(days * 86_400_000_000));
    let cases = [
        (
            DATE,
            -1,
            "'2020-01-01 05:06:07'::timestamp without time zone",
            Some(Value::Int32(18_262)),
        ),
        (
            DATE,
            -1,
            "'0044-03-15 01:02:03 BC'::timestamp without time zone",
            Some(Value::Int32(-735_160)),
        ),
        (TIMESTAMP, -1, "'2020-01-01'::date", micros(18_262)),
        (TIMESTAMP, -1, "'0044-03-15 BC'::date", micros(-735_160)),
        (
            TIMESTAMP,
            -1,
            "'2020-01-01 00:00:00+00'::timestamp with time zone",
            micros(18_262),
        ),
        (
            TIMESTAMPTZ,
            -1,
            "'2020-01-01'::date",
            Some(Value::str("2020-01-01T00:00:00.000000Z")),
        ),
        (
            TIMESTAMPTZ,
            2,
            "'2020-01-01 05:06:07'::timestamp without time zone",
            Some(Value::str("2020-01-01T05:06:07.00Z")),
        ),
        (BIT, 1, "'1000'::\"bit\"::bit(1)", Some(Value::Boolean(true))),
        (BIT, 1, "(1)::bit(1)", None),
        (BIT, 5, "(5)::bit(5)", Some(Value::bytes(Vec::new()))),
        (BIT, 5, "'00101'::\"bit\"", Some(Value::bytes(vec![5]))),
    ];
    for (type_oid, modifier, expression, expected) in cases {
        let table = with(col("v", type_oid).modifier(modifier).default(expression));
        assert_eq!(schema(&table.plan(&settings(&[]))).default, expected, "{expression}");
    }
}

#[test]
fn defaults_that_are_no_decimals_of_the_column_are_left_out_of_doubles_too() {
    let cases = [
        (-1, "'NaN'::numeric", None),
        (-1, "1.555", Some(Value::Float64(1.555))),
        (NUMERIC_5_2, "1.555", None),
        (NUMERIC_5_2, "1.5", Some(Value::Float64(1.5))),
    ];
    for (modifier, expression, expected) in cases {
        let table = with(col("v", NUMERIC).modifier(modifier).default(expression));
        let plan = table.plan(&settings(&[("decimal.handling.mode", "double")]));
        assert_eq!(schema(&plan).default, expected, "{expression}");
    }
}

#[test]
fn an_empty_bit_is_null_where_that_is_allowed() {
    let bit = col("v", VARBIT).modifier(1);
    for (column, expected) in [(bit.clone(), Value::Null), (bit.not_null(), Value::Boolean(false))] {
        let plan = with(column).plan(&settings(&[]));
        assert_eq!(sent(&plan, Column::Text(b"")), expected);
        assert_eq!(sent(&plan, Column::Text(b"1")), Value::Boolean(true));
    }
}

#[test]
fn the_placeholder_of_bytes_is_not_truncated() {
    let properties = [
        ("unavailable.value.placeholder", "absent"),
        ("column.truncate.to.2.chars", ".*"),
    ];
    let cases = [
        (BYTEA, "bytes", Value::bytes(b"absent".to_vec())),
        (BYTEA, "hex", Value::str("ab")),
        (TEXT, "bytes", Value::str("ab")),
    ];
    for (type_oid, mode, expected) in cases {
        let settings = settings(&[&properties[..], &[("binary.handling.mode", mode)]].concat());
        let plan = with(col("v", type_oid)).plan(&settings);
        assert_eq!(sent(&plan, Column::Unchanged), expected, "{type_oid} as {mode}");
    }
}

#[test]
fn bits_are_not_truncated() {
    let table = with(col("v", BIT).modifier(20));
    let plan = table.plan(&settings(&[("column.truncate.to.1.chars", ".*")]));
    let parameters = &schema(&plan).parameters;
    assert!(parameters.iter().any(|(name, _)| &**name == "truncateLength"));
    let sent = sent(&plan, Column::Text(b"10000000000000000001"));
    assert_eq!(sent, Value::bytes(vec![1, 0, 8]));
}

#[test]
fn vectors_of_the_catalog_are_arrays_without_elements() {
    for (type_oid, item) in [(INT2VECTOR, "int16"), (OIDVECTOR, "int64")] {
        let plan = with(col("v", type_oid)).plan(&settings(&[]));
        assert_eq!(sent(&plan, Column::Text(b"1 2")), Value::Array(Vec::new()));
        assert_eq!(sent(&plan, Column::Text(b"")), Value::Null);
        assert_eq!(sent(&plan, Column::Null), Value::Null);
        let walferry_record::Shape::Array(items) = &schema(&plan).shape else {
            panic!("an array")
        };
        assert_eq!((items.type_name(), items.optional), (item, false));
    }
}

#[test]
fn null_among_ltrees_cannot_be_converted() {
    let array = TypeKind::Array {
        element: Oid(OWN),
        delimiter: ',',
    };
    let table = with(col("v", OWN + 1))
        .with_type(OWN, "ltree", TypeKind::Base)
        .with_type(OWN + 1, "_ltree", array);
    let plan = table.plan(&settings(&[]));
    let cases = [
        ("{a.b}", Value::Array(vec![Value::str("a.b")])),
        ("{a.b,NULL}", Value::Null),
    ];
    for (text, expected) in cases {
        assert_eq!(sent(&plan, Column::Text(text.as_bytes())), expected, "{text}");
    }
}

#[test]
fn arrays_of_sparse_vectors_have_no_elements_that_can_be_read() {
    let array = TypeKind::Array {
        element: Oid(OWN),
        delimiter: ',',
    };
    let table = with(col("v", OWN + 1))
        .with_type(OWN, "sparsevec", TypeKind::Base)
        .with_type(OWN + 1, "_sparsevec", array);
    let plan = table.plan(&settings(&[]));
    let cases = [("{}", Value::Array(Vec::new())), (r#"{"{1:2}/3"}"#, Value::Null)];
    for (text, expected) in cases {
        assert_eq!(sent(&plan, Column::Text(text.as_bytes())), expected, "{text}");
    }
}

#[test]
fn unchanged_dates_have_a_placeholder_only_as_days() {
    let placeholder = |mode| {
        let settings = settings(&[("time.precision.mode", mode), ("unavailable.value.placeholder", "ab")]);
        sent(&with(col("v", DATE_ARRAY)).plan(&settings), Column::Unchanged)
    };
    assert_eq!(
        placeholder("adaptive"),
        Value::Array(vec![Value::Int32(97), Value::Int32(98)])
    );
    for mode in ["isostring", "connect"] {
        assert_eq!(placeholder(mode), Value::Null, "{mode}");
    }
}

/// `money.fraction.digits` counts if it is set. If it is left out, no digit of the stored amount is lost.
#[test]
fn money_has_as_many_decimal_places_as_the_database_needs() {
    type Properties = &'static [(&'static str, &'static str)];
    let cases: [(u16, Properties, (i64, i32)); 5] = [
        (0, &[], (123_456_700, 2)),
        (2, &[], (1_234_567, 2)),
        (3, &[], (1_234_567, 3)),
        (3, &[("money.fraction.digits", "2")], (123_457, 2)),
        (2, &[("money.fraction.digits", "0")], (12_346, 0)),
    ];
    for (fraction_digits, properties, (unscaled, scale)) in cases {
        let table = with(col("v", MONEY)).with_type(MONEY, "money", TypeKind::Money { fraction_digits });
        let plan = table.plan(&settings(properties));
        assert_eq!(
            sent(&plan, Column::Text("1.234.567 €".as_bytes())),
            Value::Decimal(Decimal::small(unscaled, scale)),
            "{fraction_digits} {properties:?}"
        );
    }
}

/// A constraint that is NOT VALID, or that came after the row: the field cannot be null. What the replica identity leaves out is not told.
#[test]
fn columns_whose_value_is_made_up_for_a_null_are_told() {
    let table = with(col("v", TEXT).not_null());
    let plan = table.plan(&settings(&[]));
    let tuple = TupleBuf::new([Column::Text(b"1"), Column::Null]).unwrap();
    let row = || tuple.as_tuple();
    let cases: [(&str, Operation<'_>, usize); 4] = [
        ("insert", Operation::Insert { new: row() }, 1),
        (
            "update",
            Operation::Update {
                old: Some(OldTuple::Full(row())),
                new: row(),
            },
            2,
        ),
        (
            "delete of a whole row",
            Operation::Delete {
                old: OldTuple::Full(row()),
            },
            1,
        ),
        (
            "delete by key",
            Operation::Delete {
                old: OldTuple::Key(row()),
            },
            0,
        ),
    ];
    for (name, operation, expected) in cases {
        let change = Change {
            relation: Oid(16_384),
            operation,
        };
        let outcome = plan.records(&change, &context(), None).unwrap();
        assert_eq!(outcome.made_up, vec!["v"; expected], "{name}");
    }
    let plan = with(col("v", TEXT)).plan(&settings(&[]));
    let change = Change {
        relation: Oid(16_384),
        operation: Operation::Insert { new: row() },
    };
    assert!(plan.records(&change, &context(), None).unwrap().made_up.is_empty());
}

/// Debezium has nothing for it and stops.
#[test]
fn a_sparse_vector_that_the_identity_leaves_out_is_empty() {
    let table = with(col("v", OWN).not_null()).with_type(OWN, "sparsevec", TypeKind::Base);
    let plan = table.plan(&settings(&[]));
    let old = row(
        &plan,
        Column::Null,
        |old| Operation::Delete {
            old: OldTuple::Key(old),
        },
        "before",
    );
    assert_eq!(
        old.as_struct().unwrap().values(),
        [Value::Int16(0), Value::Map(Vec::new())]
    );
}

#[test]
fn a_snapshot_names_types_outside_the_search_path_with_their_schema() {
    let settings = settings(&[("column.propagate.source.type", ".*")]);
    let mut table = with(col("v", OWN)).with_type(
        OWN,
        "Mood",
        TypeKind::Enum {
            labels: vec!["ok".to_owned()],
        },
    );
    let source_type = |plan: &TablePlan| {
        let parameters = &schema(plan).parameters;
        parameters
            .iter()
            .find(|(name, _)| &**name == "__debezium.source.column.type")
            .map(|(_, value)| value.to_string())
    };
    for (on_path, in_snapshot) in [(true, "MOOD"), (false, r#""PUBLIC"."MOOD""#)] {
        table.catalog.types[0].on_path = on_path;
        assert_eq!(source_type(&table.plan(&settings)).as_deref(), Some("MOOD"));
        assert_eq!(source_type(&snapshot(&table, &settings)).as_deref(), Some(in_snapshot));
    }
}
