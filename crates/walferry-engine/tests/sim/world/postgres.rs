//! The simulated server as the engine's source.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Poll,
    time::Duration,
};
use walferry_diagnosis::Kind;

use tokio::time::{Instant, timeout_at};
use walferry_engine::{
    Failure,
    gap::{CHANGED, MISSING},
    progress::Transaction,
    published::{PublicationLook, Published},
    snapshot::{ChunksDone, Keys, SnapshotStep},
    source::{
        Control, CreatedSlot, FoundSlot, Frame, FrameBatch, FrameSender, Inspection, Rows, SnapshotKind, SnapshotPlan,
        SnapshotTable, Source, SourceParts, Stream, StreamPhase, StreamPort, TableFilter,
    },
};
use walferry_event::catalog::TableFacts;
use walferry_pgoutput::Lsn;

use super::{
    Shared, State,
    checks::{self, ChunkRead},
    chunks::Chunks,
    database::{Row, TABLES},
    gates::Who,
    server::{Exported, Slot, unreachable},
    wal,
};

/// One part of the source of one process.
pub(crate) struct Part {
    shared: Shared,
    /// The replication connection that was opened by a look at the server, and that the next stream uses. What has been cut
    /// before then.
    link: Arc<Mutex<Option<u64>>>,
    patience: Patience,
}

/// The source of one process.
pub(crate) struct Postgres {
    control: Part,
    stream: Part,
    rows: Part,
    chunks: Chunks,
}

impl Postgres {
    pub(crate) fn new(shared: Shared) -> Self {
        let link = Arc::new(Mutex::new(None));
        let part = || Part {
            shared: shared.clone(),
            link: link.clone(),
            patience: Patience::default(),
        };
        Self {
            control: part(),
            stream: part(),
            rows: part(),
            chunks: Chunks(shared.clone()),
        }
    }
}

impl Source for Postgres {
    type Control = Part;
    type Stream = Part;
    type Rows = Part;
    type Chunks = Chunks;

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

const CREATE: &str = "CREATE PUBLICATION dbz";

/// How long the server may say nothing, as in the edge.
#[derive(Debug, Default)]
struct Patience {
    in_a_row: u32,
    furthest: Lsn,
}

impl Patience {
    fn limit(&self) -> Duration {
        Duration::from_secs(60) * (1 << self.in_a_row.min(10))
    }

    fn heard(&mut self, position: Lsn) {
        if position > self.furthest {
            (self.furthest, self.in_a_row) = (position, 0);
        }
    }
}

const SYSTEM_ID: u64 = 7;

impl Part {
    fn link(&self) -> MutexGuard<'_, Option<u64>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A statement: it waits for its answer, and fails where the server is not there.
    async fn statement<T>(&self, work: impl FnOnce(&mut State) -> T) -> Result<T, Failure> {
        self.shared.turn(Who::Source).await;
        let mut state = self.shared.lock();
        state.server.answer()?;
        Ok(work(&mut state))
    }

    /// Ends when the connection is cut.
    async fn cut(shared: &Shared) -> Failure {
        poll_fn(|_| shared.lock().server.broken.take().map_or(Poll::Pending, Poll::Ready)).await
    }

    fn export(state: &mut State) -> Lsn {
        let (lsn, tables) = (state.database.end, state.database.tables.clone());
        state.server.exported = Some(Exported { lsn, tables });
        lsn
    }
}

impl Control for Part {
    async fn published(
        &mut self,
        known: Option<Arc<Published>>,
        _: TableFilter,
    ) -> Result<Option<PublicationLook>, Failure> {
        // On a connection of its own, beside the stream.
        let state = self.shared.lock();
        if state.server.is_down {
            return Err(unreachable());
        }
        Ok(Some(state.look(known.as_deref())))
    }

    async fn inspect(&mut self) -> Result<Inspection, Failure> {
        *self.link() = None;
        let (found, link) = self
            .statement(|state| {
                state.server.exported = None;
                let slot = state.server.slot.map(|slot| FoundSlot {
                    confirmed: Some(slot.confirmed),
                    restart: Some(slot.confirmed),
                    alive: true,
                    active_pid: None,
                    reader: None,
                    heard: None,
                });
                let found = Inspection {
                    server_version: 160_000,
                    system_id: SYSTEM_ID,
                    wal_end: state.database.end,
                    slot,
                    lineage: state.server.lineage.clone(),
                    sends: "dbz".into(),
                    ..Inspection::default()
                };
                (state.database.publication.oid.map(|_| found), state.server.cuts)
            })
            .await?;
        let found = found.ok_or_else(|| Failure::stop(MISSING, "no publication", CREATE))?;
        *self.link() = Some(link);
        Ok(found)
    }

    async fn tables(&mut self, wanted: TableFilter, _: &[String]) -> Result<Vec<TableFacts>, Failure> {
        let is_wanted = |table: &TableFacts| wanted(&table.schema, &table.name);
        self.statement(|_| TABLES.iter().map(wal::facts).filter(is_wanted).collect())
            .await
    }

    async fn ensure_publication(&mut self, _: TableFilter) -> Result<(), Failure> {
        self.statement(|_| ()).await
    }

    async fn create_slot(&mut self, _: bool) -> Result<CreatedSlot, Failure> {
        self.statement(|state| {
            let consistent_point = Self::export(state);
            let (confirmed, on_disk) = (consistent_point, consistent_point);
            state.server.slot = Some(Slot { confirmed, on_disk });
            state.begin_at(consistent_point);
            state.disk.may_fall = state.disk.offset.is_some();
            state.tell(|| format!("slot created at {consistent_point:?}"));
            CreatedSlot { consistent_point }
        })
        .await
    }

    async fn watermark(&mut self) -> Result<Lsn, Failure> {
        self.statement(|state| {
            let lsn = Self::export(state);
            let goes_on = state
                .disk
                .offset
                .as_ref()
                .is_some_and(|offset| offset.snapshot.is_some());
            if !goes_on {
                // A slot of which nothing is known: what it holds is in the rows that are read.
                state.begin_at(lsn);
                state.disk.may_fall = state.disk.offset.is_some();
            }
            state.tell(|| format!("watermark {lsn:?}"));
            lsn
        })
        .await
    }

    async fn drop_slot(&mut self) -> Result<(), Failure> {
        self.statement(|state| {
            state.tell(|| "slot dropped".into());
            state.server.slot = None;
            if state.has_failed_over {
                // The next start waits for the slot of another timeline. A person says that it will not come.
                state.disk.offset = None;
            }
        })
        .await
    }
}

impl Rows for Part {
    async fn read(&mut self, plan: SnapshotPlan, out: &FrameSender) -> Result<(), Failure> {
        let exported = self.statement(|state| state.server.exported.take()).await?;
        let exported = exported.ok_or_else(|| Failure::retry(Kind::SnapshotGone, "the exported snapshot is gone"))?;
        let reading = Reading(&self.shared);
        self.shared.lock().chunks_read.clear();
        let mut jobs = Vec::new();
        for facts in &plan.tables {
            jobs.extend(self.jobs(facts, &plan, &exported).await?);
        }
        self.shared.lock().shuffle(&mut jobs);
        for job in jobs {
            let (chunk, read) = job;
            self.statement(|state| {
                state.tell(|| format!("read {read:?}"));
                state.chunks_read.push(read);
            })
            .await?;
            out.send(chunk).await.map_err(ended)?;
        }
        drop(reading);
        let end = Frame::SnapshotEnd {
            lsn: exported.lsn,
            transaction: TRANSACTION,
        };
        out.send(FrameBatch::new(bytes::Bytes::new(), vec![end]))
            .await
            .map_err(ended)
    }
}

impl Stream for Part {
    async fn stream(&mut self, from: Lsn, port: &mut StreamPort) -> Result<(), Failure> {
        self.shared.turn(Who::Source).await;
        let until = port.until;
        let link = self.link().take();
        let shared = self.shared.clone();
        let begins = self
            .shared
            .lock()
            .server
            .start(link, from, until, port.confirmable.clone())?;
        let connected = Connected(&shared);
        self.shared
            .lock()
            .tell(|| format!("stream from {from:?} until {until:?}"));
        let mut phase = port.phase.clone();
        let closing = async move {
            let _ = phase.wait_for(|phase| *phase == StreamPhase::Close).await;
        };
        let mut phase = port.phase.clone();
        let reading = async {
            let begin = Frame::Begin {
                from: begins,
                under_way: self.shared.lock().under_way(),
            };
            let begin = FrameBatch::new(bytes::Bytes::new(), vec![begin]);
            port.frames.send(begin).await.map_err(ended)?;
            let patience = &mut self.patience;
            let mut heard = Instant::now();
            loop {
                // While nobody takes what has come, the server is not waited for.
                if timeout_at(heard + patience.limit(), shared.turn(Who::Source))
                    .await
                    .is_err()
                {
                    patience.in_a_row += 1;
                    return Err(Failure::retry(Kind::Silent, "the server says nothing"));
                }
                let Some(read) = shared.lock().read()? else {
                    return Ok::<(), Failure>(());
                };
                if !read.is_empty() {
                    let told = read.iter().filter_map(wal::Sent::tells).max().unwrap_or_default();
                    patience.heard(told);
                    port.server_end
                        .send_if_modified(|end| std::mem::replace(end, told.max(*end)) < told);
                    port.frames.send(wal::chunk(read)).await.map_err(ended)?;
                    heard = Instant::now();
                } else if heard.elapsed() >= patience.limit() {
                    patience.in_a_row += 1;
                    return Err(Failure::retry(Kind::Silent, "the server says nothing"));
                }
            }
        };
        let attended = async {
            tokio::select! {
                biased;
                _ = phase.wait_for(|phase| *phase >= StreamPhase::Drain) => {}
                read = reading => {
                    read?;
                    return Ok(());
                }
            }
            // Drained: answers and confirms, until it is closed.
            closing.await;
            Ok::<(), Failure>(())
        };
        tokio::select! {
            biased;
            failure = Self::cut(&shared) => return Err(failure),
            ended = attended => ended?,
        }
        self.shared.lock().confirm();
        drop(connected);
        Ok(())
    }
}

/// The transaction that reads a snapshot.
const TRANSACTION: Transaction = Transaction { xid: 3, time_us: 1 };

/// Tables stay as they are while a snapshot reads them.
struct Reading<'a>(&'a Shared);

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.lock().database.read_by_snapshot.clear();
    }
}

/// A stream, until it ends.
struct Connected<'a>(&'a Shared);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        let state = &mut *self.0.lock();
        if state
            .server
            .connection
            .take()
            .is_some_and(|connection| connection.is_dead)
        {
            let ms = state.random.below(90_000);
            state.server.held_until = Some(Instant::now() + Duration::from_millis(ms));
        }
    }
}

impl Part {
    /// What is read of a table, in the order of the edge: first rows that are to be read again, then chunks.
    async fn jobs(
        &self,
        facts: &TableFacts,
        plan: &SnapshotPlan,
        exported: &Exported,
    ) -> Result<Vec<(FrameBatch, ChunkRead)>, Failure> {
        let (oid, done) = (facts.oid, &plan.done);
        if done.is_complete(oid) && !plan.again.contains_key(&oid) {
            return Ok(Vec::new());
        }
        let index = TABLES.iter().position(|table| table.oid == oid).expect("it was listed");
        let (table, most) = (&exported.tables[index], self.shared.lock().plan.chunk_blocks);
        let is_same = self.statement(|state| {
            state.database.read_by_snapshot.insert(index);
            state.database.tables[index].storage == table.storage
        });
        if !is_same.await? {
            return Err(Failure::retry(Kind::TableChanged, "the table was rewritten"));
        }
        // What is not published cannot be told apart from what has not happened: the edge gives such a table another storage with
        // each snapshot, so that it begins again.
        let storage = match self.shared.lock().plan.unpublished {
            "" => table.storage << 32,
            _ => table.storage << 32 | exported.lsn.0,
        };
        let described = Arc::new(SnapshotTable {
            kind: SnapshotKind::Initial,
            catalog: wal::catalog(&TABLES[index]),
            lsn: exported.lsn,
            xid: TRANSACTION.xid,
            time_us: TRANSACTION.time_us,
            ordered: self.shared.lock().plan.is_ordered,
            begun: done.has_begun(oid) && !done.is_rewritten(oid, storage),
            first: *done == ChunksDone::default() && plan.tables.first() == Some(facts),
        });
        let chunks = done.left(oid, storage, table.blocks(), most);
        let mut parts = Vec::new();
        if let Some(Keys::Of { values, .. }) = plan.again.get(&oid)
            && (chunks.is_empty() || !done.is_rewritten(oid, storage))
        {
            let is_noted = |row: &Row| values.contains(&vec![row.id.to_string()]);
            parts.push((SnapshotStep::ReadAgain(oid), rows_of(table, |row, _| is_noted(row))));
        }
        for blocks in chunks {
            let lies_in = |_: &Row, block| blocks.first <= block && block < blocks.end;
            let step = SnapshotStep::Chunk {
                table: oid,
                storage,
                blocks,
            };
            parts.push((step, rows_of(table, lies_in)));
        }
        let last = parts.len();
        let part = |(index, (step, rows)): (usize, (SnapshotStep, Vec<Row>))| {
            (chunk(&described, &rows, step, index + 1 == last), rows, step)
        };
        let read = parts.into_iter().enumerate().map(part);
        Ok(read
            .map(|(chunk, rows, step)| (chunk, ChunkRead { index, step, rows }))
            .collect())
    }
}

fn rows_of(table: &super::database::Table, wanted: impl Fn(&Row, u32) -> bool) -> Vec<Row> {
    let mut rows: Vec<(u32, Row)> = table.rows.values().map(|(row, block)| (*block, *row)).collect();
    rows.sort_by_key(|(block, row)| (*block, row.id));
    rows.retain(|(block, row)| wanted(row, *block));
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Rows of a table, and what is complete with them.
fn chunk(table: &Arc<SnapshotTable>, rows: &[Row], step: SnapshotStep, completes: bool) -> FrameBatch {
    let (mut bytes, mut frames) = (Vec::new(), Vec::new());
    for row in rows {
        if frames.is_empty() {
            frames.push(Frame::Table(table.clone()));
        }
        let begin = bytes.len();
        bytes.extend(wal::whole(row).to_bytes());
        frames.push(Frame::Row {
            tuple: begin..bytes.len(),
        });
    }
    frames.push(Frame::Part { step, completes });
    FrameBatch::new(bytes.into(), frames)
}

fn ended(error: walferry_engine::source::PipelineEnded) -> Failure {
    Failure::retry(Kind::PipelineEnded, error.to_string())
}

impl State {
    /// What the connection reads next.
    fn read(&mut self) -> Result<Option<Vec<wal::Sent>>, Failure> {
        let connection = self.server.connection.as_mut().ok_or_else(unreachable)?;
        let decodes = self.server.decodes;
        connection.next(&self.database, decodes, &self.plan, &mut self.random)
    }

    /// A look at the publication.
    fn look(&self, known: Option<&Published>) -> PublicationLook {
        let (publication, lsn) = (self.database.publication, self.database.end);
        let members = TABLES
            .iter()
            .zip(publication.members)
            .filter(|(table, _)| table.is_captured);
        let tables = members
            .filter_map(|(table, member)| Some((table.oid.0, member.ok()?)))
            .collect();
        let published = publication.oid.map(|oid| {
            Arc::new(Published {
                lsn,
                oid,
                operations: "iudt".into(),
                tables,
                ..Published::default()
            })
        });
        let changed = |known: &Published, now: &Published| {
            known.oid != now.oid
                || known
                    .tables
                    .iter()
                    .any(|(table, member)| now.tables.get(table) != Some(member))
        };
        let gap = match (known, &published) {
            (Some(_), None) => {
                let mut missing = Failure::retry(MISSING, "there is no publication");
                missing.causes[0].hint = Some(CREATE.into());
                Some(missing)
            }
            (Some(known), Some(now)) if changed(known, now) => Some(Failure::retry(CHANGED, "it was changed")),
            _ => None,
        };
        PublicationLook {
            published,
            renamed: None,
            gap,
            doubt: None,
            lsn,
        }
    }

    /// Where chunks are read by several at a time, they come in any order.
    fn shuffle<T>(&mut self, jobs: &mut [T]) {
        if !self.plan.is_ordered {
            for last in (1..jobs.len()).rev() {
                jobs.swap(last, self.random.below(last as u64 + 1) as usize);
            }
        }
    }

    /// The status update of the stream.
    pub(crate) fn confirm(&mut self) {
        let Some(connection) = self.server.connection.as_ref().filter(|connection| !connection.is_dead) else {
            return;
        };
        let Some(stored) = *connection.confirmable.borrow() else {
            return;
        };
        let durable = self.disk.offset.as_ref().and_then(|offset| offset.connect.lsn_proc);
        if durable < Some(stored.confirmable().into()) {
            self.faults.push(format!(
                "{} is confirmed and {durable:?} is stored",
                stored.confirmable()
            ));
        }
        self.faults.extend(checks::confirmed(self, stored.confirmable()));
        if self
            .server
            .slot
            .is_some_and(|slot| slot.confirmed < stored.confirmable())
        {
            self.tell(|| format!("confirmed {:?}", stored.confirmable()));
        }
        if let Some(slot) = &mut self.server.slot {
            slot.confirmed = slot.confirmed.max(stored.confirmable());
        }
    }
}
