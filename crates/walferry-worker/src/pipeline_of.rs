//! The pipeline of a session: the transforms and converters of a connector, and what they are told.
//!
//! Transforms and converters are built once, when the configuration is checked ([`Built`]). Each session gets a clone that has seen no record,
//! connected with the registries and with what reads the database beside the stream ([`pipelines`]).

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use uuid::Uuid;
use walferry_config::{
    Connector, Findings, Lookup, Worker,
    connector::{ConverterPlugin, NotificationChannel, Plugins, SignalChannel, TableChanges, Tolerance},
};
use walferry_converter::{
    ConverterType, converter,
    registry::{PreviewRegistry, Registry, RegistrySettings},
};
use walferry_engine::{
    Converters, ErrorNames, ErrorPolicy, Failure, Pipeline, SignalSettings, TableShapes, status::Status,
    store::StoredOffset,
};
use walferry_event::{EventSettings, reselect::RowReader};
use walferry_postgres::{RowLookups, TimescaleCatalog};
use walferry_registry::Registries;
use walferry_transform::{Chain, EventRouter, HypertableReader};

use crate::loaded::Loaded;

/// The transforms and converters of a connector. They are built once, when its configuration is checked.
#[derive(Clone)]
pub struct Built(Arc<Mutex<BuiltParts>>);

/// None of them has seen a record.
#[derive(Clone)]
struct BuiltParts {
    chain: Chain,
    converters: Converters,
}

impl Built {
    /// Builds them, and checks what only the crates of transforms, converters and the Kafka client can judge. They are there unless a
    /// finding is a problem. Files that options of transforms name are read with `files`.
    pub fn new(worker: &Worker, plugins: &Plugins, files: &dyn Lookup) -> (Option<Self>, Findings) {
        let (chain, mut findings) = Chain::with_files(&plugins.transforms, &plugins.predicates, files);
        findings.extend(walferry_kafka::ClientSettings::check(worker, plugins));
        let mut build = |plugin: &ConverterPlugin, role| {
            let (converter, more) = converter(&plugin.class, role, &plugin.options);
            findings.extend(more);
            converter
        };
        let key = build(&plugins.key_converter, ConverterType::Key);
        let value = build(&plugins.value_converter, ConverterType::Value);
        let header = build(&plugins.header_converter, ConverterType::Header);
        let parts = || {
            Some(BuiltParts {
                chain: chain?,
                converters: Converters {
                    key: key?,
                    value: value?,
                    header: header?,
                },
            })
        };
        (parts().map(|parts| Self(Arc::new(Mutex::new(parts)))), findings)
    }

    /// What a session begins with: the chain, connected with who reads TimescaleDB's catalog, and the converters, connected with their
    /// registries.
    fn for_session(&self, readers: &Readers, registries: Option<&Registries>) -> (Chain, Converters) {
        let BuiltParts {
            mut chain,
            mut converters,
        } = self.lock().clone();
        chain.attach(&mut || (readers.hypertables)());
        let mut connect = |settings: &_| match registries {
            Some(registries) => registries.of(settings),
            None => Arc::new(PreviewRegistry) as Arc<dyn Registry>,
        };
        for converter in converters.all_mut() {
            converter.attach(&mut connect);
        }
        (chain, converters)
    }

    /// The schemas of events: each transform that has some, with each event type, or expression for types, and its file.
    pub fn event_schemas(&self) -> Vec<(String, Vec<(String, String)>)> {
        let parts = self.lock();
        let routers = parts.chain.each::<EventRouter>();
        routers
            .map(|(transform, router)| (transform.to_owned(), router.event_schemas()))
            .filter(|(_, schemas)| !schemas.is_empty())
            .collect()
    }

    /// Whether a converter gets ids of schemas from a registry.
    pub fn asks_registry(&self) -> bool {
        !self.registries().is_empty()
    }

    /// The registries from which converters get ids, each with the properties of the converters that use it.
    pub fn registries(&self) -> Vec<(RegistrySettings, Vec<&'static str>)> {
        let mut found: Vec<(RegistrySettings, Vec<&'static str>)> = Vec::new();
        let mut converters = self.lock().converters.clone();
        let roles = ["key.converter", "value.converter", "header.converter"];
        for (converter, role) in converters.all_mut().into_iter().zip(roles) {
            converter.attach(&mut |settings| {
                match found.iter_mut().find(|(known, _)| known == settings) {
                    Some((_, roles)) => roles.push(role),
                    None => found.push((settings.clone(), vec![role])),
                }
                Arc::new(PreviewRegistry)
            });
        }
        found
    }

    /// The transforms, none of which has seen a record.
    pub(crate) fn chain(&self) -> Chain {
        self.lock().chain.clone()
    }

    fn lock(&self) -> MutexGuard<'_, BuiltParts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connect loads a worker's converters at its start, whether a connector uses them or not. Here only one that is used has to be there,
/// which is told with the connector; the others are warned of.
pub fn unknown_converters(worker: &Worker) -> Findings {
    let mut findings = Findings::default();
    let roles = [
        ("key.converter", &worker.key_converter, ConverterType::Key),
        ("value.converter", &worker.value_converter, ConverterType::Value),
        ("header.converter", &worker.header_converter, ConverterType::Header),
    ];
    for (property, plugin, role) in roles {
        let (found, of_options) = converter(&plugin.class, role, &plugin.options);
        if let Some(problem) = of_options.problems().next().filter(|_| found.is_none()) {
            let message = format!(
                "{}; connectors that do not set {property} themselves do not start",
                problem.text
            );
            findings.warning(property, message).hint = problem.hint.clone();
        }
    }
    findings
}

/// Makes the pipeline of a session that goes on after an offset.
pub type Pipelines = Box<dyn FnMut(&StoredOffset) -> Result<Pipeline, Failure>>;

/// What happens to records that cannot be sent.
pub(crate) fn error_policy(config: &Connector) -> ErrorPolicy {
    let errors = &config.errors;
    ErrorPolicy {
        all: errors.tolerance == Tolerance::All,
        changes: config.events.on_processing_failure,
        dead_letters: errors.dead_letter_topic.as_ref().map(ToString::to_string),
        retry_timeout: errors.retry_timeout,
        quiet: !errors.log,
        names: error_names(config),
    }
}

fn error_names(config: &Connector) -> ErrorNames {
    let plugins = &config.plugins;
    let transforms = plugins.transforms.iter();
    ErrorNames {
        connector: config.name.clone(),
        transforms: transforms
            .map(|transform| (transform.name.clone(), transform.class.clone()))
            .collect(),
        header_converter: plugins.header_converter.class.clone(),
        key_converter: plugins.key_converter.class.clone(),
        value_converter: plugins.value_converter.class.clone(),
    }
}

/// The clients of schema registries, with the limits of a connector.
pub(crate) fn registries(config: &Connector) -> Registries {
    Registries::pausing_at_most(config.errors.retry_delay_max).answering_within(error_policy(config).answer_limit())
}

/// What events are made with. The run id, as in Debezium, is new at each start of the process.
pub(crate) fn event_settings(config: &Connector) -> Arc<EventSettings> {
    let run = Uuid::now_v7().to_string();
    Arc::new(EventSettings::new(config, env!("CARGO_PKG_VERSION"), &run))
}

/// Makes the pipeline of each session.
///
/// Without `registries` nothing is registered: for what only looks.
pub fn pipelines(
    loaded: &Loaded,
    status: &Status,
    folder: Option<PathBuf>,
    registries: Option<Registries>,
    readers: Readers,
) -> Pipelines {
    let config = &loaded.connector;
    let events = event_settings(config);
    let tolerance = error_policy(config);
    let (built, heartbeat) = (loaded.built.clone(), config.heartbeat.interval);
    let has_post_processors = !config.post_processors.is_empty();
    let signals = signals(config);
    let table_limit = config.streaming.max_tables;
    let stops = config.streaming.table_changes == TableChanges::Stop;
    // A connector that is started again gets new ones.
    let shapes = stops.then(TableShapes::default);
    let xmin = config.streaming.xmin_interval.map(|_| status.xmin.clone());
    Box::new(move |after| {
        // Anew for each session, as a task of Debezium has it: what one session knows of the catalog is not kept for the next.
        let (chain, converters) = built.for_session(&readers, registries.as_ref());
        let mut pipeline = Pipeline::new(events.clone(), chain, converters, tolerance.clone(), after);
        if let Some(folder) = &folder {
            pipeline = pipeline.with_folder(folder.clone());
        }
        pipeline = pipeline.with_signals(signals.clone(), after);
        if let Some(interval) = heartbeat {
            pipeline = pipeline.with_heartbeats(interval);
        }
        if let Some((most, action)) = table_limit {
            pipeline = pipeline.with_table_limit(most, action);
        }
        if let Some(shapes) = &shapes {
            pipeline = pipeline.stopping_at_changes_of(shapes.clone(), after);
        }
        if let Some(rows) = readers.rows.as_ref().filter(|_| has_post_processors) {
            pipeline = pipeline.with_rows(rows());
        }
        if let Some(xmin) = &xmin {
            pipeline = pipeline.with_xmin(xmin.clone());
        }
        Ok(pipeline)
    })
}

/// What a pipeline reads of the database beside the stream.
pub struct Readers {
    /// TimescaleDB's catalog, where a transform needs it.
    pub hypertables: Box<dyn Fn() -> Arc<dyn HypertableReader>>,
    /// Rows that post-processors read again; `None` where events shall stay as they come.
    pub rows: Option<Box<dyn Fn() -> Arc<dyn RowReader>>>,
}

/// Reads it of the connector's database, each on a connection that is opened when it is first needed.
pub fn from_postgres(config: &Connector) -> Readers {
    let (for_catalog, for_rows) = (config.clone(), config.clone());
    Readers {
        hypertables: Box::new(move || Arc::new(TimescaleCatalog::new(&for_catalog))),
        rows: Some(Box::new(move || Arc::new(RowLookups::new(&for_rows)))),
    }
}

/// What the path has to know of signals and notifications. Signals can always be given to the admin endpoint.
fn signals(config: &Connector) -> SignalSettings {
    let section = &config.signals;
    SignalSettings {
        server: config.topics.prefix.to_string(),
        source: section.has(SignalChannel::Source),
        table: section.table.as_ref().map(|table| table.dotted()),
        read_only: section.read_only,
        watermarking: section.watermarking,
        topic: section
            .notification_topic
            .clone()
            .filter(|_| section.notifies(NotificationChannel::Sink)),
        log: section.notifies(NotificationChannel::Log),
        status: section.notifies(NotificationChannel::Jmx),
    }
}

#[cfg(test)]
mod tests {
    use walferry_config::{Nowhere, Submitted};

    use super::*;

    /// All that reading a file tells, with one text as the value of each option of a class, or of each of several properties.
    fn printed_findings(pairs: impl IntoIterator<Item = (String, String)>, worker: &Worker) -> String {
        let submitted = Submitted {
            name: Some("c".to_owned()),
            properties: pairs.into_iter().collect(),
        };
        let (_, findings) = Connector::read(&submitted, None, worker, &Nowhere, &|plugins| {
            Built::new(worker, plugins, &Nowhere).1
        });
        findings.iter().map(|finding| format!("{finding}\n")).collect()
    }

    #[test]
    fn no_option_of_a_transform_a_converter_or_a_client_shows_a_secret() {
        let texts = [
            "postgres://app:hunter2@db/shop",
            "http://app%3Ahunter2%40registry:8081",
            "app:hunter2@",
            "password=hunter2",
            "${vault:hunter2/path:hunter2}",
            "${secret:x}",
            "a.Module required password=hunter2;",
            "{\"token\": \"hunter2\"",
        ];
        let options = |prefix: &str, group: &walferry_config::Group, text: &str| -> Vec<_> {
            let names = group
                .declarations
                .iter()
                .map(|declaration| declaration.name.replace(['<', '>'], ""));
            names.map(|name| (format!("{prefix}{name}"), text.to_owned())).collect()
        };
        let client = [
            "acks",
            "linger.ms",
            "batch.size",
            "bootstrap.servers",
            "compression.type",
            "client.id",
            "partitioner.class",
            "sasl.mechanism",
            "security.protocol",
            "sasl.jaas.config",
            "sasl.login.callback.handler.class",
            "sasl.oauthbearer.token.endpoint.url",
            "sasl.oauthbearer.jwt.retriever.class",
            "sasl.kerberos.service.name",
            "ssl.truststore.location",
            "ssl.truststore.type",
            "ssl.truststore.certificates",
            "ssl.keystore.location",
            "ssl.keystore.type",
            "ssl.keystore.key",
            "ssl.endpoint.identification.algorithm",
            "ssl.protocol",
            "ssl.enabled.protocols",
            "ssl.cipher.suites",
            "max.request.size",
            "interceptor.classes",
            "no.such.property",
            "enable.idempotence",
            "request.timeout.ms",
            "transactional.id",
            "metric.reporters",
        ];
        for text in texts {
            let mut cases: Vec<(String, Vec<(String, String)>)> = Vec::new();
            for transform in walferry_transform::all_transforms() {
                for side in if transform.sides {
                    &["$Key", "$Value"][..]
                } else {
                    &[""]
                } {
                    let mut pairs = options("transforms.t.", &transform.options, text);
                    pairs.push(("transforms".to_owned(), "t".to_owned()));
                    pairs.push(("transforms.t.type".to_owned(), format!("{}{side}", transform.class)));
                    cases.push((transform.class.to_owned(), pairs));
                }
            }
            for predicate in walferry_transform::all_predicates() {
                let mut pairs = options("predicates.p.", &predicate.options, text);
                pairs.push(("predicates".to_owned(), "p".to_owned()));
                pairs.push(("predicates.p.type".to_owned(), predicate.class.to_owned()));
                cases.push((predicate.class.to_owned(), pairs));
            }
            for (class, group) in walferry_converter::classes() {
                for property in ["key.converter", "value.converter", "header.converter"] {
                    let mut pairs = group.map_or_else(Vec::new, |group| options(&format!("{property}."), group, text));
                    pairs.push((property.to_owned(), class.to_owned()));
                    cases.push((format!("{property}={class}"), pairs));
                }
            }
            for property in [
                "key.converter",
                "transforms.t.type",
                "predicates.p.type",
                "transforms.t.predicate",
                "transforms.t.negate",
            ] {
                let names = [("transforms", "t"), ("predicates", "p"), (property, text)];
                let pairs = names.map(|(name, text)| (name.to_owned(), text.to_owned())).to_vec();
                cases.push((property.to_owned(), pairs));
            }
            for prefix in [
                "producer.override.",
                "admin.override.",
                "consumer.override.",
                "producer.",
                "",
            ] {
                let pairs = client.map(|property| (format!("{prefix}{property}"), text.to_owned()));
                cases.push((prefix.to_owned(), pairs.to_vec()));
            }
            for (case, pairs) in cases {
                let printed = printed_findings(pairs, &Worker::default());
                assert!(!printed.contains("hunter2"), "{case}, {text}: {printed}");
            }
            for prefix in ["", "producer.", "admin."] {
                let pairs = client.map(|property| (format!("{prefix}{property}"), text.to_owned()));
                let (worker, findings) = worker_of(pairs.to_vec());
                let printed = format!("{findings:?}{}", printed_findings([], &worker.unwrap_or_default()));
                assert!(
                    !printed.contains("hunter2"),
                    "{prefix} of the worker, {text}: {printed}"
                );
            }
            for property in ["key.converter", "value.converter", "header.converter"] {
                let (worker, findings) = worker_of(vec![(property.to_owned(), text.to_owned())]);
                let printed = format!("{findings:?}{:?}", worker.map(|worker| unknown_converters(&worker)));
                assert!(
                    !printed.contains("hunter2"),
                    "{property} of the worker, {text}: {printed}"
                );
            }
        }
    }

    fn worker_of(properties: Vec<(String, String)>) -> (Option<Worker>, Findings) {
        Worker::read(&Submitted { name: None, properties }, &Nowhere)
    }
}
