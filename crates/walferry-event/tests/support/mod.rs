//! Tables and settings for tests and benches. Each uses its own part of this module.
#![allow(dead_code)]

use std::sync::Arc;

use walferry_config::connector::Connector;
use walferry_config::{Findings, Nowhere, Submitted, Worker};
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts, TypeFacts, TypeKind};
use walferry_event::{Context, EventSettings, TablePlan};
use walferry_pgoutput::{Lsn, Oid, Relation, RelationColumn, ReplicaIdentity, Xid};
use walferry_record::{Struct, Value};

/// The stored value of a field, without the default.
pub(crate) fn stored<'v, 'a>(row: &'v Struct<'a>, name: &str) -> Option<&'v Value<'a>> {
    row.schema().field_index(name).map(|index| &row.values()[index])
}

/// Settings of a connector with these properties, on the prefix `lab` and the database `db`.
pub(crate) fn settings(properties: &[(&str, &str)]) -> Arc<EventSettings> {
    let base = [
        ("name", "test"),
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
        ("plugin.name", "pgoutput"),
        ("database.hostname", "localhost"),
        ("database.user", "u"),
        ("database.password", "p"),
        ("database.dbname", "db"),
        ("topic.prefix", "lab"),
    ];
    let entries = base
        .iter()
        .chain(properties)
        .map(|(name, value)| format!("{name:?}: {value:?}"));
    let text = format!("{{{}}}", entries.collect::<Vec<_>>().join(", "));
    let (submitted, _) = Submitted::from_json(&text).expect("the properties are well formed");
    let (connector, findings) =
        Connector::read(&submitted, None, &Worker::default(), &Nowhere, &|_| Findings::default());
    let problems: Vec<String> = findings.iter().map(ToString::to_string).collect();
    let connector = connector.unwrap_or_else(|| panic!("{problems:?}"));
    Arc::new(EventSettings::new(&connector, "1.2.3", "run-1"))
}

/// A column to be.
#[derive(Clone)]
pub(crate) struct Col {
    pub(crate) name: String,
    pub(crate) type_oid: u32,
    pub(crate) modifier: i32,
    pub(crate) not_null: bool,
    pub(crate) default: Option<String>,
}

/// A column of a type without modifier, which may be null.
pub(crate) fn col(name: &str, type_oid: u32) -> Col {
    Col {
        name: name.to_owned(),
        type_oid,
        modifier: -1,
        not_null: false,
        default: None,
    }
}

impl Col {
    pub(crate) fn modifier(self, modifier: i32) -> Self {
        Self { modifier, ..self }
    }
    pub(crate) fn not_null(self) -> Self {
        Self { not_null: true, ..self }
    }
    pub(crate) fn default(self, expression: &str) -> Self {
        Self {
            default: Some(expression.to_owned()),
            ..self
        }
    }
}

/// A table as the stream and the catalog have it.
pub(crate) struct Table {
    pub(crate) relation: Relation,
    pub(crate) catalog: Catalog,
}

/// `public.t` with these columns and primary key, under the default replica identity.
pub(crate) fn table(columns: &[Col], primary_key: &[&str]) -> Table {
    let relation = Relation {
        oid: Oid(16384),
        namespace: "public".to_owned(),
        name: "t".to_owned(),
        replica_identity: ReplicaIdentity::Default,
        columns: columns
            .iter()
            .map(|column| relation_column(column, primary_key))
            .collect(),
    };
    let table = TableFacts {
        oid: relation.oid,
        schema: relation.namespace.clone(),
        name: relation.name.clone(),
        columns: (1..)
            .zip(columns)
            .map(|(number, column)| column_facts(number, column, primary_key))
            .collect(),
        primary_key: primary_key.iter().map(|name| (*name).to_owned()).collect(),
        unique_indexes: Vec::new(),
        comment: None,
        partition: false,
    };
    Table {
        relation,
        catalog: Catalog {
            table: Some(table),
            types: Vec::new(),
        },
    }
}

fn relation_column(column: &Col, primary_key: &[&str]) -> RelationColumn {
    RelationColumn {
        name: column.name.clone(),
        part_of_key: primary_key.contains(&&*column.name),
        type_oid: Oid(column.type_oid),
        type_modifier: column.modifier,
    }
}

fn column_facts(number: i16, column: &Col, primary_key: &[&str]) -> ColumnFacts {
    ColumnFacts {
        type_modifier: column.modifier,
        not_null: column.not_null || primary_key.contains(&&*column.name),
        default: column.default.clone(),
        ..ColumnFacts::plain(column.name.as_str(), number, Oid(column.type_oid))
    }
}

impl Table {
    /// The same with one more type.
    pub(crate) fn with_type(mut self, oid: u32, name: &str, kind: TypeKind) -> Self {
        self.catalog.types.push(TypeFacts {
            oid: Oid(oid),
            schema: "public".to_owned(),
            name: name.to_owned(),
            on_path: true,
            kind,
        });
        self
    }

    /// The plan of the stream.
    pub(crate) fn plan(&self, settings: &Arc<EventSettings>) -> TablePlan {
        TablePlan::new(settings, &self.relation, Some(&self.catalog)).expect("the table has a plan")
    }
}

/// A change at LSN 200 in transaction 7, after a commit at 100.
pub(crate) fn context() -> Context<'static> {
    Context {
        lsn: Some(Lsn(200)),
        last_commit_lsn: Some(Lsn(100)),
        xid: Some(Xid(7)),
        source_time_ns: 1_795_252_998_251_983_000,
        processed_time_ns: 1_795_252_998_290_572_036,
        xmin: None,
        origin: None,
        snapshot: None,
    }
}
