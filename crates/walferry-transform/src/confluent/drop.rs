//! Confluent's `Drop`: null in the place of the key or the value. See the module about where its rules come from.

use std::sync::Arc;

use walferry_config::{Group, Property, Reader, choices, properties};
use walferry_record::{Plans, Record, Schema, SchemaRef, Value};

use crate::contract::{Row, Side};
use crate::error::Problem;
use crate::{Error, Outcome, Transform};

choices! {
    /// What becomes of the schema.
    enum Behavior {
        /// It goes, too.
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
        .text("What becomes of the schema: with `nullify` it goes too, which makes a value a tombstone; with `retain` it stays; with \
               `validate` it stays, and the transform fails if it is not optional; with `force_optional` it becomes optional.");
}

pub(crate) const ROW: Row<dyn Transform> = Row {
    class: "io.confluent.connect.transforms.Drop",
    sides: true,
    options: Group {
        title: "Transform Drop",
        text: "`io.confluent.connect.transforms.Drop$Key` and `$Value`: puts null in the place of the key or the value. Made after \
               Confluent's documentation, and not compared with the real class.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct Drop {
    side: Side,
    behavior: Behavior,
    optional: Plans<SchemaRef>,
}

#[derive(Debug, thiserror::Error)]
#[error("null cannot take the place of a value whose schema is not optional")]
struct Required;

impl Problem for Required {
    fn hint(&self) -> Option<String> {
        Some("set schema.behavior to nullify or force_optional".into())
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    Some(Box::new(Drop {
        side,
        behavior: reader.get(&BEHAVIOR),
        optional: Plans::default(),
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
