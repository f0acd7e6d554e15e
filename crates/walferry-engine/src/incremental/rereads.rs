//! How often the present chunk was read without success, and when somebody must hear of it.
//!
//! A chunk is read again whenever its rows must not be sent. One such read is part of normal work, and many are a problem that only a person
//! can end. [`Rereads`] counts them per chunk: from the first [`discarded`](Rereads::discarded) to the [`reset`](Rereads::reset) when a window
//! has been sent, or when no snapshot is left.

use crate::incremental::commits::Unseen;

/// After each such number of unsuccessful reads of a chunk, a message is logged.
pub(super) const REPORT_EVERY: u32 = 20;

/// Why the rows of a window must not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiscardReason {
    /// The stream has not brought the row that opens the window, or it has brought its deletion before the chunk was read.
    NotOpened,
    /// They do not include this transaction.
    Unseen(Unseen),
    /// The stream has changed rows, and nobody knows whether they are among these.
    Unclear,
}

/// What to say about a chunk that is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RereadReport {
    /// Somebody has to look at the signal table.
    OpeningRowIsLost,
    /// Somebody has to end this transaction.
    StaysHidden(Unseen),
    /// For the log: this transaction was not visible yet.
    WasHidden(Unseen),
    /// Somebody has to do something about the table, whose chunk was read so often.
    StaysUnclear(u32),
}

/// The unsuccessful reads of the present chunk.
#[derive(Debug, Default)]
pub(super) struct Rereads {
    total: u32,
    /// How many of these because its window was not opened.
    unopened: u32,
    /// Whether changes of the stream have spoiled it.
    was_unclear: bool,
}

impl Rereads {
    /// The rows of the chunk cannot be sent, for this reason. Returns what to say about it, if anything.
    pub(super) fn discarded(&mut self, why: DiscardReason) -> Option<RereadReport> {
        self.total += 1;
        self.was_unclear |= why == DiscardReason::Unclear;
        let is_due = self.total.is_multiple_of(REPORT_EVERY);
        match why {
            DiscardReason::NotOpened => {
                self.unopened += 1;
                let is_due = self.unopened == 2 || self.unopened.is_multiple_of(REPORT_EVERY);
                is_due.then_some(RereadReport::OpeningRowIsLost)
            }
            DiscardReason::Unseen(unseen) if is_due => Some(RereadReport::StaysHidden(unseen)),
            // A transaction may stay invisible for hours.
            DiscardReason::Unseen(unseen) => {
                let is_due = self.total.is_power_of_two();
                is_due.then_some(RereadReport::WasHidden(unseen))
            }
            DiscardReason::Unclear => is_due.then_some(RereadReport::StaysUnclear(self.total)),
        }
    }

    /// Whether changes of the stream have spoiled the chunk once. Then it leaves at once: each transaction that it waits for could spoil it
    /// again, and what has left is sent again with it.
    pub(super) const fn was_unclear(&self) -> bool {
        self.was_unclear
    }

    /// Another chunk begins.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the reads of which something is said.
    fn reported(why: DiscardReason, reads: u32) -> Vec<u32> {
        let mut rereads = Rereads::default();
        (1..=reads).filter(|_| rereads.discarded(why).is_some()).collect()
    }

    #[test]
    fn a_missing_opening_row_is_reported_soon_and_then_rarely() {
        assert_eq!(reported(DiscardReason::NotOpened, 45), [2, 20, 40]);
    }

    #[test]
    fn a_hidden_transaction_is_logged_ever_more_rarely() {
        let why = DiscardReason::Unseen(Unseen::Brought(700));
        assert_eq!(reported(why, 45), [1, 2, 4, 8, 16, 20, 32, 40]);
        let mut rereads = Rereads::default();
        let first = rereads.discarded(why);
        assert_eq!(first, Some(RereadReport::WasHidden(Unseen::Brought(700))));
        let last = (2..=REPORT_EVERY).map(|_| rereads.discarded(why)).last().flatten();
        assert_eq!(last, Some(RereadReport::StaysHidden(Unseen::Brought(700))));
    }

    #[test]
    fn what_was_unclear_once_stays_so_until_the_chunk_has_left() {
        assert_eq!(reported(DiscardReason::Unclear, 45), [20, 40]);
        let mut rereads = Rereads::default();
        rereads.discarded(DiscardReason::Unclear);
        rereads.discarded(DiscardReason::NotOpened);
        assert!(rereads.was_unclear());
        rereads.reset();
        assert!(!rereads.was_unclear());
    }
}
