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
    /// A limit of at most `most` bytes. It begins small, since after a start there is often a backlog.
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

    /// Reaches the limit again and again. Kafka takes `bytes_per_ms`; the round trip takes `way_ms`.
    fn fill(limit: &mut InFlightLimit, rounds: u64, bytes_per_ms: usize, way_ms: i64) -> usize {
        let mut now_us = 0;
        for round in 0..rounds {
            limit.sent(round + 1, || now_us);
            limit.waited();
            now_us += (way_ms + (limit.bytes() / bytes_per_ms) as i64) * 1000;
            limit.acknowledged(round + 1, now_us);
        }
        limit.bytes()
    }

    #[test]
    fn a_quick_kafka_gets_all_and_a_slow_one_what_it_takes_within_a_moment() {
        let fill = |bytes_per_ms, way_ms| fill(&mut InFlightLimit::new(MOST), 200, bytes_per_ms, way_ms);
        assert_eq!(fill(1_000_000, 5), MOST);
        // A network with a long round trip that is not slow.
        assert_eq!(fill(1_000_000, 300), MOST);
        // The first and smallest limit takes 31 ms, so 81 ms are allowed. In 5 of these no bytes are taken. The limit
        // grows by half in each step.
        let slow = fill(40_000, 5);
        let (within_a_moment, rounding) = (40_000 * 76, 40_000);
        assert!((LEAST..=(within_a_moment + rounding) * 3 / 2).contains(&slow), "{slow}");
        let slower = fill(1_000, 5);
        assert!((LEAST..2 * LEAST).contains(&slower), "{slower}");
    }

    #[test]
    fn it_grows_again_after_kafka_was_away() {
        let mut limit = InFlightLimit::new(MOST);
        fill(&mut limit, 10, 1_000_000, 5);
        for _ in 0..5 {
            limit.adjust(60_000_000);
        }
        assert_eq!(limit.bytes(), LEAST);
        assert_eq!(fill(&mut limit, 20, 1_000_000, 5), MOST);
    }

    #[test]
    fn a_new_limit_holds_at_once_and_room_that_comes_back_is_used() {
        let mut limit = InFlightLimit::new(MOST);
        assert_eq!(fill(&mut limit, 200, 1_000_000, 5), MOST);
        limit.limit(LEAST / 2);
        assert_eq!(limit.bytes(), LEAST / 2);
        assert_eq!(fill(&mut limit, 20, 1_000_000, 5), LEAST / 2);
        limit.limit(MOST);
        assert_eq!(fill(&mut limit, 200, 1_000_000, 5), MOST);
    }

    #[test]
    fn it_does_not_grow_while_nobody_waits_for_room() {
        let mut limit = InFlightLimit::new(MOST);
        for sequence in 1..100 {
            limit.sent(sequence, || 0);
            limit.acknowledged(sequence, 5_000);
        }
        assert_eq!(limit.bytes(), LEAST);
    }

    #[test]
    fn a_small_limit_stays_what_it_is() {
        for bytes_per_ms in [10, 1_000_000] {
            assert_eq!(fill(&mut InFlightLimit::new(5_000), 100, bytes_per_ms, 5), 5_000);
        }
    }

    #[test]
    fn what_was_taken_back_is_not_waited_for() {
        let mut limit = InFlightLimit::new(MOST);
        limit.sent(10, || 0);
        limit.withdrawn(9);
        limit.sent(10, || 1_000_000);
        limit.waited();
        limit.acknowledged(10, 1_001_000);
        assert!(limit.bytes() > LEAST);
    }
}
