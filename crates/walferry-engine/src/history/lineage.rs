//! The timelines of a server's WAL, and where those of two servers diverge.

use walferry_pgoutput::Lsn;

/// The timelines of a server: those that it has left, and the present one.
///
/// Postgres begins a new timeline at each promotion and at the end of each archive recovery. A copy of a data
/// directory that is started without recovery keeps its timeline.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lineage {
    /// Timelines that were left, oldest first, each with the position at which it was left.
    pub left: Vec<Switch>,
    /// The present timeline; 0 if it is not known.
    pub now: u32,
}

/// Where a timeline was left for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Switch {
    /// The timeline.
    pub timeline: u32,
    /// The last position that belongs to the next timeline too.
    pub at: Lsn,
}

/// How two lineages compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimelineFork {
    /// They are the same, or one of them is not known.
    Same,
    /// They are the same up to here, and differ from here on.
    At(Lsn),
    /// They differ, and it is not known where they diverge: the server has no history file of its timeline.
    Unknown,
}

/// How many timelines are stored beside an offset: the last ones. A server that is promoted every day for years has a
/// long history.
const MOST_KEPT_TIMELINES: usize = 32;

impl Lineage {
    /// Parses a timeline history file. It has a line for each timeline that was left: its number, the position and a
    /// reason.
    pub fn read(now: u32, file: &str) -> Self {
        let switch = |line: &str| {
            let mut words = line.split_whitespace();
            Some(Switch {
                timeline: words.next()?.parse().ok()?,
                at: words.next()?.parse().ok()?,
            })
        };
        Self {
            left: file.lines().filter_map(switch).collect(),
            now,
        }
    }

    /// The part that is stored beside an offset.
    pub(crate) fn shortened(&self) -> Self {
        let first = self.left.len().saturating_sub(MOST_KEPT_TIMELINES);
        Self {
            left: self.left[first..].to_vec(),
            now: self.now,
        }
    }

    /// Where `self`, known from before, and `other` diverge.
    pub fn parts_from(&self, other: &Self) -> TimelineFork {
        if self.now == 0 || other.now == 0 {
            return TimelineFork::Same;
        }
        let (ours, theirs) = (self.stretches(), other.stretches());
        // The beginning of either list may be missing.
        let is_in = |list: &[Switch], timeline| list.iter().position(|s| s.timeline == timeline);
        let common = ours
            .iter()
            .enumerate()
            .find_map(|(i, s)| Some((i, is_in(&theirs, s.timeline)?)));
        let Some((i, j)) = common else {
            return TimelineFork::Unknown;
        };
        let mut same_until = None;
        for (a, b) in ours[i..].iter().zip(&theirs[j..]) {
            if a.timeline != b.timeline {
                // Both left the previous timeline at the same position, for different timelines.
                return same_until.map_or(TimelineFork::Unknown, TimelineFork::At);
            }
            if a.at != b.at {
                return TimelineFork::At(a.at.min(b.at));
            }
            same_until = Some(a.at);
        }
        TimelineFork::Same
    }

    /// All timelines, including the present one, which has not been left.
    fn stretches(&self) -> Vec<Switch> {
        let now = Switch {
            timeline: self.now,
            at: Lsn(u64::MAX),
        };
        self.left.iter().copied().chain([now]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lineage(left: &[(u32, u64)], now: u32) -> Lineage {
        let switch = |&(timeline, at): &(u32, u64)| Switch { timeline, at: Lsn(at) };
        Lineage {
            left: left.iter().map(switch).collect(),
            now,
        }
    }

    #[test]
    fn servers_part_where_one_left_a_timeline_that_the_other_stayed_on() {
        let at = |lsn| TimelineFork::At(Lsn(lsn));
        let cases = [
            ("never promoted", lineage(&[], 1), lineage(&[], 1), TimelineFork::Same),
            (
                "not known before",
                lineage(&[], 0),
                lineage(&[(1, 40)], 2),
                TimelineFork::Same,
            ),
            ("promoted", lineage(&[], 1), lineage(&[(1, 40)], 2), at(40)),
            (
                "promoted twice",
                lineage(&[], 1),
                lineage(&[(1, 40), (2, 60)], 3),
                at(40),
            ),
            (
                "since then",
                lineage(&[(1, 40)], 2),
                lineage(&[(1, 40), (2, 60)], 3),
                at(60),
            ),
            (
                "back to the old primary",
                lineage(&[(1, 40)], 2),
                lineage(&[], 1),
                at(40),
            ),
            (
                "another standby, the same number",
                lineage(&[(1, 40)], 2),
                lineage(&[(1, 30)], 2),
                at(30),
            ),
            (
                "another standby, from the same position",
                lineage(&[(1, 40)], 2),
                lineage(&[(1, 40)], 3),
                at(40),
            ),
            (
                "the same",
                lineage(&[(1, 40)], 2),
                lineage(&[(1, 40)], 2),
                TimelineFork::Same,
            ),
            (
                "no history file",
                lineage(&[], 1),
                lineage(&[], 2),
                TimelineFork::Unknown,
            ),
            (
                "kept without its beginning",
                lineage(&[(2, 60)], 3),
                lineage(&[(1, 40), (2, 60)], 3),
                TimelineFork::Same,
            ),
            (
                "the same, promoted",
                lineage(&[(2, 60)], 3),
                lineage(&[(1, 40), (2, 60), (3, 70)], 4),
                at(70),
            ),
        ];
        for (name, before, now, expected) in cases {
            assert_eq!(before.parts_from(&now), expected, "{name}");
        }
    }

    #[test]
    fn a_history_file_is_read_as_postgres_writes_it() {
        let file = "1\t0/16E9058\tno recovery target specified\n\n2\t1/A0\tbefore 2026-01-01 00:00:00+00\n";
        assert_eq!(
            Lineage::read(3, file),
            lineage(&[(1, 0x16E_9058), (2, 0x1_0000_00A0)], 3)
        );
        assert_eq!(Lineage::read(1, ""), lineage(&[], 1));
    }

    #[test]
    fn a_long_history_keeps_its_end() {
        let long: Vec<_> = (1..100).map(|n| (n, u64::from(n) * 10)).collect();
        let (whole, shortened) = (lineage(&long, 100), lineage(&long, 100).shortened());
        assert_eq!(shortened.left.len(), MOST_KEPT_TIMELINES);
        assert_eq!(shortened.parts_from(&whole), TimelineFork::Same);
        let promoted = lineage(&[&long[..], &[(100, 2000)]].concat(), 101);
        assert_eq!(shortened.parts_from(&promoted), TimelineFork::At(Lsn(2000)));
    }
}
