//! Converts a distance in the WAL into time.

use std::collections::VecDeque;

/// Remembers when the server's WAL had reached which position.
///
/// The commit time of a change that has not been read is unknown, also while the connector does not run. But if the
/// server said at one o'clock that its WAL ended at some LSN, then everything committed before one o'clock lies before
/// that LSN.
#[derive(Debug, Clone, Default)]
pub struct WalClock {
    /// Time (microseconds since 1970) and the end of the WAL at that time, both rising.
    samples: VecDeque<(i64, u64)>,
}

/// Number of samples kept. When there are more, every second one of the older half is dropped: the older, the coarser.
const MOST_SAMPLES: usize = 512;

impl WalClock {
    /// Adds a sample: the server's WAL ended at `wal_end` at this time.
    pub fn tick(&mut self, at_us: i64, wal_end: u64) {
        if let Some(&(last_us, last_end)) = self.samples.back() {
            if wal_end < last_end {
                // This is another server, or one restored from a backup. The samples no longer hold.
                self.samples.clear();
            } else if at_us <= last_us {
                return;
            }
        }
        self.samples.push_back((at_us, wal_end));
        if self.samples.len() > MOST_SAMPLES {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index > MOST_SAMPLES / 2 || index % 2 == 1
            });
        }
    }

    /// The last sampled time, in microseconds since 1970, at which the WAL did not extend beyond `lsn`. A reader that
    /// has got to `lsn` has read everything committed by then. `Err` with the time of the first sample if the WAL
    /// extended beyond `lsn` already then. `None` if there are no samples.
    pub fn time_of(&self, lsn: u64) -> Option<Result<i64, i64>> {
        let beyond = self.samples.partition_point(|&(_, end)| end <= lsn);
        match beyond.checked_sub(1) {
            Some(last) => Some(Ok(self.samples[last].0)),
            None => self.samples.front().map(|&(at_us, _)| Err(at_us)),
        }
    }

    /// Bytes per second by which the WAL grew over the last `window_us` or a little longer, or since the first sample.
    pub fn bytes_per_second(&self, window_us: i64) -> Option<f64> {
        let &(now_us, end) = self.samples.back()?;
        let before = self.samples.partition_point(|&(at_us, _)| at_us <= now_us - window_us);
        let (then_us, start) = self.samples[before.saturating_sub(1)];
        (now_us > then_us).then(|| (end - start) as f64 * 1e6 / (now_us - then_us) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    fn clock(samples: &[(i64, u64)]) -> WalClock {
        let mut clock = WalClock::default();
        for &(s, end) in samples {
            clock.tick(s * S, end);
        }
        clock
    }

    #[test]
    fn an_lsn_is_as_old_as_the_last_sample_that_it_covers() {
        let clock = clock(&[(10, 100), (12, 100), (14, 300), (16, 400)]);
        let cases = [
            (99, Err(10 * S)),
            (100, Ok(12 * S)),
            (299, Ok(12 * S)),
            (300, Ok(14 * S)),
            (400, Ok(16 * S)),
            (u64::MAX, Ok(16 * S)),
        ];
        for (lsn, expected) in cases {
            assert_eq!(clock.time_of(lsn), Some(expected), "{lsn}");
        }
        assert_eq!(WalClock::default().time_of(1), None);
    }

    #[test]
    fn a_wal_that_ends_earlier_than_before_is_another_one() {
        assert_eq!(clock(&[(10, 100), (12, 50)]).time_of(60), Some(Ok(12 * S)));
    }

    #[test]
    fn old_samples_are_thinned_and_the_oldest_stays() {
        let mut clock = WalClock::default();
        for s in 0..100_000 {
            clock.tick(s * S, s as u64);
        }
        assert!(clock.samples.len() <= MOST_SAMPLES);
        assert_eq!(clock.time_of(0), Some(Ok(0)));
        assert_eq!(clock.time_of(99_990), Some(Ok(99_990 * S)));
    }

    #[test]
    fn growth_is_measured_over_the_window_or_what_is_known() {
        type Samples = &'static [(i64, u64)];
        let cases: [(Samples, Option<f64>); 4] = [
            (&[], None),
            (&[(0, 100)], None),
            (&[(0, 100), (2, 300)], Some(100.0)),
            (&[(0, 0), (40, 5_000), (100, 11_000)], Some(100.0)),
        ];
        for (samples, expected) in cases {
            assert_eq!(clock(samples).bytes_per_second(60 * S), expected, "{samples:?}");
        }
    }
}
