//! `org.apache.kafka.connect.storage.SimpleHeaderConverter`.

use walferry_record::{Schema, SchemaAndValue, Shape, Struct, Value};

use crate::json::push_base64;
use crate::{Converter, Encoded, Error, RecordPart};
use walferry_record::java::logical::{Logical, MILLIS_PER_DAY};
use walferry_record::java::{date, text};

/// Writes text unchanged, and arrays, maps and structs in a form similar to JSON. This is Connect's default for headers.
#[derive(Debug, Clone, Default)]
pub struct SimpleHeaderConverter;

impl Converter for SimpleHeaderConverter {
    fn encode(
        &mut self,
        _topic: &str,
        _part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        let schema = typed.schema.as_deref();
        match &typed.value {
            Value::Null => return Ok(Encoded::Null),
            Value::String(text) => out.extend_from_slice(text.as_bytes()),
            Value::Bytes(bytes) => push_base64(out, bytes),
            value => push_embedded(out, value, schema),
        }
        Ok(Encoded::Bytes)
    }
}

/// Appends a value as it stands inside another; only text and bytes look different on their own.
fn push_embedded(out: &mut Vec<u8>, value: &Value<'_>, schema: Option<&Schema>) {
    if let Some(millis) = schema.and_then(Logical::of).and_then(|logical| logical.millis(value)) {
        return push_date(out, millis);
    }
    match value {
        Value::String(text) => push_quoted(out, text),
        Value::Bytes(bytes) => {
            out.push(b'"');
            push_base64(out, bytes);
            out.push(b'"');
        }
        Value::Array(values) => push_list(out, values, schema),
        Value::Map(pairs) => push_map(out, pairs, schema),
        Value::Struct(value) => push_struct(out, value),
        _ => text::push(out, value, schema),
    }
}

/// Escapes nothing but quotes and backslashes, so that line ends stand as they are.
fn push_quoted(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
}

/// Connect tells times from dates by the number alone: a timestamp before the second day of 1970 loses its date.
fn push_date(out: &mut Vec<u8>, millis: i64) {
    if millis < MILLIS_PER_DAY {
        date::push_iso_time(out, millis);
    } else {
        date::push_iso_date(out, millis);
        if millis % MILLIS_PER_DAY != 0 {
            out.push(b'T');
            date::push_iso_time(out, millis);
        }
    }
}

fn push_list(out: &mut Vec<u8>, values: &[Value<'_>], schema: Option<&Schema>) {
    let items = match schema.map(|schema| &schema.shape) {
        Some(Shape::Array(items)) => Some(&**items),
        _ => None,
    };
    out.push(b'[');
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_embedded(out, value, items);
    }
    out.push(b']');
}

fn push_map(out: &mut Vec<u8>, pairs: &[(Value<'_>, Value<'_>)], schema: Option<&Schema>) {
    let (keys, values) = match schema.map(|schema| &schema.shape) {
        Some(Shape::Map(keys, values)) => (Some(&**keys), Some(&**values)),
        _ => (None, None),
    };
    out.push(b'{');
    for (index, (key, value)) in pairs.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_embedded(out, key, keys);
        out.push(b':');
        push_embedded(out, value, values);
    }
    out.push(b'}');
}

/// All fields, with defaults in place of nulls.
fn push_struct(out: &mut Vec<u8>, value: &Struct<'_>) {
    out.push(b'{');
    for (index, field) in value.schema().fields().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_quoted(out, &field.name);
        out.push(b':');
        push_embedded(out, value.get_at(index), Some(&field.schema));
    }
    out.push(b'}');
}
