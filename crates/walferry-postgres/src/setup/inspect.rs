//! Queries server, role, slot and publication in one round trip.

use serde::Deserialize;
use tokio_postgres::types::Type;
use walferry_config::connector::PublicationAutocreate;
use walferry_engine::source::FoundSlot;
use walferry_pgoutput::Lsn;

use crate::connection::server_error::ServerError;
use crate::connection::{Purpose, Sql};
use crate::error::Error;
use crate::publication::Publication;
use crate::setup::problem::{OLDEST_VERSION, SetupProblem};

/// The present state of the server.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ServerState {
    /// `server_version_num`.
    pub(crate) version: u32,
    wal_level: String,
    /// Whether it is a standby.
    pub(crate) standby: bool,
    pub(crate) database: String,
    /// Our role.
    pub(crate) role: String,
    /// The role that has logged in. Another one than ours after `ALTER ROLE … SET role`. A walsender asks for its privileges.
    login: String,
    /// Whether the catalog shows that this role may use replication. Managed services also have other ways to allow it.
    may_replicate: bool,
    /// Whether the role is a superuser.
    pub(crate) superuser: bool,
    /// Whether the role may create objects in the database, such as publications.
    pub(crate) may_create: bool,
    /// The role of a managed service whose members may use replication.
    replicators: Option<String>,
    /// `max_slot_wal_keep_size` in MB, negative for no limit. Absent before Postgres 13.
    pub(crate) keep_mb: Option<i64>,
    /// `idle_replication_slot_timeout` in seconds, 0 for none. Absent before Postgres 18.
    pub(crate) idle_slot_s: Option<i64>,
    /// `max_replication_slots`.
    pub(crate) max_slots: i64,
    /// `max_prepared_transactions`.
    max_prepared: i64,
    /// Number of existing slots.
    pub(crate) slots: i64,
    /// `max_wal_senders`.
    pub(crate) max_senders: i64,
    /// Number of running walsenders.
    pub(crate) senders: i64,
    #[serde(deserialize_with = "lsn")]
    wal_end: Option<Lsn>,
    slot: Option<SlotRow>,
    /// If a Walferry reads the slot, when the server last heard of it. `None` also if our role may not see that.
    heard: Option<String>,
    /// `None` if our publication does not exist, else whether it is for all tables.
    pub(crate) publication: Option<bool>,
    /// Whether our publication sends stored generated columns (Postgres 18 and later).
    pub(crate) publishes_generated: Option<bool>,
}

/// The columns that we read of `pg_replication_slots`. They differ between versions.
#[derive(Debug, Clone, Deserialize)]
struct SlotRow {
    plugin: Option<String>,
    database: Option<String>,
    active_pid: Option<i32>,
    #[serde(default, deserialize_with = "lsn")]
    restart_lsn: Option<Lsn>,
    #[serde(default, deserialize_with = "lsn")]
    confirmed_flush_lsn: Option<Lsn>,
    /// Postgres 13 and later.
    wal_status: Option<String>,
    /// Postgres 16 and later: a conflict with recovery has invalidated the slot. Postgres 16 sets it for every
    /// invalidated slot.
    conflicting: Option<bool>,
    /// Postgres 17 and later.
    invalidation_reason: Option<String>,
    /// Postgres 17 and later: the slot is to be synchronized to standbys.
    #[serde(default)]
    failover: bool,
    /// Postgres 17 and later: the slot is such a synchronized copy.
    #[serde(default)]
    synced: bool,
    /// Postgres 14 and later: prepared transactions are sent when they are prepared.
    #[serde(default)]
    two_phase: bool,
}

/// Parses an LSN in Postgres' notation.
pub(crate) fn lsn<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Lsn>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(serde::de::Error::custom))
        .transpose()
}

const QUERY: &str = "
SELECT pg_catalog.json_build_object(
  'version', pg_catalog.current_setting('server_version_num')::int,
  'wal_level', pg_catalog.current_setting('wal_level'),
  'standby', pg_catalog.pg_is_in_recovery(),
  'database', pg_catalog.current_database(),
  'role', current_user,
  'login', session_user,
  'may_replicate', EXISTS (
    SELECT FROM pg_catalog.pg_roles r
    WHERE r.rolname = session_user AND (r.rolreplication OR r.rolsuper)
       OR r.rolname IN ('rds_superuser', 'rdsadmin', 'rdsrepladmin', 'rds_replication')
          AND pg_catalog.pg_has_role(session_user, r.oid, 'MEMBER')),
  'superuser', (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user),
  'may_create', pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE'),
  'keep_mb', (SELECT g.setting::int8 FROM pg_catalog.pg_settings g WHERE g.name = 'max_slot_wal_keep_size'),
  'idle_slot_s', (SELECT g.setting::int8 FROM pg_catalog.pg_settings g WHERE g.name = 'idle_replication_slot_timeout'),
  'replicators', (SELECT r.rolname FROM pg_catalog.pg_roles r WHERE r.rolname IN ('rds_replication', 'mdb_replication') LIMIT 1),
  'max_slots', pg_catalog.current_setting('max_replication_slots')::int,
  'max_prepared', pg_catalog.current_setting('max_prepared_transactions')::int,
  'slots', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots),
  'max_senders', pg_catalog.current_setting('max_wal_senders')::int,
  'senders', (SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_get_wal_senders() w),
  'wal_end', CASE WHEN pg_catalog.pg_is_in_recovery()
    THEN GREATEST(pg_catalog.pg_last_wal_receive_lsn(), pg_catalog.pg_last_wal_replay_lsn())
    ELSE pg_catalog.pg_current_wal_lsn() END,
  'slot', (SELECT pg_catalog.to_jsonb(s) FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = $1),
  'heard', (SELECT pg_catalog.to_jsonb(w) ->> 'reply_time' FROM pg_catalog.pg_stat_replication w JOIN pg_catalog.pg_replication_slots s ON s.active_pid = w.pid
    WHERE s.slot_name = $1 AND w.application_name = $3),
  'publication', (SELECT p.puballtables FROM pg_catalog.pg_publication p WHERE p.pubname = $2),
  'publishes_generated', (SELECT pg_catalog.to_jsonb(p) ->> 'pubgencols' = 's' FROM pg_catalog.pg_publication p WHERE p.pubname = $2)
)::text";

impl ServerState {
    /// Queries the server.
    pub(crate) async fn inspect(sql: &Sql, slot: &str, publication: &str) -> Result<Self, Error> {
        const DOING: &str = "inspecting the server";
        let text: String = sql
            .value(
                DOING,
                QUERY,
                &[
                    (&slot, Type::TEXT),
                    (&publication, Type::TEXT),
                    (&Purpose::Streaming.application_name(), Type::TEXT),
                ],
            )
            .await?;
        serde_json::from_str(&text).map_err(|error| Error::Protocol {
            doing: DOING,
            problem: error.to_string(),
        })
    }

    /// The present position of our slot.
    pub(crate) async fn confirmed(sql: &Sql, slot: &str) -> Result<Option<Lsn>, Error> {
        const DOING: &str = "reading the replication slot";
        const SLOT: &str =
            "SELECT s.confirmed_flush_lsn::text FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = $1";
        let rows = sql.rows(DOING, SLOT, &[(&slot, Type::TEXT)]).await?;
        let text: Option<String> = match rows.first() {
            Some(row) => row.try_get(0).map_err(|error| Error::sql(DOING, error))?,
            None => None,
        };
        text.map(|text| text.parse()).transpose().map_err(|_| Error::Protocol {
            doing: DOING,
            problem: "a position that is not an LSN".to_owned(),
        })
    }

    /// The transactions of this database that are in progress.
    pub(crate) async fn under_way(sql: &Sql) -> Result<Vec<u32>, Error> {
        const DOING: &str = "reading the transactions in progress";
        // The list in a snapshot would lack the last transactions, if none that began later has ended.
        const QUERY: &str = "
SELECT COALESCE(pg_catalog.string_agg(t.xid::text, ','), '') FROM (
  SELECT a.backend_xid FROM pg_catalog.pg_stat_activity a
  WHERE a.backend_xid IS NOT NULL
    AND a.datid = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
  UNION ALL SELECT p.transaction FROM pg_catalog.pg_prepared_xacts p WHERE p.database = pg_catalog.current_database()
) t (xid)";
        /// For a role that may not read those views. It has the transactions of all databases.
        const OF_SNAPSHOT: &str = "
SELECT COALESCE(pg_catalog.string_agg((x & 4294967295)::text, ','), '')
FROM pg_catalog.txid_snapshot_xip(pg_catalog.txid_current_snapshot()) x";
        // When this has ended, a snapshot lists all that are older.
        const NEWER: &str = "
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0 ELSE pg_catalog.txid_current() END::int8";
        const REFUSED: &str = "42501";
        let text: String = match sql.value(DOING, QUERY, &[]).await {
            Err(error) if error.server_error().is_some_and(|error| error.code == REFUSED) => {
                let _: i64 = sql.value(DOING, NEWER, &[]).await?;
                sql.value(DOING, OF_SNAPSHOT, &[]).await?
            }
            answer => answer?,
        };
        let xids = text.split_terminator(',').map(str::parse).collect::<Result<_, _>>();
        xids.map_err(|_| Error::Protocol {
            doing: DOING,
            problem: text,
        })
    }

    /// All problems that a person has to correct before the connector can work. `walsender` says whether the server has accepted a
    /// replication connection; none is needed if only existing rows are read (`initial_only`), which requires less.
    pub(crate) fn problems(
        &self,
        slot: &str,
        publication: &Publication,
        walsender: Option<Result<(), &Error>>,
    ) -> Vec<SetupProblem> {
        let mut problems = Vec::new();
        if self.version < OLDEST_VERSION {
            problems.push(SetupProblem::ServerTooOld { version: self.version });
        }
        let Some(walsender) = walsender else {
            return problems;
        };
        if self.standby && self.version < 160_000 {
            problems.push(SetupProblem::StandbyTooOld { version: self.version });
        }
        if self.wal_level != "logical" {
            problems.push(SetupProblem::WalLevel {
                found: self.wal_level.clone(),
            });
        }
        // The server decides, not the catalog: it may allow replication to members of some role.
        let is_denied =
            |error: &Error| !self.may_replicate || error.server_error().is_some_and(ServerError::is_replication_denied);
        if walsender.is_err_and(is_denied) {
            problems.push(SetupProblem::NoReplication {
                role: self.login.clone(),
                replicators: self.replicators.clone(),
            });
        }
        match &self.slot {
            Some(row) => problems.extend(self.slot_problem(slot, row)),
            // On a standby, a missing slot is not created.
            None if self.slots >= self.max_slots && !self.standby => {
                problems.push(SetupProblem::NoFreeSlots { max: self.max_slots })
            }
            None => {}
        }
        problems.extend(self.publication_problem(publication));
        problems
    }

    fn slot_problem(&self, slot: &str, row: &SlotRow) -> Option<SetupProblem> {
        let slot = slot.to_owned();
        match (&row.plugin, &row.database) {
            (None, _) => Some(SetupProblem::SlotPhysical { slot }),
            (Some(plugin), _) if plugin != "pgoutput" => Some(SetupProblem::SlotPlugin {
                slot,
                plugin: plugin.clone(),
            }),
            (_, Some(database)) if *database != self.database => Some(SetupProblem::SlotDatabase {
                slot,
                database: database.clone(),
                ours: self.database.clone(),
            }),
            // After a promotion, it can be read like any other slot.
            _ if row.synced && self.standby => Some(SetupProblem::SlotSynced { slot }),
            // Where nothing can be prepared, the slot is like any other.
            _ if row.two_phase && self.max_prepared > 0 => Some(SetupProblem::SlotTwoPhase {
                slot,
                database: self.database.clone(),
                may_alter: self.version >= 180_000,
            }),
            _ => None,
        }
    }

    fn publication_problem(&self, publication: &Publication) -> Option<SetupProblem> {
        let name = publication.name.clone();
        match (self.publication, publication.mode) {
            (None, PublicationAutocreate::Disabled) => Some(SetupProblem::PublicationMissing { publication: name }),
            (None, mode) if self.standby => Some(SetupProblem::PublicationMissingOnStandby {
                publication: name,
                statement: match mode {
                    PublicationAutocreate::Filtered => format!("{} FOR TABLE …", publication.create_empty()),
                    _ => publication.create(&[]),
                },
            }),
            (Some(true), PublicationAutocreate::Filtered) => {
                Some(SetupProblem::PublicationOfAllTables { publication: name })
            }
            _ => None,
        }
    }

    /// What to say of a role that is a superuser.
    pub(crate) fn superuser_warning(&self) -> Option<String> {
        self.superuser.then(|| {
            format!(
                "role {:?} is a superuser: whoever may write a signal, the configuration or a trigger of a table that the connector writes to \
                 may do anything on the server",
                self.role
            )
        })
    }

    /// Our slot.
    pub(crate) fn slot(&self) -> Option<FoundSlot> {
        self.slot.as_ref().map(|row| FoundSlot {
            confirmed: row.confirmed_flush_lsn,
            restart: row.restart_lsn,
            alive: row.is_alive(),
            active_pid: row.active_pid,
            reader: None,
            heard: self.heard.clone(),
        })
    }

    /// The server's reason for invalidating our slot.
    pub(crate) fn invalidation(&self) -> Option<&str> {
        let row = self.slot.as_ref()?;
        row.invalidation_reason
            .as_deref()
            .or_else(|| (self.standby && row.conflicting == Some(true)).then_some("conflict"))
    }

    /// Whether the existing slot lacks the failover property, although the server supports it. Matters if
    /// `slot.failover` is set.
    pub(crate) fn lacks_failover(&self) -> bool {
        self.has_failover() && self.slot.as_ref().is_some_and(|row| !row.failover)
    }

    /// Whether the server can create slots that are synchronized to standbys: not on a standby, and not before Postgres
    /// 17.
    pub(crate) fn has_failover(&self) -> bool {
        self.version >= 170_000 && !self.standby
    }

    /// The last position in the server's log.
    pub(crate) fn wal_end(&self) -> Lsn {
        self.wal_end.unwrap_or(Lsn::INVALID)
    }
}

impl SlotRow {
    /// Whether the server still has what the slot needs. `restart_lsn` becomes null when the WAL is removed.
    fn is_alive(&self) -> bool {
        self.restart_lsn.is_some()
            && self.wal_status.as_deref() != Some("lost")
            && self.conflicting != Some(true)
            && self.invalidation_reason.is_none()
    }
}
