//! Reads files whose paths come from a configuration: regular files only, and not more of them than a configuration needs.
//!
//! A path may lead to anything: a pipe nobody writes to would block the thread for ever, and a device such as `/dev/zero` never ends.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// The largest file that a configuration may refer to, in bytes.
pub const LARGEST: u64 = 1 << 20;

/// Opens a regular file to read it. Links are followed.
///
/// # Errors
/// What the operating system says, or that it is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    // Some devices do something when they are opened, so look first. What is opened may be something else by then: look again.
    is_regular(&fs::metadata(path)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    is_regular(&file.metadata()?)?;
    Ok(file)
}

/// Opens a regular file to read and to write it. The last part of its path must be no link, and the file must have no other name (no hard link):
/// somebody who may only add names to the folder could otherwise have another file written to.
///
/// # Errors
/// What the operating system says, or why it must not be written to.
pub fn open_for_writing(path: &Path) -> io::Result<File> {
    let found = fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Err(io::Error::other("it is a link"));
    }
    is_regular(&found)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_NOFOLLOW)
        .open(path)?;
    let opened = file.metadata()?;
    is_regular(&opened)?;
    if opened.nlink() > 1 {
        return Err(io::Error::other("it has a second name (a hard link)"));
    }
    Ok(file)
}

/// Reads a regular file of at most [`LARGEST`] bytes.
///
/// # Errors
/// What the operating system says, or that it is too large or no regular file.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_open(&open(path)?)
}

/// Reads a file that is open, as [`read`] does.
///
/// # Errors
/// What the operating system says, or that it is too large.
pub fn read_open(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other("it is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// Reads the text of a file that is open, as [`read`] does.
///
/// # Errors
/// As [`read_open`], or that it is not UTF-8.
pub fn read_text(file: &File) -> io::Result<String> {
    String::from_utf8(read_open(file)?).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not valid UTF-8"))
}

/// Where an open file really lies, whatever links its path went through. It is asked of the open file: the path may lead elsewhere by now.
///
/// # Errors
/// What the operating system says, or that `path` leads to another file by now.
pub fn real_path(file: &File, path: &Path) -> io::Result<PathBuf> {
    use std::os::fd::AsRawFd as _;
    if let Ok(real) = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
        return Ok(real);
    }
    // Without /proc.
    let real = fs::canonicalize(path)?;
    let (now, opened) = (fs::metadata(&real)?, file.metadata()?);
    match (now.dev(), now.ino()) == (opened.dev(), opened.ino()) {
        true => Ok(real),
        false => Err(io::Error::other("its path leads to another file by now")),
    }
}

fn is_regular(found: &fs::Metadata) -> io::Result<()> {
    match found.is_file() {
        true => Ok(()),
        false if found.is_dir() => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a directory")),
        false => Err(io::Error::other("it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, process::Command};

    use super::*;

    #[test]
    fn pipes_devices_and_large_files_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        symlink("/dev/zero", at("zero")).unwrap();
        fs::write(at("large"), vec![b'x'; LARGEST as usize + 1]).unwrap();
        fs::write(at("fits"), vec![b'x'; LARGEST as usize]).unwrap();
        symlink(at("fits"), at("link")).unwrap();
        let outcome = |name: &str| {
            read(&at(name))
                .map(|bytes| bytes.len())
                .map_err(|error| error.to_string())
        };
        assert_eq!(outcome("pipe"), Err("it is not a regular file".to_owned()));
        assert_eq!(outcome("zero"), Err("it is not a regular file".to_owned()));
        assert_eq!(outcome("."), Err("it is a directory".to_owned()));
        assert_eq!(outcome("large"), Err("it is larger than 1 MiB".to_owned()));
        assert_eq!(outcome("fits"), Ok(LARGEST as usize));
        assert_eq!(outcome("link"), Ok(LARGEST as usize));
        let file = open(&at("link")).unwrap();
        assert_eq!(
            real_path(&file, &at("link")).unwrap(),
            fs::canonicalize(at("fits")).unwrap()
        );
    }

    #[test]
    fn only_a_file_with_one_name_is_opened_for_writing() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("one"), "x").unwrap();
        fs::write(at("two"), "x").unwrap();
        fs::hard_link(at("two"), at("second")).unwrap();
        symlink(at("one"), at("link")).unwrap();
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let outcome = |name: &str| open_for_writing(&at(name)).map(drop).map_err(|error| error.to_string());
        assert_eq!(outcome("one"), Ok(()));
        assert_eq!(outcome("second"), Err("it has a second name (a hard link)".to_owned()));
        assert_eq!(outcome("link"), Err("it is a link".to_owned()));
        assert_eq!(outcome("pipe"), Err("it is not a regular file".to_owned()));
    }
}
