//! `walferry run`.

use std::{
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
    let loaded = load(&args.connector)?;
    let data_dir = data_dir(&args.data);
    let statuses: Vec<_> = loaded
        .iter()
        .map(|l| Arc::new(Status::new(&l.connector.name, l.connector.topics.prefix.to_string())))
        .collect();
    let connectors = loaded
        .iter()
        .zip(&statuses)
        .map(|(loaded, status)| assemble::connector(loaded, &data_dir, status.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Error::setup(format!("the runtime does not start: {error}")))?;
    let served = LocalSet::new().block_on(&runtime, serve(args, bars, &loaded, statuses, connectors));
    bars.clear();
    served
}

async fn serve(
    args: &RunArgs,
    bars: &Bars,
    loaded: &[Loaded],
    statuses: Vec<Arc<Status>>,
    connectors: Vec<Assembled>,
) -> Result<(), Error> {
    let wanted = match (args.admin, loaded.first()) {
        (Some(address), _) => address,
        (None, Some(loaded)) => listen::address(&loaded.worker.listeners)?,
        (None, None) => listen::DEFAULT,
    };
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
    match &result {
        Ok(()) => info!(
            connector = name,
            "connector stopped: everything delivered is stored and confirmed"
        ),
        Err(error) => tracing::error!(connector = name, "{error}"),
    }
    result
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
