//! `walferry check`: what a start would find in Kafka, in sentences. Creates nothing.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use rdkafka::{
    admin::{AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication},
    client::DefaultClientContext,
    error::{KafkaError, RDKafkaErrorCode as Code},
    metadata::Metadata,
    producer::Producer as _,
};
use walferry_config::connector::TopicSettings;
use walferry_diagnosis::{Diagnosis, Kind, Severity};
use walferry_engine::Failure;

use crate::{
    auth::tokens::LoggedIn,
    client::settings::{ClientSettings, SetAside},
    failure,
    native::{Client, Event},
    topics::{collides, is_for_good, not_created, twin},
};

const CONNECT: Duration = Duration::from_secs(10);
/// How long all brokers may refuse: one may be starting.
const SOON: Duration = Duration::from_millis(1500);
const REQUEST: Duration = Duration::from_secs(10);

/// Connects, lists the brokers, and looks at the topics that records would be sent to. Blocks for half a minute at most.
///
/// # Errors
/// No broker can be talked to; the reason is the failure's.
pub fn check(settings: &ClientSettings, topics: &[String]) -> Result<Vec<Diagnosis>, Failure> {
    check_brokers(settings, topics, REQUEST)
}

fn check_brokers(settings: &ClientSettings, topics: &[String], timeout: Duration) -> Result<Vec<Diagnosis>, Failure> {
    let client = Client::new(&settings.producer).map_err(|error| failure::of_settings(&error))?;
    let metadata = connect(&client, settings)?;
    let mut diagnoses = vec![brokers(&metadata)];
    let admin = settings.admin.admin().map_err(|error| failure::of_settings(&error))?;
    let check = TopicCheck {
        settings,
        metadata: &metadata,
        admin,
        timeout,
    };
    for warning in settings.warnings() {
        diagnoses.push(Diagnosis::warning(Kind::WeakerGuarantee, warning.clone()));
    }
    let (there, missing): (Vec<&String>, Vec<&String>) = topics.iter().partition(|name| check.exists(name));
    diagnoses.extend(check.existing(&there));
    diagnoses.extend(missing.into_iter().map(|name| check.missing(name)));
    if let SetAside::Topic {
        name,
        replication_factor,
    } = &settings.set_aside
    {
        diagnoses.push(match check.exists(name) {
            true => Diagnosis::good(format!("dead-letter topic {name} exists")),
            false => check.missing_dead_letters(name, *replication_factor),
        });
    }
    Ok(diagnoses)
}

/// Looks at the topics to which rows go: what is known of those that exist, and whether the others can be created. Blocks for half a minute at
/// most.
///
/// # Errors
/// No broker can be talked to; the reason is the failure's.
pub fn check_row_topics(settings: &ClientSettings, topics: &[String]) -> Result<Vec<Diagnosis>, Failure> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let client = Client::new(&settings.producer).map_err(|error| failure::of_settings(&error))?;
    let metadata = connect(&client, settings)?;
    let admin = settings.admin.admin().map_err(|error| failure::of_settings(&error))?;
    let check = TopicCheck {
        settings,
        metadata: &metadata,
        admin,
        timeout: REQUEST,
    };
    let (there, missing): (Vec<&String>, Vec<&String>) = topics.iter().partition(|name| check.exists(name));
    let mut diagnoses = Vec::new();
    if !there.is_empty() {
        diagnoses.push(Diagnosis::good(format!(
            "{} for rows {}: {}",
            counted(&there),
            if there.len() == 1 { "exists" } else { "exist" },
            first(&there)
        )));
        let doubts = check.existing(&there).into_iter();
        diagnoses.extend(doubts.filter(|doubt| doubt.severity != Severity::Good));
    }
    diagnoses.extend(check.missing_of_rows(&missing)?);
    Ok(diagnoses)
}

/// All topics of the cluster, or why it cannot be reached.
fn connect(client: &Client, settings: &ClientSettings) -> Result<Metadata, Failure> {
    let until = Instant::now() + CONNECT;
    let soon = Instant::now() + SOON;
    let (mut refused, mut reason, mut down) = (None, None, false);
    loop {
        // Why no broker answers is told among the events.
        for wait in [Duration::from_millis(20)].into_iter().chain([Duration::ZERO; 20]) {
            let Some(polled) = client.poll(wait) else { continue };
            match polled.event() {
                Some(Event::Error {
                    code: Code::Authentication,
                    reason,
                }) => {
                    let of_token = client.token_trouble();
                    refused = Some(
                        of_token
                            .unwrap_or_else(|| failure::not_authenticated(reason, settings.producer.token.as_ref())),
                    );
                }
                Some(Event::Error {
                    code: Code::SSL,
                    reason,
                }) => refused = Some(failure::no_tls(reason)),
                Some(Event::Log {
                    facility: "FAIL",
                    message,
                    ..
                }) => {
                    let text = message.split_once("]: ").map_or(message, |(_thread, text)| text);
                    reason = Some(text.to_owned());
                }
                // Each broker has refused or cannot be found: waiting on changes nothing that would be known in a moment.
                Some(Event::Error {
                    code: Code::AllBrokersDown,
                    ..
                }) => down = true,
                _ => {}
            }
        }
        if let Some(failure) = refused {
            return Err(failure);
        }
        match client
            .producer()
            .client()
            .fetch_metadata(None, Duration::from_millis(500))
        {
            Ok(metadata) => return Ok(metadata),
            Err(error) if Instant::now() > until || (down && Instant::now() > soon) => {
                let reason = reason.unwrap_or_else(|| error.to_string());
                return Err(failure::unreachable(settings.bootstrap_servers(), &reason));
            }
            Err(_) => {}
        }
    }
}

fn brokers(metadata: &Metadata) -> Diagnosis {
    let mut names: Vec<_> = metadata
        .brokers()
        .iter()
        .map(|broker| format!("{}:{}", broker.host(), broker.port()))
        .collect();
    names.sort();
    Diagnosis::good(format!(
        "Kafka answers, with {} broker(s): {}",
        names.len(),
        names.join(", ")
    ))
}

struct TopicCheck<'a> {
    settings: &'a ClientSettings,
    metadata: &'a Metadata,
    admin: LoggedIn<AdminClient<DefaultClientContext>>,
    timeout: Duration,
}

impl TopicCheck<'_> {
    fn exists(&self, name: &str) -> bool {
        self.metadata
            .topics()
            .iter()
            .any(|topic| topic.name() == name && topic.error().is_none())
    }

    fn existing(&self, names: &[&String]) -> Vec<Diagnosis> {
        let limit: Option<u64> = self
            .settings
            .producer
            .values
            .get("message.max.bytes")
            .and_then(|text| text.parse().ok());
        let configs = self.configs(names.iter().map(|name| ResourceSpecifier::Topic(name)).collect());
        let mut diagnoses = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let partitions = self
                .metadata
                .topics()
                .iter()
                .find(|topic| topic.name() == name.as_str());
            let partitions = partitions.map_or(0, |topic| topic.partitions().len());
            diagnoses.push(Diagnosis::good(format!(
                "topic {name} exists, with {partitions} partition(s)"
            )));
            let Some(config) = configs.get(at).and_then(Option::as_ref) else {
                continue;
            };
            let entry = |name: &str| config.get(name).and_then(|entry| entry.value.as_deref());
            let takes: Option<u64> = entry("max.message.bytes").and_then(|text| text.parse().ok());
            if let (Some(takes), Some(limit)) = (takes, limit)
                && takes < limit
            {
                diagnoses.push(Diagnosis::warning(Kind::KafkaDoubtful, format!("topic {name} accepts records of up to {takes} bytes, which \
                                                                              is less than the producer's limit of {limit}")).with_hint(format!(
                        "kafka-configs --alter --entity-type topics --entity-name {name} --add-config max.message.bytes={limit}"
                    )));
            }
            if entry("cleanup.policy").is_some_and(|policy| policy.contains("compact")) {
                diagnoses.push(Diagnosis::warning(
                    Kind::KafkaDoubtful,
                    format!("topic {name} is compacted: it accepts no records without a key"),
                ));
            }
        }
        diagnoses
    }

    fn missing(&self, name: &str) -> Diagnosis {
        let Some(creation) = &self.settings.topic_creation else {
            return self.left_to_brokers(name);
        };
        let rule = match creation.settings(name) {
            Ok(rule) => rule,
            Err(limit) => return obstacle(failure::of_expression(&limit)),
        };
        let topic = new_topic(name, rule);
        let options = AdminOptions::new()
            .request_timeout(Some(self.timeout))
            .validate_only(true);
        let checked = wait(self.admin.create_topics([&topic], &options)).and_then(|results| results);
        match checked.map(|results| results.into_iter().next()) {
            Ok(Some(Err((_, code)))) if is_for_good(code) => obstacle(not_created(name, rule, code)),
            // A start would try again.
            Ok(Some(Err((_, code)))) => Diagnosis::warning(
                Kind::KafkaDoubtful,
                format!("it is unknown whether topic {name} can be created: {code}"),
            ),
            Ok(_) => Diagnosis::change(format!(
                "topic {name} would be created, with {} and {}",
                or_default(rule.partitions, "partition(s)"),
                or_default(rule.replication_factor, "replica(s)")
            )),
            Err(error) => Diagnosis::warning(
                Kind::KafkaDoubtful,
                format!("it is unknown whether topic {name} can be created: {error}"),
            ),
        }
    }

    /// Whether the brokers would create these topics by the rules of the connector. Topics that are refused for the same reason share a diagnosis.
    fn missing_of_rows(&self, names: &[&String]) -> Result<Vec<Diagnosis>, Failure> {
        let Some(creation) = &self.settings.topic_creation else {
            return Ok(self.rows_left_to_brokers(names));
        };
        let (mut rules, mut topics) = (Vec::new(), Vec::new());
        for name in names {
            let rule = creation
                .settings(name)
                .map_err(|limit| failure::of_expression(&limit))?;
            rules.push(rule);
            topics.push(new_topic(name, rule));
        }
        let mut groups: Vec<(&TopicSettings, Option<Code>, Vec<&String>)> = Vec::new();
        for ((name, rule), code) in names.iter().zip(rules).zip(self.refusals(&topics)?) {
            match groups
                .iter_mut()
                .find(|(of, refused, _)| (*of, *refused) == (rule, code))
            {
                Some((_, _, group)) => group.push(name),
                None => groups.push((rule, code, vec![name])),
            }
        }
        Ok(groups
            .iter()
            .map(|(rule, code, names)| self.group(rule, *code, names))
            .collect())
    }

    fn group(&self, rule: &TopicSettings, code: Option<Code>, names: &[&String]) -> Diagnosis {
        match code {
            None | Some(Code::TopicAlreadyExists) => Diagnosis::change(format!(
                "{} for rows would be created, with {} and {}: {}",
                counted(names),
                or_default(rule.partitions, "partition(s)"),
                or_default(rule.replication_factor, "replica(s)"),
                first(names)
            )),
            Some(code) if is_for_good(code) => {
                let twin = (code == Code::InvalidTopic).then(|| self.twin(names[0])).flatten();
                let failure = match twin {
                    Some(twin) => collides(names[0], &twin),
                    None => not_created(names[0], rule, code),
                };
                let mut refused = obstacle(failure);
                if let more @ 1.. = names.len() - 1 {
                    refused.text.push_str(&format!("; the same for {more} more"));
                }
                refused
            }
            // A start would try again.
            Some(code) => Diagnosis::warning(
                Kind::KafkaDoubtful,
                format!("it is unknown whether {} can be created: {code}", first(names)),
            ),
        }
    }

    /// Why the brokers would refuse to create each of these topics, in their order.
    fn refusals(&self, topics: &[NewTopic<'_>]) -> Result<Vec<Option<Code>>, Failure> {
        if topics.is_empty() {
            return Ok(Vec::new());
        }
        let options = AdminOptions::new()
            .request_timeout(Some(self.timeout))
            .validate_only(true);
        let checked = wait(self.admin.create_topics(topics, &options)).and_then(|results| results);
        let results = match checked {
            Ok(results) => results,
            // No answer says nothing about a start.
            Err(KafkaError::AdminOp(code)) => return Ok(vec![Some(code); topics.len()]),
            Err(error) => {
                return Err(Failure::retry(
                    Kind::KafkaDoubtful,
                    format!("it is unknown whether topics can be created: {error}"),
                ));
            }
        };
        let refused: HashMap<String, Code> = results.into_iter().filter_map(Result::err).collect();
        Ok(topics.iter().map(|topic| refused.get(topic.name).copied()).collect())
    }

    fn missing_dead_letters(&self, name: &str, replication_factor: Option<i32>) -> Diagnosis {
        let rule = TopicSettings {
            partitions: 1,
            replication_factor: replication_factor.unwrap_or(-1),
            config: Default::default(),
        };
        match self.refusals(&[new_topic(name, &rule)]).as_deref() {
            // Nothing prevents a start, but the first dead letter stops the connector.
            Ok([Some(code)]) if is_for_good(*code) => {
                let hint = match code {
                    Code::InvalidReplicationFactor => format!(
                        "there are fewer than {} brokers: lower `errors.deadletterqueue.topic.replication.factor`, or create the topic",
                        rule.replication_factor
                    ),
                    _ => "create the topic, or name another one in `errors.deadletterqueue.topic.name`".to_owned(),
                };
                Diagnosis::warning(
                    Kind::TopicNotCreated,
                    format!("dead-letter topic {name} could not be created when it is needed: {code}"),
                )
                .with_hint(hint)
            }
            _ => Diagnosis::change(format!("dead-letter topic {name} would be created when it is needed")),
        }
    }

    /// A topic whose name differs only in dots and underscores.
    fn twin(&self, name: &str) -> Option<String> {
        twin(self.metadata, name)
    }

    fn rows_left_to_brokers(&self, names: &[&String]) -> Vec<Diagnosis> {
        let (mut diagnoses, mut possible) = (Vec::new(), Vec::new());
        for name in names {
            match self.twin(name) {
                Some(twin) => diagnoses.push(obstacle(collides(name, &twin))),
                None => possible.push(*name),
            }
        }
        // Without rules, the answer is the same for all of them.
        if let Some(name) = possible.first() {
            let mut answer = self.left_to_brokers(name);
            if answer.severity == Severity::Change {
                answer = Diagnosis::change(format!(
                    "{} for rows would be created by the brokers, with their defaults: {}",
                    counted(&possible),
                    first(&possible)
                ));
            } else if let more @ 1.. = possible.len() - 1 {
                answer.text.push_str(&format!("; the same for {more} more"));
            }
            diagnoses.push(answer);
        }
        diagnoses
    }

    fn left_to_brokers(&self, name: &str) -> Diagnosis {
        let broker = self.metadata.orig_broker_id();
        let config = self
            .configs(vec![ResourceSpecifier::Broker(broker)])
            .into_iter()
            .next()
            .flatten();
        let automatic = config.and_then(|config| {
            config
                .get("auto.create.topics.enable")
                .and_then(|entry| entry.value.clone())
        });
        let remedy =
            "set topic.creation.default.partitions and topic.creation.default.replication.factor, or create the topic";
        match automatic.as_deref() {
            Some("true") => Diagnosis::change(format!(
                "topic {name} would be created by the brokers, with their defaults"
            )),
            Some(_) => Diagnosis::error(
                Kind::TopicMissing,
                format!("topic {name} does not exist, and the brokers do not create topics (auto.create.topics.enable=false)"),
            )
            .with_hint(remedy),
            None => Diagnosis::warning(
                Kind::KafkaDoubtful,
                format!("topic {name} does not exist, and it is unknown whether the brokers create it"),
            )
            .with_hint(remedy),
        }
    }

    /// Settings of topics or brokers, as far as the user may read them.
    fn configs(&self, of: Vec<ResourceSpecifier<'_>>) -> Vec<Option<ConfigResource>> {
        if of.is_empty() {
            return Vec::new();
        }
        let options = AdminOptions::new().request_timeout(Some(self.timeout));
        let described = wait(self.admin.describe_configs(&of, &options)).and_then(|results| results);
        described.map_or_else(|_| Vec::new(), |configs| configs.into_iter().map(Result::ok).collect())
    }
}

/// A topic as a connector would create it.
fn new_topic<'a>(name: &'a str, rule: &'a TopicSettings) -> NewTopic<'a> {
    let mut topic = NewTopic::new(name, rule.partitions, TopicReplication::Fixed(rule.replication_factor));
    for (setting, value) in &rule.config {
        topic = topic.set(setting, value);
    }
    topic
}

fn counted(names: &[&String]) -> String {
    match names.len() {
        1 => "1 topic".into(),
        count => format!("{count} topics"),
    }
}

/// The first few names.
fn first(names: &[&String]) -> String {
    const MOST_LISTED: usize = 10;
    let listed: Vec<&str> = names.iter().take(MOST_LISTED).map(|name| name.as_str()).collect();
    match names.len().saturating_sub(MOST_LISTED) {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

/// A failure has one cause here.
fn obstacle(failure: Failure) -> Diagnosis {
    let kind = failure.kind;
    let mut causes = failure.causes.into_iter();
    causes.next().unwrap_or_else(|| Diagnosis::error(kind, ""))
}

fn or_default(count: i32, of: &str) -> String {
    if count < 0 {
        format!("the brokers' number of {of}")
    } else {
        format!("{count} {of}")
    }
}

/// The admin client answers through futures that need nothing but somebody who waits.
fn wait<F: Future>(answer: F) -> Result<F::Output, KafkaError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
    Ok(runtime.block_on(answer))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::DemoCluster;

    #[test]
    fn a_cluster_is_looked_at_without_changing_it() {
        let cluster = DemoCluster::start(2).unwrap();
        cluster.create_topic("there", 3).unwrap();
        let mut settings = ClientSettings::new("c", &cluster.bootstrap_servers());
        settings.set_aside = SetAside::Topic {
            name: "dead".into(),
            replication_factor: None,
        };
        let topics = ["there".to_owned(), "missing".to_owned()];
        // Twice: the first look creates nothing that the second could find.
        for _ in 0..2 {
            // The mock cluster never answers what it does not understand.
            let diagnoses = check_brokers(&settings, &topics, Duration::from_millis(100)).unwrap();
            let texts: Vec<_> = diagnoses
                .iter()
                .map(|diagnosis| (diagnosis.severity, diagnosis.text.as_str()))
                .collect();
            assert!(
                texts[0].1.starts_with("Kafka answers, with 2 broker(s): 127.0.0.1:"),
                "{texts:?}"
            );
            let expected = [
                (Severity::Good, "topic there exists, with 3 partition(s)"),
                (
                    Severity::Warning,
                    "topic missing does not exist, and it is unknown whether the brokers create it",
                ),
                (
                    Severity::Change,
                    "dead-letter topic dead would be created when it is needed",
                ),
            ];
            assert_eq!(texts[1..], expected);
        }
    }
}
