//! Drops partitions of an outbox whose time is over, once each of their rows may go.
//!
//! This leaves no dead rows, and brings no records. The partition is locked against writers before its rows are looked at, so what was found
//! holds until it is dropped. `DROP TABLE` then locks the whole table for a moment. Others go first: who waits for a lock for long gives up.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};
use walferry_engine::Pauses;

use super::part_bounds::{PartBounds, may_go};
use super::table::{CleanedTable, LOOKING};
use crate::time_column::TimeColumn;
use walferry_postgres::Error;
use walferry_postgres::connection::Sql;
use walferry_postgres::quote::{identifier, literal};

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
    /// What makes it a partition of the table, as in its lower bound.
    pub(super) of: String,
}

/// An attempt to drop a partition.
#[derive(Debug)]
pub(super) struct DropAttempt<'a> {
    pub(super) sql: &'a Sql,
    pub(super) table: &'a CleanedTable,
    pub(super) time: TimeColumn,
    pub(super) part: &'a Droppable,
    pub(super) bounds: &'a PartBounds,
    /// Of a mark: rows with a lower transaction id are confirmed.
    pub(super) xmin: i64,
    /// For each lock of `DROP TABLE`.
    pub(super) lock_limit: Duration,
}

/// The partition was not dropped.
#[derive(Debug)]
pub(super) struct Undropped {
    pub(super) obstacle: Obstacle,
    /// `None` if the server did not refuse anything.
    pub(super) error: Option<Error>,
}

/// Why a partition could not be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// It has a row that is not confirmed, or that may never have been sent.
    Rows,
    /// Its rows could not be read in time.
    Slow,
    /// A lock on the partition was not to be had.
    Lock,
    /// A lock of `DROP TABLE` was not to be had: on the partition, or on the whole table.
    TableLock,
    /// The partition was replaced after the last look, or is about to be detached.
    Changed,
    Other,
}

/// Partitions that could not be dropped, and tables of which none could be because of a lock, by oid.
#[derive(Debug, Default)]
pub(super) struct DropPauses(HashMap<u32, DropPause>);

#[derive(Debug)]
struct DropPause {
    until: Instant,
    pauses: Pauses,
    obstacle: Obstacle,
    /// How often in a row because of the same.
    times: u32,
    /// How often because of anything that lasts.
    failures: u32,
    /// Whether its rows are removed instead. This lasts until it is gone: reasons that take turns must not stop it.
    keeps_rows: bool,
}

/// Whether the table `$2` is still the partition of `$3` that it was when it got its lower bound, as in [`super::bounds`].
const IS_SAME: &str = "
    SELECT pg_catalog.concat_ws('.', '', i.inhrelid, i.xmin, c.xmin, n.oid) = $8
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE i.inhrelid = $2 AND i.inhparent = $3 AND COALESCE(pg_catalog.to_jsonb(i) ->> 'inhdetachpending', 'false') = 'false'";

const DROPPING: &str = "dropping a partition of an outbox";

/// How long a partition rests that could not be dropped.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A partition that stays so often in a row because of its rows is cleaned like a table without partitions.
const ROWS_OFTEN: u32 = 2;

/// A lock that is not to be had so often in a row is told. After so many failures of any kind, rows are removed instead, so that the table does
/// not grow.
const OFTEN: u32 = 4;

/// How long the rows of a partition may be read while nobody waits for it.
const READ_LIMIT: Duration = Duration::from_secs(30);

/// The same while writers wait. A statement that looks for a row without its time locks all partitions.
const LOCKED_READ_LIMIT: Duration = Duration::from_secs(2);

/// Who writes to the partition waits no longer than this for its lock.
const LOCK_LIMIT: Duration = Duration::from_millis(200);

/// The same for all who use the table, for each lock of the drop, at first and at most. It doubles each time that it was too short.
const DROP_LIMIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(400));

impl DropPauses {
    /// Of partitions with an end no later than `until_us`, and that do not rest, the first one that was not tried yet, or the one whose rest
    /// ended first.
    pub(super) fn due<'a>(
        &self,
        drops: &'a [(Droppable, PartBounds)],
        until_us: i64,
        now: Instant,
    ) -> Option<&'a (Droppable, PartBounds)> {
        let is_paused = |oid: u32| self.0.get(&oid).is_some_and(|pause| pause.until > now);
        let is_due = |part: &Droppable| part.to_us <= until_us && !is_paused(part.oid) && !is_paused(part.root);
        let due = drops.iter().filter(|(part, _)| is_due(part));
        due.min_by_key(|(part, _)| self.0.get(&part.oid).map(|pause| pause.until))
    }

    /// It could not be dropped. Returns how often because of the same, one time after the other.
    pub(super) fn postpone(&mut self, part: &Droppable, obstacle: Obstacle, now: Instant) -> u32 {
        let times = self.rest_one(part.oid, obstacle, now);
        match obstacle {
            // Who has a lock on the table would be waited for with the next partition, too, and everybody with it.
            // The table may have been tried with others, and the partition may have been locked itself.
            Obstacle::TableLock => times.max(self.rest_one(part.root, obstacle, now)),
            _ => times,
        }
    }

    fn rest_one(&mut self, oid: u32, obstacle: Obstacle, now: Instant) -> u32 {
        let pause = self.0.entry(oid).or_insert(DropPause {
            until: now,
            pauses: Pauses::new(FIRST_PAUSE, LONGEST_PAUSE),
            obstacle,
            times: 0,
            failures: 0,
            keeps_rows: false,
        });
        if !pause.obstacle.is_like(obstacle) {
            pause.times = 0;
        }
        pause.obstacle = obstacle;
        pause.times += 1;
        pause.failures += u32::from(obstacle != Obstacle::Changed);
        pause.keeps_rows |= pause.is_often();
        pause.until = now + pause.pauses.next_pause();
        pause.times
    }

    /// Whether it has shown several times that it cannot be dropped soon, so that its rows are to be removed.
    pub(super) fn keeps_rows(&self, part: &Droppable) -> bool {
        self.kept_rows(part).contains(&true)
    }

    /// The same for the partition by itself, and for all partitions of its table.
    pub(super) fn kept_rows(&self, part: &Droppable) -> [bool; 2] {
        [part.oid, part.root].map(|oid| self.0.get(&oid).is_some_and(|pause| pause.keeps_rows))
    }

    /// How long each lock of the drop may be waited for.
    pub(super) fn lock_limit(&self, part: &Droppable) -> Duration {
        let pauses = [part.oid, part.root].into_iter().filter_map(|oid| self.0.get(&oid));
        let locked = pauses.filter(|pause| pause.obstacle.is_lock());
        let times = locked.map(|pause| pause.times).max().unwrap_or_default();
        DROP_LIMIT.0.saturating_mul(1 << times.min(8)).min(DROP_LIMIT.1)
    }

    /// It was dropped, so a lock on its table was to be had.
    pub(super) fn dropped(&mut self, part: &Droppable) {
        self.0.remove(&part.root);
        self.0.remove(&part.oid);
    }

    /// Forgets partitions that are not there any more.
    pub(super) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.0.retain(|oid, _| is_there(*oid));
    }

    /// Whether a failure that comes for this time is told: the first time, or later if it is a lock.
    pub(super) fn is_news(obstacle: Obstacle, times: u32) -> bool {
        match obstacle {
            Obstacle::Changed => false,
            Obstacle::Lock | Obstacle::TableLock => times == OFTEN,
            Obstacle::Rows | Obstacle::Slow | Obstacle::Other => times == 1,
        }
    }
}

impl DropPause {
    fn is_often(&self) -> bool {
        (self.obstacle.is_of_rows() && self.times >= ROWS_OFTEN) || self.failures >= OFTEN
    }
}

impl Obstacle {
    const fn is_of_rows(self) -> bool {
        matches!(self, Self::Rows | Self::Slow)
    }

    const fn is_lock(self) -> bool {
        matches!(self, Self::Lock | Self::TableLock)
    }

    fn is_like(self, other: Self) -> bool {
        self == other || (self.is_of_rows() && other.is_of_rows()) || (self.is_lock() && other.is_lock())
    }

    /// What an error tells of. `took` is how long the statement ran, and `limit` how long it was allowed to.
    fn of(error: &Error, took: Duration, limit: Duration) -> Self {
        match error.server_error().map_or("", |refused| refused.code.as_str()) {
            // lock_not_available
            "55P03" => Self::Lock,
            // query_canceled, also if an administrator cancels
            "57014" if took >= limit => Self::Slow,
            // undefined_table, invalid_schema_name
            "42P01" | "3F000" => Self::Changed,
            _ => Self::Other,
        }
    }

    /// What to do about it.
    pub(super) fn hint(self) -> &'static str {
        match self {
            Self::Slow => {
                "reading the partition takes longer than 30 seconds, or longer than 2 seconds while it is locked against writers: to drop \
                 partitions, make them smaller. If it happens again, the rows of the partition are removed instead"
            }
            Self::Lock | Self::TableLock => {
                "look in pg_stat_activity for a long transaction that uses the table. Until the partition can be dropped, its rows are removed \
                 instead"
            }
            _ => {
                "if privileges are missing, make the connector's role a member of the table's owner, from Postgres 16 on WITH SET TRUE. If it \
                 fails again and again, the rows of the partition are removed instead"
            }
        }
    }
}

impl Undropped {
    fn of(error: Error, begun: Instant, limit: Duration) -> Self {
        Self {
            obstacle: Obstacle::of(&error, begun.elapsed(), limit),
            error: Some(error),
        }
    }
}

impl From<Obstacle> for Undropped {
    fn from(obstacle: Obstacle) -> Self {
        Self { obstacle, error: None }
    }
}

/// Begins a transaction as the owner of a partition. `limit` counts for each statement.
///
/// Without `row_security`, rows that a policy hides would be dropped with the others. With `synchronous_commit`, the locks are not kept
/// until a standby answers. If this process stands still between two statements, or its host is gone, the server ends the transaction soon,
/// so that nobody waits for its locks.
pub(super) fn begin_as(owner: &str, lock_limit: Duration, limit: Duration) -> String {
    let (owner, lock_ms, limit_ms) = (identifier(owner), lock_limit.as_millis(), limit.as_millis());
    format!(
        "BEGIN; SET LOCAL lock_timeout = '{lock_ms}ms'; SET LOCAL statement_timeout = '{limit_ms}ms'; SET LOCAL row_security = off; \
         SET LOCAL synchronous_commit = local; SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL ROLE {owner}"
    )
}

impl DropAttempt<'_> {
    /// Drops the partition if each of its rows is confirmed by the mark, and from after its lower bound.
    ///
    /// # Errors
    /// Nothing was dropped.
    pub(super) async fn run(&self) -> Result<(), Undropped> {
        let done = self.try_to_drop().await;
        if done.is_err() && !self.sql.is_closed() {
            self.execute("ROLLBACK", READ_LIMIT).await?;
        }
        done
    }

    async fn try_to_drop(&self) -> Result<(), Undropped> {
        let name = &self.part.name;
        // Without a lock first: nobody waits for a partition that stays. Then writers alone wait while the rows are looked at.
        self.execute(&self.begin(READ_LIMIT), READ_LIMIT).await?;
        self.look(READ_LIMIT).await?;
        let (begin, limit) = (self.begin(LOCKED_READ_LIMIT), LOCKED_READ_LIMIT);
        let lock = format!("ROLLBACK; {begin}; LOCK TABLE ONLY {name} IN SHARE MODE");
        self.execute(&lock, limit).await?;
        self.look(limit).await?;
        if self.is_waited_for(limit).await? {
            return Err(Obstacle::Lock.into());
        }
        let drop_limit = self.lock_limit.as_millis();
        let drop = format!("SET LOCAL lock_timeout = '{drop_limit}ms'; DROP TABLE {name}; COMMIT");
        let dropped = self.execute(&drop, limit).await;
        dropped.map_err(|undropped| match undropped.obstacle {
            Obstacle::Lock => Undropped {
                obstacle: Obstacle::TableLock,
                ..undropped
            },
            // It is locked, so it has not changed: this is about something else, such as a table that a trigger writes to.
            Obstacle::Changed => Undropped {
                obstacle: Obstacle::Other,
                ..undropped
            },
            _ => undropped,
        })
    }

    /// Whether somebody waits for the partition, who may have locked the whole table already. The drop could not get its lock on the table
    /// then, and the server might end the other one's transaction because of a deadlock. Who begins to wait later looks for a deadlock when
    /// the drop has given up (`deadlock_timeout` is 1 s by default, more than twice the limit of a lock).
    async fn is_waited_for(&self, limit: Duration) -> Result<bool, Undropped> {
        const WAITING: &str = "
            SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l
              WHERE l.locktype = 'relation' AND l.relation = $1 AND NOT l.granted
                AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()))";
        let begun = Instant::now();
        let waiting = self.sql.value(LOOKING, WAITING, &[(&self.part.oid, Type::OID)]).await;
        waiting.map_err(|error| Undropped::of(error, begun, limit))
    }

    fn begin(&self, limit: Duration) -> String {
        begin_as(&self.part.owner, LOCK_LIMIT, limit)
    }

    async fn execute(&self, statements: &str, limit: Duration) -> Result<(), Undropped> {
        let begun = Instant::now();
        let done = self.sql.execute(DROPPING, statements).await;
        done.map_err(|error| Undropped::of(error, begun, limit))
    }

    /// Whether it is still the same partition, and has no row that stays.
    async fn look(&self, limit: Duration) -> Result<(), Undropped> {
        let (part, bounds) = (self.part, self.bounds);
        let (name, column) = (&part.name, identifier(&self.table.column));
        // The name may be that of another table by now, or the partition may have been detached, and attached again with other rows.
        let query = format!(
            "SELECT CASE WHEN pg_catalog.to_regclass({}) = $2::oid AND ({IS_SAME}) THEN NOT EXISTS (
               SELECT FROM (SELECT tableoid AS part, xmin::text::int8 AS id, {column} AS at, {} AS is_over FROM ONLY {name}) r
               WHERE (is_over AND {}) IS NOT TRUE) END",
            literal(name),
            self.table.is_over(),
            may_go(self.time)
        );
        let parameters: [(&(dyn ToSql + Sync), Type); 8] = [
            (&self.xmin, Type::INT8),
            (&part.oid, Type::OID),
            (&part.root, Type::OID),
            (&0_i64, Type::INT8),
            (&bounds.parts, Type::OID_ARRAY),
            (&bounds.xids, Type::INT8_ARRAY),
            (&bounds.since_us, Type::INT8_ARRAY),
            (&part.of, Type::TEXT),
        ];
        let begun = Instant::now();
        let looked: Result<Option<bool>, _> = self.sql.value(LOOKING, &query, &parameters).await;
        match looked {
            Ok(Some(true)) => Ok(()),
            Ok(Some(false)) => Err(Obstacle::Rows.into()),
            Ok(None) => Err(Obstacle::Changed.into()),
            Err(error) => Err(Undropped::of(error, begun, limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use walferry_postgres::ServerError;

    const ROOT: u32 = 1;

    fn part(oid: u32) -> Droppable {
        Droppable {
            oid,
            root: ROOT,
            name: format!("public.p{oid}"),
            to_us: oid.into(),
            owner: "owner".to_owned(),
            of: String::new(),
        }
    }

    fn due(pauses: &DropPauses, now: Instant) -> Option<u32> {
        let drops = [7, 8, 9].map(|oid| (part(oid), PartBounds::default()));
        pauses.due(&drops, 8, now).map(|(part, _)| part.oid)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_partition_that_cannot_be_dropped_rests_for_twice_as_long_each_time() {
        let (mut pauses, now) = (DropPauses::default(), Instant::now());
        pauses.postpone(&part(8), Obstacle::Other, now + seconds(10_000));
        let mut until = Vec::new();
        for _ in 0..8 {
            pauses.postpone(&part(7), Obstacle::Rows, now);
            until.push((0..=600).find(|after| due(&pauses, now + seconds(*after)).is_some()));
        }
        assert_eq!(until, [10, 20, 40, 80, 160, 320, 600, 600].map(Some));
        pauses.retain(|oid| oid != 7);
        assert_eq!(due(&pauses, now), Some(7));
        assert_eq!(
            pauses.postpone(&part(7), Obstacle::Rows, now),
            1,
            "it counts from the beginning"
        );
    }

    #[test]
    fn a_locked_partition_holds_up_no_other() {
        let (mut pauses, now) = (DropPauses::default(), Instant::now());
        assert_eq!(due(&pauses, now), Some(7));
        pauses.postpone(&part(7), Obstacle::Lock, now);
        assert_eq!(due(&pauses, now), Some(8), "the lock is that of one partition");

        let mut pauses = DropPauses::default();
        pauses.postpone(&part(7), Obstacle::TableLock, now);
        assert_eq!(due(&pauses, now + seconds(9)), None);
        assert_eq!(
            due(&pauses, now + seconds(10)),
            Some(8),
            "the other one was not tried yet"
        );
        pauses.dropped(&part(8));
        assert_eq!(due(&pauses, now + seconds(9)), Some(8), "the table is not locked");
        pauses.postpone(&part(8), Obstacle::TableLock, now + seconds(10));
        assert_eq!(due(&pauses, now + seconds(20)), Some(7), "its rest ended first");
    }

    #[test]
    fn rows_of_a_partition_are_removed_when_it_stays_often() {
        use Obstacle::{Changed, Lock, Other, Rows, Slow, TableLock};
        let cases: [(&[Obstacle], &[bool]); 7] = [
            (&[Rows, Other, Rows, Other, Rows], &[false, false, false, true, true]),
            (&[Slow, Rows, Slow], &[false, true, true]),
            (&[Slow, Slow, Lock, Changed], &[false, true, true, true]),
            (&[Lock, TableLock, Lock, Lock], &[false, false, false, true]),
            (&[Slow, Lock, Slow, Lock], &[false, false, false, true]),
            (
                &[Changed, Other, Other, Other, Changed, Rows],
                &[false, false, false, false, false, true],
            ),
            (&[Other, Other, Other, Other], &[false, false, false, true]),
        ];
        for (obstacles, expected) in cases {
            let (mut pauses, now) = (DropPauses::default(), Instant::now());
            let keeps = obstacles.iter().map(|obstacle| {
                pauses.postpone(&part(7), *obstacle, now);
                pauses.keeps_rows(&part(7))
            });
            assert_eq!(keeps.collect::<Vec<_>>(), expected, "{obstacles:?}");
        }
    }

    #[test]
    fn rows_of_all_partitions_are_removed_once_a_long_lock_on_the_table_is_over() {
        let (mut pauses, now) = (DropPauses::default(), Instant::now());
        let limit = |pauses: &DropPauses| (pauses.lock_limit(&part(9)).as_millis(), pauses.keeps_rows(&part(9)));
        assert_eq!(limit(&pauses), (50, false));
        let limits = [7, 8, 7, 8, 7].map(|oid| {
            pauses.postpone(&part(oid), Obstacle::TableLock, now);
            limit(&pauses)
        });
        assert_eq!(
            limits,
            [(100, false), (200, false), (400, false), (400, true), (400, true)]
        );
        pauses.dropped(&part(8));
        assert_eq!(
            pauses.0.keys().collect::<Vec<_>>(),
            [&7],
            "the dropped one is forgotten"
        );
        assert_eq!(limit(&pauses), (50, false));
        assert_eq!(
            pauses.lock_limit(&part(7)).as_millis(),
            400,
            "this one was locked all the time"
        );
    }

    #[test]
    fn a_transaction_that_this_process_leaves_open_ends_soon() {
        assert_eq!(
            begin_as("an owner", LOCK_LIMIT, READ_LIMIT),
            "BEGIN; SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '30000ms'; SET LOCAL row_security = off; \
             SET LOCAL synchronous_commit = local; SET LOCAL idle_in_transaction_session_timeout = '5s'; SET LOCAL ROLE \"an owner\""
        );
    }

    fn error(code: &str) -> Error {
        let refused = ServerError {
            code: code.to_owned(),
            ..ServerError::default()
        };
        Error::server(DROPPING, refused)
    }

    #[test]
    fn what_an_error_tells_of_follows_from_its_code_and_its_time() {
        let cases = [
            ("55P03", 0, Obstacle::Lock),
            ("57014", 2, Obstacle::Slow),
            // Somebody has cancelled it.
            ("57014", 1, Obstacle::Other),
            ("42P01", 0, Obstacle::Changed),
            ("42501", 3, Obstacle::Other),
        ];
        for (code, took, expected) in cases {
            let obstacle = Obstacle::of(&error(code), seconds(took), seconds(2));
            assert_eq!(obstacle, expected, "{code} after {took} s");
        }
    }

    #[test]
    fn a_lock_is_told_when_it_stays_and_all_else_at_once_but_for_what_has_changed() {
        let logged_times = |obstacle: Obstacle| {
            let is_told = |times: &u32| DropPauses::is_news(obstacle, *times);
            (1..6).filter(is_told).collect::<Vec<_>>()
        };
        assert_eq!(logged_times(Obstacle::Lock), [4]);
        assert_eq!(logged_times(Obstacle::TableLock), [4]);
        assert_eq!(logged_times(Obstacle::Other), [1]);
        assert_eq!(logged_times(Obstacle::Slow), [1]);
        assert!(logged_times(Obstacle::Changed).is_empty());
    }
}
