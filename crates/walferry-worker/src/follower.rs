//! Reads what other workers have written to Connect's topics.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tokio::sync::{Notify, watch};
use tracing::{debug, warn};
use walferry_engine::{Failure, Kind};
use walferry_kafka::connect::{ConnectTopics, StateLog, StateRecords, TopicNews, TopicWatch};

/// How long to wait for news. The end of the process waits no longer.
const WAIT: Duration = Duration::from_millis(500);
/// How often both topics are read even without news: they may have been given more partitions.
const ANYWAY: Duration = Duration::from_secs(10);
/// Pause after an error.
const PAUSE: Duration = Duration::from_secs(1);

/// Reads the status topic all the time, and tells when the configuration topic has changed. It ends when this is dropped.
#[derive(Debug)]
pub struct Follower {
    is_over: Arc<AtomicBool>,
}

impl Follower {
    /// Starts it. `read` is what the status topic has. `states` gets each new content, and `changed` is notified of the configuration topic.
    pub fn start(
        topics: ConnectTopics,
        log: Arc<StateLog>,
        read: StateRecords,
        states: watch::Sender<Arc<StateRecords>>,
        changed: Arc<Notify>,
    ) -> Result<Self, Failure> {
        let is_over = Arc::new(AtomicBool::new(false));
        let stopped = is_over.clone();
        let thread = thread::Builder::new()
            .name("follower".into())
            .spawn(move || follow(&topics, &log, read, &states, &changed, &stopped));
        thread.map_err(|error| Failure::retry(Kind::NoThread, error.to_string()))?;
        Ok(Self { is_over })
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}

fn follow(
    topics: &ConnectTopics,
    log: &StateLog,
    mut known: StateRecords,
    states: &watch::Sender<Arc<StateRecords>>,
    changed: &Notify,
    is_over: &AtomicBool,
) {
    let (mut watch, mut last, mut is_told): (Option<TopicWatch>, Option<Instant>, bool) = (None, None, false);
    while !is_over.load(Relaxed) {
        let news = match &watch {
            // Too early for the client to notice the first records: both are read once more.
            None => {
                match TopicWatch::open(topics) {
                    Ok(opened) => watch = Some(opened),
                    Err(error) => {
                        debug!(%error, "Connect's topics cannot be watched");
                        thread::sleep(PAUSE);
                    }
                }
                last = None;
                TopicNews::default()
            }
            Some(watch) => watch.wait(WAIT),
        };
        let is_due = last.is_none_or(|last| last.elapsed() > ANYWAY);
        if is_due {
            last = Some(Instant::now());
        }
        if news.configurations || is_due {
            changed.notify_one();
        }
        if !(news.states || is_due) {
            continue;
        }
        match log.follow(&mut known) {
            Ok(()) => {
                is_told = false;
                states.send_if_modified(|states| {
                    let is_new = **states != known;
                    if is_new {
                        *states = Arc::new(known.clone());
                    }
                    is_new
                });
            }
            Err(error) => {
                if !std::mem::replace(&mut is_told, true) {
                    warn!(%error, "states of connectors on other workers cannot be read; retrying");
                }
                // A topic that was missed is read again.
                last = None;
                thread::sleep(PAUSE);
            }
        }
    }
}
