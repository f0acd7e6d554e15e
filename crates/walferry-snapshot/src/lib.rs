//! Which part of a table a snapshot reads next, and what of it is done. It decides, and never queries.
//!
//! A table is read in chunks: ranges of its blocks, in the order in which a sequential scan meets them. What is [`Done`] of a
//! snapshot is kept with the offset, so that one that was interrupted goes on: the stream first brings the topics to the
//! position of a new exported snapshot, the *watermark*; then the chunks that are left are read from that snapshot; then the
//! stream goes on behind the watermark. After each of these steps holds, for every row that the table has at the watermark:
//!
//! - its version lies in a chunk that is left, or
//! - the topic has all of it: from a chunk that was read, or from changes since then.
//!
//! A row that no change has touched since its chunk was read, or left, still lies where it lay. Only a rewrite of the table
//! moves it. A rewritten table has another storage, and begins again.
//!
//! A row that a change has touched may lie anywhere, also in a chunk that is done. It is in the topic with that change, but for
//! three cases:
//!
//! - The change left TOASTed values as they were, or its table has columns that are not published.
//! - The change reached us and was not sent: an operation that is left out, a transform that dropped the record, an error that
//!   was set aside. In these two cases the row is remembered by its key ([`Again`]) and read again at the watermark.
//! - The change never reached us, since the publication does not send it. The table then has another storage at each
//!   watermark, and begins again.

mod again;
mod blocks;
mod done;
pub mod incremental;

pub use again::{Again, Keys};
pub use blocks::Blocks;
pub use done::{Done, Step, TableDone};
