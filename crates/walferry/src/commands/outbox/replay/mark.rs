//! Marks the records of a replay, and sends them to another topic if that is asked for.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use walferry_engine::{
    Failure,
    sink::{Acks, Outgoing, Sink, Sinks},
};

pub(super) use walferry_kafka::REPLAY_HEADER as HEADER;

/// What happens to each record.
#[derive(Debug, Clone)]
pub(super) struct ReplayMark(Arc<Marking>);

#[derive(Debug)]
struct Marking {
    run: String,
    /// Another topic for all records.
    to: Option<String>,
    /// The dead-letter topic, whose records stay there.
    dead_letters: Option<String>,
    /// How many records each topic was given.
    sent: Mutex<BTreeMap<String, u64>>,
}

impl ReplayMark {
    pub(super) fn new(run: &str, to: Option<&str>, dead_letters: Option<String>) -> Self {
        Self(Arc::new(Marking {
            run: run.to_owned(),
            to: to.map(str::to_owned),
            dead_letters,
            sent: Mutex::default(),
        }))
    }

    pub(super) fn sent(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        self.0.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes what Kafka has refused out of the counts.
    pub(super) fn take_back(&self, refused: &BTreeMap<String, u64>) {
        let mut sent = self.sent();
        for (topic, records) in refused {
            if let Some(count) = sent.get_mut(topic) {
                *count = count.saturating_sub(*records);
            }
        }
        sent.retain(|_, records| *records > 0);
    }

    fn topic<'a>(&'a self, topic: &'a str) -> &'a str {
        match &self.0.to {
            Some(to) if self.0.dead_letters.as_deref() != Some(topic) => to,
            _ => topic,
        }
    }

    fn count(&self, topic: &str) {
        let mut sent = self.sent();
        match sent.get_mut(topic) {
            Some(count) => *count += 1,
            None => {
                sent.insert(topic.to_owned(), 1);
            }
        }
    }
}

/// Producers of marked records.
#[derive(Debug, Clone)]
pub(super) struct Marked<K> {
    pub(super) inner: K,
    pub(super) mark: ReplayMark,
}

impl<K: Sinks> Sinks for Marked<K> {
    type Sink = MarkedSink<K::Sink>;

    fn open(&mut self, acks: Acks) -> Result<Self::Sink, Failure> {
        Ok(MarkedSink {
            inner: self.inner.open(acks)?,
            mark: self.mark.clone(),
        })
    }
}

/// A producer of marked records.
pub(super) struct MarkedSink<S> {
    inner: S,
    mark: ReplayMark,
}

impl<S: Sink> Sink for MarkedSink<S> {
    fn send(&mut self, record: &Outgoing<'_>, sequence: u64) -> Result<(), Failure> {
        let mut headers = record.headers.to_vec();
        // A record of another replay gets the mark of this one.
        headers.retain(|(name, _)| *name != HEADER);
        headers.push((HEADER, Some(self.mark.0.run.as_bytes())));
        let topic = self.mark.topic(record.topic);
        let marked = Outgoing {
            topic,
            headers: &headers,
            ..*record
        };
        self.inner.send(&marked, sequence)?;
        self.mark.count(topic);
        Ok(())
    }

    fn may_send(&mut self) -> bool {
        self.inner.may_send()
    }

    fn before_waiting(&mut self, ready: &mut dyn FnMut() -> bool) {
        self.inner.before_waiting(ready);
    }
}

#[cfg(test)]
mod tests {
    use walferry_engine::sink::RecordOrigin;
    use walferry_pgoutput::Lsn;

    use super::*;

    type Headers = Vec<(String, Vec<u8>)>;

    /// Topic and headers of each record.
    #[derive(Default)]
    struct RecordingSink(Vec<(String, Headers)>);

    impl Sink for RecordingSink {
        fn send(&mut self, record: &Outgoing<'_>, _: u64) -> Result<(), Failure> {
            let headers = record.headers.iter();
            let headers = headers.map(|(name, value)| ((*name).to_owned(), value.unwrap_or_default().to_vec()));
            self.0.push((record.topic.to_owned(), headers.collect()));
            Ok(())
        }
    }

    #[test]
    fn records_are_marked_behind_their_own_headers_and_dead_letters_stay_in_their_topic() {
        let mut sink = MarkedSink {
            inner: RecordingSink::default(),
            mark: ReplayMark::new("run-1", Some("again"), Some("dead".into())),
        };
        for topic in ["orders", "dead"] {
            let record = Outgoing {
                topic,
                partition: Some(1),
                timestamp_ms: None,
                key: None,
                value: None,
                headers: &[(HEADER, Some(b"run-0")), ("id", Some(b"7"))],
                origin: RecordOrigin {
                    table: "",
                    position: &Lsn(0),
                },
            };
            sink.send(&record, 0).expect("it is kept");
        }
        let headers = vec![
            ("id".to_owned(), b"7".to_vec()),
            ("walferry.replay".to_owned(), b"run-1".to_vec()),
        ];
        let expected = [("again".to_owned(), headers.clone()), ("dead".to_owned(), headers)];
        assert_eq!(sink.inner.0, expected);
        let sent: Vec<_> = sink.mark.sent().clone().into_iter().collect();
        assert_eq!(sent, [("again".to_owned(), 1), ("dead".to_owned(), 1)]);
    }
}
