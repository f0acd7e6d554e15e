//! What goes on beside a connector: figures of its slot, its heartbeat query, and news of the Kafka client.

pub mod login;
pub mod signal_file;

use std::{
    cell::RefCell,
    collections::HashMap,
    rc::{Rc, Weak},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, time::sleep};
use tracing::{debug, info, warn};
use walferry_config::{
    Connector,
    connector::{Filter, PostgresSection},
};
use walferry_engine::{
    Disposition, Failure, Kind,
    status::{Slots, Status},
};
use walferry_kafka::{Health, SetAsideCount};
use walferry_postgres::{
    SlotWatch, SlotsLook,
    connection::{Endpoint, Purpose},
};

use crate::{assemble, loaded::Loaded};
use login::{Login, Renewable};

impl Renewable for Loaded {
    fn again(&self) -> Result<Self, Failure> {
        self.again()
    }

    fn postgres(&self) -> &PostgresSection {
        &self.connector.postgres
    }
}

impl walferry_outbox::LoginRenewal for Login<Loaded> {
    fn is_refused(&self, failure: &Failure) -> bool {
        login::is_login_refused(failure)
    }

    async fn renew(&mut self, failure: &Failure) -> Option<Connector> {
        let is_other = Self::renew(self, failure).await;
        is_other.then(|| self.loaded().connector.clone())
    }
}

/// How often the server is asked for its slots.
const SLOTS_INTERVAL: Duration = Duration::from_secs(2);
/// How long to wait for a slot that is not there yet.
const NO_SLOT_PAUSE: Duration = Duration::from_millis(20);
/// How often the Kafka client is asked how it is.
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);

/// The looks at the slots of servers, shared by the connectors of each server: each look tells of all slots, and a hundred connectors
/// would otherwise ask for a hundred slots each, over a hundred connections.
#[derive(Clone, Default)]
pub struct SlotLooks(Rc<RefCell<HashMap<Server, Weak<Mutex<Shared>>>>>);

/// What makes two connections show the same slots.
type Server = (String, u16, String);

#[derive(Default)]
struct Shared {
    watch: Option<SlotWatch>,
    last: Option<(Instant, SlotsLook)>,
}

impl SlotLooks {
    fn of(&self, postgres: &PostgresSection) -> Rc<Mutex<Shared>> {
        let server = (postgres.hostname.to_string(), postgres.port, postgres.user.clone());
        let mut all = self.0.borrow_mut();
        all.retain(|_, shared| shared.strong_count() > 0);
        if let Some(shared) = all.get(&server).and_then(Weak::upgrade) {
            return shared;
        }
        let shared = Rc::default();
        all.insert(server, Rc::downgrade(&shared));
        shared
    }
}

/// Keeps the figures of all slots of the server fresh, over a connection beside those of connectors: they stay true while the stream is
/// idle, disconnected, or held up by Kafka.
pub(crate) async fn watch_slots(loaded: Loaded, looks: SlotLooks, status: Arc<Status>) {
    let slot = loaded.connector.slot.clone();
    let ours = slot.name.to_string();
    let mut login = Login::new(loaded);
    let mut shared = looks.of(login.postgres());
    loop {
        let open = || SlotWatch::new(login.postgres(), &slot);
        let looked = recent_slots(&mut *shared.lock().await, open, &ours).await;
        match looked {
            Ok(slots) => status.set_slots(slots),
            Err(failure) => {
                debug!(error = %failure, "the replication slots could not be read");
                if login.renew(&failure).await {
                    shared = looks.of(login.postgres());
                    continue;
                }
            }
        }
        sleep(SLOTS_INTERVAL).await;
    }
}

/// The last look, where it is recent, or else a new one.
async fn recent_slots(shared: &mut Shared, open: impl Fn() -> SlotWatch, ours: &str) -> Result<Slots, Failure> {
    if let Some((at, looked)) = &shared.last
        && at.elapsed() < SLOTS_INTERVAL
    {
        return Ok(looked.seen_by(ours));
    }
    // Where the connection of one connector does not work, such as to a database that is gone, that of the next one may.
    let looked = shared.watch.get_or_insert_with(&open).query_all().await;
    let looked = looked.inspect_err(|_| shared.watch = None)?;
    let slots = looked.seen_by(ours);
    shared.last = Some((Instant::now(), looked));
    Ok(slots)
}

/// Says which tables are captured: a misspelt filter captures all, or none, and is legal.
pub async fn tell_tables(loaded: Loaded, status: Arc<Status>) {
    let mut login = Login::new(loaded);
    let names = loop {
        let config = &login.loaded().connector;
        match walferry_postgres::check::captured_tables(config, assemble::captured(config)).await {
            Ok(names) => break names,
            Err(failure) => {
                // The connector itself says why Postgres cannot be reached.
                debug!(error = %failure, "the captured tables could not be listed");
                login.renew(&failure).await;
            }
        }
        sleep(SLOTS_INTERVAL).await;
    };
    let config = &login.loaded().connector;
    match names.as_slice() {
        // As for an outbox of messages.
        [] if let Some(property) = config.filters.excludes_every_table() => info!(
            tables = 0,
            "{property} excludes every table, so only messages of pg_logical_emit_message are sent"
        ),
        [] => {
            status.captures_no_table.store(true, Relaxed);
            warn!(
                hint = format!(
                    "compare `{}` with the tables in the database; patterns match SCHEMA.TABLE",
                    config.filters.list_of_tables()
                ),
                "no table in the database matches the filters, so no row changes are captured until one does"
            );
        }
        [only] => info!(tables = 1, "1 table is captured: {only}"),
        [first, ..] => {
            const LISTED: usize = 5;
            let listed = names
                .iter()
                .take(LISTED)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            let more = names.len().saturating_sub(LISTED);
            let filters = &config.filters;
            let all = match (&filters.schemas, &filters.tables) {
                (Filter::All, Filter::All) => "no filter is set: ",
                _ => "",
            };
            let others = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            info!(
                tables = names.len(),
                first,
                "{all}{} tables are captured: {listed}{others}",
                names.len()
            );
        }
    }
}

/// `xmin.fetch.interval.ms`: keeps the slot's `catalog_xmin` fresh for `source.xmin`.
pub(crate) async fn fetch_xmin(loaded: Loaded, status: Arc<Status>) {
    let Some(interval) = loaded.connector.streaming.xmin_interval else {
        return;
    };
    let slot = loaded.connector.slot.clone();
    let mut login = Login::new(loaded);
    let mut watch = SlotWatch::new(login.postgres(), &slot);
    loop {
        let pause = match watch.catalog_xmin().await {
            Ok(Some(xmin)) => {
                status.xmin.set(xmin);
                interval
            }
            // The first start has still to create the slot.
            Ok(None) => NO_SLOT_PAUSE,
            Err(failure) => {
                debug!(error = %failure, "the slot's xmin could not be fetched");
                if login.renew(&failure).await {
                    watch = SlotWatch::new(login.postgres(), &slot);
                    continue;
                }
                SLOTS_INTERVAL
            }
        };
        sleep(pause).await;
    }
}

/// `heartbeat.action.query`: runs with each heartbeat, on a connection of its own.
pub(crate) async fn run_heartbeat_query(loaded: Loaded, status: Arc<Status>) {
    let Some(query) = loaded.connector.heartbeat.action_query.clone() else {
        return;
    };
    let mut login = Login::new(loaded);
    let mut endpoint = Endpoint::new(login.postgres().clone());
    let (mut connection, mut failures) = (None, Failures::default());
    loop {
        status.heartbeat_sent.notified().await;
        let sql = match connection.take() {
            Some(sql) => Ok(sql),
            None => endpoint.sql(Purpose::Heartbeat).await,
        };
        let ran = match sql {
            Ok(sql) => sql
                .execute("running `heartbeat.action.query`", &query)
                .await
                .map(|()| sql),
            Err(error) => Err(error),
        };
        match ran {
            Ok(sql) => {
                connection = Some(sql);
                status.set_heartbeat_query(None);
                if let Some(failures) = failures.worked() {
                    info!(failures, "`heartbeat.action.query` works again");
                }
            }
            Err(error) => {
                let (chain, hint) = (Failure::chain(&error), error.hint());
                status.set_heartbeat_query(Some(Failure::new(
                    Disposition::Retry,
                    Kind::HeartbeatQuery,
                    chain.clone(),
                    hint.clone(),
                )));
                if let Some(failures) = failures.failed(Instant::now()) {
                    warn!(
                        code = Kind::HeartbeatQuery.code(),
                        error = chain,
                        hint,
                        failures,
                        "`heartbeat.action.query` failed; it runs again with each heartbeat. Until it works, this is logged once a minute"
                    );
                }
                if login.renew(&Failure::from(error)).await {
                    endpoint = Endpoint::new(login.postgres().clone());
                    // This heartbeat's query has not run yet.
                    status.heartbeat_sent.notify_one();
                }
            }
        }
    }
}

/// When failures of something that is tried again and again are logged: the first at once, then one a minute, with the number of all since.
#[derive(Debug, Default)]
struct Failures {
    /// When the last one was logged.
    logged: Option<Instant>,
    /// How many there were since the last success.
    count: u64,
}

impl Failures {
    /// How often such a failure is logged.
    const PERIOD: Duration = Duration::from_secs(60);

    /// Counts one. Returns their number, if this one is logged.
    fn failed(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now < logged + Self::PERIOD) {
            return None;
        }
        self.logged = Some(now);
        Some(self.count)
    }

    /// It has worked. Returns how many failures there were before.
    fn worked(&mut self) -> Option<u64> {
        let count = std::mem::take(self).count;
        (count > 0).then_some(count)
    }
}

/// Shows what the Kafka client tells: how the connection is, and how many records it has set aside.
pub async fn watch_kafka(health: Health, set_aside: SetAsideCount, status: Arc<Status>) {
    let mut counted = 0;
    loop {
        let count = set_aside.get();
        status.counters.set_aside.fetch_add(count - counted, Relaxed);
        counted = count;
        status.set_kafka(health.trouble());
        sleep(HEALTH_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_are_logged_once_a_minute_with_their_number() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut failures = Failures::default();
        let logged: Vec<_> = (0..=150)
            .filter_map(|second| Some((second, failures.failed(at(second))?)))
            .collect();
        assert_eq!(logged, [(0, 1), (60, 61), (120, 121)]);
        assert_eq!(failures.worked(), Some(151));
        assert_eq!(failures.worked(), None);
        assert_eq!(failures.failed(at(151)), Some(1), "a new one is logged at once");
    }
}
