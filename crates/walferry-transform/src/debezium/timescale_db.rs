//! Debezium's `TimescaleDb`: changes of chunks as changes of their hypertable.

use std::borrow::Cow;
use std::mem::take;
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;
use walferry_config::{Group, Property, Reader, Support, properties};
use walferry_record::{Header, Record, Schema, SchemaAndValue, SchemaPlans, SchemaRef, Struct, Value, Wait};

use super::envelope;
use crate::contract::{HeaderList, PluginRow, Requirement, Side};
use crate::error::TransformFault;
use crate::hypertables::{HypertableReader, Reading, TableId};
use crate::outcome::WaitingRecord;
use crate::throttle::Throttle;
use crate::{Error, Outcome, Transform};

const OWN_CONNECTION: Support = Support::Accepted {
    why: "Walferry reads TimescaleDB's catalog with the connector's own connection settings",
};

properties! {
    const SCHEMAS: Property<Vec<String>> = Property::new("schema.list").default("_timescaledb_internal")
        .text("Schemas whose tables are chunks. Changes of tables in other schemas stay unchanged.");
    const PREFIX: Property<String> = Property::new("target.topic.prefix").default("timescaledb")
        .text("First part of the topics for changes of chunks: `<prefix>.<schema>.<table>`, with the names of the hypertable or of the \
               continuous aggregate.");
    const DATABASE: Property<String> = Property::new("database.<property>")
        .text("How Debezium connects to read TimescaleDB's catalog.")
        .support(OWN_CONNECTION);
    const DRIVER: Property<String> = Property::new("driver.<property>")
        .text("How Debezium's driver connects to read TimescaleDB's catalog.")
        .support(OWN_CONNECTION);
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.connector.postgresql.transforms.timescaledb.TimescaleDb",
    sides: false,
    options: Group {
        title: "Transform TimescaleDb",
        text: "`io.debezium.connector.postgresql.transforms.timescaledb.TimescaleDb`: sends changes of TimescaleDB's chunks to one topic \
               for each hypertable. The source block and the topic contain the name of the hypertable, or for a continuous aggregate the \
               name of its view; headers contain the name of the chunk. Capture the schema of the chunks with \
               `schema.include.list=_timescaledb_internal`. When the first change of an unknown chunk arrives, Walferry reads \
               TimescaleDB's catalog with the connector's connection settings; this change and all changes after it wait meanwhile.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

const CHUNK_TABLE: &str = "__debezium_timescaledb_chunk_table";
const CHUNK_SCHEMA: &str = "__debezium_timescaledb_chunk_schema";
const HYPERTABLE_TABLE: &str = "__debezium_timescaledb_hypertable_table";
const HYPERTABLE_SCHEMA: &str = "__debezium_timescaledb_hypertable_schema";

/// How long a table that was not found counts as no chunk, before the catalog is read again for it.
const NO_CHUNK_HOLDS: Duration = Duration::from_secs(10);

#[derive(Clone)]
struct TimescaleDb {
    schemas: Vec<String>,
    prefix: String,
    catalog: Catalog,
    plans: SchemaPlans<Plan>,
    text: SchemaRef,
    /// Changes of tables that are no chunks.
    unknown: Throttle,
}

/// What is known of the catalog.
#[derive(Clone, Default)]
struct Catalog {
    reader: Option<Arc<dyn HypertableReader>>,
    known: Option<Arc<Reading>>,
    /// What is being read now.
    reading: Option<Arc<Reading>>,
    /// How often it has been read.
    generation: u64,
}

/// What is worked out once for a table.
struct Plan {
    /// Places of the source block in the event, and of the two names in the source block.
    source: usize,
    schema: usize,
    table: usize,
    chunk: Option<Chunk>,
}

/// The table that was met last with a schema.
struct Chunk {
    id: TableId,
    /// The reading of the catalog that `place` comes from.
    generation: u64,
    place: Destination,
}

/// Where changes of a table go.
enum Destination {
    Route(Route),
    /// The table is not a chunk. This was checked at this time of the reader's clock.
    Nowhere(Duration),
}

struct Route {
    topic: String,
    /// The hypertable, or the view of the continuous aggregate that it holds.
    target: TableId,
    /// The hypertable, where it holds a continuous aggregate.
    materialized: Option<TableId>,
}

#[derive(Debug, thiserror::Error)]
enum Unroutable {
    #[error("the source block of the change event does not say which table was changed")]
    NoSource,
    #[error("TimescaleDB's catalog cannot be read here")]
    NoReader,
}

impl TransformFault for Unroutable {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoSource => "put the transform before transforms that remove fields from the event".to_owned(),
            Self::NoReader => "this is a bug: please report it".to_owned(),
        })
    }
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    reader.matching(&DATABASE);
    reader.matching(&DRIVER);
    Some(Box::new(TimescaleDb {
        schemas: reader.get(&SCHEMAS),
        prefix: reader.get(&PREFIX),
        catalog: Catalog::default(),
        plans: SchemaPlans::default(),
        text: Schema::string().build(),
        unknown: Throttle::default(),
    }))
}

impl Transform for TimescaleDb {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn adds_headers(&self) -> bool {
        true
    }

    fn requirement(&self) -> Option<Requirement<'_>> {
        Some(Requirement::Hypertables)
    }

    fn attach(&mut self, connect: &mut dyn FnMut() -> Arc<dyn HypertableReader>) {
        self.catalog.reader = Some(connect());
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let Some(event) = envelope(&record) else {
            return Ok(Outcome::Record(record));
        };
        let plan = self.plans.get_or_make(event.schema(), Plan::new)?;
        let Some(source) = event.values()[plan.source].as_struct() else {
            return Ok(Outcome::Record(record));
        };
        let (schema, table) = (&source.values()[plan.schema], &source.values()[plan.table]);
        let (Some(schema), Some(table)) = (schema.as_str(), table.as_str()) else {
            return Ok(Outcome::Record(record));
        };
        if !self.schemas.iter().any(|known| known == schema) {
            return Ok(Outcome::Record(record));
        }
        if !plan.knows(schema, table, &self.catalog) {
            let id = TableId::new(schema, table);
            let place = match self.catalog.find(&id, plan.chunk.take(), &self.prefix)? {
                Ok(place) => place,
                Err(wait) => return Ok(Outcome::Waits(WaitingRecord::new(record, wait))),
            };
            let generation = self.catalog.generation;
            plan.chunk = Some(Chunk { id, generation, place });
        }
        let Some(Chunk {
            id,
            place: Destination::Route(route),
            ..
        }) = &plan.chunk
        else {
            if let Some(count) = self.unknown.count() {
                let table = format!("{schema}.{table}");
                warn!(
                    table,
                    count,
                    "TimescaleDB's catalog does not contain this chunk: its changes go to the topic of the table itself"
                );
            }
            return Ok(Outcome::Record(record));
        };
        record.value.value = renamed(take(&mut record.value.value), plan, &route.target);
        record.topic = Cow::Borrowed(&route.topic);
        let mut header = |name, text: &'a str| {
            record.headers.push(Header {
                name: Cow::Borrowed(name),
                value: SchemaAndValue::new(self.text.clone(), Value::str(text)),
            });
        };
        header(CHUNK_TABLE, &id.name);
        header(CHUNK_SCHEMA, &id.schema);
        if let Some(hypertable) = &route.materialized {
            header(HYPERTABLE_TABLE, &hypertable.name);
            header(HYPERTABLE_SCHEMA, &hypertable.schema);
        }
        Ok(Outcome::Record(record))
    }
}

impl Plan {
    fn new(event: &SchemaRef) -> Result<Self, Unroutable> {
        let place = |schema: &Schema, name| schema.field_index(name).ok_or(Unroutable::NoSource);
        let source = place(event, "source")?;
        let block = &event.fields()[source].schema;
        Ok(Self {
            source,
            schema: place(block, "schema")?,
            table: place(block, "table")?,
            chunk: None,
        })
    }

    /// Whether it is known where changes of a table go.
    fn knows(&self, schema: &str, table: &str, catalog: &Catalog) -> bool {
        self.chunk.as_ref().is_some_and(|chunk| {
            let holds = match chunk.place {
                Destination::Route(_) => true,
                Destination::Nowhere(since) => catalog.holds(since),
            };
            holds && chunk.generation == catalog.generation && chunk.id.schema == schema && chunk.id.name == table
        })
    }
}

impl Catalog {
    /// Finds where changes of a table go. If that is not known yet, returns the wait. `before` is what was known about the table.
    fn find(
        &mut self,
        id: &TableId,
        before: Option<Chunk>,
        prefix: &str,
    ) -> Result<Result<Destination, Wait>, Unroutable> {
        let mut is_new = false;
        if let Some(reading) = self.reading.take() {
            if reading.found().is_none() {
                let wait = reading.wait().clone();
                self.reading = Some(reading);
                return Ok(Err(wait));
            }
            self.take(reading);
            is_new = true;
        }
        if let Some(route) = self.route(id, prefix) {
            return Ok(Ok(Destination::Route(route)));
        }
        if is_new {
            return Ok(Ok(Destination::Nowhere(self.clock())));
        }
        // Another table has had the catalog read again; that this one is no chunk was seen a moment ago.
        if let Some(Chunk { id: known, place, .. }) = before
            && known == *id
            && let Destination::Nowhere(since) = place
            && self.holds(since)
        {
            return Ok(Ok(place));
        }
        let reading = self.reader.as_ref().ok_or(Unroutable::NoReader)?.read();
        if reading.found().is_none() {
            let wait = reading.wait().clone();
            self.reading = Some(reading);
            return Ok(Err(wait));
        }
        self.take(reading);
        Ok(Ok(match self.route(id, prefix) {
            Some(route) => Destination::Route(route),
            None => Destination::Nowhere(self.clock()),
        }))
    }

    fn clock(&self) -> Duration {
        self.reader.as_ref().map_or(Duration::ZERO, |reader| reader.clock())
    }

    /// Whether the result of a check at `since` that a table is not a chunk is still valid.
    fn holds(&self, since: Duration) -> bool {
        self.clock().saturating_sub(since) < NO_CHUNK_HOLDS
    }

    fn take(&mut self, reading: Arc<Reading>) {
        self.known = Some(reading);
        self.generation += 1;
    }

    fn route(&self, id: &TableId, prefix: &str) -> Option<Route> {
        let known = self.known.as_ref()?.found()?;
        let hypertable = known.chunks.get(id)?;
        let aggregate = known.aggregates.get(hypertable);
        let target = aggregate.unwrap_or(hypertable).clone();
        Some(Route {
            topic: format!("{prefix}.{target}"),
            materialized: aggregate.map(|_| hypertable.clone()),
            target,
        })
    }
}

/// The event with another table in its source block.
fn renamed<'a>(event: Value<'a>, plan: &Plan, target: &'a TableId) -> Value<'a> {
    let Value::Struct(event) = event else { return event };
    let schema = event.schema().clone();
    let mut values = event.into_values();
    let source = &mut values[plan.source];
    if let Value::Struct(block) = take(source) {
        let schema = block.schema().clone();
        let mut names = block.into_values();
        names[plan.schema] = Value::str(&target.schema);
        names[plan.table] = Value::str(&target.name);
        *source = Value::Struct(Struct::new(schema, names));
    }
    Value::Struct(Struct::new(schema, values))
}

#[cfg(test)]
mod tests;
