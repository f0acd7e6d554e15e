//! Reading everything that topics hold.

use super::process::wait_for;
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A record as a consumer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset within the partition.
    pub offset: i64,
    /// Create time in milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
    /// Key bytes; `None` is a null key.
    pub key: Option<Vec<u8>>,
    /// Value bytes; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers in order; a name may repeat.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Record {
    /// The key as text; panics where it is not UTF-8.
    #[track_caller]
    pub fn key_text(&self) -> Option<&str> {
        self.key
            .as_deref()
            .map(|bytes| std::str::from_utf8(bytes).expect("the key is text"))
    }

    /// The value as text; panics where it is not UTF-8.
    #[track_caller]
    pub fn value_text(&self) -> Option<&str> {
        self.value
            .as_deref()
            .map(|bytes| std::str::from_utf8(bytes).expect("the value is text"))
    }

    /// The first header of that name, as text.
    #[track_caller]
    pub fn header_text(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(header, _)| header == name)?;
        value
            .as_deref()
            .map(|bytes| std::str::from_utf8(bytes).expect("the header is text"))
    }
}

const TIMEOUT: Duration = Duration::from_secs(20);
/// Records that are read between two looks at how far that is.
const BATCH: usize = 10_000;

/// Where a partition begins and ends.
#[derive(Debug)]
pub(super) struct Extent {
    topic: String,
    partition: i32,
    low: i64,
    high: i64,
}

impl Extent {
    /// How many offsets are between.
    pub(super) fn len(&self) -> usize {
        usize::try_from(self.high - self.low).expect("a partition ends after its begin")
    }

    /// Topic and partition, and the offset behind the last record.
    pub(super) fn into_end(self) -> ((String, i32), i64) {
        ((self.topic, self.partition), self.high)
    }
}

/// A consumer that is told what to read, in no group.
pub(super) struct Reader(BaseConsumer);

impl Reader {
    pub(super) fn new(bootstrap: &str) -> Self {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", bootstrap)
            .set("group.id", "walferry-test")
            .set("enable.auto.commit", "false")
            .set("isolation.level", "read_committed")
            .set("fetch.message.max.bytes", "33554432")
            .set("fetch.wait.max.ms", "20")
            .set("reconnect.backoff.max.ms", "500")
            // Tests stop brokers on purpose; the client's complaints would hide what matters.
            .set("log_level", "0");
        Self(config.create().expect("the configuration is valid"))
    }

    /// Names of all topics, sorted.
    pub(super) fn topics(&self) -> Result<Vec<String>, KafkaError> {
        let metadata = self.0.fetch_metadata(None, TIMEOUT)?;
        let mut names: Vec<String> = metadata.topics().iter().map(|topic| topic.name().into()).collect();
        names.sort_unstable();
        Ok(names)
    }

    /// Begin and end of each partition of a topic that exists.
    pub(super) fn extents(&self, topic: &str) -> Result<Vec<Extent>, KafkaError> {
        let metadata = self.0.fetch_metadata(Some(topic), TIMEOUT)?;
        let partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
        let extents = partitions.map(|partition| {
            let (low, high) = self.0.fetch_watermarks(topic, partition.id(), TIMEOUT)?;
            Ok(Extent {
                topic: topic.into(),
                partition: partition.id(),
                low,
                high,
            })
        });
        extents.collect()
    }

    /// The same of a topic that may not be there, in which case there are none: asking for its extents could create it.
    pub(super) fn extents_if_there(&self, topic: &str) -> Result<Vec<Extent>, KafkaError> {
        match self.topics()?.iter().any(|name| name == topic) {
            true => self.extents(topic),
            false => Ok(Vec::new()),
        }
    }

    /// When each of the first `count` records of a topic's partition 0 has come. Records of open transactions do not come.
    #[track_caller]
    pub(super) fn arrivals(&self, topic: &str, count: usize) -> Vec<Instant> {
        let mut assigned = TopicPartitionList::new();
        assigned
            .add_partition_offset(topic, 0, Offset::Beginning)
            .expect("the offset is valid");
        self.0.assign(&assigned).expect("the partition exists");
        let mut arrivals = Vec::new();
        while arrivals.len() < count {
            wait_for("the next record", || {
                self.0.poll(Duration::from_millis(100))?.ok()?;
                arrivals.push(Instant::now());
                Some(())
            });
        }
        arrivals
    }

    /// All records within some extents, by topic, partition and offset.
    #[track_caller]
    pub(super) fn read(&self, extents: &[Extent]) -> Vec<Record> {
        let mut records = Vec::new();
        self.each(extents, |record| records.push(record));
        records.sort_by(|a: &Record, b| (&a.topic, a.partition, a.offset).cmp(&(&b.topic, b.partition, b.offset)));
        records
    }

    /// The same one by one: in order within a partition.
    #[track_caller]
    pub(super) fn each(&self, extents: &[Extent], mut take: impl FnMut(Record)) {
        let mut assigned = TopicPartitionList::new();
        let mut left = HashMap::new();
        for extent in extents.iter().filter(|extent| extent.len() > 0) {
            let (topic, partition) = (extent.topic.as_str(), extent.partition);
            assigned
                .add_partition_offset(topic, partition, Offset::Beginning)
                .expect("the offset is valid");
            left.insert((extent.topic.clone(), partition), extent.high);
        }
        self.0.assign(&assigned).expect("the partitions exist");
        while !left.is_empty() {
            // Time runs anew for each batch: a topic may be long.
            wait_for("more of the partitions", || {
                let mut count = 0;
                while count < BATCH
                    && let Some(message) = self.0.poll(Duration::from_millis(100))
                {
                    if let Ok(message) = message {
                        take(copy(&message));
                        count += 1;
                    }
                }
                // The position also passes what no message shows, such as the marks of transactions.
                for at in self.0.position().expect("partitions are assigned").elements() {
                    let partition = (at.topic().to_owned(), at.partition());
                    if let (Offset::Offset(next), Some(high)) = (at.offset(), left.get(&partition))
                        && next >= *high
                    {
                        left.remove(&partition);
                    }
                }
                (count > 0 || left.is_empty()).then_some(())
            });
        }
    }
}

/// A consumer that stays: it hands out records as they become visible to those who read committed ones.
pub struct Follower(BaseConsumer);

impl Follower {
    #[track_caller]
    pub(super) fn new(bootstrap: &str, topics: &[String]) -> Self {
        let Reader(consumer) = Reader::new(bootstrap);
        let mut assigned = TopicPartitionList::new();
        for topic in topics {
            assigned
                .add_partition_offset(topic, 0, Offset::Beginning)
                .expect("the offset is valid");
        }
        consumer.assign(&assigned).expect("the partitions exist");
        Self(consumer)
    }

    /// The next record, if one comes within that time.
    pub fn next(&self, patience: Duration) -> Option<Record> {
        let message = self.0.poll(patience)?;
        // The client tries again by itself.
        message.ok().map(|message| copy(&message))
    }
}

fn copy(message: &BorrowedMessage<'_>) -> Record {
    let headers = message
        .headers()
        .map(|headers| headers.iter().map(|h| (h.key.into(), h.value.map(Into::into))));
    Record {
        topic: message.topic().into(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis(),
        key: message.key().map(Into::into),
        value: message.payload().map(Into::into),
        headers: headers.into_iter().flatten().collect(),
    }
}
