//! Keys of the records in Connect's status topic.

/// The subject of a record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StatusKey {
    /// A connector.
    Connector(String),
    /// A task of a connector.
    Task(String, u64),
    /// A connector, and a topic to which it has sent records.
    Topic(String, String),
}

pub(super) const CONNECTOR: &str = "status-connector-";
const TASK: &str = "status-task-";
const TOPIC: &str = "status-topic-";
const TOPIC_OF: &str = ":connector-";

impl StatusKey {
    /// The connector that it belongs to.
    pub fn connector(&self) -> &str {
        match self {
            Self::Connector(name) | Self::Task(name, _) | Self::Topic(name, _) => name,
        }
    }

    pub(super) fn key(&self) -> String {
        match self {
            Self::Connector(name) => format!("{CONNECTOR}{name}"),
            Self::Task(name, task) => format!("{TASK}{name}-{task}"),
            Self::Topic(name, topic) => format!("{TOPIC}{topic}{TOPIC_OF}{name}"),
        }
    }

    /// Reads a key as Connect does: names of connectors may have hyphens and colons in them, names of topics no colons.
    pub(super) fn parse(key: &str) -> Option<Self> {
        if let Some(name) = key.strip_prefix(CONNECTOR) {
            return Some(Self::Connector(name.to_owned()));
        }
        if let Some(task_key) = key.strip_prefix(TASK) {
            let (name, task) = task_key.rsplit_once('-')?;
            return Some(Self::Task(name.to_owned(), task.parse().ok()?));
        }
        let (topic, name) = key.strip_prefix(TOPIC)?.split_once(TOPIC_OF)?;
        Some(Self::Topic(name.to_owned(), topic.to_owned()))
    }
}
