use crate::Oid;

/// A table as the stream describes it: the published columns in the order in which tuples carry them.
///
/// It describes the rows after it in the stream, not those before. The catalog may have changed since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Id of the table. With `publish_via_partition_root`, the id of the root.
    pub oid: Oid,
    /// Its schema.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Which columns old tuples have.
    pub replica_identity: ReplicaIdentity,
    /// The published columns. This excludes dropped columns, columns outside the publication's column list and, unless
    /// they are published, generated columns.
    pub columns: Vec<RelationColumn>,
}

/// A column of a [`Relation`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationColumn {
    /// Its name.
    pub name: String,
    /// Whether it is part of the replica identity: a key column under `DEFAULT` and `USING INDEX`, every column under
    /// `FULL`, none under `NOTHING`.
    pub part_of_key: bool,
    /// Id of its type; for a domain this is the domain's own id.
    pub type_oid: Oid,
    /// `atttypmod`: length, precision and so on, encoded as the type defines it. -1 means none.
    pub type_modifier: i32,
}

/// Which columns of the old row an update or delete carries (`ALTER TABLE … REPLICA IDENTITY`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReplicaIdentity {
    /// The columns of the primary key, if there is one.
    Default,
    /// No columns.
    Nothing,
    /// All columns.
    Full,
    /// The columns of a chosen unique index.
    Index,
}

impl ReplicaIdentity {
    /// The letter of `pg_class.relreplident`.
    pub fn letter(self) -> u8 {
        match self {
            Self::Default => b'd',
            Self::Nothing => b'n',
            Self::Full => b'f',
            Self::Index => b'i',
        }
    }

    /// The identity with this letter in `pg_class.relreplident`.
    pub fn from_letter(letter: u8) -> Option<Self> {
        match letter {
            b'd' => Some(Self::Default),
            b'n' => Some(Self::Nothing),
            b'f' => Some(Self::Full),
            b'i' => Some(Self::Index),
            _ => None,
        }
    }
}
