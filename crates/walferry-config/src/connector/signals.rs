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

/// A list of channels. Debezium looks up unknown ones among its classes, and ignores those that it does not find.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ListedChannels<T> {
    known: Vec<T>,
    unknown: Vec<String>,
}

impl<T: Value> Value for ListedChannels<T> {
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

/// `signal.file` where it is not set, as in Debezium.
pub(super) const DEFAULT_FILE: &str = "file-signals.txt";

properties! {
    const TABLE: Property<Option<String>> = Property::new("signal.data.collection").example("public.signals")
        .text("Table for signals, as `schema.table`, with the columns id, type and data in this order. It is captured even if no filter \
               includes it, and its existing rows are not read. Incremental snapshots write their watermarks to this table: they mark in \
               the stream when a chunk was read.");
    const CHANNELS: Property<ListedChannels<SignalChannel>> = Property::new("signal.enabled.channels").default("source")
        .text("Channels for signals: the table in `signal.data.collection` (`source`), a topic (`kafka`), a file (`file`), or `POST \
               /connectors/<name>/signals` and `walferry signal` (`jmx`).");
    const POLL: Property<Duration> = Property::new("signal.poll.interval.ms").default("5000")
        .text("How often Walferry checks the topic and the file for signals.");
    const FILE: Property<Option<String>> = Property::new("signal.file").example("/var/lib/walferry-signals/shop.json")
        .text("File for signals. Each line is a JSON object with `id`, `type` and `data`. Walferry removes the lines that it has carried \
               out, and leaves all others. It must be a regular file, no link, and not in the data directory. The default is \
               `file-signals.txt` in the working directory. Over REST it must be in a folder of `walferry.rest.signal.paths`.");
    const KAFKA_TOPIC: Property<Option<String>> = Property::new("signal.kafka.topic").example("signals")
        .text("Topic for signals, of which only partition 0 is read. The key of a record is the connector's `topic.prefix`, and the value \
               is a JSON object with `id`, `type` and `data`. The default is `<topic.prefix>-signal`.");
    const KAFKA_SERVERS: Property<Option<String>> = Property::new("signal.kafka.bootstrap.servers").example("kafka:9092")
        .text("Brokers of the topic for signals. The default is the brokers to which records are sent.");
    const KAFKA_GROUP: Property<String> = Property::new("signal.kafka.groupId").default("kafka-signal")
        .text("Consumer group that stores up to where the topic was read.");
    const KAFKA_POLL: Property<Option<String>> = Property::new("signal.kafka.poll.timeout.ms")
        .text("How long Debezium waits for records.")
        .support(Support::Accepted { why: "Walferry processes signals as soon as they arrive" });
    const KAFKA_OTHER: Property<Option<String>> = Property::new("signal.kafka.<property>")
        .text("Not a property of Debezium.")
        .support(Support::Elsewhere { is: "is not a property of Debezium", hint: "set the properties of the consumer with signal.consumer.*" });
    const CONSUMER: Property<Option<String>> = Property::new("signal.consumer.<property>").example("signal.consumer.security.protocol=SSL")
        .text("How the consumer of the topic connects to the brokers: `security.protocol`, `ssl.*` and `sasl.*`. By default it uses the \
               settings of the producer.");
    const RETRIES: Property<Option<String>> = Property::new("signal.emit.failure.max.retries").default("0")
        .text("How often Debezium retries writing to the signal table after a failure.")
        .support(Support::Accepted { why: "Walferry retries until it succeeds" });
    const BACKOFF: Property<Option<String>> = Property::new("signal.emit.failure.backoff.ms").default("10000")
        .text("Pause between these retries.")
        .support(Support::Accepted { why: "Walferry's pauses double from 0.1 s to 30 s" });
    const CHUNK_SIZE: Property<u32> = Property::new("incremental.snapshot.chunk.size").default("1024")
        .text("Number of rows in a chunk of an incremental snapshot. A chunk ends earlier if its rows are too large for their share of \
               `walferry.in.flight.max.bytes`.");
    const WATERMARKING: Property<Watermarking> = Property::new("incremental.snapshot.watermarking.strategy").default("insert_insert")
        .text("How the window of a chunk is closed: with a second row, or by deleting the row that opened it.");
    const ALLOW_CHANGES: Property<bool> = Property::new("incremental.snapshot.allow.schema.changes").default("false")
        .text("Whether Debezium checks the schema of a table before each chunk.")
        .support(Support::Accepted { why: "Walferry reads each chunk with the schema that the table has at that time" });
    const READ_ONLY: Property<bool> = Property::new("read.only").default("false")
        .text("Takes incremental snapshots without writing to the database: the window of a chunk is closed when the stream has passed \
               the position at which the chunk was read. This needs no signal table; signals come through other channels.");
    const MAX_ROWS: Property<Option<u32>> = Property::new("walferry.snapshot.max.rows.per.second").example("5000")
        .text("Maximum number of rows that an incremental snapshot reads per second. This property is Walferry's own. By default there is \
               no limit.");
    const MAX_LAG: Property<Option<ByteCount>> = Property::new("walferry.snapshot.max.lag.bytes").example("1073741824")
        .text("An incremental snapshot reads no further chunk while the slot, or a standby of the server, is this many bytes behind the \
               server's position. To see how far standbys are, the role needs `pg_monitor`. This property is Walferry's own. By default \
               there is no limit.");
    const NOTIFICATIONS: Property<ListedChannels<NotificationChannel>> = Property::new("notification.enabled.channels")
        .text("Channels for notifications about snapshots: a topic (`sink`), the log (`log`), or `GET /connectors/<name>/notifications` \
               (`jmx`).");
    const NOTIFICATION_TOPIC: Property<Option<String>> = Property::new("notification.sink.topic.name").example("notifications")
        .text("Topic for notifications.");
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
        let text = format!("names {word:?}, {}", none_of(ListedChannels::<SignalChannel>::VALUES));
        reader
            .warning(CHANNELS.name(), text)
            .hint("send signals with `walferry signal` or POST /connectors/<name>/signals, which needs no channel");
    }
    for word in &notifications.unknown {
        let text = format!(
            "names {word:?}, {}",
            none_of(ListedChannels::<NotificationChannel>::VALUES)
        );
        reader
            .warning(NOTIFICATIONS.name(), text)
            .hint("use jmx, and read notifications from GET /connectors/<name>/notifications");
    }
    let section = SignalSection {
        table: table(reader),
        channels: channels.known,
        poll_interval: reader.get(&POLL),
        file: reader.get(&FILE).unwrap_or_else(|| DEFAULT_FILE.to_owned()),
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
            .hint("set notification.sink.topic.name to the topic for notifications");
    }
    section
}

fn table(reader: &mut Reader<'_>) -> Option<SignalTable> {
    let written = reader.get(&TABLE)?;
    // As in Debezium, where a list is for connectors of several databases.
    if written.trim_end_matches(',').contains(',') {
        reader
            .problem(
                TABLE.name(),
                format!("names several tables ({written:?}), but a connector for Postgres has one signal table"),
            )
            .hint("keep one of them");
        return None;
    }
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
                    "is not in the form `schema.table`: no table has this name, so no signals would arrive",
                )
                .hint("put the table's schema before its name, such as `public.signals`");
            None
        }
    }
}
