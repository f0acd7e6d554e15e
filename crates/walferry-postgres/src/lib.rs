//! The only crate that opens Postgres: stream, slot, publication, catalog, `COPY`.

mod catalog;
mod chunks;
pub mod connection;
mod encoding;
mod error;
mod outbox;
mod publication;
mod quote;
mod rows;
mod setup;
mod snapshot;
mod source;
mod stream;

pub use catalog::hypertables::TimescaleCatalog;
pub use catalog::table_name::TableName;
pub use chunks::not_published::NotPublished;
pub use chunks::windows::{RequestedSnapshot, requested_snapshot};
pub use connection::server_error::ServerError;
pub use error::Error;
pub use outbox::cleanup::{CleanedTable, Cleaner, Round};
pub use outbox::partitions::{OutboxPartitions, PartitionedTable, Period};
pub use outbox::watch::{OutboxWatch, Watched, WatchedTable};
pub use outbox::{poller, replay};
pub use rows::RowLookups;
pub use setup::problem::{SetupProblem, Unreadable};
pub use setup::{check, survey};
pub use snapshot::sample::{Sample, SampleRow, Samples, descriptions, samples};
pub use source::Postgres;
pub use stream::slots::{SlotWatch, SlotsLook};
