//! What is under way, in stream order, and which offset belongs to which records.
//!
//! It is pure: no lock, no clock, no source and no position. What records and marks come to is the affair of an [`Account`], which the
//! source's side of the engine brings along. The ledger says when they count.
//!
//! There are two ways to ask for the offset. *Behind* the acknowledgements it belongs to all records up to the first that is still
//! under way: that one may be stored. *Ahead* of them it belongs to all records that were pushed so far: that one may be committed
//! together with them, in one transaction.

use std::{collections::VecDeque, fmt};

/// What delivered records and the marks between them come to, such as the offset of a connector.
pub(crate) trait Account: Clone + fmt::Debug {
    /// What is kept of a record.
    type Record: fmt::Debug;
    /// What stands between records, and counts once all before it has been delivered.
    type Mark: Mark;
    /// A mark of which only the last counts, for each place between records.
    type Tally: Tally;

    /// A mark was pushed; it is not reached yet.
    fn pushed(&mut self, mark: &Self::Mark);
    /// All up to this record has been delivered.
    fn reach_record(&mut self, record: &Self::Record);
    /// All before this mark has been delivered.
    fn reach_mark(&mut self, mark: Self::Mark);
    /// The same for tallies.
    fn reach_tally(&mut self, tally: Self::Tally);
}

/// Something between records.
pub(crate) trait Mark: Clone + fmt::Debug {
    /// Whether this says all that `earlier` said, when no record lies between them.
    fn replaces(&self, earlier: &Self) -> bool;
    /// Bytes that it counts for.
    fn bytes(&self) -> usize;
}

/// Something that is counted up between records.
pub(crate) trait Tally: Clone + fmt::Debug {
    /// What is counted.
    type Part;
    /// One with this part.
    fn of(part: Self::Part) -> Self;
    /// The same with another part, with nothing in between that could count without it.
    fn add(&mut self, later: Self::Part);
    /// Bytes that it counts for beside the record that it comes with.
    fn bytes(&self) -> usize;
}

/// Bytes that a record counts for beside its own: what the producer and this queue keep of it while it is under way.
pub const RECORD_OVERHEAD_BYTES: usize = 512;
/// Bytes that an acknowledged record counts for as long as one before it is not: its place in this queue, and the marks of
/// its transaction. While one partition has no leader the others go on, and the queue must not grow without end.
const SETTLED_BYTES: usize = 192;
const _: () = assert!(SETTLED_BYTES <= RECORD_OVERHEAD_BYTES);

/// Records and marks in stream order, and the account of what is delivered.
#[derive(Debug)]
pub(crate) struct Ledger<A: Account> {
    /// Records under way and those that wait for one before them.
    records: VecDeque<Pending<A::Record>>,
    /// Sequence of the first of them.
    head: u64,
    /// Each counts once all records before its sequence have settled.
    marks: VecDeque<(u64, A::Mark)>,
    /// The same, at most one for each sequence.
    tallies: VecDeque<(u64, A::Tally)>,
    in_flight: usize,
    in_flight_bytes: usize,
    account: A,
}

#[derive(Debug)]
struct Pending<R> {
    record: R,
    settled: bool,
    bytes: usize,
}

impl<A: Account> Ledger<A> {
    pub(crate) fn new(account: A) -> Self {
        Self {
            records: VecDeque::new(),
            head: 0,
            marks: VecDeque::new(),
            tallies: VecDeque::new(),
            in_flight: 0,
            in_flight_bytes: 0,
            account,
        }
    }

    /// Sequence of the first record that has not settled.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Sequence of the next record that is pushed.
    pub(crate) fn next(&self) -> u64 {
        self.head + self.records.len() as u64
    }

    /// Records that are not acknowledged.
    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Bytes that they, and all that waits behind them, count for.
    pub(crate) const fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// A record goes to the producer. Its sequence was [`Ledger::next`].
    pub(crate) fn push_record(&mut self, record: A::Record, bytes: usize) {
        let bytes = bytes + RECORD_OVERHEAD_BYTES;
        self.in_flight += 1;
        self.in_flight_bytes += bytes;
        self.records.push_back(Pending {
            record,
            settled: false,
            bytes,
        });
    }

    /// A mark behind all records so far. A stream that sends nothing must not fill the memory while a record before it is stuck: what
    /// a later mark says as well is dropped.
    pub(crate) fn push_mark(&mut self, mark: A::Mark) {
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

    /// A part of the tally behind all records so far.
    pub(crate) fn push_tally(&mut self, part: <A::Tally as Tally>::Part) {
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

    /// A record was acknowledged. Returns whether that is news.
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

    /// A record that is not acknowledged.
    pub(crate) fn under_way(&self, sequence: u64) -> Option<&A::Record> {
        let index = usize::try_from(sequence.checked_sub(self.head)?).ok()?;
        let pending = self.records.get(index)?;
        (!pending.settled).then_some(&pending.record)
    }

    /// The record with this sequence and all behind it were not given to the producer.
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

    /// Lets everything count that has nothing unsettled before it. `look` sees each mark before it counts.
    pub(crate) fn advance(&mut self, mut look: impl FnMut(&A::Mark)) {
        loop {
            while self.marks.front().is_some_and(|(at, _)| *at == self.head)
                && let Some((_, mark)) = self.marks.pop_front()
            {
                look(&mark);
                self.in_flight_bytes -= mark.bytes();
                self.account.reach_mark(mark);
            }
            // What tallies come to depends on nothing else that is reached at this place.
            while self.tallies.front().is_some_and(|(at, _)| *at == self.head)
                && let Some((_, tally)) = self.tallies.pop_front()
            {
                self.in_flight_bytes -= tally.bytes();
                self.account.reach_tally(tally);
            }
            match self.records.front() {
                Some(pending) if pending.settled => {
                    self.account.reach_record(&pending.record);
                    self.in_flight_bytes -= pending.bytes;
                    self.records.pop_front();
                    self.head += 1;
                }
                _ => return,
            }
        }
    }

    /// The account behind the acknowledgements: of all up to the first record that is still under way.
    pub(crate) const fn behind(&self) -> &A {
        &self.account
    }

    pub(crate) const fn behind_mut(&mut self) -> &mut A {
        &mut self.account
    }

    /// The account ahead of the acknowledgements: of all that was pushed so far, as it will be once all of it has been delivered.
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
            if let Some(pending) = self.records.get((sequence - self.head) as usize) {
                account.reach_record(&pending.record);
            }
        }
        account
    }

    /// Marks and tallies that are kept.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, impl Iterator<Item = &A::Tally>) {
        (self.marks.len(), self.tallies.iter().map(|(_, tally)| tally))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An account that writes down what it reaches. A source has nothing else to bring.
    #[derive(Debug, Clone, Default, PartialEq)]
    struct Journal(Vec<String>);

    /// A mark replaces the one before it when both are even.
    impl Mark for u64 {
        fn replaces(&self, earlier: &Self) -> bool {
            self.is_multiple_of(2) && earlier.is_multiple_of(2)
        }
        fn bytes(&self) -> usize {
            1
        }
    }

    /// The last one counts.
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
        type Record = u64;
        type Mark = u64;
        type Tally = Last;

        fn pushed(&mut self, _: &u64) {}
        fn reach_record(&mut self, record: &u64) {
            self.0.push(format!("record {record}"));
        }
        fn reach_mark(&mut self, mark: u64) {
            self.0.push(format!("mark {mark}"));
        }
        fn reach_tally(&mut self, tally: Last) {
            self.0.push(format!("tally {}", tally.0));
        }
    }

    /// Numbers that look like chance, and are the same each time.
    fn chance(seed: &mut u64) -> u64 {
        *seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *seed >> 33
    }

    /// Whatever is pushed and acknowledged in whatever order: what was told ahead of the acknowledgements of some records is what is
    /// told behind them, once these, and no others, have been delivered.
    #[test]
    fn what_is_told_ahead_is_what_is_told_behind_once_all_is_delivered() {
        for run in 0..500 {
            let (mut seed, mut ledger) = (run, Ledger::new(Journal::default()));
            // What was told ahead, before the record with this sequence was pushed.
            let mut told = Vec::new();
            let mut waiting = Vec::new();
            for step in 0..60 {
                match chance(&mut seed) % 6 {
                    0 | 1 => {
                        told.push((ledger.next(), ledger.ahead()));
                        waiting.push(ledger.next());
                        ledger.push_record(step, 10);
                    }
                    2 => ledger.push_mark(step),
                    3 => ledger.push_tally(step),
                    _ if waiting.is_empty() => {}
                    _ => {
                        let one = chance(&mut seed) as usize % waiting.len();
                        assert!(ledger.settle(waiting.swap_remove(one)));
                    }
                }
                ledger.advance(|_| ());
                // The head is under way: all before it is delivered.
                if ledger.in_flight() > 0
                    && let Some((_, ahead)) = told.iter().find(|(at, _)| *at == ledger.head())
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
        ledger.push_record(1, 10);
        ledger.push_mark(3);
        let (ahead, bytes) = (ledger.ahead(), ledger.in_flight_bytes());
        let withdrawn = ledger.next();
        ledger.push_record(2, 10);
        ledger.push_mark(5);
        ledger.push_tally(7);
        ledger.withdraw(withdrawn);
        assert_eq!((ledger.ahead(), ledger.in_flight_bytes()), (ahead, bytes));
    }
}
