//! Any text as a JSON path: the condition of Confluent's Filter, and the field of its ExtractTopic, tried on a record.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use walferry_config::{Options, connector::TransformPlugin, limited};
use walferry_record::{Field, Record, Schema, SchemaAndValue, Struct, Value};
use walferry_transform::Chain;

const LONGEST: usize = 500;

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

fn record() -> Record<'static> {
    let inner = Schema::structure(vec![
        Field::new("name", Schema::string().optional().build()),
        Field::new("n", Schema::int32().build()),
    ])
    .build();
    let list = Schema::array(Schema::int32().build()).build();
    let schema = Schema::structure(vec![Field::new("after", inner.clone()), Field::new("list", list)]).build();
    let after = Value::Struct(Struct::new(inner, vec![Value::str("a"), Value::Int32(5)]));
    let list = Value::Array(vec![Value::Int32(1), Value::Int32(2)]);
    let value = Value::Struct(Struct::new(schema.clone(), vec![after, list]));
    Record {
        topic: "t".into(),
        partition: None,
        timestamp_ms: None,
        key: SchemaAndValue::NULL,
        value: SchemaAndValue::new(schema, value),
        headers: Vec::new(),
    }
}

fuzz_target!(|path: &str| {
    if path.len() > LONGEST {
        return;
    }
    let filter = [("filter.condition", path), ("filter.type", "include"), ("missing.or.null.behavior", "exclude")];
    let topic = [("field", path), ("field.format", "JSON_PATH"), ("skip.missing.or.null", "true")];
    for plugin in [plugin("Filter$Value", &filter), plugin("ExtractTopic$Value", &topic)] {
        let _ = limited(|| {
            let (chain, findings) = Chain::new(&[plugin], &[]);
            let Some(mut chain) = chain else {
                assert!(findings.has_problems(), "what is refused has a reason");
                return;
            };
            if let Err(error) = chain.apply(record()) {
                drop(error.error.to_string());
            }
        });
    }
});
