//! States in Connect's status topic: for tools that read them there, and for the next process.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use tokio::sync::oneshot;
use walferry_engine::Failure;

use super::{
    ConnectTopics,
    log::{Log, LogRecord},
    status_key::{CONNECTOR, StatusKey},
};

/// `status.storage.topic`.
#[derive(Debug)]
pub struct StateLog(Log);

/// The last record of each subject.
pub type StateRecords = BTreeMap<StatusKey, Json>;

/// A record about a connector or a task. `state` has the form of the REST API.
pub fn state_record(state: &Json) -> Json {
    let trace = state.get("trace").cloned().unwrap_or_default();
    json!({
        "state": state["state"], "trace": trace, "worker_id": state["worker_id"], "generation": 0, "version": state["version"],
    })
}

/// A record about a topic that a connector has sent records to since this time.
pub fn topic_record(name: &str, topic: &str, first_seen_ms: u64) -> Json {
    json!({ "topic": { "name": topic, "connector": name, "task": 0, "discoverTimestamp": first_seen_ms } })
}

/// When a topic was first seen, according to its record.
pub fn first_seen_ms(record: &Json) -> u64 {
    record["topic"]["discoverTimestamp"].as_u64().unwrap_or_default()
}

impl StateLog {
    /// Opens the topic. Blocks.
    ///
    /// # Errors
    /// The clients cannot be made.
    pub fn open(topics: &ConnectTopics) -> Result<Self, Failure> {
        Log::open(topics, &topics.status.name).map(Self)
    }

    /// The last record of each subject. Like Connect, skips records that it does not understand. To be called once. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub fn read(&self) -> Result<StateRecords, Failure> {
        let mut latest = StateRecords::new();
        self.follow(&mut latest)?;
        Ok(latest)
    }

    /// The last record about each connector, and when it was written, milliseconds since 1970: since then, the connector is in that state at that
    /// worker. To be called once. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub fn connectors(&self) -> Result<BTreeMap<String, (Json, Option<i64>)>, Failure> {
        let mut latest = BTreeMap::new();
        self.0.read_to_end(|_, entry| {
            let Some(StatusKey::Connector(name)) = str::from_utf8(&entry.key).ok().and_then(StatusKey::parse) else {
                return;
            };
            let state = entry
                .value
                .and_then(|value| serde_json::from_slice::<Json>(&value).ok());
            match state {
                None => drop(latest.remove(&name)),
                Some(state) => drop(latest.insert(name, (state, entry.at_ms))),
            }
        })?;
        Ok(latest)
    }

    /// Applies the records since the last reading to what was read before. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub fn follow(&self, latest: &mut StateRecords) -> Result<(), Failure> {
        self.0.read_to_end(|_, entry| {
            let Some(subject) = str::from_utf8(&entry.key).ok().and_then(StatusKey::parse) else {
                return;
            };
            match entry.value {
                None => drop(latest.remove(&subject)),
                Some(value) => {
                    if let Ok(value) = serde_json::from_slice(&value) {
                        latest.insert(subject, value);
                    }
                }
            }
        })
    }

    /// Gives a record to the client. Without a value, it is a tombstone.
    ///
    /// # Errors
    /// The client does not accept it.
    pub fn send(&self, subject: &StatusKey, record: Option<&Json>) -> Result<PendingWrite<'_>, Failure> {
        let entry = LogRecord {
            key: subject.key().into_bytes(),
            value: record.map(|record| record.to_string().into_bytes()),
            headers: Vec::new(),
            at_ms: None,
        };
        let delivered = self.0.send(&entry)?;
        Ok(PendingWrite { log: self, delivered })
    }

    /// The worker that runs a connector, as `host:port` of its REST API. If the topic does not have the connector, any worker of the
    /// cluster, because each can list the connectors. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub fn worker_of(&self, name: &str) -> Result<Option<String>, Failure> {
        let key = StatusKey::Connector(name.to_owned()).key();
        let (mut worker, mut any) = (None, None);
        self.0.read_to_end(|_, entry| {
            if !entry.key.starts_with(CONNECTOR.as_bytes()) {
                return;
            }
            let value: Option<Json> = entry.value.and_then(|value| serde_json::from_slice(&value).ok());
            let found = value.and_then(|value| Some(value["worker_id"].as_str()?.to_owned()));
            if entry.key == key.as_bytes() {
                worker.clone_from(&found);
            }
            any = found.or(any.take());
        })?;
        Ok(worker.or(any))
    }
}

/// A record on its way to the topic.
#[derive(Debug)]
#[must_use]
pub struct PendingWrite<'a> {
    log: &'a StateLog,
    delivered: oneshot::Receiver<Result<i32, rdkafka::error::RDKafkaErrorCode>>,
}

impl PendingWrite<'_> {
    /// Waits until the record is durable.
    ///
    /// # Errors
    /// Kafka has not accepted it.
    pub async fn settled(self) -> Result<(), Failure> {
        self.log.0.settled(self.delivered.await).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_records_are_connects() {
        let cases = [
            (StatusKey::Connector("my-shop".into()), "status-connector-my-shop"),
            (StatusKey::Task("my-shop".into(), 0), "status-task-my-shop-0"),
            (
                StatusKey::Topic("my:connector-shop".into(), "shop.public.a-b".into()),
                "status-topic-shop.public.a-b:connector-my:connector-shop",
            ),
        ];
        for (subject, key) in cases {
            assert_eq!(subject.key(), key);
            assert_eq!(StatusKey::parse(key), Some(subject), "{key}");
        }
        for key in ["status-task-a", "status-task-a-x", "status-topic-a", "session-key", ""] {
            assert_eq!(StatusKey::parse(key), None, "{key}");
        }
        let state = json!({ "id": 0, "state": "RUNNING", "worker_id": "h:8083", "version": "1" });
        assert_eq!(
            state_record(&state).to_string(),
            r#"{"state":"RUNNING","trace":null,"worker_id":"h:8083","generation":0,"version":"1"}"#
        );
        let topic = topic_record("shop", "shop.a", 1795262414119);
        assert_eq!(
            topic.to_string(),
            r#"{"topic":{"name":"shop.a","connector":"shop","task":0,"discoverTimestamp":1795262414119}}"#
        );
        assert_eq!(first_seen_ms(&topic), 1795262414119);
    }
}
