//! The simulated server beside its tables: slot, connection, exported snapshots.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};
use walferry_diagnosis::Kind;

use tokio::{sync::watch, time::Instant};
use walferry_engine::{
    Failure,
    gap::GAP,
    history::{Lineage, Switch},
    progress::Stored,
};
use walferry_pgoutput::Lsn;

use super::{
    database::{Database, TABLES, Table},
    plan::Plan,
    wal::{self, Sent},
};
use crate::random::Random;

/// What the server knows of its one client.
#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) is_down: bool,
    pub(crate) slot: Option<Slot>,
    /// A slot that a failover has not brought here yet.
    pub(crate) slot_to_come: Option<Slot>,
    /// The server's timelines.
    pub(crate) lineage: Lineage,
    /// Those of all servers so far.
    timelines: Vec<Lineage>,
    /// What the next snapshot sees.
    pub(crate) exported: Option<Exported>,
    pub(crate) connection: Option<Connection>,
    /// What ends the statement or stream that is under way.
    pub(crate) broken: Option<Failure>,
    /// The walsender of a connection that nobody has closed keeps the slot until it has noticed.
    pub(crate) held_until: Option<Instant>,
    /// The server decodes a transaction of which nothing is sent: from there on each connection waits for so long.
    pub(crate) decodes: Option<(Lsn, Duration)>,
    /// How often all connections were cut.
    pub(crate) cuts: u64,
}

/// How a server takes the place of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Becomes {
    /// A standby that is promoted.
    Primary {
        /// Whether it finds the timelines of all other servers.
        shares_archive: bool,
    },
    /// A copy of the data directory that is started without recovery: it keeps the timeline.
    Copy,
}

/// The replication slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    /// `confirmed_flush_lsn`.
    pub(crate) confirmed: Lsn,
    /// The same as it is on disk. Postgres writes it at a checkpoint, and goes back to it after a crash.
    pub(crate) on_disk: Lsn,
}

/// The tables as of a position.
#[derive(Debug, Clone)]
pub(crate) struct Exported {
    pub(crate) lsn: Lsn,
    pub(crate) tables: [Table; TABLES.len()],
}

/// A walsender.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) confirmable: watch::Receiver<Option<Stored>>,
    /// Transactions that were committed before are passed over.
    from: Lsn,
    /// Where to end.
    until: Option<Lsn>,
    begun: Instant,
    described: BTreeSet<usize>,
    coming: VecDeque<Sent>,
    told: Lsn,
    /// Nothing comes through any more.
    pub(crate) is_dead: bool,
}

impl Server {
    /// A server on its first timeline, without a slot.
    pub(crate) fn new() -> Self {
        let lineage = Lineage {
            left: Vec::new(),
            now: 1,
        };
        Self {
            timelines: vec![lineage.clone()],
            lineage,
            ..Self::default()
        }
    }

    /// What any statement meets.
    pub(crate) fn answer(&mut self) -> Result<(), Failure> {
        if self.is_down {
            return Err(unreachable());
        }
        self.broken.take().map_or(Ok(()), Err)
    }

    /// The connections are cut.
    pub(crate) fn cut(&mut self) {
        self.broken = Some(unreachable());
        self.cuts += 1;
        self.connection = None;
        self.exported = None;
    }

    /// It stops without a word, and goes on from what it has on disk.
    pub(crate) fn crash(&mut self, database: &mut Database) {
        self.cut();
        database.abort_all();
        if let Some(slot) = &mut self.slot {
            slot.confirmed = slot.on_disk;
        }
    }

    /// Another server answers, which has the WAL up to there, on a timeline of its own or on the same. Its slot stands no farther.
    pub(crate) fn replace(&mut self, at: Lsn, becomes: Becomes, slot: Slot, comes_later: bool) {
        self.cut();
        self.is_down = false;
        if let Becomes::Primary { shares_archive } = becomes {
            self.promote(at, shares_archive);
        }
        self.slot = (!comes_later).then_some(slot);
        self.slot_to_come = comes_later.then_some(slot);
    }

    /// The standby had WAL up to there. Timelines that were begun behind it are none of its own. It gives its new timeline the
    /// number behind the last that it knows of: of all servers where they share an archive, otherwise of its own history.
    fn promote(&mut self, at: Lsn, shares_archive: bool) {
        let Lineage { left, now } = &mut self.lineage;
        let kept = left.partition_point(|switch| switch.at <= at);
        let timeline = left.get(kept).map_or(*now, |switch| switch.timeline);
        left.truncate(kept);
        left.push(Switch { timeline, at });
        *now = timeline + 1;
        // Two servers that were promoted at the same position cannot be told apart by their timelines.
        if shares_archive || self.timelines.contains(&self.lineage) {
            self.lineage.now = 1 + self.timelines.iter().map(|lineage| lineage.now).max().unwrap_or(0);
        }
        self.timelines.push(self.lineage.clone());
    }

    /// The slot of a failover arrives, unless another one has been made.
    pub(crate) fn bring_slot(&mut self) {
        self.slot = self.slot.or(self.slot_to_come.take());
    }

    pub(crate) fn checkpoint(&mut self) {
        if let Some(slot) = &mut self.slot {
            slot.on_disk = slot.confirmed;
        }
    }

    /// Begins to stream. Asked for a position before the slot's, Postgres begins at the slot's and says nothing.
    pub(crate) fn start(
        &mut self,
        link: Option<u64>,
        from: Lsn,
        until: Option<Lsn>,
        confirmable: watch::Receiver<Option<Stored>>,
    ) -> Result<Lsn, Failure> {
        self.answer()?;
        if link.is_some_and(|cuts| cuts != self.cuts) {
            return Err(unreachable());
        }
        if self.held_until.is_some_and(|until| Instant::now() < until) {
            return Err(Failure::retry(Kind::SlotInUse, "a walsender has the slot"));
        }
        let slot = self.slot.ok_or_else(|| Failure::retry(Kind::SlotLost, "no slot"))?;
        let from = from.max(slot.confirmed);
        self.connection = Some(Connection {
            confirmable,
            from,
            until,
            begun: Instant::now(),
            described: BTreeSet::new(),
            coming: VecDeque::new(),
            told: Lsn::INVALID,
            is_dead: false,
        });
        Ok(from)
    }
}

impl Connection {
    /// What is read from the socket next; `None` once everything before [`Connection::until`] has been.
    pub(crate) fn next(
        &mut self,
        database: &Database,
        decodes: Option<(Lsn, Duration)>,
        plan: &Plan,
        random: &mut Random,
    ) -> Result<Option<Vec<Sent>>, Failure> {
        if self.is_dead || decodes.is_some_and(|(from, takes)| self.from >= from && self.begun.elapsed() < takes) {
            return Ok(Some(Vec::new()));
        }
        let most = 1 + random.below(6);
        let mut read = Vec::new();
        for _ in 0..most {
            if self.coming.is_empty() && !self.fetch(database, plan, random) {
                return Ok((!read.is_empty()).then_some(read));
            }
            if matches!(self.coming.front(), Some(Sent::Gap)) {
                let gap = Failure::retry(GAP, "there was no publication");
                return if read.is_empty() { Err(gap) } else { Ok(Some(read)) };
            }
            read.extend(self.coming.pop_front());
        }
        Ok(Some(read))
    }

    /// Goes on to the next transaction, or tells where the server is. Returns false where the stream is to end.
    fn fetch(&mut self, database: &Database, plan: &Plan, random: &mut Random) -> bool {
        let reached = |lsn: Lsn| self.until.is_some_and(|until| lsn >= until);
        let Some(unit) = database.units.iter().find(|unit| unit.commit_lsn >= self.from) else {
            if reached(database.end) {
                return false;
            }
            if self.told < database.end || random.once_in(4) {
                self.told = database.end;
                self.coming.push_back(Sent::Keepalive(database.end));
            }
            return true;
        };
        if reached(unit.commit_lsn) && !unit.is_message {
            return false;
        }
        if random.once_in(4) && !reached(unit.commit_lsn) {
            self.coming
                .push_back(Sent::Keepalive(database.boundary(unit.commit_lsn)));
        }
        let begin = self.coming.len();
        wal::messages(unit, &mut self.described, plan, &mut self.coming);
        // The server may tell how far it is at any time. Inside a transaction that is no word about its rows.
        let messages = (self.coming.len() - begin) as u64;
        if messages > 1 && random.once_in(3) {
            let at = begin + 1 + random.below(messages - 1) as usize;
            self.coming.insert(at, Sent::Keepalive(database.end));
        }
        self.from = Lsn(unit.commit_lsn.0 + 1);
        true
    }
}

pub(crate) fn unreachable() -> Failure {
    Failure::retry(Kind::Unreachable, "connection lost")
}
