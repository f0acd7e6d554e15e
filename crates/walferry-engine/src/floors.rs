//! From where on rows of outbox tables are known to be sent, over connections and restarts.
//!
//! The removal of delivered rows lays these *floors* and uses them. They stay true as long as the stream goes on where it was, because then
//! no change between is missing. So they are stored with the offset: whoever replaces or moves the offset in another way removes them, too.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use serde::{Deserialize, Serialize};
use walferry_pgoutput::Lsn;

use crate::{account::StoredOffset, position::Position, status::UncapturedTables};

/// The floors of all tables whose delivered rows are removed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Floors {
    /// What the configuration says about which rows are sent, as a short text.
    pub configuration: String,
    /// The server on which they were laid, with its timeline.
    pub server: String,
    /// By schema and name.
    pub tables: BTreeMap<String, TableFloor>,
}

/// The floor of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableFloor {
    /// Its oid.
    pub oid: u32,
    /// The versions of the catalog's rows that decide whether its rows are sent.
    pub of: String,
    /// The table itself, or its partitions, by oid.
    pub parts: BTreeMap<u32, PartFloor>,
}

/// The floor of a table that holds rows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartFloor {
    /// The versions of the catalog's rows that make it a partition.
    pub of: String,
    /// Rows of transactions with a lower id may never have been sent.
    pub xid: i64,
    /// Nor may rows that are not later than this, in microseconds since 1970.
    pub since_us: i64,
}

impl Floors {
    /// An offset is written many times a second, and is not to be long. The floors of more partitions are not stored.
    pub const MOST_PARTS: usize = 1000;

    fn parts(&self) -> usize {
        self.tables.values().map(|table| table.parts.len()).sum()
    }
}

/// The floors that hold now. The removal of delivered rows writes them, the offset keeps them.
#[derive(Debug, Default)]
pub struct KeptFloors(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// As in [`Floors::configuration`]. `None` if no rows are removed: then nothing is kept.
    configuration: Option<String>,
    /// Rises whenever the stream does not go on where it was. All floors from before are void.
    breaks: u64,
    /// `None` until a session has begun, and if there are none.
    floors: Option<Arc<Floors>>,
    /// How often each table has left [`UncapturedTables`] when the floors were laid.
    left: HashMap<u32, u64>,
    /// The last offset that this run has stored, or that it has begun from.
    stored: Option<Place>,
    /// The offset that it was about to store last.
    storing: Option<Place>,
}

/// What an offset says about how far the stream is.
type Place = (Option<Lsn>, Option<Position>);

fn place(offset: &StoredOffset) -> Place {
    (offset.start(), offset.position)
}

impl KeptFloors {
    /// A run of the connector begins. `configuration` is what the floors of earlier runs must have been laid with; `None` if no rows are
    /// removed in this run.
    pub fn begin(&self, configuration: Option<String>) {
        self.with(|kept| {
            *kept = Kept {
                configuration,
                breaks: kept.breaks + 1,
                ..Kept::default()
            }
        });
    }

    /// How often the stream did not go on where it was, and the floors that hold.
    pub fn get(&self) -> (u64, Option<Arc<Floors>>) {
        self.with(|kept| (kept.breaks, kept.floors.clone()))
    }

    /// Keeps floors that were laid after so many breaks. `left` is how often each of their tables had left [`UncapturedTables`] when its floor
    /// was laid.
    pub fn keep(&self, breaks: u64, server: &str, tables: BTreeMap<String, TableFloor>, left: HashMap<u32, u64>) {
        self.with(|kept| {
            let Some(configuration) = kept.configuration.clone().filter(|_| kept.breaks == breaks) else {
                return;
            };
            kept.left = left;
            let floors = Floors {
                configuration,
                server: server.to_owned(),
                tables,
            };
            kept.floors = (!floors.tables.is_empty()).then(|| Arc::new(floors));
        });
    }

    /// A session begins. With `goes_on`, it goes on exactly after the stored offset. If another run has stored it, this one may have left
    /// out rows: then only the floors count that it has stored.
    pub(crate) fn go_on(&self, goes_on: bool, stored: Option<&StoredOffset>) {
        self.with(|kept| {
            let now = stored.map(place);
            let is_ours = now.is_some() && (kept.stored == now || kept.storing == now);
            if !(goes_on && is_ours) {
                kept.void();
            }
            if goes_on && !is_ours {
                let is_same = |floors: &Arc<Floors>| kept.configuration.as_ref() == Some(&floors.configuration);
                kept.floors = stored.and_then(|offset| offset.floors.clone()).filter(is_same);
            }
            (kept.stored, kept.storing) = (now, None);
        });
    }

    /// This run is about to store an offset. If that fails, the offset may be stored all the same.
    pub(crate) fn store(&self, offset: &StoredOffset) {
        self.with(|kept| kept.storing = Some(place(offset)));
    }

    /// The offset is stored.
    pub(crate) fn stored(&self) {
        self.with(|kept| kept.stored = kept.storing.take().or(kept.stored.take()));
    }

    /// The stream does not go on where it was.
    pub(crate) fn void(&self) {
        self.with(Kept::void);
    }

    /// What is stored with an offset up to which the stream has brought `captured`. A table whose rows were not captured for a while has
    /// no floor.
    pub(crate) fn to_store(&self, captured: &UncapturedTables) -> Option<Arc<Floors>> {
        self.with(|kept| {
            let floors = kept.floors.as_ref()?;
            let is_sent = |table: &TableFloor| {
                let left = kept.left.get(&table.oid).copied().unwrap_or_default();
                !captured.oids.contains(&table.oid) && captured.left(table.oid) == left
            };
            let holds = floors.tables.values().all(is_sent) && floors.parts() <= Floors::MOST_PARTS;
            holds.then(|| floors.clone())
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kept {
    fn void(&mut self) {
        self.breaks += 1;
        self.floors = None;
        self.left.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(oid: u32) -> BTreeMap<String, TableFloor> {
        let table = TableFloor {
            oid,
            of: "7.1".to_owned(),
            parts: [(oid, PartFloor::default())].into(),
        };
        [("public.outbox".to_owned(), table)].into()
    }

    fn run(configuration: Option<&str>) -> KeptFloors {
        let floors = KeptFloors::default();
        floors.begin(configuration.map(str::to_owned));
        floors
    }

    /// The floors that a run of the same configuration has stored.
    fn stored() -> Option<Arc<Floors>> {
        let floors = run(Some("a"));
        floors.go_on(false, None);
        floors.keep(floors.get().0, "s", tables(7), HashMap::new());
        floors.to_store(&UncapturedTables::default())
    }

    /// An offset with these floors.
    fn offset(lsn: u64, floors: Option<Arc<Floors>>) -> StoredOffset {
        let mut offset = StoredOffset {
            system_id: Some(1),
            floors,
            ..StoredOffset::default()
        };
        offset.connect.lsn_proc = Some(lsn);
        offset
    }

    #[test]
    fn floors_are_kept_while_the_stream_goes_on_with_the_same_configuration() {
        assert!(stored().is_some());
        let cases = [
            (Some("a"), true, true),
            (Some("a"), false, false),
            (Some("b"), true, false),
            (None, true, false),
        ];
        for (configuration, goes_on, are_kept) in cases {
            let floors = run(configuration);
            floors.go_on(goes_on, Some(&offset(5, stored())));
            let to_store = floors.to_store(&UncapturedTables::default());
            assert_eq!(to_store.is_some(), are_kept, "{configuration:?} {goes_on}");
            assert_eq!(floors.get().1, to_store);
        }
    }

    #[test]
    fn a_further_session_goes_on_with_the_floors_of_the_one_before() {
        let floors = run(Some("a"));
        floors.go_on(true, Some(&offset(5, None)));
        let breaks = floors.get().0;
        floors.keep(breaks, "s", tables(8), HashMap::new());
        // Nothing was stored, then something was, and then it is not known.
        floors.go_on(true, Some(&offset(5, stored())));
        floors.store(&offset(6, None));
        floors.stored();
        floors.go_on(true, Some(&offset(6, stored())));
        floors.store(&offset(7, None));
        floors.go_on(true, Some(&offset(7, stored())));
        assert_eq!(floors.get().1.map(|floors| floors.tables.clone()), Some(tables(8)));
        assert_eq!(floors.get().0, breaks, "nothing has become void");
        floors.go_on(false, Some(&offset(7, stored())));
        assert_eq!(floors.get(), (breaks + 1, None));
        // They were laid before the break.
        floors.keep(breaks, "s", tables(8), HashMap::new());
        assert_eq!(floors.get(), (breaks + 1, None));
    }

    #[test]
    fn floors_are_void_where_another_run_has_stored_an_offset_meanwhile() {
        // With another configuration, it leaves rows out, and stores none.
        for theirs in [None, stored()] {
            let floors = run(Some("a"));
            floors.go_on(true, Some(&offset(5, None)));
            let breaks = floors.get().0;
            floors.keep(breaks, "s", tables(8), HashMap::new());
            floors.store(&offset(6, None));
            floors.stored();
            floors.go_on(true, Some(&offset(8, theirs.clone())));
            assert_eq!(floors.get(), (breaks + 1, theirs));
        }
        let floors = run(Some("a"));
        floors.go_on(true, Some(&offset(5, None)));
        floors.keep(floors.get().0, "s", tables(8), HashMap::new());
        let inside = StoredOffset {
            position: Some(Position::default()),
            ..offset(5, None)
        };
        floors.go_on(true, Some(&inside));
        assert_eq!(floors.get().1, None, "it has sent a part of a transaction");
    }

    #[test]
    fn floors_of_a_table_that_was_not_captured_for_a_while_are_not_stored() {
        let floors = run(Some("a"));
        let mut captured = UncapturedTables::default();
        floors.keep(floors.get().0, "s", tables(7), HashMap::new());
        captured.oids.insert(8);
        assert!(floors.to_store(&captured).is_some(), "it is another table");
        captured.oids.insert(7);
        assert_eq!(floors.to_store(&captured), None);
        captured.oids.clear();
        captured.left.insert(7, 1);
        assert_eq!(floors.to_store(&captured), None);
        floors.keep(floors.get().0, "s", tables(7), [(7, 1)].into());
        assert!(floors.to_store(&captured).is_some(), "they were laid after it");
    }
}
