//! Upkeep of outbox tables, beside the stream: what waits in them, which rows may go, and the partitions to come.
//!
//! It is an edge above `walferry-postgres`: it asks the server over connections of its own, and nothing on the path of a row waits for it.

mod cleanup;
mod partitions;
pub mod poller;
mod said;
mod time_column;
mod watch;

pub use cleanup::{CleanedTable, Cleaner, Round};
pub use partitions::{OutboxPartitions, PartitionedTable, Period};
pub use watch::{OutboxWatch, Watched, WatchedTable};
