use crate::{Oid, Tuple};

/// One row was inserted, updated or deleted.
///
/// Tuples have the columns of the last [`Relation`](crate::Relation) with this id, in its order. The caller keeps the
/// relations, so the caller must check that the number of columns agrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// The table.
    pub relation: Oid,
    /// What happened to the row.
    pub operation: Operation<'a>,
}

/// What happened to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The row was inserted.
    Insert {
        /// The row.
        new: Tuple<'a>,
    },
    /// The row was updated.
    Update {
        /// The row before the update. `None`, unless the replica identity is `FULL`, or a column of the replica
        /// identity was changed or is stored out of line (TOAST).
        old: Option<OldTuple<'a>>,
        /// The row after the update.
        new: Tuple<'a>,
    },
    /// The row was deleted.
    Delete {
        /// The row before the delete.
        old: OldTuple<'a>,
    },
}

/// What the stream tells about a row before its change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldTuple<'a> {
    /// Only the columns of the replica identity have values. Every other column is null here, whatever its value was.
    Key(Tuple<'a>),
    /// The whole row, under replica identity `FULL`; a null is a null.
    Full(Tuple<'a>),
}

impl<'a> OldTuple<'a> {
    /// The tuple, of whichever kind.
    pub fn tuple(self) -> Tuple<'a> {
        match self {
            Self::Key(tuple) | Self::Full(tuple) => tuple,
        }
    }
}
