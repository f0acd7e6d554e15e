//! Statements that set something up for the connector, and what they wait for.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;
use tokio_postgres::types::Type;
use tracing::{debug, warn};
use walferry_engine::Failure;

use super::blockers;
use crate::connection::{Endpoint, Purpose, Sql};
use crate::error::Error;

/// How long a statement may take before the log says what it waits for.
const FIRST_LOOK: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_secs(10);

/// Runs a statement of which only somebody else can make the answer late. Logs who that is, if there is none for a while.
pub(crate) async fn execute(endpoint: &Endpoint, sql: &Sql, doing: &'static str, statement: &str) -> Result<(), Error> {
    let process: i32 = sql.value(doing, "SELECT pg_catalog.pg_backend_pid()", &[]).await?;
    tokio::select! {
        executed = sql.execute(doing, statement) => executed,
        never = tell(endpoint, process, statement) => match never {},
    }
}

/// Logs what a process waits for, on another connection, and again when it waits for something else.
async fn tell(endpoint: &Endpoint, process: i32, statement: &str) -> Infallible {
    sleep(FIRST_LOOK).await;
    let mut logged = None;
    loop {
        match look(endpoint, process).await {
            Ok(Some(wait)) if logged.as_ref() != Some(&wait) => {
                warn!(
                    statement,
                    hint = wait.hint,
                    "Postgres has not answered yet: {}",
                    wait.what
                );
                logged = Some(wait);
            }
            Ok(_) => {}
            // It may be answered nevertheless.
            Err(error) => debug!(
                error = Failure::chain(&error),
                "cannot find out what a statement waits for"
            ),
        }
        sleep(LOOK).await;
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Wait {
    what: String,
    hint: String,
}

async fn look(endpoint: &Endpoint, process: i32) -> Result<Option<Wait>, Error> {
    const DOING: &str = "finding out what a statement waits for";
    const QUERY: &str = "
        SELECT wait_event_type, wait_event, pg_catalog.current_setting('synchronous_standby_names')
        FROM pg_catalog.pg_stat_activity WHERE pid = $1";
    let sql = endpoint.sql(Purpose::General).await?;
    let rows = sql.rows(DOING, QUERY, &[(&process, Type::INT4)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let text = |column: usize| row.try_get::<_, Option<String>>(column).ok().flatten();
    let (kind, event, standbys) = (text(0), text(1), text(2).unwrap_or_default());
    Ok(match (kind.as_deref(), event.as_deref()) {
        (_, Some("SyncRep")) => Some(for_standby(&standbys)),
        (Some("Lock"), _) => {
            let blockers = blockers::of(&sql, process).await?;
            (!blockers.is_empty()).then(|| Wait {
                what: format!("it waits for a lock that others hold: {}", blockers::list(&blockers)),
                hint: blockers::hint(&blockers),
            })
        }
        _ => None,
    })
}

fn for_standby(standbys: &str) -> Wait {
    Wait {
        what: format!("it waits for a synchronous standby, which `synchronous_standby_names` ({standbys:?}) asks for"),
        hint: "start the standby, and look at SELECT application_name, state, sync_state FROM pg_stat_replication; or take it out of \
               `synchronous_standby_names` and reload the configuration"
            .to_owned(),
    }
}
