//! The window of a chunk: its rows until the stream has passed the place where they were read.

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

/// How many keys are remembered that the stream has brought before the chunk's rows are here.
const MOST_MET: usize = 20_000;
/// How many bytes of incomplete rows are remembered meanwhile.
const MOST_BYTES: usize = 1 << 20;

/// A row's table and the text of its key.
type Key = (Arc<str>, Vec<u8>);

/// Rows in the order in which they were read. What the stream brings of them takes their place.
#[derive(Default)]
pub(crate) struct Window {
    rows: Vec<Option<Row>>,
    /// Where the row of a table and key is.
    places: HashMap<Key, usize>,
    /// What the stream has brought since the window opened, of rows that are not here yet.
    met: HashMap<Key, Met>,
    /// Bytes of what is in there.
    met_bytes: usize,
    /// Whether rows are still to come.
    expects_rows: bool,
    tables: Vec<Arc<str>>,
    is_spoiled: bool,
}

/// What the stream has brought of a row.
enum Met {
    /// All of it.
    Whole,
    /// All but long values that have not changed: the topic lacks those, so that the chunk's row is sent with them.
    Part(Part),
}

/// A row that lacks values.
struct Part {
    columns: Arc<[(String, String)]>,
    /// As pgoutput's TupleData.
    tuple: Vec<u8>,
}

/// A row of a chunk.
pub(crate) struct Row {
    plan: Arc<TablePlan>,
    bytes: Bytes,
    tuple: Range<usize>,
}

/// Whether it is known which row a change belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Evicted {
    Known,
    Unknown,
}

impl Row {
    pub(crate) fn plan(&self) -> &TablePlan {
        &self.plan
    }

    pub(crate) fn tuple(&self) -> Result<Tuple<'_>, Failure> {
        Tuple::parse(&self.bytes[self.tuple.clone()]).map_err(|error| malformed(self.plan.name(), &error))
    }

    /// The row as the stream has changed it since. `None` where its columns are others now.
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
    /// Another window is to be opened. Rows of one that is replaced before it was closed stay, and are sent with those to come.
    pub(crate) fn begin(&mut self) {
        if self.rows.is_empty() {
            self.clear();
        }
    }

    /// Rows are to come, or have come.
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

    /// Whether rows of this table are here.
    pub(crate) fn has(&self, table: &str) -> bool {
        self.tables.iter().any(|known| &**known == table)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row.
    pub(crate) fn put(&mut self, plan: &Arc<TablePlan>, bytes: &Bytes, tuple: Range<usize>) -> Result<(), Failure> {
        let mut row = Row {
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
            Some(Met::Whole) => return Ok(()),
            Some(Met::Part(part)) => match row.changed(part) {
                Some(changed) => row = changed,
                None => self.is_spoiled = true,
            },
            None => {}
        }
        match self.places.entry(key) {
            // Rows with one key: the last takes the place of the first, as in Debezium.
            Entry::Occupied(place) => self.rows[*place.get()] = Some(row),
            Entry::Vacant(place) => {
                place.insert(self.rows.len());
                self.rows.push(Some(row));
            }
        }
        Ok(())
    }

    /// The stream has brought a change of a row, and its record is sent.
    pub(crate) fn evict(&mut self, plan: &TablePlan, operation: &Operation<'_>) -> Evicted {
        match *operation {
            Operation::Insert { new } => match plan.raw_key(new, None) {
                Some(key) => self.evict_key(plan, key),
                // It may be in the chunk, too, and is the same there.
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
                        // Its values may be those of either row.
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
        self.meet(key, Met::Whole)
    }

    /// The stream has brought a row without its long values. The topic has those only if the chunk's row brings them, so it is still
    /// sent, as it is now.
    fn complete(&mut self, plan: &TablePlan, key: Vec<u8>, new: Tuple<'_>) -> Evicted {
        let Ok(tuple) = TupleBuf::new(new.columns()) else {
            return Evicted::Unknown;
        };
        let key = (self.table(plan.name()), key);
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
                Some(changed) => *row = changed,
                None => return Evicted::Unknown,
            }
        }
        match self.met.get(&key) {
            // The topic has it.
            Some(Met::Whole) => return Evicted::Known,
            Some(Met::Part(earlier)) => match overlay(&part.tuple, &earlier.tuple) {
                Some(tuple) if earlier.columns == part.columns => part.tuple = tuple,
                _ => return Evicted::Unknown,
            },
            None => {}
        }
        self.meet(key, Met::Part(part))
    }

    /// Remembers a row for which the chunk's may still come.
    fn meet(&mut self, key: Key, met: Met) -> Evicted {
        if !self.expects_rows {
            return Evicted::Known;
        }
        let bytes = |met: &Met| match met {
            Met::Whole => 0,
            Met::Part(part) => part.tuple.len(),
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

    /// Its rows are of no use any more.
    pub(crate) const fn spoil(&mut self) {
        self.is_spoiled = true;
    }

    pub(crate) const fn is_spoiled(&self) -> bool {
        self.is_spoiled
    }

    /// What is left of the rows, in order. The window is empty then.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Row> + use<> {
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

/// A row with the values that it lacks taken from an earlier one. `None` where they have not as many columns.
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
