//! The path of a row, from a frame of the stream to an encoded record.
//!
//! It is synchronous and has no clock and no socket. Nothing on it waits, so nothing on it can delay a keepalive, an
//! acknowledgement or a signal. If a record needs something that is not available yet, such as the id of a new schema,
//! the batch holds it. The pipeline's thread sends the records before it, and tries it again later.

use std::{mem, path::PathBuf, sync::Arc, time::Duration};
use walferry_diagnosis::Kind;

use tokio::sync::mpsc::UnboundedSender;
use tracing::{info, warn};
use walferry_config::{connector::GuardrailAction, limited};
use walferry_event::{
    Context, EventSettings, Messages, TablePlan, TransactionMetadata,
    catalog::{Catalog, TableFacts},
    reselect::RowReader,
};
use walferry_pgoutput::{
    self as pgoutput, Change, LogicalMessage, Lsn, Message, Oid, Operation, Origin, Relation, Truncate, Xid,
};
use walferry_record::Wait;
use walferry_transform::{Chain, EventRouter};

use crate::{
    account::{self, Batch, StoredOffset, StreamStep},
    failure::{Disposition, Failure},
    history::{ConfirmGate, ExpectedCommits, MissingTransaction, Positions, missed},
    incremental::{
        SignalSettings,
        machine::{NotRead, SnapshotNotice},
        signals::{FramePlace, RequestAnswer, Signals},
    },
    message_type::MessageType,
    observer::StreamObservers,
    path::{
        change_observer::ObservedChange,
        cursor::{AsOrigin, ChangeNovelty, Cursor},
        emit::{Converters, Provenance, RecordEmitter},
        error_policy::ErrorPolicy,
        heartbeat::Heartbeats,
        observers::ChangeObservers,
        plans::RelationPlans,
        shapes::{ShapeWatch, TableShapes},
        witness::Witness,
    },
    position::Position,
    record_skip::RecordSkips,
    snapshot::{
        ChunksDone, RowsToReread, SnapshotStep, initial::SnapshotEvent, rows::Snapshot, toast_reread::ToastReread,
    },
    source::{BlockingFailure, Frame, NumberedAsk, SnapshotKind, SourceRequest},
    status::SlotXmin,
    status::Status,
};

/// Turns frames into records. Each session has one.
pub struct Pipeline {
    plans: RelationPlans,
    messages: Messages,
    /// Counts records by transaction, if `provide.transaction.metadata` is set.
    metadata: Option<TransactionMetadata>,
    snapshot: Option<Snapshot>,
    /// What the snapshot that is being read is part of.
    snapshot_kind: SnapshotKind,
    /// Its tables, without those of which a condition chooses rows.
    snapshot_tables: Arc<[String]>,
    /// All its tables, including those of which it reads only rows that match a condition.
    snapshot_names: Vec<String>,
    /// What looks at changes besides their records.
    changes: ChangeObservers,
    heartbeats: Option<Heartbeats>,
    /// Limit of the number of captured tables, and what to do beyond it.
    limit: Option<(u32, GuardrailAction)>,
    xmin: Option<SlotXmin>,
    observers: StreamObservers,
    check: HistoryCheck,
    emit: RecordEmitter,
}

/// Checks whether the server is still the one that was read before.
#[derive(Default)]
struct HistoryCheck {
    /// What has to come in this connection.
    expected: ExpectedCommits,
    /// Opened once it has come.
    gate: ConfirmGate,
    positions: Positions,
    /// Number of connections that have begun.
    connections: u64,
}

impl Pipeline {
    /// A pipeline that continues after an offset.
    pub fn new(
        events: Arc<EventSettings>,
        chain: Chain,
        converters: Converters,
        tolerance: ErrorPolicy,
        after: &StoredOffset,
    ) -> Self {
        let plans = RelationPlans::new(events.clone());
        Self {
            messages: Messages::new(&events),
            metadata: events
                .events
                .transaction_metadata
                .then(|| TransactionMetadata::new(&events)),
            plans,
            snapshot: None,
            snapshot_kind: SnapshotKind::Initial,
            snapshot_tables: Arc::default(),
            snapshot_names: Vec::new(),
            changes: ChangeObservers::default(),
            heartbeats: None,
            limit: None,
            xmin: None,
            observers: StreamObservers::default(),
            check: HistoryCheck {
                positions: Positions {
                    processed: after.start().unwrap_or_default(),
                    ..Positions::default()
                },
                ..HistoryCheck::default()
            },
            emit: RecordEmitter::new(Cursor::after(after), chain, converters, tolerance),
        }
    }

    /// Writes descriptions of tables that are not in use to a file in this folder.
    pub fn with_folder(mut self, folder: PathBuf) -> Self {
        self.plans.put_away_in(folder);
        self
    }

    /// Sends heartbeats at this interval.
    pub fn with_heartbeats(mut self, interval: Duration) -> Self {
        self.heartbeats = Some(Heartbeats::new(self.plans.settings(), interval));
        self
    }

    /// Limits the number of captured tables.
    pub const fn with_table_limit(mut self, most: u32, action: GuardrailAction) -> Self {
        self.limit = Some((most, action));
        self
    }

    /// Fails before the first change with other columns than the table had before in this run of the connector.
    pub fn stopping_at_changes_of(mut self, shapes: TableShapes, after: &StoredOffset) -> Self {
        self.changes.shapes = Some(ShapeWatch::new(shapes, after));
        self
    }

    /// Adds `source.xmin` to rows and messages of the stream.
    pub fn with_xmin(mut self, xmin: SlotXmin) -> Self {
        self.xmin = Some(xmin);
        self
    }

    /// For an interrupted snapshot that has yet to continue and whose finished part is `done`: finds the rows that it
    /// has to read again, in addition to `again`, and requests them.
    pub fn with_toast_reread(
        mut self,
        again: RowsToReread,
        done: ChunksDone,
        requests: UnboundedSender<SourceRequest>,
    ) -> Self {
        self.changes.toast_reread = Some(ToastReread::new(again, done, requests));
        self
    }

    /// Handles signals and sends notifications. An incremental snapshot in the offset continues.
    pub fn with_signals(mut self, settings: SignalSettings, after: &StoredOffset) -> Self {
        self.changes.signals = Some(Box::new(Signals::new(settings, after)));
        self
    }

    /// Sets how many rows of an incremental snapshot usually leave at once. The next ones leave when Kafka has confirmed these and no
    /// transaction is open. For tests.
    pub fn with_slices(mut self, rows: usize) -> Self {
        if let Some(signals) = &mut self.changes.signals {
            signals.set_slice(rows);
        }
        self
    }

    /// Allows chunks of tables, and blocking snapshots, to be requested.
    pub(crate) fn with_asks(
        mut self,
        asks: UnboundedSender<NumberedAsk>,
        requests: UnboundedSender<SourceRequest>,
    ) -> Self {
        if let Some(signals) = &mut self.changes.signals {
            signals.connect(asks, requests);
        }
        self
    }

    /// Tells these which relations are not captured.
    pub(crate) fn with_observers(mut self, observers: StreamObservers) -> Self {
        if !observers.is_empty() {
            self.plans.note_uncaptured();
        }
        self.observers = observers;
        self
    }

    /// Opens this gate once the server is known to be the one that was read before.
    pub(crate) fn with_gate(mut self, gate: ConfirmGate) -> Self {
        self.check.gate = gate;
        self
    }

    /// Reads the columns that post-processors name again from changed rows. Without a reader, events stay as they are.
    pub fn with_rows(mut self, rows: Arc<dyn RowReader>) -> Self {
        self.emit.rows = Some(rows);
        self
    }

    /// Passes over the change that a person has named.
    pub(crate) fn with_skips(mut self, skips: Arc<RecordSkips>) -> Self {
        self.emit.skips = skips;
        self
    }

    /// Reports the fate of each record to a witness. A running connector has none.
    pub fn with_witness(mut self, witness: Box<dyn Witness>) -> Self {
        self.emit.witness = Some(witness);
        self
    }

    /// Processes one frame of the source. Its ranges point into `bytes`. `now_ns` is the time of processing,
    /// nanoseconds since 1970.
    ///
    /// # Errors
    /// The session has to end.
    pub fn on_frame(&mut self, frame: Frame, bytes: &[u8], now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        match frame {
            Frame::Wal { lsn, payload } => {
                self.on_message(lsn, &bytes[payload], now_ns, out)?;
                self.send_waiting_rows(now_ns, out)?;
            }
            Frame::Keepalive { wal_end } => {
                self.on_keepalive(wal_end, now_ns, out)?;
                self.send_waiting_rows(now_ns, out)?;
            }
            Frame::Catalog(catalog) => self.plans.facts(catalog),
            Frame::Begin { from, under_way } => self.begin_connection(from, under_way, now_ns, out)?,
            Frame::Answer { of, answer, rows } => {
                if let Some(signals) = &mut self.changes.signals {
                    let context = quiet(&self.emit.cursor, now_ns);
                    let (plans, emit) = (&mut self.plans, &mut self.emit);
                    let answered = RequestAnswer {
                        chunk: of,
                        answer,
                        rows,
                    };
                    signals.answer(answered, plans, between(&context), emit, out)?;
                }
                // A slice that has left with the answer is not one of the transaction behind it.
                self.send_waiting_rows(now_ns, out)?;
            }
            Frame::Visible(seen) => {
                if let Some(signals) = &mut self.changes.signals {
                    signals.visible(&seen);
                }
            }
            Frame::Signal(ticket, signal) => {
                if let Some(signals) = &mut self.changes.signals {
                    let context = quiet(&self.emit.cursor, now_ns);
                    signals.signal(*signal, between(&context), &mut self.emit, out)?;
                }
                self.define_tables()?;
                out.step(StreamStep::SignalTaken(ticket));
            }
            Frame::SnapshotBegin {
                rows_left,
                tables,
                kind,
                in_part,
            } => {
                self.emit.counts.snapshot_begin(rows_left);
                self.begin_snapshot(tables, (kind, in_part), now_ns, out)?;
            }
            Frame::Table(table) => {
                if let Some(oid) = table.catalog.table.as_ref().map(|table| table.oid) {
                    self.snapshot_event(SnapshotEvent::Table(oid), now_ns, out)?;
                }
                self.snapshot.get_or_insert_default().table(table, &mut self.plans)?;
            }
            Frame::Row { tuple } => self.on_row(&bytes[tuple], now_ns, out)?,
            Frame::Part { step, completes } => self.end_part(step, completes, now_ns, out)?,
            Frame::SnapshotEnd { lsn, transaction } => return self.end_initial(lsn, transaction, now_ns, out),
            Frame::BlockingEnd { failed } => self.end_blocking(failed, now_ns, out)?,
            Frame::WholeEnd { failed } => self.end_whole(failed, now_ns, out)?,
            Frame::Watermark => self.changes.toast_reread = None,
            Frame::Tick => {}
        }
        self.tell_passed_over(now_ns, out)?;
        self.beat(now_ns, false, out)
    }

    /// Notifies of changes that were passed over since the last frame.
    fn tell_passed_over(&mut self, now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        for data in std::mem::take(&mut self.emit.passed_over) {
            let Some(signals) = &mut self.changes.signals else {
                continue;
            };
            let context = quiet(&self.emit.cursor, now_ns);
            let notice = SnapshotNotice {
                id: None,
                aggregate: "Record",
                kind: "PASSED_OVER",
                data,
            };
            signals.notify(notice, between(&context), &mut self.emit, out)?;
        }
        Ok(())
    }

    /// Rows of an incremental snapshot whose window closes may leave, if no transaction is open.
    fn send_waiting_rows(&mut self, now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        let Some(signals) = self
            .changes
            .signals
            .as_mut()
            .filter(|_| self.emit.cursor.open().is_none())
        else {
            return Ok(());
        };
        let context = quiet(&self.emit.cursor, now_ns);
        signals.between_transactions(between(&context), &mut self.emit, out)
    }

    fn on_keepalive(&mut self, wal_end: Lsn, now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        if self.emit.cursor.open().is_some() {
            // Inside a transaction, the server's position does not say what has been sent.
            return Ok(());
        }
        let verdict = self.check.expected.idle(wal_end);
        self.check.follow(verdict)?;
        out.step(StreamStep::Idle(wal_end));
        self.passed(wal_end, now_ns, out)
    }

    fn begin_connection(
        &mut self,
        from: Lsn,
        under_way: Vec<u32>,
        now_ns: i64,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        self.plans.forget();
        if let Some(shapes) = &mut self.changes.shapes {
            shapes.reconnected();
        }
        // The last row of a table that was not read to its end may be older than what comes now.
        self.snapshot = None;
        out.step(StreamStep::Connected(from));
        self.check
            .begin(from, self.emit.cursor.reconnected(from, now_ns / 1000));
        if let Some(signals) = &mut self.changes.signals {
            let context = quiet(&self.emit.cursor, now_ns);
            signals.begin(under_way, between(&context), &mut self.emit, out)?;
        }
        Ok(())
    }

    fn begin_snapshot(
        &mut self,
        tables: Vec<(Oid, String)>,
        (kind, in_part): (SnapshotKind, Vec<String>),
        now_ns: i64,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        // The rest of a snapshot that was cut off is read again.
        self.snapshot = None;
        self.snapshot_kind = kind;
        if let Some(signals) = &mut self.changes.signals {
            signals.stands_still();
        }
        let whole = tables.iter().filter(|(_, name)| !in_part.contains(name));
        self.snapshot_tables = whole.map(|(_, name)| name.clone()).collect();
        self.snapshot_names = tables.iter().map(|(_, name)| name.clone()).collect();
        if kind == SnapshotKind::Blocking {
            out.step(StreamStep::BlockingBegin);
        }
        self.snapshot_event(SnapshotEvent::Begin(tables), now_ns, out)
    }

    fn on_row(&mut self, tuple: &[u8], now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        let snapshot = self
            .snapshot
            .as_mut()
            .ok_or_else(|| out_of_order("a row before its table"))?;
        snapshot.row(tuple, now_ns, &mut self.emit, out)?;
        if let Some(signals) = &mut self.changes.signals {
            signals.snapshot_row();
        }
        Ok(())
    }

    fn end_part(&mut self, step: SnapshotStep, completes: bool, now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        if completes {
            self.emit.counts.snapshot_table();
        }
        match &mut self.snapshot {
            // It is not resumed: the offset says nothing of its parts.
            _ if self.snapshot_kind == SnapshotKind::Incremental => {}
            Some(snapshot) => snapshot.part(step, out),
            None => out.step(StreamStep::Snapshot(step)),
        }
        self.snapshot_event(SnapshotEvent::Part(step.table(), completes), now_ns, out)
    }

    /// Sends the last row of a snapshot.
    fn end_rows(&mut self, now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        let snapshot = self.snapshot.take().unwrap_or_default();
        snapshot.end(now_ns, &mut self.emit, out)
    }

    fn end_initial(
        &mut self,
        lsn: Lsn,
        transaction: account::Transaction,
        now_ns: i64,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        self.changes.toast_reread = None;
        self.end_rows(now_ns, out)?;
        self.emit.cursor.snapshot_taken(transaction);
        out.step(StreamStep::SnapshotEnd { lsn, transaction });
        out.step(StreamStep::TablesRead(mem::take(&mut self.snapshot_tables)));
        self.beat(now_ns, true, out)?;
        self.snapshot_event(SnapshotEvent::End, now_ns, out)
    }

    fn end_blocking(
        &mut self,
        failed: Option<Box<BlockingFailure>>,
        now_ns: i64,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        self.end_rows(now_ns, out)?;
        self.beat(now_ns, true, out)?;
        let event = match failed {
            Some(_) => SnapshotEvent::GivenUp,
            None => SnapshotEvent::End,
        };
        self.snapshot_event(event, now_ns, out)?;
        let read = mem::take(&mut self.snapshot_names);
        if failed.is_none() {
            out.step(StreamStep::TablesRead(mem::take(&mut self.snapshot_tables)));
        }
        if let Some(signals) = &mut self.changes.signals {
            signals.blocking_ended(failed, read, out);
        }
        Ok(())
    }

    fn end_whole(&mut self, failed: Option<NotRead>, now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        let rows = self.snapshot.as_ref().map_or(0, Snapshot::rows);
        self.snapshot_kind = SnapshotKind::Initial;
        self.end_rows(now_ns, out)?;
        self.beat(now_ns, true, out)?;
        if let Some(signals) = &mut self.changes.signals {
            let context = quiet(&self.emit.cursor, now_ns);
            signals.whole_read(rows, failed, between(&context), &mut self.emit, out)?;
        }
        Ok(())
    }

    /// Tries the waiting records of a batch again. Returns what the first record that still waits needs.
    ///
    /// # Errors
    /// The session has to end.
    pub fn finish(&mut self, out: &mut Batch) -> Result<Option<Wait>, Failure> {
        self.emit.finish(out)
    }

    /// The plan of a table whose rows are read by SQL.
    pub(crate) fn plan_of_rows(&mut self, catalog: &mut Catalog) -> Result<Option<TablePlan>, Failure> {
        self.plans.snapshot(catalog)
    }

    /// The way of records to the batch.
    pub(crate) const fn emitter(&mut self) -> &mut RecordEmitter {
        &mut self.emit
    }

    /// What happens to records that cannot be sent.
    pub const fn tolerance(&self) -> &ErrorPolicy {
        self.emit.tolerance()
    }

    /// The first waiting record of a batch has waited too long. Sets it aside, if that is allowed.
    ///
    /// # Errors
    /// The connector has to stop.
    pub fn give_up(&mut self, wait: &Wait, out: &mut Batch) -> Result<(), Failure> {
        self.emit.give_up(wait, out)
    }

    fn beat(&mut self, now_ns: i64, force: bool, out: &mut Batch) -> Result<(), Failure> {
        match &mut self.heartbeats {
            Some(heartbeats) => heartbeats.beat(now_ns, force, &mut self.emit, out),
            None => Ok(()),
        }
    }

    /// The stream has sent everything that was committed before this position.
    fn passed(&mut self, lsn: Lsn, now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        let Some(signals) = &mut self.changes.signals else {
            return Ok(());
        };
        let context = quiet(&self.emit.cursor, now_ns);
        signals.passed(lsn, between(&context), &mut self.emit, out)
    }

    /// Notifies of a snapshot that comes before the stream, or in its place. An incremental one has notifications of its own.
    fn snapshot_event(&mut self, event: SnapshotEvent, now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        let Some(signals) = self
            .changes
            .signals
            .as_mut()
            .filter(|_| self.snapshot_kind != SnapshotKind::Incremental)
        else {
            return Ok(());
        };
        let context = quiet(&self.emit.cursor, now_ns);
        signals.snapshot_event(event, between(&context), &mut self.emit, out)
    }

    fn on_message(&mut self, lsn: Lsn, payload: &[u8], now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        match pgoutput::decode(payload).map_err(|error| malformed(lsn, &error))? {
            Message::Change(change) => self.on_change(lsn, &change, now_ns, out),
            Message::Begin(begin) => {
                // Check this before anything of the transaction is sent.
                let verdict = self.check.expected.begin(&begin);
                self.check.follow(verdict)?;
                self.emit.counts.begin(begin.commit_time.unix_micros());
                let is_delivered = self.emit.cursor.begin(&begin);
                self.on_transaction_edge(lsn, now_ns, out, is_delivered, TransactionMetadata::begin)
            }
            // A transaction that sent nothing is settled here: a filtered table must not hold the slot.
            Message::Commit(commit) => {
                let is_delivered = self.emit.cursor.has_ended();
                self.on_transaction_edge(lsn, now_ns, out, is_delivered, TransactionMetadata::end)?;
                let dealt_with = self.emit.cursor.is_dealt_with();
                let open = self.emit.cursor.commit(commit.end_lsn);
                if let (Some(signals), Some(open)) = (&mut self.changes.signals, &open) {
                    // A transaction that was delivered in an earlier connection may not be visible yet either.
                    signals.committed(open.transaction.xid, out);
                }
                if dealt_with {
                    return Ok(());
                }
                let seen = open
                    .as_ref()
                    .map(|open| self.emit.cursor.committed(open, commit.end_lsn));
                let time_us = commit.commit_time.unix_micros();
                self.emit.counts.commit(time_us);
                out.step(StreamStep::Commit {
                    end: commit.end_lsn,
                    time_us,
                    sent: open.is_some_and(|open| open.sent),
                    seen,
                });
                self.passed(commit.end_lsn, now_ns, out)
            }
            // The reader has put the catalog's facts beside the relation, in stream order.
            Message::Relation(relation) => {
                if let Some(signals) = &mut self.changes.signals {
                    signals.described(&relation, self.plans.next_facts());
                }
                if let Some(reread) = &mut self.changes.toast_reread {
                    reread.learn(&relation, self.plans.next_facts());
                }
                self.learn(relation)
            }
            Message::Truncate(truncate) => self.on_truncate(lsn, &truncate, now_ns, out),
            Message::Logical(message) => self.on_logical_message(lsn, &message, now_ns, out),
            Message::Origin(origin) => {
                self.emit.cursor.origin(&origin);
                Ok(())
            }
            // Types are read from the catalog, which has more about them.
            Message::Type(_) => Ok(()),
        }
    }

    fn learn(&mut self, relation: Relation) -> Result<(), Failure> {
        let watched = self.changes.shapes.as_mut().map(|shapes| (shapes, relation.clone()));
        if let Some(change) = self.plans.learn(relation)? {
            self.emit.counts.table_changed(change);
        }
        if let Some((shapes, relation)) = watched
            && let Some((table, relation)) = self.plans.captured(relation)?
        {
            shapes.described(table, relation);
        }
        Ok(())
    }

    fn on_change(&mut self, lsn: Lsn, change: &Change<'_>, now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        self.changes.stream_brings_change();
        let message = MessageType::from(&change.operation);
        let Some(plan) = self.plans.of(change.relation)? else {
            let novelty = self.emit.cursor.advance(lsn);
            self.emit.leave_out_table(message, novelty, lsn, now_ns);
            return Ok(());
        };
        let novelty = advance(&mut self.emit.cursor, plan, change, lsn);
        let origin = self.emit.cursor.origin_name();
        let context = context(&self.emit.cursor, self.xmin.as_ref(), origin.as_origin(), lsn, now_ns);
        let observed = ObservedChange {
            plan,
            change,
            message,
            novelty,
            context: &context,
        };
        self.changes.before(&observed, &mut self.emit, out)?;
        if novelty.is_delivered() && self.metadata.is_none() {
            return Ok(());
        }
        // Envelope, key, tombstone. A change that was delivered before is counted again, for the ordinals within its
        // transaction.
        let outcome = plan.records(change, &context, self.metadata.as_mut());
        let counted = counted(self.metadata.as_mut(), context.xid);
        if novelty.is_delivered() {
            return Ok(());
        }
        self.emit.counts.change(message, lsn, now_ns);
        let from = Provenance {
            table: plan.name(),
            position: novelty.position(),
            message,
        };
        let fate = self.emit.send_change(outcome, from, out)?;
        self.changes.after(&observed, fate, &mut self.emit, out);
        counted.for_each(|part| out.count(part));
        if plan.is_signals() {
            self.define_tables()?;
        }
        Ok(())
    }

    /// Follows the signal `schema-changes`, from the next change on.
    fn define_tables(&mut self) -> Result<(), Failure> {
        let definitions = self.changes.signals.as_mut().map(|signals| signals.take_definitions());
        for (signal, definition) in definitions.into_iter().flatten() {
            let table = &definition.name;
            match self.plans.define(&definition)? {
                Ok(()) => info!(
                    "signal {signal:?} defines key and columns of table {table:?}, until the stream describes it again"
                ),
                Err(why) => warn!("signal {signal:?} does not define table {table:?}: {why}"),
            }
        }
        Ok(())
    }

    fn on_truncate(&mut self, lsn: Lsn, truncate: &Truncate, now_ns: i64, out: &mut Batch) -> Result<(), Failure> {
        for &relation in &truncate.relations {
            let plan = self.plans.of(relation)?;
            // Each table is a change of its own: the first may have been delivered when the second was not.
            let novelty = self.emit.cursor.advance(lsn);
            let Some(plan) = plan else {
                self.emit.leave_out_table(MessageType::Truncate, novelty, lsn, now_ns);
                continue;
            };
            let xid = self.emit.cursor.open().map(|open| open.transaction.xid);
            self.changes.before_truncation((relation, plan.name()), novelty, xid)?;
            let from = Provenance {
                table: plan.name(),
                position: novelty.position(),
                message: MessageType::Truncate,
            };
            let origin = self.emit.cursor.origin_name();
            let context = context(&self.emit.cursor, self.xmin.as_ref(), origin.as_origin(), lsn, now_ns);
            let outcome = plan.truncate(&context, self.metadata.as_mut());
            let counted = counted(self.metadata.as_mut(), context.xid);
            if !novelty.is_delivered() {
                self.emit.counts.change(MessageType::Truncate, lsn, now_ns);
                let before = out.records();
                self.emit.send_all(outcome, from, out)?;
                self.changes.after_truncation(out.records() > before);
                out.end_change(before);
                counted.for_each(|part| out.count(part));
            }
        }
        Ok(())
    }

    fn on_logical_message(
        &mut self,
        lsn: Lsn,
        message: &LogicalMessage<'_>,
        now_ns: i64,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let novelty = self.emit.cursor.advance(lsn);
        if !message.transactional {
            // It is a unit of its own. Debezium takes its LSN for that of a commit.
            self.emit.cursor.commit(lsn);
        }
        let origin = self.emit.cursor.origin_name();
        let context = context(&self.emit.cursor, self.xmin.as_ref(), origin.as_origin(), lsn, now_ns);
        let record = limited(|| self.messages.record(message, &context, self.metadata.as_mut()));
        let counted = counted(self.metadata.as_mut(), context.xid);
        if novelty.is_delivered() {
            return Ok(());
        }
        let from = Provenance {
            table: "",
            position: novelty.position(),
            message: MessageType::Message,
        };
        let record = match record {
            Ok(record) => record,
            Err(limit) => {
                let before = out.records();
                self.emit.reject(&limit.into(), from, out)?;
                out.end_change(before);
                return Ok(());
            }
        };
        match record {
            Some(record) => {
                if !message.transactional {
                    // The offset gets this transaction's time even if none of its records was sent.
                    out.step(StreamStep::Begin(self.emit.cursor.transaction()));
                }
                self.changes.stream_brings_change();
                self.changes.stream_is_busy();
                let before = out.records();
                self.emit.send(record, from, out)?;
                out.end_change(before);
                counted.for_each(|part| out.count(part));
            }
            None => self.emit.skip("message_prefix"),
        }
        if !message.transactional {
            let time_us = self.emit.cursor.transaction().time_us;
            out.step(StreamStep::Commit {
                end: lsn,
                time_us,
                sent: false,
                seen: None,
            });
        }
        Ok(())
    }

    /// Sends the record that marks the beginning or end of a transaction, if these are enabled.
    fn on_transaction_edge(
        &mut self,
        lsn: Lsn,
        now_ns: i64,
        out: &mut Batch,
        is_delivered: bool,
        edge: impl FnOnce(&mut TransactionMetadata, &Context<'_>) -> Option<walferry_record::Record<'static>>,
    ) -> Result<(), Failure> {
        let Some(metadata) = &mut self.metadata else {
            return Ok(());
        };
        let origin = self.emit.cursor.origin_name();
        let context = context(&self.emit.cursor, self.xmin.as_ref(), origin.as_origin(), lsn, now_ns);
        let record = edge(metadata, &context);
        if is_delivered {
            return Ok(());
        }
        // The record has no position of its own: it is sent again together with its transaction.
        let from = Provenance {
            table: "",
            position: Position {
                lsn,
                ..Position::default()
            },
            message: MessageType::Transaction,
        };
        let Some(record) = record else { return Ok(()) };
        self.emit.send(record, from, out)?;
        if let Some(open) = self.emit.cursor.open() {
            let xid = open.transaction.xid;
            out.count((xid, None));
        }
        Ok(())
    }

    /// Whether the captured tables must be checked before the start: a transform needs an outbox among them, or their
    /// number is limited.
    pub fn checks_tables(&self) -> bool {
        self.emit.chain.has_outbox() || self.limit.is_some()
    }

    /// Whether a transform reads TimescaleDB's catalog, so that the database must have it.
    pub fn reads_hypertables(&self) -> bool {
        self.emit.chain.reads_hypertables()
    }

    /// Columns that the outbox table must have. Empty if every captured table must be checked.
    pub fn outbox_columns(&self) -> Vec<String> {
        if self.limit.is_some() || !self.plans.names_fields_as_columns() {
            return Vec::new();
        }
        self.emit.chain.outbox_columns()
    }

    /// Checks the number of captured tables, and looks for the outboxes among them. Returns the outboxes by their place in `tables`.
    ///
    /// # Errors
    /// There are too many tables, there is no outbox, or an outbox lacks a column.
    pub fn check_tables(&self, tables: &[TableFacts]) -> Result<Vec<usize>, Failure> {
        if let Some((most, action)) = self.limit
            && tables.len() > most as usize
        {
            too_many(tables.len(), most, action)?;
        }
        match self.emit.chain.has_outbox() {
            true => self.plans.outboxes(&self.emit.chain, tables),
            false => Ok(Vec::new()),
        }
    }

    /// The same, for a session that begins with these outboxes, as [`check_tables`](Self::check_tables) has found them.
    ///
    /// # Errors
    /// A table can have no plan.
    pub(crate) fn with_outboxes(mut self, outboxes: &[TableFacts]) -> Result<Self, Failure> {
        self.plans.expect_outboxes(&mut self.emit.chain, outboxes)?;
        Ok(self)
    }

    /// Tells what has been counted since the last time.
    pub fn report(&mut self, status: &Status) {
        self.emit.counts.report(status);
        for router in self.emit.chain.each_mut::<EventRouter>() {
            for mismatched in router.take_mismatched() {
                status.count_mismatched(&mismatched);
            }
        }
        let uncaptured = self.plans.take_uncaptured();
        if !uncaptured.is_empty() {
            self.observers.uncaptured(&uncaptured);
        }
        if let Some(signals) = &mut self.changes.signals {
            signals.report(status);
        }
    }
}

impl HistoryCheck {
    fn begin(&mut self, from: Lsn, expected: ExpectedCommits) {
        self.expected = expected;
        self.positions.from = from;
        self.connections += 1;
        if expected.is_met() {
            self.gate.prove(self.connections);
        }
    }

    /// Opens the gate once everything expected has come. Fails if something else has come instead.
    fn follow(&mut self, verdict: Result<(), MissingTransaction>) -> Result<(), Failure> {
        let Err(missing) = verdict else {
            if self.expected.is_met() {
                self.gate.prove(self.connections);
            }
            return Ok(());
        };
        let failure = missed(&missing, &self.positions);
        Err(match self.connections {
            0 | 1 => failure,
            // What was under way may not have been delivered. The next session begins with what was.
            _ => Failure {
                disposition: Disposition::Replay,
                ..failure
            },
        })
    }
}

/// Moves on to a change, and says whether it was delivered before.
fn advance(cursor: &mut Cursor, plan: &TablePlan, change: &Change<'_>, lsn: Lsn) -> ChangeNovelty {
    if let Operation::Update { old: Some(old), new } = change.operation
        && cursor.is_at_offset_of_debezium()
        && plan.moves_key(old, new)
    {
        return cursor.advance_with_other_key(lsn);
    }
    cursor.advance(lsn)
}

/// The counts of the last records, for the source offset.
fn counted(
    metadata: Option<&mut TransactionMetadata>,
    xid: Option<Xid>,
) -> impl Iterator<Item = (u32, Option<(Arc<str>, i64)>)> {
    let xid = xid.map_or(0, |xid| xid.0);
    let tables = metadata.into_iter().flat_map(TransactionMetadata::counted);
    tables.map(move |table| (xid, Some(table)))
}

/// The context of a position between two changes.
fn quiet(cursor: &Cursor, now_ns: i64) -> Context<'static> {
    Context {
        lsn: cursor.between_changes(),
        last_commit_lsn: cursor.last_commit(),
        xid: None,
        source_time_ns: now_ns,
        processed_time_ns: now_ns,
        xmin: None,
        origin: None,
        snapshot: None,
    }
}

const fn between<'a, 'c>(context: &'a Context<'c>) -> FramePlace<'a, 'c> {
    FramePlace { context, change: None }
}

fn context<'a>(
    cursor: &Cursor,
    xmin: Option<&SlotXmin>,
    origin: Option<Origin<'a>>,
    lsn: Lsn,
    now_ns: i64,
) -> Context<'a> {
    Context {
        lsn: Some(lsn),
        last_commit_lsn: cursor.last_commit(),
        xid: cursor.open().map(|open| Xid(open.transaction.xid)),
        source_time_ns: cursor.transaction().time_us.saturating_mul(1000),
        processed_time_ns: now_ns,
        xmin: xmin.and_then(SlotXmin::get),
        origin,
        snapshot: None,
    }
}

fn too_many(tables: usize, most: u32, action: GuardrailAction) -> Result<(), Failure> {
    match action {
        GuardrailAction::Warn => {
            warn!(
                tables,
                guardrail.collections.max = most,
                "more tables are captured than `guardrail.collections.max` allows"
            );
            Ok(())
        }
        GuardrailAction::Fail => Err(Failure::stop(
            Kind::TooManyTables,
            format!("{tables} tables are captured, but `guardrail.collections.max` is {most}"),
            "include fewer tables in `table.include.list`, raise `guardrail.collections.max`, or set `guardrail.collections.limit.action` \
             to warn",
        )),
    }
}

fn malformed(lsn: Lsn, error: &pgoutput::DecodeError) -> Failure {
    Failure::stop(
        Kind::MalformedMessage,
        format!(
            "a message of the stream at LSN {lsn} cannot be decoded: {}",
            Failure::chain(error)
        ),
        "the server uses another version of pgoutput, or something between Walferry and the server alters the data; nothing was skipped",
    )
}

fn out_of_order(what: &str) -> Failure {
    Failure::stop(
        Kind::MalformedSnapshot,
        what.to_owned(),
        "this is a bug: please report it",
    )
}
