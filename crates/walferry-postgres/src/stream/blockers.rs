//! The transactions that delay the creation of a slot.

use std::convert::Infallible;
use std::time::Duration;
use walferry_diagnosis::Kind;

use tokio::time::sleep;
use tokio_postgres::types::Type;
use tracing::{debug, warn};
use walferry_engine::status::{Status, WaitFor};
use walferry_engine::{Disposition, Failure};

use crate::catalog::CatalogLookup;
use crate::connection::Sql;
use crate::error::Error;

/// A transaction that the creation of a slot waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Blocker {
    /// Its process id; 0 for a prepared transaction, which has no process.
    pid: i32,
    user: Option<String>,
    application: Option<String>,
    state: Option<String>,
    /// How long it has run. Only superusers and members of `pg_read_all_stats` see this.
    seconds: Option<i64>,
}

/// Usually the slot is there before the first look.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_secs(2);

/// Reports for ever which transactions the process `waiting` waits for while it creates a slot: in the status, and in
/// the log when they change. `logged` has those of the last look.
pub(crate) async fn tell(
    catalog: &mut CatalogLookup,
    waiting: i32,
    slot: &str,
    status: &Status,
    logged: &mut Vec<Blocker>,
) -> Infallible {
    sleep(FIRST_LOOK).await;
    loop {
        let found = match catalog.sql().await {
            Ok(sql) => of(sql, waiting).await,
            Err(error) => Err(error),
        };
        match found {
            Ok(found) if found.is_empty() => {}
            Ok(found) => {
                let failure = waits(slot, &found);
                if !logged
                    .iter()
                    .map(|blocker| blocker.pid)
                    .eq(found.iter().map(|blocker| blocker.pid))
                {
                    warn!(slot.name = slot, hint = hint(&found), "{failure}");
                }
                status.set_wait(WaitFor::Slot, Some(failure));
                *logged = found;
            }
            // The slot may be created nevertheless.
            Err(error) => debug!(
                error = Failure::chain(&error),
                "cannot find out which transactions the new slot waits for"
            ),
        }
        sleep(LOOK).await;
    }
}

pub(crate) async fn of(sql: &Sql, waiting: i32) -> Result<Vec<Blocker>, Error> {
    const DOING: &str = "finding the transactions that the new slot waits for";
    // To create a slot, the server waits for the lock that each transaction holds on its own id, one after another.
    const QUERY: &str = "
        SELECT b.pid, a.usename::text, a.application_name, a.state,
          EXTRACT(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::int8
        FROM pg_catalog.unnest(pg_catalog.pg_blocking_pids($1)) b(pid)
        LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid
        ORDER BY b.pid";
    let rows = sql.rows(DOING, QUERY, &[(&waiting, Type::INT4)]).await?;
    let read = |row: &tokio_postgres::Row| -> Result<Blocker, tokio_postgres::Error> {
        let text = |column| {
            Ok(row
                .try_get::<_, Option<String>>(column)?
                .filter(|text| !text.is_empty()))
        };
        Ok(Blocker {
            pid: row.try_get(0)?,
            user: text(1)?,
            application: text(2)?,
            state: text(3)?,
            seconds: row.try_get(4)?,
        })
    };
    rows.iter()
        .map(|row| read(row).map_err(|error| Error::sql(DOING, error)))
        .collect()
}

fn waits(slot: &str, blockers: &[Blocker]) -> Failure {
    Failure::new(
        Disposition::Retry,
        Kind::SlotWaits,
        format!(
            "replication slot {slot} can be created only after older transactions have ended: {}",
            list(blockers)
        ),
        Some(hint(blockers)),
    )
}

/// All of them, for messages.
pub(crate) fn list(blockers: &[Blocker]) -> String {
    let described: Vec<String> = blockers.iter().map(Blocker::describe).collect();
    described.join(", ")
}

pub(crate) fn hint(blockers: &[Blocker]) -> String {
    let end = blockers.iter().map(|blocker| match blocker.pid {
        0 => {
            "SELECT gid, prepared, owner FROM pg_prepared_xacts ORDER BY prepared; COMMIT PREPARED or ROLLBACK PREPARED"
                .to_owned()
        }
        pid => format!("SELECT pg_terminate_backend({pid});"),
    });
    let end: Vec<String> = end.collect();
    format!("wait until they end, or end them: {}", end.join(" "))
}

impl Blocker {
    fn describe(&self) -> String {
        if self.pid == 0 {
            return "a prepared transaction".to_owned();
        }
        let seconds = self.seconds.map(|seconds| format!("for {seconds} s"));
        let user = self.user.as_ref().map(|user| format!("user {user}"));
        let known: Vec<String> = [user, self.application.clone(), self.state.clone(), seconds]
            .into_iter()
            .flatten()
            .collect();
        match known.is_empty() {
            true => format!("process {}", self.pid),
            false => format!("process {} ({})", self.pid, known.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_named_as_far_as_the_role_may_see_them() {
        let unseen = Blocker {
            pid: 7,
            user: None,
            application: None,
            state: None,
            seconds: None,
        };
        let seen = Blocker {
            pid: 8,
            user: Some("app".into()),
            application: Some("psql".into()),
            state: Some("idle in transaction".into()),
            seconds: Some(90),
        };
        let prepared = Blocker {
            pid: 0,
            ..unseen.clone()
        };
        let failure = waits("s", &[unseen, seen, prepared]);
        assert_eq!(
            failure.to_string(),
            "replication slot s can be created only after older transactions have ended: process 7, process 8 (user app, psql, idle in \
             transaction, for 90 s), a prepared transaction"
        );
        let hint = failure.causes[0].hint.as_deref().unwrap_or_default();
        for part in [
            "pg_terminate_backend(7)",
            "pg_terminate_backend(8)",
            "pg_prepared_xacts",
        ] {
            assert!(hint.contains(part), "{hint}");
        }
    }
}
