//! Stores what is delivered, on a timer, and lets what is stored be confirmed.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use walferry_pgoutput::Lsn;

use crate::{
    failure::Failure,
    history::Gate,
    progress::{Progress, Stored},
    status::Status,
    store::OffsetStore,
};

/// How often the figures of what is under way are shown.
const GAUGES: Duration = Duration::from_millis(500);

pub(crate) struct Keeper<'a> {
    pub(crate) progress: &'a Progress,
    pub(crate) status: &'a Status,
    /// What is stored: where a new connection goes on.
    pub(crate) stored: &'a watch::Sender<Option<Stored>>,
    /// What the server is told; `None` where somebody else moves the slot.
    pub(crate) confirmable: Option<&'a watch::Sender<Option<Stored>>>,
    pub(crate) server_end: &'a watch::Sender<Lsn>,
    /// Closed while it is not known whether the server is the one that was read before.
    pub(crate) gate: &'a Gate,
}

impl Keeper<'_> {
    /// At most one durable write in a period, until `over` says so or until a record is not delivered. A write is not
    /// interrupted: two at once could leave the older offset.
    pub(crate) async fn keep(
        &self,
        store: &mut impl OffsetStore,
        period: Duration,
        mut over: watch::Receiver<bool>,
    ) -> Result<(), Failure> {
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
                _ = over.wait_for(|over| *over) => return Ok(()),
            }
        }
    }

    /// Shows what is under way.
    pub(crate) fn show(&self) {
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
    pub(crate) async fn save(&self, store: &mut impl OffsetStore) -> Result<(), Failure> {
        let counters = &self.status.counters;
        let Some(delivered) = self.progress.delivered() else {
            self.confirm();
            return Ok(());
        };
        let delivered = delivered.heard(*self.server_end.borrow());
        counters.delivered_chunks.fetch_add(self.progress.chunks(), Relaxed);
        let offset = &delivered.offset().connect;
        counters
            .delivered_lsn
            .fetch_max(offset.lsn_proc.unwrap_or_default(), Relaxed);
        counters
            .delivered_commit_us
            .fetch_max(offset.ts_usec.unwrap_or_default(), Relaxed);
        let stored = delivered
            .save(store)
            .await
            .inspect_err(|_| self.progress.not_stored())?;
        counters.stored_lsn.fetch_max(stored.confirmable().into(), Relaxed);
        self.stored.send_replace(Some(stored));
        self.confirm();
        Ok(())
    }

    /// Lets what is stored be confirmed, unless the server may be another one than it was stored for.
    fn confirm(&self) {
        let stored = *self.stored.borrow();
        if let (Some(confirmable), Some(stored), true) = (self.confirmable, stored, self.gate.is_open()) {
            let is_news = confirmable.send_if_modified(|last| last.replace(stored) != Some(stored));
            if is_news {
                let confirmed = &self.status.counters.confirmed_lsn;
                confirmed.fetch_max(stored.confirmable().into(), Relaxed);
            }
        }
    }
}
