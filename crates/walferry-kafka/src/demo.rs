//! Kafka for `walferry demo` and for tests: a cluster inside this process, and a consumer that follows all topics.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, KafkaResult},
    message::Headers as _,
    mocking::MockCluster,
    producer::DefaultProducerContext,
};

/// librdkafka's mock cluster: brokers on ports of 127.0.0.1 that live as long as this. It creates topics when they are first
/// asked for, and forgets everything at the end.
pub struct DemoCluster(MockCluster<'static, DefaultProducerContext>);

impl DemoCluster {
    /// Starts brokers.
    ///
    /// # Errors
    /// No port can be had.
    pub fn start(brokers: u16) -> Result<Self, KafkaError> {
        MockCluster::new(i32::from(brokers)).map(Self)
    }

    /// Where to connect to.
    pub fn bootstrap_servers(&self) -> String {
        self.0.bootstrap_servers()
    }

    /// Creates a topic with one replica.
    ///
    /// # Errors
    /// It exists.
    pub fn create_topic(&self, name: &str, partitions: i32) -> Result<(), KafkaError> {
        self.0.create_topic(name, partitions, 1)
    }

    /// librdkafka's own handle, for tests that make brokers fail.
    #[cfg(test)]
    pub(crate) fn mock(&self) -> &MockCluster<'static, DefaultProducerContext> {
        &self.0
    }
}

/// A record as a consumer gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Topic.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970.
    pub timestamp_ms: Option<i64>,
    /// Key; `None` for Kafka's null.
    pub key: Option<Vec<u8>>,
    /// Value; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
    /// Headers in order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Reads topics of a cluster, also those that come later.
pub struct Follower {
    consumer: BaseConsumer,
    /// Empty for all topics.
    topics: Vec<String>,
    followed: BTreeSet<(String, i32)>,
    look_at: Instant,
}

/// How often new topics are looked for.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

impl Follower {
    /// Follows all topics of a cluster from their beginning.
    ///
    /// # Errors
    /// The servers are malformed.
    pub fn new(bootstrap_servers: &str) -> Result<Self, KafkaError> {
        Self::with_topics(bootstrap_servers, Vec::new())
    }

    /// Follows some topics of a cluster from now on: of those that exist, only new records are read.
    ///
    /// # Errors
    /// The servers are malformed, or none answers.
    pub fn from_now(bootstrap_servers: &str, topics: &[&str]) -> Result<Self, KafkaError> {
        let mut follower = Self::with_topics(bootstrap_servers, topics.iter().map(ToString::to_string).collect())?;
        let ends = |consumer: &BaseConsumer, topic: &str, partition| {
            let (_, end) = consumer.fetch_watermarks(topic, partition, Duration::from_secs(10))?;
            Ok(Offset::Offset(end))
        };
        follower.add_new_partitions(ends)?;
        Ok(follower)
    }

    fn with_topics(bootstrap_servers: &str, topics: Vec<String>) -> Result<Self, KafkaError> {
        let consumer = ClientConfig::new()
            .set("bootstrap.servers", bootstrap_servers)
            .set("group.id", "walferry-demo")
            .set("enable.auto.commit", "false")
            .set("fetch.wait.max.ms", "5")
            .create()?;
        Ok(Self {
            consumer,
            topics,
            followed: BTreeSet::new(),
            look_at: Instant::now(),
        })
    }

    /// The next record, if there is one within a time.
    ///
    /// # Errors
    /// The cluster does not answer.
    pub fn next(&mut self, wait: Duration) -> Result<Option<Received>, KafkaError> {
        let until = Instant::now() + wait;
        loop {
            if Instant::now() >= self.look_at {
                self.add_new_partitions(|_, _, _| Ok(Offset::Beginning))?;
                self.look_at = Instant::now() + LOOK_INTERVAL;
            }
            let pause = until.min(self.look_at).saturating_duration_since(Instant::now());
            match self.consumer.poll(pause) {
                Some(message) => return message.map(|message| Some(received(&message))),
                None if Instant::now() >= until => return Ok(None),
                None => {}
            }
        }
    }

    /// Adds the partitions that are new, each from the offset that `from` says.
    fn add_new_partitions(
        &mut self,
        from: impl Fn(&BaseConsumer, &str, i32) -> KafkaResult<Offset>,
    ) -> KafkaResult<()> {
        let metadata = self.consumer.fetch_metadata(None, Duration::from_secs(5))?;
        let mut new = TopicPartitionList::new();
        let is_wanted = |name: &str| match self.topics.as_slice() {
            [] => !name.starts_with("__"),
            topics => topics.iter().any(|topic| topic == name),
        };
        for topic in metadata.topics().iter().filter(|topic| is_wanted(topic.name())) {
            for partition in topic.partitions() {
                if self.followed.insert((topic.name().to_owned(), partition.id())) {
                    let offset = from(&self.consumer, topic.name(), partition.id())?;
                    new.add_partition_offset(topic.name(), partition.id(), offset)?;
                }
            }
        }
        if new.count() > 0 {
            self.consumer.incremental_assign(&new)
        } else {
            Ok(())
        }
    }
}

fn received(message: &impl Message) -> Received {
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    Received {
        topic: message.topic().to_owned(),
        partition: message.partition(),
        offset: message.offset(),
        timestamp_ms: message.timestamp().to_millis(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers: headers
            .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
            .collect(),
    }
}
