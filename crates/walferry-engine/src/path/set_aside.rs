//! Records that are set aside: those that a transform or a converter cannot process, and those that a person has asked to skip.
//!
//! Records that a broker refuses are set aside by the producer instead.

use walferry_config::connector::FailureHandling;
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_pgoutput::Lsn;

use crate::{
    account::{Batch, StreamAccount, StreamStep},
    delivery::{
        batch::{Checkpoint, RecordParts},
        contract::OffsetAccount as _,
    },
    failure::{Disposition, Failure, excerpt},
    path::{
        emit::{EncodeOutcome, Provenance, RecordEmitter},
        error_policy::{ErrorPolicy, FailedRecord, SetAsideLog},
        witness::UnsentReason,
    },
    stage::Stage,
};

/// A record that is passed over goes to the dead-letter topic with its value if it is no larger than this. Brokers accept 1 MiB unless told
/// otherwise.
const MOST_PASSED_OVER_BYTES: usize = 512 * 1024;

impl RecordEmitter {
    /// From here on, whether records that cannot be sent are set aside.
    pub(crate) const fn set_aside_failures(&mut self, all: bool) {
        self.tolerance.all = all;
    }

    /// What happens to records that cannot be sent.
    pub(crate) const fn tolerance(&self) -> &ErrorPolicy {
        &self.tolerance
    }

    /// Handles a record that could not be built. A part of it may have been written since `checkpoint`.
    pub(super) fn on_failed(
        &mut self,
        failed: FailedRecord,
        checkpoint: Checkpoint,
        from: Provenance<'_>,
        out: &mut Batch,
    ) -> Result<Option<RecordParts>, Failure> {
        out.back_to(checkpoint);
        let set_aside = self.tolerance.set_aside_log();
        self.set_aside(failed, set_aside, from, out)
    }

    /// Handles a change that could not be turned into records.
    pub(crate) fn reject(
        &mut self,
        error: &walferry_event::Error,
        from: Provenance<'_>,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let failed = FailedRecord {
            stage: Stage::Event,
            diagnosis: error.diagnosis(),
            transform: None,
        };
        let checkpoint = out.checkpoint();
        let parts = self.set_aside_change(failed, from, out)?;
        self.put(checkpoint, parts, from, out);
        Ok(())
    }

    /// Sets aside a change from which no event could be made, if that is allowed.
    pub(super) fn set_aside_change(
        &mut self,
        failed: FailedRecord,
        from: Provenance<'_>,
        out: &mut Batch,
    ) -> Result<Option<RecordParts>, Failure> {
        let set_aside = match self.tolerance.changes {
            FailureHandling::Fail => self.tolerance.set_aside_log(),
            FailureHandling::Warn => Some(SetAsideLog::Failure),
            FailureHandling::Skip => Some(SetAsideLog::Detail),
        };
        self.set_aside(failed, set_aside, from, out)
    }

    /// Completes a record that a transform has set aside.
    pub(super) fn end_aside(&mut self, failed: &FailedRecord, from: Provenance<'_>, out: &mut Batch) {
        let log = if self.tolerance.quiet {
            SetAsideLog::Detail
        } else {
            SetAsideLog::Failure
        };
        self.tell_aside(failed, log, from);
        dead_letter_headers(failed, from, out);
    }

    /// Whether a person wants the change passed over that a record comes from.
    pub(super) fn passes_over(&self, from: Provenance<'_>) -> bool {
        from.message.is_of_stream() && self.skips.contain(from.position)
    }

    /// Passes over a record that could be encoded: it goes to the dead-letter topic, if there is one, or nowhere.
    pub(super) fn pass_over(
        &mut self,
        mut parts: RecordParts,
        topic: &str,
        from: Provenance<'_>,
        checkpoint: Checkpoint,
        out: &mut Batch,
    ) -> EncodeOutcome {
        let key = parts.key.as_ref().map(|key| excerpt(&out.bytes[key.clone()]));
        let failed = FailedRecord {
            stage: Stage::PassedOver,
            diagnosis: Diagnosis::error(
                Kind::RecordFailed,
                format!("a record for topic {topic} was passed over"),
            ),
            transform: None,
        };
        self.tell_aside(&failed, SetAsideLog::PassedOver(key), from);
        if self.tolerance.dead_letters.is_none() {
            out.back_to(checkpoint);
            return EncodeOutcome::Dropped;
        }
        dead_letter_headers(&failed, from, out);
        // It may have been refused because of its size, and this topic would refuse it, too.
        if out.bytes_since(checkpoint) > MOST_PASSED_OVER_BYTES {
            parts.value = None;
        }
        EncodeOutcome::Parts(parts)
    }

    /// A change that is passed over and gives no record is dealt with, as one whose records were delivered.
    pub(super) fn settle_passed_over(&self, from: Provenance<'_>, out: &mut Batch) {
        // A dead letter settles it once it is delivered.
        if self.tolerance.dead_letters.is_none() && self.passes_over(from) {
            out.step(StreamStep::PassedOver {
                change: from.change(),
                transaction: self.cursor.transaction(),
            });
        }
    }

    /// Handles a failed record. Returns a failure unless the record is to be set aside. Then returns a record for the
    /// dead-letter topic, or only counts it.
    fn set_aside(
        &mut self,
        failed: FailedRecord,
        set_aside: Option<SetAsideLog>,
        from: Provenance<'_>,
        out: &mut Batch,
    ) -> Result<Option<RecordParts>, Failure> {
        let at = Lsn::to_string(&from.position.lsn);
        let set_aside = match self.passes_over(from) {
            true => Some(SetAsideLog::PassedOver(None)),
            false => set_aside,
        };
        let Some(log) = set_aside else {
            let place = match from.position.lsn {
                // A row that was not read from the stream.
                Lsn(0) => from.subject().into_owned(),
                _ => format!("{} at LSN {at}", from.subject()),
            };
            let text = format!("cannot be sent: {}", failed.diagnosis.text);
            // Whoever cannot correct it now must know how to go on.
            let remedy = "set `errors.tolerance=all` (with `errors.deadletterqueue.topic.name` to keep the records that are set aside)";
            let hint = match failed.diagnosis.hint {
                Some(hint) if hint.contains("errors.tolerance") => hint,
                Some(hint) => format!("{hint}; to go on without such records, {remedy}"),
                None => format!("correct the configuration of the table, or {remedy}"),
            };
            // The cause says which step failed. Metrics and retries depend on the failure's kind.
            let kind = failed.diagnosis.kind.unwrap_or(Kind::RecordFailed);
            let cause = Diagnosis::error(kind, text).at(place).with_hint(hint);
            return Err(
                Failure::of(Disposition::stop(Kind::RecordFailed), Kind::RecordFailed, vec![cause])
                    .of_change(StreamAccount::name(&from.change())),
            );
        };
        self.tell_aside(&failed, log, from);
        let Some(topic) = &self.tolerance.dead_letters else {
            return Ok(None);
        };
        dead_letter_headers(&failed, from, out);
        let (topic, table) = (out.text(topic), out.text(from.table));
        Ok(Some(RecordParts {
            topic,
            table,
            key: None,
            value: None,
            partition: None,
            timestamp_ms: None,
        }))
    }

    /// Counts a record that is set aside, and says why.
    fn tell_aside(&mut self, failed: &FailedRecord, log: SetAsideLog, from: Provenance<'_>) {
        self.totals.withheld += 1;
        self.totals.set_aside += 1;
        self.counts.set_aside += 1;
        let (stage, diagnosis) = (failed.stage.as_str(), &failed.diagnosis);
        let at = Lsn::to_string(&from.position.lsn);
        let (what, code, hint) = (&diagnosis.text, diagnosis.code(), diagnosis.hint.as_deref());
        match log {
            SetAsideLog::Failure => tracing::error!(
                table = from.table,
                lsn = at,
                stage,
                code,
                error = what,
                hint,
                "record set aside: {}",
                self.tolerance.names.line(failed)
            ),
            SetAsideLog::PassedOver(key) => {
                let position = from.position.to_string();
                tracing::warn!(
                    table = from.table,
                    position,
                    key,
                    stage,
                    code,
                    error = what,
                    hint,
                    dead_letters = self.tolerance.dead_letters,
                    "a record is passed over, as asked with `walferry offsets skip-record`"
                );
                self.skips.meet(from.position);
                let reason = walferry_diagnosis::concealed(what).into_owned();
                self.passed_over.push(vec![
                    ("data_collection", from.table.to_owned()),
                    ("position", position),
                    ("reason", reason),
                ]);
            }
            SetAsideLog::Detail => tracing::debug!(
                table = from.table,
                lsn = at,
                stage,
                code,
                error = what,
                hint,
                "record set aside"
            ),
        }
        if let Some(witness) = &mut self.witness {
            witness.withheld(UnsentReason::SetAside {
                what,
                hint,
                dead_letters: self.tolerance.dead_letters.as_deref(),
            });
        }
    }
}

/// Headers that say why a record is in the dead-letter topic, and where it comes from: as text, whatever the converter of headers is.
fn dead_letter_headers(failed: &FailedRecord, from: Provenance<'_>, out: &mut Batch) {
    let at = Lsn::to_string(&from.position.lsn);
    let headers = [
        ("__connect.errors.stage", failed.stage.as_str()),
        (
            "__connect.errors.exception.message",
            &*walferry_diagnosis::concealed(&failed.diagnosis.text),
        ),
        ("walferry.table", from.table),
        ("walferry.lsn", &at),
    ];
    for (name, value) in headers {
        let (name, value) = (out.text(name), out.text(value));
        out.header(name, Some(value));
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fmt::Debug,
        sync::{Arc, Mutex},
    };

    use tracing::{field, span};
    use walferry_config::Options;
    use walferry_converter::{ConverterType, converter};
    use walferry_record::{Field, Record, Schema, SchemaAndValue, Struct, Value};
    use walferry_transform::Chain;

    use super::*;
    use crate::{
        message_type::MessageType,
        path::{cursor::Cursor, emit::Converters, error_policy::ErrorNames},
        position::Position,
        store::StoredOffset,
    };

    /// An event whose type takes an expression of `walferry.topics` too long.
    fn event() -> Record<'static> {
        let columns = ["id", "type", "aggregatetype", "aggregateid", "payload"];
        let text = |name: &str| Field::new(name, Schema::string().optional().build());
        let row = Schema::structure(columns.map(text).to_vec())
            .named("s.Value")
            .optional()
            .build();
        let envelope = Schema::structure(vec![
            Field::new("after", row.clone()),
            Field::new("op", Schema::string().build()),
        ]);
        let envelope = envelope.named("s.Envelope").build();
        let values = ["1".to_owned(), "a".repeat(40), "order".into(), "42".into(), "{}".into()];
        let values = values.map(|value| Value::String(value.into())).to_vec();
        let after = Value::Struct(Struct::new(row, values));
        let event = Struct::new(envelope.clone(), vec![after, Value::str("c")]);
        Record {
            topic: "s".into(),
            partition: None,
            timestamp_ms: None,
            key: SchemaAndValue::NULL,
            value: SchemaAndValue::new(envelope, Value::Struct(event)),
            headers: Vec::new(),
        }
    }

    /// Collects the messages of log lines.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<String>>);

    impl field::Visit for Lines {
        fn record_debug(&mut self, field: &field::Field, value: &dyn Debug) {
            if field.name() == "message" {
                let mut lines = self.0.lock().expect("no test has panicked");
                lines.push_str(&format!("{value:?}\n"));
            }
        }
    }

    impl tracing::Subscriber for Lines {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn an_event_that_a_transform_fails_on_is_set_aside_whole_where_errors_are_tolerated() {
        let plugin = |unknown: &str| {
            let mut options = Options::default();
            options.set("walferry.topics", "(?:a|a(?!x))*(?=z)b:t");
            options.set("walferry.topics.unknown", unknown);
            if unknown == "default" {
                options.set("walferry.topics.default", "other");
            }
            walferry_config::connector::TransformPlugin {
                name: "outbox".into(),
                class: "EventRouter".into(),
                options,
                predicate: None,
                negate: false,
            }
        };
        let from = Provenance {
            table: "public.outbox",
            position: Position::default(),
            message: MessageType::Insert,
        };
        for unknown in ["default", "route"] {
            for (all, dead_letters, sent) in [
                (false, true, None),
                (false, false, None),
                (true, false, Some(0)),
                (true, true, Some(1)),
            ] {
                let string = |role| {
                    let class = match role {
                        ConverterType::Header => "SimpleHeaderConverter",
                        _ => "org.apache.kafka.connect.storage.StringConverter",
                    };
                    converter(class, role, &Options::default()).0.expect("it is known")
                };
                let converters = Converters {
                    key: string(ConverterType::Key),
                    value: string(ConverterType::Value),
                    header: string(ConverterType::Header),
                };
                let tolerance = ErrorPolicy {
                    all,
                    dead_letters: dead_letters.then(|| "dead".to_owned()),
                    names: ErrorNames {
                        transforms: vec![("outbox".to_owned(), "EventRouter".to_owned())],
                        ..ErrorNames::default()
                    },
                    ..ErrorPolicy::default()
                };
                let (chain, findings) = Chain::new(&[plugin(unknown)], &[]);
                let chain = chain.unwrap_or_else(|| panic!("{findings:?}"));
                let mut emit =
                    RecordEmitter::new(Cursor::after(&StoredOffset::default()), chain, converters, tolerance);
                let (mut batch, lines) = (Batch::default(), Lines::default());
                let ended = tracing::subscriber::with_default(lines.clone(), || emit.send(event(), from, &mut batch));
                match (ended, sent) {
                    (Ok(()), Some(records)) => {
                        let lines = lines.0.lock().expect("no test has panicked");
                        assert!(
                            lines.contains("Executing stage 'TRANSFORMATION' with class 'EventRouter'"),
                            "{lines}"
                        );
                        assert_eq!((batch.records(), emit.counts.set_aside), (records, 1), "{unknown}");
                        let text = String::from_utf8_lossy(&batch.bytes).into_owned();
                        if records == 1 {
                            assert!(
                                text.contains("dead") && text.contains("42") && text.contains("{}"),
                                "{text}"
                            );
                        }
                    }
                    (Err(failure), None) => {
                        let text = failure.to_string();
                        assert_eq!(failure.disposition, Disposition::Stop(walferry_diagnosis::Exit::Record));
                        assert!(
                            text.contains("transform outbox cannot process a record of topic s"),
                            "{text}"
                        );
                    }
                    (other, _) => panic!("{unknown}, {all}, {dead_letters}: {other:?}"),
                }
            }
        }
    }
}
