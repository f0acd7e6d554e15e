//! Converters by the class names of a configuration.

use walferry_config::{Findings, Group, Options, Reader, ValueError};

use crate::raw::Buffers;
use crate::{
    BinaryDataConverter, BooleanConverter, ByteArrayConverter, Converter, JsonConverter, NumberConverter, Role,
    SimpleHeaderConverter, StringConverter, json, raw, string,
};

/// The options of all converters, for the reference page. They stand behind `key.converter.`, `value.converter.` or
/// `header.converter.`.
pub const GROUPS: &[Group] = &[
    Group {
        title: "JsonConverter",
        text: "Writes JSON, with the schema in front of every value or without.",
        prefix: "value.converter.",
        declarations: json::DECLARATIONS,
    },
    Group {
        title: "StringConverter",
        text: "Writes the text of a value, which is what an outbox with JSON or text payloads is mostly used with.",
        prefix: "value.converter.",
        declarations: string::DECLARATIONS,
    },
    Group {
        title: "BinaryDataConverter",
        text: "Writes bytes as they are and hands everything else to another converter.",
        prefix: "value.converter.",
        declarations: raw::DECLARATIONS,
    },
];

#[derive(Debug, Clone, Copy)]
enum Class {
    Json,
    String,
    ByteArray,
    BinaryData(Buffers),
    Boolean,
    Number(NumberConverter),
    SimpleHeader,
    /// Known, and refused by name.
    Planned,
}

/// Where simple names are ambiguous, the first is meant.
const CLASSES: &[(&str, Class)] = &[
    ("org.apache.kafka.connect.json.JsonConverter", Class::Json),
    ("org.apache.kafka.connect.storage.StringConverter", Class::String),
    (
        "org.apache.kafka.connect.converters.ByteArrayConverter",
        Class::ByteArray,
    ),
    (
        "io.debezium.converters.BinaryDataConverter",
        Class::BinaryData(Buffers::Raw),
    ),
    // Its former name.
    (
        "io.debezium.converters.ByteBufferConverter",
        Class::BinaryData(Buffers::Raw),
    ),
    (
        "io.debezium.converters.ByteArrayConverter",
        Class::BinaryData(Buffers::Delegated),
    ),
    ("org.apache.kafka.connect.converters.BooleanConverter", Class::Boolean),
    (
        "org.apache.kafka.connect.converters.ShortConverter",
        Class::Number(NumberConverter::Short),
    ),
    (
        "org.apache.kafka.connect.converters.IntegerConverter",
        Class::Number(NumberConverter::Integer),
    ),
    (
        "org.apache.kafka.connect.converters.LongConverter",
        Class::Number(NumberConverter::Long),
    ),
    (
        "org.apache.kafka.connect.converters.FloatConverter",
        Class::Number(NumberConverter::Float),
    ),
    (
        "org.apache.kafka.connect.converters.DoubleConverter",
        Class::Number(NumberConverter::Double),
    ),
    (
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        Class::SimpleHeader,
    ),
    ("io.confluent.connect.avro.AvroConverter", Class::Planned),
    ("io.confluent.connect.json.JsonSchemaConverter", Class::Planned),
    ("io.confluent.connect.protobuf.ProtobufConverter", Class::Planned),
    ("io.apicurio.registry.utils.converter.AvroConverter", Class::Planned),
    ("io.apicurio.registry.utils.converter.ExtJsonConverter", Class::Planned),
    ("io.apicurio.registry.utils.converter.ProtobufConverter", Class::Planned),
    ("io.debezium.converters.CloudEventsConverter", Class::Planned),
];

/// The converter of a class, given by its full name, its simple name (`JsonConverter`) or that without its ending (`Json`).
///
/// `options` are those below `key.converter.`, `value.converter.` or `header.converter.`. The findings tell of an unknown class
/// and of everything that is wrong with the options; there is a converter unless one of them is a problem.
pub fn converter(class: &str, role: Role, options: &Options) -> (Option<Box<dyn Converter>>, Findings) {
    match find(class) {
        Some(Class::Json) => boxed(JsonConverter::from_options(options)),
        Some(Class::String) => boxed(StringConverter::from_options(options)),
        Some(Class::BinaryData(buffers)) => boxed(BinaryDataConverter::from_options(buffers, role, options)),
        Some(Class::ByteArray) => boxed(without_options(ByteArrayConverter, options)),
        Some(Class::Boolean) => boxed(without_options(BooleanConverter, options)),
        Some(Class::Number(converter)) => boxed(without_options(converter, options)),
        Some(Class::SimpleHeader) if role == Role::Header => boxed(without_options(SimpleHeaderConverter, options)),
        Some(Class::SimpleHeader) => refuse(
            options,
            format!("is {class:?}, which writes headers only"),
            Some("use StringConverter or JsonConverter".to_owned()),
        ),
        Some(Class::Planned) => refuse(
            options,
            format!("is {class:?}, which Walferry does not support yet"),
            Some(format!("use one of {}", offered(role).join(", "))),
        ),
        None => {
            let error = ValueError::not_one_of(class, &offered(role));
            refuse(options, format!("is {class:?}, which {error}"), error.hint)
        }
    }
}

fn find(class: &str) -> Option<Class> {
    let class = class.trim();
    let known = CLASSES.iter().find(|(name, _)| *name == class);
    let known = known.or_else(|| CLASSES.iter().find(|(name, _)| simple_name(name) == class));
    let known = known.or_else(|| CLASSES.iter().find(|(name, _)| pruned_name(name) == class));
    known.map(|(_, class)| *class)
}

fn simple_name(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

fn pruned_name(class: &str) -> &str {
    let simple = simple_name(class);
    let pruned = simple
        .strip_suffix("HeaderConverter")
        .or_else(|| simple.strip_suffix("Converter"));
    pruned.unwrap_or(simple)
}

/// The simple names that work.
fn offered(role: Role) -> Vec<&'static str> {
    let works = |class: &Class| match class {
        Class::Planned => false,
        Class::SimpleHeader => role == Role::Header,
        _ => true,
    };
    let mut names: Vec<&str> = CLASSES
        .iter()
        .filter(|(_, class)| works(class))
        .map(|(name, _)| simple_name(name))
        .collect();
    names.dedup();
    names
}

fn without_options<C>(converter: C, options: &Options) -> (Option<C>, Findings) {
    Reader::new(options, []).finish(converter)
}

fn boxed<C: Converter + 'static>(
    (converter, findings): (Option<C>, Findings),
) -> (Option<Box<dyn Converter>>, Findings) {
    (
        converter.map(|converter| Box::new(converter) as Box<dyn Converter>),
        findings,
    )
}

fn refuse(options: &Options, message: String, hint: Option<String>) -> (Option<Box<dyn Converter>>, Findings) {
    let property = options.full_name("");
    let mut findings = Findings::default();
    findings.problem(property.trim_end_matches('.'), message).hint = hint;
    (None, findings)
}
