//! Against what Java converters wrote with a registry, whose ids are kept beside the bytes.
//!
//! - Apicurio's ExtJsonConverter 2.6.13 and Debezium's CloudEventsConverter 3.6.3, with Apicurio Registry 3.3.3.
//! - Confluent's AvroConverter 7.9.8, compiled from its public source, with a registry of the recording program that gives ids.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;
use walferry_config::Options;
use walferry_record::SchemaAndValue;

use crate::registry::{Ids, Registry, RegistryAnswer, RegistryRefusal, SchemaRequest};
use crate::{ConverterType, Encoded, RecordPart, recorded};

/// One case a line: `connect` is the JSON of JsonConverter, `bytes` what the converter made of it, and `subjects` what it had
/// registered for that. With `error`, it failed.
const APICURIO: &str = include_str!("../tests/vectors/apicurio.jsonl");
const CONFLUENT: &str = include_str!("../tests/vectors/confluent_avro.jsonl");

/// ExtJsonConverter fails for the null of an optional schema. We write it, as JsonConverter does.
const FAILS: [&str; 2] = [
    "ext json, alone optional null int8",
    "ext json, optional struct alone, null",
];

/// Knows what the real registry was given, and nothing else.
#[derive(Debug)]
struct Known(HashMap<String, Json>);

impl Registry for Known {
    fn ids(&self, request: &SchemaRequest) -> RegistryAnswer {
        let refused = |what: String| RegistryAnswer::Refused(RegistryRefusal { what, hint: None });
        let id = &request.subject.id;
        let Some(known) = self.0.get(id) else {
            return refused(format!("{id} was never registered"));
        };
        if request.schema != known["schema"] || request.kind.as_str() != known["type"] {
            return refused(format!("{id} was registered as {known}, not as {}", request.schema));
        }
        RegistryAnswer::Known(Ids {
            content: known["content"].as_i64().unwrap(),
            global: known["global"].as_i64().unwrap(),
            guid: None,
        })
    }

    fn generation(&self) -> u64 {
        0
    }
}

#[test]
fn what_is_registered_and_written_is_what_apicurios_and_debeziums_converters_do() {
    let cases = replay(APICURIO);
    assert!(cases > 30, "{cases}");
}

#[test]
fn subjects_schemas_framing_and_bytes_of_avro_are_those_of_confluents_converter() {
    let cases = replay(CONFLUENT);
    assert!(cases > 150, "{cases}");
}

/// Returns how many cases were compared.
fn replay(recorded: &str) -> usize {
    let cases: Vec<Json> = recorded
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let name = |case: &Json| case["name"].as_str().unwrap().to_owned();
    let compared = cases.iter().filter(|case| !FAILS.contains(&&*name(case)));
    let (mut count, mut differences) = (0, Vec::new());
    for case in compared {
        count += 1;
        if let Err(difference) = same(case) {
            differences.push(format!("{}: {difference}", name(case)));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {count} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
    count
}

/// Whether a case comes out as in Java.
fn same(case: &Json) -> Result<(), String> {
    let options = case["options"].as_object().unwrap().iter();
    let options = options.map(|(name, value)| {
        let value = value.as_str().unwrap().replace("@REGISTRY@", "http://127.0.0.1:28999");
        (name.clone(), value)
    });
    let (role, part) = match case["part"].as_str() {
        Some("key") => (ConverterType::Key, RecordPart::Key),
        _ => (ConverterType::Value, RecordPart::Value),
    };
    let options = Options::new("value.converter.", options.collect());
    let (converter, findings) = crate::converter(case["class"].as_str().unwrap(), role, &options);
    let mut converter = converter.ok_or_else(|| format!("{findings:?}"))?;
    let subjects = case["subjects"].as_object().cloned().unwrap_or_default();
    let known = Arc::new(Known(subjects.into_iter().collect()));
    converter.attach(&mut |_| known.clone());
    let schema = recorded::schema(&case["connect"]["schema"]);
    let value = recorded::value(&schema, &case["connect"]["payload"]);
    // A converter may be asked again, with what it has worked out before.
    for _ in 0..2 {
        let mut out = Vec::new();
        let typed = SchemaAndValue::new(schema.clone(), value.reborrow());
        let encoded = converter.encode(case["topic"].as_str().unwrap(), part, &typed, &mut out);
        let written = match encoded {
            Ok(Encoded::Null) => Ok(None),
            Ok(_) => Ok(Some(out.iter().map(|byte| format!("{byte:02x}")).collect::<String>())),
            Err(error) => Err(error.to_string()),
        };
        match (written, case["error"].as_str()) {
            (Err(_), Some(_)) => {}
            (written, Some(error)) => return Err(format!("in Java it fails: {error}; ours is {written:?}")),
            (Err(error), None) => return Err(error),
            (Ok(ours), None) if ours.as_deref() == case["bytes"].as_str() => {}
            (Ok(ours), None) => return Err(format!("Java's {}, ours {ours:?}", case["bytes"])),
        }
    }
    Ok(())
}
