//! What ends the program, in words for whoever reads its standard error.

use std::fmt;

use walferry_engine::{Cause, Disposition, Exit, Failure};

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
}

impl Error {
    /// Something is wrong with what the user gave.
    pub(crate) fn setup(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            causes: Vec::new(),
            exit: Exit::Setup,
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

    /// A failure of the engine or of an edge.
    pub(crate) fn failure(what: impl Into<String>, failure: Failure) -> Self {
        let exit = match failure.disposition {
            Disposition::Stop(exit) => exit,
            Disposition::Retry | Disposition::Replay => Exit::Setup,
        };
        Self {
            what: what.into(),
            causes: failure.causes,
            exit,
        }
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
