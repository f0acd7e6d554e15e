//! Postgres, Kafka and an offset store in memory, for a connector that runs as a whole.

use std::{
    collections::VecDeque,
    future::pending,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};
use walferry_diagnosis::Kind;

use bytes::Bytes;
use walferry_engine::{
    Failure,
    progress::{Stored, Transaction},
    sink::{Acks, Outgoing, Sink, Sinks},
    snapshot::{Keys, SnapshotStep},
    source::{
        Control, CreatedSlot, FoundSlot, Frame, FrameBatch, FrameSender, Inspection, NoChunks, Rows, SnapshotKind,
        SnapshotPlan, SnapshotTable, Source, SourceParts, Stream, StreamPhase, StreamPort, TableFilter,
    },
    store::{OffsetStore, StoredOffset},
};
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts};
use walferry_pgoutput::{Lsn, Oid};

use crate::{
    fixture,
    script::Row,
    script::{self, Sent, TABLE, Unit},
};

/// What all edges of a test share, and what survives a connector.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edges(Arc<Mutex<State>>);

#[derive(Debug, Default)]
pub(crate) struct State {
    // Postgres.
    pub(crate) units: Vec<Unit>,
    /// Rows that a snapshot reads.
    pub(crate) existing: Vec<Row>,
    pub(crate) system_id: u64,
    pub(crate) slot: Option<Lsn>,
    /// What the next looks at the server fail with.
    pub(crate) inspects: VecDeque<Failure>,
    /// For so many looks, another process reads the slot.
    pub(crate) read_by_another: usize,
    /// Whether that is a Walferry that is alive.
    pub(crate) heard_of_another: bool,
    /// What that process stores and confirms as its last, before the first look that finds the slot free.
    pub(crate) last_of_another: Option<StoredOffset>,
    /// What the next connections fail with, after so many frames.
    pub(crate) connections: VecDeque<(usize, Failure)>,
    /// What never answers.
    pub(crate) hangs: Option<Hang>,
    /// What happens to the server when a connection has failed.
    pub(crate) meanwhile: Option<fn(&mut State)>,
    /// The same when existing rows have been read.
    pub(crate) behind_rows: Option<fn(&mut State)>,
    pub(crate) snapshots: usize,
    /// Where an interrupted snapshot goes on.
    pub(crate) watermark: Lsn,
    // Kafka.
    pub(crate) log: Vec<Row>,
    pub(crate) broker: BrokerIs,
    /// Producers that are open now, and have been at most.
    pub(crate) producers: (usize, usize),
    /// How many producers were open when the last stream was closed.
    pub(crate) producers_behind_stream: Option<usize>,
    // The store.
    pub(crate) offset: Option<StoredOffset>,
    pub(crate) store_fails: bool,
    /// How often the offset was loaded.
    pub(crate) loads: u64,
    /// The same when the process of a deputy became the owner.
    pub(crate) loads_before_owned: Option<u64>,
    /// After so many loads, this process becomes the owner, and the sender says so.
    pub(crate) owned_after_load: Option<(u64, tokio::sync::watch::Sender<bool>)>,
    /// When the next connection has failed, this process becomes the owner, while that session still ends.
    pub(crate) owned_at_failure: Option<tokio::sync::watch::Sender<bool>>,
    /// The disk has no room at the moment.
    pub(crate) store_full: bool,
    pub(crate) writes: (usize, usize),
}

/// What never answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hang {
    Inspect,
    Tables,
    /// After all rows.
    Snapshot,
    Stream,
}

/// How the broker is.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum BrokerIs {
    /// It acknowledges after a while.
    #[default]
    Well,
    Down,
    /// It fails the producer at the record with this `n`, once.
    Failing(i64, Failure),
    /// The producer takes no record, so that the pipeline ends.
    Refusing(Failure),
}

/// What the blocks of the table's rows are of.
const STORAGE: u64 = 1;
/// Where the script of a test ends.
pub(crate) const WAL_END: Lsn = Lsn(100_000);

impl Edges {
    pub(crate) fn new(units: Vec<Unit>) -> Self {
        let edges = Self::default();
        edges.lock().units = units;
        edges.lock().system_id = 7;
        edges
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn hang(&self, at: Hang) {
        if self.lock().hangs == Some(at) {
            pending::<()>().await;
        }
    }

    fn confirm(&self, stored: Option<Stored>) {
        if let Some(stored) = stored {
            let mut state = self.lock();
            let durable = state.offset.as_ref().and_then(|offset| offset.connect.lsn_proc);
            assert!(durable >= Some(stored.confirmable().into()), "confirmed and not stored");
            state.slot = state.slot.max(Some(stored.confirmable()));
        }
    }
}

/// The same server for each part of the source.
pub(crate) struct Server {
    control: Edges,
    stream: Edges,
    rows: Edges,
    chunks: NoChunks,
}

impl Edges {
    pub(crate) fn server(&self) -> Server {
        Server {
            control: self.clone(),
            stream: self.clone(),
            rows: self.clone(),
            chunks: NoChunks,
        }
    }
}

impl Source for Server {
    type Control = Edges;
    type Stream = Edges;
    type Rows = Edges;
    type Chunks = NoChunks;

    fn parts(&mut self) -> SourceParts<'_, Self> {
        let Self {
            control,
            stream,
            rows,
            chunks,
        } = self;
        SourceParts {
            control,
            stream,
            rows,
            chunks,
        }
    }
}

impl Control for Edges {
    async fn inspect(&mut self) -> Result<Inspection, Failure> {
        self.hang(Hang::Inspect).await;
        let mut state = self.lock();
        if let Some(failure) = state.inspects.pop_front() {
            return Err(failure);
        }
        let is_read = state.read_by_another > 0;
        state.read_by_another = state.read_by_another.saturating_sub(1);
        if !is_read && let Some(offset) = state.last_of_another.take() {
            state.slot = offset.connect.lsn_proc.map(Lsn::from);
            state.offset = Some(offset);
        }
        let slot = state.slot.map(|confirmed| FoundSlot {
            confirmed: Some(confirmed),
            restart: Some(confirmed),
            alive: true,
            active_pid: is_read.then_some(4711),
            reader: None,
            heard: (is_read && state.heard_of_another).then(|| state.read_by_another.to_string()),
        });
        Ok(Inspection {
            server_version: 160_000,
            system_id: state.system_id,
            wal_end: WAL_END,
            slot,
            ..Inspection::default()
        })
    }

    async fn tables(&mut self, _: TableFilter, _: &[String]) -> Result<Vec<TableFacts>, Failure> {
        self.hang(Hang::Tables).await;
        Ok(vec![facts()])
    }

    async fn ensure_publication(&mut self, _: TableFilter) -> Result<(), Failure> {
        Ok(())
    }

    async fn create_slot(&mut self, _: bool) -> Result<CreatedSlot, Failure> {
        let consistent_point = Lsn(10);
        self.lock().slot = Some(consistent_point);
        Ok(CreatedSlot { consistent_point })
    }

    async fn watermark(&mut self) -> Result<Lsn, Failure> {
        Ok(self.lock().watermark)
    }

    async fn drop_slot(&mut self) -> Result<(), Failure> {
        self.lock().slot = None;
        Ok(())
    }
}

impl Rows for Edges {
    /// Two rows a block, a block a chunk.
    async fn read(&mut self, plan: SnapshotPlan, out: &FrameSender) -> Result<(), Failure> {
        self.lock().snapshots += 1;
        let existing = self.lock().existing.clone();
        let left = plan.done.left(TABLE, STORAGE, existing.len().div_ceil(2) as u32, 1);
        let last = left.last().copied();
        let is_refused = matches!(self.lock().broker, BrokerIs::Refusing(_));
        let lsn = plan.lsn.unwrap_or(WAL_END);
        let table = Arc::new(SnapshotTable {
            kind: SnapshotKind::Initial,
            catalog: Catalog {
                table: plan.tables.into_iter().next(),
                types: Vec::new(),
            },
            lsn,
            xid: 3,
            time_us: 1,
            ordered: true,
            begun: plan.done.has_begun(TABLE),
            first: true,
        });
        for blocks in left {
            let end = (blocks.end as usize).saturating_mul(2).min(existing.len());
            let rows = &existing[(blocks.first as usize * 2).min(end)..end];
            let step = SnapshotStep::Chunk {
                table: TABLE,
                storage: STORAGE,
                blocks,
            };
            let part = part(&table, rows, step, Some(blocks) == last);
            out.send(part).await.map_err(ended)?;
            if is_refused {
                return Err(until_ended(out));
            }
        }
        if let Some(Keys::Of { values, .. }) = plan.again.get(&TABLE) {
            let is_noted = |row: &&Row| values.contains(&vec![row.0.to_string()]);
            let rows: Vec<Row> = existing.iter().filter(is_noted).copied().collect();
            let part = part(&table, &rows, SnapshotStep::ReadAgain(TABLE), false);
            out.send(part).await.map_err(ended)?;
        }
        self.hang(Hang::Snapshot).await;
        {
            let mut state = self.lock();
            if let Some(behind) = state.behind_rows.take() {
                behind(&mut state);
            }
        }
        let transaction = Transaction { xid: 3, time_us: 1 };
        let end = FrameBatch::new(Bytes::new(), vec![Frame::SnapshotEnd { lsn, transaction }]);
        out.send(end).await.map_err(ended)
    }
}

/// Keeps its thread until the pipeline has ended, as a poll does in which rows are read while the pipeline's thread fails. So the reader
/// says that the pipeline has ended before anybody has heard why.
fn until_ended(out: &FrameSender) -> Failure {
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let sending = tokio::task::unconstrained(out.send(FrameBatch::new(Bytes::new(), Vec::new())));
        if let Poll::Ready(Err(error)) = pin!(sending).poll(&mut context) {
            return ended(error);
        }
        thread::yield_now();
    }
}

/// Notes when a stream is closed, however that happens.
struct OpenStream(Edges);

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.producers_behind_stream = Some(state.producers.0);
    }
}

impl Stream for Edges {
    async fn stream(&mut self, from: Lsn, port: &mut StreamPort) -> Result<(), Failure> {
        let _open = OpenStream(self.clone());
        self.hang(Hang::Stream).await;
        // Postgres never goes back behind the slot, and says nothing.
        let from = self.lock().slot.unwrap_or_default().max(from);
        let begin = FrameBatch::new(
            Bytes::new(),
            vec![Frame::Begin {
                from,
                under_way: Vec::new(),
            }],
        );
        port.frames.send(begin).await.map_err(ended)?;
        let units = self.lock().units.clone();
        let sent = script::relations().into_iter();
        let until = port.until;
        let units = units
            .into_iter()
            .filter(|unit| unit.commit_lsn >= from && until.is_none_or(|until| unit.commit_lsn < until));
        let mut sent: Vec<Sent> = sent.chain(units.flat_map(|unit| unit.frames)).collect();
        let broken = self.lock().connections.pop_front();
        if let Some((frames, _)) = &broken {
            sent.truncate(*frames);
        }
        for Sent { lsn, payload } in sent {
            let frame = Frame::Wal {
                lsn,
                payload: 0..payload.len(),
            };
            port.frames
                .send(FrameBatch::new(payload.into(), vec![frame]))
                .await
                .map_err(ended)?;
        }
        if let Some((_, failure)) = broken {
            let mut state = self.lock();
            if let Some(meanwhile) = state.meanwhile.take() {
                meanwhile(&mut state);
            }
            if let Some(is_deputy) = state.owned_at_failure.take() {
                is_deputy.send_replace(false);
            }
            return Err(failure);
        }
        if until.is_some() {
            return Ok(());
        }
        let keepalive = Frame::Keepalive { wal_end: WAL_END };
        port.frames
            .send(FrameBatch::new(Bytes::new(), vec![keepalive]))
            .await
            .map_err(ended)?;
        while *port.phase.borrow_and_update() < StreamPhase::Close {
            self.confirm(*port.confirmable.borrow_and_update());
            tokio::select! {
                _ = port.phase.changed() => {}
                _ = port.confirmable.changed() => {}
            }
        }
        self.confirm(*port.confirmable.borrow());
        Ok(())
    }
}

/// Rows of a table, and what is complete with them.
fn part(table: &Arc<SnapshotTable>, rows: &[Row], step: SnapshotStep, completes: bool) -> FrameBatch {
    let (mut bytes, mut frames) = (Vec::new(), Vec::new());
    for (id, n) in rows {
        if frames.is_empty() {
            frames.push(Frame::Table(table.clone()));
        }
        let start = bytes.len();
        bytes.extend_from_slice(&2_u16.to_be_bytes());
        for text in [id.to_string(), n.to_string()] {
            bytes.push(b't');
            bytes.extend_from_slice(&(text.len() as u32).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        frames.push(Frame::Row {
            tuple: start..bytes.len(),
        });
    }
    frames.push(Frame::Part { step, completes });
    FrameBatch::new(bytes.into(), frames)
}

fn ended(error: walferry_engine::source::PipelineEnded) -> Failure {
    Failure::retry(Kind::PipelineEnded, error.to_string())
}

pub(crate) fn facts() -> TableFacts {
    let column = |name: &str, number, oid| ColumnFacts {
        not_null: true,
        ..ColumnFacts::plain(name, number, Oid(oid))
    };
    TableFacts {
        oid: TABLE,
        schema: "public".into(),
        name: "t".into(),
        columns: vec![column("id", 1, 23), column("n", 2, 20)],
        primary_key: vec!["id".into()],
        unique_indexes: Vec::new(),
        comment: None,
        partition: false,
    }
}

/// A producer whose records are written and acknowledged by a thread of its own, some milliseconds later.
pub(crate) struct Producer {
    edges: Edges,
    acks: Acks,
    queue: Arc<Mutex<VecDeque<(u64, Row)>>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Sinks for Edges {
    type Sink = Producer;

    fn open(&mut self, acks: Acks) -> Result<Producer, Failure> {
        let producers = &mut self.lock().producers;
        producers.0 += 1;
        producers.1 = producers.1.max(producers.0);
        let queue = Arc::new(Mutex::new(VecDeque::new()));
        let thread = {
            let (edges, acks, queue) = (self.clone(), acks.clone(), queue.clone());
            thread::spawn(move || {
                // Ends with the producer, which is the other owner of the queue.
                let mut works = true;
                while works && Arc::strong_count(&queue) > 1 {
                    thread::sleep(Duration::from_millis(2));
                    works = edges.write(&queue, &acks);
                }
            })
        };
        Ok(Producer {
            edges: self.clone(),
            acks,
            queue,
            thread: Some(thread),
        })
    }
}

impl Edges {
    /// Writes the next record of a producer. Returns whether the producer still works.
    fn write(&self, queue: &Mutex<VecDeque<(u64, Row)>>, acks: &Acks) -> bool {
        let mut state = self.lock();
        if state.broker == BrokerIs::Down {
            return true;
        }
        let Some((sequence, row)) = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front() else {
            return true;
        };
        if let BrokerIs::Failing(at, failure) = state.broker.clone()
            && at == row.1
        {
            state.broker = BrokerIs::Well;
            drop(state);
            acks.failed(failure);
            return false;
        }
        state.log.push(row);
        drop(state);
        acks.delivered(sequence);
        true
    }
}

impl Sink for Producer {
    fn send(&mut self, record: &Outgoing<'_>, sequence: u64) -> Result<(), Failure> {
        if let BrokerIs::Refusing(failure) = &self.edges.lock().broker {
            return Err(failure.clone());
        }
        let row = fixture::row(record.value.unwrap_or_default()).expect("only rows are sent");
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back((sequence, row));
        // A broker that is down: the producer's queue is full, as it were.
        while self.edges.lock().broker == BrokerIs::Down && !self.acks.is_stopping() {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // What is queued is given up, but not at once.
        thread::sleep(Duration::from_millis(10));
        self.queue = Arc::default();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.edges.lock().producers.0 -= 1;
    }
}

impl OffsetStore for Edges {
    async fn load(&mut self) -> Result<Option<StoredOffset>, Failure> {
        let mut state = self.lock();
        state.loads += 1;
        let loads = state.loads;
        if let Some((_, told)) = state.owned_after_load.take_if(|(after, _)| *after == loads) {
            state.loads_before_owned = Some(loads);
            told.send_replace(false);
        }
        Ok(state.offset.clone())
    }

    async fn write(&mut self, offset: &StoredOffset) -> Result<(), Failure> {
        let (edges, offset) = (self.clone(), offset.clone());
        // Goes on when nobody waits for it any more, as a write on another thread does.
        let written = tokio::task::spawn(async move {
            {
                let writes = &mut edges.lock().writes;
                writes.0 += 1;
                writes.1 = writes.1.max(writes.0);
            }
            tokio::time::sleep(Duration::from_millis(3)).await;
            let mut state = edges.lock();
            state.writes.0 -= 1;
            assert!(
                state.loads_before_owned.is_none_or(|before| state.loads > before),
                "an owner has loaded the offset since it is one"
            );
            if state.store_fails {
                return Err(Failure::stop(Kind::DiskFull, "no space", "make some"));
            }
            if state.store_full {
                return Err(Failure::retry(Kind::DiskFull, "no space"));
            }
            state.offset = Some(offset);
            Ok(())
        });
        written.await.expect("it does not panic")
    }
}
