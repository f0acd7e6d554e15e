//! What happens in the simulated database.

use walferry_pgoutput::{
    Begin, Change, Column, Commit, LogicalMessage, Lsn, Message, Oid, Operation, PgTimestamp, Relation, RelationColumn,
    ReplicaIdentity, TupleBuf, Xid, encode,
};

use crate::random::Random;

/// The captured table: `public.t (id int4 primary key, n int8)`.
pub(crate) const TABLE: Oid = Oid(16_384);
/// A table that is published but not captured.
pub(crate) const OTHER: Oid = Oid(16_400);
/// Rows have keys below this.
pub(crate) const KEYS: u64 = 5;

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
    /// LSN behind its commit record.
    pub(crate) end_lsn: Lsn,
    /// Its frames.
    pub(crate) frames: Vec<Sent>,
    /// Rows of the captured table, `(id, n)`.
    pub(crate) rows: Vec<(i32, i64)>,
}

/// Transactions in the order of their commits. Their changes interleave in the WAL, some share an LSN, some are rolled back.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// Units in stream order.
    pub(crate) units: Vec<Unit>,
    /// Values of rows that were rolled back.
    pub(crate) rolled_back: Vec<i64>,
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

impl Script {
    /// The script of a seed.
    pub(crate) fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut script = Self {
            units: Vec::new(),
            rolled_back: Vec::new(),
        };
        let mut writers: Vec<Writer> = Vec::new();
        let (mut lsn, mut xid, mut n) = (1_000_u64, 700, 0_i64);
        for _ in 0..30 + random.below(30) {
            lsn += 8 * (1 + random.below(12));
            if writers.is_empty() || (writers.len() < 3 && random.once_in(3)) {
                xid += 1;
                writers.push(Writer {
                    xid,
                    changes: Vec::new(),
                });
            }
            let which = random.below(writers.len() as u64) as usize;
            match random.below(10) {
                0..=5 => {
                    // Several rows of one record share its LSN.
                    let rows = if random.once_in(3) { 1 + random.below(4) } else { 1 };
                    let table = if random.once_in(6) { OTHER } else { TABLE };
                    for _ in 0..rows {
                        n += 1;
                        writers[which]
                            .changes
                            .push((Lsn(lsn), table, random.below(KEYS) as i32, n));
                    }
                }
                6 => {
                    let gone = writers.swap_remove(which);
                    script
                        .rolled_back
                        .extend(gone.changes.iter().filter(|c| c.1 == TABLE).map(|c| c.3));
                }
                7 if random.once_in(2) => script.units.push(message(Lsn(lsn))),
                _ => {
                    let writer = writers.swap_remove(which);
                    // The next record begins where the commit record ends.
                    script.units.push(transaction(&writer, Lsn(lsn), Lsn(lsn + 8)));
                }
            }
        }
        for writer in writers {
            lsn += 16;
            script.units.push(transaction(&writer, Lsn(lsn), Lsn(lsn + 8)));
        }
        script
    }

    /// The server's WAL position when everything has happened.
    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.units.iter().map(|unit| unit.end_lsn.0).max().unwrap_or_default() + 64)
    }

    /// Rows of the captured table in commit order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (i32, i64)> {
        self.units.iter().flat_map(|unit| unit.rows.iter().copied())
    }
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
    let rows = writer
        .changes
        .iter()
        .filter(|c| c.1 == TABLE)
        .map(|c| (c.2, c.3))
        .collect();
    Unit {
        commit_lsn,
        end_lsn,
        frames,
        rows,
    }
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

fn message(lsn: Lsn) -> Unit {
    let message = LogicalMessage {
        transactional: false,
        lsn,
        prefix: "p",
        content: b"outside",
    };
    let frames = vec![frame(lsn, &Message::Logical(message))];
    Unit {
        commit_lsn: Lsn(lsn.0 - 1),
        end_lsn: lsn,
        frames,
        rows: Vec::new(),
    }
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
