//! `Object.toString` of the Java objects in which Connect holds values.

use std::io::Write as _;

use crate::{Schema, Shape, Struct, Value};

use super::logical::Logical;
use super::{date, float};

/// Appends the text of a value. The schema tells dates from numbers.
pub fn push(out: &mut Vec<u8>, value: &Value<'_>, schema: Option<&Schema>) {
    if let Some(millis) = schema.and_then(Logical::of).and_then(|logical| logical.millis(value)) {
        return date::push_date(out, millis);
    }
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::String(text) => out.extend_from_slice(text.as_bytes()),
        Value::Bytes(bytes) => out.extend_from_slice(of_bytes(bytes).as_bytes()),
        Value::Array(values) => push_list(out, values, schema),
        Value::Map(pairs) => push_map(out, pairs, schema),
        Value::Struct(value) => push_struct(out, value),
        Value::Boolean(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        _ => push_number(out, value),
    }
}

/// The text of bytes: Debezium wraps them all in a buffer, whose text does not contain them.
pub fn of_bytes(bytes: &[u8]) -> String {
    let length = bytes.len();
    format!("java.nio.HeapByteBuffer[pos=0 lim={length} cap={length}]")
}

/// The text of a struct.
pub fn of_struct(value: &Struct<'_>) -> String {
    let mut out = Vec::new();
    push_struct(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends the text of a number. Appends nothing for any other value.
pub fn push_number(out: &mut Vec<u8>, value: &Value<'_>) {
    let mut digits = itoa::Buffer::new();
    match value {
        Value::Int8(n) => out.extend_from_slice(digits.format(*n).as_bytes()),
        Value::Int16(n) => out.extend_from_slice(digits.format(*n).as_bytes()),
        Value::Int32(n) => out.extend_from_slice(digits.format(*n).as_bytes()),
        Value::Int64(n) => out.extend_from_slice(digits.format(*n).as_bytes()),
        Value::Float32(n) => float::push_f32(out, *n),
        Value::Float64(n) => float::push_f64(out, *n),
        Value::Decimal(n) => write!(out, "{n}").expect("a Vec takes all that is written"),
        _ => {}
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
            out.extend_from_slice(b", ");
        }
        push(out, value, items);
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
            out.extend_from_slice(b", ");
        }
        push(out, key, keys);
        out.push(b'=');
        push(out, value, values);
    }
    out.push(b'}');
}

/// Leaves out fields without a value, even if they have a default.
fn push_struct(out: &mut Vec<u8>, value: &Struct<'_>) {
    out.extend_from_slice(b"Struct{");
    let fields = value.schema().fields().iter().zip(value.values());
    for (index, (field, value)) in fields.filter(|(_, value)| !value.is_null()).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(field.name.as_bytes());
        out.push(b'=');
        push(out, value, Some(&field.schema));
    }
    out.push(b'}');
}
