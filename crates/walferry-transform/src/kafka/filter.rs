//! Kafka's `Filter`: drops every record that its predicate lets through to it.

use walferry_config::{Group, Reader};
use walferry_record::Record;

use crate::contract::{PluginRow, Side};
use crate::{DropReason, Error, Outcome, Transform};

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.Filter",
    sides: false,
    options: Group {
        title: "Transform Filter",
        text: "`org.apache.kafka.connect.transforms.Filter`: drops every record that matches its predicate. It has no options. Dropped \
               records are counted.",
        prefix: "transforms.<name>.",
        declarations: &[],
    },
    build,
};

#[derive(Clone)]
struct Filter;

fn build(_: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    Some(Box::new(Filter))
}

impl Transform for Filter {
    fn apply<'a>(&'a mut self, _: Record<'a>) -> Result<Outcome<'a>, Error> {
        Ok(Outcome::Dropped(DropReason::Filtered))
    }
}
