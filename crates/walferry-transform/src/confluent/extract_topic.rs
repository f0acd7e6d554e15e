//! Confluent's `ExtractTopic`: takes the topic from the record itself. `confluent/mod.rs` says where its rules come from.

use std::borrow::Cow;

use walferry_config::{Group, Property, Reader, choices, properties};
use walferry_record::{Record, SchemaAndValue, Value};

use super::json_path::{JsonPath, Node};
use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::kind;
use crate::{Error, Outcome, Transform};

choices! {
    /// How the field is named.
    enum Format {
        /// By its name.
        #[default]
        Plain = "PLAIN",
        /// By a JSON path.
        JsonPath = "JSON_PATH",
    }
}

properties! {
    const FIELD: Property<Option<String>> = Property::new("field").example("customer")
        .text("Name or path of the field whose value is the topic. If it is not set or empty, the whole key or value is the topic. \
               `ExtractTopic$Header` requires the name of a header.");
    const FORMAT: Property<Format> = Property::new("field.format").default("PLAIN")
        .text("`PLAIN`: `field` is a name. `JSON_PATH`: `field` is a JSON path to a single place, such as `$[\"f1\"][\"f3\"]`.");
    const SKIP: Property<bool> = Property::new("skip.missing.or.null").default("false")
        .text("Whether a record keeps its topic if the field, header, key or value is missing or null. Otherwise the transform fails.");
}

const TEXT: &str = "`io.confluent.connect.transforms.ExtractTopic$Key` and `$Value`: sends a record to the topic named by its key or \
                    value, or by a field of it. The name must be a string. It follows Confluent's documentation and was not compared with \
                    the real class.";

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.confluent.connect.transforms.ExtractTopic",
    sides: true,
    options: Group {
        title: "Transform ExtractTopic",
        text: TEXT,
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

pub(crate) const HEADER_ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.confluent.connect.transforms.ExtractTopic$Header",
    sides: false,
    options: Group {
        title: "Transform ExtractTopic$Header",
        text: "`io.confluent.connect.transforms.ExtractTopic$Header`: sends a record to the topic named by a header, which must be a \
               string. If there are several such headers, the last one is used. It follows Confluent's documentation and was not compared \
               with the real class.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build: build_header,
};

#[derive(Clone)]
struct ExtractTopic {
    source: Source,
    skip: bool,
    /// The last topic: its memory serves the next one.
    topic: String,
}

#[derive(Clone)]
enum Source {
    /// All of the key or the value.
    Whole(Side),
    /// A field of it.
    Field(Side, JsonPath),
    Header(String),
}

#[derive(Debug, thiserror::Error)]
enum NoTopic {
    #[error("the topic name is missing or null")]
    Missing,
    #[error("the topic name is {0}, but must be a string")]
    NotText(&'static str),
    #[error("the topic name is empty")]
    Empty,
}

impl TransformFault for NoTopic {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing => "set skip.missing.or.null=true to keep the topic of such records".into(),
            Self::NotText(_) => {
                "use a field that contains text, or convert it to text first, with Cast$Value and spec=field:string"
                    .into()
            }
            Self::Empty => "exclude such records with a predicate, or correct the row".into(),
        })
    }
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let (field, format, skip) = (reader.get(&FIELD), reader.get(&FORMAT), reader.get(&SKIP));
    let source = match (field.filter(|field| !field.is_empty()), format) {
        (None, _) => Source::Whole(side),
        (Some(field), Format::Plain) => Source::Field(side, JsonPath::of_name(field)),
        (Some(field), Format::JsonPath) => match JsonPath::new(&field) {
            Ok(path) if path.is_definite() => Source::Field(side, path),
            Ok(_) => {
                reader
                    .problem(
                        FIELD.name(),
                        format!("is {field:?}, a JSON path that may match several places"),
                    )
                    .hint("write a path of names and indexes, such as $.after.topic");
                return None;
            }
            Err(error) => {
                reader
                    .problem(FIELD.name(), format!("is not a supported JSON path: {error}"))
                    .hint(error.hint());
                return None;
            }
        },
    };
    let topic = String::new();
    Some(Box::new(ExtractTopic { source, skip, topic }))
}

fn build_header(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let (field, format, skip) = (reader.get(&FIELD), reader.get(&FORMAT), reader.get(&SKIP));
    if format == Format::JsonPath {
        reader
            .problem(FORMAT.name(), "is JSON_PATH, which ExtractTopic$Header does not have")
            .hint("remove it: the whole header is the topic");
    }
    let Some(name) = field.filter(|field| !field.is_empty()) else {
        reader
            .problem(FIELD.name(), "is required")
            .hint("set it to the name of the header that contains the topic");
        return None;
    };
    let source = Source::Header(name);
    let topic = String::new();
    Some(Box::new(ExtractTopic { source, skip, topic }))
}

impl Transform for ExtractTopic {
    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let Self { source, skip, topic } = self;
        topic.clear();
        let is_there = match source {
            Source::Whole(side) => read(&side.of(&mut record).value, topic)?,
            Source::Field(side, path) => {
                let SchemaAndValue { schema, value } = side.of(&mut record);
                let node = path.value(Node::new(value, schema.as_deref()));
                node.map_or(Ok(false), |node| read(node.value, topic))?
            }
            Source::Header(name) => {
                let header = record.headers.iter().rfind(|header| header.name == *name);
                header.map_or(Ok(false), |header| read(&header.value.value, topic))?
            }
        };
        match is_there {
            true => record.topic = Cow::Borrowed(topic),
            false if *skip => {}
            false => return Err(NoTopic::Missing.into()),
        }
        Ok(Outcome::Record(record))
    }
}

/// Reads what names the topic; `false` for null.
fn read(value: &Value<'_>, topic: &mut String) -> Result<bool, NoTopic> {
    match value {
        Value::Null => return Ok(false),
        Value::String(text) if text.is_empty() => return Err(NoTopic::Empty),
        Value::String(text) => topic.push_str(text),
        other => return Err(NoTopic::NotText(kind(other))),
    }
    Ok(true)
}
