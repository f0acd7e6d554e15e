//! The records and marks under way, in stream order, and the offset that belongs to them.
//!
//! The ledger is pure: no lock, no clock, no source and no position. An [`Account`], which the source's side of the
//! engine supplies, turns records and marks into an offset. The ledger decides when they count.
//!
//! The offset can be asked for in two ways. *Behind* the acknowledgements, it covers all records before the first that
//! is still under way: it may be stored. *Ahead* of them, it covers all records pushed so far: it may be committed
//! together with them in one Kafka transaction.

use std::{collections::VecDeque, fmt};

/// Sums up delivered records and the marks between them, for example into a connector's offset.
pub(crate) trait Account: Clone + fmt::Debug {
    /// What the ledger keeps for each record.
    type Record: fmt::Debug;
    /// Something between records. It counts once all records before it have been delivered.
    type Mark: Mark;
    /// A mark of which only the last one at each place between records counts.
    type Tally: Tally;

    /// A mark was pushed. It has not been reached yet.
    fn pushed(&mut self, mark: &Self::Mark);
    /// Everything up to and including this record has been delivered.
    fn reach_record(&mut self, record: &Self::Record);
    /// Everything before this mark has been delivered.
    fn reach_mark(&mut self, mark: Self::Mark);
    /// Everything before this tally has been delivered.
    fn reach_tally(&mut self, tally: Self::Tally);
}

/// Something between records.
pub(crate) trait Mark: Clone + fmt::Debug {
    /// Whether this mark makes `earlier` redundant, when no record lies between them.
    fn replaces(&self, earlier: &Self) -> bool;
    /// Bytes of memory that the mark counts for.
    fn bytes(&self) -> usize;
}

/// A counter between records.
pub(crate) trait Tally: Clone + fmt::Debug {
    /// One count to add.
    type Part;
    /// A tally with this part.
    fn of(part: Self::Part) -> Self;
    /// Adds a later part. Nothing between the two parts can be reached without the later one.
    fn add(&mut self, later: Self::Part);
    /// Bytes that the tally counts for, beside those of the record that it comes with.
    fn bytes(&self) -> usize;
}

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
    records: VecDeque<Pending<A::Record>>,
    /// Sequence of the first record in `records`.
    head: u64,
    /// A mark counts once all records before its sequence are settled.
    marks: VecDeque<(u64, A::Mark)>,
    /// Like `marks`, but at most one for each sequence.
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

    /// Sequence of the first record that is not settled.
    pub(crate) const fn head(&self) -> u64 {
        self.head
    }

    /// Sequence that the next pushed record gets.
    pub(crate) fn next(&self) -> u64 {
        self.head + self.records.len() as u64
    }

    /// Number of records that are not acknowledged.
    pub(crate) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Bytes that everything in the ledger counts for, including what waits behind records that are not acknowledged.
    pub(crate) const fn in_flight_bytes(&self) -> usize {
        self.in_flight_bytes
    }

    /// Adds a record that goes to the producer. Its sequence is what [`Ledger::next`] returned before the call.
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

    /// Adds a mark behind all records so far. Earlier marks at the same place that this one replaces are dropped: while
    /// a record is stuck, a stream that sends no records must not fill the memory.
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

    /// Adds a part to the tally behind all records so far.
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

    /// The record with this sequence, if it is not acknowledged.
    pub(crate) fn under_way(&self, sequence: u64) -> Option<&A::Record> {
        let index = usize::try_from(sequence.checked_sub(self.head)?).ok()?;
        let pending = self.records.get(index)?;
        (!pending.settled).then_some(&pending.record)
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
                    self.account.reach_record(&pending.record);
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

    /// The number of marks, and the tallies, that the ledger keeps.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> (usize, impl Iterator<Item = &A::Tally>) {
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
    impl Mark for u64 {
        fn replaces(&self, earlier: &Self) -> bool {
            self.is_multiple_of(2) && earlier.is_multiple_of(2)
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
                // The head is under way, so everything before it is delivered.
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
