//! Estimates how many rows a snapshot will read, for its progress.

use tokio_postgres::types::Type;
use walferry_engine::source::SnapshotPlan;
use walferry_pgoutput::Oid;

use super::queue::file_of;
use crate::connection::Sql;
use crate::error::Error;

/// The number of rows left, from the server's statistics (`pg_class.reltuples`). These do not cover a table that was
/// never analyzed, or a SELECT that reads only some of its rows.
pub(super) async fn rows_left(sql: &Sql, plan: &SnapshotPlan) -> Result<u64, Error> {
    const DOING: &str = "estimating the rows of the captured tables";
    const QUERY: &str = "
        SELECT c.oid, c.reltuples::float8, c.relpages, COALESCE(pg_catalog.pg_relation_filenode(c.oid), 0)
        FROM pg_catalog.pg_class c WHERE c.oid = ANY($1) AND c.reltuples > 0";
    let oids: Vec<u32> = plan.tables.iter().map(|table| table.oid.0).collect();
    let rows = sql.rows(DOING, QUERY, &[(&oids, Type::OID_ARRAY)]).await?;
    let left = |row: &tokio_postgres::Row| -> Result<f64, tokio_postgres::Error> {
        let (oid, rows, pages, storage): (u32, f64, i32, u32) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
        let pages = pages.unsigned_abs();
        let share = match pages {
            0 if plan.done.is_complete(Oid(oid)) => 0.0,
            0 => 1.0,
            _ => f64::from(blocks_left(plan, Oid(oid), storage, pages)) / f64::from(pages),
        };
        Ok(rows * share)
    };
    let mut all = 0.0;
    for row in &rows {
        all += left(row).map_err(|error| Error::sql(DOING, error))?;
    }
    Ok(all.round() as u64)
}

/// The number of blocks left. All blocks, if the table is no longer in the same file.
fn blocks_left(plan: &SnapshotPlan, table: Oid, file: u32, blocks: u32) -> u32 {
    match plan.done.storage(table) {
        Some(storage) if file_of(storage) == file || plan.done.is_complete(table) => {
            plan.done.blocks_left(table, storage, blocks)
        }
        _ => blocks,
    }
}
