//! Schemas as short text for people.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::{Schema, Shape, Value};

/// Structs that are the same in every event.
const EVERYWHERE: [&str; 2] = ["io.debezium.connector.postgresql.Source", "event.block"];

/// A short text of a schema for people: one line for the schema itself, and one for each field. No program parses this
/// text.
pub fn outline(schema: Option<&Schema>) -> String {
    let Some(schema) = schema else { return "none".to_owned() };
    let mut text = word(schema);
    fields(schema, 1, &mut Vec::new(), &mut text);
    text
}

/// The fields of a struct, or of the elements of an array or map. If a struct occurs again, its fields are not
/// repeated.
fn fields<'s>(schema: &'s Schema, depth: usize, ancestors: &mut Vec<&'s Schema>, text: &mut String) {
    match &schema.shape {
        Shape::Array(items) => return fields(items, depth, ancestors, text),
        Shape::Map(_, values) => return fields(values, depth, ancestors, text),
        Shape::Struct(_) => {}
        _ => return,
    }
    if EVERYWHERE.iter().any(|name| schema.is_named(name)) {
        text.push_str(" (as in every event)");
        return;
    }
    if ancestors.contains(&schema) {
        text.push_str(" (as above)");
        return;
    }
    ancestors.push(schema);
    let width = schema.fields().iter().map(|field| field.name.chars().count()).max();
    let width = width.unwrap_or_default();
    for field in schema.fields() {
        let _ = write!(
            text,
            "\n{:indent$}{:<width$}  {}",
            "",
            one_line(&field.name),
            one_line(&word(&field.schema)),
            indent = depth * 2
        );
        fields(&field.schema, depth + 1, ancestors, text);
    }
}

/// A name is one of a column, and may have a line feed in it.
fn one_line(name: &str) -> Cow<'_, str> {
    match name.contains(char::is_control) {
        true => name.escape_debug().to_string().into(),
        false => name.into(),
    }
}

/// The type, and the other facts of the schema.
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

/// The type of an element. It is in brackets, so that one can see what is optional.
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
        Value::Bytes(v) => format!("of {} bytes", v.len()),
        other => other.as_integer().map_or_else(|| "set".to_owned(), |n| n.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Field;

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
        assert_eq!(outline(Some(&envelope.named("t.Envelope").version(2))), expected);
        assert_eq!(outline(None), "none");
    }
}
