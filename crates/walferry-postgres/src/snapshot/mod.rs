//! Existing rows: reads the captured tables with COPY, all in one snapshot of the database.

pub(crate) mod copy;
mod estimate;
mod queue;
mod rows;
pub(crate) mod sample;
pub(crate) mod statement;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use futures_util::{FutureExt, TryStreamExt};
use tokio::sync::Mutex;
use tokio_postgres::types::Type;
use walferry_config::Connector;
use walferry_config::connector::{SnapshotIsolation, SnapshotLocking};
use walferry_engine::progress::Transaction;
use walferry_engine::source::{Frame, FrameSender, SnapshotKind, SnapshotPlan};
use walferry_event::catalog::{Catalog, TableFacts};
use walferry_pgoutput::{Lsn, Oid};

use self::estimate::rows_left;
use self::queue::{Job, Queue, understood};
use self::rows::{TableRows, send};
use crate::catalog::catalogs;
use crate::catalog::privileges::{ReadColumns, unreadable};
use crate::catalog::tables::TableName;
use crate::chunks::target::enclosed;
use crate::connection::{ALL_ROWS, Endpoint, LIFT_LIMITS, Purpose, Sql, within};
use crate::error::Error;
use crate::quote::{identifier, literal, qualified};
use crate::setup::problem::SetupProblem;

const DOING: &str = "reading a table";

/// How existing rows are read.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// How many statements run at a time, each on its own connection.
    threads: usize,
    /// The configured SELECT of a table, by `schema.table`.
    pub(crate) overrides: BTreeMap<String, String>,
    /// How long to wait for the locks that `snapshot.locking.mode=shared` requires.
    lock: Option<Duration>,
    /// The isolation level if there is no slot. With a slot, its snapshot determines it.
    isolation: SnapshotIsolation,
    /// `server_version_num`.
    server_version: u32,
    /// The publication that the stream is read from.
    publication: String,
    /// Whether the stream contains the changes of every replication origin (`slot.stream.params`).
    origins: bool,
    /// Which columns are read.
    pub(crate) reads: ReadColumns,
    silence: Silence,
}

/// How long a COPY may send no row. A COPY may take hours as long as rows arrive.
#[derive(Debug, Clone)]
struct Silence {
    /// How long a configured SELECT may run before its first row. `None`: without limit.
    query_timeout: Option<Duration>,
    /// How many COPYs in a row have been silent for too long, over all snapshots. The next one gets twice the time.
    in_a_row: Arc<AtomicU32>,
}

impl Silence {
    /// A server that reads a table normally sends rows continuously.
    const LEAST: Duration = Duration::from_secs(60);
    const MOST_DOUBLINGS: u32 = 10;

    fn limit(&self, is_of_the_user: bool) -> Option<Duration> {
        let once = match is_of_the_user {
            true => self.query_timeout?.max(Self::LEAST),
            false => Self::LEAST,
        };
        Some(once * (1 << self.in_a_row.load(Relaxed).min(Self::MOST_DOUBLINGS)))
    }
}

impl Options {
    /// A `query_timeout` of zero means no limit.
    pub(crate) fn new(connector: &Connector) -> Self {
        let (section, slot) = (&connector.snapshot, &connector.slot);
        let query_timeout = connector.postgres.query_timeout;
        Self {
            threads: section.threads.max(1) as usize,
            overrides: section.select_overrides.clone(),
            lock: (section.locking == SnapshotLocking::Shared).then_some(section.lock_timeout),
            isolation: section.isolation,
            server_version: 0,
            publication: connector.publication.name.clone(),
            origins: slot.stream_params.get("origin").is_none_or(|origin| origin == "any"),
            reads: ReadColumns::new(connector),
            silence: Silence {
                query_timeout: Some(query_timeout).filter(|limit| !limit.is_zero()),
                in_a_row: Arc::default(),
            },
        }
    }

    /// Those of a snapshot that a signal has asked for: with the SELECTs of its own.
    pub(crate) fn beside_stream(&self, plan: &SnapshotPlan, server_version: u32) -> Self {
        Self {
            overrides: plan.selects.clone(),
            ..self.on(server_version)
        }
    }

    /// The SELECT that the rows of a table come from, if it is not the table itself.
    fn select_of(&self, table: &TableFacts) -> Option<&String> {
        self.overrides.get(&format!("{}.{}", table.schema, table.name))
    }

    /// These options, with the condition of the plan as SELECTs.
    fn with_condition(&self, plan: &SnapshotPlan, escapes: bool) -> Result<Self, Error> {
        let mut options = self.clone();
        let Some(condition) = &plan.condition else {
            return Ok(options);
        };
        for table in &plan.tables {
            let name = format!("{}.{}", table.schema, table.name);
            let condition = enclosed(condition, escapes).map_err(|problem| Error::SelectOverride {
                table: name.clone(),
                problem: format!("its condition cannot stand alone: {problem}"),
            })?;
            let columns: Vec<String> = self.reads.of(table)?.iter().map(|name| identifier(name)).collect();
            let select = format!(
                "SELECT {} FROM {} WHERE {condition}",
                columns.join(", "),
                qualified(&table.schema, &table.name)
            );
            options.overrides.insert(name, select);
        }
        Ok(options)
    }

    /// These options for a server of this version.
    pub(crate) fn on(&self, server_version: u32) -> Self {
        Self {
            server_version,
            ..self.clone()
        }
    }
}

/// Lets the server parse the configured SELECTs, before anything is created for a snapshot that would fail.
pub(crate) async fn check_overrides(sql: &Sql, overrides: &BTreeMap<String, String>) -> Result<(), Error> {
    if overrides.is_empty() {
        return Ok(());
    }
    sql.execute(DOING, ALL_ROWS).await?;
    sql.execute(DOING, "BEGIN READ ONLY").await?;
    let mut checked = Ok(());
    for (table, select) in overrides {
        checked = understood(sql, table, select).await.map(drop);
        if checked.is_err() {
            break;
        }
    }
    sql.execute(DOING, "ROLLBACK").await?;
    checked
}

/// Reads the remaining rows of the plan's tables, from an exported snapshot or from a new one without a slot.
pub(crate) async fn snapshot(
    endpoint: &Endpoint,
    exported: Option<&str>,
    plan: &SnapshotPlan,
    options: &Options,
    out: &FrameSender,
) -> Result<(), Error> {
    let sql = endpoint.sql(Purpose::General).await?;
    let options = &options.with_condition(plan, sql.has_backslash_escapes())?;
    demand_select(&sql, plan, options).await?;
    demand_all_rows(&sql, &plan.tables, options).await?;
    let isolation = isolation(exported.is_some(), options.isolation);
    let moment = begin(&sql, isolation, exported, plan.lsn).await?;
    if let Some(timeout) = options.lock {
        lock(&sql, plan, options, timeout).await?;
    }
    let begin = Frame::SnapshotBegin {
        rows_left: rows_left(&sql, plan).await?,
        tables: plan
            .tables
            .iter()
            .map(|table| (table.oid, format!("{}.{}", table.schema, table.name)))
            .collect(),
        kind: plan.kind,
        in_part: plan.selects.keys().cloned().collect(),
    };
    send(out, Bytes::new(), vec![begin]).await?;
    let queue = Mutex::new(Queue::new(plan, options, moment));
    if options.threads <= 1 {
        work(&sql, &sql, &queue, &options.silence, out).await?;
    } else {
        let name = match exported {
            Some(name) => name.to_owned(),
            None => sql.value(DOING, "SELECT pg_catalog.pg_export_snapshot()", &[]).await?,
        };
        let workers = (0..options.threads).map(|_| async {
            let own = endpoint.sql(Purpose::General).await?;
            own.execute(DOING, LIFT_LIMITS).await?;
            own.execute(DOING, ALL_ROWS).await?;
            own.refuse_views(DOING).await?;
            import(&own, isolation, Some(&name)).await?;
            work(&own, &sql, &queue, &options.silence, out).await
        });
        try_join_all(workers).await?;
    }
    let end = match plan.kind {
        SnapshotKind::Blocking => Frame::BlockingEnd { failed: None },
        SnapshotKind::Incremental => Frame::WholeEnd { failed: None },
        SnapshotKind::Initial => moment.end(),
    };
    send(out, Bytes::new(), vec![end]).await?;
    sql.execute("ending the snapshot", "COMMIT").await
}

/// Runs jobs until none is left. `planner` is the connection for splitting tables into jobs.
async fn work(
    sql: &Sql,
    planner: &Sql,
    queue: &Mutex<Queue<'_>>,
    silence: &Silence,
    out: &FrameSender,
) -> Result<(), Error> {
    loop {
        let Some(job) = queue.lock().await.next(planner).await? else {
            return Ok(());
        };
        let rows = run(sql, &job, silence, out).await?;
        let frame = queue.lock().await.done(&job, rows);
        if let Some(frame) = frame {
            send(out, Bytes::new(), vec![frame]).await?;
        }
    }
}

/// Runs a job. Returns the number of rows read.
async fn run(sql: &Sql, job: &Job, silence: &Silence, out: &FrameSender) -> Result<u64, Error> {
    let failed = |error| match &job.table.catalog.table {
        Some(table) => reading_failed(table, error),
        None => Error::copy(DOING, error),
    };
    let limit = silence.limit(job.is_of_the_user);
    if job.is_of_the_user {
        sql.begin_of_user(DOING).await?;
    }
    let mut lines = pin!(
        in_time(sql, silence, limit, sql.copy_out(&job.statement))
            .await?
            .map_err(failed)?
    );
    let mut rows = TableRows::new(out, job.table.clone(), job.columns, sql.encoding());
    let mut count = 0;
    loop {
        // Usually the next row has already arrived and needs no timer.
        let next = match lines.try_next().now_or_never() {
            Some(next) => next,
            None => in_time(sql, silence, limit, lines.try_next()).await?,
        };
        let Some(line) = next.map_err(failed)? else { break };
        if count == 0 {
            silence.in_a_row.store(0, Relaxed);
        }
        rows.push(&line).await?;
        count += 1;
    }
    rows.send().await?;
    if job.is_of_the_user {
        sql.end_of_user(DOING).await?;
    }
    Ok(count)
}

async fn in_time<T>(
    sql: &Sql,
    silence: &Silence,
    limit: Option<Duration>,
    answer: impl Future<Output = T>,
) -> Result<T, Error> {
    let Some(limit) = limit else { return Ok(answer.await) };
    within(limit, answer).await.ok_or_else(|| {
        silence.in_a_row.fetch_add(1, Relaxed);
        sql.fell_silent(DOING, limit)
    })
}

/// What all rows of a snapshot have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) lsn: Lsn,
    pub(crate) xid: u32,
    pub(crate) time_us: i64,
}

impl Moment {
    /// Of the present transaction. `lsn` is the position that its rows get.
    pub(crate) async fn at(lsn: Lsn, sql: &Sql, doing: &'static str) -> Result<Self, Error> {
        // Debezium's `source.txId` of a snapshot is the id of the transaction that reads it. This is the id that our
        // transaction would get. It must not get one: while a transaction has an id, nobody can create a logical slot.
        const MOMENT: &str = "
            SELECT pg_catalog.txid_snapshot_xmax(pg_catalog.txid_current_snapshot()),
              (EXTRACT(epoch FROM CURRENT_TIMESTAMP) * 1000000)::int8";
        let row = sql.row(doing, MOMENT, &[]).await?;
        let read = || -> Result<Self, tokio_postgres::Error> {
            // The lower half is the transaction id. The upper half counts how often ids have wrapped around.
            let xid: i64 = row.try_get(0)?;
            Ok(Self {
                lsn,
                xid: xid as u32,
                time_us: row.try_get(1)?,
            })
        };
        read().map_err(|error| Error::sql(doing, error))
    }

    /// The frame behind the last row.
    pub(crate) const fn end(self) -> Frame {
        let Self { lsn, xid, time_us } = self;
        Frame::SnapshotEnd {
            lsn,
            transaction: Transaction { xid, time_us },
        }
    }
}

/// As in Debezium, `snapshot.isolation.mode` counts only if there is no slot.
fn isolation(of_a_slot: bool, asked: SnapshotIsolation) -> &'static str {
    match (of_a_slot, asked) {
        (true, _) | (_, SnapshotIsolation::RepeatableRead) => "REPEATABLE READ READ ONLY",
        (_, SnapshotIsolation::Serializable) => "SERIALIZABLE READ ONLY DEFERRABLE",
        (_, SnapshotIsolation::ReadCommitted) => "READ COMMITTED READ ONLY",
        (_, SnapshotIsolation::ReadUncommitted) => "READ UNCOMMITTED READ ONLY",
    }
}

/// An imported snapshot has the isolation of the transaction that has exported it. Postgres imports none with a lower level than this, and none
/// with `DEFERRABLE`.
fn beginning(isolation: &str, snapshot: Option<&str>) -> String {
    match snapshot {
        Some(name) => format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {}",
            literal(name)
        ),
        None => format!("BEGIN ISOLATION LEVEL {isolation}"),
    }
}

/// What Postgres says of a snapshot whose transaction has ended: its connection was lost unnoticed.
const GONE: [&str; 3] = ["22023", "42704", "55000"];

/// Begins a transaction. Imports a snapshot if one is named.
async fn import(sql: &Sql, isolation: &str, snapshot: Option<&str>) -> Result<(), Error> {
    let begun = sql
        .execute("beginning the snapshot", &beginning(isolation, snapshot))
        .await;
    begun.map_err(|error| match error {
        Error::Server { ref source, .. } if snapshot.is_some() && GONE.contains(&&*source.code) => Error::SnapshotGone,
        error => error,
    })
}

/// Begins the transaction that reads the snapshot.
async fn begin(sql: &Sql, isolation: &str, imported: Option<&str>, lsn: Option<Lsn>) -> Result<Moment, Error> {
    const DOING: &str = "beginning the snapshot";
    sql.execute(DOING, LIFT_LIMITS).await?;
    sql.execute(DOING, ALL_ROWS).await?;
    sql.refuse_views(DOING).await?;
    let lsn = match lsn {
        Some(lsn) => lsn,
        // Read the position before the transaction's snapshot is taken. Changes committed between the two are then in
        // the snapshot and are streamed again.
        None => wal_position(sql).await?,
    };
    import(sql, isolation, imported).await?;
    Moment::at(lsn, sql, DOING).await
}

/// The last position in the server's log, read as Debezium reads it for a snapshot.
pub(crate) async fn wal_position(sql: &Sql) -> Result<Lsn, Error> {
    const DOING: &str = "reading the server's position";
    const QUERY: &str = "
        SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_receive_lsn()
          ELSE pg_catalog.pg_current_wal_lsn() END)::text";
    let text: String = sql.value(DOING, QUERY, &[]).await?;
    text.parse().map_err(|_| Error::Protocol {
        doing: DOING,
        problem: text,
    })
}

/// Reports all tables that we are not allowed to read, before reading the first. A configured SELECT may read other tables, and the server
/// says whether we may run it.
async fn demand_select(sql: &Sql, plan: &SnapshotPlan, options: &Options) -> Result<(), Error> {
    let is_ours = |table: &&TableFacts| plan.condition.is_some() || options.select_of(table).is_none();
    let tables = plan.tables.iter().filter(is_ours).map(|table| table.oid);
    match unreadable(sql, tables, &options.reads).await? {
        Some(problem) => Err(Error::Problems(vec![problem])),
        None => Ok(()),
    }
}

/// Reports all tables of which row-level security would hide rows, before reading the first. A configured SELECT may
/// read other tables. For those the server reports it.
async fn demand_all_rows(sql: &Sql, tables: &[TableFacts], options: &Options) -> Result<(), Error> {
    const DOING: &str = "checking row-level security";
    const QUERY: &str = "
        SELECT current_user::text, n.nspname::text, c.relname::text
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = ANY($1) AND c.relrowsecurity AND pg_catalog.row_security_active(c.oid)
        ORDER BY 2, 3";
    let read = tables
        .iter()
        .filter(|table| options.select_of(table).is_none())
        .map(|table| table.oid);
    let (role, hidden) = named(sql, DOING, QUERY, read).await?;
    if hidden.is_empty() {
        Ok(())
    } else {
        Err(Error::Problems(vec![SetupProblem::RowSecurity {
            role,
            tables: hidden,
        }]))
    }
}

/// The role and the tables that a query returns.
async fn named(
    sql: &Sql,
    doing: &'static str,
    query: &str,
    tables: impl Iterator<Item = Oid>,
) -> Result<(String, Vec<TableName>), Error> {
    let oids: Vec<u32> = tables.map(|oid| oid.0).collect();
    let rows = sql.rows(doing, query, &[(&oids, Type::OID_ARRAY)]).await?;
    let (mut role, mut names) = (String::new(), Vec::new());
    for row in &rows {
        let read = || -> Result<(String, TableName), tokio_postgres::Error> {
            let (schema, name) = (row.try_get(1)?, row.try_get(2)?);
            Ok((row.try_get(0)?, TableName { schema, name }))
        };
        let table;
        (role, table) = read().map_err(|error| Error::sql(doing, error))?;
        names.push(table);
    }
    Ok((role, names))
}

/// Locks the tables against changes of their structure (`snapshot.locking.mode=shared`). Reading no row of them takes the lock of LOCK TABLE
/// IN ACCESS SHARE MODE, which a role may only use with the privilege to read all columns.
async fn lock(sql: &Sql, plan: &SnapshotPlan, options: &Options, timeout: Duration) -> Result<(), Error> {
    const DOING: &str = "locking the tables";
    if plan.tables.is_empty() {
        return Ok(());
    }
    sql.execute(DOING, &format!("SET LOCAL lock_timeout = {}", timeout.as_millis()))
        .await?;
    let (selected, plain): (Vec<_>, Vec<_>) = plan
        .tables
        .iter()
        .map(|table| (table, options.select_of(table)))
        .partition(|(_, select)| select.is_some());
    let lock =
        |(table, _): &(&TableFacts, _)| format!("SELECT FROM ONLY {} LIMIT 0; ", qualified(&table.schema, &table.name));
    let locks: String = plain.iter().map(lock).collect();
    sql.execute(DOING, &locks).await?;
    for (table, select) in selected {
        let select = select.expect("they were told apart by it");
        understood(sql, &format!("{}.{}", table.schema, table.name), select).await?;
    }
    sql.execute(DOING, "SET LOCAL lock_timeout = 0").await
}

/// The facts of the table as the snapshot sees it.
async fn facts(sql: &Sql, table: &TableFacts) -> Result<Catalog, Error> {
    let found = catalogs(sql, &[Oid(table.oid.0)]).await?;
    let catalog = found.into_iter().next().map(|(_, catalog)| catalog);
    catalog.ok_or_else(|| Error::TableChanged {
        table: qualified(&table.schema, &table.name),
    })
}

fn reading_failed(table: &TableFacts, error: tokio_postgres::Error) -> Error {
    match error.code().map(tokio_postgres::error::SqlState::code) {
        // The table was dropped, renamed or altered after the tables were listed. Postgres resolves names when they are
        // used, not as of the snapshot.
        Some("42P01" | "42703" | "3F000") => Error::TableChanged {
            table: qualified(&table.schema, &table.name),
        },
        _ => Error::copy(DOING, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_of_a_copy_is_limited_and_doubles() {
        let silence = |query_timeout_s: Option<u64>| Silence {
            query_timeout: query_timeout_s.map(Duration::from_secs),
            in_a_row: Arc::new(AtomicU32::new(1)),
        };
        let seconds = |limit: Option<Duration>| limit.map(|limit| limit.as_secs());
        // The rows of a table arrive at once. A configured SELECT may sort as long as any query may take.
        for (query_timeout_s, of_table, of_user) in [
            (Some(600), Some(120), Some(1200)),
            (Some(5), Some(120), Some(120)),
            (None, Some(120), None),
        ] {
            let silence = silence(query_timeout_s);
            let limits = (seconds(silence.limit(false)), seconds(silence.limit(true)));
            assert_eq!(limits, (of_table, of_user), "{query_timeout_s:?}");
        }
    }

    /// Postgres refuses `DEFERRABLE` there.
    #[test]
    fn a_snapshot_is_imported_with_the_lowest_level_that_postgres_allows() {
        for asked in [
            SnapshotIsolation::Serializable,
            SnapshotIsolation::RepeatableRead,
            SnapshotIsolation::ReadCommitted,
            SnapshotIsolation::ReadUncommitted,
        ] {
            assert_eq!(
                beginning(isolation(false, asked), Some("0-1")),
                "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT '0-1'"
            );
        }
    }
}
