//! Removes delivered rows of outbox tables, beside the stream.
//!
//! A row may go once its transaction is confirmed: Kafka has the event, the offset is stored, and Postgres was told. SQL shows neither the
//! LSN at which a row was committed nor the order of commits. So the proof goes through a *mark*, which is taken in one statement:
//!
//! 1. the `xmin` of a snapshot: every transaction with a lower id had ended when the snapshot was taken;
//! 2. after it, the position at which the server writes next. A transaction that had ended had written its commit before it.
//!
//! Once the slot is confirmed *beyond* that position, every row whose own transaction id is below that `xmin` is confirmed, as far as it
//! can be seen at all.
//!
//! Three details carry the proof:
//!
//! - The position is that of the next insertion. With `synchronous_commit=off` a commit can be seen before it is written out, so
//!   `pg_current_wal_lsn()` may lie before it.
//! - Ids between the snapshot's `xmin` and its `xmax` are not looked up in its list of running transactions: this list does not have
//!   subtransactions, whose ids stand in rows that a savepoint wrote.
//! - "Beyond" excludes the position itself. On a server that writes nothing, a slot is confirmed at the position at which it was
//!   created, before any existing row has been read from it.
//!
//! A mark counts on the connection on which it was taken, and no longer: after a failover neither ids nor positions mean the same.
//!
//! That the slot is beyond a row does not say that the row was sent: it may have been written before its table was captured, while the
//! publication left it out, or in a gap. So each table and each partition has a *lower bound* (`bounds.rs`): a transaction id that was assigned
//! while the connector streamed the table, and the time of it. Rows with a lower transaction id are never removed. Neither are rows from
//! before that time: an update gives an old row a new transaction id. The lower bound lasts as long as the stream goes on exactly where it was, over
//! connections and restarts, and as long as the table and its place in the publication stay what they are, by the catalog's own row versions.

mod bounds;
mod drops;
mod kept_rows;
mod part_bounds;
mod table;
mod target;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio_postgres::types::Type;
use walferry_config::Connector;
use walferry_config::connector::PostgresSection;
use walferry_pgoutput::Lsn;

use crate::lower_bounds::{MOST_PARTS, RunBounds};
use crate::said::SaidOnce;
use bounds::TableBounds;
use drops::{DropAttempt, DropPauses, Droppable, Obstacle, Undropped};
use kept_rows::{KeptRows, KeptRowsNews};
pub(crate) use table::CleanedTable;
use table::{DOING, LOOKING};
use target::{Batch, CleanupTarget, ScannedUpTo};
use walferry_postgres::Error;
use walferry_postgres::connection::{Endpoint, Purpose, Sql};

/// What a round has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Round {
    /// Rows that were removed.
    pub removed: u64,
    /// Partitions that were dropped.
    pub dropped: u64,
    /// How long the server worked on it.
    pub took: Duration,
    /// Whether there may be more to remove at once.
    pub more: bool,
    /// Nothing was removed because the slot is this many bytes behind: removing rows would make its backlog longer.
    pub behind_bytes: Option<u64>,
    /// How many tables have failed, or keep rows, and how many partitions could not be looked at. Each is logged once, and rests; the others
    /// go on.
    pub failed: u64,
    /// Code of a table has changed settings of the session, which are not those that the next table is to have.
    has_changed_session: bool,
}

/// Removes rows, over a connection of its own.
///
/// Its state expires at different times: [`Marks`] with each connection; [`Targets`], and marks too, when the stream reconnects or after an error;
/// lower bounds and kept rows when the stream does not continue where it was, or another server answers.
#[derive(Debug)]
pub(crate) struct Cleaner {
    endpoint: Endpoint,
    slot: String,
    session: Session,
    server: ServerFacts,
    marks: Marks,
    targets: Targets,
    bounds: TableBounds,
    /// What the server keeps, by table.
    kept_rows: HashMap<String, KeptRows>,
    /// Partitions that could not be dropped, and tables of which none could.
    undropped: DropPauses,
    /// Tables that have failed the last time.
    failing: HashMap<String, PausedTable>,
    /// This cleaner made the last write that it saw in the WAL.
    has_nudged: bool,
    said: SaidOnce,
    /// How often the stream did not go on where it was, at the last round.
    breaks: Option<u64>,
}

/// The connection, and what is set in its session.
#[derive(Debug, Default)]
struct Session {
    /// `None` in a round, too.
    sql: Option<Sql>,
    /// See [`Sql::session_settings`].
    settings: Option<String>,
    planning: Planning,
}

/// Which server answers.
#[derive(Debug, Default)]
struct ServerFacts {
    /// The server of this connection, with its timeline.
    identity: Option<String>,
    /// When it was asked what it is recognised by.
    recognised_at: Option<Instant>,
    /// It is recognised from now on: what was kept on this server holds.
    is_recognised_anew: bool,
    follows_publications: bool,
    is_version_told: bool,
}

/// What marks have shown. Valid only on the connection on which they were taken.
#[derive(Debug, Default)]
struct Marks {
    /// Waits to be confirmed.
    pending: Option<ConfirmationMark>,
    /// All rows with a lower transaction id are confirmed.
    confirmed_xmin: Option<i64>,
    /// How far each table was looked through for the confirmed mark.
    reached: HashMap<String, ScannedUpTo>,
    /// Where the WAL ended when the last mark was confirmed, if only this cleaner's own transaction had moved it there. While the WAL still ends
    /// there, no new mark is needed.
    quiet_at: Option<Lsn>,
}

/// The tables from which rows are removed.
#[derive(Debug, Default)]
struct Targets {
    tables: Vec<CleanupTarget>,
    /// When they were looked for.
    looked: Option<Instant>,
    /// The next one to look through.
    next: usize,
}

/// A place at which everything that a snapshot shows was committed.
#[derive(Debug, Clone, Copy)]
struct ConfirmationMark {
    /// All transactions with a lower id had ended.
    xmin: i64,
    /// They had ended before this position.
    lsn: Lsn,
}

/// What the server says at one moment.
#[derive(Debug, Clone, Copy)]
struct ServerNow {
    mark: ConfirmationMark,
    /// Of the slot.
    confirmed: Lsn,
    /// In microseconds since 1970.
    now_us: i64,
}

/// A table that rests.
#[derive(Debug)]
struct PausedTable {
    text: String,
    until: Instant,
    /// How often in a row a lock was not to be had.
    locks: u32,
}

/// How long the list of tables counts.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);

/// How long not to look again. In a busy database, a mark is confirmed in each round.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// How long a table rests that has failed, and how many times as long as the failure took.
const PAUSE: (Duration, u32) = (Duration::from_secs(30), 4);

/// How long a table rests where a lock was not to be had. Often this is over soon: the server may still work on a statement of a Walferry that
/// has just ended. It doubles each time, up to [`PAUSE`].
const LOCK_PAUSE: Duration = Duration::from_secs(2);

/// After so long, a round is over, whatever there is to remove.
const LONGEST_REMOVAL: Duration = Duration::from_secs(2);

/// Bytes that the slot may be behind.
const MOST_BEHIND: u64 = 256 * 1024 * 1024;

/// A server that could not be recognised is asked again after this.
const RECOGNISE_AGAIN: Duration = Duration::from_secs(300);

/// Who works on the rows goes first: a lock is not waited for as long as it takes the server to look for a deadlock.
const SETTINGS: &str = "SET lock_timeout = '500ms'; SET statement_timeout = '30s'";

/// As in [`SETTINGS`].
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// The settings that [`Planning`] changes.
const OF_PLANNING: [&str; 4] = [
    "enable_sort",
    "enable_nestloop",
    "max_parallel_workers_per_gather",
    "jit",
];

/// How the server plans statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Planning {
    #[default]
    Usual,
    /// The planner does not know how few of the rows that are due a batch takes, nor how many places it has. With a long backlog it would
    /// read and sort all rows for each batch, with the application's workers. In a nested loop it would go through all places of a batch for
    /// each of its rows. Without sorts and nested loops, rows come by the index and are found by their places: the cost of a batch does not
    /// grow with the rows that are due. Other statements need nested loops: they would read whole catalogs.
    Batches,
}

impl Planning {
    async fn set(&mut self, sql: &Sql, planning: Self) -> Result<(), Error> {
        if *self != planning {
            let settings = match planning {
                Self::Batches => {
                    "SET enable_sort = off; SET enable_nestloop = off; SET max_parallel_workers_per_gather = 0; SET jit = off"
                }
                Self::Usual => {
                    "RESET enable_sort; RESET enable_nestloop; RESET max_parallel_workers_per_gather; RESET jit"
                }
            };
            sql.execute(DOING, settings).await?;
            *self = planning;
        }
        Ok(())
    }
}

const UNRECOGNISED: &str = "the server is not recognised";

const VERSION: &str = "SELECT pg_catalog.current_setting('server_version_num')::int4";

/// What the server is recognised by: its system identifier and its timeline.
const SERVER: &str = "
    SELECT (SELECT system_identifier FROM pg_catalog.pg_control_system())
             || '/' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 8)";

/// Whether rows of a table that has just been published are in the stream. Versions before May 2025 do not tell transactions that are
/// running of a change of a publication. Postgres 14 does not send the rows of a table that is attached as a partition to a walsender that
/// has seen rows of the table before.
const fn follows_publications(version: i32) -> bool {
    let minor = version % 10000;
    match version / 10000 {
        15 => minor >= 13,
        16 => minor >= 9,
        17 => minor >= 5,
        major => major > 17,
    }
}

/// All in one statement: its snapshot is taken before any function of it is called.
const MARK: &str = "
    SELECT pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot())::text::int8,
           (pg_catalog.pg_current_wal_insert_lsn() - '0/0')::int8,
           (SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_catalog.pg_replication_slots
            WHERE slot_name = $1 AND database = pg_catalog.current_database()),
           (EXTRACT(epoch FROM pg_catalog.clock_timestamp()) * 1000000)::int8";

impl Cleaner {
    /// Opens nothing yet.
    pub(crate) fn new(connector: &Connector) -> Self {
        Self {
            endpoint: Endpoint::new(connector.postgres.clone()),
            slot: connector.slot.name.to_string(),
            session: Session::default(),
            server: ServerFacts::default(),
            marks: Marks::default(),
            targets: Targets::default(),
            bounds: TableBounds::new(&connector.publication.name),
            kept_rows: HashMap::new(),
            undropped: DropPauses::default(),
            failing: HashMap::new(),
            has_nudged: false,
            said: SaidOnce::default(),
            breaks: None,
        }
    }

    /// From the next connection on, logs in with these settings. The server is the same.
    pub(crate) fn log_in_with(&mut self, settings: &PostgresSection) {
        self.endpoint = Endpoint::new(settings.clone());
    }

    /// Forgets what is known: the stream may not have gone on where it was. Rows that are there now are never removed.
    pub(crate) fn forget(&mut self) {
        self.kept_rows.clear();
        self.bounds.forget();
        self.begin_anew();
    }

    /// The stream has another connection. Whether it goes on where it was, the next round learns.
    pub(crate) fn begin_anew(&mut self) {
        self.targets = Targets::default();
        self.marks = Marks::default();
    }

    /// Takes and settles marks, and goes through the tables in turn until it has removed a full batch of rows. `reported` is the position up to
    /// which the connector itself has told the server that it needs nothing any more. `run` says what the stream has brought up to there
    /// or further. It has lower bounds of earlier connections and runs, and gets those that are laid now.
    ///
    /// # Errors
    /// The server cannot be asked. The next round begins anew. What fails for one table only is logged, and counted in the round.
    pub(crate) async fn round(
        &mut self,
        tables: &[CleanedTable],
        reported: Lsn,
        run: &RunBounds,
    ) -> Result<Round, Error> {
        if reported == Lsn::INVALID {
            // Nothing is confirmed in this run yet.
            return Ok(Round::default());
        }
        let done = self.try_round(tables, reported, run).await;
        if done.is_err() {
            self.begin_anew();
        }
        done
    }

    async fn try_round(&mut self, tables: &[CleanedTable], reported: Lsn, run: &RunBounds) -> Result<Round, Error> {
        let begun = Instant::now();
        let mut round = Round::default();
        // An error ends the connection.
        let sql = self.connected().await?;
        if self.server.follows_publications {
            self.take_over(run);
            match self.here(&sql).await? {
                Some(here) => self.work(&sql, here, reported, tables, run, &mut round).await?,
                // Without a slot nothing is confirmed.
                None => self.forget(),
            }
            self.keep_bounds(run);
        }
        self.session.sql = Some(sql).filter(|_| !round.has_changed_session);
        round.took = begun.elapsed();
        Ok(round)
    }

    /// Takes over the stored lower bounds: in the first round, after each break of the stream, and once the server is recognised.
    fn take_over(&mut self, run: &RunBounds) {
        let (breaks, bounds) = run.get();
        let goes_on = self.breaks.replace(breaks) == Some(breaks);
        let is_recognised = std::mem::take(&mut self.server.is_recognised_anew);
        match (goes_on, is_recognised) {
            (true, false) => return,
            // What was laid without knowing the server was laid on it. With lower bounds from before, the search begins anew.
            (true, true) => self.begin_anew(),
            (false, _) => self.forget(),
        }
        if let Some(bounds) = bounds.filter(|bounds| Some(&bounds.server) == self.server.identity.as_ref()) {
            self.bounds.restore(&bounds.tables);
            tracing::info!(
                tables = bounds.tables.len(),
                "the stream goes on where it was: rows from before this start are removed, too, if nothing has changed about their table"
            );
        }
    }

    /// Has the lower bounds stored with the offset.
    fn keep_bounds(&mut self, run: &RunBounds) {
        let (Some(breaks), Some(server)) = (self.breaks, &self.server.identity) else {
            return;
        };
        let (tables, left) = self.bounds.stored();
        for table in run.keep(breaks, server, tables, left) {
            self.said.once(format!("{table} has too many partitions"), || {
                tracing::warn!(
                    table,
                    most = MOST_PARTS,
                    hint = "drop old partitions, or make partitions longer; after a restart, remove rows from before it yourself once they are \
                            delivered",
                    "rows of an outbox that are there at a restart will never be removed: the outboxes have too many partitions"
                );
            });
        }
    }

    async fn work(
        &mut self,
        sql: &Sql,
        here: ServerNow,
        reported: Lsn,
        tables: &[CleanedTable],
        run: &RunBounds,
        round: &mut Round,
    ) -> Result<(), Error> {
        let confirmed = here.confirmed.min(reported);
        self.settle(sql, here.mark, confirmed).await?;
        let behind = here.mark.lsn.0.saturating_sub(confirmed.0);
        if behind > MOST_BEHIND {
            round.behind_bytes = Some(behind);
            return Ok(());
        }
        self.look(sql, tables, run, round).await?;
        match self.marks.confirmed_xmin {
            Some(xmin) => self.remove(sql, xmin, here.now_us, round).await,
            None => Ok(()),
        }
    }

    async fn connected(&mut self) -> Result<Sql, Error> {
        if let Some(sql) = self.session.sql.take().filter(|sql| !sql.is_closed()) {
            if self.server.identity.is_none()
                && self
                    .server
                    .recognised_at
                    .is_some_and(|at| at.elapsed() > RECOGNISE_AGAIN)
            {
                // The privilege may have been granted. What was laid on this connection was laid on this server.
                self.server.identity = self.recognised(&sql).await?;
            }
            return Ok(sql);
        }
        self.marks = Marks::default();
        let mut sql = self.endpoint.sql(Purpose::Cleanup).await?;
        sql.limit_to(STATEMENT_TIMEOUT);
        sql.execute(DOING, SETTINGS).await?;
        self.session.planning = Planning::Usual;
        self.session.settings = sql.session_settings(LOOKING, &OF_PLANNING).await?;
        let version: i32 = sql.value(LOOKING, VERSION, &[]).await?;
        let server = self.recognised(&sql).await?;
        if server.is_none() || self.server.identity != server {
            // Another server may answer, or this one with another history.
            self.forget();
        }
        self.server.identity = server;
        self.server.follows_publications = follows_publications(version);
        if !self.server.follows_publications && !std::mem::replace(&mut self.server.is_version_told, true) {
            tracing::warn!(
                version,
                hint = "update the server to 15.13, 16.9, 17.5 or later, or remove walferry.retention.ms",
                "delivered rows are not removed: this version of Postgres may leave rows out of the stream when a publication changes"
            );
        }
        Ok(sql)
    }

    /// What the server of this connection is recognised by. `None` without the privilege to ask for it: lower bounds then count for one connection.
    async fn recognised(&mut self, sql: &Sql) -> Result<Option<String>, Error> {
        self.server.recognised_at = Some(Instant::now());
        match sql.value(LOOKING, SERVER, &[]).await {
            Ok(server) => {
                if self.said.is_over(UNRECOGNISED) {
                    self.server.is_recognised_anew = true;
                    tracing::info!("the server of an outbox is recognised from now on");
                }
                Ok(Some(server))
            }
            Err(error) if is_privilege_missing(&error) => {
                self.said.once(UNRECOGNISED.to_owned(), || {
                    tracing::warn!(
                        error = walferry_engine::Failure::from(error).to_string(),
                        hint = "GRANT EXECUTE ON FUNCTION pg_catalog.pg_control_system(), pg_catalog.pg_walfile_name(pg_lsn) to the \
                                connector's role",
                        "rows of an outbox that were written before a lost connection or a restart are never removed: Walferry cannot \
                         recognise the server"
                    );
                });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn here(&self, sql: &Sql) -> Result<Option<ServerNow>, Error> {
        let row = sql.row(LOOKING, MARK, &[(&self.slot, Type::TEXT)]).await?;
        let number = |place: usize| -> Result<Option<i64>, Error> {
            row.try_get(place).map_err(|error| Error::sql(LOOKING, error))
        };
        let position = |number: i64| Lsn(number.unsigned_abs());
        let (Some(xmin), Some(lsn), Some(confirmed), Some(now_us)) = (number(0)?, number(1)?, number(2)?, number(3)?)
        else {
            return Ok(None);
        };
        Ok(Some(ServerNow {
            mark: ConfirmationMark {
                xmin,
                lsn: position(lsn),
            },
            confirmed: position(confirmed),
            now_us,
        }))
    }

    /// Settles the mark that waits, and takes the next one.
    async fn settle(&mut self, sql: &Sql, here: ConfirmationMark, confirmed: Lsn) -> Result<(), Error> {
        if let Some(mark) = self.marks.pending
            && mark.lsn < confirmed
        {
            if self.targets.looked.is_some_and(|looked| looked.elapsed() < LOOK_PAUSE) {
                // It is as good a little later.
                return Ok(());
            }
            self.marks.confirmed_xmin = Some(mark.xmin);
            self.marks.pending = None;
            // The publication is looked at again before a row is removed: it may have left out rows that are below this mark.
            self.targets.looked = None;
            self.marks.quiet_at = std::mem::take(&mut self.has_nudged).then_some(here.lsn);
        } else if self
            .marks
            .pending
            .is_some_and(|mark| mark.lsn == confirmed && mark.lsn == here.lsn)
        {
            // Nothing else is written here. The commit of a transaction without changes moves the slot beyond the mark.
            sql.execute(LOOKING, "SELECT pg_catalog.pg_current_xact_id()").await?;
            self.has_nudged = true;
        }
        if self.marks.pending.is_none() && self.marks.quiet_at != Some(here.lsn) {
            self.marks.pending = Some(here);
        }
        Ok(())
    }

    /// Looks for the tables again if it is time.
    async fn look(
        &mut self,
        sql: &Sql,
        tables: &[CleanedTable],
        run: &RunBounds,
        round: &mut Round,
    ) -> Result<(), Error> {
        if self
            .targets
            .looked
            .is_some_and(|looked| looked.elapsed() <= LOOK_INTERVAL)
        {
            return Ok(());
        }
        // Without an answer, there are none.
        self.targets.tables.clear();
        self.session.planning.set(sql, Planning::Usual).await?;
        let failing = &self.failing;
        let is_paused = |table: &str| is_resting(failing, table);
        let looked = self.bounds.look(sql, tables, run, is_paused, &self.undropped).await?;
        // Of a table that rests or has failed, it is not known which partitions are there.
        let is_whole = looked.failed.is_empty() && !tables.iter().any(|table| is_paused(&table.full_name()));
        self.targets.tables = looked.targets;
        if is_whole {
            let drops = self.targets.tables.iter().flat_map(|target| &target.drops);
            self.undropped
                .retain(|oid| drops.clone().any(|(part, _)| part.oid == oid || part.root == oid));
        }
        round.failed += looked.unchecked;
        self.targets.looked = Some(Instant::now());
        for (table, error, took) in looked.failed {
            self.fail(table, error, took, round);
        }
        Ok(())
    }

    /// Goes through the tables in turn, starting after the table at which the last round stopped, and stops at the first that has more rows than
    /// a batch takes.
    async fn remove(&mut self, sql: &Sql, xmin: i64, now_us: i64, round: &mut Round) -> Result<(), Error> {
        let started = Instant::now();
        for _ in 0..self.targets.tables.len() {
            let place = self.targets.next % self.targets.tables.len();
            let target = &self.targets.tables[place];
            if is_resting(&self.failing, &target.table) {
                self.targets.next = place + 1;
                continue;
            }
            if started.elapsed() > LONGEST_REMOVAL {
                round.more = true;
                break;
            }
            self.targets.next = place + 1;
            if self.drop_one(sql, place, (xmin, now_us), round).await? || self.targets.looked.is_none() {
                // What was tried may have changed what is removed: the next round looks again.
                break;
            }
            self.session.planning.set(sql, Planning::Batches).await?;
            let target = &self.targets.tables[place];
            let (table, begun) = (target.table.clone(), Instant::now());
            if self
                .kept_rows
                .get_mut(&table)
                .is_some_and(|kept_rows| kept_rows.are_due(begun))
            {
                // This mark may be behind them, and in a quiet database there is no other.
                self.marks.reached.remove(&table);
            }
            let reached = self.marks.reached.get(&table).copied();
            let range = self.kept_rows.get(&table).and_then(KeptRows::range);
            let step_us = target.step_us;
            match target.remove_batch(sql, xmin, now_us, reached, range).await {
                Ok(batch) => {
                    round.has_changed_session = self.has_changed_session(sql, &table).await;
                    self.removed(table, step_us, batch, round);
                    if round.more || round.has_changed_session {
                        break;
                    }
                }
                Err(error) if sql.is_closed() => return Err(error),
                Err(error) => self.fail(table, error, begun.elapsed(), round),
            }
        }
        Ok(())
    }

    /// Whether code of the table just processed has changed the session's settings. If so, the server may not even be able to say, so an error counts
    /// as a change: the session is replaced, and what this round has removed is counted all the same.
    async fn has_changed_session(&mut self, sql: &Sql, table: &str) -> bool {
        match sql.session_settings(LOOKING, &OF_PLANNING).await {
            Ok(settings) if settings == self.session.settings => return false,
            Ok(_) => self.said.once(format!("{table} changes settings"), || {
                tracing::warn!(
                    table,
                    hint = "look at the triggers of the table; set_config(…, true) sets something for the transaction only",
                    "a trigger or a function of an outbox changes settings of the session that removes its rows: each time, Walferry connects \
                     anew"
                );
            }),
            // The next connection reports a server that is away.
            Err(_) if sql.is_closed() => {}
            Err(error) => self.said.once(format!("{table} hides settings"), || {
                tracing::warn!(
                    table,
                    error = %walferry_engine::Failure::from(error),
                    hint = "if this comes again, look at the triggers of the table: what they set lasts until the session ends",
                    "after rows of an outbox were removed, the server did not report the settings of the session: Walferry connects anew"
                );
            }),
        }
        true
    }

    /// Drops a partition of a table, if the time of one is over. Returns whether one was dropped. If not, rows have their turn.
    async fn drop_one(
        &mut self,
        sql: &Sql,
        place: usize,
        (xmin, now_us): (i64, i64),
        round: &mut Round,
    ) -> Result<bool, Error> {
        let target = &self.targets.tables[place];
        let until_us = now_us.saturating_sub(target.keep_us);
        let Some((part, bounds)) = self.undropped.due(&target.drops, until_us, Instant::now()) else {
            return Ok(false);
        };
        self.session.planning.set(sql, Planning::Usual).await?;
        let attempt = DropAttempt {
            sql,
            table: &target.cleaned,
            time: target.time,
            part,
            bounds,
            xmin,
            lock_limit: self.undropped.lock_limit(part),
        };
        let done = attempt.run().await;
        if sql.is_closed() {
            // Otherwise the next round would begin with it.
            self.undropped.postpone(part, Obstacle::Slow, Instant::now());
            return match done.err().and_then(|undropped| undropped.error) {
                Some(error) => Err(error),
                None => Ok(false),
            };
        }
        let (table, part) = (target.table.clone(), part.clone());
        let is_dropped = done.is_ok();
        self.tried_to_drop(&table, part, done, round);
        Ok(is_dropped)
    }

    /// After an attempt to drop a partition.
    fn tried_to_drop(&mut self, table: &str, part: Droppable, done: Result<(), Undropped>, round: &mut Round) {
        // There may be another one whose time is over.
        round.more = true;
        let Err(undropped) = done else {
            tracing::info!(
                table,
                partition = part.name,
                "partition dropped: all of its rows were delivered"
            );
            round.dropped += 1;
            self.targets.looked = None;
            self.undropped.dropped(&part);
            return;
        };
        let (obstacle, kept_rows) = (undropped.obstacle, self.undropped.kept_rows(&part));
        let times = self.undropped.postpone(&part, obstacle, Instant::now());
        if obstacle == Obstacle::Changed {
            // It may be gone, or be another one: the next look says so.
            self.targets.looked = None;
        }
        if self.undropped.kept_rows(&part) != kept_rows {
            // Its rows, or those of all partitions, are removed from now on. The search of this mark may be behind them.
            self.targets.looked = None;
            self.marks.reached.remove(table);
        }
        round.failed += tell_of_undropped(table, &part.name, undropped, times);
    }

    /// After a batch of a table.
    fn removed(&mut self, table: String, step_us: i64, batch: Batch, round: &mut Round) {
        self.failing.remove(&table);
        self.marks.reached.insert(table.clone(), batch.reached);
        let Some(found) = batch.found else { return };
        round.removed += found.removed;
        round.more |= found.is_full;
        let news = self
            .kept_rows
            .entry(table.clone())
            .or_default()
            .learn(found, step_us, Instant::now());
        round.failed += u64::from(news != KeptRowsNews::None);
        if news == KeptRowsNews::First {
            tracing::warn!(
                code = walferry_diagnosis::Kind::OutboxCleanup.code(),
                table,
                hint = "a trigger BEFORE DELETE returns NULL, or no policy of row-level security lets the role delete: drop the trigger, add \
                        a policy that lets the role delete, or exempt the role (ALTER ROLE … BYPASSRLS)",
                "delivered rows stay in an outbox although they were to be removed; trying again every 10 minutes, and going on with later rows"
            );
        }
    }

    /// Lets a table rest, so that it does not hold up the others. The same failure again is only counted. A lock that was not to be had once
    /// is no failure yet.
    fn fail(&mut self, table: String, error: Error, took: Duration, round: &mut Round) {
        let is_lock = is_lock_missing(&error);
        let failure = walferry_engine::Failure::from(error);
        let text = failure.to_string();
        let before = self.failing.remove(&table);
        let paused = PausedTable::after(before.as_ref(), text.clone(), is_lock, took, Instant::now());
        round.failed += u64::from(paused.locks != 1);
        if paused.is_news(before.as_ref()) {
            let hint = match is_lock {
                true => {
                    "another transaction holds locks on its rows, or on the table: look in pg_stat_activity for a long one that uses the table"
                }
                false => {
                    "grant SELECT and DELETE on the table to the connector's role; if a statement took too long, create an index on the column \
                     with the time"
                }
            };
            tracing::warn!(
                code = walferry_diagnosis::Kind::OutboxCleanup.code(),
                table,
                error = text,
                hint = failure.hint().unwrap_or(hint),
                "delivered rows could not be removed from an outbox; trying again"
            );
        } else {
            tracing::debug!(
                table,
                error = text,
                "delivered rows could not be removed from an outbox; trying again"
            );
        }
        self.failing.insert(table, paused);
    }
}

impl PausedTable {
    /// After a failure that `took` so long, and perhaps one `before` it.
    fn after(before: Option<&Self>, text: String, is_lock: bool, took: Duration, now: Instant) -> Self {
        let locks = match is_lock {
            true => before.map_or(0, |before| before.locks).saturating_add(1),
            false => 0,
        };
        let pause = match locks {
            0 => PAUSE.0,
            locks => LOCK_PAUSE.saturating_mul(1 << (locks - 1).min(8)).min(PAUSE.0),
        };
        let until = now + pause.max(took * PAUSE.1);
        Self { text, until, locks }
    }

    /// Whether it is told: another failure than the one before, or a lock the second time in a row.
    fn is_news(&self, before: Option<&Self>) -> bool {
        match self.locks {
            0 => before.is_none_or(|before| before.text != self.text),
            locks => locks == 2,
        }
    }
}

/// Reports that a partition was not dropped, for this time in a row. Returns how many failures that is.
fn tell_of_undropped(table: &str, partition: &str, undropped: Undropped, times: u32) -> u64 {
    let Undropped { obstacle, error } = undropped;
    let is_news = DropPauses::is_news(obstacle, times);
    let Some(error) = error.filter(|_| obstacle != Obstacle::Changed) else {
        if obstacle == Obstacle::Lock && is_news {
            tracing::warn!(
                code = walferry_diagnosis::Kind::OutboxCleanup.code(),
                table,
                partition,
                hint = obstacle.hint(),
                "a partition could not be dropped: transactions wait for it each time; trying again"
            );
            return 1;
        }
        if obstacle == Obstacle::Lock {
            tracing::debug!(
                table,
                partition,
                "a partition was not dropped, because a transaction waits for it; trying again"
            );
        } else if is_news {
            tracing::info!(
                table,
                partition,
                "a partition whose time is over stays for now: it has rows that are not confirmed, that are kept by their status, or that may \
                 never have been sent"
            );
        }
        return 0;
    };
    if !is_news {
        tracing::debug!(table, partition, error = %error, "a partition could not be dropped; trying again");
        return 0;
    }
    let failure = walferry_engine::Failure::from(error);
    tracing::warn!(
        code = walferry_diagnosis::Kind::OutboxCleanup.code(),
        table,
        partition,
        error = failure.to_string(),
        hint = obstacle.hint(),
        "a partition could not be dropped; trying again"
    );
    1
}

fn is_privilege_missing(error: &Error) -> bool {
    error.server_error().is_some_and(|refused| refused.code == "42501")
}

/// Whether a lock was not to be had in time.
fn is_lock_missing(error: &Error) -> bool {
    error.server_error().is_some_and(|refused| refused.code == "55P03")
}

fn is_resting(failing: &HashMap<String, PausedTable>, table: &str) -> bool {
    failing.get(table).is_some_and(|failing| failing.until > Instant::now())
}

#[cfg(test)]
mod tests {
    use walferry_config::{Findings, Nowhere, Submitted, Worker};
    use walferry_engine::lower_bounds::TableLowerBound;

    use super::*;

    /// One that connects to nobody.
    fn nowhere() -> Cleaner {
        let properties = [
            ("plugin.name", "pgoutput"),
            ("database.hostname", "localhost"),
            ("database.user", "u"),
            ("database.dbname", "d"),
            ("topic.prefix", "t"),
        ];
        let submitted = Submitted {
            name: None,
            properties: properties.map(|(name, text)| (name.to_owned(), text.to_owned())).into(),
        };
        let (connector, findings) = Connector::read(&submitted, Some("c"), &Worker::default(), &Nowhere, &|_| {
            Findings::default()
        });
        Cleaner::new(&connector.unwrap_or_else(|| panic!("{findings:?}")))
    }

    #[test]
    fn a_partition_that_others_wait_for_each_time_is_told_once() {
        let logged = [1, 2, 3, 4, 5].map(|times| tell_of_undropped("public.outbox", "p", Obstacle::Lock.into(), times));
        assert_eq!(logged, [0, 0, 0, 1, 0]);
        assert_eq!(tell_of_undropped("public.outbox", "p", Obstacle::Rows.into(), 1), 0);
    }

    #[test]
    fn a_locked_table_rests_for_a_short_time_at_first_and_one_lock_is_not_told() {
        let (now, mut before) = (Instant::now(), None);
        let mut fail = |text: &str, took: u64| {
            let took = Duration::from_secs(took);
            let paused = PausedTable::after(before.as_ref(), text.to_owned(), text == "lock", took, now);
            let done = ((paused.until - now).as_secs(), paused.is_news(before.as_ref()));
            before = Some(paused);
            done
        };
        let locks = [(2, false), (4, true), (8, false), (16, false), (30, false), (30, false)];
        assert_eq!([0; 6].map(|took| fail("lock", took)), locks);
        assert_eq!(fail("denied", 0), (30, true));
        assert_eq!(fail("denied", 0), (30, false));
        assert_eq!(fail("lock", 0), (2, false));
        assert_eq!(
            fail("lock", 3),
            (12, true),
            "it rests for several times as long as it took"
        );
        assert_eq!(fail("too long", 30), (120, true));
    }

    #[test]
    fn kept_bounds_are_taken_over_once_the_server_is_recognised() {
        let stored = RunBounds::new(Some("configuration".to_owned()));
        let table = |oid| {
            [(
                "public.outbox".to_owned(),
                TableLowerBound {
                    oid,
                    ..TableLowerBound::default()
                },
            )]
            .into()
        };
        stored.keep(stored.get().0, "server", table(7), HashMap::new());
        let mut cleaner = nowhere();
        let mut bound = |server: Option<&str>, is_recognised_anew: bool| {
            cleaner.server.identity = server.map(ToOwned::to_owned);
            cleaner.server.is_recognised_anew = is_recognised_anew;
            (cleaner.targets.looked, cleaner.marks.confirmed_xmin) = (Some(Instant::now()), Some(1));
            cleaner.take_over(&stored);
            let tables = cleaner.bounds.stored().0;
            (
                tables.values().next().map(|bound| bound.oid),
                cleaner.marks.confirmed_xmin,
                cleaner.targets.looked.is_none(),
            )
        };
        assert_eq!(bound(None, false), (None, None, true));
        assert_eq!(bound(None, false), (None, Some(1), false));
        assert_eq!(bound(Some("another"), true), (None, None, true));
        assert_eq!(bound(Some("server"), true), (Some(7), None, true));
        assert_eq!(bound(Some("server"), false), (Some(7), Some(1), false));
    }

    #[test]
    fn a_first_lock_is_no_failure_yet() {
        let mut cleaner = nowhere();
        let failed = [1, 2, 3].map(|_| {
            let refused = walferry_postgres::ServerError {
                code: "55P03".to_owned(),
                ..Default::default()
            };
            let mut round = Round::default();
            cleaner.fail(
                "public.outbox".to_owned(),
                Error::server(DOING, refused),
                Duration::ZERO,
                &mut round,
            );
            round.failed
        });
        assert_eq!(failed, [0, 1, 1]);
    }
}
