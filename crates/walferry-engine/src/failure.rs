//! What went wrong, what the engine does about it, and what the operator can do.

use std::fmt::{self, Write as _};

use walferry_diagnosis::Diagnosis;
pub use walferry_diagnosis::{Exit, Kind};

/// What happens after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// The same is tried again after a pause: nothing an operator has to mend.
    Retry,
    /// A new producer replays from the stored offset: its sequence or its transaction is lost, the data is not.
    Replay,
    /// The connector stops: only a person can mend it.
    Stop(Exit),
}

impl Disposition {
    /// The connector stops with the exit code of this kind.
    pub fn stop(kind: Kind) -> Self {
        Self::Stop(kind.exit())
    }
}

/// A failure with all its causes, as an edge reports it to the engine.
///
/// Edges have typed errors of their own; this is what becomes of them where they are handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What the engine does.
    pub disposition: Disposition,
    /// What kind of failure it is, which metrics and retries go by.
    pub kind: Kind,
    /// Why, at least one. A cause may be of a kind that says more than that of the failure.
    pub causes: Vec<Diagnosis>,
    /// The key of the record that it is about, readable and cut to its first 200 bytes. It is a part of a row: for the log, where a
    /// person needs it to find the row, and nowhere else unless `errors.log.include.messages` asks for it.
    pub record_key: Option<String>,
}

impl Failure {
    /// A failure with one cause.
    pub fn new(disposition: Disposition, kind: Kind, what: impl Into<String>, hint: Option<String>) -> Self {
        Self::of(
            disposition,
            kind,
            vec![Diagnosis::error(kind, what).with_any_hint(hint)],
        )
    }
    /// A failure with all its causes.
    pub fn of(disposition: Disposition, kind: Kind, causes: Vec<Diagnosis>) -> Self {
        Self {
            disposition,
            kind,
            causes,
            record_key: None,
        }
    }
    /// The code that is told: that of the first cause.
    pub fn code(&self) -> &'static str {
        let first = self.causes.first().and_then(Diagnosis::code);
        first.unwrap_or_else(|| self.kind.code())
    }
    /// What to do, by the first cause that says it.
    pub fn hint(&self) -> Option<&str> {
        self.causes.iter().find_map(|cause| cause.hint.as_deref())
    }
    /// With the key of the record that it is about.
    pub fn about(mut self, key: &[u8]) -> Self {
        self.record_key = Some(excerpt(key));
        self
    }
    /// As the log tells it: with the key of the record.
    pub fn for_log(&self) -> String {
        match &self.record_key {
            Some(key) => format!("{self}; the record's key is {key}"),
            None => self.to_string(),
        }
    }
    /// One that goes away by itself.
    pub fn retry(kind: Kind, what: impl Into<String>) -> Self {
        Self::new(Disposition::Retry, kind, what, None)
    }
    /// One that needs a person. The exit code follows from its kind.
    pub fn stop(kind: Kind, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Disposition::stop(kind), kind, what, Some(hint.into()))
    }
    /// An error with the errors beneath it, joined by colons.
    pub fn chain(error: &dyn std::error::Error) -> String {
        walferry_diagnosis::chain(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, cause) in self.causes.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            f.write_str(&cause.sentence())?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// The first bytes of a key, readable.
fn excerpt(key: &[u8]) -> String {
    const MOST: usize = 200;
    let mut text = String::new();
    for chunk in key[..key.len().min(MOST)].utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    if key.len() > MOST {
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_for_the_log_alone_and_cut() {
        let failure = Failure::stop(Kind::RecordTooLarge, "it is too large", "raise the limit");
        let short = failure.clone().about(b"{\"id\":1}\xff");
        assert_eq!(short.to_string(), "it is too large");
        assert_eq!(short.for_log(), "it is too large; the record's key is {\"id\":1}\\xff");
        let long = failure.about(&[b'x'; 201]).record_key.unwrap();
        assert_eq!(long, format!("{}…", "x".repeat(200)));
    }
}
