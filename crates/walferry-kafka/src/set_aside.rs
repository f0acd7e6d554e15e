//! Records that Kafka refuses and the connector goes on without.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use walferry_diagnosis::Kind;

use rdkafka::{error::RDKafkaErrorCode as Code, producer::Producer as _};
use tracing::error;
use walferry_config::connector::TopicSettings;
use walferry_engine::{
    Failure,
    sink::{Acks, Outgoing, RecordOrigin},
};

use crate::{
    failure::{self, FailedRecord, RefusalVerdict},
    native::{Client, Topic},
    origin::DeliveryTag,
    settings::{ClientSettings, SetAside},
    topics::Topics,
};

/// Sets refused records aside as `errors.tolerance` says. One for a producer; both its threads use it.
pub(crate) struct DeadLetters {
    pub(crate) settings: Arc<ClientSettings>,
    pub(crate) client: Arc<Client>,
    pub(crate) topics: Topics,
    pub(crate) acks: Acks,
    pub(crate) count: SetAsideCount,
}

/// How many records have been set aside since the process began. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct SetAsideCount(Arc<AtomicU64>);

impl SetAsideCount {
    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// A record that was refused, wherever its parts lie now.
#[derive(Clone, Copy)]
pub(crate) struct RefusedRecord<'a> {
    pub(crate) culprit: FailedRecord<'a>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) headers: walferry_engine::sink::Headers<'a>,
}

impl DeadLetters {
    /// Finds out why a record was refused: because of the record, or because of the producer. `Err` where the connector has to stop.
    pub(crate) fn judge(&self, code: Code, refused: &RefusedRecord<'_>, opaque: DeliveryTag) -> Result<(), Failure> {
        match failure::of_record(code, &refused.culprit) {
            RefusalVerdict::Record(failure) => self.take(refused, opaque, failure),
            RefusalVerdict::Producer(_) => Err(self.verdict(code, refused)),
        }
    }

    /// Why a record was refused, where the connector does not go on without it.
    pub(crate) fn verdict(&self, code: Code, refused: &RefusedRecord<'_>) -> Failure {
        match failure::of_record(code, &refused.culprit) {
            RefusalVerdict::Record(failure) => failure,
            RefusalVerdict::Producer(failure) => match self.client.producer().client().fatal_error() {
                Some((code, reason)) => failure::of_producer(code, &reason),
                None => failure,
            },
        }
    }

    /// Deals with a record that cannot be delivered. `Err` where the connector has to stop.
    pub(crate) fn take(
        &self,
        refused: &RefusedRecord<'_>,
        opaque: DeliveryTag,
        failure: Failure,
    ) -> Result<(), Failure> {
        match &self.settings.set_aside {
            SetAside::No => return Err(failure),
            SetAside::Drop => {
                error!(
                    code = failure.code(),
                    kind = failure.kind.as_str(),
                    hint = failure.hint(),
                    "dropped by errors.tolerance=all: {}",
                    failure.for_log()
                );
                self.acks.delivered(opaque.sequence());
            }
            // What the dead-letter topic refuses has nowhere else to go.
            SetAside::Topic { name, .. } if name == refused.culprit.topic => return Err(failure),
            SetAside::Topic {
                name,
                replication_factor,
            } => {
                let rule = TopicSettings {
                    partitions: 1,
                    replication_factor: replication_factor.unwrap_or(-1),
                    config: Default::default(),
                };
                if self.topics.ensure_with(name, Some(&rule))?.is_none() {
                    return Ok(());
                }
                error!(
                    code = failure.code(),
                    kind = failure.kind.as_str(),
                    hint = failure.hint(),
                    topic = name,
                    "set aside by errors.tolerance=all: {}",
                    failure.for_log()
                );
                self.send(name, refused, opaque, &failure)?;
            }
        }
        self.count.0.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Its delivery settles the refused record.
    fn send(
        &self,
        name: &str,
        refused: &RefusedRecord<'_>,
        opaque: DeliveryTag,
        failure: &Failure,
    ) -> Result<(), Failure> {
        let topic = Topic::new(&self.client, name).map_err(|code| crate::failure::of_topic(name, code))?;
        let culprit = &refused.culprit;
        let (message, size) = (failure.to_string(), culprit.size.to_string());
        let partition = culprit.partition.map(|partition| partition.to_string());
        let lsn = culprit.position.map(ToString::to_string);
        let text = |text: &'static str| Some(text.as_bytes());
        let mut headers = refused.headers.to_vec();
        headers.extend([
            ("__connect.errors.topic", Some(culprit.topic.as_bytes())),
            (
                "__connect.errors.partition",
                partition.as_ref().map(|text| text.as_bytes()),
            ),
            (
                "__connect.errors.connector.name",
                Some(self.settings.connector.as_bytes()),
            ),
            ("__connect.errors.task.id", text("0")),
            ("__connect.errors.stage", text("KAFKA_PRODUCE")),
            ("__connect.errors.exception.message", Some(message.as_bytes())),
            ("walferry.table", Some(culprit.table.as_bytes())),
            ("walferry.lsn", lsn.as_ref().map(|text| text.as_bytes())),
            ("walferry.size", Some(size.as_bytes())),
        ]);
        let whole = Outgoing {
            topic: name,
            partition: None,
            timestamp_ms: refused.timestamp_ms,
            key: culprit.key,
            value: refused.value,
            headers: &headers,
            origin: RecordOrigin {
                table: culprit.table,
                position: culprit.position.unwrap_or(&""),
            },
        };
        // A value that was too large is so here as well; then without, and at last without all but the reason.
        let without_value = Outgoing { value: None, ..whole };
        let bare = Outgoing {
            key: None,
            headers: &headers[refused.headers.len()..],
            ..without_value
        };
        let too_large = failure.kind == Kind::RecordTooLarge;
        let attempts = [whole, without_value, bare];
        let mut last = Code::MessageSizeTooLarge;
        for attempt in &attempts[usize::from(too_large)..] {
            match self.client.produce(&topic, attempt, opaque.into()) {
                Ok(()) => return Ok(()),
                Err(code) => last = code,
            }
        }
        let mut failure = failure.clone();
        failure.causes.extend(
            Failure::retry(
                Kind::DeadLetter,
                format!("and it could not be sent to the dead-letter topic {name}: {last}"),
            )
            .causes,
        );
        Err(failure)
    }
}
