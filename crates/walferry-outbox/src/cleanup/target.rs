//! Removes rows of one table, a batch at a time.
//!
//! A batch is first looked for, and then removed. What was found says which times the rows have, so that the second statement locks only
//! the partitions that have them. It looks at each condition again.

use tokio_postgres::types::{ToSql, Type};

use super::drops::Droppable;
use super::kept_rows::{FoundRows, KeptRange, Place};
use super::part_bounds::{PartBounds, may_go};
use super::table::{CleanedTable, DOING, LOOKING};
use crate::time_column::TimeColumn;
use walferry_postgres::Error;
use walferry_postgres::connection::Sql;
use walferry_postgres::quote::identifier;

/// A table, and what removes its rows.
#[derive(Debug)]
pub(super) struct CleanupTarget {
    /// For the log.
    pub(super) table: String,
    /// The least distance of two times that differ, in microseconds.
    pub(super) step_us: i64,
    statements: Statements,
    pub(super) keep_us: i64,
    batch_rows: i64,
    bounds: PartBounds,
    /// Rows of these parts have an earlier time, in microseconds since 1970.
    before_us: i64,
    /// Partitions that are dropped as a whole, with their lower bounds.
    pub(super) drops: Vec<(Droppable, PartBounds)>,
    /// What it was made of.
    pub(super) cleaned: CleanedTable,
    pub(super) time: TimeColumn,
}

#[derive(Debug)]
pub(super) struct Statements {
    usual: Batches,
    /// Rows of one time come in the order of their places, from behind one of them. That costs more: the server has to read and sort all
    /// rows of this time.
    behind: Batches,
}

#[derive(Debug)]
struct Batches {
    /// How many rows of a batch there are, their first and last time, and the place of the last one.
    find: String,
    /// Removes them, and says how many. Between its two parts belongs what sets the role's own `search_path`: triggers of the table expect it.
    delete: [String; 2],
}

/// Up to which time a table was looked through. What was left behind is not confirmed by this mark, and never will be: further rows before
/// this time get transaction ids that are not lower. With the next mark, the search begins anew.
#[derive(Debug, Clone, Copy)]
pub(super) struct ScannedUpTo {
    /// As in the mark.
    xmin: i64,
    us: i64,
}

/// What was done.
#[derive(Debug)]
pub(super) struct Batch {
    /// What was found, if anything was.
    pub(super) found: Option<FoundRows>,
    pub(super) reached: ScannedUpTo,
}

impl CleanupTarget {
    pub(super) fn new(
        table: &CleanedTable,
        table_name: String,
        time: TimeColumn,
        statements: Statements,
        (bounds, before_us): (PartBounds, i64),
        drops: Vec<(Droppable, PartBounds)>,
    ) -> Self {
        Self {
            table: table_name,
            step_us: time.step_us(),
            statements,
            keep_us: i64::try_from(table.keep.as_micros()).unwrap_or(i64::MAX),
            batch_rows: table.batch_rows.into(),
            bounds,
            before_us,
            drops,
            cleaned: table.clone(),
            time,
        }
    }

    /// Removes rows whose transaction ids are below `xmin`. `now_us` is the server's time. Rows up to what is `range` are not looked for.
    pub(super) async fn remove_batch(
        &self,
        sql: &Sql,
        xmin: i64,
        now_us: i64,
        reached: Option<ScannedUpTo>,
        range: Option<&KeptRange>,
    ) -> Result<Batch, Error> {
        let earliest = self.bounds.since_us.iter().min().copied().unwrap_or(i64::MAX);
        let reached_us = reached.filter(|reached| reached.xmin == xmin).map(|reached| reached.us);
        let from_us = earliest
            .max(reached_us.unwrap_or(i64::MIN))
            .max(range.map_or(i64::MIN, |range| range.before_us));
        // Behind the end of its partitions, the server would read rows of others.
        let until_us = now_us
            .saturating_sub(self.keep_us)
            .min(self.before_us.saturating_sub(1));
        let batch = |us: i64, found: Option<FoundRows>| Batch {
            found,
            reached: ScannedUpTo { xmin, us },
        };
        if until_us < from_us {
            return Ok(batch(from_us, None));
        }
        let behind = range.and_then(|range| Some((range.before_us, range.up_to.as_ref()?)));
        let statements = match behind {
            Some(_) => &self.statements.behind,
            None => &self.statements.usual,
        };
        let parameters = self.parameters(&xmin, (&from_us, &until_us), &behind);
        let row = sql.row(LOOKING, &statements.find, &parameters).await?;
        let read = |error| Error::sql(LOOKING, error);
        let rows: i64 = row.try_get(0).map_err(read)?;
        let (first, last): (Option<i64>, Option<i64>) = (row.try_get(1).map_err(read)?, row.try_get(2).map_err(read)?);
        let (Some(first_us), Some(last_us)) = (first, last) else {
            return Ok(batch(until_us, None));
        };
        let last: (Option<u32>, Option<String>) = (row.try_get(3).map_err(read)?, row.try_get(4).map_err(read)?);
        let parameters = self.parameters(&xmin, (&first_us, &last_us), &behind);
        let own_path = sql.own_path();
        let removed: i64 = sql
            .value(DOING, &statements.delete.join(&own_path), &parameters)
            .await?;
        tracing::debug!(table = self.table, rows = removed, "delivered rows removed");
        let is_full = rows >= self.batch_rows;
        let found = FoundRows {
            first_us,
            last_us,
            last: behind.and(last.0.zip(last.1)).map(|(part, row)| Place { part, row }),
            rows: rows.unsigned_abs(),
            removed: removed.unsigned_abs(),
            is_full,
            is_first: from_us == earliest && range.is_none(),
        };
        // More rows may have the last time.
        Ok(batch(if is_full { last_us } else { until_us }, Some(found)))
    }

    fn parameters<'a>(
        &'a self,
        xmin: &'a i64,
        (from_us, until_us): (&'a i64, &'a i64),
        behind: &'a Option<(i64, &Place)>,
    ) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
        let mut parameters: Vec<(&'a (dyn ToSql + Sync), Type)> = vec![
            (xmin, Type::INT8),
            (from_us, Type::INT8),
            (until_us, Type::INT8),
            (&self.batch_rows, Type::INT8),
            (&self.bounds.parts, Type::OID_ARRAY),
            (&self.bounds.xids, Type::INT8_ARRAY),
            (&self.bounds.since_us, Type::INT8_ARRAY),
        ];
        if let Some((us, place)) = behind {
            parameters.extend::<[(&(dyn ToSql + Sync), Type); 3]>([
                (us, Type::INT8),
                (&place.part, Type::OID),
                (&place.row, Type::TEXT),
            ]);
        }
        parameters
    }
}

impl Statements {
    /// `from` is the table, or `ONLY` the table. `$1` is the mark's `xmin`, `$2` and `$3` are the first and the last time in microseconds since 1970,
    /// `$4` is the number of rows, `$5` to `$7` are [`PartBounds`]. Behind a place, `$8` is its time, `$9` its part and `$10` its `ctid`.
    ///
    /// The rows are not locked first: that would need the privilege to update them. A row that is updated meanwhile has another `ctid`, and
    /// stays: its place is looked at again for the new row. The list of places finds the rows without reading the table.
    pub(super) fn new(from: &str, table: &CleanedTable, time: TimeColumn) -> Self {
        let is_behind = format!(
            "AND (at <> {} OR (part, place) > ($9::oid, $10::text::tid)) ORDER BY at, part, place",
            time.at_us("$8")
        );
        Self {
            usual: Batches::new(from, table, time, "ORDER BY at"),
            behind: Batches::new(from, table, time, &is_behind),
        }
    }
}

impl Batches {
    /// `order` says which of the rows that may go come first.
    fn new(from: &str, table: &CleanedTable, time: TimeColumn, order: &str) -> Self {
        let (column, is_over) = (identifier(&table.column), table.is_over());
        let (first, last) = (time.at_us("$2"), time.at_us("$3"));
        // For the planner: it leaves out partitions by constants.
        let in_range = format!("{column} >= {first} AND {column} <= {last}");
        // The planner takes nearly all rows for ones that may not go, and would then read and sort all that are due for each batch. OFFSET keeps
        // the two conditions apart: rows come by the index, in their order, until there are enough.
        let batch = format!(
            "WITH batch AS MATERIALIZED (
               SELECT part, place, at FROM (
                 SELECT tableoid AS part, ctid AS place, xmin::text::int8 AS id, {column} AS at FROM {from}
                 WHERE {in_range} AND {is_over} ORDER BY {column} OFFSET 0
               ) due WHERE {} {order} LIMIT $4
             )",
            may_go(time)
        );
        let last = "ORDER BY at DESC, part DESC, place DESC LIMIT 1";
        let (earliest, latest) = (time.us("pg_catalog.min(at)"), time.us("pg_catalog.max(at)"));
        Self {
            find: format!(
                "{batch} SELECT pg_catalog.count(*), {earliest}, {latest},
                   (SELECT part FROM batch {last}), (SELECT place::text FROM batch {last}) FROM batch"
            ),
            delete: [
                format!(
                    "{batch}, removed AS (
                       DELETE FROM {from}
                       WHERE {in_range} AND {is_over} AND ctid = ANY (ARRAY (SELECT place FROM batch))
                         AND (tableoid, ctid) IN (SELECT part, place FROM batch) AND (SELECT "
                ),
                " IS NOT NULL)
                       RETURNING 1
                     )
                     SELECT pg_catalog.count(*) FROM removed"
                    .to_owned(),
            ],
        }
    }
}
