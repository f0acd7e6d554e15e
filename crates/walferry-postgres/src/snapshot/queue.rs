//! Decides what is read next: tables in order, each split into chunks when its turn comes.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio_postgres::types::Type;
use tracing::{info, warn};
use walferry_engine::snapshot::{Blocks, ChunksDone, Keys, SnapshotStep};
use walferry_engine::source::{Frame, SnapshotKind, SnapshotPlan, SnapshotTable};
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts};
use walferry_pgoutput::{Lsn, Oid};

use super::statement::{inner, stays_enclosed};
use super::{Moment, Options, facts, reading_failed};
use crate::catalog::compare::{Comparison, Order, comparisons};
use crate::chunks::refusal::refuses;
use crate::chunks::target::{tell_of_hidden, unpublished_columns};
use crate::connection::Sql;
use crate::connection::server_error::ServerError;
use crate::error::Error;
use crate::quote::{identifier, plain, qualified};

/// Number of blocks of a chunk: 32 MiB with Postgres' default block size. If a snapshot is interrupted, unfinished
/// chunks are read again.
const CHUNK_BLOCKS: u32 = 4096;
/// Number of keys in one statement.
const KEYS_AT_ONCE: usize = 1000;
/// First version with TID range scans. Without them, each chunk would read the whole table.
const TID_RANGES_SINCE: u32 = 140_000;

/// A statement to run.
pub(super) struct Job {
    pub(super) table: Arc<SnapshotTable>,
    pub(super) columns: usize,
    pub(super) statement: String,
    /// Whether the statement contains a configured SELECT.
    pub(super) is_of_the_user: bool,
    kind: JobKind,
}

/// What a job reads.
#[derive(Debug, Clone, Copy)]
enum JobKind {
    /// A part of the table.
    Chunk(SnapshotStep),
    /// Rows to read again. They have all been read once no job of this kind is left.
    Keys,
}

/// A table that is being read.
#[derive(Debug, Default)]
struct UnderWay {
    /// Number of jobs left.
    jobs: usize,
    /// Number of jobs left that read rows again.
    keys: usize,
    /// Rows that have been read.
    rows: u64,
}

/// Tables and chunks that have not been read.
pub(super) struct Queue<'a> {
    tables: VecDeque<&'a TableFacts>,
    jobs: VecDeque<Job>,
    plan: &'a SnapshotPlan,
    options: &'a Options,
    moment: Moment,
    under_way: HashMap<Oid, UnderWay>,
}

impl<'a> Queue<'a> {
    pub(super) fn new(plan: &'a SnapshotPlan, options: &'a Options, moment: Moment) -> Self {
        Self {
            tables: plan.tables.iter().collect(),
            jobs: VecDeque::new(),
            plan,
            options,
            moment,
            under_way: HashMap::new(),
        }
    }

    /// The next job. `None` if none is left.
    pub(super) async fn next(&mut self, sql: &Sql) -> Result<Option<Job>, Error> {
        loop {
            if let Some(job) = self.jobs.pop_front() {
                return Ok(Some(job));
            }
            let Some(table) = self.tables.pop_front() else {
                return Ok(None);
            };
            self.begin(sql, table).await?;
        }
    }

    /// A job is done. Returns the frame that reports it to the engine.
    pub(super) fn done(&mut self, job: &Job, rows: u64) -> Option<Frame> {
        let oid = job.table.catalog.table.as_ref()?.oid;
        let table = self.under_way.get_mut(&oid)?;
        table.jobs -= 1;
        table.rows += rows;
        let completes = table.jobs == 0;
        if completes {
            let facts = job.table.catalog.table.as_ref()?;
            info!(snapshot.table = %format!("{}.{}", facts.schema, facts.name), snapshot.rows = table.rows, "table read");
        }
        let step = match job.kind {
            JobKind::Chunk(step) => step,
            JobKind::Keys => {
                table.keys -= 1;
                if table.keys > 0 {
                    return None;
                }
                SnapshotStep::ReadAgain(oid)
            }
        };
        Some(Frame::Part { step, completes })
    }

    /// The facts of a table. Within an incremental snapshot, without the columns that the stream would not bring.
    async fn visible_facts(&self, sql: &Sql, table: &TableFacts) -> Result<Catalog, Error> {
        let mut catalog = facts(sql, table).await?;
        if self.plan.kind == SnapshotKind::Incremental
            && let Some(facts) = &mut catalog.table
        {
            let publication = &self.options.publication;
            let hidden = unpublished_columns(sql, publication, table.oid).await?;
            tell_of_hidden(&format!("{}.{}", table.schema, table.name), &hidden, publication);
            let left_out = &self.plan.left_out;
            facts
                .columns
                .retain(|column| !left_out.contains(&column.name) && !hidden.contains(&column.name));
        }
        Ok(catalog)
    }

    /// Creates the jobs of a table.
    async fn begin(&mut self, sql: &Sql, table: &TableFacts) -> Result<(), Error> {
        let oid = table.oid;
        let again = self.plan.again.get(&oid);
        let is_complete = self.plan.done.is_complete(oid);
        // Rows may have moved into a complete partition from one that is not complete.
        if is_complete && again.is_none() && !table.partition {
            return Ok(());
        }
        let catalog = self.visible_facts(sql, table).await?;
        let columns = catalog.table.as_ref().map_or(&[][..], |table| &table.columns).to_vec();
        let select = self.options.select_of(table);
        let source = match select {
            Some(select) => Select::overridden(sql, table, &columns, select).await?,
            None => {
                let read = self.options.reads.of(catalog.table.as_ref().unwrap_or(table))?;
                Select::plain(table, &columns, &read)
            }
        };
        source.lock(sql, table).await?;
        let mut storage = Storage::of(sql, table, self.options, self.moment.lsn).await?;
        if select.is_some() {
            storage.file = 0;
        }
        let identity = storage.identity(table);
        let done = &self.plan.done;
        let begins_again = done.is_rewritten(oid, identity);
        if is_complete && again.is_none() && !begins_again {
            return Ok(());
        }
        if begins_again {
            storage.tell(table, done.storage(oid).unwrap_or_default());
        }
        // The table no longer has the columns under which the rows to read again were remembered, or our role need not be able to read them.
        let lacks = |name: &String| !source.reads.contains(name);
        let keys_are_gone = matches!(again, Some(Keys::Of { columns, .. }) if columns.iter().any(lacks));
        let whole = begins_again || keys_are_gone;
        let chunks = match storage.file {
            0 if is_complete && !whole => Vec::new(),
            // The table is read in one piece, so nothing counts until all of it does.
            0 => vec![Blocks::ALL],
            _ if whole => ChunksDone::default().left(oid, identity, storage.blocks, CHUNK_BLOCKS),
            _ => done.left(oid, identity, storage.blocks, CHUNK_BLOCKS),
        };
        let described = Arc::new(SnapshotTable {
            catalog,
            lsn: self.moment.lsn,
            xid: self.moment.xid,
            time_us: self.moment.time_us,
            ordered: self.options.threads <= 1,
            begun: done.has_begun(oid) && !begins_again,
            kind: self.plan.kind,
            first: *done == ChunksDone::default() && self.plan.tables.first().is_some_and(|first| first.oid == oid),
        });
        let job = |statement, kind| Job {
            table: described.clone(),
            columns: columns.len(),
            statement,
            is_of_the_user: source.is_of_the_user,
            kind,
        };
        if let Some(Keys::Of { columns, values }) = again.filter(|_| !whole) {
            let compared = comparisons(sql, oid).await?;
            let keys: Option<Vec<(String, &Comparison)>> = columns
                .iter()
                .map(|name| Some((identifier(name), compared.get(name)?)))
                .collect();
            let keys = keys.ok_or_else(|| Error::TableChanged {
                table: qualified(&table.schema, &table.name),
            })?;
            let values: Vec<&Vec<String>> = values.iter().collect();
            for values in values.chunks(KEYS_AT_ONCE) {
                self.jobs.push_back(job(source.of_keys(&keys, values), JobKind::Keys));
            }
        }
        let keys = self.jobs.len();
        for blocks in chunks {
            let step = SnapshotStep::Chunk {
                table: oid,
                storage: identity,
                blocks,
            };
            self.jobs.push_back(job(source.of_blocks(blocks), JobKind::Chunk(step)));
        }
        let jobs = self.jobs.len();
        self.under_way.insert(oid, UnderWay { jobs, keys, rows: 0 });
        Ok(())
    }
}

/// A configured SELECT as a subquery.
pub(super) fn subquery(select: &str) -> String {
    // On separate lines, since the SELECT may end with a comment that we do not recognize.
    format!("(\n{}\n) AS \"rows\"", inner(select))
}

/// Lets the server parse and plan a configured SELECT for a table. Returns its columns. Within a transaction. If this fails, the transaction has
/// failed.
pub(super) async fn understood(sql: &Sql, table: &str, select: &str) -> Result<Vec<String>, Error> {
    stays_enclosed(inner(select), sql.has_backslash_escapes()).map_err(|problem| Error::SelectOverride {
        table: table.to_owned(),
        problem: problem.to_owned(),
    })?;
    let select = format!("SELECT * FROM {} LIMIT 0", subquery(select));
    sql.begin_of_user(super::DOING).await?;
    // To prepare it, the driver would look up the types of the columns, with the role's own path.
    let columns = sql.columns(super::DOING, &select).await?;
    if columns.is_ok() {
        sql.end_of_user(super::DOING).await?;
    }
    columns.map_err(|error| match error.as_db_error() {
        Some(refused) if ServerError::from(refused).is_row_security() => Error::sql(super::DOING, error),
        // A lock that was not to be had in time, for example, is not the SELECT's fault.
        Some(refused) if refuses(refused.code().code()) => Error::SelectOverride {
            table: table.to_owned(),
            problem: refused.message().to_owned(),
        },
        _ => Error::sql(super::DOING, error),
    })
}

/// The list of columns of a SELECT, with NULL in the place of those that are not read, and the names of the others.
fn selected(columns: &[ColumnFacts], is_read: impl Fn(&str) -> bool) -> (String, Vec<String>) {
    let expression = |column: &ColumnFacts| match is_read(&column.name) {
        true => identifier(&column.name),
        false => "NULL".to_owned(),
    };
    let expressions: Vec<String> = columns.iter().map(expression).collect();
    let names = columns.iter().map(|column| column.name.clone());
    (expressions.join(", "), names.filter(|name| is_read(name)).collect())
}

/// What to select the rows of a table from.
pub(super) struct Select {
    columns: String,
    /// The names of those that it has values of.
    reads: Vec<String>,
    from: String,
    /// Whether it is a configured SELECT (`snapshot.select.statement.overrides`), which may read any tables.
    is_of_the_user: bool,
}

impl Select {
    /// The table itself. Columns that are not read have no value.
    pub(super) fn plain(table: &TableFacts, columns: &[ColumnFacts], read: &[String]) -> Self {
        let (columns, reads) = selected(columns, |name| read.iter().any(|read| read == name));
        Self {
            columns,
            reads,
            from: qualified(&table.schema, &table.name),
            is_of_the_user: false,
        }
    }

    /// A configured SELECT. As in Debezium, its columns are matched by name, and columns that it lacks have no value.
    pub(super) async fn overridden(
        sql: &Sql,
        table: &TableFacts,
        columns: &[ColumnFacts],
        select: &str,
    ) -> Result<Self, Error> {
        let from = subquery(select);
        let found = understood(sql, &format!("{}.{}", table.schema, table.name), select).await?;
        let has = |name: &str| found.iter().any(|column| column == name);
        let (columns, reads) = selected(columns, has);
        Ok(Self {
            columns,
            reads,
            from,
            is_of_the_user: true,
        })
    }

    /// Locks everything that the rows come from against rewrites until the snapshot ends, as COPY would.
    ///
    /// A table that was rewritten after the snapshot was taken and before the lock has no rows that the snapshot may
    /// see (Postgres' caveat on MVCC of ALTER TABLE and TRUNCATE). A table that was renamed may have been replaced by
    /// another one. Both are errors, so that a later snapshot reads the rows.
    async fn lock(&self, sql: &Sql, table: &TableFacts) -> Result<(), Error> {
        if self.is_of_the_user {
            sql.begin_of_user(super::DOING).await?;
        }
        sql.try_execute(super::DOING, &format!("SELECT FROM {} LIMIT 0", self.from))
            .await?
            .map_err(|error| reading_failed(table, error))?;
        if self.is_of_the_user {
            sql.end_of_user_with_locks(super::DOING).await?;
        }
        // The rows of the catalog are those of the snapshot. The functions return the present state. Whoever may not use the schema may not
        // look for a name in it.
        const QUERY: &str = "
            WITH RECURSIVE family(oid) AS (
              SELECT $2 UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN family f ON f.oid = i.inhparent)
            SELECT EXISTS (
              SELECT FROM (
                SELECT f.oid FROM family f
                UNION ALL SELECT l.relation FROM pg_catalog.pg_locks l
                WHERE $3 AND l.locktype = 'relation' AND l.pid = pg_catalog.pg_backend_pid()
              ) r JOIN pg_catalog.pg_class c ON c.oid = r.oid
              WHERE c.relkind IN ('r', 'm') AND c.relfilenode <> 0
                AND pg_catalog.pg_relation_filenode(c.oid) IS DISTINCT FROM c.relfilenode)
            OR CASE WHEN NOT $3 OR COALESCE(pg_catalog.has_schema_privilege(
                (SELECT c.relnamespace FROM pg_catalog.pg_class c WHERE c.oid = $2), 'USAGE'), true)
              THEN pg_catalog.to_regclass($1)::oid IS DISTINCT FROM $2 ELSE false END";
        let name = format!(
            "{}.{}",
            plain::identifier(&table.schema),
            plain::identifier(&table.name)
        );
        let changed: bool = sql
            .value(
                super::DOING,
                QUERY,
                &[
                    (&name, Type::TEXT),
                    (&table.oid.0, Type::OID),
                    (&self.is_of_the_user, Type::BOOL),
                ],
            )
            .await?;
        if changed {
            return Err(Error::TableChanged {
                table: qualified(&table.schema, &table.name),
            });
        }
        Ok(())
    }

    fn of_blocks(&self, blocks: Blocks) -> String {
        let Blocks { first, end } = blocks;
        let mut conditions = Vec::new();
        if first > 0 {
            conditions.push(format!("ctid >= '({first},0)'::pg_catalog.tid"));
        }
        if !blocks.is_open() {
            conditions.push(format!("ctid < '({end},0)'::pg_catalog.tid"));
        }
        self.copy(&conditions.join(" AND "))
    }

    /// `columns` are quoted. The comparisons may run with the role's own `search_path`, beside a configured SELECT.
    fn of_keys(&self, columns: &[(String, &Comparison)], values: &[&Vec<String>]) -> String {
        if let [(column, compared)] = columns {
            let values = values.iter().filter_map(|values| values.first()).map(String::as_str);
            return self.copy(&compared.is_one_of(column, values));
        }
        let row = |values: &Vec<String>| {
            let columns = columns.iter().zip(values);
            let equal = columns.map(|((column, compared), value)| compared.condition(column, Order::Equal, value));
            format!("({})", equal.collect::<Vec<_>>().join(" AND "))
        };
        let rows: Vec<String> = values.iter().map(|values| row(values)).collect();
        self.copy(&format!("({})", rows.join(" OR ")))
    }

    /// Any one row.
    pub(super) fn of_one_row(&self, condition: &str) -> String {
        self.copy_of(condition, " LIMIT 1")
    }

    fn copy(&self, condition: &str) -> String {
        self.copy_of(condition, "")
    }

    fn copy_of(&self, condition: &str, limit: &str) -> String {
        let Self { columns, from, .. } = self;
        let condition = match condition {
            "" => String::new(),
            condition => format!(" WHERE {condition}"),
        };
        format!("COPY (SELECT {columns} FROM {from}{condition}{limit}) TO STDOUT")
    }
}

/// Where a table's rows are stored, and how its changes are published.
#[derive(Debug, Clone, Default)]
struct Storage {
    /// `pg_relation_filenode`. 0 if the table is read in one piece.
    file: u32,
    blocks: u32,
    /// A number that changes whenever something changes that decides which changes of the table are published. If some
    /// changes are not published, it differs for each snapshot.
    published: u32,
    /// Why some changes are not published.
    withheld: Option<String>,
}

impl Storage {
    /// The storage of a locked table. The lock ensures that blocks mean the same for all its chunks. The catalog is
    /// read as of the snapshot: if it is equal in two snapshots, it was equal for all changes between them.
    async fn of(sql: &Sql, table: &TableFacts, options: &Options, lsn: Lsn) -> Result<Self, Error> {
        let oid = table.oid.0;
        let (publication, lsn) = (options.publication.as_str(), lsn.to_string());
        let rows = sql
            .rows(
                super::DOING,
                &storage_query(options.server_version),
                &[
                    (&oid, Type::OID),
                    (&publication, Type::TEXT),
                    (&options.origins, Type::BOOL),
                    (&lsn, Type::TEXT),
                ],
            )
            .await?;
        let Some(row) = rows.first() else {
            return Ok(Self::default());
        };
        let read = || -> Result<Self, tokio_postgres::Error> {
            let (file, blocks): (Option<u32>, i64) = (row.try_get(0)?, row.try_get(1)?);
            let published: i32 = row.try_get(3)?;
            Ok(Self {
                file: file.filter(|_| options.server_version >= TID_RANGES_SINCE).unwrap_or(0),
                blocks: u32::try_from(blocks).unwrap_or(Blocks::NO_END),
                published: published.cast_unsigned(),
                withheld: row.try_get(2)?,
            })
        };
        read().map_err(|error| Error::sql(super::DOING, error))
    }

    /// What must stay the same for the table to continue after its finished part. 0 if it cannot continue.
    fn identity(&self, table: &TableFacts) -> u64 {
        match self.file {
            0 if !table.partition => 0,
            file => u64::from(file) << 32 | u64::from(self.published),
        }
    }

    /// Logs why the table starts over. Its identity was `before`.
    fn tell(&self, table: &TableFacts, before: u64) {
        let name = format!("{}.{}", table.schema, table.name);
        if file_of(before) != self.file {
            warn!(
                snapshot.table = %name,
                "the table was rewritten after the snapshot was interrupted, so it is read from the beginning"
            );
        } else if let Some(reason) = &self.withheld {
            warn!(
                snapshot.table = %name,
                reason,
                "the stream does not contain every change of the table, so rows that changed after the snapshot was interrupted could be \
                 missed: the table is read from the beginning"
            );
        } else {
            warn!(
                snapshot.table = %name,
                "the publication of the table was changed after the snapshot was interrupted, so the table is read from the beginning"
            );
        }
    }
}

/// The file number in an identity.
pub(super) const fn file_of(identity: u64) -> u32 {
    (identity >> 32) as u32
}

/// Parameters: the table, the publication, whether the stream has changes of every origin, the snapshot's position.
///
/// A table whose `ctid` we may not read, as only some of its columns are granted, is read in one piece.
///
/// The catalog's rows show what is published. Each row carries the transaction that wrote it (`xmin`), so a change that
/// was reverted is noticed too.
fn storage_query(server_version: u32) -> String {
    // Publications have this since Postgres 13.
    let via_root = if server_version >= 130_000 {
        "p.pubviaroot"
    } else {
        "false AS pubviaroot"
    };
    // Row filters and schemas in publications exist since Postgres 15.
    let (filtered, schemas) = if server_version >= 150_000 {
        (
            "m.prqual IS NOT NULL",
            "SELECT s.oid, s.xmin, c.xmin AS class FROM pg_catalog.pg_publication_namespace s
             JOIN pg_catalog.pg_class c ON c.relnamespace = s.pnnspid JOIN family f ON f.oid = c.oid, publication p
             WHERE s.pnpubid = p.oid",
        )
    } else {
        (
            "false",
            "SELECT 0::oid AS oid, '0'::xid AS xmin, '0'::xid AS class WHERE false",
        )
    };
    // Rows of partitions and children are stored elsewhere. Other access methods may have no blocks.
    format!(
        "
        WITH RECURSIVE family(oid, link) AS (
          SELECT $1, '0'::xid
          UNION
          SELECT i.inhparent, i.xmin FROM family f JOIN pg_catalog.pg_class c ON c.oid = f.oid AND c.relispartition
            JOIN pg_catalog.pg_inherits i ON i.inhrelid = f.oid),
        publication AS (
          SELECT p.oid, p.xmin, p.puballtables, p.pubinsert, p.pubupdate, {via_root}
          FROM pg_catalog.pg_publication p WHERE p.pubname = $2),
        members AS (
          SELECT m.oid, m.xmin, {filtered} AS filtered FROM pg_catalog.pg_publication_rel m JOIN family f ON f.oid = m.prrelid,
            publication p WHERE m.prpubid = p.oid),
        schemas AS ({schemas}),
        published AS (
          SELECT CASE
            WHEN NOT EXISTS (SELECT FROM publication) THEN 'the publication does not exist'
            WHEN NOT $3 THEN '`slot.stream.params` leaves out changes of other origins'
            WHEN t.relpersistence <> 'p' THEN 'the table is not logged'
            WHEN NOT (SELECT p.puballtables FROM publication p) AND NOT EXISTS (SELECT FROM members)
              AND NOT EXISTS (SELECT FROM schemas) THEN 'the publication does not have the table'
            WHEN (SELECT p.puballtables FROM publication p) AND EXISTS (SELECT FROM members) THEN 'the publication leaves tables out'
            WHEN EXISTS (SELECT FROM members m WHERE m.filtered) THEN 'the publication has a row filter for the table'
            WHEN NOT (SELECT p.pubinsert FROM publication p) THEN 'the publication does not publish inserts'
            WHEN NOT (SELECT p.pubupdate FROM publication p) THEN 'the publication does not publish updates'
            WHEN t.relispartition AND (SELECT p.pubviaroot FROM publication p)
              THEN 'the publication publishes changes of the partition as changes of its root'
          END AS withheld
          FROM pg_catalog.pg_class t WHERE t.oid = $1)
        SELECT CASE WHEN c.relkind = 'r' AND a.amname = 'heap' AND pg_catalog.has_column_privilege(c.oid, 'ctid', 'SELECT')
            AND NOT EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid)
          THEN pg_catalog.pg_relation_filenode(c.oid) END,
          pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::int8,
          w.withheld,
          pg_catalog.hashtext(pg_catalog.concat_ws(' ',
            CASE WHEN w.withheld IS NOT NULL THEN $4 END,
            (SELECT pg_catalog.string_agg(pg_catalog.concat(f.oid, ':', f.link), ',' ORDER BY f.oid) FROM family f),
            (SELECT pg_catalog.concat(p.oid, ':', p.xmin) FROM publication p),
            (SELECT pg_catalog.string_agg(pg_catalog.concat(m.oid, ':', m.xmin), ',' ORDER BY m.oid) FROM members m),
            (SELECT pg_catalog.string_agg(pg_catalog.concat(s.oid, ':', s.xmin, ':', s.class), ',' ORDER BY s.oid) FROM schemas s)
          ) COLLATE pg_catalog.\"C\")
        FROM published w, pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_am a ON a.oid = c.relam WHERE c.oid = $1"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_blocks_and_keys() {
        let select = Select {
            columns: "\"id\", \"t\"".to_owned(),
            reads: Vec::new(),
            from: "\"s\".\"t\"".to_owned(),
            is_of_the_user: false,
        };
        let blocks = |first, end| select.of_blocks(Blocks { first, end });
        let (number, text) = (Comparison::plain("int4"), Comparison::plain("text"));
        let head = "COPY (SELECT \"id\", \"t\" FROM \"s\".\"t\"";
        let (key, other) = (
            vec!["1".to_owned(), "it's".to_owned()],
            vec!["2".to_owned(), "b".to_owned()],
        );
        let cases = [
            (blocks(0, Blocks::NO_END), ""),
            (blocks(0, 8), " WHERE ctid < '(8,0)'::pg_catalog.tid"),
            (
                blocks(8, 16),
                " WHERE ctid >= '(8,0)'::pg_catalog.tid AND ctid < '(16,0)'::pg_catalog.tid",
            ),
            (blocks(8, Blocks::NO_END), " WHERE ctid >= '(8,0)'::pg_catalog.tid"),
            (
                select.of_keys(
                    &[("\"a\"".to_owned(), &number), ("\"b\"".to_owned(), &text)],
                    &[&key, &other],
                ),
                " WHERE ((\"a\" OPERATOR(pg_catalog.=) CAST('1' AS pg_catalog.int4) AND \"b\" OPERATOR(pg_catalog.=) CAST('it''s' AS \
                 pg_catalog.text)) OR (\"a\" OPERATOR(pg_catalog.=) CAST('2' AS pg_catalog.int4) AND \"b\" OPERATOR(pg_catalog.=) CAST('b' AS \
                 pg_catalog.text)))",
            ),
            (
                select.of_keys(&[("\"a\"".to_owned(), &number)], &[&key, &other]),
                " WHERE \"a\" OPERATOR(pg_catalog.=) ANY (ARRAY[CAST('1' AS pg_catalog.int4), CAST('2' AS pg_catalog.int4)])",
            ),
        ];
        for (statement, condition) in cases {
            assert_eq!(statement, format!("{head}{condition}) TO STDOUT"));
        }
    }
}
