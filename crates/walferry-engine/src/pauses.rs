//! Pauses between tries.

use std::time::Duration;

/// Pauses between tries in a row: each is twice as long as the one before, up to a limit.
#[derive(Debug, Clone)]
pub struct Pauses {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Pauses {
    /// Pauses that begin with `first`. None is longer than `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            next: first,
        }
    }

    /// How long to wait before the next try.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }

    /// A try has succeeded. The next pause is the first one again.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again_after_a_success() {
        let ms = Duration::from_millis;
        let mut pauses = Pauses::new(ms(200), ms(1000));
        let four: Vec<Duration> = (0..5).map(|_| pauses.next_pause()).collect();
        assert_eq!(four, [ms(200), ms(400), ms(800), ms(1000), ms(1000)]);
        pauses.reset();
        assert_eq!(pauses.next_pause(), ms(200));
    }
}
