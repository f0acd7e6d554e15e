//! States of connectors and their topics in Connect's status topic: for scripts and dashboards that read it, and for the next process.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value as Json, json};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tracing::{info, warn};
use walferry_admin::{connect_status, connectors::Connectors as _, herder::Herder as _};
use walferry_engine::{Failure, WantedState, status::Phase};
use walferry_kafka::connect::{StateLog, StatusKey, first_seen_ms, state_record, topic_record};

use crate::{vital::spawn_vital, worker::Herd};

/// How often states are compared.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long the end of the process may wait until its last states are written.
const LAST_STATES: Duration = Duration::from_secs(5);

/// The records of the status topic that belong to this process's connectors.
type Records = BTreeMap<StatusKey, Json>;

/// Writes each state that has changed.
pub struct StateWriter {
    herd: Herd,
    log: StateLog,
    worker_id: String,
    /// `topic.tracking.enable`. If it is off, records about topics stay as they are, as in Connect.
    tracks_topics: bool,
    /// What is in the topic.
    told: Records,
    /// Whether the last records were written. If not, the log says so once.
    is_written: bool,
}

/// A state writer at work.
pub struct StateWriterTask {
    stop: watch::Sender<bool>,
    task: JoinHandle<StateWriter>,
}

impl StateWriterTask {
    /// Ends the work. From now on, nothing is written.
    pub async fn stop(self) -> Option<StateWriter> {
        self.stop.send_replace(true);
        self.task.await.ok()
    }
}

impl StateWriter {
    /// Makes a state writer. `read` is what the topic has. Connectors of `others` belong to other classes: their records are left alone.
    pub fn new(herd: Herd, log: StateLog, mut read: Records, worker_id: String, tracks_topics: bool) -> Self {
        let others: BTreeSet<String> = herd.names_of_others();
        read.retain(|subject, _| !others.contains(subject.connector()));
        if tracks_topics {
            for (subject, record) in &read {
                if let StatusKey::Topic(name, topic) = subject {
                    herd.active_topics().remember(name, topic, first_seen_ms(record));
                }
            }
        } else {
            read.retain(|subject, _| !matches!(subject, StatusKey::Topic(..)));
        }
        Self {
            herd,
            log,
            worker_id,
            tracks_topics,
            told: read,
            is_written: true,
        }
    }

    /// Writes states for ever. As in Connect, a state that cannot be written delays nothing: the next round tries again.
    pub fn start(mut self) -> StateWriterTask {
        let stop = watch::Sender::new(false);
        let mut stopped = stop.subscribe();
        let task = spawn_vital(async move {
            loop {
                let now = self.now();
                tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stop| *stop) => return self,
                    () = self.write(now) => {}
                }
                tokio::select! {
                    biased;
                    _ = stopped.wait_for(|stop| *stop) => return self,
                    () = sleep(INTERVAL) => {}
                }
            }
        });
        StateWriterTask { stop, task }
    }

    /// What the topic is to have now.
    fn now(&self) -> Records {
        let mut now = Records::new();
        let names: BTreeSet<String> = self.herd.names().into_iter().collect();
        let statuses = self.herd.supervisor().statuses();
        // A connector that is being removed has no state any more.
        for status in statuses.iter().filter(|status| names.contains(&status.name)) {
            let shown = connect_status(status, env!("CARGO_PKG_VERSION"), &self.worker_id);
            now.insert(
                StatusKey::Connector(status.name.clone()),
                state_record(&shown["connector"]),
            );
            for task in shown["tasks"].as_array().into_iter().flatten() {
                let number = task["id"].as_u64().unwrap_or_default();
                now.insert(StatusKey::Task(status.name.clone(), number), state_record(task));
            }
            self.herd.active_topics().look(status);
        }
        // A connector that is about to start keeps the states of the last process until then.
        for (subject, record) in &self.told {
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

    fn topics_of(&self, name: &str) -> Vec<(StatusKey, Json)> {
        let topics = self.herd.active_topics().of(name).into_iter();
        let records = topics.map(|(topic, first_seen_ms)| {
            let record = topic_record(name, &topic, first_seen_ms);
            (StatusKey::Topic(name.to_owned(), topic), record)
        });
        records.collect()
    }

    /// Writes what has changed. Everything is on its way at once, because many connectors may change at the same time.
    async fn write(&mut self, now: Records) {
        let changed = now
            .iter()
            .filter(|(subject, record)| self.told.get(subject) != Some(record));
        let gone = self.told.keys().filter(|subject| !now.contains_key(subject));
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
                (Ok(()), Some(record)) => drop(self.told.insert(subject, record)),
                (Ok(()), None) => drop(self.told.remove(&subject)),
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
        let mut last = Records::new();
        let unassigned = state_record(&json!({
            "state": "UNASSIGNED", "worker_id": self.worker_id, "version": env!("CARGO_PKG_VERSION"),
        }));
        let names: BTreeSet<String> = self.herd.names().into_iter().collect();
        let statuses = self.herd.supervisor().statuses();
        for status in statuses.iter().filter(|status| names.contains(&status.name)) {
            let name = &status.name;
            last.insert(StatusKey::Connector(name.clone()), unassigned.clone());
            let task = match status.phase() {
                Phase::Failed(_) => {
                    let shown = connect_status(status, env!("CARGO_PKG_VERSION"), &self.worker_id);
                    Some(state_record(&shown["tasks"][0]))
                }
                _ if self.herd.target(name) == Some(WantedState::Stopped) => None,
                _ => Some(unassigned.clone()),
            };
            if let Some(task) = task {
                last.insert(StatusKey::Task(name.clone(), 0), task);
            }
            self.herd.active_topics().look(status);
        }
        if self.tracks_topics {
            last.extend(names.iter().flat_map(|name| self.topics_of(name)));
        }
        // The answer to what was sent last may still be missing, so both states are written, whatever was told.
        self.told.retain(|subject, _| matches!(subject, StatusKey::Topic(..)));
        if timeout(LAST_STATES, self.write(last)).await.is_err() {
            warn!(
                seconds = LAST_STATES.as_secs(),
                "Kafka has not accepted the last states of the connectors in time: the status topic may still say that they run"
            );
        }
    }
}
