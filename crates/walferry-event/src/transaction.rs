//! Transaction metadata: the block in records, and the records that mark the beginning and the end of a transaction.

use std::collections::HashMap;
use std::sync::Arc;

use walferry_pgoutput::Xid;
use walferry_record::java::hash;
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};

use crate::settings::EventSettings;
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

/// The counters of the stream's current transaction, and its records.
#[derive(Debug)]
pub struct TransactionMetadata {
    topic: String,
    schemas: Schemas,
    current: Option<Xid>,
    total: i64,
    tables: Vec<(Arc<str>, i64)>,
    /// The index of each table in `tables`.
    places: HashMap<Arc<str>, usize>,
    /// The index that was counted last. Usually it is also the next one.
    last: usize,
    /// The counted tables that [`counted`](Self::counted) has not returned yet, with their orders.
    counted: Vec<(Arc<str>, i64)>,
    /// The size of the `HashMap` in which Debezium counts tables. It never shrinks, and it decides the order of the
    /// tables.
    capacity: usize,
}

#[derive(Debug)]
struct Schemas {
    key: SchemaRef,
    value: SchemaRef,
    table: SchemaRef,
    block: SchemaRef,
}

/// The name under which logical decoding messages are counted.
pub(crate) const MESSAGES: &str = "LOGICAL_DECODING_MESSAGE";

impl TransactionMetadata {
    /// Starts outside a transaction.
    pub fn new(settings: &EventSettings) -> Self {
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

    /// Begins a transaction. It is also called before a change whose transaction was ended by a message outside it.
    pub fn begin(&mut self, context: &Context<'_>) -> Option<Record<'static>> {
        let xid = context.xid?;
        if self.current == Some(xid) {
            return None;
        }
        self.clear();
        self.current = Some(xid);
        Some(self.record("BEGIN", xid, context))
    }

    /// Ends the transaction, because of its commit, or because a message outside it comes in between.
    pub fn end(&mut self, context: &Context<'_>) -> Option<Record<'static>> {
        let xid = self.current?;
        let record = self.record("END", xid, context);
        self.clear();
        Some(record)
    }

    /// The tables whose records were counted since the last call. Each comes with the number of its records in the
    /// transaction so far, which the source offset stores as `transaction_data_collection_order_<schema.table>`.
    pub fn counted(&mut self) -> impl Iterator<Item = (Arc<str>, i64)> {
        self.counted.drain(..)
    }

    /// Counts a record of a table and returns its block.
    pub(crate) fn count(&mut self, table: &str, context: &Context<'_>) -> Value<'static> {
        let Some(xid) = context.xid else {
            return Value::Null;
        };
        self.total += 1;
        let place = self.place(table);
        let (name, count) = &mut self.tables[place];
        *count += 1;
        self.counted.push((name.clone(), *count));
        // For Debezium, every message is a collection of its own.
        let order = if table == MESSAGES { 1 } else { *count };
        let values = vec![
            Value::string(id(xid, context)),
            Value::Int64(self.total),
            Value::Int64(order),
        ];
        Value::Struct(Struct::new(self.schemas.block.clone(), values))
    }

    /// The index of a table. The table is added at its first record in the transaction.
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
        // Frees the memory of a transaction with very many tables.
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
        let typed = |schema: &SchemaRef, values| {
            SchemaAndValue::new(schema.clone(), Value::Struct(Struct::new(schema.clone(), values)))
        };
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
        let mut tables: Vec<_> = self.tables.iter().collect();
        hash::sort(&mut tables, self.capacity, |(table, _)| hash::of_text(table));
        let tables = tables.into_iter().map(|(table, count)| {
            let values = vec![Value::string(table.to_string()), Value::Int64(*count)];
            Value::Struct(Struct::new(self.schemas.table.clone(), values))
        });
        Value::Array(tables.collect())
    }
}

/// The transaction id with the position of the present record. So each record of a transaction has another id.
fn id(xid: Xid, context: &Context<'_>) -> String {
    format!("{xid}:{}", context.lsn.map_or(0, |lsn| lsn.0))
}
