//! Kafka Connect's own topics for configurations, offsets and states. Keys and values are Connect's, so that Connect can continue with what
//! Walferry has written, and vice versa.

mod agreement;
mod client_id;
mod clock;
mod confirmation;
mod connector_store;
mod contact;
mod content;
mod driver;
mod group;
mod group_view;
mod log;
mod members;
mod membership;
mod offsets;
mod partition;
mod places;
mod states;
mod status_key;
#[cfg(test)]
mod tests;
mod watch;

use std::time::Duration;

use walferry_config::{Options, Worker};
use walferry_engine::{Diagnosis, Disposition, Failure, Kind};

pub use agreement::Disagreement;
pub use clock::Clock;
pub use connector_store::TopicConnectorStore;
pub use contact::Question;
pub use driver::{GroupClient, LookCounts, MemberLooks, MembershipDriver};
pub use group::{Lease, Queue};
pub use group_view::{GroupView, Member};
pub use log::Log;
pub use members::GroupReader;
pub use membership::{DrivenMembership, Membership, WORK_PARTITIONS, work_partition};
pub use offsets::{OffsetLog, OffsetRecord};
pub use places::{Places, Share, Standing};
pub use states::{PendingWrite, StateLog, StateRecords, first_seen_ms, state_record, topic_record};
pub use status_key::StatusKey;
pub use watch::{TopicNews, TopicWatch};

use crate::client::{self, Properties};

/// The topics of a worker, and how to connect to them.
#[derive(Clone)]
pub struct ConnectTopics {
    pub(crate) client: Properties,
    /// `group.id` of the worker.
    pub group: String,
    /// `config.storage.topic`
    pub config: Topic,
    /// `offset.storage.topic`
    pub offset: Topic,
    /// `status.storage.topic`
    pub status: Topic,
    /// Whether records may be written to them.
    pub(crate) lease: Lease,
}

/// One of Connect's topics, and how it is created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// The prefix of its properties, such as `offset.storage`.
    pub(crate) property: &'static str,
    /// What it contains.
    pub(crate) purpose: &'static str,
    /// Whether records are kept in it. Nobody writes to the work topic.
    pub(crate) has_records: bool,
    /// Its name.
    pub name: String,
    pub(crate) partitions: i32,
    pub(crate) replication: i32,
    pub(crate) settings: Vec<(String, String)>,
}

impl std::fmt::Debug for ConnectTopics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [&self.config.name, &self.offset.name, &self.status.name];
        f.debug_struct("ConnectTopics")
            .field("group", &self.group)
            .field("topics", &names)
            .finish()
    }
}

impl ConnectTopics {
    /// The topics that a worker file names. `None` if it names none of them.
    ///
    /// # Errors
    /// It names only some of them, or a property of one is wrong.
    pub fn of(worker: &Worker, bootstrap_servers: &str) -> Result<Option<Self>, Failure> {
        let all = [&worker.config_storage, &worker.offset_storage, &worker.status_storage];
        if all.iter().all(|options| options.get("topic").is_none()) {
            return Ok(None);
        }
        let Some(group) = worker.group_id.clone().filter(|group| !group.trim().is_empty()) else {
            return Err(wrong(
                "group.id is missing: it is the name of the group of workers that use the topics",
                "set group.id",
            ));
        };
        let config = topic(
            &worker.config_storage,
            "config.storage",
            "connector configurations",
            None,
        )?;
        let offset = topic(
            &worker.offset_storage,
            "offset.storage",
            "source connector offsets",
            Some(25),
        )?;
        let status = topic(
            &worker.status_storage,
            "status.storage",
            "connector and task statuses",
            Some(5),
        )?;
        let mut names = [&config.name, &offset.name, &status.name];
        names.sort();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(wrong(
                "two of config.storage.topic, offset.storage.topic and status.storage.topic are the same topic",
                "use a different topic for each",
            ));
        }
        let client = internal_client(worker, bootstrap_servers, &group)?;
        Ok(Some(Self {
            client,
            group,
            config,
            offset,
            status,
            lease: Lease::default(),
        }))
    }

    /// Checks the topics, and creates the missing ones as Connect does. Blocks.
    ///
    /// # Errors
    /// Kafka cannot be reached, a topic cannot be created, or one may lose what is written to it.
    pub fn ensure(&self) -> Result<(), Failure> {
        for topic in [&self.config, &self.offset, &self.status] {
            topic.ensure(&self.client)?;
        }
        Ok(())
    }
}

/// What a start would make of the topics of a worker.
#[derive(Debug, Default)]
pub struct ForeseenTopics {
    /// What it would create or refuse.
    pub remarks: Vec<Diagnosis>,
    /// The configuration topic, if it is missing.
    pub missing_config: Option<String>,
}

impl ConnectTopics {
    /// What `ensure` would do or refuse. Changes nothing. Blocks.
    pub fn foresee(&self) -> ForeseenTopics {
        let mut foreseen = ForeseenTopics::default();
        for topic in [&self.config, &self.offset, &self.status, &self.work()] {
            match topic.look(&self.client) {
                Ok(true) => {}
                Ok(false) => {
                    let text = format!("topic {} would be created for {}", topic.name, topic.purpose);
                    foreseen.remarks.push(Diagnosis::change(text));
                    if topic.name == self.config.name {
                        foreseen.missing_config = Some(topic.name.clone());
                    }
                }
                Err(failure) => {
                    foreseen.remarks.extend(failure.causes);
                    // The other topics are on the same brokers.
                    if failure.disposition == Disposition::Retry {
                        break;
                    }
                }
            }
        }
        foreseen
    }
}

/// How the clients of a worker's own topics connect. `role` tells them apart in the broker's log.
fn internal_client(worker: &Worker, bootstrap_servers: &str, role: &str) -> Result<Properties, Failure> {
    let (mut client, findings) = client::internal(worker);
    if let Some(problem) = findings.problems().next() {
        let hint = problem
            .hint
            .clone()
            .unwrap_or_else(|| "correct it in the worker file".into());
        return Err(wrong(format!("{} {}", problem.place, problem.text), hint));
    }
    for (name, value) in [
        ("bootstrap.servers", bootstrap_servers),
        ("client.id", &format!("walferry-{role}")),
    ] {
        client.values.entry(name.into()).or_insert_with(|| value.to_owned());
    }
    Ok(client)
}

/// The id of a worker's Kafka cluster. `None` if no broker answers in time. Blocks.
pub fn cluster_id(worker: &Worker, bootstrap_servers: &str) -> Option<String> {
    let (mut client, findings) = client::internal(worker);
    if findings.has_problems() {
        return None;
    }
    client
        .values
        .entry("bootstrap.servers".into())
        .or_insert_with(|| bootstrap_servers.to_owned());
    let admin = client.admin().ok()?;
    // A cluster that comes up later is asked again.
    admin.inner().fetch_cluster_id(Duration::from_secs(10))
}

fn wrong(what: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure::stop(Kind::Configuration, what, hint)
}

/// Reads the properties of one topic. Without `partitions` it always has one.
fn topic(
    options: &Options,
    property: &'static str,
    purpose: &'static str,
    partitions: Option<i32>,
) -> Result<Topic, Failure> {
    let Some(name) = options.get("topic").map(str::trim).filter(|name| !name.is_empty()) else {
        return Err(wrong(
            format!(
                "{property}.topic is missing: the worker file sets another of Connect's three topics, but not this one"
            ),
            format!("set {property}.topic, or keep state in files with --data-dir"),
        ));
    };
    let number = |setting: &str, default: i32| match options.get(setting).map(str::trim) {
        None => Ok(default),
        Some(text) => match text.parse::<i32>() {
            Ok(number) if number > 0 || number == -1 => Ok(number),
            _ => Err(wrong(
                format!("{property}.{setting} is {text:?}, which is neither -1 nor a number of at least 1"),
                "write a number, or -1 for the brokers' default",
            )),
        },
    };
    let partition_count = match partitions {
        Some(default) => number("partitions", default)?,
        None => 1,
    };
    // All other properties are settings of the topic, except that it is always compacted.
    let own = [
        "topic",
        "partitions",
        "replication.factor",
        "cleanup.policy",
        "file.filename",
    ];
    let settings = options.iter().filter(|(name, _)| !own.contains(name));
    Ok(Topic {
        property,
        purpose,
        has_records: true,
        name: name.to_owned(),
        partitions: partition_count,
        replication: number("replication.factor", 3)?,
        settings: settings
            .map(|(name, text)| (name.to_owned(), text.trim().to_owned()))
            .collect(),
    })
}
