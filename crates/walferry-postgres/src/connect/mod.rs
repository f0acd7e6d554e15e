//! The way to a server: address, TLS, authentication and session settings, the same for replication and for SQL.

mod certificate;
mod login;
mod session;
mod sql;
mod sslmode;
mod stream;
mod tls;

use std::future::Future;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use walferry_config::Secret;

pub use sql::Sql;
pub use sslmode::{SslMode, UnknownSslMode};
pub use tls::TlsSettings;

pub(crate) use stream::Stream;

use crate::error::Error;
use crate::wire::Wire;
use sslmode::Encryption;

/// Where the server is and who we are: the `database.*` properties.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `database.hostname`: a name or an address, also IPv6.
    pub host: String,
    /// `database.port`.
    pub port: u16,
    /// `database.dbname`.
    pub database: String,
    /// `database.user`.
    pub user: String,
    /// `database.password`.
    pub password: Option<Secret>,
    /// `database.ssl*`.
    pub tls: TlsSettings,
    /// `database.channelBinding`.
    pub channel_binding: ChannelBinding,
    /// `database.tcpKeepAlive`.
    pub tcp_keepalive: bool,
    /// Limit for reaching one address of the server; as much again for logging in.
    pub connect_timeout: Duration,
    /// `database.options` or `driver.options`: command-line options of the server process, such as `-c work_mem=64MB`.
    pub options: Option<String>,
    /// `database.initial.statements`, run on every SQL connection (never on the replication connection).
    pub initial_statements: Vec<String>,
    /// `database.query.timeout.ms` for statements on SQL connections; zero for none.
    pub query_timeout: Duration,
}

/// `channel_binding` as libpq has it: whether SCRAM is tied to the TLS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// When server and connection allow it.
    #[default]
    Prefer,
    /// Always; a server that does not prove who it is this way is refused.
    Require,
}

/// What a connection is for; shown as its `application_name`, as Debezium's are with its own name in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The replication connection.
    Streaming,
    /// Catalog look-ups, publication, snapshot.
    General,
    /// State of the slots.
    SlotInfo,
    /// Dropping the slot.
    DropSlot,
    /// The checks of `walferry check`.
    Validate,
    /// `heartbeat.action.query`.
    Heartbeat,
}

impl Purpose {
    /// The `application_name`.
    pub fn application_name(self) -> &'static str {
        match self {
            Self::Streaming => "Walferry Streaming",
            Self::General => "Walferry General",
            Self::SlotInfo => "Walferry Slot Info",
            Self::DropSlot => "Walferry Drop Slot",
            Self::Validate => "Walferry Validate Connection",
            Self::Heartbeat => "Walferry Heartbeat",
        }
    }
}

impl Settings {
    /// Host and port, for messages.
    pub fn address(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Opens a connection for ordinary SQL.
    pub async fn sql(&self, purpose: Purpose) -> Result<Sql, Error> {
        self.attempts(|stream| sql::login(self, purpose, stream)).await
    }

    /// Opens a connection for replication commands.
    pub(crate) async fn replication(&self) -> Result<Wire, Error> {
        self.attempts(|stream| login::replication(self, stream)).await
    }

    /// Asks the server to give up what a connection is doing.
    pub(crate) async fn cancel(&self, wire: &Wire) -> Result<(), Error> {
        const DOING: &str = "cancelling a command";
        let encryption = if wire.is_encrypted() {
            Encryption::Tls
        } else {
            Encryption::Plain
        };
        let mut stream = Stream::open(self, encryption).await?;
        let mut request = bytes::BytesMut::new();
        let (process, secret) = wire.cancel_key;
        postgres_protocol::message::frontend::cancel_request(process, secret, &mut request);
        let lost = |source| Error::Lost { doing: DOING, source };
        stream.write_all(&request).await.map_err(lost)?;
        stream.shutdown().await.map_err(lost)
    }

    /// Opens a stream and logs in, in each of the ways that `sslmode` has, until one is let in.
    async fn attempts<T, F>(&self, login: impl Fn(Stream) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut first_refusal = None;
        for (index, encryption) in self.tls.mode.attempts().iter().enumerate() {
            let failure = match self.attempt(*encryption, &login).await {
                Ok(session) => return Ok(session),
                Err(failure) => failure,
            };
            let another_way = index + 1 < self.tls.mode.attempts().len()
                && (failure.is_refused_by_hba() || matches!(failure, Error::TlsHandshake { .. }));
            if another_way {
                first_refusal = Some(failure);
                continue;
            }
            // Of two refusals the one that says more than "not with this encryption" is the true cause.
            return Err(match first_refusal {
                Some(first) if failure.is_refused_by_hba() || matches!(failure, Error::TlsNotOffered { .. }) => first,
                _ => failure,
            });
        }
        unreachable!("the last attempt returns")
    }

    async fn attempt<T, F>(&self, encryption: Encryption, login: impl Fn(Stream) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let stream = Stream::open(self, encryption).await?;
        within(self.connect_timeout, login(stream)).await.unwrap_or_else(|| {
            Err(Error::LoginTimeout {
                address: self.address(),
                seconds: self.connect_timeout.as_secs(),
            })
        })
    }
}

/// The result of a future, or `None` when it takes too long.
pub(crate) async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}
