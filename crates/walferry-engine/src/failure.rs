//! What went wrong, what the engine does about it, and what the operator can do.

use std::fmt::{self, Write as _};

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

/// Exit code of `walferry run` when its connector has stopped for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 1: something that may pass by itself, and that was tried as often as `errors.max.retries` says. Another start may succeed.
    GaveUp = 1,
    /// 2: configuration, privileges, the state of slot or server.
    Setup = 2,
    /// 3: a record that cannot be converted or delivered.
    Record = 3,
    /// 4: the data directory or the offset in it.
    State = 4,
}

/// One reason, with its remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// What happened and where, in one sentence without a full stop.
    pub what: String,
    /// What to do about it: a setting, a statement, a command.
    pub hint: Option<String>,
}

/// A failure with all its causes, as an edge reports it to the engine.
///
/// Edges have typed errors of their own; this is what becomes of them where they are handled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What the engine does.
    pub disposition: Disposition,
    /// A short constant word for metrics, such as `slot_in_use`.
    pub kind: &'static str,
    /// Why, at least one.
    pub causes: Vec<Cause>,
    /// The key of the record that it is about, readable and cut to its first 200 bytes. It is a part of a row: for the log, where a
    /// person needs it to find the row, and nowhere else unless `errors.log.include.messages` asks for it.
    pub record_key: Option<String>,
}

impl Failure {
    /// A failure with one cause.
    pub fn new(disposition: Disposition, kind: &'static str, what: impl Into<String>, hint: Option<String>) -> Self {
        Self {
            disposition,
            kind,
            causes: vec![Cause {
                what: what.into(),
                hint,
            }],
            record_key: None,
        }
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
    pub fn retry(kind: &'static str, what: impl Into<String>) -> Self {
        Self::new(Disposition::Retry, kind, what, None)
    }
    /// One that needs a person.
    pub fn stop(exit: Exit, kind: &'static str, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Disposition::Stop(exit), kind, what, Some(hint.into()))
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
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, cause) in self.causes.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            f.write_str(&cause.what)?;
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
        let failure = Failure::stop(Exit::Record, "record_too_large", "it is too large", "raise the limit");
        let short = failure.clone().about(b"{\"id\":1}\xff");
        assert_eq!(short.to_string(), "it is too large");
        assert_eq!(short.for_log(), "it is too large; the record's key is {\"id\":1}\\xff");
        let long = failure.about(&[b'x'; 201]).record_key.unwrap();
        assert_eq!(long, format!("{}…", "x".repeat(200)));
    }
}
