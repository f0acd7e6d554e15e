//! Time from a commit in Postgres to Kafka's acknowledgement.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the latency histogram's buckets in microseconds; one more bucket takes the rest.
pub const LATENCY_BOUNDS_US: [i64; 19] = [
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    5_000_000,
    30_000_000,
    60_000_000,
    90_000_000,
    120_000_000,
    180_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
];

/// Number of transactions in each bucket, not cumulated; the last bucket has no upper bound.
pub type LatencyCounts = [u64; LATENCY_BOUNDS_US.len() + 1];

/// A histogram of the time from a transaction's commit in Postgres to its last record's acknowledgement by Kafka.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latency {
    /// Counts one transaction. The clocks of two machines may differ, so a negative latency counts as 0.
    pub fn observe(&self, us: i64) {
        let bucket = LATENCY_BOUNDS_US.partition_point(|&bound| bound < us);
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_us.fetch_add(us.max(0) as u64, Relaxed);
    }

    /// The count in each bucket, and the sum in microseconds.
    pub fn snapshot(&self) -> (LatencyCounts, u64) {
        (
            std::array::from_fn(|i| self.buckets[i].load(Relaxed)),
            self.sum_us.load(Relaxed),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_at_most_its_bound() {
        let cases = [
            (-5, 0),
            (0, 0),
            (1_000, 0),
            (1_001, 1),
            (70_000_000, 13),
            (3_600_000_000, 18),
            (i64::MAX, 19),
        ];
        for (us, bucket) in cases {
            let latency = Latency::default();
            latency.observe(us);
            let (counts, sum) = latency.snapshot();
            assert_eq!(counts.iter().position(|&n| n == 1), Some(bucket), "{us} µs");
            assert_eq!(sum, us.max(0) as u64);
        }
    }
}
