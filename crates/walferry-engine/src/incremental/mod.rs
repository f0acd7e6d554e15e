//! Incremental snapshots: tables are read chunk by chunk beside the stream, at the request of a signal.
//!
//! - [`machine`] decides: which chunk is requested next, what an answer means, what is stored. It takes events and
//!   returns effects, and does nothing itself.
//! - [`signals`] is the part of the pipeline: it gives the machine its events in the order of the stream, and carries out
//!   the effects that need no waiting. Its own parts are listed there.
//! - [`window`] keeps the rows of the present chunk. Changes of the stream replace them.
//! - [`freshness`] and [`commits`] know which transactions these rows must include.
//! - [`requests`] waits: it passes the pipeline's requests to the source, one after another, and brings the answers.

mod close_position;
mod commits;
mod estimates;
mod freshness;
mod generated_columns;
pub(crate) mod machine;
mod notifier;
mod reports;
mod request_sender;
pub(crate) mod requests;
mod rereads;
pub(crate) mod signals;
mod slices;
mod window;

pub use self::{
    machine::{
        Action, Ask, ChunkAnswer, ChunkAsk, Collection, ColumnDefinition, Effect, Execute, Incremental, Key, KeyColumn,
        KeyColumns, MEMBERS, NotRead, ScanResult, Signal, SnapshotNotice, TableDefinition, TableEnd, WindowEnd,
        tells_of_blocking, unquoted,
    },
    requests::IncrementalLimits,
    signals::SignalSettings,
};
