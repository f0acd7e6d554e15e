use crate::{
    Begin, Change, Commit, EncodeError, LogicalMessage, Message, OldTuple, Operation, Origin, Relation, Truncate,
    Tuple, Type,
};

/// Appends `message` to `out` as a walsender would write it, so that [`decode`](crate::decode) reads it back.
///
/// # Errors
/// When a name contains a zero byte, or a count does not fit into its field. `out` is then unchanged.
pub fn encode(message: &Message<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    let written = match message {
        Message::Begin(begin) => {
            put_begin(begin, out);
            Ok(())
        }
        Message::Commit(commit) => {
            put_commit(commit, out);
            Ok(())
        }
        Message::Change(change) => {
            put_change(change, out);
            Ok(())
        }
        Message::Origin(origin) => put_origin(origin, out),
        Message::Relation(relation) => put_relation(relation, out),
        Message::Type(named) => put_type(named, out),
        Message::Truncate(truncate) => put_truncate(truncate, out),
        Message::Logical(logical) => put_logical(logical, out),
    };
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn put_begin(begin: &Begin, out: &mut Vec<u8>) {
    out.push(b'B');
    out.extend_from_slice(&begin.final_lsn.0.to_be_bytes());
    out.extend_from_slice(&begin.commit_time.0.to_be_bytes());
    out.extend_from_slice(&begin.xid.0.to_be_bytes());
}

fn put_commit(commit: &Commit, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'C', 0]); // no flag is defined
    out.extend_from_slice(&commit.commit_lsn.0.to_be_bytes());
    out.extend_from_slice(&commit.end_lsn.0.to_be_bytes());
    out.extend_from_slice(&commit.commit_time.0.to_be_bytes());
}

fn put_change(change: &Change<'_>, out: &mut Vec<u8>) {
    let tag = match change.operation {
        Operation::Insert { .. } => b'I',
        Operation::Update { .. } => b'U',
        Operation::Delete { .. } => b'D',
    };
    out.push(tag);
    out.extend_from_slice(&change.relation.0.to_be_bytes());
    let (old, new) = match change.operation {
        Operation::Insert { new } => (None, Some(new)),
        Operation::Update { old, new } => (old, Some(new)),
        Operation::Delete { old } => (Some(old), None),
    };
    match old {
        Some(OldTuple::Key(tuple)) => put_tuple(b'K', tuple, out),
        Some(OldTuple::Full(tuple)) => put_tuple(b'O', tuple, out),
        None => {}
    }
    if let Some(tuple) = new {
        put_tuple(b'N', tuple, out);
    }
}

fn put_tuple(kind: u8, tuple: Tuple<'_>, out: &mut Vec<u8>) {
    let (column_count, data) = tuple.raw();
    out.push(kind);
    out.extend_from_slice(&column_count.to_be_bytes());
    out.extend_from_slice(data);
}

fn put_origin(origin: &Origin<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.push(b'O');
    out.extend_from_slice(&origin.commit_lsn.0.to_be_bytes());
    put_name(origin.name, out)
}

fn put_relation(relation: &Relation, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.push(b'R');
    out.extend_from_slice(&relation.oid.0.to_be_bytes());
    put_namespace(&relation.namespace, out)?;
    put_name(&relation.name, out)?;
    out.push(relation.replica_identity.letter());
    out.extend_from_slice(&field::<u16>("columns", relation.columns.len())?.to_be_bytes());
    for column in &relation.columns {
        out.push(u8::from(column.part_of_key));
        put_name(&column.name, out)?;
        out.extend_from_slice(&column.type_oid.0.to_be_bytes());
        out.extend_from_slice(&column.type_modifier.to_be_bytes());
    }
    Ok(())
}

fn put_type(named: &Type<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.push(b'Y');
    out.extend_from_slice(&named.oid.0.to_be_bytes());
    put_namespace(named.namespace, out)?;
    put_name(named.name, out)
}

fn put_truncate(truncate: &Truncate, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.push(b'T');
    out.extend_from_slice(&field::<i32>("relations", truncate.relations.len())?.to_be_bytes());
    out.push(u8::from(truncate.cascade) | u8::from(truncate.restart_identity) << 1);
    for oid in &truncate.relations {
        out.extend_from_slice(&oid.0.to_be_bytes());
    }
    Ok(())
}

fn put_logical(logical: &LogicalMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    out.extend_from_slice(&[b'M', u8::from(logical.transactional)]);
    out.extend_from_slice(&logical.lsn.0.to_be_bytes());
    put_name(logical.prefix, out)?;
    out.extend_from_slice(&field::<i32>("bytes", logical.content.len())?.to_be_bytes());
    out.extend_from_slice(logical.content);
    Ok(())
}

fn put_namespace(name: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    put_name(if name == "pg_catalog" { "" } else { name }, out)
}

fn put_name(name: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if name.bytes().any(|byte| byte == 0) {
        return Err(EncodeError::ZeroByteInName);
    }
    out.extend_from_slice(name.as_bytes());
    out.push(0);
    Ok(())
}

/// Converts `count` to the integer type of its field.
pub(crate) fn field<T: TryFrom<usize>>(what: &'static str, count: usize) -> Result<T, EncodeError> {
    T::try_from(count).map_err(|_| EncodeError::TooMany { what, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Lsn, Oid, RelationColumn, ReplicaIdentity};

    #[test]
    fn what_the_protocol_cannot_say_is_refused_and_leaves_nothing_behind() {
        let column = RelationColumn {
            name: "c".to_owned(),
            part_of_key: false,
            type_oid: Oid(23),
            type_modifier: -1,
        };
        let wide = Relation {
            oid: Oid(1),
            namespace: "public".to_owned(),
            name: "wide".to_owned(),
            replica_identity: ReplicaIdentity::Default,
            columns: vec![column; 65_536],
        };
        let cases = [
            (
                Message::Origin(Origin {
                    commit_lsn: Lsn(1),
                    name: "a\0b",
                }),
                EncodeError::ZeroByteInName,
            ),
            (
                Message::Relation(wide),
                EncodeError::TooMany {
                    what: "columns",
                    count: 65_536,
                },
            ),
        ];
        for (message, error) in cases {
            let mut out = b"before".to_vec();
            assert_eq!(encode(&message, &mut out), Err(error));
            assert_eq!(out, b"before");
        }
    }
}
