//! Properties that are known and have no section: what is not built, and what belongs elsewhere.

use crate::properties;
use crate::property::{Group, Property, Support};
use crate::reader::{Options, Reader};
use crate::regex::JavaRegex;
use crate::sanitize::Sanitizer;
use crate::value::{Value, ValueError};

const NO_LINEAGE: Support = Support::Accepted {
    why: "it has a meaning only with openlineage.integration.enabled, which has no effect",
};
const NO_HISTORY: Support = Support::Accepted {
    why: "only connectors that read DDL need it; the Postgres connector does not",
};

/// A pattern for names of properties, which match without regard to case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NamePattern(JavaRegex);

impl Value for NamePattern {
    const TYPE: &'static str = "regular expression";
    fn parse(text: &str) -> Result<Self, ValueError> {
        JavaRegex::ignoring_case(text)
            .map(Self)
            .map_err(|error| ValueError::new(format!("a regular expression: {error}")))
    }
}

properties! {
    const SANITIZE: Property<Option<NamePattern>> = Property::new("custom.sanitize.pattern").example(".*token.*")
        .text("Regular expression for names of additional properties whose values are never shown. Passwords, secrets, tokens and similar \
               properties are always hidden.");
    const LINEAGE: Property<bool> = Property::new("openlineage.integration.enabled").default("false")
        .text("Sends lineage events to OpenLineage.")
        .support(Support::Elsewhere {
            is: "asks for an integration that Walferry does not have: the records are the same, but nothing is reported to OpenLineage",
            hint: "remove the property",
        });
    const LINEAGE_PROPERTY: Property<Option<String>> = Property::new("openlineage.integration.<property>").text("An option of the \
                                                                                                                 OpenLineage integration.").support(NO_LINEAGE);
    const METRIC_TAGS: Property<Option<String>> = Property::new("custom.metric.tags")
        .text("Additional keys of Debezium's MBeans.")
        .support(Support::Accepted { why: "Walferry has no MBeans; labels can be added in the scrape configuration of Prometheus" });
    const STATISTICS: Property<bool> = Property::new("statistics.metrics.enabled").default("true")
        .text("Whether Debezium measures quantiles of the lag.")
        .support(Support::Accepted { why: "Walferry's metrics always contain a histogram" });
    const ADVANCED_METRICS: Property<bool> = Property::new("internal.advanced.metrics.enable").default("false")
        .text("Whether Debezium counts activity by table.")
        .support(Support::Accepted { why: "Walferry always counts records by topic" });
    const VALIDATION_TIMEOUT: Property<Option<String>> = Property::new("connection.validation.timeout.ms").default("60000")
        .text("Time limit of Debezium's connection test when it validates a configuration.")
        .support(Support::Accepted { why: "database.connectTimeout limits every connection" });
    const EXECUTOR_TIMEOUT: Property<Option<String>> = Property::new("executor.shutdown.timeout.ms").default("4000")
        .text("How long Debezium waits for its threads at a stop.")
        .support(Support::Accepted { why: "a stop always waits up to 10 s for records in flight" });
    const ACTIVITY_MONITOR: Property<Option<String>> = Property::new("internal.offset.activity.monitor.interval.ms").default("600000")
        .text("Time after which Debezium warns that offsets are not being stored.")
        .support(Support::Accepted { why: "the metrics show the lag" });
    const MEMORY: Property<Option<String>> = Property::new("memory.management.<property>")
        .text("Java classes that hold the schemas of tables.")
        .support(Support::Accepted { why: "Walferry keeps the schemas in memory" });
    const HISTORY: Property<Option<String>> = Property::new("schema.history.<property>").text("Where Debezium's connectors for other \
                                                                                               databases store DDL.").support(NO_HISTORY);
    const DATABASE_HISTORY: Property<Option<String>> = Property::new("database.history.<property>").text("Older name of `schema.history.internal.*`.").support(NO_HISTORY);
    const HISTORY_CLASS: Property<Option<String>> = Property::new("database.history").text("Older name of `schema.history.internal`.").support(NO_HISTORY);
    const SERVER_ID: Property<Option<String>> = Property::new("database.server.id")
        .text("Server id of a MySQL replica.")
        .support(Support::Accepted { why: "only the MySQL connector has it" });
}

pub(super) const GROUP: Group = Group {
    title: "Not supported, or for other connectors",
    text: "Debezium has these properties. If a property would change what is sent, Walferry refuses to start. The others are harmless.",
    prefix: "",
    declarations: DECLARATIONS,
};

/// Before anything else is read; what is wrong with the pattern is told when it is read itself.
pub(super) fn sanitizer_of(options: &Options) -> Sanitizer {
    let text = options.get(SANITIZE.name()).unwrap_or_default().trim();
    let pattern = (!text.is_empty()).then(|| JavaRegex::ignoring_case(text).ok());
    Sanitizer::new(pattern.flatten())
}

pub(super) fn sanitizer(reader: &mut Reader<'_>) -> Sanitizer {
    Sanitizer::new(reader.get(&SANITIZE).map(|pattern| pattern.0))
}
