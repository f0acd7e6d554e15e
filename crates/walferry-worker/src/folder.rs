//! The files of a folder that an option names.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

const DEEPEST: usize = 4;

/// A folder with more entries is not the one that was meant.
const MOST: usize = 10_000;

/// A larger file is not the one that was meant.
const LARGEST: u64 = 16 << 20;

/// All `.json` files together: they are all in memory at once.
const TOTAL: u64 = 64 << 20;

/// The files below a folder, as paths relative to it. Links are followed, as Kubernetes mounts them; hidden entries are left out.
pub(crate) fn files(folder: &Path) -> io::Result<Vec<String>> {
    let mut found = FolderContent::default();
    let mut waiting = vec![(String::new(), 0)];
    while let Some((below, depth)) = waiting.pop() {
        // Which of the folders below it cannot be read, such as `lost+found`.
        let named = |error: io::Error| match below.trim_end_matches('/') {
            "" => error,
            below => io::Error::new(error.kind(), format!("the folder {below} in it: {error}")),
        };
        for entry in fs::read_dir(folder.join(&below)).map_err(named)? {
            let path = entry.map_err(named)?.path();
            if let Some(inner) = found.add(folder, &path, &below)? {
                if depth == DEEPEST {
                    let text = format!("{inner} is deeper than {DEEPEST} folders");
                    return Err(io::Error::other(text));
                }
                waiting.push((format!("{inner}/"), depth + 1));
            }
        }
    }
    Ok(found.files)
}

/// What was found so far.
#[derive(Default)]
struct FolderContent {
    files: Vec<String>,
    entries: usize,
    /// Of the `.json` files.
    bytes: u64,
}

/// The text of one of them, not longer than [`LARGEST`].
pub(crate) fn text(file: &fs::File) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::other(format!("it is larger than {} MiB", LARGEST >> 20)));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not valid UTF-8"))
}

impl FolderContent {
    /// Adds a file. Returns a folder, as a path relative to the first one.
    fn add(&mut self, folder: &Path, path: &Path, below: &str) -> io::Result<Option<String>> {
        let refused = |text: String| Err(io::Error::other(text));
        self.entries += 1;
        if self.entries > MOST {
            return refused(format!("it has more than {MOST} files"));
        }
        let Some(name) = path.file_name().unwrap_or_default().to_str() else {
            return refused(format!("the name of {} is not UTF-8", path.display()));
        };
        if name.starts_with('.') {
            return Ok(None);
        }
        let relative = format!("{below}{name}");
        let kind = fs::metadata(path).map_err(|error| io::Error::other(format!("{relative}: {error}")))?;
        if kind.is_dir() {
            return Ok(Some(relative));
        }
        // To read a pipe could wait for ever.
        if !kind.is_file() {
            return Ok(None);
        }
        if name.ends_with(".json") {
            self.bytes += kind.len();
            if kind.len() > LARGEST {
                return refused(format!("{relative} is larger than {} MiB", LARGEST >> 20));
            }
            if self.bytes > TOTAL {
                let (folder, most) = (folder.display(), TOTAL >> 20);
                return refused(format!(
                    "the .json files in {folder} have more than {most} MiB together"
                ));
            }
        }
        self.files.push(relative);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_are_found_as_kubernetes_mounts_them_and_hidden_ones_are_not() {
        let root = tempfile::tempdir().expect("a folder");
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("..2026_01/defs")).expect("a folder");
        fs::write(at("..2026_01/a.json"), "").expect("a file");
        fs::write(at("..2026_01/defs/b.json"), "").expect("a file");
        std::os::unix::fs::symlink("..2026_01", at("..data")).expect("a link");
        std::os::unix::fs::symlink("..data/a.json", at("a.json")).expect("a link");
        std::os::unix::fs::symlink("..data/defs", at("defs")).expect("a link");
        fs::write(at("README"), "").expect("a file");
        let mut found = files(root.path()).expect("it can be read");
        found.sort();
        assert_eq!(found, ["README", "a.json", "defs/b.json"]);
        std::os::unix::fs::symlink(".", at("loop")).expect("a link");
        let error = files(root.path()).expect_err("a loop has no end");
        assert!(error.to_string().contains("deeper than 4 folders"), "{error}");
        assert_eq!(
            files(&at("none")).expect_err("it is missing").kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn a_folder_in_it_that_cannot_be_read_is_named() {
        let root = tempfile::tempdir().expect("a folder");
        let locked = root.path().join("lost+found");
        fs::create_dir(&locked).expect("a folder");
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).expect("it can be locked");
        // Root may read everything.
        if fs::read_dir(&locked).is_ok() {
            return;
        }
        let found = files(root.path());
        // Otherwise the folder could not be removed.
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o700)).expect("it can be opened");
        let error = found.expect_err("it is locked");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let text = error.to_string();
        assert!(text.starts_with("the folder lost+found in it: "), "{text}");
    }

    #[test]
    fn too_many_bytes_are_refused_with_the_name_of_the_folder() {
        let root = tempfile::tempdir().expect("a folder");
        let add = |name: &str| {
            let file = fs::File::create(root.path().join(name)).expect("a file");
            // It has no blocks on the disk.
            file.set_len(LARGEST).expect("a size");
        };
        ["a.json", "b.json", "c.json", "d.json", "other", "another"]
            .into_iter()
            .for_each(add);
        assert_eq!(files(root.path()).expect("this much is read").len(), 6);
        add("e.json");
        let text = files(root.path()).expect_err("it is too much").to_string();
        let expected = format!(
            "the .json files in {} have more than 64 MiB together",
            root.path().display()
        );
        assert_eq!(text, expected);
    }
}
