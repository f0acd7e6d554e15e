//! The connectors of a process, as the endpoint shows and controls them.

use std::{fmt, sync::Arc};

use walferry_engine::status::Status;

/// The connectors of a process, to show and to control. The admin endpoint knows only this trait.
pub trait Connectors: fmt::Debug + Send + Sync {
    /// The status of each connector, in the order in which they are shown.
    fn statuses(&self) -> Vec<Arc<Status>>;

    /// Stops reading, and keeps the slot.
    ///
    /// # Errors
    /// There is no connector of this name, as with all the others.
    fn pause(&self, name: &str) -> Result<(), UnknownConnector>;

    /// Continues after a pause or a stop.
    ///
    /// # Errors
    /// There is no connector of this name.
    fn resume(&self, name: &str) -> Result<(), UnknownConnector>;

    /// Delivers, stores and confirms what was read, then ends. The slot is free afterwards.
    ///
    /// # Errors
    /// There is no connector of this name.
    fn stop(&self, name: &str) -> Result<(), UnknownConnector>;

    /// Stops in the same way and starts again. With `only_failed`, only if the connector has failed.
    ///
    /// # Errors
    /// There is no connector of this name.
    fn restart(&self, name: &str, only_failed: bool) -> Result<(), UnknownConnector>;
}

/// There is no connector of this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no connector {0:?}")]
pub struct UnknownConnector(pub String);

/// A set of connectors without controls, for tests and examples.
#[derive(Debug, Clone, Default)]
pub struct FixedConnectors(pub Vec<Arc<Status>>);

impl FixedConnectors {
    fn known(&self, name: &str) -> Result<(), UnknownConnector> {
        let is_known = self.0.iter().any(|status| status.name == name);
        is_known.then_some(()).ok_or_else(|| UnknownConnector(name.to_owned()))
    }
}

impl Connectors for FixedConnectors {
    fn statuses(&self) -> Vec<Arc<Status>> {
        self.0.clone()
    }
    fn pause(&self, name: &str) -> Result<(), UnknownConnector> {
        self.known(name)
    }
    fn resume(&self, name: &str) -> Result<(), UnknownConnector> {
        self.known(name)
    }
    fn stop(&self, name: &str) -> Result<(), UnknownConnector> {
        self.known(name)
    }
    fn restart(&self, name: &str, _: bool) -> Result<(), UnknownConnector> {
        self.known(name)
    }
}
