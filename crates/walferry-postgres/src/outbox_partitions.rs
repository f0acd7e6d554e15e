//! Creates partitions of outbox tables ahead of their time. It drops none.

use std::collections::HashSet;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use walferry_config::Connector;

use crate::connect::{Endpoint, Purpose, Sql};
use crate::error::Error;
use crate::quote::{literal, qualified};

/// An outbox table whose partitions are created ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionedTable {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The column that tells the time of a row.
    pub column: String,
    /// What one partition holds.
    pub period: Period,
    /// How many partitions are created ahead of the present one.
    pub ahead: u32,
}

/// What one partition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// The rows of an hour.
    Hour,
    /// The rows of a day, in UTC.
    Day,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Created {
    /// How many partitions were created.
    pub partitions: u64,
    /// Whether one is missing because the table was in use: it may work a little later.
    pub is_locked: bool,
    /// How often the server has refused to create one.
    pub refused: u64,
}

/// Creates partitions, over a connection of its own.
#[derive(Debug)]
pub struct OutboxPartitions {
    endpoint: Endpoint,
    sql: Option<Sql>,
    /// What was logged.
    warned: HashSet<String>,
}

/// A partition.
#[derive(Debug)]
struct Part {
    is_default: bool,
    /// Microseconds since 1970. `None` is without end.
    from_us: Option<i64>,
    to_us: Option<i64>,
}

const LOOKING: &str = "looking at the partitions of an outbox";
const CREATING: &str = "creating a partition of an outbox";

impl Period {
    const fn us(self) -> i64 {
        match self {
            Self::Hour => 3_600_000_000,
            Self::Day => 24 * 3_600_000_000,
        }
    }

    /// What the names of partitions end with, as `walferry outbox create` names them.
    const fn format(self) -> &'static str {
        match self {
            Self::Hour => "_YYYYMMDD_HH24",
            Self::Day => "_YYYYMMDD",
        }
    }

    /// The times of partitions that are wanted and for which there is none. A partition that covers a part of one is left as it is.
    fn missing(self, now_us: i64, ahead: u32, parts: &[Part]) -> Vec<(i64, i64)> {
        let step = self.us();
        let first = now_us.div_euclid(step) * step;
        let wanted = (0..=i64::from(ahead)).map(|number| (first + number * step, first + (number + 1) * step));
        let is_free = |(from, to): &(i64, i64)| {
            let overlaps = |part: &Part| {
                !part.is_default
                    && part.from_us.is_none_or(|start| start < *to)
                    && part.to_us.is_none_or(|end| end > *from)
            };
            !parts.iter().any(overlaps)
        };
        wanted.filter(is_free).collect()
    }
}

impl OutboxPartitions {
    /// Opens nothing yet.
    pub fn new(connector: &Connector) -> Self {
        Self {
            endpoint: Endpoint::new(connector.postgres.clone()),
            sql: None,
            warned: HashSet::new(),
        }
    }

    /// Creates what is missing. What the server refuses is logged once.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub async fn create(&mut self, tables: &[PartitionedTable]) -> Result<Created, Error> {
        let sql = match self.sql.take().filter(|sql| !sql.is_closed()) {
            Some(sql) => sql,
            None => self.endpoint.sql(Purpose::OutboxPartitions).await?,
        };
        let mut created = Created::default();
        for table in tables {
            self.create_for(&sql, table, &mut created).await?;
        }
        self.sql = Some(sql);
        Ok(created)
    }

    async fn create_for(&mut self, sql: &Sql, table: &PartitionedTable, created: &mut Created) -> Result<(), Error> {
        let shown = format!("{}.{}", table.schema, table.name);
        let Some((now_us, parts)) = parts(sql, table).await? else {
            if self.warned.insert(shown.clone()) {
                tracing::warn!(
                    table = shown,
                    column = table.column,
                    hint = "partition the table by ranges of this column, of type timestamptz or timestamp, as `walferry outbox create --partition day` does; \
                            with publish.via.partition.root=true, name the partitioned table in table.include.list. Or remove walferry.partitions",
                    "partitions are not created: the table is not partitioned by ranges of the column with the time"
                );
            }
            return Ok(());
        };
        for (from, to) in table.period.missing(now_us, table.ahead, &parts) {
            let (name, statement) = statement(sql, table, from, to).await?;
            let all = format!(
                "BEGIN; SET LOCAL lock_timeout = '1s'; SET LOCAL statement_timeout = '2s'; {statement}; COMMIT"
            );
            let Err(refused) = sql.try_execute(CREATING, &all).await? else {
                tracing::info!(partition = format!("{}.{name}", table.schema), "partition created");
                created.partitions += 1;
                continue;
            };
            sql.execute(CREATING, "ROLLBACK").await?;
            // The default partition is read while it is locked, which must not take long.
            if [Some(&SqlState::LOCK_NOT_AVAILABLE), Some(&SqlState::QUERY_CANCELED)].contains(&refused.code()) {
                created.is_locked = true;
                return Ok(());
            }
            created.refused += 1;
            let error = Error::sql(CREATING, refused);
            let text = walferry_engine::Failure::from(error).to_string();
            if self.warned.insert(format!("{shown}: {text}")) {
                tracing::warn!(
                    code = walferry_diagnosis::Kind::OutboxPartitions.code(),
                    partition = format!("{}.{name}", table.schema),
                    error = text,
                    hint = "make the connector's role a member of the table's owner, and move rows of that time out of the default partition",
                    "the partition could not be created; trying again"
                );
            }
            return Ok(());
        }
        Ok(())
    }
}

/// The name of a partition, and what creates it.
async fn statement(sql: &Sql, table: &PartitionedTable, from: i64, to: i64) -> Result<(String, String), Error> {
    const BOUNDS: &str = "
        SELECT pg_catalog.to_char(b.starts AT TIME ZONE 'UTC', $3), b.starts AT TIME ZONE 'UTC' || '+00', b.ends AT TIME ZONE 'UTC' || '+00'
        FROM (SELECT pg_catalog.to_timestamp($1::int8 / 1000000) AS starts, pg_catalog.to_timestamp($2::int8 / 1000000) AS ends) b";
    let format = table.period.format();
    let parameters: [(&(dyn ToSql + Sync), Type); 3] = [(&from, Type::INT8), (&to, Type::INT8), (&format, Type::TEXT)];
    let rows = sql.rows(LOOKING, BOUNDS, &parameters).await?;
    let row = rows.first().ok_or_else(|| Error::Protocol {
        doing: LOOKING,
        problem: "no row".to_owned(),
    })?;
    let text =
        |place: usize| -> Result<String, Error> { row.try_get(place).map_err(|error| Error::sql(LOOKING, error)) };
    let name = format!("{}{}", stem(&table.name), text(0)?);
    // A column without time zone leaves the +00 out.
    let statement = format!(
        "CREATE TABLE {} PARTITION OF {} FOR VALUES FROM ({}) TO ({})",
        qualified(&table.schema, &name),
        qualified(&table.schema, &table.name),
        literal(&text(1)?),
        literal(&text(2)?),
    );
    Ok((name, statement))
}

/// Room is left for what the name of a partition ends with.
fn stem(table: &str) -> &str {
    const MOST: usize = 63 - "_YYYYMMDD_HH24".len();
    let end = (0..=MOST)
        .rev()
        .find(|end| table.is_char_boundary(*end) || *end >= table.len());
    table.get(..end.unwrap_or_default()).unwrap_or(table)
}

/// The server's time in microseconds, and the partitions; `None` if the table is not partitioned by ranges of the column.
async fn parts(sql: &Sql, table: &PartitionedTable) -> Result<Option<(i64, Vec<Part>)>, Error> {
    const TABLE: &str = "
        SELECT c.oid, pg_catalog.format_type(a.atttypid, NULL), (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8
        FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_class c ON c.oid = p.partrelid
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = p.partattrs[0]
        WHERE n.nspname = $1 AND c.relname = $2 AND a.attname = $3 AND p.partstrat = 'r' AND p.partnatts = 1";
    let read = |error| Error::sql(LOOKING, error);
    let parameters: [(&(dyn ToSql + Sync), Type); 3] = [
        (&table.schema, Type::TEXT),
        (&table.name, Type::TEXT),
        (&table.column, Type::TEXT),
    ];
    let rows = sql.rows(LOOKING, TABLE, &parameters).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (oid, kind): (u32, String) = (row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?);
    let instant = match kind.as_str() {
        "timestamp with time zone" => "::timestamptz",
        "timestamp without time zone" => "::timestamp AT TIME ZONE 'UTC'",
        _ => return Ok(None),
    };
    let bound = |word: &str| {
        format!(
            "(EXTRACT(epoch FROM NULLIF(NULLIF(pg_catalog.substring(b.bound, '{word} \\(''([^'']*)''\\)'), 'infinity'), '-infinity')
                {instant}) * 1000000)::int8"
        )
    };
    let query = format!(
        "SELECT b.bound = 'DEFAULT', {}, {}
         FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid,
              LATERAL (SELECT pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS bound) b
         WHERE i.inhparent = $1",
        bound("FROM"),
        bound("TO"),
    );
    let mut found = Vec::new();
    for part in sql.rows(LOOKING, &query, &[(&oid, Type::OID)]).await? {
        found.push(Part {
            is_default: part.try_get::<_, Option<bool>>(0).map_err(read)?.unwrap_or_default(),
            from_us: part.try_get(1).map_err(read)?,
            to_us: part.try_get(2).map_err(read)?,
        });
    }
    Ok(Some((row.try_get(2).map_err(read)?, found)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn part(from_us: Option<i64>, to_us: Option<i64>, is_default: bool) -> Part {
        Part {
            is_default,
            from_us,
            to_us,
        }
    }

    #[test]
    fn only_times_without_a_partition_get_one() {
        let now_us = 10 * HOUR + 5;
        let mut parts = vec![part(None, None, true)];
        let hours = |parts: &[Part]| {
            let missing = Period::Hour.missing(now_us, 3, parts).into_iter();
            missing.map(|(from, to)| (from / HOUR, to / HOUR)).collect::<Vec<_>>()
        };
        assert_eq!(hours(&parts), [(10, 11), (11, 12), (12, 13), (13, 14)]);
        parts.push(part(Some(8 * HOUR), Some(11 * HOUR), false));
        // One that covers the half of an hour.
        parts.push(part(Some(12 * HOUR + HOUR / 2), Some(13 * HOUR), false));
        assert_eq!(hours(&parts), [(11, 12), (13, 14)]);
        parts.push(part(Some(13 * HOUR), None, false));
        assert_eq!(hours(&parts), [(11, 12)]);
        assert_eq!(Period::Day.missing(now_us, 0, &parts), []);
        assert_eq!(
            Period::Day.missing(now_us, 1, &[]),
            [(0, 24 * HOUR), (24 * HOUR, 48 * HOUR)]
        );
    }

    #[test]
    fn names_of_partitions_have_room_for_their_time() {
        assert_eq!(stem("outbox"), "outbox");
        assert_eq!(stem(&"é".repeat(40)).len(), 48);
    }
}
