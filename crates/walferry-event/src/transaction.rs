//! Transaction metadata: the block in records, and the records that mark where a transaction begins and ends.

use std::collections::HashMap;
use std::sync::Arc;

use walferry_pgoutput::Xid;
use walferry_record::{Field, Record, Schema, SchemaRef, Struct, Typed, Value};

use crate::java::{hash_map_order, string_hash};
use crate::settings::Settings;
use crate::source::Context;

/// Schema of the `transaction` block in envelopes.
pub(crate) fn block_schema() -> SchemaRef {
    let fields = vec![
        Field::new("id", Schema::string().build()),
        Field::new("total_order", Schema::int64().build()),
        Field::new("data_collection_order", Schema::int64().build()),
    ];
    Schema::structure(fields)
        .optional()
        .named("event.block")
        .version(1)
        .build()
}

/// The counters of the transaction that the stream is in, and its records.
#[derive(Debug)]
pub struct Transaction {
    topic: String,
    schemas: Schemas,
    current: Option<Xid>,
    total: i64,
    tables: Vec<(Arc<str>, i64)>,
    /// Where a table stands among them.
    places: HashMap<Arc<str>, usize>,
    /// The place that was counted last: as a rule also the next.
    last: usize,
    /// The tables of records that were counted and not asked for yet, with their orders.
    counted: Vec<(Arc<str>, i64)>,
    /// Size of the `HashMap` that Debezium counts tables in; it never shrinks, and decides the order of the tables.
    capacity: usize,
}

#[derive(Debug)]
struct Schemas {
    key: SchemaRef,
    value: SchemaRef,
    table: SchemaRef,
    block: SchemaRef,
}

/// What logical decoding messages are counted as.
pub(crate) const MESSAGES: &str = "LOGICAL_DECODING_MESSAGE";

impl Transaction {
    /// No transaction.
    pub fn new(settings: &Settings) -> Self {
        let name = |name: &str| settings.schema_name(&format!("io.debezium.connector.common.{name}"));
        let text = Schema::string().build();
        let long = Schema::int64().build();
        let table = Schema::structure(vec![
            Field::new("data_collection", text.clone()),
            Field::new("event_count", long.clone()),
        ]);
        let table = table.optional().named("event.collection").version(1).build();
        let key = Schema::structure(vec![Field::new("id", text.clone())]);
        let value = Schema::structure(vec![
            Field::new("status", text.clone()),
            Field::new("id", text),
            Field::new("event_count", Schema::int64().optional().build()),
            Field::new("data_collections", Schema::array(table.clone()).optional().build()),
            Field::new("ts_ms", long),
        ]);
        Self {
            topic: settings.transaction_topic(),
            schemas: Schemas {
                key: key.named(name("TransactionMetadataKey")).version(1).build(),
                value: value.named(name("TransactionMetadataValue")).version(1).build(),
                table,
                block: block_schema(),
            },
            current: None,
            total: 0,
            tables: Vec::new(),
            places: HashMap::new(),
            last: 0,
            counted: Vec::new(),
            capacity: 16,
        }
    }

    /// A transaction begins; also before a change whose transaction a message outside of it has ended.
    pub fn begin(&mut self, context: &Context<'_>) -> Option<Record<'static>> {
        let xid = context.xid?;
        if self.current == Some(xid) {
            return None;
        }
        self.clear();
        self.current = Some(xid);
        Some(self.record("BEGIN", xid, context))
    }

    /// The transaction ends: by its commit, or because a message outside of it comes in between.
    pub fn end(&mut self, context: &Context<'_>) -> Option<Record<'static>> {
        let xid = self.current?;
        let record = self.record("END", xid, context);
        self.clear();
        Some(record)
    }

    /// The tables of the records that were counted since this was asked for last, each with how many of its records the
    /// transaction has so far: what the source offset keeps (`transaction_data_collection_order_<schema.table>`).
    pub fn counted(&mut self) -> impl Iterator<Item = (Arc<str>, i64)> {
        self.counted.drain(..)
    }

    /// The block of the next record of a table.
    pub(crate) fn count(&mut self, table: &str, context: &Context<'_>) -> Value<'static> {
        let Some(xid) = context.xid else {
            return Value::Null;
        };
        self.total += 1;
        let place = self.place(table);
        let (name, count) = &mut self.tables[place];
        *count += 1;
        self.counted.push((name.clone(), *count));
        // To Debezium every message is a collection of its own.
        let order = if table == MESSAGES { 1 } else { *count };
        let values = vec![
            Value::string(id(xid, context)),
            Value::Int64(self.total),
            Value::Int64(order),
        ];
        Value::Struct(Struct::new(self.schemas.block.clone(), values))
    }

    /// Where a table stands in the transaction, from its first record on.
    fn place(&mut self, table: &str) -> usize {
        if self.tables.get(self.last).is_none_or(|(name, _)| **name != *table) {
            self.last = match self.places.get(table) {
                Some(&place) => place,
                None => self.add(table.into()),
            };
        }
        self.last
    }

    fn add(&mut self, table: Arc<str>) -> usize {
        let place = self.tables.len();
        self.tables.push((table.clone(), 0));
        self.places.insert(table, place);
        while self.tables.len() * 4 > self.capacity * 3 {
            self.capacity *= 2;
        }
        place
    }

    fn clear(&mut self) {
        self.current = None;
        self.total = 0;
        self.last = 0;
        // What a transaction of very many tables took is given back.
        self.tables = Vec::new();
        self.places = HashMap::new();
    }

    fn record(&self, status: &'static str, xid: Xid, context: &Context<'_>) -> Record<'static> {
        let id = id(xid, context);
        let (total, tables) = match status {
            "END" => (Value::Int64(self.total), self.tables()),
            _ => (Value::Null, Value::Null),
        };
        let values = vec![
            Value::str(status),
            Value::string(id.clone()),
            total,
            tables,
            Value::Int64(context.source_time_ns.div_euclid(1_000_000)),
        ];
        let typed =
            |schema: &SchemaRef, values| Typed::new(schema.clone(), Value::Struct(Struct::new(schema.clone(), values)));
        Record {
            topic: self.topic.clone().into(),
            partition: None,
            timestamp_ms: None,
            key: typed(&self.schemas.key, vec![Value::string(id)]),
            value: typed(&self.schemas.value, values),
            headers: Vec::new(),
        }
    }

    fn tables(&self) -> Value<'static> {
        let hashes: Vec<i32> = self.tables.iter().map(|(table, _)| string_hash(table)).collect();
        let order = hash_map_order(&hashes, self.capacity);
        let tables = order.into_iter().map(|place| {
            let (table, count) = &self.tables[place];
            let values = vec![Value::string(table.to_string()), Value::Int64(*count)];
            Value::Struct(Struct::new(self.schemas.table.clone(), values))
        });
        Value::Array(tables.collect())
    }
}

/// The transaction with the place of the record at hand: so each of its records has an id of its own.
fn id(xid: Xid, context: &Context<'_>) -> String {
    format!("{xid}:{}", context.lsn.map_or(0, |lsn| lsn.0))
}
