//! Log lines on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, fmt};

use crate::progress::Bars;

/// What is logged unless asked otherwise. The Kafka client's own chatter is told through the connector's status.
const DEFAULT: &str = "info,librdkafka=error,rdkafka=error";

/// Starts logging. `filter` wins over `RUST_LOG`.
pub(crate) fn init(filter: Option<&str>, json: bool, bars: &Bars) {
    let from_environment = std::env::var("RUST_LOG").ok();
    let directives = filter.or(from_environment.as_deref()).unwrap_or(DEFAULT);
    let filter = EnvFilter::try_new(directives).unwrap_or_else(|error| {
        eprintln!("warning: the log filter {directives:?} is not understood ({error}); logging at info");
        EnvFilter::new(DEFAULT)
    });
    let lines = fmt().with_env_filter(filter).with_writer(bars.lines());
    if json {
        lines.json().init();
    } else {
        lines.with_ansi(io::stderr().is_terminal()).with_target(false).init();
    }
}
