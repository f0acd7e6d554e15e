//! How long the `search_path` of Walferry's own statements lasts.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, DuplexStream, ReadBuf, duplex};
use tokio_postgres::CancelToken;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};

/// The `search_path` of statements that Walferry composes. An object of another schema could otherwise take the place of one of Postgres' own, and
/// would run as the connector's role. Temporary objects come last: without their name in it, the path would begin with them.
macro_rules! path {
    () => {
        "pg_catalog, pg_temp"
    };
}

/// The settings that determine the text of values, as `TEXT_OF_VALUES` has them: a pooler may have refused them at the login.
macro_rules! text_of_values {
    () => {
        "; SET LOCAL DateStyle = 'ISO'; SET LOCAL IntervalStyle = 'postgres'; SET LOCAL extra_float_digits = '3'; SET LOCAL bytea_output = \
         'hex'; SET LOCAL TimeZone = 'UTC'"
    };
}

/// The same.
pub(super) const PATH: &str = path!();
/// Within a transaction. It needs no snapshot, so that the transaction can still take one that was exported.
pub(super) const SET_LOCAL: &str = concat!("SET LOCAL search_path = ", path!(), text_of_values!());
/// Before one statement.
pub(super) const BEGIN: &str = concat!("BEGIN; SET LOCAL search_path = ", path!(), text_of_values!());
pub(super) const COMMIT: &str = "COMMIT";
/// Within a transaction. It may be sent while the role's path is in force, so it has no operator, and no name without its schema.
pub(super) const AGAIN: &str = concat!("SELECT pg_catalog.set_config('search_path', '", path!(), "', true)");

/// Whether and how the path is set.
#[derive(Debug)]
pub(super) enum Pinned {
    /// All SQL was written by the user.
    Not,
    /// Once for the session.
    Session,
    /// In each transaction. Behind a pooler, the next one may run in another session, and what is set for a session reaches whoever gets it next.
    Transaction {
        /// Whether one is open.
        is_open: AtomicBool,
    },
}

impl Pinned {
    /// `is_session`: whether the session is that of the login.
    pub(super) fn new(is_session: bool) -> Self {
        match is_session {
            true => Self::Session,
            false => Self::Transaction {
                is_open: AtomicBool::new(false),
            },
        }
    }

    /// Whether a statement needs a transaction of its own that sets the path.
    pub(super) fn needs_transaction(&self) -> bool {
        matches!(self, Self::Transaction { is_open } if !is_open.load(Relaxed))
    }

    /// Whether settings of the session last.
    pub(super) fn has_session(&self) -> bool {
        !matches!(self, Self::Transaction { .. })
    }

    /// What to send for statements. Outside a transaction, those of one message are a transaction.
    pub(super) fn statements<'s>(&self, sql: &'s str) -> Cow<'s, str> {
        if self.has_session() {
            return Cow::Borrowed(sql);
        }
        let own = without_rollback(sql);
        if begins(own) {
            let (before, (begin, statements)) =
                (&sql[..sql.len() - own.len()], own.split_once(';').unwrap_or((own, "")));
            let statements = if statements.is_empty() {
                String::new()
            } else {
                format!(";{statements}")
            };
            return Cow::Owned(format!("{before}{begin}; {SET_LOCAL}{statements}"));
        }
        match self.needs_transaction() && !is_end(sql) {
            true => Cow::Owned(format!("{SET_LOCAL}; {sql}")),
            false => Cow::Borrowed(sql),
        }
    }

    /// Statements have been run, and may have begun or ended a transaction.
    pub(super) fn ran(&self, sql: &str, succeeded: bool) {
        let Self::Transaction { is_open } = self else { return };
        if begins(without_rollback(sql)) {
            is_open.store(true, Relaxed);
        }
        // A transaction in which a statement has failed is open until it is rolled back.
        if succeeded && is_end(sql) {
            is_open.store(false, Relaxed);
        }
    }
}

/// The statements after a leading ROLLBACK.
fn without_rollback(sql: &str) -> &str {
    let sql = sql.trim_start();
    sql.strip_prefix("ROLLBACK;").map_or(sql, str::trim_start)
}

fn begins(sql: &str) -> bool {
    sql.starts_with("BEGIN")
}

/// Whether the last statement ends the transaction. Texts and names end with a quote.
fn is_end(sql: &str) -> bool {
    let last = sql
        .trim_end()
        .trim_end_matches(';')
        .rsplit(';')
        .next()
        .unwrap_or_default();
    matches!(last.trim(), "COMMIT" | "ROLLBACK")
}

/// The process id of the server that the login has named. A pooler names another one than those that statements run in.
pub(super) async fn process_id(token: &CancelToken) -> Option<i32> {
    // The driver shows it only in the message that would cancel a statement: length, code, process id, secret.
    let (ours, mut theirs) = duplex(64);
    token.cancel_query_raw(Pipe(ours), AsIs).await.ok()?;
    let mut message = [0; 12];
    theirs.read_exact(&mut message).await.ok()?;
    Some(i32::from_be_bytes([message[8], message[9], message[10], message[11]]))
}

/// Hands over a pipe as it is.
struct AsIs;

struct Pipe(DuplexStream);

impl TlsConnect<Pipe> for AsIs {
    type Stream = Pipe;
    type Error = Infallible;
    type Future = Ready<Result<Pipe, Infallible>>;

    fn connect(self, pipe: Pipe) -> Self::Future {
        ready(Ok(pipe))
    }
}

impl TlsStream for Pipe {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_a_pooler_each_transaction_sets_the_path_and_no_session_does() {
        let pinned = Pinned::new(false);
        let path = SET_LOCAL;
        assert!(
            path.starts_with("SET LOCAL search_path = pg_catalog, pg_temp; "),
            "{path}"
        );
        let run = |sql: &str| {
            let sent = pinned.statements(sql).into_owned();
            pinned.ran(sql, true);
            sent
        };
        assert_eq!(run("SELECT 1"), format!("{path}; SELECT 1"));
        assert_eq!(run("SET a = b"), format!("{path}; SET a = b"));
        assert!(pinned.needs_transaction());
        assert_eq!(
            run("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT 'x; COMMIT'"),
            format!("BEGIN ISOLATION LEVEL REPEATABLE READ; {path}; SET TRANSACTION SNAPSHOT 'x; COMMIT'")
        );
        assert!(!pinned.needs_transaction());
        assert_eq!(run("SELECT 1"), "SELECT 1");
        assert_eq!(run("SAVEPOINT a"), "SAVEPOINT a");
        assert_eq!(run("ROLLBACK TO SAVEPOINT a"), "ROLLBACK TO SAVEPOINT a");
        assert!(!pinned.needs_transaction());
        assert_eq!(
            run("ROLLBACK; BEGIN; SET LOCAL lock_timeout = 1; LOCK TABLE t"),
            format!("ROLLBACK; BEGIN; {path}; SET LOCAL lock_timeout = 1; LOCK TABLE t")
        );
        pinned.ran("DROP TABLE t; COMMIT", false);
        assert!(!pinned.needs_transaction(), "a failed transaction is open");
        assert_eq!(run("DROP TABLE t; COMMIT"), "DROP TABLE t; COMMIT");
        assert!(pinned.needs_transaction());
        assert_eq!(run("ROLLBACK"), "ROLLBACK");
    }

    #[test]
    fn in_a_session_of_its_own_statements_are_sent_as_they_are() {
        for pinned in [Pinned::Not, Pinned::new(true)] {
            for sql in ["SELECT 1", "BEGIN", "COMMIT"] {
                assert_eq!(pinned.statements(sql), sql);
                pinned.ran(sql, true);
                assert!(!pinned.needs_transaction());
            }
        }
    }
}
