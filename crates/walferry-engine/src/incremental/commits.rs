//! Transactions that the rows of a chunk must include, because their changes have been sent.
//!
//! The stream brings a transaction as soon as its commit record is on the server's disk. Snapshots on the server include
//! it a moment later. If the commit waits for a synchronous standby, that takes as long as the wait. Rows that were read
//! before it are older than its changes.
//!
//! What the stream has brought in this session is remembered. What an earlier session delivered is not: such a
//! transaction had written its commit record before this session began, so all that were in progress then are waited for.
//! This needs nothing in the offset, where each commit since the last look at the server would have to be. Its price: a
//! transaction that takes long, and was in progress when the session began, holds up chunks until it ends. It holds up
//! a new replication slot in the same way.

use std::collections::VecDeque;

use crate::source::VisibleTransactions;

/// How many commits are remembered one by one. Of the others, only their range is: then a chunk also waits for
/// transactions that began in this range and are still in progress.
pub(crate) const MOST: usize = 64 * 1024;
/// After so many commits beside a snapshot, the server is asked which of them are visible.
const MANY: u64 = 8 * 1024;

/// The transactions that may not be visible yet.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// Transactions of the stream that no chunk has shown yet, each with its number in the stream of this session.
    brought: VecDeque<(u64, u32)>,
    /// The oldest and the newest of the transactions of the stream that did not fit into `brought`, and that chunks may
    /// not have shown yet.
    overflow: Option<(u32, u32)>,
    /// The same of those that came after `opened_at`: the present rows need not include them.
    later_overflow: Option<(u32, u32)>,
    /// Number of transactions of the stream so far.
    total: u64,
    /// This number when the server was last asked which transactions are visible.
    asked_at: u64,
    /// This number when the chunk was requested, or when its window opened, whichever came last.
    opened_at: u64,
    /// The transaction of the stream at that time.
    opened_in: Option<u32>,
    /// Transactions that were in progress when the session began, and that no chunk has shown yet. `None` before that.
    earlier: Option<Vec<u32>>,
}

/// A transaction that rows do not include.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// The stream has brought it.
    Brought(u32),
    /// It began among transactions that the stream has brought, too many to remember. It may be one of them.
    Overflow(u32),
    /// It was in progress when the session began. An earlier session may have delivered it.
    Earlier(u32),
}

impl Commits {
    /// A connection has begun while these transactions were in progress.
    pub(crate) fn begin(&mut self, under_way: Vec<u32>) {
        // What earlier connections of this session have brought is remembered.
        self.earlier.get_or_insert(under_way);
    }

    /// A transaction of the stream is complete.
    pub(crate) fn committed(&mut self, xid: u32) {
        if self.brought.len() >= MOST
            && let Some((number, oldest)) = self.brought.pop_front()
        {
            let range = match number < self.opened_at {
                true => &mut self.overflow,
                false => &mut self.later_overflow,
            };
            *range = joined(*range, Some((oldest, oldest)));
        }
        self.brought.push_back((self.total, xid));
        self.total += 1;
    }

    /// Whether to ask the server which of these are visible. Then they are not many for a while. It is asked more often while
    /// a snapshot is running.
    pub(crate) fn are_many(&mut self, is_running: bool) -> bool {
        // At 20,000 commits a second, half leaves 1.6 s for the answer.
        let many = if is_running { MANY } else { MOST as u64 / 2 };
        let are_many = self.brought.len() as u64 >= many && self.total - self.asked_at >= many;
        if are_many {
            self.asked_at = self.total;
        }
        are_many
    }

    /// A window opens here, or will. `open` is the transaction that the stream brings at present.
    pub(crate) fn open(&mut self, open: Option<u32>) {
        (self.opened_at, self.opened_in) = (self.total, open);
        self.overflow = joined(self.overflow, self.later_overflow.take());
    }

    /// A chunk, or another snapshot of the server, shows these transactions. Later ones show them, too.
    pub(crate) fn seen(&mut self, seen: &VisibleTransactions) {
        self.brought.retain(|(_, xid)| !seen.shows(*xid));
        for range in [&mut self.overflow, &mut self.later_overflow] {
            range.take_if(|range| seen.hidden_in(*range).is_none());
        }
        if let Some(earlier) = &mut self.earlier {
            earlier.retain(|xid| !seen.shows(*xid));
        }
    }

    /// A transaction that was delivered before the window opened, or may have been, and that the chunk does not include.
    /// Its changes have replaced no row of the chunk.
    pub(crate) fn unseen(&self, seen: &VisibleTransactions) -> Option<Unseen> {
        let before = self.brought.iter().take_while(|(number, _)| *number < self.opened_at);
        let mut brought = before.map(|(_, xid)| *xid).chain(self.opened_in);
        let mut earlier = self.earlier.iter().flatten().copied();
        let is_unseen = |xid: &u32| !seen.shows(*xid);
        let brought = brought.find(is_unseen).map(Unseen::Brought);
        let overflow = || {
            self.overflow
                .and_then(|range| seen.hidden_in(range))
                .map(Unseen::Overflow)
        };
        brought
            .or_else(overflow)
            .or_else(|| earlier.find(is_unseen).map(Unseen::Earlier))
    }
}

/// The range that contains both.
fn joined(one: Option<(u32, u32)>, other: Option<(u32, u32)>) -> Option<(u32, u32)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((earlier(one.0, other.0), later(one.1, other.1))),
        (one, other) => one.or(other),
    }
}

/// The earlier one of two transactions. Ids start again behind the highest number.
const fn earlier(one: u32, other: u32) -> u32 {
    if (one.wrapping_sub(other) as i32) < 0 {
        one
    } else {
        other
    }
}

/// The later one of two transactions.
const fn later(one: u32, other: u32) -> u32 {
    if earlier(one, other) == one { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(next: u32, under_way: &[u32]) -> VisibleTransactions {
        VisibleTransactions::new(next, under_way.iter().copied())
    }

    #[test]
    fn a_chunk_must_include_what_the_stream_brought_before_its_window() {
        let mut commits = Commits::default();
        commits.begin(Vec::new());
        [700, 701].into_iter().for_each(|xid| commits.committed(xid));
        commits.open(Some(702));
        [702, 703].into_iter().for_each(|xid| commits.committed(xid));
        let cases = [
            (seen(703, &[]), None),
            (seen(704, &[703]), None),
            (seen(703, &[702]), Some(Unseen::Brought(702))),
            (seen(703, &[700]), Some(Unseen::Brought(700))),
            (seen(701, &[]), Some(Unseen::Brought(701))),
        ];
        for (seen, expected) in cases {
            assert_eq!(commits.unseen(&seen), expected, "{seen:?}");
        }
    }

    /// A commit that waits for a standby comes before another one that does not. Then the session ends, and the next one
    /// begins behind both.
    #[test]
    fn what_an_earlier_session_may_have_delivered_must_be_visible() {
        let mut commits = Commits::default();
        commits.begin(vec![700, 690]);
        commits.open(None);
        let first = seen(710, &[690, 700, 705]);
        commits.seen(&first);
        assert_eq!(commits.unseen(&first), Some(Unseen::Earlier(700)));
        let second = seen(720, &[690, 715]);
        commits.seen(&second);
        assert_eq!(commits.unseen(&second), Some(Unseen::Earlier(690)));
        // Another connection of the session remembers what the first one brought.
        commits.begin(vec![715]);
        let third = seen(720, &[715]);
        commits.seen(&third);
        assert_eq!(commits.unseen(&third), None, "it began later, so the stream brings it");
    }

    #[test]
    fn what_a_chunk_has_shown_is_forgotten() {
        let mut commits = Commits::default();
        commits.begin(vec![600]);
        (700..800).for_each(|xid| commits.committed(xid));
        commits.seen(&seen(800, &[710, 790]));
        assert_eq!(commits.earlier, Some(Vec::new()));
        assert_eq!(commits.brought, [(10, 710), (90, 790)]);
        commits.open(None);
        commits.committed(800);
        assert_eq!(commits.unseen(&seen(800, &[790])), Some(Unseen::Brought(790)));
        assert_eq!(commits.unseen(&seen(800, &[])), None);
        (0..2 * MOST as u32).for_each(|xid| commits.committed(xid));
        assert_eq!(commits.brought.len(), MOST);
    }

    /// Many commits fit between two chunks. The first of them may wait for a standby all that time.
    #[test]
    fn a_transaction_is_waited_for_however_many_follow_it() {
        let mut commits = Commits::default();
        commits.begin(Vec::new());
        let first = u32::MAX - 5;
        let last = first.wrapping_add(2 * MOST as u32);
        (0..=2 * MOST as u32).for_each(|n| commits.committed(first.wrapping_add(n)));
        commits.open(None);
        for hidden in [first, 7, first.wrapping_add(MOST as u32)] {
            let waiting = seen(last.wrapping_add(1), &[hidden]);
            assert_eq!(commits.unseen(&waiting), Some(Unseen::Overflow(hidden)));
        }
        let waiting = seen(last.wrapping_add(1), &[7]);
        commits.seen(&waiting);
        assert_eq!(commits.unseen(&waiting), Some(Unseen::Overflow(7)), "it still waits");
        let old = seen(9, &[]);
        assert!(commits.unseen(&old).is_some(), "it is older than most of them");
        let all = seen(last.wrapping_add(2), &[first.wrapping_sub(1), last.wrapping_add(1)]);
        assert_eq!(commits.unseen(&all), None);
        commits.seen(&all);
        assert_eq!((commits.overflow, commits.later_overflow), (None, None));
    }

    #[test]
    fn the_server_is_asked_long_before_commits_overflow() {
        for (is_running, expected) in [(false, MOST as u32 / 2), (true, MANY as u32)] {
            let mut commits = Commits::default();
            commits.begin(Vec::new());
            let asked = (1..=MOST as u32).find(|xid| {
                commits.committed(*xid);
                commits.are_many(is_running)
            });
            assert_eq!(asked, Some(expected));
        }
    }

    /// Reading a chunk may take so long that very many transactions come meanwhile.
    #[test]
    fn what_comes_after_the_window_has_opened_need_not_be_included() {
        let mut commits = Commits::default();
        commits.begin(Vec::new());
        commits.open(None);
        (700..).take(2 * MOST).for_each(|xid| commits.committed(xid));
        let before = seen(700, &[690]);
        assert_eq!(commits.unseen(&before), None);
        commits.open(None);
        assert!(commits.unseen(&before).is_some(), "the next window is behind them");
    }
}
