//! Against what Confluent's `ProtobufData` made of the same schemas and values. It was compiled from its public source, with the
//! libraries that it names from Maven (Wire 5.5.0, protobuf-java 4.33.0).

use serde_json::Value as Json;

use super::Protobuf;
use super::derive::Style;
use crate::recorded;

/// One case a line: `connect` is the JSON of JsonConverter, `schema` and `bytes` are what the converter made of it.
const RECORDED: &str = include_str!("../../tests/vectors/protobuf.jsonl");

/// Cases in which we differ, because Java's converter writes what nobody can read: a decimal or a time that stands alone is written as
/// another message than the schema tells.
const REFUSED: [&str; 3] = ["decimal alone", "timestamp alone", "date alone"];

#[test]
fn schemas_and_bytes_are_those_of_the_java_converter() {
    recorded::compare(RECORDED, 160, difference);
}

fn difference(case: &Json) -> Option<String> {
    let name = case["name"].as_str().unwrap();
    let schema = recorded::schema(&case["connect"]["schema"]);
    let value = recorded::value(&schema, &case["connect"]["payload"]);
    let protobuf = Protobuf::new(&schema, style(&case["options"]));
    if REFUSED.contains(&name) {
        return protobuf.is_ok().then(|| "is not refused".to_owned());
    }
    let mut out = Vec::new();
    let written = protobuf.and_then(|protobuf| {
        if !value.is_null() {
            protobuf.plan.write_root(&value, &mut out)?;
        }
        Ok(protobuf)
    });
    let expected = match (&written, case["error"].as_str()) {
        (Err(_), Some(_)) => return None,
        (Ok(_), Some(error)) => return Some(format!("is written; expected {error}")),
        (Err(failure), None) => return Some(format!("{failure:?}")),
        (Ok(protobuf), None) => protobuf,
    };
    let record = format!(
        "{}{}",
        expected
            .name
            .namespace
            .as_ref()
            .map(|package| format!("{package}."))
            .unwrap_or_default(),
        expected.name.name
    );
    let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
    let schema = case["schema"].as_str().unwrap();
    if expected.text != schema {
        return Some(format!("schema\n{}\nexpected\n{schema}", expected.text));
    }
    if record != case["record"] {
        return Some(format!("{record} in place of {}", case["record"]));
    }
    let bytes = case["bytes"].as_str()?;
    let index = match case["indexes"].as_str().unwrap().trim_matches(['[', ']']) {
        "" | "0" => vec![0],
        index => vec![2, index.parse::<u8>().unwrap() * 2],
    };
    if *expected.index != *index {
        return Some(format!("index {:?} in place of {index:?}", expected.index));
    }
    (hex != bytes).then(|| format!("bytes\n  {hex}\n  {bytes}"))
}

fn style(options: &Json) -> Style {
    let mut style = Style::default();
    for (name, value) in options.as_object().into_iter().flatten() {
        let value = value == "true";
        match name.as_str() {
            "optional.for.nullables" => style.optional = value,
            "wrapper.for.nullables" => style.wrappers = value,
            "scrub.invalid.names" => style.scrub = value,
            "ignore.default.for.nullables" => style.keep_nulls = value,
            // They concern reading.
            _ => {}
        }
    }
    style
}
