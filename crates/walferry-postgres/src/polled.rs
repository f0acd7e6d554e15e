//! What a connector that polls a table needs to know of it.

use walferry_engine::source::TableFilter;
use walferry_event::catalog::Catalog;

use crate::catalog::catalogs;
use crate::catalog::tables::listed;
use crate::connection::Sql;
use crate::error::Error;

/// The catalog's facts about the captured tables, sorted by their oids.
///
/// # Errors
/// The server cannot be asked.
pub async fn captured_catalogs(sql: &Sql, wanted: &TableFilter) -> Result<Vec<Catalog>, Error> {
    let oids: Vec<_> = listed(sql, wanted).await?.iter().map(|table| table.oid).collect();
    let found = catalogs(sql, &oids).await?;
    Ok(found.into_iter().map(|(_, catalog)| catalog).collect())
}
