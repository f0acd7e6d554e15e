//! The life of a connector: what waits, and how the tasks are wired.
//!
//! ```text
//! reader    socket → frames; confirms what is stored (`Source::stream`)
//! worker    frames → pipeline → producer (a thread of its own)
//! producer  acknowledgements → progress (the Kafka client's threads)
//! keeper    progress → offset store → progress; soon after delivery
//! ```
//!
//! Each waits only for what it needs: keepalives are answered and SIGTERM is heard while Kafka is down, acknowledgements settle
//! while the catalog is looked up.

use std::{
    future::{Future, pending, poll_fn},
    pin::Pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Poll, ready},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{sleep, timeout},
};
use walferry_pgoutput::Lsn;

use crate::{
    delivery::{
        keeper::Keeper,
        progress::Progress,
        sink::{Acks, Sinks},
        store::{OffsetStore, StoredOffset},
    },
    failure::{Disposition, Exit, Failure},
    history::Gate,
    life::{
        new_slot::NewSlot,
        prepare::Prepared,
        reader::Reader,
        retries::Retries,
        start::{Mismatch, SnapshotPolicy},
        worker::{Work, Worker},
    },
    path::{pipeline::Pipeline, toast_reread},
    source::{self, ChunkSender, Phase, Port, Source, TableFilter},
    status::{self, Status},
};

/// What the engine itself has to know.
#[derive(Clone)]
pub struct Settings {
    /// Slot name, for what is said.
    pub slot: String,
    /// When existing rows are read.
    pub snapshot: SnapshotPolicy,
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

/// How long the end of a session waits for Kafka.
const DRAIN: Duration = Duration::from_secs(10);
/// How long the last status update may take, and how long an orderly stop waits for the producer to be closed.
const CLOSE: Duration = Duration::from_secs(5);
/// How often the end of a session looks whether everything is delivered.
const LOOK: Duration = Duration::from_millis(2);
/// Share of the memory in flight that frames may hold: a quarter, as a record is larger than its frame.
const FRAMES_SHARE: usize = 4;

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
    O: OffsetStore,
    P: FnMut(&StoredOffset) -> Result<Pipeline, Failure>,
{
    /// Runs until `stop` says so (`Ok`) or until it fails for good.
    pub async fn run(&mut self, mut stop: watch::Receiver<bool>) -> Result<(), Failure> {
        let new_slot = NewSlot::default();
        let mut ended = self.sessions(&new_slot, &mut stop).await;
        if let Err(failure) = ended {
            ended = Err(new_slot
                .leave_none(&self.settings.slot, &mut self.source, failure)
                .await);
        }
        self.status.set_phase(match &ended {
            Ok(()) => status::Phase::Stopped,
            Err(failure) => status::Phase::Failed(failure.clone()),
        });
        ended
    }

    async fn sessions(&mut self, new_slot: &NewSlot, stop: &mut watch::Receiver<bool>) -> Result<(), Failure> {
        let mut retries = Retries::new(self.settings.max_retries);
        let again = toast_reread::Shared::default();
        let mut gaps = self.remember_gap().await;
        loop {
            let Err(failure) = self.session(&mut retries, &again, new_slot, stop).await else {
                return Ok(());
            };
            if failure.is_gap() {
                tokio::select! {
                    waited = self.wait_at_gap(failure, &mut gaps) => match waited {
                        Ok(()) => continue,
                        Err(failure) => drop(retries.after(failure, &self.status)?),
                    },
                    () = stopped(stop) => return Ok(()),
                }
                continue;
            }
            let pause = retries.after(failure, &self.status)?;
            self.status.counters.restarts.fetch_add(1, Relaxed);
            tokio::select! {
                biased;
                () = sleep(pause) => {}
                () = stopped(stop) => return Ok(()),
            }
        }
    }

    /// From a look at both ends until the stream, the producer or the operator ends it.
    async fn session(
        &mut self,
        retries: &mut Retries,
        again: &toast_reread::Shared,
        new_slot: &NewSlot,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), Failure> {
        self.status.set_phase(status::Phase::Starting);
        if self.status.counters.snapshot_tables_left.swap(0, Relaxed) > 0 {
            // Of the snapshot that was interrupted, nothing is known until it goes on.
            self.status.counters.snapshot_tables.store(0, Relaxed);
        }
        let prepared = tokio::select! {
            biased;
            prepared = self.prepare(again, new_slot) => prepared?,
            () = stopped(stop) => return Ok(()),
        };
        let Prepared {
            offset,
            origin,
            snapshot,
            gap,
        } = prepared;
        let rest = snapshot
            .as_ref()
            .filter(|plan| plan.goes_on)
            .map(|plan| plan.done.clone());

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
        let gate = Gate::default();
        let mut pipeline = pipelines(&offset)?.with_gate(gate.clone());
        if let Some(done) = rest {
            pipeline = pipeline.before_the_rest(again.clone(), done);
        }
        let published = watch::Sender::new(offset.publication.clone());
        let progress = Arc::new(Progress::new(offset, records_bytes).with_latency(status.latency.clone()));
        let (chunks, receiver) = source::chunks(frames_bytes);
        let stored = watch::Sender::new(None);
        let confirmable = watch::Sender::new(None);
        let phase = watch::Sender::new(Phase::Run);
        let server_end = watch::Sender::new(Lsn::default());
        let over = watch::Sender::new(false);

        let mut worker = Worker::spawn(Work {
            pipeline,
            chunks: receiver,
            sink: sinks.open(Acks::new(progress.clone()))?,
            progress: progress.clone(),
            status: status.clone(),
        })?;
        let reader = Reader {
            source,
            settings,
            status,
            retries,
            port: Port {
                chunks: chunks.clone(),
                confirmable: confirmable.subscribe(),
                phase: phase.subscribe(),
                server_end: server_end.clone(),
                until: None,
                published: Some(published.clone()),
            },
            gap,
            again: again.clone(),
            stored: stored.subscribe(),
            confirmable: confirmable.clone(),
            gate: gate.clone(),
            origin,
        };
        let mut reading = Task::new(reader.read(snapshot));
        let keeper = Keeper {
            progress: &progress,
            status,
            stored: &stored,
            confirmable: settings.confirm.then_some(&confirmable),
            server_end: &server_end,
            gate: &gate,
            published: &published,
            new_slot,
            max_retries: settings.max_retries,
        };
        let mut keeping = Task::new(keeper.keep(store, settings.flush_interval, over.subscribe()));

        let ended = tokio::select! {
            // Causes before their consequences.
            biased;
            ended = worker.ended() => ended,
            ended = keeping.ended() => ended,
            ended = reading.ended() => ended,
            () = stopped(stop) => Ok(()),
        };
        let ended = progress.failure().map_or(ended, Err);

        // What Kafka has may be stored and confirmed whatever has ended the session. Reader and keeper go on meanwhile.
        phase.send_replace(Phase::Drain);
        let others = async {
            let _ = tokio::join!(reading.ended(), keeping.ended());
            pending::<()>().await;
        };
        tokio::select! {
            biased;
            _ = timeout(DRAIN, drained(&progress, &chunks)) => {}
            () = others => {}
        }
        progress.stop();
        over.send_replace(true);
        if keeping.is_running() {
            let _ = keeping.ended().await;
        }
        drop(keeping);
        keeper.show();
        let saved = keeper.save(store).await;
        phase.send_replace(Phase::Close);
        if reading.is_running() {
            let _ = timeout(CLOSE, reading.ended()).await;
        }
        drop(reading);
        drop(chunks);
        // Two producers at once would mix the records of one session with those of the next.
        tokio::select! {
            biased;
            () = worker.gone() => {}
            () = async { stopped(stop).await; sleep(CLOSE).await } => {}
        }
        status.counters.connected.store(0, Relaxed);
        if *stop.borrow() {
            // There is no later try: what is delivered and not stored is sent again by the next process.
            saved.map_err(|failure| Failure {
                disposition: Disposition::Stop(Exit::State),
                ..failure
            })?;
            ended?;
        } else {
            ended.and(saved)?;
        }
        if settings.drop_slot_on_stop && *stop.borrow() {
            source.drop_slot().await?;
        }
        Ok(())
    }
}

/// A part of a session: it may be asked for its end again after it has ended, and then does not answer.
struct Task<F>(Option<Pin<Box<F>>>);

impl<F: Future> Task<F> {
    fn new(work: F) -> Self {
        Self(Some(Box::pin(work)))
    }

    const fn is_running(&self) -> bool {
        self.0.is_some()
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
}

/// Everything read is delivered; or nothing will be any more.
async fn drained(progress: &Progress, chunks: &ChunkSender) {
    while !progress.is_over() && (progress.in_flight().0 > 0 || !chunks.is_empty()) {
        sleep(LOOK).await;
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A closed channel is a stop too: nobody is left who could say it.
    let _ = stop.wait_for(|stop| *stop).await;
}
