//! Source records.

use std::borrow::Cow;

use crate::{SchemaRef, Value};

/// A value beside its schema; Connect's `SchemaAndValue`.
///
/// Neither a schema nor a value is Kafka's null (a tombstone, as a record's value). A schema with a null value is not: what
/// it becomes is the converter's affair.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Typed<'a> {
    /// The schema, `None` for schemaless data and for true nulls.
    pub schema: Option<SchemaRef>,
    /// The value.
    pub value: Value<'a>,
}

impl<'a> Typed<'a> {
    /// No schema and no value.
    pub const NULL: Typed<'static> = Typed {
        schema: None,
        value: Value::Null,
    };

    /// A value of a schema.
    pub const fn new(schema: SchemaRef, value: Value<'a>) -> Self {
        Self {
            schema: Some(schema),
            value,
        }
    }
    /// Whether both are absent.
    pub const fn is_null(&self) -> bool {
        self.schema.is_none() && self.value.is_null()
    }
    /// The same, borrowing from nothing.
    pub fn into_owned(self) -> Typed<'static> {
        Typed {
            schema: self.schema,
            value: self.value.into_owned(),
        }
    }
}

/// A header of a record. Several may have one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Header<'a> {
    /// Name.
    pub name: Cow<'a, str>,
    /// Schema and value.
    pub value: Typed<'a>,
}

/// A record on its way to Kafka; Connect's `SourceRecord` without the source offset, which the engine keeps beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record<'a> {
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Partition, where something chose one; otherwise the partitioner does.
    pub partition: Option<i32>,
    /// Kafka's record timestamp in milliseconds since 1970; `None` is the time of sending.
    pub timestamp_ms: Option<i64>,
    /// Key.
    pub key: Typed<'a>,
    /// Value.
    pub value: Typed<'a>,
    /// Headers in order.
    pub headers: Vec<Header<'a>>,
}

impl Record<'_> {
    /// The same record, borrowing from nothing.
    pub fn into_owned(self) -> Record<'static> {
        let headers = self.headers.into_iter().map(|header| Header {
            name: Cow::Owned(header.name.into_owned()),
            value: header.value.into_owned(),
        });
        Record {
            topic: Cow::Owned(self.topic.into_owned()),
            partition: self.partition,
            timestamp_ms: self.timestamp_ms,
            key: self.key.into_owned(),
            value: self.value.into_owned(),
            headers: headers.collect(),
        }
    }
}
