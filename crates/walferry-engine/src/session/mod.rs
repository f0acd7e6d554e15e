//! Sessions of a connector: how it starts, runs, retries and ends.
//!
//! A connector runs one session after another. A session looks at the server and at the stored offset and decides where
//! to begin. It starts the tasks of path and delivery. It ends them in order, so that the offset of whatever Kafka has
//! is stored and confirmed. The worker, in a crate above, gives each run a thread, and tells it its [`TargetState`]. This
//! module may use path and delivery; they do not know it.

mod channels;
pub mod connector;
pub mod connector_store;
mod deputy;
mod gap;
mod known_gap;
mod new_slot;
mod pipeline_thread;
pub mod polled;
mod prepare;
mod reader;
mod retries;
pub mod start;
mod target;
mod tasks;

pub use deputy::DeputyRole;
pub use target::{TargetState, WantedState};
