//! Confluent's `Drop`: replaces the key or the value by null. `confluent/mod.rs` says where its rules come from.

use std::sync::Arc;

use walferry_config::{Group, Property, Reader, choices, properties};
use walferry_record::{Record, Schema, SchemaPlans, SchemaRef, Value};

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::{Error, Outcome, Transform};

choices! {
    /// What happens to the schema.
    enum Behavior {
        /// The schema is removed, too.
        #[default]
        Nullify = "nullify",
        /// It stays as it is.
        Retain = "retain",
        /// It stays, and must be optional.
        Validate = "validate",
        /// It becomes optional.
        ForceOptional = "force_optional",
    }
}

properties! {
    const BEHAVIOR: Property<Behavior> = Property::new("schema.behavior").default("nullify")
        .text("What happens to the schema: `nullify` also removes it, which turns a value into a tombstone; `retain` keeps it; `validate` \
               keeps it, and the transform fails if the schema is not optional; `force_optional` makes it optional.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.confluent.connect.transforms.Drop",
    sides: true,
    options: Group {
        title: "Transform Drop",
        text: "`io.confluent.connect.transforms.Drop$Key` and `$Value`: replaces the key or the value with null. It follows Confluent's \
               documentation and was not compared with the real class.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct Drop {
    side: Side,
    behavior: Behavior,
    optional: SchemaPlans<SchemaRef>,
}

#[derive(Debug, thiserror::Error)]
#[error("a value whose schema is not optional cannot be replaced with null")]
struct Required;

impl TransformFault for Required {
    fn hint(&self) -> Option<String> {
        Some("set schema.behavior to nullify or force_optional".into())
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    Some(Box::new(Drop {
        side,
        behavior: reader.get(&BEHAVIOR),
        optional: SchemaPlans::default(),
    }))
}

impl Transform for Drop {
    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let part = self.side.of(&mut record);
        part.value = Value::Null;
        match (self.behavior, &mut part.schema) {
            (Behavior::Nullify, schema) => *schema = None,
            (Behavior::Validate, Some(schema)) if !schema.optional => return Err(Required.into()),
            (Behavior::ForceOptional, Some(schema)) if !schema.optional => {
                let optional = self
                    .optional
                    .get(schema, |schema| Schema::clone(schema).optional().build());
                *schema = Arc::clone(optional);
            }
            _ => {}
        }
        Ok(Outcome::Record(record))
    }
}
