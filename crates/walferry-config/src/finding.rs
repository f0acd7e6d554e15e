//! What reading a configuration brought to light.

use std::fmt;

use crate::sanitize::{shown_name, shown_text, without_credentials};
use crate::secret::HIDDEN;

/// How much a [`Finding`] matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The connector does not start.
    Problem,
    /// It starts, and something is probably not as its author meant it.
    Warning,
    /// It starts, and nothing is lost; worth a line in `check`.
    Note,
}

/// One thing to tell about a configuration. Never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// The full name of the property, or the place in the file.
    pub property: String,
    /// What is the matter, as the end of a sentence that begins with the name.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.property, self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// All findings of a file, in the order in which they were made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Adds one. Whatever in the name or in the message looks like a secret is hidden.
    pub fn push(
        &mut self,
        severity: Severity,
        property: impl Into<String>,
        message: impl Into<String>,
    ) -> &mut Finding {
        self.0.push(Finding {
            severity,
            property: shown_name(&property.into()).into_owned(),
            message: shown_text(&message.into()).into_owned(),
            hint: None,
        });
        let last = self.0.len() - 1;
        &mut self.0[last]
    }

    /// Adds a problem.
    pub fn problem(&mut self, property: impl Into<String>, message: impl Into<String>) -> &mut Finding {
        self.push(Severity::Problem, property, message)
    }

    /// Adds a warning.
    pub fn warning(&mut self, property: impl Into<String>, message: impl Into<String>) -> &mut Finding {
        self.push(Severity::Warning, property, message)
    }

    /// Adds a note.
    pub fn note(&mut self, property: impl Into<String>, message: impl Into<String>) -> &mut Finding {
        self.push(Severity::Note, property, message)
    }

    /// Takes over all findings of another part.
    pub fn extend(&mut self, other: Findings) {
        self.0.extend(other.0);
    }

    /// Hides a secret wherever it stands, also where it has become part of a name. A short one is hidden only as a word of its own,
    /// for messages may have it as a part of theirs.
    pub(crate) fn hide(&mut self, secret: &str) {
        for finding in &mut self.0 {
            let texts = [&mut finding.property, &mut finding.message];
            for text in texts.into_iter().chain(finding.hint.as_mut()) {
                *text = without(text, secret);
            }
        }
    }

    /// Hides a secret where it is a part of the name of a property, such as that of a transform.
    pub(crate) fn hide_part_of_names(&mut self, secret: &str) {
        let (part, hidden) = (format!(".{secret}."), format!(".{HIDDEN}."));
        for finding in &mut self.0 {
            let texts = [&mut finding.property, &mut finding.message];
            for text in texts.into_iter().chain(finding.hint.as_mut()) {
                *text = text.replace(&part, &hidden);
            }
        }
    }

    /// All of them, to hide what must not be shown.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Finding> {
        self.0.iter_mut()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter()
    }

    /// What prevents the start.
    pub fn problems(&self) -> impl Iterator<Item = &Finding> {
        self.of(Severity::Problem)
    }

    /// What is probably not meant.
    pub fn warnings(&self) -> impl Iterator<Item = &Finding> {
        self.of(Severity::Warning)
    }

    /// What has no effect.
    pub fn notes(&self) -> impl Iterator<Item = &Finding> {
        self.of(Severity::Note)
    }

    /// Whether something prevents the start.
    pub fn has_problems(&self) -> bool {
        self.problems().next().is_some()
    }

    fn of(&self, severity: Severity) -> impl Iterator<Item = &Finding> {
        self.0.iter().filter(move |finding| finding.severity == severity)
    }
}

/// The text with [`HIDDEN`] in place of each occurrence of a word.
pub(crate) fn without(text: &str, word: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, behind) = (&rest[..at], &rest[at + word.len()..]);
        let inside = word.len() < 8 && before.ends_with(char::is_alphanumeric)
            || word.len() < 8 && behind.starts_with(char::is_alphanumeric);
        shown.push_str(before);
        shown.push_str(if inside { word } else { HIDDEN });
        rest = behind;
    }
    shown.push_str(rest);
    shown
}

impl Finding {
    /// Adds what to do about it. Credentials in it are hidden; words such as `password=…` are its own.
    pub fn hint(&mut self, hint: impl Into<String>) {
        let hint = hint.into();
        self.hint = Some(match hint.contains('@') {
            true => without_credentials(&hint),
            false => hint,
        });
    }
}
