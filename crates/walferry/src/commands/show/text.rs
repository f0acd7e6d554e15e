//! Keys, values and headers as a person reads them: text, JSON over several lines, or bytes.

use std::fmt::Write as _;

use serde::de::IgnoredAny;
use walferry_diagnosis::printed::lines;

/// JSON that is no longer than this stays on one line.
const SHORT: usize = 60;

/// The bytes of a key, a value or a header as readable text.
pub(crate) fn readable(bytes: Option<&[u8]>, is_terminal: bool) -> String {
    let bytes = match bytes {
        // JSON's `null` has four bytes and is no tombstone.
        None => return "(null)".to_owned(),
        Some([]) => return "(empty)".to_owned(),
        Some(bytes) => bytes,
    };
    let text = match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(is_binary) => text,
        _ => return hex(bytes),
    };
    let is_json = text.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok();
    match is_json && is_terminal && text.len() > SHORT {
        true => lines(&pretty(&without_schema(text))).into_owned(),
        false => lines(text).into_owned(),
    }
}

/// Characters that readable text does not have.
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

/// JSON as JsonConverter writes it, with `…` in place of the schema, which is shown separately.
fn without_schema(json: &str) -> String {
    const SCHEMA: &str = "{\"schema\":";
    let Some(schema) = json.strip_prefix(SCHEMA).filter(|schema| schema.starts_with('{')) else {
        return json.to_owned();
    };
    let end = end_of_object(schema);
    match schema[end..].starts_with(",\"payload\":") {
        true => format!("{SCHEMA}\"…\"{}", &schema[end..]),
        false => json.to_owned(),
    }
}

/// The length of the JSON object at the beginning of a text.
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

/// The same JSON over several lines. Numbers and strings are unchanged.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_as_what_they_are() {
        let cases: [(Option<&[u8]>, &str); 9] = [
            (None, "(null)"),
            (Some(b"null"), "null"),
            (Some(b""), "(empty)"),
            (Some(b"42"), "42"),
            (Some(b"\x00\x00\x00\x2a"), "0x0000002a"),
            (Some(b"\xff\xfe"), "0xfffe"),
            (Some("Zoë\n2".as_bytes()), "Zoë\n2"),
            // This character controls a terminal.
            (Some("a\u{9b}31m".as_bytes()), "a\\u009b31m"),
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
}
