//! Log lines on standard error.

use std::{
    io::{self, IsTerminal},
    sync::OnceLock,
};

use tracing::warn;
use tracing_subscriber::{
    EnvFilter,
    fmt::{
        format::Writer,
        time::{FormatTime, SystemTime},
    },
};

use crate::progress::Bars;

/// What is logged unless asked otherwise. The Kafka client's own chatter is told through the connector's status.
const DEFAULT: &str = "info,librdkafka=error,rdkafka=error";

/// Starts logging. `filter` wins over `RUST_LOG`.
pub(crate) fn init(filter: Option<&str>, json: bool, bars: &Bars) {
    let from_environment = std::env::var("RUST_LOG").ok();
    let directives = filter.or(from_environment.as_deref()).unwrap_or(DEFAULT);
    let (filter, misunderstood) = match EnvFilter::try_new(directives) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT), Some(error)),
    };
    // A second call would change nothing.
    let _ = JSON.set(json);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(bars.lines());
    if json {
        lines.json().init();
    } else {
        lines.with_ansi(io::stderr().is_terminal()).with_target(false).init();
    }
    if let Some(error) = misunderstood {
        warn!(filter = directives, %error, "the log filter is not understood; logging at info");
    }
}

static JSON: OnceLock<bool> = OnceLock::new();

/// Whether lines on standard error are JSON.
pub(crate) fn is_json() -> bool {
    JSON.get().copied().unwrap_or_default()
}

/// The time, as lines of the log have it.
pub(crate) fn now() -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}
