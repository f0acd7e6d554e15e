//! The publication, created or altered as `publication.autocreate.mode` says, before the slot is created.

mod differences;
pub(crate) mod identity;
mod inspect;

use std::collections::HashSet;
use std::time::Duration;

use tokio_postgres::types::Type;
use tracing::{info, warn};
use walferry_config::connector::{EventSection, PublicationAutocreate, PublicationSection, UncertainPublication};
use walferry_engine::source::TableFilter;

use crate::catalog::tables::{Captured, TableName, captured, listed};
use crate::connection::{Endpoint, Sql};
use crate::error::Error;
use crate::quote::identifier;
use crate::setup::inspect::ServerState;
use crate::setup::problem::SetupProblem;
use crate::stream::waits;

pub(crate) use inspect::inspect;

/// The publication as the connector needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Publication {
    /// `publication.name`. Always quoted in SQL, so that it is created with the name under which it is looked up.
    pub(crate) name: String,
    /// `publication.autocreate.mode`.
    pub(crate) mode: PublicationAutocreate,
    /// `publish.via.partition.root`, for a publication that is created here.
    via_partition_root: bool,
    /// Operations to publish, if `skipped.operations` is set, for a publication that is created here.
    publish: Option<String>,
    /// Operations that the connector does not capture, as letters (`i`, `u`, `d`, `t`).
    skipped: String,
    /// Whether a difference that cannot be decided is a gap: `walferry.publication.uncertain`.
    uncertain_is_gap: bool,
}

impl Publication {
    pub(crate) fn new(section: &PublicationSection, events: &EventSection) -> Self {
        const OPERATIONS: [(char, &str); 4] = [('c', "insert"), ('u', "update"), ('d', "delete"), ('t', "truncate")];
        let skipped = &events.skipped_operations;
        let published: Vec<&str> = OPERATIONS
            .iter()
            .filter(|(letter, _)| !skipped.contains(*letter))
            .map(|(_, name)| *name)
            .collect();
        Self {
            name: section.name.clone(),
            mode: section.autocreate,
            via_partition_root: section.via_partition_root,
            // Debezium restricts the operations only if the property is set, although its default skips truncates.
            publish: (events.skipped_operations_set && published.len() < OPERATIONS.len())
                .then(|| published.join(", ")),
            skipped: OPERATIONS
                .iter()
                .filter(|(letter, _)| skipped.contains(*letter))
                .map(|(_, name)| &name[..1])
                .collect(),
            uncertain_is_gap: section.uncertain == UncertainPublication::Gap,
        }
    }

    /// Whether the connector captures an operation: `i`, `u`, `d` or `t`.
    pub(crate) fn captures(&self, operation: char) -> bool {
        !self.skipped.contains(operation)
    }

    /// The statement that creates it. With `filtered`, it includes these tables.
    pub(crate) fn create(&self, tables: &[TableName]) -> String {
        let mut sql = self.create_empty();
        match self.mode {
            PublicationAutocreate::AllTables => sql.push_str(" FOR ALL TABLES"),
            PublicationAutocreate::Filtered => {
                sql.push_str(" FOR TABLE ");
                sql.push_str(&list(tables));
            }
            PublicationAutocreate::NoTables | PublicationAutocreate::Disabled => {}
        }
        let mut options = Vec::new();
        if self.via_partition_root {
            options.push("publish_via_partition_root = true".to_owned());
        }
        if let Some(publish) = &self.publish {
            options.push(format!("publish = '{publish}'"));
        }
        if !options.is_empty() {
            sql.push_str(&format!(" WITH ({})", options.join(", ")));
        }
        sql
    }

    pub(crate) fn create_empty(&self) -> String {
        format!("CREATE PUBLICATION {}", identifier(&self.name))
    }

    /// The statements that make it include exactly the wanted tables. Tables are added and dropped one by one. Setting
    /// the whole list would drop the row filters and column lists of the tables that stay.
    fn alter(&self, missing: &[TableName], surplus: &[TableName]) -> Vec<String> {
        let change = |verb: &str, tables: &[TableName]| {
            (!tables.is_empty()).then(|| {
                format!(
                    "ALTER PUBLICATION {} {verb} TABLE {}",
                    identifier(&self.name),
                    list(tables)
                )
            })
        };
        change("ADD", missing)
            .into_iter()
            .chain(change("DROP", surplus))
            .collect()
    }
}

fn list(tables: &[TableName]) -> String {
    let names: Vec<String> = tables.iter().map(TableName::quoted).collect();
    names.join(", ")
}

/// The statements that bring the publication to the state that the mode requires. Empty if it is in that state.
pub(crate) async fn plan(
    sql: &Sql,
    publication: &Publication,
    server: &ServerState,
    wanted: &TableFilter,
) -> Result<Vec<String>, Error> {
    let exists = server.publication.is_some();
    let filtered = publication.mode == PublicationAutocreate::Filtered;
    if exists && !filtered {
        return Ok(Vec::new());
    }
    if !filtered {
        return Ok(vec![publication.create(&[])]);
    }
    let tables: Vec<TableName> = listed(sql, wanted)
        .await?
        .into_iter()
        .filter(|table| table.permanent)
        .map(|table| table.name)
        .collect();
    if tables.is_empty() {
        return Err(Error::Problems(vec![SetupProblem::NoCapturedTable {
            publication: publication.name.clone(),
        }]));
    }
    if !exists {
        return Ok(vec![publication.create(&tables)]);
    }
    let members = members(sql, &publication.name, server.version).await?;
    let missing: Vec<TableName> = tables.iter().filter(|table| !members.covers(table)).cloned().collect();
    let wanted: HashSet<&TableName> = tables.iter().collect();
    let mut surplus: Vec<TableName> = members
        .tables
        .iter()
        .filter(|table| !wanted.contains(table))
        .cloned()
        .collect();
    surplus.sort_by(|a, b| (&a.schema, &a.name).cmp(&(&b.schema, &b.name)));
    Ok(publication.alter(&missing, &surplus))
}

/// Creates or alters the publication as the mode requires.
pub(crate) async fn ensure(
    endpoint: &Endpoint,
    sql: &Sql,
    publication: &Publication,
    server: &ServerState,
    wanted: &TableFilter,
    timeout: Duration,
) -> Result<(), Error> {
    let statements = plan(sql, publication, server, wanted).await?;
    if statements.is_empty() {
        return Ok(());
    }
    if server.publication.is_none() && server.slot().is_some() {
        warn!(
            publication.name = %publication.name,
            "the slot is older than the publication; changes written before the publication was created cannot be decoded"
        );
    }
    // Only somebody's lock can make this slow. It is not worth waiting as long as for an ordinary query.
    sql.execute(DOING, &format!("SET statement_timeout = {}", timeout.as_millis()))
        .await?;
    for statement in &statements {
        info!(statement = %statement, "changing the publication");
        if let Err(error) = waits::execute(endpoint, sql, DOING, statement).await {
            return Err(refusal(sql, publication, server, wanted, statement, error).await);
        }
    }
    sql.execute(DOING, "RESET statement_timeout").await
}

const DOING: &str = "changing the publication";

/// The missing privileges, if a statement was refused for lack of them.
async fn refusal(
    sql: &Sql,
    publication: &Publication,
    server: &ServerState,
    wanted: &TableFilter,
    statement: &str,
    error: Error,
) -> Error {
    let Some(refused) = error.server_error().filter(|refused| refused.code == "42501") else {
        return error;
    };
    let refusal = refused.message.clone();
    match captured(sql, wanted).await {
        Ok(tables) => Error::Problems(vec![not_allowed(publication, server, &tables, statement, refusal)]),
        Err(_) => error,
    }
}

/// The privileges that a role lacks for a statement of the publication.
pub(crate) fn not_allowed(
    publication: &Publication,
    server: &ServerState,
    tables: &[Captured],
    statement: &str,
    refusal: String,
) -> SetupProblem {
    let mut owners: Vec<String> = match publication.mode {
        PublicationAutocreate::Filtered => tables
            .iter()
            .filter(|table| !table.owned)
            .filter_map(|table| table.owner.clone())
            .collect(),
        _ => Vec::new(),
    };
    owners.sort();
    owners.dedup();
    SetupProblem::PublicationNotAllowed {
        role: server.role.clone(),
        statement: statement.to_owned(),
        refusal,
        owners,
        superuser: publication.mode == PublicationAutocreate::AllTables,
        no_create_in: (!server.may_create && server.publication.is_none()).then(|| server.database.clone()),
    }
}

/// The members of a publication.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) tables: HashSet<TableName>,
    /// Schemas that it includes as a whole (Postgres 15 and later).
    pub(crate) schemas: HashSet<String>,
}

impl Members {
    pub(crate) fn covers(&self, table: &TableName) -> bool {
        self.tables.contains(table) || self.schemas.contains(&table.schema)
    }
}

/// The members of a publication as they were added: partitions are not expanded.
pub(crate) async fn members(sql: &Sql, publication: &str, version: u32) -> Result<Members, Error> {
    const DOING: &str = "reading the publication";
    const TABLES: &str = "
        SELECT n.nspname::text, c.relname::text
        FROM pg_catalog.pg_publication p
        JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
        JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE p.pubname = $1";
    const SCHEMAS: &str = "
        SELECT n.nspname::text
        FROM pg_catalog.pg_publication p
        JOIN pg_catalog.pg_publication_namespace r ON r.pnpubid = p.oid
        JOIN pg_catalog.pg_namespace n ON n.oid = r.pnnspid
        WHERE p.pubname = $1";
    let column = |row: &tokio_postgres::Row, index: usize| -> Result<String, Error> {
        row.try_get(index).map_err(|error| Error::sql(DOING, error))
    };
    let mut members = Members::default();
    for row in sql.rows(DOING, TABLES, &[(&publication, Type::TEXT)]).await? {
        members.tables.insert(TableName {
            schema: column(&row, 0)?,
            name: column(&row, 1)?,
        });
    }
    if version >= 150_000 {
        for row in sql.rows(DOING, SCHEMAS, &[(&publication, Type::TEXT)]).await? {
            members.schemas.insert(column(&row, 0)?);
        }
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publication(mode: PublicationAutocreate) -> Publication {
        Publication {
            name: "Dbz \"x\"".to_owned(),
            mode,
            via_partition_root: false,
            publish: None,
            skipped: String::new(),
            uncertain_is_gap: false,
        }
    }

    fn table(schema: &str, name: &str) -> TableName {
        TableName {
            schema: schema.to_owned(),
            name: name.to_owned(),
        }
    }

    #[test]
    fn publication_is_created_as_the_mode_says() {
        let tables = [table("public", "Order"), table("s", "t")];
        let cases = [
            (
                PublicationAutocreate::AllTables,
                "CREATE PUBLICATION \"Dbz \"\"x\"\"\" FOR ALL TABLES",
            ),
            (PublicationAutocreate::NoTables, "CREATE PUBLICATION \"Dbz \"\"x\"\"\""),
            (
                PublicationAutocreate::Filtered,
                "CREATE PUBLICATION \"Dbz \"\"x\"\"\" FOR TABLE \"public\".\"Order\", \"s\".\"t\"",
            ),
        ];
        for (mode, expected) in cases {
            assert_eq!(publication(mode).create(&tables), expected);
            let narrowed = Publication {
                via_partition_root: true,
                publish: Some("insert, delete".to_owned()),
                ..publication(mode)
            };
            assert_eq!(
                narrowed.create(&tables),
                format!("{expected} WITH (publish_via_partition_root = true, publish = 'insert, delete')")
            );
        }
    }

    #[test]
    fn only_the_difference_is_altered() {
        let publication = publication(PublicationAutocreate::Filtered);
        assert_eq!(publication.alter(&[], &[]), Vec::<String>::new());
        assert_eq!(
            publication.alter(&[table("a", "new")], &[table("a", "old"), table("b", "old")]),
            [
                "ALTER PUBLICATION \"Dbz \"\"x\"\"\" ADD TABLE \"a\".\"new\"",
                "ALTER PUBLICATION \"Dbz \"\"x\"\"\" DROP TABLE \"a\".\"old\", \"b\".\"old\"",
            ]
        );
    }

    #[test]
    fn schema_in_a_publication_covers_its_tables() {
        let members = Members {
            tables: HashSet::from([table("a", "t")]),
            schemas: HashSet::from(["b".to_owned()]),
        };
        assert!(members.covers(&table("a", "t")) && members.covers(&table("b", "any")));
        assert!(!members.covers(&table("a", "u")));
    }
}
