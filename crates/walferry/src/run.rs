//! `walferry run`.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock, atomic::Ordering::Relaxed},
    time::{Duration, SystemTime},
};

use rustix::thread::disable_transparent_huge_pages;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::LocalSet,
    time::sleep,
};
use tracing::{debug, info, warn};
use walferry_admin::Admin;
use walferry_config::connector::Filter;
use walferry_engine::{
    Failure,
    status::{Status, Trouble},
};
use walferry_kafka::{Health, SetAsideCount};
use walferry_postgres::{
    SlotWatch,
    connect::{Endpoint, Purpose},
};

use crate::{
    assemble::{self, Assembled},
    cli::RunArgs,
    error::Error,
    listen,
    load::{Loaded, data_dir, load},
    progress::{self, Bars},
};

/// How often the server is asked for its slots.
const SLOTS_INTERVAL: Duration = Duration::from_secs(2);
/// How long to wait for a slot that is not there yet.
const NO_SLOT_PAUSE: Duration = Duration::from_millis(20);
/// How often the Kafka client is asked how it is.
const HEALTH_INTERVAL: Duration = Duration::from_millis(500);

/// Runs until a signal, or until its only connector has failed for good.
pub(crate) fn run(args: &RunArgs, bars: &Bars) -> Result<(), Error> {
    // Where Linux gives huge pages unasked, 14 MiB more would be resident. Where that fails, nothing else is lost.
    disable_transparent_huge_pages(true).ok();
    let loaded = load(&args.connector)?.connectors;
    let wanted = listen::wanted(args.admin, &loaded)?;
    let data_dir = data_dir(&args.data);
    let statuses: Vec<_> = loaded
        .iter()
        .map(|l| {
            let mut status = Status::new(&l.connector.name, l.connector.topics.prefix.to_string());
            status.shows_keys = l.connector.errors.show_keys;
            Arc::new(status)
        })
        .collect();
    let connectors = loaded
        .iter()
        .zip(&statuses)
        .map(|(loaded, status)| assemble::connector(loaded, &data_dir, status.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::setup(format!("the runtime does not start: {error}")))?;
    let served = LocalSet::new().block_on(&runtime, serve(wanted, bars, &loaded, statuses, connectors));
    bars.clear();
    served
}

async fn serve(
    wanted: SocketAddr,
    bars: &Bars,
    loaded: &[Loaded],
    statuses: Vec<Arc<Status>>,
    connectors: Vec<Assembled>,
) -> Result<(), Error> {
    let listener = walferry_admin::bind(wanted).await.map_err(|error| {
        let hint = error.hint();
        Error::setup("the admin endpoint did not start").cause(Failure::chain(&error), hint)
    })?;
    let stop = watch::Sender::new(false);
    let admin = Admin {
        connectors: statuses.clone().into(),
        version: env!("CARGO_PKG_VERSION"),
        kafka_cluster_id: Arc::new(OnceLock::new()),
        started: SystemTime::now(),
    };
    // Port 0 is whichever is free.
    let address = listener.local_addr().unwrap_or(wanted);
    info!(%address, page = %format_args!("http://{address}/ui"), "admin endpoint listens");
    if !address.ip().to_canonical().is_loopback() {
        warn!(
            %address,
            hint = "listen on 127.0.0.1, or let a firewall or a proxy with a login decide who reaches it",
            "the admin endpoint has no login, and other machines may reach it: they see names of topics, tables and slots"
        );
    }
    let admin_stop = stopped(stop.subscribe());
    let admin = tokio::task::spawn_local(walferry_admin::serve(listener, admin, admin_stop));
    for (loaded, status) in loaded.iter().zip(&statuses) {
        tokio::task::spawn_local(tell_tables(loaded.clone()));
        tokio::task::spawn_local(watch_slots(loaded.clone(), status.clone()));
        tokio::task::spawn_local(run_heartbeat_query(loaded.clone(), status.clone()));
        tokio::task::spawn_local(fetch_xmin(loaded.clone(), status.clone()));
    }
    for status in statuses.iter().filter(|_| bars.are_shown()) {
        tokio::task::spawn_local(progress::show(bars.clone(), status.clone()));
    }
    let alone = connectors.len() == 1;
    let mut running = Vec::new();
    for (connector, status) in connectors.into_iter().zip(&statuses) {
        tokio::task::spawn_local(watch_kafka(
            connector.sinks.health(),
            connector.sinks.set_aside(),
            status.clone(),
        ));
        running.push(tokio::task::spawn_local(run_one(connector, stop.subscribe())));
    }

    let outcome = tokio::select! {
        () = signalled() => Ok(()),
        // With one connector the process ends with it, so that a supervisor sees it; with several it stays.
        ended = &mut running[0], if alone => flatten(ended),
    };
    stop.send_replace(true);
    let mut results = vec![outcome];
    for task in running.into_iter().filter(|task| !task.is_finished()) {
        results.push(flatten(task.await));
    }
    let _ = admin.await;
    results.into_iter().collect()
}

async fn run_one(mut connector: Assembled, stop: watch::Receiver<bool>) -> Result<(), Error> {
    let name = connector.status.name.clone();
    let result = connector
        .run(stop)
        .await
        .map_err(|failure| Error::failure(format!("connector {name:?} has stopped"), failure));
    result.map_or_else(
        |mut error| {
            // At once: the process may have other connectors to run.
            error.tell();
            Err(error)
        },
        |()| {
            info!(
                connector = name,
                "connector stopped: everything delivered is stored and confirmed"
            );
            Ok(())
        },
    )
}

fn flatten(ended: Result<Result<(), Error>, tokio::task::JoinError>) -> Result<(), Error> {
    ended.unwrap_or_else(|error| Err(Error::setup(format!("a task of the connector ended: {error}"))))
}

async fn signalled() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
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

/// Keeps the figures of all slots of the server fresh, over a connection of its own: they stay true while the stream is idle,
/// disconnected, or held up by Kafka.
pub(crate) async fn watch_slots(loaded: Loaded, status: Arc<Status>) {
    let mut watch = SlotWatch::new(&loaded.connector.postgres, &loaded.connector.slot);
    loop {
        match watch.look().await {
            Ok(slots) => status.set_slots(slots),
            Err(failure) => debug!(error = %failure, "slots could not be looked at"),
        }
        sleep(SLOTS_INTERVAL).await;
    }
}

/// Says which tables are captured: a misspelt filter captures all, or none, and is legal.
async fn tell_tables(loaded: Loaded) {
    let config = &loaded.connector;
    let names = loop {
        match walferry_postgres::check::captured_tables(config, assemble::captured(config)).await {
            Ok(names) => break names,
            // The connector itself says why Postgres cannot be reached.
            Err(failure) => debug!(error = %failure, "the captured tables could not be listed"),
        }
        sleep(SLOTS_INTERVAL).await;
    };
    let connector = &config.name;
    match names.as_slice() {
        [] => warn!(
            connector,
            hint = "compare `schema.include.list` and `table.include.list` with the tables of the database; patterns are SCHEMA.TABLE",
            "no table of the database passes the filters: nothing is captured until one does"
        ),
        [only] => info!(connector, tables = 1, "1 table is captured: {only}"),
        [first, ..] => {
            const SHOWN: usize = 5;
            let shown = names
                .iter()
                .take(SHOWN)
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", ");
            let more = names.len().saturating_sub(SHOWN);
            let filters = &config.filters;
            let all = match (&filters.schemas, &filters.tables) {
                (Filter::All, Filter::All) => "no filter is set: ",
                _ => "",
            };
            let rest = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            info!(
                connector,
                tables = names.len(),
                first,
                "{all}{} tables are captured: {shown}{rest}",
                names.len()
            );
        }
    }
}

/// `xmin.fetch.interval.ms`: keeps the slot's `catalog_xmin` fresh for `source.xmin`.
async fn fetch_xmin(loaded: Loaded, status: Arc<Status>) {
    let Some(interval) = loaded.connector.streaming.xmin_interval else {
        return;
    };
    let mut watch = SlotWatch::new(&loaded.connector.postgres, &loaded.connector.slot);
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
                SLOTS_INTERVAL
            }
        };
        sleep(pause).await;
    }
}

/// `heartbeat.action.query`: runs with each heartbeat, on a connection of its own.
async fn run_heartbeat_query(loaded: Loaded, status: Arc<Status>) {
    let Some(query) = loaded.connector.heartbeat.action_query else {
        return;
    };
    let endpoint = Endpoint::new(loaded.connector.postgres);
    let mut connection = None;
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
            Ok(sql) => connection = Some(sql),
            Err(error) => {
                status.count_error("heartbeat_query");
                warn!(
                    error = Failure::chain(&error),
                    "`heartbeat.action.query` failed; it runs again with the next heartbeat"
                );
            }
        }
    }
}

/// Shows what the Kafka client tells: how the connection is, and how many records it has set aside.
pub(crate) async fn watch_kafka(health: Health, set_aside: SetAsideCount, status: Arc<Status>) {
    let mut shown = 0;
    loop {
        let count = set_aside.get();
        status.counters.set_aside.fetch_add(count - shown, Relaxed);
        shown = count;
        let trouble = health.trouble().map(|trouble| Trouble {
            since_us: trouble
                .since
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |since| since.as_micros() as i64),
            failure: Failure::new(
                walferry_engine::Disposition::Retry,
                trouble.kind,
                trouble.what,
                trouble.hint,
            ),
        });
        status.set_kafka(trouble);
        sleep(HEALTH_INTERVAL).await;
    }
}
