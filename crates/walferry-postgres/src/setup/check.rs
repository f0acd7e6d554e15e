//! `walferry check`: what a start would create, what it lacks, and how it would affect the application. Changes
//! nothing.

use std::collections::HashMap;

use walferry_config::connector::{ColumnPattern, FilterSection, GuardrailAction, PublicationAutocreate, SlotSection};
use walferry_config::{Connector, limited, near_value, quoted};
use walferry_diagnosis::printed::shell_word;
use walferry_diagnosis::{Diagnosis, Fix, Kind, Needs, Severity};
use walferry_engine::Failure;
use walferry_engine::gap::MISSING;
use walferry_engine::source::TableFilter;
use walferry_engine::status::Invalidation;

use crate::catalog::privileges::{ReadColumns, unreadable};
use crate::catalog::tables::{Captured, TableName, captured, columns_of, listed, unidentified, unpublished_identities};
use crate::chunks::signal_table;
use crate::connection::wire::Wire;
use crate::connection::{Endpoint, Purpose, Sql};
use crate::error::Error;
use crate::publication::{self, Publication};
use crate::quote::{conninfo, identifier};
use crate::setup::heartbeat;
use crate::setup::inspect::ServerState;
use crate::setup::problem::SetupProblem;
pub use crate::setup::unpublished::unpublished;
use crate::snapshot;
use crate::stream::identify_system;

/// Looks at server, role, slot, publication and tables. `snapshot` says whether rows of the captured tables would be
/// read. Fails only if the server cannot be queried.
///
/// # Errors
/// The server cannot be reached, or does not answer a query.
pub async fn check(connector: &Connector, wanted: TableFilter, snapshot: bool) -> Result<Vec<Diagnosis>, Failure> {
    check_server(connector, &wanted, snapshot).await.map_err(Failure::from)
}

async fn check_server(connector: &Connector, wanted: &TableFilter, snapshot: bool) -> Result<Vec<Diagnosis>, Error> {
    let endpoint = Endpoint::new(connector.postgres.clone());
    let publication = Publication::new(&connector.publication, &connector.events);
    let slot = connector.slot.name.as_str();
    let sql = endpoint.sql(Purpose::Validate).await?;
    let server = ServerState::inspect(&sql, slot, &publication.name).await?;

    let streams = connector.snapshot.streams();
    let walsender = match streams {
        true => Some(replication(&endpoint).await),
        false => None,
    };
    let opened = walsender.as_ref().map(|opened| opened.as_ref().map(drop));
    let problems = server.problems(slot, &publication, opened);
    let mut diagnoses = vec![describe(&endpoint, &server)];
    diagnoses.extend(endpoint.plain_text());
    diagnoses.extend(problems.iter().map(obstacle));
    diagnoses.extend(superuser_diagnosis(&server));
    diagnoses.extend(path_diagnosis(&sql, &server).await?);
    if problems.is_empty()
        && let Some(Err(error)) = walsender
    {
        let failure = Failure::from(error);
        diagnoses.extend(failure.causes.into_iter().map(|cause| Diagnosis {
            text: format!("the replication connection fails: {}", cause.text),
            ..cause
        }));
    }
    if streams {
        diagnoses.extend(slot_diagnoses(&server, slot));
        diagnoses.extend(version_diagnoses(&server, &connector.slot));
    } else {
        let text = "streaming is off, so a start needs neither a slot nor a publication";
        diagnoses.push(Diagnosis::good(text));
    }
    let tables = captured(&sql, wanted).await?;
    if let Some(missing) = diagnoses.iter_mut().find(|diagnosis| diagnosis.kind == Some(MISSING)) {
        let identities = identities(&unidentified(&sql, &tables).await?);
        missing.fix = creation(&publication, &tables, identities).map(Box::new);
    }
    let every_table: TableFilter = std::sync::Arc::new(|_, _| true);
    let known: Vec<TableName> = listed(&sql, &every_table)
        .await?
        .into_iter()
        .map(|table| table.name)
        .collect();
    diagnoses.push(table_diagnosis(&tables, &connector.filters, &known));
    diagnoses.extend(list_diagnoses(&tables, &connector.filters, &known));
    diagnoses.extend(topic_diagnoses(&tables, connector));
    diagnoses.extend(column_diagnoses(&sql, connector, &tables).await?);
    diagnoses.extend(guardrail_diagnosis(tables.len(), connector.streaming.max_tables));
    if streams {
        diagnoses.extend(publication_diagnoses(&sql, &server, &publication, wanted, &tables).await?);
        diagnoses.extend(signal_table::remark(&sql, connector).await?);
        diagnoses.extend(heartbeat::try_query(connector, &endpoint).await?);
    }
    if snapshot {
        diagnoses.extend(rows_diagnoses(&sql, &server, connector, &tables).await?);
    } else if !connector.post_processors.is_empty() {
        diagnoses.extend(
            unreadable_of(&sql, connector, &tables)
                .await?
                .as_ref()
                .map(reselect_diagnosis),
        );
    }
    Ok(diagnoses)
}

/// What would keep a snapshot that is asked for later from reading the wanted tables.
///
/// # Errors
/// The server cannot be reached or asked.
pub async fn later_snapshot(connector: &Connector, wanted: TableFilter) -> Result<Option<Diagnosis>, Failure> {
    let look = async {
        let sql = Endpoint::new(connector.postgres.clone()).sql(Purpose::Validate).await?;
        let tables = captured(&sql, &wanted).await?;
        unreadable_of(&sql, connector, &tables).await
    };
    let problem: Option<SetupProblem> = look.await.map_err(|error: Error| Failure::from(error))?;
    Ok(problem.as_ref().map(later_diagnosis))
}

async fn unreadable_of(sql: &Sql, connector: &Connector, tables: &[Captured]) -> Result<Option<SetupProblem>, Error> {
    let oids = tables.iter().map(|table| table.oid);
    unreadable(sql, oids, &ReadColumns::new(connector)).await
}

/// Opens a replication connection. Some poolers open an ordinary one instead, and only refuse the first command.
async fn replication(endpoint: &Endpoint) -> Result<Wire, Error> {
    let mut wire = endpoint.replication().await?;
    identify_system(&mut wire).await?;
    Ok(wire)
}

/// What a superuser may do, everybody may do who can make the connector run SQL.
fn superuser_diagnosis(server: &ServerState) -> Option<Diagnosis> {
    let text = server.superuser_warning()?;
    Some(Diagnosis::warning(Kind::PropertyDoubtful, text).with_hint(
        "connect as a role that has REPLICATION and SELECT on the captured tables, and nothing else: `walferry init` writes the SQL",
    ))
}

/// SQL that the user wrote finds names along the role's own `search_path`.
async fn path_diagnosis(sql: &Sql, server: &ServerState) -> Result<Option<Diagnosis>, Error> {
    const DOING: &str = "reading who may create objects in the schemas of the search_path";
    let query = format!(
        "SELECT n.nspname::text, r.rolname::text
         FROM pg_catalog.pg_namespace n
         CROSS JOIN LATERAL pg_catalog.aclexplode(COALESCE(n.nspacl, pg_catalog.acldefault('n', n.nspowner))) a
         LEFT JOIN pg_catalog.pg_roles r ON r.oid = a.grantee
         WHERE (SELECT {} IS NOT NULL) AND n.nspname = ANY (pg_catalog.current_schemas(false)) AND a.privilege_type = 'CREATE'
           AND (a.grantee = 0 OR NOT r.rolsuper AND r.rolname <> current_user AND r.rolname <> 'pg_database_owner')
         ORDER BY a.grantee <> 0, 1, 2 LIMIT 1",
        sql.own_path()
    );
    let rows = sql.rows(DOING, &query, &[]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let read = || -> Result<(String, Option<String>), tokio_postgres::Error> { Ok((row.try_get(0)?, row.try_get(1)?)) };
    let (schema, creator) = read().map_err(|error| Error::sql(DOING, error))?;
    let who = creator
        .as_ref()
        .map_or("every role".to_owned(), |role| format!("role {role:?}"));
    let text = format!(
        "the search_path of role {:?} has schema {schema:?}, in which {who} may create objects: names without a schema in SQL of the \
         configuration or of a signal may lead to them",
        server.role
    );
    let from = creator.as_deref().map_or("PUBLIC".to_owned(), identifier);
    let hint = format!(
        "REVOKE CREATE ON SCHEMA {} FROM {from}; or write names with their schemas in SELECTs, conditions and heartbeat queries, and run: ALTER \
         ROLE {} SET search_path = pg_catalog;",
        identifier(&schema),
        identifier(&server.role)
    );
    Ok(Some(Diagnosis::warning(Kind::PropertyDoubtful, text).with_hint(hint)))
}

/// What creates the publication for the captured tables. On a standby it is for the primary, so nobody can run it here.
fn creation(publication: &Publication, tables: &[Captured], before: Vec<String>) -> Option<Fix> {
    let tables: Vec<TableName> = tables
        .iter()
        .filter(|table| table.permanent)
        .map(|table| table.name.clone())
        .collect();
    if tables.is_empty() || publication.mode != PublicationAutocreate::Disabled {
        return None;
    }
    let mut publication = publication.clone();
    publication.mode = PublicationAutocreate::Filtered;
    Some(Fix {
        statements: before.into_iter().chain([publication.create(&tables)]).collect(),
        needs: Needs::Owner,
    })
}

/// What tables need before they are published: once they are, the application could not update them.
pub(super) fn identities(tables: &[TableName]) -> Vec<String> {
    let statement = |table: &TableName| format!("ALTER TABLE {} REPLICA IDENTITY FULL", table.quoted());
    tables.iter().map(statement).collect()
}

/// Post-processors read rows of captured tables even if no snapshot does.
fn reselect_diagnosis(problem: &SetupProblem) -> Diagnosis {
    let text = format!(
        "the post-processors cannot read columns again: {}",
        problem.cause().text
    );
    Diagnosis::warning(Kind::PrivilegeMissing, text).with_hint(problem.hint())
}

/// A start reads no rows, but somebody may ask for them later.
fn later_diagnosis(problem: &SetupProblem) -> Diagnosis {
    let text = format!(
        "a snapshot that is asked for later would fail: {}",
        problem.cause().text
    );
    // With the remedy of the obstacle that it would be.
    Diagnosis {
        severity: Severity::Note,
        text,
        ..problem.cause()
    }
}

/// What the publication lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationPlan {
    /// Whether it exists.
    pub exists: bool,
    /// Statements that add the captured tables. Empty if it has them.
    pub statements: Vec<String>,
}

/// The statements that make the publication include the captured tables.
///
/// # Errors
/// The server cannot be reached or asked, or no table is captured.
pub async fn publication_plan(connector: &Connector, wanted: TableFilter) -> Result<PublicationPlan, Failure> {
    let plan = async {
        let sql = Endpoint::new(connector.postgres.clone()).sql(Purpose::Validate).await?;
        let mut publication = Publication::new(&connector.publication, &connector.events);
        let server = ServerState::inspect(&sql, connector.slot.name.as_str(), &publication.name).await?;
        let exists = server.publication.is_some();
        let tables = captured(&sql, &wanted).await?;
        let makes_none = matches!(
            publication.mode,
            PublicationAutocreate::Disabled | PublicationAutocreate::NoTables
        );
        if !exists && makes_none && !tables.is_empty() {
            publication.mode = PublicationAutocreate::Filtered;
        }
        let statements = match server.publication {
            // One for all tables has them, whatever the mode says.
            Some(true) => Vec::new(),
            // A start would not change it.
            Some(false) if publication.mode != PublicationAutocreate::Filtered => {
                let members = publication::members(&sql, &publication.name, server.version).await?;
                let missing = tables.iter().filter(|table| !members.covers(&table.name));
                let missing: Vec<String> = missing.map(|table| table.name.quoted()).collect();
                let add = format!(
                    "ALTER PUBLICATION {} ADD TABLE {}",
                    identifier(&publication.name),
                    missing.join(", ")
                );
                Some(add).filter(|_| !missing.is_empty()).into_iter().collect()
            }
            _ => publication::plan(&sql, &publication, &server, &wanted).await?,
        };
        Ok::<_, Error>(PublicationPlan { exists, statements })
    };
    plan.await.map_err(Failure::from)
}

/// The tables of the database that pass the filters, as SCHEMA.TABLE, in the order of their names.
///
/// # Errors
/// The server cannot be reached or asked.
pub async fn captured_tables(connector: &Connector, wanted: TableFilter) -> Result<Vec<String>, Failure> {
    let list = async {
        let sql = Endpoint::new(connector.postgres.clone()).sql(Purpose::Validate).await?;
        listed(&sql, &wanted).await
    };
    let mut names: Vec<String> = list.await?.iter().map(|table| table.name.dotted()).collect();
    names.sort();
    Ok(names)
}

fn obstacle(problem: &SetupProblem) -> Diagnosis {
    problem.cause()
}

fn describe(endpoint: &Endpoint, server: &ServerState) -> Diagnosis {
    let kind = if server.standby { "standby" } else { "primary" };
    let version = server.version / 10_000;
    Diagnosis::good(format!(
        "connected to Postgres {version} ({kind}) at {} as {:?}",
        endpoint.address(),
        server.role
    ))
}

fn slot_diagnoses(server: &ServerState, slot: &str) -> Vec<Diagnosis> {
    let mut diagnoses = Vec::new();
    match server.slot() {
        // What a start does then depends on the stored offset.
        None => {}
        Some(found) if !found.alive => {
            let Invalidation { why, prevention } = Invalidation::of(server.invalidation());
            diagnoses.push(
                Diagnosis::error(Kind::SlotLost, format!("replication slot {slot:?} is lost: {why}")).with_hint(
                    format!(
                        "to read all rows again, set `snapshot.mode` to \"when_needed\" and run: SELECT \
                         pg_drop_replication_slot('{slot}'); to prevent this in future, {prevention}"
                    ),
                ),
            );
        }
        Some(found) => {
            let behind = found
                .confirmed
                .map_or(0, |confirmed| server.wal_end().0.saturating_sub(confirmed.0));
            let text = format!("replication slot {slot:?} exists and is {behind} bytes behind the server");
            diagnoses.push(match found.active_pid {
                None => Diagnosis::good(text),
                Some(pid) => Diagnosis::warning(
                    Kind::SlotInUse,
                    format!("{text}; process {pid} is reading it, and a start would wait until it has ended"),
                )
                .with_hint("stop this process (perhaps Debezium) before the start"),
            });
        }
    }
    let (slots, senders) = (server.max_slots - server.slots, server.max_senders - server.senders);
    let text = format!(
        "{slots} of {} replication slots and {senders} of {} walsenders are free",
        server.max_slots, server.max_senders
    );
    diagnoses.push(if senders < 1 {
        Diagnosis::warning(Kind::TooManyConnections, text)
            .with_hint("ALTER SYSTEM SET max_wal_senders = …; and restart the server, or end a replication connection")
    } else {
        Diagnosis::good(text)
    });
    if server.keep_mb.is_some_and(|limit| limit < 0) {
        diagnoses.push(
            Diagnosis::warning(
                Kind::WalKept,
                "nothing limits the WAL that the server keeps for a slot: while the connector is stopped, the server's disk may fill up",
            )
            .with_hint("ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();")
            .with_fix(
                vec![
                    "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'".to_owned(),
                    "SELECT pg_reload_conf()".to_owned(),
                ],
                Needs::Superuser,
            ),
        );
    }
    diagnoses
}

/// Remarks on slot properties that the server's version does not support.
fn version_diagnoses(server: &ServerState, slot: &SlotSection) -> Vec<Diagnosis> {
    let mut diagnoses = Vec::new();
    let version = server.version / 10_000;
    if slot.failover && !server.has_failover() {
        let why = if server.standby {
            "a standby".to_owned()
        } else {
            format!("Postgres {version}")
        };
        diagnoses.push(
            Diagnosis::warning(
                Kind::SlotMode,
                format!("`slot.failover` has no effect on {why}: after a failover, the slot does not exist"),
            )
            .with_hint("it requires a primary with Postgres 17 or later; remove it here"),
        );
    }
    if slot.failover && server.lacks_failover() {
        let text = format!(
            "replication slot {:?} was created without failover, and `slot.failover` has an effect only when a slot is created: after a \
             failover, the slot does not exist",
            slot.name.as_str()
        );
        // The command needs a replication connection.
        diagnoses.push(Diagnosis::warning(Kind::SlotMode, text).with_hint(format!(
            "run, while nothing reads the slot: psql {} -c 'ALTER_REPLICATION_SLOT {} (FAILOVER true)'",
            shell_word(&format!("dbname={} replication=database", conninfo(&server.database))),
            slot.name.as_str()
        )));
    }
    if slot.stream_params.contains_key("origin") && server.version < 160_000 {
        diagnoses.push(
            Diagnosis::error(
                Kind::StreamOption,
                format!("`slot.stream.params` contains `origin`, which Postgres {version} does not support"),
            )
            .with_hint("remove it, or upgrade the server to 16 or later"),
        );
    }
    if let Some(seconds @ 1..) = server.idle_slot_s {
        diagnoses.push(
            Diagnosis::warning(Kind::SlotMode,
                format!("the server invalidates slots that have not been read for {seconds} s: a connector that is stopped for longer \
                         loses its slot"),
            )
            .with_hint("ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf();")
            .with_fix(
                vec![
                    "ALTER SYSTEM SET idle_replication_slot_timeout = 0".to_owned(),
                    "SELECT pg_reload_conf()".to_owned(),
                ],
                Needs::Superuser,
            ),
        );
    }
    diagnoses
}

fn guardrail_diagnosis(tables: usize, limit: Option<(u32, GuardrailAction)>) -> Option<Diagnosis> {
    let (most, action) = limit.filter(|(most, _)| tables > *most as usize)?;
    let tell = match action {
        GuardrailAction::Warn => Diagnosis::warning,
        GuardrailAction::Fail => Diagnosis::error,
    };
    let text = format!("{tables} tables are captured, but `guardrail.collections.max` is {most}");
    Some(tell(Kind::TooManyTables, text).with_hint("include fewer tables in `table.include.list`, or raise the limit"))
}

fn table_diagnosis(tables: &[Captured], filters: &FilterSection, known: &[TableName]) -> Diagnosis {
    match tables.len() {
        0 => match filters.excludes_every_table() {
            // A connector that only sends messages of an outbox is configured like this.
            Some(property) => Diagnosis::good(format!(
                "`{property}` excludes every table, so only messages of pg_logical_emit_message are sent"
            )),
            None => {
                let list = filters.list_of_tables();
                let patterns: Vec<_> = filters
                    .table_patterns()
                    .take(3)
                    .map(|pattern| quoted(pattern.expression.as_str()))
                    .collect();
                let patterns = match patterns.is_empty() {
                    true => String::new(),
                    false => format!("{} of ", patterns.join(", ")),
                };
                Diagnosis::warning(
                    Kind::NoCapturedTables,
                    format!("`{list}` matches no table in the database, so no rows are captured"),
                )
                .with_hint(format!(
                    "{}compare {patterns}`{list}` with the tables in the database; patterns match SCHEMA.TABLE",
                    filters
                        .table_patterns()
                        .find_map(|pattern| meant(pattern.expression.as_str(), known))
                        .unwrap_or_default()
                ))
            }
        },
        1 => Diagnosis::good(format!("1 table is captured: {}", names(tables.iter()))),
        count => Diagnosis::good(format!("{count} tables are captured: {}", names(tables.iter()))),
    }
}

/// The table that an expression most likely means, as the beginning of a hint: one of the name that it has without or with another schema, or
/// one whose name is nearly the same.
fn meant(expression: &str, known: &[TableName]) -> Option<String> {
    let plain = expression.replace("\\.", ".");
    let is_plain = plain
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'));
    if !is_plain {
        return None;
    }
    let (schema, name) = plain
        .rsplit_once('.')
        .map_or((None, plain.as_str()), |(schema, name)| (Some(schema), name));
    let is_near = |table: &&TableName| near_value(name, &[table.name.as_str()]).is_some();
    let in_schema = |table: &&TableName| schema.is_none_or(|schema| table.schema == schema);
    let table = known
        .iter()
        .find(|table| table.name == name)
        .or_else(|| known.iter().filter(in_schema).find(is_near))?;
    Some(format!("did you mean {}? Else ", table.printable()))
}

/// Expressions in the list of tables that match no table, while others do.
fn list_diagnoses(tables: &[Captured], filters: &FilterSection, known: &[TableName]) -> Vec<Diagnosis> {
    let names: Vec<String> = tables.iter().map(|table| table.name.dotted()).collect();
    let is_vain = |pattern: &ColumnPattern<'_>| {
        !names.is_empty() && !limited(|| names.iter().any(|name| pattern.expression.matches(name))).unwrap_or(true)
    };
    let diagnosis = |pattern: ColumnPattern<'_>| {
        let ColumnPattern {
            property,
            number,
            expression,
        } = pattern;
        let expression_text = quoted(expression.as_str());
        let text = format!("`{property}`: expression {number}, {expression_text}, matches no captured table");
        let rule = "compare it with the tables in the database; patterns match SCHEMA.TABLE and are separated by commas, and views and foreign \
                    tables are never captured";
        let hint = format!("{}{rule}", meant(expression.as_str(), known).unwrap_or_default());
        Diagnosis::warning(Kind::NoCapturedTables, text).with_hint(hint)
    };
    filters.table_patterns().filter(is_vain).map(diagnosis).collect()
}

/// Tables whose topics a broker takes for the same, since their names differ only in dots and underscores.
fn topic_diagnoses(tables: &[Captured], connector: &Connector) -> Vec<Diagnosis> {
    // What renames topics may keep them apart.
    if !connector.plugins.transforms.is_empty() || connector.topics.rewrite.is_some() {
        return Vec::new();
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let topic = |table: &Captured| -> String {
        let name = table.name.dotted();
        name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect()
    };
    let mut first: HashMap<String, (&Captured, String)> = HashMap::new();
    let mut diagnoses = Vec::new();
    for table in tables {
        let name = topic(table);
        let folded = name.replace('.', "_");
        match first.get(&folded) {
            Some((other, known)) if *known != name => {
                let (prefix, delimiter) = (connector.topics.prefix.as_str(), connector.topics.delimiter.as_str());
                let text = format!(
                    "the topics of tables {} and {} collide: the names {prefix}{delimiter}{known} and {prefix}{delimiter}{name} differ only in \
                     \".\" and \"_\", so the brokers refuse the second",
                    other.name.quoted(),
                    table.name.quoted()
                );
                let hint =
                    "give one of them another name: rename the table, or use a transform such as RegexRouter for it";
                diagnoses.push(Diagnosis::error(Kind::TopicNotCreated, text).with_hint(hint));
            }
            Some(_) => {}
            None => drop(first.insert(folded, (table, name))),
        }
    }
    diagnoses
}

/// Column expressions that match no column. If a mask is misspelt, the column is sent unmasked.
async fn column_diagnoses(sql: &Sql, connector: &Connector, tables: &[Captured]) -> Result<Vec<Diagnosis>, Error> {
    let patterns = || connector.filters.column_patterns().chain(connector.columns.patterns());
    if tables.is_empty() || patterns().next().is_none() {
        return Ok(Vec::new());
    }
    let columns = columns_of(sql, tables).await?;
    let mut diagnoses = Vec::new();
    for pattern in patterns() {
        // An expression that takes too many steps is reported when it meets a row.
        let matches = limited(|| columns.iter().any(|column| pattern.expression.matches(column))).unwrap_or(true);
        if !matches {
            diagnoses.push(unmatched(&pattern, &columns));
        }
    }
    Ok(diagnoses)
}

/// The diagnosis on an expression that matches no column.
fn unmatched(pattern: &ColumnPattern<'_>, columns: &[String]) -> Diagnosis {
    let ColumnPattern {
        property,
        number,
        expression,
    } = pattern;
    let expression_text = quoted(expression.as_str());
    let text = format!(
        "`{property}`: expression {number}, {expression_text}, matches no column of the captured tables, so it has no effect"
    );
    let ends = format!(".{}", expression.as_str());
    // People often write only the table, or leave the schema out.
    let meant = columns.iter().find(|column| column.ends_with(&ends));
    Diagnosis::warning(Kind::NoSuchColumn, text).with_hint(match meant {
        Some(column) => format!("write {column}: an expression must match the whole of SCHEMA.TABLE.COLUMN"),
        None => "compare it with the columns of the captured tables; an expression must match the whole of SCHEMA.TABLE.COLUMN"
            .to_owned(),
    })
}

/// The first few names.
fn names<'a>(tables: impl Iterator<Item = &'a Captured>) -> String {
    const MOST_LISTED: usize = 10;
    let mut names: Vec<String> = tables.map(|table| table.name.printable()).collect();
    let more = names.len().saturating_sub(MOST_LISTED);
    names.truncate(MOST_LISTED);
    let list = names.join(", ");
    if more > 0 {
        format!("{list} and {more} more")
    } else {
        list
    }
}

async fn publication_diagnoses(
    sql: &Sql,
    server: &ServerState,
    publication: &Publication,
    wanted: &TableFilter,
    tables: &[Captured],
) -> Result<Vec<Diagnosis>, Error> {
    let name = &publication.name;
    let mut diagnoses = Vec::new();
    let all_tables = match server.publication {
        Some(all_tables) => all_tables,
        None => publication.mode == PublicationAutocreate::AllTables,
    };
    if publication.mode != PublicationAutocreate::Disabled || server.publication.is_some() {
        match publication::plan(sql, publication, server, wanted).await {
            Ok(statements) if statements.is_empty() => {
                diagnoses.push(Diagnosis::good(format!("publication {name:?} exists")));
            }
            Ok(statements) => {
                let verb = if server.publication.is_some() {
                    "changed"
                } else {
                    "created"
                };
                // Who runs this by hand must not have the application's updates fail meanwhile.
                let mut by_hand = identities(&unidentified(sql, tables).await?);
                by_hand.extend(statements.iter().cloned());
                diagnoses.push(
                    Diagnosis::change(format!("publication {name:?} would be {verb}"))
                        .with_hint(format!("{};", by_hand.join("; "))),
                );
                let refused = privilege_diagnosis(server, publication, tables, &statements[0]);
                if let Some(mut refused) = refused.as_ref().map(obstacle) {
                    // All of them, and not only the first. Others may share the publication, so nothing is taken out of it here.
                    let drops = format!("ALTER PUBLICATION {} DROP ", identifier(name));
                    let wanted: Vec<String> = statements
                        .into_iter()
                        .filter(|statement| !statement.starts_with(&drops))
                        .collect();
                    let before = identities(&unidentified(sql, tables).await?);
                    refused.fix = refused.fix.filter(|_| !wanted.is_empty()).map(|mut fix| {
                        fix.statements = before.into_iter().chain(wanted).collect();
                        fix
                    });
                    diagnoses.push(refused);
                }
            }
            Err(Error::Problems(problems)) => diagnoses.extend(problems.iter().map(obstacle)),
            Err(error) => return Err(error),
        }
    }
    let everything: TableFilter = std::sync::Arc::new(|_, _| true);
    let published = if all_tables {
        captured(sql, &everything).await?
    } else if server.publication.is_some() && publication.mode != PublicationAutocreate::Filtered {
        let members = publication::members(sql, name, server.version).await?;
        let (published, missing): (Vec<_>, Vec<_>) =
            tables.iter().cloned().partition(|table| members.covers(&table.name));
        let before = identities(&unidentified(sql, &missing).await?);
        diagnoses.extend(missing_diagnosis(name, &missing, before));
        published
    } else {
        tables.to_vec()
    };
    diagnoses.extend(identity_diagnosis(name, &unidentified(sql, &published).await?));
    if server.version >= 180_000 {
        let stored = server.publishes_generated.unwrap_or_default();
        let unpublished = unpublished_identities(sql, stored).await?;
        let harmed = published.iter().filter(|table| unpublished.contains(&table.oid));
        diagnoses.extend(generated_diagnosis(name, &harmed.collect::<Vec<_>>()));
    }
    Ok(diagnoses)
}

/// Captured tables that the publication does not send.
fn missing_diagnosis(publication: &str, missing: &[Captured], before: Vec<String>) -> Option<Diagnosis> {
    if missing.is_empty() {
        return None;
    }
    let list: Vec<String> = missing.iter().map(|table| table.name.quoted()).collect();
    let text = format!(
        "publication {publication:?} does not include all captured tables; missing: {}",
        names(missing.iter())
    );
    let statement = format!(
        "ALTER PUBLICATION {} ADD TABLE {}",
        identifier(publication),
        list.join(", ")
    );
    // The identities come first: the application's updates go on all the time.
    let statements: Vec<String> = before.into_iter().chain([statement]).collect();
    Some(
        Diagnosis::warning(Kind::PublicationIncomplete, text)
            .with_hint(format!("{};", statements.join("; ")))
            .with_fix(statements, Needs::Owner),
    )
}

/// Why the server would refuse the statement that creates or alters the publication.
fn privilege_diagnosis(
    server: &ServerState,
    publication: &Publication,
    tables: &[Captured],
    statement: &str,
) -> Option<SetupProblem> {
    let may_create = server.may_create || server.publication.is_some();
    let allowed = match publication.mode {
        PublicationAutocreate::AllTables => false,
        PublicationAutocreate::Filtered => may_create && tables.iter().all(|table| table.owned),
        PublicationAutocreate::NoTables | PublicationAutocreate::Disabled => may_create,
    };
    let reason = "with its current privileges".to_owned();
    (!server.superuser && !allowed).then(|| publication::not_allowed(publication, server, tables, statement, reason))
}

/// Tables that the application can no longer update once they are published.
fn identity_diagnosis(publication: &str, harmed: &[TableName]) -> Option<Diagnosis> {
    const MOST_LISTED: usize = 10;
    let first = harmed.first()?;
    let mut names: Vec<String> = harmed.iter().take(MOST_LISTED).map(TableName::dotted).collect();
    if let Some(more @ 1..) = harmed.len().checked_sub(MOST_LISTED)
        && let Some(last) = names.last_mut()
    {
        last.push_str(&format!(" and {more} more"));
    }
    let text = format!(
        "UPDATE and DELETE fail on tables of publication {publication:?} that have no primary key and no other replica identity: {}",
        names.join(", ")
    );
    Some(
        Diagnosis::warning(Kind::ReplicaIdentity, text)
            .with_hint(format!(
                "for each: ALTER TABLE {} REPLICA IDENTITY FULL;",
                first.quoted()
            ))
            .with_fix(identities(harmed), Needs::Owner),
    )
}

/// The same for replica identities with columns that are not published (Postgres 18 and later).
fn generated_diagnosis(publication: &str, harmed: &[&Captured]) -> Option<Diagnosis> {
    let first = harmed.first()?;
    let text = format!(
        "UPDATE and DELETE fail on tables of publication {publication:?} whose replica identity contains generated columns that it does \
         not publish: {}",
        names(harmed.iter().copied())
    );
    Some(Diagnosis::warning(Kind::ReplicaIdentity, text).with_hint(format!(
        "ALTER PUBLICATION {} SET (publish_generated_columns = stored); virtual columns are never sent: for each of these tables, \
         ALTER TABLE {} REPLICA IDENTITY DEFAULT;",
        identifier(publication),
        first.name.quoted()
    )))
}

/// What prevents a snapshot from reading all rows.
async fn rows_diagnoses(
    sql: &Sql,
    server: &ServerState,
    connector: &Connector,
    tables: &[Captured],
) -> Result<Vec<Diagnosis>, Error> {
    let section = &connector.snapshot;
    let mut diagnoses = Vec::new();
    // A configured SELECT may read other tables, for example a view.
    let is_read = |table: &&Captured| {
        let dotted = table.name.dotted();
        !section.select_overrides.contains_key(&dotted)
            && (section.include.is_empty() || section.include.matches(&dotted))
    };
    let oids = tables.iter().filter(is_read).map(|table| table.oid);
    let problem = unreadable(sql, oids, &ReadColumns::new(connector)).await?;
    diagnoses.extend(problem.as_ref().map(obstacle));
    let hidden = tables.iter().filter(|table| table.row_security).filter(is_read);
    let hidden: Vec<TableName> = hidden.map(|table| table.name.clone()).collect();
    if !hidden.is_empty() {
        diagnoses.push(obstacle(&SetupProblem::RowSecurity {
            role: server.role.clone(),
            tables: hidden,
        }));
    }
    if let Err(error) = snapshot::check_overrides(sql, &section.select_overrides).await {
        let failure = Failure::from(error);
        diagnoses.extend(failure.causes);
    }
    Ok(diagnoses)
}
