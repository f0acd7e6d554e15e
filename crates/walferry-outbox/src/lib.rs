//! Upkeep of outbox tables, beside the stream: what waits in them, which rows may go, and the partitions to come.
//!
//! It is an edge above `walferry-postgres`: it asks the server over connections of its own, and nothing on the path of a row waits for it.
//! [`Upkeep`] begins here; it also observes the stream, because a row may go only if everything before it has been sent.

mod cleanup;
mod lower_bounds;
mod outboxes;
mod partitions;
pub mod poller;
mod said;
mod sends;
mod time_column;
mod upkeep;
mod watch;

pub use upkeep::{LoginRenewal, TargetKafka, Upkeep};
