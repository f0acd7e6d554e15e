use crate::reader::FieldReader;
use crate::{
    Begin, Change, Commit, DecodeError, LogicalMessage, Message, OldTuple, Operation, Origin, Relation, RelationColumn,
    ReplicaIdentity, Truncate, Type, Xid,
};

/// Minimum length of a column in a Relation message: flags, an empty name with its zero byte, type, modifier.
const MIN_RELATION_COLUMN: usize = 10;

/// Reads one message: the content of an [`XLogData`](crate::XLogData).
///
/// This checks the whole frame, so reading from the message later cannot fail. Rows borrow from the frame and allocate
/// nothing. Only relations and truncates, which are rare, own their data.
///
/// # Errors
/// When the frame is not a message of protocol version 1. The error says what is wrong and at which byte.
pub fn decode(frame: &[u8]) -> Result<Message<'_>, DecodeError> {
    let &tag = frame.first().ok_or(DecodeError::Empty)?;
    match tag {
        b'I' => whole("Insert", frame, |reader| insert(reader).map(Message::Change)),
        b'U' => whole("Update", frame, |reader| update(reader).map(Message::Change)),
        b'D' => whole("Delete", frame, |reader| delete(reader).map(Message::Change)),
        b'B' => whole("Begin", frame, |reader| begin(reader).map(Message::Begin)),
        b'C' => whole("Commit", frame, |reader| commit(reader).map(Message::Commit)),
        b'O' => whole("Origin", frame, |reader| origin(reader).map(Message::Origin)),
        b'R' => whole("Relation", frame, |reader| relation(reader).map(Message::Relation)),
        b'Y' => whole("Type", frame, |reader| type_name(reader).map(Message::Type)),
        b'T' => whole("Truncate", frame, |reader| truncate(reader).map(Message::Truncate)),
        b'M' => whole("Logical", frame, |reader| logical(reader).map(Message::Logical)),
        tag => Err(DecodeError::UnknownMessage { tag }),
    }
}

fn whole<'a>(
    name: &'static str,
    frame: &'a [u8],
    read: impl FnOnce(&mut FieldReader<'a>) -> Result<Message<'a>, DecodeError>,
) -> Result<Message<'a>, DecodeError> {
    let mut reader = FieldReader::after_tag(name, frame);
    let message = read(&mut reader)?;
    reader.finish()?;
    Ok(message)
}

fn insert<'a>(reader: &mut FieldReader<'a>) -> Result<Change<'a>, DecodeError> {
    let relation = reader.oid()?;
    match reader.u8()? {
        b'N' => Ok(Change {
            relation,
            operation: Operation::Insert { new: reader.tuple()? },
        }),
        tag => Err(reader.unknown("tuple kind", tag)),
    }
}

fn update<'a>(reader: &mut FieldReader<'a>) -> Result<Change<'a>, DecodeError> {
    let relation = reader.oid()?;
    let (old, kind) = match reader.u8()? {
        b'K' => (Some(OldTuple::Key(reader.tuple()?)), reader.u8()?),
        b'O' => (Some(OldTuple::Full(reader.tuple()?)), reader.u8()?),
        kind => (None, kind),
    };
    match kind {
        b'N' => Ok(Change {
            relation,
            operation: Operation::Update {
                old,
                new: reader.tuple()?,
            },
        }),
        tag => Err(reader.unknown("tuple kind", tag)),
    }
}

fn delete<'a>(reader: &mut FieldReader<'a>) -> Result<Change<'a>, DecodeError> {
    let relation = reader.oid()?;
    let old = match reader.u8()? {
        b'K' => OldTuple::Key(reader.tuple()?),
        b'O' => OldTuple::Full(reader.tuple()?),
        tag => return Err(reader.unknown("tuple kind", tag)),
    };
    Ok(Change {
        relation,
        operation: Operation::Delete { old },
    })
}

fn begin(reader: &mut FieldReader<'_>) -> Result<Begin, DecodeError> {
    Ok(Begin {
        final_lsn: reader.lsn()?,
        commit_time: reader.timestamp()?,
        xid: Xid(reader.u32()?),
    })
}

fn commit(reader: &mut FieldReader<'_>) -> Result<Commit, DecodeError> {
    reader.flags(0)?; // none is defined
    Ok(Commit {
        commit_lsn: reader.lsn()?,
        end_lsn: reader.lsn()?,
        commit_time: reader.timestamp()?,
    })
}

fn origin<'a>(reader: &mut FieldReader<'a>) -> Result<Origin<'a>, DecodeError> {
    Ok(Origin {
        commit_lsn: reader.lsn()?,
        name: reader.name()?,
    })
}

fn relation(reader: &mut FieldReader<'_>) -> Result<Relation, DecodeError> {
    let oid = reader.oid()?;
    let namespace = reader.namespace()?.to_owned();
    let name = reader.name()?.to_owned();
    let letter = reader.u8()?;
    let replica_identity =
        ReplicaIdentity::from_letter(letter).ok_or_else(|| reader.unknown("replica identity", letter))?;
    let column_count = reader.u16()?.into();
    // A wrong count must not make us allocate much memory.
    let mut columns = Vec::with_capacity(usize::min(column_count, reader.left() / MIN_RELATION_COLUMN));
    for _ in 0..column_count {
        columns.push(relation_column(reader)?);
    }
    Ok(Relation {
        oid,
        namespace,
        name,
        replica_identity,
        columns,
    })
}

fn relation_column(reader: &mut FieldReader<'_>) -> Result<RelationColumn, DecodeError> {
    let flags = reader.flags(1)?;
    Ok(RelationColumn {
        part_of_key: flags & 1 != 0,
        name: reader.name()?.to_owned(),
        type_oid: reader.oid()?,
        type_modifier: reader.i32()?,
    })
}

fn type_name<'a>(reader: &mut FieldReader<'a>) -> Result<Type<'a>, DecodeError> {
    Ok(Type {
        oid: reader.oid()?,
        namespace: reader.namespace()?,
        name: reader.name()?,
    })
}

fn truncate(reader: &mut FieldReader<'_>) -> Result<Truncate, DecodeError> {
    let relation_count = reader.u32()? as usize;
    let options = reader.flags(0b11)?;
    let mut relations = Vec::with_capacity(usize::min(relation_count, reader.left() / size_of::<u32>()));
    for _ in 0..relation_count {
        relations.push(reader.oid()?);
    }
    Ok(Truncate {
        cascade: options & 1 != 0,
        restart_identity: options & 2 != 0,
        relations,
    })
}

fn logical<'a>(reader: &mut FieldReader<'a>) -> Result<LogicalMessage<'a>, DecodeError> {
    let flags = reader.flags(1)?;
    Ok(LogicalMessage {
        transactional: flags & 1 != 0,
        lsn: reader.lsn()?,
        prefix: reader.name()?,
        content: reader.counted()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Column, Lsn, Oid, PgTimestamp, TupleBuf};

    /// Bytes put together by hand from the protocol's documentation ("Logical Replication Message Formats").
    #[test]
    fn every_message_is_read_as_documented() {
        let row = TupleBuf::new([Column::Text(b"42"), Column::Null, Column::Unchanged]).unwrap();
        let key = TupleBuf::new([Column::Binary(b"\x00\x2A"), Column::Null, Column::Null]).unwrap();
        let (row, key) = (row.as_tuple(), key.as_tuple());
        let change = |operation| {
            Message::Change(Change {
                relation: Oid(0x4007),
                operation,
            })
        };
        let cases: [(&[u8], Message<'_>); 13] = [
            (
                b"B\0\0\0\x16\xB3\x74\xD8\x48\0\0\0\0\0\0\0\x05\0\0\x02\xE2",
                Message::Begin(Begin {
                    final_lsn: Lsn(0x16_B374_D848),
                    commit_time: PgTimestamp(5),
                    xid: Xid(0x2E2),
                }),
            ),
            (
                b"C\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
                Message::Commit(Commit { commit_lsn: Lsn(1), end_lsn: Lsn(2), commit_time: PgTimestamp(-1) }),
            ),
            (b"O\0\0\0\x01\0\0\0\0up\0", Message::Origin(Origin { commit_lsn: Lsn(1 << 32), name: "up" })),
            (
                b"R\0\0\x40\x07public\0orders\0i\0\x02\x01id\0\0\0\0\x17\xFF\xFF\xFF\xFF\0total\0\0\0\x06\xA4\0\x0A\0\x06",
                Message::Relation(Relation {
                    oid: Oid(0x4007),
                    namespace: "public".to_owned(),
                    name: "orders".to_owned(),
                    replica_identity: ReplicaIdentity::Index,
                    columns: vec![
                        RelationColumn {
                            name: "id".to_owned(),
                            part_of_key: true,
                            type_oid: Oid(23),
                            type_modifier: -1,
                        },
                        RelationColumn {
                            name: "total".to_owned(),
                            part_of_key: false,
                            type_oid: Oid(1700),
                            type_modifier: 10 << 16 | 6,
                        },
                    ],
                }),
            ),
            (
                b"Y\0\0\x40\x42\0text\0",
                Message::Type(Type { oid: Oid(0x4042), namespace: "pg_catalog", name: "text" }),
            ),
            (b"I\0\0\x40\x07N\0\x03t\0\0\0\x0242nu", change(Operation::Insert { new: row })),
            (b"U\0\0\x40\x07N\0\x03t\0\0\0\x0242nu", change(Operation::Update { old: None, new: row })),
            (
                b"U\0\0\x40\x07K\0\x03b\0\0\0\x02\0\x2AnnN\0\x03t\0\0\0\x0242nu",
                change(Operation::Update { old: Some(OldTuple::Key(key)), new: row }),
            ),
            (
                b"U\0\0\x40\x07O\0\x03t\0\0\0\x0242nuN\0\x03t\0\0\0\x0242nu",
                change(Operation::Update { old: Some(OldTuple::Full(row)), new: row }),
            ),
            (b"D\0\0\x40\x07K\0\x03b\0\0\0\x02\0\x2Ann", change(Operation::Delete { old: OldTuple::Key(key) })),
            (b"D\0\0\x40\x07O\0\x03t\0\0\0\x0242nu", change(Operation::Delete { old: OldTuple::Full(row) })),
            (
                b"T\0\0\0\x02\x02\0\0\0\x01\0\0\0\x02",
                Message::Truncate(Truncate {
                    cascade: false,
                    restart_identity: true,
                    relations: vec![Oid(1), Oid(2)],
                }),
            ),
            (
                b"M\x01\0\0\0\0\0\0\0\x07p\0\0\0\0\x02\0\xFF",
                Message::Logical(LogicalMessage {
                    transactional: true,
                    lsn: Lsn(7),
                    prefix: "p",
                    content: b"\0\xFF",
                }),
            ),
        ];
        for (bytes, message) in cases {
            assert_eq!(decode(bytes), Ok(message), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn errors_say_what_is_wrong_and_where() {
        let cases: [(&[u8], &str); 18] = [
            (b"", "message is empty"),
            (b"S\0", "unknown message tag 'S'"),
            (b"B\0\0", "Begin message ends after 3 of 9 bytes"),
            (b"C\x01", "Commit message has unknown flags 0x01 at byte 1"),
            (
                b"O\0\0\0\0\0\0\0\0up",
                "Origin message has a name without an end at byte 9",
            ),
            (
                b"O\0\0\0\0\0\0\0\0\xFF\0",
                "Origin message has a name that is not UTF-8 at byte 9",
            ),
            (
                b"R\0\0\0\x01s\0t\0x\0\0",
                "Relation message has unknown replica identity 'x' at byte 9",
            ),
            (
                b"R\0\0\0\x01s\0t\0d\0\x01\x02",
                "Relation message has unknown flags 0x02 at byte 12",
            ),
            (
                b"R\0\0\0\x01s\0t\0d\xFF\xFF",
                "Relation message ends after 12 of 13 bytes",
            ),
            (
                b"I\0\0\0\x01K\0\0",
                "Insert message has unknown tuple kind 'K' at byte 5",
            ),
            (
                b"U\0\0\0\x01K\0\0K\0\0",
                "Update message has unknown tuple kind 'K' at byte 8",
            ),
            (
                b"D\0\0\0\x01N\0\0",
                "Delete message has unknown tuple kind 'N' at byte 5",
            ),
            (
                b"I\0\0\0\x01N\0\x02nx",
                "Insert message has unknown column kind 'x' at byte 9",
            ),
            (
                b"I\0\0\0\x01N\0\x01t\0\0\0\x03ab",
                "Insert message ends after 15 of 16 bytes",
            ),
            (
                b"I\0\0\0\x01N\0\x01t\xFF\xFF\xFF\xFF",
                "Insert message ends after 13 of 4294967308 bytes",
            ),
            (
                b"I\0\0\0\x01N\0\x01nn",
                "Insert message is complete after 9 bytes but has 10",
            ),
            (
                b"T\xFF\xFF\xFF\xFF\0\0\0\0\x01",
                "Truncate message ends after 10 of 14 bytes",
            ),
            (b"M\x02", "Logical message has unknown flags 0x02 at byte 1"),
        ];
        for (bytes, expected) in cases {
            let error = decode(bytes).unwrap_err();
            assert_eq!(error.to_string(), expected, "{}", bytes.escape_ascii());
        }
    }
}
