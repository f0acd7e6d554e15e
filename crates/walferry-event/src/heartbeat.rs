//! Heartbeats.

use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};

use crate::settings::EventSettings;

/// The heartbeats of a connector.
#[derive(Debug)]
pub struct Heartbeat {
    topic: String,
    server: String,
    key: SchemaRef,
    value: SchemaRef,
}

impl Heartbeat {
    /// Makes the heartbeats for these settings.
    pub fn new(settings: &EventSettings) -> Self {
        let name = |name: &str| settings.schema_name(&format!("io.debezium.connector.common.{name}"));
        let key = Schema::structure(vec![Field::new("serverName", Schema::string().build())]);
        let value = Schema::structure(vec![Field::new("ts_ms", Schema::int64().build())]);
        Self {
            topic: settings.heartbeat_topic(),
            server: settings.prefix().to_owned(),
            key: key.named(name("ServerNameKey")).version(1).build(),
            value: value.named(name("Heartbeat")).version(1).build(),
        }
    }

    /// Makes a heartbeat. It always goes to partition 0.
    pub fn record(&self, now_ms: i64) -> Record<'_> {
        let typed = |schema: &SchemaRef, value| {
            SchemaAndValue::new(schema.clone(), Value::Struct(Struct::new(schema.clone(), vec![value])))
        };
        Record {
            topic: self.topic.as_str().into(),
            partition: Some(0),
            timestamp_ms: None,
            key: typed(&self.key, Value::str(&self.server)),
            value: typed(&self.value, Value::Int64(now_ms)),
            headers: Vec::new(),
        }
    }
}
