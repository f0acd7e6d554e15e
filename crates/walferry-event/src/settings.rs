//! The part of the connector's configuration that concerns events.

use walferry_config::connector::{
    ColumnSection, Connector, EventSection, FilterSection, ReselectColumns, TopicSection,
};

/// All settings that decide what a record looks like. They are the same for all tables.
#[derive(Debug, Clone)]
pub struct EventSettings {
    /// `source.version`.
    pub version: String,
    /// Run id in the context headers.
    pub run_id: String,
    /// `database.dbname`; `source.db`.
    pub database: String,
    /// Names of topics.
    pub topics: TopicSection,
    /// Which tables, columns and operations are captured.
    pub filters: FilterSection,
    /// Rules for single columns.
    pub columns: ColumnSection,
    /// How values are written.
    pub events: EventSection,
    /// What is read again of changed rows.
    pub reselect: Vec<ReselectColumns>,
}

impl EventSettings {
    /// The settings of a connector. `version` is the version of the program. `run_id` is new at each start.
    pub fn new(connector: &Connector, version: &str, run_id: &str) -> Self {
        Self {
            version: version.to_owned(),
            run_id: run_id.to_owned(),
            database: connector.postgres.dbname.clone(),
            topics: connector.topics.clone(),
            filters: connector.filters.clone(),
            columns: connector.columns.clone(),
            events: connector.events.clone(),
            reselect: connector.post_processors.clone(),
        }
    }

    /// `topic.prefix`.
    pub(crate) fn prefix(&self) -> &str {
        self.topics.prefix.as_str()
    }
}
