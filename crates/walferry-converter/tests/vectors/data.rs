//! Schemas and values in the notation of `testdata/README.md`.

use serde_json::Value as Json;
use walferry_record::{Decimal, Field, Schema, SchemaRef, Shape, Struct, Value};

pub(crate) fn schema(json: &Json) -> Option<SchemaRef> {
    let shape = match json.get("type")?.as_str().unwrap() {
        "int8" => Shape::Int8,
        "int16" => Shape::Int16,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "float" => Shape::Float32,
        "double" => Shape::Float64,
        "boolean" => Shape::Boolean,
        "string" => Shape::String,
        "bytes" => Shape::Bytes,
        "array" => Shape::Array(schema(&json["items"]).unwrap()),
        "map" => Shape::Map(schema(&json["keys"]).unwrap(), schema(&json["values"]).unwrap()),
        "struct" => Shape::Struct(
            list(&json["fields"])
                .iter()
                .map(|field| Field::new(text(&field[0]), schema(&field[1]).unwrap()))
                .collect(),
        ),
        other => panic!("{other}"),
    };
    let mut built = Schema::of(shape).with_optional(json["optional"].as_bool().unwrap_or_default());
    if let Some(name) = json["name"].as_str() {
        built = built.named(name);
    }
    if let Some(version) = json["version"].as_i64() {
        built = built.version(version as i32);
    }
    if let Some(doc) = json["doc"].as_str() {
        built = built.doc(doc);
    }
    for parameter in json["parameters"].as_array().into_iter().flatten() {
        built = built.parameter(text(&parameter[0]), text(&parameter[1]));
    }
    let default = value(&json["default"], Some(&built.clone().build()));
    Some(built.default_value(default).build())
}

pub(crate) fn value(json: &Json, schema: Option<&SchemaRef>) -> Value<'static> {
    let Some((tag, inner)) = json.as_object().and_then(|object| object.iter().next()) else {
        return Value::Null;
    };
    match tag.as_str() {
        "i8" => Value::Int8(inner.as_i64().unwrap() as i8),
        "i16" => Value::Int16(inner.as_i64().unwrap() as i16),
        "i32" => Value::Int32(inner.as_i64().unwrap() as i32),
        "i64" => Value::Int64(text(inner).parse().unwrap()),
        "f32" => Value::Float32(f32::from_bits(u32::from_str_radix(text(inner), 16).unwrap())),
        "f64" => Value::Float64(f64::from_bits(u64::from_str_radix(text(inner), 16).unwrap())),
        "b" => Value::Boolean(inner.as_bool().unwrap()),
        "s" => Value::string(text(inner).to_owned()),
        "x" => Value::bytes(bytes(text(inner))),
        "d" => Value::Decimal(Decimal::big(
            text(&inner[0]).parse().unwrap(),
            inner[1].as_i64().unwrap() as i32,
        )),
        "a" => {
            let items = match schema.map(|schema| &schema.shape) {
                Some(Shape::Array(items)) => Some(items),
                _ => None,
            };
            Value::Array(list(inner).iter().map(|item| value(item, items)).collect())
        }
        "m" => {
            let (keys, values) = match schema.map(|schema| &schema.shape) {
                Some(Shape::Map(keys, values)) => (Some(keys), Some(values)),
                _ => (None, None),
            };
            Value::Map(
                list(inner)
                    .iter()
                    .map(|pair| (value(&pair[0], keys), value(&pair[1], values)))
                    .collect(),
            )
        }
        "st" => structure(schema.unwrap(), inner),
        "st2" => structure(&self::schema(&inner["schema"]).unwrap(), &inner["values"]),
        other => panic!("{other}"),
    }
}

fn structure(schema: &SchemaRef, values: &Json) -> Value<'static> {
    let fields = schema.fields().iter().zip(list(values));
    let values = fields.map(|(field, json)| value(json, Some(&field.schema))).collect();
    Value::Struct(Struct::new(schema.clone(), values))
}

fn list(json: &Json) -> &Vec<Json> {
    json.as_array().unwrap()
}

fn text(json: &Json) -> &str {
    json.as_str().unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}
