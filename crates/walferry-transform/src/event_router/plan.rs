//! What is worked out once for each version of a table.

use std::collections::HashSet;

use walferry_config::limited;
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaPlans, SchemaRef, Shape, Struct};

use super::choices::MissingColumn;
use super::column::Column;
use super::conformance::CheckedEvent;
use super::envelope::Envelope;
use super::error::Error;
use super::json_headers::JsonColumn;
use super::options::{self, RouterOptions};
use super::placement::ColumnTarget;
use super::timestamp::TimestampType;
use crate::DropReason;

/// The plan of each schema that was met; none for what passes.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables {
    plans: SchemaPlans<Option<Box<OutboxPlan>>>,
    /// Names of row schemas that were an outbox's.
    outboxes: HashSet<String>,
}

/// What EventRouter does with a row, by the envelope's `op`.
pub(super) enum Operation {
    /// A row was inserted, or read by a snapshot; or the operation is unknown.
    Route,
    /// Nothing to send.
    Drop(DropReason),
    /// A row was updated, which an outbox does not expect.
    Update,
}

/// How a row of an outbox becomes an event.
#[derive(Debug)]
pub(super) struct OutboxPlan {
    op: usize,
    pub(super) after: usize,
    ts_ms: Option<usize>,
    route: usize,
    /// The column of the event type, where topics or schemas go by it.
    event_type: Option<usize>,
    timestamp: Option<(usize, TimestampType)>,
    partition: Option<usize>,
    /// `id` first.
    pub(super) headers: Vec<(String, Column)>,
    pub(super) payload: Column,
    pub(super) envelope: Option<Envelope>,
    key: Column,
    /// Whether `walferry.key.columns` lists the columns of the key.
    key_is_listed: bool,
    /// Columns for the key where the ones before are NULL.
    further_keys: Vec<Column>,
    /// Columns whose members become headers.
    pub(super) json_headers: Vec<JsonColumn>,
}

impl Tables {
    /// A table is an outbox, by the name of its row schema. Its rows do not pass as those of another table, whatever columns they have.
    pub(super) fn expect(&mut self, table: String) {
        self.outboxes.insert(table);
    }

    /// The plan for a record whose value is not null; `None` for what passes: records that are no change events, and
    /// change events of tables that are no outbox.
    ///
    /// # Errors
    /// An outbox that lacks a configured column, or has one of a type that does not serve.
    pub(super) fn of(
        &mut self,
        record: &Record<'_>,
        settings: &RouterOptions,
    ) -> Result<Option<&mut OutboxPlan>, Error> {
        let Some(schema) = &record.value.schema else {
            return Ok(None);
        };
        let outboxes = &mut self.outboxes;
        let plan = self
            .plans
            .get_or_make(schema, |schema| make(schema, record, settings, outboxes))?;
        Ok(plan.as_deref_mut())
    }
}

/// The schema of what DecodeLogicalDecodingMessageContent makes of a message.
const DECODED_MESSAGE: &str = "io.debezium.connector.postgresql.MessageValue.Envelope";

fn make(
    schema: &Schema,
    record: &Record<'_>,
    settings: &RouterOptions,
    outboxes: &mut HashSet<String>,
) -> Result<Option<Box<OutboxPlan>>, Error> {
    if !schema.name.as_deref().is_some_and(|name| name.ends_with(".Envelope")) {
        return Ok(None);
    }
    let after = schema.field_index("after").ok_or(Error::Envelope("after"))?;
    let row = &*schema.fields()[after].schema;
    let table = row.name.as_deref().unwrap_or_default();
    // A decoded message is meant for this transform, whatever it lacks.
    if schema.is_named(DECODED_MESSAGE) {
        return Ok(Some(Box::new(OutboxPlan::new(schema, after, settings)?)));
    }
    // A plan is that of one relation, so its first record tells the table of all.
    let is_outbox = match &settings.tables {
        Some(tables) => match table_name(record) {
            Some(name) => limited(|| tables.matches(&name))?,
            None => return Err(Error::Envelope("source")),
        },
        None => settings
            .identifying()
            .all(|(column, _)| row.field_index(column).is_some()),
    };
    if !is_outbox {
        // Sending its rows as change events from now on would go unnoticed.
        return if outboxes.contains(table) {
            Err(Error::NoLongerOutbox {
                table: table.to_owned(),
                missing: settings
                    .identifying()
                    .filter(|(column, _)| row.field_index(column).is_none())
                    .map(|(column, option)| (column.clone(), option))
                    .collect(),
            })
        } else {
            Ok(None)
        };
    }
    let plan = OutboxPlan::new(schema, after, settings)?;
    outboxes.insert(table.to_owned());
    Ok(Some(Box::new(plan)))
}

/// The table of a change event, as `schema.table`.
fn table_name(record: &Record<'_>) -> Option<String> {
    let event = record.value.value.as_struct()?;
    let source = event.values()[event.schema().field_index("source")?].as_struct()?;
    let text = |field: &str| source.values()[source.schema().field_index(field)?].as_str();
    Some(format!("{}.{}", text("schema")?, text("table")?))
}

impl OutboxPlan {
    fn new(schema: &Schema, after: usize, settings: &RouterOptions) -> Result<Self, Error> {
        let columns = Columns {
            row: &schema.fields()[after].schema,
        };
        let op = schema.field_index("op").ok_or(Error::Envelope("op"))?;
        let event_type = match &settings.event_type {
            Some(column) => Some(columns.text(column, options::TYPE.name())?),
            None => None,
        };
        let route = match event_type {
            Some(event_type) if !settings.uses_route() => event_type,
            _ => columns.text(&settings.route_by, options::ROUTE_BY_FIELD.name())?,
        };
        let mut json_headers = Vec::new();
        for name in &settings.headers_from {
            json_headers.push(JsonColumn::new(name, columns.text(name, options::HEADERS_FROM.name())?));
        }
        let mut further_keys = Vec::new();
        for name in &settings.further_keys {
            further_keys.push(columns.part(name, settings.key_option)?);
        }
        let timestamp = match &settings.timestamp {
            Some(column) => Some(columns.timestamp(column)?),
            None => None,
        };
        let mut headers = vec![("id".to_owned(), columns.part(&settings.id, options::ID.name())?)];
        let mut envelope = Vec::new();
        let mut partition = None;
        for placement in &settings.placements {
            if settings.missing == MissingColumn::Ignore && columns.row.field_index(&placement.column).is_none() {
                continue;
            }
            let column = columns.part(&placement.column, options::PLACEMENT.name())?;
            match &placement.target {
                ColumnTarget::Header(name) => headers.push((name.clone(), column)),
                ColumnTarget::Envelope(name) => {
                    envelope.push((Field::new(name.as_str(), column.schema.clone()), column))
                }
                ColumnTarget::Partition => {
                    columns.check(column.index, options::PLACEMENT.name(), "int4", is_integer)?;
                    partition = Some(column.index);
                }
            }
        }
        let envelope = match settings.has_envelope() {
            true => Some(Envelope::new(columns.row, envelope, route, columns.version(settings)?)),
            false => None,
        };
        let mut plan = Self {
            op,
            after,
            ts_ms: schema.field_index("ts_ms"),
            route,
            event_type,
            timestamp,
            partition,
            headers,
            payload: columns.part(&settings.payload, options::PAYLOAD.name())?,
            envelope,
            key: columns.part(&settings.key, settings.key_option)?,
            key_is_listed: settings.key_option == options::KEY_COLUMNS.name(),
            further_keys,
            json_headers,
        };
        plan.mark_last_uses();
        Ok(plan)
    }

    /// In the order in which `EventRouter::apply` takes the values, backwards.
    fn mark_last_uses(&mut self) {
        let mut used = HashSet::new();
        // The envelope's schema name and version are looked up when the headers are filled already.
        used.extend(self.envelope.iter().flat_map(Envelope::looks_at));
        used.extend(self.json_headers.iter().map(|column| column.index));
        let envelope = self.envelope.iter_mut().flat_map(Envelope::columns_mut);
        let headers = self.headers.iter_mut().map(|(_, column)| column);
        let order = headers
            .chain([&mut self.payload])
            .chain(envelope)
            .chain([&mut self.key])
            .chain(&mut self.further_keys);
        for column in order.collect::<Vec<_>>().into_iter().rev() {
            column.is_last_use = used.insert(column.index);
        }
    }

    /// What the envelope says has happened to the row. As in Debezium, any other text routes the row, if there is one: HeaderToValue
    /// may have put it there.
    pub(super) fn operation(&self, event: &Struct<'_>) -> Result<Operation, Error> {
        match event.get_at(self.op).as_str() {
            Some("d") => Ok(Operation::Drop(DropReason::Delete)),
            Some("u") => Ok(Operation::Update),
            Some("t") if event.get_at(self.after).is_null() => Ok(Operation::Drop(DropReason::Truncate)),
            Some(_) => Ok(Operation::Route),
            None => Err(Error::Envelope("op")),
        }
    }

    /// When the change was processed, in milliseconds since 1970.
    pub(super) fn processed_ms(&self, event: &Struct<'_>) -> Option<i64> {
        event.values()[self.ts_ms?].as_integer()
    }

    /// The value that the topic is made from. A default does not stand in for NULL here: Connect's typed getters know none.
    pub(super) fn route<'r>(&self, row: &'r Struct<'_>) -> Result<&'r str, Error> {
        row.values()[self.route].as_str().ok_or_else(|| Error::NullRoute {
            column: column_name(row, self.route),
        })
    }

    /// The type of the event; `None` for NULL.
    pub(super) fn event_type<'r>(&self, row: &'r Struct<'_>) -> Option<&'r str> {
        row.values()[self.event_type?].as_str()
    }

    /// What is checked against the event's schema; `None` for a payload that is NULL. Where the column has a default, that is sent in place of
    /// NULL, and so it is checked.
    pub(super) fn event<'r, 'a>(&self, row: &'r Struct<'a>) -> Option<CheckedEvent<'r, 'a>> {
        let payload = row.get_at(self.payload.index);
        (!payload.is_null()).then(|| CheckedEvent {
            event_type: self.event_type(row),
            id: &row.values()[self.headers[0].1.index],
            payload,
            column: &row.schema().fields()[self.payload.index],
        })
    }

    /// The column of the key; of a list, the first that is not NULL, and no key where every one is.
    pub(super) fn take_key<'a>(&self, row: &mut Struct<'a>) -> SchemaAndValue<'a> {
        let is_null = |column: &Column| row.values()[column.index].is_null();
        if !self.key_is_listed || !is_null(&self.key) {
            return self.key.take(row);
        }
        match self.further_keys.iter().find(|column| !is_null(column)) {
            Some(column) => column.take(row),
            // Not the default of a column, which would stand in for NULL.
            None => SchemaAndValue::NULL,
        }
    }

    /// The timestamp column in milliseconds since 1970; `None` for NULL and where no column is configured.
    pub(super) fn timestamp_ms(&self, row: &Struct<'_>) -> Result<Option<i64>, Error> {
        let Some((index, kind)) = self.timestamp else {
            return Ok(None);
        };
        let value = &row.values()[index];
        if value.is_null() {
            return Ok(None);
        }
        match kind.milliseconds(value) {
            // Kafka's producer refuses negative timestamps.
            Some(ms) if ms >= 0 => Ok(Some(ms)),
            _ => Err(Error::Timestamp {
                column: column_name(row, index),
            }),
        }
    }

    /// The partition column; `None` for NULL, which leaves the choice to the partitioner.
    pub(super) fn partition(&self, row: &Struct<'_>) -> Result<Option<i32>, Error> {
        let Some(index) = self.partition else {
            return Ok(None);
        };
        let Some(value) = row.values()[index].as_integer() else {
            return Ok(None);
        };
        match i32::try_from(value) {
            Ok(partition) if partition >= 0 => Ok(Some(partition)),
            _ => Err(Error::Partition {
                column: column_name(row, index),
                value,
            }),
        }
    }
}

/// The columns of one version of an outbox table.
struct Columns<'s> {
    row: &'s SchemaRef,
}

impl Columns<'_> {
    fn find(&self, column: &str, option: &'static str) -> Result<usize, Error> {
        self.row.field_index(column).ok_or_else(|| Error::MissingColumn {
            table: self.row.name.as_deref().unwrap_or_default().to_owned(),
            column: column.to_owned(),
            option,
        })
    }

    fn text(&self, column: &str, option: &'static str) -> Result<usize, Error> {
        let index = self.find(column, option)?;
        self.check(index, option, "string", |shape| *shape == Shape::String)?;
        Ok(index)
    }

    fn part(&self, column: &str, option: &'static str) -> Result<Column, Error> {
        let index = self.find(column, option)?;
        Ok(Column {
            index,
            schema: self.row.fields()[index].schema.clone(),
            is_last_use: false,
        })
    }

    fn timestamp(&self, column: &str) -> Result<(usize, TimestampType), Error> {
        let option = options::TIMESTAMP.name();
        let index = self.find(column, option)?;
        match TimestampType::of(&self.row.fields()[index].schema) {
            Some(kind) => Ok((index, kind)),
            None => Err(self.wrong_type(index, option, "timestamp, timestamptz or bigint")),
        }
    }

    fn version(&self, settings: &RouterOptions) -> Result<Option<usize>, Error> {
        let Some(column) = &settings.schema_version else {
            return Ok(None);
        };
        let option = options::SCHEMA_VERSION.name();
        let index = self.find(column, option)?;
        self.check(index, option, "int4", is_integer)?;
        Ok(Some(index))
    }

    fn check(
        &self,
        index: usize,
        option: &'static str,
        expected: &'static str,
        serves: impl Fn(&Shape) -> bool,
    ) -> Result<(), Error> {
        if serves(&self.row.fields()[index].schema.shape) {
            Ok(())
        } else {
            Err(self.wrong_type(index, option, expected))
        }
    }

    fn wrong_type(&self, index: usize, option: &'static str, expected: &'static str) -> Error {
        let Field { name, schema } = &self.row.fields()[index];
        Error::ColumnType {
            column: name.to_string(),
            option,
            found: match &schema.name {
                Some(semantic) => format!("{} ({semantic})", schema.type_name()),
                None => schema.type_name().to_owned(),
            },
            expected,
        }
    }
}

fn is_integer(shape: &Shape) -> bool {
    matches!(shape, Shape::Int8 | Shape::Int16 | Shape::Int32 | Shape::Int64)
}

fn column_name(row: &Struct<'_>, index: usize) -> String {
    row.schema().fields()[index].name.to_string()
}
