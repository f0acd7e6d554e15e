//! What commands say on standard output.

use std::{fmt, io};

use walferry_diagnosis::{Kind, printed};

use crate::{error::Error, output};

/// Writes one line, with what would control a terminal or begin another line escaped. If nobody reads it any more, as with `walferry check | head`, the command does its work in silence, and
/// its exit code says so ([`output::code_of_success`]); an output that cannot be written otherwise ends the program.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::say::line(format_args!($($text)*))
    };
}
pub(crate) use say;

/// As [`say!`].
pub(crate) fn line(line: fmt::Arguments<'_>) {
    text(format!("{}\n", printed::one_line(&line.to_string())).into_bytes());
}

/// Writes a text of several lines. Names in it must be escaped already: a line feed in one would begin a line.
pub(crate) fn lines(lines: &str) {
    text(format!("{}\n", printed::lines(lines)).into_bytes());
}

/// Writes what has its line ends already, and is the program's own.
pub(crate) fn text(text: Vec<u8>) {
    match output::stdout().show(text) {
        // The process was asked to end while nobody read.
        Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let mut error = Error::new(Kind::Output, format!("the output cannot be written: {error}"));
            error.tell();
            output::exit(error.exit as u8);
        }
        _ => {}
    }
}
