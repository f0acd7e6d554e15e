//! Pauses between tries.

use std::time::Duration;

/// Pauses that double from a tenth of a second to half a minute.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_half_a_minute() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..11).map(|_| backoff.next().as_millis() as u64).collect();
        assert_eq!(
            pauses,
            [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]
        );
    }
}
