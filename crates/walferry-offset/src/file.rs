//! An offset in a file.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use walferry_engine::{
    Failure,
    gap::{Choice, Gap},
    store::{OffsetStore, StoredOffset},
};
use walferry_record::SourcePartition;

use crate::{
    error::{Error, WRITTEN},
    folder::{Folder, sync_dir},
    format::{self, FORMAT, Fault},
    gap,
};

/// The offset of one connector, in its folder. Holds the folder's lock.
#[derive(Debug, Clone)]
pub struct FileStore {
    data_dir: PathBuf,
    /// `None` while it could not be opened yet.
    folder: Option<Arc<Folder>>,
    partition: SourcePartition,
}

const FILE: &str = "offset.json";
/// What is being written; meaningless once the writer is gone.
const TEMPORARY: &str = "offset.json.new";

impl FileStore {
    /// Opens the store of a connector and locks its folder, which is created if it is missing.
    ///
    /// # Errors
    /// Another process holds the folder, or it cannot be created or written.
    pub fn open(data_dir: &Path, partition: SourcePartition) -> Result<Self, Error> {
        let folder = Folder::open(data_dir, &partition.connector)?;
        Ok(Self {
            data_dir: data_dir.to_owned(),
            folder: Some(Arc::new(folder)),
            partition,
        })
    }

    /// The same for a connector that waits: where the disk is full or fails, the folder is opened when the offset is loaded.
    ///
    /// # Errors
    /// Another process holds the folder, or it cannot be used until a person has done something.
    pub fn open_when_possible(data_dir: &Path, partition: SourcePartition) -> Result<Self, Error> {
        match Self::open(data_dir, partition.clone()) {
            Err(error) if error.passes() => Ok(Self {
                data_dir: data_dir.to_owned(),
                folder: None,
                partition,
            }),
            opened => opened,
        }
    }

    fn open_if_need_be(&mut self) -> Result<(), Error> {
        if self.folder.is_none() {
            self.folder = Some(Arc::new(Folder::open(&self.data_dir, &self.partition.connector)?));
        }
        Ok(())
    }

    fn folder(&self) -> PathBuf {
        Folder::path_of(&self.data_dir, &self.partition.connector)
    }

    /// Reads the offset of a connector that may be running: takes no lock and creates nothing.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek(data_dir: &Path, partition: &SourcePartition) -> Result<Option<StoredOffset>, Error> {
        read(&Folder::path_of(data_dir, &partition.connector).join(FILE), partition)
    }

    /// Whether [`open`](Self::open) would succeed. Leaves nothing behind, and creates no folder.
    ///
    /// # Errors
    /// What `open` would fail with.
    pub fn probe(data_dir: &Path, partition: &SourcePartition) -> Result<(), Error> {
        Folder::probe(data_dir, &partition.connector)
    }

    /// Where the offset is.
    pub fn path(&self) -> PathBuf {
        self.folder().join(FILE)
    }

    /// What was written last; `None` when there is no file.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or holds the offset of another connector or topic prefix.
    pub fn read(&self) -> Result<Option<StoredOffset>, Error> {
        read(&self.path(), &self.partition)
    }

    /// Replaces the offset. When this returns it is durable; if it fails, the file holds the one before.
    ///
    /// # Errors
    /// The disk is full or broken, or the file must not be written.
    pub fn replace(&self, offset: &StoredOffset) -> Result<(), Error> {
        let temporary = self.folder().join(TEMPORARY);
        let bytes = format::encode(&self.partition, offset);
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(&bytes)?;
            file.sync_all()
        };
        write().map_err(Error::io(&temporary, WRITTEN))?;
        let path = self.path();
        fs::rename(&temporary, &path).map_err(Error::io(&path, "replaced"))?;
        sync_dir(&self.folder())
    }

    /// Removes the offset; the next start finds none. Returns whether there was one, whatever was in it.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self) -> Result<bool, Error> {
        // A gap behind an offset that is gone is none.
        gap::tell(&self.folder(), None)?;
        let path = self.path();
        match fs::remove_file(&path) {
            Ok(()) => sync_dir(&self.folder()).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io(path, "removed")(error)),
        }
    }
}

fn read(path: &Path, partition: &SourcePartition) -> Result<Option<StoredOffset>, Error> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::io(path, "read")(error)),
    };
    let file = path.to_owned();
    format::decode(partition, &bytes)
        .map(Some)
        .map_err(|fault| match fault {
            Fault::Damaged(why) => Error::Damaged { file, why },
            Fault::Foreign { found } => Error::Foreign {
                file,
                found,
                expected: partition.key(),
            },
            Fault::Newer { found } => Error::Newer {
                file,
                found,
                known: FORMAT,
            },
        })
}

impl OffsetStore for FileStore {
    async fn load(&mut self) -> Result<Option<StoredOffset>, Failure> {
        let mut store = self.clone();
        let (store, read) = blocking(move || {
            let read = store.open_if_need_be().and_then(|()| store.read());
            (store, read)
        })
        .await?;
        *self = store;
        Ok(read?)
    }

    async fn write(&mut self, offset: &StoredOffset) -> Result<(), Failure> {
        let (mut store, offset) = (self.clone(), offset.clone());
        let (store, written) = blocking(move || {
            let written = store.open_if_need_be().and_then(|()| store.replace(&offset));
            (store, written)
        })
        .await?;
        *self = store;
        Ok(written?)
    }

    async fn tell_gap(&mut self, gap: Option<&Gap>) -> Result<(), Failure> {
        let (folder, gap) = (self.folder(), gap.cloned());
        Ok(blocking(move || gap::tell(&folder, gap.as_ref())).await??)
    }

    async fn told_gap(&mut self) -> Result<Option<Gap>, Failure> {
        let folder = self.folder();
        Ok(blocking(move || gap::told(&folder)).await??)
    }

    async fn settle_choice(&mut self) -> Result<(), Failure> {
        let folder = self.folder();
        Ok(blocking(move || gap::settle(&folder)).await??)
    }

    async fn choice(&mut self) -> Result<Option<Choice>, Failure> {
        let folder = self.folder();
        Ok(blocking(move || gap::choice(&folder)).await??)
    }
}

/// A disk may take its time; keepalives are answered meanwhile.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Failure::retry("no_thread", format!("the offset could not be read or written: {error}")))
}

#[cfg(test)]
mod tests {
    use walferry_engine::{Disposition, Exit};

    use super::*;

    fn partition(server: &str) -> SourcePartition {
        SourcePartition {
            connector: "orders".into(),
            server: server.into(),
        }
    }

    fn offset(lsn: u64) -> StoredOffset {
        let mut offset = StoredOffset::default();
        offset.connect.lsn = Some(lsn);
        offset
    }

    #[tokio::test]
    async fn the_last_offset_written_is_the_one_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(dir.path(), partition("shop")).unwrap();
        assert_eq!(store.load().await, Ok(None));
        for lsn in [7, 8] {
            store.write(&offset(lsn)).await.unwrap();
        }
        drop(store);
        let mut store = FileStore::open(dir.path(), partition("shop")).unwrap();
        assert_eq!(store.load().await, Ok(Some(offset(8))));
        assert_eq!(
            FileStore::peek(dir.path(), &partition("shop")).unwrap(),
            Some(offset(8))
        );
        assert_eq!((store.remove().unwrap(), store.remove().unwrap()), (true, false));
        assert_eq!(store.load().await, Ok(None));
    }

    #[tokio::test]
    async fn what_is_damaged_or_foreign_stops_and_never_starts_afresh() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(dir.path(), partition("shop")).unwrap();
        store.write(&offset(7)).await.unwrap();
        let good = fs::read(store.path()).unwrap();
        for (bytes, kind) in [
            (&good[..good.len() / 2], "offset_damaged"),
            (&[][..], "offset_damaged"),
            (&format::encode(&partition("other"), &offset(7)), "offset_foreign"),
        ] {
            fs::write(store.path(), bytes).unwrap();
            let failure = store.load().await.unwrap_err();
            assert_eq!(
                (failure.kind, failure.disposition),
                (kind, Disposition::Stop(Exit::State))
            );
            assert!(failure.causes[0].hint.is_some());
        }
    }

    #[test]
    fn a_write_that_breaks_off_leaves_the_offset_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), partition("shop")).unwrap();
        store.replace(&offset(7)).unwrap();
        let next = format::encode(&partition("shop"), &offset(8));
        for end in 0..=next.len() {
            // As a process leaves it that is killed before the rename.
            fs::write(store.folder().join(TEMPORARY), &next[..end]).unwrap();
            assert_eq!(store.read().unwrap(), Some(offset(7)));
        }
        store.replace(&offset(9)).unwrap();
        assert_eq!(store.read().unwrap(), Some(offset(9)));
    }

    /// `/dev/full` has no space for anybody, root included.
    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn a_full_disk_passes_and_the_offset_before_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(dir.path(), partition("shop")).unwrap();
        store.write(&offset(7)).await.unwrap();
        let temporary = store.folder().join(TEMPORARY);
        std::os::unix::fs::symlink("/dev/full", &temporary).unwrap();
        let failure = store.write(&offset(8)).await.unwrap_err();
        assert_eq!((failure.kind, failure.disposition), ("disk_full", Disposition::Retry));
        assert!(failure.to_string().contains("No space left on device"), "{failure}");
        let hint = failure.causes[0].hint.as_deref().unwrap_or_default();
        assert!(hint.starts_with("free space"), "{hint}");
        assert_eq!(store.load().await, Ok(Some(offset(7))));
        fs::remove_file(&temporary).unwrap();
        store.write(&offset(9)).await.unwrap();
        assert_eq!(store.load().await, Ok(Some(offset(9))));
    }

    #[test]
    fn what_may_pass_is_tried_again_and_what_the_system_forbids_is_not() {
        let (no_files, broken, full) = (24, 5, 28);
        let cases = [
            (io::Error::from_raw_os_error(no_files), WRITTEN, "no_descriptors", true),
            (io::Error::from_raw_os_error(broken), WRITTEN, "data_dir_io", true),
            (io::Error::from_raw_os_error(broken), "read", "data_dir_io", true),
            (io::Error::from_raw_os_error(full), "created", "disk_full", true),
            (io::ErrorKind::FileTooLarge.into(), WRITTEN, "disk_full", true),
            (io::ErrorKind::ReadOnlyFilesystem.into(), WRITTEN, "data_dir_io", true),
            (
                io::ErrorKind::ReadOnlyFilesystem.into(),
                "created",
                "data_dir_io",
                false,
            ),
            (io::ErrorKind::PermissionDenied.into(), WRITTEN, "data_dir_io", false),
        ];
        for (source, action, kind, passes) in cases {
            let told = format!("{source} {action}");
            let error = Error::io("/data", action)(source);
            let hint = error.hint();
            assert_eq!(hint.contains("LimitNOFILE"), kind == "no_descriptors", "{told}: {hint}");
            let failure = Failure::from(error);
            let expected = match passes {
                true => Disposition::Retry,
                false => Disposition::Stop(Exit::State),
            };
            assert_eq!((failure.kind, failure.disposition), (kind, expected), "{told}");
        }
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_made_yet_is_opened_later_and_then_locked() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore {
            data_dir: dir.path().to_owned(),
            folder: None,
            partition: partition("shop"),
        };
        assert_eq!(store.load().await, Ok(None));
        let locked = FileStore::open_when_possible(dir.path(), partition("shop"));
        assert!(matches!(locked, Err(Error::Locked { .. })), "{locked:?}");
        store.write(&offset(7)).await.unwrap();
        drop(store);
        let mut store = FileStore::open_when_possible(dir.path(), partition("shop")).unwrap();
        assert_eq!(store.load().await, Ok(Some(offset(7))));
    }

    #[test]
    fn what_the_system_refuses_is_an_error_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), partition("shop")).unwrap();
        // A directory in the way of the temporary file: also root cannot write that.
        fs::create_dir(store.folder().join(TEMPORARY)).unwrap();
        let failure = Failure::from(store.replace(&offset(7)).unwrap_err());
        assert_eq!(
            (failure.kind, failure.disposition),
            ("data_dir_io", Disposition::Stop(Exit::State))
        );
        assert_eq!(store.read().unwrap(), None);

        let full = Error::io("/data", "written")(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.hint(), "free space on the file system of /data");
    }
}
