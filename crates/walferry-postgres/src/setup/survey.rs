//! `walferry init`: what a database has, and the SQL that prepares it for a new connector. Runs nothing.

use serde::Deserialize;
use tokio_postgres::types::Type;
use walferry_config::connector::PostgresSection;
use walferry_diagnosis::printed::one_line;
use walferry_engine::Failure;

use crate::catalog::tables::TableName;
use crate::connection::{Endpoint, Purpose};
use crate::error::Error;
use crate::quote::{identifier, qualified};

/// The columns that Debezium's EventRouter looks for by default.
pub(crate) const OUTBOX_COLUMNS: [&str; 5] = ["id", "aggregatetype", "aggregateid", "type", "payload"];

/// What a database has.
#[derive(Debug, Clone, Deserialize)]
pub struct DatabaseSurvey {
    /// `server_version_num`.
    pub version: u32,
    /// `wal_level`.
    pub wal_level: String,
    /// Whether the server is a standby.
    pub standby: bool,
    /// Whether the role for the connector exists.
    pub has_role: bool,
    /// Whether it may replicate.
    pub role_replicates: bool,
    /// Whether a publication of the wanted name exists.
    pub has_publication: bool,
    /// Whether a slot of the wanted name exists.
    pub has_slot: bool,
    /// Whether the server has the roles of Amazon RDS.
    pub rds: bool,
    /// Whether nothing limits the WAL that the server keeps for slots.
    pub keeps_all_wal: bool,
    /// Permanent tables of users, without partitions, in the order of their names.
    pub tables: Vec<Table>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Table {
    /// Its schema.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// Of the table and its partitions, those whose UPDATE and DELETE fail once it is published.
    pub unidentified: Vec<TableName>,
    /// Whether it has partitions.
    pub partitioned: bool,
    /// About how many rows it has, as of the last ANALYZE; `None` before the first one.
    pub rows: Option<i64>,
    /// Those of [`OUTBOX_COLUMNS`] that it lacks.
    pub lacks: Vec<String>,
    /// Whether it has the column `created_at` with a time, and `headers` with JSON, as `walferry outbox create` makes them.
    pub has_created_at: bool,
    /// See `has_created_at`.
    pub has_headers: bool,
}

impl Table {
    /// `schema.table`.
    pub fn dotted(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// The same, as it may be printed.
    pub fn printable(&self) -> String {
        one_line(&self.dotted()).into_owned()
    }

    /// Whether UPDATE and DELETE still work once it is published.
    pub fn is_identified(&self) -> bool {
        self.unidentified.is_empty()
    }
}

const QUERY: &str = "
SELECT pg_catalog.json_build_object(
  'version', pg_catalog.current_setting('server_version_num')::int,
  'wal_level', pg_catalog.current_setting('wal_level'),
  'standby', pg_catalog.pg_is_in_recovery(),
  'has_role', EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1),
  'role_replicates', EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = $1 AND (rolreplication OR rolsuper)),
  'has_publication', EXISTS (SELECT FROM pg_catalog.pg_publication WHERE pubname = $2),
  'has_slot', EXISTS (SELECT FROM pg_catalog.pg_replication_slots WHERE slot_name = $2),
  'rds', EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = 'rds_replication'),
  'keeps_all_wal', EXISTS (SELECT FROM pg_catalog.pg_settings WHERE name = 'max_slot_wal_keep_size' AND setting::int8 < 0),
  'tables', COALESCE((
    SELECT pg_catalog.json_agg(pg_catalog.json_build_object(
      'schema', n.nspname, 'name', c.relname, 'partitioned', c.relkind = 'p', 'rows', NULLIF(c.reltuples::int8, -1),
      'unidentified', COALESCE((
        SELECT pg_catalog.json_agg(pg_catalog.json_build_object('schema', tn.nspname, 'name', t.relname) ORDER BY tn.nspname, t.relname)
        FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
        WHERE (t.oid = c.oid OR c.relkind = 'p' AND t.relkind = 'r' AND t.oid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(c.oid) p))
        AND NOT CASE t.relreplident WHEN 'f' THEN true WHEN 'n' THEN false ELSE EXISTS (
          SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = t.oid
          AND CASE t.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END) END), '[]'),
      'lacks', ARRAY(
        SELECT wanted FROM pg_catalog.unnest($3::text[]) wanted WHERE NOT EXISTS (
          SELECT FROM pg_catalog.pg_attribute a
          WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = wanted)),
      'has_created_at', EXISTS (
        SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attname = 'created_at' AND a.atttypid IN ('pg_catalog.timestamptz'::regtype, 'pg_catalog.timestamp'::regtype)),
      'has_headers', EXISTS (
        SELECT FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND a.attname = 'headers' AND a.atttypid IN ('pg_catalog.jsonb'::regtype, 'pg_catalog.json'::regtype))
      ) ORDER BY n.nspname, c.relname)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition
      AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'), '[]')
)::text";

/// Looks at a database for a connector whose slot and publication have one name.
///
/// # Errors
/// The server cannot be reached or asked.
pub async fn survey(section: &PostgresSection, role: &str, name: &str) -> Result<DatabaseSurvey, Failure> {
    const DOING: &str = "looking at the database";
    let look = async {
        let sql = Endpoint::new(section.clone()).sql(Purpose::Validate).await?;
        let columns = OUTBOX_COLUMNS.to_vec();
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
            [(&role, Type::TEXT), (&name, Type::TEXT), (&columns, Type::TEXT_ARRAY)];
        let text: String = sql.value(DOING, QUERY, &parameters).await?;
        serde_json::from_str(&text).map_err(|error| Error::Protocol {
            doing: DOING,
            problem: error.to_string(),
        })
    };
    look.await.map_err(Failure::from)
}

/// What a connector shall have.
#[derive(Debug, Clone)]
pub struct SetupRequest {
    /// Its role.
    pub role: String,
    /// Its publication.
    pub publication: String,
    /// The tables that are published.
    pub tables: Vec<Table>,
    /// Whether their existing rows are read.
    pub reads_rows: bool,
    /// An outbox that is still to be created.
    pub new_outbox: Option<NewOutbox>,
    /// Tables that are left out because UPDATE and DELETE would fail.
    pub left_out: Vec<Table>,
}

/// An outbox that is still to be created.
#[derive(Debug, Clone)]
pub struct NewOutbox {
    /// Its name.
    pub table: TableName,
    /// What creates it, without the connector's privileges and the publication.
    pub steps: Vec<SetupStep>,
}

/// Statements, and what they are for.
#[derive(Debug, Clone)]
pub struct SetupStep {
    /// In lines.
    pub why: String,
    /// Without semicolons at their ends.
    pub statements: Vec<String>,
}

/// The SQL, with what each statement is for. The password of the role is psql's variable `password`.
pub fn sql(survey: &DatabaseSurvey, wish: &SetupRequest) -> String {
    let mut script = Script {
        survey,
        wish,
        role: identifier(&wish.role),
        text: String::new(),
    };
    script.settings();
    script.server();
    script.role();
    script.outbox();
    script.privileges();
    script.replica_identities();
    script.publication();
    script.text.trim_end().to_owned() + "\n"
}

/// The SQL while it is written.
struct Script<'a> {
    survey: &'a DatabaseSurvey,
    wish: &'a SetupRequest,
    /// The role as an identifier.
    role: String,
    text: String,
}

impl Script<'_> {
    fn step(&mut self, why: &str, statements: &[String]) {
        for line in why.lines() {
            self.text.push_str(&format!("-- {}\n", one_line(line)));
        }
        for statement in statements {
            self.text.push_str(&format!("{statement};\n"));
        }
        self.text.push('\n');
    }

    /// The names of all tables that are published.
    fn names(&self) -> String {
        let tables = self.wish.tables.iter();
        let names = tables.map(|table| qualified(&table.schema, &table.name));
        let outbox = self.wish.new_outbox.as_ref().map(|outbox| outbox.table.quoted());
        names.chain(outbox).collect::<Vec<_>>().join(", ")
    }

    /// What keeps names from running. In some encodings, a letter of a name and the quote after it would be one character for psql, and in its
    /// eyes the name would not end there. An object of another schema could take the place of one of Postgres' own, and would run as whoever runs
    /// the script.
    fn settings(&mut self) {
        self.step("This file is in UTF-8.", &["SET client_encoding = 'UTF8'".to_owned()]);
        self.step(
            "Only objects of Postgres itself are found without their schema.",
            &["SET search_path = pg_catalog, pg_temp".to_owned()],
        );
    }

    fn server(&mut self) {
        if self.survey.wal_level != "logical" {
            self.step(
                &format!(
                    "Logical replication needs wal_level=logical; it is {:?} now. Restart the server after this statement.\n\
                     (Amazon RDS: set rds.logical_replication=1. Cloud SQL: set cloudsql.logical_decoding=on.)",
                    self.survey.wal_level
                ),
                &["ALTER SYSTEM SET wal_level = 'logical'".to_owned()],
            );
        }
        if self.survey.keeps_all_wal {
            self.step(
                "A slot keeps WAL on the server's disk while its connector is stopped, and nothing limits that now. With a limit, the slot is\n\
                 lost before the disk is full. Choose a size that fits the disk, and run this:\n\
                 ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_catalog.pg_reload_conf();",
                &[],
            );
        }
    }

    fn role(&mut self) {
        let role = &self.role;
        let replicates = match self.survey.rds {
            true => format!("GRANT rds_replication TO {role}"),
            false => format!("ALTER ROLE {role} REPLICATION"),
        };
        match (self.survey.has_role, self.survey.role_replicates) {
            (false, _) => self.step(
                "The connector's role. REPLICATION lets it read the slot.",
                &[format!("CREATE ROLE {role} LOGIN PASSWORD :'password'"), replicates],
            ),
            (true, false) => self.step(
                "The connector's role exists. REPLICATION lets it read the slot.",
                &[replicates],
            ),
            (true, true) => self.step("The connector's role exists, and may read slots.", &[]),
        }
    }

    fn outbox(&mut self) {
        for step in self.wish.new_outbox.iter().flat_map(|outbox| &outbox.steps) {
            self.step(&step.why, &step.statements);
        }
    }

    fn privileges(&mut self) {
        let role = self.role.clone();
        if let Some(outbox) = &self.wish.new_outbox {
            self.step(
                "The connector reads rows that exist (snapshots). DELETE lets it remove delivered rows; leave DELETE out if something else\n\
                 removes them.",
                &[
                    format!("GRANT USAGE ON SCHEMA {} TO {role}", identifier(&outbox.table.schema)),
                    format!("GRANT SELECT, DELETE ON {} TO {role}", outbox.table.quoted()),
                ],
            );
        }
        if self.wish.reads_rows {
            let mut schemas: Vec<&str> = self.wish.tables.iter().map(|table| table.schema.as_str()).collect();
            schemas.sort_unstable();
            schemas.dedup();
            let usage = schemas
                .into_iter()
                .map(|schema| format!("GRANT USAGE ON SCHEMA {} TO {role}", identifier(schema)));
            let select = format!("GRANT SELECT ON {} TO {role}", self.names());
            self.step(
                "The first start reads the existing rows. Later, changes come from the slot, which needs no privilege on tables.",
                &usage.chain([select]).collect::<Vec<_>>(),
            );
        }
    }

    fn replica_identities(&mut self) {
        let unidentified = self.wish.tables.iter().flat_map(|table| &table.unidentified);
        let statements: Vec<String> = unidentified
            .map(|table| format!("ALTER TABLE {} REPLICA IDENTITY FULL", table.quoted()))
            .collect();
        if !statements.is_empty() {
            self.step(
                "These tables have no primary key. Once they are published, UPDATE and DELETE would fail without this. It makes the server\n\
                 write the whole old row into the WAL.",
                &statements,
            );
        }
        if !self.wish.left_out.is_empty() {
            let list: Vec<String> = self.wish.left_out.iter().map(Table::printable).collect();
            self.step(
                &format!(
                    "Left out, because they have no primary key: {}.\nOnce they were published, UPDATE and DELETE on them would fail. To include \
                     one, name it with --table.",
                    list.join(", ")
                ),
                &[],
            );
        }
    }

    fn publication(&mut self) {
        let root = match self.wish.tables.iter().any(|table| table.partitioned) {
            true => " WITH (publish_via_partition_root = true)",
            false => "",
        };
        self.step(
            "The publication decides which tables the slot sends. The connector does not change it.",
            &[format!(
                "CREATE PUBLICATION {} FOR TABLE {}{root}",
                identifier(&self.wish.publication),
                self.names()
            )],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyless_table_is_published_with_whole_rows_a_partitioned_one_as_a_whole() {
        let survey = DatabaseSurvey {
            version: 150_000,
            wal_level: "replica".to_owned(),
            standby: false,
            has_role: true,
            role_replicates: false,
            has_publication: false,
            has_slot: false,
            rds: true,
            keeps_all_wal: true,
            tables: Vec::new(),
        };
        let named = |name: &str| TableName {
            schema: "My".to_owned(),
            name: name.to_owned(),
        };
        let table = |name: &str, identified: bool| Table {
            schema: "My".to_owned(),
            name: name.to_owned(),
            unidentified: if identified { Vec::new() } else { vec![named(name)] },
            partitioned: identified,
            rows: None,
            lacks: Vec::new(),
            has_created_at: false,
            has_headers: false,
        };
        let wish = SetupRequest {
            role: "cdc".to_owned(),
            publication: "shop".to_owned(),
            tables: vec![table("a", true), table("b", false)],
            reads_rows: true,
            new_outbox: None,
            left_out: vec![table("c", false)],
        };
        let text = sql(&survey, &wish);
        let statements: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with("--") && !line.is_empty())
            .collect();
        assert_eq!(
            statements,
            [
                "SET client_encoding = 'UTF8';",
                "SET search_path = pg_catalog, pg_temp;",
                "ALTER SYSTEM SET wal_level = 'logical';",
                "GRANT rds_replication TO \"cdc\";",
                "GRANT USAGE ON SCHEMA \"My\" TO \"cdc\";",
                "GRANT SELECT ON \"My\".\"a\", \"My\".\"b\" TO \"cdc\";",
                "ALTER TABLE \"My\".\"b\" REPLICA IDENTITY FULL;",
                "CREATE PUBLICATION \"shop\" FOR TABLE \"My\".\"a\", \"My\".\"b\" WITH (publish_via_partition_root = true);",
            ]
        );
        assert!(text.contains("no primary key: My.c."), "{text}");
    }
}
