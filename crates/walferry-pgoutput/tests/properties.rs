//! Whatever can be encoded is decoded to itself; whatever arrives is decoded or refused.

use proptest::collection::vec;
use proptest::prelude::*;
use walferry_pgoutput::{
    Begin, Change, Column, Commit, LogicalMessage, Lsn, Message, Oid, OldTuple, Operation, Origin, PgTimestamp,
    PrimaryKeepalive, Relation, RelationColumn, ReplicaIdentity, ServerMessage, StandbyStatusUpdate, Truncate, Tuple,
    TupleBuf, Type, XLogData, Xid, decode, encode,
};

proptest! {
    #[test]
    fn every_message_survives_the_round_trip(message in message()) {
        let mut bytes = b"before".to_vec();
        encode(&message, &mut bytes).unwrap();
        prop_assert_eq!(decode(&bytes[6..]), Ok(message), "bytes {}", bytes[6..].escape_ascii());
    }

    #[test]
    fn columns_come_back_as_they_were(columns in vec(column(), 0..20)) {
        let tuple = TupleBuf::new(columns.iter().copied()).unwrap();
        let mut bytes = Vec::new();
        let change = Change { relation: Oid(1), operation: Operation::Insert { new: tuple.as_tuple() } };
        encode(&Message::Change(change), &mut bytes).unwrap();

        let Message::Change(Change { operation: Operation::Insert { new }, .. }) = decode(&bytes).unwrap() else {
            panic!("not an insert");
        };
        prop_assert_eq!(new.columns().len(), columns.len());
        prop_assert!(new.columns().eq(columns));
    }

    #[test]
    fn damaged_messages_are_refused_or_mean_something(
        message in message(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        end in any::<prop::sample::Index>(),
        cut in any::<bool>(),
    ) {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes).unwrap();
        for (index, byte) in damage {
            *index.get_mut(&mut bytes) = byte;
        }
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        check(&bytes)?;
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_mean_something(
        tag in prop::sample::select(b"BCORYIUDTM".as_slice()),
        mut bytes in vec(prop_oneof![Just(0_u8), Just(1), any::<u8>(), prop::sample::select(b"NKOntubdfi".as_slice())], 1..64),
    ) {
        bytes[0] = tag;
        check(&bytes)?;
    }

    #[test]
    fn server_messages_survive_the_round_trip(
        start in any::<u64>(), end in any::<u64>(), time in any::<i64>(), data in vec(any::<u8>(), 0..50), reply in any::<bool>(),
    ) {
        let server_time = PgTimestamp(time);
        let xlog = XLogData { start: Lsn(start), end: Lsn(end), server_time, data: &data };
        let keepalive = PrimaryKeepalive { wal_end: Lsn(end), server_time, reply_requested: reply };
        for message in [ServerMessage::XLogData(xlog), ServerMessage::Keepalive(keepalive)] {
            let mut body = Vec::new();
            message.encode(&mut body);
            prop_assert_eq!(ServerMessage::parse(&body), Ok(message));
        }
    }

    #[test]
    fn status_updates_survive_the_round_trip(
        positions in any::<[u64; 3]>(), time in any::<i64>(), reply_requested in any::<bool>(),
    ) {
        let [written, flushed, applied] = positions.map(Lsn);
        let update = StandbyStatusUpdate { written, flushed, applied, client_time: PgTimestamp(time), reply_requested };
        prop_assert_eq!(StandbyStatusUpdate::parse(&update.encode()), Ok(update));
    }

    #[test]
    fn copy_data_from_anywhere_is_refused_or_read(
        tag in prop::sample::select(b"wkr".as_slice()), mut body in vec(any::<u8>(), 1..64),
    ) {
        body[0] = tag;
        if let Ok(message) = ServerMessage::parse(&body) {
            let mut again = Vec::new();
            message.encode(&mut again);
            prop_assert_eq!(&again, &body);
        }
        if let Ok(update) = StandbyStatusUpdate::parse(&body) {
            prop_assert_eq!(&update.encode()[..], &body);
        }
    }
}

/// What was decoded can be walked over, and is the same after another round.
fn check(bytes: &[u8]) -> Result<(), TestCaseError> {
    let Ok(message) = decode(bytes) else { return Ok(()) };
    if let Message::Change(change) = message {
        for tuple in tuples(change.operation) {
            prop_assert_eq!(tuple.columns().count(), tuple.column_count());
        }
    }
    let mut again = Vec::new();
    encode(&message, &mut again).unwrap();
    prop_assert_eq!(decode(&again), Ok(message), "bytes {}", bytes.escape_ascii());
    Ok(())
}

fn tuples(operation: Operation<'_>) -> impl Iterator<Item = Tuple<'_>> {
    let (old, new) = match operation {
        Operation::Insert { new } => (None, Some(new)),
        Operation::Update { old, new } => (old, Some(new)),
        Operation::Delete { old } => (Some(old), None),
    };
    old.map(OldTuple::tuple).into_iter().chain(new)
}

/// Any message. What it borrows is leaked: a test process is short.
fn message() -> impl Strategy<Value = Message<'static>> {
    let change = |(relation, operation)| {
        Message::Change(Change {
            relation: Oid(relation),
            operation,
        })
    };
    prop_oneof![
        (any::<u64>(), any::<i64>(), any::<u32>()).prop_map(|(lsn, time, xid)| Message::Begin(Begin {
            final_lsn: Lsn(lsn),
            commit_time: PgTimestamp(time),
            xid: Xid(xid),
        })),
        (any::<[u64; 2]>(), any::<i64>()).prop_map(|([start, end], time)| Message::Commit(Commit {
            commit_lsn: Lsn(start),
            end_lsn: Lsn(end),
            commit_time: PgTimestamp(time),
        })),
        (any::<u64>(), name()).prop_map(|(lsn, name)| Message::Origin(Origin {
            commit_lsn: Lsn(lsn),
            name
        })),
        relation().prop_map(Message::Relation),
        (any::<u32>(), namespace(), name()).prop_map(|(oid, namespace, name)| Message::Type(Type {
            oid: Oid(oid),
            namespace,
            name
        })),
        (any::<u32>(), operation()).prop_map(change),
        (any::<[bool; 2]>(), vec(any::<u32>(), 0..5)).prop_map(|([cascade, restart_identity], oids)| {
            let relations = oids.into_iter().map(Oid).collect();
            Message::Truncate(Truncate {
                cascade,
                restart_identity,
                relations,
            })
        }),
        (any::<bool>(), any::<u64>(), name(), bytes()).prop_map(|(transactional, lsn, prefix, content)| {
            Message::Logical(LogicalMessage {
                transactional,
                lsn: Lsn(lsn),
                prefix,
                content,
            })
        }),
    ]
}

fn operation() -> impl Strategy<Value = Operation<'static>> {
    prop_oneof![
        tuple().prop_map(|new| Operation::Insert { new }),
        (prop::option::of(old()), tuple()).prop_map(|(old, new)| Operation::Update { old, new }),
        old().prop_map(|old| Operation::Delete { old }),
    ]
}

fn old() -> impl Strategy<Value = OldTuple<'static>> {
    prop_oneof![tuple().prop_map(OldTuple::Key), tuple().prop_map(OldTuple::Full)]
}

fn tuple() -> impl Strategy<Value = Tuple<'static>> {
    vec(column(), 0..12).prop_map(|columns| {
        let tuple: &'static TupleBuf = Box::leak(Box::new(TupleBuf::new(columns).unwrap()));
        tuple.as_tuple()
    })
}

fn column() -> impl Strategy<Value = Column<'static>> {
    prop_oneof![
        Just(Column::Null),
        Just(Column::Unchanged),
        bytes().prop_map(Column::Text),
        bytes().prop_map(Column::Binary),
    ]
}

fn relation() -> impl Strategy<Value = Relation> {
    let column =
        (any::<bool>(), name(), any::<u32>(), any::<i32>()).prop_map(|(part_of_key, name, type_oid, type_modifier)| {
            RelationColumn {
                name: name.to_owned(),
                part_of_key,
                type_oid: Oid(type_oid),
                type_modifier,
            }
        });
    let identity = prop::sample::select(
        [
            ReplicaIdentity::Default,
            ReplicaIdentity::Nothing,
            ReplicaIdentity::Full,
            ReplicaIdentity::Index,
        ]
        .as_slice(),
    );
    (any::<u32>(), namespace(), name(), identity, vec(column, 0..8)).prop_map(
        |(oid, namespace, name, replica_identity, columns)| Relation {
            oid: Oid(oid),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            replica_identity,
            columns,
        },
    )
}

fn bytes() -> impl Strategy<Value = &'static [u8]> {
    vec(any::<u8>(), 0..30).prop_map(|bytes| &*bytes.leak())
}

/// Any text without a zero byte.
fn name() -> impl Strategy<Value = &'static str> {
    "[^\\x00]{0,12}".prop_map(|name| &*name.leak())
}

/// Schemas have a name; `pg_catalog` is written in its own way.
fn namespace() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("pg_catalog"), "[^\\x00]{1,12}".prop_map(|name| &*name.leak())]
}
