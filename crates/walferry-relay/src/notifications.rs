//! `relay.notify.channel`: wakes the relay when the application says that there are rows.

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::{JoinHandle, spawn_local},
    time::sleep,
};
use tracing::{info, warn};
use walferry_config::{
    Connector,
    connector::{PostgresSection, RelayNotify},
};
use walferry_diagnosis::printed::sql_name;
use walferry_engine::{Failure, Pauses};
use walferry_postgres::connection::{Endpoint, Purpose};

const DOING: &str = "listening for notifications";
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(30);

/// Listens on a connection of its own, which is opened again when it breaks. Polling goes on meanwhile. It ends when this is dropped.
pub(crate) struct Notifications {
    channel: Arc<Channel>,
    task: Option<JoinHandle<()>>,
}

/// What the task says.
#[derive(Default)]
struct Channel {
    arrived: Notify,
    is_listening: AtomicBool,
}

impl Notifications {
    /// Begins to listen, if there is a channel. Must be called within a set of local tasks.
    pub(crate) fn start(connector: &Connector) -> Self {
        let state = Arc::new(Channel::default());
        let notify = connector.relay.as_ref().and_then(|section| section.notify.clone());
        let task = notify.map(|notify| spawn_local(listen(server(connector, &notify), notify.channel, state.clone())));
        Self { channel: state, task }
    }

    /// Waits until something was notified since the last call.
    pub(crate) async fn arrive(&self) {
        match self.task {
            Some(_) => self.channel.arrived.notified().await,
            None => pending().await,
        }
    }

    /// Whether notifications arrive at present.
    pub(crate) fn is_listening(&self) -> bool {
        self.channel.is_listening.load(Relaxed)
    }
}

impl Drop for Notifications {
    fn drop(&mut self) {
        self.task.iter().for_each(JoinHandle::abort);
    }
}

/// The server itself, which is behind the pooler if there is one.
fn server(connector: &Connector, notify: &RelayNotify) -> PostgresSection {
    let mut settings = connector.postgres.clone();
    if let Some(hostname) = &notify.hostname {
        settings.hostname = hostname.clone();
    }
    settings.port = notify.port.unwrap_or(settings.port);
    settings
}

async fn listen(server: PostgresSection, channel: String, state: Arc<Channel>) {
    let endpoint = Endpoint::new(server);
    let mut pauses = Pauses::new(SHORTEST, LONGEST);
    loop {
        let ended = listen_once(&endpoint, &channel, &state, &mut pauses).await;
        state.is_listening.store(false, Relaxed);
        if let Err(failure) = ended {
            warn!(
                code = failure.code(),
                error = %failure,
                hint = failure.hint(),
                "notifications cannot be listened for; rows are found by polling meanwhile"
            );
        }
        sleep(pauses.next_pause()).await;
    }
}

async fn listen_once(endpoint: &Endpoint, channel: &str, state: &Channel, pauses: &mut Pauses) -> Result<(), Failure> {
    let sql = endpoint.sql(Purpose::OutboxNotify).await?;
    sql.execute(DOING, &format!("LISTEN {}", sql_name(channel))).await?;
    info!(channel, "listening for notifications");
    pauses.reset();
    state.is_listening.store(true, Relaxed);
    // What was notified before is found now.
    state.arrived.notify_one();
    while !sql.is_closed() {
        sql.notification().await;
        state.arrived.notify_one();
    }
    Ok(())
}
