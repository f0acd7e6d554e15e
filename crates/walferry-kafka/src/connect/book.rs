//! Connectors in Connect's configuration topic.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use tracing::warn;
use walferry_engine::{
    Failure, TargetState,
    book::{Book, BookEntry, Configuration},
};

use super::{ConnectTopics, log::Log};

const CONNECTOR: &str = "connector-";
const TARGET: &str = "target-state-";
const TASK_CLASS: &str = "io.debezium.connector.postgresql.PostgresConnectorTask";

/// Connectors as Connect keeps them in `config.storage.topic`. Connectors with classes that Walferry does not have stay unchanged.
#[derive(Debug)]
pub struct TopicBook {
    log: Log,
    known: BookContent,
    is_ours: fn(&str) -> bool,
}

/// The content of the topic.
#[derive(Debug, Default)]
struct BookContent {
    configurations: BTreeMap<String, Configuration>,
    targets: BTreeMap<String, TargetState>,
}

impl TopicBook {
    /// Opens the topic and reads it. `is_ours` tells by its class whether a connector is one for Walferry. Blocks.
    ///
    /// # Errors
    /// The topic cannot be read, or contains records that Connect did not write.
    pub fn open(topics: &ConnectTopics, is_ours: fn(&str) -> bool) -> Result<Self, Failure> {
        let mut book = Self {
            log: Log::open(topics, &topics.config.name)?,
            known: BookContent::default(),
            is_ours,
        };
        book.read()?;
        Ok(book)
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

fn class(configuration: &Configuration) -> &str {
    configuration
        .iter()
        .find(|(name, _)| name == "connector.class")
        .map_or("", |(_, class)| class.trim())
}

impl BookContent {
    /// Applies a record. Like Connect, skips records that it does not understand.
    fn learn(&mut self, key: &str, value: Option<&Json>) {
        if let Some(name) = key.strip_prefix(TARGET) {
            match value.and_then(target) {
                Some(target) => drop(self.targets.insert(name.to_owned(), target)),
                None => drop(self.targets.remove(name)),
            }
        } else if let Some(name) = key.strip_prefix(CONNECTOR) {
            let properties = value
                .and_then(|value| value.get("properties"))
                .and_then(Json::as_object);
            match properties {
                Some(properties) => {
                    let texts = properties
                        .iter()
                        .filter_map(|(name, text)| Some((name.clone(), text.as_str()?.to_owned())));
                    self.configurations.insert(name.to_owned(), texts.collect());
                }
                None => {
                    self.configurations.remove(name);
                    self.targets.remove(name);
                }
            }
        }
    }
}

/// Since Connect 3.5, `state.v2` can be STOPPED. Then `state` is PAUSED, for older workers.
fn target(value: &Json) -> Option<TargetState> {
    let state = value.get("state.v2").or_else(|| value.get("state"))?;
    match state.as_str()? {
        "STARTED" => Some(TargetState::Running),
        "PAUSED" => Some(TargetState::Paused),
        "STOPPED" => Some(TargetState::Stopped),
        _ => None,
    }
}

fn target_text(target: TargetState) -> String {
    let (state, v2) = match target {
        TargetState::Running => ("STARTED", "STARTED"),
        TargetState::Paused => ("PAUSED", "PAUSED"),
        TargetState::Stopped => ("PAUSED", "STOPPED"),
    };
    json!({ "state": state, "state.v2": v2 }).to_string()
}

fn properties(configuration: &Configuration, task: bool) -> String {
    let pairs = configuration
        .iter()
        .map(|(name, text)| (name.clone(), Json::from(text.clone())));
    let mut map: Map<String, Json> = pairs.collect();
    if task {
        map.insert("task.class".into(), TASK_CLASS.into());
    }
    json!({ "properties": map }).to_string()
}

impl Book for TopicBook {
    fn entries(&mut self) -> Result<Vec<BookEntry>, Failure> {
        self.read()?;
        let ours = self
            .known
            .configurations
            .iter()
            .filter(|(_, configuration)| self.has_our_class(configuration));
        let entries = ours.map(|(name, configuration)| BookEntry {
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
    fn put(&mut self, entry: &BookEntry) -> Result<(), Failure> {
        let BookEntry {
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
        if *target != TargetState::Stopped {
            self.write_task(name, configuration)?;
        }
        Ok(())
    }

    fn set_target(&mut self, name: &str, target: TargetState) -> Result<(), Failure> {
        let before = self.known.targets.get(name).copied().unwrap_or_default();
        self.log.write(&format!("{TARGET}{name}"), Some(target_text(target)))?;
        self.known.targets.insert(name.to_owned(), target);
        match (before, target) {
            // A stopped connector has no tasks.
            (_, TargetState::Stopped) => self
                .log
                .write(&format!("commit-{name}"), Some(json!({ "tasks": 0 }).to_string())),
            (TargetState::Stopped, _) => match self.known.configurations.get(name).cloned() {
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

impl TopicBook {
    fn write_task(&self, name: &str, configuration: &Configuration) -> Result<(), Failure> {
        self.log
            .write(&format!("task-{name}-0"), Some(properties(configuration, true)))?;
        self.log
            .write(&format!("commit-{name}"), Some(json!({ "tasks": 1 }).to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topic_of_a_connect_cluster_is_understood() {
        let records = [
            (
                "session-key",
                Some(r#"{"key":"x","algorithm":"HmacSHA256","creation-timestamp":1}"#),
            ),
            (
                "connector-a",
                Some(r#"{"properties":{"zeta":"1.50","connector.class":"P","name":"a"}}"#),
            ),
            ("task-a-0", Some(r#"{"properties":{"task.class":"T"}}"#)),
            ("commit-a", Some(r#"{"tasks":1}"#)),
            ("connector-b", Some(r#"{"properties":{"name":"b"}}"#)),
            ("target-state-a", Some(r#"{"state":"PAUSED","state.v2":"STOPPED"}"#)),
            ("target-state-b", Some(r#"{"state":"PAUSED"}"#)),
            ("connector-c", Some(r#"{"properties":{"name":"c"}}"#)),
            ("target-state-c", Some(r#"{"state":"PAUSED","state.v2":"PAUSED"}"#)),
            ("connector-c", None),
            ("target-state-c", None),
            ("logger-cluster-x", Some(r#"{"level":"DEBUG"}"#)),
        ];
        let mut known = BookContent::default();
        for (key, value) in records {
            let value = value.and_then(|value| serde_json::from_str(value).ok());
            known.learn(key, value.as_ref());
        }
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let a = vec![pair("zeta", "1.50"), pair("connector.class", "P"), pair("name", "a")];
        assert_eq!(known.configurations["a"], a);
        assert_eq!(known.configurations.len(), 2);
        assert_eq!(known.targets["a"], TargetState::Stopped);
        assert_eq!(known.targets["b"], TargetState::Paused);
        assert!(!known.targets.contains_key("c"));
    }

    #[test]
    fn what_is_written_is_in_connects_form() {
        assert_eq!(
            target_text(TargetState::Stopped),
            r#"{"state":"PAUSED","state.v2":"STOPPED"}"#
        );
        let configuration = vec![("b".to_owned(), "2".to_owned()), ("a".to_owned(), "x \"y\"".to_owned())];
        assert_eq!(
            properties(&configuration, false),
            r#"{"properties":{"b":"2","a":"x \"y\""}}"#
        );
        assert!(properties(&configuration, true).contains(r#""task.class":"io.debezium"#));
    }
}
