//! Tries in a row, and the pauses between them.

use std::time::Duration;

use crate::failure::{Disposition, Exit, Failure};

/// Tries in a row, and the pauses between them, which double from a tenth of a second to half a minute.
#[derive(Debug)]
pub(crate) struct Backoff {
    /// `errors.max.retries`; `None` for no end.
    most: Option<u32>,
    in_a_row: u32,
    pause: Duration,
}

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

impl Backoff {
    pub(crate) fn new(most: Option<u32>) -> Self {
        Self {
            most,
            in_a_row: 0,
            pause: FIRST,
        }
    }

    /// It has worked: what fails from now on fails for the first time.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.most);
    }

    /// How long to wait before another try; or the failure, when there shall be none.
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
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST);
        Ok((pause, failure))
    }
}
