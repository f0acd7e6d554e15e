//! Values that a converter cannot write.

use walferry_diagnosis::{Diagnosis, Kind};
use walferry_record::{Schema, Value, Wait, WaitNeed};

use crate::RecordPart;
use crate::registry::RegistryRefusal;
use walferry_record::java::logical::Logical;

/// A value that its converter cannot write: which converter, which part of which record, which field, and why.
#[derive(Debug, thiserror::Error)]
#[error("{class} cannot write {part} of a record for topic {topic}{field}: {problem}", field = field(.failure), problem = .failure.problem)]
pub struct Error {
    class: &'static str,
    part: String,
    topic: String,
    failure: Box<LocatedProblem>,
}

impl Error {
    /// The converter's class, as Connect names it.
    pub const fn class(&self) -> &'static str {
        self.class
    }
    /// The topic of the record.
    pub fn topic(&self) -> &str {
        &self.topic
    }
    /// The field from the outside in, such as `after.tags[]`; empty for the whole.
    pub fn path(&self) -> String {
        self.failure.path()
    }
    /// What is wrong, in Connect's words.
    pub const fn problem(&self) -> &ConversionProblem {
        &self.failure.problem
    }
    /// What the record has to wait for. `None` if the value cannot be written.
    pub const fn wait(&self) -> Option<&Wait> {
        match &self.failure.problem {
            ConversionProblem::Wait(wait) => Some(wait),
            _ => None,
        }
    }
    /// The error as a diagnosis: code, text and hint.
    pub fn diagnosis(&self) -> Diagnosis {
        let kind = match &self.failure.problem {
            ConversionProblem::Registry { .. } => Kind::RegistryRefused,
            _ => Kind::NotWritten,
        };
        Diagnosis::of(kind, self).with_any_hint(self.hint().map(str::to_owned))
    }
    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match &self.failure.problem {
            ConversionProblem::Registry { refusal, .. } => refusal.hint.as_deref(),
            ConversionProblem::NoRecordName { .. } => Some(
                "use a naming strategy by topic, or transforms after which the record is still a struct with a name",
            ),
            ConversionProblem::SchemaType { .. }
            | ConversionProblem::Incompatible { .. }
            | ConversionProblem::NotSerializable { .. } => {
                Some("use a converter that supports this type of data, such as JsonConverter")
            }
            ConversionProblem::NoDelegate { .. } => {
                Some("set delegate.converter.type to the converter for data that is not binary")
            }
            ConversionProblem::NoHeader { .. } => {
                Some("add the header with a transform, or remove it from metadata.source")
            }
            ConversionProblem::HeaderNotJson { .. } => Some(
                "set header.converter to org.apache.kafka.connect.json.JsonConverter, with header.converter.schemas.enable=true",
            ),
            ConversionProblem::AvroName { .. } => Some(
                "set schema.name.adjustment.mode=avro and field.name.adjustment.mode=avro, or rename it with a transform",
            ),
            ConversionProblem::ProtobufName { .. } => Some(
                "set scrub.invalid.names=true for the converter, or field.name.adjustment.mode=avro and schema.name.adjustment.mode=avro, or \
                 rename it with a transform",
            ),
            ConversionProblem::ProtobufRoot { .. } => {
                Some("put it into a struct with a transform, or use JsonConverter or StringConverter")
            }
            ConversionProblem::ProtobufNull | ConversionProblem::ProtobufLists => Some(
                "exclude the column (column.exclude.list), or use a converter that supports such lists, such as AvroConverter",
            ),
            ConversionProblem::ProtobufTimestamp { .. } => {
                Some("set time.precision.mode=adaptive, which writes times as numbers")
            }
            ConversionProblem::AvroRedefined { .. } | ConversionProblem::ProtobufRedefined { .. } => {
                Some("give one of the two another name, for example with SetSchemaMetadata")
            }
            ConversionProblem::NoGuid => Some(
                "use a registry that has GUIDs, such as Confluent's from version 8.0, or remove key.schema.id.serializer and \
                 value.schema.id.serializer of the converter, so that the id stands before the value",
            ),
            ConversionProblem::NoTraceparent => {
                Some("add traceparent:header to metadata.source, or set opentelemetry.tracing.attributes.enable=false")
            }
            _ => None,
        }
    }
}

/// Why a value cannot be written. The text is that of Connect's exception, as users search for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConversionProblem {
    /// Null where the schema allows none.
    #[error("Conversion error: null value for field that is required and has no default value")]
    RequiredNull,
    /// A value of another type than its schema.
    #[error("Invalid type for {expected}: class {class}")]
    Type {
        /// Type of the schema.
        expected: &'static str,
        /// Java class of the value.
        class: &'static str,
    },
    /// A value that does not fit a logical type.
    #[error("Invalid type for {expected}, expected {expected_class} but was class {class}")]
    LogicalType {
        /// The logical type.
        expected: &'static str,
        /// The Java class it is held in.
        expected_class: &'static str,
        /// Java class of the value.
        class: &'static str,
    },
    /// A struct of another schema than the one it stands under.
    #[error("Mismatching schema.")]
    Mismatch,
    /// A value without a schema, whose class does not tell one.
    #[error("Java class class {class} does not have corresponding schema type.")]
    NoSchemaType {
        /// Java class of the value.
        class: &'static str,
    },
    /// A decimal of another scale than its schema.
    #[error(
        "Decimal value has mismatching scale for given Decimal schema. Schema has scale {schema}, value has scale {value}."
    )]
    Scale {
        /// Scale of the schema.
        schema: i32,
        /// Scale of the value.
        value: i32,
    },
    /// A Decimal schema that does not tell its scale.
    #[error("Invalid Decimal schema: scale parameter not found.")]
    NoScale,
    /// A Decimal schema whose scale is no number.
    #[error("Invalid scale parameter found in Decimal schema: ")]
    BadScale,
    /// A Time below 00:00 or above 24:00.
    #[error("Kafka Connect Time type should not have any date fields set to non-zero values.")]
    TimeOfDay,
    /// A schema type that the converter does not take.
    #[error("Invalid schema type for {class}: {schema}")]
    SchemaType {
        /// The converter.
        class: &'static str,
        /// Type of the schema.
        schema: &'static str,
    },
    /// A value that the converter does not take.
    #[error("{converter} is not compatible with objects of type class {class}")]
    Incompatible {
        /// The converter.
        converter: &'static str,
        /// Java class of the value.
        class: &'static str,
    },
    /// A value that is not the number the converter takes.
    #[error("Failed to serialize to {expected} (was class {class}): ")]
    NotSerializable {
        /// What the converter takes.
        expected: &'static str,
        /// Java class of the value.
        class: &'static str,
    },
    /// A struct that lacks a field.
    #[error("{name} is not a valid field name")]
    NoField {
        /// The field.
        name: &'static str,
    },
    /// A schema without a name, although the name decides what the value is.
    #[error("the schema has no name, so it is unknown whether this is a change event")]
    Unnamed,
    /// A change event of another connector.
    #[error("No usable CloudEvents converters for connector type \"{connector}\"")]
    NoCloudEvents {
        /// What the source block says.
        connector: String,
    },
    /// An attribute is to come from a header that the record does not have.
    #[error("Header `{name}` was not provided")]
    NoHeader {
        /// Its name.
        name: &'static str,
    },
    /// An attribute is to come from a header, and what is written has no headers.
    #[error("the record has no headers from which attributes could be taken")]
    NoHeaders,
    /// A header that is not written as JSON with its schema, or not of the type that the attribute has.
    #[error("header {name} is not what JsonConverter writes with its schema")]
    HeaderNotJson {
        /// Its name.
        name: &'static str,
    },
    /// `traceparent` is to come from the record's value.
    #[error(
        "Value for `traceparent` CloudEvents field currently can't be obtained from a record value and can only be obtained from a record header"
    )]
    NoTraceparent,
    /// Nothing is wrong: something is not available yet.
    #[error("waiting for {}", wait_text(.0))]
    Wait(Wait),
    /// The registry gives no id.
    #[error("the schema registry rejects the schema of {subject}: {what}", what = .refusal.what)]
    Registry {
        /// The subject or artifact.
        subject: String,
        /// What it says.
        refusal: RegistryRefusal,
    },
    /// Subjects are named by record type, but the schema is not a record.
    #[error("the subject is named after the record type, but the {part} is not a struct with a name")]
    NoRecordName {
        /// Key or value.
        part: &'static str,
    },
    /// The registry does not tell the id that the configuration asks for.
    #[error("the schema registry gives no GUID of the schema, which HeaderSchemaIdSerializer writes into a header")]
    NoGuid,
    /// The converter was not given a registry.
    #[error("no schema registry is connected")]
    NoRegistry,
    /// A value without a schema.
    #[error("the value has no schema, but a converter with a schema registry needs one")]
    NoSchema,
    /// Null where an Avro schema allows none.
    #[error("Found null value for non-optional schema")]
    AvroNull,
    /// A name that Avro does not allow.
    #[error("{text}: {name}")]
    AvroName {
        /// The name.
        name: String,
        /// Avro's words.
        text: &'static str,
    },
    /// One name for two types.
    #[error(
        "Can't redefine: {name}: two types of this name have different fields, and a reader could not tell them apart"
    )]
    AvroRedefined {
        /// The name.
        name: String,
    },
    /// A text that is not one of an enum's symbols.
    #[error("the value is not one of the enum's symbols")]
    AvroSymbol,
    /// Bytes of another length than their type.
    #[error("the type has {expected} bytes, but the value has {have}")]
    AvroFixed {
        /// Length that the type has.
        expected: usize,
        /// Length of the value.
        have: usize,
    },
    /// A value alone that Protobuf has no message for.
    #[error("Unsupported root schema: {what} alone is no message of Protobuf")]
    ProtobufRoot {
        /// What it is.
        what: &'static str,
    },
    /// A name that Protobuf does not allow.
    #[error("\"{name}\" is not a valid identifier")]
    ProtobufName {
        /// The name.
        name: String,
    },
    /// One name for two messages.
    #[error("\"{name}\" is already defined: two types of this name stand in one message and differ")]
    ProtobufRedefined {
        /// The name.
        name: String,
    },
    /// A list of lists.
    #[error("Array cannot be nested")]
    ProtobufLists,
    /// A null among the elements of a list.
    #[error("the array contains null, which Protobuf does not support in a list")]
    ProtobufNull,
    /// A time outside of the years 1 to 9999.
    #[error("Timestamp is not valid: {seconds} seconds since 1970 lie outside of the years 1 to 9999")]
    ProtobufTimestamp {
        /// Since 1970.
        seconds: i64,
    },
    /// Something that is not binary, and no converter to hand it to.
    #[error("A value of class {class} requires a delegate.converter.type to be configured")]
    NoDelegate {
        /// Java class of the value.
        class: &'static str,
    },
}

/// A [`ConversionProblem`] on its way up, which collects the names of the fields it passes.
#[derive(Debug, Clone)]
pub(crate) struct LocatedProblem {
    problem: ConversionProblem,
    /// From the inside out.
    path: Vec<PathStep>,
}

#[derive(Debug, Clone)]
enum PathStep {
    Field(String),
    Element,
}

impl From<ConversionProblem> for Box<LocatedProblem> {
    fn from(problem: ConversionProblem) -> Self {
        Box::new(LocatedProblem {
            problem,
            path: Vec::new(),
        })
    }
}

impl LocatedProblem {
    /// The same, seen from the struct that has the field.
    #[cold]
    pub(crate) fn in_field(mut self: Box<Self>, name: &str) -> Box<Self> {
        self.path.push(PathStep::Field(name.to_owned()));
        self
    }
    /// The same, seen from the array or map that has the element.
    #[cold]
    pub(crate) fn in_element(mut self: Box<Self>) -> Box<Self> {
        self.path.push(PathStep::Element);
        self
    }
    /// The error of a part of a record.
    #[cold]
    pub(crate) fn of(self: Box<Self>, class: &'static str, topic: &str, part: RecordPart<'_>) -> Error {
        Error {
            class,
            part: match part {
                RecordPart::Key => "the key".to_owned(),
                RecordPart::Value => "the value".to_owned(),
                RecordPart::Header(name) => format!("the header {name}"),
            },
            topic: topic.to_owned(),
            failure: self,
        }
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for step in self.path.iter().rev() {
            match step {
                PathStep::Field(name) if path.is_empty() => path.push_str(name),
                PathStep::Field(name) => path.extend([".", name]),
                PathStep::Element => path.push_str("[]"),
            }
        }
        path
    }
}

fn wait_text(wait: &Wait) -> &WaitNeed {
    wait.need()
}

fn field(failure: &LocatedProblem) -> String {
    match failure.path() {
        path if path.is_empty() => path,
        path => format!(", field {path}"),
    }
}

/// The Java class that holds the value in Connect, for messages.
pub(crate) fn java_class(value: &Value<'_>, schema: Option<&Schema>) -> &'static str {
    if schema.is_some_and(|schema| Logical::of(schema).is_some()) && value.as_integer().is_some() {
        return "java.util.Date";
    }
    match value {
        Value::Null => "null",
        Value::Boolean(_) => "java.lang.Boolean",
        Value::Int8(_) => "java.lang.Byte",
        Value::Int16(_) => "java.lang.Short",
        Value::Int32(_) => "java.lang.Integer",
        Value::Int64(_) => "java.lang.Long",
        Value::Float32(_) => "java.lang.Float",
        Value::Float64(_) => "java.lang.Double",
        Value::String(_) => "java.lang.String",
        Value::Bytes(_) => "java.nio.HeapByteBuffer",
        Value::Decimal(_) => "java.math.BigDecimal",
        Value::Array(_) => "java.util.ArrayList",
        Value::Map(_) => "java.util.HashMap",
        Value::Struct(_) => "org.apache.kafka.connect.data.Struct",
    }
}

#[cfg(test)]
mod tests {
    use walferry_record::{Field, SchemaAndValue, SchemaRef, Struct};

    use super::*;
    use crate::{ByteArrayConverter, Converter};

    fn structure(name: &str, schema: SchemaRef, value: Value<'static>) -> (SchemaRef, Value<'static>) {
        let schema = Schema::structure(vec![Field::new(name, schema)]).build();
        (schema.clone(), Value::Struct(Struct::new(schema, vec![value])))
    }

    #[test]
    fn an_error_tells_converter_topic_part_field_and_problem() {
        let (schema, value) = structure("x", Schema::string().build(), Value::Null);
        let (schema, value) = structure("tags", Schema::array(schema).build(), Value::Array(vec![value]));
        let (schema, value) = structure("after", schema, value);
        let typed = SchemaAndValue::new(schema, value);
        let mut json = crate::converter(
            "JsonConverter",
            crate::ConverterType::Value,
            &walferry_config::Options::default(),
        )
        .0
        .unwrap();

        let error = json
            .encode("orders", RecordPart::Value, &typed, &mut Vec::new())
            .unwrap_err();
        assert_eq!(error.path(), "after.tags[].x");
        assert_eq!(
            error.to_string(),
            "org.apache.kafka.connect.json.JsonConverter cannot write the value of a record for topic orders, field after.tags[].x: \
             Conversion error: null value for field that is required and has no default value"
        );

        let typed = SchemaAndValue::new(Schema::string().build(), Value::str("secret"));
        let error = ByteArrayConverter
            .encode("orders", RecordPart::Header("id"), &typed, &mut Vec::new())
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "org.apache.kafka.connect.converters.ByteArrayConverter cannot write the header id of a record for topic orders: \
             Invalid schema type for ByteArrayConverter: STRING"
        );
        assert!(error.hint().is_some());
    }
}
