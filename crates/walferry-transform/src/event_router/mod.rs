//! Debezium's outbox EventRouter (`io.debezium.transforms.outbox.EventRouter`).
//!
//! A row that is inserted into the outbox table becomes an event of its own: topic, key, value, headers, partition and
//! timestamp come from its columns.

mod adjust;
mod choices;
mod column;
mod conformance;
mod content;
mod envelope;
mod error;
mod event_types;
mod expand;
mod hash_order;
mod infer;
mod json;
mod json_headers;
mod options;
mod placement;
mod plan;
mod schemas;
mod timestamp;
mod transaction_headers;

pub use self::options::sample_event_type;
use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use tracing::{error, warn};
use walferry_config::{Group, Reader};
use walferry_record::{Header, Record, SchemaAndValue, Struct, Value};

use self::choices::InvalidOperation;
use self::conformance::Conformance;
pub(crate) use self::content::ByContent;
use self::envelope::SchemaNames;
use self::error::Error;
use self::event_types::EventTypes;
pub(crate) use self::expand::Documents;
use self::expand::Expansion;
use self::json_headers::JsonColumn;
use self::options::{ByType, RouterOptions, Unknown};
use self::plan::{Operation, OutboxPlan, Tables};
use self::transaction_headers::TransactionHeaders;
use crate::TransformFault as _;
use crate::contract::{HeaderList, PluginRow, Requirement, Side, TransactionPlace};
use crate::debezium::envelope;
use crate::outbox::OutboxColumns;
use crate::throttle::Throttle;
use crate::topic::TopicRouter;
use crate::{DropReason, Mismatched, Outcome, SetAside, Transform};

pub(crate) use options::upkeep;

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.outbox.EventRouter",
    sides: false,
    options: Group {
        title: "Transform EventRouter",
        text: "`io.debezium.transforms.outbox.EventRouter`: sends the rows of an outbox table as events.",
        prefix: "transforms.<name>.",
        declarations: options::DECLARATIONS,
    },
    build,
};

/// Debezium's outbox EventRouter.
#[derive(Debug, Clone)]
pub struct EventRouter {
    settings: RouterOptions,
    columns: OutboxColumns,
    tables: Tables,
    topics: TopicRouter,
    /// Topics by event type; unused where `walferry.topics` is not set.
    types: EventTypes,
    expansion: Option<Expansion>,
    schema_names: SchemaNames,
    other_topics: OtherTopics,
    /// Where `walferry.tables` names the outboxes: their topics, whose tombstones are dropped. All other tombstones pass, also those
    /// that another EventRouter has made.
    own_topics: OtherTopics,
    /// `walferry.headers`, if there are any.
    transaction: Option<TransactionHeaders>,
    updates: Throttle,
    unknown_types: Throttle,
    /// `walferry.schemas.dir`, if it is set.
    conformance: Option<Conformance>,
}

/// Topics of captured tables that are no outbox; their tombstones pass, too. All other tombstones are dropped.
#[derive(Debug, Clone, Default)]
struct OtherTopics {
    /// As a rule the next record has the same.
    last: String,
    /// Hashes of topics: there may be 100,000.
    known: HashSet<u64>,
    hasher: RandomState,
}

impl OtherTopics {
    /// A tombstone follows the record of its delete. So when there are too many, all can be forgotten: what passes is noted again.
    const MOST: usize = 50_000;

    fn note(&mut self, topic: &str) {
        if self.last == topic {
            return;
        }
        topic.clone_into(&mut self.last);
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        self.known.insert(self.hasher.hash_one(topic));
    }

    fn contains(&self, topic: &str) -> bool {
        self.last == topic || self.known.contains(&self.hasher.hash_one(topic))
    }
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let configured = options::read(reader)?;
    Some(Box::new(EventRouter {
        transaction: TransactionHeaders::new(&configured.settings.transaction_headers),
        settings: configured.settings,
        columns: configured.columns,
        tables: Tables::default(),
        topics: configured.topics,
        types: configured.types,
        expansion: configured.expansion,
        schema_names: SchemaNames::default(),
        other_topics: OtherTopics::default(),
        own_topics: OtherTopics::default(),
        updates: Throttle::default(),
        unknown_types: Throttle::default(),
        conformance: configured.conformance,
    }))
}

impl EventRouter {
    /// The captured table with this topic of change events is an outbox. Without this, an outbox that loses a column before its first row
    /// comes would be taken for another table, and its rows would be sent as change events.
    pub fn expect_outbox(&mut self, topic: &str) {
        self.tables.expect(format!("{topic}.Value"));
    }

    /// Tombstones of an outbox are dropped, all others pass.
    fn tombstone<'a>(&self, record: Record<'a>) -> Outcome<'a> {
        let passes = match &self.settings.tables {
            None => self.other_topics.contains(&record.topic),
            Some(_) => !self.own_topics.contains(&record.topic),
        };
        match passes {
            true => Outcome::Record(record),
            false => Outcome::Dropped(DropReason::Tombstone),
        }
    }
}

impl Transform for EventRouter {
    // The deletes that pass are those of other tables.
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, crate::Error> {
        if record.value.value.is_null() {
            return Ok(self.tombstone(record));
        }
        let plan = match self.tables.of(&record, &self.settings) {
            Err(error @ Error::Envelope("after")) => {
                return Ok(without_row(
                    &record,
                    error,
                    self.settings.invalid_operation,
                    &mut self.updates,
                )?);
            }
            plan => plan?,
        };
        let Some(plan) = plan else {
            if self.settings.tables.is_none() && envelope(&record).is_some() {
                self.other_topics.note(&record.topic);
            }
            return Ok(Outcome::Record(record));
        };
        let Value::Struct(mut event) = std::mem::take(&mut record.value.value) else {
            return Err(Error::Envelope("op").into());
        };
        if self.settings.tables.is_some() {
            self.own_topics.note(&record.topic);
        }
        match plan.operation(&event)? {
            Operation::Route => {}
            Operation::Drop(reason) => return Ok(Outcome::Dropped(reason)),
            Operation::Update => return Ok(drop_update(self.settings.invalid_operation, &mut self.updates)?),
        }
        let processed_ms = plan.processed_ms(&event);
        let Value::Struct(row) = event.take_at(plan.after) else {
            return Err(Error::Envelope("after").into());
        };

        // What is only looked at comes first; then the values are moved out of the row.
        let destination = match &self.settings.by_type {
            None => Destination::ByRoute,
            Some(by_type) => destination(by_type, plan.event_type(&row), &mut self.types, &mut self.unknown_types)?,
        };
        let (mut refusal, mut is_failure) = (None, false);
        match destination {
            Destination::Topic(topic) => record.topic = Cow::Borrowed(topic),
            Destination::ByRoute => record.topic = Cow::Borrowed(self.topics.route(plan.route(&row)?)?),
            Destination::DeadLetter(why) => refusal = Some(why),
            Destination::Failed(error) => (refusal, is_failure) = (Some(error), true),
        }
        if let (Some(conformance), None) = (&mut self.conformance, &refusal)
            && let Some(event) = plan.event(&row)
            && !(self.settings.tombstone && is_blank(event.payload))
        {
            refusal = conformance.check(&event)?;
        }
        record.timestamp_ms = plan.timestamp_ms(&row)?.or(processed_ms);
        record.partition = plan.partition(&row)?;
        let parts = EventParts {
            transaction: self.transaction.as_ref(),
            expansion: self.expansion.as_mut(),
            schema_names: &mut self.schema_names,
            has_tombstones: self.settings.tombstone,
        };
        parts.fill(&mut record, plan, row)?;
        Ok(match refusal {
            None => Outcome::Record(record),
            Some(why) => set_aside(record, &why, is_failure),
        })
    }

    fn requirement(&self) -> Option<Requirement<'_>> {
        Some(Requirement::Outbox(&self.columns))
    }
}

/// What no other transform has. Find the EventRouters of a chain with [`Chain::each`](crate::Chain::each).
impl EventRouter {
    /// The schemas that it checks events against: each type, or expression for types, with its file.
    pub fn event_schemas(&self) -> Vec<(String, String)> {
        self.conformance.as_ref().map_or_else(Vec::new, Conformance::listed)
    }

    /// What it has found since the last call.
    pub fn take_mismatched(&mut self) -> Vec<Mismatched> {
        self.conformance.as_mut().map_or_else(Vec::new, Conformance::take)
    }

    /// Whether it needs to know the position of each record in its transaction.
    pub fn wants_place(&self) -> bool {
        self.transaction.is_some()
    }

    /// Sets the position of the next record. `None` if the record is not a change of a transaction.
    pub fn at(&mut self, place: Option<TransactionPlace>) {
        if let Some(transaction) = &mut self.transaction {
            transaction.place = place;
        }
    }
}

/// What else than the row makes an event.
struct EventParts<'a> {
    transaction: Option<&'a TransactionHeaders>,
    expansion: Option<&'a mut Expansion>,
    schema_names: &'a mut SchemaNames,
    /// `route.tombstone.on.empty.payload`
    has_tombstones: bool,
}

impl<'a> EventParts<'a> {
    /// Moves the row's values into the record, in the order of the plan: headers, value, key.
    fn fill(self, record: &mut Record<'a>, plan: &'a mut OutboxPlan, mut row: Struct<'a>) -> Result<(), Error> {
        record.headers.reserve_exact(plan.headers.len());
        for (name, column) in &plan.headers {
            record.headers.push(Header {
                name: Cow::Borrowed(name),
                value: column.take(&mut row),
            });
        }
        if let Some(transaction) = self.transaction {
            transaction.add(&mut record.headers);
        }
        // Last, so that a member never has the name of another header.
        add_members(&plan.json_headers, &row, record)?;
        let mut payload = plan.payload.take(&mut row);
        if let Some(expansion) = self.expansion {
            payload = expansion.expand(payload);
        }
        let is_tombstone = self.has_tombstones && is_blank(&payload.value);
        record.value = match (&mut plan.envelope, is_tombstone) {
            (None, false) => payload,
            (None, true) => SchemaAndValue::NULL,
            (Some(envelope), false) => envelope.wrap(payload, &plan.payload.schema, &mut row, self.schema_names),
            (Some(envelope), true) => {
                envelope.name_schema(&payload, &plan.payload.schema, &row, self.schema_names);
                SchemaAndValue::NULL
            }
        };
        record.key = plan.take_key(&mut row);
        Ok(())
    }
}

fn set_aside<'a>(record: Record<'a>, why: &Error, is_failure: bool) -> Outcome<'a> {
    Outcome::SetAside(Box::new(SetAside {
        record,
        why: why.to_string(),
        hint: why.hint(),
        kind: why.kind(),
        is_failure,
        transform: String::new(),
    }))
}

/// Where an event goes.
enum Destination<'a> {
    Topic(&'a str),
    /// To the topic that `route.by.field` says.
    ByRoute,
    /// To the dead-letter topic, for this reason.
    DeadLetter(Error),
    /// Nobody can say. Where errors are tolerated, it goes to the dead-letter topic.
    Failed(Error),
}

/// `walferry.topics`: finds the topic of a type.
fn destination<'a>(
    by_type: &'a ByType,
    event_type: Option<&str>,
    types: &'a mut EventTypes,
    unknown: &mut Throttle,
) -> Result<Destination<'a>, Error> {
    let found = match event_type {
        Some(event_type) => types.topic(event_type),
        None => Ok(None),
    };
    match (found, &by_type.unknown) {
        (Ok(Some(topic)), _) => return Ok(Destination::Topic(topic)),
        (Ok(None), _) => {}
        (Err(limit), Unknown::DeadLetter) => return Ok(Destination::DeadLetter(limit.into())),
        // The map may have the type: any other topic may be the wrong one.
        (Err(limit), _) => return Ok(Destination::Failed(limit.into())),
    }
    match &by_type.unknown {
        Unknown::Fail => Err(Error::unknown_type(event_type, &by_type.column)),
        Unknown::DeadLetter => Ok(Destination::DeadLetter(Error::unknown_type(
            event_type,
            &by_type.column,
        ))),
        Unknown::Topic(topic) => {
            if let Some(count) = unknown.count() {
                warn!(
                    count,
                    topic, "event of a type that is not in walferry.topics sent to walferry.topics.default"
                );
            }
            Ok(Destination::Topic(topic))
        }
        Unknown::Route => Ok(Destination::ByRoute),
    }
}

/// `walferry.headers.from`: adds each member of these columns as a header.
fn add_members(columns: &[JsonColumn], row: &Struct<'_>, record: &mut Record<'_>) -> Result<(), Error> {
    for column in columns {
        if let Some(text) = row.values()[column.index].as_str()
            && column.add(text, &mut record.headers).is_err()
        {
            return Err(Error::NotAnObject {
                column: column.name.clone(),
            });
        }
    }
    Ok(())
}

/// What becomes of a record that is an envelope by its name and has no `after`: Flatten makes such records. Debezium looks at the
/// operation first, so deletes and updates are dropped like those of any outbox.
fn without_row<'a>(
    record: &Record<'_>,
    error: Error,
    behavior: InvalidOperation,
    updates: &mut Throttle,
) -> Result<Outcome<'a>, Error> {
    let operation = match &record.value.value {
        Value::Struct(event) => event
            .schema()
            .field_index("op")
            .and_then(|op| event.get_at(op).as_str()),
        _ => None,
    };
    match operation {
        Some("d") => Ok(Outcome::Dropped(DropReason::Delete)),
        Some("u") => drop_update(behavior, updates),
        _ => Err(error),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn very_many_other_topics_are_not_all_kept_and_the_last_one_always_is() {
        let mut topics = OtherTopics::default();
        for number in 0..3 * OtherTopics::MOST {
            let topic = format!("s.public.t{number}");
            topics.note(&topic);
            assert!(topics.contains(&topic), "{topic}");
            assert!(topics.known.len() <= OtherTopics::MOST);
        }
        assert!(!topics.contains("s.public.outbox"));
    }
}
