//! Signals that came from elsewhere than the stream, until the stored offset contains what they have brought about.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

pub use crate::incremental::machine::{Action, Execute, Signal};
use tokio::sync::{Notify, watch};

/// How many signals may wait.
const MOST: usize = 1000;

/// Signals that wait for the connector, or for the offset to be stored.
///
/// Each has a ticket, a number that rises by one. If a session ends before the offset with a signal is stored, the next session takes the
/// signal again: it continues from an offset that does not contain it.
#[derive(Debug, Default)]
pub struct Inbox {
    waiting: Mutex<PendingSignals>,
    news: Notify,
    /// Whether a session takes signals now.
    is_open: watch::Sender<bool>,
    /// The last ticket whose signal needs nothing more.
    stored: watch::Sender<u64>,
}

/// Where a signal was read: the name of a topic or a file, and a place in it.
pub type SignalOrigin = (String, i64);

#[derive(Debug, Default)]
struct PendingSignals {
    /// By ticket, in order.
    signals: VecDeque<PendingSignal>,
    /// The last ticket that was issued.
    issued: u64,
    /// The last ticket whose signal the present session has taken.
    taken: u64,
}

#[derive(Debug)]
struct PendingSignal {
    ticket: u64,
    signal: Signal,
    origin: Option<SignalOrigin>,
}

/// A session takes signals as long as this lives.
#[derive(Debug)]
pub(crate) struct SignalGuard<'a>(&'a Inbox);

impl Drop for SignalGuard<'_> {
    fn drop(&mut self) {
        self.0.is_open.send_replace(false);
    }
}

/// Too many signals are already waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many signals are already waiting")]
pub struct InboxFull;

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, PendingSignals> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a signal, and returns its ticket.
    ///
    /// # Errors
    /// Too many signals wait.
    pub fn put(&self, signal: Signal) -> Result<u64, InboxFull> {
        self.put_from(None, signal)
    }

    /// Adds a signal that was read somewhere, and returns its ticket. If the connector was restarted, what it reads may still be waiting: then
    /// nothing is added.
    ///
    /// # Errors
    /// Too many signals wait.
    pub fn put_once(&self, origin: SignalOrigin, signal: Signal) -> Result<u64, InboxFull> {
        self.put_from(Some(origin), signal)
    }

    fn put_from(&self, origin: Option<SignalOrigin>, signal: Signal) -> Result<u64, InboxFull> {
        let mut waiting = self.lock();
        let is_same = |entry: &&PendingSignal| origin.is_some() && entry.origin == origin && entry.signal == signal;
        if let Some(same) = waiting.signals.iter().find(is_same) {
            return Ok(same.ticket);
        }
        if waiting.signals.len() >= MOST {
            return Err(InboxFull);
        }
        waiting.issued += 1;
        let ticket = waiting.issued;
        waiting.signals.push_back(PendingSignal { ticket, signal, origin });
        self.news.notify_one();
        Ok(ticket)
    }

    /// A session whose stream has begun takes signals from here on. It begins with those that are not in the offset it continues from.
    pub(crate) fn open(&self) -> SignalGuard<'_> {
        self.lock().taken = *self.stored.borrow();
        self.is_open.send_replace(true);
        SignalGuard(self)
    }

    /// Waits until a session takes signals. What is taken out of a file before that would be lost with the process.
    pub async fn opened(&self) {
        let mut is_open = self.is_open.subscribe();
        // The sender is ours: it does not go away.
        let _ = is_open.wait_for(|is_open| *is_open).await;
    }

    /// Waits for a signal that the session has not [taken](Self::taken).
    pub(crate) async fn next(&self) -> (u64, Signal) {
        loop {
            let first = {
                let waiting = self.lock();
                let mut signals = waiting.signals.iter();
                let first = signals.find(|entry| entry.ticket > waiting.taken);
                first.map(|entry| (entry.ticket, entry.signal.clone()))
            };
            match first {
                Some(signal) => return signal,
                None => self.news.notified().await,
            }
        }
    }

    /// The session has taken the signal with this ticket, and all before it.
    pub(crate) fn taken(&self, ticket: u64) {
        self.lock().taken = ticket;
    }

    /// The stored offset contains what the signals up to this ticket have brought about. Nothing can lose them any more.
    pub fn store(&self, ticket: u64) {
        let mut waiting = self.lock();
        while waiting.signals.front().is_some_and(|first| first.ticket <= ticket) {
            waiting.signals.pop_front();
        }
        self.stored
            .send_if_modified(|stored| ticket > std::mem::replace(stored, ticket.max(*stored)));
    }

    /// Whether nothing can lose the signal with this ticket any more.
    pub fn is_stored(&self, ticket: u64) -> bool {
        *self.stored.borrow() >= ticket
    }

    /// Waits until nothing can lose the signal with this ticket any more.
    pub async fn until_stored(&self, ticket: u64) {
        let _ = self.stored.subscribe().wait_for(|stored| *stored >= ticket).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signal(id: &str) -> Signal {
        Signal {
            id: id.to_owned(),
            kind: "log".to_owned(),
            data: String::new(),
        }
    }

    #[tokio::test]
    async fn a_session_takes_again_what_the_one_before_has_not_stored() {
        let inbox = Inbox::default();
        for id in ["a", "b", "c"] {
            inbox.put(signal(id)).unwrap();
        }
        let session = inbox.open();
        for id in ["a", "b"] {
            let (ticket, signal) = inbox.next().await;
            assert_eq!(signal.id, id);
            inbox.taken(ticket);
        }
        inbox.store(1);
        assert!(inbox.is_stored(1) && !inbox.is_stored(2));
        drop(session);

        let _session = inbox.open();
        let (ticket, signal) = inbox.next().await;
        assert_eq!((ticket, &*signal.id), (2, "b"));
        inbox.taken(3);
        // What was stored stays so, whatever an older session says.
        inbox.store(3);
        inbox.store(1);
        inbox.until_stored(3).await;
        assert!(inbox.lock().signals.is_empty());
    }

    #[test]
    fn what_is_read_twice_waits_once() {
        let inbox = Inbox::default();
        let origin = |place| ("topic".to_owned(), place);
        assert_eq!(inbox.put_once(origin(7), signal("a")), Ok(1));
        assert_eq!(inbox.put_once(origin(8), signal("a")), Ok(2));
        assert_eq!(inbox.put_once(origin(7), signal("a")), Ok(1));
        assert_eq!((inbox.put(signal("a")), inbox.put(signal("a"))), (Ok(3), Ok(4)));
    }

    #[test]
    fn signals_that_are_not_stored_count_as_waiting() {
        let inbox = Inbox::default();
        for _ in 0..MOST {
            inbox.put(signal("x")).unwrap();
        }
        inbox.taken(MOST as u64);
        assert_eq!(inbox.put(signal("y")), Err(InboxFull));
        inbox.store(1);
        assert_eq!(inbox.put(signal("y")), Ok(MOST as u64 + 1));
    }
}
