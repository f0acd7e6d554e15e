//! Where the offset of a connector is kept: in a file, or in Connect's offset topic.

use std::{path::Path, time::Duration};

use serde_json::Value as Json;
use tokio::task::spawn_blocking;
use tracing::warn;
use walferry_engine::{
    Failure, Kind,
    gap::{Gap, GapChoice},
    store::{OffsetStore, StoredOffset},
};
use walferry_kafka::connect::{ConnectTopics, OffsetLog, OffsetRecord};
use walferry_offset::{FileStore, additions, with_additions};
use walferry_record::SourcePartition;

/// The store of one connector.
pub(crate) enum ConnectorStore {
    /// A file in the connector's folder of the data directory.
    File(FileStore),
    /// The offset topic.
    Topic(TopicStore),
}

/// An offset in Connect's offset topic.
pub(crate) struct TopicStore {
    log: OffsetLog,
    partition: SourcePartition,
    /// The folder in which a gap is reported and a person's choice is expected. `walferry offsets skip-gap` uses it.
    folder: Option<FileStore>,
}

impl TopicStore {
    /// Reads nothing yet. The folder is optional: without it, a gap is reported only in the log and on the page.
    pub(crate) fn open(log: OffsetLog, partition: SourcePartition, data_dir: &Path) -> Self {
        let folder = FileStore::open(data_dir, partition.clone());
        let folder = folder.inspect_err(|error| {
            warn!(
                %error,
                "the connector has no folder in the data directory, so `walferry offsets skip-gap` cannot reach it; its offset is still \
                 in the offset topic"
            );
        });
        Self {
            log,
            partition,
            folder: folder.ok(),
        }
    }

    fn read(&self) -> Result<Option<StoredOffset>, Failure> {
        let key = self.partition.key();
        let found = self.log.read(&key)?.map(|record| offset(&key, &record)).transpose()?;
        let in_file = self.folder.as_ref().map(FileStore::read).transpose()?.flatten();
        let path = self.folder.as_ref().map(FileStore::path).unwrap_or_default();
        refuse_newer_file(&self.partition, found.as_ref(), in_file.as_ref(), &path)?;
        Ok(found)
    }
}

/// The offset with which a start would continue, for `walferry check`. Changes nothing. Blocks.
pub(crate) fn peek(
    topics: &ConnectTopics,
    partition: &SourcePartition,
    data_dir: &Path,
) -> Result<Option<StoredOffset>, Failure> {
    let key = partition.key();
    let found = OffsetLog::open(topics)?.read(&key)?;
    let found = found.map(|record| offset(&key, &record)).transpose()?;
    // As at a start: a folder that cannot be used has no offset.
    let in_file = match FileStore::probe(data_dir, partition) {
        Ok(()) => FileStore::peek(data_dir, partition).map_err(|error| error.for_good())?,
        Err(_) => None,
    };
    refuse_newer_file(partition, found.as_ref(), in_file.as_ref(), data_dir)?;
    Ok(found)
}

/// The offset in a record of the offset topic.
pub(super) fn offset(key: &str, record: &OffsetRecord) -> Result<StoredOffset, Failure> {
    with_additions(&record.value, record.additions.as_deref()).map_err(|why| {
        Failure::stop(
            Kind::OffsetDamaged,
            format!("the offset topic contains no usable offset for {key}: {why}"),
            "write a known position with PATCH /connectors/NAME/offsets while the connector is stopped",
        )
    })
}

/// Refuses to ignore a file with a newer offset: records that it counts as delivered would be sent again, or changes would be lost.
fn refuse_newer_file(
    partition: &SourcePartition,
    topic: Option<&StoredOffset>,
    file: Option<&StoredOffset>,
    path: &Path,
) -> Result<(), Failure> {
    let Some(file) = file else {
        return Ok(());
    };
    let at = |offset: &StoredOffset| offset.connect.lsn_proc.max(offset.connect.lsn).unwrap_or_default();
    let topic_at = topic.map(at);
    if topic_at.is_some_and(|topic_at| topic_at >= at(file)) {
        return Ok(());
    }
    let in_topic = topic_at.map_or("none".to_owned(), |at| walferry_pgoutput::Lsn(at).to_string());
    Err(Failure::stop(
        Kind::TwoOffsets,
        format!(
            "connector {:?} has two offsets: {} in {}, and {in_topic} in the offset topic, which is behind it",
            partition.connector,
            walferry_pgoutput::Lsn(at(file)),
            path.display(),
        ),
        format!(
            "to continue from the file, start with `--data-dir` again, or write its offset into the topic with PATCH \
             /connectors/{}/offsets; to continue from the topic, move the file away",
            partition.connector
        ),
    ))
}

/// Makes a record of an offset.
pub(super) fn record(offset: &StoredOffset) -> OffsetRecord {
    OffsetRecord {
        value: serde_json::to_value(offset.connect.for_connect())
            .unwrap_or(Json::Null)
            .to_string(),
        additions: additions(offset),
    }
}

/// The minimum time between two records of one connector in the offset topic, because brokers keep each record until they compact it.
const PAUSE: Duration = Duration::from_secs(1);

impl OffsetStore for ConnectorStore {
    fn least_pause(&self) -> Duration {
        match self {
            Self::File(store) => store.least_pause(),
            Self::Topic(_) => PAUSE,
        }
    }

    async fn load(&mut self) -> Result<Option<StoredOffset>, Failure> {
        match self {
            Self::File(store) => store.load().await,
            Self::Topic(store) => {
                let store = TopicStore {
                    log: store.log.clone(),
                    partition: store.partition.clone(),
                    folder: store.folder.clone(),
                };
                let read = spawn_blocking(move || store.read()).await;
                read.map_err(|error| Failure::retry(Kind::NoThread, format!("the offset could not be read: {error}")))?
            }
        }
    }

    async fn write(&mut self, offset: &StoredOffset) -> Result<(), Failure> {
        match self {
            Self::File(store) => store.write(offset).await,
            Self::Topic(store) => store.log.write(&store.partition.key(), Some(record(offset))).await,
        }
    }

    async fn tell_gap(&mut self, gap: Option<&Gap>) -> Result<(), Failure> {
        match self.folder() {
            Some(store) => store.tell_gap(gap).await,
            None => Ok(()),
        }
    }

    async fn told_gap(&mut self) -> Result<Option<Gap>, Failure> {
        match self.folder() {
            Some(store) => store.told_gap().await,
            None => Ok(None),
        }
    }

    async fn settle_choice(&mut self) -> Result<(), Failure> {
        match self.folder() {
            Some(store) => store.settle_choice().await,
            None => Ok(()),
        }
    }

    async fn choice(&mut self) -> Result<Option<GapChoice>, Failure> {
        match self.folder() {
            Some(store) => store.choice().await,
            None => Ok(None),
        }
    }
}

impl ConnectorStore {
    fn folder(&mut self) -> Option<&mut FileStore> {
        match self {
            Self::File(store) => Some(store),
            Self::Topic(store) => store.folder.as_mut(),
        }
    }

    /// The connector's folder, if it has one.
    pub(crate) fn path(&self) -> Option<std::path::PathBuf> {
        let store = match self {
            Self::File(store) => Some(store),
            Self::Topic(store) => store.folder.as_ref(),
        };
        store.and_then(|store| store.path().parent().map(Path::to_owned))
    }
}
