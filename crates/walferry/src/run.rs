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
use walferry_admin::{Admin, ClusterId, Door, Resources, Settings, Tls};
use walferry_config::Worker;
use walferry_diagnosis::Kind;
use walferry_engine::{
    Failure,
    supervisor::{Connectors, Supervisor},
};
use walferry_kafka::connect::{ConnectTopics, Leadership, cluster_id};
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
    worker::{
        Beginning, Herd, Shelf, states,
        topics::{self, Opened},
    },
};

/// Pause before the cluster is asked for its id again.
const CLUSTER_PAUSE: Duration = Duration::from_secs(30);

/// Runs until a signal, or until its only connector has failed for good.
pub(crate) fn run(args: &RunArgs, bars: &Bars) -> Result<(), Error> {
    // Where Linux gives huge pages unasked, 14 MiB more would be resident. Where that fails, nothing else is lost.
    disable_transparent_huge_pages(true).ok();
    let configuration = load(&args.connector)?;
    let wanted = listen::wanted(args.admin, &configuration.worker)?;
    let topics = topics_of(args, &configuration)?;
    let settings = rest::settings(&configuration.worker)?;
    let data_dir = data_dir(&args.data);
    let runtime = process::runtime().map_err(|failure| Error::failure("Walferry did not start", failure))?;
    let process = Process {
        wanted,
        bars,
        settings,
        topics,
        data_dir,
    };
    let served = LocalSet::new().block_on(&runtime, process.run(configuration));
    // A read that hangs, say of a file that a config provider names, must not hold up the end.
    runtime.shutdown_background();
    bars.clear();
    served
}

/// Connect's topics, where they hold the state of this worker: they are named, connectors come from no file, and no folder is asked for.
fn topics_of(args: &RunArgs, configuration: &Configuration) -> Result<Option<ConnectTopics>, Error> {
    if args.data.data_dir.is_some() || !configuration.connectors.is_empty() {
        return Ok(None);
    }
    ConnectTopics::of(&configuration.worker, &configuration.bootstrap_servers)
        .map_err(|failure| Error::failure("the configuration has a problem", failure))
}

struct Process<'a> {
    wanted: Vec<Wanted>,
    bars: &'a Bars,
    settings: Settings,
    topics: Option<ConnectTopics>,
    data_dir: PathBuf,
}

/// What the turn of a process on Connect's topics is.
struct Held {
    leadership: Leadership,
    opened: Opened,
}

impl Process<'_> {
    async fn run(mut self, configuration: Configuration) -> Result<(), Error> {
        let doors = open_doors(std::mem::take(&mut self.wanted), &self.settings).await?;
        let address = doors.first().and_then(|door| door.listener.local_addr().ok());
        let did_not_start = |failure| Error::failure("Walferry did not start", failure);
        let held = match self.topics.take() {
            None => None,
            Some(topics) => match self.wait_for_turn(&doors, &topics).await {
                Some(held) => Some(held.map_err(did_not_start)?),
                // Somebody has stopped it while it waited.
                None => return Ok(()),
            },
        };
        let is_worker = configuration.connectors.is_empty();
        let (shelf, topic, states, leadership): (Shelf, _, _, _) = match held {
            None => (shelf(&self.data_dir, is_worker)?, None, None, None),
            Some(Held { leadership, opened }) => (
                Ok(Box::new(opened.book)),
                Some(opened.offsets),
                Some(opened.states),
                Some(leadership),
            ),
        };
        let offsets = Offsets {
            data_dir: self.data_dir,
            topic,
        };
        let cluster = Arc::new(ClusterId::default());
        spawn_local(ask_for_cluster(
            configuration.worker.clone(),
            configuration.bootstrap_servers.clone(),
            cluster.clone(),
        ));
        let beginning = Beginning {
            worker: configuration.worker,
            bootstrap_servers: configuration.bootstrap_servers,
            offsets,
            loaded: configuration.connectors,
            bars: self.bars.clone(),
        };
        let herd = Herd::start(beginning, shelf)?;
        if let Some(states) = states {
            let address = address.unwrap_or(listen::DEFAULT);
            let worker_id = self.settings.advertised.clone().unwrap_or_else(|| address.to_string());
            spawn_local(states::tell(herd.clone(), states, worker_id));
        }
        let stop = watch::Sender::new(false);
        let admin = Admin {
            herder: Arc::new(herd.clone()),
            loggers: Arc::new(logging::Levels),
            settings: self.settings,
            kafka_cluster_id: cluster,
            ..Admin::read_only(Arc::new(herd.supervisor().clone()), env!("CARGO_PKG_VERSION"))
        };
        let admin = spawn_local(walferry_admin::serve(doors, admin, stopped(stop.subscribe())));
        let outcome = tokio::select! {
            () = signalled() => Ok(()),
            failure = herd.failure_of_only() => Err(failure),
            failure = turn_is_lost(leadership.as_ref()) => {
                Error::failure("another Walferry works on Connect's topics now", failure.clone()).tell();
                Err(failure)
            }
        };
        stop.send_replace(true);
        let stopped = herd.supervisor().stop_all().await;
        let _ = admin.await;
        // Not before everything is stored: the next one begins then.
        drop(leadership);
        // What has failed is told already.
        outcome
            .and(stopped)
            .map_err(|failure| Error::failure("a connector has stopped", failure).already_told())
    }

    /// Prepares the topics and waits until no other Walferry works on them. Meanwhile the endpoint says so. `None` where the process is
    /// to end.
    async fn wait_for_turn(&self, doors: &[Door], topics: &ConnectTopics) -> Option<Result<Held, Failure>> {
        let stop = watch::Sender::new(false);
        let settings = Settings {
            standby: Some(format!(
                "This Walferry waits: it works on Connect's topics of group {:?} as soon as no other Walferry does.",
                topics.group
            )),
            ..self.settings.clone()
        };
        let nobody: Arc<dyn Connectors> = Arc::new(Supervisor::default());
        let admin = Admin {
            settings,
            ..Admin::read_only(nobody, env!("CARGO_PKG_VERSION"))
        };
        let Ok(doors) = doors.iter().map(Door::again).collect() else {
            let what = "the admin endpoint's socket cannot be used twice";
            return Some(Err(Failure::retry(Kind::AdminAddress, what)));
        };
        let served = spawn_local(walferry_admin::serve(doors, admin, stopped(stop.subscribe())));
        let held = tokio::select! {
            () = signalled() => None,
            held = hold(topics) => Some(held),
        };
        stop.send_replace(true);
        let _ = served.await;
        held
    }
}

/// Learns the id of the Kafka cluster when somebody first wants to know it.
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

async fn hold(topics: &ConnectTopics) -> Result<Held, Failure> {
    topics::prepare(topics).await?;
    let leadership = Leadership::seek(topics)?;
    info!(group = topics.group, "waiting for the turn to work on Connect's topics");
    topics::wait_for_turn(&leadership).await;
    info!(group = topics.group, "working on Connect's topics");
    let opened = topics::open(topics, walferry_admin::is_our_class).await?;
    Ok(Held { leadership, opened })
}

async fn turn_is_lost(leadership: Option<&Leadership>) -> Failure {
    match leadership {
        Some(leadership) => topics::lost(leadership.turn()).await,
        None => pending().await,
    }
    let what =
        "the brokers have not heard of this process for longer than 10 s, and have given its turn to another one";
    let hint = "start it again: it waits until it is its turn. Look at what held it up: the network, or a machine without time for it";
    Failure::stop(Kind::TurnLost, what, hint)
}

/// Where connectors that come by the REST API are kept. A process that has its connectors from files runs without such a place, too.
fn shelf(data_dir: &Path, is_worker: bool) -> Result<Shelf, Error> {
    match FileBook::open(data_dir) {
        Ok(book) => Ok(Ok(Box::new(book))),
        Err(error) if is_worker => Err(Error::failure("Walferry did not start", error.for_good())),
        Err(error) => Ok(Err(format!("{error} ({})", error.hint()))),
    }
}

async fn open_doors(wanted: Vec<Wanted>, settings: &Settings) -> Result<Vec<Door>, Error> {
    let mut doors = Vec::new();
    for wanted in wanted {
        let listener = walferry_admin::bind(wanted.address).await.map_err(|error| {
            let hint = error.hint();
            Error::new(Kind::AdminAddress, "the admin endpoint did not start").cause(Failure::chain(&error), hint)
        })?;
        // Port 0 is whichever is free.
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
                hint = "listen on 127.0.0.1, name users in walferry.rest.users.file, set ssl.client.auth=required, or let a firewall or a \
                        proxy with a login decide who reaches it",
                "the admin endpoint has no login, and other machines may reach it: they see names of topics, tables and slots, and can \
                 create, change, pause, stop and remove connectors"
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

async fn signalled() {
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
        "stopping: what is under way is delivered, stored and confirmed"
    );
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
