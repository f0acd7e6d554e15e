//! Problems with the data directory.

use std::{io, path::PathBuf};
use walferry_diagnosis::Kind;

use walferry_engine::{Disposition, Failure};

/// A problem with the data directory, or with the offset in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another process runs this connector.
    #[error("{} is in use by another process{}", .folder.display(), .pid.map(|pid| format!(", number {pid}")).unwrap_or_default())]
    Locked {
        /// The connector's folder.
        folder: PathBuf,
        /// The id of that process, if it has written it.
        pid: Option<u32>,
    },
    /// The content of the file is not what was written to it.
    #[error("{} is damaged: {why}", .file.display())]
    Damaged {
        /// The offset file.
        file: PathBuf,
        /// What is wrong in it.
        why: String,
    },
    /// The file holds another connector's offset.
    #[error("{} contains the offset of {found}, not of {expected}", .file.display())]
    Foreign {
        /// The offset file.
        file: PathBuf,
        /// The connector whose offset it holds, as Connect's key.
        found: String,
        /// The expected connector, as Connect's key.
        expected: String,
    },
    /// A later version of Walferry has written the file.
    #[error("{} has format {found}, but this version of Walferry supports formats up to {known}", .file.display())]
    Newer {
        /// The offset file.
        file: PathBuf,
        /// Its format.
        found: u32,
        /// The latest format that this version supports.
        known: u32,
    },
    /// The operating system refused an operation.
    #[error("{} cannot be {action}", .path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What was tried, as in "cannot be written".
        action: &'static str,
        /// The reason.
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
            Self::Locked { .. } => {
                "stop the other process, or use another `--data-dir` for this one; for a second process that takes over from the first, start \
                 both with `walferry run --worker FILE`, without `--data-dir`, where FILE names Kafka Connect's three topics"
                    .into()
            }
            Self::Damaged { file, .. } => format!(
                "restore {} from a copy, or write a known position with `walferry offsets import`; move the file away only if you want a \
                 new snapshot",
                file.display()
            ),
            Self::Foreign { .. } => {
                "change `name` and `topic.prefix` back to their previous values, or use another `--data-dir`; to keep the position under \
                 the new name, use `walferry offsets export` with the old name and `import` with the new one"
                    .into()
            }
            Self::Newer { .. } => "run the newer version again, or run `walferry offsets export` with it and `import` with this one".into(),
            Self::Io { path, source, .. } => match source.kind() {
                _ if is_full(source) => format!("free space on the file system of {}", path.display()),
                io::ErrorKind::PermissionDenied => format!(
                    "allow the user that runs Walferry to read and write {}, or use another `--data-dir`",
                    path.display()
                ),
                io::ErrorKind::ReadOnlyFilesystem => {
                    "mount the file system as writable, or use another `--data-dir`".into()
                }
                _ if self.is_without_descriptors() => {
                    "raise the limit of open files (`LimitNOFILE=` of a systemd unit, `ulimit -n` in a shell)".into()
                }
                _ => "check the disk and the system log, or use another `--data-dir`".into(),
            },
        }
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Locked { .. } => Kind::DataDirLocked,
            Self::Damaged { .. } | Self::Newer { .. } => Kind::OffsetDamaged,
            Self::Foreign { .. } => Kind::OffsetForeign,
            Self::Io { source, .. } if is_full(source) => Kind::DiskFull,
            Self::Io { .. } if self.is_without_descriptors() => Kind::NoDescriptors,
            Self::Io { .. } => Kind::DataDirIo,
        }
    }

    /// Whether the same operation may succeed later without a change of how the program is called: the disk is full or
    /// failing, or all file descriptors are in use. If the system refuses for any other reason, a person has to correct
    /// it.
    pub(crate) fn passes(&self) -> bool {
        use io::ErrorKind::{
            InvalidFilename, IsADirectory, NotADirectory, NotFound, PermissionDenied, ReadOnlyFilesystem, Unsupported,
        };
        match self {
            // A failing disk is remounted read-only until somebody repairs it. A disk that is read-only at the start is
            // meant to be.
            Self::Io { action, source, .. } if source.kind() == ReadOnlyFilesystem => *action == WRITTEN,
            Self::Io { source, .. } => !matches!(
                source.kind(),
                InvalidFilename | IsADirectory | NotADirectory | NotFound | PermissionDenied | Unsupported
            ),
            _ => false,
        }
    }

    fn is_without_descriptors(&self) -> bool {
        // EMFILE (process) and ENFILE (system) have these numbers on every Unix that Rust supports.
        matches!(self, Self::Io { source, .. } if matches!(source.raw_os_error(), Some(24 | 23)))
    }

    /// The failure of a command that does not retry.
    pub fn for_good(self) -> Failure {
        Failure::stop(self.kind(), Failure::chain(&self), self.hint())
    }
}

/// The operation that writes an offset.
pub(crate) const WRITTEN: &str = "written";

fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// A temporary problem is retried. Any other needs a person.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.passes() {
            true => Self::new(
                Disposition::Retry,
                error.kind(),
                Self::chain(&error),
                Some(error.hint()),
            ),
            false => error.for_good(),
        }
    }
}
