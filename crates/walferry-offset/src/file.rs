//! An offset in a file.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use walferry_engine::{
    Failure,
    store::{OffsetStore, StoredOffset},
};
use walferry_record::SourcePartition;

use crate::{
    error::Error,
    folder::{Folder, sync_dir},
    format::{self, FORMAT, Fault},
};

/// The offset of one connector, in its folder. Holds the folder's lock.
#[derive(Debug, Clone)]
pub struct FileStore {
    folder: Arc<Folder>,
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
            folder: Arc::new(folder),
            partition,
        })
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
        self.folder.path().join(FILE)
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
        let temporary = self.folder.path().join(TEMPORARY);
        let bytes = format::encode(&self.partition, offset);
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(&bytes)?;
            file.sync_all()
        };
        write().map_err(Error::io(&temporary, "written"))?;
        let path = self.path();
        fs::rename(&temporary, &path).map_err(Error::io(&path, "replaced"))?;
        sync_dir(self.folder.path())
    }

    /// Removes the offset; the next start finds none. Returns whether there was one, whatever was in it.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self) -> Result<bool, Error> {
        let path = self.path();
        match fs::remove_file(&path) {
            Ok(()) => sync_dir(self.folder.path()).map(|()| true),
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
        let store = self.clone();
        Ok(blocking(move || store.read()).await??)
    }

    async fn write(&mut self, offset: &StoredOffset) -> Result<(), Failure> {
        let (store, offset) = (self.clone(), offset.clone());
        Ok(blocking(move || store.replace(&offset)).await??)
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
            fs::write(store.folder.path().join(TEMPORARY), &next[..end]).unwrap();
            assert_eq!(store.read().unwrap(), Some(offset(7)));
        }
        store.replace(&offset(9)).unwrap();
        assert_eq!(store.read().unwrap(), Some(offset(9)));
    }

    #[test]
    fn what_the_system_refuses_is_an_error_with_its_reason() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), partition("shop")).unwrap();
        // A directory in the way of the temporary file: also root cannot write that.
        fs::create_dir(store.folder.path().join(TEMPORARY)).unwrap();
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
