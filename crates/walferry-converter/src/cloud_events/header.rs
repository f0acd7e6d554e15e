//! Headers that JsonConverter has written, read back.

use serde_json::Value as Json;
use std::sync::Arc;
use walferry_record::{Field, Schema, Struct, Value};

/// A header's value, or why it is none: `None` where the header is not `{"schema":…,"payload":…}`.
///
/// Of the types only those are read that a source block has: numbers, text, booleans and structs of them.
pub(super) fn read(bytes: Option<&[u8]>) -> Option<Value<'static>> {
    let Some(bytes) = bytes else { return Some(Value::Null) };
    let json: Json = serde_json::from_slice(bytes).ok()?;
    let members = json.as_object().filter(|members| members.len() == 2)?;
    let (schema, payload) = (members.get("schema")?, members.get("payload")?);
    value(&schema_of(schema)?, payload)
}

fn schema_of(json: &Json) -> Option<Schema> {
    let schema = match json.get("type")?.as_str()? {
        "int8" => Schema::int8(),
        "int16" => Schema::int16(),
        "int32" => Schema::int32(),
        "int64" => Schema::int64(),
        "boolean" => Schema::boolean(),
        "string" => Schema::string(),
        "struct" => {
            let fields = json.get("fields")?.as_array()?.iter().map(|field| {
                let name: Arc<str> = field.get("field")?.as_str()?.into();
                Some(Field::new(name, Arc::new(schema_of(field)?)))
            });
            Schema::structure(fields.collect::<Option<_>>()?)
        }
        _ => return None,
    };
    let default = match json.get("default") {
        Some(default) => value(&schema, default)?,
        None => Value::Null,
    };
    let optional = json.get("optional").and_then(Json::as_bool).unwrap_or_default();
    Some(schema.with_optional(optional).default_value(default))
}

fn value(schema: &Schema, json: &Json) -> Option<Value<'static>> {
    use walferry_record::Shape;
    Some(match (&schema.shape, json) {
        (_, Json::Null) => Value::Null,
        (Shape::Int8, number) => Value::Int8(number.as_i64()?.try_into().ok()?),
        (Shape::Int16, number) => Value::Int16(number.as_i64()?.try_into().ok()?),
        (Shape::Int32, number) => Value::Int32(number.as_i64()?.try_into().ok()?),
        (Shape::Int64, number) => Value::Int64(number.as_i64()?),
        (Shape::Boolean, flag) => Value::Boolean(flag.as_bool()?),
        (Shape::String, text) => Value::string(text.as_str()?.to_owned()),
        (Shape::Struct(fields), Json::Object(members)) => {
            let values = fields
                .iter()
                .map(|field| value(&field.schema, members.get(&*field.name).unwrap_or(&Json::Null)));
            Value::Struct(Struct::new(Arc::new(schema.clone()), values.collect::<Option<_>>()?))
        }
        _ => return None,
    })
}
