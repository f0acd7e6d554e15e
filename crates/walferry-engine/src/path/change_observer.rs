//! What looks at a change on its way besides its records: signals, watched columns, rows to read again.
//!
//! An observer may send records of its own, and may end the session. It never alters the records of the change. For each change of a
//! captured table, [`before`](ChangeObserver::before) is called once its position is known, and [`after`](ChangeObserver::after) once its
//! records are in the batch, with their [fate](ChangeFate). A change that was delivered before has no records, so it has no `after`.

use walferry_event::{Context, TablePlan};
use walferry_pgoutput::Change;

use crate::{
    account::Batch,
    failure::Failure,
    message_type::MessageType,
    path::{cursor::ChangeNovelty, emit::RecordEmitter, fate::ChangeFate},
};

/// A change of a captured table.
pub(crate) struct ObservedChange<'a> {
    pub(crate) plan: &'a TablePlan,
    pub(crate) change: &'a Change<'a>,
    pub(crate) message: MessageType,
    pub(crate) novelty: ChangeNovelty,
    pub(crate) context: &'a Context<'a>,
}

impl ObservedChange<'_> {
    /// The id of its transaction.
    pub(crate) fn xid(&self) -> Option<u32> {
        self.context.xid.map(|xid| xid.0)
    }
}

/// Looks at changes of captured tables, in the order of the stream.
pub(crate) trait ChangeObserver {
    /// The change has come.
    ///
    /// # Errors
    /// The session has to end.
    fn before(
        &mut self,
        change: &ObservedChange<'_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let _ = (change, emit, out);
        Ok(())
    }

    /// Its records are in the batch, as far as they are sent.
    fn after(&mut self, change: &ObservedChange<'_>, fate: ChangeFate, emit: &mut RecordEmitter, out: &mut Batch);
}
