//! A connector: what it has to know, its edges, and one session after another.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    time::sleep,
};
use walferry_snapshot::Again;

use crate::{
    delivery::{
        sink::Sinks,
        store::{OffsetStore, StoredOffset},
    },
    failure::Failure,
    life::{
        gap::Gaps,
        new_slot::NewSlot,
        retries::{Reach, Retries},
        start::{Mismatch, SnapshotPolicy},
        target::Target,
        windows::Limits,
    },
    path::pipeline::Pipeline,
    source::{Request, Source, TableFilter},
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
    /// Bytes that frames and records under way may hold together, where the connector is alone.
    pub in_flight_bytes: usize,
    /// How many connectors share these bytes. It changes when connectors come and go.
    pub sharers: watch::Receiver<usize>,
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
    /// What an incremental snapshot must not exceed.
    pub limits: Limits,
}

impl Settings {
    /// The connector's share of the memory in flight now.
    pub(super) fn share(&self) -> Share {
        let bytes = self.in_flight_bytes / (*self.sharers.borrow()).max(1);
        let frames = bytes / FRAMES_SHARE;
        let chunk = match self.limits.reads_chunks {
            true => bytes / CHUNK_SHARE,
            false => 0,
        };
        Share {
            frames,
            chunk,
            records: bytes - frames - chunk,
        }
    }
}

/// How the memory in flight is divided, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) frames: usize,
    /// For the rows of a chunk of an incremental snapshot.
    pub(super) chunk: usize,
    pub(super) records: usize,
}

/// Share of the memory in flight that the chunk of an incremental snapshot may hold.
const CHUNK_SHARE: usize = 8;

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
    /// Runs until `target` says that it shall stop (`Ok`), or until it fails for good.
    pub async fn run(&mut self, mut target: watch::Receiver<Target>) -> Result<(), Failure> {
        let reach = Reach::default();
        let mut carried = Carried {
            retries: Retries::new(self.settings.max_retries, reach.clone()),
            reach,
            again: Again::default(),
            new_slot: NewSlot::default(),
            gaps: self.remember_gap().await,
        };
        let mut ended = self.sessions(&mut carried, &mut target).await;
        // What another process may work with is not for this one to remove.
        if !is_abandoned(&target)
            && let Err(failure) = ended
        {
            ended = Err(carried
                .new_slot
                .leave_none(&self.settings.slot, self.source.control(), failure)
                .await);
        }
        self.status.set_phase(match &ended {
            Ok(()) => status::Phase::Stopped,
            Err(failure) => status::Phase::Failed(failure.clone()),
        });
        ended
    }

    /// Waits while the connector is paused and has no session that keeps its connection. Returns what is wanted then.
    async fn wait_while_paused(&self, target: &mut watch::Receiver<Target>) -> Target {
        if is_abandoned(target) {
            return Target::Stopped;
        }
        if *target.borrow() == Target::Paused {
            self.status.set_phase(status::Phase::Paused);
        }
        until(target, |target| target != Target::Paused).await
    }

    /// One session after another, until one ends in order or fails for good.
    async fn sessions(&mut self, carried: &mut Carried, target: &mut watch::Receiver<Target>) -> Result<(), Failure> {
        loop {
            if self.wait_while_paused(target).await == Target::Stopped {
                return Ok(());
            }
            let Err(failure) = self.session(carried, target).await else {
                // In order: to stop, or because it was paused and is to go on.
                continue;
            };
            let waits = async {
                if failure.is_gap() {
                    return match self.wait_at_gap(failure, &carried.gaps).await {
                        Ok(()) => Ok(()),
                        Err(failure) => carried.retries.after(failure, &self.status).map(drop),
                    };
                }
                let pause = carried.retries.after(failure, &self.status)?;
                self.status.counters.restarts.fetch_add(1, Relaxed);
                sleep(pause).await;
                Ok(())
            };
            tokio::select! {
                biased;
                waited = waits => waited?,
                () = stopped(target) => return Ok(()),
            }
        }
    }
}

/// What one session leaves to the next.
pub(super) struct Carried {
    pub(super) retries: Retries,
    /// How far the connector is.
    pub(super) reach: Reach,
    /// Rows that an interrupted snapshot has to read again.
    pub(super) again: Again,
    pub(super) new_slot: NewSlot,
    pub(super) gaps: Gaps,
}

impl Carried {
    /// Takes what the pipeline has asked for and nobody has taken yet.
    pub(super) fn take(&mut self, requests: &mut UnboundedReceiver<Request>) {
        while let Ok(request) = requests.try_recv() {
            match request {
                Request::ReadAgain(again) => self.again = again,
                // The offset keeps it for the next session.
                Request::Block(_) | Request::ReadWhole(_) => {}
            }
        }
    }
}

/// Whether the run is abandoned: nobody is left who could say what it shall do, because another process may work for the connector now.
pub(super) fn is_abandoned(target: &watch::Receiver<Target>) -> bool {
    target.has_changed().is_err()
}

/// Waits until the connector is to stop.
pub(super) async fn stopped(target: &mut watch::Receiver<Target>) {
    until(target, |target| target == Target::Stopped).await;
}

/// Waits until the target is a certain one. A closed channel is a stop too: nobody is left who could say it.
pub(super) async fn until(target: &mut watch::Receiver<Target>, is_it: impl Fn(Target) -> bool) -> Target {
    match target.wait_for(|target| is_it(*target)).await {
        Ok(target) => *target,
        Err(_) => Target::Stopped,
    }
}
