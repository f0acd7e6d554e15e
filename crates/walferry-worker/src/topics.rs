//! A worker whose state is in Connect's topics: when it may begin, and what it begins with.

use std::time::{Duration, Instant};

use tokio::{task::spawn_blocking, time::sleep};
use tracing::{info, warn};
use walferry_admin::{Standby, StandbyStage};
use walferry_engine::{Disposition, Failure, Kind, Pauses, connector_store::ConnectorStore as _};
use walferry_kafka::connect::{ConnectTopics, GroupView, OffsetLog, StateLog, StateRecords, TopicConnectorStore};

use crate::worker::OpenStore;

/// How long workers of Kafka Connect may take to leave their group: a little more than their session lasts.
const CONNECT_ENDS: Duration = Duration::from_secs(20);
/// How often to check whether Kafka Connect was started beside this process.
const LOOK_FOR_CONNECT: Duration = Duration::from_secs(30);
/// Pause before asking again whether Kafka Connect has ended.
const PAUSE: Duration = Duration::from_secs(2);
/// Pauses before the next request to a Kafka that does not answer. They double from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LAST_PAUSE: Duration = Duration::from_secs(5);

/// Everything that a worker keeps in Connect's topics.
pub(crate) struct WorkerTopics {
    pub store: OpenStore,
    pub offsets: OffsetLog,
    pub states: StateLog,
    /// What the status topic has.
    pub(crate) read_states: StateRecords,
}

/// Inspects the topics, creates the missing ones, and makes sure that no Connect worker uses them. While Kafka does not answer, it waits and
/// gives the reason to those who ask this process.
pub(crate) async fn prepare(topics: &ConnectTopics, standby: &Standby) -> Result<(), Failure> {
    // The time does not count from the start: while Kafka is unreachable, nobody can see the members of its groups.
    let mut first_seen: Option<Instant> = None;
    loop {
        let topics = topics.clone();
        let look = move || {
            let topics = topics.clone();
            move || {
                topics.ensure()?;
                topics.ensure_work()?;
                topics.refuse_beside_connect()
            }
        };
        let looked = patiently(look, standby);
        match looked.await {
            // A worker that was killed stays in its group until its session has ended.
            Err(failure)
                if failure.kind == Kind::ConnectRuns
                    && first_seen.get_or_insert_with(Instant::now).elapsed() < CONNECT_ENDS =>
            {
                info!(
                    reason = failure.to_string(),
                    "waiting until Kafka Connect's workers have left their group"
                );
                standby.set(StandbyStage::Starting(format!(
                    "This process is waiting until Kafka Connect's workers have ended: {failure}."
                )));
                sleep(PAUSE).await;
            }
            looked => return looked,
        }
    }
}

/// Opens the topics, and reads the configurations and the states. While Kafka does not answer, it waits and gives the reason to those who ask this process.
pub(crate) async fn open(
    topics: &ConnectTopics,
    is_ours: fn(&str) -> bool,
    standby: &Standby,
) -> Result<WorkerTopics, Failure> {
    let topics = topics.clone();
    let open = move || {
        let topics = topics.clone();
        move || {
            // A Connect may have been started while this process waited for its turn.
            topics.refuse_beside_connect()?;
            let mut store = TopicConnectorStore::open(&topics, is_ours)?;
            let entries = store.entries()?;
            let states = StateLog::open(&topics)?;
            let read_states = states.read()?;
            let store = OpenStore {
                store: Box::new(store),
                entries,
            };
            Ok(WorkerTopics {
                store,
                offsets: OffsetLog::open(&topics)?,
                states,
                read_states,
            })
        }
    };
    let opened = patiently(open, standby).await?;
    for (name, class) in opened.store.store.others() {
        warn!(
            connector = name,
            class, "Connect's topics contain a connector of another class: it is not changed and does not run here"
        );
    }
    Ok(opened)
}

/// A process reads the topics before it joins the group.
pub fn preparing(topics: &ConnectTopics) -> StandbyStage {
    StandbyStage::Starting(format!(
        "This process is starting: it looks at Connect's topics of group {:?}. If this takes long, the log says why.",
        topics.group
    ))
}

/// The status of a process that may not work yet: what blocks it, and what to do. Until it sees the group, it cannot say which process is active.
pub fn waiting(
    topics: &ConnectTopics,
    view: Option<&GroupView>,
    obstacle: Option<(String, Option<String>)>,
) -> StandbyStage {
    let group = &topics.group;
    let active = match view.and_then(GroupView::leader) {
        Some(leader) => match &leader.address {
            Some(address) => format!(" The active one is {address}."),
            None => format!(" The active one runs on {}.", leader.host.trim_start_matches('/')),
        },
        None => String::new(),
    };
    match obstacle {
        Some((what, hint)) => StandbyStage::Starting(format!(
            "This process is waiting until it may use Connect's topics of group {group:?}: {what}. {}",
            hint.map_or_else(String::new, |hint| format!("To mend this, {hint}."))
        )),
        None if view.is_some() => StandbyStage::Waiting(format!(
            "This process is waiting: a worker of group {group:?} does not share its connectors, because it is of an earlier version or has \
             connectors of files, so one process works at a time.{active}"
        )),
        None => StandbyStage::Starting(format!(
            "This process is starting: it joins the workers of group {group:?}."
        )),
    }
}

/// A process may work, and reads the topics.
pub fn reading(topics: &ConnectTopics) -> StandbyStage {
    StandbyStage::Starting(format!(
        "This process is starting: it reads Connect's topics of group {:?}.",
        topics.group
    ))
}

/// Warns, for ever, while Kafka Connect's workers use the same topics. They may have been started by mistake, and do not check for
/// Walferry.
pub(crate) async fn tell_of_connect(topics: ConnectTopics) {
    let mut is_reported = false;
    loop {
        sleep(LOOK_FOR_CONNECT).await;
        let topics = topics.clone();
        match spawn_blocking(move || topics.refuse_beside_connect()).await {
            Ok(Err(failure)) if failure.kind == Kind::ConnectRuns && is_reported => {}
            Ok(Err(failure)) if failure.kind == Kind::ConnectRuns => {
                is_reported = true;
                warn!(
                    code = failure.code(),
                    reason = failure.to_string(),
                    hint = "stop these workers, or stop Walferry: both write to the topics, and only one can read each slot",
                    "Kafka Connect was started on the topics that Walferry uses"
                );
            }
            Ok(Ok(())) => is_reported = false,
            // Kafka cannot be asked now.
            _ => {}
        }
    }
}

/// Runs blocking work on a thread where it delays nobody, and repeats it while Kafka is unreachable. Meanwhile the log and the answers of
/// this process name the reason.
async fn patiently<T, F, W>(mut work: F, standby: &Standby) -> Result<T, Failure>
where
    T: Send + 'static,
    F: FnMut() -> W,
    W: FnOnce() -> Result<T, Failure> + Send + 'static,
{
    let (mut reported, mut pauses) = (None, Pauses::new(FIRST_PAUSE, LAST_PAUSE));
    loop {
        let done = spawn_blocking(work()).await;
        let done = done.unwrap_or_else(|error| Err(Failure::retry(Kind::NoThread, error.to_string())));
        match done {
            Ok(done) => {
                if reported.is_some() {
                    info!("Connect's topics can be used now");
                }
                return Ok(done);
            }
            Err(failure) if failure.disposition != Disposition::Retry => return Err(failure),
            Err(failure) => {
                if reported.replace(failure.kind) != Some(failure.kind) {
                    warn!(
                        code = failure.code(),
                        error = %failure,
                        hint = failure.hint(),
                        "Connect's topics cannot be used yet; retrying"
                    );
                }
                standby.set(StandbyStage::Starting(why_not_yet(&failure)));
            }
        }
        sleep(pauses.next_pause()).await;
    }
}

/// The answer of a process that cannot use Kafka yet.
fn why_not_yet(failure: &Failure) -> String {
    let hint = failure
        .hint()
        .map_or_else(String::new, |hint| format!(" To mend this, {hint}."));
    format!(
        "This process is waiting: Connect's topics cannot be used yet, and it tries again and again. {failure}.{hint}"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    };

    use super::*;

    fn block_on<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(test)
    }

    #[test]
    fn while_kafka_does_not_answer_the_process_waits_and_says_why() {
        let tries = Arc::new(AtomicU32::new(0));
        let standby = Standby::new(StandbyStage::Waiting(
            "This process is waiting for its turn.".to_owned(),
        ));
        let (counts, state) = (tries.clone(), standby.clone());
        let work = move || {
            let (counts, state) = (counts.clone(), state.clone());
            move || match counts.fetch_add(1, SeqCst) {
                0 => Err(Failure::retry(Kind::Unreachable, "no broker answers")),
                _ => Ok(state.why()),
            }
        };
        let reason = block_on(patiently(work, &standby)).expect("it tries again");
        assert!(
            reason.contains("no broker answers") && reason.contains("waiting"),
            "{reason}"
        );
        assert_eq!(tries.load(SeqCst), 2);
        // What nobody can mend by waiting ends it.
        let refused = || || Err::<(), _>(Failure::stop(Kind::ConnectTopic, "not compacted", "alter it"));
        assert!(block_on(patiently(refused, &standby)).is_err());
    }
}
