//! The window of a chunk: keeps its rows until the stream has passed the position at which they were read.
//!
//! Then the rows leave in slices, so that a change of the stream waits behind one slice and not behind the chunk. As
//! long as rows are left, changes of the stream replace them.
//!
//! Rows are told apart by the columns that the database says are unique, never by the event's key. Where there are none,
//! rows with the same values of the columns by which the chunk is read are a group. A change of one of its rows may be a
//! change of any, so the chunk is cut off before the group, and the next one begins with it.

use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use walferry_event::TablePlan;
use walferry_pgoutput::{Column, Oid, Operation, Tuple, TupleBuf};

use crate::{
    failure::Failure,
    incremental::machine::{self, KeyColumns},
    source::VisibleTransactions,
};

/// How many keys of changes are remembered before the chunk's rows arrive.
const MOST_COVERED: usize = 20_000;
/// How many bytes of incomplete rows are remembered before the chunk's rows arrive.
const MOST_BYTES: usize = 1 << 20;

/// A row's table, and the values that tell it apart, or those of its group.
type Key = (Arc<str>, Vec<u8>);

/// Rows in the order in which they were read. Changes of the stream replace them.
#[derive(Default)]
pub(crate) struct Window {
    rows: Vec<Option<ChunkRow>>,
    /// How many of them have left, or were replaced before that.
    left: usize,
    /// Index of each row in `rows`, or of the first row of each group.
    places: HashMap<Key, usize>,
    /// The groups, and the index of the first row of each. Rows of a group follow each other.
    groups: Vec<(Key, usize)>,
    /// How rows of tables are told apart.
    identities: Vec<(Arc<str>, KeyColumns)>,
    /// The first row of those that have come of which the stream has changed the group since they were read.
    touched: Option<usize>,
    /// What was cut off and is not known elsewhere yet.
    cut: Option<Cut>,
    /// Changes since the window opened, of rows that have not arrived yet.
    coverage: HashMap<Key, StreamCoverage>,
    /// Bytes of the incomplete rows in `coverage`.
    coverage_bytes: usize,
    /// Whether rows have yet to arrive.
    expects_rows: bool,
    tables: Vec<Arc<str>>,
    is_spoiled: bool,
    /// Whether a change of the stream was applied to a row. The row may have had a later one already.
    has_changed_rows: bool,
}

/// What the stream has sent of a row.
enum StreamCoverage {
    /// All of its values.
    Whole,
    /// All values except unchanged TOAST. The topic lacks these, so the chunk's row is sent with these changes applied.
    Part(Part),
    /// These transactions have changed rows of a group.
    Group(Vec<u32>),
}

/// The end of a chunk that is not sent, but read again.
#[derive(Debug)]
pub(crate) struct Cut {
    pub(crate) table: Arc<str>,
    /// The key of the last row that stays.
    pub(crate) end: machine::Key,
    /// How many rows there were behind it.
    pub(crate) rows: usize,
}

/// A row that lacks values.
struct Part {
    columns: Arc<[(String, String)]>,
    /// The tuple, as pgoutput's TupleData.
    tuple: Vec<u8>,
}

/// A row of a chunk.
pub(crate) struct ChunkRow {
    plan: Arc<TablePlan>,
    bytes: Bytes,
    tuple: Range<usize>,
}

/// How much of a window leaves at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SliceSize {
    /// Rows.
    pub(crate) rows: usize,
    /// Bytes of the rows as they were read. The first row may have more.
    pub(crate) bytes: usize,
}

impl Default for SliceSize {
    /// Takes about a quarter of a millisecond. With twice as many rows, the stream's p99 beside a snapshot was up to 2.5 times that without.
    fn default() -> Self {
        Self {
            rows: 64,
            bytes: 64 * 1024,
        }
    }
}

/// Whether it is known to which row a change belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evicted {
    Known,
    Unknown,
}

impl ChunkRow {
    pub(crate) fn plan(&self) -> &TablePlan {
        &self.plan
    }

    pub(crate) fn tuple(&self) -> Result<Tuple<'_>, Failure> {
        Tuple::parse(&self.bytes[self.tuple.clone()]).map_err(|error| malformed(self.plan.name(), &error))
    }

    /// The row with the later change applied. `None` if the table's columns have changed.
    fn changed(&self, part: &Part) -> Option<Self> {
        let same = self
            .plan
            .row_columns()
            .eq(part.columns.iter().map(|(name, of)| (&**name, &**of)));
        let bytes = overlay(&part.tuple, &self.bytes[self.tuple.clone()]).filter(|_| same)?;
        Some(Self {
            plan: self.plan.clone(),
            tuple: 0..bytes.len(),
            bytes: bytes.into(),
        })
    }
}

impl Window {
    /// Another window will open. If it replaces a window that was not closed, that window's rows stay and are sent with
    /// the new ones.
    pub(crate) fn begin(&mut self) {
        if self.rows.is_empty() {
            self.clear();
        }
    }

    /// Sets whether rows have yet to arrive.
    pub(crate) fn expect_rows(&mut self, expects: bool) {
        self.expects_rows = expects;
        if !expects {
            (self.coverage, self.coverage_bytes) = (HashMap::new(), 0);
        }
    }

    fn table(&mut self, name: &str) -> Arc<str> {
        if let Some(table) = self.tables.iter().find(|table| &***table == name) {
            return table.clone();
        }
        let table: Arc<str> = name.into();
        self.tables.push(table.clone());
        table
    }

    /// Whether the window has rows of this table.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.tables.iter().any(|known| &**known == table)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows of this table will come, and are told apart like this. `None`: they cannot be told apart.
    pub(crate) fn identify(&mut self, table: &str, key: Option<&KeyColumns>) {
        let earlier = self.identity(table);
        if earlier == key {
            return;
        }
        let has_rows = self.rows.iter().flatten().any(|row| row.plan.name() == table);
        self.is_spoiled |= has_rows;
        self.identities.retain(|(known, _)| &**known != table);
        if let Some(key) = key {
            let table = self.table(table);
            self.identities.push((table, key.clone()));
        }
    }

    fn identity(&self, table: &str) -> Option<&KeyColumns> {
        let known = self.identities.iter().find(|(known, _)| &**known == table);
        known.map(|(_, key)| key)
    }

    /// Adds a row of a chunk that includes these transactions.
    pub(crate) fn put(
        &mut self,
        plan: &Arc<TablePlan>,
        (bytes, tuple): (&Bytes, Range<usize>),
        seen: &VisibleTransactions,
    ) -> Result<(), Failure> {
        let mut row = ChunkRow {
            plan: plan.clone(),
            bytes: bytes.clone(),
            tuple,
        };
        let table = self.table(plan.name());
        let tuple = row.tuple()?;
        let identity = self.identity(plan.name());
        let is_unique = identity.is_none_or(|identity| identity.is_unique);
        let Some(key) = identity.and_then(|identity| plan.raw_values(&identity.identity, tuple, None)) else {
            self.rows.push(Some(row));
            return Ok(());
        };
        let key = (table, key);
        if !is_unique {
            self.put_in_group(key, row, seen);
            return Ok(());
        }
        match self.coverage.get(&key) {
            Some(StreamCoverage::Whole) => return Ok(()),
            Some(StreamCoverage::Part(part)) => match row.changed(part) {
                Some(changed) => (row, self.has_changed_rows) = (changed, true),
                None => self.is_spoiled = true,
            },
            Some(StreamCoverage::Group(_)) => self.is_spoiled = true,
            None => {}
        }
        match self.places.entry(key) {
            // Of rows with the same key, the last replaces the first, as in Debezium.
            Entry::Occupied(place) if *place.get() >= self.left => self.rows[*place.get()] = Some(row),
            // The first has left already.
            Entry::Occupied(mut place) => {
                place.insert(self.rows.len());
                self.rows.push(Some(row));
            }
            Entry::Vacant(place) => {
                place.insert(self.rows.len());
                self.rows.push(Some(row));
            }
        }
        Ok(())
    }

    fn put_in_group(&mut self, key: Key, row: ChunkRow, seen: &VisibleTransactions) {
        let place = self.rows.len();
        let is_touched = match self.coverage.get(&key) {
            Some(StreamCoverage::Group(xids)) => xids.iter().any(|xid| !seen.shows(*xid)),
            Some(StreamCoverage::Whole | StreamCoverage::Part(_)) => true,
            None => false,
        };
        if is_touched {
            self.touched.get_or_insert(place);
        }
        if let Entry::Vacant(entry) = self.places.entry(key.clone()) {
            entry.insert(place);
            self.groups.push((key, place));
        }
        self.rows.push(Some(row));
    }

    /// All rows of a chunk have come.
    pub(crate) fn arrived(&mut self) {
        self.expect_rows(false);
        if let Some(place) = self.touched.take() {
            self.cut_off(place);
        }
    }

    /// Drops all rows from a group on.
    fn cut_off(&mut self, place: usize) {
        let Some(group) = self.groups.iter().rposition(|(_, first)| *first <= place) else {
            self.is_spoiled = true;
            return;
        };
        let (table, first) = (self.groups[group].0.0.clone(), self.groups[group].1);
        let before = group.checked_sub(1).map(|before| &self.groups[before].0);
        let end = before
            .filter(|(known, _)| *known == table)
            .zip(self.identity(&table))
            .and_then(|((_, values), identity)| key_of(values, identity));
        let is_of_table = |row: &ChunkRow| row.plan.name() == &*table;
        let is_alone = self.rows[first..].iter().flatten().all(is_of_table);
        // While rows are awaited, they are those behind the last row that is here.
        let Some(end) = end.filter(|_| is_alone && !self.expects_rows) else {
            self.is_spoiled = true;
            return;
        };
        let earlier = self.cut.as_ref().map_or(0, |cut| cut.rows);
        let rows = self.rows.len() - first + earlier;
        self.rows.truncate(first);
        self.left = self.left.min(first);
        for (key, _) in self.groups.drain(group..) {
            self.places.remove(&key);
        }
        self.cut = Some(Cut { table, end, rows });
    }

    /// What was cut off since this was last called.
    pub(crate) const fn take_cut(&mut self) -> Option<Cut> {
        self.cut.take()
    }

    /// The stream has sent a change of a row, and its record is sent. `is_included`: the rows that are here were read with the change's
    /// transaction, `xid`.
    pub(crate) fn evict(
        &mut self,
        plan: &TablePlan,
        operation: &Operation<'_>,
        (xid, is_included): (Option<u32>, bool),
    ) -> Evicted {
        let Some(identity) = self.identity(plan.name()).cloned() else {
            let is_insert = matches!(operation, Operation::Insert { .. });
            let has_rows = self.rows.iter().flatten().any(|row| row.plan.name() == plan.name());
            return match is_insert || !has_rows && !self.expects_rows {
                true => Evicted::Known,
                false => Evicted::Unknown,
            };
        };
        match identity.is_unique {
            true => self.evict_row(plan, &identity.identity, operation),
            false => self.evict_groups(plan, &identity.identity, operation, (xid, is_included)),
        }
    }

    fn evict_row(&mut self, plan: &TablePlan, columns: &[String], operation: &Operation<'_>) -> Evicted {
        match *operation {
            Operation::Insert { new } => match plan.raw_values(columns, new, None) {
                Some(key) => self.evict_key(plan, key),
                // The row may be in the chunk too. There it is the same.
                None => Evicted::Known,
            },
            Operation::Delete { old } => match plan.raw_old_values(columns, old) {
                Some(key) => self.evict_key(plan, key),
                None => Evicted::Unknown,
            },
            Operation::Update { old, new } => {
                let Some(key) = plan.raw_values(columns, new, old) else {
                    return Evicted::Unknown;
                };
                let before = match old.map(|old| plan.raw_old_values(columns, old)) {
                    None if plan.is_identified_by(columns) => None,
                    // It may have been another row.
                    None | Some(None) => return Evicted::Unknown,
                    Some(Some(before)) => Some(before).filter(|before| *before != key),
                };
                if plan.lacks_values(new, old) {
                    return match before {
                        // The missing values may be those of either row.
                        Some(_) => Evicted::Unknown,
                        None => self.complete(plan, key, new),
                    };
                }
                if let Some(before) = before
                    && self.evict_key(plan, before) == Evicted::Unknown
                {
                    return Evicted::Unknown;
                }
                self.evict_key(plan, key)
            }
        }
    }

    /// Takes groups out of the window. Rows of theirs that were read with the change are as new as it.
    fn evict_groups(
        &mut self,
        plan: &TablePlan,
        columns: &[String],
        operation: &Operation<'_>,
        (xid, is_included): (Option<u32>, bool),
    ) -> Evicted {
        let group = match *operation {
            // Older rows of its group are not affected.
            Operation::Insert { .. } => return Evicted::Known,
            Operation::Delete { old } => plan.raw_old_values(columns, old),
            // The topic lacks a value of the row, and nobody can say which row of the chunk has it.
            Operation::Update { old, new } if plan.lacks_values(new, old) => None,
            Operation::Update { old: Some(old), .. } => plan.raw_old_values(columns, old),
            Operation::Update { old: None, new } => {
                let is_same = plan.is_identified_by(columns);
                plan.raw_values(columns, new, None).filter(|_| is_same)
            }
        };
        let (Some(group), Some(xid)) = (group, xid) else {
            return Evicted::Unknown;
        };
        let key = (self.table(plan.name()), group);
        if let Some(first) = self.places.get(&key).copied().filter(|_| !is_included) {
            let next = self.groups.iter().find(|(_, place)| *place > first);
            let end = next.map_or(self.rows.len(), |(_, place)| *place);
            if self.rows[first..end].iter().any(Option::is_some) {
                self.cut_off(first);
            }
        }
        let mut xids = match self.coverage.get(&key) {
            Some(StreamCoverage::Group(xids)) => xids.clone(),
            _ => Vec::new(),
        };
        if xids.last() != Some(&xid) {
            xids.push(xid);
        }
        self.remember(key, StreamCoverage::Group(xids))
    }

    fn evict_key(&mut self, plan: &TablePlan, key: Vec<u8>) -> Evicted {
        let key = (self.table(plan.name()), key);
        if let Some(place) = self.places.remove(&key) {
            self.rows[place] = None;
        }
        self.remember(key, StreamCoverage::Whole)
    }

    /// The stream has sent a row without its unchanged TOAST values. The topic gets them only from the chunk's row, so
    /// that row is still sent, with the change applied.
    fn complete(&mut self, plan: &TablePlan, key: Vec<u8>, new: Tuple<'_>) -> Evicted {
        let key = (self.table(plan.name()), key);
        let is_here = self.places.get(&key).is_some_and(|place| self.rows[*place].is_some());
        if !is_here && !self.expects_rows {
            // It is not in this chunk.
            return Evicted::Known;
        }
        let Ok(tuple) = TupleBuf::new(new.columns()) else {
            return Evicted::Unknown;
        };
        let columns = plan
            .row_columns()
            .map(|(name, of)| (name.to_owned(), of.to_owned()))
            .collect();
        let mut part = Part {
            columns,
            tuple: tuple.to_bytes(),
        };
        if let Some(row) = self.places.get(&key).and_then(|place| self.rows[*place].as_mut()) {
            match row.changed(&part) {
                Some(changed) => (*row, self.has_changed_rows) = (changed, true),
                None => return Evicted::Unknown,
            }
        }
        match self.coverage.get(&key) {
            // The topic has the whole row.
            Some(StreamCoverage::Whole) => return Evicted::Known,
            Some(StreamCoverage::Group(_)) => return Evicted::Unknown,
            Some(StreamCoverage::Part(earlier)) => match overlay(&part.tuple, &earlier.tuple) {
                Some(tuple) if earlier.columns == part.columns => part.tuple = tuple,
                _ => return Evicted::Unknown,
            },
            None => {}
        }
        self.remember(key, StreamCoverage::Part(part))
    }

    /// Remembers a change whose row may still arrive with the chunk.
    fn remember(&mut self, key: Key, coverage: StreamCoverage) -> Evicted {
        if !self.expects_rows {
            return Evicted::Known;
        }
        let bytes = |coverage: &StreamCoverage| match coverage {
            StreamCoverage::Whole => 0,
            StreamCoverage::Part(part) => part.tuple.len(),
            StreamCoverage::Group(xids) => size_of_val(&**xids),
        };
        self.coverage_bytes += bytes(&coverage);
        if self.coverage.len() >= MOST_COVERED && !self.coverage.contains_key(&key) || self.coverage_bytes > MOST_BYTES
        {
            self.coverage_bytes -= bytes(&coverage);
            return Evicted::Unknown;
        }
        if let Some(earlier) = self.coverage.insert(key, coverage) {
            self.coverage_bytes -= bytes(&earlier);
        }
        Evicted::Known
    }

    /// Marks the rows as useless: the chunk must be read again.
    pub(crate) const fn spoil(&mut self) {
        self.is_spoiled = true;
    }

    pub(crate) const fn is_spoiled(&self) -> bool {
        self.is_spoiled
    }

    /// Whether rows are no longer as they were read.
    pub(crate) const fn has_changed_rows(&self) -> bool {
        self.has_changed_rows
    }

    /// Whether more rows are left than a slice has.
    pub(crate) fn exceeds(&self, size: SliceSize) -> bool {
        self.rows[self.slice(size)..].iter().any(Option::is_some)
    }

    /// Takes the rows of one slice, in order.
    pub(crate) fn take_slice(&mut self, size: SliceSize) -> Vec<ChunkRow> {
        let end = self.slice(size);
        let slice = &mut self.rows[self.left..end];
        self.left = end;
        slice.iter_mut().filter_map(Option::take).collect()
    }

    /// The end of the next slice, as an index into `rows`.
    fn slice(&self, size: SliceSize) -> usize {
        let (mut rows, mut bytes) = (0, 0);
        let left = self.rows.iter().enumerate().skip(self.left);
        for (index, row) in left.filter_map(|(index, row)| Some((index, row.as_ref()?))) {
            rows += 1;
            bytes += row.tuple.len();
            if rows > size.rows || (rows > 1 && bytes > size.bytes) {
                return index;
            }
        }
        self.rows.len()
    }

    /// Takes the remaining rows, in order. The window is empty afterwards.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = ChunkRow> + use<> {
        let rows = mem::take(&mut self.rows);
        self.clear();
        rows.into_iter().flatten()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self {
            expects_rows: self.expects_rows,
            ..Self::default()
        };
    }
}

/// The key of the rows of a group. Its rows are read in the order of the columns that tell it from others.
fn key_of(mut values: &[u8], identity: &KeyColumns) -> Option<machine::Key> {
    let mut texts = Vec::new();
    for column in &identity.order {
        let (kind, after) = values.split_first()?;
        values = after;
        let text = match kind {
            0 => None,
            _ => {
                let (length, after) = values.split_first_chunk()?;
                let (text, after) = after.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)?;
                values = after;
                Some(String::from_utf8_lossy(text).into_owned())
            }
        };
        texts.push((text, Oid(column.type_oid)));
    }
    Some(machine::Key::new(texts))
}

/// Fills the missing values of `row` from an earlier version. `None` if their numbers of columns differ.
fn overlay(row: &[u8], below: &[u8]) -> Option<Vec<u8>> {
    let (row, below) = (Tuple::parse(row).ok()?, Tuple::parse(below).ok()?);
    if row.column_count() != below.column_count() {
        return None;
    }
    let columns = row.columns().zip(below.columns()).map(|(value, below)| match value {
        Column::Unchanged => below,
        value => value,
    });
    TupleBuf::new(columns).ok().map(|tuple| tuple.to_bytes())
}

/// The failure for a chunk's row that cannot be decoded.
pub(crate) fn malformed(table: &str, error: &walferry_pgoutput::DecodeError) -> Failure {
    Failure::stop(
        walferry_diagnosis::Kind::MalformedSnapshot,
        format!("a row of {table} cannot be decoded: {error}"),
        "this is a bug: please report it",
    )
}

#[cfg(test)]
mod tests {
    use crate::incremental::machine::KeyColumn;
    use walferry_config::{Connector, Findings, Nowhere, Submitted, Worker};
    use walferry_event::EventSettings;
    use walferry_pgoutput::{OldTuple, Relation, RelationColumn, ReplicaIdentity};

    use super::*;

    const XID: u32 = 700;

    /// A table `t` with an id, a customer and a long text. Its events have the customer as their key.
    fn plan(replica_identity: &[&str]) -> Arc<TablePlan> {
        let text = r#"{"name": "c", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput", "database.hostname": "db", "database.user": "u", "database.dbname": "db",
            "topic.prefix": "s", "table.include.list": "public.t", "message.key.columns": "public.t:customer"}"#;
        let (submitted, _) = Submitted::read(text).unwrap();
        let (connector, findings) =
            Connector::read(&submitted, None, &Worker::default(), &Nowhere, &|_| Findings::default());
        let connector = connector.unwrap_or_else(|| panic!("{findings:?}"));
        let settings = Arc::new(EventSettings::new(&connector, "0", "run"));
        let column = |name: &str| RelationColumn {
            name: name.into(),
            part_of_key: replica_identity.contains(&name),
            type_oid: Oid(25),
            type_modifier: -1,
        };
        let relation = Relation {
            oid: Oid(1),
            namespace: "public".into(),
            name: "t".into(),
            replica_identity: ReplicaIdentity::Default,
            columns: ["id", "customer", "note"].map(column).to_vec(),
        };
        Arc::new(TablePlan::new(&settings, &relation, None).unwrap())
    }

    fn read_by(name: &str, is_unique: bool) -> KeyColumns {
        let column = KeyColumn {
            name: name.to_owned(),
            type_name: "text".to_owned(),
            type_oid: 25,
            version: String::new(),
        };
        KeyColumns {
            order: vec![column],
            identity: vec![name.to_owned()],
            is_unique,
        }
    }

    type Row<'a> = [&'a str; 3];

    /// A value that the stream leaves out.
    const UNCHANGED: &str = "unchanged";

    fn tuple(row: Row<'_>) -> TupleBuf {
        let column = |text: &'static str| match text {
            UNCHANGED => Column::Unchanged,
            "" => Column::Null,
            text => Column::Text(text.as_bytes()),
        };
        let leaked = row.map(|text| &*text.to_owned().leak());
        TupleBuf::new(leaked.map(column)).unwrap()
    }

    fn put(window: &mut Window, plan: &Arc<TablePlan>, rows: &[Row<'_>]) {
        let seen = VisibleTransactions::new(XID, []);
        for row in rows {
            let bytes = Bytes::from(tuple(*row).to_bytes());
            let range = 0..bytes.len();
            window.put(plan, (&bytes, range), &seen).unwrap();
        }
        window.arrived();
    }

    fn left(window: &mut Window) -> Vec<[String; 3]> {
        let text = |column: Column<'_>| match column {
            Column::Text(text) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        };
        let row = |row: ChunkRow| {
            let columns: Vec<String> = row.tuple().unwrap().columns().map(text).collect();
            columns.try_into().unwrap()
        };
        window.take().map(row).collect()
    }

    fn window(key: &KeyColumns) -> Window {
        let mut window = Window::default();
        window.identify("public.t", Some(key));
        window.expect_rows(true);
        window
    }

    const ORDERS: [Row<'_>; 4] = [
        ["1", "a", "note1"],
        ["2", "a", "note2"],
        ["3", "b", "note3"],
        ["4", "b", "note4"],
    ];

    #[test]
    fn rows_with_the_same_event_key_are_replaced_one_by_one() {
        for is_early in [false, true] {
            let plan = plan(&["id"]);
            let mut window = window(&read_by("id", true));
            if !is_early {
                put(&mut window, &plan, &ORDERS);
            }
            let new = tuple(["2", "a", "new"]);
            let update = Operation::Update {
                old: None,
                new: new.as_tuple(),
            };
            assert_eq!(window.evict(&plan, &update, (Some(XID), false)), Evicted::Known);
            // Of order 3, the stream does not bring the note.
            let new = tuple(["3", "c", UNCHANGED]);
            let update = Operation::Update {
                old: None,
                new: new.as_tuple(),
            };
            assert_eq!(window.evict(&plan, &update, (Some(XID), false)), Evicted::Known);
            if is_early {
                put(&mut window, &plan, &ORDERS);
            }
            let expected = [["1", "a", "note1"], ["3", "c", "note3"], ["4", "b", "note4"]];
            assert_eq!(left(&mut window), expected, "early: {is_early}");
            assert!(!window.is_spoiled());
        }
    }

    /// The replica identity is another index: nobody knows which row it was before.
    #[test]
    fn an_update_that_does_not_tell_its_row_is_not_matched() {
        let plan = plan(&["note"]);
        let mut window = window(&read_by("id", true));
        put(&mut window, &plan, &ORDERS);
        let new = tuple(["2", "a", "note1"]);
        let update = Operation::Update {
            old: None,
            new: new.as_tuple(),
        };
        assert_eq!(window.evict(&plan, &update, (Some(XID), false)), Evicted::Unknown);
        let old = tuple(["", "", "note1"]);
        let delete = Operation::Delete {
            old: OldTuple::Key(old.as_tuple()),
        };
        assert_eq!(window.evict(&plan, &delete, (Some(XID), false)), Evicted::Unknown);
    }

    #[test]
    fn a_change_of_a_group_cuts_the_chunk_off_before_it() {
        let plan = plan(&["id", "customer", "note"]);
        let key = read_by("customer", false);
        let delete = |id: &'static str, customer: &'static str| tuple([id, customer, ""]);
        for is_early in [false, true] {
            for (customer, includes, expected) in [("b", false, 2), ("b", true, 4), ("x", false, 4)] {
                let mut window = window(&key);
                let old = delete("4", customer);
                let delete = Operation::Delete {
                    old: OldTuple::Full(old.as_tuple()),
                };
                let xid = if includes { XID - 1 } else { XID };
                if !is_early {
                    put(&mut window, &plan, &ORDERS);
                }
                assert_eq!(window.evict(&plan, &delete, (Some(xid), includes)), Evicted::Known);
                if is_early {
                    put(&mut window, &plan, &ORDERS);
                }
                let cut = window.take_cut();
                assert_eq!(left(&mut window).len(), expected, "{customer} {includes} {is_early}");
                assert_eq!(cut.is_some(), expected < 4);
                if let Some(cut) = cut {
                    assert_eq!(cut.end.texts().collect::<Vec<_>>(), [Some("a")]);
                    assert_eq!(cut.rows, 2);
                }
            }
        }
        // Nothing is left before the first group.
        let mut window = window(&key);
        put(&mut window, &plan, &ORDERS);
        let (old, new) = (delete("1", "a"), tuple(["1", "b", "moved"]));
        let update = Operation::Update {
            old: Some(OldTuple::Full(old.as_tuple())),
            new: new.as_tuple(),
        };
        assert_eq!(window.evict(&plan, &update, (Some(XID), false)), Evicted::Known);
        assert!(window.take_cut().is_none() && window.is_spoiled());
    }

    /// What the stream brings of a new row says nothing of the older ones of its group.
    #[test]
    fn a_new_row_of_a_group_replaces_none() {
        let plan = plan(&["id", "customer", "note"]);
        let mut window = window(&read_by("customer", false));
        put(&mut window, &plan, &ORDERS);
        let new = tuple(["5", "b", "note5"]);
        let insert = Operation::Insert { new: new.as_tuple() };
        assert_eq!(window.evict(&plan, &insert, (Some(XID), false)), Evicted::Known);
        assert!(window.take_cut().is_none());
        assert_eq!(left(&mut window).len(), 4);
    }
}
