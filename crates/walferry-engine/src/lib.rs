//! The engine: the path of a row, progress, start and stop, and the traits that the edges implement.

pub mod batch;
mod counts;
pub mod failure;
mod heartbeat;
pub mod history;
mod keeper;
mod metadata;
mod outlet;
pub mod pipeline;
mod place;
mod plans;
pub mod position;
mod prepare;
pub mod progress;
mod reader;
mod remark;
pub mod rest;
mod retries;
pub mod run;
mod shelf;
pub mod sink;
mod snapshot;
pub mod source;
pub mod start;
pub mod status;
pub mod store;
mod worker;
mod xmin;

pub use failure::{Cause, Disposition, Exit, Failure};
pub use outlet::{Converters, Tolerance};
pub use pipeline::Pipeline;
pub use position::Position;
pub use remark::{Remark, Weight};
pub use xmin::SlotXmin;
