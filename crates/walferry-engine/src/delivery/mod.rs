//! The delivery of records: what is under way, what Kafka has acknowledged, and which offset may be stored for it.
//!
//! Records and the steps between them wait here in stream order, and only the acknowledged head of that queue counts as delivered.
//! The keeper writes the offset of what is delivered, and only what is written may be confirmed to the source.
//! This room defines what it needs from Kafka ([`sink`]) and from the disk ([`store`]); it knows neither the path that fills
//! the batches nor the life that starts and ends it.

pub mod batch;
pub(crate) mod keeper;
pub mod progress;
pub mod sink;
pub mod store;
mod transaction_counts;
mod window;
