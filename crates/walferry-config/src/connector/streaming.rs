//! Streaming: what is confirmed when, how much waits in memory, what happens after failures.

use std::time::Duration;

use super::events::FailureHandling;
use super::framework::TransformPlugin;
use walferry_diagnosis::Kind;

use crate::name::TopicPart;
use crate::property::{Group, Property, Support};
use crate::reader::Reader;
use crate::value::ByteCount;
use crate::worker::Worker;
use crate::{choices, properties};

/// Streaming.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamingSection {
    /// `status.update.interval.ms`
    pub status_interval: Duration,
    /// `lsn.flush.mode`
    pub flush_mode: LsnFlushMode,
    /// `offset.mismatch.strategy`; `None` refuses to start over a gap.
    pub offset_mismatch: Option<OffsetMismatch>,
    /// `xmin.fetch.interval.ms`; `None` does not fetch it.
    pub xmin_interval: Option<Duration>,
    /// `walferry.in.flight.max.bytes`, or else `max.queue.size.in.bytes`.
    pub in_flight_max_bytes: u64,
    /// `walferry.table.changes`
    pub table_changes: TableChanges,
    /// `guardrail.collections.max` and `guardrail.collections.limit.action`; `None` captures as many tables as there are.
    pub max_tables: Option<(u32, GuardrailAction)>,
}

/// What happens after failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorSection {
    /// `errors.max.retries`; `None` never gives up.
    pub max_retries: Option<u32>,
    /// `errors.tolerance`
    pub tolerance: Tolerance,
    /// `errors.deadletterqueue.topic.name`
    pub dead_letter_topic: Option<TopicPart>,
    /// `errors.deadletterqueue.topic.replication.factor`; `None` takes the broker's default.
    pub dead_letter_replication_factor: Option<i32>,
    /// `errors.retry.timeout`: how long a record waits for the schema registry; `None` waits as long as it takes.
    pub retry_timeout: Option<Duration>,
    /// `errors.retry.delay.max.ms`: the longest pause before the registry is asked again; `None` if it is not set.
    pub retry_delay_max: Option<Duration>,
    /// `errors.log.enable`: whether each record that is set aside is logged.
    pub log: bool,
    /// `errors.log.include.messages`: keys of records are shown outside of the log, too.
    pub show_keys: bool,
}

choices! {
    /// Who moves the slot.
    pub enum LsnFlushMode {
        /// The connector, after offsets are stored.
        #[default]
        Connector = "connector",
        /// Nobody: an operator advances the slot.
        Manual = "manual",
        /// The connector, and pgjdbc while the stream is quiet.
        ConnectorAndDriver = "connector_and_driver",
    }
}

choices! {
    /// What happens if the slot is ahead of the stored offset, or behind it.
    pub enum OffsetMismatch {
        /// Goes on from where the slot stands.
        #[default]
        NoValidation = "no_validation",
        /// The offset counts: the slot is advanced to it.
        TrustOffset = "trust_offset",
        /// The slot counts.
        TrustSlot = "trust_slot",
        /// The later of the two counts.
        TrustGreaterLsn = "trust_greater_lsn",
    }
}

choices! {
    /// What happens if more tables are captured than allowed.
    pub enum GuardrailAction {
        /// A warning.
        #[default]
        Warn = "warn",
        /// The connector does not start.
        Fail = "fail",
    }
}

choices! {
    /// What happens when the columns of a captured table change.
    pub enum TableChanges {
        /// A notice: the connector goes on.
        #[default]
        Continue = "continue",
        /// The connector stops before the first record with the new columns.
        Stop = "stop",
    }
}

choices! {
    /// What happens to a record that cannot be transformed, converted or sent.
    pub enum Tolerance {
        /// The connector stops.
        #[default]
        None = "none",
        /// The record is set aside.
        All = "all",
    }
}

properties! {
    const STATUS_INTERVAL: Property<Duration> = Property::new("status.update.interval.ms").default("10000")
        .text("How often Walferry confirms its position to Postgres and asks for an answer. It does so more often if the server's \
               `wal_sender_timeout` requires it. If nothing arrives for `wal_sender_timeout`, or for one minute if that is longer, \
               Walferry reconnects. After each such silence in a row, the next one may last twice as long.");
    const FLUSH_MODE: Property<Option<LsnFlushMode>> = Property::new("lsn.flush.mode")
        .text("Who advances the slot: the connector, after offsets are stored (`connector`, the default), or nobody (`manual`), so that \
               you must advance it, or the server's disk fills up. `connector_and_driver` is the same as `connector`, because Walferry \
               also advances the slot of an idle stream. As in Debezium, it enables heartbeats if they are not configured.");
    const FLUSH_SOURCE: Property<bool> = Property::new("flush.lsn.source").default("true")
        .text("Older form of `lsn.flush.mode`: false means `manual`.");
    const FLUSH_TIMEOUT: Property<Duration> = Property::new("lsn.flush.timeout.ms").default("30000")
        .text("How long Debezium waits until the slot has advanced.")
        .support(Support::Accepted { why: "Walferry confirms with a single message and does not wait" });
    const FLUSH_TIMEOUT_ACTION: Property<String> = Property::new("lsn.flush.timeout.action").default("fail")
        .text("What Debezium does if this takes too long.")
        .support(Support::Accepted { why: "Walferry confirms with a single message and does not wait" });
    const MISMATCH: Property<Option<OffsetMismatch>> = Property::new("offset.mismatch.strategy")
        .text("What to do if the stored offset and the slot disagree. If it is not set, Walferry refuses to start when the slot is ahead \
               of the offset, because changes would be missing. Debezium's default `no_validation` continues without them.");
    const POSITION_CHECK: Property<bool> = Property::new("internal.log.position.check.enable").default("true")
        .text("Whether a start checks that the server still has the WAL after the stored offset.")
        .support(Support::Accepted { why: "Walferry always checks, because changes would be missing otherwise" });
    const XMIN_INTERVAL: Property<Duration> = Property::new("xmin.fetch.interval.ms").default("0")
        .text("How often the slot's `catalog_xmin` is read for `source.xmin`. With 0 it is never read, and `source.xmin` is null.");
    const IN_FLIGHT: Property<Option<ByteCount>> = Property::new("walferry.in.flight.max.bytes").example("8388608")
        .text("Maximum number of bytes in flight between Postgres and Kafka. What does not fit waits in Postgres. The connectors of a \
               process share it: with two connectors, each has half of its configured value, unless the worker file has \
               `walferry.worker.in.flight.max.bytes`. This property is Walferry's own. The default is 16777216 (16 MiB), or the value of \
               `max.queue.size.in.bytes`.");
    const QUEUE_BYTES: Property<u64> = Property::new("max.queue.size.in.bytes").default("0")
        .text("Debezium's property for the same limit; 0 means that it is not set.");
    const QUEUE_SIZE: Property<u32> = Property::new("max.queue.size").default("8192")
        .text("Maximum number of events in Debezium's queue.")
        .support(Support::Accepted { why: "Walferry limits bytes instead of events; see walferry.in.flight.max.bytes" });
    const BATCH_SIZE: Property<u32> = Property::new("max.batch.size").default("2048")
        .text("Maximum number of events in a batch.")
        .support(Support::Accepted { why: "Walferry sends each event as soon as it arrives; producer.override.batch.size and linger.ms \
                                           determine the batches" });
    const POLL_INTERVAL: Property<Duration> = Property::new("poll.interval.ms").default("500")
        .text("How long Debezium waits for new events.")
        .support(Support::Accepted { why: "Walferry does not poll; it sends each event as soon as it arrives" });
    const DISPATCH_INTERVAL: Property<Duration> = Property::new("poll.dispatch.interval.ms").default("0")
        .text("How long Debezium 3.7 collects events.")
        .support(Support::Accepted { why: "Walferry does not poll; it sends each event as soon as it arrives" });
    const QUEUE_PROVIDER: Property<String> = Property::new("queue.provider.type").default("memory")
        .text("Java class that holds the queue.")
        .support(Support::Refused { hint: "Walferry cannot load Java classes; remove the property" });
    const QUERY_FETCH_SIZE: Property<u32> = Property::new("query.fetch.size").default("0")
        .text("Number of rows that a cursor fetches at a time.")
        .support(Support::Accepted { why: "the results of Walferry's catalog queries are small" });
    const GUARDRAIL_MAX: Property<u32> = Property::new("guardrail.collections.max").default("0")
        .text("Maximum number of captured tables; 0 means no limit. It is checked at the start, not while streaming.");
    const GUARDRAIL_ACTION: Property<GuardrailAction> = Property::new("guardrail.collections.limit.action").default("warn")
        .text("What happens if there are more tables: a warning (`warn`), or the connector does not start (`fail`).");
    const TABLE_CHANGES: Property<TableChanges> = Property::new("walferry.table.changes").default("continue")
        .text("What happens when columns of a captured table are added or removed, or get another type. Walferry tells of it in its log, \
               its metrics and on its page, and continues (`continue`). Or the connector stops before the first record with the new \
               columns (`stop`), and continues with them after it is restarted. Columns are compared from the start of the connector \
               on, also over reconnections. If a table changes before its first row arrives, Walferry knows only the new \
               columns, and does not stop. With `stop`, the columns of all tables that have had changes stay in memory. This property is Walferry's own.");
    const MAX_RETRIES: Property<i32> = Property::new("errors.max.retries").default("-1")
        .text("Maximum number of retries after a temporary failure, such as an unreachable host; -1 means no limit.");
    const RESTART_WAIT: Property<Duration> = Property::new("retriable.restart.connector.wait.ms").default("10000")
        .text("Pause before Debezium retries.")
        .support(Support::Accepted { why: "Walferry retries at once, then after pauses that double up to 30 s" });
    const CUSTOM_RETRIABLE: Property<Option<String>> = Property::new("internal.custom.retriable.exception")
        .text("Additional messages of Java exceptions after which Debezium retries.")
        .support(Support::Accepted { why: "there are no Java exceptions; Walferry distinguishes failures by their SQLSTATE" });
    const TOLERANCE: Property<Tolerance> = Property::new("errors.tolerance").default("none")
        .text("What happens if a record cannot be transformed, converted or sent: stop (`none`), or set it aside and count it (`all`). \
               Connect drops such records. Walferry sends them to `errors.deadletterqueue.topic.name`, if that is set.");
    const DEAD_LETTER: Property<Option<TopicPart>> = Property::new("errors.deadletterqueue.topic.name").example("orders.dead-letters")
        .text("Topic for records that are set aside (dead-letter topic). In Connect, only sink connectors have one.");
    const DEAD_LETTER_REPLICATION: Property<Option<i32>> = Property::new("errors.deadletterqueue.topic.replication.factor").example("3")
        .text("Replication factor of the dead-letter topic, if Walferry creates it. By default, or with -1, it is the broker's default.");
    const RETRY_TIMEOUT: Property<i64> = Property::new("errors.retry.timeout").default("0")
        .text("How long a record may wait for a schema registry that does not answer, in milliseconds. After that time the connector \
               fails, or the record is set aside with `errors.tolerance=all`. The registry always has at least ten seconds for its first \
               answer. With -1 the record waits without a limit. If the property is not set, Walferry also waits without a limit, while \
               Connect fails at once. Transforms and converters have no other temporary failures, and sending to Kafka is always retried.");
    const RETRY_DELAY: Property<i64> = Property::new("errors.retry.delay.max.ms").default("60000")
        .text("Maximum pause before the schema registry is asked again. The pauses start at 200 ms and double. If it is not set, the \
               maximum is 10 s.");
    const LOG: Property<bool> = Property::new("errors.log.enable").default("false")
        .text("With `false`, records on which a transform or converter fails and that are set aside are counted but not logged. If it is \
               not set, or `true`, each of them is logged once. Connect logs them only with `true`.");
    const LOG_MESSAGES: Property<bool> = Property::new("errors.log.include.messages").default("false")
        .text("Whether the status page, `/ready` and the REST API show the key of a record that cannot be delivered. The log always \
               contains its first 200 bytes. Unlike Connect, Walferry never shows the values of rows.");
}

pub(super) const GROUP: Group = Group {
    title: "Streaming and failures",
    text: "",
    prefix: "",
    declarations: DECLARATIONS,
};

const DEFAULT_IN_FLIGHT: u64 = 16 * 1024 * 1024;

pub(super) fn read(reader: &mut Reader<'_>, worker: &Worker) -> (StreamingSection, ErrorSection) {
    let xmin_interval = reader.get(&XMIN_INTERVAL);
    let queue_bytes = Some(reader.get(&QUEUE_BYTES)).filter(|bytes| *bytes > 0);
    let in_flight = reader.get(&IN_FLIGHT).map(ByteCount::get);
    let max_tables = reader.get(&GUARDRAIL_MAX);
    let action = reader.get(&GUARDRAIL_ACTION);
    let streaming = StreamingSection {
        status_interval: reader.get(&STATUS_INTERVAL),
        flush_mode: flush_mode(reader),
        offset_mismatch: reader.get(&MISMATCH),
        xmin_interval: (!xmin_interval.is_zero()).then_some(xmin_interval),
        in_flight_max_bytes: in_flight.or(queue_bytes).unwrap_or(DEFAULT_IN_FLIGHT),
        table_changes: reader.get(&TABLE_CHANGES),
        max_tables: (max_tables > 0).then_some((max_tables, action)),
    };
    if let Some(most) = worker.in_flight_max_bytes
        && streaming.in_flight_max_bytes > most
    {
        let message = format!(
            "is {}, but all connectors of the worker together may have no more than {most} bytes in flight \
             (`walferry.worker.in.flight.max.bytes`), so this connector could never start",
            streaming.in_flight_max_bytes
        );
        reader
            .problem(IN_FLIGHT.name(), message)
            .hint("set it to less, or allow more in the worker file");
    }
    if streaming.status_interval.is_zero() {
        reader
            .problem(STATUS_INTERVAL.name(), "must not be 0")
            .hint("remove it to use the default of 10000");
    }
    (streaming, errors(reader))
}

/// The options of an EventRouter by which it sends events to the dead-letter topic.
const SETS_ASIDE: [&str; 3] = [
    "walferry.topics.unknown",
    "walferry.schemas.mismatch",
    "walferry.schemas.missing",
];

/// The option by which an EventRouter finds topics by event type.
const TOPICS: &str = "walferry.topics";

/// The option by which an EventRouter checks events.
const SCHEMAS_DIR: &str = "walferry.schemas.dir";

/// Warns if nothing can ever be sent to the dead-letter topic, or if a transform needs that topic and there is none.
pub(super) fn check_dead_letters(
    reader: &mut Reader<'_>,
    errors: &ErrorSection,
    on_processing: FailureHandling,
    transforms: &[TransformPlugin],
) {
    let is = |transform: &TransformPlugin, option: &str, value: &str| {
        let set = transform.options.get(option).unwrap_or_default();
        set.trim().eq_ignore_ascii_case(value)
    };
    let all = transforms
        .iter()
        .flat_map(|transform| SETS_ASIDE.map(|option| (transform, option)));
    let senders: Vec<(&TransformPlugin, &str)> = all
        .filter(|(transform, option)| is(transform, option, "dead-letter"))
        .collect();
    if errors.dead_letter_topic.is_none() {
        for (transform, option) in &senders {
            let place = format!("transforms.{}.{option}", transform.name);
            reader
                .problem(
                    &place,
                    format!("is dead-letter, but {} names no topic", DEAD_LETTER.name()),
                )
                .hint(format!("set {} to the topic for such events", DEAD_LETTER.name()));
        }
    }
    if errors.tolerance == Tolerance::All {
        for transform in transforms {
            let [unknown, mismatch, missing] = SETS_ASIDE;
            let has = |option| transform.options.get(option).is_some();
            let fails = |option| is(transform, option, "fail");
            let fails_at = [
                (
                    unknown,
                    has(TOPICS) && (!has(unknown) || fails(unknown)),
                    "default or route",
                ),
                (
                    mismatch,
                    has(SCHEMAS_DIR) && (!has(mismatch) || fails(mismatch)),
                    "warn",
                ),
                (missing, has(SCHEMAS_DIR) && fails(missing), "warn"),
            ];
            for (option, _, others) in fails_at.iter().filter(|(_, fails, _)| *fails) {
                reader
                    .problem(
                        &format!("transforms.{}.{option}", transform.name),
                        "is fail, but with errors.tolerance=all the connector would go on, and the event would be in no topic",
                    )
                    .kind(Kind::PropertiesClash)
                    .hint(format!("set {option} to dead-letter, {others}, or remove errors.tolerance"));
            }
        }
    }
    let stops = errors.tolerance == Tolerance::None && on_processing == FailureHandling::Fail && senders.is_empty();
    if errors.dead_letter_topic.is_some() && stops {
        let finding = reader
            .warning(DEAD_LETTER.name(), "is not used while errors.tolerance is none")
            .kind(Kind::PropertyWithoutEffect);
        finding.hint("set errors.tolerance=all");
    }
}

fn flush_mode(reader: &mut Reader<'_>) -> LsnFlushMode {
    let flushes = reader.get(&FLUSH_SOURCE);
    let mode = match reader.get(&FLUSH_MODE) {
        Some(mode) => mode,
        None if flushes => LsnFlushMode::Connector,
        None => LsnFlushMode::Manual,
    };
    if mode == LsnFlushMode::Manual {
        let name = if reader.is_set(&FLUSH_MODE) {
            FLUSH_MODE.name()
        } else {
            FLUSH_SOURCE.name()
        };
        let finding = reader
            .warning(name, "keeps the slot from advancing, so the server keeps all its WAL")
            .kind(Kind::SlotMode);
        finding
            .hint("advance the slot yourself with pg_replication_slot_advance; otherwise the server's disk fills up");
    }
    mode
}

fn errors(reader: &mut Reader<'_>) -> ErrorSection {
    ErrorSection {
        max_retries: u32::try_from(reader.get(&MAX_RETRIES)).ok(),
        tolerance: reader.get(&TOLERANCE),
        dead_letter_topic: reader.get(&DEAD_LETTER),
        dead_letter_replication_factor: reader.get(&DEAD_LETTER_REPLICATION).filter(|factor| *factor > 0),
        retry_timeout: retry_timeout(reader),
        retry_delay_max: is_set_to(reader, &RETRY_DELAY).map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
        log: reader.get(&LOG) || !reader.is_set(&LOG),
        show_keys: reader.get(&LOG_MESSAGES),
    }
}

fn is_set_to(reader: &mut Reader<'_>, property: &Property<i64>) -> Option<i64> {
    let value = reader.get(property);
    reader.is_set(property).then_some(value)
}

fn retry_timeout(reader: &mut Reader<'_>) -> Option<Duration> {
    let ms = is_set_to(reader, &RETRY_TIMEOUT)?;
    u64::try_from(ms).ok().map(Duration::from_millis)
}
