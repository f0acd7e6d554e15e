//! Protocol Buffers, as `io.confluent.connect.protobuf.ProtobufConverter` writes them.

mod compare;
mod derive;
mod options;
mod plan;
mod text;
mod wire;

#[cfg(test)]
mod tests;

use walferry_config::{Findings, Options};
use walferry_record::{SchemaAndValue, SchemaPlans, SchemaRef};

use crate::error::{ConversionProblem, LocatedProblem};
use crate::registry::{self, Described, RegistryConverter, RegistryLink, SchemaKind, TopicIds, TypeName};
use crate::{ConverterType, Encoded, others};
use derive::{File, Style};
use plan::Plan;

pub(crate) use compare::{is_same, same_bytes};
pub(crate) use options::DECLARATIONS;

/// Writes Protobuf, with the id that a schema registry gives the schema in front of it.
///
/// Schemas and bytes are those of Confluent's converter, so that a subject which it has filled stays at its version. What can be
/// known from the schema alone is worked out once for each schema.
#[derive(Debug, Clone)]
pub struct ProtobufConverter {
    style: Style,
    link: RegistryLink,
    plans: SchemaPlans<KnownSchema>,
}

/// What is known of one schema.
#[derive(Debug)]
struct KnownSchema {
    protobuf: Result<Protobuf, Box<LocatedProblem>>,
    slots: TopicIds,
}

/// A Connect schema, made ready: the Protobuf schema that a registry gets, and how values are written.
#[derive(Debug)]
struct Protobuf {
    text: String,
    name: TypeName,
    /// Which message of the file it is, as it stands behind the id.
    index: Box<[u8]>,
    plan: Plan,
}

impl ProtobufConverter {
    const CLASS: &'static str = "io.confluent.connect.protobuf.ProtobufConverter";

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

impl Protobuf {
    fn new(schema: &SchemaRef, style: Style) -> Result<Self, Box<LocatedProblem>> {
        let file = File::of(schema, style)?;
        Ok(Self {
            text: text::of(&file),
            index: wire::message_index(file.index).into(),
            name: TypeName {
                namespace: file.package,
                name: file.root,
            },
            plan: file.plan,
        })
    }
}

impl RegistryConverter for ProtobufConverter {
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
            // A null is Kafka's null, whatever the schema says.
            _ if typed.value.is_null() => return Ok(Encoded::Null),
            Some(schema) => schema,
            None => return Err(ConversionProblem::NoSchema.into()),
        };
        let style = self.style;
        let entry = self.plans.get(schema, |schema| KnownSchema {
            protobuf: Protobuf::new(schema, style),
            slots: TopicIds::default(),
        });
        let protobuf = entry.protobuf.as_ref().map_err(Clone::clone)?;
        let described = Described {
            kind: SchemaKind::Protobuf,
            text: &protobuf.text,
            record: Some(&protobuf.name),
            behind: &protobuf.index,
            references: &[],
        };
        self.link.write(&mut entry.slots, topic, &described, out)?;
        protobuf.plan.write_root(&typed.value, out)?;
        Ok(self.link.encoded())
    }
}
