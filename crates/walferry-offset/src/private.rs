//! Files and folders for their owner alone: an offset tells the key of the last row of an incremental snapshot, and whoever can write one can
//! have changes skipped.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, fchown},
    path::{Path, PathBuf},
};

use crate::folder::LOCK_FILE;

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
/// What the group and others can do.
const OTHERS: u32 = 0o077;
/// Everybody may create files in such a folder, like `/tmp`.
const STICKY: u32 = 0o1000;
/// Folders in folders of a connector.
const DEEPEST: u32 = 4;

/// Makes an empty file that replaces the one with this name. It is a new one: a link of this name, and a file that somebody else has opened,
/// stay as they are.
///
/// # Errors
/// The old file cannot be removed, or the new one cannot be made.
pub fn create(path: &Path) -> io::Result<File> {
    #[cfg(test)]
    if full_disks().iter().any(|folder| path.starts_with(folder)) {
        return File::options().write(true).open("/dev/full");
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = File::options()
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(path)?;
    belong_to_folder(&file, path);
    Ok(file)
}

/// Folders in which a test has new files on a full disk.
#[cfg(test)]
pub(crate) fn full_disks() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    static FULL: std::sync::Mutex<Vec<PathBuf>> = std::sync::Mutex::new(Vec::new());
    FULL.lock().unwrap()
}

/// Opens a file, which is made if it is missing.
///
/// # Errors
/// It can be neither opened nor made.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(FILE_MODE)
        .open(path)?;
    belong_to_folder(&file, path);
    Ok(file)
}

/// Makes a folder.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(FOLDER_MODE).create(path)?;
    if let Some((user, group)) = owner_of_folder(path) {
        // Only root may.
        let _ = chown(path, Some(user), Some(group));
    }
    Ok(())
}

/// What root makes belongs to the account that runs the connectors, which could not use it otherwise.
fn belong_to_folder(file: &File, path: &Path) {
    let user = file.metadata().map(|found| found.uid()).ok();
    if let Some((owner, group)) = owner_of_folder(path)
        && user.is_some_and(|user| user != owner)
    {
        // Only root may.
        let _ = fchown(file, Some(owner), Some(group));
    }
}

/// The owner and the group of the folder that a path is in. `None` for root's.
fn owner_of_folder(path: &Path) -> Option<(u32, u32)> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = fs::metadata(folder.unwrap_or(Path::new("."))).ok()?;
    (folder.uid() != 0).then(|| (folder.uid(), folder.gid()))
}

/// What [`tighten`] has done.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tightened {
    /// Files and folders that others could use until now, with the mode that they had.
    pub closed: Vec<(PathBuf, u32)>,
    /// The data directory itself stays open to others, because other things are in it.
    pub shared: bool,
}

/// Takes the rights of the group and of others from a data directory, if it exists. Earlier versions and other programs may have made it. A
/// directory that holds other things than folders of connectors stays as it is, and so does the root of a volume that belongs to another
/// user; the folders in it do not.
///
/// # Errors
/// The directory cannot be read.
pub fn tighten(data_dir: &Path) -> io::Result<Tightened> {
    let mut tightened = Tightened::default();
    let root = match fs::metadata(data_dir) {
        Ok(root) if root.is_dir() => root,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => return Ok(tightened),
    };
    let mut has_others = false;
    for entry in fs::read_dir(data_dir)? {
        let path = entry?.path();
        // An empty file system of its own may have it.
        let is_of_the_file_system = path.file_name().is_some_and(|name| name == "lost+found");
        match is_of_a_connector(&path) || is_history(&path) {
            true => close(&path, DEEPEST, &mut tightened.closed)?,
            false => has_others |= !is_of_the_file_system,
        }
    }
    if root.mode() & OTHERS != 0 {
        match has_others || root.mode() & STICKY != 0 {
            true => tightened.shared = true,
            false => take_rights(data_dir, root.mode(), &mut tightened.closed),
        }
    }
    Ok(tightened)
}

/// Whether it is a folder that Walferry has made.
fn is_of_a_connector(path: &Path) -> bool {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    is_folder && fs::symlink_metadata(path.join(LOCK_FILE)).is_ok_and(|found| found.is_file())
}

/// The folder with the history that the page shows, in the data directory. No connector's folder begins with a dot.
pub const HISTORY: &str = ".history";

fn is_history(path: &Path) -> bool {
    let is_folder = fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    is_folder && path.file_name().is_some_and(|name| name == HISTORY)
}

/// Links are left alone: what they lead to is not in the directory.
fn close(path: &Path, depth: u32, closed: &mut Vec<(PathBuf, u32)>) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() && !found.is_file() {
        return Ok(());
    }
    if found.mode() & OTHERS != 0 {
        take_rights(path, found.mode(), closed);
    }
    if found.is_dir() && depth > 0 {
        for entry in fs::read_dir(path)? {
            close(&entry?.path(), depth - 1, closed)?;
        }
    }
    Ok(())
}

fn take_rights(path: &Path, mode: u32, closed: &mut Vec<(PathBuf, u32)>) {
    let mode = mode & 0o7777;
    // The root of a volume may belong to somebody else.
    if fs::set_permissions(path, Permissions::from_mode(mode & !OTHERS)).is_ok() {
        closed.push((path.to_owned(), mode));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    /// A connector's folder as earlier versions made it.
    fn connector(data_dir: &Path, name: &str) -> PathBuf {
        let folder = data_dir.join(name);
        fs::create_dir(&folder).unwrap();
        set(&folder, 0o755);
        for file in ["lock", "offset.json"] {
            fs::write(folder.join(file), "").unwrap();
            set(&folder.join(file), 0o644);
        }
        folder
    }

    #[test]
    fn an_open_data_directory_is_closed_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        fs::create_dir(&data).unwrap();
        set(&data, 0o755);
        fs::create_dir(data.join("lost+found")).unwrap();
        let folder = connector(&data, "orders");
        let inner = folder.join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join("part"), "").unwrap();
        set(&inner.join("part"), 0o666);
        let outside = dir.path().join("outside");
        fs::write(&outside, "").unwrap();
        set(&outside, 0o644);
        symlink(&outside, folder.join("link")).unwrap();
        let history = data.join(HISTORY);
        fs::create_dir(&history).unwrap();
        set(&history, 0o755);
        let tightened = tighten(&data).unwrap();
        assert!(!tightened.shared);
        assert!(tightened.closed.contains(&(data.clone(), 0o755)), "{tightened:?}");
        for path in [&data, &folder, &inner, &history] {
            assert_eq!(mode(path), 0o700, "{}", path.display());
        }
        for path in [folder.join("lock"), folder.join("offset.json"), inner.join("part")] {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
        assert_eq!(mode(&outside), 0o644, "a link leads out of the directory");
        assert_eq!(tighten(&data).unwrap(), Tightened::default(), "nothing is left to do");
        assert_eq!(tighten(&dir.path().join("none")).unwrap(), Tightened::default());
    }

    #[test]
    fn the_group_of_a_volume_keeps_its_bit_and_loses_its_rights() {
        let dir = tempfile::tempdir().unwrap();
        set(dir.path(), 0o2775);
        let folder = connector(dir.path(), "orders");
        set(&folder, 0o2770);
        tighten(dir.path()).unwrap();
        assert_eq!((mode(dir.path()), mode(&folder)), (0o2700, 0o2700));
    }

    #[test]
    fn a_shared_directory_stays_open_but_the_folders_of_connectors_do_not() {
        for (others, open) in [(true, 0o755), (false, 0o1777)] {
            let dir = tempfile::tempdir().unwrap();
            set(dir.path(), open);
            let folder = connector(dir.path(), "orders");
            if others {
                fs::create_dir(dir.path().join("photos")).unwrap();
                set(&dir.path().join("photos"), 0o755);
            }
            assert!(tighten(dir.path()).unwrap().shared);
            assert_eq!((mode(dir.path()), mode(&folder)), (open, 0o700));
            assert!(!others || mode(&dir.path().join("photos")) == 0o755);
        }
    }

    #[test]
    fn a_new_file_is_for_its_owner_and_follows_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, path) = (dir.path().join("victim"), dir.path().join("new"));
        fs::write(&victim, "kept").unwrap();
        symlink(&victim, &path).unwrap();
        create(&path).unwrap();
        assert_eq!(fs::read_to_string(victim).unwrap(), "kept");
        set(&path, 0o644);
        create(&path).unwrap();
        assert_eq!(mode(&path), 0o600);
    }
}
