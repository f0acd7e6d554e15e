//! An error message of the server, and the meaning of its SQLSTATE for a connector.

use std::fmt;
use walferry_diagnosis::Kind;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::{ErrorFields, ErrorResponseBody, NoticeResponseBody};
use walferry_engine::failure::Disposition;
use walferry_engine::gap::GAP;

use crate::quote::identifier;

/// An ErrorResponse or NoticeResponse of the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerError {
    /// SQLSTATE.
    pub code: String,
    /// The primary message.
    pub message: String,
    /// Details.
    pub detail: Option<String>,
    /// The server's own hint.
    pub hint: Option<String>,
    /// Name of the server's function that reported it. It does not depend on the language.
    pub routine: Option<String>,
    /// Where the server was. Of a change in the stream, it has the LSN.
    pub context: Option<String>,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, " ({detail})")?;
        }
        // Nothing else says which change it is about.
        if let Some(context) = self.context.as_ref().filter(|_| self.has_no_utf8()) {
            write!(f, ", {context}")?;
        }
        write!(f, " [SQLSTATE {}]", self.code)
    }
}

impl std::error::Error for ServerError {}

/// Maximum number of characters of a part of a message. Triggers and functions of others choose the texts of errors, which are logged at each try.
const MOST_CHARS: usize = 5_000;

fn clipped(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{} … ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

impl ServerError {
    pub(crate) fn read(body: &ErrorResponseBody) -> Self {
        Self::of_fields(body.fields())
    }

    /// Reads a NoticeResponse.
    pub(crate) fn notice(body: &NoticeResponseBody) -> Self {
        Self::of_fields(body.fields())
    }

    fn of_fields(mut fields: ErrorFields<'_>) -> Self {
        let mut error = Self::default();
        // A field that cannot be read ends the message. The fields before it are kept.
        while let Ok(Some(field)) = fields.next() {
            let text = clipped(&String::from_utf8_lossy(field.value_bytes()));
            match field.type_() {
                b'C' => error.code = text,
                b'M' => error.message = text,
                b'D' => error.detail = Some(text),
                b'H' => error.hint = Some(text),
                b'R' => error.routine = Some(text),
                b'W' => error.context = Some(text),
                _ => {}
            }
        }
        error
    }

    /// The kind, for metrics.
    pub(crate) fn kind(&self) -> Kind {
        match self.code.as_str() {
            "28P01" => Kind::Authentication,
            "28000" => Kind::AccessRefused,
            "3D000" => Kind::DatabaseMissing,
            "42501" => Kind::PrivilegeMissing,
            "53300" => Kind::TooManyConnections,
            "53400" => Kind::NoFreeSlot,
            "55006" => Kind::SlotInUse,
            "57P01" | "57P02" | "57P03" => Kind::ServerNotReady,
            "57014" | "55P03" | "25P03" | "25P04" => Kind::Timeout,
            _ if self.is_slot_lost() => Kind::SlotLost,
            _ if self.is_stream_option() => Kind::StreamOption,
            _ if self.is_synced_slot() => Kind::SlotMismatch,
            _ if self.is_publication_missing() => GAP,
            _ => Kind::ServerError,
        }
    }

    /// Whether the same may succeed later. Retried are: connection failures (08), lack of resources (53), an object in
    /// use (55006), lock, statement and transaction timeouts, a server that starts or stops (57), conflicts (40), and
    /// system and internal errors (58, XX).
    pub(crate) fn disposition(&self) -> Disposition {
        let class = self.code.get(..2).unwrap_or_default();
        let passes = match self.code.as_str() {
            // The pooler will refuse the same again.
            _ if self.is_startup_refused() || self.is_pooler_of_statements() => false,
            // No free slot: somebody must drop one or raise the limit.
            "53400" => false,
            "55006" | "55P03" | "57014" => true,
            // The server has ended the session, because it has heard nothing for too long within a transaction, or the transaction took too long.
            "25P03" | "25P04" => true,
            _ => matches!(class, "08" | "40" | "53" | "57" | "58" | "XX"),
        };
        // At a gap, the connector waits until a person has decided what to do.
        let passes = passes || self.is_publication_missing();
        if passes && !self.is_slot_lost() && !self.is_stream_option() {
            Disposition::Retry
        } else {
            Disposition::stop(self.kind())
        }
    }

    /// The slot was invalidated, or WAL that it needs was removed.
    pub(crate) fn is_slot_lost(&self) -> bool {
        match self.code.as_str() {
            "58P01" => self.message.contains("has already been removed"),
            "55000" => {
                let detail = self.detail.as_deref().unwrap_or_default();
                self.message.contains("can no longer")
                    || self.message.contains("invalidated")
                    || detail.contains("invalidated")
            }
            _ => false,
        }
    }

    /// pgoutput does not know an option, or a value of one. It reports the first as an internal error.
    fn is_stream_option(&self) -> bool {
        match self.code.as_str() {
            "XX000" => self.message.starts_with("unrecognized pgoutput option"),
            "22023" => self.message.starts_with("unrecognized origin value"),
            _ => false,
        }
    }

    /// The publication did not exist when the change that is being decoded was written. This is an error up to Postgres
    /// 17. Since 18 it is only a warning, after which such changes are left out.
    pub(crate) fn is_publication_missing(&self) -> bool {
        let routine = self.routine.as_deref();
        match self.code.as_str() {
            "42704" => routine == Some("get_publication_oid") || self.message.starts_with("publication"),
            "55000" => routine == Some("LoadPublications") || self.message.starts_with("skipped loading publication"),
            _ => false,
        }
    }

    /// The slot is a standby's synchronized copy of the primary's slot (Postgres 17 and later).
    fn is_synced_slot(&self) -> bool {
        let detail = self.detail.as_deref().unwrap_or_default();
        self.code == "55000" && detail.contains("being synchronized from the primary")
    }

    /// A text has bytes that cannot be converted to UTF-8: the database is in SQL_ASCII, which takes any bytes, or its encoding has codes
    /// without a character.
    fn has_no_utf8(&self) -> bool {
        matches!(self.code.as_str(), "22021" | "22P05")
    }

    /// What an operator can do.
    pub(crate) fn remedy(&self) -> Option<String> {
        let known = match self.code.as_str() {
            "28P01" => {
                "check `database.user` and `database.password`; the server says the same of a role that does not exist, has no password, or has \
                 one that has expired (`SELECT rolvaliduntil FROM pg_roles`)"
            }
            // The message ends with what the server missed: "…, no encryption".
            "28000" if self.message.contains("pg_hba.conf") && self.message.ends_with("no encryption") => {
                "set `database.sslmode` to `require` or stricter if the server accepts this user only with TLS, or add a line to its \
                 `pg_hba.conf`, such as `host DATABASE USER ADDRESS/32 scram-sha-256`, and run `SELECT pg_reload_conf()`"
            }
            "28000" if self.message.contains("pg_hba.conf") => {
                "add a line to the server's `pg_hba.conf` that allows this user to connect to this database from this machine, such as \
                 `host DATABASE USER ADDRESS/32 scram-sha-256`, and run `SELECT pg_reload_conf()`; logical replication needs no line for \
                 `replication`"
            }
            "28000" if self.message.contains("not permitted to log in") => {
                let role = self.message.split('"').nth(1).unwrap_or("…");
                return Some(format!("ALTER ROLE {} LOGIN;", identifier(role)));
            }
            "28000" if self.message.contains("client certificate") => "set `database.sslcert` and `database.sslkey`",
            "28000" => "check `database.user`",
            "3D000" => "check `database.dbname`",
            "0A000" if self.message.contains("MULE_INTERNAL") => {
                "Postgres cannot convert this encoding to UTF-8: create the database with ENCODING 'UTF8' or 'EUC_JP', for example, and copy the \
                 rows with pg_dump and pg_restore"
            }
            _ if self.has_no_utf8() => {
                "the encoding of the database (SQL_ASCII, for example) lets in texts that have no form in UTF-8: correct the value in the table. \
                 Where it is a change of the stream, the position names the change"
            }
            "42501" if self.is_of_database() => {
                let database = self.message.split('"').nth(1).unwrap_or("…");
                return Some(format!(
                    "GRANT CONNECT ON DATABASE {} TO …; for the role of `database.user`",
                    identifier(database)
                ));
            }
            "55000" if self.is_of_database() => {
                let database = self.message.split('"').nth(1).unwrap_or("…");
                return Some(format!(
                    "ALTER DATABASE {} ALLOW_CONNECTIONS true;",
                    identifier(database)
                ));
            }
            "42501" if self.is_replication_denied() => {
                "ALTER ROLE … REPLICATION; (on Amazon RDS: GRANT rds_replication TO …;)"
            }
            "42501" if self.is_row_security() => {
                "a snapshot must see all rows: ask a superuser to run ALTER ROLE … BYPASSRLS; for the role of `database.user`, or connect \
                 as the owner of the table, for whom policies hide nothing after ALTER TABLE … NO FORCE ROW LEVEL SECURITY;"
            }
            "53300" if self.message.contains("max_wal_senders") => {
                "raise `max_wal_senders` (this requires a server restart), or close connections listed by `SELECT pid, application_name \
                 FROM pg_stat_replication`"
            }
            "53300" => return Some(self.more_connections()),
            _ if self.is_pooler_without_replication() => {
                "this is a pooler that cannot pass replication on: set `database.hostname` and `database.port` to the server itself, or use \
                 PgBouncer 1.23 or later, or Odyssey"
            }
            _ if self.is_startup_refused() => {
                "a pooler refuses it: remove it from `database.options`, add it to `ignore_startup_parameters` of PgBouncer, or set \
                 `database.hostname` and `database.port` to the server itself"
            }
            _ if self.is_pooler_of_statements() => {
                "this is a pooler that gives a session to each statement, and Walferry needs transactions: set `pool_mode=session` for \
                 this database, or set `database.hostname` and `database.port` to the server itself"
            }
            "25006" => {
                "the server takes no writes: `SHOW default_transaction_read_only` (set for the role, the database or the server, perhaps because \
                 its disk is full: `ALTER SYSTEM RESET default_transaction_read_only`), or `database.hostname` leads to a standby"
            }
            "53400" => {
                "drop a slot that is no longer needed (`SELECT slot_name, active FROM pg_replication_slots`, `SELECT \
                 pg_drop_replication_slot('NAME')`), or raise `max_replication_slots` (this requires a server restart)"
            }
            "55006" => {
                let pid = self
                    .message
                    .rsplit(' ')
                    .next()
                    .filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()));
                return Some(format!(
                    "stop {}, or set `slot.name`",
                    match pid {
                        Some(pid) => format!("process {pid}"),
                        None => "the process that reads the slot".to_owned(),
                    }
                ));
            }
            _ if self.is_slot_lost() => {
                "the server has removed WAL that the slot needs: drop the slot (`SELECT pg_drop_replication_slot('NAME')`) and read all \
                 rows again with `snapshot.mode` = \"when_needed\"; with a larger `max_slot_wal_keep_size` the server keeps more"
            }
            _ if self.is_stream_option() => {
                "remove the option from `slot.stream.params`, or correct it: pgoutput supports `origin` (`none` or `any`) since Postgres 16"
            }
            _ if self.is_synced_slot() => "connect to the primary, or set `slot.name` to another name",
            _ if self.is_publication_missing() => {
                "the publication must exist at the position in the WAL that is being read, not only now: create it, and use `walferry \
                 offsets skip-gap` to decide what happens to the changes that were written without it"
            }
            _ => return self.hint.clone(),
        };
        Some(known.to_owned())
    }

    /// A pooler does not know a parameter of the startup message. Postgres itself never says so.
    pub(crate) fn is_startup_refused(&self) -> bool {
        self.code == "08P01" && self.message.contains("startup parameter")
    }

    /// The log-in is right, and the database is not open to this role.
    fn is_of_database(&self) -> bool {
        self.routine.as_deref() == Some("CheckMyDatabase")
    }

    /// What answers takes a command of the replication protocol for SQL, or does not know the parameter that asks for replication.
    fn is_pooler_without_replication(&self) -> bool {
        self.is_startup_refused() && self.message.contains("replication")
            || self.code == "42601" && self.message.contains("IDENTIFY_SYSTEM")
    }

    /// PgBouncer with `pool_mode=statement`.
    fn is_pooler_of_statements(&self) -> bool {
        self.code == "08P01" && self.message.contains("statement pooling mode")
    }

    /// How to get a further connection. Limits of roles and of databases are not the server's.
    fn more_connections(&self) -> String {
        const NEEDED: &str = "a connector needs 3 connections, and one more for each thread of a snapshot, for incremental snapshots, for \
                              `heartbeat.action.query`, for post-processors, and for each kind of upkeep of an outbox";
        let name = self.message.split('"').nth(1).map(identifier);
        match (self.routine.as_deref(), name) {
            (Some("InitializeSessionUserId"), Some(role)) => {
                format!("raise the limit of the role: ALTER ROLE {role} CONNECTION LIMIT …; {NEEDED}")
            }
            (_, Some(database)) if self.is_of_database() => {
                format!("raise the limit of the database: ALTER DATABASE {database} CONNECTION LIMIT …; {NEEDED}")
            }
            _ => {
                format!("raise `max_connections` (this requires a server restart), or close idle connections; {NEEDED}")
            }
        }
    }

    /// Row-level security would have hidden rows from a session that must see all of them.
    pub(crate) fn is_row_security(&self) -> bool {
        self.code == "42501" && self.message.contains("row-level security")
    }

    /// The role is not allowed to start a walsender, or to use replication slots.
    pub(crate) fn is_replication_denied(&self) -> bool {
        let words = ["replication", "walsender", "WAL sender"];
        self.code == "42501" && words.iter().any(|word| self.message.contains(word))
    }
}

impl From<&tokio_postgres::error::DbError> for ServerError {
    fn from(error: &tokio_postgres::error::DbError) -> Self {
        Self {
            code: error.code().code().to_owned(),
            message: clipped(error.message()),
            detail: error.detail().map(clipped),
            hint: error.hint().map(clipped),
            routine: error.routine().map(clipped),
            context: error.where_().map(clipped),
        }
    }
}

#[cfg(test)]
mod tests {
    use walferry_engine::Exit;

    use super::*;

    #[test]
    fn a_missing_publication_is_known_in_every_language() {
        let error = |code: &str, routine: &str| ServerError {
            code: code.to_owned(),
            message: "Publikation »p« existiert nicht".to_owned(),
            routine: Some(routine.to_owned()),
            ..Default::default()
        };
        let cases = [
            ("42704", "get_publication_oid", true),
            ("55000", "LoadPublications", true),
            ("42704", "get_object_address", false),
            ("55000", "ReplicationSlotAcquire", false),
            ("01000", "LoadPublications", false),
        ];
        for (code, routine, missing) in cases {
            assert_eq!(
                error(code, routine).is_publication_missing(),
                missing,
                "{code} {routine}"
            );
        }
    }

    #[test]
    fn of_the_texts_of_an_error_a_part_is_kept() {
        let long = "ü".repeat(2_000_000);
        let mut body = Vec::new();
        for (kind, text) in [(b'C', "P0001"), (b'M', &long), (b'D', &long), (b'H', "short")] {
            body.push(kind);
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
        body.push(0);
        let mut message = vec![b'E'];
        message.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(&body);
        let mut bytes = bytes::BytesMut::from(&message[..]);
        let parsed = postgres_protocol::message::backend::Message::parse(&mut bytes).unwrap();
        let Some(postgres_protocol::message::backend::Message::ErrorResponse(body)) = parsed else {
            panic!("it is an error")
        };
        let error = ServerError::read(&body);
        assert_eq!(error.hint.as_deref(), Some("short"));
        assert!(error.message.ends_with("ü … (4000000 bytes)"), "its end is missing");
        assert!(error.to_string().chars().count() < 2 * MOST_CHARS + 100);
        assert_eq!(clipped(&"x".repeat(MOST_CHARS)).len(), MOST_CHARS);
    }

    #[test]
    fn bytes_without_utf8_are_told_with_their_position() {
        let error = ServerError {
            code: "22021".into(),
            message: "invalid byte sequence for encoding \"UTF8\": 0xe9".into(),
            context: Some(
                "slot \"s\", output plugin \"pgoutput\", in the change callback, associated LSN 0/1924D70".into(),
            ),
            ..Default::default()
        };
        assert!(error.to_string().contains("associated LSN 0/1924D70"), "{error}");
        assert!(error.remedy().is_some_and(|remedy| remedy.contains("SQL_ASCII")));
        let other = ServerError {
            code: "42P01".into(),
            ..error
        };
        assert!(!other.to_string().contains("LSN"), "{other}");
    }

    #[test]
    fn server_errors_are_retried_or_stop_with_a_remedy() {
        const RETRY: Disposition = Disposition::Retry;
        const STOP: Disposition = Disposition::Stop(Exit::Setup);
        let cases = [
            (
                "28P01",
                "password authentication failed for user \"u\"",
                STOP,
                Kind::Authentication,
                "database.password",
            ),
            (
                "28000",
                "no pg_hba.conf entry for host \"h\", user \"u\"",
                STOP,
                Kind::AccessRefused,
                "pg_hba.conf",
            ),
            (
                "28000",
                "pg_hba.conf rejects connection for host \"h\", user \"u\", database \"d\", no encryption",
                STOP,
                Kind::AccessRefused,
                "database.sslmode",
            ),
            (
                "28000",
                "role \"u\" does not exist",
                STOP,
                Kind::AccessRefused,
                "database.user",
            ),
            (
                "28000",
                "role \"u\" is not permitted to log in",
                STOP,
                Kind::AccessRefused,
                "ALTER ROLE \"u\" LOGIN;",
            ),
            (
                "28000",
                "connection requires a valid client certificate",
                STOP,
                Kind::AccessRefused,
                "database.sslcert",
            ),
            (
                "3D000",
                "database \"d\" does not exist",
                STOP,
                Kind::DatabaseMissing,
                "database.dbname",
            ),
            (
                "42501",
                "must be superuser or replication role to start walsender",
                STOP,
                Kind::PrivilegeMissing,
                "REPLICATION",
            ),
            (
                "42501",
                "permission denied to start WAL sender",
                STOP,
                Kind::PrivilegeMissing,
                "REPLICATION",
            ),
            (
                "53300",
                "sorry, too many clients already",
                RETRY,
                Kind::TooManyConnections,
                "max_connections",
            ),
            (
                "53300",
                "number of requested standby connections exceeds max_wal_senders (currently 10)",
                RETRY,
                Kind::TooManyConnections,
                "max_wal_senders",
            ),
            (
                "53400",
                "all replication slots are in use",
                STOP,
                Kind::NoFreeSlot,
                "max_replication_slots",
            ),
            (
                "55006",
                "replication slot \"s\" is active for PID 4711",
                RETRY,
                Kind::SlotInUse,
                "stop process 4711, or set",
            ),
            (
                "57P03",
                "the database system is starting up",
                RETRY,
                Kind::ServerNotReady,
                "",
            ),
            (
                "57P01",
                "terminating connection due to administrator command",
                RETRY,
                Kind::ServerNotReady,
                "",
            ),
            (
                "57014",
                "canceling statement due to statement timeout",
                RETRY,
                Kind::Timeout,
                "",
            ),
            (
                "25P03",
                "terminating connection due to idle-in-transaction timeout",
                RETRY,
                Kind::Timeout,
                "",
            ),
            (
                "25P04",
                "terminating connection due to transaction timeout",
                RETRY,
                Kind::Timeout,
                "",
            ),
            (
                "58P01",
                "requested WAL segment 0000000100 has already been removed",
                STOP,
                Kind::SlotLost,
                "when_needed",
            ),
            (
                "55000",
                "can no longer get changes from replication slot \"s\"",
                STOP,
                Kind::SlotLost,
                "when_needed",
            ),
            (
                "42704",
                "publication \"p\" does not exist",
                RETRY,
                Kind::PublicationGap,
                "skip-gap",
            ),
            (
                "55000",
                "skipped loading publication \"p\"",
                RETRY,
                Kind::PublicationGap,
                "skip-gap",
            ),
            (
                "55000",
                "can no longer access replication slot \"s\"",
                STOP,
                Kind::SlotLost,
                "when_needed",
            ),
            (
                "XX000",
                "unrecognized pgoutput option: origin",
                STOP,
                Kind::StreamOption,
                "slot.stream.params",
            ),
            (
                "22023",
                "unrecognized origin value: \"some\"",
                STOP,
                Kind::StreamOption,
                "slot.stream.params",
            ),
            ("08006", "connection failure", RETRY, Kind::ServerError, ""),
            ("XX000", "cache lookup failed", RETRY, Kind::ServerError, ""),
            ("42601", "syntax error", STOP, Kind::ServerError, ""),
        ];
        for (code, message, disposition, kind, remedy) in cases {
            let error = ServerError {
                code: code.to_owned(),
                message: message.to_owned(),
                ..Default::default()
            };
            assert_eq!(error.disposition(), disposition, "{message}");
            assert_eq!(error.kind(), kind, "{message}");
            let given = error.remedy().unwrap_or_default();
            assert!(given.contains(remedy), "{message}: {given}");
        }
    }

    #[test]
    fn each_limit_of_connections_has_its_own_remedy() {
        let hint = |message: &str, routine: &str| {
            let error = ServerError {
                code: "53300".to_owned(),
                message: message.to_owned(),
                routine: Some(routine.to_owned()),
                ..Default::default()
            };
            assert_eq!(error.disposition(), Disposition::Retry);
            error.remedy().unwrap()
        };
        let cases = [
            (
                "too many connections for role \"app\"",
                "InitializeSessionUserId",
                "ALTER ROLE \"app\" CONNECTION LIMIT",
            ),
            (
                "too many connections for database \"shop\"",
                "CheckMyDatabase",
                "ALTER DATABASE \"shop\" CONNECTION LIMIT",
            ),
            (
                "sorry, too many clients already",
                "ProcessStartupPacket",
                "raise `max_connections`",
            ),
            (
                "remaining connection slots are reserved for roles with the SUPERUSER attribute",
                "InitPostgres",
                "raise `max_connections`",
            ),
        ];
        for (message, routine, remedy) in cases {
            let hint = hint(message, routine);
            assert!(
                hint.contains(remedy) && hint.contains("a connector needs 3 connections"),
                "{hint}"
            );
        }
    }

    #[test]
    fn a_database_that_is_closed_to_the_role_is_opened_with_the_statement_in_the_hint() {
        let cases = [
            (
                "42501",
                "permission denied for database \"Shop\"",
                "GRANT CONNECT ON DATABASE \"Shop\" TO",
            ),
            (
                "55000",
                "database \"Shop\" is not currently accepting connections",
                "ALTER DATABASE \"Shop\" ALLOW_CONNECTIONS true;",
            ),
        ];
        for (code, message, remedy) in cases {
            let error = ServerError {
                code: code.to_owned(),
                message: message.to_owned(),
                routine: Some("CheckMyDatabase".to_owned()),
                ..Default::default()
            };
            let hint = error.remedy().unwrap_or_default();
            assert!(hint.contains(remedy), "{hint}");
        }
    }

    #[test]
    fn what_a_pooler_refuses_is_not_tried_again() {
        let error = |code: &str, message: &str| ServerError {
            code: code.to_owned(),
            message: message.to_owned(),
            ..Default::default()
        };
        for (code, message, remedy) in [
            (
                "08P01",
                "unsupported startup parameter in options: work_mem",
                "ignore_startup_parameters",
            ),
            ("08P01", "unsupported startup parameter: replication", "PgBouncer 1.23"),
            ("42601", "syntax error at or near \"IDENTIFY_SYSTEM\"", "PgBouncer 1.23"),
            (
                "08P01",
                "transaction blocks not allowed in statement pooling mode",
                "pool_mode=session",
            ),
            (
                "0A000",
                "conversion between UTF8 and MULE_INTERNAL is not supported",
                "ENCODING 'UTF8'",
            ),
        ] {
            let error = error(code, message);
            assert!(matches!(error.disposition(), Disposition::Stop(_)), "{message}");
            assert!(error.remedy().unwrap().contains(remedy), "{message}");
        }
        assert_eq!(
            error("08P01", "invalid message length").disposition(),
            Disposition::Retry
        );
        assert!(
            error("25006", "cannot execute CREATE PUBLICATION in a read-only transaction")
                .remedy()
                .is_some()
        );
    }
}
