//! A worker whose state is in Connect's topics: when it may begin, and what it begins with.

use std::time::{Duration, Instant};

use tokio::{sync::watch, task::spawn_blocking, time::sleep};
use tracing::{info, warn};
use walferry_engine::{Disposition, Failure, Kind, book::Book as _};
use walferry_kafka::connect::{ConnectTopics, Leadership, OffsetLog, StateLog, TopicBook, Turn};

/// How long workers of Kafka Connect may take to leave their group: a little more than their session lasts.
const CONNECT_ENDS: Duration = Duration::from_secs(20);
/// How often to check whether Kafka Connect was started beside this process.
const LOOK_FOR_CONNECT: Duration = Duration::from_secs(30);
/// Pause before the next request to Kafka.
const PAUSE: Duration = Duration::from_secs(2);

/// Everything that a worker keeps in Connect's topics.
pub(crate) struct Opened {
    pub(crate) book: TopicBook,
    pub(crate) offsets: OffsetLog,
    pub(crate) states: StateLog,
}

/// Inspects the topics, creates the missing ones, and makes sure that no Connect worker uses them.
pub(crate) async fn prepare(topics: &ConnectTopics) -> Result<(), Failure> {
    // The time does not count from the start: while Kafka is unreachable, nobody can see the members of its groups.
    let mut first_seen: Option<Instant> = None;
    loop {
        let topics = topics.clone();
        let looked = patiently(move || {
            let topics = topics.clone();
            move || {
                topics.ensure()?;
                topics.refuse_beside_connect()
            }
        });
        match looked.await {
            // A worker that was killed stays in its group until its session has ended.
            Err(failure)
                if failure.kind == Kind::ConnectRuns
                    && first_seen.get_or_insert_with(Instant::now).elapsed() < CONNECT_ENDS =>
            {
                info!(reason = %failure, "waiting until Kafka Connect's workers have left their group");
                sleep(PAUSE).await;
            }
            looked => return looked,
        }
    }
}

/// Opens the topics and reads the configurations.
pub(crate) async fn open(topics: &ConnectTopics, is_ours: fn(&str) -> bool) -> Result<Opened, Failure> {
    let topics = topics.clone();
    let opened = patiently(move || {
        let topics = topics.clone();
        move || {
            // A Connect may have been started while this process waited for its turn.
            topics.refuse_beside_connect()?;
            Ok(Opened {
                book: TopicBook::open(&topics, is_ours)?,
                offsets: OffsetLog::open(&topics)?,
                states: StateLog::open(&topics)?,
            })
        }
    })
    .await?;
    for (name, class) in opened.book.others() {
        warn!(
            connector = name,
            class, "Connect's topics contain a connector of another class: it is not changed and does not run here"
        );
    }
    Ok(opened)
}

/// The answer of a process that waits for its turn.
pub(crate) fn why_waiting(topics: &ConnectTopics, denied: Option<&Failure>) -> String {
    let group = &topics.group;
    match denied {
        None => format!(
            "This process is waiting: it uses Connect's topics of group {group:?} as soon as no other Walferry process does."
        ),
        Some(failure) => format!(
            "This process is waiting until it may use Connect's topics of group {group:?}: {failure}. {}",
            failure
                .hint()
                .map_or_else(String::new, |hint| format!("To mend this, {hint}."))
        ),
    }
}

/// Waits for the turn of this process.
pub(crate) async fn wait_for_turn(leadership: &Leadership) {
    let mut turn = leadership.turn();
    // The sender lives as long as the leadership.
    let _ = turn.wait_for(|turn| *turn != Turn::Another).await;
}

/// Waits until another process has taken over.
pub(crate) async fn lost(mut turn: watch::Receiver<Turn>) {
    let _ = turn.wait_for(|turn| *turn == Turn::Lost).await;
}

/// Warns, for ever, while Kafka Connect's workers use the same topics. They may have been started by mistake, and do not check for
/// Walferry.
pub(crate) async fn tell_of_connect(topics: ConnectTopics) {
    let mut told = false;
    loop {
        sleep(LOOK_FOR_CONNECT).await;
        let topics = topics.clone();
        match spawn_blocking(move || topics.refuse_beside_connect()).await {
            Ok(Err(failure)) if failure.kind == Kind::ConnectRuns && told => {}
            Ok(Err(failure)) if failure.kind == Kind::ConnectRuns => {
                told = true;
                warn!(
                    code = failure.code(),
                    reason = %failure,
                    hint = "stop these workers, or stop Walferry: both write to the topics, and only one can read each slot",
                    "Kafka Connect was started on the topics that Walferry uses"
                );
            }
            Ok(Ok(())) => told = false,
            // Kafka cannot be asked now.
            _ => {}
        }
    }
}

/// Runs blocking work on a thread where it delays nobody, and repeats it while Kafka is unreachable.
async fn patiently<T, F, W>(mut work: F) -> Result<T, Failure>
where
    T: Send + 'static,
    F: FnMut() -> W,
    W: FnOnce() -> Result<T, Failure> + Send + 'static,
{
    let mut told = false;
    loop {
        let done = spawn_blocking(work()).await;
        let done = done.unwrap_or_else(|error| Err(Failure::retry(Kind::NoThread, error.to_string())));
        match done {
            Ok(done) => {
                if told {
                    info!("Connect's topics can be used now");
                }
                return Ok(done);
            }
            Err(failure) if failure.disposition != Disposition::Retry => return Err(failure),
            Err(failure) => {
                if !std::mem::replace(&mut told, true) {
                    warn!(error = %failure, "Connect's topics cannot be used yet; retrying");
                }
            }
        }
        sleep(PAUSE).await;
    }
}
