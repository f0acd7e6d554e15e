//! Kafka's `TimestampRouter`: a topic that depends on the timestamp of the record.

use std::borrow::Cow;

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::Record;
use walferry_record::java::date_format::DateFormat;

use super::timestamp_converter::date_format;
use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::{Error, Outcome, Transform};

properties! {
    const TOPIC_FORMAT: Property<String> = Property::new("topic.format").default("${topic}-${timestamp}")
        .text("The new topic, with `${topic}` for the original topic and `${timestamp}` for the timestamp of the record.");
    const TIMESTAMP_FORMAT: Property<String> = Property::new("timestamp.format").default("yyyyMMdd")
        .text("Format of the timestamp: a pattern of Java's `SimpleDateFormat`. The time zone is UTC.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.TimestampRouter",
    sides: false,
    options: Group {
        title: "Transform TimestampRouter",
        text: "`org.apache.kafka.connect.transforms.TimestampRouter`: sends records to a topic that depends on their timestamp. Change \
               events have no timestamp, so the transform fails on them, as in Kafka Connect. The events that EventRouter creates from an \
               outbox have one.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct TimestampRouter {
    topic: String,
    format: DateFormat,
}

#[derive(Debug, thiserror::Error)]
#[error("the record has no timestamp")]
struct NoTimestamp;

impl TransformFault for NoTimestamp {
    fn hint(&self) -> Option<String> {
        Some("change events have no timestamp: use RegexRouter, or add a predicate to the transform".into())
    }
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let topic = reader.get(&TOPIC_FORMAT);
    let pattern = reader.get(&TIMESTAMP_FORMAT);
    let format = date_format(reader, TIMESTAMP_FORMAT.name(), &pattern)?;
    Some(Box::new(TimestampRouter { topic, format }))
}

impl Transform for TimestampRouter {
    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let timestamp = record.timestamp_ms.ok_or(NoTimestamp)?;
        let topic = self.topic.replace("${topic}", &record.topic);
        record.topic = Cow::Owned(topic.replace("${timestamp}", &self.format.format(timestamp)));
        Ok(Outcome::Record(record))
    }
}
