//! The second half of a row's path: record → transforms → converters → batch.

use std::{borrow::Cow, ops::Range, sync::Arc};

use walferry_converter::{Converter, Encoded, RecordPart, WrittenHeaders};
use walferry_event::Skipped;
use walferry_event::reselect::RowReader;
use walferry_pgoutput::Lsn;
use walferry_record::{Record, Wait};
use walferry_transform::{Chain, DropReason, EventRouter, Outcome, TransactionPlace, WaitingRecord};

use crate::{
    account::{Batch, StreamChange, StreamStep},
    delivery::batch::{Checkpoint, RecordParts, SetAsideReason},
    failure::Failure,
    message_type::MessageType,
    path::{
        counts::Counts,
        cursor::{ChangeNovelty, Cursor},
        error_policy::{ErrorPolicy, FailedRecord},
        fate::{ChangeFate, RecordTotals},
        witness::{UnsentReason, Witness},
    },
    position::Position,
    record_skip::RecordSkips,
    stage::Stage,
};

/// `key.converter`, `value.converter` and `header.converter`.
#[derive(Clone)]
pub struct Converters {
    /// Of keys.
    pub key: Box<dyn Converter>,
    /// Of values.
    pub value: Box<dyn Converter>,
    /// Of headers.
    pub header: Box<dyn Converter>,
}

impl Converters {
    /// All three.
    pub fn all_mut(&mut self) -> [&mut dyn Converter; 3] {
        [&mut *self.key, &mut *self.value, &mut *self.header]
    }
}

/// The way of records to the batch: from the stream's changes, a snapshot's rows and heartbeats.
pub(crate) struct RecordEmitter {
    /// The position in the stream. The first record of a transaction tells the batch that the transaction begins.
    pub(crate) cursor: Cursor,
    pub(crate) counts: Counts,
    pub(crate) chain: Chain,
    /// Whether an EventRouter must be told the position of each record in its transaction.
    wants_place: bool,
    converters: Converters,
    pub(super) tolerance: ErrorPolicy,
    pub(super) totals: RecordTotals,
    /// Watches the records. `None` while a connector runs.
    pub(crate) witness: Option<Box<dyn Witness>>,
    /// Reads columns of changed rows again. `None`: events stay as they are.
    pub(crate) rows: Option<Arc<dyn RowReader>>,
    /// The change that a person wants passed over.
    pub(crate) skips: Arc<RecordSkips>,
    /// What to notify of records that were passed over.
    pub(crate) passed_over: Vec<Vec<(&'static str, String)>>,
}

/// The change that a record comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Provenance<'a> {
    /// `schema.table`. Empty if the record comes from no table.
    pub(crate) table: &'a str,
    pub(crate) position: Position,
    pub(crate) message: MessageType,
}

impl Provenance<'_> {
    pub(super) const fn change(&self) -> StreamChange {
        StreamChange {
            position: self.position,
            message: self.message,
        }
    }

    /// How an error names the record.
    pub(super) fn subject(&self) -> Cow<'_, str> {
        match (self.table, self.message) {
            ("", MessageType::Heartbeat) => "a heartbeat".into(),
            ("", MessageType::Message) => "a logical message".into(),
            ("", MessageType::Notification) => "a notification".into(),
            ("", MessageType::Transaction) => "a record for the begin or end of a transaction".into(),
            ("", _) => "a record of no table".into(),
            (table, _) => format!("a row of {table}").into(),
        }
    }
}

impl RecordEmitter {
    pub(crate) fn new(cursor: Cursor, chain: Chain, converters: Converters, tolerance: ErrorPolicy) -> Self {
        let wants_place = chain.each::<EventRouter>().any(|(_, router)| router.wants_place());
        Self {
            cursor,
            counts: Counts::default(),
            wants_place,
            chain,
            converters,
            tolerance,
            totals: RecordTotals::default(),
            witness: None,
            rows: None,
            skips: Arc::default(),
            passed_over: Vec::new(),
        }
    }

    /// Sends all records of a change through transforms and converters to the batch.
    pub(crate) fn send_all(
        &mut self,
        outcome: walferry_event::ChangeOutcome<'_>,
        from: Provenance<'_>,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        if let Some(reason) = outcome.skipped {
            self.skip(reason.as_str());
        }
        self.totals.withheld += u64::from(outcome.left_out);
        self.counts.unconverted(from.table, &outcome.failures);
        self.counts.made_up(from.table, &outcome.made_up);
        let mut rows = match outcome.lookups.is_empty() {
            true => Vec::new(),
            false => self.look_up(outcome.lookups),
        };
        let mut records = outcome.records.into_iter();
        let mut next = records.next();
        while let Some(record) = next {
            next = records.next();
            match (&next, rows.is_empty()) {
                (None, false) => self.hold_for_rows(record, std::mem::take(&mut rows), from, out),
                _ => self.send(record, from, out)?,
            }
        }
        Ok(())
    }

    /// Sends the records of a change of the stream, or handles the error in their place. The change ends with them.
    pub(crate) fn send_change(
        &mut self,
        outcome: Result<walferry_event::ChangeOutcome<'_>, walferry_event::Error>,
        from: Provenance<'_>,
        out: &mut Batch,
    ) -> Result<ChangeFate, Failure> {
        let (records, totals) = (out.records(), self.totals);
        let has_records = outcome.as_ref().is_ok_and(|outcome| !outcome.records.is_empty());
        match outcome {
            Ok(outcome) => self.send_all(outcome, from, out)?,
            Err(error) => self.reject(&error, from, out)?,
        }
        let is_sent = out.records() > records;
        out.end_change(records);
        Ok(ChangeFate::between(totals, self.totals, has_records, is_sent))
    }

    /// Sends one record through transforms and converters to the batch.
    pub(crate) fn send(&mut self, record: Record<'_>, from: Provenance<'_>, out: &mut Batch) -> Result<(), Failure> {
        let checkpoint = out.checkpoint();
        let made = match out.waits_in_chain().cloned() {
            // Transforms must see the records in order, so this one waits too.
            Some(wait) => EncodeOutcome::Waits(Waits {
                record: record.into_owned(),
                step: Some(0),
                stage: Stage::Transformation,
                wait,
                set_aside: None,
            }),
            None => self.make(record, Some(0), None, from, self.place(from), checkpoint, out),
        };
        let parts = match made {
            EncodeOutcome::Parts(parts) => Some(parts),
            EncodeOutcome::Dropped => None,
            EncodeOutcome::Waits(waits) => {
                self.hold(waits, Vec::new(), from, out);
                return Ok(());
            }
            EncodeOutcome::Failed(failed) => self.on_failed(failed, checkpoint, from, out)?,
        };
        self.put(checkpoint, parts, from, out);
        Ok(())
    }

    /// Which change of which transaction a record comes from, where a transform wants to know.
    pub(super) fn place(&self, from: Provenance<'_>) -> Option<TransactionPlace> {
        if !self.wants_place {
            return None;
        }
        let is_change = from.message.is_of_stream();
        is_change.then(|| self.cursor.place())?
    }

    /// Runs the transforms from a step on, then the converters. The step is `None` if the record has passed all transforms. Then `set_aside` says
    /// why it goes to the dead-letter topic, if it does.
    #[expect(clippy::too_many_arguments, reason = "what a record that has waited brings along")]
    pub(super) fn make(
        &mut self,
        record: Record<'_>,
        step: Option<usize>,
        set_aside: Option<SetAsideReason>,
        from: Provenance<'_>,
        place: Option<TransactionPlace>,
        checkpoint: Checkpoint,
        out: &mut Batch,
    ) -> EncodeOutcome {
        if self.wants_place {
            self.chain.each_mut::<EventRouter>().for_each(|router| router.at(place));
        }
        let is_named = self.passes_over(from);
        let outcome = match step {
            Some(step) => self.chain.go_on(record, step),
            None => Ok(Outcome::Record(record)),
        };
        let (mut record, set_aside) = match outcome {
            Ok(Outcome::Record(record)) => (record, set_aside),
            Ok(Outcome::SetAside(set_aside)) => match self.tolerance.for_dead_letters(*set_aside) {
                Ok((record, reason)) => (record, Some(reason)),
                Err(failed) => return EncodeOutcome::Failed(failed),
            },
            Ok(Outcome::Waits(WaitingRecord { record, wait, step })) => {
                return EncodeOutcome::Waits(Waits {
                    record: record.into_owned(),
                    step: Some(step),
                    stage: Stage::Transformation,
                    wait,
                    set_aside,
                });
            }
            Ok(Outcome::Dropped(reason)) => {
                self.count_dropped(reason);
                return EncodeOutcome::Dropped;
            }
            Err(error) => {
                return EncodeOutcome::Failed(FailedRecord::in_chain(SetAsideReason {
                    diagnosis: error.diagnosis(),
                    transform: error.transform,
                }));
            }
        };
        let passes_over = is_named && set_aside.is_none();
        let topic = if passes_over {
            record.topic.to_string()
        } else {
            String::new()
        };
        if passes_over {
            if let Some(topic) = &self.tolerance.dead_letters {
                record.topic = Cow::Owned(topic.clone());
            }
            // The partition is one of another topic, and the time may be what Kafka refuses.
            (record.partition, record.timestamp_ms) = (None, None);
        }
        match self.converters.encode(&record, from.table, checkpoint, out) {
            Ok(parts) if passes_over => {
                drop(record);
                self.pass_over(parts, &topic, from, checkpoint, out)
            }
            Ok(parts) => {
                if let Some(reason) = set_aside {
                    drop(record);
                    self.end_aside(&FailedRecord::in_chain(reason), from, out);
                } else if let Some(witness) = &mut self.witness {
                    witness.sent(&record);
                }
                EncodeOutcome::Parts(parts)
            }
            Err(NotEncoded::Wait(stage, wait)) => {
                out.back_to(checkpoint);
                EncodeOutcome::Waits(Waits {
                    record: record.into_owned(),
                    step: None,
                    stage,
                    wait,
                    set_aside,
                })
            }
            // A record that was set aside, and that a converter then fails on, is reported once, with the converter's failure.
            Err(NotEncoded::Failed(failed)) => EncodeOutcome::Failed(failed),
        }
    }

    /// Counts a record that the last run of the chain has dropped.
    fn count_dropped(&mut self, reason: DropReason) {
        self.count_skipped(reason.as_str());
        if let Some((witness, by)) = self.witness.as_mut().zip(self.chain.dropped_by()) {
            witness.withheld(UnsentReason::Dropped { by, reason });
        }
    }

    /// Completes the record whose bytes were written since `checkpoint`, if there is one.
    pub(super) fn put(
        &mut self,
        checkpoint: Checkpoint,
        parts: Option<RecordParts>,
        from: Provenance<'_>,
        out: &mut Batch,
    ) {
        let Some(parts) = parts else {
            self.settle_passed_over(from, out);
            return;
        };
        begin_transaction(&mut self.cursor, out);
        self.counts.records += 1;
        out.record(checkpoint, parts, from.change());
    }

    /// Counts a change of a table that is not captured, unless it was counted when it came first.
    pub(crate) fn leave_out_table(&mut self, message: MessageType, novelty: ChangeNovelty, lsn: Lsn, now_ns: i64) {
        if !novelty.is_delivered() {
            self.counts.change(message, lsn, now_ns);
            self.skip(Skipped::Table.as_str());
        }
    }

    /// Counts a row that yields no record.
    pub(crate) fn skip(&mut self, reason: &'static str) {
        self.count_skipped(reason);
        if let Some(witness) = &mut self.witness {
            witness.withheld(UnsentReason::Skipped(reason));
        }
    }

    fn count_skipped(&mut self, reason: &'static str) {
        self.totals.withheld += 1;
        self.counts.skip(reason);
    }
}

/// Call before a record is added. The first record of a transaction tells the batch that the transaction begins.
pub(crate) fn begin_transaction(cursor: &mut Cursor, out: &mut Batch) {
    if let Some(transaction) = cursor.sends() {
        out.step(StreamStep::Begin(transaction));
    }
}

/// The fate of a record.
pub(super) enum EncodeOutcome {
    /// Its bytes are in the batch.
    Parts(RecordParts),
    /// A transform dropped it, which has been counted.
    Dropped,
    /// It needs something that is not available yet.
    Waits(Waits),
    Failed(FailedRecord),
}

/// A record that needs something that is not there yet.
pub(super) struct Waits {
    pub(super) record: Record<'static>,
    /// Index of the transform at which it continues. `None` after the last transform.
    pub(super) step: Option<usize>,
    /// Where it waits.
    pub(super) stage: Stage,
    pub(super) wait: Wait,
    /// Why it goes to the dead-letter topic, where it does.
    pub(super) set_aside: Option<SetAsideReason>,
}

/// Why a record was not encoded.
enum NotEncoded {
    /// The record is valid, but something that it needs is not available yet.
    Wait(Stage, Wait),
    Failed(FailedRecord),
}

impl Converters {
    /// Encodes headers, then key, then value, in Connect's order.
    fn encode(
        &mut self,
        record: &Record<'_>,
        table: &str,
        checkpoint: Checkpoint,
        out: &mut Batch,
    ) -> Result<RecordParts, NotEncoded> {
        let topic = &*record.topic;
        for header in &record.headers {
            let name = out.text(&header.name);
            let start = out.bytes.len();
            let part = RecordPart::Header(&header.name);
            let encoded = self.header.encode(topic, part, &header.value, &mut out.bytes);
            let (value, _) = written(encoded, Stage::HeaderConverter, start..out.bytes.len())?;
            out.header(name, value);
        }
        let mut encode = |converter: &mut dyn Converter, stage, part, typed| {
            let (headers, bytes) = out.headers_since(checkpoint);
            let start = bytes.len();
            let encoded = converter.encode_with_headers(topic, part, typed, WrittenHeaders::new(headers), bytes);
            let (range, adds_headers) = written(encoded, stage, start..bytes.len())?;
            if adds_headers {
                for (name, value) in converter.added_headers().iter() {
                    let (name, start) = (out.text(name), out.bytes.len());
                    out.bytes.extend_from_slice(value);
                    out.header(name, Some(start..out.bytes.len()));
                }
            }
            Ok(range)
        };
        let key = encode(&mut *self.key, Stage::KeyConverter, RecordPart::Key, &record.key)?;
        let value = encode(
            &mut *self.value,
            Stage::ValueConverter,
            RecordPart::Value,
            &record.value,
        )?;
        let (partition, timestamp_ms) = (record.partition, record.timestamp_ms);
        Ok(RecordParts {
            topic: out.text(topic),
            table: out.text(table),
            key,
            value,
            partition,
            timestamp_ms,
        })
    }
}

/// The range that a converter has written (`None` for null), and whether it adds headers to the record.
fn written(
    encoded: Result<Encoded, walferry_converter::Error>,
    stage: Stage,
    range: Range<usize>,
) -> Result<(Option<Range<usize>>, bool), NotEncoded> {
    match encoded {
        Ok(Encoded::Null) => Ok((None, false)),
        Ok(Encoded::Bytes) => Ok((Some(range), false)),
        Ok(Encoded::BytesWithHeaders) => Ok((Some(range), true)),
        Err(error) => Err(match error.wait() {
            Some(wait) => NotEncoded::Wait(stage, wait.clone()),
            None => NotEncoded::Failed(FailedRecord {
                stage,
                diagnosis: error.diagnosis(),
                transform: None,
            }),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_the_record_is_also_where_it_comes_from_no_table() {
        let cases = [
            ("public.orders", MessageType::Insert, "a row of public.orders"),
            ("", MessageType::Message, "a logical message"),
            ("", MessageType::Heartbeat, "a heartbeat"),
            (
                "",
                MessageType::Transaction,
                "a record for the begin or end of a transaction",
            ),
        ];
        for (table, message, expected) in cases {
            let position = Position::default();
            let from = Provenance {
                table,
                position,
                message,
            };
            assert_eq!(from.subject(), expected);
        }
    }
}
