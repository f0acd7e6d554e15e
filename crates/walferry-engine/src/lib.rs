//! The engine: the path of a row, its delivery, and the life of connectors.
//!
//! Its files are in three rooms, [`path`], [`delivery`] and [`life`]. What all of them talk about stands beside them: failures,
//! positions, the server's history, gaps, the status that an operator sees, and [`source`], which the database side implements.

mod account;
pub mod delivery;
pub mod failure;
pub mod gap;
pub mod history;
pub mod life;
pub mod path;
pub mod position;
pub mod published;
mod remark;
pub mod source;
pub mod status;

pub use delivery::{batch, progress, sink, store};
pub use failure::{Cause, Disposition, Exit, Failure};
pub use life::{Target, connector, start, supervisor};
pub use path::{Converters, Tolerance, pipeline, pipeline::Pipeline, witness};
pub use position::Position;
pub use remark::{Remark, Weight};
pub use status::SlotXmin;
