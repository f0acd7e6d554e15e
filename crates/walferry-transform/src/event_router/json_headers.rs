//! `walferry.headers.from`: each member of a JSON object becomes a header.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use walferry_record::{Header, Schema, SchemaAndValue, SchemaRef, Value};

/// A column whose members become headers.
#[derive(Debug)]
pub(super) struct JsonColumn {
    pub(super) name: String,
    pub(super) index: usize,
    schema: SchemaRef,
}

/// The text of a column is not a JSON object.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotAnObject;

impl JsonColumn {
    pub(super) fn new(name: &str, index: usize) -> Self {
        Self {
            name: name.to_owned(),
            index,
            schema: Schema::string().build(),
        }
    }

    /// Adds one header for each member, in alphabetical order. Every header is text: strings are unquoted, and everything else is
    /// written as it stands in the JSON text, so that numbers keep all their digits. A member that is null makes no header.
    ///
    /// A name that the record has already, such as `id`, gets the name of the column before it: consumers must not take it for
    /// the other one.
    ///
    /// # Errors
    /// The text is not a JSON object.
    pub(super) fn add(&self, text: &str, headers: &mut Vec<Header<'_>>) -> Result<(), NotAnObject> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).map_err(|_| NotAnObject)?;
        headers.reserve(members.len());
        for (name, value) in members {
            let text = match value.get() {
                "null" => continue,
                quoted if quoted.starts_with('"') => serde_json::from_str(quoted).map_err(|_| NotAnObject)?,
                raw => raw.to_owned(),
            };
            let mut name = name;
            while headers.iter().any(|header| header.name == name) {
                name = format!("{}.{name}", self.name);
            }
            headers.push(Header {
                name: Cow::Owned(name),
                value: SchemaAndValue::new(self.schema.clone(), Value::string(text)),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(text: &str) -> Result<Vec<(String, String)>, NotAnObject> {
        let mut headers = vec![Header {
            name: "id".into(),
            value: SchemaAndValue::NULL,
        }];
        JsonColumn::new("metadata", 0).add(text, &mut headers)?;
        let added = headers.iter().skip(1);
        Ok(added
            .map(|header| {
                let value = header.value.value.as_str().expect("text");
                (header.name.to_string(), value.to_owned())
            })
            .collect())
    }

    #[test]
    fn each_member_becomes_a_header_of_text() {
        let text = r#"{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tenant": 7, "price": 12.50,
            "big": 123456789012345678901234567890, "test": true, "none": null, "quote": "a\"b\u00e9", "tags": ["a", 1], "o": {"a":  1}, "id": "x",
            "metadata.id": "z"}"#;
        let expected = [
            ("big", "123456789012345678901234567890"),
            ("metadata.id", "x"),
            ("metadata.metadata.id", "z"),
            ("o", "{\"a\":  1}"),
            ("price", "12.50"),
            ("quote", "a\"bé"),
            ("tags", "[\"a\", 1]"),
            ("tenant", "7"),
            ("test", "true"),
            ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ];
        let mut made = headers(text).unwrap();
        made.sort();
        assert_eq!(made, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert_eq!(headers("{}"), Ok(vec![]));
    }

    #[test]
    fn what_is_no_object_is_an_error() {
        for text in ["[1]", "1", "\"a\"", "null", "", "{", "{\"a\":1} x"] {
            assert_eq!(headers(text), Err(NotAnObject), "{text}");
        }
    }
}
