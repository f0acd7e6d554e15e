//! A slot that this process has created and that no stored offset refers to yet.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::timeout;
use tracing::info;

use walferry_diagnosis::{Diagnosis, Kind};

use crate::{failure::Failure, source::Control};

/// Whether there is such a slot. If the connector fails for good, nobody would ever read the slot, and the server would
/// keep its WAL for ever. So the slot is dropped.
#[derive(Debug, Default)]
pub(crate) struct UnusedSlot(AtomicBool);

/// How long to wait for the server to drop it.
const DROP: Duration = Duration::from_secs(20);

impl UnusedSlot {
    /// A slot has been created.
    pub(crate) fn is_made(&self) {
        self.0.store(true, Relaxed);
    }

    /// An offset that depends on the slot is stored. The next start continues from it.
    pub(crate) fn is_in_use(&self) {
        self.0.store(false, Relaxed);
    }

    /// Drops the slot, if there is one. If that fails, the returned failure says what is left to do.
    pub(crate) async fn leave_none(&self, slot: &str, control: &mut impl Control, mut failure: Failure) -> Failure {
        if !self.0.swap(false, Relaxed) {
            return failure;
        }
        let why = match timeout(DROP, control.drop_slot()).await {
            Ok(Ok(())) => {
                info!(
                    slot,
                    "dropped the replication slot that this start created, because no offset was stored for it"
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
