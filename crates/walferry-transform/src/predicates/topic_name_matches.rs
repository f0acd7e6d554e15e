//! Kafka's `TopicNameMatches`: true of records of certain topics.

use walferry_config::{Group, JavaRegex, Property, Reader, RegexLimit, limited, properties};
use walferry_record::Record;

use crate::contract::{PluginRow, Predicate, Side};

properties! {
    const PATTERN: Property<JavaRegex> = Property::new("pattern").example("shop\\.public\\..*").required()
        .text("Java regular expression that the whole topic name has to match.");
}

pub(crate) const ROW: PluginRow<dyn Predicate> = PluginRow {
    class: "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
    sides: false,
    options: Group {
        title: "Predicate TopicNameMatches",
        text: "`org.apache.kafka.connect.transforms.predicates.TopicNameMatches`: true of records of certain topics.",
        prefix: "predicates.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct TopicNameMatches(JavaRegex);

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Predicate>> {
    Some(Box::new(TopicNameMatches(reader.get(&PATTERN))))
}

impl Predicate for TopicNameMatches {
    fn test(&self, record: &Record<'_>) -> Result<bool, RegexLimit> {
        limited(|| self.0.matches(&record.topic))
    }

    fn test_topic(&self, topic: &str) -> Option<bool> {
        Some(self.0.matches(topic))
    }
}
