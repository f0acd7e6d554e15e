//! Whether the server is the one that was read before: its timelines, how far it was, and what it had committed.
//!
//! A standby that was behind is promoted, or a backup is restored: then the server lacks changes that were delivered, and what it
//! commits instead takes their positions. Going on at the stored offset would skip that. So each offset keeps what the server can
//! be recognised by, and three things are looked at whenever a stream begins:
//!
//! - `lineage.rs`: the timelines of the server. Where they have forked behind the stored position, that is known exactly.
//! - `fork.rs`: what becomes of the offset on this server.
//! - `proof.rs`: on the same timeline the last commit that was delivered has to come again where the slot still has it.

mod fork;
mod lineage;
mod proof;

use walferry_pgoutput::Lsn;

pub use fork::Mismatch;
pub use lineage::{Lineage, Parting, Switch};
pub use proof::Gate;

pub(crate) use fork::{Judged, Positions, judge, missed, not_there_yet, went_back};
pub(crate) use proof::{Expected, Missed};

use crate::source::Found;

/// What the server can be recognised by; kept beside the offset.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// The server's timelines.
    pub lineage: Lineage,
    /// Whether the server was a standby. One that is promoted while it is read goes on under another timeline, and the stream
    /// does not tell when.
    pub standby: bool,
    /// The furthest position of the server that the stream has told.
    pub furthest: Lsn,
    /// Everything that was committed before this has been dealt with because it came, not because the server was quiet.
    pub settled: Lsn,
    /// The last commit that came and that was dealt with. It comes again when it is asked for.
    pub commit: Option<Commit>,
    /// Where existing rows were read last, or are being read: a server that has forked before that may have other rows.
    pub rows_read: Lsn,
    /// What decides which transactions the server sends: the publication and the stream's parameters.
    pub sends: String,
    /// A person has accepted that the server has another history: the next start goes on from the slot's position.
    pub accepted: bool,
    /// Positions that were delivered and that this server does not have.
    pub missing: Option<Missing>,
}

/// A transaction in the stream, as its Begin tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// LSN of its commit record.
    pub lsn: Lsn,
    /// Its id.
    pub xid: u32,
    /// When it was committed, microseconds since 1970.
    pub time_us: i64,
}

/// A transaction of which the end was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Commit {
    /// The transaction.
    pub mark: Mark,
    /// LSN behind its commit record.
    pub end: Lsn,
}

/// Positions that were delivered and that the server does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Missing {
    /// Where the histories part, or where the stream went on when that is not known.
    pub from: Lsn,
    /// The furthest position that was delivered.
    pub to: Lsn,
    /// The timeline that it was on.
    pub timeline: u32,
    /// The server's.
    pub server_timeline: u32,
    /// When that was found, microseconds since 1970.
    pub found_us: i64,
}

impl History {
    /// From here on this server is read.
    pub(crate) fn enter(&mut self, found: &Found) {
        self.lineage = found.lineage.kept();
        self.standby = found.standby;
        self.sends.clone_from(&found.sends);
        self.accepted = false;
    }

    /// Everything before this has been dealt with.
    pub(crate) fn settle(&mut self, end: Lsn) {
        self.settled = self.settled.max(end);
    }

    /// A commit that came has been dealt with.
    pub(crate) fn settle_commit(&mut self, commit: Commit) {
        if self.commit.is_none_or(|last| last.mark.lsn < commit.mark.lsn) {
            self.commit = Some(commit);
        }
        self.settle(commit.end);
    }

    /// Where the stream has to start so that the last commit comes again; what was dealt with because the server was quiet is
    /// asked for again too, since another server may have something there.
    pub(crate) fn start(&self) -> Option<Lsn> {
        let at = self.commit.map_or(self.settled, |commit| commit.mark.lsn);
        (at != Lsn::INVALID).then_some(at)
    }
}

impl Missing {
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
