//! A translation on its way: what users wrote, and what librdkafka is given.

use std::collections::BTreeMap;

use walferry_config::{Findings, Options, ValueError};
use walferry_diagnosis::Diagnosis;

use super::properties::Properties;

/// What users wrote, the last layer winning.
#[derive(Default)]
pub(super) struct GivenProperties(pub(super) BTreeMap<String, GivenProperty>);

pub(super) struct GivenProperty {
    pub(super) text: String,
    /// The name as it stands in the user's file.
    pub(super) written_as: String,
    /// The text as an error may show it.
    pub(super) display_text: String,
    /// Not even a part of the text may be shown.
    pub(super) secret: bool,
}

impl GivenProperties {
    pub(super) fn add(&mut self, options: &Options, wanted: impl Fn(&str) -> bool) {
        for (name, text) in options.iter().filter(|(name, _)| wanted(name)) {
            let entry = GivenProperty {
                text: text.to_owned(),
                written_as: options.full_name(name),
                display_text: options.display_text(name),
                secret: options.is_secret(name),
            };
            self.0.insert(name.to_owned(), entry);
        }
    }
}

/// A translation on its way.
pub(super) struct Translation {
    pub(super) given: GivenProperties,
    pub(super) out: Properties,
    pub(super) findings: Findings,
}

impl Translation {
    /// What users wrote for one of Java's properties; blanks around it do not count.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.given.0.get(name).map(|entry| entry.text.trim())
    }

    /// The same, unless it is empty.
    pub(super) fn get_filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|text| !text.is_empty())
    }

    pub(super) fn set(&mut self, name: &str, value: impl Into<String>) {
        self.out.values.insert(name.to_owned(), value.into());
    }

    /// The name as it stands in the user's file.
    pub(super) fn written_as(&self, name: &str) -> String {
        self.given
            .0
            .get(name)
            .map_or_else(|| name.to_owned(), |entry| entry.written_as.clone())
    }

    pub(super) fn problem(&mut self, name: &str, message: impl Into<String>) -> &mut Diagnosis {
        self.findings.problem(self.written_as(name), message)
    }

    pub(super) fn note(&mut self, name: &str, message: impl Into<String>) {
        self.findings.note(self.written_as(name), message);
    }

    /// Something that is honoured and weakens a guarantee: told at the start and as long as it is in force.
    pub(super) fn weakens(&mut self, name: &str, message: &str) {
        let name = self.written_as(name);
        self.out.warnings.push(format!("{name} {message}"));
        self.findings.warning(name, message);
    }

    pub(super) fn wrong_value(&mut self, name: &str, error: ValueError) {
        let entry = self.given.0.get(name);
        let message = match entry {
            Some(entry) if entry.secret => format!("is {}, whose value {error}", entry.display_text),
            Some(entry) if !entry.text.trim().is_empty() => format!("is {}, which {error}", entry.display_text),
            _ => format!("is empty, which {error}"),
        };
        let hint = error.hint.filter(|_| entry.is_none_or(|entry| !entry.secret));
        self.problem(name, message).hint =
            hint.or_else(|| Some("correct it, or remove it to use the default".to_owned()));
    }

    /// Whether a value of librdkafka's comes from a text that must not be shown.
    pub(super) fn is_secret(&self, name: &str, value: &str) -> bool {
        let named = ["password", "secret", ".pem", "key", "jaas", "token"]
            .iter()
            .any(|part| name.contains(part));
        let hidden = |entry: &GivenProperty| entry.secret || !entry.display_text.contains(entry.text.trim());
        let from_secret = |entry: &GivenProperty| hidden(entry) && entry.text.trim().eq_ignore_ascii_case(value);
        named || self.given.0.get(name).is_some_and(|entry| entry.secret) || self.given.0.values().any(from_secret)
    }
}
