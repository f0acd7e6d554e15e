//! The files of a folder that an option names.

use std::{fs, io, path::Path};

/// Folders in folders.
const DEEPEST: usize = 4;

/// A folder with more entries is not the one that was meant.
const MOST: usize = 10_000;

/// A larger file is not the one that was meant.
const LARGEST: u64 = 16 << 20;

/// The files below a folder, as paths relative to it. Links are followed, as Kubernetes mounts them; hidden entries are left out.
pub(crate) fn files(folder: &Path) -> io::Result<Vec<String>> {
    let (mut found, mut entries) = (Vec::new(), 0);
    let mut waiting = vec![(String::new(), 0)];
    while let Some((below, depth)) = waiting.pop() {
        for entry in fs::read_dir(folder.join(&below))? {
            let path = entry?.path();
            entries += 1;
            if entries > MOST {
                return Err(io::Error::other(format!("it has more than {MOST} files")));
            }
            let name = path.file_name().unwrap_or_default();
            let Some(name) = name.to_str() else {
                let text = format!("the name of {} is not UTF-8", path.display());
                return Err(io::Error::other(text));
            };
            if name.starts_with('.') {
                continue;
            }
            let relative = format!("{below}{name}");
            let kind = fs::metadata(&path).map_err(|error| io::Error::other(format!("{relative}: {error}")))?;
            match kind.is_dir() {
                true if depth < DEEPEST => waiting.push((format!("{relative}/"), depth + 1)),
                true => {
                    let text = format!("{relative} is deeper than {DEEPEST} folders");
                    return Err(io::Error::other(text));
                }
                // To read a pipe could wait for ever.
                false if !kind.is_file() => {}
                false if kind.len() > LARGEST && name.ends_with(".json") => {
                    let text = format!("{relative} is larger than {} MiB", LARGEST >> 20);
                    return Err(io::Error::other(text));
                }
                false => found.push(relative),
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
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
}
