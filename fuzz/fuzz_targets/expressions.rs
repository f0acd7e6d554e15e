//! Any text as the expression of a transform: the first byte says which transform and which language, the rest is tried on two records.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use walferry_config::{Options, connector::TransformPlugin, limited};
use walferry_record::{Field, Record, Schema, SchemaAndValue, Struct, Value};
use walferry_transform::Chain;

/// The longest expression that is tried. Longer ones mostly cost time.
const LONGEST: usize = 1000;

const FILTER: &str = "io.debezium.transforms.Filter";
const ROUTER: &str = "io.debezium.transforms.ContentBasedRouter";

fn plugin(which: u8, text: &str) -> TransformPlugin {
    let (class, property) = match which & 1 {
        0 => (FILTER, "condition"),
        _ => (ROUTER, "topic.expression"),
    };
    let language = match which & 2 {
        0 => "jsr223.groovy",
        _ => "jsr223.graal.js",
    };
    let options = [("language", language), (property, text)].map(|(name, value)| (name.to_owned(), value.to_owned()));
    TransformPlugin {
        name: "t".into(),
        class: class.into(),
        options: Options::new("transforms.t.", BTreeMap::from(options)),
        predicate: None,
        negate: false,
    }
}

/// A change, and a record that is a text.
fn records() -> [Record<'static>; 2] {
    let row = Schema::structure(vec![
        Field::new("id", Schema::int32().build()),
        Field::new("name", Schema::string().optional().build()),
        Field::new("price", Schema::float64().build()),
    ])
    .optional()
    .build();
    let schema = Schema::structure(vec![
        Field::new("before", row.clone()),
        Field::new("after", row.clone()),
        Field::new("op", Schema::string().build()),
    ])
    .build();
    let after = Struct::new(row, vec![Value::Int32(7), Value::str("seven"), Value::Float64(7.5)]);
    let change = Struct::new(schema.clone(), vec![Value::Null, Value::Struct(after), Value::str("c")]);
    let text = || SchemaAndValue::new(Schema::string().build(), Value::str("text"));
    let record = |key, value| Record {
        topic: "t".into(),
        partition: None,
        timestamp_ms: None,
        key,
        value,
        headers: Vec::new(),
    };
    [
        record(text(), SchemaAndValue::new(schema, Value::Struct(change))),
        record(SchemaAndValue::NULL, text()),
    ]
}

fuzz_target!(|input: &[u8]| {
    let Some((which, text)) = input.split_first() else { return };
    let Ok(text) = str::from_utf8(text) else { return };
    if text.len() > LONGEST {
        return;
    }
    let _ = limited(|| {
        let (chain, findings) = Chain::new(&[plugin(*which, text)], &[]);
        let Some(mut chain) = chain else {
            assert!(findings.has_problems(), "what is refused has a reason");
            return;
        };
        for record in records() {
            if let Err(error) = chain.apply(record) {
                drop((error.error.to_string(), error.hint()));
            }
        }
    });
});
