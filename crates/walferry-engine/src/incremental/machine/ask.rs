//! What the state machine asks for, and the answers.

use serde::{Deserialize, Serialize};

use super::{
    key::{Key, KeyColumns},
    notification::NotRead,
};

/// A request to look something up, read or write.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// List the captured tables that match each regular expression.
    Tables(Vec<String>),
    /// Find the columns by which this chunk will be read. They must be known before its window opens: changes of the
    /// stream are compared with its rows by them.
    Key(Box<ChunkAsk>),
    /// Read a chunk.
    Chunk(Box<ChunkAsk>),
    /// Close the window of this chunk.
    Close {
        /// The chunk's id.
        chunk: String,
    },
    /// Answer when everything that was sent before this request has been delivered.
    Delivery,
    /// Tell which transactions have become visible.
    Visible,
    /// Give way to a signal that waits. If the chunk cannot be read now, the answer is [`ChunkAnswer::Waits`]. Otherwise
    /// this has no effect.
    GiveWay,
}

impl Ask {
    /// The chunk that the request is about.
    pub fn chunk(&self) -> Option<&str> {
        match self {
            Self::Key(ask) | Self::Chunk(ask) => Some(&ask.chunk),
            Self::Close { chunk } => Some(chunk),
            Self::Tables(_) | Self::Delivery | Self::Visible | Self::GiveWay => None,
        }
    }
}

/// A chunk to read.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkAsk {
    /// Its id.
    pub chunk: String,
    /// Whether its window must be opened first.
    pub opens: bool,
    /// The table.
    pub table: Collection,
    /// The columns by which it was read so far. If it is read by others now, the answer is [`ChunkAnswer::OtherKey`].
    pub key: Option<KeyColumns>,
    /// Read behind this key. `None`: from the table's beginning.
    pub after: Option<Key>,
    /// Read up to this key. `None`: it is not known yet.
    pub maximum: Option<Key>,
    /// Columns to leave out, because the stream does not have them either.
    pub left_out: Vec<String>,
    /// How many bytes the rows may have. The first row may have more.
    pub bytes: usize,
    /// Tables that come later and whose numbers of rows are not known yet.
    pub others: Vec<String>,
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum ChunkAnswer {
    /// The tables of [`Ask::Tables`], for each expression.
    Tables(Vec<Vec<String>>),
    /// What [`Ask::Key`] asks for. `None`: there is no such table, or it has no key, or it cannot be read. Reading it will
    /// tell which.
    Key(Option<KeyColumns>),
    /// The table is read by these columns, and not by those of the request: it must be read from its beginning.
    OtherKey(KeyColumns),
    /// There is no such table.
    UnknownTable,
    /// Close the window where the stream has sent everything committed before this position.
    CloseAt(u64),
    /// The row that closes the window was committed before this position.
    ClosedBefore(u64),
    /// What [`Ask::Delivery`] asks for.
    Delivered,
    /// The table has no key to read it by.
    NoKey,
    /// The table has no rows.
    Empty,
    /// The table cannot be read, for this reason.
    Failed(NotRead),
    /// The chunk cannot be read now, and a signal waits.
    Waits,
    /// Rows were read.
    Rows {
        /// How many; 0 at the end of the table.
        rows: u64,
        /// The key of the last of these rows.
        last: Option<Key>,
        /// The key of the last row of the table.
        maximum: Key,
        /// Whether the rows may be older than what the stream sent before the window. If so, they are read again.
        stale: bool,
    },
}

/// A table to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collection {
    /// `schema.table`.
    #[serde(rename = "incremental_snapshot_collections_id")]
    pub id: String,
    /// A condition for WHERE.
    #[serde(rename = "incremental_snapshot_collections_additional_condition")]
    pub condition: Option<String>,
    /// A column to read the table by, instead of its key.
    #[serde(rename = "incremental_snapshot_collections_surrogate_key")]
    pub surrogate: Option<String>,
}
