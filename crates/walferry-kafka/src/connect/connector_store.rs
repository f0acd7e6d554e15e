//! Connectors in Connect's configuration topic.

use serde_json::{Value as Json, json};
use tracing::warn;
use walferry_engine::{
    Failure, WantedState,
    connector_store::{Configuration, ConnectorEntry, ConnectorStore},
};

use super::{
    ConnectTopics,
    content::{CONNECTOR, ConfigContent, TARGET, class, properties, target_text},
    log::Log,
};

/// Connectors as Connect keeps them in `config.storage.topic`. Connectors with classes that Walferry does not have stay unchanged.
#[derive(Debug)]
pub struct TopicConnectorStore {
    log: Log,
    known: ConfigContent,
    is_ours: fn(&str) -> bool,
}

impl TopicConnectorStore {
    /// Opens the topic and reads it. `is_ours` tells by its class whether a connector is one for Walferry. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read, or contains records that Connect did not write.
    pub fn open(topics: &ConnectTopics, is_ours: fn(&str) -> bool) -> Result<Self, Failure> {
        let mut store = Self {
            log: Log::open(topics, &topics.config.name)?,
            known: ConfigContent::default(),
            is_ours,
        };
        store.read()?;
        Ok(store)
    }

    fn has_our_class(&self, configuration: &Configuration) -> bool {
        (self.is_ours)(class(configuration))
    }

    fn read(&mut self) -> Result<(), Failure> {
        let known = &mut self.known;
        self.log.read_to_end(|_, entry| {
            let key = String::from_utf8_lossy(&entry.key).into_owned();
            let Ok(value) = entry.value.as_deref().map(serde_json::from_slice::<Json>).transpose() else {
                warn!(
                    key,
                    "a record of Connect's configuration topic is not JSON: it is passed over, as Connect does"
                );
                return;
            };
            known.learn(&key, value.as_ref());
        })
    }
}

impl ConnectorStore for TopicConnectorStore {
    fn entries(&mut self) -> Result<Vec<ConnectorEntry>, Failure> {
        self.read()?;
        let ours = self
            .known
            .configurations
            .iter()
            .filter(|(_, configuration)| self.has_our_class(configuration));
        let entries = ours.map(|(name, configuration)| ConnectorEntry {
            name: name.clone(),
            configuration: configuration.clone(),
            target: self.known.targets.get(name).copied().unwrap_or_default(),
        });
        Ok(entries.collect())
    }

    /// Connectors with classes that only Connect can run.
    fn others(&self) -> Vec<(String, String)> {
        let others = self
            .known
            .configurations
            .iter()
            .filter(|(_, configuration)| !self.has_our_class(configuration));
        others
            .map(|(name, configuration)| (name.clone(), class(configuration).to_owned()))
            .collect()
    }

    /// As in Connect, the wanted state of a new connector comes before its configuration, and its tasks count from their commit on.
    fn put(&mut self, entry: &ConnectorEntry) -> Result<(), Failure> {
        let ConnectorEntry {
            name,
            configuration,
            target,
        } = entry;
        if self.known.targets.get(name).copied().unwrap_or_default() != *target {
            self.log.write(&format!("{TARGET}{name}"), Some(target_text(*target)))?;
            self.known.targets.insert(name.clone(), *target);
        }
        self.log
            .write(&format!("{CONNECTOR}{name}"), Some(properties(configuration, false)))?;
        self.known.configurations.insert(name.clone(), configuration.clone());
        if *target != WantedState::Stopped {
            self.write_task(name, configuration)?;
        }
        Ok(())
    }

    fn set_target(&mut self, name: &str, target: WantedState) -> Result<(), Failure> {
        let before = self.known.targets.get(name).copied().unwrap_or_default();
        self.log.write(&format!("{TARGET}{name}"), Some(target_text(target)))?;
        self.known.targets.insert(name.to_owned(), target);
        match (before, target) {
            // A stopped connector has no tasks.
            (_, WantedState::Stopped) => self
                .log
                .write(&format!("commit-{name}"), Some(json!({ "tasks": 0 }).to_string())),
            (WantedState::Stopped, _) => match self.known.configurations.get(name).cloned() {
                Some(configuration) => self.write_task(name, &configuration),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn remove(&mut self, name: &str) -> Result<(), Failure> {
        self.log.write(&format!("{CONNECTOR}{name}"), None)?;
        self.known.configurations.remove(name);
        self.log.write(&format!("{TARGET}{name}"), None)?;
        self.known.targets.remove(name);
        Ok(())
    }
}

impl TopicConnectorStore {
    fn write_task(&self, name: &str, configuration: &Configuration) -> Result<(), Failure> {
        self.log
            .write(&format!("task-{name}-0"), Some(properties(configuration, true)))?;
        self.log
            .write(&format!("commit-{name}"), Some(json!({ "tasks": 1 }).to_string()))
    }
}
