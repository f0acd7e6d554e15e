//! TimescaleDB's catalog, as far as a transform asks for it: which hypertable a chunk belongs to, and which of these tables hold a
//! continuous aggregate.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use walferry_record::{Wait, WaitNeed};

/// Schema and name of a table or a view.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableId {
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
}

impl TableId {
    /// A table of these names.
    pub fn new(schema: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            schema: schema.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.name)
    }
}

/// What TimescaleDB's catalog says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Hypertables {
    /// The hypertable of each chunk.
    pub chunks: HashMap<TableId, TableId>,
    /// The view of each hypertable that holds the rows of a continuous aggregate.
    pub aggregates: HashMap<TableId, TableId>,
}

/// Reads TimescaleDB's catalog, beside the path of a row.
pub trait HypertableReader: Send + Sync {
    /// Begins to read the catalog as it is now, and answers at once.
    fn read(&self) -> Arc<Reading>;

    /// The time on a clock that only goes forward, since some beginning.
    fn clock(&self) -> Duration;
}

/// The catalog while it is being read, and after that.
#[derive(Debug)]
pub struct Reading {
    wait: Wait,
    found: OnceLock<Hypertables>,
}

impl Default for Reading {
    fn default() -> Self {
        let need = WaitNeed::Row {
            table: "_timescaledb_catalog.chunk".to_owned(),
        };
        Self {
            wait: Wait::new(need),
            found: OnceLock::new(),
        }
    }
}

impl Reading {
    /// Hands in what the catalog says. Whoever waits goes on.
    pub fn finish(&self, found: Hypertables) {
        // It is handed in once.
        let _ = self.found.set(found);
        self.wait.end();
    }

    /// The wait that ends when the catalog has been read. The reader reports problems to it.
    pub const fn wait(&self) -> &Wait {
        &self.wait
    }

    /// What the catalog says; `None` until it has been read.
    pub fn found(&self) -> Option<&Hypertables> {
        self.found.get()
    }
}

/// A catalog that has been read before, for previews: nothing is ever waited for.
#[derive(Debug, Clone, Default)]
pub struct ReadBefore(pub Hypertables);

impl HypertableReader for ReadBefore {
    fn read(&self) -> Arc<Reading> {
        let reading = Reading::default();
        reading.finish(self.0.clone());
        Arc::new(reading)
    }

    fn clock(&self) -> Duration {
        Duration::ZERO
    }
}
