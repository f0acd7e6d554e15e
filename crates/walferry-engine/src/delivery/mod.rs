//! Delivery: which records are under way, which Kafka has acknowledged, and which offset may be stored.
//!
//! The [ledger] keeps records, and the steps between them, in stream order. Only its acknowledged head counts as
//! delivered. It knows no LSN: an account (`account.rs`), supplied by the source's side, sums up delivered records.
//! The keeper writes the offset of delivered records. Only a written offset may be confirmed to the source.
//! This module defines what it needs from Kafka ([`sink`]) and from the disk ([`store`]). It knows neither the path
//! that fills the batches nor the life that starts and ends delivery.

pub mod batch;
mod in_flight;
pub(crate) mod keeper;
pub(crate) mod ledger;
pub mod progress;
pub mod sink;
pub mod store;
pub(crate) mod transaction_counts;
