//! Whether the rows in a window are as new as what the stream has sent.
//!
//! A chunk's rows are sent behind everything that the stream sent before its window opened. So they must include all of that
//! ([`Commits`]), or an old row would overwrite a newer one. Changes that come within the window replace rows. Where it is not known which
//! row a change replaces, its transaction is *doubted*: the window's rows can be used only if they were read with this transaction, because
//! then they are as new as the change.
//!
//! The order for a chunk: [`chunk_requested`](Freshness::chunk_requested), [`opens`](Freshness::opens) (again when the opening row comes),
//! [`chunk_read`](Freshness::chunk_read), then any number of changes, and at the close of the window [`unseen`](Freshness::unseen) and
//! [`is_unclear`](Freshness::is_unclear). Nothing is asked of rows that have not come: `last_read` is `None` from the request to the answer.
//!
//! A window may have rows of two chunks: after a pause and a resumption, those of the chunk before are still to be sent. `first_read` is what
//! the oldest of them include. It stays until a chunk is requested while the window is empty, and so do doubted transactions.

use crate::{
    incremental::{
        commits::{self, Commits, Unseen},
        window::Window,
    },
    source::VisibleTransactions,
};

/// What the rows of the window include, and what they have to.
#[derive(Debug, Default)]
pub(super) struct Freshness {
    /// Transactions that a chunk must include.
    commits: Commits,
    /// Which transactions the rows of the present chunk include, once they have come.
    last_read: Option<VisibleTransactions>,
    /// Which transactions the oldest rows of the window include. These may be the rows of an earlier chunk.
    first_read: Option<VisibleTransactions>,
    /// Transactions that have changed rows which may or may not be in the window.
    doubted: Vec<u32>,
}

impl Freshness {
    /// A connection has begun while these transactions were in progress on the server.
    pub(super) fn connected(&mut self, under_way: Vec<u32>) {
        self.commits.begin(under_way);
    }

    /// A chunk is requested. If the window is empty, nothing of an earlier chunk counts any more.
    pub(super) fn chunk_requested(&mut self, is_window_empty: bool) {
        if is_window_empty {
            self.first_read = None;
            self.doubted.clear();
        }
        self.last_read = None;
    }

    /// From here on, changes of the stream replace rows of the window. `open` is the transaction that the stream brings at present.
    pub(super) fn opens(&mut self, open: Option<u32>) {
        self.commits.open(open);
    }

    /// The rows of the chunk have come, and include these transactions.
    pub(super) fn chunk_read(&mut self, seen: VisibleTransactions) -> &VisibleTransactions {
        self.commits.seen(&seen);
        self.first_read.get_or_insert_with(|| seen.clone());
        self.last_read.insert(seen)
    }

    /// Snapshots of the server include these transactions by now. `is_chunk_here`: rows are here that were read earlier.
    pub(super) fn visible(&mut self, seen: &VisibleTransactions, is_chunk_here: bool) {
        // What these rows lack counts until their window is judged.
        if !(is_chunk_here && self.last_read.is_some()) {
            self.commits.seen(seen);
        }
    }

    /// A transaction of the stream is complete.
    pub(super) fn committed(&mut self, xid: u32) {
        self.commits.committed(xid);
    }

    /// Whether to ask the server which transactions are visible.
    pub(super) fn are_many(&mut self, is_running: bool) -> bool {
        self.commits.are_many(is_running)
    }

    /// A transaction that the chunk must include and does not.
    pub(super) fn unseen(&self) -> Option<Unseen> {
        self.commits.unseen(self.last_read.as_ref()?)
    }

    /// Whether all rows that are in the window were read with this transaction.
    pub(super) fn is_included(&self, xid: u32) -> bool {
        let mut read_with = self.first_read.iter().chain(&self.last_read);
        read_with.all(|seen| seen.shows(xid))
    }

    /// The window's rows can be used only if they include this transaction. Without one, or with too many, they cannot be used at all.
    pub(super) fn doubt(&mut self, xid: Option<u32>, window: &mut Window) {
        match xid {
            Some(xid) if self.doubted.last() == Some(&xid) => {}
            Some(xid) if self.doubted.len() < commits::MOST => self.doubted.push(xid),
            _ => window.spoil(),
        }
    }

    /// Whether the stream has changed rows that may or may not be in the window.
    pub(super) fn is_unclear(&self, window: &Window) -> bool {
        let is_doubtful = |seen: &VisibleTransactions| self.doubted.iter().any(|xid| !seen.shows(*xid));
        // A row that was read with such a transaction may have been set back since, by an earlier change without TOAST values.
        let is_set_back = window.has_changed_rows() && !self.doubted.is_empty();
        window.is_spoiled() || is_set_back || self.first_read.as_ref().is_some_and(is_doubtful)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(next: u32) -> VisibleTransactions {
        VisibleTransactions::new(next, [])
    }

    #[test]
    fn rows_may_leave_if_they_were_read_with_each_doubted_transaction() {
        for (next, is_unclear) in [(702, false), (701, true)] {
            let (mut freshness, mut window) = (Freshness::default(), Window::default());
            freshness.chunk_requested(true);
            freshness.opens(None);
            freshness.doubt(Some(700), &mut window);
            freshness.doubt(Some(701), &mut window);
            assert!(!freshness.is_unclear(&window), "the rows have not come");
            freshness.chunk_read(seen(next));
            assert_eq!(freshness.is_unclear(&window), is_unclear, "{next}");
        }
    }

    /// The rows of a chunk that did not leave stay, and the next chunk's join them.
    #[test]
    fn the_oldest_rows_of_a_window_decide() {
        let (mut freshness, mut window) = (Freshness::default(), Window::default());
        freshness.chunk_requested(true);
        freshness.chunk_read(seen(700));
        freshness.chunk_requested(false);
        freshness.chunk_read(seen(800));
        assert!(!freshness.is_included(750));
        freshness.doubt(Some(750), &mut window);
        assert!(freshness.is_unclear(&window));
        freshness.chunk_requested(true);
        freshness.chunk_read(seen(800));
        assert!(freshness.is_included(750));
        assert!(!freshness.is_unclear(&window));
    }

    #[test]
    fn a_change_without_a_transaction_and_too_many_transactions_spoil_the_window() {
        let (mut freshness, mut window) = (Freshness::default(), Window::default());
        freshness.doubt(None, &mut window);
        assert!(window.is_spoiled());
        let mut window = Window::default();
        (0..commits::MOST as u32).for_each(|xid| freshness.doubt(Some(xid), &mut window));
        assert!(!window.is_spoiled());
        freshness.doubt(Some(commits::MOST as u32), &mut window);
        assert!(window.is_spoiled());
    }

    #[test]
    fn what_becomes_visible_says_nothing_of_rows_that_are_here() {
        for (is_chunk_here, expected) in [(true, Some(Unseen::Brought(700))), (false, None)] {
            let mut freshness = Freshness::default();
            freshness.committed(700);
            freshness.chunk_requested(true);
            freshness.opens(None);
            freshness.chunk_read(seen(700));
            freshness.visible(&seen(701), is_chunk_here);
            assert_eq!(freshness.unseen(), expected);
        }
    }
}
