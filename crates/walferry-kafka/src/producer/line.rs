//! The client that a producer's records go to at present.
//!
//! When Kafka refuses a record, librdkafka's client is of no more use: it must not send what follows before the records around the refused one
//! have been dealt with. So the thread that hears the reports closes the line, sends what is left with other clients, and opens the line again with a
//! new one (`mend.rs`). The pipeline's thread waits meanwhile.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::native::Client;

/// Which client has the line. Both threads of a producer use it.
pub(crate) struct Line {
    state: Mutex<State>,
    opened: Condvar,
}

/// Records are given to a client only under the lock of this. So none goes to a client that is being replaced.
pub(crate) struct State {
    client: Arc<Client>,
    /// How many clients there were before this one.
    number: u64,
    is_closed: bool,
}

impl State {
    /// Whether the pipeline may give records to the client with this number.
    pub(crate) const fn is_open_for(&self, number: u64) -> bool {
        !self.is_closed && self.number == number
    }

    /// The client that has the line.
    pub(crate) const fn client(&self) -> &Arc<Client> {
        &self.client
    }
}

impl Line {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self {
            state: Mutex::new(State {
                client,
                number: 0,
                is_closed: false,
            }),
            opened: Condvar::new(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on, the pipeline gives no more records.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
    }

    /// Records that are sent again go to this client.
    pub(crate) fn replace(&self, client: &Arc<Client>) {
        let mut state = self.lock();
        state.client = Arc::clone(client);
        state.number += 1;
    }

    /// The pipeline goes on.
    pub(crate) fn open(&self) {
        self.lock().is_closed = false;
        self.opened.notify_all();
    }

    /// The client after the one with this number, with its own number, once the line is open. Waits for it for a while. `None` if there is none
    /// by then, or if the line was closed and is open again for the same client.
    pub(crate) fn next(&self, number: u64, wait: Duration) -> Option<(Arc<Client>, u64)> {
        let state = self.lock();
        let was_closed = state.is_closed;
        let is_old = |state: &mut State| state.is_closed || !was_closed && state.number == number;
        let waited = self.opened.wait_timeout_while(state, wait, is_old);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.is_closed && state.number != number).then(|| (Arc::clone(&state.client), state.number))
    }

    /// Whether the client with this number has the line, and has nothing left to deliver.
    pub(crate) fn is_idle(&self, number: u64) -> bool {
        let state = self.lock();
        state.is_open_for(number) && state.client.outstanding() == 0
    }
}
