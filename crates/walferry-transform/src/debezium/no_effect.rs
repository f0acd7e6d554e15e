//! Debezium's `OpenLineage` and `ActivateTracingSpan`, which report records to other systems and do not change them.

use walferry_config::{Group, Property, Reader, Support, properties};
use walferry_record::Record;

use crate::contract::{HeaderList, PluginRow, Side};
use crate::{Error, Outcome, Transform};

const NO_SPANS: Support = Support::Accepted {
    why: "the transform begins no spans; `walferry.otlp.endpoint` sends those of the delivery",
};

properties! {
    const SPAN_FIELD: Property<String> = Property::new("tracing.span.context.field").default("tracingspancontext")
        .text("Column with the span context of the application that wrote the row.")
        .support(NO_SPANS);
    const OPERATION: Property<String> = Property::new("tracing.operation.name").default("debezium-read")
        .text("Name of the span of a record.")
        .support(NO_SPANS);
    const ONLY_WITH_FIELD: Property<bool> = Property::new("tracing.with.context.field.only").default("false")
        .text("Whether only rows with this column are traced.")
        .support(NO_SPANS);
}

pub(crate) const OPEN_LINEAGE: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.openlineage.OpenLineage",
    sides: false,
    options: Group {
        title: "Transform OpenLineage",
        text: "`io.debezium.transforms.openlineage.OpenLineage`: in Debezium, reports to an OpenLineage server which topics records are \
               sent to. Walferry does not report this: records stay unchanged, as in Debezium, and Walferry logs a warning at the start.",
        prefix: "transforms.<name>.",
        declarations: &[],
    },
    build: |reader, _| {
        reader
            .warning("type", "is OpenLineage, which has no effect: Walferry sends no lineage")
            .hint("records stay unchanged; remove the transform to avoid this warning");
        Some(Box::new(Pass))
    },
};

pub(crate) const TRACING: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.tracing.ActivateTracingSpan",
    sides: false,
    options: Group {
        title: "Transform ActivateTracingSpan",
        text: "`io.debezium.transforms.tracing.ActivateTracingSpan`: in Debezium, creates OpenTelemetry spans of change events, and adds \
               the span context as headers if an OpenTelemetry agent is running. In Walferry, it begins no spans: records stay unchanged, \
               as in Debezium without an agent, and Walferry logs a warning at the start. Walferry can send a span of each record's \
               delivery: see [OpenTelemetry](../how-to/opentelemetry.md).",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build: build_tracing,
};

/// Lets all records pass.
#[derive(Clone)]
struct Pass;

fn build_tracing(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    reader.get(&SPAN_FIELD);
    reader.get(&OPERATION);
    reader.get(&ONLY_WITH_FIELD);
    let message = "is ActivateTracingSpan, which has no effect: it begins no spans here and adds no tracing headers";
    reader
        .warning("type", message)
        .hint("records stay unchanged; remove the transform to avoid this warning, and set `walferry.otlp.endpoint` in the worker file to send spans");
    Some(Box::new(Pass))
}

impl Transform for Pass {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn apply<'a>(&'a mut self, record: Record<'a>) -> Result<Outcome<'a>, Error> {
        Ok(Outcome::Record(record))
    }
}
