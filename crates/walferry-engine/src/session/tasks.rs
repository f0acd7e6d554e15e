//! A session: its tasks, and the channels between them.
//!
//! ```text
//! reader    socket → frames; confirms what is stored (`Source::stream`)
//! pipeline  frames → pipeline → producer (a thread of its own)
//! producer  acknowledgements → progress (the Kafka client's threads)
//! offsets   progress → offset store → progress; soon after delivery
//! ```
//!
//! Each task waits only for what it needs. While Kafka is down, keepalives are answered and SIGTERM is heard. While the
//! catalog is queried, acknowledgements are settled.

use std::{
    convert::Infallible,
    future::{Future, pending, poll_fn},
    mem,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Poll, ready},
    time::Duration,
};

use tokio::{
    sync::{
        mpsc::{UnboundedSender, unbounded_channel},
        watch,
    },
    time::{Instant, sleep, timeout},
};
use tracing::info;
use walferry_pgoutput::Lsn;

use crate::{
    account::{KeptRecords, OffsetStore, Progress, Stored, StoredOffset, StreamAccount},
    delivery::{
        contract::Unstored,
        offset_writer::{OffsetWriter, Settled, WriterObserver},
        progress::Uncommitted,
        sink::{Acks, Sinks},
    },
    failure::{Disposition, Exit, Failure},
    history::ConfirmGate,
    incremental::requests,
    observer::StreamObservers,
    path::pipeline::Pipeline,
    record_skip::RecordSkips,
    session::{
        channels::SessionChannels,
        connector::{ConnectorRun, ConnectorSettings, SessionCarryover, is_abandoned, stopped, until},
        deputy,
        known_gap::Gaps,
        new_slot::UnusedSlot,
        pipeline_thread::{PipelineThread, PipelineThreadParts},
        prepare::SessionStart,
        reader::{HeldRequests, SourceReader},
        retries::DeliveredReach,
        target::TargetState,
    },
    source::{
        self, Control as _, FrameReceiver, FrameSender, NumberedAsk, Source, SourceRequest, StreamPhase, StreamPort,
    },
    status::{self, Status},
};

/// How long the end of a session waits for Kafka.
const DRAIN: Duration = Duration::from_secs(10);
/// How long the last status update may take, and how long an orderly stop waits until the producer is closed.
const CLOSE: Duration = Duration::from_secs(5);

/// What ended a session, and whether the last offset could be stored.
struct SessionEnd {
    by: Result<(), Failure>,
    saved: Result<(), Failure>,
}

impl<S, K, O, P> ConnectorRun<S, K, O, P>
where
    S: Source,
    K: Sinks,
    O: OffsetStore,
    P: FnMut(&StoredOffset) -> Result<Pipeline, Failure>,
{
    /// Runs one session: looks at both ends, then reads and delivers until the stream, the producer or the operator
    /// ends it.
    pub(super) async fn session(
        &mut self,
        carried: &mut SessionCarryover,
        target: &mut watch::Receiver<TargetState>,
    ) -> Result<(), Failure> {
        self.status.stream.disconnect();
        self.status.set_phase(status::Phase::Starting);
        let prepared = tokio::select! {
            biased;
            prepared = self.prepare(carried) => prepared?,
            _ = until(target, |target| target != TargetState::Running) => return Ok(()),
        };
        if prepared.snapshot.is_some() {
            self.status.counters.snapshot_unknown();
        }
        let ended = self.read_and_deliver(prepared, carried, target).await?;
        self.status.stream.disconnect();
        if is_abandoned(target) {
            return Ok(());
        }
        let is_last = *target.borrow() == TargetState::Stopped;
        ended.judge(is_last)?;
        if is_last && self.settings.drop_slot_on_stop && !self.settings.deputy.is_deputy() {
            self.source.control().drop_slot().await?;
        }
        Ok(())
    }

    /// Starts the tasks, waits until one of them ends or the operator ends the session, and ends them in order.
    async fn read_and_deliver(
        &mut self,
        prepared: SessionStart,
        carried: &mut SessionCarryover,
        target: &mut watch::Receiver<TargetState>,
    ) -> Result<SessionEnd, Failure> {
        let (wires, receiver) = SessionChannels::new(&self.settings, &prepared.offset, &self.status);
        let skips = Arc::new(RecordSkips::new(prepared.offset.skips.clone()));
        let (requests, mut requested) = source::requests();
        let (asks, mut asked) = unbounded_channel();
        let spawned = self.spawn_pipeline(&prepared, skips.clone(), carried, &wires, receiver, (requests, asks));
        let mut pipeline = spawned.inspect_err(|_| carried.take(&mut requested))?;
        let (settings, status) = (&self.settings, &*self.status);
        let parts = self.source.parts();
        let signals = requests::feed(status, wires.frames.clone());
        let asked = (&mut asked, wires.progress.deliveries());
        let chunk_bytes = || settings.share().chunk;
        let chunks = requests::serve(
            parts.chunks,
            asked,
            wires.frames.clone(),
            settings.limits,
            chunk_bytes,
            status,
        );
        let reader: SourceReader<'_, S> = SourceReader {
            control: parts.control,
            stream: parts.stream,
            rows: parts.rows,
            settings,
            status,
            retries: &mut carried.retries,
            again: &mut carried.again,
            requests: &mut requested,
            port: wires.port(),
            wires: &wires,
            gap: prepared.gap,
            origin: prepared.origin,
            held: HeldRequests::after(prepared.blocking),
        };
        let mut reading = Task::new(reader.read(prepared.snapshot));
        let offset_writer = wires.offset_writer(
            settings,
            status,
            SessionObserver {
                new_slot: &carried.new_slot,
                reach: &carried.reach,
                gaps: &carried.gaps,
                skips,
                wires: &wires,
                observers: &settings.observers,
                status,
            },
        );
        // With exactly-once delivery, storing is part of delivering.
        let stores = AtomicBool::new(settings.boundary.is_some() || prepared.found_by_deputy.is_none());
        let mut keeping = Task::new(async {
            if !stores.load(Relaxed) {
                let owned = settings.deputy.ended();
                if !offset_writer.wait(owned, wires.over.subscribe()).await? {
                    return Ok(());
                }
                if self.store.load().await? != prepared.found_by_deputy {
                    return Err(deputy::another_offset());
                }
                stores.store(true, Relaxed);
                info!("this worker owns the connector that it has run as a deputy: offsets are stored from now on");
            }
            offset_writer
                .keep(&mut self.store, settings.flush_interval, wires.over.subscribe())
                .await
        });

        let ended = tokio::select! {
            // Poll causes before their consequences.
            biased;
            ended = pipeline.ended() => ended,
            ended = keeping.ended() => ended,
            ended = reading.ended() => ended,
            // A deputy reads no existing rows.
            never = async { settings.deputy.ended().await; chunks.await } => match never {},
            never = signals => match never {},
            never = wires.look_after(settings, status) => match never {},
            () = wires.told_to_end(target, status) => Ok(()),
        };
        let by = wires.progress.failure().map_or(ended, Err);
        let progress = Arc::clone(&wires.progress);

        let saved = match is_abandoned(target) {
            true => {
                drop(keeping);
                wires.abandon(&mut pipeline).await;
                Ok(())
            }
            false => {
                wires.drain(&mut reading, &mut keeping, status).await;
                keeping.finish().await;
                drop(keeping);
                offset_writer.show();
                match stores.load(Relaxed) {
                    true => offset_writer.save(&mut self.store).await,
                    false => Ok(()),
                }
            }
        };
        progress.close();
        wires.close(reading).await;
        // The pipeline's channel ends when its last sender is dropped.
        drop(wires);
        close_producer(&mut pipeline, target).await;
        carried.take(&mut requested);
        Ok(SessionEnd {
            by: by.map_err(|failure| worst(failure, progress.failure())),
            saved,
        })
    }

    /// Starts the pipeline's thread with its own producer.
    fn spawn_pipeline(
        &mut self,
        prepared: &SessionStart,
        skips: Arc<RecordSkips>,
        carried: &mut SessionCarryover,
        wires: &SessionChannels,
        frames: FrameReceiver,
        (requests, asks): (UnboundedSender<SourceRequest>, UnboundedSender<NumberedAsk>),
    ) -> Result<PipelineThread, Failure> {
        let mut pipeline = (self.pipelines)(&prepared.offset)?
            .with_gate(wires.gate.clone())
            .with_observers(self.settings.observers.clone())
            .with_asks(asks, requests.clone())
            .with_skips(skips)
            .with_outboxes(&prepared.outboxes)?;
        let goes_on = prepared.snapshot.as_ref().filter(|plan| plan.goes_on);
        if let Some(done) = goes_on.map(|plan| &plan.done).or(prepared.blocking.as_ref()) {
            pipeline = pipeline.with_toast_reread(mem::take(&mut carried.again), done.clone(), requests);
        }
        PipelineThread::spawn(PipelineThreadParts {
            pipeline,
            frames,
            sink: self.sinks.open(Acks::new(wires.progress.clone()))?,
            progress: wires.progress.clone(),
            status: self.status.clone(),
            boundary: self.settings.boundary,
            kept_records: KeptRecords::default(),
        })
    }
}

/// What the session has failed of. While it ended, the producer may have reported what only a person can correct.
fn worst(ended: Failure, reported: Option<Failure>) -> Failure {
    let is_stop = |failure: &Failure| matches!(failure.disposition, Disposition::Stop(_));
    match reported {
        Some(reported) if is_stop(&reported) && !is_stop(&ended) => reported,
        _ => ended,
    }
}

/// Waits until the session's producer is closed: two at once would mix the records of this session with those of the next. An orderly stop
/// waits for it only so long.
async fn close_producer(pipeline: &mut PipelineThread, target: &mut watch::Receiver<TargetState>) {
    tokio::select! {
        biased;
        () = pipeline.gone() => {}
        () = async { stopped(target).await; sleep(CLOSE).await } => {}
    }
}

impl SessionChannels {
    fn new(settings: &ConnectorSettings, offset: &StoredOffset, status: &Status) -> (Self, FrameReceiver) {
        let share = settings.share();
        let limit = &status.counters.in_flight_limit_bytes;
        limit.store(share.records as u64, Relaxed);
        let mut progress = Progress::new(offset.clone(), share.records).with_latency(status.latency.clone());
        if settings.boundary.is_some() {
            progress = progress.in_transactions();
        }
        let (frames, receiver) = source::frame_channel(share.frames);
        let wires = Self {
            progress: Arc::new(progress),
            frames,
            stored: watch::Sender::new(None),
            confirmable: watch::Sender::new(None),
            phase: watch::Sender::new(StreamPhase::Run),
            server_end: watch::Sender::new(Lsn::default()),
            published: watch::Sender::new(offset.publication.clone()),
            gate: ConfirmGate::default(),
            over: watch::Sender::new(false),
        };
        (wires, receiver)
    }

    /// Stores what is delivered, and lets it be confirmed.
    fn offset_writer<'a>(
        &'a self,
        settings: &ConnectorSettings,
        status: &'a Status,
        observer: SessionObserver<'a>,
    ) -> OffsetWriter<'a, SessionObserver<'a>> {
        OffsetWriter {
            progress: &self.progress,
            status,
            stored: &self.stored,
            confirmable: settings.confirm.then_some(&self.confirmable),
            observer,
            max_retries: settings.max_retries,
        }
    }

    /// Does, for ever, what is to be done from time to time.
    async fn look_after(&self, settings: &ConnectorSettings, status: &Status) -> Infallible {
        tokio::select! {
            never = share_anew(settings, &self.progress, status) => match never {},
            never = remind(settings, &self.progress, &self.frames) => match never {},
        }
    }

    /// Another process goes on. It sends again whatever is under way, and may be about to begin.
    async fn abandon(&self, pipeline: &mut PipelineThread) {
        self.end();
        self.progress.close();
        self.confirmable.send_replace(None);
        // The other process may read the slot as soon as the stream is closed. By then, this one must have nothing queued for Kafka.
        self.frames.wake();
        let _ = timeout(CLOSE, pipeline.gone()).await;
    }

    /// The source's ends of the channels.
    fn port(&self) -> StreamPort {
        StreamPort {
            frames: self.frames.clone(),
            confirmable: self.confirmable.subscribe(),
            phase: self.phase.subscribe(),
            server_end: self.server_end.clone(),
            until: None,
            is_news: true,
        }
    }

    /// Waits until the operator wants the session to end. While the connector is paused, nothing more is read. What was
    /// read is delivered, and the connection keeps answering, so that the slot stays in use.
    async fn told_to_end(&self, target: &mut watch::Receiver<TargetState>, status: &Status) {
        if until(target, |target| target != TargetState::Running).await == TargetState::Paused {
            self.phase.send_replace(StreamPhase::Drain);
            status.stream.pause();
            status.set_phase(status::Phase::Paused);
            until(target, |target| target != TargetState::Paused).await;
        }
    }

    /// Reads nothing more, and waits until what was read has been delivered. Whatever ended the session, the offset of
    /// what Kafka has may be stored and confirmed. Reader and offset writer continue meanwhile.
    async fn drain(&self, reading: &mut Task<impl Future>, keeping: &mut Task<impl Future>, status: &Status) {
        self.phase.send_replace(StreamPhase::Drain);
        let others = async {
            let _ = tokio::join!(reading.ended(), keeping.ended());
            pending::<()>().await;
        };
        tokio::select! {
            biased;
            waits = waits_in_vain(&self.progress, &self.frames, status) => tracing::warn!(
                code = waits.code(),
                reason = waits.to_string(),
                hint = waits.hint(),
                "a record still waits; it and everything after it will be sent at the next start"
            ),
            drain = timeout(DRAIN, drained(&self.progress, &self.frames)) => {
                if drain.is_err() {
                    let (records, _) = self.progress.in_flight();
                    tracing::warn!(
                        records,
                        "Kafka did not acknowledge these records within {} s; they will be sent again at the next start",
                        DRAIN.as_secs()
                    );
                }
            }
            () = others => {}
        }
        self.end();
    }

    /// Ends the stream, with a last status update.
    async fn close(&self, mut reading: Task<impl Future>) {
        self.phase.send_replace(StreamPhase::Close);
        let _ = timeout(CLOSE, reading.finish()).await;
    }

    /// From here on, nothing is delivered or stored.
    fn end(&self) {
        self.progress.stop();
        self.over.send_replace(true);
    }
}

/// Divides the memory in flight again when connectors come or go, for ever. The share of the frames changes only with
/// the next session.
async fn share_anew(settings: &ConnectorSettings, progress: &Progress, status: &Status) -> Infallible {
    let mut sharers = settings.sharers.clone();
    // If the channel is closed, nobody can change the number any more.
    while sharers.changed().await.is_ok() {
        let bytes = settings.share().records;
        status.counters.in_flight_limit_bytes.store(bytes as u64, Relaxed);
        progress.limit(bytes);
    }
    pending().await
}

/// Tells the pipeline, for ever, when it is time to commit: it looks for itself only when something is read.
async fn remind(settings: &ConnectorSettings, progress: &Progress, frames: &FrameSender) -> Infallible {
    let Some(boundary) = settings.boundary else {
        return pending().await;
    };
    let (mut last, mut records_before) = (Instant::now(), 0);
    loop {
        let look = match progress.uncommitted().is_large() {
            true => LOADED_REMINDER,
            false => boundary.longest(&Uncommitted::default()).clamp(LEAST_REMINDER, QUIET),
        };
        tokio::select! {
            biased;
            () = sleep(look) => {}
            () = progress.loaded.notified() => continue,
        }
        let uncommitted = progress.uncommitted();
        let is_quiet = uncommitted.records == records_before && frames.is_empty();
        records_before = uncommitted.records;
        let pause = match uncommitted.kind {
            Unstored::Nothing => continue,
            Unstored::Passed => QUIET,
            Unstored::Delivered if is_quiet && boundary.ends_when_quiet() => Duration::ZERO,
            Unstored::Delivered => boundary.longest(&uncommitted),
        };
        if last.elapsed() >= pause {
            last = Instant::now();
            progress.demand_commit();
            frames.wake();
        }
    }
}

/// Shortest time between two looks at what is to be committed.
const LEAST_REMINDER: Duration = Duration::from_millis(10);
/// Time between two looks while the connector is under load. When nothing has come between two of them, the transaction ends.
const LOADED_REMINDER: Duration = Duration::from_millis(20);
/// Time between two commits if nothing was sent meanwhile.
const QUIET: Duration = Duration::from_secs(1);

/// Tells the offset writer what is known of the server, and passes on what deliveries and stored offsets mean for the life of
/// the connector.
struct SessionObserver<'a> {
    new_slot: &'a UnusedSlot,
    reach: &'a DeliveredReach,
    gaps: &'a Gaps,
    /// The changes that a person wants passed over.
    skips: Arc<RecordSkips>,
    wires: &'a SessionChannels,
    observers: &'a StreamObservers,
    status: &'a Status,
}

impl WriterObserver for SessionObserver<'_> {
    type Account = StreamAccount;

    fn show(&self) {
        let server_end = *self.wires.server_end.borrow();
        self.status.counters.server_lsn.store(server_end.into(), Relaxed);
    }

    fn complete(&self, offset: &mut StoredOffset) {
        offset.publication.clone_from(&self.wires.published.borrow());
        self.observers.before_store(offset);
        if let Some(history) = &mut offset.history {
            history.furthest = history.furthest.max(*self.wires.server_end.borrow());
        }
        self.skips.leave(offset);
    }

    fn has_wishes(&self) -> bool {
        self.skips.are_left()
    }

    fn delivered(&self, offset: &StoredOffset, chunks: u64) {
        let (processed, counters) = (offset.connect.lsn_proc.unwrap_or_default(), &self.status.counters);
        self.reach.deliver(processed, chunks);
        self.status.parts_delivered(chunks);
        counters.delivered_lsn.fetch_max(processed, Relaxed);
        counters
            .delivered_commit_us
            .fetch_max(offset.connect.ts_usec.unwrap_or_default(), Relaxed);
    }

    fn stored(&self, stored: Stored, tells_of_source: bool) -> Settled {
        let position = stored.confirmable();
        self.status.counters.stored_lsn.fetch_max(position.into(), Relaxed);
        self.observers.after_store();
        if tells_of_source {
            self.new_slot.is_in_use();
        }
        Settled {
            question: self.gaps.forget(position, self.status),
            wishes: self.skips.stored(),
        }
    }

    fn committed(&self) {
        self.wires.frames.wake();
    }

    fn is_proven(&self, connection: u64) -> bool {
        self.wires.gate.is_open(connection)
    }

    fn confirmed(&self, position: Lsn) {
        self.status.stream.confirm(position);
    }
}

impl SessionEnd {
    /// The session's result for the connector. If this `is_last` session, nobody tries again: the next process sends
    /// again what was delivered but not stored, so a failed write is a failure.
    fn judge(self, is_last: bool) -> Result<(), Failure> {
        let Self { by, saved } = self;
        if !is_last {
            return by.and(saved);
        }
        saved.map_err(|failure| Failure {
            disposition: Disposition::Stop(Exit::State),
            ..failure
        })?;
        by
    }
}

/// A part of a session. Once it has ended, `ended` never returns again.
struct Task<F>(Option<Pin<Box<F>>>);

impl<F: Future> Task<F> {
    fn new(work: F) -> Self {
        Self(Some(Box::pin(work)))
    }

    async fn ended(&mut self) -> F::Output {
        poll_fn(|context| {
            let Some(work) = &mut self.0 else { return Poll::Pending };
            let output = ready!(work.as_mut().poll(context));
            self.0 = None;
            Poll::Ready(output)
        })
        .await
    }

    /// Waits for its end, unless it has ended before.
    async fn finish(&mut self) {
        if self.0.is_some() {
            let _ = self.ended().await;
        }
    }
}

/// Waits until everything that was read is delivered and, in transactions, committed, or until waiting is over.
async fn drained(progress: &Progress, frames: &FrameSender) {
    while !progress.is_over() && (progress.in_flight().0 > 0 || !frames.is_empty() || is_uncommitted(progress, frames))
    {
        // A notification may be an old one, so both are looked at again. A batch's records are under way before the
        // batch is dropped.
        tokio::select! {
            () = progress.emptied.notified() => {}
            () = frames.freed() => {}
        }
    }
}

/// Waits until all that can be delivered has been, and the next record waits for something else than Kafka, such as a schema registry that
/// does not answer. Returns what is in its way: what comes later has to wait as well, so a longer drain would deliver nothing.
async fn waits_in_vain(progress: &Progress, frames: &FrameSender, status: &Status) -> Failure {
    loop {
        if progress.in_flight().0 == 0
            && !is_uncommitted(progress, frames)
            && let Some(awaited) = status.awaited()
        {
            return awaited.failure;
        }
        sleep(AWAITED_LOOK).await;
    }
}

/// How often the drain checks what a record waits for.
const AWAITED_LOOK: Duration = Duration::from_millis(100);

/// Whether something is still to be committed. The pipeline is told to do so.
fn is_uncommitted(progress: &Progress, frames: &FrameSender) -> bool {
    let awaits = progress.awaits_commit();
    if awaits {
        progress.demand_commit();
        frames.wake();
    }
    awaits
}
