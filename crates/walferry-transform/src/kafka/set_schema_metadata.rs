//! Kafka's `SetSchemaMetadata`: another name or version for the schema of the key or the value.

use std::sync::Arc;

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::{Record, SchemaAndValue, SchemaRef, Struct, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{NestedDefaults, REPLACE_NULL, Reshape, fields, set_text};
use crate::{Error, Transform};

properties! {
    const NAME: Property<Option<String>> = Property::new("schema.name").example("com.example.Order")
        .text("The new name. If it is not set, the name does not change. A name or a version is required.");
    const VERSION: Property<Option<i32>> = Property::new("schema.version").example("2")
        .text("The new version. If it is not set, the version does not change.");
    const REPLACE: Property<bool> = Property::new("replace.null.with.default").default("true")
        .text(REPLACE_NULL);
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.SetSchemaMetadata",
    sides: true,
    options: Group {
        title: "Transform SetSchemaMetadata",
        text: "`org.apache.kafka.connect.transforms.SetSchemaMetadata$Key` and `$Value`: changes the name or the version of the schema of \
               the key or the value. Nested schemas stay unchanged. As in Kafka Connect, it fails on keys and values that are not \
               structs.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct SetSchemaMetadata {
    name: Option<Arc<str>>,
    version: Option<i32>,
    replace_null: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("a value without a schema has no name or version that could be set")]
struct NoSchema;

impl TransformFault for NoSchema {
    fn hint(&self) -> Option<String> {
        Some("add a predicate to the transform that excludes such records".into())
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let name = set_text(reader, &NAME);
    let version = reader.get(&VERSION);
    if version.is_none() && reader.is_set(&VERSION) {
        reader.problem(VERSION.name(), "is empty, which is not a whole number");
    } else if name.is_none() && version.is_none() {
        reader
            .problem(NAME.name(), "is required if schema.version is not set")
            .hint("set schema.name, schema.version or both");
    }
    let replace_null = reader.get(&REPLACE);
    SetSchemaMetadata {
        name: name.map(Into::into),
        version,
        replace_null,
    }
    .boxed(side)
}

pub(crate) struct Plan {
    input: SchemaRef,
    settling: NestedDefaults,
    output: SchemaRef,
}

impl Reshape for SetSchemaMetadata {
    type Plan = Plan;

    fn passes(&self, typed: &SchemaAndValue<'_>) -> bool {
        typed.is_null()
    }

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        // As in Connect, which lists the fields of the schema whatever its type.
        fields(schema)?;
        let mut output = (**schema).clone();
        if self.name.is_some() {
            output.name = self.name.clone();
        }
        output.version = self.version.or(schema.version);
        Ok(Plan {
            input: schema.clone(),
            settling: NestedDefaults::new(schema),
            output: output.build(),
        })
    }

    fn apply<'a>(&'a self, plan: &'a Plan, value: Value<'a>, _: &mut Record<'a>) -> Result<SchemaAndValue<'a>, Error> {
        let value = match value {
            Value::Struct(value) => {
                let mut values = value.into_values();
                plan.settling.settle(&plan.input, &mut values, self.replace_null)?;
                Value::Struct(Struct::new(plan.output.clone(), values))
            }
            other => other,
        };
        Ok(SchemaAndValue::new(plan.output.clone(), value))
    }

    fn apply_schemaless<'a>(&'a self, _: Value<'a>, _: &mut Record<'a>) -> Result<Value<'a>, Error> {
        Err(NoSchema.into())
    }
}
