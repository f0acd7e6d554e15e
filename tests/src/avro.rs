//! Avro in front of which the id of its schema stands, as JSON with that schema, so that records can be masked and compared.

use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;
use walferry_testkit::servers::Registry;

/// A registry's schemas, each fetched once.
#[derive(Debug)]
pub struct Schemas<'a> {
    registry: &'a Registry,
    known: HashMap<u32, Value>,
}

impl<'a> Schemas<'a> {
    /// None yet.
    pub fn of(registry: &'a Registry) -> Self {
        Self {
            registry,
            known: HashMap::new(),
        }
    }

    /// Bytes with an id as JSON text, and all others as they are.
    pub fn shown(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        let Some((&[0, a, b, c, d], value)) = bytes.split_first_chunk::<5>() else {
            return bytes;
        };
        let id = u32::from_be_bytes([a, b, c, d]);
        let registry = self.registry;
        let ask = || registry.ask_own(2, &format!("/ids/globalIds/{id}"));
        let schema = self.known.entry(id).or_insert_with(ask);
        // A schema may refer to others by name.
        let whole = || registry.ask_own(2, &format!("/ids/globalIds/{id}?dereference=true"));
        match read(value, schema).or_else(|| read(value, &whole())) {
            Some(text) => format!("{{\"@id\":{id},\"@schema\":{schema},\"@\":{text}}}").into_bytes(),
            // What the schema does not fit is compared as it is.
            None => bytes,
        }
    }
}

/// A whole value as JSON.
fn read(value: &[u8], schema: &Value) -> Option<String> {
    let (mut text, mut reader) = (String::new(), Reader::new(value, schema));
    reader.value(schema, "", &mut text)?;
    reader.bytes.is_empty().then_some(text)
}

struct Reader<'a> {
    bytes: &'a [u8],
    /// Named types, and the namespace within each.
    types: HashMap<String, (&'a Value, String)>,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], schema: &'a Value) -> Self {
        let mut types = HashMap::new();
        // A type may be declared in a branch that no value takes.
        collect(schema, "", &mut types);
        Self { bytes, types }
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    fn long(&mut self) -> Option<i64> {
        let (mut number, mut shift) = (0_u64, 0_u32);
        loop {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7F).checked_shl(shift)?;
            if byte < 0x80 {
                return Some((number >> 1) as i64 ^ -((number & 1) as i64));
            }
            shift += 7;
        }
    }

    fn counted(&mut self) -> Option<&'a [u8]> {
        let count = usize::try_from(self.long()?).ok()?;
        self.take(count)
    }

    fn value(&mut self, schema: &'a Value, namespace: &str, out: &mut String) -> Option<()> {
        match schema {
            Value::String(name) => self.named(name, namespace, out),
            Value::Array(branches) => {
                let branch = usize::try_from(self.long()?).ok()?;
                self.value(branches.get(branch)?, namespace, out)
            }
            Value::Object(_) => match schema["type"].as_str() {
                Some("record") => self.record(schema, &names(schema, namespace)?.1, out),
                Some("array") => self.blocks(out, ['[', ']'], |reader, out| {
                    reader.value(&schema["items"], namespace, out)
                }),
                Some("map") => self.blocks(out, ['{', '}'], |reader, out| {
                    push_text(out, reader.counted()?)?;
                    out.push(':');
                    reader.value(&schema["values"], namespace, out)
                }),
                Some("enum") => {
                    let symbol = usize::try_from(self.long()?).ok()?;
                    out.push_str(&schema["symbols"].get(symbol)?.to_string());
                    Some(())
                }
                Some("fixed") => {
                    let size = usize::try_from(schema["size"].as_u64()?).ok()?;
                    push_hex(out, self.take(size)?);
                    Some(())
                }
                _ => self.value(&schema["type"], namespace, out),
            },
            _ => None,
        }
    }

    fn named(&mut self, name: &str, namespace: &str, out: &mut String) -> Option<()> {
        match name {
            "null" => out.push_str("null"),
            "boolean" => out.push_str(if self.take(1)? == [0] { "false" } else { "true" }),
            "int" | "long" => write!(out, "{}", self.long()?).ok()?,
            "float" => write!(out, "{:?}", f32::from_le_bytes(self.take(4)?.try_into().ok()?)).ok()?,
            "double" => write!(out, "{:?}", f64::from_le_bytes(self.take(8)?.try_into().ok()?)).ok()?,
            "bytes" => push_hex(out, self.counted()?),
            "string" => push_text(out, self.counted()?)?,
            name => {
                let (schema, inner) = self
                    .types
                    .get(&full(name, namespace))
                    .or_else(|| self.types.get(name))
                    .cloned()?;
                match schema["type"].as_str()? {
                    "record" => self.record(schema, &inner, out)?,
                    _ => self.value(schema, &inner, out)?,
                }
            }
        }
        Some(())
    }

    fn record(&mut self, schema: &'a Value, namespace: &str, out: &mut String) -> Option<()> {
        out.push('{');
        for (index, field) in schema["fields"].as_array()?.iter().enumerate() {
            write!(out, "{}{}:", if index == 0 { "" } else { "," }, field["name"]).ok()?;
            self.value(&field["type"], namespace, out)?;
        }
        out.push('}');
        Some(())
    }

    fn blocks(
        &mut self,
        out: &mut String,
        [open, close]: [char; 2],
        mut element: impl FnMut(&mut Self, &mut String) -> Option<()>,
    ) -> Option<()> {
        out.push(open);
        let mut first = true;
        loop {
            let count = self.long()?;
            if count < 0 {
                // Its size in bytes follows.
                self.long()?;
            }
            for _ in 0..count.unsigned_abs() {
                if !std::mem::take(&mut first) {
                    out.push(',');
                }
                element(self, out)?;
            }
            if count == 0 {
                out.push(close);
                return Some(());
            }
        }
    }
}

fn collect<'a>(schema: &'a Value, namespace: &str, types: &mut HashMap<String, (&'a Value, String)>) {
    match schema {
        Value::Array(branches) => branches.iter().for_each(|branch| collect(branch, namespace, types)),
        Value::Object(_) => {
            let inner = match names(schema, namespace) {
                Some((name, inner)) => {
                    types.insert(name, (schema, inner.clone()));
                    inner
                }
                None => namespace.to_owned(),
            };
            for field in schema["fields"].as_array().into_iter().flatten() {
                collect(&field["type"], &inner, types);
            }
            for part in ["items", "values", "type"] {
                collect(&schema[part], &inner, types);
            }
        }
        _ => {}
    }
}

/// The full name of a type, and the namespace within it.
fn names(schema: &Value, around: &str) -> Option<(String, String)> {
    let name = full(schema["name"].as_str()?, schema["namespace"].as_str().unwrap_or(around));
    let inner = name.rsplit_once('.').map_or("", |(namespace, _)| namespace).to_owned();
    Some((name, inner))
}

fn full(name: &str, namespace: &str) -> String {
    match name.contains('.') || namespace.is_empty() {
        true => name.to_owned(),
        false => format!("{namespace}.{name}"),
    }
}

fn push_text(out: &mut String, bytes: &[u8]) -> Option<()> {
    out.push_str(&Value::from(std::str::from_utf8(bytes).ok()?).to_string());
    Some(())
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    out.push_str("\"0x");
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_kind_of_value_is_read() {
        let schema = json!({"type": "record", "name": "a.R", "fields": [
            {"name": "none", "type": ["null", {"type": "record", "name": "N", "fields": [{"name": "n", "type": "int"}]}]},
            {"name": "n", "type": ["null", "N"]},
            {"name": "i", "type": ["null", {"type": "record", "name": "I", "fields": [{"name": "n", "type": "long"}]}]},
            {"name": "again", "type": ["null", "I"]},
            {"name": "list", "type": {"type": "array", "items": "string"}},
            {"name": "map", "type": {"type": "map", "values": "boolean"}},
            {"name": "d", "type": "double"},
            {"name": "b", "type": {"type": "bytes", "logicalType": "decimal"}},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["x", "y"]}},
        ]});
        let mut bytes = vec![0, 2, 14, 2, 3, 2, 200, 1, 2, 2, b'q', 0, 2, 2, b'k', 1, 0];
        bytes.extend_from_slice(&1.5_f64.to_le_bytes());
        bytes.extend_from_slice(&[4, 0, 255, 2]);
        let (mut out, mut reader) = (String::new(), Reader::new(&bytes, &schema));
        assert_eq!(reader.value(&schema, "", &mut out), Some(()));
        assert!(reader.bytes.is_empty());
        let expected = r#"{"none":null,"n":{"n":7},"i":{"n":-2},"again":{"n":100},"list":["q"],"map":{"k":true},"d":1.5,"b":"0x00ff","e":"y"}"#;
        assert_eq!(out, expected);
    }
}
