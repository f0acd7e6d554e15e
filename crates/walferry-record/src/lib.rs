//! Kafka Connect's data model, as converters and transforms see it.
//!
//! A [`Record`] has a key, a value and headers. Each of them is a [`Value`] together with its [`Schema`]. Values borrow
//! from their source (a WAL frame or a plan). Schemas are shared, and are built once for each version of a relation.

pub mod decimal;
pub mod java;
pub mod offset;
mod outline;
pub mod plans;
pub mod record;
pub mod schema;
pub mod value;
pub mod wait;

pub use decimal::Decimal;
pub use offset::{SourceOffset, SourcePartition};
pub use outline::outline;
pub use plans::SchemaPlans;
pub use record::{Header, Record, SchemaAndValue};
pub use schema::{Field, Schema, SchemaRef, Shape};
pub use value::{Struct, Value};
pub use wait::{Wait, WaitNeed};
