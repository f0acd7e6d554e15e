//! Decides which part of a table a snapshot reads next, and remembers what was delivered. It never queries.
//!
//! A table is read in chunks. A chunk is a range of blocks; chunks have the order of a sequential scan. The delivered
//! chunks ([`ChunksDone`]) are stored with the offset, so that an interrupted snapshot can continue in three steps:
//!
//! - The stream is read up to the position of a new exported snapshot, the *watermark*.
//! - The remaining chunks are read from that snapshot.
//! - The stream continues after the watermark.
//!
//! After each step, one of these is true for every row that the table has at the watermark:
//!
//! - the row is in a remaining chunk, or
//! - the topic has the complete row, from a chunk that was read or from later changes.
//!
//! A row that was not changed is still in the same block. Only a rewrite of the table moves it. A rewritten table has
//! another storage and starts over.
//!
//! A row that was changed may be in any block, even in a finished chunk. The change itself brought it to the topic,
//! except in three cases:
//!
//! - The change did not contain all values: TOASTed values were unchanged, or columns are not published.
//! - The change arrived but was not sent: the operation is skipped, a transform dropped the record, or the record was
//!   set aside after an error. In these first two cases, the key of the row is remembered ([`RowsToReread`]), and the row is
//!   read again at the watermark.
//! - The change never arrived, because the publication does not send it. Such a table has another storage at each
//!   watermark, so it starts over.

mod blocks;
mod done;
pub(crate) mod initial;
mod reread;
pub(crate) mod rows;
pub(crate) mod toast_reread;

pub use blocks::Blocks;
pub use done::{ChunksDone, SnapshotStep, TableDone};
pub use reread::{Keys, RowsToReread};
