//! Avro, as `io.confluent.connect.avro.AvroConverter` and `io.apicurio.registry.utils.converter.AvroConverter` write it.

mod canonical;
mod derive;
mod json;
mod options;
mod plan;
mod references;
mod schema;
pub(crate) mod style;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use walferry_config::{Findings, Options};
use walferry_record::{Schema, SchemaAndValue, SchemaPlans, SchemaRef, Shape, Value};

use crate::error::{ConversionProblem, LocatedProblem};
use crate::registry::{self, Described, Referenced, RegistryConverter, RegistryLink, SchemaKind, TopicIds, TypeName};
use crate::{ConverterType, Encoded, others};
use plan::Plan;
use style::Style;

pub(crate) use canonical::same_bytes;
pub(crate) use options::DECLARATIONS;
pub(crate) use references::with_references;

/// Writes Avro, with the id that a schema registry gives the schema in front of it or in a header.
///
/// Schemas and bytes are those of the Java converters, so that a subject which one of them has filled stays at its version. What
/// can be known from the schema alone is worked out once for each schema.
#[derive(Debug, Clone)]
pub struct AvroConverter {
    family: Family,
    style: Style,
    link: RegistryLink,
    plans: SchemaPlans<KnownSchema>,
}

/// Whose converter it takes the place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    Confluent,
    Apicurio,
}

/// What is known of one schema.
#[derive(Debug)]
struct KnownSchema {
    avro: Result<Avro, Box<LocatedProblem>>,
    slots: TopicIds,
}

/// A Connect schema, made ready: the Avro schema that a registry gets, and how values are written.
#[derive(Debug)]
pub(crate) struct Avro {
    /// The Avro schema as JSON.
    text: String,
    /// The types that it only names.
    references: Vec<Referenced>,
    /// The name of a record.
    name: Option<TypeName>,
    plan: Plan,
    /// The whole value is its bytes, without their length.
    bare: bool,
}

impl AvroConverter {
    /// A converter for keys or values, unless an option is wrong.
    pub(crate) fn from_options(family: Family, role: ConverterType, options: &Options) -> (Option<Self>, Findings) {
        let mut reader = match family {
            Family::Confluent => others::reader(options, registry::CONFLUENT.iter().chain(options::of_confluent())),
            Family::Apicurio => others::reader(options, registry::APICURIO.iter().chain(options::of_apicurio())),
        };
        let style = options::style(&mut reader, family == Family::Confluent);
        let link = match family {
            Family::Confluent => registry::confluent_link(&mut reader, role),
            Family::Apicurio => registry::apicurio_link(&mut reader, role, Some("BINARY")),
        };
        reader.finish(Self {
            family,
            style,
            link,
            plans: SchemaPlans::default(),
        })
    }

    /// The same for a value within another one: its id stands in front of it, wherever the options put it. Appends the bytes.
    pub(crate) fn within(mut self) -> Self {
        self.link.in_front();
        self
    }

    /// Appends a value with its id.
    ///
    /// # Errors
    /// When the value does not fit, or when there is no id.
    pub(crate) fn append(
        &mut self,
        topic: &str,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Box<LocatedProblem>> {
        self.write(topic, typed, out).map(drop)
    }

    /// Where the registry is.
    pub(crate) fn urls(&self) -> &[String] {
        &self.link.settings.urls
    }
}

impl RegistryConverter for AvroConverter {
    fn class(&self) -> &'static str {
        match self.family {
            Family::Confluent => "io.confluent.connect.avro.AvroConverter",
            Family::Apicurio => "io.apicurio.registry.utils.converter.AvroConverter",
        }
    }

    fn link(&self) -> &RegistryLink {
        &self.link
    }

    fn link_mut(&mut self) -> &mut RegistryLink {
        &mut self.link
    }

    fn write(
        &mut self,
        topic: &str,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Box<LocatedProblem>> {
        self.link.begin();
        let schema = match &typed.schema {
            Some(schema) => schema,
            None if typed.value.is_null() => return Ok(Encoded::Null),
            None => return Err(ConversionProblem::NoSchema.into()),
        };
        // A null of an optional schema is Kafka's null: the serializer is not asked.
        if typed.value.is_null() {
            return match schema.optional {
                true => Ok(Encoded::Null),
                false => Err(ConversionProblem::AvroNull.into()),
            };
        }
        let (family, style, splits) = (self.family, self.style, self.link.splits());
        let entry = self.plans.get(schema, |schema| KnownSchema {
            avro: match family {
                Family::Apicurio if is_optional_record(schema) => Avro::of_record(schema, style, splits),
                _ => Avro::new(schema, style, splits),
            },
            slots: TopicIds::default(),
        });
        let avro = entry.avro.as_ref().map_err(Clone::clone)?;
        let described = Described {
            kind: SchemaKind::Avro,
            text: &avro.text,
            record: avro.name.as_ref(),
            behind: &[],
            references: &avro.references,
        };
        self.link.write(&mut entry.slots, topic, &described, out)?;
        avro.write(&typed.value, out)?;
        Ok(self.link.encoded())
    }
}

fn is_optional_record(schema: &Schema) -> bool {
    schema.optional && matches!(schema.shape, Shape::Struct(_)) && !style::is_union(schema)
}

impl Avro {
    /// With `splits`, records and enums within the schema are schemas of their own.
    fn new(schema: &SchemaRef, style: Style, splits: bool) -> Result<Self, Box<LocatedProblem>> {
        let avro = derive::derive(schema, style)?;
        let (text, references) = match splits {
            true => avro.in_parts()?,
            false => (avro.text()?, Vec::new()),
        };
        let name = match &avro.kind {
            schema::AvroType::Record { name, .. } => Some(TypeName {
                namespace: name.namespace.clone(),
                name: name.name.clone(),
            }),
            _ => None,
        };
        Ok(Self {
            text,
            references,
            name,
            plan: Plan::new(schema, style),
            bare: style.bare_bytes && schema.shape == Shape::Bytes && !schema.optional,
        })
    }

    /// The same for an optional record that is not null. Apicurio's serializer registers the schema that the Avro record carries,
    /// which is never a union with null. Confluent's registers the schema that was derived.
    fn of_record(schema: &SchemaRef, style: Style, splits: bool) -> Result<Self, Box<LocatedProblem>> {
        let required = Schema {
            optional: false,
            ..Schema::clone(schema)
        };
        Ok(Self {
            plan: Plan::new(schema, style).without_null(),
            ..Self::new(&Arc::new(required), style, splits)?
        })
    }

    /// Appends the bytes of a value.
    fn write(&self, value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), Box<LocatedProblem>> {
        match value {
            Value::Bytes(bytes) if self.bare => out.extend_from_slice(bytes),
            value => self.plan.write(value, out)?,
        }
        Ok(())
    }
}
