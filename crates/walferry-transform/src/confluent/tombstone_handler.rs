//! Confluent's `TombstoneHandler`: drops tombstones or fails on them. `confluent/mod.rs` says where its rules come from.

use tracing::{debug, warn};
use walferry_config::{Group, Property, Reader, choices, properties};
use walferry_record::Record;

use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::throttle::Throttle;
use crate::{DropReason, Error, Outcome, Transform};

choices! {
    /// What is done about a tombstone.
    enum Behavior {
        /// It is dropped.
        Ignore = "ignore",
        /// It is dropped, and a warning says so.
        #[default]
        Warn = "warn",
        /// The transform fails.
        Fail = "fail",
    }
}

properties! {
    const BEHAVIOR: Property<Behavior> = Property::new("behavior").default("warn")
        .text("What happens to a tombstone: `ignore` and `warn` drop it; `fail` makes the transform fail. `warn` logs the first, tenth, \
               hundredth and so on.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.confluent.connect.transforms.TombstoneHandler",
    sides: false,
    options: Group {
        title: "Transform TombstoneHandler",
        text: "`io.confluent.connect.transforms.TombstoneHandler`: drops records whose value is null, with or without a schema, or fails \
               on them. Dropped records are counted. It follows Confluent's documentation and was not compared with the real class.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct TombstoneHandler {
    behavior: Behavior,
    dropped: Throttle,
}

#[derive(Debug, thiserror::Error)]
#[error("the record is a tombstone")]
struct Tombstone;

impl TransformFault for Tombstone {
    fn hint(&self) -> Option<String> {
        Some("set behavior to warn or ignore to drop tombstones, or set tombstones.on.delete=false so that there are none".into())
    }
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    Some(Box::new(TombstoneHandler {
        behavior: reader.get(&BEHAVIOR),
        dropped: Throttle::default(),
    }))
}

impl Transform for TombstoneHandler {
    fn apply<'a>(&'a mut self, record: Record<'a>) -> Result<Outcome<'a>, Error> {
        if !record.value.value.is_null() {
            return Ok(Outcome::Record(record));
        }
        match self.behavior {
            Behavior::Ignore => debug!(topic = &*record.topic, "tombstone dropped"),
            Behavior::Warn => {
                if let Some(tombstones) = self.dropped.count() {
                    warn!(
                        topic = &*record.topic,
                        tombstones, "tombstones dropped by TombstoneHandler"
                    );
                }
            }
            Behavior::Fail => return Err(Tombstone.into()),
        }
        Ok(Outcome::Dropped(DropReason::Tombstone))
    }
}
