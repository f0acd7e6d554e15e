//! Debezium's `SchemaChangeEventFilter`, which has nothing to do with Postgres: it sends no schema change events.

use walferry_config::{Group, Property, Reader, ValueError, properties};
use walferry_record::Record;

use crate::contract::{HeaderList, PluginRow, Side};
use crate::{Error, Outcome, Transform};

properties! {
    const EXCLUDE: Property<Vec<String>> = Property::new("schema.change.event.exclude.list").example("TRUNCATE").required()
        .text("The kinds of schema change events to drop: CREATE, ALTER, DROP, TRUNCATE, DATABASE. Debezium's Postgres connector sends \
               none, so every record stays unchanged.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.SchemaChangeEventFilter",
    sides: false,
    options: Group {
        title: "Transform SchemaChangeEventFilter",
        text: "`io.debezium.transforms.SchemaChangeEventFilter`: drops schema change events of the given kinds. The Postgres connector \
               sends no such events, so every record stays unchanged.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

/// `SchemaChangeEventType`.
const KINDS: [&str; 5] = ["CREATE", "ALTER", "DROP", "TRUNCATE", "DATABASE"];

#[derive(Clone)]
struct SchemaChangeEventFilter;

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    for kind in reader.get(&EXCLUDE) {
        if !KINDS.contains(&kind.trim()) {
            let error = ValueError::not_one_of(&kind, &KINDS);
            reader
                .problem(EXCLUDE.name(), format!("contains {kind:?}, which {error}"))
                .hint("write the kinds in capital letters, separated by commas");
        }
    }
    Some(Box::new(SchemaChangeEventFilter))
}

impl Transform for SchemaChangeEventFilter {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn apply<'a>(&'a mut self, record: Record<'a>) -> Result<Outcome<'a>, Error> {
        Ok(Outcome::Record(record))
    }
}
