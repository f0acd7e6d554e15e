//! The simulated broker and its producers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tokio::time::Instant;
use walferry_engine::{
    Failure,
    sink::{Acks, Outgoing, Sink, Sinks},
};

use super::{
    Shared,
    record::{Entry, Record, What},
    turns::Turns,
};
use crate::random::Random;

/// Each key belongs to one lane, as to one partition. Lanes are written and acknowledged apart.
pub(crate) const LANES: usize = 4;

/// What survives a producer.
#[derive(Debug, Default)]
pub(crate) struct Kafka {
    /// Everything that was written, in that order.
    pub(crate) log: Vec<Entry>,
    /// How much of the log is committed, with exactly-once delivery. The rest is in a transaction.
    committed: usize,
    /// Records that are in the log, but those that came late.
    pub(crate) written: BTreeSet<Record>,
    pub(crate) is_down: bool,
    /// When each change was acknowledged first.
    pub(crate) acknowledged: BTreeMap<Record, Instant>,
    /// The producer that is open.
    pub(crate) producer: Option<Open>,
    /// Requests of producers that are dead, which the broker still has queued.
    late: [VecDeque<Entry>; LANES],
    opened: usize,
}

/// A producer as the broker knows it.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) number: usize,
    pub(crate) turns: Turns,
    acks: Acks,
    queued: [VecDeque<(u64, Entry)>; LANES],
    /// Written and not yet acknowledged.
    unacknowledged: [VecDeque<(u64, Record)>; LANES],
}

impl Open {
    fn queued(&self) -> usize {
        self.queued.iter().map(VecDeque::len).sum()
    }

    /// Whether anything is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.queued() > 0 || self.unacknowledged.iter().any(|lane| !lane.is_empty())
    }

    /// Takes the next acknowledgement of a lane.
    pub(crate) fn acknowledge(&mut self, lane: usize) -> Option<(Acks, u64, Record)> {
        let (sequence, record) = self.unacknowledged[lane].pop_front()?;
        Some((self.acks.clone(), sequence, record))
    }

    pub(crate) fn acks(&self) -> Acks {
        self.acks.clone()
    }
}

impl Kafka {
    /// Appends the next record of a lane to the log. Its producer does not know yet.
    pub(crate) fn write(&mut self, lane: usize) -> bool {
        if self.is_down {
            return false;
        }
        let Some((sequence, entry)) = self.producer.as_mut().and_then(|open| open.queued[lane].pop_front()) else {
            return false;
        };
        let record = entry.record;
        self.append(entry);
        if let Some(open) = &mut self.producer {
            open.unacknowledged[lane].push_back((sequence, record));
        }
        true
    }

    /// The same with a record of a producer that is dead.
    pub(crate) fn write_late(&mut self, lane: usize) {
        if let Some(entry) = self.late[lane].pop_front() {
            self.append(Entry { is_late: true, ..entry });
        }
    }

    /// These records tell of what the server no longer has.
    pub(crate) fn forget(&mut self, gone: &BTreeSet<Record>) {
        let queued = self.producer.iter_mut().flat_map(|open| &mut open.queued).flatten();
        let all = self.log.iter_mut().chain(queued.map(|(_, entry)| entry));
        all.filter(|entry| gone.contains(&entry.record))
            .for_each(|entry| entry.is_gone = true);
        self.late = Default::default();
        self.written.retain(|record| !gone.contains(record));
    }

    fn append(&mut self, entry: Entry) {
        if !entry.is_late && !entry.is_gone {
            self.written.insert(entry.record);
        }
        self.log.push(entry);
    }

    /// The transaction is committed.
    pub(crate) fn commit(&mut self) -> Result<(), String> {
        self.committed = self.log.len();
        match &self.producer {
            Some(open) if open.is_busy() => Err("an offset is committed before all records of its transaction".into()),
            _ => Ok(()),
        }
    }

    /// The transaction is aborted: consumers never see its records.
    fn abort(&mut self) {
        for entry in self.log.drain(self.committed..) {
            self.written.remove(&entry.record);
            self.acknowledged.remove(&entry.record);
        }
    }

    /// The changes that consumers see more than once.
    pub(crate) fn repeated(&self) -> Vec<Record> {
        let mut seen = BTreeSet::new();
        let changes = self.log.iter().map(|entry| entry.record);
        let changes = changes.filter(|record| matches!(record.what, What::Change(..)));
        changes.filter(|record| !seen.insert(*record)).collect()
    }

    /// The process of a producer is killed. Of what it had queued some is written, some may be written later, in order.
    pub(crate) fn lose_producer(&mut self, random: &mut Random, exactly_once: bool) {
        for lane in 0..LANES {
            while random.once_in(2) && self.write(lane) {}
        }
        let Some(open) = self.producer.take() else { return };
        if exactly_once {
            // The next producer fences this one, too.
            self.abort();
            return;
        }
        for (lane, queued) in open.queued.into_iter().enumerate() {
            let most = random.below(4) as usize;
            self.late[lane] = queued.into_iter().map(|(_, entry)| entry).take(most).collect();
        }
    }
}

/// Opens the producers of one process.
pub(crate) struct Producers(pub(crate) Shared);

/// One of them.
pub(crate) struct Producer {
    shared: Shared,
    acks: Acks,
    turns: Turns,
    number: usize,
}

impl Sinks for Producers {
    type Sink = Producer;

    fn open(&mut self, acks: Acks) -> Result<Producer, Failure> {
        let mut state = self.0.lock();
        if state.kafka.producer.is_some() {
            state.faults.push("two producers at once".into());
        }
        state.kafka.opened += 1;
        let (number, turns) = (state.kafka.opened, Turns::default());
        state.begin_session();
        state.kafka.producer = Some(Open {
            number,
            turns: turns.clone(),
            acks: acks.clone(),
            queued: Default::default(),
            unacknowledged: Default::default(),
        });
        drop(state);
        Ok(Producer {
            shared: self.0.clone(),
            acks,
            turns,
            number,
        })
    }
}

impl Producer {
    fn with_open<T>(&self, work: impl FnOnce(&mut Open) -> T) -> Option<T> {
        let mut state = self.shared.lock();
        let open = state.kafka.producer.as_mut();
        open.filter(|open| open.number == self.number).map(work)
    }
}

impl Sink for Producer {
    fn send(&mut self, record: &Outgoing<'_>, sequence: u64) -> Result<(), Failure> {
        let most = self.shared.lock().plan.queue;
        let is_full = || self.with_open(|open| open.queued() >= most).unwrap_or(false);
        if is_full() {
            self.turns.wait(&mut || !is_full() || self.acks.is_stopping());
        }
        let mut entry = Entry::of(record);
        let lane = record
            .key
            .unwrap_or_default()
            .iter()
            .map(|&b| usize::from(b))
            .sum::<usize>()
            % LANES;
        let mut state = self.shared.lock();
        if state
            .kafka
            .producer
            .as_ref()
            .is_some_and(|open| open.number == self.number)
        {
            state.sent(&mut entry);
            if let Some(open) = &mut state.kafka.producer {
                open.queued[lane].push_back((sequence, entry));
            }
        }
        Ok(())
    }

    fn before_waiting(&mut self, ready: &mut dyn FnMut() -> bool) {
        self.turns.wait(ready);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // Closed in order: what is queued is given up.
        self.with_open(|_| ());
        let mut state = self.shared.lock();
        if state
            .kafka
            .producer
            .as_ref()
            .is_some_and(|open| open.number == self.number)
        {
            state.kafka.producer = None;
            if state.plan.exactly_once {
                state.kafka.abort();
            }
        }
    }
}
