//! The settings of a connector's Kafka clients.

use rdkafka::{
    ClientConfig, admin::AdminClient, client::DefaultClientContext, config::RDKafkaLogLevel, error::KafkaError,
};
use tracing::debug;
use walferry_config::{
    Connector, Findings, Worker,
    connector::{ErrorSection, Plugins, Tolerance, TopicCreation},
};

use crate::{
    auth::tokens::LoggedIn,
    client::{self, Properties},
};

/// Everything that the Kafka clients of a connector need to know.
#[derive(Clone)]
pub struct ClientSettings {
    pub(crate) producer: Properties,
    pub(crate) admin: Properties,
    /// `None` leaves missing topics to the broker.
    pub(crate) topic_creation: Option<TopicCreation>,
    pub(crate) set_aside: SetAside,
    pub(crate) connector: String,
}

/// What becomes of a record that Kafka refuses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum SetAside {
    /// The connector stops.
    #[default]
    No,
    /// It is dropped, and said aloud.
    Drop,
    /// It goes to this topic.
    Topic {
        name: String,
        replication_factor: Option<i32>,
    },
}

/// A default that differs from librdkafka's.
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) value: &'static str,
    pub(crate) why: &'static str,
}

const fn preset(name: &'static str, value: &'static str, why: &'static str) -> Preset {
    Preset { name, value, why }
}

pub(crate) const DEFAULTS: &[Preset] = &[
    preset(
        "message.timeout.ms",
        "0",
        "no record is dropped because of its age, as with Connect's `delivery.timeout.ms`",
    ),
    preset("partitioner", "murmur2_random", "Java's partitions"),
    preset("message.max.bytes", "1048576", "Java's `max.request.size`"),
    preset(
        "batch.size",
        "131072",
        "larger batches bring no benefit; smaller ones fit into topics with a small `max.message.bytes`",
    ),
    preset("linger.ms", "1", "Java's is 5"),
    preset(
        "queue.buffering.max.kbytes",
        "2147483647",
        "`walferry.in.flight.max.bytes` limits the bytes in flight",
    ),
    preset("queue.buffering.max.messages", "2147483647", "as above"),
    preset(
        "topic.metadata.propagation.max.ms",
        "3600000",
        "Walferry waits for a topic that does not exist, as Connect does",
    ),
    preset(
        "connections.max.idle.ms",
        "540000",
        "as in Java's client: before the broker closes an idle connection",
    ),
    preset("reconnect.backoff.ms", "50", "Java's"),
    preset(
        "reconnect.backoff.max.ms",
        "1000",
        "as in Java's client: a broker that is back is found soon",
    ),
    preset("enable.metrics.push", "false", "metrics are at /metrics"),
];

/// How long a transaction may last, as in Java's client.
const TRANSACTION_TIMEOUT_MS: &str = "60000";

impl ClientSettings {
    /// Reads what worker and connector say. There are settings unless something is a problem.
    pub fn read(worker: &Worker, connector: &Connector, bootstrap_servers: &str) -> (Option<Self>, Findings) {
        let (mut settings, findings) = Self::of_clients(worker, &connector.plugins);
        settings.name(&connector.name, bootstrap_servers);
        settings.topic_creation.clone_from(&connector.topic_creation);
        settings.set_aside = SetAside::from(&connector.errors);
        ((!findings.has_problems()).then_some(settings), findings)
    }

    /// What is to be told of the client properties alone, for the report of all problems at once.
    pub fn check(worker: &Worker, plugins: &Plugins) -> Findings {
        Self::of_clients(worker, plugins).1
    }

    /// The defaults, for a connector's name and a cluster.
    pub fn new(connector: &str, bootstrap_servers: &str) -> Self {
        let (mut settings, _) = Self::of_clients(&Worker::default(), &Plugins::default());
        settings.name(connector, bootstrap_servers);
        settings
    }

    fn of_clients(worker: &Worker, plugins: &Plugins) -> (Self, Findings) {
        let defaults: Vec<_> = DEFAULTS.iter().map(|default| (default.name, default.value)).collect();
        let (producer, mut findings) = client::producer(&defaults, worker, &plugins.producer_overrides);
        let (admin, more) = client::admin(worker, &plugins.admin_overrides, &producer);
        findings.extend(more);
        let settings = Self {
            producer,
            admin,
            topic_creation: None,
            set_aside: SetAside::No,
            connector: String::new(),
        };
        (settings, findings)
    }

    /// Fills in what users seldom say themselves.
    fn name(&mut self, connector: &str, bootstrap_servers: &str) {
        self.connector = connector.to_owned();
        for (client, role) in [(&mut self.producer, "producer"), (&mut self.admin, "adminclient")] {
            let values = &mut client.values;
            values
                .entry("bootstrap.servers".into())
                .or_insert_with(|| bootstrap_servers.to_owned());
            values
                .entry("client.id".into())
                .or_insert_with(|| format!("connector-{role}-{connector}-0"));
        }
    }

    /// Sets one of librdkafka's properties of the producer.
    pub fn set(&mut self, name: &str, value: &str) {
        self.producer.values.insert(name.to_owned(), value.to_owned());
    }

    /// librdkafka's properties of the producer. Values may be secrets.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.producer
            .values
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// What a producer is made with.
    pub(crate) fn producer_properties(&self) -> Properties {
        let mut properties = self.producer.clone();
        let mut preset = |name: &str, value: &str| {
            properties
                .values
                .entry(name.to_owned())
                .or_insert_with(|| value.to_owned());
        };
        if self.topic_creation.is_some() {
            // Else a broker might create a topic in its own way before the rules do.
            preset("allow.auto.create.topics", "false");
        }
        if self.is_idempotent() {
            // What follows a refused record must not arrive before it and its neighbours have been dealt with.
            preset("enable.gapless.guarantee", "true");
        }
        properties
    }

    /// What a producer that sends in transactions is made with. As in Connect, some settings are not left to users.
    pub(crate) fn transactional_properties(&self, id: &str) -> Properties {
        let mut properties = self.producer_properties();
        let values = &mut properties.values;
        let timeout = values
            .entry("transaction.timeout.ms".to_owned())
            .or_insert_with(|| TRANSACTION_TIMEOUT_MS.to_owned())
            .clone();
        // A record that fails is to end only the transaction, not the producer.
        values.remove("enable.gapless.guarantee");
        values.retain(|name, _| name != "request.required.acks");
        for (name, value) in [
            ("transactional.id", id),
            ("enable.idempotence", "true"),
            ("acks", "all"),
            // No record can wait for longer than its transaction may last. Then it is sent again, in another one.
            ("message.timeout.ms", &timeout),
        ] {
            values.insert(name.to_owned(), value.to_owned());
        }
        // Java's client takes a longer one, librdkafka does not.
        let most: u64 = timeout.parse().unwrap_or(u64::MAX);
        if let Some(patience) = values.get_mut("socket.timeout.ms")
            && patience.parse().is_ok_and(|ms: u64| ms > most)
        {
            *patience = timeout;
        }
        properties
    }

    /// Has the producer give up records that it was given so long ago, and sends none of them later, not even after its process was stopped for a
    /// while.
    #[must_use]
    pub fn giving_up_after(mut self, limit: std::time::Duration) -> Self {
        let limit = limit.as_millis();
        let timeout = self.producer.values.entry("message.timeout.ms".to_owned()).or_default();
        // Zero is no limit.
        if !timeout.parse().is_ok_and(|ms: u128| (1..limit).contains(&ms)) {
            *timeout = limit.to_string();
        }
        self
    }

    /// How long a transaction may last before Kafka aborts it.
    pub fn transaction_timeout(&self) -> std::time::Duration {
        let given = self.producer.values.get("transaction.timeout.ms").map(String::as_str);
        let ms = given.unwrap_or(TRANSACTION_TIMEOUT_MS).parse();
        std::time::Duration::from_millis(ms.unwrap_or(60_000))
    }

    /// Whether a record counts as delivered only when a broker has it: not with `acks=0`.
    pub fn waits_for_brokers(&self) -> bool {
        self.producer.values.get("acks").is_none_or(|acks| acks != "0")
    }

    /// Whether brokers check that no batch of the producer is missing.
    pub(crate) fn is_idempotent(&self) -> bool {
        self.producer
            .values
            .get("enable.idempotence")
            .is_some_and(|on| on == "true")
    }

    /// Whether the key of a record decides its partition.
    pub(crate) fn hashes_keys(&self) -> bool {
        let partitioner = self.producer.values.get("partitioner");
        partitioner.is_some_and(|name| name == "murmur2_random")
    }

    /// Settings that weaken a guarantee, to be shown as long as they are in force.
    pub fn warnings(&self) -> &[String] {
        &self.producer.warnings
    }

    /// Where the producer's first connections go.
    pub fn bootstrap_servers(&self) -> &str {
        self.producer.values.get("bootstrap.servers").map_or("", String::as_str)
    }
}

impl Properties {
    pub(crate) fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (name, value) in &self.values {
            config.set(name, value);
        }
        config.set_log_level(RDKafkaLogLevel::Info);
        config
    }
}

impl Properties {
    /// A client for topics and settings. If it needs a token, it waits for its first one; without one, its requests end after their time.
    pub(crate) fn admin(&self) -> Result<LoggedIn<AdminClient<DefaultClientContext>>, KafkaError> {
        let admin: AdminClient<DefaultClientContext> = self.config().create()?;
        let admin = LoggedIn::new(admin, self);
        if let Err(failure) = admin.ready() {
            debug!("{failure}");
        }
        Ok(admin)
    }
}

impl From<&ErrorSection> for SetAside {
    fn from(errors: &ErrorSection) -> Self {
        match (errors.tolerance, &errors.dead_letter_topic) {
            (Tolerance::None, _) => Self::No,
            (Tolerance::All, None) => Self::Drop,
            (Tolerance::All, Some(topic)) => Self::Topic {
                name: topic.to_string(),
                replication_factor: errors.dead_letter_replication_factor,
            },
        }
    }
}

/// Names only: any value may be a secret.
impl std::fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("producer", &self.producer.values.keys())
            .field("admin", &self.admin.values.keys())
            .field("topic_creation", &self.topic_creation)
            .field("set_aside", &self.set_aside)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise records behind a batch that is refused may arrive before its own are sent again.
    #[test]
    fn nothing_arrives_before_a_refused_record_is_dealt_with_whatever_is_tolerated() {
        let topic = SetAside::Topic {
            name: "dead".into(),
            replication_factor: None,
        };
        for set_aside in [SetAside::No, SetAside::Drop, topic] {
            let mut settings = ClientSettings::new("shop", "localhost:9092");
            settings.set_aside = set_aside;
            let properties = settings.producer_properties();
            let is_gapless = properties.values.get("enable.gapless.guarantee").map(String::as_str);
            assert_eq!(is_gapless, Some("true"), "{:?}", settings.set_aside);
        }
    }

    #[test]
    fn records_are_given_up_after_the_shorter_of_two_limits() {
        for (set, expected) in [("0", "3500"), ("120000", "3500"), ("2000", "2000")] {
            let mut settings = ClientSettings::new("shop", "localhost:9092");
            let values = &mut settings.producer.values;
            values.insert("message.timeout.ms".into(), set.into());
            let settings = settings.giving_up_after(std::time::Duration::from_millis(3500));
            assert_eq!(settings.producer.values["message.timeout.ms"], expected);
        }
    }
}
