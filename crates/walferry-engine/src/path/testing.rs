//! Tables for the tests of this room.

use walferry_pgoutput::{Oid, Relation, RelationColumn, ReplicaIdentity};

/// A table of the schema `public`, with columns of type text.
pub(crate) fn relation(oid: u32, name: &str, columns: &[&str]) -> Relation {
    let column = |name: &&str| RelationColumn {
        name: (*name).to_owned(),
        part_of_key: false,
        type_oid: Oid(25),
        type_modifier: -1,
    };
    Relation {
        oid: Oid(oid),
        namespace: "public".into(),
        name: name.into(),
        replica_identity: ReplicaIdentity::Default,
        columns: columns.iter().map(column).collect(),
    }
}
