//! What the log has said already.

use std::collections::HashSet;

/// Says each thing once, however often it is found.
#[derive(Debug, Default)]
pub(crate) struct SaidOnce(HashSet<String>);

impl SaidOnce {
    /// Calls `warn` if nothing was said of `what` before.
    pub(crate) fn once(&mut self, what: String, warn: impl FnOnce()) {
        if self.0.insert(what) {
            warn();
        }
    }

    /// It is no longer so: if it comes to be again, it is said again. Returns whether it was said.
    pub(crate) fn is_over(&mut self, what: &str) -> bool {
        self.0.remove(what)
    }
}
