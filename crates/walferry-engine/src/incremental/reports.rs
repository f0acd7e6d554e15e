//! What people see of incremental snapshots: progress, news for the status, and failures, with the line in the log for each.
//!
//! Nothing here decides anything. What has happened is collected while frames are processed, and [`Reports::report`] hands it to the status
//! from time to time. The log gets it at once.

use std::mem;

use tracing::{info, warn};

use crate::{
    failure::{Disposition, Failure},
    incremental::{
        commits::Unseen,
        estimates::Estimates,
        machine::{Incremental, NotRead, TableEnd},
        rereads::RereadReport,
    },
    status::{SnapshotNews, Status, TableState},
};

/// What has not been handed to the status.
#[derive(Debug, Default)]
pub(super) struct Reports {
    pub(super) estimates: Estimates,
    /// What has become of snapshots.
    news: Vec<SnapshotNews>,
    /// What went wrong last.
    incident: Option<Failure>,
    /// Whether the status has the present progress.
    is_current: bool,
}

impl Reports {
    /// The state of the snapshot has changed.
    pub(super) const fn state_changed(&mut self) {
        self.is_current = false;
    }

    pub(super) fn add(&mut self, news: SnapshotNews) {
        self.news.push(news);
    }

    /// Hands everything to the status.
    pub(super) fn report(&mut self, snapshot: &Incremental, status: &Status) {
        for news in self.news.drain(..) {
            status.tell_snapshot(news);
        }
        if let Some(incident) = self.incident.take() {
            status.tell_incident(&incident);
        }
        if !mem::replace(&mut self.is_current, true) {
            self.estimates.report(snapshot, status);
        }
    }

    /// The incremental snapshot of a table has ended.
    pub(super) fn table_ended(&mut self, table: String, end: TableEnd) {
        let state = match end {
            TableEnd::Read { rows, .. } => TableState::Read { rows: Some(rows) },
            TableEnd::Stopped => TableState::Stopped,
            TableEnd::NotRead(NotRead { why, hint }) => {
                let what =
                    format!("the incremental snapshot of {table} failed, because the table cannot be read: {why}");
                let kind = walferry_diagnosis::Kind::TableNotRead;
                let failure = Failure::new(Disposition::stop(kind), kind, what, hint);
                warn!(code = failure.code(), hint = failure.hint(), "{failure}");
                self.estimates.table_failed();
                TableState::Failed(failure)
            }
        };
        self.add(SnapshotNews::Ended { table, state });
    }

    /// The chunk of `table` is read again.
    pub(super) fn reread(&mut self, report: RereadReport, table: &str, signal_table: &str) {
        match report {
            RereadReport::OpeningRowIsLost => self.row_is_lost(
                "opens the window of a chunk, or brings its deletion before the chunk is read",
                table,
                signal_table,
            ),
            RereadReport::StaysHidden(unseen) => self.stays_hidden(unseen, table),
            RereadReport::WasHidden(unseen) => log_hidden(unseen),
            RereadReport::StaysUnclear(times) => warn!(
                table,
                times,
                hint = "request a blocking snapshot of the table, set a smaller incremental.snapshot.chunk.size, or give the table a \
                        primary key that its replica identity contains",
                "a chunk of the incremental snapshot is read again and again, because the stream contains changes of rows that cannot be \
                 told apart"
            ),
        }
    }

    /// The stream does not bring the row of the signal table that does this.
    pub(super) fn row_is_lost(&mut self, does: &str, table: &str, signal_table: &str) {
        self.waits(
            format!(
                "the stream does not bring the row of the signal table {signal_table} that {does}: the chunk of {table} is read again"
            ),
            format!(
                "the publication must contain {signal_table} and publish its inserts, without a row filter (with \
                 incremental.snapshot.watermarking.strategy=insert_delete its deletes, too), and no trigger or rule of {signal_table} \
                 may change or drop what is written to it"
            ),
        );
    }

    /// A transaction that a chunk must include does not become visible.
    fn stays_hidden(&mut self, unseen: Unseen, table: &str) {
        let (xid, delivered) = match unseen {
            Unseen::Brought(xid) => (xid, "has been delivered already"),
            Unseen::Overflow(xid) | Unseen::Earlier(xid) => (xid, "may have been delivered already"),
        };
        self.waits(
            format!(
                "the incremental snapshot of {table} waits for the end of transaction {xid}, which {delivered}: rows that \
                 were read before it could be sent behind newer ones"
            ),
            "look for the transaction in pg_stat_activity (column backend_xid) or in pg_prepared_xacts, and end it. If its wait_event \
             is SyncRep, it waits for a synchronous standby"
                .to_owned(),
        );
    }

    fn waits(&mut self, what: String, hint: String) {
        let kind = walferry_diagnosis::Kind::IncrementalSnapshotWaits;
        let failure = Failure::new(Disposition::Retry, kind, what, Some(hint));
        warn!(code = failure.code(), hint = failure.hint(), "{failure}");
        self.incident = Some(failure);
    }
}

/// Logs that a chunk is read again because of this transaction.
fn log_hidden(unseen: Unseen) {
    match unseen {
        Unseen::Brought(xid) => info!(
            xid,
            "the chunk was read before a transaction that the stream contains was visible; it is read again"
        ),
        Unseen::Overflow(xid) => info!(
            xid,
            "the chunk was read before the end of a transaction that the stream may have brought; it is read again"
        ),
        Unseen::Earlier(xid) => info!(
            xid,
            "the chunk was read before the end of a transaction that may have been delivered in an earlier session; it is read again"
        ),
    }
}
