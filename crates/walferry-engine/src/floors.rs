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
    #[serde(with = "parts")]
    pub parts: BTreeMap<u32, PartFloor>,
}

/// The floor of a table that holds rows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartFloor {
    /// The versions of the catalog's rows that make it a partition. It has no white space.
    pub of: String,
    /// Rows of transactions with a lower id may never have been sent.
    pub xid: i64,
    /// Nor may rows that are not later than this, in microseconds since 1970.
    pub since_us: i64,
}

impl Floors {
    /// An offset is written many times a second, and is not to be long. The floors of a table with which there would be more partitions are
    /// not stored.
    pub const MOST_PARTS: usize = 1000;

    /// The tables whose floors are too many to be stored. Those of the others are [`Floors::MOST_PARTS`] in all at most.
    fn too_many(&self) -> Vec<String> {
        let (mut stored, mut too_many) = (0, Vec::new());
        for (name, table) in &self.tables {
            match stored + table.parts.len() {
                parts if parts <= Self::MOST_PARTS => stored = parts,
                _ => too_many.push(name.clone()),
            }
        }
        too_many
    }

    /// Only the tables for which this is true; `None` if there are none.
    fn only(self: &Arc<Self>, is_wanted: impl Fn(&String, &TableFloor) -> bool) -> Option<Arc<Self>> {
        let wanted = || self.tables.iter().filter(|(name, table)| is_wanted(name, table));
        match wanted().count() {
            0 => None,
            all if all == self.tables.len() => Some(self.clone()),
            _ => Some(Arc::new(Self {
                configuration: self.configuration.clone(),
                server: self.server.clone(),
                tables: wanted().map(|(name, table)| (name.clone(), table.clone())).collect(),
            })),
        }
    }
}

/// Partitions that have the same floor in one text, because there may be many of them: `"748/1795262414119112": "16391/ 16392/.16392.744"`.
/// The name has transaction id and time, and each oid is followed by [`PartFloor::of`].
mod parts {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;

    use serde::{Deserialize, Deserializer, Serialize as _, Serializer, de::Error};

    use super::PartFloor;

    pub(super) fn serialize<S: Serializer>(parts: &BTreeMap<u32, PartFloor>, serializer: S) -> Result<S::Ok, S::Error> {
        let mut groups: BTreeMap<(i64, i64), String> = BTreeMap::new();
        for (oid, PartFloor { of, xid, since_us }) in parts {
            let text = groups.entry((*xid, *since_us)).or_default();
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}{oid}/{of}");
        }
        let groups = groups
            .iter()
            .map(|((xid, since_us), text)| (format!("{xid}/{since_us}"), text));
        groups.collect::<BTreeMap<_, _>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<u32, PartFloor>, D::Error> {
        let mut parts = BTreeMap::new();
        for (floor, text) in BTreeMap::<String, String>::deserialize(deserializer)? {
            let read = read(&floor, &text);
            parts.extend(
                read.ok_or_else(|| {
                    D::Error::custom(format!("{floor:?}: {text:?} is not a floor with its partitions"))
                })?,
            );
        }
        Ok(parts)
    }

    fn read(floor: &str, text: &str) -> Option<Vec<(u32, PartFloor)>> {
        let (xid, since_us) = floor.split_once('/')?;
        let (xid, since_us) = (xid.parse().ok()?, since_us.parse().ok()?);
        let part = |part: &str| {
            let (oid, of) = part.split_once('/')?;
            let of = of.to_owned();
            Some((oid.parse().ok()?, PartFloor { of, xid, since_us }))
        };
        text.split_whitespace().map(part).collect()
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
    /// Those of them that are not too many to be stored.
    fitting: Option<Arc<Floors>>,
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
    /// was laid. Returns the tables that have more partitions than can be stored: their floors end with this run.
    pub fn keep(
        &self,
        breaks: u64,
        server: &str,
        tables: BTreeMap<String, TableFloor>,
        left: HashMap<u32, u64>,
    ) -> Vec<String> {
        self.with(|kept| {
            let Some(configuration) = kept.configuration.clone().filter(|_| kept.breaks == breaks) else {
                return Vec::new();
            };
            kept.left = left;
            let floors = Floors {
                configuration,
                server: server.to_owned(),
                tables,
            };
            kept.hold((!floors.tables.is_empty()).then(|| Arc::new(floors)))
        })
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
                let floors = stored.and_then(|offset| offset.floors.clone()).filter(is_same);
                kept.hold(floors);
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
            let is_sent = |_: &String, table: &TableFloor| {
                let left = kept.left.get(&table.oid).copied().unwrap_or_default();
                !captured.oids.contains(&table.oid) && captured.left(table.oid) == left
            };
            kept.fitting.as_ref()?.only(is_sent)
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut Kept) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kept {
    /// Returns the tables whose floors are not stored.
    fn hold(&mut self, floors: Option<Arc<Floors>>) -> Vec<String> {
        let too_many = floors.as_deref().map(Floors::too_many).unwrap_or_default();
        self.fitting = floors
            .as_ref()
            .and_then(|floors| floors.only(|name, _| !too_many.contains(name)));
        self.floors = floors;
        too_many
    }

    fn void(&mut self) {
        self.breaks += 1;
        self.hold(None);
        self.left.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::NotCapturedChange;

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
        let mut both = tables(7);
        both.insert(
            "public.other".to_owned(),
            TableFloor {
                oid: 9,
                ..TableFloor::default()
            },
        );
        let keep = |left: HashMap<u32, u64>| floors.keep(floors.get().0, "s", both.clone(), left);
        let stored = |captured: &UncapturedTables| {
            let stored = floors.to_store(captured);
            let oids = stored.map(|floors| floors.tables.values().map(|table| table.oid).collect::<Vec<_>>());
            oids.unwrap_or_default()
        };
        captured.watch(7);
        assert_eq!(keep(HashMap::new()), [""; 0]);
        captured.oids.insert(8);
        assert_eq!(stored(&captured), [9, 7], "it is another table");
        captured.oids.insert(7);
        assert_eq!(stored(&captured), [9]);
        captured.apply(NotCapturedChange::Left(7));
        assert_eq!(stored(&captured), [9]);
        captured.oids.insert(9);
        assert_eq!(stored(&captured), [0; 0]);
        captured.oids.clear();
        keep([(7, 1)].into());
        assert_eq!(stored(&captured), [9, 7], "they were laid after it");
    }

    #[test]
    fn floors_of_a_table_with_too_many_partitions_are_not_stored_and_it_is_named() {
        let floors = run(Some("a"));
        let table = |parts: u32| TableFloor {
            parts: (0..parts).map(|oid| (oid, PartFloor::default())).collect(),
            ..TableFloor::default()
        };
        let tables: BTreeMap<_, _> = [("a", 600), ("b", 600), ("c", 400)]
            .map(|(name, parts)| (name.to_owned(), table(parts)))
            .into();
        let too_many = floors.keep(floors.get().0, "s", tables.clone(), HashMap::new());
        assert_eq!(too_many, ["b"]);
        let stored = floors.to_store(&UncapturedTables::default()).expect("the others fit");
        assert_eq!(stored.tables.keys().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(
            floors.get().1.map(|floors| floors.tables.len()),
            Some(3),
            "they last as long as the run"
        );
    }

    #[test]
    fn partitions_with_the_same_floor_are_stored_together() {
        let part = |of: &str, xid| PartFloor {
            of: of.to_owned(),
            xid,
            since_us: -1,
        };
        let table = TableFloor {
            oid: 7,
            of: "7.1".to_owned(),
            parts: [(7, part("", 5)), (8, part(".8.6", 5)), (9, part(".9.7", i64::MAX))].into(),
        };
        let text = serde_json::to_string(&table).expect("it has a JSON form");
        assert_eq!(
            text,
            r#"{"oid":7,"of":"7.1","parts":{"5/-1":"7/ 8/.8.6","9223372036854775807/-1":"9/.9.7"}}"#
        );
        assert_eq!(serde_json::from_str::<TableFloor>(&text).ok(), Some(table));
        for parts in [r#"{"5":"7/"}"#, r#"{"5/1":"7"}"#, r#"{"5/1":"x/"}"#] {
            let damaged = serde_json::from_str::<TableFloor>(&format!(r#"{{"oid":7,"of":"","parts":{parts}}}"#));
            assert!(damaged.is_err(), "{parts}");
        }
    }
}
