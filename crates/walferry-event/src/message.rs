//! Logical decoding messages (`pg_logical_emit_message`).

use std::sync::Arc;

use walferry_config::connector::BinaryHandling;
use walferry_pgoutput::LogicalMessage;
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};

use crate::settings::EventSettings;
use crate::source::{self, Context};
use crate::transaction::{self, MESSAGES, TransactionMetadata};
use crate::types;

/// How messages become records.
#[derive(Debug)]
pub struct Messages {
    settings: Arc<EventSettings>,
    topic: String,
    source: SchemaRef,
    key: SchemaRef,
    block: SchemaRef,
    value: SchemaRef,
}

impl Messages {
    /// Makes the plan for messages from the settings.
    pub fn new(settings: &Arc<EventSettings>) -> Self {
        let name = |name: &str| settings.schema_name(&format!("io.debezium.connector.postgresql.{name}"));
        let prefix = || Field::new("prefix", Schema::string().optional().build());
        let content = match settings.events.binary {
            BinaryHandling::Bytes => Schema::bytes(),
            BinaryHandling::Base64 | BinaryHandling::Base64UrlSafe | BinaryHandling::Hex => Schema::string(),
        };
        let source = source::schema();
        let block = Schema::structure(vec![prefix(), Field::new("content", content.optional().build())]);
        let block = block.named(name("Message")).version(1).build();
        let value = Schema::structure(vec![
            Field::new("op", Schema::string().build()),
            Field::new("ts_ms", Schema::int64().optional().build()),
            Field::new("source", source.clone()),
            Field::new("transaction", transaction::block_schema()),
            Field::new("message", block.clone()),
        ]);
        Self {
            settings: settings.clone(),
            topic: settings.message_topic(),
            source,
            key: Schema::structure(vec![prefix()])
                .named(name("MessageKey"))
                .version(1)
                .build(),
            block,
            value: value.named(name("MessageValue")).version(1).build(),
        }
    }

    /// Makes the record of a message. `None` if its prefix is filtered out. If the message is outside a transaction,
    /// `context` has no transaction.
    pub fn record<'a>(
        &'a self,
        message: &LogicalMessage<'a>,
        context: &Context<'a>,
        transaction: Option<&mut TransactionMetadata>,
    ) -> Option<Record<'a>> {
        if !self.settings.filters.captures_message(message.prefix) {
            return None;
        }
        let content = types::encode(message.content.into(), self.settings.events.binary);
        let block = vec![Value::str(message.prefix), content];
        let values = vec![
            Value::str("m"),
            Value::Int64(context.processed_time_ns.div_euclid(1_000_000)),
            source::block(&self.source, &self.settings, ("", ""), context),
            transaction.map_or(Value::Null, |transaction| transaction.count(MESSAGES, context)),
            Value::Struct(Struct::new(self.block.clone(), block)),
        ];
        let key = Struct::new(self.key.clone(), vec![Value::str(message.prefix)]);
        Some(Record {
            topic: self.topic.as_str().into(),
            partition: None,
            timestamp_ms: None,
            key: SchemaAndValue::new(self.key.clone(), Value::Struct(key)),
            value: SchemaAndValue::new(
                self.value.clone(),
                Value::Struct(Struct::new(self.value.clone(), values)),
            ),
            headers: Vec::new(),
        })
    }
}
