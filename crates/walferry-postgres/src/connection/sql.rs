//! A connection for ordinary SQL: `tokio-postgres` over our own stream.

use std::convert::Infallible;
use std::future::{Future, Ready, poll_fn, ready};
use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use futures_util::TryStreamExt;
use tokio::sync::{Notify, OnceCell};
use tokio::task::JoinHandle;
use tokio_postgres::config::{ChannelBinding as Binding, SslMode as TlsUse, SslNegotiation};
use tokio_postgres::tls::TlsConnect;
use tokio_postgres::types::{FromSqlOwned, ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, CopyOutStream, Row, SimpleQueryMessage, Statement};
use walferry_config::connector::{ChannelBinding, PostgresSection};

use super::pinned::{self, Pinned};
use super::session::{Startup, options};
use super::{Purpose, Stream, within};
use crate::encoding::TextEncoding;
use crate::error::Error;
use crate::quote::literal;

const DOING: &str = "logging in";

/// The driver's error for a statement that failed.
pub(crate) type Refused = tokio_postgres::Error;

/// A SQL session with the settings of `session.rs`. Dropping it ends the connection.
#[derive(Debug)]
pub struct Sql {
    client: Client,
    connection: JoinHandle<()>,
    /// Something was notified on a channel that the session listens to, or the connection has ended.
    notified: Arc<Notify>,
    /// How long a statement may take. `None`: without limit.
    limit: Option<Duration>,
    /// What the role's own session settings are.
    own: RoleSettings,
    pinned: Pinned,
    /// The encoding in which [`Sql::copy_out`] brings rows.
    encoding: TextEncoding,
    /// How many decimal places `money` has in this database, once that was read.
    pub(super) money_digits: OnceCell<u16>,
    /// See [`Sql::statements`].
    statements: AtomicU64,
}

/// Settings of the role, for SQL that the user wrote.
#[derive(Debug, Clone, Default)]
struct RoleSettings {
    search_path: String,
    /// Whether a backslash in `'…'` is an escape.
    has_backslash_escapes: bool,
}

/// A table may be replaced by a view of the same name between two statements, whose functions would run as the connector's role. Only views: a
/// partition may well be a foreign table.
const REFUSE_VIEWS: &str = "SELECT pg_catalog.set_config(name, 'view', false) FROM pg_catalog.pg_settings WHERE name = 'restrict_nonsystem_relation_kind'";
const REFUSE_VIEWS_AGAIN: &str = "SELECT pg_catalog.set_config(name, 'view', true) FROM pg_catalog.pg_settings WHERE name = 'restrict_nonsystem_relation_kind'";
const ALLOW_VIEWS: &str = "SELECT pg_catalog.set_config(name, '', true) FROM pg_catalog.pg_settings WHERE name = 'restrict_nonsystem_relation_kind'";

/// The savepoint to which a transaction goes back after SQL of the user's.
const OF_USER: &str = "of_user";

/// A live server ends a statement at `statement_timeout`. A server that has not done so after this additional time is
/// dead.
const GRACE: Duration = Duration::from_secs(10);

impl Sql {
    /// All rows of a statement, in one round trip. The parameter types are given, so the server need not be asked for
    /// them.
    ///
    /// # Errors
    /// The statement failed, or the connection was lost.
    pub async fn rows(
        &self,
        doing: &'static str,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Vec<Row>, Error> {
        let rows = self.client.query_typed(sql, parameters);
        if !self.pinned.needs_transaction() {
            return self
                .answer(doing, rows)
                .await?
                .map_err(|error| Error::sql(doing, error));
        }
        let (begin, end) = (
            self.client.batch_execute(pinned::BEGIN),
            self.client.batch_execute(pinned::COMMIT),
        );
        // All are sent at once. If the statement fails, the last one rolls back.
        let together = async { tokio::join!(begin, rows, end) };
        let (begun, rows, ended) = self.answer(doing, together).await?;
        begun
            .and(rows)
            .and_then(|rows| ended.map(|()| rows))
            .map_err(|error| Error::sql(doing, error))
    }

    /// The first row of a statement that always returns one.
    ///
    /// # Errors
    /// The statement failed, the connection was lost, or there is no row.
    pub async fn row(
        &self,
        doing: &'static str,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, Error> {
        let rows = self.rows(doing, sql, parameters).await?;
        rows.into_iter().next().ok_or_else(|| Error::no_row(doing))
    }

    /// All rows of a statement, as text. Several statements may be sent at once; they then share one round trip.
    ///
    /// # Errors
    /// The statement failed, or the connection was lost.
    pub async fn texts(&self, doing: &'static str, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error> {
        let answer = self.simple(doing, sql).await?;
        let messages = answer.map_err(|error| Error::sql(doing, error))?;
        let rows = messages.into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|place| row.get(place).map(str::to_owned)).collect())
            }
            SimpleQueryMessage::CommandComplete(_) => {
                self.statements.fetch_add(1, Relaxed);
                None
            }
            _ => None,
        });
        Ok(rows.collect())
    }

    /// Like [`Sql::texts`], but lends the values of each row to `take` as they arrive, so that not all of them are in memory at once. Once `take` breaks,
    /// nothing more is read, and the connection is closed: the server rolls back what was begun.
    ///
    /// # Errors
    /// The statement failed, or the connection was lost.
    pub async fn each_text(
        &self,
        doing: &'static str,
        sql: &str,
        mut take: impl FnMut(&[Option<&str>]) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Error> {
        let statements = self.pinned.statements(sql);
        let reading = async {
            let mut messages = pin!(self.client.simple_query_raw(&statements).await?);
            while let Some(message) = messages.try_next().await? {
                if matches!(message, SimpleQueryMessage::CommandComplete(_)) {
                    self.statements.fetch_add(1, Relaxed);
                }
                if let SimpleQueryMessage::Row(row) = message {
                    let values: Vec<Option<&str>> = (0..row.len()).map(|place| row.get(place)).collect();
                    if take(&values).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        let answer = self.answer(doing, reading).await?;
        self.pinned.ran(sql, answer.is_ok());
        if matches!(answer, Ok(ControlFlow::Break(()))) {
            self.connection.abort();
        }
        answer.map_err(|error| Error::sql(doing, error))
    }

    /// How many statements the server has run for [`Sql::texts`], those that set the path included.
    pub fn statements(&self) -> u64 {
        self.statements.load(Relaxed)
    }

    /// The names of the columns of a statement, which is run. Returns the driver's error if the server refuses it.
    pub(crate) async fn columns(&self, doing: &'static str, sql: &str) -> Result<Result<Vec<String>, Refused>, Error> {
        let answer = self.simple(doing, sql).await?;
        Ok(answer.map(|messages| {
            let columns = messages.iter().find_map(|message| match message {
                SimpleQueryMessage::RowDescription(columns) => {
                    Some(columns.iter().map(|column| column.name().to_owned()))
                }
                _ => None,
            });
            columns.into_iter().flatten().collect()
        }))
    }

    /// The first column of the first row.
    ///
    /// # Errors
    /// The statement failed, the connection was lost, there is no row, or the value is of another type.
    pub async fn value<T: FromSqlOwned>(
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
        let statements = self.pinned.statements(sql);
        let answer = self.answer(doing, self.client.batch_execute(&statements)).await?;
        self.pinned.ran(sql, answer.is_ok());
        Ok(answer)
    }

    /// The same, with what the statements answer.
    async fn simple(&self, doing: &'static str, sql: &str) -> Result<Result<Vec<SimpleQueryMessage>, Refused>, Error> {
        let statements = self.pinned.statements(sql);
        let answer = self.answer(doing, self.client.simple_query(&statements)).await?;
        self.pinned.ran(sql, answer.is_ok());
        Ok(answer)
    }

    /// From here on, reading a view that is not Postgres' own is an error. Not behind a pooler, where others would get this session.
    pub(crate) async fn refuse_views(&self, doing: &'static str) -> Result<(), Error> {
        match self.pinned.has_session() {
            true => self.execute(doing, REFUSE_VIEWS).await,
            false => Ok(()),
        }
    }

    /// Within a transaction: statements run with the role's own settings until [`Sql::end_of_user`] or the transaction's end. For SQL that the user
    /// wrote.
    pub(crate) async fn begin_of_user(&self, doing: &'static str) -> Result<(), Error> {
        self.execute(doing, &format!("SAVEPOINT {OF_USER}; {}", self.of_user()))
            .await
    }

    /// Between two statements with SQL of the user's in them. A function that the first one has called may have set how the server reads the second.
    pub(crate) async fn go_on_of_user(&self, doing: &'static str) -> Result<(), Error> {
        self.execute(doing, &self.of_user()).await
    }

    /// Within a transaction: statements are Walferry's own again. What functions have set in the session since [`Sql::begin_of_user`] is undone, and
    /// locks that were taken are released.
    pub(crate) async fn end_of_user(&self, doing: &'static str) -> Result<(), Error> {
        self.execute(
            doing,
            &format!("ROLLBACK TO SAVEPOINT {OF_USER}; RELEASE SAVEPOINT {OF_USER}"),
        )
        .await
    }

    /// The same, but locks are kept. Of what functions have set, only what Walferry's own statements need is undone.
    pub(crate) async fn end_of_user_with_locks(&self, doing: &'static str) -> Result<(), Error> {
        let statements = format!(
            "{}; {}; {REFUSE_VIEWS_AGAIN}; RELEASE SAVEPOINT {OF_USER}",
            self.reading_of_sql(),
            pinned::SET_LOCAL
        );
        self.execute(doing, &statements).await
    }

    /// One statement with the role's own settings, in a transaction of its own. For writes into tables of the user's, whose triggers expect them.
    pub(crate) async fn execute_as_user(&self, doing: &'static str, statement: &str) -> Result<(), Error> {
        self.execute(doing, &format!("{}; {statement}", self.of_user())).await
    }

    fn of_user(&self) -> String {
        // Between two statements, the path is the role's already: Walferry's own SELECT needs its path again.
        format!(
            "{}; {}; {ALLOW_VIEWS}; SELECT {}",
            self.reading_of_sql(),
            pinned::SET_LOCAL,
            self.own_path()
        )
    }

    /// Sets what decides where a text in SQL ends, as [`stays_enclosed`](crate::snapshot::statement::stays_enclosed) has assumed it: whether a backslash
    /// is an escape, and which bytes are one character.
    fn reading_of_sql(&self) -> String {
        let conforming = if self.has_backslash_escapes() { "off" } else { "on" };
        format!("SET LOCAL client_encoding = 'UTF8'; SET LOCAL standard_conforming_strings = {conforming}")
    }

    /// Begins a transaction with what Walferry's own statements need, whatever a trigger has set in the session before. `begin` is a BEGIN.
    pub(crate) async fn begin_pinned(&self, doing: &'static str, begin: &str) -> Result<(), Error> {
        self.execute(
            doing,
            &format!("{begin}; {}; {}", self.reading_of_sql(), pinned::SET_LOCAL),
        )
        .await
    }

    /// An expression that sets the role's own `search_path` while the statement runs, until the transaction ends. Names in the statement were
    /// looked up before.
    pub fn own_path(&self) -> String {
        format!(
            "pg_catalog.set_config('search_path', {}, true)",
            literal(&self.own.search_path)
        )
    }

    /// A statement that sets the path of Walferry's own statements again, if a transaction goes on.
    pub(crate) const PIN_AGAIN: &str = pinned::AGAIN;

    /// Whether a backslash in `'…'` is an escape in SQL that the user wrote.
    pub(crate) fn has_backslash_escapes(&self) -> bool {
        self.own.has_backslash_escapes
    }

    /// Notes what the role has, and pins what Walferry's own statements need.
    async fn pin(&mut self) -> Result<(), Error> {
        // The first statement still runs with the role's path. Without a process id, nothing is certain of the session.
        let is_ours = pinned::process_id(&self.client.cancel_token()).await.map_or_else(
            || "false".to_owned(),
            |process| format!("pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) {process}"),
        );
        let pin = format!(
            "SELECT pg_catalog.current_setting('search_path'), pg_catalog.current_setting('standard_conforming_strings'), {is_ours},
               pg_catalog.current_setting('server_encoding');
             SELECT pg_catalog.set_config('search_path', '{}', false) WHERE {is_ours}",
            pinned::PATH
        );
        let rows = self.texts(DOING, &pin).await?;
        let own = rows.into_iter().next().ok_or_else(|| Error::no_row(DOING))?;
        let mut own = own.into_iter().flatten();
        self.own = RoleSettings {
            search_path: own.next().unwrap_or_default(),
            has_backslash_escapes: own.next().as_deref() == Some("off"),
        };
        self.pinned = Pinned::new(own.next().as_deref() == Some("t"));
        self.encoding = own
            .next()
            .map_or_else(TextEncoding::default, |name| TextEncoding::of_database(&name));
        Ok(())
    }

    /// Prepares a statement. Returns the driver's error if the server refuses it.
    pub(crate) async fn prepare(&self, doing: &'static str, sql: &str) -> Result<Result<Statement, Refused>, Error> {
        self.answer(doing, self.client.prepare(sql)).await
    }

    /// Begins a `COPY … TO STDOUT`, whose rows are in the [encoding](Self::encoding) of the session. The caller sets a limit for this and for each row.
    pub(crate) async fn copy_out(&self, sql: &str) -> Result<CopyOutStream, Refused> {
        match self.encoding.is_raw() {
            true => self.client.copy_out(&format!("{sql} (ENCODING 'SQL_ASCII')")).await,
            false => self.client.copy_out(sql).await,
        }
    }

    /// The encoding of the rows of [`Sql::copy_out`].
    pub(crate) fn encoding(&self) -> &TextEncoding {
        &self.encoding
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

    /// From now on, waits no longer than this for a statement. The server's own limit may be turned off by a trigger, or end nothing: a function can
    /// catch it.
    pub fn limit_to(&mut self, statement_timeout: Duration) {
        let limit = statement_timeout + GRACE;
        self.limit = Some(self.limit.map_or(limit, |own| own.min(limit)));
    }

    /// What was set in this session, and the role that it has, as one text. Triggers and functions of tables run in the session, and what they set
    /// would stay for statements about other tables. `None` behind a pooler, where nothing is set for a session. The settings with these names do
    /// not count.
    ///
    /// # Errors
    /// The statement failed, or the connection was lost.
    pub async fn session_settings(&self, doing: &'static str, without: &[&str]) -> Result<Option<String>, Error> {
        if !self.pinned.has_session() {
            return Ok(None);
        }
        let without: Vec<String> = without.iter().map(|name| literal(name)).collect();
        // The first statement finds what it needs whatever the path is.
        let texts = format!(
            "SELECT pg_catalog.current_setting('search_path'), pg_catalog.set_config('search_path', '{}', false);
             SELECT session_user::text || ' ' || current_user::text || ' ' || coalesce((SELECT string_agg(name || '=' || setting, ' ' ORDER BY name)
               FROM pg_settings WHERE source = 'session' AND name NOT IN ({})), '')",
            pinned::PATH,
            without.join(", ")
        );
        let rows = self.texts(doing, &texts).await?;
        let values = rows.into_iter().filter_map(|row| row.into_iter().next().flatten());
        Ok(Some(values.collect::<Vec<_>>().join(" ")))
    }

    /// Closes the connection of a silent server, and returns the error.
    pub(crate) fn fell_silent(&self, doing: &'static str, limit: Duration) -> Error {
        self.connection.abort();
        Error::Silent {
            doing,
            seconds: limit.as_secs(),
        }
    }

    /// Asks the server to cancel the statement that runs, over a stream of its own.
    pub(super) async fn cancel(&self, stream: Stream) -> Result<(), Error> {
        let token = self.client.cancel_token();
        let cancelled = token.cancel_query_raw(stream, Negotiated).await;
        cancelled.map_err(|error| Error::sql("cancelling a statement", error))
    }

    /// Waits for a notification after `LISTEN`, or for the end of the connection.
    pub async fn notification(&self) {
        self.notified.notified().await;
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }
}

impl Drop for Sql {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// Logs in for SQL over a stream on which TLS, if any, is already set up.
pub(super) async fn login(
    settings: &PostgresSection,
    purpose: Purpose,
    startup: Startup,
    stream: Stream,
) -> Result<Sql, Error> {
    let mut config = tokio_postgres::Config::new();
    config
        .user(&settings.user)
        .dbname(&settings.dbname)
        .application_name(purpose.application_name())
        .channel_binding(match settings.channel_binding {
            ChannelBinding::Disable => Binding::Disable,
            ChannelBinding::Prefer => Binding::Prefer,
            ChannelBinding::Require => Binding::Require,
        })
        // "Direct" makes the driver hand the stream to the connector at once, without negotiating TLS itself.
        .ssl_mode(TlsUse::Require)
        .ssl_negotiation(SslNegotiation::Direct);
    let options = options(settings, startup);
    // A pooler refuses an empty one, too.
    if !options.is_empty() {
        config.options(options);
    }
    if let Some(password) = &settings.password {
        config.password(password.expose());
    }
    let (client, connection) = config.connect_raw(stream, Negotiated).await.map_err(login_error)?;
    let notified = Arc::new(Notify::new());
    let notify = notified.clone();
    let connection = tokio::spawn(async move {
        let mut connection = connection;
        // The next statement reports why the connection ended.
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(_) = message {
                notify.notify_one();
            }
        }
        // Whoever waits for a notification finds that there will be none.
        notify.notify_one();
    });
    let limit = Some(settings.query_timeout).filter(|limit| !limit.is_zero());
    let mut sql = Sql {
        client,
        connection,
        notified,
        limit: limit.map(|limit| limit + GRACE),
        own: RoleSettings::default(),
        pinned: Pinned::Not,
        encoding: TextEncoding::default(),
        money_digits: OnceCell::new(),
        statements: AtomicU64::new(0),
    };
    if !settings.initial_statements.is_empty() {
        sql.execute(
            "running database.initial.statements",
            &settings.initial_statements.join(";\n"),
        )
        .await?;
    }
    if !purpose.is_of_user() {
        sql.pin().await?;
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
