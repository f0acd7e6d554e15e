//! The worker: connectors from files and from the REST API, and their life.
//!
//! Three things own what belongs to a connector, and each change goes through them in this order:
//!
//! 1. One task, the *config writer*, writes the store, so that each request sees the changes of the earlier ones. It answers a request only
//!    after the change is durable, and then puts it into `connectors`, which everybody reads: the configuration with its version, and the wanted
//!    state.
//! 2. Each connector has a *connector task*, which is sent the version that is to run. It reads that configuration, which may hang in a config
//!    provider, and hands it to the supervisor. A newer version interrupts it. So a connector that starts or ends slowly delays no other.
//! 3. The [`Supervisor`] has the runs. It ends the one with an older configuration in order before it begins the next, so there is never a
//!    second run beside the first.
//!
//! Workers that share connectors share the store. Each knows all connectors; its [`Duty`] says which it runs and whether it writes the store. When a
//! connector moves away, its connector task is told to end it, as if it had been removed. The config writer reads the store again to see what
//! others wrote.
//!
//! A wanted state takes a shorter way: the config writer writes it and tells the supervisor. A connector task that is about to start the
//! connector reads it afterwards, without awaiting anything before the supervisor knows the connector; otherwise a stop could be lost between
//! the two.

mod connector_task;
mod offsets;
mod plugins;
mod snapshots;
mod validate;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value as Json;
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    task::{JoinHandle, spawn_local},
    time::sleep,
};
use tracing::{info, warn};
use walferry_admin::connectors::Connectors as _;
use walferry_admin::manager::{
    ConnectorManager, ElsewhereState, ManagerFuture, Plugin, Refused, RequestedSnapshot, SubmitMode, Validation, steer,
};
use walferry_config::Worker;
use walferry_engine::{
    DeputyRole, Disposition, Exit, Failure, Kind, WantedState,
    connector_store::{Configuration, ConnectorEntry, ConnectorStore},
    status::{Execute, Status},
};

use walferry_kafka::connect::{StateRecords, StatusKey};

use crate::{
    active::ActiveTopics, beside::SlotLooks, blocking::run_blocking, duty::Duty, loaded::Loaded,
    process::ReportFailure, room::Room, stores::Offsets, supervisor::Supervisor,
};

/// Pause before the store is written again.
const AGAIN: Duration = Duration::from_secs(5);

/// All connectors of the process. Clones share them.
#[derive(Clone)]
pub struct ManagedConnectors(Arc<Inner>);

pub(crate) struct Inner {
    pub supervisor: Supervisor,
    pub worker: Worker,
    pub bootstrap_servers: String,
    pub offsets: Offsets,
    pub output: WorkerOutput,
    connectors: Mutex<BTreeMap<String, Connector>>,
    active_topics: ActiveTopics,
    /// Names and classes of connectors in the store that no Walferry runs.
    others: Mutex<BTreeMap<String, String>>,
    /// Which connectors this process runs, and whether it writes the store.
    duty: watch::Sender<Duty>,
    /// For each connector that has run here: whether its current or last run is a deputy's. Becomes false when this process becomes the owner, not
    /// when the run ends.
    deputies: Mutex<BTreeMap<String, watch::Sender<bool>>>,
    /// What the status topic has of all connectors, if several workers share them.
    states: Option<watch::Receiver<Arc<StateRecords>>>,
    commands: mpsc::UnboundedSender<ConfigCommand>,
    /// How many connectors share the memory in flight.
    pub share: watch::Sender<usize>,
    /// The room for what they have in flight, if it is limited for all together.
    pub room: Room,
    /// What runs in place of connectors, in a simulation.
    #[cfg(test)]
    pub runs: Option<SimulatedRuns>,
}

/// Makes what runs in place of a connector.
#[cfg(test)]
pub(crate) type SimulatedRuns = Arc<dyn Fn(&crate::process::RunSettings) -> crate::supervisor::TaskBody + Send + Sync>;

/// A connector of this worker.
#[derive(Clone)]
struct Connector {
    configuration: Configuration,
    target: WantedState,
    origin: ConnectorOrigin,
    /// Whether the store has a connector of this name.
    is_stored: bool,
    /// The version of the configuration.
    version: u64,
}

/// Where a connector comes from.
#[derive(Clone)]
enum ConnectorOrigin {
    /// From a file that was given on the command line.
    File(PathBuf, Box<Loaded>),
    /// From the connector store, which REST writes.
    Store,
}

/// A change to make, and the channel for its result.
enum ConfigCommand {
    Put(
        String,
        Configuration,
        SubmitMode,
        oneshot::Sender<Result<bool, Refused>>,
    ),
    Remove(String, oneshot::Sender<Result<(), Refused>>),
    Want(String, WantedState, oneshot::Sender<Result<(), Refused>>),
    Validate(Configuration, oneshot::Sender<Result<Validation, Refused>>),
    AlterOffsets(offsets::OffsetChange, oneshot::Sender<Result<(), Refused>>),
    Assign(Duty, oneshot::Sender<Result<(), Refused>>),
    /// Reads what others have written into the store.
    CatchUp(oneshot::Sender<Result<(), Refused>>),
    /// Changes nothing. The answer shows that the config writer works.
    Answer(oneshot::Sender<Result<(), Refused>>),
}

/// A store, and the connectors in it when it was opened.
pub struct OpenStore {
    pub store: Box<dyn ConnectorStore>,
    pub entries: Vec<ConnectorEntry>,
}

/// The store, or the reason why there is none.
pub(crate) type StoreChoice = Result<OpenStore, String>;

impl fmt::Debug for ManagedConnectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.lock().keys()).finish()
    }
}

/// What the worker's connectors need to start.
pub struct WorkerParts {
    pub worker: Worker,
    pub bootstrap_servers: String,
    pub offsets: Offsets,
    pub loaded: Vec<Loaded>,
    pub output: WorkerOutput,
    /// `None`: this process alone has its connectors.
    pub shared: Option<SharedStore>,
    #[cfg(test)]
    pub(crate) runs: Option<SimulatedRuns>,
}

/// What several workers have in common.
pub struct SharedStore {
    /// What this one has to do at the start.
    pub duty: Duty,
    /// Notified when another worker has written the store.
    pub changed: Arc<Notify>,
    /// The content of the status topic.
    pub states: watch::Receiver<Arc<StateRecords>>,
}

/// How the program shows a person what connectors do.
#[derive(Clone)]
pub struct WorkerOutput {
    /// Shows the progress of a connector, for ever. `None`: nobody looks at it.
    pub progress: Option<ShowProgress>,
    pub report: ReportFailure,
}

/// Makes what shows the progress of a connector.
pub type ShowProgress = Arc<dyn Fn(Arc<Status>) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync>;

pub struct ConfigWriterTask(JoinHandle<()>);

impl ConfigWriterTask {
    /// Waits until the config writer has ended, which only a bug can cause. Without a config writer nothing can be changed, so the process has to end.
    pub async fn ended(&mut self) -> Failure {
        let how = match (&mut self.0).await {
            Ok(()) => "has ended",
            Err(_) => "has panicked",
        };
        Failure::new(
            Disposition::Stop(Exit::GaveUp),
            Kind::Panic,
            format!("the task that changes connectors {how}"),
            Some("this is a bug: please report it with the last lines of the log".into()),
        )
    }
}

impl ManagedConnectors {
    /// Starts the connectors of files and of the store. It must be called within a set of local tasks, and lives as long as these.
    ///
    /// If a file and the store have a connector of the same name, the file's configuration overwrites the one in the store, as with the files
    /// of a standalone worker. The wanted state stays.
    ///
    /// # Errors
    /// A file has the name of a connector in the store that this process must not change.
    pub fn start(beginning: WorkerParts, store: StoreChoice) -> Result<(Self, ConfigWriterTask), Failure> {
        let (commands, received) = mpsc::unbounded_channel();
        let (changed, states, duty) = match beginning.shared {
            Some(shared) => (Some(shared.changed), Some(shared.states), shared.duty),
            None => (None, None, Duty::alone()),
        };
        let (store, entries) = match store {
            Ok(OpenStore { store, entries }) => (Ok(store), entries),
            Err(why) => (Err(why), Vec::new()),
        };
        let others = store.as_ref().map_or_else(|_| Vec::new(), |store| store.others());
        let (gathered, overwritten) = gather(beginning.loaded, entries, &others)?;
        let connectors = Self(Arc::new(Inner {
            supervisor: Supervisor::default(),
            room: Room::of(beginning.worker.in_flight_max_bytes),
            worker: beginning.worker,
            bootstrap_servers: beginning.bootstrap_servers,
            offsets: beginning.offsets,
            output: beginning.output,
            share: watch::Sender::new(gathered.keys().filter(|name| duty.works_for(name)).count()),
            connectors: Mutex::new(gathered),
            active_topics: ActiveTopics::default(),
            others: Mutex::new(others.into_iter().collect()),
            duty: watch::Sender::new(duty),
            deputies: Mutex::default(),
            states,
            commands,
            #[cfg(test)]
            runs: beginning.runs,
        }));
        let config_writer = ConfigWriter {
            connectors: connectors.clone(),
            store: store.map(|store| Arc::new(Mutex::new(store))),
            slots: SlotLooks::default(),
            connector_tasks: BTreeMap::new(),
            version: 0,
            overwritten,
            changed,
            is_current: false,
            is_read: true,
        };
        Ok((connectors, ConfigWriterTask(spawn_local(config_writer.work(received)))))
    }

    pub fn supervisor(&self) -> &Supervisor {
        &self.0.supervisor
    }

    pub(crate) fn active_topics(&self) -> &ActiveTopics {
        &self.0.active_topics
    }

    /// Names of connectors that only Connect can run.
    pub(crate) fn names_of_others(&self) -> BTreeSet<String> {
        self.others().keys().cloned().collect()
    }

    fn others(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this process has to do.
    pub fn duty(&self) -> Duty {
        self.0.duty.borrow().clone()
    }

    /// The same. Reports each change.
    pub fn duties(&self) -> watch::Receiver<Duty> {
        self.0.duty.subscribe()
    }

    /// Gives this process another part of the connectors. When this returns, no run begins any more of those that it has no more, but some may
    /// still end.
    pub(crate) async fn assign(&self, duty: Duty) {
        // A config writer that has ended ends the process, too.
        let _ = self.ask(|reply| ConfigCommand::Assign(duty, reply)).await;
    }

    fn deputies(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<bool>>> {
        self.0.deputies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the run of a connector is one of a deputy. Reports when it is none any more.
    pub(crate) fn deputy_role(&self, name: &str) -> DeputyRole {
        let is_deputy = self.duty().is_deputy(name);
        let mut deputies = self.deputies();
        let role = deputies
            .entry(name.to_owned())
            .or_insert_with(|| watch::Sender::new(is_deputy));
        DeputyRole::watching(role.subscribe())
    }

    /// Whether the connector was run here last as a deputy, and is not this process's own since.
    pub(crate) fn was_deputy(&self, name: &str) -> bool {
        self.deputies().get(name).is_some_and(|is_deputy| *is_deputy.borrow())
    }

    /// Tells runs whether they are those of a deputy. One that is to end, because this process is neither owner nor deputy any more, stays what
    /// it was: a deputy's run must not store anything while it ends.
    fn tell_deputies(&self, duty: &Duty) {
        for (name, is_deputy) in self.deputies().iter() {
            if duty.has(name) {
                is_deputy.send_if_modified(|is_deputy| std::mem::replace(is_deputy, false));
            } else if duty.is_deputy(name) {
                is_deputy.send_if_modified(|is_deputy| !std::mem::replace(is_deputy, true));
            }
        }
    }

    /// How many connectors share the memory.
    fn count(&self) {
        let duty = self.duty();
        let count = self.lock().keys().filter(|name| duty.works_for(name)).count();
        self.0
            .share
            .send_if_modified(|share| std::mem::replace(share, count) != count);
    }

    /// The status of a connector that has begun.
    fn status(&self, name: &str) -> Option<Arc<Status>> {
        let statuses = self.0.supervisor.statuses();
        statuses.into_iter().find(|status| status.name == name)
    }

    /// Waits until the only connector has failed for good, if it comes from a file. Connectors may come and go meanwhile.
    pub async fn failure_of_only(&self) -> Failure {
        // This channel reports each connector that comes or goes.
        let mut changes = self.0.share.subscribe();
        loop {
            changes.borrow_and_update();
            let only = {
                let connectors = self.lock();
                let only = connectors.iter().next().filter(|_| connectors.len() == 1);
                only.filter(|(_, connector)| matches!(connector.origin, ConnectorOrigin::File(..)))
                    .map(|(name, _)| name.clone())
            };
            let failure = async {
                match &only {
                    Some(only) => self.0.supervisor.failure(only).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                // `self` has the sender, so this never fails.
                _ = changes.changed() => {}
                failure = failure => return failure,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Connector>> {
        self.0.connectors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, name: &str) -> Option<Connector> {
        self.lock().get(name).cloned()
    }

    /// Passes a command to the config writer, and waits for its result.
    fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<T, Refused>>) -> ConfigCommand,
    ) -> ManagerFuture<T> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.commands.send(command(reply));
        Box::pin(async move {
            let ends = || Refused::new(503, "Walferry is shutting down.");
            sent.map_err(|_| ends())?;
            answer.await.map_err(|_| ends())?
        })
    }
}

impl ConnectorManager for ManagedConnectors {
    fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    fn configuration(&self, name: &str) -> Option<Configuration> {
        self.find(name).map(|connector| connector.configuration)
    }

    fn target(&self, name: &str) -> Option<WantedState> {
        self.lock().get(name).map(|connector| connector.target)
    }

    fn is_kept(&self, name: &str, configuration: &Configuration, how: &SubmitMode) -> Result<bool, Refused> {
        match (how, self.find(name)) {
            (SubmitMode::Any | SubmitMode::Over(_), Some(connector))
                if must_come_from_store(name, &connector).is_err() =>
            {
                let target = wanted_after(name, how.clone(), Some(&connector), configuration)?;
                Ok(target.is_none())
            }
            _ => Ok(false),
        }
    }

    fn put(&self, name: &str, configuration: Configuration, how: SubmitMode) -> ManagerFuture<bool> {
        self.ask(|reply| ConfigCommand::Put(name.to_owned(), configuration, how, reply))
    }

    fn remove(&self, name: &str) -> ManagerFuture<()> {
        self.ask(|reply| ConfigCommand::Remove(name.to_owned(), reply))
    }

    fn want(&self, name: &str, target: WantedState) -> ManagerFuture<()> {
        self.ask(|reply| ConfigCommand::Want(name.to_owned(), target, reply))
    }

    fn validate(&self, configuration: Configuration) -> ManagerFuture<Validation> {
        self.ask(|reply| ConfigCommand::Validate(configuration, reply))
    }

    fn offsets(&self, name: &str) -> ManagerFuture<Json> {
        let (connectors, name) = (self.clone(), name.to_owned());
        Box::pin(async move { connectors.show_offsets(&name).await })
    }

    fn alter_offsets(&self, name: &str, offsets: Option<Json>) -> ManagerFuture<()> {
        let (connectors, name) = (self.clone(), name.to_owned());
        Box::pin(async move { connectors.write_offsets(&name, offsets).await })
    }

    fn look_at_snapshot(&self, name: &str, snapshot: Execute) -> ManagerFuture<RequestedSnapshot> {
        let load = self
            .find(name)
            .map(|connector| connector_task::loader(self, name, &connector));
        let load = load.ok_or_else(|| Refused::not_found(name));
        Box::pin(async move {
            let load = load?;
            let looked = snapshots::look(move || load(), snapshot).await;
            looked.map_err(|failure| refusal(&failure))
        })
    }

    fn runs_here(&self, name: &str) -> bool {
        self.0.duty.borrow().has(name)
    }

    fn is_deputy(&self, name: &str) -> bool {
        self.0.duty.borrow().is_deputy(name)
    }

    /// Also that of a connector of this process that has not begun: right after a start, the last worker's state counts, as in Connect.
    fn elsewhere(&self, name: &str) -> Option<ElsewhereState> {
        let has_begun = self.runs_here(name) && self.status(name).is_some();
        if has_begun || !self.lock().contains_key(name) {
            return None;
        }
        let states = self.0.states.as_ref()?.borrow().clone();
        Some(ElsewhereState {
            connector: states.get(&StatusKey::Connector(name.to_owned()))?.clone(),
            task: states.get(&StatusKey::Task(name.to_owned(), 0)).cloned(),
        })
    }

    fn catch_up(&self) -> ManagerFuture<()> {
        match self.0.states {
            Some(_) => self.ask(ConfigCommand::CatchUp),
            None => Box::pin(async { Ok(()) }),
        }
    }

    fn topics(&self, name: &str) -> Vec<String> {
        if !self.runs_here(name) {
            let states = self.0.states.as_ref().map(|states| states.borrow().clone());
            let of_connector = |subject: &StatusKey| match subject {
                StatusKey::Topic(of, topic) if of == name => Some(topic.clone()),
                _ => None,
            };
            return states.map_or_else(Vec::new, |states| states.keys().filter_map(of_connector).collect());
        }
        // The status of a connector that was removed stays until its run has ended.
        if self.lock().contains_key(name)
            && let Some(status) = self.status(name)
        {
            self.0.active_topics.look(&status);
        }
        self.0.active_topics.of(name).into_keys().collect()
    }

    fn reset_topics(&self, name: &str) -> Result<(), Refused> {
        self.0.active_topics.reset(name, self.status(name).as_ref());
        Ok(())
    }

    fn plugins(&self) -> Vec<Plugin> {
        plugins::all()
    }

    fn answers(&self) -> ManagerFuture<()> {
        self.ask(ConfigCommand::Answer)
    }
}

/// The connectors of files and of the store, and those whose configuration in the store the file overwrites.
fn gather(
    loaded: Vec<Loaded>,
    entries: Vec<ConnectorEntry>,
    others: &[(String, String)],
) -> Result<(BTreeMap<String, Connector>, Vec<ConnectorEntry>), Failure> {
    let mut connectors = BTreeMap::new();
    for entry in entries {
        let connector = Connector {
            configuration: entry.configuration,
            target: entry.target,
            origin: ConnectorOrigin::Store,
            is_stored: true,
            version: 0,
        };
        connectors.insert(entry.name, connector);
    }
    let mut overwritten = Vec::new();
    for loaded in loaded {
        let name = loaded.connector.name.clone();
        if let Some((_, class)) = others.iter().find(|(other, _)| *other == name) {
            let what = format!(
                "{} contains a connector {name:?}, but Connect's topics already have a connector of this name, of class {class}, which \
                 Walferry does not run",
                loaded.file.display()
            );
            let hint = "choose another name, or remove the other connector with Kafka Connect";
            return Err(Failure::stop(Kind::ConnectorsClash, what, hint));
        }
        let stored = connectors.get(&name);
        if let Some(stored) = stored
            && !is_same(&stored.configuration, &loaded.configuration)
        {
            warn!(
                connector = name,
                file = %loaded.file.display(),
                hint = "to keep the other configuration, remove the file from --config before the next start, and submit the \
                        configuration again with PUT /connectors/NAME/config",
                "the connector's configuration in the file overwrites the one that was kept for the REST API"
            );
            overwritten.push(ConnectorEntry {
                name: name.clone(),
                configuration: loaded.configuration.clone(),
                target: stored.target,
            });
        }
        let connector = Connector {
            configuration: loaded.configuration.clone(),
            target: stored.map_or(WantedState::Running, |stored| stored.target),
            origin: ConnectorOrigin::File(loaded.file.clone(), Box::new(loaded)),
            is_stored: stored.is_some(),
            version: 0,
        };
        connectors.insert(name, connector);
    }
    Ok((connectors, overwritten))
}

/// Whether two configurations have the same values. As in Connect, the order does not matter.
fn is_same(one: &Configuration, other: &Configuration) -> bool {
    let sorted = |configuration: &Configuration| configuration.iter().cloned().collect::<BTreeMap<_, _>>();
    sorted(one) == sorted(other)
}

/// The wanted state of a connector once its configuration is put. `None` if nothing is to change.
fn wanted_after(
    name: &str,
    how: SubmitMode,
    known: Option<&Connector>,
    configuration: &Configuration,
) -> Result<Option<WantedState>, Refused> {
    match (how, known) {
        (SubmitMode::New(_), Some(_)) => Err(Refused::new(409, format!("Connector {name} already exists"))),
        (SubmitMode::New(target), None) => Ok(Some(target)),
        (
            SubmitMode::Any,
            Some(Connector {
                origin: ConnectorOrigin::File(..),
                configuration: same,
                ..
            }),
        ) if is_same(same, configuration) => Ok(None),
        (SubmitMode::Any, Some(connector)) => {
            must_come_from_store(name, connector)?;
            Ok(Some(connector.target))
        }
        (SubmitMode::Any, None) => Ok(Some(WantedState::Running)),
        (SubmitMode::Over(before), Some(connector)) if connector.configuration == before => {
            must_come_from_store(name, connector)?;
            Ok(Some(connector.target))
        }
        (SubmitMode::Over(_), Some(_)) => Err(Refused::new(
            409,
            format!("Another request has changed connector {name} meanwhile. Send the request again."),
        )),
        (SubmitMode::Over(_), None) => Err(Refused::not_found(name)),
    }
}

/// Writes the store, one change after another.
struct ConfigWriter {
    connectors: ManagedConnectors,
    store: Result<Arc<Mutex<Box<dyn ConnectorStore>>>, String>,
    slots: SlotLooks,
    /// For each connector, the sender to its connector task: the version that is to run, or `None` to end it. A removed connector stays in the list.
    connector_tasks: BTreeMap<String, watch::Sender<Option<u64>>>,
    version: u64,
    /// Configurations of files that the store does not have yet.
    overwritten: Vec<ConnectorEntry>,
    /// Notified when another worker has written the store. `None`: no other worker writes it.
    changed: Option<Arc<Notify>>,
    /// Whether this process has read all that an earlier leader wrote, so that it may write now.
    is_current: bool,
    /// Whether the last reading has come to its end. If not, the log says so once.
    is_read: bool,
}

impl ConfigWriter {
    async fn work(mut self, mut commands: mpsc::UnboundedReceiver<ConfigCommand>) {
        self.send_versions();
        self.overwrite().await;
        let changed = self.changed.clone();
        loop {
            let news = async {
                match &changed {
                    Some(changed) => changed.notified().await,
                    None => std::future::pending().await,
                }
            };
            let command = tokio::select! {
                // In a fixed order, so that a simulated run is repeatable.
                biased;
                command = commands.recv() => match command {
                    Some(command) => command,
                    None => return,
                },
                () = news => {
                    let _ = self.catch_up().await;
                    continue;
                }
                () = sleep(AGAIN), if !self.overwritten.is_empty() => {
                    self.overwrite().await;
                    continue;
                }
            };
            // The request may have ended. Then nobody needs the answer.
            match command {
                ConfigCommand::Put(name, configuration, how, reply) => {
                    drop(reply.send(self.put(name, configuration, how).await))
                }
                ConfigCommand::Remove(name, reply) => drop(reply.send(self.remove(&name).await)),
                ConfigCommand::Want(name, target, reply) => drop(reply.send(self.want(&name, target).await)),
                ConfigCommand::AlterOffsets(change, reply) => drop(reply.send(self.alter_offsets(change).await)),
                ConfigCommand::Answer(reply) => drop(reply.send(Ok(()))),
                ConfigCommand::Assign(duty, reply) => {
                    self.assign(duty).await;
                    drop(reply.send(Ok(())));
                }
                ConfigCommand::CatchUp(reply) => drop(reply.send(self.catch_up().await)),
                ConfigCommand::Validate(configuration, reply) => {
                    let connectors = self.connectors.clone();
                    spawn_local(async move { reply.send(Ok(connectors.find_errors(configuration).await)) });
                }
            }
        }
    }

    /// Takes another part of the connectors.
    async fn assign(&mut self, duty: Duty) {
        let begins_to_lead = duty.leads && !self.connectors.0.duty.borrow().leads;
        // Nobody is told that this process leads before it has read what the last leader wrote.
        let first = Duty {
            leads: duty.leads && !begins_to_lead,
            ..duty.clone()
        };
        self.connectors.tell_deputies(&first);
        self.connectors.0.duty.send_replace(first);
        self.connectors.count();
        self.send_versions();
        if begins_to_lead {
            self.is_current = self.catch_up().await.is_ok();
            self.connectors.0.duty.send_replace(duty);
            self.overwrite().await;
        }
    }

    /// Refuses a change if another worker writes the store. A new leader reads first what the last one wrote.
    async fn lead(&mut self) -> Result<(), Refused> {
        if !self.connectors.0.duty.borrow().leads {
            return Err(Refused::rebalance());
        }
        if !self.is_current {
            self.catch_up().await?;
            self.is_current = true;
        }
        Ok(())
    }

    /// Reads what other workers have written into the store, and does what follows from it. What this process has written is in there, too, so
    /// it changes nothing.
    async fn catch_up(&mut self) -> Result<(), Refused> {
        if self.changed.is_none() {
            return Ok(());
        }
        let Ok(store) = self.store.clone() else { return Ok(()) };
        let read = run_blocking(move || {
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            let entries = store.entries()?;
            Ok::<_, Failure>((entries, store.others()))
        });
        let read = read
            .await
            .unwrap_or_else(|error| Err(Failure::retry(Kind::NoThread, error.to_string())));
        match read {
            Ok((entries, others)) => {
                if !std::mem::replace(&mut self.is_read, true) {
                    info!("configurations of connectors are read from Connect's topics again");
                }
                *self.connectors.others() = others.into_iter().collect();
                self.learn(entries);
                Ok(())
            }
            Err(failure) => {
                if std::mem::take(&mut self.is_read) {
                    warn!(error = %failure, "changes by other workers cannot be read; retrying");
                }
                Err(refusal(&failure))
            }
        }
    }

    fn learn(&mut self, entries: Vec<ConnectorEntry>) {
        let connectors = self.connectors.clone();
        let (mut steered, mut newer) = (Vec::new(), Vec::new());
        let mut by_name = connectors.lock();
        let stored_names: BTreeSet<&String> = entries.iter().map(|entry| &entry.name).collect();
        let mut gone = Vec::new();
        by_name.retain(|name, connector| {
            let is_stored = stored_names.contains(name);
            connector.is_stored &= is_stored;
            let remains = is_stored || matches!(connector.origin, ConnectorOrigin::File(..));
            if !remains {
                gone.push(name.clone());
            }
            remains
        });
        for entry in entries {
            match by_name.get_mut(&entry.name) {
                Some(known) => {
                    known.is_stored = true;
                    let is_of_file = matches!(known.origin, ConnectorOrigin::File(..));
                    if !is_of_file && !is_same(&known.configuration, &entry.configuration) {
                        self.version += 1;
                        (known.configuration, known.version) = (entry.configuration, self.version);
                        newer.push(entry.name.clone());
                    }
                    if known.target != entry.target {
                        known.target = entry.target;
                        steered.push((entry.name, entry.target));
                    }
                }
                None => {
                    self.version += 1;
                    let connector = Connector {
                        configuration: entry.configuration,
                        target: entry.target,
                        origin: ConnectorOrigin::Store,
                        is_stored: true,
                        version: self.version,
                    };
                    newer.push(entry.name.clone());
                    by_name.insert(entry.name, connector);
                }
            }
        }
        drop(by_name);
        for name in &gone {
            // A later connector of this name begins with no topics.
            connectors.active_topics().reset(name, connectors.status(name).as_ref());
            info!(connector = name, "another worker has removed the connector");
        }
        for name in &newer {
            info!(connector = name, "another worker has set the connector's configuration");
        }
        for (name, target) in steered {
            info!(
                connector = name,
                ?target,
                "another worker has changed the connector's wanted state"
            );
            // A connector that does not run here, or that its task is about to start, is not known to the supervisor; it will start in the wanted
            // state.
            let _ = steer(&connectors.0.supervisor, &name, target);
        }
        if !gone.is_empty() || !newer.is_empty() {
            connectors.count();
        }
        self.send_versions();
        for name in gone {
            self.send_version(&name, None);
        }
    }

    /// Writes the configurations of files into the store. What cannot be written now is written later.
    async fn overwrite(&mut self) {
        if !self.connectors.0.duty.borrow().leads {
            return;
        }
        for entry in std::mem::take(&mut self.overwritten) {
            let written = entry.clone();
            if let Err(refused) = self.write(move |store| store.put(&written)).await {
                warn!(
                    connector = entry.name,
                    error = %refused,
                    "the configuration of the file runs, but could not be written over the one that was kept; retrying"
                );
                self.overwritten.push(entry);
            }
        }
    }

    async fn put(&mut self, name: String, configuration: Configuration, how: SubmitMode) -> Result<bool, Refused> {
        self.lead().await?;
        let known = self.connectors.find(&name);
        if known.is_none()
            && let Some(class) = self.class_of_other(&name)
        {
            return Err(Refused::new(
                409,
                format!(
                    "Connect's topics already have a connector {name}, of class {class}. Walferry does not run that class, and does not \
                     change its connectors. Choose another name, or remove that connector with Kafka Connect."
                ),
            ));
        }
        let Some(target) = wanted_after(&name, how, known.as_ref(), &configuration)? else {
            return Ok(false);
        };
        // As in Connect, a task whose configuration has not changed goes on.
        if known
            .as_ref()
            .is_some_and(|known| is_same(&known.configuration, &configuration))
        {
            info!(
                connector = name,
                "the configuration that came through the REST API is the one that the connector has, so nothing is restarted"
            );
            return Ok(false);
        }
        let entry = ConnectorEntry {
            name: name.clone(),
            configuration: configuration.clone(),
            target,
        };
        self.write(move |store| store.put(&entry)).await?;
        self.version += 1;
        let connector = Connector {
            configuration,
            target,
            origin: ConnectorOrigin::Store,
            is_stored: true,
            version: self.version,
        };
        self.connectors.lock().insert(name.clone(), connector);
        self.connectors.count();
        info!(
            connector = name,
            new = known.is_none(),
            "the connector's configuration was set through the REST API"
        );
        self.send_versions();
        Ok(known.is_none())
    }

    async fn remove(&mut self, name: &str) -> Result<(), Refused> {
        self.lead().await?;
        let connector = self.connectors.find(name).ok_or_else(|| Refused::not_found(name))?;
        must_come_from_store(name, &connector)?;
        let removed = name.to_owned();
        self.write(move |store| store.remove(&removed)).await?;
        self.connectors.lock().remove(name);
        self.connectors.count();
        // A later connector of this name begins with no topics.
        self.connectors
            .0
            .active_topics
            .reset(name, self.connectors.status(name).as_ref());
        info!(
            connector = name,
            "the connector was removed through the REST API; its offset, slot and topics stay"
        );
        self.send_version(name, None);
        Ok(())
    }

    async fn want(&mut self, name: &str, target: WantedState) -> Result<(), Refused> {
        self.lead().await?;
        let unknown = || Refused::new(404, format!("Unknown connector {name}"));
        let connector = self.connectors.find(name).ok_or_else(unknown)?;
        if connector.is_stored && connector.target != target {
            let wanted = name.to_owned();
            self.write(move |store| store.set_target(&wanted, target)).await?;
            // What is written later must not undo this.
            for entry in self.overwritten.iter_mut().filter(|entry| entry.name == name) {
                entry.target = target;
            }
        }
        if let Some(connector) = self.connectors.lock().get_mut(name) {
            connector.target = target;
        }
        // A connector that its task is about to start is not known to the supervisor yet; it will start in the wanted state.
        let _ = steer(&self.connectors.0.supervisor, name, target);
        Ok(())
    }

    /// The class of a connector that is in the store but that this process does not run.
    fn class_of_other(&self, name: &str) -> Option<String> {
        self.connectors.others().get(name).cloned()
    }

    /// Writes the store. This delays no other task.
    async fn write(
        &self,
        change: impl FnOnce(&mut dyn ConnectorStore) -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Refused> {
        let store = match &self.store {
            Ok(store) => store.clone(),
            Err(why) => {
                return Err(Refused::new(
                    403,
                    format!("Connectors cannot be changed through the REST API: {why}"),
                ));
            }
        };
        let written = run_blocking(move || {
            let mut store = store.lock().unwrap_or_else(PoisonError::into_inner);
            change(store.as_mut())
        });
        match written.await {
            Ok(written) => written.map_err(|failure| refusal(&failure)),
            Err(error) => Err(Refused::new(500, format!("the change was not written: {error}"))),
        }
    }

    /// Tells each connector task what this process is to run now.
    fn send_versions(&mut self) {
        let duty = self.connectors.duty();
        let versions: Vec<(String, u64)> = {
            let connectors = self.connectors.lock();
            let versions = connectors
                .iter()
                .map(|(name, connector)| (name.clone(), connector.version));
            versions.collect()
        };
        for (name, version) in versions {
            self.send_version(&name, duty.works_for(&name).then_some(version));
        }
    }

    fn send_version(&mut self, name: &str, version: Option<u64>) {
        // A connector task whose connector was removed has ended in order.
        self.connector_tasks
            .retain(|_, versions| versions.receiver_count() > 0 || versions.borrow().is_some());
        if version.is_none() && !self.connector_tasks.contains_key(name) {
            return;
        }
        if let Some(task) = self.connector_tasks.get(name) {
            if task.receiver_count() > 0 {
                task.send_if_modified(|current| std::mem::replace(current, version) != version);
                return;
            }
            warn!(
                connector = name,
                "the task that starts and ends the connector has panicked; another one takes its place"
            );
        }
        let versions = watch::Sender::new(version);
        spawn_local(connector_task::work(
            self.connectors.clone(),
            self.slots.clone(),
            name.to_owned(),
            versions.subscribe(),
        ));
        self.connector_tasks.insert(name.to_owned(), versions);
    }
}

/// A failure as an answer: all causes, each with its hint.
fn refusal(failure: &Failure) -> Refused {
    let causes = failure.causes.iter().map(ToString::to_string);
    Refused::new(500, causes.collect::<Vec<_>>().join("; "))
}

/// Refuses to change a connector that comes from a file: it must be changed there.
fn must_come_from_store(name: &str, connector: &Connector) -> Result<(), Refused> {
    match &connector.origin {
        ConnectorOrigin::Store => Ok(()),
        ConnectorOrigin::File(file, _) => Err(Refused::new(
            403,
            format!(
                "Connector {name} comes from the file {} given with --config, so the REST API can only read it. Change the file and \
                 restart Walferry.",
                file.display()
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;
    use crate::loaded::REQUIRED;

    /// A worker without connectors, with a store that stores nothing.
    fn start() -> (ManagedConnectors, ConfigWriterTask) {
        start_with(Vec::new(), None)
    }

    fn start_with(entries: Vec<ConnectorEntry>, shared: Option<SharedStore>) -> (ManagedConnectors, ConfigWriterTask) {
        let beginning = WorkerParts {
            worker: Worker::default(),
            bootstrap_servers: "127.0.0.1:1".into(),
            offsets: Offsets {
                data_dir: "/nonexistent".into(),
                topic: None,
            },
            loaded: Vec::new(),
            shared,
            runs: None,
            output: WorkerOutput {
                progress: None,
                report: |_, _, _| {},
            },
        };
        let store = OpenStore {
            store: Box::new(Blank),
            entries,
        };
        ManagedConnectors::start(beginning, Ok(store)).expect("it starts")
    }

    #[derive(Debug)]
    struct Blank;

    impl ConnectorStore for Blank {
        fn entries(&mut self) -> Result<Vec<ConnectorEntry>, Failure> {
            Ok(Vec::new())
        }
        fn put(&mut self, _: &ConnectorEntry) -> Result<(), Failure> {
            Ok(())
        }
        fn set_target(&mut self, _: &str, _: WantedState) -> Result<(), Failure> {
            Ok(())
        }
        fn remove(&mut self, _: &str) -> Result<(), Failure> {
            Ok(())
        }
        fn others(&self) -> Vec<(String, String)> {
            vec![("file".into(), "FileStreamSource".into())]
        }
    }

    fn block_on(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        LocalSet::new().block_on(&runtime.expect("a runtime"), test);
    }

    fn configuration(text: &str) -> Configuration {
        vec![("a".to_owned(), text.to_owned())]
    }

    #[test]
    fn a_config_writer_that_ends_ends_the_process_with_a_failure() {
        block_on(async {
            let (connectors, mut config_writer) = start();
            tokio::select! {
                biased;
                failure = config_writer.ended() => panic!("{failure}"),
                () = sleep(Duration::from_millis(20)) => {}
            }
            config_writer.0.abort();
            let failure = config_writer.ended().await;
            assert_eq!(
                (failure.kind, failure.disposition),
                (Kind::Panic, Disposition::Stop(Exit::GaveUp))
            );
            assert_eq!(connectors.remove("a").await.unwrap_err().code, 503);
        });
    }

    /// Operators ask for the status as soon as the API answers, and take 404 for a connector that is gone.
    #[test]
    fn a_connector_that_has_not_begun_has_the_state_that_the_last_worker_left() {
        block_on(async {
            let record = |state: &str| serde_json::json!({ "state": state, "worker_id": "127.0.0.1:8083" });
            let states = StateRecords::from([
                (StatusKey::Connector("a".into()), record("RUNNING")),
                (StatusKey::Task("a".into(), 0), record("FAILED")),
            ]);
            let (_states, states) = watch::channel(Arc::new(states));
            let entry = |name: &str| ConnectorEntry {
                name: name.into(),
                configuration: configuration("1"),
                target: WantedState::Stopped,
            };
            let shared = SharedStore {
                duty: Duty::alone(),
                changed: Arc::default(),
                states,
            };
            let (connectors, _config_writer) = start_with(vec![entry("a"), entry("new")], Some(shared));
            // The config writer has not run yet.
            let left = connectors.elsewhere("a").expect("it is in the status topic");
            assert_eq!(
                (&left.connector["state"], &left.task.expect("it had one")["state"]),
                (&"RUNNING".into(), &"FAILED".into())
            );
            assert!(
                connectors.elsewhere("new").is_none(),
                "nobody has written a state of it, as in Connect"
            );
            assert!(connectors.elsewhere("unknown").is_none());
            while connectors.supervisor().statuses().len() < 2 {
                sleep(Duration::from_millis(1)).await;
            }
            assert!(connectors.elsewhere("a").is_none(), "it has a state of its own");
        });
    }

    #[test]
    fn a_connector_task_that_has_panicked_is_replaced_by_another_one() {
        block_on(async {
            let (connectors, _config_writer) = start();
            // The other config writer has begun by then, with no connector.
            sleep(Duration::from_millis(1)).await;
            let connector = Connector {
                configuration: configuration("1"),
                target: WantedState::Stopped,
                origin: ConnectorOrigin::Store,
                is_stored: true,
                version: 0,
            };
            connectors.lock().insert("a".into(), connector);
            let mut config_writer = ConfigWriter {
                connectors: connectors.clone(),
                store: Err("it is not needed".into()),
                slots: SlotLooks::default(),
                // Its receiver is gone, as that of a connector task that has panicked.
                connector_tasks: BTreeMap::from([("a".to_owned(), watch::Sender::new(Some(0)))]),
                version: 0,
                overwritten: Vec::new(),
                changed: None,
                is_current: true,
                is_read: true,
            };
            config_writer.send_version("a", Some(0));
            assert_eq!(config_writer.connector_tasks["a"].receiver_count(), 1);
            while connectors.supervisor().statuses().is_empty() {
                sleep(Duration::from_millis(1)).await;
            }
        });
    }

    #[test]
    fn a_connector_task_ends_with_its_connector_unless_that_is_made_anew_meanwhile() {
        block_on(async {
            let (connectors, _config_writer) = start();
            // The other config writer has begun by then, with no connector.
            sleep(Duration::from_millis(1)).await;
            let mut config_writer = ConfigWriter {
                connectors: connectors.clone(),
                store: Err("it is not needed".into()),
                slots: SlotLooks::default(),
                connector_tasks: BTreeMap::new(),
                version: 0,
                overwritten: Vec::new(),
                changed: None,
                is_current: true,
                is_read: true,
            };
            let add = |version| {
                let connector = Connector {
                    configuration: configuration("1"),
                    target: WantedState::Stopped,
                    origin: ConnectorOrigin::Store,
                    is_stored: true,
                    version,
                };
                connectors.lock().insert("a".into(), connector);
            };
            let until = async |is_done: &dyn Fn() -> bool| {
                let wait = async {
                    while !is_done() {
                        sleep(Duration::from_millis(1)).await;
                    }
                };
                tokio::time::timeout(Duration::from_secs(60), wait)
                    .await
                    .expect("it comes about");
            };
            let is_shown = || !connectors.supervisor().statuses().is_empty();
            add(0);
            config_writer.send_version("a", Some(0));
            until(&is_shown).await;

            // Removed, and made anew before the connector task has heard of it, or while it removes the connector.
            for version in 1..4 {
                config_writer.send_version("a", None);
                for _ in 1..version {
                    tokio::task::yield_now().await;
                }
                add(version);
                config_writer.send_version("a", Some(version));
                until(&is_shown).await;
                assert_eq!(config_writer.connector_tasks["a"].receiver_count(), 1, "{version}");
            }
            connectors.lock().remove("a");
            config_writer.send_version("a", None);
            until(&|| config_writer.connector_tasks["a"].receiver_count() == 0).await;
            assert!(!is_shown());
            // The next change forgets it.
            config_writer.send_version("b", None);
            assert!(!config_writer.connector_tasks.contains_key("a"));
            add(4);
            config_writer.send_version("a", Some(4));
            until(&is_shown).await;
        });
    }

    #[test]
    fn a_configuration_that_comes_again_changes_nothing() {
        block_on(async {
            let (connectors, _config_writer) = start();
            let pair = |name: &str| (name.to_owned(), "1".to_owned());
            let version = |connectors: &ManagedConnectors| connectors.find("a").expect("it is there").version;
            let put = |configuration| connectors.put("a", configuration, SubmitMode::Any);
            assert_eq!(put(vec![pair("x"), pair("y")]).await, Ok(true));
            let first = version(&connectors);
            assert_eq!(put(vec![pair("y"), pair("x")]).await, Ok(false));
            assert_eq!(version(&connectors), first);
            assert_eq!(put(vec![pair("y")]).await, Ok(false));
            assert_ne!(version(&connectors), first);
        });
    }

    #[test]
    fn each_run_of_a_connector_from_a_file_reads_the_schemas_of_events_again() {
        block_on(async {
            let (connectors, _config_writer) = start();
            let schemas = tempfile::tempdir().expect("a folder");
            let write = |name: &str, text: &str| std::fs::write(schemas.path().join(name), text).expect("a file");
            write("A.json", "{}");
            let dir = schemas.path().display().to_string();
            let properties = REQUIRED.into_iter().chain([
                ("transforms", "outbox"),
                ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
                ("transforms.outbox.walferry.schemas.dir", &dir),
            ]);
            let properties = properties
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .collect();
            let (checked, findings) = crate::loaded::load_own_configuration("shop", &properties);
            let checked = checked.unwrap_or_else(|| panic!("{findings:?}"));
            let loaded = Loaded {
                connector: checked.connector,
                built: checked.built,
                worker: Worker::default(),
                bootstrap_servers: String::new(),
                configuration: properties,
                file: "shop.json".into(),
            };
            let connector = Connector {
                configuration: loaded.configuration.clone(),
                target: WantedState::Running,
                origin: ConnectorOrigin::File("shop.json".into(), Box::new(loaded)),
                is_stored: false,
                version: 0,
            };
            let run = connector_task::loader(&connectors, "shop", &connector);
            let types = |loaded: &Loaded| loaded.built.event_schemas()[0].1.len();
            assert_eq!(types(&run().expect("it is right")), 1);
            write("A.json", r#"{"type": "strin"}"#);
            let failure = run().expect_err("the schema is wrong");
            assert_eq!(failure.kind, Kind::Configuration);
            let text = failure.to_string();
            assert!(
                text.contains("has the file A.json, which is not a valid schema"),
                "{text}"
            );
            write("A.json", "{}");
            write("B.json", "{}");
            assert_eq!(types(&run().expect("it is right again")), 2);
        });
    }

    #[test]
    fn a_file_overwrites_a_connector_of_its_name_but_none_of_another_class() {
        block_on(async {
            let (connectors, _config_writer) = start();
            let properties = REQUIRED.into_iter().chain([
                ("key.converter", "org.apache.kafka.connect.json.JsonConverter"),
                ("value.converter", "org.apache.kafka.connect.json.JsonConverter"),
            ]);
            let properties = properties
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .collect();
            let loaded = connector_task::load(&connectors.0, "shop", &properties)
                .0
                .expect("it is right");
            let entry = |name: &str, configuration| ConnectorEntry {
                name: name.into(),
                configuration,
                target: WantedState::Stopped,
            };

            let entries = vec![entry("shop", configuration("1")), entry("other", configuration("2"))];
            let (gathered, overwritten) = gather(vec![loaded.clone()], entries, &[]).expect("nothing is wrong");
            let shop = &gathered["shop"];
            assert_eq!(
                (&shop.configuration, shop.target),
                (&loaded.configuration, WantedState::Stopped)
            );
            assert!(shop.is_stored && must_come_from_store("shop", shop).is_err());
            assert_eq!(overwritten, [entry("shop", loaded.configuration.clone())]);
            assert_eq!(gathered["other"].configuration, configuration("2"));

            // Nothing is written if both are the same, or if the store does not have it.
            let same = vec![entry("shop", loaded.configuration.clone())];
            let (_, overwritten) = gather(vec![loaded.clone()], same, &[]).expect("nothing is wrong");
            assert!(overwritten.is_empty());
            let (gathered, overwritten) = gather(vec![loaded.clone()], Vec::new(), &[]).expect("nothing is wrong");
            assert!(overwritten.is_empty() && !gathered["shop"].is_stored);

            let others = [("shop".to_owned(), "FileStreamSource".to_owned())];
            let refused = gather(vec![loaded], Vec::new(), &others).err().expect("it is refused");
            let refused = format!("{refused:?}");
            assert!(
                refused.contains("FileStreamSource") && refused.contains("shop"),
                "{refused}"
            );
        });
    }

    #[test]
    fn a_patch_of_what_was_changed_meanwhile_and_the_name_of_another_class_are_refused() {
        block_on(async {
            let (connectors, _config_writer) = start();
            assert_eq!(
                connectors
                    .put("a", configuration("1"), SubmitMode::New(WantedState::Stopped))
                    .await,
                Ok(true)
            );
            let before = connectors.configuration("a").expect("it is there");
            assert_eq!(
                connectors
                    .put("a", configuration("2"), SubmitMode::Over(before.clone()))
                    .await,
                Ok(false)
            );
            let refused = connectors
                .put("a", configuration("3"), SubmitMode::Over(before))
                .await
                .unwrap_err();
            assert_eq!(refused.code, 409, "{refused}");
            assert_eq!(connectors.configuration("a"), Some(configuration("2")));
            for how in [SubmitMode::New(WantedState::Running), SubmitMode::Any] {
                let refused = connectors.put("file", configuration("1"), how).await.unwrap_err();
                assert!(
                    refused.code == 409 && refused.message.contains("FileStreamSource"),
                    "{refused}"
                );
            }
        });
    }
}
