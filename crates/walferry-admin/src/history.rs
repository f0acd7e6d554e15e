//! The last minutes of a connector, for the page's curves and for recent latencies.

use std::{collections::VecDeque, time::Duration};

use serde::Serialize;
use walferry_engine::status::{LATENCY_BOUNDS_US, LatencyCounts};

use crate::observation::{Observation, load};

/// Time between two samples.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);
/// Samples kept: ten minutes.
const SAMPLES: usize = 300;

/// Samples of one connector.
#[derive(Debug, Default)]
pub(crate) struct History {
    samples: VecDeque<Sample>,
    /// When the status was created that the samples are of.
    created_us: i64,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at_us: i64,
    records: u64,
    lag_seconds: f64,
    latency: LatencyCounts,
}

/// The values that the page draws, oldest first.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Curves {
    interval_seconds: u64,
    records_per_second: Vec<f64>,
    lag_seconds: Vec<f64>,
}

/// Commit to acknowledgement over the last minutes.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Latencies {
    /// `None` when no transaction was delivered in that time.
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    transactions: u64,
    window_seconds: f64,
}

impl History {
    pub(crate) fn push(&mut self, observed: &Observation<'_>) {
        // A new configuration comes with a new status, which counts from zero.
        if self.created_us != observed.status.created_us {
            self.samples.clear();
            self.created_us = observed.status.created_us;
        }
        if self.samples.len() == SAMPLES {
            self.samples.pop_front();
        }
        self.samples.push_back(Sample {
            at_us: observed.now_us,
            records: load(&observed.counters().records),
            lag_seconds: observed.lag.seconds,
            latency: observed.latency.0,
        });
    }

    pub(crate) fn curves(&self) -> Curves {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        let rates = pairs.map(|(a, b)| per_second(b.records.saturating_sub(a.records), b.at_us - a.at_us));
        Curves {
            interval_seconds: INTERVAL.as_secs(),
            records_per_second: rates.collect(),
            lag_seconds: self.samples.iter().map(|sample| round(sample.lag_seconds)).collect(),
        }
    }

    pub(crate) fn latencies(&self, observed: &Observation<'_>) -> Latencies {
        let then = self.samples.front();
        let mut counts = observed.latency.0;
        for (count, before) in counts.iter_mut().zip(then.map_or([0; _], |sample| sample.latency)) {
            *count = count.saturating_sub(before);
        }
        let ms = |q| quantile_us(&counts, q).map(|us| round(us / 1e3));
        Latencies {
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            transactions: counts.iter().sum(),
            window_seconds: then.map_or(0.0, |sample| round((observed.now_us - sample.at_us) as f64 / 1e6)),
        }
    }
}

fn per_second(count: u64, us: i64) -> f64 {
    if us > 0 {
        round(count as f64 * 1e6 / us as f64)
    } else {
        0.0
    }
}

fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// The quantile as Prometheus computes it: values are evenly spread inside a bucket. Beyond the last bound, it is that bound.
pub(crate) fn quantile_us(counts: &LatencyCounts, q: f64) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    if all == 0 {
        return None;
    }
    let rank = q * all as f64;
    let (mut below, mut lower) = (0.0, 0.0);
    for (&count, &upper) in counts.iter().zip(&LATENCY_BOUNDS_US) {
        let (count, upper) = (count as f64, upper as f64);
        if below + count >= rank {
            return Some(lower + (upper - lower) * (rank - below) / count.max(1.0));
        }
        (below, lower) = (below + count, upper);
    }
    Some(lower)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use walferry_engine::status::Status;

    use super::*;
    use crate::observation::tests::{NOW_US, S};

    #[test]
    fn quantiles_are_reckoned_inside_a_bucket() {
        let counts = |buckets: &[(usize, u64)]| {
            let mut counts = LatencyCounts::default();
            buckets.iter().for_each(|&(bucket, count)| counts[bucket] = count);
            counts
        };
        type Case<'a> = (&'a [(usize, u64)], f64, Option<f64>);
        let cases: [Case<'_>; 6] = [
            (&[], 0.5, None),
            (&[(0, 10)], 0.5, Some(500.0)),
            (&[(0, 10), (2, 10)], 0.75, Some(3_500.0)),
            (&[(3, 100)], 0.99, Some(9_950.0)),
            (&[(19, 1)], 0.5, Some(3_600_000_000.0)),
            // An outage of 70 s is not shown as one of four minutes.
            (&[(13, 10)], 0.99, Some(89_700_000.0)),
        ];
        for (buckets, q, expected) in cases {
            assert_eq!(quantile_us(&counts(buckets), q), expected, "{buckets:?} at {q}");
        }
    }

    #[test]
    fn curves_and_latencies_cover_the_last_minutes_only() {
        let status = Status::new("c", "s");
        let mut history = History::default();
        for (s, records, latency_us) in [(0, 100, 900), (2, 300, 1_500), (4, 300, 1_500)] {
            status.counters.records.store(records, Relaxed);
            status.latency.observe(latency_us);
            history.push(&Observation::at(&status, NOW_US + s * S));
        }
        let curves = history.curves();
        assert_eq!(
            (curves.records_per_second, curves.lag_seconds.len()),
            (vec![100.0, 0.0], 3)
        );
        let latencies = history.latencies(&Observation::at(&status, NOW_US + 4 * S));
        assert_eq!(
            (latencies.transactions, latencies.p50_ms, latencies.window_seconds),
            (2, Some(1.5), 4.0)
        );
        for s in 0..1_000 {
            history.push(&Observation::at(&status, NOW_US + s * S));
        }
        assert_eq!(history.curves().lag_seconds.len(), SAMPLES);
        // A new configuration counts anew.
        let mut newer = Status::new("c", "s");
        newer.created_us = status.created_us + 1;
        history.push(&Observation::at(&newer, NOW_US + 1_000 * S));
        assert_eq!(history.curves().lag_seconds.len(), 1);
    }
}
