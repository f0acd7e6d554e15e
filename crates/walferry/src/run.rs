//! `walferry run`.

use std::{
    collections::BTreeMap,
    future::pending,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::thread::disable_transparent_huge_pages;
use serde_json::Value as Json;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::{LocalSet, spawn_blocking, spawn_local},
    time::sleep,
};
use tracing::{info, warn};
use walferry_admin::{Admin, ClusterId, Door, Resources, RestSettings, Standby, Tls};
use walferry_config::Worker;
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::{
    Failure,
    book::Book as _,
    supervisor::{Connectors, Supervisor},
};
use walferry_kafka::connect::{ConnectTopics, Leadership, OffsetLog, StateLog, Subject, cluster_id};
use walferry_offset::FileBook;

use crate::{
    assemble::Offsets,
    cli::{DataArgs, RunArgs},
    container,
    error::Error,
    listen::{self, Wanted},
    load::{Configuration, data_dir, load},
    logging,
    otlp::Exporter,
    process,
    progress::Bars,
    rest,
    take::take,
    worker::{
        Beginning, BookChoice, Herd, OpenBook,
        states::Teller,
        topics::{self, Opened},
    },
};

/// Pause before asking the cluster for its id again.
const CLUSTER_PAUSE: Duration = Duration::from_secs(30);

/// Runs until a signal, or until its only connector has failed for good.
pub(crate) fn run(args: &RunArgs, bars: &Bars) -> Result<(), Error> {
    let args = &container::completed(args.clone());
    // If Linux uses huge pages by default, 14 MiB more would be resident. If this call fails, nothing else is lost.
    disable_transparent_huge_pages(true).ok();
    let configuration = load(&args.connector)?;
    let default = if args.in_container {
        listen::IN_CONTAINER
    } else {
        listen::DEFAULT
    };
    let wanted = listen::wanted(args.admin, &configuration.worker, default)?;
    let topics = match args.take.is_empty() {
        true => {
            topics_set_aside(&args.data, &configuration.worker);
            topics_of(&args.data, &configuration.worker, &configuration.bootstrap_servers)
                .map_err(|failure| Error::failure("the configuration has a problem", failure))?
        }
        // The topics are those of a cluster that runs on.
        false => None,
    };
    let settings = rest::settings(&configuration.worker)?;
    let exporter = Exporter::of(configuration.worker.otlp.as_ref())?;
    let data_dir = data_dir(&args.data);
    take(args, &configuration, &data_dir)?;
    let runtime = process::runtime().map_err(|failure| Error::failure("Walferry did not start", failure))?;
    let process = Process {
        wanted,
        bars,
        settings,
        exporter,
        topics,
        data_dir,
    };
    let served = LocalSet::new().block_on(&runtime, process.run(configuration));
    // A read that hangs, for example of a file of a config provider, must not delay the end.
    runtime.shutdown_background();
    bars.clear();
    served
}

/// Connect's topics, if they hold the state of this worker: a worker file or the environment names them, and no data directory is requested.
/// Connectors of files run beside those of the topics.
pub(crate) fn topics_of(data: &DataArgs, worker: &Worker, servers: &str) -> Result<Option<ConnectTopics>, Failure> {
    match data.data_dir {
        Some(_) => Ok(None),
        None => ConnectTopics::of(worker, servers),
    }
}

/// Warns if the worker names Connect's topics and a data directory takes their place.
pub(crate) fn topics_set_aside(data: &DataArgs, worker: &Worker) -> Option<Diagnosis> {
    let dir = data.data_dir.as_ref()?;
    let named = [
        ("config.storage.topic", &worker.config_storage),
        ("offset.storage.topic", &worker.offset_storage),
        ("status.storage.topic", &worker.status_storage),
    ];
    let named: Vec<_> = named
        .into_iter()
        .filter(|(_, options)| options.get("topic").is_some())
        .map(|(name, _)| name)
        .collect();
    if named.is_empty() {
        return None;
    }
    let verb = if named.len() == 1 { "has" } else { "have" };
    let text = format!(
        "{verb} no effect: connectors and offsets are kept in files in {}, because `--data-dir` is set",
        dir.display()
    );
    let warning = Diagnosis::warning(Kind::PropertyWithoutEffect, text)
        .at(named.join(", "))
        .with_hint("leave `--data-dir` out to keep them in Kafka Connect's topics; otherwise remove these properties");
    let (code, hint) = (warning.code(), warning.hint.as_deref());
    warn!(code, hint, "{}", warning.sentence());
    Some(warning)
}

struct Process<'a> {
    wanted: Vec<Wanted>,
    bars: &'a Bars,
    settings: RestSettings,
    exporter: Option<Exporter>,
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
    states: Option<(StateLog, BTreeMap<Subject, Json>)>,
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
        let wanted = std::mem::take(&mut self.wanted);
        let hosts: Vec<_> = wanted.iter().map(|wanted| wanted.host.clone()).collect();
        let mut doors = open_doors(wanted, &self.settings).await?;
        self.settings.advertised = Some(rest::worker_id(&configuration.worker.rest, &doors, &hosts));
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
            book: Ok(opened.book),
            offsets: Some(opened.offsets),
            states: Some((opened.states, opened.read_states)),
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
        let teller = storage.states.map(|(log, read)| {
            let worker_id = self.settings.advertised.clone().unwrap_or_default();
            Teller::new(herd.clone(), log, read, worker_id, self.settings.topic_tracking).start()
        });
        let stop = watch::Sender::new(false);
        let admin = Admin {
            herder: Arc::new(herd.clone()),
            loggers: Arc::new(logging::Levels),
            settings: self.settings.clone(),
            kafka_cluster_id: cluster,
            ..Admin::read_only(Arc::new(herd.supervisor().clone()), env!("CARGO_PKG_VERSION"))
        };
        if let Some(exporter) = &self.exporter {
            spawn_local(exporter.clone().run(admin.clone()));
        }
        let shown = admin.clone();
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
        // What the connectors go through while they end is not written.
        let teller = match teller {
            Some(teller) => teller.stop().await,
            None => None,
        };
        let ending = end_connectors(ending, &herd, leadership.as_ref()).await;
        let _ = admin.await;
        if let Some(teller) = teller
            && matches!(ending, Ending::Over(_))
        {
            teller.tell_end().await;
        }
        // Give up the turn only after everything is stored, because the next process begins then.
        drop(leadership);
        if let Some(exporter) = &self.exporter {
            exporter.finish(&shown).await;
        }
        ending
    }

    /// Prepares the topics, and waits until no other Walferry works on them. Meanwhile the endpoint reports this. `None` if the process is
    /// to end.
    async fn wait_for_turn(&self, doors: &[Door], topics: &ConnectTopics) -> Option<Result<Turn, Failure>> {
        let stop = watch::Sender::new(false);
        let standby = Standby::new(topics::preparing(topics));
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
    topics::prepare(topics, standby).await?;
    let leadership = Leadership::seek(topics)?;
    info!(group = topics.group, "waiting for its turn to use Connect's topics");
    let (mut denied, mut joined) = (leadership.denied(), leadership.joined());
    let tell = async {
        loop {
            let stage = topics::waiting(topics, *joined.borrow_and_update(), denied.borrow_and_update().as_ref());
            standby.set(stage);
            // The senders live as long as the leadership.
            tokio::select! {
                Ok(()) = denied.changed() => {}
                Ok(()) = joined.changed() => {}
                else => pending().await,
            }
        }
    };
    tokio::select! {
        () = topics::wait_for_turn(&leadership) => {}
        () = tell => {}
    }
    info!(group = topics.group, "using Connect's topics");
    standby.set(topics::reading(topics));
    let topics = leadership.limit(topics);
    let opened = topics::open(&topics, walferry_admin::is_our_class, standby).await?;
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
        Ok(mut book) => {
            let entries = book.entries();
            let entries = entries.map_err(|failure| Error::failure("Walferry did not start", failure))?;
            Ok(Ok(OpenBook {
                book: Box::new(book),
                entries,
            }))
        }
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
