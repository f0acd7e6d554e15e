//! Offsets in Connect's offset topic.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use walferry_config::Worker;
use walferry_engine::Failure;
use walferry_record::java::json::quoted;

use super::{
    ConnectTopics, Tenure, Topic,
    log::{Log, LogRecord},
};
use crate::client::Properties;

/// `offset.storage.topic`: the last offset of each connector. Clones share it.
#[derive(Debug, Clone)]
pub struct OffsetLog(Arc<Inner>);

struct Inner {
    log: Log,
    latest: Mutex<HashMap<Vec<u8>, OffsetRecord>>,
    /// The topic is not one of a worker that keeps all its state in topics, so it is created, if need be, before it is first used.
    unchecked: Mutex<Option<(Topic, Properties)>>,
}

/// An offset in the topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetRecord {
    /// Connect's JSON.
    pub value: String,
    /// Walferry's additions, in a header of the record. So they never outlive the value that they belong to: later records of Connect do not
    /// have this header.
    pub additions: Option<String>,
}

/// Its topic alone: the properties of the client may be secrets.
impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.log.fmt(f)
    }
}

impl OffsetRecord {
    /// The header of Walferry's additions. Connect ignores headers in its own topics.
    pub(crate) const ADDITIONS: &str = "walferry.offset";
}

impl OffsetLog {
    /// Opens the topic. Blocks.
    ///
    /// # Errors
    /// The clients cannot be made.
    pub fn open(topics: &ConnectTopics) -> Result<Self, Failure> {
        let log = Log::open(topics, &topics.offset.name)?;
        Ok(Self(Arc::new(Inner {
            log,
            latest: Mutex::default(),
            unchecked: Mutex::default(),
        })))
    }

    /// Opens a topic for a worker that keeps everything else in files. It is created when it is first used, as `offset.storage.*` says if it
    /// is the worker's topic, else with one partition. Blocks no longer than the clients take to be made.
    ///
    /// # Errors
    /// The clients cannot be made, or a property of the worker is wrong.
    pub fn open_alone(worker: &Worker, bootstrap_servers: &str, name: &str) -> Result<Self, Failure> {
        let client = super::internal_client(worker, bootstrap_servers, "offsets")?;
        let of_worker = worker.offset_storage.get("topic").map(str::trim) == Some(name);
        let topic = match of_worker {
            true => super::topic(
                &worker.offset_storage,
                "offset.storage",
                "source connector offsets",
                Some(25),
            )?,
            false => Topic {
                property: "offsets.storage",
                purpose: "source connector offsets",
                name: name.to_owned(),
                partitions: 1,
                replication: -1,
                settings: Vec::new(),
            },
        };
        let log = Log::open_with(&client, &Tenure::default(), name)?;
        Ok(Self(Arc::new(Inner {
            log,
            latest: Mutex::default(),
            unchecked: Mutex::new(Some((topic, client))),
        })))
    }

    /// The same, which fails if there is no topic.
    #[must_use]
    pub fn never_created(self) -> Self {
        *self.0.unchecked.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self
    }

    /// Name of the topic.
    pub fn topic(&self) -> &str {
        self.0.log.topic()
    }

    fn ensure(&self) -> Result<(), Failure> {
        let mut unchecked = self.0.unchecked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((topic, client)) = &*unchecked {
            topic.ensure(client)?;
            *unchecked = None;
        }
        Ok(())
    }

    /// Whether this process may work for the connectors whose offsets are in the topic.
    pub fn tenure(&self) -> Tenure {
        self.0.log.tenure()
    }

    fn latest(&self) -> MutexGuard<'_, HashMap<Vec<u8>, OffsetRecord>> {
        self.0.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last offset of a key, after the topic was read to its end. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub fn read(&self, key: &str) -> Result<Option<OffsetRecord>, Failure> {
        self.catch_up()?;
        Ok(self.latest().get(key.as_bytes()).cloned())
    }

    /// Waits until all transactions that are open now have ended. Whoever has opened one, it hides from readers what was committed behind it.
    /// Blocks.
    ///
    /// # Errors
    /// The topic cannot be read, or a transaction stays open.
    pub fn wait_for_open_transactions(&self) -> Result<(), Failure> {
        self.ensure()?;
        self.0.log.wait_for_open_transactions()
    }

    /// All keys of a connector with their offsets, after the topic was read to its end. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub fn of_connector(&self, name: &str) -> Result<Vec<(String, OffsetRecord)>, Failure> {
        self.catch_up()?;
        let beginning = format!("[{},", quoted(name));
        let latest = self.latest();
        let ours = latest.iter().filter_map(|(key, record)| {
            let key = str::from_utf8(key).ok()?;
            key.starts_with(&beginning).then(|| (key.to_owned(), record.clone()))
        });
        let mut ours: Vec<_> = ours.collect();
        ours.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(ours)
    }

    fn catch_up(&self) -> Result<(), Failure> {
        self.ensure()?;
        self.0.log.read_to_end(|entry| {
            let additions = entry
                .headers
                .into_iter()
                .find(|(name, _)| name == OffsetRecord::ADDITIONS)
                .map(|(_, value)| value);
            // Apply it at once: if the reading fails later, the record is not passed on again.
            let mut latest = self.latest();
            match entry.value {
                Some(value) => {
                    let record = OffsetRecord {
                        value: String::from_utf8_lossy(&value).into_owned(),
                        additions: additions.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
                    };
                    latest.insert(entry.key, record);
                }
                None => drop(latest.remove(&entry.key)),
            }
        })
    }

    fn entry(key: &str, record: Option<OffsetRecord>) -> LogRecord {
        let additions = record.as_ref().and_then(|record| record.additions.clone());
        LogRecord {
            key: key.as_bytes().to_vec(),
            value: record.map(|record| record.value.into_bytes()),
            headers: additions
                .into_iter()
                .map(|text| (OffsetRecord::ADDITIONS.to_owned(), text.into_bytes()))
                .collect(),
        }
    }

    /// Writes or removes an offset. When this returns, the offset is durable: all in-sync replicas have it.
    ///
    /// # Errors
    /// Kafka has not accepted it.
    pub async fn write(&self, key: &str, record: Option<OffsetRecord>) -> Result<(), Failure> {
        let delivered = self.0.log.send(&Self::entry(key, record))?;
        self.0.log.settled(delivered.await)
    }

    /// Writes or removes several offsets, each with its key. When this returns, all of them are durable. Blocks.
    ///
    /// # Errors
    /// Kafka has not accepted all of them. It may have accepted some: writing all of them again does no harm.
    pub fn write_all_blocking(
        &self,
        records: impl IntoIterator<Item = (String, Option<OffsetRecord>)>,
    ) -> Result<(), Failure> {
        self.ensure()?;
        let records = records.into_iter();
        let sent: Vec<_> = records
            .map(|(key, record)| self.0.log.send(&Self::entry(&key, record)))
            .collect();
        let written = sent
            .into_iter()
            .map(|sent| sent.and_then(|delivered| self.0.log.settled(delivered.blocking_recv())));
        // Wait for all of them, so that nothing is under way when this returns.
        written.fold(Ok(()), Result::and)
    }
}
