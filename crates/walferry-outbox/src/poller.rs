//! Tables in which a program marks the rows that it has sent: what a poller reads.

use tokio_postgres::types::Type;
use walferry_config::{Connector, limited};
use walferry_engine::Failure;
use walferry_engine::source::TableFilter;

use walferry_postgres::Error;
use walferry_postgres::connection::{Endpoint, Purpose};
use walferry_postgres::quote::{identifier, qualified};

const DOING: &str = "looking for tables that a poller reads";

/// A column that says that a row was sent.
const MARKS: [&str; 14] = [
    "published_at",
    "processed_at",
    "sent_at",
    "dispatched_at",
    "completed_at",
    "published",
    "processed",
    "sent",
    "dispatched",
    "status",
    "state",
    "attempts",
    "retry_count",
    "retries",
];

/// What such a column has when the row was sent.
const SENT: &str = "'sent', 'published', 'processed', 'done', 'completed', 'complete', 'success', 'succeeded', 'delivered', 'dispatched'";

/// Rows are counted up to this number.
pub const MOST_COUNTED: i64 = 1_000_000;

/// A table that looks like one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PollerTable {
    /// Schema.
    pub schema: String,
    /// Name.
    pub name: String,
    /// All columns.
    pub columns: Vec<String>,
    /// Those with which a program marks rows.
    pub marks: Vec<String>,
    /// The condition for rows that were sent, if a column says so.
    sent: Option<String>,
}

/// How many rows there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Rows that are marked as sent, up to [`MOST_COUNTED`].
    pub sent: i64,
    /// Rows that are not, up to [`MOST_COUNTED`].
    pub unsent: i64,
}

/// The captured tables with columns that mark rows.
///
/// # Errors
/// The server cannot be asked.
pub async fn tables(connector: &Connector, wanted: &TableFilter) -> Result<Vec<PollerTable>, Failure> {
    const QUERY: &str = "
        SELECT n.nspname::text, c.relname::text,
          pg_catalog.array_agg(a.attname::text ORDER BY a.attnum),
          pg_catalog.array_agg(t.typcategory::text ORDER BY a.attnum)
        FROM pg_catalog.pg_class c
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
          AND EXISTS (SELECT FROM pg_catalog.pg_attribute m
            WHERE m.attrelid = c.oid AND NOT m.attisdropped AND m.attname::text = ANY ($1))
        GROUP BY 1, 2 ORDER BY 1, 2";
    let sql = Endpoint::new(connector.postgres.clone()).sql(Purpose::Validate).await?;
    let marks = MARKS.to_vec();
    let rows = sql.rows(DOING, QUERY, &[(&marks, Type::TEXT_ARRAY)]).await?;
    let mut tables = Vec::new();
    for row in &rows {
        let read = || -> Result<_, tokio_postgres::Error> {
            let (schema, name): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            let (columns, types): (Vec<String>, Vec<String>) = (row.try_get(2)?, row.try_get(3)?);
            Ok((schema, name, columns, types))
        };
        let (schema, name, columns, types) = read().map_err(|error| Error::sql(DOING, error))?;
        let is_captured = limited(|| wanted(&schema, &name)).map_err(Error::Expression)?;
        if !is_captured {
            continue;
        }
        let of = |mark: &str| columns.iter().position(|column| column == mark);
        let marks: Vec<String> = MARKS
            .iter()
            .filter(|mark| of(mark).is_some())
            .map(|mark| (*mark).to_owned())
            .collect();
        let sent = marks.iter().find_map(|mark| condition(mark, &types[of(mark)?]));
        tables.push(PollerTable {
            schema,
            name,
            columns,
            marks,
            sent,
        });
    }
    Ok(tables)
}

/// The condition for rows that were sent, by the category of the column's type.
fn condition(mark: &str, category: &str) -> Option<String> {
    let column = identifier(mark);
    match (mark, category) {
        ("attempts" | "retry_count" | "retries", _) => None,
        (_, "D") => Some(format!("{column} IS NOT NULL")),
        (_, "B") => Some(format!("{column} IS TRUE")),
        ("status" | "state", "S" | "E") => Some(format!("pg_catalog.lower({column}::text) IN ({SENT})")),
        ("published" | "processed" | "sent" | "dispatched", "N") => Some(format!("{column} <> 0")),
        _ => None,
    }
}

/// Counts the rows of a table. `None` if no column says which rows were sent.
///
/// # Errors
/// The server cannot be asked.
pub async fn counts(connector: &Connector, table: &PollerTable) -> Result<Option<Counts>, Failure> {
    const COUNTING: &str = "counting the rows that a poller has sent";
    let Some(sent) = &table.sent else { return Ok(None) };
    let sql = Endpoint::new(connector.postgres.clone()).sql(Purpose::Validate).await?;
    let name = qualified(&table.schema, &table.name);
    let count = |condition: &str| {
        format!("(SELECT pg_catalog.count(*) FROM (SELECT FROM {name} WHERE {condition} LIMIT {MOST_COUNTED}) counted)")
    };
    let query = format!("SELECT {}, {}", count(sent), count(&format!("({sent}) IS NOT TRUE")));
    let row = sql.row(COUNTING, &query, &[]).await?;
    let read = || -> Result<Counts, tokio_postgres::Error> {
        Ok(Counts {
            sent: row.try_get(0)?,
            unsent: row.try_get(1)?,
        })
    };
    Ok(Some(read().map_err(|error| Error::sql(COUNTING, error))?))
}

/// Whether the connector's publication sends updates. A publication that does not exist would send them.
///
/// # Errors
/// The server cannot be asked.
pub async fn sends_updates(connector: &Connector) -> Result<bool, Failure> {
    const QUERY: &str = "SELECT COALESCE((SELECT pubupdate FROM pg_catalog.pg_publication WHERE pubname = $1), true)";
    let sql = Endpoint::new(connector.postgres.clone()).sql(Purpose::Validate).await?;
    let name = &connector.publication.name;
    Ok(sql.value(DOING, QUERY, &[(name, Type::TEXT)]).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_say_in_their_way_that_a_row_was_sent() {
        let cases = [
            ("published_at", "D", Some("\"published_at\" IS NOT NULL")),
            ("published", "B", Some("\"published\" IS TRUE")),
            ("published", "N", Some("\"published\" <> 0")),
            ("status", "N", None),
            ("attempts", "N", None),
        ];
        for (mark, category, expected) in cases {
            assert_eq!(condition(mark, category).as_deref(), expected, "{mark} {category}");
        }
        let status = condition("status", "E").expect("an enum of states");
        assert!(status.contains("lower(\"status\"::text) IN ('sent', "), "{status}");
    }
}
