//! An expression, as it is evaluated.

use std::cell::Cell;

use walferry_config::JavaRegex;
use walferry_record::{Field, Schema};

use super::cast::JavaType;
use super::function::Function;
use super::method::Method;
use super::number::Number;
use super::operator::Operator;
use super::receiver::Receiver;

/// A part of an expression, with the byte where it begins.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) at: usize,
    pub(super) kind: NodeKind,
    /// How many parts stand in each other, with this one.
    pub(super) depth: usize,
}

impl Node {
    pub(super) fn new(at: usize, kind: NodeKind) -> Self {
        let depth = kind.parts().into_iter().map(|part| part.depth).max();
        let depth = depth.unwrap_or(0) + 1;
        Self { at, kind, depth }
    }
}

type Boxed = Box<Node>;

/// A name, with the place that it had in the last struct. As a rule the next struct has the same schema, and is not searched.
#[derive(Debug, Clone)]
pub(super) struct FieldName {
    pub(super) text: String,
    place: Cell<usize>,
}

impl FieldName {
    pub(super) const fn new(text: String) -> Self {
        let place = Cell::new(0);
        Self { text, place }
    }

    /// The place of the field in a struct of this schema.
    pub(super) fn place(&self, schema: &Schema) -> Option<usize> {
        let last = self.place.get();
        let is_there = |field: &Field| *field.name == *self.text;
        if schema.fields().get(last).is_some_and(is_there) {
            return Some(last);
        }
        let place = schema.field_index(&self.text)?;
        self.place.set(place);
        Some(place)
    }
}

#[derive(Debug, Clone)]
pub(super) enum NodeKind {
    Null,
    Undefined,
    Boolean(bool),
    Number(Number),
    Text(String),
    /// Pieces to be joined, the fixed ones as `Text`.
    Template(Vec<Node>),
    Variable(Variable),
    /// What `def` or `let` has named, and what it gives beside null, where that is known.
    Local(usize, Option<Receiver>),
    Property {
        of: Boxed,
        name: FieldName,
        /// What values have under this name beside fields and members.
        property: Option<Method>,
        safe: bool,
    },
    Index {
        of: Boxed,
        index: Boxed,
        safe: bool,
    },
    Call {
        of: Boxed,
        method: Method,
        arguments: Vec<Node>,
        safe: bool,
    },
    /// A call of a method of text with a regular expression.
    Rewrite {
        of: Boxed,
        how: Box<Rewrite>,
        regex: Box<JavaRegex>,
        safe: bool,
    },
    Function(Function, Vec<Node>),
    Not(Boxed),
    /// `-a`.
    Negate(Boxed),
    /// `+a`.
    Plus(Boxed),
    Binary(Operator, Boxed, Boxed),
    /// `a && b && c`, which may be a long row.
    And(Vec<Node>),
    /// `a || b || c`.
    Or(Vec<Node>),
    /// `a ?: b`: the first where it is true.
    Elvis(Boxed, Boxed),
    /// `a ?? b`: the first where it is not null.
    Coalesce(Boxed, Boxed),
    Conditional(Boxed, Boxed, Boxed),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
    Range {
        from: Boxed,
        to: Boxed,
        exclusive: bool,
    },
    /// `~/…/`, or JavaScript's `/…/`.
    Regex {
        regex: Box<JavaRegex>,
        all: bool,
    },
    /// `(text =~ pattern).find()`, or `pattern.test(text)`.
    Find(Boxed, Box<JavaRegex>),
    /// `text =~ pattern`.
    Search(Boxed, Box<JavaRegex>),
    /// `text ==~ pattern`.
    Match(Boxed, Box<JavaRegex>),
    InstanceOf {
        of: Boxed,
        kind: JavaType,
        negated: bool,
    },
    /// Whether a list has an element, or in JavaScript an object a property.
    In {
        of: Boxed,
        among: Boxed,
        negated: bool,
    },
}

impl NodeKind {
    fn parts(&self) -> Vec<&Node> {
        match self {
            Self::Property { of, .. }
            | Self::Rewrite { of, .. }
            | Self::Not(of)
            | Self::Negate(of)
            | Self::Plus(of)
            | Self::Find(of, _)
            | Self::Search(of, _)
            | Self::Match(of, _)
            | Self::InstanceOf { of, .. } => vec![of],
            Self::Index { of: a, index: b, .. }
            | Self::Binary(_, a, b)
            | Self::Elvis(a, b)
            | Self::Coalesce(a, b)
            | Self::Range { from: a, to: b, .. }
            | Self::In { of: a, among: b, .. } => vec![a, b],
            Self::Conditional(a, b, c) => vec![a, b, c],
            Self::Template(parts)
            | Self::Function(_, parts)
            | Self::And(parts)
            | Self::Or(parts)
            | Self::List(parts) => parts.iter().collect(),
            Self::Call { of, arguments, .. } => std::iter::once(&**of).chain(arguments).collect(),
            Self::Map(entries) => entries.iter().flat_map(|(key, value)| [key, value]).collect(),
            _ => Vec::new(),
        }
    }
}

/// What is done with a regular expression that is written out.
#[derive(Debug, Clone)]
pub(super) enum Rewrite {
    Matches,
    /// JavaScript's `match`: the match and its groups, or with the flag g all matches. Null where there is none.
    Groups {
        all: bool,
    },
    ReplaceFirst(walferry_config::Replacement),
    ReplaceAll(walferry_config::Replacement),
    /// With Java's limit of parts, which is zero where there is none.
    Split(i32),
    /// Groovy's `find`: the text of the first match.
    Find,
    /// Groovy's `findAll`: the texts of all matches.
    FindAll,
    /// JavaScript's `search`: where the first match begins.
    Place,
}

/// What the record offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variable {
    Key,
    Value,
    KeySchema,
    ValueSchema,
    Topic,
    Header,
}

impl Variable {
    pub(super) const NAMES: [(&'static str, Self); 6] = [
        ("key", Self::Key),
        ("value", Self::Value),
        ("keySchema", Self::KeySchema),
        ("valueSchema", Self::ValueSchema),
        ("topic", Self::Topic),
        ("header", Self::Header),
    ];
}

/// Statements in a row; the last one that is an expression is the result.
#[derive(Debug, Clone, Default)]
pub(super) struct Block(pub(super) Vec<Statement>);

#[derive(Debug, Clone)]
pub(super) enum Statement {
    Expression(Node),
    Return(Option<Node>),
    Let(usize, Node),
    If {
        condition: Node,
        then: Block,
        otherwise: Block,
    },
}
