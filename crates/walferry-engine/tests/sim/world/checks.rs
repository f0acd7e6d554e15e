//! What must hold: nothing missing, nothing out of order, nothing repeated that was stored.

use std::collections::{BTreeMap, BTreeSet};

use walferry_engine::snapshot::SnapshotStep;
use walferry_engine::{Position, store::StoredOffset};
use walferry_pgoutput::Lsn;

use super::{
    State,
    database::{Change, Op, Row, Sending, TABLES, Unit},
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
    pub(crate) step: SnapshotStep,
    pub(crate) rows: Vec<Row>,
}

/// The records of a transaction in the order of its changes.
fn expected(unit: &Unit, plan: &Plan) -> Vec<Expected> {
    let mut made = made(unit, plan);
    made.retain(|expected| !matches!(expected.record.what, What::Change(UNSENT, ..)));
    made
}

/// Stands for a version of a row that the stream does not tell of. A snapshot may read it.
const UNSENT: char = '-';

/// The same with versions of rows that are not sent.
fn made(unit: &Unit, plan: &Plan) -> Vec<Expected> {
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
        add(
            position,
            None,
            None,
            What::Change('m', unit.end_lsn, unit.server as i64),
        );
        return records;
    }
    let mut last = Position::default();
    for op in unit.decodable() {
        if plan.publishes(op) {
            let ordinal = if last.lsn == op.lsn { last.ordinal + 1 } else { 0 };
            last = Position {
                unit: unit.commit_lsn,
                lsn: op.lsn,
                ordinal,
            };
        }
        for (id, what) in told(op, unit.time_us(), plan) {
            add(last, Some(op.table), id, what);
        }
    }
    records
}

/// The records of a change. One that moves a row to another key is a delete and a create.
fn told(op: &Op, time_us: i64, plan: &Plan) -> Vec<(Option<i32>, What)> {
    let sends = |letter| plan.sends(op, letter);
    let version = |letter, row: Row| {
        let letter = if sends(letter) { letter } else { UNSENT };
        (Some(row.id), What::Change(letter, op.lsn, row.n))
    };
    let delete = |row: Row| {
        let records = [What::Change('d', op.lsn, time_us), What::Tombstone].map(|what| (Some(row.id), what));
        let count = if plan.tombstones { 2 } else { 1 };
        records.into_iter().take(if sends('d') { count } else { 0 })
    };
    match op.change {
        Change::Insert(row) => vec![version('c', row)],
        Change::Update { before, after } if before.id != after.id => {
            delete(before).chain([version('c', after)]).collect()
        }
        Change::Update { after, .. } => vec![version('u', after)],
        Change::Delete(row) => delete(row).collect(),
        Change::Truncate if sends('t') => vec![(None, What::Change('t', op.lsn, time_us))],
        Change::Truncate => Vec::new(),
    }
}

impl State {
    /// Everything that is committed from here on is to be streamed.
    pub(crate) fn since(&self) -> Lsn {
        self.beginnings.last().map_or(Lsn::INVALID, |(_, since)| *since)
    }

    /// Existing rows are read, and the stream begins behind them.
    pub(crate) fn begin_at(&mut self, since: Lsn) {
        self.beginnings.push((self.kafka.log.len(), since));
    }

    /// Records of everything that was committed since the slot was made.
    fn expected(&self) -> impl Iterator<Item = Expected> {
        let since = self.since();
        let units = self.database.units.iter().filter(move |unit| unit.commit_lsn >= since);
        units.flat_map(|unit| expected(unit, &self.plan))
    }

    /// Whether it is part of what cannot be sent, or lies in a gap that somebody has chosen to skip.
    fn is_lost(&self, expected: &Expected) -> bool {
        let unit = expected.position.unit;
        let is_broken = |unit: &&Unit| unit.decodable().len() < unit.ops.len();
        self.skips.iter().any(|skip| (skip.from..skip.to).contains(&unit))
            || self
                .database
                .units
                .iter()
                .filter(is_broken)
                .any(|broken| broken.commit_lsn == unit)
    }

    /// What the server could not decode, was passed, and nobody has chosen to skip.
    fn passed_gaps(&self, lsn: Lsn) -> Option<String> {
        let since = self.since();
        let is_passed = |unit: &&Unit| {
            unit.commit_lsn >= since
                && unit.end_lsn <= lsn
                && unit.decodable().len() < unit.ops.len()
                && !self
                    .skips
                    .iter()
                    .any(|skip| (skip.from..skip.to).contains(&unit.commit_lsn))
        };
        let unit = self.database.units.iter().find(is_passed)?;
        Some(format!("{lsn:?} is behind a gap that nobody has skipped: {unit:?}"))
    }

    fn missing(&self, wanted: impl Fn(&Expected) -> bool) -> Vec<Record> {
        let lacks = |expected: &Expected| !self.kafka.written.contains(&expected.record);
        self.expected()
            .filter(|e| !self.is_lost(e) && wanted(e) && lacks(e))
            .map(|e| e.record)
            .collect()
    }
}

/// The transaction that a record tells of.
pub(crate) fn unit(state: &State, record: &Record) -> Option<Lsn> {
    let mut expected = state.expected().filter(|expected| expected.record == *record);
    expected.next().map(|expected| expected.position.unit)
}

/// Whether this offset says less than the one before. A snapshot that was given up, and of which nothing is known any more, says
/// nothing: all rows are read again, and the stream begins behind them.
pub(crate) fn falls(state: &State, offset: &StoredOffset) -> bool {
    let place = |offset: &StoredOffset| (offset.connect.lsn_proc.unwrap_or_default(), offset.position);
    let says_something = |offset: &&StoredOffset| !offset.connect.is_unfinished_snapshot() || offset.snapshot.is_some();
    let (processed, position) = place(offset);
    let old = state.disk.offset.as_ref().filter(says_something).map(place);
    old.is_some_and(|old| old.0 > processed || old.1 > position)
}

/// The position that is confirmed: nothing before it is asked for again.
pub(crate) fn confirmed(state: &State, lsn: Lsn) -> Option<String> {
    if let Some(fault) = state.passed_gaps(lsn) {
        return Some(fault);
    }
    let missing = state.missing(|expected| expected.end <= lsn);
    (!missing.is_empty()).then(|| format!("{lsn:?} is confirmed and not delivered: {missing:?}"))
}

/// The records that tell of these transactions.
pub(crate) fn records(units: &[Unit], plan: &Plan) -> BTreeSet<Record> {
    let all = units.iter().flat_map(|unit| made(unit, plan));
    all.filter(|expected| expected.record.what != What::Tombstone)
        .flat_map(|Expected { record, .. }| {
            let version = record.what.version().map(What::Read);
            let read = version.map(|what| Record { what, ..record });
            [Some(record), read].into_iter().flatten()
        })
        .collect()
}

/// The offset that is to be stored: it goes forward, and says no more than Kafka has.
pub(crate) fn offset(state: &State, offset: &StoredOffset) -> Vec<String> {
    let mut faults = Vec::new();
    let processed = offset.connect.lsn_proc.unwrap_or_default();
    if falls(state, offset) && !state.disk.may_fall {
        let old = state
            .disk
            .offset
            .as_ref()
            .map(|old| (old.connect.lsn_proc, old.position));
        let to = (processed, offset.position);
        faults.push(format!("the stored offset goes back from {old:?} to {to:?}"));
    }
    let place = |offset: &StoredOffset| (offset.connect.lsn_proc, offset.position);
    let is_news = state.disk.offset.as_ref().map(place) != Some(place(offset));
    if state.session.is_over || !is_news {
        // It tells of a server that is no longer there, or nothing that was not stored before.
        return faults;
    }
    // What was dealt with because a server was quiet says nothing of another one.
    let settled = offset.history.as_ref().map(|history| history.settled.0);
    let processed = match settled {
        Some(settled) if state.has_failed_over => settled.min(processed),
        _ => processed,
    };
    faults.extend(state.passed_gaps(Lsn(processed)));
    let missing = state.missing(|e| e.end.0 <= processed || Some(e.position) <= offset.position);
    if !missing.is_empty() {
        faults.push(format!("stored and not delivered: {missing:?}"));
    }
    let Some(done) = &offset.snapshot else { return faults };
    for read in &state.chunks_read {
        let SnapshotStep::Chunk { table, storage, blocks } = read.step else {
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

pub(crate) const fn read_of(table: usize, row: &Row) -> Record {
    Record {
        table: Some(table),
        id: Some(row.id),
        what: What::Read(row.n),
    }
}

/// A record that is given to the producer: nothing that was stored when the session began, and nothing twice in a session.
pub(crate) fn sent(state: &State, entry: &Entry) -> Vec<String> {
    if entry.is_gone || !matches!(entry.record.what, What::Change(..)) {
        return Vec::new();
    }
    let mut faults = Vec::new();
    if state.not_again.contains(&entry.record) {
        faults.push(format!(
            "comes again though there was time to store it: {:?}",
            entry.record
        ));
    }
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
    // What was stored because a server was quiet says nothing of another one.
    if state.session.is_within == Some((expected.position.unit, true)) {
        faults.push(format!(
            "sent behind a row of a snapshot within its transaction: {:?}",
            entry.record
        ));
    }
    let is_passed = !state.has_failed_over && Some(expected.end.0) <= stored.connect.lsn_proc;
    if is_passed || Some(expected.position) <= stored.position {
        faults.push(format!("sent again though it was stored: {:?}", entry.record));
    }
    faults
}

/// On each partition the records of one key are runs in commit order, each starting no later than one past the furthest so
/// far. A row of a snapshot stands for the change that made it, and is no older than what was sent before.
pub(crate) fn order(state: &State) -> Vec<String> {
    let mut faults = Vec::new();
    let mut committed: BTreeMap<_, Vec<What>> = BTreeMap::new();
    let mut commits: BTreeMap<_, Vec<Lsn>> = BTreeMap::new();
    // Whether each was lost in a gap of the publication.
    let mut lost: BTreeMap<_, Vec<bool>> = BTreeMap::new();
    let mut runs: BTreeMap<_, (usize, Option<usize>)> = BTreeMap::new();
    for unit in &state.database.units {
        for expected in made(unit, &state.plan) {
            let Record { table, id, what } = expected.record;
            committed.entry((table, id)).or_default().push(what);
            commits.entry((table, id)).or_default().push(unit.commit_lsn);
            lost.entry((table, id)).or_default().push(state.is_lost(&expected));
        }
    }
    let mut beginnings = state.beginnings.iter().peekable();
    // Tombstones tell nothing of themselves: they belong to the delete before them.
    let mut gone: BTreeMap<_, bool> = BTreeMap::new();
    for (number, entry) in state.kafka.log.iter().enumerate() {
        while let Some((_, since)) = beginnings.next_if(|(at, _)| *at <= number) {
            for (key, commits) in &commits {
                // The stream has nothing of what was committed before, so that it begins later.
                let furthest = &mut runs.entry(*key).or_default().0;
                *furthest = (*furthest).max(commits.partition_point(|commit| commit < since));
            }
        }
        if entry.is_late {
            continue;
        }
        let Record { table, id, what } = entry.record;
        let is_gone = gone.entry((table, id)).or_default();
        *is_gone = entry.is_gone || (*is_gone && what == What::Tombstone);
        if *is_gone {
            continue;
        }
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
        // What is not sent may be passed over.
        let lost = lost.get(&(table, id)).map_or(&[][..], Vec::as_slice);
        let next = |from: usize| {
            let is_sent = |&at: &usize| !lost[at] && !matches!(order[at], What::Change(UNSENT, ..));
            (from..order.len()).find(is_sent).unwrap_or(order.len())
        };
        let in_order = match what {
            What::Read(_) => at + 1 >= *furthest,
            _ => at <= next(*furthest) || last.is_some_and(|last| at == next(last + 1)),
        };
        if !in_order {
            faults.push(format!("out of order: {:?}", entry.record));
        }
        *last = Some(at);
        *furthest = (*furthest).max(at + 1);
    }
    faults
}

impl What {
    /// The version of a row that it tells of.
    const fn version(self) -> Option<i64> {
        match self {
            Self::Change('c' | 'u' | UNSENT, _, n) | Self::Read(n) => Some(n),
            _ => None,
        }
    }
}

/// Whether nothing that was committed is missing in the topics.
pub(crate) fn all_delivered(state: &State) -> bool {
    state.missing(|_| true).is_empty()
}

/// When everything has come to rest: all that was committed is in the topics, and the slot has moved to the server's end.
pub(crate) fn complete(state: &State) -> Vec<String> {
    let mut faults = Vec::new();
    let missing = state.missing(|_| true);
    if !missing.is_empty() {
        faults.push(format!("never delivered: {missing:?}"));
    }
    let reads_beside = state.plan.chunk_rows > 0;
    if reads_beside && (!state.has_read_beside || state.is_reading_beside()) {
        faults.push("the incremental snapshot does not end".to_owned());
    }
    if state.plan.policy.at_first_start || reads_beside {
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
    // Rows that were left out since a look had found their table in the publication: somebody was told.
    for unit in &state.database.units {
        for op in unit.ops.iter().filter(|op| TABLES[op.table].is_captured) {
            let Sending::LeftOut(lost) = op.sending else { continue };
            let removed = state.database.removals[&lost];
            // The record of the removal begins there: a look has seen it once the log was longer.
            let is_told = state.skips.iter().any(|skip| skip.seen > removed);
            if unit.commit_lsn >= state.since() && state.seen_members.contains(&lost) && !is_told {
                faults.push(format!("left out, and nobody was told: {op:?}"));
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
    let log = state.kafka.log.iter().filter(|entry| entry.counts());
    let mut mine = log.filter(|entry| entry.record.table == Some(table));
    if state.plan.withholds_updates() {
        // Any version of it will do, also under another key: what an update made need not come, but the row must.
        let is_of_it = |entry: &Entry| {
            entry
                .record
                .what
                .version()
                .is_some_and(|n| history.versions.contains(&n))
        };
        return if history.is_unsent || mine.any(is_of_it) {
            Ok(())
        } else {
            Err("in no version")
        };
    }
    let entries: Vec<&Entry> = mine.filter(|entry| entry.record.id == Some(row.id)).collect();
    if !entries.iter().any(|entry| entry.record.what.version() == Some(row.n)) {
        return Err("in its last version");
    }
    let text = wal::big(row.big);
    if !history.moved_key && !entries.iter().any(|entry| entry.big.as_ref() == Some(&text)) {
        return Err("with its TOASTed value");
    }
    Ok(())
}

/// A row since it was inserted.
#[derive(Debug, Clone, Default)]
struct History {
    versions: BTreeSet<i64>,
    /// Whether it came to its key by an update, which may leave its TOASTed value out.
    moved_key: bool,
    /// Whether it was inserted since the slot was made, and its insert is not sent.
    is_unsent: bool,
}

impl History {
    fn of(state: &State, table: usize, row: &Row) -> Self {
        let mut rows: BTreeMap<i32, Self> = BTreeMap::new();
        for unit in &state.database.units {
            for op in unit.ops.iter().filter(|op| op.table == table) {
                match op.change {
                    Change::Insert(new) => {
                        let history = Self {
                            versions: BTreeSet::from([new.n]),
                            moved_key: false,
                            is_unsent: unit.commit_lsn >= state.since() && !state.plan.sends(op, 'c'),
                        };
                        rows.insert(new.id, history);
                    }
                    Change::Update { before, after } => {
                        let mut history = rows.remove(&before.id).unwrap_or_default();
                        history.versions.insert(after.n);
                        history.moved_key |= before.id != after.id;
                        rows.insert(after.id, history);
                    }
                    _ => {}
                }
            }
        }
        rows.remove(&row.id).unwrap_or_default()
    }
}
