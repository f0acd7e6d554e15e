//! Positions in the stream.

use walferry_pgoutput::Lsn;

/// The position of one change, ordered as the stream is.
///
/// An LSN alone does not identify a change: a multi-insert writes several changes with one LSN. LSNs have no order
/// across transactions either: transactions are sent in the order of their commits, while their changes interleave in
/// the WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// LSN of the commit record of the change's transaction (`final_lsn` of its Begin message). For a message outside
    /// transactions, the last byte of its record. Rises along the stream.
    pub unit: Lsn,
    /// LSN of the change. It never decreases within a transaction.
    pub lsn: Lsn,
    /// Number of earlier changes of the transaction with the same LSN.
    pub ordinal: u32,
}
