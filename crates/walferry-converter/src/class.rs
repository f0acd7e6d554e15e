//! The table of converters. A new one is a file and a row here.

use walferry_config::{Findings, Group, Options, Reader, ValueError, quoted};

use crate::others;
use crate::raw::Buffers;
use crate::{
    AvroConverter, BinaryDataConverter, BooleanConverter, ByteArrayConverter, CloudEventsConverter, Converter,
    ConverterType, ExtJsonConverter, JsonConverter, JsonSchemaConverter, NumberConverter, ProtobufConverter,
    SimpleHeaderConverter, StringConverter, avro, cloud_events, ext_json, json, json_schema, protobuf, raw, registry,
    string,
};

/// One row of the table: all that the rest of the program knows of a converter.
struct ConverterRow {
    /// The full name of the class.
    class: &'static str,
    writes: Writes,
    /// The section of the reference page that is about this class alone.
    options: Option<&'static Group>,
    /// Reads the options and builds the converter. There is one unless a finding is a problem.
    build: fn(ConverterType, &Options) -> Built,
}

type Built = (Option<Box<dyn Converter>>, Findings);

/// Which parts of a record a converter can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writes {
    Everything,
    /// A converter that may wait for a registry cannot write headers.
    KeysAndValues,
    Headers,
}

impl Writes {
    fn can_be(self, role: ConverterType) -> bool {
        match self {
            Self::Everything => true,
            Self::KeysAndValues => role != ConverterType::Header,
            Self::Headers => role == ConverterType::Header,
        }
    }
}

/// If several classes have the same simple name, the first one is used.
static CONVERTERS: &[ConverterRow] = &[
    ConverterRow {
        class: "org.apache.kafka.connect.json.JsonConverter",
        writes: Writes::Everything,
        options: Some(&JSON),
        build: |_, options| boxed(JsonConverter::from_options(options)),
    },
    ConverterRow {
        class: "org.apache.kafka.connect.storage.StringConverter",
        writes: Writes::Everything,
        options: Some(&STRING),
        build: |_, options| boxed(StringConverter::from_options(options)),
    },
    ConverterRow {
        class: "org.apache.kafka.connect.converters.ByteArrayConverter",
        writes: Writes::Everything,
        options: None,
        build: |_, options| without_options(ByteArrayConverter, options),
    },
    ConverterRow {
        class: "io.debezium.converters.BinaryDataConverter",
        writes: Writes::Everything,
        options: Some(&BINARY_DATA),
        build: |role, options| boxed(BinaryDataConverter::from_options(Buffers::Raw, role, options)),
    },
    // Its former name, gone from Debezium 3.6.3.
    ConverterRow {
        class: BYTE_BUFFER,
        writes: Writes::Everything,
        options: Some(&BINARY_DATA),
        build: byte_buffer,
    },
    ConverterRow {
        class: "io.debezium.converters.ByteArrayConverter",
        writes: Writes::Everything,
        options: Some(&BINARY_DATA),
        build: |role, options| boxed(BinaryDataConverter::from_options(Buffers::Delegated, role, options)),
    },
    ConverterRow {
        class: "org.apache.kafka.connect.converters.BooleanConverter",
        writes: Writes::Everything,
        options: None,
        build: |_, options| without_options(BooleanConverter, options),
    },
    ConverterRow {
        class: "org.apache.kafka.connect.converters.ShortConverter",
        writes: Writes::Everything,
        options: None,
        build: |_, options| without_options(NumberConverter::Short, options),
    },
    ConverterRow {
        class: "org.apache.kafka.connect.converters.IntegerConverter",
        writes: Writes::Everything,
        options: None,
        build: |_, options| without_options(NumberConverter::Integer, options),
    },
    ConverterRow {
        class: "org.apache.kafka.connect.converters.LongConverter",
        writes: Writes::Everything,
        options: None,
        build: |_, options| without_options(NumberConverter::Long, options),
    },
    ConverterRow {
        class: "org.apache.kafka.connect.converters.FloatConverter",
        writes: Writes::Everything,
        options: None,
        build: |_, options| without_options(NumberConverter::Float, options),
    },
    ConverterRow {
        class: "org.apache.kafka.connect.converters.DoubleConverter",
        writes: Writes::Everything,
        options: None,
        build: |_, options| without_options(NumberConverter::Double, options),
    },
    ConverterRow {
        class: "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        writes: Writes::Headers,
        options: None,
        build: |_, options| without_options(SimpleHeaderConverter, options),
    },
    ConverterRow {
        class: "io.confluent.connect.avro.AvroConverter",
        writes: Writes::KeysAndValues,
        options: Some(&CONFLUENT),
        build: |role, options| boxed(AvroConverter::from_options(avro::Family::Confluent, role, options)),
    },
    ConverterRow {
        class: "io.confluent.connect.json.JsonSchemaConverter",
        writes: Writes::KeysAndValues,
        options: Some(&JSON_SCHEMA),
        build: |role, options| boxed(JsonSchemaConverter::from_options(role, options)),
    },
    ConverterRow {
        class: "io.confluent.connect.protobuf.ProtobufConverter",
        writes: Writes::KeysAndValues,
        options: Some(&PROTOBUF),
        build: |role, options| boxed(ProtobufConverter::from_options(role, options)),
    },
    ConverterRow {
        class: "io.apicurio.registry.utils.converter.AvroConverter",
        writes: Writes::KeysAndValues,
        options: Some(&APICURIO),
        build: |role, options| boxed(AvroConverter::from_options(avro::Family::Apicurio, role, options)),
    },
    ConverterRow {
        class: "io.apicurio.registry.utils.converter.ExtJsonConverter",
        writes: Writes::KeysAndValues,
        options: Some(&EXT_JSON),
        build: |role, options| boxed(ExtJsonConverter::from_options(role, options)),
    },
    ConverterRow {
        class: "io.debezium.converters.CloudEventsConverter",
        writes: Writes::KeysAndValues,
        options: Some(&CLOUD_EVENTS),
        build: |_, options| boxed(CloudEventsConverter::from_options(options)),
    },
];

const BYTE_BUFFER: &str = "io.debezium.converters.ByteBufferConverter";

/// A converter that people look for and that Walferry does not have.
struct Absent {
    class: &'static str,
    instead: &'static str,
}

const ABSENT: &[Absent] = &[Absent {
    class: "io.apicurio.registry.utils.converter.ProtobufConverter",
    instead: "use io.confluent.connect.protobuf.ProtobufConverter, with schema.registry.url=http://registry:8080/apis/ccompat/v7 for the \
              same registry; consumers then need Confluent's deserializer",
}];

/// The options of all converters, for the reference page. They stand behind `key.converter.`, `value.converter.` or
/// `header.converter.`.
pub static GROUPS: &[Group] = &[
    JSON,
    STRING,
    BINARY_DATA,
    AVRO,
    JSON_SCHEMA,
    PROTOBUF,
    EXT_JSON,
    CONFLUENT,
    APICURIO,
    CLOUD_EVENTS,
];

const JSON: Group = Group {
    title: "JsonConverter",
    text: "Writes JSON, with or without the schema in each record.",
    prefix: "value.converter.",
    declarations: json::DECLARATIONS,
};

const STRING: Group = Group {
    title: "StringConverter",
    text: "Writes the text of a value. It is mostly used for an outbox with JSON or text payloads.",
    prefix: "value.converter.",
    declarations: string::DECLARATIONS,
};

const BINARY_DATA: Group = Group {
    title: "BinaryDataConverter",
    text: "Writes bytes unchanged, and uses another converter for all other values.",
    prefix: "value.converter.",
    declarations: raw::DECLARATIONS,
};

const AVRO: Group = Group {
    title: "AvroConverter",
    text: "Writes Avro and registers its schemas, with Confluent's or Apicurio's converter. Options of only one of the two are in the \
           sections below.",
    prefix: "value.converter.",
    declarations: avro::DECLARATIONS,
};

const JSON_SCHEMA: Group = Group {
    title: "JsonSchemaConverter",
    text: "Writes JSON and registers a JSON Schema. The options for the registry are those of AvroConverter.",
    prefix: "value.converter.",
    declarations: json_schema::DECLARATIONS,
};

const PROTOBUF: Group = Group {
    title: "ProtobufConverter",
    text: "Writes Protocol Buffers and registers their schema. The options for the registry are those of AvroConverter.",
    prefix: "value.converter.",
    declarations: protobuf::DECLARATIONS,
};

const EXT_JSON: Group = Group {
    title: "ExtJsonConverter",
    text: "Writes JSON with the id of its schema, which is the schema of JsonConverter. The options for the registry are those of \
           Apicurio's AvroConverter.",
    prefix: "value.converter.",
    declarations: ext_json::DECLARATIONS,
};

const CONFLUENT: Group = Group {
    title: "Confluent's converters",
    text: "How Confluent's converters `io.confluent.connect.…` (AvroConverter, JsonSchemaConverter, ProtobufConverter) use the schema \
           registry.",
    prefix: "value.converter.",
    declarations: registry::CONFLUENT,
};

const APICURIO: Group = Group {
    title: "Apicurio's converters",
    text: "How Apicurio's converters `io.apicurio.registry.utils.converter.…` (AvroConverter, ExtJsonConverter) use the registry.",
    prefix: "value.converter.",
    declarations: registry::APICURIO,
};

const CLOUD_EVENTS: Group = Group {
    title: "CloudEventsConverter",
    text: "Writes a change event as a CloudEvent, in JSON.",
    prefix: "value.converter.",
    declarations: cloud_events::DECLARATIONS,
};

/// The converter of a class, given by its full name, its simple name (`JsonConverter`) or that without its ending (`Json`).
///
/// `options` are those below `key.converter.`, `value.converter.` or `header.converter.`. The findings tell of an unknown class
/// and of everything that is wrong with the options; there is a converter unless one of them is a problem.
pub fn converter(class: &str, role: ConverterType, options: &Options) -> Built {
    if let Some(row) = find(class) {
        return match row.writes {
            writes if writes.can_be(role) => (row.build)(role, options),
            Writes::Headers => refuse(
                options,
                format!("is {class:?}, which can only write headers"),
                Some("use StringConverter or JsonConverter".to_owned()),
            ),
            _ => refuse(
                options,
                format!("is {class:?}, which cannot write headers"),
                Some("use SimpleHeaderConverter or JsonConverter".to_owned()),
            ),
        };
    }
    if let Some(absent) = ABSENT.iter().find(|absent| absent.class == class.trim()) {
        return refuse(
            options,
            format!("is {class:?}, which Walferry does not have"),
            Some(absent.instead.to_owned()),
        );
    }
    let error = ValueError::not_one_of(simple_name(class), &offered(role));
    // `json` for `JsonConverter`.
    let meant = offered(role)
        .into_iter()
        .find(|name| pruned_name(name).eq_ignore_ascii_case(class.trim()));
    let meant = meant.map(|name| format!("did you mean {name}?"));
    let hint = error.hint.clone().or(meant).unwrap_or_else(|| {
        "Walferry cannot load custom classes: use one of these, or keep this connector on Kafka Connect".to_owned()
    });
    refuse(
        options,
        format!("is {}, which {error}", quoted(class.trim())),
        Some(hint),
    )
}

/// `BinaryDataConverter` under its former name.
fn byte_buffer(role: ConverterType, options: &Options) -> Built {
    let (converter, mut findings) = boxed(BinaryDataConverter::from_options(Buffers::Raw, role, options));
    let property = options.full_name("");
    let finding = findings.warning(
        property.trim_end_matches('.'),
        "is ByteBufferConverter, which Debezium 3.6.3 no longer has; it is treated as BinaryDataConverter",
    );
    finding.hint("write io.debezium.converters.BinaryDataConverter, its current name");
    (converter, findings)
}

/// The full names of all converter classes, each with its own group of options if it has one. For the documentation.
pub fn classes() -> impl Iterator<Item = (&'static str, Option<&'static Group>)> {
    CONVERTERS.iter().map(|row| (row.class, row.options))
}

fn find(class: &str) -> Option<&'static ConverterRow> {
    let class = class.trim();
    let named = |name: fn(&'static str) -> &'static str| CONVERTERS.iter().find(move |row| name(row.class) == class);
    named(|full| full)
        .or_else(|| named(simple_name))
        .or_else(|| named(pruned_name))
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
fn offered(role: ConverterType) -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    let works = |row: &&ConverterRow| row.writes.can_be(role) && row.class != BYTE_BUFFER;
    for row in CONVERTERS.iter().filter(works) {
        let name = simple_name(row.class);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn without_options(converter: impl Converter + 'static, options: &Options) -> Built {
    boxed(Reader::new(options, others::of_json().chain(others::of_registries())).finish(converter))
}

fn boxed<C: Converter + 'static>((converter, findings): (Option<C>, Findings)) -> Built {
    let boxed = converter.map(|converter| Box::new(converter) as Box<dyn Converter>);
    (boxed, findings)
}

fn refuse(options: &Options, message: String, hint: Option<String>) -> Built {
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

    fn findings(class: &str, role: ConverterType, entries: &[Setting]) -> (bool, Vec<String>) {
        let (converter, findings) = converter(class, role, &options(entries));
        (converter.is_some(), findings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_class_goes_by_its_full_its_simple_and_its_pruned_name() {
        for row in CONVERTERS {
            for name in [row.class, simple_name(row.class), pruned_name(row.class)] {
                let role = match row.writes {
                    Writes::Headers => ConverterType::Header,
                    _ => ConverterType::Value,
                };
                let required: &[Setting] = match row.class {
                    class if class.starts_with("io.confluent.") => &[("schema.registry.url", "http://registry:8081")],
                    class if class.starts_with("io.apicurio.") => {
                        &[("apicurio.registry.url", "http://registry:8080/apis/registry/v2")]
                    }
                    _ => &[],
                };
                // A simple name that two classes have means the first of them.
                if find(name).unwrap().class != row.class {
                    assert_ne!(name, row.class);
                    continue;
                }
                let (found, findings) = findings(name, role, required);
                assert!(found, "{name}: {findings:?}");
                assert_eq!(findings.is_empty(), row.class != BYTE_BUFFER, "{name}: {findings:?}");
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
            let (found, findings) = findings(class, ConverterType::Value, &[]);
            assert!(!found && findings[0].contains(expected), "{class}: {findings:?}");
        }
        let (found, findings) = findings("CloudEvents", ConverterType::Header, &[]);
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
                    "value.converter.converter.encoding is \"EBCDIC\", which is not one of UTF-8, US-ASCII, ISO-8859-1, UTF-16, UTF-16BE, UTF-16LE (remove it to use the default, UTF8)",
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
            for role in [ConverterType::Value, ConverterType::Header] {
                let (is_found, findings) = findings(class, role, entries);
                assert_eq!(is_found, found, "{class} {entries:?}: {findings:?}");
                if !expected.is_empty() {
                    assert_eq!(findings, expected, "{class} {entries:?}");
                }
            }
        }
    }
}
