//! What the engine asks of the database side, and what it gets from it.

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
use walferry_event::catalog::{Catalog, TableFacts};
use walferry_pgoutput::{Lsn, Oid};
use walferry_snapshot::{
    self as snapshot, Again, Done, Keys,
    incremental::{Answer, Ask, Collection, Execute, Signal},
};
use walferry_transform::Hypertables;

use crate::{
    delivery::progress::{Stored, Transaction},
    failure::Failure,
    history::Lineage,
    published::{Look, Published},
};

/// One Postgres server, database, slot and publication, in four parts that can work beside each other. `walferry-postgres`
/// implements it.
pub trait Source: Send + 'static {
    /// Server, slot and publication.
    type Control: Control;
    /// The stream.
    type Stream: Stream;
    /// The reader of existing rows.
    type Rows: Rows;
    /// The reader of chunks beside the stream.
    type Windows: Windows;

    /// All of them at once.
    fn parts(&mut self) -> Parts<'_, Self>;

    /// Server, slot and publication.
    fn control(&mut self) -> &mut Self::Control {
        self.parts().control
    }
}

/// The parts of a source.
#[derive(Debug)]
pub struct Parts<'a, S: Source + ?Sized> {
    /// Server, slot and publication.
    pub control: &'a mut S::Control,
    /// The stream.
    pub stream: &'a mut S::Stream,
    /// The reader of existing rows.
    pub rows: &'a mut S::Rows,
    /// The reader of chunks beside the stream.
    pub windows: &'a mut S::Windows,
}

/// Looks at the server and changes it: the slot and the publication.
///
/// Every method may be called again after it failed; none blocks the thread.
pub trait Control: Send {
    /// Looks at server, slot and publication in as few round trips as it can. Reports all causes that need a person in one
    /// failure: `wal_level`, privileges, version, plugin or database of the slot, a lost publication.
    fn inspect(&mut self) -> impl Future<Output = Result<Found, Failure>> + Send;

    /// The captured tables with their columns, in the order in which Debezium reads them in a snapshot: by the first pattern
    /// of `table.include.list` that matches, then by name. `wanted` tells which tables are captured; of these, only such as have
    /// all of the `columns`.
    fn tables(
        &mut self,
        wanted: TableFilter,
        columns: &[String],
    ) -> impl Future<Output = Result<Vec<TableFacts>, Failure>> + Send;

    /// Reads TimescaleDB's catalog: which hypertable each chunk belongs to. Fails for good where the database has no such catalog.
    fn hypertables(&mut self) -> impl Future<Output = Result<Hypertables, Failure>> + Send {
        ready(Ok(Hypertables::default()))
    }

    /// Makes the publication what `publication.autocreate.mode` asks for. Before the slot: pgoutput reads the catalog as of
    /// the WAL position, and a publication younger than that does not exist for it.
    fn ensure_publication(&mut self, wanted: TableFilter) -> impl Future<Output = Result<(), Failure>> + Send;

    /// What the publication holds now, and whether captured rows may be missing since the look before, which found `known`.
    /// `None` where there is nothing to look at.
    fn published(
        &mut self,
        known: Option<Arc<Published>>,
        wanted: TableFilter,
    ) -> impl Future<Output = Result<Option<Look>, Failure>> + Send {
        let _ = (known, wanted);
        ready(Ok(None))
    }

    /// Creates the slot. With `export`, the transaction that exports its snapshot stays open until [`Rows::read`] has imported it,
    /// the stream begins, or the server is inspected again.
    fn create_slot(&mut self, export: bool) -> impl Future<Output = Result<CreatedSlot, Failure>> + Send;

    /// Exports a snapshot at a position of its own, the watermark: what was committed before it is in the snapshot, and
    /// nothing else. It stays open until [`Rows::read`] has ended, also while the slot is streamed.
    fn watermark(&mut self) -> impl Future<Output = Result<Lsn, Failure>> + Send;

    /// Drops the slot (`slot.drop.on.stop`, or a snapshot that starts again).
    fn drop_slot(&mut self) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Reads what is committed from the slot.
pub trait Stream: Send {
    /// Streams from `from` until the connection fails or [`Port::phase`] says to close. Never returns `Ok` before that, but
    /// with [`Port::until`].
    ///
    /// Status updates go out by themselves: every few seconds, when the server asks, and when the confirmable position has
    /// moved; also while the engine takes no chunk and while the catalog is looked up.
    fn stream(&mut self, from: Lsn, port: &mut Port) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Reads existing rows, in chunks.
pub trait Rows: Send {
    /// Reads what is left of the tables and sends it as [`Frame::Table`], [`Frame::Row`] and [`Frame::Part`], between
    /// [`Frame::SnapshotBegin`] and the frame that ends a snapshot of its kind. All of it is seen by one snapshot: the one that [`Control`] exported
    /// where there is one, otherwise one of its own. With one thread rows come in the order of the tables and of their blocks;
    /// with several, in any order.
    fn read(&mut self, plan: SnapshotPlan, out: &ChunkSender) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Reads chunks of tables beside the stream, on a connection of its own, and writes to the signal table what marks them in the stream.
pub trait Windows: Send {
    /// Does what is asked. What the server refuses for good is an [`Answer::Failed`]; a failure is tried again, with `again`, as nobody
    /// knows how far the last try has got. [`Ask::Close`] and [`Ask::GiveWay`] have no answer.
    fn ask(&mut self, ask: &Ask, again: bool) -> impl Future<Output = Result<Option<Read>, Failure>> + Send;
}

/// What came of an [`Ask`].
#[derive(Debug)]
pub struct Read {
    /// The answer.
    pub answer: Answer,
    /// The rows of a chunk.
    pub rows: Option<Box<ChunkRows>>,
}

/// The rows of a chunk, as [`Frame::Row`] has them.
#[derive(Debug)]
pub struct ChunkRows {
    /// The table as it was when they were read.
    pub catalog: Catalog,
    /// What the rows lie in.
    pub bytes: Bytes,
    /// Where in it.
    pub tuples: Vec<Range<usize>>,
    /// Which transactions they show.
    pub seen: Seen,
}

/// Which transactions a snapshot of the database shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// This one and later ones are not shown.
    pub next: u32,
    /// Nor are these, which were under way.
    pub under_way: Vec<u32>,
}

impl Seen {
    /// From the text of a `pg_snapshot`: `xmin:xmax:` and those between that are under way, with commas between them.
    pub fn parse(text: &str) -> Option<Self> {
        // Ids wrap around; the upper half counts how often they did.
        let low = |text: &str| Some(text.parse::<u64>().ok()? as u32);
        let mut parts = text.splitn(3, ':').skip(1);
        Some(Self {
            next: low(parts.next()?)?,
            under_way: parts.next()?.split_terminator(',').map(low).collect::<Option<_>>()?,
        })
    }

    /// Whether it shows what this transaction has done, if that has been committed.
    pub fn shows(&self, xid: u32) -> bool {
        (xid.wrapping_sub(self.next) as i32) < 0 && !self.under_way.contains(&xid)
    }
}

/// Of a source that reads no chunks.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWindows;

impl Windows for NoWindows {
    async fn ask(&mut self, _: &Ask, _: bool) -> Result<Option<Read>, Failure> {
        Err(Failure::retry(
            walferry_diagnosis::Kind::IncrementalSnapshotWaits,
            "chunks cannot be read beside this stream",
        ))
    }
}

/// What the pipeline asks of the source's parts, because of what it has met in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// An interrupted snapshot has to read these rows again. Comes once for each pipeline that has looked for such rows: at
    /// [`Frame::Watermark`], or when the pipeline ends before that.
    ReadAgain(Again),
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

/// The way of the pipeline's requests. It holds few of them, and never makes the pipeline wait.
pub fn requests() -> (mpsc::UnboundedSender<Request>, mpsc::UnboundedReceiver<Request>) {
    mpsc::unbounded_channel()
}

/// Which tables are captured: schema and table name to yes or no.
pub type TableFilter = Arc<dyn Fn(&str, &str) -> bool + Send + Sync>;

/// The server as [`Source::inspect`] found it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Found {
    /// `server_version_num`, such as 150018.
    pub server_version: u32,
    /// `IDENTIFY_SYSTEM`'s system identifier.
    pub system_id: u64,
    /// The server's last WAL position: written on a primary, received or replayed on a standby.
    pub wal_end: Lsn,
    /// Our slot, `None` when there is none of that name.
    pub slot: Option<FoundSlot>,
    /// Whether it is a standby: in recovery, and perhaps behind its primary.
    pub standby: bool,
    /// Its timelines.
    pub lineage: Lineage,
    /// What decides which transactions it sends: the publication and the stream's parameters.
    pub sends: String,
}

/// Our slot as found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct FoundSlot {
    /// `confirmed_flush_lsn`.
    pub confirmed: Option<Lsn>,
    /// `restart_lsn`; `None` once the WAL is gone.
    pub restart: Option<Lsn>,
    /// Whether the server still has its WAL (`wal_status` is not `lost`, and the slot was not invalidated).
    pub alive: bool,
    /// Process that reads it now.
    pub active_pid: Option<i32>,
}

/// A new slot.
#[derive(Debug, Clone, PartialEq)]
pub struct CreatedSlot {
    /// Everything committed before this is in the exported snapshot, everything after is streamed.
    pub consistent_point: Lsn,
}

/// What a snapshot reads.
#[derive(Debug, Clone, Default)]
pub struct SnapshotPlan {
    /// Tables in order.
    pub tables: Vec<TableFacts>,
    /// The position that its rows carry: the new slot's consistent point or the watermark, `None` for the server's position
    /// at its start.
    pub lsn: Option<Lsn>,
    /// Whether it goes on with one that was interrupted.
    pub goes_on: bool,
    /// What is done of the tables.
    pub done: Done,
    /// Rows to be read again, of tables that have been begun.
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

/// Frames in stream order, with the memory that they lie in.
#[derive(Debug)]
pub struct Chunk {
    /// What the frames' ranges point into.
    pub bytes: Bytes,
    /// Frames in order.
    pub frames: Vec<Frame>,
    /// Its part of the memory that frames may hold; free when the chunk is dropped.
    room: Option<Room>,
}

/// Some of the memory that frames may hold. Whoever waits until all of it is free is woken when it is dropped.
#[derive(Debug)]
struct Room {
    permit: Option<OwnedSemaphorePermit>,
    freed: Arc<Notify>,
}

impl Drop for Room {
    fn drop(&mut self) {
        // First the room, then the news of it. A sender that waits for room gets it before anybody finds the channel empty.
        drop(self.permit.take());
        self.freed.notify_one();
    }
}

impl Chunk {
    /// A chunk that counts for nothing.
    pub fn new(bytes: Bytes, frames: Vec<Frame>) -> Self {
        Self {
            bytes,
            frames,
            room: None,
        }
    }
}

/// One thing that the source has to say.
#[derive(Debug)]
pub enum Frame {
    /// A replication connection begins: relations are described anew, a transaction left open is sent again from its start.
    Begin {
        /// Where the server really begins: at the position that it was asked for, or at its slot's where that is further.
        from: Lsn,
    },
    /// A message of pgoutput (the payload of XLogData).
    Wal {
        /// Start LSN in the XLogData header, the `source.lsn` of a change.
        lsn: Lsn,
        /// The payload.
        payload: Range<usize>,
    },
    /// A keepalive: everything that was committed before this has been sent.
    Keepalive {
        /// The server's position.
        wal_end: Lsn,
    },
    /// The catalog's facts for the relation that the next [`Frame::Wal`] describes.
    Catalog(Box<Catalog>),
    /// Existing rows follow.
    SnapshotBegin {
        /// How many by the server's estimate.
        rows_left: u64,
        /// Of which tables: their numbers and names, in order.
        tables: Vec<(Oid, String)>,
        /// What they are part of.
        kind: SnapshotKind,
    },
    /// The rows that follow are of this table.
    Table(Arc<SnapshotTable>),
    /// A row of the snapshot, as pgoutput's TupleData: 2 bytes for the number of columns, then for each `n`, or `t`, 4 bytes
    /// of length and the text. Columns as in the table's facts.
    Row {
        /// Where the tuple lies.
        tuple: Range<usize>,
    },
    /// A part of a table is complete.
    Part {
        /// Which.
        step: snapshot::Step,
        /// Whether the table is complete with it.
        completes: bool,
    },
    /// All rows have been sent, also where there were none.
    SnapshotEnd {
        /// The snapshot's position: where the stream goes on.
        lsn: Lsn,
        /// The transaction that read them, and `CURRENT_TIMESTAMP` in it.
        transaction: Transaction,
    },
    /// All rows of a blocking snapshot have been sent, or it is given up.
    BlockingEnd {
        /// Whether it is given up.
        given_up: bool,
    },
    /// All rows of a table without a key, of an incremental snapshot, have been sent.
    WholeEnd {
        /// Why they have not, where the table cannot be read.
        failed: Option<String>,
    },
    /// Everything before the watermark of a snapshot has been handed over; the engine's own. The pipeline answers with
    /// [`Request::ReadAgain`].
    Watermark,
    /// What [`Windows`] was asked for; the engine's own.
    Answer {
        /// The chunk that it is of, if it is of one.
        of: Option<String>,
        /// The answer.
        answer: Answer,
        /// The rows of a chunk.
        rows: Option<Box<ChunkRows>>,
    },
    /// A signal that has not come with the stream; the engine's own.
    Signal(Box<Signal>),
    /// Time has passed; the engine's own, so that heartbeats beat while the stream is quiet.
    Tick,
}

/// A table that a snapshot reads.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotTable {
    /// The table and its types.
    pub catalog: Catalog,
    /// The snapshot's position.
    pub lsn: Lsn,
    /// Its transaction.
    pub xid: u32,
    /// `CURRENT_TIMESTAMP` in it, microseconds since 1970.
    pub time_us: i64,
    /// Whether the rows of each table come together, so that its first and its last are marked.
    pub ordered: bool,
    /// Whether rows of it have been sent by an earlier snapshot, which was interrupted.
    pub begun: bool,
    /// Whether it is the first of all, empty or not: no other table's first row is marked as the snapshot's.
    pub first: bool,
    /// What it is read for.
    pub kind: SnapshotKind,
}

/// The way from the source to the pipeline: bounded by the bytes that wait in it.
#[derive(Debug, Clone)]
pub struct ChunkSender {
    chunks: mpsc::Sender<Chunk>,
    room: Arc<Semaphore>,
    most: u32,
    /// Signalled when a chunk has been dealt with. One task waits for it: the end of a session.
    freed: Arc<Notify>,
    /// How many connections have begun.
    begun: watch::Sender<u64>,
    /// Of how many the beginning was handed over: a connection may fail while it waits for room.
    handed_over: Arc<AtomicU64>,
    /// How many bytes were handed over.
    bytes: Arc<AtomicU64>,
}

/// The pipeline's end.
pub type ChunkReceiver = mpsc::Receiver<Chunk>;

/// A channel that holds at most `bytes` of frames, and always at least one chunk.
pub fn chunks(bytes: usize) -> (ChunkSender, ChunkReceiver) {
    let most = u32::try_from(bytes).unwrap_or(u32::MAX).max(1);
    // The number of chunks is bounded too, as small ones cost more than their bytes.
    let (sender, receiver) = mpsc::channel(64);
    (
        ChunkSender {
            chunks: sender,
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

impl ChunkSender {
    /// Whether the pipeline has dealt with everything that was sent.
    pub fn is_empty(&self) -> bool {
        self.room.available_permits() >= self.most as usize
    }

    /// Waits until the pipeline has dealt with everything that was sent, or has ended.
    pub(crate) async fn emptied(&self) {
        // All the room is free again. What is sent meanwhile waits behind this.
        let _ = self.room.acquire_many(self.most).await;
    }

    /// Waits until the pipeline has dealt with a chunk, if it has not since this was called last. Unlike [`emptied`](Self::emptied) it
    /// does not hold up what is sent meanwhile.
    pub(crate) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// How many bytes were handed over so far.
    pub(crate) fn handed_over_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Wakes a pipeline that waits for a chunk, so that it notices that it is to end. If the channel is full, it is not waiting.
    pub(crate) fn wake(&self) {
        let _ = self.chunks.try_send(Chunk::new(Bytes::new(), Vec::new()));
    }

    /// Whether the pipeline has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.chunks.is_closed()
    }

    /// Tells when a connection begins: at once, also while the pipeline is busy with what came before.
    pub(crate) fn begun(&self) -> watch::Receiver<u64> {
        self.begun.subscribe()
    }

    /// How many connections the pipeline has met, or will meet with what was handed over.
    pub(crate) fn connections(&self) -> u64 {
        self.handed_over.load(Ordering::Acquire)
    }

    /// Waits until there is room, then hands the chunk over. Dropping the future hands nothing over. `Err` when the
    /// pipeline has ended.
    pub async fn send(&self, mut chunk: Chunk) -> Result<(), PipelineEnded> {
        let begins = matches!(chunk.frames.first(), Some(Frame::Begin { .. }));
        if begins {
            self.begun.send_modify(|begun| *begun += 1);
        }
        let bytes = u32::try_from(chunk.bytes.len()).unwrap_or(u32::MAX).clamp(1, self.most);
        let permit = self.room.clone().acquire_many_owned(bytes).await;
        chunk.room = Some(Room {
            permit: Some(permit.map_err(|_| PipelineEnded)?),
            freed: self.freed.clone(),
        });
        // Counted with the chunk, not before: dropping the future hands nothing over.
        let place = self.chunks.reserve().await.map_err(|_| PipelineEnded)?;
        if begins {
            self.handed_over.fetch_add(1, Ordering::AcqRel);
        }
        self.bytes.fetch_add(chunk.bytes.len() as u64, Ordering::Relaxed);
        place.send(chunk);
        Ok(())
    }
}

/// The pipeline has ended; why is known there.
#[derive(Debug, thiserror::Error)]
#[error("the pipeline has ended")]
pub struct PipelineEnded;

/// What a stream is connected to.
#[derive(Debug)]
pub struct Port {
    /// Where frames go.
    pub chunks: ChunkSender,
    /// What may be confirmed to the server.
    pub confirmable: watch::Receiver<Option<Stored>>,
    /// What is wanted of the stream.
    pub phase: watch::Receiver<Phase>,
    /// What has arrived: set by the stream to the server's last known WAL position.
    pub server_end: watch::Sender<Lsn>,
    /// Where to end, in order and with `Ok`: before the first transaction that was committed there or later, once all before
    /// it have been sent.
    pub until: Option<Lsn>,
    /// Whether the log tells at `info` that the stream begins: a try that looks for something is nobody's news.
    pub is_news: bool,
}

/// What is wanted of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Read and confirm.
    Run,
    /// Read nothing more; go on answering and confirming.
    Drain,
    /// Send a last status update and end.
    Close,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_shows_what_had_ended() {
        let seen = Seen::parse("4294967290:4294967300:4294967292,4294967298").unwrap();
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
            assert_eq!(Seen::parse(text), None, "{text}");
        }
    }
}
