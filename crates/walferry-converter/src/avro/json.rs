//! JSON inside Avro schemas: attributes and defaults.

use walferry_record::java::float;
use walferry_record::{Schema, Shape, Value, value::or_default};

use super::Style;
use crate::error::{ConversionProblem, LocatedProblem};
pub(super) use crate::json::push_text as push_string;

/// The text as a JSON string.
pub(super) fn string(text: &str) -> String {
    let mut out = String::new();
    push_string(&mut out, text);
    out
}

/// An object of texts.
pub(super) fn object<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> Option<String> {
    let mut out = String::new();
    for (name, value) in members {
        out.push(if out.is_empty() { '{' } else { ',' });
        push_string(&mut out, name);
        out.push(':');
        push_string(&mut out, value);
    }
    (!out.is_empty()).then(|| out + "}")
}

/// The JSON of a default, as `AvroData` puts it into a schema: bytes are text of one character each.
///
/// # Errors
/// When the default does not fit its schema.
pub(super) fn default(schema: &Schema, value: &Value<'_>, style: Style) -> Result<String, Box<LocatedProblem>> {
    let mut out = String::new();
    push(&mut out, schema, value, style)?;
    Ok(out)
}

fn push(out: &mut String, schema: &Schema, value: &Value<'_>, style: Style) -> Result<(), Box<LocatedProblem>> {
    match (&schema.shape, value) {
        (_, Value::Null) => out.push_str("null"),
        (_, Value::Boolean(flag)) => out.push_str(if *flag { "true" } else { "false" }),
        (_, Value::Float64(n)) => push_number(out, n.is_finite(), |bytes| float::push_f64(bytes, *n)),
        (_, Value::Float32(n)) => push_number(out, n.is_finite(), |bytes| float::push_f32(bytes, *n)),
        (_, Value::String(text)) => push_string(out, text),
        (_, Value::Bytes(bytes)) => push_bytes(out, bytes),
        (_, Value::Decimal(number)) => {
            super::plan::check_scale(schema, number)?;
            let mut bytes = Vec::new();
            number.write_unscaled(&mut bytes);
            push_bytes(out, &bytes);
        }
        (Shape::Array(items), Value::Array(values)) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                comma(out, index);
                push(out, items, value, style)?;
            }
            out.push(']');
        }
        (Shape::Map(keys, values), Value::Map(pairs)) => {
            let object = style.is_avro_map(keys);
            out.push(if object { '{' } else { '[' });
            for (index, (key, value)) in pairs.iter().enumerate() {
                comma(out, index);
                if !object {
                    out.push('[');
                }
                push(out, keys, key, style)?;
                out.push(if object { ':' } else { ',' });
                push(out, values, value, style)?;
                if !object {
                    out.push(']');
                }
            }
            out.push(if object { '}' } else { ']' });
        }
        (Shape::Struct(fields), Value::Struct(value)) => {
            out.push('{');
            for (index, (field, value)) in fields.iter().zip(value.values()).enumerate() {
                comma(out, index);
                push_string(out, &style.field_name(&field.name));
                out.push(':');
                push(out, &field.schema, or_default(value, &field.schema), style)?;
            }
            out.push('}');
        }
        (_, value) => match value.as_integer() {
            Some(number) => out.push_str(itoa::Buffer::new().format(number)),
            None => return Err(ConversionProblem::Mismatch.into()),
        },
    }
    Ok(())
}

/// What JSON has no number for stands in quotes.
fn push_number(out: &mut String, finite: bool, push: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::new();
    push(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    match finite {
        true => out.push_str(&text),
        false => push_string(out, &text),
    }
}

/// Bytes as ISO 8859-1, which is how Avro has them in JSON.
fn push_bytes(out: &mut String, bytes: &[u8]) {
    let text: String = bytes.iter().map(|&byte| char::from(byte)).collect();
    push_string(out, &text);
}

fn comma(out: &mut String, index: usize) {
    if index > 0 {
        out.push(',');
    }
}
