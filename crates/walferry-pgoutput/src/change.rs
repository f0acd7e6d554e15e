use crate::{Oid, Tuple};

/// One row was inserted, updated or deleted.
///
/// Tuples have the columns of the last [`Relation`](crate::Relation) with this id, in its order. That their number
/// agrees is for the caller to check, who keeps the relations.
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
    /// It is new.
    Insert {
        /// The row.
        new: Tuple<'a>,
    },
    /// It has changed.
    Update {
        /// What it was. `None` unless the replica identity is `FULL`, or a column of the identity has changed (or is
        /// stored out of line).
        old: Option<OldTuple<'a>>,
        /// What it is.
        new: Tuple<'a>,
    },
    /// It is gone.
    Delete {
        /// What it was.
        old: OldTuple<'a>,
    },
}

/// What is known of a row as it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldTuple<'a> {
    /// The columns of the replica identity; every other column is there as null, whatever it held.
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
