//! Limits the bytes under way to what Kafka acknowledges within a moment.
//!
//! If the process is killed, whatever is under way may have arrived, and is sent again. While Kafka is fast, little is
//! under way anyway. While it is slow, or there is a backlog, more bytes would only wait in its queues: more would be
//! repeated, and nothing would arrive sooner.

/// Bytes that may always be under way if `walferry.in.flight.max.bytes` allows it. Enough for batches that cost the
/// broker little.
const LEAST: usize = 1024 * 1024;
/// How long records may wait in queues, in microseconds, on top of the round trip to Kafka.
const QUEUED_US: i64 = 50_000;

/// Bytes that may be under way. One record at a time is watched; its round-trip time shows whether queues build up.
#[derive(Debug)]
pub(crate) struct InFlightLimit {
    least: usize,
    most: usize,
    now: usize,
    /// Sequence of the watched record, and when the producer got it (microseconds since 1970).
    watched: Option<(u64, i64)>,
    /// The shortest round trip to Kafka so far, in microseconds.
    quickest_us: i64,
    /// Whether a caller has waited for room since the last watched record was acknowledged.
    waited: bool,
}

impl InFlightLimit {
    /// A window of at most `most` bytes. It begins small, since after a start there is often a backlog.
    pub(crate) fn new(most: usize) -> Self {
        let least = LEAST.min(most);
        Self {
            least,
            most,
            now: least,
            watched: None,
            quickest_us: i64::MAX - QUEUED_US,
            waited: false,
        }
    }

    /// Sets a new maximum. Bytes beyond it stay under way until they are acknowledged.
    pub(crate) fn limit(&mut self, most: usize) {
        self.most = most;
        self.least = LEAST.min(most);
        self.now = self.now.clamp(self.least, most);
    }

    /// How many bytes may be under way.
    pub(crate) const fn bytes(&self) -> usize {
        self.now
    }

    /// A caller that waited for room continues only when the bytes under way fall to this, not with each
    /// acknowledgement.
    pub(crate) const fn enough(&self) -> usize {
        self.now - self.now / 4
    }

    /// Notes that a caller found no room.
    pub(crate) const fn waited(&mut self) {
        self.waited = true;
    }

    /// Records before the sequence `next` have been given to the producer.
    pub(crate) fn sent(&mut self, next: u64, now_us: impl FnOnce() -> i64) {
        if self.watched.is_none() && next > 0 {
            self.watched = Some((next - 1, now_us()));
        }
    }

    /// Records from this sequence on have been taken back.
    pub(crate) fn withdrawn(&mut self, sequence: u64) {
        self.watched.take_if(|(watched, _)| *watched >= sequence);
    }

    /// Everything before this sequence has been acknowledged.
    pub(crate) fn acknowledged(&mut self, head: u64, now_us: i64) {
        if let Some((_, sent_us)) = self.watched.take_if(|(watched, _)| *watched < head) {
            self.adjust((now_us - sent_us).max(0));
        }
    }

    fn adjust(&mut self, took_us: i64) {
        let waited = std::mem::take(&mut self.waited);
        self.quickest_us = self.quickest_us.min(took_us);
        let target_us = self.quickest_us + QUEUED_US;
        if took_us <= target_us {
            if waited {
                self.now = (self.now + self.now / 2).min(self.most);
            }
        } else if self.now > self.least {
            let share = (target_us as f64 / took_us as f64).max(0.5);
            self.now = ((self.now as f64 * share) as usize).max(self.least);
        } else {
            // These queues are not ours: the network has become slower, or a machine is busy.
            self.quickest_us += (took_us - self.quickest_us) / 8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 12 * LEAST;

    /// Fills the window again and again. Kafka takes `bytes_per_ms`; the round trip takes `way_ms`.
    fn fill(window: &mut InFlightLimit, rounds: u64, bytes_per_ms: usize, way_ms: i64) -> usize {
        let mut now_us = 0;
        for round in 0..rounds {
            window.sent(round + 1, || now_us);
            window.waited();
            now_us += (way_ms + (window.bytes() / bytes_per_ms) as i64) * 1000;
            window.acknowledged(round + 1, now_us);
        }
        window.bytes()
    }

    #[test]
    fn a_quick_kafka_gets_all_and_a_slow_one_what_it_takes_within_a_moment() {
        let fill = |bytes_per_ms, way_ms| fill(&mut InFlightLimit::new(MOST), 200, bytes_per_ms, way_ms);
        assert_eq!(fill(1_000_000, 5), MOST);
        // A network with a long round trip that is not slow.
        assert_eq!(fill(1_000_000, 300), MOST);
        // The first and smallest window takes 31 ms, so 81 ms are allowed. In 5 of these no bytes are taken. The window
        // grows by half in each step.
        let slow = fill(40_000, 5);
        let (within_a_moment, rounding) = (40_000 * 76, 40_000);
        assert!((LEAST..=(within_a_moment + rounding) * 3 / 2).contains(&slow), "{slow}");
        let slower = fill(1_000, 5);
        assert!((LEAST..2 * LEAST).contains(&slower), "{slower}");
    }

    #[test]
    fn it_grows_again_after_kafka_was_away() {
        let mut window = InFlightLimit::new(MOST);
        fill(&mut window, 10, 1_000_000, 5);
        for _ in 0..5 {
            window.adjust(60_000_000);
        }
        assert_eq!(window.bytes(), LEAST);
        assert_eq!(fill(&mut window, 20, 1_000_000, 5), MOST);
    }

    #[test]
    fn a_new_limit_holds_at_once_and_room_that_comes_back_is_used() {
        let mut window = InFlightLimit::new(MOST);
        assert_eq!(fill(&mut window, 200, 1_000_000, 5), MOST);
        window.limit(LEAST / 2);
        assert_eq!(window.bytes(), LEAST / 2);
        assert_eq!(fill(&mut window, 20, 1_000_000, 5), LEAST / 2);
        window.limit(MOST);
        assert_eq!(fill(&mut window, 200, 1_000_000, 5), MOST);
    }

    #[test]
    fn it_does_not_grow_while_nobody_waits_for_room() {
        let mut window = InFlightLimit::new(MOST);
        for sequence in 1..100 {
            window.sent(sequence, || 0);
            window.acknowledged(sequence, 5_000);
        }
        assert_eq!(window.bytes(), LEAST);
    }

    #[test]
    fn a_small_limit_stays_what_it_is() {
        for bytes_per_ms in [10, 1_000_000] {
            assert_eq!(fill(&mut InFlightLimit::new(5_000), 100, bytes_per_ms, 5), 5_000);
        }
    }

    #[test]
    fn what_was_taken_back_is_not_waited_for() {
        let mut window = InFlightLimit::new(MOST);
        window.sent(10, || 0);
        window.withdrawn(9);
        window.sent(10, || 1_000_000);
        window.waited();
        window.acknowledged(10, 1_001_000);
        assert!(window.bytes() > LEAST);
    }
}
