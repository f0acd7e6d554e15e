//! Offsets in Connect's offset topic.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::SystemTime,
};

use tokio::sync::oneshot;
use tracing::{debug, info, warn};
use walferry_config::Worker;
use walferry_engine::{Disposition, Failure, Kind};
use walferry_record::{SourceOffset, java::json::quoted};

use super::{
    ConnectTopics, Lease, Topic,
    log::{Delivered, Log, LogRecord, LowerBounds, Sent},
    partition::partition_of,
};
use crate::client::Properties;

/// `offset.storage.topic`: the last offset of each connector. Clones share it.
#[derive(Debug, Clone)]
pub struct OffsetLog(Arc<Inner>);

struct Inner {
    log: Log,
    latest: Mutex<Latest>,
    creation: Mutex<Creation>,
    keys: Mutex<Keys>,
}

/// How the topic is checked, and created if need be.
struct Creation {
    /// `None`: this process does not create it.
    topic: Option<(Topic, Properties)>,
    /// It is done before the topic is used, unless the worker has done it, and again if the topic was deleted meanwhile.
    is_due: bool,
}

/// Keys of offsets that this process has read or written.
#[derive(Default)]
struct Keys {
    stored: HashSet<Vec<u8>>,
    /// Those that are gone with a topic that was deleted. Without their offset, their connectors would begin as new.
    lost: HashSet<Vec<u8>>,
}

impl Keys {
    fn know(&mut self, key: &[u8], is_stored: bool) {
        self.lost.remove(key);
        match is_stored {
            true => {
                self.stored.insert(key.to_vec());
            }
            false => {
                self.stored.remove(key);
            }
        }
    }

    /// The topic was deleted.
    fn lose(&mut self) {
        self.lost.extend(self.stored.drain());
    }
}

/// The last record of each key in each partition; `None` is a tombstone. A topic that was given more partitions may have records of a key
/// in a partition to which the key does not belong any more. They are older than those in its present one, whatever order they are read in.
/// So a record that moves to another partition is removed from the earlier one ([`OffsetRecord::MOVED`]): the topic may be given more partitions
/// again before the next record.
#[derive(Default)]
struct Latest(HashMap<Vec<u8>, BTreeMap<i32, LatestRecord>>);

/// The last record of a key in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LatestRecord {
    /// `None` is a tombstone.
    record: Option<OffsetRecord>,
    /// When it was sent, milliseconds since 1970. Only known of a record that was read.
    sent_ms: Option<i64>,
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

impl Latest {
    /// A record was read, after all that precede it in its partition. Returns whether it counts.
    ///
    /// A record does not if it was sent before the one that precedes it, and has a lower position. Then it comes from a process that was cut off from
    /// the brokers or stopped: its system has gone on sending when the way was free, perhaps long after another process has taken over and
    /// has stored more. The time alone does not say so, because machines have different clocks. Nor does the position, which somebody may set back.
    fn read(&mut self, key: Vec<u8>, partition: i32, record: Option<OffsetRecord>, sent_ms: Option<i64>) -> bool {
        let places = self.0.entry(key).or_default();
        if let Some(before) = places.get(&partition)
            && sent_ms.zip(before.sent_ms).is_some_and(|(its, before)| its < before)
            && let (Some(before), Some(record)) = (&before.record, &record)
            && record
                .position()
                .zip(before.position())
                .is_some_and(|(its, before)| its < before)
        {
            return false;
        }
        places.insert(partition, LatestRecord { record, sent_ms });
        true
    }

    /// The time of the next record of a key: later than that of the last one even where this machine's clock is behind. What somebody has set back
    /// on this machine is not passed over for that.
    fn later(&self, key: &[u8], partition: i32) -> Option<i64> {
        let last = self.0.get(key)?.get(&partition)?.sent_ms?;
        (last >= now_ms()).then_some(last + 1)
    }

    /// A record was written to a partition.
    fn written(&mut self, key: &[u8], partition: i32, record: Option<&OffsetRecord>) {
        let places = self.0.entry(key.to_vec()).or_default();
        places.entry(partition).or_insert_with(|| LatestRecord {
            record: record.cloned(),
            sent_ms: None,
        });
    }

    /// The partitions that have an offset of a key, except one.
    fn elsewhere(&self, key: &[u8], partition: i32) -> Vec<i32> {
        let places = self.0.get(key).into_iter().flatten();
        let others = places.filter(|(place, latest)| **place != partition && latest.record.is_some());
        others.map(|(&place, _)| place).collect()
    }

    /// The record of a key in this partition does not count any more.
    fn moved(&mut self, key: &[u8], partition: i32) {
        if let Some(places) = self.0.get_mut(key) {
            places.remove(&partition);
        }
    }

    /// The offset of a key in a topic with so many partitions.
    fn get(&self, key: &[u8], topic: &str, partitions: i32) -> Result<Option<OffsetRecord>, Failure> {
        let Some(places) = self.0.get(key) else {
            return Ok(None);
        };
        let home = partition_of(key, partitions);
        if let Some(latest) = places.get(&home) {
            return Ok(latest.record.clone());
        }
        let mut elsewhere = places.values();
        match (elsewhere.next(), elsewhere.next()) {
            (Some(latest), None) => Ok(latest.record.clone()),
            (None, _) => Ok(None),
            (Some(_), Some(_)) => {
                let places: Vec<String> = places.keys().map(i32::to_string).collect();
                Err(Failure::stop(
                    Kind::TwoOffsets,
                    format!(
                        "topic {topic} has records of {} in partitions {}, and none in partition {home}, to which the key belongs since the \
                         topic has {partitions} partitions: nobody can tell which one is the last",
                        String::from_utf8_lossy(key),
                        places.join(" and ")
                    ),
                    "write a known position with PATCH /connectors/NAME/offsets while the connector is stopped",
                ))
            }
        }
    }
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl OffsetRecord {
    /// The header of Walferry's additions. Connect ignores headers in its own topics.
    pub(crate) const ADDITIONS: &str = "walferry.offset";
    /// The header of a tombstone in a partition that the key does not belong to any more. It says nothing of the offset in another one.
    const MOVED: &str = "walferry.moved";

    /// Everything up to it has been processed.
    fn position(&self) -> Option<u64> {
        let offset: SourceOffset = serde_json::from_str(&self.value).ok()?;
        offset.lsn_proc
    }
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
            creation: Mutex::new(Creation {
                topic: Some((topics.offset.clone(), topics.client.clone())),
                is_due: false,
            }),
            keys: Mutex::default(),
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
                has_records: true,
                name: name.to_owned(),
                partitions: 1,
                replication: -1,
                settings: Vec::new(),
            },
        };
        let log = Log::open_with(&client, &Lease::default(), name)?;
        Ok(Self(Arc::new(Inner {
            log,
            latest: Mutex::default(),
            creation: Mutex::new(Creation {
                topic: Some((topic, client)),
                is_due: true,
            }),
            keys: Mutex::default(),
        })))
    }

    /// The same, which fails if there is no topic.
    #[must_use]
    pub fn never_created(self) -> Self {
        self.creation().topic = None;
        self
    }

    /// Name of the topic.
    pub fn topic(&self) -> &str {
        self.0.log.topic()
    }

    fn ensure(&self) -> Result<(), Failure> {
        let mut creation = self.creation();
        if let (true, Some((topic, client))) = (creation.is_due, &creation.topic) {
            topic.ensure(client)?;
        }
        creation.is_due = false;
        Ok(())
    }

    fn creation(&self) -> MutexGuard<'_, Creation> {
        self.0.creation.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.0.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process may work for the connectors whose offsets are in the topic.
    pub fn lease(&self) -> Lease {
        self.0.log.lease()
    }

    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.0.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last offset of a key, after the topic was read to its end. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read, or several of its partitions have the key and none is the one it belongs to.
    pub fn read(&self, key: &str) -> Result<Option<OffsetRecord>, Failure> {
        self.catch_up()?;
        self.get(key.as_bytes())
    }

    fn get(&self, key: &[u8]) -> Result<Option<OffsetRecord>, Failure> {
        let found = self.latest().get(key, self.topic(), self.0.log.partitions())?;
        if found.is_none() && self.keys().lost.contains(key) {
            return Err(Failure::stop(
                Kind::OffsetDamaged,
                format!(
                    "the offset {} was in topic {}, and is not there any more: the topic was deleted and created again, or has lost records",
                    String::from_utf8_lossy(key),
                    self.topic()
                ),
                "restore the topic; or, while the connector is stopped, write a known position with PATCH /connectors/NAME/offsets, or remove \
                 it with DELETE to begin as new",
            ));
        }
        Ok(found)
    }

    /// Fails if the topic is not the one any more that was read.
    async fn refuse_replaced(&self) -> Result<(), Failure> {
        if self.0.log.is_in_doubt() {
            let (sender, receiver) = oneshot::channel();
            let log = self.clone();
            let _ = thread::Builder::new()
                .name("offset-topic".into())
                .spawn(move || sender.send(log.0.log.resolve_doubt()));
            // Without a thread, it stays in doubt until the next offset.
            if let Ok(resolved) = receiver.await {
                resolved?;
            }
        }
        match self.0.log.is_replaced() {
            true => Err(self.replaced()),
            false => Ok(()),
        }
    }

    /// An offset of another producer is in the topic. `lower_bounds`: what was known when it was sent.
    ///
    /// # Errors
    /// The topic is not the one any more that was read.
    pub(crate) fn written(
        &self,
        lower_bounds: &HashMap<i32, i64>,
        key: &str,
        (partition, offset): (i32, i64),
    ) -> Result<(), Failure> {
        let log = &self.0.log;
        log.lower_bounds()
            .written(lower_bounds, log.expected(key.as_bytes()), partition, offset);
        if log.is_replaced() || (log.is_in_doubt() && log.resolve_doubt()?) {
            return Err(self.replaced());
        }
        Ok(())
    }

    /// The session ends: only the next one reads the topic again.
    fn replaced(&self) -> Failure {
        Failure::new(
            Disposition::Replay,
            Kind::ConnectTopic,
            format!(
                "topic {} was deleted and created again, or has lost records; the offset is read again",
                self.topic()
            ),
            None,
        )
    }

    pub(crate) fn lower_bounds(&self) -> Arc<LowerBounds> {
        self.0.log.lower_bounds()
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
    /// The topic cannot be read, or an offset cannot be told, as in [`read`](Self::read).
    pub fn of_connector(&self, name: &str) -> Result<Vec<(String, OffsetRecord)>, Failure> {
        let mut ours = Vec::new();
        for key in self.keys_of_connector(name)? {
            if let Some(record) = self.get(key.as_bytes())? {
                ours.push((key, record));
            }
        }
        Ok(ours)
    }

    /// All keys of a connector, also those whose offset was removed or cannot be told, after the topic was read to its end. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read.
    pub fn keys_of_connector(&self, name: &str) -> Result<Vec<String>, Failure> {
        self.catch_up()?;
        let beginning = format!("[{},", quoted(name));
        let latest = self.latest();
        let keys = latest.0.keys().filter_map(|key| str::from_utf8(key).ok());
        let mut ours: Vec<String> = keys
            .filter(|key| key.starts_with(&beginning))
            .map(str::to_owned)
            .collect();
        ours.sort();
        Ok(ours)
    }

    fn catch_up(&self) -> Result<(), Failure> {
        self.ensure()?;
        if self.0.log.look_for_replacement()? {
            warn!(
                topic = self.topic(),
                "the topic of offsets was deleted and created again, or has lost records"
            );
            self.keys().lose();
            self.latest().0.clear();
            self.creation().is_due = true;
            self.ensure()?;
        }
        // Those after which nothing else came: each one that is there is read by every process that starts.
        let mut late = BTreeSet::new();
        self.0.log.read_to_end(|partition, entry| {
            if entry.value.is_none() && entry.headers.iter().any(|(name, _)| name == OffsetRecord::MOVED) {
                self.latest().moved(&entry.key, partition);
                return;
            }
            let additions = entry
                .headers
                .into_iter()
                .find(|(name, _)| name == OffsetRecord::ADDITIONS)
                .map(|(_, value)| value);
            // Apply it at once: if the reading fails later, the record is not passed on again.
            let record = entry.value.map(|value| OffsetRecord {
                value: String::from_utf8_lossy(&value).into_owned(),
                additions: additions.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            });
            let is_stored = record.is_some();
            if self.latest().read(entry.key.clone(), partition, record, entry.at_ms) {
                self.keys().know(&entry.key, is_stored);
                late.remove(&(entry.key, partition));
            } else {
                late.insert((entry.key, partition));
            }
        })?;
        for (key, partition) in late {
            info!(
                key = %String::from_utf8_lossy(&key),
                topic = self.topic(),
                partition,
                "the last offset is passed over: it was sent before the one that precedes it and arrived late, from a process that had been cut \
                 off or stopped"
            );
        }
        Ok(())
    }

    /// The time of the next record of a key, milliseconds since 1970, if it is not that at which the record is sent: see [`Latest::later`].
    pub(crate) fn time_of_next(&self, key: &str) -> Option<i64> {
        let home = partition_of(key.as_bytes(), self.0.log.partitions());
        self.latest().later(key.as_bytes(), home)
    }

    fn entry(&self, key: &str, record: Option<OffsetRecord>) -> LogRecord {
        let additions = record.as_ref().and_then(|record| record.additions.clone());
        LogRecord {
            key: key.as_bytes().to_vec(),
            value: record.map(|record| record.value.into_bytes()),
            at_ms: self.time_of_next(key),
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
        for (partition, sent) in self.remove_first(key, record.as_ref()) {
            self.removed(key, partition, sent?.await)?;
        }
        let delivered = self.0.log.send(&self.entry(key, record.clone()))?;
        let partition = self.0.log.settled(delivered.await)?;
        self.keys().know(key.as_bytes(), record.is_some());
        self.refuse_replaced().await?;
        for (partition, sent) in self.remove_last(key, partition, record.as_ref()) {
            if let Ok(delivered) = sent {
                self.outdated(key, partition, delivered.await);
            }
        }
        Ok(())
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
        let records: Vec<_> = records.into_iter().collect();
        for (key, record) in &records {
            for (partition, sent) in self.remove_first(key, record.as_ref()) {
                self.removed(key, partition, sent?.blocking_recv())?;
            }
        }
        let sent: Vec<_> = records
            .iter()
            .map(|(key, record)| self.0.log.send(&self.entry(key, record.clone())))
            .collect();
        // Wait for all of them, so that nothing is under way when this returns.
        let written: Vec<_> = sent
            .into_iter()
            .map(|sent| sent.and_then(|delivered| self.0.log.settled(delivered.blocking_recv())))
            .collect();
        for ((key, record), partition) in records.iter().zip(written) {
            let partition = partition?;
            self.keys().know(key.as_bytes(), record.is_some());
            for (partition, sent) in self.remove_last(key, partition, record.as_ref()) {
                if let Ok(delivered) = sent {
                    self.outdated(key, partition, delivered.blocking_recv());
                }
            }
        }
        Ok(())
    }

    /// An offset was written by another producer, to the partition that its key belongs to: removes it from earlier ones. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read or written.
    pub(crate) fn settle(&self, key: &str, written: &OffsetRecord) -> Result<(), Failure> {
        self.keys().know(key.as_bytes(), true);
        let home = partition_of(key.as_bytes(), self.0.log.partitions());
        if self.latest().elsewhere(key.as_bytes(), home).is_empty() {
            return Ok(());
        }
        // The topic may have more partitions by now.
        self.catch_up()?;
        let home = partition_of(key.as_bytes(), self.0.log.partitions());
        let last = self
            .latest()
            .0
            .get(key.as_bytes())
            .and_then(|places| places.get(&home))
            .cloned();
        if last.and_then(|latest| latest.record).as_ref() != Some(written) {
            return Ok(());
        }
        for (partition, sent) in self.remove_last(key, home, Some(written)) {
            if let Ok(delivered) = sent {
                self.outdated(key, partition, delivered.blocking_recv());
            }
        }
        Ok(())
    }

    /// Before an offset is removed from the partition of its key, it is removed from earlier ones: they would outlive that tombstone.
    fn remove_first(&self, key: &str, record: Option<&OffsetRecord>) -> Vec<(i32, Sent)> {
        match record {
            Some(_) => Vec::new(),
            None => self.remove_elsewhere(key, partition_of(key.as_bytes(), self.0.log.partitions())),
        }
    }

    /// After an offset was written to a partition, it is removed from earlier ones.
    fn remove_last(&self, key: &str, partition: i32, record: Option<&OffsetRecord>) -> Vec<(i32, Sent)> {
        self.latest().written(key.as_bytes(), partition, record);
        self.remove_elsewhere(key, partition)
    }

    fn remove_elsewhere(&self, key: &str, partition: i32) -> Vec<(i32, Sent)> {
        let tombstone = LogRecord {
            key: key.as_bytes().to_vec(),
            value: None,
            headers: vec![(OffsetRecord::MOVED.to_owned(), Vec::new())],
            at_ms: None,
        };
        let places = self.latest().elsewhere(key.as_bytes(), partition).into_iter();
        places
            .map(|place| (place, self.0.log.send_to(Some(place), &tombstone)))
            .collect()
    }

    fn removed(&self, key: &str, partition: i32, delivered: Delivered) -> Result<(), Failure> {
        self.0.log.settled(delivered)?;
        self.latest().moved(key.as_bytes(), partition);
        Ok(())
    }

    /// The same where a newer offset is durable. Without this tombstone, the older one only becomes a question if the topic is given more partitions
    /// again. So it is not tried again: the partition may have no leader for long.
    fn outdated(&self, key: &str, partition: i32, delivered: Delivered) {
        if let Err(failure) = self.0.log.settled(delivered) {
            debug!(
                partition,
                "an older offset stays in the partition that its key belonged to: {failure}"
            );
        }
        self.latest().moved(key.as_bytes(), partition);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_partition_that_a_key_belongs_to_now_decides_and_two_others_are_refused() {
        let record = |value: &str| {
            Some(OffsetRecord {
                value: value.to_owned(),
                additions: None,
            })
        };
        let key = b"[\"shop\",{\"server\":\"orders\"}]";
        let home = partition_of(key, 25);
        let (one, other) = ((home + 1) % 25, (home + 2) % 25);
        let found = |places: &[(i32, Option<OffsetRecord>)]| {
            let mut latest = Latest::default();
            for (partition, record) in places.iter().cloned() {
                latest.read(key.to_vec(), partition, record, None);
            }
            latest.get(key, "offsets", 25)
        };
        assert_eq!(
            found(&[(one, record("old")), (home, record("new")), (other, record("older"))]).unwrap(),
            record("new")
        );
        assert_eq!(found(&[(one, record("old")), (home, None)]).unwrap(), None);
        assert_eq!(found(&[(one, record("only"))]).unwrap(), record("only"));
        assert_eq!(found(&[(one, None)]).unwrap(), None);
        let refused = found(&[(one, record("a")), (other, record("b"))]).unwrap_err();
        assert_eq!(refused.kind, Kind::TwoOffsets);
        assert_eq!(Latest::default().get(key, "offsets", 25).unwrap(), None);
    }

    #[test]
    fn an_offset_that_arrives_after_one_that_was_sent_later_is_passed_over() {
        let record = |position: u64| {
            Some(OffsetRecord {
                value: format!("{{\"lsn_proc\":{position}}}"),
                additions: None,
            })
        };
        // What is read: when it was sent, and its position. Which one is the last.
        let cases = [
            ([(10, record(100)), (20, record(200)), (11, record(110))], record(200)),
            // The clock of the process that has taken over is slow.
            ([(10, record(100)), (20, record(200)), (11, record(210))], record(210)),
            // Somebody has set the position back.
            ([(10, record(100)), (20, record(200)), (21, record(110))], record(110)),
            // Somebody has removed it.
            ([(10, record(100)), (20, record(200)), (11, None)], None),
            ([(10, record(100)), (20, None), (11, record(110))], record(110)),
        ];
        let key = b"[\"shop\",{\"server\":\"orders\"}]";
        for (read, expected) in cases {
            let mut latest = Latest::default();
            for (sent_ms, record) in read.clone() {
                latest.read(key.to_vec(), 0, record, Some(sent_ms));
            }
            assert_eq!(latest.get(key, "offsets", 1).unwrap(), expected, "{read:?}");
        }
    }

    #[test]
    fn an_offset_that_is_set_back_where_the_clock_is_behind_has_a_later_time() {
        let (key, ahead) = (b"[\"shop\",{\"server\":\"orders\"}]", now_ms() + 60_000);
        let record = |position: u64| {
            Some(OffsetRecord {
                value: format!("{{\"lsn_proc\":{position}}}"),
                additions: None,
            })
        };
        let mut latest = Latest::default();
        assert_eq!(latest.later(key, 0), None);
        latest.read(key.to_vec(), 0, record(200), Some(ahead));
        let time = latest.later(key, 0);
        assert_eq!(time, Some(ahead + 1));
        assert!(latest.read(key.to_vec(), 0, record(100), time), "it counts");
        latest.read(key.to_vec(), 0, record(300), Some(1_000));
        assert_eq!(latest.later(key, 0), None, "the client sets the time");
    }

    #[test]
    fn an_offset_that_was_moved_from_partition_to_partition_is_the_only_one() {
        let record = |value: &str| OffsetRecord {
            value: value.to_owned(),
            additions: None,
        };
        let (key, mut latest) = (b"[\"shop\",{\"server\":\"orders\"}]", Latest::default());
        latest.read(key.to_vec(), 0, Some(record("one partition")), None);
        let home = partition_of(key, 25);
        let (second, value) = ((home + 1) % 25, record("few partitions"));
        latest.written(key, second, Some(&value));
        assert_eq!(latest.elsewhere(key, second), [0]);
        latest.moved(key, 0);
        assert_eq!(latest.get(key, "offsets", 25).unwrap(), Some(value));
    }
}
