//! TimescaleDB's catalog: which hypertable each chunk belongs to.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::sleep;
use tokio_postgres::Row;
use walferry_config::Connector;
use walferry_diagnosis::Diagnosis;
use walferry_engine::{Failure, Pauses};
use walferry_transform::{HypertableReader, Hypertables, Reading, TableId};

use crate::catalog::CatalogLookup;
use crate::connection::{Endpoint, Sql, within};
use crate::error::Error;

/// How long a try may take. If it takes longer, the catalog is locked or the connection is dead, and the next try uses
/// a new connection.
const LIMIT: Duration = Duration::from_secs(60);
/// Pauses between two tries.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
const DOING: &str = "reading TimescaleDB's catalog";

/// One query for both, so that they are consistent: the hypertable of each chunk, and the view of each hypertable that
/// holds a continuous aggregate.
const QUERY: &str = "
SELECT true, c.schema_name::text, c.table_name::text, h.schema_name::text, h.table_name::text
FROM _timescaledb_catalog.chunk c JOIN _timescaledb_catalog.hypertable h ON h.id OPERATOR(pg_catalog.=) c.hypertable_id
UNION ALL
SELECT false, h.schema_name::text, h.table_name::text, a.user_view_schema::text, a.user_view_name::text
FROM _timescaledb_catalog.continuous_agg a
JOIN _timescaledb_catalog.hypertable h ON h.id OPERATOR(pg_catalog.=) a.mat_hypertable_id";

/// The present content of the catalog.
///
/// # Errors
/// [`Error::NoTimescale`] if the database has no such catalog.
pub(crate) async fn hypertables(sql: &Sql) -> Result<Hypertables, Error> {
    let rows = sql.rows(DOING, QUERY, &[]).await.map_err(|error| match error {
        Error::Server { source, .. } if matches!(source.code.as_str(), "42P01" | "3F000") => {
            Error::NoTimescale { source }
        }
        other => other,
    })?;
    let mut found = Hypertables::default();
    for row in &rows {
        let (from, to) = (table(row, 1)?, table(row, 3)?);
        match row.try_get(0).map_err(|error| Error::sql(DOING, error))? {
            true => found.chunks.insert(from, to),
            false => found.aggregates.insert(from, to),
        };
    }
    Ok(found)
}

/// The table named by two columns, of which the first is at `place`.
fn table(row: &Row, place: usize) -> Result<TableId, Error> {
    let text = |place| row.try_get::<_, &str>(place).map_err(|error| Error::sql(DOING, error));
    Ok(TableId::new(text(place)?, text(place + 1)?))
}

/// Reads the catalog for transforms, over its own connection, which is opened when it is first needed. Retries until it
/// succeeds, and tells those who wait what the problem is.
#[derive(Clone)]
pub struct TimescaleCatalog {
    lookup: Arc<Mutex<CatalogLookup>>,
    runtime: Handle,
    begun: Instant,
}

impl TimescaleCatalog {
    /// Does not connect yet. Uses the current runtime.
    ///
    /// # Panics
    /// Outside of a runtime.
    pub fn new(connector: &Connector) -> Self {
        let endpoint = Endpoint::new(connector.postgres.clone());
        Self {
            lookup: Arc::new(Mutex::new(CatalogLookup::new(endpoint))),
            runtime: Handle::current(),
            begun: Instant::now(),
        }
    }

    async fn try_once(&self) -> Result<Hypertables, Error> {
        let mut lookup = self.lookup.lock().await;
        let read = async {
            // A server may close idle connections at any time. That is not a failure.
            let reused = lookup.is_open();
            match hypertables(lookup.sql().await?).await {
                Err(Error::Lost { .. }) if reused => {
                    lookup.close();
                    hypertables(lookup.sql().await?).await
                }
                other => other,
            }
        };
        let read = within(LIMIT, read).await;
        if read.is_none() {
            lookup.close();
        }
        read.unwrap_or(Err(Error::Silent {
            doing: DOING,
            seconds: LIMIT.as_secs(),
        }))
    }

    /// Ends when it has succeeded, or when nobody waits for the result any more.
    async fn try_until_read(self, reading: Weak<Reading>) {
        let mut pauses = Pauses::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let tried = self.try_once().await;
            let Some(reading) = reading.upgrade() else { return };
            match tried {
                Ok(found) => return reading.finish(found),
                Err(error) => {
                    let trouble = Diagnosis::error(error.kind(), Failure::chain(&error)).with_any_hint(error.hint());
                    if error.is_password_refused() {
                        // The run ends, and the next one asks the config providers for the password.
                        return reading.wait().refuse(trouble);
                    }
                    reading.wait().set_trouble(trouble);
                }
            }
            drop(reading);
            sleep(pauses.next_pause()).await;
        }
    }
}

impl HypertableReader for TimescaleCatalog {
    fn read(&self) -> Arc<Reading> {
        let reading = Arc::new(Reading::default());
        self.runtime
            .spawn(self.clone().try_until_read(Arc::downgrade(&reading)));
        reading
    }

    fn clock(&self) -> Duration {
        self.begun.elapsed()
    }
}

impl fmt::Debug for TimescaleCatalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimescaleCatalog").finish_non_exhaustive()
    }
}
