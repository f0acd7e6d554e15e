//! Signals from a topic.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{BaseConsumer, CommitMode, Consumer as _},
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

use crate::{ClientSettings, auth::tokens::LoggedIn, client};

/// How long one poll waits.
const POLL: Duration = Duration::from_millis(500);
/// The same while signals wait for the offset to be stored.
const STORED_POLL: Duration = Duration::from_millis(50);
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
            ("enable.auto.commit", "false"),
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
            let mut read = UnstoredSignals::default();
            while !follower.over.load(Relaxed) {
                if let Err(error) = follower.read(&properties, &mut read) {
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

/// Records that were read, but that a later reader would need to read again.
#[derive(Debug, Default)]
struct UnstoredSignals {
    /// Their offsets, and the tickets of the signals among them.
    waiting: VecDeque<(i64, Option<u64>)>,
    /// Where this reader goes on.
    next: Option<i64>,
    /// Where a later reader may begin, if the group's position does not say so yet.
    uncommitted: Option<i64>,
}

impl UnstoredSignals {
    /// A record was read. `None`: it is no signal of this connector.
    fn add(&mut self, offset: i64, ticket: Option<u64>) {
        self.waiting.push_back((offset, ticket));
        self.next = Some(offset + 1);
    }

    /// Where a later reader may begin, if that is further than before: behind the records whose signals are all stored.
    fn passed(&mut self, is_stored: impl Fn(u64) -> bool) -> Option<i64> {
        let mut next = None;
        let is_passed = |(_, ticket): &&(i64, Option<u64>)| ticket.is_none_or(&is_stored);
        while let Some((offset, _)) = self.waiting.front().filter(is_passed) {
            next = Some(offset + 1);
            self.waiting.pop_front();
        }
        next
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

    fn read(&self, properties: &client::Properties, read: &mut UnstoredSignals) -> Result<(), KafkaError> {
        let consumer: BaseConsumer = properties.config().create()?;
        let consumer = LoggedIn::new(consumer, properties);
        let mut places = TopicPartitionList::new();
        // After a failure, the group's position may be behind what was read.
        let from = read.next.map_or(Offset::Stored, Offset::Offset);
        places.add_partition_offset(&self.topic, 0, from)?;
        consumer.assign(&places)?;
        info!(topic = self.topic, "signals are read from Kafka");
        while !self.over.load(Relaxed) {
            let poll = if read.waiting.is_empty() { POLL } else { STORED_POLL };
            if let Some(message) = consumer.poll(poll) {
                let message = message?;
                let mut ticket = None;
                if let Some(signal) = self.signal(&message) {
                    let origin = (self.topic.clone(), message.offset());
                    while ticket.is_none() {
                        match self.status.signals.put_once(origin.clone(), signal.clone()) {
                            Ok(put) => ticket = Some(put),
                            Err(_) if self.over.load(Relaxed) => return Ok(()),
                            Err(_) => self.pause(),
                        }
                    }
                }
                read.add(message.offset(), ticket);
            }
            // The group's position follows the stored offset: what a crash loses is read again.
            if let Some(next) = read.passed(|ticket| self.status.signals.is_stored(ticket)) {
                read.uncommitted = Some(next);
            }
            // A commit that has failed is tried again.
            if let Some(next) = read.uncommitted {
                let mut position = TopicPartitionList::new();
                position.add_partition_offset(&self.topic, 0, Offset::Offset(next))?;
                consumer.commit(&position, CommitMode::Sync)?;
                read.uncommitted = None;
            }
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
    fn the_position_passes_only_signals_that_are_stored() {
        let mut read = UnstoredSignals::default();
        for (offset, ticket) in [(10, None), (11, Some(1)), (12, None), (15, Some(2)), (16, None)] {
            read.add(offset, ticket);
        }
        assert_eq!(read.passed(|_| false), Some(11));
        assert_eq!(read.passed(|_| false), None);
        assert_eq!(read.passed(|ticket| ticket <= 1), Some(13));
        assert_eq!(read.passed(|ticket| ticket <= 2), Some(17));
        assert_eq!(read.passed(|_| true), None);
    }

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
