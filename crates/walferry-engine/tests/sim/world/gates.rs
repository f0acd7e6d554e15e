//! Where the parts of the connector that wait for an answer are held until the simulation gives one.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
};

use super::State;

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// A statement or the stream.
    Source,
    /// A write of the offset.
    Store,
    /// The reader of chunks beside the stream.
    Chunks,
}

/// Whether it waits, and whether it may go on.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Gate {
    pub(crate) waits: bool,
    pub(crate) is_open: bool,
}

/// All that is outside of the connector.
#[derive(Debug, Clone)]
pub(crate) struct Shared(pub(crate) Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the simulation. The connector is looked at after every step, so nobody has to wake it.
    pub(crate) async fn turn(&self, who: Who) {
        let _leaves = Leaves(self, who);
        poll_fn(|_| {
            let mut state = self.lock();
            let gate = state.gate(who);
            gate.waits = !std::mem::take(&mut gate.is_open);
            if gate.waits { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
    }
}

struct Leaves<'a>(&'a Shared, Who);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        *self.0.lock().gate(self.1) = Gate::default();
    }
}
