//! Properties that are known and have no section: what is not built, and what belongs elsewhere.

use crate::properties;
use crate::property::{Group, Property, Support};
use crate::reader::{Options, Reader};
use crate::regex::JavaRegex;
use crate::sanitize::Sanitizer;
use crate::value::{Value, ValueError};

const NO_LINEAGE: Support = Support::Accepted {
    why: "it belongs to openlineage.integration.enabled, which must be false",
};
const NO_HISTORY: Support = Support::Accepted {
    why: "it belongs to connectors that read DDL; Postgres needs none",
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
    const SANITIZE: Property<Option<NamePattern>> = Property::new("custom.sanitize.pattern")
        .text("Names of further properties whose values are never shown. Passwords, secrets, tokens and the like are hidden in any case.");
    const LINEAGE: Property<bool> = Property::new("openlineage.integration.enabled").default("false")
        .text("Sends lineage events to OpenLineage.")
        .support(Support::Refused { hint: "Walferry has no OpenLineage; leave it out" });
    const LINEAGE_PROPERTY: Property<Option<String>> = Property::new("openlineage.integration.<property>").text("What is sent there, and where.").support(NO_LINEAGE);
    const METRIC_TAGS: Property<Option<String>> = Property::new("custom.metric.tags")
        .text("Further keys of Debezium's MBeans.")
        .support(Support::Accepted { why: "there are no MBeans; Prometheus adds labels where it scrapes" });
    const STATISTICS: Property<bool> = Property::new("statistics.metrics.enabled").default("true")
        .text("Whether quantiles of the lag are measured.")
        .support(Support::Accepted { why: "the metrics hold histograms in any case" });
    const ADVANCED_METRICS: Property<bool> = Property::new("internal.advanced.metrics.enable").default("false")
        .text("Whether activity is counted by table.")
        .support(Support::Accepted { why: "records are counted by topic in any case" });
    const VALIDATION_TIMEOUT: Property<Option<String>> = Property::new("connection.validation.timeout.ms").default("60000")
        .text("How long Debezium tests the connection when a configuration is checked.")
        .support(Support::Accepted { why: "database.connectTimeout limits every connection" });
    const EXECUTOR_TIMEOUT: Property<Option<String>> = Property::new("executor.shutdown.timeout.ms").default("4000")
        .text("How long Debezium waits for its threads at a stop.")
        .support(Support::Accepted { why: "a stop drains what is on its way for up to 10 s" });
    const ACTIVITY_MONITOR: Property<Option<String>> = Property::new("internal.offset.activity.monitor.interval.ms").default("600000")
        .text("After what time Debezium warns of offsets that are not stored.")
        .support(Support::Accepted { why: "the lag is among the metrics" });
    const MEMORY: Property<Option<String>> = Property::new("memory.management.<property>")
        .text("Java classes that hold the structure of tables.")
        .support(Support::Accepted { why: "Walferry holds it in memory" });
    const HISTORY: Property<Option<String>> = Property::new("schema.history.<property>").text("Where DDL is kept, in connectors for other systems.").support(NO_HISTORY);
    const DATABASE_HISTORY: Property<Option<String>> = Property::new("database.history.<property>").text("Older name of `schema.history.internal.*`.").support(NO_HISTORY);
    const HISTORY_CLASS: Property<Option<String>> = Property::new("database.history").text("Older name of `schema.history.internal`.").support(NO_HISTORY);
    const SERVER_ID: Property<Option<String>> = Property::new("database.server.id")
        .text("Number of a replica of MySQL.")
        .support(Support::Accepted { why: "it belongs to MySQL" });
}

pub(super) const GROUP: Group = Group {
    title: "Not built, or at home elsewhere",
    text: "Debezium knows these. Those that would change what is sent refuse the start; the rest does no harm.",
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
