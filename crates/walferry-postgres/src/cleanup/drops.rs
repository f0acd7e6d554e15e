//! Drops partitions of an outbox whose time is over, once each of their rows may go.
//!
//! This leaves no dead rows, and brings no records. The partition is locked against writers before its rows are looked at, so what was found
//! holds until it is dropped. `DROP TABLE` then locks the whole table for a moment. Others go first: who waits for a lock for long gives up.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};
use walferry_engine::Pauses;

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
    /// The table that it is a partition of.
    pub(super) root: u32,
    /// With its schema, as SQL.
    pub(super) name: String,
    /// All of its rows have an earlier time, in microseconds since 1970.
    pub(super) to_us: i64,
    /// The owner of the whole table, who may drop it.
    pub(super) owner: String,
    /// What makes it a partition of the table, as in its floor.
    pub(super) of: String,
}

/// What became of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Dropped,
    /// It has a row that is not confirmed, or that may never have been sent.
    HasRows,
}

/// Why a partition could not be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// As in [`Attempt::HasRows`].
    Rows,
    /// Its rows could not be read in time.
    Slow,
    /// A lock was not to be had.
    Lock,
    Other,
}

/// Partitions that could not be dropped, and tables of which none could be because of a lock, by oid.
#[derive(Debug, Default)]
pub(super) struct Rests(HashMap<u32, Rest>);

#[derive(Debug)]
struct Rest {
    until: Instant,
    pauses: Pauses,
    obstacle: Obstacle,
    times: u32,
}

/// Whether the table `$2` is still the partition of `$3` that it was when it got its floor, as in [`super::floors`].
const IS_SAME: &str = "
    SELECT pg_catalog.concat_ws('.', '', i.inhrelid, i.xmin, c.xmin, n.oid) = $8
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE i.inhrelid = $2 AND i.inhparent = $3 AND COALESCE(pg_catalog.to_jsonb(i) ->> 'inhdetachpending', 'false') = 'false'";

const DROPPING: &str = "dropping a partition of an outbox";

/// How long a partition rests that could not be dropped.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A lock that is not to be had so often in a row is told.
const OFTEN: u32 = 4;

/// Who writes to the partition waits no longer than the first of these. Without the third, rows that a policy hides would be dropped with the
/// others. With the last, the locks are not kept until a standby answers.
const LIMITS: &str =
    "SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '30s'; SET LOCAL row_security = off;
    SET LOCAL synchronous_commit = local";

/// The same for all who use the table.
const DROP_LIMIT: &str = "SET LOCAL lock_timeout = '50ms'";

impl Rests {
    /// Whether it is not to be tried now.
    pub(super) fn rests(&self, oid: u32, now: Instant) -> bool {
        self.0.get(&oid).is_some_and(|rest| rest.until > now)
    }

    /// Until when it rests, or has rested. `None` if it was not tried yet.
    pub(super) fn until(&self, oid: u32) -> Option<Instant> {
        self.0.get(&oid).map(|rest| rest.until)
    }

    /// It could not be dropped. Returns how often because of the same, one time after the other.
    pub(super) fn rest(&mut self, oid: u32, obstacle: Obstacle, now: Instant) -> u32 {
        let rest = self.0.entry(oid).or_insert(Rest {
            until: now,
            pauses: Pauses::new(FIRST_PAUSE, LONGEST_PAUSE),
            obstacle,
            times: 0,
        });
        if rest.obstacle != obstacle {
            (rest.obstacle, rest.times) = (obstacle, 0);
        }
        rest.times += 1;
        rest.until = now + rest.pauses.next_pause();
        rest.times
    }

    /// Whether it has shown several times that it cannot be dropped soon because of its rows.
    pub(super) fn keeps_rows(&self, oid: u32) -> bool {
        let keeps = |rest: &Rest| matches!(rest.obstacle, Obstacle::Rows | Obstacle::Slow) && rest.times >= 2;
        self.0.get(&oid).is_some_and(keeps)
    }

    /// Forgets one.
    pub(super) fn forget(&mut self, oid: u32) {
        self.0.remove(&oid);
    }

    /// Forgets partitions that are not there any more.
    pub(super) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.0.retain(|oid, _| is_there(*oid));
    }

    /// Whether a failure that comes for this time is told: the first time, or later if it is a lock.
    pub(super) fn is_news(obstacle: Obstacle, times: u32) -> bool {
        times == if obstacle == Obstacle::Lock { OFTEN } else { 1 }
    }
}

impl Obstacle {
    /// What an error tells of.
    pub(super) fn of(error: &Error) -> Self {
        match error.server_error().map_or("", |refused| refused.code.as_str()) {
            "55P03" => Self::Lock,
            "57014" => Self::Slow,
            _ => Self::Other,
        }
    }

    /// What to do about it.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::Slow => {
                "reading the partition took longer than 30 seconds: its rows are removed instead; to drop partitions, make them smaller"
            }
            _ => {
                "the connector's role must be a member of the table's owner, from Postgres 16 on WITH SET TRUE; if a lock was not available, \
                 look in pg_stat_activity for a long transaction that uses the table"
            }
        }
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
    // The name may be that of another table by now, or the partition may have been detached, and attached again with other rows.
    let query = format!(
        "SELECT {}::pg_catalog.regclass = $2::oid AND ({IS_SAME}) IS TRUE AND NOT EXISTS (
           SELECT FROM (SELECT tableoid AS part, xmin::text::int8 AS id, {column} AS at, {} AS is_over FROM ONLY {name}) r
           WHERE (is_over AND {}) IS NOT TRUE)",
        literal(name),
        table.is_over(),
        may_go(time)
    );
    let parameters: [(&(dyn ToSql + Sync), Type); 8] = [
        (&xmin, Type::INT8),
        (&part.oid, Type::OID),
        (&part.root, Type::OID),
        (&0_i64, Type::INT8),
        (&floors.parts, Type::OID_ARRAY),
        (&floors.xids, Type::INT8_ARRAY),
        (&floors.since_us, Type::INT8_ARRAY),
        (&part.of, Type::TEXT),
    ];
    let begin = format!("BEGIN; {LIMITS}; SET LOCAL ROLE {owner}");
    // Without a lock first: nobody waits for a partition that stays. Then writers alone wait while the rows are looked at.
    for lock in [
        String::new(),
        format!("ROLLBACK; {begin}; LOCK TABLE ONLY {name} IN SHARE MODE"),
    ] {
        let begin = if lock.is_empty() { &begin } else { &lock };
        sql.execute(DROPPING, begin).await?;
        let may_be_dropped: bool = sql.value(LOOKING, &query, &parameters).await?;
        if !may_be_dropped {
            return Ok(Attempt::HasRows);
        }
    }
    sql.execute(DROPPING, &format!("{DROP_LIMIT}; DROP TABLE {name}; COMMIT"))
        .await?;
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
            rests.rest(7, Obstacle::Rows, now);
            let rest = (0..=600).find(|seconds| !rests.rests(7, now + Duration::from_secs(*seconds)));
            until.push(rest);
        }
        assert_eq!(until, [10, 20, 40, 80, 160, 320, 600, 600].map(Some));
        rests.retain(|oid| oid != 7);
        assert!(!rests.rests(7, now));
        assert_eq!(rests.rest(7, Obstacle::Rows, now), 1, "it counts from the beginning");
    }

    #[test]
    fn times_count_for_one_obstacle_and_a_partition_with_rows_is_known_after_two() {
        let (mut rests, now) = (Rests::default(), Instant::now());
        let mut tried = Vec::new();
        for obstacle in [
            Obstacle::Rows,
            Obstacle::Other,
            Obstacle::Other,
            Obstacle::Rows,
            Obstacle::Rows,
        ] {
            tried.push((rests.rest(7, obstacle, now), rests.keeps_rows(7)));
        }
        assert_eq!(tried, [(1, false), (1, false), (2, false), (1, false), (2, true)]);
        assert!(
            rests.rests(7, now + Duration::from_secs(159)),
            "the pause goes on growing"
        );
        rests.rest(8, Obstacle::Slow, now);
        rests.rest(8, Obstacle::Slow, now);
        assert!(rests.keeps_rows(8));
        rests.forget(8);
        assert!(!rests.rests(8, now));
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
                .filter(|times| Rests::is_news(Obstacle::of(&error), *times))
                .collect::<Vec<_>>()
        };
        assert_eq!(told("55P03"), [4]);
        assert_eq!(told("42501"), [1]);
    }
}
