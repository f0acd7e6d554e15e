//! Where the offset of a connector is. Everything that answers this question is here; `store.rs` reads, writes and moves the offset.
//!
//! A worker keeps its state in Connect's topics or in files, and a connector that delivers exactly once has its offset in a topic in any case,
//! because Kafka commits it with the records. A connector may change from one way to the other between two runs. So a *note*
//! ([`TopicNote`]) beside the place of the file says which topic has the offset instead of the file. The offset is read where the last run has
//! left it, and a start moves it to where this run writes it:
//!
//! | the worker's state is in | exactly once | note | file | the offset is in | a start |
//! | --- | --- | --- | --- | --- | --- |
//! | Connect's topics | either | | | the worker's offset topic | refuses a file with a newer offset |
//! | files | no | none | either | the file | |
//! | files | no | names a topic | either | that topic | moves it into the file, and removes the note |
//! | files | yes | names the connector's topic | either | the connector's topic | refuses if a stored offset is gone |
//! | files | yes | another, or none | has one | the file | moves it into the connector's topic |
//! | files | yes | names another topic | none | that other topic | moves it into the connector's topic |
//! | files | yes | none | none | the connector's topic, where Connect may have left one | writes the note |
//!
//! [`decide`] is the part of this table for state in files. The *connector's topic* is its `offsets.storage.topic`, or else the worker's
//! `offset.storage.topic`, or else `walferry-offsets`.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use tracing::{info, warn};
use walferry_config::{Connector, Worker};
use walferry_diagnosis::{Kind, printed::shell_word};
use walferry_engine::{Failure, record_skip::SkipCommand, store::StoredOffset};
use walferry_kafka::{
    ClientSettings, Transactions,
    connect::{ConnectTopics, OffsetLog},
};
use walferry_offset::{FileStore, ImportError, import, java_offsets, private};
use walferry_record::SourcePartition;

use crate::{
    loaded::Loaded,
    store::{ConnectorStore, ReturningOffset, TopicNote, TopicStore, offset, refuse_newer_file},
};

/// Where the offset of a connector is, if the other state of its worker is in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OffsetPlace {
    /// In a file of its folder in the data directory.
    File,
    Topic(String),
}

#[derive(Debug, Clone)]
pub struct Offsets {
    /// The data directory; with a topic, what else a connector leaves there.
    pub data_dir: PathBuf,
    /// Connect's offset topic, where it holds the offsets.
    pub topic: Option<OffsetLog>,
}

impl Offsets {
    /// Opens the store of one connector. `own_topic` is its `offsets.storage.topic`.
    pub(crate) fn open(&self, partition: SourcePartition, own_topic: Option<&str>) -> Result<ConnectorStore, Failure> {
        match &self.topic {
            // Its last offset is there, and what is in the worker's topic may be older or missing.
            Some(_) if let Some(topic) = own_topic => Err(Failure::stop(
                Kind::Configuration,
                format!(
                    "offsets.storage.topic is {topic:?}: Kafka Connect keeps the offset of this connector in that topic, and Walferry reads \
                     offsets of Connect's topics from offset.storage.topic alone"
                ),
                "let Kafka Connect run once more: stop the connector there, save what GET /connectors/NAME/offsets answers, remove \
                 offsets.storage.topic from its configuration, and write the offset back with PATCH /connectors/NAME/offsets; or take the \
                 connector alone with `walferry run --take NAME`, which asks Kafka Connect for its offset",
            )),
            None => Ok(ConnectorStore::File(FileStore::open_when_possible(
                &self.data_dir,
                partition,
            )?)),
            Some(log) => Ok(ConnectorStore::Topic(TopicStore::open(
                log.clone(),
                partition,
                &self.data_dir,
            ))),
        }
    }

    /// How a person has one change of a connector passed over.
    pub(crate) fn skip_command(&self, connector: &Connector) -> SkipCommand {
        let command = self.command("skip-record", connector);
        SkipCommand { command, starts: false }
    }

    /// How a person decides what happens at a gap.
    pub(crate) fn gap_command(&self, connector: &Connector) -> String {
        self.command("skip-gap", connector)
    }

    /// A command of `walferry offsets` for this connector, which may be run in any folder.
    fn command(&self, which: &str, connector: &Connector) -> String {
        let folder = std::path::absolute(&self.data_dir).unwrap_or_else(|_| self.data_dir.clone());
        format!(
            "walferry offsets {which} {} --data-dir {}",
            shell_word(&connector.name),
            shell_word(&folder.to_string_lossy())
        )
    }

    /// The topic in which a start of the connector would look for its offset. `None`: it would look into a file.
    pub(crate) fn topic_of(&self, loaded: &Loaded) -> Result<Option<OffsetLog>, Failure> {
        match &self.topic {
            Some(topic) => Ok(Some(topic.clone())),
            None => match place_of_offset(loaded, &self.data_dir)? {
                OffsetPlace::File => Ok(None),
                OffsetPlace::Topic(topic) => open_alone(loaded, &topic).map(Some),
            },
        }
    }

    /// Opens the store of a connector that delivers exactly once, and the transactions that it shares with the producer.
    pub(crate) fn open_in_transactions(
        &self,
        loaded: &Loaded,
        kafka: &ClientSettings,
    ) -> Result<(ConnectorStore, Transactions), Failure> {
        let config = &loaded.connector;
        let partition = partition(config);
        // Refuses what is refused at least once, too: a folder that cannot be used, or that is in use.
        let own_topic = config.offsets_topic.as_deref();
        drop(self.open(partition.clone(), own_topic)?);
        let log = match &self.topic {
            Some(topic) => topic.clone(),
            None => open_alone(loaded, &topic_alone(config, &loaded.worker))?,
        };
        let group = loaded
            .worker
            .group_id
            .as_deref()
            .map(str::trim)
            .filter(|group| !group.is_empty());
        let transactions = Transactions::new(
            kafka.clone(),
            log.clone(),
            partition.key(),
            group.unwrap_or(GROUP_WITHOUT_A_NAME),
            &config.name,
        );
        let noted = TopicNote::at(&self.data_dir, &partition).read()?;
        let earlier = noted.filter(|topic| self.topic.is_none() && topic != log.topic());
        let earlier = earlier.map(|topic| open_alone(loaded, &topic)).transpose()?;
        let store = TopicStore::open(log, partition, &self.data_dir);
        let store = store.in_transactions(transactions.clone(), self.topic.is_none(), earlier);
        Ok((ConnectorStore::Topic(store), transactions))
    }
}

/// Where the last run of a connector has left its offset, if the other state of its worker is in files.
pub fn place_of_offset(loaded: &Loaded, data_dir: &Path) -> Result<OffsetPlace, Failure> {
    let partition = partition(&loaded.connector);
    let noted = TopicNote::at(data_dir, &partition).read()?;
    if loaded.connector.exactly_once.is_none() {
        return Ok(decide(None, noted, false));
    }
    let topic = topic_alone(&loaded.connector, &loaded.worker);
    let in_file = FileStore::peek(data_dir, &partition).map_err(|error| error.for_good())?;
    Ok(decide(Some(topic), noted, in_file.is_some()))
}

/// The table above, for a worker whose state is in files. `own` is the connector's topic, if it delivers exactly once.
fn decide(own: Option<String>, noted: Option<String>, is_in_file: bool) -> OffsetPlace {
    let topic = match own {
        None => noted,
        Some(own) if noted.as_ref() == Some(&own) => Some(own),
        Some(_) if is_in_file => None,
        Some(own) => noted.or(Some(own)),
    };
    topic.map_or(OffsetPlace::File, OffsetPlace::Topic)
}

/// The topic of the offset of a connector that delivers exactly once, if everything else is kept in files.
fn topic_alone(connector: &Connector, worker: &Worker) -> String {
    let of_worker = worker.offset_storage.get("topic").map(str::trim);
    let of_worker = of_worker.filter(|topic| !topic.is_empty());
    let own = connector.offsets_topic.as_deref();
    own.or(of_worker).unwrap_or("walferry-offsets").to_owned()
}

fn open_alone(loaded: &Loaded, topic: &str) -> Result<OffsetLog, Failure> {
    OffsetLog::open_alone(&loaded.worker, &loaded.bootstrap_servers, topic)
}

/// The group of workers in `transactional.id`, if the worker has no `group.id`.
const GROUP_WITHOUT_A_NAME: &str = "walferry";

/// Under which key offsets are stored.
pub fn partition(config: &Connector) -> SourcePartition {
    SourcePartition {
        connector: config.name.clone(),
        server: config.topics.prefix.to_string(),
    }
}

/// The store of a connector that has delivered exactly once before: its offset comes back from the topic.
pub(crate) fn returning(store: ConnectorStore, loaded: &Loaded) -> Result<ConnectorStore, Failure> {
    let ConnectorStore::File(file) = store else {
        return Ok(store);
    };
    let note = TopicNote::of(&file);
    let Some(topic) = note.read()? else {
        return Ok(ConnectorStore::File(file));
    };
    let log = open_alone(loaded, &topic)?;
    let partition = partition(&loaded.connector);
    let returning = ReturningOffset {
        log,
        key: partition.key(),
        partition,
        note,
    };
    Ok(ConnectorStore::Returning(file, returning))
}

/// Takes the offset over that a standalone worker of Connect or Debezium Server has left in its file, if there is none here. That happens
/// once: an offset that is reset later stays so.
pub(crate) fn take_over_standalone(store: &ConnectorStore, loaded: &Loaded) -> Result<(), Failure> {
    let file = loaded.worker.offset_storage.get("file.filename").map(str::trim);
    let (ConnectorStore::File(store), Some(file)) = (store, file.filter(|file| !file.is_empty())) else {
        return Ok(());
    };
    let marker = store.path().with_file_name("standalone-offset");
    let unusable = |error: walferry_offset::Error| error.for_good();
    let mark = || {
        let text = "The offset of a standalone worker is not taken over while this file is here: it was taken over before, or there was \
                    another offset.\n";
        private::create(&marker)?.write_all(text.as_bytes())
    };
    if marker.exists() {
        return Ok(());
    }
    if store.read().map_err(unusable)?.is_some() {
        // Once that offset is reset, the older one of the standalone worker must not come back.
        if let Err(error) = mark() {
            // A disk that is full must not keep the connector from its start. The next start tries again.
            warn!(
                path = %marker.display(),
                %error,
                "it could not be noted that the offset file of a standalone worker is not needed any more"
            );
        }
        return Ok(());
    }
    let stop = |what: String| {
        let hint = "look at the path of offset.storage.file.filename, or leave that property out: the first start then goes by \
                    `snapshot.mode`";
        Failure::stop(
            Kind::OffsetImport,
            format!("the offset file {file} cannot be taken over: {what}"),
            hint,
        )
    };
    let bytes = match fs::read(file) {
        Ok(bytes) if bytes.is_empty() => return Ok(()),
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(stop(error.to_string())),
    };
    let text = java_offsets(&bytes).map_err(|error| stop(error.to_string()))?;
    let partition = partition(&loaded.connector);
    match import(&partition, &text) {
        Ok(found) => {
            store.replace(&found.offset).map_err(unusable)?;
            let lsn = found.offset.start().unwrap_or_default();
            info!(file, lsn.stored = %lsn, "the offset of a standalone worker is taken over");
        }
        Err(ImportError::NotOurs { .. } | ImportError::Empty) => {
            info!(
                file,
                "the offset file of a standalone worker has no offset for this connector"
            );
            return Ok(());
        }
        Err(error) => return Err(stop(error.to_string())),
    }
    let marked = mark();
    marked.map_err(|error| stop(format!("{}: {error}", marker.display())))
}

/// The offset with which a start would continue, for `walferry check`. Changes nothing. Blocks.
pub fn peek(
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

/// The same for a connector whose offset alone is in a topic. Blocks.
pub fn peek_topic(loaded: &Loaded, topic: &str) -> Result<Option<StoredOffset>, Failure> {
    let key = partition(&loaded.connector).key();
    let log = OffsetLog::open_alone(&loaded.worker, &loaded.bootstrap_servers, topic)?;
    let found = log.never_created().read(&key)?;
    found.map(|record| offset(&key, &record)).transpose()
}

#[cfg(test)]
mod tests {
    use walferry_config::{Nowhere, Submitted};

    use super::*;

    #[test]
    fn an_offset_is_where_the_last_run_has_left_it() {
        use OffsetPlace::{File, Topic};
        let text = |text: &str| Some(text.to_owned());
        let cases = [
            ("at least once, as always", None, None, false, File),
            ("exactly once until now", None, text("own"), false, Topic("own".into())),
            (
                "exactly once, as before",
                text("own"),
                text("own"),
                false,
                Topic("own".into()),
            ),
            (
                "the same, with a file of an earlier time",
                text("own"),
                text("own"),
                true,
                Topic("own".into()),
            ),
            ("at least once until now", text("own"), None, true, File),
            ("a file that came back", text("own"), text("other"), true, File),
            (
                "another topic until now",
                text("own"),
                text("other"),
                false,
                Topic("other".into()),
            ),
            (
                "Connect has left it, or nobody",
                text("own"),
                None,
                false,
                Topic("own".into()),
            ),
        ];
        for (case, own, noted, is_in_file, place) in cases {
            assert_eq!(decide(own, noted, is_in_file), place, "{case}");
        }
    }

    fn worker_of(properties: Vec<(String, String)>) -> (Option<Worker>, walferry_config::Findings) {
        Worker::read(&Submitted { name: None, properties }, &Nowhere)
    }

    #[test]
    fn an_offset_that_was_reset_does_not_come_back_from_a_standalone_workers_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("connect.offsets");
        // Reading it would be an error.
        fs::write(&file, "no map of Java").expect("the folder can be written");
        let properties = vec![("offset.storage.file.filename".to_owned(), file.display().to_string())];
        let worker = worker_of(properties).0.expect("it is a worker");
        let configuration = [
            ("name", "c"),
            ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
            ("plugin.name", "pgoutput"),
            ("database.hostname", "db"),
            ("database.user", "u"),
            ("database.dbname", "db"),
            ("topic.prefix", "t"),
        ];
        let configuration: Vec<_> = configuration
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .into();
        let (checked, findings) = crate::loaded::load_configuration("c", &configuration, &worker);
        let checked = checked.unwrap_or_else(|| panic!("{findings:?}"));
        let loaded = Loaded {
            connector: checked.connector,
            built: checked.built,
            worker,
            bootstrap_servers: "127.0.0.1:1".into(),
            configuration,
            file: "c.json".into(),
        };
        let store = FileStore::open(&folder.path().join("data"), partition(&loaded.connector)).expect("it opens");
        store.replace(&StoredOffset::default()).expect("it is written");
        let store = ConnectorStore::File(store);
        take_over_standalone(&store, &loaded).expect("there is an offset");
        let ConnectorStore::File(files) = &store else {
            unreachable!()
        };
        files.remove().expect("it is removed");
        take_over_standalone(&store, &loaded).expect("the file is not read");
        assert_eq!(files.read().expect("it is readable"), None);
    }

    #[test]
    fn a_connector_with_an_offset_topic_of_its_own_is_refused_on_connects_topics() {
        let topics = [
            ("group.id", "g"),
            ("config.storage.topic", "configs"),
            ("offset.storage.topic", "offsets"),
            ("status.storage.topic", "states"),
        ];
        let topics = topics.map(|(name, text)| (name.to_owned(), text.to_owned()));
        let worker = worker_of(topics.into()).0.expect("it is a worker");
        // Nothing is asked of Kafka.
        let topics = walferry_kafka::connect::ConnectTopics::of(&worker, "127.0.0.1:1").expect("they are right");
        let log = OffsetLog::open(&topics.expect("there are topics")).expect("a client");
        let folder = tempfile::tempdir().expect("a folder");
        let offsets = |topic| Offsets {
            data_dir: folder.path().to_owned(),
            topic,
        };
        let partition = || SourcePartition {
            connector: "c".into(),
            server: "t".into(),
        };
        let failure = offsets(Some(log.clone())).open(partition(), Some("own-offsets")).err();
        let failure = failure.expect("its last offset is elsewhere");
        assert_eq!(failure.kind, Kind::Configuration);
        let text = format!("{failure} {}", failure.hint().unwrap_or_default());
        for part in ["offsets.storage.topic", "own-offsets", "--take"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        // Files are read wherever Connect kept its offsets.
        assert!(offsets(None).open(partition(), Some("own-offsets")).is_ok());
        assert!(offsets(Some(log)).open(partition(), None).is_ok());
    }
}
