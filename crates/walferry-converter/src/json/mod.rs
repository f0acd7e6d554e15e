//! `org.apache.kafka.connect.json.JsonConverter`.

mod entry;
pub(crate) mod options;
mod plan;
mod schema;
mod text;

use walferry_config::{Findings, Options, Reader};
use walferry_record::{SchemaAndValue, SchemaPlans, Value};

use crate::error::LocatedProblem;
use crate::others;
use crate::{Converter, Encoded, Error, RecordPart};

pub(crate) use entry::PreparedSchema;
pub(crate) use options::DECLARATIONS;
pub(crate) use plan::{Plan, is_union};
pub(crate) use schema::text as schema_text;
pub(crate) use text::{push_base64, push_integer, push_string};
pub(crate) use walferry_record::java::json::push_text;

/// Writes JSON, with the schema in front of it or without.
///
/// Only a value without a schema is Kafka's null; a null of an optional schema is the four bytes `null`. What can be known from
/// the schema alone (its JSON, field names, what stands for null) is worked out once for each schema.
#[derive(Debug, Clone)]
pub struct JsonConverter {
    schemas_enable: bool,
    style: Style,
    plans: SchemaPlans<PreparedSchema>,
}

/// How values become JSON.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    pub(crate) decimals: DecimalFormat,
    pub(crate) replace_null_with_default: bool,
    pub(crate) dialect: Dialect,
}

/// Whose JSON it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Dialect {
    /// JsonConverter's.
    #[default]
    Connect,
    /// That of Confluent's JsonSchemaConverter: a map without plain texts as keys is an array of objects, and a struct that stands
    /// for a union is the one of its fields that is set.
    JsonSchema,
}

walferry_config::choices! {
    /// How a Decimal is written.
    pub enum DecimalFormat {
        /// The base64 of the unscaled bytes.
        #[default]
        Base64 = "BASE64",
        /// A JSON number.
        Numeric = "NUMERIC",
    }
}

impl JsonConverter {
    const CLASS: &'static str = "org.apache.kafka.connect.json.JsonConverter";

    /// A converter for keys, values or headers, unless an option is wrong.
    pub fn from_options(options: &Options) -> (Option<Self>, Findings) {
        let mut reader = Reader::new(options, DECLARATIONS.iter().chain(others::of_registries()));
        let style = Style {
            decimals: reader.get(&options::DECIMAL_FORMAT),
            replace_null_with_default: reader.get(&options::REPLACE_NULL_WITH_DEFAULT),
            dialect: Dialect::Connect,
        };
        let schemas_enable = reader.get(&options::SCHEMAS_ENABLE);
        reader.get(&options::SCHEMAS_CACHE_SIZE);
        reader.finish(Self {
            schemas_enable,
            style,
            plans: SchemaPlans::default(),
        })
    }

    /// How it writes values.
    pub(crate) const fn style(&self) -> Style {
        self.style
    }

    /// `schemas.enable`.
    pub(crate) const fn schemas_enable(&self) -> bool {
        self.schemas_enable
    }

    fn write(&mut self, typed: &SchemaAndValue<'_>, out: &mut Vec<u8>) -> Result<Encoded, Box<LocatedProblem>> {
        let Some(schema) = &typed.schema else {
            return self.write_schemaless(&typed.value, out);
        };
        let make = |schema: &_| PreparedSchema::new(schema, self.style, self.schemas_enable);
        let entry = self.plans.get(schema, make);
        if self.schemas_enable {
            out.extend_from_slice(entry.opening()?);
            entry.plan.write(&typed.value, out)?;
            out.push(b'}');
        } else {
            entry.plan.write(&typed.value, out)?;
        }
        Ok(Encoded::Bytes)
    }

    fn write_schemaless(&self, value: &Value<'_>, out: &mut Vec<u8>) -> Result<Encoded, Box<LocatedProblem>> {
        if value.is_null() {
            return Ok(Encoded::Null);
        }
        if self.schemas_enable {
            out.extend_from_slice(br#"{"schema":null,"payload":"#);
            plan::write_schemaless(value, out)?;
            out.push(b'}');
        } else {
            plan::write_schemaless(value, out)?;
        }
        Ok(Encoded::Bytes)
    }
}

impl Converter for JsonConverter {
    fn encode(
        &mut self,
        topic: &str,
        part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        let start = out.len();
        self.write(typed, out).map_err(|failure| {
            out.truncate(start);
            failure.of(Self::CLASS, topic, part)
        })
    }
}
