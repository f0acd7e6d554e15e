//! SIGTERM and SIGINT. A thread of their own hears them, so they work whatever the rest of the process waits for.

use std::{
    future::pending,
    sync::{OnceLock, mpsc},
    thread,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
};
use tracing::info;
use walferry_worker::process;

use crate::output;

/// Whether a signal has come. It is there from the moment on from which signals no longer end the process by themselves.
static ASKED: OnceLock<Option<watch::Sender<bool>>> = OnceLock::new();

/// Has the first signal ask the process to end, instead of ending it. The second one ends it at once.
pub(crate) fn catch() {
    catch_all(None);
}

/// The same, also for the end of the terminal.
#[cfg(feature = "demo")]
pub(crate) fn catch_with_hangup() {
    catch_all(Some(SignalKind::hangup()));
}

fn catch_all(more: Option<SignalKind>) {
    ASKED.get_or_init(|| {
        let (installed, is_installed) = mpsc::channel();
        let hear = move || {
            let Ok(runtime) = process::runtime() else { return };
            runtime.block_on(async {
                let kinds = [SignalKind::terminate(), SignalKind::interrupt()];
                let [Ok(mut terminate), Ok(mut interrupt)] = kinds.map(signal) else {
                    return;
                };
                let mut more = more.and_then(|kind| signal(kind).ok());
                let asked = watch::Sender::new(false);
                drop(installed.send(asked.clone()));
                loop {
                    let (name, code) = tokio::select! {
                        _ = terminate.recv() => ("SIGTERM", 128 + 15),
                        _ = interrupt.recv() => ("SIGINT", 128 + 2),
                        Some(_) = async { more.as_mut()?.recv().await } => ("SIGHUP", 128 + 1),
                    };
                    if asked.send_replace(true) {
                        output::exit_at_once(code);
                    }
                    info!(
                        signal = name,
                        "stopping: delivering, storing and confirming what is in flight, within 10 s; a second signal ends at once"
                    );
                }
            });
        };
        // If it cannot be started, signals end the process by themselves, and nothing is lost by that.
        drop(thread::Builder::new().name("signals".into()).spawn(hear));
        is_installed.recv().ok()
    });
}

/// Waits until the process is asked to end.
pub(crate) async fn signalled() {
    catch();
    match ASKED.get().and_then(Option::as_ref) {
        // The sender lives as long as the process.
        Some(asked) => drop(asked.subscribe().wait_for(|asked| *asked).await),
        None => pending().await,
    }
}

/// Whether the process was asked to end.
pub(crate) fn has_come() -> bool {
    let asked = ASKED.get().and_then(Option::as_ref);
    asked.is_some_and(|asked| *asked.borrow())
}
