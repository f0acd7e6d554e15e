//! Chunks of an incremental snapshot: they are read beside the stream, between two rows of the signal table.

mod ahead;
mod attempt;
pub(crate) mod chunk_table;
pub(crate) mod not_published;
pub(crate) mod reader;
pub(crate) mod refusal;
pub(crate) mod signal_table;
pub(crate) mod target;
mod window_rows;

pub use ahead::{RequestedSnapshot, requested_snapshot};
