//! Records that wait for something: a schema id from the registry, or columns of a row that are being read again.

use std::time::Duration;

use walferry_diagnosis::{Diagnosis, Kind};
use walferry_event::reselect::{RowAnswer, RowLookup};
use walferry_record::{Record, Wait};

use crate::{
    account::{Batch, HeldRecord, PendingRow},
    failure::Failure,
    path::{
        emit::{EncodeOutcome, Provenance, RecordEmitter, Waits, begin_transaction},
        error_policy::FailedRecord,
    },
    stage::Stage,
};

impl RecordEmitter {
    /// Starts to read rows again, outside the path.
    pub(super) fn look_up(&self, lookups: Vec<RowLookup>) -> Vec<PendingRow> {
        let Some(reader) = &self.rows else { return Vec::new() };
        let begun = lookups.into_iter().map(|lookup| PendingRow {
            reading: reader.read(lookup.query.clone()),
            lookup,
        });
        begun.collect()
    }

    /// Holds a record before the first transform until columns of its row have been read from the database.
    pub(super) fn hold_for_rows(
        &mut self,
        record: Record<'_>,
        rows: Vec<PendingRow>,
        from: Provenance<'_>,
        out: &mut Batch,
    ) {
        let wait = rows[0].reading.wait().clone();
        let waits = Waits {
            record: record.into_owned(),
            step: Some(0),
            stage: Stage::Event,
            wait,
            set_aside: None,
        };
        self.hold(waits, rows, from, out);
    }

    pub(super) fn hold(&mut self, waits: Waits, rows: Vec<PendingRow>, from: Provenance<'_>, out: &mut Batch) {
        let Waits {
            record,
            step,
            stage,
            wait,
            set_aside,
        } = waits;
        // Its fate is not known yet: it may not be sent.
        self.totals.withheld += 1;
        self.totals.undecided +=
            u64::from(step.is_none() && (self.tolerance.all || set_aside.is_some() || self.passes_over(from)));
        begin_transaction(&mut self.cursor, out);
        let in_transaction = self.place(from);
        out.hold(from.table, from.change(), |place| HeldRecord {
            place,
            record,
            step,
            stage,
            wait,
            in_transaction,
            set_aside,
            rows,
        });
    }

    /// Tries the waiting records again, in order. Returns what the first record that still waits needs.
    pub(crate) fn finish(&mut self, out: &mut Batch) -> Result<Option<Wait>, Failure> {
        while let Some(mut held) = out.take_held() {
            self.ask_for_large(&mut held);
            if let Some(row) = held.rows.iter().find(|row| row.reading.answer().is_none()) {
                let wait = row.reading.wait().clone();
                out.hold_again(held);
                return Ok(Some(wait));
            }
            let HeldRecord {
                place,
                mut record,
                step,
                rows,
                in_transaction,
                set_aside,
                ..
            } = held;
            let from = Provenance {
                table: &place.table,
                position: place.change.position,
                message: place.change.message,
            };
            let checkpoint = out.checkpoint();
            let made = match rows
                .iter()
                .try_for_each(|row| self.fill(row, &mut record, &place.table))
            {
                Ok(()) => self.make(record, step, set_aside, from, in_transaction, checkpoint, out),
                Err(failed) => {
                    let parts = self.set_aside_change(failed, from, out)?;
                    out.fill(&place, checkpoint, parts);
                    continue;
                }
            };
            let parts = match made {
                EncodeOutcome::Parts(parts) => {
                    self.counts.records += 1;
                    Some(parts)
                }
                EncodeOutcome::Dropped => None,
                EncodeOutcome::Waits(Waits {
                    record,
                    step,
                    stage,
                    wait,
                    set_aside,
                }) => {
                    out.hold_again(HeldRecord {
                        place,
                        record,
                        step,
                        stage,
                        wait: wait.clone(),
                        in_transaction,
                        set_aside,
                        rows: Vec::new(),
                    });
                    return Ok(Some(wait));
                }
                EncodeOutcome::Failed(failed) => self.on_failed(failed, checkpoint, from, out)?,
            };
            out.fill(&place, checkpoint, parts);
        }
        Ok(None)
    }

    /// The first waiting record has waited as long as it may.
    pub(crate) fn give_up(&mut self, wait: &Wait, out: &mut Batch) -> Result<(), Failure> {
        let Some(HeldRecord { place, stage, .. }) = out.take_held() else {
            return Ok(());
        };
        let from = Provenance {
            table: &place.table,
            position: place.change.position,
            message: place.change.message,
        };
        let failed = FailedRecord {
            stage,
            diagnosis: gave_up(wait, self.tolerance.retry_timeout.unwrap_or_default()),
            transform: None,
        };
        let checkpoint = out.checkpoint();
        let parts = self.on_failed(failed, checkpoint, from, out)?;
        out.fill(&place, checkpoint, parts);
        Ok(())
    }

    /// It is this record's turn: reads now what was too large to be read together with other rows.
    fn ask_for_large(&self, held: &mut HeldRecord) {
        let Some(reader) = &self.rows else { return };
        for row in &mut held.rows {
            if row.reading.answer() == Some(&RowAnswer::Large) {
                row.lookup.query.however_large = true;
                row.reading = reader.read(row.lookup.query.clone());
            }
        }
    }

    /// Puts the values that were read into the event.
    fn fill(&mut self, row: &PendingRow, record: &mut Record<'static>, table: &str) -> Result<(), FailedRecord> {
        let failed = |diagnosis| FailedRecord {
            stage: Stage::Event,
            diagnosis,
            transform: None,
        };
        let (what, hint) = match row.reading.answer() {
            Some(RowAnswer::Row(values)) => {
                let filled = row.lookup.fill(record, values);
                let failures = filled.map_err(|error| failed(error.diagnosis()))?;
                self.counts.unconverted(table, &failures);
                return Ok(());
            }
            Some(RowAnswer::Gone) => (
                "columns of the row cannot be read again, because it no longer exists".to_owned(),
                "set `reselect.error.handling.mode=warn` to send such events unchanged".to_owned(),
            ),
            Some(RowAnswer::Refused { what, hint }) => (
                format!("columns of the row cannot be read again: {what}"),
                hint.clone().unwrap_or_else(|| {
                    "correct the problem that the server reports, or exclude the columns from the post-processor"
                        .to_owned()
                }),
            ),
            // By now it has been requested again, and has arrived.
            Some(RowAnswer::Large) | None => return Ok(()),
        };
        if row.lookup.must_succeed {
            return Err(failed(Diagnosis::error(Kind::ReselectFailed, what).with_hint(hint)));
        }
        self.counts.not_reselected(table, &what);
        Ok(())
    }
}

/// A record has waited longer than `errors.retry.timeout`.
fn gave_up(wait: &Wait, limit: Duration) -> Diagnosis {
    let trouble = wait.trouble();
    let why = trouble
        .as_ref()
        .map_or_else(|| "the schema registry has not answered".into(), Diagnosis::sentence);
    let what = format!(
        "{} did not arrive within errors.retry.timeout={}: {why}",
        wait.need(),
        limit.as_millis()
    );
    let hint = trouble.and_then(|trouble| trouble.hint).unwrap_or_else(|| {
        "check the log of the schema registry, or set `errors.retry.timeout=-1` to wait without a limit".into()
    });
    Diagnosis::error(Kind::SchemaRegistry, what).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use walferry_config::Options;
    use walferry_converter::{
        ConverterType, converter,
        registry::{self, PreviewRegistry, Registry},
    };
    use walferry_record::{Field, Schema, SchemaAndValue, Struct, Value, WaitNeed};
    use walferry_transform::Chain;

    use super::*;
    use crate::{
        message_type::MessageType,
        path::{cursor::Cursor, emit::Converters, error_policy::ErrorPolicy},
        position::Position,
        store::StoredOffset,
    };

    /// A registry that never answers.
    #[derive(Debug)]
    struct Silent;

    impl Registry for Silent {
        fn ids(&self, request: &registry::SchemaRequest) -> registry::RegistryAnswer {
            let subject = request.subject.to_string();
            registry::RegistryAnswer::Wait(Wait::new(WaitNeed::SchemaId { subject }))
        }

        fn generation(&self) -> u64 {
            0
        }
    }

    /// With this strategy, the subject does not say whether it is of keys or of values.
    #[test]
    fn a_record_that_has_waited_too_long_is_set_aside_with_the_stage_in_which_it_waited() {
        const STRATEGY: &str = "io.confluent.kafka.serializers.subject.RecordNameStrategy";
        for (waits, strategy, expected) in [
            (ConverterType::Key, "key.subject.name.strategy", "KEY_CONVERTER"),
            (ConverterType::Value, "value.subject.name.strategy", "VALUE_CONVERTER"),
        ] {
            let avro = |role| {
                let mut options = Options::default();
                options.set("schema.registry.url", "http://registry");
                options.set(strategy, STRATEGY);
                let class = match role {
                    ConverterType::Header => "SimpleHeaderConverter",
                    _ => "io.confluent.connect.avro.AvroConverter",
                };
                let mut made = converter(class, role, &options).0.expect("it is known");
                made.attach(&mut |_| match role == waits {
                    true => Arc::new(Silent) as Arc<dyn Registry>,
                    false => Arc::new(PreviewRegistry),
                });
                made
            };
            let converters = Converters {
                key: avro(ConverterType::Key),
                value: avro(ConverterType::Value),
                header: avro(ConverterType::Header),
            };
            let tolerance = ErrorPolicy {
                all: true,
                dead_letters: Some("dead".to_owned()),
                retry_timeout: Some(Duration::ZERO),
                ..ErrorPolicy::default()
            };
            let cursor = Cursor::after(&StoredOffset::default());
            let mut emit = RecordEmitter::new(cursor, Chain::default(), converters, tolerance);
            let part = |name: &str| {
                let fields = vec![Field::new("id", Schema::int32().build())];
                let schema = Schema::structure(fields).named(name.to_owned()).build();
                SchemaAndValue::new(
                    schema.clone(),
                    Value::Struct(Struct::new(schema, vec![Value::Int32(1)])),
                )
            };
            let record = Record {
                topic: "orders".into(),
                partition: None,
                timestamp_ms: None,
                key: part("app.Id"),
                value: part("app.Order"),
                headers: Vec::new(),
            };
            let from = Provenance {
                table: "public.orders",
                position: Position::default(),
                message: MessageType::Insert,
            };
            let mut batch = Batch::default();
            assert!(emit.send(record, from, &mut batch).is_ok());
            let Ok(Some(wait)) = emit.finish(&mut batch) else {
                panic!("{expected}: the record waits");
            };
            assert!(emit.give_up(&wait, &mut batch).is_ok());
            let text = String::from_utf8_lossy(&batch.bytes).into_owned();
            assert!(text.contains(&format!("__connect.errors.stage{expected}")), "{text}");
            assert!(text.contains("did not arrive within errors.retry.timeout=0"), "{text}");
        }
    }
}
