//! One run of a connector, from its configuration to its end, on the thread that the supervisor gives it.
//!
//! [`RunSettings::body`] makes what the supervisor calls for each run. A run has three parts, in this order:
//!
//! 1. *Read the configuration* ([`RunSettings::loaded`]). References such as `${file:…}` are resolved again for each run, so a new password
//!    needs no new configuration. A config provider may hang, so this has a thread of its own, which is left alone if the run is to end.
//! 2. *Put the connector together* (`assemble.rs`). Nothing is connected yet, but the connector's folder is locked: a second process fails here.
//! 3. *Run it*, with tasks beside it that live as long as the run: they watch Kafka, send the heartbeat's query, fetch `xmin`, read signals from a
//!    file or a topic, and look after outbox tables. If one of them panics, the run panics too: a connector that looks alive and has
//!    stopped half of its work is worse than one that has failed.
//!
//! The run may be told to end in each of them, so each waits for its target as well. A login that worked before and is refused now is tried
//! again for five minutes, with the configuration read anew: a password is often changed on the server first.
//!
//! [`BackgroundTasks`] are others: they belong to the connector, not to a run, and go on while it is stopped or has failed.

use std::{
    any::Any,
    env,
    future::{Future, pending},
    panic::resume_unwind,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use walferry_diagnosis::Kind;

use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::{
    runtime::{self, Runtime},
    sync::{oneshot, watch},
    task::{JoinError, JoinHandle, JoinSet, LocalSet},
    time::sleep,
};
use tracing::{Instrument, error_span, info, warn};
use walferry_engine::{
    DeputyRole, Failure, Pauses, TargetState,
    status::{Phase, Status},
};
use walferry_telemetry::BESIDE;

use crate::{
    assemble,
    beside::{self, SlotLooks, login::Login},
    loaded::Loaded,
    room::{Place, Room},
    sinks,
    stores::Offsets,
    supervisor::RunBody,
    vital::{POOL, spawn_vital},
};

/// When the program reports failures of a connector.
#[derive(Clone, Copy)]
pub enum FailureOutput {
    /// As the last lines before the process exits, if this is its only connector. Otherwise as log lines, because the process continues.
    LastWords(ReportFailure),
    /// As log lines: the process continues.
    LogLine(ReportFailure),
    /// Never: the caller does.
    Never,
}

/// Reports that a connector has failed: a headline, the failure, and whether the process exits with it.
pub(crate) type ReportFailure = fn(&str, &Failure, bool);

/// A runtime for one thread.
pub fn runtime() -> Result<Runtime, Failure> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .thread_name(POOL)
        .build();
    runtime.map_err(|error| {
        let what = format!("the runtime does not start: {error}");
        Failure::stop(Kind::NoRuntime, what, "raise the limit of open files (`ulimit -n`)")
    })
}

/// A core dump would hold passwords, keys and rows. Nobody is kept from them who sets this variable to `allow`.
const CORE_DUMPS: &str = "WALFERRY_CORE_DUMPS";

/// Makes the system write no core dump of this process, whatever its limits are and whoever gets core dumps.
pub fn forbid_core_dumps() {
    if env::var_os(CORE_DUMPS).is_some_and(|value| value == "allow") {
        return;
    }
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // If a call fails, the other one remains.
    setrlimit(Resource::Core, none).ok();
    #[cfg(target_os = "linux")]
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).ok();
}

/// The status of a connector, whether its configuration can be read or not. Without one, `prefix` is taken for its topic prefix. Signals that
/// wait in the status of an older configuration go on waiting in this one.
pub fn status(name: &str, loaded: Option<&Loaded>, prefix: &str, older: Option<&Status>) -> Arc<Status> {
    let connector = loaded.map(|loaded| &loaded.connector);
    let prefix = connector.map_or_else(|| prefix.to_owned(), |connector| connector.topics.prefix.to_string());
    let mut status = Status::new(name, prefix);
    status.shows_keys = connector.is_some_and(|connector| connector.errors.show_keys);
    status.relay = connector.and_then(|connector| connector.relay.as_ref().map(|_| Arc::default()));
    if let Some(older) = older {
        status.signals = older.signals.clone();
    }
    Arc::new(status)
}

/// The tasks beside a connector, whether it runs or not. They end when this is dropped.
#[derive(Default)]
pub struct BackgroundTasks(Vec<JoinHandle<()>>);

impl BackgroundTasks {
    /// Starts them. It must be called within a set of local tasks.
    pub fn start(loaded: Loaded, slots: SlotLooks, status: &Arc<Status>) -> Self {
        if loaded.connector.relay.is_some() {
            // It has one table, which it names itself, and no slot.
            return Self::default();
        }
        let span = error_span!(BESIDE, connector = status.name);
        let tables = beside::tell_tables(loaded.clone(), status.clone()).instrument(span.clone());
        // The slot's lag is shown even while the connector does not run.
        let slots = beside::watch_slots(loaded, slots, status.clone()).instrument(span);
        Self(vec![spawn_vital(tables), spawn_vital(slots)])
    }

    pub fn add(&mut self, task: impl Future<Output = ()> + 'static) {
        self.0.push(spawn_vital(task));
    }
}

impl Drop for BackgroundTasks {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

/// How long a login that worked before may be refused. A password is often changed on the server first, and where the connector finds it
/// a little later.
const REFUSED_FOR: Duration = Duration::from_secs(300);

/// Logins that were refused in a row, after one that was not.
#[derive(Debug)]
struct PasswordRefusals {
    since: Option<Instant>,
    pauses: Pauses,
}

impl Default for PasswordRefusals {
    fn default() -> Self {
        Self {
            since: None,
            pauses: Pauses::new(Duration::from_millis(100), Duration::from_secs(30)),
        }
    }
}

impl PasswordRefusals {
    /// The pause before another try. `None` if there is to be none: the failure is another one, no login has ever worked, or too much time has
    /// passed. `is_new` says whether the connector was connected between the last refusal and this one.
    fn pause(&mut self, failure: &Failure, was_connected: bool, is_new: bool, now: Instant) -> Option<Duration> {
        if is_new {
            *self = Self::default();
        }
        let since = *self.since.get_or_insert(now);
        let is_in_time = now.duration_since(since) < REFUSED_FOR;
        (was_connected && is_in_time && beside::login::is_login_refused(failure)).then(|| self.pauses.next_pause())
    }
}

/// What a run of a connector does.
enum PreparedConnector {
    Stream(Box<assemble::Assembled>),
    Relay(Box<assemble::AssembledRelay>),
}

/// What each run of a connector needs.
pub struct RunSettings {
    pub load: Arc<dyn Fn() -> Result<Loaded, Failure> + Send + Sync>,
    /// Where the offset is stored.
    pub offsets: Offsets,
    /// How many connectors share the memory in flight, unless each has its own of a room.
    pub share: watch::Sender<usize>,
    /// The room for what the connectors of the process have in flight.
    pub room: Room,
    /// Whether it is run by a deputy.
    pub deputy: DeputyRole,
    pub status: Arc<Status>,
    pub tell: FailureOutput,
}

impl RunSettings {
    /// Runs the connector whenever it is called. While a password that worked before is refused, it is run again, with what the config
    /// providers return then.
    pub fn body(self) -> RunBody {
        Arc::new(move |target| {
            let mut refusals = PasswordRefusals::default();
            loop {
                let connects = self.status.stream.state().connects;
                let (what, ended) = self.run(target.clone());
                let Err(failure) = ended else { return Ok(()) };
                let is_new = self.status.stream.state().connects > connects;
                let was_connected = self.status.stream.state().connects > 0;
                let pause = refusals.pause(&failure, was_connected, is_new, Instant::now());
                let Some(pause) = pause else {
                    self.tell_failure(&what, &failure);
                    return Err(failure);
                };
                warn!(
                    code = failure.code(),
                    error = failure.for_log(),
                    hint = failure.hint(),
                    pause_ms = pause.as_millis() as u64,
                    "the login is refused, though it has worked before: the config providers are asked again after a pause"
                );
                self.status.set_phase(Phase::Waiting(failure));
                if !self.waits(pause, target.clone())? {
                    info!("connector stopped while its login was refused");
                    return Ok(());
                }
            }
        })
    }

    fn tell_failure(&self, what: &str, failure: &Failure) {
        match self.tell {
            FailureOutput::LastWords(report) => report(what, failure, *self.share.borrow() <= 1),
            FailureOutput::LogLine(report) => report(what, failure, false),
            FailureOutput::Never => {}
        }
    }

    /// Returns false if the run is to end before the pause is over.
    fn waits(&self, pause: Duration, mut target: watch::Receiver<TargetState>) -> Result<bool, Failure> {
        Ok(runtime()?.block_on(async {
            tokio::select! {
                () = sleep(pause) => true,
                _ = target.wait_for(|target| target.ends_run()) => false,
            }
        }))
    }

    /// Runs the connector once. Also returns what to say of a failure.
    fn run(&self, target: watch::Receiver<TargetState>) -> (String, Result<(), Failure>) {
        let name = &self.status.name;
        let share = match self.room.is_bounded() {
            true => watch::Sender::new(1).subscribe(),
            false => self.share.subscribe(),
        };
        let Some(loaded) = self.loaded(target.clone()) else {
            info!("connector stopped while its configuration was being read");
            return (String::new(), Ok(()));
        };
        let roomy = loaded.and_then(|loaded| Ok(self.take_room(&loaded, target.clone())?.map(|place| (loaded, place))));
        let roomy = match roomy {
            Ok(Some(roomy)) => Ok(roomy),
            Ok(None) => {
                info!("connector stopped while it waited for room");
                return (String::new(), Ok(()));
            }
            Err(failure) => Err(failure),
        };
        let assembled = roomy.and_then(|(loaded, place)| {
            let task = match loaded.connector.relay {
                Some(_) => {
                    let relay = assemble::relay(&loaded, &self.offsets, &share, self.status.clone())?;
                    PreparedConnector::Relay(Box::new(relay))
                }
                None => {
                    let connector = assemble::connector(&loaded, &self.offsets, share, self.status.clone())?;
                    PreparedConnector::Stream(Box::new(connector))
                }
            };
            Ok((loaded, task, place))
        });
        let last_target = target.clone();
        let (what, ended) = match assembled {
            Ok((loaded, task, _place)) => {
                let ended = match task {
                    PreparedConnector::Stream(connector) => self.live(&loaded, *connector, target),
                    PreparedConnector::Relay(relay) => self.relay(*relay, target),
                };
                (format!("connector {name:?} has stopped"), ended)
            }
            Err(failure) => (format!("connector {name:?} did not start"), Err(failure)),
        };
        match &ended {
            Ok(()) if *last_target.borrow() == TargetState::Abandoned => {
                info!("connector ended at once: another process may work for it, and sends again what was under way");
            }
            Ok(()) => info!("connector stopped: everything delivered is stored and confirmed"),
            Err(_) => {}
        }
        (what, ended)
    }

    /// Takes the room that the connector needs, or waits until there is some. `None` if the run is to end before that.
    fn take_room(&self, loaded: &Loaded, mut target: watch::Receiver<TargetState>) -> Result<Option<Place>, Failure> {
        let bytes = loaded.connector.streaming.in_flight_max_bytes;
        let (mut changes, mut is_told) = (self.room.changes(), false);
        loop {
            let refused = match self.room.take(&self.status.name, bytes) {
                Ok(place) => return Ok(Some(place)),
                Err(refused) => refused,
            };
            if !std::mem::replace(&mut is_told, true) {
                warn!(
                    code = refused.code(),
                    error = refused.for_log(),
                    hint = refused.hint(),
                    "the connector is not started"
                );
            }
            self.status.set_phase(Phase::Waiting(refused));
            let has_changed = async {
                match &mut changes {
                    // `self` has the sender, so this never fails.
                    Some(changes) => drop(changes.changed().await),
                    None => pending().await,
                }
            };
            let is_to_end = runtime()?.block_on(async {
                tokio::select! {
                    biased;
                    _ = target.wait_for(|target| target.ends_run()) => true,
                    () = has_changed => false,
                }
            });
            if is_to_end {
                return Ok(None);
            }
        }
    }

    /// Resolves the configuration on its own thread, because a config provider may hang, for example on a file of a file server that is
    /// gone. `None` if the run is to end before that. Then the thread is left alone, and ends when the provider answers.
    fn loaded(&self, mut target: watch::Receiver<TargetState>) -> Option<Result<Loaded, Failure>> {
        let runtime = match runtime() {
            Ok(runtime) => runtime,
            Err(failure) => return Some(Err(failure)),
        };
        let (sender, loaded) = oneshot::channel();
        let (load, span) = (self.load.clone(), tracing::Span::current());
        let loading = thread::Builder::new().name("configuration".into()).spawn(move || {
            let _span = span.entered();
            // The run may have ended meanwhile.
            drop(sender.send(load()));
        });
        let loading = match loading {
            Ok(loading) => loading,
            Err(error) => {
                let what = format!("the thread that reads the configuration could not be started: {error}");
                let hint = "raise the limit of threads (`ulimit -u`, or the container's limit of processes)";
                return Some(Err(Failure::stop(Kind::NoThread, what, hint)));
            }
        };
        let loaded = runtime.block_on(async {
            tokio::select! {
                biased;
                loaded = loaded => Some(loaded),
                _ = target.wait_for(|target| target.ends_run()) => None,
            }
        })?;
        match loaded {
            Ok(loaded) => Some(loaded),
            // The thread has panicked. The run panics, too, and the supervisor reports it.
            Err(_) => match loading.join() {
                Err(panic) => resume_unwind(panic),
                Ok(()) => unreachable!("it tells before it ends"),
            },
        }
    }

    /// Runs a connector in relay mode once.
    fn relay(
        &self,
        mut relay: assemble::AssembledRelay,
        mut target: watch::Receiver<TargetState>,
    ) -> Result<(), Failure> {
        LocalSet::new().block_on(&runtime()?, async {
            // There is no slot that has one reader at a time, so a deputy only gets ready.
            tokio::select! {
                biased;
                () = self.deputy.ended() => {}
                _ = target.wait_for(|target| target.ends_run()) => return Ok(()),
            }
            let (health, set_aside) = (relay.sinks.health(), relay.sinks.set_aside());
            let mut beside = JoinSet::new();
            beside.spawn_local(beside::watch_kafka(health, set_aside, self.status.clone()));
            tokio::select! {
                ended = relay.run(target) => ended,
                panic = panic_of(beside) => resume_unwind(panic),
            }
        })
    }

    /// Runs the connector once, with the tasks beside it.
    fn live(
        &self,
        loaded: &Loaded,
        mut connector: assemble::Assembled,
        target: watch::Receiver<TargetState>,
    ) -> Result<(), Failure> {
        let status = &self.status;
        LocalSet::new().block_on(&runtime()?, async {
            let (health, set_aside) = (connector.sinks.health(), connector.sinks.set_aside());
            let mut beside = JoinSet::new();
            beside.spawn_local(beside::watch_kafka(health, set_aside, status.clone()));
            beside.spawn_local(beside::run_heartbeat_query(loaded.clone(), status.clone()));
            connector.settings.deputy = self.deputy.clone();
            if let Some(upkeep) = assemble::outbox_upkeep(loaded) {
                connector.settings.observers = upkeep.observers();
                let upkeep = upkeep.run(status.clone(), Login::new(loaded.clone()));
                beside.spawn_local(self.once_owned(upkeep));
            }
            beside.spawn_local(beside::fetch_xmin(loaded.clone(), status.clone()));
            let data_dir = self.offsets.data_dir.clone();
            let signals = beside::signal_file::read(loaded.clone(), data_dir, status.clone());
            beside.spawn_local(self.once_owned(signals));
            let (of_topic, its_status) = (loaded.clone(), status.clone());
            beside.spawn_local(self.once_owned(async move {
                let _signals = sinks::signals_of_topic(&of_topic, &its_status);
                pending::<()>().await;
            }));
            tokio::select! {
                ended = connector.run(target) => ended,
                // The connector fails with it: without the task it would not do all of its work.
                panic = panic_of(beside) => resume_unwind(panic),
            }
        })
    }
}

impl RunSettings {
    /// Work that a deputy leaves to the owner: it begins once this process is the owner.
    fn once_owned<T>(&self, work: impl Future<Output = T> + 'static) -> impl Future<Output = ()> + 'static {
        let deputy = self.deputy.clone();
        async move {
            deputy.ended().await;
            work.await;
        }
    }
}

/// Waits for a task that panics. Those that end are done.
async fn panic_of(mut tasks: JoinSet<()>) -> Box<dyn Any + Send> {
    loop {
        match tasks
            .join_next()
            .await
            .map(|ended| ended.map_err(JoinError::try_into_panic))
        {
            Some(Err(Ok(panic))) => return panic,
            Some(_) => {}
            None => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_that_worked_before_is_tried_again_for_five_minutes() {
        let refused = || Failure::stop(Kind::Authentication, "refused", "check the password");
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut refusals = PasswordRefusals::default();
        assert_eq!(
            refusals.pause(&refused(), false, false, at(0)),
            None,
            "none has ever worked"
        );
        let mut refusals = PasswordRefusals::default();
        let pauses: Vec<_> = [0, 1, 2]
            .iter()
            .filter_map(|&s| refusals.pause(&refused(), true, s == 0, at(s)))
            .collect();
        assert_eq!(pauses, [100, 200, 400].map(Duration::from_millis));
        assert!(refusals.pause(&refused(), true, false, at(299)).is_some());
        assert_eq!(refusals.pause(&refused(), true, false, at(300)), None);
        // It worked in between.
        assert_eq!(
            refusals.pause(&refused(), true, true, at(301)),
            Some(Duration::from_millis(100))
        );
        let other = Failure::stop(Kind::WalLevel, "wal_level is replica", "set it");
        assert_eq!(refusals.pause(&other, true, false, at(302)), None);
        let hba = Failure::stop(Kind::AccessRefused, "no pg_hba.conf entry for host", "add a line");
        assert_eq!(refusals.pause(&hba, true, false, at(302)), None);
        let user = Failure::stop(
            Kind::AccessRefused,
            "role \"lease-1\" does not exist",
            "check `database.user`",
        );
        assert!(refusals.pause(&user, true, false, at(302)).is_some());
    }

    #[test]
    fn a_task_beside_a_connector_that_panics_is_noticed_and_one_that_ends_is_not() {
        let panic = runtime().unwrap().block_on(async {
            let mut tasks = JoinSet::new();
            tasks.spawn(async {});
            tasks.spawn(async { panic!("as it was told to") });
            panic_of(tasks).await
        });
        assert_eq!(panic.downcast_ref(), Some(&"as it was told to"));
    }
}
