//! Proves from the stream that the server has what was delivered from it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use walferry_pgoutput::{Begin, Lsn};

use super::{SeenCommit, TransactionMark};

/// Transactions that have to come in a stream: the last one seen to its end, and the one after it, of which a part was
/// seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ExpectedCommits {
    commit: Option<TransactionMark>,
    partial: Option<TransactionMark>,
    /// Everything before this has been processed.
    floor: Lsn,
}

/// A transaction that had to come, and what the server has instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MissingTransaction {
    /// The transaction that had to come.
    pub(crate) expected: TransactionMark,
    /// The transaction that came instead. `None`: the stream has passed the position without any.
    pub(crate) instead: Option<TransactionMark>,
    /// Where the stream was.
    pub(crate) at: Lsn,
}

impl ExpectedCommits {
    /// What to expect in a stream that begins at `from`. The server skips what was committed before.
    pub(crate) fn in_stream(
        from: Lsn,
        commit: Option<SeenCommit>,
        partial: Option<TransactionMark>,
        floor: Lsn,
    ) -> Self {
        let comes = |mark: &TransactionMark| mark.lsn >= from;
        Self {
            commit: commit.map(|commit| commit.mark).filter(comes),
            partial: partial.filter(comes),
            floor,
        }
    }

    /// Whether everything has been proven.
    pub(crate) const fn is_met(&self) -> bool {
        self.commit.is_none() && self.partial.is_none()
    }

    /// A transaction begins.
    pub(crate) fn begin(&mut self, begin: &Begin) -> Result<(), MissingTransaction> {
        let came = TransactionMark {
            lsn: begin.final_lsn,
            xid: begin.xid.0,
            time_us: begin.commit_time.unix_micros(),
        };
        if let Some(expected) = self.commit {
            if came.lsn < expected.lsn {
                return Ok(());
            }
            self.commit = None;
            return compare(expected, came);
        }
        match self.partial {
            // Nothing was committed between the two when they were first seen.
            Some(expected) if came.lsn >= self.floor => {
                self.partial = None;
                compare(expected, came)
            }
            _ => Ok(()),
        }
    }

    /// Everything that was committed before `wal_end` has been sent.
    pub(crate) fn idle(&self, wal_end: Lsn) -> Result<(), MissingTransaction> {
        match self.commit.or(self.partial) {
            Some(expected) if expected.lsn < wal_end => Err(MissingTransaction {
                expected,
                instead: None,
                at: wal_end,
            }),
            _ => Ok(()),
        }
    }
}

fn compare(expected: TransactionMark, came: TransactionMark) -> Result<(), MissingTransaction> {
    if came == expected {
        return Ok(());
    }
    Err(MissingTransaction {
        expected,
        instead: Some(came),
        at: came.lsn,
    })
}

/// Says whether positions may be confirmed. The gate closes before a connection begins. It opens when the server is
/// known to have what was delivered. Until then, a confirmed position could move the slot past changes that nobody has
/// read.
#[derive(Debug, Clone, Default)]
pub struct ConfirmGate(Arc<Numbers>);

/// Each session counts its connections from 1.
#[derive(Debug)]
struct Numbers {
    /// Closed until this connection is proven.
    wanted: AtomicU64,
    /// The last connection that was proven. Steps of an earlier connection may still be on their way when the next one
    /// begins.
    proven: AtomicU64,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            wanted: AtomicU64::new(1),
            proven: AtomicU64::new(0),
        }
    }
}

impl ConfirmGate {
    /// Closes the gate until this connection is proven.
    pub(crate) fn close_until(&self, connection: u64) {
        self.0.wanted.store(connection, Ordering::Release);
    }
    /// The server of this connection is the one that was read before.
    pub(crate) fn prove(&self, connection: u64) {
        self.0.proven.store(connection, Ordering::Release);
    }
    /// Whether positions may be confirmed. `reached` is the connection that progress has reached. It may lag behind the
    /// proven one for a moment.
    pub(crate) fn is_open(&self, reached: u64) -> bool {
        let wanted = self.0.wanted.load(Ordering::Acquire);
        reached >= wanted && self.0.proven.load(Ordering::Acquire) >= wanted
    }
}

#[cfg(test)]
mod tests {
    use walferry_pgoutput::{PgTimestamp, Xid};

    use super::*;

    fn mark(lsn: u64, xid: u32) -> TransactionMark {
        TransactionMark {
            lsn: Lsn(lsn),
            xid,
            time_us: 0,
        }
    }
    fn commit(lsn: u64, xid: u32) -> Option<SeenCommit> {
        Some(SeenCommit {
            mark: mark(lsn, xid),
            end: Lsn(lsn + 8),
        })
    }

    /// What arrives in a stream: a transaction (position, id), or a quiet server (position).
    enum Comes {
        Begin(u64, u32),
        Idle(u64),
    }
    use Comes::{Begin as B, Idle as I};

    #[test]
    fn what_was_seen_comes_again_or_the_history_is_another() {
        let open = Some(mark(70, 8));
        let cases: [(&str, u64, _, _, &[Comes], Option<bool>); 14] = [
            ("nothing was seen", 0, None, None, &[B(60, 1), I(90)], Some(true)),
            (
                "it comes at once",
                50,
                commit(50, 7),
                None,
                &[B(50, 7), B(60, 9)],
                Some(true),
            ),
            (
                "behind others",
                30,
                commit(50, 7),
                None,
                &[I(31), B(40, 5), B(50, 7)],
                Some(true),
            ),
            (
                "still to come",
                30,
                commit(50, 7),
                None,
                &[B(40, 5), I(50)],
                Some(false),
            ),
            (
                "the slot is behind it",
                58,
                commit(50, 7),
                None,
                &[B(60, 9)],
                Some(true),
            ),
            ("another transaction there", 30, commit(50, 7), None, &[B(50, 9)], None),
            (
                "another one later",
                30,
                commit(50, 7),
                None,
                &[B(40, 5), B(51, 7)],
                None,
            ),
            (
                "a quiet server that is past it",
                30,
                commit(50, 7),
                None,
                &[I(58)],
                None,
            ),
            (
                "a part was seen",
                58,
                commit(50, 7),
                open,
                &[I(70), B(70, 8)],
                Some(true),
            ),
            ("both come", 50, commit(50, 7), open, &[B(50, 7), B(70, 8)], Some(true)),
            (
                "the one with a part does not",
                50,
                commit(50, 7),
                open,
                &[B(50, 7), I(80)],
                None,
            ),
            (
                "something between them",
                50,
                commit(50, 7),
                open,
                &[B(50, 7), B(60, 9)],
                None,
            ),
            ("another in its place", 58, commit(50, 7), open, &[B(70, 9)], None),
            (
                "before all that was seen",
                40,
                None,
                open,
                &[B(50, 3), B(70, 8)],
                Some(true),
            ),
        ];
        for (name, from, commit, partial, stream, proven) in cases {
            let mut expected = ExpectedCommits::in_stream(Lsn(from), commit, partial, Lsn(58));
            let all: Result<(), MissingTransaction> = stream.iter().try_for_each(|comes| match *comes {
                B(lsn, xid) => expected.begin(&Begin {
                    final_lsn: Lsn(lsn),
                    commit_time: PgTimestamp::from_unix_micros(0),
                    xid: Xid(xid),
                }),
                I(lsn) => expected.idle(Lsn(lsn)),
            });
            assert_eq!(all.ok().map(|()| expected.is_met()), proven, "{name}");
        }
    }
}
