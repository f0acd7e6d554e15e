//! Debezium's `VectorToJsonConverter`: pgvector's vectors as JSON text.

use walferry_config::{Group, Reader};
use walferry_record::java::text;
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Shape, Struct, Value};

use crate::contract::{HeaderList, PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{Reshape, ReshapeError, basics, check, kind};
use crate::{Error, Transform};

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.VectorToJsonConverter",
    sides: false,
    options: Group {
        title: "Transform VectorToJsonConverter",
        text: "`io.debezium.transforms.VectorToJsonConverter`: converts fields of the types `io.debezium.data.DoubleVector`, \
               `FloatVector` and `SparseDoubleVector`, which represent pgvector's columns, to JSON text. It has no options. Nulls are \
               replaced with the defaults of their fields. Tombstones stay unchanged; other values must be structs.",
        prefix: "transforms.<name>.",
        declarations: &[],
    },
    build,
};

const PURPOSE: &str = "VectorToJsonConverter";

#[derive(Clone)]
struct VectorToJsonConverter;

/// A field with the name of a vector that holds something else.
#[derive(Debug, thiserror::Error)]
#[error("field {field} has the schema name {name}, but is not a {name}")]
struct NoVector {
    field: String,
    name: String,
}

impl TransformFault for NoVector {
    fn hint(&self) -> Option<String> {
        Some("exclude such records with a predicate: their schema is not Debezium's schema for vectors".into())
    }
}

fn build(_: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    VectorToJsonConverter.boxed(side)
}

pub(crate) struct Plan {
    output: SchemaRef,
    fields: Vec<Step>,
}

struct Step {
    /// As it was.
    field: Field,
    change: Change,
}

enum Change {
    None,
    /// `DoubleVector` and `FloatVector`.
    Dense,
    /// `SparseDoubleVector`, with the places of its fields.
    Sparse {
        dimensions: usize,
        vector: usize,
    },
    /// A struct, which is made anew whether or not it holds vectors.
    Within(Plan),
    /// Something of that name that is not such a vector. Only null is taken.
    Foreign,
}

impl Change {
    fn of(schema: &Schema) -> Self {
        let place = |name, fits: fn(&Shape) -> bool| {
            let place = schema.field_index(name)?;
            fits(&schema.fields()[place].schema.shape).then_some(place)
        };
        match (schema.name.as_deref(), &schema.shape) {
            (Some("io.debezium.data.DoubleVector" | "io.debezium.data.FloatVector"), Shape::Array(_)) => Self::Dense,
            (Some("io.debezium.data.DoubleVector" | "io.debezium.data.FloatVector"), _) => Self::Foreign,
            (Some("io.debezium.data.SparseDoubleVector"), _) => {
                let dimensions = place("dimensions", |shape| matches!(shape, Shape::Int16));
                let vector = place("vector", |shape| {
                    matches!(shape, Shape::Map(keys, values)
                        if matches!((&keys.shape, &values.shape), (Shape::Int16, Shape::Float64)))
                });
                match (dimensions, vector) {
                    (Some(dimensions), Some(vector)) => Self::Sparse { dimensions, vector },
                    _ => Self::Foreign,
                }
            }
            (_, Shape::Struct(fields)) => Self::Within(Plan::new(schema, fields)),
            _ => Self::None,
        }
    }
}

impl Plan {
    fn new(schema: &Schema, fields: &[Field]) -> Self {
        let fields: Vec<Step> = fields
            .iter()
            .map(|field| Step {
                change: Change::of(&field.schema),
                field: field.clone(),
            })
            .collect();
        let output = fields.iter().map(|step| match &step.change {
            Change::None => step.field.clone(),
            Change::Within(plan) => Field::new(step.field.name.clone(), plan.output.clone()),
            Change::Dense | Change::Sparse { .. } | Change::Foreign => {
                let json = Schema::string().named("io.debezium.data.Json").version(1);
                let json = json.with_optional(step.field.schema.optional).build();
                Field::new(step.field.name.clone(), json)
            }
        });
        let output = basics(schema, Shape::Struct(output.collect()));
        Self {
            output: output.with_optional(schema.optional).build(),
            fields,
        }
    }

    fn apply<'a>(&'a self, value: Struct<'a>) -> Result<Struct<'a>, Error> {
        let mut values = value.into_values();
        for ((step, field), value) in self.fields.iter().zip(self.output.fields()).zip(&mut values) {
            if let (Value::Null, Some(default)) = (&*value, &step.field.schema.default) {
                *value = default.reborrow();
            }
            step.apply(value)?;
            if !matches!(step.change, Change::Within(_)) || value.is_null() {
                check(field, value)?;
            }
        }
        Ok(Struct::new(self.output.clone(), values))
    }
}

impl Step {
    fn apply<'a>(&'a self, value: &mut Value<'a>) -> Result<(), Error> {
        *value = match (&self.change, std::mem::take(value)) {
            (Change::None, value) => value,
            (_, Value::Null) => Value::Null,
            (Change::Dense, Value::Array(items)) => Value::string(dense(&items)),
            (Change::Sparse { dimensions, vector }, Value::Struct(value)) => {
                let values = value.values();
                let json = sparse(&values[*dimensions], &values[*vector]).ok_or_else(|| self.no_vector())?;
                Value::string(json)
            }
            (Change::Within(plan), Value::Struct(value)) => Value::Struct(plan.apply(value)?),
            _ => return Err(self.no_vector().into()),
        };
        Ok(())
    }

    fn no_vector(&self) -> NoVector {
        NoVector {
            field: self.field.name.to_string(),
            name: self.field.schema.name.as_deref().unwrap_or_default().to_owned(),
        }
    }
}

impl Reshape for VectorToJsonConverter {
    type Plan = Plan;

    const HEADER_LIST: HeaderList = HeaderList::Shared;

    fn passes(&self, typed: &SchemaAndValue<'_>) -> bool {
        typed.value.is_null()
    }

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        Ok(Plan::new(schema, schema.fields()))
    }

    fn apply<'a>(&'a self, plan: &'a Plan, value: Value<'a>, _: &mut Record<'a>) -> Result<SchemaAndValue<'a>, Error> {
        match value {
            Value::Struct(value) => Ok(SchemaAndValue::new(
                plan.output.clone(),
                Value::Struct(plan.apply(value)?),
            )),
            other => Err(not_struct(&other)),
        }
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, _: &mut Record<'a>) -> Result<Value<'a>, Error> {
        Err(not_struct(&value))
    }
}

fn not_struct(value: &Value<'_>) -> Error {
    let (purpose, found) = (PURPOSE, kind(value));
    ReshapeError::NotStruct { purpose, found }.into()
}

fn dense(items: &[Value<'_>]) -> String {
    let mut json = b"{ \"values\": [".to_vec();
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            json.extend_from_slice(b", ");
        }
        text::push(&mut json, item, None);
    }
    json.extend_from_slice(b"] }");
    ascii(json)
}

/// The text of a sparse vector, ordered by the place; `None` where the map is missing or a place is null.
fn sparse(dimensions: &Value<'_>, vector: &Value<'_>) -> Option<String> {
    let Value::Map(pairs) = vector else {
        return None;
    };
    let mut places = Vec::with_capacity(pairs.len());
    for (place, value) in pairs {
        places.push((place.as_integer()?, value));
    }
    places.sort_unstable_by_key(|(place, _)| *place);
    let mut json = b"{ \"dimensions\": ".to_vec();
    text::push(&mut json, dimensions, None);
    json.extend_from_slice(b", \"vector\": { ");
    for (index, (place, value)) in places.into_iter().enumerate() {
        json.extend_from_slice(if index > 0 { b", \"" } else { b"\"" });
        json.extend_from_slice(place.to_string().as_bytes());
        json.extend_from_slice(b"\": ");
        text::push(&mut json, value, None);
    }
    json.extend_from_slice(b" } }");
    Some(ascii(json))
}

fn ascii(json: Vec<u8>) -> String {
    String::from_utf8(json).expect("numbers are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_the_spaces_that_debezium_writes() {
        let floats = [Value::Float32(1.0), Value::Null, Value::Float32(f32::NAN)];
        assert_eq!(dense(&floats), r#"{ "values": [1.0, null, NaN] }"#);
        assert_eq!(dense(&[]), r#"{ "values": [] }"#);
        let pairs = [(7, 1e10), (-2, 0.5)].map(|(place, value)| (Value::Int16(place), Value::Float64(value)));
        let (dimensions, vector) = (Value::Int16(9), Value::Map(pairs.to_vec()));
        assert_eq!(
            sparse(&dimensions, &vector).as_deref(),
            Some(r#"{ "dimensions": 9, "vector": { "-2": 0.5, "7": 1.0E10 } }"#)
        );
        assert_eq!(
            sparse(&Value::Null, &Value::Map(vec![])).as_deref(),
            Some(r#"{ "dimensions": null, "vector": {  } }"#)
        );
        assert_eq!(sparse(&dimensions, &Value::Null), None);
    }
}
