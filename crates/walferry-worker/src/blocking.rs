//! Work that blocks, on a thread where it delays nobody.

use tokio::task::{JoinError, spawn_blocking};

/// Runs work on another thread. In a simulation, nothing may depend on other threads.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
    #[cfg(test)]
    if crate::simulation::is_running() {
        return Ok(work());
    }
    spawn_blocking(work).await
}
