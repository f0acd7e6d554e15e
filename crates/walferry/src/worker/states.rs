//! States of connectors in Connect's status topic, for scripts and dashboards that read it.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde_json::Value as Json;
use tokio::{task::spawn_blocking, time::sleep};
use tracing::debug;
use walferry_admin::connect_status;
use walferry_engine::supervisor::Connectors as _;
use walferry_kafka::connect::{StateLog, Subject};

use super::Herd;

/// How often states are compared.
const INTERVAL: Duration = Duration::from_secs(1);

/// Writes each state that has changed, for ever. Only others read the topic, so a failed write delays nothing: it is tried again in the
/// next round.
pub(crate) async fn tell(herd: Herd, log: StateLog, worker_id: String) {
    let log = Arc::new(log);
    let mut told: BTreeMap<Subject, Json> = BTreeMap::new();
    loop {
        let mut now: BTreeMap<Subject, Json> = BTreeMap::new();
        for status in herd.supervisor().statuses() {
            let shown = connect_status(&status, env!("CARGO_PKG_VERSION"), &worker_id);
            now.insert(Subject::Connector(status.name.clone()), shown["connector"].clone());
            for task in shown["tasks"].as_array().into_iter().flatten() {
                let number = task["id"].as_u64().unwrap_or_default();
                now.insert(Subject::Task(status.name.clone(), number), task.clone());
            }
            for topic in status.topics().into_keys() {
                now.insert(Subject::Topic(status.name.clone(), topic), Json::Null);
            }
        }
        let changes = now.iter().filter(|(subject, state)| told.get(subject) != Some(state));
        let changes: Vec<_> = changes
            .map(|(subject, state)| (subject.clone(), Some(state.clone())))
            .collect();
        let gone = told.keys().filter(|subject| !now.contains_key(subject));
        let changes: Vec<_> = changes
            .into_iter()
            .chain(gone.map(|subject| (subject.clone(), None)))
            .collect();
        for (subject, state) in changes {
            let (log, about, what) = (log.clone(), subject.clone(), state.clone());
            let written = spawn_blocking(move || match (&about, &what) {
                (_, None) => log.forget(&about),
                (Subject::Topic(name, topic), Some(_)) => log.put_topic(name, topic, now_ms()),
                (_, Some(state)) => log.put(&about, state),
            });
            match written.await {
                Ok(Ok(())) => match state {
                    Some(state) => drop(told.insert(subject, state)),
                    None => drop(told.remove(&subject)),
                },
                Ok(Err(failure)) => debug!(error = %failure, "a state could not be written to the status topic"),
                Err(error) => debug!(%error, "a state could not be written to the status topic"),
            }
        }
        sleep(INTERVAL).await;
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}
