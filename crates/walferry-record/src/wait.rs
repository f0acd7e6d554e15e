//! What a record waits for.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use walferry_diagnosis::Diagnosis;

/// Something that a record needs and that is not there yet: the id of a schema, say, or a row of the database.
///
/// A converter or a transform that meets it hands it out as its error. The record is then kept and tried again once the wait
/// [is over](Self::is_over). Nothing is wrong with the record, so it never goes to a dead-letter topic, and nothing behind it is
/// sent before it. Who fetches what is needed holds a clone, says what is in the way, and ends the wait.
#[derive(Clone)]
pub struct Wait(Arc<Inner>);

struct Inner {
    need: Need,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    over: bool,
    trouble: Option<Diagnosis>,
}

/// What is needed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// The id that a schema registry gives a schema.
    SchemaId {
        /// The subject or artifact that the schema belongs to.
        subject: String,
    },
    /// A row of the database.
    Row {
        /// Its table.
        table: String,
    },
}

impl Wait {
    /// Something that is needed from now on.
    pub fn new(need: Need) -> Self {
        Self(Arc::new(Inner {
            need,
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// What is needed.
    pub fn need(&self) -> &Need {
        &self.0.need
    }

    /// It has come, or never will: the record is to be tried again, and then either goes on or fails.
    pub fn end(&self) {
        self.lock().over = true;
        self.0.changed.notify_all();
    }

    /// Whether the record is to be tried again.
    pub fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Says what is in the way.
    pub fn set_trouble(&self, trouble: Diagnosis) {
        self.lock().trouble = Some(trouble);
    }

    /// What is in the way, where it is known.
    pub fn trouble(&self) -> Option<Diagnosis> {
        self.lock().trouble.clone()
    }

    /// Blocks until the wait is over, at most for so long. Returns whether it is over.
    pub fn wait_for(&self, limit: Duration) -> bool {
        let wait = self
            .0
            .changed
            .wait_timeout_while(self.lock(), limit, |state| !state.over);
        wait.unwrap_or_else(PoisonError::into_inner).0.over
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two waits are equal when they are the same one.
impl PartialEq for Wait {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Wait {}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wait").field(&self.0.need).finish()
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SchemaId { subject } => write!(f, "the id of a schema of {subject}"),
            Self::Row { table } => write!(f, "a row of {table}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_goes_on_when_the_wait_is_ended_elsewhere() {
        let wait = Wait::new(Need::SchemaId {
            subject: "orders-value".to_owned(),
        });
        assert!(!wait.wait_for(Duration::ZERO));
        let other = wait.clone();
        let thread = std::thread::spawn(move || other.wait_for(Duration::from_secs(60)));
        wait.end();
        assert!(thread.join().unwrap() && wait.is_over());
    }
}
