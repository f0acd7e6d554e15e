//! Stores the offset of delivered records soon after their delivery, and lets stored positions be confirmed.

use std::{
    future::{Future, pending},
    pin::pin,
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, MissedTickBehavior, sleep_until},
};
use tracing::{debug, info, warn};

use crate::{
    backoff::Backoff,
    delivery::{
        contract::{OffsetAccount, Unstored},
        progress::{Progress, Stored},
        store::Store,
    },
    failure::{Disposition, Failure},
    status::Status,
};

/// How often the gauges of records under way are updated.
const GAUGES: Duration = Duration::from_millis(500);

/// What the offset writer asks about the source, and whom it tells. The session implements it.
pub(crate) trait WriterObserver {
    /// The source's account.
    type Account: OffsetAccount;

    /// Updates the gauges of the source.
    fn show(&self);
    /// Adds to an offset what is known beside the stream. This must not move it.
    fn complete(&self, offset: &mut OffsetOf<Self>);
    /// This offset has been delivered, and `chunks` more chunks of a snapshot.
    fn delivered(&self, offset: &OffsetOf<Self>, chunks: u64);
    /// An offset is durable. `tells_of_source` is false for an offset that says only that a snapshot has begun. Returns
    /// what is settled with it, so that it must be removed from the store.
    fn stored(&self, stored: StoredOf<Self>, tells_of_source: bool) -> Settled;
    /// A transaction was committed. The pipeline has to be woken: it may have kept records back.
    fn committed(&self);
    /// Whether a wish of a person may be settled with the next offset.
    fn has_wishes(&self) -> bool;
    /// Whether the server of this connection is known to be the one that was read before. Nothing is confirmed earlier.
    fn is_proven(&self, connection: u64) -> bool;
    /// The source may be told of this position.
    fn confirmed(&self, position: PositionOf<Self>);
}

/// What is settled with an offset that was stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Settled {
    /// The question to a person.
    pub(crate) question: bool,
    /// Wishes of a person.
    pub(crate) wishes: bool,
}

type OffsetOf<O> = <<O as WriterObserver>::Account as OffsetAccount>::Offset;
type PositionOf<O> = <<O as WriterObserver>::Account as OffsetAccount>::Position;
type StoredOf<O> = Stored<PositionOf<O>>;

pub(crate) struct OffsetWriter<'a, O: WriterObserver> {
    pub(crate) progress: &'a Progress<O::Account>,
    pub(crate) status: &'a Status,
    /// The last stored offset. A new connection continues from it.
    pub(crate) stored: &'a watch::Sender<Option<StoredOf<O>>>,
    /// The position that the server is told. `None` if somebody else moves the slot.
    pub(crate) confirmable: Option<&'a watch::Sender<Option<StoredOf<O>>>>,
    pub(crate) observer: O,
    /// `errors.max.retries`.
    pub(crate) max_retries: Option<u32>,
}

/// On a slow disk, writes take at most one part in `SHARE` of the time.
const SHARE: u32 = 3;
/// Pause between two writes if no record was delivered since the first.
const QUIET: Duration = Duration::from_secs(1);
/// Minimum of `offset.flush.interval.ms`; smaller values count as this.
const LEAST: Duration = Duration::from_millis(10);

/// Decides when the offset is written.
struct Pace {
    /// `offset.flush.interval.ms`: the longest pause between two writes.
    interval: Duration,
    /// Shortest pause between two writes. With the pause of the file store, an offset is stored within 50 ms of
    /// delivery if a write takes 10 ms.
    least: Duration,
    /// When the last write ended. `None` before the first write, which is due at once.
    ended: Option<Instant>,
    /// How long the last two writes took, latest first.
    took: [Duration; 2],
}

impl Pace {
    fn new(interval: Duration, least: Duration) -> Self {
        Self {
            interval: interval.max(LEAST),
            least,
            ended: None,
            took: [Duration::ZERO; 2],
        }
    }

    /// When the next write is due. `None` if there is nothing to store.
    fn due(&self, unstored: Unstored) -> Option<Instant> {
        let pause = match unstored {
            Unstored::Nothing => return None,
            Unstored::Passed => QUIET,
            Unstored::Delivered => self.least.max(self.usual() * (SHARE - 1)),
        };
        let now = Instant::now();
        Some(self.ended.map_or(now, |ended| ended + pause.min(self.interval)))
    }

    /// Notes that the write begun at `begun` has ended.
    fn wrote(&mut self, begun: Instant) {
        let now = Instant::now();
        (self.ended, self.took) = (Some(now), [now - begun, self.took[0]]);
    }

    /// How long a write usually takes: the shorter of the last two. One write that waited for other writers to the disk
    /// must not delay the next.
    fn usual(&self) -> Duration {
        self.took[0].min(self.took[1])
    }
}

impl<O: WriterObserver> OffsetWriter<'_, O> {
    /// Writes soon after each delivery, one write at a time, until `over` is true or a record fails. A write is never
    /// interrupted: two at once could leave the older offset in the store. Idles while there is nothing to store.
    pub(crate) async fn keep(
        &self,
        store: &mut impl Store<OffsetOf<O>>,
        interval: Duration,
        mut over: watch::Receiver<bool>,
    ) -> Result<(), Failure> {
        let mut pace = Pace::new(interval, store.least_pause());
        let mut looks = tokio::time::interval(GAUGES);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut tries = SaveRetries {
            backoff: Backoff::new(self.max_retries),
            not_before: Instant::now(),
        };
        loop {
            let due = match self.progress.is_at_commit_point() {
                // The next transaction waits for this write.
                true => Some(tries.not_before),
                false => pace.due(self.progress.unstored()).map(|due| due.max(tries.not_before)),
            };
            tokio::select! {
                // In this order, so that a run of the simulation can be repeated.
                biased;
                _ = over.wait_for(|over| *over) => return Ok(()),
                () = until(due) => {
                    let begun = Instant::now();
                    self.try_to_save(store, &mut tries).await?;
                    pace.wrote(begun);
                }
                _ = looks.tick() => {
                    self.show();
                    // The server may have been recognised since the last write.
                    self.confirm();
                }
                () = self.progress.changed.notified() => {
                    if let Some(failure) = self.progress.failure() {
                        return Err(failure);
                    }
                }
            }
        }
    }

    /// Stores nothing, but shows how far delivery is, until it may store. Returns whether it may: false once `over` is true.
    pub(crate) async fn wait(
        &self,
        may_store: impl Future<Output = ()>,
        mut over: watch::Receiver<bool>,
    ) -> Result<bool, Failure> {
        let mut may_store = pin!(may_store);
        let mut looks = tokio::time::interval(GAUGES);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                _ = over.wait_for(|over| *over) => return Ok(false),
                () = &mut may_store => return Ok(true),
                _ = looks.tick() => self.show(),
                () = self.progress.changed.notified() => {
                    if let Some(failure) = self.progress.failure() {
                        return Err(failure);
                    }
                }
            }
        }
    }

    /// Updates the gauges.
    pub(crate) fn show(&self) {
        let counters = &self.status.counters;
        let (records, bytes) = self.progress.in_flight();
        counters.in_flight_records.store(records as u64, Relaxed);
        counters.in_flight_bytes.store(bytes as u64, Relaxed);
        self.observer.show();
        let waiting = self.progress.waiting();
        counters
            .unacknowledged_since_us
            .store(waiting.map_or(0, |w| w.unacknowledged_since_us), Relaxed);
        counters
            .oldest_commit_us
            .store(waiting.map_or(0, |w| w.oldest_commit_us), Relaxed);
    }

    /// Stores the offset of delivered records when a write is due. A failed write is tried again, since a full disk may
    /// have room later. Delivery continues meanwhile, and the next write that succeeds stores all of it.
    async fn try_to_save(&self, store: &mut impl Store<OffsetOf<O>>, tries: &mut SaveRetries) -> Result<(), Failure> {
        let Err(failure) = self.save(store).await else {
            tries.backoff.reset();
            return Ok(());
        };
        if failure.disposition == Disposition::Replay {
            // The transaction is lost, and with it records that were delivered.
            self.progress.commit_failed(failure.clone());
            return Err(failure);
        }
        let after = tries.backoff.after(failure);
        let (pause, failure) = after.inspect_err(|failure| self.progress.commit_failed(failure.clone()))?;
        tries.not_before = Instant::now() + pause;
        warn!(
            code = failure.code(),
            error.kind = failure.kind.as_str(),
            error = %failure,
            hint = failure.hint(),
            pause_ms = pause.as_millis() as u64,
            "the offset could not be stored; retrying after a pause while delivery continues"
        );
        Ok(())
    }

    /// Stores the offset of delivered records and lets it be confirmed.
    pub(crate) async fn save(&self, store: &mut impl Store<OffsetOf<O>>) -> Result<(), Failure> {
        let Some(mut delivered) = self.progress.delivered() else {
            self.confirm();
            return Ok(());
        };
        delivered.complete(|offset| self.observer.complete(offset));
        self.observer.delivered(delivered.offset(), self.progress.chunks());
        let tells_of_source = !O::Account::is_beginning(delivered.offset());
        let signals = delivered.signals();
        let wished = self.observer.has_wishes().then(|| delivered.offset().clone());
        let stored = delivered.save(store).await.inspect_err(|failure| {
            self.progress.not_stored();
            if failure.disposition == Disposition::Retry {
                self.status.set_store(Some(failure.clone()));
            }
        })?;
        self.status.signals.store(signals);
        if self.status.set_store(None).is_some() {
            info!(lsn.stored = %stored.confirmable(), "the offset is stored again");
        }
        let settled = self.observer.stored(stored, tells_of_source);
        if settled.question
            && let Err(failure) = store.remove_question().await
        {
            warn!(error = %failure, "the file with the gap cannot be removed");
        }
        if settled.wishes
            && let Some(offset) = wished
            && let Err(failure) = store.remove_wishes(&offset).await
        {
            // The next start finds that the change is behind the offset, and removes it.
            warn!(error = %failure, "a file that `walferry offsets skip-record` has written cannot be removed");
        }
        self.stored.send_replace(Some(stored));
        if let Some(committed) = self.progress.committed() {
            self.observer.committed();
            debug!(
                records = committed.records,
                drained_us = committed.drained.as_micros() as u64,
                committed_us = (committed.took - committed.drained).as_micros() as u64,
                kept_back = committed.next_records,
                "a transaction is committed"
            );
        }
        self.confirm();
        Ok(())
    }

    /// Lets the stored position be confirmed, unless the server may be another one than the offset was stored for.
    fn confirm(&self) {
        let stored = *self.stored.borrow();
        let (server_position, connection) = self.progress.server_position();
        let is_proven = self.observer.is_proven(connection);
        if let (Some(confirmable), Some(stored), true) = (self.confirmable, stored, is_proven) {
            // The offset may come from another copy of the server that was further ahead.
            let stored = stored.on_server(server_position);
            let is_news = confirmable.send_if_modified(|last| last.replace(stored) != Some(stored));
            if is_news {
                self.observer.confirmed(stored.confirmable());
            }
        }
    }
}

/// Retries of failed writes.
struct SaveRetries {
    backoff: Backoff,
    not_before: Instant,
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, sync::Arc};

    use tokio::time::sleep;

    use super::*;
    use crate::delivery::{
        ledger::LedgerEntry,
        numbers::{Numbers, record},
    };

    type Progress = super::Progress<Numbers>;

    /// An observer that ignores everything.
    struct Nobody;

    impl WriterObserver for Nobody {
        type Account = Numbers;

        fn show(&self) {}
        fn complete(&self, _: &mut u64) {}
        fn delivered(&self, _: &u64, _: u64) {}
        fn stored(&self, _: Stored<u64>, _: bool) -> Settled {
            Settled::default()
        }
        fn committed(&self) {}
        fn has_wishes(&self) -> bool {
            false
        }
        fn is_proven(&self, _: u64) -> bool {
            true
        }
        fn confirmed(&self, _: u64) {}
    }

    /// A slow disk. It notes when it got which record.
    struct Disk {
        takes: Duration,
        writes: Vec<(Instant, u64)>,
    }

    impl Store<u64> for Disk {
        async fn write(&mut self, offset: &u64) -> Result<(), Failure> {
            sleep(self.takes).await;
            self.writes.push((Instant::now(), *offset));
            Ok(())
        }

        fn least_pause(&self) -> Duration {
            Duration::from_millis(20)
        }

        async fn remove_question(&mut self) -> Result<(), Failure> {
            Ok(())
        }

        async fn remove_wishes(&mut self, _offset: &u64) -> Result<(), Failure> {
            Ok(())
        }
    }

    /// Runs an offset writer while `happens` runs, and returns the writes.
    fn written<F: Future<Output = ()>>(
        takes_ms: u64,
        interval_ms: u64,
        happens: impl FnOnce(Arc<Progress>) -> F,
    ) -> Vec<(Instant, u64)> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let progress = Arc::new(Progress::new(0, usize::MAX));
            let (status, over) = (Status::new("c", "s"), watch::Sender::new(false));
            let mut disk = Disk {
                takes: Duration::from_millis(takes_ms),
                writes: Vec::new(),
            };
            let offset_writer = OffsetWriter {
                progress: &progress,
                status: &status,
                stored: &watch::Sender::new(None),
                confirmable: None,
                observer: Nobody,
                max_retries: None,
            };
            let events = async {
                happens(progress.clone()).await;
                sleep(Duration::from_secs(5)).await;
                over.send_replace(true);
            };
            let interval = Duration::from_millis(interval_ms);
            let (ended, ()) = tokio::join!(offset_writer.keep(&mut disk, interval, over.subscribe()), events);
            ended.expect("nothing fails");
            disk.writes
        })
    }

    /// Delivers records with the positions 1 to `count`, one per millisecond, and notes when.
    async fn deliver(progress: &Progress, count: u64, times: &mut Vec<Instant>) {
        for n in 1..=count {
            progress.settle(progress.push([record(n, 1)]));
            times.push(Instant::now());
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// The longest time from a record's delivery to the write that includes it, in milliseconds.
    fn longest_ms(times: &[Instant], writes: &[(Instant, u64)]) -> u128 {
        let lag = |(n, at): (u64, &Instant)| {
            let written = writes
                .iter()
                .find(|(_, position)| *position >= n)
                .expect("it is stored");
            written.0.duration_since(*at).as_millis()
        };
        (1..).zip(times).map(lag).max().unwrap_or_default()
    }

    #[test]
    fn the_file_follows_delivery_within_50_ms_while_the_disk_keeps_up() {
        for (takes, interval, at_most) in [(0, 1000, 22), (10, 1000, 50), (10, 60_000, 50), (0, 10, 12)] {
            let mut times = Vec::new();
            let writes = written(takes, interval, async |progress| {
                deliver(&progress, 2000, &mut times).await
            });
            let longest = longest_ms(&times, &writes);
            assert!(
                longest <= at_most,
                "{longest} ms on a disk that takes {takes} ms, every {interval} ms"
            );
        }
    }

    #[test]
    fn a_slow_disk_is_left_time_for_others() {
        let mut times = Vec::new();
        let writes = written(200, 60_000, async |progress| deliver(&progress, 6000, &mut times).await);
        assert!((9..=12).contains(&writes.len()), "{} writes", writes.len());
        assert!(longest_ms(&times, &writes) <= 810);
    }

    #[test]
    fn nothing_is_written_while_nothing_changes_and_little_while_nothing_is_delivered() {
        let writes = written(1, 1000, async |_| sleep(Duration::from_secs(60)).await);
        assert_eq!(writes, []);

        let passes = async |progress: Arc<Progress>| {
            for n in 1..=1000 {
                progress.push([LedgerEntry::Mark(n)]);
                sleep(Duration::from_millis(10)).await;
            }
        };
        let writes = written(1, 60_000, passes);
        assert!((10..=12).contains(&writes.len()), "{} writes", writes.len());
        let writes = written(1, 100, passes);
        assert!(
            writes.len() > 90,
            "{} writes: an interval that is set shortens the time",
            writes.len()
        );
    }
}
