//! `hstore`.

use std::fmt::Write;

use walferry_config::connector::{EventSection, HstoreHandling};
use walferry_record::java::hash;
use walferry_record::{Schema, Value};

use super::mapping::{Decoder, Mapping, Unavailable};
use super::reason::Reason;
use super::text::utf8;

/// `hstore`.
pub(super) fn hstore(modes: &EventSection) -> Mapping {
    let placeholder = modes.unavailable_value.text();
    let (schema, fallback, unavailable) = match modes.hstore {
        HstoreHandling::Json => {
            let json = json(&[(placeholder.clone(), Some(placeholder))]);
            (
                Schema::string().named("io.debezium.data.Json").version(1),
                Value::str("{}"),
                Value::string(json),
            )
        }
        HstoreHandling::Map => {
            let entry = (Value::string(placeholder.clone()), Value::string(placeholder));
            let schema = Schema::map(Schema::string().build(), Schema::string().optional().build());
            (schema, Value::Map(Vec::new()), Value::Map(vec![entry]))
        }
    };
    Mapping {
        schema,
        decoder: Decoder::Hstore(modes.hstore),
        fallback,
        unavailable: Unavailable::Placeholder(unavailable),
    }
}

/// An hstore as Postgres prints it: `"a"=>"1", "b"=>NULL`.
pub(super) fn read_hstore<'a>(bytes: &[u8], mode: HstoreHandling) -> Result<Value<'a>, Reason> {
    let pairs = parse(&utf8(bytes)).ok_or(Reason::Malformed("hstore"))?;
    Ok(match mode {
        HstoreHandling::Json => Value::string(json(&pairs)),
        HstoreHandling::Map => Value::Map(
            pairs
                .into_iter()
                .map(|(key, value)| (Value::string(key), value.map_or(Value::Null, Value::string)))
                .collect(),
        ),
    })
}

type Pairs = Vec<(String, Option<String>)>;

/// The pairs, in the order of Java's `HashMap`.
fn parse(text: &str) -> Option<Pairs> {
    let mut pairs = Pairs::new();
    let mut tail = text;
    while !tail.is_empty() {
        let (key, behind) = quoted(tail)?;
        let behind = behind.strip_prefix("=>")?;
        let (value, behind) = match behind.strip_prefix("NULL") {
            Some(behind) => (None, behind),
            None => quoted(behind).map(|(value, behind)| (Some(value), behind))?,
        };
        pairs.push((key, value));
        tail = if behind.is_empty() {
            behind
        } else {
            behind.strip_prefix(", ")?
        };
    }
    hash::sort(&mut pairs, hash::CAPACITY, |(key, _)| hash::of_text(key));
    Some(pairs)
}

fn quoted(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix('"')?;
    let mut out = String::new();
    let mut chars = inner.char_indices();
    loop {
        match chars.next()? {
            (place, '"') => return Some((out, &inner[place + 1..])),
            (_, '\\') => out.push(chars.next()?.1),
            (_, c) => out.push(c),
        }
    }
}

/// A JSON object as Jackson writes it.
pub(crate) fn json(pairs: &[(String, Option<String>)]) -> String {
    let mut out = String::from("{");
    for (place, (key, value)) in pairs.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        push_json(&mut out, key);
        out.push(':');
        match value {
            Some(value) => push_json(&mut out, value),
            None => out.push_str("null"),
        }
    }
    out.push('}');
    out
}

fn push_json(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => write!(out, "\\u{:04X}", u32::from(c)).expect("a string takes all text"),
            c => out.push(c),
        }
    }
    out.push('"');
}
