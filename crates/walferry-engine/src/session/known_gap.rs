//! The gap of a connector, from one session to the next.

use std::sync::{Mutex, PoisonError};

use tracing::{info, warn};
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_pgoutput::Lsn;

use crate::{gap::Gap, status};

/// The known gap, kept from one session to the next.
#[derive(Debug, Default)]
pub(crate) struct Gaps(Mutex<Option<Gap>>);

impl Gaps {
    /// The gap that was reported and still exists.
    pub(crate) fn known(&self) -> Option<Gap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets a gap that turned out to be none: the stream has passed the place where it was seen. Returns whether
    /// there was one.
    pub(crate) fn forget(&self, stored: Lsn, status: &status::Status) -> bool {
        let is_none = self.known().is_some_and(|gap| stored > gap.seen && !gap.cannot_close);
        if is_none {
            info!("the publication is as before, and no change was missing; continuing");
            self.tell(None, status);
        }
        is_none
    }

    /// Reports a gap, or that there is none.
    pub(crate) fn tell(&self, gap: Option<Gap>, status: &status::Status) {
        status.set_gap(gap.clone());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = gap;
    }
}

/// Logs a difference of the publication that cannot be decided.
pub(crate) fn tell_doubt(doubt: &Diagnosis) {
    warn!(code = doubt.kind.map(Kind::code), hint = doubt.hint, "{}", doubt.text);
}
