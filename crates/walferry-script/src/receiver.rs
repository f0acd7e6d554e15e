//! What a method is asked of.

use super::object::Object;

/// The kinds of values that have methods of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiver {
    /// Null, and JavaScript's undefined.
    Null,
    Boolean,
    Number,
    Text,
    Template,
    Character,
    Bytes,
    Date,
    List,
    Array,
    Set,
    Fixed,
    Range,
    Map,
    Literal,
    Struct,
    Schema,
    Type,
    Field,
    Header,
    Headers,
    Matcher,
    Pattern,
}

impl Receiver {
    /// All of them, in their order.
    pub(super) const ALL: [Self; 23] = [
        Self::Null,
        Self::Boolean,
        Self::Number,
        Self::Text,
        Self::Template,
        Self::Character,
        Self::Bytes,
        Self::Date,
        Self::List,
        Self::Array,
        Self::Set,
        Self::Fixed,
        Self::Range,
        Self::Map,
        Self::Literal,
        Self::Struct,
        Self::Schema,
        Self::Type,
        Self::Field,
        Self::Header,
        Self::Headers,
        Self::Matcher,
        Self::Pattern,
    ];

    pub(super) const fn of(object: &Object<'_>) -> Self {
        match object {
            Object::Undefined | Object::Null => Self::Null,
            Object::Boolean(_) => Self::Boolean,
            Object::Number(_) => Self::Number,
            Object::Text(_) => Self::Text,
            Object::Template(_) => Self::Template,
            Object::Character(_) => Self::Character,
            Object::Bytes(_) => Self::Bytes,
            Object::Date(_) => Self::Date,
            Object::List(_) => Self::List,
            Object::Array(_) => Self::Array,
            Object::Set(_) => Self::Set,
            Object::Fixed(_) => Self::Fixed,
            Object::Range(_) => Self::Range,
            Object::Map(_) => Self::Map,
            Object::Literal(_) => Self::Literal,
            Object::Struct(_) | Object::NoStruct => Self::Struct,
            Object::Schema(_) => Self::Schema,
            Object::Type(_) => Self::Type,
            Object::Field(..) => Self::Field,
            Object::Header(_) => Self::Header,
            Object::Headers(_) => Self::Headers,
            Object::Matcher(_) => Self::Matcher,
            Object::Pattern(_) => Self::Pattern,
        }
    }

    /// What it is, for errors.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::Text => "a text",
            Self::Template => "a text with parts that are filled in",
            Self::Character => "a character",
            Self::Bytes => "bytes",
            Self::Date => "a date",
            Self::List | Self::Fixed => "a list",
            Self::Array => "an array",
            Self::Set => "a set",
            Self::Range => "a range",
            Self::Map => "a map",
            Self::Literal => "an object",
            Self::Struct => "a struct",
            Self::Schema => "a schema",
            Self::Type => "the type of a schema",
            Self::Field => "a field of a schema",
            Self::Header => "a header",
            Self::Headers => "the headers",
            Self::Matcher => "a match",
            Self::Pattern => "a regular expression",
        }
    }

    /// Whether it has fields or members under names of their own.
    pub(super) const fn has_names(self) -> bool {
        matches!(
            self,
            Self::Null | Self::Map | Self::Literal | Self::Struct | Self::Header | Self::Headers
        )
    }
}
