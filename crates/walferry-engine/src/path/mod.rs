//! The path of a row: frames of the source become encoded records in a [`Batch`](crate::account::Batch).
//!
//! Nothing here waits, reads a clock or opens a socket, so nothing here can delay a keepalive, an acknowledgement or a
//! signal. What depends only on a table's version is planned once, when the stream describes the table, and applied to
//! each row. This module may use the types of `delivery` (batch, step, stored offset), but does not know who delivers
//! or stores. It does not know `session` at all.

pub(crate) mod change_observer;
mod counts;
mod cursor;
mod definitions;
pub(crate) mod emit;
mod error_policy;
pub(crate) mod fate;
mod heartbeat;
mod held;
mod observers;
pub mod pipeline;
pub(crate) mod plans;
mod polled_rows;
mod set_aside;
mod shapes;
mod spill_file;
#[cfg(test)]
mod testing;
pub mod witness;

pub use emit::Converters;
pub use error_policy::{ErrorNames, ErrorPolicy};
pub use plans::{as_outboxes, names_fields_as_columns};
pub use polled_rows::PolledTable;
pub use shapes::TableShapes;
