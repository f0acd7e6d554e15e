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
    /// Whether it is a partition: an UPDATE may move its rows to another one.
    pub partition: bool,
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

/// Types of the database as they were read while the connector runs.
///
/// Debezium reads a type once and keeps it until it is started again. So a label that is added to an enum meanwhile is sent, and its
/// schema does not list it; and rows of a type that was dropped since they were written can be read.
#[derive(Debug, Default)]
pub struct KnownTypes(HashMap<Oid, TypeFacts>);

/// Types below are those that every database has.
const FIRST_OF_DATABASE: Oid = Oid(16384);

impl KnownTypes {
    /// Puts names of types and labels of enums that were read first in place of what `catalog` says, and keeps what it says of
    /// types that are new.
    pub fn pin(&mut self, catalog: &mut Catalog) {
        for facts in catalog.types.iter_mut().filter(|facts| facts.oid >= FIRST_OF_DATABASE) {
            let first = self.0.entry(facts.oid).or_insert_with(|| facts.clone());
            facts.name.clone_from(&first.name);
            match first.kind {
                TypeKind::Enum { .. } => facts.kind.clone_from(&first.kind),
                // What can change of the others is as it is now.
                _ => first.kind.clone_from(&facts.kind),
            }
        }
    }

    /// Adds those of the types, and what they are made of, that `catalog` does not have any more.
    pub fn recall(&self, catalog: &mut Catalog, types: impl Iterator<Item = Oid>) {
        let mut wanted: Vec<Oid> = types.collect();
        while let Some(oid) = wanted.pop() {
            if catalog.type_of(oid).is_some() {
                continue;
            }
            let Some(facts) = self.0.get(&oid) else { continue };
            wanted.extend(match facts.kind {
                TypeKind::Array { element, .. } => Some(element),
                TypeKind::Domain { base, .. } => Some(base),
                TypeKind::Range { subtype } => Some(subtype),
                _ => None,
            });
            catalog.types.push(facts.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(oid: u32, name: &str, kind: TypeKind) -> TypeFacts {
        TypeFacts {
            oid: Oid(oid),
            schema: "public".into(),
            name: name.into(),
            on_path: true,
            kind,
        }
    }
    fn mood(name: &str, labels: &[&str]) -> TypeFacts {
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        facts(20_000, name, TypeKind::Enum { labels })
    }
    fn moods() -> TypeFacts {
        let (element, delimiter) = (Oid(20_000), ',');
        facts(20_001, "_mood", TypeKind::Array { element, delimiter })
    }
    fn domain(name: &str, not_null: bool) -> TypeFacts {
        let (base, modifier) = (Oid(25), -1);
        facts(
            20_002,
            name,
            TypeKind::Domain {
                base,
                modifier,
                not_null,
            },
        )
    }
    fn catalog(types: Vec<TypeFacts>) -> Catalog {
        Catalog { table: None, types }
    }

    #[test]
    fn a_type_is_what_it_was_first_and_outlives_its_end() {
        let mut known = KnownTypes::default();
        known.pin(&mut catalog(vec![mood("mood", &["sad"]), moods()]));

        let mut later = catalog(vec![mood("humour", &["sad", "ok"])]);
        known.pin(&mut later);
        assert_eq!(later, catalog(vec![mood("mood", &["sad"])]));

        known.pin(&mut catalog(vec![domain("name", false)]));
        let mut renamed = catalog(vec![domain("title", true)]);
        known.pin(&mut renamed);
        assert_eq!(
            renamed,
            catalog(vec![domain("name", true)]),
            "its constraint is as it is now"
        );

        let mut dropped = Catalog::default();
        known.recall(&mut dropped, [Oid(25), Oid(20_001), Oid(30_000)].into_iter());
        assert_eq!(dropped, catalog(vec![moods(), mood("mood", &["sad"])]));
    }
}
