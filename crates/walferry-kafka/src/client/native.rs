//! librdkafka's own names, for what Java has no name for.

use rdkafka::{ClientConfig, error::KafkaError};
use walferry_config::ValueError;

use super::{Translation, java};

/// Names that would break what the sink relies on, and what to do instead.
const REFUSED: &[(&str, &str)] = &[
    (
        "delivery.report.only.error",
        "the delivery of every record must be reported",
    ),
    ("enabled_events", "the delivery of every record must be reported"),
    ("queuing.strategy", "records must keep their order"),
    ("plugin.library.paths", "libraries cannot be loaded"),
    ("ssl.engine.location", "libraries cannot be loaded"),
    ("ssl.engine.id", "libraries cannot be loaded"),
    ("ssl.providers", "libraries cannot be loaded"),
    ("test.mock.num.brokers", "`walferry demo` has its own broker"),
    ("opaque", "it is not a setting"),
    ("default_topic_conf", "it is not a setting"),
    ("log.queue", "librdkafka's log is part of Walferry's"),
];

/// Passes on what only librdkafka knows. It wins over what comes of Java's names.
pub(super) fn pass_on(t: &mut Translation) {
    let names: Vec<String> = t
        .given
        .0
        .keys()
        .filter(|name| java::find(name).is_none())
        .cloned()
        .collect();
    for name in names {
        if let Some((_, why)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            t.problem(&name, "is not supported by Walferry").hint(*why);
        } else if is_known(&name) {
            let value = t.get(&name).unwrap_or_default().to_owned();
            if matches!(name.as_str(), "message.timeout.ms" | "message.send.max.retries") {
                t.note(
                    &name,
                    "has no effect: records wait until Kafka accepts them, without a time limit",
                );
                continue;
            }
            if name == "partitioner" && !value.starts_with("murmur2") {
                t.weakens(
                    &name,
                    "is not murmur2_random: records with the same key go to other partitions than with Java clients",
                );
            }
            if name == "enable.ssl.certificate.verification" && value == "false" {
                t.weakens(&name, "is false: an attacker can impersonate a broker");
            }
            t.note(
                &name,
                "is one of librdkafka's own properties and is passed on unchanged",
            );
            t.set(&name, value);
        } else {
            unknown(t, &name);
        }
    }
}

fn unknown(t: &mut Translation, name: &str) {
    let names: Vec<&str> = java::TABLE.iter().map(|entry| entry.name).collect();
    let hint = ValueError::not_one_of(name, &names).hint;
    let written_as = t.written_as(name);
    t.findings
        .warning(
            written_as,
            "is not a Kafka client property that Walferry knows; it has no effect",
        )
        .hint = hint;
}

/// Lets librdkafka look at each value.
pub(super) fn check(t: &mut Translation) {
    let mut wrong = Vec::new();
    for (name, value) in &t.out.values {
        let mut config = ClientConfig::new();
        config.set(name, value);
        if let Err(KafkaError::ClientConfig(_, description, ..)) = config.create_native_config() {
            // The description repeats the value, or leaves it out; and it has librdkafka's name of the property.
            let description = (!t.is_secret(name, value)).then(|| match description.starts_with("Invalid value") {
                true => format!("is {}, which librdkafka does not take", walferry_config::quoted(value)),
                false => format!("is rejected by librdkafka: {description}"),
            });
            wrong.push((name.clone(), description));
        }
    }
    for (name, description) in wrong {
        let message = match description {
            None => "has a value that librdkafka rejects".to_owned(),
            Some(description) => description,
        };
        t.problem(&name, message)
            .hint("correct the value, or remove the property to use the default");
    }
}

/// librdkafka is asked by setting the property: one that has no default cannot be read, and looks as if it were unknown.
fn is_known(name: &str) -> bool {
    let set = ClientConfig::new().set(name, "").create_native_config();
    !matches!(set, Err(KafkaError::ClientConfig(code, ..)) if code == rdkafka::types::RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN)
}
