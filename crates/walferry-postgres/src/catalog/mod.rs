//! The catalog's facts about relations. One query returns a row for each relation, however large the database is.

pub(crate) mod compare;
pub(crate) mod hypertables;
pub(crate) mod privileges;
pub(crate) mod table_name;
pub(crate) mod tables;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::sleep;
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use walferry_engine::Pauses;
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts, TypeFacts, TypeKind};
use walferry_pgoutput::{Oid, Relation, Xid};

use crate::connection::{Endpoint, Purpose, Sql, money, within};
use crate::error::Error;

/// Looks up relations over its own connection, which is opened at the first look-up and again after a failure.
#[derive(Debug)]
pub(crate) struct CatalogLookup {
    endpoint: Endpoint,
    sql: Option<Sql>,
}

impl CatalogLookup {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, sql: None }
    }

    /// Closes the connection. The next look-up opens a new one.
    pub(crate) fn close(&mut self) {
        self.sql = None;
    }

    /// Whether there is a connection.
    pub(crate) fn is_open(&self) -> bool {
        self.sql.as_ref().is_some_and(|sql| !sql.is_closed())
    }

    /// The connection, opened if necessary.
    pub(crate) async fn sql(&mut self) -> Result<&Sql, Error> {
        if self.sql.as_ref().is_none_or(Sql::is_closed) {
            self.sql = Some(self.endpoint.sql(Purpose::General).await?);
        }
        Ok(self.sql.as_ref().expect("opened above"))
    }

    /// Facts about each relation and the types of its columns, as they are after these transactions. Empty for a table
    /// that no longer exists.
    pub(crate) async fn facts(&mut self, relations: &[Relation], after: &[Xid]) -> Result<Vec<Catalog>, Error> {
        let found = within(LOOKUP_LIMIT, self.find(relations, after)).await;
        found.unwrap_or_else(|| {
            self.sql = None;
            Err(Error::Silent {
                doing: DOING,
                seconds: LOOKUP_LIMIT.as_secs(),
            })
        })
    }

    async fn find(&mut self, relations: &[Relation], after: &[Xid]) -> Result<Vec<Catalog>, Error> {
        // A server may close idle connections at any time. That is not a failure of the look-up.
        let reused = self.sql.as_ref().is_some_and(|sql| !sql.is_closed());
        match facts(self.sql().await?, relations, after).await {
            Err(Error::Lost { .. }) if reused => {
                self.sql = None;
                facts(self.sql().await?, relations, after).await
            }
            other => other,
        }
    }

    /// Waits until the server shuts down, and returns its message. A server that shuts down first ends all SQL sessions
    /// and refuses new ones.
    pub(crate) async fn shut_down(&mut self) -> Error {
        let mut pauses = Pauses::new(LOOK, LONGEST_LOOK);
        loop {
            sleep(pauses.next_pause()).await;
            if self.sql.as_ref().is_none_or(Sql::is_closed) {
                match self.endpoint.sql(Purpose::General).await {
                    Ok(sql) => self.sql = Some(sql),
                    Err(error) if error.is_not_ready() => return error,
                    // The server may refuse a session for many other reasons. It need not be asked so often then.
                    Err(_) => continue,
                }
            }
            pauses.reset();
        }
    }
}

/// How long the stream waits for the catalog's facts. If it takes longer, the catalog is locked or the connection is
/// dead, and new connections are used.
const LOOKUP_LIMIT: Duration = Duration::from_secs(60);
/// How often to look whether the server shuts down while nothing is read.
const LOOK: Duration = Duration::from_secs(1);
const LONGEST_LOOK: Duration = Duration::from_secs(30);
const DOING: &str = "reading relations from the catalog";
/// `money`.
const MONEY: Oid = Oid(790);

/// Facts about each relation, in the order of `relations`.
async fn facts(sql: &Sql, relations: &[Relation], after: &[Xid]) -> Result<Vec<Catalog>, Error> {
    wait_until_visible(sql, after).await?;
    let oids: Vec<Oid> = relations.iter().map(|relation| relation.oid).collect();
    let found = catalogs(sql, &oids).await?;
    let mut catalogs: Vec<Catalog> = oids
        .iter()
        .map(|oid| found.iter().find(|(known, _)| known == oid))
        .map(|known| known.map(|(_, catalog)| catalog.clone()).unwrap_or_default())
        .collect();
    // A column of the stream may have had another type than now, or its table may no longer exist.
    let missing: BTreeSet<Oid> = relations
        .iter()
        .zip(&catalogs)
        .flat_map(|(relation, catalog)| relation.columns.iter().map(move |column| (column.type_oid, catalog)))
        .filter(|(oid, catalog)| catalog.type_of(*oid).is_none())
        .map(|(oid, _)| oid)
        .collect();
    if missing.is_empty() {
        return Ok(catalogs);
    }
    let types = types(sql, &missing).await?;
    for catalog in &mut catalogs {
        let new: Vec<TypeFacts> = types
            .iter()
            .filter(|facts| catalog.type_of(facts.oid).is_none())
            .cloned()
            .collect();
        catalog.types.extend(new);
    }
    Ok(catalogs)
}

/// Waits until queries see these transactions. The stream may be ahead of queries: it sends a commit as soon as it is
/// on disk, before the server has ended the transaction. If the commit waits for a synchronous standby, that may be
/// long before.
async fn wait_until_visible(sql: &Sql, xids: &[Xid]) -> Result<(), Error> {
    const DOING: &str = "waiting for a transaction to end";
    const LOOKS: u32 = 10;
    for look in 0..LOOKS {
        let text: String = sql
            .value(DOING, "SELECT pg_catalog.txid_current_snapshot()::text", &[])
            .await?;
        let sees = sees(&text).ok_or_else(|| Error::Protocol {
            doing: DOING,
            problem: text.clone(),
        })?;
        if xids.iter().all(|&xid| sees(xid)) {
            return Ok(());
        }
        sleep(Duration::from_millis(1 << look)).await;
    }
    // If it takes longer, go on without it. The catalog's present facts count only if they agree with the stream.
    Ok(())
}

/// Which ended transactions a snapshot includes, from its text `xmin:xmax:xip_list`. The list has the transactions in
/// progress, separated by commas.
fn sees(snapshot: &str) -> Option<impl Fn(Xid) -> bool> {
    // These are 64-bit ids. The stream has only their lower half.
    let low = |text: &str| Some(text.parse::<u64>().ok()? as u32);
    let mut parts = snapshot.splitn(3, ':').skip(1);
    let next = low(parts.next()?)?;
    let under_way: Vec<u32> = parts.next()?.split_terminator(',').map(low).collect::<Option<_>>()?;
    Some(move |xid: Xid| (xid.0.wrapping_sub(next) as i32) < 0 && !under_way.contains(&xid.0))
}

/// Facts about those of the types that exist, and about the types that they are composed of.
async fn types(sql: &Sql, oids: &BTreeSet<Oid>) -> Result<Vec<TypeFacts>, Error> {
    const DOING: &str = "reading types from the catalog";
    let oids: Vec<u32> = oids.iter().map(|oid| oid.0).collect();
    let query = format!(
        "SELECT ({})::text WHERE (SELECT {} IS NOT NULL)",
        types_of("SELECT pg_catalog.unnest($1)"),
        sql.own_path()
    );
    let rows = with_own_path(sql, DOING, &query, &oids).await?;
    let text: Option<&str> = match rows.first() {
        Some(row) => row.try_get(0).map_err(|error| Error::sql(DOING, error))?,
        None => None,
    };
    let found: Vec<FoundType> = parse(DOING, text.unwrap_or("[]"))?;
    let mut types: Vec<TypeFacts> = found.into_iter().map(TypeFacts::from).collect();
    with_money_digits(sql, types.iter_mut()).await?;
    Ok(types)
}

/// Adds to the facts about `money`, if it is among these types, what only the database's settings say.
async fn with_money_digits(sql: &Sql, types: impl Iterator<Item = &mut TypeFacts>) -> Result<(), Error> {
    for facts in types.filter(|facts| facts.oid == MONEY) {
        let fraction_digits = money::fraction_digits(sql).await?;
        facts.kind = TypeKind::Money { fraction_digits };
    }
    Ok(())
}

fn parse<T: serde::de::DeserializeOwned>(doing: &'static str, text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Protocol {
        doing,
        problem: error.to_string(),
    })
}

/// Facts about those of the relations that exist, in the order of their oids.
pub(crate) async fn catalogs(sql: &Sql, oids: &[Oid]) -> Result<Vec<(Oid, Catalog)>, Error> {
    let oids: Vec<u32> = oids.iter().map(|oid| oid.0).collect();
    let rows = with_own_path(sql, DOING, &query(&sql.own_path()), &oids).await?;
    let read = |row: &Row| {
        let text: &str = row.try_get(0).map_err(|error| Error::sql(DOING, error))?;
        let found: Found = parse(DOING, text)?;
        Ok((Oid(found.oid), Catalog::from(found)))
    };
    let mut catalogs = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    with_money_digits(sql, catalogs.iter_mut().flat_map(|(_, catalog)| &mut catalog.types)).await?;
    Ok(catalogs)
}

/// Runs a query that sets the role's own path. In a transaction, that path would last.
async fn with_own_path(
    sql: &Sql,
    doing: &'static str,
    query: &str,
    oids: &Vec<u32>,
) -> Result<Vec<tokio_postgres::Row>, Error> {
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] = [(oids, Type::OID_ARRAY)];
    // Both are sent at once.
    let (rows, pinned) = tokio::join!(sql.rows(doing, query, &parameters), sql.execute(doing, Sql::PIN_AGAIN));
    let rows = rows?;
    pinned.map(|()| rows)
}

/// A query that returns one JSON document for each relation. Defaults are printed as they read under the role's own path, as Debezium reads them.
/// `own_path` sets that path before the first row, when the names in the query have been looked up under ours.
///
/// Unique indexes are those that pgjdbc lists and Debezium uses as keys: without expressions, but including partial
/// ones and those with included columns. The index that the table is clustered on comes first, the others by name.
fn query(own_path: &str) -> String {
    let types = types_of(
        "SELECT a.atttypid FROM pg_catalog.pg_attribute a
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped",
    );
    format!(
        "
SELECT pg_catalog.json_build_object(
  'oid', c.oid::int8, 'schema', n.nspname, 'name', c.relname, 'partition', c.relispartition,
  'comment', pg_catalog.obj_description(c.oid, 'pg_class'),
  'columns', (
    SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
      'name', a.attname, 'number', a.attnum, 'type_oid', a.atttypid::int8, 'type_modifier', a.atttypmod,
      'not_null', a.attnotnull, 'default', pg_catalog.pg_get_expr(d.adbin, d.adrelid),
      'generated', a.attgenerated <> '', 'identity', a.attidentity <> '',
      'comment', pg_catalog.col_description(a.attrelid, a.attnum)) ORDER BY a.attnum)
    FROM pg_catalog.pg_attribute a
    LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
  'keys', (
    SELECT pg_catalog.json_agg(pg_catalog.json_build_object('primary', i.indisprimary, 'columns', (
      SELECT pg_catalog.json_agg(a.attname ORDER BY k.place)
      FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY k(number, place)
      JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
      WHERE k.place <= i.indnkeyatts OR NOT i.indisprimary)) ORDER BY NOT i.indisclustered, x.relname)
    FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
    WHERE i.indrelid = c.oid AND i.indisunique AND i.indexprs IS NULL),
  'types', ({types})
)::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY($1) AND (SELECT {own_path} IS NOT NULL)
ORDER BY c.oid"
    )
}

/// A query for the types that another query names, and the types that they are composed of. Returns one JSON document.
fn types_of(names: &str) -> String {
    format!(
        "
    WITH RECURSIVE reached(oid) AS (
      {names}
      UNION
      SELECT made_of.oid FROM reached r
      JOIN pg_catalog.pg_type t ON t.oid = r.oid
      LEFT JOIN pg_catalog.pg_range g ON g.rngtypid = t.oid
      CROSS JOIN LATERAL (VALUES (t.typbasetype), (t.typelem), (g.rngsubtype)) made_of(oid)
      WHERE made_of.oid <> 0)
    SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
      'oid', t.oid::int8, 'schema', s.nspname, 'name', t.typname, 'kind', t.typtype,
      'on_path', s.nspname = ANY (pg_catalog.current_schemas(true)),
      'element', CASE WHEN e.typarray = t.oid THEN e.oid::int8 END, 'delimiter', e.typdelim,
      'base', t.typbasetype::int8, 'modifier', t.typtypmod, 'not_null', t.typnotnull,
      'subtype', g.rngsubtype::int8,
      'labels', (SELECT pg_catalog.json_agg(l.enumlabel ORDER BY l.enumsortorder)
                 FROM pg_catalog.pg_enum l WHERE l.enumtypid = t.oid)))
    FROM reached
    JOIN pg_catalog.pg_type t ON t.oid = reached.oid
    JOIN pg_catalog.pg_namespace s ON s.oid = t.typnamespace
    LEFT JOIN pg_catalog.pg_type e ON e.oid = t.typelem
    LEFT JOIN pg_catalog.pg_range g ON g.rngtypid = t.oid"
    )
}

#[derive(Debug, Deserialize)]
struct Found {
    oid: u32,
    schema: String,
    name: String,
    partition: bool,
    comment: Option<String>,
    columns: Option<Vec<Column>>,
    keys: Option<Vec<Key>>,
    types: Option<Vec<FoundType>>,
}

#[derive(Debug, Deserialize)]
struct Column {
    name: String,
    number: i16,
    type_oid: u32,
    type_modifier: i32,
    not_null: bool,
    default: Option<String>,
    generated: bool,
    identity: bool,
    comment: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Key {
    primary: bool,
    columns: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct FoundType {
    oid: u32,
    schema: String,
    name: String,
    on_path: bool,
    kind: char,
    element: Option<u32>,
    delimiter: Option<char>,
    base: u32,
    modifier: i32,
    not_null: bool,
    subtype: Option<u32>,
    labels: Option<Vec<String>>,
}

impl From<Found> for Catalog {
    fn from(found: Found) -> Self {
        let (primary, unique): (Vec<Key>, Vec<Key>) =
            found.keys.unwrap_or_default().into_iter().partition(|key| key.primary);
        let table = TableFacts {
            oid: Oid(found.oid),
            schema: found.schema,
            name: found.name,
            columns: found
                .columns
                .unwrap_or_default()
                .into_iter()
                .map(ColumnFacts::from)
                .collect(),
            primary_key: primary.into_iter().next().map(|key| key.columns).unwrap_or_default(),
            unique_indexes: unique.into_iter().map(|key| key.columns).collect(),
            comment: found.comment,
            partition: found.partition,
        };
        let types = found
            .types
            .unwrap_or_default()
            .into_iter()
            .map(TypeFacts::from)
            .collect();
        Self {
            table: Some(table),
            types,
        }
    }
}

impl From<Column> for ColumnFacts {
    fn from(column: Column) -> Self {
        Self {
            name: column.name,
            number: column.number,
            type_oid: Oid(column.type_oid),
            type_modifier: column.type_modifier,
            not_null: column.not_null,
            default: column.default,
            generated: column.generated,
            identity: column.identity,
            comment: column.comment,
        }
    }
}

impl From<FoundType> for TypeFacts {
    fn from(found: FoundType) -> Self {
        let kind = match (found.kind, found.element, found.subtype) {
            (_, Some(element), _) => TypeKind::Array {
                element: Oid(element),
                delimiter: found.delimiter.unwrap_or(','),
            },
            ('d', ..) => TypeKind::Domain {
                base: Oid(found.base),
                modifier: found.modifier,
                not_null: found.not_null,
            },
            ('e', ..) => TypeKind::Enum {
                labels: found.labels.unwrap_or_default(),
            },
            ('c', ..) => TypeKind::Composite,
            ('r', _, Some(subtype)) => TypeKind::Range { subtype: Oid(subtype) },
            ('m', ..) => TypeKind::Multirange,
            ('p', ..) => TypeKind::Pseudo,
            _ => TypeKind::Base,
        };
        Self {
            oid: Oid(found.oid),
            schema: found.schema,
            name: found.name,
            on_path: found.on_path,
            kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_sees_what_has_ended() {
        let cases = [
            ("700:700:", 699, true),
            ("700:700:", 700, false),
            ("690:700:690,695", 690, false),
            ("690:700:690,695", 695, false),
            ("690:700:690,695", 691, true),
            ("690:700:690,695", 689, true),
            // Ids have wrapped around.
            ("4294967290:4294967300:4294967290", u32::MAX, true),
            ("4294967290:4294967300:4294967290", 4_294_967_290, false),
            ("4294967290:4294967300:4294967298", 2, false),
            ("4294967290:4294967300:4294967298", 3, true),
            ("4294967290:4294967300:", 4, false),
        ];
        for (snapshot, xid, expected) in cases {
            assert_eq!(sees(snapshot).unwrap()(Xid(xid)), expected, "{snapshot} {xid}");
        }
        for text in ["", "1", "1:2", "a:b:", "1:2:x"] {
            assert!(sees(text).is_none(), "{text}");
        }
    }
}
