//! Names of spans, fields and metrics: each once, each metric next to the Debezium metric that it replaces.
//!
//! The admin endpoint writes what stands here and nothing else; `docs/reference/metrics.md` is [`reference()`].

pub mod debezium;
mod log;
mod metric;
pub mod metrics;
mod reference;

pub use log::{FIELDS, Field, SPANS, Span};
pub use metric::{Kind, Metric};
pub use reference::reference;
