//! Against what Apicurio's ExtJsonConverter and Debezium's CloudEventsConverter wrote with a real registry: Apicurio's converters
//! 2.6.13, Debezium 3.6.3 and Apicurio Registry 3.3.3. The ids are those that the registry gave.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;
use walferry_config::Options;
use walferry_record::Typed;

use crate::registry::{Answer, Ids, Registry, Request};
use crate::{Encoded, Part, Role, recorded};

/// One case a line: `connect` is the JSON of JsonConverter, `bytes` what the converter made of it, and `subjects` what it had
/// registered for that.
const RECORDED: &str = include_str!("../tests/vectors/apicurio.jsonl");

/// ExtJsonConverter fails for the null of an optional schema. We write it, as JsonConverter does.
const FAILS: [&str; 2] = [
    "ext json, alone optional null int8",
    "ext json, optional struct alone, null",
];

/// Knows what the real registry was given, and nothing else.
#[derive(Debug)]
struct Known(HashMap<String, Json>);

impl Registry for Known {
    fn ids(&self, request: &Request) -> Answer {
        let id = &request.subject.id;
        let known = self.0.get(id).unwrap_or_else(|| panic!("{id} was never registered"));
        assert_eq!(request.schema, known["schema"].as_str().unwrap(), "{id}");
        assert_eq!(request.kind.as_str(), known["type"], "{id}");
        Answer::Known(Ids {
            content: known["content"].as_i64().unwrap(),
            global: known["global"].as_i64().unwrap(),
        })
    }

    fn generation(&self) -> u64 {
        0
    }
}

#[test]
fn what_is_registered_and_written_is_what_the_java_converters_do() {
    let mut cases = 0;
    for line in RECORDED.lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let name = case["name"].as_str().unwrap();
        if FAILS.contains(&name) {
            continue;
        }
        let options = case["options"].as_object().unwrap().iter();
        let options = options.map(|(name, value)| {
            let value = value.as_str().unwrap().replace("@REGISTRY@", "http://127.0.0.1:28999");
            (name.clone(), value)
        });
        let options = Options::new("value.converter.", options.collect());
        let (converter, findings) = crate::converter(case["class"].as_str().unwrap(), Role::Value, &options);
        let mut converter = converter.unwrap_or_else(|| panic!("{name}: {findings:?}"));
        let subjects = case["subjects"].as_object().unwrap();
        let known = Arc::new(Known(subjects.clone().into_iter().collect()));
        converter.attach(&mut |_| known.clone());
        let schema = recorded::schema(&case["connect"]["schema"]);
        let value = recorded::value(&schema, &case["connect"]["payload"]);
        // A converter may be asked again, with what it has worked out before.
        for _ in 0..2 {
            let mut out = Vec::new();
            let typed = Typed::new(schema.clone(), value.reborrow());
            let encoded = converter
                .encode(case["topic"].as_str().unwrap(), Part::Value, &typed, &mut out)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
            let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
            match case["bytes"].as_str() {
                Some(expected) => assert_eq!(hex, expected, "{name}"),
                None => assert_eq!(encoded, Encoded::Null, "{name}"),
            }
        }
        cases += 1;
    }
    assert!(cases > 30, "{cases}");
}
