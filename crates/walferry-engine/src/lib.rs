//! The engine: the path of a row, progress, start and stop, and the traits that the edges implement.

pub mod failure;
pub mod position;
pub mod progress;
pub mod sink;
pub mod source;
pub mod status;
pub mod store;

pub use failure::{Cause, Disposition, Exit, Failure};
pub use position::Position;
