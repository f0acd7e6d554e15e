//! One row of a table, read as a snapshot would read it, for `walferry check --show-records`. Nothing is created or changed.

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
use crate::connect::{Endpoint, Purpose, Sql};
use crate::copy::append_tuple;
use crate::error::Error;
use crate::tables::{Captured, captured};

const DOING: &str = "reading one row of a table";
/// `pg_publication_tables` has columns and row filters since Postgres 15.
const COLUMN_LISTS_SINCE: i32 = 150_000;

/// One row of each of some tables, and the moment at which they were read.
#[derive(Debug)]
pub struct Samples {
    /// The server's position.
    pub lsn: Lsn,
    /// The id that the next transaction will have.
    pub xid: u32,
    /// The server's time, microseconds since 1970.
    pub time_us: i64,
    /// The tables, in the order of their names.
    pub tables: Vec<Sample>,
}

/// A table, as the stream would describe it, with one of its rows.
#[derive(Debug)]
pub struct Sample {
    /// The table and its types.
    pub catalog: Catalog,
    /// The columns that the publication sends, and the replica identity.
    pub relation: Relation,
    /// Whether the server lets UPDATE and DELETE pass once the table is published.
    pub identified: bool,
    /// The values of the relation's columns; `None` where there is no row to be read, or why none may be read.
    pub row: Result<Option<SampleRow>, Failure>,
}

/// Values as text, in the order of the relation's columns; `None` is null.
pub type SampleRow = Vec<Option<Vec<u8>>>;

/// One row of each table that is wanted, read in a transaction that may not write.
///
/// # Errors
/// The server cannot be reached, or its catalog cannot be read. What hinders the reading of one table is told with that table.
pub async fn samples(connector: &Connector, wanted: TableFilter) -> Result<Samples, Failure> {
    look(connector, &wanted).await.map_err(Failure::from)
}

async fn look(connector: &Connector, wanted: &TableFilter) -> Result<Samples, Error> {
    const VERSION: &str = "SELECT pg_catalog.current_setting('server_version_num')::int";
    let sql = Endpoint::new(connector.postgres.clone()).sql(Purpose::Validate).await?;
    let version: i32 = sql.value("reading the server's version", VERSION, &[]).await?;
    let tables = captured(&sql, wanted).await?;
    let oids: Vec<_> = tables.iter().map(|table| table.oid).collect();
    let mut facts = catalogs(&sql, &oids).await?;
    let options = Options::new(
        &connector.snapshot,
        &connector.publication.name,
        &connector.slot,
        connector.postgres.query_timeout,
    );
    // `true`: as for a slot, so that the transaction is READ ONLY whatever `snapshot.isolation.mode` says.
    let moment = begin(&sql, isolation(true, options.isolation), None, None).await?;
    // A row is there at once or not worth waiting for: the table is locked, or its row filter finds nothing.
    sql.execute(DOING, "SET LOCAL statement_timeout = '10s'").await?;
    let mut samples = Vec::with_capacity(tables.len());
    for table in &tables {
        // One that was dropped since it was listed is not there any more.
        let Some(place) = facts.iter().position(|(oid, _)| *oid == table.oid) else {
            continue;
        };
        let (_, catalog) = facts.swap_remove(place);
        samples.extend(sample(&sql, &options, version, table, catalog).await?);
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
) -> Result<Option<Sample>, Error> {
    let Some(facts) = &catalog.table else { return Ok(None) };
    let published = published(sql, options, version, facts).await?;
    let sent = |column: &&ColumnFacts| match &published.columns {
        Some(names) => names.contains(&column.name),
        // As a new publication has it.
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
    sql.execute(DOING, "SAVEPOINT one_row").await?;
    let row = one_row(sql, options, facts, &columns, published.filter.as_deref()).await;
    if row.is_err() {
        sql.execute(DOING, "ROLLBACK TO SAVEPOINT one_row").await?;
    }
    Ok(Some(Sample {
        relation,
        identified: table.identified,
        row: row.map_err(Failure::from),
        catalog,
    }))
}

/// What the publication sends of a table.
#[derive(Debug, Default)]
struct PublishedPart {
    /// The columns; `None` where the publication is not there, or does not have the table.
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

/// The columns of the index that `REPLICA IDENTITY USING INDEX` names.
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

/// A row, as a snapshot of the table has it: with the SELECT of the user's where there is one.
async fn one_row(
    sql: &Sql,
    options: &Options,
    table: &TableFacts,
    columns: &[ColumnFacts],
    filter: Option<&str>,
) -> Result<Option<SampleRow>, Error> {
    let select = options.overrides.get(&format!("{}.{}", table.schema, table.name));
    let (source, condition) = match select {
        // Its columns are the user's, and a row filter may name others.
        Some(select) => (Select::overridden(sql, table, columns, select).await?, ""),
        None => (Select::plain(table, columns), filter.unwrap_or_default()),
    };
    let failed = |error| reading_failed(table, error);
    let lines = sql.copy_out(&source.of_one_row(condition)).await.map_err(failed)?;
    let mut lines = pin!(lines);
    let mut row = None;
    while let Some(line) = lines.try_next().await.map_err(failed)? {
        row = Some(values(&line, columns.len())?);
    }
    Ok(row)
}

fn values(line: &[u8], columns: usize) -> Result<SampleRow, Error> {
    let malformed = |problem: String| Error::Protocol { doing: DOING, problem };
    let mut bytes = Vec::new();
    append_tuple(line, columns, &mut bytes).map_err(|error| malformed(error.to_string()))?;
    let tuple = Tuple::parse(&bytes).map_err(|error| malformed(error.to_string()))?;
    let value = |column| match column {
        Column::Text(text) => Some(text.to_vec()),
        _ => None,
    };
    Ok(tuple.columns().map(value).collect())
}
