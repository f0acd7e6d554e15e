//! Against what Confluent's `JsonSchemaData` made of the same schemas and values. It was compiled from its public source, with the
//! libraries that it names from Maven (everit 1.14.6, Jackson 2.19.2).

use serde_json::Value as Json;

use super::schema::{self, Style};
use crate::DecimalFormat;
use crate::json::{Dialect, Plan, Style as Values};
use crate::recorded;

/// One case a line: `connect` is the JSON of JsonConverter, `schema` and `value` are what the converter made of it.
const RECORDED: &str = include_str!("../../tests/vectors/json_schema.jsonl");

#[test]
fn schemas_and_values_are_those_of_the_java_converter() {
    recorded::compare(RECORDED, 80, difference);
}

fn difference(case: &Json) -> Option<String> {
    let schema = recorded::schema(&case["connect"]["schema"]);
    let value = recorded::value(&schema, &case["connect"]["payload"]);
    let style = style(&case["options"]);
    let text = schema::text(&schema, style).unwrap_or_else(|failure| format!("{failure:?}"));
    let expected = case["schema"].as_str().unwrap();
    if text != expected {
        return Some(format!("schema\n  {text}\n  {expected}"));
    }
    let mut out = Vec::new();
    if let Err(failure) = Plan::new(&schema, style.values).write(&value, &mut out) {
        return Some(format!("{failure:?}"));
    }
    let json = String::from_utf8(out).unwrap();
    let expected = case["value"].as_str().unwrap();
    (json != expected).then(|| format!("value\n  {json}\n  {expected}"))
}

fn style(options: &Json) -> Style {
    let mut style = Style {
        additional: true,
        generalized: false,
        values: Values {
            decimals: DecimalFormat::Base64,
            replace_null_with_default: true,
            dialect: Dialect::JsonSchema,
        },
    };
    for (name, value) in options.as_object().into_iter().flatten() {
        match (name.as_str(), value.as_str().unwrap()) {
            ("object.additional.properties", value) => style.additional = value == "true",
            ("generalized.sum.type.support", value) => style.generalized = value == "true",
            ("ignore.default.for.nullables", value) => style.values.replace_null_with_default = value != "true",
            ("decimal.format", "NUMERIC") => style.values.decimals = DecimalFormat::Numeric,
            other => panic!("{other:?}"),
        }
    }
    style
}
