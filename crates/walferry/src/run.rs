//! `walferry run`.

use std::{
    future::pending,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::thread::disable_transparent_huge_pages;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::{LocalSet, spawn_blocking, spawn_local},
    time::sleep,
};
use tracing::{info, warn};
use walferry_admin::{Admin, ClusterId, Door, Resources, RestSettings, Standby, Tls};
use walferry_config::Worker;
use walferry_diagnosis::Kind;
use walferry_engine::{
    Failure,
    supervisor::{Connectors, Supervisor},
};
use walferry_kafka::connect::{ConnectTopics, Leadership, OffsetLog, StateLog, cluster_id};
use walferry_offset::FileBook;

use crate::{
    assemble::Offsets,
    cli::RunArgs,
    error::Error,
    listen::{self, Wanted},
    load::{Configuration, data_dir, load},
    logging, process,
    progress::Bars,
    rest,
    take::take,
    worker::{
        Beginning, BookChoice, Herd, states,
        topics::{self, Opened},
    },
};

/// Pause before asking the cluster for its id again.
const CLUSTER_PAUSE: Duration = Duration::from_secs(30);

/// Runs until a signal, or until its only connector has failed for good.
pub(crate) fn run(args: &RunArgs, bars: &Bars) -> Result<(), Error> {
    // If Linux uses huge pages by default, 14 MiB more would be resident. If this call fails, nothing else is lost.
    disable_transparent_huge_pages(true).ok();
    let configuration = load(&args.connector)?;
    let wanted = listen::wanted(args.admin, &configuration.worker)?;
    let topics = topics_of(args, &configuration)?;
    let settings = rest::settings(&configuration.worker)?;
    let data_dir = data_dir(&args.data);
    take(args, &configuration, &data_dir)?;
    let runtime = process::runtime().map_err(|failure| Error::failure("Walferry did not start", failure))?;
    let process = Process {
        wanted,
        bars,
        settings,
        topics,
        data_dir,
    };
    let served = LocalSet::new().block_on(&runtime, process.run(configuration));
    // A read that hangs, for example of a file of a config provider, must not delay the end.
    runtime.shutdown_background();
    bars.clear();
    served
}

/// Connect's topics, if they hold the state of this worker: the worker file names them, no connector comes from a file, and no data
/// directory is requested.
fn topics_of(args: &RunArgs, configuration: &Configuration) -> Result<Option<ConnectTopics>, Error> {
    if args.data.data_dir.is_some() || !args.take.is_empty() || !configuration.connectors.is_empty() {
        return Ok(None);
    }
    ConnectTopics::of(&configuration.worker, &configuration.bootstrap_servers)
        .map_err(|failure| Error::failure("the configuration has a problem", failure))
}

struct Process<'a> {
    wanted: Vec<Wanted>,
    bars: &'a Bars,
    settings: RestSettings,
    topics: Option<ConnectTopics>,
    data_dir: PathBuf,
}

/// A process's turn to work on Connect's topics.
struct Turn {
    leadership: Leadership,
    topics: ConnectTopics,
    opened: Opened,
}

/// Where a process keeps its state.
struct Storage {
    book: BookChoice,
    offsets: Option<OffsetLog>,
    states: Option<StateLog>,
    leadership: Option<Leadership>,
}

/// How the work of a process has ended.
enum Ending {
    /// The process is to end, too.
    Over(Result<(), Error>),
    /// Another process may work on Connect's topics now.
    TurnLost,
}

/// Ends all connectors: in order if the process is to end, at once if another one may have its turn.
async fn end_connectors(ending: Ending, herd: &Herd, leadership: Option<&Leadership>) -> Ending {
    let Ending::Over(outcome) = ending else {
        herd.supervisor().abandon_all().await;
        return Ending::TurnLost;
    };
    // An orderly end takes its time, and the turn may be lost meanwhile.
    let stopped = tokio::select! {
        stopped = herd.supervisor().stop_all() => stopped,
        failure = turn_is_lost(leadership) => {
            herd.supervisor().abandon_all().await;
            Err(failure)
        }
    };
    let stopped = stopped.map_err(|failure| Error::failure("a connector has stopped", failure).already_told());
    Ending::Over(outcome.and(stopped))
}

impl Process<'_> {
    async fn run(mut self, configuration: Configuration) -> Result<(), Error> {
        let mut doors = open_doors(std::mem::take(&mut self.wanted), &self.settings).await?;
        let did_not_start = |failure| Error::failure("Walferry did not start", failure);
        let topics = self.topics.take();
        let cluster = Arc::new(ClusterId::default());
        spawn_local(ask_for_cluster(
            configuration.worker.clone(),
            configuration.bootstrap_servers.clone(),
            cluster.clone(),
        ));
        loop {
            let held = match &topics {
                None => None,
                Some(topics) => match self.wait_for_turn(&doors, topics).await {
                    Some(held) => Some(held.map_err(did_not_start)?),
                    // The process was stopped while it waited.
                    None => return Ok(()),
                },
            };
            // The local tasks end with the connectors.
            let tasks = LocalSet::new();
            let work = self.work(&mut doors, &configuration, held, cluster.clone());
            match tasks.run_until(work).await {
                Ending::Over(outcome) => return outcome,
                Ending::TurnLost => {}
            }
        }
    }

    /// Where the book, the offsets and the states are: in Connect's topics, if it is this process's turn on them, or else in files.
    fn storage(&self, turn: Option<Turn>, is_worker: bool) -> Result<Storage, Error> {
        let Some(Turn {
            leadership,
            topics,
            opened,
        }) = turn
        else {
            return Ok(Storage {
                book: shelf(&self.data_dir, is_worker)?,
                offsets: None,
                states: None,
                leadership: None,
            });
        };
        spawn_local(topics::tell_of_connect(topics));
        Ok(Storage {
            book: Ok(Box::new(opened.book)),
            offsets: Some(opened.offsets),
            states: Some(opened.states),
            leadership: Some(leadership),
        })
    }

    /// Runs the connectors until the process is to end, or until another one may have its turn.
    async fn work(
        &self,
        doors: &mut Vec<Door>,
        configuration: &Configuration,
        turn: Option<Turn>,
        cluster: Arc<ClusterId>,
    ) -> Ending {
        let is_worker = configuration.connectors.is_empty();
        let storage = match self.storage(turn, is_worker) {
            Ok(storage) => storage,
            Err(error) => return Ending::Over(Err(error)),
        };
        let leadership = storage.leadership;
        let beginning = Beginning {
            worker: configuration.worker.clone(),
            bootstrap_servers: configuration.bootstrap_servers.clone(),
            offsets: Offsets {
                data_dir: self.data_dir.clone(),
                topic: storage.offsets,
            },
            loaded: configuration.connectors.clone(),
            bars: self.bars.clone(),
        };
        let (herd, mut clerk) = match Herd::start(beginning, storage.book) {
            Ok(started) => started,
            Err(error) => return Ending::Over(Err(error)),
        };
        let served: Vec<Door> = match doors.iter().map(Door::try_clone).collect() {
            Ok(served) => served,
            Err(error) => return Ending::Over(Err(Error::failure("Walferry did not start", used_twice(&error)))),
        };
        let address = doors.first().and_then(|door| door.listener.local_addr().ok());
        if let Some(states) = storage.states {
            let address = address.unwrap_or(listen::DEFAULT);
            let worker_id = self.settings.advertised.clone().unwrap_or_else(|| address.to_string());
            spawn_local(states::tell(herd.clone(), states, worker_id));
        }
        let stop = watch::Sender::new(false);
        let admin = Admin {
            herder: Arc::new(herd.clone()),
            loggers: Arc::new(logging::Levels),
            settings: self.settings.clone(),
            kafka_cluster_id: cluster,
            ..Admin::read_only(Arc::new(herd.supervisor().clone()), env!("CARGO_PKG_VERSION"))
        };
        let admin = spawn_local(walferry_admin::serve(served, admin, stopped(stop.subscribe())));
        let ending = tokio::select! {
            () = signalled() => Ending::Over(Ok(())),
            failure = herd.failure_of_only() => {
                // The failure was reported when it happened.
                Ending::Over(Err(Error::failure("a connector has stopped", failure).already_told()))
            }
            failure = clerk.ended() => Ending::Over(Err(Error::failure("Walferry has stopped", failure))),
            failure = turn_is_lost(leadership.as_ref()) => {
                Error::failure("another Walferry process may use Connect's topics now", failure).tell();
                Ending::TurnLost
            }
        };
        if matches!(ending, Ending::Over(_)) {
            // While the connectors end, requests are refused instead of waiting.
            doors.clear();
        }
        stop.send_replace(true);
        let ending = end_connectors(ending, &herd, leadership.as_ref()).await;
        let _ = admin.await;
        // Give up the turn only after everything is stored, because the next process begins then.
        drop(leadership);
        ending
    }

    /// Prepares the topics, and waits until no other Walferry works on them. Meanwhile the endpoint reports this. `None` if the process is
    /// to end.
    async fn wait_for_turn(&self, doors: &[Door], topics: &ConnectTopics) -> Option<Result<Turn, Failure>> {
        let stop = watch::Sender::new(false);
        let standby = Standby::new(topics::why_waiting(topics, None));
        let settings = RestSettings {
            standby: Some(standby.clone()),
            ..self.settings.clone()
        };
        let nobody: Arc<dyn Connectors> = Arc::new(Supervisor::default());
        let admin = Admin {
            settings,
            ..Admin::read_only(nobody, env!("CARGO_PKG_VERSION"))
        };
        let doors = match doors.iter().map(Door::try_clone).collect() {
            Ok(doors) => doors,
            Err(error) => return Some(Err(used_twice(&error))),
        };
        let served = spawn_local(walferry_admin::serve(doors, admin, stopped(stop.subscribe())));
        let held = tokio::select! {
            () = signalled() => None,
            held = hold(topics, &standby) => Some(held),
        };
        stop.send_replace(true);
        let _ = served.await;
        held
    }
}

fn used_twice(error: &std::io::Error) -> Failure {
    let what = format!("the admin endpoint's socket cannot be used twice: {error}");
    Failure::stop(Kind::AdminAddress, what, "raise the limit of open files (`ulimit -n`)")
}

/// Asks for the id of the Kafka cluster when it is first needed.
async fn ask_for_cluster(worker: Worker, servers: String, told: Arc<ClusterId>) {
    told.wanted().await;
    loop {
        let (worker, servers) = (worker.clone(), servers.clone());
        let found = spawn_blocking(move || cluster_id(&worker, &servers)).await;
        if let Ok(Some(id)) = found {
            return told.tell(id);
        }
        sleep(CLUSTER_PAUSE).await;
    }
}

async fn hold(topics: &ConnectTopics, standby: &Standby) -> Result<Turn, Failure> {
    topics::prepare(topics).await?;
    let leadership = Leadership::seek(topics)?;
    info!(group = topics.group, "waiting for its turn to use Connect's topics");
    let mut denied = leadership.denied();
    let tell = async {
        // The sender lives as long as the leadership.
        while denied.changed().await.is_ok() {
            standby.set_reason(topics::why_waiting(topics, denied.borrow_and_update().as_ref()));
        }
        pending::<()>().await;
    };
    tokio::select! {
        () = topics::wait_for_turn(&leadership) => {}
        () = tell => {}
    }
    info!(group = topics.group, "using Connect's topics");
    let topics = leadership.limit(topics);
    let opened = topics::open(&topics, walferry_admin::is_our_class).await?;
    Ok(Turn {
        leadership,
        topics,
        opened,
    })
}

async fn turn_is_lost(leadership: Option<&Leadership>) -> Failure {
    match leadership {
        Some(leadership) => topics::lost(leadership.turn()).await,
        None => pending().await,
    }
    let what = "the brokers and this process have not heard from each other for more than 10 s, so another process may have taken over: \
                the connectors have stopped at once, and nothing more of them is stored or confirmed";
    let hint = "nothing has to be done: this process waits until it is its turn again. Check what delayed it, such as Kafka, the network or \
                an overloaded machine";
    Failure::stop(Kind::TurnLost, what, hint)
}

/// Where connectors of the REST API are kept. A process whose connectors come from files can run without it.
fn shelf(data_dir: &Path, is_worker: bool) -> Result<BookChoice, Error> {
    match FileBook::open(data_dir) {
        Ok(book) => Ok(Ok(Box::new(book))),
        Err(error) if is_worker => Err(Error::failure("Walferry did not start", error.for_good())),
        Err(error) => Ok(Err(format!("{error} ({})", error.hint()))),
    }
}

async fn open_doors(wanted: Vec<Wanted>, settings: &RestSettings) -> Result<Vec<Door>, Error> {
    let mut doors = Vec::new();
    for wanted in wanted {
        let listener = walferry_admin::bind(wanted.address).await.map_err(|error| {
            let hint = error.hint();
            Error::new(Kind::AdminAddress, "the admin endpoint did not start").cause(Failure::chain(&error), hint)
        })?;
        // Port 0 means any free port.
        let address = listener.local_addr().unwrap_or(wanted.address);
        let url = wanted.url(address);
        match wanted.resources {
            Resources::OnlyAdmin => {
                info!(%address, loggers = %format_args!("{url}/admin/loggers"), "admin.listeners are open")
            }
            Resources::All | Resources::WithoutAdmin => {
                info!(%address, page = %format_args!("{url}/ui"), "admin endpoint listens");
            }
        }
        let asks_who = settings.doors.are_closed() || wanted.tls.as_ref().is_some_and(Tls::asks_for_certificates);
        if !address.ip().to_canonical().is_loopback() && !asks_who {
            warn!(
                %address,
                hint = "listen on 127.0.0.1, add users with walferry.rest.users.file, set ssl.client.auth=required, or restrict access \
                        with a firewall or a proxy with a login",
                "the admin endpoint has no login and may be reachable from other machines: they can see names of topics, tables and \
                 slots, and can create, change, pause, stop and remove connectors"
            );
        }
        doors.push(Door {
            listener,
            tls: wanted.tls,
            resources: wanted.resources,
        });
    }
    Ok(doors)
}

pub(crate) async fn signalled() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return pending().await;
    };
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    info!(
        signal = name,
        "stopping: delivering, storing and confirming what is in flight"
    );
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
