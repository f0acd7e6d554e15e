//! Record to record: the transforms of Kafka Connect and Debezium, and the predicates that say which records a transform sees.
//!
//! A [`Chain`] is built once from the configuration. Each transform then works in two steps: it plans once for each
//! schema it meets (which fields, which output schemas), and applies the plan by moving values only.
//!
//! To add a transform, write its file and add its row to the table in `registry.rs`.

mod by_content;
mod chain;
mod confluent;
mod contract;
mod debezium;
mod error;
mod event_router;
mod foreign;
mod hypertables;
mod kafka;
mod outbox;
mod outcome;
mod predicates;
mod registry;
mod reshape;
mod shared_headers;
mod throttle;
mod topic;
mod upkeep;

pub use chain::{Chain, ChainError, Named};
pub use contract::{HeaderList, Predicate, Requirement, TransactionPlace, Transform};
pub use error::{Error, TransformFault};
pub use event_router::{EventRouter, sample_event_type};
pub use hypertables::{HypertableReader, Hypertables, ReadBefore, Reading, TableId};
pub use outbox::{OutboxColumns, OutboxTable, OutboxUpkeep, PartitionPeriod, Retention, RowStatus, check_tables};
pub use outcome::{DropReason, Mismatched, Outcome, SetAside, WaitingRecord};
pub use registry::{Documented, GROUPS, all_predicates, all_transforms};
pub use upkeep::{outbox_upkeep, upkeep_in_relay_mode};
