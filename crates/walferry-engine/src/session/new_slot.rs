//! A slot that this process has created and that no stored offset refers to yet.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::timeout;
use tracing::{info, warn};

use walferry_diagnosis::{Diagnosis, Kind};
use walferry_pgoutput::Lsn;

use crate::{failure::Failure, source::Control};

/// Where such a slot was created, if there is one. After a connector has failed for good, nothing reads the slot, and the server keeps WAL for it
/// without limit. So the slot is dropped, unless the stream has brought changes or another process has adopted the slot.
#[derive(Debug, Default)]
pub(crate) struct UnusedSlot(Mutex<Option<Lsn>>);

/// How long to wait for the server to drop it.
const DROP: Duration = Duration::from_secs(20);

impl UnusedSlot {
    fn with<T>(&self, change: impl FnOnce(&mut Option<Lsn>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A slot has been created at this position.
    pub(crate) fn is_made(&self, at: Lsn) {
        self.with(|made| *made = Some(at));
    }

    /// An offset that depends on the slot is stored. The next start continues from it.
    pub(crate) fn is_in_use(&self) {
        self.with(|made| *made = None);
    }

    /// The stream has brought changes: a new slot would be behind them.
    pub(crate) fn stays_for_changes(&self, slot: &str) {
        if self.with(Option::take).is_some() {
            warn!(
                slot,
                hint = "the next start sends them. If there is to be none, drop the slot, because the server keeps WAL for it",
                "the replication slot that this start created stays, because it has changes that were not delivered"
            );
        }
    }

    /// Drops the slot, if there is one that nobody else uses. If that fails, the returned failure says what is left to do.
    pub(crate) async fn leave_none(&self, slot: &str, control: &mut impl Control, mut failure: Failure) -> Failure {
        let Some(made) = self.with(Option::take) else {
            return failure;
        };
        let dropped = async {
            let is_untouched = control.is_untouched(made).await?;
            if is_untouched {
                control.drop_slot().await?;
            }
            Ok::<_, Failure>(is_untouched)
        };
        let why = match timeout(DROP, dropped).await {
            Ok(Ok(true)) => {
                info!(
                    slot,
                    "dropped the replication slot that this start created, because no offset was stored for it"
                );
                return failure;
            }
            Ok(Ok(false)) => {
                warn!(
                    slot,
                    "the replication slot that this start created stays, because another process uses it"
                );
                return failure;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", DROP.as_secs()),
        };
        let what = format!("replication slot {slot}, which this start created, could not be dropped: {why}");
        let mend = format!(
            "if you do not start the connector again, run `SELECT pg_drop_replication_slot('{slot}')`: until then the server keeps WAL \
             for it"
        );
        failure
            .causes
            .push(Diagnosis::error(Kind::SlotStillThere, what).with_hint(mend));
        failure
    }
}
