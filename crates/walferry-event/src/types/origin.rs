//! Where rows come from.

/// Where the rows of a plan come from. Debezium reads them by different ways, which shows for a few types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOrigin {
    /// The replication stream.
    Stream,
    /// A snapshot's `SELECT`.
    Snapshot,
    /// An array of either.
    Element,
    /// A query of a post-processor for columns of a row that has come with the stream.
    Again,
}
