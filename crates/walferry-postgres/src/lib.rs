//! The only crate that opens Postgres: stream, slot, publication, catalog, `COPY`.

pub mod connect;
mod error;
mod problem;
mod quote;
mod server_error;
mod wire;

pub use error::Error;
pub use problem::Problem;
pub use server_error::ServerError;
