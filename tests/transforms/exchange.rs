//! Chains and records as JSON: what `Harness.java` reads and answers, and the same from Walferry.
//!
//! A case is `{"transforms": [{"class", "options", "predicate": {"class", "options", "negate"}}], "records": [record]}`; a record has
//! `topic`, `partition`, `timestamp`, `key`, `value` and `headers`. A key, a value or a header is `{"schema", "value"}`, a value names
//! its type (`{"int32": "7"}`), so that none is mistaken for another. The answer is `{"refused": why}` where the configuration is
//! wrong, or `{"results": [...]}` with a record, `{"dropped": true}` or `{"error": why}` for each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use num_bigint::BigInt;
use serde_json::{Map, Value as Json, json};
use walferry_config::Options;
use walferry_config::connector::{PredicatePlugin, TransformPlugin};
use walferry_record::java::hash_map::HashMap;
use walferry_record::java::logical::{Logical, MILLIS_PER_DAY};
use walferry_record::{Decimal, Field, Header, Record, Schema, SchemaAndValue, SchemaRef, Shape, Struct, Value};
use walferry_transform::{Chain, Outcome};

/// Walferry's answer to a case.
pub(crate) fn answer(case: &Json) -> Json {
    let (transforms, predicates) = plugins(&case["transforms"]);
    let (chain, findings) = Chain::new(&transforms, &predicates);
    let Some(mut chain) = chain else {
        let problems: Vec<String> = findings.problems().map(ToString::to_string).collect();
        return json!({"refused": problems.join("; ")});
    };
    let records = case["records"].as_array().expect("records");
    let results = records.iter().map(|record| match chain.apply(read_record(record)) {
        Ok(Outcome::Record(record)) => write_record(&record),
        Ok(Outcome::Dropped(_)) => json!({"dropped": true}),
        Err(error) => json!({"error": error.error.to_string()}),
        Ok(Outcome::SetAside(aside)) => json!({"error": aside.why}),
        Ok(Outcome::Waits(waiting)) => json!({"error": format!("waits for {}", waiting.wait.need())}),
    });
    json!({"results": results.collect::<Vec<_>>()})
}

fn plugins(steps: &Json) -> (Vec<TransformPlugin>, Vec<PredicatePlugin>) {
    let mut predicates = Vec::new();
    let steps = steps.as_array().expect("transforms").iter().enumerate();
    let transforms = steps.map(|(index, step)| {
        let predicate = step.get("predicate").map(|predicate| {
            let name = format!("p{index}");
            predicates.push(PredicatePlugin {
                class: text(&predicate["class"]),
                options: options(&format!("predicates.{name}."), &predicate["options"]),
                name: name.clone(),
            });
            (name, predicate["negate"] == json!(true))
        });
        let name = format!("t{index}");
        TransformPlugin {
            class: text(&step["class"]),
            options: options(&format!("transforms.{name}."), &step["options"]),
            negate: predicate.as_ref().is_some_and(|(_, negate)| *negate),
            predicate: predicate.map(|(name, _)| name),
            name,
        }
    });
    (transforms.collect(), predicates)
}

fn options(prefix: &str, json: &Json) -> Options {
    let entries = json.as_object().expect("options").iter();
    Options::new(
        prefix,
        entries.map(|(name, value)| (name.clone(), text(value))).collect(),
    )
}

fn text(json: &Json) -> String {
    json.as_str().expect("a text").to_owned()
}

fn read_record(json: &Json) -> Record<'static> {
    let headers = json["headers"].as_array().expect("headers").iter();
    Record {
        topic: text(&json["topic"]).into(),
        partition: json["partition"].as_i64().map(|n| n as i32),
        timestamp_ms: json["timestamp"].as_i64(),
        key: read_typed(&json["key"]),
        value: read_typed(&json["value"]),
        headers: headers
            .map(|header| Header {
                name: text(&header["name"]).into(),
                value: read_typed(&header["value"]),
            })
            .collect(),
    }
}

fn read_typed(json: &Json) -> SchemaAndValue<'static> {
    let schema = (!json["schema"].is_null()).then(|| read_schema(&json["schema"]));
    let value = read_value(&json["value"], schema.as_ref());
    SchemaAndValue { schema, value }
}

fn read_schema(json: &Json) -> SchemaRef {
    let mut schema = Schema::of(match json["type"].as_str().expect("a type") {
        "int8" => Shape::Int8,
        "int16" => Shape::Int16,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "float32" => Shape::Float32,
        "float64" => Shape::Float64,
        "boolean" => Shape::Boolean,
        "string" => Shape::String,
        "bytes" => Shape::Bytes,
        "array" => Shape::Array(read_schema(&json["items"])),
        "map" => Shape::Map(read_schema(&json["keys"]), read_schema(&json["values"])),
        _ => {
            let fields = json["fields"].as_array().expect("fields").iter();
            Shape::Struct(
                fields
                    .map(|f| Field::new(text(&f["name"]), read_schema(&f["schema"])))
                    .collect(),
            )
        }
    });
    schema.optional = json["optional"] == json!(true);
    schema.name = json["name"].as_str().map(Into::into);
    schema.version = json["version"].as_i64().map(|n| n as i32);
    schema.doc = json["doc"].as_str().map(Into::into);
    for pair in json["parameters"].as_array().into_iter().flatten() {
        schema = schema.parameter(text(&pair[0]), text(&pair[1]));
    }
    if let Some(default) = json.get("default") {
        let shared = schema.clone().build();
        schema.default = Some(read_value(default, Some(&shared)));
    }
    schema.build()
}

fn read_value(json: &Json, schema: Option<&SchemaRef>) -> Value<'static> {
    let Some((kind, json)) = json.as_object().and_then(|object| object.iter().next()) else {
        return Value::Null;
    };
    let number = || {
        json.as_str()
            .expect("a number as text")
            .parse::<i64>()
            .expect("a number")
    };
    match kind.as_str() {
        "boolean" => Value::Boolean(json == &json!(true)),
        "int8" => Value::Int8(number() as i8),
        "int16" => Value::Int16(number() as i16),
        "int32" => Value::Int32(number() as i32),
        "int64" => Value::Int64(number()),
        "float32" => Value::Float32(f32::from_bits(number() as i32 as u32)),
        "float64" => Value::Float64(f64::from_bits(number() as u64)),
        "string" => Value::string(text(json)),
        "bytes" => Value::bytes(STANDARD.decode(text(json)).expect("base64")),
        "decimal" => {
            let unscaled: BigInt = text(&json[0]).parse().expect("digits");
            Value::Decimal(Decimal::big(unscaled, json[1].as_i64().expect("a scale") as i32))
        }
        "date" => match schema.and_then(|schema| Logical::of(schema)) {
            Some(Logical::Date) => Value::Int32(number().div_euclid(MILLIS_PER_DAY) as i32),
            Some(Logical::Time) => Value::Int32(number() as i32),
            _ => Value::Int64(number()),
        },
        "array" => {
            let items = match schema.map(|schema| &schema.shape) {
                Some(Shape::Array(items)) => Some(items),
                _ => None,
            };
            let values = json.as_array().expect("items").iter();
            Value::Array(values.map(|item| read_value(item, items)).collect())
        }
        "map" => {
            let (keys, values) = match schema.map(|schema| &schema.shape) {
                Some(Shape::Map(keys, values)) => (Some(keys), Some(values)),
                _ => (None, None),
            };
            let pairs = json.as_array().expect("pairs").iter();
            let pairs = pairs.map(|pair| (read_value(&pair[0], keys), read_value(&pair[1], values)));
            if schema.is_some() {
                return Value::Map(pairs.collect());
            }
            // The harness has it in a `HashMap`.
            let mut map = HashMap::new();
            pairs.for_each(|(key, value)| map.put(key, value));
            map.into_value()
        }
        _ => {
            let schema = schema.expect("a struct has a schema");
            let values = json.as_array().expect("values").iter().zip(schema.fields());
            let values = values.map(|(value, field)| read_value(value, Some(&field.schema)));
            Value::Struct(Struct::new(schema.clone(), values.collect()))
        }
    }
}

fn write_record(record: &Record<'_>) -> Json {
    for part in [&record.key, &record.value] {
        if let (Some(schema), Value::Struct(value)) = (&part.schema, &part.value) {
            assert_eq!(schema, value.schema(), "the struct has the schema of the record");
        }
    }
    let headers = record.headers.iter();
    json!({
        "topic": record.topic,
        "partition": record.partition,
        "timestamp": record.timestamp_ms.map(|n| n.to_string()),
        "key": write_typed(&record.key),
        "value": write_typed(&record.value),
        "headers": headers.map(|h| json!({"name": h.name, "value": write_typed(&h.value)})).collect::<Vec<_>>(),
    })
}

fn write_typed(typed: &SchemaAndValue<'_>) -> Json {
    json!({
        "schema": typed.schema.as_deref().map(write_schema),
        "value": write_value(&typed.value, typed.schema.as_deref()),
    })
}

fn write_schema(schema: &Schema) -> Json {
    let mut json = Map::new();
    let type_name = match schema.type_name() {
        "float" => "float32",
        "double" => "float64",
        other => other,
    };
    json.insert("type".into(), json!(type_name));
    json.insert("optional".into(), json!(schema.optional));
    let texts = [("name", &schema.name), ("doc", &schema.doc)];
    for (name, text) in texts {
        if let Some(text) = text {
            json.insert(name.into(), json!(&**text));
        }
    }
    if let Some(version) = schema.version {
        json.insert("version".into(), json!(version));
    }
    if !schema.parameters.is_empty() {
        let parameters = schema.parameters.iter().map(|(name, value)| json!([&**name, &**value]));
        json.insert("parameters".into(), parameters.collect());
    }
    if let Some(default) = &schema.default {
        json.insert("default".into(), write_value(default, Some(schema)));
    }
    match &schema.shape {
        Shape::Array(items) => drop(json.insert("items".into(), write_schema(items))),
        Shape::Map(keys, values) => {
            json.insert("keys".into(), write_schema(keys));
            json.insert("values".into(), write_schema(values));
        }
        Shape::Struct(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|f| json!({"name": &*f.name, "schema": write_schema(&f.schema)}));
            json.insert("fields".into(), fields.collect());
        }
        _ => {}
    }
    Json::Object(json)
}

fn write_value(value: &Value<'_>, schema: Option<&Schema>) -> Json {
    if let Some(millis) = schema.and_then(Logical::of).and_then(|logical| logical.millis(value)) {
        return json!({"date": millis.to_string()});
    }
    match value {
        Value::Null => Json::Null,
        Value::Boolean(v) => json!({"boolean": v}),
        Value::Int8(v) => json!({"int8": v.to_string()}),
        Value::Int16(v) => json!({"int16": v.to_string()}),
        Value::Int32(v) => json!({"int32": v.to_string()}),
        Value::Int64(v) => json!({"int64": v.to_string()}),
        Value::Float32(v) => json!({"float32": (v.to_bits() as i32).to_string()}),
        Value::Float64(v) => json!({"float64": (v.to_bits() as i64).to_string()}),
        Value::String(v) => json!({"string": v}),
        Value::Bytes(v) => json!({"bytes": STANDARD.encode(v)}),
        Value::Decimal(v) => json!({"decimal": [v.unscaled().to_string(), v.scale()]}),
        Value::Array(values) => {
            let items = match schema.map(|schema| &schema.shape) {
                Some(Shape::Array(items)) => Some(&**items),
                _ => None,
            };
            json!({"array": values.iter().map(|value| write_value(value, items)).collect::<Vec<_>>()})
        }
        Value::Map(pairs) => {
            let (keys, values) = match schema.map(|schema| &schema.shape) {
                Some(Shape::Map(keys, values)) => (Some(&**keys), Some(&**values)),
                _ => (None, None),
            };
            let pairs = pairs
                .iter()
                .map(|(k, v)| json!([write_value(k, keys), write_value(v, values)]));
            json!({"map": pairs.collect::<Vec<_>>()})
        }
        Value::Struct(value) => {
            let values = value.schema().fields().iter().zip(value.values());
            let values = values.map(|(field, value)| write_value(value, Some(&field.schema)));
            json!({"struct": values.collect::<Vec<_>>()})
        }
    }
}

/// An answer as it is compared: reasons do not count, and maps have an order of their own in each version of Java.
pub(crate) fn normalised(answer: &Json) -> Json {
    match answer {
        Json::Object(object) => {
            let pairs = object.iter().map(|(name, value)| {
                let value = match (name.as_str(), value) {
                    ("refused" | "error", _) => json!(true),
                    ("map", Json::Array(pairs)) => {
                        let mut pairs: Vec<Json> = pairs.iter().map(normalised).collect();
                        pairs.sort_by_cached_key(|pair| pair[0].to_string());
                        Json::Array(pairs)
                    }
                    // Connect writes the lowest 32 bits of a day that is too far away, which is all that there is here.
                    ("date", Json::String(millis)) => {
                        let millis: i64 = millis.parse().expect("a number");
                        match millis % MILLIS_PER_DAY {
                            0 => json!(i64::from((millis / MILLIS_PER_DAY) as i32) * MILLIS_PER_DAY),
                            _ => json!(millis),
                        }
                    }
                    (_, value) => normalised(value),
                };
                (name.clone(), value)
            });
            Json::Object(pairs.collect())
        }
        Json::Array(items) => Json::Array(items.iter().map(normalised).collect()),
        other => other.clone(),
    }
}

/// A normalised answer in which keys and values that stayed what they were are left out.
#[allow(dead_code)] // the tests that need no recording do without
pub(crate) fn changes(case: &Json, answer: &Json) -> Json {
    let mut answer = normalised(answer);
    let results = answer.get_mut("results").and_then(Json::as_array_mut);
    let records = case["records"].as_array().expect("records");
    for (result, record) in results.into_iter().flatten().zip(records) {
        for part in ["key", "value", "headers"] {
            if result.get(part) == Some(&normalised(&record[part])) {
                result[part] = json!("same");
            }
        }
    }
    answer
}
