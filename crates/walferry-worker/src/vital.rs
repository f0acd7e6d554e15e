//! Work of the main thread that everything depends on: if it panics, the process ends.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    process,
    sync::OnceLock,
};

use tokio::task::{JoinHandle, spawn_local};
use walferry_diagnosis::Kind;

/// Name of the threads that tokio makes for work that blocks. Who waits for such work is told of its panic.
pub const POOL: &str = "blocking";

static END: OnceLock<fn() -> !> = OnceLock::new();

/// Sets how the process ends once vital work has panicked: the program first writes what is still to be written. The first call counts.
pub fn end_process_with(end: fn() -> !) {
    let _ = END.set(end);
}

/// Work of the main thread that everything depends on: if it panics, the process ends. Otherwise it would go on without it.
pub async fn vital<F: Future>(work: F) -> F::Output {
    let mut work = Box::pin(work);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| match END.get() {
            Some(end) => end(),
            None => process::exit(i32::from(Kind::Panic.exit() as u8)),
        })
    })
    .await
}

/// Starts a task of [`vital`] work.
pub fn spawn_vital<F: Future<Output: 'static> + 'static>(work: F) -> JoinHandle<F::Output> {
    spawn_local(vital(work))
}
