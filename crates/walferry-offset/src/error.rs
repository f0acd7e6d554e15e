//! What can be wrong with the data directory.

use std::{io, path::PathBuf};

use walferry_engine::{Exit, Failure};

/// Something is wrong with the data directory or the offset in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process works for this connector.
    #[error("{} is in use by another process{}", .folder.display(), .pid.map(|pid| format!(", number {pid}")).unwrap_or_default())]
    Locked {
        /// The connector's folder.
        folder: PathBuf,
        /// That process, if it has said so.
        pid: Option<u32>,
    },
    /// The file does not hold what was written to it.
    #[error("{} is damaged: {why}", .file.display())]
    Damaged {
        /// The offset file.
        file: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// The file holds another connector's offset.
    #[error("{} holds the offset of {found}, not of {expected}", .file.display())]
    Foreign {
        /// The offset file.
        file: PathBuf,
        /// Whose offset it holds: Connect's key.
        found: String,
        /// Whose was expected.
        expected: String,
    },
    /// A later version of Walferry has written the file.
    #[error("{} has format {found}, and this version of Walferry reads formats up to {known}", .file.display())]
    Newer {
        /// The offset file.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// The latest format that is known here.
        known: u32,
    },
    /// The system refuses something.
    #[error("{} cannot be {action}", .path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What was tried, as in "cannot be written".
        action: &'static str,
        /// Why not.
        source: io::Error,
    },
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, action, source }
    }

    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Locked { .. } => "stop the other process, or give this one another `--data-dir`".into(),
            Self::Damaged { file, .. } => format!(
                "restore {} from a copy, or write a known position with `walferry offsets import`; only if a new snapshot is \
                 wanted, move the file away",
                file.display()
            ),
            Self::Foreign { .. } => {
                "put back the `name` and `topic.prefix` that the connector had, or use another `--data-dir`; to carry the position \
                 over to the new name, use `walferry offsets export` under the old one and `import` under the new one"
                    .into()
            }
            Self::Newer { .. } => "run the later version again, or `walferry offsets export` with it and `import` with this one".into(),
            Self::Io { path, source, .. } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    format!("free space on the file system of {}", path.display())
                }
                io::ErrorKind::PermissionDenied => format!(
                    "give the user that Walferry runs as the right to read and write {}, or use another `--data-dir`",
                    path.display()
                ),
                io::ErrorKind::ReadOnlyFilesystem => {
                    "mount the file system for writing, or use another `--data-dir`".into()
                }
                _ => "look at the disk and the system's log, or use another `--data-dir`".into(),
            },
        }
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Locked { .. } => "data_dir_locked",
            Self::Damaged { .. } | Self::Newer { .. } => "offset_damaged",
            Self::Foreign { .. } => "offset_foreign",
            Self::Io { .. } => "data_dir_io",
        }
    }
}

/// All of them need a person.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::stop(Exit::State, error.kind(), Self::chain(&error), error.hint())
    }
}
