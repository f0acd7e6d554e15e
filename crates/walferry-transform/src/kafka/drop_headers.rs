//! Kafka's `DropHeaders`: takes headers away.

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::Record;

use crate::contract::{PluginRow, Side};
use crate::reshape::names;
use crate::{Error, Outcome, Transform};

properties! {
    const HEADERS: Property<Vec<String>> = Property::new("headers").example("tenant").required()
        .text("Names of the headers to remove. All headers with these names are removed.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.DropHeaders",
    sides: false,
    options: Group {
        title: "Transform DropHeaders",
        text: "`org.apache.kafka.connect.transforms.DropHeaders`: removes headers from each record.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct DropHeaders {
    names: Vec<String>,
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    Some(Box::new(DropHeaders {
        names: names(reader, &HEADERS),
    }))
}

impl Transform for DropHeaders {
    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        record
            .headers
            .retain(|header| !self.names.iter().any(|name| header.name == **name));
        Ok(Outcome::Record(record))
    }
}
