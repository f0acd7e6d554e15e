//! The captured tables of the database.

use std::collections::{HashMap, HashSet};

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use walferry_config::limited;
use walferry_engine::source::TableFilter;
use walferry_pgoutput::Oid;

use crate::connection::Sql;
use crate::error::Error;

pub(crate) use super::table_name::TableName;

/// A captured table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Captured {
    pub(crate) oid: Oid,
    pub(crate) name: TableName,
    /// Whether its changes are in the log: it is neither unlogged nor temporary.
    pub(crate) permanent: bool,
    /// Whether our role owns the table, or is a member of the role that does.
    pub(crate) owned: bool,
    /// The owner. `None` for a superuser, since our role should not become a member of it.
    pub(crate) owner: Option<String>,
    /// Whether row-level security hides rows from our role.
    pub(crate) row_security: bool,
    /// `pg_class.relreplident`: `d`efault, `f`ull, `n`othing, `i`ndex.
    pub(crate) identity: char,
    /// Whether this identity distinguishes rows. Otherwise UPDATE and DELETE of the table fail once it is published.
    pub(crate) identified: bool,
}

/// Oid and name of a captured table. Every table of the database is queried for these, so nothing expensive is
/// included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) oid: Oid,
    pub(crate) name: TableName,
    /// See [`Captured::permanent`].
    pub(crate) permanent: bool,
}

const DOING: &str = "listing tables";

/// All tables that pass the filter, sorted by `schema.table`: only ordinary and partitioned tables outside of system
/// schemas, as the driver's types TABLE and PARTITIONED TABLE.
pub(crate) async fn listed(sql: &Sql, wanted: &TableFilter) -> Result<Vec<Listed>, Error> {
    const QUERY: &str = "
        SELECT c.oid, n.nspname::text, c.relname::text, c.relpersistence = 'p'
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'";
    let rows = sql.rows(DOING, QUERY, &[]).await?;
    let mut tables = Vec::new();
    let mut given_up = None;
    for row in &rows {
        let mut read = || -> Result<Option<Listed>, tokio_postgres::Error> {
            let (schema, name): (&str, &str) = (row.try_get(1)?, row.try_get(2)?);
            match limited(|| wanted(schema, name)) {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(limit) => {
                    given_up = Some(limit);
                    return Ok(None);
                }
            }
            Ok(Some(Listed {
                oid: Oid(row.try_get(0)?),
                name: TableName {
                    schema: schema.to_owned(),
                    name: name.to_owned(),
                },
                permanent: row.try_get(3)?,
            }))
        };
        tables.extend(read().map_err(|error| Error::sql(DOING, error))?);
        if let Some(limit) = given_up {
            return Err(Error::Expression(limit));
        }
    }
    tables.sort_by_cached_key(|table| table.name.dotted());
    Ok(tables)
}

/// Keeps only the tables that have all of these columns.
pub(crate) async fn having(sql: &Sql, tables: &mut Vec<Listed>, columns: &[String]) -> Result<(), Error> {
    const QUERY: &str = "
        SELECT a.attrelid FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = ANY($1) AND a.attname::text = ANY($2) AND a.attnum > 0 AND NOT a.attisdropped
        GROUP BY a.attrelid HAVING pg_catalog.count(*) = pg_catalog.cardinality($2)";
    let rows = sql
        .rows(
            DOING,
            QUERY,
            &[(&oids(tables), Type::OID_ARRAY), (&columns, Type::TEXT_ARRAY)],
        )
        .await?;
    let found: Result<HashSet<Oid>, _> = rows.iter().map(|row| row.try_get(0).map(Oid)).collect();
    let found = found.map_err(|error| Error::sql(DOING, error))?;
    tables.retain(|table| found.contains(&table.oid));
    Ok(())
}

fn oids(tables: &[Listed]) -> Vec<u32> {
    tables.iter().map(|table| table.oid.0).collect()
}

/// The same tables as [`listed`], with their privileges and replica identities.
pub(crate) async fn captured(sql: &Sql, wanted: &TableFilter) -> Result<Vec<Captured>, Error> {
    const QUERY: &str = "
        SELECT c.oid,
          pg_catalog.pg_has_role(c.relowner, 'USAGE'),
          CASE c.relreplident WHEN 'f' THEN true WHEN 'n' THEN false ELSE EXISTS (
            SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
            AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END) END,
          c.relreplident::text,
          (SELECT o.rolname::text FROM pg_catalog.pg_roles o WHERE o.oid = c.relowner AND NOT o.rolsuper),
          c.relrowsecurity AND pg_catalog.row_security_active(c.oid)
        FROM pg_catalog.pg_class c WHERE c.oid = ANY($1)";
    let listed = listed(sql, wanted).await?;
    let rows = sql.rows(DOING, QUERY, &[(&oids(&listed), Type::OID_ARRAY)]).await?;
    let by_oid: Result<HashMap<Oid, &Row>, _> = rows.iter().map(|row| Ok((Oid(row.try_get(0)?), row))).collect();
    let by_oid = by_oid.map_err(|error| Error::sql(DOING, error))?;
    let read = |table: Listed| -> Result<Option<Captured>, tokio_postgres::Error> {
        // The table was dropped meanwhile.
        let Some(row) = by_oid.get(&table.oid) else {
            return Ok(None);
        };
        Ok(Some(Captured {
            oid: table.oid,
            name: table.name,
            permanent: table.permanent,
            owned: row.try_get(1)?,
            identified: row.try_get(2)?,
            identity: row.try_get::<_, &str>(3)?.chars().next().unwrap_or('d'),
            owner: row.try_get(4)?,
            row_security: row.try_get(5)?,
        }))
    };
    let tables = listed.into_iter().filter_map(|table| read(table).transpose());
    tables
        .collect::<Result<_, _>>()
        .map_err(|error| Error::sql(DOING, error))
}

/// Columns of tables, as SCHEMA.TABLE.COLUMN.
pub(crate) async fn columns_of(sql: &Sql, tables: &[Captured]) -> Result<Vec<String>, Error> {
    const QUERY: &str = "
        SELECT a.attrelid, a.attname::text FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = ANY($1) AND a.attnum > 0 AND NOT a.attisdropped";
    let names: HashMap<Oid, String> = tables.iter().map(|table| (table.oid, table.name.dotted())).collect();
    let oids: Vec<u32> = names.keys().map(|oid| oid.0).collect();
    let rows = sql.rows(DOING, QUERY, &[(&oids, Type::OID_ARRAY)]).await?;
    let read = |row: &Row| -> Result<Option<String>, tokio_postgres::Error> {
        let (table, column): (u32, &str) = (row.try_get(0)?, row.try_get(1)?);
        Ok(names.get(&Oid(table)).map(|table| format!("{table}.{column}")))
    };
    let columns: Result<Vec<_>, _> = rows.iter().filter_map(|row| read(row).transpose()).collect();
    columns.map_err(|error| Error::sql(DOING, error))
}

/// Tables whose replica identity has generated columns that a publication does not send. Virtual ones are never sent,
/// stored ones only if `stored` is true. Since Postgres 18, UPDATE and DELETE fail on such a table while it is
/// published.
pub(crate) async fn unpublished_identities(sql: &Sql, stored: bool) -> Result<HashSet<Oid>, Error> {
    const DOING: &str = "finding generated columns";
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

/// Those of the tables, and of their partitions on any level, whose UPDATE and DELETE fail once they are published. The replica identity
/// of a partition is its own.
pub(crate) async fn unidentified(sql: &Sql, tables: &[Captured]) -> Result<Vec<TableName>, Error> {
    const DOING: &str = "reading replica identities";
    const QUERY: &str = "
        SELECT DISTINCT n.nspname::text, c.relname::text
        FROM pg_catalog.unnest($1) wanted(oid) CROSS JOIN LATERAL (
          SELECT wanted.oid UNION ALL
          SELECT p.relid FROM pg_catalog.pg_class r, pg_catalog.pg_partition_tree(r.oid) p
          WHERE r.oid = wanted.oid AND r.relkind = 'p') t(oid)
        JOIN pg_catalog.pg_class c ON c.oid = t.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'r' AND c.relpersistence = 'p'
        AND NOT CASE c.relreplident WHEN 'f' THEN true WHEN 'n' THEN false ELSE EXISTS (
          SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid
          AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END) END";
    let oids: Vec<u32> = tables.iter().map(|table| table.oid.0).collect();
    let rows = sql.rows(DOING, QUERY, &[(&oids, Type::OID_ARRAY)]).await?;
    let read = |row: &Row| -> Result<TableName, tokio_postgres::Error> {
        Ok(TableName {
            schema: row.try_get(0)?,
            name: row.try_get(1)?,
        })
    };
    let mut names = rows
        .iter()
        .map(read)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Error::sql(DOING, error))?;
    let harmed = tables.iter().filter(|table| !table.identified && table.permanent);
    names.extend(harmed.map(|table| table.name.clone()));
    names.sort_by_cached_key(|name| (name.schema.clone(), name.name.clone()));
    names.dedup();
    Ok(names)
}
