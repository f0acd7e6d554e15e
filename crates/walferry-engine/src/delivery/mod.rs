//! The delivery of records: what is under way, what Kafka has acknowledged, and which offset may be stored for it.
//!
//! The [ledger] has records and the steps between them in stream order; only its acknowledged head counts as delivered. It knows no
//! LSN: what delivered records come to is an account that the source's side brings along (`account.rs`).
//! The keeper writes the offset of what is delivered, and only what is written may be confirmed to the source.
//! This room defines what it needs from Kafka ([`sink`]) and from the disk ([`store`]); it knows neither the path that fills
//! the batches nor the life that starts and ends it.

pub mod batch;
pub(crate) mod keeper;
pub(crate) mod ledger;
pub mod progress;
pub mod sink;
pub mod store;
pub(crate) mod transaction_counts;
mod window;
