//! Kafka's `InsertHeader`: adds a header with a fixed value.

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::{Header, Record, SchemaAndValue};

use super::literal;
use crate::contract::{PluginRow, Side};
use crate::{Error, Outcome, Transform};

properties! {
    const HEADER: Property<String> = Property::new("header").example("origin").required()
        .text("Name of the header.");
    const VALUE: Property<Option<String>> = Property::new("value.literal").example("walferry")
        .text("Value of the header; required. As in Kafka Connect, its text determines the type: `true` is a boolean, `7` an int8, `1.5` \
               a float32, `2024-01-31` a date, `[1, 2]` an array, `{\"a\": 1}` a map, `null` no value, and any other text a string.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.InsertHeader",
    sides: false,
    options: Group {
        title: "Transform InsertHeader",
        text: "`org.apache.kafka.connect.transforms.InsertHeader`: adds a header with a fixed value to each record, including tombstones.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct InsertHeader {
    name: String,
    value: SchemaAndValue<'static>,
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let name = reader.get(&HEADER);
    let text = crate::reshape::set_text(reader, &VALUE);
    let Some(text) = text else {
        reader.problem(VALUE.name(), "is required");
        return None;
    };
    Some(Box::new(InsertHeader {
        name,
        value: literal::parse(&text),
    }))
}

impl Transform for InsertHeader {
    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        record.headers.push(Header {
            name: self.name.as_str().into(),
            value: SchemaAndValue {
                schema: self.value.schema.clone(),
                value: self.value.value.reborrow(),
            },
        });
        Ok(Outcome::Record(record))
    }
}
