//! The records and marks under way, in stream order, and the offset that belongs to them.
//!
//! The ledger is pure: no lock, no clock, no source and no position. An [`Account`], which the source's side of the
//! engine supplies, turns changes and marks into an offset. The ledger decides when they count.
//!
//! The offset can be asked for in two ways. *Behind* the acknowledgements, it covers all records before the first that
//! is still under way: it may be stored. *Ahead* of them, it covers all records pushed so far: it may be committed
//! together with them in one Kafka transaction.

use std::collections::VecDeque;

use crate::delivery::contract::{Account, Mark, Tally};

/// One entry of the ledger, in the order in which the pipeline made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerEntry<C, M, P> {
    /// A record for Kafka.
    Record {
        /// The change that the record comes from.
        change: C,
        /// Whether it is the last record of the change, with which the change counts as delivered.
        last: bool,
        /// Size of key, value and headers in bytes.
        bytes: usize,
    },
    /// Something between records.
    Mark(M),
    /// One count for the tally between records.
    Count(P),
}

/// The entries of an account.
pub type EntryOf<A> = LedgerEntry<<A as Account>::Change, <A as Account>::Mark, PartOf<A>>;
/// What an account's tally counts.
pub type PartOf<A> = <<A as Account>::Tally as Tally>::Part;

/// Bytes that a record counts for beside its own size: memory of the producer and of this queue while it is under way.
pub(crate) const RECORD_OVERHEAD_BYTES: usize = 512;
/// Bytes that an acknowledged record counts for while an earlier record is not acknowledged: its place in this queue
/// and the marks of its transaction. If one partition has no leader, the others continue, and the queue must not grow
/// without limit.
const SETTLED_BYTES: usize = 192;
const _: () = assert!(SETTLED_BYTES <= RECORD_OVERHEAD_BYTES);

/// Records and marks in stream order, and the account of delivered records.
#[derive(Debug)]
pub(crate) struct Ledger<A: Account> {
    /// Records under way, and acknowledged records behind one that is under way.
    records: VecDeque<Pending<A::Change>>,
    /// Sequence of the first record in `records`.
    head: u64,
    /// Whether a change ended with the record before it.
    ended: bool,
    /// A mark counts once all records before its sequence are settled.
    marks: VecDeque<(u64, A::Mark)>,
    /// Like `marks`, but at most one for each sequence.
    tallies: VecDeque<(u64, A::Tally)>,
    in_flight: usize,
    in_flight_bytes: usize,
    account: A,
}

#[derive(Debug)]
struct Pending<C> {
    change: C,
    last: bool,
    settled: bool,
    bytes: usize,
}

impl<A: Account> Ledger<A> {
    pub(crate) fn new(account: A) -> Self {
        Self {
            records: VecDeque::new(),
            head: 0,
            ended: true,
            marks: VecDeque::new(),
            tallies: VecDeque::new(),
            in_flight: 0,
            in_flight_bytes: 0,
            account,
        }
    }

    /// Sequence of the first record that is not settled.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Sequence that the next pushed record gets.
    pub(crate) fn next(&self) -> u64 {
        self.head + self.records.len() as u64
    }

    /// Whether the last record is the last one of its change, or belongs to no change. Then no change was pushed in part only: a record that
    /// belongs to no change never comes between those of one.
    pub(crate) fn ends_with_a_change(&self) -> bool {
        self.records.back().map_or(self.ended, Self::is_whole_with)
    }

    fn is_whole_with(record: &Pending<A::Change>) -> bool {
        record.last || !A::is_of_change(&record.change)
    }

    /// Number of records that are not acknowledged.
    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Bytes that everything in the ledger counts for, including what waits behind records that are not acknowledged.
    pub(crate) const fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Adds an entry behind all others. A record goes to the producer. Its sequence is what [`Ledger::next`] returned
    /// before the call.
    pub(crate) fn push(&mut self, entry: EntryOf<A>) {
        match entry {
            LedgerEntry::Record { change, last, bytes } => self.push_record(change, last, bytes),
            LedgerEntry::Mark(mark) => self.push_mark(mark),
            LedgerEntry::Count(part) => self.push_tally(part),
        }
    }

    fn push_record(&mut self, change: A::Change, last: bool, bytes: usize) {
        let bytes = bytes + RECORD_OVERHEAD_BYTES;
        self.in_flight += 1;
        self.in_flight_bytes += bytes;
        self.records.push_back(Pending {
            change,
            last,
            settled: false,
            bytes,
        });
    }

    /// Adds a mark behind all records so far. Earlier marks at the same place that this one replaces are dropped: while
    /// a record is stuck, a stream that sends no records must not fill the memory.
    fn push_mark(&mut self, mark: A::Mark) {
        self.account.pushed(&mark);
        let next = self.next();
        while let Some((at, last)) = self.marks.back()
            && *at == next
            && mark.replaces(last)
        {
            self.in_flight_bytes -= last.bytes();
            self.marks.pop_back();
        }
        self.in_flight_bytes += mark.bytes();
        self.marks.push_back((next, mark));
    }

    /// Adds a part to the tally behind all records so far.
    fn push_tally(&mut self, part: PartOf<A>) {
        let next = self.next();
        match self.tallies.back_mut() {
            Some((at, last)) if *at == next => {
                self.in_flight_bytes -= last.bytes();
                last.add(part);
            }
            _ => self.tallies.push_back((next, A::Tally::of(part))),
        }
        self.in_flight_bytes += self.tallies.back().map_or(0, |(_, last)| last.bytes());
    }

    /// Notes that a record was acknowledged. Returns `false` if it had been before.
    pub(crate) fn settle(&mut self, sequence: u64) -> bool {
        let index = sequence.checked_sub(self.head).and_then(|i| usize::try_from(i).ok());
        let Some(record) = index
            .and_then(|i| self.records.get_mut(i))
            .filter(|record| !record.settled)
        else {
            return false;
        };
        record.settled = true;
        let freed = record.bytes - SETTLED_BYTES;
        record.bytes = SETTLED_BYTES;
        self.in_flight -= 1;
        self.in_flight_bytes -= freed;
        true
    }

    /// The change of the record with this sequence, if it is not acknowledged.
    pub(crate) fn under_way(&self, sequence: u64) -> Option<&A::Change> {
        let index = usize::try_from(sequence.checked_sub(self.head)?).ok()?;
        let pending = self.records.get(index)?;
        (!pending.settled).then_some(&pending.change)
    }

    /// Removes the record with this sequence and everything behind it: they were not given to the producer.
    pub(crate) fn withdraw(&mut self, sequence: u64) {
        while self.next() > sequence
            && let Some(record) = self.records.pop_back()
        {
            self.in_flight -= 1;
            self.in_flight_bytes -= record.bytes;
        }
        while let Some((at, _)) = self.marks.back()
            && *at > sequence
            && let Some((_, mark)) = self.marks.pop_back()
        {
            self.in_flight_bytes -= mark.bytes();
        }
        while let Some((at, _)) = self.tallies.back()
            && *at > sequence
            && let Some((_, tally)) = self.tallies.pop_back()
        {
            self.in_flight_bytes -= tally.bytes();
        }
    }

    /// Counts everything that has no unsettled record before it. `look` sees each mark before it counts.
    pub(crate) fn advance(&mut self, mut look: impl FnMut(&A::Mark)) {
        loop {
            while self.marks.front().is_some_and(|(at, _)| *at == self.head)
                && let Some((_, mark)) = self.marks.pop_front()
            {
                look(&mark);
                self.in_flight_bytes -= mark.bytes();
                self.account.reach_mark(mark);
            }
            // The result of a tally does not depend on the marks at the same place.
            while self.tallies.front().is_some_and(|(at, _)| *at == self.head)
                && let Some((_, tally)) = self.tallies.pop_front()
            {
                self.in_flight_bytes -= tally.bytes();
                self.account.reach_tally(tally);
            }
            match self.records.front() {
                Some(pending) if pending.settled => {
                    if pending.last {
                        self.account.reach_change(&pending.change);
                    }
                    self.ended = Self::is_whole_with(pending);
                    self.in_flight_bytes -= pending.bytes;
                    self.records.pop_front();
                    self.head += 1;
                }
                _ => return,
            }
        }
    }

    /// The account behind the acknowledgements: everything before the first record that is still under way.
    pub(crate) const fn behind(&self) -> &A {
        &self.account
    }

    pub(crate) const fn behind_mut(&mut self) -> &mut A {
        &mut self.account
    }

    /// The account ahead of the acknowledgements: everything pushed so far, as it will be once all of it is delivered.
    #[cfg(test)]
    pub(crate) fn ahead(&self) -> A {
        let mut account = self.account.clone();
        let mut marks = self.marks.iter().peekable();
        let mut tallies = self.tallies.iter().peekable();
        for sequence in self.head..=self.next() {
            while let Some((_, mark)) = marks.next_if(|(at, _)| *at == sequence) {
                account.reach_mark(mark.clone());
            }
            while let Some((_, tally)) = tallies.next_if(|(at, _)| *at == sequence) {
                account.reach_tally(tally.clone());
            }
            if let Some(pending) = self.records.get((sequence - self.head) as usize)
                && pending.last
            {
                account.reach_change(&pending.change);
            }
        }
        account
    }

    /// The number of marks, and the tallies, that the ledger keeps.
    #[cfg(test)]
    pub(crate) fn retained(&self) -> (usize, impl Iterator<Item = &A::Tally>) {
        (self.marks.len(), self.tallies.iter().map(|(_, tally)| tally))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An account that writes down what it reaches. A source needs nothing else.
    #[derive(Debug, Clone, Default, PartialEq)]
    struct Journal(Vec<String>);

    /// A mark replaces the one before it if both are even.
    #[derive(Debug, Clone)]
    struct Number(u64);

    impl Mark for Number {
        fn replaces(&self, earlier: &Self) -> bool {
            self.0.is_multiple_of(2) && earlier.0.is_multiple_of(2)
        }
        fn bytes(&self) -> usize {
            1
        }
    }

    /// A tally that keeps its last part.
    #[derive(Debug, Clone)]
    struct Last(u64);

    impl Tally for Last {
        type Part = u64;

        fn of(part: u64) -> Self {
            Self(part)
        }
        fn add(&mut self, later: u64) {
            self.0 = later;
        }
        fn bytes(&self) -> usize {
            2
        }
    }

    impl Account for Journal {
        type Change = u64;
        type Mark = Number;
        type Tally = Last;

        fn is_of_change(_: &Self::Change) -> bool {
            true
        }
        fn pushed(&mut self, _: &Number) {}
        fn reach_change(&mut self, change: &u64) {
            self.0.push(format!("change {change}"));
        }
        fn reach_mark(&mut self, mark: Number) {
            self.0.push(format!("mark {}", mark.0));
        }
        fn reach_tally(&mut self, tally: Last) {
            self.0.push(format!("tally {}", tally.0));
        }
    }

    const fn record(change: u64) -> EntryOf<Journal> {
        LedgerEntry::Record {
            change,
            last: true,
            bytes: 10,
        }
    }

    /// A pseudo-random number. The sequence is the same in each run.
    fn chance(seed: &mut u64) -> u64 {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    /// Records may be pushed and acknowledged in any order. The account read ahead of the acknowledgements equals the
    /// account read behind them, once exactly these records are delivered.
    #[test]
    fn what_is_told_ahead_is_what_is_told_behind_once_all_is_delivered() {
        for run in 0..500 {
            let (mut seed, mut ledger) = (run, Ledger::new(Journal::default()));
            // Accounts read ahead, each before the record with this sequence was pushed.
            let mut steps = Vec::new();
            let mut waiting = Vec::new();
            for step in 0..60 {
                match chance(&mut seed) % 6 {
                    0 | 1 => {
                        steps.push((ledger.next(), ledger.ahead()));
                        waiting.push(ledger.next());
                        ledger.push(record(step));
                    }
                    2 => ledger.push(LedgerEntry::Mark(Number(step))),
                    3 => ledger.push(LedgerEntry::Count(step)),
                    _ if waiting.is_empty() => {}
                    _ => {
                        let one = chance(&mut seed) as usize % waiting.len();
                        assert!(ledger.settle(waiting.swap_remove(one)));
                    }
                }
                ledger.advance(|_| ());
                // The head is under way, so everything before it is delivered.
                if ledger.in_flight() > 0
                    && let Some((_, ahead)) = steps.iter().find(|(at, _)| *at == ledger.head())
                {
                    assert_eq!(ledger.behind(), ahead, "run {run}, step {step}");
                }
            }
            let ahead = ledger.ahead();
            waiting
                .into_iter()
                .for_each(|sequence| assert!(ledger.settle(sequence)));
            ledger.advance(|_| ());
            assert_eq!((ledger.behind(), ledger.in_flight_bytes()), (&ahead, 0), "run {run}");
        }
    }

    #[test]
    fn what_is_withdrawn_was_never_there() {
        let mut ledger = Ledger::new(Journal::default());
        ledger.push(record(1));
        ledger.push(LedgerEntry::Mark(Number(3)));
        let (ahead, bytes) = (ledger.ahead(), ledger.in_flight_bytes());
        let withdrawn = ledger.next();
        ledger.push(record(2));
        ledger.push(LedgerEntry::Mark(Number(5)));
        ledger.push(LedgerEntry::Count(7));
        ledger.withdraw(withdrawn);
        assert_eq!((ledger.ahead(), ledger.in_flight_bytes()), (ahead, bytes));
    }
}
