//! Creates partitions of outbox tables ahead of their time. The cleanup drops them.
//!
//! A partition is created as a table of its own, and then attached: `CREATE TABLE … PARTITION OF` would lock the whole table against inserts.
//! To attach one locks the default partition, if there is one, and Postgres reads all of it meanwhile. So this is given little time,
//! and after a failure the table rests, each time for twice as long.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tokio_postgres::types::{ToSql, Type};
use walferry_config::Connector;
use walferry_config::connector::PostgresSection;
use walferry_diagnosis::Kind;
use walferry_engine::Failure;

use crate::said::SaidOnce;
use crate::time_column::TimeColumn;
use walferry_postgres::Error;
use walferry_postgres::connection::{Endpoint, Purpose, Sql};
use walferry_postgres::quote::{identifier, literal, qualified};

/// An outbox table whose partitions are created ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionedTable {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// The column that tells the time of a row.
    pub column: String,
    /// What one partition holds.
    pub period: Period,
    /// How many partitions are created ahead of the present one.
    pub ahead: u32,
}

impl PartitionedTable {
    /// For the log.
    fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}

/// What one partition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Period {
    /// The rows of an hour.
    Hour,
    /// The rows of a day, in UTC.
    Day,
}

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Created {
    /// How many partitions were created.
    pub partitions: u64,
    /// How often one could not be created.
    pub refused: u64,
    /// When to try again, if something was not created.
    pub again: Option<Duration>,
}

/// Creates partitions, over a connection of its own.
#[derive(Debug)]
pub(crate) struct OutboxPartitions {
    endpoint: Endpoint,
    sql: Option<Sql>,
    said: SaidOnce,
    /// By table.
    pauses: HashMap<String, PartitionPause>,
}

/// A table for which a partition could not be created.
#[derive(Debug)]
struct PartitionPause {
    until: Instant,
    pause: Duration,
    /// How often the table was in use, one time after the other.
    in_use: u32,
    /// The refusals that were logged since the table rests, as in [`Refusal::what`].
    logged: HashSet<String>,
}

/// Why a partition was not created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// Another transaction has a lock: it may work a little later.
    InUse,
    /// It will not work unless somebody does something.
    Refused,
}

/// What the refusal of one partition says about the ones of later times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LaterPartitions {
    /// They are tried a little later, too: another transaction has a lock.
    AfterPause,
    /// They may be created: this one has cost no lock.
    Now,
    /// They would be refused as well, or would hold up others as this one has.
    NotYet,
}

/// What has come of one look at a table.
#[derive(Debug, Default)]
struct PartitionAttempt {
    created: u64,
    refusals: Vec<Refusal>,
    is_in_use: bool,
}

/// Something that does not work unless somebody does something.
#[derive(Debug)]
struct Refusal {
    /// With its schema, as SQL; `None` if the table itself cannot be looked at.
    partition: Option<String>,
    /// By this it is known again: SQLSTATE, with the partition if only this one is concerned.
    what: String,
    error: String,
    hint: String,
}

/// A table that is partitioned by the time of its rows.
#[derive(Debug)]
pub(crate) struct Facts {
    now_us: i64,
    /// The owner of the table, to which the partitions belong, too.
    pub(crate) owner: String,
    /// What a partition has of the table's storage, as in `CREATE TABLE`.
    storage: String,
    pub(crate) parts: Vec<Part>,
}

/// What is to be created.
#[derive(Debug)]
struct NewPartition {
    /// With its schema, as SQL.
    name: String,
    /// Its bounds, as SQL.
    from: String,
    to: String,
}

/// A partition.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) oid: u32,
    /// With its schema, as SQL.
    pub(crate) name: String,
    pub(crate) is_default: bool,
    /// Microseconds since 1970. `None` is without end.
    from_us: Option<i64>,
    pub(crate) to_us: Option<i64>,
}

const LOOKING: &str = "looking at the partitions of an outbox";
const CREATING: &str = "creating a partition of an outbox";

/// How long a table rests that was in use, at first and at most. It is logged after some times.
const IN_USE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(300));
const OFTEN_IN_USE: u32 = 4;
/// How long a table rests for which the server has refused a partition, at first and at most.
const REFUSED: (Duration, Duration) = (Duration::from_secs(120), Duration::from_secs(1800));

/// Others go first. The second limit is how long inserts into the default partition may have to wait.
const LIMITS: &str = "SET LOCAL lock_timeout = '200ms'; SET LOCAL statement_timeout = '2s'";

impl PartitionPause {
    /// After what came before.
    fn after(before: Option<Self>, obstacle: Obstacle) -> Self {
        let in_use = before.as_ref().map_or(0, |earlier| earlier.in_use);
        let ((first, longest), in_use) = match obstacle {
            Obstacle::InUse => (IN_USE, in_use + 1),
            Obstacle::Refused => (REFUSED, 0),
        };
        let pause = before
            .as_ref()
            .map_or(first, |earlier| (earlier.pause * 2).clamp(first, longest));
        Self {
            until: Instant::now() + pause,
            pause,
            in_use,
            logged: before.map(|earlier| earlier.logged).unwrap_or_default(),
        }
    }

    /// Whether this refusal was not logged yet.
    fn is_news(&mut self, refusal: &Refusal) -> bool {
        self.logged.insert(refusal.what.clone())
    }
}

impl LaterPartitions {
    /// By SQLSTATE.
    fn of(code: &str) -> Self {
        match code {
            // lock_not_available
            "55P03" => Self::AfterPause,
            // insufficient_privilege
            "42501" => Self::NotYet,
            // A name that is taken, and other rules that this partition breaks.
            _ if code.starts_with("42") => Self::Now,
            _ => Self::NotYet,
        }
    }
}

impl PartitionAttempt {
    const fn obstacle(&self) -> Option<Obstacle> {
        match (self.is_in_use, self.refusals.is_empty()) {
            (true, _) => Some(Obstacle::InUse),
            (false, false) => Some(Obstacle::Refused),
            (false, true) => None,
        }
    }
}

impl Refusal {
    /// The server refuses a partition, or a look at the table. `owner` is that of the table, if it is known.
    fn of(error: Error, table: &PartitionedTable, owner: Option<&str>, partition: Option<&str>) -> Self {
        let code = code(&error).to_owned();
        let failure = Failure::from(error);
        let hint = match (code.as_str(), owner) {
            ("42P07", _) => "attach, rename or drop the table of this name".to_owned(),
            ("42501", Some(owner)) => {
                let (owner, schema) = (identifier(owner), identifier(&table.schema));
                format!(
                    "make the connector's role a member of the table's owner {owner}, from Postgres 16 on WITH SET TRUE, and let this \
                     owner create tables: GRANT CREATE ON SCHEMA {schema} TO {owner}"
                )
            }
            ("57014", _) => "keep the default partition empty: move its rows away".to_owned(),
            ("22003" | "22008", _) => {
                "a bound of a partition may be too far from the present: use MINVALUE or MAXVALUE".to_owned()
            }
            _ => {
                let otherwise =
                    "mend what the error says, or create the partitions yourself and remove walferry.partitions";
                failure.hint().unwrap_or(otherwise).to_owned()
            }
        };
        let what = match partition {
            Some(name) if code == "42P07" => format!("{code} {name}"),
            _ => code,
        };
        Self {
            partition: partition.map(str::to_owned),
            what,
            error: failure.to_string(),
            hint,
        }
    }

    /// The default partition has rows that belong into a new one.
    fn rows_in(default: &str, partition: &str) -> Self {
        Self {
            partition: Some(partition.to_owned()),
            what: "rows in the default partition".to_owned(),
            error: format!("the default partition {default} has rows of its time"),
            hint: "move these rows away, and keep the default partition empty".to_owned(),
        }
    }

    fn tell(&self, table: &str) {
        let message = match self.partition {
            Some(_) => "the partition could not be created; trying again",
            None => "no partition could be created, because the table could not be looked at; trying again",
        };
        tracing::warn!(
            code = Kind::OutboxPartitions.code(),
            table,
            partition = self.partition,
            error = self.error,
            hint = self.hint,
            "{message}"
        );
    }
}

/// The SQLSTATE of an error, or nothing.
fn code(error: &Error) -> &str {
    error.server_error().map_or("", |refused| &refused.code)
}

impl Period {
    const fn us(self) -> i64 {
        match self {
            Self::Hour => 3_600_000_000,
            Self::Day => 24 * 3_600_000_000,
        }
    }

    /// What the names of partitions end with, as `walferry outbox create` names them.
    const fn format(self) -> &'static str {
        match self {
            Self::Hour => "_YYYYMMDD_HH24",
            Self::Day => "_YYYYMMDD",
        }
    }

    /// The times of partitions that are wanted and for which there is none. A partition that covers a part of one is left as it is.
    fn missing(self, now_us: i64, ahead: u32, parts: &[Part]) -> Vec<(i64, i64)> {
        let step = self.us();
        let first = now_us.div_euclid(step) * step;
        let wanted = (0..=i64::from(ahead)).map(|number| (first + number * step, first + (number + 1) * step));
        let is_free = |(from, to): &(i64, i64)| {
            let overlaps = |part: &Part| {
                !part.is_default
                    && part.from_us.is_none_or(|start| start < *to)
                    && part.to_us.is_none_or(|end| end > *from)
            };
            !parts.iter().any(overlaps)
        };
        wanted.filter(is_free).collect()
    }
}

impl OutboxPartitions {
    /// Opens nothing yet.
    pub(crate) fn new(connector: &Connector) -> Self {
        Self {
            endpoint: Endpoint::new(connector.postgres.clone()),
            sql: None,
            said: SaidOnce::default(),
            pauses: HashMap::new(),
        }
    }

    /// From the next connection on, logs in with these settings. The server is the same.
    pub(crate) fn log_in_with(&mut self, settings: &PostgresSection) {
        self.endpoint = Endpoint::new(settings.clone());
    }

    /// Creates what is missing. What the server refuses is logged once.
    ///
    /// # Errors
    /// The server cannot be asked.
    pub(crate) async fn create(&mut self, tables: &[PartitionedTable]) -> Result<Created, Error> {
        let sql = match self.sql.take().filter(|sql| !sql.is_closed()) {
            Some(sql) => sql,
            None => self.endpoint.sql(Purpose::OutboxPartitions).await?,
        };
        let mut created = Created::default();
        let is_listed = |full_name: &String| tables.iter().any(|table| table.full_name() == *full_name);
        self.pauses.retain(|full_name, _| is_listed(full_name));
        for table in tables {
            let full_name = table.full_name();
            if self
                .pauses
                .get(&full_name)
                .is_some_and(|pause| pause.until > Instant::now())
            {
                continue;
            }
            let mut attempt = PartitionAttempt::default();
            match self.create_for(&sql, &full_name, table, &mut attempt).await {
                Ok(()) => {}
                Err(error) if sql.is_closed() => return Err(error),
                Err(error) => {
                    // The tables behind this one have their turn.
                    sql.execute(CREATING, "ROLLBACK").await?;
                    attempt.refusals.push(Refusal::of(error, table, None, None));
                }
            }
            created.partitions += attempt.created;
            match attempt.obstacle() {
                Some(obstacle) => self.postpone(full_name, obstacle, &attempt.refusals, &mut created),
                None => drop(self.pauses.remove(&full_name)),
            }
        }
        let until = self.pauses.values().map(|pause| pause.until).min();
        created.again = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.sql = Some(sql);
        Ok(created)
    }

    fn postpone(&mut self, table: String, obstacle: Obstacle, refusals: &[Refusal], created: &mut Created) {
        let mut pause = PartitionPause::after(self.pauses.remove(&table), obstacle);
        for refusal in refusals {
            if pause.is_news(refusal) {
                refusal.tell(&table);
            }
        }
        if pause.in_use == OFTEN_IN_USE {
            tracing::warn!(
                code = Kind::OutboxPartitions.code(),
                table,
                times = pause.in_use,
                hint = "look in pg_stat_activity for a long transaction that uses the table or its default partition",
                "a partition could not be created because the table is in use; trying again"
            );
        }
        created.refused += u64::from(!refusals.is_empty() || pause.in_use >= OFTEN_IN_USE);
        self.pauses.insert(table, pause);
    }

    async fn create_for(
        &mut self,
        sql: &Sql,
        full_name: &str,
        table: &PartitionedTable,
        attempt: &mut PartitionAttempt,
    ) -> Result<(), Error> {
        let Some(facts) = ranges(sql, (&table.schema, &table.name, &table.column)).await? else {
            self.said.once(full_name.to_owned(), || {
                tracing::warn!(
                    table = full_name,
                    column = table.column,
                    hint = "partition the table by ranges of this column, of type timestamptz or timestamp, as `walferry outbox create --partition day` does; \
                            with publish.via.partition.root=true, name the partitioned table in table.include.list. Or remove walferry.partitions",
                    "partitions are not created: the table is not partitioned by ranges of the column with the time"
                );
            });
            return Ok(());
        };
        self.said.is_over(full_name);
        create_missing(sql, table, &facts, attempt).await
    }
}

/// Creates the partitions that are missing, the earliest first. One that is refused does not hold up the ones of later times, unless these
/// would fare no better.
async fn create_missing(
    sql: &Sql,
    table: &PartitionedTable,
    facts: &Facts,
    attempt: &mut PartitionAttempt,
) -> Result<(), Error> {
    for (from, to) in table.period.missing(facts.now_us, table.ahead, &facts.parts) {
        let new = new(sql, table, from, to).await?;
        match create_one(sql, table, facts, &new).await {
            Ok(None) => {
                tracing::info!(partition = new.name, "partition created");
                attempt.created += 1;
            }
            // There may be none of later times.
            Ok(Some(default)) => attempt.refusals.push(Refusal::rows_in(&default, &new.name)),
            Err(error) if sql.is_closed() => return Err(error),
            Err(error) => {
                sql.execute(CREATING, "ROLLBACK").await?;
                let later = LaterPartitions::of(code(&error));
                if later == LaterPartitions::AfterPause {
                    attempt.is_in_use = true;
                    return Ok(());
                }
                let refusal = Refusal::of(error, table, Some(&facts.owner), Some(&new.name));
                attempt.refusals.push(refusal);
                if later == LaterPartitions::NotYet {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Creates a partition as the table's owner, who will want to alter and drop it. Returns the name of the default partition if it has rows of the
/// same time: Postgres would read all of it, under a lock, and then refuse.
async fn create_one(
    sql: &Sql,
    table: &PartitionedTable,
    facts: &Facts,
    new: &NewPartition,
) -> Result<Option<String>, Error> {
    let begin = format!("BEGIN; {LIMITS}; SET LOCAL ROLE {}", identifier(&facts.owner));
    let (NewPartition { name, from, to }, parent) = (new, qualified(&table.schema, &table.name));
    if let Some(default) = facts.parts.iter().find(|part| part.is_default) {
        let column = identifier(&table.column);
        // No other partition has rows of this time. The table's owner may always read them through the table.
        let is_in_the_way = format!(
            "{begin}; SELECT EXISTS (SELECT FROM {parent} WHERE {column} >= {from} AND {column} < {to}); COMMIT"
        );
        let found = sql.texts(LOOKING, &is_in_the_way).await?;
        if found.iter().flatten().flatten().any(|found| found == "t") {
            return Ok(Some(default.name.clone()));
        }
    }
    // As with PARTITION OF, indexes, foreign keys and triggers come with ATTACH, and so does an identity since Postgres 17.
    let statement = format!(
        "{begin};
         CREATE TABLE {name} (LIKE {parent} INCLUDING ALL EXCLUDING INDEXES EXCLUDING IDENTITY EXCLUDING STATISTICS EXCLUDING COMMENTS){};
         ALTER TABLE {parent} ATTACH PARTITION {name} FOR VALUES FROM ({from}) TO ({to});
         COMMIT",
        facts.storage
    );
    sql.execute(CREATING, &statement).await?;
    Ok(None)
}

/// The name of a partition, and its bounds.
async fn new(sql: &Sql, table: &PartitionedTable, from: i64, to: i64) -> Result<NewPartition, Error> {
    const BOUNDS: &str = "
        SELECT pg_catalog.to_char(b.starts AT TIME ZONE 'UTC', $3), b.starts AT TIME ZONE 'UTC' || '+00', b.ends AT TIME ZONE 'UTC' || '+00'
        FROM (SELECT pg_catalog.to_timestamp($1::int8 / 1000000) AS starts, pg_catalog.to_timestamp($2::int8 / 1000000) AS ends) b";
    let format = table.period.format();
    let parameters: [(&(dyn ToSql + Sync), Type); 3] = [(&from, Type::INT8), (&to, Type::INT8), (&format, Type::TEXT)];
    let row = sql.row(LOOKING, BOUNDS, &parameters).await?;
    let text =
        |place: usize| -> Result<String, Error> { row.try_get(place).map_err(|error| Error::sql(LOOKING, error)) };
    // A column without time zone leaves the +00 out.
    Ok(NewPartition {
        name: qualified(&table.schema, &format!("{}{}", stem(&table.name), text(0)?)),
        from: literal(&text(1)?),
        to: literal(&text(2)?),
    })
}

/// Room is left for what the name of a partition ends with.
fn stem(table: &str) -> &str {
    const MOST: usize = 63 - "_YYYYMMDD_HH24".len();
    let end = (0..=MOST)
        .rev()
        .find(|end| table.is_char_boundary(*end) || *end >= table.len());
    table.get(..end.unwrap_or_default()).unwrap_or(table)
}

/// What the catalog says of a table; `None` if it is not partitioned by ranges of the column.
pub(crate) async fn ranges(
    sql: &Sql,
    (schema, name, column): (&String, &String, &String),
) -> Result<Option<Facts>, Error> {
    const TABLE: &str = "
        SELECT c.oid, pg_catalog.format_type(a.atttypid, NULL), (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8,
               pg_catalog.pg_get_userbyid(c.relowner)::text,
               COALESCE((SELECT pg_catalog.format(' USING %I', m.amname) FROM pg_catalog.pg_am m WHERE m.oid = c.relam), '')
                 || COALESCE((SELECT pg_catalog.format(' TABLESPACE %I', s.spcname) FROM pg_catalog.pg_tablespace s WHERE s.oid = c.reltablespace), '')
        FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_class c ON c.oid = p.partrelid
             JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
             JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = p.partattrs[0]
        WHERE n.nspname = $1 AND c.relname = $2 AND a.attname = $3 AND p.partstrat = 'r' AND p.partnatts = 1";
    let read = |error| Error::sql(LOOKING, error);
    let parameters: [(&(dyn ToSql + Sync), Type); 3] = [(schema, Type::TEXT), (name, Type::TEXT), (column, Type::TEXT)];
    let rows = sql.rows(LOOKING, TABLE, &parameters).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (oid, kind): (u32, String) = (row.try_get(0).map_err(read)?, row.try_get(1).map_err(read)?);
    let time = match TimeColumn::of(&kind) {
        Some(time @ (TimeColumn::Zoned | TimeColumn::Utc)) => time,
        Some(TimeColumn::Millis) | None => return Ok(None),
    };
    Ok(Some(Facts {
        now_us: row.try_get(2).map_err(read)?,
        owner: row.try_get(3).map_err(read)?,
        storage: row.try_get(4).map_err(read)?,
        parts: parts(sql, oid, time).await?,
    }))
}

/// The partitions of a table.
async fn parts(sql: &Sql, table: u32, time: TimeColumn) -> Result<Vec<Part>, Error> {
    let kind = if time == TimeColumn::Utc {
        "timestamp"
    } else {
        "timestamptz"
    };
    let bound = |word: &str| {
        let text = format!("pg_catalog.substring(b.bound, '{word} \\(''([^'']*)''\\)')");
        time.us(&format!("NULLIF(NULLIF({text}, 'infinity'), '-infinity')::{kind}"))
    };
    let query = format!(
        "SELECT b.bound = 'DEFAULT', {}, {}, pg_catalog.format('%I.%I', n.nspname, c.relname), c.oid
         FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
              JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
              LATERAL (SELECT pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS bound) b
         WHERE i.inhparent = $1",
        bound("FROM"),
        bound("TO"),
    );
    let read = |error| Error::sql(LOOKING, error);
    let mut found = Vec::new();
    for part in sql.rows(LOOKING, &query, &[(&table, Type::OID)]).await? {
        found.push(Part {
            is_default: part.try_get::<_, Option<bool>>(0).map_err(read)?.unwrap_or_default(),
            from_us: part.try_get(1).map_err(read)?,
            to_us: part.try_get(2).map_err(read)?,
            name: part.try_get(3).map_err(read)?,
            oid: part.try_get(4).map_err(read)?,
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use walferry_postgres::ServerError;

    const HOUR: i64 = 3_600_000_000;

    fn part(from_us: Option<i64>, to_us: Option<i64>, is_default: bool) -> Part {
        Part {
            oid: 0,
            name: String::new(),
            is_default,
            from_us,
            to_us,
        }
    }

    #[test]
    fn only_times_without_a_partition_get_one() {
        let now_us = 10 * HOUR + 5;
        let mut parts = vec![part(None, None, true)];
        let hours = |parts: &[Part]| {
            let missing = Period::Hour.missing(now_us, 3, parts).into_iter();
            missing.map(|(from, to)| (from / HOUR, to / HOUR)).collect::<Vec<_>>()
        };
        assert_eq!(hours(&parts), [(10, 11), (11, 12), (12, 13), (13, 14)]);
        parts.push(part(Some(8 * HOUR), Some(11 * HOUR), false));
        // One that covers the half of an hour.
        parts.push(part(Some(12 * HOUR + HOUR / 2), Some(13 * HOUR), false));
        assert_eq!(hours(&parts), [(11, 12), (13, 14)]);
        parts.push(part(Some(13 * HOUR), None, false));
        assert_eq!(hours(&parts), [(11, 12)]);
        assert_eq!(Period::Day.missing(now_us, 0, &parts), []);
        assert_eq!(
            Period::Day.missing(now_us, 1, &[]),
            [(0, 24 * HOUR), (24 * HOUR, 48 * HOUR)]
        );
    }

    #[test]
    fn names_of_partitions_have_room_for_their_time() {
        assert_eq!(stem("outbox"), "outbox");
        assert_eq!(stem(&"é".repeat(40)).len(), 48);
    }

    #[test]
    fn a_table_rests_for_twice_as_long_each_time_and_longer_after_a_refusal() {
        let pauses = |obstacles: &[Obstacle]| {
            let mut pause: Option<PartitionPause> = None;
            let pauses = obstacles.iter().map(|obstacle| {
                let next = PartitionPause::after(pause.take(), *obstacle);
                let seconds_and_times = (next.pause.as_secs(), next.in_use);
                pause = Some(next);
                seconds_and_times
            });
            pauses.collect::<Vec<_>>()
        };
        let in_use = [Obstacle::InUse; 7];
        assert_eq!(
            pauses(&in_use),
            [(10, 1), (20, 2), (40, 3), (80, 4), (160, 5), (300, 6), (300, 7)]
        );
        let refused = [Obstacle::Refused; 6];
        assert_eq!(
            pauses(&refused),
            [(120, 0), (240, 0), (480, 0), (960, 0), (1800, 0), (1800, 0)]
        );
        assert_eq!(pauses(&[Obstacle::InUse, Obstacle::Refused]), [(10, 1), (120, 0)]);
    }

    #[test]
    fn a_refusal_that_costs_no_lock_does_not_hold_up_later_partitions() {
        for (code, expected) in [
            ("55P03", LaterPartitions::AfterPause),
            ("42P07", LaterPartitions::Now),
            ("42P17", LaterPartitions::Now),
            ("42501", LaterPartitions::NotYet),
            ("57014", LaterPartitions::NotYet),
            ("23514", LaterPartitions::NotYet),
            ("", LaterPartitions::NotYet),
        ] {
            assert_eq!(LaterPartitions::of(code), expected, "{code}");
        }
    }

    fn refusal(code: &str, partition: Option<&str>) -> Refusal {
        let table = PartitionedTable {
            schema: "shop".to_owned(),
            name: "outbox".to_owned(),
            column: "created_at".to_owned(),
            period: Period::Day,
            ahead: 7,
        };
        let error = ServerError {
            code: code.to_owned(),
            ..ServerError::default()
        };
        Refusal::of(Error::server(CREATING, error), &table, Some("o\"wner"), partition)
    }

    #[test]
    fn a_refusal_says_what_to_do_about_it() {
        let taken = refusal("42P07", Some("outbox_1"));
        assert_eq!(taken.hint, "attach, rename or drop the table of this name");
        let denied = refusal("42501", Some("outbox_1"));
        assert!(
            denied.hint.contains("from Postgres 16 on WITH SET TRUE"),
            "{}",
            denied.hint
        );
        let grant = r#"GRANT CREATE ON SCHEMA "shop" TO "o""wner""#;
        assert!(denied.hint.ends_with(grant), "{}", denied.hint);
        assert!(refusal("57014", Some("outbox_1")).hint.contains("default partition"));
        assert!(refusal("22003", None).hint.contains("MAXVALUE"));
        assert!(refusal("XX000", None).hint.contains("walferry.partitions"));
    }

    #[test]
    fn a_refusal_is_told_once_and_again_when_it_returns_after_it_was_mended() {
        let (taken, other) = (refusal("42P07", Some("outbox_1")), refusal("42P07", Some("outbox_2")));
        let mut pause = PartitionPause::after(None, Obstacle::Refused);
        assert!(pause.is_news(&taken));
        let mut pause = PartitionPause::after(Some(pause), Obstacle::InUse);
        assert!(!pause.is_news(&taken));
        assert!(pause.is_news(&other), "it has to be attached or renamed, too");
        // The next partition has another name, for the same reason.
        assert!(pause.is_news(&refusal("42501", Some("outbox_1"))));
        assert!(!pause.is_news(&refusal("42501", Some("outbox_2"))));
        // A table of which all partitions were created does not rest any more.
        assert!(PartitionPause::after(None, Obstacle::Refused).is_news(&taken));
    }
}
