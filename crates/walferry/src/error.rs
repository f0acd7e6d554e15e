//! What ends the program, in words for whoever reads its standard error.

use std::fmt;

use tracing::error;
use walferry_diagnosis::printed::{lines, one_line};
use walferry_engine::{Diagnosis, Disposition, Exit, Failure, Kind};

use crate::{logging, output::note};

/// A failure with its headline.
///
/// ```text
/// error: connector "orders" did not start
///   cause: replication slot dbz_orders is read by process 4711
///   hint:  stop process 4711, or set `slot.name`
///   code:  WF0301 (for details: `walferry explain WF0301`)
/// ```
#[derive(Debug)]
pub(crate) struct Error {
    what: String,
    kind: Kind,
    causes: Vec<Diagnosis>,
    /// Exit code.
    pub(crate) exit: Exit,
    /// It stands on standard error already: each error is told once.
    is_printed: bool,
}

impl Error {
    /// Without a cause so far. The exit code follows from the kind.
    pub(crate) fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            kind,
            causes: Vec::new(),
            exit: kind.exit(),
            is_printed: false,
        }
    }

    /// With one more cause, of the same kind.
    pub(crate) fn cause(self, what: impl Into<String>, hint: Option<String>) -> Self {
        let cause = Diagnosis::error(self.kind, what).with_any_hint(hint);
        self.because([cause])
    }

    /// With more causes.
    pub(crate) fn because(mut self, causes: impl IntoIterator<Item = Diagnosis>) -> Self {
        // Here, because the configuration that says what to hide may be gone when they are told.
        self.causes.extend(causes.into_iter().map(Diagnosis::concealed));
        self
    }

    /// A failure of the engine or of an edge, with the key of the record that it is about.
    pub(crate) fn failure(what: impl Into<String>, mut failure: Failure) -> Self {
        if let (Some(key), Some(cause)) = (&failure.record_key, failure.causes.first_mut()) {
            cause.text.push_str(&format!("; the record's key is {key}"));
        }
        let exit = match failure.disposition {
            Disposition::Stop(exit) => exit,
            Disposition::Retry | Disposition::Replay => Exit::Setup,
        };
        Self {
            exit,
            ..Self::new(failure.kind, what).because(failure.causes)
        }
    }

    /// The same, for its exit code alone.
    pub(crate) fn already_told(mut self) -> Self {
        self.is_printed = true;
        self
    }

    /// Its reasons.
    pub(crate) fn causes(self) -> Vec<Diagnosis> {
        self.causes
    }

    /// Writes it to standard error, unless that has been done: as text, or as a line of JSON among those of the log.
    pub(crate) fn tell(&mut self) {
        if self.is_printed {
            return;
        }
        self.is_printed = true;
        if logging::is_json() {
            note!("{}", self.json());
        } else {
            note!("{self}");
        }
    }

    /// The code that stands for all of it: that of the first cause.
    fn code(&self) -> &'static str {
        let first = self.causes.first().and_then(Diagnosis::code);
        first.unwrap_or_else(|| self.kind.code())
    }

    /// In the form of the log's lines.
    fn json(&self) -> serde_json::Value {
        let causes = self.causes.iter().map(|cause| {
            let mut json = serde_json::json!({ "cause": cause.sentence() });
            for (name, text) in [("hint", cause.hint.as_deref()), ("code", cause.code())] {
                if let Some(text) = text {
                    json[name] = text.into();
                }
            }
            json
        });
        let causes: Vec<_> = causes.collect();
        serde_json::json!({
            "timestamp": logging::now(),
            "level": "ERROR",
            "fields": { "message": self.what, "code": self.code(), "causes": causes, "exit": self.exit as u8 },
            "target": "walferry",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", one_line(&self.what))?;
        for cause in &self.causes {
            write!(f, "\n  cause: {}", indented(&cause.sentence()))?;
            if let Some(hint) = &cause.hint {
                write!(f, "\n  hint:  {}", indented(hint))?;
            }
            if let Some(code) = cause.code() {
                write!(f, "\n  code:  {code}")?;
            }
        }
        let code = self.code();
        match self.causes.len() {
            0 => write!(f, "\n  code:  {code} (for details: `walferry explain {code}`)"),
            1 => write!(f, " (for details: `walferry explain {code}`)"),
            _ => write!(f, "\nfor details of a code: `walferry explain {code}`"),
        }
    }
}

/// Reports the failure of a connector while others may run: as the last lines of the process, or as log lines.
pub(crate) fn report_connector(what: &str, failure: &Failure, is_last: bool) {
    let mut error = Error::failure(what, failure.clone());
    // As JSON, it has the form of the log's lines, and all causes in one.
    if is_last || logging::is_json() {
        return error.tell();
    }
    for cause in error.causes {
        error!(
            code = cause.code().unwrap_or_else(|| failure.code()),
            error = %cause.sentence(),
            hint = cause.hint.as_deref(),
            "{what}"
        );
    }
}

fn indented(text: &str) -> String {
    lines(text).replace('\n', "\n         ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_json_an_error_keeps_its_causes_apart() {
        let error = Error::new(Kind::SlotLost, "it did not start")
            .cause("a\nb", Some("c".into()))
            .because([Diagnosis::error(Kind::WalLevel, "is low").at("wal_level")]);
        let json = error.json();
        assert_eq!(
            json["fields"],
            serde_json::json!({
                "message": "it did not start",
                "code": "WF0302",
                "causes": [
                    { "cause": "a\nb", "hint": "c", "code": "WF0302" },
                    { "cause": "wal_level is low", "code": "WF0215" }
                ],
                "exit": 2
            })
        );
        assert_eq!(json["level"], "ERROR");
        assert!(!json.to_string().contains('\n'));
    }

    #[test]
    fn every_cause_has_its_hint_and_its_code_below_it() {
        let error = Error::new(Kind::SlotInUse, "connector \"orders\" did not start").cause(
            "replication slot s is read by process 7",
            Some("stop process 7, or set `slot.name`".into()),
        );
        let first = "error: connector \"orders\" did not start\n  cause: replication slot s is read by process 7\n  \
                     hint:  stop process 7, or set `slot.name`\n  code:  WF0301";
        assert_eq!(
            error.to_string(),
            format!("{first} (for details: `walferry explain WF0301`)")
        );
        assert_eq!(
            error.cause("two\nlines", None).to_string(),
            format!(
                "{first}\n  cause: two\n         lines\n  code:  WF0301\nfor details of a code: `walferry explain WF0301`"
            )
        );
        assert_eq!(
            Error::new(Kind::CheckRefused, "see above").to_string(),
            "error: see above\n  code:  WF0710 (for details: `walferry explain WF0710`)"
        );
    }

    #[test]
    fn the_exit_code_follows_from_the_kind_of_failure() {
        for (kind, exit) in [
            (Kind::SlotLost, 2),
            (Kind::RecordTooLarge, 3),
            (Kind::OffsetDamaged, 4),
            (Kind::Panic, 1),
        ] {
            let error = Error::failure("it has stopped", Failure::stop(kind, "what", "hint"));
            assert_eq!(error.exit as u8, exit, "{kind}");
        }
    }
}
