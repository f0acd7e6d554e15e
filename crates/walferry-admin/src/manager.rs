//! What the REST API needs of the process (Kafka Connect calls this the herder), and an implementation that can only show connectors.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use crate::connectors::{Connectors, UnknownConnector};
use serde_json::Value as Json;
use walferry_config::Group;
use walferry_engine::{Diagnosis, WantedState, connector_store::Configuration, status::Execute};

/// The refusal of a request: Connect's status code, and a text in Connect's form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// Status code.
    pub code: u16,
    /// The text.
    pub message: String,
}

impl Refused {
    /// A refusal with a code and a text.
    pub fn new(code: u16, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Another worker has to do this, or will have to in a moment. The text is Connect's.
    pub fn rebalance() -> Self {
        Self::new(
            409,
            "Cannot complete request because of a conflicting operation (e.g. worker rebalance)",
        )
    }

    /// It is not known which worker has to do this. The text is Connect's.
    pub fn nobody_known() -> Self {
        Self::new(
            409,
            "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway.",
        )
    }

    /// No connector that could be read, changed or removed has this name.
    pub fn not_found(name: &str) -> Self {
        Self::new(404, format!("Connector {name} not found"))
    }

    /// The offsets of a connector are changed only while it is stopped.
    pub fn not_stopped(name: &str) -> Self {
        Self::new(
            400,
            format!(
                "Connectors must be in the STOPPED state before their offsets can be modified. This can be done for the specified connector \
                 by issuing a 'PUT' request to the '/connectors/{name}/stop' endpoint"
            ),
        )
    }
}

/// An answer that comes later.
pub type ManagerFuture<T> = Pin<Box<dyn Future<Output = Result<T, Refused>> + Send>>;

/// How a configuration is submitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SubmitMode {
    /// For a new connector, with its wanted state. It must not exist yet.
    New(WantedState),
    /// For a connector that may exist. Its wanted state stays.
    Any,
    /// For a connector that still has this configuration, from which the new one was made.
    Over(Configuration),
}

/// A class that connectors may name.
#[derive(Debug, Clone)]
pub struct Plugin {
    /// Full name.
    pub class: String,
    /// Connect's word: `source`, `transformation`, `predicate`, `converter` or `header_converter`.
    pub kind: &'static str,
    /// Its properties.
    pub groups: Vec<&'static Group>,
}

/// A snapshot that a signal is to ask for.
#[derive(Debug, Clone, Default)]
pub struct RequestedSnapshot {
    /// Names of the tables that it would read. Empty if that is not known.
    pub tables: Vec<String>,
    /// What would make it fail.
    pub obstacles: Vec<Diagnosis>,
}

/// What another worker has said of a connector that it runs: records of Connect's status topic.
#[derive(Debug, Clone)]
pub struct ElsewhereState {
    /// The connector's.
    pub connector: Json,
    /// Its task's, if it has one.
    pub task: Option<Json>,
}

/// The problems of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Validation {
    /// Errors, each with the property that it belongs to.
    pub errors: Vec<(String, String)>,
    /// Why a reference such as `${file:…}` has no value.
    pub unresolved: Option<String>,
    /// Defaults that the worker decides, such as its converters.
    pub defaults: Vec<(&'static str, String)>,
}

/// The connectors, as the REST API reads and changes them. A method that changes something returns when the change is durable. The
/// connector may follow later.
///
/// # Errors
/// The future fails with what Connect's REST API answers: a status and a message, such as 404 for a connector that does not exist, 409 for a
/// name that is taken, and 500 when the change cannot be made durable.
pub trait ConnectorManager: fmt::Debug + Send + Sync {
    /// Names of all connectors.
    fn names(&self) -> Vec<String>;

    /// The configuration of a connector as it was submitted.
    fn configuration(&self, name: &str) -> Option<Configuration>;

    /// The wanted state of a connector.
    fn target(&self, name: &str) -> Option<WantedState>;

    /// Whether a connector that cannot be changed has this configuration already, so that nothing is to be done. It fails for another
    /// configuration of such a connector. `false` for all others: they are changed with [`put`](Self::put).
    ///
    /// # Errors
    /// The connector cannot be changed.
    fn is_kept(&self, name: &str, configuration: &Configuration, how: &SubmitMode) -> Result<bool, Refused> {
        let _ = (name, configuration, how);
        Ok(false)
    }

    /// Stores a valid configuration. Returns whether the connector is new.
    fn put(&self, name: &str, configuration: Configuration, how: SubmitMode) -> ManagerFuture<bool>;

    /// Removes a connector. Its offset stays.
    fn remove(&self, name: &str) -> ManagerFuture<()>;

    /// Runs, pauses or stops a connector from now on, also after a restart of the process.
    fn want(&self, name: &str, target: WantedState) -> ManagerFuture<()>;

    /// Finds the problems of a configuration.
    fn validate(&self, configuration: Configuration) -> ManagerFuture<Validation>;

    /// The offsets of a connector: the body of `GET /connectors/{name}/offsets`.
    fn offsets(&self, name: &str) -> ManagerFuture<Json>;

    /// Writes the offsets of a stopped connector: the body of `PATCH`; `None` removes them all.
    fn alter_offsets(&self, name: &str, offsets: Option<Json>) -> ManagerFuture<()>;

    /// The topics that a connector has sent records to since they were last reset. None for an unknown connector.
    fn topics(&self, name: &str) -> Vec<String>;

    /// Forgets these topics. Each is remembered again with its next record.
    ///
    /// # Errors
    /// Nothing can be changed in this process.
    fn reset_topics(&self, name: &str) -> Result<(), Refused>;

    /// All classes that connectors may name.
    fn plugins(&self) -> Vec<Plugin>;

    /// Looks at a snapshot before a signal asks for it: the tables that it would read, and why it would fail.
    fn look_at_snapshot(&self, name: &str, snapshot: Execute) -> ManagerFuture<RequestedSnapshot> {
        let _ = (name, snapshot);
        Box::pin(async { Ok(RequestedSnapshot::default()) })
    }

    /// Whether this process runs a connector, if it is to run. Where several workers share the connectors, another one may.
    fn runs_here(&self, name: &str) -> bool {
        let _ = name;
        true
    }

    /// Whether this process runs a connector as a deputy, because the worker that owns it is gone.
    fn is_deputy(&self, name: &str) -> bool {
        let _ = name;
        false
    }

    /// The state of a connector that another worker runs, or that has not begun in this process. `None` if this one runs it, or its state is unknown.
    fn elsewhere(&self, name: &str) -> Option<ElsewhereState> {
        let _ = name;
        None
    }

    /// Completes once this worker has seen what other workers have changed until now.
    fn catch_up(&self) -> ManagerFuture<()> {
        Box::pin(async { Ok(()) })
    }

    /// Completes once the part of the process that makes changes has reached this request: a sign that changes can be made.
    fn answers(&self) -> ManagerFuture<()>;
}

/// Shows and controls connectors that are in no store. Their configurations are not shown and cannot be changed.
#[derive(Debug, Clone)]
pub struct ReadOnly(pub Arc<dyn Connectors>);

impl ReadOnly {
    fn refused() -> Refused {
        Refused::new(
            403,
            "The connectors of this process are fixed: they cannot be changed through the REST API.",
        )
    }

    fn refuse<T: Send + 'static>() -> ManagerFuture<T> {
        Box::pin(async { Err(Self::refused()) })
    }
}

impl ConnectorManager for ReadOnly {
    fn names(&self) -> Vec<String> {
        self.0.statuses().iter().map(|status| status.name.clone()).collect()
    }

    fn configuration(&self, name: &str) -> Option<Configuration> {
        let known = self.names().iter().any(|known| known == name);
        known.then(|| vec![("name".to_owned(), name.to_owned())])
    }

    fn target(&self, name: &str) -> Option<WantedState> {
        self.configuration(name).map(|_| WantedState::Running)
    }

    fn put(&self, _: &str, _: Configuration, _: SubmitMode) -> ManagerFuture<bool> {
        Self::refuse()
    }

    fn remove(&self, _: &str) -> ManagerFuture<()> {
        Self::refuse()
    }

    fn want(&self, name: &str, target: WantedState) -> ManagerFuture<()> {
        let done = steer(self.0.as_ref(), name, target);
        Box::pin(async { done })
    }

    fn validate(&self, _: Configuration) -> ManagerFuture<Validation> {
        Self::refuse()
    }

    fn offsets(&self, _: &str) -> ManagerFuture<Json> {
        Self::refuse()
    }

    fn alter_offsets(&self, _: &str, _: Option<Json>) -> ManagerFuture<()> {
        Self::refuse()
    }

    fn topics(&self, name: &str) -> Vec<String> {
        let mut topics = Vec::new();
        if let Some(status) = self.0.statuses().iter().find(|status| status.name == name) {
            status.visit_topics(|topic, _| topics.push(topic.to_owned()));
        }
        topics
    }

    fn reset_topics(&self, _: &str) -> Result<(), Refused> {
        Err(Self::refused())
    }

    fn plugins(&self) -> Vec<Plugin> {
        Vec::new()
    }

    fn answers(&self) -> ManagerFuture<()> {
        Box::pin(async { Ok(()) })
    }
}

/// Makes a connector run, pause or stop.
///
/// # Errors
/// There is none of this name.
pub fn steer(connectors: &dyn Connectors, name: &str, target: WantedState) -> Result<(), Refused> {
    let done = match target {
        WantedState::Running => connectors.resume(name),
        WantedState::Paused => connectors.pause(name),
        WantedState::Stopped => connectors.stop(name),
    };
    done.map_err(|UnknownConnector(name)| Refused::new(404, format!("Unknown connector {name}")))
}

/// The log levels of parts of the program. They may be changed while the program runs.
pub trait Loggers: fmt::Debug + Send + Sync {
    /// All loggers with a level of their own: name, level, and when it was changed, milliseconds since 1970. `root` is one of them.
    fn all(&self) -> Vec<(String, String, Option<u64>)>;

    /// The last lines that the log has about a connector, after the line with this number: each with its number.
    fn lines(&self, connector: &str, after: u64) -> Vec<(u64, String)> {
        let _ = (connector, after);
        Vec::new()
    }

    /// Changes the level of a logger. Returns the changed loggers. `None` if there is no such level.
    fn set(&self, logger: &str, level: &str) -> Option<Vec<String>>;
}
