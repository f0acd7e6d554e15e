//! Runs one case through every engine at the same time.

use crate::engine::Engine;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use walferry_testkit::servers::{Database, Postgres, Record, RecordCounter, Registry, wait_for};
use walferry_tests::avro::Schemas;
use walferry_tests::case::{Case, REGISTRY};
use walferry_tests::plain::PlainRecord;
use walferry_tests::window::Window;

/// Engines of a run, in the order of the results.
pub(crate) type Engines = [Box<dyn Engine + Send>];

/// What came of a case.
pub(crate) struct Run {
    /// The records of each engine as they were sent, in the order of the engines.
    pub(crate) records: Vec<Vec<PlainRecord>>,
    /// How many records each engine had sent each time that the case settled.
    pub(crate) settled: Vec<Vec<usize>>,
    /// When it was, and where in the WAL.
    pub(crate) window: Window,
}

impl Run {
    /// The records of each engine without what two honest runs on one database differ in.
    pub(crate) fn masked(&self) -> Vec<Vec<PlainRecord>> {
        self.records.iter().map(|records| self.window.mask(records)).collect()
    }
}

/// When a case has settled.
#[derive(Clone, Copy)]
pub(crate) enum Settling<'a> {
    /// When no record has arrived for a while.
    Quiet,
    /// When as many records are there as somebody else had sent each time that the case settled, and nothing more can come: the slot is
    /// confirmed up to the end of the WAL.
    Counts(&'a [usize]),
}

/// Someone who looks at the database at certain moments of a run.
pub(crate) trait Observer {
    /// After the setup, before any connector runs.
    fn set_up(&mut self, _: &Database) {}
    /// When all connectors stream, before the first step.
    fn streaming(&mut self, _: &Database) {}
    /// After the SQL of each step.
    fn changed(&mut self, _: &Database) {}
    /// At the end, with everything still there.
    fn finished(&mut self, _: &Database) {}
}

/// Nobody looks.
impl Observer for () {}

/// Runs the case through these engines, all on one database.
pub(crate) fn run(
    case: &Case,
    postgres: &Postgres,
    engines: &mut Engines,
    settling: Settling<'_>,
    observer: &mut dyn Observer,
) -> Result<Run, String> {
    for engine in &mut *engines {
        // The case before this one may have ended in the middle.
        engine.remove();
        engine.kafka().delete_topics();
        for (topic, partitions) in &case.topics {
            engine.kafka().create_topic(topic, *partitions);
        }
    }
    // Each engine has one of its own, so that it registers everything itself.
    let registries: Vec<Registry> = match case.has_registry() {
        true => engines.iter().map(|_| Registry::start()).collect(),
        false => Vec::new(),
    };
    let database = postgres.database(&case.name);
    let first = Window::ends(database.sql());
    database.sql().try_run(&case.setup)?;
    observer.set_up(&database);
    let begin = now_ms();
    let mut settled = Vec::new();
    let outcome = play(case, &database, &registries, engines, settling, &mut settled, observer);
    let failures: Vec<String> = engines
        .iter_mut()
        .filter_map(|engine| engine.failure().map(|why| format!("{} failed: {why}", engine.name())))
        .collect();
    if let Settling::Counts(_) = settling
        && failures.is_empty()
    {
        // Whoever ends in order has sent everything.
        engines.iter_mut().for_each(|engine| engine.stop());
    }
    let mut records: Vec<Vec<Record>> = engines
        .iter()
        .map(|engine| engine.kafka().read(&engine.kafka().topics()))
        .collect();
    for (records, registry) in records.iter_mut().zip(&registries) {
        let mut schemas = Schemas::of(registry);
        for part in records
            .iter_mut()
            .flat_map(|record| [&mut record.key, &mut record.value])
        {
            *part = part.take().map(|bytes| without_url(schemas.shown(bytes), registry));
        }
        records.extend(registered(registry));
    }
    engines.iter_mut().for_each(|engine| engine.remove());
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    outcome?;
    Ok(Run {
        records: records
            .into_iter()
            .map(|records| records.into_iter().map(PlainRecord::from).collect())
            .collect(),
        settled,
        // Engine, broker and this program read the same clock; the second is for rounding.
        window: Window::new(begin - 1_000..=now_ms() + 1_000, first, Window::ends(database.sql())),
    })
}

/// Bytes with the placeholder in place of the URL of the registry, which has a port of its own in each run.
fn without_url(bytes: Vec<u8>, registry: &Registry) -> Vec<u8> {
    String::from_utf8(bytes).map_or_else(
        |error| error.into_bytes(),
        |text| text.replace(&registry.base(), REGISTRY).into_bytes(),
    )
}

/// The schemas of a registry as records of a topic of their own, so that they are compared, too. Ids in headers say nothing about them.
fn registered(registry: &Registry) -> impl Iterator<Item = Record> {
    let record = |(name, text): (String, String)| Record {
        topic: "(registered schemas)".into(),
        partition: 0,
        offset: 0,
        timestamp_ms: None,
        key: Some(name.into_bytes()),
        value: Some(text.into_bytes()),
        headers: Vec::new(),
    };
    registry.registered().into_iter().map(record)
}

fn play(
    case: &Case,
    database: &Database,
    registries: &[Registry],
    engines: &mut Engines,
    settling: Settling<'_>,
    settled: &mut Vec<Vec<usize>>,
    observer: &mut dyn Observer,
) -> Result<(), String> {
    for (index, engine) in engines.iter_mut().enumerate() {
        let mut config = case.connector(engine.name(), database.port(), database.name());
        if let Some(registry) = registries.get(index) {
            for value in config.values_mut() {
                let text = value.as_str().unwrap_or_default();
                *value = text.replace(REGISTRY, &registry.base()).into();
            }
        }
        engine.start(&case.name, &config)?;
    }
    let counters: Vec<RecordCounter> = engines.iter().map(|engine| engine.kafka().counter()).collect();
    let counts = || counters.iter().map(RecordCounter::count).collect::<Vec<usize>>();
    // A connector streams only after its snapshot.
    wait_until_all_stream(database, engines)?;
    observer.streaming(database);
    if case.config.contains_key("post.processors") {
        // With synchronous commits, the stream may bring a transaction before others can see it, and a row is read again as it was.
        database.sql().try_run("set synchronous_commit = off")?;
    }
    // How many records there were before the first SQL that is not settled.
    let mut before = None;
    for step in &case.steps {
        if !step.sql.is_empty() {
            before.get_or_insert_with(counts);
            database.sql().try_run(&step.sql)?;
            observer.changed(database);
        }
        if step.settle || step.stop {
            settle(database, engines, &counts, before.take(), settling, settled)?;
        }
        if step.stop {
            engines.iter_mut().for_each(|engine| engine.stop());
        }
        if step.start {
            engines.iter_mut().try_for_each(|engine| engine.resume())?;
            wait_until_all_stream(database, engines)?;
        }
    }
    settle(database, engines, &counts, before, settling, settled)?;
    observer.finished(database);
    Ok(())
}

/// Waits until each engine reads its slot, or fails with the reason why one does not.
fn wait_until_all_stream(database: &Database, engines: &mut Engines) -> Result<(), String> {
    wait_for("all slots to be read", || {
        let failure = engines
            .iter_mut()
            .find_map(|engine| Some(format!("{}: {}", engine.name(), engine.failure()?)));
        let all = database.streams() == engines.len();
        failure.map(Err).or(all.then_some(Ok(())))
    })
}

/// Waits until the server has sent everything, and then until all records are there. `counts` says how many records each engine
/// has sent, `before` how many there were before the SQL of which records are awaited, if there was some. `settled` gets how many there are.
fn settle(
    database: &Database,
    engines: &mut Engines,
    counts: &dyn Fn() -> Vec<usize>,
    before: Option<Vec<usize>>,
    settling: Settling<'_>,
    settled: &mut Vec<Vec<usize>>,
) -> Result<(), String> {
    let sql = database.sql();
    let end = sql
        .value("select pg_current_wal_insert_lsn()")
        .expect("a primary has a WAL position");
    let behind = |column: &str| {
        let behind = sql.value(&format!(
            "select count(*) from pg_replication_slots s join pg_stat_replication r on r.pid = s.active_pid
             where s.database = '{}' and {column} < '{end}'",
            database.name()
        ));
        behind.as_deref() != Some("0")
    };
    let expected = match settling {
        Settling::Quiet => None,
        Settling::Counts(counts) => counts.get(settled.len()).copied(),
    };
    let mut known = Vec::new();
    let mut since = Instant::now();
    wait_for("records to stop arriving", || {
        let failure = engines
            .iter_mut()
            .find_map(|engine| Some(format!("{}: {}", engine.name(), engine.failure()?)));
        if failure.is_some() {
            return failure.map(Err);
        }
        let now = counts();
        if now != known || behind("r.sent_lsn") {
            (known, since) = (now, Instant::now());
        }
        if let Some(expected) = expected {
            let all = known.iter().all(|count| *count >= expected);
            if all && !behind("s.confirmed_flush_lsn") {
                return Some(Ok(()));
            }
            // Where the offset is not confirmed, or records are missing.
            let quiet = if all { QUIET } else { QUIET_WHILE_UNEQUAL };
            return (since.elapsed() > quiet).then_some(Ok(()));
        }
        // Where nothing has arrived, all may still be on its way: a registry that was just started takes its time.
        let arrived = known.iter().all(|count| *count > 0) && before.as_ref() != Some(&known);
        let equal = arrived && known.windows(2).all(|pair| pair[0] == pair[1]);
        thread::sleep(Duration::from_millis(100));
        (since.elapsed() > if equal { QUIET } else { QUIET_WHILE_UNEQUAL }).then_some(Ok(()))
    })?;
    settled.push(known);
    Ok(())
}

/// How long no record may arrive until all are taken to be there.
const QUIET: Duration = Duration::from_millis(1_500);
/// The same while one engine has sent fewer than another, or none has sent anything.
const QUIET_WHILE_UNEQUAL: Duration = Duration::from_secs(12);

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("the clock is right");
    i64::try_from(now.as_millis()).expect("the clock is right")
}
