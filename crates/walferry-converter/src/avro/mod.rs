//! Avro, as `io.confluent.connect.avro.AvroConverter` and `io.apicurio.registry.utils.converter.AvroConverter` write it.

mod derive;
mod json;
mod plan;
mod schema;
mod style;

#[cfg(test)]
mod tests;

use walferry_record::{SchemaRef, Shape, Value};

use crate::error::Failure;
use plan::Plan;
use style::Style;

/// A Connect schema, made ready: the Avro schema that a registry gets, and how values are written.
#[derive(Debug)]
pub(crate) struct Avro {
    /// The Avro schema as JSON.
    pub(crate) text: String,
    plan: Plan,
    /// The whole value is its bytes, without their length.
    bare: bool,
}

impl Avro {
    pub(crate) fn new(schema: &SchemaRef, style: Style) -> Result<Self, Box<Failure>> {
        Ok(Self {
            text: derive::derive(schema, style)?.text()?,
            plan: Plan::new(schema, style),
            bare: style.bare_bytes && schema.shape == Shape::Bytes && !schema.optional,
        })
    }

    /// Appends the bytes of a value.
    pub(crate) fn write(&self, value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), Box<Failure>> {
        match value {
            Value::Bytes(bytes) if self.bare => out.extend_from_slice(bytes),
            value => self.plan.write(value, out)?,
        }
        Ok(())
    }
}
