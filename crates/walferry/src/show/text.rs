//! Records as a person reads them: keys, values and headers as text, JSON over several lines, schemas in short.

use std::fmt::Write as _;

use serde::de::IgnoredAny;
use walferry_record::{Schema, Shape, Value};

/// The bytes of a key, a value or a header as the reader sees them.
pub(super) fn readable(bytes: Option<&[u8]>, is_terminal: bool) -> String {
    let bytes = match bytes {
        None => return "null".to_owned(),
        Some([]) => return "(empty)".to_owned(),
        Some(bytes) => bytes,
    };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(is_binary) => text,
        _ => return hex(bytes),
    };
    let is_json = text.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok();
    match is_json && is_terminal {
        true => clean(&pretty(&without_schema(text))),
        false => clean(text),
    }
}

/// Characters that no text has.
fn is_binary(c: char) -> bool {
    c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t')
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::from("0x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Without characters that a terminal would obey. What a row holds is not ours.
pub(super) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => cleaned.push(c),
            c if c.is_control() => cleaned.extend(c.escape_unicode()),
            c => cleaned.push(c),
        }
    }
    cleaned
}

/// JSON with the schema in front, as JsonConverter writes it, with `…` in the place of the schema: it is shown apart.
fn without_schema(json: &str) -> String {
    const SCHEMA: &str = "{\"schema\":";
    let Some(rest) = json.strip_prefix(SCHEMA).filter(|rest| rest.starts_with('{')) else {
        return json.to_owned();
    };
    let end = end_of_object(rest);
    match rest[end..].starts_with(",\"payload\":") {
        true => format!("{SCHEMA}\"…\"{}", &rest[end..]),
        false => json.to_owned(),
    }
}

/// The length of the object that a text begins with.
fn end_of_object(json: &str) -> usize {
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    for (at, byte) in json.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    json.len()
}

/// The same JSON over several lines. Numbers and strings stay as they are written.
fn pretty(json: &str) -> String {
    let mut out = String::with_capacity(json.len() * 2);
    let (mut depth, mut quoted, mut escaped) = (0_usize, false, false);
    let mut characters = json.chars().peekable();
    let line = |out: &mut String, depth: usize| {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", depth));
    };
    while let Some(c) = characters.next() {
        if quoted {
            out.push(c);
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match c {
            '"' => {
                quoted = true;
                out.push(c);
            }
            '{' | '[' => {
                out.push(c);
                while characters.next_if(|c| c.is_ascii_whitespace()).is_some() {}
                match characters.next_if(|c| matches!(c, '}' | ']')) {
                    Some(end) => out.push(end),
                    None => {
                        depth += 1;
                        line(&mut out, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {}
            c => out.push(c),
        }
    }
    out
}

/// Structs that every event has and nobody configures.
const EVERYWHERE: [&str; 2] = ["io.debezium.connector.postgresql.Source", "event.block"];

/// A schema in short: a line for the schema itself, and one for each field below it.
pub(super) fn schema(schema: Option<&Schema>) -> String {
    let Some(schema) = schema else { return "none".to_owned() };
    let mut text = word(schema);
    fields(schema, 1, &mut Vec::new(), &mut text);
    text
}

/// The fields of a struct, or of what an array or a map holds. Those of a struct that has been met are not told again.
fn fields<'s>(schema: &'s Schema, depth: usize, met: &mut Vec<&'s Schema>, text: &mut String) {
    match &schema.shape {
        Shape::Array(items) => return fields(items, depth, met, text),
        Shape::Map(_, values) => return fields(values, depth, met, text),
        Shape::Struct(_) => {}
        _ => return,
    }
    if EVERYWHERE.iter().any(|name| schema.is_named(name)) {
        text.push_str(" (as in every event)");
        return;
    }
    if met.contains(&schema) {
        text.push_str(" (as above)");
        return;
    }
    met.push(schema);
    let width = schema.fields().iter().map(|field| field.name.chars().count()).max();
    let width = width.unwrap_or_default();
    for field in schema.fields() {
        let _ = write!(
            text,
            "\n{:indent$}{:<width$}  {}",
            "",
            field.name,
            word(&field.schema),
            indent = depth * 2
        );
        fields(&field.schema, depth + 1, met, text);
    }
}

/// The type, and what else a schema says of its values.
fn word(schema: &Schema) -> String {
    let mut text = match &schema.shape {
        Shape::Array(items) => format!("array of {}", inner(items)),
        Shape::Map(keys, values) => format!("map of {} to {}", inner(keys), inner(values)),
        _ => schema.type_name().to_owned(),
    };
    if let Some(name) = &schema.name {
        let _ = write!(text, " {name}");
    }
    if let Some(version) = schema.version {
        let _ = write!(text, " v{version}");
    }
    for (name, value) in &schema.parameters {
        let _ = write!(text, ", {name}={value}");
    }
    if schema.optional {
        text.push_str(", optional");
    }
    if let Some(default) = &schema.default {
        let _ = write!(text, ", default {}", constant(default));
    }
    text
}

/// The type of an element: in brackets, so that it is plain what is optional.
fn inner(schema: &Schema) -> String {
    let word = word(schema);
    match word.contains(", ") {
        true => format!("({word})"),
        false => word,
    }
}

fn constant(value: &Value<'_>) -> String {
    match value {
        Value::Boolean(v) => v.to_string(),
        Value::Float32(v) => v.to_string(),
        Value::Float64(v) => v.to_string(),
        Value::Decimal(v) => v.to_plain_string(),
        Value::String(v) => format!("{v:?}"),
        Value::Bytes(v) => hex(v),
        other => other.as_integer().map_or_else(|| "set".to_owned(), |n| n.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use walferry_record::Field;

    use super::*;

    #[test]
    fn bytes_are_shown_as_what_they_are() {
        let cases: [(Option<&[u8]>, &str); 8] = [
            (None, "null"),
            (Some(b""), "(empty)"),
            (Some(b"42"), "42"),
            (Some(b"\x00\x00\x00\x2a"), "0x0000002a"),
            (Some(b"\xff\xfe"), "0xfffe"),
            (Some("Zoë\n2".as_bytes()), "Zoë\n2"),
            // A terminal would obey this one.
            (Some("a\u{9b}31m".as_bytes()), "a\\u{9b}31m"),
            (Some(b"\x1b[31m"), "0x1b5b33316d"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(readable(bytes, true), expected, "{bytes:?}");
        }
    }

    #[test]
    fn json_keeps_its_numbers_and_its_order_and_loses_its_schema_on_a_terminal() {
        let json = br#"{"schema":{"type":"struct","doc":"}\""},"payload":{"b":1.50,"a":[],"c":[1,{"d":"x: {y"}]}}"#;
        let expected = "{\n  \"schema\": \"…\",\n  \"payload\": {\n    \"b\": 1.50,\n    \"a\": [],\n    \"c\": [\n      1,\n      {\n        \
                        \"d\": \"x: {y\"\n      }\n    ]\n  }\n}";
        assert_eq!(readable(Some(json), true), expected);
        assert_eq!(readable(Some(json), false).as_bytes(), json);
        assert_eq!(readable(Some(b"{no json"), true), "{no json");
    }

    #[test]
    fn a_schema_is_short_and_tells_all() {
        let row = Schema::structure(vec![
            Field::new("id", Schema::int64().build()),
            Field::new("amount", Schema::decimal(2).optional().build()),
            Field::new("name", Schema::string().default_value(Value::str("x")).build()),
        ]);
        let row = row.named("t.Value").optional().build();
        let source = Schema::structure(vec![Field::new("lsn", Schema::int64().build())]);
        let source = source.named("io.debezium.connector.postgresql.Source").build();
        let envelope = Schema::structure(vec![
            Field::new("before", row.clone()),
            Field::new("after", row),
            Field::new("source", source),
        ]);
        let expected = "struct t.Envelope v2
  before  struct t.Value, optional
    id      int64
    amount  bytes org.apache.kafka.connect.data.Decimal v1, scale=2, optional
    name    string, default \"x\"
  after   struct t.Value, optional (as above)
  source  struct io.debezium.connector.postgresql.Source (as in every event)";
        assert_eq!(schema(Some(&envelope.named("t.Envelope").version(2))), expected);
        assert_eq!(schema(None), "none");
    }
}
