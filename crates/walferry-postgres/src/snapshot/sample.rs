//! Reads one row of a table as a snapshot would, for `walferry check --show-records`. Creates and changes nothing.

use std::pin::pin;

use futures_util::TryStreamExt;
use tokio_postgres::types::Type;
use walferry_config::Connector;
use walferry_engine::Failure;
use walferry_engine::source::TableFilter;
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts};
use walferry_pgoutput::{Column, Lsn, Relation, RelationColumn, ReplicaIdentity, Tuple};

use super::queue::Select;
use super::{Moment, Options, begin, isolation, reading_failed};
use crate::catalog::catalogs;
use crate::catalog::tables::{Captured, captured};
use crate::connection::{Endpoint, Purpose, Sql};
use crate::encoding::TextEncoding;
use crate::error::Error;
use crate::snapshot::copy::append_tuple;

const DOING: &str = "reading one row of a table";
/// `pg_publication_tables` has columns and row filters since Postgres 15.
const COLUMN_LISTS_SINCE: i32 = 150_000;

/// One row of each table, and the time at which they were read.
#[derive(Debug)]
pub struct Samples {
    /// The server's position.
    pub lsn: Lsn,
    /// The id that the next transaction will have.
    pub xid: u32,
    /// The server's time, microseconds since 1970.
    pub time_us: i64,
    /// The tables, sorted by name.
    pub tables: Vec<Sample>,
}

/// A table as the stream would describe it, with one of its rows.
#[derive(Debug)]
pub struct Sample {
    /// The table and its types.
    pub catalog: Catalog,
    /// The columns that the publication sends, and the replica identity.
    pub relation: Relation,
    /// Whether the server allows UPDATE and DELETE once the table is published.
    pub identified: bool,
    /// The values of the relation's columns. `None` if there is no row; a failure if the row cannot be read.
    pub row: Result<Option<SampleRow>, Failure>,
}

/// Values as text, in the order of the relation's columns; `None` is null.
pub type SampleRow = Vec<Option<Vec<u8>>>;

/// Reads one row of each wanted table, in a read-only transaction.
///
/// # Errors
/// The server cannot be reached, or its catalog cannot be read. If only one table cannot be read, its [`Sample`] has
/// the failure.
pub async fn samples(connector: &Connector, wanted: TableFilter) -> Result<Samples, Failure> {
    read_samples(connector, &wanted, Rows::One).await.map_err(Failure::from)
}

/// The same without rows: each [`Sample`] has `None`.
///
/// # Errors
/// The server cannot be reached, or its catalog cannot be read.
pub async fn descriptions(connector: &Connector, wanted: TableFilter) -> Result<Samples, Failure> {
    read_samples(connector, &wanted, Rows::None)
        .await
        .map_err(Failure::from)
}

/// Whether a row of each table is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rows {
    One,
    None,
}

async fn read_samples(connector: &Connector, wanted: &TableFilter, rows: Rows) -> Result<Samples, Error> {
    const VERSION: &str = "SELECT pg_catalog.current_setting('server_version_num')::int";
    let sql = Endpoint::new(connector.postgres.clone()).sql(Purpose::Validate).await?;
    let version: i32 = sql.value("reading the server's version", VERSION, &[]).await?;
    let tables = captured(&sql, wanted).await?;
    let oids: Vec<_> = tables.iter().map(|table| table.oid).collect();
    let mut facts = catalogs(&sql, &oids).await?;
    let options = Options::new(connector);
    // `true`, as if there were a slot: the transaction is then READ ONLY, whatever `snapshot.isolation.mode` says.
    let moment = begin(&sql, isolation(true, options.isolation), None, None).await?;
    // A row either comes at once or is not worth waiting for: the table is locked, or its row filter matches nothing.
    sql.execute(DOING, "SET LOCAL statement_timeout = '10s'").await?;
    let mut samples = Vec::with_capacity(tables.len());
    for table in &tables {
        // The table was dropped after it was listed.
        let Some(place) = facts.iter().position(|(oid, _)| *oid == table.oid) else {
            continue;
        };
        let (_, catalog) = facts.swap_remove(place);
        samples.extend(sample(&sql, &options, version, table, catalog, rows).await?);
    }
    sql.execute("ending the transaction", "ROLLBACK").await?;
    let Moment { lsn, xid, time_us } = moment;
    Ok(Samples {
        lsn,
        xid,
        time_us,
        tables: samples,
    })
}

async fn sample(
    sql: &Sql,
    options: &Options,
    version: i32,
    table: &Captured,
    catalog: Catalog,
    rows: Rows,
) -> Result<Option<Sample>, Error> {
    let Some(facts) = &catalog.table else { return Ok(None) };
    let published = published(sql, options, version, facts).await?;
    let sent = |column: &&ColumnFacts| match &published.columns {
        Some(names) => names.contains(&column.name),
        // The default of a new publication.
        None => !column.generated,
    };
    let columns: Vec<ColumnFacts> = facts.columns.iter().filter(sent).cloned().collect();
    let identity = ReplicaIdentity::from_letter(table.identity as u8).unwrap_or(ReplicaIdentity::Default);
    let key = match identity {
        ReplicaIdentity::Default => facts.primary_key.clone(),
        ReplicaIdentity::Full => columns.iter().map(|column| column.name.clone()).collect(),
        ReplicaIdentity::Nothing => Vec::new(),
        ReplicaIdentity::Index => identity_index(sql, facts).await?,
    };
    let relation = Relation {
        oid: facts.oid,
        namespace: facts.schema.clone(),
        name: facts.name.clone(),
        replica_identity: identity,
        columns: columns
            .iter()
            .map(|column| RelationColumn {
                name: column.name.clone(),
                part_of_key: key.contains(&column.name),
                type_oid: column.type_oid,
                type_modifier: column.type_modifier,
            })
            .collect(),
    };
    let row = match rows {
        Rows::None => Ok(None),
        Rows::One => {
            sql.execute(DOING, "SAVEPOINT one_row").await?;
            let row = one_row(sql, options, facts, &columns, published.filter.as_deref()).await;
            if row.is_err() {
                sql.execute(DOING, "ROLLBACK TO SAVEPOINT one_row").await?;
            }
            row
        }
    };
    Ok(Some(Sample {
        relation,
        identified: table.identified,
        row: row.map_err(Failure::from),
        catalog,
    }))
}

/// The part of a table that the publication sends.
#[derive(Debug, Default)]
struct PublishedPart {
    /// The columns. `None` if the publication does not exist or does not include the table.
    columns: Option<Vec<String>>,
    /// The row filter.
    filter: Option<String>,
}

async fn published(sql: &Sql, options: &Options, version: i32, table: &TableFacts) -> Result<PublishedPart, Error> {
    const QUERY: &str = "
        SELECT p.attnames::text[], p.rowfilter FROM pg_catalog.pg_publication_tables p
        WHERE p.pubname = $1 AND p.schemaname = $2 AND p.tablename = $3";
    const DOING: &str = "reading the published columns";
    if version < COLUMN_LISTS_SINCE {
        return Ok(PublishedPart::default());
    }
    let name = [&options.publication, &table.schema, &table.name];
    let parameters = name.map(|text| (text as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT));
    let rows = sql.rows(DOING, QUERY, &parameters).await?;
    let Some(row) = rows.first() else {
        return Ok(PublishedPart::default());
    };
    let read = || -> Result<PublishedPart, tokio_postgres::Error> {
        Ok(PublishedPart {
            columns: row.try_get(0)?,
            filter: row.try_get(1)?,
        })
    };
    read().map_err(|error| Error::sql(DOING, error))
}

/// The columns of the index of `REPLICA IDENTITY USING INDEX`.
async fn identity_index(sql: &Sql, table: &TableFacts) -> Result<Vec<String>, Error> {
    const DOING: &str = "reading the replica identity";
    const QUERY: &str = "
        SELECT a.attname::text FROM pg_catalog.pg_index i
        JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
        WHERE i.indrelid = $1 AND i.indisreplident";
    let rows = sql.rows(DOING, QUERY, &[(&table.oid.0, Type::OID)]).await?;
    let names = rows.iter().map(|row| row.try_get(0));
    names
        .collect::<Result<_, _>>()
        .map_err(|error| Error::sql(DOING, error))
}

/// One row, read as a snapshot of the table reads it, with the configured SELECT if there is one.
async fn one_row(
    sql: &Sql,
    options: &Options,
    table: &TableFacts,
    columns: &[ColumnFacts],
    filter: Option<&str>,
) -> Result<Option<SampleRow>, Error> {
    let select = options.select_of(table);
    let (source, condition) = match select {
        // The SELECT determines its columns, and a row filter may use columns that it lacks.
        Some(select) => (Select::overridden(sql, table, columns, select).await?, ""),
        None => (
            Select::plain(table, columns, &options.reads.of(table)?),
            filter.unwrap_or_default(),
        ),
    };
    let failed = |error| reading_failed(table, error);
    if select.is_some() {
        // The savepoint ends it, too.
        sql.begin_of_user(DOING).await?;
    }
    let lines = sql.copy_out(&source.of_one_row(condition)).await.map_err(failed)?;
    let mut lines = pin!(lines);
    let mut row = None;
    while let Some(line) = lines.try_next().await.map_err(failed)? {
        row = Some(values(&line, columns.len(), sql.encoding())?);
    }
    if select.is_some() {
        sql.end_of_user(DOING).await?;
    }
    Ok(row)
}

fn values(line: &[u8], columns: usize, encoding: &TextEncoding) -> Result<SampleRow, Error> {
    let malformed = |problem: String| Error::Protocol { doing: DOING, problem };
    let mut bytes = Vec::new();
    append_tuple(line, columns, encoding, &mut bytes).map_err(|error| malformed(error.to_string()))?;
    let tuple = Tuple::parse(&bytes).map_err(|error| malformed(error.to_string()))?;
    let value = |column| match column {
        Column::Text(text) => Some(text.to_vec()),
        _ => None,
    };
    Ok(tuple.columns().map(value).collect())
}
