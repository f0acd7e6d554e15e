//! Turns a row change into Debezium's envelope, key, source block and tombstone.
//!
//! A [`TablePlan`] is built once for each version of a relation. It turns each row into [`ChangeOutcome::records`], which
//! borrow from the WAL frame and the plan. Time, positions and transaction come in as a [`Context`].

pub mod catalog;
mod change;
mod column;
mod defaults;
mod error;
mod heartbeat;
mod java;
mod key;
mod message;
mod names;
mod notification;
mod outcome;
pub mod relation_bytes;
pub mod reselect;
mod rules;
mod settings;
mod source;
mod table;
mod transaction;
mod types;

pub use catalog::Catalog;
pub use column::{LeftOut, LeftOutReason};
pub use error::Error;
pub use heartbeat::Heartbeat;
pub use message::Messages;
pub use notification::{Notification, Notifications};
pub use outcome::{ChangeOutcome, Records, Skipped, UnconvertedField};
pub use settings::EventSettings;
pub use source::{Context, SnapshotMarker};
pub use table::TablePlan;
pub use transaction::TransactionMetadata;
pub use types::{Bytes, Reason};
