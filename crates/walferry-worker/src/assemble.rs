//! From a checked configuration to a run of a connector: the engine's settings, and its parts.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use walferry_config::{
    Connector,
    connector::{LsnFlushMode, OffsetMismatch, SnapshotMode, TransactionBoundary},
};
use walferry_engine::{
    DeputyRole, Failure, Pipeline,
    connector::{self, ConnectorRun, ConnectorSettings},
    incremental::IncrementalLimits,
    observer::StreamObservers,
    source::TableFilter,
    start::{HistoryMismatch, SnapshotPolicy},
    status::Status,
    store::StoredOffset,
    witness::Witness,
};
use walferry_kafka::{ClientSettings, Producers};
use walferry_offset::MemoryStore;
use walferry_outbox::{TargetKafka, Upkeep};
use walferry_postgres::{Postgres, replay::Replay};
use walferry_relay::{KafkaLink, Relay, statements};

use crate::{
    loaded::Loaded,
    pipeline_of::{Pipelines, event_settings, from_postgres, pipelines, registries},
    sinks::{kafka_of_run, producers, refuse_two_clusters},
    store::ConnectorStore,
    stores::{Offsets, partition, returning, take_over_standalone},
};

/// A connector of Postgres, Kafka and a folder.
pub(crate) type Assembled = ConnectorRun<Postgres, Producers, ConnectorStore, Pipelines>;

/// Puts a connector together, which shares the memory in flight with others: `sharers` is how many they are. Nothing is connected
/// yet; the folder is locked.
pub fn connector(
    loaded: &Loaded,
    offsets: &Offsets,
    sharers: watch::Receiver<usize>,
    status: Arc<Status>,
) -> Result<Assembled, Failure> {
    let config = &loaded.connector;
    let kafka = kafka_of_run(loaded)?;
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
    // A run after another one finds the same.
    let _ = status.gap_command.set(offsets.gap_command(config));
    // With Connect's topics, the group decides which process works.
    settings.other_reader = offsets.topic.is_none().then_some(config.slot.patience);
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

/// What polls an outbox in place of reading the stream.
pub(crate) type AssembledRelay = Relay<Producers, Box<dyn FnMut() -> Result<Pipeline, Failure>>>;

/// Puts a connector in relay mode together. It has no offset: what was sent is marked in its table.
pub fn relay(
    loaded: &Loaded,
    offsets: &Offsets,
    sharers: &watch::Receiver<usize>,
    status: Arc<Status>,
) -> Result<AssembledRelay, Failure> {
    let config = &loaded.connector;
    let kafka = kafka_of_run(loaded)?;
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
    let chain = loaded.built.chain();
    Upkeep::new(config, chain, event_settings(config), &kafka)
}

/// The same with a temporary slot and an offset in memory, of which nothing is left. The pipeline has a witness for each session.
pub fn passing<K>(
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
pub fn replaying<K, O>(
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

pub fn captured(config: &Connector) -> TableFilter {
    let filters = config.filters.clone();
    Arc::new(move |schema, table| filters.captures_table(schema, table))
}

/// The captured tables that snapshots read.
pub fn snapshot_tables(config: &Connector) -> TableFilter {
    let (filters, include) = (config.filters.clone(), config.snapshot.include.clone());
    // What was signalled before is nothing that happens now.
    Arc::new(move |schema, table| {
        filters.captures_table(schema, table)
            && (include.is_empty() || include.matches(&format!("{schema}.{table}")))
            && !filters.is_signals(schema, table)
    })
}

/// Whether a start reads existing rows when there is no offset.
pub fn snapshot_policy(config: &Connector) -> SnapshotPolicy {
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
pub const fn history_mismatch(config: &Connector) -> HistoryMismatch {
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
        other_reader: None,
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
        deputy: DeputyRole::none(),
    }
}

#[cfg(test)]
mod tests {
    use walferry_config::{Findings, Nowhere, Submitted, Worker};

    use super::*;

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
