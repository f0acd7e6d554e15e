//! Relay mode: an outbox that is read by polling, without a replication slot.

use std::time::Duration;

use walferry_diagnosis::Kind;

use crate::name::HostName;
use crate::property::{Group, Property};
use crate::reader::{Options, Reader};
use crate::value::Count;
use crate::{choices, properties};

/// The class of a connector in relay mode.
pub(super) const CLASS: &str = "walferry.OutboxRelay";

/// How an outbox is read by polling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelaySection {
    /// `relay.done`; `None`: as the columns of the table say.
    pub done: Option<RelayDone>,
    /// The columns that are maintained, where they are named; otherwise they are recognised.
    pub columns: RelayColumns,
    /// `relay.status.pending`; `None`: `PENDING`, in the case of the table.
    pub pending: Option<String>,
    /// `relay.status.sent`; `None`: `SENT`, in the case of the table.
    pub sent: Option<String>,
    /// `relay.status.failed`; `None`: `FAILED`, in the case of the table.
    pub failed: Option<String>,
    /// `relay.order.by`; empty: `created_at` and the key of the table.
    pub order_by: Vec<String>,
    /// `relay.poll.interval.ms`
    pub poll_interval: Duration,
    /// `relay.batch.size`
    pub batch_rows: u32,
    /// `relay.lanes`
    pub lanes: u32,
    /// `relay.notify.channel`
    pub notify: Option<RelayNotify>,
    /// `relay.max.attempts`
    pub max_attempts: u32,
    /// `relay.backoff.ms`
    pub backoff: Duration,
    /// `relay.backoff.max.ms`
    pub backoff_max: Duration,
    /// `relay.failed.rows`
    pub failed_rows: FailedRows,
}

/// Columns of the outbox that the relay maintains. `None`: recognised by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RelayColumns {
    /// `relay.columns.status`
    pub status: Option<String>,
    /// `relay.columns.sent.at`
    pub sent_at: Option<String>,
    /// `relay.columns.attempts`
    pub attempts: Option<String>,
    /// `relay.columns.available.at`
    pub available_at: Option<String>,
    /// `relay.columns.last.error`
    pub last_error: Option<String>,
}

/// Where notifications about new rows come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayNotify {
    /// `relay.notify.channel`
    pub channel: String,
    /// `relay.notify.hostname`; `None`: that of the database.
    pub hostname: Option<HostName>,
    /// `relay.notify.port`; `None`: that of the database.
    pub port: Option<u16>,
}

choices! {
    /// What happens to a row after Kafka has confirmed it.
    pub enum RelayDone {
        /// Its status or time is set.
        #[default]
        Mark = "mark",
        /// It is deleted.
        Delete = "delete",
    }
}

choices! {
    /// What a row that has failed for good does to later rows of its key.
    pub enum FailedRows {
        /// They wait until it is put back or removed.
        #[default]
        Hold = "hold",
        /// They are sent.
        Pass = "pass",
    }
}

properties! {
    const DONE: Property<Option<RelayDone>> = Property::new("relay.done").example("delete")
        .text("What happens to a row after Kafka has confirmed it: `mark` sets its status or its time, `delete` removes the row. Without it, \
               `mark` if the table has a column for the status or for the time of sending. Deleting is never inferred.");
    const STATUS: Property<Option<String>> = Property::new("relay.columns.status").example("state")
        .text("Column with the status of a row. Recognised as `status` or `state`.");
    const SENT_AT: Property<Option<String>> = Property::new("relay.columns.sent.at").example("published_at")
        .text("Column with the time at which a row was sent. Recognised as `published_at`, `sent_at` or `processed_at`.");
    const ATTEMPTS: Property<Option<String>> = Property::new("relay.columns.attempts").example("retry_count")
        .text("Column that counts failed attempts. Recognised as `attempts` or `retry_count`.");
    const AVAILABLE_AT: Property<Option<String>> = Property::new("relay.columns.available.at").example("next_attempt_at")
        .text("Column with the time before which a row is not sent. Recognised as `available_at` or `next_attempt_at`.");
    const LAST_ERROR: Property<Option<String>> = Property::new("relay.columns.last.error").example("error_message")
        .text("Column for the text of the last error. Recognised as `last_error`.");
    const PENDING: Property<Option<String>> = Property::new("relay.status.pending").example("NEW")
        .text("Status of a row that is to be sent. Without it, `PENDING`, in the case in which the column's default, CHECK or enum type has it; \
               `false` for a boolean column.");
    const SENT: Property<Option<String>> = Property::new("relay.status.sent").example("PUBLISHED")
        .text("Status of a row that was sent. Without it, `SENT`, in the same case; `true` for a boolean column.");
    const FAILED: Property<Option<String>> = Property::new("relay.status.failed").example("DEAD")
        .text("Status of a row that is not tried again. Without it, `FAILED`, in the same case. A boolean column has no such status.");
    const ORDER_BY: Property<Vec<String>> = Property::new("relay.order.by").example("created_at,id")
        .text("Columns by which rows of one message key are ordered. Without it, `seq` or the only number column of the primary key; otherwise \
               `created_at`, `occurred_at` or `inserted_at`, then the primary key.");
    const POLL_INTERVAL: Property<Duration> = Property::new("relay.poll.interval.ms").default("200")
        .text("How often the table is looked at while it has no rows to send.");
    const BATCH_SIZE: Property<Count> = Property::new("relay.batch.size").default("500")
        .text("Maximum number of rows that are sent and marked in one transaction.");
    const LANES: Property<Count> = Property::new("relay.lanes").default("8")
        .text("Number of lanes. A message key belongs to a lane by its hash, and a lane has one owner at a time. All processes that work on one \
               table must have the same number.");
    const NOTIFY_CHANNEL: Property<Option<String>> = Property::new("relay.notify.channel").example("outbox")
        .text("Channel of `NOTIFY` by which the application says that there are new rows. They are then looked for at once. Polling goes on as a \
               safety net.");
    const NOTIFY_HOSTNAME: Property<Option<HostName>> = Property::new("relay.notify.hostname").example("db-direct.example.com")
        .text("Host of the server for `LISTEN`, if `database.hostname` is a pooler.");
    const NOTIFY_PORT: Property<Option<u16>> = Property::new("relay.notify.port").example("5432")
        .text("Port of the server for `LISTEN`, if `database.port` is that of a pooler.");
    const MAX_ATTEMPTS: Property<Count> = Property::new("relay.max.attempts").default("10")
        .text("How often a row that cannot be sent is tried. Then it goes to the dead-letter topic, if `errors.deadletterqueue.topic.name` \
               is set, or gets the status `relay.status.failed`.");
    const BACKOFF: Property<Duration> = Property::new("relay.backoff.ms").default("100")
        .text("Pause after the first failed attempt. It doubles with each further attempt, with jitter.");
    const BACKOFF_MAX: Property<Duration> = Property::new("relay.backoff.max.ms").default("300000")
        .text("Longest pause between two attempts.");
    const FAILED_ROWS: Property<FailedRows> = Property::new("relay.failed.rows").default("hold")
        .text("What a row that has failed for good does to later rows of its message key: `hold` keeps them back until somebody puts the row \
               back or removes it, `pass` sends them.");
}

pub(super) const GROUP: Group = Group {
    title: "Relay mode",
    text: "For `connector.class=walferry.OutboxRelay`, which reads an outbox by polling. Of the other properties, those about the database \
           connection, `table.include.list`, converters, transforms, topics and errors apply; those about slots, publications and snapshots do not.",
    prefix: "relay.",
    declarations: DECLARATIONS,
};

/// Whether a connector is one in relay mode.
pub(super) fn is_relay(options: &Options) -> bool {
    options
        .get("connector.class")
        .is_some_and(|class| class.trim() == CLASS)
}

/// The section of a connector in relay mode. `None` for other connectors.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<RelaySection> {
    let is_relay = is_relay(reader.options());
    let section = section(reader);
    if is_relay {
        let of_the_stream: Vec<_> = OF_THE_STREAM
            .iter()
            .flat_map(|group| set_below(reader, group))
            .collect();
        for name in of_the_stream {
            let finding = reader.warning(
                &name,
                "has no effect in relay mode, which does not read the replication stream",
            );
            finding.kind(Kind::PropertyWithoutEffect).hint("remove it");
        }
        return Some(section);
    }
    for name in set_below(reader, "relay.") {
        let finding = reader.warning(&name, format!("has no effect: connector.class is not {CLASS}"));
        finding
            .kind(Kind::PropertyWithoutEffect)
            .hint("remove it, or set connector.class");
    }
    None
}

/// Groups of properties about the replication stream, and about work beside it.
const OF_THE_STREAM: [&str; 9] = [
    "heartbeat.",
    "incremental.",
    "message.key.",
    "notification.",
    "provide.",
    "publication.",
    "signal.",
    "slot.",
    "snapshot.",
];

/// The properties of a group that the connector sets.
fn set_below(reader: &Reader<'_>, group: &str) -> Vec<String> {
    let set = reader.options().below(group);
    set.iter().map(|(name, _)| format!("{group}{name}")).collect()
}

fn section(reader: &mut Reader<'_>) -> RelaySection {
    let channel = reader.get(&NOTIFY_CHANNEL);
    let (hostname, port) = (reader.get(&NOTIFY_HOSTNAME), reader.get(&NOTIFY_PORT));
    RelaySection {
        done: reader.get(&DONE),
        columns: RelayColumns {
            status: reader.get(&STATUS),
            sent_at: reader.get(&SENT_AT),
            attempts: reader.get(&ATTEMPTS),
            available_at: reader.get(&AVAILABLE_AT),
            last_error: reader.get(&LAST_ERROR),
        },
        pending: reader.get(&PENDING),
        sent: reader.get(&SENT),
        failed: reader.get(&FAILED),
        order_by: reader.get(&ORDER_BY),
        poll_interval: reader.get(&POLL_INTERVAL).max(Duration::from_millis(1)),
        batch_rows: at_most(reader, &BATCH_SIZE, 10_000),
        lanes: at_most(reader, &LANES, 1_024),
        notify: channel.map(|channel| RelayNotify {
            channel,
            hostname,
            port,
        }),
        max_attempts: at_most(reader, &MAX_ATTEMPTS, 1_000_000),
        backoff: reader.get(&BACKOFF),
        backoff_max: reader.get(&BACKOFF_MAX),
        failed_rows: reader.get(&FAILED_ROWS),
    }
}

fn at_most(reader: &mut Reader<'_>, property: &Property<Count>, most: u32) -> u32 {
    let count = reader.get(property).get();
    if count > most {
        reader
            .problem(property.name(), format!("is {count}, but at most {most} is possible"))
            .hint("set it to a smaller number");
    }
    count.min(most)
}
