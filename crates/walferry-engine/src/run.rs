//! The life of a connector: what waits, and how the tasks are wired.
//!
//! ```text
//! reader    socket → frames; confirms what is stored (`Source::stream`)
//! pipeline  frames → encoded records → producer (a thread of its own)
//! producer  acknowledgements → progress (the Kafka client's threads)
//! keeper    progress → offset store → progress; on a timer
//! ```
//!
//! Each waits only for what it needs: keepalives are answered and SIGTERM is heard while Kafka is down, acknowledgements settle
//! while the catalog is looked up.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{oneshot, watch},
    time::{Instant, MissedTickBehavior, interval, sleep, timeout_at},
};
use tracing::{info, warn};
use walferry_pgoutput::Lsn;

use crate::{
    backoff::Backoff,
    batch::Batch,
    failure::{Disposition, Failure},
    pipeline::Pipeline,
    progress::{Progress, Stored},
    sink::{Acks, Sink, Sinks},
    source::{self, Chunk, ChunkReceiver, ChunkSender, Frame, Phase, Port, SnapshotPlan, Source, TableFilter},
    start::{self, Mismatch, Plan, SnapshotPolicy},
    status::{self, Status},
    store::{OffsetStore, StoredOffset},
};

/// What the engine itself has to know.
#[derive(Clone)]
pub struct Settings {
    /// Slot name, for what is said.
    pub slot: String,
    /// When existing rows are read.
    pub snapshot: SnapshotPolicy,
    /// Whether the stream follows (`initial_only`: no).
    pub stream: bool,
    /// `offset.mismatch.strategy`.
    pub mismatch: Mismatch,
    /// Which tables are captured.
    pub tables: TableFilter,
    /// Which tables a snapshot reads, of the captured ones.
    pub snapshot_tables: TableFilter,
    /// `offset.flush.interval.ms`.
    pub flush_interval: Duration,
    /// Bytes that frames and records under way may hold together.
    pub in_flight_bytes: usize,
    /// `errors.max.retries`: failures in a row without progress before the connector gives up; `None` for never.
    pub max_retries: Option<u32>,
    /// Whether stored positions are confirmed to the server (`lsn.flush.mode=manual`: no).
    pub confirm: bool,
    /// `slot.drop.on.stop`.
    pub drop_slot_on_stop: bool,
    /// `heartbeat.interval.ms`: how often time is told to the pipeline while the stream is quiet.
    pub heartbeat: Option<Duration>,
    /// `snapshot.delay.ms`.
    pub snapshot_delay: Duration,
    /// `streaming.delay.ms`.
    pub streaming_delay: Duration,
}

/// How long an orderly stop waits for Kafka.
const DRAIN: Duration = Duration::from_secs(10);
/// How long the last status update may take.
const CLOSE: Duration = Duration::from_secs(5);
/// How often the figures of what is under way are shown.
const GAUGES: Duration = Duration::from_millis(500);
/// Share of the memory in flight that frames may hold: a quarter, as a record is larger than its frame.
const FRAMES_SHARE: usize = 4;
/// Size at which a batch goes to the producer.
const BATCH_BYTES: usize = 64 * 1024;

/// A connector with its edges.
pub struct Connector<S, K, O, P> {
    /// What the engine has to know.
    pub settings: Settings,
    /// Postgres.
    pub source: S,
    /// Kafka.
    pub sinks: K,
    /// Offsets.
    pub store: O,
    /// Makes the pipeline of a session; it begins after this offset.
    pub pipelines: P,
    /// Where it tells what it does.
    pub status: Arc<Status>,
}

impl<S, K, O, P> Connector<S, K, O, P>
where
    S: Source,
    K: Sinks,
    K::Sink: 'static,
    O: OffsetStore,
    P: FnMut(&StoredOffset) -> Result<Pipeline, Failure>,
{
    /// Runs until `stop` says so (`Ok`) or until it fails for good.
    pub async fn run(&mut self, mut stop: watch::Receiver<bool>) -> Result<(), Failure> {
        let mut backoff = Backoff::default();
        let mut failures_in_a_row = 0;
        loop {
            let delivered_before = self.status.counters.delivered_lsn.load(Relaxed);
            let failure = match self.session(&mut stop).await {
                Ok(()) => {
                    self.status.set_phase(status::Phase::Stopped);
                    return Ok(());
                }
                Err(failure) => failure,
            };
            if self.status.counters.delivered_lsn.load(Relaxed) > delivered_before {
                backoff = Backoff::default();
                failures_in_a_row = 0;
            }
            failures_in_a_row += 1;
            let gives_up = self.settings.max_retries.is_some_and(|most| failures_in_a_row > most);
            if gives_up || matches!(failure.disposition, Disposition::Stop(_)) {
                self.status.set_phase(status::Phase::Failed(failure.clone()));
                return Err(failure);
            }
            self.status.counters.restarts.fetch_add(1, Relaxed);
            if self.pause(failure, &mut backoff, &mut stop).await {
                self.status.set_phase(status::Phase::Stopped);
                return Ok(());
            }
        }
    }

    /// Waits before another try; returns whether it was asked to stop meanwhile.
    async fn pause(&self, failure: Failure, backoff: &mut Backoff, stop: &mut watch::Receiver<bool>) -> bool {
        let pause = backoff.next();
        warn!(error.kind = failure.kind, error = %failure, pause_ms = pause.as_millis() as u64, "trying again after a pause");
        self.status.set_phase(status::Phase::Waiting(failure));
        tokio::select! {
            () = sleep(pause) => false,
            () = stopped(stop) => true,
        }
    }

    /// From a look at both ends until the stream, the producer or the operator ends it.
    async fn session(&mut self, stop: &mut watch::Receiver<bool>) -> Result<(), Failure> {
        self.status.set_phase(status::Phase::Starting);
        self.status.counters.snapshot_tables_left.store(0, Relaxed);
        let Prepared { offset, from, snapshot } = tokio::select! {
            prepared = self.prepare() => prepared?,
            () = stopped(stop) => return Ok(()),
        };
        let snapshot = match snapshot {
            Some(lsn) => Some(self.snapshot_plan(lsn).await?),
            None => None,
        };

        let Self {
            settings,
            source,
            sinks,
            store,
            pipelines,
            status,
        } = self;
        let frames_bytes = settings.in_flight_bytes / FRAMES_SHARE;
        let records_bytes = settings.in_flight_bytes - frames_bytes;
        status
            .counters
            .in_flight_limit_bytes
            .store(records_bytes as u64, Relaxed);
        let pipeline = pipelines(&offset)?;
        let progress = Arc::new(Progress::new(offset, records_bytes).with_latency(status.latency.clone()));
        let (chunks, receiver) = source::chunks(frames_bytes);
        let confirmable = watch::Sender::new(None);
        let phase = watch::Sender::new(Phase::Run);
        let server_end = watch::Sender::new(Lsn::default());
        let port = Port {
            chunks: chunks.clone(),
            confirmable: confirmable.subscribe(),
            phase: phase.subscribe(),
            server_end: server_end.clone(),
        };
        let mut pipeline_end = spawn_pipeline(pipeline, sinks, receiver, progress.clone(), status.clone())?;
        let mut reading = Box::pin(read(source, settings, status, port, from, snapshot));
        let keeper = Keeper {
            progress: &progress,
            status,
            confirmable: &confirmable,
            server_end: &server_end,
            confirm: settings.confirm,
        };

        let mut reads = true;
        let outcome = tokio::select! {
            ended = &mut reading => { reads = false; ended }
            ended = keeper.keep(store, settings.flush_interval) => ended,
            ended = &mut pipeline_end => ended.unwrap_or_else(|_| Err(panicked())),
            () = stopped(stop) => Ok(()),
        };

        // What Kafka has may be stored and confirmed whatever has ended the session. The reader goes on answering meanwhile.
        phase.send_replace(Phase::Drain);
        let drained = drained(&progress, &chunks, &mut pipeline_end);
        let deadline = Instant::now() + DRAIN;
        if reads {
            reads = tokio::select! {
                _ = &mut reading => false,
                _ = timeout_at(deadline, drained) => true,
            };
        } else {
            let _ = timeout_at(deadline, drained).await;
        }
        progress.stop();
        keeper.show();
        let saved = keeper.save(store).await;
        phase.send_replace(Phase::Close);
        if reads {
            let _ = timeout_at(Instant::now() + CLOSE, &mut reading).await;
        }
        drop(reading);
        status.counters.connected.store(0, Relaxed);
        outcome.and(saved)?;
        if settings.drop_slot_on_stop && *stop.borrow() {
            source.drop_slot().await?;
        }
        Ok(())
    }

    /// Looks at what is there and makes publication and slot.
    async fn prepare(&mut self) -> Result<Prepared, Failure> {
        let mut stored = self.store.load().await?;
        let found = self.source.inspect().await?;
        let s = &self.settings;
        let plan = start::decide(&s.slot, &found, stored.as_ref(), s.snapshot, s.mismatch)?;
        self.check_outbox().await?;
        let s = &self.settings;
        self.source.ensure_publication(s.tables.clone()).await?;
        let prepared = match plan {
            Plan::Resume { from, snapshot } => {
                info!(lsn.stored = %from, slot = s.slot, "going on from the stored offset");
                Prepared {
                    offset: stored.take().unwrap_or_default(),
                    from,
                    snapshot: snapshot.then_some(None),
                }
            }
            Plan::Adopt { snapshot, from } => {
                warn!(lsn.confirmed = %from, slot = s.slot, "the slot is there but no offset: going on from the slot's position");
                Prepared {
                    offset: StoredOffset::default(),
                    from,
                    snapshot: snapshot.then_some(None),
                }
            }
            Plan::Create { snapshot, replace } => {
                if replace {
                    self.source.drop_slot().await?;
                }
                let created = self.source.create_slot(snapshot).await?;
                info!(lsn.consistent = %created.consistent_point, slot = s.slot, "slot created");
                let from = created.consistent_point;
                Prepared {
                    offset: StoredOffset::default(),
                    from,
                    snapshot: snapshot.then_some(Some(from)),
                }
            }
        };
        let mut offset = prepared.offset;
        offset.system_id = Some(found.system_id);
        // Nothing before it will be asked for, so nothing before it is missing.
        offset.connect.lsn_proc = offset.connect.lsn_proc.max(Some(prepared.from.into()));
        Ok(Prepared { offset, ..prepared })
    }

    /// Refuses to start where a transform has no table to work on: at the first row it would be too late.
    async fn check_outbox(&mut self) -> Result<(), Failure> {
        let pipeline = (self.pipelines)(&StoredOffset::default())?;
        if pipeline.has_outbox() {
            pipeline.check_tables(&self.source.tables(self.settings.tables.clone()).await?)?;
        }
        Ok(())
    }

    /// Tables that a snapshot reads.
    async fn snapshot_plan(&mut self, lsn: Option<Lsn>) -> Result<SnapshotPlan, Failure> {
        let mut tables = self.source.tables(self.settings.tables.clone()).await?;
        tables.retain(|table| (self.settings.snapshot_tables)(&table.schema, &table.name));
        Ok(SnapshotPlan { tables, lsn })
    }
}

/// What a session begins with.
struct Prepared {
    offset: StoredOffset,
    /// Where the stream starts.
    from: Lsn,
    /// Whether rows are read first, and the position of the exported snapshot.
    snapshot: Option<Option<Lsn>>,
}

/// Existing rows where they are due, then the stream over as many connections as it takes. Ends with `Ok` only when the phase
/// says so.
async fn read<S: Source>(
    source: &mut S,
    settings: &Settings,
    status: &Status,
    mut port: Port,
    from: Lsn,
    snapshot: Option<SnapshotPlan>,
) -> Result<(), Failure> {
    let mut phase = port.phase.clone();
    if let Some(plan) = snapshot {
        status.set_phase(status::Phase::Snapshot);
        if pause(settings.snapshot_delay, &mut phase).await {
            return Ok(());
        }
        info!(tables = plan.tables.len(), "reading existing rows");
        status.counters.snapshot_tables.store(plan.tables.len() as u64, Relaxed);
        status
            .counters
            .snapshot_tables_left
            .store(plan.tables.len() as u64, Relaxed);
        tokio::select! {
            read = source.snapshot(plan, &port.chunks) => read?,
            _ = phase.wait_for(|p| *p >= Phase::Drain) => return Ok(()),
        }
        info!("all existing rows are read");
    }
    if !settings.stream {
        let _ = phase.wait_for(|p| *p >= Phase::Drain).await;
        return Ok(());
    }
    if pause(settings.streaming_delay, &mut phase).await {
        return Ok(());
    }
    let chunks = port.chunks.clone();
    let mut backoff = Backoff::default();
    loop {
        let from = port
            .confirmable
            .borrow()
            .map_or(from, |stored| from.max(stored.confirmable()));
        let connects = status.counters.connects.load(Relaxed);
        let ended = tokio::select! {
            ended = source.stream(from, &mut port) => ended,
            never = tick(&chunks, settings.heartbeat) => match never {},
        };
        let failure = match ended {
            Ok(()) => return Ok(()),
            Err(failure) if failure.disposition == Disposition::Retry => failure,
            Err(failure) => return Err(failure),
        };
        status.counters.connected.store(0, Relaxed);
        if status.counters.connects.load(Relaxed) > connects {
            backoff = Backoff::default();
        }
        let wait = backoff.next();
        warn!(error.kind = failure.kind, error = %failure, pause_ms = wait.as_millis() as u64, "connecting again after a pause");
        status.set_phase(status::Phase::Waiting(failure));
        if pause(wait, &mut phase).await {
            return Ok(());
        }
    }
}

/// Waits; returns whether the session is to end.
async fn pause(wait: Duration, phase: &mut watch::Receiver<Phase>) -> bool {
    tokio::select! {
        () = sleep(wait) => false,
        _ = phase.wait_for(|phase| *phase >= Phase::Drain) => true,
    }
}

/// Tells the pipeline at intervals that time has passed; for ever.
async fn tick(chunks: &ChunkSender, period: Option<Duration>) -> Infallible {
    let Some(period) = period else { return pending().await };
    let mut ticks = interval(period.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if chunks.send(Chunk::new(Bytes::new(), vec![Frame::Tick])).await.is_err() {
            // The pipeline's end is told elsewhere.
            return pending().await;
        }
    }
}

/// Stores what is delivered, and lets what is stored be confirmed.
struct Keeper<'a> {
    progress: &'a Progress,
    status: &'a Status,
    confirmable: &'a watch::Sender<Option<Stored>>,
    server_end: &'a watch::Sender<Lsn>,
    confirm: bool,
}

impl Keeper<'_> {
    /// On a timer, for ever: at most one durable write in a period.
    async fn keep(&self, store: &mut impl OffsetStore, period: Duration) -> Result<(), Failure> {
        let mut ticks = interval(period.max(Duration::from_millis(10)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = interval(GAUGES);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.save(store).await?,
                _ = looks.tick() => self.show(),
                () = self.progress.changed.notified() => {
                    if let Some(failure) = self.progress.failure() {
                        return Err(failure);
                    }
                }
            }
        }
    }

    /// Shows what is under way.
    fn show(&self) {
        let counters = &self.status.counters;
        let (records, bytes) = self.progress.in_flight();
        counters.in_flight_records.store(records as u64, Relaxed);
        counters.in_flight_bytes.store(bytes as u64, Relaxed);
        counters.server_lsn.store((*self.server_end.borrow()).into(), Relaxed);
        let waiting = self.progress.waiting();
        counters
            .unacknowledged_since_us
            .store(waiting.map_or(0, |w| w.unacknowledged_since_us), Relaxed);
        counters
            .oldest_commit_us
            .store(waiting.map_or(0, |w| w.oldest_commit_us), Relaxed);
    }

    /// Stores what is delivered, and lets it be confirmed.
    async fn save(&self, store: &mut impl OffsetStore) -> Result<(), Failure> {
        let counters = &self.status.counters;
        let Some(delivered) = self.progress.delivered() else {
            return Ok(());
        };
        let offset = &delivered.offset().connect;
        counters
            .delivered_lsn
            .fetch_max(offset.lsn_proc.unwrap_or_default(), Relaxed);
        counters
            .delivered_commit_us
            .fetch_max(offset.ts_usec.unwrap_or_default(), Relaxed);
        let stored = delivered.save(store).await?;
        counters.stored_lsn.fetch_max(stored.confirmable().into(), Relaxed);
        if self.confirm {
            self.confirmable.send_replace(Some(stored));
            counters.confirmed_lsn.fetch_max(stored.confirmable().into(), Relaxed);
        }
        Ok(())
    }
}

/// Everything read is delivered; or nothing will be any more.
async fn drained(progress: &Progress, chunks: &ChunkSender, pipeline_end: &mut oneshot::Receiver<Result<(), Failure>>) {
    let mut alive = true;
    while !progress.is_over() && (progress.in_flight().0 > 0 || (alive && !chunks.is_empty())) {
        alive = alive && matches!(pipeline_end.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        sleep(Duration::from_millis(2)).await;
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A closed channel is a stop too: nobody is left who could say it.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Starts the thread on which frames become records. What it sends back is how it ended: `Ok` when it was told to.
fn spawn_pipeline<K>(
    mut pipeline: Pipeline,
    sinks: &mut K,
    mut chunks: ChunkReceiver,
    progress: Arc<Progress>,
    status: Arc<Status>,
) -> Result<oneshot::Receiver<Result<(), Failure>>, Failure>
where
    K: Sinks,
    K::Sink: Send + 'static,
{
    let mut sink = sinks.open(Acks::new(progress.clone()))?;
    let (end, ended) = oneshot::channel();
    let run = move || {
        let mut batch = Batch::default();
        let mut work = || {
            while let Some(chunk) = chunks.blocking_recv() {
                if !pipe(&mut pipeline, chunk, &mut batch, &mut sink, &progress, &status)? {
                    break;
                }
            }
            Ok(())
        };
        let _ = end.send(work());
    };
    thread::Builder::new()
        .name("pipeline".into())
        .spawn(run)
        .map_err(|error| {
            Failure::retry(
                "no_thread",
                format!("the pipeline's thread could not be started: {error}"),
            )
        })?;
    Ok(ended)
}

/// One chunk through the pipeline. Returns whether there shall be another.
fn pipe(
    pipeline: &mut Pipeline,
    mut chunk: Chunk,
    batch: &mut Batch,
    sink: &mut impl Sink,
    progress: &Progress,
    status: &Status,
) -> Result<bool, Failure> {
    let now = status::now_us() * 1000;
    for frame in std::mem::take(&mut chunk.frames) {
        let result = pipeline.on_frame(frame, &chunk.bytes, now, batch);
        if result.is_err() || batch.len() >= BATCH_BYTES {
            // Also before a failure: the rows ahead of the one that fails are to arrive.
            if !progress.wait_for_room() {
                return Ok(false);
            }
            batch.deliver(sink, progress, status)?;
        }
        result?;
    }
    status
        .counters
        .received_bytes
        .fetch_add(chunk.bytes.len() as u64, Relaxed);
    pipeline.report(status);
    if !progress.wait_for_room() {
        return Ok(false);
    }
    batch.deliver(sink, progress, status)?;
    Ok(true)
}

fn panicked() -> Failure {
    Failure::new(
        Disposition::Replay,
        "panic",
        "the pipeline's thread has panicked",
        Some("this is a defect: please report it with the log's last lines".into()),
    )
}
