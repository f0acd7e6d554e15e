//! Rows that the server keeps although it was told to remove them: a trigger BEFORE DELETE returns NULL, or no policy of row-level security
//! lets the role delete. There is no error. If they fill a batch, the same ones would be found each time, and no other row would be removed.

use std::time::{Duration, Instant};

/// For how long rows that stay are not tried again, since the first of them was found.
const RETRY_AFTER: Duration = Duration::from_secs(600);

/// One batch may be left because somebody changes its rows at the same time.
const TWICE: u32 = 2;

/// What stays of one table.
#[derive(Debug, Default)]
pub(super) struct KeptRows {
    /// How many batches nothing was removed of, one after the other.
    batches: u32,
    range: Option<KeptRange>,
    is_told: bool,
}

/// Up to where rows are not looked for, because they stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeptRange {
    /// Rows before this time, in microseconds since 1970.
    pub(super) before_us: i64,
    /// Of the rows of this time, those up to here.
    pub(super) up_to: Option<Place>,
    /// When all of them are tried again.
    until: Instant,
}

/// Where a row is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The oid of its table or partition.
    pub(super) part: u32,
    /// Its `ctid`, as text.
    pub(super) row: String,
}

/// A batch of rows that were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundRows {
    /// The first and the last time of the rows, in microseconds since 1970.
    pub(super) first_us: i64,
    pub(super) last_us: i64,
    /// The last row, if the rows of one time come in the order of their places.
    pub(super) last: Option<Place>,
    pub(super) rows: u64,
    pub(super) removed: u64,
    /// Whether there may be more of them.
    pub(super) is_full: bool,
    /// Whether no earlier row may be removed.
    pub(super) is_first: bool,
}

/// What there is to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeptRowsNews {
    None,
    /// Rows stay, as before.
    Again,
    /// For the first time.
    First,
}

impl Place {
    /// Before all rows.
    fn first() -> Self {
        Self {
            part: 0,
            row: "(0,0)".to_owned(),
        }
    }
}

impl KeptRows {
    /// Up to where no rows are looked for.
    pub(super) fn range(&self) -> Option<&KeptRange> {
        self.range.as_ref()
    }

    /// Whether rows that stayed are to be tried again now. From then on, they are looked for.
    pub(super) fn are_due(&mut self, now: Instant) -> bool {
        self.range.take_if(|range| range.until <= now).is_some()
    }

    /// After a batch. `step_us` is the least distance of two times that differ.
    pub(super) fn learn(&mut self, found: FoundRows, step_us: i64, now: Instant) -> KeptRowsNews {
        if found.removed > 0 {
            self.batches = 0;
            if found.removed == found.rows && found.is_first {
                // Those that stayed before would be among the rows.
                self.is_told = false;
            }
            return KeptRowsNews::None;
        }
        self.batches = self.batches.saturating_add(1);
        if self.batches < TWICE {
            return KeptRowsNews::None;
        }
        let is_new = self.range.is_none();
        // Further rows of a full batch may have its last time.
        let (before_us, up_to) = match found.is_full {
            true => (found.last_us, Some(found.last.unwrap_or_else(Place::first))),
            false => (found.last_us.saturating_add(step_us), None),
        };
        // Others that stay are passed, too, but all of them are tried again at the same time.
        let until = self.range.as_ref().map_or(now + RETRY_AFTER, |range| range.until);
        self.range = Some(KeptRange {
            before_us,
            up_to,
            until,
        });
        match (std::mem::replace(&mut self.is_told, true), is_new) {
            (false, _) => KeptRowsNews::First,
            (true, true) => KeptRowsNews::Again,
            (true, false) => KeptRowsNews::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: i64 = 1000;

    fn found(first_us: i64, last_us: i64, removed: u64, is_full: bool) -> FoundRows {
        FoundRows {
            first_us,
            last_us,
            last: None,
            rows: 30,
            removed,
            is_full,
            is_first: true,
        }
    }

    fn place(row: u32) -> Place {
        Place {
            part: 7,
            row: format!("(0,{row})"),
        }
    }

    #[test]
    fn a_batch_that_stays_twice_is_passed_for_a_while() {
        let (mut kept_rows, now) = (KeptRows::default(), Instant::now());
        let range = |kept_rows: &KeptRows| kept_rows.range().map(|range| (range.before_us, range.up_to.clone()));
        // Somebody may have changed them at the same time.
        assert_eq!(
            kept_rows.learn(found(5000, 9000, 0, true), STEP, now),
            KeptRowsNews::None
        );
        assert_eq!(range(&kept_rows), None);
        assert_eq!(
            kept_rows.learn(found(5000, 9000, 30, true), STEP, now),
            KeptRowsNews::None
        );
        assert_eq!(
            kept_rows.learn(found(5000, 9000, 0, true), STEP, now),
            KeptRowsNews::None
        );
        assert_eq!(
            kept_rows.learn(found(5000, 9000, 0, true), STEP, now),
            KeptRowsNews::First
        );
        // Another row may have the last time. From then on, rows of one time come in the order of their places.
        assert_eq!(range(&kept_rows), Some((9000, Some(Place::first()))));
        // Each further batch that stays is passed at once.
        for row in [30, 60] {
            let in_order = FoundRows {
                last: Some(place(row)),
                ..found(9000, 9000, 0, true)
            };
            assert_eq!(kept_rows.learn(in_order, STEP, now), KeptRowsNews::None);
            assert_eq!(
                range(&kept_rows),
                Some((9000, Some(place(row)))),
                "all rows of a batch have one time"
            );
        }
        assert_eq!(
            kept_rows.learn(found(12_000, 13_000, 0, false), STEP, now),
            KeptRowsNews::None
        );
        assert_eq!(range(&kept_rows), Some((14_000, None)));
        let shortly_before = now + RETRY_AFTER * 9 / 10;
        assert_eq!(
            kept_rows.learn(found(15_000, 16_000, 0, false), STEP, shortly_before),
            KeptRowsNews::None
        );
        assert!(!kept_rows.are_due(shortly_before));
        assert_eq!(range(&kept_rows), Some((17_000, None)));
        assert!(kept_rows.are_due(now + RETRY_AFTER), "they are tried again");
        assert_eq!(range(&kept_rows), None);
        assert!(!kept_rows.are_due(now + RETRY_AFTER), "once");
    }

    #[test]
    fn rows_that_stay_are_told_once_and_again_after_all_rows_have_gone() {
        let (mut kept_rows, mut now) = (KeptRows::default(), Instant::now());
        let mut twice = |kept_rows: &mut KeptRows| {
            now += RETRY_AFTER;
            kept_rows.are_due(now);
            let found_rows = found(5000, 9000, 0, true);
            assert_eq!(kept_rows.learn(found_rows.clone(), STEP, now), KeptRowsNews::None);
            let news = kept_rows.learn(found_rows, STEP, now);
            // Rows behind them go.
            let behind = FoundRows {
                is_first: false,
                ..found(20_000, 30_000, 30, false)
            };
            assert_eq!(kept_rows.learn(behind, STEP, now), KeptRowsNews::None);
            news
        };
        assert_eq!(twice(&mut kept_rows), KeptRowsNews::First);
        assert_eq!(twice(&mut kept_rows), KeptRowsNews::Again);
        let (some, all) = (found(5000, 9000, 29, false), found(5000, 9000, 30, false));
        assert_eq!(kept_rows.learn(some, STEP, Instant::now()), KeptRowsNews::None);
        assert_eq!(twice(&mut kept_rows), KeptRowsNews::Again);
        assert_eq!(kept_rows.learn(all, STEP, Instant::now()), KeptRowsNews::None);
        assert_eq!(twice(&mut kept_rows), KeptRowsNews::First);
    }
}
