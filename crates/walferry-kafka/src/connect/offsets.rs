//! Offsets in Connect's offset topic.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use walferry_engine::Failure;
use walferry_record::java::json::quoted;

use super::{
    ConnectTopics, Tenure,
    log::{Log, LogRecord},
};

/// `offset.storage.topic`: the last offset of each connector. Clones share it.
#[derive(Debug, Clone)]
pub struct OffsetLog(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    log: Log,
    latest: Mutex<HashMap<Vec<u8>, OffsetRecord>>,
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

/// The header of Walferry's additions. Connect ignores headers in its own topics.
const ADDITIONS: &str = "walferry.offset";

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
        })))
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
        self.0.log.read_to_end(|entry| {
            let additions = entry
                .headers
                .into_iter()
                .find(|(name, _)| name == ADDITIONS)
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
                .map(|text| (ADDITIONS.to_owned(), text.into_bytes()))
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
