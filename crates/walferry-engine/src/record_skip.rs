//! Changes that are passed over because a person has asked for it (`walferry offsets skip-record`).
//!
//! A wish names a change by its position and is kept beside the offset. The wishes are loaded with each session, so one is
//! carried out again if the process ends before the offset behind its change is stored. The first stored offset that
//! goes past the position no longer has it. With exactly-once delivery, that offset is in the transaction that leaves
//! the change out.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tracing::{info, warn};

use crate::{account::StoredOffset, position::Position};

/// The wishes of one session. The pipeline carries them out, and the offset writer lets go of them.
#[derive(Debug, Default)]
pub(crate) struct RecordSkips(Vec<RecordSkip>);

/// One of them.
#[derive(Debug)]
struct RecordSkip {
    position: Position,
    /// A record of the change was passed over.
    is_met: AtomicBool,
    /// An offset that goes past the change is being stored, or is stored.
    is_past: AtomicBool,
    /// The wish has been let go of.
    is_settled: AtomicBool,
}

impl RecordSkips {
    pub(crate) fn new(positions: Vec<Position>) -> Self {
        let skips = positions.into_iter().map(|position| RecordSkip {
            position,
            is_met: AtomicBool::new(false),
            is_past: AtomicBool::new(false),
            is_settled: AtomicBool::new(false),
        });
        Self(skips.collect())
    }

    fn find(&self, position: Position) -> Option<&RecordSkip> {
        self.0.iter().find(|skip| skip.position == position)
    }

    /// Whether one of them is for the change at this position.
    pub(crate) fn contain(&self, position: Position) -> bool {
        self.find(position).is_some()
    }

    /// A record of the change at this position is passed over.
    pub(crate) fn meet(&self, position: Position) {
        if let Some(skip) = self.find(position) {
            skip.is_met.store(true, Relaxed);
        }
    }

    /// Whether one of them is not settled yet.
    pub(crate) fn are_left(&self) -> bool {
        self.0.iter().any(|skip| !skip.is_settled.load(Relaxed))
    }

    /// Takes the wishes out of an offset that goes past their changes.
    pub(crate) fn leave(&self, offset: &mut StoredOffset) {
        for skip in &self.0 {
            if offset.is_past(skip.position) {
                offset.skips.retain(|position| *position != skip.position);
                skip.is_past.store(true, Relaxed);
            }
        }
    }

    /// The offset that [`leave`](Self::leave) saw last is stored. Returns whether a wish is settled with it.
    pub(crate) fn stored(&self) -> bool {
        let mut is_any_settled = false;
        for skip in &self.0 {
            if !skip.is_past.load(Relaxed) || skip.is_settled.swap(true, Relaxed) {
                continue;
            }
            is_any_settled = true;
            let position = skip.position;
            match skip.is_met.load(Relaxed) {
                true => {
                    info!(%position, "the change that was passed over is behind the stored offset; it is not passed over again")
                }
                false => warn!(
                    %position,
                    "nothing was passed over: the stream has no change at this position that gives a record; the request of `walferry \
                     offsets skip-record` is removed"
                ),
            }
        }
        is_any_settled
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
