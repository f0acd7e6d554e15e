//! Record to record: Debezium's EventRouter, and the predicates that say which records a transform sees.
//!
//! A [`Chain`] is built once from the configuration. Each transform then works in two steps: it plans once for each
//! schema it meets (which fields, which output schemas), and applies the plan by moving values only.

mod chain;
mod class;
mod error;
mod event_router;
mod outbox;
mod outcome;
mod predicate;
mod regex_router;
mod topic;

pub use chain::{Chain, ChainError};
pub use error::Error;
pub use event_router::EventRouter;
pub use outbox::{Requirements, Table, check_tables};
pub use outcome::{DropReason, Outcome};
pub use predicate::Predicate;
pub use regex_router::RegexRouter;

use walferry_config::Group;
use walferry_record::Record;

/// The options of every transform and predicate, for the reference page.
pub const GROUPS: &[Group] = &[
    event_router::GROUP,
    regex_router::GROUP,
    predicate::TOPIC_NAME_MATCHES,
    predicate::HAS_HEADER_KEY,
];

/// One step of a chain.
pub trait Transform: Send {
    /// Turns one record into what goes on down the chain. The result may borrow from the transform (topics, header
    /// names), so it is to be encoded before the next record comes.
    ///
    /// # Errors
    /// Where the record cannot be transformed and no option says that it may be dropped.
    fn apply<'a>(&'a mut self, record: Record<'a>) -> Result<Outcome<'a>, Error>;

    /// What the transform asks of the table that is its outbox; `None` for transforms that work on any table.
    fn outbox(&self) -> Option<&Requirements> {
        None
    }
}
