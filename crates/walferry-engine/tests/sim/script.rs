//! Messages of the stream as a test writes them down.

use walferry_pgoutput::{
    Begin, Change, Column, Commit, Lsn, Message, Oid, Operation, PgTimestamp, Relation, RelationColumn,
    ReplicaIdentity, TupleBuf, Xid, encode,
};

/// The captured table: `public.t (id int4 primary key, n int8)`.
pub(crate) const TABLE: Oid = Oid(16_384);
/// A table that is published but not captured.
pub(crate) const OTHER: Oid = Oid(16_400);
/// A row of the captured table: `(id, n)`.
pub(crate) type Row = (i32, i64);

/// One frame of the stream as the server would send it.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    /// Start LSN in the XLogData header, 0/0 for what has none.
    pub(crate) lsn: Lsn,
    /// The pgoutput message.
    pub(crate) payload: Vec<u8>,
}

/// A committed transaction, or a message outside one.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    /// The server passes it over when asked to start behind this.
    pub(crate) commit_lsn: Lsn,
    /// Its frames.
    pub(crate) frames: Vec<Sent>,
}

impl Unit {
    /// A transaction of these rows of the captured table, whose commit record is there.
    pub(crate) fn of(commit_lsn: u64, rows: &[(i32, i64)]) -> Self {
        let changes = (1..)
            .zip(rows)
            .map(|(i, row)| (Lsn(commit_lsn - 500 + i), TABLE, row.0, row.1))
            .collect();
        let writer = Writer {
            xid: commit_lsn as u32,
            changes,
        };
        transaction(&writer, Lsn(commit_lsn), Lsn(commit_lsn + 8))
    }
}

struct Writer {
    xid: u32,
    changes: Vec<(Lsn, Oid, i32, i64)>,
}

fn transaction(writer: &Writer, commit_lsn: Lsn, end_lsn: Lsn) -> Unit {
    let commit_time = PgTimestamp::from_unix_micros(1_700_000_000_000_000 + commit_lsn.0 as i64);
    let begin = Begin {
        final_lsn: commit_lsn,
        commit_time,
        xid: Xid(writer.xid),
    };
    let first = writer.changes.first().map_or(commit_lsn, |change| change.0);
    let mut frames = vec![frame(first, &Message::Begin(begin))];
    for &(lsn, table, id, n) in &writer.changes {
        frames.push(insert(lsn, table, (id, n)));
    }
    frames.push(frame(
        end_lsn,
        &Message::Commit(Commit {
            commit_lsn,
            end_lsn,
            commit_time,
        }),
    ));
    Unit { commit_lsn, frames }
}

/// A row `(id, n)`.
pub(crate) fn insert(lsn: Lsn, relation: Oid, (id, n): (i32, i64)) -> Sent {
    insert_text(lsn, relation, &id.to_string(), &n.to_string())
}

/// The same of any text.
pub(crate) fn insert_text(lsn: Lsn, relation: Oid, id: &str, n: &str) -> Sent {
    let row = TupleBuf::new([Column::Text(id.as_bytes()), Column::Text(n.as_bytes())]).expect("a small row");
    let operation = Operation::Insert { new: row.as_tuple() };
    frame(lsn, &Message::Change(Change { relation, operation }))
}

/// A row's change that leaves `n` as it is, and out.
pub(crate) fn update_without_n(lsn: Lsn, id: i32) -> Sent {
    let id = id.to_string();
    let row = TupleBuf::new([Column::Text(id.as_bytes()), Column::Unchanged]).expect("a small row");
    let operation = Operation::Update {
        old: None,
        new: row.as_tuple(),
    };
    let relation = TABLE;
    frame(lsn, &Message::Change(Change { relation, operation }))
}

/// What describes both tables; sent when a connection begins.
pub(crate) fn relations() -> [Sent; 2] {
    [(TABLE, "t"), (OTHER, "other")].map(|(oid, name)| {
        let column = |name: &str, part_of_key, type_oid| RelationColumn {
            name: name.to_owned(),
            part_of_key,
            type_oid: Oid(type_oid),
            type_modifier: -1,
        };
        let relation = Relation {
            oid,
            namespace: "public".to_owned(),
            name: name.to_owned(),
            replica_identity: ReplicaIdentity::Default,
            columns: vec![column("id", true, 23), column("n", false, 20)],
        };
        frame(Lsn(0), &Message::Relation(relation))
    })
}

pub(crate) fn frame(lsn: Lsn, message: &Message<'_>) -> Sent {
    let mut payload = Vec::new();
    encode(message, &mut payload).expect("a small message");
    Sent { lsn, payload }
}
