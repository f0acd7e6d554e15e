//! Kafka's `RecordIsTombstone`: true of records without a value.

use walferry_config::{Group, Reader, RegexLimit};
use walferry_record::Record;

use crate::contract::{PluginRow, Predicate, Side};

pub(crate) const ROW: PluginRow<dyn Predicate> = PluginRow {
    class: "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
    sides: false,
    options: Group {
        title: "Predicate RecordIsTombstone",
        text: "`org.apache.kafka.connect.transforms.predicates.RecordIsTombstone`: true of records whose value is null. It has \
               no options.",
        prefix: "predicates.<name>.",
        declarations: &[],
    },
    build,
};

#[derive(Clone)]
struct RecordIsTombstone;

fn build(_: &mut Reader<'_>, _: Side) -> Option<Box<dyn Predicate>> {
    Some(Box::new(RecordIsTombstone))
}

impl Predicate for RecordIsTombstone {
    fn test(&self, record: &Record<'_>) -> Result<bool, RegexLimit> {
        // The schema does not matter: a null value of a schema counts, too.
        Ok(record.value.value.is_null())
    }
}
