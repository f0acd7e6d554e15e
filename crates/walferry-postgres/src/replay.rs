//! `walferry outbox replay`: reads the rows of one table that are still there, in the order of their time and their key.
//!
//! This needs neither a slot nor a publication, so a connector that streams the table is not disturbed. Rows are read in pages, each in a
//! short transaction, so that nothing keeps VACUUM from its work for long. The upper bound is fixed before the first page: rows that are
//! written meanwhile are left to the stream.
//!
//! The engine reads the rows as those of a snapshot. Each page is a part of this snapshot, and the engine counts the parts that were
//! delivered. [`PartTracker`] knows the last row of each part, so it can say up to which row everything was delivered.

use std::collections::{HashSet, VecDeque};
use std::future::pending;
use std::num::NonZeroU32;
use std::ops::Range as Span;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;
use walferry_config::Connector;
use walferry_diagnosis::Kind;
use walferry_engine::Failure;
use walferry_engine::incremental::{Ask, Key};
use walferry_engine::published::{PublicationLook, Published};
use walferry_engine::snapshot::{Blocks, SnapshotStep};
use walferry_engine::source::{
    self, ChunkRead, CreatedSlot, Frame, FrameBatch, FrameSender, Inspection, SnapshotKind, SnapshotPlan,
    SnapshotTable, Source, SourceParts, StreamPort, TableFilter,
};
use walferry_engine::status::Status;
use walferry_event::catalog::{Catalog, TableFacts};
use walferry_pgoutput::{Lsn, Oid};
use walferry_transform::Hypertables;

use crate::catalog::catalogs;
use crate::catalog::compare::{Order, comparisons};
use crate::catalog::privileges::ReadColumns;
use crate::catalog::tables::TableName;
use crate::chunks::chunk_table::{ChunkTable, Tuples, maximum, tuples};
use crate::chunks::refusal::is_refusal;
use crate::chunks::target::{enclosed, key_column, unpublished_columns};
use crate::connection::{ALL_ROWS, Endpoint, LIFT_LIMITS, Purpose, Sql, within};
use crate::error::Error;
use crate::quote::{identifier, literal, qualified};
use crate::snapshot::{Moment, wal_position};
use crate::source::Postgres;

const READING: &str = "reading rows to send again";

/// How long a page may take. Without an index, each page sorts the table.
const LIMIT: Duration = Duration::from_secs(1800);
/// Maximum number of rows of a page.
const MOST_ROWS: u32 = 2000;
/// Bytes of rows that a page keeps in memory, unless a single row is larger.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// Rows that are handed to the pipeline at once if nothing limits their rate.
const PIECE_ROWS: usize = 256;
/// With a limited rate, this many pieces are handed over in a second.
const PIECES_PER_SECOND: u32 = 10;

/// Which rows are wanted.
#[derive(Debug, Clone, Default)]
pub struct ReplayRequest {
    /// Schema of the table.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The column with the time at which a row was written. Rows are read in its order, then in that of the primary key.
    pub time: Option<String>,
    /// Rows from this time on, as Postgres reads times.
    pub since: Option<String>,
    /// Rows before this time.
    pub until: Option<String>,
    /// The column of the event's id, and the ids that are wanted. All, if there are none.
    pub id: (String, Vec<String>),
    /// The columns of the key, of which the first that is not NULL counts, and the keys that are wanted. All, if there are none.
    pub key: (Vec<String>, Vec<String>),
    /// Another condition, as in WHERE.
    pub condition: Option<String>,
}

/// The rows that a replay sends. It stays the same if the replay is interrupted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Schema of the table.
    pub schema: String,
    /// The table.
    pub table: String,
    /// The column of the time.
    pub time: Option<String>,
    /// The columns by which rows are ordered.
    pub order: Vec<String>,
    /// The condition for the rows.
    pub condition: Option<String>,
    /// The values of the ordering columns in the last row, as text.
    pub last: Vec<Option<String>>,
}

/// The row up to which everything was delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayPosition {
    /// The values of the ordering columns in that row. `None` before the first page.
    pub after: Option<Vec<Option<String>>>,
    /// How many rows were delivered.
    pub rows: u64,
}

/// What there is to send.
#[derive(Debug, Clone)]
pub struct ReplaySurvey {
    /// `None` if no row matches.
    pub range: Option<Range>,
    /// How many rows match.
    pub rows: u64,
    /// The time of the first row and of the last one, if there is a column for it.
    pub times: Option<(String, String)>,
}

/// Counts the rows, and fixes the last one.
///
/// # Errors
/// The server cannot be asked, or refuses a value or the condition.
pub async fn survey(connector: &Connector, wanted: &ReplayRequest) -> Result<ReplaySurvey, Failure> {
    let sql = open(&Endpoint::new(connector.postgres.clone())).await?;
    let table = TableName {
        schema: wanted.schema.clone(),
        name: wanted.table.clone(),
    };
    let reads = Reads::new(connector);
    let (mut target, oid) = target(&sql, &table, &reads, wanted.time.as_deref(), None).await?;
    target.condition = condition(&sql, oid, wanted, &target).await?;
    sql.execute(READING, "BEGIN READ ONLY").await?;
    let mut survey = ReplaySurvey {
        range: None,
        rows: 0,
        times: None,
    };
    of_user(&sql, &target).await.map_err(refused)?;
    let Some(last) = maximum(&sql, &target).await.map_err(refused)? else {
        return Ok(survey);
    };
    let range = Range {
        schema: table.schema,
        table: table.name,
        time: wanted.time.clone(),
        order: order(&target, wanted.time.as_deref()),
        condition: target.condition.clone(),
        last: texts(&last),
    };
    (survey.rows, survey.times) = count(&sql, &target, &range, None).await?;
    // Nothing was changed, and the connection ends here.
    survey.range = Some(range);
    Ok(survey)
}

/// How many rows are left behind a place.
///
/// # Errors
/// The server cannot be asked.
pub async fn rows_left(connector: &Connector, range: &Range, place: &ReplayPosition) -> Result<u64, Failure> {
    let sql = open(&Endpoint::new(connector.postgres.clone())).await?;
    sql.execute(READING, "BEGIN READ ONLY").await?;
    let target = of_range(&sql, range, &Reads::new(connector)).await?;
    of_user(&sql, &target).await.map_err(refused)?;
    let after = place.after.as_deref().map(|after| key(&target, after));
    Ok(count(&sql, &target, range, after.as_ref()).await?.0)
}

async fn open(endpoint: &Endpoint) -> Result<Sql, Error> {
    let sql = endpoint.sql(Purpose::General).await?;
    sql.execute(READING, LIFT_LIMITS).await?;
    // An error is better than a replay that lacks rows.
    sql.execute(READING, ALL_ROWS).await?;
    sql.refuse_views(READING).await?;
    Ok(sql)
}

/// From here to the end of the transaction, statements have the user's condition in them, and name all else with its schema.
async fn of_user(sql: &Sql, target: &ChunkTable) -> Result<(), Error> {
    sql.begin_of_user(READING).await?;
    target.is_understood(sql).await
}

/// What the configuration says of the columns that are read.
struct Reads {
    publication: String,
    columns: ReadColumns,
}

impl Reads {
    fn new(connector: &Connector) -> Self {
        Self {
            publication: connector.publication.name.clone(),
            columns: ReadColumns::new(connector),
        }
    }
}

/// The table, and the columns by which it is read.
async fn target(
    sql: &Sql,
    table: &TableName,
    reads: &Reads,
    time: Option<&str>,
    condition: Option<String>,
) -> Result<(ChunkTable, Oid), Failure> {
    const FIND: &str = "
        SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p')";
    let name = qualified(&table.schema, &table.name);
    let gone = || {
        let hint = "name a table that the connector captures with --table SCHEMA.TABLE";
        Failure::stop(Kind::Replay, format!("the database has no table {name}"), hint)
    };
    let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&table.schema, Type::TEXT), (&table.name, Type::TEXT)];
    let rows = sql.rows(READING, FIND, &parameters).await?;
    let oid = rows.first().ok_or_else(gone)?;
    let oid = Oid(oid.try_get(0).map_err(|error| Error::sql(READING, error))?);
    let found = catalogs(sql, &[oid]).await?.into_iter().next();
    let mut catalog = found.ok_or_else(gone)?.1;
    let mut facts = catalog.table.clone().ok_or_else(gone)?;
    if facts.primary_key.is_empty() {
        return Err(Failure::stop(
            Kind::Replay,
            format!("table {name} has no primary key, so an interrupted replay could not go on where it was"),
            "add a primary key to the table, for example on the column of the event's id",
        ));
    }
    let mut names: Vec<String> = time.map(str::to_owned).into_iter().collect();
    names.extend(
        facts
            .primary_key
            .iter()
            .filter(|name| Some(name.as_str()) != time)
            .cloned(),
    );
    // What the stream does not bring, the first record did not have either.
    let hidden = unpublished_columns(sql, &reads.publication, oid).await?;
    facts
        .columns
        .retain(|column| names.contains(&column.name) || !hidden.contains(&column.name));
    catalog.table = Some(facts.clone());
    let compared = comparisons(sql, oid).await?;
    let column = |name: &String| {
        key_column(name, &facts, &catalog, &compared).ok_or_else(|| {
            Failure::stop(
                Kind::Replay,
                format!("table {name:?} has no column {}", identifier(name)),
                "name a column of the table with --time-column",
            )
        })
    };
    let key = names.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    // The others have no value, so that nobody needs a privilege on them.
    let mut read: HashSet<String> = reads.columns.of(&facts)?.into_iter().collect();
    read.extend(names);
    let target = ChunkTable {
        columns: facts.columns.clone(),
        reads: read,
        table: name.clone(),
        key,
        is_unique: true,
        has_ties: true,
        condition,
        catalog,
    };
    Ok((target, oid))
}

/// The target of a replay whose rows are fixed.
async fn of_range(sql: &Sql, range: &Range, reads: &Reads) -> Result<ChunkTable, Failure> {
    let table = TableName {
        schema: range.schema.clone(),
        name: range.table.clone(),
    };
    let (mut target, _) = target(sql, &table, reads, range.time.as_deref(), None).await?;
    if order(&target, range.time.as_deref()) != range.order {
        return Err(Failure::stop(
            Kind::Replay,
            format!("the primary key of {} has changed since the replay began", target.table),
            "remove the state file, and begin the replay again",
        ));
    }
    let last = target.bound(&key(&target, &range.last), false);
    target.condition = Some(match &range.condition {
        Some(condition) => format!("{last} AND {condition}"),
        None => last,
    });
    Ok(target)
}

fn order(target: &ChunkTable, time: Option<&str>) -> Vec<String> {
    let key = target.catalog.table.as_ref().map(|table| table.primary_key.clone());
    let key = key.unwrap_or_default();
    let other_columns = key.into_iter().filter(|name| Some(name.as_str()) != time);
    time.map(str::to_owned).into_iter().chain(other_columns).collect()
}

fn key(target: &ChunkTable, texts: &[Option<String>]) -> Key {
    Key::new(
        texts
            .iter()
            .cloned()
            .zip(&target.key)
            .map(|(text, column)| (text, column.type_oid)),
    )
}

fn texts(key: &Key) -> Vec<Option<String>> {
    key.texts().map(|text| text.map(str::to_owned)).collect()
}

/// The condition of a WHERE. Times are resolved now: `yesterday` means another day tomorrow.
async fn condition(
    sql: &Sql,
    oid: Oid,
    wanted: &ReplayRequest,
    target: &ChunkTable,
) -> Result<Option<String>, Failure> {
    let compared = comparisons(sql, oid).await?;
    let comparison = |column: &String| {
        compared.get(column).ok_or_else(|| {
            Failure::stop(
                Kind::Replay,
                format!("table {} has no column {}", target.table, identifier(column)),
                "name the column with --id-column, --key-column or --time-column",
            )
        })
    };
    let is_one_of = |column: &String, texts: &[String]| {
        let texts = texts.iter().map(String::as_str);
        Ok::<_, Failure>(comparison(column)?.is_one_of(&identifier(column), texts))
    };
    let mut all = Vec::new();
    for (text, order) in [(&wanted.since, Order::GreaterOrEqual), (&wanted.until, Order::Less)] {
        let (Some(text), Some(column)) = (text, &wanted.time) else {
            continue;
        };
        let comparison = comparison(column)?;
        let now: String = sql
            .value(
                "reading a time of the selection",
                &format!("SELECT ({})::text", comparison.value(text)),
                &[],
            )
            .await
            .map_err(refused)?;
        all.push(comparison.condition(&identifier(column), order, &now));
    }
    let (column, ids) = &wanted.id;
    if !ids.is_empty() {
        all.push(is_one_of(column, ids)?);
    }
    match wanted.key {
        (_, ref keys) if keys.is_empty() => {}
        (ref columns, ref keys) if columns.len() == 1 => all.push(is_one_of(&columns[0], keys)?),
        (ref columns, ref keys) => {
            columns.iter().try_for_each(|column| comparison(column).map(drop))?;
            let columns = columns
                .iter()
                .map(|column| format!("{}::pg_catalog.text", identifier(column)));
            let columns: Vec<String> = columns.collect();
            let keys: Vec<String> = keys
                .iter()
                .map(|key| format!("{}::pg_catalog.text", literal(key)))
                .collect();
            all.push(format!(
                "COALESCE({}) OPERATOR(pg_catalog.=) ANY (ARRAY[{}])",
                columns.join(", "),
                keys.join(", ")
            ));
        }
    }
    if let Some(condition) = &wanted.condition {
        let condition = enclosed(condition, sql.has_backslash_escapes()).map_err(|why| {
            let hint = "write a condition that could stand alone after WHERE";
            Failure::stop(
                Kind::Replay,
                format!("the condition of --where cannot stand alone: {why}"),
                hint,
            )
        })?;
        all.push(condition);
    }
    Ok((!all.is_empty()).then(|| all.join(" AND ")))
}

/// The server does not take the selection.
fn refused(error: Error) -> Failure {
    if !is_refusal(&error) {
        return error.into();
    }
    let hint = "correct the values of --since, --until, --id and --key, or the condition of --where; the connector's role must be allowed \
                to read the table";
    Failure::stop(Kind::Replay, Failure::chain(&error), hint)
}

/// How many rows there are, and the times of the first and the last.
async fn count(
    sql: &Sql,
    target: &ChunkTable,
    range: &Range,
    after: Option<&Key>,
) -> Result<(u64, Option<(String, String)>), Error> {
    let time = match &range.time {
        Some(time) => identifier(time),
        None => "NULL::pg_catalog.text".to_owned(),
    };
    let mut conditions = vec![target.bound(&key(target, &range.last), false)];
    conditions.extend(after.map(|after| target.bound(after, true)));
    conditions.extend(range.condition.clone());
    let query = format!(
        "SELECT pg_catalog.count(*), pg_catalog.min({time})::pg_catalog.text, pg_catalog.max({time})::pg_catalog.text FROM {} WHERE {}",
        target.table,
        conditions.join(" AND ")
    );
    let row = sql.row("counting the rows to send again", &query, &[]).await?;
    let read = || -> Result<_, tokio_postgres::Error> {
        let count: i64 = row.try_get(0)?;
        let (first, last): (Option<String>, Option<String>) = (row.try_get(1)?, row.try_get(2)?);
        Ok((count.cast_unsigned(), first.zip(last)))
    };
    read().map_err(|error| Error::sql(READING, error))
}

/// Knows which rows each delivered part had.
#[derive(Debug, Clone, Default)]
pub struct PartTracker(Arc<Mutex<Tracked>>);

#[derive(Debug, Default)]
struct Tracked {
    /// The values of the ordering columns in each row since the first part that is under way.
    keys: VecDeque<Vec<Option<String>>>,
    /// How many rows of this session came before these.
    dropped: u64,
    /// The last row of each part that is under way, in order, and its number of rows.
    pages: VecDeque<(Vec<Option<String>>, u64)>,
    /// How many parts the engine had counted before the present session, and how many of this session are taken into account.
    before: u64,
    settled: u64,
    place: ReplayPosition,
}

impl PartTracker {
    /// Goes on behind a place.
    pub fn new(place: ReplayPosition) -> Self {
        let tracked = Tracked {
            place,
            ..Tracked::default()
        };
        Self(Arc::new(Mutex::new(tracked)))
    }

    fn lock(&self) -> MutexGuard<'_, Tracked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session begins. Everything behind the place is read again.
    fn begin(&self, parts: u64) -> ReplayPosition {
        let mut tracked = self.lock();
        tracked.pages.clear();
        tracked.keys.clear();
        tracked.dropped = 0;
        (tracked.before, tracked.settled) = (parts, 0);
        tracked.place.clone()
    }

    /// These rows are handed on next.
    fn rows(&self, keys: Vec<Vec<Option<String>>>) {
        self.lock().keys.extend(keys);
    }

    /// The values of the ordering columns in the row that is the `number`th of this session, from 0. `None` if it is not under way.
    pub fn row(&self, number: u64) -> Option<Vec<Option<String>>> {
        let tracked = self.lock();
        let place = number.checked_sub(tracked.dropped)?;
        tracked.keys.get(usize::try_from(place).ok()?).cloned()
    }

    fn page(&self, last: Vec<Option<String>>, rows: u64) {
        self.lock().pages.push_back((last, rows));
    }

    /// The place that is known to be delivered.
    pub fn place(&self) -> ReplayPosition {
        self.lock().place.clone()
    }

    /// The place after this many parts were delivered, as the engine counts them.
    pub fn delivered(&self, parts: u64) -> ReplayPosition {
        let mut tracked = self.lock();
        while tracked.settled < parts.saturating_sub(tracked.before)
            && let Some((last, rows)) = tracked.pages.pop_front()
        {
            tracked.settled += 1;
            tracked.place.after = Some(last);
            tracked.place.rows += rows;
            let known = usize::try_from(rows).unwrap_or(usize::MAX).min(tracked.keys.len());
            tracked.keys.drain(..known);
            tracked.dropped += rows;
        }
        tracked.place.clone()
    }
}

/// One table as a source of rows. It has no stream.
pub struct Replay {
    control: ReplayControl,
    stream: NoStream,
    rows: Pages,
    chunks: NoChunks,
}

/// Looks at the server. It never sees the connector's slot, so it does not wait for whoever reads it.
pub struct ReplayControl(Postgres);

/// There is no stream.
pub struct NoStream;

/// No chunk is ever asked for.
pub struct NoChunks;

/// Reads the rows.
pub struct Pages {
    endpoint: Endpoint,
    reads: Reads,
    range: Range,
    track: PartTracker,
    status: Arc<Status>,
    rate: Option<NonZeroU32>,
}

impl Replay {
    /// Does not connect yet. The snapshot mode of the connector must be one without a stream. At most `rate` rows are sent in a second.
    pub fn new(
        connector: &Connector,
        range: Range,
        track: PartTracker,
        rate: Option<NonZeroU32>,
        status: Arc<Status>,
    ) -> Self {
        Self {
            control: ReplayControl(Postgres::new(connector, status.clone())),
            stream: NoStream,
            rows: Pages {
                endpoint: Endpoint::new(connector.postgres.clone()),
                reads: Reads::new(connector),
                range,
                track,
                status,
                rate,
            },
            chunks: NoChunks,
        }
    }
}

impl Source for Replay {
    type Control = ReplayControl;
    type Stream = NoStream;
    type Rows = Pages;
    type Chunks = NoChunks;

    fn parts(&mut self) -> SourceParts<'_, Self> {
        let Self {
            control,
            stream,
            rows,
            chunks,
        } = self;
        SourceParts {
            control,
            stream,
            rows,
            chunks,
        }
    }
}

fn needs_no_slot() -> Failure {
    Failure::stop(
        Kind::Replay,
        "a replay was to use a replication slot",
        "this is a bug: please report it",
    )
}

impl source::Control for ReplayControl {
    async fn inspect(&mut self) -> Result<Inspection, Failure> {
        let found = self.0.control().inspect().await?;
        Ok(Inspection { slot: None, ..found })
    }

    async fn tables(&mut self, wanted: TableFilter, columns: &[String]) -> Result<Vec<TableFacts>, Failure> {
        self.0.control().tables(wanted, columns).await
    }

    async fn hypertables(&mut self) -> Result<Hypertables, Failure> {
        self.0.control().hypertables().await
    }

    async fn ensure_publication(&mut self, _: TableFilter) -> Result<(), Failure> {
        Ok(())
    }

    async fn published(
        &mut self,
        _: Option<Arc<Published>>,
        _: TableFilter,
    ) -> Result<Option<PublicationLook>, Failure> {
        Ok(None)
    }

    async fn create_slot(&mut self, _: bool) -> Result<CreatedSlot, Failure> {
        Err(needs_no_slot())
    }

    async fn watermark(&mut self) -> Result<Lsn, Failure> {
        Err(needs_no_slot())
    }

    async fn drop_slot(&mut self) -> Result<(), Failure> {
        Err(needs_no_slot())
    }
}

impl source::Stream for NoStream {
    async fn stream(&mut self, _: Lsn, _: &mut StreamPort) -> Result<(), Failure> {
        pending().await
    }
}

impl source::ChunkReader for NoChunks {
    async fn ask(&mut self, _: &Ask, _: bool) -> Result<Option<ChunkRead>, Failure> {
        Ok(None)
    }
}

impl source::Rows for Pages {
    async fn read(&mut self, plan: SnapshotPlan, out: &FrameSender) -> Result<(), Failure> {
        let place = self.track.begin(*self.status.watch_delivered_parts().borrow());
        let sql = open(&self.endpoint).await?;
        let moment = Moment::at(wal_position(&sql).await?, &sql, READING).await?;
        let tables = plan.tables.iter();
        let begin = Frame::SnapshotBegin {
            rows_left: 0,
            tables: tables
                .map(|table| (table.oid, format!("{}.{}", table.schema, table.name)))
                .collect(),
            kind: SnapshotKind::Initial,
            in_part: vec![format!("{}.{}", self.range.schema, self.range.table)],
        };
        send(out, Bytes::new(), vec![begin]).await?;
        let mut pace = RowRate::new(self.rate);
        let (mut after, mut limit, mut table) = (place.after, pace.page(), None);
        for number in 0.. {
            let page = self.page(&sql, after.as_deref(), limit).await?;
            let Some(last) = page.last else { break };
            let same = |table: &&Arc<SnapshotTable>| table.catalog == page.catalog;
            // The pipeline plans the table once for each of these.
            let table = match table.as_ref().filter(same) {
                Some(table) => table,
                None => table.insert(described(page.catalog, moment)),
            };
            let rows = page.tuples.len() as u64;
            self.track.rows(page.keys);
            let oid = table.catalog.table.as_ref().map_or(Oid(0), |facts| facts.oid);
            for piece in page.tuples.chunks(pace.piece()) {
                pace.wait(piece.len()).await;
                let (bytes, frames) = frames(table, &page.bytes, piece);
                send(out, bytes, frames).await?;
            }
            self.track.page(last.clone(), rows);
            let step = SnapshotStep::Chunk {
                table: oid,
                storage: 0,
                blocks: Blocks {
                    first: number,
                    end: number + 1,
                },
            };
            let completes = false;
            send(out, Bytes::new(), vec![Frame::Part { step, completes }]).await?;
            if !page.is_full && rows < u64::from(limit) {
                break;
            }
            limit = match page.is_full {
                true => u32::try_from(rows).unwrap_or(limit).max(1),
                false => limit.saturating_mul(2).min(pace.page()),
            };
            after = Some(last);
        }
        send(out, Bytes::new(), vec![moment.end()]).await.map_err(Failure::from)
    }
}

/// Rows that were read together.
struct Page {
    catalog: Catalog,
    tuples: Vec<Span<usize>>,
    bytes: Bytes,
    is_full: bool,
    /// The ordering columns of each row.
    keys: Vec<Vec<Option<String>>>,
    /// The ordering columns of the last row. `None` if there is no row.
    last: Option<Vec<Option<String>>>,
}

impl Pages {
    async fn page(&self, sql: &Sql, after: Option<&[Option<String>]>, limit: u32) -> Result<Page, Failure> {
        // The facts of the table belong to the rows.
        const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        let read = async {
            sql.execute(READING, BEGIN).await?;
            let target = of_range(sql, &self.range, &self.reads).await?;
            of_user(sql, &target).await?;
            let last = key(&target, &self.range.last);
            let after = after.map(|after| key(&target, after));
            let statement = target.chunk(after.as_ref(), &last, limit);
            let Tuples {
                tuples, bytes, is_full, ..
            } = tuples(sql, &statement, &target, PAGE_BYTES).await?;
            let keys = tuples
                .iter()
                .map(|tuple| Ok(texts(&target.key_of(&bytes[tuple.clone()])?)));
            let keys: Vec<_> = keys.collect::<Result<_, Error>>()?;
            let last = keys.last().cloned();
            sql.execute(READING, "COMMIT").await?;
            Ok(Page {
                catalog: target.catalog,
                tuples,
                bytes,
                is_full,
                keys,
                last,
            })
        };
        match within(LIMIT, read).await {
            Some(page) => page,
            None => Err(sql.fell_silent(READING, LIMIT).into()),
        }
    }
}

/// The frames of some rows, with their bytes alone.
fn frames(table: &Arc<SnapshotTable>, bytes: &Bytes, tuples: &[Span<usize>]) -> (Bytes, Vec<Frame>) {
    let (Some(first), Some(last)) = (tuples.first(), tuples.last()) else {
        return (Bytes::new(), Vec::new());
    };
    let from = first.start;
    let mut frames = vec![Frame::Table(table.clone())];
    frames.extend(tuples.iter().map(|tuple| Frame::Row {
        tuple: tuple.start - from..tuple.end - from,
    }));
    (bytes.slice(from..last.end), frames)
}

async fn send(out: &FrameSender, bytes: Bytes, frames: Vec<Frame>) -> Result<(), Error> {
    out.send(FrameBatch::new(bytes, frames))
        .await
        .map_err(|_| Error::PipelineEnded)
}

/// A table as rows of one page have it.
fn described(catalog: Catalog, moment: Moment) -> Arc<SnapshotTable> {
    Arc::new(SnapshotTable {
        catalog,
        lsn: moment.lsn,
        xid: moment.xid,
        time_us: moment.time_us,
        ordered: false,
        begun: true,
        first: false,
        kind: SnapshotKind::Initial,
    })
}

/// How fast rows are handed on.
struct RowRate {
    rate: Option<NonZeroU32>,
    begun: Instant,
    rows: u64,
}

impl RowRate {
    fn new(rate: Option<NonZeroU32>) -> Self {
        Self {
            rate,
            begun: Instant::now(),
            rows: 0,
        }
    }

    /// Maximum number of rows of a page: what is sent in a second, so that a crash repeats little.
    fn page(&self) -> u32 {
        self.rate.map_or(MOST_ROWS, |rate| rate.get().min(MOST_ROWS))
    }

    fn piece(&self) -> usize {
        self.rate
            .map_or(PIECE_ROWS, |rate| (rate.get() / PIECES_PER_SECOND).max(1) as usize)
    }

    /// Waits until this many rows more may be sent.
    async fn wait(&mut self, rows: usize) {
        let Some(rate) = self.rate else { return };
        let due = self.begun + Duration::from_secs_f64(self.rows as f64 / f64::from(rate.get()));
        self.rows += rows as u64;
        let now = Instant::now();
        if due > now {
            tokio::time::sleep(due - now).await;
        } else if now - due > Duration::from_secs(1) {
            // Kafka was slow. What was missed is not made up for with a burst.
            (self.begun, self.rows) = (now, rows as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(text: &str) -> Vec<Option<String>> {
        vec![Some(text.to_owned())]
    }

    #[test]
    fn the_place_is_behind_the_last_page_that_was_delivered() {
        let track = PartTracker::new(ReplayPosition {
            after: Some(last("a")),
            rows: 5,
        });
        assert_eq!(track.begin(7).after, Some(last("a")));
        track.rows((0..10).map(|row| last(&format!("b{row}"))).collect());
        track.rows((0..10).map(|row| last(&format!("c{row}"))).collect());
        track.page(last("b"), 10);
        track.page(last("c"), 10);
        assert_eq!(track.delivered(7).rows, 5, "nothing was delivered in this session");
        let place = track.delivered(8);
        assert_eq!((place.after, place.rows), (Some(last("b")), 15));
        let rows = [9, 10, 19, 20].map(|number| track.row(number));
        assert_eq!(
            rows,
            [None, Some(last("c0")), Some(last("c9")), None],
            "rows that are under way are known"
        );
        // The session failed: what was under way is read again.
        assert_eq!(track.begin(8).after, Some(last("b")));
        assert_eq!(track.delivered(8).rows, 15);
        track.page(last("c"), 10);
        track.page(last("d"), 10);
        let place = track.delivered(10);
        assert_eq!((place.after, place.rows), (Some(last("d")), 35));
    }

    #[test]
    fn pages_are_small_where_few_rows_are_sent_in_a_second() {
        let pace = |rate| RowRate::new(NonZeroU32::new(rate));
        let sizes = |rate| (pace(rate).page(), pace(rate).piece());
        assert_eq!(sizes(0), (MOST_ROWS, PIECE_ROWS));
        assert_eq!(sizes(1), (1, 1));
        assert_eq!(sizes(100), (100, 10));
        assert_eq!(sizes(1_000_000), (MOST_ROWS, 100_000));
    }
}
