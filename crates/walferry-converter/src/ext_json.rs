//! JSON that carries the id of its schema, as `io.apicurio.registry.utils.converter.ExtJsonConverter` writes it.

use walferry_config::{Declaration, Findings, Options};
use walferry_record::{SchemaAndValue, SchemaPlans, SchemaRef};

use crate::error::{ConversionProblem, LocatedProblem};
use crate::json::{self, Dialect, Plan, Style, push_integer};
use crate::registry::{self, Api, Described, Id, RegistryConverter, RegistryLink, SchemaKind, TopicIds};
use crate::{ConverterType, Encoded, others};

/// Writes `{"schemaId":…,"payload":…}`. The payload is JsonConverter's, and the schema that is registered is the one that
/// JsonConverter would put in front of it.
#[derive(Debug, Clone)]
pub struct ExtJsonConverter {
    style: Style,
    link: RegistryLink,
    plans: SchemaPlans<KnownSchema>,
}

/// What is known of one schema.
#[derive(Debug)]
struct KnownSchema {
    text: Result<String, Box<LocatedProblem>>,
    plan: Plan,
    slots: TopicIds,
}

/// The options of JsonConverter that count, too.
pub(crate) static DECLARATIONS: &[Declaration] = &[
    json::options::DECIMAL_FORMAT.declare(),
    json::options::REPLACE_NULL_WITH_DEFAULT.declare(),
];

impl ExtJsonConverter {
    const CLASS: &'static str = "io.apicurio.registry.utils.converter.ExtJsonConverter";

    /// A converter for keys or values, unless an option is wrong.
    pub(crate) fn from_options(role: ConverterType, options: &Options) -> (Option<Self>, Findings) {
        let mut reader = others::reader(options, DECLARATIONS.iter().chain(registry::APICURIO));
        let style = Style {
            decimals: reader.get(&json::options::DECIMAL_FORMAT),
            replace_null_with_default: reader.get(&json::options::REPLACE_NULL_WITH_DEFAULT),
            dialect: Dialect::Connect,
        };
        let mut link = registry::apicurio_link(&mut reader, role, None);
        // Whatever `use-id` says: each generation of the converter writes one of them.
        link.settings.id = match link.settings.api {
            Api::ApicurioV3 => Id::Content,
            Api::ApicurioV2 | Api::Confluent => Id::Global,
        };
        for name in registry::APICURIO_FRAMING {
            if options.get(name).is_some() {
                reader.note(
                    name,
                    "has no effect: ExtJsonConverter writes the id as a member of the value, as Apicurio's does",
                );
            }
        }
        reader.finish(Self {
            style,
            link,
            plans: SchemaPlans::default(),
        })
    }
}

impl KnownSchema {
    fn new(schema: &SchemaRef, style: Style) -> Self {
        let plan = Plan::new(schema, style);
        Self {
            text: json::schema_text(&plan),
            plan,
            slots: TopicIds::default(),
        }
    }
}

impl RegistryConverter for ExtJsonConverter {
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
        let schema = match &typed.schema {
            Some(schema) => schema,
            None if typed.value.is_null() => return Ok(Encoded::Null),
            None => return Err(ConversionProblem::NoSchema.into()),
        };
        let style = self.style;
        let entry = self.plans.get(schema, |schema| KnownSchema::new(schema, style));
        let described = Described {
            kind: SchemaKind::KafkaConnect,
            text: entry.text.as_ref().map_err(Clone::clone)?,
            record: None,
            behind: &[],
            references: &[],
        };
        let ids = self.link.ids(&mut entry.slots, topic, &described)?;
        out.extend_from_slice(br#"{"schemaId":"#);
        push_integer(out, self.link.settings.id.of(ids));
        out.extend_from_slice(br#","payload":"#);
        entry.plan.write(&typed.value, out)?;
        out.push(b'}');
        Ok(Encoded::Bytes)
    }
}
