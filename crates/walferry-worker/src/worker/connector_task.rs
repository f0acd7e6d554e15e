//! Keeps one connector running with its newest configuration.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use tokio::sync::watch;
use walferry_config::Findings;
use walferry_engine::{Disposition, Failure, Kind, connector_store::Configuration};

use crate::{
    beside::SlotLooks,
    blocking::run_blocking,
    loaded::{Checked, Loaded, load_configuration},
    process::{self, BackgroundTasks, FailureOutput, RunSettings},
    worker::{Connector, ConnectorOrigin, Inner, ManagedConnectors},
};

/// Starts a connector, gives it each newer version of its configuration, and ends it when there is none any more. Then the task ends,
/// too, unless the connector was made anew meanwhile.
pub(crate) async fn work(
    connectors: ManagedConnectors,
    slots: SlotLooks,
    name: String,
    mut versions: watch::Receiver<Option<u64>>,
) {
    // An earlier task that panicked may have left the connector there.
    let _ = connectors.supervisor().remove(&name).await;
    // These tasks end when others take their place, or with this task.
    let mut beside: Option<BackgroundTasks> = None;
    loop {
        let version = *versions.borrow_and_update();
        match version {
            Some(version) => {
                // If there is a later version already, the channel reports it.
                let current = connectors.find(&name).filter(|connector| connector.version == version);
                if let Some(connector) = current {
                    // A config provider may hang. A request that corrects or removes the connector must not wait for it.
                    tokio::select! {
                        biased;
                        changed = versions.changed() => match changed {
                            Ok(()) => continue,
                            Err(_) => return,
                        },
                        started = start(&connectors, &slots, &name, &connector) => {
                            if let Some(started) = started {
                                drop(beside.replace(started));
                            }
                        }
                    }
                }
            }
            None => {
                drop(beside.take());
                if connectors.was_deputy(&name) {
                    // Another worker has the connector now, and waits for its slot.
                    let _ = connectors.supervisor().abandon(&name);
                }
                let _ = connectors.supervisor().remove(&name).await;
                // The config writer works in the same thread, so it sends nothing between this look and the end.
                if !versions.has_changed().is_ok_and(|has_changed| has_changed) {
                    return;
                }
            }
        }
        if versions.changed().await.is_err() {
            return;
        }
    }
}

/// Begins the runs of a connector. If it runs with an older configuration, this run ends in order first. Returns the tasks beside them; `None`
/// if the connector was changed or removed meanwhile.
async fn start(
    connectors: &ManagedConnectors,
    slots: &SlotLooks,
    name: &str,
    connector: &Connector,
) -> Option<BackgroundTasks> {
    let load = loader(connectors, name, connector);
    let loaded = match &connector.origin {
        ConnectorOrigin::File(_, loaded) => Some(Loaded::clone(loaded)),
        ConnectorOrigin::Store => {
            let first = load.clone();
            // A config provider may wait for a file or for Kubernetes, and must not hold up the other connectors. If this look panics, the
            // first run does too, and the supervisor reports it.
            run_blocking(move || first()).await.ok().and_then(Result::ok)
        }
    };
    // The wanted state may have changed meanwhile. From here on, nothing awaits until the supervisor knows the connector.
    let target = connectors
        .find(name)
        .filter(|now| now.version == connector.version)?
        .target;
    let raw_prefix = connector
        .configuration
        .iter()
        .find(|(property, _)| property == "topic.prefix");
    let prefix = raw_prefix.map_or("", |(_, text)| text);
    let older = connectors.status(name);
    let status = process::status(name, loaded.as_ref(), prefix, older.as_deref());
    let beside = loaded.map(|loaded| BackgroundTasks::start(loaded, slots.clone(), &status));
    let mut beside = beside.unwrap_or_default();
    if let Some(show) = &connectors.0.output.progress {
        beside.add(show(status.clone()));
    }
    let run = RunSettings {
        load,
        offsets: connectors.0.offsets.clone(),
        share: connectors.0.share.clone(),
        room: connectors.0.room.clone(),
        deputy: connectors.deputy_role(name),
        status: status.clone(),
        tell: match connector.origin {
            ConnectorOrigin::File(..) => FailureOutput::LastWords(connectors.0.output.report),
            ConnectorOrigin::Store => FailureOutput::LogLine(connectors.0.output.report),
        },
    };
    #[cfg(test)]
    if let Some(runs) = &connectors.0.runs {
        connectors.supervisor().run_as_task(name, runs(&run));
    }
    let body = run.body();
    if let Some(older) = older {
        connectors.active_topics().look(&older);
    }
    if connectors.supervisor().replace(status.clone(), body.clone()).is_err() {
        connectors.supervisor().add_as(status, body, target);
    }
    Some(beside)
}

/// Prepares a run. As in Connect, each run resolves references such as `${file:…}` again. The text of a configuration file is that of the start of
/// the process.
pub(crate) fn loader(
    connectors: &ManagedConnectors,
    name: &str,
    connector: &Connector,
) -> Arc<dyn Fn() -> Result<Loaded, Failure> + Send + Sync> {
    match &connector.origin {
        ConnectorOrigin::File(_, loaded) => {
            let last = Mutex::new(Loaded::clone(loaded));
            Arc::new(move || {
                // Not held while references are looked up, which may hang.
                let known = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let loaded = known.again()?;
                *last.lock().unwrap_or_else(PoisonError::into_inner) = loaded.clone();
                Ok(loaded)
            })
        }
        ConnectorOrigin::Store => {
            let (inner, name, configuration) = (connectors.0.clone(), name.to_owned(), connector.configuration.clone());
            // Each run reads the configuration again. Its warnings are logged once.
            let is_logged = AtomicBool::new(false);
            Arc::new(move || {
                let (loaded, findings) = load(&inner, &name, &configuration);
                if !is_logged.swap(true, Relaxed) {
                    crate::loaded::log(&name, &findings);
                }
                loaded
            })
        }
    }
}

/// Reads the configuration of a connector of the connector store, and resolves its references. Also returns what is to be said of it.
pub(crate) fn load(inner: &Inner, name: &str, configuration: &Configuration) -> (Result<Loaded, Failure>, Findings) {
    let (checked, findings) = load_configuration(name, configuration, &inner.worker);
    let loaded = match checked {
        Some(Checked { connector, built }) => Ok(Loaded {
            connector,
            built,
            worker: inner.worker.clone(),
            bootstrap_servers: inner.bootstrap_servers.clone(),
            configuration: configuration.clone(),
            file: "the REST API".into(),
        }),
        None => {
            let (kind, causes) = (Kind::Configuration, findings.problems().cloned().collect());
            Err(Failure::of(Disposition::stop(kind), kind, causes))
        }
    };
    (loaded, findings)
}
