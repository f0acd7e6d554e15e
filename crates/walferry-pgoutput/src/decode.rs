use crate::reader::Reader;
use crate::{
    Begin, Change, Commit, DecodeError, LogicalMessage, Message, OldTuple, Operation, Origin, Relation, RelationColumn,
    ReplicaIdentity, Truncate, Type, Xid,
};

/// Least length of a column in a Relation message: flags, a name of one zero byte, type, modifier.
const MIN_RELATION_COLUMN: usize = 10;

/// Reads one message: the content of an [`XLogData`](crate::XLogData).
///
/// The whole frame is checked, so that nothing taken from the message later can fail. Rows borrow from it and
/// allocate nothing; only a relation and a truncate, which are rare, own what they hold.
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
        b'M' => whole("Message", frame, |reader| logical(reader).map(Message::Logical)),
        tag => Err(DecodeError::UnknownMessage { tag }),
    }
}

fn whole<'a>(
    name: &'static str,
    frame: &'a [u8],
    read: impl FnOnce(&mut Reader<'a>) -> Result<Message<'a>, DecodeError>,
) -> Result<Message<'a>, DecodeError> {
    let mut reader = Reader::after_tag(name, frame);
    let message = read(&mut reader)?;
    reader.finish()?;
    Ok(message)
}

fn insert<'a>(reader: &mut Reader<'a>) -> Result<Change<'a>, DecodeError> {
    let relation = reader.oid()?;
    match reader.u8()? {
        b'N' => Ok(Change {
            relation,
            operation: Operation::Insert { new: reader.tuple()? },
        }),
        tag => Err(reader.unknown("tuple kind", tag)),
    }
}

fn update<'a>(reader: &mut Reader<'a>) -> Result<Change<'a>, DecodeError> {
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

fn delete<'a>(reader: &mut Reader<'a>) -> Result<Change<'a>, DecodeError> {
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

fn begin(reader: &mut Reader<'_>) -> Result<Begin, DecodeError> {
    Ok(Begin {
        final_lsn: reader.lsn()?,
        commit_time: reader.timestamp()?,
        xid: Xid(reader.u32()?),
    })
}

fn commit(reader: &mut Reader<'_>) -> Result<Commit, DecodeError> {
    reader.flags(0)?; // none is defined
    Ok(Commit {
        commit_lsn: reader.lsn()?,
        end_lsn: reader.lsn()?,
        commit_time: reader.timestamp()?,
    })
}

fn origin<'a>(reader: &mut Reader<'a>) -> Result<Origin<'a>, DecodeError> {
    Ok(Origin {
        commit_lsn: reader.lsn()?,
        name: reader.name()?,
    })
}

fn relation(reader: &mut Reader<'_>) -> Result<Relation, DecodeError> {
    let oid = reader.oid()?;
    let namespace = reader.namespace()?.to_owned();
    let name = reader.name()?.to_owned();
    let letter = reader.u8()?;
    let replica_identity =
        ReplicaIdentity::from_letter(letter).ok_or_else(|| reader.unknown("replica identity", letter))?;
    let column_count = reader.u16()?.into();
    // The count alone must not decide how much memory is taken.
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

fn relation_column(reader: &mut Reader<'_>) -> Result<RelationColumn, DecodeError> {
    let flags = reader.flags(1)?;
    Ok(RelationColumn {
        part_of_key: flags & 1 != 0,
        name: reader.name()?.to_owned(),
        type_oid: reader.oid()?,
        type_modifier: reader.i32()?,
    })
}

fn type_name<'a>(reader: &mut Reader<'a>) -> Result<Type<'a>, DecodeError> {
    Ok(Type {
        oid: reader.oid()?,
        namespace: reader.namespace()?,
        name: reader.name()?,
    })
}

fn truncate(reader: &mut Reader<'_>) -> Result<Truncate, DecodeError> {
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

fn logical<'a>(reader: &mut Reader<'a>) -> Result<LogicalMessage<'a>, DecodeError> {
    let flags = reader.flags(1)?;
    Ok(LogicalMessage {
        transactional: flags & 1 != 0,
        lsn: reader.lsn()?,
        prefix: reader.name()?,
        content: reader.counted()?,
    })
}
