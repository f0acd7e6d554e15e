//! Log lines that a row could cause.

/// Counts occurrences and lets the first, the tenth, the hundredth and so on into the log: every occurrence may be a row.
#[derive(Debug, Clone, Default)]
pub(crate) struct Throttle {
    count: u64,
    next: u64,
}

impl Throttle {
    /// Counts one more; `Some` of the count when it is to be logged.
    pub(crate) fn count(&mut self) -> Option<u64> {
        self.count += 1;
        if self.count < self.next {
            return None;
        }
        self.next = self.count.saturating_mul(10);
        Some(self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_power_of_ten_is_logged() {
        let mut throttle = Throttle::default();
        let logged: Vec<u64> = (0..1000).filter_map(|_| throttle.count()).collect();
        assert_eq!(logged, [1, 10, 100, 1000]);
    }
}
