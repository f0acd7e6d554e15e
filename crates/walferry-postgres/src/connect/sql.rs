//! A connection for ordinary SQL: `tokio-postgres` over our own stream.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io::ErrorKind;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::config::{ChannelBinding as Binding, SslMode as TlsUse, SslNegotiation};
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::types::{FromSqlOwned, ToSql, Type};
use tokio_postgres::{Client, CopyOutStream, Row, SimpleQueryMessage, Statement};
use walferry_config::connector::{ChannelBinding, PostgresSection};

use super::session::options;
use super::{Purpose, Stream, within};
use crate::error::Error;

const DOING: &str = "logging in";

/// The driver's error for a statement that failed.
pub(crate) type Refused = tokio_postgres::Error;

/// A SQL session with the settings of `session.rs`. Dropping it ends the connection.
#[derive(Debug)]
pub struct Sql {
    client: Client,
    connection: JoinHandle<()>,
    /// How long a statement may take. `None`: without limit.
    limit: Option<Duration>,
}

/// A live server ends a statement at `statement_timeout`. A server that has not done so after this additional time is
/// dead.
const GRACE: Duration = Duration::from_secs(10);

impl Sql {
    /// All rows of a statement, in one round trip. The parameter types are given, so the server need not be asked for
    /// them.
    pub(crate) async fn rows(
        &self,
        doing: &'static str,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        self.answer(doing, self.client.query_typed(sql, parameters))
            .await?
            .map_err(|error| Error::sql(doing, error))
    }

    /// The first row of a statement that always returns one.
    ///
    /// # Errors
    /// The statement failed, the connection was lost, or there is no row.
    pub(crate) async fn row(
        &self,
        doing: &'static str,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, Error> {
        let rows = self.rows(doing, sql, parameters).await?;
        rows.into_iter().next().ok_or_else(|| Error::no_row(doing))
    }

    /// All rows of a statement, as text. Several statements may be sent at once; they then share one round trip.
    pub(crate) async fn texts(&self, doing: &'static str, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        let answer = self.answer(doing, self.client.simple_query(sql)).await?;
        let messages = answer.map_err(|error| Error::sql(doing, error))?;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|place| row.get(place).map(str::to_owned)).collect())
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// The first column of the first row.
    pub(crate) async fn value<T: FromSqlOwned>(
        &self,
        doing: &'static str,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<T, Error> {
        let row = self.row(doing, sql, parameters).await?;
        row.try_get(0).map_err(|error| Error::sql(doing, error))
    }

    /// Runs statements without parameters or results.
    ///
    /// # Errors
    /// The statement failed, or the connection was lost.
    pub async fn execute(&self, doing: &'static str, sql: &str) -> Result<(), Error> {
        self.try_execute(doing, sql)
            .await?
            .map_err(|error| Error::sql(doing, error))
    }

    /// The same, but returns the driver's error if the server refuses the statement.
    pub(crate) async fn try_execute(&self, doing: &'static str, sql: &str) -> Result<Result<(), Refused>, Error> {
        self.answer(doing, self.client.batch_execute(sql)).await
    }

    /// Prepares a statement. Returns the driver's error if the server refuses it.
    pub(crate) async fn prepare(&self, doing: &'static str, sql: &str) -> Result<Result<Statement, Refused>, Error> {
        self.answer(doing, self.client.prepare(sql)).await
    }

    /// Begins a COPY. The caller sets a limit for this and for each row.
    pub(crate) async fn copy_out(&self, sql: &str) -> Result<CopyOutStream, Refused> {
        self.client.copy_out(sql).await
    }

    /// Waits for an answer within the limit. After the limit the connection is closed, since the statement may still
    /// run.
    async fn answer<T>(&self, doing: &'static str, answer: impl Future<Output = T>) -> Result<T, Error> {
        let Some(limit) = self.limit else {
            return Ok(answer.await);
        };
        match within(limit, answer).await {
            Some(answer) => Ok(answer),
            None => Err(self.fell_silent(doing, limit)),
        }
    }

    /// Closes the connection of a silent server, and returns the error.
    pub(crate) fn fell_silent(&self, doing: &'static str, limit: Duration) -> Error {
        self.connection.abort();
        Error::Silent {
            doing,
            seconds: limit.as_secs(),
        }
    }

    /// Whether the connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

impl Drop for Sql {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Logs in for SQL over a stream on which TLS, if any, is already set up.
pub(super) async fn login(settings: &PostgresSection, purpose: Purpose, stream: Stream) -> Result<Sql, Error> {
    let mut config = tokio_postgres::Config::new();
    config
        .user(&settings.user)
        .dbname(&settings.dbname)
        .application_name(purpose.application_name())
        .options(options(settings))
        .channel_binding(match settings.channel_binding {
            ChannelBinding::Disable => Binding::Disable,
            ChannelBinding::Prefer => Binding::Prefer,
            ChannelBinding::Require => Binding::Require,
        })
        // "Direct" makes the driver hand the stream to the connector at once, without negotiating TLS itself.
        .ssl_mode(TlsUse::Require)
        .ssl_negotiation(SslNegotiation::Direct);
    if let Some(password) = &settings.password {
        config.password(password.expose());
    }
    let (client, connection) = config.connect_raw(stream, Negotiated).await.map_err(login_error)?;
    let connection = tokio::spawn(async move {
        // The next statement reports why the connection ended.
        let _ = connection.await;
    });
    let limit = Some(settings.query_timeout).filter(|limit| !limit.is_zero());
    let sql = Sql {
        client,
        connection,
        limit: limit.map(|limit| limit + GRACE),
    };
    if !settings.initial_statements.is_empty() {
        sql.execute(
            "running database.initial.statements",
            &settings.initial_statements.join(";\n"),
        )
        .await?;
    }
    Ok(sql)
}

/// Before the session exists, an error that comes neither from the server nor from the network is about authentication.
fn login_error(error: tokio_postgres::Error) -> Error {
    match Error::sql(DOING, error) {
        Error::Protocol { problem, .. } => Error::Authentication { problem },
        Error::Lost { source, .. } if matches!(source.kind(), ErrorKind::InvalidInput | ErrorKind::Other) => {
            Error::Authentication {
                problem: source.to_string(),
            }
        }
        other => other,
    }
}

/// Hands over the stream that [`Stream::open`] has opened.
struct Negotiated;

impl TlsConnect<Stream> for Negotiated {
    type Stream = Stream;
    type Error = Infallible;
    type Future = Ready<Result<Stream, Infallible>>;

    fn connect(self, stream: Stream) -> Self::Future {
        ready(Ok(stream))
    }
}
