//! Why an expression is not evaluated: refused at the start, or failed on a record.

use walferry_config::RegexLimit;

/// An expression that is not evaluated, with the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptRefusal {
    /// The byte where it shows.
    at: usize,
    pub(crate) what: String,
    pub(crate) hint: Option<String>,
}

impl ScriptRefusal {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { at, what, hint: None }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        let hint = Some(hint.into());
        Self { hint, ..self }
    }

    pub(crate) fn moved(self, by: usize) -> Self {
        Self {
            at: self.at + by,
            ..self
        }
    }

    /// What is wrong, with the character where it shows: `… at character 7`.
    pub fn message(&self, text: &str) -> String {
        format!("{} at character {}", self.what, character(text, self.at))
    }

    /// What to write instead.
    pub fn remedy(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// Characters up to a byte, plus one.
pub(crate) fn character(text: &str, at: usize) -> usize {
    text.char_indices().take_while(|(place, _)| *place < at).count() + 1
}

/// An expression that failed on a record.
#[derive(Debug, thiserror::Error)]
pub enum ScriptFailure {
    /// The data does not fit the expression. No value of the row is in the text.
    #[error("{what} at character {character}")]
    Unfit {
        /// What does not fit.
        what: String,
        /// Where in the expression.
        character: usize,
    },
    /// A regular expression takes too long.
    #[error(transparent)]
    Limit(#[from] RegexLimit),
}
