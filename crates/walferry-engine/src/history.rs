//! Finds out whether the server is the one that was read before, by its timelines, its position and its commits.
//!
//! If a standby that was behind is promoted, or a backup is restored, the server lacks changes that were delivered.
//! What it commits instead takes their positions, and continuing from the stored offset would skip it. So each offset
//! keeps what identifies the server, and three things are checked whenever a stream begins:
//!
//! - `lineage.rs`: the server's timelines. If they forked before the stored position, the fork is known exactly.
//! - `fork.rs`: what the offset means on this server.
//! - `proof.rs`: on the same timeline, the last delivered commit has to come again if the slot still has it.

mod fork;
mod lineage;
mod proof;

use walferry_pgoutput::Lsn;

pub use fork::HistoryMismatch;
pub use lineage::{Lineage, Switch, TimelineFork};
pub use proof::ConfirmGate;

pub(crate) use fork::{OffsetVerdict, Positions, judge, missed, not_there_yet, went_back};
pub(crate) use proof::{ExpectedCommits, MissingTransaction};

use crate::inspection::Inspection;

/// What identifies the server; stored beside the offset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// The server's timelines.
    pub lineage: Lineage,
    /// Whether the server was a standby. If a standby is promoted while it is read, it continues on another timeline,
    /// and the stream does not show when.
    pub standby: bool,
    /// The furthest position that the server has reported in the stream.
    pub furthest: Lsn,
    /// Everything committed before this has been processed because it arrived, not because the server was quiet.
    pub settled: Lsn,
    /// The last commit that arrived and was processed. The server sends it again when asked for it.
    pub commit: Option<SeenCommit>,
    /// Where existing rows were last read, or are being read. A server that forked before this may have other rows.
    pub rows_read: Lsn,
    /// What decides which transactions the server sends: the publication and the stream's parameters.
    pub sends: String,
    /// A person has accepted that the server has another history. The next start continues from the slot's position.
    pub accepted: bool,
    /// Delivered positions that this server does not have.
    pub missing: Option<MissingPositions>,
}

/// Identifies a transaction in the stream, with the values of its Begin message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionMark {
    /// LSN of the commit record.
    pub lsn: Lsn,
    /// Transaction id.
    pub xid: u32,
    /// Commit time, microseconds since 1970.
    pub time_us: i64,
}

/// A transaction whose commit was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SeenCommit {
    /// The transaction.
    pub mark: TransactionMark,
    /// LSN behind its commit record.
    pub end: Lsn,
}

/// Delivered positions that the server does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MissingPositions {
    /// Where the histories diverge, or, if that is not known, where the stream continued.
    pub from: Lsn,
    /// The furthest delivered position.
    pub to: Lsn,
    /// The timeline of the delivered positions.
    pub timeline: u32,
    /// The server's timeline.
    pub server_timeline: u32,
    /// When this was found, microseconds since 1970.
    pub found_us: i64,
}

impl History {
    /// Takes over the identity of this server, which is read from now on.
    pub(crate) fn enter(&mut self, found: &Inspection) {
        self.lineage = found.lineage.shortened();
        self.standby = found.standby;
        self.sends.clone_from(&found.sends);
        self.accepted = false;
    }

    /// Notes that everything before `end` has been processed.
    pub(crate) fn settle(&mut self, end: Lsn) {
        self.settled = self.settled.max(end);
    }

    /// Notes that a commit has been processed.
    pub(crate) fn settle_commit(&mut self, commit: SeenCommit) {
        if self.commit.is_none_or(|last| last.mark.lsn < commit.mark.lsn) {
            self.commit = Some(commit);
        }
        self.settle(commit.end);
    }

    /// Where the stream has to start so that the last commit comes again. This also asks again for positions that were
    /// processed because the server was quiet, since another server may have changes there.
    pub(crate) fn start(&self) -> Option<Lsn> {
        let at = self.commit.map_or(self.settled, |commit| commit.mark.lsn);
        (at != Lsn::INVALID).then_some(at)
    }
}

impl MissingPositions {
    /// One sentence without a full stop.
    pub fn sentence(&self) -> String {
        let Self {
            from,
            to,
            timeline,
            server_timeline,
            ..
        } = self;
        if timeline == server_timeline {
            return format!(
                "changes up to {to} were delivered from another history of timeline {timeline}, and the server may not have those after \
                 {from}"
            );
        }
        format!(
            "changes between {from} and {to} of timeline {timeline} were delivered, but the server does not have them: its timeline \
             {server_timeline} forked at {from}"
        )
    }
}
