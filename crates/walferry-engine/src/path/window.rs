//! The window of a chunk: keeps its rows until the stream has passed the position at which they were read.
//!
//! Then the rows leave in slices, so that a change of the stream waits behind one slice and not behind the chunk. As
//! long as rows are left, changes of the stream replace them.

use std::{
    collections::{HashMap, hash_map::Entry},
    mem,
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use walferry_event::TablePlan;
use walferry_pgoutput::{Column, Operation, Tuple, TupleBuf};

use crate::{failure::Failure, path::signals::malformed};

/// How many keys of changes are remembered before the chunk's rows arrive.
const MOST_MET: usize = 20_000;
/// How many bytes of incomplete rows are remembered before the chunk's rows arrive.
const MOST_BYTES: usize = 1 << 20;

/// A row's table and the text of its key.
type Key = (Arc<str>, Vec<u8>);

/// Rows in the order in which they were read. Changes of the stream replace them.
#[derive(Default)]
pub(crate) struct Window {
    rows: Vec<Option<ChunkRow>>,
    /// How many of them have left, or were replaced before that.
    left: usize,
    /// Index of each row in `rows`.
    places: HashMap<Key, usize>,
    /// Changes since the window opened, of rows that have not arrived yet.
    met: HashMap<Key, StreamCoverage>,
    /// Bytes of the incomplete rows in `met`.
    met_bytes: usize,
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
            (self.met, self.met_bytes) = (HashMap::new(), 0);
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

    /// Adds a row.
    pub(crate) fn put(&mut self, plan: &Arc<TablePlan>, bytes: &Bytes, tuple: Range<usize>) -> Result<(), Failure> {
        let mut row = ChunkRow {
            plan: plan.clone(),
            bytes: bytes.clone(),
            tuple,
        };
        let Some(key) = plan.raw_key(row.tuple()?, None) else {
            self.table(plan.name());
            self.rows.push(Some(row));
            return Ok(());
        };
        let key = (self.table(plan.name()), key);
        match self.met.get(&key) {
            Some(StreamCoverage::Whole) => return Ok(()),
            Some(StreamCoverage::Part(part)) => match row.changed(part) {
                Some(changed) => (row, self.has_changed_rows) = (changed, true),
                None => self.is_spoiled = true,
            },
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

    /// The stream has sent a change of a row, and its record is sent.
    pub(crate) fn evict(&mut self, plan: &TablePlan, operation: &Operation<'_>) -> Evicted {
        match *operation {
            Operation::Insert { new } => match plan.raw_key(new, None) {
                Some(key) => self.evict_key(plan, key),
                // The row may be in the chunk too. There it is the same.
                None => Evicted::Known,
            },
            Operation::Delete { old } => match plan.raw_old_key(old) {
                Some(key) => self.evict_key(plan, key),
                None => Evicted::Unknown,
            },
            Operation::Update { old, new } => {
                let Some(key) = plan.raw_key(new, old) else {
                    return Evicted::Unknown;
                };
                let before = match old.map(|old| plan.raw_old_key(old)) {
                    None => None,
                    Some(None) => return Evicted::Unknown,
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

    fn evict_key(&mut self, plan: &TablePlan, key: Vec<u8>) -> Evicted {
        let key = (self.table(plan.name()), key);
        if let Some(place) = self.places.remove(&key) {
            self.rows[place] = None;
        }
        self.meet(key, StreamCoverage::Whole)
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
        match self.met.get(&key) {
            // The topic has the whole row.
            Some(StreamCoverage::Whole) => return Evicted::Known,
            Some(StreamCoverage::Part(earlier)) => match overlay(&part.tuple, &earlier.tuple) {
                Some(tuple) if earlier.columns == part.columns => part.tuple = tuple,
                _ => return Evicted::Unknown,
            },
            None => {}
        }
        self.meet(key, StreamCoverage::Part(part))
    }

    /// Remembers a change whose row may still arrive with the chunk.
    fn meet(&mut self, key: Key, met: StreamCoverage) -> Evicted {
        if !self.expects_rows {
            return Evicted::Known;
        }
        let bytes = |met: &StreamCoverage| match met {
            StreamCoverage::Whole => 0,
            StreamCoverage::Part(part) => part.tuple.len(),
        };
        self.met_bytes += bytes(&met);
        if self.met.len() >= MOST_MET && !self.met.contains_key(&key) || self.met_bytes > MOST_BYTES {
            self.met_bytes -= bytes(&met);
            return Evicted::Unknown;
        }
        if let Some(earlier) = self.met.insert(key, met) {
            self.met_bytes -= bytes(&earlier);
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
