//! Events that do not match their schemas: counted always, told seldom.

use std::time::{Duration, Instant};

use walferry_transform::Mismatched;

/// How often a type is told.
const INTERVAL: Duration = Duration::from_secs(60);

/// Events of one type.
#[derive(Debug, Clone, Default)]
pub(super) struct Mismatches {
    events: u64,
    /// Events that were sent and that no line of the log counts yet.
    untold: u64,
    logged_at: Option<Instant>,
}

impl Mismatches {
    /// How many there were.
    pub(super) const fn events(&self) -> u64 {
        self.events
    }

    /// Counts more. `Some` of the number of events since the last line if a line is due.
    pub(super) fn count(&mut self, more: &Mismatched, now: Instant) -> Option<u64> {
        self.events += more.events;
        if !more.is_sent {
            return None;
        }
        self.untold += more.events;
        if self
            .logged_at
            .is_some_and(|logged_at| now.duration_since(logged_at) < INTERVAL)
        {
            return None;
        }
        self.logged_at = Some(now);
        Some(std::mem::take(&mut self.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_told_once_a_minute_with_the_number_of_events_since() {
        let mut mismatches = Mismatches::default();
        let begin = Instant::now();
        let mut count = |events, is_sent, after_s| {
            let more = Mismatched {
                event_type: "a".into(),
                events,
                is_sent,
                why: String::new(),
            };
            mismatches.count(&more, begin + Duration::from_secs(after_s))
        };
        assert_eq!(count(2, true, 0), Some(2));
        assert_eq!(count(3, true, 1), None);
        assert_eq!(count(5, false, 59), None, "the log has these already");
        assert_eq!(count(1, true, 60), Some(4));
        assert_eq!(count(1, true, 61), None);
        assert_eq!(mismatches.events(), 12);
    }
}
