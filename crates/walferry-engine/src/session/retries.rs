//! What follows a failure: a pause and another try, or the end.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tracing::warn;

use crate::{
    backoff::Backoff,
    failure::Failure,
    status::{Phase, Status},
};

/// Decides whether a connector tries again after a failure. Counts its tries in a row without progress.
#[derive(Debug)]
pub(crate) struct Retries {
    backoff: Backoff,
    /// How far the connector has got.
    reach: DeliveredReach,
    /// How far it had got at the last failure.
    reached: Reached,
}

/// How far a connector has got over all its sessions: the delivered position, and the number of delivered snapshot
/// chunks. The offset writer writes it.
#[derive(Debug, Clone, Default)]
pub struct DeliveredReach(Arc<Mutex<Reached>>);

type Reached = (u64, u64);

impl DeliveredReach {
    /// Notes that this position and `chunks` more chunks have been delivered.
    pub fn deliver(&self, position: u64, chunks: u64) {
        let mut reached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *reached = (reached.0.max(position), reached.1 + chunks);
    }

    /// The server has another history: positions begin again.
    fn forget_position(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 = 0;
    }

    fn get(&self) -> Reached {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Retries {
    pub(crate) fn new(most: Option<u32>, reach: DeliveredReach) -> Self {
        Self {
            backoff: Backoff::new(most),
            reach,
            reached: Reached::default(),
        }
    }

    /// The server has another history: a position before those of the old one is progress, too.
    pub(crate) fn forget_position(&mut self) {
        self.reach.forget_position();
        self.reached.0 = 0;
    }

    /// Returns the pause before another try, and logs it. Returns the failure if there is to be no other try.
    pub(crate) fn after(&mut self, failure: Failure, status: &Status) -> Result<Duration, Failure> {
        let reached = self.reach.get();
        if reached > self.reached {
            self.backoff.reset();
            self.reached = reached;
        }
        let (pause, failure) = self.backoff.after(failure)?;
        warn!(
            code = failure.code(),
            error.kind = failure.kind.as_str(),
            error = failure.for_log(),
            hint = failure.hint(),
            pause_ms = pause.as_millis() as u64,
            "retrying after a pause"
        );
        status.set_phase(Phase::Waiting(failure));
        Ok(pause)
    }
}

#[cfg(test)]
mod tests {
    use walferry_diagnosis::Kind;

    use super::*;
    use crate::failure::{Disposition, Exit};

    fn failure() -> Failure {
        Failure::retry(Kind::Unreachable, "connection refused")
    }

    #[test]
    fn pauses_double_up_to_half_a_minute_until_something_is_delivered() {
        let reach = DeliveredReach::default();
        let (mut retries, status) = (Retries::new(None, reach.clone()), Status::default());
        let mut next = || retries.after(failure(), &status).map(|pause| pause.as_millis());
        let pauses: Vec<_> = (0..11).map_while(|_| next().ok()).collect();
        assert_eq!(
            pauses,
            [100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]
        );
        reach.deliver(7, 0);
        assert_eq!([next(), next()], [Ok(100), Ok(200)]);
        reach.deliver(0, 1);
        assert_eq!([next(), next()], [Ok(100), Ok(200)]);
    }

    #[test]
    fn on_a_server_with_another_history_an_earlier_position_is_progress() {
        let reach = DeliveredReach::default();
        let (mut retries, status) = (Retries::new(Some(2), reach.clone()), Status::default());
        let pause = |retries: &mut Retries| retries.after(failure(), &status).map(|pause| pause.as_millis()).ok();
        reach.deliver(70, 0);
        assert_eq!([pause(&mut retries), pause(&mut retries)], [Some(100), Some(200)]);
        retries.forget_position();
        assert_eq!(pause(&mut retries), None, "nothing is delivered from it yet");
        reach.deliver(50, 0);
        assert_eq!(pause(&mut retries), Some(100));
    }

    #[test]
    fn so_many_tries_and_no_more() {
        for most in 0..4 {
            let (mut retries, status) = (Retries::new(Some(most), DeliveredReach::default()), Status::default());
            let tries = (0..10)
                .take_while(|_| retries.after(failure(), &status).is_ok())
                .count();
            assert_eq!(tries, most as usize);
            let given_up = retries.after(failure(), &status).map_err(|failure| failure.disposition);
            assert_eq!(given_up, Err(Disposition::Stop(Exit::GaveUp)));
        }
    }

    #[test]
    fn what_a_person_has_to_mend_is_not_tried_again() {
        let stop = Failure::stop(Kind::DiskFull, "no space", "make some");
        assert_eq!(
            Retries::new(None, DeliveredReach::default()).after(stop.clone(), &Status::default()),
            Err(stop)
        );
    }
}
