//! What the catalog of the database knew of a relation when its Relation message was read.
//!
//! The stream says which columns a relation has; only the catalog says whether they may be null, what their defaults are, what
//! a type's name, elements or labels are, and which columns are the key. The catalog may be newer than the stream: whoever
//! reads these facts compares name, type and modifier with the Relation message first.

use std::collections::HashMap;

use walferry_pgoutput::Oid;

/// Facts about one relation and every type that its columns reach.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Catalog {
    /// The table; `None` when it is no longer there.
    pub table: Option<TableFacts>,
    /// Types of its columns, and what these are made of: elements, base types, subtypes of ranges.
    pub types: Vec<TypeFacts>,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct TableFacts {
    /// `pg_class.oid`.
    pub oid: Oid,
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// Columns in the order of `attnum`, without dropped ones.
    pub columns: Vec<ColumnFacts>,
    /// Columns of the primary key, in the key's order; empty where there is none.
    pub primary_key: Vec<String>,
    /// Columns of each unique index without expressions, as pgjdbc lists them: sorted by name, partial ones and included columns too.
    pub unique_indexes: Vec<Vec<String>>,
    /// `COMMENT ON TABLE`.
    pub comment: Option<String>,
}

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub struct ColumnFacts {
    /// Name.
    pub name: String,
    /// `pg_attribute.attnum`, from 1.
    pub number: i16,
    /// `pg_attribute.atttypid`.
    pub type_oid: Oid,
    /// `pg_attribute.atttypmod`, -1 for none.
    pub type_modifier: i32,
    /// `NOT NULL`.
    pub not_null: bool,
    /// `pg_get_expr(adbin, adrelid)`.
    pub default: Option<String>,
    /// Stored or virtual generated column.
    pub generated: bool,
    /// Identity column.
    pub identity: bool,
    /// `COMMENT ON COLUMN`.
    pub comment: Option<String>,
}

/// A type.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeFacts {
    /// `pg_type.oid`.
    pub oid: Oid,
    /// Schema.
    pub schema: String,
    /// `pg_type.typname`.
    pub name: String,
    /// Whether its schema is in the role's search path.
    pub on_path: bool,
    /// What it is.
    pub kind: TypeKind,
}

/// What a type is.
#[derive(Debug, Clone, PartialEq)]
pub enum TypeKind {
    /// A scalar.
    Base,
    /// A true array (`typelem` of a `_name` type).
    Array {
        /// Type of the elements.
        element: Oid,
        /// `pg_type.typdelim` of the element type.
        delimiter: char,
    },
    /// A domain.
    Domain {
        /// `typbasetype`.
        base: Oid,
        /// `typtypmod`.
        modifier: i32,
        /// `typnotnull`.
        not_null: bool,
    },
    /// An enum with its labels in sort order.
    Enum {
        /// Labels.
        labels: Vec<String>,
    },
    /// A composite (row) type.
    Composite,
    /// A range.
    Range {
        /// `rngsubtype`.
        subtype: Oid,
    },
    /// A multirange.
    Multirange,
    /// A pseudo type.
    Pseudo,
}

impl Catalog {
    /// A type by its oid.
    pub fn type_of(&self, oid: Oid) -> Option<&TypeFacts> {
        self.types.iter().find(|t| t.oid == oid)
    }
}

/// Names and labels of enums as they were when each enum was first read.
///
/// Debezium reads a type once and keeps it until it is started again, so that a label that is added meanwhile is sent, and its
/// schema does not list it.
#[derive(Debug, Default)]
pub struct EnumLabels(HashMap<Oid, (String, Vec<String>)>);

impl EnumLabels {
    /// Puts what was read first in place of what `catalog` says, and keeps what it says of enums that are new.
    pub fn pin(&mut self, catalog: &mut Catalog) {
        for facts in &mut catalog.types {
            if let TypeKind::Enum { labels } = &mut facts.kind {
                let first = self
                    .0
                    .entry(facts.oid)
                    .or_insert_with(|| (facts.name.clone(), labels.clone()));
                facts.name.clone_from(&first.0);
                labels.clone_from(&first.1);
            }
        }
    }
}
