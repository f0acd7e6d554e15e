//! Postgres logical replication as bytes: what a walsender with the `pgoutput` plugin (protocol version 1, text
//! values) sends, and what a receiver answers.
//!
//! ```text
//! CopyData body ── ServerMessage::parse ──┬─ PrimaryKeepalive
//!                                         └─ XLogData { data } ── decode ── Message
//! StandbyStatusUpdate ── encode ── CopyData body
//! ```
//!
//! [`decode`] borrows from the frame and allocates nothing for a row. It accepts only what the protocol defines: if a
//! frame is too short or too long, or has a tag or flag of another protocol version, it returns a [`DecodeError`] with
//! the position. Nothing here does I/O, keeps state between messages or reads a clock. Callers that decode rows must
//! keep the [`Relation`]s that describe them.

mod change;
mod copy_both;
mod decode;
mod encode;
mod error;
mod id;
mod lsn;
mod message;
mod reader;
mod relation;
mod timestamp;
mod tuple;

pub use change::{Change, OldTuple, Operation};
pub use copy_both::{PrimaryKeepalive, ServerMessage, StandbyStatusUpdate, XLogData};
pub use decode::decode;
pub use encode::encode;
pub use error::{DecodeError, EncodeError};
pub use id::{Oid, Xid};
pub use lsn::{Lsn, ParseLsnError};
pub use message::{Begin, Commit, LogicalMessage, Message, Origin, Truncate, Type};
pub use relation::{Relation, RelationColumn, ReplicaIdentity};
pub use timestamp::PgTimestamp;
pub use tuple::{Column, Columns, Tuple, TupleBuf};
