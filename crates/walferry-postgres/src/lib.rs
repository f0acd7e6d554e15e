//! The only crate that opens Postgres: stream, slot, publication, catalog, `COPY`.

mod catalog;
mod chunks;
pub mod connection;
mod encoding;
mod error;
mod polled;
mod publication;
pub mod quote;
pub mod replay;
mod rows;
mod setup;
mod snapshot;
mod source;
mod stream;

pub use catalog::hypertables::TimescaleCatalog;
pub use catalog::table_name::TableName;
pub use chunks::not_published::NotPublished;
pub use chunks::{RequestedSnapshot, requested_snapshot};
pub use connection::server_error::ServerError;
pub use error::Error;
pub use polled::captured_catalogs;
pub use rows::RowLookups;
pub use setup::problem::{SetupProblem, Unreadable};
pub use setup::{check, survey};
pub use snapshot::sample::{Sample, SampleRow, Samples, descriptions, samples};
pub use source::Postgres;
pub use stream::slots::{SlotWatch, SlotsLook};
