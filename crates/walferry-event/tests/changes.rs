//! Row changes become the records that Debezium sends.

use std::sync::Arc;

use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts};
use walferry_event::{Context, Outcome, Settings, TablePlan};
use walferry_pgoutput::{
    Change, Column, Lsn, Oid, OldTuple, Operation, Relation, RelationColumn, ReplicaIdentity, TupleBuf, Xid,
};
use walferry_record::{Record, Value};

const INT4: Oid = Oid(23);
const TEXT: Oid = Oid(25);

fn relation(columns: &[(&str, Oid, bool)]) -> Relation {
    let column = |&(name, type_oid, part_of_key): &(&str, Oid, bool)| RelationColumn {
        name: name.to_owned(),
        part_of_key,
        type_oid,
        type_modifier: -1,
    };
    Relation {
        oid: Oid(16384),
        namespace: "public".to_owned(),
        name: "pk".to_owned(),
        replica_identity: ReplicaIdentity::Default,
        columns: columns.iter().map(column).collect(),
    }
}

fn catalog(relation: &Relation, primary_key: &[&str]) -> Catalog {
    let column = |(place, column): (usize, &RelationColumn)| ColumnFacts {
        name: column.name.clone(),
        number: i16::try_from(place).unwrap() + 1,
        type_oid: column.type_oid,
        type_modifier: column.type_modifier,
        not_null: primary_key.contains(&&*column.name),
        default: None,
        generated: false,
        identity: false,
        comment: None,
    };
    let table = TableFacts {
        oid: relation.oid,
        schema: relation.namespace.clone(),
        name: relation.name.clone(),
        columns: relation.columns.iter().enumerate().map(column).collect(),
        primary_key: primary_key.iter().map(|name| (*name).to_owned()).collect(),
        unique_indexes: Vec::new(),
        comment: None,
    };
    Catalog {
        table: Some(table),
        types: Vec::new(),
    }
}

fn context() -> Context<'static> {
    Context {
        lsn: Some(Lsn(2_151_387_208)),
        last_commit_lsn: None,
        xid: Some(Xid(353_454)),
        source_time_ns: 1_795_252_998_251_983_000,
        processed_time_ns: 1_795_252_998_290_572_036,
        xmin: None,
        origin: None,
        snapshot: None,
    }
}

fn tuple(values: &[Option<&str>]) -> TupleBuf {
    let column = |value: &Option<&'static str>| value.map_or(Column::Null, |text| Column::Text(text.as_bytes()));
    let values: Vec<Option<&'static str>> = values.iter().map(|v| v.map(|v| &*v.to_owned().leak())).collect();
    TupleBuf::new(values.iter().map(column)).unwrap()
}

/// Key, operation, before and after of each record, written shortly.
fn shorten(outcome: Outcome<'_>) -> Vec<String> {
    outcome
        .records
        .into_iter()
        .map(|record| shorten_record(&record))
        .collect()
}

fn shorten_record(record: &Record<'_>) -> String {
    let key = value(&record.key.value);
    let headers: Vec<&str> = record.headers.iter().map(|header| &*header.name).collect();
    match &record.value.value {
        Value::Struct(envelope) => {
            let field = |name| value(envelope.get_raw(name).unwrap());
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

#[test]
fn changes_of_a_table_with_a_primary_key() {
    let relation = relation(&[("id", INT4, true), ("v", TEXT, false)]);
    let plan = TablePlan::new(
        &Arc::new(Settings::new("lab", "db")),
        &relation,
        Some(&catalog(&relation, &["id"])),
    )
    .unwrap();
    let (two, big, moved) = (
        tuple(&[Some("2"), Some("two")]),
        tuple(&[Some("2"), Some("TWO")]),
        tuple(&[Some("3"), Some("TWO")]),
    );
    let key = tuple(&[Some("2"), None]);
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
        let change = Change {
            relation: relation.oid,
            operation,
        };
        let context = context();
        let outcome = plan.records(&change, &context, None).unwrap();
        assert_eq!(shorten(outcome), expected, "{operation:?}");
    }
}
