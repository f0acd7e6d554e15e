//! How a connector that waits at a gap and the command line exchange the gap and the user's choice.
//!
//! Both are files in the connector's folder, so it does not matter whether the connector runs. A running process holds
//! the folder's lock and looks for the choice regularly. A process that starts later finds the choice, too.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Serialize, de::DeserializeOwned};
use walferry_engine::gap::{Gap, GapChoice};

use crate::{
    error::Error,
    folder::{Folder, sync_dir},
    private,
};

const GAP: &str = "gap.json";
const CHOICE: &str = "gap-choice.json";

/// The gap that a connector reported last. `None` if there is no gap.
///
/// # Errors
/// The file cannot be read, or is not of this version.
pub fn gap(data_dir: &Path, connector: &str) -> Result<Option<Gap>, Error> {
    read(&Folder::path_of(data_dir, connector).join(GAP))
}

/// Stores a choice for the connector.
///
/// # Errors
/// The folder is not there, or cannot be written.
pub fn choose(data_dir: &Path, connector: &str, choice: &GapChoice) -> Result<(), Error> {
    write(&Folder::path_of(data_dir, connector), CHOICE, choice)
}

/// Removes the gap and the choice. They no longer apply if the offset before the gap is replaced by another one.
///
/// # Errors
/// A file cannot be removed.
pub fn forget(data_dir: &Path, connector: &str) -> Result<(), Error> {
    tell(&Folder::path_of(data_dir, connector), None)
}

/// Whether there is a choice that the connector has not read yet.
pub fn is_chosen(data_dir: &Path, connector: &str) -> bool {
    Folder::path_of(data_dir, connector).join(CHOICE).exists()
}

pub(crate) fn choice(folder: &Path) -> Result<Option<GapChoice>, Error> {
    read(&folder.join(CHOICE))
}

pub(crate) fn known(folder: &Path) -> Result<Option<Gap>, Error> {
    read(&folder.join(GAP))
}

pub(crate) fn tell(folder: &Path, gap: Option<&Gap>) -> Result<(), Error> {
    match gap {
        Some(gap) => write(folder, GAP, gap),
        None => {
            remove(folder.join(GAP))?;
            // This comes last: whoever waits until the choice is gone then finds its result.
            settle(folder)
        }
    }
}

pub(crate) fn settle(folder: &Path) -> Result<(), Error> {
    remove(folder.join(CHOICE))
}

pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| Error::Damaged {
                file: path.to_owned(),
                why: format!("it cannot be read as JSON of this version ({error})"),
            }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path, "read")(error)),
    }
}

pub(crate) fn write(folder: &Path, name: &str, content: &impl Serialize) -> Result<(), Error> {
    let (path, temporary) = (folder.join(name), folder.join(format!("{name}.new")));
    let text = serde_json::to_string_pretty(content).expect("strings and numbers always have a JSON form");
    private::create(&temporary)
        .and_then(|mut file| file.write_all((text + "\n").as_bytes()))
        .map_err(Error::io(&temporary, "written"))?;
    fs::rename(&temporary, &path).map_err(Error::io(&path, "replaced"))?;
    sync_dir(folder)
}

pub(crate) fn remove(path: PathBuf) -> Result<(), Error> {
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io(path, "removed")(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use walferry_engine::{gap::GapResolution, published::Published, store::OffsetStore as _};
    use walferry_pgoutput::Lsn;
    use walferry_record::SourcePartition;

    use super::*;
    use crate::FileStore;

    #[tokio::test]
    async fn a_gap_is_told_and_a_choice_is_found_while_the_folder_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let partition = SourcePartition {
            connector: "or ders".into(),
            server: "shop".into(),
        };
        let mut store = FileStore::open(dir.path(), partition).unwrap();
        assert_eq!(
            (gap(dir.path(), "or ders").unwrap(), store.choice().await),
            (None, Ok(None))
        );
        let gap_of_orders = Gap {
            what: "no publication".into(),
            from: Lsn(0x10),
            to: Some(Lsn(0x1_0000_0020)),
            after_commit: Some(7),
            published: Some(Published {
                tables: [(16_391, 16_400)].into(),
                ..Published::default()
            }),
            ..Gap::default()
        };
        store.tell_gap(Some(&gap_of_orders)).await.unwrap();
        assert_eq!(gap(dir.path(), "or ders").unwrap(), Some(gap_of_orders.clone()));
        let choice = gap_of_orders.choose(GapResolution::Snapshot);
        choose(dir.path(), "or ders", &choice).unwrap();
        assert!(is_chosen(dir.path(), "or ders"));
        assert_eq!(store.choice().await, Ok(Some(choice.clone())));
        // What is told again says nothing about the choice.
        store.tell_gap(Some(&gap_of_orders)).await.unwrap();
        assert_eq!(store.choice().await, Ok(Some(choice)));
        store.tell_gap(None).await.unwrap();
        assert!(!is_chosen(dir.path(), "or ders"));
        assert_eq!(gap(dir.path(), "or ders").unwrap(), None);
        store.tell_gap(None).await.unwrap();
    }
}
