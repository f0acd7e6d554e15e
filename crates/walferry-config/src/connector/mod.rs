//! A connector's configuration, typed and checked.

mod adjust;
mod columns;
mod elsewhere;
mod events;
mod files;
mod filters;
mod framework;
mod misplaced;
mod older;
pub mod post_processors;
mod postgres;
mod relay;
mod signals;
mod slot;
mod snapshot;
mod streaming;
mod topic_creation;
mod topics;

pub use adjust::{underscores, unicode_escapes};
pub use columns::{ColumnPattern, ColumnSection, HashAlgorithm, HashRule, HashVersion, LengthRule};
pub use events::{
    BinaryHandling, DecimalHandling, EventSection, FailureHandling, HstoreHandling, IntervalHandling, NameAdjustment,
    Placeholder, SkippedOperations, TimePrecision,
};
pub use filters::{Filter, FilterSection};
pub use framework::{ConverterPlugin, Plugins, PredicatePlugin, TransactionBoundary, TransformPlugin};
pub use post_processors::{ReselectColumns, ReselectFailure};
pub use postgres::{AuthMethod, ChannelBinding, PostgresSection, RequiredAuth, SslMode, SslNegotiation};
pub use relay::{FailedRows, RelayColumns, RelayDone, RelayNotify, RelaySection};
pub use signals::{NotificationChannel, SignalChannel, SignalSection, SignalTable, Watermarking};
pub use slot::{
    AutosetIdentity, PublicationAutocreate, PublicationSection, ReplicaIdentityRule, SlotSection, UncertainPublication,
};
pub use snapshot::{ConfigurationBased, SnapshotIsolation, SnapshotLocking, SnapshotMode, SnapshotSection};
pub use streaming::{
    ErrorSection, GuardrailAction, LsnFlushMode, OffsetMismatch, StreamingSection, TableChanges, Tolerance,
};
pub use topic_creation::{TopicCreation, TopicGroup, TopicSettings};
pub use topics::{HeartbeatSection, KeyField, TopicNaming, TopicRewrite, TopicSection};

use std::time::Duration;

use walferry_diagnosis::{Concealed, Kind};

use crate::file::Submitted;
use crate::finding::Findings;
use crate::property::{Declaration, Group};
use crate::provider::Lookup;
use crate::reader::{Options, Reader};
use crate::sanitize::Sanitizer;
use crate::worker::Worker;

/// A connector: a section for each part of the program.
#[derive(Debug, Clone)]
pub struct Connector {
    /// Its name, part of the identity under which offsets are stored.
    pub name: String,
    /// How to reach Postgres.
    pub postgres: PostgresSection,
    /// The replication slot.
    pub slot: SlotSection,
    /// The publication.
    pub publication: PublicationSection,
    /// What is captured.
    pub filters: FilterSection,
    /// What is done to single columns.
    pub columns: ColumnSection,
    /// What events look like.
    pub events: EventSection,
    /// `post.processors`, in their order.
    pub post_processors: Vec<ReselectColumns>,
    /// Names of topics.
    pub topics: TopicSection,
    /// Heartbeats.
    pub heartbeat: HeartbeatSection,
    /// The initial snapshot.
    pub snapshot: SnapshotSection,
    /// Signals, incremental snapshots and notifications.
    pub signals: SignalSection,
    /// Streaming.
    pub streaming: StreamingSection,
    /// What happens after failures.
    pub errors: ErrorSection,
    /// How topics are created; `None` leaves it to the broker.
    pub topic_creation: Option<TopicCreation>,
    /// Converters, transforms, predicates and client overrides.
    pub plugins: Plugins,
    /// Where transactions end. `None`: changes arrive at least once.
    pub exactly_once: Option<TransactionBoundary>,
    /// `offsets.storage.topic`
    pub offsets_topic: Option<String>,
    /// How an outbox is read by polling. `None`: the replication stream is read.
    pub relay: Option<RelaySection>,
    /// What is hidden when the configuration is shown.
    pub sanitizer: Sanitizer,
    /// What config providers have returned. While the connector is in use, no text that leaves the process shows it.
    pub concealed: Concealed,
}

/// The sections of the reference page that a connector has of its own.
pub static CONNECTOR_GROUPS: &[Group] = &[
    framework::GROUP,
    postgres::GROUP,
    slot::GROUP,
    filters::GROUP,
    columns::GROUP,
    events::GROUP,
    post_processors::GROUP,
    topics::GROUP,
    topic_creation::GROUP,
    snapshot::GROUP,
    signals::GROUP,
    streaming::GROUP,
    relay::GROUP,
    elsewhere::GROUP,
    misplaced::GROUP,
];

impl Connector {
    /// Reads a connector: resolves references, brings older names up to date, checks every property.
    ///
    /// `name` is used if the file has no name. `check` builds the plug-ins from their classes and options, so
    /// that their problems are in the same report. Returns a connector unless there is a problem.
    pub fn read(
        submitted: &Submitted,
        name: Option<&str>,
        worker: &Worker,
        lookup: &dyn Lookup,
        check: &dyn Fn(&Plugins) -> Findings,
    ) -> (Option<Self>, Findings) {
        let mut findings = Findings::default();
        let mut values = Vec::new();
        let mut options = resolve(submitted, worker, lookup, &mut findings, &mut values);
        if worker.is_for_others {
            // Before anything opens these files.
            files::check(&options, &worker.rights_of_others, lookup, &mut findings);
            if findings
                .problems()
                .any(|problem| problem.kind == Some(Kind::FileNotAllowed))
            {
                findings.conceal(&Concealed::new(&values, &[]));
                return (None, findings);
            }
        }
        options.hide(&elsewhere::sanitizer_of(&options));
        older::bring_up_to_date(&mut options, &mut findings);
        post_processors::bring_up_to_date(&mut options, &declarations().collect::<Vec<_>>(), &mut findings);
        let mut reader = Reader::new(&options, declarations());
        let plugins = framework::read(&mut reader, worker);
        reader.extend(check(&plugins));
        let (slot, publication) = slot::read(&mut reader);
        let (topics, heartbeat) = topics::read(&mut reader);
        let (streaming, errors) = streaming::read(&mut reader, worker);
        let mut connector = Self {
            name: connector_name(submitted, name, &mut reader),
            postgres: postgres::read(&mut reader),
            slot,
            publication,
            filters: filters::read(&mut reader),
            columns: columns::read(&mut reader),
            events: events::read(&mut reader),
            post_processors: post_processors::read(&mut reader),
            topics,
            heartbeat,
            snapshot: snapshot::read(&mut reader),
            signals: signals::read(&mut reader),
            streaming,
            errors,
            topic_creation: topic_creation::read(&mut reader, worker.topic_creation),
            plugins,
            exactly_once: framework::exactly_once(&mut reader, worker),
            offsets_topic: framework::offsets_topic(&mut reader),
            relay: relay::read(&mut reader),
            sanitizer: elsewhere::sanitizer(&mut reader),
            concealed: Concealed::default(),
        };
        let class = submitted.get("connector.class").unwrap_or_default();
        connector.concealed = Concealed::new(&values, &[&connector.name, class]);
        streaming::check_dead_letters(
            &mut reader,
            &connector.errors,
            connector.events.on_processing_failure,
            &connector.plugins.transforms,
        );
        connector.filters.signals = connector.signals.table.clone();
        connector.force_heartbeat(&mut reader);
        let concealed = connector.concealed.clone();
        let (connector, mut more) = reader.finish(connector);
        options.guard(&mut more);
        findings.extend(more);
        findings.conceal(&concealed);
        (connector.filter(|_| !findings.has_problems()), findings)
    }

    /// Debezium does this because pgjdbc then moves the slot past what offsets know.
    fn force_heartbeat(&mut self, reader: &mut Reader<'_>) {
        let forced = self.streaming.flush_mode == LsnFlushMode::ConnectorAndDriver
            && self.heartbeat.interval.is_none()
            && !self.events.transaction_metadata;
        if forced {
            self.heartbeat.interval = Some(Duration::from_millis(600_000));
            reader.note(
                "lsn.flush.mode",
                "enables heartbeats: heartbeat.interval.ms is 600000, as in Debezium",
            );
        }
    }
}

/// Every property that a connector may have, without those of transforms, converters and clients.
fn declarations() -> impl Iterator<Item = &'static Declaration> {
    CONNECTOR_GROUPS.iter().flat_map(|group| group.declarations)
}

fn resolve(
    submitted: &Submitted,
    worker: &Worker,
    lookup: &dyn Lookup,
    findings: &mut Findings,
    values: &mut Vec<String>,
) -> Options {
    let mut options = Options::default();
    for (name, text) in &submitted.properties {
        match worker.providers.resolve(name, text, lookup, findings, values) {
            Some(resolved) => options.set_resolved(name, resolved, text),
            None => options.set(name, text),
        }
        warn_of_no_reference(name, text, findings);
    }
    options
}

/// Warns of `${NAME}`, the form of a variable in shells and compose files. Walferry does not replace it.
fn warn_of_no_reference(name: &str, text: &str, findings: &mut Findings) {
    let variable = text.trim().strip_prefix("${").and_then(|inner| inner.strip_suffix('}'));
    let variable = variable.filter(|text| text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
    if let Some(variable) = variable.filter(|_| name.starts_with("database.")) {
        let message = format!("is ${{{variable}}}, which is not replaced: the text itself is used");
        findings
            .warning(name, message)
            .hint(format!("write ${{env:{variable}}} to use the environment variable"));
    }
}

fn connector_name(submitted: &Submitted, name: Option<&str>, reader: &mut Reader<'_>) -> String {
    let name = submitted.name.as_deref().or(name).unwrap_or_default().trim();
    if name.is_empty() {
        reader
            .problem("name", "is required")
            .hint("add it to the file, or give it on the command line");
    } else if name.chars().any(char::is_control) {
        reader.problem("name", "must not contain control characters");
    }
    name.to_owned()
}
