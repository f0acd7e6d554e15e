//! Rows that the server keeps although it was told to remove them: a trigger BEFORE DELETE returns NULL, or no policy of row-level security
//! lets the role delete. There is no error. If they fill a batch, the same ones would be found each time, and no other row would be removed.

use std::time::{Duration, Instant};

/// For how long rows that stay are not tried again, since the first of them was found.
const KEPT: Duration = Duration::from_secs(600);

/// One batch may be left because somebody changes its rows at the same time.
const TWICE: u32 = 2;

/// What stays of one table.
#[derive(Debug, Default)]
pub(super) struct Stays {
    /// How many batches nothing was removed of, one after the other.
    batches: u32,
    /// Rows before this time are not looked for until the time of the second.
    kept: Option<(i64, Instant)>,
    is_told: bool,
}

/// A batch of rows that were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    /// The first and the last time of the rows, in microseconds since 1970.
    pub(super) first_us: i64,
    pub(super) last_us: i64,
    pub(super) rows: u64,
    pub(super) removed: u64,
    /// Whether there may be more of them.
    pub(super) is_full: bool,
    /// Whether no earlier row may be removed.
    pub(super) is_first: bool,
}

/// What there is to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum News {
    None,
    /// Rows stay, as before.
    Again,
    /// For the first time.
    First,
}

impl Stays {
    /// The time before which no rows are looked for, in microseconds since 1970.
    pub(super) fn kept_us(&self, now: Instant) -> Option<i64> {
        self.kept.filter(|(_, until)| *until > now).map(|(us, _)| us)
    }

    /// After a batch. `step_us` is the least distance of two times that differ.
    pub(super) fn learn(&mut self, found: Found, step_us: i64, now: Instant) -> News {
        if found.removed > 0 {
            self.batches = 0;
            if found.removed == found.rows && found.is_first {
                // Those that stayed before would be among the rows.
                self.is_told = false;
            }
            return News::None;
        }
        self.batches = self.batches.saturating_add(1);
        if self.batches < TWICE {
            return News::None;
        }
        let is_new = self.kept_us(now).is_none();
        // Further rows of a full batch may have its last time.
        let has_more = found.is_full && found.last_us > found.first_us;
        let kept = if has_more {
            found.last_us
        } else {
            found.last_us.saturating_add(step_us)
        };
        // Others that stay are passed, too, but all of them are tried again at the same time.
        let until = self
            .kept
            .filter(|(_, until)| *until > now)
            .map_or(now + KEPT, |(_, until)| until);
        self.kept = Some((kept, until));
        match (std::mem::replace(&mut self.is_told, true), is_new) {
            (false, _) => News::First,
            (true, true) => News::Again,
            (true, false) => News::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: i64 = 1000;

    fn found(first_us: i64, last_us: i64, removed: u64, is_full: bool) -> Found {
        Found {
            first_us,
            last_us,
            rows: 30,
            removed,
            is_full,
            is_first: true,
        }
    }

    #[test]
    fn a_batch_that_stays_twice_is_passed_for_a_while() {
        let (mut stays, now) = (Stays::default(), Instant::now());
        let later = now + KEPT;
        // Somebody may have changed them at the same time.
        assert_eq!(stays.learn(found(5000, 9000, 0, true), STEP, now), News::None);
        assert_eq!(stays.kept_us(now), None);
        assert_eq!(stays.learn(found(5000, 9000, 30, true), STEP, now), News::None);
        assert_eq!(stays.learn(found(5000, 9000, 0, true), STEP, now), News::None);
        assert_eq!(stays.learn(found(5000, 9000, 0, true), STEP, now), News::First);
        // Another row may have the last time.
        assert_eq!(stays.kept_us(now), Some(9000));
        // From then on, each batch that stays is passed at once.
        assert_eq!(stays.learn(found(9000, 9000, 0, true), STEP, now), News::None);
        assert_eq!(stays.kept_us(now), Some(10_000), "all rows of a batch have one time");
        assert_eq!(stays.learn(found(12_000, 13_000, 0, false), STEP, now), News::None);
        assert_eq!(stays.kept_us(now), Some(14_000));
        let shortly_before = now + KEPT * 9 / 10;
        assert_eq!(
            stays.learn(found(15_000, 16_000, 0, false), STEP, shortly_before),
            News::None
        );
        assert_eq!(stays.kept_us(shortly_before), Some(17_000));
        assert_eq!(stays.kept_us(later), None, "they are tried again");
    }

    #[test]
    fn rows_that_stay_are_told_once_and_again_after_all_rows_have_gone() {
        let (mut stays, mut now) = (Stays::default(), Instant::now());
        let mut twice = |stays: &mut Stays| {
            now += KEPT;
            let kept = found(5000, 9000, 0, true);
            assert_eq!(stays.learn(kept, STEP, now), News::None);
            let news = stays.learn(kept, STEP, now);
            // Rows behind them go.
            let behind = Found {
                is_first: false,
                ..found(20_000, 30_000, 30, false)
            };
            assert_eq!(stays.learn(behind, STEP, now), News::None);
            news
        };
        assert_eq!(twice(&mut stays), News::First);
        assert_eq!(twice(&mut stays), News::Again);
        let (some, all) = (found(5000, 9000, 29, false), found(5000, 9000, 30, false));
        assert_eq!(stays.learn(some, STEP, Instant::now()), News::None);
        assert_eq!(twice(&mut stays), News::Again);
        assert_eq!(stays.learn(all, STEP, Instant::now()), News::None);
        assert_eq!(twice(&mut stays), News::First);
    }
}
