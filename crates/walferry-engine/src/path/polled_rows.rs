//! Turns rows that were read by polling into records.

use std::sync::Arc;

use walferry_diagnosis::Kind;
use walferry_event::{Context, TablePlan, catalog::Catalog};
use walferry_pgoutput::{Change, Operation, Tuple};

use crate::{
    account::Batch,
    failure::Failure,
    message_type::MessageType,
    path::{emit::Provenance, pipeline::Pipeline},
    position::Position,
};

/// A table whose rows are polled, with what is computed once for it.
#[derive(Clone)]
pub struct PolledTable(Arc<Planned>);

struct Planned {
    catalog: Catalog,
    plan: TablePlan,
}

impl Pipeline {
    /// Plans a table. `None` if it no longer exists.
    ///
    /// # Errors
    /// The table cannot be read with these settings.
    pub fn polled_table(&mut self, mut catalog: Catalog) -> Result<Option<PolledTable>, Failure> {
        let plan = self.plan_of_rows(&mut catalog)?;
        Ok(plan.map(|plan| PolledTable(Arc::new(Planned { catalog, plan }))))
    }

    /// Makes the record of a row, as if its insert had just been read from the stream. It has no position. The tuple is pgoutput's
    /// TupleData, with the columns of the table's facts.
    ///
    /// # Errors
    /// The row cannot be sent. The batch has nothing of it.
    pub fn polled_row(
        &mut self,
        table: &PolledTable,
        tuple: &[u8],
        now_ns: i64,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let Planned { catalog, plan } = &*table.0;
        let malformed = |error: &dyn std::fmt::Display| {
            let what = format!("a row of {} cannot be decoded: {error}", plan.name());
            Failure::stop(Kind::MalformedSnapshot, what, "this is a bug: please report it")
        };
        let relation = catalog.table.as_ref().map(|facts| facts.oid);
        let change = Change {
            relation: relation.ok_or_else(|| malformed(&"its table is unknown"))?,
            operation: Operation::Insert {
                new: Tuple::parse(tuple).map_err(|error| malformed(&error))?,
            },
        };
        let context = Context {
            lsn: None,
            last_commit_lsn: None,
            xid: None,
            source_time_ns: now_ns,
            processed_time_ns: now_ns,
            xmin: None,
            origin: None,
            snapshot: None,
        };
        let from = Provenance {
            table: plan.name(),
            position: Position::default(),
            message: MessageType::Insert,
        };
        match plan.records(&change, &context, None) {
            Ok(outcome) => self.emitter().send_all(outcome, from, out),
            Err(error) => self.emitter().reject(&error, from, out),
        }
    }
}
