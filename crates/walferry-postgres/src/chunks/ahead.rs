//! What would make a snapshot fail, before it is asked for.

use tokio::sync::watch;
use walferry_config::{Connector, JavaRegex};
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::Failure;
use walferry_engine::incremental::{ChunkAnswer, ChunkAsk, Collection, Execute, NotRead, unquoted};
use walferry_engine::source::TableFilter;
use walferry_pgoutput::Lsn;

use crate::catalog::privileges::unreadable;
use crate::catalog::tables::listed;
use crate::chunks::reader::Chunks;
use crate::chunks::refusal::is_refusal;
use crate::chunks::target::{TargetLook, Wanted, find, target};
use crate::connection::{Endpoint, Sql};
use crate::error::Error;
use crate::snapshot::check_overrides;
use crate::snapshot::statement::stays_enclosed;

const DOING: &str = "looking at the tables of a snapshot";
/// How many obstacles are named.
const MOST: usize = 20;
/// How many tables a hint names.
const NAMED: usize = 5;

/// A snapshot that somebody wants.
#[derive(Debug, Clone, Default)]
pub struct RequestedSnapshot {
    /// The tables that it would read.
    pub tables: Vec<String>,
    /// What would make it fail, each with its remedy.
    pub obstacles: Vec<Diagnosis>,
}

/// Looks at the tables, privileges, conditions and columns of a snapshot. Reads no row.
///
/// # Errors
/// The server cannot be reached, or does not answer a query.
pub async fn requested_snapshot(
    connector: &Connector,
    captured: TableFilter,
    execute: &Execute,
) -> Result<RequestedSnapshot, Failure> {
    let endpoint = Endpoint::new(connector.postgres.clone());
    let chunks = Chunks::new(connector, endpoint, captured, watch::channel(Lsn::INVALID).0);
    look(chunks, execute).await.map_err(Failure::from)
}

async fn look(mut chunks: Chunks, execute: &Execute) -> Result<RequestedSnapshot, Error> {
    let mut found = RequestedSnapshot::default();
    if !execute.blocking && chunks.table.is_none() && !chunks.read_only {
        let text = "the connector takes no incremental snapshots: it has no signal table, and is not read-only";
        found.obstacles.push(
            Diagnosis::error(Kind::TableNotRead, text)
                .with_hint("take a blocking snapshot (`--blocking`), or set `signal.data.collection` or `read.only`"),
        );
        return Ok(found);
    }
    let (filter, wanted) = (chunks.captured.clone(), chunks.wanted());
    let sql = chunks.sql().await?;
    let listed = listed(sql, &filter).await?;
    let mut oids = Vec::new();
    for expression in &execute.tables {
        let one = Execute {
            tables: vec![expression.clone()],
            ..Execute::default()
        };
        let regex = JavaRegex::new(expression).ok();
        let reads = |name: &str| match (execute.blocking, &regex) {
            (true, _) => one.reads(name),
            (false, Some(regex)) => regex.matches(name) || unquoted(expression) == name,
            (false, None) => unquoted(expression) == name,
        };
        let mut matches = false;
        for table in listed.iter().filter(|table| reads(&table.name.dotted())) {
            matches = true;
            if !oids.contains(&table.oid) {
                found.tables.push(table.name.dotted());
                oids.push(table.oid);
            }
        }
        if !matches {
            let names = listed.iter().map(|table| table.name.dotted());
            found
                .obstacles
                .push(no_such_table(sql, expression, names.collect()).await?);
        }
    }
    if let Some(problem) = unreadable(sql, oids.iter().copied(), &wanted.reads).await? {
        found.obstacles.push(problem.cause());
    }
    if !found.obstacles.is_empty() {
        return Ok(found);
    }
    for table in found.tables.clone() {
        let obstacle = match execute.blocking {
            true => select_of(sql, execute, &table).await?,
            false => chunks_of(sql, execute, &table, &wanted).await?,
        };
        found.obstacles.extend(obstacle);
        if found.obstacles.len() >= MOST {
            break;
        }
    }
    Ok(found)
}

/// No captured table matches.
async fn no_such_table(sql: &Sql, expression: &str, captured: Vec<String>) -> Result<Diagnosis, Error> {
    let name = walferry_config::quoted(expression);
    if find(sql, expression).await?.is_some() {
        let text = format!("table {name} exists, but the connector does not capture it");
        return Ok(Diagnosis::error(Kind::TableNotRead, text)
            .with_hint("add it to `table.include.list`, and restart the connector"));
    }
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_lowercase();
    let near = captured.iter().find(|name| last(name) == last(expression));
    let hint = match near {
        Some(near) => format!("did you mean {near}?"),
        None if captured.is_empty() => "no table is captured: see `table.include.list`".to_owned(),
        None => {
            let more = match captured.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let first: Vec<&str> = captured.iter().take(NAMED).map(String::as_str).collect();
            format!(
                "write it as SCHEMA.TABLE, in the case that Postgres has it in; captured are {}{more}",
                first.join(", ")
            )
        }
    };
    let text = format!("no captured table is called, or matches, {name}");
    Ok(Diagnosis::error(Kind::TableNotRead, text).with_hint(hint))
}

/// The condition of a table of a blocking snapshot is a whole SELECT.
async fn select_of(sql: &Sql, execute: &Execute, table: &str) -> Result<Option<Diagnosis>, Error> {
    let select = execute.condition(table);
    if select.is_empty() {
        return Ok(None);
    }
    let selects = [(table.to_owned(), select.to_owned())].into();
    refusal(table, check_overrides(sql, &selects).await)
}

/// Whether the table can be read in chunks, or as a whole, as the signal wants it.
async fn chunks_of(sql: &Sql, execute: &Execute, table: &str, wanted: &Wanted) -> Result<Option<Diagnosis>, Error> {
    let condition = execute.condition(table);
    // Once it is in brackets, one that closes them and opens others looks like any other.
    if let Err(why) = stays_enclosed(condition, sql.has_backslash_escapes()) {
        let text = format!("the condition for table {table} cannot stand alone: {why}");
        let hint = "write it as what follows WHERE in a SELECT from this table";
        return Ok(Some(Diagnosis::error(Kind::TableNotRead, text).with_hint(hint)));
    }
    let ask = ChunkAsk {
        chunk: String::new(),
        opens: false,
        table: Collection {
            id: table.to_owned(),
            condition: (!condition.is_empty()).then(|| format!("({condition})")),
            surrogate: (!execute.surrogate.is_empty()).then(|| execute.surrogate.clone()),
        },
        key: None,
        after: None,
        maximum: None,
        left_out: Vec::new(),
        bytes: 0,
        others: Vec::new(),
    };
    sql.execute(DOING, "BEGIN READ ONLY").await?;
    let understood = async {
        match target(sql, &ask, wanted).await? {
            TargetLook::Readable(target) if target.table.condition.is_some() => {
                sql.begin_of_user(DOING).await?;
                target.table.is_understood(sql).await?;
                Ok(None)
            }
            TargetLook::Unreadable(ChunkAnswer::Failed(failed)) => Ok(Some(failed)),
            // A table without a key is read as a whole.
            _ => Ok(None),
        }
    };
    let understood = understood.await;
    if sql.is_closed() {
        return understood.map(|_| None);
    }
    sql.execute(DOING, "ROLLBACK").await?;
    match understood {
        Ok(None) => Ok(None),
        Ok(Some(NotRead { why, hint })) => {
            let text = format!("table {table} cannot be read: {why}");
            Ok(Some(Diagnosis::error(Kind::TableNotRead, text).with_any_hint(hint)))
        }
        Err(error) => refusal(table, Err(error)),
    }
}

/// What the server refuses is an obstacle; other errors are passed on.
fn refusal(table: &str, checked: Result<(), Error>) -> Result<Option<Diagnosis>, Error> {
    match checked {
        Ok(()) => Ok(None),
        Err(error) if is_refusal(&error) || matches!(error, Error::Protocol { .. }) => {
            let failure = Failure::from(error);
            let text = format!("Postgres does not understand the condition for table {table}: {failure}");
            let hint = failure.hint().map(str::to_owned);
            let hint = hint.unwrap_or_else(|| "write it as what follows WHERE in a SELECT from this table".to_owned());
            Ok(Some(Diagnosis::error(Kind::TableNotRead, text).with_hint(hint)))
        }
        Err(error) => Err(error),
    }
}
