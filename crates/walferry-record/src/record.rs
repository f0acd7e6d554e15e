//! Source records.

use std::borrow::Cow;

use crate::{SchemaRef, Value};

/// A value with its schema; Connect's `SchemaAndValue`.
///
/// If there is neither a schema nor a value, it is Kafka's null; as the value of a record, a tombstone. A null value
/// with a schema is different: the converter decides what to write for it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SchemaAndValue<'a> {
    /// The schema. `None` for schemaless data and for Kafka's null.
    pub schema: Option<SchemaRef>,
    /// The value.
    pub value: Value<'a>,
}

impl<'a> SchemaAndValue<'a> {
    /// No schema and no value.
    pub const NULL: SchemaAndValue<'static> = SchemaAndValue {
        schema: None,
        value: Value::Null,
    };

    /// Makes a value with a schema.
    pub const fn new(schema: SchemaRef, value: Value<'a>) -> Self {
        Self {
            schema: Some(schema),
            value,
        }
    }
    /// Whether there is neither a schema nor a value.
    pub const fn is_null(&self) -> bool {
        self.schema.is_none() && self.value.is_null()
    }
    /// The same, but owning all data.
    pub fn into_owned(self) -> SchemaAndValue<'static> {
        SchemaAndValue {
            schema: self.schema,
            value: self.value.into_owned(),
        }
    }
}

/// A header of a record. Several headers may have the same name.
#[derive(Debug, Clone, PartialEq)]
pub struct Header<'a> {
    /// Name.
    pub name: Cow<'a, str>,
    /// Schema and value.
    pub value: SchemaAndValue<'a>,
}

impl Header<'_> {
    /// The same header, but owning all data.
    pub fn into_owned(self) -> Header<'static> {
        Header {
            name: Cow::Owned(self.name.into_owned()),
            value: self.value.into_owned(),
        }
    }
}

/// A record for Kafka; Connect's `SourceRecord` without the source offset, which the engine keeps separately.
#[derive(Debug, Clone, PartialEq)]
pub struct Record<'a> {
    /// Topic.
    pub topic: Cow<'a, str>,
    /// Partition, if a transform has chosen one. Otherwise the partitioner chooses.
    pub partition: Option<i32>,
    /// Timestamp of the record in milliseconds since 1970. `None` means the time of sending.
    pub timestamp_ms: Option<i64>,
    /// Key.
    pub key: SchemaAndValue<'a>,
    /// Value.
    pub value: SchemaAndValue<'a>,
    /// Headers in order.
    pub headers: Vec<Header<'a>>,
}

impl Record<'_> {
    /// The same record, but owning all data.
    pub fn into_owned(self) -> Record<'static> {
        let headers = self.headers.into_iter().map(Header::into_owned);
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
