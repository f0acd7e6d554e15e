//! What would make a snapshot fail, before a signal asks for it.

use tokio::task::spawn_blocking;
use walferry_admin::herder::{Refused, RequestedSnapshot};
use walferry_engine::{Disposition, status::Execute};

use super::{ConnectorOrigin, Herd, keeper, refusal};
use crate::{assemble, load::Loaded, process};

/// Looks at the tables of a snapshot, as the role of the connector.
pub(super) async fn look(herd: &Herd, name: &str, snapshot: Execute) -> Result<RequestedSnapshot, Refused> {
    let connector = herd.find(name).ok_or_else(|| Refused::not_found(name))?;
    let (herd, name) = (herd.clone(), name.to_owned());
    // A config provider or a server may be slow.
    let looked = spawn_blocking(move || {
        let loaded = match &connector.origin {
            ConnectorOrigin::File(_, loaded) => Loaded::clone(loaded),
            ConnectorOrigin::Book => keeper::load(&herd.0, &name, &connector.configuration).0?,
        };
        let config = &loaded.connector;
        let look = walferry_postgres::requested_snapshot(config, assemble::captured(config), &snapshot);
        process::runtime()?.block_on(look)
    });
    match looked.await {
        Ok(Ok(found)) => Ok(RequestedSnapshot {
            tables: found.tables,
            obstacles: found.obstacles,
        }),
        // The signal waits until the server can be asked.
        Ok(Err(failure)) if failure.disposition == Disposition::Retry => Ok(RequestedSnapshot::default()),
        Ok(Err(failure)) => Err(refusal(&failure)),
        Err(error) => Err(Refused::new(500, format!("the tables were not looked at: {error}"))),
    }
}
