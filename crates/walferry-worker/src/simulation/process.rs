//! A worker's process, with the real code between the group and the runs of connectors. Its order is that of the program's `run`.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    pin::Pin,
    rc::Rc,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    task::LocalSet,
    time::sleep,
};
use walferry_admin::{Standby, StandbyStage};
use walferry_config::{Connector, Options, Worker};
use walferry_engine::{
    Failure, WantedState,
    connector::{CommitTiming, ConnectorRun, ConnectorSettings},
    connector_store::{ConnectorEntry, ConnectorStore},
    start::{HistoryMismatch, SnapshotPolicy},
};
use walferry_kafka::connect::{ConnectTopics, DrivenMembership, Lease, Membership, Standing};

use super::{
    client::GroupThreads,
    fixture,
    kafka::{Topics, Transactions},
    postgres::Part,
    world::{ProcessId, Shared, unreachable},
};
use crate::{
    duty::Duty,
    member::{self, JoinSettings},
    moves,
    neighbours::{Connected, Dial, Neighbours},
    process::RunSettings,
    stores::Offsets,
    supervisor::TaskBody,
    worker::{ManagedConnectors, OpenStore, SharedStore, SimulatedRuns, WorkerOutput, WorkerParts},
};

/// How often it is looked whether others have written configurations.
const LOOK: Duration = Duration::from_millis(100);
/// How often they are read anyway.
const ANYWAY: Duration = Duration::from_secs(10);

/// What the simulation has of a process.
#[derive(Default)]
pub(super) struct Inside {
    pub(super) members: RefCell<Vec<GroupThreads>>,
    current: RefCell<Option<Current>>,
    pub(super) is_to_end: watch::Sender<bool>,
}

/// What a process has while it is a member.
struct Current {
    share: watch::Receiver<walferry_kafka::connect::Share>,
    lease: Lease,
    connectors: Option<ManagedConnectors>,
}

impl Inside {
    /// The partitions for which the process may write, as it sees that.
    pub(super) fn owned(&self) -> BTreeSet<i32> {
        let current = self.current.borrow();
        let Some(current) = current.as_ref().filter(|current| current.lease.holds()) else {
            return BTreeSet::new();
        };
        let share = current.share.borrow();
        match share.standing {
            Standing::Member => share
                .held
                .partitions
                .union(&share.leaving.partitions)
                .copied()
                .collect(),
            _ => BTreeSet::new(),
        }
    }

    /// The connectors of the process while it is a member.
    pub(super) fn connectors(&self) -> Option<ManagedConnectors> {
        self.current
            .borrow()
            .as_ref()
            .and_then(|current| current.connectors.clone())
    }
}

/// The life of a process, until it was asked to end.
pub(super) async fn live(shared: Shared, process: ProcessId, inside: Rc<Inside>) {
    loop {
        // The local tasks end with the connectors.
        let tasks = LocalSet::new();
        match tasks.run_until(work(&shared, process, &inside)).await {
            Ending::Over => return,
            Ending::MembershipLost => {}
        }
    }
}

enum Ending {
    Over,
    MembershipLost,
}

async fn work(shared: &Shared, process: ProcessId, inside: &Rc<Inside>) -> Ending {
    let mut is_to_end = inside.is_to_end.subscribe();
    let mut asked_to_end = std::pin::pin!(async move { drop(is_to_end.wait_for(|is_to_end| *is_to_end).await) });
    let address = shared.lock().machines[process.machine].address.clone();
    let DrivenMembership {
        membership,
        driver,
        looks,
    } = Membership::driven(&address, shared.clock(process.machine));
    let threads = GroupThreads::new(shared.clone(), process, driver, looks);
    inside.members.borrow_mut().push(threads);
    *inside.current.borrow_mut() = Some(Current {
        share: membership.share(),
        lease: membership.lease(),
        connectors: None,
    });
    let (topics, settings) = (topics(), JoinSettings { address, shares: true });
    let standby = Standby::new(StandbyStage::Starting(String::new()));
    let begins = async {
        if !member::may_work(topics, &settings, &membership, &standby).await {
            return None;
        }
        let mut store = ConfigTopic {
            shared: shared.clone(),
            process,
            lease: membership.lease(),
        };
        loop {
            match store.entries() {
                Ok(entries) => return Some((store, entries)),
                Err(_) => sleep(Duration::from_millis(500)).await,
            }
        }
    };
    let begun = tokio::select! {
        biased;
        () = &mut asked_to_end => return Ending::Over,
        begun = begins => begun,
    };
    let Some((store, entries)) = begun else {
        return Ending::MembershipLost;
    };
    let changed = Arc::new(Notify::new());
    tokio::task::spawn_local(follow_store(shared.clone(), changed.clone()));
    let (_states, states) = watch::channel(Arc::default());
    let parts = WorkerParts {
        worker: Worker::default(),
        bootstrap_servers: "127.0.0.1:1".into(),
        offsets: Offsets {
            data_dir: "/nonexistent".into(),
            topic: None,
        },
        loaded: Vec::new(),
        output: WorkerOutput {
            progress: None,
            report: |_, _, _| {},
        },
        shared: Some(SharedStore {
            duty: Duty::now(&membership),
            changed,
            states,
        }),
        runs: Some(runs(shared, process, membership.lease())),
    };
    let opened = OpenStore {
        store: Box::new(store),
        entries,
    };
    let (connectors, _config_writer) = ManagedConnectors::start(parts, Ok(opened)).expect("no connector is of a file");
    if let Some(current) = inside.current.borrow_mut().as_mut() {
        current.connectors = Some(connectors.clone());
    }
    let neighbours = Neighbours::by(dial(shared.clone()));
    let follows = async {
        moves::follow_beside(&membership, connectors.clone(), None, neighbours).await;
        std::future::pending::<()>().await;
    };
    let ending = tokio::select! {
        biased;
        () = asked_to_end => Ending::Over,
        () = follows => unreachable!("it waits for ever"),
        _ = member::is_lost(Some(&membership)) => Ending::MembershipLost,
    };
    if matches!(ending, Ending::MembershipLost) {
        connectors.supervisor().abandon_all().await;
        return Ending::MembershipLost;
    }
    // An orderly end takes its time, and the membership may be lost meanwhile.
    tokio::select! {
        biased;
        _ = connectors.supervisor().stop_all() => {}
        _ = member::is_lost(Some(&membership)) => connectors.supervisor().abandon_all().await,
    }
    Ending::Over
}

/// Wakes the process when others have written configurations.
async fn follow_store(shared: Shared, changed: Arc<Notify>) {
    let (mut version, mut last) = (0, Duration::ZERO);
    loop {
        sleep(LOOK).await;
        let now = shared.lock().version;
        if now != version || shared.now().saturating_sub(last) > ANYWAY {
            (version, last) = (now, shared.now());
            changed.notify_one();
        }
    }
}

/// The topics' names. Nothing is connected.
fn topics() -> &'static ConnectTopics {
    static TOPICS: OnceLock<ConnectTopics> = OnceLock::new();
    TOPICS.get_or_init(|| {
        let named = |prefix: &str, topic: &str| Options::new(prefix, [("topic".to_owned(), topic.to_owned())].into());
        let worker = Worker {
            group_id: Some("connect".into()),
            config_storage: named("config.storage.", "configs"),
            offset_storage: named("offset.storage.", "offsets"),
            status_storage: named("status.storage.", "states"),
            ..Worker::default()
        };
        let topics = ConnectTopics::of(&worker, "127.0.0.1:1").expect("the properties are right");
        topics.expect("the worker names its topics")
    })
}

/// Connections to other workers' addresses.
fn dial(shared: Shared) -> Dial {
    Rc::new(move |place: &str| {
        let (shared, address) = (shared.clone(), format!("http://{place}"));
        Box::pin(async move {
            let machine = {
                let world = shared.lock();
                let found = world.machines.iter().position(|machine| machine.address == address);
                found.map(|index| (index, world.machines[index].clone()))
            };
            let Some((index, machine)) = machine else {
                return Connected::Unknown;
            };
            if machine.is_silent {
                sleep(Duration::from_secs(2)).await;
                return Connected::Unknown;
            }
            if machine.is_hidden || !machine.is_alive {
                return Connected::Refused;
            }
            let closed = async move {
                loop {
                    sleep(Duration::from_millis(20)).await;
                    let world = shared.lock();
                    let now = &world.machines[index];
                    let is_open = now.is_alive && now.start == machine.start;
                    // Whoever is cut off does not hear that it was closed.
                    if !now.is_silent && (!is_open || now.is_hidden) {
                        return;
                    }
                }
            };
            Connected::Open(Box::pin(closed) as Pin<Box<dyn Future<Output = ()>>>)
        })
    })
}

/// Connectors' configurations and wanted states, as one process reads and writes them.
#[derive(Debug)]
struct ConfigTopic {
    shared: Shared,
    process: ProcessId,
    lease: Lease,
}

impl ConfigTopic {
    fn change(&self, change: impl FnOnce(&mut Vec<ConnectorEntry>)) -> Result<(), Failure> {
        let may_write = self.lease.holds();
        let mut world = self.shared.lock();
        if !may_write || !world.reaches_kafka(self.process) {
            return Err(unreachable());
        }
        change(&mut world.entries);
        world.version += 1;
        Ok(())
    }
}

impl ConnectorStore for ConfigTopic {
    fn entries(&mut self) -> Result<Vec<ConnectorEntry>, Failure> {
        let world = self.shared.lock();
        match world.reaches_kafka(self.process) {
            true => Ok(world.entries.clone()),
            false => Err(unreachable()),
        }
    }

    fn put(&mut self, entry: &ConnectorEntry) -> Result<(), Failure> {
        self.change(|entries| {
            entries.retain(|known| known.name != entry.name);
            entries.push(entry.clone());
        })
    }

    fn set_target(&mut self, name: &str, target: WantedState) -> Result<(), Failure> {
        self.change(|entries| {
            let named = entries.iter_mut().filter(|known| known.name == name);
            named.for_each(|known| known.target = target);
        })
    }

    fn remove(&mut self, name: &str) -> Result<(), Failure> {
        self.change(|entries| entries.retain(|known| known.name != name))
    }
}

/// What makes the runs of connectors: those of the engine, with simulated servers.
fn runs(shared: &Shared, process: ProcessId, lease: Lease) -> SimulatedRuns {
    let shared = shared.clone();
    Arc::new(move |run: &RunSettings| {
        let (shared, lease) = (shared.clone(), lease.clone());
        let (status, deputy, sharers) = (run.status.clone(), run.deputy.clone(), run.share.clone());
        let body: TaskBody = Arc::new(move |target| {
            let is_exactly_once = shared.lock().is_exactly_once;
            let part = Part {
                shared: shared.clone(),
                process,
                connector: status.name.clone(),
                deputy: deputy.clone(),
            };
            let topics = Topics {
                shared: shared.clone(),
                process,
                connector: status.name.clone(),
                lease: lease.clone(),
                transactions: is_exactly_once.then(Transactions::default),
            };
            let mut connector = ConnectorRun {
                settings: ConnectorSettings {
                    slot: status.name.clone(),
                    snapshot: SnapshotPolicy {
                        at_first_start: false,
                        at_every_start: false,
                        when_lost: false,
                        stream: true,
                    },
                    mismatch: HistoryMismatch::Refuse,
                    tables: Arc::new(|_, table| table == "t"),
                    snapshot_tables: Arc::new(|_, _| true),
                    flush_interval: Duration::from_millis(10),
                    in_flight_bytes: 1 << 20,
                    sharers: sharers.subscribe(),
                    max_retries: None,
                    other_reader: None,
                    confirm: true,
                    drop_slot_on_stop: false,
                    heartbeat: None,
                    snapshot_delay: Duration::ZERO,
                    streaming_delay: Duration::ZERO,
                    skip_command: None,
                    boundary: is_exactly_once.then_some(CommitTiming::WhenIdle(Duration::from_millis(50))),
                    limits: Default::default(),
                    observers: Default::default(),
                    deputy: deputy.clone(),
                },
                source: part.server(),
                sinks: topics.clone(),
                store: topics,
                pipelines: |after: &_| Ok(fixture::pipeline_of(configuration(), after)),
                status: status.clone(),
            };
            let shared = shared.clone();
            Box::pin(async move {
                let ended = connector.run(target).await;
                if let Err(failure) = &ended {
                    shared
                        .lock()
                        .fail([format!("{} failed for good: {failure}", connector.status.name)]);
                }
                ended
            })
        });
        body
    })
}

fn configuration() -> &'static Connector {
    static CONNECTOR: OnceLock<Connector> = OnceLock::new();
    CONNECTOR.get_or_init(|| fixture::connector(r#""table.include.list": "public.t""#))
}
