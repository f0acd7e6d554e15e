//! What an expression works with.

use std::borrow::Cow;
use std::rc::Rc;

use walferry_config::JavaRegex;
use walferry_record::java::{self, logical::Logical};
use walferry_record::{Field, Header, Schema, SchemaAndValue, Shape, Struct, Value};

use super::Language;
use super::matcher::Matcher;
use super::number::Number;
use super::range::{Range, RangeElement};

/// A value while an expression is evaluated. It borrows from the record and the expression.
#[derive(Debug, Clone)]
pub(crate) enum Object<'r> {
    /// JavaScript's.
    Undefined,
    Null,
    Boolean(bool),
    Number(Number),
    Text(Cow<'r, str>),
    /// Groovy's `"…${…}"`, which is no `String` until something makes one of it.
    Template(String),
    /// One UTF-16 unit, as `charAt` gives it in Groovy.
    Character(u16),
    Bytes(&'r [u8]),
    /// Milliseconds since 1970: a Connect date, time or timestamp.
    Date(i64),
    /// Java's list.
    List(Vec<Object<'r>>),
    /// An array, as Groovy's `split` gives it and JavaScript's `[…]`. In JavaScript, its text is that of its elements without brackets.
    Array(Vec<Object<'r>>),
    /// Java's set: elements that differ, asked in no order.
    Set(Vec<Object<'r>>),
    /// What `List.of` and `Set.of` give: they know no null, and fail where they are asked for it.
    Fixed(Vec<Object<'r>>),
    /// Java's map.
    Map(Vec<(Object<'r>, Object<'r>)>),
    /// JavaScript's `{…}`. Its keys are texts.
    Literal(Vec<(String, Object<'r>)>),
    Struct(&'r Struct<'r>),
    /// What a null key or value is to JavaScript: an object that has nothing.
    NoStruct,
    Schema(&'r Schema),
    /// The type of a schema, such as `STRUCT`.
    Type(&'static str),
    Field(usize, &'r Field),
    Header(&'r SchemaAndValue<'r>),
    Headers(&'r [Header<'r>]),
    Range(Range),
    /// What `text =~ pattern` gives.
    Matcher(Rc<Matcher<'r>>),
    /// `~/…/`, or JavaScript's `/…/`.
    Pattern(&'r JavaRegex),
}

impl<'r> Object<'r> {
    /// A value of the record, with the schema that tells dates.
    pub(super) fn of(value: &'r Value<'r>, schema: Option<&Schema>) -> Self {
        let date = schema.and_then(Logical::of).and_then(|logical| logical.millis(value));
        if let Some(millis) = date {
            return Self::Date(millis);
        }
        match value {
            Value::Null => Self::Null,
            Value::Boolean(value) => Self::Boolean(*value),
            Value::Int8(n) => Self::Number(Number::Byte(*n)),
            Value::Int16(n) => Self::Number(Number::Short(*n)),
            Value::Int32(n) => Self::Number(Number::Int(*n)),
            Value::Int64(n) => Self::Number(Number::Long(*n)),
            Value::Float32(n) => Self::Number(Number::Float(*n)),
            Value::Float64(n) => Self::Number(Number::Double(*n)),
            Value::Decimal(n) => Self::Number(Number::Decimal(n.clone())),
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            Value::Bytes(bytes) => Self::Bytes(bytes),
            Value::Array(elements) => {
                let schema = match schema.map(|schema| &schema.shape) {
                    Some(Shape::Array(element)) => Some(&**element),
                    _ => None,
                };
                Self::List(elements.iter().map(|element| Self::of(element, schema)).collect())
            }
            Value::Map(entries) => {
                let (keys, values) = match schema.map(|schema| &schema.shape) {
                    Some(Shape::Map(keys, values)) => (Some(&**keys), Some(&**values)),
                    _ => (None, None),
                };
                let entry = |(key, value): &'r (Value<'r>, Value<'r>)| (Self::of(key, keys), Self::of(value, values));
                Self::Map(entries.iter().map(entry).collect())
            }
            Value::Struct(value) => Self::Struct(value),
        }
    }

    /// The key or the value of a record.
    pub(super) fn of_typed(typed: &'r SchemaAndValue<'r>) -> Self {
        Self::of(&typed.value, typed.schema.as_deref())
    }

    /// A field of a struct as `Struct.get` gives it; `None` where there is no such field.
    pub(super) fn field(of: &'r Struct<'r>, name: &str) -> Option<Self> {
        Some(Self::field_at(of, of.schema().field_index(name)?))
    }

    /// The field at a place of a struct.
    pub(super) fn field_at(of: &'r Struct<'r>, place: usize) -> Self {
        Self::of(of.get_at(place), Some(&of.schema().fields()[place].schema))
    }

    /// The last header of a name, as Debezium's map of headers has it.
    pub(super) fn header(headers: &'r [Header<'r>], name: &str) -> Option<Self> {
        let header = headers.iter().rfind(|header| header.name == name)?;
        Some(Self::Header(&header.value))
    }

    pub(super) const fn integer(number: i32) -> Self {
        Self::Number(Number::Int(number))
    }

    /// A list that an expression makes.
    pub(super) const fn list(elements: Vec<Object<'r>>, language: Language) -> Self {
        match language {
            Language::Groovy => Self::List(elements),
            Language::JavaScript => Self::Array(elements),
        }
    }

    pub(super) const fn text(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }

    /// `from..to` or `from..<to`.
    pub(super) fn range(from: &Self, to: &Self, exclusive: bool) -> Result<Self, String> {
        let range = match (from, to) {
            (Self::Number(from), Self::Number(to)) => Range::of_numbers(from, to, exclusive)?,
            _ => match (from.as_text(), to.as_text()) {
                (Some(from), Some(to)) => Range::of_texts(from, to, exclusive)?,
                _ => {
                    return Err(format!(
                        "a range goes from a number or a text to another, not from {} to {}",
                        from.kind(),
                        to.kind()
                    ));
                }
            },
        };
        Ok(Self::Range(range))
    }

    /// All elements of a range. `Err` where there are too many.
    pub(super) fn all_of(range: &Range) -> Result<Vec<Self>, String> {
        Ok(range.elements()?.into_iter().map(Self::from).collect())
    }

    /// The text of a match. With groups in the pattern, a list of that text and of each group.
    pub(super) fn of_match(groups: Vec<Option<String>>) -> Self {
        let mut texts = groups.into_iter().map(|group| group.map_or(Self::Null, Self::text));
        match texts.len() {
            1 => texts.next().unwrap_or(Self::Null),
            _ => Self::List(texts.collect()),
        }
    }

    pub(super) const fn is_null(&self) -> bool {
        matches!(self, Self::Null | Self::Undefined)
    }

    /// The text of texts and templates.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Template(text) => Some(text),
            _ => None,
        }
    }

    /// The members of what has an order: a list, an array or a range. `None` for anything else, and for a range that is too long.
    pub(super) fn elements(&self) -> Option<Cow<'_, [Object<'r>]>> {
        match self {
            Self::List(elements) | Self::Array(elements) | Self::Fixed(elements) => Some(Cow::Borrowed(elements)),
            Self::Range(range) => Some(Cow::Owned(Self::all_of(range).ok()?)),
            _ => None,
        }
    }

    /// What it is, for errors.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::Null => "null",
            Self::Boolean(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::Template(_) => "a text with parts that are filled in",
            Self::Character(_) => "a character",
            Self::Bytes(_) => "bytes",
            Self::Date(_) => "a date",
            Self::List(_) | Self::Array(_) | Self::Fixed(_) => "a list",
            Self::Set(_) => "a set",
            Self::Range(_) => "a range",
            Self::Map(_) => "a map",
            Self::Literal(_) => "an object",
            Self::Matcher(_) => "a match",
            Self::Pattern(_) => "a regular expression",
            Self::Struct(_) | Self::NoStruct => "a struct",
            Self::Schema(_) => "a schema",
            Self::Type(_) => "the type of a schema",
            Self::Field(..) => "a field of a schema",
            Self::Header(_) => "a header",
            Self::Headers(_) => "the headers",
        }
    }

    /// Java's `toString`, and JavaScript's where the two agree. `None` where the text would say nothing to a reader.
    pub(super) fn push(&self, out: &mut String) -> Option<()> {
        match self {
            Self::Undefined => out.push_str("undefined"),
            Self::Null => out.push_str("null"),
            Self::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(number) => number.push(out),
            Self::Text(text) => out.push_str(text),
            Self::Template(text) => out.push_str(text),
            Self::Character(unit) => out.push_str(&String::from_utf16_lossy(&[*unit])),
            Self::Type(name) => out.push_str(name),
            Self::Pattern(regex) => out.push_str(regex.as_str()),
            Self::List(elements) | Self::Array(elements) | Self::Fixed(elements) => push_list(elements, out)?,
            Self::Range(range) => out.push_str(&range.text()),
            Self::Map(entries) => {
                out.push('{');
                for (place, (key, value)) in entries.iter().enumerate() {
                    out.push_str(if place == 0 { "" } else { ", " });
                    key.push(out)?;
                    out.push('=');
                    value.push(out)?;
                }
                out.push('}');
            }
            Self::Struct(of) => out.push_str(&java::text::of_struct(of)),
            Self::Bytes(bytes) => out.push_str(&java::text::of_bytes(bytes)),
            Self::Date(millis) => {
                let mut text = Vec::new();
                java::date::push_date(&mut text, *millis);
                out.push_str(&String::from_utf8_lossy(&text));
            }
            _ => return None,
        }
        Some(())
    }
}

impl From<RangeElement> for Object<'_> {
    fn from(element: RangeElement) -> Self {
        match element {
            RangeElement::Number(number) => Self::Number(number),
            RangeElement::Text(text) => Self::text(text),
        }
    }
}

fn push_list(elements: &[Object<'_>], out: &mut String) -> Option<()> {
    out.push('[');
    for (place, element) in elements.iter().enumerate() {
        out.push_str(if place == 0 { "" } else { ", " });
        element.push(out)?;
    }
    out.push(']');
    Some(())
}
