//! What commands say on standard output.

use std::{
    fmt,
    io::{self, Write},
    process,
};
use walferry_diagnosis::Kind;

use crate::error::Error;

/// Writes a line as `println!` does. That nobody reads it any more, as with `walferry check | head`, changes nothing; an output
/// that cannot be written otherwise ends the program.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::say::line(format_args!($($text)*))
    };
}
pub(crate) use say;

/// As [`say!`].
pub(crate) fn line(text: fmt::Arguments<'_>) {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Error::new(Kind::Output, format!("the output cannot be written: {error}")).tell();
            process::exit(2);
        }
        _ => {}
    }
}
