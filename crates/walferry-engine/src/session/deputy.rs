//! A run that works for a connector before its process owns it.
//!
//! When the process that owns a connector is gone, its group takes some seconds to give the connector away. Until then, another process may run it
//! as a *deputy*. Nobody has taken the connector from the owner, so the owner may be alive after all. What the deputy does must therefore be
//! right beside an owner that lives:
//!
//! - It reads the slot, which has one reader at a time, and delivers. At worst, records are delivered twice.
//! - It stores no offset and confirms nothing, so no older offset is stored behind a newer one, and the slot never gets ahead of the offset.
//!   With exactly-once delivery, records and offset are one: there the transactional id has fenced the owner, and the deputy commits.
//! - It continues the stream exactly where the stored offset ends; if that is not possible, it waits. It creates no slot, alters no publication,
//!   and reads no existing rows.
//!
//! When the process becomes the owner, the run continues. It loads the offset again, and stores from then on if that is still the one it began with;
//! otherwise it begins again from the loaded one.

use std::future::pending;

use tokio::sync::watch;
use walferry_diagnosis::Kind;

use crate::failure::{Disposition, Failure};

/// Whether a run is one of a deputy. Clones see the same.
#[derive(Debug, Clone, Default)]
pub struct DeputyRole(Option<watch::Receiver<bool>>);

impl DeputyRole {
    /// The run of a process that owns the connector, or has it for itself alone, is none.
    pub fn none() -> Self {
        Self::default()
    }

    /// It is one while this is true. It becomes false once, when the process has become the owner.
    pub fn watching(is_deputy: watch::Receiver<bool>) -> Self {
        Self(Some(is_deputy))
    }

    /// Whether it is one now.
    pub fn is_deputy(&self) -> bool {
        self.0.as_ref().is_some_and(|is_deputy| *is_deputy.borrow())
    }

    /// Waits until it is none: the process owns the connector.
    pub async fn ended(&self) {
        let Some(is_deputy) = &self.0 else { return };
        if is_deputy.clone().wait_for(|is_deputy| !is_deputy).await.is_err() {
            // Nobody can make it the owner any more.
            pending::<()>().await;
        }
    }

    /// Fails if it is one, because only the owner may do what is due.
    pub(crate) fn refuse(&self, what: &str) -> Result<(), Failure> {
        if !self.is_deputy() {
            return Ok(());
        }
        let hint = "no action is needed: the connector continues as soon as the group has assigned it to a worker";
        Err(Failure::stop(
            Kind::ConnectorRunsElsewhere,
            format!("{what}: this is left to the worker that will own the connector"),
            hint,
        ))
    }
}

/// The stored offset is not the one that the deputy began with.
pub(crate) fn another_offset() -> Failure {
    Failure::new(
        Disposition::Retry,
        Kind::ConnectorRunsElsewhere,
        "the last owner of the connector has stored another offset since this worker began to run it; going on from that one",
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deputy_is_one_until_its_process_owns_the_connector() {
        assert!(!DeputyRole::none().is_deputy());
        let is_deputy = watch::Sender::new(true);
        let role = DeputyRole::watching(is_deputy.subscribe());
        assert!(role.is_deputy() && role.refuse("a slot is to be created").is_err());
        is_deputy.send_replace(false);
        assert!(!role.is_deputy() && role.refuse("a slot is to be created").is_ok());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .expect("a runtime");
        runtime.block_on(role.ended());
    }
}
