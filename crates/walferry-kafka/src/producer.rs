//! The producer: the engine's sink.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdkafka::{error::RDKafkaErrorCode as Code, producer::Producer as _};
use walferry_engine::{
    Failure,
    sink::{Acks, Outgoing, Sink, Sinks},
};

use crate::{
    failure::{self, Culprit, Verdict},
    health::Health,
    native::{Client, Topic},
    origin::{Opaque, Tables},
    reporter::Reporter,
    settings::Settings,
};

/// Opens producers for one connector.
#[derive(Debug)]
pub struct Producers {
    settings: Arc<Settings>,
    health: Health,
}

impl Producers {
    /// Producers with these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: Arc::new(settings),
            health: Health::default(),
        }
    }

    /// How the connection to Kafka is, whichever producer has it.
    pub fn health(&self) -> Health {
        self.health.clone()
    }
}

impl Sinks for Producers {
    type Sink = Producer;

    fn open(&mut self, acks: Acks) -> Result<Producer, Failure> {
        let client = Client::new(&self.settings.producer.config()).map_err(|error| failure::of_settings(&error))?;
        let client = Arc::new(client);
        let tables = Tables::default();
        let stop = Arc::new(AtomicBool::new(false));
        let reporter = Reporter {
            client: Arc::clone(&client),
            acks: acks.clone(),
            tables: tables.clone(),
            health: self.health.clone(),
            settings: Arc::clone(&self.settings),
        };
        let thread = {
            let stop = Arc::clone(&stop);
            thread::Builder::new()
                .name("kafka-reports".into())
                .spawn(move || reporter.run(&stop))
                .map_err(|error| {
                    Failure::retry(
                        "no_thread",
                        format!("the producer's thread could not be started: {error}"),
                    )
                })?
        };
        Ok(Producer {
            targets: Vec::new(),
            by_topic: HashMap::new(),
            last: 0,
            client,
            acks,
            tables,
            stop,
            thread: Some(thread),
        })
    }
}

/// One producer with its connections.
pub struct Producer {
    targets: Vec<Target>,
    by_topic: HashMap<String, usize>,
    /// The target of the last record: as a rule also of the next.
    last: usize,
    client: Arc<Client>,
    acks: Acks,
    tables: Tables,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A topic that has been written to, and the table that its last record came from.
struct Target {
    name: String,
    topic: Topic,
    table: String,
    table_id: u16,
}

/// How long the pipeline sleeps before it looks again whether the producer has room.
const FULL_WAIT: Duration = Duration::from_millis(2);

impl Sink for Producer {
    fn send(&mut self, record: &Outgoing<'_>, sequence: u64) -> Result<(), Failure> {
        let target = self.target(record.topic)?;
        let target = &mut self.targets[target];
        if target.table != record.origin.table {
            target.table = record.origin.table.to_owned();
            target.table_id = self.tables.id(record.origin.table);
        }
        let opaque = Opaque::new(sequence, target.table_id);
        let mut refreshed = false;
        while !self.acks.is_stopping() {
            match self.client.produce(&target.topic, record, opaque.into()) {
                Ok(()) => return Ok(()),
                Err(Code::QueueFull) => thread::sleep(FULL_WAIT),
                // Partitions may have been added since the client looked.
                Err(Code::UnknownPartition) if !refreshed => {
                    refreshed = true;
                    let client = self.client.producer().client();
                    let _ = client.fetch_metadata(Some(record.topic), Duration::from_secs(5));
                }
                Err(code) => return self.refused(code, record),
            }
        }
        Ok(())
    }
}

impl Producer {
    fn target(&mut self, name: &str) -> Result<usize, Failure> {
        if self.targets.get(self.last).is_some_and(|target| target.name == name) {
            return Ok(self.last);
        }
        self.last = match self.by_topic.get(name) {
            Some(&known) => known,
            None => {
                let topic = Topic::new(&self.client, name).map_err(|code| failure::of_topic(name, code))?;
                self.targets.push(Target {
                    name: name.to_owned(),
                    topic,
                    table: String::new(),
                    table_id: 0,
                });
                self.by_topic.insert(name.to_owned(), self.targets.len() - 1);
                self.targets.len() - 1
            }
        };
        Ok(self.last)
    }

    /// The client itself refuses a record.
    fn refused(&self, code: Code, record: &Outgoing<'_>) -> Result<(), Failure> {
        if let Some((code, reason)) = self.client.producer().client().fatal_error() {
            return Err(failure::of_producer(code, &reason));
        }
        let culprit = Culprit {
            topic: record.topic,
            partition: record.partition,
            table: record.origin.table,
            lsn: Some(record.origin.lsn),
            key: record.key,
            size: size(record.key, record.value, record.headers),
        };
        match failure::of_record(code, &culprit) {
            Verdict::Record(failure) | Verdict::Producer(failure) => Err(failure),
        }
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        self.client.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that takes Kafka's reports has panicked");
        }
    }
}

/// Bytes of a record as errors tell of it.
pub(crate) fn size(key: Option<&[u8]>, value: Option<&[u8]>, headers: walferry_engine::sink::Headers<'_>) -> usize {
    let len = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
    len(key)
        + len(value)
        + headers
            .iter()
            .map(|(name, value)| name.len() + len(*value))
            .sum::<usize>()
}
