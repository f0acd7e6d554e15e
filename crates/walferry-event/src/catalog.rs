//! What the database's catalog said about a relation when its Relation message was read.
//!
//! The stream says which columns a relation has. Only the catalog has their nullability and defaults, the names,
//! elements and labels of types, and the order of the key columns. The catalog may be newer than the stream. Code that
//! uses these facts must first compare name, type and modifier with the Relation message.

use std::collections::HashMap;

use walferry_pgoutput::Oid;

/// Facts about one relation and all types that its columns use, directly or indirectly.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Catalog {
    /// The table. `None` if it no longer exists.
    pub table: Option<TableFacts>,
    /// The types of its columns, and the types that these consist of: element types, base types, subtypes of ranges.
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
    /// Columns in the order of `attnum`, without dropped columns.
    pub columns: Vec<ColumnFacts>,
    /// Columns of the primary key, in the order of the key. Empty if there is no primary key.
    pub primary_key: Vec<String>,
    /// Columns of each unique index without expressions, as pgjdbc lists them: sorted by index name, with partial
    /// indexes and included columns.
    pub unique_indexes: Vec<Vec<String>>,
    /// `COMMENT ON TABLE`.
    pub comment: Option<String>,
    /// Whether the table is a partition. An UPDATE may move a row of a partition to another one.
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

impl ColumnFacts {
    /// A column that may be null, and has no modifier, default or comment.
    pub fn plain(name: impl Into<String>, number: i16, type_oid: Oid) -> Self {
        Self {
            name: name.into(),
            number,
            type_oid,
            type_modifier: -1,
            not_null: false,
            default: None,
            generated: false,
            identity: false,
            comment: None,
        }
    }
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
    /// The kind of the type.
    pub kind: TypeKind,
}

/// The kinds of types.
#[derive(Debug, Clone, PartialEq)]
pub enum TypeKind {
    /// A scalar.
    Base,
    /// `money`.
    Money {
        /// The number of decimal places that the database's `lc_monetary` gives it.
        fraction_digits: u16,
    },
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

/// The types of the database that were read since the connector started.
///
/// Debezium reads a type once and keeps it until its next start. So, if a label is added to an enum, the label is sent
/// although the schema does not list it. And rows with a type that was dropped after they were written can still be
/// read.
#[derive(Debug, Default)]
pub struct KnownTypes(HashMap<Oid, TypeFacts>);

/// Types with smaller ids exist in every database.
const FIRST_OF_DATABASE: Oid = Oid(16384);

impl KnownTypes {
    /// Replaces names of types and labels of enums in `catalog` by those that were read first. Remembers the types of
    /// `catalog` that are new.
    pub fn pin(&mut self, catalog: &mut Catalog) {
        for facts in catalog.types.iter_mut().filter(|facts| facts.oid >= FIRST_OF_DATABASE) {
            let first = self.0.entry(facts.oid).or_insert_with(|| facts.clone());
            facts.name.clone_from(&first.name);
            match first.kind {
                TypeKind::Enum { .. } => facts.kind.clone_from(&first.kind),
                // For other types, the present facts count.
                _ => first.kind.clone_from(&facts.kind),
            }
        }
    }

    /// Adds those of the given types that `catalog` no longer has, together with the types that they consist of.
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
