//! `walferry run --take`: takes over single connectors of a Kafka Connect cluster that continues to run.
//!
//! The order of the steps matters. Connect stops the connector before its offset is read, and the connector enters the store only after
//! its offset is stored here. So it never runs in both places, and never runs here without its offset.
//!
//! Each later start asks the cluster whether the connector has gone back to it meanwhile. A forgotten command must not take the slot from it.

use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value as Json, json};
use tracing::{info, warn};
use ureq::Agent;
use walferry_config::{Connector, quoted};
use walferry_diagnosis::{Kind, printed::shell_word};
use walferry_engine::{
    WantedState,
    connector_store::{self, ConnectorEntry, ConnectorStore as _},
    store::StoredOffset,
};
use walferry_kafka::connect::{ConnectTopics, StateLog, TopicConnectorStore};
use walferry_keystore::https::error_text;
use walferry_offset::{FileConnectorStore, FileStore, import};
use walferry_postgres::SlotWatch;
use walferry_worker::{http, loaded::load_configuration, process, stores};

use crate::{cli::RunArgs, commands::endpoint, error::Error, load::Configuration};

/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(30);
/// How long the question may take whether a connector has gone back. The cluster may be gone for good, and the start must not wait for it.
const QUESTION: Duration = Duration::from_secs(5);
/// How long the cluster may take to stop a connector: its workers rebalance, and the task ends.
const STOPS: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(500);

/// Takes over the connectors that the arguments name, unless that was done before. Without such arguments, it does nothing. Blocks.
pub(crate) fn take(args: &RunArgs, configuration: &Configuration, data_dir: &Path) -> Result<(), Error> {
    // A process that takes nothing over may have no writable folder, or share its folder with the process that holds the store.
    if args.take.is_empty() {
        return Ok(());
    }
    let unusable = |failure| Error::failure("Walferry did not start", failure);
    let mut store = FileConnectorStore::open(data_dir).map_err(|error| unusable(error.for_good()))?;
    let known = store.entries().map_err(unusable)?;
    for name in &args.take {
        let before = known.iter().find(|entry| entry.name == *name);
        if let Some(entry) = before
            && !goes_again(args, configuration, data_dir, entry)?
        {
            continue;
        }
        let cluster = Cluster::of(args, configuration, name, REQUEST)?;
        let taking = Taking {
            name,
            cluster: &cluster,
            configuration,
            data_dir,
            before: before.map(|entry| entry.target),
        };
        taking.take(&mut store)?;
    }
    Ok(())
}

/// Whether a connector that was taken over before is to be taken over again, because the cluster has run it meanwhile and left it again.
///
/// # Errors
/// The cluster is to run it.
fn goes_again(
    args: &RunArgs,
    configuration: &Configuration,
    data_dir: &Path,
    entry: &ConnectorEntry,
) -> Result<bool, Error> {
    let name = &entry.name;
    let (state, place) = match Return::look(args, configuration, name) {
        Return::Left => {
            info!(
                connector = name,
                "the connector was taken over before: it goes on from its offset here"
            );
            return Ok(false);
        }
        Return::Stopped(offsets) => {
            if is_ahead(&offsets, configuration, data_dir, entry) {
                info!(
                    connector = name,
                    "the connector was taken over before, and the Kafka Connect cluster has run it since then: its offset there is ahead of \
                     the one here, so it is taken over again"
                );
                return Ok(true);
            }
            info!(
                connector = name,
                "the connector was taken over before: it goes on from its offset here"
            );
            return Ok(false);
        }
        Return::Unknown(why) => {
            info!(
                connector = name,
                why,
                "the connector was taken over before: it goes on from its offset here. Kafka Connect could not be asked whether it runs it \
                 again"
            );
            return Ok(false);
        }
        Return::Back { state, place } => (state, place),
    };
    let error = Error::new(Kind::NotTaken, format!("connector {name:?} is not started here"));
    Err(error.cause(
        format!("it was taken over before, but it has gone back: {place} has it as {state}, and only one process can read its slot"),
        Some(format!(
            "to leave it there, remove `--take {}` from the command and its entry from {}; to run it here, stop it there with PUT \
             /connectors/{}/stop: the next start takes it over again, with the offset that it has there",
            shell_word(name),
            FileConnectorStore::file(data_dir).display(),
            endpoint::encoded(name)
        )),
    ))
}

/// Whether the offset in the cluster is ahead of the one here.
fn is_ahead(offsets: &Json, configuration: &Configuration, data_dir: &Path, entry: &ConnectorEntry) -> bool {
    let (connector, _) = load_configuration(&entry.name, &entry.configuration, &configuration.worker);
    let Some(connector) = connector.map(|checked| checked.connector) else {
        return false;
    };
    let partition = stores::partition(&connector);
    let there = import(&partition, &offsets.to_string()).ok();
    // What cannot be read stops the connector, with its reason.
    let here = FileStore::peek(data_dir, &partition).ok().flatten();
    match (there, here) {
        (Some(there), Some(here)) => position(&there.offset) > position(&here),
        _ => false,
    }
}

/// How far an offset is.
fn position(offset: &StoredOffset) -> u64 {
    offset.connect.lsn_proc.max(offset.connect.lsn).unwrap_or_default()
}

/// What the cluster has of a connector that was taken from it.
enum Return {
    /// It does not have it, or is not to run it.
    Left,
    /// It is stopped there, with these offsets.
    Stopped(Json),
    /// The cluster is to run it.
    Back { state: String, place: String },
    /// Nobody says.
    Unknown(String),
}

impl Return {
    /// Asks the cluster, and its configuration topic if no worker answers.
    fn look(args: &RunArgs, configuration: &Configuration, name: &str) -> Self {
        match Cluster::of(args, configuration, name, QUESTION) {
            Ok(cluster) => Self::ask(&cluster, name).unwrap_or_else(|why| Self::of_topic(configuration, name, why)),
            Err(error) => {
                let causes: Vec<_> = error
                    .causes()
                    .into_iter()
                    .map(|cause| cause.sentence().into_owned())
                    .collect();
                Self::of_topic(configuration, name, causes.join("; "))
            }
        }
    }

    fn ask(cluster: &Cluster, name: &str) -> Result<Self, String> {
        let path = format!("/connectors/{}", endpoint::encoded(name));
        let failed = |error: &ureq::Error| format!("Kafka Connect at {cluster} does not answer: {}", why(error));
        let (code, status) = cluster
            .ask("GET", &format!("{path}/status"))
            .map_err(|error| failed(&error))?;
        let state = status["connector"]["state"].as_str();
        match (code, state) {
            (404, _) => Ok(Self::Left),
            (200, Some("STOPPED")) => {
                let (code, offsets) = cluster
                    .ask("GET", &format!("{path}/offsets"))
                    .map_err(|error| failed(&error))?;
                match code {
                    200 => Ok(Self::Stopped(offsets)),
                    _ => Ok(Self::Left),
                }
            }
            (200, Some(state)) => Ok(Self::Back {
                state: walferry_config::quoted(state),
                place: format!("Kafka Connect at {cluster}"),
            }),
            _ => Err(format!("Kafka Connect at {cluster} answers {code}")),
        }
    }

    /// What the configuration topic says, which outlives the workers.
    fn of_topic(configuration: &Configuration, name: &str, why: String) -> Self {
        let topics = ConnectTopics::of(&configuration.worker, &configuration.bootstrap_servers);
        let Ok(Some(topics)) = topics else {
            return Self::Unknown(why);
        };
        let entries =
            TopicConnectorStore::open(&topics, walferry_admin::is_our_class).and_then(|mut log| log.entries());
        match entries {
            Err(failure) => Self::Unknown(format!("{why}; {failure}")),
            Ok(entries) => match entries.into_iter().find(|entry| entry.name == name) {
                None => Self::Left,
                Some(entry) if entry.target == WantedState::Stopped => Self::Left,
                Some(entry) => Self::Back {
                    state: match entry.target {
                        WantedState::Paused => "PAUSED".to_owned(),
                        _ => "STARTED".to_owned(),
                    },
                    place: format!(
                        "topic {} of the Kafka Connect cluster, of which no worker answers,",
                        topics.config.name
                    ),
                },
            },
        }
    }
}

/// A connector that is being taken over.
struct Taking<'a> {
    name: &'a str,
    cluster: &'a Cluster,
    configuration: &'a Configuration,
    data_dir: &'a Path,
    /// The wanted state here, if it was taken over before.
    before: Option<WantedState>,
}

impl Taking<'_> {
    fn take(&self, store: &mut FileConnectorStore) -> Result<(), Error> {
        let unusable = |failure| Error::failure(format!("connector {:?} was not taken over", self.name), failure);
        let there = self.target_there()?;
        let (configuration, connector) = self.configuration_there()?;
        let partition = stores::partition(&connector);
        // Find every obstacle in this process before anything changes in Connect.
        let offset_store = FileStore::open(self.data_dir, partition).map_err(|error| unusable(error.for_good()))?;
        // An earlier attempt that was interrupted may have stopped the connector already.
        let noted = store.taking(self.name).map_err(|error| unusable(error.for_good()))?;
        let target = noted.or(self.before).unwrap_or(there);
        store
            .note_taking(self.name, Some(target))
            .map_err(|error| unusable(error.for_good()))?;
        info!(connector = self.name, cluster = %self.cluster, "stopping the connector in its Kafka Connect cluster");
        let offset = self.stop_there().and_then(|()| {
            self.wait_for_slot(&connector)?;
            self.offset_there(&connector, &offset_store)
        });
        let offset = match offset {
            Ok(offset) => offset,
            // One that was taken over before was stopped there by somebody else.
            Err(error) if self.before.is_some() => return Err(error),
            Err(error) => return Err(self.hand_back(target, store, error)),
        };
        if let Some(offset) = &offset {
            offset_store
                .replace(offset)
                .map_err(|error| unusable(error.for_good()))?;
        }
        let entry = ConnectorEntry {
            name: self.name.to_owned(),
            configuration,
            target,
        };
        store.put(&entry).map_err(unusable)?;
        store
            .note_taking(self.name, None)
            .map_err(|error| unusable(error.for_good()))?;
        let lsn = offset.as_ref().and_then(StoredOffset::start).map(|lsn| lsn.to_string());
        info!(
            connector = self.name,
            target = ?target,
            lsn.stored = lsn.as_deref().unwrap_or("none"),
            "the connector is taken over: it is STOPPED in the Kafka Connect cluster, and its configuration and its offset are in the data \
             directory"
        );
        Ok(())
    }

    fn refused(&self, what: impl Into<String>, hint: impl Into<String>) -> Error {
        let error = Error::new(Kind::NotTaken, format!("connector {:?} was not taken over", self.name));
        error.cause(what, Some(hint.into()))
    }

    fn path(&self, of: &str) -> String {
        format!("/connectors/{}{of}", endpoint::encoded(self.name))
    }

    /// Sends a request to the cluster, and repeats it while its workers rebalance. The answer has one of the expected codes.
    fn ask(&self, method: &str, path: &str, expected: &[u16]) -> Result<(u16, Json), Error> {
        let begun = Instant::now();
        loop {
            let (code, body) = self.cluster.ask(method, path).map_err(|error| {
                let hint = match (&error, self.cluster.url.starts_with("https:")) {
                    (ureq::Error::Other(_) | ureq::Error::Io(_), true) => {
                        "check that it is started. If its certificate is signed by an authority of your own, name a file with the \
                         authority's certificate, in PEM, in the environment variable SSL_CERT_FILE"
                    }
                    _ => "start one of its workers, or say with --take-from URL where its REST API is",
                };
                self.refused(
                    format!(
                        "Kafka Connect at {} does not answer {method} {path}: {}",
                        self.cluster,
                        why(&error)
                    ),
                    hint,
                )
            })?;
            if expected.contains(&code) {
                return Ok((code, body));
            }
            if code == 409 && begun.elapsed() < STOPS {
                thread::sleep(PAUSE);
                continue;
            }
            let why = body["message"].as_str().unwrap_or("it gives no reason").to_owned();
            let hint = match code {
                401 | 403 => {
                    "give a user and a password who may stop connectors, as in --take-from http://USER:PASSWORD@HOST:8083"
                }
                404 => "compare the name with what GET /connectors lists there",
                _ => "look at the log of the worker, and try again",
            };
            return Err(self.refused(
                format!(
                    "Kafka Connect at {} answers {code} to {method} {path}: {why}",
                    self.cluster
                ),
                hint,
            ));
        }
    }

    /// The connector's wanted state in Connect.
    fn target_there(&self) -> Result<WantedState, Error> {
        let (code, status) = self.ask("GET", &self.path("/status"), &[200, 404])?;
        if code == 404 {
            let (_, names) = self.ask("GET", "/connectors", &[200])?;
            return Err(self.refused(
                format!(
                    "Kafka Connect at {} has no such connector; it has {names}",
                    self.cluster
                ),
                "write one of these names",
            ));
        }
        Ok(match status["connector"]["state"].as_str() {
            Some("PAUSED") => WantedState::Paused,
            Some("STOPPED") => WantedState::Stopped,
            _ => WantedState::Running,
        })
    }

    fn configuration_there(&self) -> Result<(connector_store::Configuration, Connector), Error> {
        let (_, config) = self.ask("GET", &self.path("/config"), &[200])?;
        let pairs = config.as_object().into_iter().flatten();
        let configuration: connector_store::Configuration = pairs
            .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())))
            .collect();
        let class = config["connector.class"].as_str().unwrap_or_default();
        if !walferry_admin::is_our_class(class) {
            return Err(self.refused(
                format!("its class is {class:?}, which Walferry does not have"),
                "leave it with Kafka Connect: Walferry takes connectors of io.debezium.connector.postgresql.PostgresConnector",
            ));
        }
        let (connector, findings) = load_configuration(self.name, &configuration, &self.configuration.worker);
        walferry_worker::loaded::log(self.name, &findings);
        match connector {
            Some(checked) if !findings.has_problems() => Ok((configuration, checked.connector)),
            _ => Err(Error::new(
                Kind::Configuration,
                format!(
                    "connector {:?} was not taken over, and nothing has changed in Kafka Connect: its configuration has a problem",
                    self.name
                ),
            )
            .because(findings.problems().cloned())),
        }
    }

    /// Stops the connector, and waits until its task has ended.
    fn stop_there(&self) -> Result<(), Error> {
        self.ask("PUT", &self.path("/stop"), &[204])?;
        let begun = Instant::now();
        loop {
            let (_, status) = self.ask("GET", &self.path("/status"), &[200, 404])?;
            let has_task = status["tasks"].as_array().is_some_and(|tasks| !tasks.is_empty());
            if status["connector"]["state"] == "STOPPED" && !has_task {
                return Ok(());
            }
            if begun.elapsed() > STOPS {
                return Err(self.refused(
                    format!("Kafka Connect has not stopped it within {} s", STOPS.as_secs()),
                    "look at the log of its worker, and try again",
                ));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Waits until nobody reads the slot. A task stores its last offset before it closes its connection, so an offset that is read
    /// after that is the last one.
    fn wait_for_slot(&self, connector: &Connector) -> Result<(), Error> {
        let did_not_start = |failure| Error::failure("Walferry did not start", failure);
        let runtime = process::runtime().map_err(did_not_start)?;
        let mut watch = SlotWatch::new(&connector.postgres, &connector.slot);
        let begun = Instant::now();
        loop {
            let looked = runtime.block_on(watch.query());
            let why = match looked {
                Ok(slots) => match slots.slots.iter().find(|slot| slot.ours && slot.active) {
                    None => return Ok(()),
                    Some(slot) => format!(
                        "replication slot {} is still read by process {} of the server",
                        slot.name,
                        slot.active_pid.unwrap_or_default()
                    ),
                },
                Err(failure) => failure.to_string(),
            };
            if begun.elapsed() > STOPS {
                return Err(self.refused(
                    format!("it cannot be seen that nothing reads its replication slot any more: {why}"),
                    "look at the worker's log, and whether this machine reaches Postgres as the worker does; then try again",
                ));
            }
            thread::sleep(PAUSE);
        }
    }

    /// The last offset, in the format of the data directory. `None` if the connector never stored one.
    fn offset_there(&self, connector: &Connector, store: &FileStore) -> Result<Option<StoredOffset>, Error> {
        let (_, offsets) = self.ask("GET", &self.path("/offsets"), &[200])?;
        let here = store.read().map_err(|error| {
            Error::failure(
                format!("connector {:?} was not taken over", self.name),
                error.for_good(),
            )
        })?;
        let there = match offsets["offsets"].as_array().is_some_and(|all| !all.is_empty()) {
            false => None,
            true => {
                let import = import(&stores::partition(connector), &offsets.to_string())
                    .map_err(|error| self.refused(format!("its offset cannot be used: {error}"), error.hint()))?;
                for warning in import.warnings {
                    warn!(
                        connector = self.name,
                        "the offset of the Kafka Connect cluster: {warning}"
                    );
                }
                Some(import.offset)
            }
        };
        let there_at = there.as_ref().map(position);
        match here.as_ref().map(position) {
            Some(here_at) if there_at.is_none_or(|there_at| there_at < here_at) => {
                let lsn = |at| walferry_pgoutput::Lsn(at).to_string();
                let error = Error::new(
                    Kind::TwoOffsets,
                    format!("connector {:?} was not taken over", self.name),
                );
                Err(error.cause(
                    format!(
                        "it has two offsets: {} in {}, and {} in the Kafka Connect cluster, which is behind it",
                        lsn(here_at),
                        store.path().display(),
                        there_at.map_or("none".to_owned(), lsn)
                    ),
                    Some("to go on from the cluster's offset, move the file away; to go on from the file, write its offset into the \
                          cluster with PATCH /connectors/NAME/offsets before".into()),
                ))
            }
            _ => Ok(there),
        }
    }

    /// Makes the cluster continue with the connector that it was told to stop.
    fn hand_back(&self, target: WantedState, store: &FileConnectorStore, error: Error) -> Error {
        let wanted = match target {
            WantedState::Running => "resume",
            WantedState::Paused => "pause",
            WantedState::Stopped => return error,
        };
        match self.ask("PUT", &self.path(&format!("/{wanted}")), &[202, 204]) {
            Ok(_) => {
                if let Err(error) = store.note_taking(self.name, None) {
                    warn!(%error, "it is still noted in the data directory that the connector is being taken over");
                }
                info!(
                    connector = self.name,
                    "the Kafka Connect cluster goes on with the connector"
                );
                error
            }
            Err(other) => error.because(other.causes()).cause(
                "the connector is STOPPED in the Kafka Connect cluster",
                Some(format!(
                    "PUT {} there, or start again with --take",
                    self.path(&format!("/{wanted}"))
                )),
            ),
        }
    }
}

/// Why there is no answer.
fn why(error: &ureq::Error) -> String {
    error_text(error)
}

/// The REST API of a worker.
struct Cluster {
    agent: Agent,
    url: String,
    /// The `Authorization` header with a user and a password.
    authorization: Option<String>,
}

impl std::fmt::Display for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&quoted(&self.url))
    }
}

impl Cluster {
    /// The worker that the arguments name, or the one that runs the connector according to the status topic.
    fn of(args: &RunArgs, configuration: &Configuration, name: &str, limit: Duration) -> Result<Self, Error> {
        let missing = |what: String| {
            let error = Error::new(Kind::NotTaken, format!("connector {name:?} was not taken over"));
            error.cause(
                what,
                Some(
                    "say where the REST API of the Kafka Connect cluster is, with --take-from http://HOST:8083".into(),
                ),
            )
        };
        let url = match &args.take_from {
            Some(url) => url.clone(),
            None => {
                let failed = |failure| Error::failure(format!("connector {name:?} was not taken over"), failure);
                let topics = ConnectTopics::of(&configuration.worker, &configuration.bootstrap_servers)
                    .map_err(failed)?
                    .ok_or_else(|| {
                        missing("the worker file names no topics of Kafka Connect that would tell where it runs".into())
                    })?;
                let states = StateLog::open(&topics).map_err(failed)?;
                let worker = states.worker_of(name).map_err(failed)?;
                let worker =
                    worker.ok_or_else(|| missing("the status topic of Kafka Connect names no worker".to_owned()))?;
                format!("http://{worker}")
            }
        };
        let (scheme, address) = url
            .split_once("://")
            .filter(|(scheme, _)| ["http", "https"].contains(scheme))
            .ok_or_else(|| missing(format!("{} is no URL of http or https", quoted(&url))))?;
        let (authorization, host) = match address.rsplit_once('@') {
            Some((login, host)) => {
                let login = endpoint::decoded(login).ok_or_else(|| {
                    let error = Error::new(Kind::NotTaken, format!("connector {name:?} was not taken over"));
                    error.cause(
                        "the login in --take-from contains a percent sign that is not followed by two hexadecimal digits",
                        Some("write %25 for a percent sign, %40 for @ and %2F for a slash".into()),
                    )
                })?;
                (Some(format!("Basic {}", STANDARD.encode(login))), host)
            }
            None => (None, address),
        };
        let config = http::client(limit).build();
        let agent = match scheme {
            "https" => http::system_tls()
                .map_err(|error| missing(format!("TLS cannot be used here: it {error}")))?
                .agent(config),
            _ => config.into(),
        };
        Ok(Self {
            agent,
            url: format!("{scheme}://{}", host.trim_end_matches('/')),
            authorization,
        })
    }

    /// Code and body of an answer.
    fn ask(&self, method: &str, path: &str) -> Result<(u16, Json), ureq::Error> {
        let url = format!("{}{path}", self.url);
        let mut response = match method {
            "PUT" => {
                let mut request = self.agent.put(&url).header("Accept", "application/json");
                if let Some(authorization) = &self.authorization {
                    request = request.header("Authorization", authorization);
                }
                request.send_empty()?
            }
            _ => {
                let mut request = self.agent.get(&url).header("Accept", "application/json");
                if let Some(authorization) = &self.authorization {
                    request = request.header("Authorization", authorization);
                }
                request.call()?
            }
        };
        let code = response.status().as_u16();
        let text = response.body_mut().read_to_string()?;
        // An answer without a body, or one of a proxy.
        Ok((code, serde_json::from_str(&text).unwrap_or_else(|_| json!({}))))
    }
}
