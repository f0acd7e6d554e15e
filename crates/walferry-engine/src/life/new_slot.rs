//! A slot that this process has made and that no stored offset tells of yet.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::timeout;
use tracing::info;

use walferry_diagnosis::{Diagnosis, Kind};

use crate::{failure::Failure, source::Control};

/// Whether there is one. When the connector fails for good, nobody would ever read it, and the server would keep WAL for it for
/// ever: so it is dropped.
#[derive(Debug, Default)]
pub(crate) struct NewSlot(AtomicBool);

/// How long the end waits for the server.
const DROP: Duration = Duration::from_secs(20);

impl NewSlot {
    /// One has been made.
    pub(crate) fn is_made(&self) {
        self.0.store(true, Relaxed);
    }

    /// An offset is stored that tells of what it has brought: from there the next start goes on.
    pub(crate) fn is_in_use(&self) {
        self.0.store(false, Relaxed);
    }

    /// Drops it, if there is one. Where that cannot be done, the failure tells what is left to do.
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
