//! A broker that acknowledges when it is told to.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use walferry_engine::{
    Failure,
    sink::{Acks, Outgoing, Sink},
};

use crate::{fixture, random::Random};

/// A row of the captured table: `(id, n)`.
pub(crate) type Row = (i32, i64);

/// Partitions of each topic.
pub(crate) const PARTITIONS: usize = 3;

/// What survives the producer: the log, and requests that are under way.
#[derive(Debug, Default, Clone)]
pub(crate) struct Broker {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    logs: [Vec<Row>; PARTITIONS],
    /// Given to the producer, not yet in the log.
    queued: [VecDeque<(u64, Option<Row>)>; PARTITIONS],
    /// In the log, not yet acknowledged.
    written: [VecDeque<u64>; PARTITIONS],
}

impl Broker {
    fn with<T>(&self, work: impl FnOnce(&mut Shared) -> T) -> T {
        work(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Appends the next queued record of a partition to its log; the producer does not know yet.
    pub(crate) fn write(&self, partition: usize) -> bool {
        self.with(|shared| {
            let Some((sequence, row)) = shared.queued[partition].pop_front() else {
                return false;
            };
            shared.logs[partition].extend(row);
            shared.written[partition].push_back(sequence);
            true
        })
    }

    /// Takes the acknowledgement of the next written record of a partition.
    pub(crate) fn acknowledge(&self, partition: usize) -> Option<u64> {
        self.with(|shared| shared.written[partition].pop_front())
    }

    /// The producer dies: of what it had queued some may still be written, in order; nothing is acknowledged any more.
    pub(crate) fn lose_producer(&self, random: &mut Random) {
        for partition in 0..PARTITIONS {
            while random.once_in(2) && self.write(partition) {}
        }
        self.with(|shared| {
            shared.queued.iter_mut().for_each(VecDeque::clear);
            shared.written.iter_mut().for_each(VecDeque::clear);
        });
    }

    /// Records in the logs, partition by partition.
    pub(crate) fn logs(&self) -> [Vec<Row>; PARTITIONS] {
        self.with(|shared| shared.logs.clone())
    }
}

/// A producer for the simulated broker.
#[derive(Debug)]
pub(crate) struct Producer {
    broker: Broker,
    acks: Acks,
}

impl Producer {
    /// Opens it.
    pub(crate) const fn new(broker: Broker, acks: Acks) -> Self {
        Self { broker, acks }
    }

    /// Tells the connector that a record was acknowledged.
    pub(crate) fn settle(&self, sequence: u64) {
        self.acks.delivered(sequence);
    }
}

impl Sink for Producer {
    fn send(&mut self, record: &Outgoing<'_>, sequence: u64) -> Result<(), Failure> {
        let partition = record.key.into_iter().flatten().map(|&b| usize::from(b)).sum::<usize>() % PARTITIONS;
        let row = fixture::row(record.value.unwrap_or_default());
        self.broker
            .with(|shared| shared.queued[partition].push_back((sequence, row)));
        Ok(())
    }
}
