//! What a column's type is made of.

use walferry_pgoutput::Oid;

use super::Stage;
use super::builtin::{self, VARIABLE_NUMERIC_LENGTH, oid};
use crate::catalog::{Catalog, TypeFacts, TypeKind};

/// A column's type with its domains taken off.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ColumnType {
    /// The type's own name, also where it is a domain.
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

/// What the type below all domains is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum RootKind {
    /// A scalar that may have a mapping of its own.
    Base,
    /// An array.
    Array { element: Oid, delimiter: u8 },
    /// An enum with its labels.
    Enum(Vec<String>),
    /// A composite, a pseudo type, a range or multirange of the user, or a type that nothing is known of.
    Other,
}

/// Domains are made of others at most this deep; deeper is a loop.
const MAX_DOMAIN_DEPTH: usize = 32;

impl ColumnType {
    /// What is known of a type and a column's modifier.
    pub(crate) fn new(id: Oid, modifier: i32, stage: Stage, catalog: Option<&Catalog>) -> Self {
        let facts = |id| catalog.and_then(|catalog| catalog.type_of(id));
        let (length, scale) = match (id, modifier) {
            // A snapshot describes the columns of a table with other words than the stream does.
            (oid::NUMERIC, -1) if stage == Stage::Snapshot => (0, None),
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

    /// Digits behind the point.
    pub(crate) fn digits(&self) -> i32 {
        self.scale.unwrap_or(0)
    }

    /// Whether the driver calls it a kind of text, which is what masks and hashes go by.
    pub(crate) fn is_character(&self) -> bool {
        let text = matches!(
            self.root,
            oid::CHAR | oid::NAME | oid::TEXT | oid::BPCHAR | oid::VARCHAR
        );
        text || matches!(self.kind, RootKind::Enum(_))
    }

    /// The type of the elements, with the measures of the array.
    pub(super) fn element(&self, element: Oid, catalog: Option<&Catalog>) -> Self {
        let of_element = Self::new(element, -1, Stage::Element, catalog);
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
        TypeKind::Base => RootKind::Base,
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

/// Length and scale of a type without a column's modifier: a domain has those that it was declared with.
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
