//! A message to the user: an error, a warning or a finding.

use std::borrow::Cow;
use std::fmt;

use crate::concealed::concealed;
use crate::credentials::without_credentials;
use crate::kind::Kind;
use crate::printed::lines;

/// How serious a [`Diagnosis`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong.
    Good,
    /// A start would create or change this.
    Change,
    /// Nothing is lost and nothing is wrong, but the user should know it.
    Note,
    /// The connector runs, but something is probably not as intended.
    Warning,
    /// The connector does not start, or cannot continue.
    Error,
}

/// A message to the user: what happened, where, how serious it is, and what to do. It never contains a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// How serious it is.
    pub severity: Severity,
    /// Its kind. Only the severities `Good` and `Change` have none.
    pub kind: Option<Kind>,
    /// Where: the full name of a property, a place in a file, a row of a table. It is empty if the text contains the place. Otherwise the
    /// text continues the sentence: "slot.name" "is empty".
    pub place: String,
    /// What happened, without a full stop.
    pub text: String,
    /// What to do about it: a setting, a statement, a command.
    pub hint: Option<String>,
    /// The SQL that mends it, if SQL does.
    pub fix: Option<Box<Fix>>,
}

/// SQL that mends what a [`Diagnosis`] tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// Statements in order, without semicolons.
    pub statements: Vec<String>,
    /// What running them takes.
    pub needs: Needs,
}

/// What running SQL takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// The owner of the tables or of the database, or who may do what an owner does.
    Owner,
    /// A superuser, or the administrator of a managed service.
    Superuser,
    /// A superuser, and a restart of the server afterwards.
    Restart,
}

impl Diagnosis {
    /// Something that prevents the start, or stops the connector.
    pub fn error(kind: Kind, text: impl Into<String>) -> Self {
        Self::new(Severity::Error, Some(kind), text)
    }

    /// A diagnosis of an error and its sources. Crates with their own error types call it in their method `diagnosis`.
    pub fn of(kind: Kind, error: &dyn std::error::Error) -> Self {
        Self::error(kind, chain(error))
    }

    /// Something that is probably not intended.
    pub fn warning(kind: Kind, text: impl Into<String>) -> Self {
        Self::new(Severity::Warning, Some(kind), text)
    }

    /// Something that the user should know.
    pub fn note(kind: Kind, text: impl Into<String>) -> Self {
        Self::new(Severity::Note, Some(kind), text)
    }

    /// Something that is correct.
    pub fn good(text: impl Into<String>) -> Self {
        Self::new(Severity::Good, None, text)
    }

    /// Something that a start would create or change.
    pub fn change(text: impl Into<String>) -> Self {
        Self::new(Severity::Change, None, text)
    }

    fn new(severity: Severity, kind: Option<Kind>, text: impl Into<String>) -> Self {
        Self {
            severity,
            kind,
            place: String::new(),
            text: printable(text.into()),
            hint: None,
            fix: None,
        }
    }

    /// Adds the place.
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = printable(place.into());
        self
    }

    /// Adds the hint.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint(hint);
        self
    }

    /// Adds the hint, if there is one.
    pub fn with_any_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.map(|hint| hint_text(hint.into()));
        self
    }

    /// Adds the SQL that mends it.
    pub fn with_fix(mut self, statements: Vec<String>, needs: Needs) -> Self {
        self.fix = Some(Box::new(Fix { statements, needs }));
        self
    }

    /// Sets the hint. It hides the credentials of URLs. It keeps words such as `password=…`, which are part of the hint.
    pub fn hint(&mut self, hint: impl Into<String>) {
        self.hint = Some(hint_text(hint.into().into()));
    }

    /// Sets the kind.
    pub fn kind(&mut self, kind: Kind) -> &mut Self {
        self.kind = Some(kind);
        self
    }

    /// Where and what, without the hint.
    pub fn sentence(&self) -> Cow<'_, str> {
        match &*self.place {
            "" => (&*self.text).into(),
            place => format!("{place} {}", self.text).into(),
        }
    }

    /// The same without the values that config providers have returned.
    #[must_use]
    pub fn concealed(self) -> Self {
        self.without(|text| concealed(text).into_owned())
    }

    /// The same without what `hide` takes out of its texts. The SQL that mends it stays as it is: only the operator's own script gets it.
    #[must_use]
    pub fn without(mut self, hide: impl Fn(&str) -> String) -> Self {
        let texts = [&mut self.place, &mut self.text];
        for text in texts.into_iter().chain(self.hint.as_mut()) {
            *text = hide(text);
        }
        self
    }

    /// The code of its kind, such as `WF0301`.
    pub fn code(&self) -> Option<&'static str> {
        self.kind.map(Kind::code)
    }
}

/// The whole sentence, and the hint in brackets.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence())?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// An error and its sources, joined by colons.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn hint_text(hint: Cow<'_, str>) -> String {
    let hint = lines(&hint);
    match hint.contains('@') {
        true => without_credentials(&hint),
        false => hint.into_owned(),
    }
}

/// A message may repeat names and answers of others.
fn printable(text: String) -> String {
    match lines(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(escaped) => escaped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_message_control_no_terminal() {
        let diagnosis = Diagnosis::error(Kind::PropertyValue, "a\u{1b}[2Jb")
            .at("p\r")
            .with_hint("h\u{202e}");
        assert_eq!(diagnosis.to_string(), "p\\r a\\u001b[2Jb (h\\u202e)");
    }

    #[test]
    fn a_sentence_begins_with_its_place_and_a_hint_shows_no_password() {
        let mut diagnosis = Diagnosis::error(Kind::PropertyValue, "is no address").at("url");
        diagnosis.hint("write http://user:secret@host");
        assert_eq!(diagnosis.sentence(), "url is no address");
        assert!(!diagnosis.hint.unwrap().contains("secret"));
        assert_eq!(Diagnosis::good("all is well").to_string(), "all is well");
        let built = Diagnosis::warning(Kind::PropertyDoubtful, "x").with_hint("postgres://u:secret@h".to_owned());
        assert!(!built.hint.unwrap().contains("secret"));
    }
}
