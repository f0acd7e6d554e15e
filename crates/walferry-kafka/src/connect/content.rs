//! What the records of Connect's configuration topic say.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};
use walferry_engine::{WantedState, connector_store::Configuration};

pub(super) const CONNECTOR: &str = "connector-";
pub(super) const TARGET: &str = "target-state-";
const TASK_CLASS: &str = "io.debezium.connector.postgresql.PostgresConnectorTask";

/// The content of the topic.
#[derive(Debug, Default)]
pub(super) struct ConfigContent {
    pub(super) configurations: BTreeMap<String, Configuration>,
    pub(super) targets: BTreeMap<String, WantedState>,
}

pub(super) fn class(configuration: &Configuration) -> &str {
    configuration
        .iter()
        .find(|(name, _)| name == "connector.class")
        .map_or("", |(_, class)| class.trim())
}

impl ConfigContent {
    /// Applies a record. Like Connect, skips records that it does not understand.
    pub(super) fn learn(&mut self, key: &str, value: Option<&Json>) {
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
fn target(value: &Json) -> Option<WantedState> {
    let state = value.get("state.v2").or_else(|| value.get("state"))?;
    match state.as_str()? {
        "STARTED" => Some(WantedState::Running),
        "PAUSED" => Some(WantedState::Paused),
        "STOPPED" => Some(WantedState::Stopped),
        _ => None,
    }
}

pub(super) fn target_text(target: WantedState) -> String {
    let (state, v2) = match target {
        WantedState::Running => ("STARTED", "STARTED"),
        WantedState::Paused => ("PAUSED", "PAUSED"),
        WantedState::Stopped => ("PAUSED", "STOPPED"),
    };
    json!({ "state": state, "state.v2": v2 }).to_string()
}

pub(super) fn properties(configuration: &Configuration, task: bool) -> String {
    let pairs = configuration
        .iter()
        .map(|(name, text)| (name.clone(), Json::from(text.clone())));
    let mut map: Map<String, Json> = pairs.collect();
    if task {
        map.insert("task.class".into(), TASK_CLASS.into());
    }
    json!({ "properties": map }).to_string()
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
        let mut known = ConfigContent::default();
        for (key, value) in records {
            let value = value.and_then(|value| serde_json::from_str(value).ok());
            known.learn(key, value.as_ref());
        }
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let a = vec![pair("zeta", "1.50"), pair("connector.class", "P"), pair("name", "a")];
        assert_eq!(known.configurations["a"], a);
        assert_eq!(known.configurations.len(), 2);
        assert_eq!(known.targets["a"], WantedState::Stopped);
        assert_eq!(known.targets["b"], WantedState::Paused);
        assert!(!known.targets.contains_key("c"));
    }

    #[test]
    fn what_is_written_is_in_connects_form() {
        assert_eq!(
            target_text(WantedState::Stopped),
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
