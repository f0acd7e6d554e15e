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
//! A row that no change has touched since its chunk was read, or left, still lies where it lay: only a rewrite of the table
//! moves it, and that gives the table another storage, with which it begins again. A row that a change has touched is in the
//! topic with that change, but for TOASTed values which the change left as they were: these rows are remembered by their keys
//! ([`Again`]) and read again at the watermark.

mod again;
mod blocks;
mod done;

pub use again::{Again, Keys};
pub use blocks::Blocks;
pub use done::{Done, Step, TableDone};
