//! Upkeep of outbox tables: what waits in them, what may go, the partitions to come, and rows that are sent again.

pub(crate) mod cleanup;
pub(crate) mod partitions;
pub mod poller;
pub mod replay;
mod said;
mod time_column;
pub(crate) mod watch;
