//! From the client properties of Kafka Connect's users to those of librdkafka.

mod acknowledge;
pub(crate) mod ended_aside;
mod jaas;
mod java;
mod kerberos;
mod native;
mod properties;
mod reference;
mod sasl;
pub(crate) mod settings;
#[cfg(test)]
mod tests;
mod tls;
mod translation;

use walferry_config::{Findings, Options, Worker};

pub use reference::reference_markdown;

use java::Rule;
pub(crate) use properties::Properties;
use translation::{GivenProperties, Translation};

/// Properties without effect whose values are classes that somebody may have written.
const NAMES_CLASSES: [&str; 4] = [
    "interceptor.classes",
    "metric.reporters",
    "security.providers",
    "sasl.oauthbearer.jwt.validator.class",
];

/// Names that say how a client is secured.
const SECURITY: [&str; 3] = ["security.", "ssl.", "sasl."];

/// Reads the properties of the producer: `producer.override.*` over the worker's `producer.*`.
///
/// If neither says anything about security, the worker's own security is taken. Connect does not do that, and a producer
/// without its repetition cannot connect there: nothing that works changes.
pub(crate) fn producer(defaults: &[(&str, &str)], worker: &Worker, overrides: &Options) -> (Properties, Findings) {
    let mut given = GivenProperties::default();
    if !secures(&worker.producer) && !secures(overrides) {
        given.add(&worker.client, secures_name);
    }
    given.add(&worker.producer, |_| true);
    given.add(overrides, |_| true);
    translate(defaults, given)
}

/// Reads the properties of the client that creates topics: `admin.override.*` over the worker's `admin.*` over those without
/// a prefix. If none says anything about security, the producer's is taken.
pub(crate) fn admin(worker: &Worker, overrides: &Options, producer: &Properties) -> (Properties, Findings) {
    let mut given = GivenProperties::default();
    for layer in [&worker.client, &worker.admin, overrides] {
        given.add(layer, |name| !is_for_producers(name));
    }
    let (mut admin, findings) = translate(&[], given);
    if ![&worker.client, &worker.admin, overrides].into_iter().any(secures) {
        let security = producer
            .values
            .iter()
            .filter(|(name, _)| secures_name(name) || name.starts_with("enable.ssl."));
        admin
            .values
            .extend(security.map(|(name, value)| (name.clone(), value.clone())));
        admin.token = producer.token.clone();
    }
    admin.warnings.clear();
    (admin, findings)
}

/// Reads how the consumer of signals is secured: `signal.consumer.*`, or the worker's own; else as the producer is.
pub(crate) fn signals(worker: &Worker, overrides: &Options, producer: &Properties) -> Properties {
    let mut given = GivenProperties::default();
    given.add(&worker.client, secures_name);
    given.add(overrides, secures_name);
    let (mut consumer, _) = translate(&[], given);
    if !secures(&worker.client) && !secures(overrides) {
        consumer.values.extend(producer.values.clone());
        consumer.token = producer.token.clone();
    }
    let is_kept = |name: &String| secures_name(name) || name.starts_with("enable.ssl.");
    consumer.values.retain(|name, _| is_kept(name));
    consumer
}

/// Reads the properties of the clients of Connect's own topics: those without a prefix. If they say nothing about security, the
/// producer's is taken.
pub(crate) fn internal(worker: &Worker) -> (Properties, Findings) {
    let mut given = GivenProperties::default();
    given.add(&worker.client, |name| !is_for_producers(name));
    if !secures(&worker.client) {
        given.add(&worker.producer, secures_name);
    }
    let (mut internal, findings) = translate(&[], given);
    internal.warnings.clear();
    (internal, findings)
}

fn secures(options: &Options) -> bool {
    options.iter().any(|(name, _)| secures_name(name))
}

fn secures_name(name: &str) -> bool {
    SECURITY.iter().any(|prefix| name.starts_with(prefix))
}

/// Properties that another kind of client does not have.
fn is_for_producers(name: &str) -> bool {
    matches!(
        name,
        "acks" | "batch.size" | "buffer.memory" | "linger.ms" | "max.block.ms" | "max.request.size" | "retries"
    ) || [
        "compression.",
        "partitioner.",
        "delivery.",
        "enable.idempotence",
        "max.in.flight",
        "transaction.",
    ]
    .iter()
    .any(|p| name.starts_with(p))
}

fn translate(defaults: &[(&str, &str)], given: GivenProperties) -> (Properties, Findings) {
    let mut translation = Translation {
        given,
        out: Properties::default(),
        findings: Findings::default(),
    };
    for &(name, value) in defaults {
        translation.set(name, value);
    }
    kerberos::refuse_of_connectors(&mut translation);
    translation.one_by_one();
    acknowledge::translate(&mut translation);
    let tls = tls::translate(&mut translation);
    sasl::translate(&mut translation, tls);
    native::pass_on(&mut translation);
    native::check(&mut translation);
    (translation.out, translation.findings)
}

impl Translation {
    fn one_by_one(&mut self) {
        let names: Vec<String> = self.given.0.keys().cloned().collect();
        for name in names {
            let Some(entry) = java::find(&name) else {
                continue;
            };
            let text = self.get(&name).unwrap_or_default().to_owned();
            match &entry.rule {
                Rule::As(native) => self.set(native, text),
                Rule::Converted(convert) => match convert(&text) {
                    Ok(converted) => {
                        for (native, value) in converted.properties {
                            self.set(native, value);
                        }
                        if let Some(warning) = converted.warning {
                            self.weakens(&name, &warning);
                        }
                    }
                    Err(error) => self.wrong_value(&name, error),
                },
                Rule::Together => {}
                // Whoever names a class of their own relies on it.
                Rule::Accepted(why) if NAMES_CLASSES.contains(&name.as_str()) && !text.is_empty() => {
                    let name = self.written_as(&name);
                    self.findings
                        .warning(
                            name,
                            format!("refers to Java classes, which Walferry cannot load, and has no effect: {why}"),
                        )
                        .hint("remove it");
                }
                Rule::Accepted(why) => self.note(&name, format!("has no effect: {why}")),
                Rule::Refused(_) if text.is_empty() => {}
                Rule::Refused(hint) => self.problem(&name, "is not supported by Walferry").hint(*hint),
            }
        }
    }
}
