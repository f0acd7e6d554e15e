//! The connectors of a Kafka Connect cluster, as `walferry check --worker` finds them in its topics while it runs. Changes nothing there.

use walferry_engine::{
    Diagnosis, Failure, Kind, WantedState,
    connector_store::{ConnectorEntry, ConnectorStore as _},
};
use walferry_kafka::connect::{ConnectTopics, TopicConnectorStore};
use walferry_worker::loaded::{Checked, Loaded, load_configuration};

use crate::{error::Error, load::Configuration, say::say};

/// A cluster, and how each of its connectors is.
pub(crate) struct Cluster {
    /// `group.id`.
    group: String,
    /// The workers of Connect that run, if any.
    workers: Option<Failure>,
    /// Connectors of our class, in the order of their names.
    pub(crate) connectors: Vec<ClusterConnector>,
    /// Name and class of the others.
    others: Vec<(String, String)>,
}

/// A connector of a cluster.
pub(crate) struct ClusterConnector {
    pub(crate) name: String,
    pub(crate) target: WantedState,
    /// `None`: its configuration has a problem.
    pub(crate) loaded: Option<Box<Loaded>>,
    /// Problems and warnings of its configuration.
    pub(crate) remarks: Vec<Diagnosis>,
}

impl Cluster {
    /// Reads the topics of the worker file. Blocks.
    ///
    /// # Errors
    /// The topics cannot be read.
    pub(crate) fn read(topics: &ConnectTopics, configuration: &Configuration) -> Result<Self, Error> {
        let failed = |failure| Error::failure("the connectors of the cluster cannot be read", failure);
        let mut store = TopicConnectorStore::open(topics, walferry_admin::is_our_class).map_err(failed)?;
        let entries = store.entries().map_err(failed)?;
        let workers = match topics.refuse_beside_connect() {
            Ok(()) => None,
            Err(failure) if failure.kind == Kind::ConnectRuns => Some(failure),
            Err(failure) => return Err(failed(failure)),
        };
        let mut connectors: Vec<_> = entries
            .into_iter()
            .map(|entry| connector(entry, configuration))
            .collect();
        connectors.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self {
            group: topics.group.clone(),
            workers,
            connectors,
            others: store.others(),
        })
    }

    /// What is to be said of the cluster as a whole.
    pub(crate) fn remarks(&self) -> Vec<Diagnosis> {
        let mut remarks = Vec::new();
        if let Some(workers) = &self.workers {
            let text = format!("{workers}: a start would wait for them to end");
            remarks.push(
                Diagnosis::note(Kind::ConnectRuns, text)
                    .with_hint("stop them when you move the whole worker; nothing has to be done for this check"),
            );
        }
        for (name, class) in &self.others {
            let text = format!(
                "connector {name:?} has the class {}, which Walferry does not run",
                walferry_config::quoted(class)
            );
            remarks.push(Diagnosis::warning(Kind::ClassUnknown, text).with_hint(
                "while anything needs it, keep the cluster, and move single connectors: `walferry run --worker FILE --take NAME --data-dir DIR`",
            ));
        }
        if self.connectors.is_empty() {
            let text = "the configuration topic has no connector that Walferry could run";
            remarks.push(Diagnosis::error(Kind::NothingToRun, text).with_hint(
                "compare `config.storage.topic` and `bootstrap.servers` with the file of the cluster's workers",
            ));
        }
        remarks
    }

    /// The last lines: what would become of each connector. `obstacles` has a number for each of `connectors`.
    pub(crate) fn summarise(&self, obstacles: &[usize]) {
        say!("summary of group {:?}", self.group);
        let names = self.connectors.iter().map(|connector| &connector.name);
        let names = names.chain(self.others.iter().map(|(name, _)| name));
        let width = names.map(|name| name.chars().count()).max().unwrap_or_default();
        for (connector, obstacles) in self.connectors.iter().zip(obstacles) {
            let target = match connector.target {
                WantedState::Running => "running",
                WantedState::Paused => "paused",
                WantedState::Stopped => "stopped",
            };
            let becomes = match obstacles {
                0 => "can be moved".to_owned(),
                1 => "cannot be moved: one problem, see above".to_owned(),
                n => format!("cannot be moved: {n} problems, see above"),
            };
            say!("  {:<width$}  {target:<8} {becomes}", connector.name);
        }
        for (name, _) in &self.others {
            say!(
                "  {name:<width$}  {:<8} stays behind: Walferry does not have its class",
                "-"
            );
        }
    }
}

fn connector(entry: ConnectorEntry, configuration: &Configuration) -> ClusterConnector {
    let ConnectorEntry {
        name,
        configuration: properties,
        target,
    } = entry;
    let (checked, findings) = load_configuration(&name, &properties, &configuration.worker);
    let remarks: Vec<Diagnosis> = findings.problems().chain(findings.warnings()).cloned().collect();
    let checked = checked.filter(|_| !findings.has_problems());
    let loaded = checked.map(|Checked { connector, built }| {
        Box::new(Loaded {
            connector,
            built,
            worker: configuration.worker.clone(),
            bootstrap_servers: configuration.bootstrap_servers.clone(),
            configuration: properties,
            file: "Kafka Connect's configuration topic".into(),
        })
    });
    ClusterConnector {
        name,
        target,
        loaded,
        remarks,
    }
}
