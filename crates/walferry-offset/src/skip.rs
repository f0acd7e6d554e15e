//! The changes that a person wants passed over, as `walferry offsets skip-record` leaves them for the connector.
//!
//! Each is a file in the connector's folder, so that one can be added while the connector removes another. A process that
//! runs has loaded what it found at its start, so a new file counts from the next start on.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use walferry_engine::Position;

use crate::{error::Error, folder::Folder, gap};

/// How the names of the files begin and end.
const NAME: (&str, &str) = ("skip-record", ".json");

/// How many wishes a connector may have: each is in every offset that is written.
pub const MOST: usize = 100;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    position: String,
}

/// The changes that are to be passed over, in the order of the stream.
///
/// # Errors
/// A file cannot be read, or is not of this version.
pub fn wished(data_dir: &Path, connector: &str) -> Result<Vec<Position>, Error> {
    read(&Folder::path_of(data_dir, connector))
}

/// Leaves a wish for the connector's next start, beside earlier ones.
///
/// # Errors
/// The folder is not there, or cannot be written.
pub fn wish(data_dir: &Path, connector: &str, position: Position) -> Result<(), Error> {
    let text = position.to_string();
    let name = format!("{}-{}{}", NAME.0, text.replace(['/', ':'], "-"), NAME.1);
    gap::write(&Folder::path_of(data_dir, connector), &name, &Wish { position: text })
}

/// Removes all wishes.
///
/// # Errors
/// A file cannot be removed.
pub fn forget(data_dir: &Path, connector: &str) -> Result<(), Error> {
    files(&Folder::path_of(data_dir, connector))?
        .into_iter()
        .try_for_each(gap::remove)
}

/// The files with wishes.
fn files(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        // A path below a file is not there either.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(Error::io(folder, "read")(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let name = entry.map_err(Error::io(folder, "read"))?.file_name();
        let is_wish = name
            .to_str()
            .is_some_and(|name| name.starts_with(NAME.0) && name.ends_with(NAME.1));
        if is_wish {
            files.push(folder.join(name));
        }
    }
    Ok(files)
}

pub(crate) fn read(folder: &Path) -> Result<Vec<Position>, Error> {
    let mut positions = BTreeSet::new();
    for path in files(folder)? {
        // The connector may have removed it meanwhile.
        let Some(wish) = gap::read::<Wish>(&path)? else {
            continue;
        };
        let position = wish.position.parse().map_err(|error| Error::Damaged {
            file: path,
            why: format!("{:?}: {error}", wish.position),
        })?;
        positions.insert(position);
    }
    Ok(positions.into_iter().collect())
}

/// Removes the wishes for these changes. Others stay.
pub(crate) fn settle(folder: &Path, positions: &[Position]) -> Result<(), Error> {
    for path in files(folder)? {
        let wish = gap::read::<Wish>(&path)?;
        let position = wish.and_then(|wish| wish.position.parse().ok());
        if position.is_some_and(|position| positions.contains(&position)) {
            gap::remove(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use walferry_engine::store::{OffsetStore as _, StoredOffset};
    use walferry_pgoutput::Lsn;
    use walferry_record::SourcePartition;

    use super::*;
    use crate::FileStore;

    #[tokio::test]
    async fn wishes_are_found_while_the_folder_is_locked_and_only_past_ones_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let partition = SourcePartition {
            connector: "or ders".into(),
            server: "shop".into(),
        };
        let mut store = FileStore::open(dir.path(), partition).unwrap();
        assert_eq!(store.record_skips().await, Ok(Vec::new()));
        let at = |lsn| Position {
            unit: Lsn(0x100),
            lsn: Lsn(lsn),
            ordinal: 2,
        };
        let past = |lsn| StoredOffset {
            position: Some(at(lsn)),
            ..StoredOffset::default()
        };
        wish(dir.path(), "or ders", at(7)).unwrap();
        wish(dir.path(), "or ders", at(7)).unwrap();
        assert_eq!(store.record_skips().await, Ok(vec![at(7)]));
        // Newer ones, for the next start.
        wish(dir.path(), "or ders", at(10)).unwrap();
        wish(dir.path(), "or ders", at(9)).unwrap();
        store.settle_record_skips(&past(8)).await.unwrap();
        assert_eq!(wished(dir.path(), "or ders").unwrap(), [at(9), at(10)]);
        assert_eq!(store.record_skips().await, Ok(vec![at(9), at(10)]));
        store.settle_record_skips(&past(10)).await.unwrap();
        assert_eq!(wished(dir.path(), "or ders").unwrap(), []);

        // The name that an earlier version gave the only file, and a damaged one.
        let folder = Folder::path_of(dir.path(), "or ders");
        let file = folder.join("skip-record.json");
        fs::write(&file, format!(r#"{{"position":"{}"}}"#, at(7))).unwrap();
        assert_eq!(wished(dir.path(), "or ders").unwrap(), [at(7)]);
        fs::write(&file, r#"{"position":"x"}"#).unwrap();
        assert!(matches!(wished(dir.path(), "or ders"), Err(Error::Damaged { .. })));
        forget(dir.path(), "or ders").unwrap();
        assert_eq!(wished(dir.path(), "or ders").unwrap(), []);
        assert_eq!(wished(dir.path(), "other").unwrap(), []);
        let names: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["lock"], "a wish has a file for its time only");
    }
}
