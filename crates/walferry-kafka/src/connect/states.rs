//! States in Connect's status topic, for tools that read them there.

use serde_json::{Value as Json, json};
use walferry_engine::Failure;

use super::{ConnectTopics, log::Log};

/// `status.storage.topic`.
#[derive(Debug)]
pub struct StateLog(Log);

/// The subject of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// A connector.
    Connector(String),
    /// A task of a connector.
    Task(String, u64),
    /// A topic to which a connector has sent records.
    Topic(String, String),
}

impl Subject {
    fn key(&self) -> String {
        match self {
            Self::Connector(name) => format!("status-connector-{name}"),
            Self::Task(name, task) => format!("status-task-{name}-{task}"),
            Self::Topic(name, topic) => format!("status-topic-{topic}:connector-{name}"),
        }
    }
}

impl StateLog {
    /// Opens the topic. Blocks.
    ///
    /// # Errors
    /// The clients cannot be made.
    pub fn open(topics: &ConnectTopics) -> Result<Self, Failure> {
        Log::open(topics, &topics.status.name).map(Self)
    }

    /// Writes the state of a connector or a task, in the form of the REST API. Blocks.
    ///
    /// # Errors
    /// Kafka has not accepted it.
    pub fn put(&self, subject: &Subject, state: &Json) -> Result<(), Failure> {
        let trace = state.get("trace").cloned().unwrap_or_default();
        let value = json!({
            "state": state["state"], "trace": trace, "worker_id": state["worker_id"], "generation": 0, "version": state["version"],
        });
        self.0.write(&subject.key(), Some(value.to_string()))
    }

    /// Notes that a connector uses a topic. Blocks.
    ///
    /// # Errors
    /// Kafka has not accepted it.
    pub fn put_topic(&self, name: &str, topic: &str, now_ms: u64) -> Result<(), Failure> {
        let value = json!({ "topic": { "name": topic, "connector": name, "task": 0, "discoverTimestamp": now_ms } });
        self.0.write(
            &Subject::Topic(name.to_owned(), topic.to_owned()).key(),
            Some(value.to_string()),
        )
    }

    /// The worker that runs a connector, as `host:port` of its REST API. If the topic does not have the connector, any worker of the
    /// cluster, because each can list the connectors. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub fn worker_of(&self, name: &str) -> Result<Option<String>, Failure> {
        let key = Subject::Connector(name.to_owned()).key();
        let (mut worker, mut any) = (None, None);
        self.0.read_to_end(|entry| {
            if !entry.key.starts_with(b"status-connector-") {
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

    /// Writes a tombstone. Blocks.
    ///
    /// # Errors
    /// Kafka has not accepted it.
    pub fn forget(&self, subject: &Subject) -> Result<(), Failure> {
        self.0.write(&subject.key(), None)
    }
}
