//! The connector's parts that a simulation does not vary.

use std::sync::{Arc, OnceLock};

use walferry_config::connector::Tolerance;
use walferry_config::{Connector, Findings, Nowhere, Options, Submitted, Worker};
use walferry_converter::{ConverterType, converter};
use walferry_engine::{Converters, ErrorPolicy, Pipeline, status::Status, store::StoredOffset};
use walferry_event::EventSettings;
use walferry_transform::Chain;

/// A pipeline that captures `public.t` and sends plain JSON.
pub(crate) fn pipeline(after: &StoredOffset) -> Pipeline {
    static CONNECTOR: OnceLock<Connector> = OnceLock::new();
    pipeline_of(
        CONNECTOR.get_or_init(|| connector(r#""table.include.list": "public.t""#)),
        after,
    )
}

/// The same of another connector.
pub(crate) fn pipeline_of(connector: &Connector, after: &StoredOffset) -> Pipeline {
    let events = Arc::new(EventSettings::new(connector, "0.0.0", "run"));
    let plugins = &connector.plugins;
    let json = |role| {
        let mut options = Options::default();
        options.set("schemas.enable", "false");
        converter("JsonConverter", role, &options)
            .0
            .expect("JsonConverter is known")
    };
    let converters = Converters {
        key: json(ConverterType::Key),
        value: json(ConverterType::Value),
        header: json(ConverterType::Header),
    };
    let (chain, _) = Chain::new(&plugins.transforms, &plugins.predicates);
    let tolerance = ErrorPolicy {
        all: connector.errors.tolerance == Tolerance::All,
        changes: connector.events.on_processing_failure,
        dead_letters: connector.errors.dead_letter_topic.as_ref().map(ToString::to_string),
        retry_timeout: connector.errors.retry_timeout,
        quiet: !connector.errors.log,
        ..ErrorPolicy::default()
    };
    let pipeline = Pipeline::new(events, chain.unwrap_or_default(), converters, tolerance, after);
    match connector.streaming.max_tables {
        Some((most, action)) => pipeline.with_table_limit(most, action),
        None => pipeline,
    }
}

/// A connector with these properties beside those that each one has.
pub(crate) fn connector(properties: &str) -> Connector {
    let text = format!(
        r#"{{"name": "sim", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput", "database.hostname": "db", "database.user": "u", "database.dbname": "db",
        "topic.prefix": "sim", {properties}}}"#
    );
    let (submitted, _) = Submitted::read(&text).expect("it is JSON");
    let (connector, findings) =
        Connector::read(&submitted, None, &Worker::default(), &Nowhere, &|_| Findings::default());
    connector.unwrap_or_else(|| panic!("{findings:?}"))
}

/// Where the counts go.
pub(crate) fn status() -> Status {
    Status::new("sim", "sim")
}

/// Stands for an `n` that a change leaves out.
pub(crate) const LEFT_OUT: i64 = -1;

/// `id` and `n` of an envelope's `after`; messages have none.
pub(crate) fn row(value: &[u8]) -> Option<(i32, i64)> {
    let envelope: serde_json::Value = serde_json::from_slice(value).expect("the converter writes JSON");
    let field = |name: &str| envelope["after"][name].as_i64();
    Some((field("id")? as i32, field("n").unwrap_or(LEFT_OUT)))
}
