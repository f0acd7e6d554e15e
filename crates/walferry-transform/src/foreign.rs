//! Third-party transforms that Walferry does not have, and what to use instead.

/// Full names without the side, and what to write in their place.
const INSTEAD: &[(&str, &str)] = &[
    (
        "com.github.jcustenborder.kafka.connect.transform.common.HeaderToField",
        "use io.debezium.transforms.HeaderToValue",
    ),
    (
        "com.github.jcustenborder.kafka.connect.transform.common.PatternRename",
        "use org.apache.kafka.connect.transforms.ReplaceField$Key or $Value, with renames=old:new for each field",
    ),
    (
        "com.github.jcustenborder.kafka.connect.transform.common.SetNull",
        "use io.confluent.connect.transforms.Drop$Key or $Value",
    ),
    (
        "com.github.jcustenborder.kafka.connect.transform.common.TopicNameToField",
        "use org.apache.kafka.connect.transforms.InsertField$Key or $Value, with topic.field",
    ),
    (
        "io.aiven.kafka.connect.transforms.ExtractTopic",
        "use io.confluent.connect.transforms.ExtractTopic$Key or $Value, with field instead of field.name; it supports only strings",
    ),
    (
        "io.aiven.kafka.connect.transforms.FilterByFieldValue",
        "use io.confluent.connect.transforms.Filter$Key or $Value, with filter.condition=$[?(@.field == 'value')] and filter.type=include",
    ),
    (
        "io.aiven.kafka.connect.transforms.MakeTombstone",
        "use io.confluent.connect.transforms.Drop$Value",
    ),
    (
        "io.aiven.kafka.connect.transforms.TombstoneHandler",
        "use io.confluent.connect.transforms.TombstoneHandler, with ignore instead of drop_silent and warn instead of drop_warn",
    ),
    (
        "io.confluent.connect.cloud.transforms.TopicRegexRouter",
        "use org.apache.kafka.connect.transforms.RegexRouter, which has the same options",
    ),
    (
        "io.confluent.connect.transforms.MessageTimestampRouter",
        "remove it: it only processes maps without a schema, which change events are not",
    ),
    (
        "io.confluent.connect.transforms.ReplaceField",
        "use org.apache.kafka.connect.transforms.ReplaceField$Key or $Value",
    ),
];

/// What to write in the place of a transform of somebody else's.
pub(crate) fn instead_of(class: &str) -> Option<&'static str> {
    let name = class.split_once('$').map_or(class, |(name, _)| name);
    if let Some((_, instead)) = INSTEAD.iter().find(|(foreign, _)| *foreign == name) {
        return Some(instead);
    }
    // A class of one's own, whose name tells what it is for.
    let simple = name.rsplit('.').next().unwrap_or(name).to_ascii_lowercase();
    let is_known = name.starts_with("org.apache.kafka.") || name.starts_with("io.debezium.") || !name.contains('.');
    let is_about_time = ["timestamp", "epoch", "timezone"]
        .iter()
        .any(|word| simple.contains(word));
    (is_about_time && !is_known).then_some(
        "to send times in another format, use org.apache.kafka.connect.transforms.TimestampConverter$Value for each field, or set \
         time.precision.mode",
    )
}
