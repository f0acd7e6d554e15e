//! From where on rows of outbox tables are known to be sent, over connections and restarts.
//!
//! The removal of delivered rows finds these lower bounds and uses them. They stay true as long as the stream goes on where it was, because
//! then no change between is missing. So they are stored with the offset ([`walferry_engine::lower_bounds`]), and this observes the stream.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use walferry_engine::{
    Position,
    lower_bounds::{LowerBounds, TableLowerBound},
    observer::{StreamObserver, UncapturedChange},
    store::StoredOffset,
};
use walferry_pgoutput::Lsn;

/// An offset is written many times a second, and is not to be long. The lower bounds of a table with which there would be more partitions
/// are not stored.
pub(crate) const MOST_PARTS: usize = 1000;

/// The lower bounds that hold in one run of a connector. The removal of delivered rows writes them, the offset keeps them.
#[derive(Debug, Default)]
pub(crate) struct RunBounds {
    state: Mutex<BoundsState>,
    uncaptured: Mutex<UncapturedTables>,
}

#[derive(Debug, Default)]
struct BoundsState {
    /// As in [`LowerBounds::configuration`]: what those of earlier runs must have been found with. `None` if nothing is stored.
    configuration: Option<String>,
    /// Rises whenever the stream does not go on where it was. All bounds from before are void.
    breaks: u64,
    /// `None` until a session has begun, and if there are none.
    bounds: Option<Arc<LowerBounds>>,
    /// Those of them that are not too many to be stored.
    fitting: Option<Arc<LowerBounds>>,
    /// [`CaptureState::left`] of each table when its bound was found.
    left: HashMap<u32, u64>,
    /// The last offset that this run has stored, or that it has begun from.
    stored: Option<StreamPlace>,
    /// The offset that it was about to store last.
    storing: Option<StreamPlace>,
}

/// What an offset says about how far the stream is.
type StreamPlace = (Option<Lsn>, Option<Position>);

fn place(offset: &StoredOffset) -> StreamPlace {
    (offset.start(), offset.position)
}

/// The relations that the stream brings and that are not captured.
#[derive(Debug, Default)]
struct UncapturedTables {
    /// Their oids. The server describes a relation again only when it believes that it has changed, so a table may be among them that has
    /// got a captured name since.
    oids: HashSet<u32>,
    /// How often relations have left the set, each since it is watched. It is not counted for all, because tables come and go.
    left: HashMap<u32, u64>,
}

/// Whether the stream captures a relation, as of a position that is not confirmed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CaptureState {
    /// Whether the stream brings it and does not capture it.
    pub(crate) is_uncaptured: bool,
    /// How often this has been so and has ended, since it was asked for the first time.
    pub(crate) left: u64,
}

impl UncapturedTables {
    fn apply(&mut self, change: UncapturedChange) {
        match change {
            UncapturedChange::Joined(oid) => drop(self.oids.insert(oid)),
            UncapturedChange::Left(oid) => {
                if self.oids.remove(&oid)
                    && let Some(times) = self.left.get_mut(&oid)
                {
                    *times += 1;
                }
            }
            UncapturedChange::AllLeft => {
                let oids = std::mem::take(&mut self.oids);
                for (_, times) in self.left.iter_mut().filter(|(oid, _)| oids.contains(oid)) {
                    *times += 1;
                }
            }
        }
    }

    /// Counts from now on how often a relation leaves the set.
    fn watch(&mut self, oid: u32) {
        self.left.entry(oid).or_default();
    }

    fn state(&self, oid: u32) -> CaptureState {
        CaptureState {
            is_uncaptured: self.oids.contains(&oid),
            left: self.left.get(&oid).copied().unwrap_or_default(),
        }
    }
}

impl RunBounds {
    /// A run of the connector begins. `configuration` is what the bounds of earlier runs must have been found with; `None` if none are stored
    /// in this run.
    pub(crate) fn new(configuration: Option<String>) -> Self {
        Self {
            state: Mutex::new(BoundsState {
                configuration,
                ..BoundsState::default()
            }),
            uncaptured: Mutex::default(),
        }
    }

    /// How often the stream did not go on where it was, and the bounds that hold.
    pub(crate) fn get(&self) -> (u64, Option<Arc<LowerBounds>>) {
        let state = lock(&self.state);
        (state.breaks, state.bounds.clone())
    }

    /// Whether the stream captures a relation. From now on it is counted how often that changes.
    pub(crate) fn capture_state(&self, oid: u32) -> CaptureState {
        let mut uncaptured = lock(&self.uncaptured);
        uncaptured.watch(oid);
        uncaptured.state(oid)
    }

    /// Keeps bounds that were found after so many breaks. `left` is [`CaptureState::left`] of each of their tables when its bound was found.
    /// Returns the tables that have more partitions than can be stored: their bounds end with this run.
    pub(crate) fn keep(
        &self,
        breaks: u64,
        server: &str,
        tables: BTreeMap<String, TableLowerBound>,
        left: HashMap<u32, u64>,
    ) -> Vec<String> {
        let mut state = lock(&self.state);
        let Some(configuration) = state.configuration.clone().filter(|_| state.breaks == breaks) else {
            return Vec::new();
        };
        state.left = left;
        let bounds = LowerBounds {
            configuration,
            server: server.to_owned(),
            tables,
        };
        state.hold((!bounds.tables.is_empty()).then(|| Arc::new(bounds)))
    }

    /// What is stored with an offset up to which the stream has brought everything. A table whose rows were not captured for a while has no
    /// bound.
    fn to_store(&self) -> Option<Arc<LowerBounds>> {
        let (state, uncaptured) = (lock(&self.state), lock(&self.uncaptured));
        let is_sent = |_: &String, table: &TableLowerBound| {
            let left = state.left.get(&table.oid).copied().unwrap_or_default();
            let now = uncaptured.state(table.oid);
            !now.is_uncaptured && now.left == left
        };
        only(state.fitting.as_ref()?, is_sent)
    }
}

impl StreamObserver for RunBounds {
    /// If another run has stored the offset, this one may have left out rows: then only the bounds count that the offset has.
    fn session_begins(&self, goes_on: bool, stored: Option<&StoredOffset>) {
        let mut state = lock(&self.state);
        let now = stored.map(place);
        let is_ours = now.is_some() && (state.stored == now || state.storing == now);
        if !(goes_on && is_ours) {
            state.void();
        }
        if goes_on && !is_ours {
            let is_same = |bounds: &Arc<LowerBounds>| state.configuration.as_ref() == Some(&bounds.configuration);
            let bounds = stored.and_then(|offset| offset.lower_bounds.clone()).filter(is_same);
            state.hold(bounds);
        }
        (state.stored, state.storing) = (now, None);
        // Changes that the stream brings count for the bounds of an earlier run from its beginning.
        let mut uncaptured = lock(&self.uncaptured);
        for table in state.bounds.iter().flat_map(|bounds| bounds.tables.values()) {
            uncaptured.watch(table.oid);
        }
    }

    fn uncaptured(&self, changes: &[UncapturedChange]) {
        let mut uncaptured = lock(&self.uncaptured);
        changes.iter().for_each(|change| uncaptured.apply(*change));
    }

    fn before_store(&self, offset: &mut StoredOffset) {
        offset.lower_bounds = self.to_store();
        lock(&self.state).storing = Some(place(offset));
    }

    fn after_store(&self) {
        let mut state = lock(&self.state);
        state.stored = state.storing.take().or(state.stored.take());
    }

    fn stream_broken(&self) {
        lock(&self.state).void();
    }
}

impl BoundsState {
    /// Returns the tables whose bounds are not stored.
    fn hold(&mut self, bounds: Option<Arc<LowerBounds>>) -> Vec<String> {
        let too_many = bounds.as_deref().map(too_many).unwrap_or_default();
        self.fitting = bounds
            .as_ref()
            .and_then(|bounds| only(bounds, |name, _| !too_many.contains(name)));
        self.bounds = bounds;
        too_many
    }

    fn void(&mut self) {
        self.breaks += 1;
        self.hold(None);
        self.left.clear();
    }
}

/// The tables whose bounds are too many to be stored. Those of the others are [`MOST_PARTS`] in all at most.
fn too_many(bounds: &LowerBounds) -> Vec<String> {
    let (mut stored, mut too_many) = (0, Vec::new());
    for (name, table) in &bounds.tables {
        match stored + table.parts.len() {
            parts if parts <= MOST_PARTS => stored = parts,
            _ => too_many.push(name.clone()),
        }
    }
    too_many
}

/// Only the tables for which this is true; `None` if there are none.
fn only(bounds: &Arc<LowerBounds>, is_wanted: impl Fn(&String, &TableLowerBound) -> bool) -> Option<Arc<LowerBounds>> {
    let wanted = || bounds.tables.iter().filter(|(name, table)| is_wanted(name, table));
    match wanted().count() {
        0 => None,
        all if all == bounds.tables.len() => Some(bounds.clone()),
        _ => Some(Arc::new(LowerBounds {
            configuration: bounds.configuration.clone(),
            server: bounds.server.clone(),
            tables: wanted().map(|(name, table)| (name.clone(), table.clone())).collect(),
        })),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use walferry_engine::lower_bounds::PartLowerBound;

    use super::*;
    use UncapturedChange::{AllLeft, Joined, Left};

    fn tables(oid: u32) -> BTreeMap<String, TableLowerBound> {
        let table = TableLowerBound {
            oid,
            of: "7.1".to_owned(),
            parts: [(oid, PartLowerBound::default())].into(),
        };
        [("public.outbox".to_owned(), table)].into()
    }

    fn run(configuration: Option<&str>) -> RunBounds {
        RunBounds::new(configuration.map(str::to_owned))
    }

    /// Keeps bounds that were found now.
    fn keep(bounds: &RunBounds, tables: BTreeMap<String, TableLowerBound>, left: HashMap<u32, u64>) -> Vec<String> {
        bounds.keep(bounds.get().0, "s", tables, left)
    }

    /// The bounds that a run of the same configuration has stored.
    fn stored() -> Option<Arc<LowerBounds>> {
        let bounds = run(Some("a"));
        bounds.session_begins(false, None);
        keep(&bounds, tables(7), HashMap::new());
        bounds.to_store()
    }

    /// An offset with these bounds.
    fn offset(lsn: u64, lower_bounds: Option<Arc<LowerBounds>>) -> StoredOffset {
        let mut offset = StoredOffset {
            system_id: Some(1),
            lower_bounds,
            ..StoredOffset::default()
        };
        offset.connect.lsn_proc = Some(lsn);
        offset
    }

    #[test]
    fn bounds_are_kept_while_the_stream_goes_on_with_the_same_configuration() {
        assert!(stored().is_some());
        let cases = [
            (Some("a"), true, true),
            (Some("a"), false, false),
            (Some("b"), true, false),
            (None, true, false),
        ];
        for (configuration, goes_on, are_kept) in cases {
            let bounds = run(configuration);
            bounds.session_begins(goes_on, Some(&offset(5, stored())));
            let to_store = bounds.to_store();
            assert_eq!(to_store.is_some(), are_kept, "{configuration:?} {goes_on}");
            assert_eq!(bounds.get().1, to_store);
        }
    }

    #[test]
    fn a_further_session_goes_on_with_the_bounds_of_the_one_before() {
        let bounds = run(Some("a"));
        bounds.session_begins(true, Some(&offset(5, None)));
        let breaks = bounds.get().0;
        keep(&bounds, tables(8), HashMap::new());
        // Nothing was stored, then something was, and then it is not known.
        bounds.session_begins(true, Some(&offset(5, stored())));
        bounds.before_store(&mut offset(6, None));
        bounds.after_store();
        bounds.session_begins(true, Some(&offset(6, stored())));
        bounds.before_store(&mut offset(7, None));
        bounds.session_begins(true, Some(&offset(7, stored())));
        assert_eq!(bounds.get().1.map(|bounds| bounds.tables.clone()), Some(tables(8)));
        assert_eq!(bounds.get().0, breaks, "nothing has become void");
        bounds.session_begins(false, Some(&offset(7, stored())));
        assert_eq!(bounds.get(), (breaks + 1, None));
        // They were found before the break.
        bounds.keep(breaks, "s", tables(8), HashMap::new());
        assert_eq!(bounds.get(), (breaks + 1, None));
    }

    #[test]
    fn bounds_are_void_where_another_run_has_stored_an_offset_meanwhile() {
        // With another configuration, it leaves rows out, and stores none.
        for theirs in [None, stored()] {
            let bounds = run(Some("a"));
            bounds.session_begins(true, Some(&offset(5, None)));
            let breaks = bounds.get().0;
            keep(&bounds, tables(8), HashMap::new());
            bounds.before_store(&mut offset(6, None));
            bounds.after_store();
            bounds.session_begins(true, Some(&offset(8, theirs.clone())));
            assert_eq!(bounds.get(), (breaks + 1, theirs));
        }
        let bounds = run(Some("a"));
        bounds.session_begins(true, Some(&offset(5, None)));
        keep(&bounds, tables(8), HashMap::new());
        let inside = StoredOffset {
            position: Some(Position::default()),
            ..offset(5, None)
        };
        bounds.session_begins(true, Some(&inside));
        assert_eq!(bounds.get().1, None, "it has sent a part of a transaction");
    }

    #[test]
    fn a_broken_stream_ends_all_bounds_and_those_that_were_being_found() {
        let bounds = run(Some("a"));
        bounds.session_begins(true, Some(&offset(5, stored())));
        let breaks = bounds.get().0;
        bounds.stream_broken();
        let mut moved = offset(6, stored());
        bounds.before_store(&mut moved);
        assert_eq!(moved.lower_bounds, None);
        bounds.keep(breaks, "s", tables(8), HashMap::new());
        assert_eq!(bounds.get(), (breaks + 1, None));
    }

    #[test]
    fn bounds_of_a_table_that_was_not_captured_for_a_while_are_not_stored() {
        let bounds = run(Some("a"));
        let mut both = tables(7);
        both.insert(
            "public.other".to_owned(),
            TableLowerBound {
                oid: 9,
                ..TableLowerBound::default()
            },
        );
        let stored = || {
            let stored = bounds.to_store();
            let oids = stored.map(|bounds| bounds.tables.values().map(|table| table.oid).collect::<Vec<_>>());
            oids.unwrap_or_default()
        };
        let _ = bounds.capture_state(7);
        assert_eq!(keep(&bounds, both.clone(), HashMap::new()), [""; 0]);
        bounds.uncaptured(&[Joined(8)]);
        assert_eq!(stored(), [9, 7], "it is another table");
        bounds.uncaptured(&[Joined(7)]);
        assert_eq!(stored(), [9]);
        bounds.uncaptured(&[Left(7)]);
        assert_eq!(stored(), [9]);
        bounds.uncaptured(&[Joined(9)]);
        assert_eq!(stored(), [0; 0]);
        bounds.uncaptured(&[AllLeft]);
        keep(&bounds, both.clone(), [(7, 1)].into());
        assert_eq!(stored(), [9, 7], "they were found after it");
    }

    #[test]
    fn a_relation_that_is_captured_again_counts_as_a_change() {
        let bounds = run(None);
        bounds.uncaptured(&[Joined(1), Left(1)]);
        let cases: [(&[UncapturedChange], &[u32], [u64; 2]); 5] = [
            (&[Joined(1), Joined(2)], &[1, 2], [0, 0]),
            (&[Left(1), Left(7)], &[2], [1, 0]),
            (&[AllLeft, Joined(2)], &[2], [1, 1]),
            (&[AllLeft], &[], [1, 2]),
            (&[AllLeft, Joined(3)], &[3], [1, 2]),
        ];
        for (changes, oids, left) in cases {
            let _ = [1, 2].map(|oid| bounds.capture_state(oid));
            bounds.uncaptured(changes);
            let states = [1, 2].map(|oid| bounds.capture_state(oid));
            assert_eq!(states.map(|state| state.left), left, "{changes:?}");
            let is_uncaptured = [1, 2].map(|oid| oids.contains(&oid));
            assert_eq!(states.map(|state| state.is_uncaptured), is_uncaptured, "{changes:?}");
        }
    }

    #[test]
    fn tables_that_come_and_go_take_no_memory_and_those_of_an_earlier_run_count() {
        let earlier = {
            let earlier = run(Some("a"));
            earlier.session_begins(false, None);
            keep(&earlier, tables(5), HashMap::new());
            earlier.to_store()
        };
        let bounds = run(Some("a"));
        bounds.session_begins(true, Some(&offset(7, earlier)));
        assert!(bounds.to_store().is_some());
        for oid in 0..100 {
            bounds.uncaptured(&[Joined(oid), Left(oid), Joined(oid), AllLeft]);
        }
        assert_eq!(lock(&bounds.uncaptured).left, [(5, 2)].into());
        assert_eq!(bounds.to_store(), None, "rows of the table were left out");
    }

    #[test]
    fn bounds_of_a_table_with_too_many_partitions_are_not_stored_and_it_is_named() {
        let bounds = run(Some("a"));
        let table = |parts: u32| TableLowerBound {
            parts: (0..parts).map(|oid| (oid, PartLowerBound::default())).collect(),
            ..TableLowerBound::default()
        };
        let tables: BTreeMap<_, _> = [("a", 600), ("b", 600), ("c", 400)]
            .map(|(name, parts)| (name.to_owned(), table(parts)))
            .into();
        assert_eq!(keep(&bounds, tables, HashMap::new()), ["b"]);
        let stored = bounds.to_store().expect("the others fit");
        assert_eq!(stored.tables.keys().collect::<Vec<_>>(), ["a", "c"]);
        assert_eq!(
            bounds.get().1.map(|bounds| bounds.tables.len()),
            Some(3),
            "they last as long as the run"
        );
    }
}
