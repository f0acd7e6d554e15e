//! Connections to a server: address, TLS, authentication and session settings, for both replication and SQL.

mod channel_binding;
#[cfg(test)]
mod java_verdicts;
mod login;
mod methods;
pub(crate) mod money;
mod one_server;
mod pinned;
mod plain_text;
mod purpose;
pub(crate) mod server_error;
mod session;
mod sql;
mod sslmode;
mod stream;
mod time_limit;
mod tls;
pub(crate) mod wire;

use std::future::Future;
use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use walferry_config::connector::PostgresSection;
use walferry_diagnosis::Diagnosis;
use walferry_engine::status::Status;

pub use methods::AuthRefusal;
pub use purpose::Purpose;
pub use sql::Sql;
pub use walferry_keystore::trust::Refusal;

pub(crate) use stream::Stream;
pub(crate) use time_limit::within;

use crate::connection::wire::Wire;
use crate::error::Error;
use one_server::OneServer;
use plain_text::PlainText;
use session::{Startup, StartupRefused};
use sslmode::Encryption;

/// Where the server is and who we are.
#[derive(Debug, Clone)]
pub struct Endpoint {
    settings: PostgresSection,
    /// The server that all connections must reach, if they must all reach the same one.
    one_server: Option<OneServer>,
    plain_text: PlainText,
    /// Whether a pooler refuses settings at startup.
    startup_refused: StartupRefused,
}

/// Removes the time limits of a session. Skips limits that the server's version does not have.
pub(crate) const LIFT_LIMITS: &str = "
    SELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings
    WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout')";

/// Makes the server refuse a statement if row-level security would hide rows from it. Otherwise it would answer without
/// them.
pub(crate) const ALL_ROWS: &str = "SET row_security = off";

impl Endpoint {
    /// Does not connect yet.
    pub fn new(settings: PostgresSection) -> Self {
        Self {
            settings,
            one_server: None,
            plain_text: PlainText::default(),
            startup_refused: StartupRefused::default(),
        }
    }

    /// The same, whose connections must all reach one server. Clones share this.
    pub(crate) fn of_one_server(self) -> Self {
        Self {
            one_server: Some(OneServer::default()),
            ..self
        }
    }

    /// The same, which shows on the page that a connection is not encrypted although the server offers it.
    pub(crate) fn shown_by(self, status: Arc<Status>) -> Self {
        Self {
            plain_text: self.plain_text.shown_by(status),
            ..self
        }
    }

    /// The warning about a connection that is not encrypted although the server offers it.
    pub(crate) fn plain_text(&self) -> Option<Diagnosis> {
        self.plain_text.warning()
    }

    /// From the next connection on, it may be another server.
    pub(crate) fn forget_server(&self) {
        if let Some(server) = &self.one_server {
            server.forget();
        }
    }

    /// Host and port, for messages.
    pub fn address(&self) -> String {
        stream::host_and_port(&self.settings)
    }

    /// Opens a connection for ordinary SQL.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses the connection.
    pub async fn sql(&self, purpose: Purpose) -> Result<Sql, Error> {
        let sql = self
            .log_in(|startup, stream| sql::login(&self.settings, purpose, startup, stream))
            .await?;
        if let Some(server) = &self.one_server {
            let started = self.in_time(sql.texts(one_server::DOING, one_server::QUERY)).await?;
            server.reached(&self.address(), started)?;
        }
        Ok(sql)
    }

    /// Opens a connection for replication commands.
    pub(crate) async fn replication(&self) -> Result<Wire, Error> {
        let mut wire = self
            .log_in(|startup, stream| login::replication(&self.settings, startup, stream))
            .await?;
        if let Some(server) = &self.one_server {
            let started = self.in_time(wire.command(one_server::DOING, one_server::QUERY)).await?;
            server.reached(&self.address(), started)?;
        }
        Ok(wire)
    }

    /// The result of what belongs to the login.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        within(self.settings.connect_timeout, work).await.unwrap_or_else(|| {
            Err(Error::LoginTimeout {
                address: self.address(),
                seconds: self.settings.connect_timeout.as_secs(),
            })
        })
    }

    /// Asks the server to cancel the command of a connection.
    pub(crate) async fn cancel(&self, wire: &Wire) -> Result<(), Error> {
        const DOING: &str = "cancelling a command";
        let encryption = if wire.is_encrypted() {
            Encryption::Tls
        } else {
            Encryption::Plain
        };
        let mut request = bytes::BytesMut::new();
        let (process, secret) = wire.cancel_key;
        postgres_protocol::message::frontend::cancel_request(process, secret, &mut request);
        let lost = |source| Error::lost(DOING, source);
        let send = |mut stream: Stream| async move {
            stream.write_all(&request).await.map_err(lost)?;
            stream.shutdown().await.map_err(lost)
        };
        self.attempt(encryption, send).await
    }

    /// Asks the server to cancel the statement of a session.
    pub(crate) async fn cancel_statement(&self, sql: &Sql) -> Result<(), Error> {
        self.attempts(|stream| sql.cancel(stream)).await
    }

    /// Opens a stream and logs in, without settings if a pooler refuses them.
    async fn log_in<T, F>(&self, login: impl Fn(Startup, Stream) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let startup = self.startup_refused.startup();
        match self.attempts(|stream| login(startup, stream)).await {
            Err(error) if startup == Startup::Full && error.is_startup_refused() => {
                self.startup_refused.refuse();
                self.attempts(|stream| login(Startup::Bare, stream)).await
            }
            done => done,
        }
    }

    /// Opens a stream and logs in. Tries each way that `sslmode` allows until one succeeds.
    async fn attempts<T, F>(&self, login: impl Fn(Stream) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut first_refusal = None;
        let attempts = sslmode::attempts(self.settings.sslmode);
        for (index, encryption) in attempts.iter().enumerate() {
            let failure = match self.attempt(*encryption, &login).await {
                Ok(session) => {
                    if let (Encryption::Plain, Some(refusal)) = (encryption, &first_refusal) {
                        self.plain_text.is_used(&self.address(), refusal);
                    }
                    return Ok(session);
                }
                Err(failure) => failure,
            };
            let another_way = index + 1 < attempts.len()
                && (failure.is_refused_by_hba() || matches!(failure, Error::TlsHandshake { .. }));
            if another_way {
                first_refusal = Some(failure);
                continue;
            }
            // Of two refusals, report the more specific one, not "not with this encryption".
            return Err(match first_refusal {
                Some(first) if failure.is_refused_by_hba() || matches!(failure, Error::TlsNotOffered { .. }) => first,
                _ => failure,
            });
        }
        unreachable!("the last attempt returns")
    }

    async fn attempt<T, F>(&self, encryption: Encryption, login: impl FnOnce(Stream) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let socket = Stream::reach(&self.settings).await?;
        let login = async { login(Stream::open(&self.settings, socket, encryption).await?).await };
        self.in_time(login).await
    }
}

#[cfg(test)]
impl Endpoint {
    /// An address that nobody connects to.
    pub(crate) fn nowhere() -> Self {
        use std::time::Duration;

        use walferry_config::{HostName, Value};

        Self::new(PostgresSection {
            hostname: HostName::parse("localhost").unwrap(),
            port: 1,
            user: "u".to_owned(),
            password: None,
            dbname: "d".to_owned(),
            sslmode: Default::default(),
            sslrootcert: None,
            sslcrl: None,
            sslcert: None,
            sslkey: None,
            sslkey_check_mode: true,
            sslpassword: None,
            require_auth: None,
            channel_binding: Default::default(),
            tcp_keepalive: true,
            connect_timeout: Duration::from_secs(1),
            initial_statements: Vec::new(),
            query_timeout: Duration::ZERO,
            options: None,
            ssl_negotiation: Default::default(),
        })
    }
}
