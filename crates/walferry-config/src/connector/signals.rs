//! Signals, incremental snapshots and notifications.

use std::time::Duration;

use crate::property::{Group, Property, Support};
use crate::reader::{Options, Reader};
use crate::value::{ByteCount, Value, ValueError};
use crate::{choices, properties};

/// Signals, incremental snapshots and notifications.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignalSection {
    /// `signal.data.collection`
    pub table: Option<SignalTable>,
    /// `signal.enabled.channels`
    pub channels: Vec<SignalChannel>,
    /// `signal.poll.interval.ms`
    pub poll_interval: Duration,
    /// `signal.file`
    pub file: String,
    /// How signals are read from Kafka.
    pub kafka: KafkaSignals,
    /// `incremental.snapshot.chunk.size`
    pub chunk_rows: u32,
    /// `incremental.snapshot.watermarking.strategy`
    pub watermarking: Watermarking,
    /// `walferry.snapshot.max.rows.per.second`
    pub max_rows_per_second: Option<u32>,
    /// `walferry.snapshot.max.lag.bytes`
    pub max_lag_bytes: Option<u64>,
    /// `read.only`
    pub read_only: bool,
    /// `notification.enabled.channels`
    pub notifications: Vec<NotificationChannel>,
    /// `notification.sink.topic.name`
    pub notification_topic: Option<String>,
}

impl SignalSection {
    /// Whether signals come this way.
    pub fn has(&self, channel: SignalChannel) -> bool {
        self.channels.contains(&channel)
    }

    /// Whether notifications go this way.
    pub fn notifies(&self, channel: NotificationChannel) -> bool {
        self.notifications.contains(&channel)
    }
}

/// How signals are read from Kafka.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KafkaSignals {
    /// `signal.kafka.topic`; `<topic.prefix>-signal` where there is none.
    pub topic: Option<String>,
    /// `signal.kafka.bootstrap.servers`; the worker's where there is none.
    pub bootstrap_servers: Option<String>,
    /// `signal.kafka.groupId`
    pub group: String,
    /// `signal.consumer.*`
    pub consumer: Options,
}

/// Names only: any value may be a secret.
impl std::fmt::Debug for KafkaSignals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KafkaSignals")
            .field("topic", &self.topic)
            .finish_non_exhaustive()
    }
}

/// A table that signals are written to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignalTable {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
}

impl SignalTable {
    /// Whether it is this table. Upper and lower case differ, as in Debezium.
    pub fn is(&self, schema: &str, table: &str) -> bool {
        self.schema == schema && self.name == table
    }

    /// `schema.table`.
    pub fn dotted(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}

choices! {
    /// Where signals come from.
    pub enum SignalChannel {
        /// The signal table.
        #[default]
        Source = "source",
        /// A topic.
        Kafka = "kafka",
        /// A file.
        File = "file",
        /// Requests to the admin endpoint, in the place of JMX.
        Jmx = "jmx",
    }
}

choices! {
    /// How the window of a chunk is closed.
    pub enum Watermarking {
        /// By a row of its own.
        #[default]
        InsertInsert = "insert_insert",
        /// By the deletion of the row that has opened it.
        InsertDelete = "insert_delete",
    }
}

choices! {
    /// Where notifications go.
    pub enum NotificationChannel {
        /// A topic.
        #[default]
        Sink = "sink",
        /// The log.
        Log = "log",
        /// The admin endpoint, in the place of JMX.
        Jmx = "jmx",
    }
}

/// A list of channels. Debezium looks for unknown ones among the classes that it has been given, and passes over what it does not find.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Words<T> {
    known: Vec<T>,
    unknown: Vec<String>,
}

impl<T: Value> Value for Words<T> {
    const TYPE: &'static str = "list";
    const VALUES: &'static [&'static str] = T::VALUES;
    fn parse(text: &str) -> Result<Self, ValueError> {
        let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        for word in words {
            match T::parse(word) {
                Ok(channel) => known.push(channel),
                Err(_) => unknown.push(word.to_owned()),
            }
        }
        Ok(Self { known, unknown })
    }
}

properties! {
    const TABLE: Property<Option<String>> = Property::new("signal.data.collection")
        .text("Table that signals are written to, as `schema.table`: an id, a type and data, in this order. It is captured also where no \
               list names it, and its rows that exist already are not read. Incremental snapshots write to it what tells the stream where \
               a chunk was read.");
    const CHANNELS: Property<Words<SignalChannel>> = Property::new("signal.enabled.channels").default("source")
        .text("Where signals come from: the table of `signal.data.collection` (`source`), a topic (`kafka`), a file (`file`), or \
               `POST /connectors/<name>/signals` and `walferry signal` (`jmx`).");
    const POLL: Property<Duration> = Property::new("signal.poll.interval.ms").default("5000")
        .text("How often signals are looked for in a topic and in a file.");
    const FILE: Property<Option<String>> = Property::new("signal.file")
        .text("File that signals come from: each line is a JSON object of `id`, `type` and `data`. It is emptied when it has been read. Without this, it is `file-signals.txt` in the working directory.");
    const KAFKA_TOPIC: Property<Option<String>> = Property::new("signal.kafka.topic")
        .text("Topic that signals come from, of which partition 0 is read: the key of a record is the connector's `topic.prefix`, its value a \
               JSON object of `id`, `type` and `data`. Without this, it is `<topic.prefix>-signal`.");
    const KAFKA_SERVERS: Property<Option<String>> = Property::new("signal.kafka.bootstrap.servers")
        .text("Brokers of that topic. Without this, they are those that records go to.");
    const KAFKA_GROUP: Property<String> = Property::new("signal.kafka.groupId").default("kafka-signal")
        .text("Consumer group under which it is kept how far the topic was read.");
    const KAFKA_POLL: Property<Option<String>> = Property::new("signal.kafka.poll.timeout.ms")
        .text("How long Debezium waits for records.")
        .support(Support::Accepted { why: "signals are taken as they come" });
    const KAFKA_OTHER: Property<Option<String>> = Property::new("signal.kafka.<property>")
        .text("No property of Debezium's.")
        .support(Support::Elsewhere { is: "is no property of Debezium's", hint: "write the properties of the consumer as signal.consumer.*" });
    const CONSUMER: Property<Option<String>> = Property::new("signal.consumer.<property>")
        .text("How that consumer reaches the brokers: `security.protocol`, `ssl.*` and `sasl.*`. Without these, it does so as the producer.");
    const RETRIES: Property<Option<String>> = Property::new("signal.emit.failure.max.retries").default("0")
        .text("How often Debezium writes to the signal table again after a failure.")
        .support(Support::Accepted { why: "it is tried again until it succeeds" });
    const BACKOFF: Property<Option<String>> = Property::new("signal.emit.failure.backoff.ms").default("10000")
        .text("Pause between such attempts.")
        .support(Support::Accepted { why: "the pauses double from 0.1 s to 30 s" });
    const CHUNK_SIZE: Property<u32> = Property::new("incremental.snapshot.chunk.size").default("1024")
        .text("Rows in a chunk of an incremental snapshot. A chunk whose rows are too large for its part of `walferry.in.flight.max.bytes` \
               ends earlier.");
    const WATERMARKING: Property<Watermarking> = Property::new("incremental.snapshot.watermarking.strategy").default("insert_insert")
        .text("How the window of a chunk ends: with a row of its own, or with the deletion of the row that began it.");
    const ALLOW_CHANGES: Property<bool> = Property::new("incremental.snapshot.allow.schema.changes").default("false")
        .text("Whether Debezium checks the structure of a table before each chunk.")
        .support(Support::Accepted { why: "each chunk is read with the structure that the table has then" });
    const READ_ONLY: Property<bool> = Property::new("read.only").default("false")
        .text("Takes incremental snapshots without writing to the database: the window of a chunk ends where the stream has passed the place at \
               which the chunk was read. A signal table is not needed then; other channels bring the signals.");
    const MAX_ROWS: Property<Option<u32>> = Property::new("walferry.snapshot.max.rows.per.second")
        .text("How many rows an incremental snapshot reads in a second at most. Walferry's own; without it there is no limit.");
    const MAX_LAG: Property<Option<ByteCount>> = Property::new("walferry.snapshot.max.lag.bytes")
        .text("An incremental snapshot reads no further chunk while the slot is this far behind the server's position. Walferry's own; without it \
               there is no limit.");
    const NOTIFICATIONS: Property<Words<NotificationChannel>> = Property::new("notification.enabled.channels")
        .text("Where notifications of snapshots go: a topic (`sink`), the log (`log`), or `GET /connectors/<name>/notifications` (`jmx`).");
    const NOTIFICATION_TOPIC: Property<Option<String>> = Property::new("notification.sink.topic.name")
        .text("Topic of notifications.");
}

pub(super) const GROUP: Group = Group {
    title: "Signals and notifications",
    text: "",
    prefix: "",
    declarations: DECLARATIONS,
};

pub(super) fn read(reader: &mut Reader<'_>) -> SignalSection {
    let (channels, notifications) = (reader.get(&CHANNELS), reader.get(&NOTIFICATIONS));
    let none_of = |of: &[&str]| {
        format!(
            "which Walferry does not have: nothing goes this way. It has {}",
            of.join(", ")
        )
    };
    for word in &channels.unknown {
        let text = format!("names {word:?}, {}", none_of(Words::<SignalChannel>::VALUES));
        reader
            .warning(CHANNELS.name(), text)
            .hint("send signals with `walferry signal` or POST /connectors/<name>/signals, which needs no channel");
    }
    for word in &notifications.unknown {
        let text = format!("names {word:?}, {}", none_of(Words::<NotificationChannel>::VALUES));
        reader
            .warning(NOTIFICATIONS.name(), text)
            .hint("use jmx, and read notifications from GET /connectors/<name>/notifications");
    }
    let section = SignalSection {
        table: table(reader),
        channels: channels.known,
        poll_interval: reader.get(&POLL),
        file: reader.get(&FILE).unwrap_or_else(|| "file-signals.txt".to_owned()),
        kafka: KafkaSignals {
            topic: reader.get(&KAFKA_TOPIC),
            bootstrap_servers: reader.get(&KAFKA_SERVERS),
            group: reader.get(&KAFKA_GROUP),
            consumer: reader.options().below("signal.consumer."),
        },
        chunk_rows: reader.get(&CHUNK_SIZE).max(1),
        watermarking: reader.get(&WATERMARKING),
        max_rows_per_second: reader.get(&MAX_ROWS).filter(|rows| *rows > 0),
        max_lag_bytes: reader.get(&MAX_LAG).map(ByteCount::get),
        read_only: reader.get(&READ_ONLY),
        notifications: notifications.known,
        notification_topic: reader.get(&NOTIFICATION_TOPIC),
    };
    if section.notifies(NotificationChannel::Sink) && section.notification_topic.is_none() {
        reader
            .problem(
                NOTIFICATION_TOPIC.name(),
                "is required with notification.enabled.channels=sink",
            )
            .hint("set notification.sink.topic.name: topic of notifications");
    }
    section
}

fn table(reader: &mut Reader<'_>) -> Option<SignalTable> {
    let written = reader.get(&TABLE)?;
    let parts: Vec<&str> = written.split('.').map(|part| part.trim().trim_matches('"')).collect();
    match parts.as_slice() {
        [schema, name] if !schema.is_empty() && !name.is_empty() => Some(SignalTable {
            schema: (*schema).to_owned(),
            name: (*name).to_owned(),
        }),
        _ => {
            reader
                .warning(
                    TABLE.name(),
                    "is no `schema.table`: no table has this name, so that no signal comes from it",
                )
                .hint("write the table's schema in front of its name, such as `public.signals`");
            None
        }
    }
}
