//! Debezium's `EnforceRecordSize`: shorter texts and bytes where a change event would be too large.

use std::borrow::Cow;

use walferry_config::{Group, Property, Reader, ValueError, properties};
use walferry_record::java::number::parse_f64;
use walferry_record::{Record, Schema, Shape, Struct, Value};

use crate::contract::{HeaderList, PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::kind;
use crate::{Error, Outcome, Transform};

properties! {
    const MAX_BYTES: Property<i32> = Property::new("max.bytes").example("1048576").required()
        .text("Size above which a record is truncated. The size is an estimate of the memory that the record takes in Debezium, not the \
               number of bytes that a converter writes.");
    const RATIO: Property<String> = Property::new("compression.ratio").default("1.0")
        .text("Factor for the estimate, for example 0.5 if the serialized records are half as large.");
    const MIN_FIELD: Property<i32> = Property::new("min.field.size").default("25000")
        .text("Texts with at most this number of characters, and byte arrays with at most this number of bytes, are not truncated.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.EnforceRecordSize",
    sides: false,
    options: Group {
        title: "Transform EnforceRecordSize",
        text: "`io.debezium.transforms.EnforceRecordSize`: truncates the long texts and byte arrays in `before` and `after` if the record \
               would be larger than `max.bytes`, each by the same proportion. The rest of these values is lost.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct EnforceRecordSize {
    max_bytes: i64,
    ratio: f64,
    min_field: i64,
}

#[derive(Debug, thiserror::Error)]
enum Unmeasured {
    #[error("the key of the record is {0}, but the size of a record can be computed only if the key is a struct")]
    Key(&'static str),
    #[error("the record is too large, and {field} is {found}; Debezium fails on this, too")]
    Uncuttable { field: String, found: &'static str },
}

impl TransformFault for Unmeasured {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Key(_) => "put EnforceRecordSize before the transform that changes the key".into(),
            Self::Uncuttable { .. } => {
                "set decimal.handling.mode=double or string for the connector, raise max.bytes, or exclude the \
                                        column with column.exclude.list"
                    .into()
            }
        })
    }
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let (max_bytes, min_field) = (reader.get(&MAX_BYTES), reader.get(&MIN_FIELD));
    if reader
        .options()
        .get(MAX_BYTES.name())
        .is_some_and(|text| text.trim().parse::<i32>().is_ok())
        && max_bytes <= 0
    {
        reader
            .problem(MAX_BYTES.name(), format!("is {max_bytes}, but must be at least 1"))
            .hint("set it to the maximum size of a record, such as 1000000");
    }
    if min_field < 0 {
        reader
            .problem(MIN_FIELD.name(), format!("is {min_field}, but must not be negative"))
            .hint("set it to 0 to truncate texts and byte arrays of any length");
    }
    let text = reader.get(&RATIO);
    let ratio = parse_f64(text.trim());
    if ratio.is_none_or(|ratio| ratio <= 0.0) {
        let ValueError { expected, .. } = ValueError::new("a number above 0");
        reader
            .problem(RATIO.name(), format!("is {text:?}, which is not {expected}"))
            .hint("set it to 1.0 if records are sent in full size");
    }
    Some(Box::new(EnforceRecordSize {
        max_bytes: max_bytes.into(),
        ratio: ratio?,
        min_field: min_field.into(),
    }))
}

/// What is to be cut of an event.
struct Truncation {
    excess: i64,
    before: Vec<Long>,
    after: Vec<Long>,
}

impl Transform for EnforceRecordSize {
    fn header_list(&self, record: &Record<'_>) -> HeaderList {
        match self.to_cut(record) {
            Ok(Some(_)) => HeaderList::Copied,
            Ok(None) | Err(_) => HeaderList::Shared,
        }
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let Some(Truncation { excess, before, after }) = self.to_cut(&record)? else {
            return Ok(Outcome::Record(record));
        };
        let Value::Struct(event) = std::mem::take(&mut record.value.value) else {
            return Ok(Outcome::Record(record)); // something of it is to be cut
        };
        let (of_before, of_after) = (bytes(&before), bytes(&after));
        let total = of_before + of_after;
        let schema = event.schema().clone();
        let mut values = event.into_values();
        for (name, fields, bytes) in [("before", before, of_before), ("after", after, of_after)] {
            let excess = (bytes as f64 / total as f64 * excess as f64).ceil() as i64;
            if let Some(place) = schema.field_index(name).filter(|_| !fields.is_empty() && excess > 0)
                && let Value::Struct(row) = std::mem::take(&mut values[place])
            {
                values[place] = Value::Struct(cut(row, &fields, bytes, excess));
            }
        }
        record.value.value = Value::Struct(Struct::new(schema, values));
        Ok(Outcome::Record(record))
    }
}

/// A field that may be cut.
struct Long {
    place: usize,
    size: i64,
}

fn bytes(fields: &[Long]) -> i64 {
    fields.iter().map(|field| field.size).sum()
}

impl EnforceRecordSize {
    /// What is to be cut of a record; `None` if it is small enough, or has nothing that may be cut.
    fn to_cut(&self, record: &Record<'_>) -> Result<Option<Truncation>, Error> {
        let Value::Struct(event) = &record.value.value else {
            return Ok(None);
        };
        // As Java: a float that is too large becomes the largest integer, and NaN becomes 0.
        let size = (size_of_record(record, event)? as f64 * self.ratio).ceil() as i64;
        if size <= self.max_bytes {
            return Ok(None);
        }
        let cut = Truncation {
            excess: size - self.max_bytes,
            before: self.long_fields(event, "before")?,
            after: self.long_fields(event, "after")?,
        };
        Ok((bytes(&cut.before) + bytes(&cut.after) > 0).then_some(cut))
    }

    /// The fields of a row that are long enough to be cut.
    fn long_fields(&self, event: &Struct<'_>, name: &str) -> Result<Vec<Long>, Unmeasured> {
        let mut long = Vec::new();
        let Some(row) = event.get(name).and_then(Value::as_struct) else {
            return Ok(long);
        };
        for (place, field) in row.schema().fields().iter().enumerate() {
            let size = match row.get_at(place) {
                Value::String(text) => utf16_length(text) as i64,
                // Java holds bit strings as an array, and Debezium expects a buffer.
                Value::Bytes(bytes) if !field.schema.is_named("io.debezium.data.Bits") => bytes.len() as i64,
                value @ (Value::Bytes(_) | Value::Decimal(_)) => {
                    let (field, found) = (field.name.to_string(), kind(value));
                    return Err(Unmeasured::Uncuttable { field, found });
                }
                _ => continue,
            };
            if size > self.min_field {
                long.push(Long { place, size });
            }
        }
        Ok(long)
    }
}

/// Cuts fields that take `bytes` bytes together, so that they take `excess` bytes less.
fn cut<'a>(row: Struct<'a>, fields: &[Long], bytes: i64, excess: i64) -> Struct<'a> {
    let schema = row.schema().clone();
    let mut values = row.into_values();
    for &Long { place, size } in fields {
        let share = (size as f64 / bytes as f64 * excess as f64).ceil() as i32;
        let left = (size - i64::from(share)).max(0) as usize;
        let value = match std::mem::take(&mut values[place]) {
            Value::Null => schema.fields()[place].schema.default.clone().unwrap_or_default(),
            value => value,
        };
        values[place] = match value {
            Value::String(text) => {
                let end = utf16_end(&text, left);
                Value::String(match text {
                    Cow::Borrowed(text) => Cow::Borrowed(&text[..end]),
                    Cow::Owned(mut text) => {
                        text.truncate(end);
                        Cow::Owned(text)
                    }
                })
            }
            Value::Bytes(bytes) => Value::Bytes(match bytes {
                Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[..left]),
                Cow::Owned(mut bytes) => {
                    bytes.truncate(left);
                    Cow::Owned(bytes)
                }
            }),
            other => other,
        };
    }
    Struct::new(schema, values)
}

/// Characters as Java counts them.
fn utf16_length(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The byte offset after `length` of Java's characters. Where Java would cut a surrogate pair, the whole pair is left out.
fn utf16_end(text: &str, length: usize) -> usize {
    let mut units = 0;
    for (at, char) in text.char_indices() {
        units += char.len_utf16();
        if units > length {
            return at;
        }
    }
    text.len()
}

/// Debezium's estimate of a record's size in memory.
fn size_of_record(record: &Record<'_>, event: &Struct<'_>) -> Result<i64, Unmeasured> {
    let key = match &record.key.value {
        Value::Null => 0,
        Value::Struct(key) => size_of_struct(key),
        other => return Err(Unmeasured::Key(kind(other))),
    };
    // A hundred bytes for the source partition, and as many for each entry of the source offset and for each header.
    let entries = 1 + offset_entries(event) + record.headers.len() as i64;
    Ok(entries * 100 + 8 + key + size_of_struct(event) + record.topic.len() as i64)
}

/// How many entries the offset has that Debezium keeps with a record.
fn offset_entries(event: &Struct<'_>) -> i64 {
    let part = |name: &str| event.get(name).and_then(Value::as_struct);
    let source = part("source");
    let known = |name: &str| source.is_some_and(|source| source.get(name).is_some_and(|value| !value.is_null()));
    let source_entries = ["ts_ms", "txId", "lsn", "xmin"]
        .into_iter()
        .filter(|name| known(name))
        .count() as i64;
    let snapshot = source.and_then(|source| source.get("snapshot")).and_then(Value::as_str);
    match snapshot {
        // snapshot, snapshot_completed, last_snapshot_record
        Some("true" | "first" | "first_in_data_collection" | "last_in_data_collection" | "last") => source_entries + 3,
        // lsn_proc, lsn_commit, messageType; with transaction metadata the transaction and its table
        _ => source_entries + 3 + if part("transaction").is_some() { 2 } else { 0 },
    }
}

const REFERENCE: i64 = 8;
const EMPTY_STRUCT: i64 = 56;
const EMPTY_STRING: i64 = 56;
const EMPTY_BYTES: i64 = 24;
const EMPTY_ARRAY: i64 = 64;
const EMPTY_MAP: i64 = 88;
const PRIMITIVE: i64 = 24;

fn size_of_struct(value: &Struct<'_>) -> i64 {
    let fields = value.schema().fields().iter().zip(value.values());
    let sizes = fields.map(|(field, value)| REFERENCE + size_of(&field.schema, value));
    EMPTY_STRUCT + sizes.sum::<i64>()
}

/// A number counts also where it is null.
fn size_of(schema: &Schema, value: &Value<'_>) -> i64 {
    match (&schema.shape, value) {
        (Shape::String | Shape::Bytes | Shape::Struct(_) | Shape::Array(_) | Shape::Map(..), Value::Null) => 0,
        (_, Value::String(text)) => EMPTY_STRING + text.len() as i64,
        (_, Value::Bytes(bytes)) => EMPTY_BYTES + bytes.len() as i64,
        (_, Value::Decimal(number)) => EMPTY_BYTES + number.unscaled_bytes(&mut [0; 8]).len() as i64,
        (_, Value::Struct(value)) => size_of_struct(value),
        (Shape::Array(items), Value::Array(values)) => {
            let sizes = values.iter().map(|value| REFERENCE + size_of(items, value));
            EMPTY_ARRAY + sizes.sum::<i64>()
        }
        (Shape::Map(keys, values), Value::Map(pairs)) => {
            let sizes = pairs
                .iter()
                .map(|(key, value)| 2 * REFERENCE + size_of(keys, key) + size_of(values, value));
            EMPTY_MAP + sizes.sum::<i64>()
        }
        _ => PRIMITIVE,
    }
}
