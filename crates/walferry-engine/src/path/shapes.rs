//! The columns of captured tables, for `walferry.table.changes=stop`.
//!
//! A plan lasts as long as its connection. Here the columns outlast connections and sessions, so that a reconnect cannot
//! hide a change. A run of the connector begins without any: a restart accepts the tables as they are.
//!
//! Positions belong to one history of one server. If a session begins on another timeline, the columns stay, and their positions do not.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use walferry_diagnosis::Kind;
use walferry_pgoutput::{Lsn, Oid, Relation, RelationColumn};

use crate::{
    account::{Batch, StoredOffset},
    failure::Failure,
    history::{Lineage, TimelineFork},
    path::{
        change_observer::{ChangeObserver, ObservedChange},
        cursor::ChangeNovelty,
        emit::RecordEmitter,
        fate::ChangeFate,
    },
    position::Position,
    status::TableChange,
};

/// The columns that captured tables had in this run of the connector. Its sessions share them.
#[derive(Debug, Clone, Default)]
pub struct TableShapes(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// By table, as SCHEMA.TABLE.
    shapes: HashMap<String, Shape>,
    /// Whether a record of a change was sent in this run.
    has_sent: bool,
    /// The server of the last session: its system identifier, and its timelines.
    server: Option<(u64, Lineage)>,
}

#[derive(Debug)]
struct Shape {
    /// The first change with these columns.
    since: Position,
    columns: Vec<RelationColumn>,
}

/// Compares the tables that a connection describes with those shapes.
#[derive(Debug)]
pub(crate) struct ShapeWatch {
    known: TableShapes,
    /// Tables that were described and have had no change since.
    described: HashMap<Oid, (String, Relation)>,
    /// Whether a record of a change was sent in this session.
    has_sent: bool,
}

impl TableShapes {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// A session begins after this offset. On a server with another history, other changes have the positions of those that were met.
    fn begin(&mut self, after: &StoredOffset) {
        let Some((system, history)) = after.system_id.zip(after.history.as_ref()) else {
            return;
        };
        let lineage = &history.lineage;
        // Up to here, both servers have had the same changes.
        let common = self.server.as_ref().and_then(|(known, timelines)| {
            if *known != system {
                return Some(Lsn::INVALID);
            }
            match timelines.parts_from(lineage) {
                TimelineFork::Same => None,
                TimelineFork::At(fork) => Some(fork),
                TimelineFork::Unknown => Some(Lsn::INVALID),
            }
        });
        if let Some(unit) = common {
            let common = Position {
                unit,
                ..Position::default()
            };
            let shapes = self.shapes.values_mut();
            shapes.for_each(|shape| shape.since = shape.since.min(common));
        }
        self.server = Some((system, lineage.clone()));
    }
}

impl ChangeObserver for ShapeWatch {
    fn before(&mut self, change: &ObservedChange<'_>, _: &mut RecordEmitter, _: &mut Batch) -> Result<(), Failure> {
        self.check(change.change.relation, change.novelty)
    }

    fn after(&mut self, _: &ObservedChange<'_>, fate: ChangeFate, _: &mut RecordEmitter, _: &mut Batch) {
        if fate.is_sent {
            self.sends();
        }
    }
}

impl ShapeWatch {
    /// For a session that begins after this offset.
    pub(crate) fn new(known: TableShapes, after: &StoredOffset) -> Self {
        known.lock().begin(after);
        Self {
            known,
            described: HashMap::new(),
            has_sent: false,
        }
    }

    /// A new connection describes all tables again.
    pub(crate) fn reconnected(&mut self) {
        self.described.clear();
    }

    /// The stream describes a captured table, by the columns that its records have.
    pub(crate) fn described(&mut self, table: String, relation: Relation) {
        self.described.insert(relation.oid, (table, relation));
    }

    /// The stream brings a change of a captured table.
    ///
    /// # Errors
    /// It is the first one with other columns. After a restart, the first change that is sent may have any columns:
    /// the person who restarts the connector accepts them. By then everything before that change has been delivered.
    pub(crate) fn check(&mut self, relation: Oid, novelty: ChangeNovelty) -> Result<(), Failure> {
        let Some((table, relation)) = self.described.get(&relation) else {
            return Ok(());
        };
        let mut known = self.known.lock();
        let has_sent = known.has_sent;
        if let Some(shape) = known.shapes.get(table) {
            if novelty.position() <= shape.since {
                // It is sent again, as it was before the columns that are known.
                return Ok(());
            }
            if let Some(change) = TableChange::between(&shape.columns, relation)
                && has_sent
                && !novelty.is_delivered()
            {
                return Err(changed(&change));
            }
        }
        let shape = Shape {
            since: novelty.position(),
            columns: relation.columns.clone(),
        };
        known.shapes.insert(table.clone(), shape);
        drop(known);
        let oid = relation.oid;
        self.described.remove(&oid);
        Ok(())
    }

    /// A record of a change is sent.
    pub(crate) fn sends(&mut self) {
        if !self.has_sent {
            self.has_sent = true;
            self.known.lock().has_sent = true;
        }
    }
}

fn changed(change: &TableChange) -> Failure {
    Failure::stop(
        Kind::TableShape,
        format!(
            "the columns of a captured table have changed: {change}; no change with the new columns was sent, because `walferry.table.changes` \
             is stop"
        ),
        "check that the consumers can read records with the new columns, then restart the connector: it continues with them",
    )
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::{
        history::{History, Switch},
        path::testing,
    };

    fn relation(oid: u32, columns: &[&str]) -> Relation {
        testing::relation(oid, &format!("t{oid}"), columns)
    }

    fn at(lsn: u64) -> Position {
        Position {
            unit: Lsn(lsn),
            lsn: Lsn(lsn),
            ordinal: 0,
        }
    }

    fn watch() -> ShapeWatch {
        ShapeWatch::new(TableShapes::default(), &StoredOffset::default())
    }

    const OLD: &[&str] = &["id", "v"];
    const NEW: &[&str] = &["id", "w"];

    fn describe(watch: &mut ShapeWatch, oid: u32, columns: &[&str]) {
        watch.described(format!("public.t{oid}"), relation(oid, columns));
    }

    /// A change that is sent.
    fn send(watch: &mut ShapeWatch, oid: u32, lsn: u64) -> Result<(), String> {
        let outcome = watch.check(Oid(oid), ChangeNovelty::New(at(lsn)));
        outcome.map_err(|failure| failure.to_string())?;
        watch.sends();
        Ok(())
    }

    fn pass_over(watch: &mut ShapeWatch, oid: u32, lsn: u64) {
        watch
            .check(Oid(oid), ChangeNovelty::Delivered(at(lsn)))
            .expect("it was delivered before");
    }

    #[test]
    fn a_change_of_columns_stops_the_connector_over_connections_and_sessions() {
        let known = TableShapes::default();
        let mut watch = ShapeWatch::new(known.clone(), &StoredOffset::default());
        describe(&mut watch, 1, OLD);
        assert_eq!(send(&mut watch, 1, 10), Ok(()));
        watch.reconnected();
        describe(&mut watch, 1, OLD);
        assert_eq!(send(&mut watch, 1, 20), Ok(()));
        watch.reconnected();
        describe(&mut watch, 1, NEW);
        let failure = watch
            .check(Oid(1), ChangeNovelty::New(at(30)))
            .expect_err("it has changed");
        assert_eq!(failure.kind, Kind::TableShape);
        let text = failure.to_string();
        assert!(text.contains("public.t1 (added: w; removed: v)"), "{text}");

        let mut next_session = ShapeWatch::new(known, &StoredOffset::default());
        describe(&mut next_session, 1, NEW);
        assert!(send(&mut next_session, 1, 30).is_err(), "a session does not accept it");
        // A table that is created again is another one to the server.
        next_session.described("public.t1".into(), relation(7, NEW));
        assert!(send(&mut next_session, 7, 40).is_err());
    }

    #[test]
    fn a_restart_accepts_the_change_also_in_the_middle_of_what_comes_again() {
        let mut watch = watch();
        // One transaction has rows with the old and with the new columns. It comes again from its beginning.
        describe(&mut watch, 1, OLD);
        pass_over(&mut watch, 1, 10);
        describe(&mut watch, 1, NEW);
        assert_eq!(send(&mut watch, 1, 20), Ok(()));
        describe(&mut watch, 2, OLD);
        assert_eq!(send(&mut watch, 2, 30), Ok(()), "the first change of a table");
        describe(&mut watch, 2, NEW);
        assert!(send(&mut watch, 2, 40).is_err(), "further changes stop it again");
    }

    #[test]
    fn what_was_delivered_with_the_new_columns_is_accepted() {
        let mut watch = watch();
        describe(&mut watch, 1, OLD);
        pass_over(&mut watch, 1, 10);
        describe(&mut watch, 1, NEW);
        pass_over(&mut watch, 1, 20);
        describe(&mut watch, 2, OLD);
        assert_eq!(send(&mut watch, 2, 30), Ok(()));
        assert_eq!(send(&mut watch, 1, 40), Ok(()));
    }

    #[test]
    fn older_columns_that_come_again_change_nothing() {
        let mut watch = watch();
        describe(&mut watch, 1, OLD);
        pass_over(&mut watch, 1, 10);
        describe(&mut watch, 1, NEW);
        assert_eq!(send(&mut watch, 1, 20), Ok(()));
        watch.reconnected();
        describe(&mut watch, 1, OLD);
        pass_over(&mut watch, 1, 10);
        describe(&mut watch, 1, NEW);
        // It was sent, and not delivered before the connection was lost.
        assert_eq!(send(&mut watch, 1, 20), Ok(()));
        assert_eq!(send(&mut watch, 1, 30), Ok(()));
    }

    fn on(system_id: u64, left: &[(u32, u64)], now: u32) -> StoredOffset {
        let left = left.iter().map(|&(timeline, at)| Switch { timeline, at: Lsn(at) });
        StoredOffset {
            system_id: Some(system_id),
            history: Some(History {
                lineage: Lineage {
                    left: left.collect(),
                    now,
                },
                ..History::default()
            }),
            ..StoredOffset::default()
        }
    }

    /// A standby that was behind is promoted, and its columns are changed there.
    #[test]
    fn a_change_of_columns_at_a_lower_position_of_another_timeline_stops_the_connector() {
        let before = on(7, &[], 1);
        for (after, is_another) in [
            (on(7, &[], 1), false),
            (on(7, &[(1, 20)], 2), true),
            (on(8, &[], 1), true),
        ] {
            let known = TableShapes::default();
            let mut first = ShapeWatch::new(known.clone(), &before);
            describe(&mut first, 1, OLD);
            assert_eq!(send(&mut first, 1, 50), Ok(()));
            let mut next = ShapeWatch::new(known, &after);
            describe(&mut next, 1, NEW);
            assert_eq!(send(&mut next, 1, 30).is_err(), is_another, "{after:?}");
        }
    }

    #[test]
    fn older_columns_that_come_again_after_a_failover_that_loses_nothing_change_nothing() {
        let known = TableShapes::default();
        let mut first = ShapeWatch::new(known.clone(), &on(7, &[], 1));
        describe(&mut first, 1, OLD);
        pass_over(&mut first, 1, 10);
        describe(&mut first, 1, NEW);
        assert_eq!(send(&mut first, 1, 20), Ok(()));
        let mut next = ShapeWatch::new(known, &on(7, &[(1, 25)], 2));
        describe(&mut next, 1, OLD);
        pass_over(&mut next, 1, 10);
        describe(&mut next, 1, NEW);
        assert_eq!(send(&mut next, 1, 20), Ok(()));
        describe(&mut next, 1, OLD);
        assert!(send(&mut next, 1, 30).is_err(), "these are other columns again");
    }
}
