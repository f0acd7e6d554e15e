//! Notifications: records that tell how far a snapshot is.

use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value, java::hash_map::HashMap};

/// The notifications of a connector. Their schemas keep their names whatever `schema.name.adjustment.mode` says, as in Debezium.
#[derive(Debug)]
pub struct Notifications {
    topic: String,
    key: SchemaRef,
    value: SchemaRef,
}

/// What a notification says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// The id of the signal that it belongs to, or one of its own.
    pub id: String,
    /// What it is about, such as `Incremental Snapshot`.
    pub aggregate: &'static str,
    /// What has happened, such as `STARTED`.
    pub kind: &'static str,
    /// Details in Debezium's order.
    pub data: Vec<(&'static str, String)>,
    /// When, milliseconds since 1970.
    pub time_ms: i64,
}

impl Notification {
    /// Puts the details into the order of Debezium's map, which is a copy of the details with the connector's name added.
    pub fn new(
        id: String,
        (aggregate, kind): (&'static str, &'static str),
        data: Vec<(&'static str, String)>,
        connector: &str,
        time_ms: i64,
    ) -> Self {
        let names: Vec<&'static str> = data.iter().map(|(name, _)| *name).chain(["connector_name"]).collect();
        let pairs = data
            .into_iter()
            .map(|(name, value)| (Value::str(name), Value::string(value)));
        let mut map = HashMap::copy_of(pairs.collect());
        map.put(Value::str("connector_name"), Value::string(connector.to_owned()));
        let Value::Map(pairs) = map.into_value() else {
            unreachable!("it is made of a map")
        };
        let pair = |(name, value): (Value<'_>, Value<'_>)| {
            let name = names.iter().find(|known| name.as_str() == Some(**known))?;
            Some((*name, value.as_str()?.to_owned()))
        };
        Self {
            id,
            aggregate,
            kind,
            data: pairs.into_iter().filter_map(pair).collect(),
            time_ms,
        }
    }
}

impl Notifications {
    /// Notifications to this topic.
    pub fn new(topic: &str) -> Self {
        let text = Schema::string().build();
        let fields = |names: &[(&'static str, &SchemaRef)]| {
            let fields = names.iter().map(|(name, schema)| Field::new(*name, (*schema).clone()));
            Schema::structure(fields.collect())
        };
        let data = Schema::map(text.clone(), text.clone()).optional().build();
        let time = Schema::int64().build();
        let value = fields(&[
            ("id", &text),
            ("type", &text),
            ("aggregate_type", &text),
            ("additional_data", &data),
            ("timestamp", &time),
        ]);
        Self {
            topic: topic.to_owned(),
            key: fields(&[("id", &text)])
                .named("io.debezium.connector.common.NotificationKey")
                .version(1)
                .build(),
            value: value
                .named("io.debezium.connector.common.Notification")
                .version(1)
                .build(),
        }
    }

    /// The record of a notification.
    pub fn record<'a>(&'a self, notification: &'a Notification) -> Record<'a> {
        let typed = |schema: &SchemaRef, values| {
            SchemaAndValue::new(schema.clone(), Value::Struct(Struct::new(schema.clone(), values)))
        };
        let data = notification
            .data
            .iter()
            .map(|(name, value)| (Value::str(name), Value::str(value)));
        let values = vec![
            Value::str(&notification.id),
            Value::str(notification.kind),
            Value::str(notification.aggregate),
            Value::Map(data.collect()),
            Value::Int64(notification.time_ms),
        ];
        Record {
            topic: self.topic.as_str().into(),
            partition: None,
            timestamp_ms: None,
            key: typed(&self.key, vec![Value::str(&notification.id)]),
            value: typed(&self.value, values),
            headers: Vec::new(),
        }
    }
}
