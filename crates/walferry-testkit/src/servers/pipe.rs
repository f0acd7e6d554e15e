//! A pipe that takes nothing more.

use rustix::io::ioctl_fionbio;
use std::io::{ErrorKind, PipeReader, PipeWriter, Write, pipe};

/// A pipe that is full: whoever writes to it waits until something is read from it.
#[track_caller]
pub fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().expect("a pipe can be made");
    ioctl_fionbio(&writer, true).expect("a pipe can be non-blocking");
    let full = loop {
        if let Err(full) = writer.write_all(&[b'\n'; 1024]) {
            break full;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    ioctl_fionbio(&writer, false).expect("a pipe can be blocking");
    (reader, writer)
}
