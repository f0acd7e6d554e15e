//! Delivery: which records are under way, which Kafka has acknowledged, and which offset may be stored.
//!
//! The [ledger] keeps records, and the marks between them, in stream order. Only its acknowledged head counts as
//! delivered. The offset writer writes the offset of delivered records. Only a written offset may be confirmed to the source.
//!
//! The room knows no source (`cargo xtask arrows` checks it). What it needs from one is in [`contract`]: above all an
//! account, which sums up delivered changes into an offset. The one of Postgres is in the folder `account` beside this
//! one. The room also defines what it needs from Kafka ([`sink`]) and from the disk ([`store`]). It knows neither the
//! path that fills the batches nor the session that starts and ends delivery. Its tests have a source of their own
//! (`numbers.rs`).

pub mod batch;
pub mod contract;
mod in_flight;
pub mod ledger;
#[cfg(test)]
pub(crate) mod numbers;
pub(crate) mod offset_writer;
pub mod progress;
mod report_target;
pub mod sink;
pub mod store;
