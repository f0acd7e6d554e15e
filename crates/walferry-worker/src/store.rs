//! Reads, writes and moves the offset of one connector, in a file or in a topic. Where it is, `stores.rs` decides.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use serde_json::Value as Json;
use tokio::task::spawn_blocking;
use tracing::{debug, info, warn};
use walferry_engine::{
    Failure, Kind, Position,
    gap::{Gap, GapChoice},
    store::{OffsetStore, StoredOffset},
};
use walferry_kafka::{
    Transactions,
    connect::{OffsetLog, OffsetRecord},
};
use walferry_offset::{FileStore, additions, private, with_additions};
use walferry_record::SourcePartition;

/// The store of one connector.
pub enum ConnectorStore {
    /// A file in the connector's folder of the data directory.
    File(FileStore),
    /// A file, into which the offset comes back from a topic: the connector delivers exactly once no more.
    Returning(FileStore, ReturningOffset),
    Topic(TopicStore),
}

/// An offset that is in a topic and goes on in a file.
#[derive(Clone)]
pub struct ReturningOffset {
    pub log: OffsetLog,
    pub key: String,
    pub partition: SourcePartition,
    pub note: TopicNote,
}

/// An offset in Connect's offset topic.
#[derive(Clone)]
pub struct TopicStore {
    log: OffsetLog,
    partition: SourcePartition,
    data_dir: PathBuf,
    /// The folder in which a gap is reported and a person's choice is expected. `walferry offsets skip-gap` uses it. Most connectors never need
    /// it, so it is created when the first gap is reported.
    folder: Option<FileStore>,
    transactions: Option<OffsetInTransactions>,
}

/// How an offset is stored with exactly-once delivery.
#[derive(Clone)]
struct OffsetInTransactions {
    transactions: Transactions,
    /// Where it is noted that the offset is in a topic, if everything else is kept in files.
    note: Option<TopicNote>,
    /// The topic that is noted, if it is another one.
    earlier: Option<OffsetLog>,
    /// Whether it is noted that the topic has an offset.
    is_noted: Arc<AtomicBool>,
}

/// A file beside the place of the offset file, with the name of the topic that has the offset instead. A second line says that an offset
/// was stored there: if it is gone, the topic was deleted or emptied.
#[derive(Clone)]
pub struct TopicNote(PathBuf);

impl TopicNote {
    const FILE: &str = "offset-topic";
    const STORED: &str = "stored";

    /// The note of a connector with this store.
    pub fn of(store: &FileStore) -> Self {
        Self(store.path().with_file_name(Self::FILE))
    }

    /// The note of a connector, whose folder need not exist.
    pub fn at(data_dir: &Path, partition: &SourcePartition) -> Self {
        Self(FileStore::folder_of(data_dir, partition).join(Self::FILE))
    }

    /// The name of the topic. `None`: there is no note.
    pub fn read(&self) -> Result<Option<String>, Failure> {
        let topic = self.lines()?.into_iter().next();
        Ok(topic.filter(|topic| !topic.is_empty()))
    }

    fn lines(&self) -> Result<Vec<String>, Failure> {
        match fs::read_to_string(&self.0) {
            Ok(text) => Ok(text.lines().map(|line| line.trim().to_owned()).collect()),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(Vec::new())
            }
            Err(error) => Err(self.unusable("read", &error)),
        }
    }

    /// Whether an offset was stored in the topic.
    fn expects_offset(&self) -> Result<bool, Failure> {
        Ok(self.lines()?.get(1).is_some_and(|line| line == Self::STORED))
    }

    fn write(&self, topic: &str) -> Result<(), Failure> {
        if self.read()?.as_deref() == Some(topic) {
            return Ok(());
        }
        self.replace(&format!("{topic}\n"))
    }

    /// An offset is stored in the topic.
    fn expect_offset(&self, topic: &str) -> Result<(), Failure> {
        let lines = [topic.to_owned(), Self::STORED.to_owned()];
        if self.lines()? == lines {
            return Ok(());
        }
        self.replace(&format!("{}\n", lines.join("\n")))
    }

    /// The offset was removed from the topic on purpose.
    pub(crate) fn expect_none(&self) -> Result<(), Failure> {
        match (self.expects_offset()?, self.read()?) {
            (true, Some(topic)) => self.replace(&format!("{topic}\n")),
            _ => Ok(()),
        }
    }

    fn replace(&self, text: &str) -> Result<(), Failure> {
        let write = || {
            let mut file = private::create(&self.0)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            self.0
                .parent()
                .map_or(Ok(()), |folder| fs::File::open(folder)?.sync_all())
        };
        write().map_err(|error| self.unusable("written", &error))
    }

    /// Refuses to begin as new where an offset was stored before.
    fn refuse_lost(&self, partition: &SourcePartition) -> Result<(), Failure> {
        if !self.expects_offset()? {
            return Ok(());
        }
        let (topic, name) = (self.read()?.unwrap_or_default(), &partition.connector);
        Err(Failure::stop(
            Kind::OffsetDamaged,
            format!(
                "the offset of connector {name:?} was stored in topic {topic}, and is not there any more: the topic was deleted or emptied"
            ),
            format!(
                "restore the topic; or write a known position with PATCH /connectors/{name}/offsets while the connector is stopped; or, to begin \
                 as new, remove {}",
                self.0.display()
            ),
        ))
    }

    fn remove(&self) -> Result<(), Failure> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.unusable("removed", &error)),
            _ => Ok(()),
        }
    }

    fn unusable(&self, what: &str, error: &io::Error) -> Failure {
        Failure::retry(
            Kind::OffsetDamaged,
            format!("{} cannot be {what}: {error}", self.0.display()),
        )
    }
}

impl TopicStore {
    /// Reads nothing yet. The folder is optional: without it, a gap is reported only in the log and on the page.
    pub fn open(log: OffsetLog, partition: SourcePartition, data_dir: &Path) -> Self {
        let mut store = Self {
            log,
            partition,
            data_dir: data_dir.to_owned(),
            folder: None,
            transactions: None,
        };
        if store.path().is_dir() {
            store.open_folder();
        }
        store
    }

    /// Creates the folder, if it is not there.
    fn open_folder(&mut self) {
        if self.folder.is_some() {
            return;
        }
        let folder = FileStore::open(&self.data_dir, self.partition.clone());
        let folder = folder.inspect_err(|error| {
            warn!(
                %error,
                "the connector has no folder in the data directory, so `walferry offsets skip-gap` cannot reach it; its offset is still \
                 in the offset topic"
            );
        });
        self.folder = folder.ok();
    }

    /// Where the folder is, or would be.
    fn path(&self) -> PathBuf {
        FileStore::folder_of(&self.data_dir, &self.partition)
    }

    /// An offset that is stored in the transactions of the records that it covers. With `only_offset`, everything else is kept in files.
    /// The offset moves there from the topic `earlier`, if it is in that one.
    pub(crate) fn in_transactions(
        mut self,
        transactions: Transactions,
        only_offset: bool,
        earlier: Option<OffsetLog>,
    ) -> Self {
        if only_offset {
            self.open_folder();
        }
        let note = self.folder.as_ref().filter(|_| only_offset).map(TopicNote::of);
        Self {
            transactions: Some(OffsetInTransactions {
                transactions,
                note,
                earlier,
                is_noted: Arc::default(),
            }),
            ..self
        }
    }

    fn read(&self) -> Result<Option<StoredOffset>, Failure> {
        let key = self.partition.key();
        let record = self.log.read(&key)?;
        let found = record.as_ref().map(|record| offset(&key, record)).transpose()?;
        let in_file = self.folder.as_ref().map(FileStore::read).transpose()?.flatten();
        if let Some(of) = &self.transactions {
            of.transactions.goes_on_after(record);
            if let Some(note) = &of.note {
                return self.take_over(found, in_file, of, note);
            }
        }
        let path = self.folder.as_ref().map(FileStore::path).unwrap_or_default();
        refuse_newer_file(&self.partition, found.as_ref(), in_file.as_ref(), &path)?;
        Ok(found)
    }
}

impl TopicStore {
    /// Moves the offset into the topic from where it was: from a file, because the connector has delivered at least once until now, or from
    /// another topic.
    fn take_over(
        &self,
        in_topic: Option<StoredOffset>,
        in_file: Option<StoredOffset>,
        of: &OffsetInTransactions,
        note: &TopicNote,
    ) -> Result<Option<StoredOffset>, Failure> {
        let Some(folder) = &self.folder else {
            return Ok(in_topic);
        };
        let (noted, key) = (note.read()?, self.partition.key());
        if noted.as_deref() == Some(self.log.topic()) {
            if in_topic.is_none() {
                note.refuse_lost(&self.partition)?;
            }
            return Ok(in_topic);
        }
        let in_earlier = match &of.earlier {
            Some(log) if in_file.is_none() => {
                log.wait_for_open_transactions()?;
                let record = log.read(&key)?;
                if record.is_none() {
                    note.refuse_lost(&self.partition)?;
                }
                record.map(|record| offset(&key, &record)).transpose()?
            }
            _ => None,
        };
        // It is the only one that counts: what is in the topic is from an earlier time, unless Kafka Connect has left it there. Then there
        // is neither a file nor a note here.
        let Some(moved) = in_file.or(in_earlier) else {
            if noted.is_some() && in_topic.is_some() {
                self.log.write_all_blocking([(key, None)])?;
                of.transactions.goes_on_after(None);
            }
            note.write(self.log.topic())?;
            return Ok(in_topic.filter(|_| noted.is_none()));
        };
        let record = Some(record(&moved));
        self.log.write_all_blocking([(key, record.clone())])?;
        of.transactions.goes_on_after(record);
        note.write(self.log.topic())?;
        folder.remove()?;
        info!(
            topic = self.log.topic(),
            lsn.stored = %moved.start().unwrap_or_default(),
            "the offset is moved into the topic, where it is stored together with the records"
        );
        Ok(Some(moved))
    }
}

impl ReturningOffset {
    /// Moves the offset from the topic into the file.
    fn take_back(&self, store: &FileStore) -> Result<(), Failure> {
        self.log.wait_for_open_transactions()?;
        if let Some(record) = self.log.read(&self.key)? {
            let offset = offset(&self.key, &record)?;
            store.replace(&offset).map_err(|error| error.for_good())?;
            info!(
                topic = self.log.topic(),
                lsn.stored = %offset.start().unwrap_or_default(),
                "the offset is moved from the topic into a file: the connector does not deliver exactly once any more"
            );
            // It must not come back when the connector delivers exactly once again.
            self.note.expect_none()?;
            self.log.write_all_blocking([(self.key.clone(), None)])?;
        } else if store.read().map_err(|error| error.for_good())?.is_none() {
            self.note.refuse_lost(&self.partition)?;
        }
        self.note.remove()
    }
}

/// The offset in a record of the offset topic.
pub fn offset(key: &str, record: &OffsetRecord) -> Result<StoredOffset, Failure> {
    with_additions(&record.value, record.additions.as_deref()).map_err(|why| {
        Failure::stop(
            Kind::OffsetDamaged,
            format!("the offset topic contains no usable offset for {key}: {why}"),
            "write a known position with PATCH /connectors/NAME/offsets while the connector is stopped",
        )
    })
}

/// Refuses to ignore a file with a newer offset: records that it counts as delivered would be sent again, or changes would be lost.
pub(crate) fn refuse_newer_file(
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
pub fn record(offset: &StoredOffset) -> OffsetRecord {
    OffsetRecord {
        value: serde_json::to_value(offset.connect.for_connect())
            .unwrap_or(Json::Null)
            .to_string(),
        additions: additions(offset),
    }
}

/// Runs work on a thread of its own, because Kafka may be slow.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    let done = spawn_blocking(work).await;
    done.map_err(|error| {
        Failure::retry(
            Kind::NoThread,
            format!("the offset could not be read or written: {error}"),
        )
    })?
}

/// The minimum time between two records of one connector in the offset topic, because brokers keep each record until they compact it.
const PAUSE: Duration = Duration::from_secs(1);

impl OffsetStore for ConnectorStore {
    fn least_pause(&self) -> Duration {
        match self {
            Self::File(store) | Self::Returning(store, _) => store.least_pause(),
            Self::Topic(_) => PAUSE,
        }
    }

    async fn load(&mut self) -> Result<Option<StoredOffset>, Failure> {
        match self {
            Self::File(store) => store.load().await,
            Self::Returning(file, returning) => {
                let (store, returning) = (file.clone(), returning.clone());
                blocking(move || returning.take_back(&store)).await?;
                file.load().await
            }
            Self::Topic(store) => {
                let store = store.clone();
                blocking(move || store.read()).await
            }
        }
    }

    async fn claim(&mut self) -> Result<bool, Failure> {
        let Self::Topic(store) = self else { return Ok(false) };
        let store = store.clone();
        // A process that still runs the connector must not be fenced by one that waits for its end. So this is not done earlier.
        let claim = move || {
            let begun = Instant::now();
            if let Some(of) = &store.transactions {
                of.transactions.fence()?;
            }
            let fenced = begun.elapsed();
            store.log.wait_for_open_transactions()?;
            let (fenced_ms, waited_ms) = (fenced.as_millis() as u64, (begun.elapsed() - fenced).as_millis() as u64);
            debug!(fenced_ms, waited_ms, "earlier producers of the connector have ended");
            Ok(())
        };
        blocking(claim).await.map(|()| true)
    }

    async fn write(&mut self, offset: &StoredOffset) -> Result<(), Failure> {
        match self {
            Self::File(store) | Self::Returning(store, _) => store.write(offset).await,
            Self::Topic(TopicStore {
                transactions: Some(of),
                log,
                ..
            }) => {
                let (of, record, topic) = (of.clone(), record(offset), log.topic().to_owned());
                // Noted here: the thread may come to it when the session has ended.
                let session = of.transactions.session();
                let commit = move || {
                    of.transactions.commit(record, session)?;
                    if let Some(note) = of.note.as_ref().filter(|_| !of.is_noted.load(Relaxed)) {
                        note.expect_offset(&topic)?;
                        of.is_noted.store(true, Relaxed);
                    }
                    Ok(())
                };
                blocking(commit).await
            }
            Self::Topic(store) => store.log.write(&store.partition.key(), Some(record(offset))).await,
        }
    }

    async fn tell_gap(&mut self, gap: Option<&Gap>) -> Result<(), Failure> {
        if let (Self::Topic(store), Some(_)) = (&mut *self, gap) {
            store.open_folder();
        }
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

    async fn record_skips(&mut self) -> Result<Vec<Position>, Failure> {
        match self.folder() {
            Some(store) => store.record_skips().await,
            None => Ok(Vec::new()),
        }
    }

    async fn settle_record_skips(&mut self, stored: &StoredOffset) -> Result<(), Failure> {
        match self.folder() {
            Some(store) => store.settle_record_skips(stored).await,
            None => Ok(()),
        }
    }
}

impl ConnectorStore {
    fn folder(&mut self) -> Option<&mut FileStore> {
        match self {
            Self::File(store) | Self::Returning(store, _) => Some(store),
            Self::Topic(store) => store.folder.as_mut(),
        }
    }

    /// The connector's folder. It may not exist yet.
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::File(store) | Self::Returning(store, _) => store.path().parent().map(Path::to_owned),
            Self::Topic(store) => Some(store.path()),
        }
    }
}
