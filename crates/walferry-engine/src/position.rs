//! Places in the stream.

use walferry_pgoutput::Lsn;

/// The place of one change in the stream; ordered as the stream is.
///
/// An LSN alone does not tell changes apart (a multi-insert writes several with one), nor are LSNs ordered across transactions,
/// which are sent in the order of their commits while their changes interleave in the WAL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    /// LSN of the commit record of the change's transaction (`final_lsn` of its Begin message); for a message outside
    /// transactions, the last byte of its record. These rise along the stream.
    pub unit: Lsn,
    /// LSN of the change; does not fall within a transaction.
    pub lsn: Lsn,
    /// How many changes of the transaction before this one have the same LSN.
    pub ordinal: u32,
}
