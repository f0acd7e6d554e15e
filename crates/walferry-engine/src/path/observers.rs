//! All observers of a session's changes, in their order.
//!
//! Each is there only if it is configured, or needed for a while. The calls are not dynamic: this is done for each row.

use walferry_pgoutput::Oid;

use crate::{
    account::Batch,
    failure::Failure,
    incremental::signals::Signals,
    path::{
        change_observer::{ChangeObserver, ObservedChange},
        cursor::ChangeNovelty,
        emit::RecordEmitter,
        fate::ChangeFate,
        shapes::ShapeWatch,
    },
    snapshot::toast_reread::ToastReread,
};

/// The observers.
#[derive(Default)]
pub(super) struct ChangeObservers {
    /// Stops the connector when a captured table has changed, if that is wanted.
    pub(super) shapes: Option<ShapeWatch>,
    /// Signals, incremental snapshots and notifications, if they are configured.
    pub(super) signals: Option<Box<Signals>>,
    /// Notes rows to read again. `None` unless an interrupted snapshot has to continue.
    pub(super) toast_reread: Option<ToastReread>,
}

impl ChangeObservers {
    /// The stream brings a change or a message, of whatever table.
    pub(super) fn stream_brings_change(&mut self) {
        if let Some(signals) = &mut self.signals {
            signals.stream_brings_change();
        }
    }

    /// What the stream brings is sent.
    pub(super) fn stream_is_busy(&mut self) {
        if let Some(signals) = &mut self.signals {
            signals.stream_is_busy();
        }
    }

    /// A change of a captured table has come.
    pub(super) fn before(
        &mut self,
        change: &ObservedChange<'_>,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        if let Some(shapes) = &mut self.shapes {
            shapes.before(change, emit, out)?;
        }
        match &mut self.signals {
            Some(signals) => signals.before(change, emit, out),
            None => Ok(()),
        }
    }

    /// Its records are in the batch.
    pub(super) fn after(
        &mut self,
        change: &ObservedChange<'_>,
        fate: ChangeFate,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) {
        if let Some(shapes) = &mut self.shapes {
            shapes.after(change, fate, emit, out);
        }
        if let Some(signals) = &mut self.signals {
            signals.after(change, fate, emit, out);
        }
        if let Some(reread) = &mut self.toast_reread {
            reread.after(change, fate, emit, out);
        }
    }

    /// A captured table is truncated.
    pub(super) fn before_truncation(
        &mut self,
        (relation, table): (Oid, &str),
        novelty: ChangeNovelty,
        xid: Option<u32>,
    ) -> Result<(), Failure> {
        if let Some(shapes) = &mut self.shapes {
            shapes.check(relation, novelty)?;
        }
        if let Some(signals) = &mut self.signals {
            signals.doubt_rows_of(table, xid);
        }
        Ok(())
    }

    /// Its record is in the batch, if it is sent.
    pub(super) fn after_truncation(&mut self, is_sent: bool) {
        if let Some(shapes) = self.shapes.as_mut().filter(|_| is_sent) {
            shapes.sends();
        }
    }
}
