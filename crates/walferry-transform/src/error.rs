//! Why a record could not be transformed.

use std::fmt;

use walferry_diagnosis::Kind;

/// Why one transform cannot handle a record. Each transform has a type of its own for this, in its file. Row values do not appear in
/// the text. The only exceptions are an event's id and type (cut), and the number that should be its partition, in errors of EventRouter.
pub trait TransformFault: std::error::Error + Send + Sync + 'static {
    /// What to do about it.
    fn hint(&self) -> Option<String> {
        None
    }

    /// The kind of the diagnosis.
    fn kind(&self) -> Kind {
        Kind::TransformFailed
    }
}

/// A match of a regular expression that would take too many steps.
impl TransformFault for walferry_config::RegexLimit {
    fn hint(&self) -> Option<String> {
        Some(Self::hint(self))
    }
}

/// A record that a transform cannot handle: any transform's [`TransformFault`].
pub struct Error(Box<dyn TransformFault>);

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        self.0.hint()
    }

    /// The kind of the diagnosis.
    pub fn kind(&self) -> Kind {
        self.0.kind()
    }
}

impl<P: TransformFault> From<P> for Error {
    fn from(problem: P) -> Self {
        Self(Box::new(problem))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Two errors are equal if their texts are equal.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}
