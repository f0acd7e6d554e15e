//! A bar on a terminal while existing rows are read.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle, TermLike};
use rustix::termios::tcgetwinsize;
use tokio::time::sleep;
use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;
use walferry_diagnosis::{concealed, outages::REPEATED, printed};
use walferry_engine::status::{Phase, Status};

use crate::{commands::last_lines, logging, output};

/// How often a bar is drawn.
const INTERVAL: Duration = Duration::from_millis(200);
const DRAWN_PER_SECOND: u8 = 20;
const WITH_ESTIMATE: &str = "{prefix}: {wide_bar} {human_pos} of about {human_len} rows, {pace}, {eta} left{msg}";
const WITHOUT: &str = "{prefix}: {spinner} {human_pos} rows, {pace}{msg}";

/// Progress bars on standard error, if that is a terminal. Bars and log lines do not overwrite each other.
#[derive(Debug, Clone)]
pub(crate) struct Bars(MultiProgress);

impl Bars {
    /// If not `is_wanted`, no bar is ever drawn.
    pub(crate) fn new(is_wanted: bool) -> Self {
        let target = if is_wanted && io::stderr().is_terminal() {
            ProgressDrawTarget::term_like_with_hz(Box::new(Terminal), DRAWN_PER_SECOND)
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

    /// Makes the writers of log lines. Colours are escape sequences, so they are the formatter's to allow; nothing else controls the terminal.
    pub(crate) fn lines(&self, form: LineForm) -> LineWriters {
        LineWriters {
            bars: self.0.clone(),
            form,
        }
    }
}

/// The form of the lines on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineForm {
    /// As formatted.
    Plain,
    /// With the formatter's colours.
    Coloured,
    /// For systemd's journal, which has the time and the level of each line.
    Journal,
}

/// Makes a writer for each line of the log.
pub(crate) struct LineWriters {
    bars: MultiProgress,
    form: LineForm,
}

impl<'a> MakeWriter<'a> for LineWriters {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        Lines {
            bars: self.bars.clone(),
            form: self.form,
            is_shown: true,
        }
    }

    fn make_writer_for(&'a self, line: &Metadata<'_>) -> Lines {
        Lines {
            is_shown: line.target() != REPEATED,
            ..self.make_writer()
        }
    }
}

/// Writes to standard error, above the bars.
pub(crate) struct Lines {
    bars: MultiProgress,
    form: LineForm,
    /// Otherwise it is only one of the last lines of its connector.
    is_shown: bool,
}

impl Write for Lines {
    /// A line comes whole, and what config providers have returned does not leave the process with it.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(line);
        let printed_line = concealed(&text);
        let printed_line = match self.form {
            LineForm::Coloured => printed_line,
            LineForm::Plain | LineForm::Journal => printed::lines(&printed_line).into_owned().into(),
        };
        last_lines::keep(&printed_line);
        if self.is_shown {
            let bytes = match self.form {
                LineForm::Journal => logging::for_journal(&printed_line).into_bytes(),
                LineForm::Plain | LineForm::Coloured => printed_line.into_owned().into_bytes(),
            };
            self.bars.suspend(|| output::stderr().log(bytes));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Standard error as the terminal on which bars are drawn. It may be one that takes nothing more: bars are left out like lines of the log.
#[derive(Debug)]
struct Terminal;

impl Terminal {
    fn put(&self, text: String) -> io::Result<()> {
        output::stderr().draw(text.into_bytes());
        Ok(())
    }

    fn moved(&self, count: usize, direction: char) -> io::Result<()> {
        match count {
            0 => Ok(()),
            count => self.put(format!("\x1b[{count}{direction}")),
        }
    }

    /// Columns and rows.
    fn size(&self) -> Option<(u16, u16)> {
        let size = tcgetwinsize(io::stderr()).ok()?;
        (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        self.size().map_or(80, |(columns, _)| columns)
    }

    fn height(&self) -> u16 {
        self.size().map_or(24, |(_, rows)| rows)
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'A')
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'B')
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'C')
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.moved(n, 'D')
    }

    fn write_line(&self, s: &str) -> io::Result<()> {
        self.put(format!("{s}\n"))
    }

    fn write_str(&self, s: &str) -> io::Result<()> {
        self.put(s.to_owned())
    }

    fn clear_line(&self) -> io::Result<()> {
        self.put("\r\x1b[2K".to_owned())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A bar for rows that another process reads. It is removed when this is dropped.
pub(crate) struct RowsBar(ProgressBar);

impl Bars {
    /// A new bar.
    pub(crate) fn rows(&self) -> RowsBar {
        RowsBar(self.0.add(ProgressBar::no_length()))
    }
}

impl RowsBar {
    /// Shows how many rows of a table have been read, and of how many.
    pub(crate) fn show(&self, table: &str, rows: u64, estimate: Option<u64>) {
        let Self(bar) = self;
        bar.set_prefix(printed::one_line(table).into_owned());
        match estimate {
            Some(estimate) => {
                bar.set_style(style(WITH_ESTIMATE));
                bar.set_length(estimate.max(rows));
            }
            None => bar.set_style(style(WITHOUT)),
        }
        bar.set_position(rows);
    }
}

impl Drop for RowsBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
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
        let bar = bar.get_or_insert_with(|| {
            bars.0
                .add(ProgressBar::no_length().with_prefix(printed::one_line(&status.name).into_owned()))
        });
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
