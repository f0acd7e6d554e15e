//! Drops partitions of an outbox whose time is over, once each of their rows may go.
//!
//! This leaves no dead rows, and brings no records. The partition is locked against writers before its rows are looked at, so what was found
//! holds until it is dropped. `DROP TABLE` then locks the whole table for a moment. Others go first: who waits for a lock for long gives up.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};

use super::target::{PartFloors, may_go};
use super::{CleanedTable, LOOKING};
use crate::connect::Sql;
use crate::error::Error;
use crate::quote::{identifier, literal};
use crate::time_column::TimeColumn;

/// A partition of a range of time.
#[derive(Debug, Clone)]
pub(super) struct Droppable {
    pub(super) oid: u32,
    /// With its schema, as SQL.
    pub(super) name: String,
    /// All of its rows have an earlier time, in microseconds since 1970.
    pub(super) to_us: i64,
    /// The owner of the whole table, who may drop it.
    pub(super) owner: String,
}

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Dropped,
    /// It has a row that is not confirmed, or that may never have been sent.
    HasRows,
}

/// Partitions that could not be dropped.
#[derive(Debug, Default)]
pub(super) struct Rests(HashMap<u32, Rest>);

#[derive(Debug)]
struct Rest {
    until: Instant,
    pause: Duration,
    times: u32,
}

const DROPPING: &str = "dropping a partition of an outbox";

/// How long a partition rests that could not be dropped, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(600));

/// A lock that is not to be had so often in a row is told.
const OFTEN: u32 = 4;

/// Inserts into the table wait no longer than the first of these. Without the last, rows that a policy hides would be dropped with the others.
const LIMITS: &str =
    "SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '30s'; SET LOCAL row_security = off";

impl Rests {
    /// Whether it is not to be tried now.
    pub(super) fn rests(&self, oid: u32, now: Instant) -> bool {
        self.0.get(&oid).is_some_and(|rest| rest.until > now)
    }

    /// It could not be dropped. Returns how often, one time after the other.
    pub(super) fn rest(&mut self, oid: u32, now: Instant) -> u32 {
        let rest = self.0.entry(oid).or_insert(Rest {
            until: now,
            pause: PAUSE.0 / 2,
            times: 0,
        });
        rest.pause = (rest.pause * 2).min(PAUSE.1);
        rest.times += 1;
        rest.until = now + rest.pause;
        rest.times
    }

    /// Forgets partitions that are not there any more.
    pub(super) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.0.retain(|oid, _| is_there(*oid));
    }

    /// Whether a failure that comes for this time is told: the first time, or later if it is a lock.
    pub(super) fn is_news(error: &Error, times: u32) -> bool {
        let is_locked = error.server_error().is_some_and(|refused| refused.code == "55P03");
        times == if is_locked { OFTEN } else { 1 }
    }
}

/// Drops a partition if each of its rows is confirmed by a mark's `xmin`, and from after its floor.
///
/// # Errors
/// The server refuses. Nothing was dropped.
pub(super) async fn drop_partition(
    sql: &Sql,
    table: &CleanedTable,
    time: TimeColumn,
    part: &Droppable,
    xmin: i64,
    floors: &PartFloors,
) -> Result<Attempt, Error> {
    let done = try_to_drop(sql, table, time, part, xmin, floors).await;
    if !matches!(done, Ok(Attempt::Dropped)) && !sql.is_closed() {
        sql.execute(DROPPING, "ROLLBACK").await?;
    }
    done
}

async fn try_to_drop(
    sql: &Sql,
    table: &CleanedTable,
    time: TimeColumn,
    part: &Droppable,
    xmin: i64,
    floors: &PartFloors,
) -> Result<Attempt, Error> {
    let (name, owner, column) = (&part.name, identifier(&part.owner), identifier(&table.column));
    // Writers alone wait while the rows are looked at.
    let begin = format!("BEGIN; {LIMITS}; SET LOCAL ROLE {owner}; LOCK TABLE ONLY {name} IN SHARE MODE");
    sql.execute(DROPPING, &begin).await?;
    // The name may be that of another table by now.
    let query = format!(
        "SELECT {}::pg_catalog.regclass = $2::oid AND NOT EXISTS (
           SELECT FROM (SELECT tableoid AS part, xmin::text::int8 AS id, {column} AS at, {} AS is_over FROM ONLY {name}) r
           WHERE (is_over AND {}) IS NOT TRUE)",
        literal(name),
        table.is_over(),
        may_go(time)
    );
    let parameters: [(&(dyn ToSql + Sync), Type); 7] = [
        (&xmin, Type::INT8),
        (&part.oid, Type::OID),
        (&0_i64, Type::INT8),
        (&0_i64, Type::INT8),
        (&floors.parts, Type::OID_ARRAY),
        (&floors.xids, Type::INT8_ARRAY),
        (&floors.since_us, Type::INT8_ARRAY),
    ];
    let may_be_dropped: bool = sql.value(LOOKING, &query, &parameters).await?;
    if !may_be_dropped {
        return Ok(Attempt::HasRows);
    }
    sql.execute(DROPPING, &format!("DROP TABLE {name}; COMMIT")).await?;
    Ok(Attempt::Dropped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server_error::ServerError;

    #[test]
    fn a_partition_that_cannot_be_dropped_rests_for_twice_as_long_each_time() {
        let (mut rests, now) = (Rests::default(), Instant::now());
        let mut until = Vec::new();
        for _ in 0..8 {
            rests.rest(7, now);
            let rest = (0..=600).find(|seconds| !rests.rests(7, now + Duration::from_secs(*seconds)));
            until.push(rest);
        }
        assert_eq!(until, [10, 20, 40, 80, 160, 320, 600, 600].map(Some));
        rests.retain(|oid| oid != 7);
        assert!(!rests.rests(7, now));
        assert_eq!(rests.rest(7, now), 1, "it counts from the beginning");
    }

    #[test]
    fn a_lock_is_told_when_it_stays_and_all_else_at_once() {
        let told = |code: &str| {
            let error = ServerError {
                code: code.to_owned(),
                ..ServerError::default()
            };
            let error = Error::server(DROPPING, error);
            (1..6)
                .filter(|times| Rests::is_news(&error, *times))
                .collect::<Vec<_>>()
        };
        assert_eq!(told("55P03"), [4]);
        assert_eq!(told("42501"), [1]);
    }
}
