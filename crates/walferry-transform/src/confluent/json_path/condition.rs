//! Conditions: what stands between `[?(` and `)]`.

use std::borrow::Cow;
use std::cmp::Ordering;

use walferry_config::{JavaRegex, limited};
use walferry_record::java::text;
use walferry_record::{Decimal, Value};

use super::{Node, PathMisfit, Segment, walk};

#[derive(Debug, Clone)]
pub(super) enum Condition {
    Or(Vec<Condition>),
    And(Vec<Condition>),
    Not(Box<Condition>),
    /// A path alone: something is there.
    There(Path),
    Compare(Operand, Comparison, Operand),
    /// `in`, and with `false` `nin`.
    In(Operand, Vec<Operand>, bool),
    /// `=~`.
    Matches(Operand, Box<JavaRegex>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Debug, Clone)]
pub(super) enum Operand {
    Path(Path),
    Text(String),
    Number(Decimal),
    Boolean(bool),
    Null,
}

/// A definite path in a condition.
#[derive(Debug, Clone)]
pub(super) struct Path {
    /// `$`, not `@`.
    pub(super) is_from_root: bool,
    pub(super) segments: Vec<Segment>,
}

impl Path {
    fn value<'v>(&self, item: Node<'v>, root: Node<'v>) -> Option<Node<'v>> {
        walk(&self.segments, if self.is_from_root { root } else { item })
    }
}

/// What an operand is in a document.
enum Item<'v> {
    Missing,
    Null,
    Text(&'v str),
    Number(Cow<'v, Decimal>),
    Boolean(bool),
    /// An object or an array.
    Other(&'v Value<'v>),
}

impl Condition {
    pub(super) fn test<'v>(&self, item: Node<'v>, root: Node<'v>) -> Result<bool, PathMisfit> {
        match self {
            Self::Or(parts) => parts
                .iter()
                .try_fold(false, |is_true, part| Ok(is_true || part.test(item, root)?)),
            Self::And(parts) => parts
                .iter()
                .try_fold(true, |is_true, part| Ok(is_true && part.test(item, root)?)),
            Self::Not(inner) => Ok(!inner.test(item, root)?),
            Self::There(path) => Ok(path.value(item, root).is_some()),
            Self::Compare(left, comparison, right) => {
                let (left, right) = (left.item(item, root)?, right.item(item, root)?);
                Ok(comparison.holds(&left, &right))
            }
            Self::In(operand, list, is_in) => {
                let left = operand.item(item, root)?;
                let mut found = false;
                for one in list {
                    found |= equal(&left, &one.item(item, root)?);
                }
                Ok(found == *is_in)
            }
            Self::Matches(operand, regex) => {
                let text = match operand.item(item, root)? {
                    Item::Text(text) => Cow::Borrowed(text),
                    Item::Number(number) => Cow::Owned(number.to_string()),
                    Item::Boolean(flag) => Cow::Borrowed(if flag { "true" } else { "false" }),
                    Item::Missing | Item::Null | Item::Other(_) => Cow::Borrowed(""),
                };
                Ok(limited(|| regex.matches(&text))?)
            }
        }
    }
}

impl Operand {
    fn item<'v>(&'v self, item: Node<'v>, root: Node<'v>) -> Result<Item<'v>, PathMisfit> {
        Ok(match self {
            Self::Path(path) => match path.value(item, root) {
                Some(node) => of_node(node)?,
                None => Item::Missing,
            },
            Self::Text(text) => Item::Text(text),
            Self::Number(number) => Item::Number(Cow::Borrowed(number)),
            Self::Boolean(flag) => Item::Boolean(*flag),
            Self::Null => Item::Null,
        })
    }
}

fn of_node(node: Node<'_>) -> Result<Item<'_>, PathMisfit> {
    if let Some(kind) = node.no_json() {
        return Err(PathMisfit::NoJson(kind));
    }
    Ok(match node.value {
        Value::Null => Item::Null,
        Value::String(text) => Item::Text(text),
        Value::Boolean(flag) => Item::Boolean(*flag),
        Value::Decimal(number) => Item::Number(Cow::Borrowed(number)),
        Value::Float32(_) | Value::Float64(_) => {
            let mut digits = Vec::new();
            text::push_number(&mut digits, node.value);
            let digits = String::from_utf8(digits).expect("numbers are ASCII");
            Item::Number(Cow::Owned(Decimal::parse_java(&digits).expect("it is finite")))
        }
        value => match value.as_integer() {
            Some(number) => Item::Number(Cow::Owned(Decimal::small(number, 0))),
            None => Item::Other(value),
        },
    })
}

impl Comparison {
    fn holds(self, left: &Item<'_>, right: &Item<'_>) -> bool {
        let order = || match (left, right) {
            (Item::Number(left), Item::Number(right)) => Some(compare(left, right)),
            (Item::Text(left), Item::Text(right)) => Some(left.encode_utf16().cmp(right.encode_utf16())),
            _ => None,
        };
        match self {
            Self::Equal => equal(left, right),
            Self::NotEqual => !equal(left, right),
            Self::Less => order() == Some(Ordering::Less),
            Self::LessOrEqual => order().is_some_and(Ordering::is_le),
            Self::Greater => order() == Some(Ordering::Greater),
            Self::GreaterOrEqual => order().is_some_and(Ordering::is_ge),
        }
    }
}

/// The left side says how a text and a number are compared.
fn equal(left: &Item<'_>, right: &Item<'_>) -> bool {
    match (left, right) {
        (Item::Null, Item::Null) => true,
        (Item::Boolean(left), Item::Boolean(right)) => left == right,
        (Item::Text(left), Item::Text(right)) => left == right,
        (Item::Text(left), Item::Number(right)) => *left == right.to_string(),
        (Item::Number(left), Item::Number(right)) => compare(left, right).is_eq(),
        (Item::Number(left), Item::Text(right)) => {
            Decimal::parse_java(right).is_some_and(|right| is_handy(&right) && compare(left, &right).is_eq())
        }
        (Item::Other(left), Item::Other(right)) => left == right,
        _ => false,
    }
}

/// Whether a number that came as text can be written out without filling the memory.
pub(super) fn is_handy(number: &Decimal) -> bool {
    number.scale().abs() < 20_000
}

/// `BigDecimal.compareTo`.
fn compare(left: &Decimal, right: &Decimal) -> Ordering {
    if left.scale() == right.scale() {
        return left.unscaled().cmp(&right.unscaled());
    }
    let scale = left.scale().max(right.scale());
    let unscaled = |number: &Decimal| number.rescale(scale).map(|number| number.unscaled());
    unscaled(left).cmp(&unscaled(right))
}
