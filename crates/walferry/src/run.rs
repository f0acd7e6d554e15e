//! `walferry run`.

use std::{
    future::pending,
    net::SocketAddr,
    path::Path,
    sync::{Arc, OnceLock},
    time::SystemTime,
};

use rustix::thread::disable_transparent_huge_pages;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::{LocalSet, spawn_local},
};
use tracing::{info, warn};
use walferry_admin::Admin;
use walferry_diagnosis::Kind;
use walferry_engine::{
    Failure,
    supervisor::{Connectors as _, Supervisor},
};

use crate::{
    cli::RunArgs,
    error::Error,
    listen,
    load::{Loaded, data_dir, load},
    process::{self, Tell},
    progress::{self, Bars},
};

/// Runs until a signal, or until its only connector has failed for good.
pub(crate) fn run(args: &RunArgs, bars: &Bars) -> Result<(), Error> {
    // Where Linux gives huge pages unasked, 14 MiB more would be resident. Where that fails, nothing else is lost.
    disable_transparent_huge_pages(true).ok();
    let loaded = load(&args.connector)?.connectors;
    let wanted = listen::wanted(args.admin, &loaded)?;
    let data_dir = data_dir(&args.data);
    let runtime = process::runtime().map_err(|failure| Error::failure("Walferry did not start", failure))?;
    let served = LocalSet::new().block_on(&runtime, serve(wanted, bars, &loaded, &data_dir));
    bars.clear();
    served
}

async fn serve(wanted: SocketAddr, bars: &Bars, loaded: &[Loaded], data_dir: &Path) -> Result<(), Error> {
    let listener = listen(wanted).await?;
    let supervisor = process::start(loaded, data_dir, Tell::AtOnce);
    let stop = watch::Sender::new(false);
    let admin = Admin {
        connectors: Arc::new(supervisor.clone()),
        version: env!("CARGO_PKG_VERSION"),
        kafka_cluster_id: Arc::new(OnceLock::new()),
        started: SystemTime::now(),
    };
    let admin = spawn_local(walferry_admin::serve(listener, admin, stopped(stop.subscribe())));
    for status in supervisor.statuses().into_iter().filter(|_| bars.are_shown()) {
        spawn_local(progress::show(bars.clone(), status));
    }
    let outcome = tokio::select! {
        () = signalled() => Ok(()),
        failure = failed_alone(&supervisor, loaded) => Err(failure),
    };
    stop.send_replace(true);
    let stopped = supervisor.stop_all().await;
    let _ = admin.await;
    // What has failed is told already.
    outcome
        .and(stopped)
        .map_err(|failure| Error::failure("a connector has stopped", failure).already_told())
}

async fn listen(wanted: SocketAddr) -> Result<TcpListener, Error> {
    let listener = walferry_admin::bind(wanted).await.map_err(|error| {
        let hint = error.hint();
        Error::new(Kind::AdminAddress, "the admin endpoint did not start").cause(Failure::chain(&error), hint)
    })?;
    // Port 0 is whichever is free.
    let address = listener.local_addr().unwrap_or(wanted);
    info!(%address, page = %format_args!("http://{address}/ui"), "admin endpoint listens");
    if !address.ip().to_canonical().is_loopback() {
        warn!(
            %address,
            hint = "listen on 127.0.0.1, or let a firewall or a proxy with a login decide who reaches it",
            "the admin endpoint has no login, and other machines may reach it: they see names of topics, tables and slots, and can \
             pause, stop and restart connectors"
        );
    }
    Ok(listener)
}

/// With one connector the process ends with it, so that whoever started it sees that; with several it stays.
async fn failed_alone(supervisor: &Supervisor, loaded: &[Loaded]) -> Failure {
    match loaded {
        [only] => supervisor.failure(&only.connector.name).await,
        _ => pending().await,
    }
}

async fn signalled() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return pending().await;
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
