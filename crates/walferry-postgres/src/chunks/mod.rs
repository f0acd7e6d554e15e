//! Chunks of an incremental snapshot: they are read beside the stream, between two rows of the signal table.

pub(crate) mod not_published;
pub(crate) mod reader;
pub(crate) mod signal_table;
