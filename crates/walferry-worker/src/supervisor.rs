//! The connectors of a process. Each is started, paused, resumed, stopped and restarted on its own, while the others
//! run.
//!
//! Each run of a connector has its own thread. If it blocks there, it blocks nobody else. If it panics, only this
//! connector has failed.

use std::{
    collections::BTreeSet,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use tokio::sync::watch;
use tracing::{error, error_span};
use walferry_admin::connectors::{Connectors, UnknownConnector};
use walferry_engine::{
    Disposition, Exit, Failure, Kind, TargetState, WantedState,
    status::{Phase, Status},
};
use walferry_telemetry::RUN;

use crate::machine::{ConnectorMachine, RunAction};

/// Stack of a connector's thread: twice as much as a main thread has. A run is one large future. A build without optimization
/// has needed more than 8 MiB for a snapshot within its stream, and a stack overflow ends the whole process. Only used stack
/// takes memory.
const STACK_BYTES: usize = 16 * 1024 * 1024;

/// One run of a connector, from its start until its target is [`TargetState::Stopped`] or it fails for good. It has its
/// thread to itself, reports its end to its status and the log, and may be called again for another run. If its target is
/// [`TargetState::Abandoned`], it ends without delivering, storing or confirming anything more.
pub type RunBody = Arc<dyn Fn(watch::Receiver<TargetState>) -> Result<(), Failure> + Send + Sync>;

/// The same as a local task of this thread, in a simulation.
#[cfg(test)]
pub(crate) type TaskBody = Arc<
    dyn Fn(watch::Receiver<TargetState>) -> std::pin::Pin<Box<dyn Future<Output = Result<(), Failure>>>> + Send + Sync,
>;

/// Starts, controls and ends connectors. Clones share their connectors.
#[derive(Clone, Default)]
pub struct Supervisor(Arc<Inner>);

#[derive(Default)]
struct Inner {
    connectors: Mutex<Vec<Supervised>>,
    /// All connectors are ending for good, so no run starts any more. Read and set under the lock of `connectors`.
    closed: AtomicBool,
    /// Number of runs that have ended. A change wakes those who wait for an end.
    ends: watch::Sender<u64>,
    /// What runs in place of connectors' bodies, in a simulation.
    #[cfg(test)]
    tasks: Mutex<std::collections::BTreeMap<String, TaskBody>>,
}

struct Supervised {
    status: Arc<Status>,
    body: RunBody,
    machine: ConnectorMachine,
    /// The sender of the run's target.
    target: watch::Sender<TargetState>,
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.statuses();
        f.debug_list().entries(names.iter().map(|status| &status.name)).finish()
    }
}

impl Supervisor {
    /// Adds a connector and starts its first run.
    pub fn add(&self, status: Arc<Status>, body: RunBody) {
        self.add_as(status, body, WantedState::Running);
    }

    /// Adds a connector with this target. If the target is to be stopped, no run starts. After
    /// [`stop_all`](Self::stop_all) or [`abandon_all`](Self::abandon_all), none starts either.
    pub fn add_as(&self, status: Arc<Status>, body: RunBody, wanted: WantedState) {
        let name = status.name.clone();
        self.lock().push(Supervised {
            status,
            body,
            machine: ConnectorMachine::default(),
            target: watch::Sender::new(TargetState::Running),
        });
        let _ = self.want(&name, wanted);
    }

    /// Gives a connector another status and another body, because its configuration has changed. The new status is shown from the call
    /// on. The present run ends in order, and the next run is one of the new body. A connector that is to be stopped stays stopped. One
    /// that has failed starts again.
    ///
    /// # Errors
    /// There is no connector of this name.
    pub fn replace(&self, status: Arc<Status>, body: RunBody) -> Result<(), UnknownConnector> {
        let mut connectors = self.lock();
        let named = |connector: &&mut Supervised| connector.status.name == status.name;
        let Some(connector) = connectors.iter_mut().find(named) else {
            return Err(UnknownConnector(status.name.clone()));
        };
        (connector.status, connector.body) = (status, body);
        if connector.machine.target() == WantedState::Stopped {
            connector.status.has_ended(&Ok(()));
            return Ok(());
        }
        // The new status shows a connector that begins, also while the old run ends.
        connector.status.begins(connector.machine.target().into());
        if self.is_closed() {
            return Ok(());
        }
        match connector.machine.restart() {
            RunAction::Restart => drop(connector.target.send_replace(TargetState::Stopped)),
            action => self.act(connector, action),
        }
        Ok(())
    }

    /// Whether a run of the connector is under way, including one that is ending.
    pub fn runs(&self, name: &str) -> bool {
        let connectors = self.lock();
        let mut named = connectors.iter().filter(|connector| connector.status.name == name);
        named.any(|connector| connector.machine.runs())
    }

    /// Stops a connector, waits for its end, and forgets it.
    ///
    /// # Errors
    /// There is no connector of this name.
    pub async fn remove(&self, name: &str) -> Result<(), UnknownConnector> {
        self.stop(name)?;
        let is_gone = |connectors: &[Supervised]| {
            let mut named = connectors.iter().filter(|connector| connector.status.name == name);
            named.all(|connector| !connector.machine.runs()).then_some(())
        };
        self.wait(is_gone).await;
        self.lock().retain(|connector| connector.status.name != name);
        // Those who wait for it look again.
        self.0.ends.send_modify(|ends| *ends += 1);
        Ok(())
    }

    /// Ends the run of a connector at once, as [`abandon_all`](Self::abandon_all) does for all. None follows until it is removed and added again.
    ///
    /// # Errors
    /// There is no connector of this name.
    pub fn abandon(&self, name: &str) -> Result<(), UnknownConnector> {
        self.change(name, |machine| machine.close(true))
    }

    /// Waits until all connectors with such names have been removed.
    pub async fn gone(&self, is_one: impl Fn(&str) -> bool) {
        self.wait(|connectors| {
            let mut named = connectors.iter().filter(|connector| is_one(&connector.status.name));
            named.next().is_none().then_some(())
        })
        .await;
    }

    /// Waits until a connector has failed for good, and returns the failure.
    pub async fn failure(&self, name: &str) -> Failure {
        self.wait(|connectors| {
            let mut named = connectors.iter().filter(|connector| connector.status.name == name);
            named.find_map(|connector| connector.machine.failure().cloned())
        })
        .await
    }

    /// Stops all connectors, and waits for their ends. Returns the first failure among the runs that this ended. From
    /// the call on, no run starts, whatever a connector's target is.
    ///
    /// # Errors
    /// A connector could not end in order.
    pub async fn stop_all(&self) -> Result<(), Failure> {
        let mut ending = BTreeSet::new();
        {
            let mut connectors = self.lock();
            self.0.closed.store(true, Relaxed);
            // A connector that has failed before stays failed.
            for connector in connectors.iter_mut().filter(|connector| connector.machine.runs()) {
                ending.insert(connector.status.name.clone());
                let action = connector.machine.close(false);
                self.act(connector, action);
            }
        }
        self.wait(|connectors| {
            connectors
                .iter()
                .all(|connector| !connector.machine.runs())
                .then_some(())
        })
        .await;
        let connectors = self.lock();
        let mut ended = connectors
            .iter()
            .filter(|connector| ending.contains(&connector.status.name));
        ended
            .find_map(|connector| connector.machine.failure().cloned())
            .map_or(Ok(()), Err)
    }

    /// Ends all runs at once, and waits for their ends. This process has lost the right to run the connectors, and
    /// another one may have it already. Nothing more is delivered, stored or confirmed. The other process sends again
    /// what was under way. From the call on, no run starts, whatever a connector's target is.
    pub async fn abandon_all(&self) {
        {
            let mut connectors = self.lock();
            self.0.closed.store(true, Relaxed);
            for connector in connectors.iter_mut() {
                let action = connector.machine.close(true);
                self.act(connector, action);
            }
        }
        self.wait(|connectors| {
            connectors
                .iter()
                .all(|connector| !connector.machine.runs())
                .then_some(())
        })
        .await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Supervised>> {
        self.0.connectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `look` finds something in the connectors.
    async fn wait<T>(&self, look: impl Fn(&[Supervised]) -> Option<T>) -> T {
        let mut ends = self.0.ends.subscribe();
        loop {
            ends.borrow_and_update();
            if let Some(found) = look(&self.lock()) {
                return found;
            }
            // We hold the sender, so this never fails.
            let _ = ends.changed().await;
        }
    }

    /// Changes the state of a connector, and carries out the resulting action.
    fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut ConnectorMachine) -> RunAction,
    ) -> Result<(), UnknownConnector> {
        let mut connectors = self.lock();
        let Some(connector) = connectors.iter_mut().find(|connector| connector.status.name == name) else {
            return Err(UnknownConnector(name.to_owned()));
        };
        let action = change(&mut connector.machine);
        self.act(connector, action);
        Ok(())
    }

    /// The same for what somebody wants. Once all connectors are ending, only a stop counts.
    fn want(&self, name: &str, wanted: WantedState) -> Result<(), UnknownConnector> {
        self.change(name, |machine| {
            if self.is_closed() && wanted != WantedState::Stopped {
                machine.want_later(wanted);
                return RunAction::Nothing;
            }
            machine.want(wanted)
        })
    }

    /// From now on, runs of this connector are local tasks.
    #[cfg(test)]
    pub(crate) fn run_as_task(&self, name: &str, task: TaskBody) {
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.insert(name.to_owned(), task);
    }

    #[cfg(test)]
    fn task_of(&self, name: &str) -> Option<TaskBody> {
        let tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.get(name).cloned()
    }

    /// To be asked under the lock of the connectors.
    fn is_closed(&self) -> bool {
        self.0.closed.load(Relaxed)
    }

    fn act(&self, connector: &mut Supervised, action: RunAction) {
        match action {
            RunAction::Nothing => {}
            RunAction::Begin => self.begin(connector),
            RunAction::Tell(target) => drop(connector.target.send_replace(target)),
            RunAction::ShowStopped => connector.status.has_ended(&Ok(())),
            RunAction::Restart => {
                connector.status.restarts();
                connector.target.send_replace(TargetState::Stopped);
            }
        }
    }

    /// Starts a run on its own thread.
    fn begin(&self, connector: &mut Supervised) {
        connector.target = watch::Sender::new(connector.machine.target().into());
        connector.status.begins(connector.machine.target().into());
        let (supervisor, target) = (self.clone(), connector.target.subscribe());
        let (status, body) = (connector.status.clone(), connector.body.clone());
        #[cfg(test)]
        if let Some(task) = self.task_of(&status.name) {
            tokio::task::spawn_local(async move {
                let result = task(target).await;
                supervisor.on_end(&status, result);
                supervisor.0.ends.send_modify(|ends| *ends += 1);
            });
            return;
        }
        let run = move || {
            // Everything logged below this names the connector, also on threads that are started there.
            let _span = error_span!(RUN, connector = status.name).entered();
            let result = catch_unwind(AssertUnwindSafe(|| body(target))).unwrap_or_else(|_| {
                let failure = panicked();
                error!(code = failure.code(), error.kind = failure.kind.as_str(), error = %failure, hint = failure.hint(), "the connector has failed");
                Err(failure)
            });
            drop(body);
            supervisor.on_end(&status, result);
            supervisor.0.ends.send_modify(|ends| *ends += 1);
        };
        // Linux cuts thread names to 15 bytes.
        let thread = thread::Builder::new().name("connector".into()).stack_size(STACK_BYTES);
        let spawned = thread.spawn(run);
        if let Err(error) = spawned {
            let what = format!("the connector's thread could not be started: {error}");
            let hint = "raise the limit of threads (`ulimit -u`, or the container's limit of processes)";
            let failure = Failure::stop(Kind::NoThread, what, hint);
            let result = Err(failure);
            connector.status.has_ended(&result);
            let _ = connector.machine.ended(result);
            self.0.ends.send_modify(|ends| *ends += 1);
        }
    }
}

impl Supervisor {
    /// The run that had this status has ended.
    fn on_end(&self, status: &Arc<Status>, result: Result<(), Failure>) {
        let mut connectors = self.lock();
        let Some(connector) = connectors
            .iter_mut()
            .find(|connector| connector.status.name == status.name)
        else {
            return;
        };
        let action = connector.machine.ended(result.clone());
        match (&result, action) {
            // Another run follows. The failure counts nevertheless.
            (Err(failure), RunAction::Begin) => status.set_phase(Phase::Failed(failure.clone())),
            (Ok(()), RunAction::Begin) => {}
            // The connector has another status than the run if its configuration was changed meanwhile.
            _ => connector.status.has_ended(&result),
        }
        self.act(connector, action);
    }
}

impl Connectors for Supervisor {
    fn statuses(&self) -> Vec<Arc<Status>> {
        self.lock().iter().map(|connector| connector.status.clone()).collect()
    }

    fn pause(&self, name: &str) -> Result<(), UnknownConnector> {
        self.want(name, WantedState::Paused)
    }

    fn resume(&self, name: &str) -> Result<(), UnknownConnector> {
        self.want(name, WantedState::Running)
    }

    fn stop(&self, name: &str) -> Result<(), UnknownConnector> {
        self.want(name, WantedState::Stopped)
    }

    fn restart(&self, name: &str, only_failed: bool) -> Result<(), UnknownConnector> {
        self.change(name, |machine| match machine.failure() {
            _ if self.is_closed() => RunAction::Nothing,
            None if only_failed => RunAction::Nothing,
            _ => machine.restart(),
        })
    }
}

fn panicked() -> Failure {
    Failure::new(
        Disposition::Stop(Exit::GaveUp),
        Kind::Panic,
        "the connector's thread has panicked",
        Some("this is a bug: please report it with the last lines of the log".into()),
    )
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering::Relaxed},
        time::Duration,
    };

    use super::*;

    /// A connector that counts its runs, works until it is told to stop, and fails or panics on request.
    #[derive(Clone, Default)]
    struct Work {
        runs: Arc<AtomicU64>,
        now: Arc<AtomicU64>,
        fails: Arc<Mutex<Option<&'static str>>>,
        status: Arc<Status>,
    }

    impl Work {
        fn new(name: &str) -> Self {
            Self {
                status: Arc::new(Status::new(name, "s")),
                ..Self::default()
            }
        }

        fn body(&self) -> RunBody {
            let work = self.clone();
            Arc::new(move |mut target| {
                work.runs.fetch_add(1, Relaxed);
                assert_eq!(work.now.fetch_add(1, Relaxed), 0, "two runs at once");
                let ended = loop {
                    let wanted = *target.borrow_and_update();
                    match wanted {
                        TargetState::Stopped | TargetState::Abandoned => break Ok(()),
                        TargetState::Paused => work.status.set_phase(Phase::Paused),
                        TargetState::Running => work.status.set_phase(Phase::Streaming),
                    }
                    let order = work.fails.lock().unwrap().take();
                    match order {
                        Some("panic") => {
                            work.now.fetch_sub(1, Relaxed);
                            panic!("as it was told to");
                        }
                        Some(what) => {
                            let failure = Failure::stop(Kind::SlotLost, what, "mend it");
                            break Err(failure);
                        }
                        None => thread::sleep(Duration::from_millis(1)),
                    }
                };
                work.now.fetch_sub(1, Relaxed);
                ended
            })
        }

        /// Waits for a phase, for ever if need be.
        fn comes_to(&self, is_it: impl Fn(&Phase) -> bool) {
            while !is_it(&self.status.phase()) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }

    fn two() -> (Supervisor, Work, Work) {
        let (supervisor, a, b) = (Supervisor::default(), Work::new("a"), Work::new("b"));
        for work in [&a, &b] {
            supervisor.add(work.status.clone(), work.body());
            work.comes_to(|phase| *phase == Phase::Streaming);
        }
        (supervisor, a, b)
    }

    #[tokio::test]
    async fn one_is_paused_resumed_stopped_and_restarted_while_the_other_runs() {
        let (supervisor, a, b) = two();
        supervisor.pause("a").unwrap();
        a.comes_to(|phase| *phase == Phase::Paused);
        supervisor.resume("a").unwrap();
        a.comes_to(|phase| *phase == Phase::Streaming);
        assert_eq!(a.runs.load(Relaxed), 1, "a pause ends no run");
        supervisor.stop("a").unwrap();
        a.comes_to(|phase| *phase == Phase::Stopped);
        supervisor.restart("a", false).unwrap();
        assert_eq!(
            a.status.phase(),
            Phase::Stopped,
            "a restart begins no stopped connector"
        );
        supervisor.resume("a").unwrap();
        a.comes_to(|phase| *phase == Phase::Streaming);
        supervisor.restart("a", false).unwrap();
        while a.runs.load(Relaxed) < 3 {
            thread::sleep(Duration::from_millis(1));
        }
        supervisor.restart("a", true).unwrap();
        assert_eq!(supervisor.stop_all().await, Ok(()));
        assert_eq!((a.runs.load(Relaxed), b.runs.load(Relaxed)), (3, 1));
        assert_eq!(supervisor.pause("c"), Err(UnknownConnector("c".into())));
    }

    #[tokio::test]
    async fn one_that_fails_or_panics_fails_alone_and_begins_again_when_it_is_told_to() {
        for how in ["gone", "panic"] {
            let (supervisor, a, b) = two();
            *a.fails.lock().unwrap() = Some(how);
            let failure = supervisor.failure("a").await;
            assert_eq!(a.status.phase(), Phase::Failed(failure));
            supervisor.resume("a").unwrap();
            assert!(matches!(a.status.phase(), Phase::Failed(_)), "as in Connect");
            supervisor.restart("a", true).unwrap();
            a.comes_to(|phase| *phase == Phase::Streaming);
            assert_eq!(b.status.phase(), Phase::Streaming);
            assert_eq!(supervisor.stop_all().await, Ok(()));
            assert_eq!((a.runs.load(Relaxed), b.runs.load(Relaxed)), (2, 1));
        }
    }

    #[tokio::test]
    async fn a_run_has_as_much_stack_as_on_the_main_thread() {
        fn use_stack(bytes: usize, bottom: usize) {
            let frame = std::hint::black_box([0u8; 4096]);
            let used = bottom.abs_diff(std::ptr::from_ref(&frame).addr());
            if used < bytes {
                use_stack(bytes, bottom);
            }
            std::hint::black_box(frame);
        }
        let supervisor = Supervisor::default();
        // A thread with a smaller stack would end the whole process.
        let body: RunBody = Arc::new(|_| {
            let bottom = 0u8;
            use_stack(STACK_BYTES - 256 * 1024, std::ptr::from_ref(&bottom).addr());
            Ok(())
        });
        supervisor.add(Arc::new(Status::new("deep", "s")), body);
        assert_eq!(supervisor.stop_all().await, Ok(()));
    }

    /// A connector whose run, once it is told to end, ends when the test says so.
    fn lingering(name: &str) -> (Arc<Status>, RunBody, Arc<AtomicU64>, watch::Sender<bool>) {
        let (runs, may_end) = (Arc::new(AtomicU64::new(0)), watch::Sender::new(false));
        let (counts, ends) = (runs.clone(), may_end.subscribe());
        let body: RunBody = Arc::new(move |mut target| {
            counts.fetch_add(1, Relaxed);
            while !target.borrow_and_update().ends_run() {
                thread::sleep(Duration::from_millis(1));
            }
            while !*ends.borrow() {
                thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        (Arc::new(Status::new(name, "s")), body, runs, may_end)
    }

    #[tokio::test]
    async fn no_run_begins_once_all_are_ending_whatever_is_wanted() {
        for abandoned in [false, true] {
            let supervisor = Supervisor::default();
            let (status, body, runs, may_end) = lingering("a");
            supervisor.add(status, body);
            let (late_status, late_body, late_runs, _) = lingering("late");
            let ending = async {
                match abandoned {
                    true => supervisor.abandon_all().await,
                    false => assert_eq!(supervisor.stop_all().await, Ok(())),
                }
            };
            // Requests while the run is ending: of a connector's new configuration, and of users.
            let meanwhile = async {
                tokio::task::yield_now().await;
                supervisor.resume("a").unwrap();
                supervisor.restart("a", false).unwrap();
                supervisor.pause("a").unwrap();
                supervisor.resume("a").unwrap();
                supervisor.add_as(late_status, late_body, WantedState::Running);
                supervisor.restart("late", false).unwrap();
                supervisor.resume("late").unwrap();
                may_end.send_replace(true);
            };
            let ended = tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(ending, meanwhile) }).await;
            assert!(ended.is_ok(), "abandoned: {abandoned}: a run begins that nobody ends");
            assert!(!supervisor.runs("a") && !supervisor.runs("late"));
            assert_eq!((runs.load(Relaxed), late_runs.load(Relaxed)), (1, 0));
        }
    }

    #[tokio::test]
    async fn one_that_is_stopped_while_an_older_configuration_ends_is_shown_as_stopped() {
        let supervisor = Supervisor::default();
        let (old, body, runs, may_end) = lingering("a");
        supervisor.add(old, body);
        while runs.load(Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        let new = Work::new("a");
        supervisor.replace(new.status.clone(), new.body()).unwrap();
        supervisor.stop("a").unwrap();
        may_end.send_replace(true);
        new.comes_to(|phase| *phase == Phase::Stopped);
        assert_eq!(new.runs.load(Relaxed), 0);
    }

    #[tokio::test]
    async fn a_connector_with_a_new_configuration_is_shown_as_starting_until_it_runs() {
        let supervisor = Supervisor::default();
        let (old, body, runs, may_end) = lingering("a");
        supervisor.add(old.clone(), body);
        while runs.load(Relaxed) == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        old.set_phase(Phase::Streaming);
        let new = Work::new("a");
        supervisor.replace(new.status.clone(), new.body()).unwrap();
        let statuses = supervisor.statuses();
        assert!(statuses.len() == 1 && Arc::ptr_eq(&statuses[0], &new.status));
        assert_eq!(new.status.phase(), Phase::Starting);
        // The old run delivers what it has read. Only then the new one begins.
        assert_eq!((runs.load(Relaxed), new.runs.load(Relaxed)), (1, 0));
        may_end.send_replace(true);
        new.comes_to(|phase| *phase == Phase::Streaming);
        assert_eq!((runs.load(Relaxed), new.runs.load(Relaxed)), (1, 1));

        // One that has failed starts again with its new configuration.
        *new.fails.lock().unwrap() = Some("gone");
        supervisor.failure("a").await;
        let newer = Work::new("a");
        supervisor.replace(newer.status.clone(), newer.body()).unwrap();
        newer.comes_to(|phase| *phase == Phase::Streaming);

        // One that is stopped stays so.
        supervisor.stop("a").unwrap();
        newer.comes_to(|phase| *phase == Phase::Stopped);
        let newest = Work::new("a");
        supervisor.replace(newest.status.clone(), newest.body()).unwrap();
        assert_eq!(newest.status.phase(), Phase::Stopped);
        assert_eq!(supervisor.stop_all().await, Ok(()));
        assert_eq!((newer.runs.load(Relaxed), newest.runs.load(Relaxed)), (1, 0));
        let unknown = Work::new("b");
        assert_eq!(
            supervisor.replace(unknown.status.clone(), unknown.body()),
            Err(UnknownConnector("b".into()))
        );
    }

    #[tokio::test]
    async fn one_is_removed_while_the_other_runs() {
        let (supervisor, a, b) = two();
        supervisor.remove("a").await.unwrap();
        assert_eq!(a.status.phase(), Phase::Stopped);
        assert_eq!(b.status.phase(), Phase::Streaming);
        assert_eq!(supervisor.statuses().len(), 1);
        assert_eq!(supervisor.stop_all().await, Ok(()));
    }
}
