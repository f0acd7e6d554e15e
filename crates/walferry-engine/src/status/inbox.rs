//! Signals that came from elsewhere than the stream, until the connector takes them.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, watch};
pub use walferry_snapshot::incremental::Signal;

/// How many signals may wait.
const MOST: usize = 1000;

/// Signals that wait for the connector.
#[derive(Debug, Default)]
pub struct Inbox {
    waiting: Mutex<VecDeque<Signal>>,
    news: Notify,
    /// Whether a session takes signals now.
    is_open: watch::Sender<bool>,
}

/// A session takes signals as long as this lives.
#[derive(Debug)]
pub(crate) struct Taking<'a>(&'a Inbox);

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.is_open.send_replace(false);
    }
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
    ///
    /// # Errors
    /// Too many signals wait.
    pub fn put(&self, signal: Signal) -> Result<(), Full> {
        let mut waiting = self.lock();
        if waiting.len() >= MOST {
            return Err(Full);
        }
        waiting.push_back(signal);
        self.news.notify_one();
        Ok(())
    }

    /// A session whose stream has begun takes signals from here on.
    pub(crate) fn open(&self) -> Taking<'_> {
        self.is_open.send_replace(true);
        Taking(self)
    }

    /// Waits until a session takes signals. What is taken out of a file before that would be lost with the process.
    pub async fn opened(&self) {
        let mut is_open = self.is_open.subscribe();
        // The sender is ours: it does not go away.
        let _ = is_open.wait_for(|is_open| *is_open).await;
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
