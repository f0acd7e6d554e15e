//! The findings of reading a configuration.

use walferry_diagnosis::{Concealed, Diagnosis, Kind, Severity};

use crate::sanitize::{shown_name, shown_text};

/// All findings of a file, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings(Vec<Diagnosis>);

impl Findings {
    /// Adds one, whose place is the full name of a property, or a place in the file. Whatever in the name or in the message looks
    /// like a secret is hidden.
    fn push(&mut self, found: Diagnosis, place: &str) -> &mut Diagnosis {
        let text = shown_text(&found.text).into_owned();
        self.0.push(Diagnosis { text, ..found }.at(shown_name(place)));
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// Adds a problem: by default that a value cannot be used.
    pub fn problem(&mut self, property: impl AsRef<str>, message: impl Into<String>) -> &mut Diagnosis {
        self.push(Diagnosis::error(Kind::PropertyValue, message), property.as_ref())
    }

    /// Adds a warning: by default that something is probably not meant.
    pub fn warning(&mut self, property: impl AsRef<str>, message: impl Into<String>) -> &mut Diagnosis {
        self.push(Diagnosis::warning(Kind::PropertyDoubtful, message), property.as_ref())
    }

    /// Adds a note: by default that something has no effect.
    pub fn note(&mut self, property: impl AsRef<str>, message: impl Into<String>) -> &mut Diagnosis {
        self.push(Diagnosis::note(Kind::PropertyWithoutEffect, message), property.as_ref())
    }

    /// Takes over all findings of another part.
    pub fn extend(&mut self, other: Findings) {
        self.0.extend(other.0);
    }

    /// Hides what config providers have returned, even where it is a part of a name.
    pub(crate) fn conceal(&mut self, values: &Concealed) {
        for finding in &mut self.0 {
            *finding = finding.clone().without(|text| values.hide(text).into_owned());
        }
    }

    /// All of them, to hide what must not be shown.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Diagnosis> {
        self.0.iter_mut()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Diagnosis> {
        self.0.iter()
    }

    /// What prevents the start.
    pub fn problems(&self) -> impl Iterator<Item = &Diagnosis> {
        self.of(Severity::Error)
    }

    /// What is probably not meant.
    pub fn warnings(&self) -> impl Iterator<Item = &Diagnosis> {
        self.of(Severity::Warning)
    }

    /// What has no effect.
    pub fn notes(&self) -> impl Iterator<Item = &Diagnosis> {
        self.of(Severity::Note)
    }

    /// Whether something prevents the start.
    pub fn has_problems(&self) -> bool {
        self.problems().next().is_some()
    }

    fn of(&self, severity: Severity) -> impl Iterator<Item = &Diagnosis> {
        self.0.iter().filter(move |finding| finding.severity == severity)
    }
}
