//! The window of a chunk: its rows until the stream has passed the place where they were read.

use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    mem,
    ops::Range,
    sync::Arc,
};

use bytes::Bytes;
use walferry_event::TablePlan;
use walferry_pgoutput::Tuple;

use crate::{failure::Failure, path::signals::malformed};

/// How many keys are remembered that the stream has brought before the chunk's rows are here.
const MOST_EVICTED: usize = 20_000;

/// Rows in the order in which they were read. What the stream brings of them takes their place.
#[derive(Default)]
pub(crate) struct Window {
    rows: Vec<Option<Row>>,
    /// Where the row of a table and key is.
    places: HashMap<(Arc<str>, Vec<u8>), usize>,
    /// Keys that the stream has brought since the window opened, of rows that are not here, or not here yet.
    evicted: HashSet<(Arc<str>, Vec<u8>)>,
    tables: Vec<Arc<str>>,
    is_spoiled: bool,
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
}

impl Window {
    /// Another window is to be opened. Rows of one that is replaced before it was closed stay, and are sent with those to come.
    pub(crate) fn begin(&mut self) {
        if self.rows.is_empty() {
            self.clear();
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

    /// Adds a row.
    pub(crate) fn put(&mut self, plan: &Arc<TablePlan>, bytes: &Bytes, tuple: Range<usize>) -> Result<(), Failure> {
        let row = Row {
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
        if self.evicted.contains(&key) {
            return Ok(());
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

    /// The stream has brought the row with this key.
    pub(crate) fn evict(&mut self, table: &str, key: Vec<u8>) -> Evicted {
        let key = (self.table(table), key);
        if let Some(place) = self.places.remove(&key) {
            self.rows[place] = None;
        }
        if self.evicted.len() < MOST_EVICTED {
            self.evicted.insert(key);
            return Evicted::Known;
        }
        Evicted::Unknown
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
        *self = Self::default();
    }
}
