//! One thing to tell.

use std::borrow::Cow;
use std::fmt;

use crate::credentials::without_credentials;
use crate::kind::Kind;

/// How much a [`Diagnosis`] matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It is as it should be.
    Good,
    /// A start would create or change this.
    Change,
    /// Nothing is lost and nothing is wrong; it is worth a line.
    Note,
    /// The connector runs, and something is probably not as its author meant it.
    Warning,
    /// The connector does not start, or does not go on.
    Error,
}

/// One thing to tell: what, where, how much it matters, and what to do. It never holds a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// How much it matters.
    pub severity: Severity,
    /// What kind of thing it is. Only what is good, and what a start would change, has none.
    pub kind: Option<Kind>,
    /// Where: the full name of a property, a place in a file, a row of a table. It is empty where the text says it. Else the text
    /// goes on from it: "slot.name" "is empty, which is no name".
    pub place: String,
    /// What is the matter, without a full stop.
    pub text: String,
    /// What to do about it: a setting, a statement, a command.
    pub hint: Option<String>,
}

impl Diagnosis {
    /// Something that prevents the start, or stops the connector.
    pub fn error(kind: Kind, text: impl Into<String>) -> Self {
        Self::new(Severity::Error, Some(kind), text)
    }

    /// An error, with the errors beneath it, as a diagnosis. Crates that have errors of their own call it in a method `diagnosis`.
    pub fn of(kind: Kind, error: &dyn std::error::Error) -> Self {
        Self::error(kind, chain(error))
    }

    /// Something that is probably not meant.
    pub fn warning(kind: Kind, text: impl Into<String>) -> Self {
        Self::new(Severity::Warning, Some(kind), text)
    }

    /// Something worth a line.
    pub fn note(kind: Kind, text: impl Into<String>) -> Self {
        Self::new(Severity::Note, Some(kind), text)
    }

    /// Something that is as it should be.
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
            text: text.into(),
            hint: None,
        }
    }

    /// The same with its place.
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = place.into();
        self
    }

    /// The same with what to do about it.
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint(hint);
        self
    }

    /// The same with what to do about it, where that is known.
    pub fn with_any_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.map(|hint| shown(hint.into()));
        self
    }

    /// Sets what to do about it. Credentials in it are hidden; words such as `password=…` are its own.
    pub fn hint(&mut self, hint: impl Into<String>) {
        self.hint = Some(shown(hint.into().into()));
    }

    /// Sets what kind of thing it is.
    pub fn kind(&mut self, kind: Kind) -> &mut Self {
        self.kind = Some(kind);
        self
    }

    /// What is the matter and where, without what to do.
    pub fn sentence(&self) -> Cow<'_, str> {
        match &*self.place {
            "" => (&*self.text).into(),
            place => format!("{place} {}", self.text).into(),
        }
    }

    /// The code of its kind, such as `WF0301`.
    pub fn code(&self) -> Option<&'static str> {
        self.kind.map(Kind::code)
    }
}

/// The whole sentence, and what to do in brackets.
impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence())?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// An error with the errors beneath it, joined by colons.
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

fn shown(hint: Cow<'_, str>) -> String {
    match hint.contains('@') {
        true => without_credentials(&hint),
        false => hint.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_begins_with_its_place_and_a_hint_shows_no_password() {
        let mut told = Diagnosis::error(Kind::PropertyValue, "is no address").at("url");
        told.hint("write http://user:secret@host");
        assert_eq!(told.sentence(), "url is no address");
        assert!(!told.hint.unwrap().contains("secret"));
        assert_eq!(Diagnosis::good("all is well").to_string(), "all is well");
        let built = Diagnosis::warning(Kind::PropertyDoubtful, "x").with_hint("postgres://u:secret@h".to_owned());
        assert!(!built.hint.unwrap().contains("secret"));
    }
}
