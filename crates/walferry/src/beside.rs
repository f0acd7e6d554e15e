//! What goes on beside a connector: figures of its slot, its heartbeat query, and news of the Kafka client.

use std::{
    cell::RefCell,
    collections::HashMap,
    fs::{self, OpenOptions},
    io,
    path::Path,
    rc::{Rc, Weak},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, time::sleep};
use tracing::{debug, info, warn};
use walferry_config::connector::{Filter, PostgresSection, SignalChannel};
use walferry_engine::{
    Failure, Kind,
    pipeline::Pipeline,
    source::{Control as _, Source as _, TableFilter},
    status::{Signal, Slots, Status},
    store::StoredOffset,
};
use walferry_kafka::{Health, SetAsideCount};
use walferry_postgres::{
    CleanedTable, Cleaner, Looked, Postgres, SlotWatch,
    connect::{Endpoint, Purpose},
};

use crate::{assemble, load::Loaded};

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
    last: Option<(Instant, Looked)>,
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
    let (postgres, slot) = (&loaded.connector.postgres, &loaded.connector.slot);
    let shared = looks.of(postgres);
    let ours = slot.name.to_string();
    loop {
        match recent_slots(&mut *shared.lock().await, || SlotWatch::new(postgres, slot), &ours).await {
            Ok(slots) => status.set_slots(slots),
            Err(failure) => debug!(error = %failure, "the replication slots could not be read"),
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
    let config = &loaded.connector;
    let names = loop {
        match walferry_postgres::check::captured_tables(config, assemble::captured(config)).await {
            Ok(names) => break names,
            // The connector itself says why Postgres cannot be reached.
            Err(failure) => debug!(error = %failure, "the captured tables could not be listed"),
        }
        sleep(SLOTS_INTERVAL).await;
    };
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

/// `signal.enabled.channels=file`: takes the signals out of the file. As in Debezium, the file is emptied before they are followed.
pub(crate) async fn read_signal_file(loaded: Loaded, status: Arc<Status>) {
    /// However short the interval is set.
    const SHORTEST: Duration = Duration::from_millis(50);
    let section = &loaded.connector.signals;
    if !section.has(SignalChannel::File) {
        return;
    }
    let file = Path::new(&section.file);
    info!(file = %file.display(), "reading signals from a file");
    let mut unfinished = String::new();
    loop {
        sleep(section.poll_interval.max(SHORTEST)).await;
        status.signals.opened().await;
        let lines = match take_lines(file, &mut unfinished) {
            Ok(lines) => lines,
            Err(error) => {
                warn!(file = %file.display(), %error, "the signal file cannot be read and emptied");
                continue;
            }
        };
        for line in lines.lines().filter(|line| !line.trim().is_empty()) {
            let Some(signal) = serde_json::from_str(line)
                .ok()
                .and_then(|json| Signal::from_json(&json))
            else {
                warn!(
                    file = %file.display(),
                    "a line is not a signal: it must be a JSON object with id, type and data"
                );
                continue;
            };
            if let Err(error) = status.signals.put(signal) {
                warn!(file = %file.display(), %error, "a signal was lost: write it again");
            }
        }
    }
}

/// What the file holds, which is empty then. Nothing is taken while somebody still writes the last line: `unfinished` is what the file
/// held at the last look if it did not end with a line break.
fn take_lines(file: &Path, unfinished: &mut String) -> io::Result<String> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    if text.is_empty() {
        return Ok(text);
    }
    if !text.ends_with('\n') && text != *unfinished {
        *unfinished = text;
        return Ok(String::new());
    }
    let opened = OpenOptions::new().write(true).open(file)?;
    if opened.metadata()?.len() != text.len() as u64 {
        // Another line came meanwhile.
        return Ok(String::new());
    }
    opened.set_len(0)?;
    unfinished.clear();
    Ok(text)
}

/// `xmin.fetch.interval.ms`: keeps the slot's `catalog_xmin` fresh for `source.xmin`.
pub(crate) async fn fetch_xmin(loaded: Loaded, status: Arc<Status>) {
    let Some(interval) = loaded.connector.streaming.xmin_interval else {
        return;
    };
    let mut watch = SlotWatch::new(&loaded.connector.postgres, &loaded.connector.slot);
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
                SLOTS_INTERVAL
            }
        };
        sleep(pause).await;
    }
}

/// `heartbeat.action.query`: runs with each heartbeat, on a connection of its own.
pub(crate) async fn run_heartbeat_query(loaded: Loaded, status: Arc<Status>) {
    let Some(query) = loaded.connector.heartbeat.action_query else {
        return;
    };
    let endpoint = Endpoint::new(loaded.connector.postgres);
    let mut connection = None;
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
            Ok(sql) => connection = Some(sql),
            Err(error) => {
                status.count_error(Kind::HeartbeatQuery);
                warn!(
                    code = Kind::HeartbeatQuery.code(),
                    error = Failure::chain(&error),
                    "`heartbeat.action.query` failed; it runs again with the next heartbeat"
                );
            }
        }
    }
}

/// `walferry.retention.ms`: removes delivered rows from outbox tables, on a connection of its own.
pub(crate) async fn clean_outboxes(loaded: Loaded, status: Arc<Status>) {
    /// How often to look when there is nothing to remove.
    const INTERVAL: Duration = Duration::from_secs(2);
    /// How often the captured tables are listed.
    const LIST_INTERVAL: Duration = Duration::from_secs(60);
    /// After a statement, Walferry leaves the server alone for several times as long as it took.
    const SHARE: u32 = 4;
    const SHORTEST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(30);

    let Some(mut outboxes) = Outboxes::of(&loaded) else {
        return;
    };
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
        return;
    }
    if loaded.connector.events.skipped_operations.contains('c') {
        warn!(
            hint = "remove c from skipped.operations, or remove walferry.retention.ms",
            "delivered rows are not removed: skipped.operations leaves out inserted rows"
        );
        return;
    }
    let mut cleaner = Cleaner::new(&loaded.connector);
    let (mut tables, mut listed) = (Vec::new(), None::<Instant>);
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
            cleaner.forget();
            continue;
        }
        let done = async {
            if listed.is_none_or(|listed| listed.elapsed() > LIST_INTERVAL) {
                tables = outboxes.list().await?;
                listed = Some(Instant::now());
            }
            cleaner.round(&tables, stream.confirmed).await.map_err(Failure::from)
        };
        match done.await {
            Ok(round) => {
                told = None;
                status.counters.outbox_removed.fetch_add(round.removed, Relaxed);
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
                pause = LONGEST;
                let text = failure.to_string();
                // The same again is only counted.
                if told.as_ref() != Some(&text) {
                    let hint = failure.causes.iter().find_map(|cause| cause.hint.as_deref());
                    warn!(
                        code = Kind::OutboxCleanup.code(),
                        error = %failure,
                        hint,
                        "delivered rows could not be removed from an outbox; trying again"
                    );
                    told = Some(text);
                }
                status.count_error(Kind::OutboxCleanup);
            }
        }
    }
}

/// Finds the outboxes whose delivered rows are to be removed.
struct Outboxes {
    pipeline: Pipeline,
    source: Postgres,
    captured: TableFilter,
}

impl Outboxes {
    /// `None` where no rows are to be removed.
    fn of(loaded: &Loaded) -> Option<Self> {
        let config = &loaded.connector;
        let status = Arc::new(Status::new(&config.name, config.topics.prefix.to_string()));
        let mut make = assemble::pipelines(loaded, &status, None, None, assemble::from_postgres(config));
        // What is wrong with it, the connector itself says.
        let pipeline = make(&StoredOffset::default()).ok()?;
        pipeline.has_retention().then(|| Self {
            pipeline,
            source: Postgres::new(config, status),
            captured: assemble::captured(config),
        })
    }

    async fn list(&mut self) -> Result<Vec<CleanedTable>, Failure> {
        let columns = self.pipeline.outbox_columns();
        let facts = self.source.control().tables(self.captured.clone(), &columns).await?;
        let found = self.pipeline.retentions(&facts)?;
        let cleaned = found.into_iter().map(|(place, retention)| CleanedTable {
            schema: facts[place].schema.clone(),
            name: facts[place].name.clone(),
            column: retention.column,
            keep: retention.keep,
            batch_rows: retention.batch_rows,
        });
        Ok(cleaned.collect())
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
    use super::*;

    #[test]
    fn a_line_is_taken_when_it_is_complete_or_stays_as_it_is() {
        let folder = std::env::temp_dir().join(format!("walferry-lines-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder can be made");
        let file = folder.join("signals.txt");
        let mut unfinished = String::new();
        let mut take = || take_lines(&file, &mut unfinished).expect("the file can be read");
        assert_eq!(take(), "", "there is no file yet");
        for (written, taken) in [
            ("one\n", "one\n"),
            ("", ""),
            ("tw", ""),
            ("two\nthr", ""),
            ("two\nthree\n", "two\nthree\n"),
            ("four", ""),
        ] {
            fs::write(&file, written).expect("the file can be written");
            assert_eq!(take(), taken, "{written:?}");
        }
        // Nobody has gone on with it since.
        assert_eq!(take(), "four");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "");
        let _ = fs::remove_dir_all(&folder);
    }
}
