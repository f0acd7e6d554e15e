//! How a table is read in chunks: in which order, which of its columns, and what tells its rows apart.

use std::collections::{HashMap, HashSet};

use tokio_postgres::types::Type;
use tracing::info;
use walferry_engine::incremental::{self, ChunkAnswer, ChunkAsk, KeyColumns, NotRead};
use walferry_engine::source::TableFilter;
use walferry_event::catalog::{Catalog, TableFacts, TypeKind};
use walferry_pgoutput::Oid;

use crate::catalog::catalogs;
use crate::catalog::compare::{Comparison, comparisons};
use crate::catalog::privileges::ReadColumns;
use crate::chunks::chunk_table::{ChunkTable, KeyColumn, READING};
use crate::connection::Sql;
use crate::error::Error;
use crate::quote::{identifier, qualified};
use crate::snapshot::statement::stays_enclosed;

/// What the configuration says of the tables to read.
pub(super) struct Wanted {
    pub(super) captured: TableFilter,
    pub(super) publication: String,
    /// Which columns are read.
    pub(super) reads: ReadColumns,
    /// `read.only`.
    pub(super) read_only: bool,
}

/// How to read a table.
pub(super) struct Target {
    pub(super) table: ChunkTable,
    /// The columns of [`ChunkTable::key`], and those by which its rows are told apart.
    pub(super) key: KeyColumns,
}

/// What a look at the catalog says of a table that is to be read.
pub(super) enum TargetLook {
    Readable(Box<Target>),
    /// It cannot be read: this is the answer.
    Unreadable(ChunkAnswer),
}

/// `FETCH FIRST … WITH TIES` is new in Postgres 13.
const TIES_SINCE: i32 = 130_000;

/// A table by its dotted name, and the version of the server.
pub(super) async fn find(sql: &Sql, table: &str) -> Result<Option<(Oid, i32)>, Error> {
    const FIND: &str = "
        SELECT c.oid, pg_catalog.current_setting('server_version_num')::int
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE pg_catalog.concat(n.nspname, '.', c.relname) = $1 AND c.relkind IN ('r', 'p')";
    let rows = sql.rows(READING, FIND, &[(&table, Type::TEXT)]).await?;
    let read = |row: &tokio_postgres::Row| Ok((Oid(row.try_get(0)?), row.try_get(1)?));
    let found = rows.first().map(read).transpose();
    found.map_err(|error| Error::sql(READING, error))
}

/// Finds how to read the table.
pub(super) async fn target(sql: &Sql, ask: &ChunkAsk, wanted: &Wanted) -> Result<TargetLook, Error> {
    let Some((oid, version)) = find(sql, &ask.table.id).await? else {
        return Ok(TargetLook::Unreadable(ChunkAnswer::UnknownTable));
    };
    let Some((_, mut catalog)) = catalogs(sql, &[oid]).await?.into_iter().next() else {
        return Ok(TargetLook::Unreadable(ChunkAnswer::UnknownTable));
    };
    let Some(mut facts) = catalog.table.clone() else {
        return Ok(TargetLook::Unreadable(ChunkAnswer::UnknownTable));
    };
    if !(wanted.captured)(&facts.schema, &facts.name) {
        return Ok(TargetLook::Unreadable(ChunkAnswer::Failed(NotRead {
            why: "the connector does not capture it".to_owned(),
            hint: Some("add it to `table.include.list`".to_owned()),
        })));
    }
    let unique = unique_columns(sql, oid).await?;
    let Some(names) = order(ask, &facts, &unique, wanted) else {
        return Ok(TargetLook::Unreadable(ChunkAnswer::NoKey));
    };
    let condition = match &ask.table.condition {
        Some(condition) => match enclosed(condition, sql.has_backslash_escapes()) {
            Ok(condition) => Some(condition),
            Err(why) => {
                return Ok(TargetLook::Unreadable(ChunkAnswer::Failed(
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
            return Ok(TargetLook::Unreadable(ChunkAnswer::Failed(why.into())));
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
    Ok(TargetLook::Readable(Box::new(Target {
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
    })))
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
