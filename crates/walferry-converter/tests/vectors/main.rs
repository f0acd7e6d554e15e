//! What Kafka Connect's own classes wrote, replayed; see `testdata/README.md`.

mod data;

use serde_json::Value as Json;
use walferry_config::Options;
use walferry_converter::{Converter, ConverterType, Encoded, RecordPart, converter};
use walferry_record::{Schema, SchemaAndValue, Value};

/// An option and its value.
type Setting = (&'static str, &'static str);

/// The converters by the names they have in the file.
const CONVERTERS: &[(&str, ConverterType, &str, &[Setting])] = &[
    (
        "J",
        ConverterType::Value,
        "org.apache.kafka.connect.json.JsonConverter",
        &[],
    ),
    ("j", ConverterType::Header, "Json", &[("schemas.enable", "false")]),
    (
        "n",
        ConverterType::Value,
        "JsonConverter",
        &[("schemas.enable", "false"), ("decimal.format", "numeric")],
    ),
    (
        "k",
        ConverterType::Value,
        "Json",
        &[("schemas.enable", "false"), ("replace.null.with.default", "false")],
    ),
    (
        "K",
        ConverterType::Value,
        "Json",
        &[("replace.null.with.default", "false")],
    ),
    (
        "s",
        ConverterType::Value,
        "org.apache.kafka.connect.storage.StringConverter",
        &[],
    ),
    (
        "utf16",
        ConverterType::Value,
        "String",
        &[("converter.encoding", "UTF-16")],
    ),
    (
        "utf16be",
        ConverterType::Value,
        "String",
        &[("converter.encoding", "UTF-16BE")],
    ),
    (
        "utf16le",
        ConverterType::Value,
        "String",
        &[("converter.encoding", "UTF-16LE")],
    ),
    (
        "latin1",
        ConverterType::Value,
        "String",
        &[("converter.encoding", "ISO-8859-1")],
    ),
    (
        "ascii",
        ConverterType::Value,
        "String",
        &[("converter.encoding", "US-ASCII")],
    ),
    (
        "h",
        ConverterType::Header,
        "org.apache.kafka.connect.storage.SimpleHeaderConverter",
        &[],
    ),
    (
        "b",
        ConverterType::Key,
        "org.apache.kafka.connect.converters.ByteArrayConverter",
        &[],
    ),
    (
        "d",
        ConverterType::Value,
        "io.debezium.converters.BinaryDataConverter",
        &[],
    ),
    ("D", ConverterType::Value, "BinaryDataConverter", DELEGATE),
    (
        "A",
        ConverterType::Value,
        "io.debezium.converters.ByteArrayConverter",
        DELEGATE,
    ),
    (
        "bool",
        ConverterType::Key,
        "org.apache.kafka.connect.converters.BooleanConverter",
        &[],
    ),
    (
        "short",
        ConverterType::Key,
        "org.apache.kafka.connect.converters.ShortConverter",
        &[],
    ),
    (
        "integer",
        ConverterType::Key,
        "org.apache.kafka.connect.converters.IntegerConverter",
        &[],
    ),
    (
        "long",
        ConverterType::Key,
        "org.apache.kafka.connect.converters.LongConverter",
        &[],
    ),
    (
        "float",
        ConverterType::Key,
        "org.apache.kafka.connect.converters.FloatConverter",
        &[],
    ),
    (
        "double",
        ConverterType::Key,
        "org.apache.kafka.connect.converters.DoubleConverter",
        &[],
    ),
];

const DELEGATE: &[Setting] = &[
    ("delegate.converter.type", "org.apache.kafka.connect.json.JsonConverter"),
    ("delegate.converter.type.schemas.enable", "false"),
];

fn make(role: ConverterType, class: &str, options: &[Setting]) -> Box<dyn Converter> {
    let entries = options
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
        .collect();
    let (converter, findings) = converter(class, role, &Options::new("value.converter.", entries));
    converter.unwrap_or_else(|| panic!("{class}: {findings:?}"))
}

/// Bytes in the notation of the file: `=text`, `#hex`, `null`, or `!` and the message of the exception.
fn write(converter: &mut dyn Converter, typed: &SchemaAndValue<'_>) -> String {
    let mut out = b"before".to_vec();
    let result = converter.encode("t", RecordPart::Value, typed, &mut out);
    let written = out.strip_prefix(b"before").expect("what was there stays");
    match result {
        Ok(Encoded::Null) => "null".to_owned(),
        Ok(Encoded::Bytes | Encoded::BytesWithHeaders) => match std::str::from_utf8(written) {
            Ok(text) => format!("={text}"),
            Err(_) => written
                .iter()
                .fold("#".to_owned(), |hex, byte| format!("{hex}{byte:02x}")),
        },
        Err(error) => {
            assert!(written.is_empty(), "something is left behind an error");
            let problem = error.problem().to_string();
            format!(
                "!{}",
                if problem.contains("delegate.converter.type") {
                    "delegate"
                } else {
                    &problem
                }
            )
        }
    }
}

#[test]
fn every_converter_writes_what_connect_writes() {
    // All of them write headers, too, and Connect's classes write them as they write values.
    let made = |(name, role, class, options): &(&'static str, ConverterType, &str, &[Setting])| {
        let roles = if *role == ConverterType::Header {
            vec![ConverterType::Header]
        } else {
            vec![*role, ConverterType::Header]
        };
        let made = roles.into_iter().map(|role| make(role, class, options));
        (*name, made.collect::<Vec<_>>())
    };
    let mut converters: Vec<_> = CONVERTERS.iter().map(made).collect();
    let (mut compared, mut differences) = (0, Vec::new());
    for line in include_str!("../../testdata/connect.jsonl").lines() {
        let case: Json = serde_json::from_str(line).unwrap();
        let schema = data::schema(&case["schema"]);
        let value = data::value(&case["value"], schema.as_ref());
        let typed = SchemaAndValue { schema, value };
        for (names, expected) in case["is"].as_object().unwrap() {
            for name in names.split(' ') {
                let (_, made) = converters.iter_mut().find(|(known, _)| *known == name).expect(name);
                for converter in made {
                    let actual = write(&mut **converter, &typed);
                    compared += 1;
                    if actual != *expected {
                        let what = format!("{} with {name}: {}", case["what"], case["value"]);
                        differences.push(format!("{what}\n  expected {expected}\n  actual   {actual:?}"));
                    }
                }
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {compared} differ:\n{}",
        differences.len(),
        differences.join("\n")
    );
    assert!(compared > 8000, "only {compared} compared");
}

#[test]
fn floats_are_written_as_java_writes_them() {
    let mut plain = make(ConverterType::Value, "StringConverter", &[]);
    let (double, float) = (Schema::float64().build(), Schema::float32().build());
    let mut compared = 0;
    for line in include_str!("../../testdata/floats.txt").lines() {
        let mut columns = line.split(' ');
        let (kind, bits, expected) = (
            columns.next().unwrap(),
            columns.next().unwrap(),
            columns.next().unwrap(),
        );
        let bits = u64::from_str_radix(bits, 16).unwrap();
        let typed = match kind {
            "d" => SchemaAndValue::new(double.clone(), Value::Float64(f64::from_bits(bits))),
            _ => SchemaAndValue::new(float.clone(), Value::Float32(f32::from_bits(bits as u32))),
        };
        assert_eq!(write(&mut *plain, &typed), format!("={expected}"), "{line}");
        compared += 1;
    }
    assert!(compared > 4000, "only {compared} compared");
}
