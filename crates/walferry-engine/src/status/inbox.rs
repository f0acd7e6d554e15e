//! Signals that came from elsewhere than the stream, until the connector takes them.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
pub use walferry_snapshot::incremental::Signal;

/// How many signals may wait.
const MOST: usize = 1000;

/// Signals that wait for the connector.
#[derive(Debug, Default)]
pub struct Inbox {
    waiting: Mutex<VecDeque<Signal>>,
    news: Notify,
}

/// Too many signals are already waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many signals are already waiting")]
pub struct Full;

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Signal>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a signal.
    pub fn put(&self, signal: Signal) -> Result<(), Full> {
        let mut waiting = self.lock();
        if waiting.len() >= MOST {
            return Err(Full);
        }
        waiting.push_back(signal);
        self.news.notify_one();
        Ok(())
    }

    /// Waits for a signal, which stays until it is [taken](Self::taken).
    pub(crate) async fn next(&self) -> Signal {
        loop {
            let first = self.lock().front().cloned();
            match first {
                Some(signal) => return signal,
                None => self.news.notified().await,
            }
        }
    }

    /// Removes the first signal: the connector has taken it.
    pub(crate) fn taken(&self) {
        self.lock().pop_front();
    }
}
