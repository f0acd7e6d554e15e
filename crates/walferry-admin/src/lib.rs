//! The admin endpoint: health, readiness, metrics, slots and the page.
//!
//! All answers come from the status of each connector, which others write. Connectors are paused, resumed, stopped and restarted
//! through the trait [`Connectors`]. Paths and bodies that Kafka Connect also has are the same as Connect's. The rest is Walferry's own.

mod cluster;
mod connect;
mod connections;
pub mod connectors;
mod data;
mod doors;
mod exposition;
mod forward;
mod forwarder;
mod guard;
mod history;
mod human;
mod logins;
pub mod manager;
mod metrics;
mod observation;
mod others;
pub mod otlp;
mod process;
mod record_skips;
mod relay;
mod rest;
mod routes;
mod settings;
mod signals;
mod slots;
mod tls;
mod verdict;
mod week;

use std::{
    future::Future,
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::connectors::Connectors;
use serde_json::{Value as Json, json};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep},
};
use walferry_engine::status::Status;

pub use crate::{
    cluster::ClusterId,
    doors::{AccessList, Digested, StoredPassword, User},
    forwarder::{
        Answerer, BodyRoom, ForwardFuture, ForwardedAnswer, ForwardedRequest, Forwarder, GroupProblem, GroupWorker,
        HeldBody, Route, SeenWorkers,
    },
    human::instant as utc_time,
    record_skips::RecordSkips,
    settings::{HeaderRule, RestSettings, Standby, StandbyStage},
    tls::{ListenerTls, TlsError, https_client, without_effect},
};
use crate::{
    connections::Limits,
    manager::{ConnectorManager, Loggers, ReadOnly},
    routes::{AppState, EntryPoint},
};

/// What the endpoint shows.
#[derive(Debug, Clone)]
pub struct Admin {
    /// The connectors of this process, in the order in which they are shown.
    pub connectors: Arc<dyn Connectors>,
    /// Walferry's version.
    pub version: &'static str,
    /// Id of the Kafka cluster.
    pub kafka_cluster_id: Arc<ClusterId>,
    /// When the process began.
    pub started: SystemTime,
    /// Stores configurations and wanted states.
    pub manager: Arc<dyn ConnectorManager>,
    /// The log levels.
    pub loggers: Arc<dyn Loggers>,
    /// How the REST API behaves.
    pub settings: RestSettings,
    /// The folder in which a week of each connector is kept for the page. It is made when it is first needed, once the one around it exists.
    /// Without it, nothing is kept.
    pub history: Option<PathBuf>,
    /// Where requests to pass over a record are left. `None`: none can be.
    pub record_skips: Option<Arc<dyn RecordSkips>>,
}

impl Admin {
    /// Shows and controls these connectors. Nothing else can be changed.
    pub fn read_only(connectors: Arc<dyn Connectors>, version: &'static str) -> Self {
        Self {
            manager: Arc::new(ReadOnly(connectors.clone())),
            connectors,
            version,
            kafka_cluster_id: Arc::default(),
            started: SystemTime::now(),
            loggers: Arc::new(NoLoggers),
            settings: RestSettings::default(),
            history: None,
            record_skips: None,
        }
    }
}

/// All metrics, as the body of a request to the path `/v1/metrics` of an OpenTelemetry collector.
pub fn otlp_metrics(admin: &Admin, resource: &Json) -> Json {
    metrics::otlp(admin, resource)
}

/// Levels that nobody can change.
#[derive(Debug)]
struct NoLoggers;

impl Loggers for NoLoggers {
    fn all(&self) -> Vec<(String, String, Option<u64>)> {
        vec![("root".into(), "INFO".into(), None)]
    }

    fn set(&self, _: &str, _: &str) -> Option<Vec<String>> {
        None
    }
}

/// How long a request that is being answered may delay a stop.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// A socket that the endpoint answers on.
#[derive(Debug)]
pub struct BoundListener {
    /// The socket.
    pub listener: TcpListener,
    /// TLS, if it is used.
    pub tls: Option<ListenerTls>,
    /// What is answered there.
    pub resources: Resources,
}

/// What is answered at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resources {
    /// Everything.
    All,
    /// Everything but `/admin/…`.
    WithoutAdmin,
    /// `/admin/…`.
    OnlyAdmin,
}

impl BoundListener {
    /// Everything, without TLS.
    pub fn plain(listener: TcpListener) -> Self {
        Self {
            listener,
            tls: None,
            resources: Resources::All,
        }
    }

    /// The same socket again, for the next endpoint that answers on it.
    ///
    /// # Errors
    /// The system's error.
    pub fn try_clone(&self) -> io::Result<Self> {
        let socket = rustix::io::dup(&self.listener)?;
        Ok(Self {
            listener: TcpListener::from_std(socket.into())?,
            tls: self.tls.clone(),
            resources: self.resources,
        })
    }
}

/// Answers requests until `stop` is ready, and ends at most a second after it.
///
/// # Errors
/// What the system says of a socket.
pub async fn serve(doors: Vec<BoundListener>, admin: Admin, stop: impl Future<Output = ()>) -> io::Result<()> {
    let places: Vec<EntryPoint> = doors.iter().map(EntryPoint::of).collect::<io::Result<_>>()?;
    // The listener that clients use. One with only `/admin/…` does not count.
    let first = places.iter().find(|place| place.resources != Resources::OnlyAdmin);
    let app = Arc::new(AppState::new(
        admin,
        *first.or(places.first()).ok_or(io::ErrorKind::NotFound)?,
    ));
    let (stopping, stopped) = watch::channel(false);
    let limits = Limits::of_process().shared_by(doors.len());
    let mut servers = JoinSet::new();
    for (door, place) in doors.into_iter().zip(places) {
        let (router, tls) = (routes::router(app.clone(), place), door.tls.clone());
        servers.spawn(connections::serve(door.listener, tls, router, limits, stopped.clone()));
    }
    drop(stopped);
    let last_answer = async {
        stop.await;
        stopping.send_replace(true);
        sleep(LAST_ANSWER).await;
    };
    let all_served = async {
        while let Some(served) = servers.join_next().await {
            served.map_err(io::Error::other).flatten()?;
        }
        Ok(())
    };
    tokio::select! {
        served = all_served => served,
        () = last_answer => Ok(()),
        () = sample(&app) => Ok(()),
    }
}

/// Takes samples for the page's curves, for ever.
async fn sample(app: &AppState) {
    let mut ticks = interval(history::INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        app.sample(now_us());
    }
}

/// Whether a connector of this class runs here: under the class's full name, its simple name, or that without `Connector`.
pub fn is_our_class(class: &str) -> bool {
    rest::is_ours(class)
}

/// Listens on the address of the endpoint.
///
/// # Errors
/// The address cannot be used.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| BindError { address, source })
}

/// The endpoint cannot listen on its address.
#[derive(Debug, thiserror::Error)]
#[error("the admin endpoint cannot listen on {address}")]
pub struct BindError {
    /// The address.
    pub address: SocketAddr,
    /// The system's error.
    #[source]
    pub source: io::Error,
}

impl BindError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let port = self.address.port();
        match self.source.kind() {
            io::ErrorKind::AddrInUse => Some(format!(
                "another process listens there, perhaps Kafka Connect or another Walferry: find it with `ss -ltnp 'sport = :{port}'` and \
                 stop it, or choose another address with `--admin`"
            )),
            io::ErrorKind::AddrNotAvailable => Some(format!(
                "no interface of this machine has the address {}: choose 127.0.0.1, or 0.0.0.0 for all interfaces, with `--admin`",
                self.address.ip()
            )),
            io::ErrorKind::PermissionDenied => {
                Some(format!("choose a port above 1023 instead of {port} with `--admin`"))
            }
            _ => None,
        }
    }
}

/// The state of a connector and of its tasks as Connect shows it: the body of `GET /connectors/{name}/status`.
pub fn connect_status(status: &Status, version: &'static str, worker_id: &str) -> Json {
    json!(connect::ConnectorStatus::new(status, version, worker_id.to_owned()))
}

/// The time, microseconds since 1970.
fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or(Duration::ZERO).as_micros() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_in_use_is_named_with_what_to_do() {
        let taken = bind(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = taken.local_addr().unwrap();
        let error = bind(address).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("the admin endpoint cannot listen on {address}")
        );
        let hint = error.hint().unwrap();
        assert!(
            hint.contains(&format!("sport = :{}", address.port())) && hint.contains("--admin"),
            "{hint}"
        );
    }
}
