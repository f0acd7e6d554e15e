//! From where on the rows of outbox tables are known to be sent.
//!
//! A floor is valid as long as nothing that decides whether a row is sent has changed. The catalog says so itself: each of its rows has an
//! `xmin`, the id of the transaction that wrote it, which never comes back. A text of these ids is compared at each look. If a table is
//! renamed and renamed back between two looks, or leaves the publication and returns, its text has changed all the same, and it gets
//! a new floor.
//!
//! Each partition has a floor of its own. A table may have rows that were never sent before it is attached as a partition. So only rows count
//! whose transaction began to write after Walferry had seen the partition at its place.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};

use super::{CleanedTable, LOOKING, Target, delete, is_due};
use crate::connect::Sql;
use crate::error::Error;
use crate::quote::{identifier, qualified};

/// What is known of the tables on this connection.
#[derive(Debug)]
pub(super) struct Floors {
    publication: String,
    /// By table.
    floors: HashMap<String, Floor>,
    /// Whether the publication sends all rows of a table, by table.
    published: HashMap<String, Published>,
    /// Tables of which a warning was logged.
    warned: HashSet<String>,
}

/// Rows of a table that were written before it may never have been sent.
#[derive(Debug)]
struct Floor {
    /// The versions of the catalog's rows of the table and of its publication.
    of: String,
    /// The table itself, or its partitions.
    parts: HashMap<u32, Part>,
}

/// A table that holds rows.
#[derive(Debug)]
struct Part {
    /// The versions of the catalog's rows that make it a partition.
    of: String,
    /// A transaction id.
    xid: i64,
    /// Its time by the server's clock and a slack, in microseconds since 1970.
    since_us: i64,
}

/// An answer of the server.
#[derive(Debug)]
struct Published {
    /// What it holds for, as in [`Floor::of`].
    of: String,
    all_rows: bool,
    asked: Instant,
}

/// What the catalog says of a table.
struct Facts {
    shown: String,
    kind: String,
    is_partitioned: bool,
    oid: u32,
    of: String,
}

/// To list the tables of a publication may take long in a database with many tables. The answer counts for so long if nothing has changed.
const PUBLISHED_INTERVAL: Duration = Duration::from_secs(600);

/// A row must be younger than its floor by as much as rows are kept, within these limits: a column may round its times, and the clocks of
/// applications may be ahead of the server's.
const SLACK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

impl Floors {
    pub(super) fn new(publication: &str) -> Self {
        Self {
            publication: publication.to_owned(),
            floors: HashMap::new(),
            published: HashMap::new(),
            warned: HashSet::new(),
        }
    }

    /// The connection is another one: rows that are there now are never removed.
    pub(super) fn forget(&mut self) {
        self.floors.clear();
        self.published.clear();
    }

    /// The tables whose rows may be removed, with what removes them. A table or a partition that is new among them gets a floor, and one that
    /// is no longer among them loses its own.
    pub(super) async fn targets(
        &mut self,
        sql: &Sql,
        tables: &[CleanedTable],
        not_captured: &HashSet<u32>,
    ) -> Result<Vec<Target>, Error> {
        let has_schemas: bool = sql.value(LOOKING, HAS_SCHEMAS, &[]).await?;
        let mut found = Vec::new();
        for table in tables {
            // It was dropped meanwhile.
            let Some(facts) = self.facts(sql, table, has_schemas).await? else {
                continue;
            };
            // The stream still brings its rows under another name: it has no new description of it.
            if not_captured.contains(&facts.oid) {
                if self.warned.insert(format!("{} {}", facts.shown, facts.oid)) {
                    tracing::warn!(
                        table = facts.shown,
                        hint = "restart the connector after a table has got the name of the outbox",
                        "delivered rows are not removed: the stream does not know yet that this table is captured"
                    );
                }
                continue;
            }
            if !self.sends_all_rows(sql, table, &facts).await? {
                let hint = "publish all inserted rows of the table, without a row filter, or remove walferry.retention.ms. Rows that were \
                            written until then are never removed";
                if self.warned.insert(format!("{} is not published", facts.shown)) {
                    tracing::warn!(
                        table = facts.shown,
                        publication = self.publication,
                        hint,
                        "delivered rows are not removed: the publication does not send all rows of the table"
                    );
                }
                continue;
            }
            let column = identifier(&table.column);
            let Some(is_due) = is_due(&column, &facts.kind) else {
                if self.warned.insert(format!("{} has no time", facts.shown)) {
                    tracing::warn!(
                        table = facts.shown,
                        column = table.column,
                        found = facts.kind,
                        hint = "name a column of type timestamptz, timestamp or bigint in table.field.event.timestamp",
                        "delivered rows are not removed: the column does not tell how old a row is"
                    );
                }
                continue;
            };
            let name = qualified(&table.schema, &table.name);
            let (from, parts) = match facts.is_partitioned {
                true => (name, parts(sql, facts.oid).await?),
                // Tables that inherit from it have a publication of their own, or none.
                false => (format!("ONLY {name}"), HashMap::from([(facts.oid, String::new())])),
            };
            found.push((table, facts, delete(&from, &column, &is_due), parts));
        }
        let seen = found.iter().map(|(table, facts, _, parts)| (*table, facts, parts));
        self.lay(sql, seen.collect()).await?;
        let targets = found.into_iter().map(|(table, facts, delete, _)| {
            let floor = self.floors.get(&facts.shown);
            let parts = || floor.into_iter().flat_map(|floor| &floor.parts);
            Target {
                delete,
                keep_ms: i64::try_from(table.keep.as_millis()).unwrap_or(i64::MAX),
                batch_rows: table.batch_rows.into(),
                parts: parts().map(|(oid, _)| *oid).collect(),
                xids: parts().map(|(_, part)| part.xid).collect(),
                since_us: parts().map(|(_, part)| part.since_us).collect(),
                table: facts.shown,
            }
        });
        // A partitioned table may have no partition yet.
        Ok(targets.filter(|target| !target.parts.is_empty()).collect())
    }

    async fn facts(&self, sql: &Sql, table: &CleanedTable, has_schemas: bool) -> Result<Option<Facts>, Error> {
        let parameters: [(&(dyn ToSql + Sync), Type); 4] = [
            (&table.schema, Type::TEXT),
            (&table.name, Type::TEXT),
            (&table.column, Type::TEXT),
            (&self.publication, Type::TEXT),
        ];
        let rows = sql.rows(LOOKING, &facts_query(has_schemas), &parameters).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let read = |error| Error::sql(LOOKING, error);
        Ok(Some(Facts {
            shown: format!("{}.{}", table.schema, table.name),
            kind: row.try_get(0).map_err(read)?,
            is_partitioned: row.try_get(1).map_err(read)?,
            oid: row.try_get(2).map_err(read)?,
            of: row.try_get(3).map_err(read)?,
        }))
    }

    /// Whether the publication sends all inserted rows of the table, under its own name.
    ///
    /// The answer may be newer than the facts. If something has changed between the two, the next look finds other facts, and the table then
    /// gets a new floor before any row is removed: rows are removed only after a look that follows a confirmed mark.
    async fn sends_all_rows(&mut self, sql: &Sql, table: &CleanedTable, facts: &Facts) -> Result<bool, Error> {
        let known = self.published.get(&facts.shown);
        if let Some(known) = known.filter(|known| known.of == facts.of && known.asked.elapsed() < PUBLISHED_INTERVAL) {
            return Ok(known.all_rows);
        }
        let parameters: [(&(dyn ToSql + Sync), Type); 3] = [
            (&table.schema, Type::TEXT),
            (&table.name, Type::TEXT),
            (&self.publication, Type::TEXT),
        ];
        let all_rows: bool = sql.value(LOOKING, PUBLISHED, &parameters).await?;
        let published = Published {
            of: facts.of.clone(),
            all_rows,
            asked: Instant::now(),
        };
        self.published.insert(facts.shown.clone(), published);
        Ok(all_rows)
    }

    /// Keeps the floors of tables and partitions that are what they were, removes the others, and lays new ones.
    async fn lay(&mut self, sql: &Sql, seen: Vec<(&CleanedTable, &Facts, &HashMap<u32, String>)>) -> Result<(), Error> {
        let is_as_before = |table: &str, floor: &Floor| {
            let mut seen = seen.iter();
            seen.any(|(_, facts, _)| facts.shown == table && facts.of == floor.of)
        };
        self.floors.retain(|table, floor| is_as_before(table, floor));
        let mut is_any_new = false;
        for (_, facts, parts) in &seen {
            let floor = self.floors.get_mut(&facts.shown);
            is_any_new |= match floor {
                Some(floor) => {
                    floor.parts.retain(|oid, part| parts.get(oid) == Some(&part.of));
                    floor.parts.len() < parts.len()
                }
                None => true,
            };
        }
        if !is_any_new {
            return Ok(());
        }
        // After the look: transactions that get an id from now on write while the table is published.
        let rows = sql.rows(LOOKING, NEXT, &[]).await?;
        let row = rows.first().ok_or_else(|| Error::Protocol {
            doing: LOOKING,
            problem: "no row".to_owned(),
        })?;
        let number =
            |place: usize| -> Result<i64, Error> { row.try_get(place).map_err(|error| Error::sql(LOOKING, error)) };
        let (xid, now_us) = (number(0)?, number(1)?);
        for (table, facts, parts) in seen {
            let slack = table.keep.clamp(SLACK.0, SLACK.1);
            let since_us = now_us.saturating_add(i64::try_from(slack.as_micros()).unwrap_or(i64::MAX));
            let is_new = !self.floors.contains_key(&facts.shown);
            let floor = self.floors.entry(facts.shown.clone()).or_insert_with(|| Floor {
                of: facts.of.clone(),
                parts: HashMap::new(),
            });
            let before = floor.parts.len();
            for (oid, of) in parts {
                if !floor.parts.contains_key(oid) {
                    // Rows that are there now must not pass for later ones, whatever the clocks say.
                    let latest_us = latest(sql, *oid, &identifier(&table.column), &facts.kind).await?;
                    if latest_us > since_us && self.warned.insert(format!("{} is ahead", facts.shown)) {
                        tracing::warn!(
                            table = facts.shown,
                            column = table.column,
                            hint = "write the time at which the row is inserted; a column without time zone needs it in UTC",
                            "a row has a time in the future: only rows that are later than it are removed"
                        );
                    }
                    let part = Part {
                        of: of.clone(),
                        xid,
                        since_us: since_us.max(latest_us),
                    };
                    floor.parts.insert(*oid, part);
                }
            }
            if is_new {
                tracing::info!(
                    table = facts.shown,
                    "rows that are written from now on are removed once they are old and delivered; rows from before stay"
                );
            } else if floor.parts.len() > before {
                tracing::info!(
                    table = facts.shown,
                    partitions = floor.parts.len() - before,
                    "the table has new partitions: rows that were written to them before now are not removed"
                );
            }
        }
        Ok(())
    }
}

/// The tables that hold rows of a partitioned table and that are in the WAL, each with the versions of the catalog's rows that put it there.
async fn parts(sql: &Sql, root: u32) -> Result<HashMap<u32, String>, Error> {
    // A partition that is about to be detached is no longer streamed. Before Postgres 14, there are none.
    const PARTS: &str = "
        WITH RECURSIVE tree AS (
          SELECT $1::oid AS oid, ''::text AS of
          UNION ALL
          SELECT i.inhrelid, pg_catalog.concat_ws('.', tree.of, i.inhrelid, i.xmin, c.xmin, n.oid)
          FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid
               JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
               JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
          WHERE COALESCE(pg_catalog.to_jsonb(i) ->> 'inhdetachpending', 'false') = 'false'
        )
        SELECT c.oid, tree.of FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid
        WHERE c.relkind = 'r' AND c.relpersistence = 'p'
          AND c.relam IN (SELECT m.oid FROM pg_catalog.pg_am m WHERE m.amname = 'heap')";
    let rows = sql.rows(LOOKING, PARTS, &[(&root, Type::OID)]).await?;
    let read = |error| Error::sql(LOOKING, error);
    let parts = rows
        .iter()
        .map(|row| Ok((row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?)));
    parts.collect()
}

/// The end of the year 9999: a floor that no row is behind. The server cannot compute with much later times.
const NEVER_US: i64 = 253_402_300_799_000_000;

/// The latest time in a column of a table, in microseconds since 1970.
async fn latest(sql: &Sql, oid: u32, column: &str, kind: &str) -> Result<i64, Error> {
    const NAME: &str = "SELECT pg_catalog.format('%I.%I', n.nspname, c.relname)
                        FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1";
    let rows = sql.rows(LOOKING, NAME, &[(&oid, Type::OID)]).await?;
    // It was dropped meanwhile, so it has no rows.
    let Some(row) = rows.first() else { return Ok(NEVER_US) };
    let name: String = row.try_get(0).map_err(|error| Error::sql(LOOKING, error))?;
    let micros = match kind {
        "bigint" => format!("(pg_catalog.max({column}) + 1) * 1000"),
        // A time without a zone counts as UTC, as in records.
        _ => format!("pg_catalog.ceil(EXTRACT(epoch FROM pg_catalog.max({column})) * 1000000)"),
    };
    // A time that does not fit, such as infinity, lies beyond every row.
    let query = format!(
        "SELECT CASE WHEN latest IS NULL OR latest < 0 THEN 0 WHEN latest < {NEVER_US} THEN latest::int8 ELSE {NEVER_US} END
         FROM (SELECT ({micros})::numeric AS latest FROM ONLY {name}) AS t"
    );
    sql.value(LOOKING, &query, &[]).await
}

/// Postgres 15 and later publish schemas.
const HAS_SCHEMAS: &str = "SELECT pg_catalog.to_regclass('pg_catalog.pg_publication_namespace') IS NOT NULL";

/// Whether a publication sends all rows of a table, with all columns. It lists a partitioned table, or its partitions, as it sends them.
const PUBLISHED: &str = "
    SELECT EXISTS (SELECT FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_tables t ON t.pubname = p.pubname
                   WHERE p.pubname = $3 AND p.pubinsert AND pg_catalog.to_jsonb(t) ->> 'rowfilter' IS NULL
                     AND t.schemaname = $1 AND t.tablename = $2)
       AND NOT EXISTS (SELECT FROM pg_catalog.pg_publication_tables t
                            JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname
                            JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename
                            JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
                       WHERE t.pubname = $3 AND t.schemaname = $1 AND t.tablename = $2
                         AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
                         AND pg_catalog.jsonb_typeof(pg_catalog.to_jsonb(t) -> 'attnames') = 'array'
                         AND NOT pg_catalog.jsonb_exists(pg_catalog.to_jsonb(t) -> 'attnames', a.attname::text))";

/// The server's next transaction id, and its clock.
const NEXT: &str = "SELECT pg_catalog.pg_current_xact_id()::text::int8,
                           (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8";

/// Facts of a table, by its name, a column, and a publication. The last one is made of everything that decides whether a row of the table is
/// sent under its name: the table, its column and its schema, the partitioned tables above it with their schemas, and what the publication
/// says of them. These are a few rows, whatever the number of tables in the database.
fn facts_query(has_schemas: bool) -> String {
    let schemas = match has_schemas {
        true => {
            "SELECT pg_catalog.string_agg(pg_catalog.concat_ws('.', s.oid, s.xmin), ',' ORDER BY s.oid)
             FROM pg_catalog.pg_publication_namespace s
             WHERE s.pnpubid = p.oid
               AND s.pnnspid IN (SELECT t.relnamespace FROM pg_catalog.pg_class t WHERE t.oid = ANY (up.oids))"
        }
        false => "SELECT NULL",
    };
    format!(
        "SELECT pg_catalog.format_type(a.atttypid, NULL), c.relkind = 'p', c.oid,
                pg_catalog.concat_ws('/', c.oid, c.xmin, n.oid, n.xmin, a.attnum, a.xmin,
                  COALESCE(p.oid::text, '-'), COALESCE(p.xmin::text, '-'),
                  COALESCE((SELECT pg_catalog.string_agg(pg_catalog.concat_ws('.', t.oid, t.xmin, s.oid, s.xmin), ',' ORDER BY t.oid)
                            FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace s ON s.oid = t.relnamespace
                            WHERE t.oid = ANY (up.oids)), '-'),
                  COALESCE((SELECT pg_catalog.string_agg(pg_catalog.concat_ws('.', r.oid, r.xmin), ',' ORDER BY r.oid)
                            FROM pg_catalog.pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = ANY (up.oids)), '-'),
                  COALESCE(({schemas}), '-'))
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
              JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
              LEFT JOIN pg_catalog.pg_publication p ON p.pubname = $4
              CROSS JOIN LATERAL (SELECT ARRAY (SELECT c.oid UNION
                                                SELECT x.relid::oid FROM pg_catalog.pg_partition_ancestors(c.oid) AS x (relid)) AS oids) up
         WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p')
           AND a.attname = $3 AND a.attnum > 0 AND NOT a.attisdropped"
    )
}
