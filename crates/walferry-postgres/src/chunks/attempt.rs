//! Reads a chunk in one transaction.

use std::time::Duration;

use tokio_postgres::types::Type;
use walferry_diagnosis::Kind;
use walferry_engine::Failure;
use walferry_engine::incremental::{ChunkAnswer, ChunkAsk, Key, NotRead};
use walferry_engine::source::{ChunkRead, ChunkRows, VisibleTransactions};
use walferry_pgoutput::{Lsn, Oid};

use crate::catalog::privileges::unreadable;
use crate::chunks::chunk_table::{ChunkTable, READING, Tuples, maximum, tuples};
use crate::chunks::refusal::is_refusal;
use crate::chunks::target::{TargetLook, Wanted, find, target};
use crate::connection::{Sql, within};
use crate::error::Error;

/// How long a statement may take. If the key has no index, sorting the table may take long.
const LIMIT: Duration = Duration::from_secs(1800);

/// What is read, besides the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadOptions {
    /// Maximum number of rows.
    pub(super) rows: u32,
    /// Whether the rows that are left, and those of other tables, are estimated.
    pub(super) estimates: bool,
}

pub(super) fn plain(answer: ChunkAnswer) -> ChunkRead {
    ChunkRead { answer, rows: None }
}

/// A chunk that was read in a transaction of its own.
pub(super) struct Attempt {
    pub(super) read: ChunkRead,
    /// Whether it has more rows than there is room for.
    pub(super) is_full: bool,
    /// With `read.only`, if the server is not a standby: everything that the chunk shows was committed before this position.
    pub(super) read_at: Option<Lsn>,
    /// Whether the table was certainly the same all the time. Otherwise it is read once more.
    pub(super) is_certain: bool,
}

pub(super) async fn attempt(
    sql: &Sql,
    ask: &ChunkAsk,
    options: ReadOptions,
    wanted: &Wanted,
) -> Result<Attempt, Error> {
    const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
    sql.begin_pinned(READING, BEGIN).await?;
    let read = match within(LIMIT, read(sql, ask, options, wanted)).await {
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

async fn read(sql: &Sql, ask: &ChunkAsk, options: ReadOptions, wanted: &Wanted) -> Result<Attempt, Error> {
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
        TargetLook::Readable(target) if ask.key.as_ref() == Some(&target.key) => target.table,
        TargetLook::Readable(target) => return Ok(certain(ChunkAnswer::OtherKey(target.key))),
        TargetLook::Unreadable(answer) => return Ok(certain(answer)),
    };
    let table = target.catalog.table.as_ref().map(|table| table.oid);
    let (read, is_full) = read_rows(sql, ask, options, seen, target).await?;
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
    options: ReadOptions,
    seen: VisibleTransactions,
    target: ChunkTable,
) -> Result<(ChunkRead, bool), Error> {
    let others = match options.estimates {
        true => rows_of(sql, &ask.others).await?,
        false => Vec::new(),
    };
    let has_condition = target.condition.is_some();
    if has_condition {
        // From here to the last row, each statement has the condition in it, and names all else with its schema.
        sql.begin_of_user(READING).await?;
    }
    let read = Box::pin(read_by_condition(sql, ask, options, &target)).await?;
    if has_condition {
        sql.end_of_user(READING).await?;
    }
    let Some((maximum, rows_left, read)) = read else {
        return Ok((plain(ChunkAnswer::Empty), false));
    };
    let Tuples {
        tuples,
        bytes: tuple_bytes,
        is_full,
        is_endless,
    } = read;
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

/// The key of the table's last row, how many rows are left, and the rows of the chunk. `None` if there are none. The condition, if there is one, is in
/// each statement.
async fn read_by_condition(
    sql: &Sql,
    ask: &ChunkAsk,
    options: ReadOptions,
    target: &ChunkTable,
) -> Result<Option<(Key, Option<u64>, Tuples)>, Error> {
    let has_condition = target.condition.is_some();
    target.is_understood(sql).await?;
    let found = match &ask.maximum {
        Some(maximum) => Some(maximum.clone()),
        None => {
            if has_condition {
                sql.go_on_of_user(READING).await?;
            }
            maximum(sql, target).await?
        }
    };
    let Some(maximum) = found else { return Ok(None) };
    let rows_left = match options.estimates {
        true => {
            if has_condition {
                sql.go_on_of_user(READING).await?;
            }
            rows_left(sql, &target.remaining_rows(ask.after.as_ref(), &maximum)).await?
        }
        false => None,
    };
    if has_condition {
        sql.go_on_of_user(READING).await?;
    }
    let statement = target.chunk(ask.after.as_ref(), &maximum, options.rows);
    let read = tuples(sql, &statement, target, ask.bytes).await?;
    Ok(Some((maximum, rows_left, read)))
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

/// The transactions that snapshots include from now on.
pub(super) async fn visible(sql: &Sql) -> Result<VisibleTransactions, Error> {
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
/// commit becomes visible, so there it must be read after the chunk. Returns whether it is a standby.
pub(super) async fn committed_before(sql: &Sql) -> Result<(Lsn, bool), Error> {
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

/// Where the record ends after which the next one will be inserted. If that one begins a page, it is inserted after the page's header, but
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

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    /// If nothing follows, the stream ends at the page boundary and never gets past the next page's header.
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
}
