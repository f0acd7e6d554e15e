//! Reads the records of a topic again, between two positions of each partition.

use std::time::{Duration, Instant};

use rdkafka::{
    Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, KafkaResult},
    message::{BorrowedMessage, Headers as _},
    types::RDKafkaErrorCode,
};
use serde::{Deserialize, Serialize};
use walferry_config::{Connector, Options, Worker};
use walferry_engine::{Failure, Kind};

use crate::{ClientSettings, auth::tokens::LoggedIn, client, failure};

/// How long a broker may take for an answer.
const REQUEST: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(200);
/// How long to wait for another record before giving up.
const SILENCE: Duration = Duration::from_secs(60);

/// A part of a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffsetRange {
    /// The partition.
    pub partition: i32,
    /// The offset of the next record.
    pub from: i64,
    /// The offset behind the last one.
    pub to: i64,
}

impl OffsetRange {
    /// How many offsets it has. Not each of them needs to have a record.
    pub fn len(&self) -> u64 {
        u64::try_from(self.to - self.from).unwrap_or_default()
    }

    /// Whether nothing is left of it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where reading begins, or what it ends before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// An offset of one partition, or of all.
    Offsets(Vec<(Option<i32>, i64)>),
    /// The first record with this time or a later one, in milliseconds since 1970.
    Time(i64),
}

impl Bound {
    /// The offset for a partition; `None` if only other partitions are named.
    fn offset(&self, partition: i32) -> Option<i64> {
        let Self::Offsets(offsets) = self else { return None };
        let own = offsets.iter().find(|(of, _)| *of == Some(partition));
        let found = own.or_else(|| offsets.iter().find(|(of, _)| of.is_none()));
        found.map(|(_, offset)| *offset)
    }

    /// Checks that an end is named for a partition that is read.
    fn check_end_of(&self, partition: i32) -> Result<(), Failure> {
        match self {
            Self::Offsets(_) if self.offset(partition).is_none() => Err(Failure::stop(
                Kind::Replay,
                format!("partition {partition} has no end, and other partitions have one"),
                format!(
                    "write --until-offset {partition}:OFFSET, too, or --until-offset OFFSET for all partitions. To read only some \
                     partitions, name these with --from-offset PARTITION:OFFSET"
                ),
            )),
            _ => Ok(()),
        }
    }
}

/// A record as it stands in the topic.
#[derive(Debug)]
pub struct Copied<'a> {
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its timestamp.
    pub timestamp_ms: Option<i64>,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: Vec<(&'a str, Option<&'a [u8]>)>,
}

/// Takes the records that are read. With an error it ends the reading.
pub trait RecordVisitor {
    /// Its error.
    type Error: From<Failure>;

    /// Takes a record.
    ///
    /// # Errors
    /// It cannot.
    fn take(&mut self, record: &Copied<'_>) -> Result<(), Self::Error>;

    /// Is called after each record, and now and then if none comes, with what is left.
    ///
    /// # Errors
    /// The reading is to end.
    fn between(&mut self, left: &[OffsetRange]) -> Result<(), Self::Error>;
}

/// Reads one topic. It is in no consumer group, and commits nothing.
pub struct TopicReader {
    topic: String,
    consumer: LoggedIn<BaseConsumer>,
}

impl TopicReader {
    /// Connects with what secures the connector's producer.
    ///
    /// # Errors
    /// The client cannot be made.
    pub fn open(
        worker: &Worker,
        connector: &Connector,
        settings: &ClientSettings,
        topic: &str,
    ) -> Result<Self, Failure> {
        let mut properties = client::signals(worker, &Options::default(), &settings.producer);
        for (name, value) in [
            ("bootstrap.servers", settings.bootstrap_servers()),
            ("client.id", &*format!("connector-replay-{}-0", connector.name)),
            // It is in no group, but the client wants one.
            ("group.id", "walferry"),
            ("enable.auto.commit", "false"),
            ("auto.offset.reset", "error"),
            // What a transaction has taken back was never there.
            ("isolation.level", "read_committed"),
            ("enable.partition.eof", "true"),
            ("allow.auto.create.topics", "false"),
            ("queued.max.messages.kbytes", "4096"),
        ] {
            properties.values.insert(name.to_owned(), value.to_owned());
        }
        let consumer: BaseConsumer = properties
            .config()
            .create()
            .map_err(|error| failure::of_settings(&error))?;
        let consumer = LoggedIn::new(consumer, &properties);
        consumer.ready()?;
        Ok(Self {
            topic: topic.to_owned(),
            consumer,
        })
    }

    fn unread(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::stop(
            Kind::Replay,
            format!("topic {} cannot be read: {error}", self.topic),
            "look whether the brokers can be reached, whether the topic exists, and whether the Kafka user may read it",
        )
    }

    /// What there is between two bounds of each partition, or to its present end. Partitions that the first bound does not name are left
    /// out.
    ///
    /// # Errors
    /// The topic cannot be read, or a partition or an offset does not exist. Or ends are named for other partitions only.
    pub fn ranges(&self, start: &Bound, until: Option<&Bound>) -> Result<Vec<OffsetRange>, Failure> {
        let partitions = self.partitions()?;
        let (starts, untils) = (
            self.resolved(start, &partitions)?,
            until.map(|until| self.resolved(until, &partitions)).transpose()?,
        );
        let mut ranges = Vec::new();
        for &partition in &partitions {
            let (first, end) = self
                .consumer
                .fetch_watermarks(&self.topic, partition, REQUEST)
                .map_err(|error| self.unread(&error))?;
            let Some(from) = self.place(start, starts.as_ref(), partition, end)? else {
                continue;
            };
            if let Some(until) = until {
                until.check_end_of(partition)?;
            }
            if from < first && matches!(start, Bound::Offsets(_)) && from != 0 {
                return Err(Failure::stop(
                    Kind::Replay,
                    format!(
                        "partition {partition} of topic {} begins at offset {first}: what was before offset {first} is no longer there",
                        self.topic
                    ),
                    format!(
                        "write --from-offset {partition}:{first}, or send the rows of the table again, if they are still there"
                    ),
                ));
            }
            let to = match until.zip(untils.as_ref()) {
                Some((until, untils)) => self.place(until, untils.as_ref(), partition, end)?,
                None => None,
            };
            let to = to.unwrap_or(end).clamp(first, end.max(first));
            ranges.push(OffsetRange {
                partition,
                from: from.clamp(first, to),
                to,
            });
        }
        Ok(ranges)
    }

    /// The partitions of the topic, in order.
    fn partitions(&self) -> Result<Vec<i32>, Failure> {
        let metadata = self
            .consumer
            .fetch_metadata(Some(&self.topic), REQUEST)
            .map_err(|error| self.unread(&error))?;
        let described = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        let mut partitions: Vec<i32> = described
            .map_or(&[][..], |topic| topic.partitions())
            .iter()
            .map(|partition| partition.id())
            .collect();
        partitions.sort_unstable();
        match partitions.is_empty() {
            true => Err(self.unread(&"the brokers show no partition of it")),
            false => Ok(partitions),
        }
    }

    /// Checks the partitions of a bound, and asks the brokers for the offsets of its time.
    fn resolved(&self, bound: &Bound, partitions: &[i32]) -> Result<Option<TopicPartitionList>, Failure> {
        let offsets = match bound {
            Bound::Time(time) => return self.offsets_at(partitions, *time).map(Some),
            Bound::Offsets(offsets) => offsets,
        };
        let mut named = offsets.iter().filter_map(|(partition, _)| *partition);
        match named.find(|partition| !partitions.contains(partition)) {
            None => Ok(None),
            Some(unknown) => Err(Failure::stop(
                Kind::Replay,
                format!("topic {} has no partition {unknown}", self.topic),
                format!("its partitions are 0 to {}", partitions.len() - 1),
            )),
        }
    }

    /// The offset of a bound in a partition. A time behind the last record is the end.
    fn place(
        &self,
        bound: &Bound,
        times: Option<&TopicPartitionList>,
        partition: i32,
        end: i64,
    ) -> Result<Option<i64>, Failure> {
        let Some(times) = times else {
            return Ok(bound.offset(partition));
        };
        let found = times.find_partition(&self.topic, partition);
        let answer = found.map_or(
            Err(KafkaError::OffsetFetch(RDKafkaErrorCode::UnknownPartition)),
            |found| found.error().map(|()| found.offset()),
        );
        let offset = at_time(answer, end);
        offset.map(Some).map_err(|error| {
            self.unread(&format_args!(
                "the brokers do not tell where partition {partition} has this time: {error}"
            ))
        })
    }

    fn offsets_at(&self, partitions: &[i32], time: i64) -> Result<TopicPartitionList, Failure> {
        let mut list = TopicPartitionList::new();
        for &partition in partitions {
            list.add_partition_offset(&self.topic, partition, Offset::Offset(time))
                .map_err(|error| self.unread(&error))?;
        }
        self.consumer
            .offsets_for_times(list, REQUEST)
            .map_err(|error| self.unread(&error))
    }

    /// Hands over every record of the ranges, and moves their starts behind it. Records of one partition come in their order.
    ///
    /// # Errors
    /// The topic cannot be read, or what the visitor returns.
    pub fn read<T: RecordVisitor>(&self, ranges: &mut [OffsetRange], visitor: &mut T) -> Result<(), T::Error> {
        let mut assignment = TopicPartitionList::new();
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            assignment
                .add_partition_offset(&self.topic, range.partition, Offset::Offset(range.from))
                .map_err(|error| self.unread(&error))?;
        }
        self.consumer.assign(&assignment).map_err(|error| self.unread(&error))?;
        let mut silence = Silence::begin(Instant::now());
        while ranges.iter().any(|range| !range.is_empty()) {
            silence.resume(Instant::now());
            let polled = self.consumer.poll(POLL);
            silence.pause(Instant::now());
            match polled {
                Some(Ok(message)) => {
                    if let Some(range) = unread_part(ranges, message.partition()) {
                        silence.end();
                        if message.offset() < range.to {
                            visitor.take(&copied(&message))?;
                        }
                        range.from = range.to.min(message.offset() + 1);
                        self.end_if_read(range)?;
                    }
                }
                // The last offsets may be marks of transactions, which no consumer is given.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    if let Some(range) = unread_part(ranges, partition) {
                        silence.end();
                        range.from = range.to;
                        self.end_if_read(range)?;
                    }
                }
                Some(Err(error)) if silence.length > SILENCE || is_final(&error) => {
                    return Err(self.unread(&error).into());
                }
                Some(Err(_)) => {}
                None if silence.length > SILENCE => {
                    return Err(self.unread(&"no broker answers").into());
                }
                None => {}
            }
            visitor.between(ranges)?;
        }
        Ok(())
    }

    /// The brokers need not send what comes after a range.
    fn end_if_read(&self, range: &OffsetRange) -> Result<(), Failure> {
        if !range.is_empty() {
            return Ok(());
        }
        let mut read = TopicPartitionList::new();
        read.add_partition(&self.topic, range.partition);
        self.consumer
            .incremental_unassign(&read)
            .map_err(|error| self.unread(&error))
    }
}

/// How long the brokers have sent nothing that was wanted. Time in which a record is handed over does not count: a producer may be slow.
struct Silence {
    length: Duration,
    since: Instant,
}

impl Silence {
    const fn begin(now: Instant) -> Self {
        Self {
            length: Duration::ZERO,
            since: now,
        }
    }

    /// The brokers are listened to.
    const fn resume(&mut self, now: Instant) {
        self.since = now;
    }

    /// Nobody listens to them.
    fn pause(&mut self, now: Instant) {
        self.length += now.saturating_duration_since(self.since);
    }

    /// Something came.
    const fn end(&mut self) {
        self.length = Duration::ZERO;
    }
}

/// The offset that the brokers name for a time in a partition. A time behind the last record is the end.
fn at_time(answer: KafkaResult<Offset>, end: i64) -> KafkaResult<i64> {
    let offset = answer?.to_raw();
    Ok(offset.filter(|offset| *offset >= 0).unwrap_or(end))
}

/// What is left of a partition. `None` for a partition that is read already.
fn unread_part(ranges: &mut [OffsetRange], partition: i32) -> Option<&mut OffsetRange> {
    ranges
        .iter_mut()
        .find(|range| range.partition == partition && !range.is_empty())
}

/// Whether trying again would not help.
fn is_final(error: &KafkaError) -> bool {
    use rdkafka::error::RDKafkaErrorCode as Code;
    matches!(
        error.rdkafka_error_code(),
        Some(
            Code::UnknownTopicOrPartition
                | Code::UnknownTopic
                | Code::UnknownPartition
                | Code::TopicAuthorizationFailed
                | Code::AutoOffsetReset
                | Code::OffsetOutOfRange
        )
    )
}

fn copied<'a>(message: &'a BorrowedMessage<'_>) -> Copied<'a> {
    let headers = message.headers().map(|headers| {
        let headers = headers.iter().map(|header| (header.key, header.value));
        headers.collect()
    });
    Copied {
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis(),
        key: message.key(),
        value: message.payload(),
        headers: headers.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(partition: i32, from: i64, to: i64) -> OffsetRange {
        OffsetRange { partition, from, to }
    }

    #[test]
    fn each_partition_has_an_end_if_one_has() {
        let until = Bound::Offsets(vec![(Some(0), 1500)]);
        assert!(until.check_end_of(0).is_ok());
        let failure = until.check_end_of(1).expect_err("it would be read to its end");
        let text = failure.to_string();
        assert!(text.contains("partition 1 has no end"), "{text}");
        let until = Bound::Offsets(vec![(Some(0), 1500), (None, 1600)]);
        assert!(until.check_end_of(1).is_ok());
        assert!(Bound::Time(0).check_end_of(1).is_ok());
    }

    #[test]
    fn a_partition_of_unknown_offset_is_not_taken_for_one_that_ends_before_the_time() {
        assert_eq!(at_time(Ok(Offset::Offset(5)), 9), Ok(5));
        assert_eq!(at_time(Ok(Offset::End), 9), Ok(9));
        let unknown = KafkaError::OffsetFetch(RDKafkaErrorCode::NotLeaderForPartition);
        assert_eq!(at_time(Err(unknown.clone()), 9), Err(unknown));
    }

    #[test]
    fn time_in_which_a_record_is_handed_over_is_no_silence_of_the_brokers() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut silence = Silence::begin(begin);
        silence.resume(at(0));
        silence.pause(at(20));
        silence.end();
        // The producer takes it after 70 seconds.
        silence.resume(at(90));
        silence.pause(at(91));
        assert_eq!(silence.length, Duration::from_secs(1));
        silence.resume(at(91));
        silence.pause(at(151));
        assert_eq!(silence.length, Duration::from_secs(61));
    }

    #[test]
    fn a_partition_that_is_read_takes_nothing_more() {
        let mut ranges = [range(0, 7, 7), range(1, 3, 9)];
        assert_eq!(unread_part(&mut ranges, 0), None);
        assert_eq!(unread_part(&mut ranges, 1), Some(&mut range(1, 3, 9)));
        assert_eq!(unread_part(&mut ranges, 2), None);
    }
}
