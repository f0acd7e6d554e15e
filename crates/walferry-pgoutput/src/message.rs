use std::fmt;

use crate::{Change, Lsn, Oid, PgTimestamp, Relation, Xid};

/// One message of `pgoutput`, protocol version 1.
///
/// Transactions arrive complete and in commit order: [`Begin`], an [`Origin`] if the transaction was replicated from
/// another server, then relations, types, changes, truncates and transactional messages, then [`Commit`]. Only a
/// non-transactional [`LogicalMessage`] may come between transactions, or anywhere inside one. Changes that were rolled
/// back never arrive, not even those rolled back to a savepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    /// A transaction begins.
    Begin(Begin),
    /// The transaction ends.
    Commit(Commit),
    /// The transaction was replicated from another server.
    Origin(Origin<'a>),
    /// Describes a table, before its first row and again after anything about it may have changed.
    Relation(Relation),
    /// Names a type that the next relation uses and that is not built into Postgres.
    Type(Type<'a>),
    /// A row was inserted, updated or deleted.
    Change(Change<'a>),
    /// Tables were emptied.
    Truncate(Truncate),
    /// An application called `pg_logical_emit_message`.
    Logical(LogicalMessage<'a>),
}

/// The start of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Begin {
    /// Where the commit record starts; equal to [`Commit::commit_lsn`] of the same transaction.
    pub final_lsn: Lsn,
    /// When it was committed.
    pub commit_time: PgTimestamp,
    /// Its id.
    pub xid: Xid,
}

/// The end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commit {
    /// Where the commit record starts.
    pub commit_lsn: Lsn,
    /// Where the commit record ends; once this is confirmed, Postgres never sends the transaction again.
    pub end_lsn: Lsn,
    /// When it was committed.
    pub commit_time: PgTimestamp,
}

/// Where a transaction was first committed, if it came through a replication origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The commit's position on that server.
    pub commit_lsn: Lsn,
    /// The origin's name on this server.
    pub name: &'a str,
}

/// The name of a type. For a domain, this is the name of its base type: the stream does not have the domain's own name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type<'a> {
    /// Id of the column's type. For a domain, this is the domain's own id.
    pub oid: Oid,
    /// Schema of the type, or of the domain's base type.
    pub namespace: &'a str,
    /// Name of the type, or of the domain's base type.
    pub name: &'a str,
}

/// Tables emptied by one `TRUNCATE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncate {
    /// Whether `CASCADE` was given. `relations` includes the published tables that it reached.
    pub cascade: bool,
    /// Whether `RESTART IDENTITY` was given.
    pub restart_identity: bool,
    /// The emptied tables.
    pub relations: Vec<Oid>,
}

/// A message that an application wrote into the log with `pg_logical_emit_message`.
///
/// `Debug` gives the length of the content, not the content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LogicalMessage<'a> {
    /// Whether the message belongs to the surrounding transaction. If not, the server sends it as soon as it is
    /// decoded, even if the transaction that emitted it rolls back.
    pub transactional: bool,
    /// Where the message ends in the log. `pg_logical_emit_message` returned this position.
    pub lsn: Lsn,
    /// The prefix given by the application.
    pub prefix: &'a str,
    /// The content, text or binary.
    pub content: &'a [u8],
}

impl fmt::Debug for LogicalMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogicalMessage")
            .field("transactional", &self.transactional)
            .field("lsn", &self.lsn)
            .field("prefix", &self.prefix)
            .field("content", &format_args!("{} bytes", self.content.len()))
            .finish()
    }
}
