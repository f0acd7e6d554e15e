//! A connector: its settings, its edges, and one session after another.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    time::{Instant, sleep},
};
use tracing::{debug, info};

use crate::{
    account::{OffsetStore, StoredOffset},
    delivery::{progress::Uncommitted, sink::Sinks},
    failure::{Disposition, Failure},
    incremental::IncrementalLimits,
    observer::StreamObservers,
    path::pipeline::Pipeline,
    record_skip::SkipCommand,
    session::{
        deputy::DeputyRole,
        known_gap::Gaps,
        new_slot::UnusedSlot,
        retries::{DeliveredReach, Retries},
        start::{HistoryMismatch, SnapshotPolicy},
        target::TargetState,
    },
    snapshot::RowsToReread,
    source::{Source, SourceRequest, TableFilter},
    status::{self, Status},
};

/// The settings that the engine itself needs.
#[derive(Clone)]
pub struct ConnectorSettings {
    /// Slot name, for messages.
    pub slot: String,
    /// When existing rows are read (`snapshot.mode`).
    pub snapshot: SnapshotPolicy,
    /// `offset.mismatch.strategy`.
    pub mismatch: HistoryMismatch,
    /// Selects the captured tables.
    pub tables: TableFilter,
    /// Selects, among the captured tables, those that a snapshot reads.
    pub snapshot_tables: TableFilter,
    /// `offset.flush.interval.ms`.
    pub flush_interval: Duration,
    /// Bytes that frames and records under way may hold together if this is the only connector.
    pub in_flight_bytes: usize,
    /// Number of connectors that share these bytes. It changes when connectors come and go.
    pub sharers: watch::Receiver<usize>,
    /// `errors.max.retries`: how many times in a row the connector tries again without progress before it gives up.
    /// `None`: it never gives up.
    pub max_retries: Option<u32>,
    /// How long another Walferry that is alive may read the slot before the connector gives up. `None`: it waits, since something decides which
    /// process runs the connector, or will.
    pub other_reader: Option<Duration>,
    /// Whether stored positions are confirmed to the server (not with `lsn.flush.mode=manual`).
    pub confirm: bool,
    /// `slot.drop.on.stop`.
    pub drop_slot_on_stop: bool,
    /// `heartbeat.interval.ms`: how often the pipeline gets a tick, which it needs while the stream is quiet.
    pub heartbeat: Option<Duration>,
    /// `snapshot.delay.ms`.
    pub snapshot_delay: Duration,
    /// `streaming.delay.ms`.
    pub streaming_delay: Duration,
    /// Limits of incremental snapshots.
    pub limits: IncrementalLimits,
    /// How a person has one change passed over, for the hints of records that cannot be sent.
    pub skip_command: Option<SkipCommand>,
    /// With exactly-once delivery, where transactions end. The sink and the store must share the transactions.
    pub boundary: Option<CommitTiming>,
    /// Work beside the stream that depends on how far the stream has come.
    pub observers: StreamObservers,
    /// Whether the run is one of a deputy. See `deputy.rs`.
    pub deputy: DeputyRole,
}

/// When the transaction of records and their offset is committed (`transaction.boundary`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitTiming {
    /// As soon as nothing more waits to be sent. While there is always more, after this time, or after a longer one if commits are slow.
    WhenIdle(Duration),
    /// After this time.
    Every(Duration),
}

impl CommitTiming {
    /// How long records wait for the commit of their transaction at most.
    ///
    /// While a transaction is committed, Kafka gets nothing. So under load, the connector sends for [`SENDING`] times as long as that takes. A small
    /// transaction is not made to wait: there is no load.
    pub(crate) fn longest(self, uncommitted: &Uncommitted) -> Duration {
        match self {
            Self::WhenIdle(longest) if uncommitted.is_large() => {
                longest.max((uncommitted.commit_takes * SENDING).min(LONGEST_SENDING))
            }
            Self::WhenIdle(longest) | Self::Every(longest) => longest,
        }
    }

    /// Whether the transaction ends as soon as nothing waits to be sent. A large one does not: under load, more comes within a moment.
    pub(crate) const fn ends_when_idle(self, uncommitted: &Uncommitted) -> bool {
        matches!(self, Self::WhenIdle(_)) && !uncommitted.is_large()
    }

    /// Whether a transaction also ends when nothing more has come for a moment.
    pub(crate) const fn ends_when_quiet(self) -> bool {
        matches!(self, Self::WhenIdle(_))
    }
}

/// Under load, the connector sends for so many times as long as it takes from the end of a transaction until it is committed.
const SENDING: u32 = 12;
/// But not for longer than this.
const LONGEST_SENDING: Duration = Duration::from_secs(1);

impl ConnectorSettings {
    /// The connector's present share of the memory in flight.
    pub(super) fn share(&self) -> MemoryShare {
        let bytes = self.in_flight_bytes / (*self.sharers.borrow()).max(1);
        let frames = bytes / FRAMES_SHARE;
        let chunk = match self.limits.reads_chunks {
            true => bytes / CHUNK_SHARE,
            false => 0,
        };
        MemoryShare {
            frames,
            chunk,
            records: bytes - frames - chunk,
        }
    }
}

/// How the connector's memory in flight is divided, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryShare {
    pub(super) frames: usize,
    /// Rows of a chunk of an incremental snapshot.
    pub(super) chunk: usize,
    pub(super) records: usize,
}

/// A chunk of an incremental snapshot may hold one part in `CHUNK_SHARE` of the memory in flight.
const CHUNK_SHARE: usize = 8;

/// Frames may hold one part in `FRAMES_SHARE` of the memory in flight: a quarter, since a record is larger than its
/// frame.
const FRAMES_SHARE: usize = 4;

/// A connector with its edges.
pub struct ConnectorRun<S, K, O, P> {
    /// The engine's settings.
    pub settings: ConnectorSettings,
    /// Postgres.
    pub source: S,
    /// Kafka.
    pub sinks: K,
    /// Offsets.
    pub store: O,
    /// Builds the pipeline of a session. The pipeline begins after this offset.
    pub pipelines: P,
    /// Where the connector reports what it does.
    pub status: Arc<Status>,
}

impl<S, K, O, P> ConnectorRun<S, K, O, P>
where
    S: Source,
    K: Sinks,
    O: OffsetStore,
    P: FnMut(&StoredOffset) -> Result<Pipeline, Failure>,
{
    /// Runs until `target` asks it to stop (`Ok`), or until it fails for good.
    ///
    /// # Errors
    /// The connector has failed for good.
    pub async fn run(&mut self, mut target: watch::Receiver<TargetState>) -> Result<(), Failure> {
        let reach = DeliveredReach::default();
        let mut carried = SessionCarryover {
            retries: Retries::new(self.settings.max_retries, reach.clone()),
            reach,
            again: RowsToReread::default(),
            new_slot: UnusedSlot::default(),
            gaps: self.remember_gap().await,
            other_reader: OtherReader::default(),
        };
        let changes = |status: &Status| status.counters.changes.load(Relaxed);
        let changes_before = changes(&self.status);
        let Err(failure) = self.sessions(&mut carried, &mut target).await else {
            return Ok(());
        };
        let has_changes = failure.change.is_some() || changes(&self.status) > changes_before;
        let (new_slot, slot) = (&carried.new_slot, &self.settings.slot);
        let failure = if is_abandoned(&target) {
            // Another process may be using the slot.
            failure
        } else if has_changes {
            new_slot.stays_for_changes(slot);
            failure
        } else {
            new_slot.leave_none(slot, self.source.control(), failure).await
        };
        Err(self.with_way_past(failure))
    }

    /// Adds to the failure of a record how the change that it comes from is passed over.
    fn with_way_past(&self, failure: Failure) -> Failure {
        match self.settings.skip_command.as_ref().zip(failure.change.as_deref()) {
            Some((command, change)) => {
                let remedy = command.remedy(change);
                failure.with_remedy(&remedy)
            }
            None => failure,
        }
    }

    /// Waits while the connector is paused and no session keeps its connection. Returns the new target.
    async fn wait_while_paused(&self, target: &mut watch::Receiver<TargetState>) -> TargetState {
        if *target.borrow() == TargetState::Paused {
            self.status.set_phase(status::Phase::Paused);
        }
        until(target, |target| target != TargetState::Paused).await
    }

    /// A deputy's session has failed. It tries again soon, for its time is short, or waits for the ownership if only an owner may begin. Nobody
    /// is alarmed: whoever owns the connector next begins anew, and says what is wrong.
    async fn wait_as_deputy(&self, failure: &Failure, target: &mut watch::Receiver<TargetState>) {
        if matches!(failure.disposition, Disposition::Stop(_)) {
            info!(
                error = failure.for_log(),
                "this worker is a deputy for the connector, and waits until it owns the connector"
            );
        } else {
            debug!(error = failure.for_log(), "a deputy's session has ended; trying again");
        }
        self.status.set_phase(status::Phase::Starting);
        tokio::select! {
            biased;
            () = self.settings.deputy.ended() => {}
            _ = until(target, |target| target != TargetState::Running) => {}
            () = sleep(DEPUTY_PAUSE), if !matches!(failure.disposition, Disposition::Stop(_)) => {}
        }
    }

    /// Runs one session after another, until the target is to stop or a session fails for good.
    async fn sessions(
        &mut self,
        carried: &mut SessionCarryover,
        target: &mut watch::Receiver<TargetState>,
    ) -> Result<(), Failure> {
        loop {
            if self.wait_while_paused(target).await.ends_run() {
                return Ok(());
            }
            let was_deputy = self.settings.deputy.is_deputy();
            let Err(failure) = self.session(carried, target).await else {
                // The session ended in order: the connector is to stop, or it was paused and is to continue.
                continue;
            };
            // Also if its process has become the owner meanwhile: what a deputy refuses to do is no failure of the owner, which begins anew.
            if was_deputy {
                self.wait_as_deputy(&failure, target).await;
                continue;
            }
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
                // Somebody who resumes it wants no pause.
                _ = until(target, |target| target != TargetState::Running) => {}
            }
        }
    }
}

/// The pause between two tries of a deputy.
const DEPUTY_PAUSE: Duration = Duration::from_millis(200);

/// State that one session passes on to the next.
pub(super) struct SessionCarryover {
    pub(super) retries: Retries,
    /// How far the connector has got.
    pub(super) reach: DeliveredReach,
    /// Rows that an interrupted snapshot has to read again.
    pub(super) again: RowsToReread,
    pub(super) new_slot: UnusedSlot,
    pub(super) gaps: Gaps,
    pub(super) other_reader: OtherReader,
}

/// Another process that has the slot, over several attempts.
#[derive(Debug, Default)]
pub(super) struct OtherReader {
    /// Its walsender, what the server had heard of it at first, and when that was.
    seen: Option<(i32, String, Instant)>,
}

impl OtherReader {
    /// Whether it has been alive for so long. A reader of which the server hears nothing may be one whose machine is gone.
    pub(super) fn is_alive_after(&mut self, pid: i32, heard: &str, patience: Duration) -> bool {
        match &self.seen {
            Some((seen, before, since)) if *seen == pid => before != heard && since.elapsed() >= patience,
            _ => {
                self.seen = Some((pid, heard.to_owned(), Instant::now()));
                false
            }
        }
    }
}

impl SessionCarryover {
    /// Takes requests of the pipeline that nobody has taken yet.
    pub(super) fn take(&mut self, requests: &mut UnboundedReceiver<SourceRequest>) {
        while let Ok(request) = requests.try_recv() {
            match request {
                SourceRequest::ReadAgain(again) => self.again = again,
                // The offset keeps it for the next session.
                SourceRequest::Block(_) | SourceRequest::ReadWhole(_) => {}
            }
        }
    }
}

/// Whether another process may be running the connector now.
pub(super) fn is_abandoned(target: &watch::Receiver<TargetState>) -> bool {
    *target.borrow() == TargetState::Abandoned
}

/// Waits until the connector is to stop.
pub(super) async fn stopped(target: &mut watch::Receiver<TargetState>) {
    until(target, TargetState::ends_run).await;
}

/// Waits until the target is a wanted one. Whoever drops the sender has stopped the connector.
pub(super) async fn until(
    target: &mut watch::Receiver<TargetState>,
    is_it: impl Fn(TargetState) -> bool,
) -> TargetState {
    match target.wait_for(|target| is_it(*target)).await {
        Ok(target) => *target,
        Err(_) => TargetState::Stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::contract::Unstored;

    fn uncommitted(records: u64, commit_takes_ms: u64) -> Uncommitted {
        Uncommitted {
            kind: Unstored::Delivered,
            records,
            is_due: false,
            commit_takes: Duration::from_millis(commit_takes_ms),
        }
    }

    #[test]
    fn a_large_transaction_lasts_many_times_as_long_as_its_commit_and_a_small_one_ends() {
        let timing = CommitTiming::WhenIdle(Duration::from_millis(100));
        for (records, commit_takes_ms, longest_ms, ends_when_idle) in [
            (1, 50, 100, true),
            (1_999, 50, 100, true),
            (2_000, 1, 100, false),
            (2_000, 20, 240, false),
            (50_000, 50, 600, false),
            (50_000, 5_000, 1_000, false),
        ] {
            let uncommitted = uncommitted(records, commit_takes_ms);
            let outcome = (timing.longest(&uncommitted), timing.ends_when_idle(&uncommitted));
            assert_eq!(
                outcome,
                (Duration::from_millis(longest_ms), ends_when_idle),
                "{uncommitted:?}"
            );
        }
    }

    #[test]
    fn an_interval_that_is_set_is_kept_under_load() {
        let timing = CommitTiming::Every(Duration::from_millis(300));
        let uncommitted = uncommitted(50_000, 200);
        assert_eq!(timing.longest(&uncommitted), Duration::from_millis(300));
        assert!(!timing.ends_when_idle(&uncommitted) && !timing.ends_when_quiet());
    }
}
