//! The JSON of a schema.

use walferry_record::Shape;

use super::plan::Plan;
use super::text::{push_bool, push_integer, push_string};
use crate::error::LocatedProblem;

/// Appends the JSON of a plan's schema. The order of the members is part of the bytes; what is absent is left out.
///
/// # Errors
/// When a default does not fit its schema.
pub(super) fn write(plan: &Plan, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
    write_members(plan, out)?;
    out.push(b'}');
    Ok(())
}

/// The JSON of a plan's schema, as Jackson prints it into text: what lies beyond U+FFFF stands as it is.
///
/// # Errors
/// When a default does not fit its schema.
pub(crate) fn text(plan: &Plan) -> Result<String, Box<LocatedProblem>> {
    let mut json = Vec::new();
    write(plan, &mut json)?;
    Ok(joined(&String::from_utf8_lossy(&json)))
}

/// JSON with the characters in place of escaped surrogate pairs. They are all that is written as `\uD8xx`.
fn joined(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut tail = json;
    while let Some(at) = tail.find('\\') {
        out.push_str(&tail[..at]);
        tail = &tail[at..];
        let unit = |from: usize| {
            let digits = tail.get(from..from + 6)?.strip_prefix("\\u")?;
            u16::from_str_radix(digits, 16).ok()
        };
        let pair = unit(0).zip(unit(6)).map(|(high, low)| [high, low]);
        let joined = pair.and_then(|pair| char::decode_utf16(pair).next()?.ok());
        let length = match joined.filter(|c| *c > '\u{FFFF}') {
            Some(c) => {
                out.push(c);
                12
            }
            // A backslash and what it escapes.
            None => {
                out.push_str(&tail[..2]);
                2
            }
        };
        tail = &tail[length..];
    }
    out + tail
}

fn write_members(plan: &Plan, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
    let schema = &*plan.schema;
    out.extend_from_slice(b"{\"type\":");
    push_string(out, schema.type_name());
    if let Some(items) = plan.items() {
        out.extend_from_slice(b",\"items\":");
        write(items, out).map_err(LocatedProblem::in_element)?;
    }
    if let Some((keys, values)) = plan.pairs() {
        out.extend_from_slice(b",\"keys\":");
        write(keys, out).map_err(LocatedProblem::in_element)?;
        out.extend_from_slice(b",\"values\":");
        write(values, out).map_err(LocatedProblem::in_element)?;
    }
    if let Shape::Struct(_) = schema.shape {
        write_fields(plan, out)?;
    }
    out.extend_from_slice(b",\"optional\":");
    push_bool(out, schema.optional);
    if let Some(name) = &schema.name {
        out.extend_from_slice(b",\"name\":");
        push_string(out, name);
    }
    if let Some(version) = schema.version {
        out.extend_from_slice(b",\"version\":");
        push_integer(out, version);
    }
    if let Some(doc) = &schema.doc {
        out.extend_from_slice(b",\"doc\":");
        push_string(out, doc);
    }
    if !schema.parameters.is_empty() {
        out.extend_from_slice(b",\"parameters\":");
        for (index, (name, value)) in schema.parameters.iter().enumerate() {
            out.push(if index == 0 { b'{' } else { b',' });
            push_string(out, name);
            out.push(b':');
            push_string(out, value);
        }
        out.push(b'}');
    }
    if let Some(default) = &schema.default {
        out.extend_from_slice(b",\"default\":");
        plan.write(default, out)?;
    }
    Ok(())
}

/// Each field is the JSON of its schema with the name as one more member at the end.
fn write_fields(plan: &Plan, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
    out.extend_from_slice(b",\"fields\":[");
    for (index, (field, part)) in plan.schema.fields().iter().zip(plan.fields()).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_members(part, out).map_err(|failure| failure.in_field(&field.name))?;
        out.extend_from_slice(b",\"field\":");
        push_string(out, &field.name);
        out.push(b'}');
    }
    out.push(b']');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_pairs_are_joined_and_nothing_else_is() {
        let cases = [
            (r#""a""#, r#""a""#),
            (r#""\uD83D\uDE00x""#, "\"😀x\""),
            (r#""\\uD83D\\uDE00""#, r#""\\uD83D\\uDE00""#),
            (r#""\\\uD83D\uDE00\u0001\"é""#, "\"\\\\😀\\u0001\\\"é\""),
        ];
        for (json, expected) in cases {
            assert_eq!(joined(json), expected);
        }
    }
}
