//! The SQL of relay mode. Pure: texts for a [`RelayTable`].
//!
//! A look is one transaction. It takes lanes with advisory locks that end with it, reads and locks rows, and stays open until the rows are marked. So
//! nothing of it is left if the process dies, and it works behind a pooler that hands out a connection for one transaction.
//!
//! Lanes are taken in a statement of their own: the next statement has a snapshot that was taken after the locks, so it sees what the last owner of
//! the lanes has committed. So the isolation is READ COMMITTED, whatever the role has by default.

use std::time::Duration;

use walferry_config::connector::{FailedRows, RelayDone};
use walferry_diagnosis::printed::{one_line, sql_name, sql_text};

use crate::table::RelayTable;

/// The longest time that a transaction stays open.
pub const TRANSACTION: Duration = Duration::from_secs(5);
/// How long the statement that reads rows may take.
const LOOK: Duration = Duration::from_millis(2500);
/// How long the server waits for the next statement of a look. Then it ends the transaction, so that the lanes of a process that hangs get another owner.
const IDLE: Duration = Duration::from_millis(4000);
/// How long after the beginning of a look its rows may be confirmed by Kafka.
pub const CONFIRM: Duration = Duration::from_millis(3500);
/// How long marking may take.
const MARK: Duration = Duration::from_millis(1000);

/// How many keys that are held back a look may name.
const HELD_KEYS: u32 = 200;

/// The setting that tells one look from another, as long as its transaction lasts.
const TOKEN: &str = "walferry.look";
/// The setting with the lanes that a look has.
const LANES: &str = "walferry.lanes";
/// Advisory locks of lanes have the oid of the table in their first number, changed by this.
const LOCKS: u32 = 0x5746_524c;
/// The path of statements of Walferry's own.
const PATH: &str = "pg_catalog, pg_temp";
/// Their second number is that of the lane, and, times this, the number of lanes.
pub(crate) const LANES_IN_LOCK: u32 = 4096;

/// Which rows a look asks for.
#[derive(Debug, Clone, Copy)]
pub struct LookOptions<'a> {
    /// Tells this look from all others.
    pub token: &'a str,
    /// The lane to begin with.
    pub first_lane: u32,
    /// Maximum number of lanes.
    pub lanes: u32,
    /// Maximum number of rows.
    pub rows: u32,
    /// Message keys whose rows are not wanted now.
    pub without_keys: &'a [String],
    /// What the server can do.
    pub server: ServerTimeouts,
}

/// The time limits that a server knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerTimeouts {
    /// `transaction_timeout`
    pub transaction: bool,
    /// `tcp_user_timeout`: no other limit ends a statement whose answer nobody reads. It has none where its operating system has none, and on a Unix
    /// socket.
    pub tcp_user: bool,
}

/// A row, as it was locked.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RowAddress {
    /// The table or partition that has it.
    pub table_oid: u32,
    /// Its place there. It does not change while the row is locked.
    pub ctid: String,
}

/// The transaction of a look.
#[derive(Debug, Clone, Copy)]
pub struct InLook<'a> {
    /// Tells this look from all others.
    pub token: &'a str,
    /// An expression that sets the role's own `search_path`, which triggers of the table expect.
    pub own_path: &'a str,
}

/// Begins a transaction, takes lanes, and reads rows. The first row of the answer has the lanes, as the text of an array. Each other has `tableoid`,
/// `ctid`, the message key, the number of failed attempts, and the columns of the table.
pub fn look(table: &RelayTable, options: LookOptions<'_>) -> String {
    let LookOptions {
        token,
        first_lane,
        lanes,
        rows,
        ..
    } = options;
    let all = table.lanes;
    let mut timeouts = String::new();
    if options.server.transaction {
        timeouts.push_str(&format!(
            "SET LOCAL transaction_timeout = {}; ",
            TRANSACTION.as_millis()
        ));
    }
    if options.server.tcp_user {
        timeouts.push_str(&format!("SET LOCAL tcp_user_timeout = {}; ", IDLE.as_millis()));
    }
    let locks = lane_locks(table).cast_signed();
    let columns: Vec<String> = table
        .columns
        .iter()
        .map(|column| format!("t.{}", sql_name(column)))
        .collect();
    let attempts = match &table.attempts {
        Some(column) => format!("t.{}", sql_name(column)),
        None => "0".to_owned(),
    };
    let held = held(table);
    // As records they are compared as ORDER BY does it: NULL comes last. Otherwise a comparison with it would be neither true nor false.
    let as_record = match table.order.iter().any(|column| table.may_be_null(column)) {
        true => "::record",
        false => "",
    };
    let (with, not_held) = match &held {
        None => (String::new(), String::new()),
        Some(held) => (
            format!("WITH held AS MATERIALIZED ({held}) "),
            format!(
                " AND NOT EXISTS (SELECT FROM held WHERE held.key = {} AND ROW({}){as_record} < ROW({}){as_record})",
                key(table, "t"),
                list(
                    &(0..table.order.len())
                        .map(|place| format!("held.o{place}"))
                        .collect::<Vec<_>>()
                ),
                order(table, "t")
            ),
        ),
    };
    let unwanted = match options.without_keys {
        [] => String::new(),
        keys => {
            let keys: Vec<String> = keys.iter().map(|key| text(key)).collect();
            let keys = list(&keys);
            // The first condition is the same for most rows, and costs the server less.
            let column = match table.key.as_slice() {
                [only] => format!(
                    " AND (t.{}::text COLLATE \"C\" = ANY (ARRAY[{keys}])) IS NOT TRUE",
                    sql_name(only)
                ),
                _ => String::new(),
            };
            format!("{column} AND {} <> ALL (ARRAY[{keys}])", key(table, "t"))
        }
    };
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = {look_ms}; SET LOCAL idle_in_transaction_session_timeout = {idle_ms}; {timeouts}\
         SELECT pg_catalog.set_config('{LANES}', (SELECT coalesce(pg_catalog.array_agg(lane), '{{}}')::text FROM (SELECT lane FROM \
         (SELECT (n + {first_lane}) % {all} AS lane FROM pg_catalog.generate_series(0, {last}) n) lanes \
         WHERE pg_catalog.pg_try_advisory_xact_lock({locks}, lane + {lock_base}) LIMIT {lanes}) taken), true) \
         WHERE pg_catalog.set_config('{TOKEN}', {token}, true) IS NOT NULL; \
         {with}SELECT t.tableoid, t.ctid, {key}, {attempts}, {columns} FROM {name} t \
         WHERE pg_catalog.current_setting('{LANES}') <> '{{}}' AND {pending}{unwanted}{available} \
         AND {lane} = ANY ((SELECT pg_catalog.current_setting('{LANES}')::int[])::int[]){not_held} \
         ORDER BY {order} LIMIT {rows} FOR UPDATE OF t SKIP LOCKED",
        look_ms = LOOK.as_millis(),
        idle_ms = IDLE.as_millis(),
        last = all - 1,
        lock_base = all * LANES_IN_LOCK,
        token = text(token),
        key = key(table, "t"),
        columns = list(&columns),
        name = table.name,
        pending = waiting(table, "t"),
        available = available(table, "t"),
        lane = lane(table, "t"),
        order = order(table, "t"),
    )
}

/// Answers with the version of the server, whether it is a standby, and whether it has a `tcp_user_timeout` for this connection.
pub fn server() -> String {
    let ms = IDLE.as_millis();
    format!(
        "SELECT pg_catalog.current_setting('server_version_num'), pg_catalog.pg_is_in_recovery(), \
         pg_catalog.set_config('tcp_user_timeout', '{ms}', true); SELECT pg_catalog.current_setting('tcp_user_timeout') <> '0'"
    )
}

/// Who holds the locks of lanes: process id, role and name of each session.
pub fn owners_of_lanes(table: &RelayTable) -> String {
    format!(
        "SELECT DISTINCT l.pid, a.usename, a.application_name FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.granted AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d \
         WHERE d.datname = pg_catalog.current_database()) AND l.classid = {} AND l.objsubid = 2 ORDER BY 1 LIMIT 5",
        table.oid.0 ^ LOCKS
    )
}

/// Who keeps others from looking at tables: schema, table, process id, role and name of each session.
pub fn holders_of_tables() -> String {
    "SELECT n.nspname, c.relname, l.pid, a.usename, a.application_name FROM pg_catalog.pg_locks l \
     JOIN pg_catalog.pg_class c ON c.oid = l.relation JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
     LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid \
     WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'AccessExclusiveLock' AND l.pid <> pg_catalog.pg_backend_pid() \
     AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()) ORDER BY 1, 2, 3 LIMIT 100"
        .to_owned()
}

/// Says whether the transaction of a look is still there, and whether the table is what it was: answers with its token, and with
/// [`RelayTable::form`]. The look has locked the table, so it stays as it is until the rows are marked.
pub fn is_open(table: &RelayTable) -> String {
    format!(
        "SELECT pg_catalog.current_setting('{TOKEN}', true), (SELECT pg_catalog.string_agg(pg_catalog.concat_ws(' ', a.attnum, a.atttypid, a.atttypmod, \
         a.attname), ',' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a WHERE a.attrelid = {} AND a.attnum > 0 AND NOT a.attisdropped)",
        table.oid.0
    )
}

/// Answers with the role, and whether it may SELECT, UPDATE and DELETE as far as that is needed. Locking rows needs UPDATE, if only of one column.
pub fn privileges(table: &RelayTable) -> String {
    let oid = table.oid.0;
    let all = |columns: &[&String], privilege: &str| {
        let each = columns.iter().map(|column| {
            let column = text(column);
            format!("pg_catalog.has_column_privilege({oid}::oid, {column}::text, '{privilege}')")
        });
        each.collect::<Vec<_>>().join(" AND ")
    };
    let read: Vec<&String> = table.columns.iter().collect();
    let mut written: Vec<&String> = [&table.attempts, &table.available_at].into_iter().flatten().collect();
    written.extend(table.last_error.as_ref().map(|(column, _)| column));
    if table.done == RelayDone::Mark || table.status.as_ref().is_some_and(|status| status.failed.is_some()) {
        written.extend(table.status.as_ref().map(|status| &status.column));
    }
    if table.done == RelayDone::Mark {
        written.extend(&table.sent_at);
    }
    let update = match written.as_slice() {
        [] => format!("pg_catalog.has_any_column_privilege({oid}::oid, 'UPDATE')"),
        written => all(written, "UPDATE"),
    };
    let delete = match table.done {
        RelayDone::Mark => "true".to_owned(),
        RelayDone::Delete => format!("pg_catalog.has_table_privilege({oid}::oid, 'DELETE')"),
    };
    format!("SELECT current_user, {}, {update}, {delete}", all(&read, "SELECT"))
}

/// Finds out whether a look may find rows, in one short statement that takes no lock. It is for tables in which the last look has found nothing.
pub fn peek(table: &RelayTable) -> String {
    format!(
        "SET LOCAL statement_timeout = {}; SELECT 1 FROM {} t WHERE {}{} ORDER BY {} LIMIT 1",
        LOOK.as_millis(),
        table.name,
        waiting(table, "t"),
        available(table, "t"),
        order(table, "t")
    )
}

/// The first number of the locks of lanes.
pub(crate) fn lane_locks(table: &RelayTable) -> u32 {
    table.oid.0 ^ LOCKS
}

/// Ends a look that has found nothing.
pub const END: &str = "COMMIT";

/// Marks or deletes rows that were sent. Each statement answers with the number of its rows, and changes nothing outside the transaction of the look.
pub fn done(table: &RelayTable, rows: &[RowAddress], look: InLook<'_>) -> Vec<String> {
    let is_done = match table.done {
        RelayDone::Delete => "true".to_owned(),
        // A trigger may have changed it.
        RelayDone::Mark => format!("({}) IS NOT TRUE", unsent(table, "t")),
    };
    let change = match table.done {
        RelayDone::Delete => format!("DELETE FROM {} t", table.name),
        RelayDone::Mark => {
            let mut set = Vec::new();
            if let Some(status) = &table.status {
                set.push(format!("{} = {}", sql_name(&status.column), text(&status.sent)));
            }
            if let Some(column) = &table.sent_at {
                set.push(format!("{} = pg_catalog.clock_timestamp()", sql_name(column)));
            }
            format!("UPDATE {} t SET {}", table.name, list(&set))
        }
    };
    let mut by_table: Vec<(u32, Vec<&str>)> = Vec::new();
    for row in rows {
        match by_table.iter_mut().find(|(oid, _)| *oid == row.table_oid) {
            Some((_, ctids)) => ctids.push(&row.ctid),
            None => by_table.push((row.table_oid, vec![&row.ctid])),
        }
    }
    let statement = |(oid, ctids): &(u32, Vec<&str>)| counted(&change, *oid, ctids, &is_done, look);
    by_table.iter().map(statement).collect()
}

/// What a failed attempt leaves in its row.
#[derive(Debug, Clone)]
pub struct FailedAttempt<'a> {
    /// Number of failed attempts, with this one.
    pub attempts: u32,
    /// What happened.
    pub error: &'a str,
    /// Pause before the next attempt.
    pub pause: Duration,
    /// Whether there is to be no other.
    pub is_last: bool,
}

/// Notes a failed attempt in its row. `None` if the table has no column for it.
pub fn failed(table: &RelayTable, row: &RowAddress, attempt: &FailedAttempt<'_>, look: InLook<'_>) -> Option<String> {
    let mut set = Vec::new();
    if let Some(column) = &table.attempts {
        set.push(format!("{} = {}", sql_name(column), attempt.attempts));
    }
    if let Some((column, chars)) = &table.last_error {
        let error: String = one_line(attempt.error).chars().take(*chars).collect();
        set.push(format!("{} = {}", sql_name(column), text(&error)));
    }
    if let Some(column) = &table.available_at {
        let pause = attempt.pause.as_millis();
        set.push(format!(
            "{} = pg_catalog.clock_timestamp() + interval '{pause} milliseconds'",
            sql_name(column)
        ));
    }
    if let Some(status) = &table.status
        && let Some(failed) = status.failed.as_ref().filter(|_| attempt.is_last)
    {
        set.push(format!("{} = {}", sql_name(&status.column), text(failed)));
    }
    let change = format!("UPDATE {} t SET {}", table.name, list(&set));
    (!set.is_empty()).then(|| counted(&change, row.table_oid, &[&row.ctid], "true", look))
}

/// The statements that mark rows, in the transaction of the look, and end it.
pub fn marks(statements: &[String]) -> String {
    format!(
        "SET LOCAL statement_timeout = {}; {}; COMMIT",
        MARK.as_millis(),
        // Each has set the role's path, and the names in the next one are looked up before it does the same.
        statements.join(&format!("; SET LOCAL search_path = {PATH}; "))
    )
}

/// Statements of which nothing is left if they are undone. Checks of constraints that would come with the commit come now.
pub fn in_savepoint(statements: &[String], limit: Duration) -> String {
    let pin = format!("SET LOCAL search_path = {PATH}");
    format!(
        "{pin}; SET LOCAL statement_timeout = {}; SAVEPOINT walferry; {}; SET CONSTRAINTS ALL IMMEDIATE",
        limit.min(MARK).as_millis(),
        statements.join(&format!("; {pin}; "))
    )
}

/// Keeps what statements in a savepoint have done.
pub const KEEP: &str = "RELEASE SAVEPOINT walferry";
/// Undoes it.
pub const UNDO: &str = "ROLLBACK TO SAVEPOINT walferry; RELEASE SAVEPOINT walferry";

/// Changes rows, and answers with how many are `is_done` afterwards. Names in it are looked up before the role's path is set, which is in time for
/// triggers.
fn counted(change: &str, table_oid: u32, ctids: &[&str], is_done: &str, look: InLook<'_>) -> String {
    let ctids: Vec<String> = ctids.iter().map(|ctid| format!("\"{ctid}\"")).collect();
    let ctids = text(&format!("{{{}}}", ctids.join(",")));
    format!(
        "WITH changed AS ({change} WHERE t.tableoid = {table_oid} AND t.ctid = ANY ({ctids}::tid[]) \
         AND pg_catalog.current_setting('{TOKEN}', true) = {} AND (SELECT {} IS NOT NULL) RETURNING {is_done} AS is_done) \
         SELECT count(*) FROM changed WHERE is_done",
        text(look.token),
        look.own_path
    )
}

/// Rows that have failed for good. `keys` are the message keys of those that are wanted; without any, all are.
fn failed_with(table: &RelayTable, keys: &[String]) -> Option<String> {
    let mut failed = failed_for_good(table, "f")?;
    if !keys.is_empty() {
        let keys: Vec<String> = keys.iter().map(|key| text(key)).collect();
        failed.push_str(&format!(" AND {} = ANY (ARRAY[{}])", key(table, "f"), list(&keys)));
    }
    Some(failed)
}

/// Counts rows that have failed for good. `None` if the table does not say which have failed.
pub fn count_failed(table: &RelayTable, keys: &[String]) -> Option<String> {
    let failed = failed_with(table, keys)?;
    Some(format!("SELECT count(*) FROM {} f WHERE {failed}", table.name))
}

/// Puts rows back that have failed for good, some at a time. Answers with their number. `None` if the table does not say which have failed.
/// `own_path` sets the role's own path, for triggers.
pub fn retry(table: &RelayTable, keys: &[String], most: u64, own_path: &str) -> Option<String> {
    let failed = failed_with(table, keys)?;
    let mut set = Vec::new();
    if let Some(status) = &table.status {
        set.push(format!("{} = {}", sql_name(&status.column), text(&status.pending)));
    }
    if let Some(column) = &table.attempts {
        set.push(format!("{} = 0", sql_name(column)));
    }
    if let Some(column) = &table.available_at {
        set.push(format!("{} = pg_catalog.clock_timestamp()", sql_name(column)));
    }
    Some(format!(
        "WITH chosen AS MATERIALIZED (SELECT f.tableoid AS of_table, f.ctid AS place FROM {name} f WHERE {failed} LIMIT {most} FOR UPDATE SKIP LOCKED), \
         changed AS (UPDATE {name} t SET {set} FROM chosen WHERE t.tableoid = chosen.of_table AND t.ctid = chosen.place AND (SELECT {own_path} IS NOT NULL) \
         RETURNING 1) \
         SELECT count(*) FROM changed",
        name = table.name,
        set = list(&set)
    ))
}

/// An index that a look needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Its first column.
    pub column: String,
    /// Whether it has only a part of the rows.
    pub is_partial: bool,
    /// The rows that it finds.
    pub finds: &'static str,
    /// The SQL that creates it, after `CREATE INDEX`.
    definition: String,
}

impl Index {
    /// The SQL that creates it while others may write to the table. Not for a partitioned table.
    pub fn concurrently(&self) -> String {
        format!("CREATE INDEX CONCURRENTLY {}", self.definition)
    }

    /// The SQL that creates it in a transaction.
    pub fn statement(&self) -> String {
        format!("CREATE INDEX {}", self.definition)
    }
}

/// An index by which rows that wait are found in their order, and one for rows that hold others back.
pub fn indexes(table: &RelayTable) -> Vec<Index> {
    let index = |finds: &'static str, columns: &[String], condition: Option<String>| {
        let names: Vec<String> = columns.iter().map(|column| sql_name(column)).collect();
        let part = condition
            .as_ref()
            .map(|condition| format!(" WHERE {condition}"))
            .unwrap_or_default();
        Index {
            column: columns.first().cloned().unwrap_or_default(),
            is_partial: condition.is_some(),
            finds,
            definition: format!("ON {} ({}){part}", table.name, list(&names)),
        }
    };
    let waiting = Some(waiting(table, "")).filter(|condition| condition != "true");
    let mut indexes = vec![index("rows that wait", &table.order, waiting)];
    if let Some(held) = held_condition(table) {
        let column = table.key.first().or(table.order.first());
        let finds = "rows that have failed and hold back others";
        indexes.extend(column.map(|column| index(finds, std::slice::from_ref(column), Some(held))));
    }
    indexes
}

/// Rows that may hold others back, for an index: each condition of [`held`] implies it. `None` if the table does not say which do.
fn held_condition(table: &RelayTable) -> Option<String> {
    let attempts = table.attempts.as_ref()?;
    let unsent = unsent(table, "");
    let mut holds = format!("{} > 0", sql_name(attempts));
    if let Some(status) = &table.status
        && let Some(failed) = &status.failed
    {
        holds = format!("({holds} OR {} = {})", sql_name(&status.column), text(failed));
    }
    Some(match unsent.as_str() {
        "true" => holds,
        unsent => format!("{unsent} AND {holds}"),
    })
}

/// Message key and order of the rows that hold back later ones of their key: those that wait for another attempt, and, by choice, those that have
/// failed for good.
fn held(table: &RelayTable) -> Option<String> {
    let columns: Vec<String> = table
        .order
        .iter()
        .enumerate()
        .map(|(place, column)| format!("h.{} AS o{place}", sql_name(column)))
        .collect();
    let select = |condition: String| {
        format!(
            "SELECT {} AS key, {} FROM {} h WHERE {condition}",
            key(table, "h"),
            list(&columns),
            table.name
        )
    };
    let mut parts = Vec::new();
    if let (Some(attempts), Some(available_at)) = (&table.attempts, &table.available_at) {
        parts.push(select(format!(
            "{} AND h.{} > 0 AND h.{} > pg_catalog.now()",
            waiting(table, "h"),
            sql_name(attempts),
            sql_name(available_at)
        )));
    }
    if table.failed_rows == FailedRows::Hold
        && let Some(failed) = failed_for_good(table, "h")
    {
        parts.push(select(failed));
    }
    (!parts.is_empty()).then(|| parts.join(" UNION ALL "))
}

/// Lists message keys that are held back, some at most. `None` if rows of the table hold back none.
pub fn held_keys(table: &RelayTable) -> Option<String> {
    let held = held(table)?;
    Some(format!(
        "SET LOCAL statement_timeout = {}; SELECT DISTINCT held.key FROM ({held}) held LIMIT {HELD_KEYS}",
        MARK.as_millis()
    ))
}

/// The rows that are to be sent, now or later.
pub fn waiting(table: &RelayTable, alias: &str) -> String {
    let attempts = match (&table.status, &table.attempts) {
        // The status says which rows have failed for good.
        (Some(status), _) if status.failed.is_some() => {
            return format!("{} = {}", column(alias, &status.column), text(&status.pending));
        }
        (_, attempts) => attempts,
    };
    let unsent = unsent(table, alias);
    let tried = attempts.as_ref().map(|attempts| {
        let (name, most) = (column(alias, attempts), table.max_attempts);
        match table.may_be_null(attempts) {
            true => format!("({name} IS NULL OR {name} < {most})"),
            false => format!("{name} < {most}"),
        }
    });
    match (unsent.as_str(), tried) {
        ("true", Some(tried)) => tried,
        (_, None) => unsent,
        (_, Some(tried)) => format!("{unsent} AND {tried}"),
    }
}

/// The rows that were not sent, whether they are to be sent or have failed for good.
fn unsent(table: &RelayTable, alias: &str) -> String {
    match (&table.status, &table.sent_at) {
        (Some(status), _) => {
            let words: Vec<String> = [Some(&status.pending), status.failed.as_ref()]
                .into_iter()
                .flatten()
                .map(|word| text(word))
                .collect();
            format!("{} IN ({})", column(alias, &status.column), list(&words))
        }
        (None, Some(sent_at)) => format!("{} IS NULL", column(alias, sent_at)),
        (None, None) => "true".to_owned(),
    }
}

/// The rows that have failed for good. `None` if the table does not tell.
pub fn failed_for_good(table: &RelayTable, alias: &str) -> Option<String> {
    let failed = table
        .status
        .as_ref()
        .and_then(|status| Some((status, status.failed.as_ref()?)));
    match (failed, &table.attempts) {
        (Some((status, failed)), _) => Some(format!("{} = {}", column(alias, &status.column), text(failed))),
        (None, Some(attempts)) => Some(format!(
            "{} AND {} >= {}",
            unsent(table, alias),
            column(alias, attempts),
            table.max_attempts
        )),
        (None, None) => None,
    }
}

fn available(table: &RelayTable, alias: &str) -> String {
    match &table.available_at {
        Some(available_at) => {
            let available_at = column(alias, available_at);
            format!(" AND ({available_at} IS NULL OR {available_at} <= pg_catalog.now())")
        }
        None => String::new(),
    }
}

/// The message key as text. A row without one has no order: its primary key takes the place. Rows of a table without a primary key have the
/// empty text then, so that they are in a lane, too.
fn key(table: &RelayTable, alias: &str) -> String {
    let mut columns: Vec<&String> = table.key.iter().collect();
    columns.extend(table.primary_key.iter().filter(|column| !table.key.contains(column)));
    let mut columns: Vec<String> = columns
        .iter()
        .map(|name| format!("{}::text", column(alias, name)))
        .collect();
    if table.primary_key.is_empty() {
        columns.push("''::text".to_owned());
    }
    match &columns[..] {
        [only] => format!("{only} COLLATE \"C\""),
        _ => format!("coalesce({}) COLLATE \"C\"", list(&columns)),
    }
}

fn lane(table: &RelayTable, alias: &str) -> String {
    let lanes = table.lanes;
    format!(
        "((pg_catalog.hashtextextended({}, 0) % {lanes} + {lanes}) % {lanes})::int",
        key(table, alias)
    )
}

fn order(table: &RelayTable, alias: &str) -> String {
    list(&table.order.iter().map(|name| column(alias, name)).collect::<Vec<_>>())
}

fn column(alias: &str, name: &str) -> String {
    match alias {
        "" => sql_name(name),
        alias => format!("{alias}.{}", sql_name(name)),
    }
}

/// A text in single quotes. It does not depend on `standard_conforming_strings`.
fn text(text: &str) -> String {
    sql_text(text)
}

fn list(parts: &[String]) -> String {
    parts.join(", ")
}
