//! The tables of the simulated server: rows that lie in blocks, and the transactions that change them.

use std::collections::{BTreeMap, BTreeSet};

use walferry_engine::source::VisibleTransactions;
use walferry_pgoutput::{Lsn, Oid};

use crate::random::Random;

/// A table: `id int4 PRIMARY KEY, n int8, big text`. Values of `big` are TOASTed.
#[derive(Debug)]
pub(crate) struct TableKind {
    pub(crate) oid: Oid,
    pub(crate) name: &'static str,
    /// `REPLICA IDENTITY FULL`.
    pub(crate) is_full: bool,
    /// Whether the connector captures it. All are published.
    pub(crate) is_captured: bool,
}

pub(crate) const TABLES: [TableKind; 3] = [
    TableKind {
        oid: Oid(16_384),
        name: "a",
        is_full: false,
        is_captured: true,
    },
    TableKind {
        oid: Oid(16_385),
        name: "b",
        is_full: true,
        is_captured: true,
    },
    TableKind {
        oid: Oid(16_400),
        name: "other",
        is_full: false,
        is_captured: false,
    },
];

/// Rows have keys below this.
const KEYS: u64 = 12;
/// Rows that fit in a block.
const ROWS_A_BLOCK: usize = 2;
/// Transactions that are open at a time.
const WRITERS: usize = 3;

/// A version of a row. No two versions have the same `n`, no two values of `big` are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) id: i32,
    pub(crate) n: i64,
    pub(crate) big: i64,
}

/// What happens to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Insert(Row),
    Update { before: Row, after: Row },
    Delete(Row),
    Truncate,
}

/// A change with its place in the WAL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Op {
    /// Index into [`TABLES`].
    pub(crate) table: usize,
    pub(crate) lsn: Lsn,
    pub(crate) change: Change,
    pub(crate) sending: Sending,
}

/// What the publication made of a change when it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sending {
    Sent,
    /// Its table was not in the publication: it has lost this membership.
    LeftOut(u32),
    /// There was no publication.
    Impossible,
}

/// The publication: its oid, and those of the tables' memberships.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Publication {
    pub(crate) oid: Option<u32>,
    pub(crate) members: [Result<u32, u32>; TABLES.len()],
}

/// A committed transaction, or a message outside one.
#[derive(Debug, Clone)]
pub(crate) struct Unit {
    /// The server passes it over when it is asked to start behind this.
    pub(crate) commit_lsn: Lsn,
    /// LSN behind its commit record.
    pub(crate) end_lsn: Lsn,
    pub(crate) xid: u32,
    pub(crate) ops: Vec<Op>,
    pub(crate) is_message: bool,
    /// Which of all servers has committed it.
    pub(crate) server: usize,
}

impl Unit {
    /// The changes before the first that cannot be decoded.
    pub(crate) fn decodable(&self) -> &[Op] {
        let is_lost = |op: &Op| op.sending == Sending::Impossible;
        let end = self.ops.iter().position(is_lost).unwrap_or(self.ops.len());
        &self.ops[..end]
    }

    /// When it was committed, microseconds since 1970. No two servers commit at the same time.
    pub(crate) const fn time_us(&self) -> i64 {
        1_700_000_000_000_000 + 8 * self.commit_lsn.0 as i64 + self.server as i64
    }
}

/// What a table holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// Changes when the table is rewritten.
    pub(crate) storage: u64,
    /// Rows by their keys, with the block that each lies in.
    pub(crate) rows: BTreeMap<i32, (Row, u32)>,
}

/// A transaction that is open.
#[derive(Debug)]
struct Writer {
    xid: u32,
    ops: Vec<Op>,
}

/// Everything that is stored.
#[derive(Debug)]
pub(crate) struct Database {
    /// Committed transactions in the order of their commits.
    pub(crate) units: Vec<Unit>,
    pub(crate) tables: [Table; TABLES.len()],
    /// The end of the WAL.
    pub(crate) end: Lsn,
    /// Where each record of the WAL begins.
    records: Vec<Lsn>,
    /// The tables as they were behind each position at which they changed.
    past: Vec<(Lsn, [Table; TABLES.len()])>,
    /// Tables that a snapshot reads: they cannot be rewritten.
    pub(crate) read_by_snapshot: BTreeSet<usize>,
    writers: Vec<Writer>,
    /// How many of `units` a snapshot has met.
    shown: usize,
    /// The place in `units` of a commit that waits for a standby.
    waits: Option<usize>,
    pub(crate) publication: Publication,
    /// Where tables were taken out of it, by the membership that was lost.
    pub(crate) removals: BTreeMap<u32, Lsn>,
    last_oid: u32,
    /// Whether messages are written outside of transactions.
    pub(crate) has_messages: bool,
    /// How many servers have taken the place of another one.
    forks: usize,
    xid: u32,
    n: i64,
}

impl Table {
    /// How many blocks it has.
    pub(crate) fn blocks(&self) -> u32 {
        self.rows.values().map(|(_, block)| block + 1).max().unwrap_or(0)
    }

    /// Any block with room for a row, or a new one. A new version may so come to lie before or behind the old one.
    fn place(&self, random: &mut Random) -> u32 {
        loop {
            let block = random.below(u64::from(self.blocks()) + 1) as u32;
            if self.rows.values().filter(|(_, at)| *at == block).count() < ROWS_A_BLOCK {
                return block;
            }
        }
    }

    fn apply(&mut self, change: Change, random: &mut Random) {
        match change {
            Change::Insert(row) => {
                let block = self.place(random);
                self.rows.insert(row.id, (row, block));
            }
            Change::Update { before, after } => {
                let block = self.place(random);
                self.rows.remove(&before.id);
                self.rows.insert(after.id, (after, block));
            }
            Change::Delete(row) => {
                self.rows.remove(&row.id);
            }
            Change::Truncate => {
                self.rows.clear();
                self.storage += 1;
            }
        }
    }

    /// The rows as they were before this change. The blocks do not matter.
    fn undo(&mut self, change: Change) {
        match change {
            Change::Insert(row) => drop(self.rows.remove(&row.id)),
            Change::Update { before, after } => {
                self.rows.remove(&after.id);
                self.rows.insert(before.id, (before, 0));
            }
            Change::Delete(row) => drop(self.rows.insert(row.id, (row, 0))),
            Change::Truncate => {}
        }
    }

    /// `VACUUM FULL`: rows move without a change.
    fn rewrite(&mut self) {
        self.storage += 1;
        for (place, (_, block)) in self.rows.values_mut().enumerate() {
            *block = (place / ROWS_A_BLOCK) as u32;
        }
    }
}

impl Database {
    /// Tables with some rows in them.
    pub(crate) fn new(random: &mut Random) -> Self {
        let empty = |storage| Table {
            storage,
            ..Table::default()
        };
        let mut database = Self {
            units: Vec::new(),
            tables: [empty(1), empty(100), empty(200)],
            end: Lsn(1_000),
            records: Vec::new(),
            past: Vec::new(),
            read_by_snapshot: BTreeSet::new(),
            writers: Vec::new(),
            shown: 0,
            waits: None,
            publication: Publication {
                oid: Some(1),
                members: [Ok(2), Ok(3), Ok(4)],
            },
            removals: BTreeMap::new(),
            last_oid: 4,
            has_messages: true,
            forks: 0,
            xid: 700,
            n: 0,
        };
        for table in 0..TABLES.len() {
            let writer = database.begin();
            for id in 0..KEYS as i32 {
                if !random.once_in(3) {
                    let row = database.row(id);
                    database.write(writer, table, Change::Insert(row));
                }
            }
            database.commit(writer, random);
        }
        database.shown = database.units.len();
        database
    }

    /// Something happens: a transaction begins, goes on or ends, a table is rewritten, or a message is written.
    pub(crate) fn act(&mut self, random: &mut Random) {
        if self.writers.is_empty() || (self.writers.len() < WRITERS && random.once_in(6)) {
            self.begin();
        }
        let writer = random.below(self.writers.len() as u64) as usize;
        match random.below(96) {
            0..=63 => self.change(writer, random),
            // Now and then one that has done nothing.
            64..=86 if random.once_in(8) || !self.writers[writer].ops.is_empty() => self.commit(writer, random),
            64..=86 => self.change(writer, random),
            87..=90 => drop(self.writers.swap_remove(writer)),
            91..=93 if self.has_messages => self.message(),
            91..=93 => self.change(writer, random),
            94 => self.truncate(random),
            _ => self.rewrite(random),
        }
    }

    /// `VACUUM FULL` of a table, where nobody uses it.
    pub(crate) fn rewrite(&mut self, random: &mut Random) {
        let table = random.below(TABLES.len() as u64) as usize;
        if !self.is_in_use(table) {
            self.record();
            self.tables[table].rewrite();
            self.past.push((self.end, self.tables.clone()));
        }
    }

    /// Each row gets a new version, half of them with the same `big`.
    pub(crate) fn touch_all(&mut self, random: &mut Random) {
        for table in 0..TABLES.len() {
            let writer = self.begin();
            let rows: Vec<Row> = self.tables[table].rows.values().map(|(row, _)| *row).collect();
            for before in rows {
                let mut after = self.row(before.id);
                if random.once_in(2) {
                    after.big = before.big;
                }
                self.write(writer, table, Change::Update { before, after });
            }
            self.commit(writer, random);
        }
    }

    /// All transactions end.
    pub(crate) fn end_all(&mut self, random: &mut Random) {
        while !self.writers.is_empty() {
            self.commit(0, random);
        }
    }

    /// The last end of a record that is no farther than this.
    pub(crate) fn boundary(&self, lsn: Lsn) -> Lsn {
        if lsn >= self.end {
            return self.end;
        }
        let next = self.records.partition_point(|&begin| begin <= lsn);
        next.checked_sub(1).map_or(lsn, |last| self.records[last])
    }

    /// Another server takes over, which has the WAL up to there and nothing behind it. Returns what it does not have.
    pub(crate) fn fork(&mut self, at: Lsn) -> Vec<Unit> {
        self.abort_all();
        self.records.retain(|&begin| begin < at);
        let kept = self.units.partition_point(|unit| unit.end_lsn <= at);
        let gone = self.units.split_off(kept);
        self.past.retain(|(end, _)| *end <= at);
        let (_, tables) = self.past.last().expect("it has the rows of the beginning");
        self.tables.clone_from(tables);
        self.end = at;
        self.forks += 1;
        self.shown = self.units.len();
        // It goes on with the next id that it knows of.
        self.xid = self.units.iter().map(|unit| unit.xid).max().unwrap_or(700);
        gone
    }

    /// The server crashes: what was not committed is gone.
    pub(crate) fn abort_all(&mut self) {
        self.writers.clear();
        self.waits = None;
    }

    fn begin(&mut self) -> usize {
        self.xid += 1;
        let (xid, ops) = (self.xid, Vec::new());
        self.writers.push(Writer { xid, ops });
        self.writers.len() - 1
    }

    /// What a new snapshot of the database shows, and which transactions. A commit may wait for a standby: the server has
    /// sent it, and shows it only when the wait is over. Others that are committed behind it need not wait.
    pub(crate) fn look(&mut self, random: &mut Random) -> ([Table; TABLES.len()], VisibleTransactions) {
        self.wait_or_show(random);
        let mut tables = self.tables.clone();
        let mut under_way: Vec<u32> = self.writers.iter().map(|writer| writer.xid).collect();
        if let Some(unit) = self.waits.map(|index| &self.units[index]) {
            for op in unit.ops.iter().rev() {
                tables[op.table].undo(op.change);
            }
            under_way.push(unit.xid);
        }
        (tables, VisibleTransactions::new(self.xid + 1, under_way))
    }

    /// The last commit may begin to wait unless it was shown, and the one that waits may be shown.
    fn wait_or_show(&mut self, random: &mut Random) {
        let last = self.units.len() - 1;
        let is_new = last >= self.shown && !self.units[last].is_message && self.can_wait(last);
        self.shown = self.units.len();
        if self
            .waits
            .is_some_and(|index| random.once_in(2) || !self.can_wait(index))
        {
            self.waits = None;
        } else if self.waits.is_none() && is_new && random.once_in(3) {
            self.waits = Some(last);
        }
    }

    /// Whether nothing that came later had to wait for the locks of this transaction.
    fn can_wait(&self, index: usize) -> bool {
        let rows = |unit: &Unit| -> BTreeSet<(usize, i32)> {
            let rows = unit
                .ops
                .iter()
                .flat_map(|op| op.change.ids().into_iter().map(|id| (op.table, id)));
            rows.collect()
        };
        // Nobody reads a table while its TRUNCATE waits.
        let truncates = |unit: &Unit| unit.ops.iter().any(|op| matches!(op.change, Change::Truncate));
        let own = rows(&self.units[index]);
        let is_free_of = |later: &Unit| !truncates(later) && rows(later).is_disjoint(&own);
        !truncates(&self.units[index]) && self.units[index + 1..].iter().all(is_free_of)
    }

    /// A new version of a row, with a `big` of its own.
    fn row(&mut self, id: i32) -> Row {
        self.n += 1;
        let (n, big) = (self.n, self.n);
        Row { id, n, big }
    }

    /// Where the next record of the WAL begins.
    fn record(&mut self) -> Lsn {
        let begin = self.end;
        self.records.push(begin);
        self.end = Lsn(begin.0 + 8 * (1 + self.n.unsigned_abs() % 5));
        begin
    }

    fn write(&mut self, writer: usize, table: usize, change: Change) {
        let lsn = self.record();
        let sending = self.sending(table);
        self.writers[writer].ops.push(Op {
            table,
            lsn,
            change,
            sending,
        });
    }

    fn sending(&self, table: usize) -> Sending {
        match (self.publication.oid, self.publication.members[table]) {
            (None, _) => Sending::Impossible,
            (Some(_), Ok(_)) => Sending::Sent,
            (Some(_), Err(lost)) => Sending::LeftOut(lost),
        }
    }

    fn oid(&mut self) -> u32 {
        self.last_oid += 1;
        self.last_oid
    }

    /// Somebody drops the publication or makes it again, or takes a table out or puts it back.
    pub(crate) fn change_publication(&mut self, random: &mut Random) {
        let table = random.below(2) as usize;
        if self.publication.oid.is_none() {
            return self.mend_publication();
        }
        if random.once_in(3) {
            self.record();
            self.publication.oid = None;
        } else if self.publication.members[table].is_ok() {
            self.take_out(table);
        } else {
            self.record();
            self.publication.members[table] = Ok(self.oid());
        }
    }

    /// Somebody takes a table out of the publication.
    pub(crate) fn take_out(&mut self, table: usize) {
        let lsn = self.record();
        if let Ok(member) = self.publication.members[table] {
            self.removals.insert(member, lsn);
            self.publication.members[table] = Err(member);
        }
    }

    /// It is there again, and all tables are in it.
    pub(crate) fn mend_publication(&mut self) {
        self.record();
        if self.publication.oid.is_none() {
            self.publication.oid = Some(self.oid());
            self.publication.members = [(); TABLES.len()].map(|()| Ok(self.oid()));
        }
        for table in 0..TABLES.len() {
            if self.publication.members[table].is_err() {
                self.publication.members[table] = Ok(self.oid());
            }
        }
    }

    fn change(&mut self, writer: usize, random: &mut Random) {
        let table = match random.below(10) {
            0..=4 => 0,
            5..=8 => 1,
            _ => 2,
        };
        let id = random.below(KEYS) as i32;
        if self.is_locked_for(writer, table, id) {
            return;
        }
        let Some(before) = self.seen_by(writer, table, id) else {
            return self.insert(writer, table, id, random);
        };
        match random.below(10) {
            0..=6 => {
                let mut after = self.row(id);
                if random.once_in(2) {
                    after.big = before.big;
                }
                self.write(writer, table, Change::Update { before, after });
            }
            7 => {
                let other = random.below(KEYS) as i32;
                if !self.is_locked_for(writer, table, other) && self.seen_by(writer, table, other).is_none() {
                    let mut after = self.row(other);
                    after.big = before.big;
                    self.write(writer, table, Change::Update { before, after });
                }
            }
            _ => self.write(writer, table, Change::Delete(before)),
        }
    }

    /// One row, or several with one record of the WAL.
    fn insert(&mut self, writer: usize, table: usize, first: i32, random: &mut Random) {
        let lsn = self.record();
        let ids = if random.once_in(3) {
            first..first + 3
        } else {
            first..first + 1
        };
        for id in ids.filter(|&id| id < KEYS as i32) {
            if !self.is_locked_for(writer, table, id) && self.seen_by(writer, table, id).is_none() {
                let change = Change::Insert(self.row(id));
                let sending = self.sending(table);
                self.writers[writer].ops.push(Op {
                    table,
                    lsn,
                    change,
                    sending,
                });
            }
        }
    }

    fn commit(&mut self, writer: usize, random: &mut Random) {
        let Writer { xid, ops } = self.writers.swap_remove(writer);
        let commit_lsn = self.record();
        for op in &ops {
            self.tables[op.table].apply(op.change, random);
        }
        let end_lsn = self.end;
        self.past.push((end_lsn, self.tables.clone()));
        self.units.push(Unit {
            commit_lsn,
            end_lsn,
            xid,
            ops,
            is_message: false,
            server: self.forks,
        });
    }

    fn message(&mut self) {
        self.record();
        self.units.push(Unit {
            commit_lsn: Lsn(self.end.0 - 1),
            end_lsn: self.end,
            xid: 0,
            ops: Vec::new(),
            is_message: true,
            server: self.forks,
        });
    }

    /// Empties one table or two in a transaction of its own.
    fn truncate(&mut self, random: &mut Random) {
        let tables = if random.once_in(2) { 0..2 } else { 0..1 };
        if tables.clone().any(|table| self.is_in_use(table)) {
            return;
        }
        let (writer, lsn) = (self.begin(), self.record());
        for table in tables {
            let change = Change::Truncate;
            let sending = self.sending(table);
            self.writers[writer].ops.push(Op {
                table,
                lsn,
                change,
                sending,
            });
        }
        self.commit(writer, random);
    }

    /// Whether a transaction that is open has written to the table or reads it.
    fn is_in_use(&self, table: usize) -> bool {
        let mut written = self.writers.iter().flat_map(|writer| &writer.ops);
        self.read_by_snapshot.contains(&table) || written.any(|op| op.table == table)
    }

    /// Whether another transaction has written this row.
    fn is_locked_for(&self, writer: usize, table: usize, id: i32) -> bool {
        let others = self.writers.iter().enumerate().filter(|(index, _)| *index != writer);
        let ops = others.flat_map(|(_, other)| &other.ops).filter(|op| op.table == table);
        let ids: BTreeSet<i32> = ops.flat_map(|op| op.change.ids()).collect();
        ids.contains(&id)
    }

    /// The row as a transaction sees it.
    fn seen_by(&self, writer: usize, table: usize, id: i32) -> Option<Row> {
        let committed = self.tables[table].rows.get(&id).map(|(row, _)| *row);
        let own = self.writers[writer].ops.iter().filter(|op| op.table == table);
        own.fold(committed, |row, op| match op.change {
            Change::Insert(new) if new.id == id => Some(new),
            Change::Update { after, .. } if after.id == id => Some(after),
            Change::Update { before, .. } if before.id == id => None,
            Change::Delete(old) if old.id == id => None,
            _ => row,
        })
    }
}

impl Change {
    /// Keys of the rows that it touches.
    fn ids(self) -> Vec<i32> {
        match self {
            Self::Insert(row) | Self::Delete(row) => vec![row.id],
            Self::Update { before, after } => vec![before.id, after.id],
            Self::Truncate => Vec::new(),
        }
    }
}
