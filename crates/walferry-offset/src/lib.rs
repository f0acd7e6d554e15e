//! Offset stores that need no Kafka: a file in the data directory, and memory.
//!
//! [`FileStore`] keeps the offset of one connector in `<data directory>/<connector>/offset.json`. If a write is
//! interrupted, the previous offset remains. A file that is damaged, or that belongs to another connector, is an error
//! and never counts as a first start.

mod connector_store;
mod error;
mod exchange;
mod file;
mod folder;
mod format;
pub mod gap;
mod halves;
mod java_file;
mod memory;
pub mod private;
mod recognition;
pub mod skip;

pub use connector_store::FileConnectorStore;
pub use error::Error;
pub use exchange::{Import, ImportError, export_rest, import};
pub use file::FileStore;
pub use folder::Folder;
pub use format::{additions, with_additions};
pub use java_file::{JavaFileError, is_java_file, java_offsets};
pub use memory::MemoryStore;
