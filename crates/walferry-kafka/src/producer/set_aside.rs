//! Records that Kafka refuses and the connector goes on without.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use walferry_diagnosis::Kind;

use rdkafka::error::RDKafkaErrorCode as Code;
use tracing::error;
use walferry_config::connector::TopicSettings;
use walferry_engine::{
    Disposition, Failure,
    sink::{Outgoing, RecordOrigin},
};

use crate::{
    client::settings::{ClientSettings, SetAside},
    failure::{self, FailedRecord, RefusalVerdict},
    producer::refusal::is_of_size,
    topics::Topics,
};

/// Sets refused records aside as `errors.tolerance` says. One for a producer; both its threads use it.
#[derive(Clone)]
pub(crate) struct DeadLetters {
    pub(crate) settings: Arc<ClientSettings>,
    pub(crate) count: SetAsideCount,
}

/// How many records have been set aside since the process began, and the first of them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct SetAsideCount(Arc<Counted>);

#[derive(Debug, Default)]
struct Counted {
    records: AtomicU64,
    by_topic: Mutex<BTreeMap<String, u64>>,
    first: Mutex<Vec<String>>,
}

/// How many records are kept as sentences.
const MOST_KEPT: usize = 100;

impl SetAsideCount {
    /// The number.
    pub fn get(&self) -> u64 {
        self.0.records.load(Relaxed)
    }

    /// How many they were of each topic that refused them.
    pub fn by_topic(&self) -> BTreeMap<String, u64> {
        self.0.by_topic.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What the first of them were and why they were refused, without their keys.
    pub fn first(&self) -> Vec<String> {
        self.0.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, topic: &str, failure: &Failure) {
        self.0.records.fetch_add(1, Relaxed);
        let mut by_topic = self.0.by_topic.lock().unwrap_or_else(PoisonError::into_inner);
        *by_topic.entry(topic.to_owned()).or_default() += 1;
        let mut first = self.0.first.lock().unwrap_or_else(PoisonError::into_inner);
        if first.len() < MOST_KEPT {
            first.push(failure.to_string());
        }
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

/// What becomes of a refused record.
pub(crate) enum SetAsideOutcome<'a> {
    /// Nothing is sent for it.
    Dropped,
    /// A dead letter goes to this topic. Its delivery settles the refused record.
    Topic(&'a str),
}

/// How much of a record a dead letter has. What the dead-letter topic refuses as well is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LetterForm {
    part: LetterPart,
    has_timestamp: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LetterPart {
    Whole,
    WithoutValue,
    /// Only the reason.
    Bare,
}

impl LetterForm {
    pub(crate) const WHOLE: Self = Self {
        part: LetterPart::Whole,
        has_timestamp: true,
    };

    /// The first form to try. A value that was too large, or a timestamp that was refused, would be refused again.
    fn first(failure: &Failure, code: Code) -> Self {
        let part = match failure.kind {
            Kind::RecordTooLarge => LetterPart::WithoutValue,
            _ => LetterPart::Whole,
        };
        Self {
            part,
            has_timestamp: code != Code::InvalidTimestamp,
        }
    }

    /// The form to try after this one was refused with an error. `None` if nothing that could be left out would help.
    pub(crate) fn after(self, code: Code) -> Option<Self> {
        let smaller = match self.part {
            LetterPart::Whole => Some(LetterPart::WithoutValue),
            LetterPart::WithoutValue => Some(LetterPart::Bare),
            LetterPart::Bare => None,
        };
        match code {
            _ if is_of_size(code) => smaller.map(|part| Self { part, ..self }),
            // Of several records at fault, a broker's response says only that they are invalid.
            Code::InvalidTimestamp | Code::InvalidRecord if self.has_timestamp => Some(Self {
                has_timestamp: false,
                ..self
            }),
            _ => None,
        }
    }

    /// Leaves out of a record what this form does not have. `own` is the number of headers that the record itself had.
    pub(crate) fn apply<'a>(self, whole: Outgoing<'a>, own: usize) -> Outgoing<'a> {
        let timed = Outgoing {
            timestamp_ms: whole.timestamp_ms.filter(|_| self.has_timestamp),
            ..whole
        };
        match self.part {
            LetterPart::Whole => timed,
            LetterPart::WithoutValue => Outgoing { value: None, ..timed },
            LetterPart::Bare => Outgoing {
                value: None,
                key: None,
                headers: &timed.headers[own..],
                ..timed
            },
        }
    }
}

/// A dead letter to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    /// Why the record was refused.
    pub(crate) failure: Failure,
    pub(crate) form: LetterForm,
}

impl DeadLetters {
    /// Why a record was refused, where the connector does not go on without it. `fatal` is what the producer has ended of.
    pub(crate) fn verdict(code: Code, refused: &RefusedRecord<'_>, fatal: Option<(Code, String)>) -> Failure {
        match (failure::of_record(code, &refused.culprit), fatal) {
            (RefusalVerdict::Record(failure), _) => failure,
            // The refusal is the cause of this, and is told of itself.
            (RefusalVerdict::Producer(failure), None | Some((Code::GaplessGuarantee, _))) => failure,
            (RefusalVerdict::Producer(failure), _) if matches!(failure.disposition, Disposition::Stop(_)) => failure,
            (RefusalVerdict::Producer(_), Some((code, reason))) => failure::of_producer(code, &reason),
        }
    }

    /// Decides what becomes of a record that cannot be delivered, logs it, and counts it. `Ok(None)` when the producer is to stop, `Err` where
    /// the connector has to.
    pub(crate) fn set_aside(
        &self,
        topics: &Topics,
        culprit: &FailedRecord<'_>,
        failure: &Failure,
    ) -> Result<Option<SetAsideOutcome<'_>>, Failure> {
        let outcome = match &self.settings.set_aside {
            SetAside::No => return Err(failure.clone()),
            // What the dead-letter topic refuses has nowhere else to go.
            SetAside::Topic { name, .. } if name == culprit.topic => return Err(failure.clone()),
            SetAside::Drop => {
                error!(
                    code = failure.code(),
                    kind = failure.kind.as_str(),
                    hint = failure.hint(),
                    "dropped by errors.tolerance=all: {}",
                    failure.for_log()
                );
                SetAsideOutcome::Dropped
            }
            SetAside::Topic {
                name,
                replication_factor,
            } => {
                let rule = TopicSettings {
                    partitions: 1,
                    replication_factor: replication_factor.unwrap_or(-1),
                    config: Default::default(),
                };
                if topics.ensure_with(name, Some(&rule))?.is_none() {
                    return Ok(None);
                }
                error!(
                    code = failure.code(),
                    kind = failure.kind.as_str(),
                    hint = failure.hint(),
                    topic = name,
                    "set aside by errors.tolerance=all: {}",
                    failure.for_log()
                );
                SetAsideOutcome::Topic(name)
            }
        };
        self.count.count(culprit.topic, failure);
        Ok(Some(outcome))
    }

    /// Whether records are set aside at all.
    pub(crate) fn is_tolerant(&self) -> bool {
        self.settings.set_aside != SetAside::No
    }

    /// The dead-letter topic; empty if there is none.
    pub(crate) fn topic(&self) -> &str {
        match &self.settings.set_aside {
            SetAside::Topic { name, .. } => name,
            SetAside::No | SetAside::Drop => "",
        }
    }

    /// Whether this is the dead-letter topic.
    pub(crate) fn is_their_topic(&self, topic: &str) -> bool {
        matches!(&self.settings.set_aside, SetAside::Topic { name, .. } if name == topic)
    }

    /// Gives the dead letter of a record to `produce`, in smaller forms if it is too large for the client. Returns the form that was taken.
    pub(crate) fn send(
        &self,
        name: &str,
        refused: &RefusedRecord<'_>,
        letter: &Letter,
        mut produce: impl FnMut(&Outgoing<'_>) -> Result<(), Code>,
    ) -> Result<LetterForm, Code> {
        let culprit = &refused.culprit;
        let (message, size) = (letter.failure.to_string(), culprit.size.to_string());
        let partition = culprit.partition.map(|partition| partition.to_string());
        let lsn = culprit.position.map(ToString::to_string);
        let timestamp = refused.timestamp_ms.map(|ms| ms.to_string());
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
        if !letter.form.has_timestamp {
            headers.extend(
                timestamp
                    .as_ref()
                    .map(|text| ("walferry.timestamp", Some(text.as_bytes()))),
            );
        }
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
        let mut form = letter.form;
        loop {
            match produce(&form.apply(whole, refused.headers.len())) {
                Ok(()) => return Ok(form),
                Err(code) if is_of_size(code) => form = form.after(code).ok_or(code)?,
                Err(code) => return Err(code),
            }
        }
    }
}

impl Letter {
    /// The dead letter of a record that was refused with `code`.
    pub(crate) fn new(failure: Failure, code: Code) -> Self {
        Self {
            form: LetterForm::first(&failure, code),
            failure,
        }
    }

    /// The connector stops, because the dead-letter topic does not take it either.
    pub(crate) fn refused(&self, name: &str, code: Code) -> Failure {
        let mut failure = self.failure.clone();
        failure.causes.extend(
            Failure::retry(
                Kind::DeadLetter,
                format!("and it could not be sent to the dead-letter topic {name}: {code}"),
            )
            .causes,
        );
        failure
    }
}
