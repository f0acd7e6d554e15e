//! Topics that records are sent to: looked for once, created where the connector says how.

pub mod replay;
pub(crate) mod signals;

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant, SystemTime},
};
use walferry_diagnosis::Kind;

use rdkafka::{
    admin::{AdminOptions, NewTopic, TopicReplication},
    error::{KafkaError, RDKafkaErrorCode as Code},
    metadata::Metadata,
    producer::Producer as _,
};
use tracing::{info, warn};
use walferry_config::connector::TopicSettings;
use walferry_engine::{Disposition, Failure, sink::Acks};

use crate::{
    client::settings::ClientSettings,
    failure,
    health::{Health, News},
    native::Client,
};

/// Sees to it that topics exist.
#[derive(Clone)]
pub(crate) struct Topics {
    pub(crate) client: Arc<Client>,
    pub(crate) settings: Arc<ClientSettings>,
    pub(crate) health: Health,
    pub(crate) acks: Acks,
}

/// How long one look at a topic may take: how late a stop is noticed.
const LOOK: Duration = Duration::from_secs(1);
/// Pause between looks while a topic comes into being.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a topic may take to appear after it was asked for, before that is a trouble.
const PATIENCE: Duration = Duration::from_secs(5);
const CREATE_TIMEOUT: Duration = Duration::from_secs(15);

/// A topic as brokers tell of it.
#[derive(Debug, PartialEq, Eq)]
enum TopicState {
    Exists {
        partitions: usize,
    },
    /// It is being created, or its leaders are being elected.
    Coming,
    Missing,
    Denied,
    Invalid,
    /// No broker answers.
    Silence,
}

/// Whether a broker takes this for the name of a topic. A record for another one is at fault itself, and no topic is asked for.
pub(crate) fn is_topic_name(name: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name.bytes().all(is_sign) && name != "." && name != ".."
}

impl Topics {
    /// Waits until a topic exists. Returns how many partitions it has: `None` when the producer is to stop.
    ///
    /// Without rules the broker creates it, if it is configured to do so: asking for a topic is what makes it.
    pub(crate) fn ensure(&self, name: &str) -> Result<Option<usize>, Failure> {
        let rule = self
            .settings
            .topic_creation
            .as_ref()
            .map(|creation| creation.settings(name).map_err(|limit| failure::of_expression(&limit)))
            .transpose()?;
        self.ensure_with(name, rule)
    }

    /// The same, created as `rule` says if it is missing.
    pub(crate) fn ensure_with(&self, name: &str, rule: Option<&TopicSettings>) -> Result<Option<usize>, Failure> {
        let mut missing_since = None;
        let mut created = false;
        while !self.acks.is_stopping() {
            match self.topic_state(name) {
                // A leader that is away for longer is waited for by the client, with the records in its queue.
                TopicState::Exists { partitions }
                    if missing_since.is_some_and(|since: Instant| since.elapsed() < PATIENCE)
                        && !self.has_leaders(name, partitions) => {}
                TopicState::Exists { partitions } => {
                    if let Some(recovery) = self.health.connected() {
                        recovery.log();
                    }
                    if self.health.topic_found().is_some() {
                        info!(topic = name, "the topic exists now");
                    }
                    return Ok(Some(partitions));
                }
                TopicState::Denied => return Err(failure::topic_denied(name)),
                TopicState::Invalid => {
                    return Err(match self.twin(name) {
                        Some(twin) => collides(name, &twin),
                        None => failure::of_topic(name, Code::InvalidTopic),
                    });
                }
                // Error events tell of it.
                TopicState::Silence => {}
                TopicState::Missing if !created && rule.is_some() => {
                    missing_since.get_or_insert_with(Instant::now);
                    created = rule
                        .map(|rule| self.create(name, rule))
                        .transpose()?
                        .unwrap_or_default();
                }
                TopicState::Missing | TopicState::Coming => {
                    let since = *missing_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > PATIENCE {
                        // The brokers never create a topic whose name collides with another one.
                        if let Some(twin) = self.twin(name).filter(|_| rule.is_none()) {
                            return Err(collides(name, &twin));
                        }
                        self.tell_missing(name, rule.is_some());
                    }
                }
            }
            thread::sleep(PAUSE);
        }
        Ok(None)
    }

    fn topic_state(&self, name: &str) -> TopicState {
        let metadata = match self.client.producer().client().fetch_metadata(Some(name), LOOK) {
            Ok(metadata) => metadata,
            Err(_) => return TopicState::Silence,
        };
        let Some(topic) = metadata.topics().iter().find(|topic| topic.name() == name) else {
            return TopicState::Missing;
        };
        match topic.error().map(Code::from) {
            None if topic.partitions().is_empty() => TopicState::Coming,
            None => TopicState::Exists {
                partitions: topic.partitions().len(),
            },
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => TopicState::Missing,
            Some(Code::TopicAuthorizationFailed) => TopicState::Denied,
            Some(Code::InvalidTopic) => TopicState::Invalid,
            Some(_) => TopicState::Coming,
        }
    }

    /// Whether the leaders of a new topic are ready for records. A broker tells of a new partition shortly before it accepts records
    /// for it. It would reject a first batch then, and might accept the second (see `unproven` in `producer/reporter.rs`).
    fn has_leaders(&self, name: &str, partitions: usize) -> bool {
        let client = self.client.producer().client();
        let mut partitions = 0..i32::try_from(partitions).unwrap_or(i32::MAX);
        partitions.all(|partition| client.fetch_watermarks(name, partition, LOOK).is_ok())
    }

    /// Creates a topic. Returns whether it has been asked for; `false` to try again.
    fn create(&self, name: &str, rule: &TopicSettings) -> Result<bool, Failure> {
        let replication = TopicReplication::Fixed(rule.replication_factor);
        let mut topic = NewTopic::new(name, rule.partitions, replication);
        for (setting, value) in &rule.config {
            topic = topic.set(setting, value);
        }
        match create_topic(&self.settings, &topic) {
            Ok(()) => {
                info!(
                    topic = name,
                    partitions = rule.partitions,
                    replication = rule.replication_factor,
                    "topic created"
                );
                Ok(true)
            }
            Err(KafkaError::AdminOp(code)) => match code {
                Code::TopicAlreadyExists => Ok(true),
                Code::InvalidTopic => Err(match self.twin(name) {
                    Some(twin) => collides(name, &twin),
                    None => not_created(name, rule, Code::InvalidTopic),
                }),
                code if is_for_good(code) => Err(not_created(name, rule, code)),
                code => {
                    warn!(topic = name, %code, "topic not created yet");
                    Ok(false)
                }
            },
            // The client itself refuses what it is asked for.
            Err(error @ KafkaError::AdminOpCreation(_)) => Err(Failure::stop(
                Kind::TopicNotCreated,
                format!("topic {name} could not be created: {error}"),
                "check `topic.creation.*`",
            )),
            Err(error @ (KafkaError::ClientConfig(..) | KafkaError::ClientCreation(_))) => {
                Err(failure::of_settings(&error))
            }
            Err(error) => {
                warn!(topic = name, %error, "topic not created yet");
                Ok(false)
            }
        }
    }

    /// A topic whose name differs only in dots and underscores.
    fn twin(&self, name: &str) -> Option<String> {
        let metadata = self.client.producer().client().fetch_metadata(None, LOOK).ok()?;
        twin(&metadata, name)
    }

    fn tell_missing(&self, name: &str, has_rule: bool) {
        let what = format!("topic {name} does not exist, and nothing creates it");
        let hint = if has_rule {
            format!("it was created, but no broker shows it: check the brokers' logs for {name}")
        } else {
            format!(
                "create it (`kafka-topics --create --topic {name} …`), set `topic.creation.default.partitions` and \
                 `topic.creation.default.replication.factor`, or enable automatic creation on the brokers (`auto.create.topics.enable`)"
            )
        };
        let failure = Failure::new(Disposition::Retry, Kind::TopicMissing, what, Some(hint));
        if self
            .health
            .report(self.settings.bootstrap_servers(), failure.clone(), SystemTime::now())
            == News::New
        {
            warn!(
                code = failure.code(),
                kind = failure.kind.as_str(),
                hint = failure.hint(),
                "{failure}"
            );
        }
    }
}

/// Kafka's metrics have underscores for dots, so brokers refuse a topic whose name there is that of another one.
fn metric_name(topic: &str) -> String {
    topic.replace('.', "_")
}

/// A topic whose name differs only in dots and underscores.
pub(crate) fn twin(metadata: &Metadata, name: &str) -> Option<String> {
    let names = metadata.topics().iter().map(|topic| topic.name());
    let mut twins = names.filter(|other| *other != name && metric_name(other) == metric_name(name));
    twins.next().map(ToOwned::to_owned)
}

pub(crate) fn collides(name: &str, twin: &str) -> Failure {
    Failure::stop(
        Kind::TopicNotCreated,
        format!(
            "topic {name} could not be created, because its name collides with that of topic {twin}: they differ only in \".\" and \"_\""
        ),
        "give one of them another name: rename the table, or use a transform such as RegexRouter for it",
    )
}

/// Whether trying again to create a topic cannot help.
pub(crate) const fn is_for_good(code: Code) -> bool {
    matches!(
        code,
        Code::TopicAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::PolicyViolation
            | Code::InvalidReplicationFactor
            | Code::InvalidReplicaAssignment
            | Code::InvalidPartitions
            | Code::InvalidConfig
            | Code::InvalidTopic
            | Code::InvalidRequest
            | Code::UnsupportedVersion
    )
}

pub(crate) fn not_created(name: &str, rule: &TopicSettings, code: Code) -> Failure {
    let hint = match code {
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => format!(
            "grant the Kafka user the permission Create (`kafka-acls --add --operation Create --topic {name} …`), or create the topic \
             yourself"
        ),
        Code::InvalidReplicationFactor => format!(
            "there are fewer than {} brokers: lower `topic.creation.default.replication.factor`, or set it to -1 for the brokers' default",
            rule.replication_factor
        ),
        Code::PolicyViolation => "a policy of the cluster forbids it: change `topic.creation.*`, or create the topic yourself".into(),
        _ => "check `topic.creation.*`: the partitions, the replication factor, and the names and values of the other settings".into(),
    };
    Failure::stop(
        Kind::TopicNotCreated,
        format!("topic {name} could not be created: {code}"),
        hint,
    )
}

/// Creates a topic with a client of its own, as Connect does: its credentials may be others than the producer's.
pub(crate) fn create_topic(settings: &ClientSettings, topic: &NewTopic<'_>) -> Result<(), KafkaError> {
    let admin = settings.admin.admin()?;
    let options = AdminOptions::new()
        .request_timeout(Some(CREATE_TIMEOUT))
        .operation_timeout(Some(CREATE_TIMEOUT));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
    let created = runtime.block_on(admin.create_topics([topic], &options))?;
    match created.into_iter().next() {
        Some(Err((_, code))) => Err(KafkaError::AdminOp(code)),
        _ => Ok(()),
    }
}
