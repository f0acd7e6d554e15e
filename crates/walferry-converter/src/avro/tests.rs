//! Against what Apicurio's copy of `AvroData` (2.6.13, Avro 1.12.0) made of the same schemas and values.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value as Json;
use walferry_record::{Decimal, Field, Schema, SchemaRef, Shape, Struct, Value};

use super::{Avro, Style};

/// One case a line: `connect` is the JSON of JsonConverter, `avro` and `bytes` are what the converter made of it.
const RECORDED: &str = include_str!("../../tests/vectors/avro.jsonl");

/// Cases in which we differ, because Avro for Java writes a schema that nobody can read the record with.
const REFUSED: [&str; 2] = ["same name other struct", "same name other struct, optional"];

#[test]
fn schemas_and_bytes_are_those_of_the_java_converter() {
    let mut wrong = Vec::new();
    for line in RECORDED.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap();
        if let Some(difference) = difference(&case) {
            wrong.push(format!("{name}: {difference}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn difference(case: &Json) -> Option<String> {
    let name = case["name"].as_str().unwrap();
    let schema = schema(&case["connect"]["schema"]);
    let value = value(&schema, &case["connect"]["payload"]);
    let avro = Avro::new(&schema, style(&case["options"]));
    if REFUSED.contains(&name) {
        return avro.is_ok().then(|| "is not refused".to_owned());
    }
    match (&avro, case["avro"].as_str()) {
        (Ok(avro), Some(expected)) if avro.text != expected => {
            return Some(format!("schema\n  {}\n  {expected}", avro.text));
        }
        (Ok(_), Some(_)) => {}
        (Err(_), None) => return None,
        (Err(failure), Some(_)) => return Some(format!("{failure:?}")),
        (Ok(_), None) if case["bytes"].is_null() && case["connect"]["payload"].is_null() => {}
        (Ok(_), None) => return Some(format!("there is a schema; expected {}", case["error"])),
    }
    let mut out = Vec::new();
    let written = avro.ok()?.write(&value, &mut out);
    let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
    match (written, case["bytes"].as_str()) {
        (Ok(()), Some(expected)) if hex != expected => Some(format!("bytes\n  {hex}\n  {expected}")),
        // The converter makes Kafka's null of it before it comes to Avro.
        (Ok(()), None) if value.is_null() && hex == "00" => None,
        (Ok(()), None) => Some(format!("bytes {hex}, expected {}", case["error"])),
        (Err(failure), Some(_)) => Some(format!("{failure:?}")),
        _ => None,
    }
}

fn style(options: &Json) -> Style {
    let mut style = Style::default();
    for (name, value) in options.as_object().into_iter().flatten() {
        let value = value == "true";
        match name.as_str() {
            "connect.meta.data" => style.meta_data = value,
            "enhanced.avro.schema.support" => style.enhanced = value,
            "scrub.invalid.names" => style.scrub = value,
            "allow.optional.map.keys" => style.optional_map_keys = value,
            "ignore.default.for.nullables" => style.keep_nulls = value,
            "discard.type.doc.default" => style.discard_type_doc = value,
            "generalized.sum.type.support" => style.generalized = value,
            other => panic!("{other}"),
        }
    }
    style
}

/// The schema of JsonConverter's JSON.
fn schema(json: &Json) -> SchemaRef {
    let text = |name: &str| json[name].as_str().map(Arc::<str>::from);
    let shape = match json["type"].as_str().unwrap() {
        "int8" => Shape::Int8,
        "int16" => Shape::Int16,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "float" => Shape::Float32,
        "double" => Shape::Float64,
        "boolean" => Shape::Boolean,
        "string" => Shape::String,
        "bytes" => Shape::Bytes,
        "array" => Shape::Array(schema(&json["items"])),
        "map" => Shape::Map(schema(&json["keys"]), schema(&json["values"])),
        "struct" => {
            let fields = json["fields"].as_array().unwrap().iter();
            Shape::Struct(fields.map(|field| Field::new(field["field"].as_str().unwrap(), schema(field))).collect())
        }
        other => panic!("{other}"),
    };
    let mut made = Schema::of(shape).with_optional(json["optional"].as_bool().unwrap_or_default());
    made.name = text("name");
    made.doc = text("doc");
    made.version = json["version"].as_i64().map(|version| version as i32);
    for (name, value) in json["parameters"].as_object().into_iter().flatten() {
        made = made.parameter(name.as_str(), value.as_str().unwrap());
    }
    let default = value(&Arc::new(made.clone()), &json["default"]);
    made.default_value(default).build()
}

/// The value of JsonConverter's JSON.
fn value(schema: &SchemaRef, json: &Json) -> Value<'static> {
    if json.is_null() {
        return Value::Null;
    }
    let bytes = |json: &Json| STANDARD.decode(json.as_str().unwrap()).unwrap();
    match &schema.shape {
        Shape::Int8 => Value::Int8(json.as_i64().unwrap() as i8),
        Shape::Int16 => Value::Int16(json.as_i64().unwrap() as i16),
        Shape::Int32 => Value::Int32(json.as_i64().unwrap() as i32),
        Shape::Int64 => Value::Int64(json.as_i64().unwrap()),
        Shape::Float32 => Value::Float32(json.as_f64().unwrap() as f32),
        Shape::Float64 => Value::Float64(json.as_f64().unwrap()),
        Shape::Boolean => Value::Boolean(json.as_bool().unwrap()),
        Shape::String => Value::string(json.as_str().unwrap().to_owned()),
        Shape::Bytes if schema.is_named("org.apache.kafka.connect.data.Decimal") => {
            let scale = &schema.parameters.iter().find(|(name, _)| &**name == "scale").unwrap().1;
            let unscaled = num_bigint::BigInt::from_signed_bytes_be(&bytes(json));
            Value::Decimal(Decimal::big(unscaled, scale.parse().unwrap()))
        }
        Shape::Bytes => Value::bytes(bytes(json)),
        Shape::Array(items) => Value::Array(json.as_array().unwrap().iter().map(|json| value(items, json)).collect()),
        Shape::Map(keys, values) => Value::Map(match json {
            Json::Object(members) => members
                .iter()
                .map(|(name, json)| (Value::string(name.clone()), value(values, json)))
                .collect(),
            pairs => pairs
                .as_array()
                .unwrap()
                .iter()
                .map(|pair| (value(keys, &pair[0]), value(values, &pair[1])))
                .collect(),
        }),
        Shape::Struct(fields) => {
            let values = fields.iter().map(|field| value(&field.schema, &json[&*field.name]));
            Value::Struct(Struct::new(schema.clone(), values.collect()))
        }
    }
}
