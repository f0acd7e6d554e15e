//! The connectors that were created through the REST API, in a file of the data directory.
//!
//! ```json
//! { "format": 1, "connectors": [ { "name": "orders", "target": "RUNNING", "config": { "slot.name": "orders", … } } ] }
//! ```
//! The file is replaced as a whole, so an interrupted write leaves the previous file. Configurations may hold
//! passwords, so only the file's owner may read it.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use walferry_engine::{
    Failure, Kind, WantedState,
    connector_store::{ConnectorEntry, ConnectorStore},
};

use crate::{
    error::{Error, WRITTEN},
    folder::{Folder, sync_dir},
    private,
};

/// No connector's folder has this name: in those names, hexadecimal digits follow each percent sign.
const FOLDER: &str = "%worker";
const FILE: &str = "connectors.json";
const TEMPORARY: &str = "connectors.json.new";
/// Target states of connectors that are being taken over from elsewhere.
const NOTES: &str = "taking.json";
const FORMAT: u32 = 1;

/// The connector store of a data directory. Holds the directory's lock: two processes with one store would overwrite each other's
/// connectors.
#[derive(Debug)]
pub struct FileConnectorStore {
    folder: Folder,
    entries: Option<Vec<ConnectorEntry>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    format: u32,
    connectors: Vec<StoredConnector>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredConnector {
    name: String,
    target: StoredTarget,
    config: Map<String, Json>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum StoredTarget {
    Running,
    Paused,
    Stopped,
}

impl From<StoredTarget> for WantedState {
    fn from(word: StoredTarget) -> Self {
        match word {
            StoredTarget::Running => Self::Running,
            StoredTarget::Paused => Self::Paused,
            StoredTarget::Stopped => Self::Stopped,
        }
    }
}

impl From<WantedState> for StoredTarget {
    fn from(target: WantedState) -> Self {
        match target {
            WantedState::Running => Self::Running,
            WantedState::Paused => Self::Paused,
            WantedState::Stopped => Self::Stopped,
        }
    }
}

impl FileConnectorStore {
    /// Opens the store of a data directory, which may have none yet.
    ///
    /// # Errors
    /// Another process holds it, or the directory cannot be written.
    pub fn open(data_dir: &Path) -> Result<Self, Error> {
        let folder = Folder::open_as(data_dir.join(FOLDER))?;
        Ok(Self { folder, entries: None })
    }

    /// Whether there is a store.
    pub fn exists(data_dir: &Path) -> bool {
        Self::file(data_dir).exists()
    }

    /// The file of a data directory's store.
    pub fn file(data_dir: &Path) -> PathBuf {
        data_dir.join(FOLDER).join(FILE)
    }

    /// The target state of a connector that is being taken over, as noted before the takeover began.
    ///
    /// # Errors
    /// The note cannot be read.
    pub fn taking(&self, name: &str) -> Result<Option<WantedState>, Error> {
        Ok(self.notes()?.get(name).map(|word| (*word).into()))
    }

    /// Notes the target state of a connector that is being taken over; `None` removes the note. Durable when this
    /// returns.
    ///
    /// # Errors
    /// The note cannot be written.
    pub fn note_taking(&self, name: &str, target: Option<WantedState>) -> Result<(), Error> {
        let mut notes = self.notes()?;
        match target {
            Some(target) => notes.insert(name.to_owned(), target.into()),
            None => notes.remove(name),
        };
        let text = serde_json::to_vec_pretty(&notes).expect("strings always have a JSON form");
        self.write_file(NOTES, &text)
    }

    fn notes(&self) -> Result<BTreeMap<String, StoredTarget>, Error> {
        let path = self.folder.path().join(NOTES);
        match fs::read(&path) {
            // The file is replaced as a whole. If it cannot be parsed, somebody else has written it, and it is ignored.
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(Error::io(&path, "read")(error)),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join(FILE)
    }

    fn read(&mut self) -> Result<&mut Vec<ConnectorEntry>, Failure> {
        if self.entries.is_none() {
            self.entries = Some(self.read_file()?);
        }
        Ok(self.entries.get_or_insert_default())
    }

    fn read_file(&self) -> Result<Vec<ConnectorEntry>, Failure> {
        let path = self.path();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io(&path, "read")(error).for_good()),
        };
        let damaged = |why: String| {
            Failure::stop(
                Kind::BookDamaged,
                format!(
                    "{} does not contain the connectors that were written to it: {why}",
                    path.display()
                ),
                "restore it from a copy; to start without the connectors that were created through the REST API, move it away",
            )
        };
        let content: Content = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if content.format != FORMAT {
            return Err(damaged(format!(
                "its format is {}, but this version supports {FORMAT}",
                content.format
            )));
        }
        let entries = content.connectors.into_iter().map(|stored| {
            let configuration = stored.config.into_iter().map(|(name, text)| match text {
                Json::String(text) => Ok((name, text)),
                _ => Err(damaged(format!("{name} of {:?} is not a string", stored.name))),
            });
            Ok(ConnectorEntry {
                configuration: configuration.collect::<Result<_, Failure>>()?,
                name: stored.name,
                target: stored.target.into(),
            })
        });
        entries.collect()
    }

    /// Changes the store with `change` and writes it. If the write fails, the change is not kept in memory either.
    fn write(&mut self, change: impl FnOnce(&mut Vec<ConnectorEntry>)) -> Result<(), Failure> {
        let mut entries = self.read()?.clone();
        change(&mut entries);
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        self.replace(&entries).map_err(Error::for_good)?;
        self.entries = Some(entries);
        Ok(())
    }

    fn replace(&self, entries: &[ConnectorEntry]) -> Result<(), Error> {
        let content = Content {
            format: FORMAT,
            connectors: entries.iter().map(stored).collect(),
        };
        let text = serde_json::to_vec_pretty(&content).expect("strings always have a JSON form");
        self.write_file(FILE, &text)
    }

    /// Replaces a file as a whole.
    fn write_file(&self, name: &str, text: &[u8]) -> Result<(), Error> {
        let temporary = self.folder.path().join(TEMPORARY);
        let write = || {
            let mut file = private::create(&temporary)?;
            file.write_all(text)?;
            file.sync_all()
        };
        write().map_err(Error::io(&temporary, WRITTEN))?;
        let path = self.folder.path().join(name);
        fs::rename(&temporary, &path).map_err(Error::io(&path, "replaced"))?;
        sync_dir(self.folder.path())
    }
}

fn stored(entry: &ConnectorEntry) -> StoredConnector {
    let config = entry.configuration.iter();
    StoredConnector {
        name: entry.name.clone(),
        target: entry.target.into(),
        config: config.map(|(name, text)| (name.clone(), text.clone().into())).collect(),
    }
}

impl ConnectorStore for FileConnectorStore {
    fn entries(&mut self) -> Result<Vec<ConnectorEntry>, Failure> {
        self.read().cloned()
    }

    fn put(&mut self, entry: &ConnectorEntry) -> Result<(), Failure> {
        self.write(|entries| {
            entries.retain(|known| known.name != entry.name);
            entries.push(entry.clone());
        })
    }

    fn set_target(&mut self, name: &str, target: WantedState) -> Result<(), Failure> {
        self.write(|entries| {
            for entry in entries.iter_mut().filter(|entry| entry.name == name) {
                entry.target = target;
            }
        })
    }

    fn remove(&mut self, name: &str) -> Result<(), Failure> {
        self.write(|entries| entries.retain(|entry| entry.name != name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, target: WantedState) -> ConnectorEntry {
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        ConnectorEntry {
            name: name.into(),
            configuration: vec![pair("zeta", " x "), pair("alpha", "${env:A}"), pair("name", name)],
            target,
        }
    }

    #[test]
    fn what_is_written_is_there_after_a_restart_in_the_order_it_came() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileConnectorStore::open(dir.path()).unwrap();
        assert_eq!(store.entries().unwrap(), []);
        store.put(&entry("b", WantedState::Running)).unwrap();
        store.put(&entry("a", WantedState::Stopped)).unwrap();
        store.set_target("b", WantedState::Paused).unwrap();
        store.put(&entry("c", WantedState::Running)).unwrap();
        store.remove("c").unwrap();
        assert!(matches!(
            FileConnectorStore::open(dir.path()),
            Err(Error::Locked { .. })
        ));
        use std::os::unix::fs::PermissionsExt as _;

        let mode = fs::metadata(store.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "it may hold passwords");
        drop(store);
        let mut store = FileConnectorStore::open(dir.path()).unwrap();
        assert_eq!(
            store.entries().unwrap(),
            [entry("a", WantedState::Stopped), entry("b", WantedState::Paused)]
        );
    }

    #[test]
    fn a_damaged_file_is_an_error_and_never_an_empty_store() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileConnectorStore::open(dir.path()).unwrap();
        store.put(&entry("a", WantedState::Running)).unwrap();
        let path = store.path();
        drop(store);
        for text in [
            "",
            "{",
            r#"{"format":2,"connectors":[]}"#,
            r#"{"format":1,"connectors":[{"name":"a"}]}"#,
        ] {
            fs::write(&path, text).unwrap();
            let failure = FileConnectorStore::open(dir.path()).unwrap().entries().unwrap_err();
            assert_eq!(failure.kind, Kind::BookDamaged, "{text}");
        }
    }
}
