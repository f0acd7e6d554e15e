//! States of server, role, slot and publication in which a connector cannot work, each with a statement that corrects
//! it.

use walferry_diagnosis::printed::{shell_word, sql_text};
use walferry_diagnosis::{Diagnosis, Fix, Kind, Needs};
use walferry_engine::gap::MISSING;

use crate::catalog::table_name::TableName;
use crate::quote::{conninfo, identifier};

/// Such a state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupProblem {
    /// The server is older than the oldest supported version.
    #[error("the server is Postgres {}, but Walferry needs at least Postgres {}", version_text(*version), version_text(OLDEST_VERSION))]
    ServerTooOld {
        /// `server_version_num`.
        version: u32,
    },
    /// Standbys can decode WAL only since Postgres 16.
    #[error("the server is a standby, but Postgres {} cannot decode WAL on a standby", version_text(*version))]
    StandbyTooOld {
        /// `server_version_num`.
        version: u32,
    },
    /// `wal_level` is not `logical`.
    #[error("wal_level is {found:?}, but logical replication needs \"logical\"")]
    WalLevel {
        /// The present value.
        found: String,
    },
    /// The role is not allowed to use replication.
    #[error("role {role:?} is not allowed to use replication")]
    NoReplication {
        /// The role that has logged in.
        role: String,
        /// A role of the server's operator whose members may.
        replicators: Option<String>,
    },
    /// The slot has another plugin.
    #[error("replication slot {slot:?} uses the plugin {plugin:?} instead of pgoutput")]
    SlotPlugin {
        /// The slot.
        slot: String,
        /// Its plugin.
        plugin: String,
    },
    /// The slot is physical.
    #[error("replication slot {slot:?} is a physical slot")]
    SlotPhysical {
        /// The slot.
        slot: String,
    },
    /// The slot belongs to another database.
    #[error("replication slot {slot:?} belongs to database {database:?}, but `database.dbname` is {ours:?}")]
    SlotDatabase {
        /// The slot.
        slot: String,
        /// Its database.
        database: String,
        /// Our database.
        ours: String,
    },
    /// The slot is a standby's synchronized copy of the primary's slot (Postgres 17 and later). Nobody can read it
    /// before the standby is promoted.
    #[error("replication slot {slot:?} is this standby's synchronized copy of a slot of the primary")]
    SlotSynced {
        /// The slot.
        slot: String,
    },
    /// The slot sends prepared transactions when they are prepared, in messages that the stream does not otherwise have.
    #[error(
        "replication slot {slot:?} was created with two_phase, so that transactions come when they are prepared, which Walferry does not read"
    )]
    SlotTwoPhase {
        /// The slot.
        slot: String,
        /// Its database.
        database: String,
        /// Whether the property can be changed (Postgres 18 and later).
        may_alter: bool,
    },
    /// The slot cannot be dropped.
    #[error("replication slot {slot:?} was not dropped, because another process still reads it")]
    SlotStillRead {
        /// The slot.
        slot: String,
    },
    /// All replication slots are in use, and ours must still be created.
    #[error("all {max} replication slots of the server are in use")]
    NoFreeSlots {
        /// `max_replication_slots`.
        max: i64,
    },
    /// The publication does not exist, and Walferry is not allowed to create it.
    #[error("publication {publication:?} does not exist, and `publication.autocreate.mode` is \"disabled\"")]
    PublicationMissing {
        /// Its name.
        publication: String,
    },
    /// The publication does not exist, and a standby cannot create it.
    #[error("publication {publication:?} does not exist, and a standby cannot create it")]
    PublicationMissingOnStandby {
        /// Its name.
        publication: String,
        /// The statement for the primary.
        statement: String,
    },
    /// A publication for all tables cannot be narrowed to the captured ones.
    #[error("publication {publication:?} is for all tables, but `publication.autocreate.mode` is \"filtered\"")]
    PublicationOfAllTables {
        /// Its name.
        publication: String,
    },
    /// The filters leave no table for the publication.
    #[error("no table in the database matches the filters, so publication {publication:?} would be empty")]
    NoCapturedTable {
        /// Its name.
        publication: String,
    },
    /// The role is not allowed to create or alter the publication.
    #[error("role {role:?} is not allowed to run: {statement}")]
    PublicationNotAllowed {
        /// The role.
        role: String,
        /// The statement that was refused.
        statement: String,
        /// The server's message.
        refusal: String,
        /// Owners, other than superusers, of tables that must be added.
        owners: Vec<String>,
        /// Whether only a superuser is allowed to run the statement.
        superuser: bool,
        /// The database in which the role is not allowed to create anything, if that is the reason.
        no_create_in: Option<String>,
    },
    /// The role is not allowed to read tables of the snapshot.
    #[error("role {role:?} is not allowed to read {}", unreadable(tables))]
    NoSelect {
        /// The role.
        role: String,
        /// What it must be allowed to read.
        tables: Vec<Unreadable>,
    },
    /// The role may see only some rows of tables of the snapshot.
    #[error("row-level security policies may hide rows from role {role:?} in {}", list(tables))]
    RowSecurity {
        /// The role.
        role: String,
        /// Their names.
        tables: Vec<TableName>,
    },
}

/// A table that the role is not allowed to read as it must.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its name.
    pub table: TableName,
    /// The columns that are read. Empty if all are.
    pub columns: Vec<String>,
}

impl Unreadable {
    /// The columns in parentheses, in quotes.
    fn columns(&self) -> Option<String> {
        let names: Vec<String> = self.columns.iter().map(|name| identifier(name)).collect();
        (!names.is_empty()).then(|| format!("({})", names.join(", ")))
    }
}

/// The oldest server with everything that we need (`pg_attribute.attgenerated`).
pub(crate) const OLDEST_VERSION: u32 = 120_000;

impl SetupProblem {
    /// Whether the problem resolves itself when a standby is promoted, or when the address leads to the primary again.
    /// A connector waits while a failover is under way.
    pub fn passes(&self) -> bool {
        matches!(
            self,
            Self::StandbyTooOld { .. } | Self::SlotSynced { .. } | Self::PublicationMissingOnStandby { .. }
        )
    }

    /// The kind, for metrics.
    pub fn kind(&self) -> Kind {
        match self {
            Self::ServerTooOld { .. } => Kind::ServerVersion,
            Self::StandbyTooOld { .. } => Kind::Standby,
            Self::WalLevel { .. } => Kind::WalLevel,
            Self::NoReplication { .. }
            | Self::NoSelect { .. }
            | Self::RowSecurity { .. }
            | Self::PublicationNotAllowed { .. } => Kind::PrivilegeMissing,
            Self::SlotPlugin { .. }
            | Self::SlotPhysical { .. }
            | Self::SlotDatabase { .. }
            | Self::SlotTwoPhase { .. }
            | Self::SlotSynced { .. } => Kind::SlotMismatch,
            Self::SlotStillRead { .. } => Kind::SlotStillRead,
            Self::NoFreeSlots { .. } => Kind::NoFreeSlot,
            Self::PublicationMissing { .. } | Self::PublicationMissingOnStandby { .. } => MISSING,
            Self::PublicationOfAllTables { .. } | Self::NoCapturedTable { .. } => Kind::Publication,
        }
    }

    /// The statement or setting that corrects the problem.
    pub fn hint(&self) -> String {
        match self {
            Self::ServerTooOld { .. } => "upgrade the server".to_owned(),
            Self::StandbyTooOld { .. } => "this resolves itself when the standby is promoted; otherwise connect to the primary, or \
                                           upgrade both to Postgres 16"
                    .to_owned(),
            Self::WalLevel { .. } => {
                "ALTER SYSTEM SET wal_level = 'logical'; and restart the server (Amazon RDS: rds.logical_replication = 1; \
                 Cloud SQL: cloudsql.logical_decoding = on)"
                    .to_owned()
            }
            Self::NoReplication { role, replicators } => format!("{};", allow_replication(role, replicators.as_deref())),
            Self::SlotPlugin { slot, .. } | Self::SlotPhysical { slot } => format!(
                "set `slot.name` to another name, or, if the slot is no longer needed, run: SELECT pg_catalog.pg_drop_replication_slot({});",
                sql_text(slot)
            ),
            Self::SlotDatabase { .. } => {
                "slot names are unique on a server: set `slot.name` to a different name for each connector, or correct `database.dbname`"
                    .to_owned()
            }
            Self::SlotSynced { .. } => {
                "this resolves itself when the standby is promoted; otherwise connect to the primary, or set `slot.name` to another name \
                 to create a slot on the standby"
                    .to_owned()
            }
            Self::SlotTwoPhase {
                slot,
                database,
                may_alter: true,
            } => format!(
                "run, while nothing reads the slot: psql {} -c 'ALTER_REPLICATION_SLOT {slot} (TWO_PHASE false)'",
                shell_word(&format!("dbname={} replication=database", conninfo(database)))
            ),
            Self::SlotTwoPhase { slot, .. } => format!(
                "set `slot.name` to another name, or, if the slot was not used yet, drop it, and a start creates it: SELECT \
                 pg_catalog.pg_drop_replication_slot({});",
                sql_text(slot)
            ),
            Self::SlotStillRead { slot } => format!(
                "stop that process, then run: SELECT pg_catalog.pg_drop_replication_slot({0}); (to find the process: SELECT active_pid FROM \
                 pg_catalog.pg_replication_slots WHERE slot_name = {0};)",
                sql_text(slot)
            ),
            Self::NoFreeSlots { .. } => {
                "drop a slot that is no longer needed (SELECT slot_name, active, restart_lsn FROM pg_replication_slots; SELECT \
                 pg_drop_replication_slot('NAME');), or run ALTER SYSTEM SET max_replication_slots = …; and restart the server"
                    .to_owned()
            }
            Self::PublicationMissing { publication } => format!(
                "create it: `walferry check --fix` prints the whole CREATE PUBLICATION {}, with the captured tables; or set \
                 `publication.autocreate.mode` to \"filtered\"",
                identifier(publication)
            ),
            Self::PublicationMissingOnStandby { statement, .. } => format!("on the primary: {statement};"),
            Self::PublicationOfAllTables { publication } => format!(
                "set `publication.autocreate.mode` to \"all_tables\", or drop the publication so that it is created again: DROP \
                 PUBLICATION {};",
                identifier(publication)
            ),
            Self::NoCapturedTable { .. } => {
                "compare `table.include.list` with the tables in the database (patterns match SCHEMA.TABLE); views and foreign tables are \
                 never captured; to send only messages of pg_logical_emit_message, set `publication.autocreate.mode` to \"no_tables\""
                    .to_owned()
            }
            Self::PublicationNotAllowed {
                role,
                statement,
                owners,
                superuser,
                no_create_in,
                ..
            } => {
                let grants = publication_grants(role, owners, no_create_in.as_deref());
                ask_to_publish(statement, &grants, *superuser)
            }
            Self::NoSelect { role, tables } => grant_select(role, tables),
            Self::RowSecurity { role, tables } => pass_row_security(role, tables),
        }
    }

    /// The problem as a diagnosis.
    pub fn cause(&self) -> Diagnosis {
        let text = match self {
            Self::PublicationNotAllowed { refusal, .. } => format!("{self} ({refusal})"),
            _ => self.to_string(),
        };
        Diagnosis {
            fix: self.fix().map(Box::new),
            ..Diagnosis::error(self.kind(), text).with_hint(self.hint())
        }
    }

    /// The SQL of the hint, where it is complete and takes away nothing that somebody may need.
    fn fix(&self) -> Option<Fix> {
        let (statements, needs) = match self {
            Self::WalLevel { .. } => (
                vec!["ALTER SYSTEM SET wal_level = 'logical'".to_owned()],
                Needs::Restart,
            ),
            Self::NoReplication { role, replicators } => {
                (vec![allow_replication(role, replicators.as_deref())], Needs::Superuser)
            }
            Self::PublicationNotAllowed {
                statement, superuser, ..
            } => {
                let needs = if *superuser { Needs::Superuser } else { Needs::Owner };
                (vec![statement.clone()], needs)
            }
            Self::NoSelect { role, tables } => {
                let role = identifier(role);
                let mut schemas: Vec<&str> = tables.iter().map(|denied| denied.table.schema.as_str()).collect();
                schemas.sort_unstable();
                schemas.dedup();
                let usage = schemas
                    .into_iter()
                    .map(|schema| format!("GRANT USAGE ON SCHEMA {} TO {role}", identifier(schema)));
                (usage.chain(grants(&role, tables)).collect(), Needs::Owner)
            }
            Self::RowSecurity { role, .. } => (
                vec![format!("ALTER ROLE {} BYPASSRLS", identifier(role))],
                Needs::Superuser,
            ),
            _ => return None,
        };
        Some(Fix { statements, needs })
    }
}

fn allow_replication(role: &str, replicators: Option<&str>) -> String {
    let role = identifier(role);
    match replicators {
        // One of the names that we have asked for.
        Some(replicators) => format!("GRANT {} TO {role}", replicators),
        None => format!("ALTER ROLE {role} REPLICATION"),
    }
}

fn list(tables: &[TableName]) -> String {
    let names: Vec<String> = tables.iter().map(TableName::quoted).collect();
    names.join(", ")
}

fn version_text(number: u32) -> String {
    if number >= 100_000 {
        format!("{}.{}", number / 10_000, number % 10_000)
    } else {
        format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
    }
}

/// What lets the role create or alter the publication itself.
fn publication_grants(role: &str, owners: &[String], no_create_in: Option<&str>) -> Vec<String> {
    let role = identifier(role);
    let create = no_create_in.map(|database| format!("GRANT CREATE ON DATABASE {} TO {role};", identifier(database)));
    let own = owners
        .iter()
        .map(|owner| format!("GRANT {} TO {role};", identifier(owner)));
    create.into_iter().chain(own).collect()
}

fn ask_to_publish(statement: &str, grants: &[String], superuser: bool) -> String {
    let alternative = match (superuser, grants.is_empty()) {
        (true, _) => "; or set `publication.autocreate.mode` to \"filtered\"".to_owned(),
        (false, true) => String::new(),
        (false, false) => format!("; or: {}", grants.join(" ")),
    };
    let who = match superuser {
        true => "a superuser",
        false => "a superuser or the owner of the tables",
    };
    format!("ask {who} to run it once: {statement}{alternative}")
}

fn grant_select(role: &str, tables: &[Unreadable]) -> String {
    let role = identifier(role);
    let mut schemas: Vec<&str> = tables.iter().map(|denied| denied.table.schema.as_str()).collect();
    schemas.dedup();
    let usage: Vec<String> = schemas.into_iter().map(identifier).collect();
    format!(
        "GRANT USAGE ON SCHEMA {} TO {role}; {};",
        usage.join(", "),
        grants(&role, tables).join("; ")
    )
}

/// The statements that let the role read what is read of the tables: one for all that are read as a whole, and one for each other table.
fn grants(role: &str, tables: &[Unreadable]) -> Vec<String> {
    let whole: Vec<TableName> = tables
        .iter()
        .filter(|denied| denied.columns.is_empty())
        .map(|denied| denied.table.clone())
        .collect();
    let of_whole = (!whole.is_empty()).then(|| format!("GRANT SELECT ON {} TO {role}", list(&whole)));
    let of_columns = tables.iter().filter_map(|denied| {
        let table = denied.table.quoted();
        Some(format!("GRANT SELECT {} ON {table} TO {role}", denied.columns()?))
    });
    of_whole.into_iter().chain(of_columns).collect()
}

fn unreadable(tables: &[Unreadable]) -> String {
    let names: Vec<String> = tables
        .iter()
        .map(|denied| match denied.columns() {
            Some(columns) => format!("{} {columns}", denied.table.quoted()),
            None => denied.table.quoted(),
        })
        .collect();
    names.join(", ")
}

fn pass_row_security(role: &str, tables: &[TableName]) -> String {
    let each: Vec<String> = tables
        .iter()
        .map(|table| format!("ALTER TABLE {} NO FORCE ROW LEVEL SECURITY;", table.quoted()))
        .collect();
    format!(
        "a snapshot must see all rows. Ask a superuser to run: ALTER ROLE {} BYPASSRLS; or connect as the owner of the tables, for whom \
         policies hide nothing unless they are forced for the owner, too: {}",
        identifier(role),
        each.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_publication_names_the_ways_out() {
        let refused = |owners: &[&str], superuser, no_create_in: Option<&str>| {
            SetupProblem::PublicationNotAllowed {
                role: "cdc".to_owned(),
                statement: "CREATE PUBLICATION p".to_owned(),
                refusal: "no".to_owned(),
                owners: owners.iter().map(|&owner| owner.to_owned()).collect(),
                superuser,
                no_create_in: no_create_in.map(ToOwned::to_owned),
            }
            .hint()
        };
        assert_eq!(
            refused(&["app"], false, Some("db")),
            "ask a superuser or the owner of the tables to run it once: CREATE PUBLICATION p; or: GRANT CREATE ON DATABASE \"db\" TO \
             \"cdc\"; GRANT \"app\" TO \"cdc\";"
        );
        assert_eq!(
            refused(&[], true, None),
            "ask a superuser to run it once: CREATE PUBLICATION p; or set `publication.autocreate.mode` to \"filtered\""
        );
    }

    #[test]
    fn unreadable_tables_come_with_their_grants() {
        let table = |schema: &str, name: &str| TableName {
            schema: schema.to_owned(),
            name: name.to_owned(),
        };
        let denied = |schema: &str, name: &str, columns: &[&str]| Unreadable {
            table: table(schema, name),
            columns: columns.iter().map(|&column| column.to_owned()).collect(),
        };
        let problem = SetupProblem::NoSelect {
            role: "cdc".to_owned(),
            tables: vec![
                denied("a", "t", &[]),
                denied("a", "u", &["id", "B"]),
                denied("b", "T", &[]),
            ],
        };
        assert_eq!(
            problem.to_string(),
            "role \"cdc\" is not allowed to read \"a\".\"t\", \"a\".\"u\" (\"id\", \"B\"), \"b\".\"T\""
        );
        assert_eq!(
            problem.hint(),
            "GRANT USAGE ON SCHEMA \"a\", \"b\" TO \"cdc\"; GRANT SELECT ON \"a\".\"t\", \"b\".\"T\" TO \"cdc\"; \
             GRANT SELECT (\"id\", \"B\") ON \"a\".\"u\" TO \"cdc\";"
        );

        let problem = SetupProblem::RowSecurity {
            role: "cdc".to_owned(),
            tables: vec![table("a", "t")],
        };
        assert_eq!(
            problem.to_string(),
            "row-level security policies may hide rows from role \"cdc\" in \"a\".\"t\""
        );
        for part in [
            "ALTER ROLE \"cdc\" BYPASSRLS;",
            "ALTER TABLE \"a\".\"t\" NO FORCE ROW LEVEL SECURITY;",
        ] {
            assert!(problem.hint().contains(part), "{part} is not in: {}", problem.hint());
        }
    }
}
