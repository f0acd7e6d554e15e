//! `walferry run`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::thread::disable_transparent_huge_pages;
use tokio::{sync::watch, task::LocalSet};
use tracing::{info, warn};
use walferry_admin::connectors::Connectors;
use walferry_admin::{Admin, BoundListener, ClusterId, RestSettings, Standby};
use walferry_config::Worker;
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::Failure;
use walferry_kafka::connect::{ConnectTopics, Membership};
use walferry_offset::{Folder, private};
use walferry_worker::{
    cluster,
    duty::Duty,
    member::{self, JoinSettings, Joined},
    moves, process,
    states::{StateReports, StateWriter, StateWriterTask},
    storage::{SharedStorage, Storage},
    stores::Offsets,
    supervisor::Supervisor,
    topics,
    vital::{spawn_vital, vital},
    worker::{ConfigWriterTask, ManagedConnectors, SharedStore, ShowProgress, WorkerOutput, WorkerParts},
};

use crate::{
    cli::{DataArgs, RunArgs},
    commands::{container, offsets::skip_record::SkipRequests, take::take},
    error::{Error, report_connector},
    load::{Configuration, data_dir, load},
    logging,
    progress::{self, Bars},
    serve::{
        forward::OtherWorkers,
        listen::{self, ListenerSettings, RunningEndpoint},
        otlp::Exporter,
        rest,
    },
    signals::{self, signalled},
};

/// Runs until a signal, or until its only connector has failed for good.
pub(crate) fn run(args: &RunArgs, bars: &Bars) -> Result<(), Error> {
    let args = &container::completed(args.clone());
    // If Linux uses huge pages by default, 14 MiB more would be resident. If this call fails, nothing else is lost.
    disable_transparent_huge_pages(true).ok();
    process::forbid_core_dumps();
    let configuration = load(&args.connector)?;
    let settings = rest::settings(&configuration.worker)?;
    let default = if args.in_container {
        listen::default_in_container(&settings)
    } else {
        listen::DEFAULT
    };
    let wanted = listen::wanted(args.admin, &configuration.worker, default)?;
    if args.in_container
        && args.admin.is_none()
        && configuration.worker.listeners.is_empty()
        && default.ip().is_loopback()
    {
        listen::tell_that_only_the_container_gets_in(default);
    }
    let topics = match args.take.is_empty() {
        true => {
            if let Some(warning) = topics_set_aside(&args.data, &configuration.worker) {
                let (code, hint) = (warning.code(), warning.hint.as_deref());
                warn!(code, hint, "{}", warning.sentence());
            }
            topics_of(&args.data, &configuration.worker, &configuration.bootstrap_servers)
                .map_err(|failure| Error::failure("the configuration has a problem", failure))?
        }
        // The topics are those of a cluster that runs on.
        false => None,
    };
    let exporter = Exporter::of(configuration.worker.otlp.as_ref())?;
    let data_dir = data_dir(&args.data);
    tighten(&data_dir);
    if topics.is_some() {
        tell_of_folder(&data_dir);
    }
    take(args, &configuration, &data_dir)?;
    let runtime = process::runtime().map_err(|failure| Error::failure("Walferry did not start", failure))?;
    let process = Process {
        wanted,
        bars,
        settings,
        exporter,
        topics,
        data_dir,
        others: None,
        is_to_end: watch::Sender::new(false),
    };
    let served = LocalSet::new().block_on(&runtime, vital(process.run(configuration)));
    // A read that hangs, for example of a file of a config provider, must not delay the end.
    runtime.shutdown_background();
    bars.clear();
    served
}

/// A worker that keeps all in Kafka's topics writes to a folder, too, which nobody has named.
fn tell_of_folder(data_dir: &Path) {
    match Folder::probe(data_dir, ".") {
        Ok(()) => info!(
            directory = ?data_dir,
            "connectors and offsets are in Kafka's topics; only the page's history, and gaps for `walferry offsets skip-gap`, are kept in a \
             folder, which need not outlive this process"
        ),
        Err(error) => warn!(
            directory = ?data_dir,
            %error,
            hint = "let the user that runs Walferry write to it, or name another folder with the variable XDG_STATE_HOME",
            "connectors and offsets are in Kafka's topics, but there is no folder for the page's history and for gaps, so `walferry offsets \
             skip-gap` could not reach a connector; nothing else is affected"
        ),
    }
}

/// Closes the data directory to other users of the machine, and logs what was open.
fn tighten(data_dir: &Path) {
    let tightened = match private::tighten(data_dir) {
        Ok(tightened) => tightened,
        // What the connectors cannot use, they report themselves.
        Err(error) => {
            warn!(directory = ?data_dir, %error, "could not find out who may read the data directory");
            return;
        }
    };
    if let Some((first, mode)) = tightened.closed.first() {
        info!(
            directory = ?data_dir,
            closed = tightened.closed.len(),
            first = ?first,
            mode = %format_args!("{mode:04o}"),
            "files or folders of the data directory were open to other users of this machine; now they are for their owner alone"
        );
    }
    if tightened.shared {
        warn!(
            directory = ?data_dir,
            hint = "give Walferry a data directory of its own, with the mode 0700",
            "other users of this machine can list the data directory: it is left open, because other things than Walferry's are in it"
        );
    }
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
    Some(warning)
}

struct Process<'a> {
    wanted: Vec<ListenerSettings>,
    bars: &'a Bars,
    settings: RestSettings,
    exporter: Option<Exporter>,
    topics: Option<ConnectTopics>,
    data_dir: PathBuf,
    /// The other workers of the group, if there is one.
    others: Option<OtherWorkers>,
    /// Whether a signal has asked the process to end.
    is_to_end: watch::Sender<bool>,
}

/// How the work of a process has ended.
enum ProcessEnd {
    /// The process is to end, too.
    Over(Result<(), Error>),
    /// Other workers may run the connectors of this process now.
    MembershipLost,
}

/// Waits until the process is asked to end.
async fn asked_to_end(mut is_to_end: watch::Receiver<bool>) {
    // The sender lives as long as the process.
    let _ = is_to_end.wait_for(|is_to_end| *is_to_end).await;
}

/// Does what the group has given to this process, until the membership is lost. Then it waits for ever.
async fn follow_group(membership: Option<&Membership>, connectors: ManagedConnectors, reports: Option<StateReports>) {
    if let Some(membership) = membership {
        moves::follow(membership, connectors, reports).await;
    }
    std::future::pending().await
}

/// Ends all connectors: in order if the process is to end, at once if others may run them.
async fn end_connectors(
    ending: ProcessEnd,
    connectors: &ManagedConnectors,
    membership: Option<&Membership>,
) -> ProcessEnd {
    let ProcessEnd::Over(outcome) = ending else {
        connectors.supervisor().abandon_all().await;
        return ProcessEnd::MembershipLost;
    };
    // An orderly end takes its time, and the membership may be lost meanwhile.
    let stopped = tokio::select! {
        stopped = connectors.supervisor().stop_all() => stopped,
        _ = member::is_lost(membership) => {
            connectors.supervisor().abandon_all().await;
            let error = Error::failure("the last offsets could not be stored", member::lost_while_stopping());
            return ProcessEnd::Over(outcome.and(Err(error)));
        }
    };
    let stopped = stopped.map_err(|failure| Error::failure("a connector has stopped", failure).already_told());
    ProcessEnd::Over(outcome.and(stopped))
}

impl Process<'_> {
    async fn run(mut self, configuration: Configuration) -> Result<(), Error> {
        // From here on, no signal to end is missed, whatever the process does meanwhile.
        signals::catch();
        let signal = self.is_to_end.clone();
        spawn_vital(async move {
            signalled().await;
            signal.send_replace(true);
        });
        let wanted = std::mem::take(&mut self.wanted);
        let hosts: Vec<_> = wanted.iter().map(|wanted| wanted.host.clone()).collect();
        let mut doors = listen::open(wanted, &self.settings).await?;
        self.settings.host_names = rest::host_names(&configuration.worker.rest_api, &hosts);
        self.settings.advertised = Some(rest::worker_id(&configuration.worker.rest_api, &doors, &hosts));
        let url = rest::worker_url(&configuration.worker.rest_api, &doors, &hosts);
        let did_not_start = |failure| Error::failure("Walferry did not start", failure);
        let topics = self.topics.take();
        if let Some(topics) = &topics {
            let others = OtherWorkers::new(topics.clone(), url.clone(), &configuration.worker)?;
            self.settings.forwarder = Some(Arc::new(others.clone()));
            self.others = Some(others);
        }
        let settings = JoinSettings {
            address: url,
            shares: configuration.connectors.is_empty(),
        };
        let cluster = Arc::new(ClusterId::default());
        spawn_vital(cluster::ask(
            configuration.worker.clone(),
            configuration.bootstrap_servers.clone(),
            cluster.clone(),
        ));
        loop {
            let joined = match &topics {
                None => None,
                Some(topics) => match self.join(&doors, topics, &settings).await {
                    Some(joined) => Some(joined.map_err(did_not_start)?),
                    // The process was stopped while it waited.
                    None => return Ok(()),
                },
            };
            // The local tasks end with the connectors.
            let tasks = LocalSet::new();
            let work = self.work(&mut doors, &configuration, joined, cluster.clone());
            match tasks.run_until(work).await {
                ProcessEnd::Over(outcome) => return outcome,
                ProcessEnd::MembershipLost => {}
            }
        }
    }

    /// How a person is shown what connectors do.
    fn output(&self) -> WorkerOutput {
        let bars = self.bars.clone();
        let show: ShowProgress = Arc::new(move |status| Box::pin(progress::show(bars.clone(), status)));
        WorkerOutput {
            progress: self.bars.are_shown().then_some(show),
            report: report_connector,
        }
    }

    /// Runs the connectors until the process is to end, or until others may run them.
    async fn work(
        &self,
        doors: &mut Vec<BoundListener>,
        configuration: &Configuration,
        joined: Option<Joined>,
        cluster: Arc<ClusterId>,
    ) -> ProcessEnd {
        let mut work = match self.begin(doors, configuration, joined, cluster) {
            Ok(work) => work,
            Err(error) => return ProcessEnd::Over(Err(error)),
        };
        let ending = work.until_its_end(self.is_to_end.subscribe()).await;
        // While the connectors end, requests are refused instead of waiting. Other workers take one whose address refuses connections for gone,
        // so the listeners stay as long as the membership.
        let closed = match ending {
            ProcessEnd::Over(_) => Some(listen::turn_away(std::mem::take(doors))),
            ProcessEnd::MembershipLost => None,
        };
        let ending = work.end(ending, self.exporter.as_ref()).await;
        if let Some(closed) = closed {
            closed.abort();
        }
        ending
    }

    /// Starts the connectors, and opens the endpoint to requests about them.
    fn begin(
        &self,
        doors: &[BoundListener],
        configuration: &Configuration,
        joined: Option<Joined>,
        cluster: Arc<ClusterId>,
    ) -> Result<RunningParts, Error> {
        let storage = Storage::open(joined, &self.data_dir, configuration.connectors.is_empty())
            .map_err(|failure| Error::failure("Walferry did not start", failure))?;
        let beginning = WorkerParts {
            worker: configuration.worker.clone(),
            bootstrap_servers: configuration.bootstrap_servers.clone(),
            offsets: Offsets {
                data_dir: self.data_dir.clone(),
                topic: storage.offsets,
            },
            loaded: configuration.connectors.clone(),
            output: self.output(),
            shared: storage.shared.as_ref().map(|shared| SharedStore {
                duty: Duty::now(&shared.membership),
                changed: shared.configs_changed.clone(),
                states: shared.read_states.clone(),
            }),
        };
        let (connectors, config_writer) = ManagedConnectors::start(beginning, storage.store)
            .map_err(|failure| Error::failure("the configuration has a problem", failure))?;
        let doors = listen::again(doors).map_err(|failure| Error::failure("Walferry did not start", failure))?;
        let state_writer = storage.shared.as_ref().map(|shared| {
            let worker_id = self.settings.advertised.clone().unwrap_or_default();
            let (log, read) = (shared.states.clone(), shared.read_states.clone());
            StateWriter::new(connectors.clone(), log, read, worker_id, self.settings.topic_tracking).start()
        });
        let mut settings = self.settings.clone();
        if let (Some(others), Some(shared)) = (&self.others, &storage.shared) {
            let member = others.as_member(connectors.duties(), &shared.membership);
            settings.forwarder = Some(Arc::new(member));
        }
        let admin = Admin {
            manager: Arc::new(connectors.clone()),
            loggers: Arc::new(logging::Levels),
            settings,
            kafka_cluster_id: cluster,
            history: Some(self.data_dir.join(private::HISTORY)),
            record_skips: Some(Arc::new(SkipRequests {
                data_dir: self.data_dir.clone(),
            })),
            ..Admin::read_only(Arc::new(connectors.supervisor().clone()), env!("CARGO_PKG_VERSION"))
        };
        if let Some(exporter) = &self.exporter {
            spawn_vital(exporter.clone().run(admin.clone()));
        }
        Ok(RunningParts {
            connectors,
            config_writer,
            state_writer,
            served: RunningEndpoint::start(doors, admin.clone()),
            admin,
            shared: storage.shared,
        })
    }

    /// Prepares the topics, joins their workers, and waits until this process may work. Meanwhile the endpoint reports this. `None` if the process
    /// is to end.
    async fn join(
        &self,
        doors: &[BoundListener],
        topics: &ConnectTopics,
        settings: &JoinSettings,
    ) -> Option<Result<Joined, Failure>> {
        let standby = Standby::new(topics::preparing(topics));
        let rest_settings = RestSettings {
            standby: Some(standby.clone()),
            ..self.settings.clone()
        };
        let nobody: Arc<dyn Connectors> = Arc::new(Supervisor::default());
        let admin = Admin {
            settings: rest_settings,
            ..Admin::read_only(nobody, env!("CARGO_PKG_VERSION"))
        };
        let doors = match listen::again(doors) {
            Ok(doors) => doors,
            Err(failure) => return Some(Err(failure)),
        };
        let mut served = RunningEndpoint::start(doors, admin);
        let joined = tokio::select! {
            () = asked_to_end(self.is_to_end.subscribe()) => None,
            joined = Joined::join(topics, settings, &standby) => Some(joined),
        };
        served.stop();
        served.ended().await;
        joined
    }
}

/// The connectors at work, and the endpoint.
struct RunningParts {
    connectors: ManagedConnectors,
    config_writer: ConfigWriterTask,
    state_writer: Option<StateWriterTask>,
    served: RunningEndpoint,
    admin: Admin,
    shared: Option<SharedStorage>,
}

impl RunningParts {
    /// Waits until something ends it.
    async fn until_its_end(&mut self, is_to_end: watch::Receiver<bool>) -> ProcessEnd {
        let membership = self.shared.as_ref().map(|shared| &shared.membership);
        let reports = self.state_writer.as_ref().map(StateWriterTask::reports);
        let connectors = self.connectors.clone();
        tokio::select! {
            () = asked_to_end(is_to_end) => ProcessEnd::Over(Ok(())),
            failure = self.connectors.failure_of_only() => {
                // The failure was reported when it happened.
                ProcessEnd::Over(Err(Error::failure("a connector has stopped", failure).already_told()))
            }
            failure = self.config_writer.ended() => ProcessEnd::Over(Err(Error::failure("Walferry has stopped", failure))),
            () = follow_group(membership, connectors, reports) => unreachable!("it never ends"),
            failure = member::is_lost(membership) => {
                Error::failure("other Walferry processes may run the connectors of this one now", failure).tell();
                ProcessEnd::MembershipLost
            }
        }
    }

    /// Ends everything in order.
    async fn end(mut self, ending: ProcessEnd, exporter: Option<&Exporter>) -> ProcessEnd {
        self.served.stop();
        // What the connectors go through while they end is not written.
        let state_writer = match self.state_writer {
            Some(state_writer) => state_writer.stop().await,
            None => None,
        };
        let ending = end_connectors(
            ending,
            &self.connectors,
            self.shared.as_ref().map(|shared| &shared.membership),
        )
        .await;
        self.served.ended().await;
        if let Some(state_writer) = state_writer
            && matches!(ending, ProcessEnd::Over(_))
        {
            state_writer.tell_end().await;
        }
        // Leave the group only after everything is stored, because others begin then.
        drop(self.shared);
        if let Some(exporter) = exporter {
            exporter.finish(&self.admin).await;
        }
        ending
    }
}
