//! Committed transactions as the server sends them.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use walferry_engine::source::{Frame, FrameBatch};
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts};
use walferry_pgoutput::{
    Begin, Change as RowChange, Column, Commit, LogicalMessage, Lsn, Message, Oid, OldTuple, Operation, PgTimestamp,
    Relation, RelationColumn, ReplicaIdentity, Truncate, TupleBuf, Xid, encode,
};

use super::{
    database::{Change, Op, Row, TABLES, TableKind, Unit},
    plan::Plan,
};

/// One message of the stream.
#[derive(Debug)]
pub(crate) enum Sent {
    Wal(Lsn, Vec<u8>),
    Keepalive(Lsn),
    /// What the reader looks up when a relation is described.
    Catalog(usize),
    /// The server finds no publication for what comes next.
    Gap,
}

impl Sent {
    /// The position of the server that it tells.
    pub(crate) const fn tells(&self) -> Option<Lsn> {
        match self {
            Self::Wal(lsn, _) | Self::Keepalive(lsn) => Some(*lsn),
            Self::Catalog(_) | Self::Gap => None,
        }
    }
}

/// Text of a row's `big`.
pub(crate) fn big(number: i64) -> String {
    format!("big {number}")
}

/// All messages of a transaction. A connection is told what a relation is like before its first change.
pub(crate) fn messages(unit: &Unit, described: &mut BTreeSet<usize>, plan: &Plan, out: &mut VecDeque<Sent>) {
    let commit_time = PgTimestamp::from_unix_micros(unit.time_us());
    if unit.is_message {
        // Three bytes are four letters of base64.
        let content = vec![b'x'; 3 * unit.server];
        let message = LogicalMessage {
            transactional: false,
            lsn: unit.end_lsn,
            prefix: "p",
            content: &content,
        };
        out.push_back(sent(unit.end_lsn, &Message::Logical(message)));
        return;
    }
    let decodable = unit.decodable();
    let ops: Vec<&Op> = decodable.iter().filter(|op| plan.publishes(op)).collect();
    let is_whole = decodable.len() == unit.ops.len();
    if ops.is_empty() && (plan.skips_empty_transactions || !is_whole) {
        if !is_whole {
            out.push_back(Sent::Gap);
        }
        return;
    }
    let begin = Begin {
        final_lsn: unit.commit_lsn,
        commit_time,
        xid: Xid(unit.xid),
    };
    let first = ops.first().map_or(unit.commit_lsn, |op| op.lsn);
    out.push_back(sent(first, &Message::Begin(begin)));
    for op in &ops {
        if described.insert(op.table) {
            out.push_back(Sent::Catalog(op.table));
            out.push_back(sent(Lsn(0), &Message::Relation(relation(&TABLES[op.table]))));
        }
    }
    let mut rest = &ops[..];
    while let Some((op, others)) = rest.split_first() {
        rest = others;
        if op.change == Change::Truncate {
            // All tables of one statement come with one message.
            let (same, others) = rest.split_at(rest.partition_point(|other| other.change == Change::Truncate));
            rest = others;
            let relations = [op].into_iter().chain(same).map(|op| TABLES[op.table].oid).collect();
            let truncate = Truncate {
                cascade: false,
                restart_identity: false,
                relations,
            };
            out.push_back(sent(op.lsn, &Message::Truncate(truncate)));
        } else {
            out.push_back(change(op));
        }
    }
    if !is_whole {
        out.push_back(Sent::Gap);
        return;
    }
    let commit = Commit {
        commit_lsn: unit.commit_lsn,
        end_lsn: unit.end_lsn,
        commit_time,
    };
    out.push_back(sent(unit.end_lsn, &Message::Commit(commit)));
}

fn change(op: &Op) -> Sent {
    let table = &TABLES[op.table];
    let old_of = |row: &Row| match table.is_full {
        true => whole(row),
        false => tuple([Some(row.id.to_string()), None, None]),
    };
    let old_tuple = |old| match table.is_full {
        true => OldTuple::Full(old),
        false => OldTuple::Key(old),
    };
    let (old, new);
    let operation = match op.change {
        Change::Insert(row) => {
            new = whole(&row);
            Operation::Insert { new: new.as_tuple() }
        }
        Change::Update { before, after } => {
            let (id, n, text) = (after.id.to_string(), after.n.to_string(), big(after.big));
            let last = match after.big == before.big {
                true => Column::Unchanged,
                false => Column::Text(text.as_bytes()),
            };
            new = TupleBuf::new([Column::Text(id.as_bytes()), Column::Text(n.as_bytes()), last]).expect("a small row");
            old = old_of(&before);
            let told = table.is_full || before.id != after.id;
            Operation::Update {
                old: told.then(|| old_tuple(old.as_tuple())),
                new: new.as_tuple(),
            }
        }
        Change::Delete(row) => {
            old = old_of(&row);
            Operation::Delete {
                old: old_tuple(old.as_tuple()),
            }
        }
        Change::Truncate => unreachable!("it has a message of its own"),
    };
    let relation = table.oid;
    sent(op.lsn, &Message::Change(RowChange { relation, operation }))
}

/// A row with all its values.
pub(crate) fn whole(row: &Row) -> TupleBuf {
    tuple([Some(row.id.to_string()), Some(row.n.to_string()), Some(big(row.big))])
}

fn tuple(values: [Option<String>; 3]) -> TupleBuf {
    let column = |value: &'_ Option<String>| value.clone();
    let texts = values.each_ref().map(column);
    TupleBuf::new(texts.iter().map(|text| match text {
        Some(text) => Column::Text(text.as_bytes()),
        None => Column::Null,
    }))
    .expect("a small row")
}

/// Name, type and whether it is part of the key.
const COLUMNS: [(&str, Oid, bool); 3] = [("id", Oid(23), true), ("n", Oid(20), false), ("big", Oid(25), false)];

fn relation(table: &TableKind) -> Relation {
    let columns = COLUMNS.map(|(name, type_oid, is_key)| RelationColumn {
        name: name.to_owned(),
        part_of_key: is_key || table.is_full,
        type_oid,
        type_modifier: -1,
    });
    Relation {
        oid: table.oid,
        namespace: "public".to_owned(),
        name: table.name.to_owned(),
        replica_identity: match table.is_full {
            true => ReplicaIdentity::Full,
            false => ReplicaIdentity::Default,
        },
        columns: columns.to_vec(),
    }
}

/// A table as the catalog describes it.
pub(crate) fn facts(table: &TableKind) -> TableFacts {
    let column = |(number, (name, type_oid, is_key)): (i16, (&str, Oid, bool))| ColumnFacts {
        not_null: is_key,
        ..ColumnFacts::plain(name, number, type_oid)
    };
    TableFacts {
        oid: table.oid,
        schema: "public".into(),
        name: table.name.into(),
        columns: (1..).zip(COLUMNS).map(column).collect(),
        primary_key: vec!["id".into()],
        unique_indexes: Vec::new(),
        comment: None,
        partition: false,
    }
}

pub(crate) fn catalog(table: &TableKind) -> Catalog {
    Catalog {
        table: Some(facts(table)),
        types: Vec::new(),
    }
}

fn sent(lsn: Lsn, message: &Message<'_>) -> Sent {
    let mut payload = Vec::new();
    encode(message, &mut payload).expect("a small message");
    Sent::Wal(lsn, payload)
}

/// Messages that were read from the socket at once.
pub(crate) fn chunk(messages: impl IntoIterator<Item = Sent>) -> FrameBatch {
    let (mut bytes, mut frames) = (Vec::new(), Vec::new());
    for message in messages {
        frames.push(match message {
            Sent::Wal(lsn, payload) => {
                let begin = bytes.len();
                bytes.extend(payload);
                let payload = begin..bytes.len();
                Frame::Wal { lsn, payload }
            }
            Sent::Keepalive(wal_end) => Frame::Keepalive { wal_end },
            Sent::Catalog(table) => Frame::Catalog(Box::new(catalog(&TABLES[table]))),
            Sent::Gap => unreachable!("it ends the connection"),
        });
    }
    FrameBatch::new(Bytes::from(bytes), frames)
}
