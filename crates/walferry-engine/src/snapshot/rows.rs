//! Turns the rows of a snapshot into records.

use std::{collections::HashMap, mem, sync::Arc};
use walferry_diagnosis::Kind;

use walferry_event::{Context, SnapshotMarker, TablePlan};
use walferry_pgoutput::{Oid, Tuple, Xid};

use crate::{
    account::{Batch, StreamStep},
    failure::Failure,
    message_type::MessageType,
    path::{
        emit::{Provenance, RecordEmitter},
        plans::RelationPlans,
    },
    position::Position,
    snapshot::SnapshotStep,
    source::{SnapshotKind, SnapshotTable},
};

/// A snapshot that is being read.
///
/// Only the next frame shows whether a row is the last of its table, or of all. So one row is held back.
#[derive(Default)]
pub(crate) struct Snapshot {
    tables: HashMap<Oid, Arc<Planned>>,
    /// The table of the following rows. `None` if it no longer exists: then it has no rows.
    table: Option<Arc<Planned>>,
    /// Whether rows of this table have come.
    in_table: bool,
    /// Whether the first row of the first table has come.
    begun: bool,
    held: Option<HeldRow>,
    /// Parts that are complete once the held row is sent.
    parts: Vec<StreamStep>,
    /// How many rows have come.
    rows: u64,
    /// Memory of the last row that was held, to be used again.
    spare: Vec<u8>,
}

struct Planned {
    facts: Arc<SnapshotTable>,
    plan: TablePlan,
}

struct HeldRow {
    table: Arc<Planned>,
    tuple: Vec<u8>,
    marker: SnapshotMarker,
}

impl Snapshot {
    /// The following rows belong to this table. Rows of it may have come before.
    pub(crate) fn table(&mut self, facts: Arc<SnapshotTable>, plans: &mut RelationPlans) -> Result<(), Failure> {
        let Some(oid) = facts.catalog.table.as_ref().map(|table| table.oid) else {
            self.table = None;
            return Ok(());
        };
        let is_same = |table: &Arc<Planned>| Arc::ptr_eq(&table.facts, &facts);
        if self.table.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        let known = self.tables.get(&oid).filter(|table| is_same(table)).cloned();
        let table = match known {
            Some(table) => Some(table),
            None => {
                let plan = plans.snapshot(&mut facts.catalog.clone())?;
                plan.map(|plan| {
                    let facts = facts.clone();
                    Arc::new(Planned { facts, plan })
                })
            }
        };
        if let Some(table) = &table {
            self.tables.insert(oid, table.clone());
        }
        (self.table, self.in_table) = (table, false);
        Ok(())
    }

    pub(crate) fn row(
        &mut self,
        tuple: &[u8],
        now_ns: i64,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let Some(table) = self.table.clone() else { return Ok(()) };
        self.rows += 1;
        let begins_table = table.facts.ordered && !mem::replace(&mut self.in_table, true);
        emit.counts.snapshot_row(table.plan.name());
        if let Some(held) = &mut self.held
            && begins_table
            && !matches!(held.marker, SnapshotMarker::First | SnapshotMarker::Incremental)
        {
            held.marker = SnapshotMarker::LastInTable;
        }
        self.send(now_ns, emit, out)?;
        let marker = if table.facts.kind == SnapshotKind::Incremental {
            SnapshotMarker::Incremental
        } else if table.facts.first && !mem::replace(&mut self.begun, true) {
            SnapshotMarker::First
        } else if begins_table && !table.facts.begun {
            SnapshotMarker::FirstInTable
        } else {
            SnapshotMarker::True
        };
        let mut bytes = mem::take(&mut self.spare);
        bytes.clear();
        bytes.extend_from_slice(tuple);
        self.held = Some(HeldRow {
            table,
            tuple: bytes,
            marker,
        });
        Ok(())
    }

    /// A part is complete. It counts as delivered once all its rows are.
    pub(crate) fn part(&mut self, step: SnapshotStep, out: &mut Batch) {
        match self.held {
            Some(_) => self.parts.push(StreamStep::Snapshot(step)),
            None => out.step(StreamStep::Snapshot(step)),
        }
    }

    /// How many rows have come so far.
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// All rows are read. The last one is marked so, whichever table it is of.
    pub(crate) fn end(mut self, now_ns: i64, emit: &mut RecordEmitter, out: &mut Batch) -> Result<(), Failure> {
        if let Some(held) = &mut self.held
            && held.marker != SnapshotMarker::Incremental
        {
            held.marker = SnapshotMarker::Last;
        }
        self.send(now_ns, emit, out)
    }

    fn send(&mut self, now_ns: i64, emit: &mut RecordEmitter, out: &mut Batch) -> Result<(), Failure> {
        if let Some(held) = self.held.take() {
            held.send(now_ns, emit, out)?;
            self.spare = held.tuple;
        }
        self.parts.drain(..).for_each(|part| out.step(part));
        Ok(())
    }
}

impl HeldRow {
    fn send(&self, now_ns: i64, emit: &mut RecordEmitter, out: &mut Batch) -> Result<(), Failure> {
        let Planned { facts, plan } = &*self.table;
        // The rows of a blocking snapshot carry the position at which the stream stands, as in Debezium.
        let commit = emit.cursor.last_commit();
        let (lsn, last_commit_lsn, xid, source_time_ns) = match facts.kind {
            SnapshotKind::Initial => (facts.lsn, None, Some(facts.xid), facts.time_us.saturating_mul(1000)),
            SnapshotKind::Blocking => {
                let xid = emit.cursor.transaction().xid;
                let time_ns = facts.time_us.saturating_mul(1000);
                (commit.unwrap_or(facts.lsn), commit, Some(xid), time_ns)
            }
            SnapshotKind::Incremental => (facts.lsn, commit, None, now_ns),
        };
        let context = Context {
            lsn: Some(lsn),
            last_commit_lsn,
            xid: xid.map(Xid),
            source_time_ns,
            processed_time_ns: now_ns,
            xmin: None,
            origin: None,
            snapshot: Some(self.marker),
        };
        // No change ends here either, so the row alone gives no offset: an unfinished snapshot is stored by parts.
        let position = Position {
            lsn: facts.lsn,
            ..Position::default()
        };
        let from = Provenance {
            table: plan.name(),
            position,
            message: MessageType::Read,
        };
        let tuple = Tuple::parse(&self.tuple).map_err(|error| {
            let what = format!("a row of {} cannot be decoded: {error}", plan.name());
            Failure::stop(Kind::MalformedSnapshot, what, "this is a bug: please report it")
        })?;
        match plan.snapshot_row(tuple.columns(), &context) {
            Ok(outcome) => emit.send_all(outcome, from, out),
            Err(error) => emit.reject(&error, from, out),
        }
    }
}
