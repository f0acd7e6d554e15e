//! Incremental snapshots: tables are read chunk by chunk beside the stream, at the request of a signal.
//!
//! - [`machine`] decides: which chunk is requested next, what an answer means, what is stored. It takes events and
//!   returns effects, and does nothing itself.
//! - [`signals`] is the part of the pipeline: it gives the machine its events in the order of the stream, and carries out
//!   the effects that need no waiting.
//! - [`window`] keeps the rows of the present chunk. Changes of the stream replace them.
//! - [`commits`] knows which transactions these rows must include.
//! - [`estimates`] counts how far the snapshot is.
//! - [`requests`] waits: it passes the pipeline's requests to the source, one after another, and brings the answers.

pub(crate) mod commits;
pub(crate) mod estimates;
pub(crate) mod machine;
pub(crate) mod requests;
pub(crate) mod signals;
pub(crate) mod window;

pub use self::{
    machine::{
        Action, Ask, ChunkAnswer, ChunkAsk, Collection, ColumnDefinition, Effect, Execute, Incremental, Key, KeyColumn,
        KeyColumns, MEMBERS, NotRead, ScanResult, Signal, SnapshotNotice, TableDefinition, TableEnd, WindowEnd,
        tells_of_blocking, unquoted,
    },
    requests::IncrementalLimits,
    signals::SignalSettings,
};
