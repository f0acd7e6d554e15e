//! Confluent's transforms as its documentation describes them. There is no real class to compare with.

use std::collections::BTreeMap;

use walferry_config::Options;
use walferry_config::connector::TransformPlugin;
use walferry_record::{Field, Header, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};

use crate::{Chain, DropReason, Outcome};

fn plugin(class: &str, options: &[(&str, &str)]) -> TransformPlugin {
    let entries: BTreeMap<_, _> = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    TransformPlugin {
        name: "t".into(),
        class: format!("io.confluent.connect.transforms.{class}"),
        options: Options::new("transforms.t.", entries),
        predicate: None,
        negate: false,
    }
}

fn schema() -> SchemaRef {
    let inner = Schema::structure(vec![
        Field::new("topic_name", Schema::string().optional().build()),
        Field::new("n", Schema::int32().build()),
    ]);
    Schema::structure(vec![Field::new("after", inner.optional().build())]).build()
}

fn event(topic: Value<'static>) -> SchemaAndValue<'static> {
    let schema = schema();
    let after = schema.fields()[0].schema.clone();
    let after = Value::Struct(Struct::new(after, vec![topic, Value::Int32(5)]));
    SchemaAndValue::new(schema.clone(), Value::Struct(Struct::new(schema, vec![after])))
}

fn text(text: &'static str) -> SchemaAndValue<'static> {
    SchemaAndValue::new(Schema::string().build(), Value::str(text))
}

fn record(key: SchemaAndValue<'static>, value: SchemaAndValue<'static>) -> Record<'static> {
    let header = |name: &'static str, value| Header {
        name: name.into(),
        value,
    };
    Record {
        topic: "t".into(),
        partition: None,
        timestamp_ms: None,
        key,
        value,
        headers: vec![
            header("to", text("first")),
            header("to", text("last")),
            header("none", SchemaAndValue::NULL),
        ],
    }
}

/// What becomes of a record: its topic, why it was dropped, or why it failed.
fn result(class: &str, options: &[(&str, &str)], record: Record<'static>) -> String {
    let (chain, findings) = Chain::new(&[plugin(class, options)], &[]);
    let Some(mut chain) = chain else {
        return findings
            .problems()
            .map(|finding| format!("refused: {finding}"))
            .collect();
    };
    match chain.apply(record) {
        Ok(Outcome::Record(record)) => record.topic.into_owned(),
        Ok(Outcome::Dropped(reason)) => format!("dropped: {reason}"),
        Ok(Outcome::Waits(_)) => "waits".to_owned(),
        Ok(Outcome::SetAside(record)) => format!("set aside: {}", record.why),
        Err(error) => format!("failed: {}", error.error),
    }
}

#[test]
fn a_filter_lets_records_pass_or_drops_them() {
    let (here, empty, tombstone) = (event(Value::str("x")), event(Value::Null), SchemaAndValue::NULL);
    let missing = "failed: a field of filter.condition is missing or null";
    let five = "$.after[?(@.n == 5)]";
    let six = "$.after[?(@.n == 6)]";
    let cases = [
        ("$.after.topic_name", "include", "fail", &here, "t"),
        ("$.after.topic_name", "exclude", "fail", &here, "dropped: filtered"),
        ("$.after.topic_name", "include", "fail", &empty, missing),
        ("$.after.topic_name", "include", "exclude", &empty, "dropped: filtered"),
        ("$.after.topic_name", "exclude", "include", &empty, "t"),
        (
            "$.after.topic_name",
            "include",
            "exclude",
            &tombstone,
            "dropped: filtered",
        ),
        (five, "include", "fail", &here, "t"),
        (five, "exclude", "fail", &here, "dropped: filtered"),
        (six, "include", "fail", &here, "dropped: filtered"),
        (six, "exclude", "fail", &here, "t"),
        (six, "exclude", "fail", &tombstone, missing),
        // A null within a condition is not there, so that nothing is true of it.
        (
            "$.after[?(@.topic_name == 'x')]",
            "include",
            "fail",
            &empty,
            "dropped: filtered",
        ),
    ];
    for (condition, filter_type, missing, value, expected) in cases {
        let options = [
            ("filter.condition", condition),
            ("filter.type", filter_type),
            ("missing.or.null.behavior", missing),
        ];
        let found = result("Filter$Value", &options, record(SchemaAndValue::NULL, value.clone()));
        assert_eq!(found, expected, "{condition} {filter_type} {missing}");
    }
    let options = [("filter.condition", "$[?(@ == 'x')]"), ("filter.type", "include")];
    let on_key = result(
        "Filter$Key",
        &options,
        record(event(Value::str("x")), SchemaAndValue::NULL),
    );
    assert_eq!(on_key, "dropped: filtered");
}

#[test]
fn a_filter_without_a_condition_that_can_be_read_is_refused() {
    let refused = |options: &[(&str, &str)]| {
        result(
            "Filter$Value",
            options,
            record(SchemaAndValue::NULL, SchemaAndValue::NULL),
        )
    };
    assert_eq!(
        refused(&[("filter.condition", "$.after.length()"), ("filter.type", "include")]),
        "refused: transforms.t.filter.condition is not a supported JSON path: there is the function length(), but Walferry does not \
         support functions in JSON paths at character 9 (compare the value itself, in a condition)"
    );
    let both = refused(&[]);
    assert!(
        both.contains("filter.condition is required") && both.contains("filter.type is required"),
        "{both}"
    );
}

/// Class, options, record and what becomes of it.
type Case = (
    &'static str,
    &'static [(&'static str, &'static str)],
    Record<'static>,
    &'static str,
);

#[test]
fn the_topic_comes_from_the_key_the_value_or_a_header() {
    let value = || event(Value::str("x"));
    const PATH: (&str, &str) = ("field", "$[\"after\"]['topic_name']");
    const FORMAT: (&str, &str) = ("field.format", "JSON_PATH");
    let cases: [Case; 13] = [
        ("ExtractTopic$Key", &[], record(text("k"), value()), "k"),
        ("ExtractTopic$Value", &[], record(text("k"), text("v")), "v"),
        ("ExtractTopic$Value", &[PATH, FORMAT], record(text("k"), value()), "x"),
        (
            "ExtractTopic$Value",
            &[PATH, FORMAT],
            record(text("k"), event(Value::Null)),
            "failed: the topic name is missing or null",
        ),
        (
            "ExtractTopic$Value",
            &[PATH, FORMAT, ("skip.missing.or.null", "true")],
            record(text("k"), event(Value::Null)),
            "t",
        ),
        (
            "ExtractTopic$Value",
            &[("field", "missing"), ("skip.missing.or.null", "true")],
            record(text("k"), value()),
            "t",
        ),
        (
            "ExtractTopic$Value",
            &[("field", "after")],
            record(text("k"), value()),
            "failed: the topic name is a struct, but must be a string",
        ),
        (
            "ExtractTopic$Value",
            &[("skip.missing.or.null", "true")],
            record(text("k"), SchemaAndValue::NULL),
            "t",
        ),
        (
            "ExtractTopic$Value",
            &[],
            record(text("k"), text("")),
            "failed: the topic name is empty",
        ),
        (
            "ExtractTopic$Header",
            &[("field", "to")],
            record(text("k"), value()),
            "last",
        ),
        (
            "ExtractTopic$Header",
            &[("field", "none")],
            record(text("k"), value()),
            "failed: the topic name is missing or null",
        ),
        (
            "ExtractTopic$Header",
            &[],
            record(text("k"), value()),
            "refused: transforms.t.field is required (set it to the name of the header that contains the topic)",
        ),
        (
            "ExtractTopic$Value",
            &[("field", "$.after[*]"), ("field.format", "JSON_PATH")],
            record(text("k"), value()),
            "refused: transforms.t.field is \"$.after[*]\", a JSON path that may match several places (write a path of names and indexes, \
             such as $.after.topic)",
        ),
    ];
    for (class, options, record, expected) in cases {
        assert_eq!(result(class, options, record), expected, "{class} {options:?}");
    }
}

#[test]
fn drop_takes_the_value_away_and_does_with_the_schema_what_is_asked() {
    let applied = |behavior: &str, schema: &SchemaRef| {
        let plugin = plugin("Drop$Value", &[("schema.behavior", behavior)]);
        let mut chain = Chain::new(&[plugin], &[]).0.expect("it is right");
        let value = SchemaAndValue::new(schema.clone(), Value::str("x"));
        match chain.apply(record(text("k"), value)) {
            Ok(Outcome::Record(record)) => {
                assert_eq!((&record.key, &record.value.value), (&text("k"), &Value::Null));
                Ok(record.value.schema)
            }
            other => Err(format!("{other:?}")),
        }
    };
    let (required, optional) = (Schema::string().build(), Schema::string().optional().build());
    assert_eq!(applied("nullify", &required), Ok(None));
    assert_eq!(applied("retain", &required), Ok(Some(required.clone())));
    assert_eq!(applied("validate", &optional), Ok(Some(optional.clone())));
    assert_eq!(applied("force_optional", &required), Ok(Some(optional.clone())));
    assert!(applied("validate", &required).is_err());
}

#[test]
fn tombstones_are_dropped_or_refused() {
    let null = || SchemaAndValue::new(Schema::string().optional().build(), Value::Null);
    let cases = [
        ("warn", SchemaAndValue::NULL, "dropped: tombstone"),
        ("ignore", null(), "dropped: tombstone"),
        ("fail", null(), "failed: the record is a tombstone"),
        ("fail", text("x"), "t"),
    ];
    for (behavior, value, expected) in cases {
        let found = result(
            "TombstoneHandler",
            &[("behavior", behavior)],
            record(SchemaAndValue::NULL, value),
        );
        assert_eq!(found, expected, "{behavior}");
    }
    assert_eq!(DropReason::Tombstone.as_str(), "tombstone");
}
