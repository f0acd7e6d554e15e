//! Rows of a snapshot on their way to records.

use std::{mem, sync::Arc};

use walferry_event::{Context, SnapshotMarker, TablePlan};
use walferry_pgoutput::{Lsn, Tuple, Xid};

use crate::{
    batch::Batch,
    counts::Counts,
    failure::{Exit, Failure},
    outlet::{From, Outlet},
    pipeline::emit,
    place::Place,
    position::Position,
    progress::{Step, Transaction},
    source::SnapshotTable,
};

/// A snapshot that is being read.
///
/// Whether a row is the last of its table, or of all, shows only when the next frame comes; so one row is held back.
#[derive(Default)]
pub(crate) struct Snapshot {
    table: Option<Arc<Planned>>,
    held: Option<Held>,
    /// Rows of the table so far.
    rows: u64,
    /// Rows of all tables so far.
    all_rows: u64,
    /// Memory of the last row that was held, to be used again.
    spare: Vec<u8>,
    tables: u64,
    /// Where the stream goes on, and the transaction that reads: the same for all tables.
    moment: Option<(Lsn, Transaction)>,
}

struct Planned {
    facts: SnapshotTable,
    plan: TablePlan,
}

struct Held {
    table: Arc<Planned>,
    tuple: Vec<u8>,
    first_of_table: bool,
    first_of_all: bool,
}

impl Snapshot {
    /// The rows that follow are of this table; without a plan it is gone, and has none.
    pub(crate) fn table(&mut self, facts: SnapshotTable, plan: Option<TablePlan>) {
        let SnapshotTable { lsn, xid, time_us, .. } = facts;
        self.moment = Some((lsn, Transaction { xid, time_us }));
        self.table = plan.map(|plan| Arc::new(Planned { facts, plan }));
        self.rows = 0;
        self.tables += 1;
    }

    pub(crate) fn row(
        &mut self,
        tuple: &[u8],
        now_ns: i64,
        place: &mut Place,
        outlet: &mut Outlet,
        counts: &mut Counts,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let Some(table) = self.table.clone() else { return Ok(()) };
        let mut bytes = mem::take(&mut self.spare);
        bytes.clear();
        bytes.extend_from_slice(tuple);
        let (first_of_table, first_of_all) = (self.rows == 0, self.all_rows == 0);
        let held = self.held.replace(Held {
            table,
            tuple: bytes,
            first_of_table,
            first_of_all,
        });
        self.rows += 1;
        self.all_rows += 1;
        counts.snapshot_rows += 1;
        counts.snapshot_tables += self.tables.saturating_sub(1);
        self.tables = self.tables.min(1);
        let Some(held) = held else { return Ok(()) };
        // What a row ends counts before what it begins.
        let marker = match (first_of_table, held.first_of_all, held.first_of_table) {
            (true, ..) => SnapshotMarker::LastInTable,
            (_, true, _) => SnapshotMarker::First,
            (.., true) => SnapshotMarker::FirstInTable,
            _ => SnapshotMarker::True,
        };
        held.send(marker, now_ns, place, outlet, counts, out)?;
        self.spare = held.tuple;
        Ok(())
    }

    /// All rows are read. The last one is marked so, whichever table it is of.
    pub(crate) fn end(
        mut self,
        now_ns: i64,
        place: &mut Place,
        outlet: &mut Outlet,
        counts: &mut Counts,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        counts.snapshot_tables += self.tables;
        if let Some(held) = self.held.take() {
            held.send(SnapshotMarker::Last, now_ns, place, outlet, counts, out)?;
        }
        if let Some((lsn, transaction)) = self.moment {
            out.step(Step::SnapshotEnd { lsn, transaction });
        }
        Ok(())
    }
}

impl Held {
    fn send(
        &self,
        marker: SnapshotMarker,
        now_ns: i64,
        place: &mut Place,
        outlet: &mut Outlet,
        counts: &mut Counts,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let Planned { facts, plan } = &*self.table;
        let context = Context {
            lsn: Some(facts.lsn),
            last_commit_lsn: None,
            xid: Some(Xid(facts.xid)),
            source_time_ns: facts.time_us.saturating_mul(1000),
            processed_time_ns: now_ns,
            xmin: None,
            origin: None,
            snapshot: Some(marker),
        };
        // Nor is it a change that ends, so that it leaves no offset: an unfinished snapshot is read again from its beginning.
        let position = Position {
            lsn: facts.lsn,
            ..Position::default()
        };
        let from = From {
            table: plan.name(),
            position,
            message: "READ",
        };
        let tuple = Tuple::parse(&self.tuple).map_err(|error| {
            let what = format!("a row of {} cannot be read: {error}", plan.name());
            Failure::stop(
                Exit::Record,
                "malformed_snapshot",
                what,
                "this is a defect: please report it",
            )
        })?;
        match plan.snapshot_row(tuple.columns(), &context) {
            Ok(outcome) => emit(outcome, from, place, outlet, counts, out),
            Err(error) => outlet.reject(&error, from, place, out),
        }
    }
}
