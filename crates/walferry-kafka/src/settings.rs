//! The settings of a connector's producer.

use std::collections::BTreeMap;

use rdkafka::{ClientConfig, config::RDKafkaLogLevel};

/// Everything that a producer needs to know.
#[derive(Clone)]
pub struct Settings {
    /// Where the first connection goes.
    pub(crate) bootstrap_servers: String,
    /// librdkafka's properties.
    pub(crate) client: BTreeMap<String, String>,
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Names only: any value may be a secret.
        f.debug_struct("Settings")
            .field("bootstrap_servers", &self.bootstrap_servers)
            .field("client", &self.client.keys())
            .finish_non_exhaustive()
    }
}

/// What differs from librdkafka's defaults, so that a producer does what Connect's does.
const DEFAULTS: &[(&str, &str)] = &[
    ("acks", "all"),
    ("enable.idempotence", "true"),
    // Nothing is dropped from the queue by age, as with Connect's delivery.timeout.ms.
    ("message.timeout.ms", "0"),
    // Java's partitions; records without a key go anywhere.
    ("partitioner", "murmur2_random"),
    ("message.max.bytes", "1048576"),
    // The engine bounds what is under way.
    ("queue.buffering.max.kbytes", "2147483647"),
    ("queue.buffering.max.messages", "2147483647"),
    ("linger.ms", "1"),
    ("compression.type", "none"),
];

impl Settings {
    /// The defaults, for a connector's name and a cluster.
    pub fn new(connector: &str, bootstrap_servers: &str) -> Self {
        let mut client: BTreeMap<_, _> = DEFAULTS.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        client.insert("client.id".into(), format!("connector-producer-{connector}-0"));
        client.insert("bootstrap.servers".into(), bootstrap_servers.to_owned());
        Self {
            bootstrap_servers: bootstrap_servers.to_owned(),
            client,
        }
    }

    /// Sets one of librdkafka's properties.
    pub fn set(&mut self, name: &str, value: &str) {
        self.client.insert(name.to_owned(), value.to_owned());
    }

    /// librdkafka's properties. Values may be secrets.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.client.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn client_config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.client {
            config.set(name, value);
        }
        config.set_log_level(RDKafkaLogLevel::Info);
        config
    }
}
