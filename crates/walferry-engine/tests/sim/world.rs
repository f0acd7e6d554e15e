//! Postgres, Kafka and the offset store in memory; pipeline and progress are the real ones.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use walferry_engine::{
    Failure,
    batch::Batch,
    pipeline::Pipeline,
    progress::{Progress, Stored},
    sink::Acks,
    source::Frame,
    store::{OffsetStore, StoredOffset},
};
use walferry_pgoutput::Lsn;

use crate::{
    broker::{Broker, PARTITIONS, Producer},
    fixture,
    random::Random,
    script::{Script, Sent, relations},
};

/// Everything, with one connector in it.
pub(crate) struct World<'s> {
    script: &'s Script,
    random: Random,
    // What survives a crash of the connector.
    broker: Broker,
    store: Memory,
    slot: Lsn,
    // What does not.
    connector: Connector,
}

struct Connector {
    pipeline: Pipeline,
    progress: Arc<Progress>,
    producer: Producer,
    stream: Stream,
    stored: Option<Stored>,
}

/// A connection: what is still to come.
struct Stream {
    from: Lsn,
    next: std::vec::IntoIter<Coming>,
}

enum Coming {
    Begin,
    Wal(Sent),
    Keepalive(Lsn),
}

#[derive(Default)]
struct Memory {
    offset: Option<StoredOffset>,
}

impl OffsetStore for Memory {
    async fn load(&mut self) -> Result<Option<StoredOffset>, Failure> {
        Ok(self.offset.clone())
    }
    async fn write(&mut self, offset: &StoredOffset) -> Result<(), Failure> {
        self.offset = Some(offset.clone());
        Ok(())
    }
}

impl<'s> World<'s> {
    /// A slot at the beginning, nothing delivered.
    pub(crate) fn new(script: &'s Script, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let (broker, store, slot) = (Broker::default(), Memory::default(), Lsn(1));
        let connector = Connector::start(script, &broker, &store, slot, &mut random);
        Self {
            script,
            random,
            broker,
            store,
            slot,
            connector,
        }
    }

    /// So many steps, each of them whatever part of the system comes to run next.
    pub(crate) fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step();
        }
    }

    fn step(&mut self) {
        match self.random.below(16) {
            0..=5 => {
                self.connector.read();
            }
            6..=8 => {
                self.broker.write(self.random.below(PARTITIONS as u64) as usize);
            }
            9..=11 => self
                .connector
                .settle(self.random.below(PARTITIONS as u64) as usize, &self.broker),
            12 | 13 => self.connector.save(&mut self.store),
            14 => self.confirm(),
            // Postgres goes away and comes back; the connector lives on.
            _ if self.random.once_in(8) => {
                self.connector.stream = Stream::open(self.script, self.slot, &mut self.random);
            }
            // The producer loses its sequence; what is delivered is stored, and another replays.
            _ if self.random.once_in(8) => {
                self.connector.save(&mut self.store);
                self.crash_and_restart();
            }
            _ => {}
        }
    }

    fn confirm(&mut self) {
        if let Some(stored) = self.connector.stored {
            self.slot = self.slot.max(stored.confirmable());
        }
    }

    /// kill -9, and a new start from what survived.
    pub(crate) fn crash_and_restart(&mut self) {
        self.broker.lose_producer(&mut self.random);
        self.connector = Connector::start(self.script, &self.broker, &self.store, self.slot, &mut self.random);
    }

    /// Until nothing moves any more.
    pub(crate) fn run_until_idle(&mut self) {
        while self.connector.read() {}
        for partition in 0..PARTITIONS {
            while self.broker.write(partition) {
                self.connector.settle(partition, &self.broker);
            }
            self.connector.settle(partition, &self.broker);
        }
        while (0..PARTITIONS).any(|partition| self.connector.settle_one(partition, &self.broker)) {}
        self.connector.save(&mut self.store);
        self.confirm();
    }

    /// What the server was told that it need not keep.
    pub(crate) const fn confirmed(&self) -> Lsn {
        self.slot
    }

    /// Rows that were committed before a position and that no log has.
    pub(crate) fn missing_before(&self, lsn: Lsn) -> Vec<i64> {
        let there: BTreeSet<i64> = self.broker.logs().into_iter().flatten().map(|(_, n)| n).collect();
        let committed = self
            .script
            .units
            .iter()
            .filter(|unit| unit.end_lsn <= lsn)
            .flat_map(|unit| &unit.rows);
        committed.map(|row| row.1).filter(|n| !there.contains(n)).collect()
    }

    /// Values in the logs that must not be there, or not in that order: on each partition the records of one key are runs in
    /// commit order, each starting no later than one past the furthest so far.
    pub(crate) fn misplaced(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for log in self.broker.logs() {
            for key in 0..crate::script::KEYS as i32 {
                let order: Vec<i64> = self.script.rows().filter(|row| row.0 == key).map(|row| row.1).collect();
                let (mut furthest, mut last) = (0, None);
                for n in log.iter().filter(|row| row.0 == key).map(|row| row.1) {
                    let Some(at) = order.iter().position(|&m| m == n) else {
                        wrong.push(format!("key {key}: {n} was never committed"));
                        continue;
                    };
                    let continues = last.is_some_and(|last| at == last + 1);
                    if !continues && at > furthest {
                        wrong.push(format!("key {key}: {n} comes too early"));
                    }
                    last = Some(at);
                    furthest = furthest.max(at + 1);
                }
            }
        }
        wrong
    }
}

impl Connector {
    fn start(script: &Script, broker: &Broker, store: &Memory, slot: Lsn, random: &mut Random) -> Self {
        let offset = store.offset.clone().unwrap_or_default();
        let pipeline = fixture::pipeline(&offset);
        let from = offset.start().unwrap_or_default().max(slot);
        let progress = Arc::new(Progress::new(offset, usize::MAX));
        let producer = Producer::new(broker.clone(), Acks::new(progress.clone()));
        Self {
            pipeline,
            progress,
            producer,
            stream: Stream::open(script, from, random),
            stored: None,
        }
    }

    /// The next frame on its whole way to the producer; false when there is none.
    fn read(&mut self) -> bool {
        let Some(coming) = self.stream.next.next() else {
            return false;
        };
        let (frame, bytes) = match coming {
            Coming::Begin => (Frame::Begin { from: self.stream.from }, Bytes::new()),
            Coming::Keepalive(wal_end) => (Frame::Keepalive { wal_end }, Bytes::new()),
            Coming::Wal(sent) => {
                let bytes = Bytes::from(sent.payload);
                (
                    Frame::Wal {
                        lsn: sent.lsn,
                        payload: 0..bytes.len(),
                    },
                    bytes,
                )
            }
        };
        let mut batch = Batch::default();
        self.pipeline
            .on_frame(frame, &bytes, 0, &mut batch)
            .expect("the script is legal");
        batch
            .deliver(&mut self.producer, &self.progress, &fixture::status())
            .expect("the simulated broker takes all");
        true
    }

    fn settle(&self, partition: usize, broker: &Broker) {
        self.settle_one(partition, broker);
    }

    fn settle_one(&self, partition: usize, broker: &Broker) -> bool {
        let acknowledged = broker.acknowledge(partition);
        if let Some(sequence) = acknowledged {
            self.producer.settle(sequence);
        }
        acknowledged.is_some()
    }

    fn save(&mut self, store: &mut Memory) {
        if let Some(delivered) = self.progress.delivered() {
            let stored = fixture::now(delivered.save(store)).expect("memory does not fail");
            self.stored = Some(stored);
        }
    }
}

impl Stream {
    /// What the server sends when it is asked to start there: commits from that position on.
    fn open(script: &Script, from: Lsn, random: &mut Random) -> Self {
        let mut coming = vec![Coming::Begin];
        coming.extend(relations().map(Coming::Wal));
        for unit in script.units.iter().filter(|unit| unit.commit_lsn >= from) {
            if random.once_in(4) {
                coming.push(Coming::Keepalive(unit.commit_lsn));
            }
            for (index, sent) in unit.frames.iter().enumerate() {
                // The server may tell how far it is at any time; inside a transaction that is no word about its rows.
                if index > 0 && random.once_in(12) {
                    coming.push(Coming::Keepalive(script.end()));
                }
                coming.push(Coming::Wal(sent.clone()));
            }
        }
        coming.push(Coming::Keepalive(script.end()));
        Self {
            from,
            next: coming.into_iter(),
        }
    }
}
