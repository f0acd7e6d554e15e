//! A table that is read by its key: the SQL of its chunks, and their rows.

use std::collections::HashSet;
use std::ops::Range;
use std::pin::pin;

use bytes::Bytes;
use futures_util::TryStreamExt;
use walferry_engine::incremental::Key;
use walferry_event::catalog::{Catalog, ColumnFacts};
use walferry_pgoutput::{Column, Oid, Tuple};

use crate::catalog::compare::{Comparison, Order};
use crate::connection::Sql;
use crate::encoding::hex;
use crate::error::Error;
use crate::quote::identifier;
use crate::snapshot::copy::append_tuple;

pub(super) const READING: &str = "reading a chunk";

/// A column of the key by which a table is read.
pub(crate) struct KeyColumn {
    pub(crate) name: String,
    /// Index of the column.
    pub(super) place: usize,
    pub(super) is_optional: bool,
    /// The type of the column. For a domain, its base type.
    pub(crate) type_oid: Oid,
    /// How the server compares and sorts it.
    pub(super) compared: Comparison,
}

/// What a chunk is read from.
pub(crate) struct ChunkTable {
    pub(crate) catalog: Catalog,
    pub(crate) columns: Vec<ColumnFacts>,
    /// The names of those that are read. The others have no value, since no record has them.
    pub(crate) reads: HashSet<String>,
    pub(crate) table: String,
    pub(crate) key: Vec<KeyColumn>,
    /// Whether keys are unique. Otherwise rows with the same key are not split.
    pub(crate) is_unique: bool,
    /// Whether the server knows `FETCH FIRST … WITH TIES`.
    pub(crate) has_ties: bool,
    pub(crate) condition: Option<String>,
}

/// The key of the table's last row.
pub(crate) async fn maximum(sql: &Sql, target: &ChunkTable) -> Result<Option<Key>, Error> {
    let names: Vec<&str> = target.key.iter().map(|column| &*column.name).collect();
    let statement = format!(
        "COPY (SELECT {} FROM {}{} ORDER BY {} DESC LIMIT 1) TO STDOUT",
        names.join(", "),
        target.table,
        target
            .condition
            .as_ref()
            .map(|condition| format!(" WHERE {condition}"))
            .unwrap_or_default(),
        names.join(" DESC, "),
    );
    let mut lines = pin!(
        sql.copy_out(&statement)
            .await
            .map_err(|error| Error::copy(READING, error))?
    );
    let mut found = None;
    while let Some(line) = lines.try_next().await.map_err(|error| Error::sql(READING, error))? {
        let mut bytes = Vec::new();
        append(&line, names.len(), sql, &mut bytes)?;
        let tuple = Tuple::parse(&bytes).map_err(|error| malformed(&error))?;
        let value = |(value, column): (Column<'_>, &KeyColumn)| Ok((target.text(value, column)?, column.type_oid));
        let values: Result<Vec<_>, Error> = tuple.columns().zip(&target.key).map(value).collect();
        found = Some(Key::new(values?));
    }
    Ok(found)
}

/// Rows of a chunk.
#[derive(Default)]
pub(crate) struct Tuples {
    pub(crate) tuples: Vec<Range<usize>>,
    pub(crate) bytes: Bytes,
    /// Whether there are more rows than there is room for.
    pub(crate) is_full: bool,
    /// Whether there are more rows with one key than there is room for. Rows with one key cannot be split.
    pub(super) is_endless: bool,
}

/// If all rows of a chunk have the same key, it may be this many times larger.
const MOST_OF_ONE_KEY: usize = 4;

/// Runs the statement of a chunk. Keeps rows up to the first one that exceeds `most` bytes.
pub(crate) async fn tuples(sql: &Sql, statement: &str, target: &ChunkTable, most: usize) -> Result<Tuples, Error> {
    let mut lines = pin!(
        sql.copy_out(statement)
            .await
            .map_err(|error| Error::copy(READING, error))?
    );
    let (mut out, mut bytes, mut last_rank) = (Tuples::default(), Vec::new(), Vec::new());
    while let Some(line) = lines.try_next().await.map_err(|error| Error::sql(READING, error))? {
        if out.is_full {
            // Read the rest, so that the statement ends in order and the connection stays usable.
            continue;
        }
        let start = bytes.len();
        let (row, rank) = match target.is_unique {
            true => (&*line, None),
            false => without_rank(&line),
        };
        append(row, target.columns.len(), sql, &mut bytes)?;
        let has_same_key = rank.is_some_and(|rank| rank == last_rank);
        if let Some(rank) = rank.filter(|_| !has_same_key) {
            last_rank = rank.to_vec();
        }
        if bytes.len() > most && !out.tuples.is_empty() {
            // Rows with the same key are not split: the next chunk begins behind that key. The server says which keys are the same: 1.0 and
            // 1.00 are.
            let torn = has_same_key;
            out.is_endless = torn && bytes.len() > most.saturating_mul(MOST_OF_ONE_KEY);
            if !torn || out.is_endless {
                bytes.truncate(start);
                out.is_full = true;
                continue;
            }
        }
        out.tuples.push(start..bytes.len());
    }
    out.bytes = bytes.into();
    Ok(out)
}

/// A row without the number at its beginning, and that number.
fn without_rank(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    let end = line.iter().position(|byte| *byte == b'\t').unwrap_or(line.len());
    (line.get(end + 1..).unwrap_or_default(), Some(&line[..end]))
}

fn append(line: &[u8], columns: usize, sql: &Sql, out: &mut Vec<u8>) -> Result<(), Error> {
    append_tuple(line, columns, sql.encoding(), out).map_err(|error| malformed(&error))
}

fn malformed(error: &dyn std::error::Error) -> Error {
    Error::Protocol {
        doing: READING,
        problem: error.to_string(),
    }
}

impl ChunkTable {
    pub(crate) fn key_of(&self, tuple: &[u8]) -> Result<Key, Error> {
        let tuple = Tuple::parse(tuple).map_err(|error| malformed(&error))?;
        let value = |column: &KeyColumn| {
            let value = tuple.columns().nth(column.place).unwrap_or(Column::Null);
            Ok((self.text(value, column)?, column.type_oid))
        };
        let values: Result<Vec<_>, Error> = self.key.iter().map(value).collect();
        Ok(Key::new(values?))
    }

    /// A value of the key. The next chunk is asked for by it, so it must have a form in UTF-8.
    fn text(&self, value: Column<'_>, column: &KeyColumn) -> Result<Option<String>, Error> {
        match value {
            Column::Text(text) => Ok(Some(String::from_utf8_lossy(text).into_owned())),
            Column::Binary(bytes) => Err(Error::KeyWithoutUtf8 {
                table: self.table.clone(),
                column: column.name.clone(),
                bytes: hex(bytes),
            }),
            Column::Null | Column::Unchanged => Ok(None),
        }
    }

    /// The statement that reads the chunk behind a key. As in Debezium, the first chunk has no upper bound.
    pub(crate) fn chunk(&self, after: Option<&Key>, maximum: &Key, limit: u32) -> String {
        let conditions = self.conditions(after, maximum);
        let expression = |column: &ColumnFacts| match self.reads.contains(&column.name) {
            true => identifier(&column.name),
            false => "NULL".to_owned(),
        };
        let columns: Vec<String> = self.columns.iter().map(expression).collect();
        let names: Vec<&str> = self.key.iter().map(|column| &*column.name).collect();
        let (columns, names, table) = (columns.join(", "), names.join(", "), &self.table);
        if self.is_unique {
            return format!(
                "COPY (SELECT {columns} FROM {table}{conditions} ORDER BY {names} LIMIT {limit}) TO STDOUT"
            );
        }
        // This chunk has all rows with its last key, since the next one begins behind that key.
        let name = identifier(&self.name_for_rank());
        let ranked =
            format!("SELECT pg_catalog.rank() OVER (ORDER BY {names}) AS {name}, {columns} FROM {table}{conditions}");
        if self.has_ties {
            return format!("COPY ({ranked} ORDER BY {names} FETCH FIRST {limit} ROWS WITH TIES) TO STDOUT");
        }
        // The same rows. The server looks at all that are left, for each chunk.
        format!(
            "COPY (SELECT {name}, {columns} FROM ({ranked}) ranked WHERE {name} OPERATOR(pg_catalog.<=) {limit} ORDER BY {names}) TO STDOUT"
        )
    }

    /// A name that no column has: without one, the rank would be called `rank`, and ORDER BY would not know which of two columns it means.
    fn name_for_rank(&self) -> String {
        let mut name = "group_rank".to_owned();
        while self.columns.iter().any(|column| *column.name == name) {
            name.push('_');
        }
        name
    }

    /// Lets the server parse the condition alone, before it becomes a part of other statements.
    pub(crate) async fn is_understood(&self, sql: &Sql) -> Result<(), Error> {
        let Some(condition) = &self.condition else {
            return Ok(());
        };
        let statement = format!("SELECT 1 FROM {} WHERE {condition}", self.table);
        let prepared = sql.prepare(READING, &statement).await?;
        prepared.map(drop).map_err(|error| Error::sql(READING, error))
    }

    /// The statement that reads everything behind a key. It is only planned, to see how many rows that are.
    pub(super) fn remaining_rows(&self, after: Option<&Key>, maximum: &Key) -> String {
        format!("SELECT 1 FROM {}{}", self.table, self.conditions(after, maximum))
    }

    /// The WHERE that leaves the rows behind a key.
    fn conditions(&self, after: Option<&Key>, maximum: &Key) -> String {
        let mut conditions = Vec::new();
        if let Some(after) = after {
            conditions.push(self.bound(after, true));
            conditions.push(self.bound(maximum, false));
        }
        conditions.extend(self.condition.clone());
        match conditions.is_empty() {
            true => String::new(),
            false => format!(" WHERE {}", conditions.join(" AND ")),
        }
    }

    /// The condition for keys behind this one (`is_lower`), or up to it.
    pub(crate) fn bound(&self, key: &Key, is_lower: bool) -> String {
        let texts: Vec<Option<&str>> = key.texts().collect();
        let has_null = self.key.iter().any(|column| column.is_optional) || texts.iter().any(Option::is_none);
        let greater = self.greater(&texts);
        if has_null {
            return if is_lower { greater } else { format!("NOT {greater}") };
        }
        let order = if is_lower { Order::Greater } else { Order::LessOrEqual };
        let columns: Vec<(&KeyColumn, &str)> = self.key.iter().zip(texts.into_iter().flatten()).collect();
        let Some(((first, text), others)) = columns.split_first() else {
            return "true".to_owned();
        };
        let operator = first.compared.operator(order);
        if others.is_empty() {
            return first.compared.condition(&first.name, order, text);
        }
        if others
            .iter()
            .all(|(column, _)| column.compared.operator(order) == operator)
        {
            let names: Vec<&str> = columns.iter().map(|(column, _)| &*column.name).collect();
            let values: Vec<String> = columns
                .iter()
                .map(|(column, text)| column.compared.value(text))
                .collect();
            return format!("ROW({}) {operator} ROW({})", names.join(", "), values.join(", "));
        }
        // A row has one operator. The first column alone lets the server use an index.
        let outer = if is_lower {
            Order::GreaterOrEqual
        } else {
            Order::LessOrEqual
        };
        let bound = first.compared.condition(&first.name, outer, text);
        match is_lower {
            true => format!("{bound} AND {greater}"),
            false => format!("{bound} AND NOT {greater}"),
        }
    }

    /// The condition for keys greater than this one. Null is the greatest key.
    fn greater(&self, texts: &[Option<&str>]) -> String {
        let mut alternatives = Vec::new();
        for (place, (column, text)) in self.key.iter().zip(texts).enumerate() {
            let before = self.key.iter().zip(texts).take(place);
            let equal = before.map(|(column, text)| match text {
                Some(text) => format!(
                    "({}) IS TRUE",
                    column.compared.condition(&column.name, Order::Equal, text)
                ),
                None => format!("{} IS NULL", column.name),
            });
            let last = match text {
                Some(text) => format!(
                    "({} IS NULL OR {})",
                    column.name,
                    column.compared.condition(&column.name, Order::Greater, text)
                ),
                None => "false".to_owned(),
            };
            let terms: Vec<String> = equal.chain([last]).collect();
            alternatives.push(format!("({})", terms.join(" AND ")));
        }
        format!("({})", alternatives.join(" OR "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quote::qualified;

    fn target(columns: &[(&str, bool)], is_unique: bool) -> ChunkTable {
        let key = columns.iter().zip(0..).map(|((name, is_optional), place)| KeyColumn {
            name: identifier(name),
            place,
            is_optional: *is_optional,
            type_oid: Oid(23),
            compared: Comparison::plain("int4"),
        });
        let fact = |(name, _): &(&str, bool)| ColumnFacts {
            not_null: true,
            ..ColumnFacts::plain(*name, 1, Oid(23))
        };
        ChunkTable {
            catalog: Catalog::default(),
            columns: columns.iter().map(fact).collect(),
            reads: columns.iter().map(|(name, _)| (*name).to_owned()).collect(),
            table: qualified("public", "t"),
            key: key.collect(),
            is_unique,
            has_ties: true,
            condition: None,
        }
    }

    fn key(values: &[Option<&str>]) -> Key {
        Key::new(values.iter().map(|value| (value.map(str::to_owned), Oid(23))))
    }

    #[test]
    fn rows_that_are_left_are_those_behind_a_key_up_to_the_last_one() {
        let target = target(&[("id", false)], true);
        assert_eq!(
            target.remaining_rows(Some(&key(&[Some("5")])), &key(&[Some("9")])),
            r#"SELECT 1 FROM "public"."t" WHERE "id" OPERATOR(pg_catalog.>) CAST('5' AS pg_catalog.int4) AND "id" OPERATOR(pg_catalog.<=) CAST('9' AS pg_catalog.int4)"#
        );
    }

    #[test]
    fn a_rank_is_taken_off_a_row() {
        assert_eq!(without_rank(b"12\ta\tb\n"), (&b"a\tb\n"[..], Some(&b"12"[..])));
        assert_eq!(without_rank(b"12"), (&b""[..], Some(&b"12"[..])));
    }

    #[test]
    fn chunks_lie_between_keys() {
        let one = target(&[("id", false)], true);
        assert_eq!(
            one.chunk(None, &key(&[Some("9")]), 10),
            r#"COPY (SELECT "id" FROM "public"."t" ORDER BY "id" LIMIT 10) TO STDOUT"#
        );
        assert_eq!(
            one.chunk(Some(&key(&[Some("5")])), &key(&[Some("9")]), 10),
            r#"COPY (SELECT "id" FROM "public"."t" WHERE "id" OPERATOR(pg_catalog.>) CAST('5' AS pg_catalog.int4) AND "id" OPERATOR(pg_catalog.<=) CAST('9' AS pg_catalog.int4) ORDER BY "id" LIMIT 10) TO STDOUT"#
        );
        let two = ChunkTable {
            condition: Some("(v OR w)".to_owned()),
            ..target(&[("a", false), ("b", false)], true)
        };
        assert_eq!(
            two.chunk(Some(&key(&[Some("1"), Some("2")])), &key(&[Some("8"), Some("9")]), 10),
            r#"COPY (SELECT "a", "b" FROM "public"."t" WHERE ROW("a", "b") OPERATOR(pg_catalog.>) ROW(CAST('1' AS pg_catalog.int4), CAST('2' AS pg_catalog.int4)) AND ROW("a", "b") OPERATOR(pg_catalog.<=) ROW(CAST('8' AS pg_catalog.int4), CAST('9' AS pg_catalog.int4)) AND (v OR w) ORDER BY "a", "b" LIMIT 10) TO STDOUT"#
        );
    }

    #[test]
    fn a_chunk_has_no_value_of_a_column_that_no_record_has() {
        let mut table = target(&[("id", false), ("secret", true)], true);
        table.key.truncate(1);
        table.reads.remove("secret");
        assert_eq!(
            table.chunk(None, &key(&[Some("9")]), 10),
            r#"COPY (SELECT "id", NULL FROM "public"."t" ORDER BY "id" LIMIT 10) TO STDOUT"#
        );
    }

    /// Postgres sorts nulls last, and no comparison with null is true.
    #[test]
    fn keys_that_may_be_null_are_compared_as_they_are_sorted() {
        let nullable = target(&[("a", true)], false);
        assert_eq!(
            nullable.chunk(Some(&key(&[Some("1")])), &key(&[None]), 10),
            r#"COPY (SELECT pg_catalog.rank() OVER (ORDER BY "a") AS "group_rank", "a" FROM "public"."t" WHERE ((("a" IS NULL OR "a" OPERATOR(pg_catalog.>) CAST('1' AS pg_catalog.int4)))) AND NOT ((false)) ORDER BY "a" FETCH FIRST 10 ROWS WITH TIES) TO STDOUT"#
        );
    }

    #[test]
    fn a_server_that_knows_no_ties_ranks_rows_with_the_same_key() {
        let old = ChunkTable {
            has_ties: false,
            condition: Some("(v)".to_owned()),
            ..target(&[("a", false), ("b", true)], false)
        };
        assert_eq!(
            old.chunk(None, &key(&[Some("1"), None]), 10),
            r#"COPY (SELECT "group_rank", "a", "b" FROM (SELECT pg_catalog.rank() OVER (ORDER BY "a", "b") AS "group_rank", "a", "b" FROM "public"."t" WHERE (v)) ranked WHERE "group_rank" OPERATOR(pg_catalog.<=) 10 ORDER BY "a", "b") TO STDOUT"#
        );
    }
}
