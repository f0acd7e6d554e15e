//! Decides what a start does, given the slot, the stored offset and the server.

use walferry_diagnosis::Kind;
use walferry_pgoutput::Lsn;

pub use crate::history::HistoryMismatch;
use crate::{
    account::StoredOffset,
    failure::Failure,
    history::{self, OffsetVerdict, not_there_yet, went_back},
    source::Inspection,
    status::now_us,
};

/// What `snapshot.mode` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// Reads existing rows when there is no offset (`initial`, `initial_only`, `when_needed`).
    pub at_first_start: bool,
    /// Reads them at every start (`always`).
    pub at_every_start: bool,
    /// Reads them again when the stream cannot continue from the stored offset (`when_needed`).
    pub when_lost: bool,
    /// Whether the stream follows (`initial_only`: no, and no slot is created).
    pub stream: bool,
}

/// What the start does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartPlan {
    /// Creates the slot.
    Create {
        /// Whether to read existing rows first.
        snapshot: bool,
        /// Whether to drop an existing slot first, because its WAL is gone.
        replace: bool,
    },
    /// Uses the slot as it is, although there is no offset for it.
    Adopt {
        /// Whether to read existing rows first.
        snapshot: bool,
        /// Where the slot stands.
        from: Lsn,
    },
    /// Continues from the stored offset.
    Resume {
        /// Everything before this has been processed.
        from: Lsn,
        /// Whether to read all rows again first (`always`).
        snapshot: bool,
    },
    /// Continues an interrupted snapshot: first the stream, then the rest of the tables.
    Continue {
        /// Everything before this has been processed.
        from: Lsn,
    },
    /// Reads existing rows without a slot. No stream follows (`initial_only`).
    ReadOnly,
    /// Does nothing: all rows have been read (`initial_only`).
    Nothing,
}

impl StartPlan {
    /// Whether a stream is read.
    pub(crate) const fn streams(&self) -> bool {
        !matches!(self, Self::ReadOnly | Self::Nothing)
    }
}

/// What a start would do with this offset on this server: as [`decide`] says after the offset was held against the server's history. Changes
/// nothing.
///
/// # Errors
/// The connector must not start, or has to wait.
pub fn foresee(
    slot: &str,
    found: &Inspection,
    stored: Option<&StoredOffset>,
    policy: SnapshotPolicy,
    mismatch: HistoryMismatch,
) -> Result<StartPlan, Failure> {
    let moved = match stored.filter(|_| policy.stream) {
        Some(stored) => match history::judge(slot, found, stored, mismatch, now_us())? {
            OffsetVerdict::Holds => None,
            OffsetVerdict::Moved(moved) => Some(*moved),
        },
        None => None,
    };
    decide(slot, found, moved.as_ref().or(stored), policy, mismatch)
}

/// Decides what the start does. `slot` is the slot's name, for messages.
///
/// # Errors
/// The connector must not start, or has to wait.
pub fn decide(
    slot: &str,
    found: &Inspection,
    stored: Option<&StoredOffset>,
    policy: SnapshotPolicy,
    mismatch: HistoryMismatch,
) -> Result<StartPlan, Failure> {
    let interrupted = stored.is_some_and(|offset| offset.connect.is_unfinished_snapshot());
    let rows = RowsToRead {
        first: policy.at_first_start || policy.at_every_start || (policy.when_lost && interrupted),
        interrupted,
    };
    if !policy.stream {
        return Ok(without_stream(stored, policy, rows));
    }
    // Any stored offset means that there was a slot.
    if let Some(failure) = stored.and_then(|stored| not_there_yet(slot, found, stored)) {
        return Err(failure);
    }
    let continues = rows.go_on(found, stored, policy);
    let offset = stored.filter(|_| !interrupted || continues);
    match offset.and_then(|offset| Some((offset, offset.start()?))) {
        None => without_offset(slot, found, rows),
        Some((stored, from)) => {
            is_on_server(found, stored, from)?;
            let resumed = match continues {
                true => StartPlan::Continue { from },
                false => StartPlan::Resume {
                    from,
                    snapshot: policy.at_every_start,
                },
            };
            with_offset(slot, found, (stored, from), policy, mismatch, resumed)
        }
    }
}

/// Which existing rows are to be read.
#[derive(Debug, Clone, Copy)]
struct RowsToRead {
    /// Whether rows are read if there is no offset.
    first: bool,
    /// Whether a snapshot has begun and not ended.
    interrupted: bool,
}

impl RowsToRead {
    /// Whether an interrupted snapshot continues. It does if its finished part is known and the slot still has the
    /// changes since. Otherwise the snapshot starts again, whatever its reason was, and its offset is not used.
    fn go_on(self, found: &Inspection, stored: Option<&StoredOffset>, policy: SnapshotPolicy) -> bool {
        self.interrupted
            && self.first
            && !policy.at_every_start
            && stored.is_some_and(|offset| offset.snapshot.is_some())
            && found.slot.as_ref().is_some_and(|slot| slot.alive)
    }
}

/// The plan of `initial_only`.
fn without_stream(stored: Option<&StoredOffset>, policy: SnapshotPolicy, rows: RowsToRead) -> StartPlan {
    match stored {
        Some(_) if !rows.interrupted && !policy.at_every_start => StartPlan::Nothing,
        _ if rows.first => StartPlan::ReadOnly,
        _ => StartPlan::Nothing,
    }
}

fn without_offset(slot: &str, found: &Inspection, rows: RowsToRead) -> Result<StartPlan, Failure> {
    match &found.slot {
        None => Ok(StartPlan::Create {
            snapshot: rows.first,
            replace: false,
        }),
        Some(s) if !s.alive && rows.first => Ok(StartPlan::Create {
            snapshot: true,
            replace: true,
        }),
        Some(s) if !s.alive => Err(lost(slot, "has lost its WAL", None)),
        Some(s) => Ok(StartPlan::Adopt {
            snapshot: rows.first,
            from: s.confirmed.or(s.restart).unwrap_or_default(),
        }),
    }
}

/// Whether the stored positions can belong to this server.
fn is_on_server(found: &Inspection, stored: &StoredOffset, from: Lsn) -> Result<(), Failure> {
    if let Some(system_id) = stored.system_id.filter(|&id| id != found.system_id) {
        return Err(Failure::stop(
            Kind::OtherServer,
            format!(
                "the stored offset belongs to the server with system identifier {system_id}, but this server has {}",
                found.system_id
            ),
            "set `database.hostname` to the server that the offset belongs to; for a new server, start with another `--data-dir`, or \
             remove the offset with `walferry offsets reset` (in Connect's topics: DELETE /connectors/NAME/offsets) and choose a \
             `snapshot.mode`",
        ));
    }
    went_back(from, found).map_or(Ok(()), Err)
}

fn with_offset(
    slot: &str,
    found: &Inspection,
    (stored, from): (&StoredOffset, Lsn),
    policy: SnapshotPolicy,
    mismatch: HistoryMismatch,
    resumed: StartPlan,
) -> Result<StartPlan, Failure> {
    let again = StartPlan::Create {
        snapshot: true,
        replace: found.slot.is_some(),
    };
    let on_server = match &found.slot {
        None if policy.when_lost => return Ok(again),
        None => return Err(lost(slot, "does not exist", Some(from))),
        Some(s) if !s.alive && policy.when_lost => return Ok(again),
        Some(s) if !s.alive => return Err(lost(slot, "has lost its WAL", Some(from))),
        Some(s) => s,
    };
    let confirmed = on_server.confirmed.unwrap_or_default();
    if confirmed > latest(stored, from) && mismatch == HistoryMismatch::Refuse {
        return Err(Failure::stop(
            Kind::SlotAheadOfOffset,
            format!(
                "replication slot {slot} is at {confirmed}, ahead of the stored offset {from}: something else has advanced it"
            ),
            format!(
                "changes between {from} and {confirmed} may be missing from the topics; take a new snapshot (`walferry offsets reset`, \
                 `snapshot.mode=initial`), or accept the gap with `offset.mismatch.strategy=trust_slot`"
            ),
        ));
    }
    Ok(resumed)
}

/// The furthest position in an offset. Debezium may confirm its `lsn_proc`, which is past its last commit.
fn latest(stored: &StoredOffset, from: Lsn) -> Lsn {
    let c = &stored.connect;
    [c.lsn_proc, c.lsn_commit, c.lsn]
        .into_iter()
        .flatten()
        .map(Lsn::from)
        .fold(from, Lsn::max)
}

fn lost(slot: &str, how: &str, from: Option<Lsn>) -> Failure {
    let at = from
        .map(|lsn| format!(", but the stored offset {lsn} needs it"))
        .unwrap_or_default();
    Failure::stop(
        Kind::SlotLost,
        format!("replication slot {slot} {how}{at}: changes since then can no longer be read"),
        format!(
            "read all rows again: set `snapshot.mode=when_needed`, or run `SELECT pg_drop_replication_slot('{slot}')` (if the slot \
             exists) and `walferry offsets reset`, and set `snapshot.mode=initial`; to accept the gap and continue with new changes, do \
             the same with `snapshot.mode=no_data`. To prevent this in future, raise `max_slot_wal_keep_size`"
        ),
    )
}

#[cfg(test)]
mod tests {
    use walferry_record::SourceOffset;

    use super::*;
    use crate::{
        failure::Disposition,
        history::{History, Lineage, Switch},
        position::Position,
        source::FoundSlot,
    };

    const INITIAL: SnapshotPolicy = SnapshotPolicy {
        at_first_start: true,
        at_every_start: false,
        when_lost: false,
        stream: true,
    };
    const NO_DATA: SnapshotPolicy = SnapshotPolicy {
        at_first_start: false,
        at_every_start: false,
        when_lost: false,
        stream: true,
    };
    const WHEN_NEEDED: SnapshotPolicy = SnapshotPolicy {
        at_first_start: true,
        at_every_start: false,
        when_lost: true,
        stream: true,
    };
    const ALWAYS: SnapshotPolicy = SnapshotPolicy {
        at_first_start: false,
        at_every_start: true,
        when_lost: false,
        stream: true,
    };

    fn server(slot: Option<FoundSlot>) -> Inspection {
        Inspection {
            server_version: 150000,
            system_id: 7,
            wal_end: Lsn::from(1000),
            slot,
            ..Inspection::default()
        }
    }
    fn slot_at(confirmed: u64) -> Option<FoundSlot> {
        let restart = Some(Lsn::from(confirmed.saturating_sub(50)));
        Some(FoundSlot {
            confirmed: Some(Lsn::from(confirmed)),
            restart,
            alive: true,
            active_pid: None,
            reader: None,
            heard: None,
        })
    }
    fn dead() -> Option<FoundSlot> {
        Some(FoundSlot {
            alive: false,
            ..FoundSlot::default()
        })
    }
    fn own(lsn_proc: u64) -> Option<StoredOffset> {
        let connect = SourceOffset {
            lsn_proc: Some(lsn_proc),
            lsn: Some(lsn_proc - 10),
            ..SourceOffset::default()
        };
        Some(StoredOffset {
            connect,
            position: Some(Position::default()),
            system_id: Some(7),
            ..StoredOffset::default()
        })
    }
    fn debezium(lsn: u64, lsn_commit: u64) -> Option<StoredOffset> {
        let connect = SourceOffset {
            lsn_proc: Some(lsn),
            lsn: Some(lsn),
            lsn_commit: Some(lsn_commit),
            ..SourceOffset::default()
        };
        Some(StoredOffset {
            connect,
            ..StoredOffset::default()
        })
    }

    /// One case for each row of the table in the design: what is found at start, and what follows.
    #[test]
    fn start_follows_what_is_found() {
        let at = Lsn::from;
        let create = |snapshot, replace| Ok(StartPlan::Create { snapshot, replace });
        let unfinished = |done: bool| {
            own(500).map(|offset| StoredOffset {
                snapshot: done.then(Default::default),
                connect: SourceOffset {
                    snapshot: Some("INITIAL".into()),
                    ..offset.connect
                },
                ..offset
            })
        };
        let only = SnapshotPolicy {
            stream: false,
            ..INITIAL
        };
        let cases = [
            (
                "interrupted snapshot",
                slot_at(400),
                unfinished(true),
                INITIAL,
                Ok(StartPlan::Continue { from: at(500) }),
            ),
            (
                "interrupted, slot ahead",
                slot_at(600),
                unfinished(true),
                INITIAL,
                Err(Kind::SlotAheadOfOffset),
            ),
            (
                "interrupted, slot gone",
                None,
                unfinished(true),
                INITIAL,
                create(true, false),
            ),
            (
                "interrupted, nothing known",
                slot_at(400),
                unfinished(false),
                INITIAL,
                Ok(StartPlan::Adopt {
                    snapshot: true,
                    from: at(400),
                }),
            ),
            (
                "interrupted, each start reads all",
                slot_at(400),
                unfinished(true),
                ALWAYS,
                Ok(StartPlan::Adopt {
                    snapshot: true,
                    from: at(400),
                }),
            ),
            ("only rows", None, None, only, Ok(StartPlan::ReadOnly)),
            (
                "only rows, interrupted",
                None,
                unfinished(false),
                only,
                Ok(StartPlan::ReadOnly),
            ),
            ("only rows, all read", None, own(500), only, Ok(StartPlan::Nothing)),
            ("first start", None, None, NO_DATA, create(false, false)),
            ("first start, rows wanted", None, None, INITIAL, create(true, false)),
            (
                "slot behind",
                slot_at(400),
                own(500),
                INITIAL,
                Ok(StartPlan::Resume {
                    from: at(500),
                    snapshot: false,
                }),
            ),
            (
                "slot at the offset",
                slot_at(500),
                own(500),
                NO_DATA,
                Ok(StartPlan::Resume {
                    from: at(500),
                    snapshot: false,
                }),
            ),
            (
                "every time",
                slot_at(500),
                own(500),
                ALWAYS,
                Ok(StartPlan::Resume {
                    from: at(500),
                    snapshot: true,
                }),
            ),
            (
                "slot ahead",
                slot_at(501),
                own(500),
                INITIAL,
                Err(Kind::SlotAheadOfOffset),
            ),
            (
                "slot ahead, rows on demand",
                slot_at(501),
                own(500),
                WHEN_NEEDED,
                Err(Kind::SlotAheadOfOffset),
            ),
            ("no slot", None, own(500), INITIAL, Err(Kind::SlotLost)),
            (
                "no slot, rows on demand",
                None,
                own(500),
                WHEN_NEEDED,
                create(true, false),
            ),
            ("slot lost", dead(), own(500), NO_DATA, Err(Kind::SlotLost)),
            (
                "slot lost, rows on demand",
                dead(),
                own(500),
                WHEN_NEEDED,
                create(true, true),
            ),
            (
                "beyond the WAL",
                slot_at(400),
                own(1001),
                WHEN_NEEDED,
                Err(Kind::OffsetBeyondServer),
            ),
            (
                "slot without offset",
                slot_at(400),
                None,
                NO_DATA,
                Ok(StartPlan::Adopt {
                    snapshot: false,
                    from: at(400),
                }),
            ),
            (
                "the same, rows wanted",
                slot_at(400),
                None,
                INITIAL,
                Ok(StartPlan::Adopt {
                    snapshot: true,
                    from: at(400),
                }),
            ),
            ("lost slot without offset", dead(), None, NO_DATA, Err(Kind::SlotLost)),
            (
                "taken over",
                slot_at(430),
                debezium(460, 430),
                NO_DATA,
                Ok(StartPlan::Resume {
                    from: at(430),
                    snapshot: false,
                }),
            ),
            (
                "taken over, confirmed past it",
                slot_at(460),
                debezium(460, 430),
                NO_DATA,
                Ok(StartPlan::Resume {
                    from: at(430),
                    snapshot: false,
                }),
            ),
        ];
        for (name, slot, stored, policy, expected) in cases {
            let got = decide("s", &server(slot), stored.as_ref(), policy, HistoryMismatch::Refuse);
            assert_eq!(got.map_err(|f| f.kind), expected, "{name}");
        }
    }

    #[test]
    fn another_server_is_refused_whatever_the_mode() {
        let mut stored = own(500).unwrap();
        stored.system_id = Some(8);
        let failure = decide(
            "s",
            &server(slot_at(500)),
            Some(&stored),
            WHEN_NEEDED,
            HistoryMismatch::GoOn,
        )
        .unwrap_err();
        assert_eq!(failure.kind, Kind::OtherServer);
    }

    /// `when_needed` reads all rows again if the slot is lost. A slot that does not exist yet is not lost.
    #[test]
    fn a_failover_that_is_under_way_is_waited_for_whatever_the_mode() {
        let promoted = Lineage {
            left: vec![Switch {
                timeline: 1,
                at: Lsn::from(600),
            }],
            now: 2,
        };
        let before = own(500).map(|offset| StoredOffset {
            history: Some(History {
                lineage: Lineage {
                    left: Vec::new(),
                    now: 1,
                },
                ..History::default()
            }),
            ..offset
        });
        let unfinished = before.clone().map(|mut offset| {
            offset.connect.snapshot = Some("INITIAL".into());
            offset
        });
        let standby = |slot, wal_end| Inspection {
            standby: true,
            wal_end: Lsn::from(wal_end),
            ..server(slot)
        };
        let new_primary = Inspection {
            lineage: promoted,
            ..server(None)
        };
        let cases = [
            (
                "a standby without the slot",
                standby(None, 1000),
                own(500),
                Kind::SlotNotThereYet,
            ),
            (
                "a standby that is behind",
                standby(slot_at(400), 450),
                own(500),
                Kind::StandbyBehind,
            ),
            (
                "a promoted server",
                new_primary.clone(),
                before.clone(),
                Kind::SlotNotThereYet,
            ),
            (
                "the same during a snapshot",
                new_primary,
                unfinished,
                Kind::SlotNotThereYet,
            ),
        ];
        for (name, found, stored, kind) in cases {
            for policy in [WHEN_NEEDED, INITIAL, NO_DATA, ALWAYS] {
                let failure = decide("s", &found, stored.as_ref(), policy, HistoryMismatch::GoOn).expect_err(name);
                assert_eq!(
                    (failure.kind, failure.disposition),
                    (kind, Disposition::Retry),
                    "{name}"
                );
            }
        }
        let same_timeline = decide("s", &server(None), before.as_ref(), INITIAL, HistoryMismatch::Refuse);
        assert_eq!(same_timeline.map_err(|failure| failure.kind), Err(Kind::SlotLost));
    }

    #[test]
    fn a_gap_is_accepted_only_when_asked() {
        let plan = decide(
            "s",
            &server(slot_at(600)),
            own(500).as_ref(),
            NO_DATA,
            HistoryMismatch::GoOn,
        );
        assert_eq!(
            plan,
            Ok(StartPlan::Resume {
                from: Lsn::from(500),
                snapshot: false
            })
        );
    }

    #[test]
    fn an_unfinished_snapshot_starts_again() {
        let connect = SourceOffset {
            lsn: Some(400),
            snapshot: Some("INITIAL".into()),
            ..SourceOffset::default()
        };
        let stored = StoredOffset {
            connect,
            ..StoredOffset::default()
        };
        let plan = decide(
            "s",
            &server(slot_at(400)),
            Some(&stored),
            INITIAL,
            HistoryMismatch::Refuse,
        );
        assert_eq!(
            plan,
            Ok(StartPlan::Adopt {
                snapshot: true,
                from: Lsn::from(400)
            })
        );
    }
}
