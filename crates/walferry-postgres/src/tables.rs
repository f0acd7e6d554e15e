//! The tables of the database that are captured.

use std::collections::HashSet;

use tokio_postgres::types::Type;
use walferry_engine::source::TableFilter;
use walferry_pgoutput::Oid;

use crate::connect::Sql;
use crate::error::Error;
use crate::quote::qualified;

/// Schema and name of a table.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TableName {
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
}

/// A captured table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) oid: Oid,
    pub(crate) name: TableName,
    /// Neither unlogged nor temporary: the log has its changes.
    pub(crate) permanent: bool,
    /// Whether our role owns it, or is a member of the role that does.
    pub(crate) owned: bool,
    /// Its owner, unless that is a superuser, of which one does not become a member for this.
    pub(crate) owner: Option<String>,
    /// Whether our role may read it.
    pub(crate) readable: bool,
    /// `pg_class.relreplident`: `d`efault, `f`ull, `n`othing, `i`ndex.
    pub(crate) identity: char,
    /// Whether that identity tells rows apart. An UPDATE or DELETE of a published table without one fails.
    pub(crate) identified: bool,
}

/// All tables that pass the filter, sorted by `schema.table`. Only tables and partitioned tables: the driver's types TABLE and
/// PARTITIONED TABLE, which are never in a schema of the system.
pub(crate) async fn captured(sql: &Sql, wanted: &TableFilter) -> Result<Vec<Captured>, Error> {
    const DOING: &str = "listing tables";
    const QUERY: &str = "
        SELECT c.oid, n.nspname::text, c.relname::text, c.relpersistence = 'p',
          pg_catalog.pg_has_role(c.relowner, 'USAGE'),
          pg_catalog.has_table_privilege(c.oid, 'SELECT') AND pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
          CASE c.relreplident WHEN 'f' THEN true WHEN 'n' THEN false ELSE EXISTS (
            SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
            AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END) END,
          c.relreplident::text,
          (SELECT o.rolname::text FROM pg_catalog.pg_roles o WHERE o.oid = c.relowner AND NOT o.rolsuper)
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'";
    let rows = sql.rows(DOING, QUERY, &[]).await?;
    let mut tables = Vec::new();
    for row in &rows {
        let read = || -> Result<Option<Captured>, tokio_postgres::Error> {
            let (schema, name): (&str, &str) = (row.try_get(1)?, row.try_get(2)?);
            if !wanted(schema, name) {
                return Ok(None);
            }
            Ok(Some(Captured {
                oid: Oid(row.try_get(0)?),
                name: TableName {
                    schema: schema.to_owned(),
                    name: name.to_owned(),
                },
                permanent: row.try_get(3)?,
                owned: row.try_get(4)?,
                owner: row.try_get(8)?,
                readable: row.try_get(5)?,
                identified: row.try_get(6)?,
                identity: row.try_get::<_, &str>(7)?.chars().next().unwrap_or('d'),
            }))
        };
        tables.extend(read().map_err(|error| Error::sql(DOING, error))?);
    }
    tables.sort_by_cached_key(|table| table.name.dotted());
    Ok(tables)
}

/// Tables whose replica identity has generated columns that a publication does not send: none sends virtual ones, stored ones if
/// `stored` says so. From Postgres 18 on, UPDATE and DELETE fail on such a table while it is published.
pub(crate) async fn unpublished_identities(sql: &Sql, stored: bool) -> Result<HashSet<Oid>, Error> {
    const DOING: &str = "looking for generated columns";
    const QUERY: &str = "
        SELECT DISTINCT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
        WHERE c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
        AND (a.attgenerated = 'v' OR a.attgenerated = 's' AND NOT $1)
        AND CASE c.relreplident WHEN 'f' THEN true WHEN 'n' THEN false ELSE EXISTS (
          SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey)
          AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END) END";
    let rows = sql.rows(DOING, QUERY, &[(&stored, Type::BOOL)]).await?;
    let oids = rows.iter().map(|row| row.try_get(0).map(Oid));
    oids.collect::<Result<_, _>>().map_err(|error| Error::sql(DOING, error))
}

impl TableName {
    /// As SQL names it.
    pub(crate) fn quoted(&self) -> String {
        qualified(&self.schema, &self.name)
    }

    /// `schema.table`, without quotes.
    pub(crate) fn dotted(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}
