//! Signals in the stream, and the incremental snapshot that they start.
//!
//! [`Signals`] connects the state machine ([`Incremental`]) with the stream, and owns all that belongs to a snapshot within a session. Each
//! part has one job. Only [`Freshness`] and [`Slices`] know another one, the window:
//!
//! | part | what it knows |
//! | --- | --- |
//! | [`Incremental`] | which chunk is requested next, and what is stored |
//! | [`Window`] | the rows of the present chunk |
//! | [`Freshness`] | whether they are as new as what was sent |
//! | [`Slices`] | how many of them leave next |
//! | [`ClosePosition`] | where the window ends, if no row says it |
//! | [`Rereads`] | how often the chunk was read in vain |
//! | [`RequestSender`] | the way to the source |
//! | [`Notifier`], [`Reports`] | what people get to see |
//!
//! What happens has two sources. The stream brings rows of the signal table, changes and commits; other tasks bring answers and signals. All
//! of it comes in one order, as frames. Each becomes an event of the state machine, whose effects are carried out at once
//! ([`Signals::carry_out`]). A chunk goes through it like this: request, opening row, answer with the rows, closing row, and the rows
//! leave. At the closing row the rows are judged first ([`Signals::judge`]): if they may be older than what was sent, the chunk is spoiled
//! and read again.
//!
//! The window stays open until its last slice leaves, as if the row that closes it had been written that much later. So the state machine
//! sees this row only then. Pause and resumption inside an open window keep the window and its rows; a blocking snapshot that begins
//! meanwhile stops its slices ([`Signals::stands_still`]), because what is read then is newer.

use std::{mem, sync::Arc};

use tokio::sync::mpsc::UnboundedSender;
use tracing::{info, warn};
use uuid::Uuid;
use walferry_config::connector::Watermarking;
use walferry_event::{Catalog, Context, SnapshotMarker, TablePlan};
use walferry_pgoutput::{Change, Column, Lsn, Operation, Relation, Tuple};

use crate::{
    account::{Batch, StoredOffset, StreamStep},
    failure::Failure,
    incremental::{
        close_position::{ClosePosition, WindowPassed},
        freshness::Freshness,
        generated_columns::GeneratedColumns,
        machine::{
            Action, Ask, ChunkAnswer, Effect, IllegalTransition, Incremental, NotRead, Signal, SnapshotNotice,
            TableDefinition, TableEnd, WindowEnd,
        },
        notifier::{NotificationSettings, Notifier},
        reports::Reports,
        request_sender::RequestSender,
        rereads::{DiscardReason, Rereads},
        slices::Slices,
        window::{ChunkRow, Evicted, Window},
    },
    message_type::MessageType,
    path::{
        change_observer::{ChangeObserver, ObservedChange},
        emit::{Provenance, RecordEmitter, begin_transaction},
        fate::ChangeFate,
        plans::RelationPlans,
    },
    position::Position,
    snapshot::initial::SnapshotEvent,
    source::{BlockingFailure, ChunkRows, NumberedAsk, SourceRequest, VisibleTransactions, WholeTable},
    status::{SnapshotNews, Status},
};

/// Settings of signals and notifications.
#[derive(Debug, Clone, Default)]
pub struct SignalSettings {
    /// `topic.prefix`, the connector's name in notifications.
    pub server: String,
    /// Whether the signal table's signals are followed, in addition to those that mark windows.
    pub source: bool,
    /// The signal table as `schema.table`. Without it, no chunk can be marked in the stream.
    pub table: Option<String>,
    /// `read.only`: windows are not marked by rows of the signal table. They end where the stream has passed the
    /// position of the chunk.
    pub read_only: bool,
    /// How windows are closed.
    pub watermarking: Watermarking,
    /// Where notifications are sent: a topic,
    pub topic: Option<String>,
    /// the log,
    pub log: bool,
    /// and the status, for the admin endpoint.
    pub status: bool,
}

/// How signals are read and windows are marked.
struct Channel {
    /// Whether the signal table's signals are followed, in addition to those that mark windows.
    follows_table: bool,
    table: Option<String>,
    read_only: bool,
    watermarking: Watermarking,
}

impl Channel {
    /// Whether the position of a chunk in the stream can be determined.
    const fn can_mark_windows(&self) -> bool {
        self.table.is_some() || self.read_only
    }

    fn table(&self) -> &str {
        self.table.as_deref().unwrap_or_default()
    }
}

/// The signals of a connector, and its incremental snapshot.
pub(crate) struct Signals {
    channel: Channel,
    snapshot: Incremental,
    window: Window,
    freshness: Freshness,
    slices: Slices,
    close_position: ClosePosition,
    rereads: Rereads,
    requests: RequestSender,
    generated_columns: GeneratedColumns,
    notifier: Notifier,
    reports: Reports,
    /// What signals say of tables, with the id of the signal, until somebody takes it.
    definitions: Vec<(String, TableDefinition)>,
    /// Why the offset's state of the snapshot cannot be read, until a connection begins.
    unreadable: Option<String>,
    /// Whether a connection has begun.
    has_begun: bool,
}

/// The place of a frame in the stream.
#[derive(Clone, Copy)]
pub(crate) struct FramePlace<'a, 'c> {
    pub(crate) context: &'a Context<'c>,
    /// Position and kind of the change, if the frame is one.
    pub(crate) change: Option<(Position, MessageType)>,
}

/// The answer to a request.
pub(crate) struct RequestAnswer {
    /// The chunk that it belongs to, if any.
    pub(crate) chunk: Option<String>,
    pub(crate) answer: ChunkAnswer,
    /// The rows of a chunk.
    pub(crate) rows: Option<Box<ChunkRows>>,
}

impl Signals {
    pub(crate) fn new(settings: SignalSettings, after: &StoredOffset) -> Self {
        let (snapshot, unreadable) = Incremental::from_offset(&after.connect.other);
        let SignalSettings {
            server,
            source,
            table,
            read_only,
            watermarking,
            topic,
            log,
            status,
        } = settings;
        let notifications = NotificationSettings {
            server,
            topic,
            log,
            status,
        };
        Self {
            notifier: Notifier::new(notifications, table.clone()),
            channel: Channel {
                follows_table: source,
                table,
                read_only,
                watermarking,
            },
            snapshot,
            window: Window::default(),
            freshness: Freshness::default(),
            slices: Slices::default(),
            close_position: ClosePosition::default(),
            rereads: Rereads::default(),
            requests: RequestSender::default(),
            generated_columns: GeneratedColumns::default(),
            reports: Reports::default(),
            definitions: Vec::new(),
            unreadable,
            has_begun: false,
        }
    }

    pub(crate) fn connect(&mut self, asks: UnboundedSender<NumberedAsk>, to_reader: UnboundedSender<SourceRequest>) {
        self.requests.connect(asks, to_reader);
    }

    /// Sets how many rows a slice usually has.
    pub(crate) const fn set_slice(&mut self, rows: usize) {
        self.slices.set_rows(rows);
    }

    /// A connection has begun while these transactions were in progress on the server. A snapshot that is under way
    /// continues.
    pub(crate) fn begin(
        &mut self,
        under_way: Vec<u32>,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        self.freshness.connected(under_way);
        if let Some(unreadable) = self.unreadable.take() {
            warn!("{unreadable}");
        }
        let is_first = !mem::replace(&mut self.has_begun, true);
        if is_first {
            let tables: Vec<String> = self.snapshot.tables().map(str::to_owned).collect();
            if !tables.is_empty() {
                let id = self.snapshot.correlation().unwrap_or_default().to_owned();
                self.reports.add(SnapshotNews::GoesOn { id, tables });
            }
            self.snapshot_event(SnapshotEvent::Stream, here, emit, out)?;
        }
        self.close_position.connected();
        if !self.requests.is_connected() {
            return Ok(());
        }
        let effects = if is_first {
            self.snapshot.begin(self.channel.can_mark_windows(), &mut new_id)
        } else {
            self.snapshot.read_again(&mut new_id)
        };
        self.carry_out(effects, here, emit, out)
    }
}

/// What the stream brings.
impl Signals {
    /// Handles a row of the signal table.
    fn row(
        &mut self,
        change: &Change<'_>,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let (tuple, is_deleted) = match change.operation {
            Operation::Insert { new } => (new, false),
            Operation::Delete { old } if self.channel.watermarking == Watermarking::InsertDelete => (old.tuple(), true),
            Operation::Update { .. } | Operation::Delete { .. } => return Ok(()),
        };
        let Some(mut signal) = signal(tuple) else {
            warn!(
                columns = tuple.column_count(),
                "a row of the signal table is not a signal: the table must have three columns, an id, a type and data"
            );
            return Ok(());
        };
        if is_deleted {
            // Any other row is deleted because somebody tidies up.
            let Some(chunk) = WindowEnd::Open.chunk(&signal.id) else {
                return Ok(());
            };
            signal = WindowEnd::Close.signal(chunk);
        }
        if WindowEnd::of(&signal.kind).is_none() && !self.channel.follows_table {
            info!(
                signal.id,
                "a signal in the signal table is ignored, because signal.enabled.channels does not contain source"
            );
            return Ok(());
        }
        self.signal(signal, here, emit, out)
    }

    /// The stream brings a change. While rows of a closed window are left, the next slice grows with it.
    pub(crate) fn stream_brings_change(&mut self) {
        self.slices.stream_brings_change();
    }

    /// The stream brings something to send. It waits behind small slices only.
    pub(crate) const fn stream_is_busy(&mut self) {
        self.slices.stream_is_busy();
    }

    /// Whether changes of this table replace rows of the window.
    fn watches(&self, table: &str) -> bool {
        self.snapshot.is_open() && (self.window.has(table) || self.snapshot.tables().next() == Some(table))
    }

    /// A change of a table that is [watched](Self::watches) has gone through the pipeline: it was sent, or dropped or set aside, or nobody
    /// knows yet. One that is sent replaces its row. Otherwise the chunk still sends the row, unless it was deleted.
    fn handled(&mut self, plan: &TablePlan, change: &Change<'_>, xid: Option<u32>, is_sent: Option<bool>) {
        match is_sent {
            None => self.doubt_rows_of(plan.name(), xid),
            Some(false) if !matches!(change.operation, Operation::Delete { .. }) => {}
            Some(_) => {
                let is_included = xid.is_some_and(|xid| self.freshness.is_included(xid));
                if self.window.evict(plan, &change.operation, (xid, is_included)) == Evicted::Unknown {
                    self.freshness.doubt(xid, &mut self.window);
                }
                self.cut_off();
            }
        }
    }

    /// A change of this table replaces no row: it was delivered before, or it is not known yet whether it will be sent, or it truncates the
    /// table. Rows that are written later come with the stream.
    pub(crate) fn doubt_rows_of(&mut self, table: &str, xid: Option<u32>) {
        if self.watches(table) {
            self.freshness.doubt(xid, &mut self.window);
        }
    }

    /// A transaction of the stream is complete.
    pub(crate) fn committed(&mut self, xid: u32, out: &mut Batch) {
        self.freshness.committed(xid);
        if self.channel.can_mark_windows() && self.freshness.are_many(self.snapshot.is_running()) {
            self.requests.ask(Ask::Visible, out);
        }
    }

    /// The stream has described a table.
    pub(crate) fn described(&mut self, relation: &Relation, facts: Option<&Catalog>) {
        self.generated_columns.described(relation, facts);
    }

    /// The stream has sent everything that was committed before this position.
    pub(crate) fn passed(
        &mut self,
        lsn: Lsn,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        match self.close_position.passed(lsn) {
            None => Ok(()),
            Some(WindowPassed::ClosingRowIsDue) => self.closing_row_is_due(here, emit, out),
            Some(WindowPassed::Closes) => {
                let Some(signal) = self.snapshot.chunk().map(|chunk| WindowEnd::Close.signal(chunk)) else {
                    return Ok(());
                };
                self.signal(signal, here, emit, out)
            }
        }
    }

    /// The stream is past the row that closes the window. If it has not brought it, the chunk is read again.
    fn closing_row_is_due(
        &mut self,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        // Either it has come, and rows of the window are left, or there is nothing to read again behind the last table.
        if self.slices.is_closing() || !self.snapshot.is_running() {
            return Ok(());
        }
        let table = self.snapshot.tables().next().unwrap_or_default();
        self.reports
            .row_is_lost("closes the window of a chunk", table, self.channel.table());
        let effects = self.snapshot.read_again(&mut new_id);
        self.carry_out(effects, here, emit, out)
    }

    /// The stream is between two transactions: rows of the window that closes may leave.
    pub(crate) fn between_transactions(
        &mut self,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let Some(signal) = self.slices.take_due() else {
            return Ok(());
        };
        // The stream may have brought changes that cannot be told apart since the last slice. Nothing else can have
        // changed since the row that closes the window came.
        if self.freshness.is_unclear(&self.window) {
            self.spoil(DiscardReason::Unclear);
        }
        self.close_or_follow(signal, here, emit, out)
    }

    /// The stream stands still, and rows of a snapshot follow. They may be newer than those of the window, so no more
    /// of these may leave. The next connection reads the chunk again.
    pub(crate) fn stands_still(&mut self) {
        self.slices.clear();
        warn_if_illegal(self.snapshot.keep_open());
    }
}

impl ChangeObserver for Signals {
    fn before(
        &mut self,
        change: &ObservedChange<'_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        if change.novelty.is_delivered() {
            self.doubt_rows_of(change.plan.name(), change.xid());
            return Ok(());
        }
        if !change.plan.is_signals() {
            self.stream_is_busy();
            return Ok(());
        }
        let here = FramePlace {
            context: change.context,
            change: Some((change.novelty.position(), change.message)),
        };
        self.row(change.change, here, emit, out)
    }

    fn after(&mut self, change: &ObservedChange<'_>, fate: ChangeFate, emit: &mut RecordEmitter, out: &mut Batch) {
        if fate.has_records && self.watches(change.plan.name()) {
            let is_sent = fate.is_sent && !fate.is_set_aside;
            let is_sent = (!fate.is_undecided).then_some(is_sent);
            self.handled(change.plan, change.change, change.xid(), is_sent);
        }
        let at = (change.novelty.position(), change.message);
        self.store_change(Some(at), emit, out);
    }
}

/// What other tasks bring.
impl Signals {
    /// Handles a signal, wherever it came from.
    pub(crate) fn signal(
        &mut self,
        signal: Signal,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        if !self.channel.can_mark_windows()
            && let Ok(Action::Execute(execute)) = signal.action()
            && !execute.blocking
        {
            warn!(
                signal.id,
                "a signal is ignored: an incremental snapshot needs a signal table. Create one and set signal.data.collection, set \
                 read.only, or request a blocking snapshot"
            );
            return Ok(());
        }
        self.judge(&signal);
        self.close_or_follow(signal, here, emit, out)
    }

    /// Handles the answer to a request.
    pub(crate) fn answer(
        &mut self,
        answered: RequestAnswer,
        plans: &mut RelationPlans,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let RequestAnswer { chunk, answer, rows } = answered;
        if chunk.is_some() && chunk.as_deref() != self.snapshot.chunk() {
            // The answer belongs to a chunk that was given up meanwhile.
            return Ok(());
        }
        match answer {
            // The next slice leaves as soon as no transaction is open.
            ChunkAnswer::Delivered => {
                self.slices.delivered();
                return Ok(());
            }
            ChunkAnswer::CloseAt(lsn) => {
                let stream_at = self.close_position.closes_at(Lsn(lsn));
                // An idle stream may have passed it already.
                return match emit.cursor.open() {
                    Some(_) => Ok(()),
                    None => self.passed(stream_at, here, emit, out),
                };
            }
            ChunkAnswer::ClosedBefore(lsn) => {
                self.close_position.was_written_before(Lsn(lsn));
                return Ok(());
            }
            _ => {}
        }
        if let Some(rows) = rows {
            self.rows_arrive(*rows, plans, emit)?;
        }
        // The answer to another signal's look-up may come while the chunk is being read.
        if chunk.is_some() {
            self.window.arrived();
        }
        let effects = self.snapshot.answer(answer, &mut new_id);
        self.cut_off();
        let now_ns = here.context.processed_time_ns;
        self.reports.estimates.log_progress(&self.snapshot, now_ns);
        self.carry_out(effects, here, emit, out)
    }

    /// Puts the rows of a chunk into the window.
    fn rows_arrive(
        &mut self,
        rows: ChunkRows,
        plans: &mut RelationPlans,
        emit: &mut RecordEmitter,
    ) -> Result<(), Failure> {
        let ChunkRows {
            mut catalog,
            bytes,
            tuples,
            seen,
            rows_left,
            others,
        } = rows;
        if let Some(table) = self.snapshot.tables().next() {
            let rows_before = self.snapshot.rows();
            self.reports.estimates.learn(table, rows_before, rows_left, others);
        }
        let seen = self.freshness.chunk_read(seen);
        if let Some(plan) = plans.snapshot(&mut catalog)?.map(Arc::new) {
            for tuple in tuples {
                self.window.put(&plan, (&bytes, tuple), seen)?;
                emit.counts.snapshot_row(plan.name());
            }
        }
        Ok(())
    }

    /// Snapshots of the server include these transactions.
    pub(crate) fn visible(&mut self, seen: &VisibleTransactions) {
        self.freshness.visible(seen, self.snapshot.chunk().is_some());
    }

    /// A blocking snapshot has read these tables, or is given up.
    pub(crate) fn blocking_ended(&mut self, failed: Option<Box<BlockingFailure>>, read: Vec<String>, out: &mut Batch) {
        self.snapshot.blocking_ended();
        self.reports.add(match failed.map(|failed| *failed) {
            Some(BlockingFailure { tables, failure }) => SnapshotNews::BlockingFailed { tables, failure },
            None => SnapshotNews::BlockingRead(read),
        });
        self.store_state(None, true, out);
    }

    /// A table without a key has been read as a whole, or cannot be read, for this reason.
    pub(crate) fn whole_read(
        &mut self,
        rows: u64,
        failed: Option<NotRead>,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let effects = self.snapshot.whole_read(rows, failed, &mut new_id);
        self.carry_out(effects, here, emit, out)
    }

    /// What signals have said of tables since the last call.
    pub(crate) fn take_definitions(&mut self) -> Vec<(String, TableDefinition)> {
        mem::take(&mut self.definitions)
    }

    /// Shows the progress of the snapshot in the status.
    pub(crate) fn report(&mut self, status: &Status) {
        self.reports.report(&self.snapshot, status);
    }

    /// A row of a snapshot before the stream, or in its place.
    pub(crate) const fn snapshot_row(&mut self) {
        self.notifier.snapshot_row();
    }

    /// Sends notifications of a snapshot before the stream, or in its place.
    pub(crate) fn snapshot_event(
        &mut self,
        event: SnapshotEvent,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        for notice in self.notifier.snapshot_event(event) {
            self.notify(notice, here, emit, out)?;
        }
        Ok(())
    }

    /// Sends a notification through all configured channels.
    pub(crate) fn notify(
        &mut self,
        notice: SnapshotNotice,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        self.reports.estimates.notified(&notice);
        self.notifier.notify(notice, here.context.processed_time_ns, emit, out)
    }

    /// Puts the changed state into the offset. `at` is the change that caused it.
    fn store_change(&mut self, at: Option<(Position, MessageType)>, emit: &mut RecordEmitter, out: &mut Batch) {
        if self.snapshot.has_changed() {
            if at.is_some() {
                begin_transaction(&mut emit.cursor, out);
            }
            self.store_state(at, false, out);
        }
    }
}

/// How a window ends, and what the state machine wants.
impl Signals {
    /// At the close of the window: decides whether its rows include everything that the stream had sent before it
    /// opened.
    fn judge(&mut self, signal: &Signal) {
        let is_ours = self.snapshot.chunk().is_some_and(|chunk| signal.id.starts_with(chunk));
        if WindowEnd::of(&signal.kind) != Some(WindowEnd::Close) || !is_ours {
            return;
        }
        if let Some(why) = self.discard_reason() {
            self.spoil(why);
        }
    }

    /// Why the rows of the window must not be sent.
    fn discard_reason(&self) -> Option<DiscardReason> {
        // Behind the last table, nothing is left in the window, unless a signal has ended the snapshot.
        if !self.snapshot.is_running() && self.window.is_empty() {
            return None;
        }
        if self.snapshot.lacks_opening() {
            return Some(DiscardReason::NotOpened);
        }
        if let Some(unseen) = self.freshness.unseen() {
            return Some(DiscardReason::Unseen(unseen));
        }
        let is_unclear = self.freshness.is_unclear(&self.window);
        is_unclear.then_some(DiscardReason::Unclear)
    }

    /// The chunk is read again.
    fn spoil(&mut self, why: DiscardReason) {
        warn_if_illegal(self.snapshot.spoil());
        if let Some(report) = self.rereads.discarded(why) {
            let table = self.snapshot.tables().next().unwrap_or_default();
            self.reports.reread(report, table, self.channel.table());
        }
    }

    /// A signal that closes the window sends rows; any other goes to the state machine.
    fn close_or_follow(
        &mut self,
        signal: Signal,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        if self.snapshot.closes(&signal) {
            self.send_slice(signal, here, emit, out)
        } else {
            self.follow(signal, here, emit, out)
        }
    }

    /// Sends the next slice of the window. With the last one, the window is closed.
    fn send_slice(
        &mut self,
        signal: Signal,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let size = self.slices.size();
        if self.rereads.was_unclear() || !self.window.exceeds(size) {
            self.slices.all_left();
            return self.follow(signal, here, emit, out);
        }
        let rows = self.window.take_slice(size);
        self.send_rows(rows, here, emit, out)?;
        self.requests.ask(Ask::Delivery, out);
        self.slices.left(signal);
        warn_if_illegal(self.snapshot.begin_closing());
        Ok(())
    }

    fn follow(
        &mut self,
        signal: Signal,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let was_open = self.snapshot.is_open();
        let effects = self.snapshot.signal(signal, &mut new_id);
        if !was_open && self.snapshot.is_open() {
            self.opens_here(emit);
        }
        self.carry_out(effects, here, emit, out)
    }

    /// From here on, changes of the stream replace rows of the window.
    fn opens_here(&mut self, emit: &RecordEmitter) {
        let open = emit.cursor.open();
        self.freshness.opens(open.map(|open| open.transaction.xid));
    }

    /// The state machine must know what was cut off the window.
    fn cut_off(&mut self) {
        let Some(cut) = self.window.take_cut() else { return };
        // If the table's snapshot was stopped meanwhile, nothing is read again.
        if self.snapshot.tables().next() == Some(&*cut.table) {
            self.snapshot.shorten(cut.end, cut.rows as u64);
        }
    }

    /// Carries out what the state machine wants, in order.
    fn carry_out(
        &mut self,
        effects: Vec<Effect>,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        for effect in effects {
            self.carry_out_one(effect, here, emit, out)?;
        }
        self.reports.state_changed();
        if !self.snapshot.is_running() {
            // The next snapshot begins anew.
            self.rereads.reset();
        }
        if self.close_position.take_unmarked_opening()
            && let Some(signal) = self.snapshot.chunk().map(|chunk| WindowEnd::Open.signal(chunk))
        {
            self.signal(signal, here, emit, out)?;
        }
        // A change calls `store_change` itself once its record is in the batch: both must count together.
        if here.change.is_none() {
            self.store_change(None, emit, out);
        }
        Ok(())
    }

    fn carry_out_one(
        &mut self,
        effect: Effect,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        match effect {
            Effect::Ask(ask) => self.ask(ask, emit, out),
            Effect::Notify(notice) => self.notify(notice, here, emit, out)?,
            Effect::SendWindow => {
                self.rereads.reset();
                self.close_position.sent();
                let rows = self.window.take();
                self.send_rows(rows, here, emit, out)?;
            }
            Effect::ClearWindow => {
                self.window.clear();
                self.close_position.clear();
                self.slices.clear();
            }
            Effect::Block(execute) => self.requests.stop_stream_for(SourceRequest::Block(execute)),
            Effect::ReadWhole(table) => {
                let left_out = self.generated_columns.left_out(&table.id).to_vec();
                let table = WholeTable { table, left_out };
                self.requests.stop_stream_for(SourceRequest::ReadWhole(table));
            }
            Effect::Requested { id, tables } => self.reports.add(SnapshotNews::Begins {
                id,
                is_blocking: false,
                tables,
            }),
            Effect::BlockingRequested { id, tables } => self.reports.add(SnapshotNews::Begins {
                id,
                is_blocking: true,
                tables,
            }),
            Effect::TableEnded(table, end) => {
                if matches!(end, TableEnd::Read { is_whole: true, .. }) {
                    out.step(StreamStep::TablesRead(Arc::new([table.clone()])));
                }
                self.reports.table_ended(table, end);
            }
            Effect::SchemaChanges(id, tables) => {
                let tables = tables.into_iter().map(|table| (id.clone(), table));
                self.definitions.extend(tables);
            }
            Effect::Log(message) => log_signal(&message, here.context),
            Effect::Warn(text) => warn!("{text}"),
            Effect::Info(text) => info!("{text}"),
        }
        Ok(())
    }

    /// Requests something beside the stream. If it is a chunk, the window is prepared for its rows.
    fn ask(&mut self, mut ask: Ask, emit: &RecordEmitter, out: &mut Batch) {
        if let Ask::Chunk(chunk) = &mut ask {
            chunk.left_out = self.generated_columns.left_out(&chunk.table.id).to_vec();
            chunk.others = self.reports.estimates.unknown(&self.snapshot);
            // Before its window opens, no change of the stream replaces a row.
            let is_covered = self.snapshot.is_open() && self.freshness.unseen().is_none();
            if !self.window.is_empty() && !is_covered {
                self.window.spoil();
            }
            if chunk.opens {
                self.window.begin();
            }
            self.freshness.chunk_requested(self.window.is_empty());
            self.window.identify(&chunk.table.id, chunk.key.as_ref());
            self.window.expect_rows(true);
            self.opens_here(emit);
            self.close_position
                .chunk_requested(chunk.opens && self.channel.read_only);
        }
        self.requests.ask(ask, out);
    }

    /// Sends rows of the window. They have the position at which they leave.
    fn send_rows(
        &self,
        rows: impl IntoIterator<Item = ChunkRow>,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let context = Context {
            xid: None,
            xmin: None,
            source_time_ns: here.context.processed_time_ns,
            snapshot: Some(SnapshotMarker::Incremental),
            ..*here.context
        };
        let position = Position {
            lsn: here.context.lsn.unwrap_or(Lsn::INVALID),
            ..Position::default()
        };
        for row in rows {
            let plan = row.plan();
            let from = Provenance {
                table: plan.name(),
                position,
                message: MessageType::Read,
            };
            let tuple = row.tuple()?;
            match plan.snapshot_row(tuple.columns(), &context) {
                Ok(outcome) => emit.send_all(outcome, from, out)?,
                Err(error) => emit.reject(&error, from, out)?,
            }
        }
        Ok(())
    }

    /// Puts the state into the offset.
    fn store_state(&mut self, at: Option<(Position, MessageType)>, ends_blocking: bool, out: &mut Batch) {
        out.step(StreamStep::Incremental {
            members: Arc::new(self.snapshot.offset_members()),
            at,
            ends_blocking,
        });
    }
}

/// The message of a signal, in which `{}` stands for the position.
fn log_signal(message: &str, context: &Context<'_>) {
    let lsn = context.lsn.map(|lsn| lsn.0).unwrap_or_default();
    let commit = context.last_commit_lsn.map(|lsn| lsn.0).unwrap_or_default();
    info!(
        "{}",
        message.replace("{}", &format!("{{lsn={lsn}, lsn_commit={commit}}}"))
    );
}

/// The three columns of a row of the signal table. Their names do not matter.
fn signal(tuple: Tuple<'_>) -> Option<Signal> {
    let text = |column: Column<'_>| match column {
        Column::Text(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    let columns: Vec<String> = tuple.columns().map(text).collect();
    let [id, kind, data] = <[String; 3]>::try_from(columns).ok()?;
    Some(Signal { id, kind, data })
}

/// Logs that the state machine does not allow an event. Its state is as before.
fn warn_if_illegal(outcome: Result<(), IllegalTransition>) {
    if let Err(illegal) = outcome {
        warn!("{illegal}");
    }
}

fn new_id() -> String {
    Uuid::new_v4().to_string()
}

#[cfg(test)]
#[path = "signals_tests.rs"]
mod tests;
