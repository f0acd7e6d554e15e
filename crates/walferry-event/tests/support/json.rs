//! Values, schemas and catalogs as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value as Json, json};
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts, TypeFacts, TypeKind};
use walferry_pgoutput::Oid;
use walferry_record::{Schema, Shape, Value};

/// A value as JsonConverter writes it: the default stands in for null.
pub(crate) fn render(value: &Value<'_>, schema: &Schema) -> Json {
    match (value, &schema.shape) {
        (Value::Null, _) => schema
            .default
            .as_ref()
            .map_or(Json::Null, |default| render(default, schema)),
        (Value::Boolean(v), _) => json!(v),
        (Value::Int8(v), _) => json!(v),
        (Value::Int16(v), _) => json!(v),
        (Value::Int32(v), _) => json!(v),
        (Value::Int64(v), _) => json!(v),
        (Value::Float32(v), _) if v.is_finite() => json!(v.to_string().parse::<f64>().unwrap()),
        (Value::Float32(v), _) => special(f64::from(*v)),
        (Value::Float64(v), _) if v.is_finite() => json!(v),
        (Value::Float64(v), _) => special(*v),
        (Value::String(v), _) => json!(v),
        (Value::Bytes(v), _) => json!(STANDARD.encode(v)),
        (Value::Decimal(v), _) => {
            let mut bytes = Vec::new();
            v.write_unscaled(&mut bytes);
            json!(STANDARD.encode(bytes))
        }
        (Value::Array(items), Shape::Array(item)) => items.iter().map(|value| render(value, item)).collect(),
        (Value::Map(pairs), Shape::Map(key, value)) if key.shape == Shape::String => {
            let pairs = pairs
                .iter()
                .map(|(k, v)| (k.as_str().unwrap().to_owned(), render(v, value)));
            Json::Object(pairs.collect::<Map<_, _>>())
        }
        (Value::Map(pairs), Shape::Map(key, value)) => pairs
            .iter()
            .map(|(k, v)| json!([render(k, key), render(v, value)]))
            .collect(),
        (Value::Struct(row), Shape::Struct(fields)) => {
            assert_eq!(**row.schema(), *schema, "a struct has the schema of its field");
            let fields = fields.iter().zip(row.values());
            Json::Object(
                fields
                    .map(|(field, v)| (field.name.to_string(), render(v, &field.schema)))
                    .collect(),
            )
        }
        (value, shape) => panic!("{value:?} does not fit {shape:?}"),
    }
}

fn special(number: f64) -> Json {
    let text = match number {
        n if n.is_nan() => "NaN",
        n if n > 0.0 => "Infinity",
        _ => "-Infinity",
    };
    json!(text)
}

/// A schema as JsonConverter writes it.
pub(crate) fn render_schema(schema: &Schema) -> Json {
    let mut out = Map::new();
    out.insert("type".to_owned(), json!(schema.type_name()));
    match &schema.shape {
        Shape::Array(items) => drop(out.insert("items".to_owned(), render_schema(items))),
        Shape::Map(keys, values) => {
            out.insert("keys".to_owned(), render_schema(keys));
            out.insert("values".to_owned(), render_schema(values));
        }
        Shape::Struct(fields) => {
            let field = |field: &walferry_record::Field| {
                let mut schema = render_schema(&field.schema);
                schema["field"] = json!(&*field.name);
                schema
            };
            out.insert("fields".to_owned(), fields.iter().map(field).collect());
        }
        _ => {}
    }
    out.insert("optional".to_owned(), json!(schema.optional));
    if let Some(name) = &schema.name {
        out.insert("name".to_owned(), json!(&**name));
    }
    if let Some(version) = schema.version {
        out.insert("version".to_owned(), json!(version));
    }
    if let Some(doc) = &schema.doc {
        out.insert("doc".to_owned(), json!(&**doc));
    }
    if !schema.parameters.is_empty() {
        let parameters = schema
            .parameters
            .iter()
            .map(|(name, value)| (name.to_string(), json!(&**value)));
        out.insert("parameters".to_owned(), Json::Object(parameters.collect()));
    }
    if let Some(default) = &schema.default {
        out.insert("default".to_owned(), render(default, schema));
    }
    Json::Object(out)
}

/// Facts of the catalog, as the vectors have them.
pub(crate) fn catalog(json: &Json) -> Catalog {
    let table = json.get("table").filter(|table| !table.is_null()).map(table);
    Catalog {
        table,
        types: json["types"].as_array().unwrap().iter().map(type_facts).collect(),
    }
}

fn text(json: &Json) -> String {
    json.as_str().unwrap().to_owned()
}

fn texts(json: &Json) -> Vec<String> {
    json.as_array().unwrap().iter().map(text).collect()
}

fn oid(json: &Json) -> Oid {
    Oid(u32::try_from(json.as_u64().unwrap()).unwrap())
}

fn number<T: TryFrom<i64, Error: std::fmt::Debug>>(json: &Json) -> T {
    json.as_i64().unwrap().try_into().unwrap()
}

fn table(json: &Json) -> TableFacts {
    let column = |column: &Json| ColumnFacts {
        name: text(&column["name"]),
        number: number(&column["number"]),
        type_oid: oid(&column["type_oid"]),
        type_modifier: number(&column["type_modifier"]),
        not_null: column["not_null"].as_bool().unwrap(),
        default: column["default"].as_str().map(str::to_owned),
        generated: column["generated"].as_bool().unwrap(),
        identity: column["identity"].as_bool().unwrap(),
        comment: column["comment"].as_str().map(str::to_owned),
    };
    TableFacts {
        oid: oid(&json["oid"]),
        schema: text(&json["schema"]),
        name: text(&json["name"]),
        columns: json["columns"].as_array().unwrap().iter().map(column).collect(),
        primary_key: texts(&json["primary_key"]),
        unique_indexes: json["unique_indexes"].as_array().unwrap().iter().map(texts).collect(),
        comment: None,
        partition: false,
    }
}

fn type_facts(json: &Json) -> TypeFacts {
    let kind = match json["kind"].as_str().unwrap() {
        "base" => TypeKind::Base,
        "array" => TypeKind::Array {
            element: oid(&json["element"]),
            delimiter: json["delimiter"].as_str().unwrap().chars().next().unwrap(),
        },
        "domain" => TypeKind::Domain {
            base: oid(&json["base"]),
            modifier: number(&json["modifier"]),
            not_null: json["not_null"].as_bool().unwrap(),
        },
        "enum" => TypeKind::Enum {
            labels: texts(&json["labels"]),
        },
        "composite" => TypeKind::Composite,
        "range" => TypeKind::Range {
            subtype: oid(&json["subtype"]),
        },
        "multirange" => TypeKind::Multirange,
        other => panic!("{other}"),
    };
    TypeFacts {
        oid: oid(&json["oid"]),
        schema: text(&json["schema"]),
        name: text(&json["name"]),
        on_path: true,
        kind,
    }
}
