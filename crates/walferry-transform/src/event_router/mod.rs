//! Debezium's outbox EventRouter (`io.debezium.transforms.outbox.EventRouter`).
//!
//! A row that is inserted into the outbox table becomes an event of its own: topic, key, value, headers, partition and
//! timestamp come from its columns.

mod adjust;
mod content;
mod envelope;
mod expand;
mod hash_order;
mod infer;
mod json;
mod options;
mod placement;
mod plan;
mod throttle;
mod timestamp;

use std::borrow::Cow;
use std::collections::HashSet;

use tracing::{error, warn};
use walferry_config::{Findings, Group, Options};
use walferry_record::{Header, Record, Typed, Value};

use self::envelope::SchemaNames;
use self::expand::Expansion;
use self::options::{Configured, InvalidOperation, Settings};
use self::plan::{Operation, Plans};
use self::throttle::Throttle;
use crate::outbox::Requirements;
use crate::topic::TopicRouter;
use crate::{DropReason, Error, Outcome, Transform};

/// The options, for the reference page.
pub(crate) const GROUP: Group = Group {
    title: "Transform EventRouter",
    text: "`io.debezium.transforms.outbox.EventRouter`: sends the rows of an outbox table as events of their own.",
    prefix: "transforms.<name>.",
    declarations: options::DECLARATIONS,
};

/// Debezium's outbox EventRouter.
#[derive(Debug)]
pub struct EventRouter {
    settings: Settings,
    requirements: Requirements,
    plans: Plans,
    topics: TopicRouter,
    expansion: Option<Expansion>,
    schema_names: SchemaNames,
    /// Topics of captured tables that are no outbox; their tombstones pass, too.
    other_topics: HashSet<Box<str>>,
    updates: Throttle,
}

impl EventRouter {
    /// Reads the options.
    pub fn new(options: &Options) -> (Option<Self>, Findings) {
        let (configured, findings) = options::read(options);
        let router = configured.map(|configured: Configured| Self {
            settings: configured.settings,
            requirements: configured.requirements,
            plans: Plans::default(),
            topics: configured.topics,
            expansion: configured.expansion,
            schema_names: SchemaNames::default(),
            other_topics: HashSet::new(),
            updates: Throttle::default(),
        });
        (router, findings)
    }
}

impl Transform for EventRouter {
    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        if record.value.value.is_null() {
            return Ok(if self.other_topics.contains(&*record.topic) {
                Outcome::Record(record)
            } else {
                Outcome::Dropped(DropReason::Tombstone)
            });
        }
        let Some(plan) = self.plans.of(&record, &self.settings, &mut self.other_topics)? else {
            return Ok(Outcome::Record(record));
        };
        let Value::Struct(mut event) = std::mem::take(&mut record.value.value) else {
            return Err(Error::Envelope("op"));
        };
        match plan.operation(&event)? {
            Operation::Route => {}
            Operation::Drop(reason) => return Ok(Outcome::Dropped(reason)),
            Operation::Update => return drop_update(self.settings.invalid_operation, &mut self.updates),
        }
        let processed_ms = plan.processed_ms(&event);
        let Value::Struct(mut row) = event.take_at(plan.after) else {
            return Err(Error::Envelope("after"));
        };

        // What is only looked at comes first; then the values are moved out of the row, in the order of the plan.
        record.topic = Cow::Borrowed(self.topics.route(plan.route(&row)?)?);
        record.timestamp_ms = plan.timestamp_ms(&row)?.or(processed_ms);
        record.partition = plan.partition(&row)?;
        record.headers.reserve_exact(plan.headers.len());
        for (name, column) in &plan.headers {
            record.headers.push(Header {
                name: Cow::Borrowed(name),
                value: column.take(&mut row),
            });
        }
        let mut payload = plan.payload.take(&mut row);
        if let Some(expansion) = &mut self.expansion {
            payload = expansion.expand(payload);
        }
        record.value = if self.settings.tombstone && is_blank(&payload.value) {
            Typed::NULL
        } else if let Some(envelope) = &mut plan.envelope {
            envelope.wrap(payload, &plan.payload.schema, &mut row, &mut self.schema_names)
        } else {
            payload
        };
        record.key = plan.key.take(&mut row);
        Ok(Outcome::Record(record))
    }

    fn outbox(&self) -> Option<&Requirements> {
        Some(&self.requirements)
    }
}

fn drop_update<'a>(behavior: InvalidOperation, updates: &mut Throttle) -> Result<Outcome<'a>, Error> {
    if behavior == InvalidOperation::Fatal {
        return Err(Error::UnexpectedUpdate);
    }
    if let Some(count) = updates.count() {
        match behavior {
            InvalidOperation::Error => error!(count, "update of an outbox row dropped"),
            _ => warn!(count, "update of an outbox row dropped"),
        }
    }
    Ok(Outcome::Dropped(DropReason::InvalidOperation))
}

/// Whether a payload is empty for `route.tombstone.on.empty.payload`: null, or text of nothing but what Java's `trim` cuts.
/// Empty bytes are not.
fn is_blank(payload: &Value<'_>) -> bool {
    match payload {
        Value::Null => true,
        Value::String(text) => text.bytes().all(|byte| byte <= b' '),
        _ => false,
    }
}
