//! The folder of a connector in the data directory.

use std::{
    fs::{self, File, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
};

use walferry_engine::{folder_name, former_folder_name};

use crate::{
    error::{Error, WRITTEN},
    format, private,
};

/// The folder of a connector. This process holds its lock as long as the value exists.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Holds the lock. The system releases it even if the process is killed.
    _lock: File,
}

/// About what the offset of a connector takes while it is written anew.
const ROOM_BYTES: usize = 64 * 1024;

/// The offset of a connector.
pub(crate) const OFFSET_FILE: &str = "offset.json";

/// Each folder has it.
pub(crate) const LOCK_FILE: &str = "lock";

impl Folder {
    /// Creates the folder if it is missing, and locks it.
    ///
    /// # Errors
    /// Another process holds it, or it cannot be created or written.
    pub fn open(data_dir: &Path, connector: &str) -> Result<Self, Error> {
        Self::open_as(Self::path_of(data_dir, connector))
    }

    /// The same for a folder that is no connector's.
    pub(crate) fn open_as(path: PathBuf) -> Result<Self, Error> {
        create_durably(&path)?;
        let lock_path = path.join(LOCK_FILE);
        let mut lock = private::open(&lock_path).map_err(Error::io(&lock_path, "opened for writing"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // This only improves the error message. The holder may not have written its number yet.
                let _ = lock.read_to_string(&mut holder);
                return Err(Error::Locked {
                    folder: path,
                    pid: holder.trim().parse().ok(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(Error::io(&lock_path, "locked")(error)),
        }
        let note = |mut file: &File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        // This only improves the error messages of others. The lock is held even if the disk is full.
        let _ = note(&lock);
        Ok(Self { path, _lock: lock })
    }

    /// Checks whether [`open`](Self::open) would succeed: that no other process holds the folder, and that this process
    /// may write to the folder or, if it does not exist yet, to its nearest existing parent.
    ///
    /// # Errors
    /// What `open` would fail with.
    pub fn probe(data_dir: &Path, connector: &str) -> Result<(), Error> {
        let path = Self::path_of(data_dir, connector);
        if let Ok(mut lock) = File::open(path.join(LOCK_FILE)) {
            // The lock is shared, so that two checks at once do not block each other. It ends with this check.
            if let Err(TryLockError::WouldBlock) = lock.try_lock_shared() {
                let mut holder = String::new();
                // This only improves the error message. The holder may not have written its number yet.
                let _ = lock.read_to_string(&mut holder);
                return Err(Error::Locked {
                    folder: path,
                    pid: holder.trim().parse().ok(),
                });
            }
        }
        let (there, missing) = nearest(&path);
        refuse_file(there)?;
        let attempt = attempt_in(there);
        let (place, action) = missing.map_or((there, "written"), |missing| (missing, "created"));
        File::create_new(&attempt).map_err(Error::io(place, action))?;
        fs::remove_file(&attempt).map_err(Error::io(&attempt, "removed"))
    }

    /// Whether the disk has room for an offset: something of that size is written, and removed again.
    ///
    /// # Errors
    /// There is no room, or nothing can be written.
    pub fn probe_room(data_dir: &Path, connector: &str) -> Result<(), Error> {
        let path = Self::path_of(data_dir, connector);
        let (there, _) = nearest(&path);
        let attempt = attempt_in(there);
        let mut file = File::create_new(&attempt).map_err(Error::io(there, WRITTEN))?;
        let written = file.write_all(&vec![0; ROOM_BYTES]).and_then(|()| file.sync_all());
        fs::remove_file(&attempt).map_err(Error::io(&attempt, "removed"))?;
        written.map_err(Error::io(there, WRITTEN))
    }

    /// The path of a connector's folder, whether or not it exists. A connector with a long name stays in the folder that an earlier version
    /// made, unless that folder has the offset of another connector: earlier versions could give one folder to two names.
    pub fn path_of(data_dir: &Path, connector: &str) -> PathBuf {
        let path = data_dir.join(folder_name(connector));
        let Some(former) = former_folder_name(connector).map(|name| data_dir.join(name)) else {
            return path;
        };
        let is_of_another = || {
            let offset = fs::read(former.join(OFFSET_FILE)).ok();
            let partition = offset.and_then(|offset| format::partition(&offset));
            partition.is_some_and(|found| found.connector != connector)
        };
        match !path.is_dir() && former.is_dir() && !is_of_another() {
            true => former,
            false => path,
        }
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The nearest folder that exists, and the first one below it that does not.
fn nearest(path: &Path) -> (&Path, Option<&Path>) {
    let is_missing = |path: &&Path| !path.as_os_str().is_empty() && path.symlink_metadata().is_err();
    let missing = path.ancestors().take_while(is_missing).last();
    let there = missing.map_or(Some(path), Path::parent);
    let there = there.filter(|path| !path.as_os_str().is_empty());
    (there.unwrap_or(Path::new(".")), missing)
}

fn attempt_in(folder: &Path) -> PathBuf {
    folder.join(format!(".walferry-check-{}", std::process::id()))
}

/// Fails if there is something else than a folder.
fn refuse_file(path: &Path) -> Result<(), Error> {
    match path.exists() && !path.is_dir() {
        true => Err(Error::io(path, "used as a folder")(
            std::io::ErrorKind::NotADirectory.into(),
        )),
        false => Ok(()),
    }
}

/// Creates a directory and its missing parents for their owner alone, so that they still exist after a power failure.
fn create_durably(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Ok(());
    }
    refuse_file(path)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        create_durably(parent)?;
    }
    match private::create_folder(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => {}
        result => result.map_err(Error::io(path, "created"))?,
    }
    sync_dir(parent.unwrap_or(Path::new(".")))
}

/// Syncs a directory, so that the names in it are durable.
pub(crate) fn sync_dir(path: &Path) -> Result<(), Error> {
    File::open(path)
        .and_then(|dir| dir.sync_all())
        .map_err(Error::io(path, "synchronised"))
}

#[cfg(test)]
mod tests {
    use walferry_engine::store::StoredOffset;
    use walferry_record::SourcePartition;

    use super::*;
    use crate::file::FileStore;

    #[test]
    fn a_file_in_the_place_of_the_data_directory_is_told_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "x").unwrap();
        for data_dir in [file.clone(), file.join("deep/er"), "/proc/x".into()] {
            let probed = Folder::probe(&data_dir, "c").unwrap_err().to_string();
            let opened = Folder::open(&data_dir, "c").unwrap_err().to_string();
            assert_eq!(probed, opened);
            let place = match data_dir.starts_with("/proc") {
                true => "/proc/x cannot be created".to_owned(),
                false => format!("{} cannot be used as a folder", file.display()),
            };
            assert!(opened.starts_with(&place), "{opened}");
        }
    }

    #[test]
    fn a_probe_tells_what_opening_would_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("new/deep");
        Folder::probe(&data_dir, "c").unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let held = Folder::open(&data_dir, "c").unwrap();
        assert!(matches!(
            Folder::probe(&data_dir, "c"),
            Err(Error::Locked { pid: Some(_), .. })
        ));
        Folder::probe(&data_dir, "other").unwrap();
        drop(held);
        Folder::probe(&data_dir, "c").unwrap();
        let entries = fs::read_dir(&data_dir).unwrap().count();
        Folder::probe_room(&data_dir, "c").unwrap();
        Folder::probe_room(&dir.path().join("newer/deep"), "c").unwrap();
        assert_eq!(fs::read_dir(&data_dir).unwrap().count(), entries);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(Folder::probe(&file, "c"), Err(Error::Io { .. })));
    }

    #[test]
    fn a_folder_and_its_parents_are_for_their_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;

        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("new/deep");
        let held = Folder::open(&data_dir, "c").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for folder in [&dir.path().join("new"), &data_dir, &held.path] {
            assert_eq!(mode(folder), 0o700, "{}", folder.display());
        }
        assert_eq!(mode(&held.path.join(LOCK_FILE)), 0o600);
    }

    #[test]
    fn a_folder_is_held_by_one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let held = Folder::open(&dir.path().join("new/deep"), "c").unwrap();
        let Err(Error::Locked { pid, .. }) = Folder::open(&dir.path().join("new/deep"), "c") else {
            panic!("locked twice");
        };
        assert_eq!(pid, Some(std::process::id()));
        Folder::open(&dir.path().join("new/deep"), "other").unwrap();
        drop(held);
        Folder::open(&dir.path().join("new/deep"), "c").unwrap();
    }

    /// Both names have one CRC32, after which earlier versions called the folder.
    #[test]
    fn a_long_name_keeps_the_folder_that_it_had_and_gets_nobody_elses() {
        let names = ["dppdbgfw", "ovnpswqj"].map(|end| "x".repeat(292) + end);
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = names.each_ref().map(|name| Folder::path_of(dir.path(), name));
        assert_ne!(one, other);
        let former = dir.path().join(former_folder_name(&names[0]).unwrap());
        fs::create_dir(&former).unwrap();
        assert_eq!(Folder::path_of(dir.path(), &names[0]), former);
        let partition = |connector: &str| SourcePartition {
            connector: connector.to_owned(),
            server: "s".to_owned(),
        };
        let store = FileStore::open(dir.path(), partition(&names[0])).unwrap();
        store.replace(&StoredOffset::default()).unwrap();
        drop(store);
        assert_eq!(Folder::path_of(dir.path(), &names[0]), former);
        assert_eq!(Folder::path_of(dir.path(), &names[1]), other);
        // Both work at the same time, and each finds its own offset again.
        let mut stores = names
            .each_ref()
            .map(|name| FileStore::open(dir.path(), partition(name)).unwrap());
        assert_eq!(
            stores.each_ref().map(|store| store.read().unwrap().is_some()),
            [true, false]
        );
        stores[1].replace(&StoredOffset::default()).unwrap();
        assert!(stores.each_mut().iter().all(|store| store.read().unwrap().is_some()));
        // What is damaged belongs to whoever asks for it: damage is never a first start.
        drop(stores);
        fs::write(former.join(OFFSET_FILE), "{").unwrap();
        assert_eq!(Folder::path_of(dir.path(), &names[0]), former);
    }
}
