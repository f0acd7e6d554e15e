//! What goes on beside a connector: figures of its slot, its heartbeat query, and news of the Kafka client.

pub(crate) mod login;
mod sends;
pub(crate) mod signal_file;

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::{Rc, Weak},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, time::sleep};
use tracing::{debug, info, warn};
use walferry_config::connector::{FailureHandling, Filter, PostgresSection, Tolerance};
use walferry_engine::{
    Disposition, Failure, Kind,
    pipeline::Pipeline,
    source::{Control as _, Source as _, TableFilter},
    status::{Slots, Status},
    store::StoredOffset,
};
use walferry_kafka::{ClientSettings, Health, SetAsideCount};
use walferry_outbox::{CleanedTable, Cleaner, OutboxPartitions, OutboxWatch, PartitionedTable, Period, WatchedTable};
use walferry_postgres::{
    Postgres, SlotWatch, SlotsLook,
    connection::{Endpoint, Purpose},
};
use walferry_transform::PartitionPeriod;

use crate::{assemble, load::Loaded};
use login::{Login, Renewable};

impl Renewable for Loaded {
    fn again(&self) -> Result<Self, Failure> {
        self.again()
    }

    fn postgres(&self) -> &PostgresSection {
        &self.connector.postgres
    }
}

/// How often the server is asked for its slots.
const SLOTS_INTERVAL: Duration = Duration::from_secs(2);
/// How long to wait for a slot that is not there yet.
const NO_SLOT_PAUSE: Duration = Duration::from_millis(20);
/// How often the Kafka client is asked how it is.
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);

/// The looks at the slots of servers, shared by the connectors of each server: each look tells of all slots, and a hundred connectors
/// would otherwise ask for a hundred slots each, over a hundred connections.
#[derive(Clone, Default)]
pub(crate) struct SlotLooks(Rc<RefCell<HashMap<Server, Weak<Mutex<Shared>>>>>);

/// What makes two connections show the same slots.
type Server = (String, u16, String);

#[derive(Default)]
struct Shared {
    watch: Option<SlotWatch>,
    last: Option<(Instant, SlotsLook)>,
}

impl SlotLooks {
    fn of(&self, postgres: &PostgresSection) -> Rc<Mutex<Shared>> {
        let server = (postgres.hostname.to_string(), postgres.port, postgres.user.clone());
        let mut all = self.0.borrow_mut();
        all.retain(|_, shared| shared.strong_count() > 0);
        if let Some(shared) = all.get(&server).and_then(Weak::upgrade) {
            return shared;
        }
        let shared = Rc::default();
        all.insert(server, Rc::downgrade(&shared));
        shared
    }
}

/// Keeps the figures of all slots of the server fresh, over a connection beside those of connectors: they stay true while the stream is
/// idle, disconnected, or held up by Kafka.
pub(crate) async fn watch_slots(loaded: Loaded, looks: SlotLooks, status: Arc<Status>) {
    let slot = loaded.connector.slot.clone();
    let ours = slot.name.to_string();
    let mut login = Login::new(loaded);
    let mut shared = looks.of(login.postgres());
    loop {
        let open = || SlotWatch::new(login.postgres(), &slot);
        let looked = recent_slots(&mut *shared.lock().await, open, &ours).await;
        match looked {
            Ok(slots) => status.set_slots(slots),
            Err(failure) => {
                debug!(error = %failure, "the replication slots could not be read");
                if login.renew(&failure).await {
                    shared = looks.of(login.postgres());
                    continue;
                }
            }
        }
        sleep(SLOTS_INTERVAL).await;
    }
}

/// The last look, where it is recent, or else a new one.
async fn recent_slots(shared: &mut Shared, open: impl Fn() -> SlotWatch, ours: &str) -> Result<Slots, Failure> {
    if let Some((at, looked)) = &shared.last
        && at.elapsed() < SLOTS_INTERVAL
    {
        return Ok(looked.seen_by(ours));
    }
    // Where the connection of one connector does not work, such as to a database that is gone, that of the next one may.
    let looked = shared.watch.get_or_insert_with(&open).query_all().await;
    let looked = looked.inspect_err(|_| shared.watch = None)?;
    let slots = looked.seen_by(ours);
    shared.last = Some((Instant::now(), looked));
    Ok(slots)
}

/// Says which tables are captured: a misspelt filter captures all, or none, and is legal.
pub(crate) async fn tell_tables(loaded: Loaded) {
    let mut login = Login::new(loaded);
    let names = loop {
        let config = &login.loaded().connector;
        match walferry_postgres::check::captured_tables(config, assemble::captured(config)).await {
            Ok(names) => break names,
            Err(failure) => {
                // The connector itself says why Postgres cannot be reached.
                debug!(error = %failure, "the captured tables could not be listed");
                login.renew(&failure).await;
            }
        }
        sleep(SLOTS_INTERVAL).await;
    };
    let config = &login.loaded().connector;
    match names.as_slice() {
        // As for an outbox of messages.
        [] if let Some(property) = config.filters.excludes_every_table() => info!(
            tables = 0,
            "{property} excludes every table, so only messages of pg_logical_emit_message are sent"
        ),
        [] => warn!(
            hint = format!(
                "compare `{}` with the tables in the database; patterns match SCHEMA.TABLE",
                config.filters.list_of_tables()
            ),
            "no table in the database matches the filters, so no row changes are captured until one does"
        ),
        [only] => info!(tables = 1, "1 table is captured: {only}"),
        [first, ..] => {
            const SHOWN: usize = 5;
            let shown = names
                .iter()
                .take(SHOWN)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            let more = names.len().saturating_sub(SHOWN);
            let filters = &config.filters;
            let all = match (&filters.schemas, &filters.tables) {
                (Filter::All, Filter::All) => "no filter is set: ",
                _ => "",
            };
            let rest = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            info!(
                tables = names.len(),
                first,
                "{all}{} tables are captured: {shown}{rest}",
                names.len()
            );
        }
    }
}

/// `xmin.fetch.interval.ms`: keeps the slot's `catalog_xmin` fresh for `source.xmin`.
pub(crate) async fn fetch_xmin(loaded: Loaded, status: Arc<Status>) {
    let Some(interval) = loaded.connector.streaming.xmin_interval else {
        return;
    };
    let slot = loaded.connector.slot.clone();
    let mut login = Login::new(loaded);
    let mut watch = SlotWatch::new(login.postgres(), &slot);
    loop {
        let pause = match watch.catalog_xmin().await {
            Ok(Some(xmin)) => {
                status.xmin.set(xmin);
                interval
            }
            // The first start has still to create the slot.
            Ok(None) => NO_SLOT_PAUSE,
            Err(failure) => {
                debug!(error = %failure, "the slot's xmin could not be fetched");
                if login.renew(&failure).await {
                    watch = SlotWatch::new(login.postgres(), &slot);
                    continue;
                }
                SLOTS_INTERVAL
            }
        };
        sleep(pause).await;
    }
}

/// `heartbeat.action.query`: runs with each heartbeat, on a connection of its own.
pub(crate) async fn run_heartbeat_query(loaded: Loaded, status: Arc<Status>) {
    let Some(query) = loaded.connector.heartbeat.action_query.clone() else {
        return;
    };
    let mut login = Login::new(loaded);
    let mut endpoint = Endpoint::new(login.postgres().clone());
    let (mut connection, mut failures) = (None, Failures::default());
    loop {
        status.heartbeat_sent.notified().await;
        let sql = match connection.take() {
            Some(sql) => Ok(sql),
            None => endpoint.sql(Purpose::Heartbeat).await,
        };
        let ran = match sql {
            Ok(sql) => sql
                .execute("running `heartbeat.action.query`", &query)
                .await
                .map(|()| sql),
            Err(error) => Err(error),
        };
        match ran {
            Ok(sql) => {
                connection = Some(sql);
                status.set_heartbeat_query(None);
                if let Some(failures) = failures.worked() {
                    info!(failures, "`heartbeat.action.query` works again");
                }
            }
            Err(error) => {
                let (chain, hint) = (Failure::chain(&error), error.hint());
                status.set_heartbeat_query(Some(Failure::new(
                    Disposition::Retry,
                    Kind::HeartbeatQuery,
                    chain.clone(),
                    hint.clone(),
                )));
                if let Some(failures) = failures.failed(Instant::now()) {
                    warn!(
                        code = Kind::HeartbeatQuery.code(),
                        error = chain,
                        hint,
                        failures,
                        "`heartbeat.action.query` failed; it runs again with each heartbeat. Until it works, this is logged once a minute"
                    );
                }
                if login.renew(&Failure::from(error)).await {
                    endpoint = Endpoint::new(login.postgres().clone());
                    // This heartbeat's query has not run yet.
                    status.heartbeat_sent.notify_one();
                }
            }
        }
    }
}

/// When failures of something that is tried again and again are logged: the first at once, then one a minute, with the number of all since.
#[derive(Debug, Default)]
struct Failures {
    /// When the last one was logged.
    logged: Option<Instant>,
    /// How many there were since the last success.
    count: u64,
}

impl Failures {
    /// How often such a failure is logged.
    const PERIOD: Duration = Duration::from_secs(60);

    /// Counts one. Returns their number, if this one is logged.
    fn failed(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now < logged + Self::PERIOD) {
            return None;
        }
        self.logged = Some(now);
        Some(self.count)
    }

    /// It has worked. Returns how many failures there were before.
    fn worked(&mut self) -> Option<u64> {
        let count = std::mem::take(self).count;
        (count > 0).then_some(count)
    }
}

/// Takes care of outbox tables: counts what waits, and removes delivered rows, each on a connection of its own. This must be called before
/// the connector runs: it says with which configuration floors of earlier runs count.
pub(crate) fn care_for_outboxes(loaded: Loaded, status: Arc<Status>) -> impl Future<Output = ()> {
    let outboxes = Outboxes::of(&loaded);
    let removes_rows = outboxes.as_ref().is_some_and(Outboxes::removes_rows) && may_remove_rows(&loaded);
    let keeps_floors = removes_rows && keeps_floors(&loaded);
    status.begin_floors(keeps_floors.then(|| sends(&loaded)));
    async move {
        let Some(outboxes) = outboxes else { return };
        let outboxes = Mutex::new(outboxes);
        let clean = async {
            if removes_rows {
                clean_outboxes(&loaded, &outboxes, keeps_floors, &status).await;
            }
        };
        tokio::join!(
            clean,
            watch_outboxes(&loaded, &outboxes, &status),
            create_partitions(&loaded, &outboxes, &status)
        );
    }
}

/// Whether a connection of the stream always goes on where the last one was. With `offset.mismatch.strategy`, it skips changes if something
/// else has moved the slot.
fn keeps_floors(loaded: &Loaded) -> bool {
    loaded.connector.streaming.offset_mismatch.is_none()
}

/// As in [`sends::text`], with the Kafka to which records are sent.
fn sends(loaded: &Loaded) -> String {
    let (client, _) = ClientSettings::read(&loaded.worker, &loaded.connector, &loaded.bootstrap_servers);
    // `producer.override.bootstrap.servers` comes first.
    let brokers = client.as_ref().map_or("", ClientSettings::bootstrap_servers);
    sends::text(&loaded.connector, brokers)
}

/// `walferry.partitions`: creates partitions ahead.
async fn create_partitions(loaded: &Loaded, outboxes: &Mutex<Outboxes>, status: &Status) {
    const INTERVAL: Duration = Duration::from_secs(60);
    /// After the server could not be asked.
    const SOON: Duration = Duration::from_secs(10);

    if !outboxes.lock().await.pipeline.has_partitions() {
        return;
    }
    let (mut partitions, mut told) = (OutboxPartitions::new(&loaded.connector), None);
    let mut login = Login::new(loaded.clone());
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
                told = None;
                status.counters.outbox_partitions.fetch_add(created.partitions, Relaxed);
                for _ in 0..created.refused {
                    status.count_error(Kind::OutboxPartitions);
                }
                created
                    .again
                    .map_or(INTERVAL, |again| again.clamp(Duration::from_secs(1), INTERVAL))
            }
            Err(failure) => {
                tell_of_partitions(&failure, status, &mut told);
                if renew(&mut login, &failure, outboxes).await {
                    partitions.log_in_with(login.postgres());
                }
                SOON
            }
        };
        sleep(pause).await;
    }
}

/// Counts and reports that partitions could not be looked at. The same again is only counted. While nothing is streamed either, the connector
/// itself says why Postgres cannot be reached.
fn tell_of_partitions(failure: &Failure, status: &Status, told: &mut Option<String>) {
    if status.stream.state().streaming().is_none() {
        debug!(code = Kind::OutboxPartitions.code(), error = %failure, "the partitions of an outbox could not be looked at; trying again");
        return;
    }
    status.count_error(Kind::OutboxPartitions);
    let text = failure.to_string();
    if told.as_ref() != Some(&text) {
        warn!(
            code = Kind::OutboxPartitions.code(),
            error = %failure,
            hint = failure.hint(),
            "no partition of an outbox could be created, because the server could not be asked; trying again"
        );
        *told = Some(text);
    }
}

/// `walferry.watch`: counts the rows of outbox tables that are not confirmed.
async fn watch_outboxes(loaded: &Loaded, outboxes: &Mutex<Outboxes>, status: &Status) {
    let mut watch = OutboxWatch::new(&loaded.connector);
    let (mut told, mut login) = (None, Login::new(loaded.clone()));
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
                told = None;
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
                if told.as_ref() != Some(&text) {
                    debug!(code = Kind::OutboxWatch.code(), error = %failure, "the rows of an outbox could not be counted; trying again");
                    told = Some(text);
                }
                status.count_error(Kind::OutboxWatch);
                if renew(&mut login, &failure, outboxes).await {
                    watch.log_in_with(login.postgres());
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
async fn clean_outboxes(loaded: &Loaded, outboxes: &Mutex<Outboxes>, keeps_floors: bool, status: &Status) {
    /// How often to look when there is nothing to remove.
    const INTERVAL: Duration = Duration::from_secs(2);
    /// After a statement, Walferry leaves the server alone for several times as long as it took.
    const SHARE: u32 = 4;
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(30);

    let (mut cleaner, mut login) = (Cleaner::new(&loaded.connector), Login::new(loaded.clone()));
    let (mut told, mut is_behind) = (None, false);
    let (mut pause, mut connection) = (INTERVAL, None);
    loop {
        sleep(pause).await;
        pause = INTERVAL;
        // While existing rows are read, a row may be missing in Kafka though the slot is beyond it.
        let stream = status.stream.state();
        let streaming = stream.streaming();
        if streaming.is_none() || streaming != connection {
            connection = streaming;
            match keeps_floors {
                true => cleaner.begin_anew(),
                false => cleaner.forget(),
            }
            if connection.is_some() {
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
                .round(&tables, stream.confirmed, status)
                .await
                .map_err(Failure::from)
        };
        match done.await {
            Ok(round) => {
                told = None;
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
                tell_of_cleanup(&failure, &mut told);
                status.count_error(Kind::OutboxCleanup);
                if login::is_login_refused(&failure) {
                    // The server has done nothing.
                    pause = INTERVAL;
                    if renew(&mut login, &failure, outboxes).await {
                        cleaner.log_in_with(login.postgres());
                    }
                }
            }
        }
    }
}

/// Reports that rows could not be removed. The same again is only counted.
fn tell_of_cleanup(failure: &Failure, told: &mut Option<String>) {
    let text = failure.to_string();
    if told.as_ref() != Some(&text) {
        let index = "if a statement took too long, create an index on the column with the time";
        let hint = failure.hint().unwrap_or(index);
        warn!(
            code = Kind::OutboxCleanup.code(),
            error = %failure,
            hint,
            "delivered rows could not be removed from an outbox; trying again"
        );
        *told = Some(text);
    }
}

/// Whether the configuration guarantees that a confirmed row is in Kafka. If not, the log says why.
fn may_remove_rows(loaded: &Loaded) -> bool {
    if let Some(origin) = loaded
        .connector
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
    if loaded.connector.events.skipped_operations.contains('c') {
        warn!(
            hint = "remove c from skipped.operations, or remove walferry.retention.ms",
            "delivered rows are not removed: skipped.operations leaves out inserted rows"
        );
        return false;
    }
    if loaded.connector.events.on_processing_failure != FailureHandling::Fail {
        warn!(
            hint = "remove event.processing.failure.handling.mode, or remove walferry.retention.ms",
            "delivered rows are not removed: a row that cannot become an event is left out of Kafka"
        );
        return false;
    }
    let (client, _) = ClientSettings::read(&loaded.worker, &loaded.connector, &loaded.bootstrap_servers);
    if !client.is_some_and(|client| client.waits_for_brokers()) {
        warn!(
            hint = "remove acks=0, or remove walferry.retention.ms",
            "delivered rows are not removed: with acks=0, Kafka confirms records before a broker has them"
        );
        return false;
    }
    let errors = &loaded.connector.errors;
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

/// As [`Login::renew`], also for the list of outboxes.
async fn renew(login: &mut Login<Loaded>, failure: &Failure, outboxes: &Mutex<Outboxes>) -> bool {
    let is_other = login.renew(failure).await;
    if is_other {
        outboxes.lock().await.log_in_with(login.loaded());
    }
    is_other
}

/// How often the captured tables are listed.
const LIST_INTERVAL: Duration = Duration::from_secs(60);

/// Finds the outboxes that are taken care of.
struct Outboxes {
    pipeline: Pipeline,
    source: Postgres,
    captured: TableFilter,
    listed: Option<Instant>,
    tables: Vec<TendedOutbox>,
}

/// An outbox, and what is done for it.
struct TendedOutbox {
    watched: WatchedTable,
    cleaned: Option<CleanedTable>,
    partitioned: Option<PartitionedTable>,
}

impl Outboxes {
    /// `None` if there is nothing to do.
    fn of(loaded: &Loaded) -> Option<Self> {
        let config = &loaded.connector;
        let status = Arc::new(Status::new(&config.name, config.topics.prefix.to_string()));
        let mut make = assemble::pipelines(loaded, &status, None, None, assemble::from_postgres(config));
        // What is wrong with it, the connector itself says.
        let pipeline = make(&StoredOffset::default()).ok()?;
        pipeline.has_care().then(|| Self {
            pipeline,
            source: Postgres::new(config, status),
            captured: assemble::captured(config),
            listed: None,
            tables: Vec::new(),
        })
    }

    /// From the next connection on, lists tables with these settings.
    fn log_in_with(&mut self, loaded: &Loaded) {
        let config = &loaded.connector;
        let status = Arc::new(Status::new(&config.name, config.topics.prefix.to_string()));
        self.source = Postgres::new(config, status);
    }

    /// Whether delivered rows of any outbox are to be removed.
    fn removes_rows(&self) -> bool {
        self.pipeline.has_retention()
    }

    /// The tables as they were listed a short time ago.
    async fn list(&mut self) -> Result<&[TendedOutbox], Failure> {
        if self.listed.is_some_and(|listed| listed.elapsed() <= LIST_INTERVAL) {
            return Ok(&self.tables);
        }
        let columns = self.pipeline.outbox_columns();
        let facts = self.source.control().tables(self.captured.clone(), &columns).await?;
        let found = self.pipeline.cares(&facts)?;
        let tables = found.into_iter().map(|(place, care)| {
            let (schema, name) = (facts[place].schema.clone(), facts[place].name.clone());
            let cleaned = care.retention.map(|retention| CleanedTable {
                schema: schema.clone(),
                name: name.clone(),
                column: care.column.clone(),
                keep: retention.keep,
                batch_rows: retention.batch_rows,
                status: retention.status.map(|status| (status.column, status.values)),
                drops_partitions: retention.drops_partitions,
            });
            let partitioned = care.partitions.map(|(period, ahead)| PartitionedTable {
                schema: schema.clone(),
                name: name.clone(),
                column: care.column.clone(),
                period: match period {
                    PartitionPeriod::Day => Period::Day,
                    PartitionPeriod::Hour => Period::Hour,
                },
                ahead,
            });
            let column = care.column;
            TendedOutbox {
                watched: WatchedTable { schema, name, column },
                cleaned,
                partitioned,
            }
        });
        self.tables = tables.collect();
        self.listed = Some(Instant::now());
        Ok(&self.tables)
    }
}

/// Shows what the Kafka client tells: how the connection is, and how many records it has set aside.
pub(crate) async fn watch_kafka(health: Health, set_aside: SetAsideCount, status: Arc<Status>) {
    let mut shown = 0;
    loop {
        let count = set_aside.get();
        status.counters.set_aside.fetch_add(count - shown, Relaxed);
        shown = count;
        status.set_kafka(health.trouble());
        sleep(HEALTH_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use walferry_engine::status::StreamConnection;

    use super::*;

    #[test]
    fn failures_in_a_row_are_logged_once_a_minute_with_their_number() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut failures = Failures::default();
        let logged: Vec<_> = (0..=150)
            .filter_map(|second| Some((second, failures.failed(at(second))?)))
            .collect();
        assert_eq!(logged, [(0, 1), (60, 61), (120, 121)]);
        assert_eq!(failures.worked(), Some(151));
        assert_eq!(failures.worked(), None);
        assert_eq!(failures.failed(at(151)), Some(1), "a new one is logged at once");
    }

    #[test]
    fn partitions_that_cannot_be_looked_at_are_counted_while_the_stream_goes_on() {
        let (status, mut told) = (Status::new("c", "s"), None);
        let mut tell = |text: &str| {
            let failure = Failure::retry(Kind::TooManyConnections, text.to_owned());
            tell_of_partitions(&failure, &status, &mut told);
            let count = status.errors().get(Kind::OutboxPartitions.as_str()).copied();
            (count.unwrap_or_default(), told.clone().unwrap_or_default())
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
