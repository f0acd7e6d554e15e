//! What happens to a record that cannot be sent, and the line that Kafka Connect would log for it.

use std::{borrow::Cow, time::Duration};

use walferry_config::connector::FailureHandling;
use walferry_diagnosis::Diagnosis;
use walferry_record::Record;
use walferry_transform::SetAside;

use crate::{delivery::batch::SetAsideReason, stage::Stage};

/// What happens to records that cannot be sent. By default, the connector stops.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorPolicy {
    /// `errors.tolerance=all`: a record that fails is counted, sent to the dead-letter topic if there is one, and
    /// skipped.
    pub all: bool,
    /// `event.processing.failure.handling.mode`: what happens to a change from which no event can be made.
    pub changes: FailureHandling,
    /// `errors.deadletterqueue.topic.name`.
    pub dead_letters: Option<String>,
    /// `errors.retry.timeout`: how long a record waits for the schema registry. `None`: without limit.
    pub retry_timeout: Option<Duration>,
    /// `errors.log.enable=false`: records that are set aside are counted but not logged.
    pub quiet: bool,
    /// The names in log lines about records that are set aside.
    pub names: ErrorNames,
}

/// The names in a log line of Connect about a record that failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorNames {
    /// The connector.
    pub connector: String,
    /// The transforms of `transforms`, each with its class.
    pub transforms: Vec<(String, String)>,
    /// Class of the converter of headers.
    pub header_converter: String,
    /// Class of the converter of keys.
    pub key_converter: String,
    /// Class of the converter of values.
    pub value_converter: String,
}

impl ErrorNames {
    /// The line that Kafka Connect logs for such a failure, so that existing log searches find it. Stages that Connect does not have use the same
    /// format.
    pub(super) fn line(&self, failed: &FailedRecord) -> String {
        let named = |(name, _): &&(String, String)| failed.transform.as_deref() == Some(name);
        let class = match failed.stage {
            Stage::Event => "io.debezium.connector.postgresql.PostgresConnectorTask",
            Stage::Transformation => self.transforms.iter().find(named).map_or("null", |(_, class)| class),
            Stage::HeaderConverter => &self.header_converter,
            Stage::KeyConverter => &self.key_converter,
            Stage::ValueConverter => &self.value_converter,
            Stage::PassedOver => "null",
        };
        let (connector, stage) = (&self.connector, failed.stage.as_str());
        format!("Error encountered in task {connector}-0. Executing stage '{stage}' with class '{class}'.")
    }
}

impl ErrorPolicy {
    /// The shortest time that an answer of the schema registry may take.
    const SHORTEST_ANSWER: Duration = Duration::from_secs(10);

    /// How long the schema registry may take to answer one request. `None`: as long as its client allows.
    ///
    /// This can be longer than `errors.retry.timeout`, which limits further tries: in Connect, a request that was sent runs to its end.
    pub fn answer_limit(&self) -> Option<Duration> {
        self.retry_timeout.map(|limit| limit.max(Self::SHORTEST_ANSWER))
    }

    /// Whether a record has waited too long for the schema registry. `is_failing`: the registry's client has reported a problem.
    pub(crate) fn is_too_long(&self, waited: Duration, is_failing: bool) -> bool {
        let limit = if is_failing {
            self.retry_timeout
        } else {
            self.answer_limit()
        };
        limit.is_some_and(|limit| waited >= limit)
    }

    /// Whether a failed record is set aside, and how it is logged.
    pub(super) fn set_aside_log(&self) -> Option<SetAsideLog> {
        let log = if self.quiet {
            SetAsideLog::Detail
        } else {
            SetAsideLog::Failure
        };
        self.all.then_some(log)
    }

    /// Gives a record that a transform has set aside to the dead-letter topic, if there is one and this is allowed.
    pub(super) fn for_dead_letters<'r>(
        &'r self,
        set_aside: SetAside<'r>,
    ) -> Result<(Record<'r>, SetAsideReason), FailedRecord> {
        let SetAside {
            mut record,
            why,
            hint,
            kind,
            is_failure,
            transform,
        } = set_aside;
        let why = match is_failure {
            true => format!(
                "transform {transform} cannot process a record of topic {}: {why}",
                record.topic
            ),
            false => why,
        };
        let reason = SetAsideReason {
            transform,
            diagnosis: Diagnosis::error(kind, why).with_any_hint(hint),
        };
        // The configuration names a topic wherever a transform sets records aside. A failure is set aside if that is allowed.
        let may = !is_failure || self.set_aside_log().is_some();
        let Some(topic) = self.dead_letters.as_ref().filter(|_| may) else {
            return Err(FailedRecord::in_chain(reason));
        };
        record.topic = Cow::Borrowed(topic);
        // The partition that the row names belongs to the topic that the record no longer goes to.
        record.partition = None;
        Ok((record, reason))
    }
}

/// At which level to log a record that was set aside.
#[derive(Debug, Clone)]
pub(super) enum SetAsideLog {
    Failure,
    Detail,
    /// A person has asked for it. With the record's key, if that could be encoded.
    PassedOver(Option<String>),
}

/// Why a record failed.
pub(super) struct FailedRecord {
    pub(super) stage: Stage,
    pub(super) diagnosis: Diagnosis,
    /// The transform that failed, where it is known.
    pub(super) transform: Option<String>,
}

impl FailedRecord {
    /// What a transform says of a record.
    pub(super) fn in_chain(reason: SetAsideReason) -> Self {
        Self {
            stage: Stage::Transformation,
            diagnosis: reason.diagnosis,
            transform: Some(reason.transform),
        }
    }
}

#[cfg(test)]
mod tests {
    use walferry_diagnosis::Kind;

    use super::*;

    #[test]
    fn a_record_that_is_set_aside_is_logged_in_connects_form() {
        let names = ErrorNames {
            connector: "shop".into(),
            transforms: vec![("unwrap".into(), "io.debezium.transforms.ExtractNewRecordState".into())],
            header_converter: "H".into(),
            key_converter: "K".into(),
            value_converter: "V".into(),
        };
        let line = |stage, transform: Option<&str>| {
            names.line(&FailedRecord {
                stage,
                diagnosis: Diagnosis::error(Kind::RecordFailed, "it failed"),
                transform: transform.map(ToOwned::to_owned),
            })
        };
        let expected = |stage: &str, class: &str| {
            format!("Error encountered in task shop-0. Executing stage '{stage}' with class '{class}'.")
        };
        assert_eq!(line(Stage::ValueConverter, None), expected("VALUE_CONVERTER", "V"));
        assert_eq!(line(Stage::HeaderConverter, None), expected("HEADER_CONVERTER", "H"));
        let class = "io.debezium.transforms.ExtractNewRecordState";
        assert_eq!(
            line(Stage::Transformation, Some("unwrap")),
            expected("TRANSFORMATION", class)
        );
        assert_eq!(line(Stage::Transformation, None), expected("TRANSFORMATION", "null"));
    }

    #[test]
    fn a_request_under_way_may_outlast_errors_retry_timeout_but_not_for_ever() {
        let of = |ms| ErrorPolicy {
            retry_timeout: Some(Duration::from_millis(ms)),
            ..ErrorPolicy::default()
        };
        let cases = [
            // The registry has failed: no further try begins.
            (of(0), 0, true, true),
            (of(400), 399, true, false),
            (of(400), 400, true, true),
            // It has not answered yet.
            (of(0), 9_999, false, false),
            (of(0), 10_000, false, true),
            (of(30_000), 29_999, false, false),
            (of(30_000), 30_000, false, true),
            (ErrorPolicy::default(), 1_000_000, true, false),
            (ErrorPolicy::default(), 1_000_000, false, false),
        ];
        for (tolerance, waited, is_failing, expected) in cases {
            let is_too_long = tolerance.is_too_long(Duration::from_millis(waited), is_failing);
            assert_eq!(is_too_long, expected, "{tolerance:?} {waited} {is_failing}");
        }
    }
}
