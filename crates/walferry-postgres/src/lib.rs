//! The only crate that opens Postgres: stream, slot, publication, catalog, `COPY`.

mod blockers;
mod catalog;
pub mod check;
mod cleanup;
pub mod connect;
mod copy;
mod error;
mod hypertables;
mod identity;
mod inspect;
pub mod poller;
mod problem;
mod publication;
mod quote;
pub mod replay;
mod replication;
mod rows;
mod server_error;
pub mod setup;
mod slots;
mod snapshot;
mod source;
mod tables;
mod windows;
mod wire;

pub use cleanup::{CleanedTable, Cleaner, Round};
pub use error::Error;
pub use hypertables::TimescaleCatalog;
pub use problem::Problem;
pub use rows::RowLookups;
pub use server_error::ServerError;
pub use slots::{Looked, SlotWatch};
pub use snapshot::sample::{Sample, SampleRow, Samples, samples};
pub use source::Postgres;
pub use tables::TableName;
