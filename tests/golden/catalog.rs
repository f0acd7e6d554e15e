//! The catalog as a recording has it.

use serde_json::Value;
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts, TypeFacts, TypeKind};
use walferry_pgoutput::Oid;

/// All tables of users and the types of their columns, good for relation messages up to `wal_end`.
pub(crate) struct Recorded {
    pub(crate) wal_end: u64,
    tables: Vec<TableFacts>,
    types: Vec<TypeFacts>,
}

impl Recorded {
    pub(crate) fn read(line: &Value) -> Self {
        Self {
            wal_end: line["wal_end"].as_u64().expect("wal_end is a number"),
            tables: list(&line["tables"]).map(table).collect(),
            types: list(&line["types"]).map(type_facts).collect(),
        }
    }

    /// Schema and name of each table.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tables.iter().map(|table| (&*table.schema, &*table.name))
    }

    /// What the catalog knew of a relation.
    pub(crate) fn of(&self, oid: u32) -> Catalog {
        self.with(self.tables.iter().find(|table| table.oid.0 == oid))
    }

    /// What the catalog knew of a table.
    pub(crate) fn named(&self, schema: &str, name: &str) -> Catalog {
        self.with(
            self.tables
                .iter()
                .find(|table| table.schema == schema && table.name == name),
        )
    }

    fn with(&self, table: Option<&TableFacts>) -> Catalog {
        Catalog {
            table: table.cloned(),
            types: self.types.clone(),
        }
    }
}

fn table(value: &Value) -> TableFacts {
    let columns_of = |index: &Value| list(&index["columns"]).map(text).collect::<Vec<_>>();
    let indexes = |primary: bool| list(&value["indexes"]).filter(move |index| index["primary"] == primary);
    TableFacts {
        oid: oid(&value["oid"]),
        schema: text(&value["schema"]),
        name: text(&value["name"]),
        columns: list(&value["columns"]).map(column).collect(),
        primary_key: indexes(true).next().map(columns_of).unwrap_or_default(),
        unique_indexes: indexes(false).map(columns_of).collect(),
        comment: value["comment"].as_str().map(str::to_owned),
        partition: false,
    }
}

fn column(value: &Value) -> ColumnFacts {
    ColumnFacts {
        name: text(&value["name"]),
        number: value["number"].as_i64().expect("a number") as i16,
        type_oid: oid(&value["type_oid"]),
        type_modifier: value["type_modifier"].as_i64().expect("a number") as i32,
        not_null: value["not_null"] == true,
        default: value["default"].as_str().map(str::to_owned),
        generated: value["generated"] == true,
        identity: value["identity"] == true,
        comment: value["comment"].as_str().map(str::to_owned),
    }
}

fn type_facts(value: &Value) -> TypeFacts {
    let kind = match value["kind"].as_str() {
        Some("d") => TypeKind::Domain {
            base: oid(&value["base"]),
            modifier: value["modifier"].as_i64().unwrap_or(-1) as i32,
            not_null: value["not_null"] == true,
        },
        Some("e") => TypeKind::Enum {
            labels: list(&value["labels"]).map(text).collect(),
        },
        Some("c") => TypeKind::Composite,
        Some("r") => TypeKind::Range {
            subtype: oid(&value["subtype"]),
        },
        Some("m") => TypeKind::Multirange,
        Some("p") => TypeKind::Pseudo,
        _ if value["element"].is_u64() => TypeKind::Array {
            element: oid(&value["element"]),
            delimiter: value["delimiter"]
                .as_str()
                .and_then(|text| text.chars().next())
                .unwrap_or(','),
        },
        _ => TypeKind::Base,
    };
    TypeFacts {
        oid: oid(&value["oid"]),
        schema: text(&value["schema"]),
        name: text(&value["name"]),
        on_path: value["on_path"] != false,
        kind,
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn oid(value: &Value) -> Oid {
    Oid(value
        .as_u64()
        .and_then(|oid| u32::try_from(oid).ok())
        .unwrap_or_default())
}
