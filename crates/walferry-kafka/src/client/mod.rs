//! From the client properties of Kafka Connect's users to those of librdkafka.

mod acknowledge;
mod java;
mod kerberos;
mod native;
mod reference;
mod sasl;
#[cfg(test)]
mod tests;
mod tls;

use std::collections::BTreeMap;

use walferry_config::{Findings, Options, ValueError, Worker};
use walferry_diagnosis::Diagnosis;

pub use reference::reference_markdown;

use java::Rule;
pub(crate) use sasl::{OAuth, TokenSource};

/// A Kafka client, ready to be made.
#[derive(Clone, Default)]
pub(crate) struct Properties {
    /// librdkafka's properties. Values may be secrets.
    pub(crate) values: BTreeMap<String, String>,
    /// Where tokens come from, with the mechanism OAUTHBEARER.
    pub(crate) token: Option<TokenSource>,
    /// Settings that weaken a guarantee.
    pub(crate) warnings: Vec<String>,
}

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

/// What users wrote, the last layer winning.
#[derive(Default)]
struct GivenProperties(BTreeMap<String, GivenProperty>);

struct GivenProperty {
    text: String,
    /// The name as it stands in the user's file.
    written_as: String,
    /// The text as an error may show it.
    shown: String,
    /// Not even a part of the text may be shown.
    secret: bool,
}

impl GivenProperties {
    fn add(&mut self, options: &Options, wanted: impl Fn(&str) -> bool) {
        for (name, text) in options.iter().filter(|(name, _)| wanted(name)) {
            let entry = GivenProperty {
                text: text.to_owned(),
                written_as: options.full_name(name),
                shown: options.shown(name),
                secret: options.is_secret(name),
            };
            self.0.insert(name.to_owned(), entry);
        }
    }
}

/// A translation on its way.
struct Translation {
    given: GivenProperties,
    out: Properties,
    findings: Findings,
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
    /// What users wrote for one of Java's properties; blanks around it do not count.
    fn get(&self, name: &str) -> Option<&str> {
        self.given.0.get(name).map(|entry| entry.text.trim())
    }

    /// The same, unless it is empty.
    fn get_filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|text| !text.is_empty())
    }

    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.out.values.insert(name.to_owned(), value.into());
    }

    /// The name as it stands in the user's file.
    fn written_as(&self, name: &str) -> String {
        self.given
            .0
            .get(name)
            .map_or_else(|| name.to_owned(), |entry| entry.written_as.clone())
    }

    fn problem(&mut self, name: &str, message: impl Into<String>) -> &mut Diagnosis {
        self.findings.problem(self.written_as(name), message)
    }

    fn note(&mut self, name: &str, message: impl Into<String>) {
        self.findings.note(self.written_as(name), message);
    }

    /// Something that is honoured and weakens a guarantee: told at the start and as long as it is in force.
    fn weakens(&mut self, name: &str, message: &str) {
        let name = self.written_as(name);
        self.out.warnings.push(format!("{name} {message}"));
        self.findings.warning(name, message);
    }

    fn wrong_value(&mut self, name: &str, error: ValueError) {
        let entry = self.given.0.get(name);
        let message = match entry {
            Some(entry) if entry.secret => format!("is {}, whose value {error}", entry.shown),
            Some(entry) if !entry.text.trim().is_empty() => format!("is {}, which {error}", entry.shown),
            _ => format!("is empty, which {error}"),
        };
        let hint = error.hint.filter(|_| entry.is_none_or(|entry| !entry.secret));
        self.problem(name, message).hint =
            hint.or_else(|| Some("correct it, or remove it to use the default".to_owned()));
    }

    /// Whether a value of librdkafka's comes from a text that must not be shown.
    fn is_secret(&self, name: &str, value: &str) -> bool {
        let named = ["password", "secret", ".pem", "key", "jaas", "token"]
            .iter()
            .any(|part| name.contains(part));
        let hidden = |entry: &GivenProperty| entry.secret || !entry.shown.contains(entry.text.trim());
        let from_secret = |entry: &GivenProperty| hidden(entry) && entry.text.trim().eq_ignore_ascii_case(value);
        named || self.given.0.get(name).is_some_and(|entry| entry.secret) || self.given.0.values().any(from_secret)
    }

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
