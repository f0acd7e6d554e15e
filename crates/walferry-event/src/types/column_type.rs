//! The type of a column, resolved through its domains.

use walferry_pgoutput::Oid;

use super::builtin::{self, VARIABLE_NUMERIC_LENGTH, oid};
use super::origin::RowOrigin;
use crate::catalog::{Catalog, TypeFacts, TypeKind};

/// The type of a column and, for a domain, the type below it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnType {
    /// The type's own name. For a domain, the domain's name.
    pub(crate) name: String,
    /// The type below all domains.
    pub(crate) root: Oid,
    /// Its name.
    pub(crate) root_name: String,
    /// What it is.
    pub(crate) kind: RootKind,
    /// Length as the driver reports it.
    pub(crate) length: i32,
    /// Scale as the driver reports it: digits behind the point.
    pub(crate) scale: Option<i32>,
}

/// The kind of the type below all domains.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RootKind {
    /// A scalar that may have its own mapping.
    Base,
    /// An array.
    Array { element: Oid, delimiter: u8 },
    /// An enum with its labels.
    Enum(Vec<String>),
    /// A composite type, a pseudo type, a user-defined range or multirange, or an unknown type.
    Other,
}

/// The maximum depth of domains over domains. A deeper one would be a loop.
const MAX_DOMAIN_DEPTH: usize = 32;

impl ColumnType {
    /// Collects the facts about a type with a column's modifier.
    pub(crate) fn new(id: Oid, modifier: i32, stage: RowOrigin, catalog: Option<&Catalog>) -> Self {
        let facts = |id| catalog.and_then(|catalog| catalog.type_of(id));
        let (length, scale) = match (id, modifier) {
            // In a snapshot, Debezium describes columns differently than in the stream.
            (oid::NUMERIC, -1) if stage == RowOrigin::Snapshot => (0, None),
            (_, -1) => {
                let (length, scale) = default_measures(id, &facts, MAX_DOMAIN_DEPTH);
                (length, Some(scale))
            }
            _ => (builtin::length(id, modifier), Some(builtin::scale(id, modifier))),
        };
        let root = root_of(id, &facts);
        let (root_name, kind) = root_kind(root, facts(root));
        let name = match facts(id) {
            Some(own) if root != id => own.name.clone(),
            _ => root_name.clone(),
        };
        Self {
            name,
            root,
            root_name,
            kind,
            length,
            scale,
        }
    }

    /// Whether it is `numeric` without precision and scale.
    pub(crate) fn is_variable_numeric(&self) -> bool {
        matches!(self.length, 0 | VARIABLE_NUMERIC_LENGTH) && self.digits() == 0
    }

    /// The number of digits after the point.
    pub(crate) fn digits(&self) -> i32 {
        self.scale.unwrap_or(0)
    }

    /// Whether the driver reports a text type. Masks and hashes depend on this.
    pub(crate) fn is_character(&self) -> bool {
        let text = matches!(
            self.root,
            oid::CHAR | oid::NAME | oid::TEXT | oid::BPCHAR | oid::VARCHAR
        );
        text || matches!(self.kind, RootKind::Enum(_))
    }

    /// The type of the elements, with the measures of the array.
    pub(super) fn element(&self, element: Oid, catalog: Option<&Catalog>) -> Self {
        let of_element = Self::new(element, -1, RowOrigin::Element, catalog);
        Self {
            length: self.length,
            scale: self.scale,
            ..of_element
        }
    }
}

fn root_of<'c>(id: Oid, facts: &impl Fn(Oid) -> Option<&'c TypeFacts>) -> Oid {
    let mut root = id;
    for _ in 0..MAX_DOMAIN_DEPTH {
        match facts(root).map(|facts| &facts.kind) {
            Some(TypeKind::Domain { base, .. }) => root = *base,
            _ => break,
        }
    }
    root
}

fn root_kind(root: Oid, facts: Option<&TypeFacts>) -> (String, RootKind) {
    if let Some((name, element)) = builtin::builtin(root) {
        let kind = match element {
            Some(element) => RootKind::Array {
                element,
                delimiter: b',',
            },
            None => RootKind::Base,
        };
        return (name.to_owned(), kind);
    }
    let Some(facts) = facts else {
        return ("unknown".to_owned(), RootKind::Other);
    };
    let kind = match &facts.kind {
        TypeKind::Base | TypeKind::Money { .. } => RootKind::Base,
        TypeKind::Array { element, delimiter } => RootKind::Array {
            element: *element,
            delimiter: u8::try_from(*delimiter).unwrap_or(b','),
        },
        TypeKind::Enum { labels } => RootKind::Enum(labels.clone()),
        TypeKind::Domain { .. }
        | TypeKind::Composite
        | TypeKind::Range { .. }
        | TypeKind::Multirange
        | TypeKind::Pseudo => RootKind::Other,
    };
    (facts.name.clone(), kind)
}

/// Length and scale of a type if the column has no modifier. A domain has those of its declaration.
fn default_measures<'c>(id: Oid, facts: &impl Fn(Oid) -> Option<&'c TypeFacts>, depth: usize) -> (i32, i32) {
    match facts(id).map(|facts| &facts.kind) {
        Some(TypeKind::Domain { base, modifier: -1, .. }) if depth > 0 => default_measures(*base, facts, depth - 1),
        Some(TypeKind::Domain { base, modifier, .. }) => {
            (builtin::length(*base, *modifier), builtin::scale(*base, *modifier))
        }
        _ => match builtin::length(id, -1) {
            0 => (VARIABLE_NUMERIC_LENGTH, 0),
            length => (length, builtin::scale(id, -1)),
        },
    }
}
