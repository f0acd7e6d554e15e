//! Blocking work on a separate thread, so that it delays no task.

use tokio::task::{JoinError, spawn_blocking};

/// Runs blocking work on another thread, or inline in a simulation, where nothing may depend on other threads.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(test)]
    if crate::simulation::is_running() {
        return Ok(work());
    }
    spawn_blocking(work).await
}
