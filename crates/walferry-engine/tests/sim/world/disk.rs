//! Where the simulated connector stores its offset.

use walferry_engine::{
    Disposition, Failure,
    gap::{Gap, GapChoice},
    store::{OffsetStore, StoredOffset},
};

use super::{Shared, checks, gates::Who};

/// What a write fails with while the disk is full.
pub(crate) const FULL: walferry_diagnosis::Kind = walferry_diagnosis::Kind::DiskFull;

/// What is there.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) offset: Option<StoredOffset>,
    /// What is being written.
    pub(crate) writing: Option<StoredOffset>,
    pub(crate) is_full: bool,
    /// What was told of a gap, and what a person has chosen.
    pub(crate) gap: Option<Gap>,
    pub(crate) choice: Option<GapChoice>,
    /// How often an offset was written.
    pub(crate) writes: u64,
    /// Positions may fall once: what they were of is gone.
    pub(crate) may_fall: bool,
}

/// The store of one process.
pub(crate) struct Store(pub(crate) Shared);

impl OffsetStore for Store {
    async fn load(&mut self) -> Result<Option<StoredOffset>, Failure> {
        Ok(self.0.lock().disk.offset.clone())
    }

    async fn write(&mut self, offset: &StoredOffset) -> Result<(), Failure> {
        self.0.lock().disk.writing = Some(offset.clone());
        self.0.turn(Who::Store).await;
        let mut state = self.0.lock();
        let offset = state.disk.writing.take().expect("one write at a time");
        if state.disk.is_full && state.plan.exactly_once {
            return Err(Failure::new(
                Disposition::Replay,
                FULL,
                "the transaction is aborted",
                None,
            ));
        }
        if state.disk.is_full {
            return Err(Failure::retry(FULL, "no space left on device"));
        }
        state.store(offset);
        Ok(())
    }

    async fn tell_gap(&mut self, gap: Option<&Gap>) -> Result<(), Failure> {
        let state = &mut *self.0.lock();
        state.tell(|| format!("told of the gap {gap:?}"));
        state.disk.gap = gap.cloned();
        if gap.is_none() {
            state.disk.choice = None;
        }
        Ok(())
    }

    async fn told_gap(&mut self) -> Result<Option<Gap>, Failure> {
        Ok(self.0.lock().disk.gap.clone())
    }

    async fn settle_choice(&mut self) -> Result<(), Failure> {
        let state = &mut *self.0.lock();
        if state.disk.choice.take().is_some() {
            state.skips.pop();
        }
        Ok(())
    }

    async fn choice(&mut self) -> Result<Option<GapChoice>, Failure> {
        Ok(self.0.lock().disk.choice.clone())
    }
}

impl super::State {
    /// The offset is durable.
    pub(crate) fn store(&mut self, offset: StoredOffset) {
        let faults = checks::offset(self, &offset);
        self.faults.extend(faults);
        if self.plan.exactly_once
            && let Err(fault) = self.kafka.commit()
        {
            self.faults.push(fault);
        }
        self.tell(|| {
            format!(
                "stored {:?} {:?} {:?}",
                offset.connect.lsn_proc, offset.position, offset.snapshot
            )
        });
        self.disk.writes += 1;
        let members = offset.publication.iter().flat_map(|known| known.tables.values());
        self.seen_members.extend(members);
        if checks::falls(self, &offset) {
            self.disk.may_fall = false;
        }
        self.disk.offset = Some(offset);
        self.has_read_beside |= self.is_reading_beside();
    }
}
