//! Which columns of the captured tables are read, and whether our role may read them.

use std::collections::HashMap;

use tokio_postgres::types::Type;
use walferry_config::connector::FilterSection;
use walferry_config::{Connector, RegexList, limited};
use walferry_event::catalog::TableFacts;
use walferry_pgoutput::Oid;

use crate::catalog::catalogs;
use crate::catalog::tables::TableName;
use crate::connection::Sql;
use crate::error::Error;
use crate::setup::problem::{SetupProblem, Unreadable};

/// Says which columns are read: those that records have. Nobody needs a privilege on the others.
#[derive(Debug, Clone)]
pub(crate) struct ReadColumns {
    filters: FilterSection,
    /// `message.key.columns`.
    message_keys: Vec<RegexList>,
}

impl ReadColumns {
    pub(crate) fn new(connector: &Connector) -> Self {
        Self {
            filters: connector.filters.clone(),
            message_keys: connector.columns.message_key_columns.clone(),
        }
    }

    /// The captured columns and those of the event's key, in the order of the table.
    pub(crate) fn of(&self, table: &TableFacts) -> Result<Vec<String>, Error> {
        let read = || {
            let key = self.key(table);
            let columns = table.columns.iter().map(|column| &column.name);
            let is_read =
                |name: &&String| self.filters.captures_column(&table.schema, &table.name, name) || key.contains(name);
            columns.filter(is_read).cloned().collect()
        };
        limited(read).map_err(Error::Expression)
    }

    /// The columns of the event's key. They are part of it even if the lists of columns leave them out.
    fn key(&self, table: &TableFacts) -> Vec<String> {
        let named = self.message_key(table);
        if !named.is_empty() {
            return named;
        }
        match table.primary_key.is_empty() {
            true => table.unique_indexes.first().cloned().unwrap_or_default(),
            false => table.primary_key.clone(),
        }
    }

    /// The columns that `message.key.columns` names, in its order.
    pub(crate) fn message_key(&self, table: &TableFacts) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for columns in &self.message_keys {
            for column in &table.columns {
                let name = format!("{}.{}.{}", table.schema, table.name, column.name);
                if columns.matches(&name) && !names.contains(&column.name) {
                    names.push(column.name.clone());
                }
            }
        }
        names
    }
}

/// What a role lacks to read all of a table.
struct Lack {
    name: TableName,
    /// The privilege to use the schema.
    usage: bool,
    /// Any privilege on the table or its columns.
    all: bool,
    /// Columns that it may not read.
    columns: Vec<String>,
}

/// The problem if our role may not read what is read of these tables.
pub(crate) async fn unreadable(
    sql: &Sql,
    tables: impl Iterator<Item = Oid>,
    read: &ReadColumns,
) -> Result<Option<SetupProblem>, Error> {
    let oids: Vec<u32> = tables.map(|oid| oid.0).collect();
    let (role, lacks) = lacks(sql, &oids).await?;
    let tables: Vec<Oid> = lacks.iter().map(|(oid, _)| *oid).collect();
    if tables.is_empty() {
        return Ok(None);
    }
    let found: HashMap<Oid, _> = catalogs(sql, &tables).await?.into_iter().collect();
    let mut denied = Vec::new();
    for (oid, lack) in lacks {
        let Some(facts) = found.get(&oid).and_then(|catalog| catalog.table.as_ref()) else {
            continue;
        };
        let needed = read.of(facts)?;
        let lacks_columns = needed.iter().any(|name| lack.columns.contains(name));
        if lack.usage || lacks_columns || needed.is_empty() && lack.all {
            let is_part = needed.len() < facts.columns.len() && !needed.is_empty();
            denied.push(Unreadable {
                table: lack.name,
                columns: if is_part { needed } else { Vec::new() },
            });
        }
    }
    Ok((!denied.is_empty()).then_some(SetupProblem::NoSelect { role, tables: denied }))
}

/// Our role, and what it lacks on those of the tables that it may not read as a whole.
async fn lacks(sql: &Sql, oids: &[u32]) -> Result<(String, Vec<(Oid, Lack)>), Error> {
    const DOING: &str = "checking the privileges on the captured tables";
    const QUERY: &str = "
        SELECT current_user::text, c.oid, n.nspname::text, c.relname::text,
          NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
          NOT pg_catalog.has_any_column_privilege(c.oid, 'SELECT'),
          COALESCE((SELECT pg_catalog.array_agg(a.attname::text) FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
              AND NOT pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')), '{}')
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = ANY($1)
          AND NOT (pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_table_privilege(c.oid, 'SELECT'))
        ORDER BY 3, 4";
    let rows = sql.rows(DOING, QUERY, &[(&oids, Type::OID_ARRAY)]).await?;
    let mut role = String::new();
    let mut lacks = Vec::with_capacity(rows.len());
    for row in &rows {
        let read = || -> Result<(String, Oid, Lack), tokio_postgres::Error> {
            let lack = Lack {
                name: TableName {
                    schema: row.try_get(2)?,
                    name: row.try_get(3)?,
                },
                usage: row.try_get(4)?,
                all: row.try_get(5)?,
                columns: row.try_get(6)?,
            };
            Ok((row.try_get(0)?, Oid(row.try_get(1)?), lack))
        };
        let (of_role, oid, lack) = read().map_err(|error| Error::sql(DOING, error))?;
        role = of_role;
        lacks.push((oid, lack));
    }
    Ok((role, lacks))
}
