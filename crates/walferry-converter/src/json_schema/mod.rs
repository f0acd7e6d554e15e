//! JSON with a JSON Schema, as `io.confluent.connect.json.JsonSchemaConverter` writes it.

mod compare;
mod options;
mod schema;

#[cfg(test)]
mod tests;

use walferry_config::{Findings, Options};
use walferry_record::{SchemaAndValue, SchemaPlans, SchemaRef};

use crate::error::{ConversionProblem, LocatedProblem};
use crate::json::Plan;
use crate::registry::{self, Described, RegistryConverter, RegistryLink, SchemaKind, TopicIds, TypeName};
use crate::{ConverterType, Encoded, others};
use schema::Style;

pub(crate) use compare::difference;
pub(crate) use options::DECLARATIONS;

/// Writes JSON, with the id that a schema registry gives the JSON Schema in front of it.
///
/// Schemas and values are those of Confluent's converter, so that a subject which it has filled stays at its version. What can be
/// known from the schema alone is worked out once for each schema.
#[derive(Debug, Clone)]
pub struct JsonSchemaConverter {
    style: Style,
    link: RegistryLink,
    plans: SchemaPlans<KnownSchema>,
}

/// What is known of one schema.
#[derive(Debug)]
struct KnownSchema {
    text: Result<String, Box<LocatedProblem>>,
    name: Option<TypeName>,
    plan: Plan,
    slots: TopicIds,
}

impl JsonSchemaConverter {
    const CLASS: &'static str = "io.confluent.connect.json.JsonSchemaConverter";

    /// A converter for keys or values, unless an option is wrong.
    pub(crate) fn from_options(role: ConverterType, options: &Options) -> (Option<Self>, Findings) {
        let mut reader = others::reader(options, DECLARATIONS.iter().chain(registry::CONFLUENT));
        let style = options::style(&mut reader);
        let link = registry::confluent_link(&mut reader, role);
        reader.finish(Self {
            style,
            link,
            plans: SchemaPlans::default(),
        })
    }
}

impl KnownSchema {
    fn new(schema: &SchemaRef, style: Style) -> Self {
        Self {
            text: schema::text(schema, style),
            // The title is the name, and a schema that allows null has none: it is one of two.
            name: schema.name.as_ref().filter(|_| !schema.optional).map(|name| TypeName {
                namespace: None,
                name: name.to_string(),
            }),
            plan: Plan::new(schema, style.values),
            slots: TopicIds::default(),
        }
    }
}

impl RegistryConverter for JsonSchemaConverter {
    fn class(&self) -> &'static str {
        Self::CLASS
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
        let default_counts = schema.default.is_some() && self.style.values.replace_null_with_default;
        // A null of an optional schema is the JSON `null`, with an id in front. Where null is not allowed it is Kafka's null.
        if typed.value.is_null() && !schema.optional && !default_counts {
            return Ok(Encoded::Null);
        }
        let style = self.style;
        let entry = self.plans.get(schema, |schema| KnownSchema::new(schema, style));
        let described = Described {
            kind: SchemaKind::Json,
            text: entry.text.as_ref().map_err(Clone::clone)?,
            record: entry.name.as_ref(),
            behind: &[],
            references: &[],
        };
        self.link.write(&mut entry.slots, topic, &described, out)?;
        entry.plan.write(&typed.value, out)?;
        Ok(self.link.encoded())
    }
}
