//! Record to bytes, as Kafka Connect's converters write them.
//!
//! A [`Converter`] writes the keys, the values or the headers of records. It appends to a buffer that the caller reuses for
//! every record. [`converter`] makes one from the class name and the options of a configuration.
//!
//! ```
//! use walferry_config::Options;
//! use walferry_converter::{Encoded, ConverterType, RecordPart, converter};
//! use walferry_record::{Schema, SchemaAndValue, Value};
//!
//! let mut options = Options::default();
//! options.set("schemas.enable", "false");
//! let (json, findings) = converter("JsonConverter", ConverterType::Key, &options);
//! let mut json = json.unwrap_or_else(|| panic!("{findings:?}"));
//!
//! let mut out = Vec::new();
//! let key = SchemaAndValue::new(Schema::string().build(), Value::str("4711"));
//! assert_eq!(json.encode("orders", RecordPart::Key, &key, &mut out)?, Encoded::Bytes);
//! assert_eq!(out, br#""4711""#);
//! assert_eq!(json.encode("orders", RecordPart::Key, &SchemaAndValue::NULL, &mut out)?, Encoded::Null);
//! # Ok::<(), walferry_converter::Error>(())
//! ```

mod avro;
mod class;
mod cloud_events;
mod error;
mod ext_json;
mod json;
mod json_schema;
mod number;
mod others;
mod protobuf;
mod raw;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod recorded_with_registry;
pub mod registry;
mod simple_header;
mod string;

use std::ops::Range;
use std::sync::Arc;

use dyn_clone::{DynClone, clone_trait_object};
use walferry_record::SchemaAndValue;

pub use avro::AvroConverter;
pub use class::{GROUPS, classes, converter};
pub use cloud_events::CloudEventsConverter;
pub use error::{ConversionProblem, Error};
pub use ext_json::ExtJsonConverter;
pub use json::{DecimalFormat, JsonConverter};
pub use json_schema::JsonSchemaConverter;
pub use number::{BooleanConverter, NumberConverter};
pub use protobuf::ProtobufConverter;
pub use raw::{BinaryDataConverter, ByteArrayConverter};
pub use simple_header::SimpleHeaderConverter;
pub use string::StringConverter;

/// Writes the keys, the values or the headers of records; Connect's `Converter` and `HeaderConverter`.
///
/// A converter is built once, when the configuration is checked. Each session of the connector gets a clone that has not seen a record.
pub trait Converter: DynClone + Send {
    /// Appends the bytes of one part of a record for `topic` to `out`.
    ///
    /// # Errors
    /// When the value does not fit its schema or the converter. `out` is then as it was before.
    fn encode(
        &mut self,
        topic: &str,
        part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error>;

    /// The same for a converter that also reads the record's headers. Most do not.
    ///
    /// # Errors
    /// As [`encode`](Self::encode), and when a header is missing or cannot be read.
    fn encode_with_headers(
        &mut self,
        topic: &str,
        part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        _headers: WrittenHeaders<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        self.encode(topic, part, typed, out)
    }

    /// The headers to add to the record for the last encoded value. Valid after [`Encoded::BytesWithHeaders`].
    fn added_headers(&self) -> &AddedHeaders {
        AddedHeaders::NONE
    }

    /// Gives the client of the schema registry to a converter that needs one. Without it, such a converter cannot write anything.
    fn attach(&mut self, _connect: &mut dyn FnMut(&registry::RegistrySettings) -> Arc<dyn registry::Registry>) {}
}

clone_trait_object!(Converter);

/// Headers that a converter adds to a record.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddedHeaders {
    headers: Vec<(String, Vec<u8>)>,
}

impl AddedHeaders {
    const NONE: &'static Self = &Self { headers: Vec::new() };

    fn add(&mut self, name: &str, value: &[u8]) {
        self.headers.push((name.to_owned(), value.to_owned()));
    }

    fn clear(&mut self) {
        self.headers.clear();
    }

    fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Name and value of each, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }
}

/// The headers of a record as their converter has written them, in the buffer that key and value are appended to.
#[derive(Debug, Clone, Copy, Default)]
pub struct WrittenHeaders<'a> {
    places: &'a [(Range<usize>, Option<Range<usize>>)],
}

impl<'a> WrittenHeaders<'a> {
    /// Where name and value of each header lie in the buffer; a value of `None` is null.
    pub const fn new(places: &'a [(Range<usize>, Option<Range<usize>>)]) -> Self {
        Self { places }
    }

    /// The value of the last header of a name: `None` where there is no such header, `Some(None)` where its value is null.
    pub fn last<'b>(&self, name: &str, buffer: &'b [u8]) -> Option<Option<&'b [u8]>> {
        let header = self
            .places
            .iter()
            .rev()
            .find(|(place, _)| &buffer[place.clone()] == name.as_bytes());
        header.map(|(_, value)| value.clone().map(|value| &buffer[value]))
    }
}

/// What a converter made of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoded {
    /// Kafka's null, such as the value of a tombstone. Nothing was appended.
    Null,
    /// What was appended, which may be nothing: an empty key is not a null key.
    Bytes,
    /// The same, and the record gets the converter's [`added_headers`](Converter::added_headers).
    BytesWithHeaders,
}

/// A part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordPart<'a> {
    /// The key.
    Key,
    /// The value.
    Value,
    /// The header of this name.
    Header(&'a str),
}

/// What a converter is configured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConverterType {
    /// `key.converter`.
    Key,
    /// `value.converter`.
    Value,
    /// `header.converter`.
    Header,
}
