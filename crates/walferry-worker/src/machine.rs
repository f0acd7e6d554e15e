//! What follows when somebody pauses, resumes, stops or restarts a connector, and when its run ends.

use walferry_engine::{Failure, TargetState, WantedState};

/// The state of a connector: its target, and its run.
///
/// It is pure: it returns an [`RunAction`] for the caller to carry out. At most one run is under way at any time.
#[derive(Debug, Default)]
pub(crate) struct ConnectorMachine {
    target: WantedState,
    run: Run,
}

#[derive(Debug, Default)]
enum Run {
    /// No run is under way.
    #[default]
    None,
    UnderWay,
    /// The run is to end. Whether another follows depends on the target, and on whether a restart was requested.
    Ending {
        restart: bool,
    },
    /// The run is to end, and none follows, whatever is wanted: the process ends, or another one may run the connector.
    Last,
    /// The last run has failed for good.
    Failed(Failure),
}

/// What the caller has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunAction {
    Nothing,
    /// Start a run with the present target.
    Begin,
    /// Tell the run this target.
    Tell(TargetState),
    /// Show that the connector is stopped. There is no run that could say so.
    ShowStopped,
    /// Tell the run to stop. Another run follows.
    Restart,
}

impl ConnectorMachine {
    pub(crate) const fn target(&self) -> WantedState {
        self.target
    }

    /// The failure, if the connector has failed.
    pub(crate) const fn failure(&self) -> Option<&Failure> {
        match &self.run {
            Run::Failed(failure) => Some(failure),
            _ => None,
        }
    }

    /// Whether a run is under way.
    pub(crate) const fn runs(&self) -> bool {
        matches!(self.run, Run::UnderWay | Run::Ending { .. } | Run::Last)
    }

    /// Sets the target. As in Connect, a connector that has failed stays so until it is restarted or stopped.
    pub(crate) fn want(&mut self, target: WantedState) -> RunAction {
        let before = std::mem::replace(&mut self.target, target);
        match (&mut self.run, target) {
            (Run::None, WantedState::Stopped) if before == WantedState::Stopped => RunAction::Nothing,
            (Run::None | Run::Failed(_), WantedState::Stopped) => {
                self.run = Run::None;
                RunAction::ShowStopped
            }
            (Run::None, _) => self.begin(),
            (Run::UnderWay, WantedState::Stopped) => {
                self.run = Run::Ending { restart: false };
                RunAction::Tell(target.into())
            }
            (Run::UnderWay, _) if before != target => RunAction::Tell(target.into()),
            // A stop overrides a restart that was requested before.
            (Run::Ending { restart }, WantedState::Stopped) => {
                *restart = false;
                RunAction::Nothing
            }
            _ => RunAction::Nothing,
        }
    }

    /// Restarts the connector. A connector whose target is to be stopped stays so.
    pub(crate) fn restart(&mut self) -> RunAction {
        if self.target == WantedState::Stopped {
            return RunAction::Nothing;
        }
        match &mut self.run {
            Run::None | Run::Failed(_) => self.begin(),
            Run::UnderWay => {
                self.run = Run::Ending { restart: true };
                RunAction::Restart
            }
            Run::Ending { restart } => {
                *restart = true;
                RunAction::Nothing
            }
            Run::Last => RunAction::Nothing,
        }
    }

    /// Ends the run, if one is under way, and lets none follow it. With `at_once`, another process may run the connector now.
    pub(crate) fn close(&mut self, at_once: bool) -> RunAction {
        if !self.runs() {
            return RunAction::Nothing;
        }
        self.run = Run::Last;
        RunAction::Tell(match at_once {
            true => TargetState::Abandoned,
            false => TargetState::Stopped,
        })
    }

    /// Changes what is wanted, and does nothing about it: all runs are ending.
    pub(crate) const fn want_later(&mut self, wanted: WantedState) {
        self.target = wanted;
    }

    /// The run has ended, in order or because it has failed for good.
    pub(crate) fn ended(&mut self, result: Result<(), Failure>) -> RunAction {
        let restart = matches!(self.run, Run::Ending { restart: true }) && self.target != WantedState::Stopped;
        let wanted_again = matches!(self.run, Run::Ending { .. }) && self.target != WantedState::Stopped;
        match result {
            Err(failure) if !restart => {
                self.run = Run::Failed(failure);
                RunAction::Nothing
            }
            _ if wanted_again => self.begin(),
            _ => {
                self.run = Run::None;
                RunAction::Nothing
            }
        }
    }

    fn begin(&mut self) -> RunAction {
        self.run = Run::UnderWay;
        RunAction::Begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WantedState::{Paused, Running, Stopped};

    /// What happens to a connector.
    #[derive(Debug, Clone)]
    enum Event {
        Want(WantedState),
        Restart,
        End,
        Fail,
    }
    use Event::{End, Fail, Restart, Want};

    fn lost() -> Failure {
        Failure::retry(walferry_diagnosis::Kind::SlotLost, "lost")
    }

    fn apply(machine: &mut ConnectorMachine, event: &Event) -> RunAction {
        match event {
            Want(target) => machine.want(*target),
            Restart => machine.restart(),
            End => machine.ended(Ok(())),
            Fail => machine.ended(Err(lost())),
        }
    }

    #[test]
    fn a_connector_goes_through_connects_states() {
        use RunAction::{Begin, Nothing, ShowStopped, Tell};
        let cases: &[(&str, &[(Event, RunAction)])] = &[
            (
                "paused and resumed",
                &[
                    (Want(Running), Begin),
                    (Want(Paused), Tell(TargetState::Paused)),
                    (Want(Paused), Nothing),
                    (Want(Running), Tell(TargetState::Running)),
                ],
            ),
            (
                "stopped and resumed",
                &[
                    (Want(Running), Begin),
                    (Want(Stopped), Tell(TargetState::Stopped)),
                    (End, Nothing),
                    (Want(Stopped), Nothing),
                    (Want(Running), Begin),
                ],
            ),
            (
                "resumed before its stop was over",
                &[
                    (Want(Running), Begin),
                    (Want(Stopped), Tell(TargetState::Stopped)),
                    (Want(Running), Nothing),
                    (End, Begin),
                ],
            ),
            (
                "restarted",
                &[(Want(Running), Begin), (Restart, RunAction::Restart), (End, Begin)],
            ),
            (
                "restarted, though its end fails",
                &[(Want(Running), Begin), (Restart, RunAction::Restart), (Fail, Begin)],
            ),
            (
                "restarted, then stopped",
                &[
                    (Want(Running), Begin),
                    (Restart, RunAction::Restart),
                    (Want(Stopped), Nothing),
                    (End, Nothing),
                    (Restart, Nothing),
                ],
            ),
            (
                "failed: neither pause nor resume begins it again",
                &[
                    (Want(Running), Begin),
                    (Fail, Nothing),
                    (Want(Paused), Nothing),
                    (Want(Running), Nothing),
                    (Restart, Begin),
                ],
            ),
            (
                "failed and stopped",
                &[
                    (Want(Running), Begin),
                    (Fail, Nothing),
                    (Want(Stopped), ShowStopped),
                    (Want(Running), Begin),
                ],
            ),
            (
                "paused before it ran",
                &[(Want(Paused), Begin), (Want(Running), Tell(TargetState::Running))],
            ),
        ];
        for (name, steps) in cases {
            let mut machine = ConnectorMachine::default();
            for (number, (event, expected)) in steps.iter().enumerate() {
                assert_eq!(apply(&mut machine, event), *expected, "{name}, step {number}");
            }
        }
    }

    /// Whatever happens, in any order: there is never a second run beside the first, and in the end the target is
    /// reached.
    #[test]
    fn no_order_of_events_makes_two_runs_or_loses_a_wish() {
        let events = [Want(Running), Want(Paused), Want(Stopped), Restart, End, Fail];
        let length = 6_u32;
        for number in 0..events.len().pow(length) {
            let (mut machine, mut runs, mut run_target) = (ConnectorMachine::default(), false, TargetState::Running);
            let mut remaining = number;
            for _ in 0..length {
                let event = &events[remaining % events.len()];
                remaining /= events.len();
                if matches!(event, End | Fail) {
                    if !runs {
                        continue;
                    }
                    runs = false;
                }
                match apply(&mut machine, event) {
                    RunAction::Begin => {
                        assert!(!runs, "two runs at once: {number}");
                        (runs, run_target) = (true, machine.target().into());
                    }
                    RunAction::Tell(target) => run_target = target,
                    RunAction::Restart => run_target = TargetState::Stopped,
                    RunAction::ShowStopped | RunAction::Nothing => {}
                }
                assert_eq!(runs, machine.runs(), "{number}");
            }
            // Every run that was told to stop ends.
            if runs && run_target == TargetState::Stopped && apply(&mut machine, &End) == RunAction::Begin {
                run_target = machine.target().into();
            }
            let is_stopped = machine.target() == Stopped;
            assert!(!is_stopped || !machine.runs(), "it runs and is stopped: {number}");
            if machine.runs() {
                assert_eq!(run_target, machine.target().into(), "{number}");
            }
        }
    }

    #[test]
    fn nothing_follows_the_last_run_whatever_is_wanted() {
        for at_once in [false, true] {
            let target = match at_once {
                true => TargetState::Abandoned,
                false => TargetState::Stopped,
            };
            for before in [
                &[Want(Running)][..],
                &[Want(Running), Want(Stopped)],
                &[Want(Running), Restart],
            ] {
                for end in [End, Fail] {
                    let mut machine = ConnectorMachine::default();
                    for event in before {
                        apply(&mut machine, event);
                    }
                    let wanted = machine.target();
                    assert_eq!(machine.close(at_once), RunAction::Tell(target));
                    assert_eq!(machine.target(), wanted, "what people want stays");
                    for event in [Restart, Want(Stopped), Want(Running), Restart] {
                        assert_eq!(apply(&mut machine, &event), RunAction::Nothing, "{before:?}");
                    }
                    assert_eq!(
                        machine.close(true),
                        RunAction::Tell(TargetState::Abandoned),
                        "a stop may be cut short"
                    );
                    assert_eq!(apply(&mut machine, &end), RunAction::Nothing, "{before:?}");
                    assert!(!machine.runs());
                    assert_eq!(machine.close(at_once), RunAction::Nothing);
                }
            }
        }
    }
}
