//! An error message of the server, and what its SQLSTATE means for a connector.

use std::fmt;

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorResponseBody;
use walferry_engine::failure::{Disposition, Exit};

/// What the server said in an ErrorResponse.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerError {
    /// SQLSTATE.
    pub code: String,
    /// The primary message.
    pub message: String,
    /// More about it.
    pub detail: Option<String>,
    /// What the server itself proposes.
    pub hint: Option<String>,
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, " ({detail})")?;
        }
        write!(f, " [SQLSTATE {}]", self.code)
    }
}

impl std::error::Error for ServerError {}

impl ServerError {
    pub(crate) fn read(body: &ErrorResponseBody) -> Self {
        let mut error = Self::default();
        let mut fields = body.fields();
        // A field that cannot be read ends the message: what came before it is all there is to say.
        while let Ok(Some(field)) = fields.next() {
            let text = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => error.code = text,
                b'M' => error.message = text,
                b'D' => error.detail = Some(text),
                b'H' => error.hint = Some(text),
                _ => {}
            }
        }
        error
    }

    /// A constant word for metrics.
    pub(crate) fn kind(&self) -> &'static str {
        match self.code.as_str() {
            "28P01" => "authentication",
            "28000" => "access_refused",
            "3D000" => "database_missing",
            "42501" => "privilege_missing",
            "53300" => "too_many_connections",
            "53400" => "no_free_slot",
            "55006" => "slot_in_use",
            "57P01" | "57P02" | "57P03" => "server_not_ready",
            "57014" | "55P03" => "timeout",
            "58P01" => "wal_removed",
            _ => "server_error",
        }
    }

    /// Whether the same may work later. Retried are: connection trouble (08), lack of resources (53), an object in use
    /// (55006), lock and statement timeouts, a server that starts or stops (57), conflicts (40).
    pub(crate) fn disposition(&self) -> Disposition {
        let class = self.code.get(..2).unwrap_or_default();
        let passes = match self.code.as_str() {
            // No free slot: somebody must drop one or raise the limit.
            "53400" => false,
            "55006" | "55P03" | "57014" => true,
            _ => matches!(class, "08" | "40" | "53" | "57" | "58" | "XX"),
        };
        if passes && !self.is_wal_removed() {
            Disposition::Retry
        } else {
            Disposition::Stop(Exit::Setup)
        }
    }

    /// The segment that the slot or the offset needs is gone.
    pub(crate) fn is_wal_removed(&self) -> bool {
        self.code == "58P01" && self.message.contains("has already been removed")
    }

    /// What an operator can do.
    pub(crate) fn remedy(&self) -> Option<String> {
        let known = match self.code.as_str() {
            "28P01" => "check `database.user` and `database.password`",
            "28000" if self.message.contains("pg_hba.conf") => {
                "add a line to the server's `pg_hba.conf` that lets this user reach this database from this machine, such as \
                 `host DATABASE USER ADDRESS/32 scram-sha-256`, and run `SELECT pg_reload_conf()`; logical replication needs \
                 no line for `replication`"
            }
            "28000" if self.message.contains("not permitted to log in") => "ALTER ROLE the_user LOGIN;",
            "28000" => "check `database.user`",
            "3D000" => "check `database.dbname`",
            "42501" if self.is_replication_denied() => {
                "ALTER ROLE the_user REPLICATION; (on Amazon RDS: GRANT rds_replication TO the_user;)"
            }
            "53300" if self.message.contains("max_wal_senders") => {
                "raise `max_wal_senders` (takes a restart of the server), or end connections that `SELECT pid, application_name \
                 FROM pg_stat_replication` shows"
            }
            "53300" => "raise `max_connections`, or end idle connections",
            "53400" => {
                "drop a slot that nobody needs (`SELECT slot_name, active FROM pg_replication_slots`, `SELECT \
                 pg_drop_replication_slot('NAME')`), or raise `max_replication_slots` (takes a restart of the server)"
            }
            "55006" => "another process reads the slot; stop it, or set `slot.name`",
            _ => return self.hint.clone(),
        };
        Some(known.to_owned())
    }

    /// The role may not start a walsender, or may not use replication slots.
    pub(crate) fn is_replication_denied(&self) -> bool {
        self.code == "42501" && (self.message.contains("replication") || self.message.contains("walsender"))
    }
}

impl From<&tokio_postgres::error::DbError> for ServerError {
    fn from(error: &tokio_postgres::error::DbError) -> Self {
        Self {
            code: error.code().code().to_owned(),
            message: error.message().to_owned(),
            detail: error.detail().map(ToOwned::to_owned),
            hint: error.hint().map(ToOwned::to_owned),
        }
    }
}
