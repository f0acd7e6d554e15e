//! One change that is passed over because a person has asked for it (`walferry offsets skip-record`).
//!
//! The wish names a change by its position and is kept beside the offset. It is loaded with each session, so it is
//! carried out again if the process ends before the offset behind the change is stored. The first stored offset that
//! goes past the position no longer has it. With exactly-once delivery, that offset is in the transaction that leaves
//! the change out.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tracing::{info, warn};

use crate::{account::StoredOffset, position::Position};

/// The wish during one session. The pipeline carries it out, and the offset writer lets go of it.
#[derive(Debug)]
pub(crate) struct RecordSkip {
    position: Position,
    /// A record of the change was passed over.
    is_met: AtomicBool,
    /// An offset that goes past the change is being stored, or is stored.
    is_past: AtomicBool,
    /// The wish has been let go of.
    is_settled: AtomicBool,
}

impl RecordSkip {
    pub(crate) const fn new(position: Position) -> Self {
        Self {
            position,
            is_met: AtomicBool::new(false),
            is_past: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
        }
    }

    /// Whether the wish is for the change at this position.
    pub(crate) fn is_for(&self, position: Position) -> bool {
        self.position == position
    }

    /// A record of the change is passed over.
    pub(crate) fn meet(&self) {
        self.is_met.store(true, Relaxed);
    }

    /// Takes the wish out of an offset that goes past the change.
    pub(crate) fn leave(&self, offset: &mut StoredOffset) {
        if offset.is_past(self.position) {
            offset.skip = None;
            self.is_past.store(true, Relaxed);
        }
    }

    /// The offset that [`leave`](Self::leave) saw last is stored. Returns whether the wish is settled with it, the first time.
    pub(crate) fn stored(&self) -> bool {
        if !self.is_past.load(Relaxed) || self.is_settled.swap(true, Relaxed) {
            return false;
        }
        let position = self.position;
        match self.is_met.load(Relaxed) {
            true => {
                info!(%position, "the change that was passed over is behind the stored offset; nothing else is passed over")
            }
            false => warn!(
                %position,
                "nothing was passed over: the stream has no change at this position that gives a record; the request of `walferry \
                 offsets skip-record` is removed"
            ),
        }
        true
    }
}

/// How a person asks for it, as errors print it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkipCommand {
    /// The command without the position.
    pub command: String,
    /// Whether the command also starts the connector again.
    pub starts: bool,
}

impl SkipCommand {
    /// The words that end a hint.
    pub(crate) fn remedy(&self, position: &str) -> String {
        let then = if self.starts {
            ", which also starts the connector again"
        } else {
            ", and then start the connector again"
        };
        format!("to pass over this one change, run `{} {position}`{then}", self.command)
    }
}
