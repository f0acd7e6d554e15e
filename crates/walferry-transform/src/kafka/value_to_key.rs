//! Kafka's `ValueToKey`: a key made of fields of the value.

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::java::hash_map::HashMap;
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{Reshape, ReshapeError, fields, kind, names, settle_one, structure, typed};
use crate::{Error, Transform};

properties! {
    const FIELDS: Property<Vec<String>> = Property::new("fields").example("tenant").required()
        .text("Names of the fields of the value that form the key, in this order.");
    const REPLACE: Property<bool> = Property::new("replace.null.with.default").default("true")
        .text("Whether null is replaced with the default of the field.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.ValueToKey",
    sides: false,
    options: Group {
        title: "Transform ValueToKey",
        text: "`org.apache.kafka.connect.transforms.ValueToKey`: creates the key of a record from fields of its value. It fails on \
               tombstones, so add a predicate. A new key may lead to a different partition.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

const PURPOSE: &str = "ValueToKey";

#[derive(Clone)]
struct ValueToKey {
    fields: Vec<String>,
    replace_null: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("the value has no field {0}, which the option fields names")]
struct NoField(String);

impl TransformFault for NoField {
    fn hint(&self) -> Option<String> {
        Some("correct fields, or give the transform a predicate such as TopicNameMatches".into())
    }
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let fields = names(reader, &FIELDS);
    let replace_null = reader.get(&REPLACE);
    ValueToKey { fields, replace_null }.boxed(Side::Value)
}

pub(crate) struct Plan {
    value: SchemaRef,
    key: SchemaRef,
    places: Vec<usize>,
}

impl Reshape for ValueToKey {
    type Plan = Plan;

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        let all = fields(schema)?;
        let mut places = Vec::with_capacity(self.fields.len());
        for name in &self.fields {
            places.push(schema.field_index(name).ok_or_else(|| NoField(name.clone()))?);
        }
        let fields: Vec<Field> = places.iter().map(|&place| all[place].clone()).collect();
        Ok(Plan {
            value: schema.clone(),
            key: Schema::of(structure(fields)?).build(),
            places,
        })
    }

    fn apply<'a>(
        &'a self,
        plan: &'a Plan,
        value: Value<'a>,
        record: &mut Record<'a>,
    ) -> Result<SchemaAndValue<'a>, Error> {
        let Some(row) = value.as_struct() else {
            let found = kind(&value);
            return Err(ReshapeError::NotStruct {
                purpose: PURPOSE,
                found,
            }
            .into());
        };
        let mut key = Vec::with_capacity(plan.places.len());
        for (&place, field) in plan.places.iter().zip(plan.key.fields()) {
            let mut value = row.values()[place].clone();
            settle_one(field, &mut value, self.replace_null)?;
            key.push(value);
        }
        record.key = typed(&plan.key, key);
        Ok(SchemaAndValue::new(plan.value.clone(), value))
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, record: &mut Record<'a>) -> Result<Value<'a>, Error> {
        let Value::Map(pairs) = value else {
            let found = kind(&value);
            return Err(ReshapeError::NotMap {
                purpose: PURPOSE,
                found,
            }
            .into());
        };
        let mut key = HashMap::with_capacity(self.fields.len());
        for field in &self.fields {
            let found = pairs.iter().find(|(name, _)| name.as_str() == Some(field));
            let value = found.map(|(_, value)| value.clone()).unwrap_or_default();
            key.put(Value::str(field), value);
        }
        record.key = SchemaAndValue {
            schema: None,
            value: key.into_value(),
        };
        Ok(Value::Map(pairs))
    }
}
