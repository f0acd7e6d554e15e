//! Connect values.

use std::borrow::Cow;

use crate::{Decimal, Schema, SchemaRef};

/// A value. It borrows where it can, for `'a`: text and bytes of a WAL frame, or constants of a plan.
///
/// Connect's logical types are stored in their wire form, for example `Date` as days in an `Int32`. The name of the
/// schema tells the meaning. Only decimals have their own variant.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Value<'a> {
    /// No value.
    #[default]
    Null,
    /// true or false.
    Boolean(bool),
    /// 8 bits.
    Int8(i8),
    /// 16 bits.
    Int16(i16),
    /// 32 bits.
    Int32(i32),
    /// 64 bits.
    Int64(i64),
    /// 32 bits.
    Float32(f32),
    /// 64 bits.
    Float64(f64),
    /// Text.
    String(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
    /// A `java.math.BigDecimal`: the value of a schema named `org.apache.kafka.connect.data.Decimal`.
    Decimal(Decimal),
    /// Elements.
    Array(Vec<Value<'a>>),
    /// Pairs, in the order in which they are written.
    Map(Vec<(Value<'a>, Value<'a>)>),
    /// A struct, which knows its schema.
    Struct(Struct<'a>),
}

impl<'a> Value<'a> {
    /// Borrowed text.
    pub const fn str(text: &'a str) -> Self {
        Self::String(Cow::Borrowed(text))
    }
    /// Owned text.
    pub const fn string(text: String) -> Self {
        Self::String(Cow::Owned(text))
    }
    /// Borrowed bytes.
    pub const fn slice(bytes: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(bytes))
    }
    /// Owned bytes.
    pub const fn bytes(bytes: Vec<u8>) -> Self {
        Self::Bytes(Cow::Owned(bytes))
    }

    /// Whether there is no value.
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
    /// The text, if the value is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }
    /// The struct, if the value is a struct.
    pub const fn as_struct(&self) -> Option<&Struct<'a>> {
        match self {
            Self::Struct(value) => Some(value),
            _ => None,
        }
    }
    /// The integer, if the value is an integer of any size.
    pub fn as_integer(&self) -> Option<i64> {
        match *self {
            Self::Int8(n) => Some(n.into()),
            Self::Int16(n) => Some(n.into()),
            Self::Int32(n) => Some(n.into()),
            Self::Int64(n) => Some(n),
            _ => None,
        }
    }

    /// The same value, but owning all data.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(v) => Value::Boolean(v),
            Self::Int8(v) => Value::Int8(v),
            Self::Int16(v) => Value::Int16(v),
            Self::Int32(v) => Value::Int32(v),
            Self::Int64(v) => Value::Int64(v),
            Self::Float32(v) => Value::Float32(v),
            Self::Float64(v) => Value::Float64(v),
            Self::String(v) => Value::String(Cow::Owned(v.into_owned())),
            Self::Bytes(v) => Value::Bytes(Cow::Owned(v.into_owned())),
            Self::Decimal(v) => Value::Decimal(v),
            Self::Array(v) => Value::Array(v.into_iter().map(Value::into_owned).collect()),
            Self::Map(v) => Value::Map(v.into_iter().map(|(k, v)| (k.into_owned(), v.into_owned())).collect()),
            Self::Struct(v) => Value::Struct(v.into_owned()),
        }
    }

    /// The same value. It borrows text and bytes from `self` instead of copying them.
    pub fn reborrow(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(v) => Value::Boolean(*v),
            Self::Int8(v) => Value::Int8(*v),
            Self::Int16(v) => Value::Int16(*v),
            Self::Int32(v) => Value::Int32(*v),
            Self::Int64(v) => Value::Int64(*v),
            Self::Float32(v) => Value::Float32(*v),
            Self::Float64(v) => Value::Float64(*v),
            Self::String(v) => Value::str(v),
            Self::Bytes(v) => Value::slice(v),
            Self::Decimal(v) => Value::Decimal(v.clone()),
            Self::Array(v) => Value::Array(v.iter().map(Value::reborrow).collect()),
            Self::Map(v) => Value::Map(v.iter().map(|(k, v)| (k.reborrow(), v.reborrow())).collect()),
            Self::Struct(v) => Value::Struct(Struct {
                schema: v.schema.clone(),
                values: v.values.iter().map(Value::reborrow).collect(),
            }),
        }
    }
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::str(text)
    }
}

/// A struct: one value for each field of the schema, in the order of the schema.
#[derive(Debug, Clone, PartialEq)]
pub struct Struct<'a> {
    schema: SchemaRef,
    values: Vec<Value<'a>>,
}

impl<'a> Struct<'a> {
    /// Makes a struct with these values, one for each field of the schema.
    ///
    /// # Panics
    /// When the numbers of values and fields differ. Both come from one plan, so they never should.
    pub fn new(schema: SchemaRef, values: Vec<Value<'a>>) -> Self {
        assert_eq!(
            schema.fields().len(),
            values.len(),
            "a struct has one value for each field"
        );
        Self { schema, values }
    }

    /// The schema.
    pub const fn schema(&self) -> &SchemaRef {
        &self.schema
    }
    /// The values in the order of the fields. A field that was not set is null.
    pub fn values(&self) -> &[Value<'a>] {
        &self.values
    }
    /// Takes the values out.
    pub fn into_values(self) -> Vec<Value<'a>> {
        self.values
    }
    /// The value of a field, like Connect's `Struct.get`: if it is null, the schema's default. `None` if there is no
    /// such field.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.schema.field_index(name).map(|i| self.get_at(i))
    }
    /// The value of the field with this index. If it is null, the schema's default.
    pub fn get_at(&self, index: usize) -> &Value<'a> {
        or_default(&self.values[index], &self.schema.fields()[index].schema)
    }
    /// Takes the value of the field with this index. If it is null, returns the schema's default.
    pub fn take_at(&mut self, index: usize) -> Value<'a> {
        match std::mem::take(&mut self.values[index]) {
            Value::Null => self.schema.fields()[index].schema.default.clone().unwrap_or_default(),
            value => value,
        }
    }

    /// The same struct, but owning all data.
    pub fn into_owned(self) -> Struct<'static> {
        Struct {
            schema: self.schema,
            values: self.values.into_iter().map(Value::into_owned).collect(),
        }
    }
}

/// The value, or the schema's default if the value is null.
pub fn or_default<'s, 'a>(value: &'s Value<'a>, schema: &'s Schema) -> &'s Value<'a> {
    match (value, &schema.default) {
        (Value::Null, Some(default)) => default,
        _ => value,
    }
}
