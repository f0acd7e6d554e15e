//! A source for the tests of this room: its positions and its offsets are numbers.

use crate::delivery::{
    contract::{Account, Mark, OffsetAccount, Tally, Unstored},
    ledger::{EntryOf, LedgerEntry},
};

/// The account: the position of the last change or mark.
#[derive(Debug, Clone)]
pub(crate) struct Numbers {
    last: u64,
    unstored: Unstored,
}

/// A record of the change at this position.
pub(crate) const fn record(change: u64, bytes: usize) -> EntryOf<Numbers> {
    LedgerEntry::Record {
        change,
        last: true,
        bytes,
    }
}

/// A mark replaces an earlier one.
impl Mark for u64 {
    fn replaces(&self, _: &Self) -> bool {
        true
    }
    fn bytes(&self) -> usize {
        0
    }
}

/// A tally keeps its last part.
impl Tally for u64 {
    type Part = Self;

    fn of(part: Self) -> Self {
        part
    }
    fn add(&mut self, later: Self) {
        *self = later;
    }
    fn bytes(&self) -> usize {
        2
    }
}

impl Account for Numbers {
    type Change = u64;
    type Mark = u64;
    type Tally = u64;

    /// 0 is the position of records that belong to no change.
    fn is_of_change(change: &u64) -> bool {
        *change > 0
    }
    fn pushed(&mut self, _: &u64) {}
    fn reach_change(&mut self, change: &u64) {
        (self.last, self.unstored) = (*change, Unstored::Delivered);
    }
    fn reach_mark(&mut self, mark: u64) {
        (self.last, self.unstored) = (mark, self.unstored.max(Unstored::Passed));
    }
    fn reach_tally(&mut self, _: u64) {}
}

impl OffsetAccount for Numbers {
    type Position = u64;
    type Offset = u64;
    type PendingRow = ();

    fn after(last: u64) -> Self {
        Self {
            last,
            unstored: Unstored::Nothing,
        }
    }
    fn offset(&mut self) -> u64 {
        self.last
    }
    fn unstored(&self) -> Unstored {
        self.unstored
    }
    fn set_unstored(&mut self, unstored: Unstored) {
        self.unstored = unstored;
    }
    fn confirmable(&self) -> u64 {
        self.last
    }
    fn server_position(&self) -> (u64, u64) {
        (self.last, 1)
    }
    fn signals(&self) -> u64 {
        0
    }
    fn take_chunks(&mut self) -> u64 {
        0
    }
    fn commit_us(&self) -> i64 {
        0
    }
    fn place(change: &u64) -> u64 {
        *change
    }
    fn name(_: &u64) -> Option<String> {
        None
    }
    fn stream_start(offset: &u64) -> u64 {
        *offset
    }
    fn is_beginning(_: &u64) -> bool {
        false
    }
}
