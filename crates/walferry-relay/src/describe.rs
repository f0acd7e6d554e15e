//! Looks at the table in the database.

use walferry_config::{
    Connector, RegexList, Value as _,
    connector::{RelayDone, TransformPlugin},
};
use walferry_diagnosis::{
    Diagnosis, Kind, Needs,
    printed::{one_line, sql_name},
};
use walferry_engine::{Disposition, Failure};
use walferry_event::catalog::{Catalog, TableFacts};
use walferry_pgoutput::Oid;
use walferry_postgres::{
    captured_catalogs,
    connection::{Endpoint, Purpose, Sql},
};

use crate::{
    statements::{self, LookOptions, ServerTimeouts},
    table::{RelayTable, quoted},
};

const DOING: &str = "reading the outbox";
const DESCRIBING: &str = "looking at the outbox";

/// The table, and what the server can do.
#[derive(Debug)]
pub struct Described {
    /// The table.
    pub table: RelayTable,
    /// What the server can do.
    pub server: ServerTimeouts,
}

/// How long looking at the table waits for a lock. The server needs one to say what its defaults are.
const LOCK_MS: u32 = 4000;
/// How long a statement about the catalog may take.
const CATALOG_MS: u32 = 10_000;

/// [`describe`] in a transaction that waits for locks of the table no longer than others may notice.
///
/// # Errors
/// The same. If the table is locked, the error names the sessions that have it.
pub(crate) async fn describe_unlocked(sql: &Sql, connector: &Connector) -> Result<Described, Failure> {
    let described = describe_within(sql, connector, LOCK_MS).await;
    match described {
        Err(failure) if failure.kind == Kind::Timeout => Err(locked(sql, connector, failure).await),
        described => described,
    }
}

/// The same for whoever does not mind how long the table is locked.
pub(crate) async fn describe_within(sql: &Sql, connector: &Connector, lock_ms: u32) -> Result<Described, Failure> {
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL statement_timeout = {CATALOG_MS}; SET LOCAL lock_timeout = {lock_ms}; \
         SET LOCAL idle_in_transaction_session_timeout = {CATALOG_MS}"
    );
    sql.execute(DESCRIBING, &begin).await?;
    let described = describe(sql, connector).await;
    let end = if described.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = sql.execute(DESCRIBING, end).await;
    let described = described?;
    ended?;
    Ok(described)
}

/// Names who has locked the table, if somebody has.
async fn locked(sql: &Sql, connector: &Connector, failure: Failure) -> Failure {
    let Ok(holders) = sql.texts(DESCRIBING, &statements::holders_of_tables()).await else {
        return failure;
    };
    let holder = |row: Vec<Option<String>>| -> Option<[String; 5]> {
        let row: Vec<String> = row.into_iter().map(Option::unwrap_or_default).collect();
        let row: [String; 5] = row.try_into().ok()?;
        // The hint has the number in a statement, and the server may not be the one that it seems to be.
        let is_number = row[2].parse::<u32>().is_ok();
        (is_number && connector.filters.captures_table(&row[0], &row[1])).then_some(row)
    };
    let holders: Vec<_> = holders.into_iter().filter_map(holder).collect();
    let Some([schema, table, pid, ..]) = holders.first() else {
        return failure;
    };
    let sessions: Vec<String> = holders
        .iter()
        .map(|[_, _, pid, role, name]| format!("process {pid} of role {} ({})", one_line(role), one_line(name)))
        .collect();
    Failure::new(
        Disposition::Retry,
        Kind::Timeout,
        format!(
            "table {}.{} is locked by {}, so no row of it is sent",
            sql_name(schema),
            sql_name(table),
            sessions.join(", ")
        ),
        Some(format!(
            "wait until its transaction ends, or end it: SELECT pg_terminate_backend({pid});"
        )),
    )
}

/// Finds the table, and decides what its columns are for.
///
/// # Errors
/// The server cannot be asked, or something must be changed first.
async fn describe(sql: &Sql, connector: &Connector) -> Result<Described, Failure> {
    let Some(section) = &connector.relay else {
        return Err(stop(vec![problem(
            "the connector is not in relay mode",
            "set connector.class",
        )]));
    };
    let answer = sql.texts(DESCRIBING, &statements::server()).await?;
    let text = |row: usize, place: usize| answer.get(row)?.get(place)?.as_deref();
    if text(0, 1) == Some("t") {
        let what = "the server is a standby, where rows can be neither locked nor marked";
        let hint = "connect to the primary: after a failover, it is found once database.hostname leads to it";
        return Err(Failure::new(
            Disposition::Retry,
            Kind::ServerNotReady,
            what,
            Some(hint.to_owned()),
        ));
    }
    let version: u32 = text(0, 0).and_then(|version| version.parse().ok()).unwrap_or_default();
    let server = ServerTimeouts {
        transaction: version >= 170_000,
        tcp_user: text(1, 0) == Some("t"),
    };
    let filters = connector.filters.clone();
    let wanted = std::sync::Arc::new(move |schema: &str, table: &str| filters.captures_table(schema, table)) as _;
    let catalogs = captured_catalogs(sql, &wanted).await?;
    let catalog = only(catalogs).map_err(stop)?;
    let Some(facts) = &catalog.table else {
        return Err(stop(vec![problem(
            "the outbox no longer exists",
            "look at table.include.list",
        )]));
    };
    let (key, words) = (key_columns(connector, facts), words(sql, facts).await?);
    let table = RelayTable::recognise(catalog, section, &key, &words).map_err(stop)?;
    Ok(Described { table, server })
}

/// The only captured table.
fn only(catalogs: Vec<Catalog>) -> Result<Catalog, Vec<Diagnosis>> {
    let name = |catalog: &Catalog| {
        let table = catalog.table.as_ref();
        table
            .map(|facts| format!("{}.{}", facts.schema, facts.name))
            .unwrap_or_default()
    };
    let mut tables = catalogs.into_iter();
    match (tables.next(), tables.next()) {
        (Some(only), None) => Ok(only),
        (None, _) => Err(vec![problem(
            "no table in the database matches table.include.list",
            "name the outbox in table.include.list, as SCHEMA.TABLE",
        )]),
        (Some(first), Some(second)) => Err(vec![problem(
            format!(
                "several tables match table.include.list, such as {} and {}",
                name(&first),
                name(&second)
            ),
            "a connector in relay mode has one table: name it in table.include.list, and use another connector for each other table",
        )]),
    }
}

/// The columns of the message key: those of the EventRouter for this table. Without one, none: each row has a key of its own.
fn key_columns(connector: &Connector, table: &TableFacts) -> Vec<String> {
    let name = format!("{}.{}", table.schema, table.name);
    let is_router = |transform: &&TransformPlugin| {
        let options = &transform.options;
        transform.class.rsplit('.').next() == Some("EventRouter")
            && options
                .get("walferry.tables")
                .is_none_or(|tables| RegexList::parse(tables).is_ok_and(|tables| tables.matches(&name)))
    };
    let Some(router) = connector.plugins.transforms.iter().find(is_router) else {
        return Vec::new();
    };
    match router.options.get("walferry.key.columns") {
        Some(list) => list.split(',').map(|column| column.trim().to_owned()).collect(),
        None => {
            let key = router.options.get("table.field.event.key");
            vec![key.unwrap_or("aggregateid").trim().to_owned()]
        }
    }
}

/// The texts in the defaults and the CHECK constraints of the columns. They say which words a status has.
async fn words(sql: &Sql, table: &TableFacts) -> Result<Vec<(String, Vec<String>)>, Failure> {
    let Oid(oid) = table.oid;
    let query = format!(
        "SELECT a.attname, pg_catalog.pg_get_constraintdef(c.oid) FROM pg_catalog.pg_constraint c
         JOIN pg_catalog.pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey)
         WHERE c.conrelid = {oid} AND c.contype = 'c' AND pg_catalog.cardinality(c.conkey) = 1"
    );
    let checks = sql.texts(DESCRIBING, &query).await?;
    let of_column = |name: &str, default: Option<&str>| {
        let checks = checks
            .iter()
            .filter(|row| row.first().is_some_and(|column| column.as_deref() == Some(name)));
        let mut words: Vec<String> = default.map(quoted).unwrap_or_default();
        for check in checks.filter_map(|row| row.get(1)?.as_deref()) {
            words.extend(quoted(check));
        }
        words.sort();
        words.dedup();
        words
    };
    let columns = table.columns.iter();
    Ok(columns
        .map(|column| (column.name.clone(), of_column(&column.name, column.default.as_deref())))
        .collect())
}

/// What `walferry check` says of the database: what was recognised, what is missing, and whether a look works. Nothing is changed.
///
/// # Errors
/// The server cannot be asked, or something must be changed first.
pub async fn check(connector: &Connector) -> Result<Vec<Diagnosis>, Failure> {
    let sql = Endpoint::new(connector.postgres.clone()).sql(Purpose::Validate).await?;
    let Described { table, server } = describe_unlocked(&sql, connector).await?;
    let mut remarks = vec![Diagnosis::good(table.sentence())];
    remarks.extend(table.missing());
    remarks.extend(table.random_order());
    remarks.extend(table.local_time());
    // Without it, the look fails.
    if let Some(missing) = missing_privilege(&sql, &table).await? {
        remarks.push(missing);
        return Ok(remarks);
    }
    remarks.extend(row_security(&sql, &table).await?);
    // Takes locks of rows, and gives them back at once.
    let look = statements::look(
        &table,
        LookOptions {
            token: "check",
            first_lane: 0,
            lanes: table.lanes,
            rows: 1,
            without_keys: &[],
            server,
        },
    );
    let looked = sql.texts(DOING, &look).await.map(drop);
    sql.execute(DOING, "ROLLBACK").await?;
    looked?;
    remarks.extend(missing_indexes(&sql, &table).await?);
    Ok(remarks)
}

/// Rows that are put back in one transaction.
const RETRIED_ROWS: u64 = 1000;

/// Puts rows back that have failed for good, and says how many. Not more than have failed when it begins: some may fail again meanwhile.
///
/// # Errors
/// The server cannot be asked, or the table does not say which rows have failed.
pub async fn retry(connector: &Connector, keys: &[String]) -> Result<u64, Failure> {
    let sql = Endpoint::new(connector.postgres.clone()).sql(Purpose::General).await?;
    let table = describe_unlocked(&sql, connector).await?.table;
    let Some(failed) = statements::count_failed(&table, keys) else {
        let what = format!(
            "table {} has no column that says which rows have failed for good",
            table.name
        );
        return Err(stop(vec![problem(
            what,
            "each of its rows is tried again without an end",
        )]));
    };
    let count = async |statement: &str| -> Result<u64, Failure> {
        let answer = sql.texts("putting failed rows back", statement).await?;
        let count = answer.into_iter().flatten().flatten().next();
        Ok(count.and_then(|count| count.parse().ok()).unwrap_or(0))
    };
    let (failed, mut rows) = (count(&failed).await?, 0);
    while rows < failed {
        let most = RETRIED_ROWS.min(failed - rows);
        let Some(statement) = statements::retry(&table, keys, most, &sql.own_path()) else {
            break;
        };
        match count(&statement).await? {
            0 => break,
            changed => rows += changed,
        }
    }
    Ok(rows)
}

/// The first privilege that the role lacks. Those on columns are enough.
async fn missing_privilege(sql: &Sql, table: &RelayTable) -> Result<Option<Diagnosis>, Failure> {
    let answer = sql.texts(DESCRIBING, &statements::privileges(table)).await?;
    let mut answer = answer.into_iter().flatten();
    let role = answer.next().flatten().unwrap_or_default();
    let missing = ["SELECT", "UPDATE", "DELETE"]
        .into_iter()
        .zip(answer)
        .find(|(_, may)| may.as_deref() != Some("t"));
    let needed = match table.done {
        RelayDone::Mark => "SELECT, UPDATE",
        RelayDone::Delete => "SELECT, UPDATE, DELETE",
    };
    Ok(missing.map(|(privilege, _)| {
        Diagnosis::error(
            Kind::PrivilegeMissing,
            format!(
                "the role {role} lacks the privilege {privilege} on table {}",
                table.name
            ),
        )
        .with_hint(format!("GRANT {needed} ON {} TO {};", table.name, sql_name(&role)))
        .with_fix(
            vec![format!("GRANT {needed} ON {} TO {}", table.name, sql_name(&role))],
            Needs::Owner,
        )
    }))
}

/// Whether policies of the table apply to the role.
pub(crate) async fn row_security(sql: &Sql, table: &RelayTable) -> Result<Option<Diagnosis>, Failure> {
    let query = format!(
        "SELECT current_user, pg_catalog.row_security_active({}::oid)",
        table.oid.0
    );
    let answer = sql.texts(DESCRIBING, &query).await?;
    let mut answer = answer.into_iter().flatten().flatten();
    let (role, is_active) = (answer.next().unwrap_or_default(), answer.next());
    Ok((is_active.as_deref() == Some("t")).then(|| {
        Diagnosis::warning(
            Kind::RelayTable,
            format!(
                "row-level security of table {} may hide rows from the role {role}: those are not sent, and nothing tells of them",
                table.name
            ),
        )
        .with_hint(format!(
            "make sure that a policy shows it all rows, before and after they are sent: CREATE POLICY relay ON {} TO {} USING (true);",
            table.name,
            sql_name(&role)
        ))
    }))
}

/// Indexes that serve a look. Only their beginning is compared: an index that people have made for their poller serves, too.
async fn missing_indexes(sql: &Sql, table: &RelayTable) -> Result<Vec<Diagnosis>, Failure> {
    let query = format!(
        "SELECT pg_catalog.pg_get_indexdef(i.indexrelid, 1, true), pg_catalog.pg_get_expr(i.indpred, i.indrelid)
         FROM pg_catalog.pg_index i WHERE i.indrelid = {oid} AND i.indisvalid
         UNION ALL SELECT NULL, c.relkind::text FROM pg_catalog.pg_class c WHERE c.oid = {oid}",
        oid = table.oid.0
    );
    let mut found = sql.texts(DESCRIBING, &query).await?;
    let kind = found.pop().into_iter().flatten().nth(1).flatten();
    let is_partitioned = kind.as_deref() == Some("p");
    let unquoted = |text: &Option<String>| text.as_deref().unwrap_or_default().trim_matches('"').to_owned();
    let serves = |column: &String, of_part: bool| {
        found.iter().any(|row| {
            let first = row.first().map(unquoted);
            let is_part = row.get(1).is_some_and(Option::is_some);
            first.as_ref() == Some(column) && (is_part || !of_part)
        })
    };
    let missing = statements::indexes(table)
        .into_iter()
        .filter(|index| !serves(&index.column, index.is_partial));
    Ok(missing
        .map(|index| {
            let by_hand = match is_partitioned {
                true => index.statement(),
                false => index.concurrently(),
            };
            Diagnosis::warning(
                Kind::RelayTable,
                format!(
                    "table {} has no index for {}, so each look reads more of it the larger it is",
                    table.name, index.finds
                ),
            )
            .with_hint(format!("create one: {by_hand};"))
            .with_fix(vec![index.statement()], Needs::Owner)
        })
        .collect())
}

pub(crate) fn problem(what: impl Into<String>, hint: impl Into<String>) -> Diagnosis {
    Diagnosis::error(Kind::RelayTable, what).with_hint(hint)
}

fn stop(problems: Vec<Diagnosis>) -> Failure {
    Failure::of(Disposition::stop(Kind::RelayTable), Kind::RelayTable, problems)
}
