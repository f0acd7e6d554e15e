//! How far a replay is: a file that outlives the process.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use walferry_engine::{
    Failure, Kind, TargetState,
    status::Status,
    store::{OffsetStore, StoredOffset},
};
use walferry_kafka::replay::OffsetRange;
use walferry_offset::private;
use walferry_postgres::replay::{PartTracker, Range, ReplayPosition};

/// What was asked for. A replay goes on only for the same.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayArguments {
    pub(super) connector: String,
    pub(super) table: Option<String>,
    pub(super) since: Option<String>,
    pub(super) until: Option<String>,
    pub(super) id: Vec<String>,
    pub(super) key: Vec<String>,
    pub(super) r#where: Option<String>,
    pub(super) columns: [Option<String>; 3],
    pub(super) from_topic: Option<String>,
    pub(super) from_offset: Vec<String>,
    pub(super) from_timestamp: Option<String>,
    // An older state has none.
    #[serde(default)]
    pub(super) until_offset: Vec<String>,
    #[serde(default)]
    pub(super) until_timestamp: Option<String>,
    pub(super) to: Option<String>,
}

/// Where the records come from, and how many of them were sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Source {
    /// The rows of a table.
    Rows { range: Range, place: ReplayPosition },
    /// The records of a topic: what is left of each partition.
    Records { left: Vec<OffsetRange>, sent: u64 },
}

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayState {
    /// The form of the file.
    pub(super) version: u32,
    /// The id of the replay, which stands in the header of each record.
    pub(super) run: String,
    pub(super) asked: ReplayArguments,
    /// How many rows or records there were when it began.
    pub(super) total: u64,
    pub(super) source: Source,
}

/// The present form of the file.
pub(super) const VERSION: u32 = 1;

impl ReplayState {
    /// What an earlier call has left.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, Failure> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(unusable(path, &error)),
        };
        match serde_json::from_str::<Self>(&text) {
            Ok(state) if state.version == VERSION => Ok(Some(state)),
            Ok(state) => Err(unusable(path, &format!("version {} is unknown", state.version))),
            Err(error) => Err(unusable(path, &error)),
        }
    }

    /// Replaces the file. A crash leaves the old one or the new one.
    pub(super) fn write(&self, path: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(self).expect("strings and numbers are JSON");
        let mut draft = path.to_owned().into_os_string();
        draft.push(".new");
        let write = || -> io::Result<()> {
            let mut file = private::create(Path::new(&draft))?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, path)?;
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
        };
        write().map_err(|error| unusable(path, &error))
    }

    /// Everything was sent.
    pub(super) fn remove(path: &Path) -> Result<(), Failure> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unusable(path, &error)),
            _ => Ok(()),
        }
    }
}

/// Only one replay at a time uses a state file: two would send everything twice, each from the beginning. The lock is on a file of its
/// own, because the state file is replaced again and again. The system releases it even if the process is killed.
#[derive(Debug)]
pub(super) struct StateLock {
    path: PathBuf,
    _file: File,
}

impl StateLock {
    /// `None`: another replay holds it.
    pub(super) fn acquire(state: &Path) -> Result<Option<Self>, Failure> {
        let mut path = state.to_owned().into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        loop {
            let file = private::open(&path).map_err(|error| unusable(state, &error))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(unusable(state, &error)),
            }
            // The replay that has ended a moment ago may have removed the file after it was opened here.
            let inode = file.metadata().map(|file| file.ino());
            if matches!((inode, fs::metadata(&path)), (Ok(ours), Ok(named)) if named.ino() == ours) {
                return Ok(Some(Self { path, _file: file }));
            }
        }
    }
}

impl Drop for StateLock {
    fn drop(&mut self) {
        // It is still locked. A file that stays does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

fn unusable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::stop(
        Kind::Replay,
        format!("the state file {} cannot be used: {error}", path.display()),
        "name a file in a folder that can be written with --state; remove a damaged file, and the replay begins again",
    )
}

/// The end of a replay of rows, as the engine's store has seen it.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplayEnd {
    pub(super) place: ReplayPosition,
    pub(super) is_complete: bool,
}

/// Keeps the state where a connector keeps its offset.
pub(super) struct StateFile {
    pub(super) path: PathBuf,
    pub(super) state: ReplayState,
    pub(super) track: PartTracker,
    pub(super) status: Arc<Status>,
    pub(super) target: Arc<watch::Sender<TargetState>>,
    pub(super) seen: Shared,
}

/// What the caller learns.
#[derive(Debug, Clone, Default)]
pub(super) struct Shared(Arc<Mutex<ReplayEnd>>);

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, ReplayEnd> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateFile {
    fn store(&mut self, offset: &StoredOffset) -> Result<(), Failure> {
        if self.seen.lock().is_complete {
            return Ok(());
        }
        // The engine counts a part when Kafka has acknowledged all its records, and all before them.
        let now = self.track.delivered(*self.status.watch_delivered_parts().borrow());
        let is_complete = offset.connect.snapshot_completed == Some(true);
        if let Source::Rows { place, .. } = &mut self.state.source
            && (*place != now || is_complete)
        {
            place.clone_from(&now);
            self.state.write(&self.path)?;
        }
        *self.seen.lock() = ReplayEnd {
            place: now,
            is_complete,
        };
        if is_complete {
            self.target.send_replace(TargetState::Stopped);
        }
        Ok(())
    }
}

impl OffsetStore for StateFile {
    /// The engine knows nothing of earlier calls. `PartTracker` does.
    async fn load(&mut self) -> Result<Option<StoredOffset>, Failure> {
        Ok(None)
    }

    async fn write(&mut self, offset: &StoredOffset) -> Result<(), Failure> {
        self.store(offset)
    }

    fn least_pause(&self) -> Duration {
        Duration::from_millis(100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_file_is_used_by_one_replay_at_a_time() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("replay.json");
        let first = StateLock::acquire(&path)
            .expect("it can be locked")
            .expect("it is free");
        assert!(StateLock::acquire(&path).expect("it can be asked for").is_none());
        drop(first);
        assert!(StateLock::acquire(&path).expect("it can be locked").is_some());
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[test]
    fn what_is_written_is_read_again_and_a_damaged_file_is_no_beginning() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("replay.json");
        assert_eq!(ReplayState::read(&path).expect("there is none"), None);
        let state = ReplayState {
            version: VERSION,
            run: "r".into(),
            asked: ReplayArguments {
                since: Some("2026-01-01".into()),
                ..ReplayArguments::default()
            },
            total: 7,
            source: Source::Rows {
                range: Range {
                    schema: "public".into(),
                    table: "outbox".into(),
                    time: None,
                    order: vec!["id".into()],
                    condition: None,
                    last: vec![Some("9".into())],
                },
                place: ReplayPosition {
                    after: Some(vec![None, Some("4".into())]),
                    rows: 4,
                },
            },
        };
        state.write(&path).expect("it is written");
        assert_eq!(ReplayState::read(&path).expect("it is readable"), Some(state));
        fs::write(&path, "{").expect("it is written");
        assert_eq!(ReplayState::read(&path).expect_err("it is damaged").kind, Kind::Replay);
        ReplayState::remove(&path).expect("it is removed");
        assert_eq!(ReplayState::read(&path).expect("there is none"), None);
    }
}
