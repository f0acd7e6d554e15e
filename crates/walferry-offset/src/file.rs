//! An offset in a file.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read as _, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};
use walferry_diagnosis::Kind;

use walferry_engine::{
    Failure, Position,
    gap::{Gap, GapChoice},
    store::{OffsetStore, StoredOffset},
};
use walferry_record::SourcePartition;

use crate::{
    error::{Error, WRITTEN},
    folder::{Folder, OFFSET_FILE as FILE, sync_dir},
    format::{self, FORMAT, Fault, Read},
    gap,
    halves::{self, Layout, NextWrite},
    private, skip,
};

/// Stores the offset of one connector in its folder. Holds the folder's lock.
#[derive(Debug, Clone)]
pub struct FileStore {
    data_dir: PathBuf,
    /// `None` until the folder could be opened.
    folder: Option<Arc<Folder>>,
    partition: SourcePartition,
    /// The file that the next write can change in place. `None` if a new file must be made.
    known: Arc<Mutex<Option<KnownFile>>>,
}

/// A file that this store has read or written, and where the offset is in it.
#[derive(Debug, Clone, Copy)]
struct KnownFile {
    device: u64,
    inode: u64,
    layout: Layout,
}

/// How often a file is read that another process may be writing, and the pause between reads. One read may fall into a
/// write.
const LOOKS: u32 = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A file that is being written. It means nothing once its writer has ended.
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
            known: Arc::default(),
        })
    }

    /// Like [`open`](Self::open), for a connector that can wait. If the disk is full or fails, the folder is opened
    /// later, when the offset is loaded.
    ///
    /// # Errors
    /// Another process holds the folder, or it cannot be used until a person has done something.
    pub fn open_when_possible(data_dir: &Path, partition: SourcePartition) -> Result<Self, Error> {
        match Self::open(data_dir, partition.clone()) {
            Err(error) if error.passes() => Ok(Self {
                data_dir: data_dir.to_owned(),
                folder: None,
                partition,
                known: Arc::default(),
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

    /// The folder of a connector, whether or not it exists.
    pub fn folder_of(data_dir: &Path, partition: &SourcePartition) -> PathBuf {
        Folder::path_of(data_dir, &partition.connector)
    }

    /// Reads the offset of a connector that may be running. Takes no lock and creates nothing.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek(data_dir: &Path, partition: &SourcePartition) -> Result<Option<StoredOffset>, Error> {
        let path = Folder::path_of(data_dir, &partition.connector).join(FILE);
        let mut looks = 1;
        loop {
            match read(&path, partition) {
                Err(Error::Damaged { .. }) if looks < LOOKS => {
                    thread::sleep(BETWEEN_LOOKS);
                    looks += 1;
                }
                found => return Ok(found?.map(|found| found.read.offset)),
            }
        }
    }

    /// The same for the offset of whatever topic prefix is in the folder of the connector.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn peek_of(data_dir: &Path, connector: &str) -> Result<Option<StoredOffset>, Error> {
        let path = Folder::path_of(data_dir, connector).join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(Error::io(&path, "read")(error)),
        };
        let partition = format::partition(&bytes).filter(|found| found.connector == connector);
        let partition = partition.unwrap_or_else(|| SourcePartition {
            connector: connector.to_owned(),
            server: String::new(),
        });
        Self::peek(data_dir, &partition)
    }

    /// Checks whether [`open`](Self::open) would succeed. Creates no folder and leaves nothing behind.
    ///
    /// # Errors
    /// What `open` would fail with.
    pub fn probe(data_dir: &Path, partition: &SourcePartition) -> Result<(), Error> {
        Folder::probe(data_dir, &partition.connector)
    }

    /// Whether the disk has room for an offset. Nothing stays there.
    ///
    /// # Errors
    /// There is no room, or nothing can be written.
    pub fn probe_room(data_dir: &Path, partition: &SourcePartition) -> Result<(), Error> {
        Folder::probe_room(data_dir, &partition.connector)
    }

    /// The path of the offset file.
    pub fn path(&self) -> PathBuf {
        self.folder().join(FILE)
    }

    /// Reads the stored offset. `None` if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, is damaged, or holds the offset of another connector or topic prefix.
    pub fn read(&self) -> Result<Option<StoredOffset>, Error> {
        let path = self.path();
        let Some(found) = read(&path, &self.partition)? else {
            return Ok(None);
        };
        let Read { offset, layout, torn } = found.read;
        // A killed process may have written this half without syncing it. The next write replaces the other half, so
        // this one must be on the disk by then.
        found.file.sync_data().map_err(Error::io(&path, WRITTEN))?;
        if let Some(why) = torn {
            tracing::warn!(
                file = %path.display(),
                why,
                "the last write of the offset was interrupted; continuing with the previous one"
            );
        }
        *self.known() = layout.map(|layout| KnownFile::new(&found.metadata, layout));
        Ok(Some(offset))
    }

    /// Replaces the offset. When this returns, the new offset is durable. If it fails, the file still has the previous
    /// one.
    ///
    /// # Errors
    /// The disk is full or broken, or the file must not be written.
    pub fn replace(&self, offset: &StoredOffset) -> Result<(), Error> {
        let content = format::content(&self.partition, offset);
        let mut known = self.known();
        let next = known.as_ref().and_then(|known| known.layout.next(&content));
        if let (Some(place), Some(next)) = (known.as_mut(), next)
            && let Some(file) = self.open_known(place)?
        {
            // If this fails, the next try writes to the same half, because the other half has the stored offset.
            write_in_place(&file, &next).map_err(Error::io(self.path(), WRITTEN))?;
            place.layout = next.layout;
            return Ok(());
        }
        *known = None;
        *known = Some(self.make(&content)?);
        Ok(())
    }

    /// Opens the known file. `None` if it was removed or replaced.
    fn open_known(&self, known: &KnownFile) -> Result<Option<File>, Error> {
        let path = self.path();
        let file = match File::options().write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path, WRITTEN)(error)),
        };
        let metadata = file.metadata().map_err(Error::io(&path, WRITTEN))?;
        Ok(known.is(&metadata).then_some(file))
    }

    /// Replaces the existing file by a new one.
    fn make(&self, content: &str) -> Result<KnownFile, Error> {
        let temporary = self.folder().join(TEMPORARY);
        let (bytes, layout) = halves::file(content);
        let write = || {
            let mut file = private::create(&temporary)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            file.metadata()
        };
        let metadata = write().map_err(Error::io(&temporary, WRITTEN))?;
        let path = self.path();
        fs::rename(&temporary, &path).map_err(Error::io(&path, "replaced"))?;
        sync_dir(&self.folder())?;
        Ok(KnownFile::new(&metadata, layout))
    }

    fn known(&self) -> MutexGuard<'_, Option<KnownFile>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the offset, so that the next start finds none. Returns whether there was a file, whatever its content.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self) -> Result<bool, Error> {
        // Without the offset, its gap does not exist any more.
        gap::tell(&self.folder(), None)?;
        *self.known() = None;
        let path = self.path();
        match fs::remove_file(&path) {
            Ok(()) => sync_dir(&self.folder()).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io(path, "removed")(error)),
        }
    }
}

impl KnownFile {
    fn new(metadata: &Metadata, layout: Layout) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            layout,
        }
    }

    fn is(&self, metadata: &Metadata) -> bool {
        let length = self.layout.file_bytes() as u64;
        (metadata.dev(), metadata.ino(), metadata.len()) == (self.device, self.inode, length)
    }
}

/// The length of the file and its blocks on the disk do not change, so only the bytes must be synced.
fn write_in_place(file: &File, next: &NextWrite) -> io::Result<()> {
    file.write_all_at(&next.bytes, next.at)?;
    file.sync_data()
}

/// A file that was read, with its content.
struct FoundFile {
    file: File,
    metadata: Metadata,
    read: Read,
}

fn read(path: &Path, partition: &SourcePartition) -> Result<Option<FoundFile>, Error> {
    let read = || {
        let mut file = File::open(path)?;
        let metadata = file.metadata()?;
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default() + 1);
        file.read_to_end(&mut bytes)?;
        Ok((file, metadata, bytes))
    };
    let (file, metadata, bytes) = match read() {
        Ok(read) => read,
        Err(error)
            if matches!(
                io::Error::kind(&error),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(Error::io(path, "read")(error)),
    };
    let decoded = format::decode(partition, &bytes).map_err(|fault| {
        let file = path.to_owned();
        match fault {
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
        }
    });
    Ok(Some(FoundFile {
        file,
        metadata,
        read: decoded?,
    }))
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
        Ok(blocking(move || gap::known(&folder)).await??)
    }

    async fn settle_choice(&mut self) -> Result<(), Failure> {
        let folder = self.folder();
        Ok(blocking(move || gap::settle(&folder)).await??)
    }

    async fn choice(&mut self) -> Result<Option<GapChoice>, Failure> {
        let folder = self.folder();
        Ok(blocking(move || gap::choice(&folder)).await??)
    }

    async fn record_skips(&mut self) -> Result<Vec<Position>, Failure> {
        let folder = self.folder();
        Ok(blocking(move || skip::read(&folder)).await??)
    }

    async fn settle_record_skips(&mut self, stored: &StoredOffset) -> Result<(), Failure> {
        let folder = self.folder();
        let wished = blocking({
            let folder = folder.clone();
            move || skip::read(&folder)
        })
        .await??;
        let past: Vec<Position> = wished
            .into_iter()
            .filter(|position| stored.is_past(*position))
            .collect();
        Ok(blocking(move || skip::settle(&folder, &past)).await??)
    }
}

/// Runs work that may wait for the disk on another thread, so that keepalives are answered meanwhile.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failure> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        Failure::retry(
            Kind::NoThread,
            format!("the offset could not be read or written: {error}"),
        )
    })
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

    fn encode(server: &str, lsn: u64) -> Vec<u8> {
        halves::file(&format::content(&partition(server), &offset(lsn))).0
    }

    /// An offset that needs a larger file.
    fn long_offset(lsn: u64) -> StoredOffset {
        let mut offset = offset(lsn);
        offset.connect.other.insert("long".into(), "x".repeat(100_000).into());
        offset
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
            (&good[..good.len() / 2], Kind::OffsetDamaged),
            (&[][..], Kind::OffsetDamaged),
            (&encode("other", 7), Kind::OffsetForeign),
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
        let next = encode("shop", 8);
        for end in 0..=next.len() {
            // The state after a process was killed before the rename.
            fs::write(store.folder().join(TEMPORARY), &next[..end]).unwrap();
            assert_eq!(store.read().unwrap(), Some(offset(7)));
        }
        store.replace(&offset(9)).unwrap();
        assert_eq!(store.read().unwrap(), Some(offset(9)));
    }

    /// The state after a process was killed, or a machine lost power, during a write in place.
    #[test]
    fn a_write_in_place_that_breaks_off_leaves_the_offset_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), partition("shop")).unwrap();
        for lsn in [6, 7] {
            store.replace(&offset(lsn)).unwrap();
        }
        let before = fs::read(store.path()).unwrap();
        store.replace(&offset(8)).unwrap();
        let after = fs::read(store.path()).unwrap();
        assert_eq!(before.len(), after.len());
        let changed: Vec<usize> = (0..before.len()).filter(|&at| before[at] != after[at]).collect();
        // The test of the layout tries each byte. Here each try waits for the disk, so it takes few.
        for &at in changed.iter().step_by(changed.len() / 10) {
            for torn in [
                [&after[..at], &before[at..]].concat(),
                [&before[..at], &after[at..]].concat(),
            ] {
                fs::write(store.path(), &torn).unwrap();
                // Another process, which continues from there.
                let next = FileStore {
                    known: Arc::default(),
                    ..store.clone()
                };
                let read = next.read().unwrap();
                assert!(read == Some(offset(7)) || torn == after, "byte {at}: {read:?}");
                next.replace(&offset(9)).unwrap();
                assert_eq!(next.read().unwrap(), Some(offset(9)));
            }
        }
    }

    #[test]
    fn a_file_of_an_earlier_version_is_read_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), partition("shop")).unwrap();
        let content = format::content(&partition("shop"), &offset(7)).replace("\"format\": 2", "\"format\": 1");
        let crc32 = crc32fast::hash(content.as_bytes());
        let old = format!("{{\n\"crc32\": \"{crc32:08x}\",\n\"content\": {content}\n}}\n");
        fs::write(store.path(), old).unwrap();
        assert_eq!(store.read().unwrap(), Some(offset(7)));
        for lsn in [8, 9] {
            store.replace(&offset(lsn)).unwrap();
            assert_eq!(store.read().unwrap(), Some(offset(lsn)));
        }
    }

    /// Somebody restores a copy, or moves the file away, while the process runs.
    #[test]
    fn a_file_that_was_exchanged_is_not_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), partition("shop")).unwrap();
        store.replace(&offset(7)).unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(store.path(), &elsewhere).unwrap();
        store.replace(&offset(8)).unwrap();
        assert_eq!(store.read().unwrap(), Some(offset(8)));
        fs::rename(&elsewhere, store.path()).unwrap();
        store.replace(&offset(9)).unwrap();
        store.replace(&long_offset(10)).unwrap();
        assert_eq!(store.read().unwrap(), Some(long_offset(10)));
        store.replace(&offset(11)).unwrap();
        assert_eq!(store.read().unwrap(), Some(offset(11)));
        assert!(fs::metadata(store.path()).unwrap().len() < 20_000);
    }

    /// The command line reads while the process writes.
    #[test]
    fn whoever_reads_meanwhile_finds_an_offset() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path(), partition("shop")).unwrap();
        store.replace(&offset(1)).unwrap();
        thread::scope(|scope| {
            let writer = scope.spawn(|| (2..200).for_each(|lsn| store.replace(&offset(lsn)).unwrap()));
            let mut last = 0;
            while !writer.is_finished() {
                let read = FileStore::peek(dir.path(), &partition("shop")).unwrap().unwrap();
                let lsn = read.connect.lsn.unwrap();
                assert!(lsn + 1 >= last, "{lsn} after {last}");
                last = lsn.max(last);
            }
        });
    }

    /// `/dev/full` has no space for anybody, not even for root.
    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn a_full_disk_passes_and_the_offset_before_it_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(dir.path(), partition("shop")).unwrap();
        store.write(&offset(7)).await.unwrap();
        private::full_disks().push(store.folder());
        // A write that needs no more space than the one before succeeds.
        store.write(&offset(7)).await.unwrap();
        let failure = store.write(&long_offset(8)).await.unwrap_err();
        assert_eq!(
            (failure.kind, failure.disposition),
            (Kind::DiskFull, Disposition::Retry)
        );
        assert!(failure.to_string().contains("No space left on device"), "{failure}");
        let hint = failure.causes[0].hint.as_deref().unwrap_or_default();
        assert!(hint.starts_with("free space"), "{hint}");
        assert_eq!(store.load().await, Ok(Some(offset(7))));
        private::full_disks().retain(|folder| *folder != store.folder());
        store.write(&offset(9)).await.unwrap();
        assert_eq!(store.load().await, Ok(Some(offset(9))));
    }

    #[test]
    fn what_may_pass_is_tried_again_and_what_the_system_forbids_is_not() {
        let (no_files, broken, full) = (24, 5, 28);
        let cases = [
            (
                io::Error::from_raw_os_error(no_files),
                WRITTEN,
                Kind::NoDescriptors,
                true,
            ),
            (io::Error::from_raw_os_error(broken), WRITTEN, Kind::DataDirIo, true),
            (io::Error::from_raw_os_error(broken), "read", Kind::DataDirIo, true),
            (io::Error::from_raw_os_error(full), "created", Kind::DiskFull, true),
            (io::ErrorKind::FileTooLarge.into(), WRITTEN, Kind::DiskFull, true),
            (io::ErrorKind::ReadOnlyFilesystem.into(), WRITTEN, Kind::DataDirIo, true),
            (
                io::ErrorKind::ReadOnlyFilesystem.into(),
                "created",
                Kind::DataDirIo,
                false,
            ),
            (io::ErrorKind::PermissionDenied.into(), WRITTEN, Kind::DataDirIo, false),
        ];
        for (source, action, kind, passes) in cases {
            let phrase = format!("{source} {action}");
            let error = Error::io("/data", action)(source);
            let hint = error.hint();
            assert_eq!(
                hint.contains("LimitNOFILE"),
                kind == Kind::NoDescriptors,
                "{phrase}: {hint}"
            );
            let failure = Failure::from(error);
            let expected = match passes {
                true => Disposition::Retry,
                false => Disposition::Stop(Exit::State),
            };
            assert_eq!((failure.kind, failure.disposition), (kind, expected), "{phrase}");
        }
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_made_yet_is_opened_later_and_then_locked() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore {
            data_dir: dir.path().to_owned(),
            folder: None,
            partition: partition("shop"),
            known: Arc::default(),
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
        // A directory is in the way of the temporary file. Not even root can write there.
        fs::create_dir(store.folder().join(TEMPORARY)).unwrap();
        let failure = Failure::from(store.replace(&offset(7)).unwrap_err());
        assert_eq!(
            (failure.kind, failure.disposition),
            (Kind::DataDirIo, Disposition::Stop(Exit::State))
        );
        assert_eq!(store.read().unwrap(), None);

        let full = Error::io("/data", "written")(io::Error::from(io::ErrorKind::StorageFull));
        assert_eq!(full.hint(), "free space on the file system of /data");
    }
}
