//! Kafka's `MaskField`: nothing, or a fixed text, in the place of values.

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::java::logical::Logical;
use walferry_record::{Decimal, Record, Schema, SchemaAndValue, SchemaRef, Shape, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{NestedDefaults, REPLACE_NULL, Reshape, map, names, set_text, typed, values};
use crate::{Error, Transform};

properties! {
    const FIELDS: Property<Vec<String>> = Property::new("fields").example("tenant").required()
        .text("Names of the fields to mask. Fields that do not exist are ignored.");
    const REPLACEMENT: Property<Option<String>> = Property::new("replacement").example("-")
        .text("Replacement for the values, for numbers and text only. The default is 0, false, an empty text, an empty list or map, or \
               1970-01-01. Null stays null.");
    const REPLACE: Property<bool> = Property::new("replace.null.with.default").default("true")
        .text(REPLACE_NULL);
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.MaskField",
    sides: true,
    options: Group {
        title: "Transform MaskField",
        text: "`org.apache.kafka.connect.transforms.MaskField$Key` and `$Value`: masks fields of the key or the value. Bytes and structs \
               cannot be masked. A masked decimal has the scale 0, or the scale of `replacement`. If this differs from the scale of the \
               schema, JsonConverter can write it only as a number (`decimal.format=NUMERIC`). The transform fails on tombstones, so add \
               a predicate.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

const PURPOSE: &str = "MaskField";

#[derive(Clone)]
struct MaskField {
    fields: Vec<String>,
    replacement: Option<String>,
    replace_null: bool,
}

#[derive(Debug, Clone, thiserror::Error)]
enum CannotMask {
    #[error("field {field} is of type {found}, which cannot be masked")]
    Type { field: String, found: &'static str },
    #[error("field {field} is of type {found}, which cannot be masked with a replacement")]
    Replacement { field: String, found: &'static str },
    #[error("field {field} is a number, but replacement is not")]
    NoNumber { field: String },
}

impl TransformFault for CannotMask {
    fn hint(&self) -> Option<String> {
        Some(
            match self {
                Self::Type { .. } => "remove the field with ReplaceField instead",
                Self::Replacement { .. } => "mask such fields with a second MaskField without replacement",
                Self::NoNumber { .. } => "set replacement to a number, or mask the field with a second MaskField",
            }
            .to_owned(),
        )
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let fields = names(reader, &FIELDS);
    let replacement = set_text(reader, &REPLACEMENT);
    if replacement.as_deref() == Some("") {
        reader
            .problem(REPLACEMENT.name(), "must not be empty")
            .hint("remove it to mask text with an empty text");
    }
    let replace_null = reader.get(&REPLACE);
    MaskField {
        fields,
        replacement,
        replace_null,
    }
    .boxed(side)
}

impl MaskField {
    /// What stands in the place of values of a type.
    fn mask(&self, field: &str, schema: &Schema) -> Result<Value<'static>, CannotMask> {
        let field = || field.to_owned();
        let found = schema.type_name();
        let is_date = Logical::of(schema).is_some();
        let Some(text) = &self.replacement else {
            return Ok(match &schema.shape {
                _ if is_decimal(schema) => Value::Decimal(Decimal::small(0, 0)),
                Shape::Boolean => Value::Boolean(false),
                Shape::Int8 => Value::Int8(0),
                Shape::Int16 => Value::Int16(0),
                Shape::Int32 => Value::Int32(0),
                Shape::Int64 => Value::Int64(0),
                Shape::Float32 => Value::Float32(0.0),
                Shape::Float64 => Value::Float64(0.0),
                Shape::String => Value::str(""),
                Shape::Array(_) => Value::Array(Vec::new()),
                Shape::Map(..) => Value::Map(Vec::new()),
                Shape::Bytes | Shape::Struct(_) => return Err(CannotMask::Type { field: field(), found }),
            });
        };
        let number = || Decimal::parse_java(text).ok_or_else(|| CannotMask::NoNumber { field: field() });
        Ok(match &schema.shape {
            _ if is_date => return Err(CannotMask::Replacement { field: field(), found }),
            _ if is_decimal(schema) => Value::Decimal(number()?),
            Shape::Int8 => Value::Int8(number()?.long_value() as i8),
            Shape::Int16 => Value::Int16(number()?.long_value() as i16),
            Shape::Int32 => Value::Int32(number()?.long_value() as i32),
            Shape::Int64 => Value::Int64(number()?.long_value()),
            Shape::Float32 => Value::Float32(number()?.double_value() as f32),
            Shape::Float64 => Value::Float64(number()?.double_value()),
            Shape::String => Value::string(text.clone()),
            _ => return Err(CannotMask::Replacement { field: field(), found }),
        })
    }
}

fn is_decimal(schema: &Schema) -> bool {
    schema.is_named("org.apache.kafka.connect.data.Decimal")
}

pub(crate) struct Plan {
    schema: SchemaRef,
    settling: NestedDefaults,
    /// Places of the fields; what cannot be masked fails only where there is a value.
    masks: Vec<(usize, Result<Value<'static>, CannotMask>)>,
}

impl Reshape for MaskField {
    type Plan = Plan;

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        let masked = schema.fields().iter().enumerate();
        let masked = masked.filter(|(_, field)| self.fields.iter().any(|name| **name == *field.name));
        Ok(Plan {
            schema: schema.clone(),
            settling: NestedDefaults::new(schema),
            masks: masked
                .map(|(place, field)| (place, self.mask(&field.name, &field.schema)))
                .collect(),
        })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, value: Value<'a>, _: &mut Record<'a>) -> Result<SchemaAndValue<'a>, Error> {
        let mut values = values(value, PURPOSE)?;
        plan.settling.settle(&plan.schema, &mut values, self.replace_null)?;
        for (place, mask) in &plan.masks {
            if !values[*place].is_null() {
                values[*place] = mask.as_ref().map_err(Clone::clone)?.reborrow();
            }
        }
        Ok(typed(&plan.schema, values))
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, _: &mut Record<'a>) -> Result<Value<'a>, Error> {
        let mut map = map(value, PURPOSE)?;
        for field in &self.fields {
            let mask = match map.get(field) {
                None | Some(Value::Null) => Value::Null,
                Some(value) => self.mask(field, &schema_of(value))?,
            };
            map.put(Value::str(field), mask);
        }
        Ok(map.into_value())
    }
}

/// A schema that stands for what a value without one is.
fn schema_of(value: &Value<'_>) -> Schema {
    match value {
        Value::Boolean(_) => Schema::boolean(),
        Value::Int8(_) => Schema::int8(),
        Value::Int16(_) => Schema::int16(),
        Value::Int32(_) => Schema::int32(),
        Value::Int64(_) => Schema::int64(),
        Value::Float32(_) => Schema::float32(),
        Value::Float64(_) => Schema::float64(),
        Value::String(_) => Schema::string(),
        Value::Decimal(_) => Schema::bytes().named("org.apache.kafka.connect.data.Decimal"),
        Value::Array(_) => Schema::array(Schema::string().build()),
        Value::Map(_) => Schema::map(Schema::string().build(), Schema::string().build()),
        Value::Null | Value::Bytes(_) => Schema::bytes(),
        Value::Struct(_) => Schema::structure(Vec::new()),
    }
}
