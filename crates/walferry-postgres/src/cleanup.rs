//! Removes delivered rows of outbox tables, beside the stream.
//!
//! A row may go once its transaction is confirmed: Kafka has the event, the offset is stored, and Postgres was told. SQL shows neither the
//! LSN at which a row was committed nor the order of commits. So the proof goes through a *mark*, which is taken in one statement:
//!
//! 1. the `xmin` of a snapshot: every transaction with a lower id had ended when the snapshot was taken;
//! 2. after it, the position at which the server writes next. A transaction that had ended had written its commit before it.
//!
//! Once the slot is confirmed *beyond* that position, every row whose own transaction id is below that `xmin` is confirmed, as far as it
//! can be seen at all.
//!
//! Three details carry the proof:
//!
//! - The position is that of the next insertion. With `synchronous_commit=off` a commit can be seen before it is written out, so
//!   `pg_current_wal_lsn()` may lie before it.
//! - Ids between the snapshot's `xmin` and its `xmax` are not looked up in its list of running transactions: this list does not have
//!   subtransactions, whose ids stand in rows that a savepoint wrote.
//! - "Beyond" excludes the position itself. On a server that writes nothing, a slot is confirmed at the position at which it was
//!   created, before any existing row has been read from it.
//!
//! A mark counts on the connection on which it was taken, and no longer: after a failover neither ids nor positions mean the same.
//!
//! That the slot is beyond a row does not say that the row was sent: it may have been written before its table was captured, while the
//! publication left it out, or in a gap. So each table and each partition has a *floor* (`floors.rs`): a transaction id that was assigned
//! while the connector streamed the table, and the time of it. Rows with a lower transaction id are never removed. Neither are rows from
//! before that time: an update gives an old row a new transaction id. The floor lasts as long as the connector's connection, and as long as
//! the table and its place in the publication stay what they are, by the catalog's own row versions.

mod floors;

use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};
use walferry_config::Connector;
use walferry_engine::status::NotCaptured;
use walferry_pgoutput::Lsn;

use crate::connect::{Endpoint, Purpose, Sql};
use crate::error::Error;
use floors::Floors;

/// An outbox table whose rows are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CleanedTable {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The column that tells how old a row is.
    pub column: String,
    /// How old a row must be.
    pub keep: Duration,
    /// How many rows one statement removes at most.
    pub batch_rows: u32,
}

/// What a round has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Round {
    /// Rows that were removed.
    pub removed: u64,
    /// How long the server worked on it.
    pub took: Duration,
    /// Whether there may be more to remove at once.
    pub more: bool,
    /// Nothing was removed because the slot is this many bytes behind: removing rows would make its backlog longer.
    pub behind_bytes: Option<u64>,
}

/// Removes rows, over a connection of its own.
#[derive(Debug)]
pub struct Cleaner {
    endpoint: Endpoint,
    slot: String,
    sql: Option<Sql>,
    /// Waits to be confirmed.
    pending: Option<Mark>,
    /// All rows with a lower transaction id are confirmed.
    confirmed_xmin: Option<i64>,
    floors: Floors,
    targets: Vec<Target>,
    /// When they were looked for.
    looked: Option<Instant>,
    /// The next one to look through.
    next: usize,
    /// The position that the last mark was settled at, if nobody else had written anything: no other mark is needed here.
    quiet_at: Option<Lsn>,
    /// Whether this has written the last thing that it saw in the WAL.
    has_nudged: bool,
    /// When the server of this connection was started.
    server: Option<String>,
    distributes_invalidations: bool,
    is_version_told: bool,
    /// [`NotCaptured::changes`] at the last round.
    changes: u64,
}

/// A place at which everything that a snapshot shows was committed.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// All transactions with a lower id had ended.
    xmin: i64,
    /// They had ended before this position.
    lsn: Lsn,
}

/// A table, and what removes its rows.
#[derive(Debug)]
struct Target {
    /// For the log.
    table: String,
    /// Removes one batch of rows; see [`delete`].
    delete: String,
    keep_ms: i64,
    batch_rows: i64,
    /// The table itself, or its partitions. Rows of other partitions stay.
    parts: Vec<u32>,
    /// The floor of each part: a transaction id,
    xids: Vec<i64>,
    /// and a time in microseconds since 1970.
    since_us: Vec<i64>,
}

const DOING: &str = "removing delivered rows of an outbox";
const LOOKING: &str = "looking for delivered rows of an outbox";

/// How long the list of tables counts.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Bytes that the slot may be behind.
const MOST_BEHIND: u64 = 256 * 1024 * 1024;

/// The version of the server, and when it was started.
const SERVER: &str = "SELECT current_setting('server_version_num')::int4, pg_catalog.pg_postmaster_start_time()::text";

/// Whether a change of a publication reaches transactions that are running. Without it, which versions before May 2025 lack, rows of a table
/// that has just been published may not be in the stream.
const fn distributes_invalidations(version: i32) -> bool {
    let minor = version % 10000;
    match version / 10000 {
        14 => minor >= 18,
        15 => minor >= 13,
        16 => minor >= 9,
        17 => minor >= 5,
        major => major > 17,
    }
}

/// All in one statement: its snapshot is taken before any function of it is called.
const MARK: &str = "
    SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::int8,
           (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::int8,
           (SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_catalog.pg_replication_slots
            WHERE slot_name = $1 AND database = pg_catalog.current_database())";

impl Cleaner {
    /// Opens nothing yet.
    pub fn new(connector: &Connector) -> Self {
        Self {
            endpoint: Endpoint::new(connector.postgres.clone()),
            slot: connector.slot.name.to_string(),
            sql: None,
            pending: None,
            confirmed_xmin: None,
            floors: Floors::new(&connector.publication.name),
            targets: Vec::new(),
            looked: None,
            next: 0,
            quiet_at: None,
            has_nudged: false,
            server: None,
            distributes_invalidations: false,
            is_version_told: false,
            changes: 0,
        }
    }

    /// Forgets what is known: the connector did not stream all the time. Rows that are there now are never removed.
    pub fn forget(&mut self) {
        self.forget_marks();
        self.floors.forget();
        self.targets.clear();
        self.looked = None;
        self.next = 0;
    }

    fn forget_marks(&mut self) {
        self.pending = None;
        self.confirmed_xmin = None;
        self.quiet_at = None;
    }

    /// Takes and settles marks, and removes at most one batch of rows. `told` is the position up to which the connector itself has
    /// told the server that it needs nothing any more.
    /// `not_captured` is what the stream has brought up to there.
    ///
    /// # Errors
    /// The server cannot be asked, or refuses. The next round begins anew.
    pub async fn round(
        &mut self,
        tables: &[CleanedTable],
        told: Lsn,
        not_captured: &NotCaptured,
    ) -> Result<Round, Error> {
        let done = self.try_round(tables, told, not_captured).await;
        if done.is_err() {
            self.sql = None;
            self.looked = None;
            self.next = 0;
            self.forget_marks();
        }
        done
    }

    async fn try_round(
        &mut self,
        tables: &[CleanedTable],
        told: Lsn,
        not_captured: &NotCaptured,
    ) -> Result<Round, Error> {
        let begun = Instant::now();
        let mut round = Round::default();
        if told == Lsn::INVALID {
            // Nothing is confirmed in this run yet.
            return Ok(round);
        }
        if self.sql.as_ref().is_none_or(Sql::is_closed) {
            self.connect().await?;
        }
        if !self.distributes_invalidations {
            return Ok(round);
        }
        if self.changes != not_captured.changes {
            // A table is captured again that was not for a while.
            self.changes = not_captured.changes;
            self.floors.forget();
            self.next = 0;
            self.looked = None;
            self.targets.clear();
        }
        let Some(seen) = self.look().await? else {
            // Without a slot nothing is confirmed.
            self.forget();
            return Ok(round);
        };
        let confirmed = seen.confirmed.min(told);
        self.move_mark(&seen, confirmed).await?;
        let behind = seen.here.0.saturating_sub(confirmed.0);
        if behind > MOST_BEHIND {
            round.behind_bytes = Some(behind);
            return Ok(round);
        }
        if self.next == 0 && self.looked.is_none_or(|looked| looked.elapsed() > LOOK_INTERVAL) {
            let sql = self.sql.as_ref().expect("opened above");
            self.targets = self.floors.targets(sql, tables, &not_captured.oids).await?;
            self.looked = Some(Instant::now());
        }
        if let Some(xmin) = self.confirmed_xmin {
            self.remove(xmin, &mut round).await?;
        }
        round.took = begun.elapsed();
        Ok(round)
    }

    /// Opens the connection, and finds out which server answers and whether its version can be relied on.
    async fn connect(&mut self) -> Result<(), Error> {
        self.forget_marks();
        let sql = self.endpoint.sql(Purpose::Cleanup).await?;
        // Who works on the rows goes first: a lock is not waited for as long as it takes the server to look for a deadlock.
        sql.execute(DOING, "SET lock_timeout = '500ms'; SET statement_timeout = '30s'")
            .await?;
        let rows = sql.rows(LOOKING, SERVER, &[]).await?;
        let row = rows.first();
        let version: i32 = row
            .map_or(Ok(0), |row| row.try_get(0))
            .map_err(|error| Error::sql(LOOKING, error))?;
        let server: Option<String> = row
            .map(|row| row.try_get(1))
            .transpose()
            .map_err(|error| Error::sql(LOOKING, error))?;
        if self.server.is_some() && self.server != server {
            // Another server answers, or this one was restarted.
            self.forget();
        }
        self.server = server;
        self.distributes_invalidations = distributes_invalidations(version);
        if !self.distributes_invalidations && !std::mem::replace(&mut self.is_version_told, true) {
            tracing::warn!(
                version,
                hint = "update the server to 14.18, 15.13, 16.9, 17.5 or later, or remove walferry.retention.ms",
                "delivered rows are not removed: this version of Postgres may leave rows out of the stream when a publication changes"
            );
        }
        self.sql = Some(sql);
        Ok(())
    }

    /// Looks at the server's position and at the slot. `None` if there is no slot.
    async fn look(&self) -> Result<Option<Seen>, Error> {
        let sql = self.sql.as_ref().expect("opened before");
        let rows = sql.rows(LOOKING, MARK, &[(&self.slot, Type::TEXT)]).await?;
        let number = |place: usize| -> Result<Option<i64>, Error> {
            let row = rows.first().ok_or_else(|| Error::Protocol {
                doing: LOOKING,
                problem: "no row".to_owned(),
            })?;
            row.try_get(place).map_err(|error| Error::sql(LOOKING, error))
        };
        let position = |number: i64| Lsn(number.unsigned_abs());
        let (Some(xmin), Some(here), Some(confirmed)) = (number(0)?, number(1)?, number(2)?) else {
            return Ok(None);
        };
        Ok(Some(Seen {
            xmin,
            here: position(here),
            confirmed: position(confirmed),
        }))
    }

    /// Takes the pending mark for confirmed if the slot is beyond it, and sets the next one.
    async fn move_mark(&mut self, seen: &Seen, confirmed: Lsn) -> Result<(), Error> {
        let here = seen.here;
        if let Some(mark) = self.pending
            && mark.lsn < confirmed
        {
            self.confirmed_xmin = Some(mark.xmin);
            self.pending = None;
            // The publication is looked at again: it may have left out rows that are below this mark.
            self.next = 0;
            self.looked = None;
            self.quiet_at = std::mem::take(&mut self.has_nudged).then_some(here);
        } else if self
            .pending
            .is_some_and(|mark| mark.lsn == confirmed && mark.lsn == here)
        {
            let sql = self.sql.as_ref().expect("opened before");
            // Nothing else is written here. The commit of a transaction without changes moves the slot beyond the mark.
            sql.execute(LOOKING, "SELECT pg_catalog.pg_current_xact_id()").await?;
            self.has_nudged = true;
        }
        if self.pending.is_none() && self.quiet_at != Some(here) {
            self.pending = Some(Mark {
                xmin: seen.xmin,
                lsn: here,
            });
        }
        Ok(())
    }

    /// Removes delivered rows of the next target, with one statement.
    async fn remove(&mut self, xmin: i64, round: &mut Round) -> Result<(), Error> {
        if let Some(target) = self.targets.get(self.next) {
            let sql = self.sql.as_ref().expect("opened before");
            let earliest = *target.since_us.iter().min().expect("a target has parts");
            let parameters: [(&(dyn ToSql + Sync), Type); 7] = [
                (&xmin, Type::INT8),
                (&target.keep_ms, Type::INT8),
                (&target.batch_rows, Type::INT8),
                (&earliest, Type::INT8),
                (&target.parts, Type::OID_ARRAY),
                (&target.xids, Type::INT8_ARRAY),
                (&target.since_us, Type::INT8_ARRAY),
            ];
            let removed: i64 = sql.value(DOING, &target.delete, &parameters).await?;
            round.removed = removed.unsigned_abs();
            tracing::debug!(table = target.table, rows = removed, "delivered rows removed");
            let is_empty = removed < target.batch_rows;
            self.next += usize::from(is_empty);
        }
        round.more = self.next < self.targets.len();
        if !round.more {
            self.next = 0;
        }
        Ok(())
    }
}

/// What a look at the server has shown.
struct Seen {
    /// Transactions below this have written their commits before `here`.
    xmin: i64,
    /// Where the server inserts next.
    here: Lsn,
    /// How far the slot is confirmed.
    confirmed: Lsn,
}

/// Whether a row is older than `$2` milliseconds and from after its floor, by a column of this type; `None` for a type that does not tell.
/// `$4` is the earliest floor: with an index on the column, rows from before it are not even read.
fn is_due(column: &str, kind: &str) -> Option<String> {
    const AGE: &str = "$2 * interval '1 millisecond'";
    let since = |us: &str| format!("('1970-01-01 00:00:00+00'::timestamptz + {us} * interval '1 microsecond')");
    let floor = of_part("$7");
    Some(match kind {
        "timestamp with time zone" => format!(
            "{column} < pg_catalog.now() - {AGE} AND {column} > {} AND {column} > {}",
            since("$4"),
            since(&floor)
        ),
        // As in records: a timestamp without time zone is UTC.
        "timestamp without time zone" => format!(
            "{column} < (pg_catalog.now() AT TIME ZONE 'UTC') - {AGE} AND {column} > ({} AT TIME ZONE 'UTC')
             AND {column} > ({} AT TIME ZONE 'UTC')",
            since("$4"),
            since(&floor)
        ),
        // The division truncates, so the next millisecond is the first one that is after the floor.
        "bigint" => format!(
            "{column} < (EXTRACT(epoch FROM pg_catalog.now()) * 1000)::int8 - $2 AND {column} > $4::int8 / 1000 + 1
             AND {column} > {floor} / 1000 + 1"
        ),
        _ => return None,
    })
}

/// What an array holds for the partition of a row, or for the table itself. NULL for a partition that is not in `$5`: no condition on it is
/// then true.
fn of_part(array: &str) -> String {
    format!("({array}::int8[])[pg_catalog.array_position($5::oid[], tableoid)]")
}

/// The ids of rows are the lower 32 bits of transaction ids. `$1` is all 64 of one, so the distance is taken modulo 2^32: a row is before
/// it if the distance is less than 2^31. No row that can be seen is further ahead than that; one that lies further back, and that was
/// frozen long ago, may stay. `$6` has the floor of each partition, in 64 bits, too.
///
/// The rows are not locked first: that would need the privilege to update them. A row that is updated meanwhile has another `ctid`, and
/// stays: the second condition is looked at again for the new row. The first one finds the rows without reading the table.
fn delete(table: &str, column: &str, is_due: &str) -> String {
    let distance = "(((($1 - xmin::text::int8) % 4294967296) + 4294967296) % 4294967296)";
    let floor = of_part("$6");
    format!(
        "WITH batch AS MATERIALIZED (
           SELECT tableoid AS part, ctid AS place FROM {table}
           WHERE {is_due}
             AND {distance} BETWEEN 1 AND 2147483647 AND {distance} <= $1 - {floor}
           ORDER BY {column} LIMIT $3
         ), removed AS (
           DELETE FROM {table}
           WHERE ctid = ANY (ARRAY (SELECT place FROM batch)) AND (tableoid, ctid) IN (SELECT part, place FROM batch)
           RETURNING 1
         )
         SELECT pg_catalog.count(*) FROM removed"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_is_told_by_the_types_that_become_timestamps_of_records() {
        for (kind, tells) in [
            ("timestamp with time zone", true),
            ("timestamp without time zone", true),
            ("bigint", true),
            ("text", false),
            ("integer", false),
            ("date", false),
        ] {
            assert_eq!(is_due("\"c\"", kind).is_some(), tells, "{kind}");
        }
    }
}
