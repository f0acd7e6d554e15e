//! Waits: what a record needs before it can go on.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use walferry_diagnosis::Diagnosis;

/// Something that a record needs and that is not available yet, such as the id of a schema or a row of the database.
///
/// A converter or a transform that needs it returns a `Wait` as its error. The engine then keeps the record and tries
/// it again once the wait [is over](Self::is_over). Nothing is wrong with the record, so it never goes to a dead-letter
/// topic, and no later record is sent before it. The part that fetches what is needed holds a clone of the `Wait`: it
/// reports problems and ends the wait.
#[derive(Clone)]
pub struct Wait(Arc<Inner>);

struct Inner {
    need: WaitNeed,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    over: bool,
    trouble: Option<Diagnosis>,
    refusal: Option<Diagnosis>,
}

/// What the record needs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitNeed {
    /// The id of a schema in the schema registry.
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
    /// Starts a wait.
    pub fn new(need: WaitNeed) -> Self {
        Self(Arc::new(Inner {
            need,
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    /// What is needed.
    pub fn need(&self) -> &WaitNeed {
        &self.0.need
    }

    /// Ends the wait, because what was needed has come or never will. The record is then tried again, and either goes
    /// on or fails.
    pub fn end(&self) {
        self.lock().over = true;
        self.0.changed.notify_all();
    }

    /// Ends the wait, because the connector cannot go on as it is configured now. The record is not at fault: the run of the connector ends
    /// with this.
    pub fn refuse(&self, refusal: Diagnosis) {
        self.lock().refusal = Some(refusal);
        self.end();
    }

    /// Why the connector cannot go on.
    pub fn refusal(&self) -> Option<Diagnosis> {
        self.lock().refusal.clone()
    }

    /// Whether the record can be tried again.
    pub fn is_over(&self) -> bool {
        self.lock().over
    }

    /// How many clones of this wait there are, with this one. Whoever fetches what is needed can see whether somebody still waits.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Reports a problem.
    pub fn set_trouble(&self, trouble: Diagnosis) {
        self.lock().trouble = Some(trouble);
    }

    /// The reported problem, if there is one.
    pub fn trouble(&self) -> Option<Diagnosis> {
        self.lock().trouble.clone()
    }

    /// Blocks until the wait is over, but not longer than `limit`. Returns whether it is over.
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

/// Two values are equal if they are clones of the same wait.
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

impl fmt::Display for WaitNeed {
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
        let wait = Wait::new(WaitNeed::SchemaId {
            subject: "orders-value".to_owned(),
        });
        assert!(!wait.wait_for(Duration::ZERO));
        let other = wait.clone();
        let thread = std::thread::spawn(move || other.wait_for(Duration::from_secs(60)));
        wait.end();
        assert!(thread.join().unwrap() && wait.is_over());
    }
}
