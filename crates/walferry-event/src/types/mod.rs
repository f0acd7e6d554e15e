//! Postgres types: the schema of a column's field, and how the column's text becomes a value.

mod array;
mod binary;
mod builtin;
mod calendar;
mod column_type;
mod decode;
mod geometry;
mod hstore;
mod interval;
mod mapping;
mod number;
mod origin;
mod reason;
mod resolve;
mod scalar;
mod temporal;
#[cfg(test)]
mod tests;
mod text;
mod vector;

pub(crate) use binary::{encode, hex};
pub(crate) use builtin::oid;
pub(crate) use column_type::{ColumnType, RootKind};
pub(crate) use mapping::{Decoder, Mapping, Unavailable};
pub(crate) use origin::RowOrigin;
pub use reason::{Bytes, Reason};
pub(crate) use resolve::resolve;
pub(crate) use temporal::{infinite_default, plain_default};
