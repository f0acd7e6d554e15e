//! Kafka's `HoistField`: wraps the key or the value into a struct of one field.

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::java::hash_map::HashMap;
use walferry_record::{Field, Record, Schema, SchemaRef, Typed, Value};

use crate::contract::{Row, Side};
use crate::reshape::{Reshape, settle, structure, typed};
use crate::{Error, Transform};

properties! {
    const FIELD: Property<String> = Property::new("field").required()
        .text("Name of the field.");
}

pub(crate) const ROW: Row<dyn Transform> = Row {
    class: "org.apache.kafka.connect.transforms.HoistField",
    sides: true,
    options: Group {
        title: "Transform HoistField",
        text: "`org.apache.kafka.connect.transforms.HoistField$Key` and `$Value`: wraps the key or the value into a struct of one \
               field, or into a map where there is no schema. A tombstone becomes a map too, and is none any more: give the \
               transform a predicate if tombstones are to stay.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

struct HoistField {
    field: String,
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let field = reader.get(&FIELD);
    HoistField { field }.boxed(side)
}

impl Reshape for HoistField {
    type Plan = SchemaRef;

    fn plan(&self, schema: &SchemaRef) -> Result<SchemaRef, Error> {
        let field = Field::new(self.field.as_str(), schema.clone());
        Ok(Schema::of(structure(vec![field])?).build())
    }

    fn apply<'a>(&'a self, plan: &'a SchemaRef, value: Value<'a>, _: &mut Record<'a>) -> Result<Typed<'a>, Error> {
        let mut values = vec![value];
        settle(plan, &mut values, false)?;
        Ok(typed(plan, values))
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, _: &mut Record<'a>) -> Result<Value<'a>, Error> {
        let mut map = HashMap::new();
        map.put(Value::str(&self.field), value);
        Ok(map.into_value())
    }
}
