//! What would make a snapshot fail, before a signal asks for it.

use tokio::task::spawn_blocking;
use walferry_admin::manager::RequestedSnapshot;
use walferry_engine::{Disposition, Failure, Kind, status::Execute};

use crate::{assemble, loaded::Loaded, process};

/// Looks at the tables of a snapshot, as the role of the connector that `load` reads.
pub(crate) async fn look(
    load: impl FnOnce() -> Result<Loaded, Failure> + Send + 'static,
    snapshot: Execute,
) -> Result<RequestedSnapshot, Failure> {
    // A config provider or a server may be slow.
    let looked = spawn_blocking(move || {
        let loaded = load()?;
        let config = &loaded.connector;
        let look = walferry_postgres::requested_snapshot(config, assemble::captured(config), &snapshot);
        process::runtime()?.block_on(look)
    });
    let looked = looked.await;
    match looked.unwrap_or_else(|error| Err(Failure::retry(Kind::NoThread, error.to_string()))) {
        Ok(found) => Ok(RequestedSnapshot {
            tables: found.tables,
            obstacles: found.obstacles,
        }),
        // The signal waits until the server can be asked.
        Err(failure) if failure.disposition == Disposition::Retry => Ok(RequestedSnapshot::default()),
        Err(failure) => Err(failure),
    }
}
