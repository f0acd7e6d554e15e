//! Counts the rows of the outbox that wait, for metrics and the page.
//!
//! This costs the server little, whatever the table is like: it has a connection of its own, which is closed between two counts; a count reads no more
//! than [`RelayRows::MOST`] rows, waits for no lock, and is cancelled after a second; and it is rare while nothing happens. It is never a part of a
//! look's transaction, so it holds up neither rows nor vacuum.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    task::{JoinHandle, spawn_local},
    time::sleep,
};
use tracing::warn;
use walferry_config::Connector;
use walferry_diagnosis::{Kind, printed::sql_name};
use walferry_engine::{
    Failure,
    status::{OutboxFigures, RelayFigures, RelayRows, Status},
};
use walferry_pgoutput::Oid;
use walferry_postgres::connection::{Endpoint, Purpose, Sql};

use crate::{describe::describe_within, statements, table::RelayTable};

const COUNTING: &str = "counting rows of the outbox";
/// How often rows are counted while some wait or are sent,
const BUSY: Duration = Duration::from_secs(10);
/// and while nothing happens.
const IDLE: Duration = Duration::from_secs(60);
/// The longest pause after counts that have failed.
const LONGEST: Duration = Duration::from_secs(600);
/// How long one statement may take.
const STATEMENT_MS: u32 = 1000;
/// How long it waits for a lock.
const LOCK_MS: u32 = 200;
/// Columns that say how old a row is.
const CREATED_AT: [&str; 4] = ["created_at", "occurred_at", "inserted_at", "created"];
const TIMES: [Oid; 2] = [Oid(1114), Oid(1184)];

/// The task that counts. It ends when this is dropped.
pub(crate) struct Counting(JoinHandle<()>);

impl Counting {
    /// Begins to count. Must be called within a set of local tasks.
    pub(crate) fn start(connector: &Connector, status: &Arc<Status>) -> Option<Self> {
        let figures = status.relay.clone()?;
        let counter = Counter {
            connector: connector.clone(),
            status: status.clone(),
            figures,
            table: None,
            is_logged: false,
        };
        Some(Self(spawn_local(counter.run())))
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Counter {
    connector: Connector,
    status: Arc<Status>,
    figures: Arc<RelayFigures>,
    /// The table, as it was recognised when the last count that failed had ended.
    table: Option<RelayTable>,
    /// Whether the log has said why figures are missing.
    is_logged: bool,
}

impl Counter {
    async fn run(mut self) {
        let (mut looks, mut failures) = (0, 0_u32);
        loop {
            let counted = self.count().await;
            let looks_now = self.figures.looks.load(Relaxed);
            let is_busy = looks_now > looks;
            looks = looks_now;
            let pause = match counted {
                Ok(RelayRows {
                    problem: None, waiting, ..
                }) => {
                    failures = 0;
                    match is_busy || waiting.is_some_and(|rows| rows > 0) {
                        true => BUSY,
                        false => IDLE,
                    }
                }
                _ => {
                    // The table may have changed.
                    self.table = None;
                    failures += 1;
                    (BUSY * (1 << (failures - 1).min(6))).min(LONGEST)
                }
            };
            self.report(counted);
            sleep(pause).await;
        }
    }

    async fn count(&mut self) -> Result<RelayRows, Failure> {
        let sql = Endpoint::new(self.connector.postgres.clone())
            .sql(Purpose::OutboxCount)
            .await?;
        let table = match self.table.take() {
            Some(table) => table,
            None => describe_within(&sql, &self.connector, LOCK_MS).await?.table,
        };
        let rows = rows(&sql, &table).await;
        if let Some(size) = size(&sql, &table).await {
            self.status.set_outboxes(vec![size]);
        }
        self.table = Some(table);
        Ok(rows)
    }

    fn report(&mut self, counted: Result<RelayRows, Failure>) {
        let rows = counted.unwrap_or_else(|failure| RelayRows {
            table: self.figures.rows().map(|rows| rows.table).unwrap_or_default(),
            problem: Some(failure.concealed().to_string()),
            ..RelayRows::default()
        });
        let was_logged = std::mem::replace(&mut self.is_logged, rows.problem.is_some());
        if let Some(problem) = rows.problem.as_ref().filter(|_| !was_logged) {
            warn!(
                code = Kind::OutboxWatch.code(),
                table = rows.table,
                error = problem,
                "rows of the outbox that wait are not counted; they are sent nevertheless"
            );
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.figures.set_rows(RelayRows {
            at_us: now.as_micros() as i64,
            ..rows
        });
    }
}

/// Counts what can be counted. Each statement is a transaction of its own: one that fails takes no other with it.
async fn rows(sql: &Sql, table: &RelayTable) -> RelayRows {
    let mut rows = RelayRows {
        table: shown_name(table),
        ..RelayRows::default()
    };
    let mut note = |answer: Result<Option<String>, Failure>| {
        answer.unwrap_or_else(|failure| {
            rows.problem.get_or_insert(failure.concealed().to_string());
            None
        })
    };
    let waiting = note(one(sql, &waiting(table)).await);
    let oldest = match oldest(table) {
        Some(statement) if waiting.as_deref().is_some_and(|rows| rows != "0") => note(one(sql, &statement).await),
        _ => None,
    };
    let failed = match failed(table) {
        Some(statement) => note(one(sql, &statement).await),
        None => None,
    };
    rows.waiting = waiting.and_then(|count| count.parse().ok());
    rows.oldest_seconds = match rows.waiting {
        Some(0) => created_at(table).map(|_| 0.0),
        _ => oldest
            .and_then(|seconds| seconds.parse::<f64>().ok())
            .map(|seconds| seconds.max(0.0)),
    };
    rows.failed = failed.and_then(|count| count.parse().ok());
    rows
}

/// The only value of a statement.
async fn one(sql: &Sql, statement: &str) -> Result<Option<String>, Failure> {
    let answer = sql.texts(COUNTING, &limited(statement)).await;
    if answer.is_err() {
        // Its transaction is still open.
        sql.execute(COUNTING, "ROLLBACK").await?;
    }
    Ok(answer?.into_iter().flatten().flatten().next())
}

fn limited(statement: &str) -> String {
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL statement_timeout = {STATEMENT_MS}; SET LOCAL lock_timeout = {LOCK_MS}; \
         SET LOCAL idle_in_transaction_session_timeout = {STATEMENT_MS}; {statement}; COMMIT"
    )
}

/// Schema and name, as other metrics have them.
fn shown_name(table: &RelayTable) -> String {
    let facts = table.catalog.table.as_ref();
    facts
        .map(|facts| format!("{}.{}", facts.schema, facts.name))
        .unwrap_or_default()
}

fn waiting(table: &RelayTable) -> String {
    bounded(table, &statements::waiting(table, "w"))
}

/// Counts rows, up to a limit. Without an index, the timeout is the limit.
fn bounded(table: &RelayTable, condition: &str) -> String {
    format!(
        "SELECT count(*) FROM (SELECT FROM {} w WHERE {condition} LIMIT {}) counted",
        table.name,
        RelayRows::MOST
    )
}

/// The age of the row that is to be sent first. `None` if no column tells how old a row is.
fn oldest(table: &RelayTable) -> Option<String> {
    let created_at = created_at(table)?;
    let order: Vec<String> = table
        .order
        .iter()
        .map(|column| format!("w.{}", sql_name(column)))
        .collect();
    Some(format!(
        "SELECT extract(epoch FROM pg_catalog.clock_timestamp() - w.{}) FROM {} w WHERE {} ORDER BY {} LIMIT 1",
        sql_name(created_at),
        table.name,
        statements::waiting(table, "w"),
        order.join(", ")
    ))
}

fn created_at(table: &RelayTable) -> Option<&str> {
    let columns = &table.catalog.table.as_ref()?.columns;
    let mut known = CREATED_AT.iter().filter_map(|name| {
        let is_it = |name: &str, column: &str| column.eq_ignore_ascii_case(name);
        columns
            .iter()
            .find(|column| is_it(name, &column.name) && TIMES.contains(&column.type_oid))
    });
    known.next().map(|column| column.name.as_str())
}

/// Rows that have failed for good, also those that somebody else has marked so. The index for rows that hold others back has them.
fn failed(table: &RelayTable) -> Option<String> {
    let failed = statements::failed_for_good(table, "w")?;
    Some(bounded(table, &failed))
}

/// The size of the table, by the statistics of Postgres.
async fn size(sql: &Sql, table: &RelayTable) -> Option<OutboxFigures> {
    let Oid(oid) = table.oid;
    let statement = format!(
        "SELECT coalesce(sum(pg_catalog.pg_stat_get_live_tuples(t.oid)), 0), coalesce(sum(pg_catalog.pg_stat_get_dead_tuples(t.oid)), 0), \
         coalesce(sum(pg_catalog.pg_total_relation_size(t.oid)), 0), count(*) - 1 \
         FROM (SELECT {oid}::oid AS oid UNION SELECT relid FROM pg_catalog.pg_partition_tree({oid}::oid::regclass)) t"
    );
    let answer = sql.texts(COUNTING, &limited(&statement)).await;
    let Ok(answer) = answer else {
        sql.execute(COUNTING, "ROLLBACK").await.ok()?;
        return None;
    };
    let mut numbers = answer.into_iter().flatten().map(|number| number?.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    Some(OutboxFigures {
        table: shown_name(table),
        live_rows: next()?,
        dead_rows: next()?,
        bytes: next()?,
        partitions: next()?,
        ..OutboxFigures::default()
    })
}
