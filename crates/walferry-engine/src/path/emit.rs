//! The second half of a row's path: record → transforms → converters → batch.

use std::{borrow::Cow, ops::Range, sync::Arc, time::Duration};

use walferry_diagnosis::{Diagnosis, Kind};

use walferry_config::connector::FailureHandling;
use walferry_converter::{Converter, Encoded, RecordPart, WrittenHeaders};
use walferry_event::Skipped;
use walferry_event::reselect::{RowAnswer, RowLookup, RowReader};
use walferry_pgoutput::Lsn;
use walferry_record::{Record, Wait};
use walferry_transform::{Chain, DropReason, EventRouter, Outcome, SetAside, TransactionPlace, WaitingRecord};

use crate::{
    account::{Batch, HeldRecord, PendingRow, StreamAccount, StreamChange, StreamStep},
    delivery::{
        batch::{Checkpoint, RecordParts, SetAsideReason},
        contract::OffsetAccount as _,
    },
    failure::{Disposition, Failure, excerpt},
    message_type::MessageType,
    path::{
        counts::Counts,
        cursor::{ChangeNovelty, Cursor},
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
    /// Connect's line, for those who search the log for it. A stage that Connect does not have is told in the same form.
    fn line(&self, failed: &Failed) -> String {
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
    fn set_aside_log(&self) -> Option<SetAsideLog> {
        let log = if self.quiet {
            SetAsideLog::Detail
        } else {
            SetAsideLog::Failure
        };
        self.all.then_some(log)
    }

    /// Gives a record that a transform has set aside to the dead-letter topic, if there is one and this is allowed.
    fn for_dead_letters<'r>(&'r self, set_aside: SetAside<'r>) -> Result<(Record<'r>, SetAsideReason), Failed> {
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
            return Err(Failed::in_chain(reason));
        };
        record.topic = Cow::Borrowed(topic);
        // The partition that the row names belongs to the topic that the record no longer goes to.
        record.partition = None;
        Ok((record, reason))
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

/// The way of records to the batch: from the stream's changes, a snapshot's rows and heartbeats.
pub(crate) struct RecordEmitter {
    /// The position in the stream. The first record of a transaction tells the batch that the transaction begins.
    pub(crate) cursor: Cursor,
    pub(crate) counts: Counts,
    pub(crate) chain: Chain,
    /// Whether an EventRouter must be told the position of each record in its transaction.
    wants_place: bool,
    converters: Converters,
    tolerance: ErrorPolicy,
    totals: RecordTotals,
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
    const fn change(&self) -> StreamChange {
        StreamChange {
            position: self.position,
            message: self.message,
        }
    }

    /// How an error names the record.
    fn subject(&self) -> Cow<'_, str> {
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

    /// Starts to read rows again, outside the path.
    fn look_up(&self, lookups: Vec<RowLookup>) -> Vec<PendingRow> {
        let Some(reader) = &self.rows else { return Vec::new() };
        let begun = lookups.into_iter().map(|lookup| PendingRow {
            reading: reader.read(lookup.query.clone()),
            lookup,
        });
        begun.collect()
    }

    /// Holds a record before the first transform until columns of its row have been read from the database.
    fn hold_for_rows(&mut self, record: Record<'_>, rows: Vec<PendingRow>, from: Provenance<'_>, out: &mut Batch) {
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

    fn hold(&mut self, waits: Waits, rows: Vec<PendingRow>, from: Provenance<'_>, out: &mut Batch) {
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

    /// A change that is passed over and gives no record is dealt with, as one whose records were delivered.
    fn settle_passed_over(&self, from: Provenance<'_>, out: &mut Batch) {
        // A dead letter settles it once it is delivered.
        if self.tolerance.dead_letters.is_none() && self.passes_over(from) {
            out.step(StreamStep::PassedOver {
                change: from.change(),
                transaction: self.cursor.transaction(),
            });
        }
    }

    /// Which change of which transaction a record comes from, where a transform wants to know.
    fn place(&self, from: Provenance<'_>) -> Option<TransactionPlace> {
        if !self.wants_place {
            return None;
        }
        let is_change = from.message.is_of_stream();
        is_change.then(|| self.cursor.place())?
    }

    /// Runs the transforms from a step on, then the converters. The step is `None` if the record has passed all transforms. Then `aside` says
    /// why it goes to the dead-letter topic, if it does.
    #[expect(clippy::too_many_arguments, reason = "what a record that has waited brings along")]
    fn make(
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
                return EncodeOutcome::Failed(Failed::in_chain(SetAsideReason {
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
                    self.end_aside(&Failed::in_chain(reason), from, out);
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

    /// Whether a person wants the change passed over that a record comes from.
    fn passes_over(&self, from: Provenance<'_>) -> bool {
        from.message.is_of_stream() && self.skips.contain(from.position)
    }

    /// Passes over a record that could be encoded: it goes to the dead-letter topic, if there is one, or nowhere.
    fn pass_over(
        &mut self,
        mut parts: RecordParts,
        topic: &str,
        from: Provenance<'_>,
        checkpoint: Checkpoint,
        out: &mut Batch,
    ) -> EncodeOutcome {
        let key = parts.key.as_ref().map(|key| excerpt(&out.bytes[key.clone()]));
        let failed = Failed {
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

    /// Counts a record that the last run of the chain has dropped.
    fn count_dropped(&mut self, reason: DropReason) {
        self.count_skipped(reason.as_str());
        if let Some((witness, by)) = self.witness.as_mut().zip(self.chain.dropped_by()) {
            witness.withheld(UnsentReason::Dropped { by, reason });
        }
    }

    /// Completes a record that a transform has set aside.
    fn end_aside(&mut self, failed: &Failed, from: Provenance<'_>, out: &mut Batch) {
        let log = if self.tolerance.quiet {
            SetAsideLog::Detail
        } else {
            SetAsideLog::Failure
        };
        self.tell_aside(failed, log, from);
        dead_letter_headers(failed, from, out);
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

    /// From here on, whether records that cannot be sent are set aside.
    pub(crate) const fn set_aside_failures(&mut self, all: bool) {
        self.tolerance.all = all;
    }

    /// What happens to records that cannot be sent.
    pub(crate) const fn tolerance(&self) -> &ErrorPolicy {
        &self.tolerance
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
        let failed = Failed {
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
    fn fill(&mut self, row: &PendingRow, record: &mut Record<'static>, table: &str) -> Result<(), Failed> {
        let failed = |diagnosis| Failed {
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

    /// Handles a record that could not be built. A part of it may have been written since `checkpoint`.
    fn on_failed(
        &mut self,
        failed: Failed,
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
        let failed = Failed {
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
    fn set_aside_change(
        &mut self,
        failed: Failed,
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

    /// Completes the record whose bytes were written since `checkpoint`, if there is one.
    fn put(&mut self, checkpoint: Checkpoint, parts: Option<RecordParts>, from: Provenance<'_>, out: &mut Batch) {
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

    /// Handles a failed record. Returns a failure unless the record is to be set aside. Then returns a record for the
    /// dead-letter topic, or only counts it.
    fn set_aside(
        &mut self,
        failed: Failed,
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
    fn tell_aside(&mut self, failed: &Failed, log: SetAsideLog, from: Provenance<'_>) {
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

/// At which level to log a record that was set aside.
#[derive(Debug, Clone)]
enum SetAsideLog {
    Failure,
    Detail,
    /// A person has asked for it. With the record's key, if that could be encoded.
    PassedOver(Option<String>),
}

/// A record that is passed over goes to the dead-letter topic with its value if it is no larger than this. Brokers accept 1 MiB unless told
/// otherwise.
const MOST_PASSED_OVER_BYTES: usize = 512 * 1024;

/// Call before a record is added. The first record of a transaction tells the batch that the transaction begins.
pub(crate) fn begin_transaction(cursor: &mut Cursor, out: &mut Batch) {
    if let Some(transaction) = cursor.sends() {
        out.step(StreamStep::Begin(transaction));
    }
}

/// The fate of a record.
enum EncodeOutcome {
    /// Its bytes are in the batch.
    Parts(RecordParts),
    /// A transform dropped it, which has been counted.
    Dropped,
    /// It needs something that is not available yet.
    Waits(Waits),
    Failed(Failed),
}

/// A record that needs something that is not there yet.
struct Waits {
    record: Record<'static>,
    /// Index of the transform at which it continues. `None` after the last transform.
    step: Option<usize>,
    /// Where it waits.
    stage: Stage,
    wait: Wait,
    /// Why it goes to the dead-letter topic, where it does.
    set_aside: Option<SetAsideReason>,
}

/// Headers that say why a record is in the dead-letter topic, and where it comes from: as text, whatever the converter of headers is.
fn dead_letter_headers(failed: &Failed, from: Provenance<'_>, out: &mut Batch) {
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

/// Why a record was not encoded.
enum NotEncoded {
    /// The record is valid, but something that it needs is not available yet.
    Wait(Stage, Wait),
    Failed(Failed),
}

/// Why a record failed.
struct Failed {
    stage: Stage,
    diagnosis: Diagnosis,
    /// The transform that failed, where it is known.
    transform: Option<String>,
}

impl Failed {
    /// What a transform says of a record.
    fn in_chain(reason: SetAsideReason) -> Self {
        Self {
            stage: Stage::Transformation,
            diagnosis: reason.diagnosis,
            transform: Some(reason.transform),
        }
    }
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
            None => NotEncoded::Failed(Failed {
                stage,
                diagnosis: error.diagnosis(),
                transform: None,
            }),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::{fmt::Debug, sync::Mutex};

    use tracing::{field, span};
    use walferry_config::Options;
    use walferry_converter::{
        ConverterType, converter,
        registry::{self, PreviewRegistry, Registry},
    };
    use walferry_record::{Field, Schema, SchemaAndValue, Struct, Value, WaitNeed};

    use super::*;
    use crate::store::StoredOffset;

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
            names.line(&Failed {
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
