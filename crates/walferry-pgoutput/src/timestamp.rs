/// Microseconds from 1970-01-01 to 2000-01-01, both at midnight UTC.
const POSTGRES_EPOCH_UNIX_MICROS: i64 = 946_684_800_000_000;

/// A point in time as the replication protocol writes it: microseconds since 2000-01-01 00:00:00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgTimestamp(pub i64);

impl PgTimestamp {
    /// The same time in microseconds since 1970-01-01 00:00:00 UTC. A time too late for an `i64` becomes the largest
    /// `i64`.
    pub fn unix_micros(self) -> i64 {
        self.0.saturating_add(POSTGRES_EPOCH_UNIX_MICROS)
    }

    /// The time `micros` microseconds after 1970-01-01 00:00:00 UTC. A time too early for an `i64` becomes the smallest
    /// `i64`.
    pub fn from_unix_micros(micros: i64) -> Self {
        Self(micros.saturating_sub(POSTGRES_EPOCH_UNIX_MICROS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn postgres_counts_from_the_year_2000() {
        let cases = [
            (0, 946_684_800_000_000),                     // 2000-01-01T00:00:00Z
            (-946_684_800_000_000, 0),                    // 1970-01-01T00:00:00Z
            (775_000_000_123_456, 1_721_684_800_123_456), // 2024-07-22T21:46:40.123456Z
        ];
        for (postgres, unix) in cases {
            assert_eq!(PgTimestamp(postgres).unix_micros(), unix);
            assert_eq!(PgTimestamp::from_unix_micros(unix), PgTimestamp(postgres));
        }
    }

    #[test]
    fn times_beyond_reach_stay_at_the_end() {
        assert_eq!(PgTimestamp(i64::MAX).unix_micros(), i64::MAX);
        assert_eq!(PgTimestamp::from_unix_micros(i64::MIN), PgTimestamp(i64::MIN));
    }
}
