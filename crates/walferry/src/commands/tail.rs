//! `walferry tail`: the records of changes as they are committed, on standard output instead of in Kafka.
//!
//! The real connector runs, from the slot to the converters, except for its two ends: the slot is temporary and ends with its
//! connection, records go to the screen, and the offset is kept in memory. So nothing is left behind, even if the process is killed.
//! The slot and the offset of the real connector are not touched.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::pending,
    io::{self, IsTerminal},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    sync::watch,
    task::{LocalSet, spawn_local},
    time::sleep,
};
use walferry_config::{
    SlotName, Value as _,
    connector::{PublicationAutocreate, SnapshotMode},
};
use walferry_diagnosis::{Kind, printed::one_line};
use walferry_engine::{
    Diagnosis, Failure, TargetState,
    sink::{Acks, Outgoing, Sink, Sinks},
    status::Status,
    witness::{UnsentReason, Witness},
};
use walferry_record::Record;
use walferry_worker::{
    assemble::{captured, passing},
    loaded::Loaded,
    process,
};

use crate::{
    cli::{ConnectorArgs, TailArgs},
    commands::show::{reason, text},
    error::Error,
    load::load,
    output::{self, note},
    signals::signalled,
};

/// Shows records until Ctrl-C, or until the requested number was shown.
pub(crate) fn tail(args: &TailArgs) -> Result<(), Error> {
    let configuration = load(&ConnectorArgs {
        config: vec![args.config.clone()],
        worker: args.worker.clone(),
        // Nothing is sent, so nobody has to say where Kafka is.
        bootstrap_servers: Some("localhost:9092".to_owned()),
    })?;
    let mut loaded = configuration.connectors.into_iter().next().ok_or_else(|| {
        Error::new(Kind::NothingToRun, "there is nothing to show").cause("no connector is given", None)
    })?;
    if loaded.connector.relay.is_some() {
        let what = "the connector is in relay mode: it polls its table, so there is no stream of changes to follow";
        let hint = "see the records that its rows make with `walferry check --show-records`";
        return Err(Error::new(Kind::ShowRecords, "records cannot be shown").cause(what, Some(hint.to_owned())));
    }
    let failed = |failure| Error::failure("records cannot be shown", failure);
    let runtime = process::runtime().map_err(failed)?;
    LocalSet::new().block_on(&runtime, async {
        let tables = visible_tables(&loaded, &args.table).await?;
        leave_nothing(&mut loaded)?;
        follow(args, &loaded, &tables).await
    })
}

/// Checks that changes of the captured tables can be seen, and returns these tables.
async fn visible_tables(loaded: &Loaded, asked: &[String]) -> Result<Vec<String>, Error> {
    let config = &loaded.connector;
    let failed = |failure| Error::failure("records cannot be shown", failure);
    let tables = walferry_postgres::check::captured_tables(config, captured(config))
        .await
        .map_err(failed)?;
    let missing = asked.iter().filter(|table| !tables.contains(table));
    let missing: Vec<_> = missing
        .map(|table| {
            let text = format!("`--table` is {table:?}, which is not a captured table");
            let hint = match tables.len() {
                0 => "the lists of the configuration match no table of the database".to_owned(),
                _ => format!("write it in the same case as one of these: {}", some(&tables)),
            };
            Diagnosis::error(Kind::ShowRecords, text).with_hint(hint)
        })
        .collect();
    if !missing.is_empty() {
        return Err(Error::new(Kind::ShowRecords, "records cannot be shown").because(missing));
    }
    let name = &config.publication.name;
    let plan = walferry_postgres::check::publication_plan(config, captured(config))
        .await
        .map_err(failed)?;
    let statements = plan.statements.join("; ");
    if !plan.exists {
        // It would have to be committed, and would stay if the process is killed.
        return Err(Error::new(Kind::ShowRecords, "records cannot be shown").cause(
            format!("publication {name:?} does not exist, and this command creates nothing"),
            Some(format!("create it, as a start of the connector would: {statements};")),
        ));
    }
    if !statements.is_empty() {
        note!(
            "Publication {name:?} is not as a start would make it. Until then, you see what it sends now: {statements};"
        );
    }
    Ok(tables)
}

/// Removes everything from the configuration that would change something on the server.
fn leave_nothing(loaded: &mut Loaded) -> Result<(), Error> {
    let config = &mut loaded.connector;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let slot = format!("walferry_tail_{:x}", now.as_micros());
    config.slot.name = SlotName::parse(&slot)
        .map_err(|_| Error::new(Kind::ShowRecords, format!("{slot} is not a name for a slot")))?;
    config.slot.drop_on_stop = false;
    config.slot.failover = false;
    config.publication.autocreate = PublicationAutocreate::Disabled;
    config.publication.replica_identities.clear();
    config.snapshot.mode = SnapshotMode::NoData;
    config.signals.channels.clear();
    config.signals.notifications.clear();
    config.heartbeat.interval = None;
    Ok(())
}

/// The first names of a list.
fn some(names: &[String]) -> String {
    const MOST_LISTED: usize = 5;
    let list = names
        .iter()
        .take(MOST_LISTED)
        .map(|name| one_line(name))
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(MOST_LISTED) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}

async fn follow(args: &TailArgs, loaded: &Loaded, tables: &[String]) -> Result<(), Error> {
    let config = &loaded.connector;
    let status = Arc::new(Status::new(&config.name, config.topics.prefix.to_string()));
    // There is nothing to decide: the command ends at a gap.
    let _ = status.gap_command.set("walferry tail, started again".to_owned());
    let screen = Screen {
        tables: args.table.clone(),
        limit: args.limit,
        is_terminal: io::stdout().is_terminal(),
        target: Arc::new(watch::Sender::new(TargetState::Running)),
        progress: Shared::default(),
    };
    let (target, progress) = (screen.target.clone(), screen.progress.clone());
    let (target_state, witness) = (target.subscribe(), screen.clone());
    let mut connector = passing(loaded, screen, move || Box::new(witness.clone()), status.clone());

    let followed = match args.table.is_empty() {
        true => some(tables),
        false => some(&args.table),
    };
    let ids = loaded.built.asks_registry();
    let watched = status.clone();
    spawn_local(async move {
        tokio::select! {
            () = status.stream.wait_for_streaming() => {}
            never = show_wait(&status) => match never {},
        }
        if ids {
            note!("The schema registry is not asked: the id of each schema is shown as 0.");
        }
        note!("Waiting for changes of {followed}. Nothing is sent, and nothing is left behind. Ctrl-C ends.");
    });
    spawn_local(async move {
        signalled().await;
        target.send_replace(TargetState::Stopped);
    });
    let gap = async {
        loop {
            if let Some(gap) = watched.gap() {
                return gap.what;
            }
            sleep(Duration::from_millis(100)).await;
        }
    };
    let ended = tokio::select! {
        ended = connector.run(target_state) => ended,
        what = gap => Err(Failure::stop(
            Kind::PublicationGap,
            format!("the server does not send what is to be followed any more: {what}"),
            "create or correct the publication (`walferry check --fix` prints the SQL), and start `walferry tail` again",
        )),
    };
    let progress = progress.lock();
    let records = match progress.records {
        1 => "1 record".to_owned(),
        count => format!("{count} records"),
    };
    note!("{records} shown.");
    for (why, count) in &progress.withheld {
        note!("Not sent: {count}, {why}.");
    }
    ended.map_err(|mut failure| {
        if failure.hint().is_none()
            && let Some(cause) = failure.causes.first_mut()
        {
            cause.hint = Some("start `walferry tail` again when the server answers".to_owned());
        }
        Error::failure("no more records can be shown", failure)
    })
}

/// Says once what the connector waits for.
async fn show_wait(status: &Status) -> Infallible {
    loop {
        if let Some(wait) = status.course().waits.longest() {
            note!("Not yet: {}", wait.failure);
            return pending().await;
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// What was shown, and what was not.
#[derive(Debug, Default)]
struct TailCounts {
    records: u64,
    /// Number of changes and records that are not sent, by reason.
    withheld: BTreeMap<String, u64>,
}

#[derive(Debug, Clone, Default)]
struct Shared(Arc<Mutex<TailCounts>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, TailCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where records go instead of to Kafka.
#[derive(Debug, Clone)]
struct Screen {
    /// The tables whose records are shown. Empty: all tables.
    tables: Vec<String>,
    limit: Option<u64>,
    is_terminal: bool,
    target: Arc<watch::Sender<TargetState>>,
    progress: Shared,
}

impl Screen {
    fn wants(&self, table: &str) -> bool {
        self.tables.is_empty() || self.tables.iter().any(|wanted| wanted == table)
    }

    fn show(&self, record: &Outgoing<'_>) -> Result<(), Failure> {
        let mut progress = self.progress.lock();
        if self.limit.is_some_and(|limit| progress.records >= limit) {
            return Ok(());
        }
        progress.records += 1;
        let mut lines = match record.origin.table {
            "" => format!("no table  {}\n", record.origin.position),
            table => format!("{}  {}\n", one_line(table), record.origin.position),
        };
        // Further lines of a part are below its first line.
        let mut part = |name: &str, text: &str| {
            let text = text.replace('\n', &format!("\n{:13}", ""));
            lines.push_str(&format!("  {name:<11}{text}\n"));
        };
        part("topic", &one_line(record.topic));
        if let Some(partition) = record.partition {
            part("partition", &partition.to_string());
        }
        part("key", &text::readable(record.key, self.is_terminal));
        let headers = record.headers.iter().map(|(name, value)| {
            let value = text::readable(*value, self.is_terminal);
            format!("{} = {value}", one_line(name))
        });
        let headers = headers.collect::<Vec<_>>().join("\n");
        if !headers.is_empty() {
            part("headers", &headers);
        }
        part("value", &text::readable(record.value, self.is_terminal));
        lines.push('\n');
        let is_closed = match output::stdout().show(lines.into_bytes()) {
            Ok(()) => false,
            // Nobody reads any more, as with `walferry tail | head`, or nobody has read until Ctrl-C.
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::TimedOut) => true,
            Err(error) => {
                let what = format!("the output cannot be written: {error}");
                return Err(Failure::stop(
                    Kind::Output,
                    what,
                    "check the file that receives the output",
                ));
            }
        };
        if is_closed || self.limit.is_some_and(|limit| progress.records >= limit) {
            self.target.send_replace(TargetState::Stopped);
        }
        Ok(())
    }
}

impl Sinks for Screen {
    type Sink = Open;

    fn open(&mut self, acks: Acks) -> Result<Open, Failure> {
        Ok(Open {
            screen: self.clone(),
            acks,
        })
    }
}

struct Open {
    screen: Screen,
    acks: Acks,
}

impl Sink for Open {
    fn send(&mut self, record: &Outgoing<'_>, sequence: u64) -> Result<(), Failure> {
        if self.screen.wants(record.origin.table) {
            self.screen.show(record)?;
        }
        self.acks.delivered(sequence);
        Ok(())
    }
}

impl Witness for Screen {
    fn sent(&mut self, _: &Record<'_>) {}

    fn withheld(&mut self, why: UnsentReason<'_>) {
        let (what, _) = reason(why);
        *self
            .progress
            .lock()
            .withheld
            .entry(one_line(&what).into_owned())
            .or_default() += 1;
    }
}
