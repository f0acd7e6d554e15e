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
//! publication left it out, or in a gap. So each table has a *floor*: a transaction id that was assigned while the connector streamed the
//! table, and the time of it. Rows with a lower transaction id are never removed. Neither are rows from before that time: an update gives
//! an old row a new transaction id. The floor lasts as long as the connector's connection, and as long as the table and its place in the
//! publication stay what they are, by the catalog's own row versions ([`Floor::of`]).

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};
use walferry_config::Connector;
use walferry_pgoutput::Lsn;

use crate::connect::{Endpoint, Purpose, Sql};
use crate::error::Error;
use crate::quote::{identifier, qualified};

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
    publication: String,
    sql: Option<Sql>,
    /// Waits to be confirmed.
    pending: Option<Mark>,
    /// All rows with a lower transaction id are confirmed.
    confirmed_xmin: Option<i64>,
    /// By table.
    floors: HashMap<String, Floor>,
    /// Tables of which a warning was logged.
    warned: HashSet<String>,
    targets: Vec<Target>,
    /// When they were looked for.
    looked: Option<Instant>,
    /// The next one to look through.
    next: usize,
    /// The position that the last mark was settled at, if nobody else had written anything: no other mark is needed here.
    quiet_at: Option<Lsn>,
    /// Whether this has written the last thing that it saw in the WAL.
    has_nudged: bool,
}

/// A place at which everything that a snapshot shows was committed.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// All transactions with a lower id had ended.
    xmin: i64,
    /// They had ended before this position.
    lsn: Lsn,
}

/// Rows of a table that were written before it may never have been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Floor {
    /// What it holds for: the versions of the catalog's rows of the table and of its publication. If the table is replaced by another one of
    /// its name, or leaves the publication and comes back, this is another text.
    of: String,
    /// The transaction id.
    xid: i64,
    /// Its time by the server's clock, in microseconds since 1970.
    since_us: i64,
}

/// A table, and what removes its rows.
#[derive(Debug)]
struct Target {
    /// For the log.
    table: String,
    /// Removes one batch of rows: `$1` is the snapshot's `xmin`, `$2` milliseconds, `$3` a number of rows, `$4` and `$5` the floor.
    delete: String,
    floor: Floor,
    keep_ms: i64,
    batch_rows: i64,
}

const DOING: &str = "removing delivered rows of an outbox";
const LOOKING: &str = "looking for delivered rows of an outbox";

/// How long the list of tables counts.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// Bytes that the slot may be behind.
const MOST_BEHIND: u64 = 256 * 1024 * 1024;

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
            publication: connector.publication.name.clone(),
            sql: None,
            pending: None,
            confirmed_xmin: None,
            floors: HashMap::new(),
            warned: HashSet::new(),
            targets: Vec::new(),
            looked: None,
            next: 0,
            quiet_at: None,
            has_nudged: false,
        }
    }

    /// Forgets what is known: the connector did not stream all the time. Rows that are there now are never removed.
    pub fn forget(&mut self) {
        self.forget_marks();
        self.floors.clear();
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
    ///
    /// # Errors
    /// The server cannot be asked, or refuses. The next round begins anew.
    pub async fn round(&mut self, tables: &[CleanedTable], told: Lsn) -> Result<Round, Error> {
        let done = self.try_round(tables, told).await;
        if done.is_err() {
            self.sql = None;
            self.looked = None;
            self.next = 0;
            self.forget_marks();
        }
        done
    }

    async fn try_round(&mut self, tables: &[CleanedTable], told: Lsn) -> Result<Round, Error> {
        let begun = Instant::now();
        let mut round = Round::default();
        if told == Lsn::INVALID {
            // Nothing is confirmed in this run yet.
            return Ok(round);
        }
        if self.sql.as_ref().is_none_or(Sql::is_closed) {
            self.forget_marks();
            let sql = self.endpoint.sql(Purpose::Cleanup).await?;
            // Who works on the rows goes first.
            sql.execute(DOING, "SET lock_timeout = '5s'").await?;
            self.sql = Some(sql);
        }
        let slot = self.slot.clone();
        let sql = self.sql.as_ref().expect("opened above");
        let rows = sql.rows(LOOKING, MARK, &[(&slot, Type::TEXT)]).await?;
        let number = |place: usize| -> Result<Option<i64>, Error> {
            let row = rows.first().ok_or_else(|| Error::Protocol {
                doing: LOOKING,
                problem: "no row".to_owned(),
            })?;
            row.try_get(place).map_err(|error| Error::sql(LOOKING, error))
        };
        let position = |number: i64| Lsn(number.unsigned_abs());
        let (Some(xmin), Some(here), Some(confirmed)) = (number(0)?, number(1)?, number(2)?) else {
            // Without a slot nothing is confirmed.
            self.forget();
            return Ok(round);
        };
        let (here, confirmed) = (position(here), position(confirmed));
        let confirmed = confirmed.min(told);
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
            // Nothing else is written here. The commit of a transaction without changes moves the slot beyond the mark.
            sql.execute(LOOKING, "SELECT pg_catalog.pg_current_xact_id()").await?;
            self.has_nudged = true;
        }
        if self.pending.is_none() && self.quiet_at != Some(here) {
            self.pending = Some(Mark { xmin, lsn: here });
        }
        let behind = here.0.saturating_sub(confirmed.0);
        if behind > MOST_BEHIND {
            round.behind_bytes = Some(behind);
            return Ok(round);
        }
        if self.next == 0 && self.looked.is_none_or(|looked| looked.elapsed() > LOOK_INTERVAL) {
            let (floors, warned) = (&mut self.floors, &mut self.warned);
            self.targets = targets(sql, tables, &self.publication, floors, warned).await?;
            self.looked = Some(Instant::now());
        }
        if let Some(xmin) = self.confirmed_xmin {
            if let Some(target) = self.targets.get(self.next) {
                let parameters: [(&(dyn ToSql + Sync), Type); 5] = [
                    (&xmin, Type::INT8),
                    (&target.keep_ms, Type::INT8),
                    (&target.batch_rows, Type::INT8),
                    (&target.floor.xid, Type::INT8),
                    (&target.floor.since_us, Type::INT8),
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
        }
        round.took = begun.elapsed();
        Ok(round)
    }
}

/// The tables whose rows may be removed, with what removes them. A table that is new among them gets a floor, and one that is no longer among
/// them loses its own.
async fn targets(
    sql: &Sql,
    tables: &[CleanedTable],
    publication: &str,
    floors: &mut HashMap<String, Floor>,
    warned: &mut HashSet<String>,
) -> Result<Vec<Target>, Error> {
    // Of Postgres 15 and later.
    const HAS_SCHEMAS: &str = "SELECT pg_catalog.to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL";
    const SCHEMAS: &str = "SELECT pg_catalog.string_agg(pg_catalog.concat_ws('.', s.oid, s.xmin), ',' ORDER BY s.oid)
                           FROM pg_catalog.pg_publication_namespace s JOIN pg_catalog.pg_publication p ON p.oid = s.pnpubid
                           WHERE p.pubname = $4 AND s.pnnspid = n.oid";
    const NEXT: &str = "SELECT pg_catalog.pg_current_xact_id()::text::int8,
                               (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8";
    let schemas = match sql.value(LOOKING, HAS_SCHEMAS, &[]).await? {
        true => SCHEMAS,
        false => "SELECT ''",
    };
    // A publication lists a partitioned table, or its partitions, as it sends them.
    let query = format!("
        SELECT pg_catalog.format_type(a.atttypid, NULL),
               EXISTS (SELECT FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_tables t ON t.pubname = p.pubname
                       WHERE p.pubname = $4 AND p.pubinsert AND pg_catalog.to_jsonb(t) ->> 'rowfilter' IS NULL
                         AND t.schemaname = n.nspname AND t.tablename = c.relname),
               c.relkind = 'p', c.oid,
               pg_catalog.concat_ws('/', c.oid, c.xmin, n.oid,
                 (SELECT pg_catalog.concat_ws('.', p.oid, p.xmin) FROM pg_catalog.pg_publication p WHERE p.pubname = $4),
                 (SELECT pg_catalog.string_agg(pg_catalog.concat_ws('.', r.oid, r.xmin), ',' ORDER BY r.oid)
                  FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid
                  WHERE p.pubname = $4 AND (r.prrelid = c.oid OR r.prrelid IN (SELECT pg_catalog.pg_partition_ancestors(c.oid)))),
                 ({schemas}))
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
        WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p')
          AND a.attname = $3 AND a.attnum > 0 AND NOT a.attisdropped"
    );
    let mut targets = Vec::new();
    for table in tables {
        let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
            (&table.schema, Type::TEXT),
            (&table.name, Type::TEXT),
            (&table.column, Type::TEXT),
            (&publication, Type::TEXT),
        ];
        let rows = sql.rows(LOOKING, &query, &parameters).await?;
        // It was dropped meanwhile.
        let Some(row) = rows.first() else { continue };
        let read = |error| Error::sql(LOOKING, error);
        let kind: String = row.try_get(0).map_err(read)?;
        let published: bool = row.try_get(1).map_err(read)?;
        let is_partitioned: bool = row.try_get(2).map_err(read)?;
        let oid: u32 = row.try_get(3).map_err(read)?;
        let of: String = row.try_get(4).map_err(read)?;
        let shown = format!("{}.{}", table.schema, table.name);
        if !published {
            if warned.insert(shown.clone()) {
                tracing::warn!(
                    table = shown,
                    publication,
                    hint = "publish all inserted rows of the table, without a row filter, or remove walferry.retention.ms. Rows that were \
                            written until then are never removed",
                    "delivered rows are not removed: the publication does not send all rows of the table"
                );
            }
            continue;
        }
        let column = identifier(&table.column);
        let Some(is_due) = is_due(&column, &kind) else {
            if warned.insert(shown.clone()) {
                tracing::warn!(
                    table = shown,
                    column = table.column,
                    found = kind,
                    hint = "name a column of type timestamptz, timestamp or bigint in table.field.event.timestamp",
                    "delivered rows are not removed: the column does not tell how old a row is"
                );
            }
            continue;
        };
        let name = qualified(&table.schema, &table.name);
        // Tables that inherit from it have a publication of their own, or none.
        let from = if is_partitioned { name } else { format!("ONLY {name}") };
        let is_there = match is_partitioned {
            true => is_in_partition(),
            false => format!("tableoid = {oid}"),
        };
        targets.push(Target {
            delete: delete(&from, &column, &format!("{is_there} AND {is_due}")),
            table: shown,
            floor: Floor {
                of,
                xid: i64::MAX,
                since_us: i64::MAX,
            },
            keep_ms: i64::try_from(table.keep.as_millis()).unwrap_or(i64::MAX),
            batch_rows: table.batch_rows.into(),
        });
    }
    let is_of = |target: &Target, table: &str, floor: &Floor| target.table == table && target.floor.of == floor.of;
    floors.retain(|table, floor| targets.iter().any(|target| is_of(target, table, floor)));
    if targets.iter().any(|target| !floors.contains_key(&target.table)) {
        // After the look: transactions that get an id from now on write while the table is published.
        let rows = sql.rows(LOOKING, NEXT, &[]).await?;
        let row = rows.first().ok_or_else(|| Error::Protocol {
            doing: LOOKING,
            problem: "no row".to_owned(),
        })?;
        let number =
            |place: usize| -> Result<i64, Error> { row.try_get(place).map_err(|error| Error::sql(LOOKING, error)) };
        let (xid, since_us) = (number(0)?, number(1)?);
        for target in &targets {
            floors.entry(target.table.clone()).or_insert_with(|| {
                tracing::info!(
                    table = target.table,
                    "rows that are written from now on are removed once they are old and delivered; rows from before stay"
                );
                Floor {
                    of: target.floor.of.clone(),
                    xid,
                    since_us,
                }
            });
        }
    }
    for target in &mut targets {
        if let Some(floor) = floors.get(&target.table) {
            target.floor = floor.clone();
        }
    }
    Ok(targets)
}

/// A condition on a row of a partitioned table: its partition is in the WAL, and was one when the row was written. A table that is attached
/// later has rows that were never sent. Rows of the transaction that has created the partition stay.
fn is_in_partition() -> String {
    let attached =
        "(SELECT i.xmin::text::int8 FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
                     WHERE i.inhrelid = tableoid AND c.relkind = 'r' AND c.relpersistence = 'p')";
    format!("(((xmin::text::int8 - {attached}) % 4294967296) + 4294967296) % 4294967296 BETWEEN 1 AND 2147483647")
}

/// Whether a row is older than `$2` milliseconds and not from before `$5`, by a column of this type; `None` for a type that does not tell.
fn is_due(column: &str, kind: &str) -> Option<String> {
    const AGE: &str = "$2 * interval '1 millisecond'";
    const SINCE: &str = "('1970-01-01 00:00:00+00'::timestamptz + $5 * interval '1 microsecond')";
    Some(match kind {
        "timestamp with time zone" => format!("{column} < pg_catalog.now() - {AGE} AND {column} >= {SINCE}"),
        // As in records: a timestamp without time zone is UTC.
        "timestamp without time zone" => format!(
            "{column} < (pg_catalog.now() AT TIME ZONE 'UTC') - {AGE} AND {column} >= ({SINCE} AT TIME ZONE 'UTC')"
        ),
        "bigint" => format!(
            "{column} < (EXTRACT(epoch FROM pg_catalog.now()) * 1000)::int8 - $2 AND {column} >= $5::int8 / 1000"
        ),
        _ => return None,
    })
}

/// The ids of rows are the lower 32 bits of transaction ids. `$1` is all 64 of one, so the distance is taken modulo 2^32: a row is before
/// it if the distance is less than 2^31. No row that can be seen is further ahead than that; one that lies further back, and that was
/// frozen long ago, may stay. `$4` is the floor, in 64 bits, too.
///
/// The rows are not locked first: that would need the privilege to update them. A row that is updated meanwhile has another `ctid`, and
/// stays: the second condition is looked at again for the new row. The first one finds the rows without reading the table.
fn delete(table: &str, column: &str, is_due: &str) -> String {
    format!(
        "WITH batch AS MATERIALIZED (
           SELECT tableoid AS part, ctid AS place FROM {table}
           WHERE {is_due}
             AND ((($1 - xmin::text::int8) % 4294967296) + 4294967296) % 4294967296 BETWEEN 1 AND least($1 - $4, 2147483647)
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
