//! Snapshots that signals have asked for: what became of each of their tables, and which tables could not be read.
//!
//! The pipeline reports in the order of the stream. A table may be in several requests; its snapshots end in the order in which they
//! were requested, so an end belongs to the first request that waits for this table.

use std::collections::{BTreeMap, VecDeque};

use crate::failure::Failure;

/// How many requests are kept, and how many tables that could not be read.
const MOST_REQUESTS: usize = 50;
const MOST_UNREAD: usize = 1000;

/// What has become of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TableState {
    /// It is being read, or comes later.
    Waits,
    /// All of its rows that were asked for have been read.
    Read {
        /// How many, as far as this process knows. `None` for a blocking snapshot.
        rows: Option<u64>,
    },
    /// It could not be read.
    Failed(Failure),
    /// A signal stopped its snapshot.
    Stopped,
}

/// A snapshot that a signal has asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// The signal's id.
    pub id: String,
    /// Whether the stream pauses meanwhile.
    pub is_blocking: bool,
    /// When it was asked for, microseconds since 1970.
    pub asked_us: i64,
    /// Its tables. `None` until the connector has taken the signal.
    pub tables: Option<Vec<(String, TableState)>>,
}

impl SnapshotRequest {
    /// Whether nothing of it is left to do.
    pub fn has_ended(&self) -> bool {
        let is_over = |(_, state): &(String, TableState)| *state != TableState::Waits;
        self.tables.as_ref().is_some_and(|tables| tables.iter().all(is_over))
    }

    fn waiting(&mut self, table: &str) -> Option<&mut TableState> {
        let mut tables = self.tables.iter_mut().flatten();
        let found = tables.find(|(name, state)| name == table && *state == TableState::Waits);
        found.map(|(_, state)| state)
    }
}

/// A table that no snapshot has read since one failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadTable {
    /// Schema and name, or what the signal calls it.
    pub table: String,
    /// Why it could not be read.
    pub failure: Failure,
    /// When that was noticed, microseconds since 1970.
    pub at_us: i64,
}

/// News of snapshots, in the order of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SnapshotNews {
    /// The connector has taken the signal with this id, and reads these tables.
    Begins {
        id: String,
        is_blocking: bool,
        tables: Vec<String>,
    },
    /// An incremental snapshot that an earlier process began continues with these tables.
    GoesOn { id: String, tables: Vec<String> },
    /// A table of an incremental snapshot is done with.
    Ended { table: String, state: TableState },
    /// The oldest blocking snapshot has read these tables.
    BlockingRead(Vec<String>),
    /// It has failed, and these tables were not read, or not to their end.
    BlockingFailed { tables: Vec<String>, failure: Failure },
}

/// All that is known.
#[derive(Debug, Default)]
pub(super) struct SnapshotRequests {
    requests: VecDeque<SnapshotRequest>,
    unread: BTreeMap<String, (Failure, i64)>,
}

impl SnapshotRequests {
    /// A signal has been accepted, and no session has taken it yet.
    pub(super) fn accepted(&mut self, id: &str, is_blocking: bool, now_us: i64) {
        self.entry(id, is_blocking, now_us).tables = None;
    }

    fn entry(&mut self, id: &str, is_blocking: bool, now_us: i64) -> &mut SnapshotRequest {
        let at = self.requests.iter().position(|request| request.id == id);
        let at = at.unwrap_or_else(|| {
            if self.requests.len() >= MOST_REQUESTS {
                // Rather one that has ended, and the oldest of these.
                let ended = self.requests.iter().position(SnapshotRequest::has_ended);
                self.requests.remove(ended.unwrap_or_default());
            }
            self.requests.push_back(SnapshotRequest {
                id: id.to_owned(),
                is_blocking,
                asked_us: now_us,
                tables: None,
            });
            self.requests.len() - 1
        });
        &mut self.requests[at]
    }

    /// Takes news in. Returns the failure that they bring, if any.
    pub(super) fn learn(&mut self, news: SnapshotNews, now_us: i64) -> Option<Failure> {
        let waits = |tables: Vec<String>| Some(tables.into_iter().map(|table| (table, TableState::Waits)).collect());
        match news {
            SnapshotNews::Begins {
                id,
                is_blocking,
                tables,
            } => self.entry(&id, is_blocking, now_us).tables = waits(tables),
            SnapshotNews::GoesOn { id, tables } => {
                let is_known = |table: &String| {
                    (self.requests.iter().cloned()).any(|mut request| request.waiting(table).is_some())
                };
                let unknown: Vec<String> = tables.into_iter().filter(|table| !is_known(table)).collect();
                if !unknown.is_empty() {
                    self.entry(&id, false, now_us).tables = waits(unknown);
                }
            }
            SnapshotNews::Ended { table, state } => {
                let mut requests = self.requests.iter_mut().filter(|request| !request.is_blocking);
                if let Some(waiting) = requests.find_map(|request| request.waiting(&table)) {
                    *waiting = state.clone();
                }
                return self.remember(table, state, now_us);
            }
            SnapshotNews::BlockingRead(tables) => {
                self.end_blocking(&TableState::Read { rows: None });
                for table in tables {
                    self.unread.remove(&table);
                }
            }
            SnapshotNews::BlockingFailed { tables, failure } => {
                self.end_blocking(&TableState::Failed(failure.clone()));
                for table in tables {
                    self.remember(table, TableState::Failed(failure.clone()), now_us);
                }
                return Some(failure);
            }
        }
        None
    }

    fn end_blocking(&mut self, state: &TableState) {
        let mut requests = self.requests.iter_mut().filter(|request| request.is_blocking);
        let oldest = requests.find(|request| request.tables.is_some() && !request.has_ended());
        for (_, of_table) in oldest.and_then(|request| request.tables.as_mut()).into_iter().flatten() {
            *of_table = state.clone();
        }
    }

    fn remember(&mut self, table: String, state: TableState, now_us: i64) -> Option<Failure> {
        match state {
            TableState::Failed(failure) => {
                if self.unread.len() < MOST_UNREAD || self.unread.contains_key(&table) {
                    self.unread.insert(table, (failure.clone(), now_us));
                }
                Some(failure)
            }
            TableState::Read { .. } => {
                self.unread.remove(&table);
                None
            }
            TableState::Waits | TableState::Stopped => None,
        }
    }

    pub(super) fn requests(&self) -> Vec<SnapshotRequest> {
        self.requests.iter().cloned().collect()
    }

    pub(super) fn unread(&self) -> Vec<UnreadTable> {
        let unread = self.unread.iter().map(|(table, (failure, at_us))| UnreadTable {
            table: table.clone(),
            failure: failure.clone(),
            at_us: *at_us,
        });
        unread.collect()
    }
}

#[cfg(test)]
mod tests {
    use walferry_diagnosis::Kind;

    use super::*;

    fn failure() -> Failure {
        Failure::stop(Kind::TableNotRead, "permission denied", "GRANT it")
    }

    fn ended(table: &str, state: TableState) -> SnapshotNews {
        SnapshotNews::Ended {
            table: table.to_owned(),
            state,
        }
    }

    fn begins(id: &str, is_blocking: bool, tables: &[&str]) -> SnapshotNews {
        SnapshotNews::Begins {
            id: id.to_owned(),
            is_blocking,
            tables: tables.iter().map(|table| (*table).to_owned()).collect(),
        }
    }

    fn states(known: &SnapshotRequests, id: &str) -> Option<Vec<TableState>> {
        let request = known.requests().into_iter().find(|request| request.id == id)?;
        Some(request.tables?.into_iter().map(|(_, state)| state).collect())
    }

    #[test]
    fn each_request_learns_what_became_of_its_own_tables() {
        let mut known = SnapshotRequests::default();
        known.accepted("a", false, 1);
        known.accepted("b", false, 2);
        assert_eq!(states(&known, "a"), None);
        known.learn(begins("a", false, &["t", "u"]), 3);
        known.learn(begins("b", false, &["t"]), 3);
        known.learn(ended("t", TableState::Failed(failure())), 4);
        let waits = vec![TableState::Waits];
        assert_eq!(
            states(&known, "b"),
            Some(waits),
            "the first snapshot of t was that of a"
        );
        assert_eq!(known.unread()[0].table, "t");
        known.learn(ended("u", TableState::Stopped), 5);
        known.learn(ended("t", TableState::Read { rows: Some(7) }), 6);
        assert_eq!(
            states(&known, "a"),
            Some(vec![TableState::Failed(failure()), TableState::Stopped])
        );
        assert_eq!(states(&known, "b"), Some(vec![TableState::Read { rows: Some(7) }]));
        assert_eq!(known.unread(), [], "it was read since");
    }

    #[test]
    fn a_signal_that_is_taken_again_begins_again() {
        let mut known = SnapshotRequests::default();
        known.learn(begins("a", false, &["t"]), 1);
        known.learn(ended("t", TableState::Read { rows: Some(1) }), 2);
        known.learn(begins("a", false, &["t"]), 3);
        assert_eq!(states(&known, "a"), Some(vec![TableState::Waits]));
        // The rest of a snapshot of an earlier process, and one that is known already.
        for (id, expected) in [("old", 2), ("older", 2)] {
            let tables = vec!["t".to_owned(), "u".to_owned()];
            let id = id.to_owned();
            known.learn(SnapshotNews::GoesOn { id, tables }, 4);
            assert_eq!(known.requests().len(), expected);
        }
        assert_eq!(states(&known, "old"), Some(vec![TableState::Waits]));
    }

    #[test]
    fn a_blocking_snapshot_that_fails_leaves_all_its_tables_unread() {
        let mut known = SnapshotRequests::default();
        known.learn(begins("a", true, &["public.*"]), 1);
        known.learn(begins("b", true, &["public.t"]), 1);
        let tables = vec!["public.t".to_owned(), "public.u".to_owned()];
        let failed = known.learn(
            SnapshotNews::BlockingFailed {
                tables,
                failure: failure(),
            },
            2,
        );
        assert_eq!(failed, Some(failure()));
        assert_eq!(states(&known, "a"), Some(vec![TableState::Failed(failure())]));
        assert_eq!(states(&known, "b"), Some(vec![TableState::Waits]));
        known.learn(SnapshotNews::BlockingRead(vec!["public.t".to_owned()]), 3);
        let unread: Vec<_> = known.unread().into_iter().map(|unread| unread.table).collect();
        assert_eq!(unread, ["public.u"]);
    }

    #[test]
    fn requests_and_tables_are_bounded() {
        let mut known = SnapshotRequests::default();
        known.learn(begins("first", false, &["t"]), 1);
        for n in 0..200 {
            known.learn(begins(&format!("{n}"), false, &[]), 1);
        }
        assert_eq!(known.requests().len(), MOST_REQUESTS);
        assert!(states(&known, "first").is_some(), "it has not ended");
        for n in 0..2000 {
            known.learn(ended(&format!("{n}"), TableState::Failed(failure())), 1);
        }
        assert_eq!(known.unread().len(), MOST_UNREAD);
    }
}
