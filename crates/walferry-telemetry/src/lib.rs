//! The names of spans, fields and metrics. Each name is declared once, and each metric next to the Debezium metric that
//! it replaces.
//!
//! The admin endpoint serves exactly these metrics. `docs/reference/metrics.md` is the text of [`reference()`].

pub mod debezium;
mod log;
mod metric;
pub mod metrics;
pub mod otlp;
mod reference;

pub use log::{BESIDE, FIELDS, Field, RUN, SPANS, Span};
pub use metric::{Metric, MetricType};
pub use reference::reference;
