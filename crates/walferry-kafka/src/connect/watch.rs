//! Notices that others have written to Connect's topics.

use std::time::{Duration, Instant};

use rdkafka::{
    Message as _, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaError,
};
use walferry_engine::Failure;

use super::{ConnectTopics, group::REQUEST};
use crate::{auth::tokens::LoggedIn, client::Properties, failure};

/// How long a broker keeps a request that it has no record for.
const BROKER_WAITS_MS: &str = "500";
/// Records that follow within this time are noticed together.
const TOGETHER: Duration = Duration::from_millis(5);

/// Which topics may have new records.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicNews {
    /// The configuration topic.
    pub configurations: bool,
    /// The status topic.
    pub states: bool,
}

/// Waits for records of the configuration and status topics. It only notices that there are some: they are read where they are needed.
pub struct TopicWatch {
    consumer: LoggedIn<BaseConsumer>,
    client: Properties,
    config: String,
    status: String,
}

impl std::fmt::Debug for TopicWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TopicWatch").field("config", &self.config).finish()
    }
}

impl TopicWatch {
    /// Makes the client. Records that are written after this are noticed. Blocks.
    ///
    /// # Errors
    /// The client cannot be made, or Kafka does not answer.
    pub fn open(topics: &ConnectTopics) -> Result<Self, Failure> {
        let mut config = topics.client.config();
        for (name, value) in [
            // The consumer is in no group, but the client requires this setting.
            ("group.id", "walferry"),
            ("enable.auto.commit", "false"),
            ("auto.offset.reset", "latest"),
            ("isolation.level", "read_committed"),
            ("fetch.wait.max.ms", BROKER_WAITS_MS),
            ("queued.max.messages.kbytes", "1024"),
        ] {
            config.set(name, value);
        }
        let consumer: BaseConsumer = config.create().map_err(|error| failure::of_settings(&error))?;
        let consumer = LoggedIn::new(consumer, &topics.client);
        consumer.ready()?;
        let watch = Self {
            consumer,
            client: topics.client.clone(),
            config: topics.config.name.clone(),
            status: topics.status.name.clone(),
        };
        watch.assign()?;
        Ok(watch)
    }

    fn assign(&self) -> Result<(), Failure> {
        let mut list = TopicPartitionList::new();
        for topic in [&self.config, &self.status] {
            let metadata = self.consumer.fetch_metadata(Some(topic), REQUEST);
            let metadata = metadata.map_err(|error| self.unreachable(&error))?;
            let described = metadata.topics().iter().find(|described| described.name() == topic);
            for partition in described.map_or(&[][..], |described| described.partitions()) {
                list.add_partition_offset(topic, partition.id(), Offset::End)
                    .map_err(|error| self.unreachable(&error))?;
            }
        }
        self.consumer.assign(&list).map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &KafkaError) -> Failure {
        let servers = self.client.values.get("bootstrap.servers").map_or("", String::as_str);
        failure::unreachable(servers, &error.to_string())
    }

    /// Waits until a topic has new records, no longer than this. Blocks.
    pub fn wait(&self, limit: Duration) -> TopicNews {
        let (begun, mut news, mut patience) = (Instant::now(), TopicNews::default(), limit);
        while begun.elapsed() <= limit {
            match self.consumer.poll(patience) {
                Some(Ok(message)) if message.topic() == self.config => news.configurations = true,
                Some(Ok(_)) => news.states = true,
                // The client restores its connections by itself.
                Some(Err(_)) => continue,
                None => break,
            }
            patience = TOGETHER;
        }
        news
    }
}
