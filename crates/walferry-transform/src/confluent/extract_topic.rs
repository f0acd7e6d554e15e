//! Confluent's `ExtractTopic`: a topic that the record names itself. See the module about where its rules come from.

use std::borrow::Cow;

use walferry_config::{Group, Property, Reader, choices, properties};
use walferry_record::{Record, Typed, Value};

use super::json_path::{JsonPath, Node};
use crate::contract::{Row, Side};
use crate::error::Problem;
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
    const FIELD: Property<Option<String>> = Property::new("field")
        .text("The field whose value is the topic, or its path. Left out or empty, the whole key or value is the topic; \
               `ExtractTopic$Header` needs the name of a header.");
    const FORMAT: Property<Format> = Property::new("field.format").default("PLAIN")
        .text("`PLAIN`: `field` is a name. `JSON_PATH`: it is a JSON path to one place, such as `$[\"f1\"][\"f3\"]`.");
    const SKIP: Property<bool> = Property::new("skip.missing.or.null").default("false")
        .text("Whether a record keeps its topic where the field, header, key or value is missing or null. Otherwise the transform fails.");
}

const TEXT: &str = "`io.confluent.connect.transforms.ExtractTopic$Key` and `$Value`: sends a record to the topic that its key or value \
                    names, whole or in one field, which must be a string. Made after Confluent's documentation, and not compared with \
                    the real class.";

pub(crate) const ROW: Row<dyn Transform> = Row {
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

pub(crate) const HEADER_ROW: Row<dyn Transform> = Row {
    class: "io.confluent.connect.transforms.ExtractTopic$Header",
    sides: false,
    options: Group {
        title: "Transform ExtractTopic$Header",
        text: "`io.confluent.connect.transforms.ExtractTopic$Header`: sends a record to the topic that a header names, which must be a \
               string; of several headers of that name the last one. Made after Confluent's documentation, and not compared with the \
               real class.",
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
    #[error("what names the topic is missing or null")]
    Missing,
    #[error("what names the topic is {0}, and only a string can")]
    NotText(&'static str),
    #[error("what names the topic is empty")]
    Empty,
}

impl Problem for NoTopic {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Missing => "set skip.missing.or.null=true, so that such records keep their topic".into(),
            Self::NotText(_) => {
                "name a field that holds text, or make it text before, with Cast$Value and a spec of field:string"
                    .into()
            }
            Self::Empty => "leave such records out with a predicate, or correct the row".into(),
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
                        format!("is {field:?}, a JSON path that may lead to many places"),
                    )
                    .hint("write a path of names and indexes, such as $.after.topic");
                return None;
            }
            Err(error) => {
                reader
                    .problem(FIELD.name(), format!("is no JSON path that can be used: {error}"))
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
            .hint("leave it out: the whole header is the topic");
    }
    let Some(name) = field.filter(|field| !field.is_empty()) else {
        reader
            .problem(FIELD.name(), "is required")
            .hint("set it to the name of the header that names the topic");
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
                let Typed { schema, value } = side.of(&mut record);
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
