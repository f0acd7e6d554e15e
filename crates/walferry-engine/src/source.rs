//! What the engine needs from the database, and what it gets from it.

use std::{
    collections::BTreeMap,
    future::{Future, ready},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};
use walferry_diagnosis::Diagnosis;
use walferry_event::catalog::{Catalog, TableFacts};
use walferry_pgoutput::{Lsn, Oid};
use walferry_transform::Hypertables;

pub use crate::inspection::{FoundSlot, Inspection};
use crate::{
    account::{Stored, Transaction},
    failure::Failure,
    incremental::machine::{Ask, ChunkAnswer, Collection, Execute, NotRead, Signal},
    published::{PublicationLook, Published},
    snapshot::{self as snapshot, ChunksDone, Keys, RowsToReread},
};

/// Why a blocking snapshot was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockingFailure {
    /// The tables that it has not read, or not to their end.
    pub tables: Vec<String>,
    /// What happened.
    pub failure: Failure,
}

/// One Postgres server, database, slot and publication, in four parts that can work at the same time.
/// `walferry-postgres` implements it.
pub trait Source: Send + 'static {
    /// Server, slot and publication.
    type Control: Control;
    /// The stream.
    type Stream: Stream;
    /// The reader of existing rows.
    type Rows: Rows;
    /// The reader of chunks beside the stream.
    type Chunks: ChunkReader;

    /// All four parts at once.
    fn parts(&mut self) -> SourceParts<'_, Self>;

    /// Server, slot and publication.
    fn control(&mut self) -> &mut Self::Control {
        self.parts().control
    }
}

/// The parts of a source.
#[derive(Debug)]
pub struct SourceParts<'a, S: Source + ?Sized> {
    /// Server, slot and publication.
    pub control: &'a mut S::Control,
    /// The stream.
    pub stream: &'a mut S::Stream,
    /// The reader of existing rows.
    pub rows: &'a mut S::Rows,
    /// The reader of chunks beside the stream.
    pub chunks: &'a mut S::Chunks,
}

/// Looks at the server and changes it: the slot and the publication.
///
/// Every method may be called again after it failed; none blocks the thread.
///
/// # Errors
/// Each method returns a [`Failure`] if the server cannot be reached, refuses what is asked, or lacks what is needed. Its disposition says
/// whether another try may help.
pub trait Control: Send {
    /// Looks at server, slot and publication, in as few round trips as possible. Reports all problems that need a
    /// person in one failure: `wal_level`, privileges, version, plugin or database of the slot, a lost publication.
    fn inspect(&mut self) -> impl Future<Output = Result<Inspection, Failure>> + Send;

    /// The captured tables with their columns, in the order in which Debezium snapshots them: by the first matching
    /// pattern of `table.include.list`, then by name. `wanted` selects the captured tables. Only tables that have all
    /// of the `columns` are returned.
    fn tables(
        &mut self,
        wanted: TableFilter,
        columns: &[String],
    ) -> impl Future<Output = Result<Vec<TableFacts>, Failure>> + Send;

    /// Reads from TimescaleDB's catalog which hypertable each chunk belongs to. Fails for good if the database has no
    /// such catalog.
    fn hypertables(&mut self) -> impl Future<Output = Result<Hypertables, Failure>> + Send {
        ready(Ok(Hypertables::default()))
    }

    /// Creates or alters the publication as `publication.autocreate.mode` says. Must come before the slot is created:
    /// pgoutput reads the catalog as of the WAL position, so a younger publication does not exist for it.
    fn ensure_publication(&mut self, wanted: TableFilter) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The publication as it is now, and whether changes of captured tables may be missing since the look that found
    /// `known`. `None` if there is nothing to look at.
    fn published(
        &mut self,
        known: Option<Arc<Published>>,
        wanted: TableFilter,
    ) -> impl Future<Output = Result<Option<PublicationLook>, Failure>> + Send {
        let _ = (known, wanted);
        ready(Ok(None))
    }

    /// Creates the slot. With `export`, it exports a snapshot. The transaction that exports it stays open until
    /// [`Rows::read`] has imported it, the stream begins, or the server is inspected again.
    fn create_slot(&mut self, export: bool) -> impl Future<Output = Result<CreatedSlot, Failure>> + Send;

    /// Exports a snapshot at a position of its own, the watermark. The snapshot has exactly what was committed before
    /// the watermark. It stays open until [`Rows::read`] has ended, even while the slot is streamed.
    fn watermark(&mut self) -> impl Future<Output = Result<Lsn, Failure>> + Send;

    /// Whether the slot still stands where it was created, and no other process uses it: neither reads it, nor reads
    /// existing rows before it does.
    fn is_untouched(&mut self, created_at: Lsn) -> impl Future<Output = Result<bool, Failure>> + Send {
        let _ = created_at;
        ready(Ok(true))
    }

    /// Drops the slot (`slot.drop.on.stop`, or a snapshot that starts again).
    fn drop_slot(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Streams committed changes from the slot.
///
/// # Errors
/// [`Failure`] if the connection is lost or silent, the server refuses to stream, or a message cannot be read.
pub trait Stream: Send {
    /// Streams from `from` until the connection fails, or [`StreamPort::phase`] says to close, or [`StreamPort::until`] is reached.
    /// Only the last two return `Ok`.
    ///
    /// Sends status updates without being asked: every few seconds, when the server requests one, and when the
    /// confirmable position has moved. It does so even while the engine takes no batch and while the catalog is
    /// queried.
    fn stream(&mut self, from: Lsn, port: &mut StreamPort) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Reads existing rows, in chunks.
///
/// # Errors
/// [`Failure`] if the connection is lost, a table cannot be read, or the exported snapshot has ended.
pub trait Rows: Send {
    /// Reads what is left of the tables and sends it as [`Frame::Table`], [`Frame::Row`] and [`Frame::Part`], between
    /// [`Frame::SnapshotBegin`] and the frame that ends a snapshot of its kind. All of it is seen by one snapshot: the one that [`Control`] exported
    /// where there is one, otherwise one of its own. With one thread rows come in the order of the tables and of their blocks;
    /// with several, in any order.
    fn read(&mut self, plan: SnapshotPlan, out: &FrameSender) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Reads chunks of tables beside the stream, over a connection of its own. Writes the watermarks of a chunk to the
/// signal table.
///
/// # Errors
/// [`Failure`] if the connection is lost or the server refuses a statement that another try may carry out.
pub trait ChunkReader: Send {
    /// Checks whether the stream will bring what is written to the signal table. If it will not, returns what to warn about.
    fn check_signal_table(&mut self) -> impl Future<Output = Result<Option<Diagnosis>, Failure>> + Send {
        ready(Ok(None))
    }

    /// The server's position. Everything that was committed before this call lies before it. `None`: this source need not tell.
    fn position(&mut self) -> impl Future<Output = Result<Option<Lsn>, Failure>> + Send {
        ready(Ok(None))
    }

    /// Which transactions a database snapshot includes that is taken during this call. `None`: this source need not tell.
    fn visible(&mut self) -> impl Future<Output = Result<Option<VisibleTransactions>, Failure>> + Send {
        ready(Ok(None))
    }

    /// Carries out a request. What the server refuses for good is a [`ChunkAnswer::Failed`]. Any other failure is tried
    /// again with `again` set, because it is unknown how far the last attempt got. [`Ask::GiveWay`] gets no answer; [`Ask::Close`] gets one
    /// only if no row closes the window. [`Ask::Delivery`] and [`Ask::Visible`] are not passed to this.
    fn ask(&mut self, ask: &Ask, again: bool) -> impl Future<Output = Result<Option<ChunkRead>, Failure>> + Send;
}

/// A request of the pipeline, and the number of the last [`StreamStep::AwaitsDelivery`] at that time. A chunk is read once
/// everything that was sent before its request has been delivered.
///
/// [`StreamStep::AwaitsDelivery`]: crate::account::StreamStep::AwaitsDelivery
#[derive(Debug)]
pub struct NumberedAsk {
    pub(crate) ask: Ask,
    pub(crate) number: u64,
}

/// The result of an [`Ask`].
#[derive(Debug)]
pub struct ChunkRead {
    /// The answer.
    pub answer: ChunkAnswer,
    /// The rows of a chunk.
    pub rows: Option<Box<ChunkRows>>,
}

/// The rows of a chunk, in the format of [`Frame::Row`].
#[derive(Debug)]
pub struct ChunkRows {
    /// The table as it was when the rows were read.
    pub catalog: Catalog,
    /// The bytes of all rows.
    pub bytes: Bytes,
    /// The range of each row in `bytes`.
    pub tuples: Vec<Range<usize>>,
    /// Which transactions the rows include.
    pub seen: VisibleTransactions,
    /// How many rows the table had to read when this chunk began, as the server estimates it. Only some chunks say so.
    pub rows_left: Option<u64>,
    /// How many rows the tables of [`ChunkAsk::others`] have, as far as the server knows.
    ///
    /// [`ChunkAsk::others`]: crate::incremental::machine::ChunkAsk::others
    pub others: Vec<(String, u64)>,
}

/// Which transactions a database snapshot includes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VisibleTransactions {
    /// This transaction and later ones are not included.
    next: u32,
    /// Earlier transactions that are not included either, because they were in progress. They are sorted.
    under_way: Vec<u32>,
}

impl VisibleTransactions {
    /// All transactions before `next`, except those `under_way`.
    pub fn new(next: u32, under_way: impl IntoIterator<Item = u32>) -> Self {
        let mut under_way: Vec<u32> = under_way.into_iter().collect();
        under_way.sort_unstable();
        Self { next, under_way }
    }

    /// Parses the text of a `pg_snapshot`, `xmin:xmax:xip_list`. The list has the transactions in progress, separated
    /// by commas.
    pub fn parse(text: &str) -> Option<Self> {
        // These are 64-bit ids. The stream has only their lower half.
        let low = |text: &str| Some(text.parse::<u64>().ok()? as u32);
        let mut parts = text.splitn(3, ':').skip(1);
        let next = low(parts.next()?)?;
        let under_way: Vec<u32> = parts.next()?.split_terminator(',').map(low).collect::<Option<_>>()?;
        Some(Self::new(next, under_way))
    }

    /// Whether the snapshot includes this transaction, if it has committed. Ids start again behind the highest number: up
    /// to 2^24 from `next` on, an id is a later one. All others are earlier, however old.
    pub fn shows(&self, xid: u32) -> bool {
        const LATER: u32 = 1 << 24;
        xid.wrapping_sub(self.next) >= LATER && self.under_way.binary_search(&xid).is_err()
    }

    /// A transaction from this range, with both of its ends, that the snapshot does not include.
    pub fn hidden_in(&self, (first, last): (u32, u32)) -> Option<u32> {
        if !self.shows(last) {
            return Some(last);
        }
        let length = last.wrapping_sub(first);
        let mut under_way = self.under_way.iter().copied();
        under_way.find(|xid| xid.wrapping_sub(first) <= length)
    }

    /// The transactions that were in progress. Some of them may have written their commit record already.
    pub fn into_under_way(self) -> Vec<u32> {
        self.under_way
    }
}

/// For a source that cannot read chunks.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoChunks;

impl ChunkReader for NoChunks {
    async fn ask(&mut self, _: &Ask, _: bool) -> Result<Option<ChunkRead>, Failure> {
        Err(Failure::retry(
            walferry_diagnosis::Kind::IncrementalSnapshotWaits,
            "chunks cannot be read beside this stream",
        ))
    }
}

/// A request of the pipeline to the source, because of something in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceRequest {
    /// An interrupted snapshot has to read these rows again. Each pipeline that looks for such rows sends this once: at
    /// [`Frame::Watermark`], or when it ends before that.
    ReadAgain(RowsToReread),
    /// The stream is to stand still while these tables are read.
    Block(Execute),
    /// The stream is to stand still at one position while this table of an incremental snapshot is read as a whole, as it has no key.
    ReadWhole(WholeTable),
}

/// A table of an incremental snapshot that has no key to read it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WholeTable {
    /// The table.
    pub table: Collection,
    /// Columns that are not read, because the stream does not have them either.
    pub left_out: Vec<String>,
}

/// The channel of the pipeline's requests. It holds few of them and never makes the pipeline wait.
pub fn requests() -> (
    mpsc::UnboundedSender<SourceRequest>,
    mpsc::UnboundedReceiver<SourceRequest>,
) {
    mpsc::unbounded_channel()
}

/// Selects the captured tables by schema and table name.
pub type TableFilter = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// A new slot.
#[derive(Debug, Clone, PartialEq)]
pub struct CreatedSlot {
    /// Everything committed before this is in the exported snapshot. Everything after it is streamed.
    pub consistent_point: Lsn,
}

/// What a snapshot reads.
#[derive(Debug, Clone, Default)]
pub struct SnapshotPlan {
    /// Tables in the order in which they are read.
    pub tables: Vec<TableFacts>,
    /// The position of its rows: the new slot's consistent point, or the watermark. `None`: the server's position when
    /// the snapshot starts.
    pub lsn: Option<Lsn>,
    /// Whether this continues an interrupted snapshot.
    pub goes_on: bool,
    /// The finished part of the tables.
    pub done: ChunksDone,
    /// Rows to read again, of tables that were begun.
    pub again: BTreeMap<Oid, Keys>,
    /// What it is part of.
    pub kind: SnapshotKind,
    /// Of a blocking one: the SELECT of a table, by `schema.table`.
    pub selects: BTreeMap<String, String>,
    /// Of an incremental one: the end of a WHERE that chooses the rows.
    pub condition: Option<String>,
    /// Columns that are not read.
    pub left_out: Vec<String>,
}

/// What the reading of existing rows is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SnapshotKind {
    /// The snapshot before the stream. It ends with [`Frame::SnapshotEnd`], and its position is where the stream begins.
    #[default]
    Initial,
    /// A blocking snapshot. It ends with [`Frame::BlockingEnd`], and the stream goes on where it stood.
    Blocking,
    /// A table without a key, of an incremental snapshot. It ends with [`Frame::WholeEnd`], and the stream goes on where it stood: at the
    /// position of the snapshot.
    Incremental,
}

/// Frames in stream order, with their bytes.
#[derive(Debug)]
pub struct FrameBatch {
    /// The bytes that the frames' ranges point into.
    pub bytes: Bytes,
    /// Frames in order.
    pub frames: Vec<Frame>,
    /// The batch's share of the memory for frames. Dropping the batch frees it.
    room: Option<FramePermit>,
}

/// A share of the memory for frames. Dropping it wakes the task that waits until all of the memory is free.
#[derive(Debug)]
struct FramePermit {
    permit: Option<OwnedSemaphorePermit>,
    freed: Arc<Notify>,
}

impl Drop for FramePermit {
    fn drop(&mut self) {
        // Free the room before notifying. A sender that waits for room gets it before anybody finds the channel empty.
        drop(self.permit.take());
        self.freed.notify_one();
    }
}

impl FrameBatch {
    /// A batch that takes no share of the memory.
    pub fn new(bytes: Bytes, frames: Vec<Frame>) -> Self {
        Self {
            bytes,
            frames,
            room: None,
        }
    }
}

/// One event from the source.
#[derive(Debug)]
pub enum Frame {
    /// A replication connection begins. Relations are described again, and an incomplete transaction is sent again from
    /// its start.
    Begin {
        /// Where the server really begins: at the requested position, or at its slot's if that is further.
        from: Lsn,
        /// Transactions that were in progress on the server after the connection had begun. Some of them may have
        /// written their commit record before that.
        under_way: Vec<u32>,
    },
    /// A message of pgoutput (the payload of XLogData).
    Wal {
        /// Start LSN in the XLogData header; the `source.lsn` of a change.
        lsn: Lsn,
        /// The payload.
        payload: Range<usize>,
    },
    /// A keepalive. Everything committed before `wal_end` has been sent.
    Keepalive {
        /// The server's position.
        wal_end: Lsn,
    },
    /// The catalog's facts for the relation that the next [`Frame::Wal`] describes.
    Catalog(Box<Catalog>),
    /// Existing rows follow.
    SnapshotBegin {
        /// Number of rows, as the server estimates it.
        rows_left: u64,
        /// Oid and name of each table, in order.
        tables: Vec<(Oid, String)>,
        /// What they are part of.
        kind: SnapshotKind,
        /// Tables of which a condition chooses rows.
        in_part: Vec<String>,
    },
    /// The following rows belong to this table.
    Table(Arc<SnapshotTable>),
    /// A row of the snapshot as pgoutput's TupleData: 2 bytes for the number of columns, then for each column `n`, or
    /// `t`, 4 bytes of length and the text. The columns are those of the table's facts.
    Row {
        /// The range of the tuple.
        tuple: Range<usize>,
    },
    /// A part of a table is complete.
    Part {
        /// Which part.
        step: snapshot::SnapshotStep,
        /// Whether the table is now complete.
        completes: bool,
    },
    /// All rows have been sent. Also sent if there were none.
    SnapshotEnd {
        /// The snapshot's position, from which the stream continues.
        lsn: Lsn,
        /// The transaction that read the rows, with its `CURRENT_TIMESTAMP`.
        transaction: Transaction,
    },
    /// All rows of a blocking snapshot have been sent, or it is given up.
    BlockingEnd {
        /// Why it is given up, if it is.
        failed: Option<Box<BlockingFailure>>,
    },
    /// All rows of a table without a key, of an incremental snapshot, have been sent.
    WholeEnd {
        /// Why they have not, where the table cannot be read.
        failed: Option<NotRead>,
    },
    /// Everything before the watermark of a snapshot has been handed over; the engine's own. The pipeline answers with
    /// [`SourceRequest::ReadAgain`].
    Watermark,
    /// The answer of [`ChunkReader`] to a request. The engine creates it itself.
    Answer {
        /// The chunk that it belongs to, if any.
        of: Option<String>,
        /// The answer.
        answer: ChunkAnswer,
        /// The rows of a chunk.
        rows: Option<Box<ChunkRows>>,
    },
    /// The transactions that snapshots of the server include by now. The engine creates it itself.
    Visible(VisibleTransactions),
    /// A signal that came from elsewhere than the stream. The engine creates it itself.
    Signal(u64, Box<Signal>),
    /// Time has passed. The engine creates it itself, so that heartbeats are sent while the stream is quiet.
    Tick,
}

/// A table that a snapshot reads.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotTable {
    /// The table and its types.
    pub catalog: Catalog,
    /// The snapshot's position.
    pub lsn: Lsn,
    /// The transaction that reads it.
    pub xid: u32,
    /// `CURRENT_TIMESTAMP` in that transaction, microseconds since 1970.
    pub time_us: i64,
    /// Whether the rows of each table come together. If so, the first and the last row of the table are marked.
    pub ordered: bool,
    /// Whether an earlier, interrupted snapshot has sent rows of it.
    pub begun: bool,
    /// Whether it is the first table of the snapshot, even if it is empty. Only its first row is marked as the
    /// snapshot's first.
    pub first: bool,
    /// What it is read for.
    pub kind: SnapshotKind,
}

/// The channel from the source to the pipeline. It is bounded by the bytes that wait in it.
#[derive(Debug, Clone)]
pub struct FrameSender {
    batches: mpsc::Sender<FrameBatch>,
    room: Arc<Semaphore>,
    most: u32,
    /// Signalled when a batch has been processed. Only one task waits for it: the end of a session.
    freed: Arc<Notify>,
    /// Number of connections that have begun.
    begun: watch::Sender<u64>,
    /// Number of connections whose beginning was handed over. A connection may fail while it waits for room.
    handed_over: Arc<AtomicU64>,
    /// Number of bytes handed over.
    bytes: Arc<AtomicU64>,
}

/// The pipeline's end of the channel.
pub type FrameReceiver = mpsc::Receiver<FrameBatch>;

/// A channel that holds at most `bytes` of frames, but always at least one batch.
pub fn frame_channel(bytes: usize) -> (FrameSender, FrameReceiver) {
    let most = u32::try_from(bytes).unwrap_or(u32::MAX).max(1);
    // The number of batches is bounded too, since small ones cost more than their bytes.
    let (sender, receiver) = mpsc::channel(64);
    (
        FrameSender {
            batches: sender,
            room: Arc::new(Semaphore::new(most as usize)),
            most,
            freed: Arc::default(),
            begun: watch::Sender::new(0),
            handed_over: Arc::default(),
            bytes: Arc::default(),
        },
        receiver,
    )
}

impl FrameSender {
    /// Whether the pipeline has processed everything that was sent.
    pub fn is_empty(&self) -> bool {
        self.room.available_permits() >= self.most as usize
    }

    /// Waits until the pipeline has processed everything that was sent, or has ended.
    pub(crate) async fn emptied(&self) {
        // Then all the room is free. Later batches wait behind this request.
        let _ = self.room.acquire_many(self.most).await;
    }

    /// Waits until the pipeline has processed a batch since the last call. Unlike [`emptied`](Self::emptied), it does
    /// not delay batches that are sent meanwhile.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// Number of bytes handed over so far.
    pub(crate) fn handed_over_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Wakes a pipeline that waits for a batch, so that it notices that it is to end. If the channel is full, it is not waiting.
    pub(crate) fn wake(&self) {
        let _ = self.batches.try_send(FrameBatch::new(Bytes::new(), Vec::new()));
    }

    /// Whether the pipeline has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.batches.is_closed()
    }

    /// Notifies when a connection begins, at once, even while the pipeline is busy with earlier batches.
    pub(crate) fn begun(&self) -> watch::Receiver<u64> {
        self.begun.subscribe()
    }

    /// Number of connections among the batches handed over.
    pub(crate) fn connections(&self) -> u64 {
        self.handed_over.load(Ordering::Acquire)
    }

    /// Waits until there is room, then hands the batch over. If the future is dropped, nothing is handed over.
    ///
    /// # Errors
    /// The pipeline has ended.
    pub async fn send(&self, mut batch: FrameBatch) -> Result<(), PipelineEnded> {
        let begins = matches!(batch.frames.first(), Some(Frame::Begin { .. }));
        if begins {
            self.begun.send_modify(|begun| *begun += 1);
        }
        let bytes = u32::try_from(batch.bytes.len()).unwrap_or(u32::MAX).clamp(1, self.most);
        let permit = self.room.clone().acquire_many_owned(bytes).await;
        batch.room = Some(FramePermit {
            permit: Some(permit.map_err(|_| PipelineEnded)?),
            freed: self.freed.clone(),
        });
        // Count the connection together with its batch: if the future is dropped, neither counts.
        let place = self.batches.reserve().await.map_err(|_| PipelineEnded)?;
        if begins {
            self.handed_over.fetch_add(1, Ordering::AcqRel);
        }
        self.bytes.fetch_add(batch.bytes.len() as u64, Ordering::Relaxed);
        place.send(batch);
        Ok(())
    }
}

/// The pipeline has ended. It knows the reason.
#[derive(Debug, thiserror::Error)]
#[error("the pipeline has ended")]
pub struct PipelineEnded;

/// The channels of a stream.
#[derive(Debug)]
pub struct StreamPort {
    /// Where frames go.
    pub frames: FrameSender,
    /// The position that may be confirmed to the server.
    pub confirmable: watch::Receiver<Option<Stored>>,
    /// What the stream is to do.
    pub phase: watch::Receiver<StreamPhase>,
    /// The stream sets this to the server's last known WAL position.
    pub server_end: watch::Sender<Lsn>,
    /// Where to end in order, with `Ok`: before the first transaction that was committed at this position or later,
    /// once all transactions before it have been sent.
    pub until: Option<Lsn>,
    /// Whether to log the start of the stream at `info`. A try of the search for a gap's end is not worth it.
    pub is_news: bool,
}

/// What a stream is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamPhase {
    /// Read and confirm.
    Run,
    /// Read nothing more, but keep answering and confirming.
    Drain,
    /// Send a last status update and end.
    Close,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_shows_what_had_ended() {
        let seen = VisibleTransactions::parse("4294967290:4294967300:4294967298,4294967292").unwrap();
        let cases = [
            (4_294_967_290, true),
            (4_294_967_292, false),
            (2, false),
            (3, true),
            (4, false),
        ];
        for (xid, expected) in cases {
            assert_eq!(seen.shows(xid), expected, "{xid}");
        }
        for text in ["", "1", "1:2", "a:b:", "1:2:x"] {
            assert_eq!(VisibleTransactions::parse(text), None, "{text}");
        }
    }
}
