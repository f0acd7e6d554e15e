//! Converters by the class names of a configuration.

use walferry_config::{Findings, Group, Options, Reader, ValueError, shown_class};

use crate::others;
use crate::raw::Buffers;
use crate::{
    AvroConverter, BinaryDataConverter, BooleanConverter, ByteArrayConverter, CloudEventsConverter, Converter,
    ExtJsonConverter, JsonConverter, JsonSchemaConverter, NumberConverter, ProtobufConverter, Role,
    SimpleHeaderConverter, StringConverter, avro, cloud_events, ext_json, json, json_schema, protobuf, raw, registry,
    string,
};

/// The options of all converters, for the reference page. They stand behind `key.converter.`, `value.converter.` or
/// `header.converter.`.
pub const GROUPS: &[Group] = &[
    Group {
        title: "JsonConverter",
        text: "Writes JSON, with or without the schema in each record.",
        prefix: "value.converter.",
        declarations: json::DECLARATIONS,
    },
    Group {
        title: "StringConverter",
        text: "Writes the text of a value. It is mostly used for an outbox with JSON or text payloads.",
        prefix: "value.converter.",
        declarations: string::DECLARATIONS,
    },
    Group {
        title: "BinaryDataConverter",
        text: "Writes bytes unchanged, and uses another converter for all other values.",
        prefix: "value.converter.",
        declarations: raw::DECLARATIONS,
    },
    Group {
        title: "AvroConverter",
        text: "Writes Avro and registers its schemas, with Confluent's or Apicurio's converter. Options of only one of the two are in the \
               sections below.",
        prefix: "value.converter.",
        declarations: avro::DECLARATIONS,
    },
    Group {
        title: "JsonSchemaConverter",
        text: "Writes JSON and registers a JSON Schema. The options for the registry are those of AvroConverter.",
        prefix: "value.converter.",
        declarations: json_schema::DECLARATIONS,
    },
    Group {
        title: "ProtobufConverter",
        text: "Writes Protocol Buffers and registers their schema. The options for the registry are those of AvroConverter.",
        prefix: "value.converter.",
        declarations: protobuf::DECLARATIONS,
    },
    Group {
        title: "ExtJsonConverter",
        text: "Writes JSON with the id of its schema, which is the schema of JsonConverter. The options for the registry are those of \
               Apicurio's AvroConverter.",
        prefix: "value.converter.",
        declarations: ext_json::DECLARATIONS,
    },
    Group {
        title: REGISTRY_OF_CONFLUENT,
        text: "How Confluent's converters `io.confluent.connect.…` (AvroConverter, JsonSchemaConverter, ProtobufConverter) use the schema \
               registry.",
        prefix: "value.converter.",
        declarations: registry::CONFLUENT,
    },
    Group {
        title: REGISTRY_OF_APICURIO,
        text: "How Apicurio's converters `io.apicurio.registry.utils.converter.…` (AvroConverter, ExtJsonConverter) use the registry.",
        prefix: "value.converter.",
        declarations: registry::APICURIO,
    },
    Group {
        title: "CloudEventsConverter",
        text: "Writes a change event as a CloudEvent, in JSON.",
        prefix: "value.converter.",
        declarations: cloud_events::DECLARATIONS,
    },
];

const REGISTRY_OF_CONFLUENT: &str = "Confluent's converters";
const REGISTRY_OF_APICURIO: &str = "Apicurio's converters";

#[derive(Debug, Clone, Copy)]
enum Class {
    Json,
    String,
    ByteArray,
    BinaryData(Buffers),
    Boolean,
    Number(NumberConverter),
    SimpleHeader,
    CloudEvents,
    Avro(avro::Family),
    JsonSchema,
    Protobuf,
    ExtJson,
    /// Known, and refused by name.
    Planned,
}

impl Class {
    /// Whether it can be a `header.converter`. What waits for a registry cannot.
    const fn writes_headers(self) -> bool {
        !matches!(
            self,
            Self::CloudEvents | Self::Avro(_) | Self::JsonSchema | Self::Protobuf | Self::ExtJson
        )
    }
}

const BYTE_BUFFER: &str = "io.debezium.converters.ByteBufferConverter";

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
    // Its former name, gone from Debezium 3.6.3.
    (BYTE_BUFFER, Class::BinaryData(Buffers::Raw)),
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
    (
        "io.confluent.connect.avro.AvroConverter",
        Class::Avro(avro::Family::Confluent),
    ),
    ("io.confluent.connect.json.JsonSchemaConverter", Class::JsonSchema),
    ("io.confluent.connect.protobuf.ProtobufConverter", Class::Protobuf),
    (
        "io.apicurio.registry.utils.converter.AvroConverter",
        Class::Avro(avro::Family::Apicurio),
    ),
    ("io.apicurio.registry.utils.converter.ExtJsonConverter", Class::ExtJson),
    ("io.apicurio.registry.utils.converter.ProtobufConverter", Class::Planned),
    ("io.debezium.converters.CloudEventsConverter", Class::CloudEvents),
];

/// The converter of a class, given by its full name, its simple name (`JsonConverter`) or that without its ending (`Json`).
///
/// `options` are those below `key.converter.`, `value.converter.` or `header.converter.`. The findings tell of an unknown class
/// and of everything that is wrong with the options; there is a converter unless one of them is a problem.
pub fn converter(class: &str, role: Role, options: &Options) -> (Option<Box<dyn Converter>>, Findings) {
    match find(class) {
        Some(Class::Json) => boxed(JsonConverter::from_options(options)),
        Some(Class::String) => boxed(StringConverter::from_options(options)),
        Some(Class::BinaryData(buffers)) => {
            let (converter, mut findings) = boxed(BinaryDataConverter::from_options(buffers, role, options));
            if means(class, BYTE_BUFFER) {
                let property = options.full_name("");
                let finding = findings.warning(
                    property.trim_end_matches('.'),
                    "is ByteBufferConverter, which Debezium 3.6.3 no longer has; it is treated as BinaryDataConverter",
                );
                finding.hint("write io.debezium.converters.BinaryDataConverter, its current name");
            }
            (converter, findings)
        }
        Some(Class::ByteArray) => boxed(without_options(ByteArrayConverter, options)),
        Some(Class::Boolean) => boxed(without_options(BooleanConverter, options)),
        Some(Class::Number(converter)) => boxed(without_options(converter, options)),
        Some(Class::SimpleHeader) if role == Role::Header => boxed(without_options(SimpleHeaderConverter, options)),
        Some(Class::SimpleHeader) => refuse(
            options,
            format!("is {class:?}, which can only write headers"),
            Some("use StringConverter or JsonConverter".to_owned()),
        ),
        Some(known) if role == Role::Header && !known.writes_headers() => refuse(
            options,
            format!("is {class:?}, which cannot write headers"),
            Some("use SimpleHeaderConverter or JsonConverter".to_owned()),
        ),
        Some(Class::Avro(family)) => boxed(AvroConverter::from_options(family, role, options)),
        Some(Class::JsonSchema) => boxed(JsonSchemaConverter::from_options(role, options)),
        Some(Class::Protobuf) => boxed(ProtobufConverter::from_options(role, options)),
        Some(Class::ExtJson) => boxed(ExtJsonConverter::from_options(role, options)),
        Some(Class::CloudEvents) => boxed(CloudEventsConverter::from_options(options)),
        Some(Class::Planned) => refuse(
            options,
            format!("is {class:?}, which Walferry does not have"),
            Some(
                "use io.confluent.connect.protobuf.ProtobufConverter, with schema.registry.url=http://registry:8080/apis/ccompat/v7 for the same \
                 registry; consumers then need Confluent's deserializer"
                    .to_owned(),
            ),
        ),
        None => {
            let error = ValueError::not_one_of(simple_name(class), &offered(role));
            // `json` for `JsonConverter`.
            let meant = offered(role)
                .into_iter()
                .find(|name| pruned_name(name).eq_ignore_ascii_case(class.trim()));
            let meant = meant.map(|name| format!("did you mean {name}?"));
            let hint = error.hint.clone().or(meant).unwrap_or_else(|| {
                "Walferry cannot load custom classes: use one of these, or keep this connector on Kafka Connect"
                    .to_owned()
            });
            refuse(
                options,
                format!("is {}, which {error}", shown_class(class.trim())),
                Some(hint),
            )
        }
    }
}

/// The full names of the classes that are there, for their documentation, each with its own group of options where it has one.
pub fn classes() -> impl Iterator<Item = (&'static str, Option<&'static Group>)> {
    let there = CLASSES.iter().filter(|(_, class)| !matches!(class, Class::Planned));
    there.map(|(name, class)| {
        let title = match class {
            Class::BinaryData(_) => "BinaryDataConverter",
            Class::Avro(avro::Family::Confluent) => REGISTRY_OF_CONFLUENT,
            Class::Avro(avro::Family::Apicurio) => REGISTRY_OF_APICURIO,
            _ => simple_name(name),
        };
        (*name, GROUPS.iter().find(|group| group.title == title))
    })
}

fn find(class: &str) -> Option<Class> {
    let class = class.trim();
    let known = CLASSES.iter().find(|(name, _)| *name == class);
    let known = known.or_else(|| CLASSES.iter().find(|(name, _)| simple_name(name) == class));
    let known = known.or_else(|| CLASSES.iter().find(|(name, _)| pruned_name(name) == class));
    known.map(|(_, class)| *class)
}

fn means(class: &str, full: &str) -> bool {
    let class = class.trim();
    full == class || simple_name(full) == class || pruned_name(full) == class
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
        _ => role != Role::Header || class.writes_headers(),
    };
    let mut names: Vec<&str> = Vec::new();
    for (class, _) in CLASSES
        .iter()
        .filter(|(name, class)| works(class) && *name != BYTE_BUFFER)
    {
        let name = simple_name(class);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn without_options<C>(converter: C, options: &Options) -> (Option<C>, Findings) {
    Reader::new(options, others::of_json().chain(others::of_registries())).finish(converter)
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
    findings
        .problem(property.trim_end_matches('.'), message)
        .kind(walferry_diagnosis::Kind::ClassUnknown)
        .hint = hint;
    (None, findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An option and its value.
    type Setting = (&'static str, &'static str);

    fn options(entries: &[Setting]) -> Options {
        let entries = entries
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Options::new("value.converter.", entries.collect())
    }

    fn findings(class: &str, role: Role, entries: &[Setting]) -> (bool, Vec<String>) {
        let (converter, findings) = converter(class, role, &options(entries));
        (converter.is_some(), findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_class_goes_by_its_full_its_simple_and_its_pruned_name() {
        for (class, kind) in CLASSES {
            for name in [class, simple_name(class), pruned_name(class)] {
                let role = match kind {
                    Class::SimpleHeader => Role::Header,
                    _ => Role::Value,
                };
                let required: &[Setting] = match kind {
                    Class::Avro(avro::Family::Confluent) | Class::JsonSchema | Class::Protobuf => {
                        &[("schema.registry.url", "http://registry:8081")]
                    }
                    Class::Avro(avro::Family::Apicurio) | Class::ExtJson => {
                        &[("apicurio.registry.url", "http://registry:8080/apis/registry/v2")]
                    }
                    _ => &[],
                };
                // A simple name that two classes have means the first of them.
                if format!("{:?}", find(name).unwrap()) != format!("{kind:?}") {
                    assert_ne!(name, *class);
                    continue;
                }
                let (found, findings) = findings(name, role, required);
                assert_eq!(found, !matches!(kind, Class::Planned), "{name}: {findings:?}");
                let warned = *class == BYTE_BUFFER;
                assert_eq!(findings.is_empty(), found && !warned, "{name}: {findings:?}");
            }
        }
    }

    #[test]
    fn a_class_that_cannot_be_had_says_what_can() {
        let cases = [
            (
                "org.apache.kafka.connect.json.JsonConvertor",
                "value.converter is \"org.apache.kafka.connect.json.JsonConvertor\", which is not one of JsonConverter, StringConverter, ",
            ),
            ("JsonConvertor", "(did you mean JsonConverter?)"),
            (
                "io.apicurio.registry.utils.converter.ProtobufConverter",
                "value.converter is \"io.apicurio.registry.utils.converter.ProtobufConverter\", which Walferry does not have (use io.confluent.connect.protobuf.ProtobufConverter, with schema.registry.url=",
            ),
            (
                "org.apache.kafka.connect.storage.SimpleHeaderConverter",
                "which can only write headers (use StringConverter or JsonConverter)",
            ),
        ];
        for (class, expected) in cases {
            let (found, findings) = findings(class, Role::Value, &[]);
            assert!(!found && findings[0].contains(expected), "{class}: {findings:?}");
        }
        let (found, findings) = findings("CloudEvents", Role::Header, &[]);
        let expected = "which cannot write headers (use SimpleHeaderConverter or JsonConverter)";
        assert!(!found && findings[0].contains(expected), "{findings:?}");
    }

    #[test]
    fn options_are_checked_those_of_a_delegate_too() {
        let delegate = ("delegate.converter.type", "JsonConverter");
        let cases: [(&str, &[Setting], bool, &[&str]); 8] = [
            (
                "Json",
                &[("schemas.enable", "FALSE"), ("decimal.format", "Numeric")],
                true,
                &[],
            ),
            (
                "Json",
                &[("schemas.enable", "no")],
                false,
                &["value.converter.schemas.enable is \"no\", which is not true or false (write false)"],
            ),
            (
                "Json",
                &[("schema.enable", "false")],
                true,
                &[
                    "value.converter.schema.enable is not a property that Walferry knows; it has no effect (did you mean value.converter.schemas.enable?)",
                ],
            ),
            (
                "Json",
                &[("schemas.cache.size", "10")],
                true,
                &["value.converter.schemas.cache.size has no effect: Walferry always caches the schemas in use"],
            ),
            (
                "String",
                &[("converter.encoding", "EBCDIC")],
                false,
                &[
                    "value.converter.converter.encoding is not one of UTF-8, US-ASCII, ISO-8859-1, UTF-16, UTF-16BE, UTF-16LE (remove it to use the default, UTF8)",
                ],
            ),
            (
                "BinaryData",
                &[delegate, ("delegate.converter.type.schemas.enable", "x")],
                false,
                &[
                    "value.converter.delegate.converter.type.schemas.enable is \"x\", which is not true or false (remove it to use the default, true)",
                ],
            ),
            ("BinaryData", &[("delegate.converter.type", "Avro")], false, &[]),
            (
                "BinaryData",
                &[("delegate.converter.type", "SimpleHeaderConverter")],
                false,
                &[
                    "value.converter.delegate.converter.type is \"SimpleHeaderConverter\", which can only write headers (use StringConverter or JsonConverter)",
                ],
            ),
        ];
        for (class, entries, found, expected) in cases {
            for role in [Role::Value, Role::Header] {
                let (is_found, findings) = findings(class, role, entries);
                assert_eq!(is_found, found, "{class} {entries:?}: {findings:?}");
                if !expected.is_empty() {
                    assert_eq!(findings, expected, "{class} {entries:?}");
                }
            }
        }
    }
}
