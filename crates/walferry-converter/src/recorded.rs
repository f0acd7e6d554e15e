//! What Java's converters were given and what they made of it: reads the cases that tests compare with.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::Value as Json;
use walferry_record::java::hash_map::HashMap as JavaHashMap;
use walferry_record::{Decimal, Field, Schema, SchemaRef, Shape, Struct, Value};

/// The schema of JsonConverter's JSON.
pub(crate) fn schema(json: &Json) -> SchemaRef {
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
            Shape::Struct(
                fields
                    .map(|field| Field::new(field["field"].as_str().unwrap(), schema(field)))
                    .collect(),
            )
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
pub(crate) fn value(schema: &SchemaRef, json: &Json) -> Value<'static> {
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
            Json::Object(members) => {
                let pairs = members
                    .iter()
                    .map(|(name, json)| (Value::string(name.clone()), value(values, json)));
                // JsonConverter reads it into a `HashMap`.
                return JavaHashMap::filled(pairs.collect()).into_value();
            }
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

/// Compares each line of a file of cases and reports all differences. The file must have more than `least` cases.
#[track_caller]
pub(crate) fn compare(cases: &str, least: usize, difference: impl Fn(&Json) -> Option<String>) {
    let mut wrong = Vec::new();
    for line in cases.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        if let Some(difference) = difference(&case) {
            wrong.push(format!("{}: {difference}", case["name"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let cases = cases.lines().count();
    assert!(cases > least, "{cases} cases");
}
