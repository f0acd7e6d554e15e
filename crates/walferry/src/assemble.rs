//! From a checked configuration to the parts of a running connector.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use walferry_diagnosis::{Kind, printed::shell_word};

use tokio::sync::watch;
use tracing::{info, warn};
use uuid::Uuid;
use walferry_config::{
    Connector, Findings, Lookup, Worker,
    connector::{
        ConverterPlugin, LsnFlushMode, NotificationChannel, OffsetMismatch, Plugins, SignalChannel, SnapshotMode,
        TableChanges, Tolerance, TransactionBoundary,
    },
};
use walferry_converter::{
    ConverterType, converter,
    registry::{PreviewRegistry, Registry, RegistrySettings},
};
use walferry_engine::{
    Converters, Disposition, ErrorNames, ErrorPolicy, Failure, Pipeline, SignalSettings, TableShapes,
    connector::{self, ConnectorRun, ConnectorSettings},
    incremental::IncrementalLimits,
    observer::StreamObservers,
    record_skip::SkipCommand,
    source::TableFilter,
    start::{HistoryMismatch, SnapshotPolicy},
    status::Status,
    store::StoredOffset,
    witness::Witness,
};
use walferry_event::EventSettings;
use walferry_event::reselect::RowReader;
use walferry_kafka::{ClientSettings, Producers, Transactions, connect::OffsetLog};
use walferry_offset::{FileStore, ImportError, MemoryStore, import, java_offsets, private};
use walferry_outbox::{TargetKafka, Upkeep};
use walferry_postgres::{Postgres, RowLookups, TimescaleCatalog, replay::Replay};
use walferry_record::SourcePartition;
use walferry_registry::Registries;
use walferry_relay::{KafkaLink, Relay, statements};
use walferry_transform::{Chain, EventRouter, HypertableReader};

use crate::{
    error::Error,
    load::Loaded,
    worker::store::{ConnectorStore, ReturningOffset, TopicNote, TopicStore},
};

/// The transforms and converters of a connector. They are built once, when its configuration is checked.
#[derive(Clone)]
pub(crate) struct Built(Arc<Mutex<BuiltParts>>);

/// None of them has seen a record.
#[derive(Clone)]
struct BuiltParts {
    chain: Chain,
    converters: Converters,
}

impl Built {
    /// Builds them, and checks what only the crates of transforms, converters and the Kafka client can judge. They are there unless a
    /// finding is a problem. Files that options of transforms name are read with `files`.
    pub(crate) fn new(worker: &Worker, plugins: &Plugins, files: &dyn Lookup) -> (Option<Self>, Findings) {
        let (chain, mut findings) = Chain::with_files(&plugins.transforms, &plugins.predicates, files);
        findings.extend(walferry_kafka::ClientSettings::check(worker, plugins));
        let mut build = |plugin: &ConverterPlugin, role| {
            let (converter, more) = converter(&plugin.class, role, &plugin.options);
            findings.extend(more);
            converter
        };
        let key = build(&plugins.key_converter, ConverterType::Key);
        let value = build(&plugins.value_converter, ConverterType::Value);
        let header = build(&plugins.header_converter, ConverterType::Header);
        let parts = || {
            Some(BuiltParts {
                chain: chain?,
                converters: Converters {
                    key: key?,
                    value: value?,
                    header: header?,
                },
            })
        };
        (parts().map(|parts| Self(Arc::new(Mutex::new(parts)))), findings)
    }

    /// What a session begins with: the chain, connected with who reads TimescaleDB's catalog, and the converters, connected with their
    /// registries.
    fn for_session(&self, readers: &Readers, registries: Option<&Registries>) -> (Chain, Converters) {
        let BuiltParts {
            mut chain,
            mut converters,
        } = self.lock().clone();
        chain.attach(&mut || (readers.hypertables)());
        let mut connect = |settings: &_| match registries {
            Some(registries) => registries.of(settings),
            None => Arc::new(PreviewRegistry) as Arc<dyn Registry>,
        };
        for converter in converters.all_mut() {
            converter.attach(&mut connect);
        }
        (chain, converters)
    }

    /// The schemas of events: each transform that has some, with each event type, or expression for types, and its file.
    pub(crate) fn event_schemas(&self) -> Vec<(String, Vec<(String, String)>)> {
        let parts = self.lock();
        let routers = parts.chain.each::<EventRouter>();
        routers
            .map(|(transform, router)| (transform.to_owned(), router.event_schemas()))
            .filter(|(_, schemas)| !schemas.is_empty())
            .collect()
    }

    /// Whether a converter gets ids of schemas from a registry.
    pub(crate) fn asks_registry(&self) -> bool {
        !self.registries().is_empty()
    }

    /// The registries from which converters get ids, each with the properties of the converters that use it.
    pub(crate) fn registries(&self) -> Vec<(RegistrySettings, Vec<&'static str>)> {
        let mut found: Vec<(RegistrySettings, Vec<&'static str>)> = Vec::new();
        let mut converters = self.lock().converters.clone();
        let roles = ["key.converter", "value.converter", "header.converter"];
        for (converter, role) in converters.all_mut().into_iter().zip(roles) {
            converter.attach(&mut |settings| {
                match found.iter_mut().find(|(known, _)| known == settings) {
                    Some((_, roles)) => roles.push(role),
                    None => found.push((settings.clone(), vec![role])),
                }
                Arc::new(PreviewRegistry)
            });
        }
        found
    }

    fn lock(&self) -> MutexGuard<'_, BuiltParts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connect loads a worker's converters at its start, whether a connector uses them or not. Here only one that is used has to be there,
/// which is told with the connector; the others are warned of.
pub(crate) fn unknown_converters(worker: &Worker) -> Findings {
    let mut findings = Findings::default();
    let roles = [
        ("key.converter", &worker.key_converter, ConverterType::Key),
        ("value.converter", &worker.value_converter, ConverterType::Value),
        ("header.converter", &worker.header_converter, ConverterType::Header),
    ];
    for (property, plugin, role) in roles {
        let (found, of_options) = converter(&plugin.class, role, &plugin.options);
        if let Some(problem) = of_options.problems().next().filter(|_| found.is_none()) {
            let message = format!(
                "{}; connectors that do not set {property} themselves do not start",
                problem.text
            );
            findings.warning(property, message).hint = problem.hint.clone();
        }
    }
    findings
}

/// Makes the pipeline of a session that goes on after an offset.
pub(crate) type Pipelines = Box<dyn FnMut(&StoredOffset) -> Result<Pipeline, Failure>>;

/// A connector of Postgres, Kafka and a folder.
pub(crate) type Assembled = ConnectorRun<Postgres, Producers, ConnectorStore, Pipelines>;

/// Where offsets are kept.
#[derive(Debug, Clone)]
pub(crate) struct Offsets {
    /// The data directory; with a topic, what else a connector leaves there.
    pub(crate) data_dir: PathBuf,
    /// Connect's offset topic, where it holds the offsets.
    pub(crate) topic: Option<OffsetLog>,
}

impl Offsets {
    /// Opens the store of one connector. `own_topic` is its `offsets.storage.topic`.
    fn open(&self, partition: SourcePartition, own_topic: Option<&str>) -> Result<ConnectorStore, Failure> {
        match &self.topic {
            // Its last offset is there, and what is in the worker's topic may be older or missing.
            Some(_) if let Some(topic) = own_topic => Err(Failure::stop(
                Kind::Configuration,
                format!(
                    "offsets.storage.topic is {topic:?}: Kafka Connect keeps the offset of this connector in that topic, and Walferry reads \
                     offsets of Connect's topics from offset.storage.topic alone"
                ),
                "let Kafka Connect run once more: stop the connector there, save what GET /connectors/NAME/offsets answers, remove \
                 offsets.storage.topic from its configuration, and write the offset back with PATCH /connectors/NAME/offsets; or take the \
                 connector alone with `walferry run --take NAME`, which asks Kafka Connect for its offset",
            )),
            None => Ok(ConnectorStore::File(FileStore::open_when_possible(
                &self.data_dir,
                partition,
            )?)),
            Some(log) => Ok(ConnectorStore::Topic(TopicStore::open(
                log.clone(),
                partition,
                &self.data_dir,
            ))),
        }
    }

    /// How a person has one change of a connector passed over.
    fn skip_command(&self, connector: &Connector) -> SkipCommand {
        let mut command = format!("walferry offsets skip-record {}", shell_word(&connector.name));
        let folder = std::path::absolute(&self.data_dir).unwrap_or_else(|_| self.data_dir.clone());
        command.push_str(&format!(" --data-dir {}", shell_word(&folder.to_string_lossy())));
        SkipCommand { command, starts: false }
    }

    /// The topic in which a start of the connector would look for its offset. `None`: it would look into a file.
    pub(crate) fn topic_of(&self, loaded: &Loaded) -> Result<Option<OffsetLog>, Failure> {
        match &self.topic {
            Some(topic) => Ok(Some(topic.clone())),
            None => {
                let place = place_of_offset(loaded, &self.data_dir)?;
                place.map(|topic| open_alone(loaded, &topic)).transpose()
            }
        }
    }

    /// Opens the store of a connector that delivers exactly once, and the transactions that it shares with the producer.
    fn open_in_transactions(
        &self,
        loaded: &Loaded,
        kafka: &walferry_kafka::ClientSettings,
    ) -> Result<(ConnectorStore, Transactions), Failure> {
        let config = &loaded.connector;
        let partition = partition(config);
        // Refuses what is refused at least once, too: a folder that cannot be used, or that is in use.
        let own_topic = config.offsets_topic.as_deref();
        drop(self.open(partition.clone(), own_topic)?);
        let log = match &self.topic {
            Some(topic) => topic.clone(),
            None => open_alone(loaded, &topic_alone(config, &loaded.worker))?,
        };
        let group = loaded
            .worker
            .group_id
            .as_deref()
            .map(str::trim)
            .filter(|group| !group.is_empty());
        let transactions = Transactions::new(
            kafka.clone(),
            log.clone(),
            partition.key(),
            group.unwrap_or(GROUP_WITHOUT_A_NAME),
            &config.name,
        );
        let noted = TopicNote::at(&self.data_dir, &partition).read()?;
        let earlier = noted.filter(|topic| self.topic.is_none() && topic != log.topic());
        let earlier = earlier.map(|topic| open_alone(loaded, &topic)).transpose()?;
        let store = TopicStore::open(log, partition, &self.data_dir);
        let store = store.in_transactions(transactions.clone(), self.topic.is_none(), earlier);
        Ok((ConnectorStore::Topic(store), transactions))
    }
}

/// The group of workers in `transactional.id`, if the worker has no `group.id`.
const GROUP_WITHOUT_A_NAME: &str = "walferry";

/// The topic of the offset of a connector that delivers exactly once, if everything else is kept in files.
fn topic_alone(connector: &Connector, worker: &Worker) -> String {
    let of_worker = worker.offset_storage.get("topic").map(str::trim);
    let of_worker = of_worker.filter(|topic| !topic.is_empty());
    let own = connector.offsets_topic.as_deref();
    own.or(of_worker).unwrap_or("walferry-offsets").to_owned()
}

/// The topic that has the offset of a connector whose other state is in files. `None`: it is in a file.
pub(crate) fn place_of_offset(loaded: &Loaded, data_dir: &Path) -> Result<Option<String>, Failure> {
    let partition = partition(&loaded.connector);
    let noted = TopicNote::at(data_dir, &partition).read()?;
    if loaded.connector.exactly_once.is_none() {
        return Ok(noted);
    }
    let topic = topic_alone(&loaded.connector, &loaded.worker);
    let in_file = FileStore::peek(data_dir, &partition).map_err(|error| error.for_good())?;
    Ok(match noted {
        Some(noted) if noted == topic => Some(topic),
        _ if in_file.is_some() => None,
        noted => noted.or(Some(topic)),
    })
}

fn open_alone(loaded: &Loaded, topic: &str) -> Result<OffsetLog, Failure> {
    OffsetLog::open_alone(&loaded.worker, &loaded.bootstrap_servers, topic)
}

/// Transactions do not reach over two clusters.
fn refuse_two_clusters(loaded: &Loaded, kafka: &walferry_kafka::ClientSettings) -> Result<(), Failure> {
    let (records, offsets) = (kafka.bootstrap_servers(), &loaded.bootstrap_servers);
    if records == offsets {
        return Ok(());
    }
    Err(Failure::stop(
        Kind::Configuration,
        format!(
            "records go to {records} and offsets to {offsets}, but with exactly-once delivery both must go to one cluster, because a \
             transaction cannot reach over two"
        ),
        "remove bootstrap.servers from the producer's properties, or write it exactly as the worker's",
    ))
}

/// Puts a connector together, which shares the memory in flight with others: `sharers` is how many they are. Nothing is connected
/// yet; the folder is locked.
pub(crate) fn connector(
    loaded: &Loaded,
    offsets: &Offsets,
    sharers: watch::Receiver<usize>,
    status: Arc<Status>,
) -> Result<Assembled, Failure> {
    let config = &loaded.connector;
    let kafka = kafka(loaded).map_err(|error| {
        Failure::of(
            Disposition::stop(Kind::Configuration),
            Kind::Configuration,
            error.causes(),
        )
    })?;
    let (store, transactions) = match config.exactly_once {
        Some(_) => {
            refuse_two_clusters(loaded, &kafka)?;
            let (store, transactions) = offsets.open_in_transactions(loaded, &kafka)?;
            (store, Some(transactions))
        }
        None => (
            returning(
                offsets.open(partition(config), config.offsets_topic.as_deref())?,
                loaded,
            )?,
            None,
        ),
    };
    take_over_standalone(&store, loaded)?;
    let folder = store.path();
    kafka.warnings().iter().for_each(|warning| status.warn(warning.clone()));
    let longest = kafka.transaction_timeout() / 2;
    let mut sinks = producers(kafka, offsets);
    if let Some(transactions) = transactions {
        sinks = sinks.in_transactions(transactions);
    }
    let mut settings = settings(loaded, sharers);
    // The request is left in the folder, also where the offset is in a topic: it goes into the offset with the next start.
    settings.skip_command = Some(offsets.skip_command(config));
    if let Some(connector::CommitTiming::Every(interval)) = &mut settings.boundary {
        // Else Kafka would abort each transaction before it is committed.
        *interval = longest.min(*interval);
    }
    Ok(ConnectorRun {
        settings,
        source: Postgres::new(config, status.clone()),
        sinks,
        store,
        pipelines: pipelines(loaded, &status, folder, Some(registries(config)), from_postgres(config)),
        status,
    })
}

/// Producers that send only while this process may work on Connect's topics.
fn producers(kafka: walferry_kafka::ClientSettings, offsets: &Offsets) -> Producers {
    let sinks = Producers::new(kafka);
    match &offsets.topic {
        Some(log) => sinks.within(log.tenure()),
        None => sinks,
    }
}

/// What polls an outbox in place of reading the stream.
pub(crate) type AssembledRelay = Relay<Producers, Box<dyn FnMut() -> Result<Pipeline, Failure>>>;

/// Puts a connector in relay mode together. It has no offset: what was sent is marked in its table.
pub(crate) fn relay(
    loaded: &Loaded,
    offsets: &Offsets,
    sharers: &watch::Receiver<usize>,
    status: Arc<Status>,
) -> Result<AssembledRelay, Failure> {
    let config = &loaded.connector;
    let kafka = kafka(loaded).map_err(|error| {
        let kind = Kind::Configuration;
        Failure::of(Disposition::stop(kind), kind, error.causes())
    })?;
    kafka.warnings().iter().for_each(|warning| status.warn(warning.clone()));
    // Later, another process may have sent the same rows, and rows behind them.
    let sinks = producers(kafka.clone().giving_up_after(statements::CONFIRM), offsets);
    let health = sinks.health();
    let mut make = pipelines(loaded, &status, None, Some(registries(config)), from_postgres(config));
    let settings = settings(loaded, sharers.clone());
    let sharers = (*sharers.borrow()).max(1);
    Ok(Relay {
        connector: config.clone(),
        sinks,
        kafka: KafkaLink {
            is_away: Box::new(move || health.trouble().is_some()),
            probe: Arc::new(move || walferry_kafka::check::check(&kafka, &[]).map(drop)),
        },
        pipelines: Box::new(move || make(&StoredOffset::default())),
        in_flight_bytes: settings.in_flight_bytes / sharers,
        status,
    })
}

/// The upkeep of the connector's outboxes in one run; `None` if there is nothing to do.
pub(crate) fn outbox_upkeep(loaded: &Loaded) -> Option<Upkeep> {
    let config = &loaded.connector;
    let (client, _) = ClientSettings::read(&loaded.worker, config, &loaded.bootstrap_servers);
    let kafka = TargetKafka {
        // `producer.override.bootstrap.servers` comes first.
        brokers: client.as_ref().map_or("", ClientSettings::bootstrap_servers).to_owned(),
        waits_for_brokers: client.as_ref().is_some_and(ClientSettings::waits_for_brokers),
    };
    let chain = loaded.built.lock().chain.clone();
    Upkeep::new(config, chain, event_settings(config), &kafka)
}

/// The store of a connector that has delivered exactly once before: its offset comes back from the topic.
fn returning(store: ConnectorStore, loaded: &Loaded) -> Result<ConnectorStore, Failure> {
    let ConnectorStore::File(file) = store else {
        return Ok(store);
    };
    let note = TopicNote::of(&file);
    let Some(topic) = note.read()? else {
        return Ok(ConnectorStore::File(file));
    };
    let log = open_alone(loaded, &topic)?;
    let partition = partition(&loaded.connector);
    let returning = ReturningOffset {
        log,
        key: partition.key(),
        partition,
        note,
    };
    Ok(ConnectorStore::Returning(file, returning))
}

/// The same with a temporary slot and an offset in memory, of which nothing is left. The pipeline has a witness for each session.
pub(crate) fn passing<K>(
    loaded: &Loaded,
    sinks: K,
    mut witness: impl FnMut() -> Box<dyn Witness> + 'static,
    status: Arc<Status>,
) -> ConnectorRun<Postgres, K, MemoryStore, Pipelines> {
    let config = &loaded.connector;
    let mut make = pipelines(loaded, &status, None, None, from_postgres(config));
    ConnectorRun {
        settings: ConnectorSettings {
            // When the connection is lost, the slot is gone, and with it the way to go on.
            max_retries: Some(0),
            boundary: None,
            confirm: true,
            snapshot_delay: Duration::ZERO,
            streaming_delay: Duration::ZERO,
            ..settings(loaded, watch::Sender::new(1).subscribe())
        },
        source: Postgres::new(config, status.clone()).with_temporary_slot(),
        sinks,
        store: MemoryStore::default(),
        pipelines: Box::new(move |after| Ok(make(after)?.with_witness(witness()))),
        status,
    }
}

/// A connector that reads the rows of one table again, without a slot, and then waits. The pipeline has a witness for each session.
pub(crate) fn replaying<K, O>(
    loaded: &Loaded,
    (schema, table): (String, String),
    source: Replay,
    sinks: K,
    store: O,
    mut witness: impl FnMut() -> Box<dyn Witness> + 'static,
    status: Arc<Status>,
) -> ConnectorRun<Replay, K, O, Pipelines> {
    let config = &loaded.connector;
    let mut make = pipelines(loaded, &status, None, Some(registries(config)), from_postgres(config));
    ConnectorRun {
        settings: ConnectorSettings {
            snapshot_tables: Arc::new(move |of, name| of == schema && name == table),
            confirm: false,
            boundary: None,
            ..settings(loaded, watch::Sender::new(1).subscribe())
        },
        source,
        sinks,
        store,
        pipelines: Box::new(move |after| Ok(make(after)?.with_witness(witness()))),
        status,
    }
}

/// Takes the offset over that a standalone worker of Connect or Debezium Server has left in its file, if there is none here. That happens
/// once: an offset that is reset later stays so.
fn take_over_standalone(store: &ConnectorStore, loaded: &Loaded) -> Result<(), Failure> {
    let file = loaded.worker.offset_storage.get("file.filename").map(str::trim);
    let (ConnectorStore::File(store), Some(file)) = (store, file.filter(|file| !file.is_empty())) else {
        return Ok(());
    };
    let marker = store.path().with_file_name("standalone-offset");
    let unusable = |error: walferry_offset::Error| error.for_good();
    let mark = || {
        let text = "The offset of a standalone worker is not taken over while this file is here: it was taken over before, or there was \
                    another offset.\n";
        private::create(&marker)?.write_all(text.as_bytes())
    };
    if marker.exists() {
        return Ok(());
    }
    if store.read().map_err(unusable)?.is_some() {
        // Once that offset is reset, the older one of the standalone worker must not come back.
        if let Err(error) = mark() {
            // A disk that is full must not keep the connector from its start. The next start tries again.
            warn!(
                path = %marker.display(),
                %error,
                "it could not be noted that the offset file of a standalone worker is not needed any more"
            );
        }
        return Ok(());
    }
    let stop = |what: String| {
        let hint = "look at the path of offset.storage.file.filename, or leave that property out: the first start then goes by \
                    `snapshot.mode`";
        Failure::stop(
            Kind::OffsetImport,
            format!("the offset file {file} cannot be taken over: {what}"),
            hint,
        )
    };
    let bytes = match fs::read(file) {
        Ok(bytes) if bytes.is_empty() => return Ok(()),
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(stop(error.to_string())),
    };
    let text = java_offsets(&bytes).map_err(|error| stop(error.to_string()))?;
    let partition = partition(&loaded.connector);
    match import(&partition, &text) {
        Ok(found) => {
            store.replace(&found.offset).map_err(unusable)?;
            let lsn = found.offset.start().unwrap_or_default();
            info!(file, lsn.stored = %lsn, "the offset of a standalone worker is taken over");
        }
        Err(ImportError::NotOurs { .. } | ImportError::Empty) => {
            info!(
                file,
                "the offset file of a standalone worker has no offset for this connector"
            );
            return Ok(());
        }
        Err(error) => return Err(stop(error.to_string())),
    }
    let marked = mark();
    marked.map_err(|error| stop(format!("{}: {error}", marker.display())))
}

/// What the Kafka clients of a connector need to know.
pub(crate) fn kafka(loaded: &Loaded) -> Result<walferry_kafka::ClientSettings, Error> {
    let (settings, findings) =
        walferry_kafka::ClientSettings::read(&loaded.worker, &loaded.connector, &loaded.bootstrap_servers);
    settings.ok_or_else(|| {
        Error::new(Kind::KafkaSettings, "the Kafka client's properties cannot be used")
            .because(findings.problems().cloned())
    })
}

/// Under which key offsets are stored.
pub(crate) fn partition(config: &Connector) -> SourcePartition {
    SourcePartition {
        connector: config.name.clone(),
        server: config.topics.prefix.to_string(),
    }
}

/// Which tables are captured.
pub(crate) fn captured(config: &Connector) -> TableFilter {
    let filters = config.filters.clone();
    Arc::new(move |schema, table| filters.captures_table(schema, table))
}

/// The captured tables that snapshots read.
pub(crate) fn snapshot_tables(config: &Connector) -> TableFilter {
    let (filters, include) = (config.filters.clone(), config.snapshot.include.clone());
    // What was signalled before is nothing that happens now.
    Arc::new(move |schema, table| {
        filters.captures_table(schema, table)
            && (include.is_empty() || include.matches(&format!("{schema}.{table}")))
            && !filters.is_signals(schema, table)
    })
}

/// Whether a start reads existing rows when there is no offset.
pub(crate) fn snapshot_policy(config: &Connector) -> SnapshotPolicy {
    let mode = config.snapshot.mode;
    let by_flags = mode == SnapshotMode::ConfigurationBased;
    let flags = &config.snapshot.configuration_based;
    SnapshotPolicy {
        at_first_start: matches!(
            mode,
            SnapshotMode::Initial | SnapshotMode::InitialOnly | SnapshotMode::WhenNeeded
        ),
        at_every_start: mode == SnapshotMode::Always || by_flags && flags.data,
        when_lost: mode == SnapshotMode::WhenNeeded || by_flags && flags.on_data_error,
        stream: config.snapshot.streams(),
    }
}

/// What is done where slot and offset do not belong together.
pub(crate) const fn history_mismatch(config: &Connector) -> HistoryMismatch {
    match config.streaming.offset_mismatch {
        None => HistoryMismatch::Refuse,
        Some(
            OffsetMismatch::NoValidation
            | OffsetMismatch::TrustOffset
            | OffsetMismatch::TrustSlot
            | OffsetMismatch::TrustGreaterLsn,
        ) => HistoryMismatch::GoOn,
    }
}

/// With `transaction.boundary=poll`, the longest time that records wait for the commit of their transaction.
const LONGEST_TRANSACTION: Duration = Duration::from_millis(100);

fn settings(loaded: &Loaded, sharers: watch::Receiver<usize>) -> ConnectorSettings {
    let config = &loaded.connector;
    ConnectorSettings {
        slot: config.slot.name.to_string(),
        snapshot: snapshot_policy(config),
        mismatch: history_mismatch(config),
        tables: captured(config),
        snapshot_tables: snapshot_tables(config),
        flush_interval: loaded.worker.offset_flush_interval,
        in_flight_bytes: usize::try_from(config.streaming.in_flight_max_bytes).unwrap_or(usize::MAX),
        sharers,
        max_retries: config.errors.max_retries,
        confirm: config.streaming.flush_mode != LsnFlushMode::Manual,
        drop_slot_on_stop: config.slot.drop_on_stop,
        heartbeat: config.heartbeat.interval,
        snapshot_delay: config.snapshot.delay,
        streaming_delay: config.snapshot.streaming_delay,
        skip_command: None,
        boundary: config.exactly_once.map(|boundary| match boundary {
            TransactionBoundary::Poll => connector::CommitTiming::WhenIdle(LONGEST_TRANSACTION),
            TransactionBoundary::Interval(interval) => connector::CommitTiming::Every(interval),
        }),
        limits: IncrementalLimits {
            rows_per_second: config.signals.max_rows_per_second,
            lag_bytes: config.signals.max_lag_bytes,
            // Without a signal table, and if it may write one, no chunk is ever read.
            reads_chunks: config.signals.table.is_some() || config.signals.read_only,
        },
        observers: StreamObservers::default(),
    }
}

/// What happens to records that cannot be sent.
fn error_policy(config: &Connector) -> ErrorPolicy {
    let errors = &config.errors;
    ErrorPolicy {
        all: errors.tolerance == Tolerance::All,
        changes: config.events.on_processing_failure,
        dead_letters: errors.dead_letter_topic.as_ref().map(ToString::to_string),
        retry_timeout: errors.retry_timeout,
        quiet: !errors.log,
        names: error_names(config),
    }
}

fn error_names(config: &Connector) -> ErrorNames {
    let plugins = &config.plugins;
    let transforms = plugins.transforms.iter();
    ErrorNames {
        connector: config.name.clone(),
        transforms: transforms
            .map(|transform| (transform.name.clone(), transform.class.clone()))
            .collect(),
        header_converter: plugins.header_converter.class.clone(),
        key_converter: plugins.key_converter.class.clone(),
        value_converter: plugins.value_converter.class.clone(),
    }
}

/// The clients of schema registries, with the limits of a connector.
fn registries(config: &Connector) -> Registries {
    Registries::pausing_at_most(config.errors.retry_delay_max).answering_within(error_policy(config).answer_limit())
}

/// What events are made with. The run id, as in Debezium, is new at each start of the process.
fn event_settings(config: &Connector) -> Arc<EventSettings> {
    let run = Uuid::now_v7().to_string();
    Arc::new(EventSettings::new(config, env!("CARGO_PKG_VERSION"), &run))
}

/// Makes the pipeline of each session.
///
/// Without `registries` nothing is registered: for what only looks.
pub(crate) fn pipelines(
    loaded: &Loaded,
    status: &Status,
    folder: Option<PathBuf>,
    registries: Option<Registries>,
    readers: Readers,
) -> Pipelines {
    let config = &loaded.connector;
    let events = event_settings(config);
    let tolerance = error_policy(config);
    let (built, heartbeat) = (loaded.built.clone(), config.heartbeat.interval);
    let has_post_processors = !config.post_processors.is_empty();
    let signals = signals(config);
    let table_limit = config.streaming.max_tables;
    let stops = config.streaming.table_changes == TableChanges::Stop;
    // A connector that is started again gets new ones.
    let shapes = stops.then(TableShapes::default);
    let xmin = config.streaming.xmin_interval.map(|_| status.xmin.clone());
    Box::new(move |after| {
        // Anew for each session, as a task of Debezium has it: what one session knows of the catalog is not kept for the next.
        let (chain, converters) = built.for_session(&readers, registries.as_ref());
        let mut pipeline = Pipeline::new(events.clone(), chain, converters, tolerance.clone(), after);
        if let Some(folder) = &folder {
            pipeline = pipeline.with_folder(folder.clone());
        }
        pipeline = pipeline.with_signals(signals.clone(), after);
        if let Some(interval) = heartbeat {
            pipeline = pipeline.with_heartbeats(interval);
        }
        if let Some((most, action)) = table_limit {
            pipeline = pipeline.with_table_limit(most, action);
        }
        if let Some(shapes) = &shapes {
            pipeline = pipeline.stopping_at_changes_of(shapes.clone(), after);
        }
        if let Some(rows) = readers.rows.as_ref().filter(|_| has_post_processors) {
            pipeline = pipeline.with_rows(rows());
        }
        if let Some(xmin) = &xmin {
            pipeline = pipeline.with_xmin(xmin.clone());
        }
        Ok(pipeline)
    })
}

/// What a pipeline reads of the database beside the stream.
pub(crate) struct Readers {
    /// TimescaleDB's catalog, where a transform needs it.
    pub(crate) hypertables: Box<dyn Fn() -> Arc<dyn HypertableReader>>,
    /// Rows that post-processors read again; `None` where events shall stay as they come.
    pub(crate) rows: Option<Box<dyn Fn() -> Arc<dyn RowReader>>>,
}

/// Reads it of the connector's database, each on a connection that is opened when it is first needed.
pub(crate) fn from_postgres(config: &Connector) -> Readers {
    let (for_catalog, for_rows) = (config.clone(), config.clone());
    Readers {
        hypertables: Box::new(move || Arc::new(TimescaleCatalog::new(&for_catalog))),
        rows: Some(Box::new(move || Arc::new(RowLookups::new(&for_rows)))),
    }
}

/// Reads signals from Kafka, where they come from there, until what is returned is dropped.
pub(crate) fn signals_of_topic(loaded: &Loaded, status: &Arc<Status>) -> Option<walferry_kafka::SignalReader> {
    if !loaded.connector.signals.has(SignalChannel::Kafka) {
        return None;
    }
    // They were read once when the connector was put together.
    let settings = kafka(loaded).ok()?;
    let signals = walferry_kafka::SignalReader::follow(&loaded.worker, &loaded.connector, &settings, status.clone());
    Some(signals)
}

/// What the path has to know of signals and notifications. Signals can always be given to the admin endpoint.
fn signals(config: &Connector) -> SignalSettings {
    let section = &config.signals;
    SignalSettings {
        server: config.topics.prefix.to_string(),
        source: section.has(SignalChannel::Source),
        table: section.table.as_ref().map(|table| table.dotted()),
        read_only: section.read_only,
        watermarking: section.watermarking,
        topic: section
            .notification_topic
            .clone()
            .filter(|_| section.notifies(NotificationChannel::Sink)),
        log: section.notifies(NotificationChannel::Log),
        status: section.notifies(NotificationChannel::Jmx),
    }
}

#[cfg(test)]
mod tests {
    use walferry_config::{Nowhere, Submitted};

    use super::*;

    /// All that reading a file tells, with one text as the value of each option of a class, or of each of several properties.
    fn told(pairs: impl IntoIterator<Item = (String, String)>, worker: &Worker) -> String {
        let submitted = Submitted {
            name: Some("c".to_owned()),
            properties: pairs.into_iter().collect(),
        };
        let (_, findings) = Connector::read(&submitted, None, worker, &Nowhere, &|plugins| {
            Built::new(worker, plugins, &Nowhere).1
        });
        findings.iter().map(|finding| format!("{finding}\n")).collect()
    }

    #[test]
    fn no_option_of_a_transform_a_converter_or_a_client_shows_a_secret() {
        let texts = [
            "postgres://app:hunter2@db/shop",
            "http://app%3Ahunter2%40registry:8081",
            "app:hunter2@",
            "password=hunter2",
            "${vault:hunter2/path:hunter2}",
            "${secret:x}",
            "a.Module required password=hunter2;",
            "{\"token\": \"hunter2\"",
        ];
        let options = |prefix: &str, group: &walferry_config::Group, text: &str| -> Vec<_> {
            let names = group
                .declarations
                .iter()
                .map(|declaration| declaration.name.replace(['<', '>'], ""));
            names.map(|name| (format!("{prefix}{name}"), text.to_owned())).collect()
        };
        let client = [
            "acks",
            "linger.ms",
            "batch.size",
            "bootstrap.servers",
            "compression.type",
            "client.id",
            "partitioner.class",
            "sasl.mechanism",
            "security.protocol",
            "sasl.jaas.config",
            "sasl.login.callback.handler.class",
            "sasl.oauthbearer.token.endpoint.url",
            "sasl.oauthbearer.jwt.retriever.class",
            "sasl.kerberos.service.name",
            "ssl.truststore.location",
            "ssl.truststore.type",
            "ssl.truststore.certificates",
            "ssl.keystore.location",
            "ssl.keystore.type",
            "ssl.keystore.key",
            "ssl.endpoint.identification.algorithm",
            "ssl.protocol",
            "ssl.enabled.protocols",
            "ssl.cipher.suites",
            "max.request.size",
            "interceptor.classes",
            "no.such.property",
            "enable.idempotence",
            "request.timeout.ms",
            "transactional.id",
            "metric.reporters",
        ];
        for text in texts {
            let mut cases: Vec<(String, Vec<(String, String)>)> = Vec::new();
            for transform in walferry_transform::all_transforms() {
                for side in if transform.sides {
                    &["$Key", "$Value"][..]
                } else {
                    &[""]
                } {
                    let mut pairs = options("transforms.t.", &transform.options, text);
                    pairs.push(("transforms".to_owned(), "t".to_owned()));
                    pairs.push(("transforms.t.type".to_owned(), format!("{}{side}", transform.class)));
                    cases.push((transform.class.to_owned(), pairs));
                }
            }
            for predicate in walferry_transform::all_predicates() {
                let mut pairs = options("predicates.p.", &predicate.options, text);
                pairs.push(("predicates".to_owned(), "p".to_owned()));
                pairs.push(("predicates.p.type".to_owned(), predicate.class.to_owned()));
                cases.push((predicate.class.to_owned(), pairs));
            }
            for (class, group) in walferry_converter::classes() {
                for property in ["key.converter", "value.converter", "header.converter"] {
                    let mut pairs = group.map_or_else(Vec::new, |group| options(&format!("{property}."), group, text));
                    pairs.push((property.to_owned(), class.to_owned()));
                    cases.push((format!("{property}={class}"), pairs));
                }
            }
            for property in [
                "key.converter",
                "transforms.t.type",
                "predicates.p.type",
                "transforms.t.predicate",
                "transforms.t.negate",
            ] {
                let names = [("transforms", "t"), ("predicates", "p"), (property, text)];
                let pairs = names.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
                cases.push((property.to_owned(), pairs));
            }
            for prefix in [
                "producer.override.",
                "admin.override.",
                "consumer.override.",
                "producer.",
                "",
            ] {
                let pairs = client.map(|property| (format!("{prefix}{property}"), text.to_owned()));
                cases.push((prefix.to_owned(), pairs.to_vec()));
            }
            for (case, pairs) in cases {
                let told = told(pairs, &Worker::default());
                assert!(!told.contains("hunter2"), "{case}, {text}: {told}");
            }
            for prefix in ["", "producer.", "admin."] {
                let pairs = client.map(|property| (format!("{prefix}{property}"), text.to_owned()));
                let (worker, findings) = worker_of(pairs.to_vec());
                let told = format!("{findings:?}{}", told([], &worker.unwrap_or_default()));
                assert!(!told.contains("hunter2"), "{prefix} of the worker, {text}: {told}");
            }
            for property in ["key.converter", "value.converter", "header.converter"] {
                let (worker, findings) = worker_of(vec![(property.to_owned(), text.to_owned())]);
                let told = format!("{findings:?}{:?}", worker.map(|worker| unknown_converters(&worker)));
                assert!(!told.contains("hunter2"), "{property} of the worker, {text}: {told}");
            }
        }
    }

    fn worker_of(properties: Vec<(String, String)>) -> (Option<Worker>, Findings) {
        Worker::read(&Submitted { name: None, properties }, &Nowhere)
    }

    #[test]
    fn an_offset_that_was_reset_does_not_come_back_from_a_standalone_workers_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("connect.offsets");
        // Reading it would be an error.
        fs::write(&file, "no map of Java").expect("the folder can be written");
        let properties = vec![("offset.storage.file.filename".to_owned(), file.display().to_string())];
        let worker = worker_of(properties).0.expect("it is a worker");
        let configuration = [
            ("name", "c"),
            ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
            ("plugin.name", "pgoutput"),
            ("database.hostname", "db"),
            ("database.user", "u"),
            ("database.dbname", "db"),
            ("topic.prefix", "t"),
        ];
        let configuration: Vec<_> = configuration
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into();
        let (checked, findings) = crate::load::load_configuration("c", &configuration, &worker);
        let checked = checked.unwrap_or_else(|| panic!("{findings:?}"));
        let loaded = Loaded {
            connector: checked.connector,
            built: checked.built,
            worker,
            bootstrap_servers: "127.0.0.1:1".into(),
            configuration,
            file: "c.json".into(),
        };
        let store = FileStore::open(&folder.path().join("data"), partition(&loaded.connector)).expect("it opens");
        store.replace(&StoredOffset::default()).expect("it is written");
        let store = ConnectorStore::File(store);
        take_over_standalone(&store, &loaded).expect("there is an offset");
        let ConnectorStore::File(files) = &store else {
            unreachable!()
        };
        files.remove().expect("it is removed");
        take_over_standalone(&store, &loaded).expect("the file is not read");
        assert_eq!(files.read().expect("it is readable"), None);
    }

    #[test]
    fn a_connector_with_an_offset_topic_of_its_own_is_refused_on_connects_topics() {
        let topics = [
            ("group.id", "g"),
            ("config.storage.topic", "configs"),
            ("offset.storage.topic", "offsets"),
            ("status.storage.topic", "states"),
        ];
        let topics = topics.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let worker = worker_of(topics.into()).0.expect("it is a worker");
        // Nothing is asked of Kafka.
        let topics = walferry_kafka::connect::ConnectTopics::of(&worker, "127.0.0.1:1").expect("they are right");
        let log = OffsetLog::open(&topics.expect("there are topics")).expect("a client");
        let folder = tempfile::tempdir().expect("a folder");
        let offsets = |topic| Offsets {
            data_dir: folder.path().to_owned(),
            topic,
        };
        let partition = || SourcePartition {
            connector: "c".into(),
            server: "t".into(),
        };
        let failure = offsets(Some(log.clone())).open(partition(), Some("own-offsets")).err();
        let failure = failure.expect("its last offset is elsewhere");
        assert_eq!(failure.kind, Kind::Configuration);
        let text = format!("{failure} {}", failure.hint().unwrap_or_default());
        for part in ["offsets.storage.topic", "own-offsets", "--take"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // Files are read wherever Connect kept its offsets.
        assert!(offsets(None).open(partition(), Some("own-offsets")).is_ok());
        assert!(offsets(Some(log)).open(partition(), None).is_ok());
    }

    fn policy(mode: &str) -> SnapshotPolicy {
        let text = format!(
            r#"{{"name": "c", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput", "database.hostname": "db", "database.user": "u", "database.dbname": "db",
            "topic.prefix": "t", "snapshot.mode": {mode}}}"#
        );
        let (submitted, _) = Submitted::read(&text).expect("it is JSON");
        let (connector, findings) =
            Connector::read(&submitted, None, &Worker::default(), &Nowhere, &|_| Findings::default());
        snapshot_policy(&connector.unwrap_or_else(|| panic!("{findings:?}")))
    }

    #[test]
    fn snapshots_are_taken_when_the_mode_says() {
        let flag = |name| format!(r#""configuration_based", "snapshot.mode.configuration.based.{name}": "true""#);
        let cases = [
            (r#""initial""#.to_owned(), (true, false, false, true)),
            (r#""initial_only""#.to_owned(), (true, false, false, false)),
            (r#""no_data""#.to_owned(), (false, false, false, true)),
            (r#""when_needed""#.to_owned(), (true, false, true, true)),
            (r#""always""#.to_owned(), (false, true, false, true)),
            (flag("start.stream"), (false, false, false, true)),
            (flag("snapshot.data"), (false, true, false, false)),
            (flag("snapshot.on.data.error"), (false, false, true, false)),
        ];
        for (mode, expected) in cases {
            let SnapshotPolicy {
                at_first_start,
                at_every_start,
                when_lost,
                stream,
            } = policy(&mode);
            assert_eq!((at_first_start, at_every_start, when_lost, stream), expected, "{mode}");
        }
    }
}
