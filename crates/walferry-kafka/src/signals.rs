//! Signals from a topic.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, Consumer as _},
    error::KafkaError,
    message::BorrowedMessage,
};
use serde_json::Value;
use tracing::{info, warn};
use walferry_config::{Connector, Worker};
use walferry_engine::{
    Kind,
    status::{Signal, Status},
};

use crate::{ClientSettings, client};

/// How long one poll waits.
const POLL: Duration = Duration::from_millis(500);
/// Pause after a failure, and while too many signals wait.
const PAUSE: Duration = Duration::from_secs(5);

/// Reads signals until it is dropped.
#[derive(Debug)]
pub struct SignalReader {
    over: Arc<AtomicBool>,
}

impl Drop for SignalReader {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
    }
}

impl SignalReader {
    /// Passes the signals of the connector's topic on to its status, on its own thread. As in Debezium, a consumer group stores how far the
    /// topic was read. So signals that arrive while the connector does not run are read at its start.
    pub fn follow(worker: &Worker, connector: &Connector, settings: &ClientSettings, status: Arc<Status>) -> Self {
        let section = &connector.signals.kafka;
        let mut properties = client::signals(worker, &section.consumer, &settings.producer);
        let servers = section.bootstrap_servers.as_deref();
        let servers = servers.unwrap_or_else(|| settings.bootstrap_servers());
        let topic = section.topic.clone();
        let topic = topic.unwrap_or_else(|| format!("{}-signal", connector.topics.prefix));
        for (name, value) in [
            ("bootstrap.servers", servers),
            ("group.id", section.consumer.get("group.id").unwrap_or(&section.group)),
            ("client.id", &format!("connector-signals-{}-0", connector.name)),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "true"),
            ("enable.auto.offset.store", "false"),
        ] {
            properties.values.insert(name.to_owned(), value.to_owned());
        }
        let over = Arc::new(AtomicBool::new(false));
        let follower = Follower {
            key: connector.topics.prefix.to_string(),
            topic,
            over: over.clone(),
            status,
        };
        let span = tracing::Span::current();
        let run = move || {
            let _span = span.entered();
            while !follower.over.load(Relaxed) {
                if let Err(error) = follower.read(&properties) {
                    warn!(code = Kind::SignalsUnread.code(), topic = follower.topic, %error, "signals cannot be read from Kafka; retrying");
                    follower.status.count_error(Kind::SignalsUnread);
                    follower.pause();
                }
            }
        };
        if let Err(error) = thread::Builder::new().name("signals".into()).spawn(run) {
            warn!(%error, "signals cannot be read from Kafka, because a thread could not be started");
        }
        Self { over }
    }
}

struct Follower {
    topic: String,
    /// The key of our signals.
    key: String,
    over: Arc<AtomicBool>,
    status: Arc<Status>,
}

impl Follower {
    fn pause(&self) {
        let mut left = PAUSE;
        while !self.over.load(Relaxed) && left > Duration::ZERO {
            thread::sleep(POLL);
            left = left.saturating_sub(POLL);
        }
    }

    fn read(&self, properties: &client::Properties) -> Result<(), KafkaError> {
        let consumer: BaseConsumer = properties.config().create()?;
        properties.provide_token(consumer.client());
        let mut places = TopicPartitionList::new();
        places.add_partition_offset(&self.topic, 0, Offset::Stored)?;
        consumer.assign(&places)?;
        info!(topic = self.topic, "signals are read from Kafka");
        while !self.over.load(Relaxed) {
            let Some(message) = consumer.poll(POLL) else { continue };
            let message = message?;
            if let Some(signal) = self.signal(&message) {
                while self.status.signals.put(signal.clone()).is_err() {
                    self.pause();
                    if self.over.load(Relaxed) {
                        return Ok(());
                    }
                }
            }
            consumer.store_offset_from_message(&message)?;
        }
        Ok(())
    }

    fn signal(&self, message: &BorrowedMessage<'_>) -> Option<Signal> {
        let offset = message.offset();
        if message.key() != Some(self.key.as_bytes()) {
            info!(
                topic = self.topic,
                offset, "a signal is ignored: its key is not the connector's topic.prefix"
            );
            return None;
        }
        let signal = message.payload().and_then(signal);
        if signal.is_none() {
            warn!(
                topic = self.topic,
                offset, "a record is not a signal: its value must be a JSON object with id, type and data"
            );
        }
        signal
    }
}

/// The signal in a record's value.
fn signal(payload: &[u8]) -> Option<Signal> {
    let json: Value = serde_json::from_slice(payload).ok()?;
    Signal::from_json(&json)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_signals() {
        let read = signal(br#"{"id": "1", "type": "log", "data": {"message": "x"}}"#).unwrap();
        assert_eq!(
            (&*read.id, &*read.kind, &*read.data),
            ("1", "log", r#"{"message":"x"}"#)
        );
        assert_eq!(signal(br#"{"type": "pause-snapshot"}"#).unwrap().data, "");
        for other in [&b"{"[..], b"[]", b"{}", br#"{"type": 1}"#] {
            assert_eq!(signal(other), None);
        }
    }
}
