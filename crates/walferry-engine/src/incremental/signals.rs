//! Signals in the stream, and the incremental snapshot that they start.
//!
//! Connects the state machine of [`Incremental`] with the stream: the rows of the signal table, the changes that
//! replace rows of a window, and the commits that a chunk may not have seen. Rows of a chunk stay in the [`Window`]
//! until the stream has sent the row that closes it.
//!
//! The rows leave in slices. Each waits until Kafka has confirmed the one before it, so that a change of the stream waits
//! behind one slice at most, here and in Kafka. While the stream brings nothing, slices grow. Until the last one leaves,
//! the window stays open, as if the row that closes it had been written that much later. So the state machine sees this
//! row only then, and nothing else has to know of slices.

use std::{collections::HashMap, mem, sync::Arc};

use tokio::sync::mpsc::UnboundedSender;
use tracing::{info, warn};
use uuid::Uuid;
use walferry_config::connector::Watermarking;
use walferry_event::{Catalog, Context, Notification, Notifications, SnapshotMarker, TablePlan};
use walferry_pgoutput::{Change, Column, Lsn, Operation, Relation, Tuple};

use crate::{
    account::{Batch, StoredOffset, StreamStep},
    failure::{Disposition, Failure},
    incremental::{
        commits::{self, Commits, Unseen},
        estimates::Estimates,
        machine::{
            Action, Ask, ChunkAnswer, Effect, IllegalTransition, Incremental, KEYS, NotRead, Signal, SnapshotNotice,
            TableDefinition, TableEnd, WindowEnd,
        },
        window::{ChunkRow, Evicted, SliceSize, Window},
    },
    message_type::MessageType,
    path::{
        emit::{Provenance, RecordEmitter, begin_transaction},
        plans::RelationPlans,
    },
    position::Position,
    snapshot::initial,
    source::{BlockingFailure, ChunkRows, NumberedAsk, SourceRequest, VisibleTransactions, WholeTable},
    status::{SnapshotNews, Status, TableState},
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

/// The largest slice, as a multiple of the usual one.
const LARGEST: usize = 1024;

/// Slices begin to grow when more than so many have left and the stream has brought nothing to send meanwhile. In the time of fewer, a stream of a few
/// hundred rows a second may bring nothing either.
const QUIET_SLICES: u32 = 16;

/// After each such number of unsuccessful reads of a chunk, a message is logged.
const REPEATS_TOLD: u32 = 20;

/// Why the rows of a window must not be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiscardReason {
    /// The stream has not brought the row that opens the window, or it has brought its deletion before the chunk was read.
    NotOpened,
    /// They do not include this transaction.
    Unseen(Unseen),
    /// The stream has changed rows, and nobody knows whether they are among these.
    Unclear,
}

/// The signals of a connector, and its incremental snapshot.
pub(crate) struct Signals {
    settings: SignalSettings,
    snapshot: Incremental,
    window: Window,
    /// The usual slice: how much of a window leaves each time Kafka has confirmed the slice before.
    slice: SliceSize,
    /// The signal that closes the window, while rows of the window are left.
    closing: Option<Signal>,
    /// Whether Kafka has not confirmed the last slice yet.
    awaits_delivery: bool,
    /// Slices that have left since the stream brought something to send, without the last one of each window.
    quiet_slices: u32,
    /// Changes of the stream since the last slice, of any table.
    passed: usize,
    asks: Option<UnboundedSender<NumberedAsk>>,
    /// How many requests were made that wait until Kafka has everything that was sent before them.
    awaited: u64,
    notifications: Option<Notifications>,
    /// Transactions that a chunk must include.
    commits: Commits,
    /// Which transactions the chunk's rows include.
    seen: Option<VisibleTransactions>,
    /// Which transactions the oldest rows of the window include. These may be the rows of an earlier chunk.
    oldest_seen: Option<VisibleTransactions>,
    /// Transactions that have changed rows of which nobody knows whether they are in the window. Rows that include
    /// these transactions are newer than the change.
    unknown: Vec<u32>,
    /// How often the present chunk was read without success.
    repeats: u32,
    /// How often of these because its window was not opened.
    unopened: u32,
    /// Whether changes of the stream have spoiled it.
    was_unclear: bool,
    /// Generated columns that the stream does not send. As in Debezium, a table that the stream has described is read
    /// without them.
    left_out: HashMap<String, Vec<String>>,
    /// Whether the status is out of date.
    has_news: bool,
    estimates: Estimates,
    /// With `read.only`: the window that was requested is to be opened.
    opens_unmarked: bool,
    /// With `read.only`: the position at which the present window ends.
    close_at: Option<Lsn>,
    /// The stream of this connection has sent everything that was committed before this position.
    stream_at: Lsn,
    /// The row that closes the present window was committed before this position.
    closed_before: Option<Lsn>,
    /// What went wrong and has not been reported.
    lost: Option<Failure>,
    /// What signals say of tables, with the id of the signal, until somebody takes it.
    definitions: Vec<(String, TableDefinition)>,
    /// What has become of snapshots and has not been reported.
    snapshot_news: Vec<SnapshotNews>,
    /// Why the offset's state of the snapshot cannot be read.
    unreadable: Option<String>,
    requests: Option<UnboundedSender<SourceRequest>>,
    /// Whether a connection has begun.
    has_begun: bool,
    /// The notified state of a snapshot before the stream.
    pub(crate) told: initial::Initial,
}

/// The place of a frame in the stream.
#[derive(Clone, Copy)]
pub(crate) struct FramePlace<'a, 'c> {
    pub(crate) context: &'a Context<'c>,
    /// Position and kind of the change, if the frame is one.
    pub(crate) change: Option<(Position, MessageType)>,
}

impl Signals {
    pub(crate) fn new(settings: SignalSettings, after: &StoredOffset) -> Self {
        let (snapshot, unreadable) = Incremental::from_offset(&after.connect.other);
        let settings_table = settings.table.clone();
        Self {
            notifications: settings.topic.as_deref().map(Notifications::new),
            settings,
            snapshot,
            window: Window::default(),
            slice: SliceSize::default(),
            closing: None,
            awaits_delivery: false,
            quiet_slices: 0,
            passed: 0,
            asks: None,
            awaited: 0,
            commits: Commits::default(),
            seen: None,
            oldest_seen: None,
            unknown: Vec::new(),
            repeats: 0,
            unopened: 0,
            was_unclear: false,
            left_out: HashMap::new(),
            has_news: true,
            estimates: Estimates::default(),
            opens_unmarked: false,
            close_at: None,
            stream_at: Lsn::INVALID,
            closed_before: None,
            lost: None,
            definitions: Vec::new(),
            snapshot_news: Vec::new(),
            unreadable,
            requests: None,
            has_begun: false,
            told: initial::Initial::new(settings_table),
        }
    }

    pub(crate) fn ask_there(&mut self, asks: UnboundedSender<NumberedAsk>, requests: UnboundedSender<SourceRequest>) {
        (self.asks, self.requests) = (Some(asks), Some(requests));
    }

    /// Sets how many rows a slice usually has.
    pub(crate) const fn set_slice(&mut self, rows: usize) {
        self.slice.rows = rows;
    }

    /// A blocking snapshot has read these tables, or is given up.
    pub(crate) fn blocking_ended(&mut self, failed: Option<Box<BlockingFailure>>, read: Vec<String>, out: &mut Batch) {
        self.snapshot.blocking_ended();
        self.snapshot_news.push(match failed.map(|failed| *failed) {
            Some(BlockingFailure { tables, failure }) => SnapshotNews::BlockingFailed { tables, failure },
            None => SnapshotNews::BlockingRead(read),
        });
        self.keep_at_end(out);
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
        self.take(effects, here, emit, out)
    }

    /// Sends notifications of a snapshot before the stream, or in its place.
    pub(crate) fn tell(
        &mut self,
        told: initial::SnapshotEvent,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        for notification in self.told.tell(told) {
            self.notify(notification, here, emit, out)?;
        }
        Ok(())
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
        self.commits.begin(under_way);
        if let Some(unreadable) = self.unreadable.take() {
            warn!("{unreadable}");
        }
        let is_first = !mem::replace(&mut self.has_begun, true);
        if is_first {
            let tables: Vec<String> = self.snapshot.tables().map(str::to_owned).collect();
            if !tables.is_empty() {
                let id = self.snapshot.correlation().unwrap_or_default().to_owned();
                self.snapshot_news.push(SnapshotNews::GoesOn { id, tables });
            }
            self.tell(initial::SnapshotEvent::Stream, here, emit, out)?;
        }
        self.stream_at = Lsn::INVALID;
        if self.asks.is_none() {
            return Ok(());
        }
        let effects = match is_first {
            true => self.snapshot.begin(self.can_read_chunks(), &mut new_id),
            false => self.snapshot.read_again(&mut new_id),
        };
        self.take(effects, here, emit, out)
    }

    /// The stream has sent everything that was committed before this position.
    pub(crate) fn passed(
        &mut self,
        lsn: Lsn,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        self.stream_at = self.stream_at.max(lsn);
        if self.closed_before.is_some_and(|closed| closed <= lsn) {
            return self.close_is_lost(here, emit, out);
        }
        if self.close_at.is_none_or(|close_at| lsn < close_at) {
            return Ok(());
        }
        self.close_at = None;
        let Some(signal) = self.snapshot.chunk().map(|chunk| WindowEnd::Close.signal(chunk)) else {
            return Ok(());
        };
        self.signal(signal, here, emit, out)
    }

    /// The stream is past the row that closes the window, and has not brought it.
    fn close_is_lost(
        &mut self,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        self.closed_before = None;
        if self.closing.is_some() {
            // It has come, and rows of the window are left.
            return Ok(());
        }
        // Behind the last table there is nothing to read again.
        if !self.snapshot.is_running() {
            return Ok(());
        }
        self.row_is_lost("closes the window of a chunk");
        let effects = self.snapshot.read_again(&mut new_id);
        self.take(effects, here, emit, out)
    }

    /// Tells that the stream does not bring the row of the signal table that does this.
    fn row_is_lost(&mut self, does: &str) {
        let table = self.settings.table.as_deref().unwrap_or_default();
        let read = self.snapshot.tables().next().unwrap_or_default();
        let failure = Failure::new(
            Disposition::Retry,
            walferry_diagnosis::Kind::IncrementalSnapshotWaits,
            format!(
                "the stream does not bring the row of the signal table {table} that {does}: the chunk of {read} is read again"
            ),
            Some(format!(
                "the publication must contain {table} and publish its inserts, without a row filter (with \
                 incremental.snapshot.watermarking.strategy=insert_delete its deletes, too), and no trigger or rule of {table} may change \
                 or drop what is written to it"
            )),
        );
        warn!(code = failure.code(), hint = failure.hint(), "{failure}");
        self.lost = Some(failure);
    }

    /// A transaction that a chunk must include does not become visible.
    fn stays_hidden(&mut self, unseen: Unseen) {
        let read = self.snapshot.tables().next().unwrap_or_default();
        let (xid, delivered) = match unseen {
            Unseen::Brought(xid) => (xid, "has been delivered already"),
            Unseen::Overflow(xid) | Unseen::Earlier(xid) => (xid, "may have been delivered already"),
        };
        let failure = Failure::new(
            Disposition::Retry,
            walferry_diagnosis::Kind::IncrementalSnapshotWaits,
            format!(
                "the incremental snapshot of {read} waits for the end of transaction {xid}, which {delivered}: rows that \
                 were read before it could be sent behind newer ones"
            ),
            Some(
                "look for the transaction in pg_stat_activity (column backend_xid) or in pg_prepared_xacts, and end it. If its wait_event \
                 is SyncRep, it waits for a synchronous standby"
                    .to_owned(),
            ),
        );
        warn!(code = failure.code(), hint = failure.hint(), "{failure}");
        self.lost = Some(failure);
    }

    /// The stream has described a table.
    pub(crate) fn described(&mut self, relation: &Relation, facts: Option<&Catalog>) {
        let Some(facts) = facts.and_then(|catalog| catalog.table.as_ref()) else {
            return;
        };
        let is_sent = |name: &str| relation.columns.iter().any(|column| column.name == name);
        // Only generated columns: another column that is missing may have been added since.
        let columns = facts.columns.iter().filter(|column| column.generated);
        let left_out: Vec<String> = columns
            .map(|column| column.name.clone())
            .filter(|name| !is_sent(name))
            .collect();
        if left_out.is_empty() && self.left_out.is_empty() {
            return;
        }
        let name = format!("{}.{}", relation.namespace, relation.name);
        match left_out.is_empty() {
            true => drop(self.left_out.remove(&name)),
            false => drop(self.left_out.insert(name, left_out)),
        }
    }

    /// What signals have said of tables since the last call.
    pub(crate) fn take_definitions(&mut self) -> Vec<(String, TableDefinition)> {
        mem::take(&mut self.definitions)
    }

    /// Handles a row of the signal table.
    pub(crate) fn row(
        &mut self,
        change: &Change<'_>,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let (tuple, deleted) = match change.operation {
            Operation::Insert { new } => (new, false),
            Operation::Delete { old } if self.settings.watermarking == Watermarking::InsertDelete => {
                (old.tuple(), true)
            }
            Operation::Update { .. } | Operation::Delete { .. } => return Ok(()),
        };
        let Some(mut signal) = signal(tuple) else {
            warn!(
                columns = tuple.column_count(),
                "a row of the signal table is not a signal: the table must have three columns, an id, a type and data"
            );
            return Ok(());
        };
        if deleted {
            // Any other row is deleted because somebody tidies up.
            let Some(chunk) = WindowEnd::Open.chunk(&signal.id) else {
                return Ok(());
            };
            signal = WindowEnd::Close.signal(chunk);
        }
        if WindowEnd::of(&signal.kind).is_none() && !self.settings.source {
            info!(
                signal.id,
                "a signal in the signal table is ignored, because signal.enabled.channels does not contain source"
            );
            return Ok(());
        }
        self.signal(signal, here, emit, out)
    }

    /// Handles a signal, wherever it came from.
    pub(crate) fn signal(
        &mut self,
        signal: Signal,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        if !self.can_read_chunks()
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
        match self.snapshot.closes(&signal) {
            true => self.send_slices(signal, here, emit, out),
            false => self.follow(signal, here, emit, out),
        }
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
        self.take(effects, here, emit, out)
    }

    /// The stream is between two transactions: rows of the window that closes may leave.
    pub(crate) fn between_transactions(
        &mut self,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        if self.awaits_delivery {
            return Ok(());
        }
        let Some(signal) = self.closing.take() else {
            return Ok(());
        };
        // The stream may have brought changes that cannot be told apart since the last slice. Nothing else can have
        // changed since the row that closes the window came.
        if self.is_unclear() {
            self.spoil(DiscardReason::Unclear);
        }
        match self.snapshot.closes(&signal) {
            true => self.send_slices(signal, here, emit, out),
            false => self.follow(signal, here, emit, out),
        }
    }

    /// The next slice. It grows with the changes of the stream since the last one, so that large transactions slow a snapshot down by no more
    /// than the snapshot does them. It also doubles while the stream brings nothing: then slices would only take time.
    fn slice(&self) -> SliceSize {
        let doublings = self.quiet_slices.saturating_sub(QUIET_SLICES);
        let quiet = 1_usize.checked_shl(doublings).unwrap_or(LARGEST).min(LARGEST);
        let factor = (self.passed / SliceSize::default().rows).max(quiet);
        SliceSize {
            rows: self.slice.rows * factor,
            bytes: self.slice.bytes * factor,
        }
    }

    /// Sends the next slice of the window. With the last one, the window is closed.
    fn send_slices(
        &mut self,
        signal: Signal,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        // A chunk that changes have spoiled once leaves at once: each transaction that it waits for could spoil it again, and what has left is
        // sent again with it.
        if self.was_unclear || !self.window.exceeds(self.slice()) {
            self.passed = 0;
            return self.follow(signal, here, emit, out);
        }
        let rows = self.window.take_slice(self.slice());
        (self.passed, self.quiet_slices) = (0, self.quiet_slices.saturating_add(1));
        self.send_rows(rows, here, emit, out)?;
        self.awaits_delivery = true;
        self.request(Ask::Delivery, out);
        self.closing = Some(signal);
        legal(self.snapshot.begin_closing());
        Ok(())
    }

    /// The stream stands still, and rows of a snapshot follow. They may be newer than those of the window, so no more
    /// of these may leave. The next connection reads the chunk again.
    pub(crate) fn stands_still(&mut self) {
        (self.closing, self.awaits_delivery) = (None, false);
        self.passed = 0;
        legal(self.snapshot.keep_open());
    }

    /// Whether the position of a chunk in the stream can be determined.
    const fn can_read_chunks(&self) -> bool {
        self.settings.table.is_some() || self.settings.read_only
    }

    /// From here on, changes of the stream replace rows of the window.
    fn opens_here(&mut self, emit: &RecordEmitter) {
        self.commits.open(emit.cursor.open().map(|open| open.transaction.xid));
    }

    /// At the close of the window: decides whether its rows include everything that the stream had sent before it
    /// opened.
    fn judge(&mut self, signal: &Signal) {
        let is_ours = self.snapshot.chunk().is_some_and(|chunk| signal.id.starts_with(chunk));
        if WindowEnd::of(&signal.kind) != Some(WindowEnd::Close) || !is_ours {
            return;
        }
        if let Some(why) = self.useless() {
            self.spoil(why);
        }
    }

    /// Why the rows of the window must not be sent.
    fn useless(&self) -> Option<DiscardReason> {
        // Behind the last table, nothing is left in the window, unless a signal has ended the snapshot.
        if !self.snapshot.is_running() && self.window.is_empty() {
            return None;
        }
        if self.snapshot.lacks_opening() {
            return Some(DiscardReason::NotOpened);
        }
        let unseen = self.unseen().map(DiscardReason::Unseen);
        unseen.or_else(|| self.is_unclear().then_some(DiscardReason::Unclear))
    }

    /// The chunk is read again.
    fn spoil(&mut self, why: DiscardReason) {
        legal(self.snapshot.spoil());
        self.repeats += 1;
        self.was_unclear |= why == DiscardReason::Unclear;
        let is_told = self.repeats.is_multiple_of(REPEATS_TOLD);
        match why {
            DiscardReason::NotOpened => {
                self.unopened += 1;
                if self.unopened == 2 || self.unopened.is_multiple_of(REPEATS_TOLD) {
                    self.row_is_lost("opens the window of a chunk, or brings its deletion before the chunk is read");
                }
            }
            DiscardReason::Unseen(unseen) if is_told => self.stays_hidden(unseen),
            // A transaction may stay invisible for hours.
            DiscardReason::Unseen(unseen) if self.repeats.is_power_of_two() => unseen.tell(),
            DiscardReason::Unclear if is_told => warn!(
                table = self.snapshot.tables().next().unwrap_or_default(),
                times = self.repeats,
                hint = "request a blocking snapshot of the table, set a smaller incremental.snapshot.chunk.size, or give the table a \
                        primary key that its replica identity contains",
                "a chunk of the incremental snapshot is read again and again, because the stream contains changes of rows that cannot be \
                 told apart"
            ),
            DiscardReason::Unseen(_) | DiscardReason::Unclear => {}
        }
    }

    /// Whether the stream has changed rows that may or may not be in the window.
    fn is_unclear(&self) -> bool {
        let unknown = |seen: &VisibleTransactions| self.unknown.iter().any(|xid| !seen.shows(*xid));
        // A row that was read with such a transaction may have been set back since, by an earlier change without TOAST values.
        let is_set_back = self.window.has_changed_rows() && !self.unknown.is_empty();
        self.window.is_spoiled() || is_set_back || self.oldest_seen.as_ref().is_some_and(unknown)
    }

    /// A transaction that the chunk must include and does not.
    fn unseen(&self) -> Option<Unseen> {
        self.commits.unseen(self.seen.as_ref()?)
    }

    /// Whether changes of this table replace rows of the window.
    pub(crate) fn watches(&self, table: &str) -> bool {
        self.snapshot.is_open() && (self.window.has(table) || self.snapshot.tables().next() == Some(table))
    }

    /// The stream brings a change. While rows of a closed window are left, the next slice grows with it.
    pub(crate) fn brings_change(&mut self) {
        self.passed += usize::from(self.closing.is_some());
    }

    /// A transaction of the stream is complete.
    pub(crate) fn committed(&mut self, xid: u32, out: &mut Batch) {
        self.commits.committed(xid);
        if self.can_read_chunks() && self.commits.are_many(self.snapshot.is_running()) {
            self.request(Ask::Visible, out);
        }
    }

    /// Snapshots of the server include these transactions.
    pub(crate) fn visible(&mut self, seen: &VisibleTransactions) {
        // The rows that are here are older than this: what they lack counts until their window is judged.
        if self.snapshot.chunk().is_some() && self.seen.is_some() {
            return;
        }
        self.commits.seen(seen);
    }

    /// The stream brings something to send. It waits behind small slices only.
    pub(crate) const fn stream_is_busy(&mut self) {
        self.quiet_slices = 0;
    }

    /// A change of a table that is [watched](Self::watches) has gone through the pipeline: it was sent, or dropped or set aside, or nobody
    /// knows yet. One that is sent replaces its row. Otherwise the chunk still sends the row, unless it was deleted.
    pub(crate) fn handled(&mut self, plan: &TablePlan, change: &Change<'_>, xid: Option<u32>, is_sent: Option<bool>) {
        match is_sent {
            None => self.doubt_rows_of(plan.name(), xid),
            Some(false) if !matches!(change.operation, Operation::Delete { .. }) => {}
            Some(_) => {
                let is_included = xid.is_some_and(|xid| self.is_included(xid));
                if self.window.evict(plan, &change.operation, (xid, is_included)) == Evicted::Unknown {
                    self.doubt(xid);
                }
                self.cut_off();
            }
        }
    }

    /// Whether all rows that are in the window were read with this transaction.
    fn is_included(&self, xid: u32) -> bool {
        let mut read_with = self.oldest_seen.iter().chain(&self.seen);
        read_with.all(|seen| seen.shows(xid))
    }

    /// The state machine must know what was cut off the window.
    fn cut_off(&mut self) {
        let Some(cut) = self.window.take_cut() else { return };
        // If the table's snapshot was stopped meanwhile, nothing is read again.
        if self.snapshot.tables().next() == Some(&*cut.table) {
            self.snapshot.shorten(cut.end, cut.rows as u64);
        }
    }

    /// All rows of a table are gone. Rows that are written later come with the stream.
    pub(crate) fn truncated(&mut self, table: &str, xid: Option<u32>) {
        self.doubt_rows_of(table, xid);
    }

    /// A change of this table replaces no row: it was delivered before, or it is not known yet whether it will be sent.
    pub(crate) fn doubt_rows_of(&mut self, table: &str, xid: Option<u32>) {
        if self.watches(table) {
            self.doubt(xid);
        }
    }

    /// The window's rows can be used only if they include this transaction.
    fn doubt(&mut self, xid: Option<u32>) {
        match xid {
            Some(xid) if self.unknown.last() == Some(&xid) => {}
            Some(xid) if self.unknown.len() < commits::MOST => self.unknown.push(xid),
            _ => self.window.spoil(),
        }
    }

    /// Handles the answer to a request.
    pub(crate) fn answer(
        &mut self,
        (of, answer, rows): (Option<String>, ChunkAnswer, Option<Box<ChunkRows>>),
        plans: &mut RelationPlans,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        if of.is_some() && of.as_deref() != self.snapshot.chunk() {
            // The answer belongs to a chunk that was given up meanwhile.
            return Ok(());
        }
        if answer == ChunkAnswer::Delivered {
            // The next slice leaves as soon as no transaction is open.
            self.awaits_delivery = false;
            return Ok(());
        }
        if let ChunkAnswer::CloseAt(lsn) = answer {
            self.close_at = Some(Lsn(lsn));
            // An idle stream may have passed it already.
            return match emit.cursor.open() {
                Some(_) => Ok(()),
                None => self.passed(self.stream_at, here, emit, out),
            };
        }
        if let ChunkAnswer::ClosedBefore(lsn) = answer {
            self.closed_before = Some(Lsn(lsn));
            return Ok(());
        }
        if let Some(rows) = rows {
            let ChunkRows {
                mut catalog,
                bytes,
                tuples,
                seen,
                rows_left,
                others,
            } = *rows;
            if let Some(table) = self.snapshot.tables().next() {
                self.estimates.learn(table, self.snapshot.rows(), rows_left, others);
            }
            self.commits.seen(&seen);
            self.oldest_seen.get_or_insert_with(|| seen.clone());
            if let Some(plan) = plan(plans, &mut catalog)? {
                for tuple in tuples {
                    self.window.put(&plan, (&bytes, tuple), &seen)?;
                    emit.counts.snapshot_row(plan.name());
                }
            }
            self.seen = Some(seen);
        }
        // The answer to another signal's look-up may come while the chunk is being read.
        if of.is_some() {
            self.window.arrived();
        }
        let effects = self.snapshot.answer(answer, &mut new_id);
        self.cut_off();
        self.estimates.tell(&self.snapshot, here.context.processed_time_ns);
        self.take(effects, here, emit, out)
    }

    fn take(
        &mut self,
        effects: Vec<Effect>,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        for effect in effects {
            match effect {
                Effect::Ask(ask) => self.ask(ask, emit, out),
                Effect::Notify(notification) => self.notify(notification, here, emit, out)?,
                Effect::SendWindow => {
                    (self.repeats, self.unopened) = (0, 0);
                    (self.was_unclear, self.closed_before) = (false, None);
                    let rows = self.window.take();
                    self.send_rows(rows, here, emit, out)?;
                }
                Effect::ClearWindow => {
                    self.window.clear();
                    (self.close_at, self.closed_before, self.closing) = (None, None, None);
                    self.awaits_delivery = false;
                    self.passed = 0;
                }
                Effect::Block(execute) => {
                    if let Some(requests) = &self.requests {
                        // If nobody receives it, the session is ending, and the offset keeps it for the next one.
                        let _ = requests.send(SourceRequest::Block(execute));
                    }
                }
                Effect::Requested { id, tables } => self.snapshot_news.push(SnapshotNews::Begins {
                    id,
                    is_blocking: false,
                    tables,
                }),
                Effect::BlockingRequested { id, tables } => self.snapshot_news.push(SnapshotNews::Begins {
                    id,
                    is_blocking: true,
                    tables,
                }),
                Effect::TableEnded(table, end) => {
                    if matches!(end, TableEnd::Read { is_whole: true, .. }) {
                        out.step(StreamStep::TablesRead(Arc::new([table.clone()])));
                    }
                    self.table_ended(table, end);
                }
                Effect::ReadWhole(table) => {
                    let left_out = self.left_out.get(&table.id).cloned().unwrap_or_default();
                    if let Some(requests) = &self.requests {
                        // When nobody takes it the session is ending, and the next begins with this table again.
                        let _ = requests.send(SourceRequest::ReadWhole(WholeTable { table, left_out }));
                    }
                }
                Effect::Log(message) => {
                    let at = here.context.lsn.map(|lsn| lsn.0).unwrap_or_default();
                    let commit = here.context.last_commit_lsn.map(|lsn| lsn.0).unwrap_or_default();
                    info!(
                        "{}",
                        message.replace("{}", &format!("{{lsn={at}, lsn_commit={commit}}}"))
                    );
                }
                Effect::SchemaChanges(id, tables) => {
                    self.definitions
                        .extend(tables.into_iter().map(|table| (id.clone(), table)));
                }
                Effect::Warn(text) => warn!("{text}"),
                Effect::Info(text) => info!("{text}"),
            }
        }
        self.has_news = true;
        if !self.snapshot.is_running() {
            // The next snapshot begins anew.
            (self.repeats, self.unopened, self.was_unclear) = (0, 0, false);
        }
        if mem::take(&mut self.opens_unmarked)
            && let Some(signal) = self.snapshot.chunk().map(|chunk| WindowEnd::Open.signal(chunk))
        {
            self.signal(signal, here, emit, out)?;
        }
        // A change calls `keep` itself once its record is in the batch: both must count together.
        if here.change.is_none() {
            self.keep(None, emit, out);
        }
        Ok(())
    }

    /// Reports how the incremental snapshot of a table ended, and warns if the table could not be read.
    fn table_ended(&mut self, table: String, end: TableEnd) {
        let state = match end {
            TableEnd::Read { rows, .. } => TableState::Read { rows: Some(rows) },
            TableEnd::Stopped => TableState::Stopped,
            TableEnd::NotRead(NotRead { why, hint }) => {
                let what =
                    format!("the incremental snapshot of {table} failed, because the table cannot be read: {why}");
                let kind = walferry_diagnosis::Kind::TableNotRead;
                let failure = Failure::new(Disposition::stop(kind), kind, what, hint);
                warn!(code = failure.code(), hint = failure.hint(), "{failure}");
                self.estimates.table_failed();
                TableState::Failed(failure)
            }
        };
        self.snapshot_news.push(SnapshotNews::Ended { table, state });
    }

    /// Shows the progress of the snapshot in the status.
    pub(crate) fn report(&mut self, status: &Status) {
        for news in self.snapshot_news.drain(..) {
            status.tell_snapshot(news);
        }
        if let Some(lost) = self.lost.take() {
            status.tell_incident(&lost);
        }
        if mem::take(&mut self.has_news) {
            self.estimates.report(&self.snapshot, status);
        }
    }

    /// Puts the changed state into the offset. `at` is the change that caused it.
    pub(crate) fn keep(&mut self, at: Option<(Position, MessageType)>, emit: &mut RecordEmitter, out: &mut Batch) {
        if self.snapshot.has_changed() {
            if at.is_some() {
                begin_transaction(&mut emit.cursor, out);
            }
            self.store(at, false, out);
        }
    }

    /// The same where a blocking snapshot has ended.
    fn keep_at_end(&mut self, out: &mut Batch) {
        self.store(None, true, out);
    }

    fn store(&mut self, at: Option<(Position, MessageType)>, ends_blocking: bool, out: &mut Batch) {
        let kept = Arc::new(self.snapshot.kept());
        out.step(StreamStep::Incremental {
            kept,
            at,
            ends_blocking,
        });
    }

    fn ask(&mut self, mut ask: Ask, emit: &RecordEmitter, out: &mut Batch) {
        if let Ask::Chunk(chunk) = &mut ask {
            if let Some(left_out) = self.left_out.get(&chunk.table.id) {
                chunk.left_out.clone_from(left_out);
            }
            chunk.others = self.estimates.unknown(&self.snapshot);
            // Before its window opens, no change of the stream replaces a row.
            let is_covered = self.snapshot.is_open() && self.unseen().is_none();
            if !self.window.is_empty() && !is_covered {
                self.window.spoil();
            }
            if chunk.opens {
                self.window.begin();
            }
            if self.window.is_empty() {
                self.oldest_seen = None;
                self.unknown.clear();
            }
            self.window.identify(&chunk.table.id, chunk.key.as_ref());
            self.window.expect_rows(true);
            self.closed_before = None;
            self.seen = None;
            self.opens_here(emit);
            if chunk.opens && self.settings.read_only {
                self.close_at = None;
                self.opens_unmarked = true;
            }
        }
        self.request(ask, out);
    }

    /// Sends a request to the source. What waits for delivery waits for all that was sent before.
    fn request(&mut self, ask: Ask, out: &mut Batch) {
        if matches!(ask, Ask::Chunk(_) | Ask::Delivery) {
            self.awaited += 1;
            out.step(StreamStep::AwaitsDelivery(self.awaited));
        }
        if let Some(asks) = &self.asks {
            let number = self.awaited;
            // If nobody receives it, the session is ending.
            let _ = asks.send(NumberedAsk { ask, number });
        }
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

    /// Sends a notification through all configured channels.
    pub(crate) fn notify(
        &mut self,
        notification: SnapshotNotice,
        here: FramePlace<'_, '_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        self.estimates.notified(&notification);
        let SignalSettings { log, status, .. } = self.settings;
        if self.notifications.is_none() && !log && !status {
            return Ok(());
        }
        let SnapshotNotice {
            id,
            aggregate,
            kind,
            data,
        } = notification;
        let time_ms = here.context.processed_time_ns.div_euclid(1_000_000);
        let id = id.unwrap_or_else(new_id);
        let told = Notification::new(id, (aggregate, kind), data, &self.settings.server, time_ms);
        if log {
            info!(
                notification.id = told.id,
                notification.r#type = kind,
                "[Notification Service] {aggregate}: {kind} {{{}}}",
                logged(&told.data)
            );
        }
        if let Some(notifications) = &self.notifications {
            let from = Provenance {
                table: "",
                position: Position::default(),
                message: MessageType::Notification,
            };
            emit.send(notifications.record(&told), from, out)?;
        }
        if status {
            emit.counts.notifications.push(told);
        }
        Ok(())
    }
}

/// The details of a notification for the log. Keys are data of rows, and are left out; the topic and the REST API have them.
fn logged(data: &[(&'static str, String)]) -> String {
    let logged = data.iter().filter(|(name, _)| !KEYS.contains(name));
    let logged: Vec<String> = logged.map(|(name, value)| format!("{name}={value}")).collect();
    logged.join(", ")
}

impl Unseen {
    /// Logs that a chunk is read again because of this transaction.
    fn tell(self) {
        match self {
            Self::Brought(xid) => info!(
                xid,
                "the chunk was read before a transaction that the stream contains was visible; it is read again"
            ),
            Self::Overflow(xid) => info!(
                xid,
                "the chunk was read before the end of a transaction that the stream may have brought; it is read again"
            ),
            Self::Earlier(xid) => info!(
                xid,
                "the chunk was read before the end of a transaction that may have been delivered in an earlier session; it is read again"
            ),
        }
    }
}

fn plan(plans: &mut RelationPlans, catalog: &mut Catalog) -> Result<Option<Arc<TablePlan>>, Failure> {
    Ok(plans.snapshot(catalog)?.map(Arc::new))
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

/// Logs that the state machine does not allow what it was told. Its state is as before.
fn legal(outcome: Result<(), IllegalTransition>) {
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
