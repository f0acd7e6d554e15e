//! Looks at the publication while it is in use, and reports whether changes of captured tables may be missing since the
//! last look.
//!
//! pgoutput decodes each change with the publication as it was then. If a table is removed and added again, the stream
//! shows nothing of it. The catalog does: the membership has another oid afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use tokio_postgres::types::Type;
use walferry_config::limited;
use walferry_engine::Failure;
use walferry_engine::published::{PublicationLook, Published};
use walferry_engine::source::TableFilter;
use walferry_pgoutput::Lsn;

use super::Publication;
use crate::connect::Sql;
use crate::error::Error;
use crate::inspect::lsn;
use crate::quote::identifier;
use crate::tables::{TableName, listed};

const DOING: &str = "reading the publication";

/// The publication in the catalog.
#[derive(Debug, Deserialize)]
struct Row {
    oid: u32,
    all_tables: bool,
    insert: bool,
    update: bool,
    delete: bool,
    truncate: bool,
    tables: Option<Vec<Member>>,
    /// Oid of each schema and of its membership.
    schemas: Option<Vec<(u32, u32)>>,
}

/// A table that it includes, by itself or through a schema.
#[derive(Debug, Deserialize)]
struct Member {
    oid: u32,
    membership: u32,
    partitioned: bool,
    schema: String,
    name: String,
}

/// A table whose membership has changed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Suspect {
    schema: String,
    name: String,
    /// The table and its partitions, whose rows are sent under their own names.
    #[serde(default)]
    parts: Vec<(String, String)>,
    /// Memberships through which its rows are sent now: its own, its schema's, and those of tables that it is a
    /// partition of.
    #[serde(default)]
    memberships: Vec<u32>,
}

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
    let row = row(sql, version, &publication.name).await?;
    let Some(row) = row else {
        let missing = match known {
            Some(known) => Some(missing(sql, publication, known, wanted).await?),
            None => None,
        };
        return Ok(PublicationLook {
            published: None,
            is_renamed: matches!(missing, Some(Error::PublicationMissing { renamed: Some(_), .. })),
            gap: missing.map(Failure::from),
            lsn: position(sql).await?,
        });
    };
    // If the filter's regular expression gave up, fail: a table without a decision would count as not wanted.
    let now = limited(|| published(row, before, publication, wanted)).map_err(Error::Expression)?;
    // Operations that the connector no longer captures may be missing.
    let known = known.map(|known| Published {
        operations: known
            .operations
            .chars()
            .filter(|&letter| publication.captures(letter))
            .collect(),
        ..known.clone()
    });
    let what = match &known {
        Some(known) if same(known, &now) => None,
        Some(known) => {
            let suspects = suspects(sql, version, known, &now).await?;
            limited(|| difference(&publication.name, known, &now, &suspects, wanted)).map_err(Error::Expression)?
        }
        None => None,
    };
    Ok(PublicationLook {
        published: Some(Arc::new(now)),
        is_renamed: false,
        gap: what.map(|what| Error::PublicationChanged { what }.into()),
        lsn: position(sql).await?,
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

async fn row(sql: &Sql, version: u32, name: &str) -> Result<Option<Row>, Error> {
    let (schemas, by_schema) = if version >= 150_000 {
        (
            "SELECT pg_catalog.json_agg(pg_catalog.json_build_array(s.pnnspid::int8, s.oid::int8))
             FROM pg_catalog.pg_publication_namespace s WHERE s.pnpubid = p.oid",
            // These come first: if a table also has its own membership, that one counts.
            "SELECT c.oid AS prrelid, s.oid FROM pg_catalog.pg_publication_namespace s
             JOIN pg_catalog.pg_class c ON c.relnamespace = s.pnnspid
             WHERE s.pnpubid = p.oid AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p' UNION ALL",
        )
    } else {
        ("NULL::text", "")
    };
    let query = format!(
        "
SELECT pg_catalog.json_build_object(
  'oid', p.oid::int8, 'all_tables', p.puballtables,
  'insert', p.pubinsert, 'update', p.pubupdate, 'delete', p.pubdelete, 'truncate', p.pubtruncate,
  'tables', (
    SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
      'oid', r.prrelid::int8, 'membership', r.oid::int8, 'partitioned', c.relkind = 'p',
      'schema', n.nspname, 'name', c.relname))
    FROM ({by_schema} SELECT o.prrelid, o.oid FROM pg_catalog.pg_publication_rel o WHERE o.prpubid = p.oid) r
    JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace),
  'schemas', ({schemas})
)::text FROM pg_catalog.pg_publication p WHERE p.pubname = $1"
    );
    let rows = sql.rows(DOING, &query, &[(&name, Type::TEXT)]).await?;
    rows.first()
        .map(|row| parse(row.try_get(0).map_err(|error| Error::sql(DOING, error))?))
        .transpose()
}

/// The part of it that decides which captured rows are sent.
fn published(row: Row, lsn: Lsn, publication: &Publication, wanted: &TableFilter) -> Published {
    let sent = [
        ('i', row.insert),
        ('u', row.update),
        ('d', row.delete),
        ('t', row.truncate),
    ];
    let operations = sent
        .into_iter()
        .filter(|&(letter, sent)| sent && publication.captures(letter))
        .map(|(letter, _)| letter)
        .collect();
    let tables = row.tables.unwrap_or_default().into_iter();
    Published {
        lsn,
        oid: row.oid,
        all_tables: row.all_tables,
        operations,
        schemas: row.schemas.unwrap_or_default().into_iter().collect(),
        tables: tables
            // Rows of a partitioned table may be sent under the names of its partitions.
            .filter(|table| table.partitioned || wanted(&table.schema, &table.name))
            .map(|table| (table.oid, table.membership))
            .collect(),
    }
}

fn same(a: &Published, b: &Published) -> bool {
    (a.oid, a.all_tables, &a.operations) == (b.oid, b.all_tables, &b.operations)
        && a.schemas == b.schemas
        && a.tables == b.tables
}

/// The keys that `now` lacks, or has with another membership.
fn lost(before: &BTreeMap<u32, u32>, now: &BTreeMap<u32, u32>) -> Vec<u32> {
    let is_lost = |of: &u32, membership: &u32| now.get(of) != Some(membership);
    before
        .iter()
        .filter(|(of, membership)| is_lost(of, membership))
        .map(|(of, _)| *of)
        .collect()
}

/// The tables that still exist, but whose membership, or whose schema's membership, has changed.
async fn suspects(sql: &Sql, version: u32, known: &Published, now: &Published) -> Result<Vec<Suspect>, Error> {
    let (tables, schemas) = (lost(&known.tables, &now.tables), lost(&known.schemas, &now.schemas));
    if known.oid != now.oid || tables.is_empty() && schemas.is_empty() {
        return Ok(Vec::new());
    }
    let by_schema = if version >= 150_000 {
        "UNION ALL
          SELECT s.oid FROM pg_catalog.pg_publication_namespace s JOIN pg_catalog.pg_class t ON t.relnamespace = s.pnnspid
          WHERE s.pnpubid = $3 AND t.oid IN (SELECT oid FROM chain)"
    } else {
        ""
    };
    let query = format!(
        "
SELECT pg_catalog.json_build_object(
  'schema', n.nspname, 'name', c.relname,
  'parts', COALESCE((
    SELECT pg_catalog.json_agg(pg_catalog.json_build_array(m.nspname, t.relname))
    FROM pg_catalog.pg_partition_tree(c.oid) p
    JOIN pg_catalog.pg_class t ON t.oid = p.relid JOIN pg_catalog.pg_namespace m ON m.oid = t.relnamespace), '[]'),
  'memberships', COALESCE((
    WITH chain(oid) AS (SELECT c.oid UNION SELECT relid::oid FROM pg_catalog.pg_partition_ancestors(c.oid))
    SELECT pg_catalog.json_agg(found.oid::int8) FROM (
      SELECT r.oid FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = $3 AND r.prrelid IN (SELECT oid FROM chain)
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
    rows.iter()
        .map(|row| parse(row.try_get(0).map_err(|error| Error::sql(DOING, error))?))
        .collect()
}

/// What has changed such that captured rows may be missing. `None` if none can be. Additions cannot cause that, nor can
/// dropped tables, nor tables that other memberships have covered all the time.
fn difference(
    publication: &str,
    known: &Published,
    now: &Published,
    suspects: &[Suspect],
    wanted: &TableFilter,
) -> Option<String> {
    if known.oid != now.oid {
        return Some(format!(
            "publication {publication:?} was dropped and created again (oid {}, before {})",
            now.oid, known.oid
        ));
    }
    let mut changes = Vec::new();
    let all_the_time: BTreeSet<u32> = known.tables.values().chain(known.schemas.values()).copied().collect();
    let is_captured = |suspect: &Suspect| {
        let parts = suspect.parts.iter().map(|(schema, name)| (schema, name));
        let mut names = parts.chain([(&suspect.schema, &suspect.name)]);
        names.any(|(schema, name)| wanted(schema, name))
    };
    let left = suspects.iter().filter(|suspect| {
        let memberships = &suspect.memberships;
        is_captured(suspect) && !memberships.iter().any(|membership| all_the_time.contains(membership))
    });
    let (back, away): (Vec<&Suspect>, Vec<&Suspect>) = left.partition(|suspect| !suspect.memberships.is_empty());
    if !away.is_empty() {
        changes.push(format!("{} left publication {publication:?}", names(&away)));
    }
    if !back.is_empty() {
        changes.push(format!(
            "{} left publication {publication:?} and was added again, perhaps with another row filter or column list",
            names(&back)
        ));
    }
    let missing: Vec<&str> = known
        .operations
        .chars()
        .filter(|letter| !now.operations.contains(*letter))
        .map(|letter| match letter {
            'i' => "inserts",
            'u' => "updates",
            'd' => "deletes",
            _ => "truncates",
        })
        .collect();
    if !missing.is_empty() {
        changes.push(format!(
            "publication {publication:?} no longer publishes {}",
            missing.join(", ")
        ));
    }
    (!changes.is_empty()).then(|| changes.join("; "))
}

/// The names of at most `MOST` tables.
fn names(tables: &[&Suspect]) -> String {
    const MOST: usize = 10;
    let mut names: Vec<String> = tables
        .iter()
        .take(MOST)
        .map(|table| format!("{}.{}", table.schema, table.name))
        .collect();
    if tables.len() > MOST {
        names.push(format!("{} more", tables.len() - MOST));
    }
    let word = if tables.len() == 1 { "table" } else { "tables" };
    format!("{word} {}", names.join(", "))
}

/// The error for a publication that no longer exists under its name.
async fn missing(
    sql: &Sql,
    publication: &Publication,
    known: &Published,
    wanted: &TableFilter,
) -> Result<Error, Error> {
    const QUERY: &str = "SELECT p.pubname::text FROM pg_catalog.pg_publication p WHERE p.oid = $1";
    let rows = sql.rows(DOING, QUERY, &[(&known.oid, Type::OID)]).await?;
    let renamed: Option<String> = match rows.first() {
        Some(row) => Some(row.try_get(0).map_err(|error| Error::sql(DOING, error))?),
        None => None,
    };
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

fn parse<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| Error::Protocol {
        doing: DOING,
        problem: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Published {
        Published {
            oid: 1,
            operations: "iud".into(),
            tables: BTreeMap::from([(10, 100), (11, 101)]),
            schemas: BTreeMap::from([(20, 200)]),
            ..Published::default()
        }
    }

    fn suspect(name: &str, memberships: &[u32]) -> Suspect {
        Suspect {
            schema: "public".into(),
            name: name.into(),
            parts: Vec::new(),
            memberships: memberships.to_vec(),
        }
    }

    /// The reported difference after `change` to the publication and these tables. The tables `a` to `z` are captured.
    fn told(change: impl FnOnce(&mut Published), suspects: &[Suspect]) -> Option<String> {
        let mut now = known();
        change(&mut now);
        let wanted: TableFilter = Arc::new(|_, name| name.len() == 1);
        difference("p", &known(), &now, suspects, &wanted)
    }

    #[test]
    fn what_may_have_left_rows_out_is_told() {
        let partition = Suspect {
            parts: vec![("public".into(), "a".into())],
            ..suspect("parted", &[])
        };
        let cases = [
            (
                told(|now| now.oid = 2, &[]),
                "dropped and created again (oid 2, before 1)",
            ),
            (
                told(
                    |now| {
                        now.tables.remove(&10);
                    },
                    &[suspect("a", &[])],
                ),
                "table public.a left",
            ),
            (
                told(
                    |now| {
                        now.tables.insert(10, 102);
                    },
                    &[suspect("a", &[102])],
                ),
                "table public.a left publication \"p\" and was added again",
            ),
            // A new membership says nothing about the time before it.
            (
                told(
                    |now| {
                        now.schemas.insert(21, 201);
                    },
                    &[suspect("a", &[201])],
                ),
                "was added again",
            ),
            (
                told(
                    |now| {
                        now.schemas.clear();
                    },
                    &[suspect("a", &[]), suspect("b", &[])],
                ),
                "tables public.a, public.b left",
            ),
            (told(|_| {}, &[partition]), "table public.parted left"),
            (
                told(|now| now.operations = "iu".into(), &[]),
                "no longer publishes deletes",
            ),
            (
                told(|now| now.operations = String::new(), &[]),
                "no longer publishes inserts, updates, deletes",
            ),
        ];
        for (told, expected) in cases {
            assert!(
                told.as_deref().is_some_and(|told| told.contains(expected)),
                "{expected}: {told:?}"
            );
        }
    }

    #[test]
    fn ordinary_changes_are_no_gap() {
        let cases = [
            ("nothing", told(|_| {}, &[])),
            (
                "a table is added",
                told(
                    |now| {
                        now.tables.insert(12, 102);
                    },
                    &[],
                ),
            ),
            (
                "a schema is added",
                told(
                    |now| {
                        now.schemas.insert(21, 201);
                    },
                    &[],
                ),
            ),
            ("an operation is added", told(|now| now.operations = "iudt".into(), &[])),
            // The table is not in the catalog, so it is not a suspect.
            (
                "a table is dropped",
                told(
                    |now| {
                        now.tables.remove(&10);
                    },
                    &[],
                ),
            ),
            (
                "a table leaves that is not captured",
                told(
                    |now| {
                        now.tables.remove(&10);
                    },
                    &[suspect("other", &[])],
                ),
            ),
            (
                "a table leaves whose schema stays",
                told(
                    |now| {
                        now.tables.remove(&10);
                    },
                    &[suspect("a", &[200])],
                ),
            ),
            (
                "a partition leaves whose parent stays",
                told(
                    |now| {
                        now.tables.remove(&10);
                    },
                    &[suspect("a", &[101])],
                ),
            ),
        ];
        for (name, told) in cases {
            assert_eq!(told, None, "{name}");
        }
    }

    #[test]
    fn memberships_that_are_other_ones_are_looked_at() {
        let before = BTreeMap::from([(1, 10), (2, 20), (3, 30)]);
        let now = BTreeMap::from([(1, 10), (2, 21), (4, 40)]);
        assert_eq!(lost(&before, &now), [2, 3]);
    }
}
