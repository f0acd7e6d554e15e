//! A case: a database, a connector's configuration, and what happens. One TOML file each.

use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One file under `tests/parity/cases`; its README explains the keys.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The file's name without its end.
    #[serde(skip)]
    pub name: String,
    /// The file's content.
    #[serde(skip)]
    pub text: String,
    /// What the case shows, as a sentence.
    pub title: String,
    /// SQL before any connector starts; its rows are a snapshot's.
    #[serde(default)]
    pub setup: String,
    /// Oldest major version of Postgres that the case makes sense on.
    #[serde(default)]
    pub min_pg: u32,
    /// Topics to create first, with their number of partitions.
    #[serde(default)]
    pub topics: BTreeMap<String, i32>,
    /// Connector properties on top of the usual ones; an empty one takes a usual one away.
    #[serde(default)]
    pub config: BTreeMap<String, String>,
    /// What happens, in order.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// Whether it is right that no record arrives.
    #[serde(default)]
    pub empty: bool,
    /// Whether a recording of it can be played again.
    #[serde(default = "yes")]
    pub replay: bool,
}

/// In a configuration, where the schema registry of the engine is: `http://host:port`.
pub const REGISTRY: &str = "@registry@";

const fn yes() -> bool {
    true
}

/// One thing that happens. Within a step: SQL, then settling, then stop, then start.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// SQL; each statement commits by itself unless it stands between `begin` and `commit`.
    #[serde(default)]
    pub sql: String,
    /// Wait until every record has arrived.
    #[serde(default)]
    pub settle: bool,
    /// Stop the connector, once every record has arrived.
    #[serde(default)]
    pub stop: bool,
    /// Start the connector again.
    #[serde(default)]
    pub start: bool,
}

/// What a Connect worker needs on its class path for a connector, beside Kafka Connect and Debezium.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Classes {
    /// The converters of Apicurio: Debezium's `CloudEventsConverter` takes an Avro converter from its own class loader.
    pub converters: bool,
    /// Debezium's transforms with expressions, which must have the class loader of Debezium, and Groovy.
    pub scripting: bool,
}

impl Classes {
    /// Those that a connector with these properties needs.
    pub fn of<'a>(config: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        config.fold(Self::default(), |classes, (name, value)| Self {
            // CloudEventsConverter gets the options of a converter of Apicurio, and not its name.
            converters: classes.converters || name.contains(".apicurio."),
            scripting: classes.scripting || name.ends_with(".language") && value == "jsr223.groovy",
        })
    }
}

/// Where the cases are.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("parity/cases")
}

/// All cases, by name. Panics with the file's name where one cannot be read.
pub fn all() -> Vec<Case> {
    let entries = fs::read_dir(folder()).expect("the folder of cases is there");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the folder can be listed").path())
        .collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    paths.sort();
    paths.iter().map(|path| Case::load(path)).collect()
}

impl Case {
    /// Whether its converters use a schema registry.
    pub fn has_registry(&self) -> bool {
        self.config.values().any(|value| value.contains(REGISTRY))
    }

    /// What Debezium needs for it.
    pub fn classes(&self) -> Classes {
        Classes::of(self.config.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// Reads a file.
    pub fn load(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let case: Self = toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = path
            .file_stem()
            .expect("a file has a name")
            .to_string_lossy()
            .into_owned();
        Self { name, text, ..case }
    }

    /// The connector's whole configuration. `engine` keeps the slots and publications of those who run it apart.
    pub fn connector(&self, engine: &str, postgres_port: u16, database: &str) -> Map<String, Value> {
        let json = "org.apache.kafka.connect.json.JsonConverter";
        let usual = [
            ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
            ("tasks.max", "1"),
            ("plugin.name", "pgoutput"),
            ("database.hostname", "127.0.0.1"),
            ("database.port", &postgres_port.to_string()),
            ("database.user", "postgres"),
            ("database.password", "postgres"),
            ("database.dbname", database),
            ("topic.prefix", "parity"),
            ("slot.name", &format!("{database}_{engine}")),
            ("publication.name", &format!("{database}_{engine}")),
            ("poll.interval.ms", "20"),
            ("key.converter", json),
            ("value.converter", json),
            ("key.converter.schemas.enable", "false"),
            ("value.converter.schemas.enable", "false"),
        ];
        let mut config: BTreeMap<&str, &str> = usual.into_iter().collect();
        config.extend(self.config.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let set = config.into_iter().filter(|(_, value)| !value.is_empty());
        let port = postgres_port.to_string();
        let names = [("@engine@", engine), ("@database@", database), ("@port@", &port)];
        let value = |text: &str| {
            let filled = |text: String, (name, value): &(&str, &str)| text.replace(name, value);
            names.iter().fold(text.to_owned(), filled).into()
        };
        set.map(|(name, text)| (name.into(), value(text))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_read_and_names_its_tables() {
        let cases = all();
        assert!(!cases.is_empty());
        for case in cases {
            assert!(
                case.name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
                "{}",
                case.name
            );
            assert!(
                case.name.len() <= 40,
                "{}: the name becomes part of a database's and a slot's",
                case.name
            );
            assert!(
                !case.setup.is_empty() || case.steps.iter().any(|step| !step.sql.is_empty()),
                "{}",
                case.name
            );
        }
    }

    #[test]
    fn properties_of_a_case_win_and_empty_ones_go() {
        let case: Case = toml::from_str(
            "title = 't'\n[config]\n'topic.prefix' = 'mine'\n'plugin.name' = ''\n'signal.data.collection' = '@database@.@engine@'",
        )
        .expect("the text is a case");
        let config = case.connector("walferry", 5432, "db");
        assert_eq!(config["topic.prefix"], "mine");
        assert_eq!(config.get("plugin.name"), None);
        assert_eq!(config["signal.data.collection"], "db.walferry");
        assert_eq!(config["slot.name"], "db_walferry");
    }
}
