//! The facts in an offset file by which Walferry recognises the server.

use serde::{Deserialize, Serialize};
use walferry_engine::history::{History, Lineage, MissingPositions, SeenCommit, Switch, TransactionMark};
use walferry_pgoutput::{Lsn, ParseLsnError};

/// A history, with LSNs as text such as `0/16E9058`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recognition {
    timeline: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    left: Vec<(u32, String)>,
    #[serde(default, skip_serializing_if = "is_false")]
    standby: bool,
    furthest: String,
    settled: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rows_read: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    commit: Option<LastCommit>,
    #[serde(default)]
    sends: String,
    #[serde(default, skip_serializing_if = "is_false")]
    accepted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing: Option<NotThere>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastCommit {
    lsn: String,
    end: String,
    xid: u32,
    ts_usec: i64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NotThere {
    from: String,
    to: String,
    timeline: u32,
    server_timeline: u32,
    found_ts_usec: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl From<&History> for Recognition {
    fn from(history: &History) -> Self {
        Self {
            timeline: history.lineage.now,
            left: history
                .lineage
                .left
                .iter()
                .map(|s| (s.timeline, s.at.to_string()))
                .collect(),
            standby: history.standby,
            furthest: history.furthest.to_string(),
            settled: history.settled.to_string(),
            rows_read: (history.rows_read != Lsn::INVALID).then(|| history.rows_read.to_string()),
            commit: history.commit.map(|commit| LastCommit {
                lsn: commit.mark.lsn.to_string(),
                end: commit.end.to_string(),
                xid: commit.mark.xid,
                ts_usec: commit.mark.time_us,
            }),
            sends: history.sends.clone(),
            accepted: history.accepted,
            missing: history.missing.map(|missing| NotThere {
                from: missing.from.to_string(),
                to: missing.to.to_string(),
                timeline: missing.timeline,
                server_timeline: missing.server_timeline,
                found_ts_usec: missing.found_us,
            }),
        }
    }
}

impl Recognition {
    pub(crate) fn read(self) -> Result<History, ParseLsnError> {
        let switch = |(timeline, at): (u32, String)| {
            Ok(Switch {
                timeline,
                at: at.parse()?,
            })
        };
        let commit = |commit: LastCommit| {
            let mark = TransactionMark {
                lsn: commit.lsn.parse()?,
                xid: commit.xid,
                time_us: commit.ts_usec,
            };
            let end: Lsn = commit.end.parse()?;
            Ok(SeenCommit { mark, end })
        };
        let missing = |missing: NotThere| {
            Ok(MissingPositions {
                from: missing.from.parse()?,
                to: missing.to.parse()?,
                timeline: missing.timeline,
                server_timeline: missing.server_timeline,
                found_us: missing.found_ts_usec,
            })
        };
        Ok(History {
            lineage: Lineage {
                left: self.left.into_iter().map(switch).collect::<Result<_, _>>()?,
                now: self.timeline,
            },
            standby: self.standby,
            furthest: self.furthest.parse()?,
            settled: self.settled.parse()?,
            rows_read: self.rows_read.map_or(Ok(Lsn::INVALID), |lsn| lsn.parse())?,
            commit: self.commit.map(commit).transpose()?,
            sends: self.sends,
            accepted: self.accepted,
            missing: self.missing.map(missing).transpose()?,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn history() -> History {
        History {
            lineage: Lineage {
                left: vec![Switch {
                    timeline: 1,
                    at: Lsn(0x15D_6160),
                }],
                now: 2,
            },
            standby: true,
            furthest: Lsn(0x16_B374_D900),
            settled: Lsn(0x16_B374_D850),
            rows_read: Lsn(0x15D_7000),
            commit: Some(SeenCommit {
                mark: TransactionMark {
                    lsn: Lsn(0x16_B374_D848),
                    xid: 555,
                    time_us: 1,
                },
                end: Lsn(0x16_B374_D850),
            }),
            sends: "dbz \"p\"".into(),
            accepted: true,
            missing: Some(MissingPositions {
                from: Lsn(7),
                to: Lsn(9),
                timeline: 1,
                server_timeline: 2,
                found_us: 5,
            }),
        }
    }
}
