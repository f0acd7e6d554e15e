//! Relay mode: an outbox that is read by polling, without a replication slot.
//!
//! [`table`] decides what the columns of a table are for, [`statements`] composes the SQL, and [`run`] looks, sends, and marks. The engine does the
//! rest: transforms, converters, and delivery to Kafka.

mod count;
mod describe;
mod late;
mod notifications;
mod owners;
pub mod run;
pub mod statements;
pub mod table;

pub use describe::{Described, check, retry};
pub use run::{KafkaLink, Relay};
