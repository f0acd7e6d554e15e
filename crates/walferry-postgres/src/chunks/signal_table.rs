//! Whether the stream brings what is written to the signal table. If it does not, signals never arrive, and no window of a chunk ever opens.

use tokio_postgres::types::Type;
use walferry_config::Connector;
use walferry_config::connector::{SignalChannel, SignalTable, Watermarking};
use walferry_diagnosis::Diagnosis;

use crate::connection::Sql;
use crate::error::Error;
use crate::quote::{identifier, literal, qualified};

use super::not_published::{COLUMNS, NotPublished};

const DOING: &str = "looking at the signal table";

/// What is written to the signal table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    /// Whatever a user writes.
    Signals,
    /// The rows that mark windows.
    Windows(Watermarking),
}

/// What the publication does with the signal table.
struct SignalTableLook {
    exists: bool,
    is_in: bool,
    /// The published operations, in the order of `publish`.
    operations: [(&'static str, bool); 4],
    filter: Option<String>,
    columns: Option<i32>,
    names: Vec<String>,
}

/// Why the stream would not bring what is written to the table. `None` if it brings everything.
pub(crate) async fn obstacle(
    sql: &Sql,
    table: &SignalTable,
    publication: &str,
    written: Written,
) -> Result<Option<Error>, Error> {
    let look = look(sql, table, publication).await?;
    let Some(why) = why(sql, look, written).await? else {
        return Ok(None);
    };
    Ok(Some(Error::SignalTableNotPublished {
        table: qualified(&table.schema, &table.name),
        publication: identifier(publication),
        why,
    }))
}

/// Whether the publication sends inserts of the table: a quick look.
pub(crate) async fn is_in(sql: &Sql, table: &SignalTable, publication: &str) -> Result<bool, Error> {
    const QUERY: &str = "
        SELECT EXISTS (SELECT FROM pg_catalog.pg_publication_tables m JOIN pg_catalog.pg_publication p ON p.pubname = m.pubname
          WHERE m.pubname = $1 AND m.schemaname = $2 AND m.tablename = $3 AND p.pubinsert)";
    let SignalTable { schema, name } = table;
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&publication, Type::TEXT), (schema, Type::TEXT), (name, Type::TEXT)];
    sql.value(DOING, QUERY, &parameters).await
}

/// What `walferry check` says about the table. That a start would have to add it to the publication is said with the other tables.
pub(crate) async fn remark(sql: &Sql, connector: &Connector) -> Result<Option<Diagnosis>, Error> {
    let signals = &connector.signals;
    let Some(table) = &signals.table else { return Ok(None) };
    let written = match (signals.has(SignalChannel::Source), signals.read_only) {
        (true, _) => Written::Signals,
        (false, true) => return Ok(None),
        (false, false) => Written::Windows(signals.watermarking),
    };
    let error = obstacle(sql, table, &connector.publication.name, written).await?;
    let is_told = |error: &Error| {
        matches!(
            error,
            Error::SignalTableNotPublished {
                why: NotPublished::NotIn,
                ..
            }
        )
    };
    Ok(error.filter(|error| !is_told(error)).map(|error| error.warning()))
}

async fn why(sql: &Sql, look: SignalTableLook, written: Written) -> Result<Option<NotPublished>, Error> {
    if !look.exists {
        return Ok(Some(NotPublished::NoTable));
    }
    if !look.is_in {
        return Ok(Some(NotPublished::NotIn));
    }
    let deletes = written == Written::Windows(Watermarking::InsertDelete);
    let needed = |operation: &str| operation == "insert" || (operation == "delete" && deletes);
    let missing = look.operations.iter().find(|(name, is_sent)| !is_sent && needed(name));
    if let Some((missing, _)) = missing {
        let publish: Vec<&str> = look
            .operations
            .iter()
            .filter(|(name, is_sent)| *is_sent || needed(name))
            .map(|(name, _)| *name)
            .collect();
        return Ok(Some(NotPublished::Operation(missing, publish.join(", "))));
    }
    if let Some(count) = look.columns.filter(|count| *count != COLUMNS) {
        return Ok(Some(NotPublished::Columns(count)));
    }
    match look.filter {
        Some(filter) if written == Written::Signals || !passes(sql, &filter, &look.names).await => {
            Ok(Some(NotPublished::RowFilter(filter)))
        }
        _ => Ok(None),
    }
}

async fn look(sql: &Sql, table: &SignalTable, publication: &str) -> Result<SignalTableLook, Error> {
    // Before Postgres 15 there are neither row filters nor lists of columns, and the view has no columns for them.
    const QUERY: &str = "
        SELECT pg_catalog.to_regclass(pg_catalog.format('%I.%I', $2, $3)) IS NOT NULL,
               m.tablename IS NOT NULL,
               coalesce(p.pubinsert, true), coalesce(p.pubupdate, true), coalesce(p.pubdelete, true), coalesce(p.pubtruncate, true),
               pg_catalog.to_jsonb(m) ->> 'rowfilter',
               pg_catalog.jsonb_array_length(nullif(pg_catalog.to_jsonb(m) -> 'attnames', 'null')),
               ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
                     WHERE a.attrelid = pg_catalog.to_regclass(pg_catalog.format('%I.%I', $2, $3)) AND a.attnum > 0 AND NOT a.attisdropped
                     ORDER BY a.attnum LIMIT 3)
        FROM (SELECT $1::text AS name) wanted
        LEFT JOIN pg_catalog.pg_publication p ON p.pubname = wanted.name
        LEFT JOIN pg_catalog.pg_publication_tables m ON m.pubname = wanted.name AND m.schemaname = $2 AND m.tablename = $3";
    let SignalTable { schema, name } = table;
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&publication, Type::TEXT), (schema, Type::TEXT), (name, Type::TEXT)];
    let row = sql.row(DOING, QUERY, &parameters).await?;
    let read = || {
        Ok(SignalTableLook {
            exists: row.try_get(0)?,
            is_in: row.try_get(1)?,
            operations: [
                ("insert", row.try_get(2)?),
                ("update", row.try_get(3)?),
                ("delete", row.try_get(4)?),
                ("truncate", row.try_get(5)?),
            ],
            filter: row.try_get(6)?,
            columns: row.try_get(7)?,
            names: row.try_get(8)?,
        })
    };
    read().map_err(|error| Error::sql(DOING, error))
}

/// Whether the rows that mark windows match a row filter. What the server cannot evaluate is taken as a match: the columns may have types of
/// which nothing is known here.
async fn passes(sql: &Sql, filter: &str, names: &[String]) -> bool {
    let rows = ["open", "close"].map(|end| {
        let values = [
            format!("00000000-0000-0000-0000-000000000000-{end}"),
            format!("snapshot-window-{end}"),
            "{}".to_owned(),
        ];
        format!(
            "({})",
            values.map(|value| format!("{}::text", literal(&value))).join(", ")
        )
    });
    let names: Vec<String> = names.iter().map(|name| identifier(name)).collect();
    let query = format!(
        "SELECT pg_catalog.bool_and(coalesce({filter}, false)) FROM (VALUES {}) AS t ({})",
        rows.join(", "),
        names.join(", ")
    );
    sql.value::<bool>(DOING, &query, &[]).await.unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_names_the_statement_that_mends_it() {
        let cases = [
            (NotPublished::NoTable, "CREATE TABLE \"public\".\"s\" (id "),
            (
                NotPublished::NotIn,
                "ALTER PUBLICATION \"p\" ADD TABLE \"public\".\"s\"",
            ),
            (
                NotPublished::Operation("insert", "insert, update".to_owned()),
                "ALTER PUBLICATION \"p\" SET (publish = 'insert, update')",
            ),
            (
                NotPublished::RowFilter("(id > 1)".to_owned()),
                "ALTER PUBLICATION \"p\" ADD TABLE for it",
            ),
            (NotPublished::Columns(2), "three columns"),
        ];
        for (why, statement) in cases {
            let (table, publication) = ("\"public\".\"s\"", "\"p\"");
            let hint = why.hint(table, publication);
            assert!(hint.contains(statement), "{hint}");
            let text = why.text(table, publication);
            assert!(text.contains(table), "{text}");
        }
    }
}
