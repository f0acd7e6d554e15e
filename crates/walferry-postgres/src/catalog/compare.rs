//! How statements that Walferry composes compare the columns of a table with values.
//!
//! `a > 'x'` means whatever operator of that name the `search_path` finds first. Where a part of the statement is the user's, that path is the
//! role's own, and where it is not, the path does not have the operators of extensions. So each comparison names its operator with its
//! schema: that of the default index of the column's type, by which the server sorts, too.

use std::collections::HashMap;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use walferry_pgoutput::Oid;

use crate::connection::Sql;
use crate::error::Error;
use crate::quote::literal;

/// The order of a type in its default index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Comparison {
    /// The type with its schema. For a domain, its base type: a value was checked when it was written.
    type_name: String,
    /// In the order of [`STRATEGIES`].
    operators: [String; STRATEGIES.len()],
}

/// The operators of a B-tree, in the order of their strategy numbers.
const STRATEGIES: [&str; 5] = ["<", "<=", "=", ">=", ">"];

/// A comparison of a column with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

impl Comparison {
    /// Of a type of Postgres itself.
    #[cfg(test)]
    pub(crate) fn plain(type_name: &str) -> Self {
        Self {
            type_name: format!("pg_catalog.{type_name}"),
            operators: STRATEGIES.map(plain_operator),
        }
    }

    /// The operator, with its schema.
    pub(crate) fn operator(&self, order: Order) -> &str {
        &self.operators[order as usize]
    }

    /// A value of the type.
    pub(crate) fn value(&self, text: &str) -> String {
        format!("CAST({} AS {})", literal(text), self.type_name)
    }

    /// `column` is quoted.
    pub(crate) fn condition(&self, column: &str, order: Order, text: &str) -> String {
        format!("{column} {} {}", self.operator(order), self.value(text))
    }

    /// Whether a quoted column has one of the values.
    pub(crate) fn is_one_of<'a>(&self, column: &str, texts: impl IntoIterator<Item = &'a str>) -> String {
        let values: Vec<String> = texts.into_iter().map(|text| self.value(text)).collect();
        format!(
            "{column} {} ANY (ARRAY[{}])",
            self.operator(Order::Equal),
            values.join(", ")
        )
    }
}

fn plain_operator(name: &str) -> String {
    format!("OPERATOR(pg_catalog.{name})")
}

/// How the columns of a table are compared, by their names.
pub(crate) async fn comparisons(sql: &Sql, table: Oid) -> Result<HashMap<String, Comparison>, Error> {
    read(&sql.rows(DOING, &query("$1"), &[(&table.0, Type::OID)]).await?)
}

/// The same of a table by its name. Empty if there is none.
pub(crate) async fn comparisons_of(sql: &Sql, schema: &str, table: &str) -> Result<HashMap<String, Comparison>, Error> {
    let oid = "(SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = $1 AND c.relname = $2)";
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&schema, Type::TEXT), (&table, Type::TEXT)];
    read(&sql.rows(DOING, &query(oid), &parameters).await?)
}

const DOING: &str = "reading how columns are compared";

/// A type without an index of its own is compared as another one that it becomes by itself (`varchar` as `text`), or as all of its kind (enums,
/// arrays, ranges): their operators are Postgres' own.
fn query(table: &str) -> String {
    format!(
        "
        WITH RECURSIVE base (number, oid) AS (
          SELECT a.attnum, a.atttypid FROM pg_catalog.pg_attribute a
          WHERE a.attrelid = {table} AND a.attnum > 0 AND NOT a.attisdropped
          UNION ALL
          SELECT b.number, t.typbasetype FROM base b JOIN pg_catalog.pg_type t ON t.oid = b.oid WHERE t.typtype = 'd')
        SELECT a.attname::text, pg_catalog.format('%I.%I', s.nspname, t.typname),
          (SELECT pg_catalog.array_agg(pg_catalog.format('OPERATOR(%I.%s)', n.nspname, o.oprname) ORDER BY m.amopstrategy)
           FROM pg_catalog.pg_opclass c
           JOIN pg_catalog.pg_am i ON i.oid = c.opcmethod AND i.amname = 'btree'
           JOIN pg_catalog.pg_amop m ON m.amopfamily = c.opcfamily AND m.amoplefttype = c.opcintype
             AND m.amoprighttype = c.opcintype AND m.amoppurpose = 's'
           JOIN pg_catalog.pg_operator o ON o.oid = m.amopopr
           JOIN pg_catalog.pg_namespace n ON n.oid = o.oprnamespace
           WHERE c.opcdefault AND c.opcintype = t.oid)
        FROM base b
        JOIN pg_catalog.pg_type t ON t.oid = b.oid AND t.typtype <> 'd'
        JOIN pg_catalog.pg_namespace s ON s.oid = t.typnamespace
        JOIN pg_catalog.pg_attribute a ON a.attrelid = {table} AND a.attnum = b.number"
    )
}

fn read(rows: &[Row]) -> Result<HashMap<String, Comparison>, Error> {
    let read = |row: &Row| -> Result<(String, Comparison), tokio_postgres::Error> {
        let operators: Option<Vec<String>> = row.try_get(2)?;
        let comparison = Comparison {
            type_name: row.try_get(1)?,
            operators: operators
                .and_then(|operators| operators.try_into().ok())
                .unwrap_or_else(|| STRATEGIES.map(plain_operator)),
        };
        Ok((row.try_get(0)?, comparison))
    };
    let pairs: Result<_, _> = rows.iter().map(read).collect();
    pairs.map_err(|error| Error::sql(DOING, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_and_types_have_their_schemas() {
        let plain = Comparison::plain("int4");
        assert_eq!(
            plain.condition("\"a\"", Order::LessOrEqual, "it's"),
            "\"a\" OPERATOR(pg_catalog.<=) CAST('it''s' AS pg_catalog.int4)"
        );
        assert_eq!(
            plain.is_one_of("\"a\"", ["1", "2"]),
            "\"a\" OPERATOR(pg_catalog.=) ANY (ARRAY[CAST('1' AS pg_catalog.int4), CAST('2' AS pg_catalog.int4)])"
        );
    }
}
