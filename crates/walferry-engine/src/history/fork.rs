//! Decides what a stored offset means on the server that was found.

use walferry_diagnosis::Kind;
use walferry_pgoutput::Lsn;

use super::{History, MissingPositions, MissingTransaction, TimelineFork};
use crate::{
    account::StoredOffset,
    failure::Failure,
    inspection::{FoundSlot, Inspection},
};

/// What `offset.mismatch.strategy` says for a slot that is ahead of the stored offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HistoryMismatch {
    /// Refuse: something else moved the slot, so changes may be missing. Walferry's default.
    #[default]
    Refuse,
    /// Continue; the changes between are missing (`no_validation`, `trust_slot`, `trust_greater_lsn`, `trust_offset`).
    /// These are the same here: Postgres never goes back behind the confirmed position.
    GoOn,
}

/// What to do with a stored offset.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OffsetVerdict {
    /// It holds, as far as can be known before the stream begins.
    Holds,
    /// The stream continues from another position.
    Moved(Box<StoredOffset>),
}

/// Compares the server with the one that the offset was stored for. Does nothing unless the slot can be read;
/// [`crate::session::start`] handles a missing slot.
pub(crate) fn judge(
    slot: &str,
    found: &Inspection,
    stored: &StoredOffset,
    mismatch: HistoryMismatch,
    now_us: i64,
) -> Result<OffsetVerdict, Failure> {
    let (Some(history), Some(on_server)) = (&stored.history, found.slot.as_ref().filter(|slot| slot.alive)) else {
        return Ok(OffsetVerdict::Holds);
    };
    if stored.system_id.is_some_and(|id| id != found.system_id) {
        return Ok(OffsetVerdict::Holds);
    }
    let offset = Offset {
        slot,
        found,
        stored,
        history,
        confirmed: confirmed(on_server),
        now_us,
    };
    if history.accepted {
        return Ok(offset.accepted());
    }
    match history.lineage.parts_from(&found.lineage) {
        TimelineFork::At(fork) => offset.forked(fork, mismatch),
        TimelineFork::Unknown => offset.unknown(),
        TimelineFork::Same => offset.same(),
    }
}

/// If the slot is missing, but may appear again, returns the reason to wait for it. A stored offset means that the slot
/// existed.
pub(crate) fn not_there_yet(slot: &str, found: &Inspection, stored: &StoredOffset) -> Option<Failure> {
    if found.slot.is_some() || stored.system_id.is_some_and(|id| id != found.system_id) {
        return None;
    }
    if found.standby {
        return Some(waits(
            format!("the server is a standby, and replication slot {slot} does not exist on it"),
            format!(
                "this resolves itself when the standby is promoted and has the slot, or when the address leads to the primary again; \
                 meanwhile no other slot is created. {}",
                bring(slot)
            ),
        ));
    }
    let history = stored.history.as_ref()?;
    let (before, now) = (history.lineage.now, found.lineage.now);
    (history.lineage.parts_from(&found.lineage) != TimelineFork::Same).then(|| {
        waits(
            format!(
                "replication slot {slot} does not exist on this server, which is on timeline {now}; the offset was stored on timeline \
                 {before}: another server was promoted, or a backup was restored, and the slot does not exist there yet"
            ),
            format!(
                "{} If that is not possible, changes after the stored offset can no longer be read: run `walferry offsets reset` (if the \
                 offset is in Connect's topics: PUT /connectors/NAME/stop, then DELETE /connectors/NAME/offsets), and read all rows again \
                 with `snapshot.mode=initial`",
                bring(slot)
            ),
        )
    })
}

fn waits(what: String, hint: String) -> Failure {
    let mut failure = Failure::retry(Kind::SlotNotThereYet, what);
    failure.causes[0].hint = Some(hint);
    failure
}

fn bring(slot: &str) -> String {
    format!(
        "Create slot {slot} there as part of your failover: use a synchronized slot (Postgres 17, `slot.failover=true` and \
         `sync_replication_slots`), or a copy of the former primary's slot."
    )
}

/// The stream was read further than the server's log reaches.
pub(crate) fn went_back(furthest: Lsn, found: &Inspection) -> Option<Failure> {
    let end = found.wal_end;
    (furthest > end).then(|| {
        if found.standby {
            return Failure::retry(
                Kind::StandbyBehind,
                format!("the server is a standby that has WAL up to {end}, but WAL up to {furthest} was read before"),
            );
        }
        Failure::stop(
            Kind::OffsetBeyondServer,
            format!("WAL up to {furthest} was read before, but the server's WAL ends at {end}"),
            format!(
                "the server was restored from a backup, or is a different server: rows that were delivered may not exist there. If this \
                 is the wrong server, connect to the right one; nothing else is needed. {CHOICES}"
            ),
        )
    })
}

const CHOICES: &str = "Otherwise read all rows again (`walferry offsets reset`, `snapshot.mode=initial`), or accept this server: after \
                       `walferry offsets accept-history`, the next start continues from the slot's position. If the offset is in \
                       Connect's topics, neither command finds it: send PUT /connectors/NAME/stop and DELETE \
                       /connectors/NAME/offsets, then set `snapshot.mode` (`initial` reads all rows again, `no_data` continues from the \
                       slot's position) and resume the connector";

/// A transaction that had to come in the stream did not come.
pub(crate) fn missed(missed: &MissingTransaction, stored: &Positions) -> Failure {
    let MissingTransaction { expected, instead, at } = missed;
    let time = |time_us: i64| match jiff::Timestamp::from_microsecond(time_us) {
        Ok(time) => time.to_string(),
        Err(_) => format!("{time_us} µs"),
    };
    let described = |mark: &super::TransactionMark| {
        format!(
            "transaction {} of {}, whose commit is at {}",
            mark.xid,
            time(mark.time_us),
            mark.lsn
        )
    };
    let there = match instead {
        Some(came) => format!("the server has {} instead", described(came)),
        None => format!("the stream reached {at} without it"),
    };
    let Positions { from, processed } = stored;
    Failure::stop(
        Kind::AnotherHistory,
        format!(
            "the server's history differs from the one that was read: {} was delivered, but {there}. The stored offset is {processed}, \
             the stream started at {from}; the histories diverge somewhere before {}",
            described(expected),
            expected.lsn,
        ),
        format!(
            "nothing from this server was sent, and the slot was not moved. The server is a copy, a restored backup or a different \
             server; or its publication was changed so that it now excludes that transaction. If this is the wrong server, connect to the \
             right one; nothing else is needed. {CHOICES}: no later change of this server is skipped, and some may be sent twice"
        ),
    )
}

/// Where a stream began, and the offset from which it continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Positions {
    pub(crate) from: Lsn,
    pub(crate) processed: Lsn,
}

/// An offset, with everything that it is compared with.
struct Offset<'a> {
    slot: &'a str,
    found: &'a Inspection,
    stored: &'a StoredOffset,
    history: &'a History,
    /// The slot's position.
    confirmed: Lsn,
    now_us: i64,
}

impl Offset<'_> {
    fn processed(&self) -> Lsn {
        self.stored.connect.lsn_proc.map_or(self.history.settled, Lsn)
    }

    /// The end of what was delivered, including a transaction that was delivered in part.
    fn delivered(&self) -> Lsn {
        let unit = self.stored.position.map(|position| position.unit).unwrap_or_default();
        self.history.settled.max(unit)
    }

    /// Where existing rows were last read. A snapshot that continues may have read them as far as the stream had got.
    fn rows_read(&self) -> Lsn {
        let streamed = self.stored.snapshot.as_ref().map(|_| self.history.furthest);
        self.history.rows_read.max(streamed.unwrap_or_default())
    }

    /// The timelines show no other history. If the slot still has the last commit, the stream will show one.
    fn same(&self) -> Result<OffsetVerdict, Failure> {
        match went_back(self.history.furthest, self.found) {
            Some(failure) => Err(failure),
            None => Ok(self.holds()),
        }
    }

    /// Where the timelines diverge is not known, so the last commit has to prove that nothing is missing.
    fn unknown(&self) -> Result<OffsetVerdict, Failure> {
        let comes_again = self
            .history
            .commit
            .is_some_and(|commit| commit.mark.lsn >= self.confirmed);
        if comes_again && self.sends_the_same() {
            return self.same();
        }
        Err(self.refuse(
            format!(
                "the server is on timeline {}, the offset was stored on timeline {}, and the server has no history file that says where \
                 they diverge",
                self.found.lineage.now, self.history.lineage.now
            ),
            "Changes may be missing between the fork and the slot's position",
        ))
    }

    fn forked(&self, fork: Lsn, mismatch: HistoryMismatch) -> Result<OffsetVerdict, Failure> {
        let (delivered, processed) = (self.delivered(), self.processed());
        let unit = self.stored.position.map(|position| position.unit);
        let has_more = self.history.settled > fork || unit.is_some_and(|unit| unit >= fork);
        if !has_more && processed <= fork {
            // Nothing was delivered beyond the fork. Positions that the former server only reported, or rows read
            // there, do not count for this server.
            return Ok(match self.rows_read().max(self.history.furthest) > fork {
                true => self.go_on_at_fork(fork, None),
                false => self.holds(),
            });
        }
        // The standby was promoted while it was read. Its slot stands at a position to which only we can have moved it.
        if self.history.standby && (fork..=processed).contains(&self.confirmed) && self.confirmed > fork {
            return Ok(self.holds());
        }
        if self.confirmed > fork && mismatch == HistoryMismatch::Refuse {
            let (before, now) = (self.history.lineage.now, self.found.lineage.now);
            return Err(self.refuse(
                format!(
                    "the server is on timeline {now}, which forked at {fork} from timeline {before}, and changes up to {delivered} were \
                     delivered"
                ),
                &format!(
                    "Changes that this server committed between {fork} and {} can no longer be read",
                    self.confirmed
                ),
            ));
        }
        Ok(self.go_on_at_fork(fork, has_more.then_some(delivered)))
    }

    /// Continues from the fork. What was committed before it has been processed; nothing after it has.
    fn go_on_at_fork(&self, fork: Lsn, delivered: Option<Lsn>) -> OffsetVerdict {
        let mut offset = self.stored.clone();
        let history = offset.history.get_or_insert_default();
        history.settled = history.settled.min(fork);
        let sends_the_same = self.sends_the_same();
        history.commit = history.commit.filter(|commit| sends_the_same && commit.end <= fork);
        history.furthest = Lsn::INVALID;
        history.rows_read = history.rows_read.min(fork);
        if let Some(to) = delivered {
            history.missing = Some(self.missing(fork, to));
        }
        offset.position = offset.position.filter(|position| position.unit < fork);
        let least = |lsn: Option<u64>| lsn.map(|lsn| lsn.min(fork.0));
        let connect = &mut offset.connect;
        (connect.lsn, connect.lsn_proc) = (least(connect.lsn), least(connect.lsn_proc));
        // `lsn_commit` must be the position of a commit.
        connect.lsn_commit = connect.lsn_commit.filter(|&lsn| lsn <= fork.0);
        history.enter(self.found);
        // Its rows may have been read behind the fork, so it starts over.
        offset.blocking = None;
        if self.rows_read() > fork {
            // Some rows read there were deleted or changed after the fork. On this server they are as before, and the
            // stream does not send them.
            offset = offset.interrupted();
        }
        OffsetVerdict::Moved(Box::new(offset))
    }

    /// Continues from the slot's position, as a person has chosen. Nothing else in the offset counts any more.
    fn accepted(&self) -> OffsetVerdict {
        let mut offset = self.stored.clone();
        let at = self.confirmed;
        let delivered = self.delivered();
        let missing = (delivered > at).then(|| self.missing(at, delivered));
        offset.position = None;
        (offset.snapshot, offset.blocking) = (None, None);
        let connect = &mut offset.connect;
        (connect.lsn, connect.lsn_proc, connect.lsn_commit) = (Some(at.0), Some(at.0), None);
        let mut history = History {
            settled: at,
            missing,
            ..History::default()
        };
        history.enter(self.found);
        offset.history = Some(history);
        if self.rows_read() > at {
            // As after a fork. Nobody knows where the two histories diverge.
            offset = offset.interrupted();
        }
        OffsetVerdict::Moved(Box::new(offset))
    }

    /// The offset holds. With another publication or other parameters, the last commit need not come again.
    fn holds(&self) -> OffsetVerdict {
        if self.sends_the_same() || self.history.commit.is_none() {
            return OffsetVerdict::Holds;
        }
        let mut offset = self.stored.clone();
        if let Some(history) = &mut offset.history {
            history.commit = None;
        }
        OffsetVerdict::Moved(Box::new(offset))
    }

    fn sends_the_same(&self) -> bool {
        self.history.sends == self.found.sends
    }

    fn missing(&self, from: Lsn, to: Lsn) -> MissingPositions {
        MissingPositions {
            from,
            to,
            timeline: self.history.lineage.now,
            server_timeline: self.found.lineage.now,
            found_us: self.now_us,
        }
    }

    fn refuse(&self, what: String, cost: &str) -> Failure {
        let Self {
            slot, found, confirmed, ..
        } = self;
        Failure::stop(
            Kind::AnotherHistory,
            format!(
                "{what}. The stored offset is {}, replication slot {slot} is at {confirmed}, and the server's WAL ends at {}",
                self.processed(),
                found.wal_end
            ),
            format!("{cost}. If this is the wrong server, connect to the right one; nothing else is needed. {CHOICES}"),
        )
    }
}

fn confirmed(slot: &FoundSlot) -> Lsn {
    slot.confirmed.or(slot.restart).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use walferry_record::SourceOffset;

    use super::*;
    use crate::{
        history::{Lineage, SeenCommit, Switch, TransactionMark},
        position::Position,
    };

    /// A server on timeline 2, which began at 400. Its WAL ends at 1000. The slot stands at `slot`.
    fn promoted(slot: u64) -> Inspection {
        Inspection {
            system_id: 7,
            wal_end: Lsn(1000),
            slot: Some(FoundSlot {
                confirmed: Some(Lsn(slot)),
                restart: Some(Lsn(slot / 2)),
                alive: true,
                active_pid: None,
                reader: None,
                heard: None,
            }),
            lineage: Lineage {
                left: vec![Switch {
                    timeline: 1,
                    at: Lsn(400),
                }],
                now: 2,
            },
            ..Inspection::default()
        }
    }

    /// The same server before the promotion.
    fn primary(slot: u64) -> Inspection {
        Inspection {
            lineage: Lineage {
                left: Vec::new(),
                now: 1,
            },
            ..promoted(slot)
        }
    }

    /// An offset of timeline 1. The last commit ended at `commit_end`, and the server was quiet up to `processed`.
    fn stored(commit_end: u64, processed: u64) -> StoredOffset {
        let commit = SeenCommit {
            mark: TransactionMark {
                lsn: Lsn(commit_end - 8),
                xid: 70,
                time_us: 1,
            },
            end: Lsn(commit_end),
        };
        StoredOffset {
            connect: SourceOffset {
                lsn: Some(commit_end - 20),
                lsn_commit: Some(commit_end),
                lsn_proc: Some(processed),
                ..SourceOffset::default()
            },
            position: Some(Position {
                unit: commit.mark.lsn,
                lsn: Lsn(commit_end - 20),
                ordinal: 3,
            }),
            system_id: Some(7),
            history: Some(History {
                lineage: primary(0).lineage,
                furthest: Lsn(processed),
                settled: commit.end,
                commit: Some(commit),
                ..History::default()
            }),
            ..StoredOffset::default()
        }
    }

    fn judged(found: &Inspection, stored: &StoredOffset) -> Result<OffsetVerdict, Kind> {
        judge("s", found, stored, HistoryMismatch::Refuse, 5).map_err(|failure| failure.kind)
    }

    /// Where the stream continues, and what is missing.
    fn moved(judged: Result<OffsetVerdict, Kind>) -> (Option<u64>, Option<(u64, u64)>) {
        match judged {
            Ok(OffsetVerdict::Moved(offset)) => {
                let history = offset.history.expect("it was moved");
                assert!(history.lineage.now == 2 && history.furthest == Lsn::INVALID);
                assert!(
                    offset.connect.lsn_proc.is_none_or(|lsn| lsn <= 400),
                    "{:?}",
                    offset.connect
                );
                assert!(offset.position.is_none_or(|position| position.unit < Lsn(400)));
                let missing = history.missing.map(|missing| (missing.from.0, missing.to.0));
                (history.start().map(|lsn| lsn.0), missing)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_offset_that_is_not_past_the_fork_holds() {
        assert_eq!(judged(&promoted(300), &stored(390, 400)), Ok(OffsetVerdict::Holds));
        assert_eq!(judged(&promoted(390), &stored(390, 390)), Ok(OffsetVerdict::Holds));
    }

    #[test]
    fn what_was_delivered_past_the_fork_is_told_and_the_stream_goes_on_from_the_fork() {
        assert_eq!(
            moved(judged(&promoted(300), &stored(500, 520))),
            (Some(400), Some((400, 500)))
        );
        // The server's log ends before what was delivered.
        let short = Inspection {
            wal_end: Lsn(450),
            ..promoted(400)
        };
        assert_eq!(moved(judged(&short, &stored(500, 520))), (Some(400), Some((400, 500))));
        // Only a part of a transaction was delivered beyond the fork: the commit before it must come again.
        let mut partial = stored(350, 360);
        partial.position = Some(Position {
            unit: Lsn(450),
            lsn: Lsn(380),
            ordinal: 0,
        });
        assert_eq!(moved(judged(&promoted(300), &partial)), (Some(342), Some((400, 450))));
    }

    #[test]
    fn a_server_that_was_only_quiet_past_the_fork_lacks_nothing() {
        assert_eq!(moved(judged(&promoted(300), &stored(350, 520))), (Some(342), None));
    }

    /// Keepalives of the former server were further ahead than this server's log. That says nothing about what this
    /// server has.
    #[test]
    fn what_was_only_heard_of_the_server_before_is_forgotten() {
        let mut heard = stored(390, 400);
        heard.history.as_mut().unwrap().furthest = Lsn(1200);
        assert_eq!(moved(judged(&promoted(300), &heard)), (Some(382), None));
    }

    #[test]
    fn rows_that_were_read_past_the_fork_are_read_again() {
        let begins_again = |stored: &StoredOffset| match judged(&promoted(300), stored) {
            Ok(OffsetVerdict::Moved(offset)) => offset.connect.is_unfinished_snapshot() && offset.snapshot.is_none(),
            Ok(OffsetVerdict::Holds) => false,
            Err(failure) => panic!("{failure}"),
        };
        let at = |rows_read: u64, goes_on: bool, furthest: u64| {
            let mut stored = stored(390, 400);
            if goes_on {
                stored = stored.interrupted();
                stored.snapshot = Some(crate::snapshot::ChunksDone::default());
            }
            let history = stored.history.as_mut().unwrap();
            (history.rows_read, history.furthest) = (Lsn(rows_read), Lsn(furthest));
            stored
        };
        assert!(!begins_again(&at(400, false, 400)));
        assert!(begins_again(&at(408, false, 400)));
        assert!(!begins_again(&at(300, true, 400)));
        assert!(
            begins_again(&at(300, true, 450)),
            "chunks may have been read as far as the stream had come"
        );
        assert!(!begins_again(&at(300, false, 450)), "they were read before");
    }

    #[test]
    fn a_slot_past_the_fork_is_refused_unless_the_gap_is_accepted() {
        for stored in [stored(500, 520), stored(350, 520)] {
            assert_eq!(judged(&promoted(410), &stored), Err(Kind::AnotherHistory));
            assert!(judge("s", &promoted(410), &stored, HistoryMismatch::GoOn, 5).is_ok());
        }
        let failure = judge("s", &promoted(410), &stored(500, 520), HistoryMismatch::Refuse, 5).unwrap_err();
        for lsn in [400, 410, 500, 520, 1000] {
            let text = Lsn(lsn).to_string();
            assert!(failure.to_string().contains(&text), "{text} is missing in {failure}");
        }
    }

    #[test]
    fn a_standby_that_was_promoted_while_it_was_read_holds() {
        let mut standby = stored(500, 520);
        standby.history.as_mut().unwrap().standby = true;
        assert_eq!(judged(&promoted(510), &standby), Ok(OffsetVerdict::Holds));
        assert_eq!(judged(&promoted(530), &standby), Err(Kind::AnotherHistory));
    }

    #[test]
    fn without_another_timeline_the_stream_has_to_prove_it() {
        assert_eq!(judged(&primary(300), &stored(500, 520)), Ok(OffsetVerdict::Holds));
        let short = Inspection {
            wal_end: Lsn(510),
            ..primary(300)
        };
        assert_eq!(judged(&short, &stored(500, 520)), Err(Kind::OffsetBeyondServer));
        let standby = Inspection { standby: true, ..short };
        assert_eq!(judged(&standby, &stored(500, 520)), Err(Kind::StandbyBehind));
    }

    #[test]
    fn a_fork_that_nobody_knows_needs_the_proof() {
        let unknown = |slot| Inspection {
            lineage: Lineage {
                left: Vec::new(),
                now: 2,
            },
            ..promoted(slot)
        };
        assert_eq!(judged(&unknown(300), &stored(500, 520)), Ok(OffsetVerdict::Holds));
        assert_eq!(judged(&unknown(510), &stored(500, 520)), Err(Kind::AnotherHistory));
    }

    #[test]
    fn another_publication_need_not_send_the_last_commit() {
        let other = Inspection {
            sends: "other".into(),
            ..primary(300)
        };
        let Ok(OffsetVerdict::Moved(offset)) = judged(&other, &stored(500, 520)) else {
            panic!("the commit is still expected")
        };
        assert_eq!(offset.history.unwrap().start(), Some(Lsn(500)));
    }

    #[test]
    fn what_a_person_accepts_goes_on_from_the_slot() {
        let mut accepted = stored(500, 520);
        accepted.history.as_mut().unwrap().accepted = true;
        let Ok(OffsetVerdict::Moved(offset)) = judged(&primary(300), &accepted) else {
            panic!("it is not accepted")
        };
        assert_eq!((offset.position, offset.connect.lsn_proc), (None, Some(300)));
        let history = offset.history.unwrap();
        assert_eq!((history.start(), history.accepted), (Some(Lsn(300)), false));
    }

    #[test]
    fn a_slot_that_is_not_there_yet_is_told_from_one_that_is_gone() {
        let without = |found: Inspection| Inspection { slot: None, ..found };
        let kind = |found: &Inspection, stored: &StoredOffset| not_there_yet("s", found, stored).map(|f| f.kind);
        let waits = Some(Kind::SlotNotThereYet);
        let standby = Inspection {
            standby: true,
            ..without(primary(0))
        };
        assert_eq!(kind(&standby, &stored(500, 520)), waits);
        assert_eq!(kind(&standby, &StoredOffset::default()), waits);
        assert_eq!(kind(&without(promoted(0)), &stored(300, 320)), waits);
        assert_eq!(kind(&without(primary(0)), &stored(300, 320)), None);
        assert_eq!(kind(&without(promoted(0)), &StoredOffset::default()), None);
    }
}
