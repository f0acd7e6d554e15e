//! Looks at the publication while it is in use, and reports whether changes of captured tables may be missing since the
//! last look.
//!
//! pgoutput decodes each change with the publication as it was then. If a table is removed and added again, the stream
//! shows nothing of it. The catalog does: the membership has another oid afterwards.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use tokio_postgres::types::Type;
use walferry_config::limited;
use walferry_diagnosis::{Diagnosis, Kind};
use walferry_engine::Failure;
use walferry_engine::published::{PublicationLook, Published};
use walferry_engine::source::TableFilter;
use walferry_pgoutput::Lsn;

use super::Publication;
use super::differences::{Differences, Suspect, differences, lost};
use crate::catalog::tables::{TableName, listed};
use crate::connection::Sql;
use crate::error::Error;
use crate::quote::identifier;
use crate::setup::inspect::lsn;

const DOING: &str = "reading the publication";

/// The publication in the catalog. `command` is the number of the command of its transaction that wrote a row of the catalog.
#[derive(Debug, Deserialize)]
struct Row {
    oid: u32,
    xmin: u32,
    command: u32,
    name: String,
    owner: String,
    all_tables: bool,
    insert: bool,
    update: bool,
    delete: bool,
    truncate: bool,
    via_root: bool,
    /// `publish_generated_columns`.
    generated: Option<String>,
    standby: bool,
    tables: Option<Vec<TableRow>>,
    schemas: Option<Vec<SchemaRow>>,
    partitions: Option<Vec<PartitionRow>>,
}

/// A table that it includes, by itself or through a schema.
#[derive(Debug, Deserialize)]
struct TableRow {
    oid: u32,
    membership: u32,
    xmin: u32,
    partitioned: bool,
    schema: String,
    name: String,
    /// If it is included through its schema: the transaction that put it there, and the command.
    home: Option<(u32, u32)>,
    /// Column list and row filter.
    definition: Option<String>,
}

#[derive(Debug, Deserialize)]
struct SchemaRow {
    oid: u32,
    membership: u32,
    xmin: u32,
}

/// A partition of such a table, with the transaction that attached it.
#[derive(Debug, Deserialize)]
struct PartitionRow {
    oid: u32,
    xmin: u32,
    command: u32,
    partitioned: bool,
    schema: String,
    name: String,
    root: (String, String),
}

/// A table that may become unlogged although it is in the publication.
#[derive(Debug, Deserialize)]
struct StorageRow {
    oid: u32,
    schema: String,
    name: String,
    root: Option<(String, String)>,
    unlogged: bool,
    /// 0 if it has none.
    toast: u32,
    file: u32,
}

/// What a look has found. All but `published` is needed only to compare it with the last look.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) published: Published,
    /// The command that wrote the publication's row.
    pub(super) command: u32,
    /// Transactions that wrote its memberships.
    pub(super) writers: BTreeSet<u32>,
    /// The command that attached each partition, and the one that put each table into its schema.
    pub(super) attached: HashMap<u32, u32>,
    pub(super) moved: HashMap<u32, u32>,
    /// The file of each table of [`Published::storage`].
    pub(super) files: HashMap<u32, u32>,
    pub(super) unlogged: HashSet<u32>,
    /// Names of tables.
    pub(super) names: HashMap<u32, String>,
    /// On a standby all rows of the catalog seem to be written by the first command of their transaction. The same holds for rows
    /// that the server has replayed after a crash, but nobody can see that.
    pub(super) standby: bool,
}

/// An offset is written many times a second, and is not to be long. Of more tables, the storage is not compared,
const MOST_STORED: usize = 1000;
/// and of longer definitions, the text is not kept.
const LONGEST_DEFINITIONS: usize = 16 * 1024;

#[derive(Debug, Deserialize)]
struct Position {
    #[serde(deserialize_with = "lsn")]
    lsn: Option<Lsn>,
}

/// Looks, and compares with the last look.
pub(crate) async fn inspect(
    sql: &Sql,
    version: u32,
    publication: &Publication,
    known: Option<&Published>,
    wanted: &TableFilter,
) -> Result<PublicationLook, Error> {
    // Read the position before the catalog. The look may or may not have seen what is committed after it.
    let before = position(sql).await?;
    let Some(row) = row(sql, version, &Wanted::Name(&publication.name)).await? else {
        let Some(known) = known else {
            return Ok(PublicationLook {
                published: None,
                renamed: None,
                gap: None,
                doubt: None,
                lsn: position(sql).await?,
            });
        };
        return gone(sql, version, publication, (known, before), wanted).await;
    };
    let compared = compare(sql, version, publication, (row, before), known, wanted).await?;
    let (gap, doubt) = compared.verdict(publication);
    Ok(PublicationLook {
        published: Some(Arc::new(compared.now)),
        renamed: None,
        gap,
        doubt,
        lsn: position(sql).await?,
    })
}

/// No publication has this name. The known one may have another name now.
async fn gone(
    sql: &Sql,
    version: u32,
    publication: &Publication,
    (known, before): (&Published, Lsn),
    wanted: &TableFilter,
) -> Result<PublicationLook, Error> {
    let renamed = row(sql, version, &Wanted::Oid(known.oid)).await?;
    let name = renamed.as_ref().map(|row| row.name.clone());
    let renamed = match renamed {
        Some(row) => {
            let compared = compare(sql, version, publication, (row, before), Some(known), wanted).await?;
            // If it was altered, too, the next look must find that.
            let is_altered = !compared.differences.gaps.is_empty() || !compared.differences.doubts.is_empty();
            let now = if is_altered { known.clone() } else { compared.now };
            Some(Arc::new(now))
        }
        None => None,
    };
    let missing = missing(sql, publication, known, name, wanted).await?;
    Ok(PublicationLook {
        published: None,
        renamed,
        gap: Some(missing.into()),
        doubt: None,
        lsn: position(sql).await?,
    })
}

/// A look, and what has changed since the last one.
struct Compared {
    now: Published,
    differences: Differences,
}

impl Compared {
    fn verdict(&self, publication: &Publication) -> (Option<Failure>, Option<Diagnosis>) {
        let Differences { gaps, doubts } = &self.differences;
        let is_gap = !gaps.is_empty() || (publication.uncertain_is_gap && !doubts.is_empty());
        if is_gap {
            let what: Vec<&str> = gaps.iter().chain(doubts).map(String::as_str).collect();
            let what = what.join("; ");
            return (Some(Error::PublicationChanged { what }.into()), None);
        }
        let doubt = (!doubts.is_empty()).then(|| {
            let text = format!(
                "{}: the catalog does not show whether every change was published in between; streaming continues",
                doubts.join("; ")
            );
            Diagnosis::warning(Kind::PublicationUncertain, text).with_hint(
                "if a change was left out, read the rows again with `walferry snapshot NAME --table SCHEMA.TABLE`; to stop at such a \
                 difference, set `walferry.publication.uncertain=gap`",
            )
        });
        (None, doubt)
    }
}

async fn compare(
    sql: &Sql,
    version: u32,
    publication: &Publication,
    (row, before): (Row, Lsn),
    known: Option<&Published>,
    wanted: &TableFilter,
) -> Result<Compared, Error> {
    let stored = storage(sql, &row).await?;
    // If the filter's regular expression gave up, fail: a table without a decision would count as not wanted.
    let mut now = limited(|| found(row, stored, before, publication, wanted)).map_err(Error::Expression)?;
    let Some(known) = known else {
        return Ok(Compared {
            now: now.published,
            differences: Differences::default(),
        });
    };
    keep_detached(sql, known, &mut now.published).await?;
    // Operations that the connector no longer captures may be missing.
    let known = Published {
        lsn: now.published.lsn,
        operations: known
            .operations
            .chars()
            .filter(|&letter| publication.captures(letter))
            .collect(),
        ..known.clone()
    };
    if known == now.published {
        return Ok(Compared {
            now: now.published,
            differences: Differences::default(),
        });
    }
    let suspects = suspects(sql, version, &known, &now.published).await?;
    let differences =
        limited(|| differences(&publication.name, &known, &now, &suspects, wanted)).map_err(Error::Expression)?;
    Ok(Compared {
        now: now.published,
        differences,
    })
}

/// The position up to which the server's log is on disk (primary) or replayed (standby).
async fn position(sql: &Sql) -> Result<Lsn, Error> {
    const QUERY: &str = "SELECT pg_catalog.json_build_object('lsn', CASE WHEN pg_catalog.pg_is_in_recovery()
        THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_flush_lsn() END)::text";
    let text: String = sql.value(DOING, QUERY, &[]).await?;
    let position: Position = parse(&text)?;
    Ok(position.lsn.unwrap_or_default())
}

/// Which publication.
enum Wanted<'a> {
    Name(&'a str),
    Oid(u32),
}

async fn row(sql: &Sql, version: u32, which: &Wanted<'_>) -> Result<Option<Row>, Error> {
    let (schemas, by_schema, definition) = if version >= 150_000 {
        (
            "SELECT pg_catalog.json_agg(pg_catalog.json_build_object('oid', s.pnnspid::int8, 'membership', s.oid::int8,
               'xmin', s.xmin::text::int8))
             FROM pg_catalog.pg_publication_namespace s WHERE s.pnpubid = p.oid",
            // These come first: if a table also has its own membership, that one counts.
            "SELECT c.oid AS prrelid, s.oid, s.xmin, NULL::text AS definition, (
               SELECT pg_catalog.json_build_array(d.xmin::text::int8, d.cmin::text::int8) FROM pg_catalog.pg_depend d
               WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
                 AND d.refclassid = 'pg_catalog.pg_namespace'::regclass LIMIT 1) AS home
             FROM pg_catalog.pg_publication_namespace s JOIN pg_catalog.pg_class c ON c.relnamespace = s.pnnspid
             WHERE s.pnpubid = p.oid AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p' UNION ALL",
            "NULLIF(pg_catalog.concat_ws(' ',
               (SELECT '(' || pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) || ')'
                FROM pg_catalog.pg_attribute a WHERE a.attrelid = o.prrelid AND a.attnum = ANY (o.prattrs)),
               'WHERE ' || pg_catalog.pg_get_expr(o.prqual, o.prrelid)), '')",
        )
    } else {
        ("NULL::text", "", "NULL::text")
    };
    let via_root = if version >= 130_000 { "p.pubviaroot" } else { "false" };
    let generated = if version >= 180_000 {
        "p.pubgencols::text"
    } else {
        "NULL"
    };
    let which_one = match which {
        Wanted::Name(_) => "p.pubname = $1",
        Wanted::Oid(_) => "p.oid = $1",
    };
    let query = format!(
        "
SELECT pg_catalog.json_build_object(
  'oid', p.oid::int8, 'xmin', p.xmin::text::int8, 'command', p.cmin::text::int8, 'name', p.pubname,
  'owner', pg_catalog.pg_get_userbyid(p.pubowner), 'all_tables', p.puballtables,
  'insert', p.pubinsert, 'update', p.pubupdate, 'delete', p.pubdelete, 'truncate', p.pubtruncate,
  'via_root', {via_root}, 'generated', {generated}, 'standby', pg_catalog.pg_is_in_recovery(),
  'tables', (
    SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
      'oid', r.prrelid::int8, 'membership', r.oid::int8, 'xmin', r.xmin::text::int8,
      'partitioned', c.relkind = 'p', 'schema', n.nspname, 'name', c.relname, 'home', r.home, 'definition', r.definition))
    FROM ({by_schema} SELECT o.prrelid, o.oid, o.xmin, {definition} AS definition, NULL::json AS home
          FROM pg_catalog.pg_publication_rel o WHERE o.prpubid = p.oid) r
    JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace),
  'schemas', ({schemas}),
  'partitions', (
    WITH RECURSIVE below(oid, root) AS (
      SELECT o.prrelid, o.prrelid FROM pg_catalog.pg_publication_rel o WHERE o.prpubid = p.oid
      UNION
      SELECT i.inhrelid, b.root FROM below b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid
        JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition)
    SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
      'oid', c.oid::int8, 'xmin', i.xmin::text::int8, 'command', i.cmin::text::int8, 'partitioned', c.relkind = 'p',
      'schema', n.nspname, 'name', c.relname, 'root', pg_catalog.json_build_array(m.nspname, t.relname)))
    FROM below b JOIN pg_catalog.pg_inherits i ON i.inhrelid = b.oid
    JOIN pg_catalog.pg_class c ON c.oid = b.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_class t ON t.oid = b.root JOIN pg_catalog.pg_namespace m ON m.oid = t.relnamespace
    WHERE b.oid <> b.root)
)::text FROM pg_catalog.pg_publication p WHERE {which_one}"
    );
    let rows = match which {
        Wanted::Name(name) => sql.rows(DOING, &query, &[(name, Type::TEXT)]).await?,
        Wanted::Oid(oid) => sql.rows(DOING, &query, &[(oid, Type::OID)]).await?,
    };
    rows.first().map(json).transpose()
}

/// What holds the rows of tables that it includes without naming them. A table that is named cannot become unlogged.
async fn storage(sql: &Sql, row: &Row) -> Result<Vec<StorageRow>, Error> {
    let schemas: Vec<u32> = row.schemas.iter().flatten().map(|schema| schema.oid).collect();
    let partitions: Vec<u32> = row.partitions.iter().flatten().map(|part| part.oid).collect();
    if !row.all_tables && schemas.is_empty() && partitions.is_empty() {
        return Ok(Vec::new());
    }
    const QUERY: &str = "
        SELECT pg_catalog.json_build_object(
          'oid', c.oid::int8, 'schema', n.nspname, 'name', c.relname, 'unlogged', c.relpersistence = 'u',
          'toast', c.reltoastrelid::int8, 'file', c.relfilenode::int8,
          'root', (SELECT pg_catalog.json_build_array(m.nspname, t.relname)
            FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace m ON m.oid = t.relnamespace
            WHERE c.relispartition AND t.oid = pg_catalog.pg_partition_root(c.oid)))::text
        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind = 'r' AND c.relpersistence IN ('p', 'u') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
          AND ($1 OR c.relnamespace = ANY ($2) OR c.oid = ANY ($3))";
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] = [
        (&row.all_tables, Type::BOOL),
        (&schemas, Type::OID_ARRAY),
        (&partitions, Type::OID_ARRAY),
    ];
    let rows = sql.rows(DOING, QUERY, &parameters).await?;
    rows.iter().map(json).collect()
}

/// A partition that is detached and filled, and attached later, was outside for a time. So it stays known meanwhile.
async fn keep_detached(sql: &Sql, known: &Published, now: &mut Published) -> Result<(), Error> {
    const QUERY: &str = "SELECT c.oid FROM pg_catalog.pg_class c WHERE c.oid = ANY ($1) AND c.relkind IN ('r', 'p')";
    let is_detached = |oid: &&u32| !now.partitions.contains_key(*oid) && !now.tables.contains_key(*oid);
    let detached: Vec<u32> = known.partitions.keys().filter(is_detached).copied().collect();
    if detached.is_empty() || known.oid != now.oid {
        return Ok(());
    }
    for row in sql.rows(DOING, QUERY, &[(&detached, Type::OID_ARRAY)]).await? {
        let oid: u32 = row.try_get(0).map_err(|error| Error::sql(DOING, error))?;
        now.partitions.insert(oid, known.partitions[&oid]);
    }
    Ok(())
}

/// The part of it that decides which captured rows are sent.
fn found(row: Row, stored: Vec<StorageRow>, lsn: Lsn, publication: &Publication, wanted: &TableFilter) -> Found {
    let sent = [
        ('i', "insert", row.insert),
        ('u', "update", row.update),
        ('d', "delete", row.delete),
        ('t', "truncate", row.truncate),
    ];
    let sent = sent.into_iter().filter(|&(_, _, sent)| sent);
    let publish: Vec<&str> = sent.clone().map(|(_, word, _)| word).collect();
    let mut options = format!(
        "publish = '{}', publish_via_partition_root = {}",
        publish.join(", "),
        row.via_root
    );
    if let Some(generated) = &row.generated {
        options.push_str(&format!(", publish_generated_columns = {generated}"));
    }
    let mut found = Found {
        published: Published {
            lsn,
            oid: row.oid,
            all_tables: row.all_tables,
            operations: sent
                .map(|(letter, ..)| letter)
                .filter(|&letter| publication.captures(letter))
                .collect(),
            xmin: row.xmin,
            name: row.name,
            owner: row.owner,
            options,
            ..Published::default()
        },
        command: row.command,
        standby: row.standby,
        ..Found::default()
    };
    let mut named = HashSet::new();
    for schema in row.schemas.unwrap_or_default() {
        found.published.schemas.insert(schema.oid, schema.membership);
        found.writers.insert(schema.xmin);
    }
    for table in row.tables.unwrap_or_default() {
        found.writers.insert(table.xmin);
        if table.home.is_none() {
            named.insert(table.oid);
        }
        // Rows of a partitioned table may be sent under the names of its partitions.
        if table.partitioned || wanted(&table.schema, &table.name) {
            found.table(table);
        }
    }
    for part in row.partitions.unwrap_or_default() {
        let is_captured = part.partitioned || wanted(&part.schema, &part.name) || wanted(&part.root.0, &part.root.1);
        if is_captured && !found.published.tables.contains_key(&part.oid) {
            found.names.insert(part.oid, format!("{}.{}", part.schema, part.name));
            found.published.partitions.insert(part.oid, part.xmin);
            found.attached.insert(part.oid, part.command);
        }
    }
    for table in stored {
        let is_root = |(schema, name): &(String, String)| wanted(schema, name);
        let is_captured = wanted(&table.schema, &table.name) || table.root.as_ref().is_some_and(is_root);
        if is_captured && !named.contains(&table.oid) {
            found.stored(&table);
        }
    }
    if found.published.storage.len() > MOST_STORED {
        found.published.storage.clear();
    }
    let definitions = &mut found.published.definitions;
    if definitions.values().map(String::len).sum::<usize>() > LONGEST_DEFINITIONS {
        definitions
            .values_mut()
            .for_each(|text| *text = "a column list or row filter".to_owned());
    }
    found
}

impl Found {
    fn table(&mut self, table: TableRow) {
        let published = &mut self.published;
        published.tables.insert(table.oid, table.membership);
        self.names.insert(table.oid, format!("{}.{}", table.schema, table.name));
        match table.home {
            Some((xmin, command)) => {
                published.homes.insert(table.oid, xmin);
                self.moved.insert(table.oid, command);
            }
            None => {
                published.homes.remove(&table.oid);
            }
        }
        if let Some(definition) = table.definition {
            published.definitions.insert(table.oid, definition);
        }
    }

    fn stored(&mut self, table: &StorageRow) {
        self.names.insert(table.oid, format!("{}.{}", table.schema, table.name));
        if table.unlogged {
            self.unlogged.insert(table.oid);
            return;
        }
        let holds = if table.toast == 0 { table.file } else { table.toast };
        self.published.storage.insert(table.oid, holds);
        self.files.insert(table.oid, table.file);
    }
}

/// The tables that still exist, but whose membership, or whose schema's membership, has changed.
async fn suspects(sql: &Sql, version: u32, known: &Published, now: &Published) -> Result<Vec<Suspect>, Error> {
    let (tables, schemas) = (lost(&known.tables, &now.tables), lost(&known.schemas, &now.schemas));
    if known.oid != now.oid || tables.is_empty() && schemas.is_empty() {
        return Ok(Vec::new());
    }
    let by_schema = if version >= 150_000 {
        "UNION ALL
          SELECT s.oid, s.cmin FROM pg_catalog.pg_publication_namespace s JOIN pg_catalog.pg_class t ON t.relnamespace = s.pnnspid
          WHERE s.pnpubid = $3 AND t.oid IN (SELECT oid FROM chain)"
    } else {
        ""
    };
    let query = format!(
        "
SELECT pg_catalog.json_build_object(
  'oid', c.oid::int8, 'schema', n.nspname, 'name', c.relname,
  'parts', COALESCE((
    SELECT pg_catalog.json_agg(pg_catalog.json_build_array(m.nspname, t.relname))
    FROM pg_catalog.pg_partition_tree(c.oid) p
    JOIN pg_catalog.pg_class t ON t.oid = p.relid JOIN pg_catalog.pg_namespace m ON m.oid = t.relnamespace), '[]'),
  'memberships', COALESCE((
    WITH chain(oid) AS (SELECT c.oid UNION SELECT relid::oid FROM pg_catalog.pg_partition_ancestors(c.oid))
    SELECT pg_catalog.json_agg(pg_catalog.json_build_object('oid', found.oid::int8, 'command', found.cmin::text::int8)) FROM (
      SELECT r.oid, r.cmin FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = $3 AND r.prrelid IN (SELECT oid FROM chain)
      {by_schema}) found), '[]')
)::text
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND (c.oid = ANY($1) OR c.relnamespace = ANY($2))
ORDER BY n.nspname, c.relname"
    );
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] = [
        (&tables, Type::OID_ARRAY),
        (&schemas, Type::OID_ARRAY),
        (&now.oid, Type::OID),
    ];
    let rows = sql.rows(DOING, &query, &parameters).await?;
    rows.iter().map(json).collect()
}

/// The error for a publication that no longer exists under its name.
async fn missing(
    sql: &Sql,
    publication: &Publication,
    known: &Published,
    renamed: Option<String>,
    wanted: &TableFilter,
) -> Result<Error, Error> {
    let mend = match &renamed {
        Some(renamed) => format!(
            "ALTER PUBLICATION {} RENAME TO {};",
            identifier(renamed),
            identifier(&publication.name)
        ),
        None => {
            let tables = listed(sql, wanted).await?.into_iter().filter(|table| table.permanent);
            create(publication, known, tables.map(|table| table.name).collect())
        }
    };
    Ok(Error::PublicationMissing {
        publication: publication.name.clone(),
        renamed,
        mend,
    })
}

/// The statement that creates it again.
fn create(publication: &Publication, known: &Published, tables: Vec<TableName>) -> String {
    /// Nobody copies a longer list from a page.
    const MOST: usize = 50;
    let create = publication.create_empty();
    match tables.len() {
        _ if known.all_tables => format!("{create} FOR ALL TABLES;"),
        1..=MOST => format!("{create} FOR TABLE {};", super::list(&tables)),
        _ => format!("{create} FOR TABLE …;"),
    }
}

fn json<T: serde::de::DeserializeOwned>(row: &tokio_postgres::Row) -> Result<T, Error> {
    parse(row.try_get(0).map_err(|error| Error::sql(DOING, error))?)
}

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Protocol {
        doing: DOING,
        problem: error.to_string(),
    })
}
