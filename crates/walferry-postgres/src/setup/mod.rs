//! What a server must have before a connector can read it, and the SQL that gives it that.

pub mod check;
mod heartbeat;
pub(crate) mod inspect;
pub(crate) mod problem;
pub mod survey;
mod unpublished;
