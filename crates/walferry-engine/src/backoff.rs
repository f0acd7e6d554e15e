//! Tries in a row, and the pauses between them.

use std::time::Duration;

use crate::{
    failure::{Disposition, Exit, Failure},
    pauses::Pauses,
};

/// Counts tries in a row. The pauses between them double from 0.1 s to 30 s.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// `errors.max.retries`. `None`: no limit.
    most: Option<u32>,
    in_a_row: u32,
    pauses: Pauses,
}

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

impl Backoff {
    pub(crate) fn new(most: Option<u32>) -> Self {
        Self {
            most,
            in_a_row: 0,
            pauses: Pauses::new(FIRST, LONGEST),
        }
    }

    /// A try has succeeded. The next failure counts as the first.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.most);
    }

    /// The pause before another try, or the failure if there is to be no other try.
    pub(crate) fn after(&mut self, failure: Failure) -> Result<(Duration, Failure), Failure> {
        if let Disposition::Stop(_) = failure.disposition {
            return Err(failure);
        }
        if self.most.is_some_and(|most| self.in_a_row >= most) {
            return Err(Failure {
                disposition: Disposition::Stop(Exit::GaveUp),
                ..failure
            });
        }
        self.in_a_row += 1;
        Ok((self.pauses.next_pause(), failure))
    }
}
