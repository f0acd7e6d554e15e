//! What ends the program, in words for whoever reads its standard error.

use std::fmt;

use walferry_engine::{Cause, Disposition, Exit, Failure};

use crate::logging;

/// A failure with its headline.
///
/// ```text
/// error: connector "orders" did not start
///   cause: replication slot dbz_orders is read by process 4711
///   hint:  stop process 4711, or set `slot.name`
/// ```
#[derive(Debug)]
pub(crate) struct Error {
    what: String,
    causes: Vec<Cause>,
    /// Exit code.
    pub(crate) exit: Exit,
    /// It stands on standard error already: each error is told once.
    told: bool,
}

impl Error {
    /// Something is wrong with what the user gave.
    pub(crate) fn setup(what: impl Into<String>) -> Self {
        Self::new(Exit::Setup, what)
    }

    /// Without a cause so far.
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            causes: Vec::new(),
            exit,
            told: false,
        }
    }

    /// With one more cause.
    pub(crate) fn cause(mut self, what: impl Into<String>, hint: Option<String>) -> Self {
        self.causes.push(Cause {
            what: what.into(),
            hint,
        });
        self
    }

    /// A failure of the engine or of an edge, with the key of the record that it is about.
    pub(crate) fn failure(what: impl Into<String>, mut failure: Failure) -> Self {
        if let (Some(key), Some(cause)) = (&failure.record_key, failure.causes.first_mut()) {
            cause.what.push_str(&format!("; the record's key is {key}"));
        }
        let exit = match failure.disposition {
            Disposition::Stop(exit) => exit,
            Disposition::Retry | Disposition::Replay => Exit::Setup,
        };
        Self {
            what: what.into(),
            causes: failure.causes,
            exit,
            told: false,
        }
    }

    /// The same, for its exit code alone.
    pub(crate) fn already_told(mut self) -> Self {
        self.told = true;
        self
    }

    /// Its reasons.
    pub(crate) fn causes(self) -> Vec<Cause> {
        self.causes
    }

    /// Writes it to standard error, unless that has been done: as text, or as a line of JSON among those of the log.
    pub(crate) fn tell(&mut self) {
        if self.told {
            return;
        }
        self.told = true;
        if logging::is_json() {
            eprintln!("{}", self.json());
        } else {
            eprintln!("{self}");
        }
    }

    /// In the form of the log's lines.
    fn json(&self) -> serde_json::Value {
        let causes = self.causes.iter().map(|cause| match &cause.hint {
            Some(hint) => serde_json::json!({ "cause": cause.what, "hint": hint }),
            None => serde_json::json!({ "cause": cause.what }),
        });
        serde_json::json!({
            "timestamp": logging::now(),
            "level": "ERROR",
            "fields": { "message": self.what, "causes": causes.collect::<Vec<_>>(), "exit": self.exit as u8 },
            "target": "walferry",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.what)?;
        for cause in &self.causes {
            write!(f, "\n  cause: {}", indented(&cause.what))?;
            if let Some(hint) = &cause.hint {
                write!(f, "\n  hint:  {}", indented(hint))?;
            }
        }
        Ok(())
    }
}

fn indented(text: &str) -> String {
    text.replace('\n', "\n         ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_json_an_error_keeps_its_causes_apart() {
        let error = Error::setup("it did not start")
            .cause("a\nb", Some("c".into()))
            .cause("d", None);
        let json = error.json();
        assert_eq!(
            json["fields"],
            serde_json::json!({
                "message": "it did not start", "causes": [{ "cause": "a\nb", "hint": "c" }, { "cause": "d" }], "exit": 2
            })
        );
        assert_eq!(json["level"], "ERROR");
        assert!(!json.to_string().contains('\n'));
    }

    #[test]
    fn every_cause_has_its_hint_below_it() {
        let error = Error::setup("connector \"orders\" did not start")
            .cause(
                "replication slot s is read by process 7",
                Some("stop process 7, or set `slot.name`".into()),
            )
            .cause("two\nlines", None);
        assert_eq!(
            error.to_string(),
            "error: connector \"orders\" did not start\n  cause: replication slot s is read by process 7\n  \
             hint:  stop process 7, or set `slot.name`\n  cause: two\n         lines"
        );
    }
}
