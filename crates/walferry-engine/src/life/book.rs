//! Where the configurations of connectors, and what is wanted of each, outlast the process.
//!
//! Only connectors that came by the REST API stand here. Those of files given on the command line have their files.

use std::fmt;

use crate::{failure::Failure, life::target::Target};

/// A connector as it was handed in: names and texts in their order, with references such as `${env:X}` as they were written.
pub type Configuration = Vec<(String, String)>;

/// A connector of a [`Book`]. It is not printed: its configuration may hold secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The connector's name.
    pub name: String,
    /// Its configuration.
    pub configuration: Configuration,
    /// What is wanted of it.
    pub target: Target,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("name", &self.name)
            .field("target", &self.target)
            .finish()
    }
}

/// Keeps connectors. What a call has written is durable when it returns. Calls wait for a disk or for Kafka: they are made where
/// that holds nobody up.
pub trait Book: fmt::Debug + Send {
    /// All connectors, in the order of their names.
    ///
    /// # Errors
    /// The book cannot be read, or is damaged.
    fn entries(&mut self) -> Result<Vec<Entry>, Failure>;

    /// Names and classes of connectors that stand in the book and are not for this program to run or to change.
    fn others(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Writes a connector in the place of the one that has its name.
    ///
    /// # Errors
    /// It is not written.
    fn put(&mut self, entry: &Entry) -> Result<(), Failure>;

    /// Notes what is wanted of a connector.
    ///
    /// # Errors
    /// It is not written.
    fn set_target(&mut self, name: &str, target: Target) -> Result<(), Failure>;

    /// Takes a connector out.
    ///
    /// # Errors
    /// It is still there.
    fn remove(&mut self, name: &str) -> Result<(), Failure>;
}
