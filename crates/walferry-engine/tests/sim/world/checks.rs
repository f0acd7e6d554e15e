//! What must hold: nothing missing, nothing out of order, nothing repeated that was stored.

use std::collections::{BTreeMap, BTreeSet};

use walferry_engine::{Position, store::StoredOffset};
use walferry_pgoutput::Lsn;
use walferry_snapshot::Step;

use super::{
    State,
    database::{Change, Row, TABLES, Unit},
    plan::Plan,
    record::{Entry, Record, What},
    wal,
};

/// A record that the topics are to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    pub(crate) record: Record,
    pub(crate) position: Position,
    /// LSN behind its transaction.
    pub(crate) end: Lsn,
}

/// A chunk of the snapshot that is being read, with its rows.
#[derive(Debug)]
pub(crate) struct ChunkRead {
    /// Index into [`TABLES`].
    pub(crate) index: usize,
    pub(crate) step: Step,
    pub(crate) rows: Vec<Row>,
}

/// The records of a transaction in the order of its changes.
fn expected(unit: &Unit, plan: &Plan) -> Vec<Expected> {
    let mut records = Vec::new();
    let mut add = |position, table, id, what| {
        records.push(Expected {
            record: Record { table, id, what },
            position,
            end: unit.end_lsn,
        });
    };
    if unit.is_message {
        let position = Position {
            unit: unit.commit_lsn,
            lsn: unit.end_lsn,
            ordinal: 0,
        };
        add(position, None, None, What::Change('m', unit.end_lsn, 0));
        return records;
    }
    let mut last: Option<Position> = None;
    for op in unit.ops.iter().filter(|op| plan.publishes(op.change)) {
        let ordinal = last
            .filter(|last| last.lsn == op.lsn)
            .map_or(0, |last| last.ordinal + 1);
        let position = Position {
            unit: unit.commit_lsn,
            lsn: op.lsn,
            ordinal,
        };
        last = Some(position);
        if !plan.sends(op) {
            continue;
        }
        let mut add = |id, what| add(position, Some(op.table), id, what);
        let mut delete = |id| {
            add(Some(id), What::Change('d', op.lsn, 0));
            if plan.tombstones {
                add(Some(id), What::Tombstone);
            }
        };
        match op.change {
            Change::Insert(row) => add(Some(row.id), What::Change('c', op.lsn, row.n)),
            Change::Update { before, after } if before.id != after.id => {
                delete(before.id);
                add(Some(after.id), What::Change('c', op.lsn, after.n));
            }
            Change::Update { after, .. } => add(Some(after.id), What::Change('u', op.lsn, after.n)),
            Change::Delete(row) => delete(row.id),
            Change::Truncate => add(None, What::Change('t', op.lsn, 0)),
        }
    }
    records
}

impl State {
    /// Records of everything that was committed since the slot was made.
    fn expected(&self) -> impl Iterator<Item = Expected> {
        let units = self.database.units.iter().filter(|unit| unit.commit_lsn >= self.since);
        units.flat_map(|unit| expected(unit, &self.plan))
    }

    fn missing(&self, wanted: impl Fn(&Expected) -> bool) -> Vec<Record> {
        let lacks = |expected: &Expected| !self.kafka.written.contains(&expected.record);
        self.expected()
            .filter(|e| wanted(e) && lacks(e))
            .map(|e| e.record)
            .collect()
    }
}

/// The offset that is to be stored: it goes forward, and says no more than Kafka has.
pub(crate) fn offset(state: &State, offset: &StoredOffset) -> Vec<String> {
    let mut faults = Vec::new();
    let processed = offset.connect.lsn_proc.unwrap_or_default();
    if let Some(old) = state.disk.offset.as_ref().filter(|_| !state.disk.begins_anew)
        && (old.connect.lsn_proc.unwrap_or_default() > processed || old.position > offset.position)
    {
        let (from, to) = ((old.connect.lsn_proc, old.position), (processed, offset.position));
        faults.push(format!("the stored offset goes back from {from:?} to {to:?}"));
    }
    let missing = state.missing(|e| e.end.0 <= processed || Some(e.position) <= offset.position);
    if !missing.is_empty() {
        faults.push(format!("stored and not delivered: {missing:?}"));
    }
    let Some(done) = &offset.snapshot else { return faults };
    for read in &state.chunks_read {
        let Step::Chunk { table, storage, blocks } = read.step else {
            continue;
        };
        let left = done.left(table, storage, blocks.end.min(1000), 1);
        if left
            .iter()
            .any(|left| left.first < blocks.end && blocks.first < left.end)
        {
            continue;
        }
        let lacks = |row: &&Row| !state.kafka.written.contains(&read_of(read.index, row));
        let missing: Vec<&Row> = read.rows.iter().filter(lacks).collect();
        if !missing.is_empty() {
            faults.push(format!("stored as read and not delivered: {missing:?} of {blocks:?}"));
        }
    }
    faults
}

const fn read_of(table: usize, row: &Row) -> Record {
    Record {
        table: Some(table),
        id: Some(row.id),
        what: What::Read(row.n),
    }
}

/// A record that is given to the producer: nothing that was stored when the session began, and nothing twice in a session.
pub(crate) fn sent(state: &State, entry: &Entry) -> Vec<String> {
    let What::Change(..) = entry.record.what else {
        return Vec::new();
    };
    let mut faults = Vec::new();
    if state.session.sent.contains(&entry.record) {
        faults.push(format!("sent twice by one session: {:?}", entry.record));
    }
    let stored = &state.session.stored;
    let Some(expected) = state.expected().find(|expected| expected.record == entry.record) else {
        faults.push(format!(
            "sent, and not committed since the slot was made: {:?}",
            entry.record
        ));
        return faults;
    };
    if Some(expected.position) <= stored.position || Some(expected.end.0) <= stored.connect.lsn_proc {
        faults.push(format!("sent again though it was stored: {:?}", entry.record));
    }
    faults
}

/// On each partition the records of one key are runs in commit order, each starting no later than one past the furthest so
/// far. A row of a snapshot stands for the change that made it, and is no older than what was sent before.
pub(crate) fn order(state: &State) -> Vec<String> {
    let mut faults = Vec::new();
    let mut committed: BTreeMap<_, Vec<What>> = BTreeMap::new();
    let mut runs: BTreeMap<_, (usize, Option<usize>)> = BTreeMap::new();
    for unit in &state.database.units {
        for expected in made(unit, &state.plan) {
            let Record { table, id, what } = expected.record;
            let order = committed.entry((table, id)).or_default();
            order.push(what);
            if unit.commit_lsn < state.since {
                // The stream has nothing of it, so that it begins later.
                runs.entry((table, id)).or_default().0 = order.len();
            }
        }
    }
    for entry in state.kafka.log.iter().filter(|entry| !entry.is_late) {
        let Record { table, id, what } = entry.record;
        let order = committed.get(&(table, id)).map_or(&[][..], Vec::as_slice);
        let (furthest, last) = runs.entry((table, id)).or_default();
        let at = match what {
            What::Other => continue,
            What::Tombstone => last.map(|last| last + 1).filter(|&at| order.get(at) == Some(&what)),
            What::Read(n) => order.iter().position(|what| what.version() == Some(n)),
            What::Change(..) => order.iter().position(|known| *known == what),
        };
        let Some(at) = at else {
            faults.push(format!("in the wrong place, or never committed: {:?}", entry.record));
            continue;
        };
        let in_order = match what {
            What::Read(_) => at + 1 >= *furthest,
            _ => at <= *furthest || *last == Some(at.wrapping_sub(1)),
        };
        if !in_order {
            faults.push(format!("out of order: {:?}", entry.record));
        }
        *last = Some(at);
        *furthest = (*furthest).max(at + 1);
    }
    faults
}

/// The changes of a transaction, also those that the topics do not get: a snapshot may read what they made.
fn made(unit: &Unit, plan: &Plan) -> Vec<Expected> {
    let sent = expected(unit, plan);
    let mut all = Vec::new();
    let mut rest = sent.into_iter().peekable();
    for op in &unit.ops {
        let hidden = match op.change {
            Change::Insert(row) | Change::Update { after: row, .. } if !plan.sends(op) => Some(row),
            _ => None,
        };
        if let Some(row) = hidden {
            let record = Record {
                table: Some(op.table),
                id: Some(row.id),
                what: What::Change('-', op.lsn, row.n),
            };
            all.push(Expected {
                record,
                position: Position::default(),
                end: unit.end_lsn,
            });
        } else if plan.sends(op) {
            let first = rest.peek().map(|expected| expected.position);
            while let Some(expected) = rest.next_if(|expected| Some(expected.position) == first) {
                all.push(expected);
            }
        }
    }
    all.extend(rest);
    all
}

impl What {
    /// The version of a row that it tells of.
    const fn version(self) -> Option<i64> {
        match self {
            Self::Change('c' | 'u' | '-', _, n) | Self::Read(n) => Some(n),
            _ => None,
        }
    }
}

/// When everything has come to rest: all that was committed is in the topics, and the slot has moved to the server's end.
pub(crate) fn complete(state: &State) -> Vec<String> {
    let mut faults = Vec::new();
    let missing = state.missing(|_| true);
    if !missing.is_empty() {
        faults.push(format!("never delivered: {missing:?}"));
    }
    if state.plan.policy.at_first_start {
        for (index, table) in TABLES.iter().enumerate().filter(|(_, table)| table.is_captured) {
            for (row, _) in state.database.tables[index].rows.values() {
                faults.extend(
                    row_arrived(state, index, row)
                        .err()
                        .map(|what| format!("row {} of {} has never arrived: {what}", row.id, table.name)),
                );
            }
        }
    }
    let confirmed = state.server.slot.map(|slot| slot.confirmed);
    if confirmed < Some(state.database.end) {
        let end = state.database.end;
        faults.push(format!("the slot stays at {confirmed:?}, and the server is at {end}"));
    }
    faults
}

/// Whether the topic has a row that the table holds in the end.
fn row_arrived(state: &State, table: usize, row: &Row) -> Result<(), &'static str> {
    let history = History::of(state, table, row);
    let mine =
        |entry: &&Entry| (entry.record.table, entry.record.id, entry.is_late) == (Some(table), Some(row.id), false);
    let entries: Vec<&Entry> = state.kafka.log.iter().filter(mine).collect();
    let has = |n: i64| entries.iter().any(|entry| entry.record.what.version() == Some(n));
    if state.plan.withholds_updates() {
        // Any version of it will do: what an update made need not come, but the row must.
        let arrived = history.versions.iter().any(|&n| has(n));
        return if arrived || history.is_unsent {
            Ok(())
        } else {
            Err("in no version")
        };
    }
    if !has(row.n) {
        return Err("in its last version");
    }
    let text = wal::big(row.big);
    if !history.moved_key && !entries.iter().any(|entry| entry.big.as_ref() == Some(&text)) {
        return Err("with its TOASTed value");
    }
    Ok(())
}

/// A row since it was inserted.
struct History {
    versions: BTreeSet<i64>,
    /// Whether it came to its key by an update, which may leave its TOASTed value out.
    moved_key: bool,
    /// Whether it was inserted since the slot was made, and its insert is not sent.
    is_unsent: bool,
}

impl History {
    fn of(state: &State, table: usize, row: &Row) -> Self {
        let mut history = Self {
            versions: BTreeSet::new(),
            moved_key: false,
            is_unsent: false,
        };
        for unit in &state.database.units {
            for op in unit.ops.iter().filter(|op| op.table == table) {
                let (new, moved_key) = match op.change {
                    Change::Insert(new) => (new, false),
                    Change::Update { before, after } if before.id != after.id => (after, true),
                    Change::Update { after, .. } if after.id == row.id => {
                        history.versions.insert(after.n);
                        continue;
                    }
                    _ => continue,
                };
                if new.id == row.id {
                    history = Self {
                        versions: BTreeSet::from([new.n]),
                        moved_key,
                        is_unsent: unit.commit_lsn >= state.since && !state.plan.sends(op),
                    };
                }
            }
        }
        history
    }
}
