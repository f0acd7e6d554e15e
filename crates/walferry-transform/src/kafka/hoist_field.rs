//! Kafka's `HoistField`: wraps the key or the value into a struct of one field.

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::java::hash_map::HashMap;
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Shape, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{Reshape, settle_one, structure, typed};
use crate::{Error, Transform};

properties! {
    const FIELD: Property<String> = Property::new("field").example("customer").required()
        .text("Name of the field.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.HoistField",
    sides: true,
    options: Group {
        title: "Transform HoistField",
        text: "`org.apache.kafka.connect.transforms.HoistField$Key` and `$Value`: wraps the key or the value in a struct with one field, \
               or in a map if there is no schema. A tombstone also becomes a map and is then no longer a tombstone: to keep tombstones, \
               add a predicate.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct HoistField {
    field: String,
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let field = reader.get(&FIELD);
    HoistField { field }.boxed(side)
}

/// The name says that values are decimals, dates or times, and they are of another type: a Cast of a whole value keeps the name.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the value's schema is named {name}, and its values are none")]
struct Misnamed {
    name: String,
}

impl TransformFault for Misnamed {
    fn hint(&self) -> Option<String> {
        Some("cast the value after HoistField, by the name of the field".to_owned())
    }
}

/// What Connect's `Struct.put` refuses of values whose schema has the name of a logical type.
fn misnamed(schema: &SchemaRef) -> Option<Misnamed> {
    let name = schema.name.as_deref()?;
    let fits = match name.strip_prefix("org.apache.kafka.connect.data.")? {
        "Decimal" => matches!(schema.shape, Shape::Bytes),
        "Date" | "Time" => matches!(schema.shape, Shape::Int32),
        "Timestamp" => matches!(schema.shape, Shape::Int64),
        _ => true,
    };
    (!fits).then(|| Misnamed { name: name.to_owned() })
}

pub(crate) struct Plan {
    output: SchemaRef,
    misnamed: Option<Misnamed>,
}

impl Reshape for HoistField {
    type Plan = Plan;

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        let field = Field::new(self.field.as_str(), schema.clone());
        Ok(Plan {
            output: Schema::of(structure(vec![field])?).build(),
            misnamed: misnamed(schema),
        })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, value: Value<'a>, _: &mut Record<'a>) -> Result<SchemaAndValue<'a>, Error> {
        if let Some(misnamed) = plan.misnamed.clone().filter(|_| !value.is_null()) {
            return Err(misnamed.into());
        }
        let mut values = vec![value];
        settle_one(&plan.output.fields()[0], &mut values[0], false)?;
        Ok(typed(&plan.output, values))
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, _: &mut Record<'a>) -> Result<Value<'a>, Error> {
        let mut map = HashMap::new();
        map.put(Value::str(&self.field), value);
        Ok(map.into_value())
    }
}
