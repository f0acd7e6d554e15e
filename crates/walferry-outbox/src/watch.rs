//! Counts what waits in outbox tables: committed rows that are not confirmed, and dead rows. It removes nothing.
//!
//! SQL does not show at which LSN a row was committed. So each look takes a *mark*: a snapshot, and after it the position at which the
//! server writes next. Once the slot is confirmed up to that position, the rows that the snapshot shows are confirmed. All others that are
//! there now count as waiting.
//!
//! No look reads a whole table. It reads the newest rows by an index, and more of them only while all of these wait.
//!
//! Somebody may have locked a partition. Its size is then estimated, and the rows of a time without it are counted.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_postgres::types::{ToSql, Type};
use walferry_config::Connector;
use walferry_config::connector::PostgresSection;
use walferry_engine::status::{OutboxFigures, Unconfirmed};
use walferry_pgoutput::Lsn;

use crate::time_column::TimeColumn;
use walferry_postgres::Error;
use walferry_postgres::connection::{Endpoint, Purpose, Sql};
use walferry_postgres::quote::{identifier, qualified};

/// An outbox table whose rows are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WatchedTable {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The column that tells how old a row is.
    pub column: String,
}

impl WatchedTable {
    /// For the log, and in the metrics.
    fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}

/// Looks at outbox tables, over a connection of its own.
#[derive(Debug)]
pub(crate) struct OutboxWatch {
    endpoint: Endpoint,
    slot: String,
    sql: Option<Sql>,
    /// Marks that are not confirmed, oldest first.
    pending: VecDeque<WatchMark>,
    /// The newest mark that is confirmed.
    settled: Option<WatchMark>,
    sizes: HashMap<String, Sizes>,
    /// What was logged last of each table that could not be looked at in full.
    logged: HashMap<String, String>,
}

/// What a look has found.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Watched {
    /// The tables with their figures.
    pub outboxes: Vec<OutboxFigures>,
    /// How many tables the server has refused to look at, as a whole or in part. Each is logged once, until it can be looked at again. A
    /// missing index and a column of another type are only logged.
    pub failed: u64,
    /// How long the look has waited until the slot was confirmed. The server had nothing to do meanwhile.
    pub waited: Duration,
}

/// A snapshot and a position after it.
#[derive(Debug, Clone)]
struct WatchMark {
    /// All transactions with this id or a higher one are not in the snapshot,
    xmax: i64,
    /// and neither are these. They are the lower 32 bits, as in rows. Subtransactions are missing, so their rows may count as confirmed.
    running: String,
    lsn: Lsn,
    /// When it was taken, in microseconds since 1970.
    at_us: i64,
}

/// What the statistics of Postgres say, and what the catalog says.
#[derive(Debug, Clone, Default)]
struct Sizes {
    seen: Option<Instant>,
    kind: String,
    has_index: bool,
    pages: i64,
    live: u64,
    dead: u64,
    bytes: u64,
    partitions: u64,
    vacuum: Option<String>,
}

const LOOKING: &str = "counting rows of an outbox";

/// How many of the newest rows are looked through. The next number is tried only if half of the rows wait.
const NEWEST: [u64; 3] = [1_000, 20_000, Unconfirmed::MOST];
/// Without an index, only smaller tables are looked through.
const SMALL_PAGES: i64 = 4_096;
/// How long to wait for a mark to be confirmed. While the stream flows, this takes a moment.
const SETTLE: Duration = Duration::from_secs(2);
const SETTLE_STEP: Duration = Duration::from_millis(200);
/// How many marks may wait. When there are more, every second one is forgotten.
const MOST_PENDING: usize = 64;
/// How long figures of sizes count.
const SIZES_INTERVAL: Duration = Duration::from_secs(60);

/// If a partition is locked, only rows are counted that are older than the last confirmed mark by no more than the first of these, and later
/// than the present by no more than the second. A transaction may have taken a while from a row to its commit.
const AROUND_US: (i64, i64) = (3_600_000_000, 60_000_000);

/// Fewer dead rows than this are not worth a word.
const MANY_DEAD: u64 = 50_000;

/// Others go first, and no look takes long.
const LIMITS: &str = "SET lock_timeout = '1s'; SET statement_timeout = '5s'";

/// All in one statement: its snapshot is taken before any function of it is called. Functions that Postgres 12 has, too.
const MARK: &str = "
    SELECT pg_catalog.txid_snapshot_xmax(s.now),
           COALESCE((SELECT pg_catalog.string_agg((x & 4294967295)::text, ',') FROM pg_catalog.txid_snapshot_xip(s.now) x), ''),
           (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::int8,
           (SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_catalog.pg_replication_slots
            WHERE slot_name = $1 AND database = pg_catalog.current_database()),
           (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8
    FROM (SELECT pg_catalog.txid_current_snapshot() AS now) s";

impl OutboxWatch {
    /// Opens nothing yet.
    pub(crate) fn new(connector: &Connector) -> Self {
        Self {
            endpoint: Endpoint::new(connector.postgres.clone()),
            slot: connector.slot.name.to_string(),
            sql: None,
            pending: VecDeque::new(),
            settled: None,
            sizes: HashMap::new(),
            logged: HashMap::new(),
        }
    }

    /// From the next connection on, logs in with these settings. The server is the same.
    pub(crate) fn log_in_with(&mut self, settings: &PostgresSection) {
        self.endpoint = Endpoint::new(settings.clone());
    }

    /// Looks at the tables. A table that cannot be looked at is logged once, and has no figures, or those of its last look.
    ///
    /// # Errors
    /// The server cannot be asked. The next look begins anew.
    pub(crate) async fn look(&mut self, tables: &[WatchedTable]) -> Result<Watched, Error> {
        let looked = self.try_look(tables).await;
        if looked.is_err() {
            self.sql = None;
        }
        looked
    }

    async fn try_look(&mut self, tables: &[WatchedTable]) -> Result<Watched, Error> {
        if self.sql.as_ref().is_none_or(Sql::is_closed) {
            // It may be another server, on which neither ids nor positions mean the same.
            self.pending.clear();
            self.settled = None;
            self.sizes.clear();
            let sql = self.endpoint.sql(Purpose::OutboxWatch).await?;
            sql.execute(LOOKING, LIMITS).await?;
            self.sql = Some(sql);
        }
        let mut watched = Watched {
            waited: self.mark().await?,
            ..Watched::default()
        };
        for table in tables {
            let mut trouble = None;
            watched.outboxes.extend(self.look_at(table, &mut trouble).await);
            match trouble {
                None => drop(self.logged.remove(&table.full_name())),
                Some(Trouble::Refused(error)) if self.sql.as_ref().is_none_or(Sql::is_closed) => return Err(error),
                Some(trouble) => {
                    watched.failed += u64::from(matches!(trouble, Trouble::Refused(_)));
                    self.tell(table, trouble);
                }
            }
        }
        Ok(watched)
    }

    /// Takes a mark, and waits for a moment until it is confirmed. Returns how long it has waited.
    async fn mark(&mut self) -> Result<Duration, Error> {
        let (mark, confirmed) = self.here().await?;
        let lsn = mark.lsn;
        if self.pending.len() >= MOST_PENDING {
            let mut place = 0;
            self.pending.retain(|_| {
                place += 1;
                place % 2 == 0
            });
        }
        self.pending.push_back(mark);
        self.settle(confirmed);
        let begun = Instant::now();
        while self.pending.back().is_some_and(|mark| mark.lsn == lsn) && begun.elapsed() < SETTLE {
            sleep(SETTLE_STEP).await;
            let (_, confirmed) = self.here().await?;
            self.settle(confirmed);
        }
        Ok(begun.elapsed())
    }

    fn settle(&mut self, confirmed: Option<Lsn>) {
        // Without a slot nothing is confirmed.
        let Some(confirmed) = confirmed else { return };
        while self.pending.front().is_some_and(|mark| mark.lsn <= confirmed) {
            self.settled = self.pending.pop_front();
        }
    }

    /// The present place, and how far the slot is confirmed.
    async fn here(&self) -> Result<(WatchMark, Option<Lsn>), Error> {
        let sql = self.sql();
        let row = sql.row(LOOKING, MARK, &[(&self.slot, Type::TEXT)]).await?;
        let read = |error| Error::sql(LOOKING, error);
        let position = |number: i64| Lsn(number.unsigned_abs());
        let mark = WatchMark {
            xmax: row.try_get(0).map_err(read)?,
            running: row.try_get(1).map_err(read)?,
            lsn: position(row.try_get(2).map_err(read)?),
            at_us: row.try_get(4).map_err(read)?,
        };
        let confirmed: Option<i64> = row.try_get(3).map_err(read)?;
        Ok((mark, confirmed.map(position)))
    }

    fn sql(&self) -> &Sql {
        self.sql.as_ref().expect("opened before")
    }

    /// The figures of a table, and why some of them are missing or old. `None` if it was dropped meanwhile, or if nothing is known of it.
    async fn look_at(&mut self, table: &WatchedTable, trouble: &mut Option<Trouble>) -> Option<OutboxFigures> {
        let full_name = table.full_name();
        let known = self.sizes.get(&full_name).and_then(|sizes| sizes.seen);
        if known.is_none_or(|seen| seen.elapsed() > SIZES_INTERVAL) {
            match self.sizes(table).await {
                Ok(Some(sizes)) => drop(self.sizes.insert(full_name.clone(), sizes)),
                Ok(None) => drop(self.sizes.remove(&full_name)),
                // Those of the last look say more than none.
                Err(error) => *trouble = Some(Trouble::Refused(error)),
            }
        }
        let sizes = self.sizes.get(&full_name).cloned()?;
        let unconfirmed = match TimeColumn::of(&sizes.kind) {
            _ if self.settled.is_none() => None,
            None => {
                *trouble = Some(Trouble::Kind(sizes.kind.clone()));
                None
            }
            Some(_) if !sizes.has_index && sizes.pages > SMALL_PAGES => {
                *trouble = Some(Trouble::NoIndex);
                None
            }
            Some(time) => match self.count_beside_locks(table, &sizes, time).await {
                Ok(unconfirmed) => Some(unconfirmed),
                Err(error) => {
                    *trouble = Some(Trouble::Refused(error));
                    None
                }
            },
        };
        Some(OutboxFigures {
            table: full_name,
            unconfirmed,
            live_rows: sizes.live,
            dead_rows: sizes.dead,
            bytes: sizes.bytes,
            partitions: sizes.partitions,
            vacuum: sizes.vacuum,
        })
    }

    /// Logs why figures are missing, unless it was the same at the last look.
    fn tell(&mut self, table: &WatchedTable, trouble: Trouble) {
        let (error, hint) = trouble.texts(table);
        let logged = self.logged.insert(table.full_name(), error.clone());
        if logged.as_ref() != Some(&error) {
            tracing::warn!(
                code = walferry_diagnosis::Kind::OutboxWatch.code(),
                table = table.full_name(),
                error,
                hint,
                "rows of an outbox that are not confirmed are not counted, or its size is not known"
            );
        }
    }

    /// Counts. If somebody has locked a partition, the rows around the present are counted, which are seldom in that one.
    async fn count_beside_locks(
        &self,
        table: &WatchedTable,
        sizes: &Sizes,
        time: TimeColumn,
    ) -> Result<Unconfirmed, Error> {
        match self.count(table, sizes, time, "").await {
            Err(error) if sizes.partitions > 0 && is_locked(&error) => {}
            counted => return counted,
        }
        let (here, _) = self.here().await?;
        let from_us = self.settled.as_ref().map_or(here.at_us, |mark| mark.at_us) - AROUND_US.0;
        let (from, to) = (from_us.to_string(), (here.at_us + AROUND_US.1).to_string());
        let column = identifier(&table.column);
        // Constants, so that the planner leaves out the other partitions before it locks them.
        let around = format!(
            " AND {column} >= {} AND {column} < {}",
            time.at_us(&from),
            time.at_us(&to)
        );
        self.count(table, sizes, time, &around).await
    }

    /// Counts among the newest rows, and among more of them while all wait. Rows without a time are left out: they would come first. `around`
    /// is a further condition.
    async fn count(
        &self,
        table: &WatchedTable,
        sizes: &Sizes,
        time: TimeColumn,
        around: &str,
    ) -> Result<Unconfirmed, Error> {
        let (Some(mark), column) = (&self.settled, identifier(&table.column)) else {
            return Ok(Unconfirmed::default());
        };
        let name = qualified(&table.schema, &table.name);
        let from = if sizes.partitions > 0 {
            name
        } else {
            format!("ONLY {name}")
        };
        let (xmax, running, seconds) = (mark.xmax, &mark.running, time.age_seconds("at"));
        let mut counted = Unconfirmed::default();
        for newest in NEWEST {
            let query = format!(
                "SELECT pg_catalog.count(*), COALESCE(pg_catalog.max({seconds}), 0)::float8
                 FROM (SELECT xmin::text::int8 AS id, {column} AS at FROM {from}
                       WHERE {column} IS NOT NULL{around} ORDER BY {column} DESC LIMIT {newest}) r
                 WHERE ((id - {xmax}) & 4294967295)
                         < (SELECT pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot())) - {xmax}
                    OR id = ANY ('{{{running}}}'::int8[])"
            );
            let row = self.sql().row(LOOKING, &query, &[]).await?;
            let read = |error| Error::sql(LOOKING, error);
            let (rows, seconds): (i64, f64) = (row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?);
            counted = Unconfirmed {
                rows: rows.unsigned_abs(),
                seconds: seconds.max(0.0),
            };
            // Some of them are confirmed: so are those that are older, but for a few.
            if counted.rows < newest / 2 {
                break;
            }
        }
        Ok(counted)
    }

    /// Sizes of the table with its partitions, and its column.
    async fn sizes(&self, table: &WatchedTable) -> Result<Option<Sizes>, Error> {
        const SIZES: &str = "
            WITH RECURSIVE target AS (
              SELECT c.oid, c.relkind, pg_catalog.format_type(a.atttypid, NULL) AS kind,
                     EXISTS (SELECT FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class ic ON ic.oid = i.indexrelid
                                  JOIN pg_catalog.pg_am m ON m.oid = ic.relam
                             WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL AND i.indkey[0] = a.attnum
                               AND m.amname = 'btree') AS has_index
              FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                   JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
              WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p') AND a.attname = $3 AND a.attnum > 0 AND NOT a.attisdropped
            ), tree AS (
              SELECT oid, relkind FROM target
              UNION ALL
              SELECT c.oid, c.relkind FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid AND tree.relkind = 'p'
                   JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
            ), parts AS (
              SELECT oid FROM tree WHERE relkind <> 'p'
            ), locked AS MATERIALIZED (
              SELECT relation FROM pg_catalog.pg_locks WHERE mode = 'AccessExclusiveLock' AND relation IS NOT NULL
                AND database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
            ), seen AS (
              SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) AS name,
                     COALESCE(c.reloptions::text, '') AS options, c.relpages,
                     pg_catalog.pg_stat_get_live_tuples(c.oid) AS live, pg_catalog.pg_stat_get_dead_tuples(c.oid) AS dead,
                     CASE WHEN c.oid IN (SELECT relation FROM locked) THEN c.relpages * pg_catalog.current_setting('block_size')::int8
                          ELSE pg_catalog.pg_total_relation_size(c.oid) END AS bytes
              FROM parts JOIN pg_catalog.pg_class c ON c.oid = parts.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            ), worst AS (
              SELECT * FROM seen ORDER BY dead DESC, name LIMIT 1
            )
            SELECT t.kind, t.has_index,
                   COALESCE((SELECT pg_catalog.sum(relpages) FROM seen), 0)::int8, COALESCE((SELECT pg_catalog.sum(live) FROM seen), 0)::int8,
                   COALESCE((SELECT pg_catalog.sum(dead) FROM seen), 0)::int8, COALESCE((SELECT pg_catalog.sum(bytes) FROM seen), 0)::int8,
                   CASE t.relkind WHEN 'p' THEN (SELECT pg_catalog.count(*) FROM seen) ELSE 0 END::int8,
                   w.name, w.options, w.live, w.dead
            FROM target t LEFT JOIN worst w ON true";
        let parameters: [(&(dyn ToSql + Sync), Type); 3] = [
            (&table.schema, Type::TEXT),
            (&table.name, Type::TEXT),
            (&table.column, Type::TEXT),
        ];
        let rows = self.sql().rows(LOOKING, SIZES, &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let read = |error| Error::sql(LOOKING, error);
        let number = |place: usize| -> Result<u64, Error> {
            let number: Option<i64> = row.try_get(place).map_err(read)?;
            Ok(number.unwrap_or_default().unsigned_abs())
        };
        let worst: Option<String> = row.try_get(7).map_err(read)?;
        let options: Option<String> = row.try_get(8).map_err(read)?;
        let (live, dead) = (number(9)?, number(10)?);
        Ok(Some(Sizes {
            seen: Some(Instant::now()),
            kind: row.try_get(0).map_err(read)?,
            has_index: row.try_get(1).map_err(read)?,
            pages: row.try_get(2).map_err(read)?,
            live: number(3)?,
            dead: number(4)?,
            bytes: number(5)?,
            partitions: number(6)?,
            vacuum: worst.and_then(|worst| vacuum_advice(&worst, &options.unwrap_or_default(), live, dead)),
        }))
    }
}

/// Why figures of a table are missing or old.
#[derive(Debug)]
enum Trouble {
    /// The column has this type.
    Kind(String),
    NoIndex,
    Refused(Error),
}

impl Trouble {
    /// What it is, and what to do about it.
    fn texts(self, table: &WatchedTable) -> (String, &'static str) {
        match self {
            Self::Kind(kind) => (format!("the column {} has the type {kind}", table.column), TimeColumn::HINT),
            Self::NoIndex => (
                "no btree index begins with the column that tells how old a row is, so the whole table would be read again and again".to_owned(),
                "create such an index",
            ),
            Self::Refused(error) => {
                let hint = match is_locked(&error) {
                    true => "look in pg_locks for a transaction that keeps a lock on the table or on one of its partitions",
                    false => {
                        "grant SELECT on the table, and create an index that begins with the column in table.field.event.timestamp"
                    }
                };
                (walferry_engine::Failure::from(error).to_string(), hint)
            }
        }
    }
}

/// Whether another transaction has a lock.
fn is_locked(error: &Error) -> bool {
    error.server_error().is_some_and(|refused| refused.code == "55P03")
}

/// What to do about dead rows of a table with these storage options, if there are more of them than live ones.
fn vacuum_advice(table: &str, options: &str, live: u64, dead: u64) -> Option<String> {
    if dead < MANY_DEAD || dead < live {
        return None;
    }
    if options.contains("autovacuum_enabled=false") || options.contains("autovacuum_enabled=off") {
        return Some(format!("ALTER TABLE {table} RESET (autovacuum_enabled)"));
    }
    if options.contains("autovacuum_vacuum_threshold") {
        return Some(format!(
            "look for what holds dead rows of {table} back: long transactions in pg_stat_activity, prepared transactions, and slots with an \
             old xmin in pg_replication_slots"
        ));
    }
    // By default, autovacuum waits for as many dead rows as a fifth of the table has at its largest, and rests often.
    let threshold = (live / 10).clamp(10_000, 1_000_000) / 1_000 * 1_000;
    Some(format!(
        "ALTER TABLE {table} SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = {threshold}, autovacuum_vacuum_cost_limit = 2000)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_dead_rows_are_advised_on_by_what_is_seen() {
        let cases: [(&str, u64, u64, Option<&str>); 6] = [
            ("", 100, 49_999, None),
            ("", 60_000, 59_999, None),
            (
                "",
                100,
                50_000,
                Some(
                    "ALTER TABLE public.o SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_limit = 2000)",
                ),
            ),
            (
                "{fillfactor=90}",
                455_555,
                500_000,
                Some(
                    "ALTER TABLE public.o SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 45000, autovacuum_vacuum_cost_limit = 2000)",
                ),
            ),
            (
                "{autovacuum_enabled=false}",
                1,
                500_000,
                Some("ALTER TABLE public.o RESET (autovacuum_enabled)"),
            ),
            (
                "{autovacuum_vacuum_threshold=10000}",
                1,
                500_000,
                Some(
                    "look for what holds dead rows of public.o back: long transactions in pg_stat_activity, prepared transactions, and slots with an \
                     old xmin in pg_replication_slots",
                ),
            ),
        ];
        for (options, live, dead, advice) in cases {
            assert_eq!(
                vacuum_advice("public.o", options, live, dead).as_deref(),
                advice,
                "{options} {live} {dead}"
            );
        }
    }
}
