//! Converters that hand bytes on as they are.

use std::sync::Arc;

use walferry_config::{Findings, Options, Property, Reader, properties};
use walferry_record::{SchemaAndValue, Shape, Value};

use crate::class::converter;
use crate::error::{ConversionProblem, LocatedProblem, java_class};
use crate::others;
use crate::{AddedHeaders, Converter, ConverterType, Encoded, Error, RecordPart, registry};

/// `org.apache.kafka.connect.converters.ByteArrayConverter`: bytes and nulls only.
#[derive(Debug, Clone, Default)]
pub struct ByteArrayConverter;

impl Converter for ByteArrayConverter {
    fn encode(
        &mut self,
        topic: &str,
        part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        let problem = match (typed.schema.as_deref(), &typed.value) {
            (Some(schema), _) if schema.shape != Shape::Bytes => ConversionProblem::SchemaType {
                class: "ByteArrayConverter",
                schema: schema.type_constant(),
            },
            (_, Value::Null) => return Ok(Encoded::Null),
            (_, Value::Bytes(bytes)) => {
                out.extend_from_slice(bytes);
                return Ok(Encoded::Bytes);
            }
            (schema, value) => ConversionProblem::Incompatible {
                converter: "ByteArrayConverter",
                class: java_class(value, schema),
            },
        };
        let failure = Box::<LocatedProblem>::from(problem);
        Err(failure.of("org.apache.kafka.connect.converters.ByteArrayConverter", topic, part))
    }
}

/// `io.debezium.converters.BinaryDataConverter`: bytes as they are, everything else as another converter writes it.
///
/// Made for an outbox whose payloads are already serialised, while heartbeats and transaction records are not.
#[derive(Clone)]
pub struct BinaryDataConverter {
    delegate: Option<Box<dyn Converter>>,
    buffers: Buffers,
}

/// How bytes are written if there is a delegate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// They are written as they are.
    Raw,
    /// The delegate writes them. The older `io.debezium.converters.ByteArrayConverter` does this, because it recognises only byte arrays,
    /// while the connector sends buffers.
    Delegated,
}

properties! {
    const DELEGATE: Property<Option<String>> = Property::new("delegate.converter.type").example("org.apache.kafka.connect.json.JsonConverter")
        .text("Class of the converter for data that is not binary. If it is not set, such data stops the connector.");
    const DELEGATE_OPTION: Property<String> = Property::new("delegate.converter.type.<option>").example("delegate.converter.type.schemas.enable=false")
        .text("An option of that converter, such as `delegate.converter.type.schemas.enable`.");
}

impl BinaryDataConverter {
    /// A converter, unless its delegate is unknown or an option of that is wrong.
    pub(crate) fn from_options(buffers: Buffers, role: ConverterType, options: &Options) -> (Option<Self>, Findings) {
        let others = others::of_json().chain(others::of_registries());
        let mut reader = Reader::new(options, DECLARATIONS.iter().chain(others));
        let mut delegate = None;
        if let Some(class) = reader.get(&DELEGATE) {
            let findings;
            // The delegate of a header converter, too, is a converter of keys and values in Debezium.
            let role = if role == ConverterType::Header {
                ConverterType::Value
            } else {
                role
            };
            (delegate, findings) = converter(&class, role, &options.below("delegate.converter.type."));
            reader.extend(findings);
        }
        reader.finish(Self { delegate, buffers })
    }
}

impl Converter for BinaryDataConverter {
    fn encode(
        &mut self,
        topic: &str,
        part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        let schema = typed.schema.as_deref();
        if schema.is_none_or(|schema| schema.shape == Shape::Bytes) {
            match &typed.value {
                Value::Null => return Ok(Encoded::Null),
                Value::Bytes(bytes) if self.buffers == Buffers::Raw || self.delegate.is_none() => {
                    out.extend_from_slice(bytes);
                    return Ok(Encoded::Bytes);
                }
                _ => {}
            }
        }
        match &mut self.delegate {
            Some(delegate) => delegate.encode(topic, part, typed, out),
            None => {
                let class = java_class(&typed.value, schema);
                let failure = Box::<LocatedProblem>::from(ConversionProblem::NoDelegate { class });
                Err(failure.of("io.debezium.converters.BinaryDataConverter", topic, part))
            }
        }
    }

    fn added_headers(&self) -> &AddedHeaders {
        self.delegate
            .as_ref()
            .map_or(AddedHeaders::NONE, |delegate| delegate.added_headers())
    }

    fn attach(&mut self, connect: &mut dyn FnMut(&registry::RegistrySettings) -> Arc<dyn registry::Registry>) {
        if let Some(delegate) = &mut self.delegate {
            delegate.attach(connect);
        }
    }
}

impl std::fmt::Debug for BinaryDataConverter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let has_delegate = self.delegate.is_some();
        f.debug_struct("BinaryDataConverter")
            .field("has_delegate", &has_delegate)
            .finish_non_exhaustive()
    }
}
