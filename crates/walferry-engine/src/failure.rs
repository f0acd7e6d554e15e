//! What went wrong, what the engine does about it, and what the operator can do.

use std::fmt::{self, Write as _};

use walferry_diagnosis::Diagnosis;
pub use walferry_diagnosis::{Exit, Kind};

/// What happens after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// The engine pauses and tries the same again. An operator need not do anything.
    Retry,
    /// A new producer replays from the stored offset. The old producer's sequence or transaction is lost, the data is
    /// not.
    Replay,
    /// The connector stops. Only a person can correct the problem.
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
/// Each edge has its own typed errors. They become a `Failure` where they are handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What the engine does.
    pub disposition: Disposition,
    /// The kind of failure. Metrics and retries depend on it.
    pub kind: Kind,
    /// The causes, at least one. The kind of a cause may be more specific than `kind`.
    pub causes: Vec<Diagnosis>,
    /// The key of the failed record, readable and cut to its first 200 bytes. It is a part of a row. The log shows it,
    /// since a person needs it to find the row. Nothing else does, unless `errors.log.include.messages` is set.
    pub record_key: Option<String>,
    /// What names the change that the failed record comes from: `walferry offsets skip-record` passes over a change that is named so.
    pub change: Option<String>,
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
            change: None,
        }
    }
    /// The code shown for this failure: that of the first cause.
    pub fn code(&self) -> &'static str {
        let first = self.causes.first().and_then(Diagnosis::code);
        first.unwrap_or_else(|| self.kind.code())
    }
    /// What to do: the hint of the first cause that has one.
    pub fn hint(&self) -> Option<&str> {
        self.causes.iter().find_map(|cause| cause.hint.as_deref())
    }
    /// The same without the values that config providers have returned.
    #[must_use]
    pub fn concealed(mut self) -> Self {
        self.causes = self.causes.into_iter().map(Diagnosis::concealed).collect();
        self
    }
    /// Adds the key of the failed record.
    pub fn about(mut self, key: &[u8]) -> Self {
        self.record_key = Some(excerpt(key));
        self
    }
    /// Adds what names the change that the failed record comes from.
    #[must_use]
    pub fn of_change(self, change: Option<String>) -> Self {
        Self { change, ..self }
    }
    /// The same with one more thing to do, at the end of the hint.
    #[must_use]
    pub(crate) fn with_remedy(mut self, remedy: &str) -> Self {
        let index = self.causes.iter().position(|cause| cause.hint.is_some()).unwrap_or(0);
        if let Some(cause) = self.causes.get_mut(index) {
            cause.hint = Some(match cause.hint.take() {
                Some(hint) => format!("{hint}; {remedy}"),
                None => remedy.to_owned(),
            });
        }
        self
    }
    /// The text for the log, with the key of the record.
    pub fn for_log(&self) -> String {
        match &self.record_key {
            Some(key) => format!("{self}; the record's key is {key}"),
            None => self.to_string(),
        }
    }
    /// A failure that resolves itself.
    pub fn retry(kind: Kind, what: impl Into<String>) -> Self {
        Self::new(Disposition::Retry, kind, what, None)
    }
    /// A failure that needs a person. Its kind determines the exit code.
    pub fn stop(kind: Kind, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Disposition::stop(kind), kind, what, Some(hint.into()))
    }
    /// An error with its sources, joined by colons.
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
pub(crate) fn excerpt(key: &[u8]) -> String {
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
