//! Takes care of the outbox tables of a connector: counts what waits, removes delivered rows, and creates partitions, each on a connection of
//! its own.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, time::sleep};
use tracing::{debug, warn};
use walferry_config::{
    Connector,
    connector::{FailureHandling, Tolerance},
};
use walferry_diagnosis::Kind;
use walferry_engine::{
    Failure,
    observer::{StreamObserver, StreamObservers},
    status::Status,
};
use walferry_event::EventSettings;
use walferry_transform::Chain;

use crate::{
    cleanup::Cleaner, lower_bounds::RunBounds, outboxes::Outboxes, partitions::OutboxPartitions, sends,
    watch::OutboxWatch,
};

/// The upkeep of all outboxes of a connector, in one of its runs.
pub struct Upkeep {
    connector: Connector,
    outboxes: Outboxes,
    /// `None` if no rows are removed.
    removal: Option<Removal>,
}

/// What the removal of delivered rows knows of the stream.
struct Removal {
    bounds: Arc<RunBounds>,
    /// Whether a connection of the stream always goes on where the last one was. With `offset.mismatch.strategy`, it skips changes if
    /// something else has moved the slot.
    outlives_connections: bool,
}

/// The Kafka to which records are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetKafka {
    /// Its `bootstrap.servers`, in any order.
    pub brokers: String,
    /// Whether records are confirmed only once a broker has them.
    pub waits_for_brokers: bool,
}

/// Finds another login when the server refuses one: the stream goes on with the old one for as long as its session lasts.
pub trait LoginRenewal: Clone {
    /// Whether the server knows neither user nor password.
    fn is_refused(&self, failure: &Failure) -> bool;

    /// To be called after a failure. The connector's settings with another login, if there is one to try now.
    fn renew(&mut self, failure: &Failure) -> impl Future<Output = Option<Connector>>;
}

impl Upkeep {
    /// `None` if there is nothing to do. It must be made before the connector runs, because it observes the stream from its beginning. If
    /// delivered rows are not removed although they were to be, the log says why.
    pub fn new(connector: &Connector, chain: Chain, events: Arc<EventSettings>, kafka: &TargetKafka) -> Option<Self> {
        let outboxes = Outboxes::new(connector, chain, events)?;
        let removes_rows = outboxes.removes_rows() && may_remove_rows(connector, kafka);
        let removal = removes_rows.then(|| {
            let outlives_connections = connector.streaming.offset_mismatch.is_none();
            let configuration = outlives_connections.then(|| sends::text(connector, &kafka.brokers));
            Removal {
                bounds: Arc::new(RunBounds::new(configuration)),
                outlives_connections,
            }
        });
        Some(Self {
            connector: connector.clone(),
            outboxes,
            removal,
        })
    }

    /// What has to know how far the stream is.
    pub fn observers(&self) -> StreamObservers {
        let bounds = self.removal.iter().map(|removal| removal.bounds.clone());
        StreamObservers::new(bounds.map(|bounds| bounds as Arc<dyn StreamObserver>).collect())
    }

    /// Takes care of them, without an end.
    pub fn run(self, status: Arc<Status>, login: impl LoginRenewal) -> impl Future<Output = ()> {
        let Self {
            connector,
            outboxes,
            removal,
        } = self;
        let outboxes = Mutex::new(outboxes);
        async move {
            let clean = async {
                if let Some(removal) = &removal {
                    clean_outboxes(&connector, &outboxes, removal, &status, login.clone()).await;
                }
            };
            tokio::join!(
                clean,
                watch_outboxes(&connector, &outboxes, &status, login.clone()),
                create_partitions(&connector, &outboxes, &status, login.clone())
            );
        }
    }
}

/// `walferry.partitions`: creates partitions ahead.
async fn create_partitions(
    connector: &Connector,
    outboxes: &Mutex<Outboxes>,
    status: &Status,
    mut login: impl LoginRenewal,
) {
    const INTERVAL: Duration = Duration::from_secs(60);
    /// After the server could not be asked.
    const SOON: Duration = Duration::from_secs(10);

    if !outboxes.lock().await.has_partitions() {
        return;
    }
    let (mut partitions, mut reported) = (OutboxPartitions::new(connector), None);
    loop {
        let created = async {
            let mut outboxes = outboxes.lock().await;
            let listed = outboxes.list().await?.iter();
            let tables: Vec<_> = listed.filter_map(|table| table.partitioned.clone()).collect();
            drop(outboxes);
            partitions.create(&tables).await.map_err(Failure::from)
        };
        let pause = match created.await {
            Ok(created) => {
                reported = None;
                status.counters.outbox_partitions.fetch_add(created.partitions, Relaxed);
                for _ in 0..created.refused {
                    status.count_error(Kind::OutboxPartitions);
                }
                created
                    .again
                    .map_or(INTERVAL, |again| again.clamp(Duration::from_secs(1), INTERVAL))
            }
            Err(failure) => {
                tell_of_partitions(&failure, status, &mut reported);
                outboxes.lock().await.list_anew();
                if let Some(renewed) = renew(&mut login, &failure, outboxes).await {
                    partitions.log_in_with(&renewed.postgres);
                }
                SOON
            }
        };
        sleep(pause).await;
    }
}

/// Counts and reports that partitions could not be looked at. The same again is only counted. While nothing is streamed either, the connector
/// itself says why Postgres cannot be reached.
fn tell_of_partitions(failure: &Failure, status: &Status, reported: &mut Option<String>) {
    if status.stream.state().streaming().is_none() {
        debug!(code = Kind::OutboxPartitions.code(), error = %failure, "the partitions of an outbox could not be looked at; trying again");
        return;
    }
    status.count_error(Kind::OutboxPartitions);
    let text = failure.to_string();
    if reported.as_ref() != Some(&text) {
        warn!(
            code = Kind::OutboxPartitions.code(),
            error = %failure,
            hint = failure.hint(),
            "no partition of an outbox could be created, because the server could not be asked; trying again"
        );
        *reported = Some(text);
    }
}

/// `walferry.watch`: counts the rows of outbox tables that are not confirmed.
async fn watch_outboxes(
    connector: &Connector,
    outboxes: &Mutex<Outboxes>,
    status: &Status,
    mut login: impl LoginRenewal,
) {
    let mut watch = OutboxWatch::new(connector);
    let mut reported = None;
    loop {
        let (begun, mut waited) = (Instant::now(), Duration::ZERO);
        let looked = async {
            let mut outboxes = outboxes.lock().await;
            let tables: Vec<_> = outboxes
                .list()
                .await?
                .iter()
                .map(|table| table.watched.clone())
                .collect();
            drop(outboxes);
            watch.look(&tables).await.map_err(Failure::from)
        };
        match looked.await {
            Ok(seen) => {
                reported = None;
                waited = seen.waited;
                status.set_outboxes(seen.outboxes);
                for _ in 0..seen.failed {
                    status.count_error(Kind::OutboxWatch);
                }
            }
            // The connector itself says why Postgres cannot be reached.
            Err(failure) => {
                status.set_outboxes(Vec::new());
                let text = failure.to_string();
                // The same again is only counted.
                if reported.as_ref() != Some(&text) {
                    debug!(code = Kind::OutboxWatch.code(), error = %failure, "the rows of an outbox could not be counted; trying again");
                    reported = Some(text);
                }
                status.count_error(Kind::OutboxWatch);
                if let Some(renewed) = renew(&mut login, &failure, outboxes).await {
                    watch.log_in_with(&renewed.postgres);
                }
            }
        }
        sleep(watch_pause(begun.elapsed(), waited)).await;
    }
}

/// How long the server is left alone after a look that `took` so long: for several times as long as it worked. Of this time, the look has
/// `waited` until the slot was confirmed.
fn watch_pause(took: Duration, waited: Duration) -> Duration {
    const INTERVAL: Duration = Duration::from_secs(5);
    const SHARE: u32 = 10;
    INTERVAL.max(took.saturating_sub(waited) * SHARE)
}

/// `walferry.retention.ms`: removes delivered rows from outbox tables.
async fn clean_outboxes(
    connector: &Connector,
    outboxes: &Mutex<Outboxes>,
    removal: &Removal,
    status: &Status,
    mut login: impl LoginRenewal,
) {
    /// How often to look when there is nothing to remove.
    const INTERVAL: Duration = Duration::from_secs(2);
    /// After a statement, Walferry leaves the server alone for several times as long as it took.
    const SHARE: u32 = 4;
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(30);

    let mut cleaner = Cleaner::new(connector);
    let (mut reported, mut is_behind) = (None, false);
    let (mut pause, mut connection, mut has_streamed) = (INTERVAL, None, false);
    loop {
        sleep(pause).await;
        pause = INTERVAL;
        // While existing rows are read, a row may be missing in Kafka though the slot is beyond it.
        let stream = status.stream.state();
        let streaming = stream.streaming();
        if streaming.is_none() || streaming != connection {
            connection = streaming;
            if removal.outlives_connections {
                cleaner.begin_anew();
            } else {
                cleaner.forget();
            }
            if connection.is_some() {
                if has_streamed {
                    outboxes.lock().await.list_anew();
                }
                has_streamed = true;
                // Rows from before the first look stay.
                pause = SHORTEST;
            }
            continue;
        }
        let begun = Instant::now();
        let done = async {
            let mut outboxes = outboxes.lock().await;
            let listed = outboxes.list().await?.iter();
            let tables: Vec<_> = listed.filter_map(|table| table.cleaned.clone()).collect();
            drop(outboxes);
            // What the stream has brought is read after the confirmed position: it has everything up to there.
            cleaner
                .round(&tables, stream.confirmed, &removal.bounds)
                .await
                .map_err(Failure::from)
        };
        match done.await {
            Ok(round) => {
                reported = None;
                status.counters.outbox_removed.fetch_add(round.removed, Relaxed);
                status.counters.outbox_dropped.fetch_add(round.dropped, Relaxed);
                for _ in 0..round.failed {
                    status.count_error(Kind::OutboxCleanup);
                }
                if let (false, Some(bytes)) = (is_behind, round.behind_bytes) {
                    warn!(
                        bytes,
                        "delivered rows are not removed while the slot is far behind, because that would make its backlog longer"
                    );
                }
                is_behind = round.behind_bytes.is_some();
                let shortest = if round.more { SHORTEST } else { INTERVAL };
                pause = shortest.max(round.took * SHARE);
            }
            Err(failure) => {
                // A statement that takes too long each time must not burden the server either.
                pause = LONGEST.max(begun.elapsed() * SHARE);
                tell_of_cleanup(&failure, &mut reported);
                status.count_error(Kind::OutboxCleanup);
                if login.is_refused(&failure) {
                    // The server has done nothing.
                    pause = INTERVAL;
                    if let Some(renewed) = renew(&mut login, &failure, outboxes).await {
                        cleaner.log_in_with(&renewed.postgres);
                    }
                }
            }
        }
    }
}

/// As [`LoginRenewal::renew`], also for the list of outboxes.
async fn renew(login: &mut impl LoginRenewal, failure: &Failure, outboxes: &Mutex<Outboxes>) -> Option<Connector> {
    let renewed = login.renew(failure).await?;
    outboxes.lock().await.log_in_with(&renewed);
    Some(renewed)
}

/// Reports that rows could not be removed. The same again is only counted.
fn tell_of_cleanup(failure: &Failure, reported: &mut Option<String>) {
    let text = failure.to_string();
    if reported.as_ref() != Some(&text) {
        let index = "if a statement took too long, create an index on the column with the time";
        let hint = failure.hint().unwrap_or(index);
        warn!(
            code = Kind::OutboxCleanup.code(),
            error = %failure,
            hint,
            "delivered rows could not be removed from an outbox; trying again"
        );
        *reported = Some(text);
    }
}

/// Whether the configuration guarantees that a confirmed row is in Kafka. If not, the log says why.
fn may_remove_rows(connector: &Connector, kafka: &TargetKafka) -> bool {
    if let Some(origin) = connector
        .slot
        .stream_params
        .get("origin")
        .filter(|origin| *origin != "any")
    {
        warn!(
            origin,
            hint = "remove origin from slot.stream.params, or remove walferry.retention.ms",
            "delivered rows are not removed: the stream does not have all rows"
        );
        return false;
    }
    if connector.events.skipped_operations.contains('c') {
        warn!(
            hint = "remove c from skipped.operations, or remove walferry.retention.ms",
            "delivered rows are not removed: skipped.operations leaves out inserted rows"
        );
        return false;
    }
    if connector.events.on_processing_failure != FailureHandling::Fail {
        warn!(
            hint = "remove event.processing.failure.handling.mode, or remove walferry.retention.ms",
            "delivered rows are not removed: a row that cannot become an event is left out of Kafka"
        );
        return false;
    }
    if !kafka.waits_for_brokers {
        warn!(
            hint = "remove acks=0, or remove walferry.retention.ms",
            "delivered rows are not removed: with acks=0, Kafka confirms records before a broker has them"
        );
        return false;
    }
    let errors = &connector.errors;
    if errors.tolerance == Tolerance::All {
        warn!(
            hint = "remove errors.tolerance=all, or remove walferry.retention.ms",
            "delivered rows are not removed: with errors.tolerance=all, a record that fails is dropped or becomes a dead letter without its \
             value, and the row would be the last copy"
        );
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use walferry_engine::status::StreamConnection;

    use super::*;

    #[test]
    fn partitions_that_cannot_be_looked_at_are_counted_while_the_stream_goes_on() {
        let (status, mut reported) = (Status::new("c", "s"), None);
        let mut tell = |text: &str| {
            let failure = Failure::retry(Kind::TooManyConnections, text.to_owned());
            tell_of_partitions(&failure, &status, &mut reported);
            let count = status.errors().get(Kind::OutboxPartitions.as_str()).copied();
            (count.unwrap_or_default(), reported.clone().unwrap_or_default())
        };
        assert_eq!(tell("the server is down"), (0, String::new()));
        status.stream.connect(StreamConnection::Streaming);
        let full = "too many connections";
        let text = Failure::retry(Kind::TooManyConnections, full.to_owned()).to_string();
        assert_eq!(tell(full), (1, text.clone()));
        assert_eq!(tell(full), (2, text.clone()));
        status.stream.pause();
        assert_eq!(tell("the server is down"), (2, text));
    }

    #[test]
    fn a_look_at_an_outbox_is_followed_by_a_pause_of_ten_times_its_work() {
        let [two, three] = [2, 3].map(Duration::from_secs);
        assert_eq!(watch_pause(three, Duration::ZERO), Duration::from_secs(30));
        assert_eq!(watch_pause(three, two), Duration::from_secs(10));
        assert_eq!(watch_pause(two, two), Duration::from_secs(5));
    }
}
