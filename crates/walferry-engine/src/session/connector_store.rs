//! Keeps the configurations of connectors, and the target state of each, beyond the end of the process.
//!
//! Only connectors created through the REST API are kept here. Connectors given as files on the command line have their
//! files.

use std::fmt;

use crate::{failure::Failure, session::target::WantedState};

/// A connector's configuration as it was submitted: names and values in order, with references such as `${env:X}`
/// unresolved.
pub type Configuration = Vec<(String, String)>;

/// A connector in a [`ConnectorStore`]. `Debug` leaves the configuration out, since it may hold secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct ConnectorEntry {
    /// The connector's name.
    pub name: String,
    /// Its configuration.
    pub configuration: Configuration,
    /// The connector's target state.
    pub target: WantedState,
}

impl fmt::Debug for ConnectorEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectorEntry")
            .field("name", &self.name)
            .field("target", &self.target)
            .finish()
    }
}

/// Keeps connectors. A write is durable when its call returns. Calls block on a disk or on Kafka, so call them where
/// that blocks nobody else.
pub trait ConnectorStore: fmt::Debug + Send {
    /// All connectors, in the order of their names.
    ///
    /// # Errors
    /// The store cannot be read, or is damaged.
    fn entries(&mut self) -> Result<Vec<ConnectorEntry>, Failure>;

    /// Names and classes of connectors in the store that this program must not run or change.
    fn others(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Writes a connector. Replaces the one of the same name.
    ///
    /// # Errors
    /// It is not written.
    fn put(&mut self, entry: &ConnectorEntry) -> Result<(), Failure>;

    /// Sets the target state of a connector.
    ///
    /// # Errors
    /// It is not written.
    fn set_target(&mut self, name: &str, target: WantedState) -> Result<(), Failure>;

    /// Removes a connector.
    ///
    /// # Errors
    /// It is still there.
    fn remove(&mut self, name: &str) -> Result<(), Failure>;
}
