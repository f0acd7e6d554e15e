//! Kafka's `RegexRouter`: another topic for records whose topic matches.

use std::borrow::Cow;

use walferry_config::{Group, JavaRegex, Property, Reader, properties};
use walferry_record::Record;

use crate::contract::{HeaderList, PluginRow, Side};
use crate::topic::TopicRouter;
use crate::{Error, Outcome, Transform};

properties! {
    const REGEX: Property<JavaRegex> = Property::new("regex").example("shop\\.public\\.(.*)").required()
        .text("Java regular expression. The topic is changed if the expression matches its whole name.");
    const REPLACEMENT: Property<String> = Property::new("replacement").example("$1").required()
        .text("The new topic, with `$1` or `${name}` for groups of the expression. A backslash makes the next character literal.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.RegexRouter",
    sides: false,
    options: Group {
        title: "Transform RegexRouter",
        text: "`org.apache.kafka.connect.transforms.RegexRouter`: sends records to another topic, by a regular expression.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Debug, Clone)]
struct RegexRouter {
    topics: TopicRouter,
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let topics = TopicRouter::read(reader, &REGEX, &REPLACEMENT)?;
    Some(Box::new(RegexRouter { topics }))
}

impl Transform for RegexRouter {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::SharedWithTopic
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        record.topic = Cow::Borrowed(self.topics.route(&record.topic)?);
        Ok(Outcome::Record(record))
    }
}
