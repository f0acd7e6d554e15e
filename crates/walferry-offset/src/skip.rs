//! The change that a person wants passed over, as `walferry offsets skip-record` leaves it for the connector.
//!
//! It is a file in the connector's folder. A process that runs has loaded what it found at its start, so a new file
//! counts from the next start on.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use walferry_engine::Position;

use crate::{error::Error, folder::Folder, gap};

const FILE: &str = "skip-record.json";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    position: String,
}

/// The change that is to be passed over. `None` if there is none.
///
/// # Errors
/// The file cannot be read, or is not of this version.
pub fn wished(data_dir: &Path, connector: &str) -> Result<Option<Position>, Error> {
    read(&Folder::path_of(data_dir, connector))
}

/// Leaves a wish for the connector's next start, in place of an earlier one.
///
/// # Errors
/// The folder is not there, or cannot be written.
pub fn wish(data_dir: &Path, connector: &str, position: Position) -> Result<(), Error> {
    let wish = Wish {
        position: position.to_string(),
    };
    gap::write(&Folder::path_of(data_dir, connector), FILE, &wish)
}

/// Removes the wish, if there is one.
///
/// # Errors
/// The file cannot be removed.
pub fn forget(data_dir: &Path, connector: &str) -> Result<(), Error> {
    gap::remove(file(&Folder::path_of(data_dir, connector)))
}

fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

pub(crate) fn read(folder: &Path) -> Result<Option<Position>, Error> {
    let path = file(folder);
    // A path below a file is not there either.
    if let Err(error) = fs::metadata(&path)
        && matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    {
        return Ok(None);
    }
    let Some(wish) = gap::read::<Wish>(&path)? else {
        return Ok(None);
    };
    let position = wish.position.parse().map_err(|error| Error::Damaged {
        file: path,
        why: format!("{:?}: {error}", wish.position),
    })?;
    Ok(Some(position))
}

/// Removes the wish for this change. A newer one stays.
pub(crate) fn settle(folder: &Path, position: Position) -> Result<(), Error> {
    match read(folder)? == Some(position) {
        true => gap::remove(file(folder)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use walferry_engine::store::OffsetStore as _;
    use walferry_pgoutput::Lsn;
    use walferry_record::SourcePartition;

    use super::*;
    use crate::FileStore;

    #[tokio::test]
    async fn a_wish_is_found_while_the_folder_is_locked_and_only_that_one_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let partition = SourcePartition {
            connector: "or ders".into(),
            server: "shop".into(),
        };
        let mut store = FileStore::open(dir.path(), partition).unwrap();
        assert_eq!(store.record_skip().await, Ok(None));
        let at = |lsn| Position {
            unit: Lsn(0x100),
            lsn: Lsn(lsn),
            ordinal: 2,
        };
        wish(dir.path(), "or ders", at(7)).unwrap();
        assert_eq!(store.record_skip().await, Ok(Some(at(7))));
        // A newer one, for the next start, is not the one that is settled.
        wish(dir.path(), "or ders", at(9)).unwrap();
        store.settle_record_skip().await.unwrap();
        assert_eq!(wished(dir.path(), "or ders").unwrap(), Some(at(9)));
        assert_eq!(store.record_skip().await, Ok(Some(at(9))));
        store.settle_record_skip().await.unwrap();
        assert_eq!(wished(dir.path(), "or ders").unwrap(), None);
        fs::write(file(&Folder::path_of(dir.path(), "or ders")), r#"{"position":"x"}"#).unwrap();
        assert!(matches!(wished(dir.path(), "or ders"), Err(Error::Damaged { .. })));
        forget(dir.path(), "or ders").unwrap();
        assert_eq!(wished(dir.path(), "other").unwrap(), None);
    }
}
