//! Kafka's `HasHeaderKey`: true of records with a certain header.

use walferry_config::{Group, Property, Reader, RegexLimit, properties};
use walferry_record::Record;

use crate::contract::{PluginRow, Predicate, Side};

properties! {
    const NAME: Property<String> = Property::new("name").example("orders").required()
        .text("Name of the header that the record has to have at least once.");
}

pub(crate) const ROW: PluginRow<dyn Predicate> = PluginRow {
    class: "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
    sides: false,
    options: Group {
        title: "Predicate HasHeaderKey",
        text: "`org.apache.kafka.connect.transforms.predicates.HasHeaderKey`: true of records with a certain header.",
        prefix: "predicates.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct HasHeaderKey(String);

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Predicate>> {
    Some(Box::new(HasHeaderKey(reader.get(&NAME))))
}

impl Predicate for HasHeaderKey {
    fn test(&self, record: &Record<'_>) -> Result<bool, RegexLimit> {
        Ok(record.headers.iter().any(|header| header.name == *self.0))
    }
}
