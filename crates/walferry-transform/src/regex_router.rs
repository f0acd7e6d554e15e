//! Kafka's `RegexRouter`: another topic for records whose topic matches.

use std::borrow::Cow;

use walferry_config::{Findings, Group, JavaRegex, Options, Property, Reader, properties};
use walferry_record::Record;

use crate::topic::TopicRouter;
use crate::{Error, Outcome, Transform};

properties! {
    const REGEX: Property<JavaRegex> = Property::new("regex").required()
        .text("Java regular expression. A record is renamed if it matches the whole name of the topic.");
    const REPLACEMENT: Property<String> = Property::new("replacement").required()
        .text("The new name, with `$1` or `${name}` for groups of the expression; a backslash makes the next character a \
               literal.");
}

/// The options, for the reference page.
pub(crate) const GROUP: Group = Group {
    title: "Transform RegexRouter",
    text: "`org.apache.kafka.connect.transforms.RegexRouter`: sends records to another topic.",
    prefix: "transforms.<name>.",
    declarations: DECLARATIONS,
};

/// Kafka's `RegexRouter`.
#[derive(Debug)]
pub struct RegexRouter {
    topics: TopicRouter,
}

impl RegexRouter {
    /// Reads the options.
    pub(crate) fn new(options: &Options) -> (Option<Self>, Findings) {
        let mut reader = Reader::new(options, DECLARATIONS);
        let topics = TopicRouter::read(&mut reader, &REGEX, &REPLACEMENT);
        let (topics, findings) = reader.finish(topics);
        (topics.flatten().map(|topics| Self { topics }), findings)
    }
}

impl Transform for RegexRouter {
    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        record.topic = Cow::Borrowed(self.topics.route(&record.topic)?);
        Ok(Outcome::Record(record))
    }
}
