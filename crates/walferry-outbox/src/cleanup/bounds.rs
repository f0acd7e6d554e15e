//! From where on the rows of outbox tables are known to be sent.
//!
//! A lower bound is valid as long as nothing that decides whether a row is sent has changed. The catalog says so itself: each of its rows has an
//! `xmin`, the id of the transaction that wrote it, which never comes back. A text of these ids is compared at each look. If a table is
//! renamed and renamed back between two looks, or leaves the publication and returns, its text has changed all the same, and it gets
//! a new lower bound.
//!
//! Lower bounds outlive connections and restarts as long as the stream goes on exactly where it was ([`crate::lower_bounds`]): then what has
//! not changed since the lower bound was laid has been sent, whoever sent it.
//!
//! Each partition has a lower bound of its own. A table may have rows that were never sent before it is attached as a partition. So only rows count
//! whose transaction began to write after Walferry had seen the partition at its place.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};
use walferry_engine::lower_bounds::{PartLowerBound, TableLowerBound};

use super::drops::{DropPauses, Droppable, begin_as};
use super::part_bounds::PartBounds;
use super::table::{CleanedTable, DOING, LOOKING};
use super::target::{CleanupTarget, Statements};
use crate::lower_bounds::RunBounds;
use crate::partitions::{Part, ranges};
use crate::said::SaidOnce;
use crate::time_column::{NEVER_US, TimeColumn};
use walferry_postgres::Error;
use walferry_postgres::connection::Sql;
use walferry_postgres::quote::{identifier, qualified};

/// What is known of the tables.
#[derive(Debug)]
pub(super) struct TableBounds {
    publication: String,
    /// By table.
    bounds: HashMap<String, TableBound>,
    /// Whether the publication sends all rows of a table, by table.
    published: HashMap<String, Published>,
    /// Partitions that could not be looked at.
    unchecked: HashMap<u32, Unchecked>,
    /// Default partitions that could not be read by themselves, and when each is tried again.
    unread: HashMap<u32, Instant>,
    said: SaidOnce,
}

/// After so long, such a partition is tried again. Meanwhile its rows are searched, and with them those of all other partitions.
const UNREAD: Duration = Duration::from_secs(600);

/// The same if a lock was not to be had, or the server was slow: that may be over soon.
const BRIEFLY_UNREAD: Duration = Duration::from_secs(30);

/// How long a lock on such a partition is waited for, and how long it is read.
const HAS_ROWS_LIMITS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(200));

/// A partition that could not be looked at. It gets a lower bound later; without one, its rows stay.
#[derive(Debug)]
struct Unchecked {
    table: String,
    error: String,
    /// Not tried again before.
    until: Instant,
}

/// What a look has found.
#[derive(Debug, Default)]
pub(super) struct CleanupLook {
    /// Tables whose rows may be removed.
    pub(super) targets: Vec<CleanupTarget>,
    /// Tables that could not be looked at, and how long it took. Their lower bounds stay.
    pub(super) failed: Vec<(String, Error, Duration)>,
    /// How many partitions could not be looked at. It was logged.
    pub(super) unchecked: u64,
}

/// Rows of a table that were written before it may never have been sent.
#[derive(Debug)]
struct TableBound {
    laid: TableLowerBound,
    /// How often the stream had taken the table for one that is not captured, and then for a captured one.
    left: u64,
}

/// An answer of the server.
#[derive(Debug)]
struct Published {
    /// What it holds for, as in [`TableLowerBound::of`].
    of: String,
    all_rows: bool,
    asked: Instant,
}

/// What the catalog says of a table.
struct Facts {
    table_name: String,
    kind: String,
    is_partitioned: bool,
    oid: u32,
    of: String,
    /// As in [`TableBound::left`].
    left: u64,
}

/// A table whose rows may be removed.
struct LookedTable<'a> {
    table: &'a CleanedTable,
    facts: Facts,
    time: TimeColumn,
    /// As in `FROM`.
    from: String,
    /// The tables that hold its rows, each with what makes it one of them.
    parts: HashMap<u32, String>,
    /// Those that are dropped as a whole, by oid; `None` for a default partition without rows that could be removed.
    drops: HashMap<u32, Option<Droppable>>,
}

/// To list the tables of a publication may take long in a database with many tables. The answer counts for so long if nothing has changed.
const PUBLISHED_INTERVAL: Duration = Duration::from_secs(600);

/// A row must be younger than its lower bound by as much as rows are kept, within these limits: a column may round its times, and the clocks of
/// applications may be ahead of the server's.
const SLACK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How long a partition rests that could not be looked at, and how many times as long as that took, for each of them: a look holds up the
/// removal from all tables.
const UNCHECKED_PAUSE: (Duration, u32) = (Duration::from_secs(30), 20);

/// A partition that could not be looked at must not hold up the others for longer.
const LAY_TURN: Duration = Duration::from_secs(2);

impl TableBounds {
    pub(super) fn new(publication: &str) -> Self {
        Self {
            publication: publication.to_owned(),
            bounds: HashMap::new(),
            published: HashMap::new(),
            unchecked: HashMap::new(),
            unread: HashMap::new(),
            said: SaidOnce::default(),
        }
    }

    /// The stream did not go on where it was, or the server is another one: rows that are there now are never removed.
    pub(super) fn forget(&mut self) {
        self.bounds.clear();
        self.published.clear();
        self.unchecked.clear();
        self.unread.clear();
    }

    /// Takes over lower bounds that were kept. The next look compares them with the catalog. Lower bounds that were laid since then come later, so they
    /// give way, but for what they say has changed meanwhile.
    pub(super) fn restore(&mut self, tables: &BTreeMap<String, TableLowerBound>) {
        for (table, stored) in tables {
            // With a lower bound, a part is not looked at for one any more.
            self.unchecked.retain(|oid, _| !stored.parts.contains_key(oid));
            let Some(TableBound { laid, left }) = self.bounds.get_mut(table) else {
                let laid = stored.clone();
                self.bounds.insert(table.clone(), TableBound { laid, left: 0 });
                continue;
            };
            if (laid.oid, &laid.of, *left) != (stored.oid, &stored.of, 0) {
                continue;
            }
            for (oid, part) in &stored.parts {
                if laid.parts.get(oid).is_none_or(|later| later.of == part.of) {
                    laid.parts.insert(*oid, part.clone());
                }
            }
        }
    }

    /// The lower bounds, for a later run, and for each table [`CaptureState::left`](crate::lower_bounds::CaptureState::left) when its lower bound was laid.
    pub(super) fn stored(&self) -> (BTreeMap<String, TableLowerBound>, HashMap<u32, u64>) {
        let tables = self.bounds.iter();
        let tables = tables.map(|(table, bound)| (table.clone(), bound.laid.clone()));
        let left = self.bounds.values().map(|bound| (bound.laid.oid, bound.left));
        (tables.collect(), left.collect())
    }

    /// The tables whose rows may be removed, with what removes them. A table or a partition that is new among them gets a lower bound, and one that
    /// is no longer among them loses its own. Tables that rest are not looked at, and keep their lower bounds: the next look compares these with
    /// the catalog. From a partition that is `undropped` because of its rows, rows are removed.
    ///
    /// # Errors
    /// The connection is lost. What fails for one table is returned with the others.
    pub(super) async fn look(
        &mut self,
        sql: &Sql,
        tables: &[CleanedTable],
        run: &RunBounds,
        is_paused: impl Fn(&str) -> bool,
        undropped: &DropPauses,
    ) -> Result<CleanupLook, Error> {
        let has_schemas: bool = sql.value(LOOKING, HAS_SCHEMAS, &[]).await?;
        let mut looked = CleanupLook::default();
        let (mut seen, mut unseen) = (Vec::new(), HashSet::new());
        for table in tables {
            let (table_name, begun) = (table.full_name(), Instant::now());
            if is_paused(&table_name) {
                unseen.insert(table_name);
                continue;
            }
            match self.see(sql, table, has_schemas, run).await {
                Ok(found) => seen.extend(found),
                Err(error) if sql.is_closed() => return Err(error),
                Err(error) => {
                    unseen.insert(table_name.clone());
                    looked.failed.push((table_name, error, begun.elapsed()));
                }
            }
        }
        self.retain(&seen, &unseen);
        let now = Instant::now();
        let next = self.next(sql, &seen, now).await?;
        for seen in seen {
            let begun = Instant::now();
            match self.lay(sql, &seen, next, now).await {
                Ok(unchecked) => {
                    looked.unchecked += unchecked;
                    looked.targets.extend(self.target(seen, undropped));
                }
                Err(error) if sql.is_closed() => return Err(error),
                Err(error) => looked.failed.push((seen.facts.table_name, error, begun.elapsed())),
            }
        }
        Ok(looked)
    }

    /// Looks at one table; `None` if none of its rows may be removed.
    async fn see<'a>(
        &mut self,
        sql: &Sql,
        table: &'a CleanedTable,
        has_schemas: bool,
        run: &RunBounds,
    ) -> Result<Option<LookedTable<'a>>, Error> {
        // It was dropped meanwhile.
        let Some(mut facts) = self.facts(sql, table, has_schemas).await? else {
            return Ok(None);
        };
        let captured = run.capture_state(facts.oid);
        facts.left = captured.left;
        // The stream still brings its rows under another name: it has no new description of it.
        if captured.is_uncaptured {
            self.said.once(format!("{} {}", facts.table_name, facts.oid), || {
                tracing::warn!(
                    table = facts.table_name,
                    hint = "restart the connector after a table has got the name of the outbox",
                    "delivered rows are not removed: the stream does not know yet that this table is captured"
                );
            });
            return Ok(None);
        }
        if !self.sends_all_rows(sql, table, &facts).await? {
            self.said.once(format!("{} is not published", facts.table_name), || {
                tracing::warn!(
                    table = facts.table_name,
                    publication = self.publication,
                    hint = "publish all inserted rows of the table, without a row filter, or remove walferry.retention.ms. Rows that were \
                            written until then are never removed",
                    "delivered rows are not removed: the publication does not send all rows of the table"
                );
            });
            return Ok(None);
        }
        let Some(time) = TimeColumn::of(&facts.kind) else {
            self.said.once(format!("{} has no time", facts.table_name), || {
                tracing::warn!(
                    table = facts.table_name,
                    column = table.column,
                    found = facts.kind,
                    hint = TimeColumn::HINT,
                    "delivered rows are not removed: the column does not tell how old a row is"
                );
            });
            return Ok(None);
        };
        for what in [facts.oid.to_string().as_str(), "is not published", "has no time"] {
            self.said.is_over(&format!("{} {what}", facts.table_name));
        }
        let name = qualified(&table.schema, &table.name);
        let (from, parts) = match facts.is_partitioned {
            true => (name, parts(sql, facts.oid).await?),
            // Tables that inherit from it have a publication of their own, or none.
            false => (format!("ONLY {name}"), HashMap::from([(facts.oid, String::new())])),
        };
        let drops = match table.drops_partitions && facts.is_partitioned {
            true => self.droppable(sql, (table, time), &facts, &parts).await?,
            false => HashMap::new(),
        };
        Ok(Some(LookedTable {
            table,
            facts,
            time,
            from,
            parts,
            drops,
        }))
    }

    /// The partitions of a table that hold a range of time each, and the default partition if no row of it could be removed: as in
    /// [`LookedTable::drops`].
    async fn droppable(
        &mut self,
        sql: &Sql,
        (table, time): (&CleanedTable, TimeColumn),
        facts: &Facts,
        parts: &HashMap<u32, String>,
    ) -> Result<HashMap<u32, Option<Droppable>>, Error> {
        let table_name = &facts.table_name;
        let what = format!("{table_name} has no ranges");
        let Some(ranges) = ranges(sql, (&table.schema, &table.name, &table.column)).await? else {
            self.said.once(what, || {
                tracing::warn!(
                    table = table_name,
                    column = table.column,
                    hint = "partition the table by ranges of this column, of type timestamptz or timestamp, or remove walferry.partitions.drop",
                    "no partitions are dropped, and rows are removed instead: the table is not partitioned by ranges of the column with the time"
                );
            });
            return Ok(HashMap::new());
        };
        self.said.is_over(&what);
        let mut droppable = HashMap::new();
        for part in ranges.parts {
            if part.is_default {
                // To search the default partition, the server would read the rows of all others, too, again and again.
                let bound = self
                    .bounds
                    .get(table_name)
                    .and_then(|bound| bound.laid.parts.get(&part.oid));
                let later = bound.map(|bound| time.is_after(&identifier(&table.column), &bound.since_us.to_string()));
                if self.has_rows(sql, &part, &ranges.owner, later.as_deref()).await? {
                    continue;
                }
            }
            let to_us = part.to_us.filter(|_| !part.is_default);
            let (oid, name, owner) = (part.oid, part.name, ranges.owner.clone());
            let of = parts.get(&oid).cloned().unwrap_or_default();
            let found = to_us.map(|to_us| Droppable {
                oid,
                root: facts.oid,
                name,
                to_us,
                owner,
                of,
            });
            if part.is_default || found.is_some() {
                droppable.insert(oid, found);
            }
        }
        Ok(droppable)
    }

    /// Whether a partition has rows that meet a condition, or whether that cannot be found out in a moment. It is read as the owner of the whole
    /// table, as for a drop: the connector's role need not have a privilege on partitions.
    async fn has_rows(&mut self, sql: &Sql, part: &Part, owner: &str, condition: Option<&str>) -> Result<bool, Error> {
        const SIZE: &str = "SELECT COALESCE(pg_catalog.pg_relation_size($1::oid), 0) > 0";
        let has_pages: bool = sql.value(LOOKING, SIZE, &[(&part.oid, Type::OID)]).await?;
        if !has_pages {
            return Ok(false);
        }
        let is_unread = |until: &Instant| *until > Instant::now();
        if self.unread.get(&part.oid).is_some_and(is_unread) {
            return Ok(true);
        }
        let begin = begin_as(owner, HAS_ROWS_LIMITS.0, HAS_ROWS_LIMITS.1);
        let query = format!(
            "SELECT EXISTS (SELECT FROM ONLY {} WHERE {})",
            part.name,
            condition.unwrap_or("true")
        );
        let found = match sql.execute(LOOKING, &begin).await {
            Ok(()) => sql.value(LOOKING, &query, &[]).await,
            Err(error) => Err(error),
        };
        match found {
            Err(error) if sql.is_closed() => return Err(error),
            _ => sql.execute(LOOKING, "ROLLBACK").await?,
        }
        // If it was refused, its rows are searched with those of the others.
        Ok(found.unwrap_or_else(|error| {
            tracing::debug!(partition = part.name, error = %error, "the default partition of an outbox cannot be looked at by itself");
            self.unread.insert(part.oid, Instant::now() + unread_for(&error));
            true
        }))
    }

    /// What removes the rows of a table; `None` for a partitioned table that has no partition yet.
    fn target(&self, mut seen: LookedTable<'_>, undropped: &DropPauses) -> Option<CleanupTarget> {
        let bound = self.bounds.get(&seen.facts.table_name)?;
        let (mut bounds, mut drops, mut before_us) = (PartBounds::default(), Vec::new(), i64::MIN);
        for (oid, part) in &bound.laid.parts {
            match seen.drops.remove(oid) {
                None => {
                    bounds.add(*oid, part);
                    before_us = i64::MAX;
                }
                Some(None) => {}
                Some(Some(droppable)) => {
                    if undropped.keeps_rows(&droppable) {
                        // One row that stays keeps only itself.
                        bounds.add(*oid, part);
                        before_us = before_us.max(droppable.to_us);
                    }
                    let mut own = PartBounds::default();
                    own.add(*oid, part);
                    drops.push((droppable, own));
                }
            }
        }
        if bound.laid.parts.is_empty() {
            return None;
        }
        drops.sort_by_key(|(droppable, _)| droppable.to_us);
        let statements = Statements::new(&seen.from, seen.table, seen.time);
        Some(CleanupTarget::new(
            seen.table,
            seen.facts.table_name,
            seen.time,
            statements,
            (bounds, before_us),
            drops,
        ))
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
            table_name: table.full_name(),
            kind: row.try_get(0).map_err(read)?,
            is_partitioned: row.try_get(1).map_err(read)?,
            oid: row.try_get(2).map_err(read)?,
            of: row.try_get(3).map_err(read)?,
            left: 0,
        }))
    }

    /// Whether the publication sends all inserted rows of the table, under its own name.
    ///
    /// The answer may be newer than the facts. If something has changed between the two, the next look finds other facts, and the table then
    /// gets a new lower bound before any row is removed: rows are removed only after a look that follows a confirmed mark.
    async fn sends_all_rows(&mut self, sql: &Sql, table: &CleanedTable, facts: &Facts) -> Result<bool, Error> {
        let known = self.published.get(&facts.table_name);
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
        self.published.insert(facts.table_name.clone(), published);
        Ok(all_rows)
    }

    /// Keeps the lower bounds of tables and partitions that are what they were, and of tables that were not looked at, and removes the others.
    fn retain(&mut self, seen: &[LookedTable<'_>], unseen: &HashSet<String>) {
        self.bounds.retain(|table, bound| {
            let is_as_before = |seen: &LookedTable<'_>| {
                seen.facts.table_name == *table && seen.facts.of == bound.laid.of && seen.facts.left == bound.left
            };
            unseen.contains(table) || seen.iter().any(is_as_before)
        });
        for seen in seen {
            if let Some(bound) = self.bounds.get_mut(&seen.facts.table_name) {
                let parts = &mut bound.laid.parts;
                parts.retain(|oid, part| seen.parts.get(oid) == Some(&part.of));
            }
        }
        self.unchecked.retain(|oid, unchecked| {
            let has_part =
                |seen: &LookedTable<'_>| seen.facts.table_name == unchecked.table && seen.parts.contains_key(oid);
            unseen.contains(&unchecked.table) || seen.iter().any(has_part)
        });
    }

    /// The parts of a table that have no lower bound, except those that rest; those that could not be looked at come last, the latest at the end.
    fn without<'a>(&self, seen: &'a LookedTable<'_>, now: Instant) -> Vec<(u32, &'a str)> {
        let bound = self.bounds.get(&seen.facts.table_name);
        let paused_until = |oid: &u32| self.unchecked.get(oid).map(|unchecked| unchecked.until);
        let parts = seen.parts.iter().map(|(oid, of)| (*oid, of.as_str()));
        let mut without: Vec<_> = parts
            .filter(|(oid, _)| bound.is_none_or(|bound| !bound.laid.parts.contains_key(oid)))
            .filter(|(oid, _)| paused_until(oid).is_none_or(|until| until <= now))
            .collect();
        without.sort_by_key(|(oid, _)| (paused_until(oid), *oid));
        without
    }

    /// The server's next transaction id and its time, if a table or a partition has no lower bound yet. It is read after the look: transactions
    /// that get an id from now on write while the table is published.
    async fn next(&self, sql: &Sql, seen: &[LookedTable<'_>], now: Instant) -> Result<(i64, i64), Error> {
        let is_new = |seen: &LookedTable<'_>| !self.without(seen, now).is_empty();
        if !seen.iter().any(is_new) {
            // For nobody.
            return Ok((i64::MAX, NEVER_US));
        }
        let row = sql.row(LOOKING, NEXT, &[]).await?;
        let read = |error| Error::sql(LOOKING, error);
        Ok((row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?))
    }

    /// Lays the lower bounds that are missing. Returns how many partitions could not be looked at: the others do not wait for them.
    async fn lay(&mut self, sql: &Sql, seen: &LookedTable<'_>, next: (i64, i64), now: Instant) -> Result<u64, Error> {
        let table_name = &seen.facts.table_name;
        let is_new = !self.bounds.contains_key(table_name);
        let without = self.without(seen, now);
        if !without.is_empty() {
            // Says at once if rows of the table cannot be removed, not only when the first one is old.
            sql.execute(DOING, &format!("EXPLAIN DELETE FROM {} WHERE false", seen.from))
                .await?;
        }
        let (laid, unchecked) = self.look_at(sql, seen, &without, next).await?;
        let partitions = laid.len();
        let bound = self.bounds.entry(table_name.clone()).or_insert_with(|| TableBound {
            laid: TableLowerBound {
                oid: seen.facts.oid,
                of: seen.facts.of.clone(),
                parts: BTreeMap::new(),
            },
            left: seen.facts.left,
        });
        bound.laid.parts.extend(laid);
        if is_new {
            tracing::info!(
                table = table_name,
                "rows that are written from now on are removed once they are old and delivered; rows from before stay"
            );
        } else if partitions > 0 {
            tracing::info!(
                table = table_name,
                partitions,
                "the table has new partitions: rows that were written to them before now are not removed"
            );
        }
        Ok(unchecked)
    }

    /// The lower bounds of parts, and how many parts could not be looked at.
    async fn look_at(
        &mut self,
        sql: &Sql,
        seen: &LookedTable<'_>,
        parts: &[(u32, &str)],
        next: (i64, i64),
    ) -> Result<(HashMap<u32, PartLowerBound>, u64), Error> {
        let (started, mut laid, mut unchecked) = (Instant::now(), HashMap::new(), 0);
        for (oid, of) in parts {
            let begun = Instant::now();
            match latest(sql, seen, *oid).await {
                Ok(latest_us) => {
                    self.unchecked.remove(oid);
                    laid.insert(*oid, self.part(seen, of, next, latest_us));
                }
                Err(error) if sql.is_closed() || !concerns_one_partition(seen, &error) => return Err(error),
                Err(error) => {
                    self.fail(sql, &seen.facts.table_name, *oid, error, begun.elapsed())
                        .await;
                    unchecked += 1;
                    if started.elapsed() > LAY_TURN {
                        break;
                    }
                }
            }
        }
        Ok((laid, unchecked))
    }

    /// The lower bound of one part, which has no row that is later than `latest_us`.
    fn part(&mut self, seen: &LookedTable<'_>, of: &str, (xid, now_us): (i64, i64), latest_us: i64) -> PartLowerBound {
        let LookedTable { table, facts, .. } = seen;
        let slack = table.keep.clamp(SLACK.0, SLACK.1);
        let since_us = now_us.saturating_add(i64::try_from(slack.as_micros()).unwrap_or(i64::MAX));
        if latest_us > since_us {
            self.said.once(format!("{} is ahead", facts.table_name), || {
                tracing::warn!(
                    table = facts.table_name,
                    column = table.column,
                    hint = "write the time at which the row is inserted; a column without time zone needs it in UTC, and a bigint in milliseconds",
                    "a row has a time in the future: only rows that are later than it are removed"
                );
            });
        }
        PartLowerBound {
            of: of.to_owned(),
            xid,
            // Rows that are there now must not pass for later ones, whatever the clocks say.
            since_us: since_us.max(latest_us),
        }
    }

    /// A partition could not be looked at. The same failure of one table is logged once.
    async fn fail(&mut self, sql: &Sql, table: &str, oid: u32, error: Error, took: Duration) {
        let failure = walferry_engine::Failure::from(error);
        let error = failure.to_string();
        if self.postpone(table, oid, &error, took) {
            const NAME: &str = "SELECT $1::oid::regclass::text";
            let partition: Option<String> = sql.value(LOOKING, NAME, &[(&oid, Type::OID)]).await.ok();
            let hint = "if the statement took too long, create an index on the column with the time; if a lock was not available, look in \
                        pg_locks for a transaction that keeps one on the partition";
            tracing::warn!(
                code = walferry_diagnosis::Kind::OutboxCleanup.code(),
                table,
                partition,
                error,
                hint = failure.hint().unwrap_or(hint),
                "rows of a partition are not removed yet, because it could not be looked at; trying again"
            );
        }
    }

    /// Lets a partition rest. Returns whether no partition of the table rests because of the same.
    fn postpone(&mut self, table: &str, oid: u32, error: &str, took: Duration) -> bool {
        let is_same = |unchecked: &Unchecked| unchecked.table == table && unchecked.error == error;
        let is_news = !self.unchecked.values().any(is_same);
        let (least, times) = UNCHECKED_PAUSE;
        let of_all = u32::try_from(self.unchecked.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let unchecked = Unchecked {
            table: table.to_owned(),
            error: error.to_owned(),
            until: Instant::now() + least.max(took.saturating_mul(times).saturating_mul(of_all)),
        };
        self.unchecked.insert(oid, unchecked);
        is_news
    }
}

/// How long a default partition is not read by itself after this error.
fn unread_for(error: &Error) -> Duration {
    match error.server_error().map_or("", |refused| refused.code.as_str()) {
        // lock_not_available, query_canceled
        "55P03" | "57014" => BRIEFLY_UNREAD,
        _ => UNREAD,
    }
}

/// Whether other partitions may be looked at although one could not. Without a privilege, or if the column is gone, none can.
fn concerns_one_partition(seen: &LookedTable<'_>, error: &Error) -> bool {
    let code = error.server_error().map_or("", |refused| refused.code.as_str());
    seen.facts.is_partitioned && !code.is_empty() && !code.starts_with("42")
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

/// The latest time in a part of a table, in microseconds since 1970.
///
/// A role that may read a partitioned table need not have the privilege to read its partitions. So partitions are read through the table, by
/// the condition that all of their rows meet: the planner leaves out the others.
async fn latest(sql: &Sql, seen: &LookedTable<'_>, part: u32) -> Result<i64, Error> {
    const CONDITION: &str = "SELECT pg_catalog.pg_get_partition_constraintdef($1)";
    let condition: Option<String> = match seen.facts.is_partitioned {
        true => sql.value(LOOKING, CONDITION, &[(&part, Type::OID)]).await?,
        false => None,
    };
    // Without a condition, this is the latest time of the whole table, which is no earlier.
    let condition = condition.filter(|condition| leaves_others_out(condition));
    let query = format!(
        "SELECT {} FROM {} WHERE {}",
        seen.time.latest_us(&identifier(&seen.table.column)),
        seen.from,
        condition.as_deref().unwrap_or("true")
    );
    sql.value(LOOKING, &query, &[]).await
}

/// Whether the planner can tell by the condition of a partition that other partitions have no such rows. It cannot with the conditions of a
/// default partition and of partitions by hash, and would read all rows.
fn leaves_others_out(condition: &str) -> bool {
    !condition.contains("(NOT (") && !condition.contains("satisfies_hash_partition(")
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

#[cfg(test)]
mod tests {
    use super::*;
    use walferry_postgres::ServerError;

    #[test]
    fn kept_bounds_replace_later_ones_unless_something_has_changed_since() {
        let table = |of: &str, parts: &[(u32, &str, i64)]| TableLowerBound {
            oid: 1,
            of: of.to_owned(),
            parts: parts
                .iter()
                .map(|(oid, of, xid)| {
                    let (of, xid, since_us) = ((*of).to_owned(), *xid, *xid);
                    (*oid, PartLowerBound { of, xid, since_us })
                })
                .collect(),
        };
        let (mut bounds, later) = (
            TableBounds::new("p"),
            table("a", &[(2, "x", 50), (3, "y", 50), (4, "z", 50)]),
        );
        for (name, of, left) in [("same", "a", 0), ("changed", "b", 0), ("left", "a", 1)] {
            let of = of.to_owned();
            let laid = TableLowerBound { of, ..later.clone() };
            bounds.bounds.insert(name.to_owned(), TableBound { laid, left });
        }
        // The second partition was attached again, and the fourth one has gone.
        let stored = table("a", &[(2, "x", 10), (3, "before", 10), (5, "gone", 10)]);
        let names = ["same", "changed", "left", "only kept"];
        bounds.restore(&names.map(|name| (name.to_owned(), stored.clone())).into());
        let xids = names.map(|name| {
            let parts = &bounds.bounds[name].laid.parts;
            parts.iter().map(|(oid, part)| (*oid, part.xid)).collect::<Vec<_>>()
        });
        let later = vec![(2, 50), (3, 50), (4, 50)];
        let merged = vec![(2, 10), (3, 50), (4, 50), (5, 10)];
        assert_eq!(xids, [merged, later.clone(), later, vec![(2, 10), (3, 10), (5, 10)]]);
    }

    #[test]
    fn a_default_partition_that_was_slow_once_is_read_by_itself_again_soon() {
        let seconds = ["55P03", "57014", "42501"].map(|code| {
            let refused = ServerError {
                code: code.to_owned(),
                ..ServerError::default()
            };
            unread_for(&Error::server(LOOKING, refused)).as_secs()
        });
        assert_eq!(seconds, [30, 30, 600]);
    }

    #[test]
    fn a_partition_that_cannot_be_looked_at_rests_and_the_others_go_first() {
        let table = CleanedTable {
            schema: "public".to_owned(),
            name: "outbox".to_owned(),
            column: "created_at".to_owned(),
            keep: Duration::ZERO,
            batch_rows: 1,
            status: None,
            drops_partitions: false,
        };
        let mut seen = LookedTable {
            facts: Facts {
                table_name: table.full_name(),
                kind: String::new(),
                is_partitioned: true,
                oid: 1,
                of: String::new(),
                left: 0,
            },
            table: &table,
            time: TimeColumn::Zoned,
            from: String::new(),
            parts: (2..=5).map(|oid| (oid, String::new())).collect(),
            drops: HashMap::new(),
        };
        let (mut bounds, begun) = (TableBounds::new("p"), Instant::now());
        let oids = |bounds: &TableBounds, seen: &LookedTable<'_>, seconds: u64| {
            let without = bounds.without(seen, begun + Duration::from_secs(seconds));
            without.into_iter().map(|(oid, _)| oid).collect::<Vec<_>>()
        };
        let table_name = table.full_name();
        assert!(bounds.postpone(&table_name, 2, "locked", Duration::from_millis(500)));
        // The limit counts for each: together they take no more of the time.
        assert!(bounds.postpone(&table_name, 3, "too long", Duration::from_secs(30)));
        assert!(!bounds.postpone(&table_name, 4, "too long", Duration::from_secs(1)));
        assert!(bounds.postpone("public.other", 9, "locked", Duration::ZERO));
        assert_eq!(oids(&bounds, &seen, 10), [5]);
        assert_eq!(oids(&bounds, &seen, 45), [5, 2]);
        assert_eq!(oids(&bounds, &seen, 1300), [5, 2, 4, 3]);
        assert!(!bounds.postpone(&table_name, 2, "too long", Duration::ZERO));

        // Partitions that were dropped are forgotten, and what was said of them.
        seen.parts.retain(|oid, _| *oid == 5);
        bounds.retain(&[seen], &HashSet::from(["public.other".to_owned()]));
        assert_eq!(bounds.unchecked.keys().collect::<Vec<_>>(), [&9]);
        assert!(bounds.postpone(&table_name, 2, "too long", Duration::ZERO));
    }
}
