//! A bar on a terminal while existing rows are read.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tokio::time::sleep;
use walferry_engine::status::{Phase, Status};

/// How often a bar is drawn.
const INTERVAL: Duration = Duration::from_millis(200);
const WITH_ESTIMATE: &str = "{prefix}: {wide_bar} {human_pos} of about {human_len} rows, {pace}, {eta} left{msg}";
const WITHOUT: &str = "{prefix}: {spinner} {human_pos} rows, {pace}{msg}";

/// Progress bars on standard error, if that is a terminal. Bars and log lines do not overwrite each other.
#[derive(Debug, Clone)]
pub(crate) struct Bars(MultiProgress);

impl Bars {
    /// If not `shown`, no bar is ever drawn.
    pub(crate) fn new(shown: bool) -> Self {
        let target = if shown && io::stderr().is_terminal() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        Self(MultiProgress::with_draw_target(target))
    }

    /// Whether bars are drawn.
    pub(crate) fn are_shown(&self) -> bool {
        !self.0.is_hidden()
    }

    /// Removes the bars that are still drawn.
    pub(crate) fn clear(&self) {
        // If the terminal is gone, so are its bars.
        let _ = self.0.clear();
    }

    /// Makes the writers of log lines.
    pub(crate) fn lines(&self) -> impl Fn() -> Lines + use<> {
        let bars = self.0.clone();
        move || Lines(bars.clone())
    }
}

/// Writes to standard error, above the bars.
pub(crate) struct Lines(MultiProgress);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(line))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Shows the progress of a connector's snapshots, for ever.
pub(crate) async fn show(bars: Bars, status: Arc<Status>) {
    let mut bar: Option<ProgressBar> = None;
    loop {
        sleep(INTERVAL).await;
        if status.phase() != Phase::Snapshot {
            bar.take().iter().for_each(ProgressBar::finish_and_clear);
            continue;
        }
        let bar = bar.get_or_insert_with(|| bars.0.add(ProgressBar::no_length().with_prefix(status.name.clone())));
        let c = &status.counters;
        let (before, rows) = (c.snapshot_rows_before.load(Relaxed), c.snapshot_rows.load(Relaxed));
        let rows = rows.saturating_sub(before);
        let (tables, left) = (c.snapshot_tables.load(Relaxed), c.snapshot_tables_left.load(Relaxed));
        match c.snapshot_rows_estimate.load(Relaxed).saturating_sub(before) {
            0 => bar.set_style(style(WITHOUT)),
            estimate if bar.length() != Some(estimate.max(rows)) => {
                bar.set_style(style(WITH_ESTIMATE));
                bar.set_length(estimate.max(rows));
            }
            _ => {}
        }
        if tables > 1 {
            bar.set_message(format!(", {} of {tables} tables", tables.saturating_sub(left)));
        }
        bar.set_position(rows);
    }
}

/// A template that the tests have read.
fn style(template: &str) -> ProgressStyle {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key("pace", |state: &ProgressState, out: &mut dyn fmt::Write| {
        // If the terminal cannot be written to, nothing is shown.
        let _ = write!(out, "{}/s", HumanCount(state.per_sec() as u64));
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_understood() {
        for template in [WITH_ESTIMATE, WITHOUT] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
