//! JSON paths over keys and values of records, as Jayway's library for Java understands them.
//!
//! A struct and a map stand for objects. A field without a value is not there at all. The rules, odd ones too, were looked up by running
//! `json-path` 2.9.0: a number and a text are equal where the text is that number, `!=` is true of what is not there, and `=~` takes
//! what is not there for an empty text.

mod condition;
mod parse;

use std::cell::Cell;

use walferry_config::RegexLimit;
use walferry_record::java::logical::Logical;
use walferry_record::{Field, Schema, Shape, Value};

use crate::error::TransformFault;

use condition::Condition;
pub(super) use parse::PathError;

/// A path from the top of a document.
#[derive(Debug, Clone)]
pub(super) struct JsonPath {
    segments: Vec<Segment>,
}

#[derive(Debug, Clone)]
enum Segment {
    /// `.name` and `['name']`.
    Name(Name),
    /// `[0]`; a negative one counts from the end.
    Index(i64),
    /// `.*` and `[*]`.
    All,
    /// `[?(…)]`.
    Filter(Condition),
}

#[derive(Debug, Clone)]
struct Name {
    text: String,
    /// Where the field was in the last struct: most have it there again.
    place: Cell<usize>,
}

impl Name {
    const fn new(text: String) -> Self {
        let place = Cell::new(0);
        Self { text, place }
    }

    fn place_in(&self, schema: &Schema) -> Option<usize> {
        let last = self.place.get();
        let is_there = |field: &Field| *field.name == *self.text;
        if !schema.fields().get(last).is_some_and(is_there) {
            self.place.set(schema.field_index(&self.text)?);
        }
        Some(self.place.get())
    }
}

/// A value that a path cannot be evaluated on.
#[derive(Debug, thiserror::Error)]
pub(super) enum PathMisfit {
    #[error("a condition in brackets is applied to {0}, but needs an object or an array")]
    NoCondition(&'static str),
    #[error("a condition compares {0}, which does not exist in JSON")]
    NoJson(&'static str),
    #[error(transparent)]
    Regex(#[from] RegexLimit),
}

impl TransformFault for PathMisfit {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoCondition(_) | Self::NoJson(_) => {
                Some("correct the path, or give the transform a predicate such as TopicNameMatches".into())
            }
            Self::Regex(limit) => Some(limit.hint()),
        }
    }
}

/// A value in a document; the schema tells dates from numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<'v> {
    pub(super) value: &'v Value<'v>,
    pub(super) schema: Option<&'v Schema>,
}

impl<'v> Node<'v> {
    pub(super) const fn new(value: &'v Value<'v>, schema: Option<&'v Schema>) -> Self {
        Self { value, schema }
    }

    /// The member of an object; a null is none.
    fn member(self, name: &Name) -> Option<Self> {
        match self.value {
            Value::Struct(object) => {
                let place = name.place_in(object.schema())?;
                let schema = Some(&*object.schema().fields()[place].schema);
                Some(Self::new(object.get_at(place), schema))
            }
            Value::Map(pairs) => {
                let mut pairs = pairs.iter();
                let (_, value) = pairs.find(|(key, _)| key.as_str() == Some(&*name.text))?;
                Some(Self::new(value, self.item_schema()))
            }
            _ => None,
        }
        .filter(|node| !node.value.is_null())
    }

    fn item(self, index: i64) -> Option<Self> {
        let Value::Array(items) = self.value else {
            return None;
        };
        let index = match usize::try_from(index) {
            Ok(index) => index,
            Err(_) => items.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?,
        };
        Some(Self::new(items.get(index)?, self.item_schema()))
    }

    fn item_schema(self) -> Option<&'v Schema> {
        match &self.schema?.shape {
            Shape::Array(items) | Shape::Map(_, items) => Some(items),
            _ => None,
        }
    }

    /// Whether something is true of one of the members or elements.
    fn any(self, mut test: impl FnMut(Self) -> Result<bool, PathMisfit>) -> Result<bool, PathMisfit> {
        match self.value {
            Value::Struct(object) => {
                for (place, field) in object.schema().fields().iter().enumerate() {
                    let value = object.get_at(place);
                    if !value.is_null() && test(Self::new(value, Some(&field.schema)))? {
                        return Ok(true);
                    }
                }
            }
            Value::Map(pairs) => {
                for (_, value) in pairs {
                    if !value.is_null() && test(Self::new(value, self.item_schema()))? {
                        return Ok(true);
                    }
                }
            }
            Value::Array(items) => {
                for value in items {
                    if test(Self::new(value, self.item_schema()))? {
                        return Ok(true);
                    }
                }
            }
            _ => {}
        }
        Ok(false)
    }

    const fn kind(self) -> JsonType {
        match self.value {
            Value::Struct(_) | Value::Map(_) => JsonType::Object,
            Value::Array(_) => JsonType::Array,
            _ => JsonType::Scalar,
        }
    }

    /// Why the value is nothing that JSON has.
    fn no_json(self) -> Option<&'static str> {
        let is_date = self.schema.and_then(Logical::of).is_some();
        match self.value {
            Value::Bytes(_) => Some("bytes"),
            Value::Int32(_) | Value::Int64(_) if is_date => Some("a date or a time"),
            Value::Float32(n) if !n.is_finite() => Some("a number that is not finite"),
            Value::Float64(n) if !n.is_finite() => Some("a number that is not finite"),
            _ => None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum JsonType {
    Object,
    Array,
    Scalar,
}

/// What a path finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Something.
    Something,
    /// Nothing, although what the path names is there.
    Nothing,
    /// A name or an index on the way is not there, or null.
    Missing,
}

impl JsonPath {
    /// Reads a path.
    pub(super) fn new(text: &str) -> Result<Self, PathError> {
        parse::path(text)
    }

    /// A path to one field of the document.
    pub(super) fn of_name(name: String) -> Self {
        let segments = vec![Segment::Name(Name::new(name))];
        Self { segments }
    }

    /// Whether the path leads to one place at most.
    pub(super) fn is_definite(&self) -> bool {
        let one = |segment: &Segment| matches!(segment, Segment::Name(_) | Segment::Index(_));
        self.segments.iter().all(one)
    }

    /// The value that a definite path leads to; null is none.
    pub(super) fn value<'v>(&self, root: Node<'v>) -> Option<Node<'v>> {
        walk(&self.segments, root)
    }

    /// What there is at the places that the path leads to.
    pub(super) fn find(&self, root: Node<'_>) -> Result<Found, PathMisfit> {
        find(&self.segments, root, root, true)
    }
}

fn step<'v>(segment: &Segment, node: Node<'v>) -> Option<Node<'v>> {
    match segment {
        Segment::Name(name) => node.member(name),
        Segment::Index(index) => node.item(*index),
        Segment::All | Segment::Filter(_) => None,
    }
}

fn walk<'v>(segments: &[Segment], root: Node<'v>) -> Option<Node<'v>> {
    let end = segments.iter().try_fold(root, |node, segment| step(segment, node))?;
    (!end.value.is_null()).then_some(end)
}

/// `is_definite` says whether what came before leads to one place, which Jayway wants to be there.
fn find(segments: &[Segment], node: Node<'_>, root: Node<'_>, is_definite: bool) -> Result<Found, PathMisfit> {
    if is_definite && node.value.is_null() {
        return Ok(Found::Missing);
    }
    let Some((segment, remaining_segments)) = segments.split_first() else {
        return Ok(Found::Something);
    };
    let finds = |node: Node<'_>| find(remaining_segments, node, root, false).map(|found| found == Found::Something);
    let any = match segment {
        Segment::Name(_) | Segment::Index(_) => {
            return match step(segment, node) {
                Some(next) => find(remaining_segments, next, root, is_definite),
                None if is_definite => Ok(Found::Missing),
                None => Ok(Found::Nothing),
            };
        }
        Segment::All => node.any(finds)?,
        Segment::Filter(condition) => match node.kind() {
            JsonType::Object => condition.test(node, root)? && finds(node)?,
            JsonType::Array => node.any(|item| Ok(condition.test(item, root)? && finds(item)?))?,
            JsonType::Scalar if is_definite => return Err(PathMisfit::NoCondition(crate::reshape::kind(node.value))),
            JsonType::Scalar => false,
        },
    };
    Ok(if any { Found::Something } else { Found::Nothing })
}

#[cfg(test)]
mod tests;
