//! Connect values.

use std::borrow::Cow;

use crate::{Decimal, Schema, SchemaRef};

/// A value, which borrows what it can for `'a`: text and bytes of a WAL frame, constants of a plan.
///
/// Connect's logical types are held as what they are on the wire (`Date` as days in an `Int32`, and so on), with the schema's
/// name telling the meaning; only decimals have a variant of their own.
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
    /// A struct of its own schema.
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
    /// The text, where it is text.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }
    /// The struct, where it is one.
    pub const fn as_struct(&self) -> Option<&Struct<'a>> {
        match self {
            Self::Struct(value) => Some(value),
            _ => None,
        }
    }
    /// Any integer, widened.
    pub fn as_integer(&self) -> Option<i64> {
        match *self {
            Self::Int8(n) => Some(n.into()),
            Self::Int16(n) => Some(n.into()),
            Self::Int32(n) => Some(n.into()),
            Self::Int64(n) => Some(n),
            _ => None,
        }
    }

    /// The same value, borrowing from nothing.
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

    /// The same value, borrowing its text and bytes from `self` instead of copying them.
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

/// A struct: one value for each field of its schema, in the schema's order.
#[derive(Debug, Clone, PartialEq)]
pub struct Struct<'a> {
    schema: SchemaRef,
    values: Vec<Value<'a>>,
}

impl<'a> Struct<'a> {
    /// A struct with these values, which must be as many as the schema has fields.
    ///
    /// # Panics
    /// When the number of values is not the number of fields: the two come from one plan.
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
    /// The values in the order of the fields, null where nothing was set.
    pub fn values(&self) -> &[Value<'a>] {
        &self.values
    }
    /// The values, to be taken.
    pub fn into_values(self) -> Vec<Value<'a>> {
        self.values
    }
    /// The value of a field as it is, without the default; `None` when there is no such field.
    pub fn get_raw(&self, name: &str) -> Option<&Value<'a>> {
        self.schema.field_index(name).map(|i| &self.values[i])
    }
    /// The value of a field as Connect's `Struct.get` gives it: the schema's default stands in for null. `None` when there is
    /// no such field.
    pub fn get(&self, name: &str) -> Option<&Value<'a>> {
        self.schema.field_index(name).map(|i| self.get_at(i))
    }
    /// The value at a field's place, with the default standing in for null.
    pub fn get_at(&self, index: usize) -> &Value<'a> {
        or_default(&self.values[index], &self.schema.fields()[index].schema)
    }
    /// Takes the value at a field's place, with the default standing in for null.
    pub fn take_at(&mut self, index: usize) -> Value<'a> {
        match std::mem::take(&mut self.values[index]) {
            Value::Null => self.schema.fields()[index].schema.default.clone().unwrap_or_default(),
            value => value,
        }
    }

    /// The same, borrowing from nothing.
    pub fn into_owned(self) -> Struct<'static> {
        Struct {
            schema: self.schema,
            values: self.values.into_iter().map(Value::into_owned).collect(),
        }
    }
}

/// The value, or the schema's default where the value is null.
pub fn or_default<'s, 'a>(value: &'s Value<'a>, schema: &'s Schema) -> &'s Value<'a> {
    match (value, &schema.default) {
        (Value::Null, Some(default)) => default,
        _ => value,
    }
}
