//! Whatever JsonConverter writes is JSON, and a reader finds the value again.

use proptest::prelude::*;
use serde_json::{Value as Json, json};
use walferry_config::Options;
use walferry_converter::{ConverterType, Encoded, RecordPart, converter};
use walferry_record::{Field, Schema, SchemaAndValue, SchemaRef, Struct, Value};

/// A schema, a value of it and the JSON that a reader is to find.
#[derive(Debug, Clone)]
struct Sample {
    schema: SchemaRef,
    value: Value<'static>,
    json: Json,
}

fn sample(schema: Schema, value: Value<'static>, json: Json) -> Sample {
    Sample {
        schema: schema.build(),
        value,
        json,
    }
}

fn scalar() -> impl Strategy<Value = Sample> {
    prop_oneof![
        any::<bool>().prop_map(|b| sample(Schema::boolean(), Value::Boolean(b), json!(b))),
        any::<i8>().prop_map(|n| sample(Schema::int8(), Value::Int8(n), json!(n))),
        any::<i16>().prop_map(|n| sample(Schema::int16(), Value::Int16(n), json!(n))),
        any::<i32>().prop_map(|n| sample(Schema::int32(), Value::Int32(n), json!(n))),
        any::<i64>().prop_map(|n| sample(Schema::int64(), Value::Int64(n), json!(n))),
        proptest::num::f64::NORMAL.prop_map(|n| sample(Schema::float64(), Value::Float64(n), json!(n))),
        any::<String>().prop_map(|s| sample(Schema::string(), Value::string(s.clone()), json!(s))),
        "[a-z\"\\\\\n\u{1F600}é]{0,40}".prop_map(|s| sample(Schema::string(), Value::string(s.clone()), json!(s))),
        Just(sample(Schema::int64().optional(), Value::Null, Json::Null)),
    ]
}

fn any_sample() -> impl Strategy<Value = Sample> {
    scalar().prop_recursive(4, 32, 5, |inner| {
        prop_oneof![
            prop::collection::vec((any::<String>(), inner.clone()), 0..5).prop_map(structure),
            (inner.clone(), 0..4_usize).prop_map(|(item, count)| Sample {
                schema: Schema::array(item.schema).build(),
                value: Value::Array(vec![item.value; count]),
                json: Json::Array(vec![item.json; count]),
            }),
            (inner, any::<String>()).prop_map(|(item, key)| Sample {
                schema: Schema::map(Schema::string().build(), item.schema).build(),
                value: Value::Map(vec![(Value::string(key.clone()), item.value)]),
                json: json!({ key: item.json }),
            }),
        ]
    })
}

fn structure(mut members: Vec<(String, Sample)>) -> Sample {
    members.sort_by(|a, b| a.0.cmp(&b.0));
    members.dedup_by(|a, b| a.0 == b.0);
    let fields = members
        .iter()
        .map(|(name, member)| Field::new(name.as_str(), member.schema.clone()))
        .collect();
    let schema = Schema::structure(fields).build();
    Sample {
        json: members
            .iter()
            .map(|(name, member)| (name.clone(), member.json.clone()))
            .collect(),
        value: Value::Struct(Struct::new(
            schema.clone(),
            members.into_iter().map(|(_, member)| member.value).collect(),
        )),
        schema,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_reader_finds_the_value_again(sample in any_sample(), schemas_enable in any::<bool>()) {
        let mut options = Options::default();
        options.set("schemas.enable", schemas_enable.to_string());
        let mut converter = converter("JsonConverter", ConverterType::Value, &options).0.unwrap();
        let typed = SchemaAndValue::new(sample.schema.clone(), sample.value);
        let mut out = Vec::new();
        prop_assert_eq!(converter.encode("t", RecordPart::Value, &typed, &mut out).unwrap(), Encoded::Bytes);

        let read: Json = serde_json::from_slice(&out).unwrap();
        let payload = if schemas_enable {
            prop_assert_eq!(&read["schema"]["type"], sample.schema.type_name());
            prop_assert_eq!(read.as_object().unwrap().len(), 2);
            &read["payload"]
        } else {
            &read
        };
        prop_assert_eq!(payload, &sample.json);
    }
}
