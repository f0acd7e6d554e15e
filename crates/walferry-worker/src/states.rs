//! States of connectors and their topics in Connect's status topic: for scripts and dashboards that read it, and for the next process.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Value as Json, json};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};
use tracing::{info, warn};
use walferry_admin::{connect_status, connectors::Connectors as _, manager::ConnectorManager as _};
use walferry_engine::{Failure, WantedState, status::Phase};
use walferry_kafka::connect::{StateLog, StateRecords, StatusKey, first_seen_ms, state_record, topic_record};

use crate::{duty::Duty, vital::spawn_vital, worker::ManagedConnectors};

/// How often states are compared.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the end of the process may wait until its last states are written.
const LAST_STATES: Duration = Duration::from_secs(5);

/// Writes each state that has changed.
pub struct StateWriter {
    connectors: ManagedConnectors,
    log: Arc<StateLog>,
    /// The content of the topic, with what other workers have written.
    read: watch::Receiver<Arc<StateRecords>>,
    worker_id: String,
    /// `topic.tracking.enable`. If it is off, records about topics stay as they are, as in Connect.
    tracks_topics: bool,
    /// What the topic has of the connectors that this process runs. `null` stands for a state that an earlier owner has left.
    published: StateRecords,
    /// The duty that `published` belongs to.
    duty: Duty,
    /// Whether the last records were written. If not, the log says so once.
    is_written: bool,
}

/// Connectors that have stopped here because they move to another worker. The answer comes when their states are written.
struct Moved(Vec<String>, oneshot::Sender<()>);

/// Tells a state writer of connectors that have moved.
#[derive(Clone)]
pub struct StateReports(mpsc::UnboundedSender<Moved>);

impl StateReports {
    /// Nobody runs these connectors any more. Returns when this is written, or when it cannot be.
    pub async fn tell_moved(&self, names: Vec<String>) {
        let (reply, written) = oneshot::channel();
        if self.0.send(Moved(names, reply)).is_ok() {
            // The writer may end first.
            let _ = written.await;
        }
    }
}

/// A state writer at work.
pub struct StateWriterTask {
    stop: watch::Sender<bool>,
    reports: mpsc::UnboundedSender<Moved>,
    task: JoinHandle<StateWriter>,
}

impl StateWriterTask {
    /// What tells it of connectors that have moved.
    pub fn reports(&self) -> StateReports {
        StateReports(self.reports.clone())
    }

    /// Ends the work. From now on, nothing is written.
    pub async fn stop(self) -> Option<StateWriter> {
        self.stop.send_replace(true);
        self.task.await.ok()
    }
}

impl StateWriter {
    /// Makes a state writer. `read` is what the topic has. Connectors of other classes are left alone.
    pub fn new(
        connectors: ManagedConnectors,
        log: Arc<StateLog>,
        read: watch::Receiver<Arc<StateRecords>>,
        worker_id: String,
        tracks_topics: bool,
    ) -> Self {
        Self {
            connectors,
            log,
            read,
            worker_id,
            tracks_topics,
            published: StateRecords::new(),
            duty: Duty::none(),
            is_written: true,
        }
    }

    /// Writes states for ever. As in Connect, a state that cannot be written delays nothing: the next round tries again.
    pub fn start(mut self) -> StateWriterTask {
        let stop = watch::Sender::new(false);
        let mut stopped = stop.subscribe();
        let (reports, mut moved) = mpsc::unbounded_channel();
        let task = spawn_vital(async move {
            loop {
                self.take_over();
                let now = self.now();
                tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stop| *stop) => return self,
                    () = self.write(now) => {}
                }
                tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stop| *stop) => return self,
                    Some(Moved(names, reply)) = moved.recv() => {
                        self.tell_moved(&names).await;
                        // It may have been given up meanwhile.
                        let _ = reply.send(());
                    }
                    () = sleep(INTERVAL) => {}
                }
            }
        });
        StateWriterTask { stop, reports, task }
    }

    /// Takes over the records of connectors that this process runs from now on, and leaves those of others to them.
    fn take_over(&mut self) {
        let duty = self.connectors.duty();
        if duty == self.duty {
            return;
        }
        self.published.retain(|subject, _| duty.has(subject.connector()));
        let others = self.connectors.names_of_others();
        let read = self.read.borrow().clone();
        for (subject, record) in read.iter() {
            let name = subject.connector();
            if others.contains(name) || self.duty.has(name) || !duty.has(name) {
                continue;
            }
            match subject {
                StatusKey::Topic(_, topic) if self.tracks_topics => {
                    self.connectors
                        .active_topics()
                        .remember(name, topic, first_seen_ms(record));
                    self.published.insert(subject.clone(), record.clone());
                }
                StatusKey::Topic(..) => {}
                StatusKey::Connector(_) | StatusKey::Task(..) => {
                    drop(self.published.insert(subject.clone(), Json::Null))
                }
            }
        }
        self.duty = duty;
    }

    /// What the topic is to have now.
    fn now(&self) -> StateRecords {
        let mut now = StateRecords::new();
        let names = self.names();
        let statuses = self.connectors.supervisor().statuses();
        // A connector that is being removed has no state any more.
        for status in statuses.iter().filter(|status| names.contains(&status.name)) {
            let body = connect_status(status, env!("CARGO_PKG_VERSION"), &self.worker_id);
            now.insert(
                StatusKey::Connector(status.name.clone()),
                state_record(&body["connector"]),
            );
            for task in body["tasks"].as_array().into_iter().flatten() {
                let number = task["id"].as_u64().unwrap_or_default();
                now.insert(StatusKey::Task(status.name.clone(), number), state_record(task));
            }
            self.connectors.active_topics().look(status);
        }
        // A connector that is about to start keeps the states of the last process until then.
        for (subject, record) in &self.published {
            let name = subject.connector();
            let is_state = !matches!(subject, StatusKey::Topic(..));
            if is_state && names.contains(name) && !statuses.iter().any(|status| status.name == name) {
                now.insert(subject.clone(), record.clone());
            }
        }
        if self.tracks_topics {
            now.extend(names.iter().flat_map(|name| self.topics_of(name)));
        }
        now
    }

    /// The connectors that this process runs, or would run if it is to.
    fn names(&self) -> BTreeSet<String> {
        let names = self.connectors.names().into_iter();
        names.filter(|name| self.duty.has(name)).collect()
    }

    fn topics_of(&self, name: &str) -> Vec<(StatusKey, Json)> {
        let topics = self.connectors.active_topics().of(name).into_iter();
        let records = topics.map(|(topic, first_seen_ms)| {
            let record = topic_record(name, &topic, first_seen_ms);
            (StatusKey::Topic(name.to_owned(), topic), record)
        });
        records.collect()
    }

    /// Writes what has changed. Everything is on its way at once, because many connectors may change at the same time.
    async fn write(&mut self, now: StateRecords) {
        let changed = now
            .iter()
            .filter(|(subject, record)| self.published.get(subject) != Some(record));
        let gone = self.published.keys().filter(|subject| !now.contains_key(subject));
        let changes: Vec<(&StatusKey, Option<&Json>)> = changed
            .map(|(subject, record)| (subject, Some(record)))
            .chain(gone.map(|subject| (subject, None)))
            .collect();
        let sent: Vec<_> = changes
            .into_iter()
            .map(|(subject, record)| (subject.clone(), record.cloned(), self.log.send(subject, record)))
            .collect();
        let mut failure: Option<Failure> = None;
        for (subject, record, sent) in sent {
            let written = match sent {
                Ok(sent) => sent.settled().await,
                Err(failure) => Err(failure),
            };
            match (written, record) {
                (Ok(()), Some(record)) => drop(self.published.insert(subject, record)),
                (Ok(()), None) => drop(self.published.remove(&subject)),
                (Err(why), _) => failure = Some(why),
            }
        }
        match failure {
            Some(failure) if std::mem::take(&mut self.is_written) => {
                warn!(error = %failure, "states of connectors could not be written to the status topic; retrying");
            }
            None if !std::mem::replace(&mut self.is_written, true) => {
                info!("states of connectors are written to the status topic again");
            }
            _ => {}
        }
    }

    /// Says that nobody runs the connectors any more, as Connect does at its end. A task that has failed stays FAILED. To be called when
    /// all runs have ended. If Kafka is away, it gives up after a while.
    pub async fn tell_end(mut self) {
        let mut last = StateRecords::new();
        let names = self.names();
        let statuses = self.connectors.supervisor().statuses();
        for status in statuses.iter().filter(|status| names.contains(&status.name)) {
            let failed_task = matches!(status.phase(), Phase::Failed(_)).then(|| {
                let body = connect_status(status, env!("CARGO_PKG_VERSION"), &self.worker_id);
                state_record(&body["tasks"][0])
            });
            last.extend(self.unassigned(&status.name, failed_task));
            self.connectors.active_topics().look(status);
        }
        if self.tracks_topics {
            last.extend(names.iter().flat_map(|name| self.topics_of(name)));
        }
        // The answer to the last write may still be missing, so both states are written whatever `published` says.
        self.published
            .retain(|subject, _| matches!(subject, StatusKey::Topic(..)));
        self.write_last(last).await;
    }

    /// Says the same of connectors that have stopped here and move to another worker. One that has failed starts again there, as in Connect.
    async fn tell_moved(&mut self, names: &[String]) {
        self.take_over();
        let known: BTreeSet<String> = self.connectors.names().into_iter().collect();
        let mut last = self.published.clone();
        // One that was removed meanwhile has no state any more.
        for name in names.iter().filter(|name| known.contains(*name)) {
            last.extend(self.unassigned(name, None));
            if self.tracks_topics {
                last.extend(self.topics_of(name));
            }
        }
        self.write_last(last).await;
        let duty = self.duty.clone();
        self.published.retain(|subject, _| duty.has(subject.connector()));
    }

    /// The states of a connector that nobody runs. One that is stopped has no task.
    fn unassigned(&self, name: &str, failed_task: Option<Json>) -> StateRecords {
        let unassigned = state_record(&json!({
            "state": "UNASSIGNED", "worker_id": self.worker_id, "version": env!("CARGO_PKG_VERSION"),
        }));
        let task = match failed_task {
            Some(failed) => Some(failed),
            None if self.connectors.target(name) == Some(WantedState::Stopped) => None,
            None => Some(unassigned.clone()),
        };
        let task = task.map(|record| (StatusKey::Task(name.to_owned(), 0), record));
        let connector = (StatusKey::Connector(name.to_owned()), unassigned);
        [connector].into_iter().chain(task).collect()
    }

    async fn write_last(&mut self, last: StateRecords) {
        if timeout(LAST_STATES, self.write(last)).await.is_err() {
            warn!(
                seconds = LAST_STATES.as_secs(),
                "Kafka has not accepted the last states of the connectors in time: the status topic may still say that they run"
            );
        }
    }
}
