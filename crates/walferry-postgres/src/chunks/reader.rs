//! Reads chunks of tables by their keys beside the stream, and writes the rows of the signal table that mark them in
//! the stream.

mod ahead;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::TryStreamExt;
use tokio::sync::watch;
use tokio_postgres::types::Type;
use tracing::info;
use walferry_config::connector::{SignalChannel, SignalTable, Watermarking};
use walferry_config::{Connector, JavaRegex};
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::Failure;
use walferry_engine::incremental::{self, Ask, ChunkAnswer, ChunkAsk, Key, KeyColumns, NotRead, WindowEnd};
use walferry_engine::source::{ChunkRead, ChunkReader, ChunkRows, TableFilter, VisibleTransactions};
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts, TypeKind};
use walferry_pgoutput::{Column, Lsn, Oid, Tuple};
use walferry_record::java::date::{calendar_date, time_of_day};
use walferry_record::java::hash;

use crate::catalog::catalogs;
use crate::catalog::compare::{Comparison, Order, comparisons};
use crate::catalog::privileges::{ReadColumns, unreadable};
use crate::catalog::tables::listed;
use crate::chunks::signal_table::{Written, is_in, obstacle};
use crate::connection::{ALL_ROWS, Endpoint, Purpose, Sql, within};
use crate::encoding::hex;
use crate::error::Error;
use crate::quote::{identifier, literal, qualified};
use crate::snapshot::copy::append_tuple;
use crate::snapshot::statement::stays_enclosed;

pub use ahead::{RequestedSnapshot, requested_snapshot};

/// Reads chunks, and writes their watermarks.
pub struct Chunks {
    endpoint: Endpoint,
    sql: Option<Sql>,
    table: Option<SignalTable>,
    publication: String,
    watermarking: Watermarking,
    /// Maximum number of rows of a chunk.
    rows: u32,
    captured: TableFilter,
    /// Which columns are read.
    reads: ReadColumns,
    /// Whether signals in the signal table are followed.
    follows_table: bool,
    /// `read.only`: nothing is written.
    read_only: bool,
    /// Where the stream learns at which position a window closes.
    seek: watch::Sender<Lsn>,
    /// With `read.only`, if the server is not a standby: all that the last chunk shows was committed before this position.
    read_at: Option<Lsn>,
    /// When the present window was opened. The closing row contains this too.
    opened: String,
    /// A table, and how many of its rows fit into a chunk if that is fewer than `rows`.
    fitting: Option<(String, u32)>,
    /// The table whose rows were estimated last.
    estimated: Option<String>,
    /// When everything about the signal table was last found in order.
    looked: Option<Instant>,
    /// With `insert_delete`: chunks whose opening row may still be in the signal table.
    open: Vec<String>,
}

/// How long a statement may take. If the key has no index, sorting the table may take long.
const LIMIT: Duration = Duration::from_secs(1800);
/// How often everything about the signal table is looked at. Chunks in between only need to know that it is published.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
const READING: &str = "reading a chunk";
const MARKING: &str = "writing to the signal table";

/// How to read a table.
struct Target {
    table: ChunkTable,
    /// The columns of [`ChunkTable::key`], and those by which its rows are told apart.
    key: KeyColumns,
}

/// A column of the key by which a table is read.
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    /// Index of the column.
    place: usize,
    is_optional: bool,
    /// The type of the column. For a domain, its base type.
    pub(crate) type_oid: Oid,
    /// How the server compares and sorts it.
    compared: Comparison,
}

/// What a chunk is read from.
pub(crate) struct ChunkTable {
    pub(crate) catalog: Catalog,
    pub(crate) columns: Vec<ColumnFacts>,
    /// The names of those that are read. The others have no value, since no record has them.
    pub(crate) reads: HashSet<String>,
    pub(crate) table: String,
    pub(crate) key: Vec<KeyColumn>,
    /// Whether keys are unique. Otherwise rows with the same key are not split.
    pub(crate) is_unique: bool,
    /// Whether the server knows `FETCH FIRST … WITH TIES`.
    pub(crate) has_ties: bool,
    pub(crate) condition: Option<String>,
}

/// `FETCH FIRST … WITH TIES` is new in Postgres 13.
const TIES_SINCE: i32 = 130_000;

impl Chunks {
    /// Does not connect yet.
    pub(crate) fn new(
        connector: &Connector,
        endpoint: Endpoint,
        captured: TableFilter,
        seek: watch::Sender<Lsn>,
    ) -> Self {
        let signals = &connector.signals;
        Self {
            endpoint,
            sql: None,
            table: signals.table.clone(),
            publication: connector.publication.name.clone(),
            watermarking: signals.watermarking,
            rows: signals.chunk_rows,
            captured,
            reads: ReadColumns::new(connector),
            follows_table: signals.has(SignalChannel::Source),
            read_only: signals.read_only,
            seek,
            read_at: None,
            opened: String::new(),
            fitting: None,
            estimated: None,
            looked: None,
            open: Vec::new(),
        }
    }

    async fn sql(&mut self) -> Result<&Sql, Error> {
        if self.sql.as_ref().is_none_or(Sql::is_closed) {
            let sql = self.endpoint.sql(Purpose::General).await?;
            // An error is better than a snapshot that lacks rows.
            sql.execute(READING, ALL_ROWS).await?;
            sql.refuse_views(READING).await?;
            self.sql = Some(sql);
        }
        Ok(self.sql.as_ref().expect("opened above"))
    }

    async fn do_what_is_asked(&mut self, ask: &Ask, again: bool) -> Result<Option<ChunkRead>, Error> {
        match ask {
            Ask::Tables(expressions) => self.tables(expressions).await.map(Some),
            Ask::Key(ask) => self.key(ask).await.map(Some),
            Ask::Chunk(ask) => {
                if ask.opens && !self.read_only {
                    self.open(&ask.chunk, again).await?;
                }
                self.chunk(ask).await.map(Some)
            }
            Ask::Close { .. } if self.read_only => self.end().await.map(Some),
            Ask::Close { chunk } => self.close(chunk, again).await.map(|()| None),
            Ask::GiveWay | Ask::Delivery | Ask::Visible => Ok(None),
        }
    }

    async fn tables(&mut self, expressions: &[String]) -> Result<ChunkRead, Error> {
        let captured = self.captured.clone();
        let tables = listed(self.sql().await?, &captured).await?;
        let mut names: Vec<String> = tables.iter().map(|table| table.name.dotted()).collect();
        // Tables that match one expression have the order of Debezium's hash map of tables.
        hash::sort_concurrent(&mut names, |name| hash::of_text(name));
        let matched = |expression: &String| match JavaRegex::new(expression) {
            Ok(expression) => names.iter().filter(|name| expression.matches(name)).cloned().collect(),
            // For example a name with a bracket in it.
            Err(_) => Vec::new(),
        };
        Ok(ChunkRead {
            answer: ChunkAnswer::Tables(expressions.iter().map(matched).collect()),
            rows: None,
        })
    }

    fn signals(&self) -> Result<&SignalTable, Error> {
        self.table.as_ref().ok_or_else(|| Error::Protocol {
            doing: MARKING,
            problem: "no signal table is configured".to_owned(),
        })
    }

    /// Writes the row that opens a window. After a failure, the row may have been written already.
    async fn open(&mut self, chunk: &str, again: bool) -> Result<(), Error> {
        self.demand_published().await?;
        self.opened = now();
        let data = format!("{{\"openWindowTimestamp\": \"{}\"}}", self.opened);
        if self.watermarking == Watermarking::InsertDelete && !self.open.iter().any(|open| open == chunk) {
            self.remove_left_over().await?;
            self.open.push(chunk.to_owned());
        }
        self.write(chunk, WindowEnd::Open, &data, again).await
    }

    /// Everything that the chunk shows was committed before this position.
    async fn end(&mut self) -> Result<ChunkRead, Error> {
        let end = match self.read_at {
            Some(read_at) => read_at,
            None => committed_before(self.sql().await?).await?.0,
        };
        // In an idle database, the server would report it only after the next status update.
        self.seek.send_replace(end);
        Ok(plain(ChunkAnswer::CloseAt(end.0)))
    }

    async fn close(&mut self, chunk: &str, again: bool) -> Result<(), Error> {
        if self.watermarking == Watermarking::InsertDelete {
            let table = self.signals()?;
            let table = qualified(&table.schema, &table.name);
            // Triggers of the table run with the role's own path.
            let delete = format!(
                "WITH gone AS (DELETE FROM {table} WHERE id = {} AND (SELECT {} IS NOT NULL) RETURNING 1) SELECT pg_catalog.count(*) FROM gone",
                literal(&WindowEnd::Open.id(chunk)),
                self.sql().await?.own_path()
            );
            let deleted: i64 = self.sql().await?.value(MARKING, &delete, &[]).await?;
            if deleted == 0 {
                // Somebody has emptied the table. The stream may contain nothing of that which closes the window.
                self.write(chunk, WindowEnd::Open, "{}", false).await?;
                let _: i64 = self.sql().await?.value(MARKING, &delete, &[]).await?;
            }
            self.open.retain(|open| open != chunk);
            return Ok(());
        }
        let data = format!(
            "{{\"openWindowTimestamp\": \"{}\", \"closeWindowTimestamp\": \"{}\"}}",
            self.opened,
            now()
        );
        self.write(chunk, WindowEnd::Close, &data, again).await
    }

    /// Removes the opening rows of chunks that were given up: nobody else would. The stream brings their deletion, and no window is waiting for
    /// it.
    async fn remove_left_over(&mut self) -> Result<(), Error> {
        if self.open.is_empty() {
            return Ok(());
        }
        let table = self.signals()?;
        let ids: Vec<String> = self
            .open
            .iter()
            .map(|chunk| literal(&WindowEnd::Open.id(chunk)))
            .collect();
        let from = qualified(&table.schema, &table.name);
        let sql = self.sql().await?;
        let delete = format!(
            "DELETE FROM {from} WHERE id IN ({}) AND (SELECT {} IS NOT NULL)",
            ids.join(", "),
            sql.own_path()
        );
        sql.execute(MARKING, &delete).await?;
        self.open.clear();
        Ok(())
    }

    async fn write(&mut self, chunk: &str, end: WindowEnd, data: &str, again: bool) -> Result<(), Error> {
        let table = self.signals()?;
        let insert = format!(
            "INSERT INTO {} VALUES ({}, {}, {}){}",
            qualified(&table.schema, &table.name),
            literal(&end.id(chunk)),
            literal(end.kind()),
            literal(data),
            if again { " ON CONFLICT DO NOTHING" } else { "" }
        );
        self.sql().await?.execute_as_user(MARKING, &insert).await
    }

    /// Fails if the stream does not bring the rows of the signal table. Without them, no window would ever open.
    async fn demand_published(&mut self) -> Result<(), Error> {
        let table = self.signals()?.clone();
        let publication = self.publication.clone();
        let written = Written::Windows(self.watermarking);
        let is_recent = self.looked.is_some_and(|at| at.elapsed() < LOOK_INTERVAL);
        let sql = self.sql().await?;
        if is_recent && is_in(sql, &table, &publication).await? {
            return Ok(());
        }
        match obstacle(sql, &table, &publication, written).await? {
            Some(error) => Err(error),
            None => {
                self.looked = Some(Instant::now());
                Ok(())
            }
        }
    }

    async fn key(&mut self, ask: &ChunkAsk) -> Result<ChunkRead, Error> {
        let wanted = self.wanted();
        let found = match target(self.sql().await?, ask, &wanted).await {
            Ok(Ok(target)) => Some(target.key),
            // Reading the table will tell why it cannot be read.
            Ok(Err(_)) => None,
            Err(error) if is_refusal(&error) => None,
            Err(error) => return Err(error),
        };
        Ok(plain(ChunkAnswer::Key(found)))
    }

    fn wanted(&self) -> Wanted {
        Wanted {
            captured: self.captured.clone(),
            publication: self.publication.clone(),
            reads: self.reads.clone(),
            read_only: self.read_only,
        }
    }

    /// Reads the table's facts and the rows in one transaction, which begins after the window was opened.
    async fn chunk(&mut self, ask: &ChunkAsk) -> Result<ChunkRead, Error> {
        let wanted = self.wanted();
        let asked = match &self.fitting {
            Some((table, rows)) if *table == ask.table.id => *rows,
            _ => self.rows,
        };
        let estimates = ask.after.is_none() || self.estimated.as_ref() != Some(&ask.table.id);
        self.sql().await?;
        // If the future is dropped, the connection must not be used again: its transaction would show the past.
        let sql = self.sql.take().expect("opened above");
        let mut read = attempt(&sql, ask, (asked, estimates), &wanted).await?;
        for _ in 1..MOST_ATTEMPTS {
            if read.is_certain {
                break;
            }
            read = attempt(&sql, ask, (asked, estimates), &wanted).await?;
        }
        let Attempt {
            read,
            is_full,
            read_at,
            is_certain,
        } = read;
        if !is_certain && !matches!(read.answer, ChunkAnswer::Failed(_)) {
            return Err(Error::Protocol {
                doing: READING,
                problem: format!("{} is rewritten again and again", ask.table.id),
            });
        }
        self.read_at = read_at;
        if let Some(rows) = &read.rows {
            self.estimated = Some(ask.table.id.clone());
            self.fits(&ask.table.id, asked, rows.tuples.len(), is_full);
        }
        self.sql = Some(sql);
        Ok(read)
    }

    /// Learns from a chunk how many rows to request next time. Rows beyond the chunk's size are read in vain.
    fn fits(&mut self, table: &str, asked: u32, count: usize, is_full: bool) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let next = match is_full {
            true => count.saturating_add(1),
            false if count >= asked => asked.saturating_mul(2),
            false => asked,
        };
        let next = next.min(self.rows);
        self.fitting = (next < self.rows).then(|| (table.to_owned(), next));
    }
}

/// Whether the server would refuse the same again: the table no longer exists, a condition is not valid SQL, a
/// privilege is missing.
pub(crate) fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::NoCopy { .. } | Error::KeyWithoutUtf8 { .. })
        || error.server_error().is_some_and(|error| refuses(&error.code))
}

/// Whether a SQLSTATE says so. P0 is what a function raises, 21 a subquery with too many rows, and 54 a statement that is too complex.
pub(crate) fn refuses(code: &str) -> bool {
    const CLASSES: [&str; 10] = ["0A", "21", "22", "2F", "38", "39", "3F", "42", "54", "P0"];
    CLASSES.iter().any(|class| code.starts_with(class))
}

/// What the configuration says of the tables to read.
struct Wanted {
    captured: TableFilter,
    publication: String,
    /// Which columns are read.
    reads: ReadColumns,
    /// `read.only`.
    read_only: bool,
}

fn plain(answer: ChunkAnswer) -> ChunkRead {
    ChunkRead { answer, rows: None }
}

/// How often a chunk is read at once, if a statement of somebody else comes between its catalog and its rows.
const MOST_ATTEMPTS: u32 = 3;

/// A chunk that was read in a transaction of its own.
struct Attempt {
    read: ChunkRead,
    /// Whether it has more rows than there is room for.
    is_full: bool,
    /// With `read.only`, if the server is not a standby: everything that the chunk shows was committed before this position.
    read_at: Option<Lsn>,
    /// Whether the table was certainly the same all the time. Otherwise it is read once more.
    is_certain: bool,
}

async fn attempt(sql: &Sql, ask: &ChunkAsk, limits: (u32, bool), wanted: &Wanted) -> Result<Attempt, Error> {
    const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    sql.execute(READING, BEGIN).await?;
    let read = match within(LIMIT, read(sql, ask, limits, wanted)).await {
        Some(read) => read,
        None => Err(sql.fell_silent(READING, LIMIT)),
    };
    match read {
        Ok(read) => {
            sql.execute(READING, "COMMIT").await?;
            Ok(read)
        }
        Err(error) if is_refusal(&error) => {
            sql.execute(READING, "ROLLBACK").await?;
            let failed = refused(sql, &ask.table.id, wanted, error).await?;
            Ok(Attempt {
                read: plain(ChunkAnswer::Failed(failed)),
                is_full: false,
                read_at: None,
                // A column may have been renamed since the catalog was read.
                is_certain: false,
            })
        }
        Err(error) => Err(error),
    }
}

/// Why the server refuses to read a table. Where the role lacks a privilege on it, the hint has the SQL that grants it.
async fn refused(sql: &Sql, table: &str, wanted: &Wanted, error: Error) -> Result<NotRead, Error> {
    let failure = Failure::from(error);
    let mut hint = failure.hint().map(str::to_owned);
    if failure.kind == Kind::PrivilegeMissing
        && let Some((oid, _)) = find(sql, table).await?
        && let Some(problem) = unreadable(sql, [oid].into_iter(), &wanted.reads).await?
    {
        hint = Some(problem.hint());
    }
    Ok(NotRead {
        why: failure.to_string(),
        hint,
    })
}

async fn read(sql: &Sql, ask: &ChunkAsk, limits: (u32, bool), wanted: &Wanted) -> Result<Attempt, Error> {
    let seen = visible(sql).await?;
    // The log that reading itself writes, such as that of pruned pages, need not be waited for.
    let read_at = match wanted.read_only {
        true => Some(committed_before(sql).await?).filter(|(_, is_standby)| !is_standby),
        false => None,
    };
    let read_at = read_at.map(|(position, _)| position);
    let certain = |answer| Attempt {
        read: plain(answer),
        is_full: false,
        read_at,
        is_certain: true,
    };
    let target = match target(sql, ask, wanted).await? {
        Ok(target) if ask.key.as_ref() == Some(&target.key) => target.table,
        Ok(target) => return Ok(certain(ChunkAnswer::OtherKey(target.key))),
        Err(answer) => return Ok(certain(answer)),
    };
    let table = target.catalog.table.as_ref().map(|table| table.oid);
    let (read, is_full) = read_rows(sql, ask, limits, seen, target).await?;
    let is_certain = match table {
        Some(table) => !is_rewritten(sql, table).await?,
        None => true,
    };
    Ok(Attempt {
        read,
        is_full,
        read_at,
        is_certain,
    })
}

/// A chunk, and whether it has more rows than there is room for.
async fn read_rows(
    sql: &Sql,
    ask: &ChunkAsk,
    (limit, estimates): (u32, bool),
    seen: VisibleTransactions,
    target: ChunkTable,
) -> Result<(ChunkRead, bool), Error> {
    let others = match estimates {
        true => rows_of(sql, &ask.others).await?,
        false => Vec::new(),
    };
    let has_condition = target.condition.is_some();
    if has_condition {
        // From here to the last row, each statement has the condition in it, and names all else with its schema.
        sql.begin_of_user(READING).await?;
        target.is_understood(sql).await?;
    }
    let maximum = match &ask.maximum {
        Some(maximum) => maximum.clone(),
        None => match maximum(sql, &target).await? {
            Some(maximum) => maximum,
            None => return Ok((plain(ChunkAnswer::Empty), false)),
        },
    };
    let rows_left = match estimates {
        true => rows_left(sql, &target.remaining_rows(ask.after.as_ref(), &maximum)).await?,
        false => None,
    };
    let statement = target.chunk(ask.after.as_ref(), &maximum, limit);
    let Tuples {
        tuples,
        bytes: tuple_bytes,
        is_full,
        is_endless,
    } = tuples(sql, &statement, &target, ask.bytes).await?;
    if has_condition {
        sql.end_of_user(READING).await?;
    }
    if is_endless && ask.table.surrogate.is_none() {
        // Nobody has asked for these columns.
        return Ok((plain(ChunkAnswer::NoKey), false));
    }
    if is_endless {
        let names: Vec<&str> = target.key.iter().map(|column| &*column.name).collect();
        let why = format!(
            "too many rows have the same value of {} to be read at once: name a column in \"surrogate-key\" whose values differ more, or \
             ask for a blocking snapshot",
            names.join(", ")
        );
        return Ok((plain(ChunkAnswer::Failed(why.into())), false));
    }
    let last = tuples
        .last()
        .map(|tuple| target.key_of(&tuple_bytes[tuple.clone()]))
        .transpose()?;
    let read = ChunkRead {
        answer: ChunkAnswer::Rows {
            rows: tuples.len() as u64,
            last,
            maximum,
            stale: false,
        },
        rows: Some(Box::new(ChunkRows {
            catalog: target.catalog,
            bytes: tuple_bytes,
            tuples,
            seen,
            rows_left,
            others,
        })),
    };
    Ok((read, is_full))
}

/// How many rows a statement will return, as the server's planner estimates it.
async fn rows_left(sql: &Sql, statement: &str) -> Result<Option<u64>, Error> {
    let plan = sql.rows(READING, &format!("EXPLAIN {statement}"), &[]).await?;
    let first: Option<String> = match plan.first() {
        Some(row) => row.try_get(0).map_err(|error| Error::sql(READING, error))?,
        None => None,
    };
    Ok(first.as_deref().and_then(rows_of_plan))
}

/// The number of rows in the first line of a plan.
fn rows_of_plan(line: &str) -> Option<u64> {
    let (_, plan_rows) = line.split_once(" rows=")?;
    plan_rows.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// How many rows tables have, by the statistics of the server. Those of a partitioned table are the rows of its partitions.
async fn rows_of(sql: &Sql, tables: &[String]) -> Result<Vec<(String, u64)>, Error> {
    // Since Postgres 14, -1 says that there are no statistics. `pg_partition_tree` would lock every partition until the chunk is read.
    const QUERY: &str = "
        SELECT pg_catalog.concat(n.nspname, '.', c.relname),
               (WITH RECURSIVE tree (oid, kind, tuples) AS (
                  SELECT c.oid, c.relkind, c.reltuples
                  UNION ALL
                  SELECT p.oid, p.relkind, p.reltuples
                  FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
                       JOIN pg_catalog.pg_class p ON p.oid = i.inhrelid)
                SELECT CASE WHEN pg_catalog.bool_and(tuples >= 0) THEN pg_catalog.sum(tuples) END
                FROM tree WHERE kind <> 'p')::bigint
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE pg_catalog.concat(n.nspname, '.', c.relname) = ANY ($1) AND c.relkind IN ('r', 'p')";
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sql.rows(READING, QUERY, &[(&tables, Type::TEXT_ARRAY)]).await?;
    let read = |row: &tokio_postgres::Row| {
        let (name, rows): (String, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
        Ok(rows.map(|rows| (name, rows.unsigned_abs())))
    };
    let read: Result<Vec<_>, tokio_postgres::Error> = rows.iter().map(read).collect();
    let known = read.map_err(|error| Error::sql(READING, error))?;
    Ok(known.into_iter().flatten().collect())
}

/// A table by its dotted name, and the version of the server.
async fn find(sql: &Sql, table: &str) -> Result<Option<(Oid, i32)>, Error> {
    const FIND: &str = "
        SELECT c.oid, pg_catalog.current_setting('server_version_num')::int
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE pg_catalog.concat(n.nspname, '.', c.relname) = $1 AND c.relkind IN ('r', 'p')";
    let rows = sql.rows(READING, FIND, &[(&table, Type::TEXT)]).await?;
    let read = |row: &tokio_postgres::Row| Ok((Oid(row.try_get(0)?), row.try_get(1)?));
    let found = rows.first().map(read).transpose();
    found.map_err(|error| Error::sql(READING, error))
}

/// Finds how to read the table. Returns an answer if the table cannot be read.
async fn target(sql: &Sql, ask: &ChunkAsk, wanted: &Wanted) -> Result<Result<Target, ChunkAnswer>, Error> {
    let Some((oid, version)) = find(sql, &ask.table.id).await? else {
        return Ok(Err(ChunkAnswer::UnknownTable));
    };
    let Some((_, mut catalog)) = catalogs(sql, &[oid]).await?.into_iter().next() else {
        return Ok(Err(ChunkAnswer::UnknownTable));
    };
    let Some(mut facts) = catalog.table.clone() else {
        return Ok(Err(ChunkAnswer::UnknownTable));
    };
    if !(wanted.captured)(&facts.schema, &facts.name) {
        return Ok(Err(ChunkAnswer::Failed(NotRead {
            why: "the connector does not capture it".to_owned(),
            hint: Some("add it to `table.include.list`".to_owned()),
        })));
    }
    let unique = unique_columns(sql, oid).await?;
    let Some(names) = order(ask, &facts, &unique, wanted) else {
        return Ok(Err(ChunkAnswer::NoKey));
    };
    let condition = match &ask.table.condition {
        Some(condition) => match enclosed(condition, sql.has_backslash_escapes()) {
            Ok(condition) => Some(condition),
            Err(why) => {
                return Ok(Err(ChunkAnswer::Failed(
                    format!("its condition cannot stand alone: {why}").into(),
                )));
            }
        },
        None => None,
    };
    let publication = &*wanted.publication;
    let hidden = unpublished_columns(sql, publication, oid).await?;
    // Not when only its key is looked up.
    if ask.after.is_none() && ask.key.is_some() {
        tell_of_hidden(&ask.table.id, &hidden, publication);
    }
    let is_left_out = |name: &String| ask.left_out.contains(name) || hidden.contains(name);
    facts
        .columns
        .retain(|column| names.contains(&column.name) || !is_left_out(&column.name));
    catalog.table = Some(facts.clone());
    let versions = column_versions(sql, oid).await?;
    let compared = comparisons(sql, oid).await?;
    let (mut key, mut order) = (Vec::new(), Vec::new());
    for name in &names {
        let Some((mut column, version)) = key_column(name, &facts, &catalog, &compared).zip(versions.get(name)) else {
            let why = format!("it has no column {}", names.join(", "));
            return Ok(Err(ChunkAnswer::Failed(why.into())));
        };
        column.is_optional |= version.has_doubtful_nulls;
        order.push(incremental::KeyColumn {
            name: name.clone(),
            type_name: version.type_name.clone(),
            type_oid: column.type_oid.0,
            version: version.version.clone(),
        });
        key.push(column);
    }
    let identity = unique.identity.clone().unwrap_or_else(|| names.clone());
    let mut reads: HashSet<String> = wanted.reads.of(&facts)?.into_iter().collect();
    reads.extend(names.iter().chain(&identity).cloned());
    Ok(Ok(Target {
        key: KeyColumns {
            order,
            identity,
            is_unique: unique.identity.is_some(),
        },
        table: ChunkTable {
            columns: facts.columns.clone(),
            reads,
            table: qualified(&facts.schema, &facts.name),
            key,
            is_unique: unique.all.contains(&names),
            has_ties: version >= TIES_SINCE,
            condition,
            catalog,
        },
    }))
}

/// The columns in whose order a table is read. Debezium takes those of `message.key.columns` first, even if they do not tell its rows apart. It
/// also takes a unique index that is not complete.
fn order(ask: &ChunkAsk, facts: &TableFacts, unique: &UniqueColumns, wanted: &Wanted) -> Option<Vec<String>> {
    if let Some(column) = &ask.table.surrogate {
        return Some(vec![column.clone()]);
    }
    if !facts.primary_key.is_empty() {
        return Some(facts.primary_key.clone());
    }
    let first = facts.unique_indexes.first();
    if let Some(columns) = first.filter(|first| unique.all.contains(first)).or(unique.all.first()) {
        return Some(columns.clone());
    }
    let message_key = wanted.reads.message_key(facts);
    match message_key.is_empty() {
        true => first.cloned(),
        false => Some(message_key),
    }
}

/// Which columns tell the rows of a table apart.
struct UniqueColumns {
    /// The columns of each index that does.
    all: Vec<Vec<String>>,
    /// The columns to tell them apart by in the stream: if possible, those that each change brings.
    identity: Option<Vec<String>>,
}

/// Finds the unique indexes that hold for each row: without expressions, not partial, valid, and without columns that may be null. A primary
/// key may be deferrable, since a snapshot of the server shows no row in the middle of a transaction. An index says nothing of the rows in
/// tables that inherit from its own.
async fn unique_columns(sql: &Sql, table: Oid) -> Result<UniqueColumns, Error> {
    const QUERY: &str = "
        SELECT k.names, c.relreplident = 'i' AND i.indisreplident
        FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_index i ON i.indrelid = c.oid
        JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
        CROSS JOIN LATERAL (
          SELECT pg_catalog.array_agg(a.attname::text ORDER BY k.place) AS names, pg_catalog.bool_and(a.attnotnull) AS not_null
          FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place)
          JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
          WHERE k.place <= i.indnkeyatts) k
        WHERE c.oid = $1 AND i.indisunique AND i.indisvalid AND i.indislive AND (i.indimmediate OR i.indisprimary)
          AND i.indpred IS NULL AND i.indexprs IS NULL AND k.not_null
          AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint n WHERE n.conrelid = c.oid AND n.contype = 'n' AND NOT n.convalidated
                          AND n.conkey OPERATOR(pg_catalog.&&) i.indkey::int2[])
          AND (c.relkind = 'p' OR NOT EXISTS (SELECT FROM pg_catalog.pg_inherits h WHERE h.inhparent = c.oid))
        ORDER BY NOT i.indisprimary, NOT i.indisclustered, x.relname";
    let rows = sql.rows(READING, QUERY, &[(&table.0, Type::OID)]).await?;
    let read = |row: &tokio_postgres::Row| Ok((row.try_get(0)?, row.try_get(1)?));
    let read: Result<Vec<(Vec<String>, bool)>, tokio_postgres::Error> = rows.iter().map(read).collect();
    let found = read.map_err(|error| Error::sql(READING, error))?;
    let replica_identity = found.iter().find(|(_, is_replica_identity)| *is_replica_identity);
    let identity = replica_identity.or(found.first()).map(|(columns, _)| columns.clone());
    Ok(UniqueColumns {
        all: found.into_iter().map(|(columns, _)| columns).collect(),
        identity,
    })
}

/// What else the catalog says of a column.
struct ColumnVersion {
    /// Its type, as SQL names it.
    type_name: String,
    /// What tells this version of the column from others, apart from name and type: its number, its collation, and the transaction that
    /// altered it last, since that may have computed its values anew.
    version: String,
    /// Whether it may have nulls although it is declared NOT NULL. Since Postgres 18, such a constraint may be NOT VALID.
    has_doubtful_nulls: bool,
}

async fn column_versions(sql: &Sql, table: Oid) -> Result<HashMap<String, ColumnVersion>, Error> {
    const QUERY: &str = "
        SELECT a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod),
               a.attnum || ' ' || a.attcollation || ' ' || a.xmin,
               EXISTS (SELECT FROM pg_catalog.pg_constraint n WHERE n.conrelid = a.attrelid AND n.contype = 'n' AND NOT n.convalidated
                       AND a.attnum = ANY (n.conkey))
        FROM pg_catalog.pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped";
    let rows = sql.rows(READING, QUERY, &[(&table.0, Type::OID)]).await?;
    let read = |row: &tokio_postgres::Row| {
        let version = ColumnVersion {
            type_name: row.try_get(1)?,
            version: row.try_get(2)?,
            has_doubtful_nulls: row.try_get(3)?,
        };
        Ok((row.try_get(0)?, version))
    };
    rows.iter()
        .map(read)
        .collect::<Result<_, tokio_postgres::Error>>()
        .map_err(|error| Error::sql(READING, error))
}

/// The columns of a table that the stream does not bring: those that the publication's column list leaves out, and generated ones. Since Postgres
/// 18, a publication may have stored ones: those in its column list or, without one, all with `publish_generated_columns = stored`.
pub(crate) async fn unpublished_columns(sql: &Sql, publication: &str, table: Oid) -> Result<Vec<String>, Error> {
    // A list may be that of the table, or of a table that it is a partition of, or that is its partition. Before Postgres 15 there is no
    // `prattrs`.
    const QUERY: &str = "
        WITH family AS (
          SELECT $2::oid AS oid
          UNION SELECT t.relid::oid FROM pg_catalog.pg_partition_tree($2::oid::regclass) t
          UNION SELECT t.relid::oid FROM pg_catalog.pg_partition_ancestors($2::oid::regclass) t
        ), of_lists AS (
          SELECT a.attname, a.attgenerated, a.attnum::text IN (
            SELECT (pg_catalog.regexp_matches(pg_catalog.to_jsonb(m) ->> 'prattrs', '[0-9]+', 'g'))[1]) AS is_listed
          FROM pg_catalog.pg_publication p
          JOIN pg_catalog.pg_publication_rel m ON m.prpubid = p.oid
          JOIN family ON family.oid = m.prrelid
          JOIN pg_catalog.pg_attribute a ON a.attrelid = m.prrelid AND a.attnum > 0 AND NOT a.attisdropped
          WHERE p.pubname = $1 AND pg_catalog.to_jsonb(m) ->> 'prattrs' IS NOT NULL
        )
        SELECT attname::text FROM of_lists WHERE attgenerated = '' AND NOT is_listed
        UNION
        SELECT a.attname::text
        FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_publication p ON p.pubname = $1
        WHERE a.attrelid = $2 AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> ''
          AND NOT (a.attgenerated = 's' AND COALESCE(
            (SELECT pg_catalog.bool_or(is_listed AND l.attname = a.attname) FROM of_lists l),
            pg_catalog.to_jsonb(p) ->> 'pubgencols' = 's', false))
        ORDER BY 1";
    let rows = sql
        .rows(READING, QUERY, &[(&publication, Type::TEXT), (&table.0, Type::OID)])
        .await?;
    let names = rows.iter().map(|row| row.try_get(0));
    names
        .collect::<Result<_, _>>()
        .map_err(|error| Error::sql(READING, error))
}

/// Says which columns a snapshot leaves out.
pub(crate) fn tell_of_hidden(table: &str, hidden: &[String], publication: &str) {
    if !hidden.is_empty() {
        info!(
            table,
            columns = hidden.join(", "),
            publication,
            "the publication does not contain these columns, so the incremental snapshot leaves them out, too"
        );
    }
}

/// A condition in brackets, on lines of its own, since it may end with a comment. Returns why it would not stay in them.
pub(crate) fn enclosed(condition: &str, escapes: bool) -> Result<String, &'static str> {
    // That of a signal is kept in brackets, which such a comment may have hidden.
    let bare = condition
        .strip_prefix('(')
        .and_then(|condition| condition.strip_suffix(')'))
        .filter(|condition| stays_enclosed(condition, escapes).is_ok());
    let condition = bare.unwrap_or(condition);
    stays_enclosed(condition, escapes)?;
    Ok(format!("(\n{condition}\n)"))
}

pub(crate) fn key_column(
    name: &str,
    facts: &TableFacts,
    catalog: &Catalog,
    compared: &HashMap<String, Comparison>,
) -> Option<KeyColumn> {
    let place = facts.columns.iter().position(|column| column.name == name)?;
    let column = &facts.columns[place];
    let mut type_oid = column.type_oid;
    while let Some(TypeKind::Domain { base, .. }) = catalog.type_of(type_oid).map(|facts| &facts.kind) {
        type_oid = *base;
    }
    let is_enum = matches!(
        catalog.type_of(type_oid).map(|facts| &facts.kind),
        Some(TypeKind::Enum { .. })
    );
    Some(KeyColumn {
        name: identifier(name),
        place,
        is_optional: !column.not_null,
        // pgjdbc reads an enum as text.
        type_oid: if is_enum { Oid(25) } else { type_oid },
        compared: compared.get(name)?.clone(),
    })
}

/// The key of the table's last row.
pub(crate) async fn maximum(sql: &Sql, target: &ChunkTable) -> Result<Option<Key>, Error> {
    let names: Vec<&str> = target.key.iter().map(|column| &*column.name).collect();
    let statement = format!(
        "COPY (SELECT {} FROM {}{} ORDER BY {} DESC LIMIT 1) TO STDOUT",
        names.join(", "),
        target.table,
        target
            .condition
            .as_ref()
            .map(|condition| format!(" WHERE {condition}"))
            .unwrap_or_default(),
        names.join(" DESC, "),
    );
    let mut lines = pin!(
        sql.copy_out(&statement)
            .await
            .map_err(|error| Error::copy(READING, error))?
    );
    let mut found = None;
    while let Some(line) = lines.try_next().await.map_err(|error| Error::sql(READING, error))? {
        let mut bytes = Vec::new();
        append(&line, names.len(), sql, &mut bytes)?;
        let tuple = Tuple::parse(&bytes).map_err(|error| malformed(&error))?;
        let value = |(value, column): (Column<'_>, &KeyColumn)| Ok((target.text(value, column)?, column.type_oid));
        let values: Result<Vec<_>, Error> = tuple.columns().zip(&target.key).map(value).collect();
        found = Some(Key::new(values?));
    }
    Ok(found)
}

/// Rows of a chunk.
#[derive(Default)]
pub(crate) struct Tuples {
    pub(crate) tuples: Vec<Range<usize>>,
    pub(crate) bytes: Bytes,
    /// Whether there are more rows than there is room for.
    pub(crate) is_full: bool,
    /// Whether there are more rows with one key than there is room for. Rows with one key cannot be split.
    is_endless: bool,
}

/// If all rows of a chunk have the same key, it may be this many times larger.
const MOST_OF_ONE_KEY: usize = 4;

/// Runs the statement of a chunk. Keeps rows up to the first one that exceeds `most` bytes.
pub(crate) async fn tuples(sql: &Sql, statement: &str, target: &ChunkTable, most: usize) -> Result<Tuples, Error> {
    let mut lines = pin!(
        sql.copy_out(statement)
            .await
            .map_err(|error| Error::copy(READING, error))?
    );
    let (mut out, mut bytes, mut last_rank) = (Tuples::default(), Vec::new(), Vec::new());
    while let Some(line) = lines.try_next().await.map_err(|error| Error::sql(READING, error))? {
        if out.is_full {
            // Read the rest, so that the statement ends in order and the connection stays usable.
            continue;
        }
        let start = bytes.len();
        let (row, rank) = match target.is_unique {
            true => (&*line, None),
            false => without_rank(&line),
        };
        append(row, target.columns.len(), sql, &mut bytes)?;
        let has_same_key = rank.is_some_and(|rank| rank == last_rank);
        if let Some(rank) = rank.filter(|_| !has_same_key) {
            last_rank = rank.to_vec();
        }
        if bytes.len() > most && !out.tuples.is_empty() {
            // Rows with the same key are not split: the next chunk begins behind that key. The server says which keys are the same: 1.0 and
            // 1.00 are.
            let torn = has_same_key;
            out.is_endless = torn && bytes.len() > most.saturating_mul(MOST_OF_ONE_KEY);
            if !torn || out.is_endless {
                bytes.truncate(start);
                out.is_full = true;
                continue;
            }
        }
        out.tuples.push(start..bytes.len());
    }
    out.bytes = bytes.into();
    Ok(out)
}

/// A row without the number at its beginning, and that number.
fn without_rank(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    let end = line.iter().position(|byte| *byte == b'\t').unwrap_or(line.len());
    (line.get(end + 1..).unwrap_or_default(), Some(&line[..end]))
}

fn append(line: &[u8], columns: usize, sql: &Sql, out: &mut Vec<u8>) -> Result<(), Error> {
    append_tuple(line, columns, sql.encoding(), out).map_err(|error| malformed(&error))
}

fn malformed(error: &dyn std::error::Error) -> Error {
    Error::Protocol {
        doing: READING,
        problem: error.to_string(),
    }
}

impl ChunkTable {
    pub(crate) fn key_of(&self, tuple: &[u8]) -> Result<Key, Error> {
        let tuple = Tuple::parse(tuple).map_err(|error| malformed(&error))?;
        let value = |column: &KeyColumn| {
            let value = tuple.columns().nth(column.place).unwrap_or(Column::Null);
            Ok((self.text(value, column)?, column.type_oid))
        };
        let values: Result<Vec<_>, Error> = self.key.iter().map(value).collect();
        Ok(Key::new(values?))
    }

    /// A value of the key. The next chunk is asked for by it, so it must have a form in UTF-8.
    fn text(&self, value: Column<'_>, column: &KeyColumn) -> Result<Option<String>, Error> {
        match value {
            Column::Text(text) => Ok(Some(String::from_utf8_lossy(text).into_owned())),
            Column::Binary(bytes) => Err(Error::KeyWithoutUtf8 {
                table: self.table.clone(),
                column: column.name.clone(),
                bytes: hex(bytes),
            }),
            Column::Null | Column::Unchanged => Ok(None),
        }
    }

    /// The statement that reads the chunk behind a key. As in Debezium, the first chunk has no upper bound.
    pub(crate) fn chunk(&self, after: Option<&Key>, maximum: &Key, limit: u32) -> String {
        let conditions = self.conditions(after, maximum);
        let expression = |column: &ColumnFacts| match self.reads.contains(&column.name) {
            true => identifier(&column.name),
            false => "NULL".to_owned(),
        };
        let columns: Vec<String> = self.columns.iter().map(expression).collect();
        let names: Vec<&str> = self.key.iter().map(|column| &*column.name).collect();
        let (columns, names, table) = (columns.join(", "), names.join(", "), &self.table);
        if self.is_unique {
            return format!(
                "COPY (SELECT {columns} FROM {table}{conditions} ORDER BY {names} LIMIT {limit}) TO STDOUT"
            );
        }
        // This chunk has all rows with its last key, since the next one begins behind that key.
        let name = identifier(&self.name_for_rank());
        let ranked =
            format!("SELECT pg_catalog.rank() OVER (ORDER BY {names}) AS {name}, {columns} FROM {table}{conditions}");
        if self.has_ties {
            return format!("COPY ({ranked} ORDER BY {names} FETCH FIRST {limit} ROWS WITH TIES) TO STDOUT");
        }
        // The same rows. The server looks at all that are left, for each chunk.
        format!(
            "COPY (SELECT {name}, {columns} FROM ({ranked}) ranked WHERE {name} OPERATOR(pg_catalog.<=) {limit} ORDER BY {names}) TO STDOUT"
        )
    }

    /// A name that no column has: without one, the rank would be called `rank`, and ORDER BY would not know which of two columns it means.
    fn name_for_rank(&self) -> String {
        let mut name = "group_rank".to_owned();
        while self.columns.iter().any(|column| *column.name == name) {
            name.push('_');
        }
        name
    }

    /// Lets the server parse the condition alone, before it becomes a part of other statements.
    pub(crate) async fn is_understood(&self, sql: &Sql) -> Result<(), Error> {
        let Some(condition) = &self.condition else {
            return Ok(());
        };
        let statement = format!("SELECT 1 FROM {} WHERE {condition}", self.table);
        let prepared = sql.prepare(READING, &statement).await?;
        prepared.map(drop).map_err(|error| Error::sql(READING, error))
    }

    /// The statement that reads everything behind a key. It is only planned, to see how many rows that are.
    fn remaining_rows(&self, after: Option<&Key>, maximum: &Key) -> String {
        format!("SELECT 1 FROM {}{}", self.table, self.conditions(after, maximum))
    }

    /// The WHERE that leaves the rows behind a key.
    fn conditions(&self, after: Option<&Key>, maximum: &Key) -> String {
        let mut conditions = Vec::new();
        if let Some(after) = after {
            conditions.push(self.bound(after, true));
            conditions.push(self.bound(maximum, false));
        }
        conditions.extend(self.condition.clone());
        match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.join(" AND ")),
        }
    }

    /// The condition for keys behind this one (`is_lower`), or up to it.
    pub(crate) fn bound(&self, key: &Key, is_lower: bool) -> String {
        let texts: Vec<Option<&str>> = key.texts().collect();
        let has_null = self.key.iter().any(|column| column.is_optional) || texts.iter().any(Option::is_none);
        let greater = self.greater(&texts);
        if has_null {
            return if is_lower { greater } else { format!("NOT {greater}") };
        }
        let order = if is_lower { Order::Greater } else { Order::LessOrEqual };
        let columns: Vec<(&KeyColumn, &str)> = self.key.iter().zip(texts.into_iter().flatten()).collect();
        let Some(((first, text), others)) = columns.split_first() else {
            return "true".to_owned();
        };
        let operator = first.compared.operator(order);
        if others.is_empty() {
            return first.compared.condition(&first.name, order, text);
        }
        if others
            .iter()
            .all(|(column, _)| column.compared.operator(order) == operator)
        {
            let names: Vec<&str> = columns.iter().map(|(column, _)| &*column.name).collect();
            let values: Vec<String> = columns
                .iter()
                .map(|(column, text)| column.compared.value(text))
                .collect();
            return format!("ROW({}) {operator} ROW({})", names.join(", "), values.join(", "));
        }
        // A row has one operator. The first column alone lets the server use an index.
        let outer = if is_lower {
            Order::GreaterOrEqual
        } else {
            Order::LessOrEqual
        };
        let bound = first.compared.condition(&first.name, outer, text);
        match is_lower {
            true => format!("{bound} AND {greater}"),
            false => format!("{bound} AND NOT {greater}"),
        }
    }

    /// The condition for keys greater than this one. Null is the greatest key.
    fn greater(&self, texts: &[Option<&str>]) -> String {
        let mut alternatives = Vec::new();
        for (place, (column, text)) in self.key.iter().zip(texts).enumerate() {
            let before = self.key.iter().zip(texts).take(place);
            let equal = before.map(|(column, text)| match text {
                Some(text) => format!(
                    "({}) IS TRUE",
                    column.compared.condition(&column.name, Order::Equal, text)
                ),
                None => format!("{} IS NULL", column.name),
            });
            let last = match text {
                Some(text) => format!(
                    "({} IS NULL OR {})",
                    column.name,
                    column.compared.condition(&column.name, Order::Greater, text)
                ),
                None => "false".to_owned(),
            };
            let terms: Vec<String> = equal.chain([last]).collect();
            alternatives.push(format!("({})", terms.join(" AND ")));
        }
        format!("({})", alternatives.join(" OR "))
    }
}

/// The present time in the format of Java's `Instant.toString`.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let millis = i64::try_from(now.as_millis()).unwrap_or_default();
    let (year, month, day) = calendar_date(millis.div_euclid(86_400_000));
    let (hour, minute, second, _) = time_of_day(millis);
    let micros = now.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// The transactions that snapshots include from now on.
async fn visible(sql: &Sql) -> Result<VisibleTransactions, Error> {
    const QUERY: &str = "SELECT pg_catalog.txid_current_snapshot()::text";
    let seen: String = sql.value(READING, QUERY, &[]).await?;
    VisibleTransactions::parse(&seen).ok_or_else(|| Error::Protocol {
        doing: READING,
        problem: format!("a snapshot of the form {seen:?}"),
    })
}

/// Everything that a snapshot shows which was taken before this call was committed before this position.
///
/// On a primary, this is where the next record of the log will be inserted, not where the log is written: with `synchronous_commit=off`, a
/// commit is visible before it is written. On a standby, it is the position up to which the log was replayed. The server moves it a moment after a
/// commit becomes visible, so there it must be asked for behind the reading. Returns whether it is a standby.
async fn committed_before(sql: &Sql) -> Result<(Lsn, bool), Error> {
    const QUERY: &str = "
        SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                    ELSE pg_catalog.pg_current_wal_insert_lsn() END::text
               || ' ' || pg_catalog.current_setting('wal_block_size')
               || ' ' || pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size'))
               || ' ' || pg_catalog.pg_is_in_recovery()::text";
    let text: String = sql.value(READING, QUERY, &[]).await?;
    let mut parts = text.split(' ');
    let lsn = parts.next().and_then(|lsn| lsn.parse().ok());
    let [block, segment] = [parts.next(), parts.next()].map(|part| part.and_then(|part| part.parse().ok()));
    match (lsn, block, segment, parts.next()) {
        (Some(lsn), Some(block), Some(segment), Some(is_standby)) => {
            Ok((end_of_last_record(lsn, block, segment), is_standby == "true"))
        }
        _ => Err(Error::Protocol {
            doing: READING,
            problem: format!("a position of the form {text:?}"),
        }),
    }
}

/// Where the record ends after which the next one will be inserted. If that one begins a page, it is inserted behind the page's header, but
/// an idle stream never gets further than the end of the page before.
const fn end_of_last_record(insert: Lsn, block: u64, segment: u64) -> Lsn {
    const HEADER: u64 = 24;
    const HEADER_OF_SEGMENT: u64 = 40;
    let page = insert.0 - insert.0 % block;
    let header = match page.is_multiple_of(segment) {
        true => HEADER_OF_SEGMENT,
        false => HEADER,
    };
    match insert.0 - page == header {
        true => Lsn(page),
        false => insert,
    }
}

/// Whether a table, or one of its partitions, was rewritten or emptied since the transaction's snapshot was taken. The snapshot does not show
/// rows in the new files, nor any in the old ones.
async fn is_rewritten(sql: &Sql, table: Oid) -> Result<bool, Error> {
    // The catalog's row is that of the snapshot; the function tells what is true now.
    const QUERY: &str = "
        WITH RECURSIVE tree (oid) AS (
          SELECT $1::oid UNION SELECT i.inhrelid FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid)
        SELECT COALESCE(pg_catalog.bool_or(c.relfilenode <> COALESCE(pg_catalog.pg_relation_filenode(c.oid), 0)), false)
        FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid";
    sql.value(READING, QUERY, &[(&table.0, Type::OID)]).await
}

impl ChunkReader for Chunks {
    async fn check_signal_table(&mut self) -> Result<Option<Diagnosis>, Failure> {
        // The address may lead to another server than in the last session, whose positions are lower.
        self.sql = None;
        self.seek.send_replace(Lsn::INVALID);
        let Some(table) = self.table.clone() else {
            return Ok(None);
        };
        let publication = self.publication.clone();
        let written = match self.follows_table {
            true => Written::Signals,
            false if self.read_only => return Ok(None),
            false => Written::Windows(self.watermarking),
        };
        let looked = match self.sql().await {
            Ok(sql) => obstacle(sql, &table, &publication, written).await,
            Err(error) => Err(error),
        };
        // Most connectors never read a chunk.
        self.sql = None;
        Ok(looked?.map(|error| error.warning()))
    }

    async fn position(&mut self) -> Result<Option<Lsn>, Failure> {
        if self.read_only {
            return Ok(None);
        }
        let position = match self.sql().await {
            // The row that closes a window may not be written yet either.
            Ok(sql) => committed_before(sql).await.map(|(position, _)| position),
            Err(error) => Err(error),
        };
        if position.is_err() {
            self.sql = None;
        }
        Ok(Some(position?))
    }

    async fn visible(&mut self) -> Result<Option<VisibleTransactions>, Failure> {
        let was_connected = self.sql.is_some();
        let visible = match self.sql().await {
            Ok(sql) => visible(sql).await,
            Err(error) => Err(error),
        };
        // Most connectors never read a chunk.
        if visible.is_err() || !was_connected {
            self.sql = None;
        }
        Ok(Some(visible?))
    }

    async fn ask(&mut self, ask: &Ask, again: bool) -> Result<Option<ChunkRead>, Failure> {
        let done = self.do_what_is_asked(ask, again).await;
        if done.is_err() {
            // The next try uses a new connection, since nobody knows what this one is in the middle of.
            self.sql = None;
        }
        done.map_err(Failure::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(columns: &[(&str, bool)], is_unique: bool) -> ChunkTable {
        let key = columns.iter().zip(0..).map(|((name, is_optional), place)| KeyColumn {
            name: identifier(name),
            place,
            is_optional: *is_optional,
            type_oid: Oid(23),
            compared: Comparison::plain("int4"),
        });
        let fact = |(name, _): &(&str, bool)| ColumnFacts {
            not_null: true,
            ..ColumnFacts::plain(*name, 1, Oid(23))
        };
        ChunkTable {
            catalog: Catalog::default(),
            columns: columns.iter().map(fact).collect(),
            reads: columns.iter().map(|(name, _)| (*name).to_owned()).collect(),
            table: qualified("public", "t"),
            key: key.collect(),
            is_unique,
            has_ties: true,
            condition: None,
        }
    }

    fn key(values: &[Option<&str>]) -> Key {
        Key::new(values.iter().map(|value| (value.map(str::to_owned), Oid(23))))
    }

    #[test]
    fn a_condition_stays_in_its_brackets_or_is_refused() {
        for (condition, expected) in [
            ("(id > 5)", "(\nid > 5\n)"),
            ("(id > 5 -- the new ones)", "(\nid > 5 -- the new ones\n)"),
            ("(a) OR (b)", "(\n(a) OR (b)\n)"),
            ("id > 5", "(\nid > 5\n)"),
        ] {
            assert_eq!(enclosed(condition, false).as_deref(), Ok(expected), "{condition}");
        }
        for condition in ["(true)) OR ((true)", "(true; DROP TABLE t)", "(a = ')", "(true /* )"] {
            assert!(enclosed(condition, false).is_err(), "{condition}");
        }
    }

    #[test]
    fn a_plan_tells_how_many_rows_are_left() {
        let cases = [
            ("Seq Scan on t  (cost=0.00..155.00 rows=10000 width=4)", Some(10_000)),
            ("Append  (cost=0.00..1.00 rows=7 width=0)", Some(7)),
            ("Result  (cost=0.00..0.00 rows=0 width=0)", Some(0)),
            ("Seq Scan on t", None),
        ];
        for (line, expected) in cases {
            assert_eq!(rows_of_plan(line), expected, "{line}");
        }
        let target = target(&[("id", false)], true);
        assert_eq!(
            target.remaining_rows(Some(&key(&[Some("5")])), &key(&[Some("9")])),
            r#"SELECT 1 FROM "public"."t" WHERE "id" OPERATOR(pg_catalog.>) CAST('5' AS pg_catalog.int4) AND "id" OPERATOR(pg_catalog.<=) CAST('9' AS pg_catalog.int4)"#
        );
    }

    /// Where nothing follows, the stream ends at the page's border and never reaches the header behind it.
    #[test]
    fn a_window_ends_behind_the_last_record_and_not_behind_the_header_of_the_next_page() {
        const SEGMENT: u64 = 16 << 20;
        let cases = [
            (SEGMENT + 0x2000 + 24, SEGMENT + 0x2000),
            (SEGMENT + 0x2000 + 40, SEGMENT + 0x2000 + 40),
            (SEGMENT + 40, SEGMENT),
            (SEGMENT + 24, SEGMENT + 24),
            (SEGMENT + 0x2000, SEGMENT + 0x2000),
            (SEGMENT + 0x2100, SEGMENT + 0x2100),
        ];
        for (insert, expected) in cases {
            assert_eq!(
                end_of_last_record(Lsn(insert), 0x2000, SEGMENT),
                Lsn(expected),
                "{insert:x}"
            );
        }
    }

    #[test]
    fn a_rank_is_taken_off_a_row() {
        assert_eq!(without_rank(b"12\ta\tb\n"), (&b"a\tb\n"[..], Some(&b"12"[..])));
        assert_eq!(without_rank(b"12"), (&b""[..], Some(&b"12"[..])));
    }

    #[test]
    fn what_the_server_would_refuse_again_cancels_the_table() {
        for code in ["42P01", "42501", "22012", "P0001", "54001", "21000", "38000"] {
            assert!(refuses(code), "{code}");
        }
        for code in ["08006", "57P01", "57014", "53300", "40001", "58030", "XX001", "55P03"] {
            assert!(!refuses(code), "{code}");
        }
    }

    #[test]
    fn chunks_lie_between_keys() {
        let one = target(&[("id", false)], true);
        assert_eq!(
            one.chunk(None, &key(&[Some("9")]), 10),
            r#"COPY (SELECT "id" FROM "public"."t" ORDER BY "id" LIMIT 10) TO STDOUT"#
        );
        assert_eq!(
            one.chunk(Some(&key(&[Some("5")])), &key(&[Some("9")]), 10),
            r#"COPY (SELECT "id" FROM "public"."t" WHERE "id" OPERATOR(pg_catalog.>) CAST('5' AS pg_catalog.int4) AND "id" OPERATOR(pg_catalog.<=) CAST('9' AS pg_catalog.int4) ORDER BY "id" LIMIT 10) TO STDOUT"#
        );
        let two = ChunkTable {
            condition: Some("(v OR w)".to_owned()),
            ..target(&[("a", false), ("b", false)], true)
        };
        assert_eq!(
            two.chunk(Some(&key(&[Some("1"), Some("2")])), &key(&[Some("8"), Some("9")]), 10),
            r#"COPY (SELECT "a", "b" FROM "public"."t" WHERE ROW("a", "b") OPERATOR(pg_catalog.>) ROW(CAST('1' AS pg_catalog.int4), CAST('2' AS pg_catalog.int4)) AND ROW("a", "b") OPERATOR(pg_catalog.<=) ROW(CAST('8' AS pg_catalog.int4), CAST('9' AS pg_catalog.int4)) AND (v OR w) ORDER BY "a", "b" LIMIT 10) TO STDOUT"#
        );
    }

    #[test]
    fn a_chunk_has_no_value_of_a_column_that_no_record_has() {
        let mut table = target(&[("id", false), ("secret", true)], true);
        table.key.truncate(1);
        table.reads.remove("secret");
        assert_eq!(
            table.chunk(None, &key(&[Some("9")]), 10),
            r#"COPY (SELECT "id", NULL FROM "public"."t" ORDER BY "id" LIMIT 10) TO STDOUT"#
        );
    }

    /// Postgres sorts nulls last, and no comparison with null is true.
    #[test]
    fn keys_that_may_be_null_are_compared_as_they_are_sorted() {
        let nullable = target(&[("a", true)], false);
        assert_eq!(
            nullable.chunk(Some(&key(&[Some("1")])), &key(&[None]), 10),
            r#"COPY (SELECT pg_catalog.rank() OVER (ORDER BY "a") AS "group_rank", "a" FROM "public"."t" WHERE ((("a" IS NULL OR "a" OPERATOR(pg_catalog.>) CAST('1' AS pg_catalog.int4)))) AND NOT ((false)) ORDER BY "a" FETCH FIRST 10 ROWS WITH TIES) TO STDOUT"#
        );
    }

    #[test]
    fn a_server_that_knows_no_ties_ranks_rows_with_the_same_key() {
        let old = ChunkTable {
            has_ties: false,
            condition: Some("(v)".to_owned()),
            ..target(&[("a", false), ("b", true)], false)
        };
        assert_eq!(
            old.chunk(None, &key(&[Some("1"), None]), 10),
            r#"COPY (SELECT "group_rank", "a", "b" FROM (SELECT pg_catalog.rank() OVER (ORDER BY "a", "b") AS "group_rank", "a", "b" FROM "public"."t" WHERE (v)) ranked WHERE "group_rank" OPERATOR(pg_catalog.<=) 10 ORDER BY "a", "b") TO STDOUT"#
        );
    }
}
