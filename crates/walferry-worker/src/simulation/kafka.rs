//! Producers and offsets of the simulated Kafka, with transactions.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use walferry_engine::{
    Disposition, Failure, Kind,
    sink::{Acks, Outgoing, Sink, Sinks},
    store::{OffsetStore, StoredOffset},
};
use walferry_kafka::connect::{Lease, Queue};

use super::{
    fixture,
    turns::Turns,
    world::{Entry, ProcessId, Shared, World, unreachable},
};

/// How long Kafka is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether it can be reached.
const LOOK: Duration = Duration::from_millis(20);
/// The minimum time between two records of one connector in the offset topic.
const PAUSE: Duration = Duration::from_secs(1);

/// A producer as the brokers know it.
#[derive(Debug)]
pub(super) struct OpenProducer {
    pub(super) connector: String,
    pub(super) process: ProcessId,
    pub(super) turns: Turns,
    acks: Acks,
    queue: VecDeque<QueuedRow>,
    /// The last connection to the slot.
    pub(super) stream: u64,
    /// The epoch of its transactional id, once the brokers know it.
    epoch: Option<u64>,
    transactions: Option<Transactions>,
    /// When its requests are answered next.
    next: Duration,
}

/// A row that a producer has queued.
#[derive(Debug, Clone, Copy)]
struct QueuedRow {
    sequence: u64,
    number: i64,
    /// The connection to the slot from which it has come.
    stream: u64,
}

/// An offset that is on its way.
#[derive(Debug)]
pub(super) struct OffsetWrite {
    connector: String,
    process: ProcessId,
    offset: StoredOffset,
    /// The producer that commits it, and the session in which that was begun.
    transactions: Option<(Transactions, u64)>,
    outcome: Outcome,
    next: Duration,
}

type Outcome = Arc<Mutex<Option<Result<(), Failure>>>>;

/// The transactions of one run: its producers and its store share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Transactions(Arc<Mutex<TransactionState>>);

#[derive(Debug, Default)]
struct TransactionState {
    /// How many sessions have ended.
    ended: u64,
    producer: Option<u64>,
    known: Option<StoredOffset>,
}

impl Transactions {
    fn lock(&self) -> MutexGuard<'_, TransactionState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn replay(what: &str) -> Failure {
    Failure::new(Disposition::Replay, Kind::KafkaProducer, what, None)
}

fn turn_lost() -> Failure {
    Failure::new(Disposition::Replay, Kind::TurnLost, "given up", None)
}

/// What a run of a connector has of Kafka.
#[derive(Clone)]
pub(super) struct Topics {
    pub(super) shared: Shared,
    pub(super) process: ProcessId,
    pub(super) connector: String,
    pub(super) lease: Lease,
    pub(super) transactions: Option<Transactions>,
}

impl Topics {
    async fn reach(&self) -> Result<(), Failure> {
        let begun = Instant::now();
        while !self.shared.lock().reaches_kafka(self.process) {
            if begun.elapsed() > PATIENCE {
                return Err(unreachable());
            }
            sleep(LOOK).await;
        }
        Ok(())
    }
}

impl Sinks for Topics {
    type Sink = Producer;

    fn open(&mut self, acks: Acks) -> Result<Producer, Failure> {
        let mut world = self.shared.lock();
        let others = |open: &&OpenProducer| open.connector == self.connector && open.process == self.process;
        if world.producers.values().any(|open| others(&open)) {
            world.fail([format!("{}: two producers in one process", self.connector)]);
        }
        let (number, turns) = (world.number(), Turns::default());
        let open = OpenProducer {
            connector: self.connector.clone(),
            process: self.process,
            turns: turns.clone(),
            acks: acks.clone(),
            queue: VecDeque::new(),
            stream: 0,
            epoch: None,
            transactions: self.transactions.clone(),
            next: Duration::ZERO,
        };
        world.producers.insert(number, open);
        drop(world);
        if let Some(transactions) = &self.transactions {
            transactions.lock().producer = Some(number);
        }
        let queued = Arc::new(Queued {
            shared: self.shared.clone(),
            number,
        });
        let weak: Weak<dyn Queue> = Arc::<Queued>::downgrade(&queued);
        self.lease.include(weak);
        Ok(Producer {
            topics: self.clone(),
            acks,
            turns,
            number,
            has_begun: false,
            _queued: queued,
        })
    }
}

/// What a producer has queued.
struct Queued {
    shared: Shared,
    number: u64,
}

impl Queue for Queued {
    fn give_up(&self) {
        let acks = {
            let mut world = self.shared.lock();
            world.producers.get_mut(&self.number).map(|open| {
                open.queue.clear();
                open.acks.clone()
            })
        };
        if let Some(acks) = acks {
            acks.failed(turn_lost());
        }
    }
}

/// The producer of a session, on the pipeline's thread.
pub(super) struct Producer {
    topics: Topics,
    acks: Acks,
    turns: Turns,
    number: u64,
    /// Whether it is certain that it goes on from the last offset.
    has_begun: bool,
    _queued: Arc<Queued>,
}

impl Producer {
    /// Whether the brokers know it.
    fn is_known(&self) -> bool {
        let world = self.topics.shared.lock();
        world
            .producers
            .get(&self.number)
            .is_none_or(|open| open.epoch.is_some())
    }

    /// Before its first transaction. Returns false when it is to stop.
    fn begin(&mut self) -> Result<bool, Failure> {
        let Some(transactions) = self.topics.transactions.clone().filter(|_| !self.has_begun) else {
            return Ok(true);
        };
        if !self.is_known() {
            let acks = self.acks.clone();
            self.turns.wait(&mut || self.is_known() || acks.is_stopping());
        }
        if self.acks.is_stopping() {
            return Ok(false);
        }
        let offset = self.topics.shared.lock().subject(&self.topics.connector).offset.clone();
        if offset != transactions.lock().known {
            return Err(replay("another offset than the one that the connector went on from"));
        }
        self.has_begun = true;
        Ok(true)
    }
}

impl Sink for Producer {
    fn may_send(&mut self) -> bool {
        if !self.topics.lease.holds() {
            let (lease, acks) = (self.topics.lease.clone(), self.acks.clone());
            self.turns.wait(&mut || lease.holds() || acks.is_stopping());
        }
        self.topics.lease.holds()
    }

    fn send(&mut self, record: &Outgoing<'_>, sequence: u64) -> Result<(), Failure> {
        let Some((_, number)) = record.value.and_then(fixture::row) else {
            return Ok(());
        };
        if !self.begin()? {
            return Ok(());
        }
        let holds = self.topics.lease.holds();
        let mut world = self.topics.shared.lock();
        if !holds {
            let (name, process) = (&self.topics.connector, self.topics.process);
            world.fail([format!(
                "{name}: {process:?} sends {number}, and its lease does not hold"
            )]);
        }
        if let Some(open) = world.producers.get_mut(&self.number) {
            let stream = open.stream;
            open.queue.push_back(QueuedRow {
                sequence,
                number,
                stream,
            });
        }
        Ok(())
    }

    fn before_waiting(&mut self, ready: &mut dyn FnMut() -> bool) {
        self.turns.wait(ready);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if let Some(transactions) = &self.topics.transactions {
            let state = &mut *transactions.lock();
            if state.producer == Some(self.number) {
                (state.producer, state.ended) = (None, state.ended + 1);
            }
        }
        let mut world = self.topics.shared.lock();
        if let Some(open) = world.producers.remove(&self.number)
            && world.reaches_kafka(open.process)
        {
            let subject = world.subject(&open.connector);
            if open.epoch == Some(subject.epoch) {
                subject.open.clear();
            }
        }
    }
}

impl OffsetStore for Topics {
    fn least_pause(&self) -> Duration {
        PAUSE
    }

    async fn load(&mut self) -> Result<Option<StoredOffset>, Failure> {
        self.reach().await?;
        let offset = self.shared.lock().subject(&self.connector).offset.clone();
        if let Some(transactions) = &self.transactions {
            transactions.lock().known.clone_from(&offset);
        }
        Ok(offset)
    }

    async fn claim(&mut self) -> Result<bool, Failure> {
        self.reach().await?;
        if self.transactions.is_some() {
            let mut world = self.shared.lock();
            let (name, process) = (self.connector.clone(), self.process);
            world.tell(|| format!("{name}: {process:?} fences earlier producers"));
            world.subject(&name).fence();
        }
        Ok(true)
    }

    async fn write(&mut self, offset: &StoredOffset) -> Result<(), Failure> {
        let outcome = Outcome::default();
        {
            // Noted here: the thread may come to it when the session has ended.
            let transactions = self.transactions.clone().map(|transactions| {
                let session = transactions.lock().ended;
                (transactions, session)
            });
            let needs_lease = transactions
                .as_ref()
                .is_none_or(|(transactions, _)| transactions.lock().producer.is_none());
            if needs_lease && !self.lease.holds() {
                return Err(Failure::retry(Kind::TurnLost, "the offset topic is not written"));
            }
            let mut world = self.shared.lock();
            let next = world.now + Duration::from_millis(world.random.below(30));
            let write = OffsetWrite {
                connector: self.connector.clone(),
                process: self.process,
                offset: offset.clone(),
                transactions,
                outcome: outcome.clone(),
                next,
            };
            world.writes.push(write);
        }
        let queued = Arc::new(QueuedOffset(self.shared.clone(), outcome.clone()));
        let weak: Weak<dyn Queue> = Arc::<QueuedOffset>::downgrade(&queued);
        if self.transactions.is_none() {
            self.lease.include(weak);
        }
        let begun = Instant::now();
        loop {
            if let Some(outcome) = outcome.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return outcome;
            }
            if begun.elapsed() > PATIENCE {
                queued.give_up();
                return Err(Failure::retry(Kind::Unreachable, "the offset topic does not answer"));
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// An offset that is on its way.
struct QueuedOffset(Shared, Outcome);

impl Queue for QueuedOffset {
    fn give_up(&self) {
        let mut world = self.0.lock();
        world.writes.retain(|write| !Arc::ptr_eq(&write.outcome, &self.1));
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(turn_lost().into_retry()));
    }
}

/// A failure that is tried again.
trait AsRetry {
    fn into_retry(self) -> Failure;
}

impl AsRetry for Failure {
    fn into_retry(self) -> Failure {
        Failure {
            disposition: Disposition::Retry,
            ..self
        }
    }
}

impl super::world::Subject {
    /// Another producer with the transactional id begins: what earlier ones have not committed is aborted.
    fn fence(&mut self) -> u64 {
        self.epoch += 1;
        self.open.clear();
        self.epoch
    }
}

/// What producers are to be told.
pub(super) struct Answers(Vec<(Acks, Result<Vec<u64>, Failure>)>);

impl Answers {
    pub(super) fn tell(self) {
        for (acks, answer) in self.0 {
            match answer {
                Ok(sequences) => acks.delivered_all(&sequences),
                Err(failure) => acks.failed(failure),
            }
        }
    }
}

impl World {
    /// The brokers take what reaches them.
    pub(super) fn serve(&mut self) -> Answers {
        let (now, mut answers) = (self.now, Vec::new());
        let numbers: Vec<u64> = self.producers.keys().copied().collect();
        for number in numbers {
            let process = self.producers[&number].process;
            if !self.reaches_kafka(process) || self.producers[&number].next > now {
                continue;
            }
            let latency = Duration::from_millis(self.random.below(25));
            let Some(mut open) = self.producers.remove(&number) else {
                continue;
            };
            open.next = now + latency;
            if open.transactions.is_some() && open.epoch.is_none() {
                open.epoch = Some(self.subject(&open.connector).fence());
            }
            let is_fenced = open
                .epoch
                .is_some_and(|epoch| epoch != self.subjects[&open.connector].epoch);
            if is_fenced && !open.queue.is_empty() {
                open.queue.clear();
                answers.push((open.acks.clone(), Err(replay("another producer has taken over"))));
            }
            let mut settled = Vec::new();
            for row in std::mem::take(&mut open.queue) {
                settled.push(row.sequence);
                self.take(number, &open, row);
            }
            if !settled.is_empty() {
                answers.push((open.acks.clone(), Ok(settled)));
            }
            self.producers.insert(number, open);
        }
        self.serve_writes();
        Answers(answers)
    }

    fn take(&mut self, producer: u64, open: &OpenProducer, row: QueuedRow) {
        let entry = Entry {
            number: row.number,
            producer,
            stream: row.stream,
            process: open.process,
        };
        match open.epoch {
            Some(_) => self.subject(&open.connector).open.push(entry),
            None => self.append(&open.connector, entry),
        }
    }

    fn serve_writes(&mut self) {
        for write in std::mem::take(&mut self.writes) {
            if !self.reaches_kafka(write.process) || write.next > self.now {
                self.writes.push(write);
                continue;
            }
            let outcome = self.write(&write);
            *write.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        }
    }

    fn write(&mut self, write: &OffsetWrite) -> Result<(), Failure> {
        let name = &write.connector;
        let Some((transactions, session)) = &write.transactions else {
            self.store(name, write.offset.clone(), write.process);
            return Ok(());
        };
        let mut state = transactions.lock();
        if state.ended != *session {
            return Err(replay("the session of the offset has ended"));
        }
        if let Some(number) = state.producer {
            let Some(open) = self.producers.get(&number) else {
                return Err(replay("the producer is gone"));
            };
            if open.epoch.is_none() || open.epoch != Some(self.subjects[name].epoch) {
                return Err(replay("another producer has taken over"));
            }
            if !open.queue.is_empty() {
                self.fail([format!(
                    "{name}: an offset is committed before all records of its transaction"
                )]);
            }
            // A producer that has sent nothing begins its transaction now.
            if self.subjects[name].open.is_empty() && self.subjects[name].offset != state.known {
                return Err(replay("another offset than the one that the connector went on from"));
            }
            for entry in std::mem::take(&mut self.subject(name).open) {
                self.append(name, entry);
            }
        }
        state.known = Some(write.offset.clone());
        drop(state);
        self.store(name, write.offset.clone(), write.process);
        Ok(())
    }

    /// A process is gone. Of what its producers had on their way some is written.
    pub(super) fn lose_producers(&mut self, process: ProcessId, reaches_kafka: bool) {
        let of_process = self.producers.iter().filter(|(_, open)| open.process == process);
        let numbers: Vec<u64> = of_process.map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(mut open) = self.producers.remove(&number) else {
                continue;
            };
            let is_known = open.transactions.is_none() || open.epoch == Some(self.subjects[&open.connector].epoch);
            while reaches_kafka && is_known && !self.random.once_in(3) {
                let Some(row) = open.queue.pop_front() else { break };
                self.take(number, &open, row);
            }
        }
        for write in std::mem::take(&mut self.writes) {
            if write.process != process {
                self.writes.push(write);
            } else if reaches_kafka && write.transactions.is_none() && self.random.once_in(2) {
                let _ = self.write(&write);
            }
        }
    }
}
