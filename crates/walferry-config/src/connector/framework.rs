//! What Kafka Connect itself gives every connector: its name, converters, transforms, predicates, client overrides.

use std::collections::BTreeSet;
use std::time::Duration;

use walferry_diagnosis::Kind;

use super::relay;
use crate::property::{Group, Property, Support};
use crate::reader::{Options, Reader};
use crate::sanitize::quoted;
use crate::value::{Value, ValueError};
use crate::worker::{OverridePolicy, Worker};
use crate::{choices, properties};

/// The classes that other crates build, each with its options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plugins {
    /// `key.converter`, or the worker's.
    pub key_converter: ConverterPlugin,
    /// `value.converter`, or the worker's.
    pub value_converter: ConverterPlugin,
    /// `header.converter`, or the worker's.
    pub header_converter: ConverterPlugin,
    /// `transforms`, in their order.
    pub transforms: Vec<TransformPlugin>,
    /// `predicates`, in their order.
    pub predicates: Vec<PredicatePlugin>,
    /// `producer.override.*`
    pub producer_overrides: Options,
    /// `admin.override.*`
    pub admin_overrides: Options,
}

/// A class and its options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConverterPlugin {
    /// The class as written.
    pub class: String,
    /// Its options, without their prefix.
    pub options: Options,
}

/// A transform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransformPlugin {
    /// Its name in `transforms`.
    pub name: String,
    /// `transforms.<name>.type`
    pub class: String,
    /// Its options, without `type`, `predicate` and `negate`.
    pub options: Options,
    /// `transforms.<name>.predicate`: a name in `predicates`.
    pub predicate: Option<String>,
    /// `transforms.<name>.negate`
    pub negate: bool,
}

/// A predicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredicatePlugin {
    /// Its name in `predicates`.
    pub name: String,
    /// `predicates.<name>.type`
    pub class: String,
    /// Its options, without `type`.
    pub options: Options,
}

/// Where the Kafka transactions of exactly-once delivery end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionBoundary {
    /// `poll`: as soon as nothing more waits to be sent.
    Poll,
    /// `interval`: after this time.
    Interval(Duration),
}

choices! {
    /// What `exactly.once.support` asks for.
    pub(super) enum ExactlyOnce {
        /// Exactly once where the worker offers it.
        #[default]
        Requested = "requested",
        /// Exactly once or not at all.
        Required = "required",
    }
}

choices! {
    /// What `transaction.boundary` says.
    pub(super) enum BoundaryChoice {
        /// After each batch.
        #[default]
        Poll = "poll",
        /// After some time.
        Interval = "interval",
        /// Where the connector says.
        Connector = "connector",
    }
}

/// `connector.class`: that of the Postgres connector, under its full or its simple name, or that of relay mode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ConnectorClass;

impl Value for ConnectorClass {
    const TYPE: &'static str = "class";
    fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            "io.debezium.connector.postgresql.PostgresConnector" | "PostgresConnector" | "Postgres" | relay::CLASS => Ok(Self),
            _ => Err(ValueError::new(
                "io.debezium.connector.postgresql.PostgresConnector, or walferry.OutboxRelay for relay mode: Walferry has no other connectors",
            )
            .hint("leave connectors of other classes on Kafka Connect")),
        }
    }
}

const VERSION: Support = Support::Accepted {
    why: "each class has only one version, which is part of Walferry",
};

properties! {
    const NAME: Property<Option<String>> = Property::new("name").example("orders")
        .text("Name of the connector. It is part of the identity under which offsets are stored. It can be given in the file, next to \
               `config` if there is such an object, or on the command line.");
    const CLASS: Property<ConnectorClass> = Property::new("connector.class")
        .default("io.debezium.connector.postgresql.PostgresConnector")
        .text("Class of the connector. It may be left out. `walferry.OutboxRelay` reads an outbox by polling, without a replication slot.");
    const CLASS_VERSION: Property<Option<String>> = Property::new("connector.plugin.version")
        .text("Version of the class.").support(VERSION);
    const TASKS_MAX: Property<String> = Property::new("tasks.max").default("1")
        .text("Maximum number of tasks of the connector.")
        .support(Support::Accepted { why: "a Postgres connector always has one task, as in Debezium" });
    const TASKS_ENFORCE: Property<bool> = Property::new("tasks.max.enforce").default("true")
        .text("Whether it is an error to configure more tasks.")
        .support(Support::Accepted { why: "a Postgres connector always has one task, as in Debezium" });
    const KEY_CONVERTER: Property<Option<String>> = Property::new("key.converter").example("org.apache.kafka.connect.json.JsonConverter")
        .text("Class that serializes keys. If it is set, only the connector's own options `key.converter.*` apply. If it is not set, the \
               worker's converter is used with the worker's options, or JsonConverter if there is no worker file.");
    const KEY_OPTION: Property<Option<String>> = Property::new("key.converter.<option>").example("key.converter.schemas.enable=false")
        .text("An option of that class. It has an effect only if the connector also sets the class.");
    const VALUE_CONVERTER: Property<Option<String>> = Property::new("value.converter").example("org.apache.kafka.connect.json.JsonConverter")
        .text("Class that serializes values. The rules are those of `key.converter`.");
    const VALUE_OPTION: Property<Option<String>> = Property::new("value.converter.<option>").example("value.converter.schemas.enable=false")
        .text("An option of that class. It has an effect only if the connector also sets the class.");
    const HEADER_CONVERTER: Property<Option<String>> = Property::new("header.converter").example("org.apache.kafka.connect.storage.SimpleHeaderConverter")
        .text("Class that serializes headers. The rules are those of `key.converter`, but without a worker file it is \
               SimpleHeaderConverter.");
    const HEADER_OPTION: Property<Option<String>> = Property::new("header.converter.<option>").example("header.converter.schemas.enable=false")
        .text("An option of that class. It has an effect only if the connector also sets the class.");
    const KEY_VERSION: Property<Option<String>> = Property::new("key.converter.plugin.version")
        .text("Version of the class.").support(VERSION);
    const VALUE_VERSION: Property<Option<String>> = Property::new("value.converter.plugin.version")
        .text("Version of the class.").support(VERSION);
    const HEADER_VERSION: Property<Option<String>> = Property::new("header.converter.plugin.version")
        .text("Version of the class.").support(VERSION);
    const TRANSFORMS: Property<Vec<String>> = Property::new("transforms").example("unwrap,route")
        .text("Names of the transforms, in the order in which they are applied.");
    const TRANSFORM_OPTION: Property<Option<String>> = Property::new("transforms.<name>.<option>").example("transforms.route.type=org.apache.kafka.connect.transforms.RegexRouter")
        .text("`type` is the class of the transform. `predicate` is the name of a predicate: the transform is applied only to records \
               that match it, or with `negate` only to records that do not. All others are options of the class.");
    const PREDICATES: Property<Vec<String>> = Property::new("predicates").example("isOrder")
        .text("Names of the predicates.");
    const PREDICATE_OPTION: Property<Option<String>> = Property::new("predicates.<name>.<option>").example("predicates.isOrder.type=org.apache.kafka.connect.transforms.predicates.TopicNameMatches")
        .text("`type` is the class of the predicate. All others are options of the class.");
    const PRODUCER: Property<Option<String>> = Property::new("producer.override.<property>").example("producer.override.compression.type=zstd")
        .text("A property of the Kafka producer. It overrides the worker's `producer.*`.");
    const ADMIN: Property<Option<String>> = Property::new("admin.override.<property>").example("admin.override.request.timeout.ms=60000")
        .text("A property of the Kafka client that creates topics. It overrides the worker's `admin.*`.");
    const CONSUMER: Property<Option<String>> = Property::new("consumer.override.<property>")
        .text("A property of the Kafka consumer.")
        .support(Support::Accepted { why: "the connector does not consume from Kafka" });
    const RELOAD: Property<String> = Property::new("config.action.reload").default("restart")
        .text("What Connect does when a config provider reports a new value.")
        .support(Support::Accepted { why: "the providers env, file and dir never report new values, in Connect either" });
    const EXACTLY_ONCE: Property<ExactlyOnce> = Property::new("exactly.once.support").default("requested")
        .text("`required`: changes arrive exactly once, in Kafka transactions. `requested`: they do if the worker sets \
               `exactly.once.source.support=enabled`, and otherwise at least once.");
    const BOUNDARY: Property<BoundaryChoice> = Property::new("transaction.boundary").default("poll")
        .text("With exactly-once delivery, when a Kafka transaction is committed: `poll` as soon as nothing more waits to be sent, and \
               after about 100 ms at the latest; `interval` after `transaction.boundary.interval.ms`. `connector` is refused, as Debezium's \
               connector does not define transactions either.");
    const BOUNDARY_INTERVAL: Property<Option<Duration>> = Property::new("transaction.boundary.interval.ms").example("500")
        .text("Time after which a Kafka transaction is committed with `transaction.boundary=interval`. Without it, the worker's \
               `offset.flush.interval.ms`.");
    const OFFSETS_TOPIC: Property<Option<String>> = Property::new("offsets.storage.topic").example("orders-offsets")
        .text("Topic for the offset of this connector with exactly-once delivery, if the worker keeps its state in files. Without it, the \
               worker's `offset.storage.topic`, or `walferry-offsets`. Without exactly-once delivery it has no effect: the offset is in the \
               data directory.");
}

pub(super) const GROUP: Group = Group {
    title: "Connector",
    text: "Properties that Kafka Connect has for every connector.",
    prefix: "",
    declarations: DECLARATIONS,
};

pub(super) fn read(reader: &mut Reader<'_>, worker: &Worker) -> Plugins {
    reader.get(&CLASS);
    let plugins = Plugins {
        key_converter: converter(reader, &KEY_CONVERTER, &worker.key_converter),
        value_converter: converter(reader, &VALUE_CONVERTER, &worker.value_converter),
        header_converter: converter(reader, &HEADER_CONVERTER, &worker.header_converter),
        transforms: transforms(reader),
        predicates: predicates(reader),
        producer_overrides: reader.options().below("producer.override."),
        admin_overrides: reader.options().below("admin.override."),
    };
    check_overrides(reader, &plugins.producer_overrides, &worker.override_policy);
    check_overrides(reader, &plugins.admin_overrides, &worker.override_policy);
    plugins
}

/// Whether changes are to arrive exactly once, and where transactions end then.
pub(super) fn exactly_once(reader: &mut Reader<'_>, worker: &Worker) -> Option<TransactionBoundary> {
    let is_required = reader.get(&EXACTLY_ONCE) == ExactlyOnce::Required;
    if relay::is_relay(reader.options()) {
        // Kafka's transactions and those of the database cannot be committed together.
        if is_required {
            reader
                .problem(
                    EXACTLY_ONCE.name(),
                    "is \"required\", but relay mode delivers at least once",
                )
                .hint("remove it, or read the outbox with the Postgres connector");
        }
        return None;
    }
    let is_on = is_required || worker.exactly_once;
    let interval = reader.get(&BOUNDARY_INTERVAL);
    let boundary = match reader.get(&BOUNDARY) {
        BoundaryChoice::Poll => TransactionBoundary::Poll,
        BoundaryChoice::Interval => TransactionBoundary::Interval(interval.unwrap_or(worker.offset_flush_interval)),
        // Connect refuses it whether or not delivery is exactly once.
        BoundaryChoice::Connector => {
            reader
                .problem(
                    BOUNDARY.name(),
                    "is \"connector\", but the connector does not support connector-defined transaction boundaries",
                )
                .hint("set it to poll or interval, or remove it");
            TransactionBoundary::Poll
        }
    };
    is_on.then_some(boundary)
}

/// `offsets.storage.topic`
pub(super) fn offsets_topic(reader: &mut Reader<'_>) -> Option<String> {
    let topic = reader.get(&OFFSETS_TOPIC)?;
    Some(topic.trim().to_owned()).filter(|topic| !topic.is_empty())
}

/// A class of the connector's own has only the connector's options; the worker's has only the worker's.
fn converter(
    reader: &mut Reader<'_>,
    property: &Property<Option<String>>,
    worker: &ConverterPlugin,
) -> ConverterPlugin {
    let options = reader.options().below(&format!("{}.", property.name()));
    if let Some(class) = reader.get(property) {
        return ConverterPlugin { class, options };
    }
    for (option, _) in options.iter().filter(|(option, _)| *option != "plugin.version") {
        let finding = reader
            .warning(
                &format!("{}.{option}", property.name()),
                format!(
                    "has no effect without {} in the connector; Kafka Connect ignores it, too",
                    property.name()
                ),
            )
            .kind(Kind::PropertyWithoutEffect);
        finding.hint(format!(
            "set {} as well (the worker's is {}), or remove it",
            property.name(),
            worker.class
        ));
    }
    worker.clone()
}

fn transforms(reader: &mut Reader<'_>) -> Vec<TransformPlugin> {
    let names = names(reader, &TRANSFORMS);
    let transforms = names.into_iter().map(|name| {
        let mut options = reader.options().below(&format!("transforms.{name}."));
        let class = class(reader, &mut options);
        let predicate = options.remove("predicate").map(|predicate| predicate.trim().to_owned());
        let negate = negate(reader, &mut options, predicate.is_some());
        TransformPlugin {
            name,
            class,
            options,
            predicate,
            negate,
        }
    });
    transforms.collect()
}

fn predicates(reader: &mut Reader<'_>) -> Vec<PredicatePlugin> {
    let names = names(reader, &PREDICATES);
    let predicates = names.into_iter().map(|name| {
        let mut options = reader.options().below(&format!("predicates.{name}."));
        let class = class(reader, &mut options);
        PredicatePlugin { name, class, options }
    });
    predicates.collect()
}

/// The names of a list. Reports names that appear twice, and options of names that are not in the list.
pub(super) fn names(reader: &mut Reader<'_>, list: &Property<Vec<String>>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in reader.get(list) {
        if name.is_empty() {
            reader
                .problem(list.name(), "contains an empty name")
                .hint("remove the extra comma");
        } else if names.contains(&name) {
            reader
                .problem(list.name(), format!("holds {name:?} more than once"))
                .hint("name it once; for two of one class give each a name of its own");
        } else {
            names.push(name);
        }
    }
    let options = reader.options().below(&format!("{}.", list.name()));
    let listed = |option: &str| {
        names.iter().any(|name| {
            option
                .strip_prefix(name.as_str())
                .is_some_and(|tail| tail.starts_with('.'))
        })
    };
    let unlisted: BTreeSet<&str> = options
        .iter()
        .filter(|(option, _)| !listed(option))
        .filter_map(|(option, _)| option.split('.').next())
        .collect();
    for name in unlisted {
        let finding = reader
            .warning(
                &format!("{}.{name}.*", list.name()),
                format!("has no effect: {} does not list {name}", list.name()),
            )
            .kind(Kind::PropertyWithoutEffect);
        finding.hint(format!("add {name} to {}", list.name()));
    }
    names
}

fn class(reader: &mut Reader<'_>, options: &mut Options) -> String {
    let class = options
        .remove("type")
        .map(|class| class.trim().to_owned())
        .filter(|class| !class.is_empty());
    class.unwrap_or_else(|| {
        reader
            .problem(&options.full_name("type"), "is required")
            .kind(Kind::PropertyMissing)
            .hint("set it to the name of a class, such as io.debezium.transforms.outbox.EventRouter for a transform");
        String::new()
    })
}

fn negate(reader: &mut Reader<'_>, options: &mut Options, has_predicate: bool) -> bool {
    let Some(text) = options.remove("negate") else {
        return false;
    };
    let name = options.full_name("negate");
    let value = quoted(&text);
    if !has_predicate {
        reader
            .problem(&name, "has no predicate to turn round")
            .kind(Kind::PropertiesClash)
            .hint("set predicate as well, or remove negate");
    }
    bool::parse(text.trim()).unwrap_or_else(|error| {
        reader
            .problem(&name, format!("is {value}, which {error}"))
            .hint("write true or false");
        false
    })
}

/// What the worker's `connector.client.config.override.policy` lets a connector override.
fn check_overrides(reader: &mut Reader<'_>, overrides: &Options, policy: &OverridePolicy) {
    for (property, _) in overrides.iter().filter(|(property, _)| !policy.allows(property)) {
        let finding = reader
            .problem(&overrides.full_name(property), "is not allowed by the worker")
            .kind(Kind::OverrideDenied);
        finding.hint(format!("connector.client.config.override.policy is {}", policy.name()));
    }
}
