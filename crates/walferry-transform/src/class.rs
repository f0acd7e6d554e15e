//! Class names of transforms and predicates.

/// What a class name means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Class<T> {
    /// One that is there.
    Known(T),
    /// One that is known and not there yet.
    Later(&'static str),
    /// None, with the nearest one that is there.
    Unknown(Option<&'static str>),
}

/// A transform that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransformClass {
    EventRouter,
    RegexRouter,
    Filter,
}

/// A predicate that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PredicateClass {
    TopicNameMatches,
    HasHeaderKey,
    RecordIsTombstone,
}

const TRANSFORMS: &[(&str, TransformClass)] = &[
    ("io.debezium.transforms.outbox.EventRouter", TransformClass::EventRouter),
    (
        "org.apache.kafka.connect.transforms.RegexRouter",
        TransformClass::RegexRouter,
    ),
    ("org.apache.kafka.connect.transforms.Filter", TransformClass::Filter),
];

const PREDICATES: &[(&str, PredicateClass)] = &[
    (
        "org.apache.kafka.connect.transforms.predicates.TopicNameMatches",
        PredicateClass::TopicNameMatches,
    ),
    (
        "org.apache.kafka.connect.transforms.predicates.HasHeaderKey",
        PredicateClass::HasHeaderKey,
    ),
    (
        "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        PredicateClass::RecordIsTombstone,
    ),
];

/// Transforms of Kafka and Debezium that are not there yet, so that the refusal need not guess.
const LATER: &[&str] = &[
    "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
    "io.debezium.connector.postgresql.transforms.timescaledb.TimescaleDb",
    "io.debezium.transforms.ByLogicalTableRouter",
    "io.debezium.transforms.CollectionNameTransformation",
    "io.debezium.transforms.ContentBasedRouter",
    "io.debezium.transforms.ExtractChangedRecordState",
    "io.debezium.transforms.ExtractNewRecordState",
    "io.debezium.transforms.ExtractSchemaToNewRecord",
    "io.debezium.transforms.Filter",
    "io.debezium.transforms.GeometryFormatTransformer",
    "io.debezium.transforms.HeaderToValue",
    "io.debezium.transforms.SchemaChangeEventFilter",
    "io.debezium.transforms.SwapGeometryCoordinates",
    "io.debezium.transforms.TimezoneConverter",
    "io.debezium.transforms.ToLogicalTopicRouter",
    "io.debezium.transforms.VectorToJsonConverter",
    "io.debezium.transforms.openlineage.OpenLineage",
    "io.debezium.transforms.partitions.PartitionRouting",
    "io.debezium.transforms.tracing.ActivateTracingSpan",
    "org.apache.kafka.connect.transforms.Cast$Key",
    "org.apache.kafka.connect.transforms.Cast$Value",
    "org.apache.kafka.connect.transforms.DropHeaders",
    "org.apache.kafka.connect.transforms.ExtractField$Key",
    "org.apache.kafka.connect.transforms.ExtractField$Value",
    "org.apache.kafka.connect.transforms.Flatten$Key",
    "org.apache.kafka.connect.transforms.Flatten$Value",
    "org.apache.kafka.connect.transforms.HeaderFrom$Key",
    "org.apache.kafka.connect.transforms.HeaderFrom$Value",
    "org.apache.kafka.connect.transforms.HoistField$Key",
    "org.apache.kafka.connect.transforms.HoistField$Value",
    "org.apache.kafka.connect.transforms.InsertField$Key",
    "org.apache.kafka.connect.transforms.InsertField$Value",
    "org.apache.kafka.connect.transforms.InsertHeader",
    "org.apache.kafka.connect.transforms.MaskField$Key",
    "org.apache.kafka.connect.transforms.MaskField$Value",
    "org.apache.kafka.connect.transforms.ReplaceField$Key",
    "org.apache.kafka.connect.transforms.ReplaceField$Value",
    "org.apache.kafka.connect.transforms.SetSchemaMetadata$Key",
    "org.apache.kafka.connect.transforms.SetSchemaMetadata$Value",
    "org.apache.kafka.connect.transforms.TimestampConverter$Key",
    "org.apache.kafka.connect.transforms.TimestampConverter$Value",
    "org.apache.kafka.connect.transforms.TimestampRouter",
    "org.apache.kafka.connect.transforms.ValueToKey",
];

/// The transform that a class name means.
pub(crate) fn transform(class: &str) -> Class<TransformClass> {
    find(class, TRANSFORMS, LATER)
}

/// The predicate that a class name means.
pub(crate) fn predicate(class: &str) -> Class<PredicateClass> {
    find(class, PREDICATES, &[])
}

/// Connect takes the full name of a class and the name without its package.
fn find<T: Copy>(class: &str, known: &[(&'static str, T)], later: &[&'static str]) -> Class<T> {
    let means = |full: &str| full == class || simple(full) == class;
    if let Some((_, found)) = known.iter().find(|(full, _)| means(full)) {
        return Class::Known(*found);
    }
    if let Some(full) = later.iter().find(|full| means(full)) {
        return Class::Later(full);
    }
    let likeness = |full: &str| strsim::jaro_winkler(&simple(class).to_lowercase(), &simple(full).to_lowercase());
    let nearest = known.iter().map(|(full, _)| (likeness(full), *full));
    let nearest = nearest.filter(|(likeness, _)| *likeness > 0.8);
    Class::Unknown(nearest.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, full)| full))
}

fn simple(class: &str) -> &str {
    class.rsplit('.').next().unwrap_or(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_and_simple_names_are_understood() {
        let router = "io.debezium.transforms.outbox.EventRouter";
        let cases = [
            (router, Class::Known(TransformClass::EventRouter)),
            ("EventRouter", Class::Known(TransformClass::EventRouter)),
            (
                "org.apache.kafka.connect.transforms.Filter",
                Class::Known(TransformClass::Filter),
            ),
            (
                "io.debezium.transforms.Filter",
                Class::Later("io.debezium.transforms.Filter"),
            ),
            (
                "ReplaceField$Value",
                Class::Later("org.apache.kafka.connect.transforms.ReplaceField$Value"),
            ),
            (
                "io.debezium.transforms.outbox.EventRooter",
                Class::Unknown(Some(router)),
            ),
            ("io.debezium.outbox.EventRouter", Class::Unknown(Some(router))),
            ("com.example.Upper", Class::Unknown(None)),
        ];
        for (name, expected) in cases {
            assert_eq!(transform(name), expected, "{name}");
        }
        assert_eq!(
            predicate("TopicNameMatches"),
            Class::Known(PredicateClass::TopicNameMatches)
        );
    }
}
