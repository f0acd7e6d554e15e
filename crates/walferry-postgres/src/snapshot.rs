//! The simple snapshot: every captured table read with COPY in one read-only transaction.

use std::mem;

use bytes::Bytes;
use futures_util::TryStreamExt;
use tokio_postgres::types::Type;
use tracing::info;
use walferry_engine::source::{Chunk, ChunkSender, Frame, SnapshotPlan, SnapshotTable};
use walferry_event::catalog::{Catalog, TableFacts};
use walferry_pgoutput::{Lsn, Oid};

use crate::catalog::catalogs;
use crate::connect::Sql;
use crate::copy::append_tuple;
use crate::error::Error;
use crate::problem::Problem;
use crate::quote::{identifier, literal, qualified};
use crate::tables::TableName;

/// Rows are handed on in pieces of this size.
const CHUNK_BYTES: usize = 256 * 1024;

/// Reads all rows of the plan's tables. `exported` is the snapshot of a slot that has just been created.
pub(crate) async fn snapshot(
    sql: &Sql,
    exported: Option<&str>,
    plan: &SnapshotPlan,
    out: &ChunkSender,
) -> Result<(), Error> {
    demand_select(sql, &plan.tables).await?;
    let moment = begin(sql, exported, plan.lsn).await?;
    let last = plan.tables.len().saturating_sub(1);
    for (index, table) in plan.tables.iter().enumerate() {
        let place = (index == 0, index == last);
        read_table(sql, table, moment, place, out).await?;
    }
    send(out, Bytes::new(), vec![Frame::SnapshotEnd]).await?;
    sql.execute("ending the snapshot", "COMMIT").await
}

/// What all rows of a snapshot share.
#[derive(Debug, Clone, Copy)]
struct Moment {
    lsn: Lsn,
    xid: u32,
    time_us: i64,
}

/// Opens the transaction that sees all of the snapshot.
async fn begin(sql: &Sql, exported: Option<&str>, lsn: Option<Lsn>) -> Result<Moment, Error> {
    const DOING: &str = "beginning the snapshot";
    // Not one of these may end a transaction that lasts as long as its tables are large. Those that the server's version does
    // not have are left out.
    const LIFT_LIMITS: &str = "
        SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings
        WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')";
    sql.execute(DOING, LIFT_LIMITS).await?;
    let lsn = match lsn {
        Some(lsn) => lsn,
        // Before the transaction sees anything: what is committed in between is then in the snapshot and streamed again.
        None => wal_position(sql).await?,
    };
    let mut sql_text = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY".to_owned();
    if let Some(name) = exported {
        sql_text.push_str(&format!("; SET TRANSACTION SNAPSHOT {}", literal(name)));
    }
    sql.execute(DOING, &sql_text).await?;
    // Debezium's `source.txId` of a snapshot is the transaction that reads it; a standby has no ids to give.
    const MOMENT: &str = "
        SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0 ELSE pg_catalog.txid_current() END,
          (EXTRACT(epoch FROM CURRENT_TIMESTAMP) * 1000000)::int8";
    let rows = sql.rows(DOING, MOMENT, &[]).await?;
    let row = rows.first().ok_or_else(|| Error::Protocol {
        doing: DOING,
        problem: "no row".to_owned(),
    })?;
    let read = || -> Result<Moment, tokio_postgres::Error> {
        // The lower half is the transaction id; the upper counts how often these have wrapped around.
        let xid: i64 = row.try_get(0)?;
        Ok(Moment {
            lsn,
            xid: xid as u32,
            time_us: row.try_get(1)?,
        })
    };
    read().map_err(|error| Error::sql(DOING, error))
}

/// The last position in the server's log, as Debezium reads it for a snapshot.
async fn wal_position(sql: &Sql) -> Result<Lsn, Error> {
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

/// All tables that may not be read, before the first is.
async fn demand_select(sql: &Sql, tables: &[TableFacts]) -> Result<(), Error> {
    const DOING: &str = "checking the privileges on the captured tables";
    const QUERY: &str = "
        SELECT current_user::text, n.nspname::text, c.relname::text
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = ANY($1)
          AND NOT (pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND (pg_catalog.has_table_privilege(c.oid, 'SELECT')
            OR NOT EXISTS (SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
              AND NOT a.attisdropped AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT'))))
        ORDER BY 2, 3";
    let oids: Vec<u32> = tables.iter().map(|table| table.oid.0).collect();
    let rows = sql.rows(DOING, QUERY, &[(&oids, Type::OID_ARRAY)]).await?;
    let mut denied = Vec::new();
    let mut role = String::new();
    for row in &rows {
        let read = || {
            Ok((
                row.try_get(0)?,
                TableName {
                    schema: row.try_get(1)?,
                    name: row.try_get(2)?,
                },
            ))
        };
        let table;
        (role, table) = read().map_err(|error| Error::sql(DOING, error))?;
        denied.push(table);
    }
    if denied.is_empty() {
        Ok(())
    } else {
        Err(Error::Problems(vec![Problem::NoSelect { role, tables: denied }]))
    }
}

async fn read_table(
    sql: &Sql,
    table: &TableFacts,
    moment: Moment,
    place: (bool, bool),
    out: &ChunkSender,
) -> Result<(), Error> {
    let Moment { lsn, xid, time_us } = moment;
    let catalog = facts(sql, table).await?;
    let columns = catalog.table.as_ref().map_or(&[][..], |table| &table.columns);
    let count = columns.len();
    let names: Vec<String> = columns.iter().map(|column| identifier(&column.name)).collect();
    let statement = format!(
        "COPY (SELECT {} FROM {}) TO STDOUT",
        names.join(", "),
        qualified(&table.schema, &table.name)
    );
    let described = SnapshotTable {
        catalog,
        lsn,
        xid,
        time_us,
        place,
    };
    send(out, Bytes::new(), vec![Frame::Table(Box::new(described))]).await?;

    let failed = |error| reading_failed(table, error);
    let mut lines = std::pin::pin!(sql.copy_out(&statement).await.map_err(failed)?);
    let mut rows = Rows::default();
    let mut total: u64 = 0;
    while let Some(line) = lines.try_next().await.map_err(failed)? {
        if !rows.fits(line.len()) {
            rows.send(out).await?;
        }
        rows.push(&line, count)
            .map_err(|problem| Error::Protocol { doing: DOING, problem })?;
        total += 1;
    }
    rows.send(out).await?;
    info!(snapshot.table = %format!("{}.{}", table.schema, table.name), snapshot.rows = total, "table read");
    Ok(())
}

/// The table as the snapshot sees it.
async fn facts(sql: &Sql, table: &TableFacts) -> Result<Catalog, Error> {
    let found = catalogs(sql, &[Oid(table.oid.0)]).await?;
    let catalog = found.into_iter().next().map(|(_, catalog)| catalog);
    catalog.ok_or_else(|| Error::TableChanged {
        table: qualified(&table.schema, &table.name),
    })
}

const DOING: &str = "reading a table";

fn reading_failed(table: &TableFacts, error: tokio_postgres::Error) -> Error {
    match error.code().map(tokio_postgres::error::SqlState::code) {
        // Dropped, renamed or altered since the tables were listed. The names are resolved when they are used, and not as of
        // the snapshot.
        Some("42P01" | "42703" | "3F000") => Error::TableChanged {
            table: qualified(&table.schema, &table.name),
        },
        _ => Error::sql(DOING, error),
    }
}

/// Rows that wait to be handed on together.
#[derive(Debug, Default)]
struct Rows {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
}

/// Bytes that a value has in a tuple beside its text.
const VALUE_HEADER_BYTES: usize = 5;

impl Rows {
    fn fits(&self, line_bytes: usize) -> bool {
        self.bytes.is_empty() || self.bytes.len() + line_bytes <= CHUNK_BYTES
    }

    fn push(&mut self, line: &[u8], columns: usize) -> Result<(), String> {
        let most = line.len() + columns * VALUE_HEADER_BYTES;
        if self.bytes.capacity() == 0 {
            // One row that is larger than a chunk gets the room it needs, and not twice as much.
            self.bytes.reserve_exact(most.max(CHUNK_BYTES + CHUNK_BYTES / 4));
        }
        let start = self.bytes.len();
        append_tuple(line, columns, &mut self.bytes).map_err(|error| error.to_string())?;
        self.frames.push(Frame::Row {
            tuple: start..self.bytes.len(),
        });
        Ok(())
    }

    async fn send(&mut self, out: &ChunkSender) -> Result<(), Error> {
        if self.frames.is_empty() {
            return Ok(());
        }
        let capacity = self.frames.len();
        let frames = mem::replace(&mut self.frames, Vec::with_capacity(capacity));
        send(out, mem::take(&mut self.bytes).into(), frames).await
    }
}

async fn send(out: &ChunkSender, bytes: Bytes, frames: Vec<Frame>) -> Result<(), Error> {
    out.send(Chunk::new(bytes, frames))
        .await
        .map_err(|_| Error::PipelineEnded)
}
