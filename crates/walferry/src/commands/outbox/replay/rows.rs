//! Sends the rows of an outbox table again.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::{LocalSet, spawn_local},
    time::sleep,
};
use walferry_config::connector::{SnapshotMode, Tolerance};
use walferry_engine::{
    Failure, Kind, TargetState,
    source::{Control as _, Source as _},
    status::{Phase, Status},
    witness::{UnsentReason, Witness},
};
use walferry_event::catalog::TableFacts;
use walferry_kafka::{Producers, SetAsideCount};
use walferry_postgres::{
    Postgres,
    replay::{PartTracker, Range, Replay, ReplayPosition, ReplayRequest, ReplaySurvey, rows_left, survey},
};
use walferry_record::Record;

use super::{
    Job, WHAT, count,
    mark::{Marked, ReplayMark},
    refused,
    state::{ReplayState, Shared, Source, StateFile, VERSION},
    tell_topics, unusable_client,
};
use crate::{
    cli::OutboxReplayArgs,
    commands::{
        outbox::{
            names::Name,
            router::{columns, has_router, router},
            table,
        },
        show::reason,
    },
    error::Error,
    output::note,
    say::say,
    signals::signalled,
};
use walferry_worker::{
    assemble::{self, captured},
    beside::watch_kafka,
    loaded::Loaded,
    process, sinks,
};

/// Names of the column in which libraries keep the time of a row, if the connector does not say it.
const TIMES: [&str; 8] = [
    "created_at",
    "createdat",
    "created_on",
    "occurred_at",
    "occurred_on",
    "inserted_at",
    "event_time",
    "timestamp",
];

pub(super) fn replay(mut job: Job<'_>) -> Result<(), Error> {
    check_selection(job.args)?;
    let failed = |failure| Error::failure(WHAT, failure);
    let runtime = process::runtime().map_err(failed)?;
    leave_alone(&mut job.loaded);
    if job.args.skip_failed {
        job.loaded.connector.errors.tolerance = Tolerance::All;
    }
    LocalSet::new().block_on(&runtime, async {
        let begun = match &job.earlier {
            Some(ReplayState {
                source: Source::Rows { range, place },
                total,
                ..
            }) => {
                let left = rows_left(&job.loaded.connector, range, place).await.map_err(failed)?;
                say!(
                    "Going on with replay {}: {} of {} were sent, {left} are left.",
                    job.run(),
                    place.rows,
                    count(*total, "row", "rows")
                );
                Some((range.clone(), place.clone(), *total, left))
            }
            _ => {
                let wanted = wanted(&job).await?;
                let found = survey(&job.loaded.connector, &wanted).await.map_err(failed)?;
                tell(&wanted, &found);
                let rows = found.rows;
                found.range.map(|range| (range, ReplayPosition::default(), rows, rows))
            }
        };
        let Some((range, place, total, left)) = begun else {
            return Ok(());
        };
        let table = name(&range).sql();
        if !job.may_send(&format!("{} of {table}", count(left, "row", "rows")))? {
            return Ok(());
        }
        send(&job, range, place, total).await
    })
}

fn check_selection(args: &OutboxReplayArgs) -> Result<(), Error> {
    let none = args.since.is_none()
        && args.until.is_none()
        && args.id.is_empty()
        && args.key.is_empty()
        && args.r#where.is_none();
    if none && !args.all {
        return Err(refused(
            "it is not said which rows".to_owned(),
            "select them with --since and --until, --id, --key or --where; --all sends all rows of the table",
        ));
    }
    // A condition that changes while the replay runs would leave out rows in silence, most of all after an interruption.
    if let Some(condition) = &args.r#where
        && let Some(word) = moving(condition)
    {
        return Err(refused(
            format!("the condition of --where contains {word}, which means another time for each page"),
            "write the time itself, or use --since and --until",
        ));
    }
    Ok(())
}

/// A word whose value changes with the time.
fn moving(condition: &str) -> Option<&'static str> {
    const WORDS: [&str; 9] = [
        "now()",
        "current_timestamp",
        "current_date",
        "current_time",
        "localtimestamp",
        "clock_timestamp",
        "statement_timestamp",
        "transaction_timestamp",
        "random()",
    ];
    let text: String = condition.to_lowercase().split_whitespace().collect();
    WORDS.into_iter().find(|word| text.contains(word))
}

/// Takes everything out of the configuration that has to do with the stream.
fn leave_alone(loaded: &mut Loaded) {
    let config = &mut loaded.connector;
    config.snapshot.mode = SnapshotMode::InitialOnly;
    config.snapshot.delay = Duration::ZERO;
    config.slot.drop_on_stop = false;
    config.signals.channels.clear();
    config.signals.notifications.clear();
    config.heartbeat.interval = None;
    config.events.transaction_metadata = false;
}

fn name(range: &Range) -> Name {
    Name {
        schema: range.schema.clone(),
        table: range.table.clone(),
    }
}

fn has(table: &TableFacts, column: &str) -> bool {
    table.columns.iter().any(|known| known.name == column)
}

/// Whether an EventRouter makes events of the table's rows.
fn is_outbox(loaded: &Loaded, table: &TableFacts) -> bool {
    let dotted = format!("{}.{}", table.schema, table.name);
    router(loaded, &dotted).is_some_and(|options| {
        let (id, key) = columns(options);
        has(table, &id) && key.iter().all(|column| has(table, column))
    })
}

/// The outbox that is asked for, or else the only one.
fn outbox<'a>(loaded: &Loaded, tables: &'a [TableFacts], asked: Option<&Name>) -> Result<&'a TableFacts, Error> {
    let outboxes: Vec<&TableFacts> = tables.iter().filter(|table| is_outbox(loaded, table)).collect();
    let list = || {
        let names = outboxes.iter().map(|table| format!("{}.{}", table.schema, table.name));
        names.collect::<Vec<_>>().join(", ")
    };
    match (asked, outboxes.as_slice()) {
        (Some(asked), _) => {
            let found = outboxes
                .iter()
                .find(|table| table.schema == asked.schema && table.name == asked.table);
            found.copied().ok_or_else(|| {
                refused(
                    format!(
                        "{} is not a captured table of which an EventRouter makes events",
                        asked.sql()
                    ),
                    match outboxes.is_empty() {
                        true => "correct table.include.list, or the columns of the EventRouter".to_owned(),
                        false => format!("name one of these with --table: {}", list()),
                    },
                )
            })
        }
        (None, [only]) => Ok(*only),
        (None, []) => Err(refused(
            "no captured table has the columns of the EventRouter".to_owned(),
            "correct table.include.list, or the columns of the EventRouter",
        )),
        (None, _) => Err(refused(
            "the connector captures several outbox tables".to_owned(),
            format!("name one of these with --table: {}", list()),
        )),
    }
}

/// The table, and what is wanted of it.
async fn wanted(job: &Job<'_>) -> Result<ReplayRequest, Error> {
    let (loaded, args) = (&job.loaded, job.args);
    if !has_router(loaded) {
        return Err(refused(
            "the connector has no EventRouter, so it has no outbox".to_owned(),
            "to read the rows of other tables again, use `walferry snapshot`; to send records of a topic again, add --from-topic",
        ));
    }
    let asked = args.table.as_deref().map(table).transpose()?;
    let status = Arc::new(Status::new(
        &loaded.connector.name,
        loaded.connector.topics.prefix.to_string(),
    ));
    let mut source = Postgres::new(&loaded.connector, status);
    let tables = source.control().tables(captured(&loaded.connector), &[]).await;
    let tables = tables.map_err(|failure| Error::failure(WHAT, failure))?;
    let found = outbox(loaded, &tables, asked.as_ref())?;
    let dotted = format!("{}.{}", found.schema, found.name);
    let options = router(loaded, &dotted).cloned().unwrap_or_default();
    let (id, key) = columns(&options);
    let time = args.time_column.clone();
    let time = time.or_else(|| options.get("table.field.event.timestamp").map(str::to_owned));
    let time = time.or_else(|| {
        TIMES
            .iter()
            .find(|column| has(found, column))
            .map(|column| (*column).to_owned())
    });
    if time.is_none() && (args.since.is_some() || args.until.is_some()) {
        return Err(refused(
            format!("it is not known which column of {dotted} has the time of a row"),
            "name it with --time-column, or select rows with --where",
        ));
    }
    Ok(ReplayRequest {
        schema: found.schema.clone(),
        table: found.name.clone(),
        time,
        since: args.since.clone(),
        until: args.until.clone(),
        id: (args.id_column.clone().unwrap_or(id), args.id.clone()),
        key: (
            args.key_column.clone().map_or(key, |column| vec![column]),
            args.key.clone(),
        ),
        condition: args.r#where.clone(),
    })
}

fn tell(wanted: &ReplayRequest, found: &ReplaySurvey) {
    let table = Name {
        schema: wanted.schema.clone(),
        table: wanted.table.clone(),
    };
    match (&found.range, &found.times) {
        (None, _) => say!("No row of {} matches: there is nothing to send.", table.sql()),
        (Some(_), times) => {
            let times = match times {
                Some((first, last)) => format!(", from {first} to {last}"),
                None => String::new(),
            };
            say!(
                "{} of {} {}{times}.",
                count(found.rows, "row", "rows"),
                table.sql(),
                if found.rows == 1 { "matches" } else { "match" }
            );
            if wanted.time.is_none() {
                say!(
                    "They are sent in the order of the primary key: name the column of their time with --time-column if that is not their order."
                );
            }
        }
    }
}

async fn send(job: &Job<'_>, range: Range, place: ReplayPosition, total: u64) -> Result<(), Error> {
    let loaded = &job.loaded;
    let config = &loaded.connector;
    let run = job.run();
    let mut status = Status::new(&config.name, config.topics.prefix.to_string());
    status.shows_keys = config.errors.show_keys;
    let status = Arc::new(status);
    let state = ReplayState {
        version: VERSION,
        run: run.clone(),
        asked: job.asked.clone(),
        total,
        source: Source::Rows {
            range: range.clone(),
            place: place.clone(),
        },
    };
    state
        .write(&job.path)
        .map_err(|failure| Error::failure(WHAT, failure))?;
    let dead_letters = config.errors.dead_letter_topic.as_ref().map(ToString::to_string);
    let mark = ReplayMark::new(&run, job.args.to.as_deref(), dead_letters);
    let producers = Producers::new(sinks::kafka(loaded).map_err(unusable_client)?);
    let refused = producers.set_aside();
    let target = Arc::new(watch::Sender::new(TargetState::Running));
    let (seen, track) = (Shared::default(), PartTracker::new(place));
    let store = StateFile {
        path: job.path.clone(),
        state,
        track: track.clone(),
        status: status.clone(),
        target: target.clone(),
        seen: seen.clone(),
    };
    spawn_local(watch_kafka(producers.health(), producers.set_aside(), status.clone()));
    spawn_local(watch(status.clone(), track.clone(), total));
    spawn_local(stop_at_signals(target.clone()));
    let table = (range.schema.clone(), range.table.clone());
    let range_of_rows = range.clone();
    let source = Replay::new(config, range, track.clone(), job.args.rate, status.clone());
    let rows = ReplayedRows::new(&range_of_rows, track.clone());
    let witness = rows.clone();
    let sinks = Marked {
        inner: producers,
        mark: mark.clone(),
    };
    let target_state = target.subscribe();
    let mut connector = assemble::replaying(
        loaded,
        table,
        source,
        sinks,
        store,
        move || Box::new(witness.begin()),
        status,
    );
    let ended = connector.run(target_state).await;
    let seen = seen.lock().clone();
    ended.map_err(|failure| {
        let sent = format!("{} of {} were", rows.handled(), count(total, "row", "rows"));
        job.interrupted(rows.named(failure), &sent)
    })?;
    if !seen.is_complete {
        say!(
            "Stopped: {} of {} were sent. To send the rest, {}.",
            seen.place.rows,
            count(total, "row", "rows"),
            job.go_on()
        );
        return Err(Error::new(Kind::Replay, "the replay was stopped before its end").already_told());
    }
    ReplayState::remove(&job.path).map_err(|failure| Error::failure("all events were sent again", failure))?;
    say!("{} were read again.", count(seen.place.rows, "row", "rows"));
    mark.take_back(&refused.by_topic());
    tell_topics(&mark, &run);
    rows.tell_unsent();
    tell_refused(&refused);
    Ok(())
}

/// The records that Kafka has refused, and that were passed over.
fn tell_refused(refused: &SetAsideCount) {
    let records = refused.get();
    if records == 0 {
        return;
    }
    say!("  not sent: {}, refused by Kafka", count(records, "row", "rows"));
    let first = refused.first();
    for what in &first {
        say!("    {what}");
    }
    if records > first.len() as u64 {
        say!("    and {} more, which the log names", records - first.len() as u64);
    }
}

/// Ends the replay in order at a signal.
async fn stop_at_signals(target: Arc<watch::Sender<TargetState>>) {
    signalled().await;
    target.send_replace(TargetState::Stopped);
}

/// Says how far it is, and what it waits for.
async fn watch(status: Arc<Status>, track: PartTracker, total: u64) {
    const LOOK: Duration = Duration::from_millis(500);
    const FIRST_NEWS: u32 = 4;
    const LOOKS_BETWEEN_NEWS: u32 = 10;
    let (mut last_logged, mut looks, mut last) = (None, 0, 0);
    loop {
        sleep(LOOK).await;
        let waits = status.course().waits.longest().cloned().or_else(|| status.kafka());
        let waits = waits
            .or_else(|| status.awaited())
            .map(|trouble| trouble.failure.to_string());
        if waits != last_logged {
            if let Some(waits) = &waits {
                note!("Waiting: {waits}");
            }
            last_logged = waits;
        }
        looks += 1;
        let parts = *status.watch_delivered_parts().borrow();
        let rows = track.delivered(parts).rows;
        if (looks == FIRST_NEWS || looks % LOOKS_BETWEEN_NEWS == 0) && rows != last && status.phase() == Phase::Snapshot
        {
            last = rows;
            note!(
                "{} of {} were sent.",
                count(rows, "", "").trim_end(),
                count(total, "row", "rows")
            );
        }
    }
}

/// What became of each row. The pipeline takes the rows in the order in which the source has handed them on, so the number of a row says which
/// one it is.
#[derive(Clone)]
struct ReplayedRows {
    table: String,
    /// The columns by which rows are ordered, and how many of them come before the primary key.
    order: Vec<String>,
    before_key: usize,
    track: PartTracker,
    fates: Arc<Mutex<Fates>>,
}

#[derive(Debug, Default)]
struct Fates {
    /// How many rows of earlier sessions were delivered, and how many of this one have a fate.
    earlier: u64,
    handled: u64,
    /// Rows of which no record was sent, by the reason.
    unsent: BTreeMap<String, u64>,
    /// The first ones that could not be sent, and why.
    failed: Vec<(String, String)>,
}

/// How many rows that could not be sent are named.
const MOST_NAMED: usize = 100;

impl ReplayedRows {
    fn new(range: &Range, track: PartTracker) -> Self {
        let time = range.time.as_ref().filter(|_| range.order.len() > 1);
        Self {
            table: format!("{}.{}", range.schema, range.table),
            order: range.order.clone(),
            before_key: usize::from(time.is_some() && time == range.order.first()),
            track,
            fates: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Fates> {
        self.fates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For a new session, which reads again everything that was not delivered.
    fn begin(&self) -> Self {
        let mut fates = self.lock();
        (fates.earlier, fates.handled) = (self.track.place().rows, 0);
        drop(fates);
        self.clone()
    }

    /// How many rows were handled, in all sessions.
    fn handled(&self) -> u64 {
        let fates = self.lock();
        fates.earlier + fates.handled
    }

    /// The row that is the next one to have a fate, by its primary key.
    fn next(&self) -> Option<String> {
        let handled = self.lock().handled;
        let values = self.track.row(handled)?;
        let columns = self.order.iter().zip(values).skip(self.before_key);
        let columns = columns.map(|(name, value)| format!("{name} = {}", value.as_deref().unwrap_or("NULL")));
        Some(columns.collect::<Vec<_>>().join(", "))
    }

    /// A failure with the row in the place of a position, which rows of a table do not have.
    fn named(&self, mut failure: Failure) -> Failure {
        if let Some(cause) = failure.causes.first_mut()
            && cause.place.starts_with(&format!("a row of {} at LSN ", self.table))
            && let Some(row) = self.next()
        {
            cause.place = format!("the row of {} with {row}", self.table);
        }
        failure
    }

    fn tell_unsent(&self) {
        let fates = self.lock();
        for (why, rows) in &fates.unsent {
            say!("  not sent: {}, {why}", count(*rows, "row", "rows"));
        }
        for (row, why) in &fates.failed {
            say!("    {row}: {why}");
        }
    }
}

impl Witness for ReplayedRows {
    fn sent(&mut self, _: &Record<'_>) {
        self.lock().handled += 1;
    }

    fn withheld(&mut self, why: UnsentReason<'_>) {
        let (mut what, _) = reason(why);
        if let UnsentReason::SetAside { what: error, .. } = why {
            let row = self.next().unwrap_or_default();
            let mut fates = self.lock();
            if fates.failed.len() < MOST_NAMED {
                fates.failed.push((row, error.to_owned()));
            }
            what = what.split_once(": ").map_or(what.clone(), |(what, _)| what.to_owned());
        }
        let mut fates = self.lock();
        *fates.unsent.entry(what).or_default() += 1;
        fates.handled += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_that_move_with_the_time_are_found() {
        let cases = [
            ("created_at > NOW ( ) - interval '1 hour'", Some("now()")),
            ("d = CURRENT_DATE", Some("current_date")),
            ("type = 'known'", None),
            ("created_at > '2026-01-01'", None),
        ];
        for (condition, expected) in cases {
            assert_eq!(moving(condition), expected, "{condition}");
        }
    }
}
