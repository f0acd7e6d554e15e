//! Passes rows from a COPY to the engine.

use std::mem;
use std::sync::Arc;

use bytes::Bytes;
use walferry_engine::source::{Frame, FrameBatch, FrameSender, SnapshotTable};

use crate::encoding::TextEncoding;
use crate::error::Error;
use crate::snapshot::copy::append_tuple;

/// Size of the pieces in which rows are passed on.
const PIECE_BYTES: usize = 256 * 1024;
/// Bytes of a value in a tuple in addition to its text.
const VALUE_HEADER_BYTES: usize = 5;

/// Rows of one table, gathered to be passed on together.
pub(super) struct TableRows<'a> {
    out: &'a FrameSender,
    table: Arc<SnapshotTable>,
    columns: usize,
    encoding: &'a TextEncoding,
    bytes: Vec<u8>,
    frames: Vec<Frame>,
}

impl<'a> TableRows<'a> {
    /// For rows with this number of columns, whose texts are in this encoding.
    pub(super) fn new(
        out: &'a FrameSender,
        table: Arc<SnapshotTable>,
        columns: usize,
        encoding: &'a TextEncoding,
    ) -> Self {
        Self {
            out,
            table,
            columns,
            encoding,
            bytes: Vec::new(),
            frames: Vec::new(),
        }
    }

    /// Adds a line of COPY.
    pub(super) async fn push(&mut self, line: &[u8]) -> Result<(), Error> {
        if !self.bytes.is_empty() && self.bytes.len() + line.len() > PIECE_BYTES {
            self.send().await?;
        }
        let most = line.len() + self.columns * VALUE_HEADER_BYTES;
        if self.bytes.capacity() == 0 {
            // A row that is larger than a piece gets exactly the memory that it needs, not twice as much.
            self.bytes.reserve_exact(most.max(PIECE_BYTES + PIECE_BYTES / 4));
        }
        let start = self.bytes.len();
        append_tuple(line, self.columns, self.encoding, &mut self.bytes).map_err(|error| Error::Protocol {
            doing: super::DOING,
            problem: error.to_string(),
        })?;
        if self.frames.is_empty() {
            self.frames.push(Frame::Table(self.table.clone()));
        }
        let tuple = start..self.bytes.len();
        self.frames.push(Frame::Row { tuple });
        Ok(())
    }

    /// Passes on the gathered rows.
    pub(super) async fn send(&mut self) -> Result<(), Error> {
        if self.frames.is_empty() {
            return Ok(());
        }
        let capacity = self.frames.len();
        let frames = mem::replace(&mut self.frames, Vec::with_capacity(capacity));
        send(self.out, mem::take(&mut self.bytes).into(), frames).await
    }
}

pub(super) async fn send(out: &FrameSender, bytes: Bytes, frames: Vec<Frame>) -> Result<(), Error> {
    out.send(FrameBatch::new(bytes, frames))
        .await
        .map_err(|_| Error::PipelineEnded)
}
